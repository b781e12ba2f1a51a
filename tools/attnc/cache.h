// What was compiled is kept: the same texts, options and compiler have the same
// object. Nothing is kept of a compilation that says something (a warning), or
// is asked to show its passes.
#ifndef ATTNC_ATTNC_CACHE_H
#define ATTNC_ATTNC_CACHE_H

#include "tools/attnc/attnc.h"

// Made when all sources of the session are read.
typedef struct Cache {
  const char *folder, *path;  // NULL: nothing is kept
  Buf key;                    // all that the result depends on
  uint32_t said;              // diagnostics so far
} Cache;

Cache cache_open(Session *s);
// The object, or text of a stage, and the header.
bool cache_get(Session *s, const Cache *c, Buf *out, Buf *header);
void cache_put(Session *s, const Cache *c, const Buf *out, const Buf *header);

// Objects of calls (drv_load) in the same folder; NULL: nothing is kept.
const DrvStore *cache_store(Session *s);

#endif
