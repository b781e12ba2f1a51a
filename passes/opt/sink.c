// sink: moves pure ops behind the loops and branches that they do not feed.
//
//   %s = tstride(%O) {pos = 0}          for(..) ({ .. })
//   for(..) ({ .. })               ->   %s = tstride(%O) {pos = 0}
//   st(%p, %s, %x)                      st(%p, %s, %x)
//
// What only the end of a task wants does not lie in registers, or on the
// stack, through its loops; register allocation takes half the time. An op
// stays in its region and goes in front of its first use. Level mach: its
// memory ops are not pure. Tests: test/passes/sink.
#include "passes/pass.h"

typedef struct Sink {
  uint32_t *first;  // by value: the number of its first use, 0: none
  Op **head;        // by number: the first op of those that moved there
} Sink;

// Every value that op, or what is in it, uses is wanted at number n.
static void wanted(Sink *s, const Op *op, uint32_t n) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    uint32_t *first = &s->first[op->args[i]];
    if (!*first || *first > n) *first = n;
  }
  for (uint32_t i = 0; i < op->nregions; i++)
    for (const Op *o = op->regions[i]->first; o; o = o->next) wanted(s, o, n);
}

static bool movable(const Op *op) {
  return op_info(op->code)->flags & OPF_PURE && !op->nregions &&
         op->nres == 1 && op->code != OP_CONST;
}

// Backwards: uses come before definitions, and both move on together. Numbers
// grow in the order of the ops; `loop` is that of the next op with regions.
static void walk(Sink *s, Region *r, uint32_t n) {
  uint32_t loop = UINT32_MAX;
  for (Op *op = r->last, *prev; op; op = prev, n--) {
    prev = op->prev;
    uint32_t to = op->nres ? s->first[op->res[0]] : 0;
    s->head[n] = op;
    if (to <= loop || !movable(op)) to = n;
    if (to != n) {
      ir_move_before(op, s->head[to]);
      s->head[to] = op;
    }
    wanted(s, op, to);
    if (op->nregions) loop = n;
  }
}

bool pass_sink(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    const Func *f = m->funcs.at[i];
    uint32_t n = 0;
    for (const Op *op = f->body->first; op; op = op->next) n++;
    Sink s = {NEWN(&cx->scratch, uint32_t, f->values.n),
              NEWN(&cx->scratch, Op *, n + 1)};
    walk(&s, f->body, n);
  }
  return true;
}
