// Lowering of programs to IR level attn: dims, axes, parameters, statements.
//
//   O[b, h, q] = sum(k: p * V[b, h, k]);
// ->
//   %pb = cast(%p) {to = bf16} : bf16{b,h,q,k}
//   %vv = load(%V, %b, %h, %k, %di) : bf16{b,h,k,d}
//   %o = dot(%pb, %vv) {over = [k]} : f32{b,h,q,d}
//   %ob = cast(%o) {to = bf16} : bf16{b,h,q,d}
//   store(%O, %ob, %b, %h, %q, %di)
#include "frontend/lower.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

void low_error(Low *w, Span at, const char *fmt, ...) {
  char text[400];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  w->failed = true;
  diag_add(w->cx, DIAG_cannot_lower, at, arena_strdup(&w->cx->session, text));
}

// ---------------------------------------------------------------- contexts
Fx low_fx(Low *w, const Decl *d, Func *f) {
  Fx x = {.low = w, .decl = d, .f = f};
  x.b = (Builder){.fn = f, .region = f->body, .span = d->span};
  x.vals.arena = x.axes.arena = x.tensors.arena = w->a;
  x.explicit_casts.arena = x.coords.arena = w->a;
  x.deps = ir_key_deps_of(f, w->a);
  return x;
}

void low_bind(Fx *x, const Sym *s, Val v) {
  Val *p = NEW(x->low->a, Val);
  *p = v;
  map_put(&x->vals, (uintptr_t)s, (uintptr_t)p);
}

bool low_bound(const Fx *x, const Sym *s, Val *v) {
  uint64_t p;
  if (!map_get(&x->vals, (uintptr_t)s, &p)) return false;
  *v = *(const Val *)(uintptr_t)p;
  return true;
}

uint32_t low_axis(Fx *x, const Sym *index) {
  uint64_t axis = 0;
  if (map_get(&x->axes, (uintptr_t)index, &axis)) return (uint32_t)axis;
  low_error(x->low, x->b.span, "index '%s' has no axis here", index->name);
  uint32_t made = ir_axis(x->f, index->name, AX_KEY, low_dim(x, index->dim));
  map_put(&x->axes, (uintptr_t)index, made);
  return made;
}

const Attr *low_attr(const Fx *x, const char *name) {
  for (uint32_t i = 0; i < x->decl->attrs.n; i++)
    if (strcmp(x->decl->attrs.at[i].name, name) == 0)
      return &x->decl->attrs.at[i];
  return NULL;
}

// ---------------------------------------------------------------- dims
Dim low_dim(const Fx *x, Dim d) {
  return dim_subst(x->decl->dims, &x->low->m->dims, d, x->dims);
}

static bool uses_ragged(const DimTab *t, Dim d) {
  for (uint32_t i = 0; i < t->syms.n; i++)
    if (t->syms.at[i].kind == DIM_RAGGED && dim_uses(t, d, i)) return true;
  return false;
}

bool low_ragged(const Fx *x, Dim d) {
  return uses_ragged(x->decl->dims, d);
}

Val low_dim_value(Fx *x, Dim d, Span at) {
  const DimTab *t = x->decl->dims;
  Val v = {.weak = true};
  if (t->exprs.at[d].op == DIM_SYM && low_ragged(x, d)) {
    v.v = low_length(x, d, at);
    return v;
  }
  Dim to = low_dim(x, d);
  if (uses_ragged(&x->low->m->dims, to))
    low_error(x->low, at,
              "the length of a ragged dim is not known in a "
              "function: pass it as a parameter");
  v.v = ir_dim(&x->b, to);
  return v;
}

