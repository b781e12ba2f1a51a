// Which axes of a program its tiles have.
//
// The lane axis makes products of matrices: one operand of a product over
// vectors varies with it, the other does not. An axis that both operands of one
// have (a batch axis) is no lane where another is there: the product would have
// three axes; rows of a table for differences are a band of matrices instead
// (passes/tile/band_mma.c). Then what counts is the work of products, and bytes
// of keys that are reused: a load that varies with a key axis but not with axis
// x is shared by all lanes when x is the lane axis. Ties go to the axis that is
// as long as keys, then to that declared last. Numbers of keys that are no
// vectors, nor integers, which conditions compare, count where nothing is
// multiplied.
#include "passes/support/lane.h"

#include "ir/target.h"
#include "passes/support/band.h"
#include "passes/support/cost.h"
#include "passes/support/outline.h"

bool lane_has_key(const Func *f, const Type *t) {
  for (uint32_t i = 0; i < t->n; i++)
    if (f->axes.at[t->axis[i]].role == AX_KEY) return true;
  return false;
}

bool lane_is_matrix(const Func *f, const Type *t) {
  bool own = false;
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role == AX_KEY) return false;
  for (uint32_t i = 0; i < t->n; i++)
    own |= f->axes.at[t->axis[i]].role == AX_PAR;
  return own;
}

bool lane_walks(const Region *r) {
  for (const Op *op = r->first; op; op = op->next)
    if (op->code == OP_RECUR || op->code == OP_AFFINE) return true;
  return false;
}

const Op *lane_recurrence(const Func *f) {
  const Op *found = NULL;
  if (f->kind != FK_PROGRAM || f->axes.n > 63) return NULL;
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->code == OP_RECUR && !found) found = op;
    else if (op->nregions || op->code == OP_CALL) return NULL;
  }
  for (const Op *op = found ? found->regions[0]->first : NULL; op;
       op = op->next)
    if (op->nregions || op->code == OP_CALL) return NULL;
  return found;
}

int64_t lane_extent(const Func *f, uint32_t axis) {
  int64_t lo, hi;
  dim_bounds(&f->mod->dims, f->axes.at[axis].extent, &lo, &hi);
  return hi;
}

// ---------------------------------------------------------------- the lane
typedef struct Reuse {
  const Func *f;
  bool blocks[64];      // per axis: values are summed in blocks of it
  bool batch[64];       // per axis: both operands of a product have it
  int64_t work[64];     // per axis: of a key, in products it makes
  int64_t shared[64];   // per axis: bytes of a key that do not vary with it
  int64_t numbers[64];  // the same of those that are no vectors
  uint32_t varies[64];  // per axis: values that vary with it
  bool as_long[64];     // per axis: it is as long as keys
  bool picks[64];       // per axis: a coordinate has keys of its own
} Reuse;

int64_t lane_elements(const Func *f, const Type *t) {
  int64_t n = 1, v;
  for (uint32_t i = 0; i < t->n; i++) {
    const Axis *a = &f->axes.at[t->axis[i]];
    if (a->role == AX_VEC)
      n *= dim_is_const(&f->mod->dims, a->extent, &v) ? v : COST_UNKNOWN_VEC;
  }
  return n;
}

bool lane_is_inner(const Func *f, const Op *dot) {
  const Type *x = ir_type(f, dot->args[0]), *y = ir_type(f, dot->args[1]);
  bool same = x->n == y->n;
  for (uint32_t i = 0; i < x->n; i++) same &= type_has_axis(y, x->axis[i]);
  return same;
}

// Are all axes of x axes of y, and what y has besides such of tasks?
static bool has_rows_of(const Func *f, const Type *x, const Type *y) {
  for (uint32_t i = 0; i < x->n; i++)
    if (!type_has_axis(y, x->axis[i])) return false;
  for (uint32_t i = 0; i < y->n; i++)
    if (!type_has_axis(x, y->axis[i]) && f->axes.at[y->axis[i]].role != AX_PAR)
      return false;
  return true;
}

bool lane_has_rows(const Func *f, const Type *x, const Type *y) {
  return has_rows_of(f, x, y) || has_rows_of(f, y, x);
}

static bool has_own(const Func *f, const Type *x, const Type *y) {
  for (uint32_t i = 0; i < x->n; i++)
    if (!type_has_axis(y, x->axis[i]) && lane_extent(f, x->axis[i]) > 1)
      return true;
  return false;
}

bool lane_is_product(const Func *f, const Op *dot) {
  const Type *x = ir_type(f, dot->args[0]), *y = ir_type(f, dot->args[1]);
  return has_own(f, x, y) && has_own(f, y, x);
}

