// Developer tool: reads .attn files and shows what the front end made of them.
//   attn-parse FILE [--dump | --fmt] [--error-format=json]
// A file named - is standard input. Exit code 1 if there were errors.
#include "frontend/frontend.h"

#include <stdio.h>

static Source *open_source(Ctx *cx, const char *path) {
  return ctx_read_source(cx, strcmp(path, "-") ? path : "/dev/stdin", NOWHERE);
}

static void put(FILE *f, const Buf *b) {
  if (b->n) fwrite(b->at, 1, b->n, f);
}

static int run(Ctx *cx, const char *path, bool dump, bool fmt, bool json) {
  Source *src = open_source(cx, path);
  Unit *unit = src ? fe_parse(cx, src) : NULL;
  Buf out = {.arena = &cx->session}, err = {.arena = &cx->session};
  if (unit && dump) fe_dump(unit, &out);
  if (unit && fmt && unit->syntax_ok) fe_format(cx, unit, &out);
  if (json) diag_render_json(cx, &err);
  else diag_render(cx, (DiagStyle){.ascii = true, .width = 100}, &err);
  put(stdout, &out);
  put(stderr, &err);
  return cx->nerrors != 0;
}

int main(int argc, char **argv) {
  const char *path = NULL;
  bool dump = false, fmt = false, json = false;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--dump")) dump = true;
    else if (!strcmp(argv[i], "--fmt")) fmt = true;
    else if (!strcmp(argv[i], "--error-format=json")) json = true;
    else path = argv[i];
  }
  if (!path) {
    fputs("usage: attn-parse FILE [--dump | --fmt] [--error-format=json]\n",
          stderr);
    return 2;
  }
  Ctx cx;
  ctx_init(&cx);
  int rc = run(&cx, path, dump, fmt, json);
  ctx_drop(&cx);
  return rc;
}
