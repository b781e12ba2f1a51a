// attn-ls: the language server over standard input and output. It links no
// LLVM; views of machine code run `attnc` as a child.
#include "tools/attn-ls/ls.h"

#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: attn-ls [--stdio]\n"
    "The language server of .attn files, over standard input and output.\n"
    "  ATTNC         the compiler behind machine-code views\n"
    "                (default: attnc beside this program, else of PATH)\n"
    "  ATTNC_STDLIB  folder of the library's files (default: a read-only copy\n"
    "                in XDG_CACHE_HOME/attnc)\n";

static void send_all(void *data, const char *bytes, size_t n) {
  (void)data;
  while (n) {
    ssize_t done = write(STDOUT_FILENO, bytes, n);
    if (done <= 0) return;  // the client is gone; reading will tell
    bytes += done;
    n -= (size_t)done;
  }
}

static const char *attnc_command(char *buf, size_t size) {
  const char *given = getenv("ATTNC");
  if (given && *given) return given;
  ssize_t n = readlink("/proc/self/exe", buf, size - 8);
  if (n <= 0) return "attnc";
  buf[n] = 0;
  char *slash = strrchr(buf, '/');
  if (!slash) return "attnc";
  memcpy(slash + 1, "attnc", 6);
  return access(buf, X_OK) == 0 ? buf : "attnc";
}

static const char *cache(char *buf, size_t size) {
  const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (xdg && *xdg == '/') snprintf(buf, size, "%s/attnc/" LS_VERSION, xdg);
  else if (home && *home == '/')
    snprintf(buf, size, "%s/.cache/attnc/" LS_VERSION, home);
  else return NULL;
  return buf;
}

static void no_memory(void *data) {
  static const char text[] = "attn-ls: out of memory\n";
  (void)data;
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  _exit(3);
}

static void *need(size_t n) {
  void *p = malloc(n);
  if (!p) no_memory(NULL);
  return p;
}

// Reads what is there; false at the end of the input.
static bool take(Ls *ls) {
  char bytes[65536];
  struct pollfd in = {STDIN_FILENO, POLLIN, 0};
  for (size_t total = 0; total < (1u << 20);) {
    ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n <= 0) return false;
    ls_feed(ls, bytes, (size_t)n);
    total += (size_t)n;
    if (poll(&in, 1, 0) != 1) break;
  }
  return true;
}

static int serve(Ls *ls) {
  int code;
  while (!ls_done(ls, &code)) {
    int wait = -1, child = ls_child_fd(ls, &wait);
    struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {child, POLLIN, 0}};
    if (poll(fds, child >= 0 ? 2 : 1, wait) < 0) continue;
    if (child >= 0 && (fds[1].revents || !fds[0].revents)) ls_child_ready(ls);
    if (!fds[0].revents) continue;
    if (!take(ls)) {
      ls_work(ls);
      return ls_done(ls, &code) ? code : 1;
    }
    ls_work(ls);
  }
  return code;
}

int main(int argc, char **argv) {
  char exe[4096], dir[4096];
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--stdio") == 0) continue;
    bool version = strcmp(argv[i], "--version") == 0;
    bool asked = version || strcmp(argv[i], "--help") == 0;
    fputs(version ? "attn-ls " LS_VERSION "\n" : help, asked ? stdout : stderr);
    return asked ? 0 : 2;
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // too long a file is an error of write
  const char *lib = getenv("ATTNC_STDLIB");
  LsHost host = {.send = send_all,
                 .attnc = attnc_command(exe, sizeof exe),
                 .cache_dir = cache(dir, sizeof dir),
                 .stdlib_dir = lib && *lib ? lib : NULL,
                 .no_memory = no_memory};
  json_set_alloc_funcs(need, free);
  Ls *ls = ls_new(&host);
  int code = serve(ls);
  ls_free(ls);
  return code;
}
