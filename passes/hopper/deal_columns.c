// deal_columns: two groups of a task have half of the columns of its tiles
// each.
//
//   launch() {threads = 128}              launch() {threads = 256,
//                                                   groups = [128]}
//                                         %g = group()
//                                         %n = mul(%g, 64)
//   %x = sload(%q)                        %x = sload(%q, %n)
//     : frag<64x128xbf16,acc>         ->    : frag<64x64xbf16,acc>
//   %y = mma(%a, %k)                      %y = mma(%a, %k, %zero, %n)
//   %r = freduce(mul(%x, %y))             %r = gjoin(freduce(mul(%x, %y)))
//   gstore(%T, %y, %i, coord())           gstore(%T, %y, %i, coord() + %n)
//
//   %t = sput(%y)                         %t = sput(%y)
//     : smem<64x128xbf16>                   : smem<64x64xbf16>
//   %p = mma(%x, %t)                      %p = gjoin(mma(%x, %t))
//   gstore(%P, %p)                        if(eq(%g, 0)) { gstore(%P, %p) }
//
// Gradients of a chunk, and what a phase in front of a recurrence finds of it,
// are tens of products one behind the other. Where their sums are more than a
// thread has registers, and tiles leave no room for another CTA, one group
// alone waits for each of its products and for what it has spilled. Columns of
// vectors know of each other by sums over them only, which groups join: numbers
// of rows, and products of steps, tiles of 64 x 64. What is made of these, as
// the inverse of a chunk, each group makes for itself, and one of them stores
// it. Not where both groups' tiles have no room, or where each group still
// needs far more registers than there are; sums of levels count as the loops
// that they will be. Level frag; sm_90a, programs without
// a loop. Needs: lower_gpu; run dce behind it. Tests: test/passes/deal_columns.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "ir/target.h"
#include "passes/hopper/rings.h"
#include "passes/support/cost.h"

enum { GROUPS = 2 };

typedef struct Deal {
  Func *f;
  uint32_t known;  // values in front of the pass
  Value *half;     // by value: its columns that a group has, or 0
  bool *summed;    // by value: made of sums over columns
  bool *waits;     // by value: groups may keep their parts of it apart
  bool *apart;     // by value: and join no tile that is made of it
  bool *stays;     // by value: nothing needs all of it
  bool *part;      // by value: a group has a part, all of which add up to it
  Value *joined;   // by value, a part: the sum of all, or 0
  Value group;     // its number
  Value first;     // of a group's columns
  int64_t tiles;   // that one of them stores, so far
  Value mine;      // bool: what all groups have is this one's to store, to add
  Builder b;
  Vec(Op *) stores;  // of parts
  Arena *arena;
} Deal;

// ---------------------------------------------------------------- types
static bool is_acc(const Type *t) {
  return t->kind == TK_FRAG && t->layout == LY_ACC && !t->partial;
}

// As wide as two groups' panels.
static bool is_wide_tile(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return is_acc(t) && t->slice == SLICE_NONE && t->ext[1] == GROUPS * HW_PANEL;
}

static bool is_columns(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return is_acc(t) && t->slice == SLICE_COL && t->ext[0] == GROUPS * HW_PANEL;
}

// Such a tile in shared memory.
static bool is_wide_put(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  return op && op->code == OP_SPUT && is_wide_tile(f, op->args[0]);
}

static bool is_wide(const Func *f, Value v) {
  return is_wide_tile(f, v) || is_wide_put(f, v);
}

static Type half_of(const Func *f, Value v) {
  Type t = *ir_type(f, v);
  t.ext[t.slice == SLICE_NONE] /= GROUPS;
  return t;
}

static bool is_plain(const Op *op) {
  return op->nres == 1 && !op->nregions && op->nargs <= ELEM_ARGS &&
         op_info(op->code)->flags & OPF_ELEM;
}

// ---------------------------------------------------------------- check
// A slice of columns can be made, or loaded, of half of them.
static bool can_halve(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  if (!is_columns(f, v)) return ir_type(f, v)->kind == TK_ELEM;
  if (!op) return false;
  if (op->code == OP_FREDUCE) return is_wide_tile(f, op->args[0]);
  if (op->code == OP_COORD || op->code == OP_CONST || op->code == OP_SPLAT)
    return true;
  bool loads = op->code == OP_GLOAD && !ir_attr_i(op, AT_MASKED, 0);
  if (!loads && !is_plain(op)) return false;
  for (uint32_t i = loads; i < op->nargs; i++)
    if (!can_halve(f, op->args[i])) return false;
  return true;
}

