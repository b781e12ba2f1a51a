// What a GPU kernel is made of, read from its text at level mach: roles, the
// tiles in shared memory with the tensors that they are copied from, what
// multiplies and what copies, and the clocks of its longest step.
#include "ir/target.h"
#include "passes/support/balance.h"
#include "tools/driver/gpu/device.h"

#include "ir/layout.h"

#include <string.h>

enum { MAX_TILES = 32 };

typedef struct TileName {
  Value smem;
  const char *in, *out;  // tensors, or NULL
} TileName;

typedef struct Kernel {
  const Func *f;
  TileName tile[MAX_TILES];
  uint32_t n;
} Kernel;

// The panels of a ring's tiles, each a slot: the same tiles.
static bool is_cut(const Kernel *k, const Op *op) {
  if (op->code != OP_SALLOC || !op->nargs) return false;
  const Type *x = ir_type(k->f, op->res[0]), *y = ir_type(k->f, op->args[0]);
  return x->dtype == y->dtype && x->layout == y->layout &&
         x->ext[0] == y->ext[0] && x->ext[1] < y->ext[1] &&
         smem_bytes(x) == smem_bytes(y);
}

static TileName *tile_of(Kernel *k, Value v) {
  const Op *op = ir_def(k->f, v);
  while (op && (op->code == OP_SLOT || is_cut(k, op))) {
    v = op->args[0];
    op = ir_def(k->f, v);
  }
  for (uint32_t i = 0; i < k->n; i++)
    if (k->tile[i].smem == v) return &k->tile[i];
  return NULL;
}

static void name_tile(void *data, Op *op) {
  Kernel *k = data;
  bool tma = op->code == OP_TMA_LOAD;
  if (tma || op->code == OP_CP_ASYNC) {
    TileName *t = tile_of(k, op->args[0]);
    if (t) t->in = ir_info(k->f, op->args[tma ? 3 : 1])->hint;
  } else if (op->code == OP_TMA_STORE) {
    TileName *t = tile_of(k, op->args[1]);
    if (t) t->out = ir_info(k->f, op->args[0])->hint;
  }
}

static void find_tiles(Kernel *k) {
  for (const Op *op = k->f->body->first; op; op = op->next)
    if (op->code == OP_SALLOC && !is_cut(k, op) && k->n < MAX_TILES &&
        smem_bytes(ir_type(k->f, op->res[0])) >= HW_SMEM_ALIGN)
      k->tile[k->n++] = (TileName){.smem = op->res[0]};
  ir_walk(k->f->body, name_tile, k);
}

// "Q 4 x 64x128, K 2 x 128x128, O 2 x 64x128"
static const char *tiles_text(Ctx *cx, const Kernel *k) {
  Buf b = {.arena = &cx->session};
  buf_str(&b, "");
  for (uint32_t i = 0; i < k->n; i++) {
    const TileName *t = &k->tile[i];
    const Type *x = ir_type(k->f, t->smem);
    const char *a = t->in ? t->in : t->out ? t->out : "computed";
    buf_printf(&b, "%s%s ", i ? ", " : "", a);
    if (t->in && t->out) buf_printf(&b, "(then %s) ", t->out);
    if (x->ext[2] > 1) buf_printf(&b, "%u x ", (unsigned)x->ext[2]);
    buf_printf(&b, "%ux%u", (unsigned)x->ext[0], (unsigned)x->ext[1]);
  }
  return b.at;
}

