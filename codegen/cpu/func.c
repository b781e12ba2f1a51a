// A mach function as an LLVM function: the task loop, structured control flow,
// dims, scratch.
#include "codegen/cg.h"
#include "runtime/attn_abi.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

// ---------------------------------------------------------------- arguments
LLVMValueRef cg_field(Cg *g, LLVMValueRef base, uint64_t offset,
                      LLVMTypeRef t) {
  LLVMValueRef off = cg_i64(g, (int64_t)offset);
  LLVMTypeRef i8 = LLVMInt8TypeInContext(g->lc);
  LLVMValueRef p = LLVMBuildInBoundsGEP2(g->b, i8, base, &off, 1, "");
  LLVMValueRef v = LLVMBuildLoad2(g->b, t, p, "");
  unsigned kind = LLVMGetMDKindIDInContext(g->lc, "invariant.load", 14);
  LLVMSetMetadata(v, kind,
                  LLVMMetadataAsValue(g->lc,
                                      LLVMMDNodeInContext2(g->lc, NULL, 0)));
  return v;
}

// nonneg: neither a nor b is negative.
static LLVMValueRef binary(Cg *g, DimOp op, bool nonneg, LLVMValueRef a,
                           LLVMValueRef b) {
  LLVMValueRef args[2] = {a, b};
  LLVMTypeRef t = cg_of(a);
  switch (op) {
  case DIM_ADD: return LLVMBuildAdd(g->b, a, b, "");
  case DIM_MUL: return LLVMBuildMul(g->b, a, b, "");
  case DIM_MIN: return cg_intrinsic(g, "llvm.smin", t, args, 2);
  case DIM_MAX: return cg_intrinsic(g, "llvm.smax", t, args, 2);
  default: break;
  }
  if (nonneg && op == DIM_FLOORDIV) return LLVMBuildUDiv(g->b, a, b, "");
  if (nonneg) return LLVMBuildURem(g->b, a, b, "");
  LLVMValueRef q = LLVMBuildSDiv(g->b, a, b, "");
  LLVMValueRef r = LLVMBuildSRem(g->b, a, b, "");
  LLVMValueRef zero = cg_i64(g, 0);
  LLVMValueRef down = LLVMBuildICmp(g->b, LLVMIntSLT, r, zero, "");
  if (op == DIM_FLOORDIV)
    return LLVMBuildSub(g->b, q, LLVMBuildZExt(g->b, down, t, ""), "");
  LLVMValueRef up = LLVMBuildSelect(g->b, down, b, zero, "");
  return LLVMBuildAdd(g->b, r, up, "");
}

LLVMValueRef cg_dim(Cg *g, Dim d) {
  const DimTab *t = &g->fn->mod->dims;
  const DimExpr *e = &t->exprs.at[d];
  if (e->op == DIM_CONST) return cg_i64(g, e->value);
  if (g->number && g->number[d]) return g->number[d];
  // GPUs: with unsigned quotients ptxas spills in loops whose bounds they are.
  int64_t lo = -1, of = -1, hi;
  if ((e->op == DIM_FLOORDIV || e->op == DIM_MOD) &&
      g->target->kind != TARGET_GPU) {
    dim_bounds(t, e->a, &lo, &hi);
    dim_bounds(t, e->b, &of, &hi);
  }
  if (e->op != DIM_SYM) {
    LLVMValueRef y = cg_dim(g, e->b);
    return binary(g, e->op, lo >= 0 && of >= 0, cg_dim(g, e->a), y);
  }
  return g->dim[e->value];
}

// Every dim symbol, at the start of a function.
static void load_dims(Cg *g) {
  uint32_t n = g->fn->mod->dims.syms.n;
  LLVMValueRef dims = NULL;
  g->dim = NEWN(&g->cx->scratch, LLVMValueRef, n + 1);
  if (n) dims = cg_field(g, g->kargs, offsetof(attn_kargs, dims), cg_ptr(g));
  for (uint32_t i = 0; i < n; i++)
    g->dim[i] = cg_field(g, dims, 8 * (uint64_t)g->dim_at[i],
                         LLVMInt64TypeInContext(g->lc));
}

static void int_metadata(Cg *g, LLVMValueRef v, const char *name, int64_t n) {
  LLVMMetadataRef m = LLVMValueAsMetadata(cg_i64(g, n));
  m = LLVMMDNodeInContext2(g->lc, &m, 1);
  unsigned kind = LLVMGetMDKindIDInContext(g->lc, name, (unsigned)strlen(name));
  LLVMSetMetadata(v, kind, LLVMMetadataAsValue(g->lc, m));
}

