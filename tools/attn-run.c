// attn-run: executes a program of an IR module in the interpreter, and
// compares it with the same module after passes or with a second module; with
// --jit that one (at level mach) runs as machine code in this process. What is
// at level frag is executed as pass bufferize_gpu makes it.
//
//   attn-run f.tir --dim=B=2,Sq=5,Sk=7,D=8 --passes=online --runs=8
#include "codegen/codegen.h"
#include "ir/ir.h"
#include "passes/pass.h"
#include "tools/attn-run/run.h"
#include "tools/driver/run/gen.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: attn-run FILE.tir [OTHER.tir] [options]\n"
    "  --fn=NAME          program (default: the first)\n"
    "  --dim=A=1,B=2      values of dims (default 3)\n"
    "  --in=NAME=GEN(a,b) input generator: normal uniform randint iota const\n"
    "                     lengths offsets docs perm broken (default:\n"
    "                     normal, and randint(0, 3) for integers)\n"
    "  --passes=a,b       compare with the module after these passes\n"
    "  --runs=N           that many random runs (default 1)\n"
    "  --seed=N --tol=X   (default 1, 1e-9: |x-y| <= tol * (|x| + rms(x)))\n"
    "  --jit              run the module after the passes as machine code;\n"
    "                     implies --round, default tol 1e-5\n"
    "  --round            round as the dtypes do (default: all in f64)\n"
    "  --tile-q=N --tile-k=N --split-k=N --few --walk --target=T\n"
    "  --fd               compare @P_grad with differences of @P (after the\n"
    "                     passes), in f64; default tol 1e-5\n"
    "  --unread           with --fd: where no point reads an input, its gradient\n"
    "                     need not be written\n"
    "  --print            print the outputs\n";

static bool starts(const char *s, const char *p, const char **rest) {
  size_t n = strlen(p);
  if (strncmp(s, p, n)) return false;
  *rest = s + n;
  return true;
}

static bool parse_gen(Ctx *cx, Options *o, const char *s) {
  const char *eq = strchr(s, '='), *open = eq ? strchr(eq, '(') : NULL;
  if (!eq || o->ninputs == 64) return false;
  Input *in = &o->inputs[o->ninputs++];
  in->name = intern_n(&cx->names, s, (size_t)(eq - s));
  size_t n = open ? (size_t)(open - eq - 1) : strlen(eq + 1);
  GenKind k;
  if (!gen_by_name(eq + 1, (uint32_t)n, &k)) return false;
  in->gen = gen_default(k);
  for (int i = 0; open && i < 2 && *open && *open != ')'; i++) {
    char *end;
    in->gen.arg[i] = strtod(open + 1, &end);
    open = end;
  }
  return true;
}

static bool parse_options(Ctx *cx, int argc, char **argv, Options *o) {
  *o = (Options){.seed = 1, .runs = 1, .tol = -1};
  for (int i = 1; i < argc; i++) {
    const char *v;
    if (starts(argv[i], "--fn=", &v)) o->fn = v;
    else if (starts(argv[i], "--dim=", &v) && o->ndims < 64)
      o->dims[o->ndims++] = v;
    else if (starts(argv[i], "--in=", &v)) {
      if (!parse_gen(cx, o, v)) return false;
    } else if (starts(argv[i], "--passes=", &v)) o->passes = v;
    else if (starts(argv[i], "--runs=", &v)) o->runs = atoi(v);
    else if (starts(argv[i], "--seed=", &v)) o->seed = strtoull(v, NULL, 0);
    else if (starts(argv[i], "--tol=", &v)) o->tol = atof(v);
    else if (starts(argv[i], "--tile-q=", &v)) o->tile_q = atoll(v);
    else if (starts(argv[i], "--tile-k=", &v)) o->tile_k = atoll(v);
    else if (starts(argv[i], "--chunk=", &v)) o->chunk = atoll(v);
    else if (starts(argv[i], "--split-k=", &v)) o->split_k = atoi(v);
    else if (starts(argv[i], "--target=", &v) && target_by_name(v))
      o->target = target_by_name(v);
    else if (!strcmp(argv[i], "--few")) o->few = true;
    else if (!strcmp(argv[i], "--walk")) o->walk = true;
    else if (!strcmp(argv[i], "--round")) o->round = true;
    else if (!strcmp(argv[i], "--print")) o->print = true;
    else if (!strcmp(argv[i], "--jit")) o->jit = true;
    else if (!strcmp(argv[i], "--fd")) o->fd = true;
    else if (!strcmp(argv[i], "--unread")) o->unread = true;
    else if (argv[i][0] == '-' && argv[i][1]) return false;
    else if (!o->file) o->file = argv[i];
    else if (!o->other) o->other = argv[i];
    else return false;
  }
  if (o->tol < 0) o->tol = o->jit || o->fd ? 1e-5 : 1e-9;
  o->round |= o->jit;
  return o->file != NULL;
}

