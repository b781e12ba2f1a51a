// common_rows: numbers that passes over keys leave for a row, and that do not
// vary with an axis of the program's tasks, are made once, in a phase in front.
//
//   before  func @p(..) axes(b par B, h par H, q par S, k key S, ..) {
//             %s = dot(%x, %y)                             : f32{b,q,k}
//             %n = reduce(cast(le(%c, %s))) {over = [k]}   : f32{b,q}
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
#include "passes/support/outlined.h"

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
  uint64_t axes;   // of the cuts
  Outlined out;
} Common;

// ---------------------------------------------------------------- analysis
// Is op a sum of what holds and what does not, as integers or as floats?
static bool is_count(const Common *c, const Op *op) {
  const Op *cast = op->code == OP_REDUCE ? ir_def(c->f, op->args[0]) : NULL;
  return !dtype_is_float(ir_type(c->f, op->res[0])->dtype) ||
         (cast && cast->code == OP_CAST &&
          ir_type(c->f, cast->args[0])->dtype == DT_BOOL);
}

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
  if (!is_count(c, op)) return WEIGHED;
  return most == PRODUCT ? HEAVY : most;
}

static bool is_cut(const Common *c, Value v) {
  uint64_t axes = ir_axes_of(c->f, v);
  return c->made[v] == HEAVY && ir_type(c->f, v)->kind == TK_ELEM &&
         !(axes & ~c->tasks) && c->tasks & ~axes &&
         (!c->out.n || axes == c->axes);
}

// Values that what is stored needs, and that a phase can make.
static bool find_cuts(Common *c) {
  bool *needed = NEWN(&c->cx->scratch, bool, c->f->values.n);
  c->out.n = 0;
  for (const Op *op = c->f->body->last; op; op = op->prev) {
    Value v = op->nres ? op->res[0] : 0;
    if (v && !needed[v]) continue;
    if (v && is_cut(c, v)) {
      if (c->out.n == MAX_OUTLINED) return false;
      c->axes = ir_axes_of(c->f, v);
      c->out.cut[c->out.n++] = v;
      continue;
    }
    for (uint32_t i = 0; i < op->nargs; i++) needed[op->args[i]] = true;
  }
  return c->out.n > 0;
}

// Returns the number of phases that it puts in front of f.
static uint32_t run(Ctx *cx, Func *f) {
  Common c = {
      .cx = cx,
      .f = f,
      .out = {.f = f, .phase = "common", .tensor = "common", .value = "row"}};
  uint32_t made = 0;
  if (f->axes.n > 64 || !(c.tasks = outline_tasks(f))) return 0;
  while (outline_count(f) < MAX_FRONT) {
    c.made = NEWN(&cx->scratch, Made, f->values.n);
    for (const Op *op = f->body->first; op; op = op->next)
      if (op->nres) c.made[op->res[0]] = made_by(&c, op);
    if (!find_cuts(&c)) break;
    outlined_close(&c.out, &cx->scratch);
    // Its keys depend on other tasks' axes.
    if (c.out.has & ir_axes_with(f, AX_PAR) & ~c.axes) break;
    outlined_make(&c.out, made++);
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
