// The options that a GPU's code is lowered with, for those who look at a level
// on the way to it: tiles that fit, smaller ones or other code where registers
// are spilled, passes for tensors of any strides where no others take them.
// What decides is what code generation decides: what LLVM makes for AMD, what
// ptxas says; without an ld.lld or a ptxas, what lives at once.
//   --emit=mach p.attn --target sm_90a
//     # attn-opt --target=sm_90a --spare-regs=48 --spare-each=:48 --relief=4
#include "codegen/codegen.h"
#include "ir/target.h"
#include "tools/driver/gpu/device.h"
#include "tools/plan/plan.h"

// Without code: nobody is asked what it spills.
static bool by_count(Ctx *cx, Built *b) {
  Recipe *r = &b->recipe;
  CgProgram p = {.name = r->spec.prog->name};
  Recipe any = *r;
  DiagMark mark = diag_mark(cx);
  if (drv_only_general(cx, &any)) {
    const Target *t = target_by_name(any.target->gpu.general);
    if (plan_fit(cx, any.spec, t, &any.opt)) *r = any;
    diag_forget(cx, mark);
  }
  drv_leave_too_large(cx, &p, b);
  const Target *t =
      r->opt.general ? target_by_name(r->target->gpu.general) : r->target;
  CtxHome h = ctx_home(cx);
  bool fits = plan_fit(cx, r->spec, t, &r->opt) != NULL;
  ctx_leave(cx, h);
  return fits;
}

static bool by_code(Ctx *cx, Built *b) {
  const Recipe *r = &b->recipe;
  CgProgram p;
  Builts all = {0};
  if (!drv_device_program(cx, r->spec, r->target, &r->opt, &p, &all))
    return false;
  *b = all.at[0];
  return true;
}

bool drv_code_options(Ctx *cx, DrvSpec s, const Target **t, DrvOptions *opt) {
  Built b = {.recipe = {.spec = s, .target = *t, .opt = drv_quietly(opt)}};
  DrvOptions *made = &b.recipe.opt;
  DiagMark mark = diag_mark(cx);
  made->first = true;
  bool code = drv_is_amd(&b) ? cg_lld_path(cx) : cg_ptxas_path(cx);
  bool ok = code ? by_code(cx, &b) : by_count(cx, &b);
  if (!ok) {
    if (!diag_has_bug(cx)) diag_forget(cx, mark);
    return false;
  }
  if (made->general) *t = target_by_name((*t)->gpu.general);
  opt->spare_regs = made->spare_regs;
  opt->spare_each = made->spare_each;
  opt->spare_smem = made->spare_smem;
  opt->strided = made->strided;
  opt->relief = made->relief;
  return true;
}
