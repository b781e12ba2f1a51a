// row_mask: a mask that is the same in all columns is applied to rows.
//
//   %x = select(bcast(%on), %s, -inf)    %e = exceeds(%s, select(%on, %l, most))
//   %e = exceeds(%x, %l)                 %m, %z = if(%e) ({
//   %m = if(%e) ({                         %x = select(bcast(%on), %s, -inf)
//     .. freduce(%x) {kind = max}     ->   .. freduce(%x) {kind = max}
//     yield(%m1)                           yield(%m1, %x)
//   }, {                                 }, {
//     yield(%m2)                           yield(%m2, %s)
//   })                                   })
//   %y = fma(%x, %c, bcast(%b))          %y = fma(%z, %c, bcast(select(%on, %b, -inf)))
//
// Where tables tell of a run of tiles that each row sees all of or nothing of
// (passes/tile/bounds.c), a step of it costs instructions a row instead of an
// element. %c is positive and %s mostly finite. Infinite scores and NaN, which
// a key may have that only other rows of the tile see, exceed the largest
// finite number: the branch that looks for a new maximum, rarely taken, masks
// elements. Level frag. Needs: peel, fold, lazy_rescale; dce afterwards. Tests:
// test/passes/row_mask/, test/wave/unseen-keys.test.
#include "passes/pass.h"
#include "passes/support/range.h"

#include <float.h>
#include <math.h>

typedef struct ByRow {
  Func *f;
  Arena *arena;
  Ranges ranges;
  Op *select;
  Value on, scores;  // bool of a row; what it lets through
  Op *ask, *branch;  // whether there may be a new maximum, and where
  Op *power;         // the exponents
} ByRow;

static const Op *spread(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  bool ok =
      op && op->code == OP_BCAST && ir_type(f, op->args[0])->slice == SLICE_ROW;
  return ok ? op : NULL;
}

static Value one_of(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  return op && (op->code == OP_SPLAT || op->code == OP_BCAST) ? op->args[0] : v;
}

static bool is_never(const Func *f, Value v) {
  double k;
  return ir_const_value(f, one_of(f, v), &k) && k == -INFINITY;
}

// Of x for maxima, on the side where there is a new one.
static bool is_branch(const ByRow *r, const Op *op) {
  if (op->code != OP_IF || !r->ask || r->branch ||
      op->args[0] != r->ask->res[0])
    return false;
  Value x = r->select->res[0];
  for (const Op *in = op->regions[0]->first; in; in = in->next)
    if (ir_mentions(in, x) && in->code != OP_FREDUCE) return false;
  return !ir_uses_in(op->regions[1], x);
}

static bool is_exponent(ByRow *r, const Op *op) {
  Value x = r->select->res[0];
  return op->code == OP_FMA && op->args[0] == x && op->args[1] != x &&
         op->args[2] != x && spread(r->f, op->args[2]) &&
         range_of(&r->ranges, one_of(r->f, op->args[1])).lo > 0;
}

static bool is_question(const ByRow *r, const Op *op) {
  return op->code == OP_EXCEEDS && !r->ask && op->nargs == 2 &&
         op->args[0] == r->select->res[0] && op->args[1] != op->args[0] &&
         ir_count_uses(r->f, op->res[0]) == 1;
}

// Its uses are what lazy_rescale leaves: a question, maxima in the branch,
// exponents.
static bool is_guarded(ByRow *r) {
  r->ask = r->branch = r->power = NULL;
  for (Op *op = r->select->next; op; op = op->next) {
    if (is_question(r, op)) r->ask = op;
    else if (is_branch(r, op)) r->branch = op;
    else if (r->branch && !r->power && is_exponent(r, op)) r->power = op;
    else if (ir_mentions(op, r->select->res[0])) return false;
  }
  return r->power;
}

// x where the row is on, else another.
static Value only_on(Builder *b, const ByRow *r, Value x, double other) {
  Type t = *ir_type(b->fn, x);
  IrAttr at = attr_f(AT_VALUE, other);
  Value y = ir_op(b, OP_CONST, NULL, 0, &at, 1, &t, 1, 0)->res[0];
  return ir_3(b, OP_SELECT, r->on, x, y);
}

