// Operands of sequences that lie one behind the other in memory. Their copies
// lie so too: a copy as long for each sequence as the longest one needs is many
// times what there is to copy.
//
//   before  func @p(%cu, %K) { %t = add(%k, load(%cu, %b))
//                              %y = cast(mul(load(%K, %t, %d), f(%k))) .. }
//   after   func @p.made(%cu, %K, %y.made: tensor<bf16[S_total, 64]> shared)
//               axes(b par B, k par S, d vec 64) {
//             domain(lt(%k, %length)) {axis = k}
//             store(%y.made, %y, %t, %d) }
//           func @p.rest(.. %y.made shared) axes(k par 256, d vec 64) {
//             %t = add(%k, load(%cu, B))
//             domain(lt(%t, S_total)) {axis = k}
//             store(%y.made, 0, %t, %d) }
//           func @p(.., %y.made shared) { %y = load(%y.made, %t, %d) .. }
//
// A program reads tiles of keys, which go beyond a sequence's end: into the
// next one, whose rows are as finite as its own, or behind the last, where the
// rest makes zeros.
#include "ir/facts.h"
#include "passes/attn/materialize.h"

#include <string.h>

typedef struct Find {
  const Ahead *a;
  Made *m;
  const DimSym *ragged;  // the extent of m's rows
  bool others;           // reads rows of all sequences at another place
  Map seen;
} Find;

static const Op *uncast(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  while (op && op->code == OP_CAST) op = ir_def(f, op->args[0]);
  return op;
}

static const DimSym *symbol(const Ahead *a, Dim d) {
  const DimTab *t = &a->f->mod->dims;
  const DimExpr *e = &t->exprs.at[d];
  return e->op == DIM_SYM ? &t->syms.at[e->value] : NULL;
}

// Is v where a sequence begins, of an axis of tasks?
static bool is_offset(const Find *x, Value v, Value *offsets, uint32_t *batch) {
  const Func *f = x->a->f;
  const Op *load = uncast(f, v);
  if (!load || load->code != OP_LOAD || load->nargs != 2) return false;
  const Op *at = ir_def(f, load->args[1]);
  const char *name = ir_info(f, load->args[0])->hint;
  if (!at || at->code != OP_INDEX || !name || strcmp(name, x->ragged->by))
    return false;
  *offsets = load->args[0];
  *batch = (uint32_t)ir_attr_i(at, AT_AXIS, 0);
  return f->axes.at[*batch].role == AX_PAR;
}

// Is index i of load one of the rows of all sequences, that varies with m's?
static bool is_of_all(const Find *x, const Op *load, uint32_t i) {
  const Func *f = x->a->f;
  const DimSym *all = symbol(x->a, ir_type(f, load->args[0])->size[i - 1]);
  return all && dim_is_total(all, x->ragged) &&
         type_has_axis(ir_type(f, load->args[i]), x->m->row);
}

// Is that row offset + coordinate?
static bool is_place(const Find *x, const Op *load, uint32_t i, Packed *got) {
  const Func *f = x->a->f;
  const Op *add = ir_def(f, load->args[i]);
  *got = (Packed){.place = load->args[i],
                  .total = ir_type(f, load->args[0])->size[i - 1]};
  for (uint32_t k = 0; add && add->code == OP_ADD && k < 2; k++) {
    const Op *row = ir_def(f, add->args[k]);
    if (row && row->code == OP_INDEX &&
        ir_attr_i(row, AT_AXIS, -1) == (int64_t)x->m->row &&
        is_offset(x, add->args[!k], &got->offsets, &got->batch))
      return true;
  }
  return false;
}

// False: what v is made of lies at two places.
static bool find(Find *x, Value v) {
  const Func *f = x->a->f;
  const Op *op = ir_def(f, v);
  uint64_t known;
  Packed got;
  if (!op || map_get(&x->seen, v, &known)) return true;
  map_put(&x->seen, v, 1);
  for (uint32_t i = 1; op->code == OP_LOAD && i < op->nargs; i++) {
    if (!is_of_all(x, op, i)) continue;
    if (!is_place(x, op, i, &got)) {
      x->others = true;
      continue;
    }
    if (x->m->packed.place && x->m->packed.place != got.place) return false;
    x->m->packed = got;
  }
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!find(x, op->args[i])) return false;
  return true;
}

bool materialize_packed(const Ahead *a, Made *m) {
  Find x = {.a = a, .m = m, .seen = {.arena = &a->cx->scratch}};
  m->packed = (Packed){0};
  x.ragged = symbol(a, a->f->axes.at[m->row].extent);
  if (!x.ragged || x.ragged->kind != DIM_RAGGED) return true;
  return find(&x, m->v) && (m->packed.place || !x.others);
}

