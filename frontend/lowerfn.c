// Lowering of functions. A mask, mod, row or fn becomes one function of the
// module for each choice of dims and dtypes it is called with; a use is a
// `call`. Vec axes of parameters and results are bound by the call's `axes`,
// in the order of the callee's declaration.
#include "frontend/lower.h"

#include <assert.h>

enum { MAX_DEPTH = 64, MAX_PARAMS = 64 };

// ---------------------------------------------------------------- instances
static bool same_instance(const Instance *a, const Instance *b) {
  if (a->decl != b->decl || a->extent != b->extent) return false;
  for (uint32_t i = 0; i < a->decl->dims->syms.n; i++)
    if (a->dims[i] != b->dims[i]) return false;
  for (uint32_t i = 0; i < a->decl->generics.n; i++)
    if (a->types[i] != b->types[i]) return false;
  return true;
}

// "softmax", "softmax.1", ..
static const char *fresh_name(Low *w, const char *name) {
  const char *s = name;
  for (uint32_t i = 1; ir_find(w->m, s); i++)
    s = arena_printf(w->a, "%s.%u", name, i);
  return s;
}

static FuncKind func_kind(DeclKind k) {
  switch (k) {
  case DE_MASK: return FK_MASK;
  case DE_MOD: return FK_MOD;
  case DE_ROW: return FK_ROW;
  default: return FK_FN;
  }
}

static Val param(Fx *x, const Param *p) {
  Val v = {0};
  if (!p->type) {
    v.v = ir_param(x->f, p->name, PR_INDEX, type_scalar(DT_I64));
    return v;
  }
  Type t = type_scalar(low_dtype(x, p->type));
  if (p->type->row && x->f->key >= 0)
    t = type_with(t, (uint32_t)x->f->key, DIM_NONE);
  uint64_t used = 0;
  for (uint32_t i = 0; i < p->sym->ty.rank; i++) {
    v.dim[i] = p->sym->ty.shape[i];
    v.axis[i] = low_vec_axis(x, v.dim[i], used);
    used |= (uint64_t)1 << v.axis[i];
    t = type_with(t, v.axis[i], DIM_NONE);
  }
  v.rank = p->sym->ty.rank;
  v.v = ir_param(x->f, p->name, PR_SCALAR, t);
  return v;
}

// Weak results become values; written result types round.
static void finish_results(Fx *x) {
  const Decl *d = x->decl;
  Value out[MAX_PARAMS];
  for (uint32_t i = 0; i < x->results.n && i < MAX_PARAMS; i++) {
    Val *r = &x->results.at[i];
    if (i < d->ret.n) *r = val_cast(x, *r, low_dtype(x, d->ret.at[i]));
    if (r->weak && low_dtype_of(x, *r) == DT_F64) *r = val_cast(x, *r, DT_F32);
    out[i] = r->v;
  }
  ir_op(&x->b, OP_RETURN, out, x->results.n, NULL, 0, NULL, 0, 0);
}

static void lower_callee(Low *w, Instance *it) {
  const Decl *d = it->decl;
  Func *f = ir_func(w->m, func_kind(d->kind), fresh_name(w, d->name));
  it->fn = f;
  f->span = d->span;
  Fx x = low_fx(w, d, f);
  x.dims = it->dims;
  x.types = it->types;
  if (d->key) {
    f->key = (int)ir_axis(f, "k", AX_KEY, it->extent);
    map_put(&x.axes, (uintptr_t)d->key, (uint64_t)f->key);
  }
  low_indices(&x);
  it->params = (Vals){.at = NEWN(w->a, Val, d->params.n), .n = d->params.n};
  for (uint32_t i = 0; i < d->params.n; i++) {
    it->params.at[i] = param(&x, &d->params.at[i]);
    low_bind(&x, d->params.at[i].sym, it->params.at[i]);
  }
  if (d->value) x.results = low_exprs(&x, d->value);
  else low_body(&x, d->body.at, d->body.n);
  finish_results(&x);
  it->results = x.results;
}

static Instance *instance(Low *w, Instance want, Span at) {
  for (uint32_t i = 0; i < w->instances.n; i++)
    if (same_instance(w->instances.at[i], &want)) return w->instances.at[i];
  if (w->depth >= MAX_DEPTH) {
    low_error(w, at, "functions call each other more than %d deep", MAX_DEPTH);
    return NULL;
  }
  Instance *it = NEW(w->a, Instance);
  *it = want;
  w->depth++;
  lower_callee(w, it);
  w->depth--;
  vec_push(w->a, &w->instances, it);
  return it;
}

