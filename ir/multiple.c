// Multiples: what is carried by a loop is one of what it begins with and of
// what each turn makes of it.
#include "ir/multiple.h"

enum { MAX_DEPTH = 24 };

typedef struct Look {
  const Func *f;
  Value open[MAX_DEPTH];  // asked for by now: assumed to be any multiple
  uint32_t depth;
} Look;

static int64_t of(Look *x, Value v);

static int64_t of_number(int64_t n) {
  int64_t low = n & -n;
  return low > 0 && low < MULTIPLE_MOST ? low : MULTIPLE_MOST;
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t of_all(Look *x, const Op *op, uint32_t from) {
  int64_t r = MULTIPLE_MOST;
  for (uint32_t i = from; r > 1 && i < op->nargs; i++)
    r = least(r, of(x, op->args[i]));
  return r;
}

static int64_t of_origin(const Func *f, const Op *op) {
  int64_t axis = ir_attr_i(op, AT_AXIS, 0);
  for (uint32_t i = 0; i < f->grid.n; i++)
    if (f->grid.at[i].axis == axis) return of_number(f->grid.at[i].tile);
  return 1;
}

static int64_t of_quotient(Look *x, const Op *op) {
  double c;
  if (!ir_const_value(x->f, op->args[1], &c) || c < 1 || c > MULTIPLE_MOST)
    return 1;
  int64_t by = (int64_t)c, r = of(x, op->args[0]);
  return by == of_number(by) && r > by ? r / by : 1;
}

static int64_t of_op(Look *x, const Op *op) {
  double c;
  switch (op->code) {
  case OP_CONST:
    return ir_const_value(x->f, op->res[0], &c) ? of_number((int64_t)c) : 1;
  case OP_DIM:
    return of_number(
        dim_divisor(&x->f->mod->dims, (Dim)ir_attr_i(op, AT_DIM, 0)));
  case OP_ORIGIN: return of_origin(x->f, op);
  case OP_MUL:
    return least(of(x, op->args[0]) * of(x, op->args[1]), MULTIPLE_MOST);
  case OP_FLOORDIV: return of_quotient(x, op);
  case OP_SELECT: return of_all(x, op, 1);
  case OP_ADD:
  case OP_SUB:
  case OP_MIN:
  case OP_MAX:
  case OP_NEG:
  case OP_CAST:
  case OP_SPLAT:
  case OP_BCAST:
  case OP_UNIFORM:
  case OP_GROUP_SELECT:
  case OP_GROUP_BOUND: return of_all(x, op, 0);
  default: return 1;
  }
}

// Parameter `at` of a loop: its counter, or what it carries.
static int64_t of_param(Look *x, const Region *r, uint32_t at) {
  const Op *op = r->parent;
  bool loop = op && (op->code == OP_FOR || op->code == OP_WHILE);
  if (!loop) return 1;
  if (op->code == OP_FOR && at == 0)
    return least(of(x, op->args[0]), of(x, op->args[2]));
  // for: lo, hi, step, initial ..; while: bound, first i, initial ..
  uint32_t first = at + (op->code == OP_FOR ? 2 : 1);
  uint32_t next = at - (op->code == OP_FOR);
  return least(of(x, op->args[first]), of(x, r->last->args[next]));
}

static int64_t of_value(Look *x, Value v) {
  const ValueInfo *i = ir_info(x->f, v);
  if (dtype_is_float(i->type.dtype)) return 1;
  if (i->def) return i->def->nres == 1 ? of_op(x, i->def) : 1;
  for (uint32_t k = 0; i->region && k < i->region->params.n; k++)
    if (i->region->params.at[k] == v) return of_param(x, i->region, k);
  return 1;
}

static int64_t of(Look *x, Value v) {
  for (uint32_t i = 0; i < x->depth; i++)
    if (x->open[i] == v) return MULTIPLE_MOST;
  if (x->depth == MAX_DEPTH) return 1;
  x->open[x->depth++] = v;
  int64_t r = of_value(x, v);
  x->depth--;
  return r;
}

int64_t ir_multiple(const Func *f, Value v) {
  Look x = {.f = f};
  return of(&x, v);
}
