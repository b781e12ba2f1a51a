// Splitting the keys of a pass among tasks, where there are too few otherwise.
//
//   before  func @p(..) grid(b:1, q:128) { %m, %l = for k0 .. ; store(%O, ..) }
//   after   func @p(.., %m: tensor<f32[P', B, Sq]> shared, ..)
//               grid(b:1, q:128, part:1) {
//             %m, %l = for k0 of this part ..
//             store(%O, ..)             if P is 1
//             store(%m.part, ..) ..     if not
//           }
//           func @p.combine(..) grid(b:1, q:1, some:1) {
//             for part in P, 32 at a time { join by the `correct` region of
//                                           the pass }
//             store(%O, ..)
//           }
//
// How many parts is a function of the shape and the target, never of threads,
// and they are joined in one order: the same result each time. On a GPU a row's
// parts lie beside each other, a task has one row; where rows are many it has
// several, and joins parts one by one. Of packed rows, and of long vectors,
// whose groups have columns each, @p.combine_rows does the one and @p.combine
// the other: the shape says which of them has tasks. Each task has a tile of
// workspace; such groups store columns side by side, in bf16 where results are.
// Any pass without scans can be split: the factors that correct its
// accumulators join two of them (docs/ir.md, `pass`).
//
// Where memory tells how many keys a task has, as in a batch of sequences of
// several lengths, a part has as many as the other parts of its task, but not
// few. The shape says how many parts there may be; each tells those that join
// (%parts) how many there are. Behind these there are tasks that find no keys:
// if the shape has room for many of them a phase in front plans what parts
// there are (split_plan.c). With @split(own) how many a sequence has is said by
// its own keys alone: its bits are the same in any batch.
#include "ir/target.h"
#include "passes/support/cost.h"
#include "passes/support/outline.h"
#include "passes/support/widened.h"
#include "passes/tile/tile.h"

#include <assert.h>
#include <math.h>
#include <string.h>

// ---------------------------------------------------------------- plan
typedef struct Found {
  const Op *pass;
  uint32_t n;
  bool recur;
  bool whole;  // passes inside of others belong to these
} Found;

static bool is_inside(const Op *op) {
  const Region *r = op->parent;
  while (r->parent && r->parent->code != OP_KREDUCE) r = r->parent->parent;
  return r->parent != NULL;
}

static void look(void *data, Op *op) {
  Found *f = data;
  f->recur |= op->code == OP_RECUR;
  if (op->code != OP_KREDUCE || (f->whole && is_inside(op))) return;
  f->n++;
  f->pass = op;
}

// Why the keys cannot be split, or NULL.
static const char *obstacle(const Found *p) {
  if (p->recur) return "it is a recurrence";
  if (!p->n) return "it has no keys";
  if (p->n > 1) return "its keys are read more than once";
  if (ir_attr(p->pass, AT_SCANS) && ir_attr(p->pass, AT_SCANS)->n)
    return "a running sum wants the keys before";
  for (uint32_t i = 0; i < p->pass->nres; i++)
    if (ir_type(p->pass->parent->fn, p->pass->res[i])->n >= 8)
      return "an accumulator has too many axes";
  return NULL;
}

// Tasks without a split.
static Dim tasks(const Func *f, const TilePlan *p) {
  DimTab *d = &f->mod->dims;
  Dim n = dim_const(d, 1);
  for (uint32_t a = 0; a < f->axes.n; a++) {
    if (f->axes.at[a].role != AX_PAR || (int)a == p->part) continue;
    if (p->serial >> a & 1) continue;
    Dim e = f->axes.at[a].extent;
    if ((int)a == p->lane) e = dim_ceildiv(d, e, p->tile_q);
    n = dim_bin(d, DIM_MUL, n, e);
  }
  return n;
}

static Dim at_least_one(DimTab *d, Dim n) {
  return dim_bin(d, DIM_MAX, n, dim_const(d, 1));
}

// So many parts that n tasks are made of `have`.
static Dim parts_for(DimTab *d, int64_t n, Dim have) {
  return at_least_one(d, dim_bin(d, DIM_FLOORDIV, dim_const(d, n), have));
}

// A multiprocessor can ask for more than its share of what memory gives, and a
// task in front of others costs: as few parts as give each its tasks. Where
// there is one for each, but not for several, the last wave would be nearly as
// long as the one before it: more, shorter ones. wave: tasks that run at a
// time.
static Dim gpu_parts(DimTab *d, int64_t wave, Dim have) {
  Dim one = dim_const(d, 1), many = parts_for(d, COST_SPLIT_WAVES * wave, have);
  Dim full =
      dim_bin(d, DIM_MIN,
              dim_bin(d, DIM_FLOORDIV, have, dim_const(d, wave + 1)), one);
  Dim tail =
      dim_bin(d, DIM_MUL, full,
              dim_bin(d, DIM_MIN, many, dim_const(d, COST_SPLIT_WAVES - 1)));
  return dim_bin(d, DIM_MAX, parts_for(d, wave, have), tail);
}

// 0 if there is one sequence, else 1.
static Dim are_several(const Func *f, int by) {
  DimTab *d = &f->mod->dims;
  if (by < 0) return dim_const(d, 1);
  Dim others = dim_bin(d, DIM_ADD, f->axes.at[by].extent, dim_const(d, -1));
  others = dim_bin(d, DIM_MAX, others, dim_const(d, 0));
  return dim_bin(d, DIM_MIN, others, dim_const(d, 1));
}

// Where memory tells how many keys a task has, so many waves are wanted of each
// sequence's, as some end early; of one sequence, which has no others, a task
// for each multiprocessor.
static Dim told_parts(const Func *f, const Op *pass, const TilePlan *p,
                      const Target *t, Dim have) {
  DimTab *d = &f->mod->dims;
  int64_t all = COST_SPLIT_TOLD_WAVES * p->places;
  Dim more = dim_const(d, all - t->gpu.sms), sms = dim_const(d, t->gpu.sms);
  more = dim_bin(d, DIM_MUL, are_several(f, tile_plan_axis(f, pass, p)), more);
  Dim n = dim_bin(d, DIM_ADD, sms, more);
  return at_least_one(d, dim_bin(d, DIM_FLOORDIV, n, have));
}

