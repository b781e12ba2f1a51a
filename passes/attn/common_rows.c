// common_rows: numbers that passes over keys leave for a row, and that do not
// vary with an axis of the program's tasks, are made once, in a phase in front.
//
//   before  func @p(..) axes(b par B, h par H, q par S, k key S, ..) {
//             %s = dot(%x, %y)                             : f32{b,q,k}
//             %n = reduce(cast(le(%c, %s))) {over = [k]}   : i64{b,q}
//             %t = .. %n ..                                : f32{b,q}
//             .. select(le(%t, %s), dot(..), ..)           : f32{b,h,q,k} .. }
//   after   func @p.common(.., %t.common: tensor<f32[B, S]> shared)
//               axes(b par B, q par S, k key S, ..) {
//             .. store(%t.common, %t, %b, %q) }
//           func @p(.., %t.common) {
//             %t = load(%t.common, %b, %q)
//             .. select(le(%t, %s), dot(..), ..) .. }
//
// The limits of `topk` are such, made of counts: each is a pass over keys with
// products, which all heads that attend to the same keys would do again, or,
// where choices are stored for each key, the tasks of all keys. Left is what
// has no products, and what weights are divided by: in rows without keys only
// their pass knows it. Level attn, behind split_outputs; GPUs. Tests:
// test/passes/common_rows/.
#include "ir/deps.h"
#include "passes/pass.h"
#include "passes/support/outline.h"

enum { MAX_CUTS = 8 };

// What a value is made of.
typedef enum Made {
  PLAIN,
  PRODUCT,  // products that vary with keys
  HEAVY,    // counts over keys of these
  WEIGHED,  // sums and maxima over keys of these: online softmax has its own
} Made;

typedef struct Common {
  Ctx *cx;
  Func *f;
  uint64_t tasks;  // axes of what is stored
  Made *made;      // by value
  Value cut[MAX_CUTS], tensor[MAX_CUTS];
  uint32_t n;
  uint64_t axes;  // of the cuts
  bool *wanted;   // by value: the phase makes it
  uint64_t has;   // axes of what it makes
} Common;

static uint64_t bit(uint32_t axis) {
  return (uint64_t)1 << axis;
}

static bool is_domain(const Op *op) {
  return op->code == OP_DOMAIN;
}

static uint32_t axis_of(const Op *domain) {
  return (uint32_t)ir_attr_i(domain, AT_AXIS, 0);
}

// ---------------------------------------------------------------- analysis
static Made made_by(const Common *c, const Op *op) {
  Made most = PLAIN;
  uint64_t keys = ir_axes_with(c->f, AX_KEY);
  for (uint32_t i = 0; i < op->nargs; i++)
    if (c->made[op->args[i]] > most) most = c->made[op->args[i]];
  uint64_t left = op->nres ? ir_axes_of(c->f, op->res[0]) & keys : 0;
  bool lost = false;
  for (uint32_t i = 0; i < op->nargs && op->nres; i++)
    lost |= (ir_axes_of(c->f, op->args[i]) & keys & ~left) != 0;
  if (op->code == OP_DOT && left && most == PLAIN) most = PRODUCT;
  // A sum over some keys for each of others, as an indexer's over its heads.
  if (!lost || left || most < PRODUCT) return most;
  if (dtype_is_float(ir_type(c->f, op->res[0])->dtype)) return WEIGHED;
  return most == PRODUCT ? HEAVY : most;
}

static bool is_cut(const Common *c, Value v) {
  uint64_t axes = ir_axes_of(c->f, v);
  return c->made[v] == HEAVY && ir_type(c->f, v)->kind == TK_ELEM &&
         !(axes & ~c->tasks) && c->tasks & ~axes && (!c->n || axes == c->axes);
}

// Values that what is stored needs, and that a phase can make.
static bool find_cuts(Common *c) {
  bool *needed = NEWN(&c->cx->scratch, bool, c->f->values.n);
  c->n = 0;
  for (const Op *op = c->f->body->last; op; op = op->prev) {
    Value v = op->nres ? op->res[0] : 0;
    if (v && !needed[v]) continue;
    if (v && is_cut(c, v)) {
      if (c->n == MAX_CUTS) return false;
      c->axes = ir_axes_of(c->f, v);
      c->cut[c->n++] = v;
      continue;
    }
    for (uint32_t i = 0; i < op->nargs; i++) needed[op->args[i]] = true;
  }
  return c->n > 0;
}