// Where an attn_tensor lies; loads from it may be moved out of loops.
static LLVMValueRef tensor_arg(Cg *g, uint32_t at) {
  LLVMValueRef all =
      cg_field(g, g->kargs, offsetof(attn_kargs, tensors), cg_ptr(g));
  LLVMValueRef t = cg_field(g, all, 8 * (uint64_t)at, cg_ptr(g));
  int_metadata(g, t, "dereferenceable", sizeof(attn_tensor));
  int_metadata(g, t, "align", _Alignof(attn_tensor));
  return t;
}

// Scalars arrive as 8-byte unions: f32 for floats of up to 32 bits.
static LLVMValueRef scalar_arg(Cg *g, uint32_t at, DType t) {
  LLVMValueRef all =
      cg_field(g, g->kargs, offsetof(attn_kargs, scalars), cg_ptr(g));
  LLVMTypeRef i64 = LLVMInt64TypeInContext(g->lc);
  if (t == DT_F64) return cg_field(g, all, 8 * (uint64_t)at, cg_scalar(g, t));
  if (dtype_is_float(t)) {
    LLVMValueRef v = cg_field(g, all, 8 * (uint64_t)at, cg_scalar(g, DT_F32));
    return cg_cast(g, v, DT_F32, t);
  }
  LLVMValueRef v = cg_field(g, all, 8 * (uint64_t)at, i64);
  if (t == DT_BOOL) return LLVMBuildICmp(g->b, LLVMIntNE, v, cg_i64(g, 0), "");
  return LLVMBuildIntCast2(g->b, v, cg_scalar(g, t), 1, "");
}

// Bytes of a shared workspace.
static LLVMValueRef shared_bytes(Cg *g, const Type *t) {
  LLVMValueRef n = cg_i64(g, dtype_size(t->dtype));
  for (uint32_t i = 0; i < t->n; i++)
    n = LLVMBuildMul(g->b, n, cg_dim(g, t->size[i]), "");
  n = LLVMBuildAdd(g->b, n, cg_i64(g, ATTN_ALIGN - 1), "");
  return LLVMBuildAnd(g->b, n, cg_i64(g, -ATTN_ALIGN), "");
}

// Workspaces lie one behind the other; *next: where this one begins.
static LLVMValueRef shared_arg(Cg *g, const Type *t, LLVMValueRef *next) {
  LLVMTypeRef i8 = LLVMInt8TypeInContext(g->lc);
  LLVMValueRef at = *next, n = shared_bytes(g, t);
  if (!at) at = cg_field(g, g->kargs, offsetof(attn_kargs, shared), cg_ptr(g));
  *next = LLVMBuildGEP2(g->b, i8, at, &n, 1, "");
  return at;
}

static void load_params(Cg *g) {
  uint32_t tensors = 0, scalars = 0;
  LLVMValueRef shared = NULL;
  for (uint32_t i = 0; i < g->fn->params.n; i++) {
    Value v = g->fn->params.at[i].v;
    const Type *t = ir_type(g->fn, v);
    if (g->fn->params.at[i].role == PR_SHARED) {
      g->val[v] = shared_arg(g, t, &shared);
      continue;
    }
    g->val[v] = t->kind == TK_TENSOR ? tensor_arg(g, tensors++)
                                     : scalar_arg(g, scalars++, t->dtype);
  }
}

// ---------------------------------------------------------------- control
LLVMBasicBlockRef cg_block(Cg *g, const char *name) {
  return LLVMAppendBasicBlockInContext(g->lc, g->llfn, name);
}

void cg_region(Cg *g, const Region *r) {
  for (const Op *op = r->first; op && op->code != OP_YIELD; op = op->next)
    cg_op(g, op);
}

// A loop as LLVM likes it: tested where it ends, with blocks of its own in
// front and behind. One that runs at least once needs no test before it.
typedef struct Loop {
  LLVMBasicBlockRef from, before, body, behind, done;
  bool sure;
  LLVMValueRef last_excl;
  LLVMIntPredicate on;
} Loop;

