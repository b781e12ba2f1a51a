// Lowering of memory: physical shapes, loads and stores through layouts,
// slices of computed vectors. After this, layouts are index arithmetic.
#include "frontend/lower.h"

#include <assert.h>

static const Param *param_of(const Fx *x, const Sym *s) {
  const Decl *d = x->decl;
  for (uint32_t i = 0; i < d->params.n; i++)
    if (d->params.at[i].sym == s) return &d->params.at[i];
  for (uint32_t i = 0; i < d->outs.n; i++)
    if (d->outs.at[i].sym == s) return &d->outs.at[i];
  return NULL;
}

static Value tensor_of(const Fx *x, const Sym *s) {
  uint64_t v = 0;
  bool found = map_get(&x->tensors, (uintptr_t)s, &v);
  assert(found);
  (void)found;
  return (Value)v;
}

// ---------------------------------------------------------------- layouts
static Dim new_sym(Fx *x, const char *stem, const char *end) {
  DimTab *t = &x->low->m->dims;
  char *s = arena_printf(x->low->a, "%s_%s", stem, end);
  return dim_sym(t, dim_add_sym(t, intern(&x->low->cx->names, s), DIM_DYN));
}

// Concatenated tensors of one ragged dim share their total extent.
static Dim total_dim(Fx *x, const Param *p, Dim d) {
  const DimExpr *e = &x->decl->dims->exprs.at[d];
  const char *stem = p->name;
  if (e->op == DIM_SYM) stem = x->decl->dims->syms.at[e->value].name;
  return new_sym(x, stem, "total");
}

Type low_param_type(Fx *x, const Param *p, DType t) {
  const Ty *ty = &p->sym->ty;
  const Layout *l = p->layout;
  Dim shape[MAX_RANK];
  uint32_t n = 0;
  for (int i = 0; i < ty->rank; i++) {
    int from = l && l->kind == LAY_ORDER ? l->perm[i] : i;
    Dim d = low_dim(x, ty->shape[from]);
    if (l && l->kind == LAY_RAGGED) {
      if (i == l->batch_axis) continue;
      if (i == l->axis) d = total_dim(x, p, ty->shape[i]);
    }
    if (l && l->kind == LAY_PAGED) {
      if (i == l->batch_axis) d = new_sym(x, p->name, "blocks");
      if (i == l->axis) d = low_dim(x, l->page);
    }
    shape[n++] = d;
  }
  return type_tensor(t, n, shape);
}

static Value load_i64(Fx *x, const Sym *table, const Value *at, uint32_t n) {
  Value v = ir_load(&x->b, tensor_of(x, table), at, n);
  return ir_cast(&x->b, DT_I64, v);
}

Value low_length(Fx *x, Dim ragged, Span at) {
  bool offsets = false;
  Sym *by = fe_ragged_by(x->decl, ragged, &offsets);
  Sym *batch = fe_batch_index(x->decl, ragged);
  if (!by || !batch) {
    low_error(x->low, at,
              "the length of a ragged dim needs an index over its "
              "batch axis");
    return val_fail(x).v;
  }
  Value b = low_coord(x, low_axis(x, batch));
  Value here = load_i64(x, by, &b, 1);
  if (!offsets) return here;
  Value next = ir_2(&x->b, OP_ADD, b, ir_const_i(&x->b, DT_I64, 1));
  return ir_2(&x->b, OP_SUB, load_i64(x, by, &next, 1), here);
}

static bool is_offsets(const Fx *x, const Param *p) {
  const Ty *batch = &p->sym->ty, *by = &p->layout->by->ty;
  return by->shape[0] != batch->shape[p->layout->batch_axis];
  (void)x;
}

