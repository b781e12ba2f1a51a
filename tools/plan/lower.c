// A checked program to a module of any level: lowering, the schedule that
// holds for a target, the passes.
#include "tools/plan/known.h"

#include "frontend/check.h"
#include "ir/layout.h"
#include "ir/pressure.h"
#include "ir/target.h"
#include "passes/pass.h"
#include "passes/support/cost.h"

// ---------------------------------------------------------------- schedules
// `schedule P for "cpu"` holds for every level, "cpu:x86-64-v4" for one.
static bool for_target(const char *name, const Target *t) {
  size_t n = strlen(name);
  return t && strncmp(t->name, name, n) == 0 &&
         (t->name[n] == 0 || t->name[n] == ':');
}

static void apply_setting(const Setting *s, PassOpt *out) {
  double v;
  if (!drv_eval(NULL, NULL, s->value, &v)) return;  // auto
  if (strcmp(s->name, "tile_q") == 0) out->tile_q = (int64_t)v;
  else if (strcmp(s->name, "tile_k") == 0) out->tile_k = (int64_t)v;
  else if (strcmp(s->name, "chunk") == 0) out->chunk = (int64_t)v;
  else if (strcmp(s->name, "split_k") == 0) out->split_k = (int)v;
}

static bool schedules(const Decl *s, const Decl *prog) {
  return s->kind == DE_SCHEDULE && s->path.n &&
         s->path.at[s->path.n - 1].name == prog->name;
}

bool drv_for_decode(const Attr *a) {
  return strcmp(a->name, "kernel") == 0 && a->args.n &&
         strcmp(a->args.at[0].value->name, "decode") == 0;
}

// @split(auto), off, own or a number
static void apply_split(const Attr *a, PassOpt *out) {
  double v;
  if (strcmp(a->name, "split") != 0 || !a->args.n) return;
  const Expr *x = a->args.at[0].value;
  const char *word = x->kind == EX_NAME ? x->name : "";
  out->split_own |= strcmp(word, "own") == 0;
  if (strcmp(word, "off") == 0) out->split_k = 0;
  else if (!*word && drv_eval(NULL, NULL, x, &v)) out->split_k = (int)v;
}

static PassOpt pass_options(const Decl *prog, const Target *t,
                            const DrvOptions *opt) {
  PassOpt o = {.target = t ? t : target_by_name("cpu"),
               .split_k = -1,
               .spare_regs = opt->spare_regs,
               .spare_each = opt->spare_each,
               .spare_smem = opt->spare_smem,
               .most_groups = opt->most_groups,
               .relief = opt->relief,
               .workspace = opt->workspace,
               .strided = opt->strided};
  const Unit *u = prog->unit;
  for (uint32_t i = 0; i < u->decls.n; i++) {
    const Decl *s = u->decls.at[i];
    if (!schedules(s, prog) || !for_target(s->target, t)) continue;
    for (uint32_t k = 0; k < s->settings.n; k++)
      apply_setting(&s->settings.at[k], &o);
  }
  for (uint32_t i = 0; i < prog->attrs.n; i++) {
    if (strcmp(prog->attrs.at[i].name, "fast") == 0) o.fast = true;
    if (strcmp(prog->attrs.at[i].name, "finite") == 0) o.finite = true;
    if (strcmp(prog->attrs.at[i].name, "p_type") == 0) o.wide_weights = true;
    o.decode |= drv_for_decode(&prog->attrs.at[i]);
    apply_split(&prog->attrs.at[i], &o);
  }
  o.group = opt->group && o.target->kind != TARGET_GPU;
  o.few = opt->few;
  o.fewest = opt->fewest;
  o.together = opt->together;
  o.brief = opt->brief;
  o.cluster = opt->cluster;
  o.walk = opt->walk;
  if (opt->tile_q) o.tile_q = opt->tile_q;
  if (opt->tile_k) o.tile_k = opt->tile_k;
  if (opt->chunk) o.chunk = opt->chunk;
  return o;
}

