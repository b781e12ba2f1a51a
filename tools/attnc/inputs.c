// A call from the command line: arrays, scalars, dims; and timing it.
#include "tools/attnc/inputs.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// ---------------------------------------------------------------- given
bool inputs_pair(Session *s, const char *pair, const char *form,
                 const char **name, const char **value) {
  const char *eq = strchr(pair, '=');
  if (!eq || eq == pair || !eq[1]) {
    diag_add(&s->cx, DIAG_bad_pair, NOWHERE, pair, form);
    return false;
  }
  *name = arena_strndup(&s->cx.session, pair, (size_t)(eq - pair));
  *value = eq + 1;
  return true;
}

static bool set_dims(Session *s, DrvCall *c) {
  DrvBinds b = {0};
  for (uint32_t i = 0; i < s->cli->dims.n; i++)
    if (!drv_parse_dims(&s->cx, s->cli->dims.at[i], &b)) return false;
  for (uint32_t i = 0; i < b.n; i++) {
    bool ok = b.at[i].dtype != DT_NONE
                  ? drv_set_dtype(c, b.at[i].name, b.at[i].dtype)
                  : drv_set_dim(c, b.at[i].name, b.at[i].value, "--dim");
    if (!ok) return false;
  }
  return true;
}

static bool set_scalars(Session *s, DrvCall *c) {
  for (uint32_t i = 0; i < s->cli->set.n; i++) {
    const char *name, *value;
    char *end;
    if (!inputs_pair(s, s->cli->set.at[i], "NAME=NUMBER", &name, &value))
      return false;
    double v = buf_read_double(value, &end);
    if (*end || end == value) {
      diag_add(&s->cx, DIAG_bad_pair, NOWHERE, s->cli->set.at[i],
               "NAME=NUMBER");
      return false;
    }
    DrvArg *a = drv_arg(c, name);
    if (!a || !drv_set_scalar(c, a, v)) return false;
  }
  return true;
}

static bool read_array(Session *s, DrvCall *c, DrvArg *a, const char *path) {
  NpyArray x;
  struct stat st;
  // The bytes of the file and its data.
  if (stat(path, &st) == 0) drv_room(&s->cx, 2 * (size_t)st.st_size);
  return npy_read(&s->cx, &s->cx.session, path, &x) &&
         drv_set_array(c, a, &x, path);
}

// "uniform(0, 1, 2)" is meant as a generator, if no file is called so.
static bool meant_as_generator(Session *s, const char *name,
                               const char *value) {
  size_t n = strcspn(value, "(");
  GenKind kind;
  if (!value[n] || value[strlen(value) - 1] != ')' || access(value, F_OK) == 0)
    return false;
  const char *word = arena_strndup(&s->cx.session, value, n);
  bool known = gen_by_name(word, (uint32_t)n, &kind);
  const char *why = "there is no such generator";
  if (known)
    why = arena_printf(&s->cx.session, "it takes %d up to %d numbers",
                       gen_min_args(kind), gen_max_args(kind));
  Diag *d = diag_add(&s->cx, DIAG_data_gen, NOWHERE, word, name, why);
  Buf all = {.arena = &s->cx.session};
  for (int i = 0; i < GK_COUNT; i++)
    buf_printf(&all, " %s", gen_name((GenKind)i));
  if (!known) diag_note(&s->cx, d, NOWHERE, "generators:%s", all.at);
  return true;
}

static bool set_input(Session *s, DrvCall *c, const char *pair, DrvGens *gens) {
  const char *name, *value;
  DrvGen g;
  if (!inputs_pair(s, pair, "NAME=FILE.npy", &name, &value)) return false;
  DrvArg *a = drv_arg(c, name);
  if (!a) return false;
  if (drv_parse_gen(&s->cx, pair, &g)) {
    g.name = a->param->name;
    vec_push(&s->cx.session, gens, g);
    return true;
  }
  if (!a->out)
    return !meant_as_generator(s, name, value) && read_array(s, c, a, value);
  diag_add(&s->cx, DIAG_data_name, NOWHERE, name, "the inputs");
  return false;
}

// With --grad: d_O=.. and g_Q=.. are for the gradient.
static bool is_cotangent(const Session *s, const char *pair) {
  bool grad = strncmp(pair, "d_", 2) == 0 || strncmp(pair, "g_", 2) == 0;
  return s->cli->grad && grad;
}

