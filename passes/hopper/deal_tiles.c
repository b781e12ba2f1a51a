// deal_tiles: of tiles that both groups of a task would make each makes some,
// and hands them to the other.
//
//   %p = mma(%o, %e)                      %t, %y = if(eq(%g, 0)) ({
//   %a = cast(mul(%p, %f))                  %p = mma(%o, %e)
//   %q = mma(%a, %k, %c, %n)                yield(cast(mul(%p, %f)), mul(%p, %u))
//   %l = mma(%z, %e)                      }, {
//   %b = cast(mul(%l, %h))                  %l = mma(%z, %e)
//   %r = mma(%b, %k, %d, %n)       ->       yield(cast(mul(%l, %h)),
//   %x = sub(mul(%p, %u), mul(%l, %w))            neg(mul(%l, %w)))
//   %s = select(eq(%g, 0), %x, 0)         })
//                                         %a = gput(%t) {owner = 0}
//                                         %b = gput(%t) {owner = 1}
//                                         %q = mma(%a, %k, %c, %n)
//                                         %r = mma(%b, %k, %d, %n)
//
// Where two groups have half of the columns of a chunk's gradients each
// (deal_columns), both need all products of steps: tiles of 64 x 64, with what
// is made of them element by element. Such tiles are left operands of products
// with columns, so they go through shared memory anyway. What has products in
// common is one group's; groups have as many products as can be. A sum that one
// group alone would make has each group's terms, as its result is a part that
// is joined later. Not where anything else needs such a tile, or where shared
// memory lacks; nor where no sum is one group's alone, so that both have as
// much to do: barriers then take what products save. Level frag; sm_90a,
// straight code. Needs: deal_columns, dce behind it; run dce behind this too.
// Tests: test/passes/deal_tiles.
#include "ir/layout.h"
#include "ir/target.h"
#include "passes/gpu/gpu.h"
#include "passes/hopper/rings.h"

enum { GROUPS = 2, MAX_ENDS = 16 };

// A tile that something needs which all groups do not make alike: an operand,
// or a term of a sum whose parts groups have.
typedef struct End {
  Value v;
  Op *sum;        // of which it is a term; NULL: an operand
  bool neg;       // and is subtracted
  uint32_t set;   // of those that have products in common: the first of them
  uint32_t cost;  // of its products
  uint32_t owner;
} End;

typedef struct Tiles {
  Func *f;
  Arena *arena;
  uint32_t known;
  Value group;
  bool *grouped;  // by value: differs between groups
  bool *made;     // by value: a tile that is made of products, alike in all
  uint32_t *of;   // by value, such: 1 + the first end that is made of it
  End ends[MAX_ENDS];
  uint32_t n;
  Op *parts[MAX_ENDS];  // choices of what the first group alone adds
  uint32_t nparts;
} Tiles;

// ---------------------------------------------------------------- values
static bool is_tile(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return t->kind == TK_FRAG && t->layout == LY_ACC && !t->partial &&
         t->slice == SLICE_NONE && t->ext[0] == HW_PANEL &&
         t->ext[1] == HW_PANEL;
}

static bool is_plain(const Op *op) {
  return op->nres == 1 && !op->nregions &&
         (op_info(op->code)->flags & OPF_ELEM || op->code == OP_CAST);
}

static bool is_zero(const Func *f, Value v) {
  double k;
  return ir_const_value(f, v, &k) && k == 0;
}

static bool is_made(const Tiles *d, Value v) {
  return v < d->known && d->made[v];
}

static void see_values(Tiles *d) {
  for (const Op *op = d->f->body->first; op; op = op->next) {
    bool grouped = op->code == OP_GROUP, made = op->code == OP_MMA;
    for (uint32_t i = 0; i < op->nargs; i++) {
      grouped |= d->grouped[op->args[i]];
      made |= is_plain(op) && d->made[op->args[i]];
    }
    if (op->code == OP_GROUP) d->group = op->res[0];
    for (uint32_t i = 0; i < op->nres; i++) {
      d->grouped[op->res[i]] = grouped;
      d->made[op->res[i]] = made && !grouped && is_tile(d->f, op->res[i]);
    }
  }
}

// ---------------------------------------------------------------- ends
static bool add_end(Tiles *d, End e) {
  for (uint32_t i = 0; i < d->n; i++)
    if (d->ends[i].v == e.v && d->ends[i].sum == e.sum) return true;
  if (d->n == MAX_ENDS) return false;
  d->ends[d->n++] = e;
  return true;
}

