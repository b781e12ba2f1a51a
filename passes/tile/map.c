// Tiles of programs without products of matrices, or keys that have a tile.
#include "passes/support/cost.h"
#include "passes/tile/tile.h"

// Rows of vectors that are not multiplied by others nor added up over keys: a
// piece for each thread, of what is stored or summed up along a row.
typedef struct Rows {
  const Func *f;
  bool map;
  int64_t elements;  // of a row
  int64_t summed;    // the same of sums, if only numbers are stored
  int64_t loaded;    // bytes of a row that are read
  int64_t least;     // rows of whole blocks, where they lie so (`quads`)
} Rows;

// The type at one step or key of those that are walked.
static Type at_step(const Func *f, const Type *t) {
  Type r = *t;
  for (uint32_t a = 0; a < f->axes.n; a++)
    if (f->axes.at[a].role == AX_STEP) r = type_without(r, a);
  return r;
}

// There, no product of matrices: elements alone, or summed row by row
// (lane_has_rows).
static bool is_inner(const Func *f, const Op *dot) {
  const IrAttr *over = ir_attr(dot, AT_OVER);
  Type x = at_step(f, ir_type(f, dot->args[0]));
  Type y = at_step(f, ir_type(f, dot->args[1]));
  bool sums = false;
  for (uint32_t i = 0; i < over->n; i++)
    sums |= f->axes.at[over->list[i]].role != AX_STEP;
  return lane_has_rows(f, &x, &y) || !sums;
}

// A pass over keys that have a tile.
static bool has_keys(const Func *f, const Op *op) {
  return op->code == OP_KREDUCE &&
         f->axes.at[ir_attr_i(op, AT_AXIS, 0)].role == AX_KEY;
}

static void note_work(void *data, Op *op) {
  Rows *r = data;
  bool inner = op->code == OP_DOT && is_inner(r->f, op);
  bool memory = op->code == OP_STORE || op->code == OP_LOAD;
  if (memory && ir_type(r->f, op->args[0])->quads) r->least = HW_BLOCK;
  if (op->code == OP_LOAD)
    r->loaded += lane_elements(r->f, ir_type(r->f, op->res[0])) *
                 dtype_size(ir_type(r->f, op->res[0])->dtype);
  r->map &= inner || (op->code != OP_DOT && !has_keys(r->f, op));
  bool sum = op->code == OP_REDUCE;
  if (!inner && !sum && op->code != OP_STORE) return;
  bool first = inner || sum;
  int64_t n = lane_elements(r->f, ir_type(r->f, op->args[!first]));
  int64_t *most = sum ? &r->summed : &r->elements;
  if (n > *most) *most = n;
}

int64_t tile_map_rows(const Func *f) {
  Rows r = {.f = f, .map = true, .elements = 1, .least = COST_MAP_LEAST_ROWS};
  ir_walk(f->body, note_work, &r);
  if (r.elements == 1) r.elements = r.summed;
  int64_t rows = r.least;
  while (rows < COST_MAP_MOST_ROWS &&
         2 * rows * r.elements <= COST_MAP_ELEMENTS)
    rows *= 2;
  while (r.loaded && rows < COST_MAP_MOST_ROWS &&
         2 * rows * r.elements <= COST_MAP_READ_ELEMENTS &&
         2 * rows * r.loaded <= COST_MAP_READ)
    rows *= 2;
  return r.map && r.elements > 1 ? rows : 0;
}

// ---------------------------------------------------------------- matrices
// Sums of matrices that rows have of their own.
typedef struct Matrices {
  const Func *f;
  uint32_t axis;  // a load's last index is along it
  Type type;      // of the load
  bool summed;    // along that, by a product with a vector
  bool products;  // of matrices
} Matrices;

static bool has_all(const Type *t, const Type *of) {
  bool all = true;
  for (uint32_t i = 0; i < of->n; i++) all &= type_has_axis(t, of->axis[i]);
  return all;
}

static void note_matrix_sum(void *data, Op *op) {
  Matrices *m = data;
  if (op->code != OP_DOT) return;
  const IrAttr *over = ir_attr(op, AT_OVER);
  const Type *x = ir_type(m->f, op->args[0]), *y = ir_type(m->f, op->args[1]);
  m->products |= !has_all(x, y) && !has_all(y, x);
  if (over->n == 1 && over->list[0] == m->axis)
    m->summed |= has_all(x, &m->type) || has_all(y, &m->type);
}

static bool is_matrix(const Func *f, const Type *t) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->n; i++)
    n += f->axes.at[t->axis[i]].role == AX_VEC &&
         lane_extent(f, t->axis[i]) >= HW_BLOCK;
  return n == 2;
}

static void note_matrix(void *data, Op *op) {
  Matrices *m = data;
  if (op->code != OP_LOAD || m->summed) return;
  const Type *t = ir_type(m->f, op->res[0]);
  const Type *last = ir_type(m->f, op->args[op->nargs - 1]);
  if (!is_matrix(m->f, t) || last->n != 1) return;
  m->axis = last->axis[0];
  m->type = *t;
  ir_walk(m->f->body, note_matrix_sum, m);
}

bool tile_sums_matrices(const Func *f) {
  Matrices m = {.f = f};
  ir_walk(f->body, note_matrix, &m);
  return m.summed && !m.products;
}
