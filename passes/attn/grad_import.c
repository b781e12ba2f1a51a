// grad, part 2: a program as a graph. Axes that it uses in groups, `h // r`,
// become two, so that what the heads of a group have in common (their keys) is
// differentiated once for the group and not for each head.
#include "passes/attn/grad.h"
#include "passes/support/lane.h"
#include "passes/support/groups.h"

typedef struct Import {
  Grad *g;
  uint32_t tensor[64];  // by parameter
  uint32_t out[64];     // that an `inout` one becomes
  bool steps;           // what is imported is a step of a recurrence
  Gid turn[64];         // by axis of the program: of a loop in a step; or 0
} Import;

// ---------------------------------------------------------------- axes
// x of max(1, x), as sizes of groups are written.
static Dim at_least_one(const DimTab *d, Dim x) {
  const DimExpr *e = &d->exprs.at[x];
  if (e->op != DIM_MAX) return x;
  return d->exprs.at[e->a].op == DIM_CONST ? e->b : e->a;
}

// How many groups of that size an axis has, if it has no other coordinates;
// else DIM_NONE. Those of H // G heads are the G that tensors have.
static Dim groups_of(Grad *g, Dim extent, Dim size) {
  DimTab *d = &g->m->dims;
  int64_t rest;
  if (dim_is_const(d, dim_bin(d, DIM_MOD, extent, size), &rest) && !rest)
    return group_count(d, extent, size);
  const DimExpr *e = &d->exprs.at[at_least_one(d, size)];
  bool all = e->op == DIM_FLOORDIV && at_least_one(d, e->a) == extent;
  return all ? at_least_one(d, e->b) : DIM_NONE;
}

// Is v the place along an axis of a tensor, not only a part of one? What rows
// count otherwise, as pieces of an image or blocks that a mask compares, stays
// in one piece.
static bool is_place(const Func *f, Value v) {
  for (const Op *op = f->body->first; op; op = op->next)
    for (uint32_t i = 1; op->code == OP_LOAD && i < op->nargs; i++)
      if (op->args[i] == v) return true;
  return false;
}

// The size of the groups of an axis, or DIM_NONE.
static Dim group_size(Grad *g, uint32_t axis) {
  Dim found = DIM_NONE, size;
  uint32_t of;
  for (Op *op = g->f->body->first; op; op = op->next) {
    if (op->code == OP_SCAN && ir_attr_i(op, AT_AXIS, 0) == axis)
      return DIM_NONE;
    if (op->nres != 1 || !group_of(g->f, op->res[0], &of, &size)) continue;
    if (of != axis || (found && found != size)) continue;
    if (!is_place(g->f, op->res[0])) continue;
    if (groups_of(g, g->f->axes.at[axis].extent, size)) found = size;
  }
  return found;
}

static void put_axis(Grad *g, uint32_t of, const char *suffix, Dim extent) {
  const Axis *a = &g->f->axes.at[of];
  const char *name = arena_printf(g->m->arena, "%s%s", a->name, suffix);
  GradAxis x = {.of = of,
                .axis = {intern(&g->cx->names, name), a->role, extent}};
  vec_push(g->arena, &g->axes, x);
}

static bool has_role(const Func *f, const Type *t, AxisRole role) {
  for (uint32_t i = 0; i < t->n; i++)
    if (f->axes.at[t->axis[i]].role == role) return true;
  return false;
}

// Do all vectors of keys stay the same along it, and are there some?
static bool shares_keys(const Func *f, uint32_t axis) {
  bool some = false;
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->code != OP_LOAD) continue;
    const Type *t = ir_type(f, op->res[0]);
    if (!has_role(f, t, AX_KEY) || !has_role(f, t, AX_VEC)) continue;
    if (type_has_axis(t, axis)) return false;
    some = true;
  }
  return some;
}

// How many rows an axis has, of those that share keys: groups have few, then
// come other heads, then queries; those whose number is known before others.
static uint32_t rank_of(Grad *g, uint32_t axis, bool saved) {
  int64_t n;
  bool known = dim_is_const(&g->m->dims, g->f->axes.at[axis].extent, &n);
  if (group_size(g, axis)) return 0;
  if (saved) return 1 + lane_bounds_keys(g->f, axis);
  return 1 + 2 * lane_like_keys(g->f, axis) + !known;
}

static bool is_row(const Grad *g, uint32_t axis) {
  return g->f->axes.at[axis].role == AX_PAR && shares_keys(g->f, axis);
}

