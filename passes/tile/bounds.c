// What a mask's tables say of whole tiles, found once, in a phase of its own.
//
//   before  kreduce() {axis = k, box = [q], sparse = true} (.., {bounds}, {classify})
//   after   func @p.bounds(.., %bounds: tensor<i32[Q', 4]> shared) grid(tile:1) {
//             for c of the bounds, 128 tiles of keys at a time {
//               %lo = spans of the tables over these tiles, classify
//               first and last tile with a key, the last run of full ones
//             }
//             store(%bounds, ..)
//           }
//           func @p(..) grid(.., q:128) {
//             %lo = load(%bounds, %q // 128, 0) ..
//             for(%lo, %hi, 128) { mask unless %f0 <= %k0 < %f1 }
//           }
//
// On a GPU a test in the loop over keys would stop its pipeline, and be made
// anew by every head. A mask that no interval arithmetic understands is
// evaluated tile by tile here; keys that have no tile (outer.c), one by one.
// Tiles without a key between the first and the last one are computed, masked.
// Four numbers an interval and tile of queries. Rows that have other entries in
// a table than the first one may be none of those that see a full tile: in all
// of the run they see nothing (a border of documents). The loop asks which do,
// of the run's first key. Tests: test/passes/tile/bounds-*.
#include "ir/target.h"
#include "passes/support/cost.h"
#include "passes/support/lane.h"
#include "passes/tile/loop.h"

#include <assert.h>

enum { NUMBERS = 4 };  // of an interval: base, hi, f0, f1

// ---------------------------------------------------------------- plan
// v can be made before f runs: of inputs, coordinates of the tasks and the key.
// Of what phases before make where nothing is multiplied: products are masked
// by that.
static bool is_closed(const Func *f, Value v, uint32_t key, Map *seen) {
  const Op *op = ir_def(f, v);
  const Type *t = ir_type(f, v);
  uint64_t known;
  if (map_get(seen, v, &known)) return true;
  map_put(seen, v, 1);
  for (uint32_t i = 0; t->kind == TK_ELEM && i < t->n; i++)
    if (f->axes.at[t->axis[i]].role != AX_PAR && t->axis[i] != key)
      return false;
  if (!op) {
    for (uint32_t i = 0; i < f->params.n; i++)
      if (f->params.at[i].v == v)
        return f->params.at[i].role == PR_IN ||
               f->params.at[i].role == PR_SCALAR ||
               (f->params.at[i].role == PR_SHARED && !lane_multiplies(f));
    return false;
  }
  if (op->nregions) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!is_closed(f, op->args[i], key, seen)) return false;
  return true;
}

bool tile_bounds_wanted(Ctx *cx, const Func *f, const Op *pass) {
  const IrAttr *box = ir_attr(pass, AT_BOX);
  if (!ir_attr_i(pass, AT_SPARSE, 0) || pass->nregions < 4 || !box ||
      box->n + 1 >= MAX_AXES || !pass->regions[3]->last)
    return false;
  Map seen = {.arena = &cx->scratch};
  return is_closed(f, tile_yield(pass->regions[0])->args[0],
                   (uint32_t)ir_attr_i(pass, AT_AXIS, 0), &seen);
}

typedef struct Found {
  Ctx *cx;
  const Func *f;
  TilePlan *p;
} Found;

static void look(void *data, Op *op) {
  Found *d = data;
  if (op->code == OP_KREDUCE && d->p->ntested < MAX_TESTED &&
      tile_bounds_wanted(d->cx, d->f, op))
    d->p->tested[d->p->ntested++] = op;
}

void tile_bounds_plan(Ctx *cx, const Func *f, TilePlan *p) {
  Found d = {cx, f, p};
  ir_walk(f->body, look, &d);
  if (p->ntested)
    ctx_remark(cx, "%s: a phase before finds the bounds of the keys", f->name);
}

// ---------------------------------------------------------------- workspace
static uint32_t intervals(const Op *pass) {
  uint32_t n = tile_yield(pass->regions[3])->nargs / NUMBERS;
  return n < 1 ? 1 : n > MAX_RANGES ? MAX_RANGES : n;
}

static Dim tiles_of(Tiler *t, uint32_t axis) {
  DimTab *d = &t->to->mod->dims;
  Dim e = t->from->axes.at[axis].extent;
  return (int)axis == t->plan.lane
             ? dim_ceildiv(d, e, tile_bounds_rows(&t->plan))
             : e;
}

