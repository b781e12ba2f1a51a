// Tensors: loads and stores of fragments, boxes copied to shared memory, and
// operands of products.
#include "ir/box.h"
#include "ir/multiple.h"
#include "passes/support/columns.h"
#include "passes/support/cost.h"
#include "passes/support/widened.h"
#include "passes/gpu/gpu.h"

#include <assert.h>

// ---------------------------------------------------------------- indices
// An index is 32 bits wide: what does not fit is out of range anyway.
Value lower_index(Builder *b, Value x) {
  if (!x) return 0;
  DType t = lower_dtype(b, x);
  if (t == DT_U32) x = lower_cast(b, t = DT_I64, x);
  if (t == DT_I64) {
    x = lower_2(b, OP_MAX, x, ir_const_i(b, t, INT32_MIN));
    x = lower_2(b, OP_MIN, x, ir_const_i(b, t, INT32_MAX));
  }
  return lower_cast(b, DT_I32, x);
}

static Value index_value(Place *p, Value v, Role r);

// A coordinate plus a wide scalar: the sum of their indices. If it wraps
// around it is negative, and so out of range.
static Value sum_index(Place *p, Value v, Role r) {
  const Op *op = ir_def(p->f, v);
  if (!op || op->code != OP_ADD || ir_type(p->f, v)->n != 1 ||
      lower_dtype_of(p, v) != DT_I64)
    return 0;
  uint32_t s = ir_type(p->f, op->args[0])->n ? 1 : 0;
  if (ir_type(p->f, op->args[s])->n) return 0;
  Value x = index_value(p, op->args[!s], r);
  Value y = index_value(p, op->args[s], ROLE_ROW);
  if (p->failed) return 0;
  Builder *b = lower_at(p, lower_depth(p, v));
  return lower_2(b, OP_ADD, x, lower_as(b, y, *ir_type(p->g, x)));
}

static Value index_value(Place *p, Value v, Role r) {
  Value sum = sum_index(p, v, r);
  if (sum || p->failed) return sum;
  Value x = lower_eval(p, v, r);
  return p->failed ? 0 : lower_index(lower_at(p, lower_depth(p, v)), x);
}

static Role index_role(const Place *p, const View *v, Value x, Role r) {
  const Type *t = ir_type(p->f, x);
  return v->col < 0 ? r : lower_role(v, t);
}

Value lower_index_of(Place *p, Value v, const View *view) {
  return index_value(p, v, index_role(p, view, v, ROLE_ROW));
}

// What is said of indices.
static const AttrId promises[] = {AT_INBOUNDS, AT_LOOSE};

Value lower_load(Place *p, Builder *b, const Op *op, const View *v, Type t,
                 Role r) {
  Value args[MAX_AXES + 1], same = lower_block_load(p, b, op, v, t);
  if (same || p->failed) return same;
  args[0] = p->memo[op->args[0]][0];
  for (uint32_t i = 1; i < op->nargs; i++) {
    args[i] = index_value(p, op->args[i], index_role(p, v, op->args[i], r));
    if (p->failed) return 0;
  }
  IrAttr how[2];
  uint32_t n = 0;
  for (size_t i = 0; i < sizeof promises / sizeof *promises; i++)
    if (ir_attr_i(op, promises[i], 0)) how[n++] = attr_i(promises[i], 1);
  t.dtype = ir_type(p->f, op->args[0])->dtype;
  Value x = lower_op(b, OP_GLOAD, args, op->nargs, t, how, n);
  // Bounds of loops and coordinates of tiles: the hardware must be told.
  bool steers = t.kind == TK_ELEM && t.dtype == DT_I32;
  return steers ? lower_op(b, OP_UNIFORM, &x, 1, t, NULL, 0) : x;
}

// Is index i of the access the whole extent of that axis and nothing else?
static bool is_whole(const Place *p, const Op *op, uint32_t first, uint32_t i,
                     uint32_t axis) {
  const Op *x = ir_def(p->f, op->args[first + i]);
  const Type *t = ir_type(p->f, op->args[0]);
  return x && x->code == OP_IOTA && ir_type(p->f, x->res[0])->axis[0] == axis &&
         t->size[i] == p->f->axes.at[axis].extent;
}

// Does the tensor itself drop what lies behind the axis' end?
static bool ends_itself(const Place *p, const Op *op, uint32_t first,
                        int axis) {
  uint32_t rank = ir_type(p->f, op->args[0])->n;
  for (uint32_t i = 0; axis >= 0 && i < rank; i++)
    if (is_whole(p, op, first, i, (uint32_t)axis)) return true;
  return axis < 0;
}

static bool is_inout(const Place *p, Value tensor) {
  for (uint32_t i = 0; i < p->f->params.n; i++)
    if (p->f->params.at[i].v == tensor)
      return p->f->params.at[i].role == PR_INOUT;
  return false;
}

typedef struct Read {
  Value tensor;
  bool any;
} Read;

