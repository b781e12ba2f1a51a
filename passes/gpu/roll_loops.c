// roll_loops: loops one behind the other that are the same code with other
// numbers, with what stands between them, become the turns of one loop.
//
//   %a = for(.., %0) ..                   %a = for(.., %0) ..
//   %s = add(%a, 4096)                    %c = for(0, 3, 1, %a) ({
//   %b = for(.., %s) ..                     ^(%i, %u):
//   %t = add(%b, 256)              ->       %n = select(eq(%i, 2), 16, ..)
//   %c = for(.., %t) ..                     %s = add(%u, %n)
//   %u = add(%c, 16)                        %v = for(.., %s) ..
//   %d = for(.., %u) ..                     yield(%v)
//                                         })
//
// The limit of a `topk` is found digit by digit, by a walk over the keys each:
// kernels of 30000 lines, for which ptxas takes seconds. A turn is a loop, or
// as many as `peel` makes of one, and what stands in front of it. What it has
// of the turn before is carried, what no turn changes stands in front. No
// product is in flight from turn to turn. Level frag, behind all that orders
// loops. Run dce behind it. Tests: test/passes/roll_loops.
#include "ir/layout.h"
#include "passes/support/cost.h"
#include "passes/pass.h"

#include <string.h>

enum { MAX_TURNS = 16, MAX_EACH = 4, MAX_CARRIED = 64, MAX_DEPTH = 8 };

// What the turns have at one place: a value each.
typedef enum NodeKind { COMMON, OWN, CARRIED, NUMBER, MADE } NodeKind;
typedef struct Node {
  NodeKind kind;
  Value v[MAX_TURNS];
  Value next;  // CARRIED: the first turn's, that the one behind begins with
  Value now;   // in the loop
} Node;

// An op of the first turn, and those of the others.
typedef struct Place {
  Op *op[MAX_TURNS];
} Place;

typedef struct Roll {
  Func *f;
  Region *r;
  Arena *arena;
  uint32_t turns;
  Op *first;            // of the first turn
  Op *loop[MAX_TURNS];  // the last op of each
  bool *loose;          // by value: made of what a loop in front leaves
  bool *fixed;          // by value: no turn changes it
  uint32_t values;      // those that there are before turns are one loop
  uint32_t *turn;       // by value: the turn that makes it, from 1
  Value *of;            // by value of a turn: the first turn's
  Vec(Place) places;
  Vec(Node) nodes;
  uint32_t carried;
} Roll;

// ---------------------------------------------------------------- turns
static bool is_alike(const Func *f, const Op *a, const Op *b) {
  if (a->code != b->code || a->nargs != b->nargs || a->nres != b->nres ||
      a->nregions != b->nregions)
    return false;
  for (uint32_t i = 0; i < a->nres; i++)
    if (!type_eq(ir_type(f, a->res[i]), ir_type(f, b->res[i]))) return false;
  return a->code == OP_CONST || ir_same_attrs(a, b);
}

static bool is_plain(const Func *f, Value v) {
  TypeKind k = ir_type(f, v)->kind;
  return k == TK_ELEM || k == TK_FRAG;
}

// It may stand in front of the turns, if they do not change its operands.
static bool may_move(const Func *f, const Op *op) {
  if (!(op_info(op->code)->flags & OPF_PURE) || op->nregions) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!is_plain(f, op->args[i])) return false;
  return op->nres == 1 && is_plain(f, op->res[0]);
}

static void own_values(Roll *x, const Op *op, uint32_t turn) {
  for (uint32_t i = 0; i < op->nres; i++) x->turn[op->res[i]] = turn;
  for (uint32_t i = 0; i < op->nregions; i++) {
    const Region *r = op->regions[i];
    for (uint32_t k = 0; k < r->params.n; k++) x->turn[r->params.at[k]] = turn;
    for (const Op *o = r->first; o; o = o->next) own_values(x, o, turn);
  }
}

static bool is_any(const Op *op, const bool *of) {
  bool any = false;
  for (uint32_t i = 0; i < op->nargs; i++) any |= of[op->args[i]];
  return any;
}

static void find_loose(Roll *x) {
  for (const Op *op = x->r->first; op != x->first; op = op->next)
    for (uint32_t i = 0; i < op->nres; i++)
      x->loose[op->res[i]] = op->nregions || is_any(op, x->loose);
}

