// What the mock HIP library records, and how it is told to fail.
#ifndef MOCK_HIP_H
#define MOCK_HIP_H

#include <stddef.h>

typedef struct MockHip {
  // set by tests
  const char *fail;  // name of the function that fails
  int code;          // with this
  const char *arch;  // "gfx942:sramecc+:xnack-"
  int units, per_unit, local, devices, capturing;
  const char *device_memory;  // of device 1
  size_t device_bytes;
  // recorded
  char symbol[64];  // of the last launch
  unsigned char block[4096];
  size_t block_bytes;
  unsigned grid, threads, shared_bytes;
  void *stream;
  int device;  // current when it was launched
  unsigned launches, loads, unloads, allocs, frees;
  char image[16];  // how the last module's code begins
  int current;
} MockHip;

#endif