void tile_bounds_params(Tiler *t) {
  for (uint32_t i = 0; i < t->plan.ntested; i++) {
    const Op *pass = t->plan.tested[i];
    const IrAttr *box = ir_attr(pass, AT_BOX);
    Dim shape[MAX_AXES];
    for (uint32_t k = 0; k < box->n; k++)
      shape[k] = tiles_of(t, (uint32_t)box->list[k]);
    shape[box->n] = dim_const(&t->to->mod->dims, NUMBERS * intervals(pass));
    const char *name =
        i ? arena_printf(&t->cx->session, "bounds.%u", i) : "bounds";
    t->tested[i] = ir_param(t->to, intern(&t->cx->names, name), PR_SHARED,
                            type_tensor(DT_I32, box->n + 1, shape));
  }
}

// Where the numbers of rows with these coordinates are; returns how many
// indices come first.
static uint32_t place(const Tiler *t, Builder *b, const Op *pass,
                      const Value *origin, Value *at) {
  const IrAttr *box = ir_attr(pass, AT_BOX);
  for (uint32_t k = 0; k < box->n; k++) {
    uint32_t a = (uint32_t)box->list[k];
    at[k] = origin[a];
    Value rows = ir_const_i(b, DT_I64, tile_bounds_rows(&t->plan));
    if ((int)a == t->plan.lane) at[k] = ir_2(b, OP_FLOORDIV, at[k], rows);
  }
  return (uint32_t)box->n;
}

// The coordinates of a group's first row.
static void origin_of(Builder *b, const Op *pass, int64_t row, Value *origin) {
  const IrAttr *box = ir_attr(pass, AT_BOX);
  Type i64 = type_scalar(DT_I64);
  for (uint32_t k = 0; k < box->n; k++) {
    IrAttr at[] = {{.id = AT_AXIS, .i = box->list[k]}, attr_i(AT_ROW, row)};
    origin[box->list[k]] =
        ir_op(b, OP_ORIGIN, NULL, 0, at, 2, &i64, 1, 0)->res[0];
  }
}

static bool has_places(const Region *r) {
  for (const Op *op = r->first; op; op = op->next)
    if (op->code == OP_MOD) return true;
  return false;
}

// Where keys lie in pages loops say that they begin at a whole tile. What is
// none is the end of the keys: an interval that begins there has no tile.
static Value whole_tiles(const KeyLoop *l, Builder *b, Value base) {
  if (l->step == 1 || !has_places(l->op->regions[1])) return base;
  Value step = ir_int(b, l->step);
  Value up = ir_2(b, OP_ADD, base, ir_int(b, l->step - 1));
  return ir_2(b, OP_MUL, ir_2(b, OP_FLOORDIV, up, step), step);
}

// Tasks of packed rows may be tiles behind the last (passes/gpu/task.c).
static bool has_all_tiles(const Tiler *t) {
  const DimTab *d = &t->from->mod->dims;
  const DimExpr *e = &d->exprs.at[t->from->axes.at[t->plan.lane].extent];
  return e->op != DIM_SYM || d->syms.at[e->value].kind != DIM_RAGGED;
}

// Where interval k of a tile of queries begins, with its other numbers behind.
typedef struct Entry {
  Value tensor, *at;
  uint32_t last;  // index
  bool inside;    // for sure
} Entry;

static Range read_range(Builder *b, const Entry *e, uint32_t k) {
  Value v[NUMBERS];
  for (uint32_t j = 0; j < NUMBERS; j++) {
    e->at[e->last] = ir_int(b, NUMBERS * k + j);
    v[j] = ir_load(b, e->tensor, e->at, e->last + 1);
    if (e->inside)
      ir_set_attr(b->fn, ir_def(b->fn, v[j]), attr_i(AT_INBOUNDS, 1));
  }
  return (Range){.base = v[0], .hi = v[1], .f0 = v[2], .f1 = v[3]};
}

// Their range is known so: 32 bits do.
static void in_range(KeyLoop *l, Builder *b, Range *r) {
  Value *v[] = {&r->base, &r->hi, &r->f0, &r->f1};
  Value extent = ir_dim(b, l->t->from->axes.at[l->axis].extent);
  extent = ir_cast(b, DT_I32, extent);
  for (uint32_t j = 0; j < NUMBERS; j++) {
    *v[j] = ir_2(b, OP_MIN, *v[j], extent);
    *v[j] = ir_2(b, OP_MAX, *v[j], ir_const_i(b, DT_I32, 0));
    *v[j] = ir_cast(b, DT_I64, *v[j]);
  }
  r->base = whole_tiles(l, b, r->base);
}

static Value pick(Builder *b, Value c, Value x, Value y) {
  return ir_3(b, OP_SELECT, c, x, y);
}

