// The oracle's expressions.
#include "frontend/oraclecore.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- values
Val *oracle_scalar(Oracle *o, double v) {
  Val *r = oracle_array(o, 0, NULL);
  r->at[0] = v;
  return r;
}

Val *oracle_array(Oracle *o, uint32_t rank, const int64_t *shape) {
  Val *r = NEW(&o->arena, Val);
  r->rank = rank;
  r->n = 1;
  for (uint32_t i = 0; i < rank; i++) {
    r->shape[i] = shape[i];
    r->n *= shape[i];
  }
  r->at = NEWN(&o->arena, double, r->n > 0 ? r->n : 1);
  return r;
}

double oracle_num(const Val *v) {
  return v->at[0];
}

uint64_t oracle_key(const Frame *f, const void *node, uint64_t vary) {
  uint64_t h = map_hash(&node, sizeof node, 1);
  for (uint32_t i = 0; i < f->d->indices.n && i < 64; i++)
    if (vary >> i & 1) h = map_hash(&f->idx[i], sizeof(int64_t), h + i);
  return h;
}

// ---------------------------------------------------------------- elementwise
static double floor_div(double a, double b) {
  return floor(a / b);
}

static bool empty_row(Oracle *o, Frame *f, const Expr *e, int depth);

double oracle_binary(int op, double a, double b) {
  switch (op) {
  case BO_ADD: return a + b;
  case BO_SUB: return a - b;
  case BO_MUL: return a * b;
  case BO_DIV: return a / b;
  case BO_FLOORDIV: return floor_div(a, b);
  case BO_MOD: return a - b * floor_div(a, b);
  case BO_POW: return pow(a, b);
  case BO_LT: return a < b;
  case BO_GT: return a > b;
  case BO_LE: return a <= b;
  case BO_GE: return a >= b;
  case BO_EQ: return a == b;
  case BO_NE: return a != b;
  case BO_AND: return a != 0 && b != 0;
  case BO_OR: return a != 0 || b != 0;
  default: return NAN;
  }
}

static double nan_max(double a, double b) {
  return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}
static double nan_min(double a, double b) {
  return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
}

