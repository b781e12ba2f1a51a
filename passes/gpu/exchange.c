// What groups of one task tell each other: memory and barriers for it.
//
//   %y = gjoin(%x) {kind = max}        sstore(slot(%a, %wg), %x) {trans}
//                                 ->   bar_sync(1)
//                                      %y = max(sload(slot(%a, 0)), ..)
// What is joined together has one barrier. A tile is added up in one buffer,
// group by group.
// A buffer is written again when all have read it: between two ops with one
// buffer stands the barrier of another, as each has its own in a region, and
// those of loops have others than those around. A region with a single one has
// a second barrier in front of it.
#include "passes/gpu/exchange.h"

#include "ir/target.h"
#include "passes/gpu/gpu.h"

// Numbers from MAX_JOINS on are those of tiles that one group makes.
enum { MAX_BUFFERS = 32, MAX_JOINS = 1024 };

typedef struct Shared {
  Type type;
  uint32_t depth, number;  // of the region, of the op in it
  Value v;
} Shared;

typedef struct Exchange {
  Func *f;
  Value wg;
  uint32_t groups;
  Shared all[MAX_BUFFERS];
  uint32_t n;
  uint32_t tiles;  // that one group makes for all
} Exchange;

static bool is_one(const Op *op) {
  return op->code == OP_GJOIN;
}

static Value i32(Builder *b, int64_t n) {
  return ir_const_i(b, DT_I32, n);
}

static Value buffer(Exchange *x, Type t, uint32_t depth, uint32_t number) {
  for (uint32_t i = 0; i < x->n; i++)
    if (type_eq(&x->all[i].type, &t) && x->all[i].depth == depth &&
        x->all[i].number == number)
      return x->all[i].v;
  Builder b = {.fn = x->f,
               .region = x->f->body,
               .before = x->f->body->first->next,
               .span = x->f->span};
  Value v = ir_op(&b, OP_SALLOC, NULL, 0, NULL, 0, &t, 1, 0)->res[0];
  if (x->n < MAX_BUFFERS) x->all[x->n++] = (Shared){t, depth, number, v};
  return v;
}

static void barrier(const Exchange *x, Builder *b) {
  IrAttr at = attr_i(AT_THREADS, (int64_t)x->groups * HW_GROUP_THREADS);
  Value id = i32(b, HW_TASK_BARRIER);
  ir_op(b, OP_BAR_SYNC, &id, 1, &at, 1, NULL, 0, 0);
}

static bool is_tile(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE;
}

static Value slot(Builder *b, Value all, Value i, Type t) {
  Value args[] = {all, i};
  return ir_op(b, OP_SLOT, args, 2, NULL, 0, &t, 1, 0)->res[0];
}

// What a group has put into the buffer.
static Value read(const Exchange *x, Builder *b, const Op *op, Value all,
                  Value group) {
  const Type t = *ir_type(x->f, op->res[0]);
  Type one = *ir_type(x->f, all), word = type_scalar(DT_I32);
  IrAttr trans = attr_i(AT_TRANS, 1);
  if (t.kind == TK_ELEM) {
    Value args[] = {all, group};
    Value z = ir_op(b, OP_SGET, args, 2, NULL, 0, &word, 1, 0)->res[0];
    z = ir_op(b, OP_UNIFORM, &z, 1, NULL, 0, &word, 1, 0)->res[0];
    return ir_2(b, OP_NE, z, i32(b, 0));
  }
  one.ext[2] = 1;
  Value from = slot(b, all, group, one);
  return ir_op(b, OP_SLOAD, &from, 1, &trans, 1, &t, 1, 0)->res[0];
}

// The same in all groups: of two each joins its own with the other's, more join
// what all have in one order.
static Value joined(const Exchange *x, Builder *b, const Op *op, Value all) {
  RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  Value y = 0;
  if (x->groups == 2) {
    Value other = ir_2(b, OP_SUB, i32(b, 1), x->wg);
    return ir_combine(b, k, op->args[0], read(x, b, op, all, other));
  }
  for (uint32_t g = 0; g < x->groups; g++) {
    Value z = read(x, b, op, all, i32(b, g));
    y = y ? ir_combine(b, k, y, z) : z;
  }
  return y;
}