// The interval of each group of the tile's rows; returns that of all of them.
static Range read_groups(KeyLoop *l, Builder *b, Value tensor, Range *mine) {
  Tiler *t = l->t;
  Range of[MAX_OWN], all = {0};
  Value end = ir_dim(b, t->to->axes.at[t->plan.lane].extent), first = 0;
  Value origin[64], at[MAX_AXES];
  uint32_t n = tile_own_groups(&t->plan), lane = 0;
  while (ir_attr(l->op, AT_BOX)->list[lane] != t->plan.lane) lane++;
  for (uint32_t g = 0; g < n; g++) {
    origin_of(b, l->op, g * t->plan.own_rows, origin);
    uint32_t last = place(t, b, l->op, origin, at);
    Value in = g ? ir_2(b, OP_LT, origin[t->plan.lane], end) : 0;
    if (g) at[lane] = pick(b, in, at[lane], first);
    else first = at[lane];
    Entry e = {tensor, at, last, has_all_tiles(t)};
    of[g] = read_range(b, &e, 0);
    if (g) of[g].hi = pick(b, in, of[g].hi, ir_const_i(b, DT_I32, 0));
    all.base = g ? ir_2(b, OP_MIN, all.base, of[g].base) : of[g].base;
    all.hi = g ? ir_2(b, OP_MAX, all.hi, of[g].hi) : of[g].hi;
  }
  all.f0 = all.f1 = all.base;  // who only copies tiles does not ask
  *mine = tile_own_range(b, of, n);
  in_range(l, b, mine);
  return all;
}

uint32_t tile_bounds_read(KeyLoop *l, Builder *b, Range *r, Range *mine) {
  Tiler *t = l->t;
  uint32_t i = 0;
  while (i < t->plan.ntested && t->plan.tested[i] != l->op) i++;
  if (i == t->plan.ntested) return 0;
  uint32_t n = intervals(l->op);
  Value at[MAX_AXES];
  if (t->plan.own_rows) r[0] = read_groups(l, b, t->tested[i], mine);
  uint32_t last = t->plan.own_rows ? 0 : place(t, b, l->op, t->origin, at);
  Entry e = {t->tested[i], at, last, has_all_tiles(t)};
  for (uint32_t k = 0; k < n && !t->plan.own_rows; k++)
    r[k] = read_range(b, &e, k);
  for (uint32_t k = 0; k < n; k++) in_range(l, b, &r[k]);
  l->by_rows = tile_bounds_by_rows(l);
  l->classify = NULL;
  l->sparse = false;
  return n;
}

// ---------------------------------------------------------------- values
typedef struct Scan {
  KeyLoop *l;
  uint32_t tile, entry;  // axes: tiles of keys, entries of a table
  Value step, extent;
  const Range *r;
  bool apart;  // the block's rows may be judged in two parts
  const ValueMap *in_front;
} Scan;

static Value iota(Scan *s, Builder *b, uint32_t axis, int64_t n) {
  Dim d = dim_const(&s->l->t->to->mod->dims, n);
  return ir_iota(b, axis, d);
}

static int64_t tiles(const Tiler *t) {
  return t->target->gpu.vendor == VENDOR_AMD ? COST_BOUNDS_KEYS
                                             : COST_BOUNDS_MORE_KEYS;
}

static Value over(Builder *b, RKind k, Value x) {
  Type t = *ir_type(b->fn, x);
  return t.n ? ir_reduce(b, k, x, t.axis, t.n) : x;
}

static bool is_span(const Op *op) {
  return op->code == OP_SPAN_MIN || op->code == OP_SPAN_MAX;
}

// The other extreme of the same entries, or NULL.
static const Op *other_extreme(const Op *op) {
  OpCode c = op->code == OP_SPAN_MIN ? OP_SPAN_MAX : OP_SPAN_MIN;
  for (const Op *o = op->parent->first; o; o = o->next) {
    bool same = o->code == c && o->nargs == op->nargs;
    for (uint32_t i = 0; same && i < op->nargs; i++)
      same = o->args[i] == op->args[i];
    if (same) return o;
  }
  return NULL;
}

// Entries of a table, read at a time: a fragment's columns, of which a lane has
// half on AMD.
static int64_t entries(const Tiler *t) {
  bool amd = t->target->gpu.vendor == VENDOR_AMD;
  int64_t most = amd ? COST_TABLE_AMD_ENTRIES : COST_TABLE_ENTRIES;
  int64_t n = HW_BLOCK;
  while (n < most && n < t->plan.tile_k) n *= 2;
  return n;
}

// The axis whose coordinates in the box are all that the span is of, or -1.
static int spanned(const KeyLoop *l, const Op *op) {
  const Region *r = l->classify;
  const IrAttr *box = ir_attr(l->op, AT_BOX);
  for (uint32_t i = 0; r && i + 1 < r->params.n; i += 2)
    if (op->args[1] == r->params.at[i] && op->args[2] == r->params.at[i + 1])
      return i + 2 < r->params.n ? (int)box->list[i / 2] : (int)l->axis;
  return -1;
}

