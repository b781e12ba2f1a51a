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
//             %S = M[0]; for(parts before) { %S = %S * 2 ** g + M[part + 1] }
//             for chunks of the part ..
//             store of the last state           by the last part
//           }
//
// A part is an affine map of the state before it: a factor, or one per row, and
// what the part wrote. The last part has no need
// of it, so the first phase has no tasks if there is one part only. The number
// of parts is a function of the shape and the target. For recurrences of
// tilematrix.c.
#include "passes/tilestep.h"

#include "ir/target.h"

enum { FEWEST_STEPS = 2048, SMALL_ROWS = 128 };

// ---------------------------------------------------------------- plan
static void find_walk(void *data, Op *op) {
  const Op **found = data;
  bool other = op->code == OP_RECUR || op->code == OP_MAXPLUS;
  if (op->code != OP_AFFINE && !other) return;
  *found = *found || other ? op->parent->first : op;
}

static bool splits(const Func *f, const Op *op, int lane) {
  Affine a;
  if (!op || op->code != OP_AFFINE || lane < 0 || !affine_parts(op, &a) ||
      a.limit || step_erases(&a) || ir_type(f, op->res[0])->n > MAX_AXES - 2)
    return false;
  if (!type_has_axis(ir_type(f, op->res[0]), (uint32_t)lane)) return false;
  for (uint32_t k = 0; k < a.nwrites; k++)
    if (!type_has_axis(ir_type(f, a.write[k].b), a.row) ||
        !type_has_axis(ir_type(f, a.write[k].w), (uint32_t)lane))
      return false;
  for (uint32_t k = 0; k < a.nreads; k++)
    if (!type_has_axis(ir_type(f, a.read[k].q), a.row)) return false;
  return true;
}

static Dim tasks(const Func *f, const TilePlan *p) {
  DimTab *d = &f->mod->dims;
  Dim n = dim_const(d, 1);
  for (uint32_t a = 0; a < f->axes.n; a++) {
    bool lane = (int)a == p->lane;
    if (f->axes.at[a].role != AX_PAR && !lane) continue;
    Dim e = f->axes.at[a].extent;
    n = dim_bin(d, DIM_MUL, n, lane ? dim_ceildiv(d, e, p->tile_q) : e);
  }
  return n;
}

void parts_plan(Ctx *cx, const Func *f, const PassOpt *opt, TilePlan *p) {
  const Target *tg = target_by_name(opt->target);
  const Op *walk = NULL;
  int64_t rows = SMALL_ROWS, chunk = p->chunk ? p->chunk : GPU_CHUNK;
  ir_walk(f->body, find_walk, &walk);
  if (!splits(f, walk, p->lane) || chunk == 1) return;
  Affine a;
  affine_parts(walk, &a);
  DimTab *d = &f->mod->dims;
  dim_is_const(d, f->axes.at[a.row].extent, &rows);
  // Others may have no room for chunks.
  if (step_narrow(f, &a) == DT_NONE || rows > 2 * SMALL_ROWS) return;
  // Small states leave room for two tasks on a multiprocessor.
  int64_t room = tg->gpu.sms * (rows <= SMALL_ROWS ? 2 : 1);
  Dim one = dim_const(d, 1), steps = f->axes.at[a.axis].extent;
  Dim have = dim_bin(d, DIM_MAX, tasks(f, p), one);
  Dim want = dim_bin(d, DIM_FLOORDIV, dim_const(d, room), have);
  Dim most = dim_bin(d, DIM_FLOORDIV, steps, dim_const(d, FEWEST_STEPS));
  p->walk = walk;
  p->parts = dim_bin(d, DIM_MAX, dim_bin(d, DIM_MIN, want, most), one);
  Dim each = dim_bin(d, DIM_MUL, p->parts, dim_const(d, chunk));
  Dim up = dim_bin(d, DIM_ADD, each, dim_const(d, -1));
  up = dim_bin(d, DIM_FLOORDIV, dim_bin(d, DIM_ADD, steps, up), each);
  p->part_keys = dim_bin(d, DIM_MUL, up, dim_const(d, chunk));
  ctx_remark(cx, "%s: with fewer than %lld tasks steps are split into parts of "
             "%d and more, whose states a first phase finds", f->name,
             (long long)room, FEWEST_STEPS);
}

// ---------------------------------------------------------------- workspace
// Parts but the last: none if there is one.
static Dim parts_before(const Tiler *t) {
  DimTab *d = &t->to->mod->dims;
  return dim_bin(d, DIM_ADD, t->plan.parts, dim_const(d, -1));
}

static Dim slots(const Tiler *t) {
  DimTab *d = &t->to->mod->dims;
  Dim some = dim_bin(d, DIM_MIN, parts_before(t), dim_const(d, 1));
  return dim_bin(d, DIM_MUL, t->plan.parts, some);
}

