// Files that are written whole or not at all: a new file beside the old one,
// renamed over it at the end. Where the file system can, it has no name before
// that: a process that is killed leaves nothing. The old file's mode is kept,
// symbolic links are followed. Pipes, terminals and descriptors (/dev/stdout,
// /dev/fd/3) are written directly.
//
// Failures leave errno and the old file; every opened OutFile is closed by
// out_close, which also removes what was written of a file that failed.
#ifndef ATTNC_IR_CORE_OUTFILE_H
#define ATTNC_IR_CORE_OUTFILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct OutFile {
  int fd;
  int error;  // errno of the first failure
  mode_t mode;
  bool keeps_mode;      // whatever the umask says: of a file that was there
  bool nameless;        // until it is whole
  char path[PATH_MAX];  // what is replaced: the end of all links
  char temp[PATH_MAX];  // where other programs may write; path if direct
} OutFile;

// `mode` is for a file that is new, less the process's umask: 0666.
bool out_open(OutFile *o, const char *path, mode_t mode);
bool out_put(OutFile *o, const void *bytes, size_t n);
// Puts the file in its place if `keep` and nothing failed.
bool out_close(OutFile *o, bool keep);
// All three.
bool out_write(const char *path, const void *bytes, size_t n);

// Makes the folder and those it lies in; what fails shows when a file is
// written there.
void out_folder(const char *path);

#endif
