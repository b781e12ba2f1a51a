// grad, part 6: from adds to equations. A load's gradient is added, for each of
// its points, to the element that the point reads. Where an index is an axis as
// long as the tensor, the element is that coordinate's and the others are
// summed. Any other index becomes an axis of the gradient's own: its elements
// sum those points whose index they are.
#include "passes/attn/grad.h"

typedef struct Maps {
  Grad *g;
  uint64_t keys, vecs;
  GradLists lists;
} Maps;

uint64_t grad_store_axes(const Grad *g, const GradStore *s) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < s->n; i++) all |= grad_at(g, s->index[i])->axes;
  return all;
}

// ---------------------------------------------------------------- indices
// The coordinate of one axis (a group's two count as one) that is as long.
static bool is_plain(Grad *g, Gid x, Dim size, uint64_t used) {
  uint64_t axes = grad_at(g, x)->axes;
  Gid index[8];
  Dim shape[8];
  return axes && !(used & axes) &&
         grad_coordinates(g, axes, index, shape) == 1 && index[0] == x &&
         shape[0] == size;
}

bool grad_reads_memory(const Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  if (n->code == OP_LOAD) return true;
  for (uint32_t i = 0; i < n->n; i++)
    if (grad_reads_memory(g, n->arg[i])) return true;
  return false;
}

// The entry of a table of pages that an index is, as a layout writes it:
// `max(t[b, k // n], 0)`, so that something is read where there is no page. 0:
// it is none. Of other tables rows may have any entry in common.
static Gid page_entry(const Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  for (uint32_t i = 0; n->code == OP_MAX && i < 2; i++) {
    const GradNode *zero = grad_at(g, n->arg[i]);
    Gid entry = n->arg[!i];
    if (zero->code != OP_CONST || zero->attr) continue;
    while (grad_at(g, entry)->code == OP_CAST)
      entry = grad_at(g, entry)->arg[0];
    bool is = grad_at(g, entry)->code == OP_LOAD && grad_at(g, entry)->n;
    return is ? entry : 0;
  }
  return 0;
}

// `t[b, k // n], k % n`: keys in pages, each of one sequence. Where there is no
// page nothing is stored.
static bool is_page(Grad *g, GradStore *s, uint32_t i) {
  if (i + 1 >= s->n) return false;
  const GradNode at = *grad_at(g, s->index[i + 1]);
  Gid page = page_entry(g, s->index[i]);
  if (at.code != OP_MOD || !page) return false;
  const GradNode *n = grad_at(g, page), *entry = grad_at(g, n->arg[n->n - 1]);
  if (entry->code != OP_FLOORDIV || entry->arg[0] != at.arg[0] ||
      entry->arg[1] != at.arg[1] || grad_at(g, at.arg[0])->code != OP_INDEX)
    return false;
  Gid some = grad_2(g, OP_LE, grad_int(g, 0), page);
  s->mask = s->mask ? grad_2(g, OP_AND, s->mask, some) : some;
  return true;
}

// ---------------------------------------------------------------- other maps
uint32_t grad_axis(Grad *g, const char *name, AxisRole role, Dim extent) {
  GradAxis a = {.of = UINT32_MAX,
                .axis = {intern(&g->cx->names, name), role, extent}};
  vec_push(g->arena, &g->axes, a);
  return g->axes.n - 1;
}

static uint32_t own_axis(Grad *g, const char *of, uint32_t i, Dim extent,
                         AxisRole role) {
  const char *name = arena_printf(g->m->arena, "%s_%u", of, i);
  return grad_axis(g, name, role, extent);
}

// The axis of an index that is no axis: as the pass named it for others of this
// tensor. Vectors have a known length.
static uint32_t axis_for(Maps *m, const GradStore *s, uint32_t i) {
  Grad *g = m->g;
  const GradTensor *t = &g->tensors.at[s->tensor];
  bool vec = grad_at(g, s->index[i])->axes & m->vecs &&
             dim_is_fixed(&g->m->dims, t->type.size[i]);
  const char *name = arena_printf(&g->cx->scratch, "%s_%u", t->name, i);
  for (uint32_t a = 0; a < g->axes.n; a++)
    if (strcmp(g->axes.at[a].axis.name, name) == 0) return a;
  return own_axis(g, t->name, i, t->type.size[i], vec ? AX_VEC : AX_PAR);
}