static void want(Common *c, Value v) {
  const Op *op = ir_def(c->f, v);
  if (c->wanted[v]) return;
  c->wanted[v] = true;
  c->has |= ir_axes_of(c->f, v);
  for (uint32_t i = 0; op && i < op->nargs; i++) want(c, op->args[i]);
}

// Marks what the phase makes. False: its keys depend on other tasks' axes.
static bool close_phase(Common *c) {
  c->wanted = NEWN(&c->cx->scratch, bool, c->f->values.n);
  c->has = c->axes;
  for (uint32_t i = 0; i < c->n; i++) want(c, c->cut[i]);
  for (uint64_t before = 0; before != c->has;) {
    before = c->has;
    for (const Op *op = c->f->body->first; op; op = op->next)
      if (is_domain(op) && c->has & bit(axis_of(op))) want(c, op->args[0]);
  }
  return !(c->has & ir_axes_with(c->f, AX_PAR) & ~c->axes);
}

// ---------------------------------------------------------------- the phase
static void add_tensors(Common *c) {
  for (uint32_t i = 0; i < c->n; i++) {
    Dim shape[MAX_AXES];
    uint32_t n = 0;
    const ValueInfo *v = ir_info(c->f, c->cut[i]);
    for (uint32_t a = 0; a < c->f->axes.n; a++)
      if (c->axes & bit(a)) shape[n++] = c->f->axes.at[a].extent;
    Type t = type_tensor(v->type.dtype, n, shape);
    c->tensor[i] = outline_tensor(c->f, v->hint ? v->hint : "row", "common", t);
  }
}

static uint32_t coordinates(const Common *c, const uint32_t *to, Builder *b,
                            Value *out) {
  uint32_t n = 0;
  for (uint32_t a = 0; a < c->f->axes.n; a++)
    if (c->axes & bit(a)) out[n++] = ir_index(b, to ? to[a] : a);
  return n;
}

static void make_phase(const Common *c, uint32_t number) {
  Func *f = c->f, *made = outline_func(f, "common", number, false);
  Builder b = {.fn = made, .region = made->body, .span = f->span};
  ValueMap map = {.arena = f->mod->arena};
  uint32_t axis[64] = {0};
  Value at[MAX_AXES];
  outline_params(&map, f, made);
  for (uint32_t a = 0; a < f->axes.n; a++) {
    const Axis *x = &f->axes.at[a];
    if (c->has & bit(a)) axis[a] = ir_axis(made, x->name, x->role, x->extent);
  }
  for (const Op *op = f->body->first; op; op = op->next) {
    bool domain = is_domain(op) && c->has & bit(axis_of(op));
    if (!domain && !(op->nres && c->wanted[op->res[0]])) continue;
    b.span = op->span;
    ir_clone(&b, f, op, &map, axis);
  }
  for (uint32_t i = 0; i < c->n; i++) {
    uint32_t n = coordinates(c, axis, &b, at);
    ir_store(&b, vmap_get(&map, c->tensor[i]), vmap_get(&map, c->cut[i]), at,
             n);
  }
  outline_put(made, f);
}

static void read_cuts(const Common *c) {
  Value at[MAX_AXES];
  for (uint32_t i = 0; i < c->n; i++) {
    Builder b = outline_behind(c->f, c->cut[i]);
    uint32_t n = coordinates(c, NULL, &b, at);
    ir_replace_uses(c->f, c->cut[i], ir_load(&b, c->tensor[i], at, n));
  }
}

// Returns the number of phases that it puts in front of f.
static uint32_t run(Ctx *cx, Func *f) {
  Common c = {.cx = cx, .f = f};
  uint32_t made = 0;
  if (f->axes.n > 64 || !(c.tasks = outline_tasks(f))) return 0;
  while (outline_count(f) < MAX_FRONT) {
    c.made = NEWN(&cx->scratch, Made, f->values.n);
    for (const Op *op = f->body->first; op; op = op->next)
      if (op->nres) c.made[op->res[0]] = made_by(&c, op);
    if (!find_cuts(&c) || !close_phase(&c)) break;
    add_tensors(&c);
    make_phase(&c, made++);
    read_cuts(&c);
    ir_sweep(f);
    ctx_remark(cx, "%s: what all tasks of a row have in common is made ahead",
               f->name);
  }
  return made;
}

bool pass_common_rows(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) i += run(cx, m->funcs.at[i]);
  return true;
}