static Loop loop_begin(Cg *g, LLVMValueRef first, LLVMValueRef last_excl,
                       bool reverse) {
  Loop l = {.from = LLVMGetInsertBlock(g->b),
            .last_excl = last_excl,
            .on = reverse ? LLVMIntSGE : LLVMIntSLT};
  LLVMValueRef go = LLVMBuildICmp(g->b, l.on, first, last_excl, "");
  l.sure = LLVMIsAConstantInt(go) && LLVMConstIntGetZExtValue(go);
  if (!l.sure) l.before = cg_block(g, "before");
  l.body = cg_block(g, "body");
  l.behind = cg_block(g, "behind");
  l.done = l.sure ? l.behind : cg_block(g, "done");
  if (l.sure) {
    LLVMBuildBr(g->b, l.body);
  } else {
    LLVMBuildCondBr(g->b, go, l.before, l.done);
    LLVMPositionBuilderAtEnd(g->b, l.before);
    LLVMBuildBr(g->b, l.body);
  }
  LLVMPositionBuilderAtEnd(g->b, l.body);
  return l;
}

static LLVMValueRef loop_phi(Cg *g, const Loop *l, LLVMValueRef init) {
  LLVMBasicBlockRef from = l->sure ? l->from : l->before;
  LLVMValueRef phi = LLVMBuildPhi(g->b, cg_of(init), "");
  LLVMAddIncoming(phi, &init, &from, 1);
  return phi;
}

// Goes on with `next`; the builder is left behind the loop.
static void loop_end(Cg *g, const Loop *l, LLVMValueRef next) {
  LLVMValueRef on = LLVMBuildICmp(g->b, l->on, next, l->last_excl, "");
  LLVMBuildCondBr(g->b, on, l->body, l->behind);
  LLVMPositionBuilderAtEnd(g->b, l->behind);
  if (l->sure) return;
  LLVMBuildBr(g->b, l->done);
  LLVMPositionBuilderAtEnd(g->b, l->done);
}

// What a value is behind the loop.
static LLVMValueRef loop_result(Cg *g, const Loop *l, LLVMValueRef init,
                                LLVMValueRef last) {
  if (l->sure) return last;
  LLVMValueRef phi = LLVMBuildPhi(g->b, cg_of(init), "");
  LLVMAddIncoming(phi, (LLVMValueRef[]){init, last},
                  (LLVMBasicBlockRef[]){l->from, l->behind}, 2);
  return phi;
}

// Does result k stay in the tile register that it begins in?
static bool in_register(const Cg *g, const Op *op, uint32_t k) {
  return cg_is_mat(g, op->res[k]);
}

static void for_loop(Cg *g, const Op *op, LLVMValueRef first,
                     LLVMValueRef last_excl, LLVMValueRef step) {
  const Region *r = op->regions[0];
  uint32_t n = op->nres;
  bool rev = ir_attr_i(op, AT_REVERSE, 0);
  LLVMValueRef *phi = NEWN(&g->cx->scratch, LLVMValueRef, n + 1);
  Loop l = loop_begin(g, first, last_excl, rev);
  LLVMValueRef i = g->val[r->params.at[0]] = loop_phi(g, &l, first);
  for (uint32_t k = 0; k < n; k++) {
    LLVMValueRef init = g->val[op->args[k + 3]];
    if (!in_register(g, op, k)) init = phi[k] = loop_phi(g, &l, init);
    g->val[r->params.at[k + 1]] = init;
  }
  cg_region(g, r);
  LLVMValueRef next = rev ? LLVMBuildNSWSub(g->b, i, step, "")
                          : LLVMBuildNSWAdd(g->b, i, step, "");
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(g->b);
  LLVMAddIncoming(i, &next, &latch, 1);
  for (uint32_t k = 0; k < n; k++)
    if (phi[k]) LLVMAddIncoming(phi[k], &g->val[r->last->args[k]], &latch, 1);
  loop_end(g, &l, next);
  for (uint32_t k = 0; k < n; k++) {
    LLVMValueRef init = g->val[op->args[k + 3]],
                 last = g->val[r->last->args[k]];
    g->val[op->res[k]] = phi[k] ? loop_result(g, &l, init, last) : last;
  }
}

// for(lo, hi, step): with `reverse` from the last i = lo + n * step below hi.
static void cg_for(Cg *g, const Op *op) {
  LLVMValueRef lo = g->val[op->args[0]], hi = g->val[op->args[1]];
  LLVMValueRef step = g->val[op->args[2]];
  if (!ir_attr_i(op, AT_REVERSE, 0)) {
    for_loop(g, op, lo, hi, step);
    return;
  }
  LLVMValueRef span =
      LLVMBuildSub(g->b, LLVMBuildSub(g->b, hi, lo, ""), cg_i64(g, 1), "");
  LLVMValueRef n = LLVMBuildSDiv(g->b, span, step, "");
  LLVMValueRef empty = LLVMBuildICmp(g->b, LLVMIntSGE, lo, hi, "");
  LLVMValueRef last =
      LLVMBuildAdd(g->b, lo, LLVMBuildMul(g->b, n, step, ""), "");
  LLVMValueRef none = LLVMBuildSub(g->b, lo, step, "");
  for_loop(g, op, LLVMBuildSelect(g->b, empty, none, last, ""), lo, step);
}

