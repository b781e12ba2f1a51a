// tile_scheduler: order of a kernel's tasks, and CTAs that do many of them.
//
//   launch() {threads = 256}               launch() {threads = 256, ctas = "persistent"}
//   %t = task()                            %c = cta(), %n = ntasks(), %g = nctas()
//   ..                               ->    for(%c, %n, %g) ({
//                                            ^(%u: i32):
//                                            %t = order of %u
//                                            ..
//                                          })
//
// Order: rows from the last to the first (the last have the most keys under
// causal masks: longest tasks first; the first where they have, as in kernels
// of gradients that have keys for rows), those of a few heads together, so that
// what these heads stream through fits into the L2 cache (FlashAttention-3's
// order, arXiv 2407.08608). Where heads are left over these come first: as the
// last ones their tasks would be too few for all CTAs. A head is a coordinate
// of the grid's entries but the last. Tasks of one size come head by head: less
// goes through the caches, and the products get the power (H200: 3 to 5 %). If
// those share nothing either they stay in their order, which costs two
// quotients less; so do those of few rows, which are one tile, or some beside
// each other, that have the same keys. Where a branch tells what a task without
// products does, a CTA has neighbours: every n-th task may be one of those that
// do most (norms of 32 heads of queries and 8 of keys, tiles of 8: 190 us, 83
// with what tasks_ahead then does). Where both ends of the keys move with the
// rows (windows, documents) nearby rows stream little, and all heads take
// turns: long tasks of the last heads would come last. Where arithmetic says
// what rows see only as many do as have all of that in the L2 cache (H200, 128
// heads of 2048 rows, windows of 1024, D 128: 10 % less time), beside what is
// added to memory (causal gradients in any order: 1 to 2 %). Tasks whose
// loops have bounds that vary are claimed one by one: a while loop that ends
// with claim(), if warp_specialize will have a producer to do so; else one CTA
// does one task, and only the order changes. The order gives a task's head and
// row: a producer does not find them again by quotients. Not in recurrences:
// ptxas then spills. Tasks that a phase in front has planned (task_plan) come
// in its order, and there are as many as it says. Level frag. Needs: lower_gpu.
// Tests: test/passes/tile_scheduler/.
#include "ir/pressure.h"
#include "ir/target.h"
#include "passes/support/cost.h"
#include "passes/support/relief.h"
#include "passes/hopper/rings.h"

enum { KIB = 1 << 10 };

typedef struct Tasks {
  Func *f;
  const Target *target;
  Builder b;     // where the order is computed
  Value task;    // the old task()
  bool *varies;  // by value: depends on the task
  bool uneven;
  bool kinds;      // a branch tells what a task does
  bool narrow;     // both ends of the keys vary
  const Op *loop;  // over the keys, if narrow
  bool handed;     // tasks are claimed by who hands them to others
  bool claims;     // one by one
  bool single;     // one tile has all rows, or all tiles the same keys
  const Op *plan;  // task_plan, or NULL
  Value most;      // its operand, in front of the loop over tasks
} Tasks;

static Value i32(Tasks *t, int64_t v) {
  return ir_const_i(&t->b, DT_I32, v);
}

static Value num(Tasks *t, OpCode c) {
  Type i = type_scalar(DT_I32);
  return ir_op(&t->b, c, NULL, 0, NULL, 0, &i, 1, 0)->res[0];
}

static Value dim_of(Tasks *t, Dim d) {
  int64_t k;
  if (dim_is_const(&t->f->mod->dims, d, &k)) return i32(t, k);
  Type i = type_scalar(DT_I32);
  IrAttr at = {.id = AT_DIM, .i = d};
  return ir_op(&t->b, OP_DIM, NULL, 0, &at, 1, &i, 1, 0)->res[0];
}

static Value two(Tasks *t, OpCode c, Value x, Value y) {
  return ir_2(&t->b, c, x, y);
}

