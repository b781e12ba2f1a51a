// pack_gqa: queries and the heads that share keys become one axis of rows.
//
//   before  axes(h par Hq, q par Sq)       %g = floordiv(%h, R)
//           load(%K, %g, %k, ..)           load(%Q, %h, %q, ..)
//   after   axes(h par ceil(Hq / R), q par Sq * R), %q counts rows
//           %t = floordiv(%q, R), %r = mod(%q, R), %j = h * R + %r
//           load(%K, %h, %k, ..)           load(%Q, %j, %t, ..)
//
// For kernels of few queries (PassOpt.group, few): the group's heads read each
// key once and fill lanes that one query leaves empty. Done where vectors of
// keys want h by its group only, and q not at all, or not by itself.
//
// For GPUs, where no axis makes products of matrices (a decode without an axis
// of queries, `dot(Q[b, h], K[b, k, h])`), there is first an axis of one row:
// the group's heads are its rows, or, where keys have no groups, the row is
// added to h in what is read without keys and in what is stored. Where nothing
// is multiplied, vectors are summed over keys by products with ones of that
// row:
//
//   before  %s = reduce(%x) {kind = sum, over = [k]} : f32{h,d}
//   after   %s = dot(%one, %x) {over = [k]} : f32{h,d,row}  %one: 1.0 {row,k}
//
// so that a step has many keys, and keys are split among tasks. Not where keys
// are few: steps or heads are rows then (passes/tile/outer.c).
//
// In a phase in front (passes/attn/share_keys.c) tasks of other axes may have
// the same keys: what they have are rows of the same axis.
//
//   before  axes(b par B, h par Hk, q par S, c key P)   load(%Q, %b, %q, ..)
//   after   axes(b par 1, h par Hk, q par B * S, c key P), %q counts rows
//           load(%Q, floordiv(%q, S), mod(%q, S), ..)
//
// Level attn, behind inline and canon: no regions but the body's. Tests:
// test/passes/pack_gqa.
#include "ir/infer.h"
#include "passes/support/groups.h"
#include "passes/support/lane.h"
#include "passes/support/outline.h"
#include "passes/pass.h"

typedef struct Rows {
  Func *f;
  uint32_t h, q;  // axes
  Value index;    // of h
  Value size;     // R, as the program has it
} Rows;

static bool has_key(const Func *f, const Type *t) {
  for (uint32_t i = 0; i < t->n; i++)
    if (f->axes.at[t->axis[i]].role == AX_KEY) return true;
  return false;
}

// Does v want the index of axis h besides by its group?
static bool wants(const Rows *r, Value v) {
  const Op *op = ir_def(r->f, v);
  if (!op || !type_has_axis(ir_type(r->f, v), r->h)) return false;
  if (op->code == OP_FLOORDIV && op->args[0] == r->index &&
      op->args[1] == r->size)
    return false;
  if (v == r->index) return true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (wants(r, op->args[i])) return true;
  return false;
}

static bool has_vec(const Func *f, const Type *t) {
  for (uint32_t i = 0; i < t->n; i++)
    if (f->axes.at[t->axis[i]].role == AX_VEC) return true;
  return false;
}

static bool key_load(const Func *f, const Op *op) {
  return op->code == OP_LOAD && has_key(f, ir_type(f, op->res[0])) &&
         ir_type(f, op->res[0])->n > 1;
}

// Are there vectors of keys?
static bool has_vectors(const Func *f) {
  for (const Op *op = f->body->first; op; op = op->next)
    if (key_load(f, op) && has_vec(f, ir_type(f, op->res[0]))) return true;
  return false;
}

// Are the keys shared by the group, and by the queries? Beside vectors of keys
// what is read of pairs, masks and biases, is read for each row anyway.
static bool shared(const Rows *r) {
  bool some = false, vectors = has_vectors(r->f);
  for (const Op *op = r->f->body->first; op; op = op->next) {
    if (op->nregions || op->code == OP_CALL) return false;
    if (!key_load(r->f, op)) continue;
    const Type *t = ir_type(r->f, op->res[0]);
    if (vectors && !has_vec(r->f, t)) continue;
    if (type_has_axis(t, r->q) || wants(r, op->res[0])) return false;
    some |= type_has_axis(t, r->h);
  }
  return some;
}

static bool is_par(const Func *f, uint32_t a) {
  return f->axes.at[a].role == AX_PAR;
}

