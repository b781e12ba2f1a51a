// What an operand costs, made once ahead of the program or again wherever it is
// used. Extents that are open are taken for usual ones (cost.def).
#include "ir/facts.h"
#include "passes/attn/materialize.h"
#include "passes/support/balance.h"
#include "passes/support/cost.h"

// ---------------------------------------------------------------- extents
static int64_t within(int64_t v, int64_t lo, int64_t hi) {
  return v < lo ? lo : v > hi ? hi : v;
}

// Is that the extent of a key axis?
static bool is_sequence(const Ahead *a, Dim extent) {
  for (uint32_t i = 0; i < a->f->axes.n; i++)
    if (a->f->axes.at[i].role == AX_KEY && a->f->axes.at[i].extent == extent)
      return true;
  return false;
}

// Tiles have queries, or heads where each query has keys of its own.
static bool has_queries(const Ahead *a) {
  for (uint32_t i = 0; i < a->f->axes.n; i++)
    if (i != a->lane && a->f->axes.at[i].role == AX_PAR &&
        is_sequence(a, a->f->axes.at[i].extent))
      return false;
  return true;
}

// The extent of the axis, or 0: its role says nothing.
static int64_t usual_of(const Ahead *a, uint32_t axis) {
  AxisRole r = a->f->axes.at[axis].role;
  if (axis == a->lane && a->once) return 1;
  if (r == AX_KEY || (axis == a->lane && has_queries(a)))
    return COST_AHEAD_ROWS;
  return r == AX_PAR ? COST_AHEAD_TASKS : 0;
}

// What all sequences of a ragged dim have together.
static void size_totals(Ahead *a) {
  const DimTab *d = &a->f->mod->dims;
  for (uint32_t s = 0; s < d->syms.n; s++)
    for (uint32_t r = 0; r < d->syms.n; r++)
      if (dim_is_total(&d->syms.at[s], &d->syms.at[r]))
        a->sym[s] = within(a->sym[r] * COST_AHEAD_TASKS, d->syms.at[s].lo,
                           d->syms.at[s].hi);
}

void materialize_sizes(Ahead *a) {
  const DimTab *d = &a->f->mod->dims;
  a->sym = NEWN(&a->cx->scratch, int64_t, d->syms.n + 1);
  for (uint32_t s = 0; s < d->syms.n; s++) {
    const DimSym *sym = &d->syms.at[s];
    int64_t v = 0;
    for (uint32_t i = 0; i < a->f->axes.n; i++) {
      Dim e = a->f->axes.at[i].extent;
      bool same = e && d->exprs.at[e].op == DIM_SYM &&
                  d->exprs.at[e].value == (int64_t)s;
      if (same && usual_of(a, i) > v) v = usual_of(a, i);
    }
    if (!v) v = COST_AHEAD_TASKS / COST_AHEAD_GROUP;
    a->sym[s] = within(v, sym->lo, sym->hi);
  }
  size_totals(a);
}

static double size_of(const Ahead *a, Dim e) {
  int64_t n;
  bool known = dim_eval(&a->f->mod->dims, e, a->sym, &n);
  return !known || n < 1 ? 1 : (double)n;
}

// Points of those of the axes that v has, with groups instead of heads.
static double points(const Ahead *a, const Made *m, uint64_t axes) {
  double n = 1;
  for (uint32_t i = 0; i < a->f->axes.n; i++)
    if (axes & ((uint64_t)1 << i)) n *= size_of(a, materialize_extent(a, m, i));
  return n;
}

static uint64_t axes_of(const Type *t) {
  uint64_t axes = 0;
  for (uint32_t i = 0; i < t->n; i++) axes |= (uint64_t)1 << t->axis[i];
  return axes;
}

static uint64_t all_of(const Made *m) {
  return m->from.plain | m->from.grouped;
}

// ---------------------------------------------------------------- work
// Functions that no unit has are long, with a branch that is hardly ever taken.
static double slots_of(const Op *op) {
  if (op->code == OP_LOAD) return COST_AHEAD_LOAD;
  if (op->code == OP_REDUCE) return 1;
  if (op->code == OP_DOT) return op_facts(OP_FMA)->slots;
  const OpFacts *x = op_facts(op->code);
  bool slow = op_is_function(op->code) && !x->special;
  return x->slots + (slow ? COST_AHEAD_SLOW : 0);
}

