// Bodies of a GPU program for decoding whose keys have bounds that a phase in
// front finds, as lists have, where tasks are few: keys are split, and of lists
// masked in each step, without a phase.
//
//   8 sequences x 128 heads, 2048 keys    tasks of 64 heads: 16
//     the body for all calls              16 x 2048 keys, nothing to join
//     this one                            128 x 256 keys, joined behind
//
// Stores of a part are masked, which tasks enough have no time for
// (passes/tile/split.c); and who looks at all of a list may see that it ends
// early, which parts of it need not know. So the other calls have code of their
// own. The runtime takes these where the others have an eighth as many tasks as
// there are multiprocessors, at most.
#include "passes/support/cost.h"
#include "tools/driver/gpu/device.h"

#include <string.h>

bool drv_finds_bounds(const Built *b) {
  const Module *m = b->mod;
  for (uint32_t i = 0; m && i < m->funcs.n; i++) {
    const char *dot = strrchr(m->funcs.at[i]->name, '.');
    if (dot && strcmp(dot, ".bounds") == 0) return true;
  }
  return false;
}

CgExpr drv_brief_calls(Ctx *cx, const CgProgram *p, const Built *whole) {
  const Module *m = whole->mod;
  const Func *f = m->funcs.at[m->funcs.n - 1];
  CgExpr tasks = drv_over_program(cx, p, &f->mod->dims, drv_tasks(cx, m, f));
  CgExpr parts = cg_expr_const(cx, COST_BRIEF_PARTS);
  CgExpr most = cg_expr_const(cx, whole->recipe.target->gpu.sms + 1);
  CgExpr all = cg_expr_bin(cx, tasks, ATTN_X_MUL, parts);
  return cg_expr_bin(cx, all, ATTN_X_LT, most);
}

bool drv_brief(Ctx *cx, CgProgram *p, const Built *whole, Built *brief) {
  const Recipe *r = &whole->recipe;
  CgDevice d;
  if (!drv_is_decode(r->spec.prog) || r->opt.few || r->opt.general ||
      !r->target->gpu.hopper || !drv_finds_bounds(whole))
    return false;
  *brief = (Built){.recipe = *r, .program = whole->program};
  brief->recipe.opt.brief = true;
  DiagMark mark = diag_mark(cx);
  if (!drv_make_device(cx, p, brief, &d) ||
      drv_same_text(d.text, p->devices[p->ndevices - 1].text)) {
    diag_forget(cx, mark);
    return false;
  }
  ctx_remark(cx, "%s: a body that splits keys, for few tasks", p->name);
  CgExpr calls = drv_brief_calls(cx, p, whole);
  brief->recipe.when = drv_and(cx, brief->recipe.when, calls);
  d.when = drv_and(cx, d.when, calls);
  drv_prepend_device(cx, p, d);
  return true;
}
