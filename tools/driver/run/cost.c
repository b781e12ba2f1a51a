// Operations of a call, counted in its IR at level attn. Keys count as far as
// their domain holds: 4 * D * visible pairs for softmax attention.
#include "tools/driver/run/probe.h"

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

// All points if there are few, else a sequence of low discrepancy (additive
// recurrence with the roots of x^(n+1) = x + 1).
static void coordinates(const Count *c, const Probe *p, bool all, int64_t rows,
                        int64_t *at) {
  double phi = 2;
  for (int i = 0; i < 40; i++) phi = pow(1 + phi, 1.0 / (p->n + 1));
  for (int64_t r = 0; r < rows; r++) {
    int64_t left = r;
    for (uint32_t k = p->n; k-- > 0;) {
      int64_t n = (int64_t)probe_extent(c, p->axis[k]);
      double x = (double)(r + 1) * pow(1 / phi, k + 1.0);
      at[r * p->n + k] = all ? left % n : (int64_t)((x - floor(x)) * (double)n);
      left /= n;
    }
  }
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
  return ((int64_t)probe_extent(c, axis) + by - 1) / by;
}

// Points of tile t: every key by lanes that are spread over it, the first and
// the last among them. Returns the share of all points that is in the tile.
static double tile_points(const Count *c, const Probe *p, const double *x,
                          int64_t *at) {
  int64_t lo[64] = {0}, size[64] = {0};
  double share = 1;
  for (uint32_t k = 0; k < p->n; k++) {
    int64_t ext = (int64_t)probe_extent(c, p->axis[k]),
            by = tile_of(c, p->axis[k]);
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
  probe_build(pred, s, n * per, c, &p);
  int64_t *at = NEWN(a, int64_t, n * per * p.n + 1);
  double *part = NEWN(a, double, n + 1), *hit = NEWN(a, double, n *per + 1);
  for (int64_t t = 0; t < n; t++) {
    tile_at(c, &p, t, all, x);
    part[t] = tile_points(c, &p, x, at + t * per * p.n);
  }
  if (!probe_run(c, &p, n * per, at, hit)) return false;
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
  probe_slice(c->f, a, op->args[0], &s);
  *out = (DrvKeys){c->f->axes.at[key].name, 1, 1, 1, true};
  s.axes |= (uint64_t)1 << key;
  for (uint32_t i = 0; i < c->f->axes.n; i++)
    if (s.axes >> i & 1) out->pairs *= probe_extent(c, i);
  if (s.odd || out->pairs <= 0) return true;
  out->exact = out->pairs <= EXACT_PAIRS;
  int64_t rows = out->exact ? (int64_t)out->pairs : SAMPLES;
  Probe p = {0};
  probe_build(op->args[0], &s, rows, c, &p);
  int64_t *at = NEWN(a, int64_t, rows *p.n + 1);
  double *hit = NEWN(a, double, rows);
  coordinates(c, &p, out->exact, rows, at);
  if (!probe_run(c, &p, rows, at, hit)) return false;
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
    if (axes >> i & 1) n *= probe_extent(c, i) * c->share[i & 63];
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
              bool tiles, DrvCost *out) {
  DrvSpec s;
  *out = (DrvCost){.product = DT_F32};
  if (!drv_choose(c, &s)) return false;
  Module *m = drv_lower(c->cx, s, target, LV_ATTN, opt);
  if (!m) return false;
  Count k = {.call = c, .m = m, .out = out, .lane = -1};
  if (tiles) probe_tiles(&k, target);
  for (uint32_t i = 0, n = m->funcs.n; i < n; i++) {
    Func *f = m->funcs.at[i];
    if (!ir_is_phase(f, c->prog->name)) continue;
    if (tiles) k.lane = probe_lane(c, s, opt, target, f);
    if (!count_phase(&k, f)) return false;
  }
  count_arrays(c, out);
  return true;
}