static void cg_if(Cg *g, const Op *op) {
  LLVMBasicBlockRef side[2] = {cg_block(g, "then"), cg_block(g, "else")};
  LLVMBasicBlockRef done = cg_block(g, "endif"), end[2];
  LLVMBuildCondBr(g->b, g->val[op->args[0]], side[0], side[1]);
  for (int s = 0; s < 2; s++) {
    LLVMPositionBuilderAtEnd(g->b, side[s]);
    cg_region(g, op->regions[s]);
    end[s] = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, done);
  }
  LLVMPositionBuilderAtEnd(g->b, done);
  for (uint32_t k = 0; k < op->nres; k++) {
    LLVMValueRef in[2];
    for (int s = 0; s < 2; s++) in[s] = g->val[op->regions[s]->last->args[k]];
    LLVMValueRef phi = LLVMBuildPhi(g->b, cg_of(in[0]), "");
    LLVMAddIncoming(phi, in, end, 2);
    g->val[op->res[k]] = phi;
  }
}

// ---------------------------------------------------------------- tasks
// Number of tasks along one grid entry.
static LLVMValueRef grid_count(Cg *g, const GridDim *d) {
  LLVMValueRef n = cg_dim(g, g->fn->axes.at[d->axis].extent);
  if (d->tile == 1) return n;
  LLVMValueRef up = LLVMBuildAdd(g->b, n, cg_i64(g, d->tile - 1), "");
  return LLVMBuildSDiv(g->b, up, cg_i64(g, d->tile), "");
}

static void cg_origin(Cg *g, const Op *op) {
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  LLVMValueRef rest = g->task;
  for (uint32_t i = g->fn->grid.n; i-- > 0;) {
    const GridDim *d = &g->fn->grid.at[i];
    LLVMValueRef n = grid_count(g, d);
    if (d->axis == axis) {
      LLVMValueRef at = i ? LLVMBuildSRem(g->b, rest, n, "") : rest;
      g->val[op->res[0]] = LLVMBuildMul(g->b, at, cg_i64(g, d->tile), "");
      return;
    }
    rest = LLVMBuildSDiv(g->b, rest, n, "");
  }
  assert(false && "origin of an axis that is not in the grid");
}

// Bytes of an alloc, rounded up to 64.
static LLVMValueRef alloc_bytes(Cg *g, const Op *op) {
  Dim d = (Dim)ir_attr_i(op, AT_DIM, 0);
  int size = dtype_size(ir_type(g->fn, op->res[0])->dtype);
  LLVMValueRef n = LLVMBuildMul(g->b, cg_dim(g, d), cg_i64(g, size), "");
  n = LLVMBuildAdd(g->b, n, cg_i64(g, ATTN_ALIGN - 1), "");
  return LLVMBuildAnd(g->b, n, cg_i64(g, -ATTN_ALIGN), "");
}

static void cg_alloc(Cg *g, const Op *op) {
  LLVMTypeRef i8 = LLVMInt8TypeInContext(g->lc);
  g->val[op->res[0]] = g->scratch;
  LLVMValueRef n = alloc_bytes(g, op);
  g->scratch = LLVMBuildInBoundsGEP2(g->b, i8, g->scratch, &n, 1, "");
}

bool cg_control(Cg *g, const Op *op) {
  switch (op->code) {
  case OP_FOR: cg_for(g, op); return true;
  case OP_IF: cg_if(g, op); return true;
  case OP_ORIGIN: cg_origin(g, op); return true;
  case OP_ALLOC: cg_alloc(g, op); return true;
  default: return false;
  }
}
// ---------------------------------------------------------------- functions
static void string_attr(Cg *g, LLVMValueRef f, const char *k, const char *v) {
  LLVMAddAttributeAtIndex(f, LLVMAttributeFunctionIndex,
                          LLVMCreateStringAttribute(g->lc, k,
                                                    (unsigned)strlen(k), v,
                                                    (unsigned)strlen(v)));
}

