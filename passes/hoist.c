// hoist: what a chunk of a recurrence has that does not depend on the state is
// found before, for all chunks at once.
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
// steps depend on each other. What crosses is the last that does not depend on
// the state: tiles as they are multiplied, factors of steps, numbers. Level
// tile, GPU targets with TMA. Needs: tile. Tests: test/passes/hoist/.
#include "ir/target.h"
#include "passes/pass.h"
#include "passes/rebuild.h"

#include <assert.h>

enum { MAX_CUTS = 16, MAX_MAP = 5 };

// A value that is handed over.
typedef struct Cut {
  Value v;
  Op *def;
  Value tensor, there;   // the workspace in both functions
} Cut;

typedef struct Hoist {
  Ctx *cx;
  Module *m;
  Func *f, *g;
  Op *loop;
  int lane;
  int64_t chunk;
  uint32_t axis;         // of the steps
  bool *late;            // by value: depends on the state or on the lane
  Cut cut[MAX_CUTS];
  uint32_t ncuts;
  uint32_t npar, par[MAX_AXES];
} Hoist;

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
    for (uint32_t i = op == a->loop; op->code == OP_FOR &&
                                     i < op->regions[0]->params.n; i++)
      a->late[op->regions[0]->params.at[i]] = true;
    for (uint32_t i = 0; i < op->nregions; i++) mark_late(a, op->regions[i]);
    bool late = op == a->loop || op->nregions || uses_late(a, op) ||
                on_lane(a, op);
    for (uint32_t i = 0; i < op->nres; i++) a->late[op->res[i]] = late;
  }
}

// ---------------------------------------------------------------- what crosses
static bool is_rooted(const Op *op) {
  switch (op->code) {
    case OP_DOT: case OP_TRINV: case OP_REDUCE: case OP_SCAN: case OP_ANY_OF:
    case OP_ALL_OF:
      return true;
    default:
      return false;
  }
}

static bool in_loop(const Hoist *a, Value v) {
  return !ir_defined_outside(a->f, v, a->loop->regions[0]);
}

// Products or sums of the chunk are in v.
static bool is_heavy(const Hoist *a, Value v) {
  const Op *op = ir_def(a->f, v);
  if (!op || !in_loop(a, v)) return false;
  if (is_rooted(op)) return true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_heavy(a, op->args[i])) return true;
  return false;
}

