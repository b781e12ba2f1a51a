// Inlay hints: inferred types of names, what indices calls take by name.
#include "tools/attn-ls/server.h"

typedef struct Hints {
  Ls *ls;
  const Doc *d;
  uint32_t lo, hi;
  json_t *out;
} Hints;

static void hint(Hints *h, uint32_t at, const char *text, int kind,
                 const char *tip) {
  if (at < h->lo || at > h->hi) return;
  json_t *j = json_pack("{s:o, s:o, s:b}", "position",
                        js_pos(ls_pos_at(&h->d->text, h->ls->enc, at)), "label",
                        js_str(h->ls, text), "paddingLeft", kind == 0);
  if (kind) json_object_set_new(j, "kind", json_integer(kind));
  if (tip) json_object_set_new(j, "tooltip", js_str(h->ls, tip));
  json_array_append_new(h->out, j);
}

static void type_hint(Hints *h, const Occ *o) {
  const Sym *s = o->sym;
  Buf b = {.arena = &h->ls->scratch}, v = b;
  if (s->ty.kind != TY_VALUE) return;
  buf_str(&b, ": ");
  ls_describe_type(s->decl ? s->decl : s->owner, &s->ty, &b);
  ls_describe_vary(s->owner, s->vary, &v);
  const char *tip =
      v.n ? arena_printf(&h->ls->scratch, "varies with %s", v.at) : NULL;
  hint(h, o->hi, b.at, 1, tip);
}

static void role_hint(Hints *h, const Occ *o) {
  static const char *const words[] = {[IX_KEY] = "key", [IX_VEC] = "vector"};
  IndexRole r = o->sym->role;
  if (r == IX_KEY || r == IX_VEC) hint(h, o->hi, words[r], 0, ls_role_text(r));
}

// causal -> causal(q, k)
static void bound_hint(Hints *h, const Expr *e) {
  Buf b = {.arena = &h->ls->scratch};
  uint32_t n = 0;
  for (uint32_t i = 0; i < e->nbound; i++)
    if (e->bound[i].by_name && e->bound[i].index)
      buf_printf(&b, "%s%s", n++ ? ", " : "", e->bound[i].index->name);
  if (!n || e->kind == EX_MEMBER) return;
  const char *tip = "indices taken by their names";
  if (e->kind == EX_NAME) {
    hint(h, e->span.hi, arena_printf(&h->ls->scratch, "(%s)", b.at), 2, tip);
    return;
  }
  bool more = e->args.n > 0, parens = h->d->text.text[e->span.hi - 1] == ')';
  if (!parens) return;
  hint(h, more ? e->args.at[0].span.lo : e->span.hi - 1,
       arena_printf(&h->ls->scratch, "%s%s", b.at, more ? ", " : ""), 2, tip);
}

json_t *ls_inlay(Ls *ls, const json_t *params, LsError *err) {
  Doc *d;
  Analysis *an = ls_analysis_of_params(ls, params, &d, err);
  Pos from, to;
  if (!an || !ls_range_of_params(params, &from, &to, err)) return NULL;
  Hints h = {ls, d, ls_offset_at(&d->text, ls->enc, from),
             ls_offset_at(&d->text, ls->enc, to), json_array()};
  for (uint32_t i = 0; i < an->occs.n; i++) {
    const Occ *o = &an->occs.at[i];
    if (o->kind != OCC_DEF || !o->sym) continue;
    if (o->sym->kind == SY_LET) type_hint(&h, o);
    if (o->sym->kind == SY_INDEX) role_hint(&h, o);
  }
  for (uint32_t i = 0; i < an->calls.n; i++)
    if (an->calls.at[i].expr->span.src == an->unit->source->id)
      bound_hint(&h, an->calls.at[i].expr);
  return h.out;
}