DrvDense drv_dense_asked(const Decl *prog, const Target *t,
                         const DrvOptions *opt) {
  const Unit *u = prog->unit;
  DrvDense dense = opt->dense ? DENSE_ON : DENSE_OPEN;
  for (uint32_t i = 0; i < u->decls.n; i++) {
    const Decl *s = u->decls.at[i];
    if (!schedules(s, prog) || !for_target(s->target, t)) continue;
    for (uint32_t k = 0; k < s->settings.n; k++)
      if (strcmp(s->settings.at[k].name, "dense") == 0 &&
          s->settings.at[k].value->kind == EX_NAME)
        dense = strcmp(s->settings.at[k].value->name, "on") == 0 ? DENSE_ON
                                                                 : DENSE_OFF;
  }
  return dense;
}

bool drv_tiles_asked(const Decl *prog, const Target *t, const DrvOptions *opt) {
  PassOpt o = pass_options(prog, t, opt);
  return o.tile_q || o.tile_k;
}

// ---------------------------------------------------------------- one module
static bool has_dtypes(const Decl *prog) {
  for (uint32_t i = 0; i < prog->generics.n; i++)
    if (prog->generics.at[i].kind == GEN_DTYPE) return true;
  return false;
}

static Module *lower_attn(Ctx *cx, DrvSpec s, const Target *target) {
  work_place(cx, s.prog->name_span);
  work_say(cx, "lowering '%s'", s.prog->name);
  Decl *source = s.prog->derived ? s.prog->derived->of : s.prog;
  if (has_dtypes(source) && !fe_retype(cx, source, s.binds, s.n)) return NULL;
  Module *m = fe_lower(cx, source, s.binds, s.n);
  return m ? plan_derive(cx, s.prog, m, target, s.ordered) : NULL;
}

Module *drv_lower_attn(Ctx *cx, DrvSpec s, const Target *target) {
  work_begin(cx);
  Module *m = lower_attn(cx, s, target);
  work_end(cx);
  return m;
}

// The program's name; phases have more behind a dot.
static const char *name_of(const Module *m) {
  return m->funcs.n ? m->funcs.at[m->funcs.n - 1]->name : "";
}

bool drv_verified(Ctx *cx, const Module *m, const char *passes,
                  const PassOpt *opt) {
  if (ir_verify(cx, m)) return true;
  Buf how = {.arena = &cx->session};
  pass_option_print(opt, &how);
  Diag *d =
      diag_add(cx, DIAG_ir_broken, NOWHERE, name_of(m), opt->target->name);
  diag_note(cx, d, NOWHERE,
            "found again by attn-opt --passes=%s --verify-each%s", passes,
            how.at);
  return false;
}

void drv_print_options(const Decl *prog, const Target *target, Level from,
                       const DrvOptions *opt, Buf *out) {
  PipelineOpt run = {.pass = pass_options(prog, target, opt)};
  const char *rest =
      pass_pipeline(out->arena, run.pass.target, (Level)(from + 1), LV_MACH);
  pass_print_options(&run, rest, out);
}

// What is asked of a lowering.
typedef struct Asked {
  DrvSpec s;
  const Target *target;
  Level to;
  const DrvOptions *opt;
  int64_t columns;
} Asked;

static PipelineOpt run_of(const Asked *a) {
  PipelineOpt run = {.pass = pass_options(a->s.prog, a->target, a->opt),
                     .verify_each = a->opt->verify_each,
                     .print_after_all = a->opt->print_after_all,
                     .time = a->opt->time_passes,
                     .dump_dir = a->opt->dump_dir,
                     .log = a->opt->log};
  run.pass.columns = a->columns;
  return run;
}

static Module *run_passes(Ctx *cx, const Asked *a, Module *m, Level from) {
  PipelineOpt run = run_of(a);
  Buf unused = {.arena = &cx->session};
  if (!run.log) run.log = &unused;
  const char *passes =
      pass_pipeline(&cx->session, run.pass.target, from, a->to);
  return m && pass_run(cx, m, passes, &run) ? m : NULL;
}