// Issue slots for all points of v.
static double work(const Ahead *a, const Made *m, Value v, Map *seen) {
  const Op *op = ir_def(a->f, v);
  uint64_t known;
  if (!op || ir_type(a->f, v)->kind != TK_ELEM || map_get(seen, v, &known))
    return 0;
  map_put(seen, v, 1);
  bool sum = op->code == OP_REDUCE || materialize_is_inner(a, op);
  const Type *t = ir_type(a->f, sum ? op->args[0] : v);
  double n = slots_of(op) * points(a, m, axes_of(t));
  for (uint32_t i = 0; i < op->nargs; i++) n += work(a, m, op->args[i], seen);
  return n;
}

static double work_of(const Ahead *a, const Made *m) {
  Map seen = {.arena = &a->cx->scratch};
  return work(a, m, m->v, &seen);
}

// Tasks that make the operand, each for itself: those of axes that it lacks.
// Where keys are read once heads that share them are rows of one task.
static double uses_of(const Ahead *a, const Made *m) {
  double n = 1;
  if (a->once) return 1;
  for (uint32_t i = 0; i < a->f->axes.n; i++) {
    uint64_t b = (uint64_t)1 << i;
    if (a->f->axes.at[i].role != AX_PAR || m->from.plain & b) continue;
    double e = size_of(a, a->f->axes.at[i].extent);
    if (i == a->lane) n *= e > COST_AHEAD_TILE ? e / COST_AHEAD_TILE : 1;
    else n *= e / (m->from.grouped & b ? points(a, m, b) : 1);
  }
  return n;
}

// ---------------------------------------------------------------- time
static double seconds(const Ahead *a, double slots, double bytes) {
  Balance b = {.of = {[UNIT_ARITHMETIC] = (uint64_t)slots,
                      [UNIT_MEMORY] = (uint64_t)bytes}};
  return balance_seconds(&b, a->gpu);
}

double materialize_launch(void) {
  return COST_AHEAD_LAUNCH * 1e-6;
}

// Of w slots for all points of m, done `uses` times. A task has a tile at
// least, which one multiprocessor makes: others may have nothing to do.
static double made_again(const Ahead *a, const Made *m, double w, double uses) {
  double tile = COST_AHEAD_TILE * points(a, m, (uint64_t)1 << m->vec);
  double least = w / points(a, m, all_of(m)) * tile * a->gpu->sms;
  return seconds(a, uses * w > least ? uses * w : least, 0);
}

double materialize_bytes(const Ahead *a, const Made *m) {
  return points(a, m, all_of(m)) * dtype_size(ir_type(a->f, m->v)->dtype);
}

// Written, and read by who comes next instead of what it is made of.
static double traffic(double bytes) {
  return bytes + bytes / COST_AHEAD_CACHED;
}

// Tiles of all uses wait, each on one multiprocessor.
static double waits(const Ahead *a, const Made *m) {
  if (a->once) return 0;
  double tiles = points(a, m, all_of(m)) / COST_AHEAD_TILE / COST_AHEAD_TILE;
  return tiles * COST_AHEAD_WAIT * 1e-6 / a->gpu->sms;
}

double materialize_gain(const Ahead *a, const Made *m) {
  double w = work_of(a, m), uses = uses_of(a, m);
  double again = made_again(a, m, w, uses) + uses * waits(a, m);
  return again - seconds(a, w, traffic(materialize_bytes(a, m)));
}

double materialize_table_gain(const Ahead *a, const Made *m, const Made *of) {
  double n = points(a, of, all_of(of)) * (of->again ? uses_of(a, of) : 1);
  double uses = n / points(a, m, all_of(m));
  double w = work_of(a, m), bytes = materialize_bytes(a, m);
  double read = uses * bytes / COST_AHEAD_CACHED;
  return made_again(a, m, w, uses) -
         seconds(a, w + n * COST_AHEAD_LOAD, bytes + read);
}

// ---------------------------------------------------------------- room
double materialize_room(const Ahead *a, int64_t percent) {
  double n = 0;
  for (uint32_t i = 0; i < a->f->params.n; i++) {
    const FuncParam *p = &a->f->params.at[i];
    const Type *t = ir_type(a->f, p->v);
    if (t->kind != TK_TENSOR || p->role == PR_SHARED) continue;
    double e = dtype_size(t->dtype);
    for (uint32_t k = 0; k < t->n; k++) e *= size_of(a, t->size[k]);
    n += e;
  }
  return n * (double)(percent ? percent : COST_AHEAD_SHARE) / 100;
}
