// Developer tool: compiles a module at level mach and runs it in this process.
//   mach-run FILE.tir [--fn NAME] [--target ROW,..] [--emit=raw|llvm|asm|obj|
//     header] [-o OUT] [--prefix S] [--dim B=2].. [--in Q=q.npy].. [--set x=1]..
//     [--out O=o.npy].. [--print O].. [--skip O].. [--computed x]..
//     [--strided] [--time]
// FILE - is standard input. --skip: that array is not given; --computed: the
// default of that scalar is computed by the kernel, and used. Arrays get their
// shapes from the dims; inputs without a file are normal(0, 1) (integers: 0, 1,
// ..). --strided puts gaps between all elements. Exit code 1 on diagnostics or
// a failed launch, 2 on wrong usage.
//   mach-run --host-targets    the rows of targets.def this machine runs
#include "codegen/codegen.h"
#include "ir/core/outfile.h"
#include "tools/driver/run/gen.h"
#include "tools/driver/run/npy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct Option {
  const char *name, *value;
  size_t len;
} Option;

typedef struct Run {
  Ctx *cx;
  const char *file, *fn, *targets, *emit, *out, *prefix;
  Vec(Option) dims, in, set, outs, prints, skip, computed;
  bool strided, time;
  CgProgram prog;
  int64_t *dim;
  attn_tensor tensors[ATTN_MAX_PARAMS];
  NpyArray arrays[ATTN_MAX_PARAMS];  // dense copies
} Run;

// ---------------------------------------------------------------- options
static Option split(const char *s) {
  const char *eq = strchr(s, '=');
  size_t n = eq ? (size_t)(eq - s) : strlen(s);
  return (Option){s, eq ? eq + 1 : "", n};
}

static const char *lookup(const Option *at, uint32_t n, const char *name) {
  for (uint32_t i = 0; i < n; i++)
    if (strlen(name) == at[i].len && !strncmp(at[i].name, name, at[i].len))
      return at[i].value;
  return NULL;
}

static bool one_option(Run *r, const char *a, const char *v) {
  Arena *s = &r->cx->session;
  if (!strcmp(a, "--fn")) r->fn = v;
  else if (!strcmp(a, "--target")) r->targets = v;
  else if (!strcmp(a, "--prefix")) r->prefix = v;
  else if (!strcmp(a, "-o")) r->out = v;
  else if (!strcmp(a, "--dim")) vec_push(s, &r->dims, split(v));
  else if (!strcmp(a, "--in")) vec_push(s, &r->in, split(v));
  else if (!strcmp(a, "--set")) vec_push(s, &r->set, split(v));
  else if (!strcmp(a, "--out")) vec_push(s, &r->outs, split(v));
  else if (!strcmp(a, "--print")) vec_push(s, &r->prints, split(v));
  else if (!strcmp(a, "--skip")) vec_push(s, &r->skip, split(v));
  else if (!strcmp(a, "--computed")) vec_push(s, &r->computed, split(v));
  else return false;
  return true;
}

static bool options(Run *r, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (!strncmp(argv[i], "--emit=", 7)) r->emit = argv[i] + 7;
    else if (!strcmp(argv[i], "--strided")) r->strided = true;
    else if (!strcmp(argv[i], "--time")) r->time = true;
    else if (argv[i][0] != '-') r->file = argv[i];
    else if (!argv[i][1]) r->file = "/dev/stdin";
    else if (i + 1 >= argc || !one_option(r, argv[i], argv[i + 1]))
      return false;
    else i++;
  }
  return r->file != NULL;
}

// ---------------------------------------------------------------- modules
static const Func *choose(const Run *r, const Module *m) {
  for (uint32_t i = 0; i < m->funcs.n; i++)
    if (!r->fn || !strcmp(m->funcs.at[i]->name, r->fn)) return m->funcs.at[i];
  return NULL;
}

// What the command line says about parameters.
static void mark(Run *r) {
  CgParam *p = NEWN(&r->cx->session, CgParam, r->prog.nparams + 1);
  for (uint32_t i = 0; i < r->prog.nparams; i++) {
    p[i] = r->prog.params[i];
    if (lookup(r->computed.at, r->computed.n, p[i].name))
      p[i].def = CG_COMPUTED;
    if (lookup(r->skip.at, r->skip.n, p[i].name) && p[i].role != PR_OUT)
      p[i].optional = true;
  }
  r->prog.params = p;
}

