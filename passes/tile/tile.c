// tile: stream -> tile. Cuts the parallel axes into tasks and each `pass` into
// loops over key tiles.
//
//   before  %m, %l = kreduce() {kinds = [max, sum], axis = k} ({domain}, {local},
//             {correct}, {bounds})
//   after   for(%lo, %flo, 64, ..) { masked body }    keys partly masked
//           for(%flo, %fhi, 64, ..) { body }          no mask at all
//           for(%fhi, %hi, 64, ..) { masked body }    and the tail
//
// Needs: level stream, `merge_bounds` regions of `mask_bounds` where there are
// domains (a pass without one is one masked loop). The common part is here:
// axes become coordinates (origin + iota), a parallel domain becomes the mask
// of the stores, `recur` becomes a sequential loop. loop.c makes the key
// loops, plan.c chooses sizes. Tests: test/passes/tile.
#include "passes/support/cost.h"
#include "passes/support/lane.h"
#include "passes/support/pieces.h"
#include "passes/tile/tile.h"

#include "ir/target.h"

#include <assert.h>
#include <string.h>

ValueMap tile_map_copy(Tiler *t, const ValueMap *m) {
  ValueMap c = {.arena = m->arena, .n = m->n};
  c.to = NEWN(m->arena, Value, m->n ? m->n : 1);
  if (m->n) memcpy(c.to, m->to, sizeof(Value) * m->n);
  (void)t;
  return c;
}

const Op *tile_yield(const Region *r) {
  assert(r->last && r->last->code == OP_YIELD);
  return r->last;
}

bool tile_is_const(const Func *f, Value v, double want) {
  double got;
  return ir_const_value(f, v, &got) && got == want;
}

Value tile_const(Builder *b, Type type, double v) {
  IrAttr a = dtype_is_float(type.dtype) ? attr_f(AT_VALUE, v)
                                        : attr_i(AT_IVALUE, dtype_int(v));
  return ir_op(b, OP_CONST, NULL, 0, &a, 1, &type, 1, 0)->res[0];
}

// The tiled axis is parallel, whatever it was.
static AxisRole role_of(const Tiler *t, uint32_t axis) {
  bool lane = (int)axis == t->plan.lane;
  return lane ? AX_PAR : t->from->axes.at[axis].role;
}

static Dim axis_size(const Tiler *t, uint32_t axis) {
  DimTab *d = &t->to->mod->dims;
  AxisRole role = role_of(t, axis);
  if ((int)axis == t->plan.lane) return dim_const(d, t->plan.tile_q);
  if (role == AX_KEY) return dim_const(d, t->plan.tile_k);
  return role == AX_VEC ? t->from->axes.at[axis].extent : DIM_NONE;
}

Type tile_type(const Tiler *t, const Type *s) {
  if (s->kind != TK_ELEM) return *s;
  Type r = type_scalar(s->dtype);
  for (uint32_t i = 0; i < s->n; i++) {
    Dim size = axis_size(t, s->axis[i]);
    bool cut = t->sliced && s->axis[i] == t->plan.cut;
    if (cut) r = type_with(r, t->slice, t->to->axes.at[t->slice].extent);
    else if (size != DIM_NONE) r = type_with(r, s->axis[i], size);
  }
  return r;
}

static Value iota(Tiler *t, Builder *b, uint32_t axis) {
  return ir_iota(b, axis, axis_size(t, axis));
}

// Coordinates of the parallel and vector axes, once at the top of the task.
static void make_coords(Tiler *t, Builder *b) {
  for (uint32_t a = 0; a < t->from->axes.n; a++) {
    AxisRole role = role_of(t, a);
    if (role == AX_VEC) t->coord[a] = iota(t, b, a);
    if (role != AX_PAR) continue;
    t->origin[a] = t->coord[a] = ir_origin(b, a);
    if ((int)a == t->plan.part && t->share != SHARE_COMBINE)
      ir_set_attr(t->to, ir_def(t->to, t->origin[a]), attr_i(AT_EACH, 1));
    if ((int)a == t->plan.lane)
      t->coord[a] = ir_2(b, OP_ADD, t->origin[a], iota(t, b, a));
  }
}