// Elements of a row's longest vector of sums.
static int64_t row_elements(const Func *f, const Op *pass) {
  int64_t most = 1;
  for (uint32_t i = 0; i < pass->nres; i++) {
    const Type *s = ir_type(f, pass->res[i]);
    int64_t n = 1, x;
    for (uint32_t k = 0; k < s->n; k++) {
      const Axis *a = &f->axes.at[s->axis[k]];
      if (a->role == AX_VEC && dim_is_const(&f->mod->dims, a->extent, &x))
        n *= x;
    }
    most = n > most ? n : most;
  }
  return most;
}

typedef struct Products {
  const Func *f;
  bool some;
} Products;

static void see_product(void *data, Op *op) {
  Products *w = data;
  w->some |= op->code == OP_DOT && lane_is_product(w->f, op);
}

static bool multiplies(const Func *f) {
  Products w = {f, false};
  ir_walk(f->body, see_product, &w);
  return w.some;
}

enum { TWO = 2, BOUNDS = 3 };

// CTAs of few rows with short sums share a multiprocessor
// (passes/hopper/rings.c), and those that multiply nothing.
static int64_t wave_of(const Func *f, const Op *pass, const Target *t) {
  if (!multiplies(f)) return t->gpu.sms * COST_SPLIT_SUMMED;
  return t->gpu.sms * (row_elements(f, pass) <= COST_SPLIT_SUMS ? TWO : 1);
}

// Does memory tell what keys a task has?
static bool is_read(const Func *f, const Op *pass) {
  const Region *r = pass->nregions > BOUNDS ? pass->regions[BOUNDS] : NULL;
  bool read = false;
  for (uint32_t i = 0; r && r->last && i < r->last->nargs; i++)
    read |= lane_from_memory(f, r->last->args[i]);
  return read;
}

// It does, and what a part stores is short beside them. Groups with columns of
// their own store 64 rows of two vectors and more: as much as several steps
// read.
static bool is_told(const Func *f, const Op *pass, const TilePlan *p) {
  return p->part < 0 && is_read(f, pass);
}

// Keys have no more places than the tables of their pages.
typedef struct Places {
  const Func *f;
  uint32_t axis;
  Dim most;
} Places;

static void find_pages(void *data, Op *op) {
  Places *x = data;
  DimTab *d = &x->f->mod->dims;
  for (uint32_t i = 1; op->code == OP_LOAD && i < op->nargs; i++) {
    const Op *page = ir_def(x->f, op->args[i]);
    const Op *key =
        page && page->code == OP_FLOORDIV ? ir_def(x->f, page->args[0]) : NULL;
    int64_t n;
    if (!key || key->code != OP_INDEX ||
        (uint32_t)ir_attr_i(key, AT_AXIS, 0) != x->axis ||
        !ir_const_whole(x->f, page->args[1], &n))
      continue;
    Dim places = dim_bin(d, DIM_MUL, ir_type(x->f, op->args[0])->size[i - 1],
                         dim_const(d, n));
    x->most = dim_bin(d, DIM_MIN, x->most, places);
  }
}

static Dim most_keys(const Func *f, const Op *pass, uint32_t axis) {
  Places x = {.f = f, .axis = axis, .most = f->axes.at[axis].extent};
  for (uint32_t i = 0; i < pass->nregions; i++)
    if (pass->regions[i]) ir_walk(pass->regions[i], find_pages, &x);
  return x.most;
}

// The keys that are there for a task: a window has no more than it sees.
static Dim keys_of(const Func *f, const Op *pass, const Target *tg, bool told,
                   const TilePlan *p) {
  DimTab *d = &f->mod->dims;
  uint32_t axis = (uint32_t)ir_attr_i(pass, AT_AXIS, 0);
  Dim keys = told ? most_keys(f, pass, axis) : f->axes.at[axis].extent;
  int64_t seen = tg->kind == TARGET_GPU ? tile_most_seen(f, pass, p) : 0;
  return seen ? dim_bin(d, DIM_MIN, keys, dim_const(d, seen)) : keys;
}

// An accumulator that has all axes of tasks; false: there is none.
static bool find_widest(const Func *f, const Op *pass, uint32_t *which) {
  uint32_t all = 0;
  for (uint32_t a = 0; a < f->axes.n; a++) all += f->axes.at[a].role == AX_PAR;
  for (uint32_t i = 0; i < pass->nres; i++) {
    const Type *s = ir_type(f, pass->res[i]);
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->n; k++)
      n += f->axes.at[s->axis[k]].role == AX_PAR;
    *which = i;
    if (n == all) return true;
  }
  return false;
}

// Room for the parts of sequences that are longer than others.
static void count_parts(DimTab *d, Dim keys, Dim several, TilePlan *p) {
  Dim more = dim_bin(d, DIM_ADD, keys, dim_const(d, -1));
  more = dim_bin(d, DIM_FLOORDIV, more, dim_const(d, COST_SPLIT_LONG_KEYS));
  more = dim_bin(d, DIM_MIN, more, dim_const(d, COST_SPLIT_MOST));
  more = dim_bin(d, DIM_MUL, more, several);
  p->counted = true;
  p->even = p->parts;
  p->parts = dim_bin(d, DIM_MAX, p->parts, more);
}

// Room for what a sequence's own keys want.
static void own_parts(DimTab *d, Dim keys, TilePlan *p) {
  Dim n = dim_bin(d, DIM_ADD, keys, dim_const(d, COST_SPLIT_OWN_KEYS - 1));
  n = dim_bin(d, DIM_FLOORDIV, n, dim_const(d, COST_SPLIT_OWN_KEYS));
  n = dim_bin(d, DIM_MIN, n, dim_const(d, COST_SPLIT_OWN_MOST));
  p->counted = true;
  p->parts = at_least_one(d, n);
}

