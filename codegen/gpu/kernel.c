// One kernel: parameters, shared memory, threads, the function's body.
#include "codegen/gpu/gpu.h"
#include "ir/pressure.h"
#include "runtime/attn_abi.h"

#include <assert.h>

// ---------------------------------------------------------------- numbers
// A kernel that reads its keys once takes few microseconds, of which quotients
// of extents would be one: the host computes them.
enum { MAX_NUMBERS = 24 };

static bool is_dear(const DimTab *t, Dim d) {
  const DimExpr *e = &t->exprs.at[d];
  int64_t by;
  if (e->op == DIM_CONST || e->op == DIM_SYM) return false;
  bool quotient = e->op == DIM_FLOORDIV || e->op == DIM_MOD;
  return (quotient && !dim_is_const(t, e->b, &by)) || is_dear(t, e->a) ||
         is_dear(t, e->b);
}

static void want_number(Gpu *n, Dim d) {
  const DimTab *t = &n->f->mod->dims;
  bool there = n->nnumbers == MAX_NUMBERS;
  for (uint32_t i = 0; i < n->nnumbers; i++) there |= n->number[i] == d;
  if (!there && is_dear(t, d)) n->number[n->nnumbers++] = d;
}

static void want_numbers(void *data, Op *op) {
  if (op->code == OP_DIM) want_number(data, (Dim)ir_attr_i(op, AT_DIM, 0));
}

static void collect_numbers(Gpu *n) {
  const Func *f = n->f;
  n->number = NEWN(&n->g->cx->scratch, Dim, MAX_NUMBERS);
  n->nnumbers = 0;
  if (!ir_attr_i(ir_launch(f), AT_ONCE, 0)) return;
  ir_walk(f->body, want_numbers, n);
  for (uint32_t i = 0; i < f->params.n; i++) {
    const Type *t = ir_type(f, f->params.at[i].v);
    for (uint32_t k = 0; f->params.at[i].role == PR_SHARED && k < t->n; k++)
      want_number(n, t->size[k]);
  }
  for (uint32_t i = 0; i < n->nnumbers; i++)
    vec_push(&n->g->cx->session, &n->out->numbers,
             cg_expr_dim(n->g->cx, &f->mod->dims, n->number[i]));
}

// ---------------------------------------------------------------- parameters
// Offsets of the parameter block (runtime/attn_abi.h).
static void lay_out_block(Gpu *n) {
  const Func *f = n->f;
  uint64_t at = 0;
  for (uint32_t i = 0; i < f->params.n; i++) {
    const Type *t = ir_type(f, f->params.at[i].v);
    if (t->kind != TK_TENSOR || f->params.at[i].role == PR_SHARED) continue;
    n->tensor_at[f->params.at[i].v] = at;
    at += 8 + 16 * (uint64_t)t->n;
  }
  n->scalars_at = at;
  for (uint32_t i = 0; i < f->params.n; i++) {
    if (ir_type(f, f->params.at[i].v)->kind == TK_TENSOR) continue;
    n->tensor_at[f->params.at[i].v] = at;
    at += 8;
  }
  n->given_at = at;
  n->dims_at = at + 8;
  n->numbers_at = n->dims_at + 8 * (uint64_t)f->mod->dims.syms.n;
  n->ntasks_at = n->numbers_at + 8 * (uint64_t)n->nnumbers;
  n->workspace_at = n->ntasks_at + 8;
  n->counter_at = n->ntasks_at + 16;
  n->maps_at = (n->ntasks_at + 24 + 63) / 64 * 64;
}

static V scalar_param(Gpu *n, Value v) {
  Cg *g = n->g;
  DType t = ir_type(n->f, v)->dtype;
  uint64_t at = n->tensor_at[v];
  if (t == DT_F64) return gpu_param(n, at, cg_scalar(g, t));
  if (dtype_is_float(t))
    return cg_cast(g, gpu_param(n, at, cg_scalar(g, DT_F32)), DT_F32, t);
  V x = gpu_param(n, at, LLVMInt64TypeInContext(g->lc));
  if (t == DT_BOOL) return e_icmp(g, LLVMIntNE, x, gpu_i64(n, 0));
  return LLVMBuildIntCast2(g->b, x, cg_scalar(g, t), 1, "");
}

