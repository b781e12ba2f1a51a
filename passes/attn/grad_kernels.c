// grad, part 8: the gradients as kernels. A gradient is a value of the points
// that its input is loaded at; the axes of these are outside in its kernel and
// all others are summed in it. What kernels need of a row is made before, or
// stored by the program, or read from its outputs.
#include "passes/attn/grad.h"
#include "passes/support/cost.h"

typedef struct Plan {
  Grad *g;
  uint64_t keys, vecs;
  bool *summed;          // by Gid: a sum over keys is in it
  bool *cotangent;       // by Gid: a cotangent is in it
  bool *made;            // by Gid: what the gradient stores is
  bool *seen;            // by Gid: visited in a walk
  bool *row_seen;        // by Gid: its rows' needs are known
  bool no_rows;          // sums over keys are made again, of steps' states
  Gid steps;             // needs are those of this walk's steps, of any kind
  uint32_t n;            // nodes that these know
  Gid walked;            // a running sum that a kernel makes by itself, or 0
  bool whole;            // in_parts stores each sum as it is
  Vec(GradStore) parts;  // to workspace
} Plan;

// Does a kernel in front make x?
static bool is_stored(const Grad *g, Gid x) {
  return grad_is_made(grad_at(g, x)->code) && !grad_scan_front(g, x);
}

static bool loads_from(const Grad *g, const GradNode *n, GradFrom from) {
  return n->code == OP_LOAD && g->tensors.at[n->tensor].from == from;
}

static bool sums_keys(const Plan *p, const GradNode *n) {
  return n->code == OP_REDUCE && (n->over & p->keys);
}

static void mark(Plan *p) {
  Grad *g = p->g;
  p->n = g->nodes.n;
  p->summed = NEWN(g->arena, bool, p->n);
  p->cotangent = NEWN(g->arena, bool, p->n);
  p->made = NEWN(g->arena, bool, p->n);
  p->seen = NEWN(g->arena, bool, p->n);
  p->row_seen = NEWN(g->arena, bool, p->n);
  if (grad_has_steps(g)) p->no_rows = true;
  for (Gid x = 1; x < p->n; x++) {
    const GradNode *n = grad_at(g, x);
    p->summed[x] = sums_keys(p, n) && !p->no_rows;
    p->cotangent[x] = loads_from(g, n, GF_COTANGENT);
    p->made[x] = loads_from(g, n, GF_MADE);
    for (uint32_t i = 0; i < n->n; i++) {
      p->summed[x] |= p->summed[n->arg[i]];
      bool made = grad_is_made(n->code) && n->code != OP_SCAN;
      p->made[x] |= p->made[n->arg[i]] || (made && p->cotangent[n->arg[i]]);
      p->cotangent[x] |= p->cotangent[n->arg[i]] && !made;
    }
  }
}

// ---------------------------------------------------------------- reads
// What the kernel that makes x stores.
static Gid value_of(const Grad *g, Gid x) {
  uint64_t known;
  if (map_get(&g->values, x, &known)) return (Gid)known;
  return grad_at(g, x)->code == GRAD_MADE ? grad_at(g, x)->arg[0] : x;
}

static void need(Plan *p, Gid x);
static void need_below(Plan *p, Gid x);
static void need_load(Plan *p, const GradNode *n);

static void need_of_row(Plan *p, Gid x);

// What a row sums over keys itself has points as any kernel's.
static void need_of_operands(Plan *p, const GradNode *n) {
  for (uint32_t i = 0; i < n->n; i++)
    (sums_keys(p, n) ? need_below : need_of_row)(p, n->arg[i]);
}

// What a row of the gradient takes of the program's sums over keys. Which key
// has a maximum, and others that are made of the program's values alone, are
// for the program to find: scores that are made again are rounded differently.
static void need_of_row(Plan *p, Gid x) {
  const GradNode n = *grad_at(p->g, x);
  if (p->row_seen[x]) return;
  p->row_seen[x] = true;
  bool own = sums_keys(p, &n) && !p->cotangent[x] && !p->made[x] && !p->no_rows;
  bool row = (x < p->g->forward || own) && p->summed[x] && !(n.axes & p->keys);
  if (is_stored(p->g, x) || (row && dtype_is_float(n.dtype))) {
    need(p, x);
    return;
  }
  if (grad_scan_front(p->g, x)) need_of_row(p, grad_scan_front(p->g, x));
  need_load(p, &n);
  need_of_operands(p, &n);
}

static void need_above(Plan *p, Gid x);

// What the steps of a walk need.
static void need_of_walk(Plan *p, Gid walk) {
  uint32_t n;
  const Gid *arg = grad_operands(p->g, walk, &n);
  if (p->seen[walk]) return;
  p->seen[walk] = true;
  Plan in = *p;
  if (p->g->walks.at[grad_at(p->g, walk)->attr].nstates) {
    in.steps = walk;
    in.seen = NEWN(p->g->arena, bool, p->n);
  }
  for (uint32_t i = 0; i < n; i++) need_below(&in, arg[i]);
}

// What recurrences and other kernels make is made for whoever asks.
static void need_made(Plan *p, Gid x) {
  const GradNode n = *grad_at(p->g, x);
  GradRead *r = grad_read(p->g, x);
  if (r->asked) return;
  r->asked = true;
  if (n.code == GRAD_RESULT) need_of_walk(p, n.arg[0]);
  else need_above(p, value_of(p->g, x));
}

