// inline: calls and `at` disappear.
//
//   func row @l1(%s: f32{k}) axes(k key Sk) key(k) {
//     %t = reduce(%s) {kind = sum, over = [k]} : f32
//     %p = divk(%s, %t) {axis = k} : f32{k}
//     return(%p) }
//   %p = call(%x) {axis = j, callee = @l1} : f32{q,j}
// ->
//   %t = reduce(%x) {kind = sum, over = [j]} : f32{q}
//   %p = divk(%x, %t) {axis = j} : f32{q,j}
//
//   %v = load(%X, %d) : f32{d}     %y = at(%v, %i) {axes = [d]} : f32{q}
// ->
//   %y = load(%X, %i) : f32{q}
//
// Why: every later pass sees one flat function. A callee's body is cloned with
// its key axis and the vec axes of its parameters and results bound to those
// of the call; other axes are the caller's or new. `at` clones what depends on
// the replaced axes. Where that is impossible (states, scans of which the
// coordinate varies with the scanned axis) it is a sum with one term.
//
// After inlining, the only functions are programs. Tests: test/passes/inline.
#include "ir/deps.h"
#include "passes/pass.h"
#include "passes/support/rebuild.h"

#include <assert.h>
#include <string.h>

enum { MAX_CALLS = 64, MAX_SLICE = 8, MAX_OPS = 1 << 16 };
#define NO_AXIS UINT32_MAX

typedef struct Inline {
  Ctx *cx;
  Module *m;
  Func *f;  // the program
  Builder *b;
  KeyDeps deps;
  DomainAxes domains;
  uint32_t depth, ops;  // calls in each other; ops that calls became
  bool failed;
} Inline;

// ---------------------------------------------------------------- at
typedef struct Slice {
  Inline *in;
  Map memo;
  uint32_t n;
  uint32_t axis[MAX_SLICE];
  Value at[MAX_SLICE];
} Slice;

static bool attr_binds(const Op *op, AttrId id, const Type *t) {
  const IrAttr *a = ir_attr(op, id);
  if (!a) return false;
  if (attr_kind(id) == AK_AXIS) return type_has_axis(t, (uint32_t)a->i);
  for (uint32_t i = 0; i < a->n; i++)
    if (type_has_axis(t, (uint32_t)a->list[i])) return true;
  return false;
}

// True if a coordinate would be caught by an axis that op binds.
static bool captures(const Slice *s, const Op *op) {
  for (uint32_t i = 0; i < s->n; i++) {
    const Type *t = ir_type(s->in->f, s->at[i]);
    if (attr_binds(op, AT_OVER, t)) return true;
    if (op->code == OP_SCAN && attr_binds(op, AT_AXIS, t)) return true;
  }
  return false;
}

// v at a coordinate of the axis, as a sum in which only one term is not zero.
static Value one_term(Builder *b, Value v, uint32_t axis, Value at) {
  DType dt = ir_type(b->fn, v)->dtype;
  Value here = ir_2(b, OP_EQ, ir_index(b, axis), at);
  Value zero =
      dtype_is_float(dt) ? ir_const_f(b, dt, 0.0) : ir_const_i(b, dt, 0);
  v = ir_3(b, OP_SELECT, here, v, zero);
  return ir_reduce(b, dt == DT_BOOL ? RK_ANY : RK_SUM, v, &axis, 1);
}

// Would the sums over this replaced axis, and those behind it, catch its
// coordinate?
static bool is_caught(const Slice *s, Value v, uint32_t i) {
  const Func *f = s->in->f;
  for (uint32_t k = i; k < s->n; k++)
    if (type_has_axis(ir_type(f, v), s->axis[k]) &&
        type_has_axis(ir_type(f, s->at[i]), s->axis[k]))
      return true;
  return false;
}