static void load_params(Gpu *n) {
  Cg *g = n->g;
  const Func *f = n->f;
  uint32_t dims = f->mod->dims.syms.n;
  for (uint32_t i = 0; i < f->params.n; i++) {
    Value v = f->params.at[i].v;
    if (ir_type(f, v)->kind != TK_TENSOR) g->val[v] = scalar_param(n, v);
  }
  g->dim = NEWN(&g->cx->scratch, V, dims + 1);
  for (uint32_t i = 0; i < dims; i++)
    g->dim[i] = gpu_param(n, n->dims_at + 8 * (uint64_t)i,
                          LLVMInt64TypeInContext(g->lc));
  g->number = NEWN(&g->cx->scratch, V, f->mod->dims.exprs.n);
  for (uint32_t i = 0; i < n->nnumbers; i++)
    g->number[n->number[i]] = gpu_param(n, n->numbers_at + 8 * (uint64_t)i,
                                        LLVMInt64TypeInContext(g->lc));
}

// ---------------------------------------------------------------- shared memory
static void place_tiles(Gpu *n) {
  uint32_t *at = NEWN(&n->g->cx->scratch, uint32_t, n->f->values.n + 1);
  n->shared = smem_place(n->f, at);
  for (const Op *op = n->f->body->first; op; op = op->next)
    if (op->code == OP_SALLOC) n->tile[op->res[0]].base = at[op->res[0]];
}

static void place_barriers(Gpu *n) {
  n->shared = (n->shared + 7) / 8 * 8;
  for (const Op *op = n->f->body->first; op; op = op->next) {
    if (op->code != OP_MBAR) continue;
    n->tile[op->res[0]].base = n->shared;
    n->shared += 8 * gpu_res_type(n, op)->n;
  }
}

// Of a thread, for sums of several warps: an f64, or a column of a tile of 128;
// where a warp has whole rows, a piece of 8 columns and a gap.
enum { JOIN_BYTES = 18, JOIN_PIECES = 48 };

static uint32_t tile_bytes(const Type *t) {
  uint32_t elems = t->ext[0] * (t->slice ? 1 : t->ext[1]);
  return elems * (uint32_t)dtype_size(t->dtype);
}

// What code generation itself needs for an op, in bytes per group.
typedef struct Need {
  const Func *f;
  const GpuFacts *gpu;
  uint32_t scratch, stay, instances, peers;
  uint32_t outside;  // 1: code that no role has needs some
  uint32_t pins;     // threads that may pin
  const Op *wide;    // what cannot be printed
} Need;

// Whether threads of several warps hold parts along an axis.
static bool spans_warps(const Need *w, const Type *t, uint32_t threads,
                        uint32_t axis) {
  FragMap m;
  uint32_t unit = 1;
  if (t->slice) return t->layout != w->gpu->acc || t->slice == SLICE_COL;
  frag_map(t, threads, &m);
  for (uint32_t i = 0; i < m.nthr; i++) {
    unit *= m.thr[i].size;
    if (m.thr[i].axis == axis && unit > w->gpu->wave) return true;
  }
  return false;
}

static bool joins_warps(const Need *w, const Op *op, const Type *x,
                        uint32_t threads) {
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_POS, 0);
  if (threads <= w->gpu->wave) return false;
  if (op->code == OP_VOTE) return !ir_attr_i(op, AT_WARP, 0);
  if (op->code == OP_FREDUCE && x->slice) return true;
  return (op->code == OP_FCOMBINE || op->code == OP_FREDUCE) &&
         spans_warps(w, x, threads, axis);
}

// Threads of the team that executes op, of all outside of roles.
static uint32_t team_threads(const Func *f, const Op *op) {
  for (const Region *r = op->parent; r && r->parent; r = r->parent->parent)
    for (uint32_t i = 0; r->parent->code == OP_ROLES && i < r->parent->nregions;
         i++)
      if (r->parent->regions[i] == r)
        return (uint32_t)ir_attr(r->parent, AT_TEAMS)->list[i];
  return (uint32_t)ir_attr_i(ir_launch(f), AT_THREADS, 0);
}

static bool in_role(const Op *op) {
  for (const Region *r = op->parent; r && r->parent; r = r->parent->parent)
    if (r->parent->code == OP_ROLES) return true;
  return false;
}

