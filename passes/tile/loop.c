// Key loops of the pass `tile`: one `pass` op becomes one loop over key tiles,
// inside of one over the intervals of its bounds if there are several. A flag
// says which tiles need no mask: masks are `full or predicate`, and `lower_cpu`
// makes two versions of the loops that evaluate one.
//
// Values are cloned on demand, accumulator by accumulator, so that term i sees
// the accumulators j < i after this tile, as docs/ir.md defines a pass.
#include "passes/support/cost.h"
#include "passes/support/hides.h"
#include "passes/tile/loop.h"

#include "ir/eval.h"
#include <assert.h>
#include <math.h>
#include <string.h>

static bool mapped(const ValueMap *m, Value v) {
  return v < m->n && m->to[v];
}

static bool listed(const Op *op, AttrId id, uint32_t i) {
  const IrAttr *a = ir_attr(op, id);
  for (uint32_t j = 0; a && j < a->n; j++)
    if (a->list[j] == i) return true;
  return false;
}

static bool is_noted(const Op *op, const char *word) {
  const IrAttr *a = ir_attr(op, AT_NOTE);
  return a && a->s && !strcmp(a->s, word);
}

static bool is_score(const Op *op) {
  return is_noted(op, "score");
}

// What several accumulators are made of, for which 0 is nothing
// (passes/stream/row_scale.c).
static bool is_weight(const Op *op) {
  return is_noted(op, "weight");
}

static bool over_key(const KeyLoop *l, const Op *op) {
  const IrAttr *a = ir_attr(op, AT_OVER);
  for (uint32_t j = 0; a && j < a->n; j++)
    if (a->list[j] == l->axis) return true;
  return false;
}

Value tile_keep_if(Builder *b, Value mask, Value v, double other) {
  Type s = type_scalar(ir_type(b->fn, v)->dtype);
  return ir_3(b, OP_SELECT, mask, v, tile_const(b, s, other));
}

// ---------------------------------------------------------------- on demand
// The product over the keys of accumulator i, or NULL.
static const Op *inner_of(const KeyLoop *l, uint32_t i, OpCode code) {
  const Op *def = ir_def(l->t->from, tile_yield(l->local)->args[i]);
  bool inner = def && def->parent == l->local && def->code == code;
  return inner && over_key(l, def) ? def : NULL;
}

static bool has_lanes(const KeyLoop *l, const Func *f, Value v) {
  return l->t->plan.lane >= 0 &&
         type_has_axis(ir_type(f, v), (uint32_t)l->t->plan.lane);
}

// Does v make up what a product adds up over the keys? Scores keep nothing of
// a key that is not seen.
static bool feeds(const KeyLoop *l, Value v, Value of, bool score) {
  const Op *op = ir_def(l->t->from, of);
  if (of == v) return true;
  if (!op || op->parent != l->local || (is_score(op) && !score)) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (feeds(l, v, op->args[i], score)) return true;
  return false;
}

// The same of sum i. An operand of a product that varies with the lanes is
// masked as it is if it is open (add_dot).
static bool feeds_sum(const KeyLoop *l, Value v, uint32_t i) {
  const Op *dot = l->step > 1 ? inner_of(l, i, OP_DOT) : NULL;
  bool score = l->fill != FILL_NEGINF, some = false;
  if (!dot) return feeds(l, v, tile_yield(l->local)->args[i], score);
  for (uint32_t k = 0; k < 2; k++)
    some |= !has_lanes(l, l->t->from, dot->args[k]) &&
            feeds(l, v, dot->args[k], score);
  return some;
}

// Rows behind a sequence's end are those of the next one: as finite as its own.
// A GPU leaves them to the mask, and copies tiles as they are.
static bool stays(KeyLoop *l, const Op *op) {
  if (!l->t->gpu || l->fill == FILL_SELECT) return false;
  if (tile_is_made(l->t->from, op)) return true;
  if (lane_packed(l->t->from, op, l->axis)) return true;
  for (uint32_t i = 0; i < l->n; i++)
    if (feeds_sum(l, op->res[0], i)) return false;
  return true;
}

// Loads of key data in a masked body read zeros where no lane sees the key:
// memory past a sequence's end may hold anything.
static Value clean_load(KeyLoop *l, Builder *b, const Op *op, Value v,
                        const ValueMap *m) {
  const Type *t = ir_type(b->fn, v);
  bool plain = op->code == OP_LOAD && l->masked && l->kmask && t->n > 1 &&
               type_has_axis(t, l->axis) && dtype_is_float(t->dtype);
  if (!plain || (l->extent_only && tile_ends_with_keys(l, op, m))) return v;
  return stays(l, op) ? v : tile_keep_if(b, l->kmask, v, 0);
}

// Whether what is read for a masked key can reach v, a value of the local
// region, past the fill: it is 0 * NaN then. Scores let nothing through.
static bool exposed_in(const KeyLoop *l, Value v, Map *seen) {
  const Func *f = l->t->from;
  const Op *op = ir_def(f, v);
  uint64_t known;
  if (!op || !type_has_axis(ir_type(f, v), l->axis) || is_score(op) ||
      is_weight(op) || op->code == OP_CONST)
    return false;
  if (map_get(seen, v, &known)) return known != 0;
  bool r = op->code == OP_LOAD || op->code == OP_INDEX || op->nregions;
  for (uint32_t i = 0; i < op->nargs && !r; i++)
    r = exposed_in(l, op->args[i], seen);
  map_put(seen, v, r);
  return r;
}

static bool exposed(const KeyLoop *l, Value v) {
  Map seen = {.arena = &l->t->cx->session};
  return l->masked && exposed_in(l, v, &seen);
}

static bool is_open(const KeyLoop *l, const Op *op) {
  bool open = false;
  for (uint32_t i = 0; i < op->nargs && !open; i++)
    open = exposed(l, op->args[i]);
  return open;
}

