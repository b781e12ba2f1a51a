// Level tile, executed eagerly: each value is a dense tile of doubles over the
// axes of its type.
#include "ir/interp/interp.h"

#include <assert.h>
#include <math.h>
#include <string.h>

// Of a store: a tensor, a value, indices, a mask.
enum { MAX_RANK = 8, MAX_OPERANDS = MAX_RANK + 3 };

// A tile: sizes in the order of the type.
typedef struct Tile {
  double *at;
  int64_t size[MAX_AXES];
  uint64_t n;
} Tile;

typedef struct Exec {
  Interp *in;
  Tile *val;           // per value
  Arena *arena;        // of this task
  int64_t origin[64];  // per axis
} Exec;

static void region(Exec *x, const Region *r);

static Tile new_tile(Exec *x, const Type *t) {
  Tile r = {.n = 1};
  for (uint32_t i = 0; i < t->n; i++) {
    if (!dim_eval(&x->in->m->dims, t->size[i], x->in->dims, &r.size[i]))
      interp_fail(x->in, NULL, "a tile size has no value");
    r.n *= (uint64_t)r.size[i];
  }
  if (r.n > 1u << 26) {
    interp_fail(x->in, NULL, "a tile is too large");
    r.n = 1;
  }
  r.at = NEWN(x->arena, double, r.n ? r.n : 1);
  return r;
}

static Tile *define(Exec *x, Value v) {
  x->val[v] = new_tile(x, ir_type(x->in->f, v));
  return &x->val[v];
}

// Coordinates of element i of a tile of type t, into c per axis.
static void coords(const Type *t, const Tile *tile, uint64_t i, int64_t *c) {
  for (uint32_t k = t->n; k-- > 0;) {
    c[t->axis[k]] = (int64_t)(i % (uint64_t)tile->size[k]);
    i /= (uint64_t)tile->size[k];
  }
}

// Where the elements of a value are: at[sum over k of c[axis[k]] * by[k]].
typedef struct Operand {
  const double *at;
  uint32_t n, axis[MAX_AXES];
  uint64_t by[MAX_AXES];
} Operand;

static Operand operand(const Exec *x, Value v) {
  const Interp *in = x->in;
  const ValueInfo *info = ir_info(in->f, v);
  if (!info->def && in->arg_of[v] >= 0)
    return (Operand){.at = &in->args[in->arg_of[v]].scalar};
  const Tile *t = &x->val[v];
  Operand o = {.at = t->at, .n = info->type.n};
  uint64_t by = 1;
  for (uint32_t k = o.n; k-- > 0;) {
    o.axis[k] = info->type.axis[k];
    o.by[k] = by;
    by *= (uint64_t)t->size[k];
  }
  return o;
}

static const double *place(const Operand *o, const int64_t *c) {
  uint64_t at = 0;
  for (uint32_t k = 0; k < o->n; k++) at += (uint64_t)c[o->axis[k]] * o->by[k];
  return o->at + at;
}

// From one element to the next along the axis.
static uint32_t step_along(const Operand *o, uint32_t axis) {
  for (uint32_t k = 0; k < o->n; k++)
    if (o->axis[k] == axis) return (uint32_t)o->by[k];
  return 0;
}

// Element of v at the coordinates.
static double get(const Exec *x, Value v, const int64_t *c) {
  Operand o = operand(x, v);
  return *place(&o, c);
}

static double get0(const Exec *x, Value v) {
  static const int64_t zero[64];
  return get(x, v, zero);
}

// ---------------------------------------------------------------- elements
static double load(Exec *x, const Op *op, const Operand *index,
                   const int64_t *c) {
  InterpTensor *t = &x->in->args[x->in->arg_of[op->args[0]]];
  int64_t idx[MAX_RANK] = {0}, off;
  int bad;
  for (uint32_t i = 1; i < op->nargs; i++)
    idx[i - 1] = (int64_t)*place(&index[i], c);
  if (!interp_offset(t, idx, &off, &bad)) {
    if (ir_attr_i(op, AT_INBOUNDS, 0))
      interp_fail(x->in, op, "out of range in spite of inbounds");
    return 0;
  }
  return dtype_load(t->dtype, (char *)t->data + off * dtype_size(t->dtype));
}

