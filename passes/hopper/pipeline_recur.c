// pipeline_recur: products of a loop that do not wait for what it carries are
// made a step ahead.
//
//   for(%lo, %hi, %s, %m) ({              %v0 = sfill(%V, %lo)  %t0 = ..
//     ^(%i, %state):                      %e0 = mma(%v0, %t0)
//     %v = sfill(%V, %i)  %t = ..         for(%lo, %hi, %s, %m, %e0) ({
//     %e = mma(%v, %t)               ->     ^(%i, %state, %early):
//     %x = mma(%state, %w, %e)              %x = mma(%state, %w, %early)
//     ..                                    %n = add(%i, %s)
//     yield(..)                             %v = sfill(%V, %n)  %t = ..
//   })                                      %e = mma(%v, %t)
//                                           ..
//                                           yield(.., %e)
//                                         })
//
// Chunks of a recurrence wait for the state before them. What a chunk does
// until it needs the state stands in that chain; a step ahead it runs while
// values are computed of this step's products. Tiles that other products read
// too stay: they would be copied twice, and so does everything where a thread's
// registers would not do. Tiles behind the last step are not used; outside of
// the tensor they are 0. The product may stand in a branch of the loop's body;
// the other branch hands on what it was given. Level frag; sm_90a, programs for
// which warp_specialize has rings. Needs: lower_gpu; runs before prefetch.
// Tests: test/passes/pipeline_recur.
#include "passes/support/cost.h"
#include "passes/hopper/rings.h"

enum { MAX_EARLY = 4 };

typedef struct Advance {
  Func *f;
  Arena *a;
  Op *loop;
  Region *in;            // where the products are: the body, or a branch in it
  Value out[MAX_EARLY];  // what is made ahead
  uint32_t n;
} Advance;

// ---------------------------------------------------------------- candidates
// Is v made of the loop's coordinate, of memory, and of what is outside?
static bool is_early(const Advance *x, Value v) {
  const Region *body = x->loop->regions[0];
  const Op *op = ir_def(x->f, v);
  if (v == body->params.at[0] || ir_defined_outside(x->f, v, body)) return true;
  if (!op || (op->parent != body && op->parent != x->in)) return false;
  bool ok = op_info(op->code)->flags & OPF_ELEM || op->code == OP_CONST ||
            op->code == OP_DIM || op->code == OP_SFILL || op->code == OP_MMA;
  for (uint32_t i = 0; ok && i < op->nargs; i++) ok = is_early(x, op->args[i]);
  return ok;
}

static bool is_early_product(const Advance *x, const Op *op) {
  return op->code == OP_MMA && is_early(x, op->res[0]);
}

// Does nothing but early products read the tile?
static bool is_alone(const Advance *x, const Region *r, Value tile) {
  for (const Op *op = r->first; op; op = op->next) {
    if (!is_early_product(x, op))
      for (uint32_t i = 0; i < op->nargs; i++)
        if (op->args[i] == tile) return false;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (!is_alone(x, op->regions[i], tile)) return false;
  }
  return true;
}

// A sum of products of tiles that nothing else reads.
static bool owns_tiles(const Advance *x, const Op *product) {
  if (!product || product->code != OP_MMA) return false;
  for (uint32_t i = 0; i < 2; i++) {
    const Op *fill = ir_def(x->f, product->args[i]);
    if (!fill || fill->code != OP_SFILL || fill->nargs == 0 ||
        !is_alone(x, x->loop->regions[0], fill->res[0]))
      return false;
  }
  return product->nargs < 3 || owns_tiles(x, ir_def(x->f, product->args[2]));
}

static void find(Advance *x) {
  for (Op *op = x->in->first; op; op = op->next) {
    if (op->code != OP_MMA || op->nargs < 3 || x->n == MAX_EARLY ||
        is_early_product(x, op))
      continue;
    Value v = op->args[2];
    const Type *t = ir_type(x->f, v);
    const Op *made = ir_def(x->f, v);
    if (made && made->parent == x->in && is_early(x, v) &&
        owns_tiles(x, made) && ir_count_uses(x->f, v) == 1 &&
        t->ext[0] * t->ext[1] <= COST_AHEAD_TILE_REGS * HW_GROUP_THREADS)
      x->out[x->n++] = v;
  }
}

