// Work and bounds of a program as expressions of its dims.
#include "tools/plan/plan.h"

#include "ir/facts.h"
#include <math.h>

// ---------------------------------------------------------------- operations
typedef struct Count {
  const Func *f;
  DimTab *t;
  Dim products, functions;
} Count;

PlanOp plan_op(const Func *f, const Op *op) {
  PlanOp r = {.products = op->code == OP_DOT ? 2 : 0,
              .functions = op_is_function(op->code)};
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Type *t = ir_type(f, op->args[i]);
    for (uint32_t k = 0; t->kind == TK_ELEM && k < t->n; k++)
      r.axes |= (uint64_t)1 << t->axis[k];
  }
  return r;
}

static Dim points(const Count *c, uint64_t axes, int64_t times) {
  Dim n = dim_const(c->t, times);
  for (uint32_t i = 0; i < c->f->axes.n; i++)
    if (axes >> i & 1) n = dim_bin(c->t, DIM_MUL, n, c->f->axes.at[i].extent);
  return n;
}

static void count_op(void *data, Op *op) {
  Count *c = data;
  PlanOp x = plan_op(c->f, op);
  if (x.products)
    c->products =
        dim_bin(c->t, DIM_ADD, c->products, points(c, x.axes, x.products));
  if (x.functions)
    c->functions =
        dim_bin(c->t, DIM_ADD, c->functions, points(c, x.axes, x.functions));
}

static const char *text(Ctx *cx, const DimTab *t, Dim d) {
  Buf b = {.arena = &cx->session};
  dim_print(t, d, &b);
  return b.at;
}

bool plan_work(Ctx *cx, Module *attn, const char *prog, PlanWork *out) {
  const Func *f = ir_find(attn, prog);
  if (!f) return false;
  DimTab *t = &attn->dims;
  Count c = {f, t, dim_const(t, 0), dim_const(t, 0)};
  ir_walk(f->body, count_op, &c);
  Dim bytes = dim_const(t, 0);
  for (uint32_t i = 0; i < f->params.n; i++) {
    const Type *ty = ir_type(f, f->params.at[i].v);
    if (ty->kind != TK_TENSOR) continue;
    bool twice = f->params.at[i].role == PR_INOUT;
    Dim n = dim_const(t, dtype_size(ty->dtype) * (twice ? 2 : 1));
    for (uint32_t k = 0; k < ty->n; k++)
      n = dim_bin(t, DIM_MUL, n, ty->size[k]);
    bytes = dim_bin(t, DIM_ADD, bytes, n);
  }
  *out = (PlanWork){text(cx, t, c.products), text(cx, t, c.functions),
                    text(cx, t, bytes)};
  return true;
}

// ---------------------------------------------------------------- bounds
typedef struct Bounds {
  const Func *f;
  const Op *pass;
  DimTab *t;
  const Region *r;
} Bounds;

static Dim dim_of(const Bounds *b, Value v);

// An argument of the region: lo and hi of an axis of the pass' box.
static Dim of_param(const Bounds *b, Value v) {
  const IrAttr *box = ir_attr(b->pass, AT_BOX);
  for (uint32_t i = 0; i < b->r->params.n; i++) {
    if (b->r->params.at[i] != v || !box || i / 2 >= box->n) continue;
    const char *axis = b->f->axes.at[box->list[i / 2]].name;
    char name[80];
    size_t n = strlen(axis) < 60 ? strlen(axis) : 60;
    memcpy(name, axis, n);
    memcpy(name + n, i % 2 ? "_hi" : "_lo", 4);
    return dim_sym(b->t,
                   dim_add_sym(b->t, arena_strdup(b->t->arena, name), DIM_DYN));
  }
  return DIM_NONE;
}