static bool fits(const Grad *g) {
  return g->axes.n < MAX_GRAD_AXES;
}

// ---------------------------------------------------------------- shifts
typedef struct Swap {
  Grad *g;
  uint32_t axis;  // coordinates along it become `to`
  Gid to;
  const GradTurn *turn;  // which is of that, or NULL
  uint64_t vecs;
  Map done;
} Swap;

// Is x read from memory, by whoever needs it or by kernels that are planned?
static bool is_read(const Grad *g, Gid x) {
  OpCode c = grad_at(g, x)->code;
  if (grad_scan_front(g, x)) return false;
  if (c == GRAD_RESULT || c == GRAD_MADE || c == OP_SCAN) return true;
  for (uint32_t i = 0; i < g->reads.n; i++)
    if (g->reads.at[i].node == x && g->reads.at[i].asked) return true;
  return false;
}

// The sum n, over others than the axes of `to`.
static GradNode apart(Swap *w, GradNode n, uint64_t by) {
  Grad *g = w->g;
  for (uint32_t i = 0; n.code == OP_REDUCE && i < g->axes.n; i++) {
    if (!(n.over & by & grad_bit(i))) continue;
    uint32_t twin = grad_twin(g, i, "in");
    Gid *arg = NEW(g->arena, Gid);
    *arg = grad_moved(g, n.arg[0], i, grad_index(g, twin));
    n.arg = arg;
    n.over ^= grad_bit(i) | grad_bit(twin);
    n.points = (n.points & ~grad_bit(i)) | grad_bit(twin);
  }
  return n;
}

// The step or the turn that a coordinate is of, or 0.
static Gid turned(const Swap *w, const GradNode *n) {
  uint32_t axis;
  int64_t turns;
  bool is = w->turn && grad_turns_of(w->g, n, &axis, &turns) &&
            axis == w->axis && turns == w->turn->n;
  if (!is) return 0;
  return n->code == OP_FLOORDIV ? w->turn->step : w->turn->turn;
}

// A node of one turn: what its number decides is known.
static Gid put_swapped(const Swap *w, GradNode n, const Gid *args) {
  Grad *g = w->g;
  const GradNode *c = grad_at(g, args[0]);
  if (w->turn && n.code == OP_SELECT && c->code == OP_EQ) {
    const GradNode *p = grad_at(g, c->arg[0]), *q = grad_at(g, c->arg[1]);
    if (p->code == OP_CONST && q->code == OP_CONST)
      return args[p->attr == q->attr ? 1 : 2];
  }
  bool folds = n.code == OP_MUL || n.code == OP_ADD || n.code == OP_SUB ||
               n.code == OP_NEG;
  if (w->turn && folds && dtype_is_float(n.dtype))
    return grad_op(g, n.code, args, n.n);
  return grad_put(g, n, args);
}

// x at the other coordinate.
static Gid swapped(Swap *w, Gid x) {
  Grad *g = w->g;
  GradNode n = *grad_at(g, x);
  uint64_t known, bit = grad_bit(w->axis), by = grad_at(g, w->to)->axes;
  if (!(n.axes & bit)) return x;
  if (n.code == OP_INDEX) return w->to;
  if (turned(w, &n)) return turned(w, &n);
  if (map_get(&w->done, x, &known)) return (Gid)known;
  GradRead r;  // what n reads, as long as n is used
  bool output = false;
  if (is_read(g, x)) {
    r = *grad_read(g, x);
    output = g->tensors.at[r.tensor].from == GF_OUTPUT && !(n.axes & w->vecs) &&
             grad_is_reference(g, x);
    n = (GradNode){.code = OP_LOAD,
                   .dtype = g->tensors.at[r.tensor].type.dtype,
                   .axes = n.axes,
                   .tensor = r.tensor,
                   .n = r.n,
                   .arg = r.index};
  }
  n = apart(w, n, by);
  Gid *args = NEWN(g->arena, Gid, n.n);
  for (uint32_t i = 0; i < n.n; i++) args[i] = swapped(w, n.arg[i]);
  n.axes = (n.axes & ~bit) | by;
  if (n.points & bit) n.points = (n.points & ~bit) | by;
  if (n.code == OP_SCAN && (n.over & bit)) n.over = by;
  Gid y = put_swapped(w, n, args);
  grad_scan_moved(g, x, y, w->axis, w->to);
  if (output) y = grad_1(g, OP_REF, y);
  map_put(&w->done, x, y);
  return y;
}

