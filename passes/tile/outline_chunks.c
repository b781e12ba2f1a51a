// outline_chunks: what a chunk of a recurrence has that does not depend on the
// state is found before, for all chunks at once.
//
//   before  func @p(..) grid(b:1, v:64) {
//             for(%c0 = 0, .., 64, %S) {
//               if(%whole) { %t = trinv(..)  %tb = cast(%t) : bf16{t:64,s:64}
//                            %e = dot(%tb, %r)   %r: made of %S
//   after   func @p.chunks(.., %made: tensor<bf16[B, S', 64]> shared)
//               grid(b:1, chunk:1) {
//             %c0 = chunk * 64
//             if(%whole) { %t = trinv(..)  store(%made, %tb, %b, %c0 + t, s) }
//           }
//           func @p(..) {
//             .. %tb = load(%made, %b, %c0 + t, s)  %e = dot(%tb, %r)
//
// The state makes chunks wait for each other, and a state is in few tasks:
// what can be done by many tasks at once should be. It costs memory traffic
// and a launch, so it is done where a chunk has a triangular inverse, whose
// steps depend on each other, computes vectors of its steps (decays per row),
// or where many tasks would find the same products. What crosses is the last
// that does not depend on the state: tiles as they are multiplied (of f32 three
// 16-bit parts each), factors of steps, numbers. The phase that finds the
// states of parts (parts.c) takes what it needs from the same tensors. A
// chunk that is not whole, or not done at once, is found too, and not used.
// Tiles of rows that lie apart (turns of steps) are handed over too, in order.
// With decays per row what is little is handed over first, and of f32 products
// of steps last; of cotangents what needs no inverse, if that is several tiles,
// is found by a phase of its own, p.reads. Recurrences with the same inverse
// share a phase (hoist_join.c); with decays per row p.reads then has all that
// needs decays, of each of them, and hands over what the inverse is that of:
// p.chunks inverts it, and multiplies tiles that are there. Level tile, GPUs.
// Needs: tile. Tests: test/passes/outline_chunks/.
#include "ir/target.h"
#include "passes/support/cost.h"
#include "passes/pass.h"
#include "passes/support/outline.h"
#include "passes/tile/hoist.h"

#include <assert.h>

// Of those that a kernel hands over, which has a map for each, and for what it
// reads (ATTN_MAX_MAPS).
enum { MAX_TILES = 11 };

// ---------------------------------------------------------------- dependence
static bool uses_late(const Hoist *a, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++)
    if (a->late[op->args[i]]) return true;
  for (uint32_t i = 0; i < op->nregions; i++)
    for (const Op *o = op->regions[i]->first; o; o = o->next)
      if (o->code == OP_STORE || uses_late(a, o)) return true;
  return false;
}

static bool on_lane(const Hoist *a, const Op *op) {
  if (op->code == OP_ORIGIN) return ir_attr_i(op, AT_AXIS, 0) == a->lane;
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = ir_type(a->f, op->res[i]);
    if (t->kind == TK_ELEM && type_has_axis(t, (uint32_t)a->lane)) return true;
  }
  return false;
}

static void mark_late(Hoist *a, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    // Of the loops inside, single steps, the coordinate too.
    for (uint32_t i = op == a->loop;
         op->code == OP_FOR && i < op->regions[0]->params.n; i++)
      a->late[op->regions[0]->params.at[i]] = true;
    for (uint32_t i = 0; i < op->nregions; i++) mark_late(a, op->regions[i]);
    bool late =
        op == a->loop || op->nregions || uses_late(a, op) || on_lane(a, op);
    for (uint32_t i = 0; i < op->nres; i++) a->late[op->res[i]] = late;
  }
}

// ---------------------------------------------------------------- what crosses
static bool is_rooted(const Op *op) {
  switch (op->code) {
  case OP_DOT:
  case OP_TRINV:
  case OP_REDUCE:
  case OP_SCAN:
  case OP_ANY_OF:
  case OP_ALL_OF: return true;
  default: return false;
  }
}

static bool in_loop(const Hoist *a, Value v) {
  return !ir_defined_outside(a->f, v, a->loop->regions[0]);
}

// Is op a tile whose rows lie in memory by the turn of a step (join_turns), and
// no box, as a step's own that each of its turns reads?
static bool is_spread(const Hoist *a, const Op *op) {
  if (op->code != OP_LOAD || !a->target->gpu.hopper ||
      ir_type(a->f, op->res[0])->n != 2)
    return false;
  for (uint32_t i = 1; i < op->nargs; i++) {
    const Op *row = ir_def(a->f, op->args[i]), *turn = NULL;
    int64_t n;
    if (!row || row->code != OP_FLOORDIV || !ir_type(a->f, op->args[i])->n ||
        !ir_const_whole(a->f, row->args[1], &n))
      continue;
    if (i + 1 < op->nargs) turn = ir_def(a->f, op->args[i + 1]);
    bool box = turn && turn->code == OP_MOD && turn->args[0] == row->args[0] &&
               a->chunk % n == 0;
    if (!box) return true;
  }
  return false;
}

