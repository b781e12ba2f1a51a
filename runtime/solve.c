// From tensors to dims: solves every dim from the shapes, then checks the
// shapes, element types, strides, ranges and constraints against them.
//   params Q: [B, H], offs: [B + 1]; Q.shape = {2, 4}, offs.shape = {3}
//   -> B = 2, H = 4
#include "rt.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct Source {  // which axis said what a dim is
  int param, axis;       // -1: none
} Source;

typedef struct Solve {
  const attn_program *prog;
  attn_error *err;
  Solved *out;
  uint32_t nknown;  // dims
  Source source[ATTN_MAX_DIMS];
  const attn_tensor *args[ATTN_MAX_PARAMS];  // by parameter; NULL for scalars
} Solve;

static const attn_tensor absent;
_Alignas(64) const char rt_zero[64];

// A tensor of which neither data nor shape is given.
static bool skipped(const attn_tensor *t) {
  return !t->data && t->rank == 0;
}

// ---- the call itself

static int check_program(const attn_program *p, attn_error *err) {
  if (!p) return rt_fail(err, ATTN_E_ARGUMENT, "no program");
  if (p->abi >> 16 != ATTN_ABI_MAJOR || p->size < sizeof *p)
    return rt_fail(err, ATTN_E_ABI,
                   "the code has ABI version %u.%u, this runtime %d.%d",
                   p->abi >> 16, p->abi & 0xffff, ATTN_ABI_MAJOR,
                   ATTN_ABI_MINOR);
  if (p->nparams > ATTN_MAX_PARAMS || p->ndims > ATTN_MAX_DIMS)
    return rt_fail(err, ATTN_E_INTERNAL, "too many parameters or dims");
  for (uint32_t i = 0; i < p->nparams; i++)
    if (p->params[i].rank > ATTN_MAX_RANK)
      return rt_fail(err, ATTN_E_INTERNAL, "rank of parameter %u", i);
  return ATTN_OK;
}

static int gather(Solve *s, attn_tensor *const *tensors,
                  const attn_scalar *scalars) {
  const attn_program *p = s->prog;
  uint32_t nt = 0, ns = 0;
  for (uint32_t i = 0; i < p->nparams; i++) {
    if (p->params[i].kind == ATTN_PARAM_SCALAR) {
      ns++;
      continue;
    }
    if (!tensors) return rt_fail(s->err, ATTN_E_ARGUMENT, "no tensors");
    s->args[i] = tensors[nt] ? tensors[nt] : &absent;
    s->out->tensors[nt++] = s->args[i];
  }
  if (ns && !scalars) return rt_fail(s->err, ATTN_E_ARGUMENT, "no scalars");
  s->out->env = (Env){.prog = p,
                      .tensors = s->out->tensors,
                      .scalars = scalars,
                      .ntensors = nt,
                      .nscalars = ns,
                      .dims = s->out->dims,
                      .known = s->out->known};
  return ATTN_OK;
}

// ---- one tensor, before dims are known

static bool same_dtype(int want, int got) {
  return got == want || (want == ATTN_TF32 && got == ATTN_F32);
}

static bool is_empty(const attn_tensor *t) {
  for (int i = 0; i < t->rank; i++)
    if (t->shape[i] == 0) return true;
  return false;
}

static bool may_lack_data(const attn_param_desc *d) {
  return d->kind == ATTN_PARAM_OUT || (d->flags & ATTN_PARAM_OPTIONAL);
}

static int check_form(const Solve *s, int i) {
  const attn_param_desc *d = &s->prog->params[i];
  const attn_tensor *t = s->args[i];
  Where w = {i, -1, d->dtype, t->dtype};
  if (skipped(t) && may_lack_data(d)) return ATTN_OK;
  if (skipped(t) && d->rank)
    return rt_fail_at(s->err, ATTN_E_NULL, (Where){i, -1, 0, 0},
                      "argument '%s' has no data", d->name);
  if (!same_dtype(d->dtype, t->dtype))
    return rt_fail_at(s->err, ATTN_E_DTYPE, w,
                      "argument '%s': element type is %s, expected %s", d->name,
                      attn_dtype_name(t->dtype), attn_dtype_name(d->dtype));
  w = (Where){i, -1, d->rank, t->rank};
  if (d->rank != t->rank)
    return rt_fail_at(s->err, ATTN_E_RANK, w,
                      "argument '%s': rank is %d, expected %d", d->name,
                      t->rank, d->rank);
  for (int k = 0; k < t->rank; k++)
    if (t->shape[k] < 0)
      return rt_fail_at(s->err, ATTN_E_SHAPE, (Where){i, k, 0, t->shape[k]},
                        "argument '%s', axis %d: extent is %lld", d->name, k,
                        (long long)t->shape[k]);
  if (!t->data && !is_empty(t) && !may_lack_data(d))
    return rt_fail_at(s->err, ATTN_E_NULL, (Where){i, -1, 0, 0},
                      "argument '%s' has no data", d->name);
  return ATTN_OK;
}

