// grad: the gradient of a program, as a program.
//
//   before  func @p(%Q, %K, %V in, %O out) { .. store(%O, ..) }
//   after   func @p(%Q, %K, %V in, %O, %save_lse out) { .. }
//           func @p_grad.rows(..) { store(%row.made, ..) }
//           func @p_grad.keys(%Q, %K, %V, %O, %save_lse, %d_O in,
//                             %g_Q, %g_K, %g_V out, %row.made shared) {
//             .. store(%g_K, ..)  store(%g_V, ..) }
//           func @p_grad(..) { .. store(%g_Q, ..) }
//
// One rule for each op gives the adjoints (grad_rules.c); sums over keys that
// the program has are taken from there (grad_sums.c); each gradient is a sum
// over the axes that its input is not loaded with, in the kernel that has the
// others outside (grad_kernels.c), or added up by another one (grad_fuse.c). So
// a kernel of keys has keys as its rows and queries as what is summed, and
// everything below works on it as on any other program. Which inputs:
// PassOpt.grad, all floats that are not `nograd`. Level attn, behind canon. Run
// canon, cse and dce afterwards. Tests: test/passes/grad, docs/gradients.md.
#include "passes/attn/grad.h"

static bool run(Ctx *cx, Module *m, Func *f, const PassOpt *opt) {
  Grad g = {.cx = cx, .arena = &cx->scratch, .m = m, .f = f, .opt = opt};
  g.index.arena = g.folded.arena = g.values.arena = g.arena;
  g.fronts.arena = g.scans.arena = g.arena;
  vec_push(g.arena, &g.nodes, (GradNode){.code = OP_COUNT});
  vec_push(g.arena, &g.tensors, (GradTensor){0});
  g.node = NEWN(g.arena, Gid, f->values.n);
  if (!grad_import(&g)) return false;
  grad_learn(&g);
  if (!grad_reverse(&g)) return false;
  grad_flow(&g);
  if (!grad_maps(&g) || !grad_plan(&g)) return false;
  grad_save(&g);
  grad_write(&g);
  return true;
}

bool pass_grad(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0, n = m->funcs.n; i < n; i++)
    if (m->funcs.at[i]->kind == FK_PROGRAM && !run(cx, m, m->funcs.at[i], opt))
      return false;
  return true;
}
