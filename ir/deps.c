// Key dependence of values, memoized; spreading over an axis.
#include "ir/deps.h"

KeyDeps ir_key_deps_of(const Func *f, Arena *a) {
  return (KeyDeps){.fn = f, .memo = {.arena = a}, .last = {.arena = a}};
}

static uint64_t key_bit(const Func *f, int64_t axis) {
  bool key = axis >= 0 && axis < 64 && axis < f->axes.n &&
             f->axes.at[axis].role == AX_KEY;
  return key ? (uint64_t)1 << axis : 0;
}

static uint64_t attr_bits(const Func *f, const IrAttr *a) {
  uint64_t set = 0;
  if (attr_kind(a->id) == AK_AXIS) return key_bit(f, a->i);
  if (attr_kind(a->id) != AK_AXES) return 0;
  for (uint32_t i = 0; i < a->n; i++) set |= key_bit(f, a->list[i]);
  return set;
}

uint64_t ir_key_deps(KeyDeps *d, Value v) {
  uint64_t set = 0;
  if (map_get(&d->memo, v, &set)) return set;
  const Type *t = ir_type(d->fn, v);
  const Op *op = ir_def(d->fn, v);
  if (t->kind == TK_ELEM)
    for (uint32_t i = 0; i < t->n; i++) set |= key_bit(d->fn, t->axis[i]);
  for (uint32_t i = 0; op && i < op->nargs; i++)
    set |= ir_key_deps(d, op->args[i]);
  for (uint32_t i = 0; op && i < op->nattrs; i++)
    set |= attr_bits(d->fn, &op->attrs[i]);
  map_put(&d->memo, v, set);
  return set;
}

// Key axes that the op itself reduces over.
static uint64_t reduced_here(const Func *f, const Op *op, Value v) {
  uint64_t set = 0;
  for (uint32_t i = 0; i < op->nattrs; i++) set |= attr_bits(f, &op->attrs[i]);
  return set & ~ir_axes_of(f, v);
}

static uint64_t last_keys(KeyDeps *d, Value v) {
  uint64_t set = 0;
  if (map_get(&d->last, v, &set)) return set;
  const Op *op = ir_def(d->fn, v);
  bool here = op && (set = reduced_here(d->fn, op, v));
  for (uint32_t i = 0; op && !here && i < op->nargs; i++)
    set |= last_keys(d, op->args[i]);
  map_put(&d->last, v, set);
  return set;
}

static uint64_t prefer(uint64_t keys, uint64_t some) {
  return keys & some ? keys & some : keys;
}

int ir_quotient_key(KeyDeps *d, Value x, Value y, bool fixed) {
  uint64_t keys = ir_key_deps(d, y), of_x = ir_axes_of(d->fn, x);
  bool above = !keys && !fixed;
  if (above) keys = ir_key_deps(d, x) & ~of_x;
  keys = prefer(keys, last_keys(d, above ? x : y));
  keys = prefer(keys, of_x);
  return keys ? __builtin_ctzll(keys) : -1;
}

Value ir_spread(Builder *b, Value v, uint32_t axis) {
  const Type *t = ir_type(b->fn, v);
  DType dt = t->dtype;
  if (type_has_axis(t, axis)) return v;
  Value zero = ir_const_f(b, DT_F32, 0.0);
  Value i = ir_cast(b, DT_F32, ir_index(b, axis));
  Value z = ir_2(b, OP_MUL, i, zero);  // floats: no pass folds it away
  if (dt == DT_BOOL) return ir_2(b, OP_AND, v, ir_2(b, OP_LE, z, zero));
  return ir_2(b, OP_ADD, v, ir_cast(b, dt, z));
}

Value ir_cover(Builder *b, Value v, uint64_t axes) {
  for (axes &= ~ir_axes_of(b->fn, v); axes; axes &= axes - 1)
    v = ir_spread(b, v, (uint32_t)__builtin_ctzll(axes));
  return v;
}

uint64_t ir_axes_of(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  uint64_t set = 0;
  for (uint32_t i = 0; t->kind == TK_ELEM && i < t->n; i++)
    if (t->axis[i] < 64) set |= (uint64_t)1 << t->axis[i];
  return set;
}

uint64_t ir_axes_over(const Op *op) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  uint64_t set = 0;
  for (uint32_t i = 0; over && i < over->n; i++)
    set |= (uint64_t)1 << over->list[i];
  return set;
}

uint64_t ir_axes_with(const Func *f, AxisRole role) {
  uint64_t set = 0;
  for (uint32_t i = 0; i < f->axes.n && i < 64; i++)
    if (f->axes.at[i].role == role) set |= (uint64_t)1 << i;
  return set;
}

void ir_note_domain(const Func *f, DomainAxes *d, uint32_t axis, Value pred) {
  if (axis >= 64 || f->axes.at[axis].role != AX_KEY) return;
  d->of[axis] |= ir_axes_of(f, pred) & ~((uint64_t)1 << axis);
}

// ---------------------------------------------------------------- sweep
static void count(uint32_t *uses, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nargs; i++) uses[op->args[i]]++;
    for (uint32_t i = 0; i < op->nregions; i++) count(uses, op->regions[i]);
  }
}

static void drop(uint32_t *uses, Region *r) {
  for (Op *op = r->last, *prev; op; op = prev) {
    prev = op->prev;
    for (uint32_t i = 0; i < op->nregions; i++) drop(uses, op->regions[i]);
    bool read = op->code == OP_GLOAD && ir_is_input(r->fn, op->args[0]);
    bool used = !read && !(op_info(op->code)->flags & OPF_PURE);
    for (uint32_t i = 0; i < op->nres; i++) used = used || uses[op->res[i]];
    if (used) continue;
    for (uint32_t i = 0; i < op->nargs; i++) uses[op->args[i]]--;
    ir_erase(op);
  }
}

void ir_sweep(Func *f) {
  uint32_t *uses = NEWN(f->mod->arena, uint32_t, f->values.n);
  count(uses, f->body);
  drop(uses, f->body);
}
