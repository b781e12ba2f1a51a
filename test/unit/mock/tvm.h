// What the stand-in for libtvm_ffi records, how it is told to fail, and tensors
// as loaders make them.
#ifndef MOCK_TVM_H
#define MOCK_TVM_H

#include <stdint.h>

typedef struct DlTensor {  // DLPack's, written apart from the runtime's
  void *data;
  int32_t device, ordinal, rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *stride;
  uint64_t offset;
} DlTensor;

typedef struct MockTvm {
  // set by tests
  int full;  // its allocator has nothing
  // recorded
  char kind[32], message[300];  // of the error raised last
  int errors, allocs, drops;
  int32_t device, ordinal;  // that it was asked for
  int64_t bytes;
  char room[256] __attribute__((aligned(64)));  // what its allocator gives
} MockTvm;

#endif
