// Values on which no output depends, as no softmax does on its maximum.
#ifndef ATTNC_PASSES_SUPPORT_GAUGE_H
#define ATTNC_PASSES_SUPPORT_GAUGE_H

#include "ir/ir.h"

// By probing: v, which varies neither with keys nor along a vector, is shifted.
// At level attn. The probe shifts all points alike: that says nothing of what
// differs between keys.
bool gauge_is(const Func *f, Arena *a, Value v);

#endif