// Products or sums of the chunk are in v, or what takes as long to read.
static bool is_heavy(const Hoist *a, Value v) {
  const Op *op = ir_def(a->f, v);
  if (!op || !in_loop(a, v)) return false;
  if (is_rooted(op) || is_spread(a, op)) return true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_heavy(a, op->args[i])) return true;
  return false;
}

typedef struct Uses {
  Value v;
  bool other;  // than an operand of a product
} Uses;

static void note_use(void *data, Op *op) {
  Uses *u = data;
  for (uint32_t i = 0; i < op->nargs; i++)
    u->other |= op->args[i] == u->v && (op->code != OP_DOT || i > 1);
}

// Matrix units take 16 bits: of an f32 that is only multiplied, once it has
// crossed, three parts cross.
static uint32_t parts_of(const Hoist *a, Value v) {
  const Type *t = ir_type(a->f, v);
  Uses u = {.v = v};
  if (t->n != 2 || t->dtype != DT_F32 || !a->target->gpu.hopper) return 1;
  ir_walk(a->f->body, note_use, &u);
  return u.other ? 1 : HW_F32_PARTS;
}

static void add_cut(Hoist *a, Value v) {
  for (uint32_t i = 0; i < a->ncuts && i < MAX_CUTS; i++)
    if (a->cut[i].v == v) return;
  if (a->ncuts < MAX_CUTS)
    a->cut[a->ncuts] =
        (Cut){.v = v, .def = ir_def(a->f, v), .parts = parts_of(a, v)};
  a->ncuts++;
}

// Of numbers only what is reduced; the rest is as quickly made.
static void cut_at(Hoist *a, Value v) {
  const Op *op = ir_def(a->f, v);
  if (ir_type(a->f, v)->kind != TK_ELEM || a->late[v] || !is_heavy(a, v))
    return;
  if (ir_type(a->f, v)->n || is_rooted(op)) {
    add_cut(a, v);
    return;
  }
  for (uint32_t i = 0; i < op->nargs; i++) cut_at(a, op->args[i]);
}

static void find_cuts(Hoist *a, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    bool late = op->nregions || op->code == OP_STORE || op->code == OP_YIELD ||
                uses_late(a, op) || on_lane(a, op);
    for (uint32_t i = 0; late && i < op->nargs; i++) cut_at(a, op->args[i]);
    for (uint32_t i = 0; i < op->nregions; i++) find_cuts(a, op->regions[i]);
  }
}

// ---------------------------------------------------------------- which loop
static void find_inverse(void *data, Op *op) {
  *(bool *)data |= op->code == OP_TRINV;
}

static bool has_inverse(const Hoist *a) {
  bool some = false;
  ir_walk(a->loop->regions[0], find_inverse, &some);
  return some;
}

// Tasks that share a chunk.
static int64_t columns(const Hoist *a) {
  int64_t n = 0;
  for (uint32_t i = 0; i < a->f->grid.n; i++) {
    const GridDim *g = &a->f->grid.at[i];
    if ((int)g->axis != a->lane ||
        !dim_is_const(&a->m->dims, a->f->axes.at[a->lane].extent, &n))
      continue;
    n /= g->tile;
  }
  return n;
}

static bool is_step(const Hoist *a, uint32_t axis) {
  return a->f->axes.at[axis].role == AX_STEP;
}

static bool worth(const Hoist *a) {
  bool vectors = false, tiles = false;
  for (uint32_t i = 0; i < a->ncuts && i < MAX_CUTS; i++) {
    const Type *t = ir_type(a->f, a->cut[i].v);
    bool operand =
        t->n == 2 && (a->cut[i].parts > 1 || dtype_size(t->dtype) == 2);
    tiles |= operand && a->cut[i].parts == 1;
    vectors |= operand && is_step(a, t->axis[0]) != is_step(a, t->axis[1]);
  }
  return has_inverse(a) || vectors || (tiles && columns(a) >= COST_HOIST_TASKS);
}

// The loop over chunks: it begins with a multiple of them.
static bool find_loop(Hoist *a) {
  for (Op *op = a->f->body->first; op; op = op->next) {
    if (op->code != OP_FOR || !ir_const_whole(a->f, op->args[2], &a->chunk) ||
        a->chunk < 2 || ir_attr_i(op, AT_REVERSE, 0))
      continue;
    a->loop = op;
    return true;
  }
  return false;
}

static bool find_axes(Hoist *a) {
  bool steps = false;
  a->lane = -1;
  for (uint32_t i = 0; i < a->f->grid.n; i++) {
    const GridDim *g = &a->f->grid.at[i];
    if (g->tile > 1) a->lane = (int)g->axis;
    else if (a->npar < MAX_AXES) a->par[a->npar++] = g->axis;
  }
  for (uint32_t i = 0; i < a->f->axes.n && !steps; i++) {
    steps = a->f->axes.at[i].role == AX_STEP;
    a->axis = i;
  }
  return steps && a->lane >= 0;
}

