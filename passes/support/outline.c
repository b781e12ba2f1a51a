// Phases in front of a program.
#include "passes/support/outline.h"

#include "ir/deps.h"
#include "passes/support/rebuild.h"

#include <assert.h>

bool outline_is_input(const Func *f, Value v) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == v)
      return f->params.at[i].role == PR_IN || f->params.at[i].role == PR_SCALAR;
  return false;
}

bool outline_can_repeat(const Op *op) {
  switch (op->code) {
  case OP_LOAD:
  case OP_CONST:
  case OP_DIM:
  case OP_GIVEN:
  case OP_CAST:
  case OP_INDEX: return true;
  default: return (op_info(op->code)->flags & OPF_ELEM) && op->nres == 1;
  }
}

uint64_t outline_tasks(const Func *f) {
  uint64_t tasks = 0;
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->nregions || op->code == OP_CALL || op->nres > 1) return 0;
    if (op->code != OP_STORE) continue;
    uint64_t axes = 0;
    for (uint32_t i = 2; i < op->nargs; i++) axes |= ir_axes_of(f, op->args[i]);
    axes &= ir_axes_with(f, AX_PAR);
    if (tasks && tasks != axes) return 0;
    tasks = axes;
  }
  return tasks;
}

// A new parameter of f, number `at`.
static void insert_shared(Func *f, const char *name, Type t, uint32_t at) {
  ir_param(f, name, PR_SHARED, t);
  FuncParam last = f->params.at[f->params.n - 1];
  for (uint32_t i = f->params.n - 1; i > at; i--)
    f->params.at[i] = f->params.at[i - 1];
  f->params.at[at] = last;
}

const Func *outline_last(const Func *f) {
  const Module *m = f->mod;
  const Func *last = f;
  for (uint32_t k = 0; k < m->funcs.n; k++)
    if (ir_is_phase(last, m->funcs.at[k]->name)) last = m->funcs.at[k];
  return last;
}

void outline_share(const Func *f, const char *name, Type t, uint32_t at) {
  const Module *m = f->mod;
  const Func *last = outline_last(f);
  uint32_t i = 0;
  while (m->funcs.at[i] != f) i++;
  while (++i < m->funcs.n)
    if (ir_is_phase(m->funcs.at[i], last->name))
      insert_shared(m->funcs.at[i], name, t, at);
}

Value outline_tensor(Func *f, const char *of, const char *what, Type t) {
  Ctx *cx = f->mod->cx;
  const char *name =
      intern(&cx->names, arena_printf(f->mod->arena, "%s.%s", of, what));
  outline_share(f, name, t, f->params.n);
  return ir_param(f, name, PR_SHARED, t);
}

Func *outline_func(const Func *f, const char *what, uint32_t number,
                   bool axes) {
  Module *m = f->mod;
  Func *g = axes ? rebuild_signature(m, f) : rebuild_params(m, f);
  const char *name =
      number ? arena_printf(m->arena, "%s.%s%u", f->name, what, number)
             : arena_printf(m->arena, "%s.%s", f->name, what);
  g->name = intern(&m->cx->names, name);
  return g;
}

void outline_params(ValueMap *map, const Func *f, const Func *g) {
  for (uint32_t i = 0; i < f->params.n && i < g->params.n; i++)
    vmap_put(map, f->params.at[i].v, g->params.at[i].v);
}

Builder outline_behind(Func *f, Value v) {
  const Op *def = ir_def(f, v);
  return (Builder){.fn = f,
                   .region = def->parent,
                   .before = def->next,
                   .span = def->span};
}

uint32_t outline_count(const Func *f) {
  const Module *m = f->mod;
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    n += m->funcs.at[i] != f && ir_is_phase(m->funcs.at[i], f->name);
  return n;
}

uint32_t outline_beside(const Func *f) {
  return outline_count(outline_last(f));
}

void outline_put(Func *g, const Func *f) {
  Module *m = f->mod;
  vec_push(m->arena, &m->funcs, g);
  uint32_t i = m->funcs.n - 1;
  do {
    assert(i && "f is not in its module's list");
    m->funcs.at[i] = m->funcs.at[i - 1];
  } while (m->funcs.at[--i] != f);
  m->funcs.at[i] = g;
}
