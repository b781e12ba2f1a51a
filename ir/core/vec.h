// Typed growable arrays on an arena. `Vec(int) v = {0};` is an empty one.
#ifndef ATTNC_IR_CORE_VEC_H
#define ATTNC_IR_CORE_VEC_H

#include "ir/core/arena.h"
#include <string.h>

#define Vec(T) \
  struct { \
    T *at; \
    uint32_t n, cap; \
  }

// Grows *at (elements of `size` bytes) so that it holds at least `need`.
void *vec_grow(Arena *a, void *at, uint32_t *cap, uint32_t need, size_t size);

#define vec_push(a, v, x) \
  ((void)((v)->n == (v)->cap && \
          ((v)->at = \
               vec_grow((a), (v)->at, &(v)->cap, (v)->n + 1, sizeof *(v)->at), \
           0)), \
   (v)->at[(v)->n++] = (x))

#endif