// ---------------------------------------------------------------- arguments
// A default is an expression of the callee's dims.
static Val default_value(Fx *x, const Decl *d, Dim *dims, const Expr *e) {
  Fx y = low_fx(x->low, d, x->f);
  y.b = x->b;
  y.dims = dims;
  return low_expr(&y, e);
}

static uint32_t arguments(Fx *x, const Expr *e, const Decl *d, Dim *dims,
                          Val *out) {
  for (uint32_t i = 0; i < e->nbound && i < MAX_PARAMS; i++) {
    const Bound *b = &e->bound[i];
    if (b->index) {
      Val v;
      out[i] = low_bound(x, b->index, &v)
                   ? v
                   : val_scalar(low_coord(x, low_axis(x, b->index)));
    } else if (b->value == d->params.at[i].deflt) {
      out[i] = default_value(x, d, dims, b->value);
    } else {
      out[i] = low_expr(x, b->value);
    }
  }
  return e->nbound;
}

// Dtype generics of a function are those of the first argument that has them.
static DType *solve_types(Fx *x, const Decl *d, const Val *args) {
  DType *types = NEWN(x->low->a, DType, d->generics.n + 1);
  for (uint32_t g = 0; g < d->generics.n; g++) {
    types[g] = DT_NONE;
    for (uint32_t i = 0; i < d->params.n; i++) {
      const TypeExpr *t = d->params.at[i].type;
      if (t && t->generic == d->generics.at[g].name && !args[i].weak &&
          types[g] == DT_NONE)
        types[g] = low_dtype_of(x, args[i]);
    }
    if (types[g] == DT_NONE) types[g] = DT_F32;
  }
  return types;
}

// ---------------------------------------------------------------- axes
// Axes of the caller by axis of the callee, NO_AXIS where unbound.
typedef struct Binding {
  const Instance *it;
  uint32_t to[64];
} Binding;

static bool taken(const Binding *b, uint32_t axis) {
  for (uint32_t i = 0; i < b->it->fn->axes.n; i++)
    if (b->to[i] == axis) return true;
  return false;
}

static uint64_t taken_set(const Binding *b) {
  uint64_t set = 0;
  for (uint32_t i = 0; i < b->it->fn->axes.n; i++)
    if (b->to[i] != NO_AXIS) set |= (uint64_t)1 << b->to[i];
  return set;
}

// Binds the parameter's vec axes to the argument's; renames the argument's
// where they are bound already.
static Val bind_shape(Fx *x, Binding *b, const Val *p, Val arg) {
  uint32_t to[MAX_RANK];
  for (uint32_t i = 0; i < arg.rank; i++) {
    uint32_t *at = &b->to[p->axis[i]];
    to[i] = arg.axis[i];
    if (*at == NO_AXIS && (to[i] == NO_AXIS || taken(b, to[i])))
      *at = low_vec_axis(x, arg.dim[i], taken_set(b));
    else if (*at == NO_AXIS) *at = to[i];
    if (to[i] != NO_AXIS) to[i] = *at;
  }
  return val_rename(x, arg, to);
}

static uint64_t mapped(const Binding *b, const Type *t) {
  uint64_t set = 0;
  for (uint32_t i = 0; i < t->n; i++)
    if (b->to[t->axis[i]] != NO_AXIS) set |= (uint64_t)1 << b->to[t->axis[i]];
  return set;
}

static uint64_t attr_axes_mapped(const Binding *b, const IrAttr *a) {
  uint64_t set = 0;
  for (uint32_t i = 0; a && i < a->n; i++)
    if (b->to[a->list[i]] != NO_AXIS) set |= (uint64_t)1 << b->to[a->list[i]];
  return set;
}

// Which axes of the caller each value of the callee varies with. Axes that
// only the callee knows are none of them.
static void flow(const Binding *b, uint64_t *set) {
  const Func *f = b->it->fn;
  for (const Op *op = f->body->first; op; op = op->next) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < op->nargs; i++) {
      uint64_t one = set[op->args[i]];
      if (op->code == OP_AT && i == 0)
        one &= ~attr_axes_mapped(b, ir_attr(op, AT_AXES));
      all |= one;
    }
    all &= ~attr_axes_mapped(b, ir_attr(op, AT_OVER));
    for (uint32_t i = 0; i < op->nres; i++) {
      uint64_t own = mapped(b, ir_type(f, op->res[i]));
      // A call's results need not vary with all its arguments do.
      uint64_t lost =
          op->code == OP_CALL && f->key >= 0 && b->to[f->key] != NO_AXIS
              ? (uint64_t)1 << b->to[f->key]
              : 0;
      set[op->res[i]] = (all & ~lost) | own;
    }
  }
}

static Type set_type(DType t, uint64_t set) {
  Type r = type_scalar(t);
  for (; set; set &= set - 1)
    r = type_with(r, (uint32_t)__builtin_ctzll(set), DIM_NONE);
  return r;
}

