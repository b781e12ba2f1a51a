// A pass that is given IR that breaks a rule leaves it so, and says that it
// did: the only way to see that without a bug in a pass.
#include "passes/pass.h"
#include "test/unit/expect.h"

static const char text[] =
    "module attn\ndim N dyn\n"
    "func program @f(%X: tensor<f32[N]> in, %O: tensor<f32[N]> out)\n"
    "    axes(i par N) {\n"
    "  %i = index() {axis = i} : i64{i}\n  %x = load(%X, %i) : f32{i}\n"
    "  %y = add(%x, %i) : f32{i}\n  store(%O, %y, %i)\n}\n";

static bool found(const Ctx *cx, DiagId id) {
  for (uint32_t i = 0; i < cx->diags.n; i++)
    if (cx->diags.at[i]->id == id) return true;
  return false;
}

int main(void) {
  Ctx cx;
  ctx_init(&cx);
  Buf log = {.arena = &cx.session};
  Module *m =
      ir_parse(&cx, ctx_add_source(&cx, "m.tir", text, sizeof text - 1));
  PipelineOpt opt = {.verify_each = true, .log = &log};
  EXPECT(m != NULL);
  EXPECT(m && !pass_run(&cx, m, "dce", &opt));
  EXPECT(found(&cx, DIAG_pass_broke) && found(&cx, DIAG_ir_invalid));
  ctx_drop(&cx);
  return verdict();
}
