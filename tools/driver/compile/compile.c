// Source to modules to code. For each program, each specialization of its
// const dims and dtypes, each target: lower, run the passes, hand the modules
// to codegen together.
#include "ir/target.h"
#include "passes/support/clusters.h"
#include "passes/support/cost.h"
#include "tools/driver/compile/compile.h"
#include "tools/driver/gpu/device.h"

#include "frontend/check.h"
#include "ir/layout.h"
#include "tools/plan/plan.h"

#include <assert.h>

// ---------------------------------------------------------------- IR text
// Where no target is named the IR up to `stream` is shown for all values of a
// dim at once: only what the user fixed and dtypes are bound there.
static uint32_t bound_for(Level to, const DrvOptions *opt, FeBind *binds,
                          uint32_t n) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++) {
    bool keep = opt->targets || to >= LV_TILE || binds[i].dtype != DT_NONE;
    for (uint32_t k = 0; k < opt->fixed.n; k++)
      keep = keep || strcmp(opt->fixed.at[k].name, binds[i].name) == 0;
    if (keep) binds[kept++] = binds[i];
  }
  return kept;
}

static bool same_binds(const FeBind *a, const FeBind *b, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (a[i].value != b[i].value || a[i].dtype != b[i].dtype) return false;
  return true;
}

static void title(const Decl *prog, const FeBind *binds, uint32_t n, Buf *out) {
  if (out->n) buf_str(out, "# -----\n");
  buf_printf(out, "# %s", prog->name);
  for (uint32_t i = 0; i < n; i++) {
    if (binds[i].dtype != DT_NONE)
      buf_printf(out, " %s=%s", binds[i].name, dtype_name(binds[i].dtype));
    else buf_printf(out, " %s=%lld", binds[i].name, (long long)binds[i].value);
  }
  buf_char(out, '\n');
}

// A module of level `to` on the way to code: a GPU's as it is compiled.
static Module *staged(Ctx *cx, DrvSpec s, const Target **t, Level to,
                      DrvOptions *opt) {
  if (!*t || (*t)->kind != TARGET_GPU || to < LV_TILE)
    return drv_lower(cx, s, *t, to, opt);
  bool code = drv_code_options(cx, s, t, opt);
  if (diag_has_bug(cx)) return NULL;
  if (to == LV_MACH && !code) return plan_fit(cx, s, *t, opt);
  return drv_lower(cx, s, *t, to, opt);
}

static bool emit_program(Ctx *cx, Decl *prog, const Target *t, Level to,
                         const DrvOptions *opt, Buf *out) {
  FeBind *binds, *last = NULL;
  uint32_t width, n = fe_specializations(cx, prog, opt->fixed.at, opt->fixed.n,
                                         &binds, &width);
  for (uint32_t i = 0; i < n; i++) {
    FeBind *b = binds + (size_t)i * width;
    uint32_t kept = bound_for(to, opt, b, width);
    if (last && same_binds(last, b, kept)) continue;
    last = b;
    DrvOptions made = *opt;
    const Target *by = t;
    work_variant(cx);
    Module *m = staged(cx, (DrvSpec){.prog = prog, .binds = b, .n = kept}, &by,
                       to, &made);
    if (!m) return false;
    title(prog, b, kept, out);
    drv_print_options(prog, by, to, &made, out);
    ir_print(m, out);
  }
  return n > 0;
}

static bool emit_ir(Ctx *cx, DrvProgs progs, Level to, const DrvOptions *opt,
                    Buf *out) {
  const char *name = opt->targets ? opt->targets : "cpu";
  DrvTargets targets = {0};
  bool ok = true;
  if (!drv_targets(cx, name, &targets)) return false;
  // `cpu` alone shows the lowest level, whatever machine this is.
  uint32_t nt = strcmp(name, "cpu") == 0 || to == LV_ATTN ? 1 : targets.n;
  for (uint32_t i = 0; i < progs.n && ok; i++)
    for (uint32_t k = 0; k < nt && ok; k++)
      ok = emit_program(cx, progs.at[i], targets.at[k], to, opt, out);
  return ok;
}

bool drv_emit_ir(Ctx *cx, DrvProgs progs, Level to, const DrvOptions *opt,
                 Buf *out) {
  work_begin(cx);
  bool ok = emit_ir(cx, progs, to, opt, out);
  work_end(cx);
  return ok;
}

// ---------------------------------------------------------------- signatures
static void defaults(const Decl *prog, CgParam *p, uint32_t n) {
  for (uint32_t i = 0; i < n && i < prog->params.n; i++) {
    const Expr *e = prog->params.at[i].deflt;
    double v;
    if (!e || p[i].type.kind == TK_TENSOR) continue;
    p[i].def = CG_COMPUTED;
    if (!drv_eval(NULL, NULL, e, &v)) continue;
    p[i].def = CG_VALUE;
    p[i].f = v;
    p[i].i = (int64_t)v;
  }
}

