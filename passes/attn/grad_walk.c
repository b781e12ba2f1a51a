// grad, part 5: recurrences. The adjoint of a walk is the walk of the other
// direction, each item of which has a counterpart:
//
//   S = 2 ** g S          D = 2 ** g D
//   o = x^T S             D = D + x do^T
//   S = S + b e^T         z = b^T D             z: the gradient of e
//
// with the cotangent z taken off do where o is what e erases. What vectors
// along the rows get contracts the columns:
//
//   x of a read  S do     b of a write  D e
//
// of which the states are written as before, rows and columns exchanged. So
// each of them is a recurrence of the same kind, and nothing of a step is
// kept.
#include "ir/affine.h"
#include "passes/attn/grad_walk.h"
#include "passes/support/range.h"

#include <math.h>

// ---------------------------------------------------------------- walks
static Gid result(Grad *g, const GradWalk *w, uint32_t k, uint64_t axes) {
  GradNode n = {.code = GRAD_RESULT,
                .dtype = DT_F32,
                .axes = axes,
                .attr = k,
                .n = 1,
                .span = w->span};
  return grad_put(g, n, &w->node);
}

Gid grad_walk_read(Grad *g, const GradWalk *w, uint32_t k, uint64_t axes) {
  return result(g, w, k, axes | grad_bit(w->axis));
}

Gid grad_walk_front(Grad *g, const GradWalk *w, uint32_t blocks) {
  return result(g, w, GRAD_FRONT, w->state | grad_bit(blocks));
}

Gid grad_walk_last(Grad *g, const GradWalk *w) {
  return result(g, w, 0, w->state);
}

// Result k, a read that contracts `over`.
static Gid read_of(Grad *g, const GradWalk *w, uint32_t k, uint64_t over) {
  return grad_walk_read(g, w, k, w->state & ~over);
}

bool grad_walk_put(GradWalk *w, GradItem item) {
  if (w->n == MAX_ITEMS) return false;
  w->nreads += item.kind == GI_READ;
  w->item[w->n++] = item;
  return true;
}

// The number of the result that a read put now would have.
static uint32_t next_read(const GradWalk *w) {
  return w->nreads + 1;
}

static void add_operand(Gid *args, uint32_t *n, Gid x) {
  if (x) args[(*n)++] = x;
}

void grad_walk_close(Grad *g, GradWalk *w) {
  Gid args[2 + 2 * MAX_ITEMS];
  uint32_t n = 0;
  add_operand(args, &n, w->init);
  add_operand(args, &n, w->limit);
  for (uint32_t i = 0; i < w->n; i++) {
    add_operand(args, &n, w->item[i].x);
    add_operand(args, &n, w->item[i].w);
  }
  GradNode node = {.code = GRAD_WALK,
                   .dtype = DT_F32,
                   .axes = w->state | grad_bit(w->axis),
                   .attr = g->walks.n,
                   .n = n,
                   .span = w->span};
  w->node = grad_put(g, node, args);
  vec_push(g->arena, &g->walks, *w);
}

// ---------------------------------------------------------------- import
typedef struct FromAffine {
  Grad *g;
  Affine a;
  GradWalk w;
  uint32_t erased[AFFINE_MAX];  // by write: the result that it takes off
  uint32_t read[AFFINE_MAX];    // by read: its result
  Gid (*node)(void *, Value);
  void *data;
} FromAffine;

static Gid node(FromAffine *f, Value v) {
  return v ? f->node(f->data, v) : 0;
}

// What reads this version of the state.
static bool put_reads(FromAffine *f, int version) {
  bool ok = true;
  for (uint32_t i = 0; i < f->a.nwrites; i++) {
    const AffineWrite *x = &f->a.write[i];
    if (!x->a || x->from != version) continue;
    f->erased[i] = next_read(&f->w);
    GradItem item = {GI_READ, .x = node(f, x->a), .over = f->w.row};
    ok &= grad_walk_put(&f->w, item);
  }
  for (uint32_t i = 0; i < f->a.nreads; i++) {
    if (f->a.read[i].from != version) continue;
    f->read[i] = next_read(&f->w);
    GradItem item = {GI_READ, .x = node(f, f->a.read[i].q), .over = f->w.row};
    ok &= grad_walk_put(&f->w, item);
  }
  return ok;
}

