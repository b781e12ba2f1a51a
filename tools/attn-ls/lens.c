// Code lenses: run a check, show what the compiler makes of a program.
#include "tools/attn-ls/server.h"

typedef struct Lens {
  const char *title, *command, *stage;
} Lens;

static void add_lens(Ls *ls, const Doc *d, const Decl *x, Lens l, json_t *out) {
  json_t *args = json_pack("[o, o]", js_str(ls, d->uri ? d->uri : d->path),
                           js_str(ls, x->name));
  if (l.stage) json_array_append_new(args, json_string(l.stage));
  json_array_append_new(out,
                        json_pack("{s:o, s:{s:s, s:s, s:o}}", "range",
                                  js_range(&d->text, ls->enc, x->name_span.lo,
                                           x->name_span.hi),
                                  "command", "title", l.title, "command",
                                  l.command, "arguments", args));
}

json_t *ls_code_lens(Ls *ls, const json_t *params, LsError *err) {
  static const char *const stages[][2] = {
      {"stream IR", "stream"}, {"tile IR", "tile"}, {"fragment IR", "frag"},
      {"machine IR", "mach"},  {"assembly", "asm"}, {"PTX", "ptx"}};
  Doc *d;
  Analysis *an = ls_analysis_of_params(ls, params, &d, err);
  if (!an) return NULL;
  json_t *out = json_array();
  for (uint32_t i = 0; i < an->unit->decls.n; i++) {
    const Decl *x = an->unit->decls.at[i];
    if (x->kind == DE_CHECK)
      add_lens(ls, d, x, (Lens){"run", "attn.check", NULL}, out);
    if (x->kind != DE_ATTENTION && x->kind != DE_RECURRENT) continue;
    add_lens(ls, d, x, (Lens){"explain", "attn.explain", NULL}, out);
    for (size_t k = 0; k < sizeof stages / sizeof *stages; k++) {
      Lens l = {stages[k][0], "attn.show", stages[k][1]};
      add_lens(ls, d, x, l, out);
    }
  }
  return out;
}
