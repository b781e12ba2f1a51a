// Facts of tile values that need no emission: axes, uses, the lane axis of an
// op, how a dot is done.
#include "passes/cpu/cpu.h"

#include "ir/deps.h"
#include "ir/facts.h"

#include <assert.h>
#include <string.h>

// ---------------------------------------------------------------- axes
AxisSet cpu_type_axes(const Type *t) {
  AxisSet s = 0;
  if (t->kind != TK_ELEM) return 0;
  for (uint32_t i = 0; i < t->n; i++) s |= (AxisSet)1 << t->axis[i];
  return s;
}

AxisSet cpu_axes_of(const Assign *as, Value v) {
  return cpu_type_axes(ir_type(as->f, v));
}

Dim cpu_axis_size_in(const Assign *as, Value v, uint32_t axis) {
  const Type *t = ir_type(as->f, v);
  int at = type_axis_at(t, axis);
  return at < 0 ? DIM_NONE : t->size[at];
}

bool cpu_is_scalar(const Assign *as, Value v) {
  const Type *t = ir_type(as->f, v);
  return t->kind == TK_ELEM && t->n == 0;
}

bool cpu_is_memory(const Assign *as, Value v) {
  return ir_type(as->f, v)->kind == TK_TENSOR;
}

bool cpu_is_shared(const Assign *as, Value v) {
  for (uint32_t i = 0; i < as->f->params.n; i++)
    if (as->f->params.at[i].v == v)
      return as->f->params.at[i].role == PR_SHARED;
  return false;
}

bool cpu_is_inline(const Assign *as, Value v) {
  const Op *op = ir_def(as->f, v);
  if (!op || op->nregions) return false;
  switch (op->code) {
  case OP_REDUCE:
  case OP_DOT:
  case OP_SCAN:
  case OP_TRINV:
  case OP_ANY_OF:
  case OP_ALL_OF: return false;
  default: return true;
  }
}

DType cpu_reg_dtype(DType t) {
  if (t == DT_F64 || t == DT_BOOL) return t;
  return dtype_is_float(t) ? DT_F32 : DT_I64;
}

bool cpu_is_nonneg(const Assign *as, Value v) {
  const Op *op = ir_def(as->f, v);
  double c;
  if (!op) {
    const Region *r = ir_info(as->f, v)->region;
    const Op *loop = r ? r->parent : NULL;
    return loop && loop->code == OP_FOR && r->params.at[0] == v &&
           cpu_is_nonneg(as, loop->args[0]);
  }
  if (ir_const_value(as->f, v, &c)) return c >= 0;
  switch (op->code) {
  case OP_ORIGIN:
  case OP_IOTA:
  case OP_DIM: return true;
  case OP_MAX:
    return cpu_is_nonneg(as, op->args[0]) || cpu_is_nonneg(as, op->args[1]);
  case OP_ADD:
  case OP_MUL:
  case OP_MIN:
  case OP_FLOORDIV:
  case OP_MOD:
    return cpu_is_nonneg(as, op->args[0]) && cpu_is_nonneg(as, op->args[1]);
  case OP_SELECT:
    return cpu_is_nonneg(as, op->args[1]) && cpu_is_nonneg(as, op->args[2]);
  default: return false;
  }
}

// ---------------------------------------------------------------- lanes
// Where memory runs: the last axis, but rather one of vectors than the steps
// of a chunk, which are numbered behind them.
static uint32_t running(const Assign *as, const Type *t) {
  for (uint32_t i = t->n; i-- > 0;)
    if (as->f->axes.at[t->axis[i]].role != AX_STEP &&
        (int)t->axis[i] != as->walked)
      return i;
  return t->n - 1;
}

