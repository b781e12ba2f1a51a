// branch_turns: what groups do in turn is branched around in the others' steps.
//
//   for(.., %d) ({                          for(.., %d) ({
//     ^(%i, %d):                              ^(%i, %d):
//     %c = ne(mod(..), %wg)                   %c = ne(mod(..), %wg)
//     %s = wgmma(..)                          %d1 = if(%c) ({
//     gstore(%A, %d, .., %c) {turn = 2}         %s = wgmma(..)
//     mbar_wait(%full, ..)                ->    gstore(%A, %d, ..)
//     %e = wgmma(%t, ..) {turn = 1}             .. wg_wait(%s), ..
//     .. wg_wait(%s), .. wg_wait(%e)            yield(%d)
//     yield(%e)                               }, {
//   })                                          %s = wgmma(..)
//                                               mbar_wait(%full, ..)
//                                               %e = wgmma(%t, ..)
//                                               .. wg_wait(%s), .. wg_wait(%e)
//                                               yield(%e)
//                                             })
//                                             yield(%d1)
//                                           })
//
// A product with turn = 1 is needed by the group whose turn it is; stores with
// turn = 2 are masked by whether it is another's, of which there is one. A
// whole step stands in each side: products in flight at a branch are none.
// Scalars, which are the same in both, stay in front. Level frag; sm_90a.
// Needs: pipeline_loop, warp_specialize. Tests: test/passes/branch_turns.
#include "passes/pass.h"

enum { MAX_YIELDED = 64, MINE = 1, OTHERS = 2 };

typedef struct Turns {
  Func *f;
  Arena *arena;
  Op *loop;
  Region *body;
  Value other;   // bool: it is another group's turn
  bool *before;  // by value: made in front of the branch
} Turns;

static int64_t turn_of(const Op *op) {
  return ir_attr_i(op, AT_TURN, 0);
}

// Does op tell elements of a tile apart?
static bool is_mask(const Turns *t, const Op *op) {
  if (op->nres != 1 || op->code == OP_BCAST || op->code == OP_SPLAT)
    return false;
  const Type *x = ir_type(t->f, op->res[0]);
  return x->kind == TK_FRAG && !x->slice && x->dtype == DT_BOOL;
}

// Do all stores ask the same of a body that has products in turn? Steps that
// mask are few, and masks of two sides more than registers hold.
static bool find(Turns *t) {
  bool product = false;
  for (const Op *op = t->body->first; op; op = op->next) {
    if (op->nregions || op->nargs > MAX_YIELDED || is_mask(t, op)) return false;
    product |= op->code == OP_WGMMA && turn_of(op) == MINE;
    if (op->code != OP_GSTORE || turn_of(op) != OTHERS) continue;
    Value c = op->args[op->nargs - 1];
    if (t->other && t->other != c) return false;
    t->other = c;
  }
  return product && t->other && t->body->last->nargs <= MAX_YIELDED;
}

static bool is_scalar(const Turns *t, const Op *op) {
  if (!(op_info(op->code)->flags & OPF_PURE || op->code == OP_GROUP) ||
      op->nres != 1)
    return false;
  TypeKind k = ir_type(t->f, op->res[0])->kind;
  return k == TK_ELEM || k == TK_SMEM;
}

// Moves what both sides have to the front; false: the condition is not of it.
static bool hoist(Turns *t, Op *branch) {
  t->before = NEWN(t->arena, bool, t->f->values.n);
  for (Op *op = t->body->first, *next; op != branch; op = next) {
    next = op->next;
    bool ok = is_scalar(t, op);
    for (uint32_t i = 0; i < op->nargs; i++) {
      const Op *def = ir_def(t->f, op->args[i]);
      ok = ok && (!def || def->parent != t->body || t->before[op->args[i]]);
    }
    if (ok) t->before[op->res[0]] = true;
  }
  return t->before[t->other];
}

// The commit of such a product, and of nothing else.
static bool is_empty(const Op *op) {
  const Op *p = op->code == OP_WG_COMMIT ? op->prev : NULL;
  while (p && p->code == OP_WGMMA && turn_of(p) == MINE) p = p->prev;
  return p && p != op->prev && p->code == OP_WG_FENCE;
}

// A product that is not made, and what only it waits for.
static bool is_left_out(const Turns *t, const Op *op) {
  if (op->code == OP_WGMMA) return turn_of(op) == MINE;
  if (is_empty(op)) return true;
  if (op->code == OP_MBAR_WAIT) do
      op = op->next;
    while (op && op->nres == 1 && t->before[op->res[0]]);
  return op && op->code == OP_WG_FENCE && op->next && turn_of(op->next) == MINE;
}

// Of the last commits in front of a wait, so many as it leaves under way, those
// that are not left out.
static int64_t pending_of(const Op *wait) {
  int64_t n = ir_attr_i(wait, AT_PENDING, 0), left = n;
  for (const Op *op = wait->prev; op && n > 0; op = op->prev) {
    if (op->code != OP_WG_COMMIT) continue;
    n--;
    left -= is_empty(op);
  }
  return left;
}

