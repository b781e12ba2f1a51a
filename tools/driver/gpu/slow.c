// Warning slow_kernel: what keeps a GPU's code from the speed of its machine,
// once a program and target, with the place in the source and what would help.
// A body for tensors of any strides behind a faster one is not looked at: it is
// not what a call mostly takes.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/support/cost.h"
#include "tools/driver/gpu/device.h"

#include <string.h>

typedef struct Cause {
  const char *what, *help;
  Span span;
} Cause;

// ---------------------------------------------------------------- walks
typedef struct Walk {
  const Func *f;
  bool products;     // of matrices, in the loop
  const Op *factor;  // a product that is added to its sums
  const Op *found;   // the loop
} Walk;

static bool is_tile(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE;
}

static void see_product(void *data, Op *op) {
  Walk *w = data;
  w->products |= op->code == OP_MMA || op->code == OP_WGMMA;
  if (op->code == OP_FMA && is_tile(w->f, op->res[0])) w->factor = op;
  for (uint32_t i = 0; op->code == OP_ADD && i < 2; i++) {
    const Op *by = ir_def(w->f, op->args[i]);
    if (by && by->code == OP_MUL && is_tile(w->f, op->res[0])) w->factor = by;
  }
}

// At least as many turns as a matrix instruction multiplies at a time.
static bool is_long(const Func *f, const Op *loop) {
  double from, to, step;
  if (!ir_const_value(f, loop->args[2], &step) || step != 1) return false;
  if (!ir_const_value(f, loop->args[0], &from) ||
      !ir_const_value(f, loop->args[1], &to))
    return true;
  return to - from >= HW_BLOCK;
}

static void see_loop(void *data, Op *op) {
  Walk *w = data;
  if (w->found || op->code != OP_FOR || !is_long(w->f, op)) return;
  bool tile = false;
  for (uint32_t i = 0; i < op->nres; i++) tile |= is_tile(w->f, op->res[i]);
  Walk in = {.f = w->f};
  if (tile) ir_walk(op->regions[0], see_product, &in);
  if (in.factor && !in.products) w->found = op;
}

// A sum over coordinates, one a turn, of products for each pair of a tile.
static bool is_walked(const CgKernelRecord *k, Cause *out) {
  Walk w = {.f = k->func};
  if (ir_has_steps(k->func)) return false;
  ir_walk(k->func->body, see_loop, &w);
  if (!w.found) return false;
  *out = (Cause){"a product is summed element by element, not by matrix "
                 "instructions",
                 "they take factors that vary with one axis of the tile each: "
                 "a sum of such products, or a gather behind a product",
                 w.found->span};
  return true;
}

// ---------------------------------------------------------------- lists
static bool is_whole(const Func *f, Value v) {
  DType t = ir_type(f, v)->dtype;
  return t != DT_BOOL && !dtype_is_float(t);
}

// Is an integer of memory in v?
static bool is_entry(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  if (!op || op->nregions) return false;
  if (op->code == OP_GLOAD) return is_whole(f, v);
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_entry(f, op->args[i])) return true;
  return false;
}

// Does c hold where an entry of memory is a coordinate?
static bool finds_entry(const Func *f, Value c) {
  const Op *op = ir_def(f, c);
  if (!op) return false;
  if (op->code == OP_EQ)
    return is_whole(f, op->args[0]) &&
           is_entry(f, op->args[0]) != is_entry(f, op->args[1]);
  for (uint32_t i = 0; i < op->nargs; i++)
    if ((op->code == OP_BCAST || op->code == OP_AND) &&
        finds_entry(f, op->args[i]))
      return true;
  return false;
}

// A tile that is added up where an entry is the one that is looked for.
static void see_search(void *data, Op *op) {
  Walk *w = data;
  for (uint32_t i = 0; op->code == OP_ADD && i < 2 && !w->found; i++) {
    const Op *x = ir_def(w->f, op->args[i]);
    while (x && x->code == OP_SELECT && is_tile(w->f, x->res[0])) {
      if (finds_entry(w->f, x->args[0])) w->found = op;
      x = ir_def(w->f, x->args[1]);
    }
  }
}