static double cast(const Exec *x, const Op *op, double v) {
  DType to = (DType)ir_attr_i(op, AT_TO, DT_F32);
  return dtype_is_float(to) && !x->in->opt->round ? v : dtype_round(to, v);
}

// Elements that an op makes, along the last axis.
typedef struct Line {
  Operand x[MAX_OPERANDS];
  uint32_t axis, n;
} Line;

static void make_line(Exec *x, const Op *op, const Line *l, int64_t *c,
                      double *out) {
  const double *in[MAX_OPERANDS];
  uint32_t step[MAX_OPERANDS];
  for (uint32_t k = 0; k < op->nargs && op->code != OP_LOAD; k++) {
    in[k] = place(&l->x[k], c);
    step[k] = step_along(&l->x[k], l->axis);
  }
  if (op->code == OP_LOAD)
    for (uint32_t i = 0; i < l->n; i++, c[l->axis]++)
      out[i] = load(x, op, l->x, c);
  else if (op->code == OP_CAST)
    for (uint32_t i = 0; i < l->n; i++)
      out[i] = cast(x, op, in[0][i * step[0]]);
  else eval_many(op->code, in, step, l->n, out);
}

static void each_element(Exec *x, const Op *op) {
  const Type *t = ir_type(x->in->f, op->res[0]);
  Tile *r = define(x, op->res[0]);
  Line l = {.n = 1};
  assert(op->nargs <= MAX_OPERANDS);
  for (uint32_t k = op->code == OP_LOAD; k < op->nargs; k++)
    l.x[k] = operand(x, op->args[k]);
  if (t->n) {
    l.axis = t->axis[t->n - 1];
    l.n = (uint32_t)r->size[t->n - 1];
  }
  int64_t c[64] = {0};
  for (uint64_t i = 0; i < r->n && !x->in->failed; i += l.n) {
    coords(t, r, i, c);
    make_line(x, op, &l, c, r->at + i);
    if (x->in->opt->round && dtype_is_float(t->dtype))
      dtype_round_many(t->dtype, r->at + i, l.n);
  }
}

// ---------------------------------------------------------------- reductions
typedef struct Over {
  uint32_t axis[MAX_AXES];
  int64_t size[MAX_AXES];
  uint32_t n;
} Over;

static int64_t size_of_axis(const Exec *x, const Op *op, uint32_t axis) {
  for (uint32_t i = 0; i < op->nargs && i < 2; i++) {
    int at = type_axis_at(ir_type(x->in->f, op->args[i]), axis);
    if (at >= 0) return x->val[op->args[i]].size[at];
  }
  return 1;
}

typedef struct Fold {
  RKind kind;
  DType type;
  bool round, dot, masked;
  Operand x, y, mask;
  Over over;
} Fold;

static double joined(const Fold *f, double acc, double v) {
  acc = eval_reduce(f->kind, acc, v);
  if (!f->round) return acc;
  return f->type == DT_F32 ? (double)(float)acc : dtype_round(f->type, acc);
}

// Along the axis, from the coordinates on.
static double fold_line(const Fold *f, uint32_t axis, int64_t n,
                        const int64_t *c, double acc) {
  const double *x = place(&f->x, c), *y = f->dot ? place(&f->y, c) : NULL;
  const double *on = f->masked ? place(&f->mask, c) : NULL;
  size_t x_step = step_along(&f->x, axis);
  size_t y_step = y ? step_along(&f->y, axis) : 0;
  size_t on_step = on ? step_along(&f->mask, axis) : 0;
  for (size_t j = 0; j < (size_t)n; j++) {
    if (on && !on[j * on_step]) continue;
    double v = x[j * x_step];
    acc = joined(f, acc, y ? v * y[j * y_step] : v);
  }
  return acc;
}