static void need(Plan *p, Gid x) {
  Grad *g = p->g;
  if (is_stored(g, x)) {
    need_made(p, x);
    return;
  }
  if (grad_read_of(g, x)) return;
  GradRead r = {.node = x, .asked = true};
  GradFrom from = p->cotangent[x] || p->made[x] ? GF_MADE : GF_SAVED;
  Dim shape[8];
  r.n = grad_row_index(g, x, from, r.index, shape);
  if (from == GF_MADE) {
    r.tensor = grad_row_tensor(g, x, GF_MADE);
    GradNode n = *grad_at(g, x);
    need_of_operands(p, &n);
  } else if (!grad_output_of(g, x)) r.tensor = grad_row_tensor(g, x, GF_SAVED);
  else {
    const GradStore *o = &g->outs.at[grad_output_of(g, x) - 1];
    r.tensor = o->tensor, r.n = o->n;
    memcpy(r.index, o->index, sizeof r.index);
    g->tensors.at[r.tensor].read = true;
  }
  vec_push(g->arena, &g->reads, r);
}

// Is x, a value without key axes, read from memory where points need it?
static bool is_row(const Plan *p, Gid x) {
  const GradNode *n = grad_at(p->g, x);
  if (is_stored(p->g, x)) return true;
  if (!dtype_is_float(n->dtype) || (n->axes & p->keys) || n->code == OP_LOAD)
    return false;
  if (p->steps) return false;
  bool forward = x < p->g->forward || n->attr == RK_MIN;
  if (n->axes & p->vecs) return forward && p->summed[x] && sums_keys(p, n);
  return p->summed[x] || p->cotangent[x];
}

// What a load reads that the gradient makes.
static void need_load(Plan *p, const GradNode *n) {
  Grad *g = p->g;
  if (n->code != OP_LOAD || g->tensors.at[n->tensor].from != GF_MADE) return;
  for (uint32_t i = 0; i < g->reads.n; i++)
    if (g->reads.at[i].tensor == n->tensor) need(p, g->reads.at[i].node);
}

// Below the sums of a kernel: rows that its points need.
static void need_below(Plan *p, Gid x) {
  const GradNode *n = grad_at(p->g, x);
  if (p->seen[x]) return;
  p->seen[x] = true;
  if (p->steps && n->code == GRAD_RESULT && n->arg[0] == p->steps) return;
  need_load(p, n);
  if (is_row(p, x)) {
    need(p, x);
    return;
  }
  if (grad_scan_front(p->g, x)) need_below(p, grad_scan_front(p->g, x));
  for (uint32_t i = 0; i < grad_at(p->g, x)->n; i++)
    need_below(p, grad_at(p->g, x)->arg[i]);
}

// Is x the kernel's own sum?
static bool is_top(const Plan *p, Gid x) {
  const GradNode *n = grad_at(p->g, x);
  return x >= p->g->forward && n->code == OP_REDUCE && (n->over & ~p->vecs);
}

// Above them: x itself is made by the kernel.
static void need_above(Plan *p, Gid x) {
  const GradNode n = *grad_at(p->g, x);
  need_load(p, &n);
  if (is_stored(p->g, x)) need(p, x);
  else if (is_top(p, x)) need_below(p, n.arg[0]);
  else if (x < p->g->forward || (n.axes & p->keys)) need_below(p, x);
  else
    for (uint32_t i = 0; i < n.n; i++) need_above(p, n.arg[i]);
}

// ---------------------------------------------------------------- workspace
static bool refuse_map(Grad *g, const GradStore *s, const char *why) {
  diag_add(g->cx, DIAG_grad_map, grad_span(g, s->span),
           g->tensors.at[s->tensor].name, why);
  return false;
}

static uint32_t made(Grad *g, const char *of, Type type, Gid v) {
  const char *name = arena_printf(g->m->arena, "%s.part%u", of, g->tensors.n);
  GradTensor t = {.name = intern(&g->cx->names, name),
                  .from = GF_MADE,
                  .read = true,
                  .type = type};
  t.type.dtype = grad_kept(g, v);
  return grad_tensor(g, t);
}

// v is stored by the kernel that has these axes outside; returns its load.
static Gid store_part(Plan *p, const GradStore *of, Gid v, uint64_t axes) {
  Grad *g = p->g;
  Dim shape[8];
  GradStore s = {.v = v, .span = of->span};
  s.n = grad_coordinates(g, axes, s.index, shape);
  s.tensor = made(g, g->tensors.at[of->tensor].name,
                  type_tensor(DT_F32, s.n, shape), v);
  vec_push(g->arena, &p->parts, s);
  return grad_load(g, s.tensor, s.index, s.n);
}

// ---------------------------------------------------------------- sums of all
// The axes outside of the kernel that takes a part of the sum x, of a gradient
// with `outer`: those of another gradient's, of keys if there is one. Of places
// in a table all others but the keys are summed.
static uint64_t part_axes(const Plan *p, const GradNode *x, uint64_t outer) {
  const Grad *g = p->g;
  uint64_t best = 0, all = outer | (x->over & ~p->vecs);
  if (grad_places_of(g, outer)) {
    uint64_t key = x->over & p->keys;
    return key & (key - 1) ? 0 : outer | key;
  }
  for (uint32_t i = 0; i < g->grads.n; i++) {
    uint64_t o = grad_store_axes(g, &g->grads.at[i]) & ~p->vecs;
    if ((o & ~all) || (outer & ~o) || o == outer || o == all) continue;
    if (!best || (o & p->keys)) best = o;
  }
  return best ? best : all & ~p->keys;
}

static uint32_t count(uint64_t axes) {
  return (uint32_t)__builtin_popcountll(axes);
}

// The axes of rows that a sum over nothing else has outside in a first step,
// where its kernel has none: all but the last.
static uint64_t rows_apart(const Plan *p, uint64_t over) {
  uint64_t rows = over & ~p->vecs, last = rows;
  while (last & (last - 1)) last &= last - 1;
  return (over & p->keys) ? 0 : rows & ~last;
}

static bool is_gpu(const Grad *g) {
  return g->opt->target->kind == TARGET_GPU;
}