static Op *index_of(const Func *f, uint32_t axis) {
  Op *found = NULL;
  for (Op *op = f->body->first; op; op = op->next)
    if (op->code == OP_INDEX && ir_attr_i(op, AT_AXIS, -1) == (int64_t)axis) {
      if (found) return NULL;
      found = op;
    }
  return found;
}

// The queries: the last axis, but h, that the program walks in parallel.
static bool find_queries(Rows *r) {
  for (uint32_t a = r->f->axes.n; a-- > 0;)
    if (a != r->h && is_par(r->f, a)) {
      r->q = a;
      return index_of(r->f, a) && shared(r);
    }
  return false;
}

static bool find(Rows *r) {
  for (const Op *op = r->f->body->first; op; op = op->next) {
    if (op->code != OP_FLOORDIV) continue;
    const Op *i = ir_def(r->f, op->args[0]), *n = ir_def(r->f, op->args[1]);
    if (!i || i->code != OP_INDEX || !n) continue;
    r->h = (uint32_t)ir_attr_i(i, AT_AXIS, 0);
    if (!is_par(r->f, r->h) || !index_of(r->f, r->h)) continue;
    r->index = op->args[0];
    r->size = op->args[1];
    if (find_queries(r)) return true;
  }
  return false;
}

// Types of what varies with h vary with the rows now.
static void retype(Func *f) {
  for (Op *op = f->body->first; op; op = op->next) {
    if (op->nres != 1 || op->code == OP_CONST) continue;
    Type t;
    if (!infer_type(f, op, &t)) ir_info(f, op->res[0])->type = t;
  }
}

static void fold(Rows *r, Dim size) {
  Func *f = r->f;
  DimTab *d = &f->mod->dims;
  Axis *h = &f->axes.at[r->h], *q = &f->axes.at[r->q];
  Op *old_h = index_of(f, r->h), *old_q = index_of(f, r->q);
  h->extent = group_count(d, h->extent, size);
  bool one = q->extent == dim_const(d, 1);
  q->extent = dim_bin(d, DIM_MUL, q->extent, size);
  Builder b = {.fn = f,
               .region = f->body,
               .before = f->body->first,
               .span = old_h->span};
  Value n = ir_dim(&b, size), group = ir_index(&b, r->h);
  Value row = ir_index(&b, r->q), part = one ? row : ir_2(&b, OP_MOD, row, n);
  Value query = one ? ir_const_i(&b, DT_I64, 0) : ir_2(&b, OP_FLOORDIV, row, n);
  Value head = ir_2(&b, OP_ADD, ir_2(&b, OP_MUL, group, n), part);
  for (Op *op = f->body->first; op; op = op->next)
    if (op->code == OP_FLOORDIV && op->args[0] == r->index &&
        op->args[1] == r->size)
      ir_replace_uses(f, op->res[0], group);
  ir_replace_uses(f, r->index, head);
  ir_replace_uses(f, old_q->res[0], query);
  ir_erase(old_h);
  ir_erase(old_q);
}

// ---------------------------------------------------------------- tasks
// Have all tasks along axis a the same keys?
static bool same_keys(const Func *f, uint32_t a) {
  for (const Op *op = f->body->first; op; op = op->next) {
    bool keys = key_load(f, op) && type_has_axis(ir_type(f, op->res[0]), a);
    bool which =
        op->code == OP_DOMAIN && type_has_axis(ir_type(f, op->args[0]), a);
    if (keys || which || op->nregions || op->code == OP_CALL) return false;
  }
  return true;
}

// Coordinates of axis a become rows of axis `row`.
static void join_axis(Func *f, uint32_t row, uint32_t a) {
  DimTab *d = &f->mod->dims;
  Op *old_row = index_of(f, row), *old = index_of(f, a);
  Dim one = dim_const(d, 1), n = f->axes.at[row].extent;
  f->axes.at[row].extent = dim_bin(d, DIM_MUL, f->axes.at[a].extent, n);
  f->axes.at[a].extent = one;
  Builder b = {.fn = f,
               .region = f->body,
               .before = f->body->first,
               .span = old->span};
  Value each = ir_dim(&b, dim_bin(d, DIM_MAX, n, one));
  Value at = ir_index(&b, row);
  ir_replace_uses(f, old->res[0], ir_2(&b, OP_FLOORDIV, at, each));
  ir_replace_uses(f, old_row->res[0], ir_2(&b, OP_MOD, at, each));
  ir_erase(old);
  ir_erase(old_row);
}