// Is op the left operand of products of the groups' own columns, and nothing
// else?
static bool is_operand(const Tiles *d, const Op *put) {
  for (const Op *op = put->next; op; op = op->next)
    for (uint32_t i = 0; i < op->nargs; i++)
      if (op->args[i] == put->res[0] &&
          (op->code != OP_MMA || i != 0 || !d->grouped[op->res[0]]))
        return false;
  return true;
}

// The choice of what the first group alone adds.
static bool is_part(const Tiles *d, const Op *op) {
  const Op *splat = op->code == OP_SELECT ? ir_def(d->f, op->args[0]) : NULL;
  const Op *is =
      splat && splat->code == OP_SPLAT ? ir_def(d->f, splat->args[0]) : NULL;
  return is && is->code == OP_EQ && is->args[0] == d->group &&
         is_zero(d->f, is->args[1]) && is_made(d, op->args[1]) &&
         is_zero(d->f, op->args[2]);
}

// Of what the sum of terms is made with the same op of each; 0: it is not.
static Value linear_in(const Tiles *d, const Op *op) {
  switch (op->code) {
  case OP_MMA: return op->nargs == 2 ? op->args[0] : 0;
  case OP_CAST:
  case OP_NEG: return op->args[0];
  case OP_SELECT: return is_zero(d->f, op->args[2]) ? op->args[1] : 0;
  default: return 0;
  }
}

// The sum that a part is made of, whose terms groups have; NULL: there is none.
static Op *sum_of(const Tiles *d, Value v) {
  while (is_made(d, v) && ir_count_uses(d->f, v) == 1) {
    Op *op = ir_def(d->f, v);
    bool sum = op->code == OP_ADD || op->code == OP_SUB;
    if (sum && is_made(d, op->args[0]) && is_made(d, op->args[1])) return op;
    v = linear_in(d, op);
    if (!v) return NULL;
  }
  return NULL;
}

static bool add_part(Tiles *d, Op *select) {
  Op *sum = sum_of(d, select->args[1]);
  if (!sum || d->nparts == MAX_ENDS) return false;
  d->parts[d->nparts++] = select;
  return add_end(d, (End){.v = sum->args[0], .sum = sum}) &&
         add_end(d, (End){.v = sum->args[1],
                          .sum = sum,
                          .neg = sum->code == OP_SUB});
}

static bool see_end(Tiles *d, Op *op, uint32_t i) {
  const Type *t = ir_type(d->f, op->args[i]);
  if (is_part(d, op)) return add_part(d, op);
  bool own = op->code == OP_MMA && i == 0 && d->grouped[op->res[0]];
  if (op->code == OP_SPUT) own = is_operand(d, op);
  return own && dtype_size(t->dtype) == 2 &&
         add_end(d, (End){.v = op->args[i]});
}

// False: something else needs such a tile.
static bool find_ends(Tiles *d) {
  for (Op *op = d->f->body->first; op; op = op->next) {
    if (op->nregions) return false;
    if (op->nres && is_made(d, op->res[0])) continue;
    for (uint32_t i = 0; i < op->nargs; i++)
      if (is_made(d, op->args[i]) && !see_end(d, op, i)) return false;
  }
  return true;
}

// ---------------------------------------------------------------- owners
static void join_sets(Tiles *d, uint32_t x, uint32_t y) {
  uint32_t from = d->ends[y].set, to = d->ends[x].set;
  for (uint32_t i = 0; i < d->n; i++)
    if (d->ends[i].set == from) d->ends[i].set = to;
}

static void reach(Tiles *d, uint32_t end, Value v) {
  const Op *op = ir_def(d->f, v);
  if (!is_made(d, v)) return;
  if (d->of[v]) {
    join_sets(d, d->of[v] - 1, end);
    return;
  }
  d->of[v] = end + 1;
  if (op->code == OP_MMA)
    d->ends[end].cost += (uint32_t)ir_type(d->f, op->args[0])->ext[1];
  for (uint32_t i = 0; i < op->nargs; i++) reach(d, end, op->args[i]);
}

static uint32_t cost_of(const Tiles *d, uint32_t set) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < d->n; i++)
    if (d->ends[i].set == set) n += d->ends[i].cost;
  return n;
}

// The dearest set first, each to the group that has less. False: all is one.
static bool choose_owners(Tiles *d) {
  uint32_t has[GROUPS] = {0};
  bool done[MAX_ENDS] = {false};
  for (uint32_t i = 0; i < d->n; i++) d->ends[i].set = i;
  for (uint32_t i = 0; i < d->n; i++) reach(d, i, d->ends[i].v);
  for (;;) {
    uint32_t best = MAX_ENDS;
    for (uint32_t i = 0; i < d->n; i++)
      if (!done[d->ends[i].set] &&
          (best == MAX_ENDS || cost_of(d, d->ends[i].set) > cost_of(d, best)))
        best = d->ends[i].set;
    if (best == MAX_ENDS) return has[0] && has[1];
    uint32_t to = has[1] < has[0];
    done[best] = true;
    has[to] += cost_of(d, best);
    for (uint32_t i = 0; i < d->n; i++)
      if (d->ends[i].set == best) d->ends[i].owner = to;
  }
}