// Masked keys must not count in a running sum either.
static bool masks_scan(const KeyLoop *l, const Op *op) {
  if (op->code != OP_SCAN || !l->masked) return false;
  if (op->nargs == 1 || exposed(l, op->args[0])) return true;
  for (uint32_t i = 0; i < l->n; i++)
    if (l->local->params.at[i] == op->args[1] && listed(l->op, AT_GUARD, i))
      return true;
  return l->fill == FILL_SELECT;
}

static bool same_attrs(const Op *a, const Op *b) {
  const IrAttr *x = ir_attr(a, AT_IVALUE), *y = ir_attr(b, AT_IVALUE);
  if (a->code == OP_CONST) return x && y && x->i == y->i;
  return a->nattrs == 0 && b->nattrs == 0;
}

// Made in the same way of the same values.
static bool is_same(const Func *f, Value x, Value y) {
  if (x == y) return true;
  const Op *a = ir_def(f, x), *b = ir_def(f, y);
  if (!a || !b || a->code != b->code || a->nargs != b->nargs || a->nregions ||
      !same_attrs(a, b) || !(op_info(a->code)->flags & OPF_PURE))
    return false;
  for (uint32_t i = 0; i < a->nargs; i++)
    if (!is_same(f, a->args[i], b->args[i])) return false;
  return true;
}

// The extremes of one entry of a table.
static bool span_of_one(KeyLoop *l, Builder *b, const Op *op, ValueMap *m) {
  bool span = op->code == OP_SPAN_MIN || op->code == OP_SPAN_MAX;
  if (!span || !l->t->gpu ||
      !is_same(b->fn, vmap_get(m, op->args[1]), vmap_get(m, op->args[2])))
    return false;
  Value at[MAX_AXES];
  uint32_t n = 0;
  for (uint32_t i = 3; i < op->nargs; i++) at[n++] = vmap_get(m, op->args[i]);
  at[n++] = vmap_get(m, op->args[1]);
  Value x = ir_load(b, vmap_get(m, op->args[0]), at, n);
  vmap_put(m, op->res[0], ir_cast(b, DT_I64, x));
  return true;
}

// Makes in front of a pass inside what it takes from around.
typedef struct Captured {
  KeyLoop *l;
  Builder *b;
  ValueMap *m;
} Captured;

static void make_captured(void *data, Op *op) {
  Captured *c = data;
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value v = op->args[i];
    const Op *def = ir_def(c->l->t->from, v);
    bool ready = def && !def->nregions && !tile_waits(c->l->t, v);
    if (ready && (def->parent == c->l->local || !def->parent->parent))
      tile_need(c->l, c->b, v, c->m);
  }
}

static void clone_on_demand(KeyLoop *l, Builder *b, const Op *op, ValueMap *m) {
  Captured captured = {l, b, m};
  for (uint32_t i = 0; op->code == OP_KREDUCE && i < op->nregions; i++)
    ir_walk(op->regions[i], make_captured, &captured);
  for (uint32_t i = 0; i < op->nargs; i++)
    if (ir_type(l->t->from, op->args[i])->kind == TK_ELEM)
      tile_need(l, b, op->args[i], m);
  if (masks_scan(l, op))
    vmap_put(m, op->args[0],
             tile_keep_if(b, l->mask, vmap_get(m, op->args[0]), 0));
  if (span_of_one(l, b, op, m)) return;
  bool ok = tile_op(l->t, b, op, m);
  assert(ok);
  (void)ok;
  if (op->nres != 1) return;
  Value v = clean_load(l, b, op, vmap_get(m, op->res[0]), m);
  if (is_score(op) && l->masked && l->fill != FILL_SELECT)
    v = tile_keep_if(b, l->mask, v, l->fill == FILL_ZERO ? 0 : -INFINITY);
  if (is_weight(op) && is_open(l, op)) v = tile_keep_if(b, l->mask, v, 0);
  vmap_put(m, op->res[0], v);
}

Value tile_need(KeyLoop *l, Builder *b, Value v, ValueMap *m) {
  if (!mapped(m, v)) {
    assert(ir_def(l->t->from, v) && "a pass uses a value that is not defined");
    clone_on_demand(l, b, ir_def(l->t->from, v), m);
  }
  return vmap_get(m, v);
}

// Clones what does not vary with the keys in front of the loops.
static void hoist(KeyLoop *l, Builder *b, const Region *r, ValueMap *m) {
  for (const Op *op = r->first; op; op = op->next) {
    const OpInfo *info = op_info(op->code);
    bool ok = (info->flags & OPF_PURE) && !op->nregions && op->nres == 1 &&
              !(op->code == OP_INDEX &&
                ir_attr_i(op, AT_AXIS, -1) == (int64_t)l->axis);
    for (uint32_t i = 0; ok && i < op->nargs; i++) ok = mapped(m, op->args[i]);
    if (ok && !over_key(l, op) && !is_score(op)) tile_op(l->t, b, op, m);
  }
}

// ---------------------------------------------------------------- one body
// The term of a uniform value over a whole tile of keys.
static Value repeat_uniform(KeyLoop *l, Builder *b, RKind k, Value v) {
  if (l->step == 1) return v;
  Type t = type_scalar(ir_type(b->fn, v)->dtype);
  if (k == RK_SUM || k == RK_COUNT)
    return ir_2(b, OP_MUL, v, tile_const(b, t, (double)l->step));
  if (k != RK_PROD) return v;
  Value n = tile_const(b, t, (double)l->step);
  return ir_2(b, OP_POW, v, n);
}

// Is v, of the stream, a load (cast or not)? clean_load has cleaned it.
static bool is_loaded(const KeyLoop *l, Value v) {
  const Op *op = ir_def(l->t->from, v);
  while (op && op->code == OP_CAST) op = ir_def(l->t->from, op->args[0]);
  return op && op->code == OP_LOAD && ir_type(l->t->from, op->res[0])->n > 1;
}

// An operand without anything of masked keys. What does not vary with the
// lanes keeps what one lane sees and another does not: see `visible`.
static Value clean_operand(KeyLoop *l, Builder *b, Value from, Value v,
                           bool computed) {
  if (computed) return tile_keep_if(b, l->mask, v, 0);
  bool keys = type_has_axis(ir_type(b->fn, v), l->axis);
  bool open = keys && !is_loaded(l, from) && exposed(l, from);
  return open ? tile_keep_if(b, l->kmask, v, 0) : v;
}

