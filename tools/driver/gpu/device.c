// From modules of GPUs to the device variants of a program.
#include "ir/target.h"
#include "tools/driver/gpu/device.h"
#include "tools/plan/plan.h"

// ---------------------------------------------------------------- kernels

// The product of the grid's extents in tiles.
CgExpr drv_tasks(Ctx *cx, const Module *m, const Func *f) {
  CgExpr all = cg_expr_const(cx, 1);
  for (uint32_t i = 0; i < f->grid.n; i++) {
    const GridDim *g = &f->grid.at[i];
    CgExpr n = cg_expr_dim(cx, &m->dims, f->axes.at[g->axis].extent);
    if (g->tile > 1) {
      n = cg_expr_bin(cx, n, ATTN_X_ADD, cg_expr_const(cx, g->tile - 1));
      n = cg_expr_bin(cx, n, ATTN_X_FLOORDIV, cg_expr_const(cx, g->tile));
    }
    all = i ? cg_expr_bin(cx, all, ATTN_X_MUL, n) : n;
  }
  return all;
}

static CgExpr rounded(Ctx *cx, CgExpr n, int64_t to) {
  n = cg_expr_bin(cx, n, ATTN_X_ADD, cg_expr_const(cx, to - 1));
  n = cg_expr_bin(cx, n, ATTN_X_FLOORDIV, cg_expr_const(cx, to));
  return cg_expr_bin(cx, n, ATTN_X_MUL, cg_expr_const(cx, to));
}

// Bytes that the phases hand on, by parameter of f, as code generation lays
// them out; empty: of others.
static CgExpr *rooms(Ctx *cx, const Module *m, const Func *f) {
  CgExpr *all = NEWN(&cx->session, CgExpr, f->params.n + 1);
  for (uint32_t i = 0; i < f->params.n; i++) {
    if (f->params.at[i].role != PR_SHARED) continue;
    const Type *t = ir_type(f, f->params.at[i].v);
    int64_t size = (int64_t)dtype_size(t->dtype);
    CgExpr n = cg_expr_const(cx, size);
    for (uint32_t k = 0; k < t->n; k++) {
      CgExpr along = cg_expr_dim(cx, &m->dims, t->size[k]);
      if (t->padded && k + 1 == t->n)
        along = rounded(cx, along, ATTN_MAP_ROW / size);
      n = cg_expr_bin(cx, n, ATTN_X_MUL, along);
    }
    all[i] = rounded(cx, n, ATTN_ALIGN);
  }
  return all;
}

// The last phase has all workspaces.
static CgExpr all_workspace(Ctx *cx, const Module *m) {
  const Func *f = m->funcs.n ? m->funcs.at[m->funcs.n - 1] : NULL;
  return f ? cg_expr_sum(cx, rooms(cx, m, f), f->params.n) : (CgExpr){0};
}

// The parameter that is tensor number n of f.
static uint32_t param_of(const Func *f, uint32_t n) {
  uint32_t i = 0;
  while (ir_type(f, f->params.at[i].v)->kind != TK_TENSOR || n-- > 0) i++;
  return i;
}

static const CgPlace *places(Ctx *cx, const Module *m, const CgKernelRecord *k,
                             attn_gpu_map *maps) {
  CgPlace *out = NEWN(&cx->session, CgPlace, k->maps.n + 1);
  const CgExpr *each = k->maps.n ? rooms(cx, m, k->func) : NULL;
  for (uint32_t i = 0; i < k->maps.n; i++) {
    uint32_t at = param_of(k->func, maps[i].tensor);
    const Type *t = ir_type(k->func, k->func->params.at[at].v);
    if (k->func->params.at[at].role != PR_SHARED) continue;
    maps[i].tensor = ATTN_NONE;
    maps[i].dtype = (uint32_t)t->dtype;
    out[i].at = cg_expr_sum(cx, each, at);
    if (!out[i].at.n) out[i].at = cg_expr_const(cx, 0);
    for (uint32_t a = 0; a < t->n && a < ATTN_MAP_RANK; a++)
      out[i].extent[a] = cg_expr_dim(cx, &m->dims, t->size[a]);
  }
  return out;
}

// Rows of what k has maps of, in workspace, begin where maps can show them.
static bool has_padded(const CgKernelRecord *k) {
  for (uint32_t i = 0; i < k->maps.n; i++) {
    uint32_t at = param_of(k->func, k->maps.at[i].tensor);
    if (ir_type(k->func, k->func->params.at[at].v)->padded) return true;
  }
  return false;
}

