// Shared libraries: the object goes through ld.lld, or the C compiler, in files
// that have no names, and then to its place; where neither is, the compiler
// does it itself.
#include "tools/driver/compile/link.h"

#include "codegen/object/shared.h"
#include "codegen/object/tool.h"
#include "ir/core/outfile.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

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
static bool run(Ctx *cx, char *const *args, int out) {
  work_say(cx, "%s", args[0]);
  int rc = tool_run(cx, args, out, STDERR_FILENO);
  if (rc == 0) return true;
  diag_add(cx, DIAG_tool_failed, NOWHERE, args[0],
           rc > 0 ? arena_printf(&cx->session, "exit code %d", rc)
                  : "it could not run, or was ended");
  return false;
}

// Of the object in the file `in`, into the file `out`.
static bool link_files(Ctx *cx, int in, int out) {
  Arena *a = &cx->session;
  char *ld = (char *)drv_find_tool(a, drv_linkers);
  char *cc = ld ? NULL : (char *)drv_find_tool(a, drv_cc);
  char *from = arena_printf(a, "/proc/self/fd/%d", in);
  char *to = arena_printf(a, "/proc/self/fd/%d", out);
  char *const with_ld[] = {ld,   "-shared",     "--build-id=none",
                           "-z", "noexecstack", "-o",
                           "-",  from,          NULL};
  char *const with_cc[] = {cc,   "-shared", "-Wl,--build-id=none", "-o", to,
                           from, NULL};
  return run(cx, ld ? with_ld : with_cc, out);
}

// Without programs of others.
static bool link_here(Ctx *cx, const Buf *object, Buf *library) {
  const char *why = shared_of_object(object, library);
  if (why)
    diag_add(cx, DIAG_no_tool, NOWHERE, "ld.lld or cc",
             arena_printf(&cx->session, "--shared of %s", why));
  return !why;
}

static bool put(Ctx *cx, const char *path, const Buf *library) {
  OutFile o;
  if (out_open(&o, path, 0777) &&
      out_close(&o, out_put(&o, library->at, library->n)))
    return true;
  diag_add(cx, DIAG_cannot_write, NOWHERE, path, strerror(errno));
  return false;
}

// References to libattn stay open: the application brings it.
bool drv_link_shared(Ctx *cx, const Buf *object, const char *path) {
  Buf library = {.arena = &cx->session};
  if (!drv_find_tool(&cx->session, drv_linkers) &&
      !drv_find_tool(&cx->session, drv_cc))
    return link_here(cx, object, &library) && put(cx, path, &library);
  int in = tool_file(), out = tool_file();
  bool ok = in >= 0 && out >= 0 && tool_write(in, object->at, object->n);
  if (!ok)
    diag_add(cx, DIAG_cannot_write, NOWHERE, "a temporary file",
             strerror(errno));
  ok = ok && link_files(cx, in, out);
  if (ok && !tool_read(out, &library)) {
    diag_add(cx, DIAG_tool_failed, NOWHERE, "the linker", strerror(errno));
    ok = false;
  }
  if (in >= 0) close(in);
  if (out >= 0) close(out);
  return ok && put(cx, path, &library);
}
