// Lowering: values with vector axes. Operands of elementwise ops are aligned
// by dim name; an axis that must change its name is renamed with `at`.
#include "frontend/lower.h"

#include <assert.h>
#include <ctype.h>

Val val_scalar(Value v) {
  return (Val){.v = v};
}

Val val_fail(Fx *x) {
  x->low->failed = true;
  return val_scalar(ir_const_i(&x->b, DT_I64, 0));
}

Val val_const(Fx *x, double v) {
  return (Val){.v = ir_const_f(&x->b, DT_F64, v), .weak = true};
}

Val val_int(Fx *x, int64_t v) {
  return (Val){.v = ir_const_i(&x->b, DT_I64, v), .weak = true};
}

DType low_dtype_of(const Fx *x, Val v) {
  return ir_type(x->f, v.v)->dtype;
}

// ---------------------------------------------------------------- axes
static uint64_t bit(uint32_t axis) {
  return axis < 64 ? (uint64_t)1 << axis : 0;
}

uint64_t val_axes(const Fx *x, Value v) {
  const Type *t = ir_type(x->f, v);
  uint64_t set = 0;
  if (t->kind != TK_ELEM) return 0;
  for (uint32_t i = 0; i < t->n; i++) set |= bit(t->axis[i]);
  return set;
}

// "D" -> "d", "64" -> "n64", anything else "x".
static const char *axis_name(const Fx *x, Dim d) {
  const DimExpr *e = &x->decl->dims->exprs.at[d];
  Arena *a = x->low->a;
  char *s = NULL;
  if (e->op == DIM_CONST) s = arena_printf(a, "n%lld", (long long)e->value);
  if (e->op == DIM_SYM) {
    s = arena_strdup(a, x->decl->dims->syms.at[e->value].name);
    for (char *p = s; *p; p++) *p = (char)tolower((unsigned char)*p);
  }
  return intern(&x->low->cx->names, s ? s : "x");
}

// The first vec axis of dim d that is not in `used`.
uint32_t low_vec_axis(Fx *x, Dim d, uint64_t used) {
  for (uint32_t i = 0; i < x->vecs.n; i++)
    if (x->vecs.at[i].dim == d && !(used & bit(x->vecs.at[i].axis)))
      return x->vecs.at[i].axis;
  uint32_t axis = ir_axis(x->f, axis_name(x, d), AX_VEC, low_dim(x, d));
  if (axis >= 64) low_error(x->low, x->b.span, "more than 64 axes");
  vec_push(x->low->a, &x->vecs, ((VecAxis){d, axis}));
  return axis;
}

// The coordinate of an axis: the one made before in a region around, if any.
Value low_coord(Fx *x, uint32_t axis) {
  uint64_t known;
  for (const Region *r = x->b.region; r;
       r = r->parent ? r->parent->parent : NULL)
    if (map_get(&x->coords, (uintptr_t)r * 64 + axis, &known))
      return (Value)known;
  Value v = ir_index(&x->b, axis);
  ir_info(x->f, v)->hint = x->f->axes.at[axis].name;
  map_put(&x->coords, (uintptr_t)x->b.region * 64 + axis, v);
  return v;
}

// v as a function of `axes`, at the given coordinates.
Value low_at(Fx *x, Value v, uint32_t n, const uint32_t *axes,
             const Value *at) {
  Value args[MAX_RANK + 1] = {v};
  int64_t list[MAX_RANK];
  Type t = *ir_type(x->f, v);
  for (uint32_t i = 0; i < n; i++) t = type_without(t, axes[i]);
  for (uint32_t i = 0; i < n; i++) {
    args[i + 1] = at[i];
    list[i] = axes[i];
    t = type_union(&t, ir_type(x->f, at[i]), t.dtype);
  }
  IrAttr attr = attr_list(AT_AXES, list, n);
  return ir_op(&x->b, OP_AT, args, n + 1, &attr, 1, &t, 1, 0)->res[0];
}

Val val_rename(Fx *x, Val v, const uint32_t *to) {
  uint32_t from[MAX_RANK], n = 0;
  Value at[MAX_RANK];
  for (uint32_t i = 0; i < v.rank; i++) {
    if (v.axis[i] == to[i] || v.axis[i] == NO_AXIS) continue;
    if (type_has_axis(ir_type(x->f, v.v), v.axis[i])) {
      from[n] = v.axis[i];
      at[n++] = low_coord(x, to[i]);
    }
    v.axis[i] = to[i];
  }
  if (n) v.v = low_at(x, v.v, n, from, at);
  return v;
}

static bool same_shape(const Val *a, const Val *b) {
  if (a->rank != b->rank) return false;
  for (uint32_t i = 0; i < a->rank; i++)
    if (a->dim[i] != b->dim[i] && a->axis[i] != NO_AXIS &&
        b->axis[i] != NO_AXIS)
      return false;
  return true;
}

// at[i]: position in `to` of axis i of v. By position if the shapes agree,
// else by dim; the checker has made sure that this is unique.
static void place(const Val *v, const Val *to, uint32_t *at) {
  bool used[MAX_RANK] = {false}, same = same_shape(v, to);
  for (uint32_t i = 0; i < v->rank; i++) {
    at[i] = i;
    for (uint32_t j = 0; !same && j < to->rank; j++)
      if (!used[j] && to->dim[j] == v->dim[i]) {
        at[i] = j;
        break;
      }
    assert(at[i] < to->rank);
    used[at[i]] = true;
  }
}

