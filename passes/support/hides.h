// A table of terms of scores that tells which pairs a mask hides: `hides` on
// its load. Made by bias_table, read where masks are made (passes/tile/loop.c).
#ifndef ATTNC_PASSES_SUPPORT_HIDES_H
#define ATTNC_PASSES_SUPPORT_HIDES_H

// The number of a hidden pair, the lowest f32. A term that has it has the one
// beside it instead.
#define HIDES_PAIR (-0x1.fffffep127)
#define HIDES_BESIDE (-0x1.fffffcp127)
// The note on a part of a domain that such a table tells.
#define HIDES_NOTE "hidden"

#endif