// ---------------------------------------------------------------- analysis
// A bound of a loop over keys, for the rows of all groups.
static Value of_all(const Tasks *t, Value bound) {
  const Op *own = ir_def(t->f, bound);
  return own && own->code == OP_GROUP_BOUND ? own->args[0] : bound;
}

static void vary(Tasks *t, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    bool v = op->code == OP_TASK;
    if (v) t->task = op->res[0];
    for (uint32_t i = 0; i < op->nargs; i++) v = v || t->varies[op->args[i]];
    t->kinds |= op->code == OP_IF && v;
    if (op->code == OP_TASK_PLAN) t->plan = op;
    if (op->code == OP_FOR)
      t->uneven = t->uneven || t->varies[op->args[0]] || t->varies[op->args[1]];
    if (op->code == OP_FOR && loop_has_fill(op) && !t->narrow) {
      t->narrow = t->varies[of_all(t, op->args[0])];
      t->loop = op;
    }
    for (uint32_t i = 0; i < op->nregions; i++) {
      const Op *end = op->regions[i]->last;
      vary(t, op->regions[i]);
      for (uint32_t k = 0; end && k < end->nargs; k++)
        v = v || t->varies[end->args[k]];
    }
    for (uint32_t i = 0; i < op->nres; i++) t->varies[op->res[i]] = v;
  }
}

// ---------------------------------------------------------------- order
// Product of the extents of the tensor's axes but those of the tile.
static Value others(Tasks *t, const Type *tensor, const IrAttr *tile) {
  Value n = i32(t, 1);
  for (uint32_t i = 0; i < tensor->n; i++) {
    bool in = false;
    for (uint32_t k = 0; k < tile->n; k++) in = in || tile->list[k] == i;
    if (!in) n = two(t, OP_MUL, n, dim_of(t, tensor->size[i]));
  }
  return two(t, OP_MAX, n, i32(t, 1));
}

typedef struct Streams {
  Tasks *t;
  Value kib;      // a head's streams, 0: none yet
  Value sharers;  // heads of the grid that stream the same
  Value heads;
  int64_t bytes;  // of a row of all of them
  Map seen;       // tensors
} Streams;

static void stream(Streams *s, const Op *fill) {
  Tasks *t = s->t;
  const Type *tensor = ir_type(t->f, fill->args[0]);
  const IrAttr *tile = ir_attr(fill, AT_TILE);
  uint64_t old;
  if (map_get(&s->seen, fill->args[0], &old)) return;
  map_put(&s->seen, fill->args[0], 1);
  const Type *tile_type = ir_type(t->f, fill->res[0]);
  int64_t bytes = tile_type->ext[1] * (int64_t)dtype_size(tensor->dtype);
  Value rows = dim_of(t, tensor->size[tile->list[0]]);
  Value kib = bytes < KIB ? two(t, OP_FLOORDIV, rows, i32(t, KIB / bytes))
                          : two(t, OP_MUL, rows, i32(t, bytes / KIB));
  Value n = two(t, OP_FLOORDIV, s->heads, others(t, tensor, tile));
  s->bytes += bytes;
  s->kib = s->kib ? two(t, OP_ADD, s->kib, kib) : kib;
  s->sharers = s->sharers ? two(t, OP_MAX, s->sharers, n) : n;
}

// What steps add to memory goes through the cache too.
static void add_to(Streams *s, const Op *store) {
  Tasks *t = s->t;
  const Type *x = ir_type(t->f, store->args[1]);
  uint64_t old;
  if (x->kind != TK_FRAG || map_get(&s->seen, store->args[0], &old)) return;
  map_put(&s->seen, store->args[0], 1);
  s->bytes += x->ext[1] * (int64_t)dtype_size(x->dtype);
}

static void streams(Streams *s, const Region *r, bool loop) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_SFILL && loop) stream(s, op);
    if (op->code == OP_GSTORE && loop && ir_attr_i(op, AT_ADD, 0))
      add_to(s, op);
    for (uint32_t i = 0; i < op->nregions; i++)
      streams(s, op->regions[i], loop || op->code == OP_FOR);
  }
}

