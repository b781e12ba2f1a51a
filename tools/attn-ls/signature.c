// Signature help: the parameters of the call around the cursor. Read from the
// tokens, so that it works while the call is being written.
#include "tools/attn-ls/server.h"

typedef struct Open {
  uint32_t callee;    // index of the callee's token
  uint32_t arg;       // argument the cursor is in
  const char *named;  // `name =` before the cursor, or NULL
  bool piped;
} Open;

static char first(const Doc *d, FeToken t) {
  return d->text.text[t.lo];
}

static bool is_name(FeToken t) {
  return t.kind == FE_NAME || t.kind == FE_SOFT || t.kind == FE_TYPE ||
         t.kind == FE_WORD;
}

// The innermost call whose parenthesis is open at the offset.
static bool find_call(Ls *ls, const Doc *d, const FeTokens *t, uint32_t offset,
                      Open *out) {
  Vec(Open) stack = {0};
  for (uint32_t i = 0; i < t->n && t->at[i].lo < offset; i++) {
    char c = t->at[i].kind == FE_SIGN ? first(d, t->at[i]) : 0;
    Open *top = stack.n ? &stack.at[stack.n - 1] : NULL;
    if (c == '(' || c == '[' || c == '{') {
      Open o = {.callee = i && c == '(' && is_name(t->at[i - 1]) ? i - 1 : 0};
      vec_push(&ls->scratch, &stack, o);
    } else if ((c == ')' || c == ']' || c == '}') && top) {
      stack.n--;
    } else if (c == ',' && top) {
      top->arg++;
      top->named = NULL;
    } else if (c == '=' && t->at[i].hi - t->at[i].lo == 1 && top && i &&
               is_name(t->at[i - 1])) {
      FeToken n = t->at[i - 1];
      top->named =
          arena_strndup(&ls->scratch, d->text.text + n.lo, n.hi - n.lo);
    } else if (c == ';') {
      stack.n = 0;
    }
  }
  while (stack.n && !stack.at[stack.n - 1].callee) stack.n--;
  if (!stack.n) return false;
  *out = stack.at[stack.n - 1];
  uint32_t at = out->callee;
  out->piped = at && t->at[at - 1].kind == FE_SIGN &&
               strncmp(d->text.text + t->at[at - 1].lo, "|>", 2) == 0;
  return true;
}

static const Sym *callee(const Analysis *an, const Doc *d, FeToken t) {
  const Occ *o = ls_occ_at(an, t.lo);
  if (o && o->sym && o->lo == t.lo) return o->sym;
  size_t n = t.hi - t.lo;
  const char *s = d->text.text + t.lo;
  for (uint32_t i = 0; i < an->occs.n; i++) {
    const Sym *x = an->occs.at[i].sym;
    if (x && (x->kind == SY_DECL || x->kind == SY_BUILTIN) &&
        strlen(x->name) == n && memcmp(x->name, s, n) == 0)
      return x;
  }
  return NULL;
}

// A builtin that no whole statement of the file mentions.
static const Builtin *builtin_named(const Doc *d, FeToken t) {
  for (int i = 0; i < BI_COUNT; i++)
    if (strlen(fe_builtins[i].name) == t.hi - t.lo &&
        !memcmp(fe_builtins[i].name, d->text.text + t.lo, t.hi - t.lo))
      return &fe_builtins[i];
  return NULL;
}

static json_t *parameter(Ls *ls, Buf *label, const char *text, size_t n) {
  uint32_t lo = label->n;
  buf_add(label, text, n);
  if (!ls->client.label_offsets)
    return json_pack("{s:o}", "label", js_text(ls, text, n));
  Lines l = ls_lines_of(&ls->scratch, label->at, label->n);
  return json_pack("{s:[i,i]}", "label", (int)ls_pos_at(&l, ls->enc, lo).col,
                   (int)ls_pos_at(&l, ls->enc, label->n).col);
}