// One variant per target; without --target the one in the file.
static bool read_program(Run *r) {
  Ctx *cx = r->cx;
  Source *src = ctx_read_source(cx, r->file, NOWHERE);
  CgVariant *v = NEWN(&cx->session, CgVariant, 8);
  uint32_t n = 0;
  const char *t = r->targets ? r->targets : "";
  do {
    size_t len = strcspn(t, ",");
    Module *m = src ? ir_parse(cx, src) : NULL;
    if (m && !ir_verify(cx, m)) return false;
    const Func *f = m ? choose(r, m) : NULL;
    if (m && !f) fprintf(stderr, "mach-run: no such function\n");
    if (!f || n == 8) return false;
    if (len) m->target = arena_printf(&cx->session, "cpu:%.*s", (int)len, t);
    if (!n) r->prog = cg_program_of(cx, m, f, r->prefix);
    if (!n) mark(r);
    v[n++].mod = m;
    t += len;
  } while (*t++ == ',');
  r->prog.variants = v;
  r->prog.nvariants = n;
  return true;
}

// ---------------------------------------------------------------- data
static bool shape(Run *r, const Type *t, NpyArray *x) {
  x->dtype = t->dtype;
  x->rank = (int)t->n;
  x->count = 1;
  for (uint32_t i = 0; i < t->n; i++) {
    if (!dim_eval(r->prog.dims, t->size[i], r->dim, &x->shape[i])) return false;
    x->count *= x->shape[i];
  }
  x->data = arena_alloc(&r->cx->session,
                        (size_t)x->count * (size_t)dtype_size(t->dtype) + 64);
  return true;
}

static bool fill(Run *r, const CgParam *p, NpyArray *x) {
  Arena *a = &r->cx->session;
  const char *file = lookup(r->in.at, r->in.n, p->name);
  if (file) {
    NpyArray y;
    if (!npy_read(r->cx, a, file, &y)) return false;
    if (y.count != x->count || dtype_size(y.dtype) != dtype_size(x->dtype))
      return false;
    x->data = y.data;
    return true;
  }
  bool f = dtype_is_float(p->type.dtype);
  Gen g = gen_default(f ? GK_NORMAL : GK_IOTA);
  if (p->role != PR_OUT)
    gen_fill(a, &g, p->name, p->type.dtype, x->count, x->data);
  return true;
}

// The array as the program sees it; with --strided every other element of
// twice the memory in the innermost axis, copied back by `gather`.
static attn_tensor view(Run *r, const NpyArray *x) {
  attn_tensor t = {.data = x->data, .rank = x->rank, .dtype = (int)x->dtype};
  int64_t step = r->strided ? 2 : 1, size = dtype_size(x->dtype);
  for (int i = x->rank; i-- > 0;) {
    t.shape[i] = x->shape[i];
    t.stride[i] = step;
    step *= x->shape[i];
  }
  if (!r->strided) return t;
  t.data = arena_alloc(&r->cx->session, (size_t)(2 * size * x->count) + 64);
  for (int64_t i = 0; i < x->count; i++)
    memcpy((char *)t.data + 2 * i * size, (char *)x->data + i * size,
           (size_t)size);
  return t;
}

static void gather(const Run *r, const attn_tensor *t, NpyArray *x) {
  int64_t size = dtype_size(x->dtype);
  for (int64_t i = 0; r->strided && i < x->count; i++)
    memcpy((char *)x->data + i * size, (char *)t->data + 2 * i * size,
           (size_t)size);
}

static bool bind_dims(Run *r) {
  const DimTab *t = r->prog.dims;
  r->dim = NEWN(&r->cx->session, int64_t, t->syms.n + 1);
  for (uint32_t i = 0; i < t->syms.n; i++) {
    const char *v = lookup(r->dims.at, r->dims.n, t->syms.at[i].name);
    if (!v) {
      fprintf(stderr, "mach-run: --dim %s=? is missing\n", t->syms.at[i].name);
      return false;
    }
    r->dim[i] = strtoll(v, NULL, 0);
  }
  return true;
}

static attn_scalar scalar(const Run *r, const CgParam *p) {
  const char *v = lookup(r->set.at, r->set.n, p->name);
  attn_scalar s = {.i64 = (int64_t)cg_default_bits(p)};
  if (!v) return s;
  if (!dtype_is_float(p->type.dtype)) s.i64 = strtoll(v, NULL, 0);
  else if (p->type.dtype == DT_F64) s.f64 = strtod(v, NULL);
  else s.f32 = strtof(v, NULL);
  return s;
}

// ---------------------------------------------------------------- results
static void print(const NpyArray *x, const char *name) {
  const char *p = x->data;
  printf("%s =", name);
  for (int64_t i = 0; i < x->count; i++) {
    double v = dtype_load(x->dtype, p + i * dtype_size(x->dtype));
    if (isnan(v)) printf(" nan");
    else printf(" %.9g", v);
  }
  printf("\n");
}

