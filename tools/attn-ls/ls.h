// The language server as an object: bytes of the client go in, framed messages
// come out. No input or output of its own besides reading .attn files, so that
// tests and fuzz targets drive it in their process. Never links LLVM.
#ifndef ATTNC_LS_LS_H
#define ATTNC_LS_LS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Ls Ls;

typedef struct LsHost {
  // One whole message with its header.
  void (*send)(void *data, const char *bytes, size_t n);
  void *data;
  const char *attnc;       // command behind machine-code views; NULL: none
  const char *cache_dir;   // where read-only files are put; NULL: nowhere
  const char *stdlib_dir;  // files of the library, or NULL
  bool no_files;           // never looks at the file system
  void (*no_memory)(void *data);  // must not return; NULL: a trap
} LsHost;

// The strings of `host` must outlive the server. Freed with ls_free.
Ls *ls_new(const LsHost *host);
void ls_free(Ls *ls);
// Takes bytes of the client; whole messages are queued.
void ls_feed(Ls *ls, const char *bytes, size_t n);
// Answers what is queued, then publishes diagnostics of what changed.
void ls_work(Ls *ls);
// After `exit`, or after input that cannot be framed: the exit code.
bool ls_done(const Ls *ls, int *code);
// File of a running child's output to poll, or -1; and what to call when it
// can be read or time_ms is over.
int ls_child_fd(const Ls *ls, int *time_ms);
void ls_child_ready(Ls *ls);

#endif
