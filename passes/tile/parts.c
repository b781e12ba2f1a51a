// Splitting the steps of a recurrence among tasks, where there are too few
// otherwise (part of the pass `tile`).
//
//   before  func @p(..) grid(b:1, h:1, v:64) { %S = for chunks .. }
//   after   func @p.states(.., %M: tensor<f32[P, ..]> shared, %g: ..)
//               grid(b:1, h:1, v:64, part:1) {
//             %S, %g = for chunks of the part, from 0, nothing read
//             store(%M, %S, part + 1, ..)       and M[0] = the first state
//           }
//           func @p(..) grid(b:1, h:1, v:64, part:1) {
//             %S = M[0]; for(pieces before) { %S = %S * 2 ** g + M[piece + 1] }
//             for chunks of the part ..
//             store of the last state           by the last part
//           }
//
// A part is an affine map of the state before it: a factor, or one per row, and
// what the part wrote. The last part has no need
// of it, so the first phase has no tasks if there is one part only. Where that
// leaves multiprocessors idle it finds pieces of parts (2 of 2 parts, say). The
// number of parts is a function of the shape and the target. For recurrences of
// matrix.c, and for running maxima alone, m' = max(m + a, b): a part adds
// the sum of its a and makes it at least what it made of nothing (max.c).
// linear.c has those whose writes erase.
#include "passes/support/cost.h"
#include "passes/tile/step.h"

#include "ir/target.h"

// ---------------------------------------------------------------- plan
typedef struct Found {
  const Func *f;
  const Op *walk;
  uint32_t n;
} Found;

static void find_walk(void *data, Op *op) {
  Found *x = data;
  Value g;
  bool is = op->code == OP_AFFINE || op->code == OP_MAXPLUS;
  if (!is && op->code != OP_RECUR) return;
  x->n++;
  if (is || tile_recur_sums(x->f, op, &g)) x->walk = op;
}

// The only recurrence of f, if it is one that may be split.
static const Op *parts_walk(const Func *f) {
  Found x = {.f = f};
  ir_walk(f->body, find_walk, &x);
  return x.n == 1 ? x.walk : NULL;
}

static bool splits(const Func *f, const Op *op, const TilePlan *p,
                   const Target *tg) {
  int lane = p->lane;
  Affine a;
  if (op && op->code == OP_RECUR)
    return tg->gpu.hopper && lane >= 0 &&
           type_has_axis(ir_type(f, op->res[0]), (uint32_t)lane) &&
           ir_type(f, op->res[0])->n <= MAX_AXES - 2;
  if (op && lane < 0 && tg->gpu.hopper && !ir_attr_i(op, AT_LIMIT, 0))
    return op->code == OP_MAXPLUS || tile_matrix_bare(f, op);
  if (!op || lane < 0 || !affine_parts(op, &a) || a.limit ||
      (tile_step_erases(&a) ? !tile_erase_suits(f, &a, p, tg) : a.front != 0) ||
      ir_type(f, op->res[0])->n > MAX_AXES - 2)
    return false;
  if (!type_has_axis(ir_type(f, op->res[0]), (uint32_t)lane)) return false;
  for (uint32_t k = 0; k < a.nwrites; k++)
    if (!type_has_axis(ir_type(f, a.write[k].b), a.row) ||
        (!type_has_axis(ir_type(f, a.write[k].w), (uint32_t)lane) &&
         !tile_erase_only(f, &a.write[k])))
      return false;
  for (uint32_t k = 0; k < a.nreads; k++)
    if (!type_has_axis(ir_type(f, a.read[k].q), a.row)) return false;
  return true;
}

// Of as many columns.
static Dim tasks(const Func *f, const TilePlan *p, Dim columns) {
  DimTab *d = &f->mod->dims;
  Dim n = dim_const(d, 1);
  for (uint32_t a = 0; a < f->axes.n; a++) {
    bool lane = (int)a == p->lane;
    if (f->axes.at[a].role != AX_PAR && !lane) continue;
    Dim e = lane ? dim_ceildiv(d, columns, p->tile_q) : f->axes.at[a].extent;
    n = dim_bin(d, DIM_MUL, n, e);
  }
  return n;
}

