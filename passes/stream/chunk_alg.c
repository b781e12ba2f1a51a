// The algebra of `chunk`: what ops do to matrices and linear forms.
//
//   x * (diag(d) S + b e^T)  ->  diag(x d) S + b (x e)^T       x a scalar
//   k (outer) (w - a^T S)    ->  + k (w - S^T a)^T             a write
//   sum(d: q * M)            ->  q^T M                         a read
#include "passes/stream/chunk.h"

#include <string.h>

// ---------------------------------------------------------------- axes
bool chunk_is_row(const Chunk *c, uint32_t axis) {
  for (uint32_t i = 0; i < c->n; i++)
    if (!c->state[i].scalar && c->state[i].row == (int)axis) return true;
  return false;
}

bool chunk_is_col(const Chunk *c, uint32_t axis) {
  for (uint32_t i = 0; i < c->n; i++)
    if (c->state[i].col == (int)axis) return true;
  return false;
}

typedef enum Span2 { SCALAR = 0, ROWS = 1, COLS = 2, BOTH = ROWS | COLS } Span2;

// Which axes of the states v has.
static Span2 span_of(const Chunk *c, Value v) {
  const Type *t = ir_type(c->f, v);
  unsigned s = SCALAR;
  for (uint32_t i = 0; i < t->n; i++) {
    if (chunk_is_row(c, t->axis[i])) s |= ROWS;
    if (chunk_is_col(c, t->axis[i])) s |= COLS;
  }
  return (Span2)s;
}

// ---------------------------------------------------------------- makers
const Lin *chunk_lin(Chunk *c, Value w, const Term *t, uint32_t n) {
  Lin *l = NEW(c->arena, Lin);
  Term *copy = NEWN(c->arena, Term, n + 1);
  if (n) memcpy(copy, t, n * sizeof *t);
  *l = (Lin){w, n, copy};
  return l;
}

const Mat *chunk_mat(Chunk *c, int state, Value g, const Write *const *w,
                     uint32_t n) {
  Mat *m = NEW(c->arena, Mat);
  const Write **copy = NEWN(c->arena, const Write *, n + 1);
  if (n) memcpy(copy, w, n * sizeof *w);
  *m = (Mat){state, g, n, copy};
  return m;
}

static const Write *a_write(Chunk *c, Value b, const Lin *e) {
  Write *w = NEW(c->arena, Write);
  *w = (Write){b, e};
  return w;
}

static SymValue of_lin(const Lin *l) {
  return (SymValue){.kind = SY_LIN, .lin = l};
}

static SymValue of_mat(const Mat *m) {
  return (SymValue){.kind = SY_MAT, .mat = m};
}

static SymValue late(const Op *op, const char *reason) {
  return (SymValue){.kind = SY_LATE, .why = op, .reason = reason};
}

static bool is_one(const Chunk *c, Value v) {
  double k;
  return ir_const_value(c->f, v, &k) && k == 1;
}

static Value mul(Chunk *c, Value x, Value y) {
  if (!x || !y) return x ? x : y;
  if (is_one(c, x)) return y;
  if (is_one(c, y)) return x;
  return ir_2(&c->b, OP_MUL, x, y);
}

static Value one_like(Chunk *c, Value v) {
  return ir_const_f(&c->b, ir_type(c->f, v)->dtype, 1);
}

// ---------------------------------------------------------------- forms
static const Lin *lin_scaled(Chunk *c, const Lin *l, Value x) {
  Term *t = NEWN(c->arena, Term, l->n + 1);
  for (uint32_t i = 0; i < l->n; i++) {
    t[i] = l->term[i];
    t[i].c = mul(c, x, t[i].c);
  }
  return chunk_lin(c, l->w ? mul(c, x, l->w) : 0, t, l->n);
}

static const Lin *lin_times_const(Chunk *c, const Lin *l, double k) {
  Term *t = NEWN(c->arena, Term, l->n + 1);
  for (uint32_t i = 0; i < l->n; i++) {
    t[i] = l->term[i];
    t[i].k *= k;
  }
  Value w = l->w;
  if (w && k == -1) w = ir_1(&c->b, OP_NEG, w);
  else if (w) w = mul(c, w, ir_const_f(&c->b, ir_type(c->f, w)->dtype, k));
  return chunk_lin(c, w, t, l->n);
}