// Every element's byte offset must fit in 63 bits, and no two tasks may write
// the same element.
static int check_memory(const Solve *s, int i) {
  const attn_param_desc *d = &s->prog->params[i];
  const attn_tensor *t = s->args[i];
  int64_t size = (int64_t)attn_dtype_size(d->dtype);
  if (!t->data || is_empty(t) || size == 0) return ATTN_OK;
  if ((uintptr_t)t->data % (uint64_t)size)
    return rt_fail_at(s->err, ATTN_E_ALIGN, (Where){i, -1, size, 0},
                      "argument '%s' is not aligned to its %lld-byte elements",
                      d->name, (long long)size);
  int64_t reach = size;
  for (int k = 0; k < t->rank; k++) {
    int64_t st = t->stride[k], span;
    bool fits = st != INT64_MIN &&
                !__builtin_mul_overflow(st < 0 ? -st : st, size, &span) &&
                !__builtin_mul_overflow(span, t->shape[k] - 1, &span) &&
                !__builtin_add_overflow(reach, span, &reach);
    if (!fits)
      return rt_fail_at(s->err, ATTN_E_STRIDE, (Where){i, k, 0, st},
                        "argument '%s', axis %d: stride %lld is too large",
                        d->name, k, (long long)st);
    if (st == 0 && t->shape[k] > 1 && d->kind != ATTN_PARAM_IN)
      return rt_fail_at(s->err, ATTN_E_STRIDE, (Where){i, k, 1, 0},
                        "argument '%s', axis %d: stride 0 in an output",
                        d->name, k);
  }
  return ATTN_OK;
}

// ---- dims

static void settle(Solve *s, uint32_t dim, int64_t v, int param, int axis) {
  s->out->dims[dim] = v;
  s->out->known[dim] = true;
  s->nknown++;
  s->source[dim] = (Source){param, axis};
}

// The one unknown of this axis, if it has exactly one and a plain (only if
// plain) or affine expression says its value.
static bool solve_axis(Solve *s, int i, int k, bool plain) {
  const attn_param_desc *d = &s->prog->params[i];
  Affine v;
  if (d->axis[k] == ATTN_NONE ||
      rt_expr_affine(&s->out->env, d->axis[k], &v) != EX_OK || !v.a)
    return false;
  if (plain && (v.a != 1 || v.b != 0)) return false;
  int64_t rest;
  if (__builtin_sub_overflow(s->args[i]->shape[k], v.b, &rest) ||
      (v.a == -1 && rest == INT64_MIN) || rest % v.a)
    return false;  // check_shapes reports it, or the dim stays undetermined
  settle(s, v.unknown, rest / v.a, i, k);
  return true;
}

// Did it settle a dim, and are there more?
static bool solve_pass(Solve *s, bool plain) {
  bool progress = false;
  for (uint32_t i = 0; i < s->prog->nparams; i++)
    if (s->nknown == s->prog->ndims) return false;
    else if (s->args[i] && !skipped(s->args[i]))
      for (int k = 0; k < s->args[i]->rank; k++)
        progress |= solve_axis(s, (int)i, k, plain);
  return progress;
}

static bool only_value(const attn_program *p, const attn_dim_desc *d,
                       int64_t *v) {
  bool list = d->kind == ATTN_DIM_CONST && d->values != ATTN_NONE;
  bool one = list && d->values + 1 < p->ncode && p->code[d->values] == 1;
  *v = one ? p->code[d->values + 1] : d->lo;
  return one || d->lo == d->hi;
}

static int solve_rest(Solve *s) {
  for (uint32_t i = 0; i < s->prog->ndims; i++) {
    const attn_dim_desc *d = &s->prog->dims[i];
    int64_t v;
    if (s->out->known[i]) continue;
    if (d->kind == ATTN_DIM_RAGGED) s->out->dims[i] = -1;
    else if (only_value(s->prog, d, &v)) settle(s, i, v, -1, -1);
    else
      return rt_fail(s->err, ATTN_E_DIM,
                     "dim %s is not determined by the shape of any argument",
                     d->name);
  }
  return ATTN_OK;
}

