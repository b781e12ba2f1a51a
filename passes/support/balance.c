// What a step waits for. See balance.h.
#include "passes/support/balance.h"

#include "ir/layout.h"
#include "passes/support/cost.h"

// What an element of an op takes: special functions, and instructions where its
// code is long.
typedef struct OpCost {
  uint8_t functions, instrs;
} OpCost;

static const OpCost costs[OP_COUNT] = {
    [OP_EXP] = {1, 2},      [OP_EXP2] = {1, 1},    [OP_LOG] = {1, 2},
    [OP_LOG2] = {1, 1},     [OP_SIGMOID] = {1, 4}, [OP_DIV] = {1, 8},
    [OP_SQRT] = {1, 8},     [OP_RSQRT] = {1, 1},   [OP_TANH] = {1, 16},
    [OP_SOFTPLUS] = {2, 8}, [OP_SIN] = {1, 16},    [OP_COS] = {1, 16},
    [OP_ERF] = {1, 16},
};

uint32_t balance_functions(OpCode code) {
  return costs[code].functions;
}

uint32_t balance_instrs(OpCode code) {
  if (costs[code].instrs) return costs[code].instrs;
  return op_info(code)->flags & OPF_ELEM ? 1 : 0;
}

static uint64_t elements(const Type *t) {
  bool tile = t->kind == TK_FRAG && t->slice == SLICE_NONE;
  return tile ? (uint64_t)t->ext[0] * t->ext[1] : 0;
}

// Products of bytes are made twice as fast as those of 16 bits.
static uint64_t product_flops(const Func *f, const Op *op, uint64_t n) {
  const Type *a = ir_type(f, op->args[0]);
  return 2 * n * a->ext[1] / (dtype_size(a->dtype) == 1 ? 2 : 1);
}

void balance_add(Balance *b, const Func *f, const Op *op) {
  if (op->nres != 1) return;
  uint64_t n = elements(ir_type(f, op->res[0]));
  uint32_t functions = balance_functions(op->code);
  if (op->code == OP_MMA || op->code == OP_WGMMA)
    b->of[UNIT_PRODUCTS] += product_flops(f, op, n);
  else if (functions) b->of[UNIT_FUNCTIONS] += functions * n;
  else if (op_info(op->code)->flags & OPF_ELEM) b->of[UNIT_ARITHMETIC] += n;
  else if (op->code == OP_SFILL)
    b->of[UNIT_MEMORY] += smem_bytes(ir_type(f, op->res[0]));
}

Balance balance_of(const Func *f, const Region *r) {
  Balance b = {0};
  for (const Op *op = r->first; op; op = op->next) balance_add(&b, f, op);
  return b;
}

uint64_t balance_code(const Func *f, const Region *r) {
  uint64_t n = 0;
  for (const Op *op = r->first; op; op = op->next)
    if (op->nres == 1)
      n += elements(ir_type(f, op->res[0])) * balance_instrs(op->code);
  return n / HW_GROUP_THREADS;
}

// ---------------------------------------------------------------- text
// Elements of a tile at level tile or frag; 1: a number.
static uint64_t spread(const Func *f, const Type *t) {
  uint64_t n = 1;
  int64_t size;
  if (t->kind == TK_FRAG && t->slice == SLICE_NONE) return elements(t);
  for (uint32_t i = 0; t->kind == TK_ELEM && i < t->n; i++)
    if (t->size[i] && dim_is_const(&f->mod->dims, t->size[i], &size))
      n *= (uint64_t)size;
  return n;
}

// One, or those of parts (passes/gpu/dot.c).
static uint64_t products_of(const Func *f, const Op *op) {
  uint64_t most = 1, parts = HW_F32_PARTS;
  for (uint32_t i = 0; i < 2; i++) {
    const Type *t = ir_type(f, op->args[i]);
    if (t->kind == TK_ELEM && dtype_size(t->dtype) > 2)
      most = parts * (parts + 1) / 2;
  }
  return most;
}