// Of a phase in front: tasks that have the same keys have rows of one axis,
// unless what they add is the same.
static void join_tasks(Ctx *cx, Func *f) {
  int row = lane_axis(f);
  uint64_t added = lane_added(f);
  if (outline_last(f) == f || row < 0 || added >> row & 1 || !has_vectors(f) ||
      !index_of(f, (uint32_t)row))
    return;
  for (uint32_t a = 0; a < f->axes.n; a++) {
    if ((int)a == row || !is_par(f, a) || !index_of(f, a) || !same_keys(f, a) ||
        (added >> a & 1))
      continue;
    join_axis(f, (uint32_t)row, a);
    retype(f);
    ctx_remark(cx,
               "%s: rows of all %s, which have the same keys, are rows of "
               "one axis",
               f->name, f->axes.at[a].name);
  }
}

// ---------------------------------------------------------------- a row
// What v is made of is of the keys, the same for all rows.
static void note_keys(const Func *f, Value v, Map *keys) {
  const Op *op = ir_def(f, v);
  uint64_t known;
  if (!op || map_get(keys, v, &known)) return;
  map_put(keys, v, 1);
  for (uint32_t i = 0; i < op->nargs; i++) note_keys(f, op->args[i], keys);
}

static void find_keys(const Func *f, Map *keys) {
  for (const Op *op = f->body->first; op; op = op->next)
    for (uint32_t i = 0; op->code == OP_DOT && i < 2; i++) {
      const Type *t = ir_type(f, op->args[i]);
      if (has_key(f, t) && has_vec(f, t)) note_keys(f, op->args[i], keys);
    }
}

// The operand of op that row is to be added to: an index that has axis h, or 0.
static uint32_t row_operand(const Rows *r, const Op *op, const Map *keys) {
  uint64_t known;
  uint32_t from = op->code == OP_STORE ? 2 : 1;
  if (op->code != OP_LOAD && op->code != OP_STORE) return 0;
  if (op->code == OP_LOAD) {
    const Type *t = ir_type(r->f, op->res[0]);
    if (has_key(r->f, t) || !dtype_is_float(t->dtype) ||
        map_get(keys, op->res[0], &known))
      return 0;
  }
  for (uint32_t i = from; i < op->nargs; i++) {
    const Type *t = ir_type(r->f, op->args[i]);
    if (t->kind == TK_ELEM && t->dtype != DT_BOOL && type_has_axis(t, r->h))
      return i;
  }
  return 0;
}

static bool flat(const Func *f) {
  for (const Op *op = f->body->first; op; op = op->next)
    if (op->nregions || op->code == OP_CALL) return false;
  return true;
}

// Does a vector without a key get the row, and all that is stored?
static bool takes_row(const Rows *r, const Map *keys) {
  bool some = false;
  for (const Op *op = r->f->body->first; op; op = op->next) {
    bool takes = row_operand(r, op, keys) != 0;
    if (op->code == OP_STORE && !takes) return false;
    some |= op->code == OP_LOAD && takes &&
            has_vec(r->f, ir_type(r->f, op->res[0]));
  }
  return some;
}

static void add_to(Func *f, Op *op, uint32_t at, Value row) {
  Builder b = {.fn = f, .region = f->body, .before = op, .span = op->span};
  op->args[at] = ir_2(&b, OP_ADD, op->args[at], row);
}

static void spread_row(Rows *r, Value row, const Map *keys) {
  for (Op *op = r->f->body->first; op; op = op->next) {
    uint32_t at = row_operand(r, op, keys);
    if (at) add_to(r->f, op, at, row);
  }
}

// Tiles have more rows than there are: those are not stored.
static void bound_rows(Func *f, uint32_t axis) {
  Op *index = index_of(f, axis);
  Builder b = {.fn = f,
               .region = f->body,
               .before = index->next,
               .span = f->span};
  Value n = ir_dim(&b, f->axes.at[axis].extent);
  Value in = ir_2(&b, OP_LT, index->res[0], n);
  IrAttr at = attr_i(AT_AXIS, axis);
  ir_op(&b, OP_DOMAIN, &in, 1, &at, 1, NULL, 0, 0);
}

// The index of a new axis of one row.
static Value new_row(Func *f, uint32_t *axis) {
  Builder b = {.fn = f,
               .region = f->body,
               .before = f->body->first,
               .span = f->span};
  *axis = ir_axis(f, "row", AX_PAR, dim_const(&f->mod->dims, 1));
  return ir_index(&b, *axis);
}

