// Op `random` of a fragment: a block of Philox is made once for the four
// neighbours that share it.
//
// Two bits of the last operand n tell the word of a block. Each is a bit of the
// register's number, or of the thread's. What a thread would make of a block
// whose other words other threads want too, it makes for other registers:
//
//   accumulators, n along the columns: a pair of neighbours in a thread, the
//   other pair of the block in thread ^ 1. Both have a second row, eight below:
//     thread 2t:      block of the first row,  gives its words 2 3, takes 0 1
//     thread 2t + 1:  block of the second row, gives its words 0 1, takes 2 3
//
// So a bit of threads is exchanged with a bit of registers, its partner.
#include "codegen/gpu/gpu.h"
#include "codegen/math/random.h"

enum { BITS = 2, WORDS = 4, LAST = ELEM_ARGS - 1 };

// A bit of n.
typedef struct Bit {
  uint32_t reg;   // registers that differ in it are this far apart; or 0
  uint32_t lane;  // and of threads so: the partner is `reg`
} Bit;

typedef struct Quad {
  Gpu *n;
  const Op *op;
  const FragMap *map;
  const Frag *arg[ELEM_ARGS];  // NULL: a scalar
  Bit bit[BITS];
} Quad;

// ---------------------------------------------------------------- operands
// The axis of the coordinates that v is made of.
static bool counts(const Gpu *n, Value v, uint32_t *axis) {
  const Op *op = ir_def(n->f, v);
  if (!op) return false;
  if (op->code == OP_COORD) {
    *axis = (uint32_t)ir_attr_i(op, AT_POS, 0);
    return true;
  }
  bool looked_into = op->code == OP_BCAST || op->code == OP_ADD;
  for (uint32_t i = 0; looked_into && i < op->nargs; i++)
    if (counts(n, op->args[i], axis)) return true;
  return false;
}

// Does v have the same value all along the axis?
static bool is_level(const Gpu *n, Value v, uint32_t axis) {
  const Op *op = ir_def(n->f, v);
  if (ir_type(n->f, v)->kind != TK_FRAG) return true;
  if (!op) return false;
  if (op->code == OP_SPLAT || op->code == OP_CONST) return true;
  const Type *t = op->code == OP_BCAST ? ir_type(n->f, op->args[0]) : NULL;
  return t && t->slice == (axis == AXIS_ROW ? SLICE_COL : SLICE_ROW);
}

// ---------------------------------------------------------------- bits
// How far apart registers (or threads) are that differ in the bit of the
// coordinate that is worth `worth`; 0: none are.
static uint32_t apart(const Factor *f, uint32_t count, uint32_t axis,
                      uint32_t worth) {
  uint32_t unit = 1;
  for (uint32_t i = 0; i < count; unit *= f[i++].size)
    for (uint32_t b = 1; f[i].axis == axis && f[i].size % (2 * b) == 0; b *= 2)
      if (f[i].stride * b == worth) return unit * b;
  return 0;
}

static bool is_taken(const Quad *q, uint32_t reg) {
  return q->bit[0].reg == reg || q->bit[1].reg == reg;
}

// A bit of the registers' numbers that is none of n's; 0: there is none.
static uint32_t partner(const Quad *q) {
  const FragMap *m = q->map;
  uint32_t unit = 1;
  for (uint32_t i = 0; i < m->nreg; unit *= m->reg[i++].size)
    for (uint32_t b = 1; m->reg[i].size % (2 * b) == 0; b *= 2)
      if (!is_taken(q, unit * b)) return unit * b;
  return 0;
}

static bool find_bits(Quad *q, uint32_t axis) {
  const FragMap *m = q->map;
  for (uint32_t i = 0; i < BITS; i++)
    q->bit[i].reg = apart(m->reg, m->nreg, axis, 1u << i);
  for (uint32_t i = 0; i < BITS; i++) {
    if (q->bit[i].reg) continue;
    uint32_t warp = q->n->grp.threads < 32 ? 1 : 32;
    q->bit[i].lane = apart(m->thr, m->nthr, axis, 1u << i);
    q->bit[i].reg = partner(q);
    if (!q->bit[i].lane || q->bit[i].lane >= warp || !q->bit[i].reg)
      return false;
  }
  return true;
}

// ---------------------------------------------------------------- a block
static V operand(const Quad *q, uint32_t i, uint32_t reg) {
  if (q->arg[i]) return gpu_elem(q->n, q->arg[i], reg);
  return q->n->g->val[q->op->args[i]];
}

