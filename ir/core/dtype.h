// Element types: one row of dtype.def each, and their exact conversions.
#ifndef ATTNC_IR_CORE_DTYPE_H
#define ATTNC_IR_CORE_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum DType {
#define DTYPE(name, id, bytes, kind, mant) DT_##id,
#include "ir/dtype.def"
  DT_COUNT,
  DT_NONE = DT_COUNT
} DType;

const char *dtype_name(DType t);
bool dtype_by_name(const char *name, uint32_t len, DType *t);
int dtype_size(DType t);   // bytes
char dtype_kind(DType t);  // 'f', 'i', 'u', 'b'
static inline bool dtype_is_float(DType t) {
  return dtype_kind(t) == 'f';
}
static inline bool dtype_is_float16(DType t) {
  return t == DT_BF16 || t == DT_F16;
}

// v rounded to t (round to nearest even, overflow to inf; f8e4m3 saturates to
// NaN as OCP OFP8 says; integers truncate toward zero and wrap).
double dtype_round(DType t, double v);
void dtype_round_many(DType t, double *v, uint32_t n);
// One element in memory <-> double, exact for every type (i64: to 53 bits).
double dtype_load(DType t, const void *p);
// n of them, at[i] bytes behind p.
void dtype_gather(DType t, const void *p, const uint32_t *at, uint32_t n,
                  double *out);
// v, truncated; what lies behind the ends of i64 is its end, NaN is 0.
int64_t dtype_int(double v);
// v, or a number beside it; what rounds to 2^63, where i64 begins remat, is the
// largest below: dtype_int gives INT64_MAX back.
double dtype_number(int64_t v);
void dtype_store(DType t, void *p, double v);
// Of n neighbours.
void dtype_store_many(DType t, void *p, const double *v, int64_t n);

#endif
