// grad, part 1: the graph. Equal nodes are made once; zeros, ones and signs are
// folded as nodes are made.
#include "passes/attn/grad.h"

#include <assert.h>

uint64_t grad_role(const Grad *g, AxisRole r) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (g->axes.at[i].axis.role == r) all |= grad_bit(i);
  return all;
}

uint64_t grad_points(const Grad *g, uint64_t axes) {
  uint64_t all = axes;
  for (uint32_t i = 0; i < g->axes.n && i < 64; i++)
    if ((axes & grad_bit(i)) && g->domain[i])
      all |= grad_at(g, g->domain[i])->axes;
  return all;
}

static bool is_maximum(const Grad *g, const GradNode *n) {
  if (n->code != GRAD_WALK) return false;
  const GradWalk *w = &g->walks.at[n->attr];
  if (!w->flows) return false;
  for (uint32_t i = 0; i < w->n; i++)
    if (w->item[i].kind == GI_MAX) return true;
  return false;
}

DType grad_vectors(const Grad *g, Gid x) {
  bool *in = NEWN(g->arena, bool, x + 1);
  uint64_t vec = grad_role(g, AX_VEC);
  DType found = DT_NONE;
  in[x] = true;
  for (Gid i = x; i > 0; i--) {
    const GradNode *n = grad_at(g, i);
    if (!in[i]) continue;
    if (is_maximum(g, n)) return DT_NONE;
    if (n->code == OP_LOAD && (n->axes & vec) && dtype_size(n->dtype) == 2)
      found = n->dtype;
    for (uint32_t k = 0; k < n->n; k++) in[n->arg[k]] = true;
  }
  return found;
}

// ---------------------------------------------------------------- nodes
typedef struct NodeKey {
  uint64_t code, dtype, axes, over, points, attr, tensor, value, n;
} NodeKey;

static uint64_t hash_of(const GradNode *n, const Gid *args, uint64_t seed) {
  NodeKey k = {n->code,           n->dtype,  n->axes, n->over, n->points,
               (uint64_t)n->attr, n->tensor, 0,       n->n};
  memcpy(&k.value, &n->value, sizeof k.value);
  return map_hash(args, n->n * sizeof *args, map_hash(&k, sizeof k, seed));
}

static bool same(const GradNode *a, const GradNode *b, const Gid *args) {
  return a->code == b->code && a->dtype == b->dtype && a->axes == b->axes &&
         a->over == b->over && a->points == b->points && a->attr == b->attr &&
         a->tensor == b->tensor && a->n == b->n &&
         memcmp(&a->value, &b->value, sizeof a->value) == 0 &&
         (!a->n || memcmp(a->arg, args, a->n * sizeof *args) == 0);
}

Gid grad_put(Grad *g, GradNode n, const Gid *args) {
  uint64_t known;
  for (uint64_t seed = 0;; seed++) {
    uint64_t h = hash_of(&n, args, seed);
    if (!map_get(&g->index, h, &known)) {
      n.arg = NEWN(g->arena, Gid, n.n + 1);
      if (n.n) memcpy(n.arg, args, n.n * sizeof *args);
      vec_push(g->arena, &g->nodes, n);
      map_put(&g->index, h, g->nodes.n - 1);
      return g->nodes.n - 1;
    }
    if (same(grad_at(g, (Gid)known), &n, args)) return (Gid)known;
  }
}

uint32_t grad_tensor(Grad *g, GradTensor t) {
  vec_push(g->arena, &g->tensors, t);
  return g->tensors.n - 1;
}

// ---------------------------------------------------------------- leaves
Gid grad_num(Grad *g, double v) {
  return grad_put(g, (GradNode){.code = OP_CONST, .dtype = DT_F32, .value = v},
                  NULL);
}

Gid grad_int(Grad *g, int64_t v) {
  return grad_put(g, (GradNode){.code = OP_CONST, .dtype = DT_I64, .attr = v},
                  NULL);
}

Gid grad_index(Grad *g, uint32_t axis) {
  return grad_put(g,
                  (GradNode){.code = OP_INDEX,
                             .dtype = DT_I64,
                             .axes = grad_bit(axis),
                             .attr = axis},
                  NULL);
}

Gid grad_dim(Grad *g, Dim d) {
  GradNode n = {.code = OP_DIM, .dtype = DT_I64, .attr = (int64_t)d};
  return grad_put(g, n, NULL);
}

