// Splitting the keys of a pass among the CTAs of a cluster (part of `tile`).
//
//   before  func @p(..) grid(b:1, q:64) { %m, %l, %o = for k0 .. ; store(%O, ..) }
//   after   func @p(..) grid(b:1, q:64, peer:1) {
//             %m, %l, %o = for k0 of this part ..
//             %m0, .., %m7, %l0, .., %l7, %o0, .., %o7
//                 = peers(%m, %l, %o) {cluster = 8}
//             %m' = max(%m0, ..)
//             %o' = %o0 * (from %m0 to %m') + ..
//             store(%O, ..)                 of the columns of %o'
//           }
//
// Few rows have few tasks. Their parts of the keys have CTAs beside each other,
// which run together and send each other what is to be joined, as it is: of
// sums of columns a CTA has those of its number, brings them into the frame of
// all, joins, divides and stores them. There is no workspace, and no second
// kernel; parts are joined in their order, so that results are the same each
// time. What stands behind the pass is made of those columns: elementwise ops
// and loads alone.
#include "passes/support/clusters.h"
#include "passes/support/cost.h"
#include "passes/tile/tile.h"

#include "ir/target.h"

// ---------------------------------------------------------------- plan
// The vectors' axis that accumulators have, -1: none, or several.
static int vector_axis(const Func *f, const Op *pass) {
  int axis = -1;
  for (uint32_t i = 0; i < pass->nres; i++) {
    const Type *s = ir_type(f, pass->res[i]);
    for (uint32_t k = 0; k < s->n; k++) {
      if (f->axes.at[s->axis[k]].role != AX_VEC) continue;
      if (axis >= 0 && axis != (int)s->axis[k]) return -1;
      axis = (int)s->axis[k];
    }
  }
  return axis;
}

typedef struct Behind {
  const Func *f;
  const Op *pass;
  uint32_t axis;
  bool ok;
} Behind;

static bool is_plain(const Op *op) {
  return op_info(op->code)->flags & OPF_ELEM || op->code == OP_CONST ||
         op->code == OP_LOAD || op->code == OP_INDEX;
}

// Can some of the columns of v be made as well as all?
static void see_value(Behind *x, Value v) {
  const Op *op = ir_def(x->f, v);
  if (!type_has_axis(ir_type(x->f, v), x->axis) || op == x->pass) return;
  x->ok &= op && is_plain(op);
  for (uint32_t i = 0; op && x->ok && i < op->nargs; i++)
    if (ir_type(x->f, op->args[i])->kind == TK_ELEM) see_value(x, op->args[i]);
}

static bool has_columns(const Behind *x, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Type *t = ir_type(x->f, op->args[i]);
    if (t->kind == TK_ELEM && type_has_axis(t, x->axis)) return true;
  }
  return false;
}

static bool takes_columns(const Func *f, const Op *pass, uint32_t axis) {
  Behind x = {f, pass, axis, true};
  for (const Op *op = pass->next; op && x.ok; op = op->next) {
    if (!has_columns(&x, op)) continue;
    x.ok &= op->code == OP_STORE || is_plain(op);
    for (uint32_t i = 0; x.ok && i < op->nargs; i++)
      if (ir_type(f, op->args[i])->kind == TK_ELEM) see_value(&x, op->args[i]);
  }
  return x.ok;
}

// Registers are words of 32 bits, of rows. What all rows have in common, as a
// number of keys, is no row's.
static bool has_words(const Func *f, const Op *pass, uint32_t lane) {
  for (uint32_t i = 0; i < pass->nres; i++) {
    const Type *s = ir_type(f, pass->res[i]);
    bool words = s->dtype == DT_BOOL || dtype_size(s->dtype) == 4;
    if (!words || !type_has_axis(s, lane)) return false;
  }
  return true;
}

void tile_cluster_plan(Ctx *cx, const Func *f, const PassOpt *opt,
                       const Op *pass, TilePlan *p) {
  int axis = vector_axis(f, pass);
  int64_t n;
  if (opt->cluster < 2 || !opt->few || !opt->target->gpu.hopper || p->own ||
      p->part >= 0 || p->serial || p->outer || p->lane < 0 ||
      p->tile_q != HW_GROUP_ROWS || pass->parent != f->body || axis < 0 ||
      !dim_is_const(&f->mod->dims, f->axes.at[axis].extent, &n) ||
      n % (HW_BLOCK * opt->cluster) || !has_words(f, pass, (uint32_t)p->lane) ||
      tile_most_seen(f, pass, p) || !takes_columns(f, pass, (uint32_t)axis))
    return;
  p->joins = pass;
  p->cluster = opt->cluster;
  p->cut = (uint32_t)axis;
  ctx_remark(cx, "%s: keys are split among the %lld CTAs of a cluster", f->name,
             (long long)p->cluster);
}

