#include "ir/core/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  MAX_LINKS = 40,    // as the kernel's
  MAX_NAMES = 1000,  // temporary names that are tried
};

static bool fail(OutFile *o, int error) {
  if (!o->error) o->error = error;
  return false;
}

// The descriptor that a path names, or -1. Such a path is not opened again: a
// file behind it would be written from its start.
static int descriptor_of(const char *path) {
  static const char *const names[] = {"/dev/stdin", "/dev/stdout",
                                      "/dev/stderr"};
  static const char *const dirs[] = {"/dev/fd/", "/proc/self/fd/"};
  for (int i = 0; i < 3; i++)
    if (strcmp(path, names[i]) == 0) return i;
  for (int i = 0; i < 2; i++) {
    size_t n = strlen(dirs[i]);
    char *end;
    if (strncmp(path, dirs[i], n) != 0) continue;
    long fd = strtol(path + n, &end, 10);
    if (end != path + n && !*end && fd >= 0 && fd <= INT_MAX) return (int)fd;
  }
  return -1;
}

// ---------------------------------------------------------------- places
// dir(from)/name into to. What does not fit is an error.
static bool beside(const char *from, const char *name, char *to) {
  const char *slash = strrchr(from, '/');
  int dir = slash && name[0] != '/' ? (int)(slash + 1 - from) : 0;
  int n = snprintf(to, PATH_MAX, "%.*s%s", dir, from, name);
  return n >= 0 && n < PATH_MAX;
}

// One link further; false at the end of them, or with an error.
static bool step(OutFile *o) {
  char target[PATH_MAX], next[PATH_MAX];
  ssize_t n = readlink(o->path, target, sizeof target);
  if (n < 0) return false;
  if ((size_t)n >= sizeof target) return fail(o, ENAMETOOLONG);
  target[n] = 0;
  if (!beside(o->path, target, next)) return fail(o, ENAMETOOLONG);
  memcpy(o->path, next, sizeof next);
  return true;
}

// Follows links from `path` to a file, which need not exist, or a descriptor.
static bool follow(OutFile *o, const char *path, int *fd) {
  if (strlen(path) >= sizeof o->path) return fail(o, ENAMETOOLONG);
  strcpy(o->path, path);
  int links = 0;
  do {
    *fd = descriptor_of(o->path);
    if (links++ > MAX_LINKS) return fail(o, ELOOP);
  } while (*fd < 0 && step(o));
  return !o->error;
}

// ---------------------------------------------------------------- opening
static bool open_direct(OutFile *o, int fd) {
  memcpy(o->temp, o->path, sizeof o->temp);
  o->fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3)
                  : open(o->path, O_WRONLY | O_CLOEXEC);
  return o->fd >= 0 || fail(o, errno);
}

// A name that nobody else has, in threads or processes, as `take` says with
// EEXIST.
static bool name_beside(OutFile *o, bool (*take)(OutFile *o)) {
  char name[64];
  for (int i = 0; i < MAX_NAMES; i++) {
    snprintf(name, sizeof name, ".attn-%ld-%d.tmp", (long)getpid(), i);
    if (!beside(o->path, name, o->temp)) return fail(o, ENAMETOOLONG);
    if (take(o)) return true;
    if (errno != EEXIST) break;
  }
  return fail(o, errno);
}

static bool create(OutFile *o) {
  o->fd = open(o->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, o->mode);
  return o->fd >= 0;
}

static bool open_beside(OutFile *o) {
  return name_beside(o, create);
}

static bool give_name(OutFile *o) {
  char fd[64];
  snprintf(fd, sizeof fd, "/proc/self/fd/%d", o->fd);
  return linkat(AT_FDCWD, fd, AT_FDCWD, o->temp, AT_SYMLINK_FOLLOW) == 0;
}

// Where the folder's file system has files without a name, which go with the
// process; they get a name when they are whole.
static bool open_nameless(OutFile *o) {
  char dir[PATH_MAX];
  if (access("/proc/self/fd", X_OK) != 0 || !beside(o->path, ".", dir))
    return false;
  o->fd = open(dir, O_WRONLY | O_TMPFILE | O_CLOEXEC, o->mode);
  o->nameless = o->fd >= 0;
  return o->nameless;
}

static bool open_place(OutFile *o, int fd, mode_t mode) {
  struct stat st;
  bool there = fd < 0 && stat(o->path, &st) == 0;
  if (fd >= 0 || (there && !S_ISREG(st.st_mode))) return open_direct(o, fd);
  // Renaming would not ask.
  if (there && access(o->path, W_OK) != 0) return fail(o, errno);
  o->keeps_mode = there;
  o->mode = there ? st.st_mode & 0777 : mode;
  return open_nameless(o) || open_beside(o);
}

bool out_open(OutFile *o, const char *path, mode_t mode) {
  int fd;
  *o = (OutFile){.fd = -1};
  bool ok = follow(o, path, &fd) && open_place(o, fd, mode);
  errno = o->error;
  return ok;
}

// ---------------------------------------------------------------- writing
bool out_put(OutFile *o, const void *bytes, size_t n) {
  const char *at = bytes;
  while (n && !o->error) {
    ssize_t done = write(o->fd, at, n);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      fail(o, done ? errno : ENOSPC);
      break;
    }
    at += done;
    n -= (size_t)done;
  }
  errno = o->error;
  return !o->error;
}

// Has it, whole, a name of its own beside the old file?
static bool named(OutFile *o) {
  if (o->keeps_mode && fchmod(o->fd, o->mode) != 0) return fail(o, errno);
  return !o->nameless || name_beside(o, give_name);
}

bool out_close(OutFile *o, bool keep) {
  bool direct = strcmp(o->temp, o->path) == 0;
  bool left = !direct && !o->nameless;  // something to remove
  if (keep && !o->error && !direct) left |= named(o);
  if (close(o->fd) != 0) fail(o, errno);
  bool placed = keep && !o->error &&
                (direct || rename(o->temp, o->path) == 0 || fail(o, errno));
  if (left && !placed) unlink(o->temp);
  errno = o->error;
  return placed;
}

bool out_write(const char *path, const void *bytes, size_t n) {
  OutFile o;
  return out_open(&o, path, 0666) && out_close(&o, out_put(&o, bytes, n));
}

void out_folder(const char *path) {
  char part[PATH_MAX];
  size_t n = strlen(path);
  if (!n || n >= sizeof part) return;
  for (size_t i = 1; i <= n; i++) {
    if (path[i] && path[i] != '/') continue;
    memcpy(part, path, i);
    part[i] = 0;
    mkdir(part, 0777);
  }
}
