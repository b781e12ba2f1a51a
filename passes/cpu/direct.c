// Operands of dots that lie in their tensor as a form would: read in place.
//
//   before  %k = load(%K, %b, %h, %k0 + iota, iota) : f32{k:64,d:128}
//   after   %p, %row = if(every row is in range, and the last stride is 1)
//                      { yield(address in %K, stride of k) }
//                      { copy; yield(scratch, 128) }
//
// Only where nothing has to change on the way: no conversion, no mask, no
// lookup, no gap in pairs. What the strides are is known at run time only.
// What does change is copied by loops without tests where that condition holds.
#include "passes/cpu/cpu.h"

#include <assert.h>

// ---------------------------------------------------------------- conditions
int cpu_direct_axis(const Assign *as, Value v) {
  const Op *op = ir_def(as->f, v);
  if (cpu_is_scalar(as, v)) return -1;
  if (!op || ir_type(as->f, v)->n != 1) return -2;
  if (op->code == OP_IOTA) return (int)ir_type(as->f, v)->axis[0];
  if (op->code != OP_ADD) return -2;
  int a = cpu_direct_axis(as, op->args[0]),
      b = cpu_direct_axis(as, op->args[1]);
  if (a == -2 || b == -2 || (a >= 0 && b >= 0)) return -2;
  return a >= 0 ? a : b;
}

// The load behind v: v itself, or of `select(u or p, load, 0)`, which is the
// load where the scalar *u holds (0: everywhere).
static const Op *load_behind(const Assign *as, Value v, Value *u) {
  const Op *op = ir_def(as->f, v);
  double other;
  *u = 0;
  if (!op || op->code == OP_LOAD) return op;
  if (op->code != OP_SELECT || !ir_const_value(as->f, op->args[2], &other) ||
      other != 0)
    return NULL;
  const Op *p = ir_def(as->f, op->args[0]), *l = ir_def(as->f, op->args[1]);
  for (uint32_t i = 0; p && p->code == OP_OR && i < 2; i++)
    if (cpu_is_scalar(as, p->args[i])) *u = p->args[i];
  if (!*u || !l || l->code != OP_LOAD) return NULL;
  return cpu_axes_of(as, l->res[0]) == cpu_axes_of(as, v) ? l : NULL;
}

static bool fits_memory(const Assign *as, const Op *op, const Form *f) {
  DType t = ir_type(as->f, op->args[0])->dtype;
  if (f->pair >= 0 && (f->odd || f->pair != f->lane)) return false;
  return t == f->dt;
}

bool cpu_direct_possible(const Assign *as, Value v, const Form *f) {
  Value u;
  const Op *op = load_behind(as, v, &u);
  if (!op || op->code != OP_LOAD || f->panel || f->lane < 0) return false;
  if (!ir_is_input(as->f, op->args[0])) return false;
  if (!fits_memory(as, op, f) && op->res[0] != v) return false;
  AxisSet seen = 0;
  int last = -1;
  for (uint32_t i = 1; i < op->nargs; i++) {
    int a = cpu_direct_axis(as, op->args[i]);
    if (a == -2 || (a >= 0 && seen >> a & 1)) return false;
    if (a >= 0) seen |= (AxisSet)1 << a;
    last = a;
  }
  return last == f->lane && seen == cpu_axes_of(as, v);
}

// ---------------------------------------------------------------- emission
Value cpu_direct_first(Assign *as, Value v) {
  const Op *op = ir_def(as->f, v);
  if (cpu_is_scalar(as, v)) return cpu_eval_as(as, v, 0, DT_I64);
  if (op->code == OP_IOTA) return cpu_int(as, 0);
  Value a = cpu_direct_first(as, op->args[0]);
  return cpu_2(as, OP_ADD, a, cpu_direct_first(as, op->args[1]));
}

static void require(Assign *as, Value *all, Value p) {
  *all = *all ? cpu_2(as, OP_AND, *all, p) : p;
}

