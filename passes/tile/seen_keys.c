// Keys that a mask hides from some rows alone (part of the pass `tile`).
//
//   domain  and(le(%k, %q), lt(sub(%q, %k), %n))     tasks of one %q, S rows
//   loads   %x = load(%K, %k, %d)                    of %K : tensor<[S, 64]>
//
// Where tasks have one row of a sequence, as of heads that share keys, no row
// of a tile sees what the mask hides. Data of such keys need not become zeros
// where another task's row sees them: they are finite then, as those of keys
// are that other rows of a tile see. Of x <= q that is so if x is an index of
// what is loaded, and the last row is its last one; and of q - x < n, whose n
// is positive if any row sees anything. Kernels for few rows have other ways
// for what is hidden (passes/gpu/boxes.c). GPUs.
#include "passes/tile/tile.h"

bool tile_is_again(const Func *f, Value a, Value b) {
  const Op *x = ir_def(f, a), *y = ir_def(f, b);
  if (a == b) return true;
  if (!x || !y || x->code != y->code || x->nargs != y->nargs || x->nregions ||
      x->nres != 1 || y->nres != 1 || !ir_same_attrs(x, y) ||
      !type_eq(ir_type(f, a), ir_type(f, b)))
    return false;
  for (uint32_t i = 0; i < x->nargs; i++)
    if (!tile_is_again(f, x->args[i], y->args[i])) return false;
  return true;
}

// Is v, or v plus a dim, the coordinate of tasks' rows, whose last one, plus
// that, is the last of `size` elements?
static bool is_row_of(const Func *f, Value v, Dim size) {
  const Op *op = ir_def(f, v), *more = NULL;
  for (uint32_t i = 0; op && op->code == OP_ADD && i < 2; i++) {
    const Op *dim = ir_def(f, op->args[i]);
    if (!dim || dim->code != OP_DIM) continue;
    more = dim;
    op = ir_def(f, op->args[!i]);
  }
  if (!op || op->code != OP_INDEX) return false;
  const Axis *a = &f->axes.at[ir_attr_i(op, AT_AXIS, 0)];
  if (a->role != AX_PAR) return false;
  if (!more) return size == a->extent;
  Dim ends = (Dim)ir_attr_i(more, AT_DIM, 0);
  return dim_sub(&f->mod->dims, size, a->extent) == ends;
}

static bool is_vectors(const Func *f, const Op *op, uint32_t key) {
  const Type *t = op->nres ? ir_type(f, op->res[0]) : NULL;
  bool vec = false;
  for (uint32_t i = 0; op->code == OP_LOAD && i < t->n; i++)
    vec |= f->axes.at[t->axis[i]].role == AX_VEC;
  return vec && type_has_axis(t, key);
}

// Do all loads of keys' vectors have x for an index, of an axis whose last
// element row v sees?
static bool is_at_rows(const Func *f, const Op *pass, Value x, Value v) {
  uint32_t key = (uint32_t)ir_attr_i(pass, AT_AXIS, 0);
  for (const Op *op = pass->regions[1]->first; op; op = op->next) {
    bool at = !is_vectors(f, op, key);
    for (uint32_t i = 1; !at && i < op->nargs; i++)
      at = tile_is_again(f, op->args[i], x) &&
           is_row_of(f, v, ir_type(f, op->args[0])->size[i - 1]);
    if (!at) return false;
  }
  return true;
}

bool tile_rows_see(const Func *f, const Op *pass, Value p) {
  const Op *op = ir_def(f, p);
  double zero;
  if (!op || (op->code != OP_LE && op->code != OP_LT)) return false;
  bool le = op->code == OP_LE;
  if (le && is_at_rows(f, pass, op->args[0], op->args[1])) return true;
  bool least = le && ir_const_value(f, op->args[0], &zero) && zero == 0;
  bool most = !le && !ir_type(f, op->args[1])->n;
  const Op *far = least || most ? ir_def(f, op->args[least]) : NULL;
  return far && far->code == OP_SUB &&
         is_at_rows(f, pass, far->args[1], far->args[0]);
}
