// Running maxima m' = max(m + a, b) over the steps of a chunk (part of the pass
// `tile`): what m is before each step, along every side of the chunk.
//
//   m_t = max(m_0 + A_0t, max of b_s + A_st over s < t)
//         A_st: the sum of a over what lies between s and t
//
// In the algebra of max and + that is an affine recurrence, whose steps compose
// to such a step: a chunk needs no step to wait for another. Sums are over what
// lies between two steps, as those of decays are: an a of -inf forgets what was
// before and nothing else. What one step ends with and the next begins with
// then differ by a rounding, which is a factor of 1 + 2^-23 |A| to states that
// m keeps in range: far below what 16 bits round. So programs of f32, and CPUs,
// walk step by step, and so do GPUs but Hopper: elsewhere tiles of sums take
// 100 registers more than a walk. Maxima that no state of their function waits
// for are found at once there in any case, and steps that are left make a chunk
// too: those behind the last do nothing. Parts of the steps compose as steps do
// (parts.c).
#include "passes/tile/step.h"

#include <math.h>

enum { MAX_SIDES = 2 + 2 * MAX_WALK };

static uint32_t all_sides(Steps *s, Side **side) {
  uint32_t n = 0;
  side[n++] = &s->rows;
  side[n++] = &s->cols;
  for (uint32_t i = 0; i < s->n; i++)
    for (int k = 0; k < 2 && s->wide[i][k].each; k++)
      side[n++] = &s->wide[i][k];
  return n;
}

// ---------------------------------------------------------------- step by step
static void walk_maxima(Steps *s, Builder *b, Value base, const ValueMap *pre,
                        Value *state) {
  Side *side[MAX_SIDES];
  Value all[4 * MAX_WALK], old[4 * MAX_WALK];
  Type type[4 * MAX_WALK];
  uint32_t nside = all_sides(s, side), n = 0;
  for (uint32_t i = 0; i < s->nmax; i++, n++) {
    all[n] = state[s->n + i];
    type[n] = s->type[s->n + i];
  }
  for (uint32_t i = 0; i < s->nmax; i++)
    for (uint32_t k = 0; k < nside && n < 4 * MAX_WALK; k++, n++) {
      type[n] = type_with(type[i], side[k]->axis, side[k]->size);
      all[n] = tile_const(b, type[n], 0);
    }
  StepLoop l = {.hint = "j", .n = n, .all = all, .type = type};
  l.step = ir_const_i(b, DT_I64, 1);
  l.hi = ir_const_i(b, DT_I64, s->chunk);
  l.lo = ir_const_i(b, DT_I64, 0);
  Op *loop = tile_step_loop(b, &l, old);
  Builder in = {.fn = b->fn, .region = loop->regions[0], .span = b->span};
  Value j = in.region->params.at[0];
  ValueMap m = tile_map_copy(s->t, pre);
  s->t->coord[s->axis] =
      tile_step_coordinate(s, &in, ir_2(&in, OP_ADD, base, j));
  for (uint32_t i = 0, at = s->nmax; i < s->nmax; i++) {
    for (uint32_t k = 0; k < nside; k++, at++) {
      Value here = ir_2(&in, OP_EQ, side[k]->step, j);
      old[at] = ir_3(&in, OP_SELECT, here, old[i], old[at]);
      vmap_put(&side[k]->map, s->max[i]->res[1], loop->res[at]);
    }
    tile_step_max(s, &in, i, &old[i], &m);
    state[s->n + i] = loop->res[i];
  }
  ir_yield(&in, old, n);
  s->t->coord[s->axis] = 0;
}

// ---------------------------------------------------------------- at once
// Steps behind the task's last do nothing.
static Value operand(Steps *s, Builder *b, uint32_t i, Side *y, uint32_t k) {
  Value v =
      tile_step_spread(b, tile_step_along(s, b, y, s->max[i]->args[k]), y);
  if (!s->base) return v;
  Value some = ir_2(b, OP_LT, ir_2(b, OP_ADD, s->base, y->step), s->stop);
  return ir_3(b, OP_SELECT, some, v,
              ir_const_f(b, DT_F32, k == 1 ? 0 : -INFINITY));
}

