// reroll: sums whose terms are the same code with other numbers become a loop.
//
//   %a = add(%s, exp2(mul(%x, 0.5)))      %c = for(0, 4, 1, %s) ({
//   %b = add(%a, exp2(mul(%x, 0.25)))       ^(%i, %t):
//   ..                               ->     %n = select(eq(%i, 3), 0.0625, ..)
//   %c = add(.., exp2(mul(%x, 0.0625)))     yield(add(%t, exp2(mul(%x, %n))))
//                                         })
//
// Levels of a chunk's halves (passes/attn/grad_halves.c) are a thousand
// instructions each. One behind the other they are more than a multiprocessor
// keeps, and each group of warps waits for all of them to come from memory,
// once a task. Sums of products are such sums too, and all sums of as many
// turns have one loop, whether a turn adds one term or two. Where terms have
// several products. Level frag; sm_90a,
// programs whose tasks have no loop. Needs: lower_gpu. Run dce behind it.
// Tests: test/passes/reroll.
#include "ir/layout.h"
#include "passes/support/cost.h"
#include "passes/pass.h"

#include <string.h>

enum { MAX_TURNS = 8, MAX_SUMS = 6, MAX_TERMS = 2, MAX_DEPTH = 200 };

// What the turns have at one place: a value each.
typedef enum NodeKind { COMMON, NUMBER, MADE } NodeKind;
typedef struct Node {
  NodeKind kind;
  Value v[MAX_TURNS];
  Value now;  // in the loop
} Node;

typedef struct Term {
  Value part[MAX_TURNS];    // behind each turn's; 0: a first term by itself
  Value own[2][MAX_TURNS];  // what a turn adds; of a product its operands
} Term;

typedef struct Sum {
  Term term[MAX_TERMS];  // of a turn, in their order
  uint32_t terms;
  Value start;  // 0: nothing
  Op *last;
} Sum;

typedef struct Reroll {
  Func *f;
  Region *r;
  Arena *arena;
  uint64_t *shape;  // by value: equal where turns may have the two
  uint32_t *at;     // by value: place of its op in r, from 1
  uint32_t *uses;   // by value
  uint32_t turns, nsums, products;
  Sum sum[MAX_SUMS];
  Vec(Node) nodes;
} Reroll;

// ---------------------------------------------------------------- shapes
static uint64_t mixed(uint64_t a, uint64_t b) {
  return map_hash(&a, sizeof a, b);
}

static uint64_t attr_shape(const IrAttr *a, uint64_t h) {
  h = mixed((uint64_t)a->i, mixed((uint64_t)a->id, h));
  h = map_hash(&a->f, sizeof a->f, h);
  return a->n ? map_hash(a->list, a->n * sizeof *a->list, h) : h;
}

static bool is_commutative(const Op *op) {
  return op_info(op->code)->flags & OPF_COMM && op->nargs == 2;
}

// Constants of a type are alike; operands of what is commutative have no order.
static uint64_t shape_of(const Reroll *x, const Op *op) {
  uint64_t h = mixed(op->code, op->nargs), sum = 0;
  for (uint32_t i = 0; op->code != OP_CONST && i < op->nattrs; i++)
    h = attr_shape(&op->attrs[i], h);
  for (uint32_t i = 0; i < op->nargs; i++) {
    uint64_t a = x->shape[op->args[i]];
    if (is_commutative(op)) sum += mixed(a, 1);
    else h = mixed(a, h);
  }
  const Type *t = ir_type(x->f, op->res[0]);
  uint64_t type[] = {t->kind, t->dtype, t->ext[0], t->ext[1], t->slice};
  return map_hash(type, sizeof type, mixed(sum, h));
}

static void know(void *data, Op *op) {
  Reroll *x = data;
  for (uint32_t i = 0; i < op->nargs; i++) x->uses[op->args[i]]++;
}

static void find_shapes(Reroll *x) {
  uint32_t n = x->f->values.n, at = 0;
  x->shape = NEWN(x->arena, uint64_t, n);
  x->at = NEWN(x->arena, uint32_t, n);
  x->uses = NEWN(x->arena, uint32_t, n);
  ir_walk(x->f->body, know, x);
  for (uint32_t v = 0; v < n; v++) x->shape[v] = mixed(v, 2);
  for (const Op *op = x->r->first; op; op = op->next) {
    at++;
    for (uint32_t i = 0; i < op->nres; i++) x->at[op->res[i]] = at;
    if (op->nres == 1 && !op->nregions) x->shape[op->res[0]] = shape_of(x, op);
  }
}