// A load of m's offsets at the sequence's coordinate, and `more`.
static bool is_begin(const Ahead *a, const Made *m, Value v, int64_t more) {
  const Func *f = a->f;
  const Op *load = uncast(f, v);
  int64_t one;
  if (!load || load->code != OP_LOAD || load->args[0] != m->packed.offsets)
    return false;
  const Op *at = ir_def(f, load->args[1]);
  if (more && at && at->code == OP_ADD &&
      ir_const_whole(f, at->args[1], &one) && one == more)
    at = ir_def(f, at->args[0]);
  else if (more) return false;
  return at && at->code == OP_INDEX &&
         ir_attr_i(at, AT_AXIS, -1) == (int64_t)m->packed.batch;
}

bool materialize_ends(const Ahead *a, const Made *m, Value cond) {
  const Op *lt = ir_def(a->f, cond);
  if (!m->packed.place || !lt || lt->code != OP_LT) return false;
  const Op *row = ir_def(a->f, lt->args[0]), *n = ir_def(a->f, lt->args[1]);
  return row && row->code == OP_INDEX &&
         ir_attr_i(row, AT_AXIS, -1) == (int64_t)m->row && n &&
         n->code == OP_SUB && is_begin(a, m, n->args[0], 1) &&
         is_begin(a, m, n->args[1], 0);
}

// ---------------------------------------------------------------- the phase
static Value offset(const Made *m, Builder *b, ValueMap *map, Value of) {
  Value v = ir_load(b, vmap_get(map, m->packed.offsets), &of, 1);
  return ir_cast(b, DT_I64, v);
}

static void end_rows(Builder *b, uint32_t axis, Value in) {
  IrAttr on = attr_i(AT_AXIS, axis);
  ir_op(b, OP_DOMAIN, &in, 1, &on, 1, NULL, 0, 0);
}

void materialize_open(const Made *m, Builder *b, ValueMap *map,
                      const uint32_t *axis) {
  if (!m->packed.place) return;
  uint32_t k = axis[m->row];
  Value batch = ir_index(b, axis[m->packed.batch]), row = ir_index(b, k);
  Value next = ir_2(b, OP_ADD, batch, ir_const_i(b, DT_I64, 1));
  Value first = offset(m, b, map, batch), end = offset(m, b, map, next);
  end_rows(b, k, ir_2(b, OP_LT, row, ir_2(b, OP_SUB, end, first)));
  vmap_put(map, m->packed.place, ir_2(b, OP_ADD, row, first));
}

// ---------------------------------------------------------------- the rest
typedef struct Rest {
  const Ahead *a;
  const Made *first;  // of the phase
  Builder b;
  ValueMap map;
  Value at[64];  // by axis of the program: the coordinate
} Rest;

static void add_axis(Rest *r, uint32_t axis, AxisRole role, Dim extent) {
  const char *name = r->a->f->axes.at[axis].name;
  r->at[axis] = ir_index(&r->b, ir_axis(r->b.fn, name, role, extent));
}

// As many rows as a tile of keys has, where the last sequence ends.
static void add_rows(Rest *r) {
  const Packed *p = &r->first->packed;
  const Func *f = r->a->f;
  Builder *b = &r->b;
  uint32_t row = r->first->row;
  add_axis(r, row, AX_PAR, dim_const(&f->mod->dims, HW_COPY_COLUMNS));
  int64_t axis = ir_attr_i(ir_def(b->fn, r->at[row]), AT_AXIS, 0);
  Value last = ir_dim(b, f->axes.at[p->batch].extent);
  r->at[row] = ir_2(b, OP_ADD, r->at[row], offset(r->first, b, &r->map, last));
  end_rows(b, (uint32_t)axis, ir_2(b, OP_LT, r->at[row], ir_dim(b, p->total)));
}

static void clear(Rest *r, const Made *m) {
  uint32_t axis[64], n = materialize_axes(r->a, m, axis), k = 0;
  Value at[MAX_AXES];
  if (!r->at[m->vec])
    add_axis(r, m->vec, AX_VEC, materialize_extent(r->a, m, m->vec));
  for (uint32_t i = 0; i < n; i++)
    if (axis[i] != m->packed.batch) at[k++] = r->at[axis[i]];
  DType t = ir_type(r->a->f, m->v)->dtype;
  ir_store(&r->b, vmap_get(&r->map, m->tensor), ir_const_f(&r->b, t, 0), at, k);
}

Func *materialize_rest(const Ahead *a, uint32_t first) {
  const Made *m = &a->made[first];
  Func *g = outline_func(a->f, "rest", first, false);
  Rest r = {.a = a, .first = m, .map = {.arena = a->f->mod->arena}};
  uint32_t axis[64], n = materialize_axes(a, m, axis);
  r.b = (Builder){.fn = g, .region = g->body, .span = a->f->span};
  outline_params(&r.map, a->f, g);
  for (uint32_t i = 0; i < n; i++)
    if (axis[i] != m->packed.batch && axis[i] != m->row && axis[i] != m->vec)
      add_axis(&r, axis[i], AX_PAR, materialize_extent(a, m, axis[i]));
  add_rows(&r);
  for (uint32_t i = first; i < a->n; i++)
    if (a->made[i].phase == first && !a->made[i].shared) clear(&r, &a->made[i]);
  return g;
}