// Whose values are whose: of ops from x->first to the last turn's loop. What
// the first turn makes of loops in front is no more fixed than what the others
// make of the turn before.
static void find_owners(Roll *x) {
  uint32_t turn = 1;
  find_loose(x);
  for (const Op *op = x->first; turn <= x->turns; op = op->next) {
    bool fixed = may_move(x->f, op) && !is_any(op, x->loose);
    for (uint32_t i = 0; i < op->nargs; i++) fixed &= !x->turn[op->args[i]];
    if (fixed) x->fixed[op->res[0]] = true;
    else own_values(x, op, turn);
    turn += op == x->loop[turn - 1];
  }
}

static bool is_fixed(const Roll *x, const Op *op) {
  return op->nres == 1 && x->fixed[op->res[0]];
}

// ---------------------------------------------------------------- places
// Whether b, of a turn, is what a, of the first, is, and so for their regions.
static bool pair_ops(Roll *x, Op *a, Op *b, uint32_t turn, uint32_t *at) {
  if (!is_alike(x->f, a, b) || !ir_same_attrs(a, b)) return false;
  if (*at >= x->places.n) return false;
  x->places.at[(*at)++].op[turn] = b;
  for (uint32_t i = 0; i < a->nres; i++) x->of[b->res[i]] = a->res[i];
  for (uint32_t i = 0; i < a->nregions; i++) {
    const Region *p = a->regions[i], *q = b->regions[i];
    if (p->params.n != q->params.n) return false;
    for (uint32_t k = 0; k < p->params.n; k++)
      x->of[q->params.at[k]] = p->params.at[k];
    Op *o = q->first;
    for (Op *n = p->first; n; n = n->next, o = o->next)
      if (!o || !pair_ops(x, n, o, turn, at)) return false;
    if (o) return false;
  }
  return true;
}

static void add_places(Roll *x, Op *op) {
  vec_push(x->arena, &x->places, (Place){.op = {op}});
  for (uint32_t i = 0; i < op->nres; i++) x->of[op->res[i]] = op->res[i];
  for (uint32_t i = 0; i < op->nregions; i++) {
    const Region *r = op->regions[i];
    for (uint32_t k = 0; k < r->params.n; k++)
      x->of[r->params.at[k]] = r->params.at[k];
    for (Op *o = r->first; o; o = o->next) add_places(x, o);
  }
}

static Op *skip_fixed(const Roll *x, Op *op) {
  while (is_fixed(x, op)) op = op->next;
  return op;
}

static bool pair_turn(Roll *x, uint32_t turn) {
  Op *a = skip_fixed(x, x->first), *b = skip_fixed(x, x->loop[turn - 1]->next);
  for (uint32_t at = 0;;) {
    if ((a == x->loop[0]) != (b == x->loop[turn])) return false;
    if (a->code == OP_WGMMA || !pair_ops(x, a, b, turn, &at)) return false;
    if (a == x->loop[0]) return at == x->places.n;
    a = skip_fixed(x, a->next);
    b = skip_fixed(x, b->next);
  }
}

// The turns that are like the first.
static uint32_t pair_turns(Roll *x) {
  for (Op *op = skip_fixed(x, x->first);; op = skip_fixed(x, op->next)) {
    add_places(x, op);
    if (op == x->loop[0]) break;
  }
  uint32_t n = 1;
  while (n < x->turns && pair_turn(x, n)) n++;
  return n;
}

// ---------------------------------------------------------------- operands
static Node *node_of(const Roll *x, const Value *v) {
  for (uint32_t i = 0; i < x->nodes.n; i++)
    if (!memcmp(x->nodes.at[i].v, v, x->turns * sizeof *v))
      return &x->nodes.at[i];
  return NULL;
}

static bool add_node(Roll *x, NodeKind kind, const Value *v, Value next) {
  Node n = {.kind = kind, .next = next};
  memcpy(n.v, v, x->turns * sizeof *v);
  vec_push(x->arena, &x->nodes, n);
  return true;
}

// Has each turn its own?
static bool is_own(const Roll *x, const Value *v) {
  for (uint32_t k = 0; k < x->turns; k++)
    if (x->turn[v[k]] != k + 1 || x->of[v[k]] != v[0]) return false;
  return true;
}

// What each has of the one before, as the first turn's; 0: it is not so.
static Value carried(const Roll *x, const Value *v) {
  Value u = x->of[v[1]];
  for (uint32_t k = 1; k < x->turns; k++)
    if (x->turn[v[k]] != k || x->of[v[k]] != u) return 0;
  bool fits = u && is_plain(x->f, u) &&
              type_eq(ir_type(x->f, u), ir_type(x->f, v[0])) &&
              ir_info(x->f, u)->region == x->r;
  return fits ? u : 0;
}

