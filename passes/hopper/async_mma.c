// async_mma: a product starts when its operands are there, and is waited for
// where it is needed.
//
//   %r = freduce(%x)                      wg_fence()
//   %p = mma(%q, %k)                      %w = wgmma(%q, %k)
//   %e = exp2(%r)                  ->     wg_commit()
//   %y = mul(%p, %e)                      %r = freduce(%x)
//                                         %e = exp2(%r)
//                                         %p = wg_wait(%w) {pending = 0}
//                                         %y = mul(%p, %e)
//
// For chunks of recurrences, whose products pipeline_loop leaves alone: they
// depend on each other, but not on all that stands between them. An accumulator
// that something behind uses too stays synchronous. Level frag; sm_90a,
// programs for which warp_specialize has rings. Needs: lower_gpu. Tests:
// test/passes/async_mma/.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "ir/target.h"
#include "passes/support/cost.h"
#include "passes/support/relief.h"
#include "passes/hopper/rings.h"
#include "passes/hopper/scaled.h"

static bool is_swizzled(const Type *t) {
  return t->kind == TK_SMEM && t->layout != LY_ROW;
}

static bool used_behind(const Op *op, Value v) {
  while ((op = op->next))
    if (ir_mentions(op, v)) return true;
  return false;
}

static bool suits(const Func *f, const Op *op) {
  const Type *a = ir_type(f, op->args[0]), *b = ir_type(f, op->args[1]);
  const Type *c = ir_type(f, op->res[0]);
  bool frag = a->kind == TK_FRAG && a->layout == LY_ACC;
  double zero;
  if (ir_attr_i(op, AT_DEALT, 0) ||
      dtype_size(a->dtype) != dtype_size(b->dtype))
    return false;
  return (frag || is_swizzled(a)) && is_swizzled(b) &&
         (dtype_size(a->dtype) == 2 || (dtype_size(a->dtype) == 1 && !frag)) &&
         c->ext[0] % 64 == 0 &&
         (op->nargs < 3 || ir_const_value(f, op->args[2], &zero) ||
          !used_behind(op, op->args[2]));
}

// Is v a product, or what a branch makes of one?
static bool is_summed(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  if (!op) return false;
  if (op->code == OP_MMA || op->code == OP_WG_WAIT) return true;
  for (uint32_t i = 0; op->code == OP_MUL && i < 2; i++)
    if (is_summed(f, op->args[i])) return true;
  for (uint32_t i = 0; op->code == OP_IF && i < op->nres; i++)
    if (op->res[i] == v) return is_summed(f, op->regions[0]->last->args[i]);
  return false;
}

// Reads what the step before has accumulated: while a product is in flight
// ptxas would wait for it first.
static bool reads_carried(const Func *f, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Region *r = ir_info(f, op->args[i])->region;
    const Op *loop = r ? r->parent : NULL;
    if (ir_def(f, op->args[i]) || !loop || loop->code != OP_FOR) continue;
    for (uint32_t k = 1; k < r->params.n; k++)
      if (r->params.at[k] == op->args[i] && is_summed(f, r->last->args[k - 1]))
        return true;
  }
  return false;
}

static int64_t registers(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return (int64_t)t->ext[0] * t->ext[1] / HW_GROUP_THREADS;
}

// Steps of a chunk are an axis of known length in gradients' kernels (pass
// `tile`), which have many products of operands that are there from the start.
static int64_t most_beside(const Func *f) {
  int64_t n;
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role == AX_STEP &&
        dim_is_const(&f->mod->dims, f->axes.at[i].extent, &n))
      return COST_FLIGHT_REGS;
  return INT64_MAX;
}

// Of a function whose products start early.
typedef struct Flight {
  Func *f;
  Arena *a;
  uint32_t has;  // registers that may live
} Flight;

// Squares of what is beyond them, of all ops.
static uint64_t over(const Flight *l) {
  ArenaMark mark = arena_mark(l->a);
  uint64_t n = ir_pressure_over(l->f, l->has, l->a);
  arena_reset(l->a, mark);
  return n;
}

// The product that op waits for; NULL: it is no wait.
static const Op *waited(const Func *f, const Op *op) {
  const Op *p = op->code == OP_WG_WAIT ? ir_def(f, op->args[0]) : NULL;
  return p && p->code == OP_WGMMA ? p : NULL;
}

// Registers of products in front of op that are waited for behind it.
static int64_t in_flight(const Func *f, const Op *op) {
  int64_t n = 0;
  for (const Op *o = op->next; o; o = o->next) {
    const Op *p = waited(f, o);
    for (const Op *q = op; p && q; q = q->prev)
      if (q == p) n += registers(f, p->res[0]);
  }
  return n;
}

// Registers of products that are in flight in front of o, of those behind it.
static int64_t before(const Func *f, const Op *o, int64_t behind) {
  const Op *p = waited(f, o);
  if (p) return behind + registers(f, p->res[0]);
  return o->code == OP_WGMMA ? behind - registers(f, o->res[0]) : behind;
}