static double fold(const Fold *f, uint32_t i, int64_t *c, double acc) {
  const Over *o = &f->over;
  if (!o->n) return fold_line(f, 0, 1, c, acc);
  c[o->axis[i]] = 0;
  if (i + 1 == o->n) return fold_line(f, o->axis[i], o->size[i], c, acc);
  for (int64_t j = 0; j < o->size[i]; j++) {
    c[o->axis[i]] = j;
    acc = fold(f, i + 1, c, acc);
  }
  return acc;
}

static Fold fold_of(const Exec *x, const Op *op) {
  const IrAttr *a = ir_attr(op, AT_OVER);
  Fold f = {.dot = op->code == OP_DOT,
            .type = ir_type(x->in->f, op->res[0])->dtype,
            .x = operand(x, op->args[0])};
  f.kind = f.dot ? RK_SUM : (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  f.round = x->in->opt->round && dtype_is_float(f.type);
  f.masked = f.dot && op->nargs > 3;
  if (f.dot) f.y = operand(x, op->args[1]);
  if (f.masked) f.mask = operand(x, op->args[3]);
  f.over.n = a->n;
  for (uint32_t i = 0; i < a->n; i++) {
    f.over.axis[i] = (uint32_t)a->list[i];
    f.over.size[i] = size_of_axis(x, op, f.over.axis[i]);
  }
  return f;
}

static void reduction(Exec *x, const Op *op) {
  const Type *t = ir_type(x->in->f, op->res[0]);
  Fold f = fold_of(x, op);
  Operand first = {0};
  if (f.dot && op->nargs >= 3) first = operand(x, op->args[2]);
  Tile *r = define(x, op->res[0]);
  int64_t c[64] = {0};
  for (uint64_t i = 0; i < r->n; i++) {
    coords(t, r, i, c);
    double init = first.at ? *place(&first, c)
                  : f.dot  ? 0
                           : eval_identity(f.kind, t->dtype);
    r->at[i] = fold(&f, 0, c, init);
  }
}

static void scan(Exec *x, const Op *op) {
  const Type *t = ir_type(x->in->f, op->res[0]);
  uint32_t a = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  bool suffix = ir_attr_i(op, AT_DIR, DIR_PREFIX) == DIR_SUFFIX;
  bool exclusive = ir_attr_i(op, AT_EXCLUSIVE, 0);
  RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  Tile *r = define(x, op->res[0]);
  int64_t c[64] = {0}, n = size_of_axis(x, op, a),
          block = ir_attr_i(op, AT_BLOCK, n);
  int at = type_axis_at(t, a);
  uint64_t stride = 1;
  for (uint32_t i = (uint32_t)at + 1; i < t->n; i++)
    stride *= (uint64_t)r->size[i];
  for (uint64_t i = 0; i < r->n; i++) {
    coords(t, r, i, c);
    if (c[a]) continue;  // rows start at their first element
    double run =
        op->nargs > 1 ? get(x, op->args[1], c) : eval_identity(k, t->dtype);
    for (int64_t s = 0; s < n; s++) {
      c[a] = suffix ? n - 1 - s : s;
      if (s % block == 0 && s) run = eval_identity(k, t->dtype);
      double before = run;
      run = interp_round(x->in, t->dtype,
                         eval_reduce(k, run, get(x, op->args[0], c)));
      r->at[i + (uint64_t)c[a] * stride] = exclusive ? before : run;
    }
    c[a] = 0;
  }
}

// Row i of the inverse is its unit vector less the rows above, by L[i].
static void inverse(Exec *x, const Op *op) {
  const Type *t = ir_type(x->in->f, op->res[0]);
  const IrAttr *axes = ir_attr(op, AT_AXES);
  int64_t row = axes->list[0], col = axes->list[1], c[64] = {0};
  Tile *r = define(x, op->res[0]);
  int64_t n = r->size[0];
  int64_t down = t->axis[0] == row ? n : 1, right = t->axis[0] == row ? 1 : n;
  for (int64_t i = 0; i < n; i++) {
    for (int64_t k = 0; k < n; k++) r->at[i * down + k * right] = i == k;
    for (int64_t j = 0; j < i; j++) {
      c[row] = i;
      c[col] = j;
      double l = get(x, op->args[0], c);
      for (int64_t k = 0; k <= j; k++) {
        double *to = &r->at[i * down + k * right];
        *to = interp_round(x->in, t->dtype,
                           *to - l * r->at[j * down + k * right]);
      }
    }
  }
}

// ---------------------------------------------------------------- the rest
static void store(Exec *x, const Op *op) {
  Interp *in = x->in;
  InterpTensor *t = &in->args[in->arg_of[op->args[0]]];
  if (!t->data) return;
  Type u = {.kind = TK_ELEM};
  for (uint32_t i = 1; i < op->nargs; i++)
    u = type_union(&u, ir_type(in->f, op->args[i]), DT_F64);
  Tile shape = new_tile(x, &u);
  Operand o[MAX_OPERANDS];
  assert(op->nargs <= MAX_OPERANDS);
  for (uint32_t k = 1; k < op->nargs; k++) o[k] = operand(x, op->args[k]);
  const Operand *mask = ir_attr_i(op, AT_MASKED, 0) ? &o[op->nargs - 1] : NULL;
  bool add = ir_attr_i(op, AT_ADD, 0);
  int64_t c[64] = {0}, idx[MAX_RANK] = {0}, off;
  for (uint64_t i = 0; i < shape.n; i++) {
    int bad;
    coords(&u, &shape, i, c);
    if (mask && *place(mask, c) == 0) continue;
    for (uint32_t k = 0; k < t->rank; k++)
      idx[k] = (int64_t)*place(&o[k + 2], c);
    if (!interp_offset(t, idx, &off, &bad)) continue;
    char *to = (char *)t->data + off * dtype_size(t->dtype);
    double v = *place(&o[1], c);
    if (add) v += dtype_load(t->dtype, to);
    dtype_store(t->dtype, to, v);
  }
}

// How far an `origin` is from the tile's first coordinate.
static int64_t row_of(const Func *f, const Op *op) {
  for (uint32_t i = 0; i < f->grid.n; i++)
    if (f->grid.at[i].axis == ir_attr_i(op, AT_AXIS, 0) &&
        f->grid.at[i].tile > 1)
      return ir_attr_i(op, AT_ROW, 0);
  return 0;
}

static void constant(Exec *x, const Op *op) {
  Tile *r = define(x, op->res[0]);
  const IrAttr *f = ir_attr(op, AT_VALUE);
  int64_t d = 0;
  double v = f ? f->f : dtype_number(ir_attr_i(op, AT_IVALUE, 0));
  if (op->code == OP_DIM) {
    dim_eval(&x->in->m->dims, (Dim)ir_attr_i(op, AT_DIM, 0), x->in->dims, &d);
    v = (double)d;
  } else if (op->code == OP_ORIGIN) {
    v = (double)(x->origin[ir_attr_i(op, AT_AXIS, 0)] + row_of(x->in->f, op));
  } else if (op->code == OP_GIVEN) {
    const InterpTensor *t = &x->in->args[x->in->arg_of[op->args[0]]];
    v = t->rank || t->data ? t->data != NULL : t->given;
  }
  for (uint64_t i = 0; i < r->n; i++) r->at[i] = v;
}

static void iota(Exec *x, const Op *op) {
  Tile *r = define(x, op->res[0]);
  for (uint64_t i = 0; i < r->n; i++) r->at[i] = (double)i;
}

static void span(Exec *x, const Op *op) {
  InterpTensor *t = &x->in->args[x->in->arg_of[op->args[0]]];
  bool min = op->code == OP_SPAN_MIN;
  double acc = min ? INFINITY : -INFINITY;
  int64_t idx[MAX_RANK] = {0}, off;
  for (uint32_t i = 3; i < op->nargs; i++)
    idx[i - 3] = (int64_t)get0(x, op->args[i]);
  int64_t hi = (int64_t)get0(x, op->args[2]);
  for (int64_t i = (int64_t)get0(x, op->args[1]); i <= hi; i++) {
    int bad;
    idx[t->rank - 1] = i;
    if (!interp_offset(t, idx, &off, &bad)) continue;
    double v =
        dtype_load(t->dtype, (char *)t->data + off * dtype_size(t->dtype));
    acc = min ? fmin(acc, v) : fmax(acc, v);
  }
  define(x, op->res[0])->at[0] = acc;
}

static void quantify(Exec *x, const Op *op) {
  const Tile *t = &x->val[op->args[0]];
  bool any = op->code == OP_ANY_OF;
  double v = !any;
  for (uint64_t i = 0; i < t->n; i++)
    v = any ? v != 0 || t->at[i] != 0 : v != 0 && t->at[i] != 0;
  define(x, op->res[0])->at[0] = v;
}

static void copy_all(Exec *x, const Value *to, const Value *from, uint32_t n) {
  Tile *t = NEWN(x->arena, Tile, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    t[i] = new_tile(x, ir_type(x->in->f, to[i]));
    Operand o = operand(x, from[i]);
    int64_t c[64] = {0};
    for (uint64_t k = 0; k < t[i].n; k++) {
      coords(ir_type(x->in->f, to[i]), &t[i], k, c);
      t[i].at[k] = *place(&o, c);
    }
  }
  for (uint32_t i = 0; i < n; i++) x->val[to[i]] = t[i];
}

static void loop(Exec *x, const Op *op) {
  const Region *r = op->regions[0];
  int64_t lo = (int64_t)get0(x, op->args[0]);
  int64_t hi = (int64_t)get0(x, op->args[1]);
  int64_t step = (int64_t)get0(x, op->args[2]);
  bool rev = ir_attr_i(op, AT_REVERSE, 0);
  if (step <= 0) interp_fail(x->in, op, "step is not positive");
  if (x->in->failed) return;
  const Value *state = r->params.at + 1;
  copy_all(x, state, op->args + 3, op->nres);
  int64_t n = hi > lo ? (hi - lo + step - 1) / step : 0;
  for (int64_t i = 0; i < n && !x->in->failed; i++) {
    if (++x->in->steps > 10000000) interp_fail(x->in, op, "too many steps");
    define(x, r->params.at[0])->at[0] =
        (double)(lo + (rev ? n - 1 - i : i) * step);
    region(x, r);
    if (!x->in->failed) copy_all(x, state, r->last->args, op->nres);
  }
  copy_all(x, op->res, state, op->nres);
}

static void branch(Exec *x, const Op *op) {
  const Region *r = op->regions[get0(x, op->args[0]) == 0];
  region(x, r);
  if (!x->in->failed) copy_all(x, op->res, r->last->args, op->nres);
}

static void planned(Exec *x, const Op *op) {
  int64_t on = 0;
  dim_eval(&x->in->m->dims, (Dim)ir_attr_i(op, AT_DIM, 0), x->in->dims, &on);
  define(x, op->res[0])->at[0] = get0(x, op->args[on > 0 ? 1 : 2]);
}

static void renamed(Exec *x, const Op *op) {
  Tile *to = define(x, op->res[0]);
  const Tile *from = &x->val[op->args[0]];
  if (!x->in->failed) memcpy(to->at, from->at, to->n * sizeof *to->at);
}

static void row(Exec *x, const Op *op) {
  const Type *t = ir_type(x->in->f, op->res[0]);
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  Tile *r = define(x, op->res[0]);
  int64_t c[64] = {0}, i = (int64_t)get0(x, op->args[1]);
  if (i < 0 || i >= size_of_axis(x, op, axis)) {
    interp_fail(x->in, op, "no such row");
    return;
  }
  for (uint64_t k = 0; k < r->n; k++) {
    coords(t, r, k, c);
    c[axis] = i;
    r->at[k] = get(x, op->args[0], c);
  }
}

static void skew(Exec *x, const Op *op) {
  const Type *a = ir_type(x->in->f, op->args[0]),
             *t = ir_type(x->in->f, op->res[0]);
  uint32_t c = type_has_axis(a, t->axis[1]);
  uint32_t same = t->axis[c], other = t->axis[!c];
  uint32_t diagonal = a->axis[a->axis[0] == same];
  int64_t sign = ir_attr_i(op, AT_REVERSE, 0) ? -1 : 1, at[64] = {0};
  Tile *r = define(x, op->res[0]);
  for (uint64_t k = 0; k < r->n; k++) {
    coords(t, r, k, at);
    at[diagonal] = ir_attr_i(op, AT_POS, 0) + sign * (at[other] - at[same]);
    r->at[k] = get(x, op->args[0], at);
  }
}

// Keys are not dealt.
static void others(Exec *x, const Op *op) {
  const Type *t = ir_type(x->in->f, op->res[0]);
  int64_t at[64] = {0};
  Tile *r = define(x, op->res[0]);
  for (uint64_t k = 0; k < r->n; k++) {
    coords(t, r, k, at);
    r->at[k] = get(x, op->args[0], at);
  }
}

static void execute(Exec *x, const Op *op) {
  switch (op->code) {
  case OP_CONST:
  case OP_DIM:
  case OP_ORIGIN:
  case OP_GIVEN: constant(x, op); return;
  case OP_IOTA: iota(x, op); return;
  case OP_REDUCE:
  case OP_DOT: reduction(x, op); return;
  case OP_SCAN: scan(x, op); return;
  case OP_RENAMED: renamed(x, op); return;
  case OP_ROW: row(x, op); return;
  case OP_SKEW: skew(x, op); return;
  case OP_OTHERS: others(x, op); return;
  case OP_TRINV: inverse(x, op); return;
  case OP_STORE: store(x, op); return;
  case OP_SPAN_MIN:
  case OP_SPAN_MAX: span(x, op); return;
  case OP_ANY_OF:
  case OP_ALL_OF: quantify(x, op); return;
  case OP_FOR: loop(x, op); return;
  case OP_IF: branch(x, op); return;
  case OP_PLANNED:  // other tasks make what nobody reads
    planned(x, op);
    return;
  case OP_GROUP_BOUND:
  case OP_GROUP_SELECT:  // one group has all rows
    define(x, op->res[0])->at[0] = get0(x, op->args[0]);
    return;
  case OP_YIELD:
  case OP_GROUP_SKIP: return;
  default: each_element(x, op);
  }
}

static void region(Exec *x, const Region *r) {
  for (const Op *op = r->first; op && !x->in->failed; op = op->next)
    execute(x, op);
}

static void tasks(Exec *x, uint32_t i) {
  const Func *f = x->in->f;
  if (i < f->grid.n) {
    const GridDim *g = &f->grid.at[i];
    int64_t n = x->in->extent[g->axis];
    for (int64_t c = 0; c < n && !x->in->failed; c += g->tile) {
      x->origin[g->axis] = c;
      tasks(x, i + 1);
    }
    return;
  }
  Arena a = {.oom = x->in->cx->session.oom,
             .oom_data = x->in->cx->session.oom_data};
  x->arena = &a;
  region(x, f->body);
  arena_drop(&a);
}

bool interp_tile(Interp *in) {
  Exec x = {.in = in, .val = NEWN(in->arena, Tile, in->f->values.n + 1)};
  tasks(&x, 0);
  return !in->failed;
}