// A dot of the accumulator's type takes it as third operand.
static Value add_dot(KeyLoop *l, Builder *b, const Op *dot, ValueMap *m,
                     Value acc, uint32_t i) {
  bool guard = listed(l->op, AT_GUARD, i);
  const Type *type = &l->types[i];
  Value x = tile_need(l, b, dot->args[0], m),
        y = tile_need(l, b, dot->args[1], m);
  IrAttr over = *ir_attr(dot, AT_OVER);
  if (l->masked) {
    // The computed operand is the one that varies with the lanes.
    bool all = guard || l->fill == FILL_SELECT;
    bool xl = has_lanes(l, b->fn, x), yl = has_lanes(l, b->fn, y);
    bool ex = exposed(l, dot->args[0]), ey = exposed(l, dot->args[1]);
    bool cx = (xl || !yl) && (all || (xl && ex));
    x = clean_operand(l, b, dot->args[0], x, cx);
    y = clean_operand(l, b, dot->args[1], y, yl && ((all && !xl) || ey));
  }
  x = tile_adds_rows(l, b, dot->args[0], x);
  y = tile_adds_rows(l, b, dot->args[1], y);
  Value args[4] = {x, y, acc, l->keep};
  Op *d = ir_op(b, OP_DOT, args, 2, &over, 1, NULL, 1, 0);
  bool same = type_eq(ir_type(b->fn, d->res[0]), type);
  if (!same && !l->keep) return ir_2(b, OP_ADD, acc, d->res[0]);
  if (!same) args[2] = tile_const(b, *ir_type(b->fn, d->res[0]), 0);
  ir_erase(d);
  uint32_t n = l->keep ? 4 : 3;
  Value sum = ir_op(b, OP_DOT, args, n, &over, 1, NULL, 1, 0)->res[0];
  return same ? sum : ir_2(b, OP_ADD, acc, sum);
}

// The product of one key: nothing is summed over its axis.
static Value dot_term(KeyLoop *l, Builder *b, const Op *dot, ValueMap *m,
                      DType t) {
  Value x = tile_need(l, b, dot->args[0], m),
        y = tile_need(l, b, dot->args[1], m);
  uint32_t rest[MAX_AXES], n = 0;
  const IrAttr *over = ir_attr(dot, AT_OVER);
  for (uint32_t i = 0; i < over->n; i++)
    if (over->list[i] != l->axis) rest[n++] = (uint32_t)over->list[i];
  if (!n) y = ir_cast(b, t, y);
  Value term =
      n ? ir_dot(b, x, y, rest, n) : ir_2(b, OP_MUL, ir_cast(b, t, x), y);
  return l->masked ? tile_keep_if(b, l->mask, term, 0) : term;
}

static Value reduce_term(KeyLoop *l, Builder *b, Value from, ValueMap *m,
                         RKind k, bool guard) {
  Value v = tile_need(l, b, from, m);
  bool select =
      l->masked && (guard || l->fill == FILL_SELECT || exposed(l, from));
  DType t = ir_type(b->fn, v)->dtype;
  if (select) v = tile_keep_if(b, l->mask, v, eval_identity(k, t));
  if (!type_has_axis(ir_type(b->fn, v), l->axis))
    return repeat_uniform(l, b, k, v);
  return ir_reduce(b, k == RK_COUNT ? RK_SUM : k, v, &l->axis, 1);
}

static uint32_t uses_of(const Region *r, Value v) {
  uint32_t n = 0;
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nargs; i++) n += op->args[i] == v;
    for (uint32_t i = 0; i < op->nregions; i++) n += uses_of(op->regions[i], v);
  }
  return n;
}

// Is accumulator i what a pass inside adds up, for all keys of l? Then that
// one goes on with it, instead of beginning with nothing: one sum, not two.
static bool continued(const KeyLoop *l, uint32_t i) {
  const Func *f = l->t->from;
  Value v = tile_yield(l->local)->args[i];
  const Op *in = ir_def(f, v);
  if (!in || in->code != OP_KREDUCE || in->parent != l->local) return false;
  if (l->step != 1 || l->masked || uses_of(l->local, v) != 1) return false;
  uint32_t r = 0;
  while (in->res[r] != v) r++;
  return ir_attr(in, AT_KINDS)->list[r] == l->kinds->list[i] &&
         tile_is_const(f, tile_yield(in->regions[2])->args[r], 1) &&
         tile_is_const(f, tile_yield(l->correct)->args[i], 1);
}

// What the accumulators of a pass begin with.
static Value begin(const Tiler *t, Builder *b, const KeyLoop *in, uint32_t r) {
  const KeyLoop *l = t->around;
  for (uint32_t i = 0; l && l->local == in->op->parent && i < l->n; i++)
    if (tile_yield(l->local)->args[i] == in->op->res[r] && continued(l, i))
      return l->old[i];
  const Type *type = &in->types[r];
  RKind k = (RKind)in->kinds->list[r];
  return tile_const(b, *type, eval_identity(k, type->dtype));
}

// Accumulator i after this tile.
static Value update(KeyLoop *l, Builder *b, uint32_t i, ValueMap *m,
                    ValueMap *cm, Value old) {
  const Func *f = l->t->from;
  RKind k = (RKind)l->kinds->list[i];
  Value yield = tile_yield(l->local)->args[i];
  Value factor = tile_yield(l->correct)->args[i];
  bool guard = listed(l->op, AT_GUARD, i);
  const Op *dot = inner_of(l, i, OP_DOT), *red = inner_of(l, i, OP_REDUCE);
  Value term = 0;
  if (continued(l, i)) return tile_need(l, b, yield, m);
  if (dot && l->step == 1) {
    term = dot_term(l, b, dot, m, l->types[i].dtype);
    dot = NULL;
  } else if (red)
    term = reduce_term(l, b, red->args[0], m,
                       (RKind)ir_attr_i(red, AT_KIND, RK_SUM), guard);
  else if (!dot) term = reduce_term(l, b, yield, m, k, guard);
  Value acc = old;
  if (!tile_is_const(f, factor, 1))
    acc = tile_scaled(b, old, tile_need(l, b, factor, cm));
  if (dot) return add_dot(l, b, dot, m, acc, i);
  return ir_combine(b, k, acc, term);
}

