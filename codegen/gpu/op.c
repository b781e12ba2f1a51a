// Which function prints which op of a GPU program; scalars of a launch.
#include "codegen/gpu/gpu.h"

// ---------------------------------------------------------------- scalars
// A 64-bit word as the op's result type.
static void narrow(Gpu *n, const Op *op, V v) {
  LLVMTypeRef t = cg_scalar(n->g, gpu_res_type(n, op)->dtype);
  n->g->val[op->res[0]] = LLVMBuildIntCast2(n->g->b, v, t, 1, "");
}
static void nv_ntasks(Gpu *n, const Op *op) {
  narrow(n, op, gpu_param(n, n->ntasks_at, LLVMInt64TypeInContext(n->g->lc)));
}

static void nv_tshape(Gpu *n, const Op *op) {
  uint32_t at = 1 + (uint32_t)ir_attr_i(op, AT_POS, 0);
  if (op->code == OP_TSTRIDE) at += gpu_arg_type(n, op, 0)->n;
  narrow(n, op, gpu_tensor(n, op->args[0], at));
}

static void nv_dim(Gpu *n, const Op *op) {
  V v = cg_dim(n->g, (Dim)ir_attr_i(op, AT_DIM, 0));
  LLVMTypeRef t = cg_scalar(n->g, gpu_res_type(n, op)->dtype);
  n->g->val[op->res[0]] = LLVMBuildIntCast2(n->g->b, v, t, 1, "");
}

// A tensor is given if its data is not 0; a scalar if its bit is set.
static void nv_given(Gpu *n, const Op *op) {
  Cg *g = n->g;
  LLVMTypeRef i64 = LLVMInt64TypeInContext(g->lc);
  Value p = op->args[0];
  bool tensor = ir_type(n->f, p)->kind == TK_TENSOR;
  V v = gpu_param(n, tensor ? n->tensor_at[p] : n->given_at, i64);
  if (!tensor) {
    uint64_t bit = (n->tensor_at[p] - n->scalars_at) / 8;
    v = e_and(g, v, gpu_i64(n, (int64_t)(1ull << bit)));
  }
  g->val[op->res[0]] = e_icmp(g, LLVMIntNE, v, gpu_i64(n, 0));
}

// The counter counts modulo the number of tasks: after the CTAs' last claims,
// as many in all, it is 0 again. Who reads the claim compares it with ntasks,
// which needs no register.
static void nv_claim(Gpu *n, const Op *op) {
  Cg *g = n->g;
  LLVMTypeRef i64 = LLVMInt64TypeInContext(g->lc), i32 = gpu_i32t(n);
  n->out->counter = true;
  V all = LLVMBuildTrunc(g->b, gpu_param(n, n->ntasks_at, i64), i32, "");
  V many = op->nargs ? g->val[op->args[0]] : all;
  V p = gpu_param(n, n->counter_at, i64);
  p = LLVMBuildIntToPtr(g->b, p, LLVMPointerTypeInContext(g->lc, 1), "");
  V limit = e_isub(g, many, gpu_i32(n, 1));
  bool one = n->grp.threads == 1;
  LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b), end = NULL;
  if (!one) end = gpu_if(n, n->grp.first);
  V old = LLVMBuildAtomicRMW(g->b, LLVMAtomicRMWBinOpUIncWrap, p, limit,
                             LLVMAtomicOrderingMonotonic, 0);
  if (!one) {
    V in[2] = {gpu_i32(n, 0), old};
    LLVMBasicBlockRef at[2] = {from, LLVMGetInsertBlock(g->b)};
    gpu_end(n, end);
    old = LLVMBuildPhi(g->b, i32, "");
    LLVMAddIncoming(old, in, at, 2);
    old = n->vendor->first_lane(n, old);
  }
  V next = e_iadd(g, old, n->vendor->ctas(n));
  if (op->nargs)
    next =
        LLVMBuildSelect(g->b, e_icmp(g, LLVMIntSLT, next, many), next, all, "");
  g->val[op->res[0]] = next;
}

static void nv_cta(Gpu *n, const Op *op) {
  bool read = n->vendor->cta_again && ir_attr_i(op, AT_REMAT, 0);
  n->g->val[op->res[0]] = read ? n->vendor->cta_again(n) : n->vendor->cta(n);
}
static void nv_nctas(Gpu *n, const Op *op) {
  n->g->val[op->res[0]] = n->vendor->ctas(n);
}

