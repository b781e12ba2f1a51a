// A module for a GPU that was made with the same options is made once: the same
// text, the same remarks, and another module. Other options are other modules.
#include "frontend/check.h"
#include "test/unit/expect.h"
#include "tools/plan/known.h"

static const char text[] =
    "attention p<T: dtype {bf16, f32}, S>(Q: T[S, 64], K: T[S, 64], V: T[S, "
    "64]) -> (O: T[S, 64]) {\n"
    "  index q in S, k in S;\n"
    "  let m = max(k: dot(Q[q], K[k]));\n"
    "  let w = exp(dot(Q[q], K[k]) - m);\n"
    "  O[q] = sum(k: w * V[k]) / sum(k: w);\n}\n";

static const char *made(Ctx *cx, Decl *d, DType dt, const DrvOptions *opt) {
  FeBind bind = {.name = intern(&cx->names, "T"), .dtype = dt};
  DrvSpec s = {.prog = d, .binds = &bind, .n = 1};
  Buf out = {.arena = &cx->session};
  uint32_t from = cx->remarks.n;
  Module *m = drv_lower(cx, s, target_by_name("sm_90a"), LV_MACH, opt);
  if (!m) return "";
  ir_print(m, &out);
  m->funcs.at[0]->name = "changed";
  for (uint32_t i = from; i < cx->remarks.n; i++)
    buf_printf(&out, "%s\n", cx->remarks.at[i]);
  return out.at;
}

static bool same(const char *a, const char *b) {
  return *a && strcmp(a, b) == 0;
}

int main(void) {
  Ctx cx;
  ctx_init(&cx);
  Unit *u = fe_parse(&cx, ctx_add_source(&cx, "p.attn", text, sizeof text - 1));
  EXPECT(u && fe_check(&cx, u));
  Decl *d = fe_program(u, intern(&cx.names, "p"));
  EXPECT(d != NULL);
  DrvOptions opt = {0}, less = {.spare_regs = 96},
             shown = {.verify_each = true};

  const char *first = made(&cx, d, DT_BF16, &opt);
  EXPECT(cx.known != NULL);
  size_t used = cx.kept.used;
  EXPECT(used > 0);
  EXPECT(same(first, made(&cx, d, DT_BF16, &opt)));
  EXPECT(cx.kept.used == used);
  EXPECT(same(first, made(&cx, d, DT_BF16, &shown)));
  EXPECT(cx.kept.used == used);

  const char *wide = made(&cx, d, DT_F32, &opt);
  EXPECT(!same(first, wide) && cx.kept.used > used);
  EXPECT(!same(first, made(&cx, d, DT_BF16, &less)));
  EXPECT(same(first, made(&cx, d, DT_BF16, &opt)));
  EXPECT(same(wide, made(&cx, d, DT_F32, &opt)));
  for (int i = 1; i < 9; i++) {
    less.spare_smem = 1024 * i;
    made(&cx, d, DT_BF16, &less);
  }
  EXPECT(same(first, made(&cx, d, DT_BF16, &opt)));
  ctx_drop(&cx);
  return verdict();
}
