// Names in scope, innermost first.
#ifndef ATTNC_FRONTEND_SCOPE_H
#define ATTNC_FRONTEND_SCOPE_H

#include "frontend/ast.h"
#include "ir/core/guess.h"

typedef struct Scope {
  struct Scope *up;
  Vec(Sym *) syms;  // in order of declaration
  Map at;           // name -> Sym, once there are many
} Scope;

Scope *scope_new(Arena *a, Scope *up);
Sym *scope_here(const Scope *s, const char *name);  // names are interned
Sym *scope_find(const Scope *s, const char *name);
void scope_add(Arena *a, Scope *s, Sym *sym);
// One symbol per row of builtins.def.
Scope *scope_builtins(Ctx *cx);

void guess_scope(Guess *g, const Scope *s);

#endif
