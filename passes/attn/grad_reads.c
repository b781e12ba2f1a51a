// grad, part 8: what kernels read that others make, or the program, and the
// tensors that it lies in.
#include "passes/attn/grad.h"
#include "passes/support/gauge.h"

GradRead *grad_read_of(Grad *g, Gid x) {
  for (uint32_t i = 0; i < g->reads.n; i++)
    if (g->reads.at[i].node == x) return &g->reads.at[i];
  return NULL;
}

// The output that has the value x, and nothing else's coordinates; or 0.
uint32_t grad_output_of(const Grad *g, Gid x) {
  for (uint32_t i = 0; i < g->outs.n; i++) {
    const GradStore *s = &g->outs.at[i];
    Gid v = s->v;
    if (g->tensors.at[s->tensor].inout) continue;
    if (grad_store_axes(g, s) & ~grad_at(g, x)->axes) continue;
    while (grad_at(g, v)->code == OP_CAST && v != x) v = grad_at(g, v)->arg[0];
    if (v == x) return i + 1;
  }
  return 0;
}

// Does a comparison look at x, or at a cast of it?
static bool is_compared(const Grad *g, Gid x) {
  for (Gid y = 1; y < g->nodes.n; y++) {
    const GradNode *n = grad_at(g, y);
    for (uint32_t i = 0; i < n->n; i++) {
      if (n->arg[i] != x) continue;
      if (n->code == OP_CAST && is_compared(g, y)) return true;
      if (n->dtype == DT_BOOL && op_info(n->code)->flags & OPF_ELEM)
        return true;
    }
  }
  return false;
}

bool grad_is_reference(Grad *g, Gid x) {
  if (x < g->forward && g->of[x] && gauge_is(g->f, g->arena, g->of[x]))
    return true;
  return !is_compared(g, x);
}

DType grad_kept(const Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  bool place = n->code == GRAD_MADE && !dtype_is_float(n->dtype);
  return place || n->dtype == DT_F64 ? n->dtype : DT_F32;
}

// Along rows or columns, or the steps of a chunk twice.
static bool is_vector(const Grad *g, uint64_t axes) {
  uint64_t steps = axes & g->local;
  return (axes & grad_role(g, AX_VEC) & ~g->local) || (steps & (steps - 1));
}

// Vectors that recurrences make are multiplied as the program's vectors are, in
// its type: bf16, which has an f32's exponents.
static DType made_type(const Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  if (n->code == GRAD_MADE && n->attr)
    return is_vector(g, n->axes) ? DT_BF16 : grad_kept(g, x);
  if (n->code != GRAD_RESULT || !(n->axes & grad_role(g, AX_VEC)))
    return grad_kept(g, x);
  const GradWalk *w = &g->walks.at[grad_at(g, n->arg[0])->attr];
  return !w->exact && grad_vectors(g, n->arg[0]) == DT_BF16 ? DT_BF16
                                                            : grad_kept(g, x);
}

// Is it a state of each step of any kind?
static bool is_of_steps(const Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  return n->code == GRAD_RESULT && n->attr >= GRAD_STATES &&
         n->attr < GRAD_LAST;
}

// A step stores what it has side by side: channels lie as they do in inputs.
void grad_step_first(Grad *g, Gid walk, Gid *index, Dim *shape, uint32_t n) {
  uint32_t axis = g->walks.at[grad_at(g, walk)->attr].axis, i;
  for (i = 0; i + 1 < n && !(grad_at(g, index[i])->axes & grad_bit(axis));) i++;
  Gid step = index[i];
  Dim steps = shape[i];
  memmove(index + 1, index, i * sizeof *index);
  memmove(shape + 1, shape, i * sizeof *shape);
  index[0] = step, shape[0] = steps;
}

// Is what rows have for blocks of others the other way round in memory? A
// block's rows are beside each other.
static bool is_turned(const Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  uint64_t scan;
  return map_get(&g->scans, x, &scan) ||
         (n->code == GRAD_MADE && n->attr == GRAD_TURNED);
}

static uint32_t turned_index(Grad *g, Gid x, Gid *index, Dim *shape) {
  uint32_t n = grad_coordinates(g, grad_at(g, x)->axes, index, shape);
  Gid block = index[n - 1];
  Dim blocks = shape[n - 1];
  index[n - 1] = index[n - 2], shape[n - 1] = shape[n - 2];
  index[n - 2] = block, shape[n - 2] = blocks;
  return n;
}

// Where x is in a tensor of rows: at its coordinates, or it is one number.
uint32_t grad_row_index(Grad *g, Gid x, GradFrom from, Gid *index, Dim *shape) {
  uint64_t axes = grad_at(g, x)->axes;
  if (is_turned(g, x)) return turned_index(g, x, index, shape);
  if (from == GF_SAVED) return grad_coordinates_saved(g, axes, index, shape);
  uint32_t n = grad_coordinates(g, axes, index, shape);
  if (is_of_steps(g, x))
    grad_step_first(g, grad_at(g, x)->arg[0], index, shape, n);
  return n;
}

// A tensor of rows for x.
uint32_t grad_row_tensor(Grad *g, Gid x, GradFrom from) {
  Gid index[8];
  Dim shape[8];
  uint32_t n = grad_row_index(g, x, from, index, shape);
  GradTensor t = {.name = grad_tensor_name(g, x, from, g->tensors.n),
                  .from = from,
                  .read = true,
                  .type = type_tensor(made_type(g, x), n, shape)};
  return grad_tensor(g, t);
}

GradRead *grad_read(Grad *g, Gid x) {
  Dim shape[8];
  if (grad_read_of(g, x)) return grad_read_of(g, x);
  GradRead r = {.node = x, .tensor = grad_row_tensor(g, x, GF_MADE)};
  r.n = grad_row_index(g, x, GF_MADE, r.index, shape);
  vec_push(g->arena, &g->reads, r);
  return grad_read_of(g, x);
}