static bool put_items(FromAffine *f) {
  bool ok = put_reads(f, AFFINE_PRE);
  if (f->a.decay) {
    GradItem decay = {GI_DECAY, .x = node(f, f->a.decay)};
    ok &= grad_walk_put(&f->w, decay);
  }
  ok &= put_reads(f, 0);
  for (uint32_t i = 0; i < f->a.nwrites; i++) {
    const AffineWrite *x = &f->a.write[i];
    GradItem item = {GI_WRITE, .x = node(f, x->b), .w = node(f, x->w),
                     .less = f->erased[i]};
    ok &= grad_walk_put(&f->w, item) && put_reads(f, (int)i + 1);
  }
  return ok;
}

static uint64_t axes_of_type(const Grad *g, const Type *t) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < t->n; i++) all |= grad_bits_of(g, t->axis[i]);
  return all;
}

static void name_results(FromAffine *f, const Op *op) {
  Grad *g = f->g;
  GradWalk *w = &g->walks.at[g->walks.n - 1];
  w->result = NEWN(g->arena, Gid, w->nreads + 1);
  w->result[0] = result(g, w, 0, w->state);
  for (uint32_t k = 1; k <= w->nreads; k++)
    w->result[k] = read_of(g, w, k, w->row);
  g->node[op->res[0]] = w->result[0];
  for (uint32_t i = 0; i < f->a.nreads; i++)
    g->node[op->res[i + 1]] = w->result[f->read[i]];
}

// A running maximum is read before each step.
static void put_maximum(FromAffine *f, const Op *op) {
  GradWalk *w = &f->w;
  f->a = (Affine){.axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0),
                  .state = op->args[0],
                  .limit = op->nargs == 4 ? op->args[3] : 0,
                  .reverse = ir_attr_i(op, AT_REVERSE, 0),
                  .nreads = 1};
  f->read[0] = 1;
  Gid a = node(f, op->args[1]), b = node(f, op->args[2]);
  grad_walk_put(w, (GradItem){GI_READ, grad_num(f->g, 1), 0, 0, 0});
  grad_walk_put(w, (GradItem){GI_MAX, a, b, 0, 0});
}

static void put_form(FromAffine *f, const Op *op) {
  Grad *g = f->g;
  GradWalk *w = &f->w;
  w->span = op->span;
  w->name = "states";
  while (!(grad_bits_of(g, f->a.axis) & grad_bit(w->axis))) w->axis++;
  w->reverse = f->a.reverse;
  w->falling = f->a.falling;
  w->least = -INFINITY;
  if (f->a.decay) {
    Ranges known;
    range_init(&known, g->f, g->arena);
    w->least = range_of(&known, f->a.decay).lo;
  }
  w->state = axes_of_type(g, ir_type(g->f, op->res[0]));
  if (op->code == OP_AFFINE) w->row = grad_bits_of(g, f->a.row);
  w->col = w->state & grad_role(g, AX_VEC) & ~w->row;
  w->init = node(f, f->a.state);
  w->limit = node(f, f->a.limit);
}

// Steps at the end and behind it are no points.
static void put_end(Grad *g, const GradWalk *w) {
  Gid in = grad_2(g, OP_LT, grad_index(g, w->axis), w->limit);
  Gid *domain = &g->domain[w->axis];
  *domain = !*domain || *domain == in ? in : grad_2(g, OP_AND, *domain, in);
}

uint64_t grad_walk_contracts(const Grad *g, Gid walk) {
  const GradWalk *w = &g->walks.at[grad_at(g, walk)->attr];
  uint64_t all = 0;
  for (uint32_t i = 0; i < w->n; i++)
    if (w->item[i].kind == GI_READ) all |= w->item[i].over;
  return all;
}

