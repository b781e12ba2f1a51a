// Generators: a row each, of arguments and of the function for one element or,
// where elements depend on each other, for all of them.
#include "tools/driver/run/gen.h"

#include "tools/driver/run/rng.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Fill {
  const Gen *g;
  Rng rng;
  int64_t n;
  int64_t *all;  // what whole() made, or NULL
} Fill;

typedef double Element(Fill *f, int64_t i);
typedef void Many(Fill *f, int64_t from, double *out);  // MAX_DRAWN of them
typedef void Whole(Fill *f);                            // sets all[0 .. n-1]

static double normal(Fill *f, int64_t i) {
  return f->g->arg[0] + f->g->arg[1] * rng_normal(&f->rng, (uint64_t)i);
}

static double uniform(Fill *f, int64_t i) {
  double lo = f->g->arg[0], hi = f->g->arg[1];
  return lo + (hi - lo) * rng_uniform(&f->rng, (uint64_t)i);
}

static void normals(Fill *f, int64_t from, double *out) {
  double mean = f->g->arg[0], deviation = f->g->arg[1];
  rng_normals(&f->rng, (uint64_t)from, out);
  for (int i = 0; i < MAX_DRAWN; i++) out[i] = mean + deviation * out[i];
}

static void uniforms(Fill *f, int64_t from, double *out) {
  double lo = f->g->arg[0], hi = f->g->arg[1];
  rng_uniforms(&f->rng, (uint64_t)from, out);
  for (int i = 0; i < MAX_DRAWN; i++) out[i] = lo + (hi - lo) * out[i];
}

static double integer(Fill *f, int64_t i) {
  int64_t lo = (int64_t)f->g->arg[0], hi = (int64_t)f->g->arg[1];
  return (double)rng_int(&f->rng, (uint64_t)i, lo, hi);
}

// NaN, inf, -inf in turn.
static double broken(Fill *f, int64_t i) {
  int64_t every = (int64_t)f->g->arg[0];
  int64_t at = rng_int(&f->rng, (uint64_t)i, 0, 3 * every);
  if (at < 3) return at ? at == 1 ? INFINITY : -INFINITY : NAN;
  return rng_normal(&f->rng, (uint64_t)i);
}

static double line(Fill *f, int64_t i) {
  return f->g->arg[0] + f->g->arg[1] * (double)i;
}

static double same(Fill *f, int64_t i) {
  (void)i;
  return f->g->arg[0];
}

// The first is the longest allowed, so that no test misses that case.
static double length(Fill *f, int64_t i) {
  int64_t lo = (int64_t)f->g->arg[0], hi = (int64_t)f->g->arg[1];
  return (double)(i ? rng_int(&f->rng, (uint64_t)i, lo, hi + 1) : hi);
}

static double stored(Fill *f, int64_t i) {
  return (double)f->all[i];
}