bool tile_demand(Tiler *t, Builder *b, const Op *op, ValueMap *m) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value v = op->args[i];
    const Op *def = ir_def(t->from, v);
    bool made = v < m->n && m->to[v];
    if (made || !def || ir_type(t->from, v)->kind != TK_ELEM) continue;
    if (!tile_op(t, b, def, m)) return false;
  }
  return true;
}

Builder tile_if(Builder *b, Value yes) {
  Op *br = ir_op(b, OP_IF, &yes, 1, NULL, 0, NULL, 0, 2);
  Builder in = {.fn = b->fn, .region = br->regions[1], .span = b->span};
  ir_yield(&in, NULL, 0);
  in.region = br->regions[0];
  return in;
}

// A whole tile of rows is stored without a mask: TMA does that.
static void store_rows(Tiler *t, Builder *b, const Op *op, ValueMap *m) {
  Value *args = NEWN(m->arena, Value, op->nargs + 1);
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = vmap_get(m, op->args[i]);
  Value end = ir_2(b, OP_ADD, t->origin[t->plan.lane],
                   ir_const_i(b, DT_I64, t->plan.tile_q));
  Value all = ir_2(b, OP_LE, end, t->rows);
  Op *br = ir_op(b, OP_IF, &all, 1, NULL, 0, NULL, 0, 2);
  Builder in = {.fn = b->fn, .region = br->regions[0], .span = b->span};
  ir_op(&in, OP_STORE, args, op->nargs, NULL, 0, NULL, 0, 0);
  ir_yield(&in, NULL, 0);
  in.region = br->regions[1];
  args[op->nargs] = t->keep[t->plan.lane];
  IrAttr at = {.id = AT_MASKED, .i = 1};
  ir_op(&in, OP_STORE, args, op->nargs + 1, &at, 1, NULL, 0, 0);
  ir_yield(&in, NULL, 0);
}

// The only mask is that of the lane axis, and the value is a tile.
static bool stores_rows(const Tiler *t, const Op *op, const ValueMap *m,
                        Value ends) {
  uint32_t n = 0;
  for (uint32_t a = 0; a < t->from->axes.n; a++) n += t->keep[a] != 0;
  return t->rows && n == 1 && !t->whole && !t->last && !t->sliced &&
         !ir_attr_i(op, AT_MASKED, 0) && !ends &&
         ir_type(t->to, vmap_get(m, op->args[1]))->n == 2;
}

// What each step stores, or what is stored behind the last.
static bool by_step(const Tiler *t, const Op *op) {
  for (uint32_t i = 1; i < op->nargs; i++) {
    const Type *v = ir_type(t->from, op->args[i]);
    for (uint32_t k = 0; k < v->n; k++)
      if (t->from->axes.at[v->axis[k]].role == AX_STEP) return true;
  }
  return false;
}