// The axis of the value with the most axes that its memory runs along.
static int widest_last(const Assign *as, const Value *v, uint32_t n,
                       const Type *res, Dim *size) {
  int best = -1;
  uint32_t most = 0;
  for (uint32_t i = 0; i < n; i++) {
    const Type *t = ir_type(as->f, v[i]);
    if (t->kind != TK_ELEM || t->n == 0 || t->n < most) continue;
    uint32_t at = running(as, t);
    if ((int)t->axis[at] == as->walked) continue;
    int last = (int)t->axis[at];
    bool in_res = res && type_has_axis(res, (uint32_t)last);
    if (t->n == most && !in_res) continue;
    best = last;
    most = t->n;
    *size = t->size[at];
  }
  return best;
}

static Dim find_size(const Assign *as, const Op *op, uint32_t axis) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    Dim d = cpu_axis_size_in(as, op->args[i], axis);
    if (d) return d;
  }
  return op->nres ? cpu_axis_size_in(as, op->res[0], axis) : DIM_NONE;
}

int cpu_lane_of_value(const Assign *as, Value v, Dim *size) {
  *size = as->par >= 0 ? cpu_axis_size_in(as, v, (uint32_t)as->par) : DIM_NONE;
  if (*size) return as->par;
  return widest_last(as, &v, 1, NULL, size);
}

// A scan cannot run along the lanes: another axis, or scalar code.
static int lane_of_scan(const Assign *as, const Op *op, Dim *size) {
  uint32_t along = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  const Type *t = ir_type(as->f, op->res[0]);
  int best = -1;
  for (uint32_t i = 0; i < t->n; i++) {
    if (t->axis[i] == along) continue;
    best = (int)t->axis[i];
    *size = t->size[i];
    if (best == as->par) break;
  }
  return best;
}

// Do both operands have axes of the result that the other has not?
static bool is_matrix_product(const Assign *as, const Op *op) {
  AxisSet a = cpu_axes_of(as, op->args[0]), b = cpu_axes_of(as, op->args[1]);
  AxisSet r = cpu_axes_of(as, op->res[0]);
  return (a & r & ~b) && (b & r & ~a);
}

// Stores run along the tensor's last axis, if it is long enough: its stride is
// 1 as a rule, and reading scratch across is cheaper than scattering.
static int lane_of_store(const Assign *as, const Op *op, Dim *size) {
  uint32_t rank = ir_type(as->f, op->args[0])->n;
  if (!rank) return -1;
  const Type *t = ir_type(as->f, op->args[1 + rank]);
  int64_t lo, hi;
  if (t->n != 1 || (int)t->axis[0] == as->par || (int)t->axis[0] == as->walked)
    return -1;
  if (!type_has_axis(ir_type(as->f, op->args[1]), t->axis[0])) return -1;
  dim_bounds(&as->m->dims, t->size[0], &lo, &hi);
  if (lo < as->lanes) return -1;
  *size = t->size[0];
  return (int)t->axis[0];
}

int cpu_lane_of(const Assign *as, const Op *op, Dim *size) {
  *size = DIM_NONE;
  int last = op->code == OP_STORE ? lane_of_store(as, op, size) : -1;
  if (last >= 0) return last;
  if (op->code == OP_SCAN) return lane_of_scan(as, op, size);
  bool product = op->code == OP_DOT && is_matrix_product(as, op);
  // a product over the tiled axis has rows of lanes in its result
  if (as->par >= 0 && !(product && (ir_axes_over(op) >> as->par & 1))) {
    *size = find_size(as, op, (uint32_t)as->par);
    if (*size) return as->par;
  }
  uint32_t rows;
  if (cpu_dot_across(as, op, &rows)) {
    last = (int)ir_attr(op, AT_OVER)->list[0];
    *size = find_size(as, op, (uint32_t)last);
    return last;
  }
  const Type *res = op->nres ? ir_type(as->f, op->res[0]) : NULL;
  if (product) {
    uint32_t at = running(as, res);
    *size = res->size[at];
    return (int)res->axis[at];
  }
  uint32_t n = op->code == OP_DOT ? 2 : op->nargs;
  return widest_last(as, op->args, n, res, size);
}

