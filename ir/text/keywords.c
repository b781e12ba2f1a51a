// The words of enumerations in the text form.
#include "ir/text/text.h"

#include <string.h>

enum { MAX_WORDS = 8 };

static const char *const sets[][MAX_WORDS] = {
    [WS_LEVEL] = {"attn", "stream", "tile", "frag", "mach"},
    [WS_AXIS_ROLE] = {"par", "key", "vec", "step"},
    [WS_FUNC_KIND] = {"program", "mask", "mod", "row", "fn"},
    [WS_PARAM_ROLE] = {"in", "out", "inout", "scalar", "index", "shared"},
    [WS_DIM_KIND] = {"dyn", "spec", "ragged"},
    [WS_RKIND] = {"sum", "prod", "max", "min", "any", "all"},
    [WS_DIR] = {"prefix", "suffix"},
    [WS_ORDER] = {"any", "forward", "reverse"},
    [WS_FILL] = {"neginf", "zero", "select"},
};

const char *word(WordSet set, uint32_t i) {
  return i < MAX_WORDS ? sets[set][i] : NULL;
}

bool word_find(WordSet set, const char *s, size_t len, uint32_t *i) {
  for (uint32_t k = 0; k < MAX_WORDS && sets[set][k]; k++) {
    if (strncmp(sets[set][k], s, len) != 0 || sets[set][k][len]) continue;
    *i = k;
    return true;
  }
  return false;
}

void word_list(WordSet set, Buf *out) {
  for (uint32_t k = 0; k < MAX_WORDS && sets[set][k]; k++) {
    if (k) buf_str(out, ", ");
    buf_str(out, sets[set][k]);
  }
}