static Dim all_tasks(const Func *f, const TilePlan *p) {
  DimTab *d = &f->mod->dims;
  Dim columns = p->lane < 0 ? dim_const(d, 1) : f->axes.at[p->lane].extent;
  return dim_bin(d, DIM_MAX, tasks(f, p, columns), dim_const(d, 1));
}

// Up to n parts of at least n chunks each: rounded up to whole chunks they
// still leave the last part some.
static Dim parts_of(DimTab *d, Dim steps, int64_t chunk, int64_t n) {
  Dim most = dim_bin(d, DIM_FLOORDIV, steps, dim_const(d, n * chunk));
  return dim_bin(d, DIM_MIN, most, dim_const(d, n));
}

// n steps in k pieces of whole chunks.
static Dim piece(DimTab *d, Dim n, Dim k, int64_t chunk) {
  Dim each = dim_bin(d, DIM_MUL, k, dim_const(d, chunk));
  Dim up = dim_bin(d, DIM_ADD, each, dim_const(d, -1));
  up = dim_bin(d, DIM_FLOORDIV, dim_bin(d, DIM_ADD, n, up), each);
  return dim_bin(d, DIM_MUL, up, dim_const(d, chunk));
}

// Parts of a recurrence that erases nothing.
static Dim some_parts(DimTab *d, Dim steps, int64_t chunk, Dim have,
                      int64_t room) {
  Dim want = dim_bin(d, DIM_FLOORDIV, dim_const(d, room), have);
  Dim most = dim_bin(d, DIM_MAX, parts_of(d, steps, chunk, COST_WALK_FEW_PARTS),
                     parts_of(d, steps, chunk, COST_WALK_MOST_PARTS));
  return dim_bin(d, DIM_MIN, want, most);
}

// Chunks of what has no columns take a few microseconds.
static Dim small_parts(DimTab *d, Dim steps, int64_t chunk, Dim have,
                       int64_t room) {
  Dim want = dim_bin(d, DIM_FLOORDIV, dim_const(d, room), have);
  Dim most = dim_const(d, 1);
  for (int64_t n = COST_MAXIMA_CHUNKS; n <= COST_MAXIMA_MOST; n *= 2)
    most = dim_bin(d, DIM_MAX, most, parts_of(d, steps, chunk, n));
  return dim_bin(d, DIM_MIN, want, most);
}

// What a plan of parts is made of.
typedef struct Work {
  const Op *walk;
  Affine a;             // of an affine
  Dim steps, have;      // tasks without parts
  int64_t chunk, room;  // tasks that fit
  int64_t fewest;       // steps of a part
} Work;

static Dim wanted(const Func *f, const TilePlan *p, const Work *w) {
  DimTab *d = &f->mod->dims;
  if (!p->linear) {
    Dim n = (p->lane < 0 ? small_parts : some_parts)(d, w->steps, w->chunk,
                                                     w->have, w->room);
    return dim_bin(d, DIM_MAX, n, dim_const(d, 1));
  }
  Dim most = dim_bin(d, DIM_FLOORDIV, w->steps, dim_const(d, w->fewest));
  Dim maps = tasks(f, p, f->axes.at[w->a.row].extent);
  return tile_linear_parts(d, w->have, maps, most, w->room);
}

// Steps are products of chunks, whose operands the first phase reads too: one
// task for each multiprocessor. All rows of a state are a task's.
static bool has_recur_room(const Func *f, const Target *tg, const TilePlan *p,
                           Work *w) {
  const Type *s = ir_type(f, w->walk->res[0]);
  int64_t rows = 1, n;
  for (uint32_t k = 0; k < s->n; k++) {
    if (f->axes.at[s->axis[k]].role == AX_PAR || (int)s->axis[k] == p->lane)
      continue;
    if (!dim_is_const(&f->mod->dims, f->axes.at[s->axis[k]].extent, &n))
      return false;
    rows *= n;
  }
  w->room = tg->gpu.sms;
  w->fewest = COST_WALK_FEW_PARTS * w->chunk;
  return rows <= 2 * COST_WALK_ROWS;
}