static bool tile_store(Tiler *t, Builder *b, const Op *op, ValueMap *m) {
  bool masked = ir_attr_i(op, AT_MASKED, 0);
  uint32_t n = op->nargs - masked;
  if (t->share == SHARE_PART && !t->whole) return true;
  if (t->share == SHARE_STATES) return true;
  if (!tile_demand(t, b, op, m)) return false;
  Value ends = tile_row_ends(t, b, op);
  if (stores_rows(t, op, m, ends)) {
    store_rows(t, b, op, m);
    return true;
  }
  Value *args = NEWN(m->arena, Value, op->nargs + 1);
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = vmap_get(m, op->args[i]);
  Value mask = masked && op->args[n] != t->holds ? args[n] : 0;
  if (ends) mask = mask ? ir_2(b, OP_AND, mask, ends) : ends;
  bool branch = t->whole && tile_split_branches(t);
  if (t->whole && !(branch && t->plan.part >= 0))
    mask = mask ? ir_2(b, OP_AND, mask, t->whole) : t->whole;
  if (t->last && !by_step(t, op))
    mask = mask ? ir_2(b, OP_AND, mask, t->last) : t->last;
  if (t->sliced && !type_has_axis(ir_type(t->from, op->args[1]), t->plan.cut))
    mask = mask ? ir_2(b, OP_AND, mask, t->first) : t->first;
  for (uint32_t a = 0; a < t->from->axes.n; a++) {
    if (!t->keep[a]) continue;
    mask = mask ? ir_2(b, OP_AND, mask, t->keep[a]) : t->keep[a];
  }
  IrAttr at = {.id = AT_MASKED, .i = 1};
  if (mask) args[n++] = mask;
  // What tasks store nothing of these go around.
  Builder in = branch ? tile_if(b, t->whole) : *b;
  ir_op(&in, OP_STORE, args, n, &at, mask != 0, NULL, 0, 0);
  if (branch) ir_yield(&in, NULL, 0);
  return true;
}

// Tasks behind the last row do nothing: what follows is done for the others.
static void skip_rows(Tiler *t, Builder *b) {
  Value some = ir_2(b, OP_LT, t->origin[t->plan.lane], t->rows);
  t->skip = ir_op(b, OP_IF, &some, 1, NULL, 0, NULL, 0, 2);
  b->region = t->skip->regions[0];
}

static void end_skip(const Tiler *t, Builder *b) {
  if (!t->skip) return;
  ir_yield(b, NULL, 0);
  b->region = t->skip->regions[1];
  ir_yield(b, NULL, 0);
}

static void tile_domain(Tiler *t, Builder *b, const Op *op, ValueMap *m) {
  uint32_t a = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  Value p = vmap_get(m, op->args[0]);
  bool first = !t->keep[a];
  t->keep[a] = first ? p : ir_2(b, OP_AND, t->keep[a], p);
  const Op *lt = ir_def(t->from, op->args[0]);
  bool rows = t->gpu && first && (int)a == t->plan.lane && lt &&
              lt->code == OP_LT && ir_def(t->from, lt->args[0]) &&
              ir_def(t->from, lt->args[0])->code == OP_INDEX &&
              !type_has_axis(ir_type(t->from, lt->args[1]), a);
  t->rows = rows ? vmap_get(m, lt->args[1]) : 0;
  if (rows && op->parent == t->from->body) skip_rows(t, b);
}

bool tile_is_made(const Func *f, const Op *load) {
  for (uint32_t i = 0; load->code == OP_LOAD && i < f->params.n; i++)
    if (f->params.at[i].v == load->args[0])
      return f->params.at[i].role == PR_SHARED;
  return false;
}

// A constant may be typed with axes; as a tile it has their sizes.
static bool tile_constant(Tiler *t, Builder *b, const Op *op, ValueMap *m) {
  Type type = tile_type(t, ir_type(t->from, op->res[0]));
  Op *c = ir_op(b, OP_CONST, NULL, 0, op->attrs, op->nattrs, &type, 1, 0);
  vmap_put(m, op->res[0], c->res[0]);
  return true;
}

bool tile_waits(const Tiler *t, Value v) {
  const Type *r = ir_type(t->from, v);
  for (uint32_t a = 0; r->kind == TK_ELEM && a < r->n; a++) {
    AxisRole role = t->from->axes.at[r->axis[a]].role;
    if ((role == AX_KEY || role == AX_STEP) && !t->coord[r->axis[a]])
      return true;
  }
  return false;
}

static bool waits_for_loop(const Tiler *t, const Op *op) {
  if (op->code == OP_AFFINE || op->code == OP_MAXPLUS)
    return t->walked[ir_attr_i(op, AT_AXIS, 0)];
  for (uint32_t i = 0; op->code == OP_STORE && i < op->nargs; i++)
    if (tile_waits(t, op->args[i])) return true;
  for (uint32_t i = 0; i < op->nres; i++)
    if (tile_waits(t, op->res[i])) return true;
  return false;
}

