// The descriptor of a program as constant data, the functions users call, and
// the kernels of all variants.
//   @f_p_program = constant { abi, size, @name, .., @params, @dims, .. }
//   define i32 @f_p(ptr %a, ptr %s, ptr %e)        attn_call(@f_p_program, ..)
//   define void @f_p_args_init(ptr %a)             attn_args_init
//   define i64 @f_p_workspace(ptr %a)              attn_args_workspace
//   define i32 @__tvm_ffi_f_p(ptr, ptr %v, i32 %n, ptr %r)    attn_tvm_ffi
#include "codegen/cg.h"
#include "codegen/codegen.h"
#include "codegen/object/layout.h"

#include <assert.h>
#include <string.h>

typedef LLVMValueRef V;

typedef struct Prog {
  Cg *g;
  const CgProgram *p;
  const char *symbol;  // prefix_name
  CgPlain plain;
} Prog;

// ---------------------------------------------------------------- constants
static V u32(Prog *q, uint32_t v) {
  return cg_i32(q->g, (int32_t)v);
}

static V record(Prog *q, V *fields, unsigned n, size_t size) {
  V c = LLVMConstStructInContext(q->g->lc, fields, n, 0);
  LLVMTargetDataRef td = LLVMGetModuleDataLayout(q->g->mod);
  assert(LLVMABISizeOfType(td, cg_of(c)) == size);
  (void)td;
  (void)size;
  return c;
}

static V constant(Prog *q, const char *suffix, V value) {
  const char *name =
      arena_printf(&q->g->cx->scratch, "%s%s", q->symbol, suffix);
  V v = LLVMAddGlobal(q->g->mod, cg_of(value), name);
  LLVMSetInitializer(v, value);
  LLVMSetGlobalConstant(v, 1);
  LLVMSetLinkage(v, LLVMInternalLinkage);
  return v;
}

// A constant array; NULL for none.
static V table(Prog *q, const char *suffix, V *at, uint32_t n) {
  if (!n) return LLVMConstNull(cg_ptr(q->g));
  return constant(q, suffix, LLVMConstArray2(cg_of(at[0]), at, n));
}

static V text(Prog *q, const char *s) {
  V c = LLVMConstStringInContext2(q->g->lc, s, strlen(s), 0);
  V v = constant(q, ".str", c);
  LLVMSetUnnamedAddress(v, LLVMGlobalUnnamedAddr);
  LLVMSetLinkage(v, LLVMPrivateLinkage);
  return v;
}

// The runtime's stack must do.
static uint32_t expression(Prog *q, CgExpr e) {
  uint32_t at = cg_plain_expr(&q->plain, e);
  if (!q->plain.deep) return at;
  diag_add(q->g->cx, DIAG_cg_input, NOWHERE, q->p->name,
           "an expression of dims is nested too deeply");
  q->g->failed = true;
  return at;
}

// ---------------------------------------------------------------- dims
static V dim_desc(Prog *q, const attn_dim_desc *d) {
  V f[] = {text(q, d->name),    cg_i64(q->g, d->lo),
           cg_i64(q->g, d->hi), cg_i64(q->g, d->divisor),
           u32(q, d->kind),     u32(q, d->values),
           u32(q, d->by),       u32(q, d->by_offsets)};
  return record(q, f, 8, sizeof(attn_dim_desc));
}

static V dims(Prog *q) {
  uint32_t n = q->p->dims->syms.n;
  V *at = NEWN(&q->g->cx->scratch, V, n + 1);
  for (uint32_t i = 0; i < n; i++) at[i] = dim_desc(q, &q->plain.dims[i]);
  return table(q, ".dims", at, n);
}

// ---------------------------------------------------------------- parameters
static V param_desc(Prog *q, const attn_param_desc *d) {
  LLVMTypeRef i8 = LLVMInt8TypeInContext(q->g->lc);
  V axis[ATTN_MAX_RANK];
  for (uint32_t i = 0; i < ATTN_MAX_RANK; i++) axis[i] = u32(q, d->axis[i]);
  V f[] = {text(q, d->name),
           LLVMConstInt(i8, d->kind, 0),
           LLVMConstInt(i8, d->dtype, 0),
           LLVMConstInt(i8, d->rank, 0),
           LLVMConstInt(i8, d->flags, 0),
           u32(q, d->offset),
           cg_i64(q->g, d->def.i64),
           LLVMConstArray2(cg_of(axis[0]), axis, ATTN_MAX_RANK)};
  return record(q, f, 8, sizeof(attn_param_desc));
}