// Small states leave room for two tasks on a multiprocessor. Others than of
// COST_WALK_ROWS may have no room for chunks.
static bool has_room(const Func *f, const Target *tg, TilePlan *p, Work *w) {
  int64_t rows = COST_WALK_ROWS;
  if (w->walk->code == OP_MAXPLUS) {
    w->room = COST_MAXIMA_TASKS * (int64_t)tg->gpu.sms;
    w->fewest = COST_MAXIMA_CHUNKS * w->chunk;
    return true;
  }
  if (w->walk->code == OP_RECUR) return has_recur_room(f, tg, p, w);
  affine_parts(w->walk, &w->a);
  p->linear = tile_step_erases(&w->a);
  dim_is_const(&f->mod->dims, f->axes.at[w->a.row].extent, &rows);
  bool two = rows <= COST_WALK_ROWS && !p->linear;
  w->room = tg->gpu.sms * (two ? 2 : 1);
  int64_t few = p->lane < 0 ? COST_MAXIMA_CHUNKS : COST_WALK_FEW_PARTS;
  w->fewest = p->linear ? COST_WALK_LINEAR_STEPS : few * w->chunk;
  return lane_narrow(f, &w->a) != DT_NONE && rows <= 2 * COST_WALK_ROWS;
}

static void cut(const Func *f, TilePlan *p, const Work *w) {
  DimTab *d = &f->mod->dims;
  Dim one = dim_const(d, 1);
  p->walk = w->walk;
  p->part_keys = piece(d, w->steps, p->parts, w->chunk);
  Dim before = dim_bin(d, DIM_ADD, p->parts, dim_const(d, -1));
  Dim busy = dim_bin(d, DIM_MAX, dim_bin(d, DIM_MUL, w->have, before), one);
  p->pieces = dim_bin(d, DIM_FLOORDIV, dim_const(d, w->room), busy);
  p->pieces = dim_bin(d, DIM_MIN, p->pieces, dim_const(d, COST_WALK_PIECES));
  bool whole = p->linear || w->walk->code == OP_MAXPLUS;
  p->pieces = whole ? one : dim_bin(d, DIM_MAX, p->pieces, one);
  p->piece_keys = piece(d, p->part_keys, p->pieces, w->chunk);
}

void tile_parts_plan(Ctx *cx, const Func *f, const PassOpt *opt, TilePlan *p) {
  const Target *tg = opt->target;
  Work w = {.walk = parts_walk(f),
            .chunk = p->chunk ? p->chunk : COST_GPU_CHUNK};
  if (!splits(f, w.walk, p, tg)) return;
  bool recur = w.walk->code == OP_RECUR;
  if (recur) w.chunk = 1;
  if ((w.chunk == 1 && !recur) || !has_room(f, tg, p, &w)) return;
  DimTab *d = &f->mod->dims;
  uint32_t axis = (uint32_t)ir_attr_i(w.walk, AT_AXIS, 0);
  w.steps = f->axes.at[axis].extent;
  w.have = all_tasks(f, p);
  p->parts = wanted(f, p, &w);
  int64_t fewest_parts, most_parts;
  dim_bounds(d, p->parts, &fewest_parts, &most_parts);
  if (most_parts == 1) {  // few steps
    p->linear = false;
    return;
  }
  cut(f, p, &w);
  ctx_remark(cx,
             "%s: with fewer than %lld tasks steps are split into parts of "
             "%lld and more, whose states a first phase finds",
             f->name, (long long)w.room, (long long)w.fewest);
}

// ---------------------------------------------------------------- workspace
// Pieces of the parts but the last: none if there is one.
static Dim pieces_before(const Tiler *t) {
  DimTab *d = &t->to->mod->dims;
  Dim parts = dim_bin(d, DIM_ADD, t->plan.parts, dim_const(d, -1));
  return dim_bin(d, DIM_MUL, parts, t->plan.pieces);
}

