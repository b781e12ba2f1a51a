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
  Value zero = cpu_int(as, 0), acc[MAX_ACC], one = cpu_float(as, s->dt, 1);
  Loop rows = cpu_loop_upto(as, cpu_int(as, s->n), 1, "i");
  Value i = rows.iv, at = cpu_2(as, OP_MUL, i, s->lrow);
  for (uint32_t c = 0; c < count; c++) {
    Value k = cpu_int(as, from + (int64_t)c * lanes);
    Value first = cpu_vec(as, k);
    Value here = cpu_2(as, OP_ADD, cpu_iota(as), first);
    here = cpu_2(as, OP_EQ, here, cpu_vec(as, i));
    Value none = cpu_vec(as, cpu_float(as, s->dt, 0));
    acc[c] = cpu_select(as, here, cpu_vec(as, one), none);
  }
  Loop sum = cpu_loop_open(as, (LoopCount){zero, i, 1, "j"}, acc, count);
  Value l = cpu_ld(as, s->l, cpu_2(as, OP_ADD, at, sum.iv));
  l = cpu_vec(as, cpu_1(as, OP_NEG, l));
  Value row = cpu_2(as, OP_MUL, sum.iv, s->xrow), next[MAX_ACC];
  for (uint32_t c = 0; c < count; c++) {
    Value k = cpu_int(as, from + (int64_t)c * lanes);
    Value x = cpu_vld(as, s->x, cpu_2(as, OP_ADD, row, k), 0);
    next[c] = cpu_3(as, OP_FMA, l, x, acc[c]);
  }
  cpu_loop_close(as, &sum, next);
  Value to = cpu_2(as, OP_MUL, i, s->xrow);
  for (uint32_t c = 0; c < count; c++) {
    Value k = cpu_int(as, from + (int64_t)c * lanes);
    cpu_vst(as, s->x, cpu_2(as, OP_ADD, to, k), next[c], 0);
  }
  cpu_loop_close(as, &rows, NULL);
}

void cpu_solve_emit(Assign *as, Op *op) {
  const IrAttr *axes = ir_attr(op, AT_AXES);
  uint32_t col = (uint32_t)axes->list[1];
  Value v = op->args[0], res = op->res[0];
  Dim size = cpu_axis_size_in(as, v, col);
  Solve s = {.as = as};
  bool known = dim_known(&as->m->dims, size, &s.n);
  assert(known && "chunks have a known size");
  (void)known;
  Form *from = cpu_form_new(as, v, (int)col, size, false);
  Form *to = cpu_form_new(as, res, (int)col, size, false);
  cpu_root_keep(as, v, from);
  cpu_flush(as);
  s.dt = from->dt;
  s.l = cpu_form_base(as, from);
  s.x = cpu_form_base(as, to);
  s.lrow = cpu_form_stride(as, from, 0);
  s.xrow = cpu_form_stride(as, to, 0);
  int64_t lanes = as->lanes, vecs = (s.n + lanes - 1) / lanes;
  for (int64_t c = 0; c < vecs; c += MAX_ACC)
    columns(&s, c * lanes, (uint32_t)(vecs - c < MAX_ACC ? vecs - c : MAX_ACC));
  as->forms[res] = to;
  as->ready[res] = true;
}