bool tile_op(Tiler *t, Builder *b, const Op *op, ValueMap *m) {
  bool walks = op->code == OP_AFFINE || op->code == OP_MAXPLUS;
  if ((walks || op->code == OP_STORE) && waits_for_loop(t, op)) return true;
  switch (op->code) {
  case OP_INDEX: {
    Value c = t->coord[ir_attr_i(op, AT_AXIS, 0)];
    if (c) vmap_put(m, op->res[0], c);
    return true;
  }
  case OP_ASSUME:
  case OP_YIELD: return true;
  case OP_STOP_GRAD:
    vmap_put(m, op->res[0], vmap_get(m, op->args[0]));
    return true;
  case OP_DOMAIN: tile_domain(t, b, op, m); return true;
  case OP_STORE: return tile_store(t, b, op, m);
  case OP_KREDUCE: return tile_pass(t, b, op, m);
  case OP_RECUR: return tile_recur(t, b, op, m);
  case OP_AFFINE:
  case OP_MAXPLUS: return tile_affine(t, b, op, m);
  default:
    if (waits_for_loop(t, op)) return true;
    if (op->code == OP_CONST) return tile_constant(t, b, op, m);
    if (!tile_demand(t, b, op, m)) return false;
    if (op->code == OP_SCAN && !tile_end_block(t, b, op, m)) return false;
    b->span = op->span;
    Op *c = ir_clone(b, t->from, op, m, NULL);
    ir_del_attr(c, AT_NOTE);
    return true;
  }
}

bool tile_region(Tiler *t, Builder *b, const Region *r, ValueMap *m) {
  for (const Op *op = r->first; op; op = op->next)
    if (!tile_op(t, b, op, m)) return false;
  return true;
}

static bool is_serial(const Tiler *t, uint32_t axis) {
  return t->share != SHARE_COMBINE && (t->plan.serial >> axis & 1);
}

typedef struct Repeats {
  const Func *f;
  uint32_t axis;
  bool found;
} Repeats;

static void see_repeated(void *data, Op *op) {
  Repeats *r = data;
  if (op->code != OP_DOT || !lane_is_product(r->f, op)) return;
  const Type *x = ir_type(r->f, op->args[0]), *y = ir_type(r->f, op->args[1]);
  Type all = type_union(x, y, DT_F32);
  r->found |= lane_has_key(r->f, &all) && !type_has_axis(&all, r->axis);
}

// Do tasks along that axis, of as many coordinates as a vector has, make the
// same product of matrices?
static bool repeats(const Tiler *t, uint32_t axis) {
  Repeats r = {.f = t->from, .axis = axis};
  int64_t n;
  Dim e = t->from->axes.at[axis].extent;
  if (!dim_is_const(&t->from->mod->dims, e, &n) || n < HW_BLOCK) return false;
  ir_walk(t->from->body, see_repeated, &r);
  return r.found;
}

static void put_in_grid(Tiler *t, uint32_t axis) {
  bool lane = (int)axis == t->plan.lane;
  GridDim d = {.axis = axis, .tile = lane ? t->plan.tile_q : 1};
  d.repeats = !lane && repeats(t, axis);
  vec_push(t->to->mod->arena, &t->to->grid, d);
}

static bool has_own_tasks(TileShare s) {
  return s == SHARE_BOUNDS || s == SHARE_PLAN;
}

// Axes, and those of the tasks, unless the phase has its own.
static void copy_axes(Tiler *t) {
  for (uint32_t i = 0; i < t->from->axes.n; i++) {
    const Axis *a = &t->from->axes.at[i];
    AxisRole role = t->plan.outer >> i & 1       ? AX_KEY
                    : t->plan.pieces_of >> i & 1 ? AX_STEP
                                                 : role_of(t, i);
    Dim n = t->share == SHARE_STATES ? tile_linear_extent(t, i) : a->extent;
    uint32_t id = ir_axis(t->to, a->name, role, n);
    assert(id == i);
    (void)id;
    if (role != AX_PAR || has_own_tasks(t->share)) continue;
    if (!is_serial(t, i)) put_in_grid(t, i);
  }
}

