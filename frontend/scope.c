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

// --- misspellings ----------------------------------------------------------

enum { LONGEST = 63 };

static uint32_t min3(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t m = a < b ? a : b;
  return m < c ? m : c;
}

static char lower(char c) {
  return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

// Edit distance; a change of case counts as nothing.
static uint32_t distance(const char *a, size_t n, const char *b, size_t m) {
  uint32_t row[LONGEST + 1];
  for (uint32_t j = 0; j <= m; j++) row[j] = j;
  for (uint32_t i = 1; i <= n; i++) {
    uint32_t diagonal = row[0];
    row[0] = i;
    for (uint32_t j = 1; j <= m; j++) {
      uint32_t change = diagonal + (lower(a[i - 1]) != lower(b[j - 1]));
      diagonal = row[j];
      row[j] = min3(row[j] + 1, row[j - 1] + 1, change);
    }
  }
  return row[m];
}

// A third of the letters may be wrong: one-letter names have no neighbours.
Guess guess_start(const char *want) {
  size_t n = strlen(want);
  return (Guess){want, NULL, (uint32_t)(n < 3 ? 0 : (n + 1) / 3) + 1};
}

void guess_try(Guess *g, const char *name) {
  size_t n = strlen(g->want), m = strlen(name);
  if (name == g->want || n > LONGEST || m > LONGEST) return;
  uint32_t d = distance(g->want, n, name, m);
  if (d >= g->dist) return;
  g->dist = d;
  g->best = name;
}

void guess_scope(Guess *g, const Scope *s) {
  for (; s; s = s->up)
    for (uint32_t i = 0; i < s->syms.n; i++) guess_try(g, s->syms.at[i]->name);
}
