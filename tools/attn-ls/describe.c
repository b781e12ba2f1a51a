// Symbols and types in words and in the language's own text.
#include "tools/attn-ls/server.h"

// ---------------------------------------------------------------- types
static void shape(const Decl *d, const Ty *t, Buf *out) {
  for (int i = 0; i < t->rank; i++) {
    buf_str(out, i ? ", " : "[");
    if (t->shape[i] == DIM_NONE || !d || !d->dims) buf_char(out, '?');
    else dim_print(d->dims, t->shape[i], out);
  }
  if (t->rank) buf_char(out, ']');
}

void ls_describe_type(const Decl *d, const Ty *t, Buf *out) {
  switch (t->kind) {
  case TY_VALUE:
    if (t->row) buf_str(out, "row ");
    buf_str(out, t->dtype == DT_I64 ? "int" : dtype_name(t->dtype));
    shape(d, t, out);
    break;
  case TY_TUPLE:
    for (uint32_t i = 0; i < t->nelems; i++) {
      buf_str(out, i ? ", " : "(");
      ls_describe_type(d, &t->elems[i], out);
    }
    buf_char(out, ')');
    break;
  case TY_STRING: buf_str(out, "string"); break;
  case TY_AUTO: buf_str(out, "auto"); break;
  case TY_NONE:
  case TY_ERROR: buf_char(out, '?'); break;
  }
}

// "b, h, q": the indices of a set.
void ls_describe_vary(const Decl *d, uint64_t vary, Buf *out) {
  uint32_t n = 0;
  for (uint32_t i = 0; d && i < d->indices.n && i < 64; i++) {
    if (!(vary >> i & 1)) continue;
    buf_printf(out, "%s%s", n++ ? ", " : "",
               d->indices.at[i] == d->key ? "the key" : d->indices.at[i]->name);
  }
}

const char *ls_role_text(IndexRole r) {
  static const char *const text[] = {
      [IX_PARALLEL] = "parallel: every point by itself",
      [IX_KEY] = "key: reduced over its domain",
      [IX_VEC] = "vector axis",
      [IX_STEP] = "step of the recurrence",
      [IX_REPEAT] = "repeat counter",
      [IX_PARAM] = "index parameter: bound by name if left out",
  };
  return text[r];
}

// ---------------------------------------------------------------- source
static void source_text(const Unit *u, Span s, Buf *out) {
  if (s.src == u->source->id && s.hi <= u->source->len)
    buf_add(out, u->source->text + s.lo, s.hi - s.lo);
}

static uint32_t after_attrs(const Decl *d) {
  uint32_t lo = d->span.lo;
  for (uint32_t i = 0; i < d->attrs.n; i++)
    if (d->attrs.at[i].span.hi > lo) lo = d->attrs.at[i].span.hi;
  return lo;
}

// Where the body begins: at its '{' or '='.
static uint32_t head_end(const Unit *u, const Decl *d) {
  const char *s = u->source->text;
  uint32_t hi = d->span.hi;
  if (d->value) hi = d->value->span.lo;
  else if (d->body.n) hi = d->body.at[0]->span.lo;
  else if (d->checks.n) hi = d->checks.at[0].span.lo;
  else if (d->settings.n) hi = d->settings.at[0].span.lo;
  uint32_t at = hi;  // comments may stand between the brace and a statement
  char mark = d->value ? '=' : '{';
  while (at > d->name_span.hi && s[at] != mark) at--;
  return at > d->name_span.hi ? at : hi;
}

void ls_describe_head(const Unit *u, const Decl *d, Buf *out) {
  const char *s = u->source->text;
  uint32_t lo = after_attrs(d), hi = head_end(u, d);
  while (lo < hi && strchr(" \t\r\n", s[lo])) lo++;
  if (d->kind == DE_LET) hi = d->span.hi;
  while (hi > lo && strchr(" \t\r\n;", s[hi - 1])) hi--;
  buf_add(out, s + lo, hi - lo);
}

// ---------------------------------------------------------------- symbols
static const Param *param_of(const Sym *s) {
  const Decl *d = s->owner;
  if (!d) return NULL;
  for (uint32_t i = 0; i < d->params.n + d->outs.n; i++) {
    const Param *p =
        i < d->params.n ? &d->params.at[i] : &d->outs.at[i - d->params.n];
    if (p->sym == s) return p;
  }
  return NULL;
}

static void param(const Sym *s, Buf *out) {
  const Param *p = param_of(s);
  if (p && s->owner->unit) source_text(s->owner->unit, p->span, out);
  else buf_str(out, s->name);
}

static void index_of(const Sym *s, Buf *out) {
  const Decl *d = s->owner;
  bool step = s->role == IX_STEP, repeat = s->role == IX_REPEAT;
  buf_printf(out, "%s %s",
             step     ? "step"
             : repeat ? "repeat"
                      : "index",
             s->name);
  if (s->role == IX_PARAM) return;
  if (s->dim != DIM_NONE && d && d->dims) {
    buf_str(out, " in ");
    dim_print(d->dims, s->dim, out);
  }
  if (s->domain && d && d->unit) {
    buf_str(out, " where ");
    source_text(d->unit, s->domain->span, out);
  }
}

static void value(const Sym *s, Buf *out) {
  const Decl *d = s->decl ? s->decl : s->owner;
  buf_printf(out, "%s %s: ", s->kind == SY_STATE ? "state" : "let", s->name);
  ls_describe_type(d, &s->ty, out);
}

static void dim(const Sym *s, Buf *out) {
  const Decl *d = s->owner;
  for (uint32_t i = 0; d && i < d->generics.n; i++) {
    const Generic *g = &d->generics.at[i];
    if (g->sym != s || !d->unit) continue;
    source_text(d->unit, g->span, out);
    return;
  }
  buf_printf(out, "%s: dyn", s->name);
}

void ls_describe_sym(Ls *ls, const Analysis *an, const Sym *s, Buf *out) {
  (void)ls, (void)an;
  switch (s->kind) {
  case SY_DIM:
  case SY_DTYPE: dim(s, out); break;
  case SY_PARAM:
  case SY_OUT: param(s, out); break;
  case SY_INDEX: index_of(s, out); break;
  case SY_LET:
  case SY_STATE: value(s, out); break;
  case SY_DECL: ls_describe_head(s->decl->unit, s->decl, out); break;
  case SY_BUILTIN: buf_str(out, fe_builtins[s->builtin].sig); break;
  case SY_UNIT:
    buf_printf(out, "import %s", s->unit ? s->unit->source->path : s->name);
    break;
  }
}

// ---------------------------------------------------------------- words
bool ls_docs_of_word(const char *word, const char **doc) {
  static const char *const rows[][2] = {
#define WORD(text, place, doc) {text, doc},
#include "tools/attn-ls/words.def"
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(rows[i][0], word) != 0) continue;
    *doc = rows[i][1];
    return true;
  }
  return false;
}