// The program's axes in the order of the graph's: of those of rows that share
// keys, which stand beside each other, the longest is the last, which tiles
// have many of. Of (q, h) that is (h, q): a group has few heads. What the
// program saves is laid out before dims are known: by the text alone.
static void order_axes(Grad *g, bool saved, uint32_t *order) {
  for (uint32_t i = 0; i < g->f->axes.n; i++) {
    uint32_t at = i;
    bool group = g->f->axes.at[i].role == AX_PAR && group_size(g, i);
    while (at && (group || is_row(g, i)) && is_row(g, order[at - 1]) &&
           rank_of(g, order[at - 1], saved) > rank_of(g, i, saved)) {
      order[at] = order[at - 1];
      at--;
    }
    order[at] = i;
  }
}

static bool import_axes(Grad *g) {
  uint32_t n = g->f->axes.n, *order = NEWN(g->arena, uint32_t, n + 1),
           *saved = NEWN(g->arena, uint32_t, n + 1);
  order_axes(g, false, order);
  order_axes(g, true, saved);
  for (uint32_t k = 0; k < n; k++) {
    uint32_t i = order[k], first = g->axes.n;
    Dim e = g->f->axes.at[i].extent, size = group_size(g, i);
    if (!size) put_axis(g, i, "", e);
    else {
      put_axis(g, i, "_g", groups_of(g, e, size));
      put_axis(g, i, "_j", size);
      g->axes.at[first].inner = size;
      g->axes.at[first].other = first + 1;
    }
    for (uint32_t p = 0; p < n; p++)
      for (uint32_t a = first; saved[p] == i && a < g->axes.n; a++)
        g->axes.at[a].saved = p;
  }
  return g->axes.n <= 64;
}

// The first axis of the graph that stands for the program's.
static uint32_t first_of(const Grad *g, uint32_t of) {
  uint32_t i = 0;
  while (g->axes.at[i].of != of) i++;
  return i;
}

uint64_t grad_bits_of(const Grad *g, uint32_t of) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (g->axes.at[i].of == of) all |= grad_bit(i);
  return all;
}

static uint64_t summed_axes(const Grad *g, const IrAttr *a) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < a->n; i++)
    all |= grad_bits_of(g, (uint32_t)a->list[i]);
  return all;
}

static Gid dim_node(Grad *g, Dim d) {
  int64_t v;
  if (dim_is_const(&g->m->dims, d, &v)) return grad_int(g, v);
  return grad_dim(g, d);
}

// The coordinate along the program's axis.
static Gid index_node(Grad *g, uint32_t of) {
  uint32_t i = first_of(g, of);
  const GradAxis *a = &g->axes.at[i];
  Gid x = grad_index(g, i);
  if (!a->inner) return x;
  uint32_t other = a->other;
  x = grad_2(g, OP_MUL, x, dim_node(g, a->inner));
  return grad_2(g, OP_ADD, x, grad_index(g, other));
}

// Axes of constant extents come last: tiles are whole pieces of memory.
static bool is_fixed(const Grad *g, uint32_t axis) {
  int64_t n;
  return dim_is_const(&g->m->dims, g->axes.at[axis].axis.extent, &n);
}

// The axes in the order of the graph, or in that of what the program saves.
static void in_order(const Grad *g, bool saved, uint32_t *out) {
  uint32_t n = 0;
  for (uint32_t p = 0; saved && p < g->f->axes.n; p++)
    for (uint32_t i = 0; i < g->axes.n; i++)
      if (g->axes.at[i].of != UINT32_MAX && g->axes.at[i].saved == p)
        out[n++] = i;
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (!saved || g->axes.at[i].of == UINT32_MAX) out[n++] = i;
}

static uint32_t coordinates(Grad *g, uint64_t axes, bool saved, Gid *index,
                            Dim *shape) {
  uint32_t n = 0, order[64];
  in_order(g, saved, order);
  for (uint32_t turn = 0; turn < 2 * g->axes.n; turn++) {
    uint32_t i = order[turn % g->axes.n];
    bool last = !saved && is_fixed(g, i);
    if (!(axes & grad_bit(i)) || last != (turn >= g->axes.n)) continue;
    uint32_t of = g->axes.at[i].of;
    bool whole = g->axes.at[i].inner && (axes & grad_bit(g->axes.at[i].other));
    index[n] = whole ? index_node(g, of) : grad_index(g, i);
    shape[n++] = whole ? g->f->axes.at[of].extent : g->axes.at[i].axis.extent;
    if (whole) axes &= ~grad_bit(g->axes.at[i].other);
  }
  if (n) return n;
  index[0] = grad_int(g, 0);
  shape[0] = dim_const(&g->m->dims, 1);
  return 1;
}