static attn_gpu_map *maps(Ctx *cx, const CgKernelRecord *k) {
  attn_gpu_map *out = NEWN(&cx->session, attn_gpu_map, k->maps.n + 1);
  for (uint32_t i = 0; i < k->maps.n; i++) {
    const CgMapRecord *r = &k->maps.at[i];
    out[i] = (attn_gpu_map){.tensor = r->tensor,
                            .rank = (uint16_t)r->rank,
                            .swizzle = (uint16_t)r->swizzle};
    memcpy(out[i].axis, r->axis, sizeof r->axis);
    memcpy(out[i].box, r->box, sizeof r->box);
  }
  return out;
}

static CgPhase phase(Ctx *cx, const Module *m, const CgKernelRecord *k) {
  attn_gpu_map *all = maps(cx, k);
  return (
      CgPhase){.name = k->symbol,
               .ntasks = drv_tasks(cx, m, k->func),
               .threads = k->threads,
               .shared_bytes = k->shared_bytes,
               .ctas = k->persistent ? ATTN_CTAS_PERSISTENT : ATTN_CTAS_TASKS,
               .flags = (k->counter ? ATTN_GPU_COUNTER : 0) |
                        (k->waits ? ATTN_GPU_WAITS : 0) |
                        (k->once ? ATTN_GPU_ONCE : 0) |
                        (has_padded(k) ? ATTN_GPU_PADDED : 0) | ATTN_GPU_LOCAL,
               .makes = ir_made(&cx->scratch, k->func),
               .maps = all,
               .places = places(cx, m, k, all),
               .nmaps = k->maps.n,
               .numbers = k->numbers.at,
               .nnumbers = k->numbers.n};
}

// Text in a container ends with a zero.
static CgBytes text_of(Buf *b) {
  buf_char(b, 0);
  return (CgBytes){b->at, b->n};
}

static void add(Ctx *cx, CgProgram *p, CgDevice d) {
  CgDevice *all = NEWN(&cx->session, CgDevice, p->ndevices + 1);
  if (p->ndevices) memcpy(all, p->devices, sizeof *all * p->ndevices);
  all[p->ndevices++] = d;
  p->devices = all;
}

void drv_prepend_device(Ctx *cx, CgProgram *p, CgDevice d) {
  add(cx, p, d);
  CgDevice *all = p->devices;
  all[p->ndevices - 1] = all[p->ndevices - 2];
  all[p->ndevices - 2] = d;
}

static bool same_blocks(Ctx *cx, const CgProgram *p, const Module *m,
                        const CgKernels *all) {
  for (uint32_t i = 0; i < all->n; i++) {
    const CgKernelRecord *k = &all->at[i];
    uint32_t words = m->dims.syms.n + k->numbers.n;
    if (k->block_bytes == cg_block_bytes(p, words, k->maps.n)) continue;
    diag_add(cx, DIAG_cg_input, NOWHERE, p->name,
             "its kernel's parameter block is not that of its signature");
    return false;
  }
  return true;
}

bool drv_is_amd(const Built *b) {
  return b->recipe.target->gpu.vendor == VENDOR_AMD;
}

void drv_note_local(const Built *b, CgPhase *phases) {
  for (uint32_t i = 0; i < b->kernels.n; i++)
    if (!b->kernels.at[i].spill_bytes)
      phases[i].flags &= ~(uint32_t)ATTN_GPU_LOCAL;
}

static bool link_code(Ctx *cx, const Buf *object, Built *b, CgPhase *phases,
                      CgDevice *d) {
  Buf out = {.arena = &cx->session};
  if (!cg_lld(cx, object->at, object->n, &out, &b->kernels)) return false;
  d->target = ATTN_TARGET_GFX(b->recipe.target->gpu.cc);
  d->binary = (CgBytes){out.at, out.n};
  d->text = (CgBytes){0};
  drv_note_local(b, phases);
  return true;
}

// e, which counts the dims of a module, over those of its program.
CgExpr drv_over_program(Ctx *cx, const CgProgram *p, const DimTab *dims,
                        CgExpr e) {
  int64_t *w = NEWN(&cx->session, int64_t, e.n + 1);
  if (e.n) memcpy(w, e.at, e.n * sizeof *w);
  for (uint32_t i = 0; i < e.n; i++) {
    uint32_t at = 0;
    int64_t op = w[i];
    if (op == ATTN_X_DIM &&
        dim_find_sym(p->dims, dims->syms.at[w[i + 1]].name, &at))
      w[i + 1] = at;
    i += op == ATTN_X_SHAPE || op == ATTN_X_STRIDE   ? 2
         : op >= ATTN_X_CONST && op <= ATTN_X_SCALAR ? 1
                                                     : 0;
  }
  return (CgExpr){w, e.n};
}