// ---------------------------------------------------------------- sums
// The op of a sum in the region, with nothing but this sum's next that needs
// it: `add`, or a product that adds to another.
static const Op *sum_op(const Reroll *x, Value v, OpCode code, bool last) {
  const Op *op = x->at[v] ? ir_def(x->f, v) : NULL;
  if (!op || op->code != code || (!last && x->uses[v] != 1)) return NULL;
  const Type *t = ir_type(x->f, v);
  if (t->kind != TK_FRAG || t->slice != SLICE_NONE || t->dtype != DT_F32)
    return NULL;
  return code == OP_ADD || op->nargs == 3 ? op : NULL;
}

// What an operand that is new adds, by shape.
static uint64_t added(const Reroll *x, const Op *op, uint32_t term) {
  if (op->code == OP_ADD) return x->shape[op->args[term]];
  uint64_t h = mixed(x->shape[op->args[0]], x->shape[op->args[1]]);
  for (uint32_t i = 0; i < op->nattrs; i++) h = attr_shape(&op->attrs[i], h);
  return h;
}

// The operand of op that adds what `shape` says; 2: none.
static uint32_t term_of(const Reroll *x, const Op *op, uint64_t shape) {
  if (op->code == OP_MMA) return added(x, op, 0) == shape ? 0 : 2;
  return added(x, op, 1) == shape ? 1 : added(x, op, 0) == shape ? 0 : 2;
}

static Value before(const Op *op, uint32_t term) {
  return op->args[op->code == OP_MMA ? 2 : 1 - term];
}

static void turn_round(Value *v, uint32_t n) {
  for (uint32_t i = 0; i < n / 2; i++) {
    Value swap = v[i];
    v[i] = v[n - 1 - i];
    v[n - 1 - i] = swap;
  }
}

// Of the sum up to v the terms with these shapes, in turn, backwards from the
// last one; turns that have all of them.
static uint32_t walk_back(const Reroll *x, Value v, const uint64_t *shape,
                          Sum *s) {
  OpCode code = ir_def(x->f, v)->code;
  const Op *op = s->last = ir_def(x->f, v);
  uint32_t n = 0, all = s->terms;
  for (; op && n / all < MAX_TURNS; n++) {
    Term *t = &s->term[all - 1 - n % all];
    uint32_t turn = n / all, at = term_of(x, op, shape[n % all]);
    if (at == 2) break;
    t->part[turn] = v;
    t->own[0][turn] = op->args[at];
    t->own[1][turn] = code == OP_MMA ? op->args[1] : 0;
    v = before(op, at);
    if (n % all == all - 1) s->start = v;
    op = sum_op(x, v, code, false);
  }
  uint32_t turns = n / all;
  if (turns && turns < MAX_TURNS && code == OP_ADD && all == 1 &&
      x->shape[v] == shape[0]) {
    s->term[0].part[turns] = 0;
    s->term[0].own[0][turns] = v;
    s->term[0].own[1][turns++] = 0;
    s->start = 0;
  }
  for (uint32_t k = 0; k < all; k++) {
    turn_round(s->term[k].part, turns);
    for (uint32_t i = 0; i < 2; i++) turn_round(s->term[k].own[i], turns);
  }
  return turns;
}

// The most turns that the sum up to op has, by one term or by pairs of
// products.
static uint32_t find_turns(const Reroll *x, const Op *op, Sum *best) {
  uint32_t most = 0;
  uint64_t shape[MAX_TERMS];
  for (uint32_t i = 0; i < (op->code == OP_ADD ? 2 : 1); i++) {
    Sum s = {.terms = 1};
    shape[0] = added(x, op, i);
    uint32_t n = walk_back(x, op->res[0], shape, &s);
    if (n > most) most = n, *best = s;
  }
  const Op *first =
      op->code == OP_MMA ? sum_op(x, op->args[2], OP_MMA, false) : NULL;
  if (!first) return most;
  Sum s = {.terms = 2};
  shape[1] = added(x, first, 0);
  uint32_t n = walk_back(x, op->res[0], shape, &s);
  if (n > most) most = n, *best = s;
  return most;
}

