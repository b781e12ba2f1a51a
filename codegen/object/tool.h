// Programs that are found at run time and run: the assembler ptxas, the linker
// ld.lld.
#ifndef ATTNC_CODEGEN_OBJECT_TOOL_H
#define ATTNC_CODEGEN_OBJECT_TOOL_H

#include "ir/ir.h"

// The program of that name: $variable, else PATH, else the first of `usual`
// (ends with NULL) that is there. NULL: none.
const char *tool_find(Ctx *cx, const char *variable, const char *name,
                      const char *const *usual);
// A temporary file without a name that a child opens as /proc/self/fd/N; -1:
// none.
int tool_file(void);
bool tool_write(int fd, const char *p, size_t n);
bool tool_read(int fd, Buf *out);
// Runs the program args[0] with its standard output and errors in these files;
// its exit code, -1: it could not run or was ended. It is killed if the calling
// thread ends.
int tool_run(Ctx *cx, char *const *args, int out, int err);

#endif