// A task's number, and what it is made of, or 0.
typedef struct Nth {
  Value task, row, head;
} Nth;

// What does not depend on the task's number.
typedef struct Order {
  Value rows, heads, together, group;  // group: tasks of `together` heads
  Value early;  // rows before those at a sequence's start, 0: all
  Value up;     // bool: the first rows come first; 0: the last ones do
  bool any;     // tasks of one size that share nothing
} Order;

// Does op decode the task's number, as its row or its head?
static bool decodes(const Tasks *t, const Op *op) {
  const Func *f = t->f;
  const GridDim *g = &f->grid.at[f->grid.n - 1];
  bool number = op->code == OP_MOD || op->code == OP_FLOORDIV;
  const Op *by = number ? ir_def(f, op->args[1]) : NULL;
  Dim rows = dim_ceildiv(&f->mod->dims, f->axes.at[g->axis].extent, g->tile);
  return by && op->args[0] == t->task && by->code == OP_DIM &&
         (Dim)ir_attr_i(by, AT_DIM, 0) == rows;
}

// op decodes the task, so that what it finds was there before; else 0.
static Value decoded(const Tasks *t, const Op *op, const Nth *n) {
  if (!n->row || !t->handed || !decodes(t, op)) return 0;
  return op->code == OP_MOD ? n->row : n->head;
}

// Do bounds of loops depend on which of its tiles of rows a task has?
static bool by_row(const Tasks *t, bool *of, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    bool row = op->code == OP_MOD && decodes(t, op);
    for (uint32_t i = 0; i < op->nargs; i++) row |= of[op->args[i]];
    for (uint32_t i = 0; i < op->nres; i++) of[op->res[i]] = row;
    if (op->code == OP_FOR && (of[op->args[0]] || of[op->args[1]])) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (by_row(t, of, op->regions[i])) return true;
  }
  return false;
}

// Where keys are read once: tiles of rows beside each other have the same keys.
static bool same_keys(Ctx *cx, const Tasks *t) {
  const Func *f = t->f;
  return ir_attr_i(f->body->first, AT_ONCE, 0) &&
         f->grid.at[f->grid.n - 1].tile > 1 &&
         !by_row(t, NEWN(&cx->scratch, bool, f->values.n), f->body);
}

static Value ceil_of(Tasks *t, Value n, Value by) {
  Value up = two(t, OP_SUB, by, i32(t, 1));
  return two(t, OP_FLOORDIV, two(t, OP_ADD, n, up), by);
}

// A copy of v for that task; false: something is read for it.
static bool copied(Tasks *t, const Nth *of, ValueMap *m, Value v) {
  Op *op = ir_def(t->f, v);
  if (vmap_get(m, v) != v) return true;
  if (!op) return ir_info(t->f, v)->region == t->f->body;
  const OpInfo *info = op_info(op->code);
  if (!(info->flags & OPF_PURE) || op->nregions || op->nres != 1) return false;
  Value known = decoded(t, op, of);
  if (known) {
    vmap_put(m, v, ir_cast(&t->b, ir_type(t->f, v)->dtype, known));
    return true;
  }
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!copied(t, of, m, op->args[i])) return false;
  ir_clone(&t->b, t->f, op, m, NULL);
  return true;
}

// Keys that a head's rows of a tile see, i32; 0: tables say that. Bounds are
// i64 where a sequence is as long as the product of two dims.
static Value band(Tasks *t, Value row) {
  ValueMap m = {.arena = t->f->mod->arena};
  Value lo = of_all(t, t->loop->args[0]), hi = of_all(t, t->loop->args[1]);
  Nth of = {row, row, i32(t, 0)};
  vmap_put(&m, t->task, row);
  if (!copied(t, &of, &m, lo) || !copied(t, &of, &m, hi)) return 0;
  Value n = two(t, OP_SUB, vmap_get(&m, hi), vmap_get(&m, lo));
  if (ir_type(t->f, n)->dtype == DT_I64)
    n = two(t, OP_MIN, n, ir_const_i(&t->b, DT_I64, INT32_MAX));
  Value one = i32(t, 1);
  return two(t, OP_MAX, ir_cast(&t->b, DT_I32, n), one);
}

