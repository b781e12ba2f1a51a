// Outputs that share memory with another tensor, or with themselves: tasks
// would write what others read. Only what is certain is refused: views that lie
// in each other's gaps, such as heads of one packed array, are not.
#include "rt.h"

#include <stdlib.h>

static bool writes(const attn_param_desc *d) {
  return d->kind == ATTN_PARAM_OUT || d->kind == ATTN_PARAM_INOUT;
}

static bool has_elements(const attn_tensor *t) {
  for (int k = 0; t && t->data && k < t->rank; k++)
    if (t->shape[k] == 0) return false;
  return t && t->data;
}

// ---- with itself

// One step along axis a is less than the length of b in steps of b.
static bool meet(const attn_tensor *t, int a, int b) {
  int64_t far = llabs(t->stride[a]), near = llabs(t->stride[b]);
  return t->shape[a] > 1 && t->shape[b] > 1 && near && far % near == 0 &&
         far / near < t->shape[b];
}

static int check_itself(const attn_program *p, int i, const attn_tensor *t,
                        attn_error *err) {
  for (int a = 0; a < t->rank; a++)
    for (int b = 0; b < t->rank; b++)
      if (a != b && meet(t, a, b))
        return rt_fail_at(err, ATTN_E_STRIDE, (Where){i, a, 0, t->stride[a]},
                          "argument '%s', axis %d: stride %lld has elements "
                          "of an output in one place with those of axis %d",
                          p->params[i].name, a, (long long)t->stride[a], b);
  return ATTN_OK;
}

// ---- with others

typedef struct Bytes {
  uintptr_t lo, hi;
  bool whole;  // each byte is an element's; there are some
} Bytes;

// Strides have been checked: nothing is too large.
static Bytes bytes_of(const attn_tensor *t, int64_t size) {
  int64_t below = 0, above = 0, count = 1;
  for (int k = 0; k < t->rank; k++) {
    int64_t span = t->stride[k] * (t->shape[k] - 1);
    below += span < 0 ? span : 0;
    above += span > 0 ? span : 0;
    if (__builtin_mul_overflow(count, t->shape[k], &count)) count = 0;
  }
  uintptr_t at = (uintptr_t)t->data;
  return (Bytes){at + (uintptr_t)(below * size),
                 at + (uintptr_t)((above + 1) * size),
                 above - below + 1 == count};
}

static int check_pair(const attn_program *p, int i, const Bytes *a, int k,
                      const Bytes *b, attn_error *err) {
  if (!a->whole || !b->whole || a->hi <= b->lo || b->hi <= a->lo)
    return ATTN_OK;
  return rt_fail_at(err, ATTN_E_ARGUMENT, (Where){i, -1, 0, 0},
                    "argument '%s', an output, lies in the memory of '%s'",
                    p->params[i].name, p->params[k].name);
}

int rt_overlap(const attn_program *p, const attn_tensor *const *tensors,
               attn_error *err) {
  Bytes bytes[ATTN_MAX_PARAMS];
  int rc = ATTN_OK, n = (int)p->nparams, nt = 0;
  for (int i = 0; i < n && !rc; i++) {
    const attn_param_desc *d = &p->params[i];
    bytes[i].whole = false;
    if (d->kind == ATTN_PARAM_SCALAR) continue;
    const attn_tensor *t = tensors[nt++];
    if (!has_elements(t)) continue;
    bytes[i] = bytes_of(t, (int64_t)attn_dtype_size(d->dtype));
    if (writes(d)) rc = check_itself(p, i, t, err);
  }
  for (int i = 0; i < n && !rc; i++)
    for (int k = 0; k < n && !rc && writes(&p->params[i]); k++) {
      bool again = k < i && writes(&p->params[k]);  // that pair was looked at
      if (k != i && !again) rc = check_pair(p, i, &bytes[i], k, &bytes[k], err);
    }
  return rc;
}