static void find_read(void *data, Op *op) {
  Read *r = data;
  r->any |= op->code == OP_LOAD && op->args[0] == r->tensor;
}

// Other threads may not yet have read what a store to it overwrites.
static bool is_read_too(const Place *p, Value tensor) {
  Read r = {.tensor = tensor};
  if (is_inout(p, tensor)) ir_walk(p->f->body, find_read, &r);
  return r.any;
}

// Is one of them a value of rows, the other one of columns?
static bool across(const Builder *b, Value x, Value y) {
  const Type *s = ir_type(b->fn, x), *t = ir_type(b->fn, y);
  return s->kind == TK_FRAG && t->kind == TK_FRAG && s->slice != SLICE_NONE &&
         t->slice != SLICE_NONE && s->slice != t->slice;
}

// An index has the shape of what is stored where only the mask has an axis: a
// part of a vector that stores a number of the whole, a row that stores what
// all rows have in common.
static void spread_index(Builder *b, Value *at, uint32_t n, Type tile) {
  if (tile.kind != TK_FRAG) return;
  bool seen[SLICE_COL + 1] = {0};
  for (uint32_t i = 0; i < n; i++)
    if (lower_is_frag(b, at[i])) seen[ir_type(b->fn, at[i])->slice] = true;
  if (seen[SLICE_NONE] || (seen[SLICE_ROW] && seen[SLICE_COL])) return;
  if (tile.slice != SLICE_NONE && seen[tile.slice]) return;
  tile.dtype = ir_type(b->fn, at[0])->dtype;
  at[0] = lower_as(b, at[0], tile);
}

Type lower_stored(const Place *p, const Op *op) {
  Type all = *ir_type(p->f, op->args[1]);
  for (uint32_t i = 2; i < op->nargs; i++)
    all = type_union(&all, ir_type(p->f, op->args[i]), all.dtype);
  return all;
}

void lower_store(Place *p, const Op *op) {
  Type all = lower_stored(p, op);
  View v;
  if (!lower_view(p, &all, NULL, &v)) {
    lower_refuse(p, op, "a store of a value with three tiled axes");
    return;
  }
  Role r = lower_home(p, &all);
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  b->span = op->span;
  Value args[MAX_AXES + 3];
  DType dt = ir_type(p->f, op->args[0])->dtype;
  args[0] = p->memo[op->args[0]][0];
  uint32_t n = op->nargs;
  for (uint32_t i = 1; i < n && !p->failed; i++) {
    Role at = index_role(p, &v, op->args[i], r);
    args[i] = i == 1 ? lower_eval(p, op->args[i], at)
                     : index_value(p, op->args[i], at);
  }
  if (p->failed) return;
  View w = lower_one(&v, r);
  Type tile = v.col < 0 && v.row >= 0
                  ? lower_slice_type(p, dt, (uint32_t)v.row, r)
                  : lower_type(p, dt, &v);
  args[1] = lower_as(b, args[1], tile);
  Value in = lower_inside(p, b, &w, !ends_itself(p, op, 2, w.row),
                          !ends_itself(p, op, 2, w.col));
  bool masked = ir_attr_i(op, AT_MASKED, 0);
  Type btile = tile;
  btile.dtype = DT_BOOL;
  if (masked) {
    // The mask is no index.
    Value m =
        lower_eval(p, op->args[n - 1], index_role(p, &v, op->args[n - 1], r));
    if (in && across(b, m, in)) m = lower_as(b, m, btile);
    in = in ? lower_2(b, OP_AND, m, in) : m;
    n--;
  }
  spread_index(b, args + 2, n - 2, tile);
  if (in) args[n++] = lower_as(b, in, btile);
  if (is_read_too(p, op->args[0])) ir_bare(b, OP_GSYNC);
  IrAttr at[2];
  uint32_t nattrs = 0;
  if (in) at[nattrs++] = attr_i(AT_MASKED, 1);
  if (ir_attr_i(op, AT_ADD, 0)) {
    at[nattrs++] = attr_i(AT_ADD, 1);
    if (p->target->gpu.vendor != VENDOR_NVIDIA)
      lower_refuse(p, op, "adds to memory");
  }
  ir_op(b, OP_GSTORE, args, n, at, nattrs, NULL, 0, 0);
}

// ---------------------------------------------------------------- boxes
bool lower_unit_steps(Place *p, Value v, uint32_t axis, Value *origin,
                      bool emit) {
  const Op *op = ir_def(p->f, v);
  if (!op || ir_type(p->f, v)->n != 1 || ir_type(p->f, v)->axis[0] != axis)
    return false;
  if (op->code == OP_IOTA) {
    *origin = 0;
    return true;
  }
  if (op->code != OP_ADD && op->code != OP_SUB) return false;
  for (uint32_t i = 0; i < 2; i++) {
    Value s = op->args[1 - i];
    if (ir_type(p->f, s)->n || (op->code == OP_SUB && i)) continue;
    if (!lower_unit_steps(p, op->args[i], axis, origin, emit)) return false;
    if (!emit) return true;
    Value x = index_value(p, s, ROLE_ROW);
    if (p->failed) return false;
    int d = lower_depth(p, v);
    Builder *b = lower_at(p, d);
    if (op->code == OP_SUB) x = ir_2(b, OP_SUB, lower_like(b, x, 0), x);
    *origin = *origin ? ir_2(b, OP_ADD, *origin, x) : x;
    return true;
  }
  return false;
}

