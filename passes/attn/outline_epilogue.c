// outline_epilogue: what multiplies a row's long sum over keys by a matrix is a
// phase behind.
//
//   before  func @p(%Q, ..) axes(.., q par S, k key S, d vec 256, x vec 256) {
//             %o = dot(%p, %v) {over = [k]}                 : f32{b,h,q,d}
//             %g = cast(mul(%o, %gate))                     : bf16{b,h,q,d}
//             %y = dot(%g, load(%Wo, %d, %x)) {over = [d]}  : f32{b,h,q,x}
//             store(%O, %y, %b, %h, %q, %x) }
//   after   func @p.rows(.., %o.rows: tensor<f32[B, H, S, 256]> shared) {
//             ..  store(%o.rows, %o, %b, %h, %q, %d) }
//           func @p(.., %o.rows shared) axes(.., q par S, d vec 256, x vec 256) {
//             %o = load(%o.rows, %b, %h, %q, %d)
//             %g = cast(mul(%o, %gate))
//             %y = dot(%g, load(%Wo, %d, %x)) {over = [d]}
//             store(%O, %y, %b, %h, %q, %x) }
//
// The sum takes half of a thread's registers (COST_COLUMNS_MOST elements), and
// keys and values most of the shared memory. The product needs as much again,
// for its sums and for its matrix; on its own it has both. Ends without a
// product, a gate or a norm, add up what is there and stay. A sum that is only
// scaled and rounded is handed on rounded; gates are the phase's, which may
// make its operand ahead (materialize). Not where rows are few
// (PassOpt.decode). Level attn, behind inline and canon. Tests:
// test/passes/outline_epilogue.
#include "passes/pass.h"
#include "passes/support/cost.h"
#include "passes/support/lane.h"
#include "passes/support/outline.h"

enum { MAX_SUMS = 4, MAX_ENDS = 8 };

typedef struct Epilogue {
  Func *f, *g;          // of the sums; behind
  bool *sums;           // by value: depends on a sum over keys
  Value sum[MAX_SUMS];  // that are handed on, or what is made of them
  Value tensor[MAX_SUMS];
  uint32_t n;
  bool mixes;  // it multiplies them by a matrix
  Map seen;
  // Writing:
  Builder b;
  ValueMap map;
  uint32_t axis[64];  // of f: of g
} Epilogue;

static bool over_role(const Func *f, const Op *op, AxisRole role) {
  if (op->code != OP_REDUCE && op->code != OP_DOT) return false;
  const IrAttr *over = ir_attr(op, AT_OVER);
  for (uint32_t i = 0; i < over->n; i++)
    if (f->axes.at[over->list[i]].role != role) return false;
  return true;
}

static void mark(Epilogue *e, const Op *op) {
  bool s = over_role(e->f, op, AX_KEY);
  for (uint32_t i = 0; i < op->nargs; i++) s |= e->sums[op->args[i]];
  for (uint32_t i = 0; i < op->nres; i++) e->sums[op->res[i]] = s;
}

// ---------------------------------------------------------------- finding
static bool add_sum(Epilogue *e, Value v) {
  for (uint32_t i = 0; i < e->n; i++)
    if (e->sum[i] == v) return true;
  if (e->n == MAX_SUMS) return false;
  e->sum[e->n++] = v;
  return true;
}

static bool gather(Epilogue *e, Value v);

// Is v a sum, scaled and rounded, with nothing else of the vector?
static bool is_scaled(const Epilogue *e, Value v) {
  const Op *op = ir_def(e->f, v);
  if (!op || over_role(e->f, op, AX_KEY)) return op;
  bool vec = lane_elements(e->f, ir_type(e->f, v)) > 1;
  if (!vec) return outline_can_repeat(op);
  bool scales = op->code == OP_CAST || op->code == OP_MUL || op->code == OP_DIV;
  for (uint32_t i = 0; scales && i < op->nargs; i++)
    scales = is_scaled(e, op->args[i]);
  return scales;
}

// What a matrix multiplies is handed on as it is multiplied, where that takes
// no registers more.
static bool gather_factor(Epilogue *e, Value v) {
  if (!e->sums[v]) return gather(e, v);
  return is_scaled(e, v) ? add_sum(e, v) : gather(e, v);
}

// What v is made of, down to what is handed on. False: of more than a row has.
static bool gather(Epilogue *e, Value v) {
  const Op *op = ir_def(e->f, v);
  uint64_t known;
  if (map_get(&e->seen, v, &known)) return true;
  map_put(&e->seen, v, 1);
  if (!op) return outline_is_input(e->f, v);
  if (lane_has_key(e->f, ir_type(e->f, v))) return false;
  if (over_role(e->f, op, AX_KEY)) return add_sum(e, v);
  bool adds = over_role(e->f, op, AX_VEC);
  if (!adds && !outline_can_repeat(op)) return false;
  // A product with one vector is a sum, not one with a matrix.
  bool matrix = op->code == OP_DOT && lane_elements(e->f, ir_type(e->f, v)) > 1;
  e->mixes |= matrix && e->sums[v];
  for (uint32_t i = 0; i < op->nargs; i++)
    if (matrix ? !gather_factor(e, op->args[i]) : !gather(e, op->args[i]))
      return false;
  return true;
}

static bool is_long(const Epilogue *e) {
  for (uint32_t i = 0; i < e->n; i++)
    if (lane_elements(e->f, ir_type(e->f, e->sum[i])) >= COST_COLUMNS_MOST)
      return true;
  return false;
}