static void put_wait(Turns *t, Builder *b, const Op *op, ValueMap *m,
                     const bool *out, bool own) {
  IrAttr pending =
      attr_i(AT_PENDING, own ? ir_attr_i(op, AT_PENDING, 0) : pending_of(op));
  Value args[MAX_YIELDED] = {0};
  Type types[MAX_YIELDED] = {{0}};
  uint32_t at[MAX_YIELDED], n = 0;
  for (uint32_t i = 0; i < op->nargs; i++) {
    if (out[op->args[i]]) continue;
    args[n] = vmap_get(m, op->args[i]);
    types[n] = *ir_type(t->f, op->res[i]);
    at[n++] = i;
  }
  Op *w = ir_op(b, OP_WG_WAIT, args, n, &pending, 1, types, n, 0);
  for (uint32_t i = 0; i < n; i++) vmap_put(m, op->res[at[i]], w->res[i]);
}

static void put_store(Builder *b, const Op *op, const ValueMap *m) {
  Value args[MAX_AXES + 2];
  IrAttr add = attr_i(AT_ADD, 1);
  for (uint32_t i = 0; i + 1 < op->nargs; i++)
    args[i] = vmap_get(m, op->args[i]);
  ir_op(b, OP_GSTORE, args, op->nargs - 1, &add, 1, NULL, 0, 0);
}

static void put_product(Builder *b, const Turns *t, const Op *op, ValueMap *m) {
  Op *p = ir_clone(b, t->f, op, m, NULL);
  ir_del_attr(p, AT_TURN);
}

// The ops of the body but scalars, in a step of the group's own or another's.
static void side(Turns *t, Region *to, Op *end, bool own) {
  Builder b = {.fn = t->f, .region = to, .span = t->loop->span};
  ValueMap m = {.arena = t->arena};
  bool *out = NEWN(t->arena, bool, t->f->values.n);
  const Op *yield = t->body->last;
  for (const Op *op = t->body->first; op != end; op = op->next) {
    b.span = op->span;
    if (op->nres == 1 && t->before[op->res[0]]) continue;
    if (!own && is_left_out(t, op)) {
      if (op->nres) out[op->res[0]] = true;
    } else if (op->code == OP_WG_WAIT) {
      put_wait(t, &b, op, &m, out, own);
      for (uint32_t i = 0; i < op->nargs; i++)
        if (out[op->args[i]]) out[op->res[i]] = true;
    } else if (op->code == OP_GSTORE && turn_of(op) == OTHERS) {
      if (!own) put_store(&b, op, &m);
    } else if (op->code == OP_WGMMA) {
      put_product(&b, t, op, &m);
    } else {
      ir_clone(&b, t->f, op, &m, NULL);
    }
  }
  Value v[MAX_YIELDED];
  uint32_t n = 0;
  for (uint32_t i = 0; i < yield->nargs; i++) {
    Value y = yield->args[i];
    const Op *def = ir_def(t->f, y);
    if (!def || def->parent != t->body || t->before[y]) continue;
    v[n++] = out[y] ? t->body->params.at[1 + i] : vmap_get(&m, y);
  }
  ir_yield(&b, v, n);
}

static void erase_between(Turns *t, Op *branch) {
  for (Op *op = branch->prev, *prev; op; op = prev) {
    prev = op->prev;
    if (op->nres == 1 && t->before[op->res[0]]) continue;
    ir_erase(op);
  }
}

static void split(Turns *t) {
  Op *yield = t->body->last;
  Type types[MAX_YIELDED] = {{0}};
  uint32_t at[MAX_YIELDED], n = 0;
  if (!hoist(t, yield)) return;
  for (uint32_t i = 0; i < yield->nargs; i++) {
    const Op *def = ir_def(t->f, yield->args[i]);
    if (!def || def->parent != t->body || t->before[yield->args[i]]) continue;
    types[n] = *ir_type(t->f, yield->args[i]);
    at[n++] = i;
  }
  Builder b = {.fn = t->f,
               .region = t->body,
               .before = yield,
               .span = t->loop->span};
  Op *branch = ir_op(&b, OP_IF, &t->other, 1, NULL, 0, types, n, 2);
  side(t, branch->regions[0], branch, false);
  side(t, branch->regions[1], branch, true);
  for (uint32_t i = 0; i < n; i++) yield->args[at[i]] = branch->res[i];
  erase_between(t, branch);
}

static void region(Func *f, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) region(f, op->regions[i]);
    if (op->code != OP_FOR) continue;
    Turns t = {.f = f,
               .arena = f->mod->arena,
               .loop = op,
               .body = op->regions[0]};
    if (find(&t)) split(&t);
  }
}

bool pass_branch_turns(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx, (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    region(m->funcs.at[i], m->funcs.at[i]->body);
  return true;
}