// As many parts of the keys as are worth their tasks. Those of several
// sequences by the longest one that there is room for are more than a batch
// wants.
static Dim most_parts(const Func *f, const Target *t, Dim keys, bool few,
                      const TilePlan *p, int by) {
  DimTab *d = &f->mod->dims;
  if (t->kind != TARGET_GPU)
    return dim_bin(d, DIM_FLOORDIV, keys, dim_const(d, COST_SPLIT_KEYS));
  if (!multiplies(f))
    return dim_bin(d, DIM_MIN, dim_ceildiv(d, keys, COST_SPLIT_EVEN_KEYS),
                   dim_const(d, COST_SPLIT_SUMMED_MOST));
  int64_t lo, hi;
  dim_bounds(d, keys, &lo, &hi);
  if (hi <= COST_SPLIT_EVEN_KEYS) return dim_const(d, 1);
  if (!few) return dim_ceildiv(d, keys, COST_SPLIT_GPU_KEYS);
  if (p->part >= 0) return dim_ceildiv(d, keys, COST_SPLIT_COLUMN_KEYS);
  if (by < 0) return dim_ceildiv(d, keys, COST_SPLIT_EVEN_KEYS);
  Dim least = dim_const(d, COST_SPLIT_EVEN_KEYS);
  Dim more = dim_const(d, COST_SPLIT_GPU_KEYS - COST_SPLIT_EVEN_KEYS);
  more = dim_bin(d, DIM_MUL, are_several(f, by), more);
  least = dim_bin(d, DIM_ADD, least, more);
  Dim up = dim_bin(d, DIM_ADD, least, dim_const(d, -1));
  up = dim_bin(d, DIM_ADD, keys, up);
  return dim_bin(d, DIM_FLOORDIV, up, least);
}

// Parts have whole tiles, as many each: no more of them than have some. What
// joins would ask for those without keys.
static Dim with_keys(DimTab *d, Dim keys, Dim parts, int64_t unit) {
  Dim tiles = dim_ceildiv(d, keys, unit), less = dim_const(d, -1);
  Dim up = dim_bin(d, DIM_ADD, tiles, dim_bin(d, DIM_ADD, parts, less));
  Dim each = at_least_one(d, dim_bin(d, DIM_FLOORDIV, up, parts));
  up = dim_bin(d, DIM_ADD, tiles, dim_bin(d, DIM_ADD, each, less));
  return at_least_one(d, dim_bin(d, DIM_FLOORDIV, up, each));
}

// Of lengths that the shape says: as many short parts as what joins asks for at
// once.
static Dim short_parts(const Func *f, const Op *pass, const Target *tg,
                       Dim keys, Dim have) {
  DimTab *d = &f->mod->dims;
  int64_t once = COST_JOIN_ELEMENTS / row_elements(f, pass), lo, hi;
  dim_bounds(d, keys, &lo, &hi);
  if (hi <= COST_SPLIT_EVEN_KEYS) return dim_const(d, 1);
  Dim n = parts_for(d, tg->gpu.sms, have);
  n = dim_bin(d, DIM_MIN, n, dim_const(d, once));
  return dim_bin(d, DIM_MIN, n, dim_ceildiv(d, keys, COST_SPLIT_SHORT_KEYS));
}

// Keys of 8 bits, which a task widens before it can ask for more of them: two
// tasks on a multiprocessor, of long parts.
static Dim narrow_parts(const Target *tg, DimTab *d, Dim keys, Dim have) {
  Dim n = parts_for(d, (int64_t)TWO * tg->gpu.sms, have);
  return dim_bin(d, DIM_MIN, n,
                 dim_bin(d, DIM_FLOORDIV, keys,
                         dim_const(d, COST_SPLIT_NARROW_KEYS)));
}

// As many parts as give the target its tasks. Few rows whose keys are as many
// as the shape says have a task for each multiprocessor, which asks for all
// that memory gives it: a second one only waits beside it, and what joins takes
// time.
static void plan_parts(const Func *f, const Op *pass, const Target *tg,
                       bool few, TilePlan *p) {
  bool gpu = tg->kind == TARGET_GPU, told = gpu && is_told(f, pass, p);
  bool even = gpu && few && !is_read(f, pass) && multiplies(f);
  DimTab *d = &f->mod->dims;
  uint32_t axis = (uint32_t)ir_attr_i(pass, AT_AXIS, 0);
  // Groups with columns of their own have long steps, few of them a part.
  bool columns = gpu && p->part >= 0;
  bool brief = columns && is_read(f, pass);
  Dim keys = keys_of(f, pass, tg, told || brief, p);
  bool counts =
      find_widest(f, pass, &p->beside) && !p->serial && !(p->outer >> axis & 1);
  p->places = gpu ? wave_of(f, pass, tg) : 0;
  if (p->own) {
    p->parts = dim_const(d, 1);
    if (counts) own_parts(d, keys, p);
    return;
  }
  Dim have = at_least_one(d, tasks(f, p));
  bool each = p->outer >> axis & 1;  // has a pass inside
  bool sums = gpu && !few && tile_has_elements(f, p->lane);
  int64_t waves = (int64_t)COST_SPLIT_WAVES * tg->gpu.sms;
  Dim want =
      told                  ? told_parts(f, pass, p, tg, have)
      : even                ? parts_for(d, tg->gpu.sms, have)
      : gpu && each && !few ? parts_for(d, waves, have)
      : sums                ? parts_for(d, tg->gpu.sms, have)
      : gpu ? gpu_parts(d, p->places, have)
            : dim_bin(d, DIM_FLOORDIV, dim_const(d, COST_TASKS_ENOUGH), have);
  int by = tile_plan_axis(f, pass, p);
  bool more = even || brief || (told && by >= 0);
  Dim most = each ? keys : most_parts(f, tg, keys, more, p, by);
  p->parts = at_least_one(d, dim_bin(d, DIM_MIN, want, most));
  if (even && !each && !columns)
    p->parts =
        dim_bin(d, DIM_MAX, p->parts, short_parts(f, pass, tg, keys, have));
  if (more && !each && !columns && p->places > tg->gpu.sms &&
      widened_keys(f, axis))
    p->parts = dim_bin(d, DIM_MAX, p->parts, narrow_parts(tg, d, keys, have));
  if (columns && !each) p->parts = with_keys(d, keys, p->parts, p->tile_k);
  if (told && counts) count_parts(d, keys, are_several(f, by), p);
}

