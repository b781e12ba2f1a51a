// Recurrences of a program whose chunks have the same triangular inverse (part
// of the pass `outline_chunks`): one phase finds it once for all.
//
//   before  func @p.r.chunks(..)   { %t = trinv(%l)  store(%made.0, f(%t)) }
//           func @p.r1.chunks(..)  { %t = trinv(%l)  store(%made.1, g(%t)) }
//   after   func @p.r.chunks(..)   { %t = trinv(%l)  store(%made.0, f(%t))
//                                                    store(%made.1, g(%t)) }
//
// The adjoint of a recurrence that erases walks the other way, and erases what
// the recurrence does: what rows are of one are columns of the other, and the
// chunk that one comes to first the other comes to last. So both inverses are
// copied into a function of a's axes, b's with its two axes as a's are, at the
// same steps, and compared there. b's phase goes in front of what it stood
// behind, so it may read what is there in front of a's.
#include "passes/support/outline.h"
#include "passes/tile/hoist.h"

// ---------------------------------------------------------------- the inverse
typedef struct Search {
  const Hoist *a;
  Op *op;      // the last that was found
  uint32_t n;  // how many there are
} Search;

static void note_inverse(void *data, Op *op) {
  Search *s = data;
  if (op->code != OP_TRINV || s->a->late[op->res[0]]) return;
  s->op = op;
  s->n++;
}

Op *tile_hoist_inverse(const Hoist *a) {
  Search s = {.a = a};
  ir_walk(a->loop->regions[0], note_inverse, &s);
  return s.n == 1 ? s.op : NULL;
}

// ---------------------------------------------------------------- the steps
// C * ceil(n / C) of the axis of the steps.
static bool is_whole_end(const Hoist *a, Value v) {
  const Op *mul = ir_def(a->f, v), *div, *add, *dim;
  int64_t n;
  if (!mul || mul->code != OP_MUL || !ir_const_whole(a->f, mul->args[1], &n) ||
      n != a->chunk || !(div = ir_def(a->f, mul->args[0])) ||
      div->code != OP_FLOORDIV || !ir_const_whole(a->f, div->args[1], &n) ||
      n != a->chunk || !(add = ir_def(a->f, div->args[0])) ||
      add->code != OP_ADD || !ir_const_whole(a->f, add->args[1], &n) ||
      n != a->chunk - 1)
    return false;
  dim = ir_def(a->f, add->args[0]);
  return dim && dim->code == OP_DIM &&
         (Dim)ir_attr_i(dim, AT_DIM, 0) == a->f->axes.at[a->axis].extent;
}

// end - (c0 + C): where the chunk begins of a walk against the order.
static void note_position(void *data, Op *op) {
  Search *s = data;
  const Hoist *a = s->a;
  int64_t n;
  if (s->n || op->code != OP_SUB || !is_whole_end(a, op->args[0])) return;
  const Op *top = ir_def(a->f, op->args[1]);
  if (!top || top->code != OP_ADD || !ir_const_whole(a->f, top->args[1], &n) ||
      n != a->chunk || top->args[0] != a->loop->regions[0]->params.at[0])
    return;
  s->op = op;
  s->n = 1;
}

// The first step of a chunk as they lie in memory.
Value tile_hoist_position(const Hoist *a) {
  Search s = {.a = a};
  ir_walk(a->loop->regions[0], note_position, &s);
  return s.n ? s.op->res[0] : a->loop->regions[0]->params.at[0];
}

bool tile_hoist_backward(const Hoist *a) {
  return tile_hoist_position(a) != a->loop->regions[0]->params.at[0];
}

static void join_steps(HoistCopy *a, Builder *b, HoistCopy *c) {
  Value first = c->a->loop->regions[0]->params.at[0];
  Value at = tile_hoist_copied(a, b, tile_hoist_position(a->a));
  Value own = tile_hoist_position(c->a);
  if (own != first && at == a->c0) {
    Value end = tile_hoist_copied(c, b, ir_def(c->a->f, own)->args[0]);
    Value size = ir_const_i(b, DT_I64, c->a->chunk);
    c->c0 = ir_2(b, OP_SUB, end, ir_2(b, OP_ADD, at, size));
  } else if (own == first) {
    c->c0 = at;
  }
  vmap_put(&c->map, first, c->c0);
  vmap_put(&c->map, own, at);
}

// ---------------------------------------------------------------- the axes
static bool listed(const IrAttr *axes, uint32_t axis) {
  for (uint32_t i = 0; i < axes->n; i++)
    if (axes->list[i] == axis) return true;
  return false;
}

// The next axis of steps of a's from *at on that is none of the inverse's, as
// those that decays are summed along; or a new one.
static uint32_t other_steps(const Hoist *a, const IrAttr *inverse,
                            const Axis *p, Func *f, uint32_t *at) {
  for (uint32_t i = *at; i < a->f->axes.n; i++) {
    const Axis *q = &a->f->axes.at[i];
    if (q->role != AX_STEP || q->extent != p->extent || listed(inverse, i))
      continue;
    *at = i + 1;
    return i;
  }
  *at = a->f->axes.n;
  return ir_axis(f, p->name, p->role, p->extent);
}

