// byrow: a mask that is the same in all columns is applied to rows.
//
//   %x = select(bcast(%on), %s, -inf)
//   %e = exceeds(%x, %l)                  %e = exceeds(%s, select(%on, %l, inf))
//   %t = freduce(%x) {kind = max}     ->  %t = select(%on, freduce(%s), -inf)
//   %y = fma(%x, %c, bcast(%b))           %y = fma(%s, %c, bcast(select(%on, %b, -inf)))
//
// Where tables tell of a run of tiles that each row sees all of or nothing of
// (passes/tilebounds.c), a step of it costs instructions a row instead of an
// element. %c is positive; scores that a row does not see are finite, as keys are
// that another row of the tile sees (docs/gpu.md). Level mach, value form. Needs: peel, fold; dce
// afterwards. Tests: test/passes/byrow/.
#include "passes/pass.h"
#include "passes/range.h"

#include <math.h>

typedef struct ByRow {
  Func *f;
  Ranges ranges;
  Op *select;
  Value on, scores;    // bool of a row; what it lets through
} ByRow;

static const Op *spread(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  bool ok = op && op->code == OP_BCAST &&
            ir_type(f, op->args[0])->slice == SLICE_ROW;
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

static bool is_maximum(const ByRow *r, const Op *op) {
  return op->code == OP_FREDUCE && ir_attr_i(op, AT_KIND, 0) == RK_MAX &&
         ir_attr_i(op, AT_POS, 0) == 1 && op->args[0] == r->select->res[0] &&
         !ir_type(r->f, op->res[0])->partial;
}

static bool is_exponent(ByRow *r, const Op *op) {
  Value x = r->select->res[0];
  return op->code == OP_FMA && op->args[0] == x && op->args[1] != x &&
         op->args[2] != x && spread(r->f, op->args[2]) &&
         range_of(&r->ranges, one_of(r->f, op->args[1])).lo > 0;
}

static bool is_question(const ByRow *r, const Op *op) {
  return op->code == OP_EXCEEDS && op->nargs == 2 &&
         op->args[0] == r->select->res[0] && op->args[1] != op->args[0];
}

typedef struct Uses {
  ByRow *r;
  bool ok;
} Uses;

static void note_use(void *data, Op *op) {
  Uses *u = data;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (op->args[i] == u->r->select->res[0])
      u->ok = u->ok && (is_maximum(u->r, op) || is_exponent(u->r, op) ||
                        is_question(u->r, op));
}

// x where the row is on, else another.
static Value only_on(Builder *b, const ByRow *r, Value x, double other) {
  Type t = *ir_type(b->fn, x);
  IrAttr at = attr_f(AT_VALUE, other);
  Value y = ir_op(b, OP_CONST, NULL, 0, &at, 1, &t, 1, 0)->res[0];
  return ir_3(b, OP_SELECT, r->on, x, y);
}

static void rewrite(void *data, Op *op) {
  ByRow *r = data;
  Builder b = {.fn = r->f, .region = op->parent, .span = op->span};
  if (is_maximum(r, op)) {
    b.before = op->next;
    op->args[0] = r->scores;
    Value x = op->res[0], y = only_on(&b, r, x, -INFINITY);
    ir_replace_uses(r->f, x, y);
    ir_def(r->f, y)->args[1] = x;
  } else if (is_question(r, op)) {
    b.before = op;
    op->args[1] = only_on(&b, r, op->args[1], INFINITY);
    op->args[0] = r->scores;
  } else if (is_exponent(r, op)) {
    b.before = op;
    const Op *from = spread(r->f, op->args[2]);
    Value bias = only_on(&b, r, from->args[0], -INFINITY);
    Type t = *ir_type(r->f, op->args[2]);
    op->args[2] = ir_op(&b, OP_BCAST, &bias, 1, NULL, 0, &t, 1, 0)->res[0];
    op->args[0] = r->scores;
  }
}

static void visit(void *data, Op *op) {
  ByRow *r = data;
  if (op->code != OP_SELECT || ir_type(r->f, op->res[0])->kind != TK_FRAG) return;
  const Op *on = spread(r->f, op->args[0]);
  if (!on || ir_type(r->f, op->args[0])->slice != SLICE_NONE ||
      !is_never(r->f, op->args[2]))
    return;
  r->select = op, r->on = on->args[0], r->scores = op->args[1];
  Uses u = {r, true};
  ir_walk(r->f->body, note_use, &u);
  if (u.ok) ir_walk(r->f->body, rewrite, r);
}

bool pass_byrow(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    ByRow r = {.f = m->funcs.at[i]};
    range_init(&r.ranges, r.f, &cx->scratch);
    ir_walk(r.f->body, visit, &r);
  }
  return true;
}