// v at the coordinates; what would be caught waits along an axis of its own.
static Value one_hot(Slice *s, Value v) {
  Builder *b = s->in->b;
  uint32_t waits[MAX_SLICE];
  for (uint32_t i = 0; i < s->n; i++) {
    waits[i] = NO_AXIS;
    if (!type_has_axis(ir_type(b->fn, v), s->axis[i])) continue;
    const Axis a = b->fn->axes.at[s->axis[i]];
    if (is_caught(s, v, i)) waits[i] = ir_axis(b->fn, a.name, a.role, a.extent);
    Value to = waits[i] == NO_AXIS ? s->at[i] : ir_index(b, waits[i]);
    v = one_term(b, v, s->axis[i], to);
  }
  for (uint32_t i = 0; i < s->n; i++)
    if (waits[i] != NO_AXIS) v = one_term(b, v, waits[i], s->at[i]);
  return v;
}

static Value slice(Slice *s, Value v) {
  Func *f = s->in->f;
  const Op *op = ir_def(f, v);
  bool depends = false;
  uint64_t known;
  for (uint32_t i = 0; i < s->n; i++)
    depends = depends || type_has_axis(ir_type(f, v), s->axis[i]);
  if (!depends) return v;
  if (map_get(&s->memo, v, &known)) return (Value)known;
  Value r = 0;
  if (op && op->code == OP_INDEX) {
    for (uint32_t i = 0; i < s->n; i++)
      if (ir_attr_i(op, AT_AXIS, -1) == s->axis[i]) r = s->at[i];
  } else if (!op || op->nres != 1 || op->nregions || captures(s, op)) {
    r = one_hot(s, v);
  } else {
    Value *args = NEWN(s->in->m->arena, Value, op->nargs);
    for (uint32_t i = 0; i < op->nargs; i++) args[i] = slice(s, op->args[i]);
    r = ir_op(s->in->b, op->code, args, op->nargs, op->attrs, op->nattrs, NULL,
              1, 0)
            ->res[0];
    ir_info(f, r)->hint = ir_info(f, v)->hint;
  }
  map_put(&s->memo, v, r);
  return r;
}

// Renames that leave everything in place are no work: d at index(d).
static bool identity(const Func *f, uint32_t axis, Value at) {
  return ir_index_axis(f, at) == (int)axis;
}

static Value at(Inline *in, const IrAttr *axes, const Value *args,
                const uint32_t *axis_map) {
  Slice s = {.in = in, .memo.arena = in->m->arena};
  for (uint32_t i = 0; i < axes->n; i++) {
    uint32_t axis = (uint32_t)axes->list[i];
    if (axis_map) axis = axis_map[axis];
    if (identity(in->f, axis, args[i + 1])) continue;
    s.axis[s.n] = axis;
    s.at[s.n++] = args[i + 1];
  }
  return slice(&s, args[0]);
}

// ---------------------------------------------------------------- axes
// Vec axes of f that its parameters and results have.
static uint64_t interface_axes(const Func *f) {
  uint64_t set = 0;
  for (uint32_t i = 0; i < f->params.n; i++)
    set |= ir_axes_of(f, f->params.at[i].v);
  const Op *end = f->body->last;
  for (uint32_t i = 0; end && i < end->nargs; i++)
    set |= ir_axes_of(f, end->args[i]);
  return set;
}

// A vec axis of the caller for one that only the callee knows.
static uint32_t inner_axis(Inline *in, const Axis *a, uint64_t used) {
  for (uint32_t i = 0; i < in->f->axes.n && i < 64; i++) {
    const Axis *have = &in->f->axes.at[i];
    if (have->role == a->role && have->extent == a->extent &&
        !(used & (uint64_t)1 << i))
      return i;
  }
  return ir_axis(in->f, a->name, a->role, a->extent);
}

