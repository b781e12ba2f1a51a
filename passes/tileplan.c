// Tile sizes of a program: which parallel axis is cut into tiles (its lanes),
// and how many keys one iteration of a key loop covers.
//
// The lane axis is the parallel axis that lets the most key data be reused: a
// load that varies with a key axis but not with axis x is shared by all lanes
// when x is the lane axis. Ties go to the axis declared last. Sizes are the
// measured optimum of docs/cpu-schedule.md, shrunk to short extents.
#include "ir/target.h"
#include "passes/tile.h"

#include <string.h>

enum { LANES = 16 };  // an axis shorter than this is short

typedef struct Reuse {
  const Func *f;
  bool has_pass;
  uint32_t shared[64];  // per axis: key loads that do not vary with it
  uint32_t varies[64];  // per axis: values that vary with it
} Reuse;

static bool has_key_axis(const Func *f, const Type *t) {
  for (uint32_t i = 0; i < t->n; i++)
    if (f->axes.at[t->axis[i]].role == AX_KEY) return true;
  return false;
}

static void count(void *data, Op *op) {
  Reuse *r = data;
  if (op->code == OP_PASS) r->has_pass = true;
  if (op->nres != 1) return;
  const Type *t = ir_type(r->f, op->res[0]);
  if (t->kind != TK_ELEM) return;
  bool key_load = op->code == OP_LOAD && has_key_axis(r->f, t);
  for (uint32_t a = 0; a < r->f->axes.n; a++) {
    bool has = type_has_axis(t, a);
    r->varies[a] += has;
    r->shared[a] += key_load && !has;
  }
}

static bool has_recur(const Region *r) {
  for (const Op *op = r->first; op; op = op->next)
    if (op->code == OP_RECUR) return true;
  return false;
}

static int64_t extent_bound(const Func *f, uint32_t axis) {
  int64_t lo, hi;
  dim_bounds(&f->mod->dims, f->axes.at[axis].extent, &lo, &hi);
  return hi;
}

static int choose_lane(const Func *f) {
  if (has_recur(f->body)) return -1;
  Reuse r = {.f = f};
  ir_walk(f->body, count, &r);
  int best = -1;
  for (uint32_t a = 0; a < f->axes.n && a < 64; a++) {
    if (f->axes.at[a].role != AX_PAR || !r.varies[a]) continue;
    if (best < 0) {
      best = (int)a;
      continue;
    }
    bool short_a = extent_bound(f, a) < LANES;
    bool short_b = extent_bound(f, (uint32_t)best) < LANES;
    bool better = r.shared[a] >= r.shared[best];
    // A long axis with as much reuse beats a short one.
    if (r.shared[a] == r.shared[best] && short_a != short_b) better = short_b;
    if (better) best = (int)a;
  }
  return best;
}

TilePlan tile_plan(Ctx *cx, const Func *f, const PassOpt *opt) {
  const Target *t = target_by_name(opt->target ? opt->target : "cpu");
  if (!t) t = target_by_name("cpu");
  TilePlan p = {.lane = choose_lane(f),
                .tile_q = opt->tile_q > 0 ? opt->tile_q : t->tile_q,
                .tile_k = opt->tile_k > 0 ? opt->tile_k : t->tile_k};
  if (p.lane < 0) {
    p.tile_q = 1;
    ctx_remark(cx, "%s: no parallel axis is tiled; one task per %s", f->name,
               "point of the parallel axes");
    return p;
  }
  int64_t hi = extent_bound(f, (uint32_t)p.lane);
  const char *why = opt->tile_q > 0 ? "asked for" : "keeps S and P of a key "
                    "tile in the first-level cache";
  if (opt->tile_q <= 0 && hi < p.tile_q) {
    int64_t lanes = t->lanes;
    p.tile_q = hi < lanes ? lanes : (hi + lanes - 1) / lanes * lanes;
    why = "the whole extent in full vectors";
  }
  ctx_remark(cx, "%s: tile %s:%lld (%s), %lld keys a step", f->name,
             f->axes.at[p.lane].name, (long long)p.tile_q, why,
             (long long)p.tile_k);
  return p;
}
