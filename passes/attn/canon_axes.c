// Sums along an axis of their own take another axis of that extent, where what
// they sum up is there already:
//
//   before  %x = cos(%angle) : f32{k,x}     %y = cos(%angle.d) : f32{k,d}
//           %n = reduce(mul(%y, %y)) {kind = sum, over = [d]} : f32{k}
//   after   %n = reduce(mul(%x, %x)) {kind = sum, over = [x]} : f32{k}
//
// Functions of vectors have axes of their own: a norm of a rotation computes
// the rotation along the norm's axis for its sum, and along the result's for
// the result; that of a sum over keys sums up values along its own axis and
// keeps both. Taken where a function or a sum would be computed twice; `cse`
// finds the equal ops. Not of chunks (support/pieces.c): tiles along either
// axis are the same there, and what is there is in a good order.
//
// Also taken where `inline` could make a value along the axis only as a sum
// with one term, as a state of a recurrence: the norm of what a step reads.
//
//   before  %h = select(eq(%x, %d), %state, 0) : f32{x,d}
//           %s = reduce(%h) {kind = sum, over = [x]} : f32{d}
//           %n = reduce(mul(%s, %s)) {kind = sum, over = [d]} : f32
//   after   %n = reduce(mul(%state, %state)) {kind = sum, over = [x]} : f32
#include "passes/attn/canon.h"

#include "ir/facts.h"
#include "passes/support/pieces.h"

typedef struct Twins {
  const Func *f;
  uint32_t from, to;  // axes
  Map seen;           // value -> its twin, 0: none
  uint32_t found;     // functions that are there along `to`
  uint32_t single;    // sums with one term
  bool fails;
} Twins;

static bool same_attrs(const Op *a, const Op *b) {
  if (a->nattrs != b->nattrs) return false;
  for (uint32_t i = 0; i < a->nattrs; i++) {
    const IrAttr *x = ir_attr(b, a->attrs[i].id);
    if (!x || !canon_attr_same(&a->attrs[i], x)) return false;
  }
  return true;
}

static bool same_args(const Op *op, const Value *args) {
  bool same = true, turned = op_info(op->code)->flags & OPF_COMM;
  for (uint32_t i = 0; i < op->nargs; i++) {
    same &= op->args[i] == args[i];
    turned &= op->nargs == 2 && op->args[i] == args[1 - i];
  }
  return same || turned;
}

// The result of an op like that one, of other operands.
static Value find(const Twins *t, const Op *like, const Value *args) {
  for (const Op *op = t->f->body->first; op; op = op->next)
    if (op->code == like->code && op->nargs == like->nargs && op != like &&
        same_args(op, args) && same_attrs(op, like))
      return op->res[0];
  return 0;
}

static Value find_index(const Twins *t) {
  for (const Op *op = t->f->body->first; op; op = op->next)
    if (op->code == OP_INDEX && ir_attr_i(op, AT_AXIS, -1) == (int64_t)t->to)
      return op->res[0];
  return 0;
}

static bool has_axis(const Func *f, Value v, uint32_t axis) {
  const Type *t = ir_type(f, v);
  return t->kind == TK_ELEM && type_has_axis(t, axis);
}

static bool is_index(const Func *f, Value v, uint32_t axis) {
  return ir_index_axis(f, v) == (int)axis;
}

// Of a sum along `to` with one term, that where the coordinates are equal: the
// term; else 0.
static Value only_term(const Func *f, const Op *sum, uint32_t from,
                       uint32_t to) {
  const IrAttr *over = sum->code == OP_REDUCE ? ir_attr(sum, AT_OVER) : NULL;
  if (!over || over->n != 1 || over->list[0] != to ||
      ir_attr_i(sum, AT_KIND, -1) != RK_SUM)
    return 0;
  const Op *term = ir_def(f, sum->args[0]);
  const Op *eq =
      term && term->code == OP_SELECT ? ir_def(f, term->args[0]) : NULL;
  double zero;
  if (!eq || eq->code != OP_EQ || !ir_const_value(f, term->args[2], &zero) ||
      zero != 0 || has_axis(f, term->args[1], from))
    return 0;
  for (uint32_t i = 0; i < 2; i++)
    if (is_index(f, eq->args[i], from) && is_index(f, eq->args[1 - i], to))
      return term->args[1];
  return 0;
}

// Functions, and sums: those over keys would be computed twice.
static bool is_dear(const Op *op) {
  return op_is_function(op->code) || op->code == OP_REDUCE ||
         op->code == OP_DOT;
}