// Scores read a table that has a number of its own where keys are hidden.
const Op *tile_told(const KeyLoop *l, Value p) {
  const Op *def = ir_def(l->t->from, p);
  bool told = def && !l->judged && is_noted(def, HIDES_NOTE);
  for (const Op *op = l->local->first; told && op; op = op->next)
    if (op->code == OP_LOAD && ir_attr_i(op, AT_HIDES, 0) &&
        type_has_axis(ir_type(l->t->from, op->res[0]), l->axis))
      return op;
  return NULL;
}

// Conjuncts that hide keys from all rows go to kmask too.
static void split_mask(KeyLoop *l, Builder *b, Value p, ValueMap *m) {
  const Op *def = ir_def(l->t->from, p);
  if (def && def->code == OP_AND && def->parent == l->domain) {
    split_mask(l, b, def->args[0], m);
    split_mask(l, b, def->args[1], m);
    return;
  }
  bool was = l->masked;
  l->masked = false;  // loads of the predicate itself are read as they are
  Value v = tile_need(l, b, p, m);
  l->masked = was;
  l->mask = ir_2(b, OP_AND, l->mask, v);
  bool lanes = l->t->plan.lane >= 0 &&
               type_has_axis(ir_type(b->fn, v), (uint32_t)l->t->plan.lane);
  if (lanes || (l->t->trusts && tile_rows_see(l->t->from, l->op, p))) return;
  l->kmask = ir_2(b, OP_AND, l->kmask, v);
  l->extent_only = false;
}

// The predicate of this tile's keys, and its part shared by all lanes.
static void make_mask(KeyLoop *l, Builder *b, Value key, ValueMap *m) {
  Dim size = l->t->from->axes.at[l->axis].extent;
  bool whole = dim_divisor(&l->t->from->mod->dims, size) % l->step == 0;
  l->mask = l->kmask =
      whole ? ir_const_i(b, DT_BOOL, 1) : ir_2(b, OP_LT, key, ir_dim(b, size));
  l->extent_only = true;
  if (!l->whole) split_mask(l, b, tile_yield(l->domain)->args[0], m);
}

void tile_open(KeyLoop *l, Builder *b, Value k0, bool masked, ValueMap *m) {
  Tiler *t = l->t;
  bool tiled = l->step > 1;
  Dim size = dim_const(&t->to->mod->dims, l->step);
  Value iota = tiled ? ir_iota(b, l->axis, size) : 0;
  Value key = tiled ? ir_2(b, OP_ADD, k0, iota) : k0;
  t->coord[l->axis] = key;
  l->masked = masked;
  if (!masked) return;
  make_mask(l, b, key, m);
  bool was = l->masked;
  l->masked = false;  // loads of the predicate itself are read as they are
  if (t->gpu && tiled) tile_limits(l, b, k0, iota, m);
  l->masked = was;
  if (l->adds) tile_live_rows(l, b);
  if (!l->full) return;
  l->kmask = ir_2(b, OP_OR, l->full, l->kmask);
  l->mask = l->rows ? ir_3(b, OP_SELECT, l->full, l->rows, l->mask)
                    : ir_2(b, OP_OR, l->full, l->mask);
}

// ---------------------------------------------------------------- lazy gauges
// Factors at or above this leave a gauge as it is: what is accumulated grows
// by at most its inverse, which no f32 sum notices (FlashAttention-4's lazy
// rescaling, for any row function with a gauge).
static const double LAZY = 1.0 / COST_LAZY;

// v depends on no parameter of the correct region but gauge i's.
static bool of_gauge(const KeyLoop *l, Value v, uint32_t i) {
  const Op *op = ir_def(l->t->from, v);
  if (!op) {
    for (uint32_t j = 0; j < 2 * l->n; j++)
      if (l->correct->params.at[j] == v) return j % l->n == i;
    return true;
  }
  if (op->parent != l->correct) return true;
  for (uint32_t j = 0; j < op->nargs; j++)
    if (!of_gauge(l, op->args[j], i)) return false;
  return !op->nregions;
}

// On a GPU multiplying the accumulators costs more than testing whether to, and
// so beside the tile registers of a CPU. Sums grow, the first key stays wrong.
static bool is_lazy(const KeyLoop *l, uint32_t i) {
  if (!(l->t->gpu || l->t->plan.mats) || !listed(l->op, AT_GAUGE, i))
    return false;
  if ((RKind)l->kinds->list[i] != RK_MAX) return false;
  bool some = false;
  for (uint32_t j = i + 1; j < l->n; j++) {
    Value f = tile_yield(l->correct)->args[j];
    if (tile_is_const(l->t->from, f, 1)) continue;
    if ((RKind)l->kinds->list[j] != RK_SUM || !of_gauge(l, f, i)) return false;
    some = true;
  }
  return some;
}

// Factor j is the first that is this value, and not constant.
static bool first_factor(const KeyLoop *l, uint32_t i, uint32_t j) {
  const Value *f = tile_yield(l->correct)->args;
  for (uint32_t k = i + 1; k < j; k++)
    if (f[k] == f[j]) return false;
  return !tile_is_const(l->t->from, f[j], 1);
}

