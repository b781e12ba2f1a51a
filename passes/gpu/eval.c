// Values on demand: elementwise ops on scalars, slices and tiles; reductions
// and scans.
#include "passes/gpu/gpu.h"

#include "ir/eval.h"
#include "ir/layout.h"
#include "ir/multiple.h"

#include <assert.h>
#include <math.h>

Value lower_refuse(Place *p, const Op *op, const char *why) {
  if (!p->failed)
    diag_add(p->cx, DIAG_pass_unsupported, op ? op->span : p->f->span,
             arena_printf(&p->cx->session, "%s, which GPU targets do not take",
                          why));
  p->failed = true;
  return 0;
}

void lower_set(Place *p, Value v, Value x) {
  p->memo[v][lower_home(p, ir_type(p->f, v))] = x;
}

Value lower_scalar(Place *p, Value v) {
  return lower_eval(p, v, ROLE_ROW);
}

// ---------------------------------------------------------------- leaves
static Value eval_const(Place *p, Builder *b, const Op *op, const Type *t) {
  Type s = type_scalar(lower_dtype_of(p, op->res[0]));
  Value c = lower_op(b, OP_CONST, NULL, 0, s, op->attrs, op->nattrs);
  return lower_as(b, c, *t);
}

static Value eval_dim(Place *p, Builder *b, const Op *op) {
  Type t = type_scalar(lower_dtype_of(p, op->res[0]));
  return lower_op(b, OP_DIM, NULL, 0, t, op->attrs, op->nattrs);
}

static Value eval_given(Place *p, Builder *b, const Op *op) {
  Value x = p->memo[op->args[0]][0];
  return lower_op(b, OP_GIVEN, &x, 1, type_scalar(DT_BOOL), NULL, 0);
}

// What a group needs; all rows are its own if it is the only one.
static Value eval_own(Place *p, const Op *op) {
  Value x = lower_scalar(p, op->args[0]);
  if (p->groups == 1 || p->failed) return x;
  Value y = lower_scalar(p, op->args[1]);
  if (p->failed) return 0;
  Builder *b = lower_at(p, lower_depth(p, op->res[0]));
  DType dt = lower_dtype_of(p, op->res[0]);
  y = lower_cast(b, dt, y);
  return ir_2(b, OP_GROUP_BOUND, lower_cast(b, dt, x), y);
}

// Operands that say of themselves that they are uniform, one behind the other:
// the producer hands them to the groups so (warps).
static Value eval_mine(Place *p, const Op *op) {
  Value x[HW_MOST_GROUPS];
  for (uint32_t i = 0; i < op->nargs; i++) {
    x[i] = lower_scalar(p, op->args[i]);
    if (p->failed || p->groups == 1) return x[0];
  }
  Builder *b = lower_at(p, lower_depth(p, op->res[0]));
  Type t = type_scalar(DT_I32);
  for (uint32_t i = 0; i < op->nargs; i++) x[i] = lower_cast(b, DT_I32, x[i]);
  for (uint32_t i = 0; i < op->nargs; i++)
    x[i] = lower_op(b, OP_UNIFORM, &x[i], 1, t, NULL, 0);
  return lower_op(b, OP_GROUP_SELECT, x, op->nargs, t, NULL, 0);
}

// Which of the two the shape says: all threads have it, so that a producer
// hands it to them.
static Value eval_planned(Place *p, const Op *op) {
  Value x = lower_scalar(p, op->args[1]), y = lower_scalar(p, op->args[2]);
  if (p->failed) return 0;
  Builder *b = lower_at(p, lower_depth(p, op->res[0]));
  Value on = lower_dim(b, (Dim)ir_attr_i(op, AT_DIM, 0));
  on = ir_2(b, OP_LT, lower_int(b, 0), on);
  x = lower_cast(b, DT_I32, x);
  x = lower_select(b, on, x, lower_cast(b, DT_I32, y));
  return lower_op(b, OP_UNIFORM, &x, 1, type_scalar(DT_I32), NULL, 0);
}

// ---------------------------------------------------------------- elementwise
// Narrow types are only stored, selected and cast.
static DType work_dtype(DType t) {
  if (t == DT_F64 || t == DT_I64 || t == DT_BOOL || t == DT_I32) return t;
  if (dtype_is_float(t)) return DT_F32;
  return t == DT_U32 ? DT_I64 : DT_I32;
}