bool grad_import_walk(Grad *g, const Op *op, Gid (*node_of)(void *, Value),
                      void *data) {
  FromAffine *f = NEW(g->arena, FromAffine);
  *f = (FromAffine){.g = g, .node = node_of, .data = data};
  if (op->code == OP_MAXPLUS) put_maximum(f, op);
  else if (!affine_parts(op, &f->a)) return false;
  put_form(f, op);
  if (f->w.limit) put_end(g, &f->w);
  if (op->code == OP_AFFINE && !put_items(f)) return false;
  if (op->code == OP_AFFINE) grad_gauge(g, &f->w);
  grad_walk_close(g, &f->w);
  name_results(f, op);
  return true;
}

// ---------------------------------------------------------------- adjoints
GradWalk grad_walk_like(const GradWalk *w, bool reverse, Gid init) {
  return (GradWalk){.axis = w->axis,
                    .reverse = reverse,
                    .state = w->state,
                    .row = w->row,
                    .col = w->col,
                    .init = init,
                    .limit = w->limit,
                    .name = reverse == w->reverse ? "states" : "cotangents",
                    .span = w->span};
}

static void number_items(GradAdjoint *a) {
  const GradWalk *w = a->w;
  uint32_t reads = 0;
  for (uint32_t i = 0; i < w->n; i++)
    if (w->item[i].kind == GI_READ) a->read[i] = ++reads;
  for (uint32_t i = 0; i < w->n; i++)
    for (uint32_t k = 0; w->item[i].less && k < i; k++)
      if (a->read[k] == w->item[i].less) a->eraser[k] = i + 1;
}

static Gid cotangent(const GradAdjoint *a, uint32_t k) {
  return a->g->adjoint[a->w->result[k]];
}

bool grad_walk_stores(const GradAdjoint *a) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < a->w->n; i++) n += a->eraser[i] != 0;
  return a->chunks && n == 1;
}

// The walk of the state's cotangent. Its reads are the gradients of what was
// written.
static void walk_back(GradAdjoint *a) {
  const GradWalk *w = a->w;
  GradWalk *m = &a->mirror;
  *m = grad_walk_like(w, !w->reverse, cotangent(a, 0));
  for (uint32_t i = w->n; i-- > 0;) {
    const GradItem *x = &w->item[i];
    uint32_t less = a->eraser[i] ? a->z[a->eraser[i] - 1] : 0;
    GradItem item = {.kind = GI_DECAY, .x = x->x};
    if (x->kind == GI_WRITE) {
      a->z[i] = next_read(m);
      item.kind = GI_READ;
      item.over = w->row;
    } else if (x->kind == GI_READ) {
      item = (GradItem){GI_WRITE, x->x, cotangent(a, a->read[i]), less, 0};
      if (!item.w && !less) continue;
    }
    grad_walk_put(m, item);
  }
  m->whole = grad_walk_stores(a);
  grad_walk_close(a->g, m);
}

// The gradient of what item i wrote.
static Gid z_of(const GradAdjoint *a, uint32_t i) {
  return read_of(a->g, &a->mirror, a->z[i], a->w->row);
}

Gid grad_written(const GradAdjoint *a, uint32_t i) {
  Grad *g = a->g;
  const GradItem *x = &a->w->item[i];
  if (!x->less) return x->w;
  if (grad_walk_stores(a)) return read_of(g, a->w, GRAD_WRITES + i, a->w->row);
  Gid old = a->w->result[x->less];
  return x->w ? grad_2(g, OP_SUB, x->w, old) : grad_1(g, OP_NEG, old);
}

Gid grad_read_by(const GradAdjoint *a, uint32_t i) {
  Grad *g = a->g;
  Gid c = cotangent(a, a->read[i]);
  if (!a->eraser[i]) return c;
  Gid z = z_of(a, a->eraser[i] - 1);
  return c ? grad_2(g, OP_SUB, c, z) : grad_1(g, OP_NEG, z);
}

static bool is_active(const Grad *g, Gid x) {
  return x && g->active[x];
}

