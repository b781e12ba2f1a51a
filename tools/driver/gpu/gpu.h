// A GPU as tools see it: memory, copies, a stream, times. Launches go through
// libattn. The driver, NVIDIA's or AMD's, is opened at run time.
#ifndef ATTNC_DRIVER_GPU_GPU_H
#define ATTNC_DRIVER_GPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct DrvGpu {
  void *lib, *ctx, *stream;
  void *event[2];
  bool amd;
  int ordinal, dev;
  char name[128];
  int version;      // 90: sm_90, or gfx900 to gfx90f
  char arch[16];    // "sm_90", "gfx90x"
  uint32_t units;   // multiprocessors
  char error[256];  // of the last call that gave false
  struct DrvGpuApi *api;
} DrvGpu;

// False: error says why. Makes the device (its primary context) current.
bool drv_gpu_open(DrvGpu *g, bool amd, int ordinal);
void drv_gpu_close(DrvGpu *g);
// Bytes of device memory, each set to 0xff: NaN in every float type.
bool drv_gpu_alloc(DrvGpu *g, size_t n, void **p);
bool drv_gpu_poison(DrvGpu *g, void *p, size_t n);
void drv_gpu_free(DrvGpu *g, void *p);
bool drv_gpu_upload(DrvGpu *g, void *to, const void *from, size_t n);
bool drv_gpu_download(DrvGpu *g, void *to, const void *from, size_t n);
bool drv_gpu_wait(DrvGpu *g);
// Marks a point of the stream (which: 0 start, 1 end); seconds between them,
// after waiting for the end.
bool drv_gpu_mark(DrvGpu *g, int which);
bool drv_gpu_seconds(DrvGpu *g, double *s);

#endif