// Coordinates of a box are not beyond the axis, a table along it has them all.
static bool is_inside(const KeyLoop *l, const Op *op) {
  int axis = spanned(l, op);
  const Type *t = ir_type(l->t->from, op->args[0]);
  return axis >= 0 && t->size[t->n - 1] == l->t->from->axes.at[axis].extent;
}

// Entries of the longest span; a tile of keys is known to have no more than
// a step.
static Value longest_of(Scan *s, Builder *b, const Op *op, Value lo, Value hi) {
  if (spanned(s->l, op) == (int)s->l->axis) return s->step;
  Value n = over(b, RK_MAX, ir_2(b, OP_SUB, hi, lo));
  return ir_2(b, OP_ADD, n, ir_int(b, 1));
}

// The extremes that are looked for among entries lo .. hi of a table.
typedef struct Look {
  const Op *of[2];
  RKind kind[2];
  uint32_t n;
  DType dtype;
  Value lo, hi;
} Look;

static Look look_for(Scan *s, const Op *op, const ValueMap *m) {
  Look x = {.of = {op, other_extreme(op)}};
  x.n = x.of[1] ? 2 : 1;
  bool wide = dtype_size(ir_type(s->l->t->from, op->args[0])->dtype) > 4;
  x.dtype = wide ? DT_I64 : DT_I32;
  x.lo = vmap_get(m, op->args[1]), x.hi = vmap_get(m, op->args[2]);
  for (uint32_t k = 0; k < x.n; k++)
    x.kind[k] = x.of[k]->code == OP_SPAN_MIN ? RK_MIN : RK_MAX;
  return x;
}

// op's table at these entries, in the type of its extremes.
static Value entries_at(Scan *s, Builder *b, const Op *op, const ValueMap *m,
                        Value at) {
  Value idx[MAX_AXES];
  uint32_t n = 0;
  for (uint32_t k = 3; k < op->nargs; k++) idx[n++] = vmap_get(m, op->args[k]);
  idx[n++] = at;
  Value v = ir_load(b, vmap_get(m, op->args[0]), idx, n);
  if (n == 1 && is_inside(s->l, op))
    ir_set_attr(b->fn, ir_def(b->fn, v), attr_i(AT_INBOUNDS, 1));
  bool wide = dtype_size(ir_type(s->l->t->from, op->args[0])->dtype) > 4;
  return ir_cast(b, wide ? DT_I64 : DT_I32, v);
}

// Extremes of entries i .. of the span; behind the last one it is read again,
// which changes none.
static void extremes(Scan *s, Builder *b, const Look *x, const ValueMap *m,
                     Value i, Value *y) {
  const Op *op = x->of[0];
  Value at = iota(s, b, s->entry, entries(s->l->t));
  if (i) at = ir_2(b, OP_ADD, i, at);
  at = ir_2(b, OP_MIN, ir_2(b, OP_ADD, x->lo, at), x->hi);
  Value v = entries_at(s, b, op, m, at);
  for (uint32_t k = 0; k < x->n; k++)
    y[k] = ir_reduce(b, x->kind[k], v, &s->entry, 1);
}

// Some entries at a time for all tiles together.
static void span_loop(Scan *s, Builder *b, const Look *x, const ValueMap *m,
                      Value longest, Value *y) {
  Type all = type_union(ir_type(b->fn, x->lo), ir_type(b->fn, x->hi), x->dtype);
  Type types[] = {all, all};
  Value args[] = {ir_int(b, 0), longest, ir_int(b, entries(s->l->t)), 0, 0};
  double none = (double)(x->dtype == DT_I64 ? INT64_MAX / 2 : INT32_MAX);
  for (uint32_t k = 0; k < x->n; k++)
    args[3 + k] = tile_const(b, all, x->kind[k] == RK_MAX ? -none : none);
  Op *loop = ir_op(b, OP_FOR, args, 3 + x->n, NULL, 0, types, x->n, 1);
  Builder in = {.fn = b->fn, .region = loop->regions[0], .span = b->span};
  Value i = ir_region_param(in.region, type_scalar(DT_I64), "i"), best[2], z[2];
  for (uint32_t k = 0; k < x->n; k++)
    best[k] = ir_region_param(in.region, all, "best");
  extremes(s, &in, x, m, i, z);
  for (uint32_t k = 0; k < x->n; k++)
    best[k] = ir_combine(&in, x->kind[k], best[k], z[k]);
  ir_yield(&in, best, x->n);
  for (uint32_t k = 0; k < x->n; k++) y[k] = loop->res[k];
}

