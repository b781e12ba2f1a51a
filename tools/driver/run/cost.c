// Operations of a call, counted in its IR at level attn. Keys count as far as
// their domain holds: 4 * D * visible pairs for softmax attention.
#include "tools/driver/run/cost.h"

#include "tools/driver/compile/compile.h"
#include "tools/driver/run/forms.h"
#include "tools/plan/plan.h"

#include <math.h>
#include <string.h>

enum {
  EXACT_PAIRS = 1 << 16,  // more are sampled
  SAMPLES = 1 << 16,
  TILE_ROWS = 17,   // lanes of a tile that are tried, all its keys
  MAX_TILES = 512,  // more are sampled
};

typedef struct Count {
  DrvCall *call;
  Module *m;
  Func *f;
  const int64_t *dims;
  double share[64];  // visible (touched) share of each axis
  uint32_t first;    // of out->keys: those of f
  uint32_t axis[DRV_MAX_KEYS];
  int lane;  // the axis that is tiled, -1: none
  int64_t tile_q, tile_k;
  DrvCost *out;
  double largest;
} Count;

static double extent(const Count *c, uint32_t axis) {
  int64_t v = 0;
  if (!dim_eval(&c->m->dims, c->f->axes.at[axis].extent, c->dims, &v)) return 0;
  return (double)v;
}

// ---------------------------------------------------------------- domains
// Values that p depends on, operands first.
typedef struct Slice {
  Vec(const Op *) ops;
  uint64_t axes;
  bool odd;  // something that cannot be copied
} Slice;

// What a phase before makes is not there yet.
static bool is_made(const Func *f, Value v) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == v) return f->params.at[i].role == PR_SHARED;
  return false;
}

static void slice(const Func *f, Arena *a, Value v, Slice *s) {
  const Op *op = ir_def(f, v);
  if (!op) {
    s->odd = s->odd || is_made(f, v);
    return;
  }
  for (uint32_t i = 0; i < s->ops.n; i++)
    if (s->ops.at[i] == op) return;
  if (op->nregions) s->odd = true;
  for (uint32_t i = 0; i < op->nargs; i++) slice(f, a, op->args[i], s);
  if (op->code == OP_INDEX) s->axes |= (uint64_t)1 << ir_attr_i(op, AT_AXIS, 0);
  vec_push(a, &s->ops, op);
}

// A program beside f: for each row of `at` (coordinates of the axes)
// whether p holds.
typedef struct Probe {
  Func *f;
  uint32_t axis[64], n;  // axes of the original
} Probe;

static void copy_params(Func *to, const Func *from, ValueMap *map) {
  for (uint32_t i = 0; i < from->params.n; i++) {
    const FuncParam *p = &from->params.at[i];
    const ValueInfo *v = ir_info(from, p->v);
    ParamRole role = p->role == PR_SCALAR ? PR_SCALAR : PR_IN;
    if (p->role == PR_SHARED) continue;
    vmap_put(map, p->v, ir_param(to, v->hint, role, v->type));
  }
}

// A copy of a load. Of keys behind a sequence's end its index may be none of
// the tensor's: the domain excludes them whatever is read.
static void copy_load(Builder *b, const Func *f, const Op *op, ValueMap *map) {
  const Type *t = ir_type(f, op->args[0]);
  Value was[MAX_AXES];
  for (uint32_t i = 1; i < op->nargs; i++) {
    Value x = was[i - 1] = vmap_get(map, op->args[i]);
    Dim last = dim_sub(&b->fn->mod->dims, t->size[i - 1],
                       dim_const(&b->fn->mod->dims, 1));
    x = ir_2(b, OP_MIN, ir_cast(b, DT_I64, x), ir_dim(b, last));
    vmap_put(map, op->args[i], ir_2(b, OP_MAX, x, ir_int(b, 0)));
  }
  ir_clone(b, f, op, map, NULL);
  for (uint32_t i = 1; i < op->nargs; i++)
    vmap_put(map, op->args[i], was[i - 1]);
}

static void build_probe(Value p, const Slice *s, int64_t rows, const Count *c,
                        Probe *out) {
  Module *m = c->m;
  const Func *f = c->f;
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
    if (op->code == OP_LOAD) copy_load(&b, f, op, &map);
    else if (op->code != OP_INDEX) ir_clone(&b, f, op, &map, NULL);
    if (op->code != OP_INDEX) continue;
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
                      double *hit) {
  Ctx *cx = c->call->cx;
  uint32_t n = c->call->nargs;
  InterpTensor *args = NEWN(&cx->session, InterpTensor, n + 2);
  for (uint32_t i = 0; i < n; i++)
    drv_interp_tensor(&c->call->args[i], &args[i]);
  args[n] = (InterpTensor){DT_I64, 2, {rows, p->n}, {p->n, 1}, at, 0, false};
  args[n + 1] = (InterpTensor){DT_F64, 1, {rows}, {1}, hit, 0, false};
  InterpOpt o = {.seed = 1};
  bool ok = ir_interp(cx, c->m, p->f->name, args, c->dims, &o);
  c->m->funcs.n--;  // the next probe has the same name
  return ok;
}