// Does some vector along the rows of a read (of a write) have a gradient?
static bool wants(const GradAdjoint *a, GradItemKind kind) {
  for (uint32_t i = 0; i < a->w->n; i++)
    if (a->w->item[i].kind == kind && is_active(a->g, a->w->item[i].x))
      return true;
  return false;
}

// The operands of the walk's items have what t reads for them, `read` by item,
// 0: nothing.
static void give_reads(GradAdjoint *a, GradWalk *t, const uint32_t *read) {
  const GradWalk *w = a->w;
  grad_walk_close(a->g, t);
  for (uint32_t i = 0; i < w->n; i++) {
    if (!read[i]) continue;
    Gid dx = read_of(a->g, t, read[i], w->col);
    grad_give(a->g, w->item[i].x, dx, grad_at(a->g, dx)->axes);
  }
}

// The states again, contracted over the columns by cotangents of reads.
static void walk_turned(GradAdjoint *a) {
  const GradWalk *w = a->w;
  GradWalk *t = &a->turned;
  uint32_t read[MAX_ITEMS] = {0};
  if (!wants(a, GI_READ)) return;
  *t = grad_walk_like(w, w->reverse, w->init);
  for (uint32_t i = 0; i < w->n; i++) {
    GradItem item = w->item[i];
    if (item.kind == GI_WRITE)
      item = (GradItem){GI_WRITE, grad_written(a, i), item.x, 0, 0};
    if (item.kind == GI_READ) {
      item.x = grad_read_by(a, i);
      item.over = w->col;
      if (!item.x || !is_active(a->g, w->item[i].x)) continue;
      read[i] = next_read(t);
    }
    if (item.x) grad_walk_put(t, item);
  }
  give_reads(a, t, read);
}

// The cotangents again, contracted over the columns by what was written.
static void walk_turned_back(GradAdjoint *a) {
  const GradWalk *w = a->w;
  GradWalk *t = &a->turned_mirror;
  uint32_t read[MAX_ITEMS] = {0};
  if (!wants(a, GI_WRITE)) return;
  *t = grad_walk_like(w, !w->reverse, a->mirror.init);
  for (uint32_t i = w->n; i-- > 0;) {
    GradItem item = w->item[i];
    if (item.kind == GI_READ)
      item = (GradItem){GI_WRITE, grad_read_by(a, i), item.x, 0, 0};
    else if (item.kind == GI_WRITE) {
      item = (GradItem){GI_READ, .x = grad_written(a, i), .over = w->col};
      if (!is_active(a->g, w->item[i].x)) continue;
      read[i] = next_read(t);
    }
    if (item.x) grad_walk_put(t, item);
  }
  give_reads(a, t, read);
}

static void give_written(GradAdjoint *a) {
  const GradWalk *w = a->w;
  for (uint32_t i = 0; i < w->n; i++) {
    if (w->item[i].kind != GI_WRITE || !is_active(a->g, w->item[i].w)) continue;
    Gid z = z_of(a, i);
    grad_give(a->g, w->item[i].w, z, grad_at(a->g, z)->axes);
  }
  if (!grad_needs_init(a->g, w)) return;
  grad_give_init(a->g, w, result(a->g, &a->mirror, 0, w->state));
}

// Of a maximum the cotangent goes back as long as the maximum came from there.
static bool maximum_back(GradAdjoint *a, const GradItem *max) {
  Grad *g = a->g;
  GradWalk *m = &a->mirror;
  Gid one = grad_num(g, 1), zero = grad_num(g, 0), c = cotangent(a, 1);
  Gid from = grad_2(g, OP_ADD, a->w->result[1], max->x);
  Gid kept = grad_2(g, OP_LE, max->w, from);
  Gid by = grad_3(g, OP_SELECT, kept, zero, grad_num(g, -INFINITY));
  *m = grad_walk_like(a->w, !a->w->reverse, cotangent(a, 0));
  grad_walk_put(m, (GradItem){GI_READ, one, 0, 0, 0});
  grad_walk_put(m, (GradItem){GI_DECAY, by, 0, 0, 0});
  if (c) grad_walk_put(m, (GradItem){GI_WRITE, c, one, 0, 0});
  Gid r, last;
  if (grad_scalar_fits(g, m)) grad_scalar_chunks(g, m, &r, &last);
  else {
    grad_walk_close(g, m);
    r = read_of(g, m, 1, 0), last = grad_walk_last(g, m);
  }
  uint64_t points = grad_at(g, r)->axes;
  grad_give(g, max->x, grad_path(g, kept, r, zero), points);
  grad_give(g, max->w, grad_path(g, kept, zero, r), points);
  grad_give(g, a->w->init, last, a->w->state);
  return true;
}

