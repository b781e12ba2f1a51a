// What the mock driver records, and how it is told to fail.
#ifndef MOCK_CUDA_H
#define MOCK_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef struct MockMap {
  int type, swizzle, promotion;
  unsigned rank;
  const void *data;
  uint64_t extent[5], stride[5];  // stride[0] is that of axis 1
  uint32_t box[5];
} MockMap;

typedef struct MockLaunch {
  char symbol[64];
  void *stream;
  unsigned grid, threads, shared_bytes;
  int early;  // may start while the one in front of it ends
  uint64_t ctx;
  unsigned char block[4096];
} MockLaunch;

typedef struct MockCuda {
  // set by tests
  const char *fail;  // name of the function that fails
  int code;          // with this
  int major, minor, sms, per_sm, local, devices;
  size_t block_bytes;  // of the kernel's parameter; 0: not known
  size_t kept_bytes;   // of it that are kept then
  int capturing;
  int most_shared;            // bytes a group may have
  int only_text;              // machine code does not load
  int quick;                  // record nothing
  const char *device_memory;  // of device 1
  size_t device_bytes;
  // recorded
  MockLaunch last;
  unsigned launches, encodes, loads, unloads, allocs, frees, retained;
  unsigned texts;   // modules loaded from text
  MockMap map[16];  // the latest encodes, round
  void *current;
} MockCuda;

#endif