// v is needed where cond holds, and where the select's side is taken.
static Gid side_of(Grad *g, Gid cond, const GradNode *select, uint32_t side) {
  if (select->code != OP_SELECT || !select->attr || !side) return cond;
  Gid c = select->arg[0];
  if (side == 2) c = grad_1(g, OP_NOT, c);
  return cond ? grad_2(g, OP_AND, cond, c) : c;
}

// The axis of the program's steps that x, a sum on a GPU, is over; UINT32_MAX:
// none. Few tasks would have all of them.
static uint32_t steps_of(const Grad *g, const GradNode *x) {
  for (uint32_t i = 0; i < g->walks.n && is_gpu(g); i++) {
    uint32_t axis = g->walks.at[i].axis;
    if ((x->over & grad_bit(axis)) && g->axes.at[axis].of != UINT32_MAX)
      return axis;
  }
  return UINT32_MAX;
}

// Axes of blocks of steps: all sums over the same steps have one.
static uint32_t block_axis(Grad *g, const char *name, AxisRole role, Dim size) {
  for (uint32_t i = 0; i < g->axes.n; i++) {
    const Axis *a = &g->axes.at[i].axis;
    if (g->axes.at[i].of == UINT32_MAX && a->extent == size &&
        a->role == role && !strcmp(a->name, name))
      return i;
  }
  return grad_axis(g, name, role, size);
}

// x, a sum over steps, as one of blocks of them, which a kernel makes.
static Gid sum_of_blocks(Plan *p, const GradStore *s, const GradNode *x,
                         uint32_t steps) {
  Grad *g = p->g;
  DimTab *d = &g->m->dims;
  Dim extent = g->axes.at[steps].axis.extent;
  Dim size = dim_const(d, COST_GRAD_CHUNK);
  Dim blocks = dim_ceildiv(d, extent, COST_GRAD_CHUNK);
  uint32_t block = block_axis(g, "block", AX_PAR, blocks);
  uint32_t in = block_axis(g, "in", AX_VEC, size);
  if (g->front & grad_bit(steps)) g->front |= grad_bit(block);
  Gid many = grad_int(g, COST_GRAD_CHUNK), end = grad_dim(g, extent);
  Gid at = grad_2(g, OP_MUL, grad_index(g, block), many);
  at = grad_2(g, OP_ADD, at, grad_index(g, in));
  Gid is_step = grad_2(g, OP_LT, at, end);
  if (g->domain[steps])
    is_step =
        grad_2(g, OP_AND, is_step, grad_moved(g, g->domain[steps], steps, at));
  Gid part = grad_or_0(g, is_step, grad_moved(g, x->arg[0], steps, at));
  part = grad_sum_all(g, part, grad_bit(in));
  Gid sum = store_part(p, s, part, grad_at(g, part)->axes);
  uint64_t step = grad_bit(steps), to = grad_bit(block);
  return grad_sum(g, sum, (x->over & ~step) | to, (x->points & ~step) | to);
}

// Few tasks would have the sum x over rows of vectors, as of a scale of a head:
// the axes outside of the kernel of its rows' numbers, or 0. Keys have many.
static uint64_t rows_of_vectors(const Plan *p, const GradNode *x,
                                uint64_t outer) {
  uint64_t rows = x->over & ~p->vecs;
  bool sums = rows && (x->over & p->vecs) && !(x->over & p->keys);
  bool numbers = outer && !((outer | x->axes) & (p->keys | p->vecs));
  return sums && numbers && !p->g->walks.n && is_gpu(p->g) ? outer | rows : 0;
}

// The walk that makes x, a vector or a number, at each step of its tasks; or 0.
static Gid walk_making(const Plan *p, Gid x) {
  Grad *g = p->g;
  const GradNode *n = grad_at(g, x);
  if (n->code == OP_LOAD || n->code == GRAD_RESULT || x < g->forward) return 0;
  Gid walk = grad_steps_of(g, x);
  if (!walk || count(n->axes & p->vecs) > 1) return 0;
  return (n->axes & ~p->vecs) == (grad_at(g, walk)->axes & ~p->vecs) ? walk : 0;
}

// x, with such factors of it as the walk stores them.
static Gid by_steps(Plan *p, const GradStore *of, Gid x) {
  Grad *g = p->g;
  const GradNode n = *grad_at(g, x);
  Gid walk = walk_making(p, x);
  if (!walk && n.code == OP_MUL && x >= g->forward) {
    Gid a = by_steps(p, of, n.arg[0]), b = by_steps(p, of, n.arg[1]);
    return a == n.arg[0] && b == n.arg[1] ? x : grad_2(g, OP_MUL, a, b);
  }
  if (!walk) return x;
  Dim shape[8];
  GradStore s = {.v = x, .span = of->span, .physical = true};
  s.n = grad_coordinates(g, n.axes, s.index, shape);
  grad_step_first(g, walk, s.index, shape, s.n);
  s.tensor = made(g, g->tensors.at[of->tensor].name,
                  type_tensor(DT_F32, s.n, shape), x);
  vec_push(g->arena, &p->parts, s);
  return grad_load(g, s.tensor, s.index, s.n);
}

// The sum of x, which kernels store, along keys first: one task would have all.
static Gid sum_of_stored(Plan *p, const GradStore *s, Gid x, uint64_t over) {
  Grad *g = p->g;
  uint64_t keys = over & p->keys;
  if (is_gpu(g) && keys && keys != over) {
    x = grad_sum(g, x, keys, grad_at(g, x)->axes | keys);
    x = store_part(p, s, x, grad_at(g, x)->axes);
    over &= ~keys;
  }
  return grad_sum(g, x, over, grad_at(g, x)->axes | over);
}