// Where rows are walked all keys of a step are one panel, if they may be; of
// vectors as many as a block of few rows has registers for.
static uint32_t walked_cols(const Assign *as, int lane, int64_t vecs) {
  bool keys = as->f->axes.at[lane].role == AX_KEY;
  int64_t n = keys ? MAX_COLS : as->lanes < HW_MAT_COLS ? 2 : 4;
  while (vecs % n) n /= 2;
  return (uint32_t)n;
}

uint32_t cpu_panel_cols(const Assign *as, int lane, Dim size) {
  int64_t n;
  if (lane < 0 || as->brief) return 1;
  if (!dim_known(&as->m->dims, size, &n)) return 2;
  int64_t vecs = (n + as->lanes - 1) / as->lanes;
  if (lane == as->par) {
    for (uint32_t i = 0; i < 3; i++)
      if (vecs % as->target->cols[i] == 0) return as->target->cols[i];
    return 1;
  }
  return as->walked >= 0        ? walked_cols(as, lane, vecs)
         : vecs % 2 && vecs < 4 ? 1
                                : 2;
}

uint32_t cpu_block_rows(const Assign *as) {
  const uint8_t *rows = as->target->rows;
  uint32_t cols = as->pt.cols, most = sizeof as->target->rows;
  if (cols <= most) return rows[cols - 1];
  uint32_t n = rows[most - 1] * most / cols;
  return n ? n : 1;
}

// ---------------------------------------------------------------- dots
bool cpu_dot_blocked(const Assign *as, const Op *op, int lane, uint32_t *vec) {
  if (lane < 0) return false;
  AxisSet bit = (AxisSet)1 << lane, over = ir_axes_over(op);
  AxisSet a = cpu_axes_of(as, op->args[0]), b = cpu_axes_of(as, op->args[1]);
  if (over & bit || !((a ^ b) & bit) || (a & over) != over ||
      (b & over) != over)
    return false;
  *vec = a & bit ? 0 : 1;
  AxisSet rows = a & bit ? b & ~a : a & ~b;
  return (rows & ~over) != 0;
}

// Are so many coordinates of the axis a multiple of `unit`, and known?
static bool is_whole(const Assign *as, Value v, uint32_t axis, int64_t unit) {
  Dim d = cpu_axis_size_in(as, v, axis);
  int64_t n;
  return d && dim_known(&as->m->dims, d, &n) && n >= unit && n % unit == 0;
}

// Are the products of tile registers as long as theirs? What the rows are of is
// turned where its memory does not run along the sums.
static bool fills_tiles(const Assign *as, const Op *op, uint32_t vec) {
  Value b = op->args[1 - vec];
  uint32_t over = (uint32_t)ir_attr(op, AT_OVER)->list[0];
  Dim size;
  int runs = cpu_lane_of_value(as, b, &size);
  if (as->lanes != HW_MAT_COLS || runs < 0) return false;
  if (!is_whole(as, b, over, 2 * HW_MAT_ROWS)) return false;
  return runs == (int)over || is_whole(as, b, (uint32_t)runs, HW_MAT_ROWS);
}

bool cpu_dot_pairs(const Assign *as, const Op *op, int lane) {
  uint32_t vec;
  const IrAttr *over = ir_attr(op, AT_OVER);
  if (!as->target->dpbf16 || over->n != 1 || as->walked >= 0) return false;
  if (!cpu_dot_blocked(as, op, lane, &vec)) return false;
  for (uint32_t i = 0; i < 2; i++)
    if (ir_type(as->f, op->args[i])->dtype != DT_BF16 ||
        !cpu_is_inline(as, op->args[i]))
      return false;
  if (ir_type(as->f, op->res[0])->dtype != DT_F32) return false;
  return !as->target->amx || fills_tiles(as, op, vec);
}

