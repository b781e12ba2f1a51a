// Types and ops of GPU mach for the pass `lower_gpu`.
#include "passes/gpu/gpu.h"

#include "ir/layout.h"

#include <assert.h>

Builder *lower_at(Place *p, int depth) {
  return &p->scopes.at[depth].b;
}

// ---------------------------------------------------------------- types
LayoutId lower_layout(const Place *p, uint32_t frag) {
  return frag ? p->lin[frag - 1].layout : p->target->gpu.acc;
}

Type lower_slice_type(const Place *p, DType dt, uint32_t axis, Role r) {
  bool col = r % 2 == ROLE_COL;
  uint32_t n = p->wide[axis][r % 2];
  LayoutId acc = p->target->gpu.acc;
  Type t = col ? type_frag(dt, p->target->gpu.rows, n, acc)
               : type_frag(dt, n, p->cols, acc);
  if (r / 2) {
    const LinPair *l = &p->lin[r / 2 - 1];
    if (l->told) n = p->wide[axis][ROLE_COL];
    t = l->told ? type_frag(dt, n, HW_PANEL, l->layout)
                : type_frag(dt, p->wide[l->row][ROLE_ROW],
                            p->wide[l->col][ROLE_COL], l->layout);
  }
  return frag_slice(&t, col, false);
}

Type lower_type(const Place *p, DType dt, const View *v) {
  if (v->row < 0) return type_scalar(dt);
  if (v->col < 0) return lower_slice_type(p, dt, (uint32_t)v->row, ROLE_ROW);
  return type_frag(dt, p->wide[v->row][ROLE_ROW], p->wide[v->col][ROLE_COL],
                   lower_layout(p, v->frag));
}

Type lower_smem_type(DType dt, uint32_t rows, uint32_t cols) {
  uint32_t bytes = cols * (uint32_t)dtype_size(dt);
  LayoutId l = LY_ROW;
  if (bytes % 128 == 0) l = LY_SW128;
  else if (bytes % 64 == 0) l = LY_SW64;
  else if (bytes % 32 == 0) l = LY_SW32;
  return type_smem(dt, 1, rows, cols, l);
}

bool lower_is_frag(const Builder *b, Value v) {
  return ir_type(b->fn, v)->kind == TK_FRAG;
}

DType lower_dtype(const Builder *b, Value v) {
  return ir_type(b->fn, v)->dtype;
}

// ---------------------------------------------------------------- ops
Value lower_op(Builder *b, OpCode c, const Value *args, uint32_t n, Type t,
               const IrAttr *attrs, uint32_t nattrs) {
  return ir_op(b, c, args, n, attrs, nattrs, &t, 1, 0)->res[0];
}

Value lower_int(Builder *b, int64_t n) {
  return ir_const_i(b, DT_I32, n);
}

Value lower_dim(Builder *b, Dim d) {
  IrAttr at = {.id = AT_DIM, .i = d};
  return lower_op(b, OP_DIM, NULL, 0, type_scalar(DT_I32), &at, 1);
}

static Type with_dtype(Type t, DType dt) {
  t.dtype = dt;
  return t;
}

Value lower_like(Builder *b, Value x, double v) {
  DType dt = lower_dtype(b, x);
  Type t = *ir_type(b->fn, x);
  Value c = dtype_is_float(dt) ? ir_const_f(b, dt, v)
                               : ir_const_i(b, dt, dtype_int(v));
  return lower_as(b, c, t);
}

Value lower_cast(Builder *b, DType to, Value x) {
  if (lower_dtype(b, x) == to) return x;
  IrAttr at = attr_i(AT_TO, to);
  return lower_op(b, OP_CAST, &x, 1, with_dtype(*ir_type(b->fn, x), to), &at,
                  1);
}

Value lower_as(Builder *b, Value x, Type t) {
  x = lower_cast(b, t.dtype, x);
  const Type *s = ir_type(b->fn, x);
  if (type_eq(s, &t)) return x;
  const Op *k = ir_def(b->fn, x);
  if (k && k->code == OP_CONST)
    return lower_op(b, OP_CONST, NULL, 0, t, k->attrs, k->nattrs);
  OpCode c = s->kind == TK_FRAG ? OP_BCAST : OP_SPLAT;
  return lower_op(b, c, &x, 1, t, NULL, 0);
}

// The operand that is spread most decides the type.
static Type joined(Builder *b, Value x, Value y) {
  const Type *s = ir_type(b->fn, x), *t = ir_type(b->fn, y);
  if (s->kind != TK_FRAG) return *t;
  if (t->kind != TK_FRAG) return *s;
  return s->slice == SLICE_NONE ? *s : *t;
}

Value lower_2(Builder *b, OpCode c, Value x, Value y) {
  Type t = joined(b, x, y);
  x = lower_as(b, x, with_dtype(t, lower_dtype(b, x)));
  y = lower_as(b, y, with_dtype(t, lower_dtype(b, y)));
  return ir_2(b, c, x, y);
}

Value lower_select(Builder *b, Value c, Value x, Value y) {
  Type t =
      joined(b, joined(b, x, y).kind == TK_FRAG && !lower_is_frag(b, x) ? y : x,
             c);
  DType dt = lower_dtype(b, x);
  c = lower_as(b, c, with_dtype(t, DT_BOOL));
  x = lower_as(b, x, with_dtype(t, dt));
  y = lower_as(b, y, with_dtype(t, dt));
  return ir_3(b, OP_SELECT, c, x, y);
}

// ---------------------------------------------------------------- coordinates
Value lower_moved(Place *p, Builder *b, uint32_t axis) {
  if (p->groups == 1 || !p->moves[axis]) return 0;
  if (p->moves[axis] > 0) return p->group;
  Value last = lower_int(b, (p->groups - 1) * p->rows);
  return ir_2(b, OP_SUB, last, p->group);
}

Value lower_coord(Place *p, Builder *b, uint32_t axis, Role r) {
  IrAttr at = attr_i(AT_POS, r % 2);
  Value x = lower_op(b, OP_COORD, NULL, 0, lower_slice_type(p, DT_I32, axis, r),
                     &at, 1);
  Value by = lower_moved(p, b, axis);
  return by ? lower_2(b, OP_ADD, x, by) : x;
}

static Value below(Place *p, Builder *b, int axis, Dim size, Role r) {
  int64_t n;
  if (axis < 0 || !lower_padded(p, (uint32_t)axis, size, r)) return 0;
  bool known = dim_is_const(&p->m->dims, size, &n);
  assert(known && "place_plan refuses others");
  (void)known;
  Value end = lower_int(b, n);
  return lower_2(b, OP_LT, lower_coord(p, b, (uint32_t)axis, r), end);
}

Value lower_inside(Place *p, Builder *b, const View *v, bool row, bool col) {
  Role r = 2 * v->frag;
  Value x = row ? below(p, b, v->row, v->rsize, r + ROLE_ROW) : 0;
  Value y = col ? below(p, b, v->col, v->csize, r + ROLE_COL) : 0;
  if (!x || !y) return x ? x : y;
  Type t = lower_type(p, DT_BOOL, v);
  y = lower_as(b, y, t);
  return ir_2(b, OP_AND, lower_as(b, x, t), y);
}