static uint32_t box_size(const Place *p, uint32_t axis) {
  return p->wide[axis][(int)axis == p->lane ? ROLE_ROW : ROLE_COL];
}

// Positions of the tensor's axes along which the box lies, in ascending order.
// Of one in pieces (passes/tile/page_tiles.c) rows begin again in each, and the
// coordinate at another position is another one.
typedef struct Box {
  int pos[2];
  uint32_t axis[2];
  uint32_t pieces;  // 1: it is whole
  int64_t rows;     // of a piece
  int piece_pos;
  Value piece[COST_PAGES_MOST];
  bool told;      // each row is where indices say
  int64_t turns;  // of a row, which are rows of the box; 1: it has none
} Box;

static bool is_iota(const Place *p, Value v) {
  const Op *op = ir_def(p->f, v);
  return op && op->code == OP_IOTA;
}

// v = select(iota < rows, first, select(iota < 2 rows, second, ..)), numbers.
static bool in_pieces(const Place *p, Value v, Box *box) {
  box->pieces = 0;
  for (;; v = ir_def(p->f, v)->args[2]) {
    const Op *op = ir_def(p->f, v);
    double end;
    bool last = !ir_type(p->f, v)->n;
    if (box->pieces == COST_PAGES_MOST) return false;
    box->piece[box->pieces++] = last                          ? v
                                : op && op->code == OP_SELECT ? op->args[1]
                                                              : 0;
    if (last) return box->pieces > 1;
    const Op *lt =
        op && op->code == OP_SELECT ? ir_def(p->f, op->args[0]) : NULL;
    if (!lt || lt->code != OP_LT || !is_iota(p, lt->args[0]) ||
        ir_type(p->f, op->args[1])->n ||
        !ir_const_value(p->f, lt->args[1], &end))
      return false;
    if (box->pieces == 1) box->rows = (int64_t)end;
    if (end != (double)(box->rows * box->pieces)) return false;
  }
}

// v = iota mod rows
static bool is_slot(const Place *p, Value v, const Box *box) {
  const Op *op = ir_def(p->f, v);
  double rows;
  return box->pieces > 1 && op && op->code == OP_MOD &&
         is_iota(p, op->args[0]) && ir_const_value(p->f, op->args[1], &rows) &&
         rows == (double)box->rows;
}

// The index of the load that has pieces, 0: none has.
static uint32_t find_pieces(const Place *p, const Op *op, Box *box) {
  for (uint32_t i = 1; i < op->nargs && p->target->gpu.hopper; i++)
    if (ir_type(p->f, op->args[i])->n == 1 && in_pieces(p, op->args[i], box))
      return i;
  box->pieces = 1;
  return 0;
}

// The largest power of two known to divide where an index begins that
// lower_unit_steps takes.
static int64_t multiple_of_first(const Place *p, Value v) {
  const Op *op = ir_def(p->f, v);
  if (op->code == OP_IOTA) return MULTIPLE_MOST;
  bool left = ir_type(p->f, op->args[0])->n != 0;
  int64_t s = ir_multiple(p->f, op->args[left]);
  int64_t rest = multiple_of_first(p, op->args[!left]);
  return s < rest ? s : rest;
}

// Copies begin at a multiple of 16 bytes: on an H100 a box at other columns is
// an illegal instruction.
static bool begins_whole(const Place *p, const Op *op, const Box *box) {
  uint32_t last = op->nargs - 1;
  int64_t size = (int64_t)dtype_size(ir_type(p->f, op->res[0])->dtype);
  return box->pos[1] + 1 != (int)last || lower_staged(p) ||
         multiple_of_first(p, op->args[last]) * size % HW_SMEM_WORDS == 0;
}

// Keys' rows that indices tell one by one: a group of threads copies them,
// lines of 128 bytes, where keys are read once.
static bool can_tell(const Place *p, const Op *op, const Type *idx) {
  const Type *t = ir_type(p->f, op->res[0]);
  int64_t cols, size = (int64_t)dtype_size(t->dtype);
  int at = type_axis_at(t, idx->axis[0]);
  return p->target->gpu.hopper && p->once && t->n == 2 && at >= 0 &&
         p->f->axes.at[idx->axis[0]].role == AX_KEY && size == 2 &&
         dim_is_const(&p->m->dims, t->size[!at], &cols) && cols % HW_PANEL == 0;
}