static DType wider(DType a, DType b) {
  if (a == b) return a;
  bool fa = dtype_is_float(a), fb = dtype_is_float(b);
  if (fa != fb) return fa ? a : b;
  if (a == DT_BOOL) return b;
  if (b == DT_BOOL) return a;
  return dtype_size(a) > dtype_size(b) ? a : b;
}

// The type in which op is computed, given its operands.
static DType op_dtype(Place *p, const Builder *b, const Op *op,
                      const Value *x) {
  bool sel = op->code == OP_SELECT;
  if (sel && lower_dtype(b, x[1]) == lower_dtype(b, x[2]))
    return lower_dtype(b, x[1]);
  DType t = work_dtype(lower_dtype(b, x[sel]));
  for (uint32_t i = sel; i < op->nargs; i++)
    t = wider(t, work_dtype(lower_dtype(b, x[i])));
  DType r = lower_dtype_of(p, op->res[0]);
  return r == DT_BOOL || op->code == OP_CAST ? t : wider(t, work_dtype(r));
}

static Value elementwise(Place *p, Builder *b, const Op *op, const Type *t,
                         Value *x) {
  DType dt = op_dtype(p, b, op, x);
  Type arg = *t, cond = *t;
  arg.dtype = dt;
  cond.dtype = DT_BOOL;
  for (uint32_t i = 0; i < op->nargs; i++)
    x[i] = lower_as(b, x[i], op->code == OP_SELECT && !i ? cond : arg);
  return ir_op(b, op->code, x, op->nargs, NULL, 0, NULL, 1, 0)->res[0];
}

static Value eval_cast(Place *p, Builder *b, const Op *op, const Type *t,
                       Value x) {
  DType to = lower_dtype_of(p, op->res[0]);
  Type at = *t;
  at.dtype = lower_dtype(b, x);
  return lower_cast(b, to, lower_as(b, x, at));
}

// Is v a multiple of 4 and the coordinates of a tile?
static bool is_aligned(const Place *p, Value v) {
  const Op *op = ir_def(p->f, v);
  if (!op || op->code != OP_ADD) return op && op->code == OP_IOTA;
  for (uint32_t i = 0; i < 2; i++)
    if (ir_multiple(p->f, op->args[i]) % 4 == 0 &&
        is_aligned(p, op->args[1 - i]))
      return true;
  return false;
}

// Integers count modulo 2^32: 32 bits are enough.
static Value eval_random(Place *p, Builder *b, const Op *op, const Type *t,
                         Value *x) {
  Type word = *t;
  IrAttr aligned = attr_i(AT_ALIGNED, 1);
  word.dtype = DT_I32;
  for (uint32_t i = 0; i < op->nargs; i++) x[i] = lower_as(b, x[i], word);
  return lower_op(b, OP_RANDOM, x, op->nargs, *t, &aligned,
                  is_aligned(p, op->args[op->nargs - 1]));
}

static Value eval_bits(Builder *b, const Op *op, const Type *t, Value x) {
  Type word = *t;
  word.dtype = DT_I32;
  x = lower_as(b, x, word);
  return lower_op(b, op->code, &x, 1, *t, NULL, 0);
}

// The type of a value of that view, a slice in that role.
static Type place_type(const Place *p, DType dt, const View *v, Role r) {
  bool slice = v->row >= 0 && v->col < 0;
  return slice ? lower_slice_type(p, dt, (uint32_t)v->row, r)
               : lower_type(p, dt, v);
}

static Value eval_elementwise(Place *p, const Op *op, const View *v, Role r) {
  Value x[ELEM_ARGS], y;
  if (lower_quotient(p, op, v, r, &y) || lower_clamp(p, op, v, r, &y)) return y;
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Type *t = ir_type(p->f, op->args[i]);
    x[i] = lower_eval(p, op->args[i], v->col < 0 ? r : lower_role(v, t));
    if (p->failed) return 0;
  }
  Builder *b = lower_at(p, lower_depth(p, op->res[0]));
  b->span = op->span;
  DType dt = lower_dtype_of(p, op->res[0]);
  Type t = place_type(p, dt, v, r);
  if (op->code == OP_CAST) return eval_cast(p, b, op, &t, x[0]);
  if (op->code == OP_RANDOM) return eval_random(p, b, op, &t, x);
  if (op->code == OP_FROM_BITS) return eval_bits(b, op, &t, x[0]);
  y = elementwise(p, b, op, &t, x);
  return dt == DT_I32 ? lower_cast(b, dt, y) : y;
}

