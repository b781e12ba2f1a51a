// Points of a program's parallel indices, walked by all threads.
#ifndef ATTNC_DRIVER_RUN_POINTS_H
#define ATTNC_DRIVER_RUN_POINTS_H

#include "frontend/oracle.h"
#include "tools/driver/driver.h"

enum { POINTS_MAX_WORKERS = 64 };

typedef struct Points {
  uint32_t width;  // coordinates of one
  int64_t extent[64];
  int64_t *at;  // tuples, or NULL: all, by number
  int64_t n;
} Points;

// An argument as the oracle takes it, dense.
OracleArg points_arg(const DrvArg *a);
// All of them. False: there are none, or no such indices.
bool points_all(const DrvCall *c, Points *out);
// The corners and some at random instead.
void points_sample(const DrvCall *c, Points *p, uint64_t seed);

// Evaluates some of them; workers < POINTS_MAX_WORKERS run at the same time,
// each with a session of its own. False with a diagnostic there.
typedef bool PointsRun(Ctx *cx, const DrvCall *c, const OraclePoints *at,
                       void *data, int worker);
bool points_each(const DrvCall *c, const Points *p, PointsRun *run, void *data);

// drv_reference of a program that drv_jvp made.
bool drv_tangent_reference(DrvCall *c, double sample_above, uint64_t seed,
                           DrvReference *out);

#endif