static void nv_uniform(Gpu *n, const Op *op) {
  V x = gpu_arg(n, op, 0);
  LLVMTypeRef t = cg_of(x), i32 = gpu_i32t(n);
  if (n->grp.threads > 1) {
    x = n->vendor->uniform(n, LLVMBuildBitCast(n->g->b, x, i32, ""));
    x = LLVMBuildBitCast(n->g->b, x, t, "");
  }
  n->g->val[op->res[0]] = x;
}

// Allocated before anything is printed.
static void nv_nothing(Gpu *n, const Op *op) {
  (void)n, (void)op;
}

void gpu_unsupported(Gpu *n, const Op *op, const char *what) {
  if (!n->g->failed)
    diag_add(n->g->cx, DIAG_cg_input, op->span, n->f->name, what);
  n->g->failed = true;
}

// ---------------------------------------------------------------- table
static GpuEmit *const table[OP_COUNT] = {
    [OP_CONST] = gpu_const,
    [OP_DIM] = nv_dim,
    [OP_GIVEN] = nv_given,
    [OP_TSHAPE] = nv_tshape,
    [OP_TSTRIDE] = nv_tshape,
    [OP_SPLAT] = gpu_splat,
    [OP_RANDOM] = gpu_random,
    [OP_FOR] = gpu_for,
    [OP_IF] = gpu_branch,
    [OP_WHILE] = gpu_while,
    [OP_SGET] = gpu_sget,
    [OP_SSET] = gpu_sset,
    [OP_LAUNCH] = nv_nothing,
    [OP_TASK] = nv_cta,
    [OP_NTASKS] = nv_ntasks,
    [OP_CTA] = nv_cta,
    [OP_NCTAS] = nv_nctas,
    [OP_CLAIM] = nv_claim,
    [OP_UNIFORM] = nv_uniform,
    [OP_COORD] = gpu_coordinates,
    [OP_COORD_THREAD] = gpu_coordinates,
    [OP_COORD_REG] = gpu_coordinates,
    [OP_FOPERAND] = gpu_foperand,
    [OP_BCAST] = gpu_bcast,
    [OP_FREDUCE] = gpu_freduce,
    [OP_FCOLS] = gpu_fcols,
    [OP_FCOMBINE] = gpu_fcombine,
    [OP_FSCAN] = gpu_fscan,
    [OP_RELAYOUT] = gpu_relayout,
    [OP_VOTE] = gpu_vote,
    [OP_EXCEEDS] = gpu_exceeds,
    [OP_GLOAD] = gpu_gload,
    [OP_GSTORE] = gpu_gstore,
    [OP_SALLOC] = nv_nothing,
    [OP_SLOT] = gpu_slot,
    [OP_SLOAD] = gpu_sload,
    [OP_SSTORE] = gpu_sstore,
    [OP_CP_ASYNC] = gpu_cp_async,
    [OP_GSOON] = gpu_soon,
    [OP_GSYNC] = gpu_gsync,
    [OP_MMA] = gpu_mma,
    [OP_SFLIP] = gpu_sflip,
    [OP_SCLEAN] = gpu_sclean,
};

void gpu_op(Gpu *n, const Op *op) {
  if (n->g->failed) return;
  GpuEmit *emit = n->vendor->ops[op->code];
  if (!emit) emit = table[op->code];
  if (emit) {
    emit(n, op);
    return;
  }
  if (!(op_info(op->code)->flags & OPF_ELEM)) {
    gpu_unsupported(n, op, "its target has no such operation");
    return;
  }
  gpu_elementwise(n, op);
}

// Where a task is, numbers of the shape, and what is computed of these.
static bool needs_no_memory(const Op *op) {
  switch (op->code) {
  case OP_CONST:
  case OP_DIM:
  case OP_GIVEN:
  case OP_LAUNCH:
  case OP_TASK:
  case OP_NTASKS:
  case OP_CTA:
  case OP_NCTAS:
  case OP_COORD:
  case OP_SPLAT:
  case OP_UNIFORM:
  case OP_SALLOC:
  case OP_MBAR: return true;
  default: return !op->nregions && op_info(op->code)->flags & OPF_ELEM;
  }
}

// Kernels in front are waited for where memory is first needed. In what takes
// few microseconds that may be in a loop, in each turn.
static bool waits_inside(const Gpu *n, const Op *op) {
  return op->code == OP_FOR && n->out->once && !n->multiplies;
}

void gpu_region(Gpu *n, const Region *r) {
  bool ahead = n->ahead;
  for (const Op *op = r->first; op && op->code != OP_YIELD; op = op->next) {
    n->ahead = ahead && waits_inside(n, op);
    if (ahead && !n->ahead && !needs_no_memory(op)) {
      n->vendor->memory(n);
      ahead = false;
    }
    gpu_op(n, op);
  }
  n->ahead = ahead;
}