static bool needs(const Hoist *a, Value v, uint32_t axis, bool *seen) {
  const Op *op = ir_def(a->f, v);
  if (seen[v] || !op) return false;
  seen[v] = true;
  if (op->code == OP_ORIGIN && ir_attr_i(op, AT_AXIS, 0) == axis) return true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (needs(a, op->args[i], axis, seen)) return true;
  return false;
}

// What crosses is the same for all coordinates of the other axes.
static void drop_axes(Hoist *a) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < a->npar; k++) {
    bool some = false, *seen = NEWN(a->m->arena, bool, a->f->values.n);
    for (uint32_t i = 0; i < a->ncuts && i < MAX_CUTS; i++)
      some |= needs(a, a->cut[i].v, a->par[k], seen);
    if (some) a->par[n++] = a->par[k];
  }
  a->npar = n;
}

// Each part of a chunk has as many elements as that has rows, or stays whole.
static bool can_cut(const Hoist *a) {
  for (uint32_t i = 0; i < a->ncuts && i < MAX_CUTS; i++) {
    const Type *t = ir_type(a->f, a->cut[i].v);
    int64_t n;
    if (t->n > 2 || (t->dtype != DT_BOOL && !dtype_is_float(t->dtype)))
      return false;
    for (uint32_t k = 0; k < t->n; k++)
      if (!dim_is_const(&a->m->dims, t->size[k], &n)) return false;
  }
  return a->ncuts > 0 && a->ncuts <= MAX_CUTS && a->npar + 2 <= MAX_MAP;
}

// ---------------------------------------------------------------- workspace
static Dim chunks(const Hoist *a) {
  DimTab *d = &a->m->dims;
  return dim_ceildiv(d, a->f->axes.at[a->axis].extent, a->chunk);
}

// The axis of a tile whose elements are numbered through all chunks.
static uint32_t long_axis(const Hoist *a, const Type *t) {
  bool step = a->f->axes.at[t->axis[0]].role == AX_STEP;
  return t->n > 1 && !step ? 1 : 0;
}

static DType kept_as(const Cut *c, const Type *t) {
  return c->parts > 1 ? DT_BF16 : t->dtype == DT_BOOL ? DT_I32 : t->dtype;
}

static Type tensor_of(const Hoist *a, const Cut *c, const Type *t) {
  DimTab *d = &a->m->dims;
  Dim shape[MAX_AXES];
  uint32_t n = 0;
  for (uint32_t i = 0; i < a->npar; i++)
    shape[n++] = a->f->axes.at[a->par[i]].extent;
  Dim rows = chunks(a);
  uint32_t at = t->n ? long_axis(a, t) : 0;
  if (t->n) rows = dim_bin(d, DIM_MUL, rows, t->size[at]);
  shape[n++] = rows;
  if (t->n > 1) shape[n++] = t->size[1 - at];
  return type_tensor(kept_as(c, t), n, shape);
}

static Value along(Builder *b, const Type *t, uint32_t k,
                   const uint32_t *axes) {
  return ir_iota(b, axes ? axes[t->axis[k]] : t->axis[k], t->size[k]);
}

// Indices of a cut's tile of the chunk that begins at step c0; axes: what they
// are in b's function, if that has others.
static uint32_t place(const Hoist *a, Builder *b, const Type *t, Value c0,
                      const uint32_t *axes, Value *at) {
  uint32_t n = 0, k = t->n ? long_axis(a, t) : 0;
  int64_t rows = 1;
  for (uint32_t i = 0; i < a->npar; i++) at[n++] = ir_origin(b, a->par[i]);
  if (t->n) dim_is_const(&a->m->dims, t->size[k], &rows);
  Value first = c0;
  if (rows != a->chunk) {
    first = ir_2(b, OP_FLOORDIV, c0, ir_const_i(b, DT_I64, a->chunk));
    first = ir_2(b, OP_MUL, first, ir_const_i(b, DT_I64, rows));
  }
  if (t->n) first = ir_2(b, OP_ADD, first, along(b, t, k, axes));
  at[n++] = first;
  if (t->n > 1) at[n++] = along(b, t, 1 - k, axes);
  return n;
}

// ---------------------------------------------------------------- the phase
// v in the phase: what it is made of is copied too.
Value tile_hoist_copied(HoistCopy *c, Builder *b, Value v) {
  const Func *f = c->a->f;
  if (v < c->map.n && c->map.to[v]) return c->map.to[v];
  const Op *op = ir_def(f, v);
  assert(op && "a value of the loop that is not its coordinate");
  for (uint32_t i = 0; i < op->nargs; i++) tile_hoist_copied(c, b, op->args[i]);
  ir_clone(b, f, op, &c->map, c->a->axes);
  return c->map.to[v];
}

// x less its first part; what is left of inf is 0.
static Value rest_of(Builder *b, Value x, Value part) {
  Value r = ir_2(b, OP_SUB, x, ir_cast(b, DT_F32, part));
  Value zero = ir_const_f(b, DT_F32, 0);
  return ir_3(b, OP_SELECT, ir_2(b, OP_EQ, r, r), r, zero);
}