// ---------------------------------------------------------------- place
// Behind all that ends are made of.
static Op *find_place(const Tiles *d) {
  Op *last = NULL;
  for (Op *op = d->f->body->first; op; op = op->next)
    if (op->nres == 1 && is_made(d, op->res[0]) && d->of[op->res[0]]) last = op;
  return last ? last->next : NULL;
}

static bool is_end_use(const Tiles *d, const Op *op) {
  bool inner = op->nres == 1 && is_made(d, op->res[0]) && d->of[op->res[0]];
  for (uint32_t i = 0; i < op->nargs && !inner; i++)
    if (is_made(d, op->args[i]) && d->of[op->args[i]]) return true;
  return false;
}

// What needs ends goes behind them, in its order.
static void put_behind(Tiles *d, Op *at) {
  bool *late = NEWN(d->arena, bool, d->known);
  Op *end = at;  // of what has not been looked at
  for (Op *op = d->f->body->first, *next; op != end; op = next) {
    bool some = is_end_use(d, op);
    next = op->next;
    for (uint32_t i = 0; i < op->nargs; i++) some |= late[op->args[i]];
    if (!some) continue;
    for (uint32_t i = 0; i < op->nres; i++) late[op->res[i]] = true;
    ir_move_before(op, at);
    if (end == at && next != at) end = op;
  }
}

// Is nothing read that is stored?
static bool stores_are_apart(const Func *f) {
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->code != OP_GSTORE) continue;
    for (const Op *o = f->body->first; o; o = o->next)
      if (o->code != OP_GSTORE && o->nargs && o->args[0] == op->args[0])
        return false;
  }
  return true;
}

// ---------------------------------------------------------------- rewrite
// v and the tiles that it is made of, in a side of the branch.
static Value cloned(Tiles *d, Builder *b, ValueMap *m, Value v) {
  const Op *op = v < d->known ? ir_def(d->f, v) : NULL;
  bool tile = op && !d->grouped[v] && is_tile(d->f, v);
  tile = tile && (is_plain(op) || op->code == OP_MMA || op->code == OP_BCAST ||
                  op->code == OP_SPLAT || op->code == OP_CONST);
  if (vmap_get(m, v) != v || !tile) return vmap_get(m, v);
  for (uint32_t i = 0; i < op->nargs; i++) cloned(d, b, m, op->args[i]);
  ir_clone(b, d->f, op, m, NULL);
  return vmap_get(m, v);
}

static Value nothing(Builder *b, const Type *t) {
  IrAttr zero = attr_f(AT_VALUE, 0);
  return ir_op(b, OP_CONST, NULL, 0, &zero, 1, t, 1, 0)->res[0];
}

// What the groups' results are: operands first, of each the n-th; then sums.
typedef struct Results {
  Type types[MAX_ENDS];
  int32_t of[MAX_ENDS][GROUPS];  // the end that a group has there, or -1
  uint32_t n;
} Results;

static uint32_t result_for(Results *r, const Tiles *d, uint32_t end) {
  const End *e = &d->ends[end];
  const Type *t = ir_type(d->f, e->v);
  for (uint32_t i = 0; i < r->n; i++) {
    int32_t other = r->of[i][!e->owner];
    if (r->of[i][e->owner] < 0 && d->ends[other].sum == e->sum &&
        type_eq(&r->types[i], t))
      return i;
  }
  r->types[r->n] = *t;
  r->of[r->n][0] = r->of[r->n][1] = -1;
  return r->n++;
}

// Both terms of a sum that one group has are one result.
static bool is_second(const Tiles *d, uint32_t end) {
  const End *e = &d->ends[end];
  for (uint32_t i = 0; i < end; i++)
    if (e->sum && d->ends[i].sum == e->sum && d->ends[i].owner == e->owner)
      return true;
  return false;
}

static Results results_of(const Tiles *d) {
  Results r = {.n = 0};
  for (uint32_t i = 0; i < d->n; i++)
    if (!is_second(d, i))
      r.of[result_for(&r, d, i)][d->ends[i].owner] = (int32_t)i;
  return r;
}