// Fills map: axis of the callee -> axis of the program. `outer` maps the
// axes that the call's attributes name.
static bool bind_axes(Inline *in, const Func *callee, const Op *call,
                      const Value *args, const uint32_t *outer, uint32_t *map) {
  const IrAttr *axes = ir_attr(call, AT_AXES);
  const IrAttr *key = ir_attr(call, AT_AXIS);
  uint64_t iface = interface_axes(callee), used = 0;
  uint32_t next = 0;
  if (callee->axes.n > 64 || (callee->key >= 0 && !key)) return false;
  for (uint32_t i = 0; i < call->nargs; i++) used |= ir_axes_of(in->f, args[i]);
  for (uint32_t i = 0; i < callee->axes.n; i++) {
    map[i] = NO_AXIS;
    if ((int)i == callee->key) {
      map[i] = (uint32_t)key->i;
    } else if (iface & (uint64_t)1 << i) {
      if (!axes || next >= axes->n) return false;
      map[i] = (uint32_t)axes->list[next++];
    }
    if (map[i] == NO_AXIS) continue;
    if (outer) map[i] = outer[map[i]];
    used |= (uint64_t)1 << (map[i] & 63);
  }
  for (uint32_t i = 0; i < callee->axes.n; i++)
    if (map[i] == NO_AXIS) {
      map[i] = inner_axis(in, &callee->axes.at[i], used);
      used |= (uint64_t)1 << (map[i] & 63);
    }
  return in->f->axes.n <= 64;
}

// ---------------------------------------------------------------- division
static bool fixed(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  while (op && op->code == OP_CAST) op = ir_def(f, op->args[0]);
  return op && (op->code == OP_CONST || op->code == OP_DIM);
}

// A division of a fn or mod cannot know that an argument was reduced over keys.
static bool divide(Inline *in, const Op *op, const Value *args, Value *out) {
  int axis = op->code != OP_DIV ? -1
                                : ir_quotient_key(&in->deps, args[0], args[1],
                                                  fixed(in->f, args[1]));
  if (axis < 0) return false;
  IrAttr attr = attr_i(AT_AXIS, axis);
  *out = ir_op(in->b, OP_DIVK, args, 2, &attr, 1, NULL, 1, 0)->res[0];
  return true;
}

// ---------------------------------------------------------------- calls
static bool call(Inline *in, const Op *op, const Value *args,
                 const uint32_t *outer, Value *res);

// The first operand; that of a reduction varies with what its domain varies
// with.
static Value covered(Inline *in, const Op *op, const Value *args,
                     const uint32_t *axes) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  uint64_t want = 0;
  if (op->code == OP_SCAN)
    want = in->domains.of[axes[ir_attr_i(op, AT_AXIS, 0)]];
  for (uint32_t i = 0; over && i < over->n; i++)
    want |= in->domains.of[axes[over->list[i]]];
  for (uint32_t i = 1; want && i < op->nargs; i++)
    want &= ~ir_axes_of(in->f, args[i]);
  return ir_cover(in->b, args[0], want);
}

// Clones an op of a callee; its first operand may be covered.
static void clone(Inline *in, const Func *from, const Op *op, const Value *args,
                  ValueMap *map, const uint32_t *axes) {
  if (op->nargs) vmap_put(map, op->args[0], covered(in, op, args, axes));
  ir_clone(in->b, from, op, map, axes);
  if (op->nargs) vmap_put(map, op->args[0], args[0]);
}

// The caller's name of a result says more than the callee's. `made` is the
// first value that is new.
static void name_results(Inline *in, const Func *from, const Op *op,
                         const Value *res, Value made) {
  for (uint32_t i = 0; i < op->nres; i++) {
    const char *hint = ir_info(from, op->res[i])->hint;
    if (hint && res[i] >= made) ir_info(in->f, res[i])->hint = hint;
  }
}

