// fetch: tiles that a loop loads into registers and puts into shared memory are
// loaded a step ahead: the loads of the next step arrive while this one computes.
//
//   for(%lo, %hi, %s, ..) ({              %x0 = gload(%K, .. %lo ..)
//     ^(%i, ..):                          for(%lo, %hi, %s, .., %x0) ({
//     ..                           ->       ^(%i, .., %x):
//     %x = gload(%K, .. %i ..)              %k = sput(%x)
//     %k = sput(%x)                         ..
//     %s = mma(%q, %k)                      %s = mma(%q, %k)
//     ..                                    %n = add(%i, %s)
//     yield(..)                             %y = gload(%K, .. %n ..)
//   })                                      ..
//                                           yield(.., %y)
//                                         })
//
// Indices may depend on the loop's coordinate alone. What is loaded behind the
// last step is not used; rows outside the tensor read as 0. Loads stand behind
// the first product, and so behind the barrier in front of it: hoisted above the
// puts they would need registers of their own. For targets whose
// copies to shared memory go through registers (AMD). Needs: place; runs before
// legal. Tests: test/passes/fetch.
#include "ir/target.h"
#include "passes/pass.h"

typedef struct Fetch {
  Func *f;
  Arena *a;
  Op *loop;
  Vec(Op *) loads, puts;   // loads of the body and the puts of what they load
} Fetch;

// ---------------------------------------------------------------- candidates
// Is v made of the loop's coordinate and of what is outside?
static bool follows(const Fetch *x, Value v) {
  const Region *body = x->loop->regions[0];
  const Op *op = ir_def(x->f, v);
  if (v == body->params.at[0] || ir_defined_outside(x->f, v, body)) return true;
  bool pure = op && op->parent == body &&
              (op_info(op->code)->flags & OPF_ELEM || op->code == OP_CONST ||
               op->code == OP_SPLAT || op->code == OP_COORD ||
               op->code == OP_BCAST);
  for (uint32_t i = 0; pure && i < op->nargs; i++) pure = follows(x, op->args[i]);
  return pure;
}

static bool is_read_only(const Func *f, Value tensor) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == tensor) return f->params.at[i].role == PR_IN;
  return false;
}

static bool listed(const Fetch *x, const Op *load) {
  for (uint32_t i = 0; i < x->loads.n; i++)
    if (x->loads.at[i] == load) return true;
  return false;
}

static void find(Fetch *x) {
  for (Op *op = x->loop->regions[0]->first; op; op = op->next) {
    if (op->code != OP_SPUT) continue;
    Op *load = ir_def(x->f, op->args[0]);
    bool ok = load && load->code == OP_GLOAD && !listed(x, load) &&
              load->parent == op->parent && is_read_only(x->f, load->args[0]) &&
              ir_count_uses(x->f, load->res[0]) == 1;
    for (uint32_t i = 1; ok && i < load->nargs; i++)
      ok = follows(x, load->args[i]);
    if (!ok) continue;
    vec_push(x->a, &x->loads, load);
    vec_push(x->a, &x->puts, op);
  }
}

// ---------------------------------------------------------------- the new loop
// v as it is for the coordinate that `m` has.
static Value copy_of(Fetch *x, Builder *b, Value v, ValueMap *m) {
  const Region *body = x->loop->regions[0];
  Value known = vmap_get(m, v);
  if (known != v || ir_defined_outside(x->f, v, body)) return known;
  const Op *op = ir_def(x->f, v);
  for (uint32_t i = 0; i < op->nargs; i++) copy_of(x, b, op->args[i], m);
  return ir_clone(b, x->f, op, m, NULL)->res[0];
}

// The tiles of coordinate `at`.
static void load_all(Fetch *x, Builder *b, Value at, Value *out) {
  ValueMap m = {.arena = x->a};
  vmap_put(&m, x->loop->regions[0]->params.at[0], at);
  for (uint32_t i = 0; i < x->loads.n; i++)
    out[i] = copy_of(x, b, x->loads.at[i]->res[0], &m);
}

// lo, or of a loop that runs backwards the last of lo, lo + s, .. below hi.
static Value first_of(const Fetch *x, Builder *b) {
  Value lo = x->loop->args[0], hi = x->loop->args[1], step = x->loop->args[2];
  if (!ir_attr_i(x->loop, AT_REVERSE, 0)) return lo;
  Value one = ir_const_i(b, ir_type(x->f, lo)->dtype, 1);
  Value steps = ir_2(b, OP_FLOORDIV,
                     ir_2(b, OP_SUB, ir_2(b, OP_SUB, hi, lo), one), step);
  return ir_2(b, OP_ADD, lo, ir_2(b, OP_MUL, steps, step));
}

