// count_slots: slots of rings, and whose turn they are, are counted up instead
// of divided.
//
//   for(.., %c0) ({                        %s0 = mod(%c0, 6)
//     ^(%i, %c):                           %p0 = mod(floordiv(%c0, 6), 2)
//     %s = mod(%c, 6)                      for(.., %c0, %s0, %p0) ({
//     %d = floordiv(%c, 6)                   ^(%i, %c, %s, %p):
//     %p = mod(%d, 2)                ->      mbar_wait(%full, %s, %p)
//     mbar_wait(%full, %s, %p)               ..
//     ..                                     %t = add(%s, 1)  %w = eq(%t, 6)
//     yield(add(%c, 1))                      %t1 = select(%w, 0, %t)
//   })                                       %p1 = select(%w, sub(1, %p), %p)
//                                            yield(add(%c, 1), %t1, %p1)
//                                          })
//
// A step begins with waiting for its tiles, and nothing of it runs before: what
// the barrier is found by is then there, where a division by a constant is ten
// instructions one behind the other. By powers of two it is one, and loops over
// tasks have other things to do. Level frag; sm_90a. Needs:
// warp_specialize. Run cse and dce afterwards. Tests: test/passes/count_slots.
#include "passes/pass.h"
#include "passes/support/loops.h"

enum { MAX_COUNTS = 16, TURNS = 2 };

// A number that a loop counts up by one, and what it is divided by.
typedef struct Count {
  uint32_t at;  // of the loop's carried values
  int64_t by;
  bool turn;            // whose turn it is is asked, too
  Value slot, of_turn;  // in the new loop
} Count;

typedef struct Counts {
  Func *f;
  Op *loop;
  Region *body;
  Count at[MAX_COUNTS];
  uint32_t n;
} Counts;

static bool is_const(const Func *f, Value v, int64_t k) {
  double x;
  return ir_const_value(f, v, &x) && x == (double)k;
}

static bool counts_up(const Counts *c, uint32_t at) {
  Value x = c->body->params.at[1 + at];
  const Op *op = ir_def(c->f, c->body->last->args[at]);
  const Type *t = ir_type(c->f, x);
  if (t->kind != TK_ELEM || t->n || t->dtype != DT_I32) return false;
  return op && op->code == OP_ADD && op->args[0] == x &&
         is_const(c->f, op->args[1], 1);
}

static bool divides(const Func *f, const Op *op, OpCode code, Value x,
                    int64_t *by) {
  double k;
  if (op->code != code || op->args[0] != x ||
      !ir_const_value(f, op->args[1], &k) || k < 2)
    return false;
  *by = (int64_t)k;
  return true;
}

// The turn of count n that op makes, or NULL.
static const Op *turn_of(const Counts *c, const Count *n, const Op *op) {
  int64_t by = 0;
  Value x = c->body->params.at[1 + n->at];
  if (!divides(c->f, op, OP_FLOORDIV, x, &by) || by != n->by) return NULL;
  for (const Op *o = op->next; o; o = o->next)
    if (divides(c->f, o, OP_MOD, op->res[0], &by) && by == TURNS) return o;
  return NULL;
}

static bool is_power(int64_t k) {
  return !(k & (k - 1));
}

static void find(Counts *c) {
  for (uint32_t at = 0; at + 1 < c->body->params.n; at++) {
    if (!counts_up(c, at)) continue;
    Value x = c->body->params.at[1 + at];
    for (const Op *op = c->body->first; op; op = op->next) {
      Count new = {.at = at};
      bool known = !divides(c->f, op, OP_MOD, x, &new.by) || is_power(new.by);
      for (uint32_t i = 0; i < c->n; i++)
        known |= c->at[i].at == at && c->at[i].by == new.by;
      for (const Op *o = c->body->first; o; o = o->next)
        new.turn |= turn_of(c, &new, o) != NULL;
      if (!known && c->n < MAX_COUNTS) c->at[c->n++] = new;
    }
  }
}

// ---------------------------------------------------------------- rewriting
static Value number(Builder *b, int64_t k) {
  return ir_const_i(b, DT_I32, k);
}

static uint32_t start(const Counts *c, Builder *b, Value *v) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->n; i++) {
    Value x = c->loop->args[3 + c->at[i].at], by = number(b, c->at[i].by);
    v[n++] = ir_2(b, OP_MOD, x, by);
    if (!c->at[i].turn) continue;
    Value turn = ir_2(b, OP_FLOORDIV, x, by);
    v[n++] = ir_2(b, OP_MOD, turn, number(b, TURNS));
  }
  return n;
}

// What the body makes of the count becomes what the loop carries.
static void use(const Counts *c, const Count *n) {
  Value x = c->body->params.at[1 + n->at];
  for (Op *op = c->body->first; op; op = op->next) {
    int64_t by = 0;
    if (divides(c->f, op, OP_MOD, x, &by) && by == n->by)
      ir_replace_uses(c->f, op->res[0], n->slot);
    const Op *turn = turn_of(c, n, op);
    if (turn) ir_replace_uses(c->f, turn->res[0], n->of_turn);
  }
}

static uint32_t next(const Count *n, Builder *b, Value *v) {
  Value up = ir_2(b, OP_ADD, n->slot, number(b, 1));
  Value last = ir_2(b, OP_EQ, up, number(b, n->by));
  v[0] = ir_3(b, OP_SELECT, last, number(b, 0), up);
  if (!n->turn) return 1;
  Value other = ir_2(b, OP_SUB, number(b, 1), n->of_turn);
  v[1] = ir_3(b, OP_SELECT, last, other, n->of_turn);
  return 2;
}

static void rewrite(Counts *c) {
  Value v[2 * MAX_COUNTS], up[2 * MAX_COUNTS];
  Builder b = {.fn = c->f,
               .region = c->loop->parent,
               .before = c->loop,
               .span = c->loop->span};
  uint32_t all = start(c, &b, v), at = 1 + c->loop->nres;
  Op *loop = loop_longer(c->f, c->loop, v, all);
  const Region *to = loop->regions[0];
  b.region = c->body;
  b.before = c->body->last;
  for (uint32_t i = 0, n = 0; i < c->n; i++) {
    Count *x = &c->at[i];
    x->slot = to->params.at[at++];
    if (x->turn) x->of_turn = to->params.at[at++];
    use(c, x);
    n += next(x, &b, up + n);
  }
  loop_replace(c->f, c->loop, loop, up, all);
}

static bool has_loop(const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_FOR || op->code == OP_WHILE) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (has_loop(op->regions[i])) return true;
  }
  return false;
}

static void region(Func *f, Region *r) {
  for (Op *op = r->first, *after; op; op = after) {
    after = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(f, op->regions[i]);
    if (op->code != OP_FOR || has_loop(op->regions[0])) continue;
    Counts c = {.f = f, .loop = op, .body = op->regions[0]};
    find(&c);
    if (c.n) rewrite(&c);
  }
}

bool pass_count_slots(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    region(m->funcs.at[i], m->funcs.at[i]->body);
  return true;
}