// As gradients of what is read at entries of a list that counts its places.
static bool is_searched(const CgKernelRecord *k, Cause *out) {
  Walk w = {.f = k->func};
  ir_walk(k->func->body, see_search, &w);
  if (!w.found) return false;
  *out =
      (Cause){"for each key and each place of a list it is looked which rows "
              "have the key there",
              "where what a row makes of a key does not vary with the place "
              "in its list, as a bias of places does, keys are looked for "
              "once",
              w.found->span};
  return true;
}

// ---------------------------------------------------------------- tasks
// Tasks of each coordinate of an axis make the same products.
static bool is_repeated(Ctx *cx, const CgKernelRecord *k, Cause *out) {
  const Func *f = k->func;
  for (uint32_t i = 0; i < f->grid.n; i++) {
    const GridDim *d = &f->grid.at[i];
    if (!d->repeats || !ir_has_products(f)) continue;
    const char *name = f->axes.at[d->axis].name;
    out->what = arena_printf(&cx->session,
                             "each coordinate of '%s' is a task, which makes "
                             "the same products again",
                             name);
    out->help = "whole vectors, as V[b, h, k] without the index of its last "
                "axis, are made by one task";
    out->span = f->span;
    return true;
  }
  return false;
}

// ---------------------------------------------------------------- pace
static void tell_times(Ctx *cx, const DrvPace *p, Cause *out) {
  out->what =
      arena_printf(&cx->session,
                   "%s of its pairs takes %.0f times as long as their "
                   "products and functions, by the model",
                   p->loads ? "what is read" : "other arithmetic", p->times);
  out->help = p->loads ? "numbers of memory that follow one another along the "
                         "keys are read at once"
                       : "what varies with rows or keys alone is made once for "
                         "each, not for each pair";
}

// A step does much beside its products. Few rows wait for memory.
static bool is_busy(Ctx *cx, const Built *b, const CgKernelRecord *k,
                    Cause *out) {
  if (ir_has_steps(k->func) || drv_is_decode(b->recipe.spec.prog)) return false;
  DrvPace p = drv_pace(k->func);
  if (p.passes > COST_SLOW_PASSES) {
    out->what = arena_printf(&cx->session,
                             "it goes over its keys %u times, as `topk` does",
                             p.passes);
    out->help = "fewer keys, such as one for each block, or limits that are "
                "given";
  } else if (p.times <= COST_SLOW_TIMES) {
    return false;
  } else {
    tell_times(cx, &p, out);
  }
  out->span = p.loop->span;
  return true;
}

// ---------------------------------------------------------------- steps
// Chunks of 16-bit tensors are products of matrices.
static bool has_narrow(const Func *f) {
  for (uint32_t i = 0; i < f->params.n; i++) {
    DType t = ir_type(f, f->params.at[i].v)->dtype;
    if (t == DT_BF16 || t == DT_F16) return true;
  }
  return false;
}

static bool hands_on(const Func *f, const Op *loop) {
  Walk in = {.f = f};
  bool hands = false;
  for (uint32_t i = 0; i < loop->nres; i++)
    hands |= ir_type(f, loop->res[i])->kind == TK_FRAG;
  if (!hands || !is_long(f, loop)) return false;
  ir_walk(loop->regions[0], see_product, &in);
  return !in.products;
}

// A loop over steps that hands on a tile, or a column of one, and multiplies
// nothing. Not in an arm of a choice: of chunks, what is left at the end, and
// what decays too fast for one.
static bool walks(const Func *f, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_IF) continue;
    if (op->code == OP_FOR && hands_on(f, op)) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (walks(f, op->regions[i])) return true;
  }
  return false;
}

// Steps one after the other, of which no kernel has chunks, or of which chunks
// are made.
static bool is_stepped(const Built *b, Cause *out) {
  const CgKernelRecord *found = NULL;
  bool chunks = false;
  if (b->recipe.opt.chunk == 1) return false;
  for (uint32_t i = 0; i < b->kernels.n; i++)
    chunks |= ir_has_products(b->kernels.at[i].func);
  for (uint32_t i = 0; i < b->kernels.n && !found; i++) {
    const CgKernelRecord *k = &b->kernels.at[i];
    bool steps = ir_has_steps(k->func) && has_narrow(k->func);
    if (steps && (!chunks || walks(k->func, k->func->body))) found = k;
  }
  if (!found) return false;
  *out = (Cause){"its steps go one after the other",
                 "`attnc explain` says why: sums of decayed states and outer "
                 "products go in chunks, if registers and memory hold them",
                 found->func->span};
  return true;
}

