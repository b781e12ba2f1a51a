// What lives where, backwards through the regions. A fragment counts as the
// registers of its layout; elements of 16 and 8 bits are packed. What code
// generation makes at its use (constants, spreads of numbers and of slices)
// takes none of its own: its operands live as long as it does. What a loop
// carries lies where its turn ends; what it takes from outside lives through
// all of it.
#include "ir/pressure.h"

#include "ir/layout.h"

typedef struct Live {
  const Func *f;
  Arena *arena;
  const Op *in;      // only what is in it counts; NULL: all
  uint32_t threads;  // of the group that executes the region
  bool *is;          // by value
  uint32_t regs;
  uint32_t bound;  // what is beyond it is summed
  uint64_t over;
  Press most;
} Live;

uint32_t pressure_of(const Type *t, uint32_t threads) {
  FragMap m;
  if (t->kind != TK_FRAG) return 0;
  if (frag_map(t, threads, &m)) return 0;
  uint32_t bits = t->dtype == DT_BOOL ? 1 : 8 * (uint32_t)dtype_size(t->dtype);
  return (m.regs * bits + 31) / 32;
}

bool pressure_free(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  if (!op) return false;
  return op->code == OP_CONST || op->code == OP_SPLAT || op->code == OP_BCAST ||
         op->code == OP_REF;
}

static void add(Live *l, Value v) {
  if (pressure_free(l->f, v)) {
    const Op *op = ir_def(l->f, v);
    for (uint32_t i = 0; i < op->nargs; i++) add(l, op->args[i]);
    return;
  }
  if (l->is[v]) return;
  l->is[v] = true;
  l->regs += pressure_of(ir_type(l->f, v), l->threads);
}

static void drop(Live *l, Value v) {
  if (!l->is[v]) return;
  l->is[v] = false;
  l->regs -= pressure_of(ir_type(l->f, v), l->threads);
}

static bool counts(const Live *l, const Op *op) {
  while (l->in && op && op != l->in) op = op->parent->parent;
  return op != NULL;
}

static void note(Live *l, const Op *op) {
  if (l->regs > l->bound)
    l->over += (uint64_t)(l->regs - l->bound) * (l->regs - l->bound);
  if (l->regs <= l->most.regs || !counts(l, op)) return;
  l->most.regs = l->regs;
  l->most.at = op;
  l->most.live.n = 0;
  for (Value v = 1; v < l->f->values.n; v++)
    if (l->is[v] && pressure_of(ir_type(l->f, v), l->threads))
      vec_push(l->arena, &l->most.live, v);
}

static void region(Live *l, const Region *r);

// What r takes from outside.
static void add_outside(Live *l, const Region *r, const Region *in) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nargs; i++)
      if (ir_defined_outside(l->f, op->args[i], in)) add(l, op->args[i]);
    for (uint32_t i = 0; i < op->nregions; i++)
      add_outside(l, op->regions[i], in);
  }
}

// Every region begins with what lives behind op, and leaves what it needs.
static void inside(Live *l, const Op *op) {
  bool loop = op->code == OP_FOR || op->code == OP_WHILE;
  uint32_t n = l->f->values.n;
  bool *before = NEWN(l->arena, bool, n);
  for (uint32_t i = 0; i < op->nregions && loop; i++)
    add_outside(l, op->regions[i], op->regions[i]);
  bool *behind = NEWN(l->arena, bool, n);
  for (Value v = 0; v < n; v++) behind[v] = l->is[v];
  for (uint32_t i = 0; i < op->nregions; i++) {
    for (Value v = 1; v < n; v++)
      if (behind[v]) add(l, v);
      else drop(l, v);
    region(l, op->regions[i]);
    for (Value v = 1; v < n; v++) before[v] |= l->is[v];
  }
  for (Value v = 1; v < n; v++)
    if (before[v]) add(l, v);
}

static void step(Live *l, const Op *op) {
  if (op->code == OP_ROLES) return;
  for (uint32_t i = 0; i < op->nres; i++) add(l, op->res[i]);
  if (!pressure_free(l->f, op->nres ? op->res[0] : 0)) note(l, op);
  for (uint32_t i = 0; i < op->nres; i++) drop(l, op->res[i]);
  if (op->nregions) inside(l, op);
  if (op->nres && pressure_free(l->f, op->res[0])) return;
  for (uint32_t i = 0; i < op->nargs; i++) add(l, op->args[i]);
  note(l, op);
}

static void region(Live *l, const Region *r) {
  for (const Op *op = r->last; op; op = op->prev) step(l, op);
  for (uint32_t i = 0; i < r->params.n; i++) drop(l, r->params.at[i]);
}

static Press of_group(const Func *f, const Region *r, const Op *in,
                      uint32_t threads, Arena *a) {
  Live l = {.f = f,
            .arena = a,
            .in = in,
            .threads = threads,
            .is = NEWN(a, bool, f->values.n)};
  if (threads >= 32) region(&l, r);
  return l.most;
}

Press ir_pressure_in(const Func *f, const Op *in, Arena *a) {
  const Op *launch = ir_launch(f);
  if (!launch) return (Press){0};
  Press most = of_group(f, f->body, in, ir_group_threads(f, launch), a);
  for (const Op *op = f->body->first; op; op = op->next)
    for (uint32_t i = 0; op->code == OP_ROLES && i < op->nregions; i++) {
      const Region *r = op->regions[i];
      Press p = of_group(f, r, in, ir_group_threads(f, r->first), a);
      if (p.regs > most.regs) most = p;
    }
  return most;
}

uint64_t ir_pressure_over(const Func *f, uint32_t most, Arena *a) {
  const Op *launch = ir_launch(f);
  if (!launch) return 0;
  Live l = {.f = f,
            .arena = a,
            .threads = ir_group_threads(f, launch),
            .is = NEWN(a, bool, f->values.n),
            .bound = most,
            .most.regs = UINT32_MAX};
  region(&l, f->body);
  return l.over;
}

Press ir_pressure(const Func *f, Arena *a) {
  return ir_pressure_in(f, NULL, a);
}

uint32_t pressure_limit(const Func *f, const Target *t) {
  const Op *launch = ir_launch(f), *last = f->body->last;
  int64_t ctas = ir_attr_i(launch, AT_OCCUPANCY, 1);
  int64_t all = ir_attr_i(launch, AT_THREADS, 0) * (ctas ? ctas : 1);
  uint32_t n = (uint32_t)(t->gpu.regs / (all ? all : 1));
  const IrAttr *roles =
      last && last->code == OP_ROLES ? ir_attr(last, AT_TEAMREGS) : NULL;
  for (uint32_t i = 0; roles && i < last->nregions; i++)
    if (last->regions[i]->params.n) n = (uint32_t)roles->list[i];
  return n < HW_THREAD_REGS ? n : HW_THREAD_REGS;
}
