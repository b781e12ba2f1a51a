// Whether a try is worth LLVM and ptxas: what lives at once in its text of
// level mach tells, which takes a hundredth of their time.
//   steps3  5184 bytes, 684 live of 256    other code 684    not made
//   chunks  1196 bytes, 352 live of 256    other code 352    no third run, if the
//                                                            second left as much
#include "ir/layout.h"
#include "ir/pressure.h"
#include "tools/driver/gpu/device.h"

uint32_t drv_lives(Ctx *cx, const Func *f) {
  ArenaMark mark = arena_mark(&cx->scratch);
  uint32_t n = ir_pressure(f, &cx->scratch).regs;
  arena_reset(&cx->scratch, mark);
  return n;
}

bool drv_shares(const Func *f) {
  bool several = ir_attr_i(ir_launch(f), AT_OCCUPANCY, 1) > 1;
  return !ir_has_products(f) && (ir_has_steps(f) || several);
}

// Each quarter of a multiprocessor has one warp of a group, or as many of
// several CTAs as come to it.
static int64_t shared_registers(const Func *f, const Target *t) {
  const Op *launch = ir_launch(f);
  int64_t warps = ir_attr_i(launch, AT_THREADS, 1) / t->gpu.wave *
                  ir_attr_i(launch, AT_OCCUPANCY, 1);
  int64_t each = (warps + HW_GROUP_WARPS - 1) / HW_GROUP_WARPS;
  int64_t has = t->gpu.regs / (HW_GROUP_THREADS * each);
  return has < HW_THREAD_REGS ? has : HW_THREAD_REGS;
}

int64_t drv_registers_left(Ctx *cx, const Func *f, const Target *t) {
  int64_t has =
      drv_shares(f) ? shared_registers(f, t) : (int64_t)drv_has_registers(f, t);
  return has - drv_lives(cx, f);
}

int64_t drv_relief_of(const DrvTry *now, uint32_t n) {
  int64_t all = 0;
  for (uint32_t i = 0; i < n && i < RELIEF_FUNCS; i++)
    all |= now[i].relief << (RELIEF_BITS * i);
  return all;
}

// Far more lives at once than a thread has: by the text, and by what ptxas
// spills at best.
static bool is_far(const Course *c, const DrvTry *t) {
  uint64_t spilled = drv_best_try(c)->flaws / COST_FIT_SPILLED;
  return spilled > COST_PTXAS_FAR && t->room < -COST_PTXAS_FAR;
}

// Another relief, in which no more lives, has brought next to nothing.
static bool is_stuck(const Course *c, const DrvTry *t) {
  const DrvTry *first = &c->at[0];
  for (uint32_t i = 1; i < c->n; i++) {
    const DrvTry *x = &c->at[i];
    if (x->flaws == UINT64_MAX || x->relief < RELIEF_REMAT) continue;
    int64_t room = x->room > first->room ? x->room : first->room;
    if (x->flaws + x->flaws / COST_PTXAS_HELPS >= first->flaws &&
        t->room <= room)
      return true;
  }
  return false;
}

// Of what shares a multiprocessor, whether what a thread has of fewer CTAs, and
// of what lives shorter, holds what is spilled; the fewest in any case, and the
// same code at another level.
static bool holds_spills(const Course *c, const Func *f, const DrvTry *t) {
  const DrvTry *best = drv_best_try(c);
  int64_t more = t->room - best->room;
  bool alone = ir_attr_i(ir_launch(f), AT_OCCUPANCY, 1) == 1;
  return alone || t->relief >= RELIEF_STATE || t->relief == best->relief ||
         (more > 0 && (uint64_t)more * COST_FIT_SPILLED >= best->flaws);
}

// Of chunks of steps, whether there is hope; of a loop over keys that leaves
// something in shared memory, whether it frees as many registers as the best so
// far spills.
static bool is_worth(const Course *c, const Func *f, const DrvTry *t) {
  if (c->shares) return holds_spills(c, f, t);
  if (ir_has_steps(f)) {
    return !is_stuck(c, t) && (t->relief < RELIEF_REMAT || !is_far(c, t));
  }
  if (t->relief < RELIEF_REMAT) return true;
  int64_t freed = t->room - c->at[0].room;
  return freed > 0 &&
         (uint64_t)freed * COST_FIT_PER_REG >= drv_best_try(c)->flaws;
}

bool drv_judge_tries(Ctx *cx, const CgProgram *p, const Built *b, DrvTry *now) {
  const Recipe *r = &b->recipe;
  bool all = true;
  DrvOptions quiet = drv_quietly(&r->opt);
  quiet.relief = drv_relief_of(now, b->kernels.n);
  CtxHome h = ctx_home(cx);
  DiagMark mark = diag_mark(cx);
  const Module *m = drv_lower_mach(cx, r->spec, r->target, &quiet, p->name);
  for (uint32_t i = 0; m && i < b->kernels.n; i++) {
    Course *c = &b->courses[i];
    DrvTry *t = &now[i];
    const Func *f = ir_find(m, b->kernels.at[i].func->name);
    if (!f || drv_known_try(c, t)) continue;
    t->room = drv_registers_left(cx, f, r->target);
    if (is_worth(c, f, t)) continue;
    t->flaws = t->cost = UINT64_MAX;
    drv_note_try(c, *t);
    all = false;
  }
  diag_forget(cx, mark);
  ctx_leave(cx, h);
  return all;
}
