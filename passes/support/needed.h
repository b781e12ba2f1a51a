// Parts of a loop's body, again.
#ifndef ATTNC_PASSES_SUPPORT_NEEDED_H
#define ATTNC_PASSES_SUPPORT_NEEDED_H

#include "ir/ir.h"

// v's value by m; what it needs of the region `body`, and m does not have, is
// cloned at b first.
Value needed_clone(Builder *b, const Region *body, ValueMap *m, Value v);

#endif