// Gauge i keeps its old value, and the factors are 1, for rows where every
// factor is large enough. The factors are made of the value that is taken, not
// of the one that was tried: what decides then is a comparison only, with no
// function in front of all the others of a tile.
static Value hold_gauge(KeyLoop *l, Builder *b, uint32_t i, ValueMap *cm,
                        Value old, Value now) {
  const Op *yield = tile_yield(l->correct);
  Value hold = 0, next = l->correct->params.at[l->n + i];
  ValueMap tried = tile_map_copy(l->t, cm);
  vmap_put(&tried, next, now);
  for (uint32_t j = i + 1; j < l->n; j++) {
    if (!first_factor(l, i, j)) continue;
    Value f = tile_need(l, b, yield->args[j], &tried);
    Type s = type_scalar(ir_type(b->fn, f)->dtype);
    Value big = ir_2(b, OP_LE, tile_const(b, s, LAZY), f);
    hold = hold ? ir_2(b, OP_AND, hold, big) : big;
  }
  if (!tile_keeps_empty(l->t, l->op, i)) {
    Type s = type_scalar(ir_type(b->fn, old)->dtype);
    Value some = ir_2(b, OP_LT, tile_const(b, s, -INFINITY), old);
    hold = ir_2(b, OP_AND, hold, some);
  }
  Value taken = ir_3(b, OP_SELECT, hold, old, now);
  vmap_put(cm, next, taken);
  for (uint32_t j = i + 1; j < l->n; j++) {
    if (!first_factor(l, i, j)) continue;
    Value f = tile_need(l, b, yield->args[j], cm);
    vmap_put(cm, yield->args[j], tile_keep_if(b, ir_1(b, OP_NOT, hold), f, 1));
  }
  return taken;
}

// A tile of keys: new accumulators from old ones.
typedef struct KeyTile {
  const ValueMap *pre;  // values in front of the loop
  Value k0;             // its first key
  const Value *old;
  Value *out;
} KeyTile;

// ok: whether all products may be taken, 0: they may.
static void tile_of_keys(KeyLoop *l, Builder *b, const KeyTile *x, bool masked,
                         Value ok) {
  const Value *old = x->old;
  Value *out = x->out;
  ValueMap m = tile_map_copy(l->t, x->pre), cm = tile_map_copy(l->t, x->pre);
  const KeyLoop *around = l->t->around;
  l->t->around = l;
  l->old = old;
  tile_open(l, b, x->k0, masked, &m);
  l->keep = ok ? ir_2(b, OP_OR, ok, l->mask) : 0;
  for (uint32_t i = 0; i < l->n; i++) {
    vmap_put(&cm, l->correct->params.at[i], old[i]);
    bool scan = listed(l->op, AT_SCANS, i);
    if (scan) vmap_put(&m, l->local->params.at[i], old[i]);
    out[i] = update(l, b, i, &m, &cm, old[i]);
    if (is_lazy(l, i)) out[i] = hold_gauge(l, b, i, &cm, old[i], out[i]);
    if (!scan) vmap_put(&m, l->local->params.at[i], out[i]);
    vmap_put(&cm, l->correct->params.at[l->n + i], out[i]);
  }
  tile_adds(l, b, x->k0, &m);
  l->t->around = around;
  l->t->coord[l->axis] = 0;
}

// The operand of a dot that all lanes share, if a lane may see a key of it
// that another does not, and if it can be looked at before the pass; else 0.
static bool before_pass(const KeyLoop *l, Value v) {
  const Op *op = ir_def(l->t->from, v);
  if (!op) {
    for (uint32_t i = 0; i < l->local->params.n; i++)
      if (l->local->params.at[i] == v) return false;
    return true;
  }
  if (op->nregions) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!before_pass(l, op->args[i])) return false;
  return true;
}

static Value shared_operand(const KeyLoop *l, uint32_t acc) {
  const Op *dot = inner_of(l, acc, OP_DOT);
  uint32_t lane = (uint32_t)l->t->plan.lane;
  for (uint32_t i = 0; dot && i < 2; i++) {
    Value v = dot->args[i];
    const Type *t = ir_type(l->t->from, v);
    if (!type_has_axis(t, lane) && type_has_axis(t, l->axis) &&
        dtype_is_float(t->dtype) && before_pass(l, v))
      return v;
  }
  return 0;
}

// A lane's weight of a key that only other lanes see is 0, but 0 * NaN is not.
// So tiles in which the mask differs between lanes are looked at first: whether
// all that the products share is finite. It nearly always is; if not, a dot
// takes the products that the mask lets through only.
static Value visible(KeyLoop *l, Builder *b, Value k0, const ValueMap *pre) {
  ValueMap m = tile_map_copy(l->t, pre);
  Value full = l->full, ok = 0;
  l->full = 0;
  tile_open(l, b, k0, true, &m);
  for (uint32_t i = 0; i < l->n; i++) {
    Value from = shared_operand(l, i), v = from ? tile_need(l, b, from, &m) : 0;
    if (!v) continue;
    v = tile_is_finite(b, v, l->axis);
    ok = ok ? ir_2(b, OP_AND, ok, v) : v;
  }
  l->t->coord[l->axis] = 0;
  l->full = full;
  return ok;
}

static Value visible_or_full(KeyLoop *l, Builder *b, Value k0,
                             const ValueMap *pre) {
  if (!l->full) return visible(l, b, k0, pre);
  Type t = type_scalar(DT_BOOL);
  Op *br = ir_op(b, OP_IF, &l->full, 1, NULL, 0, &t, 1, 2);
  Builder in = *b;
  in.before = NULL;
  in.region = br->regions[0];
  Value yes = ir_const_i(&in, DT_BOOL, 1);
  ir_yield(&in, &yes, 1);
  in.region = br->regions[1];
  yes = visible(l, &in, k0, pre);
  ir_yield(&in, &yes, 1);
  return br->res[0];
}

static void body(KeyLoop *l, Builder *b, const KeyTile *x, bool masked) {
  bool look = masked && l->careful;
  Value ok = look ? visible_or_full(l, b, x->k0, x->pre) : 0;
  tile_of_keys(l, b, x, masked, ok);
}