// ---- checks over solved dims

// " as in 'K', axis 2": where a plain dim got its value.
static void explain_dim(const Solve *s, int param, uint32_t at, char *buf,
                        size_t n) {
  const int64_t *w = s->prog->code + at;
  buf[0] = 0;
  if (w[0] != ATTN_X_DIM || w[2] != ATTN_X_END) return;
  Source from = s->source[w[1]];
  if (from.param >= 0 && from.param != param)
    snprintf(buf, n, " as in '%s', axis %d", s->prog->params[from.param].name,
             from.axis);
  else if (from.param >= 0) snprintf(buf, n, " as in axis %d", from.axis);
}

static int shape_error(const Solve *s, int i, int k, int64_t want) {
  const attn_param_desc *d = &s->prog->params[i];
  char expr[80], why[80], value[32] = "";
  rt_expr_text(s->prog, d->axis[k], expr, sizeof expr);
  explain_dim(s, i, d->axis[k], why, sizeof why);
  if (s->prog->code[d->axis[k]] != ATTN_X_CONST || strlen(expr) > 20)
    snprintf(value, sizeof value, " = %lld", (long long)want);
  int64_t got = s->args[i]->shape[k];
  return rt_fail_at(s->err, ATTN_E_SHAPE, (Where){i, k, want, got},
                    "argument '%s', axis %d: extent is %lld, expected %s%s%s",
                    d->name, k, (long long)got, expr, value, why);
}

static int check_axis(const Solve *s, int i, int k) {
  const attn_param_desc *d = &s->prog->params[i];
  int64_t want;
  if (d->axis[k] == ATTN_NONE) return ATTN_OK;
  switch (rt_expr_eval(&s->out->env, d->axis[k], &want)) {
  case EX_OK:
    return want == s->args[i]->shape[k] ? ATTN_OK : shape_error(s, i, k, want);
  case EX_UNKNOWN: return ATTN_OK;  // depends on a ragged dim
  case EX_OVERFLOW:
    return rt_fail_at(s->err, ATTN_E_SHAPE, (Where){i, k, 0, 0},
                      "argument '%s', axis %d: the extent overflows", d->name,
                      k);
  default:
    return rt_fail_at(s->err, ATTN_E_INTERNAL, (Where){i, k, 0, 0},
                      "argument '%s', axis %d: bad expression", d->name, k);
  }
}

static int check_shapes(const Solve *s) {
  for (uint32_t i = 0; i < s->prog->nparams; i++) {
    if (!s->args[i] || skipped(s->args[i])) continue;
    for (int k = 0; k < s->args[i]->rank; k++) {
      int rc = check_axis(s, (int)i, k);
      if (rc) return rc;
    }
    int rc = check_memory(s, (int)i);
    if (rc) return rc;
  }
  return ATTN_OK;
}

// "dim D ('Q', axis 2) is 96, " + the format's text.
__attribute__((format(printf, 4, 5))) static int
dim_error(const Solve *s, uint32_t i, int64_t want, const char *fmt, ...) {
  char why[160], from[80] = "";
  Source src = s->source[i];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  if (src.param >= 0)
    snprintf(from, sizeof from, " ('%s', axis %d)",
             s->prog->params[src.param].name, src.axis);
  int64_t v = s->out->dims[i];
  return rt_fail_at(s->err, ATTN_E_DIM, (Where){src.param, src.axis, want, v},
                    "dim %s%s is %lld, %s", s->prog->dims[i].name, from,
                    (long long)v, why);
}

static int value_error(const Solve *s, uint32_t i, const int64_t *values,
                       int64_t n) {
  char list[128];
  size_t len = 0;
  list[0] = 0;
  for (int64_t k = 0; k < n && len + 24 < sizeof list; k++)
    len += (size_t)snprintf(list + len, sizeof list - len, "%s%lld",
                            k ? ", " : "", (long long)values[k]);
  return dim_error(s, i, n ? values[0] : 0, "the code is compiled for %s",
                   list);
}

