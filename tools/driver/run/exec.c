// Running a program on host arrays: one specialization, one target, the
// object's own bytes loaded into this process.
#include "frontend/check.h"
#include "passes/support/cost.h"
#include "tools/driver/compile/compile.h"
#include "tools/driver/gpu/exec.h"
#include "tools/driver/run/store.h"
#include "tools/plan/plan.h"

#include "runtime/attn_abi.h"

#include <time.h>

struct DrvCode {
  CgJit *jit;
  const attn_program *prog;
  const Target *target;
  size_t bytes;
  bool found;  // compiled before
  OnGpu *gpu;  // NULL: the CPU
};

bool drv_fit(DrvCall *c, DrvSpec s, const Target *t, DrvOptions *opt,
             CgProgram *p) {
  if (t->kind == TARGET_GPU) {
    plan_fit_few(c->cx, s, t, c->dims, opt);
    return drv_program(c->cx, s, t, opt, p);
  }
  if (!drv_program(c->cx, s, t, opt, p)) return false;
  const char *queries = drv_queries(p);
  uint32_t sym;
  int64_t n_rows;
  if (!queries || !dim_find_sym(c->prog->dims, queries, &sym) ||
      !c->known[sym] || c->dims[sym] > COST_FEW_QUERIES)
    return true;
  opt->group = true;
  if (!drv_program(c->cx, s, t, opt, p)) return false;
  DimTab *dims = c->prog->dims;
  Dim rows = drv_rows(p, dims);
  opt->few =
      rows && dim_eval(dims, rows, c->dims, &n_rows) && n_rows <= COST_CPU_FEW;
  opt->group &= !opt->few && drv_grouped(dims, rows);
  opt->walk = opt->few && n_rows <= COST_WALKED;
  if (!opt->few) return true;
  return drv_program(c->cx, s, t, opt, p);
}

static DrvCode *load(DrvCall *c, const Target *t, const DrvOptions *opt) {
  Ctx *cx = c->cx;
  DrvSpec s;
  DrvObject obj;
  DrvOptions fit = *opt;
  fit.dense = true;  // as every array here is
  OnGpu *gpu = t->kind == TARGET_GPU ? drv_on_gpu_open(cx, t) : NULL;
  if (t->kind == TARGET_GPU && !gpu) return NULL;
  if (!drv_choose(c, &s) || !drv_object(c, s, t, &fit, &obj)) return NULL;
  DrvCode *code = NEW(&cx->session, DrvCode);
  code->gpu = gpu;
  code->target = t;
  code->bytes = obj.n;
  code->found = obj.found;
  code->jit = cg_jit_load(cx, obj.at, obj.n);
  if (!code->jit) return NULL;
  code->prog = cg_jit_program(code->jit, obj.prefix, obj.name);
  if (code->prog) return code;
  drv_unload(code);
  return NULL;
}

DrvCode *drv_load(DrvCall *c, const Target *t, const DrvOptions *opt) {
  work_begin(c->cx);
  DrvCode *code = load(c, t, opt);
  work_end(c->cx);
  return code;
}

void drv_unload(DrvCode *code) {
  if (!code) return;
  drv_on_gpu_close(code->gpu);
  cg_jit_drop(code->jit);
}

// ---------------------------------------------------------------- launching
static void make_tensor(const DrvArg *a, attn_tensor *t) {
  int64_t stride = 1;
  *t = (attn_tensor){.data = a->array.data,
                     .rank = a->array.rank,
                     .dtype = (int32_t)a->dtype};
  for (int i = a->array.rank - 1; i >= 0; i--) {
    t->shape[i] = a->array.shape[i];
    t->stride[i] = stride;
    stride *= a->array.shape[i];
  }
}

static attn_scalar make_scalar(const DrvArg *a, const attn_param_desc *p) {
  attn_scalar s = p->def;
  if (!a->given) return s;
  s.i64 = 0;
  if (a->dtype == DT_F64) s.f64 = a->value;
  else if (dtype_is_float(a->dtype)) s.f32 = (float)a->value;
  else s.i64 = (int64_t)a->value;
  return s;
}

static void pack(const DrvCall *c, const attn_program *prog, Packed *p) {
  uint32_t nt = 0, ns = 0;
  for (uint32_t i = 0; i < c->nargs; i++) {
    if (c->args[i].scalar) {
      p->scalars[ns++] = make_scalar(&c->args[i], &prog->params[i]);
      continue;
    }
    make_tensor(&c->args[i], &p->tensors[nt]);
    if (c->args[i].absent) p->tensors[nt].data = NULL;
    p->read[nt] = !c->args[i].out;
    p->written[nt] = c->args[i].out || c->args[i].param->qual == PQ_INOUT;
    p->ptrs[nt] = &p->tensors[nt];
    nt++;
  }
  p->n = nt;
}

bool drv_launch(DrvCall *c, const DrvCode *code, struct attn_ctx *rt) {
  Packed p;
  attn_error e;
  attn_stream stream = {.ctx = rt, .kind = ATTN_CPU};
  if (!drv_complete(c)) return false;
  pack(c, code->prog, &p);
  if (code->gpu) return drv_on_gpu_launch(c, code->gpu, code->prog, &p);
  if (attn_launch(code->prog, p.ptrs, p.scalars, &stream, &e) == ATTN_OK)
    return true;
  diag_add(c->cx, DIAG_launch, NOWHERE, c->prog->name, e.text);
  return false;
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool drv_time(DrvCall *c, const DrvCode *code, struct attn_ctx *rt, double *s) {
  if (code->gpu) return drv_on_gpu_time(c, code->gpu, code->prog, s);
  double start = seconds();
  bool ok = drv_launch(c, code, rt);
  *s = seconds() - start;
  return ok;
}

int64_t drv_scratch(DrvCall *c, const DrvCode *code) {
  Packed p;
  int64_t dims[ATTN_MAX_DIMS], most = 0;
  if (code->gpu) return 0;
  const attn_spec *spec = code->prog->specs;
  pack(c, code->prog, &p);
  if (attn_solve(code->prog, p.ptrs, p.scalars, dims, NULL) != ATTN_OK)
    return 0;
  attn_kargs k = {.tensors = (const attn_tensor *const *)p.ptrs,
                  .scalars = p.scalars,
                  .dims = dims};
  for (uint32_t i = 0; i < spec->nphases; i++) {
    int64_t n =
        spec->phases[i].scratch_bytes ? spec->phases[i].scratch_bytes(&k) : 0;
    if (n > most) most = n;
  }
  return most;
}

const char *drv_code_target(const DrvCode *code) {
  return code->target->name;
}
size_t drv_code_bytes(const DrvCode *code) {
  return code->bytes;
}
bool drv_code_found(const DrvCode *code) {
  return code->found;
}