static const Mat *writes_negated(Chunk *c, const Mat *m) {
  const Write **w = NEWN(c->arena, const Write *, m->n + 1);
  for (uint32_t i = 0; i < m->n; i++)
    w[i] = a_write(c, m->write[i]->b, lin_times_const(c, m->write[i]->e, -1));
  return chunk_mat(c, m->state, m->g, w, m->n);
}

static const Lin *lin_sum(Chunk *c, const Lin *a, const Lin *b) {
  Term *t = NEWN(c->arena, Term, a->n + b->n + 1);
  memcpy(t, a->term, a->n * sizeof *t);
  memcpy(t + a->n, b->term, b->n * sizeof *t);
  Value w = a->w && b->w ? ir_2(&c->b, OP_ADD, a->w, b->w) : a->w ? a->w : b->w;
  return chunk_lin(c, w, t, a->n + b->n);
}

static const Mat *mat_sum(Chunk *c, const Mat *a, const Mat *b) {
  if (a->state >= 0 && b->state >= 0) return NULL;
  if (b->state >= 0) {
    const Mat *x = a;
    a = b;
    b = x;
  }
  const Write **w = NEWN(c->arena, const Write *, a->n + b->n + 1);
  memcpy(w, a->write, a->n * sizeof *w);
  memcpy(w + a->n, b->write, b->n * sizeof *w);
  return chunk_mat(c, a->state, a->g, w, a->n + b->n);
}

// Every write with b * rows and e * cols (0: 1); NULL if a read would have to
// be scaled by column.
static const Mat *scaled_writes(Chunk *c, const Mat *m, Value rows,
                                Value cols) {
  const Write **w = NEWN(c->arena, const Write *, m->n + 1);
  for (uint32_t i = 0; i < m->n; i++) {
    const Write *x = m->write[i];
    if (cols && x->e->n && span_of(c, cols) != SCALAR) return NULL;
    const Lin *e = cols ? lin_scaled(c, x->e, cols) : x->e;
    w[i] = a_write(c, rows ? mul(c, x->b, rows) : x->b, e);
  }
  return chunk_mat(c, m->state, m->g, w, m->n);
}

// ---------------------------------------------------------------- outer
static const Mat *factored(Chunk *c, Value v);

static const Mat *factored_mul(Chunk *c, const Op *op) {
  for (uint32_t i = 0; i < 2; i++) {
    Value x = op->args[i], y = op->args[1 - i];
    Span2 s = span_of(c, x);
    if (s == BOTH || (s == ROWS && !(span_of(c, y) & COLS))) continue;
    const Mat *m = factored(c, y);
    return !m          ? NULL
           : s == ROWS ? scaled_writes(c, m, x, 0)
                       : scaled_writes(c, m, 0, x);
  }
  return NULL;
}

static const Mat *factored_add(Chunk *c, const Op *op) {
  const Mat *a = factored(c, op->args[0]);
  const Mat *b = a ? factored(c, op->args[1]) : NULL;
  if (b && op->code == OP_SUB) b = writes_negated(c, b);
  return b ? mat_sum(c, a, b) : NULL;
}

// A value without states as a sum of outer products; NULL if it is none.
static const Mat *factored(Chunk *c, Value v) {
  const Op *op = ir_def(c->f, v);
  Value b = 0, w = 0;
  double k;
  switch (span_of(c, v)) {
  case SCALAR:
    if (ir_const_value(c->f, v, &k) && k == 0)
      return chunk_mat(c, -1, 0, NULL, 0);
    b = one_like(c, v), w = v;
    break;
  case ROWS:
    if (op && op->code == OP_MUL &&
        (span_of(c, op->args[0]) == SCALAR ||
         span_of(c, op->args[1]) == SCALAR))
      return factored_mul(c, op);
    b = v, w = one_like(c, v);
    break;
  case COLS: b = one_like(c, v), w = v; break;
  case BOTH:
    if (op && op->code == OP_MUL) return factored_mul(c, op);
    if (op && (op->code == OP_ADD || op->code == OP_SUB))
      return factored_add(c, op);
    if (op && op->code == OP_NEG) {
      const Mat *m = factored(c, op->args[0]);
      return m ? writes_negated(c, m) : NULL;
    }
    return NULL;
  }
  const Write *one = a_write(c, b, chunk_lin(c, w, NULL, 0));
  return chunk_mat(c, -1, 0, &one, 1);
}

