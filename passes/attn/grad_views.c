// grad, part 7: gradients that have a point for each step, of what kernels of
// chunks make, are stored by those.
//
//   before  g_Q[t, d] = c * made[t // 64, t % 64, d]
//   after   g_Q[64 * chunk + use, d] = c * (what is made)     where that is < S
//
// So nothing of a vector's size lies in memory in between. Where kernels have
// parts of the rows, and nothing sums them, d is 64 * part + row. What is made
// along other steps of a chunk (a write's, beside a read's) is moved there:
// products are the same then, and are made once. What a step sums of vectors
// that such kernels do without is made before. A sum over all steps of what
// they make is one of their sums over a chunk:
//
//   before  sum over b, t of f(made[t // 64, t % 64, d])
//   after   sum over b, chunk of part[b, chunk, d]
//           part[b, chunk, d] = sum over use of f(what is made)
#include "passes/attn/grad.h"

// How the tensor that n loads is read, if that is of a view; or NULL.
static const GradRead *read_viewed(const Grad *g, const GradNode *n) {
  if (n->code != OP_LOAD || g->tensors.at[n->tensor].from != GF_MADE)
    return NULL;
  for (uint32_t i = 0; i < g->reads.n; i++) {
    const GradNode *made = grad_at(g, g->reads.at[i].node);
    if (g->reads.at[i].tensor == n->tensor && made->code == GRAD_MADE &&
        made->attr > 0)
      return &g->reads.at[i];
  }
  return NULL;
}

// What is loaded of x's tensor, of the view; or NULL.
static const GradNode *viewed(const Grad *g, const GradNode *n) {
  const GradRead *r = read_viewed(g, n);
  return r ? grad_at(g, r->node) : NULL;
}

// Is index i of n, which loads what is read so, another coordinate of a vector
// than that of what is made?
static bool is_shifted(const Grad *g, const GradNode *n, const GradRead *r,
                       uint32_t i) {
  const GradView *v = &g->views.at[grad_at(g, r->node)->attr - 1];
  uint64_t steps = grad_bit(v->chunk) | grad_bit(v->local);
  const GradNode *own = grad_at(g, r->index[i]);
  return own->code == OP_INDEX && !(own->axes & steps) &&
         n->arg[i] != r->index[i];
}

static bool shifts(const Grad *g, const GradNode *n) {
  const GradRead *r = read_viewed(g, n);
  bool some = false;
  for (uint32_t i = 0; r && i < r->n; i++) some |= is_shifted(g, n, r, i);
  return some;
}

typedef struct Search {
  const Grad *g;
  bool *seen, *views;    // which are found
  const GradView *view;  // the first
  bool sums;             // over more than vectors
  bool shifted;          // parts of vectors are read elsewhere
  uint64_t over;         // the axes that are summed
} Search;

static void search(Search *s, Gid x) {
  const Grad *g = s->g;
  const GradNode *n = grad_at(g, x), *made = viewed(g, n);
  if (s->seen[x]) return;
  s->seen[x] = true;
  if (n->code == OP_REDUCE) s->sums |= n->over & ~grad_role(g, AX_VEC);
  if (n->code == OP_REDUCE) s->over |= n->over;
  if (made && !s->view) s->view = &g->views.at[made->attr - 1];
  if (made) s->views[made->attr - 1] = true;
  s->shifted |= shifts(g, n);
  for (uint32_t i = 0; i < n->n; i++) search(s, n->arg[i]);
}

typedef struct ByChunk {
  Grad *g;
  GradView to;
  Gid step, row;
  Map done;
} ByChunk;

// What is made, at its own coordinates or those of the other steps.
static Gid made_there(ByChunk *c, const GradNode *made) {
  const GradView *from = &c->g->views.at[made->attr - 1];
  Gid v = made->arg[0];
  if (from->local != c->to.local || from->chunk != c->to.chunk) {
    v = grad_moved(c->g, v, from->chunk, grad_index(c->g, c->to.chunk));
    v = grad_moved(c->g, v, from->local, grad_index(c->g, c->to.local));
  }
  return c->to.parts ? grad_moved(c->g, v, c->to.row, c->row) : v;
}

