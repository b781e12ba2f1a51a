// Tiles that fit. The passes choose tiles by a model of registers and shared
// memory; what the code really needs is known when it is made. Where it needs
// more than there is, the program is lowered again with tiles that leave more
// of it free: for shared memory until the code fits, for registers where far
// too much lives at once (ir/pressure.h), and, of the kernels concerned, where
// ptxas spills, or serializes products, and nothing else helps (remedy.c).
// Tiles that were asked for are taken as they are.
#include "ir/layout.h"
#include "ir/target.h"
#include "passes/support/cost.h"
#include "tools/driver/gpu/device.h"

#include "tools/plan/plan.h"

#include <string.h>

// ---------------------------------------------------------------- too large
// Registers that the threads which compute have. AMD: half of a lane's, and all
// where a workgroup has a CU for itself, on CDNA.
uint32_t drv_has_registers(const Func *f, const Target *t) {
  const Op *last = f->body->last;
  const IrAttr *regs =
      last && last->code == OP_ROLES ? ir_attr(last, AT_TEAMREGS) : NULL;
  for (uint32_t i = 0; regs && i < last->nregions; i++)
    if (last->regions[i]->params.n) return (uint32_t)regs->list[i];
  if (t->gpu.vendor != VENDOR_AMD) return HW_THREAD_REGS;
  bool alone = ir_attr_i(ir_launch(f), AT_OCCUPANCY, 0) == 1;
  return alone && t->gpu.wave == 64 ? 2 * HW_LANE_REGS : HW_LANE_REGS;
}

// Those that a loop over keys takes beyond: of what lives at once.
static uint32_t lacks(Ctx *cx, const Func *f, const Target *t) {
  uint32_t has = drv_has_registers(f, t);
  uint32_t n = ir_has_steps(f) ? 0 : drv_lives(cx, f);
  return n > has ? n - has : 0;
}

// The most that a function lacks.
static uint32_t lacks_registers(Ctx *cx, const Module *m, const Target *t) {
  uint32_t most = 0;
  for (uint32_t i = 0; m && i < m->funcs.n; i++) {
    uint32_t n = lacks(cx, m->funcs.at[i], t);
    most = n > most ? n : most;
  }
  return most;
}

DrvOptions drv_quietly(const DrvOptions *opt) {
  DrvOptions quiet = *opt;
  quiet.print_after_all = quiet.time_passes = false;
  quiet.dump_dir = NULL;
  return quiet;
}

// Are these n functions those of level stream? Where tiles have made phases
// too, as of bounds, functions have other numbers where tiles are chosen.
static bool keeps_functions(Ctx *cx, const Recipe *r, uint32_t n) {
  DiagMark mark = diag_mark(cx);
  DrvOptions quiet = drv_quietly(&r->opt);
  const Target *t =
      quiet.general ? target_by_name(r->target->gpu.general) : r->target;
  CtxHome h = ctx_home(cx);
  const Module *m = drv_lower(cx, r->spec, t, LV_STREAM, &quiet);
  bool keeps = m && m->funcs.n == n;
  ctx_leave(cx, h);
  diag_forget(cx, mark);
  return keeps;
}

// AMD: only where functions are those for which tiles are chosen.
bool drv_has_each(Ctx *cx, const Recipe *r, uint32_t n) {
  return r->target->gpu.vendor != VENDOR_AMD || keeps_functions(cx, r, n);
}