// d_O=none, g_Q=none: it is passed without data.
static bool is_none(const char *pair) {
  const char *eq = strchr(pair, '=');
  return eq && strcmp(eq + 1, "none") == 0;
}

static bool set_none(Session *s, DrvCall *backward, const char *pair) {
  char *name = arena_strndup(&s->cx.session, pair, strcspn(pair, "="));
  DrvArg *a = drv_arg(backward, name);
  if (!a) return false;
  a->absent = a->out || drv_is_cotangent(backward->prog, name);
  if (!a->absent)
    diag_add(&s->cx, DIAG_data_name, NOWHERE, name,
             "the cotangents and gradients");
  return a->absent;
}

static bool set_inputs(Session *s, DrvCall *c, DrvGens *gens) {
  for (uint32_t i = 0; i < s->cli->in.n; i++)
    if (!is_cotangent(s, s->cli->in.at[i]) &&
        !set_input(s, c, s->cli->in.at[i], gens))
      return false;
  return true;
}

bool inputs_cotangents(Session *s, DrvCall *backward) {
  DrvGens gens = {0};
  for (uint32_t i = 0; i < s->cli->in.n; i++) {
    const char *pair = s->cli->in.at[i];
    uint32_t n = gens.n;
    if (!is_cotangent(s, pair)) continue;
    if (is_none(pair)) {
      if (!set_none(s, backward, pair)) return false;
      continue;
    }
    if (!set_input(s, backward, pair, &gens)) return false;
    if (gens.n > n) drv_arg(backward, gens.at[n].name)->array.data = NULL;
  }
  uint64_t seed = s->cli->seed ? (uint64_t)s->cli->seed : 1;
  return drv_solve(backward) && drv_fill_given(backward, &gens, seed);
}

bool inputs_given(Session *s, DrvCall *c, DrvGens *gens) {
  return set_dims(s, c) && set_inputs(s, c, gens) && set_scalars(s, c);
}

bool inputs_ready(Session *s, DrvCall *c, const DrvGens *gens, bool random) {
  uint64_t seed = s->cli->seed ? (uint64_t)s->cli->seed : 1;
  Busy *busy = busy_start(s->cli, "making inputs");
  bool ok = random
                ? drv_fill(c, gens, seed)
                : drv_solve(c) && (!gens->n || drv_fill_given(c, gens, seed)) &&
                      drv_ragged(c);
  ok = ok && drv_complete(c) && drv_outputs(c);
  busy_end(busy);
  return ok;
}

const char *inputs_title(const DrvCall *c) {
  Buf b = {.arena = &c->cx->session};
  buf_str(&b, c->prog->name);
  const DimTab *t = c->prog->dims;
  for (uint32_t i = 0; i < t->syms.n; i++)
    if (c->known[i])
      buf_printf(&b, " %s=%lld", t->syms.at[i].name, (long long)c->dims[i]);
  for (uint32_t i = 0; i < c->nargs; i++)  // those that were made up
    if (c->args[i].scalar && c->args[i].origin)
      buf_printf(&b, " %s=%.4g", c->args[i].param->name, c->args[i].value);
  return b.at;
}

// ---------------------------------------------------------------- timing
static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double median(double *v, uint32_t n) {
  qsort(v, n, sizeof *v, by_value);
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

uint32_t measure_runs(const Cli *cli, double first) {
  if (cli->runs) return cli->runs > 100000 ? 100000 : (uint32_t)cli->runs;
  double n = 0.5 / fmax(first, 1e-6);
  return n < 5 ? 5 : n > 1000 ? 1000 : (uint32_t)n;
}

// Of all threads of this process.
static double cpu_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool measure(Session *s, Launch l, double *seconds, double *cpu, uint32_t n) {
  Progress p = progress_start(s->cli, "measuring");
  for (uint32_t i = 0; i < n; i++) {
    double start = cpu_seconds();
    if (!drv_time(l.call, l.code, l.rt, &seconds[i])) return false;
    double spent = cpu_seconds() - start;
    if (cpu && (!i || spent < *cpu)) *cpu = spent;
    progress_at(&p, i, n, l.call->prog->name);
  }
  progress_end(&p);
  return true;
}