// The steps and rows of the kernel.
static uint64_t moved(const ByChunk *c) {
  return grad_bit(c->to.axis) | (c->to.parts ? grad_bit(c->to.row) : 0);
}

static Gid to_chunk(const ByChunk *c, Gid x) {
  x = grad_moved(c->g, x, c->to.axis, c->step);
  return c->to.parts ? grad_moved(c->g, x, c->to.row, c->row) : x;
}

static Gid by_chunk(ByChunk *c, Gid x) {
  Grad *g = c->g;
  const GradNode n = *grad_at(g, x), *made = viewed(g, &n);
  uint64_t known;
  if (!(n.axes & moved(c))) return x;
  if (map_get(&c->done, x, &known)) return (Gid)known;
  Gid y;
  if (made) y = made_there(c, made);
  else if (n.code == OP_INDEX || !n.n || n.code == GRAD_RESULT ||
           n.code == GRAD_MADE || n.code == OP_LOAD)
    y = to_chunk(c, x);
  else {
    GradNode m = n;
    Gid *args = NEWN(g->arena, Gid, n.n);
    m.axes = 0;
    for (uint32_t i = 0; i < n.n; i++) {
      args[i] = by_chunk(c, n.arg[i]);
      m.axes |= grad_at(g, args[i])->axes;
    }
    m.axes &= ~n.over;
    if (m.points) m.points = m.axes | n.over;
    y = grad_put(g, m, args);
  }
  map_put(&c->done, x, y);
  return y;
}

// ---------------------------------------------------------------- sums
// A step's sum over the columns, where chunks' kernels do without these, is
// made before.
typedef struct ByColumns {
  Grad *g;
  uint64_t columns, vecs;
  Map done;
} ByColumns;

static bool is_step_sum(const ByColumns *c, const GradNode *n) {
  return n->code == OP_REDUCE && (n->over & c->columns) &&
         !(n->over & ~c->vecs) && !(n->axes & c->vecs);
}

static Gid sums_made(ByColumns *c, Gid x) {
  Grad *g = c->g;
  const GradNode n = *grad_at(g, x);
  uint64_t known;
  if (map_get(&c->done, x, &known)) return (Gid)known;
  Gid y = x;
  bool same = true;
  Gid *args = NEWN(g->arena, Gid, n.n + 1);
  if (is_step_sum(c, &n)) y = grad_made(g, x, n.axes, "step");
  else if (n.code != GRAD_MADE && n.code != GRAD_RESULT)
    for (uint32_t i = 0; i < n.n; i++) {
      args[i] = sums_made(c, n.arg[i]);
      same &= args[i] == n.arg[i];
    }
  if (!same) y = grad_put(g, n, args);
  map_put(&c->done, x, y);
  return y;
}

static void make_sums(Grad *g) {
  ByColumns c = {.g = g, .vecs = grad_role(g, AX_VEC), .done.arena = g->arena};
  for (uint32_t i = 0; i < g->views.n; i++) c.columns |= g->views.at[i].apart;
  for (uint32_t i = 0; i < g->grads.n && c.columns; i++)
    g->grads.at[i].v = sums_made(&c, g->grads.at[i].v);
}

// ---------------------------------------------------------------- stores
static bool is_alone(const Grad *g, const GradStore *s) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->grads.n; i++)
    n += g->grads.at[i].tensor == s->tensor;
  return n == 1;
}

// The index that is the step, of a store where nothing else varies with it.
static bool find_step(const Grad *g, const GradStore *s, uint32_t axis,
                      uint32_t *at) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    const GradNode *x = grad_at(g, s->index[i]);
    if (!(x->axes & grad_bit(axis))) continue;
    if (x->code != OP_INDEX) return false;
    *at = i, n++;
  }
  return n == 1;
}

static Search find_views(const Grad *g, const GradStore *s) {
  Search found = {.g = g,
                  .seen = NEWN(g->arena, bool, g->nodes.n),
                  .views = NEWN(g->arena, bool, g->views.n + 1)};
  search(&found, s->v);
  return found;
}