// Cotangents d_O of outputs O and tangents of inputs count as zeros where they
// are missing.
static void mark_cotangents(const Decl *prog, CgParam *p, uint32_t n) {
  for (uint32_t i = 0; i < n && i < prog->params.n; i++)
    p[i].optional = p[i].type.kind == TK_TENSOR &&
                    drv_is_cotangent(prog, prog->params.at[i].name);
}

// A name of its own for each choice of dtypes: program_bf16.
static const char *name_of(Ctx *cx, const Decl *prog, const FeBind *binds,
                           uint32_t n) {
  Buf b = {.arena = &cx->session};
  const Derived *of = prog->derived;
  buf_str(&b, of ? of->of->name : prog->name);
  for (uint32_t i = 0; i < n; i++) {
    if (binds[i].dtype == DT_NONE) continue;
    for (uint32_t k = 0; k < prog->generics.n; k++)
      if (prog->generics.at[k].name == binds[i].name &&
          prog->generics.at[k].dtypes.n > 1)
        buf_printf(&b, "_%s", dtype_name(binds[i].dtype));
  }
  if (of && of->gradient) buf_str(&b, "_grad");
  if (of && of->tangent) buf_str(&b, "_jvp");
  return intern(&cx->names, b.at);
}

static bool in_types(const CgProgram *p, uint32_t sym) {
  for (uint32_t i = 0; i < p->nparams; i++)
    for (uint32_t k = 0; k < p->params[i].type.n; k++)
      if (dim_uses(p->dims, p->params[i].type.size[k], sym)) return true;
  return false;
}

// Consts in no type, which no argument tells, have the value that the code is
// for.
static void narrow(CgProgram *p, const FeBind *fixed, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    uint32_t at;
    if (fixed[i].dtype != DT_NONE ||
        !dim_find_sym(p->dims, fixed[i].name, &at) || in_types(p, at))
      continue;
    DimSym *s = &p->dims->syms.at[at];
    if (s->kind != DIM_SPEC) continue;
    s->lo = s->hi = fixed[i].value;
    memset(&s->values, 0, sizeof s->values);
    vec_push(p->dims->arena, &s->values, fixed[i].value);
  }
}

static bool is_fixed(const DrvOptions *opt, const FeBind *b) {
  for (uint32_t i = 0; i < opt->fixed.n; i++)
    if (strcmp(opt->fixed.at[i].name, b->name) == 0) return true;
  return false;
}

// A program at level attn for all values of its dims, with types alone; but
// where it has none, as a derivative of steps with an inner loop, for those
// that the user fixed. sole: all of s are.
static Module *general(Ctx *cx, DrvSpec s, const DrvOptions *opt, bool sole) {
  FeBind *binds = NEWN(&cx->session, FeBind, s.n + 1);
  uint32_t nt = 0, n;
  for (uint32_t i = 0; i < s.n; i++)
    if (s.binds[i].dtype != DT_NONE) binds[nt++] = s.binds[i];
  n = nt;
  for (uint32_t i = 0; i < s.n; i++)
    if (s.binds[i].dtype == DT_NONE && (sole || is_fixed(opt, &s.binds[i])))
      binds[n++] = s.binds[i];
  DiagMark mark = diag_mark(cx);
  Module *m =
      drv_lower_attn(cx, (DrvSpec){.prog = s.prog, .binds = binds, .n = nt},
                     NULL);
  if (m || n == nt || diag_has_bug(cx)) return m;
  diag_forget(cx, mark);
  return drv_lower_attn(cx, (DrvSpec){.prog = s.prog, .binds = binds, .n = n},
                        NULL);
}

static bool signature(Ctx *cx, DrvSpec s, const DrvOptions *opt, bool sole,
                      CgProgram *out) {
  Decl *prog = s.prog;
  FeBind *types = NEWN(&cx->session, FeBind, s.n + 1);
  uint32_t nt = 0;
  for (uint32_t i = 0; i < s.n; i++)
    if (s.binds[i].dtype != DT_NONE) types[nt++] = s.binds[i];
  Module *m = general(cx, s, opt, sole);
  Func *f = m ? ir_find(m, prog->name) : NULL;
  if (!f) return false;
  f->name = name_of(cx, prog, types, nt);
  *out = cg_program_of(cx, m, f, opt->prefix);
  out->doc = prog->doc;
  out->at = prog->name_span;
  narrow(out, opt->fixed.at, opt->fixed.n);
  // The parameters just made, not yet shared with anybody.
  defaults(prog, out->params, out->nparams);
  mark_cotangents(prog, out->params, out->nparams);
  return drv_where(cx, prog, &m->dims, out);
}

