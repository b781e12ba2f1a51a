// Smaller tiles for the kernels of a variant that ptxas has flaws in, where no
// other code helps (remedy.c): those in which fewer registers live, by what the
// kernel's own tiles spilled. The others keep theirs.
//   keys     668 bytes, 128 x 64       leaves 96 free      keys     64 x 64
//   queries    0 bytes, 192 x 64                           queries 192 x 64
// Gradients that are added to memory in any order are made by one kernel, whose
// groups share tiles: one group alone takes four times as long (H200, heads
// that share keys, D 128). Where ptxas spills much in it there are two kernels
// instead; a few bytes cost less, and those where few steps go nothing (D 64,
// causal, heads that share keys: 24 bytes a step and 436 elsewhere, 515
// TFLOP/s; two kernels 408).
#include "ir/layout.h"
#include "passes/support/cost.h"
#include "tools/driver/gpu/device.h"
#include "tools/plan/plan.h"

// ---------------------------------------------------------------- room
// What lives at once beside what threads have, in a loop over keys.
typedef struct Need {
  uint64_t lives, has;
} Need;

static bool is_fuller(Need x, Need y) {
  return x.lives * y.has > y.lives * x.has;
}

static Need need_of(Ctx *cx, const Func *f, const Target *t) {
  if (ir_has_steps(f)) return (Need){0, 1};
  return (Need){drv_lives(cx, f), drv_has_registers(f, t)};
}

// What ptxas needed for a register that lives in `had`, it needs in other tiles
// too: those in which it would spill as well are not tried.
static bool has_room(const Built *b, Need need, Need had, uint64_t flaws) {
  had.has += flaws / COST_FIT_SPILLED;
  return drv_is_amd(b) || flaws >= CG_SERIAL || !is_fuller(need, had);
}

// ---------------------------------------------------------------- search
typedef struct Search {
  Ctx *cx;
  const CgProgram *p;
  const Built *b;
  uint32_t n;
  bool each;       // functions have tiles by themselves
  int64_t *freed;  // by function: what the last tiles left,
  int64_t *spare;  // and what those that are taken do
  Need *had, *least;
  bool *open, *any;
} Search;

// More at a time once a small step has not helped; few runs of ptxas are left.
static int64_t registers_for(const Built *b, uint64_t flaws, bool again) {
  int64_t n = (int64_t)(flaws % CG_SERIAL) / COST_FIT_PER_REG;
  bool more = b->nfreed || again || !drv_is_amd(b);
  int64_t least = more ? COST_FIT_NEXT : COST_FIT_LEAST;
  return n < least ? least : n > COST_FIT_MOST ? COST_FIT_MOST : n;
}

static uint64_t flaws_of(const Search *s, uint32_t i) {
  return s->each ? cg_kernel_flaws(&s->b->kernels.at[i])
                 : cg_flaws(&s->b->kernels);
}

// The functions of a module that search place i is about: one, or all.
static Need need_at(const Search *s, const Module *m, uint32_t i) {
  Need most = {0, 1};
  for (uint32_t k = 0; k < m->funcs.n; k++) {
    if (s->each && k != i) continue;
    Need x = need_of(s->cx, m->funcs.at[k], s->b->recipe.target);
    if (is_fuller(x, most)) most = x;
  }
  return most;
}

static bool same_code(const Search *s, const Module *m, const Module *have,
                      uint32_t i) {
  bool same = have && have->funcs.n == m->funcs.n;
  Arena *a = &s->cx->scratch;
  ArenaMark mark = arena_mark(a);
  for (uint32_t k = 0; k < m->funcs.n && same; k++)
    same = (s->each && k != i) ||
           drv_same_text(drv_mach_of(a, m, m->funcs.at[k]),
                         drv_mach_of(a, have, have->funcs.at[k]));
  arena_reset(a, mark);
  return same;
}

// Is its code in m what b is made of, or the last try for it?
static bool is_known(const Search *s, const Module *m, uint32_t i) {
  return same_code(s, m, s->b->mod, i) || same_code(s, m, s->b->tried, i);
}

static Search search(Ctx *cx, const CgProgram *p, const Built *b) {
  const DrvOptions *opt = &b->recipe.opt;
  uint32_t n = b->kernels.n;
  Search s = {.cx = cx, .p = p, .b = b};
  s.each = n == b->mod->funcs.n && drv_has_each(cx, &b->recipe, n);
  s.n = s.each ? n : 1;
  s.freed = NEWN(&cx->session, int64_t, s.n + 1);
  s.spare = NEWN(&cx->session, int64_t, s.n + 1);
  s.had = NEWN(&cx->session, Need, s.n + 1);
  s.least = NEWN(&cx->session, Need, s.n + 1);
  s.open = NEWN(&cx->session, bool, s.n + 1);
  s.any = NEWN(&cx->session, bool, s.n + 1);
  for (uint32_t i = 0; i < s.n; i++) {
    s.spare[i] =
        s.each ? drv_spare_of(opt, b->mod->funcs.at[i]) : opt->spare_regs;
    s.freed[i] = i < b->nfreed ? b->freed[i] : s.spare[i];
    s.had[i] = need_at(&s, b->mod, i);
    s.open[i] = s.each ? drv_may_run(b, i) : cg_cost(&b->kernels) > 0;
  }
  return s;
}

// Does less live than did? What is not counted, and products that wait for each
// other, may need less whatever lives.
static bool is_less(const Search *s, Need need, uint32_t i) {
  return drv_is_amd(s->b) || !s->had[i].lives || flaws_of(s, i) >= CG_SERIAL ||
         is_fuller(s->had[i], need);
}

