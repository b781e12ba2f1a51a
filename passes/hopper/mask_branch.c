// mask_branch: a loop that is bound by its products, or whose text counts,
// masks in a branch, and pass peel leaves it one.
//
//   for(..) ({                            for(..) ({
//     ^(%i, ..):                            ^(%i, ..):
//     %full = and(%1, %2)                   %full = and(%1, %2)
//     %l = select(splat(%full), most,       %x, %k = if(%full) ({
//          %limit)                            yield(%s, true)
//     %on = le(%col, bcast(%l))      ->     }, {
//     %x = select(%on, %s, -inf)              %on = le(%col, bcast(%limit))
//     %k = le(splat(0), %l)                   %y = select(%on, %s, -inf)
//     ..                                      yield(%y, le(splat(0), %limit))
//                                           })
//                                           ..
//
// Peeled, ptxas has a loop for steps that mask and one for those that do not,
// of which most is the same. A branch that is the same for all threads costs
// next to nothing where products are what a step waits for: where a thread has
// 128 sums and they take three times the time of functions. Else it costs 2 %
// and more (capped scores at head dim 64: 30 %,
// docs/lab/2026-11-compile-time.md). Done for masks that are one comparison:
// words of bits and tables are made while the scores are.
// Code for tensors of any strides (full_tiles_short) has one loop for any mask:
// two take ptxas twice as long.
// What is masked of what has been masked, or of what is not there at the first
// branch, has a branch of its own. The sides are the same ops with %full = true
// and false, which pass fold makes what is above. Level frag; sm_90a, sm_80.
// Needs: pipeline_loop; runs before peel. Run fold and dce afterwards. Tests:
// test/passes/mask_branch/.
#include "ir/facts.h"
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/support/balance.h"
#include "passes/support/cost.h"
#include "passes/support/full_tiles.h"
#include "passes/pass.h"

#include <math.h>

typedef enum Role {
  REST,
  ASKS,    // bool or integer, made of the question
  SUNK,    // only they need it
  MASKED,  // select(asks, x, y)
} Role;

typedef struct Single {
  Func *f;
  Arena *arena;
  Op *loop;
  Region *body;
  FullTiles full;
  bool any;          // masks of any kind, not comparisons alone
  uint32_t nvalues;  // of the function, before anything is made
  Role *role;        // by value
  uint32_t *depth;   // by value: masked values one behind the other
  Vec(Value) out;    // asks, but others than these need it
} Single;

static Role role(const Single *s, Value v) {
  return v < s->nvalues ? s->role[v] : REST;
}

static bool is_tile(const Single *s, Value v) {
  const Type *t = ir_type(s->f, v);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE;
}

static bool is_plain(const Op *op) {
  return op->nres == 1 && !op->nregions && op_info(op->code)->flags & OPF_PURE;
}

// ---------------------------------------------------------------- where
// 256 have no room beside anything, in one loop or in three.
static bool has_many_sums(const Single *s) {
  uint32_t threads = ir_group_threads(s->f, s->loop), sums = 0;
  for (const Op *op = s->body->first; op && threads; op = op->next)
    if (op->code == OP_WGMMA && op->nargs == 3)
      sums += pressure_of(ir_type(s->f, op->res[0]), threads);
  return sums >= COST_SINGLE_SUMS && sums < 2 * COST_SINGLE_SUMS;
}

static bool is_bound_by_products(const Single *s, const GpuFacts *gpu) {
  Balance b = balance_of(s->f, s->body);
  return balance_products(&b, gpu, COST_PRODUCTS_HIDE);
}

static bool loads_tile(const Single *s, const Op *op) {
  if (op->code != OP_GLOAD) return false;
  const Type *t = ir_type(s->f, op->res[0]);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE;
}

// A long step all of whose tiles its threads load themselves, and that would be
// two.
static bool is_long(const Single *s) {
  bool loads = false, products = false;
  for (const Op *op = s->body->first; op; op = op->next) {
    if (op->code == OP_WGMMA || op->code == OP_SFILL) return false;
    products |= op->code == OP_MMA;
    loads |= loads_tile(s, op);
  }
  uint64_t text = balance_text(s->f, s->body);
  return loads && products && text > COST_PEEL_ANY && text <= COST_PEEL_CODE &&
         !full_tiles_long_pairs(s->f, s->body);
}

