// grad, part 5: the gradients as kernels. A gradient is a value of the points
// that its input is loaded at; the axes of these are outside in its kernel and
// all others are summed in it. What kernels need of a row is made before, or
// stored by the program, or read from its outputs.
#include "passes/attn/grad.h"

typedef struct Plan {
  Grad *g;
  uint64_t keys, vecs;
  bool *summed;     // by Gid: a sum over keys is in it
  bool *cotangent;  // by Gid: a cotangent is in it
  bool *seen;       // by Gid: visited in a walk
  uint32_t n;       // nodes that these know
} Plan;

static bool loads_cotangent(const Grad *g, const GradNode *n) {
  return n->code == OP_LOAD && g->tensors.at[n->tensor].from == GF_COTANGENT;
}

static bool sums_keys(const Plan *p, const GradNode *n) {
  return n->code == OP_REDUCE && (n->over & p->keys);
}

static void mark(Plan *p) {
  Grad *g = p->g;
  p->n = g->nodes.n;
  p->summed = NEWN(g->arena, bool, p->n);
  p->cotangent = NEWN(g->arena, bool, p->n);
  p->seen = NEWN(g->arena, bool, p->n);
  for (Gid x = 1; x < p->n; x++) {
    const GradNode *n = grad_at(g, x);
    p->summed[x] = sums_keys(p, n);
    p->cotangent[x] = loads_cotangent(g, n);
    for (uint32_t i = 0; i < n->n; i++) {
      p->summed[x] |= p->summed[n->arg[i]];
      p->cotangent[x] |= p->cotangent[n->arg[i]];
    }
  }
}

// ---------------------------------------------------------------- reads
static GradRead *read_of(Grad *g, Gid x) {
  for (uint32_t i = 0; i < g->reads.n; i++)
    if (g->reads.at[i].node == x) return &g->reads.at[i];
  return NULL;
}

// The output that has the value x, or 0.
static uint32_t output_of(const Grad *g, Gid x) {
  for (uint32_t i = 0; i < g->outs.n; i++) {
    const GradStore *s = &g->outs.at[i];
    Gid v = s->v;
    while (grad_at(g, v)->code == OP_CAST && v != x) v = grad_at(g, v)->arg[0];
    if (v == x) return i + 1;
  }
  return 0;
}

static const char *name_of(Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  if (n->hint) return n->hint;
  if (n->code == OP_REDUCE && x >= g->forward) return "delta";
  if (n->code == OP_ADD)
    for (uint32_t i = 0; i < 2; i++)
      if (grad_at(g, n->arg[i])->code == OP_LOG) return "lse";
  return "row";
}

// A tensor of rows for x; equal names are numbered.
static uint32_t row_tensor(Grad *g, Gid x, GradFrom from) {
  Gid index[8];
  Dim shape[8];
  uint32_t n = grad_coordinates(g, grad_at(g, x)->axes, index, shape), same = 0;
  const char *name = name_of(g, x);
  name = from == GF_SAVED ? arena_printf(g->m->arena, "save_%s", name)
                          : arena_printf(g->m->arena, "%s.made", name);
  for (uint32_t i = 1; i < g->tensors.n; i++)
    same += strncmp(g->tensors.at[i].name, name, strlen(name)) == 0;
  if (same) name = arena_printf(g->m->arena, "%s%u", name, same);
  GradTensor t = {.name = intern(&g->cx->names, name),
                  .from = from,
                  .read = true,
                  .type = type_tensor(DT_F32, n, shape)};
  return grad_tensor(g, t);
}

static void need(Plan *p, Gid x);

// What a row of the gradient takes of the program's sums over keys.
static void need_of_row(Plan *p, Gid x) {
  const GradNode *n = grad_at(p->g, x);
  bool own = x >= p->g->forward || !p->summed[x];
  if (n->axes & p->keys) return;
  if (!own && dtype_is_float(n->dtype)) need(p, x);
  for (uint32_t i = 0; own && i < n->n; i++) need_of_row(p, n->arg[i]);
}

static void need(Plan *p, Gid x) {
  Grad *g = p->g;
  if (read_of(g, x)) return;
  GradRead r = {.node = x};
  if (p->cotangent[x]) {
    r.tensor = row_tensor(g, x, GF_MADE);
    for (uint32_t i = 0; i < grad_at(g, x)->n; i++)
      need_of_row(p, grad_at(g, x)->arg[i]);
  } else if (!output_of(g, x)) r.tensor = row_tensor(g, x, GF_SAVED);
  else {
    r.tensor = g->outs.at[output_of(g, x) - 1].tensor;
    g->tensors.at[r.tensor].read = true;
  }
  vec_push(g->arena, &g->reads, r);
}

// Is x, a value without key axes, read from memory where points need it?
static bool is_row(const Plan *p, Gid x) {
  const GradNode *n = grad_at(p->g, x);
  if (!dtype_is_float(n->dtype) || (n->axes & (p->keys | p->vecs)))
    return false;
  return n->code != OP_LOAD && (p->summed[x] || p->cotangent[x]);
}

// Below the sums of a kernel: rows that its points need.
static void need_below(Plan *p, Gid x) {
  const GradNode *n = grad_at(p->g, x);
  if (p->seen[x]) return;
  p->seen[x] = true;
  if (is_row(p, x)) need(p, x);
  else
    for (uint32_t i = 0; i < n->n; i++) need_below(p, n->arg[i]);
}