static Dim of_scalar(const Bounds *b, Value v) {
  for (uint32_t i = 0; i < b->f->params.n; i++)
    if (b->f->params.at[i].v == v && ir_info(b->f, v)->hint)
      return dim_sym(b->t, dim_add_sym(b->t, ir_info(b->f, v)->hint, DIM_DYN));
  return DIM_NONE;
}

static Dim of_two(const Bounds *b, const Op *op, DimOp how) {
  Dim x = dim_of(b, op->args[0]), y = dim_of(b, op->args[1]);
  int64_t v;
  if (x == DIM_NONE || y == DIM_NONE) return DIM_NONE;
  bool divides = how == DIM_FLOORDIV || how == DIM_MOD;
  if (divides && (!dim_is_const(b->t, y, &v) || v <= 0)) return DIM_NONE;
  return dim_bin(b->t, how, x, y);
}

static Dim dim_of(const Bounds *b, Value v) {
  const Op *op = ir_def(b->f, v);
  double x;
  if (!op) {
    Dim d = of_param(b, v);
    return d != DIM_NONE ? d : of_scalar(b, v);
  }
  if (ir_const_value(b->f, v, &x))
    return x == floor(x) && fabs(x) < 1e15 ? dim_const(b->t, (int64_t)x)
                                           : DIM_NONE;
  switch (op->code) {
  case OP_DIM: return (Dim)ir_attr_i(op, AT_DIM, 0);
  case OP_CAST: return dim_of(b, op->args[0]);
  case OP_ADD: return of_two(b, op, DIM_ADD);
  case OP_MUL: return of_two(b, op, DIM_MUL);
  case OP_MIN: return of_two(b, op, DIM_MIN);
  case OP_MAX: return of_two(b, op, DIM_MAX);
  case OP_FLOORDIV: return of_two(b, op, DIM_FLOORDIV);
  case OP_MOD: return of_two(b, op, DIM_MOD);
  case OP_SUB: {
    Dim m = dim_of(b, op->args[0]), n = dim_of(b, op->args[1]);
    return m == DIM_NONE || n == DIM_NONE ? DIM_NONE : dim_sub(b->t, m, n);
  }
  default: return DIM_NONE;
  }
}

// The region of bounds yields lo, hi of any keys and lo, hi of unmasked ones.
static const Region *bounds_of(const Op *pass) {
  for (uint32_t i = 3; i < pass->nregions; i++) {
    const Region *r = pass->regions[i];
    const IrAttr *box = ir_attr(pass, AT_BOX);
    uint32_t n = box ? box->n : 0;
    if (r->last && r->last->code == OP_YIELD && r->last->nargs >= 4 &&
        r->params.n == 2 * n)
      return r;
  }
  return NULL;
}

typedef struct Find {
  Ctx *cx;
  Module *m;
  const Func *f;
  const char *found;
} Find;

static void find(void *data, Op *op) {
  Find *w = data;
  const Region *r = op->code == OP_KREDUCE ? bounds_of(op) : NULL;
  if (!r || w->found) return;
  Bounds b = {w->f, op, &w->m->dims, r};
  Buf out = {.arena = &w->cx->session};
  for (uint32_t i = 0; i + 3 < r->last->nargs; i += 4) {
    Dim d[4];
    for (int k = 0; k < 4; k++) {
      d[k] = dim_of(&b, r->last->args[i + (uint32_t)k]);
      if (d[k] == DIM_NONE) return;
    }
    for (int k = 0; k < 4; k++) {
      static const char *const before[] = {"any ", " .. ", ", unmasked ",
                                           " .. "};
      buf_printf(&out, "%s%s", i && k == 0 ? "; " : "", before[k]);
      dim_print(b.t, d[k], &out);
    }
  }
  w->found = out.at;
}

const char *plan_bounds(Ctx *cx, Module *stream, const char *prog) {
  const Func *f = ir_find(stream, prog);
  Find w = {cx, stream, f, NULL};
  if (f) ir_walk(f->body, find, &w);
  return w.found;
}