static int64_t registers(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  int64_t n = t->kind == TK_FRAG && t->slice == SLICE_NONE
                  ? (int64_t)t->ext[0] * t->ext[1]
                  : 0;
  return n * dtype_size(t->dtype) / (4 * HW_GROUP_THREADS);
}

// Of factors along the columns a thread has every fourth.
static int64_t factors(const Func *f, const Region *r) {
  int64_t n = 0;
  for (const Op *op = r->first; op; op = op->next) {
    const Type *t = op->code == OP_GLOAD ? ir_type(f, op->res[0]) : NULL;
    if (t && t->kind == TK_FRAG && t->slice == SLICE_COL)
      n += t->ext[0] * dtype_size(t->dtype) / 16;
  }
  return n;
}

// Registers of a thread for what the loop carries, the sums of products of a
// step, their operands that are computed, factors, and what is made ahead.
static bool has_room(const Advance *x) {
  const Region *body = x->loop->regions[0];
  int64_t n = 0;
  for (uint32_t i = 1; i < body->params.n; i++)
    n += registers(x->f, body->params.at[i]);
  for (const Op *op = x->in->first; op; op = op->next) {
    if (op->code != OP_MMA || is_early_product(x, op)) continue;
    const Op *made = ir_def(x->f, op->args[0]);
    const Op *sum = op->nargs > 2 ? ir_def(x->f, op->args[2]) : NULL;
    bool again = false;
    for (const Op *o = x->in->first; o != op; o = o->next)
      again |= o->code == OP_MMA && o->args[0] == op->args[0];
    if (made && made->code == OP_CAST && !again && ir_def(x->f, made->args[0]))
      n += registers(x->f, op->args[0]);
    if (op->nargs < 3 || (sum && is_early_product(x, sum)))
      n += registers(x->f, op->res[0]);
  }
  for (uint32_t i = 0; i < x->n; i++) n += registers(x->f, x->out[i]);
  return n + factors(x->f, body) <= COST_AHEAD_ROOM;
}

// Behind the first products that wait for what the loop carries.
static Op *place_of(const Advance *x) {
  Op *op = x->in->first;
  while (op->code != OP_MMA || is_early_product(x, op)) op = op->next;
  while (op->code == OP_MMA) op = op->next;
  return op;
}

// ---------------------------------------------------------------- the new loop
// v as it is for the coordinate that `m` has.
static Value copy_of(Advance *x, Builder *b, Value v, ValueMap *m) {
  Value known = vmap_get(m, v);
  if (known != v || ir_defined_outside(x->f, v, x->loop->regions[0]))
    return known;
  const Op *op = ir_def(x->f, v);
  for (uint32_t i = 0; i < op->nargs; i++) copy_of(x, b, op->args[i], m);
  return ir_clone(b, x->f, op, m, NULL)->res[0];
}

static void copy_all(Advance *x, Builder *b, Value at, Value *made) {
  ValueMap m = {.arena = x->a};
  vmap_put(&m, x->loop->regions[0]->params.at[0], at);
  for (uint32_t i = 0; i < x->n; i++) made[i] = copy_of(x, b, x->out[i], &m);
}

// A region's last op with n more values.
static void yield_more(Advance *x, Region *r, const Value *more) {
  Op *old = r->last;
  Value *v = NEWN(x->a, Value, old->nargs + x->n);
  for (uint32_t i = 0; i < old->nargs; i++) v[i] = old->args[i];
  for (uint32_t i = 0; i < x->n; i++) v[old->nargs + i] = more[i];
  Builder b = {.fn = x->f, .region = r, .span = old->span};
  ir_yield(&b, v, old->nargs + x->n);
  ir_erase(old);
}