// Behind the others.
static void put_serial(Tiler *t) {
  for (uint32_t i = 0; i < t->from->axes.n; i++) {
    if (!is_serial(t, i)) continue;
    put_in_grid(t, i);
    t->to->grid.at[t->to->grid.n - 1].serial = true;
  }
}

static void copy_params(Tiler *t, ValueMap *map) {
  for (uint32_t i = 0; i < t->from->params.n; i++) {
    const FuncParam *p = &t->from->params.at[i];
    const ValueInfo *v = ir_info(t->from, p->v);
    vmap_put(map, p->v, ir_param(t->to, v->hint, p->role, v->type));
    t->to->params.at[i].nograd = p->nograd;
  }
  if (t->plan.split) tile_split_params(t);
  tile_bounds_params(t);
  tile_parts_params(t);
}

static const char *name_of(Module *m, const Func *f, TileShare share,
                           uint32_t which) {
  if (share == SHARE_COMBINE)
    return arena_printf(m->arena, "%s.combine", f->name);
  if (share == SHARE_ROWS)
    return arena_printf(m->arena, "%s.combine_rows", f->name);
  if (share == SHARE_STATES)
    return arena_printf(m->arena, "%s.states", f->name);
  if (share == SHARE_JOINS) return arena_printf(m->arena, "%s.joins", f->name);
  if (share == SHARE_PLAN) return arena_printf(m->arena, "%s.plan", f->name);
  if (share != SHARE_BOUNDS) return f->name;
  return which ? arena_printf(m->arena, "%s.bounds%u", f->name, which)
               : arena_printf(m->arena, "%s.bounds", f->name);
}

// The function of f that does `share`; which: of the passes tested.
static Func *tile_func(Ctx *cx, Func *f, const TilePlan *plan, TileShare share,
                       uint32_t which, const PassOpt *opt) {
  Module *m = f->mod;
  bool gpu = opt->target->kind == TARGET_GPU;
  Tiler t = {.cx = cx,
             .from = f,
             .target = opt->target,
             .plan = *plan,
             .share = share,
             .gpu = gpu,
             .near = opt->target->gpu.hopper,
             .careful = !opt->finite && !gpu,
             .trusts = gpu && !opt->few};
  t.two = plan->split && tile_split_in_two(f, plan, opt->target);
  t.alone = share == SHARE_ROWS;
  if (t.alone) t.share = SHARE_COMBINE;
  if (t.share == SHARE_COMBINE) tile_split_joiners(&t);
  if (share == SHARE_JOINS) t.plan.tile_q = COST_JOIN_COLUMNS;
  const char *name = name_of(m, f, share, which);
  t.to = ir_func(m, FK_PROGRAM, intern(&cx->names, name));
  m->funcs.n--;  // the caller puts it where it belongs
  t.to->span = f->span;
  copy_axes(&t);
  ValueMap map = {.arena = m->arena};
  copy_params(&t, &map);
  Builder b = {.fn = t.to, .region = t.to->body, .span = f->span};
  if (share == SHARE_BOUNDS) {
    tile_bounds_body(&t, &b, which, &map);
    return t.to;
  }
  if (share == SHARE_PLAN) {
    tile_plan_body(&t, &b, &map);
    return t.to;
  }
  make_coords(&t, &b);
  if (plan->split) tile_split_open(&t, &b);
  if (plan->joins) tile_cluster_open(&t, &b);
  tile_parts_open(&t, &b);
  put_serial(&t);
  if (share == SHARE_JOINS) {
    tile_linear_joins(&t, &b);
    return t.to;
  }
  if (!tile_region(&t, &b, f->body, &map)) return NULL;
  end_skip(&t, &b);
  if (plan->pieces_of) tile_tidy_chunks(f, t.to);
  if (t.gpu) tile_unclamp(cx, t.to);
  return t.to;
}

