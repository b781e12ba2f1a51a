// What a page has not: files to write, and a clock that anyone looks at.
#include "ir/core/outfile.h"
#include "ir/core/watch.h"

void out_folder(const char *path) {
  (void)path;
}

bool out_write(const char *path, const void *bytes, size_t n) {
  (void)path, (void)bytes, (void)n;
  return false;
}

int64_t watch_now(void) {
  return 0;
}