CgExpr drv_and(Ctx *cx, CgExpr a, CgExpr b) {
  return a.n ? cg_expr_bin(cx, a, ATTN_X_AND, b) : b;
}

// When all kernels of b can be run.
static CgExpr when(Ctx *cx, const CgProgram *p, const Built *b) {
  CgExpr all = b->recipe.when;
  for (uint32_t i = 0; i < b->kernels.n; i++) {
    CgExpr own = drv_over_program(cx, p, &b->mod->dims, b->kernels.at[i].when);
    if (own.n) all = drv_and(cx, all, own);
  }
  return all;
}

static bool assembly(Ctx *cx, const Module *m, const char *prefix,
                     CgDevice *out) {
  Buf text = {.arena = &cx->session};
  if (!cg_gpu(cx, m, prefix, CG_ASM, &text, NULL)) return false;
  out->text = text_of(&text);
  return true;
}

// Boxes of one row are strips (passes/hopper/tma_columns.c), for which tensors
// must lie as the copy engine wants them: other code reads any.
static bool has_strips(const CgKernelRecord *k) {
  for (uint32_t i = 0; i < k->maps.n; i++)
    if (k->maps.at[i].box[1] == 1) return true;
  return false;
}

bool drv_needs_strided(const Built *b) {
  for (uint32_t i = 0; i < b->kernels.n; i++)
    if (b->kernels.at[i].when.n || has_strips(&b->kernels.at[i])) return true;
  return false;
}

// Is every tensor that r describes one that a map can be made of? What phases
// hand on always is; `dense`: rows are, at multiples of 16 bytes.
static bool always_maps(const Func *f, const CgMapRecord *r, bool dense) {
  const FuncParam *p = &f->params.at[param_of(f, r->tensor)];
  const Type *t = ir_type(f, p->v);
  if (p->role == PR_SHARED) return true;
  int64_t row = dim_divisor(&f->mod->dims, t->size[r->axis[0]]);
  return dense && row * (int64_t)dtype_size(t->dtype) % HW_SMEM_WORDS == 0;
}

bool drv_needs_general(const Built *b) {
  const Recipe *r = &b->recipe;
  bool needs = false;
  bool dense = drv_dense_asked(r->spec.prog, r->target, &r->opt) == DENSE_ON;
  for (uint32_t i = 0; i < b->kernels.n; i++) {
    const CgKernelRecord *k = &b->kernels.at[i];
    for (uint32_t n = 0; n < k->maps.n; n++)
      needs |= !always_maps(k->func, &k->maps.at[n], dense);
  }
  return needs && r->target->gpu.general;
}

// Whether a call may see less of the tensor than all: what lists, offsets or
// pages choose.
static bool is_chosen_of(const Param *p) {
  DType t = p->sym->ty.dtype;
  bool order = !p->layout || p->layout->kind == LAY_ORDER ||
               p->layout->kind == LAY_STRIDED;
  return !order || (p->sym->ty.rank && (t == DT_I32 || t == DT_I64));
}

// Has `out` all open dims of p, and so about as many elements, or more?
static bool is_as_long(const Decl *d, const Param *out, const Param *p) {
  const Ty *of = &out->sym->ty, *t = &p->sym->ty;
  bool all = of->rank > 0;
  for (uint32_t i = 0; i < t->rank; i++) {
    bool has = dim_is_fixed(d->dims, t->shape[i]);
    for (uint32_t k = 0; k < of->rank; k++) has |= of->shape[k] == t->shape[i];
    all &= has;
  }
  return all;
}

// A gradient writes g_K of all keys, whatever a list chooses: a copy of K is no
// more than that. A pool of pages may be far larger than what a call sees.
static bool is_written_whole(const Decl *d, const Param *p) {
  bool whole = d->derived && d->derived->gradient &&
               !(p->layout && p->layout->kind == LAY_PAGED);
  bool as_long = !p->sym->ty.rank || !dtype_is_float(p->sym->ty.dtype);
  for (uint32_t i = 0; i < d->outs.n; i++)
    as_long |= is_as_long(d, &d->outs.at[i], p);
  return whole && as_long;
}

// Copies cost a little beside what is done with whole tensors, more than a few
// rows do with a cache.
bool drv_takes_copies(const Recipe *r) {
  const Decl *d = r->spec.prog;
  bool all = true, written = true;
  for (uint32_t i = 0; i < d->params.n; i++) {
    all &= !is_chosen_of(&d->params.at[i]);
    written &= is_written_whole(d, &d->params.at[i]);
  }
  return r->target->gpu.general && !r->opt.general &&
         drv_dense_asked(d, r->target, &r->opt) == DENSE_OPEN &&
         (written || (all && !drv_is_decode(d)));
}