// Without a name: the first that is no phase of another.
const Func *run_pick(const Module *m, const char *name) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    const Func *f = m->funcs.at[i];
    bool ok = name ? !strcmp(f->name, name) : !strchr(f->name, '.');
    if (f->kind == FK_PROGRAM && ok) return f;
  }
  return NULL;
}

static void bind_dims(Bound *b, const Options *o) {
  const DimTab *t = &b->m->dims;
  for (uint32_t i = 0; i < t->syms.n && i < 64; i++) {
    const DimSym *s = &t->syms.at[i];
    b->dims[i] = s->values.n ? s->values.at[0] : 3;
    for (uint32_t k = 0; k < o->ndims; k++) {
      for (const char *p = o->dims[k]; p && *p;) {
        size_t n = strlen(s->name);
        if (!strncmp(p, s->name, n) && p[n] == '=')
          b->dims[i] = atoll(p + n + 1);
        p = strchr(p, ',');
        if (p) p++;
      }
    }
  }
}

static Gen generator(const Options *o, const char *name, DType t,
                     uint64_t seed) {
  Gen g = gen_default(dtype_is_float(t) ? GK_NORMAL : GK_RANDINT);
  if (!dtype_is_float(t)) {
    g.arg[0] = 0;
    g.arg[1] = 3;
  }
  for (uint32_t i = 0; i < o->ninputs; i++)
    if (!strcmp(o->inputs[i].name, name)) g = o->inputs[i].gen;
  g.seed = seed;
  return g;
}

static int64_t contiguous(InterpTensor *t) {
  int64_t n = 1;
  for (uint32_t i = t->rank; i-- > 0;) {
    t->stride[i] = n;
    n *= t->shape[i];
  }
  return n;
}

static bool bind_args(Ctx *cx, Bound *b, const Options *o, uint64_t seed) {
  for (uint32_t i = 0; i < b->f->params.n && i < 64; i++) {
    const FuncParam *p = &b->f->params.at[i];
    const ValueInfo *v = ir_info(b->f, p->v);
    InterpTensor *t = &b->args[i];
    if (p->role == PR_SHARED) break;
    *t = (InterpTensor){.dtype = v->type.dtype, .given = true};
    if (o->fd && dtype_is_float(t->dtype)) t->dtype = DT_F64;
    const char *name = v->hint ? v->hint : "";
    Gen g = generator(o, name, t->dtype, seed);
    if (v->type.kind != TK_TENSOR) {
      gen_fill(&cx->scratch, &g, name, DT_F64, 1, &t->scalar);
      t->scalar = dtype_round(t->dtype, t->scalar);
      continue;
    }
    t->rank = v->type.n;
    for (uint32_t k = 0; k < t->rank; k++)
      if (!dim_eval(&b->m->dims, v->type.size[k], b->dims, &t->shape[k]))
        return false;
    int64_t n = contiguous(t);
    if (n < 0 || n > 1 << 26) return false;
    t->data = arena_alloc(&cx->session,
                          (size_t)(n + 1) * (size_t)dtype_size(t->dtype));
    const char *why = gen_check(&g, n);
    if (why) {
      fprintf(stderr, "attn-run: input %s: %s\n", name, why);
      return false;
    }
    if (p->role != PR_OUT)
      gen_fill(&cx->scratch, &g, name, t->dtype, n, t->data);
  }
  return true;
}

