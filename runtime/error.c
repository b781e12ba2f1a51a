// Codes and texts of failures.
#include "rt.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const code_texts[ATTN_E_COUNT] = {
    [ATTN_OK] = "success",
    [ATTN_E_ARGUMENT] = "invalid call",
    [ATTN_E_ABI] = "ABI version mismatch",
    [ATTN_E_NULL] = "missing data",
    [ATTN_E_DTYPE] = "element type mismatch",
    [ATTN_E_RANK] = "rank mismatch",
    [ATTN_E_SHAPE] = "shape mismatch",
    [ATTN_E_STRIDE] = "unusable strides",
    [ATTN_E_ALIGN] = "misaligned data",
    [ATTN_E_DIM] = "dim out of range",
    [ATTN_E_CONSTRAINT] = "constraint violated",
    [ATTN_E_UNSUPPORTED] = "not supported by the compiled code",
    [ATTN_E_MEMORY] = "out of memory",
    [ATTN_E_DEVICE] = "device failure",
    [ATTN_E_IO] = "cannot read file",
    [ATTN_E_FORMAT] = "invalid container",
    [ATTN_E_INTERNAL] = "inconsistent program descriptor",
};

static const struct {
  const char *name;
  size_t size;
} dtypes[ATTN_DTYPE_COUNT] = {
    [ATTN_F64] = {"f64", 8},       [ATTN_F32] = {"f32", 4},
    [ATTN_TF32] = {"tf32", 4},     [ATTN_BF16] = {"bf16", 2},
    [ATTN_F16] = {"f16", 2},       [ATTN_F8E4M3] = {"f8e4m3", 1},
    [ATTN_F8E5M2] = {"f8e5m2", 1}, [ATTN_I64] = {"i64", 8},
    [ATTN_I32] = {"i32", 4},       [ATTN_I16] = {"i16", 2},
    [ATTN_I8] = {"i8", 1},         [ATTN_U32] = {"u32", 4},
    [ATTN_U16] = {"u16", 2},       [ATTN_U8] = {"u8", 1},
    [ATTN_BOOL] = {"bool", 1},
};

const char *attn_code_text(int code) {
  bool known = code >= 0 && code < ATTN_E_COUNT;
  return known ? code_texts[code] : "unknown error code";
}

const char *attn_dtype_name(int dtype) {
  bool known = dtype >= 0 && dtype < ATTN_DTYPE_COUNT;
  return known ? dtypes[dtype].name : "?";
}

size_t attn_dtype_size(int dtype) {
  bool known = dtype >= 0 && dtype < ATTN_DTYPE_COUNT;
  return known ? dtypes[dtype].size : 0;
}

static void fill(attn_error *err, int code, Where w, const char *fmt,
                 va_list ap) {
  if (!err) return;
  *err = (attn_error){.code = code,
                      .arg = w.arg,
                      .dim = w.dim,
                      .expected = w.expected,
                      .got = w.got};
  vsnprintf(err->text, sizeof err->text, fmt, ap);
}

int rt_ok(attn_error *err) {
  if (err) *err = (attn_error){.arg = -1, .dim = -1};
  return ATTN_OK;
}

int rt_fail(attn_error *err, int code, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fill(err, code, (Where){.arg = -1, .dim = -1}, fmt, ap);
  va_end(ap);
  return code;
}

int rt_fail_at(attn_error *err, int code, Where w, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fill(err, code, w, fmt, ap);
  va_end(ap);
  return code;
}
