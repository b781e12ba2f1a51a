// Completion: what can stand at the cursor, told by the tokens before it, so
// that it works in text that does not parse.
#include "tools/attn-ls/server.h"

#include "frontend/embed.h"

enum {
  K_FUNCTION = 3,
  K_FIELD = 5,
  K_VARIABLE = 6,
  K_CLASS = 7,
  K_MODULE = 9,
  K_PROPERTY = 10,
  K_ENUM = 13,
  K_KEYWORD = 14,
  K_SNIPPET = 15,
  K_FILE = 17,
  K_CONSTANT = 21,
  K_OPERATOR = 24,
  K_TYPE = 25,
};

typedef enum Spot {
  AT_TOP,
  AT_STMT,
  AT_EXPR,
  AT_TYPE,
  AT_GENERIC,
  AT_ATTR,
  AT_IMPORT,
  AT_IMPORTED,
  AT_MEMBER,
  AT_SCHEDULE,
  AT_CHECK,
  AT_NOWHERE,
} Spot;

typedef struct Comp {
  Ls *ls;
  Doc *doc;
  Analysis *an;
  uint32_t lo, hi;  // the word being written
  FeTokens toks;
  uint32_t n;  // tokens before the word
  const Decl *decl;
  json_t *items;
} Comp;

// ---------------------------------------------------------------- items
static json_t *item(Comp *c, const char *label, int kind, const char *detail,
                    const char *how, const char *path) {
  json_t *i =
      json_pack("{s:o, s:i}", "label", js_str(c->ls, label), "kind", kind);
  if (detail && *detail)
    json_object_set_new(i, "detail", js_str(c->ls, detail));
  if (how) {
    json_t *data = json_pack("{s:s, s:o}", "t", how, "n", js_str(c->ls, label));
    if (path) json_object_set_new(data, "p", js_str(c->ls, path));
    json_object_set_new(i, "data", data);
  }
  json_object_set_new(i, "textEdit",
                      json_pack("{s:o, s:o}", "range",
                                js_range(&c->doc->text, c->ls->enc, c->lo,
                                         c->hi),
                                "newText", js_str(c->ls, label)));
  json_array_append_new(c->items, i);
  return i;
}

static void set_text(json_t *i, const char *text, bool snippet) {
  json_object_set_new(json_object_get(i, "textEdit"), "newText",
                      json_string(text));
  if (snippet) json_object_set_new(i, "insertTextFormat", json_integer(2));
}

static bool seen(const Comp *c, const char *label) {
  for (size_t i = 0; i < json_array_size(c->items); i++) {
    const char *have = js_get_str(json_array_get(c->items, i), "label");
    if (have && strcmp(have, label) == 0) return true;
  }
  return false;
}

// ---------------------------------------------------------------- tables
typedef struct WordRow {
  const char *text, *place, *doc;
} WordRow;

static const WordRow words[] = {
#define WORD(text, place, doc) {text, #place, doc},
#include "tools/attn-ls/words.def"
};

static void add_words(Comp *c, const char *place) {
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(words[i].place, place) == 0)
      item(c, words[i].text, strcmp(place, "TYPE") ? K_KEYWORD : K_TYPE, NULL,
           "word", NULL);
}

static void add_snippets(Comp *c, const char *place) {
  static const struct {
    const char *place, *label, *doc, *text;
  } rows[] = {
#define SNIPPET(place, label, doc, text) {#place, label, doc, text},
#include "tools/attn-ls/snippets.def"
  };
  if (!c->ls->client.snippets) return;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strcmp(rows[i].place, place) == 0)
      set_text(item(c, rows[i].label, K_SNIPPET, rows[i].doc, NULL, NULL),
               rows[i].text, true);
}