int64_t run_count(const InterpTensor *t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t->rank; i++) n *= t->shape[i];
  return n;
}

static double at(const InterpTensor *t, int64_t i) {
  return dtype_load(t->dtype, (const char *)t->data + i * dtype_size(t->dtype));
}

// Largest error over tol's norm; inf where finiteness differs.
static double error(const InterpTensor *x, const InterpTensor *y) {
  int64_t n = run_count(x);
  double sq = 0, worst = 0;
  for (int64_t i = 0; i < n; i++) {
    double v = at(x, i);
    if (isfinite(v)) sq += v * v;
  }
  double rms = n ? sqrt(sq / (double)n) : 0;
  for (int64_t i = 0; i < n; i++) {
    double a = at(x, i), b = at(y, i);
    if (isnan(a) && isnan(b)) continue;
    if (!isfinite(a) || !isfinite(b)) {
      if (a != b) return INFINITY;
      continue;
    }
    double scale = fabs(a) + rms;
    if (a != b) worst = fmax(worst, fabs(a - b) / (scale > 0 ? scale : 1));
  }
  return worst;
}

static void print_outputs(const Bound *b) {
  for (uint32_t i = 0; i < b->f->params.n; i++) {
    ParamRole r = b->f->params.at[i].role;
    const InterpTensor *t = &b->args[i];
    if (r != PR_OUT && r != PR_INOUT) continue;
    printf("%s:", ir_info(b->f, b->f->params.at[i].v)->hint);
    for (int64_t k = 0; k < run_count(t); k++) printf(" %.6g", at(t, k));
    printf("\n");
  }
}

static bool compare(const Bound *a, const Bound *b, const Options *o) {
  bool ok = true;
  for (uint32_t i = 0; i < a->f->params.n; i++) {
    ParamRole r = a->f->params.at[i].role;
    if (r != PR_OUT && r != PR_INOUT) continue;
    double e = error(&a->args[i], &b->args[i]);
    if (e <= o->tol) continue;
    printf("%s differs: %.3g > %.3g\n",
           ir_info(a->f, a->f->params.at[i].v)->hint, e, o->tol);
    ok = false;
  }
  return ok;
}

static Module *read_module(Ctx *cx, const char *path) {
  Source *s = ctx_read_source(cx, path, NOWHERE);
  Module *m = s ? ir_parse(cx, s) : NULL;
  return m && ir_verify(cx, m) ? m : NULL;
}

static attn_scalar scalar(const InterpTensor *t) {
  attn_scalar s = {.i64 = 0};
  if (t->dtype == DT_F64) s.f64 = t->scalar;
  else if (dtype_is_float(t->dtype)) s.f32 = (float)t->scalar;
  else s.i64 = (int64_t)t->scalar;
  return s;
}

static bool launch(Bound *b, const attn_program *p) {
  attn_tensor t[64], *tensors[64];
  attn_scalar scalars[64];
  uint32_t nt = 0, ns = 0;
  for (uint32_t i = 0; i < b->f->params.n; i++) {
    const InterpTensor *x = &b->args[i];
    if (b->f->params.at[i].role == PR_SHARED) break;
    if (b->f->params.at[i].role == PR_SCALAR) {
      scalars[ns++] = scalar(x);
      continue;
    }
    t[nt] = (attn_tensor){.data = x->data,
                          .rank = (int)x->rank,
                          .dtype = (int)x->dtype};
    memcpy(t[nt].shape, x->shape, sizeof x->shape);
    memcpy(t[nt].stride, x->stride, sizeof x->stride);
    // What is not written stays NaN, as in the interpreter.
    if (b->f->params.at[i].role == PR_OUT)
      memset(x->data, 0xff,
             (size_t)run_count(x) * (size_t)dtype_size(x->dtype));
    tensors[nt] = &t[nt];
    nt++;
  }
  attn_error e;
  if (attn_launch(p, tensors, scalars, NULL, &e) == 0) return true;
  fprintf(stderr, "attn-run: %s\n", e.text);
  return false;
}