static double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}
static double softplus(double x) {
  return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

double oracle_function(int builtin, double x) {
  switch (builtin) {
#define FUNCTION(name, op, value, slope, sig, doc) \
  case BI_##name: return value;
#include "frontend/builtins.def"
  case BI_silu: return x / (1 + exp(-x));
  case BI_abs: return fabs(x);
  default: return NAN;
  }
}

double oracle_slope(int builtin, double x) {
  switch (builtin) {
#define FUNCTION(name, op, value, slope, sig, doc) \
  case BI_##name: return slope;
#include "frontend/builtins.def"
  case BI_silu: return sigmoid(x) * (1 + x * sigmoid(-x));
  case BI_abs: return (x > 0) - (x < 0);
  default: return NAN;
  }
}

// The shape of a checked type at this frame.
static Val *new_of(Oracle *o, Frame *f, const Ty *ty) {
  int64_t shape[MAX_RANK] = {0};
  for (uint32_t i = 0; i < ty->rank; i++)
    shape[i] = oracle_dim(o, f, ty->shape[i], NULL);
  return oracle_array(o, ty->rank, shape);
}

// Offset in `v` (typed `from`) of element i of a value typed `to`.
typedef struct Lane {
  const Val *v;
  uint8_t map[MAX_RANK];
  bool same;  // v has the value's shape
} Lane;

static Lane lane(Frame *f, const Val *v, const Ty *from, const Val *r,
                 const Ty *to) {
  Lane l = {.v = v, .same = v->rank == r->rank};
  if (v->rank && !fe_align(f->d->dims, from, to, l.map))
    for (uint32_t i = 0; i < v->rank && i < MAX_RANK; i++)
      l.map[i] = (uint8_t)(to->rank - v->rank + i);
  for (uint32_t i = 0; i < v->rank && l.same; i++)
    l.same = l.map[i] == i && v->shape[i] == r->shape[i];
  return l;
}

static int64_t lane_at(const Lane *l, const Val *shape, int64_t i) {
  if (!l->v->rank) return 0;
  if (l->same) return i;
  int64_t c[MAX_RANK], off = 0;
  for (uint32_t k = shape->rank; k-- > 0;) {
    c[k] = i % shape->shape[k];
    i /= shape->shape[k];
  }
  for (uint32_t k = 0; k < l->v->rank; k++)
    off = off * l->v->shape[k] + (l->v->shape[k] == 1 ? 0 : c[l->map[k]]);
  return off;
}

// r[i] is what l has there.
static void take(Oracle *o, Val *r, int64_t i, const Lane *l) {
  int64_t from = lane_at(l, r, i);
  r->at[i] = l->v->at[from];
  oracle_flow(o, r, i, l->v, from, 1);
}

// The left side of & and | that decides alone: the right one may have an index
// that is out of range.
static bool decides(const Expr *e, const Val *left) {
  if (e->ty.rank || left->rank) return false;
  bool holds = oracle_num(left) != 0;
  return (e->op == BO_AND && !holds) || (e->op == BO_OR && holds);
}

static Val *eval_binary(Oracle *o, Frame *f, const Expr *e) {
  Val *a = oracle_eval(o, f, e->a);
  if (!o->failed && decides(e, a)) return oracle_scalar(o, e->op == BO_OR);
  Val *b = oracle_eval(o, f, e->b);
  bool plain = !a->rank && !b->rank;
  Val *r = plain ? oracle_array(o, 0, NULL) : new_of(o, f, &e->ty);
  Lane x = lane(f, a, &e->a->ty, r, &e->ty);
  Lane y = lane(f, b, &e->b->ty, r, &e->ty);
  int empty = -1;
  bool rounds = o->dual && dtype_is_float(e->ty.dtype);
  for (int64_t i = 0; i < r->n; i++) {
    int64_t ai = lane_at(&x, r, i), bi = lane_at(&y, r, i);
    double p = a->at[ai], q = b->at[bi];
    if (rounds) {
      p = oracle_round(o, p);
      q = oracle_round(o, q);
    }
    if (e->op == BO_DIV && q == 0 && empty < 0) empty = empty_row(o, f, e, 0);
    if (e->op == BO_DIV && q == 0 && empty > 0) continue;
    r->at[i] = oracle_binary(e->op, p, q);
    if (o->lanes) oracle_flow2(o, e->op, r, i, (At){a, ai}, (At){b, bi});
  }
  return r;
}

// [K]@@[K,N], [M,K]@@[K], [M,K]@@[K,N], [K]@@[K].
static Val *eval_matmul(Oracle *o, Frame *f, const Expr *e) {
  Val *a = oracle_eval(o, f, e->a), *b = oracle_eval(o, f, e->b);
  int64_t k = b->shape[0], m = a->rank == 2 ? a->shape[0] : 1;
  int64_t n = b->rank == 2 ? b->shape[1] : 1;
  int64_t shape[2] = {m, n};
  uint32_t rank = (uint32_t)(a->rank + b->rank - 2);
  Val *r = oracle_array(o, rank, a->rank == 2 ? shape : shape + 1);
  for (int64_t i = 0; i < m; i++)
    for (int64_t t = 0; t < k; t++)
      for (int64_t j = 0; j < n; j++) {
        int64_t at = i * n + j, ai = i * k + t, bi = t * n + j;
        r->at[at] += a->at[ai] * b->at[bi];
        oracle_flow2(o, BO_MUL, r, at, (At){a, ai}, (At){b, bi});
      }
  return r;
}

// A function of one number with its derivative.
typedef struct Fn1 {
  double (*value)(int, double), (*slope)(int, double);
} Fn1;

static Val *map1(Oracle *o, const Val *x, Fn1 fn, int op) {
  Val *r = oracle_array(o, x->rank, x->shape);
  for (int64_t i = 0; i < x->n; i++) {
    r->at[i] = fn.value(op, x->at[i]);
    if (x->dx) oracle_flow(o, r, i, x, i, fn.slope(op, x->at[i]));
  }
  return r;
}

static double negate(int op, double x) {
  return op == UO_NEG ? -x : x == 0;
}

static double negate_slope(int op, double x) {
  (void)x;
  return op == UO_NEG ? -1 : 0;
}

// Arithmetic is exact, so that f32 rounds nothing; narrower types do.
static double convert(int dtype, double x) {
  bool wide = dtype == DT_F64 || dtype == DT_F32 || dtype == DT_TF32;
  return wide ? x : dtype_round((DType)dtype, x);
}

// Rounding passes derivatives on as they are; integers have none.
static double convert_slope(int dtype, double x) {
  (void)x;
  return dtype_is_float((DType)dtype);
}

static const Fn1 negation = {negate, negate_slope},
                 conversion = {convert, convert_slope},
                 function = {oracle_function, oracle_slope};

static Val *eval_chain(Oracle *o, Frame *f, const Expr *e) {
  for (uint32_t i = 0; i < e->ops.n; i++) {
    double x = oracle_num(oracle_eval(o, f, e->list.at[i]));
    double y = oracle_num(oracle_eval(o, f, e->list.at[i + 1]));
    if (oracle_binary(e->ops.at[i], x, y) == 0) return oracle_scalar(o, 0);
  }
  return oracle_scalar(o, 1);
}

// Only the side that is taken is evaluated (per element if c is a vector).
static Val *choose(Oracle *o, Frame *f, const Expr *e, const Expr *c,
                   const Expr *a, const Expr *b) {
  Val *cv = oracle_eval(o, f, c);
  if (!cv->rank) {
    const Expr *side = oracle_num(cv) != 0 ? a : b;
    Val *v = oracle_eval(o, f, side);
    if (v->rank == e->ty.rank) return v;
    Val *r = new_of(o, f, &e->ty);
    Lane l = lane(f, v, &side->ty, r, &e->ty);
    for (int64_t i = 0; i < r->n; i++) take(o, r, i, &l);
    return r;
  }
  Val *r = new_of(o, f, &e->ty);
  Val *x = oracle_eval(o, f, a), *y = oracle_eval(o, f, b);
  Lane lc = lane(f, cv, &c->ty, r, &e->ty), lx = lane(f, x, &a->ty, r, &e->ty),
       ly = lane(f, y, &b->ty, r, &e->ty);
  for (int64_t i = 0; i < r->n; i++)
    take(o, r, i, cv->at[lane_at(&lc, r, i)] != 0 ? &lx : &ly);
  return r;
}

// ---------------------------------------------------------------- builtins
static const Expr *operand(const Expr *e, uint32_t i) {
  bool pipe = e->kind == EX_PIPE;
  if (pipe && i == 0) return e->a;
  uint32_t want = i - pipe, seen = 0;
  for (uint32_t k = 0; k < e->args.n; k++) {
    if (e->args.at[k].kind == ARG_NAMED) continue;
    if (seen++ == want) return e->args.at[k].value;
  }
  return NULL;
}

static uint32_t operands(const Expr *e) {
  uint32_t n = e->kind == EX_PIPE;
  for (uint32_t k = 0; k < e->args.n; k++) n += e->args.at[k].kind != ARG_NAMED;
  return n;
}

static void scale_tangents(const Oracle *o, Val *r, int64_t i, double by) {
  double *dx = r->dx ? r->dx[i] : NULL;
  for (uint32_t l = 0; dx && l < o->lanes; l++) dx[l] *= by;
}

static Val *accumulate(Oracle *o, Val *acc, const Val *x, int b) {
  if (!acc) {
    acc = oracle_array(o, x->rank, x->shape);
    double init = b == BI_prod || b == BI_all ? 1
                  : b == BI_max               ? -INFINITY
                  : b == BI_min               ? INFINITY
                                              : 0;
    for (int64_t i = 0; i < acc->n; i++) acc->at[i] = init;
  }
  for (int64_t i = 0; i < acc->n && i < x->n; i++) {
    double *a = &acc->at[i], v = x->at[i];
    switch (b) {
    case BI_prod:
      scale_tangents(o, acc, i, v);
      oracle_flow(o, acc, i, x, i, *a);
      *a *= v;
      break;
    case BI_max: *a = nan_max(*a, v); break;
    case BI_min: *a = nan_min(*a, v); break;
    case BI_any: *a = *a != 0 || v != 0; break;
    case BI_all: *a = *a != 0 && v != 0; break;
    case BI_count: *a += v != 0; break;
    default:
      *a += v;
      if (x->dx) oracle_flow(o, acc, i, x, i, 1);
      break;
    }
  }
  return acc;
}

static Val *eval_reduce(Oracle *o, Frame *f, const Expr *e) {
  int b = e->sym->builtin;
  uint32_t at = e->binder->index_id;
  const Expr *x = operand(e, 0);
  const Keys *keys = oracle_keys(o, f, e->binder);
  int64_t saved = f->idx[at];
  Val *acc = NULL, **all = NEWN(&o->arena, Val *, keys->n + 1);
  for (int64_t i = 0; i < keys->n && !o->failed; i++) {
    f->idx[at] = keys->at[i];
    all[i] = oracle_eval(o, f, x);
    acc = accumulate(o, acc, all[i], b);
  }
  f->idx[at] = saved;
  if (acc && !o->failed && (b == BI_max || b == BI_min))
    oracle_flow_most(o, acc, all, keys->n);
  if (!acc) {  // empty: the identity in the operand's shape
    Val *zero = new_of(o, f, &e->ty);
    acc = accumulate(o, NULL, zero, b);
    double id = b == BI_prod || b == BI_all ? 1
                : b == BI_max               ? -INFINITY
                : b == BI_min               ? INFINITY
                                            : 0;
    for (int64_t i = 0; i < acc->n; i++) acc->at[i] = id;
  }
  for (int64_t i = 0; b == BI_mean && keys->n && i < acc->n; i++) {
    acc->at[i] /= (double)keys->n;
    scale_tangents(o, acc, i, 1 / (double)keys->n);
  }
  return acc;
}

// The whole row of running values is remembered.
static Val *eval_scan(Oracle *o, Frame *f, const Expr *e) {
  uint32_t at = e->binder->index_id;
  uint64_t key = oracle_key(f, e, e->vary & ~((uint64_t)1 << at)), got;
  const Keys *keys = oracle_keys(o, f, e->binder);
  Val **row;
  if (map_get(&f->memo, key, &got)) {
    row = (Val **)(uintptr_t)got;
  } else {
    row = NEWN(&o->arena, Val *, keys->n + 1);
    bool suffix = e->sym->builtin == BI_suffix_sum;
    int64_t saved = f->idx[at];
    Val *run = NULL;
    for (int64_t s = 0; s < keys->n && !o->failed; s++) {
      int64_t i = suffix ? keys->n - 1 - s : s;
      f->idx[at] = keys->at[i];
      Val *x = oracle_eval(o, f, operand(e, 0));
      Val *next = oracle_array(o, x->rank, x->shape);
      for (int64_t j = 0; j < x->n; j++)
        next->at[j] = (run ? run->at[j] : 0) + x->at[j];
      if (run) oracle_carry(o, next, 0, run);
      oracle_carry(o, next, 0, x);
      Val *before = run ? run : oracle_array(o, x->rank, x->shape);
      row[i] = fe_exclusive(e) ? before : next;
      run = next;
    }
    f->idx[at] = saved;
    map_put(&f->memo, key, (uint64_t)(uintptr_t)row);
  }
  for (int64_t i = 0; i < keys->n; i++)
    if (keys->at[i] == f->idx[at] && row[i]) return row[i];
  return new_of(o, f, &e->ty);  // outside the domain: never needed
}

typedef struct Score {
  float s;
  int64_t at;
} Score;

// Larger first, of equal ones the lower key; NaN last.
static int by_score(const void *a, const void *b) {
  const Score *x = a, *y = b;
  if (isnan(x->s) != isnan(y->s)) return isnan(x->s) ? 1 : -1;
  if (x->s != y->s && !isnan(x->s)) return x->s < y->s ? 1 : -1;
  return x->at < y->at ? -1 : x->at > y->at;
}

// Which keys of a row are chosen, by their place in it.
static double *chosen_keys(Oracle *o, Frame *f, const Expr *e,
                           const Keys *keys) {
  uint32_t at = e->binder->index_id;
  int64_t saved = f->idx[at];
  Score *row = NEWN(&o->arena, Score, keys->n + 1);
  double *on = NEWN(&o->arena, double, keys->n + 1);
  double n = oracle_num(oracle_eval(o, f, operand(e, 1)));
  for (int64_t i = 0; i < keys->n && !o->failed; i++) {
    f->idx[at] = keys->at[i];
    row[i] = (Score){(float)oracle_num(oracle_eval(o, f, operand(e, 0))), i};
  }
  f->idx[at] = saved;
  qsort(row, (size_t)keys->n, sizeof *row, by_score);
  for (int64_t i = 0; i < keys->n && (double)i < n; i++)
    on[row[i].at] = !isnan(row[i].s);
  return on;
}

static Val *eval_topk(Oracle *o, Frame *f, const Expr *e) {
  uint32_t at = e->binder->index_id;
  uint64_t key = oracle_key(f, e, e->vary & ~((uint64_t)1 << at)), got;
  const Keys *keys = oracle_keys(o, f, e->binder);
  if (!map_get(&f->memo, key, &got)) {
    got = (uint64_t)(uintptr_t)chosen_keys(o, f, e, keys);
    map_put(&f->memo, key, got);
  }
  const double *on = (const double *)(uintptr_t)got;
  for (int64_t i = 0; i < keys->n; i++)
    if (keys->at[i] == f->idx[at]) return oracle_scalar(o, on[i]);
  return oracle_scalar(o, 0);  // outside the domain: never needed
}

static Val *eval_vec(Oracle *o, Frame *f, const Expr *e) {
  uint32_t at = e->binder->index_id;
  int64_t n = oracle_dim(o, f, e->binder->dim, NULL), saved = f->idx[at];
  Val *r = new_of(o, f, &e->ty);
  for (int64_t i = 0; i < n && !o->failed; i++) {
    f->idx[at] = i;
    Val *x = oracle_eval(o, f, operand(e, 0));
    memcpy(r->at + i * x->n, x->at, sizeof(double) * (size_t)x->n);
    oracle_carry(o, r, i * x->n, x);
  }
  f->idx[at] = saved;
  return r;
}

static Val *eval_concat(Oracle *o, Frame *f, const Expr *e) {
  Val *r = new_of(o, f, &e->ty);
  int64_t at = 0;
  for (uint32_t i = 0; i < operands(e); i++) {
    Val *x = oracle_eval(o, f, operand(e, i));
    memcpy(r->at + at, x->at, sizeof(double) * (size_t)x->n);
    oracle_carry(o, r, at, x);
    at += x->n;
  }
  return r;
}

static Val *eval_dot(Oracle *o, Frame *f, const Expr *e) {
  Val *a = oracle_eval(o, f, operand(e, 0));
  Val *b = oracle_eval(o, f, operand(e, 1));
  Val *r = oracle_scalar(o, 0);
  for (int64_t i = 0; i < a->n && i < b->n; i++) {
    r->at[0] += a->at[i] * b->at[i];
    oracle_flow2(o, BO_MUL, r, 0, (At){a, i}, (At){b, i});
  }
  return r;
}

static Val *eval_outer(Oracle *o, Frame *f, const Expr *e) {
  Val *a = oracle_eval(o, f, operand(e, 0));
  Val *b = oracle_eval(o, f, operand(e, 1));
  int64_t shape[2] = {a->n, b->n};
  Val *r = oracle_array(o, 2, shape);
  for (int64_t i = 0; i < a->n; i++)
    for (int64_t j = 0; j < b->n; j++) {
      r->at[i * b->n + j] = a->at[i] * b->at[j];
      oracle_flow2(o, BO_MUL, r, i * b->n + j, (At){a, i}, (At){b, j});
    }
  return r;
}

// max, min, clamp of several operands, aligned.
static Val *eval_many(Oracle *o, Frame *f, const Expr *e) {
  int b = e->sym->builtin;
  Val *r = NULL;
  for (uint32_t k = 0; k < operands(e); k++) {
    const Expr *x = operand(e, k);
    Val *v = oracle_eval(o, f, x), *next = new_of(o, f, &e->ty);
    Lane l = lane(f, v, &x->ty, next, &e->ty);
    bool low = b == BI_min || (b == BI_clamp && k == 2);
    for (int64_t i = 0; i < next->n; i++) {
      int64_t from = lane_at(&l, next, i);
      double y = v->at[from];
      next->at[i] = !r ? y : low ? nan_min(r->at[i], y) : nan_max(r->at[i], y);
      if (r) oracle_flow_either(o, next, i, (At){r, i}, (At){v, from});
      else oracle_flow(o, next, i, v, from, 1);
    }
    r = next;
  }
  return r ? r : oracle_scalar(o, NAN);
}

static double number_of_bits(double x) {
  uint32_t bits = (uint32_t)dtype_int(x);
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static Val *eval_random(Oracle *o, Frame *f, const Expr *e) {
  enum { MOST = 5 };
  uint32_t n = operands(e);
  Lane at[MOST];
  Val *r = new_of(o, f, &e->ty);
  for (uint32_t k = 0; k < n; k++) {
    const Expr *x = operand(e, k);
    at[k] = lane(f, oracle_eval(o, f, x), &x->ty, r, &e->ty);
  }
  for (int64_t i = 0; i < r->n; i++) {
    double x[MOST];
    for (uint32_t k = 0; k < n; k++) x[k] = at[k].v->at[lane_at(&at[k], r, i)];
    r->at[i] = e->sym->builtin == BI_from_bits ? number_of_bits(x[0])
                                               : oracle_random(x, n - 1);
  }
  return r;
}

static Val *without_tangents(Oracle *o, const Val *x) {
  Val *r = oracle_array(o, x->rank, x->shape);
  memcpy(r->at, x->at, sizeof(double) * (size_t)x->n);
  return r;
}

static Val *eval_builtin(Oracle *o, Frame *f, const Expr *e) {
  int b = e->sym->builtin;
  switch (fe_builtins[b].kind) {
  case BK_REDUCE:
    return e->elementwise ? eval_many(o, f, e) : eval_reduce(o, f, e);
  case BK_SCAN: return eval_scan(o, f, e);
  case BK_TOPK: return eval_topk(o, f, e);
  case BK_VEC: return eval_vec(o, f, e);
  case BK_CONCAT: return eval_concat(o, f, e);
  case BK_DOT: return eval_dot(o, f, e);
  case BK_OUTER: return eval_outer(o, f, e);
  case BK_STOP: return without_tangents(o, oracle_eval(o, f, operand(e, 0)));
  case BK_RANDOM: return eval_random(o, f, e);
  case BK_SELECT:
    return choose(o, f, e, operand(e, 0), operand(e, 1), operand(e, 2));
  default: break;
  }
  if (b == BI_clamp) return eval_many(o, f, e);
  return map1(o, oracle_eval(o, f, operand(e, 0)), function, b);
}

// ---------------------------------------------------------------- indexing
typedef struct Axis1 {
  int64_t lo, n, step;  // coordinates lo .. lo + n - 1; n == 0: one, dropped
  bool fresh;           // an added axis of extent 1
} Axis1;

typedef struct Axes {
  Axis1 at[2 * MAX_RANK];
  uint32_t n;
} Axes;

// Items of x[..] over the base's axes. False: reads 0 (shifted step).
static bool make_axes(Oracle *o, Frame *f, const Expr *e, const int64_t *shape,
                      uint32_t rank, Axes *ax) {
  uint32_t axis = 0;
  ax->n = 0;
  for (uint32_t i = 0; i < e->items.n && ax->n < 2 * MAX_RANK; i++) {
    const Item *it = &e->items.at[i];
    Axis1 a = {0};
    if (it->new_axis) {
      a.fresh = true;
    } else if (it->kind == ITEM_EXPR) {
      a.lo = (int64_t)oracle_num(oracle_eval(o, f, it->lo));
      bool out = axis < rank && (a.lo < 0 || a.lo >= shape[axis]);
      if (out && it->shifted) return false;
      axis++;
    } else {
      a.lo = it->lo ? oracle_dim(o, f, fe_dim_of(f->d, it->lo), NULL) : 0;
      int64_t hi = it->hi ? oracle_dim(o, f, fe_dim_of(f->d, it->hi), NULL)
                          : shape[axis];
      a.n = hi - a.lo;
      axis++;
      if (a.n <= 0) a = (Axis1){.lo = a.lo, .n = -1};
    }
    ax->at[ax->n++] = a;
  }
  for (; axis < rank && ax->n < 2 * MAX_RANK; axis++)
    ax->at[ax->n++] = (Axis1){.lo = 0, .n = shape[axis] ? shape[axis] : -1};
  return true;
}

static Val *result_of_axes(Oracle *o, const Axes *axes) {
  const Axis1 *ax = axes->at;
  int64_t shape[MAX_RANK] = {0};
  uint32_t rank = 0;
  for (uint32_t i = 0; i < axes->n; i++) {
    if (ax[i].fresh) shape[rank++] = 1;
    else if (ax[i].n) shape[rank++] = ax[i].n < 0 ? 0 : ax[i].n;
  }
  return oracle_array(o, rank, shape);
}

// Base coordinates of the first element of the result.
static void first_coords(const Axes *axes, int64_t *at) {
  uint32_t axis = 0;
  for (uint32_t k = 0; k < axes->n; k++)
    if (!axes->at[k].fresh) at[axis++] = axes->at[k].lo;
}

// Those of the next one.
static void next_coords(const Axes *axes, int64_t *at) {
  const Axis1 *ax = axes->at;
  uint32_t axis = 0;
  for (uint32_t k = 0; k < axes->n; k++) axis += !ax[k].fresh;
  for (uint32_t k = axes->n; k-- > 0;) {
    if (ax[k].fresh) continue;
    axis--;
    if (ax[k].n <= 0) continue;
    if (++at[axis] < ax[k].lo + ax[k].n) return;
    at[axis] = ax[k].lo;
  }
}

static const Sym *tensor_param(const Expr *e) {
  bool name = e->kind == EX_NAME && e->sym && e->sym->kind == SY_PARAM;
  return name && e->ty.rank ? e->sym : NULL;
}

static void read_param(Oracle *o, const Expr *e, const Axes *ax, int64_t *at,
                       Val *r) {
  const Sym *p = e->a->sym;
  const Axis1 *last = ax->n ? &ax->at[ax->n - 1] : NULL;
  uint32_t rank = e->a->ty.rank;
  int64_t n = last && !last->fresh && last->n > 0 ? last->n : 1;
  for (int64_t i = 0; i < r->n && !o->failed; i += n) {
    if (n == 1 || !oracle_read_line(o, p, at, n, r, i))
      for (int64_t k = 0; k < n && !o->failed; k++) {
        oracle_read(o, p, at, e->span, r, i + k);
        at[rank - 1] += n > 1;
      }
    if (n > 1) at[rank - 1] = last->lo + n - 1;
    next_coords(ax, at);
  }
}

static Val *eval_index(Oracle *o, Frame *f, const Expr *e) {
  const Sym *p = f->caller ? NULL : tensor_param(e->a);
  int64_t shape[MAX_RANK] = {0}, at[2 * MAX_RANK] = {0};
  Val *base = NULL;
  uint32_t rank = e->a->ty.rank;
  if (p) {
    for (uint32_t i = 0; i < rank; i++)
      shape[i] = oracle_dim(o, f, e->a->ty.shape[i], NULL);
  } else {
    base = oracle_eval(o, f, e->a);
    rank = base->rank;
    memcpy(shape, base->shape, sizeof shape);
  }
  Axes ax;
  bool inside = make_axes(o, f, e, shape, rank, &ax);
  Val *r = result_of_axes(o, &ax);
  first_coords(&ax, at);
  if (p && inside) read_param(o, e, &ax, at, r);
  for (int64_t i = 0; !p && inside && i < r->n && !o->failed; i++) {
    if (i) next_coords(&ax, at);
    int64_t off = 0;
    for (uint32_t k = 0; k < rank; k++) {
      if (at[k] < 0 || at[k] >= shape[k]) {
        diag_add(o->cx, DIAG_interp_range, e->span, (long long)at[k], (int)k,
                 "value", (long long)shape[k]);
        o->failed = true;
        return r;
      }
      off = off * shape[k] + at[k];
    }
    r->at[i] = base->at[off];
    oracle_flow(o, r, i, base, off, 1);
  }
  return r;
}

// ---------------------------------------------------------------- names
static Val *eval_name(Oracle *o, Frame *f, const Expr *e) {
  const Sym *s = e->sym;
  switch (s->kind) {
  case SY_DIM:
    return oracle_scalar(o, (double)oracle_dim(o, f, s->dim, e->binder));
  case SY_INDEX: return oracle_scalar(o, (double)f->idx[s->index_id]);
  case SY_LET: return oracle_let(o, f, s);
  case SY_PARAM: return oracle_param(o, f, s);
  case SY_DECL: return oracle_call(o, f, e, 0);
  case SY_STATE: {
    uint64_t got;
    bool ok = map_get(&o->states, (uint64_t)(uintptr_t)s, &got);
    return ok ? (Val *)(uintptr_t)got : oracle_scalar(o, NAN);
  }
  default: return oracle_scalar(o, NAN);
  }
}

Val *oracle_nothing(Oracle *o, const Expr *e) {
  int64_t one[MAX_RANK];
  for (uint32_t i = 0; i < MAX_RANK; i++) one[i] = 1;
  Val *v = oracle_array(o, e->ty.rank, one);
  v->at[0] = NAN;
  return v;
}

static Val *eval(Oracle *o, Frame *f, const Expr *e) {
  switch (e->kind) {
  case EX_INT:
  case EX_BOOL: return oracle_scalar(o, (double)e->ival);
  case EX_FLOAT: return oracle_scalar(o, e->fval);
  case EX_INF: return oracle_scalar(o, INFINITY);
  case EX_NAME:
  case EX_MEMBER: return eval_name(o, f, e);
  case EX_UNARY: return map1(o, oracle_eval(o, f, e->a), negation, e->op);
  case EX_BINARY:
    return e->op == BO_MATMUL ? eval_matmul(o, f, e) : eval_binary(o, f, e);
  case EX_CHAIN: return eval_chain(o, f, e);
  case EX_INDEX: return eval_index(o, f, e);
  case EX_CAST:
    return map1(o, oracle_eval(o, f, e->a), conversion, (int)e->dtype);
  case EX_IF: return choose(o, f, e, e->a, e->b, e->c);
  case EX_CALL:
  case EX_PIPE:
    return e->sym->kind == SY_BUILTIN ? eval_builtin(o, f, e)
                                      : oracle_call(o, f, e, 0);
  default: return oracle_scalar(o, NAN);
  }
}

Val *oracle_eval(Oracle *o, Frame *f, const Expr *e) {
  if (o->failed) return oracle_nothing(o, e);
  Val *v = eval(o, f, e);
  oracle_round_made(o, e, v);
  return v;
}

// ---------------------------------------------------------------- empty rows
static bool is_empty(Oracle *o, Frame *f, const Sym *s) {
  return s && s->role == IX_KEY && oracle_keys(o, f, s)->n == 0;
}

// Whether e belongs to a row whose key domain is empty: it is inside a row
// function of such a row, or reads a reduction over such a key.
static bool empty_row(Oracle *o, Frame *f, const Expr *e, int depth) {
  if (!e || depth > 64) return false;
  if (f->d->key && oracle_keys(o, f, f->d->key)->n == 0) return true;
  if (is_empty(o, f, e->binder)) return true;
  if (e->kind == EX_NAME && e->sym && e->sym->kind == SY_LET)
    return empty_row(o, f, e->sym->value, depth + 1);
  if (empty_row(o, f, e->a, depth + 1) || empty_row(o, f, e->b, depth + 1) ||
      empty_row(o, f, e->c, depth + 1))
    return true;
  for (uint32_t i = 0; i < e->list.n; i++)
    if (empty_row(o, f, e->list.at[i], depth + 1)) return true;
  for (uint32_t i = 0; i < e->args.n; i++)
    if (empty_row(o, f, e->args.at[i].value, depth + 1)) return true;
  return false;
}