Gid grad_made(Grad *g, Gid x, uint64_t axes, const char *name) {
  DType t = grad_at(g, x)->dtype;
  GradNode n = {.code = GRAD_MADE,
                .dtype = t == DT_F64 || t == DT_I32 ? t : DT_F32,
                .axes = axes,
                .hint = name,
                .n = 1};
  return grad_put(g, n, &x);
}

static uint64_t axes_of(const Grad *g, const Gid *args, uint32_t n) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < n; i++) all |= grad_at(g, args[i])->axes;
  return all;
}

Gid grad_list(Grad *g, const Gid *args, uint32_t n) {
  GradNode list = {.code = GRAD_LIST, .dtype = DT_F32, .n = n};
  list.axes = axes_of(g, args, n);
  return grad_put(g, list, args);
}

Gid grad_load(Grad *g, uint32_t tensor, const Gid *index, uint32_t n) {
  return grad_put(g,
                  (GradNode){.code = OP_LOAD,
                             .dtype = g->tensors.at[tensor].type.dtype,
                             .axes = axes_of(g, index, n),
                             .tensor = tensor,
                             .n = n},
                  index);
}

bool grad_is_number(const Grad *g, Gid x, double v) {
  const GradNode *n = grad_at(g, x);
  return n->code == OP_CONST && dtype_is_float(n->dtype) && n->value == v;
}

// ---------------------------------------------------------------- operations
static bool is_float(const Grad *g, Gid x) {
  return dtype_is_float(grad_at(g, x)->dtype);
}

static DType wide(const Grad *g, const Gid *args, uint32_t n) {
  DType t = grad_at(g, args[0])->dtype;
  for (uint32_t i = 0; i < n; i++) {
    DType a = grad_at(g, args[i])->dtype;
    if (dtype_is_float(a) && !dtype_is_float(t)) t = a;
    if (a == DT_F64) return DT_F64;
  }
  return dtype_is_float(t) ? DT_F32 : DT_I64;
}

// The value of x op y for what is left as it is, else 0.
static Gid fold_mul(Grad *g, Gid x, Gid y) {
  for (uint32_t i = 0; i < 2; i++) {
    Gid a = i ? y : x, b = i ? x : y;
    if (grad_is_number(g, a, 0)) return grad_num(g, 0);
    if (grad_is_number(g, a, 1)) return b;
    if (grad_is_number(g, a, -1)) return grad_1(g, OP_NEG, b);
  }
  const GradNode *a = grad_at(g, x), *b = grad_at(g, y);
  if (a->code == OP_CONST && b->code == OP_CONST)
    return grad_num(g, a->value * b->value);
  if (a->code == OP_NEG)
    return grad_1(g, OP_NEG, grad_2(g, OP_MUL, a->arg[0], y));
  if (b->code == OP_NEG)
    return grad_1(g, OP_NEG, grad_2(g, OP_MUL, x, b->arg[0]));
  return 0;
}

static Gid fold_add(Grad *g, Gid x, Gid y) {
  if (grad_is_number(g, x, 0)) return y;
  if (grad_is_number(g, y, 0)) return x;
  const GradNode *a = grad_at(g, x), *b = grad_at(g, y);
  if (b->code == OP_NEG) return grad_2(g, OP_SUB, x, b->arg[0]);
  if (a->code == OP_NEG) return grad_2(g, OP_SUB, y, a->arg[0]);
  return 0;
}

static Gid fold_sub(Grad *g, Gid x, Gid y) {
  const GradNode *b = grad_at(g, y);
  if (grad_is_number(g, y, 0)) return x;
  if (x == y) return grad_num(g, 0);
  if (grad_is_number(g, x, 0)) return grad_1(g, OP_NEG, y);
  if (b->code == OP_NEG) return grad_2(g, OP_ADD, x, b->arg[0]);
  return 0;
}

static Gid fold_neg(Grad *g, Gid x) {
  const GradNode *a = grad_at(g, x);
  if (a->code == OP_SELECT && a->attr) {
    bool second = grad_is_number(g, a->arg[1], 0);
    Gid c = a->arg[0], in = a->arg[1 + second], zero = grad_num(g, 0);
    if (!grad_is_unsafe(g, in)) return 0;
    in = grad_1(g, OP_NEG, in);
    return grad_path(g, c, second ? zero : in, second ? in : zero);
  }
  if (a->code == OP_NEG) return a->arg[0];
  if (a->code == OP_CONST) return grad_num(g, -a->value);
  if (a->code == OP_SUB) return grad_2(g, OP_SUB, a->arg[1], a->arg[0]);
  return 0;
}