// Heads that take turns: what their rows see, beside what the rows of all tasks
// at a time add to it, fits into the cache. Parts of the heads are of one size.
// If all fit there are two parts, but for the rows at a sequence's start, whose
// tasks are short: these come last.
static void in_turn(const Streams *s, Order *o) {
  Tasks *t = s->t;
  Value one = i32(t, 1), last = two(t, OP_SUB, o->rows, one);
  Value seen = t->handed ? band(t, last) : 0;
  o->together = s->heads;
  if (!seen) return;
  Value first = band(t, i32(t, 0));
  o->up = two(t, OP_LT, seen, first);
  seen = two(t, OP_MAX, seen, first);
  int64_t share =
      (int64_t)t->target->gpu.l2 * KIB * COST_L2_SHARE_NUM / COST_L2_SHARE_DEN;
  int64_t tile = ir_attr_i(t->f->body->first, AT_THREADS, 0) /
                 HW_GROUP_THREADS * HW_GROUP_ROWS;
  Value rows = i32(t, tile);
  Value flight = two(t, OP_MUL, num(t, OP_NCTAS), rows);
  Value room = two(t, OP_MIN, s->sharers, i32(t, COST_MOST_SHARERS));
  Value held = i32(t, share / s->bytes);
  room = two(t, OP_MUL, two(t, OP_MAX, room, one), held);
  room = two(t, OP_MAX, two(t, OP_SUB, room, flight), one);
  Value fit = two(t, OP_MAX, two(t, OP_FLOORDIV, room, seen), one);
  Value parts = two(t, OP_MAX, ceil_of(t, s->heads, fit), one);
  Value all = two(t, OP_LE, parts, one), pair = i32(t, 2);
  parts = ir_3(&t->b, OP_SELECT, all, pair, parts);
  o->together = two(t, OP_MAX, ceil_of(t, s->heads, parts), one);
  Value late = two(t, OP_FLOORDIV, seen, i32(t, tile));
  Value some = two(t, OP_AND, all, ir_1(&t->b, OP_NOT, o->up));
  late = ir_3(&t->b, OP_SELECT, some, late, i32(t, 0));
  Value zero = i32(t, 0);
  o->early = two(t, OP_MAX, two(t, OP_SUB, o->rows, late), zero);
}

// Heads whose streams fit into the cache together.
static Value together(Tasks *t, const Region *body, Order *o) {
  Streams s = {.t = t, .heads = o->heads, .seen = {.arena = t->f->mod->arena}};
  streams(&s, body, false);
  if (!s.kib) return i32(t, 1);
  if (!t->uneven) return two(t, OP_MAX, s.sharers, i32(t, 1));
  if (t->narrow) {
    in_turn(&s, o);
    return o->together;
  }
  int64_t share =
      (int64_t)t->target->gpu.l2 * COST_L2_SHARE_NUM / COST_L2_SHARE_DEN;
  Value one = i32(t, 1);
  Value kib = two(t, OP_MAX, s.kib, one);
  Value fit = two(t, OP_FLOORDIV, i32(t, share), kib);
  Value n = two(t, OP_MAX, fit, one);
  n = two(t, OP_MUL, n, two(t, OP_MAX, s.sharers, one));
  return two(t, OP_MIN, n, o->heads);
}

// Tiles along the grid's last entry.
static Value row_tiles(Tasks *t) {
  const GridDim *g = &t->f->grid.at[t->f->grid.n - 1];
  Value n = dim_of(t, t->f->axes.at[g->axis].extent);
  if (g->tile == 1) return n;
  n = two(t, OP_ADD, n, i32(t, g->tile - 1));
  return two(t, OP_FLOORDIV, n, i32(t, g->tile));
}