uint32_t grad_coordinates(Grad *g, uint64_t axes, Gid *index, Dim *shape) {
  return coordinates(g, axes, false, index, shape);
}

uint32_t grad_coordinates_saved(Grad *g, uint64_t axes, Gid *index,
                                Dim *shape) {
  return coordinates(g, axes, true, index, shape);
}

// ---------------------------------------------------------------- ops
static Gid node_of(Import *m, Value v) {
  Grad *g = m->g;
  if (g->node[v]) return g->node[v];
  for (uint32_t i = 0; i < g->f->params.n; i++)
    if (g->f->params.at[i].v == v)
      g->node[v] = grad_load(g, m->tensor[i], NULL, 0);
  return g->node[v];
}

static uint32_t tensor_of(const Import *m, Value v) {
  const Func *f = m->g->f;
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == v) return m->tensor[i];
  return 0;
}

// What is stored to v.
static uint32_t stored_of(const Import *m, Value v) {
  const Func *f = m->g->f;
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == v) return m->out[i] ? m->out[i] : m->tensor[i];
  return 0;
}

static bool refuse(const Import *m, const Op *op, const char *what) {
  Span at = grad_span(m->g, op->span);
  diag_add(m->g->cx, DIAG_grad_through, at, what, m->g->f->name);
  return false;
}

// Is x 0 times a coordinate?
static bool is_nothing(const Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  for (uint32_t i = 0; n->code == OP_MUL && i < 2; i++) {
    const GradNode *k = grad_at(g, n->arg[1 - i]);
    if (grad_is_number(g, n->arg[i], 0) && k->code == OP_CAST &&
        grad_at(g, k->arg[0])->code == OP_INDEX)
      return true;
  }
  return false;
}

// x, without what makes it vary with an axis but changes nothing.
static Gid narrow(const Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  for (uint32_t i = 0; n->code == OP_ADD && i < 2; i++)
    if (is_nothing(g, n->arg[i])) return n->arg[1 - i];
  return x;
}

// The sum of x over axes without a condition that it does not vary with: no row
// that would be saved.
static Gid counted(Grad *g, Gid x, uint64_t over) {
  x = narrow(g, x);
  if (grad_at(g, x)->axes & over) return 0;
  for (uint32_t i = 0; i < g->axes.n; i++)
    if ((over & grad_bit(i)) && g->domain[i]) return 0;
  for (uint32_t i = 0; i < g->axes.n; i++) {
    if (!(over & grad_bit(i))) continue;
    GradNode cast = {.code = OP_CAST, .dtype = grad_at(g, x)->dtype, .n = 1};
    Gid n = dim_node(g, g->axes.at[i].axis.extent);
    x = grad_2(g, OP_MUL, x, grad_put(g, cast, &n));
  }
  return x;
}

static bool import_reduce(Import *m, const Op *op, const Gid *a, GradNode *n) {
  Grad *g = m->g;
  n->over = summed_axes(g, ir_attr(op, AT_OVER));
  n->attr = op->code == OP_DOT ? RK_SUM : ir_attr_i(op, AT_KIND, RK_SUM);
  n->n = 1;
  n->code = OP_REDUCE;
  Gid x = a[0];
  if (op->code == OP_DOT) {
    // the exact product
    GradNode p = {.code = OP_MUL, .dtype = n->dtype, .n = 2};
    Gid turned[2] = {a[a[0] > a[1]], a[a[0] <= a[1]]};
    p.axes = grad_at(g, a[0])->axes | grad_at(g, a[1])->axes;
    x = grad_put(g, p, turned);
  }
  bool plain = n->attr == RK_SUM && dtype_is_float(n->dtype) &&
               dtype_is_float(grad_at(g, x)->dtype);
  g->node[op->res[0]] = plain ? counted(g, x, n->over) : 0;
  if (g->node[op->res[0]]) return true;
  n->points = grad_at(g, x)->axes | grad_points(g, n->over);
  n->axes = n->points & ~n->over;
  g->node[op->res[0]] = grad_put(g, *n, &x);
  return true;
}

