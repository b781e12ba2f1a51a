// attnc doctor: what this machine has of what attnc can use.
#include "tools/attnc/attnc.h"
#include "tools/driver/compile/link.h"
#include "codegen/codegen.h"

#include "runtime/attn_abi.h"

#include <dlfcn.h>
#include <llvm-c/Core.h>

typedef struct Finding {
  const char *what, *state, *detail;  // state: ok, missing, error
} Finding;

typedef Vec(Finding) Findings;

static void add(Session *s, Findings *f, const char *what, const char *detail,
                const char *otherwise) {
  Finding x = {what, detail ? "ok" : "missing", detail ? detail : otherwise};
  vec_push(&s->cx.session, f, x);
}

// ---------------------------------------------------------------- drivers
typedef int IntFn(int *);
typedef int InitFn(unsigned);

// The symbol as a function; object pointers do not convert to them in C.
static bool symbol(void *lib, const char *name, void *fn) {
  void *p = dlsym(lib, name);
  memcpy(fn, &p, sizeof p);
  return p != NULL;
}

static const char *device_count(Session *s, const char *const *libs,
                                const char *init, const char *count) {
  void *lib = NULL;
  for (; *libs && !lib; libs++) lib = dlopen(*libs, RTLD_NOW | RTLD_LOCAL);
  if (!lib) return NULL;
  InitFn *start;
  IntFn *devices;
  int n = 0;
  bool ok = symbol(lib, init, &start) && symbol(lib, count, &devices) &&
            start(0) == 0 && devices(&n) == 0;
  // Drivers do not like to be unloaded.
  return ok ? arena_printf(&s->cx.session, "%d device%s", n, n == 1 ? "" : "s")
            : "the driver is there but does not start";
}

static void drivers(Session *s, Findings *f) {
  static const char *const cuda[] = {"libcuda.so.1", NULL};
  static const char *const hip[] = {"libamdhip64.so", "libamdhip64.so.6",
                                    "libamdhip64.so.5", NULL};
  add(s, f, "NVIDIA driver",
      device_count(s, cuda, "cuInit", "cuDeviceGetCount"),
      "libcuda.so.1 not found; programs run on the CPU");
  add(s, f, "AMD driver", device_count(s, hip, "hipInit", "hipGetDeviceCount"),
      "libamdhip64.so not found; programs run on the CPU");
}

// ---------------------------------------------------------------- the rest
static void cpu(Session *s, Findings *f) {
  const Target *t = drv_host_target(&s->cx, NULL);
  attn_ctx *rt = attn_ctx_default();
  const char *text = NULL;
  if (t && rt)
    text = arena_printf(&s->cx.session, "%s, %d thread%s", t->name,
                        attn_ctx_threads(rt),
                        attn_ctx_threads(rt) == 1 ? "" : "s");
  add(s, f, "CPU", text, "no level of this CPU is known");
}

// Levels of code that this CPU does not take.
static void levels(Session *s, Findings *f) {
  const char *left = drv_levels_left(&s->cx);
  add(s, f, "CPU levels", *left ? NULL : "all are used", left);
}

static void tools(Session *s, Findings *f) {
  Arena *a = &s->cx.session;
  unsigned v[3];
  LLVMGetVersion(&v[0], &v[1], &v[2]);
  add(s, f, "LLVM", arena_printf(a, "%u.%u.%u", v[0], v[1], v[2]), "");
  add(s, f, "linker", drv_find_tool(a, drv_linkers),
      "ld.lld not found; needed for AMD, used for --shared if there");
  add(s, f, "C compiler", drv_find_tool(a, drv_cc),
      "cc not found; needed to build applications");
  add(s, f, "ptxas", cg_ptxas_path(&s->cx),
      "not found; the NVIDIA driver compiles PTX when a program is loaded");
  static const char *const blas[] = {"libopenblas.so.0", "libopenblas.so"};
  const char *found = NULL;
  for (int i = 0; i < 2 && !found; i++)
    if (dlopen(blas[i], RTLD_NOW | RTLD_LOCAL)) found = blas[i];
  add(s, f, "OpenBLAS", found, "not found; only bench --sgemm uses it");
}

static void print_json(Session *s, const Findings *f) {
  Buf b = {.arena = &s->cx.session};
  buf_char(&b, '[');
  for (uint32_t i = 0; i < f->n; i++) {
    const Finding *x = &f->at[i];
    buf_str(&b, i ? ",\n {\"what\":" : "{\"what\":");
    buf_json(&b, x->what, strlen(x->what));
    buf_printf(&b, ",\"state\":\"%s\",\"detail\":", x->state);
    buf_json(&b, x->detail, strlen(x->detail));
    buf_char(&b, '}');
  }
  buf_str(&b, "]\n");
  session_put(s, NULL, &b);
}

static int doctor(Session *s, void *data) {
  Findings f = {0};
  (void)data;
  cpu(s, &f);
  levels(s, &f);
  tools(s, &f);
  drivers(s, &f);
  if (s->cli->json) {
    print_json(s, &f);
    return EXIT_OK;
  }
  drv_print_version(stdout);
  for (uint32_t i = 0; i < f.n; i++)
    printf("%-14s %-8s %s\n", f.at[i].what, f.at[i].state, f.at[i].detail);
  return EXIT_OK;
}

int command_doctor(Cli *cli) {
  return session_run(cli, doctor, NULL);
}
