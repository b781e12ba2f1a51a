// libFuzzer: whatever checks goes through every pass of the CPU's pipeline.
// Each pass leaves valid IR or a diagnostic, and the text of the result reads
// back and prints to itself. Build as fuzz_parse.c says.
//   build-asan/bin/fuzz_compile test/fuzz/corpus/attn stdlib/attention
#include "frontend/check.h"
#include "passes/pass.h"
#include "test/fuzz/nofiles.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok) {
  if (!ok) __builtin_trap();
}

static void same_text(Ctx *cx, const Module *m) {
  Buf a = {.arena = &cx->session}, b = a;
  ir_print(m, &a);
  Module *again = ir_parse(cx, ctx_add_source(cx, "fuzz.tir", a.at, a.n));
  need(again != NULL);
  ir_print(again, &b);
  need(a.n == b.n && memcmp(a.at, b.at, a.n) == 0);
}

static void no_bug(const Ctx *cx) {
  for (uint32_t i = 0; i < cx->diags.n; i++)
    need(cx->diags.at[i]->id != DIAG_pass_broke);
}

static void program(Ctx *cx, Decl *d, const char *name) {
  const Target *target = target_by_name(name);
  FeBind *binds;
  uint32_t n, width;
  n = fe_specializations(cx, d, NULL, 0, &binds, &width);
  if (!n || !fe_retype(cx, d, binds, width)) return;
  Module *m = fe_lower(cx, d, binds, width);
  if (!m) return;
  Buf log = {.arena = &cx->session};
  PipelineOpt opt = {.pass = {.target = target},
                     .verify_each = true,
                     .log = &log};
  uint32_t errors = cx->nerrors;
  const char *names = pass_pipeline(&cx->session, target, LV_ATTN, LV_MACH);
  if (pass_run(cx, m, names, &opt)) same_text(cx, m);
  else need(cx->nerrors > errors);
  no_bug(cx);
}

static void run(Ctx *cx, const char *text, size_t n) {
  static const char *const targets[] = {"cpu:x86-64", "cpu:x86-64-v4"};
  Decl *at[4];
  cx->read_file = no_files;
  Unit *unit = fe_parse(cx, ctx_add_source(cx, "fuzz.attn", text, n));
  if (!fe_check(cx, unit)) return;
  uint32_t programs = fe_programs(unit, at, 4);
  for (uint32_t i = 0; i < programs; i++) program(cx, at[i], targets[i % 2]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Ctx cx;
  ctx_init(&cx);
  run(&cx, (const char *)data, size);
  ctx_drop(&cx);
  return 0;
}