// ---------------------------------------------------------------- cost
// What n leaves of `most`, of which it may have all: then it is positive.
static Dim left(DimTab *d, int64_t most, Dim n) {
  return dim_sub(d, dim_const(d, most + 1), n);
}

// A cluster has as many parts as CTAs, where tasks in parts are as many as fill
// the machine: of few tasks each reads more. What joins parts, where there are
// several, costs as much as some keys do.
Dim tile_cluster_gain(DimTab *d, const TilePlan *parts, int64_t cluster,
                      Dim tasks, Dim keys) {
  const ClusterKind *kind = clusters_of(cluster);
  int64_t full = kind->full, worth = cluster * full * COST_CLUSTER_WORTH;
  Dim ctas = dim_bin(d, DIM_MUL, tasks, dim_const(d, cluster));
  int64_t places = kind->places;
  Dim several = dim_sub(d, parts->parts, dim_const(d, 1));
  // Long sums leave room for one CTA.
  Dim gain = left(d, places < parts->places ? places : parts->places, ctas);
  gain = dim_bin(d, DIM_MIN, gain, several);
  Dim few = dim_const(d, COST_SPLIT_EVEN_KEYS);
  gain = dim_bin(d, DIM_MIN, gain, dim_sub(d, keys, few));
  gain = dim_bin(d, DIM_MIN, gain, left(d, cluster * kind->keys, keys));
  // Keys of a part beside those that it would have if all memory were asked.
  Dim idle = dim_sub(d, dim_const(d, full), ctas);
  idle = dim_bin(d, DIM_MAX, idle, dim_const(d, 0));
  Dim more = dim_bin(d, DIM_MUL, keys, idle);
  return dim_bin(d, DIM_MIN, gain, left(d, worth - 1, more));
}

// ---------------------------------------------------------------- tasks
void tile_cluster_open(Tiler *t, Builder *b) {
  Dim n = dim_const(&t->to->mod->dims, t->plan.cluster);
  uint32_t a = ir_axis(t->to, "peer", AX_PAR, n);
  vec_push(t->to->mod->arena, &t->to->grid, ((GridDim){.axis = a, .tile = 1}));
  t->part = ir_origin(b, a);
}

// ---------------------------------------------------------------- joining
static int64_t columns(const Tiler *t) {
  int64_t n = 0;
  dim_is_const(&t->from->mod->dims, t->from->axes.at[t->plan.cut].extent, &n);
  return n / t->plan.cluster;
}

static void make_slice(Tiler *t) {
  const char *name = t->from->axes.at[t->plan.cut].name;
  Dim n = dim_const(&t->to->mod->dims, columns(t));
  name = arena_printf(t->to->mod->arena, "%s.mine", name);
  t->slice = ir_axis(t->to, name, AX_VEC, n);
}

static Type slice_type(const Tiler *t, const Type *s) {
  Type r = type_scalar(s->dtype);
  for (uint32_t i = 0; i < s->n; i++) {
    bool cut = s->axis[i] == t->plan.cut;
    Dim n = cut ? t->to->axes.at[t->slice].extent : s->size[i];
    r = type_with(r, cut ? t->slice : s->axis[i], n);
  }
  return r;
}

Value *tile_cluster_parts(Tiler *t, Builder *b, const Value *acc, uint32_t n) {
  uint32_t peers = (uint32_t)t->plan.cluster;
  Type *types = NEWN(t->to->mod->arena, Type, n * peers + 1);
  make_slice(t);
  for (uint32_t i = 0; i < n * peers; i++)
    types[i] = slice_type(t, ir_type(t->to, acc[i / peers]));
  IrAttr at[] = {attr_i(AT_CLUSTER, t->plan.cluster),
                 attr_i(AT_DIM, t->plan.gain)};
  return ir_op(b, OP_PEERS, acc, n, at, t->plan.gain ? 2 : 1, types, n * peers,
               0)
      ->res;
}

void tile_cluster_slice(Tiler *t, Builder *b, ValueMap *m) {
  uint32_t cut = t->plan.cut;
  Value each = ir_const_i(b, DT_I64, columns(t));
  Value iota = ir_iota(b, t->slice, t->to->axes.at[t->slice].extent);
  t->coord[cut] = ir_2(b, OP_ADD, ir_2(b, OP_MUL, t->part, each), iota);
  t->first = ir_2(b, OP_EQ, t->part, ir_const_i(b, DT_I64, 0));
  t->sliced = true;
  // What has all columns is made again where some are needed.
  for (uint32_t v = 0; v < m->n; v++) {
    const Type *s = m->to[v] ? ir_type(t->from, v) : NULL;
    if (s && s->kind == TK_ELEM && type_has_axis(s, cut)) m->to[v] = 0;
  }
}