// ---------------------------------------------------------------- function
static void count_uses(void *data, Op *op) {
  Assign *as = data;
  for (uint32_t i = 0; i < op->nargs; i++)
    vec_push(as->arena, &as->uses[op->args[i]], op);
}

// Is op inside of a loop that v is not in?
static bool in_deeper_loop(const Assign *as, Value v, const Op *op) {
  const Region *home = ir_info(as->f, v)->region;
  for (const Region *r = op->parent; r && r != home;
       r = r->parent ? r->parent->parent : NULL)
    if (r->parent && r->parent->code == OP_FOR) return true;
  return false;
}

// What evaluating the value once more costs; loops make it worth memory.
int cpu_value_cost(const Assign *as, Value v) {
  const Op *op = ir_def(as->f, v);
  if (!op || !cpu_is_inline(as, v)) return 0;
  int c = op_facts(op->code)->cost ? op_facts(op->code)->cost : 1;
  if (op->code == OP_CONST || op->code == OP_DIM || op->code == OP_IOTA)
    return 0;
  if (op->code == OP_LOAD) c = 8;
  for (uint32_t i = 0; i < op->nargs && c < 64; i++)
    if (!as->eager[op->args[i]] && !as->forms[op->args[i]] &&
        !cpu_is_scalar(as, op->args[i]) && !cpu_is_memory(as, op->args[i]))
      c += cpu_value_cost(as, op->args[i]);
  return c;
}

// Is v an operand of op, a dot with register block?
bool cpu_feeds_block(const Assign *as, Value v, const Op *op) {
  uint32_t vec;
  Dim size;
  if (op->code != OP_DOT || (op->args[0] != v && op->args[1] != v))
    return false;
  if (cpu_dot_across(as, op, &vec)) return true;
  return cpu_dot_blocked(as, op, cpu_lane_of(as, op, &size), &vec);
}

bool cpu_is_summed(const Assign *as, Value v) {
  for (uint32_t i = 0; i < as->uses[v].n && as->par >= 0; i++) {
    const Op *op = as->uses[v].at[i];
    if (op->code == OP_DOT && (ir_axes_over(op) >> as->par & 1)) return true;
  }
  return false;
}

// A load of narrow elements whose memory runs across the lanes: there are no
// gathers of less than 32 bits.
bool cpu_is_turned(const Assign *as, Value v) {
  const Op *op = ir_def(as->f, v);
  const Type *t = ir_type(as->f, v);
  if (!op || op->code != OP_LOAD || as->par < 0 || t->n < 2) return false;
  uint32_t last = t->axis[t->n - 1];
  if (dtype_size(t->dtype) >= 4 || (int)last == as->par ||
      !type_has_axis(t, (uint32_t)as->par))
    return false;
  const Type *i = ir_type(as->f, op->args[op->nargs - 1]);
  return i->n == 1 && i->axis[0] == last;
}

static bool only_blocks(const Assign *as, Value v) {
  for (uint32_t i = 0; i < as->uses[v].n; i++)
    if (!cpu_feeds_block(as, v, as->uses[v].at[i])) return false;
  return true;
}

// Does op have an axis that v has not, in its result or beside v?
static bool is_wider(const Assign *as, const Op *op, Value v) {
  AxisSet all = op->nres ? cpu_axes_of(as, op->res[0]) : 0;
  for (uint32_t i = 0; i < op->nargs; i++) all |= cpu_axes_of(as, op->args[i]);
  return (all & ~cpu_axes_of(as, v)) != 0;
}

// A function, or a rounding, that users spread over further axes: where the
// grid has no lanes it would be evaluated as a scalar, again for every panel.
static bool is_spread(const Assign *as, Value v, const Op *op) {
  bool function = op_is_function(op->code);
  bool rounds = op->code == OP_CAST &&
                dtype_is_float(ir_type(as->f, v)->dtype) &&
                dtype_size(ir_type(as->f, v)->dtype) <= 2;
  if (as->par >= 0 || (!function && !rounds)) return false;
  for (uint32_t i = 0; i < as->uses[v].n; i++) {
    const Op *use = as->uses[v].at[i];
    bool made = cpu_feeds_block(as, v, use);  // kept anyway
    if (!made && is_wider(as, use, v)) return true;
  }
  return false;
}

