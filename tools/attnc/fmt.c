// attnc fmt: canonical text, in place; --check only asks.
#include "tools/attnc/files.h"

typedef struct Fmt {
  const char *path;
} Fmt;

static int format(Session *s, void *data) {
  Cli *cli = s->cli;
  const char *path = ((const Fmt *)data)->path;
  Source *src = session_read(s, path);
  Unit *u = src ? fe_parse(&s->cx, src) : NULL;
  Buf out = {.arena = &s->cx.session};
  if (!u || !u->syntax_ok || !fe_format(&s->cx, u, &out)) return EXIT_OK;
  bool same =
      out.n == src->len && !memcmp(out.at ? out.at : "", src->text, out.n);
  if (cli->check) {
    if (!same) fprintf(stderr, "attnc: %s is not formatted\n", src->path);
    return same ? EXIT_OK : EXIT_DIAG;
  }
  bool piped = strcmp(path, "-") == 0;
  if (piped) session_put(s, NULL, &out);
  else if (!same) session_put(s, path, &out);
  return EXIT_OK;
}

int command_fmt(Cli *cli) {
  int worst = EXIT_OK;
  Strings files = {0};
  if (!files_of(cli, &files)) return EXIT_ENV;
  for (uint32_t i = 0; i < files.n; i++) {
    Fmt f = {files.at[i]};
    int rc = session_run(cli, format, &f);
    if (rc > worst) worst = rc;
  }
  return worst;
}
