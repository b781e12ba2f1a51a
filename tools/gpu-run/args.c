// Dims, shapes and input arrays of gpu-run.
#include "tools/gpu-run/run.h"

#include "runtime/rt.h"
#include "tools/driver/run/gen.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

bool run_error(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fputs("gpu-run: ", stderr);
  vfprintf(stderr, fmt, ap);
  fputc('\n', stderr);
  va_end(ap);
  return false;
}

size_t run_bytes(const Array *a) {
  return (size_t)a->host.count * attn_dtype_size(a->desc->dtype);
}

bool run_is_output(const Array *a) {
  return a->desc->kind != ATTN_PARAM_IN;
}

const char *run_setting(const Run *r, int option, const char *name) {
  size_t n = strlen(name);
  for (uint32_t i = 0; i < r->settings.n; i++) {
    const char *s = r->settings.at[i].text;
    if (r->settings.at[i].option == option && !strncmp(s, name, n) &&
        s[n] == '=')
      return s + n + 1;
  }
  return NULL;
}

// ---------------------------------------------------------------- dims
static bool set_dim(Run *r, const char *name, size_t n, int64_t v) {
  for (uint32_t i = 0; i < r->prog->ndims; i++)
    if (!strncmp(r->prog->dims[i].name, name, n) && !r->prog->dims[i].name[n]) {
      r->dims[i] = v;
      return r->known[i] = true;
    }
  return run_error("%s has no dim '%.*s'", r->prog->name, (int)n, name);
}

static bool given_dims(Run *r) {
  for (uint32_t i = 0; i < r->settings.n; i++) {
    if (r->settings.at[i].option != 'D') continue;
    for (const char *s = r->settings.at[i].text; *s;) {
      char *end;
      size_t n = strcspn(s, "=");
      if (!s[n]) return run_error("'%s' is not D=N", s);
      int64_t v = strtoll(s + n + 1, &end, 10);
      if (!set_dim(r, s, n, v)) return false;
      s = end + (*end == ',');
    }
  }
  return true;
}

static void only_dims(Run *r) {
  for (uint32_t i = 0; i < r->prog->ndims; i++) {
    const attn_dim_desc *d = &r->prog->dims[i];
    bool one = d->kind == ATTN_DIM_CONST && d->values != ATTN_NONE &&
               r->prog->code[d->values] == 1;
    if (r->known[i] || (!one && d->lo != d->hi)) continue;
    r->dims[i] = one ? r->prog->code[d->values + 1] : d->lo;
    r->known[i] = true;
  }
}

// Axes that are plain dims say what those are.
static void dims_of(Run *r, const Array *a) {
  for (int k = 0; k < a->host.rank; k++) {
    uint32_t at = a->desc->axis[k];
    const int64_t *w = r->prog->code + at;
    if (at == ATTN_NONE || w[0] != ATTN_X_DIM || w[2] != ATTN_X_END) continue;
    r->dims[w[1]] = a->host.shape[k];
    r->known[w[1]] = true;
  }
}

// ---------------------------------------------------------------- shapes
static bool extent(const Run *r, const Array *a, int k, int64_t *out) {
  Env e = {.prog = r->prog, .dims = r->dims, .known = r->known};
  if (a->desc->axis[k] != ATTN_NONE &&
      rt_expr_eval(&e, a->desc->axis[k], out) == EX_OK)
    return true;
  return run_error("axis %d of '%s' is not known: --dim, --shape or --in", k,
                   a->desc->name);
}

static bool given_shape(Array *a, const char *s) {
  for (int k = 0; k < a->desc->rank; k++) {
    char *end;
    a->host.shape[k] = strtoll(s, &end, 10);
    if (end == s) return run_error("'%s': %d extents", s, a->desc->rank);
    s = end + (*end == 'x');
  }
  return true;
}

static bool make_shape(Run *r, Array *a) {
  const char *s = run_setting(r, 'S', a->desc->name);
  a->host.dtype = (DType)a->desc->dtype;
  a->host.rank = a->desc->rank;
  if (s && !given_shape(a, s)) return false;
  a->host.count = 1;
  for (int k = 0; k < a->host.rank; k++) {
    if (!s && !extent(r, a, k, &a->host.shape[k])) return false;
    a->host.count *= a->host.shape[k];
  }
  void *p = NULL;
  size_t n = run_bytes(a) + 64;
  if (n > (size_t)1 << 38 || posix_memalign(&p, 64, n))
    return run_error("'%s' is too large", a->desc->name);
  memset(p, 0xff, n);  // NaN
  a->host.data = p;
  return true;
}