// Is it known in halves only: a sum of a wide tile's rows, or made of such?
static bool is_halved(const Func *f, Value v) {
  const Op *op = is_columns(f, v) ? ir_def(f, v) : NULL;
  bool some = op && op->code == OP_FREDUCE && is_wide_tile(f, op->args[0]);
  for (uint32_t i = 0; op && is_plain(op) && i < op->nargs; i++)
    some |= is_halved(f, op->args[i]);
  return some;
}

static bool can_store(const Func *f, const Op *op) {
  if (ir_attr_i(op, AT_MASKED, 0) || ir_attr_i(op, AT_ADD, 0)) return false;
  if (!is_wide_tile(f, op->args[1]) && !is_halved(f, op->args[1])) return true;
  for (uint32_t i = 2; i < op->nargs; i++) {
    const Type *t = ir_type(f, op->args[i]);
    if (t->kind == TK_FRAG && t->slice != SLICE_ROW &&
        !can_halve(f, op->args[i]))
      return false;
  }
  return true;
}

static bool can_spread(const Func *f, const Op *op) {
  return ir_type(f, op->args[0])->slice != SLICE_COL ||
         can_halve(f, op->args[0]);
}

static bool can_multiply(const Func *f, const Op *op) {
  const Type *b = ir_type(f, op->args[1]);
  bool columns = ir_attr_i(op, AT_TRANS, 0) || !is_wide_put(f, op->args[1]);
  return op->nargs <= 3 && !ir_attr(op, AT_SPANS) && b->layout != LY_ROW &&
         dtype_size(b->dtype) == 2 && !is_wide(f, op->args[0]) && columns;
}

// A product of steps that is summed over the columns: each group has a part.
static bool can_contract(const Func *f, const Op *op) {
  const Type *t = ir_type(f, op->res[0]);
  return op->nargs <= 3 && !ir_attr(op, AT_SPANS) && is_acc(t) &&
         t->ext[0] == HW_PANEL && t->ext[1] == HW_PANEL &&
         is_wide(f, op->args[0]) && is_wide_put(f, op->args[1]) &&
         !ir_attr_i(op, AT_TRANS, 0) && !ir_attr_i(op, AT_TRANSA, 0);
}

static bool can_sum(const Func *f, const Op *op) {
  RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  const Type *t = ir_type(f, op->res[0]);
  return ir_attr_i(op, AT_POS, 0) == 1 && t->slice == SLICE_ROW &&
         t->dtype == DT_F32 && (k == RK_SUM || k == RK_MAX || k == RK_MIN);
}

// Which rule an op with a wide tile has; others have none.
typedef enum Rule {
  REFUSED,
  PLAIN,
  READ,
  PRODUCT,
  CONTRACT,
  SUM,
  VOTE,
  STORE
} Rule;

static Rule rule_of(const Func *f, const Op *op) {
  if (is_plain(op)) return PLAIN;
  switch (op->code) {
  case OP_CONST:
  case OP_SPLAT: return PLAIN;
  case OP_BCAST: return can_spread(f, op) ? PLAIN : REFUSED;
  case OP_SLOAD:
    return op->nargs == 1 && !ir_attr_i(op, AT_TRANS, 0) ? READ : REFUSED;
  case OP_SPUT: return PLAIN;
  case OP_MMA:
    if (can_contract(f, op)) return CONTRACT;
    return is_wide_tile(f, op->res[0]) && can_multiply(f, op) ? PRODUCT
                                                              : REFUSED;
  case OP_FREDUCE:
    if (ir_attr_i(op, AT_POS, 0) == 0) return PLAIN;
    return can_sum(f, op) ? SUM : REFUSED;
  case OP_VOTE: return can_halve(f, op->args[0]) ? VOTE : REFUSED;
  case OP_GSTORE: return can_store(f, op) ? STORE : REFUSED;
  default: return REFUSED;
  }
}

static bool has_wide(const Func *f, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_wide(f, op->args[i]) || is_halved(f, op->args[i])) return true;
  for (uint32_t i = 0; i < op->nres; i++)
    if (is_wide_tile(f, op->res[i])) return true;
  return false;
}

