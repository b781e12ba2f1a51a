// Shared libraries: the object goes to a temporary file and through ld.lld,
// or the C compiler.
#include "tools/driver/compile/link.h"

#include "ir/core/outfile.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

const char *const drv_linkers[] = {"ld.lld", "ld.lld-22", NULL};
const char *const drv_cc[] = {"cc", "gcc", "clang", NULL};
const char *const drv_ptxas[] = {"ptxas", "/usr/local/cuda/bin/ptxas", NULL};

static const char *in_path(Arena *a, const char *name) {
  const char *path = getenv("PATH");
  for (const char *p = path ? path : "/usr/bin"; *p;) {
    size_t n = strcspn(p, ":");
    const char *file = arena_printf(a, "%.*s/%s", (int)n, p, name);
    if (n && access(file, X_OK) == 0) return file;
    p += n + (p[n] == ':');
  }
  return NULL;
}

const char *drv_find_tool(Arena *a, const char *const *names) {
  for (; *names; names++) {
    bool absolute = **names == '/';
    if (absolute && access(*names, X_OK) == 0) return *names;
    const char *found = absolute ? NULL : in_path(a, *names);
    if (found) return found;
  }
  return NULL;
}

// ---------------------------------------------------------------- running
static bool run(Ctx *cx, const char *const *argv) {
  pid_t pid;
  int status = 0;
  int err =
      posix_spawn(&pid, argv[0], NULL, NULL, (char *const *)argv, environ);
  if (err) {
    diag_add(cx, DIAG_tool_failed, NOWHERE, argv[0], strerror(err));
    return false;
  }
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  diag_add(cx, DIAG_tool_failed, NOWHERE, argv[0],
           WIFEXITED(status)
               ? arena_printf(&cx->session, "exit code %d", WEXITSTATUS(status))
               : "killed by a signal");
  return false;
}

static bool write_temp(Ctx *cx, const Buf *object, char *path) {
  int fd = mkstemps(path, 2);
  FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
  bool ok = f && fwrite(object->at, 1, object->n, f) == object->n;
  if (f && fclose(f) != 0) ok = false;
  if (!ok) diag_add(cx, DIAG_cannot_write, NOWHERE, path, strerror(errno));
  return ok;
}

// References to libattn stay open: the application brings it.
bool drv_link_shared(Ctx *cx, const Buf *object, const char *path) {
  const char *dir = getenv("TMPDIR");
  char *tmp = arena_printf(&cx->session, "%s/attnc-XXXXXX.o",
                           dir && *dir ? dir : "/tmp");
  const char *ld = drv_find_tool(&cx->session, drv_linkers);
  const char *cc = ld ? NULL : drv_find_tool(&cx->session, drv_cc);
  if (!ld && !cc) {
    diag_add(cx, DIAG_no_tool, NOWHERE, "ld.lld or cc", "--shared");
    return false;
  }
  OutFile out;
  if (!out_open(&out, path, 0666)) {
    diag_add(cx, DIAG_cannot_write, NOWHERE, path, strerror(errno));
    return false;
  }
  if (!write_temp(cx, object, tmp)) return out_close(&out, false);
  const char *const with_ld[] = {ld,       "-shared",     "--build-id=none",
                                 "-z",     "noexecstack", "-o",
                                 out.temp, tmp,           NULL};
  const char *const with_cc[] = {cc,   "-shared", "-Wl,--build-id=none",
                                 "-o", out.temp,  tmp,
                                 NULL};
  bool linked = run(cx, ld ? with_ld : with_cc);
  unlink(tmp);
  if (out_close(&out, linked)) return true;
  if (linked) diag_add(cx, DIAG_cannot_write, NOWHERE, path, strerror(errno));
  return false;
}