static Value relayout(Builder *b, Value x, Type t) {
  t.dtype = lower_dtype(b, x);
  if (type_eq(ir_type(b->fn, x), &t)) return x;
  return lower_op(b, OP_RELAYOUT, &x, 1, t, NULL, 0);
}

// Axes are names, which fragments do not have.
static Value eval_renamed(Place *p, Builder *b, const Op *op, Type full,
                          Role r) {
  Value x = lower_eval(p, op->args[0], r);
  return p->failed ? 0 : relayout(b, x, full);
}

static Value eval_side(Place *p, const Op *op, Role r) {
  View v;
  Type t = *ir_type(p->f, op->res[0]);
  if (!lower_view(p, &t, NULL, &v))
    return lower_refuse(p, op, "a value with three tiled axes");
  Builder *b = lower_at(p, lower_depth(p, op->res[0]));
  b->span = op->span;
  DType dt = lower_dtype_of(p, op->res[0]);
  Type full = place_type(p, dt, &v, r);
  switch (op->code) {
  case OP_CONST: return eval_const(p, b, op, &full);
  case OP_DIM: return eval_dim(p, b, op);
  case OP_GIVEN: return eval_given(p, b, op);
  case OP_GROUP_BOUND: return eval_own(p, op);
  case OP_PLANNED: return eval_planned(p, op);
  case OP_GROUP_SELECT: return eval_mine(p, op);
  case OP_RENAMED: return eval_renamed(p, b, op, full, r);
  case OP_ORIGIN: return lower_origin(p, op);
  case OP_IOTA: return lower_coord(p, b, t.axis[0], r);
  case OP_LOAD:
    if (p->boxed[op->res[0]] && v.col >= 0)
      return lower_reload(p, op->res[0], &v, full);
    return lower_load(p, b, op, &v, full, r);
  default: return eval_elementwise(p, op, &v, r);
  }
}

static RKind one_of(DType t) {
  return t == DT_BOOL ? RK_ANY : RK_SUM;
}

// Columns from rows or rows from columns: the diagonal of a square, added up.
static Value diagonal(Place *p, Builder *b, Value x, uint32_t axis, Role r) {
  DType dt = lower_dtype(b, x), wide = dt == DT_BOOL ? dt : work_dtype(dt);
  Type square = type_frag(wide, p->wide[axis][ROLE_ROW],
                          p->wide[axis][ROLE_COL], p->target->gpu.acc);
  Value i = lower_coord(p, b, axis, ROLE_ROW),
        j = lower_coord(p, b, axis, ROLE_COL);
  Type index = square;
  index.dtype = DT_I32;
  j = lower_as(b, j, index);
  Value same = ir_2(b, OP_EQ, lower_as(b, i, index), j);
  x = lower_as(b, x, square);
  x = lower_select(b, same, x, lower_like(b, x, 0));
  IrAttr at[] = {attr_i(AT_KIND, one_of(wide)), attr_i(AT_POS, !r)};
  x = lower_op(b, OP_FREDUCE, &x, 1, lower_slice_type(p, wide, axis, r), at, 2);
  return lower_cast(b, dt, x);
}

// A slice that was made in another role.
static Value turn(Place *p, Value v, Role r) {
  Role s = 0;
  while (!p->memo[v][s]) s++;
  Value x = p->memo[v][s];
  Builder *b = lower_at(p, lower_depth(p, v));
  uint32_t axis = ir_type(p->f, v)->axis[0];
  DType dt = lower_dtype(b, x);
  if (s % 2 != r % 2 && p->wide[axis][0] != p->wide[axis][1]) {
    x = relayout(b, x, lower_slice_type(p, dt, axis, s % 2));
    x = diagonal(p, b, x, axis, r % 2);
  }
  return relayout(b, x, lower_slice_type(p, dt, axis, r));
}

Value lower_eval(Place *p, Value v, Role r) {
  if (ir_type(p->f, v)->n != 1) r = ROLE_ROW;
  if (p->failed || p->memo[v][r]) return p->memo[v][r];
  const Op *op = ir_def(p->f, v);
  bool made = !op || lower_rooted(p, op);
  return p->memo[v][r] = made ? turn(p, v, r) : eval_side(p, op, r);
}

