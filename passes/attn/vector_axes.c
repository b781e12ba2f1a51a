// vector_axes: an axis of coordinates of a vector that is reduced too is one of
// vectors.
//
//   axes(n par N, d vec 128, e par 128)      axes(n par N, d vec 128, e vec 128)
//   %m = reduce(%x) {kind = max, over = [d]} : f32{n}
//   store(%Y, exp(sub(load(%X, n, e), %m)), n, e)
//
// A softmax of a row, say, whose outputs have an index of their own. A task for
// a part of the coordinates would reduce the row again, in each of its threads;
// a task has whole rows so. Programs without keys and products, that have other
// parallel axes. GPUs. Level attn, behind inline and canon. Tests:
// test/passes/vector_axes.
#include "passes/pass.h"
#include "passes/support/cost.h"
#include "passes/support/lane.h"

// Does a reduction over vectors of that extent leave a value without the axis?
static bool is_reduced(const Func *f, uint32_t axis) {
  for (const Op *op = f->body->first; op; op = op->next) {
    const IrAttr *over = op->code == OP_REDUCE ? ir_attr(op, AT_OVER) : NULL;
    for (uint32_t i = 0; over && i < over->n; i++)
      if (f->axes.at[over->list[i]].extent == f->axes.at[axis].extent &&
          !type_has_axis(ir_type(f, op->res[0]), axis))
        return true;
  }
  return false;
}

static void visit(Ctx *cx, Func *f) {
  uint32_t parallel = 0;
  for (uint32_t i = 0; i < f->axes.n; i++)
    parallel += f->axes.at[i].role == AX_PAR;
  for (uint32_t i = f->axes.n; i-- > 0 && parallel > 1;) {
    Axis *a = &f->axes.at[i];
    int64_t n;
    if (a->role != AX_PAR || !dim_is_const(&f->mod->dims, a->extent, &n) ||
        n > COST_VECTOR_AXIS || !is_reduced(f, i))
      continue;
    a->role = AX_VEC;
    parallel--;
    ctx_remark(cx, "%s: tasks have all of %s", f->name, a->name);
  }
}

bool pass_vector_axes(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    if (lane_is_map(m->funcs.at[i])) visit(cx, m->funcs.at[i]);
  return true;
}