// A phase in front plans where there would be tasks without keys. Those of
// packed rows find their sequences themselves.
static void plan_ahead(const Func *f, const Op *pass, const Target *tg,
                       TilePlan *p) {
  DimTab *d = &f->mod->dims;
  bool told = tg->kind == TARGET_GPU && tg->gpu.hopper && is_told(f, pass, p);
  if (!p->counted || !told) return;
  Dim even = p->own ? dim_const(d, 1) : p->even;
  Dim less = dim_bin(d, DIM_MUL, at_least_one(d, even), dim_const(d, -1));
  Dim more = dim_bin(d, DIM_ADD, p->parts, less);
  p->planned = dim_bin(d, DIM_MIN, more, dim_const(d, 1));
  p->by = tile_plan_axis(f, pass, p);
  if (p->by < 0 || p->own) return;
  // A batch of short sequences beside one wants that one in many parts.
  Dim room = dim_bin(d, DIM_FLOORDIV, keys_of(f, pass, tg, told, p),
                     dim_const(d, COST_SPLIT_PLAN_KEYS));
  room = dim_bin(d, DIM_MIN, room, dim_const(d, COST_SPLIT_MOST));
  room = dim_bin(d, DIM_MUL, room, p->planned);
  p->parts = dim_bin(d, DIM_MAX, p->parts, room);
}

static void remark_parts(Ctx *cx, const Func *f, const TilePlan *p) {
  int64_t n;
  if (dim_is_const(&f->mod->dims, p->parts, &n))
    ctx_remark(cx, "%s: keys are split into %lld parts", f->name, (long long)n);
  else
    ctx_remark(cx,
               "%s: with few tasks%s keys are split into parts, joined by a "
               "second phase",
               f->name, p->counted ? ", or sequences longer than others," : "");
}

// A pass over all heads that holds another, as in gradients of keys that they
// share: a task would have all of them, and there are as few as tiles of keys.
// Heads of a group are few, and groups have tasks of their own.
bool tile_splits_outer(const Func *f, const PassOpt *opt, const TilePlan *p) {
  Found in = {.whole = true};
  if (!opt->target->gpu.hopper || opt->few || opt->decode || p->ntested ||
      !p->outer || !multiplies(f))
    return false;
  ir_walk(f->body, look, &in);
  if (obstacle(&in)) return false;
  uint32_t axis = (uint32_t)ir_attr_i(in.pass, AT_AXIS, 0);
  return (p->outer >> axis & 1) &&
         tile_counts_all(&f->mod->dims, f->axes.at[axis].extent);
}

// The CTAs of a cluster have a part each, compared with parts without.
static void plan_peers(const Func *f, const Op *pass, const Target *tg,
                       TilePlan *p) {
  DimTab *d = &f->mod->dims;
  TilePlan parts = *p;
  plan_parts(f, pass, tg, true, &parts);
  Dim keys = keys_of(f, pass, tg, is_told(f, pass, p), p);
  Dim have = at_least_one(d, tasks(f, p));
  p->gain = tile_cluster_gain(d, &parts, p->cluster, have, keys);
  p->parts = dim_const(d, p->cluster);
}

void tile_split_plan(Ctx *cx, const Func *f, const PassOpt *opt, TilePlan *p) {
  Found in = {.whole = p->serial || tile_splits_outer(f, opt, p)};
  p->by = -1;
  p->own = opt->split_own;
  if (opt->split_k == 0 || opt->split_k == 1) return;
  ir_walk(f->body, look, &in);
  const Target *tg = opt->target;
  bool gpu = tg->kind == TARGET_GPU;
  const char *why = obstacle(&in);
  if (!why && !p->ntested) tile_cluster_plan(cx, f, opt, in.pass, p);
  // Stores of a part are masked, which lists of many rows have no time for but
  // where tasks are few.
  bool few = opt->few || opt->brief;
  if (p->ntested && !(gpu && few)) why = "a phase before has their bounds";
  if (gpu && p->tile_q < HW_GROUP_ROWS && !p->alone)
    why = "their sums leave no registers for that";
  if (why) {
    ctx_remark(cx, "%s: keys are not split among tasks: %s", f->name, why);
    return;
  }
  if (p->joins) plan_peers(f, in.pass, tg, p);
  else if (opt->split_k > 1) p->parts = dim_const(&f->mod->dims, opt->split_k);
  else plan_parts(f, in.pass, tg, few, p);
  int64_t lo, hi;
  dim_bounds(&f->mod->dims, p->parts, &lo, &hi);
  // How many rows there are tells which body a batch takes: with parts of its
  // own a sequence must have the same bits in all.
  if (opt->fewest && !p->own && gpu && tg->gpu.hopper && p->lane >= 0 &&
      p->part < 0 && p->tile_q == HW_GROUP_ROWS && p->tile_k == HW_GROUP_ROWS)
    p->deals = in.pass;
  if (p->joins) return;
  if (hi == 1) {  // few keys
    p->counted = false;
    return;
  }
  p->split = in.pass;
  plan_ahead(f, in.pass, tg, p);
  remark_parts(cx, f, p);
}

// ---------------------------------------------------------------- reductions
Value tile_scaled(Builder *b, Value acc, Value factor) {
  return ir_2(b, OP_MUL, acc, ir_cast(b, ir_type(b->fn, acc)->dtype, factor));
}

// ---------------------------------------------------------------- workspace
// 1 if there are several parts, else 0.
static Dim several_parts(const Tiler *t) {
  DimTab *d = &t->to->mod->dims;
  Dim more = dim_bin(d, DIM_ADD, t->plan.parts, dim_const(d, -1));
  return dim_bin(d, DIM_MIN, more, dim_const(d, 1));
}

// No part is stored if there is one only.
static Dim stored_parts(const Tiler *t) {
  DimTab *d = &t->to->mod->dims;
  return dim_bin(d, DIM_MUL, t->plan.parts, several_parts(t));
}

// The axes of an accumulator as memory has them: parts of a vector lie one
// behind the other.
static uint32_t stored_axes(const Tiler *t, uint32_t i, uint32_t *axes) {
  const Type *s = ir_type(t->from, t->plan.split->res[i]);
  uint32_t n = 0;
  for (int vec = 0; vec < 2; vec++)
    for (uint32_t k = 0; k < s->n; k++)
      if ((t->from->axes.at[s->axis[k]].role == AX_VEC) == vec)
        axes[n++] = s->axis[k];
  return n;
}

