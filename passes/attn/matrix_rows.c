// matrix_rows: of a matrix that is a sum over keys a task has some rows.
//
//   axes(b par B, k key S, d vec 64, e vec 64)   axes(b par B, k key S, d par 64, e vec 64)
//   %m = dot(%x, %y) {over = [k]} : f32{b,d,e}
//   store(%M, %m, %b, %d, %e)
//
// A state that a program stores, say, or what a gradient needs of one: without
// rows a task would have all of the matrix, which is more than its threads'
// registers. Nothing may be summed along the matrix, and all that is stored has
// its rows. Where what is stored is found from sums, own_sums gives a phase
// such rows. GPUs. Level attn, behind split_outputs. Tests:
// test/passes/matrix_rows.
#include "ir/deps.h"
#include "passes/pass.h"

// What is summed along in f.
static uint64_t summed(const Func *f) {
  uint64_t set = 0;
  for (const Op *op = f->body->first; op; op = op->next)
    set |= ir_axes_over(op);
  return set;
}

// The axes of vectors of a sum over keys, if there are several and nothing is
// summed along one; else 0.
static uint64_t matrix_of(const Func *f, const Op *op, uint64_t over) {
  if (!op->nres || !(ir_axes_over(op) & ir_axes_with(f, AX_KEY))) return 0;
  uint64_t vecs = ir_axes_of(f, op->res[0]) & ir_axes_with(f, AX_VEC);
  return vecs & (vecs - 1) && !(vecs & over) ? vecs : 0;
}

// Axes of vectors that all stores have as coordinates.
static uint64_t stored(const Func *f) {
  uint64_t all = ir_axes_with(f, AX_VEC);
  bool any = false;
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->nregions || op->code == OP_CALL) return 0;
    if (op->code != OP_STORE) continue;
    uint64_t at = 0;
    for (uint32_t i = 2; i < op->nargs; i++) at |= ir_axes_of(f, op->args[i]);
    all &= at;
    any = true;
  }
  return any ? all : 0;
}

static void visit(Ctx *cx, Func *f) {
  if (f->kind != FK_PROGRAM || f->axes.n > 63) return;
  uint64_t rows = stored(f), over = summed(f), vecs = 0;
  for (const Op *op = f->body->first; op && !vecs; op = op->next)
    vecs = matrix_of(f, op, over);
  if (!(rows &= vecs)) return;
  uint32_t row = (uint32_t)__builtin_ctzll(rows);
  f->axes.at[row].role = AX_PAR;
  ctx_remark(cx,
             "%s: tasks have some of %s, of a matrix that is a sum over keys",
             f->name, f->axes.at[row].name);
}

bool pass_matrix_rows(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) visit(cx, m->funcs.at[i]);
  return true;
}