// Straight code, and wide products in it.
static bool can_deal(const Func *f) {
  uint32_t products = 0;
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->nregions || (op->code == OP_GSTORE && !can_store(f, op)))
      return false;
    if (!has_wide(f, op)) continue;
    if (rule_of(f, op) == REFUSED) return false;
    products += op->code == OP_MMA && is_wide_tile(f, op->res[0]);
  }
  return products > 0;
}

// ---------------------------------------------------------------- parts
static bool is_tile(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE;
}

// Groups can join it.
static bool is_joinable_slice(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return is_acc(t) && t->slice == SLICE_ROW && t->dtype == DT_F32;
}

static bool is_joinable(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  bool tile = is_acc(t) && t->slice == SLICE_NONE && t->dtype == DT_F32 &&
              t->ext[0] == HW_PANEL && t->ext[1] == HW_PANEL;
  return tile || is_joinable_slice(f, v);
}

// Makes a tile of a slice, which has fewer numbers to join.
static bool spreads(const Op *op) {
  return op->code == OP_BCAST || op->code == OP_SPLAT;
}

static bool is_part(const Deal *d, Value v) {
  return v < d->known && d->part[v];
}

static bool is_summed(const Deal *d, Value v) {
  return v < d->known && d->summed[v];
}

// Is op of the sum of some operands, of which v is one, the sum of what it is
// of each?
static bool is_linear(const Deal *d, const Op *op, Value v) {
  if (op->nres != 1 || has_wide(d->f, op) ||
      ir_type(d->f, op->res[0])->dtype != DT_F32)
    return false;
  switch (op->code) {
  case OP_ADD:
  case OP_SUB:
  case OP_NEG:
  case OP_BCAST:
  case OP_SPLAT:
  case OP_RELAYOUT: return true;
  case OP_SELECT: return op->args[0] != v;
  case OP_MUL: return !is_summed(d, op->args[op->args[0] == v]);
  case OP_FREDUCE: return ir_attr_i(op, AT_KIND, RK_SUM) == RK_SUM;
  default: return false;
  }
}

static bool is_sum_of_wide(const Func *f, const Op *op) {
  return op->code == OP_FREDUCE && is_wide_tile(f, op->args[0]);
}

static bool is_contract(const Func *f, const Op *op) {
  return op->code == OP_MMA && can_contract(f, op);
}

// What op, which needs operand i, allows.
static void see_use(Deal *d, const Op *op, uint32_t i) {
  Value v = op->args[i], r = op->nres ? op->res[0] : 0;
  bool linear = is_linear(d, op, v) || (i == 2 && is_contract(d->f, op));
  bool on = linear && (spreads(op) ? d->apart[r] : d->waits[r]);
  d->apart[v] &= (linear && d->apart[r]) || is_joinable_slice(d->f, v);
  d->waits[v] &= on || is_joinable(d->f, v);
  d->stays[v] &= on;
}

// Parts are joined as late as can be, so that groups meet seldom; a tile where
// anything needs all of it, once.
static void find_parts(Deal *d) {
  const Region *r = d->f->body;
  for (Value v = 0; v < d->known; v++)
    d->waits[v] = d->apart[v] = d->stays[v] = true;
  for (const Op *op = r->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nres; i++) {
      bool some = is_sum_of_wide(d->f, op) || is_contract(d->f, op);
      for (uint32_t k = 0; k < op->nargs; k++) some |= d->summed[op->args[k]];
      d->summed[op->res[i]] = some;
    }
  for (const Op *op = r->last; op; op = op->prev)
    for (uint32_t i = 0; i < op->nargs; i++) see_use(d, op, i);
}

static Value join(Deal *d, Value v) {
  IrAttr kind = attr_i(AT_KIND, RK_SUM);
  if (!is_part(d, v)) return v;
  if (!d->joined[v])
    d->joined[v] =
        ir_op(&d->b, OP_GJOIN, &v, 1, &kind, 1, ir_type(d->f, v), 1, 0)->res[0];
  return d->joined[v];
}

// Of what all groups have one adds it.
static Value once(Deal *d, Value v) {
  const Type t = *ir_type(d->f, v);
  double k;
  if (ir_const_value(d->f, v, &k) && k == 0) return v;
  IrAttr zero = attr_f(AT_VALUE, 0);
  Value none = ir_op(&d->b, OP_CONST, NULL, 0, &zero, 1, &t, 1, 0)->res[0];
  Type bits = t;
  bits.dtype = DT_BOOL;
  Value is = d->mine;
  if (t.kind == TK_FRAG)
    is = ir_op(&d->b, OP_SPLAT, &is, 1, NULL, 0, &bits, 1, 0)->res[0];
  return ir_3(&d->b, OP_SELECT, is, v, none);
}