static Order order(Tasks *t, const Region *body) {
  Order o = {0};
  Value least = i32(t, 1);
  o.rows = two(t, OP_MAX, row_tiles(t), least);
  o.heads = two(t, OP_FLOORDIV, num(t, OP_NTASKS), o.rows);
  o.together = together(t, body, &o);
  double one = 0;
  o.any = !t->uneven && ir_const_value(t->f, o.together, &one) && one == 1;
  o.group = two(t, OP_MUL, o.together, o.rows);
  return o;
}

static Value back(Tasks *t, const Order *o, Value row) {
  return two(t, OP_SUB, two(t, OP_SUB, o->rows, i32(t, 1)), row);
}

static Nth made_of(Tasks *t, const Order *o, Value head, Value row) {
  if (o->up) row = ir_3(&t->b, OP_SELECT, o->up, back(t, o, row), row);
  Value task = two(t, OP_ADD, two(t, OP_MUL, head, o->rows), row);
  return (Nth){task, row, head};
}

// The u-th task: heads h0 .. h0 + n - 1 take turns, last rows first. Parts of
// the heads are counted from the last task: the one that has fewer heads comes
// first; as the last one it has too few tasks for all. A grid of rows alone has
// nothing to divide.
static Nth nth(Tasks *t, const Order *o, Value u) {
  if (o->any) return (Nth){u, 0, 0};
  if (t->f->grid.n == 1) {
    Value row = back(t, o, u);
    return made_of(t, o, i32(t, 0), row);
  }
  if (o->together == o->heads) {
    Value row = two(t, OP_FLOORDIV, u, o->heads);
    Value head = two(t, OP_SUB, u, two(t, OP_MUL, row, o->heads));
    return made_of(t, o, head, back(t, o, row));
  }
  Value before = 0, turn = o->together, size = o->group, rows = o->rows;
  if (o->early) {
    Value zero = i32(t, 0), cut = two(t, OP_MUL, o->heads, o->early);
    Value late = two(t, OP_LE, cut, u);
    Value rest = two(t, OP_SUB, o->rows, o->early);
    u = two(t, OP_SUB, u, ir_3(&t->b, OP_SELECT, late, cut, zero));
    turn = ir_3(&t->b, OP_SELECT, late, o->heads, turn);
    rows = ir_3(&t->b, OP_SELECT, late, rest, o->early);
    size = two(t, OP_MUL, turn, rows);
    before = ir_3(&t->b, OP_SELECT, late, zero, rest);
  }
  Value one = i32(t, 1), all = two(t, OP_MUL, o->heads, rows);
  u = two(t, OP_SUB, two(t, OP_SUB, all, one), u);
  Value g = two(t, OP_FLOORDIV, u, size);
  Value h0 = two(t, OP_MUL, g, turn);
  Value n = two(t, OP_MIN, turn, two(t, OP_SUB, o->heads, h0));
  Value r = two(t, OP_SUB, u, two(t, OP_MUL, g, size));
  Value row = two(t, OP_FLOORDIV, r, n);
  Value head = two(t, OP_ADD, h0, two(t, OP_SUB, r, two(t, OP_MUL, row, n)));
  if (before) row = two(t, OP_ADD, row, before);
  return made_of(t, o, head, row);
}

// ---------------------------------------------------------------- rewriting
static void reorder(Tasks *t) {
  Op *task = ir_def(t->f, t->task);
  t->b = (Builder){.fn = t->f,
                   .region = task->parent,
                   .before = task->next,
                   .span = task->span};
  Order o = order(t, t->f->body);
  Value u =
      ir_op(&t->b, OP_TASK, NULL, 0, NULL, 0, ir_type(t->f, t->task), 1, 0)
          ->res[0];
  ir_replace_uses(t->f, t->task, nth(t, &o, u).task);
  ir_erase(task);
}