static bool is_comparison(const Single *s, Value v) {
  const Op *op = ir_def(s->f, v);
  return op && (op->code == OP_LE || op->code == OP_LT);
}

static bool asks(const Single *s, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++)
    if (role(s, op->args[i]) == ASKS) return true;
  return false;
}

static bool mentions_tile(const Single *s, const Op *op) {
  for (Value v = 1; v < s->nvalues; v++)
    if (role(s, v) == ASKS && is_tile(s, v) && ir_mentions(op, v)) return true;
  return false;
}

// False if something is made of the question that must not be.
static bool find_role(Single *s, Op *op) {
  if (!is_plain(op)) return !mentions_tile(s, op);
  if (!asks(s, op)) return true;
  Value v = op->res[0];
  bool masked = dtype_is_float(ir_type(s->f, v)->dtype);
  s->role[v] = masked ? MASKED : ASKS;
  if (!masked) return true;
  if (s->any) return op->code == OP_SELECT;
  return op->code == OP_SELECT && is_tile(s, v) &&
         is_comparison(s, op->args[0]);
}

// ---------------------------------------------------------------- order
static bool in_body(const Single *s, const Op *op) {
  return op && op->parent == s->body;
}

static bool before(const Op *a, const Op *b) {
  for (; a; a = a->next)
    if (a == b) return true;
  return false;
}

// v is known in front of `at`, or what makes it may go there.
static bool may_hoist(const Single *s, Value v, const Op *at, uint32_t depth) {
  const Op *op = ir_def(s->f, v);
  if (!in_body(s, op) || before(op, at)) return true;
  if (!is_plain(op) || v >= s->nvalues || s->depth[v] > depth ||
      role(s, v) == MASKED)
    return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!may_hoist(s, op->args[i], at, depth)) return false;
  return true;
}

static void hoist(const Single *s, Value v, Op *at) {
  Op *op = ir_def(s->f, v);
  if (!in_body(s, op) || before(op, at)) return;
  for (uint32_t i = 0; i < op->nargs; i++) hoist(s, op->args[i], at);
  ir_move_before(op, at);
}

// What is masked at a depth: its first op is where the branch goes.
static Op *first_masked(const Single *s, uint32_t depth) {
  for (Op *op = s->body->first; op; op = op->next)
    if (op->nres && role(s, op->res[0]) == MASKED &&
        s->depth[op->res[0]] == depth)
      return op;
  return NULL;
}

static bool is_masked_at(const Single *s, const Op *op, uint32_t depth) {
  return op->nres && role(s, op->res[0]) == MASKED &&
         s->depth[op->res[0]] == depth;
}

// ---------------------------------------------------------------- roles
// Can op, which is masked, be made by the branch of a depth?
static bool may_join(const Single *s, const Op *op, uint32_t depth) {
  const Op *at = first_masked(s, depth);
  if (!at || at == op) return true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!may_hoist(s, op->args[i], at, depth)) return false;
  return true;
}

// Masked values that op needs, one behind the other.
static void find_depth(Single *s, const Op *op) {
  uint32_t most = 0;
  for (Value v = 1; v < s->nvalues; v++) {
    uint32_t d = s->depth[v] + (role(s, v) == MASKED);
    if (d > most && ir_mentions(op, v)) most = d;
  }
  bool masked = op->nres && role(s, op->res[0]) == MASKED;
  while (s->any && masked && !may_join(s, op, most)) most++;
  for (uint32_t i = 0; i < op->nres; i++) s->depth[op->res[i]] = most;
}

static uint32_t uses_that_ask(const Single *s, Value v, bool sunk) {
  uint32_t n = 0;
  for (const Op *op = s->body->first; op; op = op->next) {
    Role r = op->nres ? role(s, op->res[0]) : REST;
    bool counts = r == ASKS || (sunk && r == SUNK);
    for (uint32_t i = 0; counts && i < op->nargs; i++) n += op->args[i] == v;
    if (r == MASKED) n += op->args[0] == v;
  }
  return n;
}

static void find_sunk(Single *s) {
  for (Op *op = s->body->last; op; op = op->prev) {
    if (!is_plain(op) || s->role[op->res[0]] || op->res[0] == s->full.value)
      continue;
    uint32_t n = uses_that_ask(s, op->res[0], true);
    if (n && n == ir_count_uses(s->f, op->res[0])) s->role[op->res[0]] = SUNK;
  }
}

