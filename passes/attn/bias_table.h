// Distances of a row and a key that are two numbers: of their quotients and of
// their remainders by one divisor (bias_digits.c).
#ifndef ATTNC_PASSES_ATTN_BIAS_TABLE_H
#define ATTNC_PASSES_ATTN_BIAS_TABLE_H

#include "ir/ir.h"

// A coordinate, its quotient, its remainder.
enum { DIGIT_ALL, DIGIT_QUOT, DIGIT_REST, DIGITS };

// How far a row is from a key, of each of these.
typedef struct Apart {
  Value of[DIGITS];
} Apart;

// Extents of the axes of rows and of keys.
typedef struct Extents {
  Dim rows, keys;
} Extents;

// Numbers of such distances, and that of the distance 0.
Dim bias_digits_count(DimTab *d, Extents e);
Dim bias_digits_first(DimTab *d, Extents e);
// What a coordinate gives to the number: a row's less a key's is that of their
// distance, less the first.
Value bias_digits_of(Builder *b, Value coord, Value by, Extents e);
// The distance with that number, less the first.
Apart bias_digits_apart(Builder *b, Value number, Value by, Extents e);

#endif
