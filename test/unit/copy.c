// A module that is copied out of an arena is the same text when that is gone,
// and takes no more than what is in it.
#include "ir/ir.h"
#include "passes/pass.h"
#include "test/unit/expect.h"

static const char text[] =
    "module attn\ndim N dyn in [1, 65536]\ndim L ragged(lens)\n"
    "dim D spec {64, 128} div 64\n"
    "func program @f(%X: tensor<f32[N, D]> in, %lens: tensor<i32[3]> in, "
    "%Y: tensor<f32[L, D]> in, %O: tensor<f32[N, D]> out)\n"
    "    axes(i par N, d vec D) {\n"
    "  %i = index() {axis = i} : i64{i}\n  %d = index() {axis = d} : i64{d}\n"
    "  %x = load(%X, %i, %d) : f32{i,d}\n"
    "  %twice = add(%x, %x) : f32{i,d}\n  %gone = mul(%x, %x) : f32{i,d}\n"
    "  %all = reduce(%twice) {kind = sum, over = [d]} : f32{i}\n"
    "  %y = mul(%twice, %all) : f32{i,d}\n"
    "  store(%O, %y, %i, %d)\n}\n";

static const char *shown(const Module *m, Arena *a) {
  Buf b = {.arena = a};
  ir_print(m, &b);
  return b.at;
}

int main(void) {
  Ctx cx;
  ctx_init(&cx);
  Buf log = {.arena = &cx.session};
  CtxHome h = ctx_home(&cx);
  Module *m =
      ir_parse(&cx, ctx_add_source(&cx, "m.tir", text, sizeof text - 1));
  PipelineOpt opt = {.log = &log};
  EXPECT(m && m->arena == &cx.modules && h.was == &cx.session);
  EXPECT(m && pass_run(&cx, m, "cse,dce", &opt));
  if (!m) {
    ctx_drop(&cx);
    return verdict();
  }
  const char *before = shown(m, &cx.session);
  Module *copy = ir_copy(m, h.was);
  size_t used = cx.modules.used;
  ctx_leave(&cx, h);
  EXPECT(used > 0 && cx.modules.used == 0 && cx.home == &cx.session);
  EXPECT(strcmp(shown(copy, &cx.session), before) == 0);
  EXPECT(!strstr(before, "%gone") && ir_verify(&cx, copy));
  Func *f = ir_find(copy, "f");
  EXPECT(f && f->mod == copy && f->values.cap == f->values.n);
  // What is built later knows the dims that were there.
  EXPECT(dim_const(&copy->dims, 64) == dim_const(&copy->dims, 64));
  EXPECT(pass_run(&cx, copy, "canon,cse,dce", &opt));
  ctx_drop(&cx);
  return verdict();
}