static Op *new_loop(Fetch *x, Builder *b) {
  Op *loop = x->loop;
  uint32_t n = x->loads.n;
  Value *args = NEWN(x->a, Value, loop->nargs + n);
  Type *types = NEWN(x->a, Type, loop->nres + n);
  memcpy(args, loop->args, loop->nargs * sizeof *args);
  load_all(x, b, first_of(x, b), args + loop->nargs);
  for (uint32_t i = 0; i < loop->nres; i++)
    types[i] = *ir_type(x->f, loop->res[i]);
  for (uint32_t i = 0; i < n; i++)
    types[loop->nres + i] = *ir_type(x->f, x->loads.at[i]->res[0]);
  return ir_op(b, OP_FOR, args, loop->nargs + n, loop->attrs, loop->nattrs,
               types, loop->nres + n, 1);
}

// Parameters of the old body are those of the new one.
static void map_params(Fetch *x, Region *to, ValueMap *m) {
  Region *from = x->loop->regions[0];
  for (uint32_t i = 0; i < from->params.n; i++) {
    const ValueInfo v = *ir_info(x->f, from->params.at[i]);
    vmap_put(m, from->params.at[i], ir_region_param(to, v.type, v.hint));
  }
  for (uint32_t i = 0; i < x->loads.n; i++) {
    Value v = x->loads.at[i]->res[0];
    vmap_put(m, v, ir_region_param(to, *ir_type(x->f, v), "ahead"));
  }
}

static bool moved(const Fetch *x, const Op *op) {
  for (uint32_t i = 0; i < x->puts.n; i++)
    if (x->puts.at[i] == op) return true;
  return listed(x, op);
}

static bool uses_put(const Fetch *x, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++)
    for (uint32_t k = 0; k < x->puts.n; k++)
      if (x->puts.at[k]->res[0] == op->args[i]) return true;
  return false;
}

static Value next_of(const Fetch *x, Builder *b, const Region *to) {
  bool back = ir_attr_i(x->loop, AT_REVERSE, 0) != 0;
  return ir_2(b, back ? OP_SUB : OP_ADD, to->params.at[0], x->loop->args[2]);
}

static void fill_body(Fetch *x, Region *to) {
  Region *from = x->loop->regions[0];
  Builder b = {.fn = x->f, .region = to, .span = x->loop->span};
  ValueMap m = {.arena = x->a};
  map_params(x, to, &m);
  for (uint32_t i = 0; i < x->puts.n; i++)
    ir_clone(&b, x->f, x->puts.at[i], &m, NULL);
  const Op *y = from->last;
  Value *out = NEWN(x->a, Value, y->nargs + x->loads.n);
  bool done = false;
  for (const Op *op = from->first; op != y; op = op->next) {
    if (!moved(x, op)) ir_clone(&b, x->f, op, &m, NULL);
    if (done || !uses_put(x, op)) continue;
    load_all(x, &b, next_of(x, &b, to), out + y->nargs);
    done = true;
  }
  if (!done) load_all(x, &b, next_of(x, &b, to), out + y->nargs);
  for (uint32_t i = 0; i < y->nargs; i++) out[i] = vmap_get(&m, y->args[i]);
  ir_yield(&b, out, y->nargs + x->loads.n);
}

static void rewrite(Fetch *x) {
  Op *loop = x->loop;
  Builder b = {.fn = x->f, .region = loop->parent, .before = loop,
               .span = loop->span};
  Op *made = new_loop(x, &b);
  fill_body(x, made->regions[0]);
  for (uint32_t i = 0; i < loop->nres; i++) {
    ir_info(x->f, made->res[i])->hint = ir_info(x->f, loop->res[i])->hint;
    ir_replace_uses(x->f, loop->res[i], made->res[i]);
  }
  ir_erase(loop);
}

static void region(Func *f, Region *r, Arena *a) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(f, op->regions[i], a);
    if (op->code != OP_FOR) continue;
    Fetch x = {.f = f, .a = a, .loop = op};
    find(&x);
    if (x.loads.n) rewrite(&x);
  }
}

bool pass_fetch(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  (void)opt;
  const Target *t = m->target ? target_by_name(m->target) : NULL;
  if (!t || t->kind != TARGET_GPU || t->gpu.vendor != VENDOR_AMD) return true;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    region(m->funcs.at[i], m->funcs.at[i]->body, m->arena);
  return true;
}