// D == 64 and Dv == 64
static CgExpr when(Ctx *cx, const CgProgram *p, DrvSpec s) {
  DimTab *t = p->dims;
  CgExpr all = {0};
  for (uint32_t i = 0; i < s.n; i++) {
    const FeBind *b = &s.binds[i];
    uint32_t sym;
    if (b->dtype != DT_NONE || !dim_find_sym(t, b->name, &sym)) continue;
    CgExpr have = cg_expr_dim(cx, t, dim_sym(t, sym));
    CgExpr want = cg_expr_dim(cx, t, dim_const(t, b->value));
    CgExpr one = cg_expr_bin(cx, have, ATTN_X_EQ, want);
    all = all.n ? cg_expr_bin(cx, all, ATTN_X_AND, one) : one;
  }
  return all;
}

// ---------------------------------------------------------------- few rows
static const Func *last_func(const CgProgram *p) {
  const Module *m = p->nvariants ? p->variants[p->nvariants - 1].mod : NULL;
  return m ? ir_find(m, p->name) : NULL;
}

const char *drv_queries(const CgProgram *p) {
  const Func *f = last_func(p);
  Dim d = plan_tiled(f, COST_CPU_FEW);
  if (!d || f->mod->dims.exprs.at[d].op != DIM_SYM) return NULL;
  const DimTab *t = &f->mod->dims;
  const DimSym *s = &t->syms.at[t->exprs.at[d].value];
  return s->kind == DIM_DYN ? s->name : NULL;
}

Dim drv_rows(const CgProgram *p, DimTab *to) {
  return plan_rows(last_func(p), to);
}

bool drv_grouped(const DimTab *t, Dim rows) {
  return rows && t->exprs.at[rows].op != DIM_SYM;
}

// when, and the dim d is at most that.
static CgExpr when_most(Ctx *cx, DimTab *t, CgExpr when, Dim d, int64_t most) {
  CgExpr le = cg_expr_bin(cx, cg_expr_dim(cx, t, d), ATTN_X_LE,
                          cg_expr_dim(cx, t, dim_const(t, most)));
  return when.n ? cg_expr_bin(cx, when, ATTN_X_AND, le) : le;
}

// when, and the dim d is at least that.
static CgExpr when_least(Ctx *cx, DimTab *t, CgExpr when, Dim d,
                         int64_t least) {
  CgExpr le = cg_expr_bin(cx, cg_expr_dim(cx, t, dim_const(t, least)),
                          ATTN_X_LE, cg_expr_dim(cx, t, d));
  return when.n ? cg_expr_bin(cx, when, ATTN_X_AND, le) : le;
}

static CgExpr when_few(Ctx *cx, const CgProgram *p, CgExpr when,
                       const char *name, int64_t most) {
  DimTab *t = p->dims;
  uint32_t sym;
  if (!dim_find_sym(t, name, &sym)) return when;
  return when_most(cx, t, when, dim_sym(t, sym), most);
}

bool drv_is_decode(const Decl *prog) {
  for (uint32_t i = 0; i < prog->attrs.n; i++)
    if (drv_for_decode(&prog->attrs.at[i])) return true;
  return false;
}

static void rename_func(Module *m, const char *from, const char *to) {
  size_t n = strlen(from);
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (ir_is_phase(f, from))
      f->name = intern(&m->cx->names,
                       arena_printf(m->arena, "%s%s", to, f->name + n));
  }
}

// The text of m without its first line, which names the target.
static const char *text_of(Ctx *cx, const Module *m) {
  Buf b = {.arena = &cx->session};
  ir_print(m, &b);
  const char *end = strchr(b.at, '\n');
  return end ? end : b.at;
}

// Is m what `before` is for a level below? What has pairs of bf16 also rounds
// to bf16 in another way.
static bool adds_nothing(Ctx *cx, const Module *before, const Module *m) {
  const Target *a = target_by_name(before->target);
  const Target *b = target_by_name(m->target);
  if (!a || !b || a == b || strcmp(a->cpu, b->cpu) != 0) return false;
  const char *text = text_of(cx, m);
  bool rounds = a->dpbf16 != b->dpbf16 && strstr(text, dtype_name(DT_BF16));
  return !rounds && strcmp(text, text_of(cx, before)) == 0;
}

Module *drv_lower_mach(Ctx *cx, DrvSpec s, const Target *t,
                       const DrvOptions *opt, const char *name) {
  if (opt->general) t = target_by_name(t->gpu.general);
  Module *m = drv_lower(cx, s, t, LV_MACH, opt);
  if (m && strcmp(name, s.prog->name) != 0) rename_func(m, s.prog->name, name);
  return m;
}

