// Tiles that fit. The passes choose tiles by a model of registers and shared
// memory; what the code really needs is known when it is made. Where it needs
// more than there is, the program is lowered again with tiles that leave more
// of it free: for shared memory until the code fits, for registers where far
// too much lives at once (ir/pressure.h), and, of the kernels concerned, where
// ptxas spills, or serializes products, and nothing else helps (remedy.c).
// Tiles that were asked for are taken as they are.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "ir/target.h"
#include "passes/support/cost.h"
#include "tools/driver/gpu/device.h"

#include "tools/plan/plan.h"

#include <string.h>

// ---------------------------------------------------------------- too large
// Registers that the threads which compute have. AMD: half of a lane's, and all
// where a workgroup has a CU for itself, on CDNA.
static uint32_t has_registers(const Func *f, const Target *t) {
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
  uint32_t has = has_registers(f, t);
  uint32_t n = ir_has_steps(f) ? 0 : ir_pressure(f, &cx->session).regs;
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

// Are these n functions those of level stream? Where tiles have made phases
// too, as of bounds, functions have other numbers where tiles are chosen.
static bool keeps_functions(Ctx *cx, const Recipe *r, uint32_t n) {
  DiagMark mark = diag_mark(cx);
  DrvOptions quiet = r->opt;
  quiet.print_after_all = quiet.time_passes = false;
  quiet.dump_dir = NULL;
  const Target *t =
      quiet.general ? target_by_name(r->target->gpu.general) : r->target;
  const Module *m = drv_lower(cx, r->spec, t, LV_STREAM, &quiet);
  diag_forget(cx, mark);
  return m && m->funcs.n == n;
}

// AMD: the functions that lack more, a bit each; 0: all.
static int64_t too_large(Ctx *cx, const Recipe *r, const Module *m) {
  uint64_t all = 0;
  if (r->target->gpu.vendor != VENDOR_AMD ||
      !keeps_functions(cx, r, m->funcs.n))
    return 0;
  for (uint32_t i = 0; i < m->funcs.n && i < 64; i++)
    if (lacks(cx, m->funcs.at[i], r->target) > COST_FIT_TOO_LARGE_AMD)
      all |= (uint64_t)1 << i;
  return (int64_t)all;
}

// Tiles of which far more lives at once than threads have are not even tried:
// ptxas has taken long for each, and spilled kilobytes; so has LLVM. NVIDIA:
// the most that is asked for at a time; AMD: until it fits, as more is free.
static void leave_too_large(Ctx *cx, const CgProgram *p, Built *b) {
  Recipe less = b->recipe;
  const Target *t = less.target;
  if (less.opt.spare_regs || drv_tiles_asked(less.spec.prog, t, &less.opt))
    return;
  bool amd = drv_is_amd(b);
  uint32_t bound = amd ? COST_FIT_TOO_LARGE_AMD : COST_FIT_TOO_LARGE;
  int64_t step = amd ? COST_FIT_NEXT : COST_FIT_MOST;
  DiagMark mark = diag_mark(cx);
  DrvOptions quiet = less.opt;
  quiet.print_after_all = quiet.time_passes = false;
  quiet.dump_dir = NULL;
  const Module *m = drv_lower_mach(cx, less.spec, t, &quiet, p->name);
  uint32_t lack = lacks_registers(cx, m, t), now = lack;
  int64_t most = amd ? COST_LAST_REGS + step : step;
  if (m && lack > bound) quiet.spare_funcs = too_large(cx, &less, m);
  while (m && now > bound && quiet.spare_regs < most) {
    quiet.spare_regs += step;
    m = drv_lower_mach(cx, less.spec, t, &quiet, p->name);
    now = lacks_registers(cx, m, t);
  }
  diag_forget(cx, mark);
  // Where nothing helps, AMD's last tiles are the only ones.
  if (!m || lack <= bound || now > lack || (now == lack && !amd)) return;
  less.opt.spare_regs = b->freed = quiet.spare_regs;
  less.opt.spare_funcs = quiet.spare_funcs;
  ctx_remark(cx,
             "%s: smaller tiles, which leave %lld registers of a thread free: "
             "%u more than there are would live at once",
             p->name, (long long)b->freed, lack);
  b->recipe = less;
}

bool drv_make_device(Ctx *cx, const CgProgram *p, Built *b, CgDevice *out) {
  leave_too_large(cx, p, b);
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

// More at a time once a small step has not helped; few runs of ptxas are left.
static int64_t registers_for(const Built *b, bool again) {
  int64_t n = (int64_t)(cg_flaws(&b->kernels) % CG_SERIAL) / COST_FIT_PER_REG;
  bool more = b->freed || again || !drv_is_amd(b);
  int64_t least = more ? COST_FIT_NEXT : COST_FIT_LEAST;
  return n < least ? least : n > COST_FIT_MOST ? COST_FIT_MOST : n;
}

// Is m what b is made of, or the last try for it?
static bool is_known(Ctx *cx, const Module *m, const Built *b) {
  const Module *have[] = {b->mod, b->tried};
  Buf text = {.arena = &cx->session};
  ir_print(m, &text);
  for (int i = 0; i < 2; i++) {
    Buf other = {.arena = &cx->session};
    if (have[i]) ir_print(have[i], &other);
    if (text.n == other.n && memcmp(text.at, other.at, text.n) == 0)
      return true;
  }
  return false;
}

// ---------------------------------------------------------------- room
// What lives at once beside what threads have, in the loop over keys of a
// module that has the least room.
typedef struct Need {
  uint64_t lives, has;
} Need;

static bool is_fuller(Need x, Need y) {
  return x.lives * y.has > y.lives * x.has;
}

static Need fullest(Ctx *cx, const Module *m, const Target *t) {
  Need most = {0, 1};
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    const Func *f = m->funcs.at[i];
    if (ir_has_steps(f)) continue;
    Need x = {ir_pressure(f, &cx->session).regs, has_registers(f, t)};
    if (is_fuller(x, most)) most = x;
  }
  return most;
}

// What ptxas needed for a register that lives in b, it needs in other tiles
// too: those in which it would spill as well are not tried.
static bool has_room(Ctx *cx, Need need, const Built *b) {
  uint64_t flaws = cg_flaws(&b->kernels);
  Need had = fullest(cx, b->mod, b->recipe.target);
  had.has += flaws / COST_FIT_SPILLED;
  return drv_is_amd(b) || flaws >= CG_SERIAL || !is_fuller(need, had);
}

bool drv_same_text(CgBytes a, CgBytes b) {
  return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

// Four groups of warps leave a thread the fewest registers: first one less.
static bool one_less(const Built *b, Recipe *r) {
  const CgKernelRecord *k = &b->kernels.at[b->kernels.n - 1];
  if (!r->target->gpu.hopper || r->opt.general || r->opt.most_groups ||
      k->threads <= HW_MOST_GROUPS * HW_GROUP_THREADS)
    return false;
  r->opt.most_groups = HW_MOST_GROUPS - 1;
  return true;
}

// The functions whose kernels have flaws, a bit each; the others' tiles stay.
static int64_t flawed(Ctx *cx, const Built *b) {
  uint64_t all = 0;
  if (!keeps_functions(cx, &b->recipe, b->kernels.n)) return 0;
  for (uint32_t i = 0; i < b->kernels.n && i < 64; i++)
    if (cg_kernel_flaws(&b->kernels.at[i])) all |= (uint64_t)1 << i;
  return (int64_t)all;
}

static void remark_smaller(Ctx *cx, const CgProgram *p, const Built *b,
                           const Built *out) {
  bool serial = cg_flaws(&b->kernels) >= CG_SERIAL;
  bool less =
      !b->freed && out->recipe.opt.most_groups != b->recipe.opt.most_groups;
  ctx_remark(cx,
             "%s: %ssmaller tiles, which leave %lld registers of a thread "
             "free: %s",
             p->name, less ? "three groups of warps instead of four, " : "",
             (long long)out->freed,
             serial ? "products are serialized" : "registers are spilled");
}

// The next tiles for b: other ones, in which no more lives than threads have by
// what ptxas made of b; else those in which least does. *i: tries so far.
static bool next_tiles(Ctx *cx, const CgProgram *p, const Built *b, Built *out,
                       int *i) {
  bool amd = drv_is_amd(b), any = false;
  Built best;
  Need least = {1, 0};
  for (; *i < (amd ? 3 : 1) * COST_FIT_TRIES; ++*i) {
    Recipe *r = &out->recipe;
    if (!*i) one_less(b, r);
    out->freed += registers_for(b, amd && *i);
    r->opt.spare_regs = out->freed;
    const Module *m = drv_lower_mach(cx, r->spec, r->target, &r->opt, p->name);
    if (m && is_known(cx, m, b)) continue;
    Need need = m ? fullest(cx, m, r->target) : (Need){0, 1};
    if (is_fuller(least, need)) best = *out, least = need;
    any = true;
    if (!has_room(cx, need, b)) continue;
    ++*i;
    return true;
  }
  if (any) *out = best;
  return any;
}

bool drv_smaller_tiles(Ctx *cx, const CgProgram *p, const Built *b,
                       CgBytes last, Built *out, CgDevice *dev) {
  const Recipe *r = &b->recipe;
  if (drv_tiles_asked(r->spec.prog, r->target, &r->opt)) return false;
  DiagMark mark = diag_mark(cx);
  *out = (Built){.recipe = *r, .program = b->program, .freed = b->freed};
  int64_t funcs = flawed(cx, b);
  if (funcs) out->recipe.opt.spare_funcs |= funcs;
  else out->recipe.opt.spare_funcs = 0;
  for (int i = 0; next_tiles(cx, p, b, out, &i);) {
    cx->remarks.n = mark.remarks;
    remark_smaller(cx, p, b, out);
    if (!drv_device_text(cx, p, out, dev)) break;
    if (!drv_same_text(dev->text, last)) return true;
  }
  diag_forget(cx, mark);
  return false;
}