static void find_out(Single *s) {
  for (const Op *op = s->body->first; op; op = op->next) {
    Value v = op->nres ? op->res[0] : 0;
    if (!v || v == s->full.value || role(s, v) != ASKS) continue;
    if (uses_that_ask(s, v, false) < ir_count_uses(s->f, v))
      vec_push(s->arena, &s->out, v);
  }
}

// All that is made of the question, or false.
static bool find(Ctx *cx, Single *s) {
  bool any = false;
  s->nvalues = s->f->values.n;
  s->role = NEWN(&cx->scratch, Role, s->nvalues);
  s->depth = NEWN(&cx->scratch, uint32_t, s->nvalues);
  s->out.n = 0;
  s->role[s->full.value] = ASKS;
  for (Op *op = s->body->first; op; op = op->next) {
    if (op == ir_def(s->f, s->full.value)) continue;
    if (!find_role(s, op)) return false;
    any |= op->nres && role(s, op->res[0]) == MASKED;
    find_depth(s, op);
  }
  find_sunk(s);
  find_out(s);
  return any;
}

// Does what stays need v, which the first branch makes, in front of it? A loop
// inside may.
static bool is_early(const Single *s, Value v) {
  const Op *at = first_masked(s, 0);
  for (const Op *op = s->body->first; op && op != at; op = op->next) {
    Role r = op->nres ? role(s, op->res[0]) : REST;
    if (r == REST && ir_mentions(op, v)) return true;
  }
  return false;
}

// Operands of all that the branches take can be in front of them, and what they
// make is needed behind them.
static bool fits(const Single *s) {
  Op *at;
  for (uint32_t d = 0; (at = first_masked(s, d)); d++)
    for (const Op *op = s->body->first; op; op = op->next)
      for (uint32_t i = 0; is_masked_at(s, op, d) && i < op->nargs; i++)
        if (!may_hoist(s, op->args[i], at, d)) return false;
  for (uint32_t i = 0; i < s->out.n; i++) {
    Value v = s->out.at[i];
    if (!may_hoist(s, v, first_masked(s, 0), 0) || is_early(s, v)) return false;
  }
  return true;
}

// ---------------------------------------------------------------- masks
// Where mask m hides them elements of v are replaced in all that is made of v.
static bool is_replaced(const Single *s, Value v, Value m) {
  for (const Op *op = s->body->first; op; op = op->next) {
    if (!ir_mentions(op, v)) continue;
    if (!is_plain(op) || !(op_info(op->code)->flags & OPF_ELEM)) return false;
    bool here = op->code == OP_SELECT && op->args[0] == m && op->args[2] != v;
    if (!here && !is_replaced(s, op->res[0], m)) return false;
  }
  return true;
}

// select(m, x, k), if there is one already.
static Value find_select(const Single *s, Value m, Value x, double k) {
  double other;
  for (const Op *op = s->body->first; op; op = op->next)
    if (op->code == OP_SELECT && op->args[0] == m && op->args[1] == x &&
        ir_const_value(s->f, op->args[2], &other) && other == k)
      return op->res[0];
  return 0;
}

// Masked before it is rounded, not behind: of words of 16 bits that come out of
// a branch ptxas serializes products (C7513).
static void round_late(Single *s, Op *op) {
  const Op *cast = ir_def(s->f, op->args[1]);
  double k;
  bool rounds = cast && cast->code == OP_CAST &&
                ir_const_value(s->f, op->args[2], &k) && (k == 0 || isinf(k)) &&
                ir_type(s->f, cast->args[0])->dtype == DT_F32;
  if (!rounds) return;
  Builder b = {.fn = s->f, .region = s->body, .before = op, .span = op->span};
  IrAttr at = attr_f(AT_VALUE, k);
  Value x = cast->args[0], y = find_select(s, op->args[0], x, k);
  if (!y) {
    Value c =
        ir_op(&b, OP_CONST, NULL, 0, &at, 1, ir_type(s->f, x), 1, 0)->res[0];
    y = ir_3(&b, OP_SELECT, op->args[0], x, c);
  }
  ir_replace_uses(s->f, op->res[0],
                  ir_cast(&b, ir_type(s->f, op->res[0])->dtype, y));
  ir_erase(op);
}

