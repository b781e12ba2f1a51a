// Progress on standard error: a line that is rewritten in place.
#include "tools/attnc/attnc.h"

#include <time.h>
#include <unistd.h>

int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

Progress progress_start(const Cli *cli, const char *what) {
  Progress p = {.on = !cli->quiet && isatty(STDERR_FILENO), .what = what};
  p.start = now_ns();
  return p;
}

// Nothing in the first second, then ten times a second.
void progress_at(Progress *p, int64_t done, int64_t of, const char *detail) {
  int64_t t = now_ns();
  if (!p->on || t - p->start < 1000000000 || t - p->shown < 100000000) return;
  double left = 0;
  if (done > 0)
    left = (double)(t - p->start) / 1e9 / (double)done * (double)(of - done);
  fprintf(stderr, "\r\033[K%s %lld/%lld, about %.0f s left  %s", p->what,
          (long long)done, (long long)of, left, detail ? detail : "");
  p->shown = t;
}

void progress_end(Progress *p) {
  if (p->on && p->shown) fputs("\r\033[K", stderr);
  p->shown = 0;
}