// An op of parts makes a part, or of what they add up to the whole.
static void take_parts(Deal *d, Op *op) {
  bool some = false, linear = true;
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value v = op->args[i];
    if (is_part(d, v) && is_tile(d->f, v) && !d->stays[v])
      op->args[i] = join(d, v);
    if (!is_part(d, op->args[i])) continue;
    some = true;
    linear &= is_linear(d, op, op->args[i]);
  }
  if (!some) return;
  linear = linear && (spreads(op) ? d->apart : d->waits)[op->res[0]];
  bool adds = op->code == OP_ADD || op->code == OP_SUB || op->code == OP_SELECT;
  for (uint32_t i = op->code == OP_SELECT; i < op->nargs; i++)
    if (!linear) op->args[i] = join(d, op->args[i]);
    else if (adds && !is_part(d, op->args[i]))
      op->args[i] = once(d, op->args[i]);
  if (!linear && op->code == OP_SELECT) op->args[0] = join(d, op->args[0]);
  if (linear) d->part[op->res[0]] = true;
}

// ---------------------------------------------------------------- rewrite
static Value made(Deal *d, OpCode c, const Value *args, uint32_t n,
                  const Op *like, Type t) {
  return ir_op(&d->b, c, args, n, like->attrs, like->nattrs, &t, 1, 0)->res[0];
}

// The group's columns of v.
static Value half(Deal *d, Value v) {
  if (!is_wide(d->f, v) && !is_columns(d->f, v)) return v;
  if (d->half[v]) return d->half[v];
  const Op *op = ir_def(d->f, v);
  Type t = half_of(d->f, v);
  Value args[MAX_AXES + 2];
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = half(d, op->args[i]);
  Value x = made(d, op->code, args, op->nargs, op, t);
  if (op->code == OP_COORD) {
    Value at = ir_op(&d->b, OP_SPLAT, &d->first, 1, NULL, 0, &t, 1, 0)->res[0];
    x = ir_2(&d->b, OP_ADD, at, x);
  }
  return d->half[v] = x;
}

static Value product(Deal *d, const Op *op) {
  Type t = half_of(d->f, op->res[0]);
  IrAttr zero = attr_f(AT_VALUE, 0);
  Value c = op->nargs > 2
                ? half(d, op->args[2])
                : ir_op(&d->b, OP_CONST, NULL, 0, &zero, 1, &t, 1, 0)->res[0];
  bool own = is_wide_put(d->f, op->args[1]);
  Value args[] = {op->args[0], half(d, op->args[1]), c, d->first};
  return made(d, OP_MMA, args, own ? 3 : 4, op, t);
}

static void contract(Deal *d, Op *op) {
  for (uint32_t i = 0; i < 2; i++) op->args[i] = half(d, op->args[i]);
  if (op->nargs > 2) {
    Value c = op->args[2];
    bool part = is_part(d, c) && d->stays[c];
    op->args[2] = part ? c : once(d, join(d, c));
  }
  d->part[op->res[0]] = true;
}

// What all groups find.
static void join_behind(Deal *d, Op *op) {
  Value r = op->res[0];
  IrAttr kind = *ir_attr(op, AT_KIND);
  d->b.before = op->next;
  Op *join = ir_op(&d->b, OP_GJOIN, &r, 1, &kind, 1, ir_type(d->f, r), 1, 0);
  ir_replace_from(join->next, r, join->res[0]);
  d->part[r] = false;
}

static void vote(Deal *d, Op *op) {
  op->args[0] = half(d, op->args[0]);
  join_behind(d, op);
}

// Largest and least numbers are joined at once.
static void sum(Deal *d, Op *op) {
  Value r = op->res[0];
  op->args[0] = half(d, op->args[0]);
  d->part[r] = ir_attr_i(op, AT_KIND, RK_SUM) == RK_SUM;
  if (!d->part[r] || !d->waits[r]) join_behind(d, op);
}

static Value read(Deal *d, const Op *op) {
  Value args[] = {op->args[0], d->first};
  return made(d, OP_SLOAD, args, 2, op, half_of(d->f, op->res[0]));
}