// A row, less what is one number for all: that, or 0.
static Value row_of_turns(Place *p, Value v, Value *first) {
  const Op *op = ir_def(p->f, v);
  *first = 0;
  for (uint32_t i = 0; op && op->code == OP_ADD && i < 2; i++) {
    if (ir_type(p->f, op->args[i])->n) continue;
    *first = op->args[i];
    return op->args[!i];
  }
  return v;
}

// Index i is x / n, or more, and the next one x mod n, of rows x that begin
// with a row's first turn: x, or 0.
static Value turns_of(Place *p, const Op *op, uint32_t i, int64_t *n) {
  Value first;
  const Op *row = ir_def(p->f, row_of_turns(p, op->args[i], &first));
  const Op *turn = i + 2 < op->nargs ? ir_def(p->f, op->args[i + 1]) : NULL;
  Value o;
  if (!p->target->gpu.hopper || !row || row->code != OP_FLOORDIV || !turn ||
      turn->code != OP_MOD || turn->args[0] != row->args[0] ||
      turn->args[1] != row->args[1] || !ir_const_whole(p->f, row->args[1], n))
    return 0;
  const Type *x = ir_type(p->f, row->args[0]);
  int64_t size;
  bool is = *n > 1 && x->n == 1 &&
            ir_type(p->f, op->args[0])->size[i] == dim_const(&p->m->dims, *n) &&
            dim_is_const(&p->m->dims, x->size[0], &size) && size % *n == 0 &&
            box_size(p, x->axis[0]) == size &&
            lower_unit_steps(p, row->args[0], x->axis[0], &o, false) &&
            multiple_of_first(p, row->args[0]) % *n == 0;
  return is ? row->args[0] : 0;
}

// Of op, a load, or such rows' operand that widens one.
static bool find_box(Place *p, const Op *operand, Box *box) {
  const Type *t = ir_type(p->f, operand->res[0]);
  const Op *op = widened_load(p->f, operand);
  if (ir_type(p->f, op->args[0])->quads) return false;
  uint32_t n = 0, pieces = find_pieces(p, op, box), slots = 0;
  Value o;
  box->piece_pos = (int)pieces - 1;
  box->told = false;
  box->turns = 1;
  for (uint32_t i = 1; i < op->nargs; i++) {
    const Type *x = ir_type(p->f, op->args[i]);
    if (x->n == 0 || i == pieces) continue;
    if (x->n != 1) return false;
    if (!pieces && !n && turns_of(p, op, i, &box->turns)) {
      box->pos[n] = (int)i++ - 1;
      box->axis[n++] = x->axis[0];
      continue;
    }
    bool told = !pieces && can_tell(p, operand, x) &&
                !lower_unit_steps(p, op->args[i], x->axis[0], &o, false);
    box->told |= told;
    if (n == 1 && x->axis[0] == box->axis[0] && box->told) continue;
    if (n == 2) return false;
    bool slot = pieces &&
                x->axis[0] == ir_type(p->f, op->args[pieces])->axis[0] &&
                is_slot(p, op->args[i], box);
    slots += slot;
    if (slot && n) return false;  // pieces are rows
    if (!slot && !told &&
        !lower_unit_steps(p, op->args[i], x->axis[0], &o, false))
      return false;
    box->pos[n] = (int)i - 1;
    box->axis[n++] = x->axis[0];
  }
  if (n != 2 || t->n != 2 || box->axis[0] == box->axis[1]) return false;
  // Columns lie next to each other.
  if (box->pos[1] != (int)op->nargs - 2) return false;
  if (p->target->gpu.hopper && op->nargs - 1 > HW_MAP_AXES) return false;
  if (!begins_whole(p, op, box)) return false;
  if (pieces &&
      (slots != 1 || box_size(p, box->axis[0]) != box->pieces * box->rows))
    return false;
  for (uint32_t i = 0; i < 2; i++) {
    uint32_t a = box->axis[i];
    Dim size = t->size[type_axis_at(t, a)];
    if (lower_padded(p, a, size, ROLE_COL) && (int)a != p->lane &&
        !is_whole(p, op, 1, (uint32_t)box->pos[i], a))
      return false;
  }
  return true;
}

// v = select(sign, -x, x) with a sign that is one for the task: x.
static Value unflipped(const Place *p, Value v, Value *sign) {
  const Op *op = ir_def(p->f, v);
  *sign = 0;
  if (!op || op->code != OP_SELECT || ir_type(p->f, op->args[0])->n) return v;
  const Op *neg = ir_def(p->f, op->args[1]);
  if (!neg || neg->code != OP_NEG || neg->args[0] != op->args[2]) return v;
  *sign = op->args[0];
  return op->args[2];
}

