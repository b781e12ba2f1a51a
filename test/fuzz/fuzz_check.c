// libFuzzer: the checker must survive any tree; a program that checks can be
// checked again, specialized, lowered and dumped. Build as fuzz_parse.c says.
//   build-asan/bin/fuzz_check test/fuzz/corpus/attn test/parse/examples
#include "frontend/check.h"
#include "ir/ir.h"
#include "test/fuzz/nofiles.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok) {
  if (!ok) __builtin_trap();
}

static void program(Ctx *cx, Decl *d) {
  FeBind *binds;
  uint32_t n, width;
  n = fe_specializations(cx, d, NULL, 0, &binds, &width);
  uint32_t errors = cx->nerrors;
  if (!n) return;
  need(fe_retype(cx, d, binds, width));
  need(cx->nerrors == errors);
  Module *m = fe_lower(cx, d, binds, width);
  need(m ? cx->nerrors == errors : cx->nerrors > errors);
  if (m) need(ir_verify(cx, m));
}

static void run(Ctx *cx, const char *text, size_t n) {
  Buf out = {.arena = &cx->session}, dump = out;
  Decl *at[4];
  cx->read_file = no_files;
  Unit *unit = fe_parse(cx, ctx_add_source(cx, "fuzz.attn", text, n));
  bool ok = fe_check(cx, unit);
  need(ok == (cx->nerrors == 0));
  fe_dump(unit, &dump);
  uint32_t programs = ok ? fe_programs(unit, at, 4) : 0;
  for (uint32_t i = 0; i < programs; i++) program(cx, at[i]);
  diag_render(cx, (DiagStyle){.width = 80}, &out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Ctx cx;
  ctx_init(&cx);
  run(&cx, (const char *)data, size);
  ctx_drop(&cx);
  return 0;
}