// Whether no kernel has a map of a tensor of the caller's.
static bool takes_any(const Built *b) {
  for (uint32_t i = 0; i < b->kernels.n; i++) {
    const CgKernelRecord *k = &b->kernels.at[i];
    for (uint32_t n = 0; n < k->maps.n; n++) {
      uint32_t at = param_of(k->func, k->maps.at[n].tensor);
      if (k->func->params.at[at].role != PR_SHARED) return false;
    }
  }
  return true;
}

static const Param *param_named(const Decl *prog, const char *name) {
  for (uint32_t i = 0; i < prog->params.n; i++)
    if (strcmp(prog->params.at[i].name, name) == 0) return &prog->params.at[i];
  for (uint32_t i = 0; i < prog->outs.n; i++)
    if (strcmp(prog->outs.at[i].name, name) == 0) return &prog->outs.at[i];
  return NULL;
}

const Param *drv_many_axes(const Recipe *r) {
  const Decl *d = r->spec.prog;
  if (!r->target->gpu.general) return NULL;
  for (uint32_t i = 0; i < d->params.n + d->outs.n; i++) {
    const Param *p =
        i < d->params.n ? &d->params.at[i] : &d->outs.at[i - d->params.n];
    if (p->sym->ty.rank > HW_MAP_AXES) return p;
  }
  return NULL;
}

typedef struct Odd {
  const Func *f;
  const FuncParam *found;
  Dim size;
} Odd;

// Copies by the copy engine have rows at multiples of 16 bytes.
static void see_copy(void *data, Op *op) {
  Odd *o = data;
  int64_t row;
  if (op->code != OP_TMA_LOAD && op->code != OP_TMA_STORE) return;
  Value tensor = op->args[op->code == OP_TMA_LOAD ? 3 : 0];
  const Type *t = ir_type(o->f, tensor);
  Dim size = t->size[ir_attr(op, AT_TILE)->list[1]];
  for (uint32_t i = 0; i < o->f->params.n; i++) {
    const FuncParam *p = &o->f->params.at[i];
    if (!o->found && p->v == tensor &&
        dim_is_const(&o->f->mod->dims, size, &row) &&
        row * (int64_t)dtype_size(t->dtype) % HW_SMEM_WORDS != 0)
      o->found = p, o->size = size;
  }
}

// The parameter of the program. Rows that phases hand on are as long as those
// of an argument.
static const Param *named_odd(const Decl *prog, const Odd *o) {
  if (o->found->role != PR_SHARED)
    return param_named(prog, ir_info(o->f, o->found->v)->hint);
  for (uint32_t i = 0; i < o->f->params.n; i++) {
    const FuncParam *p = &o->f->params.at[i];
    const Type *t = ir_type(o->f, p->v);
    if (p->role != PR_SHARED && t->n && t->size[t->n - 1] == o->size)
      return param_named(prog, ir_info(o->f, p->v)->hint);
  }
  return &prog->params.at[0];
}

const Param *drv_odd_rows(const Recipe *r, const Module *m) {
  for (uint32_t i = 0; r->target->gpu.general && i < m->funcs.n; i++) {
    Odd o = {.f = m->funcs.at[i]};
    ir_walk(o.f->body, see_copy, &o);
    if (o.found) return named_odd(r->spec.prog, &o);
  }
  return NULL;
}

static bool lower(Ctx *cx, const CgProgram *p, Built *b) {
  const Recipe *r = &b->recipe;
  b->mod = drv_lower_mach(cx, r->spec, r->target, &r->opt, p->name);
  b->kernels = (CgKernels){0};
  return b->mod != NULL;
}

static void fill(Ctx *cx, const CgProgram *p, const Built *b, CgPhase *phases,
                 CgDevice *out) {
  const Target *t = b->recipe.target;
  *out = (CgDevice){.target = ATTN_TARGET_SM(t->gpu.cc, t->gpu.hopper),
                    .when = when(cx, p, b),
                    .strided = b->recipe.opt.strided,
                    .dims = &b->mod->dims,
                    .phases = phases,
                    .workspace = all_workspace(cx, b->mod),
                    .nphases = b->kernels.n};
}

static bool code_of(Ctx *cx, Built *b, Buf *out) {
  const Recipe *r = &b->recipe;
  if (drv_is_amd(b))
    return drv_memo_object(cx, r->memo, b->mod, r->opt.prefix, out,
                           &b->kernels);
  return drv_memo_ptx(cx, r->memo, b->mod, r->opt.prefix, out, &b->kernels);
}

