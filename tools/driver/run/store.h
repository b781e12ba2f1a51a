// Private to the driver: the object of a call.
#ifndef ATTNC_DRIVER_RUN_STORE_H
#define ATTNC_DRIVER_RUN_STORE_H

#include "tools/driver/compile/compile.h"

typedef struct DrvObject {
  const char *prefix, *name;  // of its descriptor
  const char *at;
  size_t n;
  bool found;  // compiled before
  Buf bytes;   // that it is in
} DrvObject;

// Compiled, or found in opt->store.
bool drv_object(DrvCall *c, DrvSpec s, const Target *t, const DrvOptions *opt,
                DrvObject *out);

#endif