// again: the variant before is the same specialization for another level. A
// level whose code would be that one's is left out.
static bool add_variant(Ctx *cx, DrvSpec s, const Target *t,
                        const DrvOptions *opt, bool again, CgProgram *p) {
  Module *m = drv_lower_mach(cx, s, t, opt, p->name);
  if (!m) return false;
  if (p->nvariants && again &&
      adds_nothing(cx, p->variants[p->nvariants - 1].mod, m))
    return true;
  CgVariant *all = NEWN(&cx->session, CgVariant, p->nvariants + 1);
  if (p->nvariants) memcpy(all, p->variants, sizeof *all * p->nvariants);
  all[p->nvariants++] = (CgVariant){m, when(cx, p, s)};
  p->variants = all;
  return true;
}

// In front of the kernel for few rows just made, the one that walks them, of a
// program whose rows may be walked.
static bool add_walk(Ctx *cx, DrvSpec s, const Target *t, const DrvOptions *few,
                     CgProgram *p) {
  DrvOptions walk = *few;
  uint32_t at = p->nvariants - 1;
  Dim rows = drv_rows(p, p->dims);
  walk.walk = true;
  if (!rows) return true;
  if (!add_variant(cx, s, t, &walk, false, p)) return false;
  CgVariant *all = p->variants, lanes = all[at], walked = all[at + 1];
  if (strcmp(text_of(cx, lanes.mod), text_of(cx, walked.mod)) == 0) {
    p->nvariants--;
    return true;
  }
  walked.when = when_most(cx, p->dims, walked.when, rows, COST_WALKED);
  all[at] = walked;
  all[at + 1] = lanes;
  return true;
}

// Of a program for decoding: in front of the variant just made, its kernel for
// groups of heads, if it has groups, and in front of that the ones for few
// rows.
static bool add_few(Ctx *cx, DrvSpec s, const Target *t, const DrvOptions *opt,
                    CgProgram *p) {
  const char *queries = drv_is_decode(s.prog) ? drv_queries(p) : NULL;
  uint32_t last = p->nvariants - 1;
  if (!queries || strcmp(p->variants[last].mod->target, t->name)) return true;
  CgVariant whole = p->variants[last];
  DrvOptions few = *opt, group = *opt;
  few.few = group.group = true;
  p->nvariants = last;
  if (!add_variant(cx, s, t, &few, false, p) || !add_walk(cx, s, t, &few, p))
    return false;
  last = p->nvariants - 1;
  DimTab *dims = p->dims;
  Dim rows = drv_rows(p, dims);
  CgVariant *all = p->variants;
  if (rows)
    all[last].when = when_most(cx, dims, all[last].when, rows, COST_CPU_FEW);
  if (drv_grouped(dims, rows)) {
    if (!add_variant(cx, s, t, &group, false, p)) return false;
    all = p->variants;
    last++;
    all[last].when = when_few(cx, p, all[last].when, queries, COST_FEW_QUERIES);
  }
  all = NEWN(&cx->session, CgVariant, p->nvariants + 1);
  memcpy(all, p->variants, sizeof *all * p->nvariants);
  all[p->nvariants++] = whole;
  p->variants = all;
  return true;
}

static void find_dealt(void *data, Op *op) {
  *(bool *)data |= op->code == OP_MMA && ir_attr_i(op, AT_DEALT, 0);
}

static bool is_dealt(const Module *m) {
  bool dealt = false;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    ir_walk(m->funcs.at[i]->body, find_dealt, &dealt);
  return dealt;
}

// No token waits for a gradient: its calls of few rows take the code for all.
static bool has_few(const Decl *prog) {
  return drv_is_decode(prog) && !(prog->derived && prog->derived->gradient);
}

// In front of the device just made, of a program for decoding: its kernel for
// few rows, those of one group of warps; fewest: of one warp.
// together: behind one that has a phase for keys that all sequences share,
// where those are few.
// brief: in front of one that has a phase for bounds, where tasks are few.
// cluster: in front of the same without, where clusters of so many CTAs are
// best.
enum { FEWEST = 1, TOGETHER = FEWEST << 1, BRIEF = TOGETHER << 1 };