// Where op may start: behind the last of its operands in this region, beside as
// many others as registers hold: of those that it passes or, where ptxas
// spills, all.
static Op *earliest(const Func *f, Op *op) {
  Op *at = op;
  bool all = relief_of(f) > RELIEF_FREE;
  int64_t own = registers(f, op->res[0]), most = most_beside(f);
  int64_t beside = own, flying = all ? in_flight(f, op) : 0;
  for (Op *o = op->prev; o; o = o->prev) {
    if (o->nregions || o->code == OP_WG_FENCE) break;
    bool mine =
        reads_carried(f, o) || (op->nargs > 2 && ir_mentions(o, op->args[2]));
    for (uint32_t i = 0; i < op->nargs; i++)
      mine |= ir_def(f, op->args[i]) == o;
    if (all) flying = before(f, o, flying);
    if (all) beside = own + flying;
    else if (o->code == OP_WGMMA) beside += registers(f, o->res[0]);
    if (mine || beside > most) break;
    at = o;
  }
  if (at->code == OP_WG_COMMIT) at = at->next;  // of the product in front
  return at;
}

// Not where far more lives in front of what it passes than a thread has.
static void hoist(const Flight *l, Op *op) {
  Op *at = earliest(l->f, op), *stood = op->next;
  if (at == op) return;
  uint64_t before = over(l);
  ir_move_before(op, at);
  if (over(l) > before) ir_move_before(op, stood);
}

// Of groups with columns of their own a product that adds to another one does
// not wait for it: scores that are sums of two are asked for at once.
static void follow(Func *f, Op *op) {
  Op *wait = op->nargs > 3 ? ir_def(f, op->args[2]) : NULL;
  const Op *first = wait ? waited(f, wait) : NULL;
  if (!first || first->nargs < 4 || wait->parent != op->parent ||
      ir_count_uses(f, wait->res[0]) != 1)
    return;
  op->args[2] = wait->args[0];
  ir_erase(wait);
}

static void start(Func *f, Op *op) {
  Builder b = {.fn = f, .region = op->parent, .before = op, .span = op->span};
  const Type t = *ir_type(f, op->res[0]);
  IrAttr none = attr_i(AT_PENDING, 0);
  ir_bare(&b, OP_WG_FENCE);
  Value v =
      ir_op(&b, OP_WGMMA, op->args, op->nargs, op->attrs, op->nattrs, &t, 1, 0)
          ->res[0];
  ir_bare(&b, OP_WG_COMMIT);
  Op *user = op->next;
  while (user && user->next && !ir_mentions(user, op->res[0]))
    user = user->next;
  b.before = user;
  Value done = ir_op(&b, OP_WG_WAIT, &v, 1, &none, 1, &t, 1, 0)->res[0];
  ir_replace_uses(f, op->res[0], done);
  ir_erase(op);
}

// What a product adds to is a sum times a factor that is mostly 1: warps whose
// rows all have that do not multiply. Of groups with columns of their own, and
// where warps widen what they read: instructions are what is short of there.
static void scale_late(Func *f, Op *op) {
  Op *mul = op->nargs > 2 ? ir_def(f, op->args[2]) : NULL;
  if (!mul || mul->code != OP_MUL || mul->parent != op->parent ||
      ir_count_uses(f, mul->res[0]) != 1)
    return;
  for (uint32_t i = 0; i < 2; i++) {
    Value some = hop_unless_one(f, mul->args[i]);
    if (!some) continue;
    Builder b = {.fn = f, .region = op->parent, .before = op, .span = op->span};
    op->args[2] = hop_scaled(&b, mul->args[!i], mul->args[i], some);
    ir_erase(mul);
    return;
  }
}

static void region(const Flight *l, Region *r) {
  Func *f = l->f;
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(l, op->regions[i]);
    if (op->code != OP_MMA || !suits(f, op)) continue;
    if (op->nargs > 3) scale_late(f, op);
    hoist(l, op);
    follow(f, op);
    start(f, op);
  }
}

static void scale_widened(void *data, Op *op) {
  Func *f = data;
  if (op->code != OP_MMA || !ir_attr_i(op, AT_DEALT, 0)) return;
  const Type *a = ir_type(f, op->args[0]), *b = ir_type(f, op->args[1]);
  if (dtype_size(b->dtype) < dtype_size(a->dtype)) scale_late(f, op);
}

static bool has_chunks(const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_FOR && loop_chunk(op)) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (has_chunks(op->regions[i])) return true;
  }
  return false;
}

// All threads are one group that joins states, without a producer. Chunks that
// load their tiles themselves (f32), and their phases, keep `mma.sync`: they
// have no registers for more.
static bool is_group(const Func *f, const Target *t) {
  const Op *launch = ir_launch(f);
  return launch && t->gpu.hopper &&
         ir_attr_i(launch, AT_THREADS, 0) == HW_GROUP_THREADS &&
         hop_rings_carried(f, f->body) && !has_chunks(f->body);
}

// Groups with columns of their own (passes/gpu/boxes.c): loops over keys whose
// steps do not overlap.
static bool has_columns(const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_MMA && op->nargs > 3) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (has_columns(op->regions[i])) return true;
  }
  return false;
}

static void start_all(Ctx *cx, Func *f, const Target *t) {
  uint32_t has = pressure_limit(f, t) + COST_PTXAS_FAR;
  region(&(Flight){.f = f, .a = &cx->scratch, .has = has}, f->body);
}

bool pass_async_mma(Ctx *cx, Module *m, const PassOpt *opt) {
  const Target *t = opt->target;
  Rings rings;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if ((ir_has_steps(f) || has_columns(f->body)) &&
        (is_group(f, t) || hop_rings_plan(&rings, f, t)))
      start_all(cx, f, t);
    ir_walk(f->body, scale_widened, f);
  }
  return true;
}