// The parameter that a position or name means.
static int active(const Decl *d, const Open *o) {
  for (uint32_t i = 0; o->named && i < d->params.n; i++)
    if (strcmp(d->params.at[i].name, o->named) == 0) return (int)i;
  uint32_t want = o->arg + o->piped;
  for (uint32_t i = 0; i < d->params.n; i++) {
    if (!d->params.at[i].type) continue;
    if (want-- == 0) return (int)i;
  }
  return (int)d->params.n;
}

static json_t *of_decl(Ls *ls, const Decl *d, const Open *o, int *at) {
  Buf b = {.arena = &ls->scratch};
  const char *text = d->unit->source->text;
  json_t *params = json_array();
  buf_printf(&b, "%s %s(", fe_decl_word(d->kind), d->name);
  for (uint32_t i = 0; i < d->params.n; i++) {
    Span s = d->params.at[i].span;
    if (i) buf_str(&b, ", ");
    json_array_append_new(params, parameter(ls, &b, text + s.lo, s.hi - s.lo));
  }
  buf_char(&b, ')');
  for (uint32_t i = 0; i < d->ret.n; i++) {
    Span s = d->ret.at[i]->span;
    buf_str(&b, i ? ", " : " -> ");
    buf_add(&b, text + s.lo, s.hi - s.lo);
  }
  *at = active(d, o);
  json_t *sig = json_pack("{s:o, s:o}", "label", js_text(ls, b.at, b.n),
                          "parameters", params);
  if (d->doc)
    json_object_set_new(sig, "documentation",
                        json_pack("{s:s, s:o}", "kind", "markdown", "value",
                                  js_str(ls, d->doc)));
  return sig;
}

// "clamp(x, lo, hi)" of builtins.def.
static json_t *of_builtin(Ls *ls, const Builtin *f, const Open *o, int *at) {
  Buf b = {.arena = &ls->scratch};
  json_t *params = json_array();
  const char *s = strchr(f->sig, '('), *end = s ? strchr(s, ')') : NULL;
  if (s && end) {
    buf_add(&b, f->sig, (size_t)(s + 1 - f->sig));
    for (s++; s < end;) {
      size_t n = strcspn(s, ",)");
      json_array_append_new(params, parameter(ls, &b, s, n));
      s += n;
      size_t gap = *s == ',' ? 1 + strspn(s + 1, " ") : 0;
      buf_add(&b, s, gap);
      s += gap;
    }
    buf_str(&b, end);
  } else {
    buf_str(&b, f->sig);
  }
  *at = (int)(o->arg + o->piped);
  return json_pack("{s:o, s:o, s:{s:s, s:s}}", "label", js_text(ls, b.at, b.n),
                   "parameters", params, "documentation", "kind", "plaintext",
                   "value", f->doc);
}

json_t *ls_signature(Ls *ls, const json_t *params, LsError *err) {
  At at;
  Open o = {0};
  FeTokens toks = {0};
  int active_param = 0;
  if (!ls_at_params(ls, params, &at, err)) return NULL;
  fe_tokens(&at.an->cx, at.an->unit->source, &ls->scratch, &toks);
  if (!find_call(ls, at.doc, &toks, at.offset, &o)) return NULL;
  const Sym *s = callee(at.an, at.doc, toks.at[o.callee]);
  json_t *sig = NULL;
  const Builtin *b = s ? s->kind == SY_BUILTIN ? &fe_builtins[s->builtin] : NULL
                       : builtin_named(at.doc, toks.at[o.callee]);
  if (s && s->kind == SY_DECL && s->decl)
    sig = of_decl(ls, s->decl, &o, &active_param);
  else if (b) sig = of_builtin(ls, b, &o, &active_param);
  if (!sig) return NULL;
  return json_pack("{s:[o], s:i, s:i}", "signatures", sig, "activeSignature", 0,
                   "activeParameter", active_param);
}