static void add_attributes(Comp *c) {
#define ATTR(name, kind, words, doc) \
  item(c, #name, K_PROPERTY, doc, NULL, NULL);
#include "frontend/attributes.def"
}

static void add_keys(Comp *c) {
#define KEY(name, kind, doc) item(c, #name, K_PROPERTY, doc, NULL, NULL);
#include "frontend/schedule.def"
}

static void add_builtins(Comp *c, bool check) {
  for (int i = 0; i < BI_COUNT; i++) {
    BuiltinKind k = fe_builtins[i].kind;
    bool only_check = k == BK_GEN || k == BK_CHECK;
    if (only_check && !check) continue;
    json_t *it = item(c, fe_builtins[i].name, K_FUNCTION, fe_builtins[i].sig,
                      "builtin", NULL);
    bool call = fe_builtins[i].max > 0;
    if (call && c->ls->client.snippets)
      set_text(it, arena_printf(&c->ls->scratch, "%s($0)", fe_builtins[i].name),
               true);
  }
}

// ---------------------------------------------------------------- names
static int kind_of(const Sym *s) {
  switch (s->kind) {
  case SY_DIM:
  case SY_DTYPE: return K_TYPE;
  case SY_PARAM:
  case SY_OUT: return K_FIELD;
  case SY_INDEX: return K_ENUM;
  case SY_UNIT: return K_MODULE;
  case SY_DECL:
    return s->decl->kind == DE_ATTENTION || s->decl->kind == DE_RECURRENT
               ? K_CLASS
           : s->decl->kind == DE_MASK ? K_OPERATOR
                                      : K_FUNCTION;
  default: return s->decl ? K_CONSTANT : K_VARIABLE;
  }
}

static void add_sym(Comp *c, const Sym *s) {
  if (seen(c, s->name) || s->name[0] == '(') return;
  Buf b = {.arena = &c->ls->scratch};
  ls_describe_sym(c->ls, c->an, s, &b);
  const char *path = s->kind == SY_DECL ? s->decl->unit->source->path : NULL;
  item(c, s->name, kind_of(s), b.at, path ? "decl" : NULL, path);
}

// What the declaration around the cursor declares before it.
static void add_locals(Comp *c) {
  for (uint32_t i = 0; i < c->an->occs.n; i++) {
    const Occ *o = &c->an->occs.at[i];
    if (o->in != c->decl || o->kind != OCC_DEF || !o->sym || !c->decl) continue;
    if (o->sym->owner == c->decl) add_sym(c, o->sym);
  }
}

static void add_globals(Comp *c) {
  for (uint32_t i = 0; i < c->an->unit->decls.n; i++) {
    const Decl *d = c->an->unit->decls.at[i];
    for (uint32_t k = 0; d->kind == DE_IMPORT && k < d->names.n; k++)
      if (d->names.at[k].sym) add_sym(c, d->names.at[k].sym);
    if (d->kind == DE_IMPORT && !d->names.n) {
      const NameRef *n = d->alias.name ? &d->alias : &d->path.at[d->path.n - 1];
      if (n->sym) add_sym(c, n->sym);
    }
    if (d->sym && d != c->decl) add_sym(c, d->sym);
  }
}

static void add_members(Comp *c, const Unit *u) {
  for (uint32_t i = 0; u && i < u->decls.n; i++)
    if (u->decls.at[i]->sym) add_sym(c, u->decls.at[i]->sym);
}

// ---------------------------------------------------------------- modules
static void add_module(Comp *c, const char *path) {
  Buf b = {.arena = &c->ls->scratch};
  size_t n = strlen(path) - 5;  // .attn
  for (size_t i = 0; i < n; i++) buf_char(&b, path[i] == '/' ? '.' : path[i]);
  if (!seen(c, b.at)) item(c, b.at, K_FILE, path, NULL, NULL);
}

// Files of the library, then those beside this one.
static void add_modules(Comp *c) {
  for (const EmbedFile *f = stdlib_files; f->path; f++) add_module(c, f->path);
  const char *own = c->doc->path, *slash = strrchr(own, '/');
  size_t dir = slash ? (size_t)(slash - own) + 1 : 0;
  DocList docs = {0};
  ls_workspace_docs(c->ls, &docs);
  for (uint32_t i = 0; i < docs.n; i++) {
    const char *p = docs.at[i]->path;
    if (p != own && dir && strncmp(p, own, dir) == 0 && strlen(p) > dir + 5 &&
        !strcmp(p + strlen(p) - 5, ".attn"))
      add_module(c, p + dir);
  }
}

// ---------------------------------------------------------------- the spot
static bool is(const Comp *c, uint32_t i, const char *text) {
  FeToken t = c->toks.at[i];
  size_t n = strlen(text);
  return t.hi - t.lo == n && !memcmp(c->doc->text.text + t.lo, text, n);
}

static bool last_is(const Comp *c, const char *text) {
  return c->n && is(c, c->n - 1, text);
}

// The statement's first token; `braces` counts open blocks on the way back.
static uint32_t line_start(const Comp *c) {
  uint32_t i = c->n;
  for (int open = 0; i > 0; i--) {
    bool closes = is(c, i - 1, "}"), opens = is(c, i - 1, "{");
    if (closes && open == 0 && i == c->n) break;
    if (closes) open++;
    if (opens && open == 0) break;
    if (opens) open--;
    if (is(c, i - 1, ";") && open == 0) break;
  }
  return i;
}

// `import path`, and `import path {`: token of the path's first name.
static bool in_import(const Comp *c, bool *names, uint32_t *path) {
  uint32_t i = c->n;
  *names = false;
  while (i > 0 && (is(c, i - 1, "{") || is(c, i - 1, ",") ||
                   is(c, i - 1, ".") || c->toks.at[i - 1].kind == FE_NAME ||
                   c->toks.at[i - 1].kind == FE_SOFT)) {
    if (is(c, i - 1, "{")) *names = true;
    i--;
  }
  *path = i;
  return i > 0 && is(c, i - 1, "import");
}

static uint32_t depth(const Comp *c, const char *open, const char *close) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->n; i++) {
    if (is(c, i, open)) n++;
    if (is(c, i, close) && n) n--;
  }
  return n;
}