// Physical indices from the declared ones. *entry is the page table's entry
// of a paged access (negative: there is no page).
static uint32_t physical(Fx *x, const Param *p, const Value *idx, Value *out,
                         Value *entry) {
  const Layout *l = p->layout;
  uint32_t n = p->sym->ty.rank, k = 0;
  Builder *b = &x->b;
  if (l && l->kind == LAY_RAGGED && !is_offsets(x, p))
    low_error(x->low, l->span,
              "a ragged layout needs offsets, of extent B + 1");
  for (uint32_t i = 0; i < n; i++) {
    bool axis = l && (int)i == l->axis, batch = l && (int)i == l->batch_axis;
    Value v = idx[i];
    if (l && l->kind == LAY_ORDER) v = idx[l->perm[i]];
    if (l && l->kind == LAY_RAGGED) {
      if (batch) continue;
      if (axis)
        v = ir_2(b, OP_ADD, load_i64(x, l->by, &idx[l->batch_axis], 1), v);
    }
    if (l && l->kind == LAY_PAGED) {
      Value page = ir_dim(b, low_dim(x, l->page)), k0 = idx[l->axis];
      if (batch) {
        Value at[] = {v, ir_2(b, OP_FLOORDIV, k0, page)};
        *entry = load_i64(x, l->table, at, 2);
        v = ir_2(b, OP_MAX, *entry, ir_const_i(b, DT_I64, 0));
      }
      if (axis) v = ir_2(b, OP_MOD, k0, page);
    }
    out[k++] = v;
  }
  return k;
}

// ---------------------------------------------------------------- items
typedef struct Access {
  Value idx[MAX_RANK];  // coordinate of each axis of the base
  Val shape;            // the axes that are left over
  Value valid;          // shifted items are in range, or 0
  const Val *like;      // whose axes to take where there is a choice, or NULL
} Access;

static bool plain_slice(const Item *i) {
  return i->kind == ITEM_SLICE && !i->lo && !i->hi;
}

static void keep_axis(Access *a, Dim d, uint32_t axis) {
  a->shape.dim[a->shape.rank] = d;
  a->shape.axis[a->shape.rank++] = axis;
}

// Axis that stays: sliced if `item`, whole if NULL. Its dim is `d`.
static void stay(Fx *x, Access *a, uint32_t pos, const Item *item, Dim d,
                 uint64_t *used) {
  uint32_t axis = low_vec_axis(x, d, *used);
  if (a->like && a->shape.rank < a->like->rank &&
      a->like->axis[a->shape.rank] != NO_AXIS)
    axis = a->like->axis[a->shape.rank];
  *used |= (uint64_t)1 << axis;
  a->idx[pos] = low_coord(x, axis);
  if (item && item->lo) {
    Value lo = low_i64(x, low_expr(x, item->lo));
    a->idx[pos] = ir_2(&x->b, OP_ADD, lo, a->idx[pos]);
  }
  keep_axis(a, d, axis);
}

// t - 1 and the like: valid inside the sequence.
static void shifted(Fx *x, Access *a, uint32_t pos, Value extent) {
  Builder *b = &x->b;
  Value zero = ir_const_i(b, DT_I64, 0), i = a->idx[pos];
  Value low = ir_2(b, OP_LE, zero, i);
  Value in = ir_2(b, OP_AND, low, ir_2(b, OP_LT, i, extent));
  a->valid = a->valid ? ir_2(b, OP_AND, a->valid, in) : in;
}

// s[items].
typedef struct Indexed {
  const Sym *s;
  const Item *items;
  uint32_t n;
  Span at;
} Indexed;

// Coordinates of base axes; the result has the dims of `left`.
static Access access_of(Fx *x, const Indexed *of, const Ty *left,
                        const Val *like) {
  const Ty *ty = &of->s->ty;
  Access a = {.like = like};
  uint64_t used = 0;
  uint32_t pos = 0;
  for (uint32_t i = 0; i < of->n; i++) {
    const Item *it = &of->items[i];
    if (it->new_axis) {
      keep_axis(&a, left->shape[a.shape.rank], NO_AXIS);
    } else if (it->kind == ITEM_EXPR) {
      a.idx[pos] = low_i64(x, low_expr(x, it->lo));
      if (it->shifted)
        shifted(x, &a, pos, low_dim_value(x, ty->shape[pos], of->at).v);
      pos++;
    } else {
      Dim d = plain_slice(it) ? ty->shape[pos] : left->shape[a.shape.rank];
      stay(x, &a, pos++, it, d, &used);
    }
  }
  for (; pos < ty->rank; pos++) stay(x, &a, pos, NULL, ty->shape[pos], &used);
  return a;
}