static bool has_vec(const Func *f, const Type *t) {
  for (uint32_t i = 0; i < t->n; i++)
    if (f->axes.at[t->axis[i]].role == AX_VEC) return true;
  return false;
}

static void count_product(Reuse *r, const Op *op) {
  const Type *x = ir_type(r->f, op->args[0]), *y = ir_type(r->f, op->args[1]);
  Type all = type_union(x, y, DT_F32);
  if (!lane_has_key(r->f, &all) || !has_vec(r->f, &all)) return;
  Band b;
  bool band = band_of(r->f, op, &b);
  // With one operand that is the same for all it is a sum of the other.
  if (!x->n || !y->n) return;
  for (uint32_t i = 0; i < all.n; i++) {
    uint32_t a = all.axis[i];
    bool diagonal = band && (a == b.same || a == b.other);
    bool both = !diagonal && type_has_axis(x, a) && type_has_axis(y, a);
    if (r->f->axes.at[a].role != AX_PAR) continue;
    r->batch[a] |= both;
    if (!both) r->work[a] += lane_elements(r->f, &all);
  }
}

static void count(void *data, Op *op) {
  Reuse *r = data;
  if (op->code == OP_DOT) count_product(r, op);
  if (op->code == OP_SCAN && ir_attr(op, AT_BLOCK))
    r->blocks[ir_attr_i(op, AT_AXIS, 0)] = true;
  if (op->nres != 1) return;
  const Type *t = ir_type(r->f, op->res[0]);
  if (t->kind != TK_ELEM) return;
  bool key_load = op->code == OP_LOAD && lane_has_key(r->f, t);
  bool value = has_vec(r->f, t) || dtype_is_float(t->dtype);
  for (uint32_t a = 0; a < r->f->axes.n; a++) {
    bool has = type_has_axis(t, a);
    r->varies[a] += has;
    int64_t *bytes = has_vec(r->f, t) ? r->shared : r->numbers;
    if (key_load && value && !has)
      bytes[a] += lane_elements(r->f, t) * dtype_size(t->dtype);
  }
}

// Is the coordinate along the axis in v, but for what it finds in memory?
static bool counts(const Func *f, Value v, uint32_t axis) {
  const Op *op = ir_def(f, v);
  if (!op || op->code == OP_LOAD || !type_has_axis(ir_type(f, v), axis))
    return false;
  if (op->code == OP_INDEX) return (uint32_t)ir_index_axis(f, v) == axis;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (counts(f, op->args[i], axis)) return true;
  return false;
}

// Has v, a condition of keys, a part that is an equation for the coordinate?
static bool picks(const Func *f, Value v, uint32_t axis) {
  const Op *op = ir_def(f, v);
  bool found = false;
  for (uint32_t i = 0; op && i < op->nargs && i < 2; i++) {
    if (op->code == OP_AND) found |= picks(f, op->args[i], axis);
    if (op->code == OP_EQ)
      found |= ir_index_axis(f, op->args[i]) == (int)axis &&
               !type_has_axis(ir_type(f, op->args[!i]), axis);
  }
  return found;
}

typedef bool Says(const Func *f, Value v, uint32_t axis);

typedef struct Bounds {
  const Func *f;
  uint32_t axis;
  Says *says;
  bool found;
} Bounds;

// The condition of keys is an op's, or the first region of their pass.
static void find_bound(void *data, Op *op) {
  Bounds *b = data;
  const Op *end = op->code == OP_KREDUCE ? op->regions[0]->last : NULL;
  if (op->code == OP_DOMAIN) b->found |= b->says(b->f, op->args[0], b->axis);
  for (uint32_t i = 0; end && i < end->nargs; i++)
    b->found |= b->says(b->f, end->args[i], b->axis);
}

static bool some_bound(const Func *f, uint32_t axis, Says *says) {
  Bounds b = {.f = f, .axis = axis, .says = says};
  ir_walk(f->body, find_bound, &b);
  return b.found;
}

bool lane_bounds_keys(const Func *f, uint32_t axis) {
  return some_bound(f, axis, counts);
}

bool lane_long(const Func *f, uint32_t axis) {
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role == AX_KEY &&
        f->axes.at[i].extent == f->axes.at[axis].extent)
      return true;
  return false;
}

bool lane_like_keys(const Func *f, uint32_t axis) {
  return lane_long(f, axis) || lane_bounds_keys(f, axis);
}