// Leaves of several masks one behind the other the last, and that in f32.
static void simplify(Single *s) {
  for (Op *op = s->body->first, *next; op; op = next) {
    next = op->next;
    if (!op->nres || role(s, op->res[0]) != MASKED) continue;
    if (is_replaced(s, op->res[0], op->args[0])) {
      ir_replace_uses(s->f, op->res[0], op->args[1]);
      ir_erase(op);
    } else {
      round_late(s, op);
    }
  }
}

// ---------------------------------------------------------------- branches
typedef struct Side {
  const Single *s;
  Builder b;
  ValueMap map;
  uint32_t depth;
} Side;

// v's value on this side.
static Value need(Side *c, Value v) {
  const Single *s = c->s;
  const Op *op = ir_def(s->f, v);
  bool mine = role(s, v) == ASKS || role(s, v) == SUNK ||
              (role(s, v) == MASKED && s->depth[v] == c->depth);
  if (vmap_get(&c->map, v) != v || !mine) return vmap_get(&c->map, v);
  for (uint32_t i = 0; i < op->nargs; i++) need(c, op->args[i]);
  ir_clone(&c->b, s->f, op, &c->map, NULL);
  return vmap_get(&c->map, v);
}

static void side(const Single *s, Op *branch, uint32_t at, const Value *out,
                 uint32_t depth) {
  Side c = {.s = s,
            .map = {.arena = s->arena},
            .depth = depth,
            .b = {.fn = s->f,
                  .region = branch->regions[at],
                  .span = branch->span}};
  vmap_put(&c.map, s->full.value, ir_const_i(&c.b, DT_BOOL, at == 0));
  Value *v = NEWN(s->arena, Value, branch->nres);
  for (uint32_t i = 0; i < branch->nres; i++) v[i] = need(&c, out[i]);
  ir_yield(&c.b, v, branch->nres);
}

static void branch(Single *s, Op *at, uint32_t depth) {
  Vec(Value) out = {0};
  for (const Op *op = at; op; op = op->next)
    if (is_masked_at(s, op, depth)) vec_push(s->arena, &out, op->res[0]);
  for (uint32_t i = 0; !depth && i < s->out.n; i++)
    vec_push(s->arena, &out, s->out.at[i]);
  Type *types = NEWN(s->arena, Type, out.n);
  for (uint32_t i = 0; i < out.n; i++) {
    const Op *op = ir_def(s->f, out.at[i]);
    for (uint32_t k = 0; k < op->nargs; k++) hoist(s, op->args[k], at);
    types[i] = *ir_type(s->f, out.at[i]);
  }
  hoist(s, s->full.value, at);
  Builder b = {.fn = s->f, .region = s->body, .before = at, .span = at->span};
  Op *made = ir_op(&b, OP_IF, &s->full.value, 1, NULL, 0, types, out.n, 2);
  for (uint32_t i = 0; i < 2; i++) side(s, made, i, out.at, depth);
  for (uint32_t i = 0; i < out.n; i++)
    ir_replace_uses(s->f, out.at[i], made->res[i]);
}

// Else cse makes what stands in a branch only of what stands in front of it.
static void drop_unused(const Single *s) {
  for (Op *op = s->body->last, *prev; op; op = prev) {
    prev = op->prev;
    if (is_plain(op) && !ir_count_uses(s->f, op->res[0])) ir_erase(op);
  }
}

static void rewrite(Single *s) {
  Op *at;
  uint32_t depths = 0;
  while (first_masked(s, depths)) depths++;
  for (uint32_t d = 0; d < depths; d++)
    if ((at = first_masked(s, d))) branch(s, at, d);
  drop_unused(s);
}

static void region(Ctx *cx, Func *f, const PassOpt *opt, Region *r) {
  const GpuFacts *gpu = &opt->target->gpu;
  for (Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++)
      region(cx, f, opt, op->regions[i]);
    Single s = {.f = f, .arena = f->mod->arena, .loop = op};
    if (op->code != OP_FOR || !op->nres || !full_tiles(f, op, &s.full))
      continue;
    s.body = op->regions[0];
    s.any = full_tiles_short(opt) || is_long(&s);
    bool worth = s.any || (has_many_sums(&s) && is_bound_by_products(&s, gpu));
    if (!worth || !find(cx, &s)) continue;
    simplify(&s);
    if (find(cx, &s) && fits(&s)) rewrite(&s);
  }
}

bool pass_mask_branch(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; opt->target && i < m->funcs.n; i++)
    region(cx, m->funcs.at[i], opt, m->funcs.at[i]->body);
  return true;
}
