// gpu-run's state: one program, its arrays on the host and on the device.
#ifndef ATTNC_GPU_RUN_H
#define ATTNC_GPU_RUN_H

#include "ir/core/ctx.h"
#include "ir/core/vec.h"
#include "runtime/attn_abi.h"
#include "tools/driver/gpu/gpu.h"
#include "tools/driver/run/npy.h"

typedef struct RunSetting {  // an option that may be given many times
  int option;
  const char *text;
} RunSetting;

typedef struct Array {
  const attn_param_desc *desc;
  NpyArray host;  // what the program reads; then its results
  void *device;
  void *first;  // results of the first launch
} Array;

typedef struct Run {
  Ctx cx;
  Vec(RunSetting) settings;
  bool verify, cpu, amd, sparse;
  double tol;
  uint64_t seed;
  long runs, repeat;
  int device;
  const attn_program *prog;
  DrvGpu gpu;
  Array array[ATTN_MAX_PARAMS];  // tensors
  attn_scalar scalar[ATTN_MAX_PARAMS];
  uint32_t ntensors, nscalars;
  int64_t dims[ATTN_MAX_DIMS];
  bool known[ATTN_MAX_DIMS];
} Run;

// args.c: dims, shapes, input arrays, room for outputs. False: a message was
// printed or a diagnostic given.
bool run_inputs(Run *r);
// The text behind "NAME=" of the option for this name, or NULL.
const char *run_setting(const Run *r, int option, const char *name);
size_t run_bytes(const Array *a);
bool run_is_output(const Array *a);  // also inout
bool run_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// launch.c: runs, compares, times, writes.
bool run_launch(Run *r);

#endif