// Nothing else hands it over.
static bool is_own(const Cut *c) {
  return c->same < 0 && !c->by;
}

static void hand_over(HoistCopy *c, Builder *b, const Cut *cut) {
  Value x = tile_hoist_copied(c, b, cut->v), at[MAX_AXES];
  const Type *t = ir_type(c->a->f, cut->v);
  if (t->dtype == DT_BOOL) {
    Value zero = ir_const_i(b, DT_I32, 0);
    x = ir_3(b, OP_SELECT, x, ir_const_i(b, DT_I32, 1), zero);
  }
  uint32_t n = place(c->a, b, t, c->c0, c->a->axes, at);
  for (uint32_t i = 0; i < cut->parts; i++) {
    Value part = cut->parts > 1 ? ir_cast(b, DT_BF16, x) : x;
    ir_store(b, cut->there[i], part, at, n);
    if (i + 1 < cut->parts) x = rest_of(b, x, part);
  }
}

HoistCopy tile_hoist_copy(Hoist *a, Func *g, Value c0) {
  HoistCopy c = {.a = a, .map = {.arena = a->m->arena}, .c0 = c0};
  outline_params(&c.map, a->f, g);
  vmap_put(&c.map, a->loop->regions[0]->params.at[0], c0);
  return c;
}

// Factors of steps, sums over the steps, tiles; in parts, those of vectors
// first.
static uint32_t order(const Hoist *a, const Cut *cut) {
  const Type *t = ir_type(a->f, cut->v);
  if (t->n < 2) return t->n == 1 && is_step(a, t->axis[0]) ? 0 : 1;
  return cut->parts > 1 && is_step(a, t->axis[0]) && is_step(a, t->axis[1]) ? 3
                                                                            : 2;
}

// Is v made of the inverse?
static bool is_inverted(const Hoist *a, Value v, bool *seen) {
  const Op *op = ir_def(a->f, v);
  if (!op || seen[v] || !in_loop(a, v)) return false;
  if (op->code == OP_TRINV) return true;
  seen[v] = true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_inverted(a, op->args[i], seen)) return true;
  return false;
}

static bool needs_inverse(const Hoist *a, Value v) {
  bool *seen = NEWN(a->m->arena, bool, a->f->values.n);
  return is_inverted(a, v, seen);
}

// Which phase of `first` has it? What needs no inverse may be that of reads.
static const Func *phase_of(const Hoist *first, const Hoist *a,
                            const Cut *cut) {
  bool tile = ir_type(a->f, cut->v)->n == 2;
  bool reads = first->reads && (tile || first->apart);
  return reads && !needs_inverse(a, cut->v) ? first->reads : first->g;
}

static void copy_cuts(const Hoist *first, HoistCopy *c, Func *g, uint32_t from,
                      uint32_t to) {
  Hoist *a = c->a;
  Builder b = {.fn = g, .region = g->body, .span = a->f->span};
  for (uint32_t i = 0; i < a->ncuts; i++) {
    uint32_t k = order(a, &a->cut[i]);
    if (is_own(&a->cut[i]) && phase_of(first, a, &a->cut[i]) == g &&
        k >= from && k <= to)
      hand_over(c, &b, &a->cut[i]);
  }
}

Value tile_hoist_phase(Hoist *a, Func *g) {
  g->axes.at[a->lane].role = AX_VEC;
  g->grid.n = 0;
  for (uint32_t i = 0; i < a->npar; i++)
    vec_push(a->m->arena, &g->grid, ((GridDim){.axis = a->par[i], .tile = 1}));
  uint32_t axis = ir_axis(g, "chunk", AX_PAR, chunks(a));
  vec_push(a->m->arena, &g->grid, ((GridDim){.axis = axis, .tile = 1}));
  Builder b = {.fn = g, .region = g->body, .span = a->f->span};
  Value size = ir_const_i(&b, DT_I64, a->chunk);
  return ir_2(&b, OP_MUL, ir_origin(&b, axis), size);
}

// ---------------------------------------------------------------- the program
static void take(Hoist *a, Cut *cut) {
  const Type *t = ir_type(a->f, cut->v);
  const Cut *of = cut->same < 0 ? cut : &a->first->cut[cut->same];
  Value c0 = a->loop->regions[0]->params.at[0];
  if (of->by) c0 = tile_hoist_position(a);
  Builder b = {.fn = a->f,
               .region = cut->def->parent,
               .before = cut->def,
               .span = cut->def->span};
  Value at[MAX_AXES];
  uint32_t n = place(a, &b, t, c0, NULL, at);
  Value v = 0;
  for (uint32_t i = cut->parts; i-- > 0;) {
    Value x = ir_load(&b, cut->tensor[i], at, n);
    if (cut->parts > 1) x = ir_cast(&b, DT_F32, x);
    v = v ? ir_2(&b, OP_ADD, v, x) : x;
  }
  if (t->dtype == DT_BOOL) v = ir_2(&b, OP_LT, ir_const_i(&b, DT_I32, 0), v);
  ir_replace_uses(a->f, cut->v, v);
}

