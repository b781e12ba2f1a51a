// join_turns: of steps that have a loop of writes each turn becomes a step.
//
//   before  %M = recur(%M0) {axis = t} ({ ^(%S: f32{d,dv}):
//             %a = mul(%f, %S)                       the loop begins with that
//             %N = recur(%a) {axis = i} ({ ^(%R):    t step S, i step 2
//               %k = load(%K, %t, %i, %d)  .. yield(%R1) })
//             store(%O, dot(%q, %N), %t, %dv)  yield(%N) })
//   after   %M = recur(%M0) {axis = t} ({ ^(%S):     t step S * 2
//             %u = floordiv(%t, 2)  %j = mod(%t, 2)
//             %R = mul(select(%j == 0, %f, 1), %S)
//             %k = load(%K, %u, %j, %d)  ..
//             store(%O, dot(%q, %R1), %u, %dv, %j == 1) {masked}  yield(%R1) })
//
// Chunks of matrix units have one write of a step that erases, and so have
// their gradients: what they do for a delta rule is done for a product of such.
// What is stored of the state in front of the loop has the first turn as its
// mask, what is stored of that behind it the last. Where turns are walked one
// by one nothing is gained: steps stay where no vector has 16 bits. sm_90a.
// Level attn, behind canon, in front of gradients. Tests:
// test/passes/join_turns.
#include "ir/deps.h"
#include "passes/pass.h"

// What a value knows of the state: that in front of the loop, within, behind;
// it is made of a product with that within.
enum { IN_FRONT, WITHIN, BEHIND, READ };

typedef struct Turns {
  Func *f;
  Op *recur, *loop;
  uint32_t step, turn;  // axes
  int64_t n;            // turns
  uint8_t *knows;       // by value: bits of these
} Turns;

static bool knows(const Turns *t, Value v, uint32_t what) {
  return t->knows[v] >> what & 1;
}

// ---------------------------------------------------------------- what fits
static bool find_loops(Turns *t) {
  for (Op *op = t->f->body->first; op; op = op->next) {
    if (op->code == OP_RECUR && !t->recur) t->recur = op;
    else if (op->nregions || op->code == OP_CALL) return false;
  }
  for (Op *op = t->recur ? t->recur->regions[0]->first : NULL; op;
       op = op->next) {
    if (op->code == OP_RECUR && !t->loop) t->loop = op;
    else if (op->nregions || op->code == OP_CALL) return false;
  }
  for (Op *op = t->loop ? t->loop->regions[0]->first : NULL; op; op = op->next)
    if (op->nregions || op->code == OP_CALL) return false;
  return t->loop && t->recur->nargs == 1 && t->loop->nargs == 1 &&
         !ir_attr_i(t->recur, AT_REVERSE, 0) &&
         !ir_attr_i(t->loop, AT_REVERSE, 0);
}

static bool has_domain(const Func *f, uint32_t axis) {
  for (const Op *op = f->body->first; op; op = op->next)
    if (op->code == OP_DOMAIN && ir_attr_i(op, AT_AXIS, -1) == axis)
      return true;
  return false;
}

static bool find_axes(Turns *t) {
  t->step = (uint32_t)ir_attr_i(t->recur, AT_AXIS, 0);
  t->turn = (uint32_t)ir_attr_i(t->loop, AT_AXIS, 0);
  Dim turns = t->f->axes.at[t->turn].extent;
  return dim_is_const(&t->f->mod->dims, turns, &t->n) && t->n > 1 &&
         !has_domain(t->f, t->step) && !has_domain(t->f, t->turn);
}

static void learn(Turns *t, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    uint8_t all = 0;
    for (uint32_t i = 0; i < op->nargs; i++) all |= t->knows[op->args[i]];
    bool sum = op->code == OP_DOT || op->code == OP_REDUCE;
    if (sum && (all >> WITHIN & 1)) all |= 1 << READ;
    if (op == t->loop) {
      t->knows[op->regions[0]->params.at[0]] = 1 << WITHIN;
      learn(t, op->regions[0]);
      all = 1 << BEHIND;
    }
    for (uint32_t i = 0; i < op->nres; i++) t->knows[op->res[i]] = all;
  }
}

// Does the loop begin with the state, or a factor times it? Which: *factor.
static bool begins_with(const Turns *t, Value *factor) {
  Value state = t->recur->regions[0]->params.at[0], v = t->loop->args[0];
  const Op *mul = ir_def(t->f, v);
  *factor = 0;
  if (v == state) return true;
  if (!mul || mul->code != OP_MUL) return false;
  bool second = mul->args[1] == state;
  *factor = mul->args[!second];
  return mul->args[second] == state && !t->knows[*factor];
}

