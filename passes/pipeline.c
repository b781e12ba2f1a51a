// Running passes: lookup, pipelines, level checks, verification, dumps, times,
// and files that attn-opt runs on.
#include "passes/support/relief.h"
#include "passes/pass.h"

#include "ir/core/outfile.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const PassInfo passes[] = {
#define PASS(name, from, to, doc) {#name, from, to, pass_##name, doc},
#include "passes/passes.def"
};

enum { NPASSES = sizeof passes / sizeof *passes };

const PassInfo *pass_by_name(const char *name, size_t len) {
  for (uint32_t i = 0; i < NPASSES; i++)
    if (strncmp(passes[i].name, name, len) == 0 && !passes[i].name[len])
      return &passes[i];
  return NULL;
}

const PassInfo *pass_list(uint32_t *n) {
  *n = NPASSES;
  return passes;
}

// ---------------------------------------------------------------- pipelines
typedef struct Step {
  const char *pass;
  Level level;  // it is one of this level's steps
  bool runs[PASS_FAMILIES];
} Step;

// A column of a row: x or nothing.
#define RUNS_x true
#define RUNS_ false

static const Step steps[] = {
#define RUN(level, pass, cpu, sm_80, sm_90a, amd) \
  {#pass, LV_##level, {RUNS_##cpu, RUNS_##sm_80, RUNS_##sm_90a, RUNS_##amd}},
#include "passes/pipeline.def"
};

enum { NSTEPS = sizeof steps / sizeof *steps };

// The column of a target.
static PassFamily family_of(const Target *t) {
  if (t->kind == TARGET_CPU) return PASS_CPU;
  if (t->gpu.vendor == VENDOR_AMD) return PASS_AMD;
  return t->gpu.hopper ? PASS_SM_90A : PASS_SM_80;
}

const char *pass_pipeline(Arena *a, const Target *t, Level from, Level to) {
  Buf b = {.arena = a};
  for (uint32_t i = 0; i < NSTEPS; i++) {
    const Step *s = &steps[i];
    if (s->level < from || s->level > to || !s->runs[family_of(t)]) continue;
    if (b.n) buf_char(&b, ',');
    buf_str(&b, s->pass);
  }
  return b.n ? b.at : "";
}

bool pass_runs_for(const PassInfo *p, PassFamily family) {
  for (uint32_t i = 0; i < NSTEPS; i++)
    if (strcmp(steps[i].pass, p->name) == 0 && steps[i].runs[family])
      return true;
  return false;
}

// ---------------------------------------------------------------- running
typedef struct Run {
  Ctx *cx;
  Module *m;
  const PipelineOpt *opt;
  uint32_t at;  // passes done, for the names of dumps
} Run;

static bool write_file(Ctx *cx, const char *path, const Buf *text) {
  if (out_write(path, text->at, text->n)) return true;
  diag_add(cx, DIAG_cannot_write, NOWHERE, path, strerror(errno));
  return false;
}

static Buf text_of(const Run *r) {
  Buf b = {.arena = &r->cx->session};
  ir_print(r->m, &b);
  return b;
}

void pass_print_options(const PipelineOpt *opt, const char *names, Buf *b) {
  buf_str(b, "# attn-opt");
  if (*names) buf_printf(b, " --passes=%s", names);
  if (opt->verify_each) buf_str(b, " --verify-each");
  pass_option_print(&opt->pass, b);
  buf_char(b, '\n');
}

// A .tir file that attn-opt runs again: its first line has the options.
static void write_reproducer(const Run *r, const char *names,
                             const Buf *input) {
  Buf b = {.arena = &r->cx->session};
  PipelineOpt again = *r->opt;
  again.verify_each = true;
  pass_print_options(&again, names, &b);
  buf_add(&b, input->at, input->n);
  write_file(r->cx, r->opt->reproducer, &b);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Where a module's text names no target, or `cpu` without its level, the
// options say more.
static const Target *target_of(const Module *m, const Target *given) {
  const Target *t = target_by_name(m->target ? m->target : "cpu");
  bool any = !m->target || strcmp(m->target, "cpu") == 0;
  if (!t || (given && any && (!m->target || given->kind == TARGET_CPU)))
    return given ? given : target_by_name("cpu");
  return t;
}

// rest: the passes that follow; attn-opt runs them on the file.
static bool dump(const Run *r, const PassInfo *p, const char *rest) {
  const PipelineOpt *opt = r->opt;
  if (opt->print_after_all) {
    buf_printf(opt->log, "# after %s\n", p->name);
    ir_print(r->m, opt->log);
  }
  if (!opt->dump_dir) return true;
  Buf text = {.arena = &r->cx->session};
  pass_print_options(opt, rest, &text);
  ir_print(r->m, &text);
  const char *path = arena_printf(&r->cx->session, "%s/%02u-%s.tir",
                                  opt->dump_dir, r->at, p->name);
  out_folder(opt->dump_dir);
  return write_file(r->cx, path, &text);
}

static bool run_one(Run *r, const PassInfo *p, const char *rest) {
  if (p->from != LV_ANY && r->m->level != p->from) {
    diag_add(r->cx, DIAG_pass_level, NOWHERE, p->name, level_name(p->from),
             level_name(r->m->level));
    return false;
  }
  double start = now();
  ArenaMark mark = arena_mark(&r->cx->scratch);
  PassOpt opt = r->opt->pass;
  opt.target = target_of(r->m, opt.target);
  work_say(r->cx, "pass %s for %s", p->name, opt.target->name);
  bool ok = p->run(r->cx, r->m, &opt);
  arena_reset(&r->cx->scratch, mark);
  r->at++;
  if (r->opt->time)
    buf_printf(r->opt->log, "%-12s %8.3f ms\n", p->name, 1e3 * (now() - start));
  if (!ok) return false;
  assert(p->to == LV_ANY || r->m->level == p->to);
  if (r->opt->verify_each && !ir_verify(r->cx, r->m)) {
    diag_add(r->cx, DIAG_pass_broke, NOWHERE, p->name);
    return false;
  }
  return dump(r, p, rest);
}

// The next name of "a,b,c", and s behind its comma; false at the end.
static bool next_name(const char **s, const char **name, size_t *n) {
  *name = *s;
  *n = strcspn(*s, ",");
  *s += *n;
  while (**s == ',') ++*s;
  return *n > 0;
}

static bool known_names(Ctx *cx, const char *names) {
  const char *s;
  size_t n;
  while (next_name(&names, &s, &n)) {
    if (pass_by_name(s, n)) continue;
    diag_add(cx, DIAG_pass_unknown, NOWHERE, arena_strndup(&cx->session, s, n));
    return false;
  }
  return true;
}

static bool run_all(Run *r, const char *names) {
  const char *s;
  size_t n;
  while (next_name(&names, &s, &n))
    if (!run_one(r, pass_by_name(s, n), names)) return false;
  return true;
}

bool pass_run(Ctx *cx, Module *m, const char *names, const PipelineOpt *opt) {
  Run r = {.cx = cx, .m = m, .opt = opt};
  Buf input = {0};
  if (!known_names(cx, names)) return false;
  for (uint32_t i = 0; i < m->funcs.n; i++)  // text behind `lower_gpu`
    relief_set(m->funcs.at[i], relief_asked(opt->pass.relief, i));
  if (opt->reproducer) input = text_of(&r);
  if (run_all(&r, names)) return true;
  if (opt->reproducer) write_reproducer(&r, names, &input);
  return false;
}
