// Chunks of steps whose number is a coordinate.
//
//   axes(chunk par S // 64, use vec 64)     load(%Q, 64 * chunk + use, ..)
//
// A vector that is added to as many times another coordinate counts the steps
// of a chunk: tiles of it are streamed, as those of the steps of a walk. Where
// the products of a point are those of matrices along such vectors, the point
// is a task: no axis needs a tile. Gradients of recurrences are such programs
// (passes/attn/grad_chunks.c). Tests: test/passes/tile/pieces.tir.
#include "passes/support/pieces.h"

typedef struct Pieces {
  const Func *f;
  uint64_t all;
  bool other;  // walks, passes over keys
  bool matrices;
} Pieces;

static const Op *index_of(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  return op && op->code == OP_INDEX ? op : NULL;
}

static AxisRole role_of(const Func *f, const Op *index) {
  return f->axes.at[ir_attr_i(index, AT_AXIS, 0)].role;
}

// v = n * a coordinate of tasks or of steps
static bool is_first(const Func *f, Value v, int64_t n) {
  const Op *op = ir_def(f, v);
  double k;
  for (uint32_t i = 0; op && op->code == OP_MUL && i < 2; i++) {
    const Op *x = index_of(f, op->args[i]);
    if (x && ir_const_value(f, op->args[!i], &k) && k == (double)n &&
        (role_of(f, x) == AX_PAR || role_of(f, x) == AX_STEP))
      return true;
  }
  return false;
}

static void note(void *data, Op *op) {
  Pieces *p = data;
  const Func *f = p->f;
  p->other |= op->code == OP_KREDUCE || op->code == OP_RECUR ||
              op->code == OP_AFFINE || op->code == OP_MAXPLUS;
  for (uint32_t i = 0; op->code == OP_ADD && i < 2; i++) {
    const Op *x = index_of(f, op->args[i]);
    int64_t n;
    if (!x || role_of(f, x) != AX_VEC) continue;
    uint32_t axis = (uint32_t)ir_attr_i(x, AT_AXIS, 0);
    if (dim_is_const(&f->mod->dims, f->axes.at[axis].extent, &n) &&
        is_first(f, op->args[!i], n))
      p->all |= (uint64_t)1 << axis;
  }
}

static bool has_own(const Func *f, const Type *x, const Type *y) {
  for (uint32_t i = 0; i < x->n; i++)
    if (f->axes.at[x->axis[i]].role == AX_VEC && !type_has_axis(y, x->axis[i]))
      return true;
  return false;
}

static void note_product(void *data, Op *op) {
  Pieces *p = data;
  if (op->code != OP_DOT) return;
  const Type *x = ir_type(p->f, op->args[0]), *y = ir_type(p->f, op->args[1]);
  p->matrices |= has_own(p->f, x, y) && has_own(p->f, y, x);
}

uint64_t pieces_axes(const Func *f) {
  Pieces p = {.f = f};
  ir_walk(f->body, note, &p);
  return p.all;
}

bool pieces_of_chunk(const Func *f) {
  Pieces p = {.f = f};
  ir_walk(f->body, note, &p);
  if (!p.all || p.other) return false;
  ir_walk(f->body, note_product, &p);
  return p.matrices;
}

// Elements of vectors that a load brings, 0: it is no matrix.
static int64_t elements(const Func *f, const Op *load) {
  const Type *t = ir_type(f, load->res[0]);
  int64_t n = 1, size;
  uint32_t axes = 0;
  for (uint32_t i = 0; i < t->n; i++) {
    const Axis *a = &f->axes.at[t->axis[i]];
    if (a->role != AX_VEC) continue;
    axes++;
    n *= dim_is_const(&f->mod->dims, a->extent, &size) ? size : 0;
  }
  return axes > 1 ? n : 0;
}

int64_t pieces_bytes(const Func *f) {
  int64_t all = 0;
  for (const Op *op = f->body->first; op; op = op->next) {
    bool again = false;
    if (op->code != OP_LOAD) continue;
    for (const Op *o = f->body->first; o != op; o = o->next)
      again |= o->code == OP_LOAD && o->args[0] == op->args[0] &&
               elements(f, o) == elements(f, op);
    if (!again)
      all += elements(f, op) * dtype_size(ir_type(f, op->res[0])->dtype);
  }
  return all;
}
