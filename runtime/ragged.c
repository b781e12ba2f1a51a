// Lengths of sequences, read on the host: B lengths or B + 1 offsets.
//   lens = {3, 0, 7}        -> 7
//   offs = {0, 3, 3, 10}    -> 7
#include "rt.h"

#include <string.h>

typedef struct Reader {
  const attn_tensor *t;
  const char *name, *dim;
  int param;
  attn_error *err;
} Reader;

static int64_t element(const attn_tensor *t, int64_t i) {
  int64_t size = (int64_t)attn_dtype_size(t->dtype);
  const char *p = (const char *)t->data + i * t->stride[0] * size;
  union {
    int64_t i64;
    int32_t i32;
    int16_t i16;
    int8_t i8;
    uint32_t u32;
    uint16_t u16;
    uint8_t u8;
  } v = {0};
  memcpy(&v, p, (size_t)size);
  switch (t->dtype) {
  case ATTN_I64: return v.i64;
  case ATTN_I32: return v.i32;
  case ATTN_I16: return v.i16;
  case ATTN_I8: return v.i8;
  case ATTN_U32: return v.u32;
  case ATTN_U16: return v.u16;
  default: return v.u8;
  }
}

static int wrong(const Reader *r, int64_t i, int64_t v, const char *why) {
  return rt_fail_at(r->err, ATTN_E_DIM, (Where){r->param, 0, 0, v},
                    "argument '%s', entry %lld is %lld: %s", r->name,
                    (long long)i, (long long)v, why);
}

// One length against what is said about the dim; `limit` is the extent of its
// padded axis.
static int check(const Reader *r, const attn_dim_desc *d, int64_t i,
                 int64_t len, int64_t limit) {
  Where w = {r->param, 0, d->hi < limit ? d->hi : limit, len};
  if (len > w.expected)
    return rt_fail_at(r->err, ATTN_E_DIM, w,
                      "sequence %lld of '%s' has length %lld, dim %s is at "
                      "most %lld",
                      (long long)i, r->name, (long long)len, r->dim,
                      (long long)w.expected);
  w.expected = d->lo;
  if (len < d->lo)
    return rt_fail_at(r->err, ATTN_E_DIM, w,
                      "sequence %lld of '%s' has length %lld, dim %s is at "
                      "least %lld",
                      (long long)i, r->name, (long long)len, r->dim,
                      (long long)d->lo);
  w.expected = d->divisor;
  if (d->divisor > 1 && len % d->divisor)
    return rt_fail_at(r->err, ATTN_E_DIM, w,
                      "sequence %lld of '%s' has length %lld, dim %s is a "
                      "multiple of %lld",
                      (long long)i, r->name, (long long)len, r->dim,
                      (long long)d->divisor);
  return ATTN_OK;
}

static int longest(const Reader *r, const attn_dim_desc *d, int64_t limit,
                   int64_t *max) {
  int64_t n = r->t->shape[0], off = d->by_offsets ? 1 : 0;
  int64_t before = off && n ? element(r->t, 0) : 0;
  *max = 0;
  if (off && n && before < 0)
    return wrong(r, 0, before, "an offset is negative");
  for (int64_t i = off; i < n; i++) {
    int64_t v = element(r->t, i), len = v - before;
    if (v < 0)
      return wrong(r, i, v,
                   off ? "an offset is negative" : "a length is negative");
    if (len < 0) return wrong(r, i, v, "offsets must ascend");
    int rc = check(r, d, i - off, len, limit);
    if (rc) return rc;
    if (off) before = v;
    if (len > *max) *max = len;
  }
  return ATTN_OK;
}

static bool integers(int dtype) {
  return dtype >= ATTN_I64 && dtype <= ATTN_U8;
}

int rt_ragged(const Env *env, uint32_t dim, int64_t limit, int64_t *max,
              attn_error *err) {
  const attn_program *p = env->prog;
  const attn_dim_desc *d = &p->dims[dim];
  uint32_t nt = 0;
  for (uint32_t i = 0; i < p->nparams; i++) {
    if (p->params[i].kind == ATTN_PARAM_SCALAR || nt++ != d->by) continue;
    Reader r = {env->tensors[d->by], p->params[i].name, d->name, (int)i, err};
    if (p->params[i].rank != 1 || !integers(p->params[i].dtype))
      return rt_fail(err, ATTN_E_INTERNAL, "'%s' cannot hold lengths", r.name);
    if (!r.t->data && r.t->shape[0])
      return rt_fail_at(err, ATTN_E_NULL, (Where){(int)i, -1, 0, 0},
                        "argument '%s' has no data", r.name);
    return longest(&r, d, limit, max);
  }
  return rt_fail(err, ATTN_E_INTERNAL, "no lengths of dim %s", d->name);
}