static V params(Prog *q) {
  V *at = NEWN(&q->g->cx->scratch, V, q->p->nparams + 1);
  for (uint32_t i = 0; i < q->p->nparams; i++)
    at[i] = param_desc(q, &q->plain.params[i]);
  return table(q, ".params", at, q->p->nparams);
}

// ---------------------------------------------------------------- variants
// Index in the program's dims of each dim symbol of a module.
static const uint32_t *match_dims(Prog *q, const Module *m) {
  uint32_t *at = NEWN(&q->g->cx->scratch, uint32_t, m->dims.syms.n + 1);
  for (uint32_t i = 0; i < m->dims.syms.n; i++) {
    bool found = dim_find_sym(q->p->dims, m->dims.syms.at[i].name, &at[i]);
    // Symbols of other programs of the module stay 0; nothing here uses them.
    (void)found;
  }
  return at;
}

static const char *kernel_name(Prog *q, const char *name, uint32_t variant) {
  return arena_printf(&q->g->cx->scratch, "%s_%s.%u.%s", q->p->prefix, name,
                      variant, strchr(q->g->target->name, ':') + 1);
}

static V phase(Prog *q, const Func *f, uint32_t variant) {
  const char *name = kernel_name(q, f->name, variant);
  CgKernel k = cg_kernel(q->g, f, match_dims(q, f->mod), name);
  V fields[] = {k.kernel, k.ntasks, k.scratch};
  return record(q, fields, 3, sizeof(attn_phase));
}

// The phases of a variant, in module order, and the function that sizes their
// workspace; returns the number of phases.
static uint32_t phases(Prog *q, uint32_t i, V *at, V *shared) {
  const Module *m = q->p->variants[i].mod;
  uint32_t n = 0;
  q->g->target = target_by_name(m->target);
  q->g->has = cg_features(q->g->target);
  for (uint32_t k = 0; k < m->funcs.n; k++)
    if (ir_is_phase(m->funcs.at[k], q->p->name))
      at[n++] = phase(q, m->funcs.at[k], i);
  const Func *f = ir_find(m, q->p->name);
  const char *name =
      arena_printf(&q->g->cx->scratch, "%s.shared", kernel_name(q, f->name, i));
  *shared = cg_shared(q->g, f, match_dims(q, m), name);
  return n;
}

static V spec(Prog *q, const CgVariant *v, uint32_t i) {
  Cg *g = q->g;
  V *at = NEWN(&g->cx->scratch, V, v->mod->funcs.n + 1);
  V shared;
  uint32_t n = phases(q, i, at, &shared);
  V f[] = {u32(q, cg_isa(g->target)),
           u32(q, expression(q, v->when)),
           u32(q, n),
           u32(q, 0),
           table(q, ".phases", at, n),
           shared};
  return record(q, f, 6, sizeof(attn_spec));
}

static V specs(Prog *q) {
  V *at = NEWN(&q->g->cx->scratch, V, q->p->nvariants + 1);
  for (uint32_t i = 0; i < q->p->nvariants; i++)
    at[i] = spec(q, &q->p->variants[i], i);
  return table(q, ".specs", at, q->p->nvariants);
}

// ---------------------------------------------------------------- program
static V descriptor(Prog *q, V container) {
  Cg *g = q->g;
  const CgProgram *p = q->p;
  Arena *a = &g->cx->scratch;
  V *checks = NEWN(a, V, p->nchecks + 1);
  q->plain = cg_plain(g->cx, p);
  V par = params(q), dim = dims(q);
  for (uint32_t i = 0; i < p->nchecks; i++)
    checks[i] = u32(q, q->plain.checks[i]);
  V check = table(q, ".checks", checks, p->nchecks), spc = specs(q);
  uint32_t ncode = q->plain.code.n;
  V *words = NEWN(a, V, ncode + 1);
  for (uint32_t i = 0; i < ncode; i++)
    words[i] = cg_i64(g, q->plain.code.at[i]);
  V f[] = {u32(q, ATTN_ABI),
           u32(q, sizeof(attn_program)),
           text(q, p->name),
           u32(q, p->nparams),
           u32(q, p->dims->syms.n),
           u32(q, p->nchecks),
           u32(q, p->nvariants),
           par,
           dim,
           check,
           spc,
           table(q, ".code", words, ncode),
           u32(q, ncode),
           u32(q, q->plain.args_size),
           container};
  V c = record(q, f, 15, sizeof(attn_program));
  V v = constant(q, "_program", c);
  LLVMSetLinkage(v, LLVMExternalLinkage);
  return v;
}