static void import_store(Import *m, const Op *op) {
  Grad *g = m->g;
  GradStore s = {.tensor = stored_of(m, op->args[0]),
                 .v = node_of(m, op->args[1]),
                 .span = op->span};
  uint32_t masked = ir_attr_i(op, AT_MASKED, 0) != 0;
  for (uint32_t i = 2; i + masked < op->nargs; i++)
    s.index[s.n++] = node_of(m, op->args[i]);
  if (masked) s.mask = node_of(m, op->args[op->nargs - 1]);
  vec_push(g->arena, &g->outs, s);
}

static void import_domain(Import *m, const Op *op) {
  Grad *g = m->g;
  uint32_t axis = first_of(g, (uint32_t)ir_attr_i(op, AT_AXIS, 0));
  Gid c = node_of(m, op->args[0]);
  if (g->domain[axis]) c = grad_2(g, OP_AND, g->domain[axis], c);
  g->domain[axis] = c;
}

// `h // r` of the axis that was split.
static Gid group_node(Grad *g, Value v) {
  uint32_t of;
  Dim size;
  if (!group_of(g->f, v, &of, &size)) return 0;
  uint32_t i = first_of(g, of);
  return g->axes.at[i].inner == size ? grad_index(g, i) : 0;
}

static bool import_other(Import *m, const Op *op, const Gid *a, GradNode *n) {
  Grad *g = m->g;
  Gid *to = &g->node[op->res[0]], turned[2];
  uint32_t first = op->code == OP_LOAD;
  if (op->code == OP_GIVEN) n->tensor = tensor_of(m, op->args[0]), n->n = 0;
  if (op->code == OP_INDEX) {
    uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
    return (*to = m->turn[axis] ? m->turn[axis] : index_node(g, axis)) != 0;
  }
  if (op->code == OP_DIM)
    return (*to = dim_node(g, (Dim)ir_attr_i(op, AT_DIM, 0))) != 0;
  if (op->code == OP_CONST) {
    const IrAttr *v = ir_attr(op, AT_VALUE);
    if (v) n->value = v->f;
    else n->attr = ir_attr_i(op, AT_IVALUE, 0);
  }
  if (op->code == OP_DIVK)
    n->over = grad_bits_of(g, (uint32_t)ir_attr_i(op, AT_AXIS, 0));
  if (op->code == OP_LOAD) n->tensor = tensor_of(m, op->args[0]), n->n--;
  for (uint32_t i = 0; i < n->n; i++) n->axes |= grad_at(g, a[i])->axes;
  if (n->n == 2 && !first && (op_info(op->code)->flags & OPF_COMM) &&
      a[0] > a[1]) {
    turned[0] = a[1], turned[1] = a[0];
    a = turned;
  }
  Gid group = op->code == OP_FLOORDIV ? group_node(g, op->res[0]) : 0;
  *to = group ? group : grad_put(g, *n, a);
  return true;
}

static bool import_scan(Import *m, const Op *op, const Gid *a, GradNode *n) {
  Grad *g = m->g;
  if (ir_attr_i(op, AT_KIND, RK_SUM) != RK_SUM || op->nargs != 1)
    return refuse(m, op, "a running maximum, minimum or product");
  bool suffix = ir_attr_i(op, AT_DIR, DIR_PREFIX) == DIR_SUFFIX;
  n->over = grad_bits_of(g, (uint32_t)ir_attr_i(op, AT_AXIS, 0));
  n->attr = (suffix ? GRAD_SCAN_SUFFIX : 0) |
            (ir_attr_i(op, AT_EXCLUSIVE, 0) ? GRAD_SCAN_EXCLUSIVE : 0);
  Gid x = grad_scan(g, a[0], *n);
  // Sums run in f32, exact for integers below 2^24.
  GradNode whole = {.code = OP_CAST, .dtype = n->dtype, .n = 1};
  whole.axes = grad_at(g, x)->axes;
  bool is_float = dtype_is_float(n->dtype);
  g->node[op->res[0]] = is_float ? x : grad_put(g, whole, &x);
  return true;
}

static bool known(const Op *op) {
  switch (op->code) {
  case OP_CONST:
  case OP_DIM:
  case OP_GIVEN:
  case OP_INDEX:
  case OP_LOAD:
  case OP_SCAN: return true;
  default: return (op_info(op->code)->flags & OPF_ELEM) && op->nres == 1;
  }
}

static Gid operand(void *data, Value v) {
  return node_of(data, v);
}