// b's axes in f, a copy of a's function: those of the inverse x are those of y,
// steps else come in a's order, all others are what they are in both.
static bool join_axes(const Hoist *a, Hoist *b, const Op *x, const Op *y,
                      Func *f) {
  const IrAttr *to = ir_attr(x, AT_AXES), *from = ir_attr(y, AT_AXES);
  uint32_t *axes = NEWN(a->m->arena, uint32_t, b->f->axes.n), at = 0;
  if (!to || !from || to->n != from->n) return false;
  for (uint32_t i = 0; i < b->f->axes.n; i++) {
    const Axis *p = &b->f->axes.at[i];
    const Axis *q = i < a->f->axes.n ? &a->f->axes.at[i] : NULL;
    bool same = q && p->role == q->role && p->extent == q->extent;
    axes[i] = UINT32_MAX;
    for (uint32_t k = 0; k < from->n; k++)
      if (from->list[k] == i) axes[i] = (uint32_t)to->list[k];
    if (axes[i] != UINT32_MAX) continue;
    axes[i] = p->role == AX_STEP ? other_steps(a, to, p, f, &at)
              : same             ? i
                                 : ir_axis(f, p->name, p->role, p->extent);
  }
  b->axes = axes;
  return true;
}

// ---------------------------------------------------------------- comparison
static bool is_same(const Func *f, Value x, Value y);

static bool same_args(const Func *f, const Op *p, const Op *q) {
  for (uint32_t i = 0; i < p->nargs; i++)
    if (!is_same(f, p->args[i], q->args[i])) return false;
  return true;
}

// Products are the same either way.
static bool same_turned(const Func *f, const Op *p, const Op *q) {
  return p->code == OP_DOT && p->nargs == 2 &&
         is_same(f, p->args[0], q->args[1]) &&
         is_same(f, p->args[1], q->args[0]);
}

static bool is_same(const Func *f, Value x, Value y) {
  const Op *p = ir_def(f, x), *q = ir_def(f, y);
  if (x == y) return true;
  return p && q && p->code == q->code && p->nargs == q->nargs && !p->nregions &&
         !q->nregions && type_eq(ir_type(f, x), ir_type(f, y)) &&
         ir_same_attrs(p, q) && (same_args(f, p, q) || same_turned(f, p, q));
}

// ---------------------------------------------------------------- all
// The number of a tensor; all functions of a program have what they share in
// one order.
static int number_of(const Func *f, Value v) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == v) return (int)i;
  return -1;
}

typedef struct Writes {
  Value tensor;
  bool some;
} Writes;

static void note_write(void *data, Op *op) {
  Writes *w = data;
  w->some |= op->code == OP_STORE && op->args[0] == w->tensor;
}

static bool writes(const Func *f, uint32_t n) {
  if (n >= f->params.n) return false;
  Writes w = {.tensor = f->params.at[n].v};
  ir_walk(f->body, note_write, &w);
  return w.some;
}

// Is a tensor of f there in front of a's phase? That stands in front of the
// phases of a's function.
static bool is_there(const Hoist *a, const Func *f, Value tensor) {
  int n = number_of(f, tensor);
  bool behind = false;
  if (outline_is_input(f, tensor)) return true;
  for (uint32_t i = 0; n >= 0 && i < a->m->funcs.n; i++) {
    const Func *g = a->m->funcs.at[i];
    behind |= g == a->f || ir_is_phase(g, a->f->name);
    if (behind && writes(g, (uint32_t)n)) return false;
  }
  return n >= 0;
}

// seen: by value, what has been looked at.
static bool reads_there(const Hoist *a, const Func *f, Value v, bool *seen) {
  const Op *op = ir_def(f, v);
  if (seen[v]) return true;
  seen[v] = true;
  if (op && op->code == OP_LOAD && !is_there(a, f, op->args[0])) return false;
  for (uint32_t i = 0; op && i < op->nargs; i++)
    if (!reads_there(a, f, op->args[i], seen)) return false;
  return true;
}

static bool all_there(const Hoist *a, const Hoist *b) {
  bool *seen = NEWN(a->m->arena, bool, b->f->values.n);
  for (uint32_t i = 0; i < b->ncuts; i++)
    if (!reads_there(a, b->f, b->cut[i].v, seen)) return false;
  return true;
}

// In a function g of a's that has b's axes too.
static bool same_in(Hoist *a, Hoist *b, Func *g, Value x, Value y) {
  Value c0 = tile_hoist_phase(a, g);
  Builder in = {.fn = g, .region = g->body, .span = a->f->span};
  HoistCopy p = tile_hoist_copy(a, g, c0), q = tile_hoist_copy(b, g, c0);
  join_steps(&p, &in, &q);
  Value s = tile_hoist_copied(&p, &in, x);
  Value t = tile_hoist_copied(&q, &in, y);
  return is_same(g, s, t);
}

static bool same_inverse(Hoist *a, Hoist *b, const Op *x, const Op *y) {
  Func *g = outline_func(a->f, "same", 0, true);
  return join_axes(a, b, x, y, g) && same_in(a, b, g, x->res[0], y->res[0]);
}

bool tile_hoist_same(Hoist *a, Hoist *b, Value x, Value y) {
  return same_in(a, b, outline_func(a->f, "same", 0, true), x, y);
}

bool tile_hoist_join(Hoist *a, Hoist *b) {
  const Op *x = tile_hoist_inverse(a), *y = tile_hoist_inverse(b);
  if (!x || !y || a->chunk != b->chunk || !all_there(a, b) ||
      !same_inverse(a, b, x, y))
    return false;
  b->joined = true;
  return join_axes(a, b, x, y, a->f);
}

void tile_hoist_join_copy(HoistCopy *a, Builder *b, HoistCopy *c) {
  join_steps(a, b, c);
  vmap_put(&c->map, tile_hoist_inverse(c->a)->res[0],
           tile_hoist_copied(a, b, tile_hoist_inverse(a->a)->res[0]));
}