// Can a kernel of chunks make it of what it has?
static bool is_made_there(const Grad *g, const Search *found) {
  bool kept =
      !found->view || found->shifted || (found->over & found->view->few);
  for (uint32_t i = 0; i < g->views.n && !kept; i++) {
    const GradView *v = &g->views.at[i];
    if (!found->views[i]) continue;
    kept = v->kept || (v->few && v->local != found->view->local);
  }
  return !kept && !found->sums;
}

// May it store that, at index `at` for its steps?
static bool is_of_chunks(const Grad *g, const GradStore *s, const Search *found,
                         uint32_t *at) {
  return is_made_there(g, found) && !s->physical && is_alone(g, s) &&
         find_step(g, s, found->view->axis, at);
}

// What a kernel of chunks makes is kept where one gradient that is made of it
// has no place there, as it sums heads, or rows that are not there, or has
// parts of a vector elsewhere: all others read it, and the kernel is one.
static void keep(Grad *g) {
  for (bool more = true; more;) {
    more = false;
    for (uint32_t i = 0; i < g->grads.n; i++) {
      Search found = find_views(g, &g->grads.at[i]);
      uint32_t at;
      if (is_of_chunks(g, &g->grads.at[i], &found, &at)) continue;
      for (uint32_t k = 0; k < g->views.n; k++) {
        GradView *v = &g->views.at[k];
        if (!found.views[k] || v->alone || v->kept) continue;
        more = v->kept = true;
      }
    }
  }
}

static ByChunk in_chunk(Grad *g, const GradView *to) {
  ByChunk c = {.g = g, .to = *to, .done = {.arena = g->arena}};
  Gid size = grad_int(g, to->steps);
  Gid first = grad_2(g, OP_MUL, grad_index(g, to->chunk), size);
  c.step = grad_2(g, OP_ADD, first, grad_index(g, to->local));
  return c;
}

static Gid is_step(const ByChunk *c) {
  Gid end = grad_dim(c->g, c->g->axes.at[c->to.axis].axis.extent);
  return grad_2(c->g, OP_LT, c->step, end);
}

// By the kernel that makes the view.
static void beside(GradStore *s, const GradView *v) {
  s->rank = v->rank;
  s->first = v->first;
  s->side = v->side;
  s->alone = v->alone && !v->parts;
}

static void to_chunks(Grad *g, GradStore *s, const Search *found, uint32_t at) {
  uint32_t row = 0;
  ByChunk c = in_chunk(g, found->view);
  Gid size = grad_int(g, c.to.steps);
  c.to.parts &=
      !(found->over & grad_bit(c.to.row)) && find_step(g, s, c.to.row, &row);
  if (c.to.parts) {
    Gid part = grad_2(g, OP_MUL, grad_index(g, c.to.part), size);
    s->index[row] = c.row = grad_2(g, OP_ADD, part, grad_index(g, c.to.in));
  }
  s->v = by_chunk(&c, s->v);
  s->parts = c.to.parts;
  beside(s, &c.to);
  s->index[at] = c.step;
  s->mask = is_step(&c);
}

// ---------------------------------------------------------------- kept
typedef struct Kept {
  Grad *g;
  Map done;
} Kept;

// x in a tensor of its own.
static GradStore stored(Grad *g, Gid x, const char *of) {
  Dim shape[8];
  GradStore s = {.v = x, .span = g->f->span};
  s.n = grad_coordinates(g, grad_at(g, x)->axes, s.index, shape);
  const char *name = arena_printf(g->m->arena, "%s.part%u", of, g->tensors.n);
  GradTensor t = {.name = intern(&g->cx->names, name),
                  .from = GF_MADE,
                  .read = true,
                  .type = type_tensor(grad_at(g, x)->dtype, s.n, shape)};
  s.tensor = grad_tensor(g, t);
  return s;
}

// x, of a view, is stored as a function of the step; what is read of that.
static Gid by_steps(Grad *g, Gid x) {
  GradStore s = stored(g, x, "step");
  Search found = find_views(g, &s);
  uint32_t at;
  if (!find_step(g, &s, found.view->axis, &at)) return x;
  Gid y = grad_load(g, s.tensor, s.index, s.n);
  to_chunks(g, &s, &found, at);
  vec_push(g->arena, &g->adds, s);
  return y;
}

static Gid read_kept(Kept *k, Gid x);