// ---------------------------------------------------------------- reductions
// The view with a slice on the side of its role.
View lower_one(const View *v, Role r) {
  if (v->row < 0 || v->col >= 0) return *v;
  View w = {.row = v->row, .col = -1, .rsize = v->rsize, .frag = r / 2};
  if (r % 2 == ROLE_COL)
    w = (View){.row = -1, .col = v->row, .csize = v->rsize, .frag = r / 2};
  return w;
}

static Value reduce_along(Place *p, Value x, View *v, RKind k, int axis,
                          Role r) {
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  bool row = axis == v->row && (v->col >= 0 || r % 2 == ROLE_ROW);
  View one = lower_one(v, r);
  Value in = lower_inside(p, b, &one, row, !row);
  double none = eval_identity(k, lower_dtype(b, x));
  if (in) x = lower_select(b, in, x, lower_like(b, x, none));
  IrAttr at[] = {attr_i(AT_KIND, k), attr_i(AT_POS, row ? 0 : 1)};
  DType dt = lower_dtype(b, x);
  if (v->col < 0) {
    *v = (View){.row = -1, .col = -1};
    bool vote = k == RK_ANY || k == RK_ALL;
    IrAttr all[] = {at[0], vote ? attr_i(AT_WARP, 1) : at[1]};
    bool same = vote && p->part >= 0 && !row;  // columns are all in one warp
    return lower_op(b, vote ? OP_VOTE : OP_FREDUCE, &x, 1, type_scalar(dt), all,
                    vote && !same ? 1 : 2);
  }
  Role f = 2 * v->frag;
  Type t = row ? lower_slice_type(p, dt, (uint32_t)v->col, f + ROLE_COL)
               : lower_slice_type(p, dt, (uint32_t)v->row, f + ROLE_ROW);
  Value y = lower_op(b, OP_FREDUCE, &x, 1, t, at, 2);
  if (row) *v = (View){v->col, -1, v->csize, 0, v->frag};
  else v->col = -1;
  return y;
}

// Reduces x, a tile or slice with the axes of v, over `over`. The role of what
// is left, if it is a slice, goes to *r.
static Value reduce_over(Place *p, Value x, View v, RKind k, const IrAttr *over,
                         Role *r) {
  for (uint32_t i = 0; i < over->n; i++) {
    int axis = (int)over->list[i];
    Role left = v.col < 0 ? *r : 2 * v.frag + (axis == v.row);
    x = reduce_along(p, x, &v, k, axis, *r);
    *r = left;
  }
  return x;
}

// Puts a rooted slice or tile where it is looked for.
static void keep(Place *p, Value v, Value x, Role r) {
  p->memo[v][ir_type(p->f, v)->n == 1 ? r : ROLE_ROW] = x;
}

static void root_reduce(Place *p, const Op *op) {
  View v;
  const Type *t = ir_type(p->f, op->args[0]);
  if (!lower_view(p, t, NULL, &v)) {
    lower_refuse(p, op, "a reduction of a value with three tiled axes");
    return;
  }
  Role r = lower_home(p, t);
  const Op *def = ir_def(p->f, op->args[0]);
  // Columns are all in one warp; where there are many warps each would do all
  // of a long slice. Rows of a tile that is not multiplied stay where they are.
  if (t->n == 1 && def && !lower_rooted(p, def) && (int)t->axis[0] != p->tall &&
      (p->warps <= HW_GROUP_WARPS || p->wide[t->axis[0]][ROLE_COL] < p->rows))
    r = ROLE_COL;
  Value x = lower_eval(p, op->args[0], r);
  if (p->failed) return;
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  x = lower_cast(b, work_dtype(lower_dtype(b, x)), x);
  RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  x = reduce_over(p, x, v, k, ir_attr(op, AT_OVER), &r);
  keep(p, op->res[0], x, r);
}

