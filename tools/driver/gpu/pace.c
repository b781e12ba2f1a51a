// What a step of a kernel does beside its products and functions, by the model:
// arithmetic of pairs, loops in it, and what threads read of memory one by one;
// and how often it walks over its keys.
#include "passes/support/balance.h"
#include "passes/support/cost.h"
#include "tools/driver/gpu/device.h"

// Clocks of a multiprocessor.
typedef struct Clocks {
  double unit[UNIT_COUNT];
  double loads;       // of elements that threads read by themselves
  const Op *longest;  // loop in it, which takes so many
  double most;
} Clocks;

typedef struct Pacer {
  const Func *f;
  const GpuFacts *gpu;
  DrvPace worst;
} Pacer;

static double all_of(const Clocks *c) {
  double sum = c->loads;
  for (BalanceUnit u = UNIT_PRODUCTS; u < UNIT_MEMORY; u++) sum += c->unit[u];
  return sum;
}

static void add(Clocks *to, const Clocks *c, double times) {
  for (BalanceUnit u = UNIT_PRODUCTS; u < UNIT_COUNT; u++)
    to->unit[u] += times * c->unit[u];
  to->loads += times * c->loads;
}

// A constant, or a dim that is known.
static bool is_known(const Func *f, Value v, double *x) {
  const Op *op = ir_def(f, v);
  int64_t n;
  if (!op || op->code != OP_DIM) return ir_const_value(f, v, x);
  if (!dim_is_const(&f->mod->dims, (Dim)ir_attr_i(op, AT_DIM, 0), &n))
    return false;
  *x = (double)n;
  return true;
}

static double turns_of(const Func *f, const Op *loop) {
  double from, to, step;
  bool known = is_known(f, loop->args[0], &from) &&
               is_known(f, loop->args[1], &to) &&
               is_known(f, loop->args[2], &step);
  return known && to > from ? (to - from) / step : 1;
}

static bool is_pairs(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE;
}

// Each element at an index of its own.
static bool is_gathered(const Func *f, const Op *load) {
  for (uint32_t i = 1; i < load->nargs; i++)
    if (is_pairs(f, load->args[i])) return true;
  return false;
}

static Clocks clocks_of(const Pacer *p, const Region *r);

// What is done mostly: of two arms that with less.
static Clocks lighter(const Pacer *p, const Op *op) {
  Clocks x = clocks_of(p, op->regions[0]), y = clocks_of(p, op->regions[1]);
  return all_of(&x) < all_of(&y) ? x : y;
}

static Clocks clocks_of(const Pacer *p, const Region *r) {
  Clocks sum = {0};
  Balance b = balance_of(p->f, r);
  for (BalanceUnit u = UNIT_PRODUCTS; u < UNIT_COUNT; u++)
    sum.unit[u] = balance_clocks(&b, p->gpu, u);
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_GLOAD && is_pairs(p->f, op->res[0])) {
      const Type *t = ir_type(p->f, op->res[0]);
      double rate = is_gathered(p->f, op) ? COST_GATHERED_PAIRS
                                          : HW_GROUP_THREADS / HW_GROUP_WARPS;
      sum.loads += (double)t->ext[0] * t->ext[1] / rate;
    } else if (op->code == OP_FOR) {
      Clocks in = clocks_of(p, op->regions[0]);
      double turns = turns_of(p->f, op), all = turns * all_of(&in);
      add(&sum, &in, turns);
      if (all > sum.most) sum.most = all, sum.longest = op;
    } else if (op->code == OP_IF) {
      Clocks in = lighter(p, op);
      add(&sum, &in, 1);
    }
  }
  return sum;
}

static bool multiplies(const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_MMA || op->code == OP_WGMMA) return true;
    for (uint32_t i = 0; op->code == OP_IF && i < op->nregions; i++)
      if (multiplies(op->regions[i])) return true;
  }
  return false;
}

// The innermost loops with products.
static void see_loop(void *data, Op *op) {
  Pacer *p = data;
  if (op->code != OP_FOR || !multiplies(op->regions[0])) return;
  Clocks c = clocks_of(p, op->regions[0]);
  double must = c.unit[UNIT_PRODUCTS];
  if (c.unit[UNIT_FUNCTIONS] > must) must = c.unit[UNIT_FUNCTIONS];
  double times = (c.unit[UNIT_ARITHMETIC] + c.loads) / must;
  if (must <= 0 || times <= p->worst.times) return;
  bool inner = 2 * c.most > all_of(&c);
  p->worst = (DrvPace){times, c.loads > c.unit[UNIT_ARITHMETIC],
                       inner ? c.longest : op, 0};
}

static bool has_products(const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_MMA || op->code == OP_WGMMA) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (has_products(op->regions[i])) return true;
  }
  return false;
}

// How many loops it stands for: turns of loops whose number of steps is not
// known (roll_loops) are as many.
static uint32_t loops_of(const Func *f, const Op *loop) {
  uint32_t n = 0;
  double turns = turns_of(f, loop);
  if (turns <= 1 || multiplies(loop->regions[0])) return 1;
  for (const Op *op = loop->regions[0]->first; op; op = op->next) {
    if (op->code != OP_FOR || !has_products(op->regions[0])) continue;
    if (turns_of(f, op) > 1) return 1;
    n++;
  }
  return n ? n * (uint32_t)turns : 1;
}

// Loops with products, one behind the other: whatever is in them, of the region
// that has most.
static uint32_t passes_of(const Func *f, const Region *r, const Op **first) {
  uint32_t n = 0, most = 0;
  const Op *found = NULL;
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code != OP_FOR || !has_products(op->regions[0])) continue;
    n += loops_of(f, op);
    if (!found) found = op;
  }
  if (n > most) most = n, *first = found;
  for (const Op *op = r->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nregions; i++) {
      const Op *in = NULL;
      uint32_t k = passes_of(f, op->regions[i], &in);
      if (k > most) most = k, *first = in;
    }
  return most;
}

DrvPace drv_pace(const Func *f) {
  Pacer p = {.f = f, .gpu = &target_by_name(f->mod->target)->gpu};
  ir_walk(f->body, see_loop, &p);
  const Op *first = NULL;
  p.worst.passes = passes_of(f, f->body, &first);
  if (p.worst.passes > COST_SLOW_PASSES) p.worst.loop = first;
  return p.worst;
}
