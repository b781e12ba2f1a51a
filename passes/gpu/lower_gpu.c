// lower_gpu: tile -> frag, for GPUs: tiles become fragments over the
// threads of a group of four warps, operands of products shared tiles, and
// products run on the matrix units. Everything is synchronous.
//
//   before  %k = load(%K, %b, %g, %ki, %di) : bf16{k:128,d:64}
//           %s = dot(%q, %k) {over = [d]} : f32{q:64,k:128}
//           %m = reduce(%s) {kind = max, over = [k]} : f32{q:64}
//   after   %k = sfill(%K, %b, %g, %k0, %zero) {tile = [2, 3]}
//                : smem<128x64xbf16,sw128>
//           %s = mma(%q, %k, %none) : frag<64x128xf32,acc>
//           %m = freduce(%s) {kind = max, pos = 1} : frag<64xf32,acc.0>
//
// Coordinates and extents become i32 where their ranges allow it. A task is
// what a CTA computes; the rows of the grid's tiled axis are shared by
// `groups` instances of 128 threads. gpu.h has the words, docs/gpu/place.md
// the form. Needs: level tile. Tests: test/passes/lower_gpu.
#include "ir/pressure.h"
#include "passes/support/cost.h"
#include "passes/support/lane.h"
#include "passes/support/relief.h"
#include "passes/gpu/gpu.h"
#include "passes/support/rebuild.h"

#include <assert.h>

// ---------------------------------------------------------------- regions
static void open_scope(Place *p, const Region *from, Region *to, Span span) {
  Scope s = {from, {.fn = p->g, .region = to, .span = span}};
  vec_push(p->arena, &p->scopes, s);
}

// Is what a loop carries only added to, and the like? A slice of columns is in
// many registers of a lane on AMD, where a row is a lane.
static bool is_thin(const Place *p, const Op *op, uint32_t i) {
  const Region *r = op->regions[0];
  Value param = r->params.at[i + 1], next = r->last->args[i];
  const Op *o = ir_def(p->f, next);
  bool thin = p->target->gpu.vendor == VENDOR_AMD && o && o->parent == r &&
              op_info(o->code)->flags & OPF_ELEM &&
              ir_count_uses(p->f, param) == 1 && ir_count_uses(p->f, next) == 1;
  bool uses = false;
  for (uint32_t k = 0; thin && k < o->nargs; k++) uses |= o->args[k] == param;
  return thin && uses;
}

// The type in which a loop or branch hands on v.
static Type carried_type(Place *p, Value v, bool thin) {
  View w;
  const Type *t = ir_type(p->f, v);
  if (!lower_view(p, t, NULL, &w)) {
    lower_refuse(p, ir_def(p->f, v), "a carried value with three tiled axes");
    return type_scalar(DT_F32);
  }
  if (t->n == 1)
    return lower_slice_type(p, t->dtype, t->axis[0],
                            thin ? ROLE_ROW : lower_home(p, t));
  return lower_type(p, t->dtype, &w);
}

static Role role_of(const Place *p, Value v, const Type *t) {
  bool col = t->kind == TK_FRAG && t->slice == SLICE_COL;
  Role home = lower_home(p, ir_type(p->f, v)), r = col ? ROLE_COL : ROLE_ROW;
  return home % 2 == r ? home : r;
}

static Value carried(Place *p, Value v, Type t) {
  Value x = lower_eval(p, v, role_of(p, v, &t));
  return p->failed ? 0 : lower_as(lower_at(p, (int)p->scopes.n - 1), x, t);
}

// Emits region `from` into `to` and its yield.
static void region_into(Place *p, const Region *from, Region *to,
                        const Type *types, Span span) {
  open_scope(p, from, to, span);
  lower_region(p, from);
  const Op *y = from->last;
  assert(y && y->code == OP_YIELD);
  Value *out = NEWN(p->arena, Value, y->nargs + 1);
  for (uint32_t i = 0; i < y->nargs && !p->failed; i++)
    out[i] = carried(p, y->args[i], types[i]);
  if (!p->failed) ir_yield(lower_at(p, (int)p->scopes.n - 1), out, y->nargs);
  p->scopes.n--;
}

static Type *carried_types(Place *p, const Op *op) {
  Type *types = NEWN(p->arena, Type, op->nres + 1);
  for (uint32_t i = 0; i < op->nres; i++)
    types[i] =
        carried_type(p, op->res[i], op->code == OP_FOR && is_thin(p, op, i));
  return types;
}

// What is made outside for the inside goes in front of `inner`.
static void inside_of(Place *p, int depth, Op *inner) {
  lower_at(p, depth)->before = inner;
}