// Whether this thread has the bit.
static V has_lane(const Quad *q, uint32_t bit) {
  Gpu *n = q->n;
  V x = e_and(n->g, n->grp.lane, gpu_i32(n, q->bit[bit].lane));
  return e_icmp(n->g, LLVMIntNE, x, gpu_i32(n, 0));
}

static V choose(const Quad *q, V c, V x, V y) {
  return x == y ? x : e_sel(q->n->g, c, x, y);
}

// Operand i of the register of those of `reg` for which the thread makes a
// block: bits from `bit` on are chosen.
static V own_operand(const Quad *q, uint32_t i, uint32_t reg, uint32_t bit) {
  while (bit < BITS && !q->bit[bit].lane) bit++;
  if (bit == BITS) return operand(q, i, reg);
  V off = own_operand(q, i, reg, bit + 1);
  V on = own_operand(q, i, reg + q->bit[bit].reg, bit + 1);
  return on == off ? off : choose(q, has_lane(q, bit), on, off);
}

static V anew(void *n, V word) {
  return ((Gpu *)n)->vendor->anew(n, word);
}

static void block(const Quad *q, uint32_t reg, V words[WORDS]) {
  V x[ELEM_ARGS];
  for (uint32_t i = 0; i < ELEM_ARGS; i++) x[i] = own_operand(q, i, reg, 0);
  x[LAST] = e_shr(q->n->g, x[LAST], BITS);
  CgBlock b = {{x[0], x[1]}, {x[LAST], x[4], x[3], x[2]}, anew, q->n};
  cg_random_words(q->n->g, &b, words);
}

// Bit `bit` of a word's number was that of n, which threads share; it becomes
// that of the partner.
static void exchange(const Quad *q, uint32_t bit, V words[WORDS]) {
  uint32_t by = 1u << bit, lane = q->bit[bit].lane;
  V c = has_lane(q, bit);
  for (uint32_t i = 0; i < WORDS; i++) {
    if (i & by) continue;
    V own = choose(q, c, words[i | by], words[i]);
    V other = gpu_shuffle(q->n, choose(q, c, words[i], words[i | by]), lane);
    words[i] = choose(q, c, other, own);
    words[i | by] = choose(q, c, own, other);
  }
}

static void shared(const Quad *q, V *e) {
  const Bit *b = q->bit;
  for (uint32_t reg = 0; reg < q->map->regs; reg++) {
    V words[WORDS];
    if (reg / b[0].reg % 2 || reg / b[1].reg % 2) continue;
    block(q, reg, words);
    for (uint32_t i = 0; i < BITS; i++)
      if (b[i].lane) exchange(q, i, words);
    for (uint32_t i = 0; i < WORDS; i++)
      e[reg + i % 2 * b[0].reg + i / 2 * b[1].reg] =
          cg_random_fraction(q->n->g, words[i]);
  }
}

// ---------------------------------------------------------------- all
static V alone(const Quad *q, uint32_t reg) {
  Cg *g = q->n->g;
  V x[ELEM_ARGS], words[WORDS];
  for (uint32_t i = 0; i < ELEM_ARGS; i++) x[i] = operand(q, i, reg);
  V quad = e_shr(g, x[LAST], BITS);
  CgBlock b = {{x[0], x[1]}, {quad, x[4], x[3], x[2]}, anew, q->n};
  cg_random_words(g, &b, words);
  return cg_random_fraction(g, cg_random_pick(g, x[LAST], words));
}

void gpu_random(Gpu *n, const Op *op) {
  const Type *t = gpu_res_type(n, op);
  Quad q = {.n = n, .op = op};
  uint32_t axis = AXIS_NONE;
  if (t->kind != TK_FRAG) {
    n->g->val[op->res[0]] = alone(&q, 0);
    return;
  }
  Frag r = gpu_new(n, t);
  V *e = NEWN(&n->g->cx->scratch, V, r.map.regs);
  q.map = &r.map;
  bool quads = ir_attr_i(op, AT_ALIGNED, 0) && counts(n, op->args[LAST], &axis);
  for (uint32_t i = 0; i < ELEM_ARGS; i++) {
    if (ir_type(n->f, op->args[i])->kind == TK_FRAG)
      q.arg[i] = gpu_frag(n, op->args[i]);
    quads = quads && (i == LAST || is_level(n, op->args[i], axis));
  }
  if (quads && find_bits(&q, axis)) {
    shared(&q, e);
  } else {
    for (uint32_t i = 0; i < r.map.regs; i++) e[i] = alone(&q, i);
  }
  gpu_pack(n, &r, e);
  gpu_define(n, op->res[0], r);
}