// The part of a tile or slice at a coordinate: the sum of what is there alone.
static void root_row(Place *p, const Op *op) {
  View v;
  const Type *t = ir_type(p->f, op->args[0]);
  if (!lower_view(p, t, NULL, &v)) {
    lower_refuse(p, op, "a row of a value with three tiled axes");
    return;
  }
  int64_t axis = ir_attr_i(op, AT_AXIS, 0);
  Role r = lower_home(p, t);
  Value x = lower_eval(p, op->args[0], r), i = lower_scalar(p, op->args[1]);
  if (p->failed) return;
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  DType dt = lower_dtype(b, x), wide = dt == DT_BOOL ? dt : work_dtype(dt);
  x = lower_cast(b, wide, x);
  Type index = *ir_type(b->fn, x);
  index.dtype = DT_I32;
  Role along = v.col < 0 ? r : 2 * v.frag + (axis == v.col);
  Value at = lower_as(b, lower_coord(p, b, (uint32_t)axis, along), index);
  Value there = ir_2(b, OP_EQ, at, lower_as(b, lower_index(b, i), index));
  x = lower_select(b, there, x, lower_like(b, x, 0));
  IrAttr over = attr_list(AT_OVER, &axis, 1);
  x = reduce_over(p, x, v, one_of(wide), &over, &r);
  keep(p, op->res[0], lower_cast(b, dt, x), r);
}

// Rows of the operand are those of the group, and begin with its diagonals.
static void root_skew(Place *p, const Op *op) {
  View v;
  Value x = lower_eval(p, op->args[0], ROLE_ROW);
  if (p->failed) return;
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  lower_view(p, ir_type(p->f, op->res[0]), NULL, &v);
  int64_t pos = ir_attr_i(op, AT_POS, 0);
  bool back = ir_attr_i(op, AT_REVERSE, 0) != 0;
  bool turned = !type_has_axis(ir_type(p->f, op->args[0]), (uint32_t)v.row);
  if (back == turned) pos -= (p->groups - 1) * p->rows;
  IrAttr at[3] = {attr_i(AT_POS, pos)};
  uint32_t n = 1;
  if (back) at[n++] = attr_i(AT_REVERSE, 1);
  if (turned) at[n++] = attr_i(AT_TRANS, 1);
  p->memo[op->res[0]][0] =
      lower_op(b, OP_SKEW, &x, 1, lower_type(p, DT_F32, &v), at, n);
}

static void root_others(Place *p, const Op *op) {
  Value x =
      lower_eval(p, op->args[0], lower_home(p, ir_type(p->f, op->res[0])));
  if (p->failed) return;
  IrAttr kind = attr_i(AT_KIND, ir_attr_i(op, AT_KIND, RK_SUM));
  lower_set(p, op->res[0],
            lower_op(lower_at(p, (int)p->scopes.n - 1), OP_OTHERS, &x, 1,
                     *ir_type(p->g, x), &kind, 1));
}

static void root_peers(Place *p, const Op *op) {
  Value *x = NEWN(p->arena, Value, op->nargs + 1);
  Type *types = NEWN(p->arena, Type, op->nres + 1);
  uint32_t peers = op->nres / op->nargs;
  for (uint32_t i = 0; i < op->nargs; i++) {
    x[i] =
        lower_eval(p, op->args[i], lower_home(p, ir_type(p->f, op->args[i])));
    if (p->failed) return;
  }
  for (uint32_t i = 0; i < op->nres; i++) {
    View v;
    types[i] = *ir_type(p->g, x[i / peers]);
    if (ir_type(p->f, op->res[i])->n < 2) continue;
    lower_view(p, ir_type(p->f, op->res[i]), NULL, &v);
    types[i] = lower_type(p, types[i].dtype, &v);
  }
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  Op *made = ir_op(b, OP_PEERS, x, op->nargs, op->attrs, op->nattrs, types,
                   op->nres, 0);
  for (uint32_t i = 0; i < op->nres; i++)
    lower_set(p, op->res[i], made->res[i]);
}

// A product that no matrix unit takes: multiply, then add up.
void lower_slow_dot(Place *p, const Op *op) {
  View v;
  const Type *s = ir_type(p->f, op->args[0]), *t = ir_type(p->f, op->args[1]);
  if (!lower_view(p, s, t, &v)) {
    lower_refuse(p, op,
                 "a product with three tiled axes that is no product "
                 "of matrices");
    return;
  }
  Type both = type_union(s, t, DT_F32);
  Role r = lower_home(p, &both);
  // On AMD a slice of columns is long: it is loaded behind the tile.
  bool late = p->target->gpu.vendor == VENDOR_AMD && s->n < t->n;
  Value y = late ? lower_eval(p, op->args[1], lower_role(&v, t)) : 0;
  Value x = lower_eval(p, op->args[0], v.col < 0 ? r : lower_role(&v, s));
  if (!late) y = lower_eval(p, op->args[1], v.col < 0 ? r : lower_role(&v, t));
  if (p->failed) return;
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  DType dt = work_dtype(ir_type(p->f, op->res[0])->dtype);
  y = lower_cast(b, dt, y);
  x = lower_2(b, OP_MUL, lower_cast(b, dt, x), y);
  x = reduce_over(p, x, v, RK_SUM, ir_attr(op, AT_OVER), &r);
  if (op->nargs == 3) x = lower_2(b, OP_ADD, lower_eval(p, op->args[2], r), x);
  if (!p->failed) keep(p, op->res[0], x, r);
}