// The part that is a sum over keys and rows; v in two steps. Or v is a part.
static Gid sum_of_parts(Plan *p, const GradStore *s, Gid v, Gid cond) {
  Grad *g = p->g;
  GradNode n = *grad_at(g, v);
  if (n.attr == RK_SUM && grad_has_steps(g) && !cond) {
    Gid x = by_steps(p, s, n.arg[0]);
    if (x != n.arg[0]) v = grad_sum(g, x, n.over, n.points);
    n = *grad_at(g, v);
    if (n.code != OP_REDUCE) return v;
  }
  uint32_t vecs = count(n.axes & p->vecs), steps = steps_of(g, &n);
  uint64_t outer = grad_store_axes(g, s) & ~p->vecs,
           rows = n.over & ~p->keys & ~p->vecs;
  bool one_pass = vecs && (outer & p->keys) && is_gpu(g) && !g->opt->any_order;
  bool all = rows && (n.over & p->keys) && !one_pass;
  bool gpu = is_gpu(g), matrix = vecs > 1 && gpu && steps == UINT32_MAX;
  bool one = !outer && vecs == 1, vector = one || (!outer && matrix);
  bool nested = one && gpu && grad_sums_sums(g, &n);
  uint64_t to = nested   ? n.over & ~p->vecs
                : all    ? part_axes(p, &n, outer)
                : vector ? rows_apart(p, n.over)
                         : rows_of_vectors(p, &n, outer);
  if (p->whole && cond) v = grad_path(g, cond, v, grad_num(g, 0));
  if (p->whole) return store_part(p, s, v, grad_at(g, v)->axes);
  if (!to && steps != UINT32_MAX && !cond)
    return sum_of_blocks(p, s, &n, steps);
  if (!to) return v;
  Gid part = grad_sum(g, n.arg[0], n.over & ~to, n.points);
  if (cond) part = grad_path(g, cond, part, grad_num(g, 0));
  Gid x = store_part(p, s, part, to | grad_at(g, part)->axes);
  return sum_of_stored(p, s, x, n.over & to);
}

// v, with sums over keys and rows in two steps.
static Gid in_parts(Plan *p, const GradStore *s, Gid v, Gid cond) {
  Grad *g = p->g;
  const GradNode n = *grad_at(g, v);
  uint64_t outer = grad_store_axes(g, s) & ~p->vecs;
  Gid arg[4];
  if (v < g->forward || (n.axes & p->keys & ~outer)) return v;
  if (grad_is_made(n.code)) return v;
  // v is one for all coordinates of the axes that it sums or lacks: conditions
  // on these do not say whether it is needed
  if (cond && (grad_at(g, cond)->axes & ~n.axes)) cond = 0;
  if (is_top(p, v)) return sum_of_parts(p, s, v, cond);
  if (!n.n || n.n > 4 || n.code == OP_LOAD) return v;
  for (uint32_t i = 0; i < n.n; i++)
    arg[i] = in_parts(p, s, n.arg[i], side_of(g, cond, &n, i));
  return grad_put(g, n, arg);
}

// ---------------------------------------------------------------- one tensor
// The store of a tensor that adds the others': it has the fewest key axes.
static uint32_t last_of(const Plan *p, const GradStore *of) {
  const Grad *g = p->g;
  uint32_t best = UINT32_MAX, least = 65;
  for (uint32_t i = 0; i < g->grads.n; i++) {
    const GradStore *s = &g->grads.at[i];
    uint32_t n = count(grad_store_axes(g, s) & p->keys);
    if (grad_same_part(g, s, of) && n < least) best = i, least = n;
  }
  return best;
}

// A kernel reads nothing that it stores: its points are made in any order. What
// s sums is then made beside the part that it adds, and s of both.
static void apart(Plan *p, GradStore *s, const GradStore *part) {
  uint64_t other = grad_store_axes(p->g, s) ^ grad_store_axes(p->g, part);
  if (other & ~p->vecs) return;
  p->whole = true;
  s->v = in_parts(p, s, s->v, 0);
  p->whole = false;
}

// A tensor that is loaded in different ways: the gradients but one are parts.
static bool join(Plan *p) {
  Grad *g = p->g;
  for (uint32_t i = 0; i < g->grads.n; i++) {
    GradStore *s = &g->grads.at[i];
    uint32_t last = last_of(p, s);
    GradStore *to = &g->grads.at[last];
    if (last == i) continue;
    if (s->physical != to->physical ||
        grad_store_axes(g, s) == grad_store_axes(g, to))
      return refuse_map(g, s, "it is loaded with different index maps");
    GradStore part = *s;
    part.tensor = made(g, g->tensors.at[s->tensor].name,
                       g->tensors.at[s->tensor].type, s->v);
    Gid x = grad_load(g, part.tensor, to->index, to->n);
    apart(p, to, &part);
    to->v = grad_2(g, OP_ADD, to->v, x);
    vec_push(g->arena, &p->parts, part);
    g->grads.at[i--] = g->grads.at[--g->grads.n];
  }
  return true;
}

// ---------------------------------------------------------------- kernels
// How x is read by what is looked at. Steps of any kind make what is no
// recurrence's: rows are made of their states.
static const GradRead *read_in(const Plan *p, Gid x) {
  bool own = p->steps && !grad_is_made(grad_at(p->g, x)->code);
  return own ? NULL : grad_read_of(p->g, x);
}

// The walk of any step that makes s: a result of it, or at each step what is
// made of its states alone; of matrices only what it makes itself. 0: none.
static Gid steps_in(const Grad *g, const GradStore *s) {
  const GradNode *n = grad_at(g, s->v);
  if (n->code == GRAD_RESULT) return n->attr >= GRAD_STATES ? n->arg[0] : 0;
  Gid walk = s->outer || s->mask ? 0 : grad_steps_of(g, s->v);
  uint64_t vecs = grad_role(g, AX_VEC);
  bool own = g->tensors.at[s->tensor].from == GF_MADE;
  if (!walk || (!own && grad_has_matrices(g, walk))) return 0;
  uint64_t all = grad_at(g, walk)->axes & ~vecs;
  if ((grad_store_axes(g, s) & ~vecs) != all || (n->axes & ~vecs & ~all))
    return 0;
  for (uint32_t i = 0; i < g->axes.n; i++)
    if ((all & grad_bit(i)) && g->axes.at[i].axis.role != AX_STEP &&
        g->domain[i])
      return 0;
  return walk;
}