static Dim slots(const Tiler *t) {
  DimTab *d = &t->to->mod->dims;
  Dim some = dim_bin(d, DIM_MIN, pieces_before(t), dim_const(d, 1));
  return dim_bin(d, DIM_ADD, pieces_before(t), some);
}

typedef enum What { STATES, DECAYS } What;

// Decays have rows or columns only if each has its own.
static bool varies(const Tiler *t, What which, uint32_t axis) {
  Affine a;
  if (which == STATES || t->from->axes.at[axis].role == AX_PAR) return true;
  Value g = 0;
  if (t->plan.walk->code == OP_RECUR)
    tile_recur_sums(t->from, t->plan.walk, &g);
  else if (affine_parts(t->plan.walk, &a)) g = a.decay;
  return g && type_has_axis(ir_type(t->from, g), axis);
}

// The coordinates of the task's state or decays behind a part's.
static uint32_t place(const Tiler *t, What which, Value part, Value *at) {
  const Type *s = ir_type(t->from, t->plan.walk->res[0]);
  uint32_t n = 0;
  at[n++] = part;
  for (uint32_t k = 0; k < s->n; k++)
    if (varies(t, which, s->axis[k])) at[n++] = t->coord[s->axis[k]];
  return n;
}

Type tile_parts_decay(const Tiler *t) {
  const Type *s = ir_type(t->from, t->plan.walk->res[0]);
  Type d = type_scalar(DT_F32);
  for (uint32_t k = 0; k < s->n; k++)
    if (t->from->axes.at[s->axis[k]].role != AX_PAR &&
        varies(t, DECAYS, s->axis[k]))
      d = type_with(d, s->axis[k], s->size[k]);
  return tile_type(t, &d);
}

static Value param(Tiler *t, const char *name, What which) {
  const Type *s = ir_type(t->from, t->plan.walk->res[0]);
  Dim shape[MAX_AXES] = {slots(t)};
  uint32_t n = 1;
  for (uint32_t k = 0; k < s->n; k++)
    if (varies(t, which, s->axis[k]))
      shape[n++] = tile_linear_extent(t, s->axis[k]);
  return ir_param(t->to, intern(&t->cx->names, name), PR_SHARED,
                  type_tensor(DT_F32, n, shape));
}

void tile_parts_params(Tiler *t) {
  if (!t->plan.walk) return;
  t->partial = NEWN(t->to->mod->arena, Value, 2);
  t->partial[STATES] = param(t, "states", STATES);
  if (!t->plan.linear) t->partial[DECAYS] = param(t, "decays", DECAYS);
}

// ---------------------------------------------------------------- tasks
// 1 if there is a state to join, else 0.
static Dim some_joins(const Tiler *t) {
  DimTab *d = &t->to->mod->dims;
  Dim more = dim_bin(d, DIM_ADD, t->plan.parts, dim_const(d, -2));
  more = dim_bin(d, DIM_MAX, more, dim_const(d, 0));
  return dim_bin(d, DIM_MIN, more, dim_const(d, 1));
}

void tile_parts_open(Tiler *t, Builder *b) {
  if (!t->plan.walk) return;
  bool states = t->share == SHARE_STATES;
  Dim n = states ? pieces_before(t) : t->plan.parts;
  if (t->share == SHARE_JOINS) n = some_joins(t);
  uint32_t a = ir_axis(t->to, "part", AX_PAR, n);
  vec_push(t->to->mod->arena, &t->to->grid, ((GridDim){.axis = a, .tile = 1}));
  t->part = ir_origin(b, a);
  if (!states) {
    Value parts = ir_dim(b, t->plan.parts);
    Value next = ir_2(b, OP_ADD, t->part, ir_const_i(b, DT_I64, 1));
    t->last = ir_2(b, OP_EQ, next, parts);
  }
}