static bool is_number(DType t) {
  return t == DT_F32 || t == DT_I32 || t == DT_I64;
}

static bool place(Roll *x, const Value *v, uint32_t depth);

// Made of numbers of the turns, in front of them.
static bool place_made(Roll *x, const Value *v, uint32_t depth) {
  const Op *first = ir_def(x->f, v[0]);
  if (!first || !may_move(x->f, first) || depth > MAX_DEPTH) return false;
  for (uint32_t k = 1; k < x->turns; k++) {
    const Op *op = ir_def(x->f, v[k]);
    if (!op || !is_alike(x->f, first, op)) return false;
  }
  if (first->code == OP_CONST)
    return is_number(ir_type(x->f, v[0])->dtype) && add_node(x, NUMBER, v, 0);
  for (uint32_t i = 0; i < first->nargs; i++) {
    Value a[MAX_TURNS];
    for (uint32_t k = 0; k < x->turns; k++) a[k] = ir_def(x->f, v[k])->args[i];
    if (!place(x, a, depth + 1)) return false;
  }
  return first->nargs && add_node(x, MADE, v, 0);
}

static bool place(Roll *x, const Value *v, uint32_t depth) {
  if (node_of(x, v)) return true;
  bool common = true, outside = true;
  for (uint32_t k = 0; k < x->turns; k++) {
    common &= v[k] == v[0];
    outside &= !x->turn[v[k]];
  }
  if (common && outside) return add_node(x, COMMON, v, 0);
  if (outside) return place_made(x, v, depth);
  if (is_own(x, v)) return add_node(x, OWN, v, 0);
  Value next = x->turn[v[0]] ? 0 : carried(x, v);
  x->carried += next != 0;
  return next && x->carried <= MAX_CARRIED && add_node(x, CARRIED, v, next);
}

static void operands_of(const Roll *x, const Place *p, uint32_t i, Value *v) {
  for (uint32_t k = 0; k < x->turns; k++) v[k] = p->op[k]->args[i];
}

static bool place_operands(Roll *x) {
  for (uint32_t i = 0; i < x->places.n; i++)
    for (uint32_t k = 0; k < x->places.at[i].op[0]->nargs; k++) {
      Value v[MAX_TURNS];
      operands_of(x, &x->places.at[i], k, v);
      if (!place(x, v, 0)) return false;
    }
  return true;
}

// ---------------------------------------------------------------- results
typedef struct Uses {
  const Roll *x;
  bool *of;  // by value of the first turn: what its last turn makes is needed
  bool ok;
} Uses;

static void find_uses(void *data, Op *op) {
  Uses *u = data;
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value v = op->args[i];
    if (!u->x->turn[v]) continue;
    u->ok &= u->x->turn[v] == u->x->turns && is_plain(u->x->f, v);
    u->of[u->x->of[v]] = true;
  }
}

static void walk_op(Op *op, WalkFn *fn, void *data) {
  fn(data, op);
  for (uint32_t i = 0; i < op->nregions; i++) ir_walk(op->regions[i], fn, data);
}

// By value of the first turn, what is needed behind the last. NULL: of another
// turn, too.
static bool *find_results(Roll *x) {
  Uses u = {x, NEWN(x->arena, bool, x->f->values.n), true};
  for (Op *op = x->loop[x->turns - 1]->next; op; op = op->next)
    walk_op(op, find_uses, &u);
  for (uint32_t i = 0; i < x->nodes.n; i++)
    if (x->nodes.at[i].kind == CARRIED) u.of[x->nodes.at[i].next] = false;
  for (Value v = 1; v < x->f->values.n; v++) x->carried += u.of[v];
  return u.ok && x->carried <= MAX_CARRIED ? u.of : NULL;
}

// ---------------------------------------------------------------- the loop
static Value const_like(Builder *b, const Op *c, const Type *t) {
  return ir_op(b, OP_CONST, NULL, 0, c->attrs, c->nattrs, t, 1, 0)->res[0];
}

// The number of turn i.
static Value number(Roll *x, Builder *b, Value i, const Node *n) {
  const Type all = *ir_type(x->f, n->v[0]), one = type_scalar(all.dtype);
  Value y = 0;
  for (uint32_t k = 0; k < x->turns; k++) {
    Value z = const_like(b, ir_def(x->f, n->v[k]), &one);
    if (k)
      z = ir_3(b, OP_SELECT, ir_2(b, OP_EQ, i, ir_const_i(b, DT_I32, k)), z, y);
    y = z;
  }
  if (all.kind != TK_FRAG) return y;
  return ir_op(b, OP_SPLAT, &y, 1, NULL, 0, &all, 1, 0)->res[0];
}

