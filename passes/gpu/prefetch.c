// prefetch: tiles that a loop loads into registers and puts into shared memory
// are loaded a step ahead: the loads of the next step arrive while this one
// computes.
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
// Indices may depend on the loop's coordinate alone, and on entries of tables
// for it, as of pages. What is loaded behind the last step is not used; tiles
// of 8-bit floats are cast as they are put, a step later; rows outside the
// tensor read as 0. Loads stand behind the first product, and so behind the
// barrier in front of it: hoisted above the puts they would need registers of
// their own. For targets whose copies to shared memory go through registers
// (AMD).
//
// In recurrences on sm_90a the same is done to what varies with the steps of a
// chunk alone, factors and gates: the next chunk's are asked for as this one
// begins, a row each, which takes two registers, and handed round when they are
// there (relayout). Numbers and slices that a phase before has found count too.
// Chunks without a state ask behind their first product; where few registers
// are to be kept by several groups, whose CTA is alone, in front of their last:
// what waits through the chunk is spilled else, and waited for as it arrives.
// Where few registers are to be kept what only chunks that are not whole need
// is left to pass remat; at its last level nothing is loaded ahead. Level frag.
// Needs: lower_gpu. Tests: test/passes/prefetch.
#include "ir/layout.h"
#include "passes/support/cost.h"
#include "passes/gpu/prefetch.h"

#include "passes/support/relief.h"
#include "passes/support/loops.h"

typedef struct Fetch {
  Func *f;
  Arena *a;
  Op *loop;
  Vec(Op *) loads, puts;  // loads of the body and the puts of what they load
  Vec(Op *) casts;        // of loads, in between (cast, foperand)
  uint32_t tiles;         // so many of the loads, before the slices
  bool lean;              // as little as can be waits in registers
  bool late;              // the next chunk's is asked for as this one ends
} Fetch;

// ---------------------------------------------------------------- candidates
// Is v made of the loop's coordinate and of what is there before it? Entries of
// a table may be read for that.
static bool follows(const Func *f, const Op *loop, Value v, bool entries) {
  const Region *body = loop->regions[0];
  const Op *op = ir_def(f, v);
  if (v == body->params.at[0] || ir_defined_outside(f, v, body)) return true;
  bool pure =
      op && op->parent == body &&
      (op_info(op->code)->flags & OPF_ELEM || op->code == OP_CONST ||
       op->code == OP_SPLAT || op->code == OP_COORD || op->code == OP_BCAST);
  if (entries && op && op->parent == body)
    pure |= op->code == OP_UNIFORM ||
            (op->code == OP_GLOAD && ir_type(f, v)->kind == TK_ELEM &&
             ir_is_input(f, op->args[0]));
  for (uint32_t i = 0; pure && i < op->nargs; i++)
    pure = follows(f, loop, op->args[i], entries);
  return pure;
}

bool prefetch_follows(const Func *f, const Op *loop, Value v) {
  return follows(f, loop, v, false);
}

bool prefetch_is_tile(const Func *f, const Op *loop, const Op *load) {
  bool ok = load && load->code == OP_GLOAD &&
            load->parent == loop->regions[0] && ir_is_input(f, load->args[0]) &&
            ir_count_uses(f, load->res[0]) == 1;
  for (uint32_t i = 1; ok && i < load->nargs; i++)
    ok = follows(f, loop, load->args[i], true);
  return ok;
}

// A phase before has made it.
static bool is_made(const Func *f, Value tensor) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == tensor)
      return f->params.at[i].role == PR_SHARED &&
             !ir_is_stored(f->body, tensor);
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
    Op *load = ir_def(x->f, op->args[0]), *cast = NULL;
    if (load && (load->code == OP_CAST || load->code == OP_FOPERAND) &&
        load->nargs == 1 && load->parent == op->parent &&
        ir_count_uses(x->f, load->res[0]) == 1) {
      cast = load;
      load = ir_def(x->f, cast->args[0]);
    }
    if (!prefetch_is_tile(x->f, x->loop, load) || listed(x, load)) continue;
    if (cast) vec_push(x->a, &x->casts, cast);
    vec_push(x->a, &x->loads, load);
    vec_push(x->a, &x->puts, op);
  }
}

// Of a loop over chunks the steps of one that is not whole alone need v: pass
// remat loads it there.
static bool is_rare(const Func *f, const Op *load) {
  Value v = load->res[0];
  for (const Op *op = load->next; op; op = op->next) {
    const Op *chunk = op->code == OP_FOR ? loop_chunk(op) : NULL;
    if (chunk && ir_uses_in(chunk->regions[1], v) == ir_count_uses(f, v))
      return true;
  }
  return false;
}