// Of a tile with a sign each group has its own: one changes it in place.
bool lower_is_box(Place *p, Value v, DType t) {
  Value sign;
  if (p->taken[v]) return ir_type(p->f, v)->dtype == t;
  v = unflipped(p, v, &sign);
  const Op *op = ir_def(p->f, v);
  if (sign && p->lane >= 0 &&
      !type_has_axis(ir_type(p->f, v), (uint32_t)p->lane))
    return false;
  Box box;
  const Op *load = widened_load(p->f, op);
  return load && load->code == OP_LOAD && ir_type(p->f, v)->dtype == t &&
         !lower_rooted(p, load) && find_box(p, op, &box) &&
         (load == op || (box.told && !sign)) && !(sign && box.pieces > 1);
}

bool lower_is_rows(Place *p, Value v, DType t) {
  Value sign, o;
  v = unflipped(p, v, &sign);
  const Op *op = ir_def(p->f, v);
  const Type *own = ir_type(p->f, v);
  View w;
  if (!p->target->gpu.hopper || !op || op->code != OP_LOAD || own->n != 2 ||
      own->dtype != t || lower_rooted(p, op) || lower_is_box(p, v, t) ||
      ir_type(p->f, op->args[0])->quads)
    return false;
  lower_view(p, own, NULL, &w);
  uint32_t last = op->nargs - 1, col = (uint32_t)w.col;
  return w.row == p->lane &&
         !lower_padded(p, (uint32_t)w.row, w.rsize, ROLE_ROW) &&
         lower_unit_steps(p, op->args[last], col, &o, false) &&
         (!lower_padded(p, col, w.csize, ROLE_COL) ||
          is_whole(p, op, 1, last - 1, col));
}

// The load that v widens, if it is a box of type t, or 0.
static Value box_of(Place *p, Value v, DType t) {
  const Op *op = ir_def(p->f, v);
  bool cast = op && op->code == OP_CAST && ir_type(p->f, v)->dtype == DT_F32;
  return cast && lower_is_box(p, op->args[0], t) ? op->args[0] : 0;
}

bool lower_in_parts(Place *p, Value v, DType t, Value *part) {
  uint32_t i = 0;
  const Op *op = ir_def(p->f, v);
  if (lower_staged(p)) return false;
  for (; op && op->code == OP_ADD && i + 1 < HW_F32_PARTS; i++) {
    part[i] = box_of(p, op->args[1], t);
    v = op->args[0];
    if (!part[i]) return false;
    op = ir_def(p->f, v);
  }
  part[i] = box_of(p, v, t);
  return i + 1 == HW_F32_PARTS && part[i];
}

// The load of a part, whose box has the columns of all parts.
static bool is_of_parts(const Place *p, const Op *load, Columns *c) {
  return p->part >= 0 && columns_of(p->f, load, c) && c->part == p->part;
}

bool lower_is_told(Place *p, Value v) {
  const Op *op = ir_def(p->f, v), *load = widened_load(p->f, op);
  Box box;
  return load && load->code == OP_LOAD && find_box(p, op, &box) && box.told;
}

// The role of slices that tell rows along the axis.
static Role told_role(Place *p, uint32_t axis) {
  uint32_t i = 0;
  while (i < p->nlin && !(p->lin[i].told && p->lin[i].row == axis)) i++;
  assert(i < MAX_LIN);
  if (i == p->nlin)
    p->lin[p->nlin++] =
        (LinPair){.row = axis, .col = ~0u, .layout = LY_LIN, .told = true};
  return 2 * (i + 1) + ROLE_ROW;
}

// An index of rows that are told; what the mask hides is no row.
static Value told_index(Place *p, Value v, Value mask) {
  Role r = told_role(p, ir_type(p->f, v)->axis[0]);
  Value at = index_value(p, v, r);
  if (!mask || p->failed) return at;
  Value see = lower_eval(p, mask, r);
  if (p->failed) return 0;
  int d = lower_depth(p, v), e = lower_depth(p, mask);
  Builder *b = lower_at(p, d > e ? d : e);
  if (!lower_is_frag(b, see)) {
    Type t = *ir_type(b->fn, at);
    t.dtype = DT_BOOL;
    see = lower_as(b, see, t);
  }
  return lower_select(b, see, at, lower_like(b, at, -1));
}

// Where a box begins along the axis of an index; 0: at its origin.
static Value first_of_box(Place *p, Builder *b, Value index) {
  uint32_t axis = ir_type(p->f, index)->axis[0];
  Value first = 0;
  lower_unit_steps(p, index, axis, &first, true);
  Value by = lower_moved(p, b, axis);
  if (by) first = first ? lower_2(b, OP_ADD, first, by) : by;
  return first;
}

// Of a box whose rows are turns, by index i: the row of its first.
static Value first_of_turns(Place *p, Builder *b, const Op *op, uint32_t i) {
  int64_t n = 1;
  Value plus, x = turns_of(p, op, i, &n);
  row_of_turns(p, op->args[i], &plus);
  if (plus) plus = index_value(p, plus, ROLE_ROW);
  Value first = first_of_box(p, b, x);
  if (p->failed || (!first && !plus)) return lower_int(b, 0);
  if (!first) return plus;
  Value turns = ir_const_i(b, ir_type(b->fn, first)->dtype, n);
  first = lower_2(b, OP_FLOORDIV, first, turns);
  return plus ? lower_2(b, OP_ADD, first, plus) : first;
}