// Is axis a the better lane, of two that are declared in this order?
static bool is_better(const Reuse *r, uint32_t a, uint32_t best) {
  if (r->blocks[a] != r->blocks[best]) return r->blocks[a];
  if (r->batch[a] != r->batch[best]) return r->batch[best];
  if (r->work[a] != r->work[best]) return r->work[a] > r->work[best];
  if (r->shared[a] != r->shared[best]) return r->shared[a] > r->shared[best];
  // Several places of a table have the keys of all: a task has few of one.
  if (r->picks[a] != r->picks[best]) return r->picks[best];
  if (!r->work[a] && r->numbers[a] != r->numbers[best])
    return r->numbers[a] > r->numbers[best];
  // A long axis with as much reuse beats a short one.
  bool short_a = lane_extent(r->f, a) < COST_SHORT_AXIS;
  bool short_b = lane_extent(r->f, best) < COST_SHORT_AXIS;
  if (short_a != short_b) return short_b;
  // Of heads and queries that share keys queries are more.
  return r->as_long[a] || !r->as_long[best];
}

static int best_axis(Reuse *r) {
  if (lane_walks(r->f->body)) return -1;
  ir_walk(r->f->body, count, r);
  for (uint32_t a = 0; a < r->f->axes.n && a < 64; a++) {
    r->as_long[a] = lane_long(r->f, a);
    r->picks[a] = some_bound(r->f, a, picks);
  }
  int best = -1;
  for (uint32_t a = 0; a < r->f->axes.n && a < 64; a++)
    if (r->f->axes.at[a].role == AX_PAR && r->varies[a] &&
        (best < 0 || is_better(r, a, (uint32_t)best)))
      best = (int)a;
  return best;
}

int lane_axis(const Func *f) {
  Reuse r = {.f = f};
  return best_axis(&r);
}

bool lane_lacks(const Func *f, uint32_t *axis) {
  Reuse r = {.f = f};
  int best = best_axis(&r);
  *axis = (uint32_t)best;
  return best >= 0 && r.batch[best];
}

bool lane_multiplies(const Func *f) {
  Reuse r = {.f = f};
  if (lane_walks(f->body)) return true;
  ir_walk(f->body, count, &r);
  bool any = false;
  for (uint32_t a = 0; a < f->axes.n && a < 64; a++) any |= r.work[a] > 0;
  return any;
}

// At most those of a group of warps, whatever the shape.
static bool is_few(const DimTab *d, Dim extent) {
  const DimExpr *e = &d->exprs.at[extent];
  int64_t n;
  if (dim_is_const(d, extent, &n)) return n <= HW_GROUP_ROWS;
  // A group's heads (support/groups.c).
  return e->op == DIM_MAX && (d->exprs.at[e->a].op == DIM_FLOORDIV ||
                              d->exprs.at[e->b].op == DIM_FLOORDIV);
}

bool lane_few(const Func *f, int lane) {
  bool keys = false;
  for (uint32_t a = 0; a < f->axes.n; a++) keys |= f->axes.at[a].role == AX_KEY;
  if (lane < 0 || !keys || lane_walks(f->body)) return false;
  return is_few(&f->mod->dims, f->axes.at[lane].extent);
}

bool lane_has_factor(const DimTab *t, Dim n, Dim d) {
  const DimExpr *e = &t->exprs.at[n];
  return n == d || (e->op == DIM_MUL && (lane_has_factor(t, e->a, d) ||
                                         lane_has_factor(t, e->b, d)));
}

static void find_pass(void *found, Op *op) {
  *(bool *)found |= op->code == OP_KREDUCE;
}

bool lane_many(const Func *f, int lane) {
  const Func *own = outline_last(f);
  bool passes = false;
  if (own == f || lane < 0 || lane_few(f, lane)) return false;
  ir_walk(f->body, find_pass, &passes);
  int of = lane_axis(own);
  return passes && of >= 0 &&
         !lane_has_factor(&f->mod->dims, own->axes.at[of].extent,
                          f->axes.at[lane].extent);
}

bool lane_few_keys(const Func *f) {
  bool keys = false;
  for (uint32_t a = 0; a < f->axes.n; a++) {
    if (f->axes.at[a].role != AX_KEY) continue;
    if (!is_few(&f->mod->dims, f->axes.at[a].extent)) return false;
    keys = true;
  }
  return keys;
}

// ---------------------------------------------------------------- columns
// Columns of states: a vector axis that is neither summed over nor the rows of
// a state is as good as a parallel one.
typedef struct Columns {
  const Func *f;
  bool stores;     // count
  bool whole[64];  // per axis: something needs all of it in one task
} Columns;