// Slices, those of columns as rows: what a thread has of them is little.
static void find_slices(Fetch *x) {
  for (Op *op = x->loop->regions[0]->first; op; op = op->next) {
    if (op->code != OP_GLOAD || (x->lean && is_rare(x->f, op))) continue;
    const Type *t = ir_type(x->f, op->res[0]);
    bool made = is_made(x->f, op->args[0]) && x->loop->nres;
    bool ok = t->kind == TK_FRAG && t->slice != SLICE_NONE &&
              t->layout == LY_ACC && t->ext[0] % 64 == 0 &&
              (made || ir_is_input(x->f, op->args[0]));
    ok |= t->kind == TK_ELEM && made;
    for (uint32_t i = 1; ok && i < op->nargs; i++)
      ok = prefetch_follows(x->f, x->loop, op->args[i]);
    if (ok) vec_push(x->a, &x->loads, op);
  }
}

static Type as_rows(Type t) {
  if (t.kind == TK_FRAG && t.slice == SLICE_COL) t.slice = SLICE_ROW;
  return t;
}

static bool is_slice(const Fetch *x, uint32_t i) {
  return i >= x->tiles;
}

static Type ahead_type(const Fetch *x, uint32_t i) {
  const Type t = *ir_type(x->f, x->loads.at[i]->res[0]);
  return is_slice(x, i) ? as_rows(t) : t;
}

// ---------------------------------------------------------------- the new loop
Value prefetch_copy(Builder *b, const Op *loop, Value v, ValueMap *m) {
  Value known = vmap_get(m, v);
  if (known != v || ir_defined_outside(b->fn, v, loop->regions[0]))
    return known;
  const Op *op = ir_def(b->fn, v);
  for (uint32_t i = 0; i < op->nargs; i++)
    prefetch_copy(b, loop, op->args[i], m);
  return ir_clone(b, b->fn, op, m, NULL)->res[0];
}

// The same along rows.
static Value row_of(Fetch *x, Builder *b, Value v, ValueMap *m) {
  const Op *op = ir_def(x->f, v);
  const Type t = as_rows(*ir_type(x->f, v));
  if (t.kind != TK_FRAG) return prefetch_copy(b, x->loop, v, m);
  Value args[MAX_AXES + 2] = {0};
  for (uint32_t i = 0; i < op->nargs; i++)
    args[i] = row_of(x, b, op->args[i], m);
  Op *made =
      ir_op(b, op->code, args, op->nargs, op->attrs, op->nattrs, &t, 1, 0);
  if (op->code == OP_COORD) ir_set_attr(x->f, made, attr_i(AT_POS, 0));
  return made->res[0];
}

// The loads from..to for coordinate `at`.
static void load_all(Fetch *x, Builder *b, Value at, uint32_t from, uint32_t to,
                     Value *out) {
  ValueMap m = {.arena = x->a};
  vmap_put(&m, x->loop->regions[0]->params.at[0], at);
  for (uint32_t i = from; i < to; i++) {
    Value v = x->loads.at[i]->res[0];
    out[i] =
        is_slice(x, i) ? row_of(x, b, v, &m) : prefetch_copy(b, x->loop, v, &m);
  }
}

Value prefetch_first(Builder *b, const Op *loop) {
  Value lo = loop->args[0], hi = loop->args[1], step = loop->args[2];
  if (!ir_attr_i(loop, AT_REVERSE, 0)) return lo;
  Value one = ir_const_i(b, ir_type(b->fn, lo)->dtype, 1);
  Value steps =
      ir_2(b, OP_FLOORDIV, ir_2(b, OP_SUB, ir_2(b, OP_SUB, hi, lo), one), step);
  return ir_2(b, OP_ADD, lo, ir_2(b, OP_MUL, steps, step));
}

static Op *new_loop(Fetch *x, Builder *b) {
  Op *loop = x->loop;
  uint32_t n = x->loads.n;
  Value *args = NEWN(x->a, Value, loop->nargs + n);
  Type *types = NEWN(x->a, Type, loop->nres + n);
  memcpy(args, loop->args, loop->nargs * sizeof *args);
  load_all(x, b, prefetch_first(b, loop), 0, n, args + loop->nargs);
  for (uint32_t i = 0; i < loop->nres; i++)
    types[i] = *ir_type(x->f, loop->res[i]);
  for (uint32_t i = 0; i < n; i++) types[loop->nres + i] = ahead_type(x, i);
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
    vmap_put(m, v, ir_region_param(to, ahead_type(x, i), "ahead"));
  }
}

static bool moved(const Fetch *x, const Op *op) {
  for (uint32_t i = 0; i < x->puts.n; i++)
    if (x->puts.at[i] == op) return true;
  for (uint32_t i = 0; i < x->casts.n; i++)
    if (x->casts.at[i] == op) return true;
  return listed(x, op);
}

static bool uses_put(const Fetch *x, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++)
    for (uint32_t k = 0; k < x->puts.n; k++)
      if (x->puts.at[k]->res[0] == op->args[i]) return true;
  return false;
}