static void add_cut(Hoist *a, Value v) {
  for (uint32_t i = 0; i < a->ncuts; i++)
    if (a->cut[i].v == v) return;
  if (a->ncuts < MAX_CUTS) a->cut[a->ncuts].def = ir_def(a->f, v);
  if (a->ncuts < MAX_CUTS) a->cut[a->ncuts].v = v;
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

static bool const_of(const Func *f, Value v, int64_t *n) {
  double x = 0;
  bool ok = ir_const_value(f, v, &x);
  *n = (int64_t)x;
  return ok;
}

// The loop over chunks: from 0, with an inverse.
static bool find_loop(Hoist *a) {
  for (Op *op = a->f->body->first; op; op = op->next) {
    bool inverse = false;
    int64_t first = 1;
    if (op->code != OP_FOR) continue;
    ir_walk(op->regions[0], find_inverse, &inverse);
    if (!inverse || !const_of(a->f, op->args[0], &first) || first != 0 ||
        !const_of(a->f, op->args[2], &a->chunk) || ir_attr_i(op, AT_REVERSE, 0))
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
  return steps && a->lane >= 0 && a->npar + 2 <= MAX_MAP;
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
  return a->ncuts > 0 && a->ncuts <= MAX_CUTS;
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

static DType kept_as(const Type *t) {
  return t->dtype == DT_BOOL ? DT_I32 : t->dtype;
}

static Type tensor_of(const Hoist *a, const Type *t) {
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
  return type_tensor(kept_as(t), n, shape);
}

static Value origin(Builder *b, uint32_t axis) {
  Type i64 = type_scalar(DT_I64);
  IrAttr at = {.id = AT_AXIS, .i = axis};
  return ir_op(b, OP_ORIGIN, NULL, 0, &at, 1, &i64, 1, 0)->res[0];
}

static Value iota(Builder *b, uint32_t axis, Dim size) {
  Type t = type_with(type_scalar(DT_I64), axis, size);
  return ir_op(b, OP_IOTA, NULL, 0, NULL, 0, &t, 1, 0)->res[0];
}

// Indices of a cut's tile of the chunk that begins at step c0.
static uint32_t place(const Hoist *a, Builder *b, const Type *t, Value c0,
                      Value *at) {
  uint32_t n = 0, k = t->n ? long_axis(a, t) : 0;
  int64_t rows = 1;
  for (uint32_t i = 0; i < a->npar; i++) at[n++] = origin(b, a->par[i]);
  if (t->n) dim_is_const(&a->m->dims, t->size[k], &rows);
  Value first = c0;
  if (rows != a->chunk) {
    first = ir_2(b, OP_FLOORDIV, c0, ir_const_i(b, DT_I64, a->chunk));
    first = ir_2(b, OP_MUL, first, ir_const_i(b, DT_I64, rows));
  }
  if (t->n) first = ir_2(b, OP_ADD, first, iota(b, t->axis[k], t->size[k]));
  at[n++] = first;
  if (t->n > 1) at[n++] = iota(b, t->axis[1 - k], t->size[1 - k]);
  return n;
}

// ---------------------------------------------------------------- the phase
typedef struct Copy {
  Hoist *a;
  ValueMap map;
  Value c0;
} Copy;

// v in the phase: what it is made of is copied too.
static Value copied(Copy *c, Builder *b, Value v) {
  const Func *f = c->a->f;
  if (v < c->map.n && c->map.to[v]) return c->map.to[v];
  const Op *op = ir_def(f, v);
  assert(op && "a value of the loop that is not its coordinate");
  for (uint32_t i = 0; i < op->nargs; i++) copied(c, b, op->args[i]);
  ir_clone(b, f, op, &c->map, NULL);
  return c->map.to[v];
}

static void hand_over(Copy *c, Builder *b, const Cut *cut) {
  Value args[MAX_AXES + 2] = {cut->there, copied(c, b, cut->v)};
  const Type *t = ir_type(c->a->f, cut->v);
  if (t->dtype == DT_BOOL)
    args[1] = ir_3(b, OP_SELECT, args[1], ir_const_i(b, DT_I32, 1),
                   ir_const_i(b, DT_I32, 0));
  uint32_t n = place(c->a, b, t, c->c0, args + 2);
  ir_op(b, OP_STORE, args, 2 + n, NULL, 0, NULL, 0, 0);
}

// Cuts of region r of the loop and of the branches in it. Only the first side
// of a branch is for whole chunks.
static void copy_region(Copy *c, Builder *b, const Region *r) {
  Hoist *a = c->a;
  for (uint32_t i = 0; i < a->ncuts; i++)
    if (a->cut[i].def->parent == r) hand_over(c, b, &a->cut[i]);
  for (const Op *op = r->first; op; op = op->next) {
    bool some = false;
    for (uint32_t i = 0; op->code == OP_IF && i < a->ncuts; i++)
      some |= a->cut[i].def->parent == op->regions[0];
    if (!some) continue;
    Value cond = copied(c, b, op->args[0]);
    Op *br = ir_op(b, OP_IF, &cond, 1, NULL, 0, NULL, 0, 2);
    for (uint32_t k = 0; k < 2; k++) {
      Builder in = {.fn = b->fn, .region = br->regions[k], .span = b->span};
      if (!k) copy_region(c, &in, op->regions[0]);
      ir_yield(&in, NULL, 0);
    }
  }
}

static void phase(Hoist *a) {
  const char *name = arena_printf(a->m->arena, "%s.chunks", a->f->name);
  Func *g = a->g;
  g->name = intern(&a->cx->names, name);
  g->axes.at[a->lane].role = AX_VEC;
  g->grid.n = 0;
  for (uint32_t i = 0; i < a->npar; i++)
    vec_push(a->m->arena, &g->grid, ((GridDim){a->par[i], 1}));
  uint32_t axis = ir_axis(g, "chunk", AX_PAR, chunks(a));
  vec_push(a->m->arena, &g->grid, ((GridDim){axis, 1}));
  Builder b = {.fn = g, .region = g->body, .span = a->f->span};
  Copy c = {.a = a, .map = {.arena = a->m->arena}};
  for (uint32_t i = 0; i < a->f->params.n && i < g->params.n; i++)
    vmap_put(&c.map, a->f->params.at[i].v, g->params.at[i].v);
  c.c0 = ir_2(&b, OP_MUL, origin(&b, axis), ir_const_i(&b, DT_I64, a->chunk));
  vmap_put(&c.map, a->loop->regions[0]->params.at[0], c.c0);
  copy_region(&c, &b, a->loop->regions[0]);
}

// ---------------------------------------------------------------- the program
static void take(Hoist *a, Cut *cut) {
  const Type *t = ir_type(a->f, cut->v);
  Builder b = {.fn = a->f, .region = cut->def->parent, .before = cut->def,
               .span = cut->def->span};
  Value at[MAX_AXES];
  uint32_t n = place(a, &b, t, a->loop->regions[0]->params.at[0], at);
  Value v = ir_load(&b, cut->tensor, at, n);
  if (t->dtype == DT_BOOL)
    v = ir_2(&b, OP_LT, ir_const_i(&b, DT_I32, 0), v);
  ir_replace_uses(a->f, cut->v, v);
}

static void workspace(Hoist *a) {
  for (uint32_t i = 0; i < a->ncuts; i++) {
    Cut *c = &a->cut[i];
    Type t = tensor_of(a, ir_type(a->f, c->v));
    c->tensor = ir_param(a->f, "made", PR_SHARED, t);
    c->there = ir_param(a->g, "made", PR_SHARED, t);
  }
}

static bool find(Hoist *a) {
  if (!find_axes(a) || !find_loop(a)) return false;
  a->late = NEWN(a->m->arena, bool, a->f->values.n);
  mark_late(a, a->f->body);
  find_cuts(a, a->loop->regions[0]);
  return can_cut(a);
}

bool pass_hoist(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  const Target *t = m->target ? target_by_name(m->target) : NULL;
  Vec(Func *) out = {0};
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Hoist a = {.cx = cx, .m = m, .f = m->funcs.at[i]};
    if (t && t->kind == TARGET_GPU && t->gpu.arch && find(&a)) {
      a.g = rebuild_signature(m, a.f);
      workspace(&a);
      phase(&a);
      for (uint32_t k = 0; k < a.ncuts; k++) take(&a, &a.cut[k]);
      vec_push(m->arena, &out, a.g);
      ctx_remark(cx, "%s: %u values of a chunk that do not depend on the "
                 "state are found by a phase before", a.f->name, a.ncuts);
    }
    vec_push(m->arena, &out, a.f);
  }
  m->funcs.n = 0;
  for (uint32_t i = 0; i < out.n; i++) vec_push(m->arena, &m->funcs, out.at[i]);
  return true;
}