// An axis of one row, where no axis makes products of matrices: the group's
// heads are its rows, if keys have groups.
static bool add_row(Rows *r) {
  Func *f = r->f;
  Map keys = {.arena = f->mod->arena};
  if (!flat(f) || f->axes.n >= 64 || !lane_lacks(f, &r->h)) return false;
  find_keys(f, &keys);
  if (!takes_row(r, &keys)) return false;
  uint32_t h = r->h, axis;
  Value row = new_row(f, &axis);
  Dim size;
  if (find(r) && r->q == axis && group_dim(f, r->size, &size)) {
    fold(r, size);
  } else {
    r->h = h;
    spread_row(r, row, &keys);
  }
  retype(f);
  bound_rows(f, axis);
  return true;
}

// ---------------------------------------------------------------- sums of rows
// Is op a sum of vectors over one key axis, which leaves none?
static bool is_row_sum(const Func *f, const Op *op) {
  bool dot = op->code == OP_DOT;
  if (!dot && (op->code != OP_REDUCE || ir_attr_i(op, AT_KIND, 0) != RK_SUM))
    return false;
  const IrAttr *over = ir_attr(op, AT_OVER);
  const Type *t = ir_type(f, op->res[0]);
  return over->n == 1 && f->axes.at[over->list[0]].role == AX_KEY &&
         has_vec(f, t) && !has_key(f, t) && t->dtype == DT_F32;
}

// op, a row sum, as a product of ones and what it sums.
static void put_ones(Func *f, Op *op, Value row) {
  Builder b = {.fn = f, .region = f->body, .before = op, .span = op->span};
  uint32_t key = (uint32_t)ir_attr(op, AT_OVER)->list[0];
  Value x = op->args[0];
  if (op->code == OP_DOT) x = ir_2(&b, OP_MUL, x, op->args[1]);
  Value one = ir_const_f(&b, DT_F32, 1);
  Type t = *ir_type(f, row), in = *ir_type(f, x);
  t.dtype = DT_F32;
  ir_info(f, one)->type = type_with(t, key, in.size[type_axis_at(&in, key)]);
  Value args[] = {one, x};
  IrAttr over = attr_axes(f->mod->arena, AT_OVER, &key, 1);
  Type both = type_union(ir_type(f, one), ir_type(f, x), DT_F32);
  Type result = type_without(both, key);
  Op *dot = ir_op(&b, OP_DOT, args, 2, &over, 1, &result, 1, 0);
  ir_replace_uses(f, op->res[0], dot->res[0]);
  ir_erase(op);
}

// Rows are summed, and all that is stored can have a row.
static bool sums_rows(const Rows *r, const Map *keys) {
  bool some = false;
  for (const Op *op = r->f->body->first; op; op = op->next) {
    some |= is_row_sum(r->f, op);
    if (op->code == OP_STORE && !row_operand(r, op, keys)) return false;
  }
  return some;
}

static bool multiply_ones(Rows *r) {
  Func *f = r->f;
  Map keys = {.arena = f->mod->arena};
  int lane = lane_axis(f);
  if (!flat(f) || f->axes.n >= 64 || lane < 0 || lane_multiplies(f))
    return false;
  r->h = (uint32_t)lane;
  if (!sums_rows(r, &keys)) return false;
  uint32_t axis;
  Value row = new_row(f, &axis);
  for (Op *op = f->body->first, *next; op; op = next) {
    next = op->next;
    if (is_row_sum(f, op)) put_ones(f, op, row);
    else if (op->code == OP_STORE)
      add_to(f, op, row_operand(r, op, &keys), row);
  }
  retype(f);
  bound_rows(f, axis);
  return true;
}

bool pass_pack_gqa(Ctx *cx, Module *m, const PassOpt *opt) {
  bool gpu = opt->target->kind == TARGET_GPU;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Rows r = {.f = m->funcs.at[i]};
    Dim size;
    bool rows = gpu && !lane_few_keys(r.f);
    if (rows && add_row(&r)) {
      ctx_remark(cx, "%s: no axis makes products of matrices: a row is added",
                 r.f->name);
      continue;
    }
    if (rows && multiply_ones(&r)) {
      ctx_remark(cx, "%s: rows are summed by products with ones", r.f->name);
      continue;
    }
    if (!groups_few(opt)) continue;
    bool packs = opt->few || opt->group;
    if (packs && find(&r) && group_dim(r.f, r.size, &size)) {
      fold(&r, size);
      retype(r.f);
      ctx_remark(cx,
                 "%s: the part of %s that shares keys and %s are one axis "
                 "of rows",
                 r.f->name, r.f->axes.at[r.h].name, r.f->axes.at[r.q].name);
    }
    join_tasks(cx, r.f);
  }
  return true;
}
