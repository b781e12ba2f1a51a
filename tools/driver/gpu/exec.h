// Private to the driver: running a program on a GPU of this machine.
#ifndef ATTNC_DRIVER_GPU_EXEC_H
#define ATTNC_DRIVER_GPU_EXEC_H

#include "runtime/attn_abi.h"
#include "tools/driver/driver.h"

// A call's arguments as the runtime takes them; tensors in host memory.
typedef struct Packed {
  attn_tensor tensors[ATTN_MAX_PARAMS], *ptrs[ATTN_MAX_PARAMS];
  attn_scalar scalars[ATTN_MAX_PARAMS];
  bool read[ATTN_MAX_PARAMS], written[ATTN_MAX_PARAMS];
  uint32_t n;
} Packed;

typedef struct OnGpu OnGpu;
// The first device, if it runs code for t; NULL with a diagnostic.
OnGpu *drv_on_gpu_open(Ctx *cx, const Target *t);
void drv_on_gpu_close(OnGpu *g);
bool drv_on_gpu_launch(DrvCall *c, OnGpu *g, const attn_program *prog,
                       const Packed *p);
bool drv_on_gpu_time(DrvCall *c, OnGpu *g, const attn_program *prog, double *s);

#endif