uint32_t grad_twin(Grad *g, uint32_t axis, const char *suffix) {
  const Axis a = g->axes.at[axis].axis;
  const char *name = arena_printf(&g->cx->scratch, "%s_%s", a.name, suffix);
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (g->axes.at[i].of == UINT32_MAX &&
        !strcmp(g->axes.at[i].axis.name, name))
      return i;
  uint32_t twin = grad_axis(g, name, a.role, a.extent);
  if (g->domain[axis])
    g->domain[twin] = grad_moved(g, g->domain[axis], axis, grad_index(g, twin));
  return twin;
}

Gid grad_moved(Grad *g, Gid x, uint32_t axis, Gid to) {
  Swap w = {g, axis, to, NULL, .vecs = grad_role(g, AX_VEC)};
  w.done.arena = g->arena;
  return swapped(&w, x);
}

Gid grad_moved_turn(Grad *g, Gid x, uint32_t axis, const GradTurn *turn) {
  Gid first = grad_2(g, OP_MUL, turn->step, grad_int(g, turn->n));
  Swap w = {g, axis, grad_2(g, OP_ADD, first, turn->turn), turn,
            .vecs = grad_role(g, AX_VEC)};
  w.done.arena = g->arena;
  return swapped(&w, x);
}

// Coordinates along it may be shifted: those of vectors, and of steps, but not
// where sequences end somewhere, or chunks store what their own steps have.
static bool shifts(const Maps *m, uint32_t axis) {
  const Grad *g = m->g;
  bool step =
      g->axes.at[axis].axis.role == AX_STEP && !g->domain[axis] && !g->views.n;
  return step || (m->vecs & grad_bit(axis));
}

// x is `d + c`, d along an axis of such coordinates: its axis; c may be 0.
static bool is_shift(const Maps *m, Gid x, uint32_t *axis, Gid *c) {
  const Grad *g = m->g;
  const GradNode *n = grad_at(g, x);
  *c = 0;
  for (uint32_t i = 0; i < 2 && n->code == OP_ADD; i++)
    if (grad_at(g, n->arg[i])->code == OP_INDEX &&
        !grad_at(g, n->arg[!i])->axes)
      *c = n->arg[!i], n = grad_at(g, n->arg[i]);
  if (n->code == OP_SUB && grad_at(g, n->arg[0])->code == OP_INDEX &&
      !grad_at(g, n->arg[1])->axes)
    *c = x, n = grad_at(g, n->arg[0]);
  *axis = (uint32_t)n->attr;
  return n->code == OP_INDEX && shifts(m, *axis);
}

// The axis that the tensor's other loads have there, or one of its own; of
// steps that axis itself.
static uint32_t axis_like(Maps *m, const GradStore *s, uint32_t i,
                          uint32_t axis) {
  Grad *g = m->g;
  Dim size = g->tensors.at[s->tensor].type.size[i];
  if (!(m->vecs & grad_bit(axis)) && g->axes.at[axis].axis.extent == size)
    return axis;
  for (uint32_t k = 0; k < g->grads.n; k++) {
    const GradStore *o = &g->grads.at[k];
    const GradNode *n = grad_at(g, o->index[i]);
    if (o->tensor == s->tensor && n->code == OP_INDEX && (n->axes & m->vecs) &&
        g->axes.at[n->attr].axis.extent == size)
      return (uint32_t)n->attr;
  }
  return axis_for(m, s, i);
}