// Where x is not evaluated but on one side of a select, neither is what is
// made of it: `select(c, a, 0) * x` is `select(c, a * x, 0)`.
static Gid fold_path(Grad *g, OpCode c, Gid x, Gid y) {
  const GradNode n = *grad_at(g, x);
  if (n.code != OP_SELECT || !n.attr || !grad_is_unsafe(g, y)) return 0;
  bool second = grad_is_number(g, n.arg[1], 0);
  Gid in = grad_2(g, c, n.arg[1 + second], y), zero = grad_num(g, 0);
  return grad_path(g, n.arg[0], second ? zero : in, second ? in : zero);
}

// Both are such sides of one condition: so is what is made of both.
static Gid fold_paths(Grad *g, OpCode c, Gid x, Gid y) {
  const GradNode a = *grad_at(g, x), b = *grad_at(g, y);
  bool paths = a.code == OP_SELECT && a.attr && b.code == OP_SELECT && b.attr;
  if (!paths || a.arg[0] != b.arg[0]) return 0;
  bool second = grad_is_number(g, a.arg[1], 0);
  if (!grad_is_number(g, a.arg[2 - second], 0) ||
      !grad_is_number(g, b.arg[2 - second], 0) ||
      !grad_is_unsafe(g, a.arg[1 + second]))
    return 0;
  Gid in = grad_2(g, c, a.arg[1 + second], b.arg[1 + second]);
  Gid zero = grad_num(g, 0);
  return grad_path(g, a.arg[0], second ? zero : in, second ? in : zero);
}

Gid grad_path(Grad *g, Gid c, Gid x, Gid y) {
  if (grad_is_number(g, x, 0) && grad_is_number(g, y, 0)) return x;
  Gid args[3] = {c, x, y};
  GradNode n = {.code = OP_SELECT, .dtype = wide(g, args + 1, 2), .n = 3};
  n.axes = axes_of(g, args, 3);
  n.attr = 1;
  return grad_put(g, n, args);
}

bool grad_is_unsafe(const Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  if (x < g->forward) return g->guarded && g->guarded[x];
  if (n->code == GRAD_RESULT) return false;  // steps make it, whoever reads it
  if (n->code == OP_SELECT) return grad_is_unsafe(g, n->arg[0]);
  for (uint32_t i = 0; i < n->n; i++)
    if (grad_is_unsafe(g, n->arg[i])) return true;
  return false;
}

static Gid fold(Grad *g, OpCode c, const Gid *a) {
  bool product = c == OP_MUL || c == OP_DIV || c == OP_DIVK;
  Gid path = product ? fold_path(g, c, a[0], a[1]) : 0;
  if (!path && c == OP_MUL) path = fold_path(g, c, a[1], a[0]);
  if (!path && (c == OP_ADD || c == OP_SUB))
    path = fold_paths(g, c, a[0], a[1]);
  if (path) return path;
  switch (c) {
  case OP_ADD: return fold_add(g, a[0], a[1]);
  case OP_SUB: return fold_sub(g, a[0], a[1]);
  case OP_MUL: return fold_mul(g, a[0], a[1]);
  case OP_NEG: return fold_neg(g, a[0]);
  case OP_DIV:
  case OP_DIVK:
    if (grad_is_number(g, a[0], 0)) return a[0];
    return grad_is_number(g, a[1], 1) ? a[0] : 0;
  case OP_SELECT: return a[1] == a[2] ? a[1] : 0;
  default: return 0;
  }
}

Gid grad_op(Grad *g, OpCode c, const Gid *args, uint32_t n) {
  bool boolean = op_info(c)->infer == INF_BOOL, sel = c == OP_SELECT;
  Gid known = is_float(g, args[n - 1]) ? fold(g, c, args) : 0;
  Gid turned[2];
  if (known) return known;
  if (n == 2 && (op_info(c)->flags & OPF_COMM) && args[0] > args[1]) {
    turned[0] = args[1], turned[1] = args[0];
    args = turned;
  }
  GradNode x = {.code = c,
                .dtype = boolean ? DT_BOOL : wide(g, args + sel, n - sel),
                .axes = axes_of(g, args, n),
                .n = n};
  return grad_put(g, x, args);
}

Gid grad_1(Grad *g, OpCode c, Gid x) {
  return grad_op(g, c, &x, 1);
}

Gid grad_2(Grad *g, OpCode c, Gid x, Gid y) {
  return grad_op(g, c, (Gid[]){x, y}, 2);
}

