// Programs that are found at run time and run.
#include "codegen/object/tool.h"

#include "ir/core/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *in_path(Ctx *cx, const char *name) {
  const char *p = getenv("PATH");
  while (p && *p) {
    size_t n = strcspn(p, ":");
    const char *file = arena_printf(&cx->session, "%.*s/%s", (int)n, p, name);
    if (n && access(file, X_OK) == 0) return file;
    p += n + (p[n] == ':');
  }
  return NULL;
}

const char *tool_find(Ctx *cx, const char *variable, const char *name,
                      const char *const *usual) {
  const char *set = getenv(variable);
  if (set && *set) return access(set, X_OK) == 0 ? set : NULL;
  const char *file = in_path(cx, name);
  for (; !file && *usual; usual++)
    if (access(*usual, X_OK) == 0) file = *usual;
  return file;
}

int tool_file(void) {
  const char *dir = getenv("TMPDIR");
  char name[4096];
  if (!dir || strlen(dir) > 4000) dir = "/tmp";
  strcpy(name, dir);
  strcat(name, "/attnc-XXXXXX");
  int fd = mkstemp(name);
  if (fd >= 0) unlink(name);
  return fd;
}

bool tool_write(int fd, const char *p, size_t n) {
  while (n) {
    ssize_t k = write(fd, p, n);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return false;
    p += k;
    n -= (size_t)k;
  }
  return lseek(fd, 0, SEEK_SET) == 0;
}

bool tool_read(int fd, Buf *out) {
  char part[8192];
  if (lseek(fd, 0, SEEK_SET) != 0) return false;
  for (;;) {
    ssize_t k = read(fd, part, sizeof part);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return k == 0;
    buf_add(out, part, (size_t)k);
  }
}

// Ends with the thread that waits for it, however that ends, and takes no more
// memory than a compilation may.
static void bind(pid_t parent, int64_t memory) {
  struct rlimit most = {(rlim_t)memory, (rlim_t)memory};
  sigset_t none;
  sigemptyset(&none);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it ended before that
  if (memory) setrlimit(RLIMIT_AS, &most);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

int tool_run(Ctx *cx, char *const *args, int out, int err) {
  int status = 0;
  int64_t memory = cx->watch ? cx->watch->memory : 0;
  pid_t self = getpid(), pid = fork();
  if (pid == 0) {
    bind(self, memory);
    dup2(out, 1);
    dup2(err, 2);
    execv(args[0], args);
    _exit(127);
  }
  if (pid < 0) return -1;
  work_tool(cx, pid);
  pid_t got;
  do got = waitpid(pid, &status, 0);
  while (got < 0 && errno == EINTR);
  work_tool(cx, 0);
  if (got < 0) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