static bool add_decode(Ctx *cx, CgProgram *p, const Built *whole, uint32_t how,
                       int64_t cluster, Built *few) {
  bool fewest = how & FEWEST, brief = how & BRIEF;
  const Recipe *r = &whole->recipe;
  DimTab *dims = p->dims;
  CgDevice d;
  if (!has_few(r->spec.prog) || r->opt.few || r->opt.general ||
      !r->target->gpu.hopper || (brief && !drv_finds_bounds(whole)))
    return false;
  *few = (Built){.recipe = *r, .program = whole->program};
  few->recipe.opt.few = true;
  few->recipe.opt.fewest = fewest;
  few->recipe.opt.together = how & TOGETHER;
  few->recipe.opt.brief = brief;
  few->recipe.opt.cluster = cluster;
  int64_t most = fewest ? r->target->gpu.rows : HW_GROUP_ROWS;
  DiagMark mark = diag_mark(cx);
  Dim rows = drv_make_device(cx, p, few, &d)
                 ? plan_group_rows(few->mod, r->spec.prog, p->name, dims)
                 : DIM_NONE;
  if (!rows || (fewest && !is_dealt(few->mod)) ||
      (brief && drv_finds_bounds(few)) ||
      (cluster &&
       (!plan_is_clustered(few->mod) || !plan_cluster_gain(few->mod, dims))) ||
      drv_same_text(d.text, p->devices[p->ndevices - 1].text)) {
    diag_forget(cx, mark);
    return false;
  }
  CgExpr calls = when_most(cx, dims, (CgExpr){0}, rows, most);
  Dim keys = plan_shared_keys(few->mod, p->name, dims);
  if (keys) calls = when_least(cx, dims, calls, keys, COST_SHARED_KEYS);
  if (brief) calls = drv_and(cx, calls, drv_brief_calls(cx, p, whole));
  if (cluster)
    calls = when_least(cx, dims, calls, plan_cluster_gain(few->mod, dims), 1);
  few->recipe.when = drv_and(cx, few->recipe.when, calls);
  d.when = drv_and(cx, d.when, calls);
  drv_prepend_device(cx, p, d);
  return true;
}

// The axis of a recurrence whose steps make chunks, 0: none.
static const char *chunked(const Built *b) {
  const Module *m = b->mod;
  const Func *f = m && m->funcs.n ? m->funcs.at[m->funcs.n - 1] : NULL;
  for (uint32_t i = 0; f && i < f->axes.n; i++) {
    const Axis *a = &f->axes.at[i];
    const DimExpr *e = &m->dims.exprs.at[a->extent];
    if (a->role != AX_STEP || e->op != DIM_SYM) continue;
    const DimSym *s = &m->dims.syms.at[e->value];
    return s->kind == DIM_DYN ? s->name : NULL;
  }
  return NULL;
}

// In front of the device just made: its kernel for single steps.
static bool add_steps(Ctx *cx, const DrvOptions *opt, CgProgram *p,
                      const Built *whole, Built *built) {
  *built = *whole;
  Recipe *r = &built->recipe;
  const char *steps = chunked(whole);
  if (!steps || opt->chunk == 1 || !r->target->gpu.hopper) return false;
  r->opt.chunk = 1;
  r->when = when_few(cx, p, r->when, steps, COST_FEW_STEPS - 1);
  CgDevice d;
  if (!drv_make_device(cx, p, built, &d)) return false;
  drv_prepend_device(cx, p, d);
  return true;
}

// What no code for dense tensors, with copies of tiles, could take: known
// before there is any. NULL: nothing.
static const Param *find_odd(Ctx *cx, const Recipe *r) {
  const Param *odd = drv_many_axes(r);
  DrvOptions quiet = drv_quietly(&r->opt);
  if (odd || !r->target->gpu.general) return odd;
  CtxHome h = ctx_home(cx);
  DiagMark mark = diag_mark(cx);
  const Module *m = plan_fit(cx, r->spec, r->target, &quiet);
  if (m) odd = drv_odd_rows(r, m);
  diag_forget(cx, mark);
  ctx_leave(cx, h);
  return odd;
}

bool drv_only_general(Ctx *cx, Recipe *r) {
  r->odd = find_odd(cx, r);
  if (!r->odd) return false;
  r->opt.strided = r->opt.general = true;
  r->opt.few = r->opt.fewest = false;
  r->opt.spare_regs += COST_SPARE_BODY_REGS;
  return true;
}

// The device of *b, which stands before what others take. If that could take no
// dense tensors, or no copies of tiles, it is general code.
static bool add_first(Ctx *cx, CgProgram *p, Built *b) {
  Built any = {.recipe = b->recipe, .program = b->program};
  if (!drv_only_general(cx, &any.recipe)) return drv_add_device(cx, p, b);
  DiagMark mark = diag_mark(cx);
  if (!drv_add_device(cx, p, &any)) {
    if (diag_has_bug(cx)) return false;
    diag_forget(cx, mark);
    return drv_add_device(cx, p, b);
  }
  ctx_remark(cx, "%s for %s: code for tensors of any strides alone, as for %s",
             p->name, b->recipe.target->name, b->recipe.target->gpu.general);
  *b = any;
  return true;
}