// The axes that are summed in x, as far as its kernel does it.
static uint64_t inner_of(Plan *p, Gid x) {
  const GradNode *n = grad_at(p->g, x);
  uint64_t all = 0;
  if (p->seen[x] || read_in(p, x)) return 0;
  p->seen[x] = true;
  if (n->code == OP_REDUCE) all = n->over;
  uint32_t some;
  const Gid *arg = grad_operands(p->g, x, &some);
  for (uint32_t i = 0; i < some; i++) all |= inner_of(p, arg[i]);
  return all & ~p->vecs;
}

// Registers of a thread of a GPU for sums of s: a group has a tile's rows.
static int64_t sums_of(const Plan *p, const GradStore *s) {
  const Grad *g = p->g;
  int64_t n = is_gpu(g) ? HW_GROUP_ROWS : 0, lo, hi;
  uint64_t axes = grad_at(g, s->v)->axes & p->vecs;
  if (axes & g->local) return 0;  // they are made one behind the other
  if (s->outer) return 0;         // added to memory, in each step
  for (uint32_t i = 0; i < g->axes.n; i++) {
    if (!(axes & grad_bit(i))) continue;
    dim_bounds(&g->m->dims, g->axes.at[i].axis.extent, &lo, &hi);
    n *= lo == hi ? lo : 0;
  }
  return n / HW_GROUP_THREADS;
}

static bool loads(const Plan *p, Gid x, uint32_t tensor) {
  const GradNode *n = grad_at(p->g, x);
  if (p->seen[x]) return false;
  p->seen[x] = true;
  if (n->code == OP_LOAD && n->tensor == tensor) return true;
  // what the walk that is looked at makes itself
  if (n->code == GRAD_RESULT && p->seen[n->arg[0]]) return false;
  const GradRead *r = read_in(p, x);
  if (r) return r->tensor == tensor;
  Gid front = x != p->walked ? grad_scan_front(p->g, x) : 0;
  if (front && loads(p, front, tensor)) return true;
  uint32_t some;
  const Gid *arg = grad_operands(p->g, x, &some);
  for (uint32_t i = 0; i < some; i++)
    if (loads(p, arg[i], tensor)) return true;
  return false;
}

// Is the tensor in what s is made of? A row that it makes is no read.
static bool is_loaded(const Plan *p, const GradStore *s, uint32_t tensor) {
  const GradNode *n = grad_at(p->g, s->v);
  const GradRead *r = grad_read_of(p->g, s->v);
  Plan in = *p;
  in.steps = steps_in(p->g, s);
  memset(p->seen, 0, p->n * sizeof *p->seen);
  if (!r || r->tensor != s->tensor) return loads(&in, s->v, tensor);
  for (uint32_t i = 0; i < n->n; i++)
    if (loads(&in, n->arg[i], tensor)) return true;
  return false;
}

// Does s read the tensor, which a kernel makes?
static bool reads(const Plan *p, const GradStore *s, uint32_t tensor) {
  if (p->g->tensors.at[tensor].from != GF_MADE) return false;
  if (s->outer && s->tensor == tensor) return true;
  return is_loaded(p, s, tensor);
}

static bool reads_from(const Plan *p, const GradStore *s, const GradKernel *k) {
  for (uint32_t i = 0; i < k->n; i++)
    if (reads(p, s, k->store[i].tensor)) return true;
  return false;
}

static bool is_behind(const Plan *p, const GradStore *s, const GradKernel *k,
                      uint64_t *seen);

// By others that s needs.
static bool is_behind_others(const Plan *p, const GradStore *s,
                             const GradKernel *k, uint64_t *seen) {
  for (uint32_t i = 0; i < p->g->nkernels; i++) {
    const GradKernel *other = &p->g->kernel[i];
    if (other == k || (*seen >> i & 1) || !reads_from(p, s, other)) continue;
    *seen |= grad_bit(i);
    for (uint32_t j = 0; j < other->n; j++)
      if (is_behind(p, &other->store[j], k, seen)) return true;
  }
  return false;
}

// Is kernel k to run before s is made? seen: kernels that were looked at.
static bool is_behind(const Plan *p, const GradStore *s, const GradKernel *k,
                      uint64_t *seen) {
  return reads_from(p, s, k) || is_behind_others(p, s, k, seen);
}

// Is a vector made of matrices, as states at the borders of chunks are?
static bool reads_matrix(const Plan *p, const GradStore *s) {
  const Grad *g = p->g;
  for (uint32_t i = 0; i < g->reads.n && (grad_at(g, s->v)->axes & p->vecs);
       i++) {
    uint64_t axes = grad_at(g, g->reads.at[i].node)->axes & p->vecs & ~g->local;
    if ((axes & (axes - 1)) && is_loaded(p, s, g->reads.at[i].tensor))
      return true;
  }
  return false;
}

// What is made of a chunk's steps, or of its states, is made by a kernel that
// has some of its vectors in shared memory anyway.
static bool has_tiles(const Plan *p, const GradStore *s, const GradKernel *k) {
  const Grad *g = p->g;
  bool steps = grad_at(g, s->v)->axes & g->local;
  if (!is_gpu(g) || !g->local || (!steps && !reads_matrix(p, s))) return true;
  for (uint32_t t = 0; t < g->tensors.n; t++) {
    if (g->tensors.at[t].type.n < 2) continue;
    if (!is_loaded(p, s, t)) continue;
    for (uint32_t i = 0; i < k->n; i++)
      if (is_loaded(p, &k->store[i], t)) return true;
  }
  return false;
}

