// early_fills: what a task copies is asked for before it waits for memory that
// does not say which tile that is.
//
//   %n = gload(%len, %b)                   %n = gload(%len, %b)
//   %m = uniform(%n)                       %c = lt(%scale, %zero)
//   ..                                     %q = sfill(%Q, %b, %i, %h, %c)
//   %c = lt(%scale, %zero)          ->     %m = uniform(%n)
//   %q = sfill(%Q, %b, %i, %h, %c)         ..
//
// A decoding task reads its sequence's length, then an entry of its table of
// pages, and then asks for keys: each waits for the one in front. Its queries
// lie where the task's number alone says. Asked for behind the length they
// came with the first keys; now they come while both are waited for. They stay
// behind the load itself, which does not wait: in a CTA's next task the
// producer waits there until the groups have read the queries before. Level
// frag; sm_90a. Needs: tile_scheduler. Tests: test/passes/early_fills.
#include "passes/pass.h"

#include "passes/support/fill.h"

typedef struct Early {
  Func *f;
  Region *r;
  Op *wait;  // the first that reads what memory has said
} Early;

static bool is_number(const Func *f, const Op *op) {
  return op->nres == 1 && !op->nregions &&
         ir_type(f, op->res[0])->kind == TK_ELEM;
}

static Op *find_wait(const Func *f, Region *r) {
  for (Op *op = r->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nargs; i++) {
      const Op *def = ir_def(f, op->args[i]);
      if (def && def->code == OP_GLOAD && def->parent == r && is_number(f, def))
        return op;
    }
  return NULL;
}

static bool stands_behind(const Op *op, const Op *at) {
  while (at && at != op) at = at->next;
  return at != NULL;
}

// Is v known where the wait stands, or of numbers that can be made there?
static bool can_rise(const Early *e, Value v) {
  const Op *op = ir_def(e->f, v);
  if (!op || op->parent != e->r || !stands_behind(op, e->wait)) return true;
  if (!is_number(e->f, op) || !(op_info(op->code)->flags & OPF_PURE))
    return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!can_rise(e, op->args[i])) return false;
  return true;
}

static void rise(const Early *e, Value v) {
  Op *op = ir_def(e->f, v);
  if (!op || op->parent != e->r || !stands_behind(op, e->wait)) return;
  for (uint32_t i = 0; i < op->nargs; i++) rise(e, op->args[i]);
  ir_move_before(op, e->wait);
}

// Tiles of inputs, up to the first op that may write or wait.
static void region(Func *f, Region *r) {
  Early e = {f, r, find_wait(f, r)};
  for (Op *op = e.wait, *next; op; op = next) {
    next = op->next;
    bool fill = op->code == OP_SFILL && ir_is_input(f, op->args[0]);
    bool pure = op_info(op->code)->flags & OPF_PURE && !op->nregions;
    if (!pure && !is_number(f, op) && !fill) return;
    bool ok = fill && op->nargs > 1;
    for (uint32_t i = 1; ok && i < op->nargs; i++)
      ok = can_rise(&e, op->args[i]);
    if (!ok) continue;
    for (uint32_t i = 1; i < op->nargs; i++) rise(&e, op->args[i]);
    ir_move_before(op, e.wait);
  }
}

bool pass_early_fills(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    for (Op *op = f->body->first; op; op = op->next)
      if (op->code == OP_WHILE || op->code == OP_FOR) region(f, op->regions[0]);
  }
  return true;
}