// A tile is stored whole, through shared memory: they take turns.
static void store_in_turn(Deal *d, Op *op) {
  Value turn = ir_const_i(&d->b, DT_I32, d->tiles++ % GROUPS);
  Value is = ir_2(&d->b, OP_EQ, d->group, turn);
  op->args[1] = join(d, op->args[1]);
  Op *branch = ir_op(&d->b, OP_IF, &is, 1, NULL, 0, NULL, 0, 2);
  for (uint32_t i = 0; i < 2; i++) {
    Builder in = d->b;
    in.region = branch->regions[i], in.before = NULL;
    if (i == 0)
      ir_op(&in, OP_GSTORE, op->args, op->nargs, op->attrs, op->nattrs, NULL, 0,
            0);
    ir_yield(&in, NULL, 0);
  }
  ir_erase(op);
}

// What all groups have one of them stores.
static void store_once(Deal *d, Op *op) {
  Value args[MAX_AXES + 3];
  if (is_tile(d->f, op->args[1])) {
    store_in_turn(d, op);
    return;
  }
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = op->args[i];
  args[1] = join(d, args[1]);
  args[op->nargs] = d->mine;
  IrAttr masked = attr_i(AT_MASKED, 1);
  ir_op(&d->b, OP_GSTORE, args, op->nargs + 1, &masked, 1, NULL, 0, 0);
  ir_erase(op);
}

// Parts are stored at the end, where all are joined together.
static void store_parts(Deal *d) {
  d->b.before = NULL;
  for (uint32_t i = 0; i < d->stores.n; i++) join(d, d->stores.at[i]->args[1]);
  for (uint32_t i = 0; i < d->stores.n; i++) store_once(d, d->stores.at[i]);
}

static void rewrite_op(Deal *d, Op *op) {
  d->b.before = op;
  d->b.span = op->span;
  if (op->code == OP_GSTORE && !is_wide_tile(d->f, op->args[1]) &&
      !is_halved(d->f, op->args[1])) {
    if (is_part(d, op->args[1])) vec_push(d->arena, &d->stores, op);
    else store_once(d, op);
    return;
  }
  if (is_contract(d->f, op)) {
    contract(d, op);
    return;
  }
  take_parts(d, op);
  if (!has_wide(d->f, op)) return;
  switch (rule_of(d->f, op)) {
  case PLAIN: half(d, op->res[0]); break;
  case READ: d->half[op->res[0]] = read(d, op); break;
  case PRODUCT: d->half[op->res[0]] = product(d, op); break;
  case SUM: sum(d, op); break;
  case VOTE: vote(d, op); break;
  case STORE:
    for (uint32_t i = 1; i < op->nargs; i++) op->args[i] = half(d, op->args[i]);
    break;
  default: break;
  }
}

// Backwards: what nothing needs any more.
static void erase_wide(Deal *d) {
  for (Op *op = d->f->body->last, *prev; op; op = prev) {
    prev = op->prev;
    bool old = op->nres == 1 && op->res[0] < d->known;
    bool wide = old && (has_wide(d->f, op) || is_halved(d->f, op->res[0]));
    if (wide && !ir_count_uses(d->f, op->res[0])) ir_erase(op);
  }
}

static void deal(Ctx *cx, Func *f) {
  Op *launch = f->body->first;
  Arena *a = &cx->scratch;
  uint32_t n = f->values.n;
  Deal d = {.f = f,
            .known = n,
            .half = NEWN(a, Value, n),
            .summed = NEWN(a, bool, n),
            .waits = NEWN(a, bool, n),
            .apart = NEWN(a, bool, n),
            .stays = NEWN(a, bool, n),
            .part = NEWN(a, bool, n),
            .joined = NEWN(a, Value, n),
            .arena = a};
  find_parts(&d);
  int64_t group = HW_GROUP_THREADS;
  Type i32 = type_scalar(DT_I32);
  ir_set_attr(f, launch, attr_i(AT_THREADS, GROUPS * group));
  ir_set_attr(f, launch, attr_list(AT_GROUPS, &group, 1));
  d.b = (Builder){.fn = f,
                  .region = f->body,
                  .before = launch->next,
                  .span = launch->span};
  d.group = ir_op(&d.b, OP_GROUP, NULL, 0, NULL, 0, &i32, 1, 0)->res[0];
  d.first = ir_2(&d.b, OP_MUL, d.group, ir_const_i(&d.b, DT_I32, HW_PANEL));
  d.mine = ir_2(&d.b, OP_EQ, d.group, ir_const_i(&d.b, DT_I32, 0));
  for (Op *op = d.b.before, *next; op; op = next) {
    next = op->next;
    rewrite_op(&d, op);
  }
  store_parts(&d);
  erase_wide(&d);
}