static Value after_each(Builder *b, Value a, const Side *y) {
  return tile_step_scan(b, a, y->axis, DIR_SUFFIX, true);
}

// m after steps along y whose a and b these are, as the last of them leaves it.
static Value composed(Builder *b, Value m, Value a, Value v, const Side *y) {
  Value sum = ir_reduce(b, RK_SUM, a, &y->axis, 1);
  Value top = ir_reduce(b, RK_MAX, v, &y->axis, 1);
  return ir_2(b, OP_MAX, ir_2(b, OP_ADD, m, sum), top);
}

// The maximum before each element of x, of the steps along y.
static Value before_each(Steps *s, Builder *b, uint32_t i, const Side *x,
                         Side *y, Value m) {
  Value earlier = ir_2(b, OP_LT, y->step, x->step);
  Value zero = ir_const_f(b, DT_F32, 0);
  Value none = ir_const_f(b, DT_F32, -INFINITY);
  Value a = ir_3(b, OP_SELECT, earlier, operand(s, b, i, y, 1), zero);
  Value rest = after_each(b, a, y);
  Value v = ir_2(b, OP_ADD, rest, operand(s, b, i, y, 2));
  return composed(b, m, a, ir_3(b, OP_SELECT, earlier, v, none), y);
}

// What all steps of the chunk make of m.
static Value behind_all(Steps *s, Builder *b, uint32_t i, Value m, Value *sum) {
  Side *all = &s->rows;
  Value a = operand(s, b, i, all, 1), rest = after_each(b, a, all);
  Value v = ir_2(b, OP_ADD, rest, operand(s, b, i, all, 2));
  if (sum) *sum = ir_reduce(b, RK_SUM, a, &all->axis, 1);
  return composed(b, m, a, v, all);
}

static void compose_maxima(Steps *s, Builder *b, Value *state) {
  Side *side[MAX_SIDES];
  uint32_t nside = all_sides(s, side);
  for (uint32_t i = 0; i < s->nmax; i++) {
    Value *m = &state[s->n + i];
    for (uint32_t k = 0; k < nside; k++) {
      Side *y = side[k] == &s->rows ? &s->cols : &s->rows;
      vmap_put(&side[k]->map, s->max[i]->res[1],
               before_each(s, b, i, side[k], y, *m));
    }
    *m = behind_all(s, b, i, *m, NULL);
  }
}

// ---------------------------------------------------------------- alone
bool tile_max_fit(const Steps *s) {
  for (uint32_t i = 0; i < s->nmax; i++)
    if (ir_attr_i(s->max[i], AT_LIMIT, 0)) return false;
  return !s->n && s->chunk > 1 && s->t->target->gpu.hopper;
}

static void open(Steps *s, Builder *b, Value base, const ValueMap *pre) {
  s->base = base;
  tile_step_open(s, b, &s->rows, base, pre);
  tile_step_open(s, b, &s->cols, base, pre);
}

void tile_max_chunk(Steps *s, Builder *b, Value base, const ValueMap *pre,
                    Value *state) {
  open(s, b, base, pre);
  compose_maxima(s, b, state);
}

void tile_max_part(Steps *s, Builder *b, Value base, const ValueMap *pre,
                   Value *least, Value *sum) {
  Value own;
  open(s, b, base, pre);
  *least = behind_all(s, b, 0, *least, &own);
  *sum = ir_2(b, OP_ADD, *sum, own);
}

void tile_step_maxima(Steps *s, Builder *b, Value base, const ValueMap *pre,
                      Value *state) {
  if (s->t->target->gpu.hopper && s->narrow != DT_NONE)
    compose_maxima(s, b, state);
  else walk_maxima(s, b, base, pre, state);
}
