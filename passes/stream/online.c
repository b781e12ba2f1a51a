// online: derives the streaming form of every row.
//
//   %m = reduce(%s) {kind = max, over = [k]}       %m, %l, %o = kreduce() {
//   %e = exp(sub(%s, %m))                      ->    kinds = [max, sum, sum],
//   %l = reduce(%e) {kind = sum, over = [k]}         axis = k, gauge = [0], ..
//   %o = dot(divk(%e, %l), %v) {over = [k]}        } ({..}, {..}, {..})
//                                                  %r = mul(%o, div(1, %l))
//
// Reductions over a key axis become accumulators of `pass` ops. A reduction
// that reads row values which still move is brought into the form
// sum_i G_i(x) * H_i(d) (sep.c): exponential factors of H roll along with the
// accumulator, the others are applied once, after the pass: late division.
// What does not separate waits for another pass. Maxima on which the result
// does not depend are marked as gauges; the value that masks a key is chosen by
// proof.
//
// Needs: inline (no calls), canon (sums of products are dots). See
// docs/ir.md, level stream. Tests: test/passes/online/.
#include "ir/target.h"
#include "passes/stream/online.h"

#include "passes/support/order.h"
#include "passes/pass.h"
#include <stdarg.h>
#include <stdio.h>

Red *online_red(const Online *o, Value v) {
  uint64_t r = 0;
  map_get(&o->by_value, v, &r);
  return (Red *)(uintptr_t)r;
}

uint32_t online_domain(const Online *o, uint32_t axis, Value *out,
                       uint32_t max) {
  uint32_t n = 0;
  for (const Op *op = o->f->body->first; op; op = op->next)
    if (op->code == OP_DOMAIN && ir_attr_i(op, AT_AXIS, -1) == axis && n < max)
      out[n++] = op->args[0];
  return n;
}

void online_fail(Online *o, const Op *at, const char *fmt, ...) {
  char text[300];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  o->failed = true;
  diag_add(o->cx, DIAG_pass_unsupported, at ? at->span : NOWHERE, text);
}

// ---------------------------------------------------------------- reductions
static bool is_key(const Func *f, int64_t axis) {
  return f->axes.at[axis].role == AX_KEY;
}

static uint32_t key_axes(const Func *f, const Op *op, uint32_t *first) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  uint32_t n = 0;
  for (uint32_t i = 0; over && i < over->n; i++)
    if (is_key(f, over->list[i]) && n++ == 0) *first = (uint32_t)over->list[i];
  return n;
}

static uint64_t other_keys(const Func *f, const Type *t, uint32_t axis) {
  uint64_t m = 0;
  for (uint32_t i = 0; i < t->n; i++)
    if (t->axis[i] != axis && is_key(f, t->axis[i])) m |= 1ull << t->axis[i];
  return m;
}

// A reduction over a key axis and others becomes one over the others, and one
// over the key axis of its results.
static void split_over(Online *o, Op *op, uint32_t axis) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  uint32_t rest[MAX_AXES], n = 0;
  for (uint32_t i = 0; i < over->n; i++)
    if (over->list[i] != axis) rest[n++] = (uint32_t)over->list[i];
  Builder b = {.fn = o->f,
               .region = op->parent,
               .before = op,
               .span = op->span};
  bool dot = op->code == OP_DOT;
  RKind k = dot ? RK_SUM : (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  Value inner = dot ? ir_dot(&b, op->args[0], op->args[1], rest, n)
                    : ir_reduce(&b, k, op->args[0], rest, n);
  Value outer = ir_reduce(&b, k, inner, &axis, 1);
  ir_replace_uses(o->f, op->res[0], outer);
  ir_erase(op);
}

static bool split_one(Online *o) {
  for (Op *op = o->region->first; op; op = op->next) {
    uint32_t axis = 0;
    if (op->code != OP_REDUCE && op->code != OP_DOT) continue;
    if (!key_axes(o->f, op, &axis) || ir_attr(op, AT_OVER)->n == 1) continue;
    split_over(o, op, axis);
    return true;
  }
  return false;
}