static bool show(Run *r) {
  for (uint32_t i = 0; i < r->prog.nparams; i++) {
    const CgParam *p = &r->prog.params[i];
    const char *file = lookup(r->outs.at, r->outs.n, p->name);
    if (p->role == PR_SCALAR) continue;
    if (lookup(r->prints.at, r->prints.n, p->name))
      print(&r->arrays[i], p->name);
    if (file && !npy_write(r->cx, file, &r->arrays[i])) return false;
  }
  return true;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool launch(Run *r, const attn_program *code) {
  attn_tensor *tensors[ATTN_MAX_PARAMS];
  attn_scalar scalars[ATTN_MAX_PARAMS];
  uint32_t nt = 0, ns = 0;
  for (uint32_t i = 0; i < r->prog.nparams; i++) {
    const CgParam *p = &r->prog.params[i];
    if (p->role == PR_SCALAR) {
      scalars[ns++] = scalar(r, p);
      continue;
    }
    if (!shape(r, &p->type, &r->arrays[i]) || !fill(r, p, &r->arrays[i]))
      return false;
    r->tensors[i] = view(r, &r->arrays[i]);
    if (lookup(r->skip.at, r->skip.n, p->name))
      r->tensors[i] = (attn_tensor){.data = NULL};
    tensors[nt++] = &r->tensors[i];
  }
  attn_error e;
  double best = INFINITY;
  for (int k = 0; k < (r->time ? 5 : 1); k++) {
    double t = now();
    if (attn_launch(code, tensors, scalars, NULL, &e)) {
      fprintf(stderr, "mach-run: %s\n", e.text);
      return false;
    }
    best = fmin(best, now() - t);
  }
  if (r->time) fprintf(stderr, "run %.3f ms\n", best * 1e3);
  for (uint32_t i = 0; i < r->prog.nparams; i++)
    if (r->prog.params[i].role != PR_SCALAR && r->tensors[i].data)
      gather(r, &r->tensors[i], &r->arrays[i]);
  return show(r);
}

static bool write_out(const Run *r, const Buf *b) {
  if (r->out) return out_write(r->out, b->at, b->n);
  return fwrite(b->at, 1, b->n, stdout) == b->n;
}

static bool run(Run *r) {
  static const char *const words[] = {"raw", "llvm", "asm", "obj"};
  Buf b = {.arena = &r->cx->session};
  CgEmit what = CG_OBJECT;
  if (!read_program(r)) return false;
  if (r->emit && !strcmp(r->emit, "header"))
    return cg_header(r->cx, &r->prog, 1, r->prefix, &b) && write_out(r, &b);
  for (int i = 0; r->emit && i < 4; i++)
    if (!strcmp(r->emit, words[i])) what = (CgEmit)i;
  clock_t t = clock();
  if (!cg_compile(r->cx, &r->prog, 1, what, &b)) return false;
  double ms = 1e3 * (double)(clock() - t) / CLOCKS_PER_SEC;
  if (r->time) fprintf(stderr, "compile %.2f ms of CPU time\n", ms);
  if (r->emit) return write_out(r, &b);
  CgJit *j = cg_jit_load(r->cx, b.at, b.n);
  const attn_program *p = j ? cg_jit_program(j, r->prefix, r->prog.name) : NULL;
  bool ok = p && bind_dims(r) && launch(r, p);
  cg_jit_drop(j);
  return ok;
}

// LLVM is about to end the process.
static void fatal(const char *reason) {
  fprintf(stderr, "mach-run: internal error: %s\n", reason);
  _exit(70);
}

static int host_targets(void) {
  const char *names[8];
  uint32_t n = cg_host_targets(names, 8);
  for (uint32_t i = 0; i < n; i++) puts(names[i]);
  return 0;
}

int main(int argc, char **argv) {
  Ctx cx;
  if (argc == 2 && !strcmp(argv[1], "--host-targets")) return host_targets();
  ctx_init(&cx);
  cg_on_fatal(fatal);
  Run r = {.cx = &cx, .prefix = "t"};
  if (!options(&r, argc, argv)) {
    fputs("usage: mach-run FILE.tir [options]\n", stderr);
    ctx_drop(&cx);
    return 2;
  }
  bool ok = run(&r);
  Buf err = {.arena = &cx.session};
  diag_render(&cx, (DiagStyle){.ascii = true, .width = 100}, &err);
  if (err.n) fwrite(err.at, 1, err.n, stderr);
  ctx_drop(&cx);
  return !ok || cx.nerrors;
}