static void place_for(Place *p, const Op *op) {
  int depth = (int)p->scopes.n - 1;
  Region *r = op->regions[0];
  Type *types = carried_types(p, op);
  Value *args = NEWN(p->arena, Value, op->nargs);
  DType iv = lower_dtype_of(p, r->params.at[0]);
  for (uint32_t i = 0; i < op->nargs && !p->failed; i++)
    args[i] = carried(p, op->args[i], i < 3 ? type_scalar(iv) : types[i - 3]);
  if (p->failed) return;
  IrAttr rev = attr_i(AT_REVERSE, 1);
  Op *loop = ir_op(lower_at(p, depth), OP_FOR, args, op->nargs, &rev,
                   ir_attr_i(op, AT_REVERSE, 0) != 0, types, op->nres, 1);
  Region *to = loop->regions[0];
  for (uint32_t i = 0; i < r->params.n; i++) {
    const char *hint = ir_info(p->f, r->params.at[i])->hint;
    Type t = i ? types[i - 1] : type_scalar(iv);
    p->memo[r->params.at[i]][role_of(p, r->params.at[i], &t)] =
        ir_region_param(to, t, hint);
  }
  inside_of(p, depth, loop);
  region_into(p, r, to, types, op->span);
  inside_of(p, depth, loop->next);
  for (uint32_t i = 0; i < op->nres; i++)
    p->memo[op->res[i]][role_of(p, op->res[i], &types[i])] = loop->res[i];
}

static void place_if(Place *p, const Op *op) {
  int depth = (int)p->scopes.n - 1;
  Type *types = carried_types(p, op);
  Value c = lower_scalar(p, op->args[0]);
  if (p->failed) return;
  Op *x = ir_op(lower_at(p, depth), OP_IF, &c, 1, NULL, 0, types, op->nres, 2);
  inside_of(p, depth, x);
  for (uint32_t i = 0; i < 2 && !p->failed; i++)
    region_into(p, op->regions[i], x->regions[i], types, op->span);
  inside_of(p, depth, x->next);
  for (uint32_t i = 0; i < op->nres; i++) lower_set(p, op->res[i], x->res[i]);
}

static void place_skip(Place *p, const Op *op) {
  if (p->groups == 1) return;
  Value n = lower_scalar(p, op->args[0]);
  if (p->failed) return;
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  n = lower_cast(b, DT_I32, n);
  ir_op(b, OP_GROUP_SKIP, &n, 1, NULL, 0, NULL, 0, 0);
}

void lower_region(Place *p, const Region *r) {
  for (Op *op = r->first; op && !p->failed; op = op->next) switch (op->code) {
    case OP_FOR: place_for(p, op); break;
    case OP_IF: place_if(p, op); break;
    case OP_STORE: lower_store(p, op); break;
    case OP_GROUP_SKIP: place_skip(p, op); break;
    case OP_YIELD: break;
    default:
      if (lower_rooted(p, op)) lower_root(p, op);
    }
}

// ---------------------------------------------------------------- tasks
static void find_peers(void *data, Op *op) {
  int64_t *n = data;
  if (op->code == OP_PEERS) *n = ir_attr_i(op, AT_CLUSTER, 0);
}

static void place_launch(Place *p, Builder *b) {
  int64_t size = p->warps * p->target->gpu.wave, cluster = 0;
  ir_walk(p->f->body, find_peers, &cluster);
  IrAttr at[7] = {attr_i(AT_THREADS, p->groups * size)};
  uint32_t n = 1;
  if (p->alone) at[n++] = attr_i(AT_OCCUPANCY, 1);
  // Many warps of a small task: another CTA's hide what they wait for.
  else if (p->paired) at[n++] = attr_i(AT_OCCUPANCY, 2);
  if (p->dense) at[n++] = attr_i(AT_DENSE, 1);
  bool few = p->target->gpu.hopper && lane_few(p->f, p->lane);
  if (p->once || few) at[n++] = attr_i(AT_ONCE, 1);
  if (p->mixed) at[n++] = attr_i(AT_MIXED, 1);
  if (cluster) at[n++] = attr_i(AT_CLUSTER, cluster);
  if (p->groups > 1) at[n++] = attr_list(AT_GROUPS, &size, 1);
  ir_op(b, OP_LAUNCH, NULL, 0, at, n, NULL, 0, 0);
  lower_origins(p, b);
  if (p->groups == 1) return;
  Value g = lower_op(b, OP_GROUP, NULL, 0, type_scalar(DT_I32), NULL, 0);
  if (p->part >= 0) {
    p->origin[p->part] = g;
    return;
  }
  p->group = ir_2(b, OP_MUL, g, lower_int(b, p->wide[p->lane][ROLE_ROW]));
}

// Where even the smallest tiles leave too few registers free a workgroup has a
// CU for itself: on CDNA twice the registers. On RDNA operands wait in shared
// memory; then, without other help, code generation loads long slices one after
// the other.
static bool is_alone(const Target *t, const PassOpt *opt) {
  int64_t least = t->gpu.wave == 32 ? COST_LAST_REGS : COST_TILE_REGS;
  return t->gpu.vendor == VENDOR_AMD && opt->spare_regs >= least;
}