enum { MOST_ARGS = 4 };

// define @name(T0, ..) { tail call @callee(desc, T<skip>, ..) }, f's type.
static void forward(Prog *q, V desc, const char *name, const char *callee,
                    LLVMTypeRef type, unsigned skip) {
  Cg *g = q->g;
  LLVMTypeRef t[MOST_ARGS + 1], ret = LLVMGetReturnType(type);
  unsigned n = LLVMCountParamTypes(type);
  assert(n <= MOST_ARGS && skip <= 1);
  LLVMGetParamTypes(type, t + 1);
  t[skip] = cg_ptr(g);
  LLVMTypeRef ct = LLVMFunctionType(ret, t + skip, n + 1 - skip, 0);
  V c = LLVMGetNamedFunction(g->mod, callee);
  if (!c) c = LLVMAddFunction(g->mod, callee, ct);
  V f = LLVMAddFunction(g->mod, name, type);
  cg_fn_attr(g, f, "nounwind");
  g->llfn = f;
  LLVMPositionBuilderAtEnd(g->b, cg_block(g, ""));
  V args[MOST_ARGS + 1] = {desc};
  for (unsigned i = skip; i < n; i++) args[i + 1 - skip] = LLVMGetParam(f, i);
  V r = LLVMBuildCall2(g->b, ct, c, args, n + 1 - skip, "");
  LLVMSetTailCall(r, 1);
  if (LLVMGetTypeKind(ret) == LLVMVoidTypeKind) LLVMBuildRetVoid(g->b);
  else LLVMBuildRet(g->b, r);
}

// define ret @symbol<suffix>(ptr, ..) { tail call @callee(desc, ptr, ..) }
static void wrapper(Prog *q, V desc, const char *suffix, const char *callee,
                    LLVMTypeRef ret, unsigned n) {
  LLVMTypeRef p = cg_ptr(q->g), t[MOST_ARGS] = {p, p, p, p};
  forward(q, desc, arena_printf(&q->g->cx->scratch, "%s%s", q->symbol, suffix),
          callee, LLVMFunctionType(ret, t, n, 0), 0);
}

// For loaders of tvm-ffi, which hand a function its library first.
static void ffi(Prog *q, V desc) {
  LLVMTypeRef p = cg_ptr(q->g), i32 = LLVMInt32TypeInContext(q->g->lc);
  LLVMTypeRef t[MOST_ARGS] = {p, p, i32, p};
  forward(q, desc, arena_printf(&q->g->cx->scratch, "__tvm_ffi_%s", q->symbol),
          "attn_tvm_ffi", LLVMFunctionType(i32, t, MOST_ARGS, 0), 1);
}

void cg_program(Cg *g, const CgProgram *p, LLVMValueRef container) {
  Arena *a = &g->cx->scratch;
  Prog q = {.g = g, .p = p};
  q.symbol = arena_printf(a, "%s_%s", p->prefix, p->name);
  V d = descriptor(&q, container);
  wrapper(&q, d, "", "attn_call", LLVMInt32TypeInContext(g->lc), 3);
  wrapper(&q, d, "_args_init", "attn_args_init", LLVMVoidTypeInContext(g->lc),
          1);
  wrapper(&q, d, "_workspace", "attn_args_workspace",
          LLVMInt64TypeInContext(g->lc), 1);
  ffi(&q, d);
}

void cg_unit(Cg *g, const CgProgram *p, uint32_t i) {
  Prog q = {.g = g, .p = p};
  V *at = NEWN(&g->cx->scratch, V, p->variants[i].mod->funcs.n + 1), shared;
  phases(&q, i, at, &shared);
}