// Inside `<..>` or the parameters of a head: types and kinds of dims.
static Spot after_colon(const Comp *c) {
  for (uint32_t i = c->n; i-- > 0;) {
    if (is(c, i, "(") || is(c, i, "{") || is(c, i, "[")) return AT_TYPE;
    if (is(c, i, "<")) return AT_GENERIC;
  }
  return AT_TYPE;
}

static Spot spot_of(Comp *c, uint32_t *path) {
  bool names;
  if (last_is(c, "@")) return AT_ATTR;
  if (in_import(c, &names, path)) return names ? AT_IMPORTED : AT_IMPORT;
  if (last_is(c, ".")) return AT_MEMBER;
  uint32_t start = line_start(c), braces = depth(c, "{", "}");
  bool fresh = start == c->n;
  if (!braces && depth(c, "(", ")") == 0 && fresh) return AT_TOP;
  if (last_is(c, ":") && (!braces || !c->decl)) return after_colon(c);
  if (c->decl && c->decl->kind == DE_SCHEDULE)
    return fresh ? AT_SCHEDULE : AT_NOWHERE;
  if (c->decl && c->decl->kind == DE_CHECK && fresh) return AT_CHECK;
  return fresh && braces ? AT_STMT : AT_EXPR;
}

static const Unit *module_before_dot(const Comp *c) {
  if (c->n < 2) return NULL;
  const Occ *o = ls_occ_at(c->an, c->toks.at[c->n - 2].lo);
  if (o && o->sym && o->sym->kind == SY_UNIT) return o->sym->unit;
  FeToken t = c->toks.at[c->n - 2];
  for (uint32_t i = 0; i < c->an->unit->decls.n; i++) {
    const Decl *d = c->an->unit->decls.at[i];
    if (d->kind != DE_IMPORT || d->names.n) continue;
    const char *n =
        d->alias.name ? d->alias.name : d->path.at[d->path.n - 1].name;
    if (strlen(n) == t.hi - t.lo &&
        !memcmp(n, c->doc->text.text + t.lo, t.hi - t.lo))
      return d->imported;
  }
  return NULL;
}

// The file an unfinished import names is not in the tree: look it up.
static void add_imported(Comp *c, uint32_t path) {
  Buf b = {.arena = &c->ls->scratch};
  for (uint32_t i = path; i < c->n && !is(c, i, "{"); i++) {
    FeToken t = c->toks.at[i];
    if (is(c, i, ".")) buf_char(&b, '/');
    else buf_add(&b, c->doc->text.text + t.lo, t.hi - t.lo);
  }
  if (!b.n) return;
  buf_str(&b, ".attn");
  const char *slash = strrchr(c->doc->path, '/');
  const char *beside = arena_printf(&c->ls->scratch, "%.*s%s",
                                    slash ? (int)(slash + 1 - c->doc->path) : 0,
                                    c->doc->path, b.at);
  Doc *d = ls_doc_of(c->ls, intern(&c->ls->names, beside));
  if (!d) d = ls_doc_of(c->ls, intern(&c->ls->names, b.at));
  Analysis *an = d ? ls_analysis_of(c->ls, d) : NULL;
  if (an) add_members(c, an->unit);
}

static const Decl *callee_of(const Comp *c) {
  int open = 0;
  for (uint32_t i = c->n; i-- > 1;) {
    if (is(c, i, ")")) open++;
    if (is(c, i, ";") || is(c, i, "{")) return NULL;
    if (!is(c, i, "(") || open-- > 0) continue;
    FeToken t = c->toks.at[i - 1];
    for (uint32_t k = 0; k < c->an->occs.n; k++) {
      const Sym *s = c->an->occs.at[k].sym;
      if (s && s->kind == SY_DECL && strlen(s->name) == t.hi - t.lo &&
          !memcmp(s->name, c->doc->text.text + t.lo, t.hi - t.lo))
        return s->decl;
    }
    return NULL;
  }
  return NULL;
}

// name = .. of the call being written
static void add_named_args(Comp *c) {
  const Decl *d = last_is(c, "(") || last_is(c, ",") ? callee_of(c) : NULL;
  for (uint32_t i = 0; d && i < d->params.n; i++) {
    const Param *p = &d->params.at[i];
    Span s = p->span;
    const char *text = arena_printf(&c->ls->scratch, "%s = ", p->name);
    set_text(item(c, text, K_PROPERTY,
                  arena_strndup(&c->ls->scratch, d->unit->source->text + s.lo,
                                s.hi - s.lo),
                  NULL, NULL),
             text, false);
  }
}