Gid grad_3(Grad *g, OpCode c, Gid x, Gid y, Gid z) {
  return grad_op(g, c, (Gid[]){x, y, z}, 3);
}

Gid grad_ratio(Grad *g, Gid x, Gid y) {
  return grad_op(g, OP_DIVK, (Gid[]){x, y}, 2);
}

// The factors of x: what does not vary with `over`, what is no vector, vectors;
// as products. The last: a sum that is a factor. 0: there are none.
typedef enum Part { OUTSIDE, WEIGHTS, VECTORS, INNER_SUM, PARTS } Part;

static bool is_sum(const Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  return x >= g->forward && n->code == OP_REDUCE && n->attr == RK_SUM &&
         !(n->over & grad_role(g, AX_VEC));
}

static void split(Grad *g, Gid x, uint64_t over, Gid out[PARTS]) {
  const GradNode n = *grad_at(g, x);
  if (n.code == OP_NEG) {
    split(g, n.arg[0], over, out);
    Gid *to = &out[OUTSIDE];
    *to = grad_1(g, OP_NEG, *to ? *to : grad_num(g, 1));
    return;
  }
  if (n.code == OP_MUL) {
    split(g, n.arg[0], over, out);
    split(g, n.arg[1], over, out);
    return;
  }
  uint64_t vecs = grad_role(g, AX_VEC) & ~over;
  Part part = !(n.axes & over) ? OUTSIDE : n.axes & vecs ? VECTORS : WEIGHTS;
  if (part && !out[INNER_SUM] && is_sum(g, x)) part = INNER_SUM;
  out[part] = out[part] ? grad_2(g, OP_MUL, out[part], x) : x;
}

static Gid reduce(Grad *g, Gid x, uint64_t over, uint64_t points) {
  GradNode n = {.code = OP_REDUCE,
                .dtype = grad_at(g, x)->dtype == DT_F64 ? DT_F64 : DT_F32,
                .axes = points & ~over,
                .over = over,
                .points = points,
                .attr = RK_SUM,
                .n = 1};
  return grad_put(g, n, &x);
}

// x * y, where there are both.
static Gid both(Grad *g, Gid x, Gid y) {
  return x && y ? grad_2(g, OP_MUL, x, y) : x + y;
}

static uint32_t vectors_in(const Grad *g, uint64_t axes) {
  return (uint32_t)__builtin_popcountll(axes & grad_role(g, AX_VEC));
}

// Is the vector that a factor sums made before it is multiplied? Of a matrix
// that contracts it, or another vector, each point of that sum had a matrix.
static bool is_apart(const Grad *g, const Gid part[PARTS]) {
  uint64_t in = grad_at(g, part[INNER_SUM])->axes;
  uint64_t all = part[VECTORS] ? in | grad_at(g, part[VECTORS])->axes : in;
  return vectors_in(g, in) == 1 && vectors_in(g, all) > 1;
}

Gid grad_sum(Grad *g, Gid x, uint64_t over, uint64_t points) {
  Gid part[PARTS] = {0};
  if (!over || grad_is_number(g, x, 0)) return x;
  split(g, x, over, part);
  uint64_t lost = grad_at(g, x)->axes;
  if (part[INNER_SUM] && is_apart(g, part)) {
    part[VECTORS] = both(g, part[VECTORS], part[INNER_SUM]);
  } else if (part[INNER_SUM]) {
    const GradNode n = *grad_at(g, part[INNER_SUM]);
    over |= n.over, points |= n.points;
    Gid in[PARTS] = {0};
    split(g, n.arg[0], over, in);
    for (uint32_t i = 0; i < INNER_SUM; i++) part[i] = both(g, part[i], in[i]);
    part[VECTORS] = both(g, part[VECTORS], in[INNER_SUM]);
  }
  Gid in = both(g, part[WEIGHTS], part[VECTORS]);
  if (!in) return reduce(g, x, over, points);
  lost &= ~grad_at(g, in)->axes & ~over;
  if (!part[OUTSIDE]) return reduce(g, in, over, points);
  return grad_2(g, OP_MUL, part[OUTSIDE], reduce(g, in, over, points & ~lost));
}

Gid grad_sum_all(Grad *g, Gid x, uint64_t over) {
  return grad_sum(g, x, over, grad_at(g, x)->axes | over);
}

Gid grad_or_0(Grad *g, Gid c, Gid x) {
  return grad_3(g, OP_SELECT, c, x, grad_num(g, 0));
}
