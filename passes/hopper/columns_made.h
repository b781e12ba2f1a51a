// Columns that a maker reads of memory for the groups that compute.
#ifndef ATTNC_PASSES_HOPPER_COLUMNS_MADE_H
#define ATTNC_PASSES_HOPPER_COLUMNS_MADE_H

#include "ir/target.h"

void hop_columns_made(Func *f, const Target *t);

#endif