// Of a piece: within its part.
void tile_parts_bounds(const Tiler *t, Builder *b, Value end, Value *lo,
                       Value *stop) {
  Value size = ir_dim(b, t->plan.part_keys), part = t->part, first = 0;
  if (t->share == SHARE_STATES) {
    Value n = ir_dim(b, t->plan.pieces);
    part = ir_2(b, OP_FLOORDIV, t->part, n);
    Value piece = ir_dim(b, t->plan.piece_keys);
    first = ir_2(b, OP_MUL, ir_2(b, OP_MOD, t->part, n), piece);
  }
  *lo = ir_2(b, OP_MUL, part, size);
  *stop = ir_2(b, OP_MIN, ir_2(b, OP_ADD, *lo, size), end);
  if (!first) return;
  *lo = ir_2(b, OP_ADD, *lo, first);
  Value last = ir_2(b, OP_ADD, *lo, ir_dim(b, t->plan.piece_keys));
  *stop = ir_2(b, OP_MIN, last, *stop);
  if (t->plan.linear && t->share == SHARE_STATES)
    *stop = tile_linear_stop(t, b, *lo, *stop);
}

static void put(Tiler *t, Builder *b, What which, Value v, Value part) {
  Value at[MAX_AXES];
  uint32_t n = place(t, which, part, at);
  ir_store(b, t->partial[which], v, at, n);
}

void tile_parts_store(Tiler *t, Builder *b, Value state, Value decay) {
  Value one = ir_const_i(b, DT_I64, 1);
  put(t, b, STATES, state, ir_2(b, OP_ADD, t->part, one));
  put(t, b, DECAYS, decay, t->part);
}

// A branch of the first piece, whose region 0 copies the first state.
Op *tile_parts_copy(Tiler *t, Builder *b) {
  Value first = ir_2(b, OP_EQ, t->part, ir_const_i(b, DT_I64, 0));
  Op *br = ir_op(b, OP_IF, &first, 1, NULL, 0, NULL, 0, 2);
  Builder in = {.fn = b->fn, .region = br->regions[1], .span = b->span};
  ir_yield(&in, NULL, 0);
  return br;
}

void tile_parts_store_first(Tiler *t, Builder *b, Value first) {
  put(t, b, STATES, first, ir_const_i(b, DT_I64, 0));
  ir_yield(b, NULL, 0);
}

static Value get(Tiler *t, Builder *b, What which, Value part) {
  Value at[MAX_AXES];
  uint32_t n = place(t, which, part, at);
  return ir_load(b, t->partial[which], at, n);
}

// What the pieces before make of the first state. Region 1 is for one part
// only.
Op *tile_parts_join(Tiler *t, Builder *b, Type type) {
  Value one = ir_const_i(b, DT_I64, 1), zero = ir_const_i(b, DT_I64, 0);
  Value several = ir_2(b, OP_LT, one, ir_dim(b, t->plan.parts));
  Op *br = ir_op(b, OP_IF, &several, 1, NULL, 0, &type, 1, 2);
  Builder in = {.fn = b->fn, .region = br->regions[0], .span = b->span};
  Value n = ir_2(&in, OP_MUL, t->part, ir_dim(&in, t->plan.pieces));
  Value args[] = {zero, n, one, get(t, &in, STATES, zero)};
  Op *loop = ir_op(&in, OP_FOR, args, 4, NULL, 0, &type, 1, 1);
  Builder body = {.fn = b->fn, .region = loop->regions[0], .span = b->span};
  Value j = ir_region_param(body.region, type_scalar(DT_I64), "part");
  Value s = ir_region_param(body.region, type, "state");
  Value g = get(t, &body, DECAYS, j);
  Value w = get(t, &body, STATES, ir_2(&body, OP_ADD, j, one));
  bool maxima = t->plan.walk->code == OP_MAXPLUS;
  s = maxima ? ir_2(&body, OP_ADD, s, g)
             : ir_2(&body, OP_MUL, s, ir_1(&body, OP_EXP2, g));
  s = ir_2(&body, maxima ? OP_MAX : OP_ADD, s, w);
  ir_yield(&body, &s, 1);
  ir_yield(&in, loop->res, 1);
  return br;
}