// op with n more operands and results; it has op's regions.
static Op *widened(Advance *x, Op *op, const Value *more) {
  uint32_t nargs = op->nargs + (more ? x->n : 0);
  Value *args = NEWN(x->a, Value, nargs + 1);
  Type *types = NEWN(x->a, Type, op->nres + x->n);
  for (uint32_t i = 0; i < nargs; i++)
    args[i] = i < op->nargs ? op->args[i] : more[i - op->nargs];
  for (uint32_t i = 0; i < op->nres; i++) types[i] = *ir_type(x->f, op->res[i]);
  for (uint32_t i = 0; i < x->n; i++)
    types[op->nres + i] = *ir_type(x->f, x->out[i]);
  Builder b = {.fn = x->f,
               .region = op->parent,
               .before = op,
               .span = op->span};
  Op *made = ir_op(&b, op->code, args, nargs, op->attrs, op->nattrs, types,
                   op->nres + x->n, op->nregions);
  for (uint32_t i = 0; i < op->nregions; i++) {
    made->regions[i] = op->regions[i];
    made->regions[i]->parent = made;
  }
  for (uint32_t i = 0; i < op->nres; i++) {
    ir_info(x->f, made->res[i])->hint = ir_info(x->f, op->res[i])->hint;
    ir_replace_uses(x->f, op->res[i], made->res[i]);
  }
  ir_erase(op);
  return made;
}

static void rewrite(Advance *x) {
  Value first[MAX_EARLY], param[MAX_EARLY], next[MAX_EARLY];
  Region *body = x->loop->regions[0];
  Builder b = {.fn = x->f,
               .region = x->loop->parent,
               .before = x->loop,
               .span = x->loop->span};
  copy_all(x, &b, x->loop->args[0], first);
  b = (Builder){.fn = x->f,
                .region = x->in,
                .before = place_of(x),
                .span = x->loop->span};
  Value at = ir_2(&b, OP_ADD, body->params.at[0], x->loop->args[2]);
  copy_all(x, &b, at, next);
  for (uint32_t i = 0; i < x->n; i++) {
    param[i] = ir_region_param(body, *ir_type(x->f, x->out[i]), "early");
    ir_replace_uses(x->f, x->out[i], param[i]);
  }
  Op *branch = x->in == body ? NULL : x->in->parent;
  for (uint32_t i = 0; branch && i < branch->nregions; i++)
    yield_more(x, branch->regions[i],
               branch->regions[i] == x->in ? next : param);
  if (branch) {
    branch = widened(x, branch, NULL);
    for (uint32_t i = 0; i < x->n; i++)
      next[i] = branch->res[branch->nres - x->n + i];
  }
  yield_more(x, body, next);
  widened(x, x->loop, first);
}

static bool has_product(const Region *r) {
  for (const Op *op = r->first; op; op = op->next)
    if (op->code == OP_MMA) return true;
  return false;
}

// The body, or the branch in it that has the products.
static Region *products_of(const Op *loop) {
  Region *body = loop->regions[0], *in = has_product(body) ? body : NULL;
  for (Op *op = body->first; op && !in; op = op->next)
    for (uint32_t i = 0; op->code == OP_IF && i < op->nregions && !in; i++)
      if (has_product(op->regions[i])) in = op->regions[i];
  return in;
}

static void region(Func *f, Region *r, Arena *a) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(f, op->regions[i], a);
    if (op->code != OP_FOR || !op->nres || !loop_has_fill(op) ||
        ir_attr_i(op, AT_REVERSE, 0))
      continue;
    Advance x = {.f = f, .a = a, .loop = op, .in = products_of(op)};
    if (x.in) find(&x);
    if (x.n && has_room(&x)) rewrite(&x);
  }
}

bool pass_pipeline_recur(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  const Target *t = opt->target;
  Rings rings;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (ir_has_steps(f) && hop_rings_plan(&rings, f, t))
      region(f, f->body, m->arena);
  }
  return true;
}
