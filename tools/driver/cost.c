// Operations of a call, counted in its IR at level attn. Keys count as far as
// their domain holds: 4 * D * visible pairs for softmax attention.
#include "tools/driver/cost.h"

#include "tools/driver/compile.h"
#include "tools/driver/forms.h"

#include <math.h>

enum {
  EXACT_PAIRS = 1 << 16,   // more are sampled
  SAMPLES = 1 << 16,
};

typedef struct Count {
  DrvCall *call;
  const Module *m;
  Func *f;
  const int64_t *dims;
  double share[64];        // visible share of each axis
  DrvCost *out;
  double largest;
} Count;

static double extent(const Count *c, uint32_t axis) {
  int64_t v = 0;
  if (!dim_eval(&c->m->dims, c->f->axes.at[axis].extent, c->dims, &v))
    return 0;
  return (double)v;
}

// ---------------------------------------------------------------- domains
// Values that p depends on, operands first.
typedef struct Slice {
  Vec(const Op *) ops;
  uint64_t axes;
  bool odd;                // something that cannot be copied
} Slice;

static void slice(const Func *f, Arena *a, Value v, Slice *s) {
  const Op *op = ir_def(f, v);
  if (!op) return;
  for (uint32_t i = 0; i < s->ops.n; i++)
    if (s->ops.at[i] == op) return;
  if (op->nregions) s->odd = true;
  for (uint32_t i = 0; i < op->nargs; i++) slice(f, a, op->args[i], s);
  if (op->code == OP_INDEX)
    s->axes |= (uint64_t)1 << ir_attr_i(op, AT_AXIS, 0);
  vec_push(a, &s->ops, op);
}

// A program `.count` beside f: for each row of `at` (coordinates of the axes)
// whether p holds.
typedef struct Probe {
  Func *f;
  uint32_t axis[64], n;    // axes of the original
} Probe;

static void copy_params(Func *to, const Func *from, ValueMap *map) {
  for (uint32_t i = 0; i < from->params.n; i++) {
    const FuncParam *p = &from->params.at[i];
    const ValueInfo *v = ir_info(from, p->v);
    ParamRole role = p->role == PR_SCALAR ? PR_SCALAR : PR_IN;
    vmap_put(map, p->v, ir_param(to, v->hint, role, v->type));
  }
}

static void build_probe(Module *m, const Func *f, Value p, const Slice *s,
                        int64_t rows, Probe *out) {
  Dim n = dim_const(&m->dims, rows);
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (s->axes >> i & 1) out->axis[out->n++] = i;
  Func *g = out->f = ir_func(m, FK_PROGRAM, ".count");
  ValueMap map = {.arena = m->arena};
  copy_params(g, f, &map);
  Dim shape[2] = {n, dim_const(&m->dims, out->n)};
  Value at = ir_param(g, ".at", PR_IN, type_tensor(DT_I64, 2, shape));
  Value hit = ir_param(g, ".hit", PR_OUT, type_tensor(DT_F64, 1, shape));
  uint32_t axis = ir_axis(g, ".n", AX_PAR, n);
  Builder b = {.fn = g, .region = g->body, .span = NOWHERE};
  Value row = ir_index(&b, axis);
  for (uint32_t i = 0; i < s->ops.n; i++) {
    const Op *op = s->ops.at[i];
    if (op->code != OP_INDEX) {
      ir_clone(&b, f, op, &map, NULL);
      continue;
    }
    uint32_t k = 0;
    while (out->axis[k] != (uint32_t)ir_attr_i(op, AT_AXIS, 0)) k++;
    Value idx[2] = {row, ir_const_i(&b, DT_I64, k)};
    vmap_put(&map, op->res[0], ir_load(&b, at, idx, 2));
  }
  Value yes = ir_const_f(&b, DT_F64, 1), no = ir_const_f(&b, DT_F64, 0);
  Value args[] = {hit, ir_3(&b, OP_SELECT, vmap_get(&map, p), yes, no), row};
  ir_op(&b, OP_STORE, args, 3, NULL, 0, NULL, 0, 0);
}

// All points if there are few, else a sequence of low discrepancy (additive
// recurrence with the roots of x^(n+1) = x + 1).
static void coordinates(const Count *c, const Probe *p, bool all, int64_t rows,
                        int64_t *at) {
  double phi = 2;
  for (int i = 0; i < 40; i++) phi = pow(1 + phi, 1.0 / (p->n + 1));
  for (int64_t r = 0; r < rows; r++) {
    int64_t left = r;
    for (uint32_t k = p->n; k-- > 0;) {
      int64_t n = (int64_t)extent(c, p->axis[k]);
      double x = (double)(r + 1) * pow(1 / phi, k + 1.0);
      at[r * p->n + k] = all ? left % n : (int64_t)((x - floor(x)) * (double)n);
      left /= n;
    }
  }
}

