// Tiles that fit. The passes choose tiles by a model of registers and shared
// memory; what the code really needs is known when it is made. Where it needs
// more than there is, the program is lowered again with tiles that leave more
// of it free: for shared memory until the code fits, for registers until ptxas
// spills nothing and leaves products asynchronous; before that with the same
// tiles and code that keeps fewer registers. Tiles that were asked for are taken
// as they are.
#include "tools/driver/device.h"

#include "tools/plan/plan.h"

#include <string.h>

enum {
  SMEM_STEPS = 6,        // parts of shared memory that may be left free
  PER_REG = 32,          // bytes of stores and loads of a spilled register
  LEAST = 8, NEXT = 24, MOST = 96,  // registers freed at a time
  TRIES = 8,             // until the tiles change
  AMD_TRIES = 24
};

static void forget_errors(Ctx *cx, uint32_t diags, uint32_t errors) {
  cx->diags.n = diags;
  cx->nerrors = errors;
}

// The last diagnostic may come from too little shared memory.
static bool no_room(const Ctx *cx) {
  if (!cx->diags.n) return false;
  DiagId id = cx->diags.at[cx->diags.n - 1]->id;
  return id == DIAG_pass_unsupported || id == DIAG_cg_input;
}

bool drv_make_device(Ctx *cx, const CgProgram *p, Built *b, CgDevice *out) {
  const Recipe *r = &b->recipe;
  bool asked = drv_tiles_asked(r->prog, r->target, &r->opt);
  uint32_t diags = cx->diags.n, errors = cx->nerrors, remarks = cx->remarks.n;
  for (int i = 0;; i++) {
    if (drv_device_text(cx, p, b, out)) return true;
    if (asked || i + 1 == SMEM_STEPS || !no_room(cx)) return false;
    forget_errors(cx, diags, errors);
    cx->remarks.n = remarks;
    b->recipe.opt.spare_smem += r->target->gpu.smem / SMEM_STEPS;
    ctx_remark(cx, "%s: tiles that leave %lld KiB of shared memory free: code "
               "for %s needs it", p->name,
               (long long)(r->opt.spare_smem / 1024), r->target->name);
  }
}

// More at a time once a small step has not helped.
static int64_t registers_for(const Built *b, bool again) {
  int64_t n = (int64_t)(cg_flaws(&b->kernels) % CG_SERIAL) / PER_REG;
  int64_t least = b->freed || again ? NEXT : LEAST;
  return n < least ? least : n > MOST ? MOST : n;
}

// Whether the recipe's tiles are those of b, or of the last try for it.
static bool is_known(Ctx *cx, const CgProgram *p, const Recipe *r,
                     const Built *b) {
  const Module *m = drv_lower_mach(cx, r->prog, r->binds, r->n, r->target,
                                   &r->opt, p->name), *have[] = {b->mod, b->tried};
  Buf text = {.arena = &cx->session};
  if (!m) return false;
  ir_print(m, &text);
  for (int i = 0; i < 2; i++) {
    Buf other = {.arena = &cx->session};
    if (have[i]) ir_print(have[i], &other);
    if (text.n == other.n && memcmp(text.at, other.at, text.n) == 0) return true;
  }
  return false;
}

static bool same_text(CgBytes a, CgBytes b) {
  return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

bool drv_leaner(Ctx *cx, const CgProgram *p, Built *b, CgBytes text, Built *out,
                CgDevice *dev) {
  if (b->leaned || b->recipe.target->gpu.vendor == VENDOR_AMD) return false;
  uint32_t diags = cx->diags.n, errors = cx->nerrors, remarks = cx->remarks.n;
  b->leaned = true;
  *out = *b;
  out->recipe.opt.lean = true;
  if (drv_device_text(cx, p, out, dev) && !same_text(dev->text, text)) {
    cx->remarks.n = remarks;
    ctx_remark(cx, "%s: code that keeps fewer registers", p->name);
    return true;
  }
  forget_errors(cx, diags, errors);
  cx->remarks.n = remarks;
  return false;
}

bool drv_smaller_tiles(Ctx *cx, const CgProgram *p, const Built *b, CgBytes text,
                       Built *out, CgDevice *dev) {
  const Recipe *r = &b->recipe;
  if (drv_tiles_asked(r->prog, r->target, &r->opt)) return false;
  uint32_t diags = cx->diags.n, errors = cx->nerrors, remarks = cx->remarks.n;
  *out = (Built){.recipe = *r, .program = b->program, .freed = b->freed,
                 .leaned = r->opt.lean};
  int64_t *spare = &out->recipe.opt.spare_regs;
  bool amd = r->target->gpu.vendor == VENDOR_AMD;
  for (int i = 0; i < (amd ? AMD_TRIES : TRIES); i++) {
    out->freed += registers_for(b, amd && i);
    *spare = out->freed;
    cx->remarks.n = remarks;
    if (is_known(cx, p, &out->recipe, b)) continue;
    cx->remarks.n = remarks;
    ctx_remark(cx, "%s: smaller tiles, which leave %lld registers of a thread "
               "free: %s", p->name, (long long)*spare,
               cg_flaws(&b->kernels) >= CG_SERIAL ? "products are serialized"
                                                  : "registers are spilled");
    if (!drv_device_text(cx, p, out, dev)) break;
    if (!same_text(dev->text, text)) return true;
  }
  forget_errors(cx, diags, errors);
  cx->remarks.n = remarks;
  return false;
}
