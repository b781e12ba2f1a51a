// slice_stores: what is made for a shared tile, and takes more registers than
// there are, is made some columns at a time.
//
//   before  %x = gload(%Q, %b, %r, %c) : frag<64x192xbf16,acc>
//           ..                                       sines, sums of them
//           sstore(%s, %y)
//   after   for(0, 192, 64) ({
//             ^(%j: i32):
//             %d = add(splat(%j), coord() {pos = 1})
//             %x = gload(%Q, %b, %r, %d) : frag<64x64xbf16,acc>
//             ..
//             sstore(%s, %y, %j)
//           })
//
// Where most lives at once is in what an operand is made of, as the rotated
// query of a task, and that is more than a thread has: what a column needs is
// of that column, so parts of the columns are as good, and a loop over them is
// less code too. Loads in front of a branch in which the store is, as of tasks
// that may have no rows, go where the store does. Parts are whole panels of the
// tile, and the widest in which no more lives than a thread has. Level mach;
// NVIDIA. Needs: bufferize_gpu.
// Tests: test/passes/slice_stores.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/pass.h"

#include <string.h>

typedef struct Slices {
  Func *f;
  Arena *arena;
  Op *store;
  uint32_t threads;  // of its group
  uint32_t cols, part;
  bool *in;        // by value: what the stored tile alone is made of
  Vec(Value) all;  // such values, an operand in front of what it is for
  Value *to;       // by value: that of a part
  Value from;      // its first column
  Builder b;
} Slices;

// ---------------------------------------------------------------- what it is of
static bool has_columns(const Slices *s, const Type *t) {
  if (t->kind != TK_FRAG) return false;
  if (t->slice == SLICE_COL) return t->ext[0] == s->cols;
  return t->ext[1] == s->cols;
}

// Made of columns by themselves? again: for slices, wherever they are made.
static bool is_of_columns(const Slices *s, const Op *op, bool again) {
  if (op->code == OP_RANDOM || op->nres != 1 || op->nregions) return false;
  if (op->code == OP_GLOAD)
    return !again && !ir_is_stored(s->f->body, op->args[0]);
  return op_info(op->code)->flags & OPF_ELEM || op->code == OP_COORD ||
         op->code == OP_CONST || op->code == OP_SPLAT || op->code == OP_BCAST;
}

// Is op made as often as the store? In its region, or outside of branches.
static bool is_beside(const Slices *s, const Op *op) {
  const Region *r = s->store->parent;
  while (r != op->parent && r->parent && r->parent->code == OP_IF)
    r = r->parent->parent;
  return r == op->parent;
}

static bool find(Slices *s, Value v) {
  const Op *op = ir_def(s->f, v);
  const Type *t = ir_type(s->f, v);
  if (s->in[v] || !has_columns(s, t))
    return s->in[v] || t->kind != TK_FRAG || t->slice == SLICE_ROW;
  bool outside = op && !is_beside(s, op);
  if (!op || !is_of_columns(s, op, outside) ||
      (outside && !t->slice && !pressure_free(s->f, v)))
    return false;
  s->in[v] = true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!find(s, op->args[i])) return false;
  vec_push(s->arena, &s->all, v);
  return true;
}

static uint32_t uses_within(const Slices *s, Value v) {
  uint32_t n = 0;
  for (Value x = 1; x < s->f->values.n; x++) {
    const Op *op = s->in[x] ? ir_def(s->f, x) : NULL;
    for (uint32_t i = 0; op && i < op->nargs; i++) n += op->args[i] == v;
  }
  return n + (s->store->args[1] == v);
}

// Is v loaded, in another type at most? Then it may be loaded again.
static bool is_loaded(const Slices *s, Value v) {
  const Op *op = ir_def(s->f, v);
  while (op && op->code == OP_CAST) op = ir_def(s->f, op->args[0]);
  return op && op->code == OP_GLOAD;
}

// Other tiles that something else needs too would be made twice.
static bool are_its_own(const Slices *s) {
  for (uint32_t i = 0; i < s->all.n; i++) {
    Value v = s->all.at[i];
    if (ir_type(s->f, v)->slice || pressure_free(s->f, v) || is_loaded(s, v))
      continue;
    if (uses_within(s, v) != ir_count_uses(s->f, v)) return false;
  }
  return true;
}

// ---------------------------------------------------------------- how many
static Type part_of(const Slices *s, Type t) {
  if (has_columns(s, &t)) t.ext[t.slice != SLICE_COL] = s->part;
  return t;
}

// Panels of the tile, in which a thread has its part of the columns.
static bool is_part(const Slices *s) {
  const Type *t = ir_type(s->f, s->store->args[1]),
             *tile = ir_type(s->f, s->store->args[0]);
  uint32_t panel = smem_panel_bytes(tile) / (uint32_t)dtype_size(t->dtype);
  Type p = part_of(s, *t);
  FragMap whole, map;
  return s->part % panel == 0 && !frag_map(&p, s->threads, &map) &&
         !frag_map(t, s->threads, &whole) &&
         map.regs * (s->cols / s->part) == whole.regs;
}