// Brings n operands to common axes; *shape gets the axes of the result. What
// depends on a state keeps its axes: only its renaming costs something.
void val_align(Fx *x, Val *v, uint32_t n, Val *shape) {
  uint32_t top = 0, at[MAX_RANK], to[MAX_RANK];
  for (uint32_t i = 1; i < n; i++)
    if (v[i].rank > v[top].rank ||
        (v[i].rank == v[top].rank && v[i].rank && low_has_state(x, v[i].v) &&
         !low_has_state(x, v[top].v)))
      top = i;
  *shape = v[top];
  for (uint32_t i = 0; i < n; i++) {
    if (i == top || !v[i].rank) continue;
    place(&v[i], shape, at);
    uint64_t used = 0;
    for (uint32_t j = 0; j < shape->rank; j++)
      if (shape->axis[j] != NO_AXIS) used |= bit(shape->axis[j]);
    for (uint32_t j = 0; j < v[i].rank; j++) {
      uint32_t p = at[j];
      to[j] = NO_AXIS;
      if (v[i].axis[j] == NO_AXIS) continue;
      if (shape->axis[p] == NO_AXIS) {
        shape->dim[p] = v[i].dim[j];
        shape->axis[p] = used & bit(v[i].axis[j])
                             ? low_vec_axis(x, v[i].dim[j], used)
                             : v[i].axis[j];
        used |= bit(shape->axis[p]);
      }
      to[j] = shape->axis[p];
    }
    v[i] = val_rename(x, v[i], to);
  }
}

// ---------------------------------------------------------------- dtypes
// True if the weak value v depends on a dim that is not known before the
// launch.
static bool is_dynamic(const Fx *x, Value v) {
  const Op *op = ir_def(x->f, v);
  int64_t k;
  if (!op || op->code == OP_LOAD) return true;  // a ragged length
  if (op->code == OP_DIM)
    return !dim_is_const(&x->low->m->dims, (Dim)ir_attr_i(op, AT_DIM, 0), &k);
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_dynamic(x, op->args[i])) return true;
  return false;
}

// A weak f64 expression, computed in t instead.
static Value narrow(Fx *x, Value v, DType t) {
  const Op *op = ir_def(x->f, v);
  double c;
  Value args[ELEM_ARGS];
  if (ir_type(x->f, v)->dtype != DT_F64) return ir_cast(&x->b, t, v);
  if (ir_const_value(x->f, v, &c))
    return ir_const_f(&x->b, t, dtype_round(t, c));
  if (op->code == OP_CAST) return ir_cast(&x->b, t, op->args[0]);
  for (uint32_t i = 0; i < op->nargs; i++)
    args[i] = ir_type(x->f, op->args[i])->dtype == DT_F64
                  ? narrow(x, op->args[i], t)
                  : op->args[i];
  return ir_op(&x->b, op->code, args, op->nargs, op->attrs, op->nattrs, NULL, 1,
               0)
      ->res[0];
}

// What is known now is computed in f64 and rounded once; run-time dims are not
// worth f64 code.
Val val_cast(Fx *x, Val v, DType t) {
  if (low_dtype_of(x, v) == t) return v;
  double c;
  bool weak = v.weak && (t == DT_F64 || t == DT_I64);
  if (v.weak && ir_const_value(x->f, v.v, &c))
    v.v = dtype_is_float(t) ? ir_const_f(&x->b, t, dtype_round(t, c))
                            : ir_const_i(&x->b, t, (int64_t)c);
  else if (v.weak && t == DT_F32 && is_dynamic(x, v.v)) v.v = narrow(x, v.v, t);
  else v.v = ir_cast(&x->b, t, v.v);
  v.weak = weak;
  return v;
}

// The dtype in which operands meet: floats are computed in f32 or f64, integers
// in i64; weak operands follow the others.
DType low_join(const Fx *x, const Val *v, uint32_t n) {
  bool is_float = false, strong_float = false, f64 = false, strong = false;
  bool logic = true;
  for (uint32_t i = 0; i < n; i++) {
    DType t = low_dtype_of(x, v[i]);
    if (t != DT_BOOL) logic = false;
    if (!v[i].weak) strong = true;
    if (!dtype_is_float(t)) continue;
    is_float = true;
    if (v[i].weak) continue;
    strong_float = true;
    if (t == DT_F64) f64 = true;
  }
  if (logic) return DT_BOOL;
  if (!is_float) return DT_I64;
  if (strong_float) return f64 ? DT_F64 : DT_F32;
  return strong ? DT_F32 : DT_F64;
}

Val val_float(Fx *x, Val v) {
  DType t = low_dtype_of(x, v);
  return t == DT_F64 ? v : val_cast(x, v, v.weak ? DT_F64 : DT_F32);
}

Value low_i64(Fx *x, Val v) {
  return val_cast(x, v, DT_I64).v;
}

Val val_op(Fx *x, OpCode c, const Val *v, uint32_t n) {
  Val in[ELEM_ARGS], shape;
  Value args[ELEM_ARGS];
  assert(n <= ELEM_ARGS);
  bool weak = true;
  for (uint32_t i = 0; i < n; i++) {
    in[i] = v[i];
    weak = weak && v[i].weak;
  }
  val_align(x, in, n, &shape);
  for (uint32_t i = 0; i < n; i++) args[i] = in[i].v;
  shape.v = ir_op(&x->b, c, args, n, NULL, 0, NULL, 1, 0)->res[0];
  shape.weak = weak;
  return shape;
}
