// Programs of other packages that the driver runs: linkers, assemblers.
#ifndef ATTNC_DRIVER_COMPILE_LINK_H
#define ATTNC_DRIVER_COMPILE_LINK_H

#include "ir/core/ctx.h"

// The path of the first of these names found in PATH or a usual place, NULL
// if there is none. Lives in `a`.
const char *drv_find_tool(Arena *a, const char *const *names);
extern const char *const drv_linkers[], *const drv_cc[], *const drv_ptxas[];

// Links an object into a shared library at `path`.
bool drv_link_shared(Ctx *cx, const Buf *object, const char *path);

#endif
