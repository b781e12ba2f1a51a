// Forms: values in scratch. Layouts and addresses.
#include "passes/cpu/cpu.h"

#include <assert.h>

// A narrow float is kept as f32: products and sums need it so anyway.
static DType memory_dtype(DType t) {
  return dtype_is_float(t) ? cpu_reg_dtype(t) : t;
}

Form *cpu_form_new(Assign *as, Value v, int lane, Dim lane_size, bool panel) {
  const Type *t = ir_type(as->f, v);
  Form *f = NEW(as->arena, Form);
  *f = (Form){.dt = memory_dtype(t->dtype), .lane = lane, .pair = -1};
  f->hint = ir_info(as->f, v)->hint;
  f->width = 1;
  for (uint32_t i = 0; i < t->n; i++) {
    if ((int)t->axis[i] == lane) continue;
    f->axis[f->n] = t->axis[i];
    f->size[f->n++] = t->size[i];
  }
  if (lane < 0) return f;
  f->lane_size = lane_size;
  f->width = (int64_t)cpu_panel_cols(as, lane, lane_size) * as->lanes;
  f->panel = panel;
  return f;
}

// bf16 in pairs of neighbours along `pair`; the lane axis stays innermost.
Form *cpu_form_pairs(Assign *as, Value v, int lane, Dim lane_size, bool panel,
                     uint32_t pair) {
  Form *f = cpu_form_new(as, v, lane, lane_size, panel);
  Dim size = cpu_axis_size_in(as, v, pair);
  f->odd = dim_divisor(&as->m->dims, size) % 2 != 0;
  f->pair = (int)pair;
  f->dt = f->lane == (int)pair ? DT_BF16 : DT_I32;
  return f;
}

Form *cpu_form_of_pairs(const Assign *as, Value v, uint32_t pair, bool panel) {
  Form *f = as->pair_form[v];
  while (f && (f->pair != (int)pair || f->panel != panel)) f = f->next;
  return f;
}

Form *cpu_form_of_rows(const Assign *as, Value v, int lane) {
  Form *f = as->row_form[v];
  while (f && f->lane != lane) f = f->next;
  return f;
}

static Dim outer_size(const Assign *as, const Form *f, uint32_t i) {
  bool half = f->pair == (int)f->axis[i];
  return half ? dim_ceildiv(&as->m->dims, f->size[i], 2) : f->size[i];
}

// Lanes of one row in memory.
static Dim row_size(const Assign *as, const Form *f) {
  DimTab *d = &as->m->dims;
  if (f->lane < 0) return dim_const(d, 1);
  if (f->local || (f->panel && f->n)) return dim_const(d, f->width);
  Dim panels = dim_ceildiv(d, f->lane_size, f->width);
  return dim_bin(d, DIM_MUL, panels, dim_const(d, f->width));
}

static Dim block_size(const Assign *as, const Form *f) {
  DimTab *d = &as->m->dims;
  Dim n = row_size(as, f);
  for (uint32_t i = 0; i < f->n; i++)
    n = dim_bin(d, DIM_MUL, n, outer_size(as, f, i));
  return n;
}

Value cpu_form_base(Assign *as, Form *f) {
  if (f->base) return f->base;
  DimTab *d = &as->m->dims;
  Dim n = block_size(as, f);
  if (f->lane >= 0 && f->panel && f->n && !f->local)
    n = dim_bin(d, DIM_MUL, n, dim_ceildiv(d, f->lane_size, f->width));
  IrAttr at = attr_i(AT_DIM, n);
  Type t = type_ptr(f->dt);
  f->base = ir_op(&as->top, OP_ALLOC, NULL, 0, &at, 1, &t, 1, 0)->res[0];
  ir_info(as->g, f->base)->hint = f->hint;
  return f->base;
}

// ---------------------------------------------------------------- addresses
static Value coord(Assign *as, uint32_t axis, uint32_t c) {
  if ((int)axis == as->pt.lane && as->pt.bound)
    return cpu_2(as, OP_ADD, as->pt.x0, cpu_int(as, (int64_t)c * as->lanes));
  assert(as->pt.idx[axis] && "no loop over this axis is open");
  return as->pt.idx[axis];
}

// Distance of neighbours along outer axis i, where the rows end with the lanes.
Value cpu_form_stride(Assign *as, const Form *f, uint32_t i) {
  DimTab *d = &as->m->dims;
  if (f->stride) return f->stride[i];
  Dim s = row_size(as, f);
  for (uint32_t j = i + 1; j < f->n; j++)
    s = dim_bin(d, DIM_MUL, s, outer_size(as, f, j));
  return cpu_dim(as, s);
}

// x * s; (a + 1) * s as a * s + s, whose second part no loop changes.
static Value times(Assign *as, Value x, Value s) {
  const Op *op = ir_def(as->g, x);
  int64_t n;
  if (!op || op->code != OP_ADD || !cpu_is_int(as, op->args[1], &n))
    return cpu_2(as, OP_MUL, x, s);
  Value a = cpu_2(as, OP_MUL, op->args[0], s);
  return cpu_2(as, OP_ADD, a, cpu_2(as, OP_MUL, op->args[1], s));
}