// ---------------------------------------------------------------- products
static SymValue lin_times(Chunk *c, const Op *op, const Lin *l, Value x) {
  Span2 s = span_of(c, x);
  if (s == SCALAR || (s == COLS && !l->n)) return of_lin(lin_scaled(c, l, x));
  if (s != ROWS)
    return late(op, "a read of the state is scaled column by column");
  const Write *w = a_write(c, x, l);
  return of_mat(chunk_mat(c, -1, 0, &w, 1));
}

static bool erases(const Mat *m) {
  for (uint32_t i = 0; i < m->n; i++)
    if (m->write[i]->e->n) return true;
  return false;
}

static SymValue mat_times(Chunk *c, const Op *op, const Mat *m, Value x) {
  Span2 s = span_of(c, x);
  bool cols = s == COLS && !(m->g && span_of(c, m->g) & ROWS);
  if (s == BOTH || (s == COLS && m->state >= 0 && !cols) ||
      (s == ROWS && m->g && span_of(c, m->g) & COLS))
    return late(op, "the state is scaled by something else than a decay of "
                    "its rows");
  // What has been erased is left as it is: it may be stored.
  bool rows = s == ROWS || (s == SCALAR && m->state >= 0 && erases(m));
  const Mat *y = rows ? scaled_writes(c, m, x, 0) : scaled_writes(c, m, 0, x);
  if (!y) return late(op, "a read of the state is scaled column by column");
  if (m->state < 0) return of_mat(y);
  Value g = chunk_log_of(c, x);
  if (!g)
    return late(op, "the decay is not known to be positive: write it as "
                    "exp(..) or sigmoid(..)");
  if (m->g) g = ir_2(&c->b, OP_ADD, m->g, g);
  return of_mat(chunk_mat(c, m->state, g, y->write, y->n));
}

static SymValue times(Chunk *c, const Op *op, const SymValue *x) {
  if (x[0].kind == SY_FREE) {
    SymValue y[2] = {x[1], x[0]};
    return times(c, op, y);
  }
  if (x[1].kind != SY_FREE)
    return late(op, "two values that depend on the state are multiplied");
  return x[0].kind == SY_LIN ? lin_times(c, op, x[0].lin, x[1].v)
                             : mat_times(c, op, x[0].mat, x[1].v);
}

static SymValue negated(Chunk *c, const Op *op, SymValue x) {
  if (x.kind == SY_LIN) return of_lin(lin_times_const(c, x.lin, -1));
  if (x.mat->state >= 0) return late(op, "the decay is negative");
  return of_mat(writes_negated(c, x.mat));
}

static SymValue divided(Chunk *c, const Op *op, const SymValue *x) {
  if (x[1].kind != SY_FREE) return late(op, "a division by a state");
  Value one = one_like(c, x[1].v);
  SymValue y[2] = {x[0], {.kind = SY_FREE}};
  y[1].v = ir_2(&c->b, OP_DIV, one, x[1].v);
  return times(c, op, y);
}

// ---------------------------------------------------------------- sums
// FREE values as what they are added to.
static SymValue lifted(Chunk *c, SymValue x, SymKind to) {
  if (x.kind != SY_FREE || to == SY_FREE) return x;
  if (to == SY_LIN && !(span_of(c, x.v) & ROWS))
    return of_lin(chunk_lin(c, x.v, NULL, 0));
  const Mat *m = to == SY_MAT ? factored(c, x.v) : NULL;
  return m ? of_mat(m) : late(NULL, NULL);
}

static SymValue plus(Chunk *c, const Op *op, const SymValue *x) {
  SymKind kind = x[0].kind == SY_FREE ? x[1].kind : x[0].kind;
  SymValue a = lifted(c, x[0], kind), b = lifted(c, x[1], kind);
  if (a.kind == kind && b.kind == kind && op->code == OP_SUB)
    b = negated(c, op, b);
  if (b.kind == SY_LATE && b.why) return b;
  if (a.kind != kind || b.kind != kind)
    return late(op, "what is added to the state is no sum of outer products");
  if (kind == SY_LIN) return of_lin(lin_sum(c, a.lin, b.lin));
  const Mat *m = mat_sum(c, a.mat, b.mat);
  return m ? of_mat(m) : late(op, "two states are added");
}

