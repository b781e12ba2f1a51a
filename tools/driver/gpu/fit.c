// Tiles that fit. The passes choose tiles by a model of registers and shared
// memory; what the code really needs is known when it is made. Where it needs
// more than there is, the program is lowered again with tiles that leave more
// of it free: for shared memory until the code fits, for registers until ptxas
// spills nothing and leaves products asynchronous; before that with the same
// tiles and code that keeps fewer registers. Tiles that were asked for are
// taken as they are.
#include "ir/target.h"
#include "passes/support/cost.h"
#include "tools/driver/gpu/device.h"

#include "tools/plan/plan.h"

#include <string.h>

// The last diagnostic may come from too little shared memory.
static bool no_room(const Ctx *cx) {
  if (!cx->diags.n) return false;
  DiagId id = cx->diags.at[cx->diags.n - 1]->id;
  return id == DIAG_pass_unsupported || id == DIAG_cg_input;
}

bool drv_make_device(Ctx *cx, const CgProgram *p, Built *b, CgDevice *out) {
  const Recipe *r = &b->recipe;
  bool asked = drv_tiles_asked(r->spec.prog, r->target, &r->opt);
  DiagMark mark = diag_mark(cx);
  for (int i = 0;; i++) {
    if (drv_device_text(cx, p, b, out)) return true;
    if (asked || i + 1 == COST_FIT_SMEM_STEPS || !no_room(cx)) return false;
    diag_forget(cx, mark);
    b->recipe.opt.spare_smem += r->target->gpu.smem / COST_FIT_SMEM_STEPS;
    ctx_remark(cx,
               "%s: tiles that leave %lld KiB of shared memory free: code "
               "for %s needs it",
               p->name, (long long)(r->opt.spare_smem / 1024), r->target->name);
  }
}

// More at a time once a small step has not helped.
static int64_t registers_for(const Built *b, bool again) {
  int64_t n = (int64_t)(cg_flaws(&b->kernels) % CG_SERIAL) / COST_FIT_PER_REG;
  int64_t least = b->freed || again ? COST_FIT_NEXT : COST_FIT_LEAST;
  return n < least ? least : n > COST_FIT_MOST ? COST_FIT_MOST : n;
}

// Whether the recipe's tiles are those of b, or of the last try for it.
static bool is_known(Ctx *cx, const CgProgram *p, const Recipe *r,
                     const Built *b) {
  const Module *m = drv_lower_mach(cx, r->spec, r->target, &r->opt, p->name),
               *have[] = {b->mod, b->tried};
  Buf text = {.arena = &cx->session};
  if (!m) return false;
  ir_print(m, &text);
  for (int i = 0; i < 2; i++) {
    Buf other = {.arena = &cx->session};
    if (have[i]) ir_print(have[i], &other);
    if (text.n == other.n && memcmp(text.at, other.at, text.n) == 0)
      return true;
  }
  return false;
}

