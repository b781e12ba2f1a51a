// Attributes and schedule blocks: tables attributes.def and schedule.def.
#include "frontend/checker.h"

typedef enum ValueKind {
  NONE,
  STRING,
  NAME,
  TYPE,
  INT,
  PARAM,
  WORD,
  SWITCH,
} ValueKind;

typedef struct Row {
  const char *name;
  ValueKind kind;
  const char *words;  // that are taken, each behind a space; "": any
} Row;

static const Row attributes[] = {
#define ATTR(name, kind, words, doc) {#name, kind, words},
#include "frontend/attributes.def"
};

static const Row keys[] = {
#define KEY(name, kind, doc) {#name, kind, ""},
#include "frontend/schedule.def"
};

static const Row *find(const Row *rows, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(rows[i].name, name)) return &rows[i];
  return NULL;
}

static void guess(Check *c, Diag *d, Span at, const Row *rows, size_t n,
                  const char *name) {
  Guess g = guess_start(name);
  for (size_t i = 0; i < n; i++) guess_try(&g, rows[i].name);
  if (g.best) diag_fix(c->cx, d, at, g.best, "did you mean '%s'?", g.best);
}

static bool is_auto(const Expr *e) {
  return e->kind == EX_NAME && !strcmp(e->name, "auto");
}

static bool is_param(const Decl *d, const char *name) {
  for (uint32_t i = 0; i < d->params.n; i++) {
    if (d->params.at[i].name != name) continue;
    if (d->params.at[i].sym) d->params.at[i].sym->nuses++;
    return true;
  }
  return false;
}

static bool is_word(const Expr *e, const char *words) {
  size_t n;
  if (e->kind != EX_NAME || !*words) return e->kind == EX_NAME;
  for (const char *w = words + 1; *w; w += n + (w[n] == ' ')) {
    n = strcspn(w, " ");
    if (strlen(e->name) == n && strncmp(w, e->name, n) == 0) return true;
  }
  return false;
}

static bool matches(const Decl *d, const Expr *e, const Row *r) {
  DType t;
  switch (r->kind) {
  case NONE: return false;
  case STRING: return e->kind == EX_STRING;
  case NAME:
  case SWITCH: return is_word(e, r->words);
  case TYPE:
    return e->kind == EX_NAME &&
           dtype_by_name(e->name, (uint32_t)strlen(e->name), &t) &&
           dtype_is_float(t);
  case INT: return (e->kind == EX_INT && e->ival > 0) || is_auto(e);
  case PARAM: return e->kind == EX_NAME && is_param(d, e->name);
  case WORD: return is_word(e, r->words) || (e->kind == EX_INT && e->ival > 0);
  }
  return false;
}

static const char *describe(Check *c, const Row *r) {
  static const char *const text[] = {"no argument",
                                     "a string",
                                     "a word",
                                     "a float type",
                                     "a positive integer or auto",
                                     "the name of a parameter",
                                     "a word or a positive integer",
                                     "no argument or a word"};
  if (!*r->words) return text[r->kind];
  return arena_printf(&c->cx->session, "%sone of:%s",
                      r->kind == WORD     ? "a positive integer or "
                      : r->kind == SWITCH ? "no argument or "
                                          : "",
                      r->words);
}

void ck_attrs(Check *c, Decl *d) {
  size_t n = sizeof attributes / sizeof *attributes;
  for (uint32_t i = 0; i < d->attrs.n; i++) {
    Attr *a = &d->attrs.at[i];
    const Row *r = find(attributes, n, a->name);
    if (!r) {
      Diag *g = diag_add(c->cx, DIAG_unknown_attr, a->span, a->name);
      Span name = {a->span.src, a->span.lo + 1,
                   a->span.lo + 1 + (uint32_t)strlen(a->name)};
      guess(c, g, name, attributes, n, a->name);
      continue;
    }
    bool none = r->kind == NONE || (r->kind == SWITCH && !a->args.n);
    bool ok = none ? a->args.n == 0
                   : a->args.n == 1 && a->args.at[0].kind == ARG_POS &&
                         matches(d, a->args.at[0].value, r);
    if (!ok) diag_add(c->cx, DIAG_attr_arg, a->span, a->name, describe(c, r));
  }
}

// --- schedule --------------------------------------------------------------

static Sym *scheduled(Check *c, const Decl *d) {
  const NameRef *last = &d->path.at[d->path.n - 1];
  Sym *s = ck_lookup(c, d->path.at[0].name, d->path.at[0].span);
  for (uint32_t i = 1; s && i < d->path.n; i++) {
    s = s->kind == SY_UNIT && s->unit
            ? ck_unit_find(s->unit, d->path.at[i].name)
            : NULL;
    if (!s) diag_add(c->cx, DIAG_unknown_name, last->span, last->name);
  }
  if (s && (s->kind != SY_DECL || !is_program(s->decl))) {
    diag_add(c->cx, DIAG_schedule_program, last->span, s->name, ck_kind(s));
    return NULL;
  }
  return s;
}

void ck_schedule(Check *c, Decl *d) {
  size_t n = sizeof keys / sizeof *keys;
  d->path.at[d->path.n - 1].sym = scheduled(c, d);
  for (uint32_t i = 0; i < d->settings.n; i++) {
    Setting *s = &d->settings.at[i];
    const Row *r = find(keys, n, s->name);
    if (!r) {
      Diag *g = diag_add(c->cx, DIAG_schedule_key, s->span, s->name);
      Span name = {s->span.src, s->span.lo,
                   s->span.lo + (uint32_t)strlen(s->name)};
      guess(c, g, name, keys, n, s->name);
      continue;
    }
    s->value->ty = s->value->kind == EX_INT ? ty_scalar(DT_I64, true)
                                            : (Ty){.kind = TY_AUTO};
    if (!matches(d, s->value, r)) {
      s->value->ty = ty_error();
      diag_add(c->cx, DIAG_schedule_value, s->value->span, s->name,
               describe(c, r));
    }
    for (uint32_t k = 0; k < i; k++)
      if (d->settings.at[k].name == s->name)
        diag_add(c->cx, DIAG_duplicate_name, s->span, s->name);
  }
}
