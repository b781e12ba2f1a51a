// libFuzzer: the reader must survive any bytes; what it accepts must format
// to text that reads back as the same tree and formats to itself.
//   cmake -B build-asan -G Ninja -DCMAKE_C_COMPILER=clang-22 -DATTNC_FUZZ=ON
//         -DATTNC_SANITIZE=ON && ninja -C build-asan fuzz_parse
//   build-asan/bin/fuzz_parse test/fuzz/corpus/attn test/parse/examples
#include "frontend/frontend.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok) {
  if (!ok) __builtin_trap();
}

static uint32_t comments(const Unit *u) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < u->trivia.n; i++)
    n += u->trivia.at[i].kind == TR_COMMENT;
  return n;
}

// Parses, dumps and formats; the results stay in the session of cx.
static bool read(Ctx *cx, const char *text, size_t n, Buf *dump, Buf *fmt,
                 uint32_t *ncomments) {
  Source *src = ctx_add_source(cx, "fuzz.attn", text, n);
  Unit *unit = fe_parse(cx, src);
  need(unit != NULL);
  need(cx->scratch.used == 0);
  fe_dump(unit, dump);
  *ncomments = comments(unit);
  return unit->syntax_ok && fe_format(cx, unit, fmt);
}

static void run(Ctx *cx, const char *text, size_t n) {
  Buf out = {.arena = &cx->session}, dump[3], fmt[3];
  for (int i = 0; i < 3; i++) dump[i] = fmt[i] = (Buf){.arena = &cx->session};
  uint32_t n0, n1;
  if (read(cx, text, n, &dump[0], &fmt[0], &n0)) {
    need(read(cx, fmt[0].at, fmt[0].n, &dump[1], &fmt[1], &n1));
    need(n0 == n1);
    need(strcmp(dump[0].at, dump[1].at) == 0);
    need(fmt[0].n == fmt[1].n && memcmp(fmt[0].at, fmt[1].at, fmt[0].n) == 0);
    need(cx->nerrors == 0);
  } else {
    need(cx->nerrors > 0);
  }
  diag_render(cx, (DiagStyle){.width = 80}, &out);
  diag_render_json(cx, &out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Ctx cx;
  ctx_init(&cx);
  run(&cx, (const char *)data, size);
  ctx_drop(&cx);
  return 0;
}
