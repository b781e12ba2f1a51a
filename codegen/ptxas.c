// ptxas, found at run time and run as a program: PTX in, machine code out. Its
// log tells registers, spills and the warnings that make a kernel slow.
#include "codegen/cg.h"
#include "codegen/codegen.h"
#include "codegen/tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *cg_ptxas_path(Ctx *cx) {
  static const char *const usual[] = {"/usr/local/cuda/bin/ptxas", NULL};
  return tool_find(cx, "ATTNC_PTXAS", "ptxas", usual);
}

// ---------------------------------------------------------------- run
typedef struct Files {
  int ptx, cubin, log;
} Files;

static int run(Ctx *cx, const char *tool, const Target *t, Files f) {
  char *args[] = {(char *)tool, "-v", "-arch", (char *)t->cpu, "-o",
                  arena_printf(&cx->session, "/proc/self/fd/%d", f.cubin),
                  arena_printf(&cx->session, "/proc/self/fd/%d", f.ptx), NULL};
  return tool_run(args, f.log, f.log);
}

// ---------------------------------------------------------------- log
// "Compiling entry function 'k' for 'sm_90a'", then lines "0 bytes stack frame,
// 0 bytes spill stores, 8 bytes spill loads" and "Used 168 registers, ..". Then
// come the functions that the kernel calls.
static CgKernelRecord *find(CgKernels *all, const char *name, size_t n) {
  for (uint32_t i = 0; i < all->n; i++) {
    const char *s = all->at[i].symbol;
    if (strncmp(s, name, n) == 0 && !s[n]) return &all->at[i];
  }
  return NULL;
}

// "(C7514) Potential Performance Loss: wgmma.mma_async instructions are
// serialized due to .. in the function 'k'", "(C7517) warpgroup.wait is
// injected .. in function 'k'"
static void read_warning(CgKernels *all, const char *line) {
  const char *p = strstr(line, "serialized due to");
  if (!p) p = strstr(line, "warpgroup.wait is injected");
  const char *name = p ? strstr(p, "function '") : NULL;
  if (!name) return;
  name += strlen("function '");
  CgKernelRecord *k = find(all, name, strcspn(name, "'"));
  if (k) k->serialized = true;
}

static void read_line(CgKernels *all, CgKernelRecord **now, const char *line) {
  const char *p = strstr(line, "entry function '");
  read_warning(all, line);
  if (p) {
    p += strlen("entry function '");
    *now = find(all, p, strcspn(p, "'"));
    if (*now) (*now)->spill_bytes = 0;
  }
  if (!*now) return;
  p = strstr(line, "bytes stack frame, ");
  const char *loads = strstr(line, "spill stores, ");
  if (p && loads) {
    unsigned long s = strtoul(p + strlen("bytes stack frame, "), NULL, 10);
    unsigned long l = strtoul(loads + strlen("spill stores, "), NULL, 10);
    // A frame without spills is local memory too.
    unsigned long frame = strtoul(line, NULL, 10);
    (*now)->spill_bytes += (uint32_t)(s + l ? s + l : frame);
  }
  p = strstr(line, "Used ");
  if (p) (*now)->registers = (uint32_t)strtoul(p + 5, NULL, 10);
}

static void read_log(CgKernels *all, char *text) {
  CgKernelRecord *now = NULL;
  char *save = NULL;
  for (char *line = strtok_r(text, "\n", &save); line;
       line = strtok_r(NULL, "\n", &save))
    read_line(all, &now, line);
}

// ---------------------------------------------------------------- entry
static bool assemble(Ctx *cx, const char *tool, const Target *t, Files f,
                     const char *ptx, size_t n, Buf *cubin, CgKernels *all,
                     Buf *log) {
  Buf text = {.arena = &cx->session};
  if (f.ptx < 0 || f.cubin < 0 || f.log < 0 || !tool_write(f.ptx, ptx, n)) {
    diag_add(cx, DIAG_cg_failed, NOWHERE, "ptxas", strerror(errno));
    return false;
  }
  int rc = run(cx, tool, t, f);
  bool ok = tool_read(f.log, &text);
  buf_char(&text, 0);
  if (rc != 0 || !ok) {
    diag_add(cx, DIAG_cg_failed, NOWHERE, tool,
             text.n > 1 ? text.at : "cannot run");
    return false;
  }
  if (log) buf_add(log, text.at, text.n - 1);
  if (all) read_log(all, text.at);
  return tool_read(f.cubin, cubin);
}

bool cg_ptxas(Ctx *cx, const Target *t, const char *ptx, size_t n, Buf *cubin,
              CgKernels *all, Buf *log) {
  const char *tool = cg_ptxas_path(cx);
  if (!tool) {
    diag_add(cx, DIAG_cg_failed, NOWHERE, "ptxas",
             "not found (ATTNC_PTXAS, PATH, /usr/local/cuda/bin)");
    return false;
  }
  Files f = {tool_file(), tool_file(), tool_file()};
  bool ok = assemble(cx, tool, t, f, ptx, n, cubin, all, log);
  if (f.ptx >= 0) close(f.ptx);
  if (f.cubin >= 0) close(f.cubin);
  if (f.log >= 0) close(f.log);
  return ok;
}