// The axes that the kernel of s has outside.
static uint64_t outer_of(const Plan *p, const GradStore *s) {
  uint64_t axes = grad_store_axes(p->g, s) & ~p->vecs;
  if (s->scan) axes &= ~grad_at(p->g, s->scan)->over;
  return s->outer ? s->outer : axes;
}

// May s be made by k, whose walk has a direction?
static bool walks_alike(const Grad *g, const GradStore *s,
                        const GradKernel *k) {
  for (uint32_t i = 0; i < k->n && s->scan; i++) {
    if (!k->store[i].scan) continue;
    const GradNode *a = grad_at(g, s->scan), *b = grad_at(g, k->store[i].scan);
    if (a->over == b->over && ((a->attr ^ b->attr) & GRAD_SCAN_SUFFIX))
      return false;
  }
  return true;
}

// Is s to be made behind k? What a running sum has in front of a block the
// kernel that stores it need not read.
static bool is_behind_other(Plan *p, const GradStore *s, const GradKernel *k) {
  bool behind = false;
  for (uint32_t i = 0; i < k->n && !behind; i++) {
    p->walked = k->store[i].scan;
    behind = reads(p, s, k->store[i].tensor);
    p->walked = 0;
  }
  uint64_t seen = 0;
  return behind || is_behind_others(p, s, k, &seen);
}

// The kernel that s is stored by: all gradients with these axes outside, unless
// their sums are more than registers hold beside scores. Then their points are
// made in several kernels. What sums nothing but vectors is no sum that stays.
static GradKernel *kernel_of(Plan *p, const GradStore *s, bool rows,
                             uint64_t inner) {
  Grad *g = p->g;
  uint64_t outer = outer_of(p, s);
  int64_t sums = inner ? sums_of(p, s) : 0;
  for (uint32_t i = 0; i < g->nkernels; i++) {
    GradKernel *k = &g->kernel[i];
    bool alike = k->rows == rows || (inner && k->inner == inner);
    if (k->outer != outer || !alike || k->n == MAX_GRADS) continue;
    if (k->side != s->side || k->walk || k->alone || s->alone) continue;
    if (!has_tiles(p, s, k) || !grad_has_room(g, k, s)) continue;
    if (k->sums && k->sums + sums > COST_GRAD_SUMS) continue;
    if (!walks_alike(g, s, k) || is_behind_other(p, s, k)) continue;
    k->sums += sums;
    return k;
  }
  if (g->nkernels == MAX_KERNELS) return NULL;
  g->kernel[g->nkernels] = (GradKernel){.outer = outer,
                                        .rows = rows,
                                        .alone = s->alone,
                                        .side = s->side,
                                        .physical = true,
                                        .sums = sums};
  return &g->kernel[g->nkernels++];
}

// The axes that conditions of these axes sum, but vectors'.
static uint64_t summed_by_domains(Plan *p, uint64_t axes) {
  uint64_t all = 0;
  memset(p->seen, 0, p->n * sizeof *p->seen);
  for (uint32_t i = 0; i < p->g->axes.n; i++)
    if ((axes & grad_bit(i)) && p->g->domain[i])
      all |= inner_of(p, p->g->domain[i]);
  return all;
}

// The axes that are summed in what s stores.
static uint64_t summed_in(Plan *p, const GradStore *s) {
  memset(p->seen, 0, p->n * sizeof *p->seen);
  uint64_t along = s->scan ? grad_at(p->g, s->scan)->over : 0;
  if (!s->outer) return inner_of(p, s->v) | along;
  uint64_t at = grad_store_axes(p->g, s) & ~p->vecs;
  return (at | inner_of(p, s->v)) & ~s->outer;
}

// Do domains of other axes vary with it?
static bool bounds_others(const Grad *g, uint32_t axis) {
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (i != axis && g->domain[i] &&
        (grad_at(g, g->domain[i])->axes & grad_bit(axis)))
      return true;
  return false;
}

// s has another axis like this one outside.
static void use_twin(Grad *g, GradStore *s, uint32_t axis) {
  Gid to = grad_index(g, grad_twin(g, axis, "out"));
  s->v = grad_moved(g, s->v, axis, to);
  for (uint32_t i = 0; i < s->n; i++)
    s->index[i] = grad_moved(g, s->index[i], axis, to);
}

// An axis that is outside and summed too, as that of a bias's row where scores
// sum the row, is two axes.
static void tell_apart(Plan *p, GradStore *s) {
  Grad *g = p->g;
  uint64_t outer = outer_of(p, s), in = summed_in(p, s);
  uint64_t both = outer & (in | summed_by_domains(p, in | outer));
  for (uint32_t i = 0; both >> i; i++)
    if ((both >> i & 1) && !bounds_others(g, i)) use_twin(g, s, i);
}

// Stores of a chunk are in the order that leaves the least in registers.
static void insert(GradKernel *k, const GradStore *s) {
  uint32_t to = k->n++;
  for (; to > 0 && k->store[to - 1].rank > s->rank; to--)
    k->store[to] = k->store[to - 1];
  k->store[to] = *s;
}

static bool put_store(Plan *p, const GradStore *s, bool rows) {
  Grad *g = p->g;
  uint64_t outer = outer_of(p, s);
  uint64_t inner = summed_in(p, s);
  GradKernel *k = kernel_of(p, s, rows, inner);
  if (!k) return refuse_map(g, s, "too many kernels");
  uint64_t tests = summed_by_domains(p, inner | outer);
  if ((inner & outer) || (tests & (inner | outer)))
    return refuse_map(g, s, "a sum over an axis of its own");
  k->inner |= inner;
  k->rows &= rows;
  k->physical &= s->physical;
  insert(k, s);
  return true;
}