// What v is along the other axis, if it is there. Sets `fails` where v cannot
// be computed along it.
static Value twin(Twins *t, Value v) {
  const Op *op = ir_def(t->f, v);
  uint64_t known;
  if (!has_axis(t->f, v, t->from)) return v;
  if (map_get(&t->seen, v, &known)) return (Value)known;
  Value term = op ? only_term(t->f, op, t->from, t->to) : 0;
  if (term) {
    t->single++;
    map_put(&t->seen, v, term);
    return term;
  }
  t->fails |= !op || op->nregions || op->nres != 1 ||
              op->nargs > MAX_AXES + 1 || has_axis(t->f, v, t->to);
  if (t->fails) return 0;
  Value args[MAX_AXES + 1], x = 0;
  bool all = true;
  for (uint32_t i = 0; i < op->nargs; i++) {
    args[i] = twin(t, op->args[i]);
    all &= args[i] != 0;
  }
  if (op->code == OP_INDEX) x = find_index(t);
  else if (all) x = find(t, op, args);
  t->found += x && is_dear(op);
  map_put(&t->seen, v, x);
  return x;
}

typedef struct Copy {
  Func *f;
  Builder b;
  ValueMap map;
  uint32_t from, to, axes[64];
} Copy;

static void copy(Copy *c, Value v) {
  const Op *op = ir_def(c->f, v);
  if (!has_axis(c->f, v, c->from) || (v < c->map.n && c->map.to[v])) return;
  Value term = only_term(c->f, op, c->from, c->to);
  if (term) {
    vmap_put(&c->map, v, term);
    return;
  }
  for (uint32_t i = 0; i < op->nargs; i++) copy(c, op->args[i]);
  ir_clone(&c->b, c->f, op, &c->map, c->axes);
}

// The sum along the other axis takes the place of op.
static void rename_sum(Func *f, Op *op, const Twins *t) {
  Copy c = {
      .f = f,
      .b = {.fn = f, .region = op->parent, .before = op, .span = op->span},
      .map = {.arena = f->mod->arena},
      .from = t->from,
      .to = t->to};
  for (uint32_t i = 0; i < f->axes.n; i++) c.axes[i] = i == t->from ? t->to : i;
  for (uint32_t i = 0; i < op->nargs; i++) copy(&c, op->args[i]);
  Op *sum = ir_clone(&c.b, f, op, &c.map, c.axes);
  ir_replace_uses(f, op->res[0], sum->res[0]);
}

// Ops up to `last` that nothing reads: no later sum is to find them.
static void drop_unused(const Func *f, Op *last) {
  for (Op *op = last, *prev; op; op = prev) {
    prev = op->prev;
    bool used = !(op_info(op->code)->flags & OPF_PURE) || op->nregions;
    for (uint32_t i = 0; i < op->nres; i++)
      used |= ir_count_uses(f, op->res[i]) > 0;
    if (!used) ir_erase(op);
  }
}

static bool is_like(const Func *f, uint32_t a, uint32_t b) {
  const Axis *x = &f->axes.at[a], *y = &f->axes.at[b];
  return a != b && x->role == AX_VEC && y->role == AX_VEC &&
         x->extent == y->extent;
}

// Is op, a sum along an axis, to be along that one? In a region, and of a
// product, only for what it makes one term of.
static bool is_there(Twins *t, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++) twin(t, op->args[i]);
  bool plain = op->code == OP_REDUCE && !op->parent->parent;
  return !t->fails && (t->single || (plain && t->found));
}

static void take_axis(Canon *c, Op *op) {
  Func *f = c->f;
  const IrAttr *over = ir_attr(op, AT_OVER);
  if ((op->code != OP_REDUCE && op->code != OP_DOT) || over->n != 1) return;
  for (uint32_t to = 0; to < f->axes.n; to++) {
    Twins t = {.f = f,
               .from = (uint32_t)over->list[0],
               .to = to,
               .seen = {.arena = &c->cx->scratch}};
    if (!is_like(f, t.from, to) || !is_there(&t, op)) continue;
    rename_sum(f, op, &t);
    drop_unused(f, op);
    return;
  }
}

static void visit(Canon *c, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) visit(c, op->regions[i]);
    take_axis(c, op);
  }
}

void canon_axes(Canon *c) {
  if (c->f->axes.n <= 64 && !pieces_of_chunk(c->f)) visit(c, c->f->body);
}