static bool has_both(const Tiles *d, const End *e) {
  for (uint32_t i = 0; i < d->n; i++)
    if (d->ends[i].sum == e->sum && d->ends[i].owner != e->owner) return false;
  return true;
}

static void fill_side(Tiles *d, const Results *r, Op *branch, uint32_t side) {
  Builder b = {.fn = d->f,
               .region = branch->regions[side],
               .span = branch->span};
  ValueMap m = {.arena = d->arena};
  Value out[MAX_ENDS];
  for (uint32_t i = 0; i < r->n; i++) {
    int32_t k = r->of[i][side];
    const End *e = k < 0 ? NULL : &d->ends[k];
    if (!e) out[i] = nothing(&b, &r->types[i]);
    else if (e->sum && has_both(d, e))
      out[i] = cloned(d, &b, &m, e->sum->res[0]);
    else out[i] = cloned(d, &b, &m, e->v);
    if (e && e->sum && !has_both(d, e) && e->neg)
      out[i] = ir_1(&b, OP_NEG, out[i]);
  }
  ir_yield(&b, out, r->n);
}

// What read the fragment, or put it into shared memory, has the tile.
static void hand(Tiles *d, Builder *b, const End *e, Value x) {
  const Type *t = ir_type(d->f, e->v);
  Type s = lower_smem_type(t->dtype, t->ext[0], t->ext[1]);
  IrAttr owner = attr_i(AT_OWNER, e->owner);
  Value tile = ir_op(b, OP_GPUT, &x, 1, &owner, 1, &s, 1, 0)->res[0];
  for (Op *op = b->before, *next; op; op = next) {
    next = op->next;
    if (!op->nargs || op->args[0] != e->v) continue;
    if (op->code == OP_MMA) op->args[0] = tile;
    if (op->code != OP_SPUT) continue;
    ir_replace_uses(d->f, op->res[0], tile);
    ir_erase(op);
  }
}

static void deal(Tiles *d, Op *at) {
  put_behind(d, at);
  Op *place = find_place(d);
  Builder b = {.fn = d->f,
               .region = d->f->body,
               .before = place,
               .span = at->span};
  Results r = results_of(d);
  Value first = ir_2(&b, OP_EQ, d->group, ir_const_i(&b, DT_I32, 0));
  Op *branch = ir_op(&b, OP_IF, &first, 1, NULL, 0, r.types, r.n, 2);
  for (uint32_t i = 0; i < GROUPS; i++) fill_side(d, &r, branch, i);
  for (uint32_t i = 0; i < r.n; i++)
    for (uint32_t g = 0; g < GROUPS; g++) {
      const End *e = r.of[i][g] < 0 ? NULL : &d->ends[r.of[i][g]];
      if (e && e->sum) ir_replace_from(place, e->sum->res[0], branch->res[i]);
      else if (e) hand(d, &b, e, branch->res[i]);
    }
  for (uint32_t i = 0; i < d->nparts; i++) {
    ir_replace_uses(d->f, d->parts[i]->res[0], d->parts[i]->args[1]);
    ir_erase(d->parts[i]);
  }
}

// ---------------------------------------------------------------- pass
static bool is_dealt(const Func *f) {
  const Op *launch = ir_launch(f);
  const IrAttr *groups = launch ? ir_attr(launch, AT_GROUPS) : NULL;
  return groups && groups->n == 1 && ir_has_steps(f) &&
         ir_attr_i(launch, AT_THREADS, 0) == GROUPS * HW_GROUP_THREADS;
}

static bool function(Ctx *cx, Func *f) {
  Arena *a = &cx->scratch;
  uint32_t n = f->values.n;
  Tiles d = {.f = f,
             .arena = a,
             .known = n,
             .grouped = NEWN(a, bool, n),
             .made = NEWN(a, bool, n),
             .of = NEWN(a, uint32_t, n)};
  if (!is_dealt(f) || !stores_are_apart(f)) return false;
  see_values(&d);
  if (!d.group || !find_ends(&d) || !d.nparts || !choose_owners(&d))
    return false;
  Op *at = find_place(&d);
  if (at) deal(&d, at);
  return at != NULL;
}

// Is there room for what is handed over? Tried with a copy.
static bool has_room(Ctx *cx, const Module *m, uint32_t i, const Target *t) {
  Func *f = ir_copy(m, &cx->scratch)->funcs.at[i];
  Rings rings;
  return is_dealt(f) && function(cx, f) && hop_rings_plan(&rings, f, t) &&
         rings.drains;
}

bool pass_deal_tiles(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++)
    if (has_room(cx, m, i, opt->target)) function(cx, m->funcs.at[i]);
  return true;
}