// ---------------------------------------------------------------- loops
uint32_t tile_map_box(KeyLoop *l, Builder *b, const Region *r, ValueMap *m) {
  Tiler *t = l->t;
  const IrAttr *box = ir_attr(l->op, AT_BOX);
  uint32_t at = 0;
  for (uint32_t i = 0; box && i < box->n; i++) {
    uint32_t a = (uint32_t)box->list[i];
    Value lo = t->origin[a], hi = lo;
    if ((int)a == t->plan.lane) {
      int64_t rows = l->row ? t->plan.own_rows : t->plan.tile_q;
      Value one = ir_const_i(b, DT_I64, 1);
      Value end = ir_2(b, OP_SUB, ir_dim(b, t->from->axes.at[a].extent), one);
      if (l->row) lo = ir_2(b, OP_MIN, ir_2(b, OP_ADD, lo, l->row), end);
      Value last = ir_2(b, OP_ADD, lo, ir_const_i(b, DT_I64, rows - 1));
      hi = ir_2(b, OP_MIN, last, end);
    }
    vmap_put(m, r->params.at[at++], lo);
    vmap_put(m, r->params.at[at++], hi);
  }
  return at;
}

// What the tile test of `mask` says: 0 no key is seen, 2 all are, else 1.
static Value classified(KeyLoop *l, Builder *b, Value k0, const ValueMap *pre) {
  Tiler *t = l->t;
  ValueMap m = tile_map_copy(t, pre);
  uint32_t at = tile_map_box(l, b, l->classify, &m);
  Value end = ir_2(b, OP_ADD, k0, ir_const_i(b, DT_I64, l->step));
  Value extent = ir_dim(b, t->from->axes.at[l->axis].extent);
  Value last = ir_2(b, OP_MIN, end, extent);
  last = ir_2(b, OP_SUB, last, ir_const_i(b, DT_I64, 1));
  vmap_put(&m, l->classify->params.at[at], k0);
  vmap_put(&m, l->classify->params.at[at + 1], last);
  l->masked = false;
  Value cls = tile_need(l, b, tile_yield(l->classify)->args[0], &m);
  Value all = ir_2(b, OP_EQ, cls, ir_const_i(b, DT_I64, 2));
  all = ir_2(b, OP_AND, all, ir_2(b, OP_LE, end, extent));
  l->full = l->full ? ir_2(b, OP_OR, l->full, all) : all;
  return ir_2(b, OP_OR, l->full, ir_2(b, OP_NE, cls, ir_const_i(b, DT_I64, 0)));
}

// Whether the predicate holds anywhere in this tile.
static Value occupied(KeyLoop *l, Builder *b, Value k0, const ValueMap *pre) {
  ValueMap m = tile_map_copy(l->t, pre);
  Type t = type_scalar(DT_BOOL);
  Value full = l->full;
  Op *br = full ? ir_op(b, OP_IF, &full, 1, NULL, 0, &t, 1, 2) : NULL;
  Builder in = *b;
  if (br) in.region = br->regions[1], in.before = NULL;
  l->full = 0;
  l->judged = true;
  tile_open(l, &in, k0, true, &m);
  l->judged = false;
  Value v = l->mask;
  if (ir_type(b->fn, v)->n)
    v = ir_op(&in, OP_ANY_OF, &v, 1, NULL, 0, &t, 1, 0)->res[0];
  l->t->coord[l->axis] = 0;
  l->full = full;
  if (!br) return v;
  ir_yield(&in, &v, 1);
  in.region = br->regions[0];
  Value yes = ir_const_i(&in, DT_BOOL, 1);
  ir_yield(&in, &yes, 1);
  return br->res[0];
}

typedef enum TestStage { TEST_BOUNDS, TEST_PREDICATE, TEST_DONE } TestStage;

// A masked body behind the tests that may skip the tile.
static void tested_body(KeyLoop *l, Builder *b, const KeyTile *x,
                        TestStage stage) {
  if (stage == TEST_BOUNDS && !l->classify) stage = TEST_PREDICATE;
  if (stage == TEST_PREDICATE && !l->sparse) stage = TEST_DONE;
  if (stage == TEST_DONE) {
    body(l, b, x, true);
    return;
  }
  Value some = stage == TEST_BOUNDS ? classified(l, b, x->k0, x->pre)
                                    : occupied(l, b, x->k0, x->pre);
  Op *br = ir_op(b, OP_IF, &some, 1, NULL, 0, l->types, l->n, 2);
  Builder in = {.fn = b->fn, .region = br->regions[0], .span = b->span};
  tested_body(l, &in, x, stage + 1);
  ir_yield(&in, x->out, l->n);
  Builder skip = {.fn = b->fn, .region = br->regions[1], .span = b->span};
  ir_yield(&skip, x->old, l->n);
  for (uint32_t i = 0; i < l->n; i++) x->out[i] = br->res[i];
}

// On a GPU the first step is the one that is set up at length, so it may as
// well be the one with masks: the end of the keys, the diagonal.
static bool goes_back(const KeyLoop *l) {
  return l->order == ORDER_REVERSE || (l->t->gpu && l->order == ORDER_ANY);
}

typedef struct Count {
  Value lo, hi;
  int64_t step;
  const char *hint;
} Count;

// A loop that carries the accumulators; its arguments go to old.
static Op *carrying(KeyLoop *l, Builder *b, Count c, const Value *acc,
                    Value *old) {
  Value *args = NEWN(&l->t->cx->session, Value, l->n + 3);
  args[0] = c.lo;
  args[1] = c.hi;
  args[2] = ir_const_i(b, DT_I64, c.step);
  for (uint32_t i = 0; i < l->n; i++) args[i + 3] = acc[i];
  IrAttr rev = {.id = AT_REVERSE, .i = 1};
  Op *f =
      ir_op(b, OP_FOR, args, l->n + 3, &rev, goes_back(l), l->types, l->n, 1);
  ir_region_param(f->regions[0], type_scalar(DT_I64), c.hint);
  for (uint32_t i = 0; i < l->n; i++)
    old[i] = ir_region_param(f->regions[0], l->types[i],
                             ir_info(l->t->from, l->op->res[i])->hint);
  return f;
}

// Rows that see full tiles see the first key of these.
static Value seeing_rows(KeyLoop *l, Builder *b, Value first,
                         const ValueMap *pre) {
  ValueMap m = tile_map_copy(l->t, pre);
  l->t->coord[l->axis] = first;
  l->masked = false;
  Value v = tile_need(l, b, tile_yield(l->domain)->args[0], &m);
  l->t->coord[l->axis] = 0;
  return v;
}

