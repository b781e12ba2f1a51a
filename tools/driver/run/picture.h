// A call as a picture, and numbers with units.
#ifndef ATTNC_DRIVER_RUN_PICTURE_H
#define ATTNC_DRIVER_RUN_PICTURE_H

#include "tools/driver/run/cost.h"

// What the machine can (FLOP/s, B/s), and the program's operations a byte; 0:
// not known.
typedef struct DrvRoof {
  double peak, memory, work;
} DrvRoof;

// SVG: the n maps below each other, and where the program lies under the roofs,
// where all of that is known.
void drv_picture(Arena *a, const char *title, const DrvMap *maps, uint32_t n,
                 const DrvRoof *roof, Buf *out);

// The scaled number and its unit: "12.3 GFLOP".
const char *drv_scaled(Arena *a, double v, const char *unit);

#endif