static int ascending(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void sorted(Fill *f, int64_t from, int64_t to, int64_t lo, int64_t hi) {
  for (int64_t i = from; i < to; i++)
    f->all[i] = rng_int(&f->rng, (uint64_t)i, lo, hi);
  if (to > from)
    qsort(f->all + from, (size_t)(to - from), sizeof *f->all, ascending);
}

// Sums of lengths in [lo, hi], the first hi; or, of one argument, anything from
// 0 to that total.
static void offsets(Fill *f) {
  int64_t lo = (int64_t)f->g->arg[0];
  if (!isnan(f->g->arg[1])) {
    int64_t hi = (int64_t)f->g->arg[1];
    f->all[0] = 0;
    for (int64_t i = 1; i < f->n; i++)
      f->all[i] = f->all[i - 1] +
                  (i == 1 ? hi : rng_int(&f->rng, (uint64_t)i, lo, hi + 1));
    return;
  }
  int64_t total = (int64_t)f->g->arg[0];
  f->all[0] = 0;
  f->all[f->n - 1] = total;
  sorted(f, 1, f->n - 1, 0, total + 1);
}

// Documents of 1 .. 2 * mean - 1 elements.
static void docs(Fill *f) {
  int64_t mean = (int64_t)f->g->arg[0], left = 0, id = -1;
  for (int64_t i = 0; i < f->n; i++) {
    if (!left) {
      left = rng_int(&f->rng, (uint64_t)i, 1, 2 * mean);
      id++;
    }
    f->all[i] = id;
    left--;
  }
}

static void perm(Fill *f) {
  for (int64_t i = 0; i < f->n; i++) {
    int64_t k = rng_int(&f->rng, (uint64_t)i, 0, i + 1);
    f->all[i] = f->all[k];
    f->all[k] = i;
  }
}

static const struct {
  const char *name;
  int min, max;  // arguments
  double arg[2];
  Element *element;
  Whole *whole;
  Many *many;
} kinds[GK_COUNT] = {
    [GK_NORMAL] = {"normal", 0, 2, {0, 1}, normal, NULL, normals},
    [GK_UNIFORM] = {"uniform", 0, 2, {0, 1}, uniform, NULL, uniforms},
    [GK_RANDINT] = {"randint", 2, 2, {NAN, NAN}, integer, NULL, NULL},
    [GK_IOTA] = {"iota", 0, 2, {0, 1}, line, NULL, NULL},
    [GK_CONST] = {"const", 1, 1, {NAN, 0}, same, NULL, NULL},
    [GK_LENGTHS] = {"lengths", 2, 2, {NAN, NAN}, length, NULL, NULL},
    [GK_OFFSETS] = {"offsets", 1, 2, {NAN, NAN}, stored, offsets, NULL},
    [GK_DOCS] = {"docs", 1, 1, {NAN, 0}, stored, docs, NULL},
    [GK_PERM] = {"perm", 0, 0, {0, 0}, stored, perm, NULL},
    [GK_BROKEN] = {"broken", 1, 1, {NAN, 0}, broken, NULL, NULL},
};

bool gen_by_name(const char *name, uint32_t len, GenKind *kind) {
  for (int i = 0; i < GK_COUNT; i++)
    if (strlen(kinds[i].name) == len && !memcmp(kinds[i].name, name, len)) {
      *kind = (GenKind)i;
      return true;
    }
  return false;
}

const char *gen_name(GenKind kind) {
  return kinds[kind].name;
}
int gen_min_args(GenKind kind) {
  return kinds[kind].min;
}
int gen_max_args(GenKind kind) {
  return kinds[kind].max;
}

Gen gen_default(GenKind kind) {
  return (Gen){.kind = kind, .arg = {kinds[kind].arg[0], kinds[kind].arg[1]}};
}

static bool is_count(double v) {
  return v == floor(v) && fabs(v) <= 0x1p53;
}

const char *gen_check(const Gen *g, int64_t n) {
  double a = g->arg[0], b = g->arg[1];
  switch (g->kind) {
  case GK_RANDINT:
    if (!is_count(a) || !is_count(b)) return "the bounds must be integers";
    return a < b ? NULL : "the range is empty";
  case GK_LENGTHS:
    if (!is_count(a) || !is_count(b)) return "the bounds must be integers";
    return 0 <= a && a <= b ? NULL : "the range is empty";
  case GK_OFFSETS:
    if (!isnan(b))
      return is_count(a) && is_count(b) && 0 <= a && a <= b
                 ? NULL
                 : "the bounds must be integers, 0 <= lo <= hi";
    if (!is_count(a) || a < 0) return "the total must be an integer >= 0";
    return n >= 2 || (n == 1 && a == 0) ? NULL
                                        : "offsets need two elements or more";
  case GK_DOCS:
    return is_count(a) && a >= 1 ? NULL
                                 : "the mean length must be an integer >= 1";
  case GK_BROKEN:
    return is_count(a) && a >= 1 ? NULL : "the number must be an integer >= 1";
  default: return NULL;
  }
}

// Elements from .. to - 1 of an array, by a thread: each depends on its number
// alone.
typedef struct Share {
  Fill f;
  DType type;
  int64_t from, to;
  char *out;
  pthread_t thread;
  bool started;
} Share;

static void *fill_share(void *data) {
  Share *s = data;
  Element *element = kinds[s->f.g->kind].element;
  Many *many = kinds[s->f.g->kind].many;
  int64_t size = dtype_size(s->type), i = s->from;
  for (double v[MAX_DRAWN]; many && i + MAX_DRAWN <= s->to; i += MAX_DRAWN) {
    many(&s->f, i, v);
    dtype_store_many(s->type, s->out + i * size, v, MAX_DRAWN);
  }
  for (; i < s->to; i++)
    dtype_store(s->type, s->out + i * size, element(&s->f, i));
  return NULL;
}

// Threads that n elements are worth.
static int64_t shares_for(int64_t n) {
  enum { EACH = 1 << 15, MOST = 64 };
  int64_t cpus = sysconf(_SC_NPROCESSORS_ONLN), all = 1 + n / EACH;
  if (cpus > MOST) cpus = MOST;
  return cpus < 1 ? 1 : all < cpus ? all : cpus;
}

void gen_fill(Arena *scratch, const Gen *g, const char *name, DType t,
              int64_t n, void *out) {
  Fill f = {.g = g, .n = n};
  ArenaMark mark = arena_mark(scratch);
  rng_init(&f.rng, g->seed, name);
  if (kinds[g->kind].whole && n > 0) {
    f.all = NEWN(scratch, int64_t, n);
    kinds[g->kind].whole(&f);
  }
  int64_t shares = shares_for(n), each = n / shares / MAX_DRAWN * MAX_DRAWN;
  Share *s = NEWN(scratch, Share, shares);
  for (int64_t i = 0; i < shares; i++) {
    s[i] = (Share){.f = f,
                   .type = t,
                   .from = each * i,
                   .to = i + 1 < shares ? each * (i + 1) : n,
                   .out = out};
    s[i].started = i && !pthread_create(&s[i].thread, NULL, fill_share, &s[i]);
  }
  for (int64_t i = 0; i < shares; i++)
    if (!s[i].started) fill_share(&s[i]);
  for (int64_t i = 0; i < shares; i++)
    if (s[i].started) pthread_join(s[i].thread, NULL);
  arena_reset(scratch, mark);
}