static void enum_attr(Cg *g, LLVMValueRef f, unsigned at, const char *k,
                      uint64_t v) {
  unsigned id = LLVMGetEnumAttributeKindForName(k, strlen(k));
  LLVMAddAttributeAtIndex(f, at, LLVMCreateEnumAttribute(g->lc, id, v));
}

void cg_fn_attr(Cg *g, LLVMValueRef f, const char *name) {
  enum_attr(g, f, LLVMAttributeFunctionIndex, name, 0);
}

void cg_target_attrs(Cg *g, LLVMValueRef f) {
  cg_fn_attr(g, f, "nounwind");
  string_attr(g, f, "target-cpu", g->target->cpu);
  if (*g->target->features)
    string_attr(g, f, "target-features", g->target->features);
  if (!g->has.avx512) return;
  // LLVM would split 512-bit vectors, against the schedule.
  string_attr(g, f, "prefer-vector-width", "512");
  string_attr(g, f, "min-legal-vector-width", "512");
}

static LLVMValueRef begin(Cg *g, const char *name, LLVMTypeRef ret,
                          LLVMTypeRef *params, unsigned n) {
  LLVMTypeRef t = LLVMFunctionType(ret, params, n, 0);
  g->llfn = LLVMAddFunction(g->mod, name, t);
  LLVMSetLinkage(g->llfn, LLVMInternalLinkage);
  cg_target_attrs(g, g->llfn);
  g->kargs = LLVMGetParam(g->llfn, 0);
  enum_attr(g, g->llfn, 1, "noalias", 0);
  enum_attr(g, g->llfn, 1, "readonly", 0);
  LLVMPositionBuilderAtEnd(g->b, cg_block(g, "entry"));
  load_dims(g);
  return g->llfn;
}

static LLVMValueRef scratch_bytes(Cg *g, const Region *r) {
  LLVMValueRef sum = cg_i64(g, 0);
  for (const Op *op = r->first; op; op = op->next)
    if (op->code == OP_ALLOC)
      sum = LLVMBuildAdd(g->b, sum, alloc_bytes(g, op), "");
  return sum;
}

// n, or 0 where all outputs that the function makes have NULL data.
static LLVMValueRef if_wanted(Cg *g, LLVMValueRef n) {
  uint64_t made = ir_made(&g->cx->scratch, g->fn);
  LLVMValueRef any = NULL, zero = cg_i64(g, 0);
  for (uint32_t i = 0; i < 64; i++) {
    if (!(made >> i & 1)) continue;
    LLVMValueRef at = cg_field(g, tensor_arg(g, i), offsetof(attn_tensor, data),
                               LLVMInt64TypeInContext(g->lc));
    any = any ? LLVMBuildOr(g->b, any, at, "") : at;
  }
  if (!any) return n;
  any = LLVMBuildICmp(g->b, LLVMIntNE, any, zero, "");
  return LLVMBuildSelect(g->b, any, n, zero, "");
}

typedef enum Counted { TASKS, SCRATCH, SHARED } Counted;

static LLVMValueRef counted(Cg *g, Counted what) {
  const Func *f = g->fn;
  if (what == SCRATCH) return scratch_bytes(g, f->body);
  LLVMValueRef n = cg_i64(g, what == TASKS);
  for (uint32_t i = 0; what == TASKS && i < f->grid.n; i++)
    if (!f->grid.at[i].serial)
      n = LLVMBuildMul(g->b, n, grid_count(g, &f->grid.at[i]), "");
  if (what == TASKS) n = if_wanted(g, n);
  for (uint32_t i = 0; what == SHARED && i < f->params.n; i++)
    if (f->params.at[i].role == PR_SHARED)
      n = LLVMBuildAdd(g->b, n, shared_bytes(g, ir_type(f, f->params.at[i].v)),
                       "");
  return n;
}

static LLVMValueRef count(Cg *g, const char *name, Counted what) {
  LLVMTypeRef i64 = LLVMInt64TypeInContext(g->lc), args[] = {cg_ptr(g)};
  LLVMValueRef f = begin(g, name, i64, args, 1);
  LLVMBuildRet(g->b, counted(g, what));
  return f;
}