static void add_red(Online *o, Op *op, uint32_t axis, bool scan) {
  Red *r = NEW(o->arena, Red);
  *r = (Red){.op = op, .res = op->res[0], .axis = axis, .scan = scan};
  r->dot = op->code == OP_DOT;
  r->kind = r->dot ? RK_SUM : (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  r->outer = other_keys(o->f, ir_type(o->f, r->res), axis);
  vec_push(o->arena, &o->reds, r);
  map_put(&o->by_value, r->res, (uint64_t)(uintptr_t)r);
}

static void find_reds(Online *o) {
  for (Op *op = o->region->first; op; op = op->next) {
    uint32_t axis = 0;
    if (op->code == OP_SCAN) {
      if (ir_attr(op, AT_BLOCK)) continue;  // it is within a tile
      axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
      if (is_key(o->f, axis)) add_red(o, op, axis, true);
    } else if (op->code == OP_REDUCE || op->code == OP_DOT) {
      if (key_axes(o->f, op, &axis)) add_red(o, op, axis, false);
    }
  }
}

// ---------------------------------------------------------------- divisions
static bool depends_on_axis(const Online *o, Value v, uint32_t axis,
                            Map *seen) {
  uint64_t known;
  if (map_get(seen, v, &known)) return false;
  map_put(seen, v, 1);
  const Red *r = online_red(o, v);
  if (r && r->axis == axis) return true;
  const Op *op = ir_def(o->f, v);
  for (uint32_t i = 0; op && i < op->nargs; i++)
    if (depends_on_axis(o, op->args[i], axis, seen)) return true;
  return false;
}

// Whether the domain of the axis is not empty, as a reduction; 0 if it has no
// predicate.
static Value any_key(Online *o, Builder *b, uint32_t axis) {
  Value pred[16];
  uint32_t n = online_domain(o, axis, pred, 16);
  if (!n) return 0;
  Type t = type_with(type_scalar(DT_BOOL), axis, DIM_NONE);
  for (uint32_t i = 0; i < n; i++)
    t = type_union(&t, ir_type(o->f, pred[i]), DT_BOOL);
  IrAttr one = attr_i(AT_IVALUE, 1);
  Value all = ir_op(b, OP_CONST, NULL, 0, &one, 1, &t, 1, 0)->res[0];
  return ir_reduce(b, RK_ANY, all, &axis, 1);
}

// A division that reads no reduction over its axis may be needed before the
// pass that finds out whether there are keys: it gets a reduction of its own.
static bool expand_divk(Online *o, Op *op) {
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  Map seen = {.arena = o->arena};
  Value a = op->args[0], d = op->args[1], r;
  const Type *t = ir_type(o->f, op->res[0]);
  bool keyed_value = type_has_axis(t, axis);  // there its domain is not empty
  if (depends_on_axis(o, d, axis, &seen) ||
      (!keyed_value && depends_on_axis(o, a, axis, &seen)))
    return false;
  Builder b = {.fn = o->f,
               .region = op->parent,
               .before = op,
               .span = op->span};
  r = ir_2(&b, OP_DIV, a, d);
  Value some = keyed_value ? 0 : any_key(o, &b, axis);
  if (some) {
    Value zero = ir_const_f(&b, ir_type(o->f, r)->dtype, 0);
    Value ok = ir_2(&b, OP_OR, some, ir_2(&b, OP_NE, d, zero));
    Value safe = ir_3(&b, OP_SELECT, ok, r, zero);
    if (type_eq(ir_type(o->f, safe), t)) r = safe;
  }
  ir_replace_uses(o->f, op->res[0], r);
  ir_erase(op);
  return true;
}

static void expand_divisions(Online *o) {
  for (Op *op = o->region->first, *next; op; op = next) {
    next = op->next;
    if (op->code == OP_DIVK && expand_divk(o, op)) {
      o->reds.n = 0;
      o->by_value = (Map){.arena = o->arena};
      find_reds(o);
    }
  }
}

// ---------------------------------------------------------------- clean-up
typedef struct Marks {
  const Func *f;
  Map live;  // Op * -> 1
} Marks;

static void mark(Marks *m, Op *op);

static void mark_args(Marks *m, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    Op *def = ir_def(m->f, op->args[i]);
    if (def) mark(m, def);
  }
}

static void mark_region(Marks *m, const Region *r) {
  for (Op *op = r->first; op; op = op->next) mark(m, op);
}

static void mark(Marks *m, Op *op) {
  uint64_t x;
  if (map_get(&m->live, (uintptr_t)op, &x)) return;
  map_put(&m->live, (uintptr_t)op, 1);
  mark_args(m, op);
  for (uint32_t i = 0; i < op->nregions; i++) mark_region(m, op->regions[i]);
}

static bool keyed(const Online *o, Value v) {
  const Type *t = ir_type(o->f, v);
  for (uint32_t i = 0; t->kind == TK_ELEM && i < t->n; i++)
    if (is_key(o->f, t->axis[i])) return true;
  return false;
}