// ---------------------------------------------------------------- pass
// One group that has the multiprocessor alone, and more to keep than a thread
// has registers.
static bool is_crowded(Ctx *cx, Func *f, const Target *t) {
  const Op *launch = ir_launch(f);
  Rings rings;
  return launch && !ir_attr(launch, AT_GROUPS) &&
         ir_attr_i(launch, AT_THREADS, 0) == HW_GROUP_THREADS &&
         ir_has_steps(f) && hop_rings_plan(&rings, f, t) &&
         rings.occupancy == 1 &&
         ir_pressure(f, &cx->scratch).regs > COST_DEAL_PRESS;
}

// ---------------------------------------------------------------- sums
// Sums of products are made term by term, as each product is there: they are
// loops (reroll.c), which keep a sum and not its terms.
typedef struct Early {
  Func *f;
  uint32_t *at;  // by value: the number of its op, or of that it has come to
  Op **last;     // by number: the op, or the last that has come to it
} Early;

// The last product of steps that op is made of, element by element.
static uint32_t last_product(const Early *e, const Op *op) {
  uint32_t last = 0;
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Op *x = ir_def(e->f, op->args[i]);
    if (!x) continue;
    bool product = x->code == OP_MMA && is_joinable(e->f, x->res[0]);
    bool sum = x->code == OP_ADD || x->code == OP_SELECT;
    uint32_t n = product ? e->at[x->res[0]] : sum ? last_product(e, x) : 0;
    last = n > last ? n : last;
  }
  return last;
}

static bool is_late(const Early *e, Value v, uint32_t n) {
  return ir_def(e->f, v) && e->at[v] > n;
}

// Is all that op needs, and is not there behind number n, free to move?
static bool can_come(const Early *e, const Op *op, uint32_t n) {
  bool plain = is_plain(op) || spreads(op) || op->code == OP_CONST ||
               op->code == OP_COORD;
  for (uint32_t i = 0; i < op->nargs && plain; i++)
    if (is_late(e, op->args[i], n))
      plain = can_come(e, ir_def(e->f, op->args[i]), n);
  return plain;
}

// op goes behind number n, and what it needs that is not there.
static void come(Early *e, Op *op, uint32_t n) {
  uint32_t *at = &e->at[op->res[0]];
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_late(e, op->args[i], n)) come(e, ir_def(e->f, op->args[i]), n);
  if (e->last[*at] == op) e->last[*at] = op->prev;
  if (e->last[n]->next != op) ir_move_before(op, e->last[n]->next);
  e->last[n] = op;
  *at = n;
}

static void sum_early(Func *f, Arena *a) {
  Region *r = f->body;
  uint32_t n = 0, all = 1, sums = 0;
  for (const Op *op = r->first; op; op = op->next) all++;
  Op **last = NEWN(a, Op *, all), **sum = NEWN(a, Op *, all);
  Early e = {f, NEWN(a, uint32_t, f->values.n), last};
  for (Op *op = r->first; op; op = op->next) {
    last[++n] = op;
    for (uint32_t i = 0; i < op->nres; i++) e.at[op->res[i]] = n;
    if (op->code == OP_ADD && is_joinable(f, op->res[0])) sum[sums++] = op;
  }
  for (uint32_t i = 0; i < sums; i++) {
    uint32_t at = last_product(&e, sum[i]);
    if (at && is_late(&e, sum[i]->res[0], at) && can_come(&e, sum[i], at))
      come(&e, sum[i], at);
  }
}

// Do the tiles of both groups fit, with those that products in flight keep, and
// shared tiles that they store from? And need they few registers more than
// there are? Tried with a copy.
static bool has_room(Ctx *cx, const Module *m, uint32_t i, const Target *t) {
  Func *f = ir_copy(m, &cx->scratch)->funcs.at[i];
  Rings rings;
  sum_early(f, &cx->scratch);
  deal(cx, f);
  return hop_rings_plan(&rings, f, t) && rings.drains &&
         rings.left >= COST_DEAL_ROOM * GROUPS * HW_PANEL * HW_PANEL * 2 &&
         ir_pressure(f, &cx->scratch).regs <= COST_DEAL_MOST;
}

bool pass_deal_columns(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (can_deal(f) && is_crowded(cx, f, opt->target) &&
        has_room(cx, m, i, opt->target))
      deal(cx, f);
  }
  return true;
}