// ---------------------------------------------------------------- users
// The program, then the phases that have the same loop.
typedef struct Users {
  Hoist *at[MAX_USERS];
  uint32_t n;
} Users;

static int param_number(const Func *f, Value v) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == v) return (int)i;
  return -1;
}

// x of a is what y of b is.
static bool is_same(const Hoist *a, Value x, const Hoist *b, Value y) {
  const Op *p = ir_def(a->f, x), *q = ir_def(b->f, y);
  if (!p || !q) {
    bool step = x == a->loop->regions[0]->params.at[0] &&
                y == b->loop->regions[0]->params.at[0];
    int n = param_number(a->f, x);
    return !p && !q && (step || (n >= 0 && n == param_number(b->f, y)));
  }
  if (p->code != q->code || p->nargs != q->nargs || p->nregions ||
      q->nregions || !type_eq(ir_type(a->f, x), ir_type(b->f, y)) ||
      !ir_same_attrs(p, q))
    return false;
  for (uint32_t i = 0; i < p->nargs; i++)
    if (!is_same(a, p->args[i], b, q->args[i])) return false;
  return true;
}

static void merge(Hoist *a, Hoist *first) {
  a->first = first;
  for (uint32_t i = 0; i < a->ncuts; i++)
    for (uint32_t k = 0; k < first->ncuts && a->cut[i].same < 0; k++)
      if (a->cut[i].parts == first->cut[k].parts &&
          is_same(a, a->cut[i].v, first, first->cut[k].v))
        a->cut[i].same = (int)k;
}

// The new tensor, which is number `at`, in user h.
static Value tensor_in(Hoist *h, Type t, uint32_t at) {
  bool has = h->joined || (h->first && h->first->joined);
  return has ? h->f->params.at[at].v : ir_param(h->f, "made", PR_SHARED, t);
}

// Has cut m of h what `own` hands over as c?
static bool takes(const Hoist *h, uint32_t m, const Hoist *own, const Cut *c) {
  const Cut *of = &h->cut[m];
  if (of->by == c) return true;
  if (of->same < 0) return false;
  of = &h->first->cut[of->same];
  return of->by == c || (h->first == own && of == c);
}

// Of part n of cut i of user k. Functions behind the first get it too, and with
// them recurrences that have joined.
static void workspace_of(Users *u, uint32_t k, uint32_t i, uint32_t n) {
  Cut *c = &u->at[k]->cut[i];
  Hoist *own = u->at[k], *first = u->at[0];
  Type t = tensor_of(own, c, ir_type(own->f, c->v));
  uint32_t at = first->f->params.n;
  c->there[n] = ir_param(first->g, "made", PR_SHARED, t);
  if (first->reads) ir_param(first->reads, "made", PR_SHARED, t);
  outline_share(first->f, "made", t, at);
  for (uint32_t j = 0; j < u->n; j++) {
    Hoist *h = u->at[j];
    Value v = tensor_in(h, t, at);
    if (j == k) c->tensor[n] = v;
    for (uint32_t m = 0; m < h->ncuts; m++)
      if (takes(h, m, own, c)) h->cut[m].tensor[n] = v;
  }
}

// All functions have all tensors, in one order.
static void workspace(Users *u) {
  for (uint32_t k = 0; k < u->n; k++)
    for (uint32_t i = 0; i < u->at[k]->ncuts; i++) {
      Cut *c = &u->at[k]->cut[i];
      if (!is_own(c)) continue;
      for (uint32_t n = 0; n < c->parts; n++) workspace_of(u, k, i, n);
    }
}

static bool find(Hoist *a) {
  if (!find_axes(a) || !find_loop(a)) return false;
  a->late = NEWN(a->m->arena, bool, a->f->values.n);
  mark_late(a, a->f->body);
  find_cuts(a, a->loop->regions[0]);
  drop_axes(a);
  return can_cut(a);
}

static bool same_par(const Hoist *a, const Hoist *b) {
  if (a->npar != b->npar || a->chunk != b->chunk) return false;
  for (uint32_t i = 0; i < a->npar; i++)
    if (a->par[i] != b->par[i]) return false;
  return true;
}

static Hoist *user(Ctx *cx, Module *m, const Target *t, Func *f) {
  Hoist *a = NEW(m->arena, Hoist);
  *a = (Hoist){.cx = cx, .m = m, .target = t, .f = f};
  if (!find(a)) return NULL;
  for (uint32_t i = 0; i < a->ncuts; i++) a->cut[i].same = -1;
  return a;
}

// f takes part in what g makes. Kernels of a gradient are named like its phases
// and may have less tensors: what came behind theirs would lie elsewhere.
static bool is_phase_of(const Func *f, const Func *g) {
  return ir_is_phase(f, g->name) && f->params.n == g->params.n;
}

// A phase that comes in front of what it is of and takes from the same tensors.
// Those of gradients are recurrences of their own.
static bool is_part(Ctx *cx, Module *m, const Target *t, uint32_t i) {
  for (uint32_t k = i + 1; k < m->funcs.n; k++) {
    if (!is_phase_of(m->funcs.at[i], m->funcs.at[k])) continue;
    const Hoist *a = user(cx, m, t, m->funcs.at[k]);
    if (a && worth(a)) return true;
  }
  return false;
}