static void result_types(Fx *x, const Binding *b, const Val *args,
                         Type *types) {
  const Func *f = b->it->fn;
  uint64_t *set = NEWN(x->low->a, uint64_t, f->values.n);
  for (uint32_t i = 0; i < f->params.n; i++)
    set[f->params.at[i].v] = val_axes(x, args[i].v);
  flow(b, set);
  for (uint32_t i = 0; i < b->it->results.n; i++) {
    Value r = b->it->results.at[i].v;
    types[i] = set_type(ir_type(f, r)->dtype, set[r]);
  }
}

// ---------------------------------------------------------------- calls
static const Ty *result_ty(const Expr *e, uint32_t i) {
  return e->ty.kind == TY_TUPLE ? &e->ty.elems[i] : &e->ty;
}

// Result vec axes that no parameter has bound.
static void bind_results(Fx *x, Binding *b, const Expr *e) {
  for (uint32_t i = 0; i < b->it->results.n; i++) {
    const Val *r = &b->it->results.at[i];
    for (uint32_t j = 0; j < r->rank; j++)
      if (r->axis[j] != NO_AXIS && b->to[r->axis[j]] == NO_AXIS)
        b->to[r->axis[j]] =
            low_vec_axis(x, result_ty(e, i)->shape[j], taken_set(b));
  }
}

static Vals emit_call(Fx *x, const Expr *e, const Binding *b, const Val *args) {
  const Instance *it = b->it;
  Value in[MAX_PARAMS];
  Type types[MAX_PARAMS];
  IrAttr attrs[3] = {attr_s(AT_CALLEE, it->fn->name)};
  int64_t axes[64];
  uint32_t na = 1, n = 0, np = it->params.n;
  for (uint32_t i = 0; i < np; i++) in[i] = args[i].v;
  result_types(x, b, args, types);
  for (uint32_t i = 0; i < it->fn->axes.n; i++)
    if (it->fn->axes.at[i].role == AX_VEC && b->to[i] != NO_AXIS)
      axes[n++] = b->to[i];
  if (it->fn->key >= 0) attrs[na++] = attr_i(AT_AXIS, b->to[it->fn->key]);
  if (n) attrs[na++] = attr_list(AT_AXES, axes, n);
  Op *op = ir_op(&x->b, OP_CALL, in, np, attrs, na, types, it->results.n, 0);
  Vals r = {.at = NEWN(x->low->a, Val, it->results.n), .n = it->results.n};
  for (uint32_t i = 0; i < r.n; i++) {
    const Val *from = &it->results.at[i];
    Val *to = &r.at[i];
    to->v = op->res[i];
    to->rank = from->rank;
    for (uint32_t j = 0; j < from->rank; j++) {
      to->dim[j] = result_ty(e, i)->shape[j];
      to->axis[j] = from->axis[j] == NO_AXIS ? NO_AXIS : b->to[from->axis[j]];
    }
  }
  return r;
}

Vals low_call(Fx *x, const Expr *e, const Sym *callee) {
  const Decl *d = callee->decl;
  Low *w = x->low;
  Val args[MAX_PARAMS];
  if (e->nbound > MAX_PARAMS || d->kind == DE_ATTENTION ||
      d->kind == DE_RECURRENT) {
    low_error(w, e->span, "'%s' cannot be called here", d->name);
    return (Vals){0};
  }
  Instance want = {.decl = d, .dims = NEWN(w->a, Dim, d->dims->syms.n + 1)};
  for (uint32_t i = 0; i < d->dims->syms.n; i++)
    want.dims[i] = low_dim(x, e->dims[i]);
  uint32_t n = arguments(x, e, d, want.dims, args);
  want.types = solve_types(x, d, args);
  if (d->key && !e->binder) {
    low_error(w, e->span, "'%s' has no key index here", d->name);
    return (Vals){0};
  }
  uint32_t key = d->key ? low_axis(x, e->binder) : NO_AXIS;
  if (d->key) want.extent = x->f->axes.at[key].extent;
  Binding b = {.it = instance(w, want, e->span)};
  if (!b.it) return (Vals){0};
  memset(b.to, 0xff, sizeof b.to);
  if (d->key) b.to[b.it->fn->key] = key;
  for (uint32_t i = 0; i < n; i++) {
    const Val *p = &b.it->params.at[i];
    args[i] = val_cast(x, args[i], ir_type(b.it->fn, p->v)->dtype);
    if (p->rank) args[i] = bind_shape(x, &b, p, args[i]);
  }
  bind_results(x, &b, e);
  return emit_call(x, e, &b, args);
}
