// Values of a program that a phase in front makes.
#include "passes/support/outlined.h"

#include "ir/deps.h"
#include "passes/support/outline.h"

static bool among(uint64_t axes, uint32_t axis) {
  return axes >> axis & 1;
}

bool outlined_domain(const Op *op, uint64_t axes) {
  return op->code == OP_DOMAIN &&
         among(axes, (uint32_t)ir_attr_i(op, AT_AXIS, 0));
}

// Axes of keys that the phase goes over: not those that it stores for each key.
static uint64_t keys_of(const Outlined *o) {
  uint64_t keys = o->has & ir_axes_with(o->f, AX_KEY);
  for (uint32_t i = 0; i < o->n; i++) keys &= ~ir_axes_of(o->f, o->cut[i]);
  return keys;
}

// ---------------------------------------------------------------- what it makes
static void want(Outlined *o, Value v) {
  const Op *op = ir_def(o->f, v);
  if (o->wanted[v]) return;
  o->wanted[v] = true;
  o->has |= ir_axes_of(o->f, v);
  for (uint32_t i = 0; op && i < op->nargs; i++) want(o, op->args[i]);
}

void outlined_close(Outlined *o, Arena *arena) {
  o->wanted = NEWN(arena, bool, o->f->values.n);
  o->has = 0;
  for (uint32_t i = 0; i < o->n; i++) want(o, o->cut[i]);
  for (uint64_t before = 0; before != o->has;) {
    before = o->has;
    uint64_t keys = keys_of(o);
    for (const Op *op = o->f->body->first; op; op = op->next)
      if (outlined_domain(op, keys)) want(o, op->args[0]);
  }
}

// ---------------------------------------------------------------- the phase
static Value add_tensor(const Outlined *o, Value v) {
  Dim shape[MAX_AXES];
  uint32_t n = 0;
  const ValueInfo *x = ir_info(o->f, v);
  uint64_t axes = ir_axes_of(o->f, v);
  for (uint32_t a = 0; a < o->f->axes.n; a++)
    if (among(axes, a)) shape[n++] = o->f->axes.at[a].extent;
  Type t = type_tensor(x->type.dtype, n, shape);
  return outline_tensor(o->f, x->hint ? x->hint : o->value, o->tensor, t);
}

// Where v is in its tensor. to: axes of the phase, by those of f.
static uint32_t coordinates(Builder *b, const Func *f, Value v,
                            const uint32_t *to, Value *out) {
  uint32_t n = 0;
  uint64_t axes = ir_axes_of(f, v);
  for (uint32_t a = 0; a < f->axes.n; a++)
    if (among(axes, a)) out[n++] = ir_index(b, to ? to[a] : a);
  return n;
}

static Func *copy_wanted(const Outlined *o, uint32_t number, ValueMap *map,
                         uint32_t *axis) {
  Func *f = o->f, *made = outline_func(f, o->phase, number, false);
  Builder b = {.fn = made, .region = made->body, .span = f->span};
  uint64_t keys = keys_of(o);
  outline_params(map, f, made);
  for (uint32_t a = 0; a < f->axes.n; a++) {
    const Axis *x = &f->axes.at[a];
    bool task = x->role == AX_KEY ? !among(keys, a) : among(o->rows, a);
    if (among(o->has, a))
      axis[a] = ir_axis(made, x->name, task ? AX_PAR : x->role, x->extent);
  }
  for (const Op *op = f->body->first; op; op = op->next) {
    bool mine = op->nres && o->wanted[op->res[0]];
    if (!mine && !outlined_domain(op, keys)) continue;
    b.span = op->span;
    ir_clone(&b, f, op, map, axis);
  }
  return made;
}

void outlined_make(const Outlined *o, uint32_t number) {
  Func *f = o->f;
  Value tensor[MAX_OUTLINED], at[MAX_AXES];
  uint32_t axis[64] = {0};
  for (uint32_t i = 0; i < o->n; i++) tensor[i] = add_tensor(o, o->cut[i]);
  ValueMap map = {.arena = f->mod->arena};
  Func *made = copy_wanted(o, number, &map, axis);
  Builder b = {.fn = made, .region = made->body, .span = f->span};
  for (uint32_t i = 0; i < o->n; i++) {
    Value v = o->cut[i], x = vmap_get(&map, v), t = vmap_get(&map, tensor[i]);
    uint32_t n = coordinates(&b, f, v, axis, at);
    ir_store(&b, t, x, at, n);
  }
  outline_put(made, f);
  for (uint32_t i = 0; i < o->n; i++) {
    Builder behind = outline_behind(f, o->cut[i]);
    uint32_t n = coordinates(&behind, f, o->cut[i], NULL, at);
    ir_replace_uses(f, o->cut[i], ir_load(&behind, tensor[i], at, n));
  }
}