static void check_range(Assign *as, Value *ok, Value v, Value x, Dim n) {
  int axis = cpu_direct_axis(as, v);
  Dim size = axis < 0 ? dim_const(&as->m->dims, 1)
                      : cpu_axis_size_in(as, v, (uint32_t)axis);
  int64_t zero;
  if (cpu_is_int(as, x, &zero) && zero == 0 && size == n) return;
  if (axis < 0 && cpu_index_below(as, v, n) && cpu_is_nonneg(as, v)) return;
  if (!cpu_is_nonneg(as, v))
    require(as, ok, cpu_2(as, OP_LE, cpu_int(as, 0), x));
  Value end = cpu_2(as, OP_ADD, x, cpu_dim(as, size));
  require(as, ok, cpu_2(as, OP_LE, end, cpu_dim(as, n)));
}

// Where the form is if it is in place: *ok, the address, a stride per axis.
static void in_place(Assign *as, const Op *op, const Form *f, Value *ok,
                     Value *out) {
  Value t = op->args[0], off = cpu_int(as, 0), stride = 0;
  const Type *type = ir_type(as->f, t);
  bool checked = !ir_attr_i(op, AT_INBOUNDS, 0);
  for (uint32_t i = 0; i < type->n; i++) {
    Value v = op->args[i + 1], x = cpu_direct_first(as, v);
    stride = cpu_tensor(as, OP_TSTRIDE, t, (int)i);
    off = cpu_2(as, OP_ADD, off, cpu_2(as, OP_MUL, x, stride));
    if (checked) check_range(as, ok, v, x, type->size[i]);
    int axis = cpu_direct_axis(as, v);
    for (uint32_t k = 0; k < f->n; k++)
      if ((int)f->axis[k] == axis) out[1 + k] = stride;
  }
  require(as, ok, cpu_2(as, OP_EQ, stride, cpu_int(as, 1)));
  out[0] = cpu_padd(as, cpu_tensor(as, OP_TPTR, t, -1), off);
}

// The form is filled by short code.
static void copy_slowly(Assign *as, const Root *r) {
  Root plain = *r, *one = &plain;
  plain.direct = false;
  plain.seldom = true;
  plain.nest = 0;
  cpu_stage_emit(as, &one, 1, 1);
}

// It is filled by loops that test nothing, where that is possible.
static void copy_densely(Assign *as, const Root *r, const Op *load, Value ok) {
  Root plain = *r, *one = &plain;
  bool ready = as->ready[r->v], vec = as->vec_ready[r->v];
  plain.direct = false;
  plain.nest = 0;
  Branch br = cpu_if_open(as, ok, NULL, 0);
  as->dense = load;
  cpu_stage_emit(as, &one, 1, 1);
  as->dense = NULL;
  as->ready[r->v] = ready;
  as->vec_ready[r->v] = vec;
  cpu_if_else(as, &br, NULL);
  copy_slowly(as, r);
  cpu_if_close(as, &br, NULL, NULL);
}

void cpu_direct_emit(Assign *as, Root *r) {
  Form *f = r->dst;
  Type types[MAX_AXES + 1];
  Value in[MAX_AXES + 1], copy[MAX_AXES + 1], ok = 0, u;
  const Op *load = load_behind(as, r->v, &u);
  if (u) ok = cpu_eval_as(as, u, 0, DT_BOOL);
  in_place(as, load, f, &ok, in);
  if (!fits_memory(as, load, f)) {
    copy_densely(as, r, load, ok);
    return;
  }
  types[0] = type_ptr(f->dt);
  for (uint32_t i = 0; i < f->n; i++) types[i + 1] = type_scalar(DT_I64);
  Branch br = cpu_if_open(as, ok, types, f->n + 1);
  cpu_if_else(as, &br, in);
  copy_slowly(as, r);
  copy[0] = cpu_form_base(as, f);
  for (uint32_t i = 0; i < f->n; i++) copy[i + 1] = cpu_form_stride(as, f, i);
  cpu_if_close(as, &br, copy, in);
  f->base = in[0];
  f->stride = NEWN(as->arena, Value, f->n + 1);
  for (uint32_t i = 0; i < f->n; i++) f->stride[i] = in[i + 1];
}