static bool is_known(const Reroll *x, Value v) {
  for (uint32_t i = 0; i < x->nsums; i++)
    for (uint32_t k = 0; k < x->turns * x->sum[i].terms; k++)
      if (x->sum[i].term[k / x->turns].part[k % x->turns] == v) return true;
  return false;
}

// Sums of as many turns, from the last op on.
static void find_sums(Reroll *x) {
  for (const Op *op = x->r->last; op; op = op->prev) {
    if (op->code != OP_ADD && op->code != OP_MMA) continue;
    if (!sum_op(x, op->res[0], op->code, true) || is_known(x, op->res[0]))
      continue;
    Sum best = {0};
    uint32_t most = find_turns(x, op, &best);
    if (most < COST_REROLL_TURNS || x->nsums == MAX_SUMS) continue;
    if (x->nsums && most != x->turns) continue;
    x->turns = most;
    x->sum[x->nsums++] = best;
  }
}

// ---------------------------------------------------------------- places
static Node *node_of(const Reroll *x, const Value *v) {
  for (uint32_t i = 0; i < x->nodes.n; i++)
    if (!memcmp(x->nodes.at[i].v, v, x->turns * sizeof *v))
      return &x->nodes.at[i];
  return NULL;
}

static bool add_node(Reroll *x, NodeKind kind, const Value *v) {
  Node n = {.kind = kind};
  memcpy(n.v, v, x->turns * sizeof *v);
  vec_push(x->arena, &x->nodes, n);
  return true;
}

static bool same_attrs(const Op *a, const Op *b) {
  if (a->nattrs != b->nattrs) return false;
  for (uint32_t i = 0; i < a->nattrs; i++)
    if (a->attrs[i].id != b->attrs[i].id ||
        attr_shape(&a->attrs[i], 0) != attr_shape(&b->attrs[i], 0))
      return false;
  return true;
}

static bool is_alike(const Reroll *x, const Op *a, const Op *b) {
  return b && a->code == b->code && a->nargs == b->nargs && b->nres == 1 &&
         !b->nregions && x->at[b->res[0]] &&
         type_eq(ir_type(x->f, a->res[0]), ir_type(x->f, b->res[0])) &&
         (a->code == OP_CONST || same_attrs(a, b));
}

static bool may_move(const Op *op) {
  return op_info(op->code)->flags & OPF_PURE && op->code != OP_SFILL &&
         op->code != OP_GLOAD;
}

// Has op the operands of `first` in the other order?
static bool is_swapped(const Reroll *x, const Op *first, const Op *op) {
  const uint64_t *s = x->shape;
  return is_commutative(op) && !(s[op->args[0]] == s[first->args[0]] &&
                                 s[op->args[1]] == s[first->args[1]]);
}

// Is what the turns have here the same but for numbers? Then all that it is
// made of has nodes, in front of its own.
static bool place(Reroll *x, const Value *v, uint32_t depth) {
  if (node_of(x, v)) return true;
  bool common = true, alike = true;
  for (uint32_t k = 1; k < x->turns; k++) common &= v[k] == v[0];
  if (common) return !is_known(x, v[0]) && add_node(x, COMMON, v);
  const Op *first = ir_def(x->f, v[0]);
  if (!first || first->nres != 1 || depth > MAX_DEPTH) return false;
  for (uint32_t k = 0; k < x->turns; k++)
    alike &= !is_known(x, v[k]) && is_alike(x, first, ir_def(x->f, v[k]));
  if (!alike || first->nregions || !may_move(first)) return false;
  DType t = ir_type(x->f, v[0])->dtype;
  if (first->code == OP_CONST)
    return (t == DT_F32 || t == DT_I32) && add_node(x, NUMBER, v);
  for (uint32_t i = 0; i < first->nargs; i++) {
    Value a[MAX_TURNS];
    for (uint32_t k = 0; k < x->turns; k++) {
      const Op *op = ir_def(x->f, v[k]);
      a[k] = op->args[is_swapped(x, first, op) ? 1 - i : i];
    }
    if (!place(x, a, depth + 1)) return false;
  }
  x->products += first->code == OP_MMA;
  return add_node(x, MADE, v);
}

static bool place_sums(Reroll *x) {
  for (uint32_t i = 0; i < x->nsums; i++) {
    const Sum *s = &x->sum[i];
    if (s->last->code == OP_MMA) x->products += s->terms;
    for (uint32_t k = 0; k < 2 * s->terms; k++) {
      const Value *own = s->term[k / 2].own[k % 2];
      if (own[0] && !place(x, own, 0)) return false;
    }
  }
  return x->products >= COST_REROLL_PRODUCTS;
}