// The recurrence of whose results alone, and of what the program has, x is made
// element by element; or 0. among: what was found of x's relatives.
static Gid walk_of(const Grad *g, Gid x, const Gid *among) {
  const GradNode *n = grad_at(g, x);
  Gid found = among ? *among : 0;
  if (n->code == GRAD_RESULT)
    return !found || found == n->arg[0] ? n->arg[0] : UINT32_MAX;
  bool leaf = !n->n || n->code == OP_LOAD;
  bool made = n->code == OP_LOAD && g->tensors.at[n->tensor].from == GF_MADE;
  if (made || (!leaf && !(op_info(n->code)->flags & OPF_ELEM)))
    return UINT32_MAX;
  for (uint32_t i = 0; !leaf && i < n->n && found != UINT32_MAX; i++)
    found = walk_of(g, n->arg[i], &found);
  return found;
}

// A result of a recurrence is stored by that.
static bool put_result(Plan *p, const GradStore *s) {
  Grad *g = p->g;
  Gid steps = steps_in(g, s), walk = steps ? steps : walk_of(g, s->v, NULL);
  const GradNode n = *grad_at(g, walk);
  bool any = g->walks.at[n.attr].nstates;
  uint32_t i = 0;
  while (i < g->nkernels && g->kernel[i].walk != walk) i++;
  if (i == MAX_KERNELS) return refuse_map(g, s, "too many kernels");
  GradKernel *k = &g->kernel[i];
  if (i == g->nkernels) {
    g->nkernels++;
    *k =
        (GradKernel){.outer = n.axes & ~p->vecs & ~grad_walk_contracts(g, walk),
                     .walk = walk};
    memset(p->seen, 0, p->n * sizeof *p->seen);
    Plan in = *p;
    in.steps = any ? walk : 0;
    k->inner = inner_of(&in, walk);
  }
  if (k->n == MAX_GRADS) return refuse_map(g, s, "too many kernels");
  if (k->inner & (any ? k->outer : ~(uint64_t)0))
    return refuse_map(g, s, "a step has sums of its own");
  k->store[k->n++] = *s;
  return true;
}

// What is to be stored: a row's read, or UINT32_MAX.
typedef struct Todo {
  GradStore s;
  uint32_t read;
  bool done;
} Todo;

// Rows of the gradient that kernels read are made by kernels too.
static Todo row_of(Grad *g, uint32_t read) {
  GradRead r = g->reads.at[read];
  uint64_t known = r.node, scan;
  map_get(&g->values, r.node, &known);
  Todo t = {.s = {.tensor = r.tensor, .v = (Gid)known, .span = g->f->span},
            .read = read};
  const GradNode *n = grad_at(g, r.node);
  int64_t how = n->code == GRAD_MADE ? n->attr : 0;
  t.s.alone = how == GRAD_ALONE;
  Dim shape[8];
  t.s.n = grad_row_index(g, r.node, GF_MADE, t.s.index, shape);
  if (map_get(&g->scans, r.node, &scan)) {
    Gid size = grad_int(g, grad_scan_block());
    Gid at = grad_index(g, grad_scan_axis(g, (Gid)scan));
    t.s.scan = (Gid)scan;
    t.s.v = grad_at(g, (Gid)scan)->arg[0];
    t.s.index[t.s.n - 2] = grad_2(g, OP_FLOORDIV, at, size);
  }
  if (how == GRAD_PAIRED) grad_pairs(g, &t.s);
  if (how == GRAD_BANDED) grad_bands(g, r.node, &t.s);
  return t;
}

static bool put_row(Plan *p, const Todo *t) {
  GradRead *r = &p->g->reads.at[t->read];
  Gid node = r->node;
  bool walk = grad_at(p->g, node)->code == GRAD_RESULT;
  r->node = 0;  // it is made here
  bool ok = walk ? put_result(p, &t->s) : put_store(p, &t->s, true);
  p->g->reads.at[t->read].node = node;
  return ok;
}

static uint32_t list_all(Plan *p, Todo *all) {
  Grad *g = p->g;
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->reads.n; i++)
    if (g->reads.at[i].asked &&
        g->tensors.at[g->reads.at[i].tensor].from == GF_MADE)
      all[n++] = row_of(g, i);
  for (uint32_t i = 0; i < p->parts.n; i++)
    all[n++] = (Todo){.s = p->parts.at[i], .read = UINT32_MAX};
  for (uint32_t i = 0; i < g->adds.n; i++)
    all[n++] = (Todo){.s = g->adds.at[i], .read = UINT32_MAX};
  for (uint32_t i = 0; i < g->grads.n; i++)
    all[n++] = (Todo){.s = g->grads.at[i], .read = UINT32_MAX};
  return n;
}

// A tile of a chunk's steps, and none of the kernels of the same chunks has its
// vectors: one may, when others are stored.
static bool lacks_tiles(const Plan *p, const GradStore *s) {
  bool some = false;
  if (grad_at(p->g, s->v)->axes & p->vecs & ~p->g->local) return false;
  for (uint32_t i = 0; i < p->g->nkernels; i++) {
    const GradKernel *k = &p->g->kernel[i];
    if (k->walk || k->alone || k->outer != outer_of(p, s)) continue;
    if (has_tiles(p, s, k)) return false;
    some = true;
  }
  return some && !s->alone;
}

// The first whose reads are all stored, or n; last tiles that lack vectors.
static uint32_t next_of(const Plan *p, const Todo *all, uint32_t n) {
  uint32_t last = n;
  for (uint32_t i = 0; i < n; i++) {
    bool ready = !all[i].done;
    for (uint32_t k = 0; k < n && ready; k++)
      ready = all[k].done || k == i || !reads(p, &all[i].s, all[k].s.tensor);
    if (ready && !lacks_tiles(p, &all[i].s)) return i;
    if (ready && last == n) last = i;
  }
  return last;
}