// Phases in front of a's function are users too.
static void add_phases(Ctx *cx, Module *m, const Target *t, Hoist *a,
                       Users *u) {
  for (uint32_t k = 0; m->funcs.at[k] != a->f && u->n < MAX_USERS; k++) {
    Func *f = m->funcs.at[k];
    Hoist *b = is_phase_of(f, a->f) ? user(cx, m, t, f) : NULL;
    if (!b || !same_par(a, b)) continue;
    merge(b, a);
    u->at[u->n++] = b;
  }
}

// Nothing is left that phases of b would find for themselves.
static bool all_same(const Users *u, uint32_t from) {
  for (uint32_t k = from; k < u->n; k++)
    for (uint32_t i = 0; i < u->at[k]->ncuts; i++)
      if (u->at[k]->cut[i].same < 0) return false;
  return true;
}

// Recurrences behind a's of the same program that have the same inverse.
static void add_joined(Ctx *cx, Module *m, const Target *t, uint32_t i,
                       Users *u) {
  Hoist *a = u->at[0];
  const Func *last = outline_last(a->f);
  for (uint32_t k = i + 1; k < m->funcs.n; k++) {
    Func *f = m->funcs.at[k];
    if (f == last || !ir_is_phase(f, last->name) || is_part(cx, m, t, k))
      continue;
    Hoist *b = user(cx, m, t, f);
    uint32_t n = u->n;
    if (!b || n == MAX_USERS || !same_par(a, b) || !tile_hoist_join(a, b))
      continue;
    u->at[u->n++] = b;
    add_phases(cx, m, t, b, u);
    if (!all_same(u, n + 1)) u->n = n;
    else ctx_remark(cx, "%s: has the inverse of %s", b->f->name, a->f->name);
  }
}

// The function at number i with those in front of it that are phases of it.
static bool find_users(Ctx *cx, Module *m, const Target *t, uint32_t i,
                       Users *u) {
  Hoist *a = user(cx, m, t, m->funcs.at[i]);
  if (!a || !worth(a)) return false;
  *u = (Users){.at = {a}, .n = 1};
  add_phases(cx, m, t, a, u);
  if (has_inverse(a)) add_joined(cx, m, t, i, u);
  return true;
}

// A number a row, as decays per row have. AMD's code takes more registers in
// that order.
static bool has_rows(const Hoist *a) {
  if (!a->target->gpu.hopper) return false;
  for (uint32_t i = 0; i < a->ncuts; i++) {
    const Type *t = ir_type(a->f, a->cut[i].v);
    if (t->n == 1 && !is_step(a, t->axis[0])) return true;
  }
  return false;
}

// A tile of the chunk that begins at step c0, which another phase has made.
static void take_tile(HoistCopy *c, Builder *b, Value v, const Cut *cut) {
  const Hoist *a = c->a;
  Value at[MAX_AXES], c0 = c->c0;
  if (cut->by) {
    c0 = tile_hoist_copied(c, b, tile_hoist_position(a));
    cut = cut->by;
  }
  uint32_t n = place(a, b, ir_type(a->f, v), c0, a->axes, at);
  vmap_put(&c->map, v, ir_load(b, cut->there[0], at, n));
}

static void take_tiles(const Hoist *first, HoistCopy *c, Builder *b) {
  const Hoist *a = c->a;
  for (uint32_t i = 0; i < a->ncuts; i++) {
    const Cut *cut = &a->cut[i];
    if (ir_type(a->f, cut->v)->n == 2 && cut->parts == 1 && cut->same < 0 &&
        phase_of(first, a, cut) != first->g)
      take_tile(c, b, cut->v, cut);
  }
}

// ---------------------------------------------------------------- levels
static const Op *added(const Hoist *a, Value v) {
  const Op *op = ir_def(a->f, v);
  return op && op->code == OP_ADD && ir_type(a->f, v)->n == 2 && in_loop(a, v)
             ? op
             : NULL;
}

// The sum by halves that v is made of, of a chunk whose decays may be strong
// (halves.c), or 0.
static Value levels_of(const Hoist *a, Value v, bool *seen) {
  const Op *op = ir_def(a->f, v);
  Value sum = 0;
  if (!op || seen[v] || !in_loop(a, v) || ir_type(a->f, v)->n != 2) return 0;
  seen[v] = true;
  if (op->code == OP_SELECT && !ir_type(a->f, op->args[0])->n &&
      added(a, op->args[2]))
    return op->args[2];
  for (uint32_t i = 0; i < op->nargs && !sum && op->code != OP_DOT; i++)
    sum = levels_of(a, op->args[i], seen);
  return sum;
}