// ---------------------------------------------------------------- data
// The dim whose lengths or offsets are in tensor t.
static const attn_dim_desc *lengths_in(const Run *r, uint32_t t, int64_t *v) {
  for (uint32_t i = 0; i < r->prog->ndims; i++)
    if (r->prog->dims[i].kind == ATTN_DIM_RAGGED && r->prog->dims[i].by == t) {
      *v = r->dims[i];
      return &r->prog->dims[i];
    }
  return NULL;
}

static Gen default_gen(const Run *r, uint32_t t) {
  Gen g = gen_default(GK_NORMAL);
  int64_t most;
  const attn_dim_desc *d = lengths_in(r, t, &most);
  DType type = (DType)r->array[t].desc->dtype;
  if (d) {
    g = gen_default(d->by_offsets ? GK_OFFSETS : GK_LENGTHS);
    g.arg[0] = (double)((most + 1) / 2);
    g.arg[1] = (double)most;
  } else if (!dtype_is_float(type)) {
    g = gen_default(GK_RANDINT);
    g.arg[0] = 0;
    g.arg[1] = type == DT_BOOL ? 2 : 4;
  }
  return g;
}

static bool parse_gen(const char *s, Gen *g) {
  size_t n = strcspn(s, "(");
  GenKind kind;
  if (!gen_by_name(s, (uint32_t)n, &kind)) return false;
  *g = gen_default(kind);
  const char *p = s[n] ? s + n + 1 : ")";
  for (int i = 0; i < 2 && *p && *p != ')'; i++) {
    char *end;
    g->arg[i] = strtod(p, &end);
    if (end == p) return false;
    p = end + (*end == ',');
  }
  return true;
}

static bool generate(Run *r, uint32_t t, Gen g) {
  Array *a = &r->array[t];
  if (!make_shape(r, a)) return false;
  const char *why = gen_check(&g, a->host.count);
  if (why) return run_error("'%s': %s", a->desc->name, why);
  g.seed = r->seed;
  gen_fill(&r->cx.scratch, &g, a->desc->name, a->host.dtype, a->host.count,
           a->host.data);
  return true;
}

static bool same_width(DType file, DType want) {
  return dtype_size(file) == dtype_size(want);
}

static bool read_file(Run *r, Array *a, const char *path) {
  if (!npy_read(&r->cx, &r->cx.session, path, &a->host)) return false;
  if (a->host.rank != a->desc->rank ||
      !same_width(a->host.dtype, (DType)a->desc->dtype))
    return run_error("%s: '%s' has rank %d and type %s", path, a->desc->name,
                     a->desc->rank, attn_dtype_name(a->desc->dtype));
  a->host.dtype = (DType)a->desc->dtype;
  dims_of(r, a);
  return true;
}

static bool read_files(Run *r) {
  for (uint32_t t = 0; t < r->ntensors; t++) {
    Array *a = &r->array[t];
    const char *s = run_setting(r, 'i', a->desc->name);
    Gen g;
    if (s && !parse_gen(s, &g) && !read_file(r, a, s)) return false;
  }
  return true;
}

static bool make_inputs(Run *r) {
  for (uint32_t t = 0; t < r->ntensors; t++) {
    Array *a = &r->array[t];
    const char *s = run_setting(r, 'i', a->desc->name);
    Gen g = default_gen(r, t);
    if (a->host.data) continue;
    if (s && !parse_gen(s, &g)) return false;
    bool ok =
        a->desc->kind == ATTN_PARAM_OUT ? make_shape(r, a) : generate(r, t, g);
    if (!ok) return false;
  }
  return true;
}

// ---------------------------------------------------------------- scalars
static attn_scalar scalar(const attn_param_desc *d, const char *s) {
  attn_scalar v = d->def;
  if (!s) return v;
  v.i64 = 0;
  if (d->dtype == ATTN_F64) v.f64 = strtod(s, NULL);
  else if (dtype_is_float((DType)d->dtype)) v.f32 = strtof(s, NULL);
  else v.i64 = strtoll(s, NULL, 10);
  return v;
}

static void list_params(Run *r) {
  for (uint32_t i = 0; i < r->prog->nparams; i++) {
    const attn_param_desc *d = &r->prog->params[i];
    if (d->kind == ATTN_PARAM_SCALAR)
      r->scalar[r->nscalars++] = scalar(d, run_setting(r, 's', d->name));
    else r->array[r->ntensors++].desc = d;
  }
}

bool run_inputs(Run *r) {
  list_params(r);
  if (!given_dims(r)) return false;
  only_dims(r);
  return read_files(r) && make_inputs(r);
}
