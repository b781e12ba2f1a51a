// gpu-run: a compiled program on a machine without the compiler. Loads a
// library that `attnc --shared` made, makes up or reads the inputs, launches,
// compares with the library's own CPU code or with arrays, times.
//   gpu-run f.so f_fwd --dim B=2,H=4,Q=1000,K=1000 --verify --runs 20
#include "tools/gpu-run/run.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static const char usage[] =
    "usage: gpu-run FILE.so STEM_PROGRAM [OPTION ..]\n"
    "  --dim D=N,..         value of dims\n"
    "  --shape NAME=AxB     shape of an array that dims do not say\n"
    "  --in NAME=X          input: a .npy file, or a generator: normal(0,1)\n"
    "  --set NAME=V         value of a scalar\n"
    "  --out NAME=FILE      write this output as .npy\n"
    "  --ref NAME=FILE      compare this output with a .npy file\n"
    "  --sparse             a --ref's elements that are NaN are not compared\n"
    "  --verify             compare every output with the CPU code\n"
    "  --repeat N           launch N more times, results must be equal\n"
    "  --tol T              tolerance (default: by element type)\n"
    "  --seed N             of made-up inputs (default 1)\n"
    "  --runs N             measured launches (default none)\n"
    "  --device N           ordinal (default 0);  --cpu: no device\n"
    "  --amd                the device is AMD's, not NVIDIA's\n"
    "exit codes: 0 ok, 1 a comparison or launch failed, 2 usage, "
    "3 no driver, file or device\n";

static const struct option longs[] = {
    {"dim", 1, NULL, 'D'},    {"shape", 1, NULL, 'S'},
    {"in", 1, NULL, 'i'},     {"set", 1, NULL, 's'},
    {"out", 1, NULL, 'o'},    {"ref", 1, NULL, 'r'},
    {"verify", 0, NULL, 'v'}, {"repeat", 1, NULL, 'R'},
    {"tol", 1, NULL, 't'},    {"seed", 1, NULL, 'e'},
    {"runs", 1, NULL, 'n'},   {"device", 1, NULL, 'd'},
    {"cpu", 0, NULL, 'c'},    {"amd", 0, NULL, 'a'},
    {"sparse", 0, NULL, 'p'}, {NULL, 0, NULL, 0}};

static bool parse(Run *r, int argc, char **argv) {
  for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
    RunSetting s = {c, optarg};
    switch (c) {
    case 'v': r->verify = true; break;
    case 'c': r->cpu = true; break;
    case 'a': r->amd = true; break;
    case 'p': r->sparse = true; break;
    case 'R': r->repeat = strtol(optarg, NULL, 10); break;
    case 't': r->tol = strtod(optarg, NULL); break;
    case 'e': r->seed = strtoull(optarg, NULL, 10); break;
    case 'n': r->runs = strtol(optarg, NULL, 10); break;
    case 'd': r->device = (int)strtol(optarg, NULL, 10); break;
    case '?': return false;
    default: vec_push(&r->cx.session, &r->settings, s);
    }
  }
  return argc - optind == 2;
}

// The library finds libattn's functions in this program.
static bool open_program(Run *r, const char *path, const char *name) {
  const char *file =
      strchr(path, '/') ? path : arena_printf(&r->cx.session, "./%s", path);
  void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    fprintf(stderr, "gpu-run: %s\n", dlerror());
    return false;
  }
  r->prog = dlsym(lib, arena_printf(&r->cx.session, "%s_program", name));
  if (!r->prog)
    fprintf(stderr, "gpu-run: %s has no program '%s'\n", path, name);
  return r->prog != NULL;
}

static bool open_device(Run *r) {
  if (r->cpu || drv_gpu_open(&r->gpu, r->amd, r->device)) return true;
  fprintf(stderr, "gpu-run: %s\n", r->gpu.error);
  return false;
}

static void print_diags(Run *r) {
  Buf b = {.arena = &r->cx.session};
  diag_render(&r->cx, (DiagStyle){false, true, 100}, &b);
  if (b.n) fwrite(b.at, 1, b.n, stderr);
}

int main(int argc, char **argv) {
  static Run r = {.seed = 1, .tol = -1};
  signal(SIGXFSZ, SIG_IGN);  // too long a file is an error of write
  ctx_init(&r.cx);
  if (!parse(&r, argc, argv)) {
    fputs(usage, stderr);
    return 2;
  }
  int rc = 3;
  if (open_program(&r, argv[optind], argv[optind + 1]) && open_device(&r)) {
    rc = run_inputs(&r) && run_launch(&r) ? 0 : 1;
    drv_gpu_close(&r.gpu);
  }
  print_diags(&r);
  ctx_drop(&r.cx);
  return rc;
}