static void root_vote(Place *p, const Op *op) {
  View v;
  const Type *t = ir_type(p->f, op->args[0]);
  bool any = op->code == OP_ANY_OF;
  if (!lower_view(p, t, NULL, &v)) {
    lower_refuse(p, op, "a test of a value with three tiled axes");
    return;
  }
  Role r = lower_home(p, t);
  Value x = lower_eval(p, op->args[0], r);
  if (p->failed) return;
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  if (v.row >= 0) {
    View w = lower_one(&v, r);
    Value in = lower_inside(p, b, &w, true, true);
    if (in) x = lower_select(b, in, x, lower_like(b, x, any ? 0 : 1));
    IrAttr at = attr_i(AT_KIND, any ? RK_ANY : RK_ALL);
    x = lower_op(b, OP_VOTE, &x, 1, type_scalar(DT_BOOL), &at, 1);
  }
  p->memo[op->res[0]][0] = x;
}

// What a padded tile has behind the axis' end counts nothing: a suffix begins
// there.
static Value end_of_axis(Place *p, Builder *b, Value x, const View *v, bool row,
                         RKind k) {
  Value in = lower_inside(p, b, v, row, !row);
  if (!in) return x;
  return lower_select(b, in, x,
                      lower_like(b, x, eval_identity(k, lower_dtype(b, x))));
}

// The scan of a slice: the sums of the rows of a square that has the slice in
// its columns, up to the diagonal, and what was summed before.
static void scan_slice(Place *p, const Op *op) {
  const Type *t = ir_type(p->f, op->res[0]);
  uint32_t axis = t->axis[0];
  bool suffix = ir_attr_i(op, AT_DIR, DIR_PREFIX) == DIR_SUFFIX;
  RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  Value x = lower_eval(p, op->args[0], ROLE_COL);
  Value before = op->nargs > 1 ? lower_eval(p, op->args[1], ROLE_ROW) : 0;
  if (p->failed) return;
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  DType dt = work_dtype(lower_dtype_of(p, op->res[0]));
  Type square = type_frag(dt, p->wide[axis][ROLE_ROW], p->wide[axis][ROLE_COL],
                          p->target->gpu.acc),
       index = square;
  index.dtype = DT_I32;
  Value to = lower_as(b, lower_coord(p, b, axis, ROLE_ROW), index);
  Value from = lower_as(b, lower_coord(p, b, axis, ROLE_COL), index);
  bool none = ir_attr_i(op, AT_EXCLUSIVE, 0) != 0;
  Value in =
      ir_2(b, none ? OP_LT : OP_LE, suffix ? to : from, suffix ? from : to);
  View cols = {.row = -1, .col = (int)axis, .csize = t->size[0]};
  if (suffix) x = end_of_axis(p, b, x, &cols, false, k);
  x = lower_as(b, x, square);
  x = lower_select(b, in, x, lower_like(b, x, eval_identity(k, dt)));
  IrAttr at[] = {attr_i(AT_KIND, k), attr_i(AT_POS, 1)};
  Type rows = lower_slice_type(p, dt, axis, ROLE_ROW);
  x = lower_op(b, OP_FREDUCE, &x, 1, rows, at, 2);
  if (before) x = ir_combine(b, k, x, lower_as(b, before, rows));
  p->memo[op->res[0]][ROLE_ROW] = x;
}