// The key tiles of one interval.
static void loop(KeyLoop *l, Builder *b, const Range *r, const ValueMap *pre,
                 Value *acc) {
  Value *old = NEWN(pre->arena, Value, l->n + 1);
  Value *out = NEWN(pre->arena, Value, l->n + 1);
  bool as_is = r->no_full || r->covers;
  Value hi = as_is ? r->hi : ir_2(b, OP_MAX, r->hi, r->f1);
  l->rows = l->by_rows ? seeing_rows(l, b, r->f0, pre) : 0;
  Count c = {r->base, hi, l->step, "k0"};
  Op *f = carrying(l, b, c, acc, old);
  Region *in_loop = f->regions[0];
  Value k0 = in_loop->params.at[0];
  KeyTile tile = {pre, k0, old, out};
  Builder in = {.fn = b->fn, .region = in_loop, .span = b->span};
  int64_t divisor =
      dim_divisor(&b->fn->mod->dims, l->t->from->axes.at[l->axis].extent);
  l->full = 0;
  if (l->whole && divisor % l->step == 0) {
    body(l, &in, &tile, false);
  } else {
    if (!r->no_full) {
      Value ends = ir_2(&in, OP_LT, k0, r->f1);
      l->full = ir_2(&in, OP_AND, ir_2(&in, OP_LE, r->f0, k0), ends);
    }
    tested_body(l, &in, &tile, TEST_BOUNDS);
  }
  ir_yield(&in, out, l->n);
  for (uint32_t i = 0; i < l->n; i++) acc[i] = f->res[i];
}

static Value nth(Builder *b, Value s, uint32_t i, Value x, Value other) {
  return ir_3(b, OP_SELECT, ir_2(b, OP_EQ, s, ir_const_i(b, DT_I64, i)), x,
              other);
}

// The s-th of n intervals.
static Range range_at(Builder *b, const Range *r, uint32_t n, Value s) {
  Range x = r[n - 1];
  for (uint32_t i = n - 1; i-- > 0;) {
    x.base = nth(b, s, i, r[i].base, x.base);
    x.hi = nth(b, s, i, r[i].hi, x.hi);
    x.f0 = nth(b, s, i, r[i].f0, x.f0);
    x.f1 = nth(b, s, i, r[i].f1, x.f1);
    x.no_full = x.no_full && r[i].no_full;
  }
  return x;
}

// The one interval, of which each group takes what its rows need.
static void own_loop(KeyLoop *l, Builder *b, const Range *all,
                     const Range *mine, const ValueMap *pre, Value *acc) {
  Range r = *all;
  Value skipped[2];
  bool back = goes_back(l);
  tile_own_bounds(b, &r, mine, l->step, skipped);
  tile_own_skip(b, skipped[back]);
  loop(l, b, &r, pre, acc);
  tile_own_skip(b, skipped[!back]);
}

static void all_loops(KeyLoop *l, Builder *b, const Range *r, uint32_t n,
                      const ValueMap *pre, Value *acc) {
  if (n == 1) {
    loop(l, b, r, pre, acc);
    return;
  }
  Value *in_acc = NEWN(pre->arena, Value, l->n + 1);
  Count c = {.step = 1, .hint = "part"};
  c.hi = ir_const_i(b, DT_I64, n);
  c.lo = ir_const_i(b, DT_I64, 0);
  Op *f = carrying(l, b, c, acc, in_acc);
  Builder in = {.fn = b->fn, .region = f->regions[0], .span = b->span};
  Range x = range_at(&in, r, n, f->regions[0]->params.at[0]);
  loop(l, &in, &x, pre, in_acc);
  ir_yield(&in, in_acc, l->n);
  for (uint32_t i = 0; i < l->n; i++) acc[i] = f->res[i];
}

static Value tile_floor(KeyLoop *l, Builder *b, Value v) {
  Value bk = ir_const_i(b, DT_I64, l->step);
  return ir_2(b, OP_MUL, ir_2(b, OP_FLOORDIV, v, bk), bk);
}

static Value tile_ceil(KeyLoop *l, Builder *b, Value v) {
  Value up = ir_const_i(b, DT_I64, l->step - 1);
  return tile_floor(l, b, ir_2(b, OP_ADD, v, up));
}

// An argument that a window is made of may be any integer: limits are compared
// in 32 bits if they are known to lie near the keys.
static Value at_most(Builder *b, Value v, Value extent) {
  const Op *op = ir_def(b->fn, v);
  return op && op->code == OP_CONST ? v : ir_2(b, OP_MIN, v, extent);
}

// Tile-aligned loop limits of one interval; prev is where the tiles of the
// interval before it end (a shared tile is walked once).
static Range align(KeyLoop *l, Builder *b, const Value any_full[4],
                   Value prev) {
  Value zero = ir_const_i(b, DT_I64, 0);
  Value extent = ir_dim(b, l->t->from->axes.at[l->axis].extent);
  Range r = {0};
  Value lo = ir_2(b, OP_MAX, at_most(b, any_full[0], extent), zero);
  r.hi = ir_2(b, OP_MIN, any_full[1], extent);
  r.base = ir_2(b, OP_MAX, tile_floor(l, b, lo), prev ? prev : zero);
  Value top = ir_2(b, OP_MAX, tile_ceil(l, b, r.hi), r.base);
  Value from = at_most(b, any_full[2], extent);
  Value f0 = ir_2(b, OP_MAX, tile_ceil(l, b, from), r.base);
  r.f0 = ir_2(b, OP_MIN, f0, top);
  Value fhi = ir_2(b, OP_MIN, any_full[3], extent);
  r.f1 = ir_2(b, OP_MAX, tile_floor(l, b, fhi), r.f0);
  return r;
}