// ---------------------------------------------------------------- reads
static SymValue read_by(Chunk *c, const Op *op, const SymValue *x) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  uint32_t row = (uint32_t)over->list[0];
  bool first = x[0].kind == SY_MAT;
  const SymValue *m = &x[!first], *a = &x[first];
  if (m->kind != SY_MAT || a->kind != SY_FREE || op->nargs != 2 ||
      over->n != 1 || !chunk_is_row(c, row) || span_of(c, a->v) & COLS)
    return late(op, "the state is read by something else than a vector");
  if (m->mat->state >= 0) {
    Term t = {1, 0, a->v, m->mat};
    return of_lin(chunk_lin(c, 0, &t, 1));
  }
  const Lin *sum = chunk_lin(c, 0, NULL, 0);
  for (uint32_t i = 0; i < m->mat->n; i++) {
    const Write *w = m->mat->write[i];
    Value s = ir_dot(&c->b, a->v, w->b, &row, 1);
    sum = lin_sum(c, sum, lin_scaled(c, w->e, s));
  }
  return of_lin(sum);
}

// ---------------------------------------------------------------- choices
static const Mat *mat_if(Chunk *c, Value p, const Mat *m, bool side) {
  Value zero = ir_const_f(&c->b, DT_F32, 0);
  const Write **w = NEWN(c->arena, const Write *, m->n + 1);
  for (uint32_t i = 0; i < m->n; i++) {
    Value b = ir_cast(&c->b, DT_F32, m->write[i]->b);
    b = ir_3(&c->b, OP_SELECT, p, side ? b : zero, side ? zero : b);
    w[i] = a_write(c, b, m->write[i]->e);
  }
  return chunk_mat(c, m->state, m->g, w, m->n);
}

static SymValue chosen(Chunk *c, const Op *op, const SymValue *x) {
  if (x[0].kind != SY_FREE || span_of(c, x[0].v) != SCALAR)
    return late(op, "a choice that depends on the state");
  SymKind kind = x[1].kind == SY_FREE ? x[2].kind : x[1].kind;
  if (kind != SY_MAT) return late(op, "a choice between reads of the state");
  if (op->args[0] == c->valid && x[1].kind == SY_MAT) return x[1];
  SymValue y = lifted(c, x[1], kind), z = lifted(c, x[2], kind);
  if (y.kind != SY_MAT || z.kind != SY_MAT || y.mat->state != z.mat->state)
    return late(op, "a choice between different states");
  Value p = x[0].v, g = 0;
  const Mat *a = mat_if(c, p, y.mat, true), *b = mat_if(c, p, z.mat, false);
  if (a->g || b->g) {
    Value zero = ir_const_f(&c->b, DT_F32, 0);
    g = ir_3(&c->b, OP_SELECT, p, a->g ? a->g : zero, b->g ? b->g : zero);
  }
  const Write **w = NEWN(c->arena, const Write *, a->n + b->n + 1);
  memcpy(w, a->write, a->n * sizeof *w);
  memcpy(w + a->n, b->write, b->n * sizeof *w);
  return of_mat(chunk_mat(c, a->state, g, w, a->n + b->n));
}

static SymValue casted(const Chunk *c, const Op *op, const SymValue *x) {
  DType from = ir_type(c->f, op->args[0])->dtype;
  DType to = (DType)ir_attr_i(op, AT_TO, DT_F32);
  if (dtype_is_float(to) && dtype_size(to) >= dtype_size(from)) return x[0];
  return late(op, "the state, or what is read of it, is rounded");
}

SymValue chunk_op(Chunk *c, const Op *op, const SymValue *x) {
  for (uint32_t i = 0; i < op->nargs; i++)
    if (x[i].kind == SY_LATE) return x[i];
  switch (op->code) {
  case OP_MUL: return times(c, op, x);
  case OP_DIV: return divided(c, op, x);
  case OP_ADD:
  case OP_SUB: return plus(c, op, x);
  case OP_NEG: return negated(c, op, x[0]);
  case OP_DOT: return read_by(c, op, x);
  case OP_SELECT: return chosen(c, op, x);
  case OP_CAST: return casted(c, op, x);
  default:
    return late(op, "the state goes through an op that is not linear in it");
  }
}