static void need_whole(Columns *c, const IrAttr *axes) {
  for (uint32_t i = 0; axes && i < axes->n; i++) c->whole[axes->list[i]] = true;
}

// Tasks that write the same would race with those that read it.
static void see_columns(void *data, Op *op) {
  Columns *c = data;
  need_whole(c, ir_attr(op, AT_OVER));
  if (op->code == OP_SCAN) c->whole[ir_attr_i(op, AT_AXIS, 0)] = true;
  for (uint32_t a = 0; op->code == OP_STORE && a < c->f->axes.n; a++) {
    bool has = false;
    for (uint32_t i = 2; i < op->nargs; i++)
      has |= type_has_axis(ir_type(c->f, op->args[i]), a);
    c->whole[a] |= c->stores && !has;
  }
}

bool lane_divides(const Func *f, uint32_t axis, bool stores) {
  Columns c = {.f = f, .stores = stores};
  int64_t n;
  ir_walk(f->body, see_columns, &c);
  const Axis *x = &f->axes.at[axis];
  return x->role == AX_VEC && !c.whole[axis] &&
         dim_is_const(&f->mod->dims, x->extent, &n) && n >= COST_SHORT_AXIS;
}

// ---------------------------------------------------------------- memory
bool lane_from_memory(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  bool read = op && (op->code == OP_LOAD || op->code == OP_SPAN_MIN ||
                     op->code == OP_SPAN_MAX);
  for (uint32_t i = 0; op && !read && i < op->nargs; i++)
    read = lane_from_memory(f, op->args[i]);
  return read;
}

bool lane_packed(const Func *f, const Op *load, uint32_t axis) {
  for (uint32_t i = 1; i < load->nargs; i++) {
    const Op *op = ir_def(f, load->args[i]);
    if (!type_has_axis(ir_type(f, load->args[i]), axis)) continue;
    if (!op || op->code != OP_ADD) return false;
    bool x = type_has_axis(ir_type(f, op->args[0]), axis);
    const Op *key = ir_def(f, op->args[!x]);
    return key && key->code == OP_INDEX && lane_from_memory(f, op->args[x]);
  }
  return false;
}

static DType loaded_type(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  DType t = ir_type(f, v)->dtype;
  if (!op || op->code == OP_DOT || op->code == OP_REDUCE) return DT_NONE;
  if (op->code == OP_LOAD) return t == DT_BF16 || t == DT_F16 ? t : DT_NONE;
  for (uint32_t i = 0; i < op->nargs; i++) {
    if (ir_type(f, op->args[i])->kind != TK_ELEM) continue;
    t = loaded_type(f, op->args[i]);
    if (t != DT_NONE) return t;
  }
  return DT_NONE;
}

DType lane_narrow(const Func *f, const Affine *a) {
  DType t = DT_NONE;
  for (uint32_t k = 0; k < a->nwrites && t == DT_NONE; k++) {
    t = loaded_type(f, a->write[k].b);
    if (t == DT_NONE) t = loaded_type(f, a->write[k].w);
  }
  return t;
}

// ---------------------------------------------------------------- maps
static bool is_written(const Func *f, Value tensor) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == tensor) return f->params.at[i].role != PR_IN;
  return true;
}

bool lane_is_map(const Func *f) {
  if (f->kind != FK_PROGRAM || f->axes.n > 63) return false;
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role != AX_PAR && f->axes.at[i].role != AX_VEC)
      return false;
  for (const Op *op = f->body->first; op; op = op->next) {
    bool loads = op->code == OP_LOAD && is_written(f, op->args[0]);
    bool product = op->code == OP_DOT && !lane_is_inner(f, op);
    bool adds = op->code == OP_STORE && ir_attr_i(op, AT_ADD, 0);
    if (op->nregions || op->nres > 1 || op->code == OP_CALL || loads ||
        product || adds)
      return false;
  }
  return true;
}

static void see_store(void *data, Op *op) {
  uint64_t *axes = data;
  if (op->code != OP_STORE || !ir_attr_i(op, AT_ADD, 0)) return;
  const Func *f = op->parent->fn;
  const Op *sum = ir_def(f, op->args[1]);
  const IrAttr *over = sum ? ir_attr(sum, AT_OVER) : NULL;
  for (uint32_t i = 0; over && i < over->n; i++)
    if (f->axes.at[over->list[i]].role == AX_PAR)
      *axes |= 1ull << over->list[i];
}

uint64_t lane_added(const Func *f) {
  uint64_t axes = 0;
  ir_walk(f->body, see_store, &axes);
  return axes;
}