// One task: a function of its own, so that what it loads once stays in it and
// near its uses. begin(kargs, task, scratch).
static LLVMValueRef task_body(Cg *g, const char *name) {
  LLVMTypeRef i64 = LLVMInt64TypeInContext(g->lc);
  LLVMTypeRef params[] = {cg_ptr(g), i64, cg_ptr(g)};
  LLVMValueRef f = begin(g, name, LLVMVoidTypeInContext(g->lc), params, 3);
  enum_attr(g, f, 3, "noalias", 0);
  enum_attr(g, f, 3, "align", ATTN_ALIGN);
  g->task = LLVMGetParam(f, 1);
  g->scratch = LLVMGetParam(f, 2);
  load_params(g);
  cg_region(g, g->fn->body);
  LLVMBuildRetVoid(g->b);
  return f;
}

// for task in [begin, end): the function's body, for all tiles of the task.
static void task_loop(Cg *g, LLVMValueRef k, LLVMValueRef one) {
  LLVMValueRef first = LLVMGetParam(k, 1), last = LLVMGetParam(k, 2);
  for (uint32_t i = 0; i < g->fn->grid.n; i++) {
    if (!g->fn->grid.at[i].serial) continue;
    LLVMValueRef n = grid_count(g, &g->fn->grid.at[i]);
    first = LLVMBuildMul(g->b, first, n, "");
    last = LLVMBuildMul(g->b, last, n, "");
  }
  Loop l = loop_begin(g, first, last, false);
  LLVMValueRef task = loop_phi(g, &l, first);
  LLVMValueRef args[] = {LLVMGetParam(k, 0), task, LLVMGetParam(k, 3)};
  LLVMBuildCall2(g->b, LLVMGlobalGetValueType(one), one, args, 3, "");
  LLVMValueRef next = LLVMBuildNSWAdd(g->b, task, cg_i64(g, 1), "");
  LLVMAddIncoming(task, &next, &l.body, 1);
  loop_end(g, &l, next);
}

// Parts of an object refer to each other's kernels.
static void share(Cg *g, LLVMValueRef f) {
  if (g->share == CG_WHOLE) return;
  LLVMSetLinkage(f, LLVMExternalLinkage);
  LLVMSetVisibility(f, LLVMHiddenVisibility);
}

static LLVMValueRef declared(Cg *g, const char *name, LLVMTypeRef t) {
  LLVMValueRef f = LLVMAddFunction(g->mod, name, t);
  share(g, f);
  return f;
}

CgKernel cg_kernel(Cg *g, const Func *f, const uint32_t *dim_at,
                   const char *name) {
  Arena *a = &g->cx->scratch;
  CgKernel k;
  LLVMTypeRef i64 = LLVMInt64TypeInContext(g->lc);
  LLVMTypeRef params[] = {cg_ptr(g), i64, i64, cg_ptr(g)};
  LLVMTypeRef none = LLVMVoidTypeInContext(g->lc);
  const char *ntasks = arena_printf(a, "%s.ntasks", name);
  const char *scratch = arena_printf(a, "%s.scratch", name);
  if (g->share == CG_SHELL) {
    LLVMTypeRef count_type = LLVMFunctionType(i64, params, 1, 0);
    k.ntasks = declared(g, ntasks, count_type);
    k.scratch = declared(g, scratch, count_type);
    k.kernel = declared(g, name, LLVMFunctionType(none, params, 4, 0));
    return k;
  }
  g->fn = f;
  g->dim_at = dim_at;
  g->val = NEWN(a, LLVMValueRef, f->values.n + 1);
  k.ntasks = count(g, ntasks, TASKS);
  k.scratch = count(g, scratch, SCRATCH);
  LLVMValueRef one = task_body(g, arena_printf(a, "%s.task", name));
  k.kernel = begin(g, name, none, params, 4);
  bool mats = cg_mat_begin(g);
  task_loop(g, k.kernel, one);
  if (mats) cg_mat_end(g);
  LLVMBuildRetVoid(g->b);
  share(g, k.kernel);
  share(g, k.ntasks);
  share(g, k.scratch);
  return k;
}

LLVMValueRef cg_shared(Cg *g, const Func *f, const uint32_t *dim_at,
                       const char *name) {
  uint32_t n = f->params.n;
  if (!n || f->params.at[n - 1].role != PR_SHARED)
    return LLVMConstNull(cg_ptr(g));
  LLVMTypeRef i64 = LLVMInt64TypeInContext(g->lc), args[] = {cg_ptr(g)};
  if (g->share == CG_SHELL)
    return declared(g, name, LLVMFunctionType(i64, args, 1, 0));
  g->fn = f;
  g->dim_at = dim_at;
  LLVMValueRef v = count(g, name, SHARED);
  share(g, v);
  return v;
}