typedef Vec(Tiled) AllTiled;

// Prefills have tasks enough.
static bool splits(const PassOpt *opt) {
  return opt->target->gpu.hopper && (opt->few || opt->decode);
}

// The functions of f, in the order in which they run.
static bool tile_all(Ctx *cx, Module *m, Func *f, const PassOpt *opt,
                     AllTiled *out) {
  bool gpu = opt->target->kind == TARGET_GPU;
  uint64_t outer = tile_outer(f, opt->target);
  PassOpt rows = *opt;
  rows.few |= gpu && lane_few(f, lane_axis(f));
  rows.fewest &= !gpu || !lane_many(f, lane_axis(f));
  opt = &rows;
  TilePlan plan;
  if (!tile_plan_chunk(cx, f, opt->target, &plan)) plan = tile_plan(cx, f, opt);
  plan.outer = outer;
  plan.serial = gpu ? 0 : lane_added(f);
  bool chunks = lane_walks(f->body) || pieces_of_chunk(f);
  if (chunks && gpu && opt->target->gpu.hopper) plan.pieces_of = pieces_axes(f);
  if (gpu) tile_bounds_plan(cx, f, &plan);
  if (gpu) tile_parts_plan(cx, f, opt, &plan);
  bool few = splits(opt) ||
             (opt->target->gpu.hopper && tile_has_elements(f, lane_axis(f)));
  if (!gpu || few || tile_splits_outer(f, opt, &plan))
    tile_split_plan(cx, f, opt, &plan);
  if (gpu) tile_own_plan(cx, f, opt, &plan);
  TileShare share[MAX_TESTED + 6];
  uint32_t n = 0;
  while (n < plan.ntested) share[n++] = SHARE_BOUNDS;
  if (plan.walk) share[n++] = SHARE_STATES;
  if (plan.walk && plan.linear) share[n++] = SHARE_JOINS;
  if (plan.split && plan.by >= 0) share[n++] = SHARE_PLAN;
  share[n++] = plan.split ? SHARE_PART : SHARE_ALL;
  if (plan.split && tile_split_in_two(f, &plan, opt->target))
    share[n++] = SHARE_ROWS;
  if (plan.split) share[n++] = SHARE_COMBINE;
  for (uint32_t i = 0; i < n; i++) {
    Func *g = tile_func(cx, f, &plan, share[i], i, opt);
    if (!g) return false;
    vec_push(m->arena, out, ((Tiled){.from = f, .to = g}));
  }
  return true;
}

// The phases of a program are next to each other, and it is their last.
static void share_workspaces(Ctx *cx, const AllTiled *all) {
  for (uint32_t i = 0, n; i < all->n; i += n) {
    uint32_t last = i;
    for (uint32_t k = i; k < all->n; k++)
      if (ir_is_phase(all->at[i].from, all->at[k].from->name)) last = k;
    const char *name = all->at[last].from->name;
    for (n = 1; i + n < all->n && ir_is_phase(all->at[i + n].from, name);) n++;
    tile_work_share(&cx->scratch, &all->at[i], n);
  }
}

bool pass_tile(Ctx *cx, Module *m, const PassOpt *opt) {
  m->level = LV_TILE;
  m->target = opt->target->name;
  AllTiled out = {0};
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (f->axes.n > 63) {
      diag_add(cx, DIAG_pass_unsupported, f->span,
               "a program may have at most 63 axes");
      return false;
    }
    if (!tile_all(cx, m, f, opt, &out)) return false;
  }
  share_workspaces(cx, &out);
  m->funcs.n = 0;
  for (uint32_t i = 0; i < out.n; i++)
    vec_push(m->arena, &m->funcs, out.at[i].to);
  return true;
}