// Rows times columns times the summed axis, in instructions of a warp.
static uint64_t text_of_product(const Func *f, const Op *op) {
  const Type *a = ir_type(f, op->args[0]), *b = ir_type(f, op->args[1]);
  uint64_t n;
  if (op->code == OP_DOT) {
    Type all = type_union(a, b, DT_F32);
    n = spread(f, &all) * products_of(f, op);
  } else {
    n = elements(ir_type(f, op->res[0])) * a->ext[1];
  }
  return n / (HW_GROUP_WARPS * HW_WARP_PRODUCTS);
}

static uint64_t text_of(const Func *f, const Op *op) {
  if (op->nres != 1 || op->code == OP_WGMMA) return 1;
  uint64_t n = spread(f, ir_type(f, op->res[0]));
  uint64_t each = balance_instrs(op->code);
  if (op->code == OP_MMA || (op->code == OP_DOT && n > 1))
    return 1 + text_of_product(f, op);
  if (op->code == OP_GLOAD || op->code == OP_LOAD) each = COST_LOAD_CODE;
  return 1 + n * each / HW_GROUP_THREADS;
}

// Is v a tile of as many rows and columns as t?
static bool is_as_large(const Func *f, Value v, const Type *t) {
  Type x = *ir_type(f, v);
  x.dtype = t->dtype;
  return type_eq(&x, t);
}

uint64_t balance_pairs(const Func *f, const Region *r, const Type *t) {
  uint64_t n = 0;
  for (const Op *op = r->first; op; op = op->next) {
    bool pairs = op->nres == 1 && op->code != OP_MMA && op->code != OP_DOT &&
                 is_as_large(f, op->res[0], t);
    if (pairs) n += text_of(f, op);
    for (uint32_t i = 0; i < op->nregions; i++)
      n += balance_pairs(f, op->regions[i], t);
  }
  return n;
}

uint64_t balance_text(const Func *f, const Region *r) {
  uint64_t n = 0;
  for (const Op *op = r->first; op; op = op->next) {
    n += text_of(f, op);
    for (uint32_t i = 0; i < op->nregions; i++)
      n += balance_text(f, op->regions[i]);
  }
  return n;
}

Balance balance_pair(int64_t elements_of) {
  return (Balance){.of = {[UNIT_PRODUCTS] = 2 * (uint64_t)elements_of,
                          [UNIT_FUNCTIONS] = 1}};
}

// Clocks of a second: those that tflops are of.
static double clock_of(const GpuFacts *g) {
  return g->tflops * 1e12 / ((double)g->flops * g->sms);
}

// Bytes that device memory gives a multiprocessor in a clock.
static double bytes_a_clock(const GpuFacts *g) {
  return g->bandwidth * 1e9 / g->sms / clock_of(g);
}

double balance_clocks(const Balance *b, const GpuFacts *gpu, BalanceUnit unit) {
  double rate[UNIT_COUNT] = {gpu->flops, gpu->special, gpu->lanes,
                             bytes_a_clock(gpu)};
  return (double)b->of[unit] / rate[unit];
}

double balance_seconds(const Balance *b, const GpuFacts *gpu) {
  double clocks = 0;
  for (BalanceUnit u = UNIT_PRODUCTS; u < UNIT_COUNT; u++)
    clocks += balance_clocks(b, gpu, u);
  return clocks / (clock_of(gpu) * gpu->sms);
}

BalanceUnit balance_bound(const Balance *b, const GpuFacts *gpu) {
  BalanceUnit most = UNIT_PRODUCTS;
  for (BalanceUnit u = UNIT_PRODUCTS; u < UNIT_COUNT; u++)
    if (balance_clocks(b, gpu, u) > balance_clocks(b, gpu, most)) most = u;
  return most;
}

bool balance_products(const Balance *b, const GpuFacts *gpu, uint32_t times) {
  return balance_clocks(b, gpu, UNIT_PRODUCTS) >=
         times * balance_clocks(b, gpu, UNIT_FUNCTIONS);
}
