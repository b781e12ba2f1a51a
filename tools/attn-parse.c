// Developer tool: reads .attn files and shows what the front end made of them.
//   attn-parse FILE [--check] [--dump | --fmt] [-I DIR] [--error-format=json]
// A file named - is standard input. Exit code 1 if there were errors.
#include "frontend/frontend.h"

#include <stdio.h>

static Source *open_source(Ctx *cx, const char *path) {
  return ctx_read_source(cx, strcmp(path, "-") ? path : "/dev/stdin", NOWHERE);
}

static void put(FILE *f, const Buf *b) {
  if (b->n) fwrite(b->at, 1, b->n, f);
}

typedef struct Options {
  const char *path;
  bool check, dump, fmt, json;
} Options;

static int run(Ctx *cx, const Options *o) {
  Source *src = open_source(cx, o->path);
  Unit *unit = src ? fe_parse(cx, src) : NULL;
  Buf out = {.arena = &cx->session}, err = {.arena = &cx->session};
  if (unit && o->check) fe_check(cx, unit);
  if (unit && o->dump) fe_dump(unit, &out);
  if (unit && o->fmt && unit->syntax_ok) fe_format(cx, unit, &out);
  if (o->json) diag_render_json(cx, &err);
  else diag_render(cx, (DiagStyle){.ascii = true, .width = 100}, &err);
  put(stdout, &out);
  put(stderr, &err);
  return cx->nerrors != 0;
}

static bool read_option(Options *o, const char *arg) {
  if (!strcmp(arg, "--check")) o->check = true;
  else if (!strcmp(arg, "--dump")) o->dump = true;
  else if (!strcmp(arg, "--fmt")) o->fmt = true;
  else if (!strcmp(arg, "--error-format=json")) o->json = true;
  else return false;
  return true;
}

int main(int argc, char **argv) {
  Options o = {0};
  Ctx cx;
  ctx_init(&cx);
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-I") && i + 1 < argc)
      vec_push(&cx.session, &cx.include_dirs, argv[++i]);
    else if (!read_option(&o, argv[i])) o.path = argv[i];
  }
  int rc = 2;
  if (o.path) rc = run(&cx, &o);
  else
    fputs("usage: attn-parse FILE [--check] [--dump | --fmt] [-I DIR] "
          "[--error-format=json]\n",
          stderr);
  ctx_drop(&cx);
  return rc;
}