static double mean(const double *v, int64_t n) {
  double s = 0;
  for (int64_t i = 0; i < n; i++) s += v[i];
  return n ? s / (double)n : 0;
}

// ---------------------------------------------------------------- tiles
static int64_t tile_of(const Count *c, uint32_t axis) {
  if ((int)axis == c->lane) return c->tile_q;
  return c->f->axes.at[axis].role == AX_KEY ? c->tile_k : 1;
}

static int64_t tiles_along(const Count *c, uint32_t axis) {
  int64_t by = tile_of(c, axis);
  return ((int64_t)extent(c, axis) + by - 1) / by;
}

// Points of tile t: every key by lanes that are spread over it, the first and
// the last among them. Returns the share of all points that is in the tile.
static double tile_points(const Count *c, const Probe *p, const double *x,
                          int64_t *at) {
  int64_t lo[64], size[64];
  double share = 1;
  for (uint32_t k = 0; k < p->n; k++) {
    int64_t ext = (int64_t)extent(c, p->axis[k]), by = tile_of(c, p->axis[k]);
    lo[k] = (int64_t)(x[k] * (double)tiles_along(c, p->axis[k])) * by;
    size[k] = ext - lo[k] < by ? ext - lo[k] : by;
    share *= (double)size[k];
  }
  for (int64_t r = 0; r < TILE_ROWS * c->tile_k; r++, at += p->n)
    for (uint32_t k = 0; k < p->n; k++) {
      bool lane = (int)p->axis[k] == c->lane;
      int64_t i = lane ? r % TILE_ROWS * (size[k] - 1) / (TILE_ROWS - 1)
                       : r / TILE_ROWS;
      at[k] = lo[k] + (i < size[k] ? i : size[k] - 1);
    }
  return share;
}

// The n-th of all tiles, or of a sequence of low discrepancy, as fractions.
static void tile_at(const Count *c, const Probe *p, int64_t n, bool all,
                    double *x) {
  double phi = 2;
  for (int i = 0; i < 40; i++) phi = pow(1 + phi, 1.0 / (p->n + 1));
  for (uint32_t k = p->n; k-- > 0;) {
    double y = (double)(n + 1) * pow(1 / phi, k + 1.0);
    int64_t tiles = tiles_along(c, p->axis[k]);
    x[k] = all ? ((double)(n % tiles) + 0.5) / (double)tiles : y - floor(y);
    n /= all ? tiles : 1;
  }
}

// Share of the points that lie in tiles where the probe hits anywhere.
static bool touched(Count *c, Value pred, const Slice *s, double *share) {
  Arena *a = &c->call->cx->session;
  double tiles = 1, sum = 0, seen = 0, x[64];
  int64_t per = TILE_ROWS * c->tile_k;
  for (uint32_t i = 0; i < c->f->axes.n; i++)
    if (s->axes >> i & 1) tiles *= (double)tiles_along(c, i);
  bool all = tiles <= MAX_TILES;
  int64_t n = all ? (int64_t)tiles : MAX_TILES;
  Probe p = {0};
  build_probe(pred, s, n * per, c, &p);
  int64_t *at = NEWN(a, int64_t, n * per * p.n + 1);
  double *part = NEWN(a, double, n + 1), *hit = NEWN(a, double, n *per + 1);
  for (int64_t t = 0; t < n; t++) {
    tile_at(c, &p, t, all, x);
    part[t] = tile_points(c, &p, x, at + t * per * p.n);
  }
  if (!run_probe(c, &p, n * per, at, hit)) return false;
  for (int64_t t = 0; t < n; t++) {
    seen += part[t];
    sum += mean(hit + t * per, per) > 0 ? part[t] : 0;
  }
  *share = sum / seen;
  return true;
}

static bool visible(Count *c, const Op *op, DrvKeys *out) {
  Arena *a = &c->call->cx->session;
  uint32_t key = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  Slice s = {0};
  slice(c->f, a, op->args[0], &s);
  *out = (DrvKeys){c->f->axes.at[key].name, 1, 1, 1, true};
  s.axes |= (uint64_t)1 << key;
  for (uint32_t i = 0; i < c->f->axes.n; i++)
    if (s.axes >> i & 1) out->pairs *= extent(c, i);
  if (s.odd || out->pairs <= 0) return true;
  out->exact = out->pairs <= EXACT_PAIRS;
  int64_t rows = out->exact ? (int64_t)out->pairs : SAMPLES;
  Probe p = {0};
  build_probe(op->args[0], &s, rows, c, &p);
  int64_t *at = NEWN(a, int64_t, rows *p.n + 1);
  double *hit = NEWN(a, double, rows);
  coordinates(c, &p, out->exact, rows, at);
  if (!run_probe(c, &p, rows, at, hit)) return false;
  out->visible = out->touched = mean(hit, rows);
  if (c->lane < 0) return true;
  s.axes |= (uint64_t)1 << c->lane;
  return touched(c, op->args[0], &s, &out->touched);
}