static void put(Exchange *x, Builder *b, const Op *op, Value all) {
  const Type *t = ir_type(x->f, op->args[0]);
  IrAttr trans = attr_i(AT_TRANS, 1);
  Value args[] = {all, op->args[0], x->wg};
  if (t->kind == TK_ELEM) {
    Value set[] = {all, x->wg, ir_cast(b, DT_I32, op->args[0])};
    ir_op(b, OP_SSET, set, 3, NULL, 0, NULL, 0, 0);
  } else {
    Type one = *ir_type(x->f, all);
    one.ext[2] = 1;
    args[0] = slot(b, all, x->wg, one);
    ir_op(b, OP_SSTORE, args, 2, &trans, 1, NULL, 0, 0);
  }
}

static Type memory_of(const Exchange *x, const Op *op) {
  const Type *t = ir_type(x->f, op->res[0]);
  if (t->kind == TK_ELEM) return type_smem(DT_I32, 1, 1, 4, LY_ROW);
  if (is_tile(x->f, op->res[0]))
    return lower_smem_type(t->dtype, t->ext[0], t->ext[1]);
  return type_smem(t->dtype, x->groups, 1, t->ext[0], LY_ROW);
}

// Is op joined together with the one in front of it?
static bool goes_on(const Func *f, const Op *op) {
  const Op *prev = op->code == OP_GJOIN ? op->prev : NULL;
  return prev && prev->code == OP_GJOIN && !ir_mentions(op, prev->res[0]) &&
         !is_tile(f, op->res[0]) && !is_tile(f, prev->res[0]);
}

// Group g's turn: the first puts its tile, others join theirs with what is
// there.
static void take_turn(Exchange *x, Builder *b, const Op *op, Value all,
                      uint32_t g) {
  const Type t = *ir_type(x->f, op->res[0]);
  Value args[] = {all, op->args[0]};
  Value mine = ir_2(b, OP_EQ, x->wg, i32(b, g));
  Op *branch = ir_op(b, OP_IF, &mine, 1, NULL, 0, NULL, 0, 2);
  Builder in = *b;
  in.before = NULL;
  in.region = branch->regions[0];
  if (g) {
    Value sum = ir_op(&in, OP_SLOAD, &all, 1, NULL, 0, &t, 1, 0)->res[0];
    RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
    args[1] = ir_combine(&in, k, sum, args[1]);
  }
  ir_op(&in, OP_SSTORE, args, 2, NULL, 0, NULL, 0, 0);
  ir_yield(&in, NULL, 0);
  in.region = branch->regions[1];
  ir_yield(&in, NULL, 0);
}

// Tiles are large: they have one buffer, which groups use in turn.
static Op *lower_tile(Exchange *x, Builder *b, Op *op) {
  const Type t = *ir_type(x->f, op->res[0]);
  Value all = buffer(x, memory_of(x, op), 0, 0);
  Op *next = op->next;
  for (uint32_t g = 0; g < x->groups; g++) {
    barrier(x, b);
    take_turn(x, b, op, all, g);
  }
  barrier(x, b);
  Value y = ir_op(b, OP_SLOAD, &all, 1, NULL, 0, &t, 1, 0)->res[0];
  ir_replace_uses(x->f, op->res[0], y);
  ir_erase(op);
  return next;
}

// The owner puts its tile where products read it.
static void put_for_all(Exchange *x, Builder *b, Op *op) {
  Value all = buffer(x, *ir_type(x->f, op->res[0]), 0, MAX_JOINS + x->tiles++);
  Value args[] = {all, op->args[0]};
  Value mine = ir_2(b, OP_EQ, x->wg, i32(b, ir_attr_i(op, AT_OWNER, 0)));
  Op *branch = ir_op(b, OP_IF, &mine, 1, NULL, 0, NULL, 0, 2);
  Builder in = *b;
  in.before = NULL;
  in.region = branch->regions[0];
  ir_op(&in, OP_SSTORE, args, 2, NULL, 0, NULL, 0, 0);
  ir_bare(&in, OP_FENCE_ASYNC);
  ir_yield(&in, NULL, 0);
  in.region = branch->regions[1];
  ir_yield(&in, NULL, 0);
  ir_replace_uses(x->f, op->res[0], all);
  ir_erase(op);
}