// The widest parts in which no more lives than a thread has, or the narrowest.
static bool choose_part(Slices *s, const Press *p, uint32_t has) {
  uint32_t own = 0, best = 0;
  for (uint32_t i = 0; i < p->live.n; i++)
    if (s->in[p->live.at[i]])
      own += pressure_of(ir_type(s->f, p->live.at[i]), s->threads);
  for (uint32_t n = 2; n <= s->cols; n++) {
    s->part = s->cols / n;
    if (s->cols % n || !is_part(s)) continue;
    best = s->part;
    if (p->regs - own + (own + n - 1) / n <= has) break;
  }
  s->part = best;
  return best && own;
}

// ---------------------------------------------------------------- parts
static Value made(Slices *s, Value v) {
  if (s->to[v] || !s->in[v]) return s->to[v] ? s->to[v] : v;
  const Op *op = ir_def(s->f, v);
  Value *args = NEWN(s->arena, Value, op->nargs + 1);
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = made(s, op->args[i]);
  Type t = part_of(s, *ir_type(s->f, v));
  s->b.span = op->span;
  Value x =
      ir_op(&s->b, op->code, args, op->nargs, op->attrs, op->nattrs, &t, 1, 0)
          ->res[0];
  if (op->code == OP_COORD && ir_attr_i(op, AT_POS, 0)) {
    Value from = ir_op(&s->b, OP_SPLAT, &s->from, 1, NULL, 0, &t, 1, 0)->res[0];
    x = ir_2(&s->b, OP_ADD, from, x);
  }
  return s->to[v] = x;
}

static void walk(Slices *s) {
  Op *store = s->store;
  Builder b = {.fn = s->f,
               .region = store->parent,
               .before = store,
               .span = store->span};
  Value args[3] = {ir_const_i(&b, DT_I32, 0), ir_const_i(&b, DT_I32, s->cols),
                   ir_const_i(&b, DT_I32, s->part)};
  Op *loop = ir_op(&b, OP_FOR, args, 3, NULL, 0, NULL, 0, 1);
  Region *body = loop->regions[0];
  s->from = ir_region_param(body, type_scalar(DT_I32), NULL);
  s->b = (Builder){.fn = s->f, .region = body, .span = store->span};
  Value part[3] = {store->args[0], made(s, store->args[1]), s->from};
  ir_op(&s->b, OP_SSTORE, part, 3, NULL, 0, NULL, 0, 0);
  ir_yield(&s->b, NULL, 0);
  ir_erase(store);
  for (uint32_t i = s->all.n; i-- > 0;)
    if (!ir_count_uses(s->f, s->all.at[i]))
      ir_erase(ir_def(s->f, s->all.at[i]));
}

// ---------------------------------------------------------------- all
// Is p where the stored tile is made?
static bool makes(const Slices *s, const Op *at) {
  return at == s->store || (at && at->nres && s->in[at->res[0]]);
}

static bool slice(Slices *s, Op *store, const Press *p, uint32_t has) {
  const Type *t = ir_type(s->f, store->args[1]);
  if (store->nargs > 2 || t->slice || ir_attr_i(store, AT_TRANS, 0))
    return false;
  s->store = store;
  s->threads = ir_group_threads(s->f, store);
  s->cols = t->ext[1];
  s->all.n = 0;
  memset(s->in, 0, s->f->values.n * sizeof *s->in);
  if (!find(s, store->args[1]) || !makes(s, p->at) || !are_its_own(s) ||
      !choose_part(s, p, has))
    return false;
  walk(s);
  return true;
}

static bool in_region(Slices *s, Region *r, const Press *p, uint32_t has) {
  for (Op *op = r->first; op; op = op->next) {
    if (op->code == OP_SSTORE && slice(s, op, p, has)) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (in_region(s, op->regions[i], p, has)) return true;
  }
  return false;
}

// Where most lives, and then where most does of what is left.
static bool next_slice(Ctx *cx, Func *f, const Target *t) {
  Press p = ir_pressure(f, &cx->scratch);
  Slices s = {.f = f,
              .arena = &cx->scratch,
              .in = NEWN(&cx->scratch, bool, f->values.n),
              .to = NEWN(&cx->scratch, Value, f->values.n)};
  uint32_t has = pressure_limit(f, t);
  if (p.regs <= has || !in_region(&s, f->body, &p, has)) return false;
  ctx_remark(cx, "%s: %u columns of %u at a time are made for a shared tile",
             f->name, s.part, s.cols);
  return true;
}

bool pass_slice_stores(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    bool more = ir_launch(f) && opt->target;
    while (more) {
      ArenaMark mark = arena_mark(&cx->scratch);
      more = next_slice(cx, f, opt->target);
      arena_reset(&cx->scratch, mark);
    }
  }
  return true;
}