static bool domains(Count *c) {
  for (Op *op = c->f->body->first; op; op = op->next) {
    if (op->code != OP_DOMAIN || c->out->nkeys == DRV_MAX_KEYS) continue;
    c->axis[c->out->nkeys] = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
    if (!visible(c, op, &c->out->keys[c->out->nkeys++])) return false;
  }
  return true;
}

static void set_shares(Count *c, bool touched) {
  for (uint32_t i = 0; i < 64; i++) c->share[i] = 1;
  for (uint32_t i = c->first; i < c->out->nkeys; i++) {
    const DrvKeys *k = &c->out->keys[i];
    c->share[c->axis[i] & 63] *= touched ? k->touched : k->visible;
  }
}

// ---------------------------------------------------------------- operations
static double elements(const Count *c, uint64_t axes) {
  double n = 1;
  for (uint32_t i = 0; i < c->f->axes.n; i++)
    if (axes >> i & 1) n *= extent(c, i) * c->share[i & 63];
  return n;
}

static uint32_t vectors(const Count *c, uint64_t axes) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->f->axes.n; i++)
    n += axes >> i & 1 && c->f->axes.at[i].role == AX_VEC;
  return n;
}

static void count_dot(Count *c, const Op *op, double n) {
  if (n <= c->largest) return;
  c->largest = n;
  c->out->product = ir_type(c->f, op->args[0])->dtype;
}

static void count_touched(void *data, Op *op) {
  Count *c = data;
  PlanOp x = plan_op(c->f, op);
  c->out->touched += x.products * elements(c, x.axes);
}

static void count_op(void *data, Op *op) {
  Count *c = data;
  PlanOp x = plan_op(c->f, op);
  double n = elements(c, x.axes);
  c->out->products += x.products * n;
  c->out->functions += x.functions * n;
  switch (op->code) {
  case OP_DOT: count_dot(c, op, n); break;
  case OP_ADD:
  case OP_SUB:
  case OP_MUL:
  case OP_DIV:
    if (vectors(c, x.axes) >= 2) c->out->updates += n;
    break;
  default: break;
  }
}

// The axis whose coordinates the pass `tile` makes lanes of.
static int lane_axis(DrvCall *c, DrvSpec s, const DrvOptions *opt,
                     const Target *target, const Func *f) {
  uint32_t remarks = c->cx->remarks.n;
  DrvOptions quiet = *opt;
  quiet.print_after_all = quiet.time_passes = false;
  quiet.dump_dir = NULL;
  Module *m = drv_lower(c->cx, s, target, LV_TILE, &quiet);
  const Func *g = m ? ir_find(m, f->name) : NULL;
  c->cx->remarks.n = remarks;
  for (uint32_t i = 0; g && i < g->grid.n; i++) {
    const char *name = g->axes.at[g->grid.at[i].axis].name;
    for (uint32_t a = 0; g->grid.at[i].tile > 1 && a < f->axes.n; a++)
      if (strcmp(f->axes.at[a].name, name) == 0) return (int)a;
  }
  return -1;
}

// Adds what f does; a gradient is several functions.
static bool count_phase(Count *k, Func *f) {
  k->f = f;
  k->first = k->out->nkeys;
  k->dims = drv_module_dims(k->call, k->m, f);
  if (!domains(k)) return false;
  set_shares(k, true);
  ir_walk(f->body, count_touched, k);
  set_shares(k, false);
  ir_walk(f->body, count_op, k);
  return true;
}

static void count_arrays(const DrvCall *c, DrvCost *out) {
  for (uint32_t i = 0; i < c->nargs; i++) {
    const DrvArg *a = &c->args[i];
    if (!a->scalar)
      out->bytes += (double)a->array.count * dtype_size(a->dtype) *
                    (a->param->qual == PQ_INOUT ? 2 : 1);
  }
}

bool drv_cost(DrvCall *c, const DrvOptions *opt, const Target *target,
              DrvCost *out) {
  DrvSpec s;
  *out = (DrvCost){.product = DT_F32};
  if (!drv_choose(c, &s)) return false;
  Module *m = drv_lower(c->cx, s, NULL, LV_ATTN, opt);
  if (!m) return false;
  Count k = {.call = c, .m = m, .out = out, .lane = -1};
  if (target) {
    bool gpu = target->kind == TARGET_GPU;  // whose tiles vary
    k.tile_q = gpu ? 128 : target->tile_q;
    k.tile_k = gpu ? 128 : target->tile_k;
  }
  for (uint32_t i = 0, n = m->funcs.n; i < n; i++) {
    Func *f = m->funcs.at[i];
    if (!ir_is_phase(f, c->prog->name)) continue;
    if (target) k.lane = lane_axis(c, s, opt, target, f);
    if (!count_phase(&k, f)) return false;
  }
  count_arrays(c, out);
  return true;
}
