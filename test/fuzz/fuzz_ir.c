// libFuzzer: the reader and the verifier must survive any bytes; what is read
// must print to text that reads back and prints to itself; what is valid must
// stay valid through cse and dce.
//   cmake -B build-asan -G Ninja -DCMAKE_C_COMPILER=clang-22 -DATTNC_FUZZ=ON
//         -DATTNC_SANITIZE=ON && ninja -C build-asan fuzz_ir
//   build-asan/bin/fuzz_ir CORPUS test/ir test/passes/cse test/passes/dce
#include "passes/pass.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok) {
  if (!ok) __builtin_trap();
}

static Module *read(Ctx *cx, const char *text, size_t n, Buf *out) {
  Source *src = ctx_add_source(cx, "fuzz.tir", text, n);
  Module *m = ir_parse(cx, src);
  need((m != NULL) == (cx->nerrors == 0));
  if (m) ir_print(m, out);
  return m;
}

static void run(Ctx *cx, const char *text, size_t n) {
  Buf a = {.arena = &cx->session}, b = a, c = a, log = a, shown = a;
  Module *m = read(cx, text, n, &a);
  if (m) {
    need(read(cx, a.at, a.n, &b) != NULL);
    need(a.n == b.n && memcmp(a.at, b.at, a.n) == 0);
    bool valid = ir_verify(cx, m);
    need(cx->scratch.used == 0);
    if (valid) {
      PipelineOpt opt = {.verify_each = true, .log = &log};
      need(pass_run(cx, m, "cse,dce,cse", &opt));
      ir_print(m, &c);
      need(read(cx, c.at, c.n, &shown) != NULL);
    }
    need(valid == (cx->nerrors == 0));
  }
  diag_render(cx, (DiagStyle){.width = 80}, &shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Ctx cx;
  ctx_init(&cx);
  run(&cx, (const char *)data, size);
  ctx_drop(&cx);
  return 0;
}