// Level by level: what scales the vectors of one does not wait for other sums.
static void copy_terms(HoistCopy *c, Builder *b, const Value *sum, uint32_t n) {
  Value before[MAX_CUTS];
  uint32_t some = 0;
  for (uint32_t i = 0; i < n; i++) {
    const Op *op = added(c->a, sum[i]);
    if (op) before[some++] = op->args[0];
  }
  if (some) copy_terms(c, b, before, some);
  for (uint32_t i = 0; i < n; i++) tile_hoist_copied(c, b, sum[i]);
}

static void copy_levels(HoistCopy *c, Builder *b, const Func *g) {
  const Hoist *a = c->a;
  Value sum[MAX_CUTS];
  uint32_t n = 0;
  for (uint32_t i = 0; i < a->ncuts; i++) {
    bool *seen = NEWN(a->m->arena, bool, a->f->values.n), known = false;
    if (phase_of(a, a, &a->cut[i]) != g) continue;
    Value v = levels_of(a, a->cut[i].v, seen);
    for (uint32_t k = 0; k < n; k++) known |= sum[k] == v;
    if (v && !known) sum[n++] = v;
  }
  if (n > 1) copy_terms(c, b, sum, n);
}

// A decay per row is in vectors that take most of a thread's registers: what is
// little is done with before them.
static void copy_all(Users *u, Func *g) {
  Hoist *first = u->at[0];
  Value c0 = tile_hoist_phase(first, g);
  HoistCopy c[MAX_USERS];
  uint32_t little = has_rows(first) ? 3 : 0;
  bool takes = first->apart && g == first->g;
  Builder b = {.fn = g, .region = g->body, .span = first->f->span};
  for (uint32_t k = 0; k < u->n; k++) {
    c[k] = tile_hoist_copy(u->at[k], g, c0);
    if (!k && g == first->reads) copy_levels(&c[0], &b, g);
    if (u->at[k]->joined) tile_hoist_join_copy(&c[0], &b, &c[k]);
    if (takes) take_tiles(first, &c[k], &b);
  }
  for (uint32_t i = 0; i < little; i++)
    for (uint32_t k = 0; k < u->n; k++) copy_cuts(first, &c[k], g, i, i);
  for (uint32_t k = 0; k < u->n; k++) copy_cuts(first, &c[k], g, little, 3);
}

// Decays of rows are in vectors of their own for what reads see and for what is
// erased. Of cotangents, which have plain writes beside, these are more than
// one kernel has registers for; one vector alone is made where its decays are.
static bool is_split(const Users *u) {
  const Hoist *a = u->at[0];
  uint32_t with = 0, without = 0;
  if (!has_rows(a) || !has_inverse(a) || !tile_hoist_backward(a)) return false;
  for (uint32_t i = 0; i < a->ncuts; i++) {
    bool inverted = needs_inverse(a, a->cut[i].v);
    with += inverted;
    without += ir_type(a->f, a->cut[i].v)->n == 2 && !inverted;
  }
  return with > 0 && without > 1;
}

// Do others need the inverse, and all that is made of it more registers than
// one kernel has? What it is made of is handed over then.
static bool is_apart(const Users *u) {
  const Hoist *a = u->at[0];
  bool joined = false;
  for (uint32_t k = 0; k < u->n; k++) joined |= u->at[k]->joined;
  return joined && has_rows(a) && a->ncuts < MAX_CUTS;
}

static void add_tile(Hoist *a, Value v) {
  uint32_t n = a->ncuts;
  if (n == MAX_CUTS) return;
  add_cut(a, v);
  if (a->ncuts > n) a->cut[n].parts = 1, a->cut[n].same = -1;
}

// Tiles that v is a product of, or what that is made of.
static void add_operands(Hoist *a, Value v, bool *seen) {
  const Op *op = ir_def(a->f, v);
  if (!op || seen[v] || !in_loop(a, v) || op->code == OP_TRINV) return;
  seen[v] = true;
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value x = op->args[i];
    const Type *t = ir_type(a->f, x);
    bool tile = op->code == OP_DOT && t->n == 2 && dtype_size(t->dtype) == 2 &&
                !needs_inverse(a, x) && is_heavy(a, x);
    if (tile) add_tile(a, x);
    else add_operands(a, x, seen);
  }
}

// Does a recurrence that has joined hand the tile over, too?
static void find_by(const Users *u, Cut *c) {
  Hoist *a = u->at[0];
  for (uint32_t k = 1; k < u->n && !c->by; k++)
    for (uint32_t i = 0; u->at[k]->joined && i < u->at[k]->ncuts; i++) {
      const Cut *cut = &u->at[k]->cut[i];
      if (ir_type(a->f, c->v)->n == 2 && c->parts == 1 && cut->parts == 1 &&
          tile_hoist_same(a, u->at[k], c->v, cut->v))
        c->by = cut;
    }
}

// Axes that what crosses has, as they are in the phases.
static uint64_t crossing_axes(const Users *u) {
  uint64_t axes = 0;
  for (uint32_t k = 0; k < u->n; k++) {
    const Hoist *h = u->at[k];
    for (uint32_t i = 0; i < h->ncuts; i++) {
      const Type *t = ir_type(h->f, h->cut[i].v);
      if (h->cut[i].same >= 0) continue;
      for (uint32_t j = 0; j < t->n; j++)
        axes |= (uint64_t)1 << (h->axes ? h->axes[t->axis[j]] : t->axis[j]);
    }
  }
  return axes;
}

