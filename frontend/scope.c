// Names in scope, and guesses for misspelled ones.
#include "frontend/scope.h"

#include "frontend/builtins.h"

enum { FEW = 8 };  // names that are found faster one by one

Scope *scope_new(Arena *a, Scope *up) {
  Scope *s = NEW(a, Scope);
  s->up = up;
  s->at.arena = a;
  return s;
}

static uint64_t key(const void *p) {
  return (uint64_t)(uintptr_t)p;
}

Sym *scope_here(const Scope *s, const char *name) {
  uint64_t found;
  if (s->syms.n > FEW)
    return map_get(&s->at, key(name), &found) ? (Sym *)(uintptr_t)found : NULL;
  for (uint32_t i = s->syms.n; i-- > 0;)
    if (s->syms.at[i]->name == name) return s->syms.at[i];
  return NULL;
}

Sym *scope_find(const Scope *s, const char *name) {
  for (; s; s = s->up) {
    Sym *found = scope_here(s, name);
    if (found) return found;
  }
  return NULL;
}

void scope_add(Arena *a, Scope *s, Sym *sym) {
  vec_push(a, &s->syms, sym);
  if (s->syms.n <= FEW) return;
  uint32_t from = s->syms.n == FEW + 1 ? 0 : s->syms.n - 1;
  for (uint32_t i = from; i < s->syms.n; i++)
    map_put(&s->at, key(s->syms.at[i]->name), key(s->syms.at[i]));
}

Scope *scope_builtins(Ctx *cx) {
  Scope *s = scope_new(&cx->session, NULL);
  for (int i = 0; i < BI_COUNT; i++) {
    Sym *sym = NEW(&cx->session, Sym);
    *sym = (Sym){.kind = SY_BUILTIN,
                 .name = intern(&cx->names, fe_builtins[i].name),
                 .span = NOWHERE,
                 .builtin = i};
    scope_add(&cx->session, s, sym);
  }
  return s;
}

void guess_scope(Guess *g, const Scope *s) {
  for (; s; s = s->up)
    for (uint32_t i = 0; i < s->syms.n; i++) guess_try(g, s->syms.at[i]->name);
}