// Above them: x itself is made by the kernel.
static void need_above(Plan *p, Gid x) {
  const Grad *g = p->g;
  const GradNode *n = grad_at(g, x);
  bool own = x >= g->forward;
  if (own && n->code == OP_REDUCE && (n->over & ~p->vecs)) {
    need_below(p, n->arg[0]);
    return;
  }
  if (!own || (n->axes & p->keys)) {
    need_below(p, x);
    return;
  }
  for (uint32_t i = 0; i < n->n; i++) need_above(p, n->arg[i]);
}

// ---------------------------------------------------------------- legality
// The axes that are summed in x, as far as its kernel does it.
static uint64_t inner_of(Plan *p, Gid x) {
  const GradNode *n = grad_at(p->g, x);
  uint64_t all = 0;
  if (p->seen[x] || read_of(p->g, x)) return 0;
  p->seen[x] = true;
  if (n->code == OP_REDUCE) all = n->over;
  for (uint32_t i = 0; i < n->n; i++) all |= inner_of(p, n->arg[i]);
  return all & ~p->vecs;
}

static uint64_t inner_axes(Plan *p, Gid x) {
  memset(p->seen, 0, p->n * sizeof *p->seen);
  return inner_of(p, x);
}

// ---------------------------------------------------------------- index maps
// Every element of the tensor is one point's: an index is an axis that is as
// long as the tensor there.
static bool is_whole(const Grad *g, const GradStore *s) {
  const GradTensor *t = &g->tensors.at[s->tensor];
  uint64_t used = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    const GradNode *x = grad_at(g, s->index[i]);
    Gid index[8];
    Dim shape[8];
    uint32_t n = grad_coordinates((Grad *)(uintptr_t)g, x->axes, index, shape);
    if (n != 1 || index[0] != s->index[i] || shape[0] != t->type.size[i] ||
        (used & x->axes))
      return false;
    used |= x->axes;
  }
  return true;
}

static bool refuse_map(Grad *g, const GradStore *s, const char *why) {
  diag_add(g->cx, DIAG_grad_map, grad_span(g, s->span),
           g->tensors.at[s->tensor].name, why);
  return false;
}

// ---------------------------------------------------------------- kernels
static GradKernel *kernel_of(Grad *g, uint64_t outer, bool rows) {
  for (uint32_t i = 0; i < g->nkernels; i++)
    if (g->kernel[i].outer == outer && g->kernel[i].rows == rows)
      return &g->kernel[i];
  if (g->nkernels == MAX_KERNELS) return NULL;
  g->kernel[g->nkernels] = (GradKernel){.outer = outer, .rows = rows};
  return &g->kernel[g->nkernels++];
}

static uint64_t store_axes(const Grad *g, const GradStore *s) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < s->n; i++) all |= grad_at(g, s->index[i])->axes;
  return all;
}

static bool put_store(Plan *p, const GradStore *s) {
  Grad *g = p->g;
  uint64_t outer = store_axes(g, s) & ~p->vecs;
  bool rows = g->tensors.at[s->tensor].from == GF_MADE;
  GradKernel *k = kernel_of(g, outer, rows);
  if (!k || k->n == MAX_GRADS) return refuse_map(g, s, "too many kernels");
  uint64_t inner = inner_axes(p, s->v);
  if (inner & outer) return refuse_map(g, s, "a sum over an axis of its own");
  k->inner |= inner;
  k->store[k->n++] = *s;
  return true;
}

// Rows of the gradient that kernels read are made by kernels too.
static bool put_rows(Plan *p) {
  Grad *g = p->g;
  for (uint32_t i = 0; i < g->reads.n; i++) {
    GradRead r = g->reads.at[i];
    if (g->tensors.at[r.tensor].from != GF_MADE) continue;
    GradStore s = {.tensor = r.tensor, .v = r.node, .span = g->f->span};
    Dim shape[8];
    s.n = grad_coordinates(g, grad_at(g, r.node)->axes, s.index, shape);
    g->reads.at[i].node = 0;  // it is made here
    bool ok = put_store(p, &s);
    g->reads.at[i].node = r.node;
    if (!ok) return false;
  }
  return true;
}

static void name_kernels(Grad *g) {
  for (uint32_t i = 0; i < g->nkernels; i++) {
    GradKernel *k = &g->kernel[i];
    bool keys = k->outer & grad_role(g, AX_KEY);
    k->name = k->rows ? "rows" : keys ? "keys" : "queries";
  }
}

bool grad_plan(Grad *g) {
  Plan p = {.g = g, .keys = grad_role(g, AX_KEY), .vecs = grad_role(g, AX_VEC)};
  mark(&p);
  for (uint32_t i = 0; i < g->grads.n; i++) {
    if (!is_whole(g, &g->grads.at[i]))
      return refuse_map(g, &g->grads.at[i], "its index map");
    memset(p.seen, 0, p.n * sizeof *p.seen);
    need_above(&p, g->grads.at[i].v);
  }
  mark(&p);
  if (!put_rows(&p)) return false;
  for (uint32_t i = 0; i < g->grads.n; i++)
    if (!put_store(&p, &g->grads.at[i])) return false;
  name_kernels(g);
  return true;
}