// ---------------------------------------------------------------- rows
static bool is_odd(Ctx *cx, const Recipe *r, Cause *out) {
  if (!r->odd) return false;
  out->span = r->odd->name_span;
  if (drv_many_axes(r)) {
    out->what = arena_printf(&cx->session,
                             "'%s' has more axes than the %d that its copies "
                             "take: it has code as for %s",
                             r->odd->name, HW_MAP_AXES, r->target->gpu.general);
    out->help = "axes that lie behind one another in memory as one axis";
    return true;
  }
  out->what = arena_printf(&cx->session,
                           "rows of '%s' are no multiples of 16 bytes, which "
                           "its copies take: it has code as for %s",
                           r->odd->name, r->target->gpu.general);
  out->help = "a head dim that is a multiple of 8 (of 4 in f32, of 16 in 8 "
              "bits), filled with zeros";
  return true;
}

// ---------------------------------------------------------------- workspace
// Is it the length of all sequences of a ragged dim?
static bool is_total(const DimTab *dims, const DimSym *sym) {
  for (uint32_t i = 0; i < dims->syms.n; i++)
    if (dim_is_total(sym, &dims->syms.at[i])) return true;
  return false;
}

// A dim that the program leaves open counts as so much, others of the module,
// as numbers of parts, as one; as many sequences have as many tokens each.
static int64_t taken(const DimTab *dims, const DimSym *sym, const Decl *prog) {
  uint32_t at;
  int64_t n = COST_SLOW_ROOM_DIM;
  if (is_total(dims, sym)) return n * n;
  if (!prog->dims || !dim_find_sym(prog->dims, sym->name, &at)) return 1;
  return n < sym->lo ? sym->lo : n > sym->hi ? sym->hi : n;
}

static double bytes_of(const DimTab *dims, const Type *t, const int64_t *sym) {
  double bytes = dtype_size(t->dtype);
  int64_t v;
  for (uint32_t i = 0; t->kind == TK_TENSOR && i < t->n; i++)
    bytes *= dim_eval(dims, t->size[i], sym, &v) ? (double)v : 0;
  return t->kind == TK_TENSOR ? bytes : 0;
}

// What phases hand on, in bytes; others: all other tensors.
static double room_of(const Module *m, const int64_t *sym, double *others) {
  const Func *f = m->funcs.at[m->funcs.n - 1];
  double room = 0;
  *others = 0;
  for (uint32_t i = 0; i < f->params.n; i++) {
    double bytes = bytes_of(&m->dims, ir_type(f, f->params.at[i].v), sym);
    *(f->params.at[i].role == PR_SHARED ? &room : others) += bytes;
  }
  return room;
}

// Is dim number i that of some function's keys?
static bool counts_keys(const Module *m, uint32_t i) {
  for (uint32_t n = 0; n < m->funcs.n; n++)
    for (uint32_t a = 0; a < m->funcs.at[n]->axes.n; a++) {
      const Axis *x = &m->funcs.at[n]->axes.at[a];
      const DimExpr *e = &m->dims.exprs.at[x->extent];
      if (x->role == AX_KEY && e->op == DIM_SYM && e->value == i) return true;
    }
  return false;
}

