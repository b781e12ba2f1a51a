// A reader of files that finds none: imports find the embedded stdlib only.
#ifndef ATTNC_TEST_NOFILES_H
#define ATTNC_TEST_NOFILES_H

#include "ir/core/arena.h"

#include <errno.h>

static const char *no_files(void *data, Arena *a, const char *path,
                            uint32_t *len) {
  (void)data, (void)a, (void)path, (void)len;
  errno = ENOENT;
  return NULL;
}

#endif
