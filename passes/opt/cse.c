// cse: merges equal pure ops.
//
//   %a = add(%x, %y) : f32{q}         %a = add(%x, %y) : f32{q}
//   %b = add(%y, %x) : f32{q}    ->   %c = mul(%a, %a) : f32{q}
//   %c = mul(%a, %b) : f32{q}
//
// An op inside a region merges with one that encloses it, never with one of a
// sibling region. Reductions, scans and dots only merge within one region: the
// same text in a pass and around it runs over different keys. Loads of tensors
// that are written stay; what a phase before has written is not. Any level.
// Tests: test/passes/cse.
#include "passes/pass.h"

#include <string.h>

typedef struct Entry {
  uint64_t hash;
  Op *op;
  uint64_t hidden;  // entry of the same hash before this one, + 1
} Entry;

typedef struct Cse {
  Func *f;
  Arena *arena;
  Vec(Entry) entries;  // those visible at this point
  Map newest;          // hash -> entry + 1
  ValueMap map;        // merged values
} Cse;

static bool written(const Func *f, Value tensor) {
  for (uint32_t i = 0; i < f->params.n; i++) {
    ParamRole role = f->params.at[i].role;
    if (f->params.at[i].v != tensor) continue;
    return role != PR_IN &&
           (role != PR_SHARED || ir_is_stored(f->body, tensor));
  }
  return true;
}

static bool mergeable(const Func *f, const Op *op) {
  if (op->code == OP_GLOAD) return !written(f, op->args[0]);
  if (!(op_info(op->code)->flags & OPF_PURE) || op->nregions) return false;
  return op->code != OP_LOAD || !written(f, op->args[0]);
}

static bool local_only(OpCode c) {
  return c == OP_REDUCE || c == OP_DOT || c == OP_SCAN || c == OP_CALL ||
         c == OP_GLOAD;
}

static uint64_t hash_attr(const IrAttr *a, uint64_t h) {
  uint64_t w[3] = {a->id, (uint64_t)a->i, (uint64_t)(uintptr_t)a->s};
  h = map_hash(w, sizeof w, h);
  h = map_hash(&a->f, sizeof a->f, h);
  return a->n ? map_hash(a->list, a->n * sizeof *a->list, h) : h;
}

static uint64_t hash_op(const Op *op) {
  uint64_t h = map_hash(op->args, op->nargs * sizeof *op->args, op->code);
  for (uint32_t i = 0; i < op->nattrs; i++) h = hash_attr(&op->attrs[i], h);
  return h;
}

static bool same_op(const Func *f, const Op *a, const Op *b) {
  if (a->code != b->code || a->nargs != b->nargs || a->nres != b->nres ||
      !ir_same_attrs(a, b))
    return false;
  if (local_only(a->code) && a->parent != b->parent) return false;
  bool swap = op_info(a->code)->flags & OPF_COMM && a->nargs == 2 &&
              a->args[0] != b->args[0];
  for (uint32_t i = 0; i < a->nargs; i++)
    if (a->args[swap ? 1 - i : i] != b->args[i]) return false;
  for (uint32_t i = 0; i < a->nres; i++)
    if (!type_eq(ir_type(f, a->res[i]), ir_type(f, b->res[i]))) return false;
  return true;
}

static Op *find(const Cse *c, const Op *op, uint64_t hash) {
  uint64_t i = 0;
  map_get(&c->newest, hash, &i);
  for (; i; i = c->entries.at[i - 1].hidden) {
    Op *o = c->entries.at[i - 1].op;
    if (same_op(c->f, o, op)) return o;
  }
  return NULL;
}

static void enter(Cse *c, Op *op, uint64_t hash) {
  Entry e = {.hash = hash, .op = op};
  map_get(&c->newest, hash, &e.hidden);
  vec_push(c->arena, &c->entries, e);
  map_put(&c->newest, hash, c->entries.n);
}

static void leave(Cse *c, uint32_t n) {
  while (c->entries.n > n) {
    Entry e = c->entries.at[--c->entries.n];
    map_put(&c->newest, e.hash, e.hidden);
  }
}

static void sort_operands(Op *op) {
  if (!(op_info(op->code)->flags & OPF_COMM) || op->args[0] <= op->args[1])
    return;
  Value swap = op->args[0];
  op->args[0] = op->args[1];
  op->args[1] = swap;
}

// Commutative operands are put in order only for the comparison.
static Op *find_either(const Cse *c, Op *op, uint64_t *hash) {
  Op key = *op;
  Value args[2];
  if (op->nargs == 2) {
    memcpy(args, op->args, sizeof args);
    key.args = args;
    sort_operands(&key);
  }
  *hash = hash_op(&key);
  return find(c, &key, *hash);
}

static void region(Cse *c, Region *r) {
  uint32_t n = c->entries.n;
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nargs; i++)
      op->args[i] = vmap_get(&c->map, op->args[i]);
    for (uint32_t i = 0; i < op->nregions; i++) region(c, op->regions[i]);
    if (!mergeable(c->f, op)) continue;
    uint64_t hash;
    Op *same = find_either(c, op, &hash);
    if (!same) {
      enter(c, op, hash);
      continue;
    }
    for (uint32_t i = 0; i < op->nres; i++) {
      ValueInfo *kept = ir_info(c->f, same->res[i]);
      if (!kept->hint) kept->hint = ir_info(c->f, op->res[i])->hint;
      vmap_put(&c->map, op->res[i], same->res[i]);
    }
    ir_erase(op);
  }
  leave(c, n);
}

bool pass_cse(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Arena *a = &cx->scratch;
    Cse c = {.f = m->funcs.at[i],
             .arena = a,
             .newest = {.arena = a},
             .map = {.arena = a}};
    region(&c, c.f->body);
  }
  return true;
}