// The place of the last op that makes something that the loop needs.
static uint32_t last_needed(const Reroll *x) {
  uint32_t last = 0;
  for (uint32_t i = 0; i < x->nodes.n; i++) {
    const Node *n = &x->nodes.at[i];
    if (n->kind == COMMON && x->at[n->v[0]] > last) last = x->at[n->v[0]];
  }
  for (uint32_t i = 0; i < x->nsums; i++)
    if (x->at[x->sum[i].start] > last) last = x->at[x->sum[i].start];
  return last;
}

// Is the op made of one of these values?
static bool is_of(const Reroll *x, const Op *op, const bool *of) {
  bool any = false;
  for (uint32_t i = 0; i < op->nargs; i++) any |= of[op->args[i]];
  for (Value v = 1; op->nregions && v < x->f->values.n && !any; v++)
    any = of[v] && ir_mentions(op, v);
  return any;
}

// By value: is it made of a sum of the loop?
static bool *behind_loop(const Reroll *x) {
  bool *of = NEWN(x->arena, bool, x->f->values.n);
  for (uint32_t i = 0; i < x->nsums; i++) of[x->sum[i].last->res[0]] = true;
  for (const Op *op = x->r->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nres; i++) of[op->res[i]] |= is_of(x, op, of);
  return of;
}

static bool needs_sums(const Reroll *x, const bool *of) {
  for (uint32_t i = 0; i < x->nodes.n; i++)
    if (x->nodes.at[i].kind == COMMON && of[x->nodes.at[i].v[0]]) return true;
  for (uint32_t i = 0; i < x->nsums; i++)
    if (of[x->sum[i].start]) return true;
  return false;
}

// It may stand behind others: a store to what nothing else reads or writes too.
static bool may_wait(const Reroll *x, const Op *op) {
  if (op->code == OP_GSTORE) return x->uses[op->args[0]] == 1;
  return op_info(op->code)->flags & OPF_PURE && !op->nregions;
}

// In front of the first op that needs a sum, behind all that the loop needs:
// what is made of sums before that moves there. NULL: there is no such place.
static Op *loop_place(const Reroll *x) {
  const bool *of = behind_loop(x);
  uint32_t last = last_needed(x), at = 1;
  Op *first = NULL, *end = x->r->first;
  bool moves = true;
  for (; end && (at <= last || !first); end = end->next, at++) {
    if (!is_of(x, end, of)) continue;
    if (!first) first = end;
    if (at > last) break;
    moves &= may_wait(x, end);
  }
  if (!first || !end || !moves || needs_sums(x, of)) return NULL;
  if (first == end) return first;
  Op *op = first->next, *next;
  ir_move_before(first, end);
  for (; op != first; op = next) {
    next = op->next;
    if (is_of(x, op, of)) ir_move_before(op, end);
  }
  return first;
}

// ---------------------------------------------------------------- the loop
static Value now_of(const Reroll *x, const Value *v) {
  return node_of(x, v)->now;
}

// The number of turn i.
static Value number(Reroll *x, Builder *b, Value i, const Node *n) {
  const Type *t = ir_type(x->f, n->v[0]);
  const Type one = type_scalar(t->dtype);
  Value y = 0;
  for (uint32_t k = 0; k < x->turns; k++) {
    const Op *c = ir_def(x->f, n->v[k]);
    Value z =
        ir_op(b, OP_CONST, NULL, 0, c->attrs, c->nattrs, &one, 1, 0)->res[0];
    if (k)
      z = ir_3(b, OP_SELECT, ir_2(b, OP_EQ, i, ir_const_i(b, DT_I32, k)), z, y);
    y = z;
  }
  if (t->kind != TK_FRAG) return y;
  const Type all = *t;
  return ir_op(b, OP_SPLAT, &y, 1, NULL, 0, &all, 1, 0)->res[0];
}

static Value made(Reroll *x, Builder *b, const Node *n) {
  const Op *first = ir_def(x->f, n->v[0]);
  Value args[8];
  for (uint32_t i = 0; i < first->nargs; i++) {
    Value a[MAX_TURNS];
    for (uint32_t k = 0; k < x->turns; k++) {
      const Op *op = ir_def(x->f, n->v[k]);
      a[k] = op->args[is_swapped(x, first, op) ? 1 - i : i];
    }
    args[i] = now_of(x, a);
  }
  const Type t = *ir_type(x->f, n->v[0]);
  b->span = first->span;
  return ir_op(b, first->code, args, first->nargs, first->attrs, first->nattrs,
               &t, 1, 0)
      ->res[0];
}