static bool refuse_step(const Import *m, const Op *op, const char *why) {
  Ctx *cx = m->g->cx;
  Diag *d = diag_add(cx, DIAG_grad_recurrent, op->span, m->g->f->name);
  diag_note(cx, d, NOWHERE, "%s", why);
  return false;
}

static bool import_op(Import *m, const Op *op);

enum { MAX_TURNS = 16 };  // of a loop in a step

// How many it has, or 0: that is not known, or they are too many.
static int64_t turns_of(const Import *m, const Op *op) {
  int64_t n;
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  bool known = dim_is_const(&m->g->m->dims, m->g->f->axes.at[axis].extent, &n);
  return known && n <= MAX_TURNS ? n : 0;
}

// Why the step of a recurrence is no function that rules differentiate, or
// NULL.
static const char *why_not(const Import *m, const Op *op) {
  const Region *r = op->regions[0];
  const char *why = NULL;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!dtype_is_float(ir_type(m->g->f, r->params.at[i])->dtype))
      why = "a state that is no float";
  for (const Op *in = r->first; in && !why; in = in->next) {
    if (!in->nregions) continue;
    why = in->code == OP_RECUR && turns_of(m, in)
              ? why_not(m, in)
              : "an inner loop whose count is not small and known (--dim R=2 "
                "fixes R)";
  }
  return why;
}

// A loop in a step: its turns, one behind the other.
static bool import_turns(Import *m, const Op *op) {
  Grad *g = m->g;
  const Region *r = op->regions[0];
  Gid *at = NEWN(g->arena, Gid, op->nargs + 1);
  int64_t turns = turns_of(m, op);
  Gid *turn = &m->turn[ir_attr_i(op, AT_AXIS, 0)];
  for (uint32_t i = 0; i < op->nargs; i++) at[i] = node_of(m, op->args[i]);
  for (int64_t k = 0; k < turns; k++) {
    *turn = grad_int(g, ir_attr_i(op, AT_REVERSE, 0) ? turns - 1 - k : k);
    for (uint32_t i = 0; i < op->nargs; i++) g->node[r->params.at[i]] = at[i];
    for (const Op *in = r->first; in != r->last; in = in->next)
      if (!import_op(m, in)) return false;
    for (uint32_t i = 0; i < op->nargs; i++)
      at[i] = node_of(m, r->last->args[i]);
  }
  for (uint32_t i = 0; i < op->nargs; i++) g->node[op->res[i]] = at[i];
  *turn = 0;
  return true;
}

// Where a recurrence has no normal form its step is any function of what the
// states are in front of it.
static bool import_body(Import *m, const Op *op) {
  const Region *r = op->regions[0];
  Gid *at = NEWN(m->g->arena, Gid, op->nargs + 1);
  const char *why = why_not(m, op);
  if (why) return refuse_step(m, op, why);
  for (uint32_t i = 0; i < op->nargs; i++) at[i] = node_of(m, op->args[i]);
  grad_open_body(m->g, op, at);
  m->steps = true;
  for (const Op *in = r->first; in != r->last; in = in->next)
    if (!import_op(m, in)) return false;
  m->steps = false;
  for (uint32_t i = 0; i < op->nargs; i++) at[i] = node_of(m, r->last->args[i]);
  grad_close_body(m->g, op, at);
  return true;
}

static bool import_op(Import *m, const Op *op) {
  Grad *g = m->g;
  Gid a[10] = {0};
  uint32_t first = op->code == OP_LOAD || op->code == OP_GIVEN;
  if (op->code == OP_DOMAIN) return import_domain(m, op), true;
  if (op->code == OP_ASSUME) return true;
  if (op->code == OP_STORE) return import_store(m, op), true;
  if (op->code == OP_AFFINE || op->code == OP_MAXPLUS)
    return grad_import_walk(g, op, operand, m);
  if (op->code == OP_RECUR)
    return m->steps ? import_turns(m, op) : import_body(m, op);
  bool sum = op->code == OP_REDUCE || op->code == OP_DOT;
  if (op->nregions || (!sum && !known(op)))
    return refuse(m, op, op_info(op->code)->name);
  for (uint32_t i = first; i < op->nargs; i++)
    a[i - first] = node_of(m, op->args[i]);
  GradNode n = {.code = op->code,
                .dtype = ir_type(g->f, op->res[0])->dtype,
                .hint = ir_info(g->f, op->res[0])->hint,
                .n = op->nargs,
                .span = op->span};
  bool scan = op->code == OP_SCAN;
  if (!(sum ? import_reduce : scan ? import_scan : import_other)(m, op, a, &n))
    return false;
  Gid x = g->node[op->res[0]];
  while (g->nodes.n >= 1 && x >= g->forward) g->forward = x + 1;
  return true;
}

