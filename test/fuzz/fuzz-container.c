// Container loader. The hash is repaired first, so that the section table gets
// its share of the inputs.
#include "runtime/attn_abi.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void touch(const attn_module *m) {
  volatile unsigned char sink = 0;
  attn_section_info s;
  for (uint32_t i = 0; !attn_module_section(m, i, &s); i++)
    for (size_t k = 0; k < s.size; k++)
      sink = (unsigned char)(sink ^ ((const unsigned char *)s.data)[k]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  uint8_t *copy = malloc(n ? n : 1);
  memcpy(copy, data, n);
  attn_container_header h;
  if (n >= sizeof h) {
    memcpy(&h, copy, sizeof h);
    memcpy(h.magic, ATTN_MAGIC, 4);
    h.major = ATTN_CONTAINER_MAJOR;
    h.length = n;
    h.nsections %= 64;
    memcpy(copy, &h, sizeof h);
    h.hash = attn_container_hash(copy, n);
    memcpy(copy, &h, sizeof h);
  }
  attn_module *m = attn_module_load(NULL, copy, n, NULL);
  if (m) touch(m);
  attn_module_close(m);
  free(copy);
  return 0;
}
