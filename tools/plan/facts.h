// What an editor shows of a declaration: for a program its work, online form,
// masks and tiles; for a row its online form and gauge in a program made for
// it; for a mask its class, bounds and picture.
#ifndef ATTNC_PLAN_FACTS_H
#define ATTNC_PLAN_FACTS_H

#include "ir/core/ctx.h"

typedef struct FactsReader {
  const char *const *dirs;  // -I
  uint32_t ndirs;
  ReadFileFn *read;  // NULL: the file system
  void *data;
} FactsReader;

// Lines of text about the declaration `name` of the file; nothing if there is
// nothing to tell. Works in a session of its own.
void facts_of(const FactsReader *r, const char *path, const char *text,
              uint32_t len, const char *name, Buf *out);

#endif