// Entries of op's span are read at once.
static bool is_short(Scan *s, const Op *op) {
  int axis = spanned(s->l, op);
  const TilePlan *p = &s->l->t->plan;
  int64_t n = axis < 0                  ? INT64_MAX
              : axis == (int)s->l->axis ? s->l->step
              : axis == p->lane         ? tile_bounds_rows(p)
                                        : INT64_MAX;
  return n <= entries(s->l->t);
}

static void span(Scan *s, Builder *b, const Op *op, ValueMap *m) {
  Look x = look_for(s, op, m);
  Value y[2];
  if (is_short(s, op)) extremes(s, b, &x, m, 0, y);
  else span_loop(s, b, &x, m, longest_of(s, b, op, x.lo, x.hi), y);
  for (uint32_t k = 0; k < x.n; k++)
    vmap_put(m, x.of[k]->res[0], ir_cast(b, DT_I64, y[k]));
}

// v of the classify region or in front of it.
static Value want(Scan *s, Builder *b, Value v, ValueMap *m) {
  if (v < m->n && m->to[v]) return m->to[v];
  const Op *op = ir_def(s->l->t->from, v);
  assert(op && "a test uses a value that is not defined");
  for (uint32_t i = 0; i < op->nargs; i++)
    if (ir_type(s->l->t->from, op->args[i])->kind == TK_ELEM)
      want(s, b, op->args[i], m);
  if (is_span(op)) {
    span(s, b, op, m);
    return vmap_get(m, v);
  }
  bool ok = tile_op(s->l->t, b, op, m);
  assert(ok);
  (void)ok;
  return vmap_get(m, v);
}

// What the tiles of keys have in common is made in front of the loop; but
// tables of rows that are read at once are asked for there, and looked at
// behind the first tables of keys: both answers are waited for together.
static ValueMap common(Scan *s, Builder *b, const ValueMap *pre) {
  KeyLoop *l = s->l;
  const Region *r = l->classify;
  ValueMap m = tile_map_copy(l->t, pre);
  if (!r) return m;
  uint32_t n = tile_map_box(l, b, r, &m);
  bool *keys = NEWN(m.arena, bool, l->t->from->values.n);
  bool *later = NEWN(m.arena, bool, l->t->from->values.n);
  for (; n < r->params.n; n++) keys[r->params.at[n]] = true;
  for (const Op *op = r->first; op != r->last; op = op->next) {
    bool k = false;
    for (uint32_t i = 0; i < op->nargs; i++) k |= keys[op->args[i]];
    bool late = is_span(op) && is_short(s, op);
    for (uint32_t i = 0; i < op->nargs; i++) late |= later[op->args[i]];
    for (uint32_t i = 0; i < op->nres; i++) {
      keys[op->res[i]] = k;
      later[op->res[i]] = late;
    }
    if (!k && !late && op->nres == 1) want(s, b, op->res[0], &m);
  }
  return m;
}

// ---------------------------------------------------------------- runs
// What is known of the tiles so far: lo .. hi has all with a key, f0 .. f1 is
// the last run of full ones.
typedef struct Runs {
  Value v[NUMBERS];  // lo, hi, f0, f1
} Runs;

enum { LO, HI, F0, F1 };

// The test by intervals can tell that all keys are seen.
static bool tells_full(const KeyLoop *l) {
  if (!l->classify) return false;
  const Op *op = ir_def(l->t->from, tile_yield(l->classify)->args[0]);
  if (op && op->code == OP_SELECT) op = ir_def(l->t->from, op->args[1]);
  return op && op->code != OP_CONST;
}

// ---------------------------------------------------------------- rows apart
// Rows that have the first one's entries in all tables, and the rows behind the
// first that has not: [lo, mid) and [mid, hi], or the last row again.
typedef struct Halves {
  Value lo, mid, hi;
} Halves;

static bool is_of_rows(const Scan *s, const Op *op) {
  int lane = s->l->t->plan.lane;
  return is_span(op) && lane >= 0 && spanned(s->l, op) == lane;
}

// Tables of rows are all read at once, and there is one. Where groups have
// bounds of their own pass row_mask runs.
bool tile_bounds_by_rows(KeyLoop *l) {
  Scan s = {.l = l};
  bool any = false;
  if (!l->t->plan.own_rows) return false;
  const Region *r = l->classify;
  for (const Op *op = r ? r->first : NULL; op && op != r->last; op = op->next) {
    if (!is_of_rows(&s, op)) continue;
    if (!is_short(&s, op)) return false;
    any = true;
  }
  return any && tells_full(l);
}