static Value made(Roll *x, Builder *b, const Node *n) {
  const Op *first = ir_def(x->f, n->v[0]);
  Value args[ELEM_ARGS];
  for (uint32_t i = 0; i < first->nargs; i++) {
    Value a[MAX_TURNS];
    for (uint32_t k = 0; k < x->turns; k++)
      a[k] = ir_def(x->f, n->v[k])->args[i];
    args[i] = node_of(x, a)->now;
  }
  const Type t = *ir_type(x->f, n->v[0]);
  return ir_op(b, first->code, args, first->nargs, first->attrs, first->nattrs,
               &t, 1, 0)
      ->res[0];
}

// What each turn has of the one before, and what is needed of the last alone.
typedef struct Carry {
  Value start[MAX_CARRIED], next[MAX_CARRIED];
  Type type[MAX_CARRIED];
  uint32_t n;
} Carry;

static void carry(Carry *c, const Func *f, Value start, Value next) {
  c->start[c->n] = start;
  c->next[c->n] = next;
  c->type[c->n++] = *ir_type(f, next);
}

static Carry carry_all(Roll *x, Builder *b, const bool *results) {
  Carry c = {0};
  const IrAttr zero = attr_i(AT_IVALUE, 0), zero_f = attr_f(AT_VALUE, 0);
  uint32_t n = x->f->values.n;
  for (uint32_t i = 0; i < x->nodes.n; i++)
    if (x->nodes.at[i].kind == CARRIED)
      carry(&c, x->f, x->nodes.at[i].v[0], x->nodes.at[i].next);
  for (Value v = 1; v < n; v++) {
    if (!results[v]) continue;
    const Type t = *ir_type(x->f, v);
    const IrAttr *a = dtype_is_float(t.dtype) ? &zero_f : &zero;
    carry(&c, x->f, ir_op(b, OP_CONST, NULL, 0, a, 1, &t, 1, 0)->res[0], v);
  }
  return c;
}

// Are there fragments among what is carried? Then all threads have the turns.
static bool have_threads(const Roll *x) {
  bool any = false;
  for (uint32_t i = 0; i < x->nodes.n; i++)
    any |= x->nodes.at[i].kind == CARRIED &&
           ir_type(x->f, x->nodes.at[i].v[0])->kind == TK_FRAG;
  return any;
}

// Counts of slots shall stay in uniform registers: those that go round are not
// known to be the same in all threads.
static Value told(const Roll *x, Builder *b, Value v) {
  const Type *t = ir_type(x->f, v);
  bool count = t->kind == TK_ELEM && t->dtype == DT_I32;
  return count && have_threads(x) ? ir_1(b, OP_UNIFORM, v) : v;
}

static void set_now(Roll *x, Builder *b, const Op *loop) {
  const Region *body = loop->regions[0];
  uint32_t at = 1;
  for (uint32_t i = 0; i < x->nodes.n; i++) {
    Node *n = &x->nodes.at[i];
    if (n->kind == COMMON || n->kind == OWN) n->now = n->v[0];
    if (n->kind == CARRIED) n->now = told(x, b, body->params.at[at++]);
    if (n->kind == NUMBER) n->now = number(x, b, body->params.at[0], n);
    if (n->kind == MADE) n->now = made(x, b, n);
  }
}

static void set_operands(Roll *x) {
  for (uint32_t i = 0; i < x->places.n; i++) {
    Place *p = &x->places.at[i];
    for (uint32_t k = 0; k < p->op[0]->nargs; k++) {
      Value v[MAX_TURNS];
      operands_of(x, p, k, v);
      p->op[0]->args[k] = node_of(x, v)->now;
    }
  }
}

// What no turn changes goes in front of `to`, the first turn in front of `end`,
// the others go.
static void move_turns(Roll *x, Op *to, Op *end) {
  Op *next, *op = x->first;
  for (uint32_t turn = 0; turn < x->turns; op = next) {
    next = op->next;
    if (is_fixed(x, op)) ir_move_before(op, to);
    else if (!turn) ir_move_before(op, end);
    else ir_erase(op);
    turn += op == x->loop[turn];
  }
}

// A value of the first turn that stands for what its last turn has.
static void replace_results(Roll *x, Op *from, const Carry *c, const Op *loop) {
  for (Value v = 1; v < x->values; v++) {
    if (x->turn[v] != x->turns || !is_plain(x->f, v)) continue;
    for (uint32_t i = 0; from && i < c->n; i++)
      if (x->of[v] == c->next[i]) {
        ir_replace_from(from, v, loop->res[i]);
        break;
      }
  }
}