static Value added_up(Reroll *x, Builder *b, const Sum *s, uint32_t term,
                      Value so_far) {
  const Type t = *ir_type(x->f, so_far);
  const Term *own = &s->term[term];
  Value args[3] = {so_far, now_of(x, own->own[0])};
  uint32_t n = 2;
  if (s->last->code == OP_MMA) {
    args[0] = args[1], args[1] = now_of(x, own->own[1]), args[2] = so_far;
    n = 3;
  }
  return ir_op(b, s->last->code, args, n, s->last->attrs, s->last->nattrs, &t,
               1, 0)
      ->res[0];
}

// A turn has the order of the last one.
static void fill(Reroll *x, Region *body) {
  Builder b = {.fn = x->f, .region = body, .span = body->parent->span};
  Value out[MAX_SUMS];
  for (uint32_t i = 0; i < x->nsums; i++) out[i] = body->params.at[1 + i];
  for (uint32_t i = 0; i < x->nodes.n; i++) {
    Node *n = &x->nodes.at[i];
    if (n->kind == COMMON) n->now = n->v[0];
    if (n->kind == NUMBER) n->now = number(x, &b, body->params.at[0], n);
  }
  for (const Op *op = x->r->first; op; op = op->next) {
    if (op->nres != 1) continue;
    for (uint32_t i = 0; i < x->nodes.n; i++) {
      Node *n = &x->nodes.at[i];
      if (n->kind == MADE && n->v[x->turns - 1] == op->res[0])
        n->now = made(x, &b, n);
    }
    for (uint32_t i = 0; i < x->nsums; i++)
      for (uint32_t k = 0; k < x->sum[i].terms; k++)
        if (x->sum[i].term[k].part[x->turns - 1] == op->res[0])
          out[i] = added_up(x, &b, &x->sum[i], k, out[i]);
  }
  ir_yield(&b, out, x->nsums);
}

static void roll(Reroll *x, Op *at) {
  Builder b = {.fn = x->f, .region = x->r, .before = at, .span = at->span};
  Type types[MAX_SUMS];
  Value args[3 + MAX_SUMS] = {ir_const_i(&b, DT_I32, 0),
                              ir_const_i(&b, DT_I32, x->turns),
                              ir_const_i(&b, DT_I32, 1)};
  const IrAttr zero = attr_f(AT_VALUE, 0);
  for (uint32_t i = 0; i < x->nsums; i++) {
    types[i] = *ir_type(x->f, x->sum[i].last->res[0]);
    args[3 + i] = x->sum[i].start;
    if (!args[3 + i])
      args[3 + i] =
          ir_op(&b, OP_CONST, NULL, 0, &zero, 1, &types[i], 1, 0)->res[0];
  }
  Op *loop = ir_op(&b, OP_FOR, args, 3 + x->nsums, NULL, 0, types, x->nsums, 1);
  Region *body = loop->regions[0];
  ir_region_param(body, type_scalar(DT_I32), NULL);
  for (uint32_t i = 0; i < x->nsums; i++) ir_region_param(body, types[i], NULL);
  fill(x, body);
  for (uint32_t i = 0; i < x->nsums; i++)
    ir_replace_from(at, x->sum[i].last->res[0], loop->res[i]);
}

// ---------------------------------------------------------------- all
static void count_loops(void *data, Op *op) {
  *(uint32_t *)data += op->code == OP_FOR || op->code == OP_WHILE;
}

static void function(Ctx *cx, Func *f) {
  uint32_t loops = 0;
  ir_walk(f->body, count_loops, &loops);
  if (loops || !ir_launch(f)) return;
  Reroll x = {.f = f, .r = f->body, .arena = &cx->scratch};
  find_shapes(&x);
  find_sums(&x);
  if (!x.nsums || !place_sums(&x)) return;
  Op *at = loop_place(&x);
  if (!at) return;
  ctx_remark(cx, "%s: %u sums of %u turns are a loop", f->name, x.nsums,
             x.turns);
  roll(&x, at);
}

bool pass_reroll(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) function(cx, m->funcs.at[i]);
  return true;
}