// The tasks of this CTA, from lo to hi.
static void neighbours(Tasks *t, Value *lo, Value *hi) {
  Value c = num(t, OP_CTA), n = num(t, OP_NTASKS), g = num(t, OP_NCTAS);
  Value each = two(t, OP_FLOORDIV, n, g);
  Value rest = two(t, OP_SUB, n, two(t, OP_MUL, each, g));
  Value over = two(t, OP_MIN, c, rest);
  *lo = two(t, OP_ADD, two(t, OP_MUL, c, each), over);
  Value more = ir_cast(&t->b, DT_I32, two(t, OP_LT, c, rest));
  *hi = two(t, OP_ADD, *lo, two(t, OP_ADD, each, more));
}

// A loop over the tasks of this CTA; the builder is left in its body.
static Value static_loop(Tasks *t) {
  Value args[3];
  if (t->kinds) {
    neighbours(t, &args[0], &args[1]);
    args[2] = i32(t, 1);
  } else {
    args[0] = num(t, OP_CTA);
    args[1] = t->most ? t->most : num(t, OP_NTASKS);
    args[2] = num(t, OP_NCTAS);
  }
  Op *loop = ir_op(&t->b, OP_FOR, args, 3, NULL, 0, NULL, 0, 1);
  t->b.region = loop->regions[0];
  return ir_region_param(t->b.region, type_scalar(DT_I32), "u");
}

static Value dynamic_loop(Tasks *t) {
  Type i = type_scalar(DT_I32);
  Value all = num(t, OP_NTASKS), first = num(t, OP_CTA);
  if (t->most)
    first = ir_3(&t->b, OP_SELECT, two(t, OP_LT, first, t->most), first, all);
  Value args[] = {all, first};
  Op *loop = ir_op(&t->b, OP_WHILE, args, 2, NULL, 0, &i, 1, 1);
  t->b.region = loop->regions[0];
  return ir_region_param(t->b.region, i, "u");
}

// v, which no task changes, in front of the loop over them.
static Value in_front(Tasks *t, ValueMap *m, Value v) {
  const Op *op = ir_def(t->f, v);
  if (!op || vmap_get(m, v) != v) return vmap_get(m, v);
  for (uint32_t i = 0; i < op->nargs; i++) in_front(t, m, op->args[i]);
  ir_clone(&t->b, t->f, op, m, NULL);
  return vmap_get(m, v);
}

// What the phase in front says of all tasks.
static void take_plan(Tasks *t) {
  ValueMap m = {.arena = t->f->mod->arena};
  t->most = in_front(t, &m, t->plan->args[0]);
}

// Dims that are widened are read as they are in memory: signs of two halves
// wait in registers otherwise, of which a producer that looks its tasks up has
// none left.
static void widen_dims(Func *f, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) widen_dims(f, op->regions[i]);
    const Op *dim = op->code == OP_CAST ? ir_def(f, op->args[0]) : NULL;
    Type wide = type_scalar(DT_I64);
    if (!dim || dim->code != OP_DIM || !type_eq(ir_type(f, op->res[0]), &wide))
      continue;
    Builder b = {.fn = f, .region = r, .before = op, .span = op->span};
    Op *read = ir_op(&b, OP_DIM, NULL, 0, dim->attrs, dim->nattrs, &wide, 1, 0);
    ir_replace_uses(f, op->res[0], read->res[0]);
  }
}

static Value claim(Tasks *t) {
  Type i = type_scalar(DT_I32);
  return ir_op(&t->b, OP_CLAIM, &t->most, t->most != 0, NULL, 0, &i, 1, 0)
      ->res[0];
}

