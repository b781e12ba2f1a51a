// key_numbers: numbers of a key that sum its vectors are made once, in a phase
// in front, and not by every task that reads the key.
//
//   before  func @p(%K, ..) axes(b par B, q par S, k key S, d vec 64) {
//             %n = rsqrt(dot(%y, %y) {over = [d]})   : f32{b,k}
//             %s = mul(%n, dot(%x, %y))              : f32{b,q,k} .. }
//   after   func @p.numbers(%K, .., %n.made: tensor<f32[B, S]> shared)
//               axes(b par B, k par S, d vec 64) { store(%n.made, %n, %b, %k) }
//           func @p(.., %n.made shared) {
//             %n = load(%n.made, %b, %k)
//             %s = mul(%n, dot(%x, %y)) .. }
//
// A tile of rows has a number for each of its keys, whose vectors lie along the
// other axis of tiles than those of rows: sums of them are made element by
// element, once for each tile of rows, and take longer than its products. Those
// of keys that tables or offsets find, or that are as many as memory says, are
// left, as are kernels in which each key is read once. Level attn, behind
// materialize, whose operands have them; GPUs. Tests: test/passes/key_numbers/.
#include "ir/deps.h"
#include "passes/pass.h"
#include "passes/support/outline.h"
#include "passes/support/outlined.h"

// What is known of a value.
typedef struct Known {
  bool can;     // made of inputs, coordinates and sums of vectors alone
  bool memory;  // a load is in it
  bool sums;    // a sum of a key's vectors is
} Known;

typedef struct Numbers {
  Ctx *cx;
  Func *f;
  uint64_t keys, vecs, tasks;
  Known *of;      // by value
  uint64_t axes;  // of the cuts
  Outlined out;
} Numbers;

static uint64_t bit(uint32_t axis) {
  return (uint64_t)1 << axis;
}

static uint64_t axes_of(const Numbers *s, Value v) {
  return ir_axes_of(s->f, v);
}

// ---------------------------------------------------------------- analysis
static bool is_flat(const Func *f) {
  for (const Op *op = f->body->first; op; op = op->next)
    if (op->nregions || op->nres > 1 || op->code == OP_CALL) return false;
  return true;
}

static uint64_t find_tasks(const Func *f) {
  uint64_t tasks = 0;
  for (const Op *op = f->body->first; op; op = op->next)
    for (uint32_t i = 2; op->code == OP_STORE && i < op->nargs; i++)
      tasks |= ir_axes_of(f, op->args[i]);
  return tasks & ir_axes_with(f, AX_PAR);
}

// Along vectors alone, of vectors of the same points.
static bool sums_vectors(const Numbers *s, const Op *op) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  if (op->code != OP_REDUCE && op->code != OP_DOT) return false;
  for (uint32_t i = 0; i < over->n; i++)
    if (!(s->vecs & bit((uint32_t)over->list[i]))) return false;
  return op->nargs == 1 ||
         (op->nargs == 2 && axes_of(s, op->args[0]) == axes_of(s, op->args[1]));
}

static bool is_input(const Func *f, Value v) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == v && f->params.at[i].role == PR_SHARED)
      return true;
  return outline_is_input(f, v);
}

static Known known_of(const Numbers *s, const Op *op) {
  bool sum = sums_vectors(s, op);
  Known k = {.can = sum || outline_can_repeat(op),
             .memory = op->code == OP_LOAD,
             .sums = sum && (axes_of(s, op->args[0]) & s->keys)};
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value v = op->args[i];
    const Known *x = &s->of[v];
    bool own = ir_def(s->f, v) != NULL;
    k.can &= own ? x->can : is_input(s->f, v);
    k.can &= !own || op->code != OP_LOAD || !x->memory;
    k.memory |= own && x->memory;
    k.sums |= own && x->sums;
  }
  return k;
}

// Is the axis as long as memory says?
static bool is_told(const Numbers *s, uint64_t key) {
  const DimTab *d = &s->f->mod->dims;
  uint32_t axis = 0;
  while (!(key >> axis & 1)) axis++;
  for (uint32_t i = 0; i < d->syms.n; i++)
    if (d->syms.at[i].kind == DIM_RAGGED &&
        dim_uses(d, s->f->axes.at[axis].extent, i))
      return true;
  return false;
}

static bool is_cut(const Numbers *s, Value v) {
  const Type *t = ir_type(s->f, v);
  uint64_t axes = axes_of(s, v), key = axes & s->keys;
  return t->kind == TK_ELEM && dtype_is_float(t->dtype) && s->of[v].can &&
         s->of[v].sums && key && !(key & (key - 1)) && !(axes & s->vecs) &&
         !(axes & ~key & ~s->tasks) && (s->tasks & ~axes) &&
         (!s->out.n || axes == s->axes) && !is_told(s, key);
}

// The largest such values that what is stored needs.
static bool find_cuts(Numbers *s) {
  bool *needed = NEWN(&s->cx->scratch, bool, s->f->values.n);
  s->out.n = 0;
  for (const Op *op = s->f->body->last; op; op = op->prev) {
    Value v = op->nres ? op->res[0] : 0;
    if (v && !needed[v]) continue;
    if (v && s->out.n < MAX_OUTLINED && is_cut(s, v)) {
      s->axes = axes_of(s, v);
      s->out.cut[s->out.n++] = v;
      continue;
    }
    for (uint32_t i = 0; i < op->nargs; i++) needed[op->args[i]] = true;
  }
  return s->out.n > 0;
}

// Returns the number of phases that it puts in front of f.
static uint32_t run(Ctx *cx, Func *f) {
  Numbers s = {
      .cx = cx,
      .f = f,
      .out = {.f = f, .phase = "numbers", .tensor = "made", .value = "number"}};
  uint32_t made = 0;
  if (f->kind != FK_PROGRAM || f->axes.n > 64 || !is_flat(f)) return 0;
  s.keys = ir_axes_with(f, AX_KEY);
  s.vecs = ir_axes_with(f, AX_VEC);
  s.tasks = find_tasks(f);
  while (outline_count(f) < MAX_FRONT) {
    s.of = NEWN(&cx->scratch, Known, f->values.n);
    for (const Op *op = f->body->first; op; op = op->next)
      if (op->nres) s.of[op->res[0]] = known_of(&s, op);
    if (!find_cuts(&s)) break;
    outlined_close(&s.out, &cx->scratch);
    outlined_make(&s.out, made++);
    ir_sweep(f);
    ctx_remark(cx, "%s: numbers of keys are made ahead", f->name);
  }
  return made;
}

bool pass_key_numbers(Ctx *cx, Module *m, const PassOpt *opt) {
  if (opt->few || opt->decode) return true;
  for (uint32_t i = 0; i < m->funcs.n; i++) i += run(cx, m->funcs.at[i]);
  return true;
}