static uint32_t most(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

static uint32_t join_bytes(const Need *w, const Op *op, const Type *x,
                           uint32_t threads) {
  if (!joins_warps(w, op, x, threads)) return 0;
  bool rows =
      x->layout == LY_LIN && op->code != OP_VOTE && !ir_attr_i(op, AT_POS, 0);
  bool whole = x->slice == SLICE_COL || !x->slice;
  return (rows && whole ? JOIN_PIECES : JOIN_BYTES) * threads;
}

static void need_of(void *data, Op *op) {
  Need *w = data;
  uint32_t threads = ir_group_threads(w->f, op);
  const Type *x = op->nargs ? ir_type(w->f, op->args[0]) : NULL;
  uint32_t bytes = join_bytes(w, op, x, threads);
  bool scan = op->code == OP_FSCAN && !gpu_scans_in_quads(w->f, op, threads);
  if (scan && gpu_scans_in_columns(w->f, op, threads)) {
    bytes = gpu_column_scan_bytes(x, threads);
    scan = false;
  }
  if (scan) bytes = tile_bytes(x);
  if (op->code == OP_RELAYOUT) bytes = gpu_relayouts_bytes(w->f, op);
  if (op->code == OP_FWARPS) bytes = frag_warps_bytes(x);
  if (op->code == OP_PEERS) w->stay += frag_peers_bytes(w->f, op);
  w->peers += op->code == OP_PEERS;
  if (op->code == OP_SKEW)
    bytes = smem_skew_bytes(op, ir_type(w->f, op->res[0]));
  if (op->code == OP_RELAYOUT) w->stay += gpu_stay_bytes(w->f, op);
  if (scan) bytes += 8 * (x->ext[0] + x->ext[1]);
  if (op->code == OP_MMA && x->kind == TK_FRAG &&
      (dtype_size(x->dtype) > 2 ||
       (dtype_size(x->dtype) == 1 && x->layout != w->gpu->op8) ||
       x->ext[0] % (threads / w->gpu->wave * w->gpu->rows) || x->ext[1] % 16 ||
       ir_type(w->f, op->res[0])->ext[1] % w->gpu->cols))
    bytes = tile_bytes(x);
  if (bytes > w->scratch) w->scratch = bytes;
  if (bytes && !in_role(op)) w->outside = 1;
  if (op->code == OP_PIN) w->pins = most(w->pins, team_threads(w->f, op));
  if (op->code == OP_WGMMA && threads != 128) w->wide = op;
  if (op->code != OP_ROLES) return;
  for (uint32_t i = 0; i < op->nregions; i++) {
    int64_t group = ir_attr(op, AT_GROUPS)->list[i];
    if (group > 1)
      w->instances += (uint32_t)(ir_attr(op, AT_TEAMS)->list[i] / group);
  }
}

static void place_shared(Gpu *n, const Need *w) {
  place_tiles(n);
  place_barriers(n);
  n->scratch_at = (n->shared + 15) / 16 * 16;
  n->stay_at = (w->scratch + 15) / 16 * 16;
  n->scratch = n->stay_at + w->stay;
  n->outside = w->outside;
  n->pin_at = n->scratch_at + n->scratch * (w->outside + w->instances);
  n->out->shared_bytes = n->pin_at + 4 * w->pins;
  if (!w->peers) return;
  n->peers_at = (n->out->shared_bytes + 7) / 8 * 8;
  n->out->shared_bytes = n->peers_at + HW_MOST_GROUPS * 8 * w->peers;
}

// ---------------------------------------------------------------- body
static bool has_roles(const Func *f) {
  for (const Op *op = f->body->first; op; op = op->next)
    if (op->code == OP_ROLES) return true;
  return false;
}

// A fragment of more registers than half of those a thread has.
static void see_large(void *data, Op *op) {
  enum { HALF = 128 };
  Gpu *n = data;
  bool load = op->code == OP_GLOAD && gpu_res_type(n, op)->kind == TK_FRAG;
  n->leanest |= load && pressure_of(gpu_res_type(n, op), n->grp.threads) > HALF;
}

static void note_lean(Gpu *n) {
  n->leanest = false;
  if (ir_attr_i(ir_launch(n->f), AT_LEANER, 0))
    gpu_string_attr(n, (unsigned)LLVMAttributeFunctionIndex, GPU_FEW, "");
  if (!gpu_lean(n) || has_roles(n->f)) return;
  ir_walk(n->f->body, see_large, n);
  if (n->leanest)
    gpu_string_attr(n, (unsigned)LLVMAttributeFunctionIndex, GPU_LEAN, "");
}

// Loops that wait for memory where they first need it may have no turn.
static void all_ops(Gpu *n) {
  n->ahead = n->vendor->memory != NULL;
  gpu_region(n, n->f->body);
  if (n->ahead) n->vendor->memory(n);
}

static void body(Gpu *n) {
  n->smem = n->vendor->shared(n);
  n->vendor->threads(n);
  n->grp = (Group){.threads = n->out->threads,
                   .tid = n->tid,
                   .warp = n->warp,
                   .lane = n->lane,
                   .instance = gpu_i32(n, 0),
                   .instances = 1,
                   .first = e_icmp(n->g, LLVMIntEQ, n->tid, gpu_i32(n, 0))};
  note_lean(n);
  load_params(n);
  n->vendor->begin(n);
  if (n->dense) n->out->when = n->vendor->dense(n);
  all_ops(n);
}

static bool launch_of(Gpu *n) {
  const Op *op = ir_launch(n->f);
  if (!op) {
    diag_add(n->g->cx, DIAG_cg_input, n->f->span, n->f->name,
             "it does not begin with launch");
    n->g->failed = true;
    return false;
  }
  const IrAttr *ctas = ir_attr(op, AT_CTAS);
  n->out->threads = (uint32_t)ir_attr_i(op, AT_THREADS, 0);
  n->out->occupancy = (uint32_t)ir_attr_i(op, AT_OCCUPANCY, 1);
  n->out->once = ir_attr_i(op, AT_ONCE, 0);
  n->dense = n->vendor->dense && ir_attr_i(op, AT_DENSE, 0);
  n->out->persistent = ctas && strcmp(ctas->s, "persistent") == 0;
  return true;
}

static void collect_maps(void *data, Op *op) {
  Gpu *n = data;
  n->multiplies |= op->code == OP_MMA || op->code == OP_WGMMA;
  if (op->code == OP_TMA_LOAD || op->code == OP_TMA_STORE ||
      gpu_is_told(data, op) ||
      (op->code == OP_GLOAD && ir_attr_i(op, AT_ALIGNED, 0)))
    nv_map_of(data, op);
}

static void clear(Gpu *n) {
  Arena *a = &n->g->cx->scratch;
  uint32_t values = n->f->values.n + 1;
  n->frag = NEWN(a, Frag, values);
  n->tile = NEWN(a, Tile, values);
  n->stays = NEWN(a, bool, values);
  n->tensor_at = NEWN(a, uint64_t, values);
  n->g->val = NEWN(a, V, values);
  n->g->fn = n->f;
  n->shared = n->barriers = 0;
  n->multiplies = false;
}

static void too_much(Gpu *n) {
  Cg *g = n->g;
  g->failed = true;
  diag_add(g->cx, DIAG_cg_input, n->f->span, n->f->name,
           arena_printf(&g->cx->session,
                        "on %s it needs %u bytes of shared "
                        "memory, a group has %u: smaller tiles (--tile-q, "
                        "--tile-k) may do",
                        g->target->name, n->out->shared_bytes, n->gpu.smem));
}

void gpu_kernel(Gpu *n, const char *symbol) {
  Cg *g = n->g;
  Need need = {.f = n->f, .gpu = &n->gpu};
  clear(n);
  if (!launch_of(n)) return;
  ir_walk(n->f->body, need_of, &need);
  ir_walk(n->f->body, collect_maps, n);
  if (need.wide) {
    gpu_unsupported(n, need.wide, "wgmma needs a group of 128 threads");
    return;
  }
  collect_numbers(n);
  lay_out_block(n);
  n->out->block_bytes = (uint32_t)n->maps_at + 128 * n->out->maps.n;
  place_shared(n, &need);
  if (n->out->shared_bytes > n->gpu.smem) {
    too_much(n);
    return;
  }
  n->vendor->declare(n, symbol);
  body(n);
  if (g->failed) return;
  n->vendor->end(n);
  LLVMBuildRetVoid(g->b);
}
