// Which axes of a program its tiles have, asked before there are tiles.
#ifndef ATTNC_PASSES_SUPPORT_LANE_H
#define ATTNC_PASSES_SUPPORT_LANE_H

#include "ir/affine.h"

// A dot of vectors row by row, as a product of the elements and their sum: each
// axis of one operand is the other's as well.
bool lane_is_inner(const Func *f, const Op *dot);

// Is a dot of these row by row, or of one vector and each row of the other,
// where rows are those of tasks?
bool lane_has_rows(const Func *f, const Type *x, const Type *y);

// A dot of matrices: each operand has an axis, of more than one coordinate,
// that the other lacks.
bool lane_is_product(const Func *f, const Op *dot);

// The parallel axis that is cut into tiles, or -1.
int lane_axis(const Func *f);
// Are keys bounded by the coordinate along that axis, as by a query's place?
bool lane_bounds_keys(const Func *f, uint32_t axis);
// Is the axis as long as keys are?
bool lane_long(const Func *f, uint32_t axis);
// One of the two.
bool lane_like_keys(const Func *f, uint32_t axis);
// No axis makes products of matrices: the best is one that both operands of a
// product have.
bool lane_lacks(const Func *f, uint32_t *axis);
// An axis makes products of matrices.
bool lane_multiplies(const Func *f);
// Tasks have few rows along that lane whatever the shape: those of one group of
// warps, or the heads that share keys.
bool lane_few(const Func *f, int lane);
// Is d a factor of n, or n itself?
bool lane_has_factor(const DimTab *t, Dim n, Dim d);
// Of a program whose rows are few: is f a phase whose passes over keys have
// rows of which that is not known, as those of all sequences?
bool lane_many(const Func *f, int lane);
// Keys are few whatever the shape: a task that has one row of them has little
// to do.
bool lane_few_keys(const Func *f);
// Columns of states along that axis may be in several tasks; stores: those that
// all tasks would do forbid it.
bool lane_divides(const Func *f, uint32_t axis, bool stores);
// v is made of something that memory has.
bool lane_from_memory(const Func *f, Value v);
// The load reads rows at an offset that memory gives: those of one sequence of
// many, one behind the other.
bool lane_packed(const Func *f, const Op *load, uint32_t axis);
// The 16-bit type of what goes into a state: that of a vector from memory.
DType lane_narrow(const Func *f, const Affine *a);
// Of an operand without the lane: a matrix that tasks have of their own, by
// which all rows of a task are multiplied; there are no keys.
bool lane_is_matrix(const Func *f, const Type *t);
// Does t vary with a key axis?
bool lane_has_key(const Func *f, const Type *t);
// Elements of the vector axes of t.
int64_t lane_elements(const Func *f, const Type *t);
// Has the region a recurrence?
bool lane_walks(const Region *r);
// The one recurrence of program f, all of whose ops are plain, as those of its
// steps are; or NULL. Axes have bits of a set: there are 63 at most.
const Op *lane_recurrence(const Func *f);
// The largest extent that an axis may have.
int64_t lane_extent(const Func *f, uint32_t axis);
// At level attn: one list of values without keys and products, whose outputs
// nothing reads.
bool lane_is_map(const Func *f);
// Parallel axes whose points add to the same elements of memory.
uint64_t lane_added(const Func *f);

#endif