// "1 thread loads (40 registers), 2 groups of 128 compute (232 registers)"
static const char *roles_text(Ctx *cx, const Func *f, uint32_t threads) {
  Buf b = {.arena = &cx->session};
  const Op *op = f->body->first;
  while (op && op->code != OP_ROLES) op = op->next;
  if (!op) {
    const GpuFacts *g = &target_by_name(f->mod->target)->gpu;
    buf_printf(&b, "%u %s load and compute", threads / g->wave,
               g->vendor == VENDOR_AMD ? "waves" : "warps");
    return b.at;
  }
  const IrAttr *teams = ir_attr(op, AT_TEAMS), *groups = ir_attr(op, AT_GROUPS);
  const IrAttr *regs = ir_attr(op, AT_TEAMREGS);
  for (uint32_t i = 0; i < teams->n; i++) {
    int64_t size = groups->list[i], n = teams->list[i] / size;
    buf_str(&b, i ? ", " : "");
    if (!op->regions[i]->params.n)
      buf_printf(&b,
                 size == 1 ? "%lld thread loads"
                 : i       ? "%lld threads make tiles"
                           : "%lld threads load",
                 (long long)size);
    else
      buf_printf(&b, "%lld group%s of %lld compute%s", (long long)n,
                 n > 1 ? "s" : "", (long long)size, n > 1 ? "" : "s");
    if (regs) buf_printf(&b, " (%lld registers)", (long long)regs->list[i]);
  }
  return b.at;
}

// ---------------------------------------------------------------- path
typedef struct Path {
  bool wgmma, mma, tma, async;
} Path;

static void see_op(void *data, Op *op) {
  Path *p = data;
  p->wgmma |= op->code == OP_WGMMA;
  p->mma |= op->code == OP_MMA;
  p->tma |= op->code == OP_TMA_LOAD || op->code == OP_TMA_STORE;
  p->async |= op->code == OP_CP_ASYNC;
}

static const char *path_text(Ctx *cx, const Func *f) {
  Path p = {0};
  ir_walk(f->body, see_op, &p);
  return arena_printf(&cx->session, "%s, tiles by %s",
                      p.wgmma ? "products by wgmma"
                      : p.mma ? "products by matrix instructions"
                              : "no products of matrices",
                      p.tma     ? "the copy engine"
                      : p.async ? "asynchronous copies"
                                : "loads");
}

// ---------------------------------------------------------------- clocks
typedef struct Steps {
  const Func *f;
  const GpuFacts *gpu;
  bool products;  // some loop has them
  double most;
  DrvClocks *out;
} Steps;

typedef struct Step {
  const Func *f;
  Balance work;
  bool inner, outer;  // a loop in it; one with products
} Step;

static bool multiplies(const Op *loop) {
  Path p = {0};
  ir_walk(loop->regions[0], see_op, &p);
  return p.wgmma || p.mma;
}

static void add_step(void *data, Op *op) {
  Step *s = data;
  balance_add(&s->work, s->f, op);
  if (op->code != OP_FOR) return;
  s->inner = true;
  s->outer |= multiplies(op);
}

// The innermost loop with products; where none has any, the innermost.
static void see_loop(void *data, Op *op) {
  Steps *s = data;
  Step step = {.f = s->f};
  if (op->code != OP_FOR) return;
  ir_walk(op->regions[0], add_step, &step);
  bool products = multiplies(op);
  if (step.outer || (!products && (step.inner || s->products))) return;
  DrvClocks c = {balance_clocks(&step.work, s->gpu, UNIT_PRODUCTS),
                 balance_clocks(&step.work, s->gpu, UNIT_FUNCTIONS),
                 balance_clocks(&step.work, s->gpu, UNIT_ARITHMETIC)};
  double all = c.products + c.functions + c.arithmetic;
  if (products == s->products && all <= s->most) return;
  s->products = products;
  s->most = all;
  *s->out = c;
}

static void count_clocks(const Func *f, DrvClocks *out) {
  Steps s = {.f = f, .gpu = &target_by_name(f->mod->target)->gpu, .out = out};
  ir_walk(f->body, see_loop, &s);
}

void drv_describe(Ctx *cx, const CgKernelRecord *r, DrvKernel *out) {
  Kernel k = {.f = r->func};
  out->path = path_text(cx, r->func);
  count_clocks(r->func, &out->clocks);
  find_tiles(&k);
  out->tiles = tiles_text(cx, &k);
  out->roles = roles_text(cx, r->func, r->threads);
}