// Turns know no state but their own, and what is stored one of a step's.
static bool are_apart(const Turns *t) {
  for (const Op *op = t->loop->regions[0]->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nargs; i++)
      if (knows(t, op->args[i], IN_FRONT)) return false;
  for (const Op *op = t->recur->regions[0]->first; op; op = op->next) {
    if (op->code == OP_STORE && knows(t, op->args[1], IN_FRONT) &&
        knows(t, op->args[1], BEHIND))
      return false;
  }
  return true;
}

static bool has_short_vectors(const Turns *t) {
  for (const Op *op = t->loop->regions[0]->first; op; op = op->next) {
    const Type *x = op->nres ? ir_type(t->f, op->res[0]) : NULL;
    if (op->code != OP_LOAD || !dtype_is_float16(x->dtype)) continue;
    for (uint32_t i = 0; i < x->n; i++)
      if (t->f->axes.at[x->axis[i]].role == AX_VEC) return true;
  }
  return false;
}

static bool suits(Ctx *cx, Turns *t) {
  Value factor;
  if (t->f->kind != FK_PROGRAM || !find_loops(t) || !find_axes(t)) return false;
  const Region *step = t->recur->regions[0], *turn = t->loop->regions[0];
  t->knows = NEWN(&cx->scratch, uint8_t, t->f->values.n);
  t->knows[step->params.at[0]] = 1 << IN_FRONT;
  learn(t, step);
  return knows(t, turn->last->args[0], READ) &&
         step->last->args[0] == t->loop->res[0] && has_short_vectors(t) &&
         begins_with(t, &factor) && are_apart(t);
}

// ---------------------------------------------------------------- the change
static void retype(Turns *t, uint32_t values) {
  for (Value v = 1; v < values; v++) {
    Type *x = &ir_info(t->f, v)->type;
    if (x->kind == TK_ELEM && type_has_axis(x, t->turn))
      *x = type_with(type_without(*x, t->turn), t->step, 0);
  }
}

// Coordinates along the axis, but `at`, are `by`.
static void replace_index(Turns *t, uint32_t axis, Value at, Value by) {
  for (const Op *op = t->recur->regions[0]->first; op; op = op->next)
    if (op->code == OP_INDEX && ir_attr_i(op, AT_AXIS, -1) == axis &&
        op->res[0] != at)
      ir_replace_uses(t->f, op->res[0], by);
}

static void mask_stores(Turns *t, Value first, Value last) {
  Op *op = t->recur->regions[0]->first;
  for (Op *next; op; op = next) {
    next = op->next;
    if (op->code != OP_STORE) continue;
    ir_store_where(t->f, op, knows(t, op->args[1], IN_FRONT) ? first : last);
  }
}

// The ops of the loop stand in front of it.
static void inline_loop(Turns *t, Value first) {
  Func *f = t->f;
  Region *turn = t->loop->regions[0];
  Value factor, state = t->recur->regions[0]->params.at[0];
  Builder b = {.fn = f,
               .region = t->loop->parent,
               .before = t->loop,
               .span = t->loop->span};
  begins_with(t, &factor);
  if (factor) {
    Value one = ir_const_f(&b, ir_type(f, factor)->dtype, 1);
    factor = ir_3(&b, OP_SELECT, first, factor, one);
    state = ir_2(&b, OP_MUL, factor, state);
  }
  ir_replace_uses(f, turn->params.at[0], state);
  ir_replace_uses(f, t->loop->res[0], turn->last->args[0]);
  while (turn->first != turn->last) ir_move_before(turn->first, t->loop);
  ir_erase(t->loop);
}

static void join(Ctx *cx, Turns *t) {
  Func *f = t->f;
  DimTab *d = &f->mod->dims;
  uint32_t values = f->values.n;
  Region *step = t->recur->regions[0];
  Axis *axis = &f->axes.at[t->step];
  axis->extent = dim_bin(d, DIM_MUL, axis->extent, dim_const(d, t->n));
  retype(t, values);
  Builder b = {.fn = f,
               .region = step,
               .before = step->first,
               .span = t->loop->span};
  Value at = ir_index(&b, t->step), n = ir_int(&b, t->n);
  Value whole = ir_2(&b, OP_FLOORDIV, at, n), turn = ir_2(&b, OP_MOD, at, n);
  Value first = ir_2(&b, OP_EQ, turn, ir_int(&b, 0));
  Value last = ir_2(&b, OP_EQ, turn, ir_int(&b, t->n - 1));
  mask_stores(t, first, last);
  inline_loop(t, first);
  replace_index(t, t->step, at, whole);
  replace_index(t, t->turn, at, turn);
  ir_sweep(f);
  ctx_remark(cx, "%s: each of %lld writes of a step is a step", f->name,
             (long long)t->n);
}

bool pass_join_turns(Ctx *cx, Module *m, const PassOpt *opt) {
  const Target *target = opt->target;
  if (target->kind != TARGET_GPU || !target->gpu.hopper) return true;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Turns t = {.f = m->funcs.at[i]};
    if (suits(cx, &t)) join(cx, &t);
  }
  return true;
}