// Those of the tasks, of the accumulator beside which counts are.
static uint32_t counted_axes(const Tiler *t, uint32_t *axes) {
  uint32_t all = stored_axes(t, t->plan.beside, axes), n = 0;
  for (uint32_t k = 0; k < all; k++)
    if (t->from->axes.at[axes[k]].role == AX_PAR) axes[n++] = axes[k];
  return n;
}

static void count_params(Tiler *t) {
  uint32_t axes[MAX_AXES], n = counted_axes(t, axes);
  Dim shape[MAX_AXES] = {stored_parts(t)};
  for (uint32_t k = 0; k < n; k++)
    shape[k + 1] = t->from->axes.at[axes[k]].extent;
  t->counts =
      outline_tensor(t->to, "parts", "part", type_tensor(DT_I32, n + 1, shape));
}

// Are accumulators i of groups that have columns each side by side, as results
// have them?
static bool lies_whole(const Tiler *t, uint32_t i) {
  const Type *s = ir_type(t->from, t->plan.split->res[i]);
  return t->plan.part >= 0 && type_has_axis(s, (uint32_t)t->plan.part);
}

typedef struct Stores {
  const Func *f;
  uint32_t axis;
  DType type;
} Stores;

static void see_store(void *data, Op *op) {
  Stores *x = data;
  if (op->code != OP_STORE ||
      !type_has_axis(ir_type(x->f, op->args[1]), x->axis))
    return;
  if (ir_type(x->f, op->args[0])->dtype != DT_BF16) x->type = DT_F32;
}

// What tasks store of accumulator i. Results of bf16 are rounded to as many
// digits as the weights that are multiplied, and so are long sums of a part:
// it has the range of f32.
static DType stored_type(const Tiler *t, uint32_t i) {
  const Type *s = ir_type(t->from, t->plan.split->res[i]);
  bool box = lies_whole(t, i) && s->n <= HW_MAP_AXES;
  if (!box || s->dtype != DT_F32) return s->dtype;
  Stores x = {t->from, (uint32_t)t->plan.part, DT_BF16};
  ir_walk(t->from->body, see_store, &x);
  return x.type;
}

// The tensor of accumulator i.
static Value partial_of(Tiler *t, uint32_t i) {
  const ValueInfo *v = ir_info(t->from, t->plan.split->res[i]);
  DimTab *d = &t->to->mod->dims;
  Dim shape[MAX_AXES] = {stored_parts(t)}, groups = dim_const(d, 1);
  uint32_t axes[MAX_AXES], n = stored_axes(t, i, axes), rank = 1;
  for (uint32_t k = 0; k < n; k++) {
    Dim size = t->from->axes.at[axes[k]].extent;
    if (lies_whole(t, i) && (int)axes[k] == t->plan.part) groups = size;
    else shape[rank++] = size;
  }
  shape[rank - 1] = dim_bin(d, DIM_MUL, shape[rank - 1], groups);
  return outline_tensor(t->to, v->hint ? v->hint : "acc", "part",
                        type_tensor(stored_type(t, i), rank, shape));
}

void tile_split_params(Tiler *t) {
  const Op *op = t->plan.split;
  t->partial = NEWN(t->to->mod->arena, Value, op->nres + 1);
  // It begins the workspace: where it is takes no arithmetic.
  if (t->plan.by >= 0) tile_plan_params(t);
  for (uint32_t i = 0; i < op->nres; i++) t->partial[i] = partial_of(t, i);
  if (t->plan.counted) count_params(t);
}

// Its accumulator i at a part, at the coordinates of the task.
static uint32_t place(const Tiler *t, Builder *b, uint32_t i, Value part,
                      Value *at) {
  uint32_t axes[MAX_AXES], n = stored_axes(t, i, axes), rank = 1;
  int group = -1;
  at[0] = part;
  for (uint32_t k = 0; k < n; k++) {
    if (lies_whole(t, i) && (int)axes[k] == t->plan.part) group = (int)axes[k];
    else at[rank++] = t->coord[axes[k]];
  }
  if (group < 0) return rank;
  int64_t size = 1;
  dim_is_const(&t->from->mod->dims, t->from->axes.at[axes[n - 1]].extent,
               &size);
  Value first = ir_2(b, OP_MUL, t->coord[group], ir_const_i(b, DT_I64, size));
  at[rank - 1] = ir_2(b, OP_ADD, first, at[rank - 1]);
  return rank;
}

// ---------------------------------------------------------------- tasks
static bool is_ragged(const DimTab *d, Dim x) {
  const DimExpr *e = &d->exprs.at[x];
  if (e->op == DIM_CONST) return false;
  if (e->op == DIM_SYM) return d->syms.at[e->value].kind == DIM_RAGGED;
  return is_ragged(d, e->a) || is_ragged(d, e->b);
}

// Rows of sequences of any number.
static bool is_packed(const Func *f, const TilePlan *p) {
  return p->lane >= 0 && is_ragged(&f->mod->dims, f->axes.at[p->lane].extent);
}

bool tile_split_in_two(const Func *f, const TilePlan *p, const Target *t) {
  if (t->kind != TARGET_GPU) return false;
  return p->part >= 0 || (t->gpu.hopper && is_packed(f, p));
}

// 1 if rows are so few that each has a task, 0 if not; the other way around for
// what joins several of them.
static Dim of_rows(const Tiler *t) {
  DimTab *d = &t->to->mod->dims;
  Dim rows = dim_const(d, 1), one = rows;
  for (uint32_t i = 0; i < t->to->grid.n; i++) {
    uint32_t a = t->to->grid.at[i].axis;
    rows = dim_bin(d, DIM_MUL, rows, t->to->axes.at[a].extent);
  }
  Dim most = dim_const(d, COST_JOIN_TASKS * t->target->gpu.sms);
  if (t->alone) {
    rows = dim_bin(d, DIM_MAX, rows, one);
    return dim_bin(d, DIM_MIN, dim_bin(d, DIM_FLOORDIV, most, rows), one);
  }
  most = dim_bin(d, DIM_ADD, most, one);
  return dim_bin(d, DIM_MIN, dim_bin(d, DIM_FLOORDIV, rows, most), one);
}