// That is far larger than the program's tensors. A dim that it does not grow
// with, as of batches, may be one, but not those of keys: what is made of all
// of them is as large for few.
static bool is_roomy(Ctx *cx, const Built *b, Cause *out) {
  const Module *m = b->mod;
  const Decl *prog = b->recipe.spec.prog;
  if (!m || !m->funcs.n) return false;
  const Func *f = m->funcs.at[m->funcs.n - 1];
  int64_t *sym = NEWN(&cx->scratch, int64_t, m->dims.syms.n + 1);
  for (uint32_t i = 0; i < m->dims.syms.n; i++)
    sym[i] = taken(&m->dims, &m->dims.syms.at[i], prog);
  double tensors, room = room_of(m, sym, &tensors);
  for (uint32_t i = 0; i < m->dims.syms.n; i++) {
    int64_t n = sym[i];
    sym[i] = m->dims.syms.at[i].lo > 1 ? m->dims.syms.at[i].lo : 1;
    bool grows = room_of(m, sym, &tensors) != room;
    if (grows || counts_keys(m, i) || is_total(&m->dims, &m->dims.syms.at[i]))
      sym[i] = n;
  }
  room = room_of(m, sym, &tensors);
  if (room <= tensors * COST_SLOW_ROOM) return false;
  out->what = arena_printf(&cx->session,
                           "its workspace is %.0f times as large as its "
                           "tensors, where open dims are %d",
                           room / tensors, COST_SLOW_ROOM_DIM);
  out->help = "`attnc explain` lists it; what no row and key have for "
              "themselves, or bounds of dims, need less";
  out->span = f->span;
  return true;
}

// ---------------------------------------------------------------- ptxas
static bool is_spilled(Ctx *cx, const CgKernelRecord *k, Cause *out) {
  if (k->spill_bytes <= COST_SLOW_SPILLS ||
      cg_kernel_cost(k) <= COST_SLOW_SPILLS)
    return false;
  Press most = ir_pressure(k->func, &cx->session);
  out->what = arena_printf(&cx->session,
                           "%u bytes of a thread's registers are spilled in %s",
                           k->spill_bytes, k->symbol);
  out->help = "shorter vectors, smaller tiles (`schedule`), or parts of the "
              "program as programs of their own need less registers";
  out->span = most.at ? most.at->span : k->func->span;
  return true;
}

static bool is_serial(Ctx *cx, const CgKernelRecord *k, Cause *out) {
  if (!k->serialized) return false;
  out->what = arena_printf(&cx->session,
                           "products wait for each other in %s (ptxas C%u)",
                           k->symbol, k->warning);
  out->help = "smaller tiles (`schedule`) leave registers for products that "
              "overlap";
  out->span = k->func->span;
  return true;
}

// ---------------------------------------------------------------- once
static bool is_silent(const Recipe *r) {
  const Decl *prog = r->spec.prog;
  for (uint32_t i = 0; i < prog->attrs.n; i++)
    if (strcmp(prog->attrs.at[i].name, "slow") == 0) return true;
  return r->spare;
}

static bool find_cause(Ctx *cx, const Built *b, Cause *out) {
  for (uint32_t i = 0; i < b->kernels.n; i++) {
    const CgKernelRecord *k = &b->kernels.at[i];
    if (is_repeated(cx, k, out) || is_walked(k, out) || is_searched(k, out) ||
        is_busy(cx, b, k, out) || is_spilled(cx, k, out) ||
        is_serial(cx, k, out))
      return true;
  }
  return is_stepped(b, out) || is_roomy(cx, b, out) ||
         is_odd(cx, &b->recipe, out);
}

// What stands in a file that the program imports is nothing that its reader can
// change: the program is meant.
static Span place_of(const Recipe *r, Span s) {
  const Decl *prog = r->spec.prog;
  return s.src == prog->unit->source->id ? s : prog->name_span;
}

void drv_warn_slow(Ctx *cx, const CgProgram *p, const Built *built,
                   uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const Recipe *r = &built[i].recipe;
    Cause c;
    bool told = false;
    for (uint32_t k = 0; k < i; k++)
      told |= built[k].recipe.target == r->target &&
              !is_silent(&built[k].recipe) && find_cause(cx, &built[k], &c);
    if (told || is_silent(r) || !find_cause(cx, &built[i], &c)) continue;
    Diag *d = diag_add(cx, DIAG_slow_kernel, place_of(r, c.span), p->name,
                       r->target->name, c.what);
    diag_note(cx, d, NOWHERE, "%s", c.help);
    diag_note(cx, d, NOWHERE, "`@slow` on the program says that it may be");
  }
}