// The part of a vector that another load has in full, or shifted: the element
// of coordinate r is that of r - c, where there is one.
static bool shift(Maps *m, GradStore *s, uint32_t i) {
  Grad *g = m->g;
  uint32_t axis;
  Gid c;
  if (!is_shift(m, s->index[i], &axis, &c)) return false;
  Dim extent = g->axes.at[axis].axis.extent;
  for (uint32_t k = 0; k < s->n; k++)
    if (k != i && (grad_at(g, s->index[k])->axes & grad_bit(axis)))
      return false;
  bool minus = c == s->index[i];
  uint32_t by = axis_like(m, s, i, axis);
  Gid r = grad_index(g, by), to = r;
  if (minus) to = grad_2(g, OP_ADD, r, grad_at(g, c)->arg[1]);
  else if (c) to = grad_2(g, OP_SUB, r, c);
  Gid end = grad_dim(g, extent);
  Gid ok = grad_2(g, OP_LT, to, end);
  if (c) ok = grad_2(g, OP_AND, ok, grad_2(g, OP_LE, grad_int(g, 0), to));
  Gid zero = grad_num(g, 0);
  s->v = grad_path(g, ok, grad_moved(g, s->v, axis, to), zero);
  s->index[i] = r;
  return true;
}

// The points of s whose index has a place: how often it is found, and that with
// indices which a kernel of their own makes.
typedef struct Same {
  Gid found, once;
} Same;

// s->v becomes the sum of those points at which it is found. Sums that v is are
// part of it.
static void sum_where(Maps *m, GradStore *s, Same at) {
  Grad *g = m->g;
  uint64_t points = grad_at(g, s->v)->axes | grad_at(g, at.found)->axes;
  Gid factor = grad_num(g, 1), x = s->v;
  for (;;) {
    const GradNode n = *grad_at(g, x);
    bool second = n.code == OP_MUL && grad_at(g, n.arg[1])->code == OP_REDUCE;
    bool first = n.code == OP_MUL && grad_at(g, n.arg[0])->code == OP_REDUCE;
    if (n.code == OP_NEG) factor = grad_1(g, OP_NEG, factor), x = n.arg[0];
    else if (first || second) {
      factor = grad_2(g, OP_MUL, factor, n.arg[!second]);
      x = n.arg[second];
    } else break;
  }
  const GradNode n = *grad_at(g, x);
  uint64_t over = points & ~grad_store_axes(g, s);
  if (n.code == OP_REDUCE && n.attr == RK_SUM && !(n.over & m->vecs) && over) {
    over |= n.over, points |= n.points, x = n.arg[0];
    x = grad_2(g, OP_MUL, factor, x);
  } else x = s->v;
  Gid gaps = grad_gaps(g, x, at.found, over, points);
  if (gaps) {
    s->v = gaps;
    return;
  }
  x = grad_sum_first(g, x, at.once, &over, &points);
  x = grad_3(g, OP_SELECT, at.once, x, grad_num(g, 0));
  s->v = grad_sum(g, x, over, points | grad_at(g, x)->axes);
}

// ---------------------------------------------------------------- parts
// The coordinate that index i of s is, or -1.
static int64_t part_at(const Grad *g, const GradStore *s, uint32_t i) {
  const GradNode *n = grad_at(g, s->index[i]);
  return n->code == OP_CONST && !dtype_is_float(n->dtype) ? n->attr : -1;
}

// Are all coordinates along axis i of the tensor named, by those loads that are
// of it? Then each is stored by itself: QKV[b, q, 0], QKV[b, k, 1], ..
static bool is_in_parts(const Grad *g, const GradStore *s, uint32_t i) {
  int64_t n;
  uint64_t seen = 0;
  Dim size = g->tensors.at[s->tensor].type.size[i];
  if (!dim_is_const(&g->m->dims, size, &n) || n > 64) return false;
  for (uint32_t k = 0; k < g->grads.n; k++) {
    const GradStore *o = &g->grads.at[k];
    if (o->tensor != s->tensor) continue;
    int64_t at = part_at(g, o, i);
    if (at < 0 || at >= n) return false;
    seen |= (uint64_t)1 << at;
  }
  return seen == UINT64_MAX >> (64 - n);
}

