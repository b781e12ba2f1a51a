// thin_strips: columns that a maker reads of memory are read once.
//
//   %p = gload(%pt, floordiv(%c, 16)) : frag<64xi32,acc.1>
//   %s = gload(%S, %p, mod(%c, 16)) : frag<64xf32,acc.1>
//   sstore(%slot, %s)
// to
//   %p = gload(%pt, floordiv(%r, 16)) : frag<64xi32,lin.0:8>
//   %s = gload(%S, %p, mod(%r, 16)) : frag<64xf32,lin.0:8>
//   sstore(%slot, %s) {trans}
//
// As columns of a product a thread has 16 of 64, which the threads of seven
// other rows have too; a strip in shared memory has any layout. What goes
// there, and is made of coordinates, scalars and inputs, is made by a thread
// for each. Level frag; sm_90a, behind warp_specialize. Tests:
// test/passes/thin_strips.
#include "ir/deps.h"
#include "ir/layout.h"
#include "passes/pass.h"
#include "passes/support/thin.h"

typedef struct Strips {
  Func *f;
  Arena *arena;
  Builder b;  // in front of the store
  uint32_t threads, known;
  Value *made;  // by value
  bool changed;
} Strips;

static bool is_part(const Strips *x, const Op *op) {
  bool load = op->code == OP_GLOAD && ir_is_input(x->f, op->args[0]);
  bool plain =
      op->code == OP_COORD || op->code == OP_CONST || op->code == OP_SPLAT;
  return load || plain ||
         (op_info(op->code)->flags & OPF_ELEM && op->nargs <= ELEM_ARGS);
}

// Columns that are made of such.
static bool can_make(const Strips *x, Value v, bool *loads) {
  const Op *op = ir_def(x->f, v);
  const Type *t = ir_type(x->f, v);
  Type thin;
  if (t->kind != TK_FRAG) return true;
  if (!op || t->slice != SLICE_COL || t->partial || op->nres != 1 ||
      !is_part(x, op) || op->nargs > MAX_AXES ||
      !thin_type(t, x->threads, &thin))
    return false;
  *loads |= op->code == OP_GLOAD;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!can_make(x, op->args[i], loads)) return false;
  return true;
}

static Value make(Strips *x, Value v) {
  const Op *op = ir_def(x->f, v);
  Value args[MAX_AXES];
  Type t;
  if (ir_type(x->f, v)->kind != TK_FRAG) return v;
  if (v < x->known && x->made[v]) return x->made[v];
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = make(x, op->args[i]);
  thin_type(ir_type(x->f, v), x->threads, &t);
  return x->made[v] = thin_op(&x->b, op, args, t);
}

// What is stored one after the other is loaded together, in front of the first
// wait since the loop began.
static Op *place_of(const Strips *x, Op *store) {
  Op *at = store->parent->first;
  for (Op *op = at; op != store; op = op->next)
    for (uint32_t i = 0; i < op->nres; i++)
      if (ir_type(x->f, op->res[i])->kind == TK_FRAG) at = op->next;
  return at;
}

static void thin(Strips *x, Op *store) {
  bool loads = false;
  x->threads = ir_group_threads(x->f, store);
  if (store->nargs != 2 || ir_attr_i(store, AT_TRANS, 0) ||
      ir_type(x->f, store->args[1])->kind != TK_FRAG ||
      !can_make(x, store->args[1], &loads) || !loads)
    return;
  Op *at = place_of(x, store);
  x->known = x->f->values.n;
  x->made = NEWN(x->arena, Value, x->known);
  x->b = (Builder){.fn = x->f,
                   .region = store->parent,
                   .before = at,
                   .span = store->span};
  store->args[1] = make(x, store->args[1]);
  ir_set_attr(x->f, store, attr_i(AT_TRANS, 1));
  x->changed = true;
}

static void region(Strips *x, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) region(x, op->regions[i]);
    if (op->code == OP_SSTORE) thin(x, op);
  }
}

bool pass_thin_strips(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    ArenaMark mark = arena_mark(&cx->scratch);
    Strips x = {.f = m->funcs.at[i], .arena = &cx->scratch};
    for (Op *op = x.f->body->first; op; op = op->next)
      for (uint32_t k = 0; op->code == OP_ROLES && k < op->nregions; k++)
        region(&x, op->regions[k]);
    if (x.changed) ir_sweep(x.f);
    arena_reset(&cx->scratch, mark);
  }
  return true;
}