// The same for a GPU; code is assembled when all variants are there. What is
// for all calls comes last.
static bool add_fast(Ctx *cx, const Recipe *r, uint32_t number, bool steps,
                     CgProgram *p, Builts *built) {
  const DrvOptions *opt = &r->opt;
  Built b = {.recipe = *r, .program = number}, few;
  b.recipe.when = when(cx, p, r->spec);
  if (!add_first(cx, p, &b)) return false;
  for (int fewest = 1; fewest >= 0; fewest--) {
    uint32_t how = fewest ? FEWEST : 0;
    if (!opt->first && !fewest && add_decode(cx, p, &b, BRIEF, 0, &few))
      vec_push(&cx->session, built, few);
    for (uint32_t i = 0; fewest && clusters_size(i); i++)
      if (!opt->first && add_decode(cx, p, &b, how, clusters_size(i), &few))
        vec_push(&cx->session, built, few);
    if (opt->first || !add_decode(cx, p, &b, how, 0, &few)) continue;
    vec_push(&cx->session, built, few);
    if (plan_shared_keys(few.mod, p->name, p->dims) &&
        add_decode(cx, p, &b, how | TOGETHER, 0, &few))
      vec_push(&cx->session, built, few);
  }
  if (!opt->first && drv_few_tasks(cx, p, &b, &few))
    vec_push(&cx->session, built, few);
  if (!opt->first && drv_brief(cx, p, &b, &few))
    vec_push(&cx->session, built, few);
  if (steps && add_steps(cx, opt, p, &b, &few))
    vec_push(&cx->session, built, few);
  vec_push(&cx->session, built, b);
  return true;
}

static bool add_strided(Ctx *cx, const Built *of, CgProgram *p, Builts *built) {
  Built any = {.recipe = of->recipe, .program = of->program};
  any.recipe.opt.strided = true;
  if (!drv_add_device(cx, p, &any)) return false;
  vec_push(&cx->session, built, any);
  return true;
}

// Code that takes any tensor, behind what most calls take. Its machine code
// would take as long to make as all others': it is text of smaller tiles, for
// the driver's compiler; with `dense = off` ptxas makes it, in one run. That
// there is none is no reason to have no code at all.
static bool add_general(Ctx *cx, const Built *of, CgProgram *p, Builts *built) {
  Built any = {.recipe = of->recipe, .program = of->program};
  Recipe *r = &any.recipe;
  r->opt.strided = r->opt.general = r->spare = true;
  r->opt.spare_regs += COST_SPARE_BODY_REGS;
  r->opt.spare_each = NULL;
  r->text = drv_dense_asked(r->spec.prog, r->target, &r->opt) != DENSE_OFF;
  DiagMark mark = diag_mark(cx);
  if (!drv_add_device(cx, p, &any)) {
    if (diag_has_bug(cx)) return false;
    diag_forget(cx, mark);
    ctx_remark(cx, "%s for %s: no code for tensors of any strides", p->name,
               of->recipe.target->name);
    return true;
  }
  cx->remarks.n = mark.remarks;
  ctx_remark(cx, "%s for %s: a body for tensors of any strides, as for %s",
             p->name, of->recipe.target->name, of->recipe.target->gpu.general);
  any.courses = NEWN(&cx->session, Course, any.kernels.n + 1);
  for (uint32_t i = 0; i < any.kernels.n; i++)
    any.courses[i].runs = COST_PTXAS_RUNS - 1;
  vec_push(&cx->session, built, any);
  return true;
}

// Code that some tensors are not made for is followed by one that takes more,
// and by one that takes any.
static bool add_bodies(Ctx *cx, Built b, CgProgram *p, Builts *built) {
  if (b.recipe.opt.first || b.recipe.opt.general) return true;
  bool copies = drv_takes_copies(&b.recipe);
  if (!copies && !b.recipe.opt.strided && drv_needs_strided(&b) &&
      !add_strided(cx, &b, p, built))
    return false;
  if (!drv_needs_general(&b)) return true;
  if (!copies) return add_general(cx, &b, p, built);
  ctx_remark(cx, "%s for %s: tensors of any strides are copied", p->name,
             b.recipe.target->name);
  return true;
}

// AMD: b gets smaller tiles, which those behind it can begin with.
static bool gets_smaller(const Built *b) {
  return drv_is_amd(b) && cg_cost(&b->kernels);
}

static bool add_gpu(Ctx *cx, const Recipe *r, uint32_t number, bool steps,
                    CgProgram *p, Builts *built) {
  if (!add_fast(cx, r, number, steps, p, built)) return false;
  Built b = built->at[built->n - 1];
  return gets_smaller(&b) || add_bodies(cx, b, p, built);
}