static bool run_probe(Count *c, const Probe *p, int64_t rows, int64_t *at,
                      double *share) {
  Ctx *cx = c->call->cx;
  uint32_t n = c->call->nargs;
  InterpTensor *args = NEWN(&cx->session, InterpTensor, n + 2);
  double *hit = NEWN(&cx->session, double, rows);
  for (uint32_t i = 0; i < n; i++)
    drv_interp_tensor(&c->call->args[i], &args[i]);
  args[n] = (InterpTensor){DT_I64, 2, {rows, p->n}, {p->n, 1}, at, 0, false};
  args[n + 1] = (InterpTensor){DT_F64, 1, {rows}, {1}, hit, 0, false};
  InterpOpt o = {.seed = 1};
  if (!ir_interp(cx, c->m, p->f->name, args, c->dims, &o)) return false;
  *share = 0;
  for (int64_t i = 0; i < rows; i++) *share += hit[i];
  *share /= (double)rows;
  return true;
}

static bool visible(Count *c, const Op *op, DrvKeys *out) {
  Arena *a = &c->call->cx->session;
  uint32_t key = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  Slice s = {0};
  slice(c->f, a, op->args[0], &s);
  *out = (DrvKeys){c->f->axes.at[key].name, 1, 1, true};
  s.axes |= (uint64_t)1 << key;
  for (uint32_t i = 0; i < c->f->axes.n; i++)
    if (s.axes >> i & 1) out->pairs *= extent(c, i);
  if (s.odd || out->pairs <= 0) return true;
  out->exact = out->pairs <= EXACT_PAIRS;
  int64_t rows = out->exact ? (int64_t)out->pairs : SAMPLES;
  Probe p = {0};
  build_probe((Module *)c->m, c->f, op->args[0], &s, rows, &p);
  int64_t *at = NEWN(a, int64_t, rows * p.n + 1);
  coordinates(c, &p, out->exact, rows, at);
  return run_probe(c, &p, rows, at, &out->visible);
}

static bool domains(Count *c) {
  for (uint32_t i = 0; i < 64; i++) c->share[i] = 1;
  for (Op *op = c->f->body->first; op; op = op->next) {
    if (op->code != OP_DOMAIN || c->out->nkeys == DRV_MAX_KEYS) continue;
    uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
    DrvKeys *k = &c->out->keys[c->out->nkeys++];
    if (!visible(c, op, k)) return false;
    c->share[axis & 63] *= k->visible;
  }
  return true;
}

// ---------------------------------------------------------------- operations
static double elements(const Count *c, uint64_t axes) {
  double n = 1;
  for (uint32_t i = 0; i < c->f->axes.n; i++)
    if (axes >> i & 1) n *= extent(c, i) * c->share[i & 63];
  return n;
}

static uint64_t axes_of(const Count *c, const Op *op) {
  uint64_t s = 0;
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Type *t = ir_type(c->f, op->args[i]);
    for (uint32_t k = 0; t->kind == TK_ELEM && k < t->n; k++)
      s |= (uint64_t)1 << t->axis[k];
  }
  return s;
}

static uint32_t vectors(const Count *c, uint64_t axes) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->f->axes.n; i++)
    n += axes >> i & 1 && c->f->axes.at[i].role == AX_VEC;
  return n;
}

static void count_dot(Count *c, const Op *op, double n) {
  c->out->products += 2 * n;
  if (n <= c->largest) return;
  c->largest = n;
  c->out->product = ir_type(c->f, op->args[0])->dtype;
}

static void count_op(void *data, Op *op) {
  Count *c = data;
  uint64_t axes = axes_of(c, op);
  double n = elements(c, axes);
  switch (op->code) {
  case OP_DOT: count_dot(c, op, n); break;
  case OP_EXP: case OP_EXP2: case OP_LOG: case OP_LOG2: case OP_TANH:
  case OP_SIGMOID: case OP_SOFTPLUS: case OP_ERF: case OP_SIN: case OP_COS:
  case OP_POW:
    c->out->functions += n;
    break;
  case OP_ADD: case OP_SUB: case OP_MUL: case OP_DIV:
    if (vectors(c, axes) >= 2) c->out->updates += n;
    break;
  default: break;
  }
}

bool drv_cost(DrvCall *c, const DrvOptions *opt, DrvCost *out) {
  Ctx *cx = c->cx;
  FeBind *binds;
  uint32_t n;
  *out = (DrvCost){.product = DT_F32};
  if (!drv_choose(c, &binds, &n)) return false;
  Module *m = drv_lower(cx, c->prog, binds, n, NULL, LV_ATTN, opt);
  Func *f = m ? ir_find(m, c->prog->name) : NULL;
  if (!f) return false;
  Count k = {.call = c, .m = m, .f = f, .out = out};
  k.dims = drv_module_dims(c, m, f);
  if (!domains(&k)) return false;
  f = k.f;
  ir_walk(f->body, count_op, &k);
  for (uint32_t i = 0; i < c->nargs; i++) {
    const DrvArg *a = &c->args[i];
    if (!a->scalar)
      out->bytes += (double)a->array.count * dtype_size(a->dtype) *
                    (a->param->qual == PQ_INOUT ? 2 : 1);
  }
  return true;
}