bool drv_same_text(CgBytes a, CgBytes b) {
  return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

// Each kernel's level in `lean` is known, by what b spills.
static void note(Leaning *all, const Built *b, int64_t lean, bool again) {
  for (uint32_t i = 0; i < b->kernels.n && i < RELIEF_FUNCS; i++) {
    bool *known = &all->known[i][relief_asked(lean, i)];
    if (again || !*known) {
      all->flaws[i][relief_asked(lean, i)] = cg_kernel_flaws(&b->kernels.at[i]);
      all->own[i][relief_asked(lean, i)] = b->kernels.at[i].own_flaws;
    }
    *known = true;
  }
  if (all->ntried < COST_LEAN_TRIES) all->tried[all->ntried++] = lean;
}

void drv_note_lean(Leaning *all, const Built *b) {
  note(all, b, b->recipe.opt.relief, true);
}

CgLevels drv_own_flaws(const Leaning *all, uint32_t i) {
  CgLevels l = {.below = UINT64_MAX};
  for (uint32_t k = 0; i < RELIEF_FUNCS && k < RELIEF_LEVELS; k++)
    if (all->known[i][k]) l.known[l.nknown++] = all->own[i][k];
  return l;
}

// The next level of kernel i that is worth a try, or the best. What costs
// nothing helps recurrences in one case of ten; single steps that spill much
// need a CTA less.
static int64_t next_level(const Leaning *l, const Built *b, uint32_t i) {
  const Func *f = b->kernels.at[i].func;
  uint32_t best = RELIEF_NONE, k = RELIEF_FREE;
  if (ir_has_steps(f)) k = RELIEF_REMAT;
  if (ir_has_steps(f) && !ir_has_products(f) &&
      l->flaws[i][RELIEF_NONE] > COST_LEAN_CTA_LESS)
    k = RELIEF_LOADS;
  for (; k < RELIEF_LEVELS; k++) {
    if (!l->flaws[i][best]) return best;
    if (!l->known[i][k]) return k;
    if (l->flaws[i][k] < l->flaws[i][best]) best = k;
  }
  return best;
}

// Kernels without flaws stay as they are.
static bool next_lean(const Built *b, int64_t *lean) {
  const Leaning *l = &b->leaning;
  *lean = 0;
  for (uint32_t i = 0; i < b->kernels.n && i < RELIEF_FUNCS; i++)
    *lean |= next_level(l, b, i) << (RELIEF_BITS * i);
  for (uint32_t i = 0; i < l->ntried; i++)
    if (l->tried[i] == *lean) return false;
  return l->ntried < COST_LEAN_TRIES;
}

bool drv_leaner(Ctx *cx, const CgProgram *p, const Flawed *of, Built *out,
                CgDevice *dev) {
  Built *b = of->built;
  int64_t lean;
  if (b->recipe.target->gpu.vendor == VENDOR_AMD) return false;
  DiagMark mark = diag_mark(cx);
  while (next_lean(b, &lean)) {
    *out = *b;
    out->recipe.opt.relief = lean;
    if (!drv_flawed_text(cx, p, b, of->device, out, dev))
      b->leaning.ntried = COST_LEAN_TRIES;
    else if (!drv_same_text(dev->text, of->device->text) &&
             !drv_same_text(dev->text, of->last)) {
      cx->remarks.n = mark.remarks;
      ctx_remark(cx, "%s: code that keeps fewer registers", p->name);
      return true;
    } else note(&b->leaning, b, lean, false);  // the same code
  }
  diag_forget(cx, mark);
  return false;
}

// Four groups of warps leave a thread the fewest registers: first one less.
static bool one_less(const Built *b, Recipe *r) {
  const CgKernelRecord *k = &b->kernels.at[b->kernels.n - 1];
  if (!r->target->gpu.hopper || r->opt.most_groups ||
      k->threads <= HW_MOST_GROUPS * HW_GROUP_THREADS)
    return false;
  r->opt.most_groups = HW_MOST_GROUPS - 1;
  return true;
}

bool drv_smaller_tiles(Ctx *cx, const CgProgram *p, const Flawed *of,
                       Built *out, CgDevice *dev) {
  const Built *b = of->built;
  const Recipe *r = &b->recipe;
  if (drv_tiles_asked(r->spec.prog, r->target, &r->opt)) return false;
  DiagMark mark = diag_mark(cx);
  *out = (Built){.recipe = *r,
                 .program = b->program,
                 .freed = b->freed,
                 .leaning.ntried = r->opt.relief ? COST_LEAN_TRIES : 0};
  int64_t *spare = &out->recipe.opt.spare_regs;
  bool amd = r->target->gpu.vendor == VENDOR_AMD;
  for (int i = 0; i < (amd ? COST_FIT_AMD_TRIES : COST_FIT_TRIES); i++) {
    bool less = !i && one_less(b, &out->recipe);
    if (!less) out->freed += registers_for(b, amd && i);
    *spare = out->freed;
    cx->remarks.n = mark.remarks;
    if (is_known(cx, p, &out->recipe, b)) continue;
    cx->remarks.n = mark.remarks;
    bool serial = cg_flaws(&b->kernels) >= CG_SERIAL;
    const char *flaw =
        serial ? "products are serialized" : "registers are spilled";
    if (less)
      ctx_remark(cx, "%s: three groups of warps instead of four: %s", p->name,
                 flaw);
    else
      ctx_remark(cx,
                 "%s: smaller tiles, which leave %lld registers of a thread "
                 "free: %s",
                 p->name, (long long)*spare, flaw);
    if (!drv_device_text(cx, p, out, dev)) break;
    if (!drv_same_text(dev->text, of->last)) return true;
  }
  diag_forget(cx, mark);
  return false;
}