void tile_split_open(Tiler *t, Builder *b) {
  bool part = t->share == SHARE_PART;
  DimTab *d = &t->to->mod->dims;
  // What joins has no tasks if there is one part only.
  Dim tasks = part ? t->plan.parts : several_parts(t);
  if (!part && t->two) tasks = dim_bin(d, DIM_MUL, tasks, of_rows(t));
  uint32_t a = ir_axis(t->to, part ? "part" : "some", AX_PAR, tasks);
  vec_push(t->to->mod->arena, &t->to->grid, ((GridDim){.axis = a, .tile = 1}));
  if (!part) return;
  t->part = ir_origin(b, a);
  t->part_axis = a;
  int64_t n;
  if (t->plan.counted || !dim_is_const(d, t->plan.parts, &n)) {
    Value one = ir_const_i(b, DT_I64, 1);
    t->whole = ir_2(b, OP_EQ, ir_dim(b, t->plan.parts), one);
  }
}

static Value ceil_by(Builder *b, Value n, int64_t by) {
  Value up = ir_2(b, OP_ADD, n, ir_const_i(b, DT_I64, by - 1));
  return ir_2(b, OP_FLOORDIV, up, ir_const_i(b, DT_I64, by));
}

Value tile_split_own(Builder *b, Value n) {
  Value k = ceil_by(b, n, COST_SPLIT_OWN_KEYS);
  k = ir_2(b, OP_MAX, k, ir_const_i(b, DT_I64, 1));
  return ir_2(b, OP_MIN, k, ir_const_i(b, DT_I64, COST_SPLIT_OWN_MOST));
}

// As many as even tasks out, if those are not short, and more if they are long,
// where that is not what a plan is for.
static Value even_parts(const Tiler *t, Builder *b, Value n) {
  Value one = ir_const_i(b, DT_I64, 1);
  Value most = ceil_by(b, n, COST_SPLIT_EVEN_KEYS);
  Value k = ir_2(b, OP_MIN, ir_dim(b, t->plan.even), most);
  if (t->plan.by >= 0) return k;
  Value least = ceil_by(b, n, COST_SPLIT_LONG_KEYS);
  return ir_2(b, OP_MAX, k, ir_2(b, OP_SUB, least, one));
}

// Into how many parts a task's n keys go: what memory says is a small number.
static Value parts_of(Tiler *t, Builder *b, Value n) {
  int64_t least, hi;
  if (!t->plan.counted) return ir_dim(b, t->plan.parts);
  dim_bounds(&t->to->mod->dims, t->plan.parts, &least, &hi);
  Value most = ir_const_i(b, DT_I64, hi), one = ir_const_i(b, DT_I64, 1);
  bool planned = t->plan.by >= 0;
  // With parts of its own a sequence has one where nothing is planned.
  Value k = !t->plan.own ? even_parts(t, b, n)
            : planned    ? one
                         : tile_split_own(b, n);
  if (planned) k = tile_plan_parts(t, b, k);
  return t->nparts = ir_2(b, OP_MIN, ir_2(b, OP_MAX, k, one), most);
}

// Where a row's count is, at the coordinate `row` of the axis of rows.
static uint32_t count_place(const Tiler *t, Value part, Value row, Value *at) {
  uint32_t axes[MAX_AXES], n = counted_axes(t, axes);
  at[0] = part;
  for (uint32_t k = 0; k < n; k++) {
    bool lane = row && (int)axes[k] == t->plan.lane;
    at[k + 1] = lane ? row : t->coord[axes[k]];
  }
  return n + 1;
}

// Each part tells how many there are, where its sums are.
static void tell_parts(Tiler *t, Builder *b, Value several) {
  Value args[MAX_AXES + 4] = {t->counts, ir_cast(b, DT_I32, t->nparts)};
  uint32_t n = 2 + count_place(t, t->part, 0, args + 2);
  uint32_t lane = (uint32_t)t->plan.lane;
  Type rows = type_with(type_scalar(DT_I32), lane,
                        dim_const(&t->to->mod->dims, t->plan.tile_q));
  IrAttr zero = {.id = AT_IVALUE};
  Value none = ir_op(b, OP_CONST, NULL, 0, &zero, 1, &rows, 1, 0)->res[0];
  args[1] = ir_2(b, OP_ADD, none, args[1]);
  IrAttr masked = {.id = AT_MASKED, .i = 1};
  if (several) args[n++] = several;
  ir_op(b, OP_STORE, args, n, &masked, several != 0, NULL, 0, 0);
}

// Of the keys from *lo, where a tile begins, to *hi as many tiles of `unit` as
// the other parts have: those of this task's sequence, which may be shorter
// than others.
void tile_split_keys(Tiler *t, Builder *b, int64_t unit, Value *lo, Value *hi) {
  Value tile = ir_const_i(b, DT_I64, unit), first = *lo;
  Value zero = ir_const_i(b, DT_I64, 0);
  Value n = ir_2(b, OP_MAX, ir_2(b, OP_SUB, *hi, first), zero);
  Value step = ir_2(b, OP_MUL, parts_of(t, b, n), tile);
  Value up = ir_2(b, OP_SUB, step, ir_const_i(b, DT_I64, 1));
  Value each = ir_2(b, OP_FLOORDIV, ir_2(b, OP_ADD, n, up), step);
  Value size = ir_2(b, OP_MUL, each, tile);
  *lo = ir_2(b, OP_ADD, first, ir_2(b, OP_MUL, t->part, size));
  *hi = ir_2(b, OP_ADD, *lo, size);
}

// A sequence with one part has its results of that part's task. Others of its
// tasks have no keys.
static Value is_whole(Tiler *t, Builder *b) {
  Value one = ir_2(b, OP_EQ, t->nparts, ir_const_i(b, DT_I64, 1));
  Value first = ir_2(b, OP_EQ, t->part, ir_const_i(b, DT_I64, 0));
  return ir_2(b, OP_AND, one, first);
}

bool tile_split_branches(const Tiler *t) {
  const TilePlan *p = &t->plan;
  return t->gpu && (p->counted || p->deals || p->part >= 0);
}

// ---------------------------------------------------------------- joining
// Packed rows have tasks for the longest sequence's, and those of groups with
// columns of their own are many: a task has several.
static bool has_rows(const Tiler *t) {
  const TilePlan *p = &t->plan;
  return p->part >= 0 || p->lane < 0 || is_packed(t->from, p);
}