// Smaller tiles may be copied where the first ones were not. of: of the code of
// a target that takes most tensors, which was made by recipe `was`.
static bool add_missing(Ctx *cx, const DrvOptions *opt, CgProgram *p,
                        const Built *of, const Recipe *was) {
  Built b = *of;
  Builts more = {0};
  if (!drv_is_amd(of)) b.recipe = *was;
  return add_bodies(cx, b, p, &more) &&
         drv_assemble(cx, opt, p, more.at, more.n);
}

// Is it the last body of its target? AMD: of its specialization, which may not
// have all yet.
static bool is_last(const Built *built, uint32_t i, uint32_t n) {
  if (i + 1 == n) return true;
  const Recipe *r = &built[i].recipe, *next = &built[i + 1].recipe;
  bool same = !drv_is_amd(&built[i]) || r->spec.binds == next->spec.binds;
  return r->target != next->target || !same;
}

static bool assemble_text(Ctx *cx, const DrvOptions *opt, CgProgram *p,
                          Built *built, uint32_t n) {
  Recipe *was = NEWN(&cx->session, Recipe, n + 1);
  for (uint32_t i = 0; i < n; i++) was[i] = built[i].recipe;
  if (!drv_assemble(cx, opt, p, built, n)) return false;
  for (uint32_t i = 0; i < n; i++) {
    if (is_last(built, i, n) && !add_missing(cx, opt, p, &built[i], &was[i]))
      return false;
  }
  return true;
}

// drv_assemble; machine code that is there for want of a map needs no text
// beside it: the target is one kind of machine.
static bool assemble(Ctx *cx, const DrvOptions *opt, CgProgram *p, Built *built,
                     uint32_t n) {
  uint32_t from = p->ndevices - n;
  if (!assemble_text(cx, opt, p, built, n)) return false;
  CgDevice *dev = p->devices + from;
  if (n && !built[0].recipe.opt.first) drv_warn_slow(cx, p, built, n);
  for (uint32_t i = 0; i < n; i++)
    if (built[i].recipe.opt.general && !built[i].recipe.opt.first &&
        (dev[i].binary.n || dev[i].parts))
      dev[i].text = (CgBytes){0};
  return true;
}

// The signature of a program of one specialization.
static bool sole(Ctx *cx, DrvSpec s, const DrvOptions *opt, CgProgram *out) {
  if (!signature(cx, s, opt, true, out)) return false;
  narrow(out, s.binds, s.n);
  return true;
}

bool drv_device_program(Ctx *cx, DrvSpec s, const Target *target,
                        const DrvOptions *opt, CgProgram *out, Builts *built) {
  Recipe r = {.spec = s,
              .target = target,
              .opt = *opt,
              .memo = drv_memo(cx, opt->jobs)};
  return sole(cx, s, opt, out) && add_gpu(cx, &r, 0, false, out, built) &&
         assemble(cx, opt, out, built->at, built->n);
}

bool drv_program(Ctx *cx, DrvSpec s, const Target *target,
                 const DrvOptions *opt, CgProgram *out) {
  Builts built = {0};
  if (target->kind == TARGET_GPU)
    return drv_device_program(cx, s, target, opt, out, &built) &&
           !diag_has_bug(cx);
  return sole(cx, s, opt, out) && add_variant(cx, s, target, opt, false, out);
}

static CgProgram *find_program(CgPrograms *all, uint32_t from,
                               const char *name) {
  for (uint32_t i = from; i < all->n; i++)
    if (strcmp(all->at[i].name, name) == 0) return &all->at[i];
  return NULL;
}

// again: as of add_variant; number: that of p.
static bool add_target(Ctx *cx, const Recipe *r, bool again, uint32_t number,
                       CgProgram *p, Builts *built) {
  const Target *t = r->target;
  if (t->kind != TARGET_GPU)
    return add_variant(cx, r->spec, t, &r->opt, again, p) &&
           add_few(cx, r->spec, t, &r->opt, p);
  return add_gpu(cx, r, number, true, p, built);
}

// Devices of the programs from number `from` on; built are theirs, in order.
static bool assemble_all(Ctx *cx, const DrvOptions *opt, CgPrograms *all,
                         uint32_t from, Builts *built) {
  uint32_t at = 0;
  for (uint32_t i = from; i < all->n; i++) {
    CgProgram *p = &all->at[i];
    if (!p->ndevices) continue;
    Built *own = NEWN(&cx->session, Built, p->ndevices);
    for (uint32_t k = 0; k < built->n; k++)
      if (built->at[k].program == i) own[at++] = built->at[k];
    if (!assemble(cx, opt, p, own, at)) return false;
    at = 0;
  }
  return true;
}