// Tasks without products wait for memory: many of them, where their tiles are
// small, and fewer where their registers were spilled.
static void let_many(Place *p) {
  uint32_t threads = p->warps * p->target->gpu.wave;
  if (!p->straight || p->target->gpu.vendor != VENDOR_NVIDIA ||
      ir_pressure(p->g, p->arena).regs > COST_MAP_LIVE)
    return;
  int64_t tasks = p->target->gpu.regs / (threads * COST_MAP_REGS);
  tasks = relief_ctas(relief_of(p->g), tasks);
  if (tasks > 1)
    ir_set_attr(p->g, p->g->body->first, attr_i(AT_OCCUPANCY, tasks));
}

// Rows of a body for few of them: those of a group, of a warp.
static uint32_t most_rows(const Target *t, const PassOpt *opt) {
  if (!t->gpu.hopper || !opt->few) return 0;
  return opt->fewest ? t->gpu.rows : HW_GROUP_ROWS;
}

// The rows that a body for few of them has few of, or DIM_NONE: what the
// program's own function has tiles of (plan_group_rows). What its other
// functions have tiles of, tables of keys for one, may be longer.
static Dim few_rows(const Module *m) {
  const Func *own = NULL;
  bool keys = false;
  for (uint32_t i = 0; i < m->funcs.n && !own; i++)
    if (!strchr(m->funcs.at[i]->name, '.')) own = m->funcs.at[i];
  for (uint32_t a = 0; own && a < own->axes.n; a++)
    keys |= own->axes.at[a].role == AX_KEY;
  for (uint32_t i = 0; keys && i < own->grid.n; i++)
    if (own->grid.at[i].tile > 1)
      return own->axes.at[own->grid.at[i].axis].extent;
  return DIM_NONE;
}

static Func *place_func(Ctx *cx, Module *m, Func *f, const Target *t,
                        const PassOpt *all, int64_t relief) {
  PassOpt own = *all, *opt = &own;
  own.spare_regs = relief_spare(all, f);
  Place p = {.cx = cx,
             .m = m,
             .f = f,
             .target = t,
             .arena = &cx->scratch,
             .alone = is_alone(t, opt),
             .once = t->gpu.hopper && (opt->few || opt->decode),
             .most = most_rows(t, opt),
             .few = few_rows(m),
             .scarce = relief_scarce(opt),
             .dense = t->gpu.vendor == VENDOR_AMD && !opt->strided,
             .mixed = t->gpu.direct && !opt->strided && !opt->spare_regs};
  uint32_t n = f->values.n;
  p.memo = arena_alloc(p.arena, sizeof *p.memo * n);
  p.smem = NEWN(p.arena, Parts, n);
  p.frag = NEWN(p.arena, Parts, n);
  p.boxed = NEWN(p.arena, bool, n);
  p.taken = NEWN(p.arena, Value, n);
  p.shown = NEWN(p.arena, Value, n);
  p.depth = NEWN(p.arena, int, n);
  for (uint32_t i = 0; i < n; i++) p.depth[i] = -1;
  p.origin = NEWN(p.arena, Value, f->axes.n + 1);
  p.g = rebuild_signature(m, f);
  lower_plan(&p);
  if (p.failed) return NULL;
  for (uint32_t i = 0; i < f->params.n; i++)
    p.memo[f->params.at[i].v][0] = p.g->params.at[i].v;
  open_scope(&p, f->body, p.g->body, f->span);
  place_launch(&p, lower_at(&p, 0));
  lower_region(&p, f->body);
  if (p.failed) return NULL;
  lower_early(&p, p.g->body);
  relief_set(p.g, relief);
  let_many(&p);
  if (p.scarce) {
    lower_stores(&p, p.g->body);
    lower_late(&p, p.g->body);
  }
  return p.g;
}

bool pass_lower_gpu(Ctx *cx, Module *m, const PassOpt *opt) {
  const Target *t = opt->target;
  if (t->kind != TARGET_GPU) {
    diag_add(cx, DIAG_pass_unsupported, NOWHERE, "place needs a GPU target");
    return false;
  }
  m->level = LV_FRAG;
  m->target = intern(&cx->names, t->name);
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    ArenaMark mark = arena_mark(&cx->scratch);
    if (!rebuild_one_tiled(cx, m->funcs.at[i], "GPU targets take"))
      return false;
    int64_t relief = relief_asked(opt->relief, i);
    Func *g = place_func(cx, m, m->funcs.at[i], t, opt, relief);
    if (!g) return false;
    m->funcs.at[i] = g;
    arena_reset(&cx->scratch, mark);
  }
  return true;
}
