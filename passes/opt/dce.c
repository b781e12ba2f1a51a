// dce: drops pure ops, and ops with regions that store nothing, whose results
// have no uses.
//
//   %a = exp(%x) : f32{q}             store(%O, %x, %i)
//   %b = neg(%a) : f32{q}        ->
//   store(%O, %x, %i)
//
// Domains, assumptions and stores stay. Any level. Tests: test/passes/dce.
#include "passes/pass.h"

typedef struct Dce {
  uint32_t *uses;  // by value
} Dce;

static void count_region(Dce *d, const Region *r, int by);

static void count_op(Dce *d, const Op *op, int by) {
  for (uint32_t i = 0; i < op->nargs; i++) d->uses[op->args[i]] += (uint32_t)by;
  for (uint32_t i = 0; i < op->nregions; i++)
    count_region(d, op->regions[i], by);
}

static void count_region(Dce *d, const Region *r, int by) {
  for (const Op *op = r->first; op; op = op->next) count_op(d, op, by);
}

// True if op does something besides computing its results.
static bool has_effect(const Op *op) {
  const OpInfo *info = op_info(op->code);
  if (!op->nregions) return !(info->flags & OPF_PURE);
  for (uint32_t i = 0; i < op->nregions; i++)
    for (const Op *o = op->regions[i]->first; o; o = o->next)
      if (!(op_info(o->code)->flags & OPF_TERM) && has_effect(o)) return true;
  return false;
}

static bool used(const Dce *d, const Op *op) {
  for (uint32_t i = 0; i < op->nres; i++)
    if (d->uses[op->res[i]]) return true;
  return false;
}

// Backwards: the users of a value are seen before its op.
static void sweep(Dce *d, Region *r) {
  for (Op *op = r->last, *prev; op; op = prev) {
    prev = op->prev;
    if (!used(d, op) && !has_effect(op)) {
      count_op(d, op, -1);
      ir_erase(op);
      continue;
    }
    for (uint32_t i = op->nregions; i-- > 0;) sweep(d, op->regions[i]);
  }
}

bool pass_dce(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    Dce d = {NEWN(&cx->scratch, uint32_t, f->values.n)};
    count_region(&d, f->body, 1);
    sweep(&d, f->body);
  }
  return true;
}