// The scales of what is widened come behind the indices.
static uint32_t scaled(const Place *p, const Widened *w, Value *args,
                       uint32_t n, IrAttr *at, uint32_t *nattrs) {
  if (!w->scale) return n;
  if (w->block) at[(*nattrs)++] = attr_i(AT_BLOCK, w->block);
  args[n++] = p->memo[w->scale->args[0]][0];
  return n;
}

static Value fill(Place *p, Value v, Parts *out) {
  Value sign;
  int depth = lower_depth(p, v);
  v = unflipped(p, v, &sign);
  const Op *op = widened_load(p->f, ir_def(p->f, v));
  Box box;
  Widened wide;
  bool ok = find_box(p, ir_def(p->f, v), &box);
  assert(ok);
  (void)ok;
  Value args[MAX_AXES + COST_PAGES_MOST + 2];
  args[0] = p->memo[op->args[0]][0];
  Value mask = p->shown[v];
  int hidden = mask && box.told ? lower_depth(p, mask) : 0;
  Builder *b = lower_at(p, hidden > depth ? hidden : depth);
  uint32_t n = op->nargs;
  for (uint32_t i = 1; i < n; i++) {
    const Type *x = ir_type(p->f, op->args[i]);
    bool piece = box.pieces > 1 && (int)i - 1 == box.piece_pos;
    if (box.turns > 1 && (int)i - 1 == box.pos[0]) {
      args[i + 1] = lower_int(b, 0);
      args[i] = first_of_turns(p, b, op, i);
      i++;
    } else if (piece || x->n == 0) {
      args[i] = index_value(p, piece ? box.piece[0] : op->args[i], ROLE_ROW);
    } else if (box.told && x->axis[0] == box.axis[0]) {
      args[i] = told_index(p, op->args[i], (int)i - 1 == box.pos[0] ? mask : 0);
    } else if (box.pieces > 1 && (int)i - 1 == box.pos[0]) {
      args[i] = lower_int(b, 0);
    } else {
      Value first = first_of_box(p, b, op->args[i]);
      args[i] = first ? first : lower_int(b, 0);
    }
    if (p->failed) return 0;
  }
  b->span = op->span;
  int64_t pos[] = {box.pos[0], box.pos[1], box.pos[0] + 1, box.turns},
          pieces[] = {box.piece_pos, box.pieces};
  IrAttr at[4] = {attr_list(AT_TILE, pos, box.turns > 1 ? BOX_ATTRS : 2)};
  uint32_t nattrs = 1;
  for (uint32_t i = 1; i < box.pieces && !p->failed; i++)
    args[n++] = index_value(p, box.piece[i], ROLE_ROW);
  out->row = box.axis[0];
  out->col = box.axis[1];
  uint32_t rows = box_size(p, out->row), cols = box_size(p, out->col);
  Columns c;
  if (is_of_parts(p, op, &c)) {
    args[c.pos] = lower_int(b, c.at);
    cols = (uint32_t)columns_all(p->f, &c);
  }
  if (box.told) mask = 0;
  if (widened_of(p->f, v, &wide)) n = scaled(p, &wide, args, n, at, &nattrs);
  if (sign || mask) at[nattrs++] = attr_i(sign ? AT_FLIP : AT_CLEAN, 1);
  if (box.pieces > 1) at[nattrs++] = attr_list(AT_PIECES, pieces, 2);
  if (sign) args[n++] = lower_scalar(p, sign);
  else if (mask) args[n++] = lower_rows_shown(p, mask, rows);
  if (p->failed) return 0;
  Type t = lower_smem_type(ir_type(p->f, v)->dtype, rows, cols);
  return lower_op(b, OP_SFILL, args, n, t, at, nattrs);
}

// A box that a product wants too comes from its shared tile.
Value lower_reload(Place *p, Value v, const View *w, Type t) {
  const Op *op = ir_def(p->f, v);
  Parts s = lower_smem(p, v, ir_type(p->f, v)->dtype, 1, ~0u);
  if (p->failed) return 0;
  Builder *b = lower_at(p, lower_depth(p, v));
  const Type *st = ir_type(p->g, s.part[0]);
  bool trans = (int)s.row != w->row;
  t.dtype = st->dtype;
  if (st->ext[trans] != t.ext[0] || st->ext[!trans] != t.ext[1])
    return lower_load(p, b, op, w, t, ROLE_ROW);
  IrAttr at = attr_i(AT_TRANS, 1);
  return lower_op(b, OP_SLOAD, s.part, 1, t, &at, trans);
}