// Bound dims are constants, the others keep their symbol and facts.
static Dim *bind_dims(Low *w, const Decl *d) {
  Dim *to = NEWN(w->a, Dim, d->dims->syms.n + 1);
  for (uint32_t i = 0; i < d->dims->syms.n; i++)
    for (uint32_t j = 0; j < w->nbinds; j++)
      if (w->binds[j].dtype == DT_NONE &&
          strcmp(w->binds[j].name, d->dims->syms.at[i].name) == 0)
        to[i] = dim_const(&w->m->dims, w->binds[j].value);
  return to;
}

static DType *bind_types(Low *w, const Decl *d) {
  DType *to = NEWN(w->a, DType, d->generics.n + 1);
  for (uint32_t i = 0; i < d->generics.n; i++) {
    const Generic *g = &d->generics.at[i];
    to[i] = g->dtypes.n ? g->dtypes.at[0] : DT_F32;
    for (uint32_t j = 0; j < w->nbinds; j++)
      if (w->binds[j].dtype != DT_NONE &&
          strcmp(w->binds[j].name, g->name) == 0)
        to[i] = w->binds[j].dtype;
  }
  return to;
}

DType low_dtype(const Fx *x, const TypeExpr *t) {
  if (t->is_int) return DT_I64;
  if (t->dtype != DT_NONE) return t->dtype;
  for (uint32_t i = 0; i < x->decl->generics.n; i++)
    if (strcmp(x->decl->generics.at[i].name, t->generic) == 0)
      return x->types[i];
  return DT_F32;
}

// ---------------------------------------------------------------- indices
void low_indices(Fx *x) {
  static const AxisRole roles[] = {
      [IX_PARALLEL] = AX_PAR, [IX_KEY] = AX_KEY,     [IX_VEC] = AX_VEC,
      [IX_STEP] = AX_STEP,    [IX_REPEAT] = AX_STEP,
  };
  for (uint32_t i = 0; i < x->decl->indices.n; i++) {
    const Sym *s = x->decl->indices.at[i];
    uint64_t dummy;
    if (s->role == IX_PARAM || map_get(&x->axes, (uintptr_t)s, &dummy))
      continue;
    uint32_t axis = ir_axis(x->f, s->name, roles[s->role], low_dim(x, s->dim));
    map_put(&x->axes, (uintptr_t)s, axis);
  }
}

static void domain(Fx *x, uint32_t axis, Value p) {
  IrAttr attr = attr_i(AT_AXIS, axis);
  ir_note_domain(x->f, &x->domains, axis, p);
  ir_op(&x->b, OP_DOMAIN, &p, 1, &attr, 1, NULL, 0, 0);
}

// Coordinates of a ragged axis stop at its length; then the written domain.
static void index_domain(Fx *x, const IndexDecl *d) {
  const Sym *s = d->name.sym;
  uint32_t axis = low_axis(x, s);
  x->b.span = d->name.span;
  if (low_ragged(x, s->dim)) {
    Val end = d->extent ? low_expr(x, d->extent)
                        : low_dim_value(x, s->dim, d->name.span);
    Value i = low_coord(x, axis);
    domain(x, axis, ir_2(&x->b, OP_LT, i, low_i64(x, end)));
  }
  if (d->domain) domain(x, axis, low_expr(x, d->domain).v);
}

// ---------------------------------------------------------------- statements
static void let(Fx *x, const Stmt *s) {
  Vals r = low_exprs(x, s->expr);
  for (uint32_t i = 0; i < s->names.n && i < r.n; i++) {
    if (!s->names.at[i].sym) continue;
    low_bind(x, s->names.at[i].sym, r.at[i]);
    ValueInfo *info = ir_info(x->f, r.at[i].v);
    if (!info->hint && info->def) info->hint = s->names.at[i].name;
  }
}

static void give_back(Fx *x, const Stmt *s) {
  if (s->list.n == 1) {
    x->results = low_exprs(x, s->list.at[0]);
    return;
  }
  x->results = (Vals){.at = NEWN(x->low->a, Val, s->list.n), .n = s->list.n};
  for (uint32_t i = 0; i < s->list.n; i++)
    x->results.at[i] = low_expr(x, s->list.at[i]);
}

