// `affine` and `maxplus` of level stream, step by step.
#include "ir/affine.h"
#include "ir/interp/interp.h"

#include <math.h>

typedef struct Walk {
  const Op *op;
  Affine a;
  double *version;  // [version + 1][row]
  int64_t rows;
} Walk;

static double *version_of(const Walk *w, int from) {
  return w->version + (from + 1) * w->rows;
}

// Sum over the rows of v times a version of the state.
static double read_of(Interp *in, const Walk *w, Value v, int from) {
  const double *s = version_of(w, from);
  DType t = ir_type(in->f, w->op->res[0])->dtype;
  double acc = 0;
  for (int64_t r = 0; r < w->rows; r++) {
    in->coord[w->a.row] = r;
    acc = interp_round(in, t, acc + interp_eval(in, v) * s[r]);
  }
  return acc;
}

static void put(Interp *in, Value v, double x) {
  const Type *t = ir_type(in->f, v);
  Table *tb = interp_table(in, v);
  uint64_t at = interp_at(in, t);
  tb->at[at] = interp_round(in, t->dtype, x);
  tb->known[at] = 1;
}

static void write_rows(Interp *in, Walk *w, uint32_t i) {
  const AffineWrite *m = &w->a.write[i];
  double *old = version_of(w, (int)i), *now = version_of(w, (int)i + 1);
  double e = m->a ? -read_of(in, w, m->a, m->from) : 0;
  in->coord[w->a.row] = 0;
  e += interp_eval(in, m->w);
  if (m->a && w->a.written) put(in, w->op->res[affine_written_at(&w->a)], e);
  for (int64_t r = 0; r < w->rows; r++) {
    in->coord[w->a.row] = r;
    now[r] = old[r] + interp_eval(in, m->b) * e;
  }
}

// One column of the state at the current step.
static void column(Interp *in, void *data) {
  Walk *w = data;
  Value s = w->op->res[0];
  Table *tb = interp_table(in, s);
  double *pre = version_of(w, AFFINE_PRE), *now = version_of(w, 0);
  for (int64_t r = 0; r < w->rows; r++) {
    in->coord[w->a.row] = r;
    pre[r] = now[r] = tb->at[interp_at(in, ir_type(in->f, s))];
    if (w->a.front) put(in, w->op->res[affine_front_at(&w->a)], pre[r]);
    double g = w->a.decay ? interp_eval(in, w->a.decay) : 0;
    now[r] *= eval_op(OP_EXP2, &g);
  }
  for (uint32_t i = 0; i < w->a.nwrites; i++) write_rows(in, w, i);
  for (uint32_t i = 0; i < w->a.nreads; i++) {
    const AffineRead *q = &w->a.read[i];
    put(in, w->op->res[i + 1], read_of(in, w, q->q, q->from));
  }
  now = version_of(w, (int)w->a.nwrites);
  for (int64_t r = 0; r < w->rows; r++) {
    in->coord[w->a.row] = r;
    put(in, s, now[r]);
  }
}

static void first(Interp *in, void *data) {
  Walk *w = data;
  put(in, w->op->res[0], interp_eval(in, w->a.state));
}

static void skipped(Interp *in, const Walk *w) {
  for (uint32_t i = 0; i < w->a.nreads; i++) put(in, w->op->res[i + 1], 0);
  if (w->a.written) put(in, w->op->res[affine_written_at(&w->a)], 0);
}

static void step(Interp *in, void *data) {
  Walk *w = data;
  int64_t t = in->coord[w->a.axis];
  if (w->a.limit && t >= (int64_t)interp_eval(in, w->a.limit)) skipped(in, w);
  else column(in, w);
}

// One point of a running maximum.
static void raise_point(Interp *in, void *data) {
  const Op *op = data;
  const Type *s = ir_type(in->f, op->res[0]);
  Table *tb = interp_table(in, op->res[0]);
  double m = tb->at[interp_at(in, s)];
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  put(in, op->res[1], m);
  if (op->nargs == 4 &&
      in->coord[axis] >= (int64_t)interp_eval(in, op->args[3]))
    return;
  m = interp_round(in, s->dtype, m + interp_eval(in, op->args[1]));
  put(in, op->res[0], fmax(m, interp_eval(in, op->args[2])));
}

bool interp_maxplus(Interp *in, const Op *op) {
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  const Type *s = ir_type(in->f, op->res[0]);
  Walk w = {.op = op, .a.state = op->args[0]};
  bool reverse = ir_attr_i(op, AT_REVERSE, 0);
  interp_points(in, s, first, &w);
  int64_t n = in->extent[axis];
  for (int64_t i = 0; i < n && !in->failed; i++) {
    in->coord[axis] = reverse ? n - 1 - i : i;
    interp_points(in, s, raise_point, (void *)(uintptr_t)op);
  }
  return !in->failed;
}

bool interp_affine(Interp *in, const Op *op) {
  Walk w = {.op = op};
  if (!affine_parts(op, &w.a)) return false;
  w.rows = in->extent[w.a.row];
  w.version = NEWN(in->arena, double, (w.a.nwrites + 2) * w.rows + 1);
  const Type *s = ir_type(in->f, op->res[0]);
  Type columns = type_without(*s, w.a.row);
  interp_points(in, s, first, &w);
  int64_t n = in->extent[w.a.axis];
  for (int64_t i = 0; i < n && !in->failed; i++) {
    in->coord[w.a.axis] = w.a.reverse ? n - 1 - i : i;
    interp_points(in, &columns, step, &w);
  }
  return !in->failed;
}