// ---------------------------------------------------------------- tensors
Val low_tensor(Fx *x, const Sym *s, const Item *items, uint32_t n, const Ty *ty,
               Span at) {
  const Param *p = param_of(x, s);
  if (!p || !p->type) {
    low_error(x->low, at, "'%s' has no value here", s->name);
    return val_fail(x);
  }
  Access a = access_of(x, &(Indexed){s, items, n, at}, ty, NULL);
  Value phys[MAX_RANK], entry = 0;
  uint32_t k = physical(x, p, a.idx, phys, &entry);
  Val v = a.shape;
  v.v = ir_load(&x->b, tensor_of(x, s), phys, k);
  if (!a.valid) return v;
  DType t = low_dtype_of(x, v);
  Value zero =
      dtype_is_float(t) ? ir_const_f(&x->b, t, 0.0) : ir_const_i(&x->b, t, 0);
  v.v = ir_3(&x->b, OP_SELECT, a.valid, v.v, zero);
  return v;
}

static Value both(Fx *x, Value p, Value q) {
  if (!p || !q) return p ? p : q;
  return ir_2(&x->b, OP_AND, p, q);
}

void low_store(Fx *x, const Sym *s, const Item *items, uint32_t n, Val v,
               Span at) {
  const Param *p = param_of(x, s);
  uint32_t left_over = n < s->ty.rank ? s->ty.rank - n : 0;
  const Val *like = v.rank == left_over ? &v : NULL;
  Access a = access_of(x, &(Indexed){s, items, n, at}, &s->ty, like);
  Value tensor = tensor_of(x, s), args[MAX_RANK + 3] = {tensor}, entry = 0;
  Val in[2] = {a.shape, v}, shape;
  if (v.rank) {
    in[0].v = v.v;
    val_align(x, in, 2, &shape);
    v = in[1];
  }
  args[1] = val_cast(x, v, ir_type(x->f, tensor)->dtype).v;
  uint32_t k = 2 + physical(x, p, a.idx, args + 2, &entry);
  Value mask = both(x, a.valid, x->step_valid);
  if (entry)
    mask =
        both(x, mask, ir_2(&x->b, OP_LE, ir_const_i(&x->b, DT_I64, 0), entry));
  IrAttr masked = attr_i(AT_MASKED, 1);
  if (mask) args[k++] = mask;
  ir_op(&x->b, OP_STORE, args, k, &masked, mask != 0, NULL, 0, 0);
}

// ---------------------------------------------------------------- vectors
static Val index_vector(Fx *x, Val base, const Expr *e) {
  uint32_t axes[MAX_RANK], n = 0, pos = 0;
  Value at[MAX_RANK];
  Access a = {0};
  uint64_t used = val_axes(x, base.v);
  for (uint32_t i = 0; i < e->items.n; i++) {
    const Item *it = &e->items.at[i];
    if (it->new_axis) {
      keep_axis(&a, e->ty.shape[a.shape.rank], NO_AXIS);
      continue;
    }
    uint32_t old = base.axis[pos];
    if (plain_slice(it)) {
      keep_axis(&a, base.dim[pos++], old);
      continue;
    }
    if (it->kind == ITEM_EXPR) a.idx[pos] = low_i64(x, low_expr(x, it->lo));
    else stay(x, &a, pos, it, e->ty.shape[a.shape.rank], &used);
    if (old != NO_AXIS && type_has_axis(ir_type(x->f, base.v), old)) {
      axes[n] = old;
      at[n++] = a.idx[pos];
    }
    pos++;
  }
  for (; pos < base.rank; pos++) keep_axis(&a, base.dim[pos], base.axis[pos]);
  a.shape.v = n ? low_at(x, base.v, n, axes, at) : base.v;
  return a.shape;
}

Val low_index(Fx *x, const Expr *e) {
  const Sym *s = e->a->sym;
  Val v;
  bool name = e->a->kind == EX_NAME && s && s->kind == SY_PARAM;
  if (name && !low_bound(x, s, &v))
    return low_tensor(x, s, e->items.at, e->items.n, &e->ty, e->span);
  return index_vector(x, low_expr(x, e->a), e);
}