// ---------------------------------------------------------------- operands
// x less its rounded part; what is left of inf is 0.
static Value rest_of(Builder *b, Value x, Value part) {
  Value r = ir_2(b, OP_SUB, x, lower_cast(b, DT_F32, part));
  Value zero = lower_like(b, r, 0);
  return lower_select(b, ir_2(b, OP_EQ, r, r), r, zero);
}

static Value put(Place *p, Builder *b, const View *w, Value x, bool turned) {
  Type t = lower_smem_type(lower_dtype(b, x), p->wide[w->row][ROLE_ROW],
                           p->wide[w->col][ROLE_COL]);
  if (turned) t.layout = LY_TURNED;
  return lower_op(b, OP_SPUT, &x, 1, t, NULL, 0);
}

// The parts of v; where `puts`, in shared memory, each as soon as it is there.
static void split(Place *p, Value v, DType t, uint32_t parts, bool puts,
                  Parts *f) {
  View w;
  lower_view(p, ir_type(p->f, v), NULL, &w);
  Value x = lower_eval(p, v, ROLE_ROW);
  if (p->failed) return;
  Builder *b = lower_at(p, lower_depth(p, v));
  Value in = lower_inside(p, b, &w, true, true);
  if (in) x = lower_select(b, in, x, lower_like(b, x, 0));
  *f = (Parts){.n = parts, .row = (uint32_t)w.row, .col = (uint32_t)w.col};
  if (parts > 1) x = lower_cast(b, DT_F32, x);
  for (uint32_t i = 0; i < parts; i++) {
    Value part = lower_cast(b, t, x);
    f->part[i] = puts ? put(p, b, &w, part, false) : part;
    if (i + 1 < parts) x = rest_of(b, x, part);
  }
}

Parts lower_frag(Place *p, Value v, DType t, uint32_t parts) {
  Parts *f = &p->frag[v];
  if (f->n != parts || ir_type(p->g, f->part[0])->dtype != t)
    split(p, v, t, parts, false, f);
  return *f;
}

// Does v take half of a thread's registers, or in a loop, beside sums, a
// quarter?
static bool is_large(Place *p, Value v, const View *w) {
  uint32_t n = p->wide[w->row][ROLE_ROW] * p->wide[w->col][ROLE_COL];
  return n / (p->warps * p->target->gpu.wave) >
         (lower_depth(p, v) ? COST_LARGE_VALUE / 2 : COST_LARGE_VALUE);
}

bool lower_comes_as(Place *p, Value v, DType t) {
  DType own = ir_type(p->f, v)->dtype;
  bool narrow = dtype_is_float(own) && dtype_size(own) == 1;
  return lower_is_box(p, v, t) ||
         (narrow && lower_staged(p) && lower_is_box(p, v, own));
}

Value lower_box(Place *p, Value v, DType to, LayoutId l) {
  View w;
  Value sign;
  v = unflipped(p, v, &sign);
  lower_view(p, ir_type(p->f, v), NULL, &w);
  for (uint32_t i = 0; i < p->nlin; i++)
    if (p->lin[i].box && p->lin[i].layout == l && (int)p->lin[i].row == w.row &&
        (int)p->lin[i].col == w.col)
      w.frag = i + 1;
  Builder *b = lower_at(p, lower_depth(p, v));
  b->span = ir_def(p->f, v)->span;
  DType dt = ir_type(p->f, v)->dtype;
  Value x =
      lower_load(p, b, ir_def(p->f, v), &w, lower_type(p, dt, &w), ROLE_ROW);
  if (x && to != dt) x = lower_cast(b, to, x);
  Value minus = x && sign ? lower_scalar(p, sign) : 0;
  if (x && dtype_size(to) == 1 && (sign || p->target->gpu.f8 != F8_OCP)) {
    Value args[] = {x, minus};
    return lower_op(b, OP_FOPERAND, args, sign ? 2 : 1, *ir_type(b->fn, x),
                    NULL, 0);
  }
  if (!x || !sign) return x;
  return lower_select(b, minus, ir_1(b, OP_NEG, x), x);
}

bool lower_staged(const Place *p) {
  return p->target->gpu.vendor == VENDOR_AMD;
}