// What stands in front of `end`, from the first op of its region on, waits for
// what needs it: the turns' numbers would live through the loops.
static void sink(Op *end) {
  for (Op *op = end ? end->prev : NULL, *prev; op; op = prev) {
    prev = op->prev;
    Op *use = op->nres == 1 ? ir_first_use(op->next, op->res[0]) : NULL;
    if (use) ir_move_before(op, use);
  }
}

static void roll(Roll *x, const bool *results) {
  Builder b = {.fn = x->f,
               .region = x->r,
               .before = x->first,
               .span = x->first->span};
  Op *behind = x->loop[x->turns - 1]->next;
  Carry c = carry_all(x, &b, results);
  Value args[3 + MAX_CARRIED] = {ir_const_i(&b, DT_I32, 0),
                                 ir_const_i(&b, DT_I32, x->turns),
                                 ir_const_i(&b, DT_I32, 1)};
  memcpy(args + 3, c.start, c.n * sizeof *c.start);
  Op *loop = ir_op(&b, OP_FOR, args, 3 + c.n, NULL, 0, c.type, c.n, 1);
  Region *body = loop->regions[0];
  ir_region_param(body, type_scalar(DT_I32), NULL);
  for (uint32_t i = 0; i < c.n; i++) ir_region_param(body, c.type[i], NULL);
  Builder in = {.fn = x->f, .region = body, .span = x->first->span};
  ir_yield(&in, c.next, c.n);
  in.before = body->last;
  set_now(x, &in, loop);
  Op *numbers = body->last->prev;
  set_operands(x);
  replace_results(x, behind, &c, loop);
  move_turns(x, loop, body->last);
  if (numbers) sink(numbers->next);
}

// ---------------------------------------------------------------- all
static void count_ops(void *data, Op *op) {
  (void)op;
  ++*(uint32_t *)data;
}

static void forget(Roll *x) {
  uint32_t n = x->f->values.n;
  x->loose = NEWN(x->arena, bool, n);
  x->fixed = NEWN(x->arena, bool, n);
  x->values = n;
  x->turn = NEWN(x->arena, uint32_t, n);
  x->of = NEWN(x->arena, Value, n);
  x->places.n = x->nodes.n = x->carried = 0;
}

// Ops of the first turn, with those inside.
static uint32_t first_ops(const Roll *x) {
  uint32_t n = 0;
  for (Op *op = x->first; op; op = op->next) {
    walk_op(op, count_ops, &n);
    if (op == x->loop[0]) break;
  }
  return n;
}

static void pair_all(Roll *x) {
  forget(x);
  find_owners(x);
  x->turns = pair_turns(x);
}

// Turns that end with loop[0] ..; false: too few are alike.
static bool roll_from(Ctx *cx, Roll *x) {
  if (x->turns < COST_ROLL_TURNS || first_ops(x) < COST_ROLL_OPS) return false;
  pair_all(x);
  if (x->turns < COST_ROLL_TURNS) return false;
  pair_all(x);
  bool *results = place_operands(x) ? find_results(x) : NULL;
  if (!results) return false;
  ctx_remark(cx, "%s: %u loops, one behind the other, are turns of one",
             x->f->name, x->turns);
  roll(x, results);
  return true;
}

// Turns of `each` loops behind x->first's, which is the first op.
static void find_turns(Roll *x, uint32_t each) {
  const Op *own[MAX_EACH];
  uint32_t n = 0;
  for (Op *op = x->first; op && n < MAX_TURNS * each; op = op->next) {
    if (op->code != OP_FOR) continue;
    if (n >= each && !is_alike(x->f, own[n % each], op)) break;
    if (n < each) own[n] = op;
    if (n % each == each - 1) x->loop[n / each] = op;
    n++;
  }
  x->turns = n / each;
}

static void roll_behind(Ctx *cx, Func *f, Op *before) {
  bool done = false;
  for (uint32_t each = 1; each <= MAX_EACH && !done; each++) {
    Roll x = {.f = f, .r = before->parent, .arena = &cx->scratch};
    x.first = before->next;
    find_turns(&x, each);
    done = roll_from(cx, &x);
  }
}

static void region(Ctx *cx, Func *f, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) region(cx, f, op->regions[i]);
    if (op->code == OP_FOR) roll_behind(cx, f, op);
  }
}

bool pass_roll_loops(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    region(cx, m->funcs.at[i], m->funcs.at[i]->body);
  return true;
}