uint32_t tile_ranges(KeyLoop *l, Builder *b, const ValueMap *pre,
                     Range out[MAX_RANGES]) {
  Value zero = ir_const_i(b, DT_I64, 0);
  Value extent = ir_dim(b, l->t->from->axes.at[l->axis].extent);
  if (!l->bounds) {
    Range r = {.base = zero, .hi = extent};
    r.f0 = zero;
    r.f1 = l->whole ? tile_floor(l, b, extent) : zero;
    r.no_full = !l->whole;
    out[0] = r;
    return 1;
  }
  ValueMap m = tile_map_copy(l->t, pre);
  tile_map_box(l, b, l->bounds, &m);
  const Op *y = tile_yield(l->bounds);
  uint32_t n = y->nargs / 4;
  for (uint32_t i = 0; i < y->nargs; i++)
    if (ir_type(b->fn, tile_need(l, b, y->args[i], &m))->n) {
      l->bounds = NULL;  // bounds that differ between lanes do not help
      return tile_ranges(l, b, pre, out);
    }
  Value prev = 0;
  for (uint32_t i = 0; i < n && i < MAX_RANGES; i++) {
    Value v[4];
    const Value *from = &y->args[4 * i];
    for (int j = 0; j < 4; j++) v[j] = tile_need(l, b, from[j], &m);
    out[i] = align(l, b, v, prev);
    out[i].no_full = from[2] == from[3];
    prev = ir_2(b, OP_MAX, out[i].f1, tile_ceil(l, b, out[i].hi));
  }
  return n;
}

KeyLoop tile_key_loop(Tiler *t, const Op *op) {
  KeyLoop l = {.t = t, .op = op, .outer = t->around};
  l.axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  bool tiled = t->from->axes.at[l.axis].role == AX_KEY;
  l.step = tiled ? t->plan.tile_k : 1;
  l.n = op->nres;
  l.kinds = ir_attr(op, AT_KINDS);
  l.fill = (FillKind)ir_attr_i(op, AT_FILL, FILL_SELECT);
  l.order = (PassOrder)ir_attr_i(op, AT_ORDER, ORDER_ANY);
  l.sparse = ir_attr_i(op, AT_SPARSE, 0);
  l.domain = op->regions[0];
  l.local = op->regions[1];
  l.correct = op->regions[2];
  l.bounds = op->nregions > 3 ? op->regions[3] : NULL;
  l.classify = op->nregions > 4 ? op->regions[4] : NULL;
  if (l.bounds && !l.bounds->last) l.bounds = NULL;
  if (l.classify && !l.classify->last) l.classify = NULL;
  for (const Op *o = l.local->first; o; o = o->next)
    l.adds |= o->code == OP_STORE && t->plan.lane >= 0 &&
              (t->plan.serial >> t->plan.lane & 1);
  Value pred = tile_yield(l.domain)->args[0];
  l.whole = tile_is_const(t->from, pred, 1);
  if (tiled && !l.whole && t->careful && t->plan.lane >= 0 &&
      type_has_axis(ir_type(t->from, pred), (uint32_t)t->plan.lane))
    for (uint32_t i = 0; i < l.n; i++)
      l.careful = l.careful || shared_operand(&l, i);
  return l;
}

// The share of this task's part of the keys.
static void cut(KeyLoop *l, Builder *b, Range *r, uint32_t n) {
  Tiler *t = l->t;
  Value lo = r[0].base, hi = r[0].hi;
  for (uint32_t i = 1; i < n; i++) hi = ir_2(b, OP_MAX, hi, r[i].hi);
  if (t->plan.serial) {  // tiles of a task have the same keys
    lo = ir_const_i(b, DT_I64, 0);
    hi = ir_dim(b, t->from->axes.at[l->axis].extent);
  }
  tile_split_keys(t, b, l->step, &lo, &hi);
  for (uint32_t i = 0; i < n; i++) {
    r[i].base = ir_2(b, OP_MAX, r[i].base, lo);
    r[i].hi = ir_2(b, OP_MIN, r[i].hi, hi);
    r[i].f1 = ir_2(b, OP_MIN, r[i].f1, hi);
  }
}

// The interval of the executing group's rows alone.
static Range own_interval(KeyLoop *l, Builder *b, const ValueMap *pre) {
  Range r[MAX_RANGES];
  Value rows[MAX_OWN];
  uint32_t n = tile_own_groups(&l->t->plan);
  for (uint32_t g = 0; g < n; g++)
    rows[g] = ir_const_i(b, DT_I64, g * l->t->plan.own_rows);
  l->row = ir_op(b, OP_GROUP_SELECT, rows, n, NULL, 0, NULL, 1, 0)->res[0];
  tile_ranges(l, b, pre, r);
  l->row = 0;
  return r[0];
}

bool tile_pass(Tiler *t, Builder *b, const Op *op, ValueMap *m) {
  KeyLoop l = tile_key_loop(t, op);
  l.types = NEWN(m->arena, Type, l.n + 1);
  Value *acc = NEWN(m->arena, Value, l.n + 1);
  for (uint32_t i = 0; i < l.n; i++) {
    l.types[i] = tile_type(t, ir_type(t->from, op->res[i]));
    acc[i] = begin(t, b, &l, i);
  }
  bool part = t->share != SHARE_ALL && op == t->plan.split;
  bool split = part || op == t->plan.joins;
  if (split && t->share == SHARE_COMBINE) {
    tile_split_join(t, b, op, m, acc);
    for (uint32_t i = 0; i < l.n; i++) vmap_put(m, op->res[i], acc[i]);
    return true;
  }
  hoist(&l, b, l.domain, m);
  hoist(&l, b, l.local, m);
  hoist(&l, b, l.correct, m);
  Range r[MAX_RANGES], mine;
  bool own = t->plan.own_rows;
  uint32_t n = tile_bounds_read(&l, b, r, &mine);
  if (!n) {
    n = tile_ranges(&l, b, m, r);
    own = own && n == 1 && l.bounds;
    if (own) mine = own_interval(&l, b, m);
  }
  if (split) cut(&l, b, r, n);
  l.finite = tile_adds_finite(&l, b, m);
  if (own) own_loop(&l, b, r, &mine, m, acc);
  else all_loops(&l, b, r, n, m, acc);
  if (split || op == t->plan.deals) tile_split_store(t, b, op, m, acc);
  for (uint32_t i = 0; i < l.n; i++) vmap_put(m, op->res[i], acc[i]);
  return true;
}
