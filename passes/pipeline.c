// Running passes: lookup, level checks, verification, dumps, times, and the
// file that reproduces a failure.
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
#define TO_ATTN "inline,canon,cse,dce"
#define ROWS_TO_GAUGE \
  ",pack_gqa,cse,dce,stabilize,online,chunk,cse,dce,static_max"
#define TO_GAUGE TO_ATTN ROWS_TO_GAUGE
#define TO_STREAM TO_GAUGE ",exp2,cse,dce,mask_bounds"
#define GAUGE_TO_STREAM_GPU ",row_scale,scale_sign,exp2,cse,dce,mask_bounds"
#define TO_COLUMNS TO_ATTN ",split_vec,cse,dce"
#define TO_STREAM_GPU TO_COLUMNS ROWS_TO_GAUGE GAUGE_TO_STREAM_GPU
#define TO_STREAM_SM90 \
  TO_COLUMNS ",materialize,bias_table" ROWS_TO_GAUGE GAUGE_TO_STREAM_GPU
#define TO_TILE TO_STREAM ",tile,expand,cse,dce"
#define TO_TILE_GPU TO_STREAM_GPU ",tile,expand,cse,dce,page_tiles,cse,dce"
#define TO_TILE_SM90 \
  TO_STREAM_SM90 \
  ",distribute,cse,dce,tile,expand,cse,dce,page_tiles,bias_mma,cse,dce,outline_chunks,cse,dce"
#define TO_MACH_CPU TO_TILE ",lower_cpu,cse,dce,sink"
#define TO_FRAG_GPU \
  TO_TILE_GPU \
  ",peel,fold,cse,dce,lower_gpu,fold,cse,dce,sched_pressure,merge_bounds,fast_math,fold,cse,dce,lazy_reduce" \
  ",remat"
#define TO_FRAG_AMD \
  TO_TILE_SM90 \
  ",peel,fold,cse,dce,lower_gpu,fold,cse,dce,sched_pressure,merge_bounds,fast_math,fold,cse,dce,lazy_reduce" \
  ",lds_dma,prefetch,cse,dce"
#define TO_FRAG_SM90 \
  TO_TILE_SM90 \
  ",fold,cse,dce,lower_gpu,fold,cse,dce,cse_smem,cse,dce,sched_pressure" \
  ",reassoc_bias,cse,dce,merge_bounds" \
  ",fast_math,fold,cse,dce" \
  ",tile_scheduler,lazy_reduce" \
  ",pipeline_loop,mask_branch,peel,fold,cse,fold,dce,lazy_rescale,row_mask,small_tanh,remat_column,cse,dce" \
  ",pipeline_recur,prefetch,cse,dce,sink_relayout,dce,sink_smem,spill_smem,spill_chunks,remat,async_mma,sched_waits,tma_columns,dce,warp_specialize" \
  ",fold,cse,dce"
#define FRAG_TO_MACH ",bufferize_gpu"

typedef struct Pipeline {
  const char *target;  // NULL: every target
  Level to;
  const char *names;
} Pipeline;

// The first row that fits counts.
static const Pipeline pipelines[] = {
    {NULL, LV_ATTN, TO_ATTN},
    {"sm_80", LV_STREAM, TO_STREAM_GPU},
    {"sm_90a", LV_STREAM, TO_STREAM_SM90},
    {"sm_80", LV_TILE, TO_TILE_GPU},
    {"sm_90a", LV_TILE, TO_TILE_SM90},
    {NULL, LV_STREAM, TO_STREAM},
    {NULL, LV_TILE, TO_TILE},
    {"sm_80", LV_FRAG, TO_FRAG_GPU},
    {"sm_90a", LV_FRAG, TO_FRAG_SM90},
    {"gfx", LV_FRAG, TO_FRAG_AMD},
    {"cpu", LV_MACH, TO_MACH_CPU},
    {"sm_80", LV_MACH, TO_FRAG_GPU FRAG_TO_MACH},
    {"sm_90a", LV_MACH, TO_FRAG_SM90 FRAG_TO_MACH},
    {"gfx", LV_MACH, TO_FRAG_AMD FRAG_TO_MACH},
};

// "cpu" fits the rows "cpu" and "cpu:x86-64-v4" of targets.def, "gfx" those of
// AMD.
static bool fits(const char *want, const char *target) {
  size_t n = want ? strlen(want) : 0;
  if (want && strcmp(want, "gfx") == 0) return strncmp(target, "gfx", n) == 0;
  return !want || (strncmp(want, target, n) == 0 &&
                   (target[n] == 0 || target[n] == ':'));
}

const char *pass_pipeline(const char *target, Level to) {
  for (size_t i = 0; i < sizeof pipelines / sizeof *pipelines; i++) {
    const Pipeline *p = &pipelines[i];
    if (p->to == to && fits(p->target, target)) return p->names;
  }
  return "";
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

// A .tir file that attn-opt runs again: its first line has the options.
static void write_reproducer(const Run *r, const char *names,
                             const Buf *input) {
  Buf b = {.arena = &r->cx->session};
  buf_printf(&b, "# attn-opt --passes=%s --verify-each", names);
  pass_option_print(&r->opt->pass, &b);
  buf_char(&b, '\n');
  buf_add(&b, input->at, input->n);
  write_file(r->cx, r->opt->reproducer, &b);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool dump(const Run *r, const PassInfo *p) {
  const PipelineOpt *opt = r->opt;
  if (!opt->dump_dir && !opt->print_after_all) return true;
  Buf text = text_of(r);
  if (opt->print_after_all) {
    buf_printf(opt->log, "# after %s\n", p->name);
    buf_add(opt->log, text.at, text.n);
  }
  if (!opt->dump_dir) return true;
  const char *path = arena_printf(&r->cx->session, "%s/%02u-%s.tir",
                                  opt->dump_dir, r->at, p->name);
  return write_file(r->cx, path, &text);
}

static bool run_one(Run *r, const PassInfo *p) {
  if (p->from != LV_ANY && r->m->level != p->from) {
    diag_add(r->cx, DIAG_pass_level, NOWHERE, p->name, level_name(p->from),
             level_name(r->m->level));
    return false;
  }
  double start = now();
  ArenaMark mark = arena_mark(&r->cx->scratch);
  bool ok = p->run(r->cx, r->m, &r->opt->pass);
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
  return dump(r, p);
}

// The next name of "a,b,c"; false at the end.
static bool next_name(const char **s, const char **name, size_t *n) {
  while (**s == ',') ++*s;
  *name = *s;
  *n = strcspn(*s, ",");
  *s += *n;
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
    if (!run_one(r, pass_by_name(s, n))) return false;
  return true;
}

bool pass_run(Ctx *cx, Module *m, const char *names, const PipelineOpt *opt) {
  Run r = {.cx = cx, .m = m, .opt = opt};
  Buf input = {0};
  if (!known_names(cx, names)) return false;
  if (opt->reproducer) input = text_of(&r);
  if (run_all(&r, names)) return true;
  if (opt->reproducer) write_reproducer(&r, names, &input);
  return false;
}
