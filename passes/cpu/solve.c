// Inverses of unit triangular matrices, by substitution.
//
//   before  %x = trinv(%l) {axes = [s, t]} : f32{t:64,s:64}
//   after   for i in 64 { acc = unit vector i; for j in i { acc -= L[i][j] *
//             X[j] }; X[i] = acc }
//
// Rows are vectors along the columns, at most four of them at a time. Each
// step is a multiplication of a row that is exact already: repeated or
// parallel rows, for which powers of L explode, do no harm.
#include "passes/cpu/cpu.h"

#include <assert.h>

enum { MAX_ACC = 4 };

typedef struct Solve {
  Assign *as;
  Value l, x;        // matrices in scratch
  Value lrow, xrow;  // distances of their rows
  int64_t n;
  DType dt;
} Solve;

// Columns from .. from + count vectors of all rows.
static void columns(Solve *s, int64_t from, uint32_t count) {
  Assign *as = s->as;
  uint32_t lanes = as->lanes;
  Value zero = em_int(as, 0), acc[MAX_ACC], one = em_float(as, s->dt, 1);
  Loop rows = loop_open(as, zero, em_int(as, s->n), 1, NULL, 0, "i");
  Value i = rows.iv, at = em_2(as, OP_MUL, i, s->lrow);
  for (uint32_t c = 0; c < count; c++) {
    Value k = em_int(as, from + (int64_t)c * lanes);
    Value here = em_2(as, OP_ADD, em_iota(as), em_vec(as, k));
    here = em_2(as, OP_EQ, here, em_vec(as, i));
    acc[c] = em_select(as, here, em_vec(as, one),
                       em_vec(as, em_float(as, s->dt, 0)));
  }
  Loop sum = loop_open(as, zero, i, 1, acc, count, "j");
  Value l = em_ld(as, s->l, em_2(as, OP_ADD, at, sum.iv));
  l = em_vec(as, em_1(as, OP_NEG, l));
  Value row = em_2(as, OP_MUL, sum.iv, s->xrow), next[MAX_ACC];
  for (uint32_t c = 0; c < count; c++) {
    Value k = em_int(as, from + (int64_t)c * lanes);
    Value x = em_vld(as, s->x, em_2(as, OP_ADD, row, k), 0);
    next[c] = em_3(as, OP_FMA, l, x, acc[c]);
  }
  loop_close(as, &sum, next);
  Value to = em_2(as, OP_MUL, i, s->xrow);
  for (uint32_t c = 0; c < count; c++) {
    Value k = em_int(as, from + (int64_t)c * lanes);
    em_vst(as, s->x, em_2(as, OP_ADD, to, k), next[c], 0);
  }
  loop_close(as, &rows, NULL);
}

void solve_emit(Assign *as, Op *op) {
  const IrAttr *axes = ir_attr(op, AT_AXES);
  uint32_t col = (uint32_t)axes->list[1];
  Value v = op->args[0], res = op->res[0];
  Dim size = axis_size_in(as, v, col);
  Solve s = {.as = as};
  bool known = dim_known(&as->m->dims, size, &s.n);
  assert(known && "chunks have a known size");
  (void)known;
  Form *from = form_new(as, v, (int)col, size, false);
  Form *to = form_new(as, res, (int)col, size, false);
  root_keep(as, v, from);
  flush(as);
  s.dt = from->dt;
  s.l = form_base(as, from);
  s.x = form_base(as, to);
  s.lrow = form_stride(as, from, 0);
  s.xrow = form_stride(as, to, 0);
  int64_t lanes = as->lanes, vecs = (s.n + lanes - 1) / lanes;
  for (int64_t c = 0; c < vecs; c += MAX_ACC)
    columns(&s, c * lanes, (uint32_t)(vecs - c < MAX_ACC ? vecs - c : MAX_ACC));
  as->forms[res] = to;
  as->ready[res] = true;
}