static Value row_entries(Scan *s, Builder *b, const Op *op, const Halves *h,
                         const ValueMap *m, Value *at) {
  Value i = iota(s, b, s->entry, entries(s->l->t));
  *at = ir_2(b, OP_MIN, ir_2(b, OP_ADD, h->lo, i), h->hi);
  return entries_at(s, b, op, m, *at);
}

static void find_mid(Scan *s, Builder *b, const ValueMap *m, Halves *h) {
  const Region *r = s->l->classify;
  Value past = ir_2(b, OP_ADD, h->hi, ir_int(b, 1));
  h->mid = past;
  for (const Op *op = r->first; op != r->last; op = op->next) {
    if (!is_of_rows(s, op)) continue;
    Value at, x = row_entries(s, b, op, h, m, &at);
    Value differs = ir_2(b, OP_NE, x, entries_at(s, b, op, m, h->lo));
    Value mid = ir_reduce(b, RK_MIN, pick(b, differs, at, past), &s->entry, 1);
    h->mid = ir_2(b, OP_MIN, h->mid, mid);
  }
}

// What the test says of one half; m has the keys' tables.
static Value judge_half(Scan *s, Builder *b, const Halves *h, bool upper,
                        const ValueMap *keys, ValueMap *m) {
  KeyLoop *l = s->l;
  const Region *r = l->classify;
  const IrAttr *box = ir_attr(l->op, AT_BOX);
  Value from = upper ? ir_2(b, OP_MIN, h->mid, h->hi) : h->lo;
  Value to = upper ? h->hi : ir_2(b, OP_SUB, h->mid, ir_int(b, 1));
  for (uint32_t i = 0; i < box->n; i++) {
    if (box->list[i] != l->t->plan.lane) continue;
    vmap_put(m, r->params.at[2 * i], from);
    vmap_put(m, r->params.at[2 * i + 1], to);
  }
  for (uint32_t i = r->params.n - 2; i < r->params.n; i++)
    vmap_put(m, r->params.at[i], vmap_get(keys, r->params.at[i]));
  for (const Op *op = r->first; op != r->last; op = op->next) {
    if (is_span(op) && spanned(l, op) == (int)l->axis)
      vmap_put(m, op->res[0], vmap_get(keys, op->res[0]));
    if (!is_of_rows(s, op)) continue;
    Value at, x = entries_at(s, b, op, m, upper ? h->hi : h->lo);
    if (upper) {
      Value y = row_entries(s, b, op, h, m, &at);
      y = pick(b, ir_2(b, OP_LE, from, at), y, x);
      RKind k = op->code == OP_SPAN_MIN ? RK_MIN : RK_MAX;
      x = ir_reduce(b, k, y, &s->entry, 1);
    }
    vmap_put(m, op->res[0], ir_cast(b, DT_I64, x));
  }
  return want(s, b, tile_yield(r)->args[0], m);
}

typedef struct Judged {
  Value some, full, both;  // full: for the lower half, or for both
} Judged;

// Every row sees all keys of a `full` tile or, in the upper half, none does.
static Judged judge_halves(Scan *s, Builder *b, const ValueMap *keys) {
  ValueMap m[2] = {tile_map_copy(s->l->t, s->in_front),
                   tile_map_copy(s->l->t, s->in_front)};
  const Region *r = s->l->classify;
  uint32_t lane = 0;
  while (ir_attr(s->l->op, AT_BOX)->list[lane] != s->l->t->plan.lane) lane++;
  for (uint32_t i = 0; i < 2; i++) tile_map_box(s->l, b, r, &m[i]);
  Halves h = {.lo = vmap_get(&m[0], r->params.at[2 * lane]),
              .hi = vmap_get(&m[0], r->params.at[2 * lane + 1])};
  find_mid(s, b, &m[0], &h);
  Value lower = judge_half(s, b, &h, false, keys, &m[0]);
  Value upper = judge_half(s, b, &h, true, keys, &m[1]);
  Value zero = ir_int(b, 0), two = ir_int(b, 2);
  Value both = ir_2(b, OP_EQ, upper, two), none = ir_2(b, OP_EQ, upper, zero);
  Value some = ir_1(b, OP_NOT, none);
  some = ir_2(b, OP_OR, ir_2(b, OP_NE, lower, zero), some);
  Value full = ir_2(b, OP_OR, both, none);
  full = ir_2(b, OP_AND, ir_2(b, OP_EQ, lower, two), full);
  return (Judged){some, full, pick(b, both, ir_int(b, 1), zero)};
}

static Judged judge_block(Scan *s, Builder *b, ValueMap *m) {
  Value cls = want(s, b, tile_yield(s->l->classify)->args[0], m);
  return (Judged){ir_2(b, OP_NE, cls, ir_int(b, 0)),
                  ir_2(b, OP_EQ, cls, ir_int(b, 2)), ir_int(b, 1)};
}