// What the program's dtypes are is what the last lowering said.
static Module *known(Ctx *cx, DrvSpec s, const char *key) {
  Decl *d = s.prog->derived ? s.prog->derived->of : s.prog;
  Module *m = plan_known(cx, key);
  if (m && has_dtypes(d) && !fe_retype(cx, d, s.binds, s.n)) return NULL;
  return m;
}

// To level stream, of which nothing asks what a GPU's tiles leave free and how
// kernels spare registers. NULL, with no *key: it is not kept.
static Module *streamed(Ctx *cx, const Asked *a, const char **key) {
  Asked part = *a;
  PassOpt pass = run_of(a).pass;
  pass.spare_regs = pass.relief = 0;
  pass.spare_each = NULL;
  part.to = LV_STREAM;
  *key = plan_known_key(cx, &(PlanAsked){a->s, &pass, LV_STREAM, a->opt});
  Module *m = known(cx, a->s, *key);
  if (m || !*key) return m;
  DiagMark mark = diag_mark(cx);
  m = run_passes(cx, &part, drv_lower_attn(cx, a->s, a->target), LV_ATTN);
  if (m && cx->diags.n == mark.diags && cx->nhidden == mark.hidden)
    plan_known_put(cx, *key, m, mark.remarks);
  return m;
}

static Module *make_module(Ctx *cx, const Asked *a) {
  const char *key = NULL;
  Module *m = a->to > LV_STREAM ? streamed(cx, a, &key) : NULL;
  m = key ? run_passes(cx, a, m, LV_TILE)
          : run_passes(cx, a, drv_lower_attn(cx, a->s, a->target), LV_ATTN);
  const PassOpt pass = run_of(a).pass;
  const char *passes = pass_pipeline(&cx->session, pass.target, LV_ATTN, a->to);
  if (!m) return NULL;
  if (a->to == LV_MACH && !drv_verified(cx, m, passes, &pass)) return NULL;
  if (m->level == a->to) return m;
  Diag *d = diag_add(cx, DIAG_no_stage, NOWHERE, level_name(a->to),
                     pass.target->name);
  if (a->to == LV_FRAG)
    diag_note(cx, d, NOWHERE,
              "programs of a CPU go from level tile to mach; "
              "frag is a level of GPU targets");
  return NULL;
}

// What the module was before a pass is of no use: what it is at the end stays,
// unless all of it is to go.
static Module *lower_to(Ctx *cx, const Asked *a) {
  if (cx->home == &cx->modules) return make_module(cx, a);
  CtxHome h = ctx_home(cx);
  Module *m = make_module(cx, a);
  Module *out = m ? ir_copy(m, h.was) : NULL;
  ctx_leave(cx, h);
  return out;
}

// ---------------------------------------------------------------- long sums
typedef struct Carried {
  const Func *f;
  uint32_t threads, most;
} Carried;

static uint32_t sums_of(const Carried *c, Value v) {
  const Type *t = ir_type(c->f, v);
  bool sums =
      t->kind == TK_FRAG && t->slice == SLICE_NONE && t->dtype == DT_F32;
  return sums ? pressure_of(t, c->threads) : 0;
}

// Of those that are there before a loop and needed behind it: of keys of other
// tensors, whose sums are added.
static uint32_t kept_through(const Carried *c, Op *loop) {
  uint32_t n = 0;
  for (const Op *op = loop->prev; op && loop->next; op = op->prev)
    for (uint32_t i = 0; op->code != OP_CONST && i < op->nres; i++)
      if (!ir_mentions(loop, op->res[i]) &&
          ir_first_use(loop->next, op->res[i]))
        n += sums_of(c, op->res[i]);
  return n;
}

// Registers of a thread that sums carried through a loop take, or kept.
static void count_carried(void *data, Op *op) {
  Carried *c = data;
  uint32_t n = 0;
  for (uint32_t i = 0; op->code == OP_FOR && i < op->nres; i++)
    n += sums_of(c, op->res[i]);
  if (n) n += kept_through(c, op);
  c->most = n > c->most ? n : c->most;
}

