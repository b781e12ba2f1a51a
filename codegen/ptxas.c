// ptxas, found at run time and run as a program: PTX in, machine code out. Its
// log tells registers, spills and the warnings that make a kernel slow.
#include "codegen/cg.h"
#include "codegen/codegen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// ---------------------------------------------------------------- where
static const char *in_path(Ctx *cx) {
  const char *p = getenv("PATH");
  while (p && *p) {
    size_t n = strcspn(p, ":");
    const char *file = arena_printf(&cx->session, "%.*s/ptxas", (int)n, p);
    if (n && access(file, X_OK) == 0) return file;
    p += n + (p[n] == ':');
  }
  return NULL;
}

const char *cg_ptxas_path(Ctx *cx) {
  static const char usual[] = "/usr/local/cuda/bin/ptxas";
  const char *set = getenv("ATTNC_PTXAS");
  if (set && *set) return access(set, X_OK) == 0 ? set : NULL;
  const char *file = in_path(cx);
  if (file) return file;
  return access(usual, X_OK) == 0 ? usual : NULL;
}

// ---------------------------------------------------------------- files
// A temporary file without a name that the child opens by number.
static int temporary(void) {
  const char *dir = getenv("TMPDIR");
  char name[4096];
  if (!dir || strlen(dir) > 4000) dir = "/tmp";
  strcpy(name, dir);
  strcat(name, "/attnc-XXXXXX");
  int fd = mkstemp(name);
  if (fd >= 0) unlink(name);
  return fd;
}

static bool write_all(int fd, const char *p, size_t n) {
  while (n) {
    ssize_t k = write(fd, p, n);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return false;
    p += k;
    n -= (size_t)k;
  }
  return lseek(fd, 0, SEEK_SET) == 0;
}

static bool read_all(int fd, Buf *out) {
  char part[8192];
  if (lseek(fd, 0, SEEK_SET) != 0) return false;
  for (;;) {
    ssize_t k = read(fd, part, sizeof part);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return k == 0;
    buf_add(out, part, (size_t)k);
  }
}

// ---------------------------------------------------------------- run
typedef struct Files {
  int ptx, cubin, log;
} Files;

static void child(Ctx *cx, const char *tool, const Target *t, Files f) {
  char *args[] = {(char *)tool, "-v", "-arch", (char *)t->cpu, "-o",
                  arena_printf(&cx->session, "/proc/self/fd/%d", f.cubin),
                  arena_printf(&cx->session, "/proc/self/fd/%d", f.ptx), NULL};
  dup2(f.log, 1);
  dup2(f.log, 2);
  execv(tool, args);
  _exit(127);
}

static int run(Ctx *cx, const char *tool, const Target *t, Files f) {
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) child(cx, tool, t, f);
  if (pid < 0) return -1;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
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
  if (f.ptx < 0 || f.cubin < 0 || f.log < 0 || !write_all(f.ptx, ptx, n)) {
    diag_add(cx, DIAG_cg_failed, NOWHERE, "ptxas", strerror(errno));
    return false;
  }
  int rc = run(cx, tool, t, f);
  bool ok = read_all(f.log, &text);
  buf_char(&text, 0);
  if (rc != 0 || !ok) {
    diag_add(cx, DIAG_cg_failed, NOWHERE, tool,
             text.n > 1 ? text.at : "cannot run");
    return false;
  }
  if (log) buf_add(log, text.at, text.n - 1);
  if (all) read_log(all, text.at);
  return read_all(f.cubin, cubin);
}

bool cg_ptxas(Ctx *cx, const Target *t, const char *ptx, size_t n, Buf *cubin,
              CgKernels *all, Buf *log) {
  const char *tool = cg_ptxas_path(cx);
  if (!tool) {
    diag_add(cx, DIAG_cg_failed, NOWHERE, "ptxas",
             "not found (ATTNC_PTXAS, PATH, /usr/local/cuda/bin)");
    return false;
  }
  Files f = {temporary(), temporary(), temporary()};
  bool ok = assemble(cx, tool, t, f, ptx, n, cubin, all, log);
  if (f.ptx >= 0) close(f.ptx);
  if (f.cubin >= 0) close(f.cubin);
  if (f.log >= 0) close(f.log);
  return ok;
}