static int check_values(const Solve *s, uint32_t i) {
  const attn_dim_desc *d = &s->prog->dims[i];
  if (d->kind != ATTN_DIM_CONST || d->values == ATTN_NONE) return ATTN_OK;
  const int64_t *list = s->prog->code + d->values;
  if (d->values >= s->prog->ncode || list[0] < 0 ||
      list[0] >= s->prog->ncode - d->values)
    return rt_fail(s->err, ATTN_E_INTERNAL, "bad value list of dim %s",
                   d->name);
  for (int64_t k = 1; k <= list[0]; k++)
    if (list[k] == s->out->dims[i]) return ATTN_OK;
  return value_error(s, i, list + 1, list[0]);
}

static int check_range(const Solve *s, uint32_t i) {
  const attn_dim_desc *d = &s->prog->dims[i];
  int64_t v = s->out->dims[i];
  // The lower bound of a ragged dim is that of the lengths, not of the padding.
  int64_t lo = d->kind == ATTN_DIM_RAGGED ? 0 : d->lo;
  if (!s->out->known[i]) return ATTN_OK;
  if (v > d->hi)
    return dim_error(s, i, d->hi, "at most %lld", (long long)d->hi);
  if (v < lo) return dim_error(s, i, lo, "at least %lld", (long long)lo);
  if (d->kind == ATTN_DIM_RAGGED) return ATTN_OK;
  if (d->divisor > 1 && v % d->divisor)
    return dim_error(s, i, d->divisor, "must be a multiple of %lld",
                     (long long)d->divisor);
  return check_values(s, i);
}

// "Hq = 6, Hk = 4": the dims that an expression names.
static void dim_values(const Solve *s, uint32_t at, char *buf, size_t n) {
  const attn_program *p = s->prog;
  size_t len = 0;
  buf[0] = 0;
  for (uint32_t d = 0; d < p->ndims; d++)
    for (uint32_t k = at; k + 1 < p->ncode && p->code[k] != ATTN_X_END; k++) {
      if (p->code[k] == ATTN_X_CONST) k++;
      else if (p->code[k] == ATTN_X_DIM && p->code[++k] == d && len < n) {
        len +=
            (size_t)snprintf(buf + len, n - len, "%s%s = %lld", len ? ", " : "",
                             p->dims[d].name, (long long)s->out->dims[d]);
        break;
      }
    }
}

static int check_constraints(const Solve *s) {
  for (uint32_t i = 0; i < s->prog->nchecks; i++) {
    uint32_t at = s->prog->checks[i];
    int64_t v = 0;
    ExprStatus st = rt_expr_eval(&s->out->env, at, &v);
    if (st == EX_UNKNOWN || (st == EX_OK && v)) continue;
    if (st == EX_BAD)
      return rt_fail(s->err, ATTN_E_INTERNAL, "bad constraint %u", i);
    char expr[100], dims[100];
    rt_expr_text(s->prog, at, expr, sizeof expr);
    dim_values(s, at, dims, sizeof dims);
    return rt_fail(s->err, ATTN_E_CONSTRAINT, "%s does not hold: %s", expr,
                   dims);
  }
  return ATTN_OK;
}

// Lengths are read once every array is known to be sound.
static int solve_ragged(Solve *s) {
  for (uint32_t i = 0; i < s->prog->ndims; i++) {
    const attn_dim_desc *d = &s->prog->dims[i];
    bool known = s->out->known[i];
    int64_t max;
    if (d->kind != ATTN_DIM_RAGGED || d->by == ATTN_NONE) continue;
    int rc = rt_ragged(&s->out->env, i, known ? s->out->dims[i] : INT64_MAX,
                       &max, s->err);
    if (rc) return rc;
    if (!known) s->out->dims[i] = max;
  }
  return ATTN_OK;
}

// ---- ragged dims where lengths cannot be read

static bool is_named(const attn_program *p, uint32_t dim, const char *stem,
                     const char *suffix) {
  const char *name = p->dims[dim].name;
  size_t n = strlen(stem);
  return !strncmp(name, stem, n) && !strcmp(name + n, suffix);
}

// All sequences together: the extent of the axis where they lie end to end.
static int64_t total_length(const Solve *s, uint32_t ragged) {
  const attn_program *p = s->prog;
  for (uint32_t k = 0; k < p->ndims; k++)
    if (s->out->known[k] && is_named(p, k, p->dims[ragged].name, "_total"))
      return s->out->dims[k];
  return -1;
}

