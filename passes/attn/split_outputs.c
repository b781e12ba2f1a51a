// split_outputs: outputs with other parallel axes are made by other tasks.
//
//   before  axes(q par, k key, c par)
//           store(%O, %o, q)  store(%P, exp(sub(%s, %lse)), q, c)
//   after   func @f.outputs axes(q par, k key)
//             store(%O, %o, q)  store(%f.row0, %lse, q)
//           func @f axes(q par, c par)
//             store(%P, exp(sub(%s, load(%f.row0, q))), q, c)
//
// A task for each q and c would make %o again for each c. Outputs that ask for
// no keys stay with others that have their axes. Level attn, behind inline and
// canon; support/outputs.c does it. Tests: test/passes/split_outputs/,
// test/wave/outputs.test.
#include "passes/pass.h"
#include "passes/support/outputs.h"

bool pass_split_outputs(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    i += outputs_split(cx, m->funcs.at[i]);
  return true;
}