// Is the gradient what a recurrence reads at each of its points, or made of it?
// Then that stores it.
static bool is_result(const Plan *p, const GradStore *s) {
  const Grad *g = p->g;
  const GradNode n = *grad_at(g, s->v);
  Gid walk = walk_of(g, s->v, NULL);
  if (n.code != GRAD_RESULT && steps_in(g, s)) return true;
  if (!walk || walk == UINT32_MAX || (grad_store_axes(g, s) & ~n.axes))
    return false;
  const GradWalk *w = &g->walks.at[grad_at(g, walk)->attr];
  if (n.code != GRAD_RESULT && (!w->whole || !(n.axes & grad_bit(w->axis))))
    return false;
  for (uint32_t i = 0; i < g->axes.n; i++)
    if ((n.axes & grad_bit(i)) && i != w->axis && g->domain[i]) return false;
  return true;
}

static bool put(Plan *p, const Todo *t) {
  if (t->read != UINT32_MAX) return put_row(p, t);
  bool zero = grad_is_number(p->g, t->s.v, 0);  // sums begin with it: a row's
  bool rows = zero || t->s.parts;
  return is_result(p, &t->s) ? put_result(p, &t->s) : put_store(p, &t->s, rows);
}

static void tell_all_apart(Plan *p, Todo *all, uint32_t n) {
  Grad *g = p->g;
  for (uint32_t i = 0; i < n; i++) {
    bool row = all[i].read != UINT32_MAX;
    if (grad_at(g, all[i].s.v)->code == GRAD_RESULT) continue;
    Gid node = row ? g->reads.at[all[i].read].node : 0;
    if (row) g->reads.at[all[i].read].node = 0;  // it is made here
    tell_apart(p, &all[i].s);
    if (row) g->reads.at[all[i].read].node = node;
    mark(p);
  }
}

static bool put_all(Plan *p) {
  Grad *g = p->g;
  Todo *all = NEWN(g->arena, Todo,
                   g->reads.n + p->parts.n + g->adds.n + g->grads.n + 1);
  uint32_t n = list_all(p, all);
  p->vecs = grad_role(g, AX_VEC), mark(p);
  tell_all_apart(p, all, n);
  if (g->axes.n > MAX_GRAD_AXES)
    return refuse_map(g, &g->grads.at[0], "too many axes");
  for (uint32_t done = 0; done < n; done++) {
    uint32_t i = next_of(p, all, n);
    if (i == n)
      return refuse_map(g, &g->grads.at[0], "its kernels have no order");
    if (!put(p, &all[i])) return false;
    all[i].done = true;
  }
  return true;
}

// ---------------------------------------------------------------- order
// Does kernel a read what b stores?
static bool reads_of(const Plan *p, const GradKernel *a, const GradKernel *b) {
  for (uint32_t k = 0; k < a->n; k++)
    if (reads_from(p, &a->store[k], b)) return true;
  return false;
}

// Kernels in the order in which they need each other. False: there is none.
static bool sort(const Plan *p) {
  Grad *g = p->g;
  for (uint32_t i = 0; i < g->nkernels; i++) {
    uint32_t next = i;
    for (; next < g->nkernels; next++) {
      bool ready = true;
      for (uint32_t k = i; k < g->nkernels; k++)
        ready &= k == next || !reads_of(p, &g->kernel[next], &g->kernel[k]);
      if (ready) break;
    }
    if (next == g->nkernels) return false;
    GradKernel first = g->kernel[next];
    for (; next > i; next--) g->kernel[next] = g->kernel[next - 1];
    g->kernel[i] = first;
  }
  return true;
}

// What a walk needs to store s.
static void need_of_steps(Plan *p, const GradStore *s) {
  Gid walk = steps_in(p->g, s);
  Plan in = *p;
  need_of_walk(p, walk);
  in.steps = walk;
  in.seen = NEWN(p->g->arena, bool, p->n);
  need_below(&in, s->v);
}

bool grad_plan(Grad *g) {
  grad_store_chunks(g);
  Plan p = {.g = g, .keys = grad_role(g, AX_KEY), .vecs = grad_role(g, AX_VEC)};
  for (uint32_t i = 0; i < g->grads.n; i++)
    g->grads.at[i].v = in_parts(&p, &g->grads.at[i], g->grads.at[i].v, 0);
  if (!join(&p)) return false;
  grad_fuse(g);
  grad_make_scans(g);
  mark(&p);
  for (uint32_t i = 0; i < p.parts.n; i++) {
    const GradStore s = p.parts.at[i];
    if (steps_in(g, &s)) need_of_steps(&p, &s);
    else need_above(&p, s.v);
  }
  for (uint32_t i = 0; i < g->adds.n; i++) need_above(&p, g->adds.at[i].v);
  for (uint32_t i = 0; i < g->grads.n; i++) {
    const GradStore *s = &g->grads.at[i];
    if (steps_in(g, s)) need_of_steps(&p, s);
    else if (is_result(&p, s)) need_of_walk(&p, walk_of(g, s->v, NULL));
    else need_above(&p, s->v);
  }
  grad_order_saved(g);
  for (uint32_t i = 0; i < p.parts.n; i++) grad_use_rows(g, &p.parts.at[i]);
  for (uint32_t i = 0; i < g->grads.n; i++) grad_use_rows(g, &g->grads.at[i]);
  for (uint32_t i = 0; i < g->grads.n; i++) grad_pairs(g, &g->grads.at[i]);
  if (!put_all(&p)) return false;
  mark(&p);
  if (!g->nkernels || !sort(&p))
    return refuse_map(g, &g->grads.at[0], "its kernels have no order");
  grad_name_kernels(g);
  return true;
}