// Is the store that of an end that goes behind?
static bool goes(Epilogue *e, const Op *store) {
  uint32_t had = e->n;
  e->mixes = false;
  bool ok = store->code == OP_STORE;
  for (uint32_t i = 1; ok && i < store->nargs; i++)
    ok = gather(e, store->args[i]);
  if (ok && e->mixes && is_long(e)) return true;
  e->n = had;
  return false;
}

// The only use of v, if that rounds it.
static Value rounded(const Func *f, Value v) {
  const Op *use = NULL;
  if (ir_count_uses(f, v) != 1) return v;
  for (const Op *op = ir_def(f, v); op && !use; op = op->next)
    if (ir_mentions(op, v)) use = op;
  bool cast = use && use->code == OP_CAST &&
              dtype_is_float16(ir_type(f, use->res[0])->dtype);
  return cast ? use->res[0] : v;
}

// ---------------------------------------------------------------- writing
static uint32_t coordinates(Builder *b, const Type *t, const uint32_t *axis,
                            Value *at) {
  for (uint32_t i = 0; i < t->n; i++)
    at[i] = ir_index(b, axis ? axis[t->axis[i]] : t->axis[i]);
  return t->n;
}

static void hand_on(Epilogue *e, uint32_t i) {
  Value v = rounded(e->f, e->sum[i]), at[MAX_AXES];
  const Type *t = ir_type(e->f, v);
  const char *hint = ir_info(e->f, e->sum[i])->hint;
  Dim shape[MAX_AXES];
  for (uint32_t k = 0; k < t->n; k++)
    shape[k] = e->f->axes.at[t->axis[k]].extent;
  Type tensor = type_tensor(t->dtype, t->n, shape);
  e->sum[i] = v;
  e->tensor[i] = outline_tensor(e->f, hint ? hint : "sum", "rows", tensor);
  Builder b = outline_behind(e->f, v);
  uint32_t n = coordinates(&b, t, NULL, at);
  ir_store(&b, e->tensor[i], v, at, n);
}

static Value copy(Epilogue *e, Value v) {
  if (v < e->map.n && e->map.to[v]) return e->map.to[v];
  const Op *op = ir_def(e->f, v);
  for (uint32_t i = 0; i < op->nargs; i++)
    if (ir_type(e->f, op->args[i])->kind == TK_ELEM) copy(e, op->args[i]);
  e->b.span = op->span;
  ir_clone(&e->b, e->f, op, &e->map, e->axis);
  return vmap_get(&e->map, v);
}

static void open_behind(Epilogue *e, const char *name) {
  Func *f = e->f;
  e->g = outline_func(f, "rows", 0, false);
  e->g->name = name;
  e->map = (ValueMap){.arena = f->mod->arena};
  e->b = (Builder){.fn = e->g, .region = e->g->body, .span = f->span};
  outline_params(&e->map, f, e->g);
  for (uint32_t i = 0; i < f->axes.n; i++) {
    const Axis *x = &f->axes.at[i];
    if (x->role == AX_PAR || x->role == AX_VEC)
      e->axis[i] = ir_axis(e->g, x->name, x->role, x->extent);
  }
  for (uint32_t i = 0; i < e->n; i++) {
    Value at[MAX_AXES];
    uint32_t n = coordinates(&e->b, ir_type(f, e->sum[i]), e->axis, at);
    Value x = ir_load(&e->b, vmap_get(&e->map, e->tensor[i]), at, n);
    ir_info(e->g, x)->hint = ir_info(f, e->sum[i])->hint;
    vmap_put(&e->map, e->sum[i], x);
  }
}

static void move(Epilogue *e, Op *store) {
  for (uint32_t i = 1; i < store->nargs; i++) copy(e, store->args[i]);
  e->b.span = store->span;
  ir_clone(&e->b, e->f, store, &e->map, e->axis);
  ir_erase(store);
}

// f is a phase of what is behind it, which has its name.
static void split(Epilogue *e, Op **moved, uint32_t n) {
  Func *f = e->f;
  Module *m = f->mod;
  const char *name = f->name;
  uint32_t at = 0;
  for (uint32_t i = 0; i < e->n; i++) hand_on(e, i);
  open_behind(e, name);
  for (uint32_t i = 0; i < n; i++) move(e, moved[i]);
  f->name = intern(&m->cx->names, arena_printf(m->arena, "%s.rows", name));
  vec_push(m->arena, &m->funcs, e->g);
  while (m->funcs.at[at] != f) at++;
  for (uint32_t i = m->funcs.n - 1; i > at + 1; i--)
    m->funcs.at[i] = m->funcs.at[i - 1];
  m->funcs.at[at + 1] = e->g;
}

static bool run(Ctx *cx, Func *f) {
  Epilogue e = {.f = f};
  Op *moved[MAX_ENDS];
  uint32_t n = 0;
  if (f->axes.n > 63 || lane_axis(f) < 0) return false;
  e.sums = NEWN(&cx->scratch, bool, f->values.n);
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->nregions || op->code == OP_CALL) return false;
    mark(&e, op);
  }
  for (Op *op = f->body->first; op; op = op->next) {
    e.seen = (Map){.arena = &cx->scratch};
    if (n < MAX_ENDS && goes(&e, op)) moved[n++] = op;
  }
  if (!n) return false;
  ctx_remark(cx, "%s: a phase behind multiplies a row's sums, %u, by a matrix",
             f->name, e.n);
  split(&e, moved, n);
  return true;
}

bool pass_outline_epilogue(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n && !opt->decode; i++)
    if (run(cx, m->funcs.at[i])) i++;
  return true;
}
