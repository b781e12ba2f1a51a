// .npy reader.
#include "tools/driver/run/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  Arena a = {0};
  NpyArray x;
  const char *why;
  if (!npy_parse(&a, data, n, &x, &why) && !why) __builtin_trap();
  arena_drop(&a);
  return 0;
}