bool grad_same_part(const Grad *g, const GradStore *a, const GradStore *b) {
  for (uint32_t i = 0; i < a->n && a->tensor == b->tensor; i++)
    if (part_at(g, a, i) >= 0 && part_at(g, b, i) >= 0 &&
        a->index[i] != b->index[i])
      return false;
  return a->tensor == b->tensor;
}

static Gid and_equal(Grad *g, Gid also, Gid x, Gid y) {
  Gid eq = grad_2(g, OP_EQ, x, y);
  return also ? grad_2(g, OP_AND, also, eq) : eq;
}

// Each index of s is an axis, or a part.
static bool make_whole(Maps *m, GradStore *s) {
  Grad *g = m->g;
  uint64_t used = 0;
  Same same = {0};
  for (uint32_t i = 0; i < s->n && fits(g); i++) {
    Gid x = s->index[i];
    uint64_t axes = grad_at(g, x)->axes;
    uint32_t of;
    if (is_in_parts(g, s, i) ||
        grad_turns_of(g, grad_at(g, x), &of, &(int64_t){0}))
      continue;
    if (is_page(g, s, i)) {
      used |= grad_at(g, s->index[++i])->axes | axes;
      s->physical = true;
    } else if (is_plain(g, x, g->tensors.at[s->tensor].type.size[i], used))
      used |= axes;
    else if (grad_segment(g, s, i)) used |= axes;
    else if (shift(m, s, i) || grad_list_keys(g, &m->lists, s, i))
      used |= grad_at(g, s->index[i])->axes;
    else {
      s->index[i] = grad_index(g, axis_for(m, s, i));
      same.found = and_equal(g, same.found, x, s->index[i]);
      same.once = and_equal(g, same.once, grad_place_once(g, x), s->index[i]);
    }
  }
  if (!same.found) return true;
  sum_where(m, s, same);
  return fits(g);
}

// ---------------------------------------------------------------- several
static bool same_index(const GradStore *a, const GradStore *b) {
  return a->tensor == b->tensor && a->n == b->n &&
         memcmp(a->index, b->index, a->n * sizeof *a->index) == 0;
}

// Gradients of one tensor at the same index are one.
static void merge(Grad *g) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->grads.n; i++) {
    uint32_t k = 0;
    while (k < n && !same_index(&g->grads.at[k], &g->grads.at[i])) k++;
    GradStore *to = &g->grads.at[k];
    if (k == n) g->grads.at[n++] = g->grads.at[i];
    else to->v = grad_2(g, OP_ADD, to->v, g->grads.at[i].v);
  }
  g->grads.n = n;
}

// No output depends on the input.
static void put_zero(Maps *m, uint32_t tensor) {
  Grad *g = m->g;
  const GradTensor t = g->tensors.at[tensor];
  GradStore s = {.tensor = tensor, .v = grad_num(g, 0), .span = g->f->span};
  s.n = t.type.kind == TK_TENSOR ? t.type.n : 0;
  for (uint32_t i = 0; i < s.n; i++)
    s.index[i] = grad_index(g, own_axis(g, t.name, i, t.type.size[i], AX_PAR));
  vec_push(g->arena, &g->grads, s);
  diag_add(g->cx, DIAG_grad_zero, g->f->span, t.name);
}

static bool has_gradient(const Grad *g, uint32_t tensor) {
  for (uint32_t i = 0; i < g->grads.n; i++)
    if (g->grads.at[i].tensor == tensor) return true;
  return false;
}

bool grad_maps(Grad *g) {
  Maps m = {g, grad_role(g, AX_KEY), grad_role(g, AX_VEC), {0}};
  merge(g);
  for (uint32_t i = 0; i < g->grads.n; i++) {
    GradStore *s = &g->grads.at[i];
    if (make_whole(&m, s)) continue;
    diag_add(g->cx, DIAG_grad_map, grad_span(g, s->span),
             g->tensors.at[s->tensor].name, "too many axes");
    return false;
  }
  merge(g);
  for (uint32_t i = 1, n = g->tensors.n; i < n; i++)
    if (g->tensors.at[i].wanted && !has_gradient(g, i)) put_zero(&m, i);
  return fits(g);
}