// Domains of key axes are in the passes now; so are facts about their values.
static bool moved(const Online *o, const Op *op) {
  if (op->code == OP_DOMAIN) return is_key(o->f, ir_attr_i(op, AT_AXIS, 0));
  return op->code == OP_ASSUME && keyed(o, op->args[0]);
}

// Is it a pass that others have a copy of inside?
static bool is_nested(const Online *o, const Op *pass) {
  for (uint32_t i = 0; i < o->groups.n; i++)
    if (o->groups.at[i]->pass == pass) return o->groups.at[i]->outer != 0;
  return false;
}

// Has the pass, or one inside of it, a store that adds?
static bool adds(const Op *pass) {
  for (uint32_t i = 0; i < pass->nregions; i++)
    for (const Op *op = pass->regions[i]->first; op; op = op->next)
      if (op->code == OP_STORE || adds(op)) return true;
  return false;
}

static void drop_dead(Online *o) {
  Marks m = {.f = o->f, .live.arena = o->arena};
  for (Op *op = o->region->first; op; op = op->next)
    if (!(op_info(op->code)->flags & OPF_PURE) &&
        (op->code != OP_KREDUCE || (adds(op) && !is_nested(o, op))) &&
        !moved(o, op))
      mark(&m, op);
  uint64_t x;
  for (Op *op = o->region->last, *prev; op; op = prev) {
    prev = op->prev;
    if (!map_get(&m.live, (uintptr_t)op, &x)) ir_erase(op);
  }
}

// What still varies with a key outside of the passes has no place to go.
static void check_keyed(Online *o) {
  for (const Op *op = o->region->first; op; op = op->next) {
    if (op_info(op->code)->flags & OPF_PURE || op->code == OP_KREDUCE) continue;
    if (op->code == OP_STORE && ir_attr_i(op, AT_ADD, 0)) {
      online_fail(o, op, "what is added up varies with no key axis");
      return;
    }
    for (uint32_t i = 0; i < op->nargs; i++) {
      if (!keyed(o, op->args[i])) continue;
      online_fail(o, op,
                  "a value that varies with a key axis is used outside "
                  "of a reduction over it");
      return;
    }
  }
}

// ---------------------------------------------------------------- the pass
static bool run_region(Ctx *cx, Func *f, Region *r, bool frames) {
  Online o = {.cx = cx,
              .arena = &cx->scratch,
              .f = f,
              .region = r,
              .frames = frames};
  o.by_value.arena = o.origin.arena = o.some.arena = o.arena;
  o.inverse.arena = o.shown.arena = o.arena;
  sym_init(&o.sym, o.arena);
  range_init(&o.ranges, f, o.arena);
  Op *end = r->last;
  bool term = end && (op_info(end->code)->flags & OPF_TERM);
  o.b = (Builder){.fn = f, .region = r, .before = term ? end : NULL};
  f->mod->level = LV_ATTN;  // until ops of stream are made
  while (split_one(&o)) continue;
  find_reds(&o);
  expand_divisions(&o);
  if (!online_plan(&o)) return false;
  online_gauges(&o);
  f->mod->level = LV_STREAM;
  for (uint32_t i = 0; i < o.groups.n; i++) {
    online_fill(&o, o.groups.at[i]);
    online_add_some(&o, o.groups.at[i]);
    online_remark(&o, o.groups.at[i], i + 1);
    if (!online_emit(&o, o.groups.at[i])) return false;
  }
  online_lower_divk(&o);
  drop_dead(&o);
  order_region(f, r, o.arena);
  check_keyed(&o);
  return !o.failed;
}

static bool run_regions(Ctx *cx, Func *f, Region *r, bool frames) {
  for (Op *op = r->first; op; op = op->next)
    if (op->code == OP_RECUR)
      for (uint32_t i = 0; i < op->nregions; i++)
        if (!run_regions(cx, f, op->regions[i], frames)) return false;
  return run_region(cx, f, r, frames);
}

bool pass_online(Ctx *cx, Module *m, const PassOpt *opt) {
  bool frames = opt->target->gpu.hopper;
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    if (m->funcs.at[i]->kind == FK_PROGRAM) m->funcs.at[n++] = m->funcs.at[i];
  m->funcs.n = n;
  m->level = LV_STREAM;
  for (uint32_t i = 0; i < n; i++)
    if (!run_regions(cx, m->funcs.at[i], m->funcs.at[i]->body, frames))
      return false;
  return true;
}
