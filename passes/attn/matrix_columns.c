// matrix_columns: of a product with a matrix a task has all columns.
//
//   axes(b par B, s par S, i par 64, d vec 64)   axes(b par B, s par S, i vec 64, d vec 64)
//   %y = dot(%m, %x) {over = [d]} : f32{b,s,i}
//   store(%O, %y, %b, %s, %i)                      with %m of {b,i,d}, %x of {b,s,d}
//
// Outputs that are told element by element (`O[b, s, i] = dot(M[b, i], X[b,
// s])`) have an axis of tasks for each coordinate. A task would have one column
// of the matrix, which no product of matrices has. Vectors of them have all, as
// where the output is told as a vector (`vec(i: dot(M[b, i], X[b, s]))`): so
// the constant axis becomes one of vectors, if the rows that the matrix
// multiplies have another axis of tasks, and all that is stored has the column
// for a coordinate. Programs with keys are left: their rows are tiles already.
// GPUs. Level attn, behind own_sums, whose phases have such products. Tests:
// test/passes/matrix_columns.
#include "ir/deps.h"
#include "passes/pass.h"
#include "passes/support/cost.h"

// The axes that coordinates of all stores are; 0: ops that are not known.
static uint64_t stored(const Func *f) {
  uint64_t all = ir_axes_with(f, AX_PAR);
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->nregions || op->code == OP_CALL) return 0;
    if (ir_axes_over(op) & ir_axes_with(f, AX_KEY)) return 0;
    if (op->code != OP_STORE) continue;
    uint64_t at = 0;
    for (uint32_t i = 2; i < op->nargs; i++) {
      const Op *index = ir_def(f, op->args[i]);
      if (index && index->code == OP_INDEX) at |= ir_axes_of(f, op->args[i]);
    }
    all &= at;
  }
  return all;
}

// Those of the set that have a constant size which a tile may have.
static uint64_t columns_of(const Func *f, uint64_t set) {
  uint64_t some = 0;
  for (uint32_t i = 0; i < f->axes.n; i++) {
    int64_t n;
    bool is =
        set >> i & 1 && dim_is_const(&f->mod->dims, f->axes.at[i].extent, &n);
    if (is && n > 1 && n <= COST_COLUMNS_MOST) some |= (uint64_t)1 << i;
  }
  return some;
}

// The column that op's matrix has, and the rows have not; 0: there is none.
static uint64_t column_of(const Func *f, const Op *op, uint64_t columns) {
  if (op->code != OP_DOT || op->nargs != 2) return 0;
  uint64_t par = ir_axes_with(f, AX_PAR);
  uint64_t x = ir_axes_of(f, op->args[0]), y = ir_axes_of(f, op->args[1]);
  for (int side = 0; side < 2; side++) {
    uint64_t own = (side ? y : x) & ~(side ? x : y) & par;
    uint64_t rows = (side ? x : y) & ~(side ? y : x) & par & ~columns;
    uint64_t column = own & columns;
    if (rows && column && !(column & (column - 1)) && own == column)
      return column;
  }
  return 0;
}

static void visit(Ctx *cx, Func *f) {
  if (f->kind != FK_PROGRAM || f->axes.n > 63) return;
  uint64_t columns = columns_of(f, stored(f)), column = 0;
  for (const Op *op = f->body->first; op && columns && !column; op = op->next)
    column = column_of(f, op, columns);
  if (!column) return;
  uint32_t axis = (uint32_t)__builtin_ctzll(column);
  f->axes.at[axis].role = AX_VEC;
  ctx_remark(cx, "%s: a task has all of %s, columns of a matrix", f->name,
             f->axes.at[axis].name);
}

bool pass_matrix_columns(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) visit(cx, m->funcs.at[i]);
  return true;
}