typedef enum What { STATES, DECAYS } What;

// Decays have no columns, and rows only if each has its own.
static bool varies(const Tiler *t, What which, uint32_t axis) {
  Affine a;
  if (which == STATES || t->from->axes.at[axis].role == AX_PAR) return true;
  affine_parts(t->plan.walk, &a);
  return a.decay && axis == a.row && type_has_axis(ir_type(t->from, a.decay), axis);
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

Type parts_decay(const Tiler *t) {
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
      shape[n++] = t->from->axes.at[s->axis[k]].extent;
  return ir_param(t->to, intern(&t->cx->names, name), PR_SHARED,
                  type_tensor(DT_F32, n, shape));
}

void parts_params(Tiler *t) {
  if (!t->plan.walk) return;
  t->partial = NEWN(t->to->mod->arena, Value, 2);
  t->partial[STATES] = param(t, "states", STATES);
  t->partial[DECAYS] = param(t, "decays", DECAYS);
}

// ---------------------------------------------------------------- tasks
void parts_open(Tiler *t, Builder *b) {
  if (!t->plan.walk) return;
  bool states = t->share == SHARE_STATES;
  Dim n = states ? parts_before(t) : t->plan.parts;
  uint32_t a = ir_axis(t->to, "part", AX_PAR, n);
  vec_push(t->to->mod->arena, &t->to->grid, ((GridDim){a, 1}));
  Type i64 = type_scalar(DT_I64);
  IrAttr at = {.id = AT_AXIS, .i = a};
  t->part = ir_op(b, OP_ORIGIN, NULL, 0, &at, 1, &i64, 1, 0)->res[0];
  if (!states)
    t->last = ir_2(b, OP_EQ, ir_2(b, OP_ADD, t->part, ir_const_i(b, DT_I64, 1)),
                   ir_dim(b, t->plan.parts));
}

void parts_bounds(const Tiler *t, Builder *b, Value end, Value *lo,
                  Value *stop) {
  Value size = ir_dim(b, t->plan.part_keys);
  *lo = ir_2(b, OP_MUL, t->part, size);
  *stop = ir_2(b, OP_MIN, ir_2(b, OP_ADD, *lo, size), end);
}

static void put(Tiler *t, Builder *b, What which, Value v, Value part,
                Value mask) {
  Value args[MAX_AXES + 4] = {t->partial[which], v};
  uint32_t n = 2 + place(t, which, part, args + 2);
  IrAttr masked = attr_i(AT_MASKED, 1);
  if (mask) args[n++] = mask;
  ir_op(b, OP_STORE, args, n, &masked, mask != 0, NULL, 0, 0);
}

void parts_store(Tiler *t, Builder *b, Value first, Value state, Value decay) {
  Value zero = ir_const_i(b, DT_I64, 0), one = ir_const_i(b, DT_I64, 1);
  put(t, b, STATES, first, zero, ir_2(b, OP_EQ, t->part, zero));
  put(t, b, STATES, state, ir_2(b, OP_ADD, t->part, one), 0);
  put(t, b, DECAYS, decay, t->part, 0);
}

static Value get(Tiler *t, Builder *b, What which, Value part) {
  Value at[MAX_AXES];
  uint32_t n = place(t, which, part, at);
  return ir_load(b, t->partial[which], at, n);
}

// What the parts before make of the first state.
Value parts_join(Tiler *t, Builder *b, Value first) {
  const Type type = *ir_type(b->fn, first);
  Value one = ir_const_i(b, DT_I64, 1), zero = ir_const_i(b, DT_I64, 0);
  Value several = ir_2(b, OP_LT, one, ir_dim(b, t->plan.parts));
  Op *br = ir_op(b, OP_IF, &several, 1, NULL, 0, &type, 1, 2);
  Builder in = {.fn = b->fn, .region = br->regions[1], .span = b->span};
  ir_yield(&in, &first, 1);
  in.region = br->regions[0];
  Value args[] = {zero, t->part, one, get(t, &in, STATES, zero)};
  Op *loop = ir_op(&in, OP_FOR, args, 4, NULL, 0, &type, 1, 1);
  Builder body = {.fn = b->fn, .region = loop->regions[0], .span = b->span};
  Value j = ir_region_param(body.region, type_scalar(DT_I64), "part");
  Value s = ir_region_param(body.region, type, "state");
  s = ir_2(&body, OP_MUL, s, ir_1(&body, OP_EXP2, get(t, &body, DECAYS, j)));
  s = ir_2(&body, OP_ADD, s, get(t, &body, STATES, ir_2(&body, OP_ADD, j, one)));
  ir_yield(&body, &s, 1);
  ir_yield(&in, loop->res, 1);
  return br->res[0];
}