// What n loads, where it is kept: the same coordinates of that.
static Gid read_shifted(Kept *k, const GradNode *n) {
  Grad *g = k->g;
  const GradRead r = *read_viewed(g, n);
  Gid own[8];
  for (uint32_t i = 0; i < r.n; i++)
    own[i] = is_shifted(g, n, &r, i) ? r.index[i] : n->arg[i];
  Gid y = read_kept(k, grad_load(g, n->tensor, own, r.n));
  for (uint32_t i = 0; i < r.n; i++)
    if (own[i] != n->arg[i])
      y = grad_moved(g, y, (uint32_t)grad_at(g, own[i])->attr, n->arg[i]);
  return y;
}

static Gid read_kept(Kept *k, Gid x) {
  Grad *g = k->g;
  const GradNode n = *grad_at(g, x), *made = viewed(g, &n);
  uint64_t known;
  if (map_get(&k->done, x, &known)) return (Gid)known;
  Gid y = x;
  bool same = true;
  Gid *args = NEWN(g->arena, Gid, n.n + 1);
  bool kept = made && g->views.at[made->attr - 1].kept;
  if (kept) y = shifts(g, &n) ? read_shifted(k, &n) : by_steps(g, x);
  else if (!made)
    for (uint32_t i = 0; i < n.n; i++) {
      args[i] = read_kept(k, n.arg[i]);
      same &= args[i] == n.arg[i];
    }
  if (!same) y = grad_put(g, n, args);
  map_put(&k->done, x, y);
  return y;
}

// ---------------------------------------------------------------- all steps
// The sum n over steps of what a kernel of chunks makes, as one of that
// kernel's sums over each chunk; 0: it cannot.
static Gid of_chunks(Grad *g, const GradNode *n) {
  GradStore s = {.v = n->arg[0]};
  Search found = find_views(g, &s);
  const GradView *v = found.view;
  if (!v || v->parts || !is_made_there(g, &found) ||
      !(n->over & grad_bit(v->axis)))
    return 0;
  ByChunk c = in_chunk(g, v);
  Gid in = is_step(&c), part = by_chunk(&c, n->arg[0]);
  part = grad_or_0(g, in, part);
  part = grad_sum_all(g, part, grad_bit(v->local));
  s = stored(g, part, "sum");
  beside(&s, v);
  vec_push(g->arena, &g->adds, s);
  uint64_t step = grad_bit(v->axis), chunk = grad_bit(v->chunk);
  return grad_sum(g, grad_load(g, s.tensor, s.index, s.n),
                  (n->over & ~step) | chunk, (n->points & ~step) | chunk);
}

static Gid sums_of_chunks(Kept *k, Gid x) {
  Grad *g = k->g;
  const GradNode n = *grad_at(g, x);
  uint64_t known;
  if (map_get(&k->done, x, &known)) return (Gid)known;
  Gid y = n.code == OP_REDUCE && n.attr == RK_SUM ? of_chunks(g, &n) : 0;
  Gid *args = NEWN(g->arena, Gid, n.n + 1);
  bool same = true;
  for (uint32_t i = 0; !y && !viewed(g, &n) && i < n.n; i++) {
    args[i] = sums_of_chunks(k, n.arg[i]);
    same &= args[i] == n.arg[i];
  }
  if (!y) y = same ? x : grad_put(g, n, args);
  map_put(&k->done, x, y);
  return y;
}

static void sum_chunks(Grad *g) {
  Kept sums = {g, {.arena = g->arena}};
  for (uint32_t i = 0; i < g->grads.n; i++)
    g->grads.at[i].v = sums_of_chunks(&sums, g->grads.at[i].v);
}

void grad_store_chunks(Grad *g) {
  make_sums(g);
  sum_chunks(g);
  keep(g);
  Kept kept = {g, {.arena = g->arena}};
  for (uint32_t i = 0; i < g->grads.n; i++) {
    GradStore *s = &g->grads.at[i];
    s->v = read_kept(&kept, s->v);
    Search found = find_views(g, s);
    uint32_t at;
    if (is_of_chunks(g, s, &found, &at)) to_chunks(g, s, &found, at);
  }
  for (uint32_t i = 0; i < g->grads.n; i++) grad_by_turns(g, &g->grads.at[i]);
}
