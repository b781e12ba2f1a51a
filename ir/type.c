// Types: sets of axes with a dtype. Axis lists are ascending by axis id, so
// equal types are equal field by field.
#include "ir/ir.h"

#include <assert.h>
#include <string.h>

bool type_eq(const Type *a, const Type *b) {
  if (a->kind != b->kind || a->dtype != b->dtype || a->n != b->n) return false;
  if (a->kind == TK_FRAG || a->kind == TK_SMEM)
    return a->layout == b->layout && a->slice == b->slice &&
           a->partial == b->partial && a->ext[0] == b->ext[0] &&
           a->ext[1] == b->ext[1] && a->ext[2] == b->ext[2];
  if (a->kind != TK_ELEM && a->kind != TK_TENSOR) return true;
  if (a->quads != b->quads || a->padded != b->padded) return false;
  for (uint32_t i = 0; i < a->n; i++) {
    if (a->size[i] != b->size[i]) return false;
    if (a->kind == TK_ELEM && a->axis[i] != b->axis[i]) return false;
  }
  return true;
}

Type type_scalar(DType t) {
  return (Type){.kind = TK_ELEM, .dtype = t};
}

Type type_tensor(DType t, uint32_t rank, const Dim *shape) {
  Type r = {.kind = TK_TENSOR, .dtype = t, .n = rank};
  assert(rank <= MAX_AXES);
  if (rank) memcpy(r.size, shape, rank * sizeof *shape);
  return r;
}

Type type_vec(DType t, uint32_t lanes) {
  return (Type){.kind = TK_VEC, .dtype = t, .n = lanes};
}

Type type_ptr(DType t) {
  return (Type){.kind = TK_PTR, .dtype = t};
}

Type type_frag(DType t, uint32_t rows, uint32_t cols, LayoutId layout) {
  return (Type){.kind = TK_FRAG,
                .dtype = t,
                .n = 2,
                .ext = {rows, cols},
                .layout = layout};
}

Type type_smem(DType t, uint32_t slots, uint32_t rows, uint32_t cols,
               LayoutId layout) {
  return (Type){.kind = TK_SMEM,
                .dtype = t,
                .ext = {rows, cols, slots},
                .layout = layout};
}

Type type_mbar(uint32_t n) {
  return (Type){.kind = TK_MBAR, .n = n};
}

int type_axis_at(const Type *t, uint32_t axis) {
  if (t->kind != TK_ELEM) return -1;
  for (uint32_t i = 0; i < t->n; i++)
    if (t->axis[i] == axis) return (int)i;
  return -1;
}

bool type_has_axis(const Type *t, uint32_t axis) {
  return type_axis_at(t, axis) >= 0;
}

Type type_with(Type t, uint32_t axis, Dim size) {
  uint32_t i = 0;
  while (i < t.n && t.axis[i] < axis) i++;
  if (i < t.n && t.axis[i] == axis) {
    assert(t.size[i] == size);
    return t;
  }
  assert(t.kind == TK_ELEM && t.n < MAX_AXES);
  for (uint32_t j = t.n; j > i; j--) {
    t.axis[j] = t.axis[j - 1];
    t.size[j] = t.size[j - 1];
  }
  t.axis[i] = axis;
  t.size[i] = size;
  t.n++;
  return t;
}

Type type_without(Type t, uint32_t axis) {
  int at = type_axis_at(&t, axis);
  if (at < 0) return t;
  for (uint32_t j = (uint32_t)at; j + 1 < t.n; j++) {
    t.axis[j] = t.axis[j + 1];
    t.size[j] = t.size[j + 1];
  }
  t.n--;
  return t;
}

Type type_union(const Type *a, const Type *b, DType dtype) {
  // Scalars of mach are spread over the lanes of vectors and over fragments.
  bool spread = b->kind == TK_VEC || b->kind == TK_FRAG;
  Type r = a->kind == TK_ELEM && spread ? *b : *a;
  r.dtype = dtype;
  if (r.kind == TK_FRAG && b->kind == TK_FRAG) r.partial |= b->partial;
  if (r.kind != TK_ELEM || b->kind != TK_ELEM) return r;
  for (uint32_t i = 0; i < b->n; i++) r = type_with(r, b->axis[i], b->size[i]);
  return r;
}