// ---------------------------------------------------------------- normalizers
static GradWalk *walk_of(const Grad *g, Gid node) {
  return &g->walks.at[grad_at(g, node)->attr];
}

// Has all that x is made of been made in front of y?
static bool is_in_front(const GradWalk *x, Gid y) {
  for (uint32_t i = 0; i < x->n; i++)
    if (x->item[i].x > y || x->item[i].w > y) return false;
  return x->init < y;
}

// Do two walks differ in what they write alone, are both read of alike?
static bool are_alike(const Grad *g, const GradWalk *x, const GradWalk *y) {
  if (x->axis != y->axis || x->reverse != y->reverse || x->row != y->row ||
      x->n != y->n || x->limit || y->limit)
    return false;
  for (uint32_t i = 0, k = 0; i < x->n; i++) {
    const GradItem *p = &x->item[i], *q = &y->item[i];
    if (p->kind != q->kind || p->x != q->x || p->less || q->less) return false;
    if (p->kind != GI_READ) continue;
    k++;
    if (!g->adjoint[x->result[k]] || !g->adjoint[y->result[k]]) return false;
  }
  return true;
}

// The walk of the other kind that w goes with: of the program's, in front of
// it.
static GradWalk *walk_beside(const Grad *g, const GradWalk *w) {
  for (uint32_t i = 0; i < g->walks.n; i++) {
    GradWalk *x = &g->walks.at[i];
    bool one = x->result && x->node < w->node && !x->col != !w->col;
    if (one && !x->beside && are_alike(g, x, w) && is_in_front(w, x->node))
      return x;
  }
  return NULL;
}

static void open_adjoint(Grad *g, GradAdjoint *a, const GradWalk *w) {
  *a = (GradAdjoint){.g = g, .of = w, .w = w};
  number_items(a);
  a->chunks = grad_chunks_fit(a);
}

// Does w wait for a walk that is reversed behind it, with which it shares
// products of chunks?
static bool put_off(Grad *g, const GradAdjoint *a) {
  GradWalk *x = a->chunks ? walk_beside(g, a->w) : NULL;
  GradAdjoint other;
  if (!x) return false;
  open_adjoint(g, &other, x);
  if (!other.chunks) return false;
  x->beside = a->w->node;
  walk_of(g, a->w->node)->beside = x->node;
  return true;
}

bool grad_reverse_walk(Grad *g, const GradWalk *w) {
  GradAdjoint *a = NEW(g->arena, GradAdjoint), *other = NULL;
  *a = (GradAdjoint){.g = g, .of = w, .w = w};
  if (w->n == 2 && w->item[1].kind == GI_MAX)
    return maximum_back(a, &w->item[1]);
  grad_gauge_back(g, w);
  open_adjoint(g, a, w);
  if (!w->beside && put_off(g, a)) return true;
  if (w->beside) {
    GradWalk *x = NEW(g->arena, GradWalk);
    *x = *walk_of(g, w->beside);
    other = NEW(g->arena, GradAdjoint);
    open_adjoint(g, other, x);
  }
  bool chunks = a->chunks, erases = false;
  for (uint32_t i = 0; i < w->n; i++) erases |= a->eraser[i] != 0;
  if (chunks) grad_make_front(a);
  if (!chunks || erases) {
    walk_back(a);
    give_written(a);
  }
  if (chunks) {
    if (other && !w->col) grad_chunks(other, a);
    else grad_chunks(a, other);
    return true;
  }
  walk_turned(a);
  walk_turned_back(a);
  return grad_gates(a);
}