// Judged together: tiles from %c on.
static void judge_many(Scan *s, Builder *b, Value c, const ValueMap *pre,
                       Runs *k) {
  KeyLoop *l = s->l;
  Value at = ir_2(b, OP_MUL, iota(s, b, s->tile, tiles(l->t)), s->step);
  at = ir_2(b, OP_ADD, c, at);
  Value end = ir_2(b, OP_ADD, at, s->step), one = ir_int(b, 1);
  Value in = ir_2(b, OP_LT, at, s->r->hi), zero = ir_int(b, 0);
  // Behind the bounds all read the first tile: lines of the cache are what
  // costs.
  Value from = pick(b, in, at, zero), to = ir_2(b, OP_ADD, from, s->step);
  to = ir_2(b, OP_SUB, ir_2(b, OP_MIN, to, s->extent), one);
  ValueMap m = tile_map_copy(l->t, pre);
  const Region *r = l->classify;
  vmap_put(&m, r->params.at[r->params.n - 2], from);
  vmap_put(&m, r->params.at[r->params.n - 1], to);
  for (const Op *op = r->first; op != r->last; op = op->next)
    if (is_span(op) && spanned(l, op) == (int)l->axis)
      want(s, b, op->res[0], &m);
  Judged j = s->apart ? judge_halves(s, b, &m) : judge_block(s, b, &m);
  Value some = ir_2(b, OP_AND, in, j.some), full = ir_2(b, OP_AND, in, j.full);
  full = ir_2(b, OP_AND, full, ir_2(b, OP_LE, end, s->extent));
  Value first = over(b, RK_MIN, pick(b, some, at, s->r->hi));
  Value past = over(b, RK_MAX, pick(b, some, end, s->r->base));
  k->v[LO] = ir_2(b, OP_MIN, k->v[LO], first);
  k->v[HI] = ir_2(b, OP_MAX, k->v[HI], past);
  // The run that ends with the last full tile begins behind a gap. Its end is
  // twice the coordinate and whether both halves see it, as in all of the run.
  Value two = ir_int(b, 2),
        code = ir_2(b, OP_ADD, ir_2(b, OP_MUL, end, two), j.both);
  Value f1 = over(b, RK_MAX, pick(b, full, code, zero));
  Value both = ir_2(b, OP_MOD, f1, two);
  Value same = ir_2(b, OP_AND, full, ir_2(b, OP_EQ, j.both, both));
  Value ends = ir_2(b, OP_LE, ir_2(b, OP_MUL, end, two), f1);
  Value hole = ir_2(b, OP_AND, ir_1(b, OP_NOT, same), ends);
  Value gap = over(b, RK_MAX, pick(b, hole, end, c));
  Value before = ir_2(b, OP_ADD, ir_2(b, OP_MUL, c, two), both);
  Value goes_on = ir_2(b, OP_EQ, k->v[F1], before);
  goes_on = ir_2(b, OP_AND, ir_2(b, OP_EQ, gap, c), goes_on);
  Value any = ir_2(b, OP_LT, zero, f1);
  Value f0 = pick(b, goes_on, k->v[F0], gap);
  k->v[F0] = pick(b, any, f0, k->v[F0]);
  k->v[F1] = pick(b, any, f1, k->v[F1]);
}

// The tile at %c, by the predicate itself.
static void judge_one(Scan *s, Builder *b, Value c, const ValueMap *pre,
                      Runs *k) {
  KeyLoop *l = s->l;
  ValueMap m = tile_map_copy(l->t, pre);
  Type bit = type_scalar(DT_BOOL);
  tile_open(l, b, c, true, &m);
  Value some = ir_op(b, OP_ANY_OF, &l->mask, 1, NULL, 0, &bit, 1, 0)->res[0];
  Value full = ir_op(b, OP_ALL_OF, &l->mask, 1, NULL, 0, &bit, 1, 0)->res[0];
  l->t->coord[l->axis] = 0;
  Value end = ir_2(b, OP_ADD, c, s->step);
  k->v[LO] = ir_2(b, OP_MIN, k->v[LO], pick(b, some, c, s->r->hi));
  k->v[HI] = ir_2(b, OP_MAX, k->v[HI], pick(b, some, end, s->r->base));
  Value f0 = pick(b, ir_2(b, OP_EQ, k->v[F1], c), k->v[F0], c);
  k->v[F0] = pick(b, full, f0, k->v[F0]);
  k->v[F1] = pick(b, full, end, k->v[F1]);
}

// An interval inside of those before it has no tile left, and ends below its
// base.
static Range not_below_base(Builder *b, Range r) {
  r.hi = ir_2(b, OP_MAX, r.hi, r.base);
  return r;
}