static int64_t most_of(const int64_t *x, uint32_t n) {
  int64_t most = 0;
  for (uint32_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
  return most;
}

// Registers that tiles leave free, of the n functions of `names`: a number
// each. NULL: the most, for all.
void drv_set_spare(Ctx *cx, DrvOptions *opt, const int64_t *spare, uint32_t n,
                   const Module *names) {
  Buf text = {.arena = &cx->session};
  for (uint32_t i = 0; i < n && names; i++)
    relief_spare_put(&text, names->funcs.at[i]->name, spare[i]);
  opt->spare_each = text.at;
  opt->spare_regs = most_of(spare, n);
}

int64_t drv_spare_of(const DrvOptions *opt, const Func *f) {
  return opt->spare_each ? relief_spare_named(opt->spare_each, f->name)
                         : opt->spare_regs;
}

// ---------------------------------------------------------------- first tiles
typedef struct Large {
  Ctx *cx;
  const CgProgram *p;
  const Recipe *r;
  const Module *m;  // of the first tiles
  uint32_t n;
  uint32_t *lack;  // by function, the least so far
  int64_t *spare;  // what the tiles leave that lack so much
  int64_t *least;  // that those leave which lacked more than is tried; 0: none
} Large;

static const Module *with_spare(const Large *l, const int64_t *spare,
                                bool each) {
  DrvOptions quiet = drv_quietly(&l->r->opt);
  drv_set_spare(l->cx, &quiet, spare, l->n, each ? l->m : NULL);
  return drv_lower_mach(l->cx, l->r->spec, l->r->target, &quiet, l->p->name);
}

// NVIDIA: each function by itself, a little more at a time, but of far too much
// the most at once, until it lacks nothing; the tiles that lack least.
static bool free_each(Large *l) {
  int64_t free = 0, *now = NEWN(&l->cx->session, int64_t, l->n + 1);
  for (bool open = true; open && free < COST_FIT_MOST;) {
    free += COST_FIT_NEXT;
    for (uint32_t i = 0; i < l->n; i++)
      now[i] = !l->least[i] || !l->lack[i] ? l->spare[i]
               : free > l->least[i]        ? free
                                           : l->least[i];
    const Module *m = with_spare(l, now, true);
    if (!m || m->funcs.n != l->n) continue;
    open = false;
    for (uint32_t i = 0; i < l->n; i++) {
      uint32_t lack = lacks(l->cx, m->funcs.at[i], l->r->target);
      if (!l->least[i] || !l->lack[i]) continue;
      if (lack < l->lack[i]) l->lack[i] = lack, l->spare[i] = now[i];
      open |= l->lack[i] > 0;
    }
  }
  return most_of(l->spare, l->n) > 0;
}

// AMD: all of them as much, until no more than the bound is lacking. Where
// nothing helps, the last tiles are the only ones.
static bool free_large(Large *l, bool each, uint32_t lack) {
  const Module *m = l->m;
  uint32_t now = lack;
  for (int64_t free = COST_FIT_NEXT; m && now > COST_FIT_TOO_LARGE_AMD &&
                                     free <= COST_LAST_REGS + COST_FIT_NEXT;
       free += COST_FIT_NEXT) {
    for (uint32_t i = 0; i < l->n; i++)
      if (!each || l->least[i]) l->spare[i] = free;
    m = with_spare(l, l->spare, each);
    now = lacks_registers(l->cx, m, l->r->target);
  }
  return m && now <= lack;
}

// Where all threads do all ptxas spills as soon as more lives than they have;
// those that compute alone may have some left.
static uint32_t bound_of(const Func *f, const Target *t) {
  if (t->gpu.vendor == VENDOR_AMD) return COST_FIT_TOO_LARGE_AMD;
  const Op *last = f->body->last;
  return last && last->code == OP_ROLES ? COST_FIT_TOO_LARGE
                                        : COST_FIT_TOO_LARGE_ALONE;
}

// The most that is lacking; 0: none is too large.
static uint32_t find_large(Large *l) {
  const Target *t = l->r->target;
  bool any = false;
  uint32_t most = 0;
  l->lack = NEWN(&l->cx->session, uint32_t, l->n + 1);
  l->spare = NEWN(&l->cx->session, int64_t, l->n + 1);
  l->least = NEWN(&l->cx->session, int64_t, l->n + 1);
  for (uint32_t i = 0; i < l->n; i++) {
    l->lack[i] = lacks(l->cx, l->m->funcs.at[i], t);
    bool much = l->lack[i] > COST_FIT_TOO_LARGE;
    if (l->lack[i] > bound_of(l->m->funcs.at[i], t))
      l->least[i] = much ? COST_FIT_MOST : COST_FIT_NEXT;
    any |= l->least[i] > 0;
    most = l->lack[i] > most ? l->lack[i] : most;
  }
  return any ? most : 0;
}

// Tiles of which far more lives at once than threads have are not even tried:
// ptxas has taken long for each, and spilled kilobytes; so has LLVM.
void drv_leave_too_large(Ctx *cx, const CgProgram *p, Built *b) {
  Recipe less = b->recipe;
  const Target *t = less.target;
  if (less.opt.spare_regs || drv_tiles_asked(less.spec.prog, t, &less.opt))
    return;
  DrvOptions quiet = drv_quietly(&less.opt);
  CtxHome h = ctx_home(cx);
  DiagMark mark = diag_mark(cx);
  const Module *m = drv_lower_mach(cx, less.spec, t, &quiet, p->name);
  Large l = {.cx = cx, .p = p, .r = &less, .m = m, .n = m ? m->funcs.n : 0};
  uint32_t most = find_large(&l);
  bool each = !drv_is_amd(b) || (most && keeps_functions(cx, &less, l.n));
  bool other =
      most && (drv_is_amd(b) ? free_large(&l, each, most) : free_each(&l));
  diag_forget(cx, mark);
  if (other) drv_set_spare(cx, &less.opt, l.spare, l.n, each ? m : NULL);
  ctx_leave(cx, h);
  if (!other) return;
  b->freed = l.spare;
  b->nfreed = l.n;
  ctx_remark(cx,
             "%s: smaller tiles, which leave %lld registers of a thread free: "
             "%u more than there are would live at once",
             p->name, (long long)most_of(l.spare, l.n), most);
  b->recipe = less;
}

bool drv_make_device(Ctx *cx, const CgProgram *p, Built *b, CgDevice *out) {
  drv_leave_too_large(cx, p, b);
  const Recipe *r = &b->recipe;
  bool asked = drv_tiles_asked(r->spec.prog, r->target, &r->opt);
  DiagMark mark = diag_mark(cx);
  for (int i = 0;; i++) {
    if (drv_device_text(cx, p, b, out)) return true;
    if (asked || i + 1 == COST_FIT_SMEM_STEPS || !plan_no_room(cx))
      return false;
    diag_forget(cx, mark);
    plan_spare_smem(cx, p->name, r->target, &b->recipe.opt);
  }
}