// The addend of exponents, if it is a result of the branch.
static uint32_t addend(const ByRow *r) {
  Value row = spread(r->f, r->power->args[2])->args[0];
  uint32_t k = 0;
  while (k < r->branch->nres && r->branch->res[k] != row) k++;
  bool alone = ir_count_uses(r->f, row) == 1 &&
               ir_count_uses(r->f, r->power->args[2]) == 1;
  return alone ? k : r->branch->nres;
}

// One side of the branch, which also gives the scores: masked where there may
// be some that are not finite.
static void side(ByRow *r, Region *to, uint32_t i) {
  Builder b = {.fn = r->f, .region = to, .span = r->branch->span};
  const Region *from = r->branch->regions[i];
  uint32_t bias = addend(r);
  ValueMap map = {.arena = r->arena};
  Value z = r->scores;
  if (i == 0) z = ir_clone(&b, r->f, r->select, &map, NULL)->res[0];
  for (const Op *op = from->first; op != from->last; op = op->next)
    ir_clone(&b, r->f, op, &map, NULL);
  uint32_t n = r->branch->nres;
  Value *out = NEWN(r->arena, Value, n + 1);
  for (uint32_t k = 0; k < n; k++) {
    out[k] = vmap_get(&map, from->last->args[k]);
    if (k == bias) out[k] = only_on(&b, r, out[k], -INFINITY);
  }
  out[n] = z;
  ir_yield(&b, out, n + 1);
}

static Value masked_if_needed(ByRow *r) {
  Builder b = {.fn = r->f,
               .region = r->ask->parent,
               .before = r->ask,
               .span = r->ask->span};
  r->ask->args[1] = only_on(&b, r, r->ask->args[1], FLT_MAX);
  r->ask->args[0] = r->scores;
  b.before = r->branch;
  uint32_t n = r->branch->nres;
  Type *types = NEWN(r->arena, Type, n + 1);
  for (uint32_t i = 0; i < n; i++) types[i] = *ir_type(r->f, r->branch->res[i]);
  types[n] = *ir_type(r->f, r->scores);
  Op *branch = ir_op(&b, OP_IF, r->branch->args, 1, NULL, 0, types, n + 1, 2);
  for (uint32_t i = 0; i < 2; i++) side(r, branch->regions[i], i);
  for (uint32_t i = 0; i < n; i++)
    ir_replace_uses(r->f, r->branch->res[i], branch->res[i]);
  ir_erase(r->branch);
  return branch->res[n];
}

static void rewrite(ByRow *r) {
  bool done = addend(r) < r->branch->nres;
  r->power->args[0] = masked_if_needed(r);
  ir_erase(r->select);
  if (done) return;
  Builder b = {.fn = r->f,
               .region = r->power->parent,
               .before = r->power,
               .span = r->power->span};
  const Op *from = spread(r->f, r->power->args[2]);
  Value bias = only_on(&b, r, from->args[0], -INFINITY);
  Type t = *ir_type(r->f, r->power->args[2]);
  r->power->args[2] = ir_op(&b, OP_BCAST, &bias, 1, NULL, 0, &t, 1, 0)->res[0];
}

static void visit(void *data, Op *op) {
  ByRow *r = data;
  if (op->code != OP_SELECT || ir_type(r->f, op->res[0])->kind != TK_FRAG)
    return;
  const Op *on = spread(r->f, op->args[0]);
  if (!on || ir_type(r->f, op->args[0])->slice != SLICE_NONE ||
      !is_never(r->f, op->args[2]))
    return;
  r->select = op, r->on = on->args[0], r->scores = op->args[1];
  if (is_guarded(r)) rewrite(r);
}

bool pass_row_mask(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    ByRow r = {.f = m->funcs.at[i], .arena = m->arena};
    range_init(&r.ranges, r.f, &cx->scratch);
    ir_walk(r.f->body, visit, &r);
  }
  return true;
}
