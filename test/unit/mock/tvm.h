// What the stand-in for libtvm_ffi records, and how it is told to fail.
#ifndef MOCK_TVM_H
#define MOCK_TVM_H

#include <stdint.h>

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
