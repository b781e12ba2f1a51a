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

// Programs that passed the checks are asked for all that needs no device.
static void ask(const attn_program *p) {
  static char memory[64];
  attn_tensor t[ATTN_MAX_PARAMS], *at[ATTN_MAX_PARAMS] = {0};
  attn_scalar scalars[ATTN_MAX_PARAMS] = {{0}};
  int64_t dims[ATTN_MAX_DIMS], shape[ATTN_MAX_RANK];
  uint32_t nt = 0;
  char text[200];
  attn_signature(p, text, sizeof text);
  for (uint32_t i = 0; i < p->nparams; i++) {
    const attn_param_desc *d = &p->params[i];
    if (d->kind == ATTN_PARAM_SCALAR) continue;
    for (int k = 0; k < d->rank; k++) shape[k] = 2;
    t[nt] = attn_tensor_dense(memory, d->dtype, d->rank, shape);
    for (int k = 0; k < d->rank; k++) t[nt].stride[k] = 0;
    at[nt] = &t[nt];
    nt++;
  }
  attn_solve(p, at, scalars, dims, NULL);
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
  for (uint32_t i = 0; m && i < attn_module_programs(m); i++)
    ask(attn_module_program(m, i));
  attn_module_close(m);
  free(copy);
  return 0;
}