// One op of a callee.
static bool body_op(Inline *in, const Func *from, const Op *op, ValueMap *map,
                    const uint32_t *axes) {
  Value *args = NEWN(in->m->arena, Value, op->nargs);
  Value *res = NEWN(in->m->arena, Value, op->nres), made = in->f->values.n;
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = vmap_get(map, op->args[i]);
  if (op->code == OP_CALL) {
    if (!call(in, op, args, axes, res)) return false;
  } else if (op->code == OP_AT) {
    res[0] = at(in, ir_attr(op, AT_AXES), args, axes);
  } else if (!divide(in, op, args, res)) {
    clone(in, from, op, args, map, axes);
    return true;
  }
  name_results(in, from, op, res, made);
  for (uint32_t i = 0; i < op->nres; i++) vmap_put(map, op->res[i], res[i]);
  return true;
}

static bool broken(Inline *in, const Op *op, const char *why) {
  diag_add(in->cx, DIAG_pass_unsupported, op->span, why);
  in->failed = true;
  return false;
}

static bool too_large(Inline *in, const Op *op) {
  const char *why =
      arena_printf(&in->cx->session,
                   "'%s' is more than %d operations where its calls are "
                   "what they call",
                   in->f->name, MAX_OPS);
  return broken(in, op, why);
}

// Puts the body of op's callee at the builder; res gets its results.
static bool call(Inline *in, const Op *op, const Value *args,
                 const uint32_t *outer, Value *res) {
  const IrAttr *name = ir_attr(op, AT_CALLEE);
  const Func *callee = name ? ir_find(in->m, name->s) : NULL;
  uint32_t axes[64];
  if (!callee || callee->kind == FK_PROGRAM || callee->params.n != op->nargs)
    return broken(in, op, "call of something that is no function");
  if (in->depth >= MAX_CALLS) return broken(in, op, "calls nest too deeply");
  if (!bind_axes(in, callee, op, args, outer, axes))
    return broken(in, op, "a call does not bind the axes of its callee");
  ValueMap map = {.arena = in->m->arena};
  for (uint32_t i = 0; i < op->nargs; i++)
    vmap_put(&map, callee->params.at[i].v, args[i]);
  in->depth++;
  for (const Op *o = callee->body->first; o; o = o->next) {
    if (++in->ops > MAX_OPS) return too_large(in, op);
    if (o->code == OP_RETURN) {
      for (uint32_t i = 0; i < o->nargs && i < op->nres; i++)
        res[i] = vmap_get(&map, o->args[i]);
    } else if (!body_op(in, callee, o, &map, axes)) {
      break;
    }
  }
  in->depth--;
  return !in->failed;
}

static bool visit(Rebuild *r, const Op *op) {
  Inline *in = r->data;
  in->b = &r->b;
  if (op->code == OP_DOMAIN)
    ir_note_domain(in->f, &in->domains, (uint32_t)ir_attr_i(op, AT_AXIS, 0),
                   vmap_get(&r->map, op->args[0]));
  if (op->code != OP_CALL && op->code != OP_AT) return false;
  Value *args = rebuild_args(r, op);
  Value *res = NEWN(in->m->arena, Value, op->nres), made = in->f->values.n;
  if (op->code == OP_AT) res[0] = at(in, ir_attr(op, AT_AXES), args, NULL);
  else if (in->failed || !call(in, op, args, NULL, res)) return false;
  name_results(in, in->f, op, res, made);
  for (uint32_t i = 0; i < op->nres; i++) rebuild_put(r, op->res[i], res[i]);
  return true;
}

bool pass_inline(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (f->kind != FK_PROGRAM) continue;
    Inline in = {.cx = cx, .m = m, .f = f};
    in.deps = ir_key_deps_of(f, m->arena);
    rebuild_func(f, visit, &in);
    rebuild_trim(f);
    if (in.failed) return false;
  }
  for (uint32_t i = 0; i < m->funcs.n; i++)
    if (m->funcs.at[i]->kind == FK_PROGRAM)
      m->funcs.at[kept++] = m->funcs.at[i];
  m->funcs.n = kept;
  return true;
}
