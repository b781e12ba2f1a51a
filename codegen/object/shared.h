// A shared library of one object, without a linker.
#ifndef ATTNC_CODEGEN_OBJECT_SHARED_H
#define ATTNC_CODEGEN_OBJECT_SHARED_H

#include "ir/core/buf.h"

// Makes the library in `out` of an object for x86-64 or aarch64, as cg_object
// makes them. What is undefined stays open and is called through stubs. NULL,
// or what the object has that this cannot, in the arena of `out`.
const char *shared_of_object(const Buf *object, Buf *out);

#endif