static void persist(Tasks *t, const Op *launch) {
  Func *f = t->f;
  Region *old = f->body;
  f->body = ir_region(f, NULL);
  for (uint32_t i = 0; i < f->params.n; i++)
    ir_info(f, f->params.at[i].v)->region = f->body;
  t->b = (Builder){.fn = f, .region = f->body, .span = launch->span};
  Op *made = ir_op(&t->b, OP_LAUNCH, NULL, 0, launch->attrs, launch->nattrs,
                   NULL, 0, 0);
  ir_set_attr(f, made, attr_s(AT_CTAS, "persistent"));
  Order o = {.any = true};
  if (t->plan) take_plan(t);
  else if (!t->single) o = order(t, old);
  Value u = t->claims ? dynamic_loop(t) : static_loop(t);
  ValueMap map = {.arena = f->mod->arena};
  Nth n = nth(t, &o, u);
  vmap_put(&map, t->task, n.task);
  for (const Op *op = launch->next; op; op = op->next) {
    if (op->code == OP_TASK || op == t->plan ||
        op_info(op->code)->flags & OPF_TERM)
      continue;
    Value known = decoded(t, op, &n);
    if (known) {
      vmap_put(&map, op->res[0], known);
      continue;
    }
    ir_clone(&t->b, f, op, &map, NULL);
  }
  Value next = t->claims ? claim(t) : 0;
  ir_yield(&t->b, &next, t->claims);
  if (t->plan) widen_dims(f, f->body);
}

// Single steps read a state and write it: what many CTAs ask for at a time is
// what counts. Code that is to keep few registers gives up some CTAs instead.
// Running maxima carry no state: that is a thread's tiles, which ir/pressure.h
// counts well, but for addresses and numbers.
static void share(Func *f, Op *launch, const Target *target, Arena *a,
                  int64_t slack, int64_t lean) {
  int64_t regs = target->gpu.regs;
  if (ir_has_products(f)) return;
  int64_t carried = hop_rings_carried(f, f->body),
          each = carried + COST_STEP_OTHER_REGS;
  if (!carried) slack = -COST_STEP_NUMBER_REGS;
  int64_t threads = ir_attr_i(launch, AT_THREADS, 1),
          n = regs / (threads * each);
  int64_t most = ir_pressure(f, a).regs, warps = threads / target->gpu.wave;
  if (warps < HW_GROUP_WARPS && n > COST_STEP_WARPS / warps)
    n = COST_STEP_WARPS / warps;
  while (n > 1 && most > regs / (threads * n) + slack) n--;
  n = relief_ctas(lean, n);
  if (n > 1) ir_set_attr(f, launch, attr_i(AT_OCCUPANCY, n));
}

static void run(Ctx *cx, Func *f, const Target *target, const PassOpt *opt,
                int64_t lean) {
  Op *launch = f->body->first;
  if (!launch || launch->code != OP_LAUNCH || !f->grid.n ||
      ir_attr_i(launch, AT_CLUSTER, 0))
    return;
  bool once = ir_attr_i(launch, AT_ONCE, 0);
  Tasks t = {.f = f, .target = target, .single = once && opt->few};
  t.varies = NEWN(&cx->scratch, bool, f->values.n);
  vary(&t, f->body);
  if (!t.task) return;
  t.single |= same_keys(cx, &t);
  t.kinds &= !ir_has_steps(f) && !ir_has_products(f) && !t.plan;
  Rings rings;
  if (ir_has_steps(f) && !hop_rings_plan(&rings, f, target)) {
    int64_t slack = opt->chunk == 1 ? COST_SHORT_STEP_SLACK : COST_STEP_SLACK;
    share(f, launch, target, &cx->scratch, slack, lean);
    return;
  }
  bool produced = t.uneven && hop_rings_plan(&rings, f, target);
  t.handed = produced && !ir_has_steps(f);
  t.claims = produced;
  bool alone = t.uneven && !produced && !t.plan;
  if (alone && t.single) return;
  if (alone) reorder(&t);
  else persist(&t, launch);
}

bool pass_tile_scheduler(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++)
    run(cx, m->funcs.at[i], opt->target, opt, relief_of(m->funcs.at[i]));
  return true;
}