static void add_all(Comp *c) {
  uint32_t path = 0;
  bool check = c->decl && c->decl->kind == DE_CHECK;
  switch (spot_of(c, &path)) {
  case AT_ATTR: add_attributes(c); break;
  case AT_IMPORT: add_modules(c); break;
  case AT_IMPORTED: add_imported(c, path); break;
  case AT_MEMBER: add_members(c, module_before_dot(c)); break;
  case AT_SCHEDULE: add_keys(c); break;
  case AT_TOP:
    add_words(c, "TOP");
    add_snippets(c, "TOP");
    break;
  case AT_CHECK:
    add_words(c, "CHECK");
    add_snippets(c, "CHECK");
    break;
  case AT_GENERIC: add_words(c, "HEAD"); break;
  case AT_TYPE:
    add_words(c, "TYPE");
    add_words(c, "HEAD");
    add_locals(c);
    break;
  case AT_STMT:
    add_words(c, "STMT");
    add_snippets(c, "STMT");
    add_locals(c);
    break;
  case AT_EXPR:
    add_named_args(c);
    add_locals(c);
    add_globals(c);
    add_builtins(c, check);
    add_words(c, "EXPR");
    add_words(c, "TYPE");
    break;
  case AT_NOWHERE: break;
  }
}

static bool in_comment(const Unit *u, uint32_t offset) {
  for (uint32_t i = 0; i < u->trivia.n; i++)
    if (u->trivia.at[i].kind == TR_COMMENT &&
        u->trivia.at[i].span.lo < offset && offset <= u->trivia.at[i].span.hi)
      return true;
  return false;
}

static bool word_char(char ch) {
  return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
         (ch >= '0' && ch <= '9') || ch == '_';
}

json_t *ls_completion(Ls *ls, const json_t *params, LsError *err) {
  At at;
  if (!ls_at_params(ls, params, &at, err)) return NULL;
  Comp c = {.ls = ls,
            .doc = at.doc,
            .an = at.an,
            .lo = at.offset,
            .hi = at.offset,
            .items = json_array()};
  while (c.lo > 0 && word_char(at.doc->text.text[c.lo - 1])) c.lo--;
  while (c.hi < at.doc->text.len && word_char(at.doc->text.text[c.hi])) c.hi++;
  fe_tokens(&at.an->cx, at.an->unit->source, &ls->scratch, &c.toks);
  while (c.n < c.toks.n && c.toks.at[c.n].hi <= c.lo) c.n++;
  c.decl = ls_decl_at(at.an->unit, at.offset);
  bool quoted = c.n < c.toks.n && c.toks.at[c.n].kind == FE_STRING &&
                c.toks.at[c.n].lo < at.offset;
  if (!quoted && !in_comment(at.an->unit, at.offset)) add_all(&c);
  return json_pack("{s:b, s:o}", "isIncomplete", 0, "items", c.items);
}

// ---------------------------------------------------------------- resolve
static const char *doc_of_decl(Ls *ls, const char *path, const char *name) {
  Doc *d = path ? ls_doc_of(ls, intern(&ls->names, path)) : NULL;
  Analysis *an = d ? ls_analysis_of(ls, d) : NULL;
  for (uint32_t i = 0; an && i < an->unit->decls.n; i++) {
    const Decl *x = an->unit->decls.at[i];
    if (x->name && strcmp(x->name, name) == 0) return x->doc;
  }
  return NULL;
}

static const char *doc_of_builtin(const char *name) {
  for (int i = 0; i < BI_COUNT; i++)
    if (strcmp(fe_builtins[i].name, name) == 0) return fe_builtins[i].doc;
  return NULL;
}

json_t *ls_completion_resolve(Ls *ls, const json_t *params, LsError *err) {
  const json_t *data = json_object_get(params, "data");
  const char *how = js_get_str(data, "t"), *name = js_get_str(data, "n");
  const char *doc = NULL;
  if (!json_is_object(params)) return ls_fail(err, E_PARAMS, "no item");
  json_t *out = json_copy((json_t *)params);
  if (how && name) {
    if (strcmp(how, "word") == 0) ls_docs_of_word(name, &doc);
    else if (strcmp(how, "builtin") == 0) doc = doc_of_builtin(name);
    else doc = doc_of_decl(ls, js_get_str(data, "p"), name);
  }
  if (doc)
    json_object_set_new(out, "documentation",
                        json_pack("{s:s, s:o}", "kind", "markdown", "value",
                                  js_str(ls, doc)));
  return out;
}