static bool run_jit(Ctx *cx, Bound *b) {
  CgProgram p = cg_program_of(cx, b->m, b->f, "run");
  Buf object = {.arena = &cx->session};
  if (!cg_compile(cx, &p, 1, CG_OBJECT, &object)) return false;
  CgJit *j = cg_jit_load(cx, object.at, object.n);
  const attn_program *code = j ? cg_jit_program(j, "run", b->f->name) : NULL;
  bool ok = code && launch(b, code);
  cg_jit_drop(j);
  return ok;
}

// Workspace is no argument.
static uint32_t arguments(const Func *f) {
  uint32_t n = 0;
  while (n < f->params.n && f->params.at[n].role != PR_SHARED) n++;
  return n;
}

bool run_bind(Ctx *cx, Bound *b, const Options *o, uint64_t seed) {
  if (!b->f || arguments(b->f) > 64 || b->m->dims.syms.n > 64) {
    fprintf(stderr, "attn-run: no such program\n");
    return false;
  }
  bind_dims(b, o);
  if (bind_args(cx, b, o, seed)) return true;
  fprintf(stderr, "attn-run: inputs cannot be made\n");
  return false;
}

static bool run_one(Ctx *cx, Module *m, const Options *o, uint64_t seed,
                    bool jit, Bound *b) {
  *b = (Bound){.m = m, .f = run_pick(m, o->fn)};
  if (!run_bind(cx, b, o, seed)) return false;
  if (jit) return run_jit(cx, b);
  InterpOpt opt = {.round = o->round, .seed = seed, .poison = true};
  return ir_interp(cx, m, b->f->name, b->args, b->dims, &opt);
}

static bool to_mach(Ctx *cx, Module *m, const PipelineOpt *po) {
  return m->level != LV_FRAG || pass_run(cx, m, "bufferize_gpu", po);
}

static int fd(Ctx *cx, Module *m, const Options *o) {
  for (int r = 0; r < o->runs; r++)
    if (!run_fd(cx, m, o, o->seed + (uint64_t)r)) return 1;
  printf("same: %d run%s\n", o->runs, o->runs == 1 ? "" : "s");
  return 0;
}

static int execute(Ctx *cx, const Options *o) {
  Module *m = read_module(cx, o->file), *m2 = NULL;
  if (!m) return 1;
  if (o->passes || o->other) {
    m2 = read_module(cx, o->other ? o->other : o->file);
    if (!m2) return 1;
  }
  Buf log = {.arena = &cx->session};
  PipelineOpt po = {.pass = {.target = o->target,
                             .tile_q = o->tile_q,
                             .tile_k = o->tile_k,
                             .chunk = o->chunk,
                             .split_k = o->split_k,
                             .few = o->few,
                             .walk = o->walk},
                    .verify_each = true,
                    .log = &log};
  if (o->passes && !pass_run(cx, m2, o->passes, &po)) return 1;
  if (o->fd) return fd(cx, m2 ? m2 : m, o);
  if (!to_mach(cx, m, &po) || (m2 && !to_mach(cx, m2, &po))) return 1;
  for (int r = 0; r < o->runs; r++) {
    static const Bound none;
    Bound a = none, b = none;
    if (!run_one(cx, m, o, o->seed + (uint64_t)r, false, &a)) return 1;
    if (o->print) print_outputs(&a);
    if (!m2) continue;
    if (!run_one(cx, m2, o, o->seed + (uint64_t)r, o->jit, &b)) return 1;
    if (!compare(&a, &b, o)) return 1;
  }
  if (m2) printf("same: %d run%s\n", o->runs, o->runs == 1 ? "" : "s");
  return 0;
}

int main(int argc, char **argv) {
  Ctx cx;
  ctx_init(&cx);
  Options o;
  if (argc > 1 && !strcmp(argv[1], "--help")) {
    fputs(usage, stdout);
    ctx_drop(&cx);
    return 0;
  }
  if (!parse_options(&cx, argc, argv, &o)) {
    fputs(usage, stderr);
    ctx_drop(&cx);
    return 2;
  }
  int rc = execute(&cx, &o);
  Buf out = {.arena = &cx.session};
  diag_render(&cx, (DiagStyle){.ascii = true}, &out);
  if (out.n) fputs(out.at, stderr);
  ctx_drop(&cx);
  return rc;
}