// Slots of all blocks of a paged array: its fixed extents say those of one.
static int64_t slots(const Solve *s, const attn_param_desc *d) {
  int64_t n = 1;
  for (uint32_t k = 0; k < d->rank; k++) {
    const int64_t *w = s->prog->code + d->axis[k];
    bool fixed = d->axis[k] != ATTN_NONE && w[0] == ATTN_X_CONST;
    if (fixed && __builtin_mul_overflow(n, w[1], &n)) return INT32_MAX;
  }
  return n;
}

static int64_t most_slots(const Solve *s) {
  const attn_program *p = s->prog;
  int64_t most = -1, n;
  for (uint32_t i = 0; i < p->nparams; i++)
    for (uint32_t k = 0; k < p->ndims; k++)
      if (s->out->known[k] && is_named(p, k, p->params[i].name, "_blocks")) {
        if (__builtin_mul_overflow(slots(s, &p->params[i]), s->out->dims[k],
                                   &n))
          n = INT32_MAX;
        most = n > most ? n : most;
      }
  return most;
}

// What all sequences but one have at least: as many queries as sequences, each
// with one or more, are one each.
static int64_t least_of_others(const Solve *s, const attn_dim_desc *d) {
  if (d->by == ATTN_NONE || d->lo <= 0) return 0;
  const attn_tensor *t = s->out->env.tensors[d->by];
  int64_t n = t->rank ? t->shape[0] - (d->by_offsets ? 1 : 0) - 1 : 0, least;
  return n <= 0 || __builtin_mul_overflow(n, d->lo, &least) ? 0 : least;
}

// Lengths are at least and at most what the program declares; no one looks
// whether they are.
static void bound_ragged(Solve *s) {
  for (uint32_t i = 0; i < s->prog->ndims; i++) {
    const attn_dim_desc *d = &s->prog->dims[i];
    if (d->kind != ATTN_DIM_RAGGED || s->out->known[i]) continue;
    int64_t n = total_length(s, i);
    if (n < 0) n = most_slots(s);
    else n -= n < least_of_others(s, d) ? n : least_of_others(s, d);
    s->out->dims[i] = n > d->hi ? d->hi : n;
    s->out->known[i] = n >= 0;
  }
}

// ---- absent tensors that count as zeros

// What bounds no index: an extent that nothing says.
enum { ANY_EXTENT = 1 << 28 };

static attn_tensor zeros(const Solve *s, const attn_param_desc *d,
                         const attn_tensor *given) {
  attn_tensor t = {.data = (void *)(uintptr_t)rt_zero,
                   .dtype = d->dtype,
                   .rank = d->rank};
  bool shaped = !skipped(given);
  for (int k = 0; k < d->rank; k++) {
    int64_t n = ANY_EXTENT;
    if (shaped) n = given->shape[k];
    else if (d->axis[k] != ATTN_NONE &&
             rt_expr_eval(&s->out->env, d->axis[k], &n) != EX_OK)
      n = ANY_EXTENT;
    t.shape[k] = n;
  }
  return t;
}

static void put_zeros(Solve *s) {
  const attn_program *p = s->prog;
  uint32_t nt = 0;
  for (uint32_t i = 0; i < p->nparams; i++) {
    const attn_param_desc *d = &p->params[i];
    if (d->kind == ATTN_PARAM_SCALAR) continue;
    if ((d->flags & ATTN_PARAM_OPTIONAL) && d->kind == ATTN_PARAM_IN &&
        !s->args[i]->data) {
      s->out->zeros[nt] = zeros(s, d, s->args[i]);
      s->out->tensors[nt] = &s->out->zeros[nt];
    }
    nt++;
  }
}

int rt_solve(const attn_program *prog, attn_tensor *const *tensors,
             const attn_scalar *scalars, bool device, Solved *out,
             attn_error *err) {
  int rc = check_program(prog, err);
  if (rc) return rc;
  memset(out, 0, offsetof(Solved, zeros));
  Solve s = {.prog = prog, .err = err, .out = out};
  rc = gather(&s, tensors, scalars);
  for (uint32_t i = 0; !rc && i < prog->nparams; i++)
    if (s.args[i]) rc = check_form(&s, (int)i);
  if (rc) return rc;
  while (solve_pass(&s, true) || solve_pass(&s, false));
  rc = solve_rest(&s);
  for (uint32_t i = 0; !rc && i < prog->ndims; i++) rc = check_range(&s, i);
  if (!rc) rc = check_shapes(&s);
  if (!rc && device) bound_ragged(&s);
  else if (!rc) rc = solve_ragged(&s);
  if (!rc) put_zeros(&s);
  return rc ? rc : check_constraints(&s);
}
