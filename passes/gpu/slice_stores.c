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
// tile, and the widest in which no more lives than a thread has.
//
// A sum over a row, as of the squares of a query that is normed, needs all
// columns in front of the store. Where columns of memory are all that it is
// made of it has a loop of its own, which makes them once more.
//
//   before  %x2 = mul(%x, %x) : frag<64x192xf32,acc>
//           %n = freduce(%x2) {kind = sum, pos = 1} : frag<64xf32,acc.0>
//   after   %p = for(0, 192, 64, 0.0) ({
//             ^(%j: i32, %p0: frag<64xf32,acc.0p>):
//             ..                                       of 64 columns
//             yield(add(%p0, freduce(%x2)))
//           })
//           %n = fcombine(%p) {kind = sum}
//
// Level mach; NVIDIA. Needs: bufferize_gpu.
// Tests: test/passes/slice_stores.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/pass.h"
#include "passes/support/cost.h"

#include <math.h>
#include <string.h>

typedef struct Slices {
  Func *f;
  Arena *arena;
  Op *store;
  Value whole;       // what is stored, or stored some columns of
  uint32_t threads;  // of its group
  uint32_t cols, part;
  uint32_t first, width;  // the columns that are stored
  bool cuts;              // some of what it is made of is in registers
  Press most;
  uint32_t limit;  // registers of a thread,
  uint32_t has;    // and what may live
  uint32_t n;      // values in front of parts
  bool *in;        // by value: what the stored tile alone is made of
  uint32_t *ends;  // by value: how many tiles or sums it is
  bool *shared;    // by value: what any such tile, or sum, is made of
  Vec(Value) all;  // such values, an operand in front of what it is for
  Value *to;       // by value: that of a part
  Value from;      // its first column
  int64_t at;      // the same, where it is known
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

// Sums, whose columns are registers of the same thread.
static bool is_cut(Slices *s, Value v) {
  const Type *t = ir_type(s->f, v);
  const Op *op = ir_def(s->f, v);
  bool cut = op && v != s->whole && is_beside(s, op) && t->layout == LY_ACC &&
             !t->slice;
  s->cuts |= cut;
  return cut;
}

static bool find(Slices *s, Value v) {
  const Op *op = ir_def(s->f, v);
  const Type *t = ir_type(s->f, v);
  if (s->in[v] || !has_columns(s, t))
    return s->in[v] || t->kind != TK_FRAG || t->slice == SLICE_ROW;
  bool outside = op && !is_beside(s, op);
  if (!op || !is_of_columns(s, op, outside) ||
      (outside && !t->slice && !pressure_free(s->f, v)))
    return is_cut(s, v);
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
  return n + (s->whole == v);
}

// Is it stored in parts already, and nothing else?
static bool is_halved(const Slices *s) {
  for (Value x = 1; x < s->f->values.n; x++) {
    const Op *op = ir_def(s->f, x);
    for (uint32_t i = 0; op && i < op->nargs; i++)
      if (op->args[i] == s->whole && op->code != OP_FCOLS) return false;
  }
  return s->whole != s->store->args[1];
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
    if (ir_type(s->f, v)->slice || pressure_free(s->f, v) || is_loaded(s, v) ||
        (v == s->whole && is_halved(s)))
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

// Panels of the tile that is stored, in which a thread has its part of the
// columns.
static bool is_part(const Slices *s) {
  const Type *t = ir_type(s->f, s->store->args[s->store->nargs - 1]),
             *tile = ir_type(s->f, s->store->args[0]);
  uint32_t panel = 1;
  if (s->store->code == OP_SSTORE)
    panel = smem_panel_bytes(tile) / (uint32_t)dtype_size(t->dtype);
  Type p = *t;
  p.ext[1] = s->part;
  FragMap whole, map;
  return s->part % panel == 0 && !frag_map(&p, s->threads, &map) &&
         !frag_map(t, s->threads, &whole) &&
         map.regs * (s->width / s->part) == whole.regs;
}

// What is as much smaller in parts: beside a sum all that will be in parts.
static bool is_own(const Slices *s, Value v) {
  return s->in[v] || (s->store->code == OP_FREDUCE && s->shared[v]);
}

// The widest parts in which no more lives than a thread has, or the narrowest.
static bool choose_part(Slices *s) {
  const Press *p = &s->most;
  uint32_t own = 0, best = 0;
  for (uint32_t i = 0; i < p->live.n; i++)
    if (is_own(s, p->live.at[i]))
      own += pressure_of(ir_type(s->f, p->live.at[i]), s->threads);
  for (uint32_t n = 2; n <= s->cols; n++) {
    s->part = s->cols / n;
    if (s->cols % n || s->width % s->part || !is_part(s)) continue;
    best = s->part;
    if (p->regs - own + (own + n - 1) / n <= s->has) break;
  }
  s->part = best;
  return best && own;
}

// ---------------------------------------------------------------- parts
static Value columns_of(Slices *s, Value v) {
  const Type *t = ir_type(s->f, v);
  if (!has_columns(s, t)) return v;
  Type part = part_of(s, *t);
  IrAttr at = attr_i(AT_POS, s->at);
  return s->to[v] = ir_op(&s->b, OP_FCOLS, &v, 1, &at, 1, &part, 1, 0)->res[0];
}

static Value made(Slices *s, Value v) {
  if (s->to[v]) return s->to[v];
  if (!s->in[v]) return columns_of(s, v);
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

static void put(Slices *s, const Op *store, Value to) {
  Value part[3] = {store->args[0], made(s, s->whole), to};
  ir_op(&s->b, OP_SSTORE, part, 3, NULL, 0, NULL, 0, 0);
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
  put(s, store, s->from);
  ir_yield(&s->b, NULL, 0);
  ir_erase(store);
}

static void unroll(Slices *s) {
  Op *store = s->store;
  for (uint32_t c = 0; c < s->width; c += s->part) {
    memset(s->to, 0, s->n * sizeof *s->to);
    s->b = (Builder){.fn = s->f,
                     .region = store->parent,
                     .before = store,
                     .span = store->span};
    s->at = s->first + c;
    s->from = ir_const_i(&s->b, DT_I32, s->at);
    put(s, store, ir_const_i(&s->b, DT_I32, c));
  }
  Op *half = ir_def(s->f, store->args[1]);
  ir_erase(store);
  if (half->code == OP_FCOLS && !ir_count_uses(s->f, half->res[0]))
    ir_erase(half);
}

static void sweep(Slices *s) {
  for (uint32_t i = s->all.n; i-- > 0;)
    if (!ir_count_uses(s->f, s->all.at[i]))
      ir_erase(ir_def(s->f, s->all.at[i]));
}

// ---------------------------------------------------------------- sums
static bool is_sum(const Func *f, const Op *op) {
  if (op->code != OP_FREDUCE || ir_attr_i(op, AT_POS, 0) != 1) return false;
  const Type *t = ir_type(f, op->args[0]), *sum = ir_type(f, op->res[0]);
  int64_t kind = ir_attr_i(op, AT_KIND, RK_SUM);
  return (kind == RK_SUM || kind == RK_MAX) && dtype_is_float(t->dtype) &&
         t->kind == TK_FRAG && !t->slice && !sum->partial;
}

// Is it a part of such a loop's?
static bool is_part_sum(const Slices *s, const Op *op) {
  const Op *loop = op->parent->parent;
  double step;
  return loop && loop->code == OP_FOR &&
         ir_const_value(s->f, loop->args[2], &step) && step == s->cols;
}

// Rows that a part has as the whole has them.
static bool has_its_rows(const Slices *s) {
  Type part = part_of(s, *ir_type(s->f, s->whole));
  Type row = frag_slice(&part, 0, false);
  return type_eq(&row, ir_type(s->f, s->store->res[0]));
}

static Value first_of(Slices *s, int64_t kind, const Type *t) {
  IrAttr zero = attr_f(AT_VALUE, kind == RK_MAX ? -INFINITY : 0);
  return ir_op(&s->b, OP_CONST, NULL, 0, &zero, 1, t, 1, 0)->res[0];
}

static void walk_sum(Slices *s) {
  Op *sum = s->store;
  int64_t kind = ir_attr_i(sum, AT_KIND, RK_SUM);
  Type t = *ir_type(s->f, sum->res[0]), part = t;
  part.partial = true;
  Builder b = {.fn = s->f,
               .region = sum->parent,
               .before = sum,
               .span = sum->span};
  s->b = b;
  Value args[4] = {ir_const_i(&b, DT_I32, 0), ir_const_i(&b, DT_I32, s->cols),
                   ir_const_i(&b, DT_I32, s->part), first_of(s, kind, &part)};
  Op *loop = ir_op(&b, OP_FOR, args, 4, NULL, 0, &part, 1, 1);
  Region *body = loop->regions[0];
  s->from = ir_region_param(body, type_scalar(DT_I32), NULL);
  Value all = ir_region_param(body, part, NULL);
  s->b = (Builder){.fn = s->f, .region = body, .span = sum->span};
  Value of = made(s, s->whole);
  Value now =
      ir_op(&s->b, OP_FREDUCE, &of, 1, sum->attrs, sum->nattrs, &part, 1, 0)
          ->res[0];
  all = ir_2(&s->b, kind == RK_MAX ? OP_MAX : OP_ADD, all, now);
  ir_yield(&s->b, &all, 1);
  IrAttr how = attr_i(AT_KIND, kind);
  Op *joined = ir_op(&b, OP_FCOMBINE, &loop->res[0], 1, &how, 1, &t, 1, 0);
  ir_replace_uses(s->f, sum->res[0], joined->res[0]);
  ir_erase(sum);
}

// ---------------------------------------------------------------- all
// Is p where the stored tile is made?
static bool makes(const Slices *s, const Op *at) {
  return at == s->store || (at && at->nres && s->in[at->res[0]]);
}

static void see(Slices *s, Op *store) {
  const Op *half = ir_def(s->f, store->args[1]);
  bool part = half && half->code == OP_FCOLS;
  s->store = store;
  s->whole = part ? half->args[0] : store->args[1];
  s->first = part ? (uint32_t)ir_attr_i(half, AT_POS, 0) : 0;
  s->width = ir_type(s->f, store->args[1])->ext[1];
  s->cols = ir_type(s->f, s->whole)->ext[1];
}

// All stores of it, each in parts.
static void store_parts(Slices *s, Region *r) {
  Value whole = s->whole;
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    if (op->code != OP_SSTORE || op->nargs > 2) continue;
    see(s, op);
    if (s->whole == whole) unroll(s);
  }
}

static bool slice_store(Slices *s, Op *store) {
  if (store->code != OP_SSTORE) return false;
  const Type *t = ir_type(s->f, store->args[1]);
  if (store->nargs > 2 || t->slice || ir_attr_i(store, AT_TRANS, 0))
    return false;
  see(s, store);
  s->threads = ir_group_threads(s->f, store);
  s->cuts = s->width < s->cols;
  s->all.n = 0;
  memset(s->in, 0, s->f->values.n * sizeof *s->in);
  if (!find(s, s->whole) || !makes(s, s->most.at) || !are_its_own(s) ||
      !choose_part(s))
    return false;
  if (s->cuts) store_parts(s, store->parent);
  else walk(s);
  sweep(s);
  return true;
}

// What is stored or summed, and made of columns of memory alone.
static bool find_columns(Slices *s, Op *op) {
  bool sum = is_sum(s->f, op);
  if (!sum && op->code != OP_SSTORE) return false;
  s->store = op;
  s->whole = op->args[!sum];
  const Type *t = ir_type(s->f, s->whole);
  if (t->kind != TK_FRAG || t->slice) return false;
  s->cols = s->width = t->ext[1];
  s->cuts = false;
  s->all.n = 0;
  memset(s->in, 0, s->f->values.n * sizeof *s->in);
  return find(s, s->whole) && !s->cuts;
}

static void share(Slices *s, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    uint32_t n = find_columns(s, op) ? s->all.n : 0;
    for (uint32_t i = 0; i < n; i++) s->shared[s->all.at[i]] = true;
    if (n) s->ends[s->whole]++;
    for (uint32_t i = 0; i < op->nregions; i++) share(s, op->regions[i]);
  }
}

// Is all that needs them stored, or summed, in parts as well?
static bool are_shared(const Slices *s) {
  uint32_t *n = NEWN(s->arena, uint32_t, s->f->values.n);
  for (Value x = 1; x < s->f->values.n; x++) {
    const Op *op = s->shared[x] ? ir_def(s->f, x) : NULL;
    for (uint32_t i = 0; op && i < op->nargs; i++) n[op->args[i]]++;
  }
  for (uint32_t i = 0; i < s->all.n; i++) {
    Value v = s->all.at[i];
    bool free = ir_type(s->f, v)->slice || pressure_free(s->f, v);
    if (!free && !is_loaded(s, v) &&
        n[v] + s->ends[v] != ir_count_uses(s->f, v))
      return false;
  }
  return true;
}

static bool lives_there(const Slices *s) {
  const Press *p = &s->most;
  for (uint32_t i = 0; i < p->live.n; i++)
    if (s->in[p->live.at[i]] && !ir_type(s->f, p->live.at[i])->slice)
      return true;
  return false;
}

static bool slice_sum(Slices *s, Op *op) {
  if (!is_sum(s->f, op) || !find_columns(s, op)) return false;
  s->threads = ir_group_threads(s->f, op);
  if (!lives_there(s) || is_part_sum(s, op) || !are_shared(s) ||
      !choose_part(s) || !has_its_rows(s))
    return false;
  walk_sum(s);
  sweep(s);
  return true;
}

static bool in_region(Slices *s, Region *r, bool (*slice)(Slices *, Op *)) {
  for (Op *op = r->first; op; op = op->next) {
    if (slice(s, op)) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (in_region(s, op->regions[i], slice)) return true;
  }
  return false;
}

// Functions of parts need registers, too: of what is made twice for it, parts
// leave some free.
static bool in_sums(Slices *s, Region *r) {
  share(s, r);
  if (s->has == s->limit) s->has -= COST_TILE_OTHER_REGS;
  return in_region(s, r, slice_sum);
}

// Where most lives, and then where most does of what is left.
static bool next_slice(Ctx *cx, Func *f, const Target *t, uint32_t *has) {
  Slices s = {.f = f,
              .n = f->values.n,
              .arena = &cx->scratch,
              .most = ir_pressure(f, &cx->scratch),
              .has = *has,
              .limit = pressure_limit(f, t),
              .in = NEWN(&cx->scratch, bool, f->values.n),
              .ends = NEWN(&cx->scratch, uint32_t, f->values.n),
              .shared = NEWN(&cx->scratch, bool, f->values.n),
              .to = NEWN(&cx->scratch, Value, f->values.n)};
  if (s.most.regs <= s.has) return false;
  bool stored = in_region(&s, f->body, slice_store);
  if (!stored && !in_sums(&s, f->body)) return false;
  *has = s.has;
  ctx_remark(cx, "%s: %u columns of %u at a time are made for a %s", f->name,
             s.part, s.cols, stored ? "shared tile" : "sum");
  return true;
}

bool pass_slice_stores(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    bool more = ir_launch(f) && opt->target;
    uint32_t has = more ? pressure_limit(f, opt->target) : 0;
    while (more) {
      ArenaMark mark = arena_mark(&cx->scratch);
      more = next_slice(cx, f, opt->target, &has);
      arena_reset(&cx->scratch, mark);
    }
  }
  return true;
}
