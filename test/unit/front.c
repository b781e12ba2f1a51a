// The reader as a library: pages of diagnostics, sessions side by side in two
// threads, and memory that runs out at any point.
#include "frontend/diagpages.h"
#include "frontend/frontend.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>

static int failures;

#define EXPECT(c) \
  ((c) ? (void)0 \
       : (void)(failures++, printf("%s:%d: %s\n", __FILE__, __LINE__, #c)))

static const char sample[] =
    "## Softmax.\n"
    "row softmax(s: row f32) -> (row f32, f32) {\n"
    "  let m = max(s);  # the reference\n"
    "  let e = exp(s - m);\n"
    "  return e / sum(e), m + log(sum(e));\n"
    "}\n"
    "\n"
    "mask causal(q, k, off: int = 0) = k <= q + off;\n";

static void pages(void) {
  const char *page = diag_page(DIAG_syntax);
  EXPECT(page && strstr(page, "# A0006 syntax") == page);
  DiagId id;
  EXPECT(diag_by_code("A0006", &id) && id == DIAG_syntax);
  EXPECT(!diag_by_code("A9999", &id));
}

// Reads and formats the sample; its dump stays in cx.
static const char *work(Ctx *cx) {
  Source *src = ctx_add_source(cx, "s.attn", sample, sizeof sample - 1);
  Unit *u = fe_parse(cx, src);
  Buf dump = {.arena = &cx->session}, text = {.arena = &cx->session};
  fe_dump(u, &dump);
  if (!fe_format(cx, u, &text)) return NULL;
  return strcmp(text.at, sample) == 0 ? dump.at : NULL;
}

static void *session(void *out) {
  for (int i = 0; i < 200; i++) {
    Ctx cx;
    ctx_init(&cx);
    *(bool *)out = work(&cx) != NULL;
    ctx_drop(&cx);
    if (!*(bool *)out) break;
  }
  return NULL;
}

static void threads(void) {
  pthread_t t[2];
  bool ok[2] = {false, false};
  for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, session, &ok[i]);
  for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
  EXPECT(ok[0] && ok[1]);
}

static void out_of_memory(void *border) {
  longjmp(*(jmp_buf *)border, 1);
}

// True if the work was done within `limit` bytes of either arena.
static bool within(size_t limit) {
  Ctx cx;
  jmp_buf border;
  ctx_init(&cx);
  cx.session.limit = cx.scratch.limit = limit;
  cx.session.oom = cx.scratch.oom = out_of_memory;
  cx.session.oom_data = cx.scratch.oom_data = &border;
  bool done = false;
  if (setjmp(border) == 0) done = work(&cx) != NULL;
  ctx_drop(&cx);
  return done;
}

static void memory(void) {
  size_t limit = 64;
  while (!within(limit) && limit < (1 << 24)) limit += 256;
  EXPECT(limit > 1024 && limit < (1 << 24));
}

int main(void) {
  pages();
  threads();
  memory();
  puts(failures ? "FAILED" : "all good");
  return failures != 0;
}