bool drv_device_text(Ctx *cx, const CgProgram *p, Built *b, CgDevice *out) {
  const Recipe *r = &b->recipe;
  Buf code = {.arena = &cx->session};
  if (!lower(cx, p, b) || !code_of(cx, b, &code) ||
      !same_blocks(cx, p, b->mod, &b->kernels))
    return false;
  CgPhase *phases = NEWN(&cx->session, CgPhase, b->kernels.n + 1);
  for (uint32_t i = 0; i < b->kernels.n; i++)
    phases[i] = phase(cx, b->mod, &b->kernels.at[i]);
  if (drv_takes_copies(r)) phases[0].flags |= ATTN_GPU_COPIES;
  fill(cx, p, b, phases, out);
  if (drv_is_amd(b))
    return link_code(cx, &code, b, phases, out) &&
           (!r->opt.assembly || assembly(cx, b->mod, r->opt.prefix, out));
  out->text = text_of(&code);
  return true;
}

bool drv_add_device(Ctx *cx, CgProgram *p, Built *b) {
  CgDevice d;
  if (!drv_make_device(cx, p, b, &d)) return false;
  add(cx, p, d);
  return true;
}

// ---------------------------------------------------------------- facts
// CTAs of a multiprocessor by threads, registers and shared memory.
static uint32_t residency(const Target *t, const CgKernelRecord *k) {
  const GpuFacts *g = &t->gpu;
  uint32_t n = g->threads / k->threads, own = g->own;
  uint32_t regs = (k->registers + HW_REG_GRAIN - 1) / HW_REG_GRAIN;
  uint32_t by_smem =
      k->shared_bytes ? (g->smem + own) / (k->shared_bytes + own) : n;
  uint32_t by_regs = regs ? g->regs / (regs * HW_REG_GRAIN * k->threads) : n;
  n = n < by_smem ? n : by_smem;
  n = n < by_regs ? n : by_regs;
  return n < HW_MOST_CTAS ? n : HW_MOST_CTAS;
}

static size_t code_bytes(const CgDevice *d) {
  size_t n = d->binary.n;
  for (uint32_t i = 0; d->parts && i < d->nphases; i++) n += d->parts[i].n;
  return n;
}

static uint32_t kernels(DrvCall *c, const Target *t, DrvOptions *opt,
                        DrvKernel *out, uint32_t max) {
  DrvSpec s;
  CgProgram p;
  Builts all = {0};
  DrvOptions first = *opt;
  first.first = true;
  if (!drv_choose(c, &s) || !drv_device_program(c->cx, s, t, &first, &p, &all))
    return 0;
  Built b = all.at[0];
  for (uint32_t i = 0; i < b.kernels.n && i < max; i++) {
    const CgKernelRecord *k = &b.kernels.at[i];
    out[i] = (DrvKernel){.symbol = k->symbol,
                         .threads = k->threads,
                         .shared_bytes = k->shared_bytes,
                         .registers = k->registers,
                         .spill_bytes = k->spill_bytes,
                         .per_sm = residency(t, k),
                         .persistent = k->persistent,
                         .serialized = k->serialized,
                         .warning = k->warning,
                         .level = k->level,
                         .runs = k->runs,
                         .text_bytes = p.devices[0].text.n,
                         .code_bytes = code_bytes(&p.devices[0])};
    out[i].body = takes_any(&b) ? "any" : "dense";
    drv_describe(c->cx, k, &out[i]);
  }
  bool more = !b.recipe.opt.general && drv_needs_general(&b);
  if (more && drv_takes_copies(&b.recipe))
    ctx_remark(c->cx,
               "%s: a call copies tensors whose rows do not lie "
               "at multiples of 16 bytes",
               c->prog->name);
  else if (more)
    ctx_remark(c->cx,
               "%s: objects have a body for tensors of any strides as well, of "
               "the passes for %s",
               c->prog->name, t->gpu.general);
  drv_warn_slow(c->cx, &p, &b, 1);
  // The remark about a second body.
  Built few;
  drv_few_tasks(c->cx, &p, &b, &few);
  *opt = b.recipe.opt;
  return b.kernels.n < max ? b.kernels.n : max;
}

uint32_t drv_kernels(DrvCall *c, const Target *t, DrvOptions *opt,
                     DrvKernel *out, uint32_t max) {
  work_begin(c->cx);
  uint32_t n = kernels(c, t, opt, out, max);
  work_end(c->cx);
  return n;
}