Parts lower_smem(Place *p, Value v, DType t, uint32_t parts, uint32_t over) {
  Parts *s = &p->smem[v];
  if (s->n == parts && ir_type(p->g, s->part[0])->dtype == t) return *s;
  Value own[HW_F32_PARTS] = {v};
  if (p->taken[v]) {
    Value box = p->taken[v];
    p->taken[v] = 0;
    Parts all = lower_smem(p, box, t, parts, over);
    p->taken[v] = box;
    if (p->failed) return all;
    if (p->part >= 0) all.from = lower_first_column(p, v);
    return *s = all;
  }
  if ((parts == 1 && lower_is_box(p, v, t) && !lower_staged(p)) ||
      (parts == HW_F32_PARTS && lower_in_parts(p, v, t, own))) {
    for (uint32_t i = 0; i < parts; i++) s->part[i] = fill(p, own[i], s);
    s->n = parts;
    return *s;
  }
  View w;
  lower_view(p, ir_type(p->f, v), NULL, &w);
  bool turned = p->target->gpu.turn && w.row == (int)over;
  Parts f;
  if (parts > 1 && !turned && !lower_staged(p) && is_large(p, v, &w)) {
    split(p, v, t, parts, true, s);
    return *s;
  }
  if (parts == 1 && (lower_comes_as(p, v, t) || lower_is_rows(p, v, t)))
    f = (Parts){.n = 1,
                .row = (uint32_t)w.row,
                .col = (uint32_t)w.col,
                .part = {lower_box(p, v, t, turned ? LY_QUAD : LY_LIN)}};
  else f = lower_frag(p, v, t, parts);
  if (p->failed) return f;
  Builder *b = lower_at(p, lower_depth(p, v));
  *s = f;
  for (uint32_t i = 0; i < parts; i++)
    s->part[i] = put(p, b, &w, f.part[i], turned);
  return *s;
}

// ---------------------------------------------------------------- early loads
static bool steers(const Place *p, const Op *op) {
  return op->code == OP_GLOAD && ir_type(p->g, op->res[0])->kind == TK_ELEM &&
         !ir_is_stored(p->g->body, op->args[0]);
}

static void to_front(Region *r, Op *op) {
  Op *first = r->first;
  if (first->code == OP_LAUNCH) first = first->next;
  if (op != first) ir_move_before(op, first);
}

// Moves op up, behind what makes the last of its operands.
static void move_up(Place *p, Region *r, Op *op) {
  Op *after = NULL;
  for (uint32_t i = 0; i < op->nargs; i++) {
    Op *def = ir_def(p->g, op->args[i]);
    if (!def || def->parent != r) continue;
    if (def->code == OP_CONST) {
      to_front(r, def);
      continue;
    }
    bool later = !after;
    for (const Op *o = after; o && !later; o = o->next) later = o == def;
    if (later) after = def;
  }
  if (after && after->next != op) ir_move_before(op, after->next);
}

void lower_early(Place *p, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) lower_early(p, op->regions[i]);
    if (steers(p, op)) move_up(p, r, op);
  }
}

// ---------------------------------------------------------------- early stores
// What only an index is made of, to where it can be.
static void index_up(Place *p, Region *r, Value v) {
  Op *op = ir_def(p->g, v);
  bool pure = op && op->parent == r &&
              !dtype_is_float(ir_type(p->g, v)->dtype) &&
              (op_info(op->code)->flags & OPF_ELEM || op->code == OP_SPLAT);
  if (!pure) return;
  for (uint32_t i = 0; i < op->nargs; i++) index_up(p, r, op->args[i]);
  move_up(p, r, op);
}

static bool is_loaded(const Region *r, Value tensor) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_GLOAD && op->args[0] == tensor) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (is_loaded(op->regions[i], tensor)) return true;
  }
  return false;
}

// Another store of it in the region could have to come first.
static bool is_stored_once(const Region *r, Value tensor) {
  uint32_t n = 0;
  for (const Op *op = r->first; op; op = op->next)
    n += op->code == OP_GSTORE && op->args[0] == tensor;
  return n == 1;
}

void lower_stores(Place *p, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) lower_stores(p, op->regions[i]);
    if (op->code != OP_GSTORE || is_loaded(p->g->body, op->args[0]) ||
        !is_stored_once(r, op->args[0]))
      continue;
    for (uint32_t i = 2; i < op->nargs; i++) index_up(p, r, op->args[i]);
    move_up(p, r, op);
  }
}

// ---------------------------------------------------------------- late loads
// The first op of a loop's body that has v as operand, if no other op has.
static Op *first_use_in(Place *p, const Op *loop, Value v) {
  Region *body = loop->regions[0];
  uint32_t uses = 0;
  Op *first = NULL;
  for (Op *op = body->first; op; op = op->next) {
    if (!ir_mentions(op, v)) continue;
    if (op->nregions) return NULL;
    first = first ? first : op;
    for (uint32_t i = 0; i < op->nargs; i++) uses += op->args[i] == v;
  }
  return uses == ir_count_uses(p->g, v) ? first : NULL;
}

void lower_late(Place *p, Region *r) {
  for (Op *loop = r->first; loop; loop = loop->next) {
    for (uint32_t i = 0; i < loop->nregions; i++)
      lower_late(p, loop->regions[i]);
    if (loop->code != OP_FOR) continue;
    for (Op *op = r->first, *next; op != loop; op = next) {
      next = op->next;
      if (op->code != OP_GLOAD || !ir_is_input(p->g, op->args[0])) continue;
      const Type *t = ir_type(p->g, op->res[0]);
      if (t->kind != TK_FRAG || t->slice != SLICE_COL) continue;
      Op *use = first_use_in(p, loop, op->res[0]);
      if (use) ir_move_before(op, use);
    }
  }
}