// The axis along which rows' sums lie side by side, of all accumulators; the
// rows' own if there is none.
static int nearest_axis(const Tiler *t) {
  const Op *pass = t->plan.split;
  int nearest = -1;
  for (uint32_t i = 0; i < pass->nres; i++) {
    uint32_t axes[MAX_AXES], n = stored_axes(t, i, axes);
    while (n && t->from->axes.at[axes[n - 1]].role != AX_PAR) n--;
    int last = n ? (int)axes[n - 1] : -1;
    if (last < 0 || (i && last != nearest)) return t->plan.lane;
    nearest = last;
  }
  return nearest;
}

// A point for each task: vectors have lanes. A GPU's threads have pieces of
// rows, or of a row's parts beside each other: where rows are short those of
// several, so that what lies together in memory is loaded together.
void tile_split_joiners(Tiler *t) {
  int64_t rows = 1, n = row_elements(t->from, t->plan.split);
  t->beside = t->gpu && (t->alone || !has_rows(t));
  int64_t most = t->beside ? COST_JOIN_SHORT : COST_MAP_ELEMENTS;
  bool several = t->gpu && t->plan.lane >= 0 && !(t->beside && t->plan.counted);
  while (several && 2 * rows * n <= most) rows *= 2;
  t->plan.tile_q = rows;
  if (rows == 1) t->plan.lane = -1;
  else if (t->beside) t->plan.lane = nearest_axis(t);
}

typedef struct Join {
  Tiler *t;
  const Op *op;
  const Region *correct;
  Value parts;       // how many
  int64_t together;  // so many beside each other
  uint32_t axis;     // along this, where there are several
  uint32_t turns;    // so many of these at a time
} Join;

// Of long rows few tasks are there: each asks for more.
static int64_t most_elements(const Tiler *t) {
  return t->alone && t->plan.part >= 0 ? COST_JOIN_LONG : COST_JOIN_ELEMENTS;
}

// A GPU's loads wait for each other unless several parts are asked for at once:
// as many as a row has, or as its threads have registers for.
static void plan_join(Join *j) {
  Tiler *t = j->t;
  DimTab *d = &t->to->mod->dims;
  int64_t n = row_elements(t->from, t->plan.split) * t->plan.tile_q, lo, most;
  dim_bounds(d, t->plan.parts, &lo, &most);
  j->together = 1;
  j->turns = t->gpu && !t->beside ? COST_JOIN_TOGETHER : 1;
  while (t->beside && j->together < most &&
         2 * j->together * n <= most_elements(t))
    j->together *= 2;
  if (j->together > 1)
    j->axis = ir_axis(t->to, "parts", AX_PAR, dim_const(d, j->together));
}

// Clones what v needs of the `correct` region.
static Value need(Join *j, Builder *b, Value v, ValueMap *m) {
  if (v < m->n && m->to[v]) return m->to[v];
  const Op *op = ir_def(j->t->from, v);
  assert(op && "a factor uses a value that is not defined");
  for (uint32_t i = 0; i < op->nargs; i++)
    if (ir_type(j->t->from, op->args[i])->kind == TK_ELEM)
      need(j, b, op->args[i], m);
  bool ok = tile_op(j->t, b, op, m);
  assert(ok);
  (void)ok;
  return vmap_get(m, v);
}

// Accumulator i of one side in the frame of the new ones.
static Value moved(Join *j, Builder *b, uint32_t i, Value acc, ValueMap *m) {
  Value factor = tile_yield(j->correct)->args[i];
  if (tile_is_const(j->t->from, factor, 1)) return acc;
  return tile_scaled(b, acc, need(j, b, factor, m));
}

// new = kind(old * factor(old, new), part * factor(part, new) of all parts),
// one by one.
static void join(Join *j, Builder *b, const Value *old, const Value *part,
                 const ValueMap *m, Value *out) {
  ValueMap mo = tile_map_copy(j->t, m), mp = tile_map_copy(j->t, m);
  const IrAttr *kinds = ir_attr(j->op, AT_KINDS);
  uint32_t n = j->op->nres;
  for (uint32_t i = 0; i < n; i++) {
    RKind kind = (RKind)kinds->list[i];
    vmap_put(&mo, j->correct->params.at[i], old[i]);
    vmap_put(&mp, j->correct->params.at[i], part[i]);
    Value x = moved(j, b, i, old[i], &mo), y = moved(j, b, i, part[i], &mp);
    if (j->together > 1) y = ir_reduce(b, kind, y, &j->axis, 1);
    out[i] = ir_combine(b, kind, x, y);
    vmap_put(&mo, j->correct->params.at[n + i], out[i]);
    vmap_put(&mp, j->correct->params.at[n + i], out[i]);
  }
}

// Accumulators of part p + turn, or of those beside each other from there on.
// Behind the last one nothing is read: there are those of no keys.
static void load_parts(const Join *j, Builder *b, Value p, uint32_t turn,
                       const Value *none, Value *part) {
  Value there = 0;
  if (turn) p = ir_2(b, OP_ADD, p, ir_const_i(b, DT_I64, turn));
  if (j->together > 1) {
    Dim n = dim_const(&j->t->to->mod->dims, j->together);
    p = ir_2(b, OP_ADD, p, ir_iota(b, j->axis, n));
  }
  if (turn || j->together > 1) {
    there = ir_2(b, OP_LT, p, j->parts);
    p = ir_3(b, OP_SELECT, there, p, ir_const_i(b, DT_I64, -1));
  }
  for (uint32_t i = 0; i < j->op->nres; i++) {
    Value at[MAX_AXES + 2];
    uint32_t k = place(j->t, b, i, p, at);
    part[i] = ir_load(b, j->t->partial[i], at, k);
    DType type = ir_type(j->t->from, j->op->res[i])->dtype;
    Op *load = ir_def(b->fn, part[i]);
    part[i] = ir_cast(b, type, part[i]);
    if (there) part[i] = ir_3(b, OP_SELECT, there, part[i], none[i]);
    else if (j->t->plan.lane < 0)
      ir_set_attr(b->fn, load, attr_i(AT_INBOUNDS, 1));
  }
}