// Tiles of steps are those of a chunk, however much is left free: what is known
// of one number holds for all.
static bool is_fixed(const Search *s, uint32_t i) {
  return s->each && !drv_is_amd(s->b) && ir_has_steps(s->b->mod->funcs.at[i]);
}

// What the tiles in m, with `spare` left free, are for those that look.
static bool settle(Search *s, const Module *m, const int64_t *spare) {
  bool open = false;
  for (uint32_t i = 0; i < s->n; i++) {
    if (!s->open[i] || is_known(s, m, i)) {
      if (is_fixed(s, i)) s->open[i] = false;
      open |= s->open[i];
      continue;
    }
    Need need = need_at(s, m, i);
    if (!is_less(s, need, i)) {
      open = true;
      continue;
    }
    bool room = has_room(s->b, need, s->had[i], flaws_of(s, i));
    if (room || !s->any[i] || is_fuller(s->least[i], need)) {
      s->spare[i] = spare[i];
      s->least[i] = need;
    }
    s->any[i] = true;
    s->open[i] = !room;
    open |= !room;
  }
  return open;
}

// The next tiles: other ones, in which no more lives than threads have by what
// ptxas made of b's; else those in which least does. False: there are none.
static bool next_tiles(Search *s, Recipe *r) {
  bool amd = drv_is_amd(s->b), any = false;
  const Module *names = s->each ? s->b->mod : NULL;
  bool open = true;
  int64_t *now = NEWN(&s->cx->session, int64_t, s->n + 1);
  for (int t = 0; open && t < (amd ? 3 : 1) * COST_FIT_TRIES; t++) {
    for (uint32_t i = 0; i < s->n; i++) {
      if (s->open[i])
        s->freed[i] += registers_for(s->b, flaws_of(s, i), amd && t);
      now[i] = s->open[i] ? s->freed[i] : s->spare[i];
    }
    drv_set_spare(s->cx, &r->opt, now, s->n, names);
    CtxHome h = ctx_home(s->cx);
    const Module *m =
        drv_lower_mach(s->cx, r->spec, r->target, &r->opt, s->p->name);
    if (m && (!s->each || m->funcs.n == s->n)) open = settle(s, m, now);
    ctx_leave(s->cx, h);
  }
  for (uint32_t i = 0; i < s->n; i++) any |= s->any[i];
  drv_set_spare(s->cx, &r->opt, s->spare, s->n, names);
  return any;
}

static bool had_four(const Search *s) {
  const Recipe *r = &s->b->recipe;
  bool four = false;
  for (uint32_t i = 0; i < s->b->kernels.n; i++)
    four |= (!s->each || s->any[i]) &&
            s->b->kernels.at[i].threads > HW_MOST_GROUPS * HW_GROUP_THREADS;
  return four && r->target->gpu.hopper && !r->opt.general && !s->b->nfreed;
}

static const char *why(const Built *b) {
  uint64_t flaws = cg_flaws(&b->kernels);
  return flaws >= CG_NO_CODE  ? "ptxas makes no code"
         : flaws >= CG_SERIAL ? "products are serialized"
                              : "registers are spilled";
}

static void remark_smaller(const Search *s) {
  int64_t most = 0;
  for (uint32_t i = 0; i < s->n; i++)
    most = s->any[i] && s->spare[i] > most ? s->spare[i] : most;
  ctx_remark(s->cx,
             "%s: %ssmaller tiles, which leave %lld registers of a thread "
             "free: %s",
             s->p->name,
             had_four(s) ? "three groups of warps instead of four, " : "",
             (long long)most, why(s->b));
}

// ---------------------------------------------------------------- in order
// Does a kernel in which ptxas has flaws add to memory?
static bool adds(const Built *b) {
  if (b->kernels.n != b->mod->funcs.n) return false;
  for (uint32_t i = 0; i < b->kernels.n; i++)
    if (cg_kernel_cost(&b->kernels.at[i]) &&
        cg_adds_to_memory(b->mod->funcs.at[i]))
      return true;
  return false;
}

static bool in_order(Ctx *cx, const CgProgram *p, const Built *b, Built *out,
                     CgDevice *dev) {
  DiagMark mark = diag_mark(cx);
  *out = (Built){.recipe = b->recipe, .program = b->program};
  out->recipe.spec.ordered = true;
  out->recipe.opt.spare_each = NULL;
  ctx_remark(cx, "%s: sums have an order: %s", p->name, why(b));
  bool ok = drv_device_text(cx, p, out, dev);
  if (!ok) diag_forget(cx, mark);
  return ok;
}

bool drv_smaller_tiles(Ctx *cx, const CgProgram *p, const Built *b, Built *out,
                       CgDevice *dev) {
  const Recipe *r = &b->recipe;
  if (adds(b) && !r->spec.ordered)
    return cg_cost(&b->kernels) > COST_SLOW_SPILLS &&
           in_order(cx, p, b, out, dev);
  if (drv_tiles_asked(r->spec.prog, r->target, &r->opt)) return false;
  DiagMark mark = diag_mark(cx);
  Search s = search(cx, p, b);
  *out = (Built){.recipe = *r, .program = b->program};
  bool ok = next_tiles(&s, &out->recipe);
  out->freed = s.freed;
  out->nfreed = s.n;
  cx->remarks.n = mark.remarks;
  if (ok) remark_smaller(&s);
  ok = ok && drv_device_text(cx, p, out, dev);
  if (!ok) diag_forget(cx, mark);
  return ok;
}