// A target that fails leaves p as it was.
static bool try_target(Ctx *cx, const Recipe *r, bool again, uint32_t number,
                       CgProgram *p, Builts *built) {
  CgProgram was = *p;
  uint32_t n = built->n;
  if (add_target(cx, r, again, number, p, built)) return true;
  *p = was;
  built->n = n;
  return false;
}

// Levels of one CPU fail alike.
static bool said_before(Diag *const *why, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (why[i] && strcmp(why[i]->text, why[n]->text) == 0) return true;
  return false;
}

// Targets whose code cannot be made are left out where others have code.
static bool add_targets(Ctx *cx, Recipe *r, const DrvTargets *targets,
                        uint32_t number, CgProgram *p, Builts *built) {
  Diag **why = NEWN(&cx->session, Diag *, targets->n + 1);
  uint32_t made = 0;
  for (uint32_t k = 0; k < targets->n; k++) {
    DiagMark mark = diag_mark(cx);
    r->target = targets->at[k];
    work_variant(cx);
    if (try_target(cx, r, made > 0, number, p, built)) {
      made++;
      continue;
    }
    why[k] = diag_error_since(cx, mark);
    if (!why[k] || diag_has_bug(cx)) return false;
    diag_forget(cx, mark);
  }
  for (uint32_t k = 0; k < targets->n; k++) {
    if (!why[k]) continue;
    if (!made && !said_before(why, k)) diag_again(cx, why[k]);
    if (made)
      diag_add(cx, DIAG_target_left_out, why[k]->span, p->name,
               targets->at[k]->name, why[k]->text);
  }
  return made > 0;
}

bool drv_programs(Ctx *cx, Decl *prog, const DrvTargets *targets,
                  const DrvOptions *opt, CgPrograms *out) {
  FeBind *binds;
  Builts built = {0};
  uint32_t width, from = out->n;
  uint32_t n =
      fe_specializations(cx, prog, opt->fixed.at, opt->fixed.n, &binds, &width);
  for (uint32_t i = 0; i < n; i++) {
    Recipe r = {.spec = {prog, binds + (size_t)i * width, width},
                .opt = *opt,
                .memo = drv_memo(cx, opt->jobs)};
    drv_step(opt, "variant", i + 1, n);
    const char *name = name_of(cx, prog, r.spec.binds, width);
    CgProgram *p = find_program(out, from, name);
    if (!p) {
      CgProgram fresh;
      if (!signature(cx, r.spec, opt, false, &fresh)) return false;
      vec_push(&cx->session, out, fresh);
      p = &out->at[out->n - 1];
    }
    uint32_t number = (uint32_t)(p - out->at);
    if (!add_targets(cx, &r, targets, number, p, &built)) return false;
  }
  return n > 0 && assemble_all(cx, opt, out, from, &built) && !cx->nerrors;
}

// ---------------------------------------------------------------- all programs
static bool collect(Ctx *cx, DrvProgs progs, const DrvTargets *targets,
                    const DrvOptions *opt, CgPrograms *all) {
  for (uint32_t i = 0; i < progs.n; i++)
    if (!drv_programs(cx, progs.at[i], targets, opt, all)) return false;
  return true;
}

// What section .attn of an object has, for those who load it themselves.
static bool emit_container(Ctx *cx, const CgPrograms *all,
                           const DrvOptions *opt, Buf *out) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < all->n; i++) n += all->at[i].ndevices;
  if (n) return cg_container(cx, all->at, all->n, out);
  diag_add(cx, DIAG_no_stage, NOWHERE, "container",
           opt->targets ? opt->targets : "cpu");
  return false;
}

static bool compile(Ctx *cx, DrvProgs progs, DrvStage what,
                    const DrvOptions *opt, Buf *out, Buf *header) {
  static const CgEmit emits[] = {[DRV_LLVM] = CG_LLVM,
                                 [DRV_ASM] = CG_ASM,
                                 [DRV_OBJECT] = CG_OBJECT};
  CgPrograms all = {0};
  DrvTargets targets = {0};
  if (!drv_targets(cx, opt->targets, &targets)) return false;
  if (drv_is_gpu_stage(&targets, what))
    return drv_emit_gpu(cx, progs, &targets, what, opt, out);
  if (!collect(cx, progs, &targets, opt, &all)) return false;
  if (what == DRV_CONTAINER) return emit_container(cx, &all, opt, out);
  if (header && !cg_header(cx, all.at, all.n, opt->prefix, header))
    return false;
  return what == DRV_HEADER ||
         cg_compile_on(cx, opt->jobs, all.at, all.n, emits[what], out);
}

bool drv_compile(Ctx *cx, DrvProgs progs, DrvStage what, const DrvOptions *opt,
                 Buf *out, Buf *header) {
  work_begin(cx);
  bool ok = compile(cx, progs, what, opt, out, header);
  work_end(cx);
  return ok;
}