// The most of a program's loops over keys.
static uint32_t carried(const Module *m) {
  Carried c = {0};
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    c.f = m->funcs.at[i];
    const Op *last = c.f->body->last;
    bool roles = last && last->code == OP_ROLES;
    int64_t all = ir_attr_i(ir_launch(c.f), AT_THREADS, HW_GROUP_THREADS);
    c.threads = roles ? HW_GROUP_THREADS : (uint32_t)all;
    if (!ir_has_steps(c.f)) ir_walk(c.f->body, count_carried, &c);
  }
  return c.most;
}

// What a row adds up is known once its passes have been found: weights that are
// centred have two sums of values, keys of two tensors one each. Where a thread
// cannot carry so many, tasks have parts of the vectors, if that helps.
static Module *lower(Ctx *cx, const Asked *a) {
  uint32_t from = cx->remarks.n;
  const Target *t = a->target;
  Asked less = *a;
  Module *m = lower_to(cx, a);
  bool asks = m && a->to >= LV_FRAG && t && t->kind == TARGET_GPU &&
              t->gpu.vendor != VENDOR_AMD;
  uint32_t sums = asks ? carried(m) : 0, told = cx->remarks.n;
  if (sums <= COST_CARRIED_SUMS) return m;
  less.columns = COST_COLUMNS_MOST / 2;
  Module *parts = lower_to(cx, &less);
  if (!parts || carried(parts) >= sums) {
    cx->remarks.n = told;
    return parts ? m : NULL;
  }
  uint32_t n = cx->remarks.n - told;
  memmove(cx->remarks.at + from, cx->remarks.at + told,
          n * sizeof *cx->remarks.at);
  cx->remarks.n = from + n;
  return parts;
}

static Module *lower_once(Ctx *cx, const Asked *a) {
  PassOpt pass = run_of(a).pass;
  const char *key =
      plan_known_key(cx, &(PlanAsked){a->s, &pass, a->to, a->opt});
  DiagMark mark = diag_mark(cx);
  Module *m = a->to == LV_MACH ? known(cx, a->s, key) : NULL;
  if (m) return m;
  m = lower(cx, a);
  if (m && a->to == LV_MACH && cx->diags.n == mark.diags &&
      cx->nhidden == mark.hidden)
    plan_known_put(cx, key, m, mark.remarks);
  return m;
}

Module *drv_lower(Ctx *cx, DrvSpec s, const Target *target, Level to,
                  const DrvOptions *opt) {
  work_begin(cx);
  Module *m = lower_once(cx, &(Asked){s, target, to, opt, 0});
  work_end(cx);
  return m;
}

// ---------------------------------------------------------------- that fit
bool plan_no_room(const Ctx *cx) {
  if (!cx->diags.n) return false;
  DiagId id = cx->diags.at[cx->diags.n - 1]->id;
  return id == DIAG_pass_unsupported || id == DIAG_cg_input;
}

void plan_spare_smem(Ctx *cx, const char *name, const Target *target,
                     DrvOptions *opt) {
  opt->spare_smem += target->gpu.smem / COST_FIT_SMEM_STEPS;
  ctx_remark(cx,
             "%s: tiles that leave %lld KiB of shared memory free: code "
             "for %s needs it",
             name, (long long)(opt->spare_smem / 1024), target->name);
}

Module *plan_fit(Ctx *cx, DrvSpec s, const Target *target, DrvOptions *opt) {
  bool asked =
      target->kind != TARGET_GPU || drv_tiles_asked(s.prog, target, opt);
  DiagMark mark = diag_mark(cx);
  for (int i = 1;; i++) {
    Module *m = drv_lower(cx, s, target, LV_MACH, opt);
    if (m || asked || i == COST_FIT_SMEM_STEPS || !plan_no_room(cx)) return m;
    diag_forget(cx, mark);
    plan_spare_smem(cx, s.prog->name, target, opt);
  }
}