// How many parts there are to join, if there are several.
static Value parts_to_join(Tiler *t, Builder *b) {
  if (!t->plan.counted) return ir_dim(b, t->plan.parts);
  Value at[MAX_AXES + 1];
  Value row = t->plan.lane >= 0 ? t->origin[t->plan.lane] : 0;
  uint32_t k = count_place(t, ir_const_i(b, DT_I64, 0), row, at);
  Value n = ir_cast(b, DT_I64, ir_load(b, t->counts, at, k));
  // The one part of a sequence has stored the results.
  t->whole = ir_2(b, OP_LT, ir_const_i(b, DT_I64, 1), n);
  return ir_3(b, OP_SELECT, t->whole, n, ir_const_i(b, DT_I64, 0));
}

void tile_split_join(Tiler *t, Builder *b, const Op *op, const ValueMap *m,
                     Value *acc) {
  Join j = {.t = t, .op = op, .correct = op->regions[2]};
  plan_join(&j);
  uint32_t n = op->nres;
  Value *args = NEWN(m->arena, Value, 2 * n + 3), *old = args + n + 3;
  Value *part = NEWN(m->arena, Value, n * j.turns + 1);
  Value *none = NEWN(m->arena, Value, n + 1);
  Type *types = NEWN(m->arena, Type, n + 1);
  args[0] = ir_const_i(b, DT_I64, 0);
  args[1] = j.parts = parts_to_join(t, b);
  args[2] = ir_const_i(b, DT_I64, j.together * j.turns);
  for (uint32_t i = 0; i < n; i++) {
    types[i] = *ir_type(b->fn, acc[i]);
    args[i + 3] = none[i] = acc[i];
  }
  Op *loop = ir_op(b, OP_FOR, args, n + 3, NULL, 0, types, n, 1);
  Region *r = loop->regions[0];
  Builder in = {.fn = b->fn, .region = r, .span = b->span};
  Value p = ir_region_param(r, type_scalar(DT_I64), "part");
  for (uint32_t i = 0; i < n; i++)
    old[i] = ir_region_param(r, types[i], ir_info(t->from, op->res[i])->hint);
  for (uint32_t u = 0; u < j.turns; u++)
    load_parts(&j, &in, p, u, none, part + u * n);
  for (uint32_t u = 0; u < j.turns; u++) {
    join(&j, &in, old, part + u * n, m, acc);
    memcpy(old, acc, n * sizeof *old);
  }
  ir_yield(&in, acc, n);
  for (uint32_t i = 0; i < n; i++) acc[i] = loop->res[i];
}

// The sums of the warps that keys are dealt to: each has its own in the frame
// of all, and these are joined.
static void join_others(Tiler *t, Builder *b, const Op *op, const ValueMap *m,
                        Value *acc) {
  Join j = {.t = t, .op = op, .correct = op->regions[2]};
  const IrAttr *kinds = ir_attr(op, AT_KINDS);
  uint32_t n = op->nres;
  ValueMap own = tile_map_copy(t, m);
  for (uint32_t i = 0; i < n; i++) {
    IrAttr kind = attr_i(AT_KIND, kinds->list[i]);
    vmap_put(&own, j.correct->params.at[i], acc[i]);
    Value x = moved(&j, b, i, acc[i], &own);
    Type type = *ir_type(b->fn, x);
    acc[i] = ir_op(b, OP_OTHERS, &x, 1, &kind, 1, &type, 1, 0)->res[0];
    vmap_put(&own, j.correct->params.at[n + i], acc[i]);
  }
}

// Those of the CTAs of a cluster, in their order.
static void join_peers(Tiler *t, Builder *b, const Op *op, const ValueMap *m,
                       Value *acc) {
  Join j = {.t = t, .op = op, .correct = op->regions[2]};
  const IrAttr *kinds = ir_attr(op, AT_KINDS);
  uint32_t n = op->nres, peers = (uint32_t)t->plan.cluster;
  const Value *part = tile_cluster_parts(t, b, acc, n);
  ValueMap *own = NEWN(m->arena, ValueMap, peers + 1);
  for (uint32_t r = 0; r < peers; r++) {
    own[r] = tile_map_copy(t, m);
    for (uint32_t i = 0; i < n; i++)
      vmap_put(&own[r], j.correct->params.at[i], part[i * peers + r]);
  }
  for (uint32_t i = 0; i < n; i++) {
    for (uint32_t r = 0; r < peers; r++) {
      Value x = moved(&j, b, i, part[i * peers + r], &own[r]);
      acc[i] = r ? ir_combine(b, (RKind)kinds->list[i], acc[i], x) : x;
    }
    for (uint32_t r = 0; r < peers; r++)
      vmap_put(&own[r], j.correct->params.at[n + i], acc[i]);
  }
}

void tile_split_store(Tiler *t, Builder *b, const Op *op, ValueMap *m,
                      Value *acc) {
  if (op == t->plan.deals) join_others(t, b, op, m, acc);
  if (op == t->plan.joins) join_peers(t, b, op, m, acc);
  if (op == t->plan.joins) tile_cluster_slice(t, b, m);
  if (op != t->plan.split) return;
  IrAttr masked = {.id = AT_MASKED, .i = 1};
  Value joined = 0, one = ir_const_i(b, DT_I64, 1);
  if (t->whole) joined = ir_2(b, OP_LT, one, ir_dim(b, t->plan.parts));
  Value several = joined;
  if (t->nparts) {
    several = ir_2(b, OP_LT, one, t->nparts);
    t->whole = is_whole(t, b);
  }
  if (t->nparts) tell_parts(t, b, joined);
  bool branch = several && tile_split_branches(t);
  bool mask = several && !(branch && t->plan.part >= 0);
  Builder in = branch ? tile_if(b, several) : *b;
  for (uint32_t i = 0; i < op->nres; i++) {
    DType type = ir_type(t->to, t->partial[i])->dtype;
    Value args[MAX_AXES + 4] = {t->partial[i], ir_cast(&in, type, acc[i])};
    uint32_t nargs = 2 + place(t, &in, i, t->part, args + 2);
    if (mask) args[nargs++] = several;
    ir_op(&in, OP_STORE, args, nargs, &masked, mask, NULL, 0, 0);
  }
  if (branch) ir_yield(&in, NULL, 0);
}