// ---------------------------------------------------------------- all
static bool named(const char *list, const char *name) {
  size_t n = strlen(name);
  for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
    if (strncmp(p, name, n) == 0 && (!p[n] || p[n] == ',')) return true;
  return false;
}

// Are the first n letters of `name` an input whose gradient is made?
static bool is_wanted(const Grad *g, const char *name, size_t n) {
  for (uint32_t i = 1; i < g->tensors.n; i++) {
    const GradTensor *t = &g->tensors.at[i];
    if (t->wanted && strlen(t->name) == n && !strncmp(t->name, name, n))
      return true;
  }
  return false;
}

// Is it an inout tensor that equations write? Where they do not, its cotangent
// would be its gradient: it has none.
static bool is_table(const Grad *g, const FuncParam *p) {
  for (const Op *op = g->f->body->first; op; op = op->next)
    if (op->code == OP_MAXPLUS) return false;
  return p->role == PR_INOUT && !lane_walks(g->f->body);
}

static bool refuse_name(Grad *g, const char *name) {
  Span at = g->f->span;
  for (uint32_t i = 0; i < g->f->params.n; i++) {
    const FuncParam *p = &g->f->params.at[i];
    if (p->role == PR_OUT || strcmp(ir_info(g->f, p->v)->hint, name)) continue;
    diag_add(g->cx, DIAG_grad_integer, at, name,
             p->nograd        ? "it is nograd"
             : is_table(g, p) ? "an equation writes to places of it"
                              : "it is not a float");
    return false;
  }
  Diag *d = diag_add(g->cx, DIAG_grad_input, at, g->f->name);
  if (*name >= '0' && *name <= '9')
    diag_note(g->cx, d, NOWHERE,
              "there are no second derivatives: a gradient is several kernels "
              "that hand rows to each other, and this takes a program of one");
  return false;
}

// Each name that is asked for is an input that has a gradient; some input has.
static bool check_names(Grad *g) {
  bool any = false;
  for (uint32_t i = 1; i < g->tensors.n; i++) any |= g->tensors.at[i].wanted;
  for (const char *p = g->opt->grad; p && *p;) {
    size_t n = strcspn(p, ",");
    if (!is_wanted(g, p, n))
      return refuse_name(g, arena_printf(g->m->arena, "%.*s", (int)n, p));
    p += n + (p[n] == ',');
  }
  if (any) return true;
  diag_add(g->cx, DIAG_grad_integer, g->f->span, g->f->name,
           "it has no input of floats");
  return false;
}

static bool import_params(Import *m) {
  Grad *g = m->g;
  if (g->f->params.n > 64) return false;
  for (uint32_t i = 0; i < g->f->params.n; i++) {
    const FuncParam *p = &g->f->params.at[i];
    GradTensor t = {.name = ir_info(g->f, p->v)->hint,
                    .from = p->role == PR_OUT ? GF_OUTPUT : GF_INPUT,
                    .type = *ir_type(g->f, p->v),
                    .param = p->v};
    bool both = p->role == PR_INOUT;
    bool in = p->role == PR_IN || p->role == PR_SCALAR || both;
    t.wanted = in && !p->nograd && !is_table(g, p) &&
               dtype_is_float(t.type.dtype) &&
               (!g->opt->grad || named(g->opt->grad, t.name));
    t.read = t.from == GF_INPUT;
    m->tensor[i] = grad_tensor(g, t);
    if (!both) continue;
    t.from = GF_OUTPUT;
    t.wanted = t.read = false, t.inout = true;
    m->out[i] = grad_tensor(g, t);
  }
  return check_names(g);
}

bool grad_import(Grad *g) {
  Import m = {.g = g};
  if (!import_axes(g) || !import_params(&m)) return false;
  for (const Op *op = g->f->body->first; op; op = op->next)
    if (!import_op(&m, op)) return false;
  g->forward = g->nodes.n;
  g->of = NEWN(g->arena, Value, g->forward);
  for (Value v = 1; v < g->f->values.n; v++)
    if (g->node[v] && !g->of[g->node[v]]) g->of[g->node[v]] = v;
  return true;
}
