// attnc init: a first program, a C program that calls it, and how to build
// them.
#include "tools/attnc/attnc.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
  const char *name, *text;
} files[] = {
    {"attention.attn",
     "# Causal attention with grouped heads.\n"
     "import std.rows { softmax }\n"
     "import std.masks { causal }\n"
     "\n"
     "## Each of the Hk key heads serves Hq // Hk query heads.\n"
     "attention gqa<B, Hq, Hk, Sq, Sk, D: const {64, 128}>\n"
     "  (Q: f32[B, Hq, Sq, D], K: f32[B, Hk, Sk, D], V: f32[B, Hk, Sk, D], "
     "scale: f32 = rsqrt(D))\n"
     "  -> (O: f32[B, Hq, Sq, D])\n"
     "  where Hq % Hk == 0\n"
     "{\n"
     "  index b in B, h in Hq, q in Sq;\n"
     "  index k in Sk where causal(off = Sk - Sq);\n"
     "  let g = h // (Hq // Hk);\n"
     "  let (p, lse) = softmax(scale * dot(Q[b, h, q], K[b, g, k]));\n"
     "  O[b, h, q] = sum(k: p * V[b, g, k]);\n"
     "}\n"
     "\n"
     "check \"small\" {\n"
     "  dims B = 2, Hq = 4, Hk = 2, Sq = 37, Sk = 53, D = 64;\n"
     "  input Q, K, V = normal(0, 1, seed = 1);\n"
     "  expect gqa(Q, K, V) ~= reference tol 1e-4;\n"
     "}\n"},
    {"main.c",
     "// Calls the compiled program. Build and run it with `make`.\n"
     "#include \"attention.h\"\n"
     "\n"
     "#include <stdio.h>\n"
     "#include <stdlib.h>\n"
     "\n"
     "enum { B = 1, Hq = 4, Hk = 2, S = 256, D = 64 };\n"
     "\n"
     "// A contiguous [B, heads, S, D] array of small numbers.\n"
     "static attn_tensor tensor(int64_t heads) {\n"
     "  int64_t n = B * heads * S * D;\n"
     "  float *p = malloc((size_t)n * sizeof *p);\n"
     "  if (!p) exit(1);\n"
     "  for (int64_t i = 0; i < n; i++) p[i] = (float)(i * 37 % 101) / 101 - 0.5f;\n"
     "  attn_tensor t = {p, {B, heads, S, D}, {heads * S * D, S * D, D, 1}, 4,\n"
     "                   ATTN_F32};\n"
     "  return t;\n"
     "}\n"
     "\n"
     "int main(void) {\n"
     "  attention_gqa_args a;\n"
     "  attention_gqa_args_init(&a);\n"
     "  a.Q = tensor(Hq);\n"
     "  a.K = tensor(Hk);\n"
     "  a.V = tensor(Hk);\n"
     "  a.O = tensor(Hq);\n"
     "  attn_error e;\n"
     "  if (attention_gqa(&a, NULL, &e)) {  // NULL: the CPU, default context\n"
     "    fprintf(stderr, \"%s\\n\", e.text);\n"
     "    return 1;\n"
     "  }\n"
     "  const float *o = a.O.data;\n"
     "  printf(\"O[0, 0, 0, 0:4] = %g %g %g %g\\n\", (double)o[0], (double)o[1],\n"
     "         (double)o[2], (double)o[3]);\n"
     "  free(a.Q.data);\n"
     "  free(a.K.data);\n"
     "  free(a.V.data);\n"
     "  free(a.O.data);\n"
     "  return 0;\n"
     "}\n"},
    {"Makefile",
     "# attn.h and libattn are looked for beside attnc; CFLAGS and LDFLAGS may say\n"
     "# where they are.\n"
     "ATTNC = attnc\n"
     "PREFIX := $(patsubst %/bin/,%,$(dir $(shell readlink -f \"$$(command -v "
     "$(ATTNC))\")))\n"
     "HERE = -L$(PREFIX)/lib -Wl,-rpath,$(PREFIX)/lib\n"
     "run: main\n"
     "\t./main\n"
     "main: main.c attention.o\n"
     "\t$(CC) -O2 $(CFLAGS) -I$(PREFIX)/include -o $@ main.c attention.o $(LDFLAGS) \\\n"
     "\t  $(HERE) -lattn -lpthread -lm -ldl\n"
     "attention.o: attention.attn\n"
     "\t$(ATTNC) $< -o $@ --header attention.h\n"
     "check: attention.attn\n"
     "\t$(ATTNC) check $<\n"
     ".PHONY: run check\n"},
};
enum { NFILES = sizeof files / sizeof *files };

static const char *path_of(Session *s, const char *dir, const char *name) {
  return arena_printf(&s->cx.session, "%s/%s", dir, name);
}

static int write_files(Session *s, void *data) {
  (void)data;
  const char *dir = s->cli->inputs.n ? s->cli->inputs.at[0] : ".";
  if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
    diag_add(&s->cx, DIAG_cannot_write, NOWHERE, dir, strerror(errno));
    return EXIT_OK;
  }
  for (int i = 0; i < NFILES; i++) {
    const char *path = path_of(s, dir, files[i].name);
    if (access(path, F_OK) != 0) continue;
    diag_add(&s->cx, DIAG_cannot_write, NOWHERE, path, "it exists already");
    return EXIT_OK;
  }
  for (int i = 0; i < NFILES; i++) {
    const char *path = path_of(s, dir, files[i].name);
    if (!session_write(s, path, files[i].text, strlen(files[i].text)))
      return EXIT_OK;
    if (!s->cli->quiet) fprintf(stderr, "wrote %s\n", path);
  }
  if (!s->cli->quiet)
    fprintf(stderr, "next: attnc check %s; make -C %s\n",
            path_of(s, dir, files[0].name), dir);
  return EXIT_OK;
}

int command_init(Cli *cli) {
  return session_run(cli, write_files, NULL);
}