// Tiles that are put together, when all have read what these buffers had.
static Op *lower_puts(Exchange *x, Op *op) {
  Builder b = {.fn = x->f,
               .region = op->parent,
               .before = op,
               .span = op->span};
  barrier(x, &b);
  while (op->code == OP_GPUT) {
    Op *next = op->next;
    b.before = next;
    put_for_all(x, &b, op);
    op = next;
  }
  barrier(x, &b);
  return op;
}

// Op and those that are joined with it, numbered from `at` on; what stands
// behind them.
static Op *lower(Exchange *x, Op *op, uint32_t depth, uint32_t *at,
                 bool single) {
  Builder b = {.fn = x->f,
               .region = op->parent,
               .before = op,
               .span = op->span};
  uint32_t first = *at;
  Op *end = op;
  if (is_tile(x->f, op->res[0])) return lower_tile(x, &b, op);
  if (single) barrier(x, &b);
  do {
    put(x, &b, end, buffer(x, memory_of(x, end), depth, (*at)++));
    end = end->next;
  } while (end && goes_on(x->f, end));
  b.before = end;
  barrier(x, &b);
  for (Op *o = op, *next; first != *at; o = next) {
    Value all = buffer(x, memory_of(x, o), depth, first++);
    next = o->next;
    Value y = joined(x, &b, o, all);
    ir_replace_uses(x->f, o->res[0], y);
    ir_erase(o);
  }
  return end;
}

// The next join behind `first`, if what stands between does not need what is
// joined there.
static Op *next_join(const Op *first) {
  for (Op *op = first->next; op; op = op->next) {
    if (ir_mentions(op, first->res[0])) return NULL;
    if (op->code == OP_GJOIN) return op;
    if (op->nregions || !(op_info(op->code)->flags & OPF_PURE)) return NULL;
  }
  return NULL;
}

static void bring_together(const Func *f, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    Op *next = op->code == OP_GJOIN && !goes_on(f, op) ? next_join(op) : NULL;
    while (next && op->next != next) ir_move_before(op->next, op);
  }
}

// The next tile behind `first` that one group makes for all, if what it is put
// of is there.
static Op *next_put(const Func *f, const Op *first) {
  for (Op *op = first->next; op && !op->nregions; op = op->next) {
    if (op->code != OP_GPUT) continue;
    const Op *made = ir_def(f, op->args[0]);
    for (const Op *o = first; o != op; o = o->next)
      if (o == made) return NULL;
    return op;
  }
  return NULL;
}

static void bring_puts(const Func *f, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    Op *next = op->code == OP_GPUT ? next_put(f, op) : NULL;
    if (next && op->next != next) ir_move_before(next, op->next);
  }
}

static void region(Exchange *x, Region *r, uint32_t depth) {
  uint32_t n = 0, at = 0;
  bring_together(x->f, r);
  bring_puts(x->f, r);
  for (const Op *op = r->first; op; op = op->next)
    n += op->code == OP_GPUT || (is_one(op) && !goes_on(x->f, op));
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++)
      region(x, op->regions[i], depth + 1);
    if (is_one(op)) next = lower(x, op, depth, &at, n == 1);
    else if (op->code == OP_GPUT) next = lower_puts(x, op);
  }
}

bool exchange_some(const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (is_one(op) || op->code == OP_GPUT) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (exchange_some(op->regions[i])) return true;
  }
  return false;
}

void exchange_lower(Func *f, Op *roles) {
  for (uint32_t i = 0; i < roles->nregions; i++) {
    Region *r = roles->regions[i];
    if (!exchange_some(r)) continue;
    Exchange x = {.f = f, .wg = r->params.at[0]};
    x.groups = (uint32_t)(ir_attr(roles, AT_TEAMS)->list[i] / HW_GROUP_THREADS);
    region(&x, r, 0);
  }
}