// A tile that a deeper loop reads and that is dear to make is kept where it
// is defined. Operands of dots are kept by their users.
static void plan_eager(Assign *as) {
  for (Value v = 1; v < as->f->values.n; v++) {
    const Type *t = ir_type(as->f, v);
    if (t->kind != TK_ELEM || t->n == 0 || !cpu_is_inline(as, v)) continue;
    bool deeper = false, inout = false;
    for (uint32_t i = 0; i < as->uses[v].n; i++)
      deeper |= in_deeper_loop(as, v, as->uses[v].at[i]) &&
                !cpu_feeds_block(as, v, as->uses[v].at[i]);
    const Op *op = ir_def(as->f, v);
    if (op->code == OP_LOAD)
      for (uint32_t i = 0; i < as->f->params.n; i++)
        inout |= as->f->params.at[i].v == op->args[0] &&
                 as->f->params.at[i].role != PR_IN;
    as->eager[v] =
        inout || is_spread(as, v, op) ||
        (deeper && cpu_value_cost(as, v) >= 8) ||
        ((cpu_is_turned(as, v) || cpu_cross_possible(as, v, as->par)) &&
         !only_blocks(as, v));
  }
}

static bool any_f64(const Func *f) {
  for (Value v = 1; v < f->values.n; v++) {
    const Type *t = &f->values.at[v].type;
    if (t->kind == TK_ELEM && t->n && t->dtype == DT_F64) return true;
  }
  return false;
}

typedef struct Blocks {
  const Assign *as;
  bool *any;
} Blocks;

static void note_block(void *data, Op *op) {
  Blocks *b = data;
  uint32_t vec;
  Dim size;
  if (op->code == OP_DOT &&
      cpu_dot_blocked(b->as, op, cpu_lane_of(b->as, op, &size), &vec))
    *b->any = true;
}

void cpu_plan(Assign *as) {
  uint32_t n = as->f->values.n;
  as->uses = arena_alloc(as->arena, sizeof *as->uses * n);
  ir_walk(as->f->body, count_uses, as);
  as->par = -1;
  for (uint32_t i = 0; i < as->f->grid.n; i++)
    if (as->f->grid.at[i].tile > 1) as->par = (int)as->f->grid.at[i].axis;
  as->lanes = as->target->lanes;
  if (any_f64(as->f)) as->lanes /= 2;
  cpu_walk_plan(as);
  as->forms = NEWN(as->arena, Form *, n);
  as->vec_form = NEWN(as->arena, Form *, n);
  as->row_form = NEWN(as->arena, Form *, n);
  as->pair_form = NEWN(as->arena, Form *, n);
  as->root_of = NEWN(as->arena, Root *, n);
  as->ready = NEWN(as->arena, bool, n);
  as->vec_ready = NEWN(as->arena, bool, n);
  as->eager = NEWN(as->arena, bool, n);
  as->want = NEWN(as->arena, Form *, n);
  as->want_old = NEWN(as->arena, Value, n);
  as->band = NEWN(as->arena, Value, n);
  as->band_last = NEWN(as->arena, int64_t, n);
  as->seen = NEWN(as->arena, Value, n);
  as->pt.idx = NEWN(as->arena, Value, as->f->axes.n + 1);
  as->pt.from = NEWN(as->arena, Value, as->f->axes.n + 1);
  as->pt.to = NEWN(as->arena, Value, as->f->axes.n + 1);
  bool products = false;
  ir_walk(as->f->body, note_block, &(Blocks){as, &products});
  as->brief = strchr(as->f->name, '.') && !products;
  plan_eager(as);
}