static void assign(Fx *x, const Stmt *s) {
  const Sym *to = s->target.sym;
  if (to->kind == SY_STATE) {
    low_set_state(x, s);
    return;
  }
  Val v = low_expr(x, s->expr);
  low_store(x, to, s->items.at, s->items.n, v, s->span);
}

static void stmt(Fx *x, const Stmt *s) {
  x->b.span = s->span;
  switch (s->kind) {
  case ST_ERROR: break;
  case ST_LET: let(x, s); break;
  case ST_INDEX:
    for (uint32_t i = 0; i < s->indices.n; i++)
      index_domain(x, &s->indices.at[i]);
    break;
  case ST_RETURN: give_back(x, s); break;
  case ST_ASSUME: {
    Value p = low_expr(x, s->expr).v;
    ir_op(&x->b, OP_ASSUME, &p, 1, NULL, 0, NULL, 0, 0);
    break;
  }
  case ST_ASSIGN: assign(x, s); break;
  case ST_STATE: low_state(x, s); break;
  case ST_STEP:
  case ST_REPEAT: low_step(x, s); break;
  }
}

void low_body(Fx *x, Stmt *const *body, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) stmt(x, body[i]);
}

// ---------------------------------------------------------------- programs
static void program_param(Fx *x, const Param *p, ParamRole role) {
  DType t = low_dtype(x, p->type);
  bool scalar = role == PR_IN && p->sym->ty.rank == 0;
  Value v = scalar ? ir_param(x->f, p->name, PR_SCALAR, type_scalar(t))
                   : ir_param(x->f, p->name, role, low_param_type(x, p, t));
  x->f->params.at[x->f->params.n - 1].nograd = p->qual == PQ_NOGRAD;
  if (scalar) low_bind(x, p->sym, val_scalar(v));
  else map_put(&x->tensors, (uintptr_t)p->sym, v);
}

static void scalar_default(Fx *x, const Param *p) {
  Val v;
  if (!p->deflt || !low_bound(x, p->sym, &v)) return;
  Type flag = type_scalar(DT_BOOL);
  Value given = ir_op(&x->b, OP_GIVEN, &v.v, 1, NULL, 0, &flag, 1, 0)->res[0];
  Val d = val_cast(x, low_expr(x, p->deflt), low_dtype_of(x, v));
  v.v = ir_3(&x->b, OP_SELECT, given, v.v, d.v);
  low_bind(x, p->sym, v);
}

static void program(Fx *x) {
  const Decl *d = x->decl;
  low_indices(x);
  for (uint32_t i = 0; i < d->params.n; i++)
    program_param(x, &d->params.at[i],
                  d->params.at[i].qual == PQ_INOUT ? PR_INOUT : PR_IN);
  for (uint32_t i = 0; i < d->outs.n; i++)
    program_param(x, &d->outs.at[i], PR_OUT);
  for (uint32_t i = 0; i < d->params.n; i++)
    scalar_default(x, &d->params.at[i]);
  low_body(x, d->body.at, d->body.n);
  low_write_back(x);
}

// Callees were added after the program that calls them: it stays first.
Module *fe_lower(Ctx *cx, const Decl *prog, const FeBind *binds,
                 uint32_t nbinds) {
  Module *m = ir_module(cx, LV_ATTN);
  Low w = {.cx = cx, .m = m, .a = m->arena, .binds = binds, .nbinds = nbinds};
  Func *f = ir_func(m, FK_PROGRAM, prog->name);
  f->span = prog->span;
  Fx x = low_fx(&w, prog, f);
  x.dims = bind_dims(&w, prog);
  x.types = bind_types(&w, prog);
  program(&x);
  for (uint32_t i = 0; i < m->funcs.n; i++) ir_sweep(m->funcs.at[i]);
  return w.failed ? NULL : m;
}
