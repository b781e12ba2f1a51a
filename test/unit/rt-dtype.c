// The runtime's element types are the compiler's.
#include "expect.h"
#include "ir/core/dtype.h"
#include "runtime/attn.h"

#include <string.h>

#define DTYPE(name, id, bytes, kind, mant) \
  _Static_assert((int)DT_##id == (int)ATTN_##id, name);
#include "ir/dtype.def"
_Static_assert((int)DT_COUNT == (int)ATTN_DTYPE_COUNT, "count");

int main(void) {
  for (int t = 0; t < DT_COUNT; t++) {
    EXPECT(attn_dtype_size(t) == (size_t)dtype_size((DType)t));
    EXPECT(strcmp(attn_dtype_name(t), dtype_name((DType)t)) == 0);
  }
  return verdict();
}