static Runs scan(Scan *s, Builder *b, const ValueMap *in_front) {
  bool many = tells_full(s->l);
  s->apart = many && tile_bounds_by_rows(s->l);
  s->in_front = in_front;
  ValueMap pre =
      s->apart ? tile_map_copy(s->l->t, in_front) : common(s, b, in_front);
  const Range *r = s->r;
  Value step = many ? ir_int(b, tiles(s->l->t) * s->l->step) : s->step;
  Value none = many ? ir_2(b, OP_MUL, r->base, ir_int(b, 2)) : r->base;
  Value args[3 + NUMBERS] = {r->base, r->hi,   step, r->hi,
                             r->base, r->base, none};
  Type types[NUMBERS];
  for (uint32_t i = 0; i < NUMBERS; i++) types[i] = type_scalar(DT_I64);
  Op *loop = ir_op(b, OP_FOR, args, 3 + NUMBERS, NULL, 0, types, NUMBERS, 1);
  Builder in = {.fn = b->fn, .region = loop->regions[0], .span = b->span};
  static const char *const names[] = {"lo", "hi", "f0", "f1"};
  Value c = ir_region_param(in.region, types[0], "c");
  Runs k;
  for (uint32_t i = 0; i < NUMBERS; i++)
    k.v[i] = ir_region_param(in.region, types[0], names[i]);
  (many ? judge_many : judge_one)(s, &in, c, &pre, &k);
  ir_yield(&in, k.v, NUMBERS);
  for (uint32_t i = 0; i < NUMBERS; i++) k.v[i] = loop->res[i];
  if (many) k.v[F1] = ir_2(b, OP_FLOORDIV, k.v[F1], ir_int(b, 2));
  // No key: lo is the end, hi the start. Groups that see none leave the least
  // and the most of those that do as they are.
  if (!s->l->t->plan.own_rows) k.v[LO] = ir_2(b, OP_MIN, k.v[LO], k.v[HI]);
  return k;
}

// ---------------------------------------------------------------- the phase
// Coordinates of the axes that the mask varies with.
static void open_tasks(Tiler *t, Builder *b, const Op *pass) {
  const IrAttr *box = ir_attr(pass, AT_BOX);
  for (uint32_t i = 0; i < box->n; i++) {
    uint32_t a = (uint32_t)box->list[i], grid = a;
    bool lane = (int)a == t->plan.lane;
    if (lane) grid = ir_axis(t->to, "tile", AX_PAR, tiles_of(t, a));
    vec_push(t->to->mod->arena, &t->to->grid,
             ((GridDim){.axis = grid, .tile = 1}));
    Value x = ir_origin(b, grid);
    if (lane) x = ir_2(b, OP_MUL, x, ir_int(b, t->plan.tile_q));
    t->origin[a] = t->coord[a] = x;
    if (!lane) continue;
    Dim n = dim_const(&t->to->mod->dims, t->plan.tile_q);
    t->coord[a] = ir_2(b, OP_ADD, x, ir_iota(b, a, n));
  }
}

void tile_bounds_body(Tiler *t, Builder *b, uint32_t which, ValueMap *m) {
  const Op *pass = t->plan.tested[which];
  DimTab *d = &t->to->mod->dims;
  t->plan.tile_q = tile_bounds_rows(&t->plan);
  open_tasks(t, b, pass);
  KeyLoop l = tile_key_loop(t, pass);
  l.judged = true;
  Range r[MAX_RANGES];
  uint32_t n = tile_ranges(&l, b, m, r), of = intervals(pass);
  Scan s = {.l = &l, .step = ir_int(b, l.step)};
  s.tile = ir_axis(t->to, "tiles", AX_VEC, dim_const(d, tiles(t)));
  s.entry = ir_axis(t->to, "entries", AX_VEC, dim_const(d, entries(t)));
  s.extent = ir_dim(b, t->from->axes.at[l.axis].extent);
  Value args[MAX_AXES + 2] = {t->tested[which]};
  uint32_t last = 2 + place(t, b, pass, t->origin, args + 2);
  Runs k = {{0}};
  for (uint32_t i = 0; i < of; i++) {
    if (i < n) r[i] = not_below_base(b, r[i]);
    s.r = &r[i];
    if (i < n) k = scan(&s, b, m);
    else
      for (uint32_t j = 0; j < NUMBERS; j++) k.v[j] = ir_int(b, 0);
    for (uint32_t j = 0; j < NUMBERS; j++) {
      args[1] = ir_cast(b, DT_I32, k.v[j]);
      args[last] = ir_int(b, NUMBERS * i + j);
      ir_op(b, OP_STORE, args, last + 1, NULL, 0, NULL, 0, 0);
    }
  }
}