Value prefetch_next(Builder *b, const Op *loop, Value at) {
  bool back = ir_attr_i(loop, AT_REVERSE, 0) != 0;
  return ir_2(b, back ? OP_SUB : OP_ADD, at, loop->args[2]);
}

// The first product of a step, or the last.
static const Op *product(const Region *r, bool last) {
  const Op *at = NULL;
  for (const Op *op = r->first; op; op = op->next)
    if (op->code == OP_MMA && (last || !at)) at = op;
  return at;
}

// Asks for the next step's slices. Chunks that have no state (nothing is
// carried) do so behind their first product, which hides the search for
// coordinates, or in front of their last; where there is a state, products wait
// for these slices as much as for it.
static bool ask(Fetch *x, Builder *b, const Region *to, Value *out) {
  load_all(x, b, prefetch_next(b, x->loop, to->params.at[0]), x->tiles,
           x->loads.n, out);
  return true;
}

static void fill_body(Fetch *x, Region *to) {
  Region *from = x->loop->regions[0];
  Builder b = {.fn = x->f, .region = to, .span = x->loop->span};
  ValueMap m = {.arena = x->a};
  map_params(x, to, &m);
  for (uint32_t i = 0, c = 0; i < x->puts.n; i++) {
    if (c < x->casts.n && x->casts.at[c]->res[0] == x->puts.at[i]->args[0])
      ir_clone(&b, x->f, x->casts.at[c++], &m, NULL);
    ir_clone(&b, x->f, x->puts.at[i], &m, NULL);
  }
  const Op *y = from->last;
  Value *out = NEWN(x->a, Value, y->nargs + x->loads.n);
  for (uint32_t i = x->tiles; i < x->loads.n; i++) {
    Value v = x->loads.at[i]->res[0], rows = vmap_get(&m, v);
    if (ir_type(x->f, v)->slice != SLICE_COL) continue;
    vmap_put(&m, v,
             ir_op(&b, OP_RELAYOUT, &rows, 1, NULL, 0, ir_type(x->f, v), 1, 0)
                 ->res[0]);
  }
  bool done = !x->tiles, asked = x->tiles == x->loads.n;
  const Op *at = product(from, x->late);
  if (!asked && x->loop->nargs > 3) asked = ask(x, &b, to, out + y->nargs);
  for (const Op *op = from->first; op != y; op = op->next) {
    if (!asked && x->late && op == at) asked = ask(x, &b, to, out + y->nargs);
    if (!moved(x, op)) ir_clone(&b, x->f, op, &m, NULL);
    if (!asked && op == at) asked = ask(x, &b, to, out + y->nargs);
    if (done || !uses_put(x, op)) continue;
    load_all(x, &b, prefetch_next(&b, x->loop, to->params.at[0]), 0, x->tiles,
             out + y->nargs);
    done = true;
  }
  if (!asked) ask(x, &b, to, out + y->nargs);
  if (!done)
    load_all(x, &b, prefetch_next(&b, x->loop, to->params.at[0]), 0, x->tiles,
             out + y->nargs);
  for (uint32_t i = 0; i < y->nargs; i++) out[i] = vmap_get(&m, y->args[i]);
  ir_yield(&b, out, y->nargs + x->loads.n);
}

static void rewrite(Fetch *x) {
  Op *loop = x->loop;
  Builder b = {.fn = x->f,
               .region = loop->parent,
               .before = loop,
               .span = loop->span};
  Op *made = new_loop(x, &b);
  fill_body(x, made->regions[0]);
  for (uint32_t i = 0; i < loop->nres; i++) {
    ir_info(x->f, made->res[i])->hint = ir_info(x->f, loop->res[i])->hint;
    ir_replace_uses(x->f, loop->res[i], made->res[i]);
  }
  ir_erase(loop);
}

static void region(const Fetch *like, Region *r, bool slices) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++)
      region(like, op->regions[i], slices);
    if (op->code != OP_FOR || (slices && !loop_has_fill(op))) continue;
    Fetch x = *like;
    x.loop = op;
    if (!slices) find(&x);
    x.tiles = x.loads.n;
    if (slices) find_slices(&x);
    if (x.loads.n) rewrite(&x);
  }
}

static bool has_groups(const Func *f) {
  return ir_attr_i(ir_launch(f), AT_THREADS, 0) > HW_GROUP_THREADS;
}

bool pass_prefetch(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  const Target *t = opt->target;
  bool amd = t->gpu.vendor == VENDOR_AMD;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    int64_t level = relief_of(f);
    // The last registers there are to be had on RDNA.
    bool last =
        amd && t->gpu.wave == 32 && relief_spare(opt, f) >= COST_LAST_REGS;
    if (level == RELIEF_TASK || last) continue;
    Fetch like = {.f = f, .a = m->arena, .lean = level > RELIEF_FREE};
    like.late = like.lean && has_groups(f);
    if (amd || ir_has_steps(f)) region(&like, f->body, !amd);
  }
  return true;
}
