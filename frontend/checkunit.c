// Files: names of a unit, imports, the order of checking.
#include "frontend/checker.h"

Sym *ck_unit_find(const Unit *unit, const char *name) {
  for (uint32_t i = 0; i < unit->decls.n; i++) {
    Decl *d = unit->decls.at[i];
    if (d->sym && d->name == name) return d->sym;
  }
  return NULL;
}

static bool has_name(const Decl *d) {
  return d->kind == DE_LET || is_function(d) || is_program(d);
}

static void add(Check *c, Sym *s, Span at, bool report) {
  Sym *old = scope_here(c->top, s->name);
  if (old == s) return;
  if (old) {
    if (!report) return;
    Diag *d = diag_add(c->cx, DIAG_duplicate_name, at, s->name);
    diag_note(c->cx, d, old->span, "%s of that name is here", ck_kind(old));
    return;
  }
  scope_add(c->a, c->top, s);
}

static void add_decl(Check *c, Decl *d, bool report) {
  d->unit = c->unit;
  if (!has_name(d)) return;
  if (!d->sym) {
    d->sym =
        ck_sym(c, d->kind == DE_LET ? SY_LET : SY_DECL, d->name, d->name_span);
    d->sym->decl = d;
    d->sym->owner = NULL;
  }
  add(c, d->sym, d->name_span, report);
}

// --- imports ---------------------------------------------------------------

static void add_module(Check *c, Decl *d, bool report) {
  NameRef *n = d->alias.name ? &d->alias : &d->path.at[d->path.n - 1];
  if (!n->sym) n->sym = ck_sym(c, SY_UNIT, n->name, n->span);
  n->sym->unit = d->imported;
  n->sym->owner = NULL;
  add(c, n->sym, n->span, report);
}

static void missing(Check *c, const Decl *d, const NameRef *n) {
  Diag *g = diag_add(c->cx, DIAG_import_name, n->span,
                     d->path.at[d->path.n - 1].name, n->name);
  Guess guess = guess_start(n->name);
  for (uint32_t i = 0; i < d->imported->decls.n; i++)
    if (d->imported->decls.at[i]->sym)
      guess_try(&guess, d->imported->decls.at[i]->name);
  const char *path = fe_stdlib_with(n->name);
  if (path)
    diag_note(c->cx, g, NOWHERE, "'%s' of the library has it: import %s { %s }",
              path, ck_module_of(c, path), n->name);
  else if (guess.best)
    diag_fix(c->cx, g, n->span, guess.best, "did you mean '%s'?", guess.best);
}

// A name of a module that could not be read: known, but of no type.
static Sym *unknown_import(Check *c, const NameRef *n) {
  Sym *s = ck_sym(c, SY_LET, n->name, n->span);
  s->owner = NULL;
  s->ty = ty_error();
  return s;
}

static void import(Check *c, Decl *d, bool report) {
  if (report) d->imported = fe_import_unit(c, d);
  for (uint32_t i = 0; i < d->names.n; i++) {
    NameRef *n = &d->names.at[i];
    if (report)
      n->sym = d->imported ? ck_unit_find(d->imported, n->name) : NULL;
    if (report && d->imported && d->imported->syntax_ok && !n->sym)
      missing(c, d, n);
    if (!n->sym) n->sym = unknown_import(c, n);
    add(c, n->sym, n->span, report);
  }
  if (!d->names.n) add_module(c, d, report);
}

Scope *ck_unit_scope(Check *c, Unit *unit, bool report) {
  c->unit = unit;
  c->top = scope_new(c->a, c->ses->builtins);
  for (uint32_t i = 0; i < unit->decls.n; i++)
    if (unit->decls.at[i]->kind == DE_IMPORT) {
      unit->decls.at[i]->unit = unit;
      import(c, unit->decls.at[i], report);
    }
  for (uint32_t i = 0; i < unit->decls.n; i++)
    if (unit->decls.at[i]->kind != DE_IMPORT)
      add_decl(c, unit->decls.at[i], report);
  return c->top;
}

// --- units -----------------------------------------------------------------

bool ck_unit(Session *ses, Unit *unit) {
  Check c = {.cx = ses->cx, .a = &ses->cx->session, .ses = ses};
  uint32_t before = ses->cx->nerrors;
  unit->checking = true;
  vec_push(c.a, &ses->open, unit->source->path);
  ck_unit_scope(&c, unit, true);
  c.scope = c.top;
  for (uint32_t i = 0; i < unit->decls.n; i++) {
    Decl *d = unit->decls.at[i];
    if (d->kind != DE_ERROR && d->kind != DE_IMPORT) ck_decl(&c, d);
  }
  ses->open.n--;
  unit->checking = false;
  unit->checked = true;
  return unit->syntax_ok && ses->cx->nerrors == before;
}

bool fe_check(Ctx *cx, Unit *unit) {
  Session ses = {.cx = cx, .builtins = scope_builtins(cx)};
  Loaded root = {unit->source->path, unit};
  vec_push(&cx->session, &ses.units, root);
  work_begin(cx);
  work_say(cx, "checking '%s'", unit->source->path);
  bool ok = ck_unit(&ses, unit);
  work_end(cx);
  return ok;
}