// Element index of the row; *step: what a step along the lane axis of the
// point adds, if that is an outer axis here.
static Value row_index(Assign *as, const Form *f, uint32_t c, Value *step) {
  Value idx = cpu_int(as, 0);
  for (uint32_t i = 0; i < f->n; i++) {
    Value x = coord(as, f->axis[i], c);
    if (f->pair == (int)f->axis[i])
      x = cpu_2(as, OP_FLOORDIV, x, cpu_int(as, 2));
    if ((int)f->axis[i] == as->pt.lane) *step = cpu_form_stride(as, f, i);
    if (f->stride) {
      idx = cpu_2(as, OP_ADD, idx, times(as, x, f->stride[i]));
      continue;
    }
    // As far as the sizes are constant one multiplication is left.
    idx = cpu_2(as, OP_MUL, idx, cpu_dim(as, outer_size(as, f, i)));
    idx = cpu_2(as, OP_ADD, idx, x);
  }
  return f->stride ? idx : cpu_2(as, OP_MUL, idx, cpu_dim(as, row_size(as, f)));
}

Value cpu_form_pairs_at(Assign *as, Form *f, uint32_t c, Value *index,
                        Value *step) {
  *step = cpu_int(as, 0);
  assert(f->pair == f->lane && f->lane != as->pt.lane && !f->panel);
  Value base = cpu_form_base(as, f), two = cpu_int(as, 2);
  Value row = row_index(as, f, c, step);
  *index = cpu_2(as, OP_FLOORDIV, coord(as, (uint32_t)f->lane, c), two);
  *step = cpu_2(as, OP_FLOORDIV, *step, two);
  base = cpu_padd(as, base, row);
  return cpu_op(as, OP_PVIEW, &base, 1, type_ptr(DT_I32), NULL, 0);
}

// Element index behind the *front elements of other panels, or of other rows of
// a tensor.
static Value index_in(Assign *as, const Form *f, uint32_t c, Value *step,
                      Value *front) {
  *step = *front = cpu_int(as, 0);
  Value idx = row_index(as, f, c, step);
  if (f->lane < 0) return idx;
  bool mine = f->lane == as->pt.lane && as->pt.bound;
  if (mine) *step = cpu_int(as, 1);
  Value x = coord(as, (uint32_t)f->lane, c);
  if (f->stride) {
    *front = idx;
    return x;
  }
  if (!f->local && !(f->panel && f->n)) return cpu_2(as, OP_ADD, idx, x);
  Value p, in, w = cpu_int(as, f->width);
  if (mine && as->pt.panel && f->width == as->pt.width) {
    p = as->pt.panel;
    in = cpu_int(as, (int64_t)c * as->lanes);
  } else {
    p = cpu_2(as, OP_FLOORDIV, x, w);
    in = cpu_2(as, OP_MOD, x, w);
  }
  idx = cpu_2(as, OP_ADD, idx, in);
  if (f->local) return idx;
  *front = cpu_2(as, OP_MUL, p, cpu_dim(as, block_size(as, f)));
  return idx;
}

Value cpu_form_index(Assign *as, const Form *f, uint32_t c, Value *step) {
  Value front, idx = index_in(as, f, c, step, &front);
  return cpu_2(as, OP_ADD, front, idx);
}

// Lanes past the extent of an axis that is not padded in this form.
Value cpu_form_lane_mask(Assign *as, const Form *f, uint32_t c) {
  if (f->lane == as->pt.lane && !f->stride) return 0;
  if (dim_divisor(&as->m->dims, as->pt.lane_size) % as->pt.width == 0) return 0;
  Value x = coord(as, (uint32_t)as->pt.lane, c);
  return cpu_vmask(as, cpu_2(as, OP_SUB, cpu_dim(as, as->pt.lane_size), x));
}

static Value lane_index(Assign *as, Value idx, Value step) {
  return cpu_2(as, OP_ADD, cpu_2(as, OP_MUL, cpu_iota(as), step), idx);
}

static Value load_at(Assign *as, Form *f, uint32_t c, Value base, Value idx,
                     Value step) {
  int64_t n;
  if (cpu_is_int(as, step, &n) && n == 0) return cpu_ld(as, base, idx);
  if (cpu_is_int(as, step, &n) && n == 1)
    return cpu_vld(as, base, idx, cpu_form_lane_mask(as, f, c));
  Value mask = cpu_form_lane_mask(as, f, c);
  return cpu_gather(as, base, lane_index(as, idx, step), mask);
}

Value cpu_form_load(Assign *as, Form *f, uint32_t c) {
  Value step, base = cpu_form_base(as, f);
  Value idx = cpu_form_index(as, f, c, &step);
  return load_at(as, f, c, base, idx, step);
}

Value cpu_form_load_apart(Assign *as, Form *f, uint32_t c) {
  Value step, front, idx = index_in(as, f, c, &step, &front);
  Value base = cpu_form_base(as, f);
  int64_t n;
  if (!cpu_is_int(as, front, &n) || n) base = cpu_padd(as, base, front);
  return load_at(as, f, c, base, idx, step);
}

void cpu_form_store(Assign *as, Form *f, uint32_t c, Value v) {
  Value step, base = cpu_form_base(as, f);
  Value idx = cpu_form_index(as, f, c, &step);
  int64_t n;
  v = cpu_cast(as, f->dt, v);
  if (cpu_is_int(as, step, &n) && n == 0) {
    assert(!is_vec(as, v));
    cpu_st(as, base, idx, v);
    return;
  }
  v = cpu_vec(as, v);
  if (cpu_is_int(as, step, &n) && n == 1) cpu_vst(as, base, idx, v, 0);
  else {
    Value mask = cpu_form_lane_mask(as, f, c);
    cpu_scatter(as, base, lane_index(as, idx, step), v, mask);
  }
}
