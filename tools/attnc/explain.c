// attnc explain CODE: the page of a diagnostic. attnc explain FILE: what the
// compiler decided for a program, and what it costs.
#include "frontend/diagpages.h"
#include "tools/attnc/report.h"

#include <ctype.h>

static const char *severity(DiagId id) {
  static const char *const names[] = {"error", "warning", "information"};
  return names[diag_severity(id)];
}

static int list_codes(void) {
  for (int i = 0; i < DIAG_COUNT; i++)
    printf("%s %-18s %-11s %s\n", diag_code((DiagId)i), diag_name((DiagId)i),
           severity((DiagId)i), diag_text((DiagId)i));
  return EXIT_OK;
}

// A0012 or a0012, or its name.
static bool find_code(const char *s, DiagId *id) {
  char code[16] = "";
  for (size_t i = 0; s[i] && i + 1 < sizeof code; i++)
    code[i] = (char)toupper((unsigned char)s[i]);
  if (diag_by_code(code, id)) return true;
  for (int i = 0; i < DIAG_COUNT; i++)
    if (strcmp(diag_name((DiagId)i), s) == 0) {
      *id = (DiagId)i;
      return true;
    }
  return false;
}

static bool looks_like_code(const char *s) {
  size_t n = strlen(s);
  if ((s[0] != 'A' && s[0] != 'a') || n < 3 || n > 6) return false;
  return strspn(s + 1, "0123456789") == n - 1;
}

static int explain_code(DiagId id) {
  const char *page = diag_page(id);
  if (page) fputs(page, stdout);
  else
    printf("# %s %s\n\n%s: %s\n", diag_code(id), diag_name(id), severity(id),
           diag_text(id));
  return EXIT_OK;
}

int command_explain(Cli *cli) {
  DiagId id;
  if (cli->list) return list_codes();
  if (!cli->inputs.n)
    return usage_error(cli,
                       "explain what? 'attnc explain FILE.attn' tells what the "
                       "compiler decided for a program and what it costs, "
                       "'attnc explain A0100' what a diagnostic means; --list "
                       "shows them all");
  const char *what = cli->inputs.at[0];
  if (find_code(what, &id)) return explain_code(id);
  if (looks_like_code(what))
    return usage_error(cli, "there is no diagnostic '%s'", what);
  return session_run(cli, explain_file, NULL);
}