static void root_scan(Place *p, const Op *op) {
  View v;
  const Type *t = ir_type(p->f, op->res[0]);
  if (t->n == 1 && t->axis[0] == ir_attr_i(op, AT_AXIS, 0)) {
    scan_slice(p, op);
    return;
  }
  if (!lower_view(p, t, NULL, &v) || v.col < 0) {
    lower_refuse(p, op, "a scan that is not along an axis of a tile");
    return;
  }
  int axis = (int)ir_attr_i(op, AT_AXIS, 0);
  Value x[2];
  for (uint32_t i = 0; i < op->nargs; i++)
    x[i] =
        lower_eval(p, op->args[i], lower_role(&v, ir_type(p->f, op->args[i])));
  if (p->failed) return;
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  Type tile = lower_type(p, work_dtype(lower_dtype_of(p, op->res[0])), &v);
  x[0] = lower_as(b, x[0], tile);
  bool row = axis == v.row;
  if (ir_attr_i(op, AT_DIR, DIR_PREFIX) == DIR_SUFFIX)
    x[0] =
        end_of_axis(p, b, x[0], &v, row, (RKind)ir_attr_i(op, AT_KIND, RK_SUM));
  if (op->nargs > 1)
    x[1] = lower_as(b, x[1],
                    lower_slice_type(p, tile.dtype,
                                     (uint32_t)(row ? v.col : v.row),
                                     2 * v.frag + row));
  IrAttr at[4];
  uint32_t n = 0;
  at[n++] = attr_i(AT_KIND, ir_attr_i(op, AT_KIND, RK_SUM));
  at[n++] = attr_i(AT_POS, row ? 0 : 1);
  at[n++] = attr_i(AT_DIR, ir_attr_i(op, AT_DIR, DIR_PREFIX));
  if (ir_attr_i(op, AT_EXCLUSIVE, 0)) at[n++] = attr_i(AT_EXCLUSIVE, 1);
  p->memo[op->res[0]][0] = lower_op(b, OP_FSCAN, x, op->nargs, tile, at, n);
}

// ---------------------------------------------------------------- spans
// The extreme of T[.., i] for lo <= i <= hi, by a loop.
static void root_span(Place *p, const Op *op) {
  bool max = op->code == OP_SPAN_MAX;
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  Value args[4], idx[MAX_AXES + 1];
  args[0] = lower_cast(b, DT_I64, lower_scalar(p, op->args[1]));
  args[1] = lower_cast(b, DT_I64, lower_scalar(p, op->args[2]));
  uint32_t n = 0;
  idx[n++] = p->memo[op->args[0]][0];
  for (uint32_t i = 3; i < op->nargs; i++)
    idx[n++] = lower_index(b, lower_scalar(p, op->args[i]));
  if (p->failed) return;
  DType dt = lower_dtype_of(p, op->res[0]);
  Type t = type_scalar(dt);
  Type elem = type_scalar(ir_type(p->f, op->args[0])->dtype);
  Value one = ir_const_i(b, DT_I64, 1);
  args[1] = ir_2(b, OP_ADD, args[1], one);
  args[2] = one;
  double id = eval_identity(max ? RK_MAX : RK_MIN, dt);
  args[3] = dtype_is_float(dt) ? ir_const_f(b, dt, id)
                               : ir_const_i(b, dt, dtype_int(id));
  Op *loop = ir_op(b, OP_FOR, args, 4, NULL, 0, &t, 1, 1);
  Builder in = {.fn = p->g, .region = loop->regions[0], .span = op->span};
  Value i = ir_region_param(in.region, type_scalar(DT_I64), "i");
  idx[n++] = lower_index(&in, i);
  Value old = ir_region_param(in.region, t, "best");
  Value x = lower_cast(&in, dt, lower_op(&in, OP_GLOAD, idx, n, elem, NULL, 0));
  Value y = ir_2(&in, max ? OP_MAX : OP_MIN, old, x);
  ir_yield(&in, &y, 1);
  p->memo[op->res[0]][0] = loop->res[0];
}

void lower_root(Place *p, Op *op) {
  lower_at(p, (int)p->scopes.n - 1)->span = op->span;
  switch (op->code) {
  case OP_REDUCE: root_reduce(p, op); return;
  case OP_SCAN: root_scan(p, op); return;
  case OP_ANY_OF:
  case OP_ALL_OF: root_vote(p, op); return;
  case OP_DOT: lower_dot(p, op); return;
  case OP_ROW: root_row(p, op); return;
  case OP_SKEW: root_skew(p, op); return;
  case OP_OTHERS: root_others(p, op); return;
  case OP_PEERS: root_peers(p, op); return;
  case OP_TRINV: lower_trinv(p, op); return;
  case OP_SPAN_MIN:
  case OP_SPAN_MAX: root_span(p, op); return;
  default: {  // a load of what is written too
    Role r = lower_home(p, ir_type(p->f, op->res[0]));
    lower_set(p, op->res[0], eval_side(p, op, r));
  }
  }
}