// Steps that are only summed, as decays are, come last: what they are summed by
// is a tile as products read it, and one for all tiles of steps.
static void put_sums_last(Users *u) {
  Hoist *a = u->at[0];
  uint64_t crossing = crossing_axes(u);
  uint32_t n = a->f->axes.n, *to = NEWN(a->m->arena, uint32_t, n);
  for (uint32_t i = 0; i < n; i++) {
    Axis x = a->f->axes.at[i];
    bool steps = x.role == AX_STEP && x.extent == a->f->axes.at[a->axis].extent;
    bool last = steps && !(crossing >> i & 1);
    to[i] = last ? ir_axis(a->f, x.name, x.role, x.extent) : i;
  }
  for (uint32_t k = 1; k < u->n; k++) {
    Hoist *h = u->at[k];
    uint32_t *axes = NEWN(a->m->arena, uint32_t, h->f->axes.n);
    if (!h->joined) continue;
    for (uint32_t i = 0; i < h->f->axes.n; i++)
      axes[i] = h->axes[i] < n ? to[h->axes[i]] : h->axes[i];
    h->axes = axes;
  }
  a->axes = to;
}

// Tiles that the phase of what needs no inverse hands over.
static uint32_t tiles_of(const Users *u) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < u->n; k++)
    for (uint32_t i = 0; i < u->at[k]->ncuts; i++) {
      const Hoist *h = u->at[k];
      const Cut *c = &h->cut[i];
      n += is_own(c) && ir_type(h->f, c->v)->n == 2 && !needs_inverse(h, c->v);
    }
  return n;
}

// False: these are more than one kernel stores.
static bool put_apart(Users *u) {
  Hoist *a = u->at[0];
  uint32_t before[MAX_USERS];
  for (uint32_t k = 0; k < u->n; k++) {
    Hoist *h = u->at[k];
    bool *seen = NEWN(a->m->arena, bool, h->f->values.n);
    uint32_t n = before[k] = h->ncuts;
    if (k && !h->joined) continue;
    for (uint32_t i = 0; i < n; i++)
      if (needs_inverse(h, h->cut[i].v)) add_operands(h, h->cut[i].v, seen);
  }
  add_tile(a, tile_hoist_inverse(a)->args[0]);
  for (uint32_t i = 0; i < a->ncuts; i++) find_by(u, &a->cut[i]);
  if (tiles_of(u) > MAX_TILES) {
    for (uint32_t k = 0; k < u->n; k++) u->at[k]->ncuts = before[k];
    for (uint32_t i = 0; i < a->ncuts; i++) a->cut[i].by = NULL;
    return false;
  }
  put_sums_last(u);
  return true;
}

static void hoist(Users *u) {
  Hoist *a = u->at[0];
  bool split = is_split(u);
  a->apart = is_apart(u) && put_apart(u);
  a->g = outline_func(a->f, "chunks", 0, true);
  if (split || a->apart) a->reads = outline_func(a->f, "reads", 0, true);
  workspace(u);
  copy_all(u, a->g);
  if (a->reads) copy_all(u, a->reads);
  for (uint32_t k = 0; k < u->n; k++)
    for (uint32_t i = 0; i < u->at[k]->ncuts; i++)
      take(u->at[k], &u->at[k]->cut[i]);
  ctx_remark(a->cx,
             "%s: %u values of a chunk that do not depend on the "
             "state are found by a phase before",
             a->f->name, a->ncuts);
}

// Where its phase goes: in front of the first that takes from it. What phases
// before that have made is there.
static uint32_t first_user(const Users *u, Func *const *all, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < u->n; k++)
      if (u->at[k]->f == all[i]) return i;
  return n;
}

static bool uses(const Users *u, const Func *f) {
  for (uint32_t k = 0; k < u->n; k++)
    if (u->at[k]->f == f) return true;
  return false;
}

bool pass_outline_chunks(Ctx *cx, Module *m, const PassOpt *opt) {
  uint32_t n = m->funcs.n;
  Func **old = NEWN(m->arena, Func *, n + 1);
  const Hoist **made = NEWN(m->arena, const Hoist *, n + 1);
  bool *has_joined = NEWN(m->arena, bool, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    Users u;
    old[i] = m->funcs.at[i];
    if (has_joined[i] || is_part(cx, m, opt->target, i) ||
        !find_users(cx, m, opt->target, i, &u))
      continue;
    for (uint32_t k = i + 1; k < n; k++)
      has_joined[k] |= uses(&u, m->funcs.at[k]);
    made[first_user(&u, old, i)] = u.at[0];
    hoist(&u);
  }
  for (uint32_t i = 0; i < n; i++) {
    if (!made[i]) continue;
    if (made[i]->reads) outline_put(made[i]->reads, old[i]);
    outline_put(made[i]->g, old[i]);
  }
  return true;
}
