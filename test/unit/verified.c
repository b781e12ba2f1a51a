// A module that breaks a rule gets no code: what is told of it names the passes
// and outlives a try that is dropped.
#include "passes/pass.h"
#include "test/unit/expect.h"
#include "tools/plan/plan.h"

static const char good[] =
    "module mach sm_80\nfunc program @f(%O: tensor<f32[2]> out) axes(q par 2) "
    "grid(q:2) {\n  launch() {threads = 128}\n  %s = const() {value = 1.0} : f32\n"
    "  %r = coord() {pos = 0} : frag<64xi32,acc.0>\n"
    "  %v = splat(%s) : frag<64xf32,acc.0>\n  gstore(%O, %v, %r)\n}\n";

static Module *parse(Ctx *cx) {
  return ir_parse(cx, ctx_add_source(cx, "m.tir", good, sizeof good - 1));
}

// An operand that nothing defines, as a pass leaves that clones too little.
static void damage(Module *m) {
  Func *f = m->funcs.at[0];
  Op *store = f->body->last;
  ir_erase(ir_def(f, store->args[1]));
}

static bool names_passes(const Ctx *cx) {
  for (uint32_t i = 0; i < cx->diags.n; i++) {
    const Diag *d = cx->diags.at[i];
    if (d->id == DIAG_ir_broken && d->notes.n &&
        strstr(d->notes.at[0].text,
               "--passes=dce,bufferize_gpu --verify-each") &&
        strstr(d->notes.at[0].text, " --target=sm_80 --few"))
      return true;
  }
  return false;
}

int main(void) {
  Ctx cx;
  ctx_init(&cx);
  PassOpt opt = {.target = target_by_name("sm_80"), .few = true};
  Module *m = parse(&cx);
  EXPECT(m != NULL);
  EXPECT(m && drv_verified(&cx, m, "dce,bufferize_gpu", &opt));
  EXPECT(!diag_has_bug(&cx));

  DiagMark mark = diag_mark(&cx);
  diag_add(&cx, DIAG_pass_unsupported, NOWHERE, "no room");
  if (m) damage(m);
  EXPECT(m && !drv_verified(&cx, m, "dce,bufferize_gpu", &opt));
  EXPECT(names_passes(&cx));
  EXPECT(cx.nerrors >= 3);
  diag_forget(&cx, mark);
  EXPECT(diag_has_bug(&cx) && names_passes(&cx));
  EXPECT(cx.diags.n == cx.nerrors && cx.nerrors >= 2);
  EXPECT(diag_is_bug(cx.diags.at[0]->id));
  ctx_drop(&cx);
  return verdict();
}
