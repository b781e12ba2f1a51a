// The oracle's names: parameters, lets, dims, domains, calls of user
// functions. Whatever does not vary with an index is remembered under the
// coordinates of the indices it does vary with.
#include "frontend/oraclecore.h"

#include <math.h>
#include <string.h>

enum { MAX_CALLS = 128 };

Frame *oracle_frame(Oracle *o, const Decl *d, Frame *caller, const Expr *call) {
  Frame *f = NEW(&o->arena, Frame);
  f->d = d;
  f->caller = caller;
  f->call = call;
  f->dims = NEWN(&o->arena, int64_t, d->dims->syms.n + 1);
  f->idx = NEWN(&o->arena, int64_t, d->indices.n + 1);
  f->memo.arena = &o->arena;
  return f;
}

// ---------------------------------------------------------------- tensors
static bool strided(const OracleArg *a, const int64_t *at, uint32_t rank,
                    int64_t *off) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < rank; i++) {
    if (at[i] < 0 || at[i] >= a->shape[i]) return false;
    sum += at[i] * a->stride[i];
  }
  *off = sum;
  return true;
}

// Physical offset of logical coordinates (docs/lang.md, layouts).
bool oracle_place(Oracle *o, const Param *p, const OracleArg *a,
                  const int64_t *at, int64_t *off) {
  uint32_t rank = p->type->shape.n, n = 0;
  const Layout *l = p->layout;
  LayoutKind kind = l ? l->kind : LAY_STRIDED;
  if (kind == LAY_STRIDED) return strided(a, at, rank, off);
  int64_t c[MAX_RANK] = {0};
  for (uint32_t i = 0; i < rank; i++) {
    int ax = (int)i;
    if (kind == LAY_RAGGED && ax == l->batch_axis) continue;
    c[n] = at[i];
    if (kind == LAY_RAGGED && ax == l->axis) {
      const OracleArg *by = &o->args[l->by->param];
      const char *q = by->data;
      int64_t b = at[l->batch_axis];
      c[n] += (int64_t)dtype_load(by->dtype, q + b * by->stride[0] *
                                                     dtype_size(by->dtype));
    }
    if (kind == LAY_PAGED && ax == l->batch_axis) {
      const OracleArg *t = &o->args[l->table->param];
      int64_t slot = at[l->axis] / a->shape[l->axis];
      if (slot >= t->shape[1]) return false;
      int64_t e = at[i] * t->stride[0] + slot * t->stride[1];
      c[n] = (int64_t)dtype_load(t->dtype, (const char *)t->data +
                                               e * dtype_size(t->dtype));
    }
    if (kind == LAY_PAGED && ax == l->axis) c[n] = at[i] % a->shape[i];
    n++;
  }
  *off = 0;
  for (uint32_t i = 0; i < n; i++) {
    int64_t at_i = c[kind == LAY_ORDER ? l->perm[i] : i];
    if (at_i < 0 || at_i >= a->shape[i]) return false;
    *off += at_i * a->stride[i];
  }
  return true;
}

static void out_of_range(Oracle *o, const Sym *s, const int64_t *at,
                         Span span) {
  const OracleArg *a = &o->args[s->param];
  const Param *p = &o->prog->params.at[s->param];
  uint32_t bad = 0;
  while (bad + 1 < p->type->shape.n && at[bad] >= 0 && bad < a->rank &&
         at[bad] < a->shape[bad])
    bad++;
  if (!o->failed)
    diag_add(o->cx, DIAG_interp_range, span, (long long)at[bad], (int)bad,
             p->name, (long long)a->shape[bad]);
  o->failed = true;
}

void oracle_read(Oracle *o, const Sym *s, const int64_t *at, Span span, Val *r,
                 int64_t i) {
  const OracleArg *a = &o->args[s->param];
  const Param *p = &o->prog->params.at[s->param];
  int64_t off;
  if (!oracle_place(o, p, a, at, &off)) {
    out_of_range(o, s, at, span);
    return;
  }
  r->at[i] =
      dtype_load(a->dtype, (const char *)a->data + off * dtype_size(a->dtype));
  if (o->lanes) oracle_seed(o, (Line){s->param, off, 0, 1}, r, i);
}

int64_t oracle_read_line(Oracle *o, const Sym *s, const int64_t *at, int64_t n,
                         Val *r, int64_t i) {
  const OracleArg *a = &o->args[s->param];
  const Layout *l = o->prog->params.at[s->param].layout;
  uint32_t rank = o->prog->params.at[s->param].type->shape.n;
  int64_t off, last = rank ? at[rank - 1] : 0;
  if (!rank || (l && l->kind != LAY_STRIDED)) return 0;
  if (!strided(a, at, rank, &off) || n > a->shape[rank - 1] - last) return 0;
  int64_t size = dtype_size(a->dtype), step = a->stride[rank - 1];
  const char *from = (const char *)a->data + off * size;
  for (int64_t k = 0; k < n; k++)
    r->at[i + k] = dtype_load(a->dtype, from + k * step * size);
  if (o->lanes) oracle_seed(o, (Line){s->param, off, step, n}, r, i);
  return n;
}

// ---------------------------------------------------------------- dims
// Length of one sequence of a ragged dim.
static int64_t ragged_length(Oracle *o, Frame *f, Dim d, const Sym *batch) {
  bool offsets;
  const Sym *by = fe_ragged_by(f->d, d, &offsets);
  if (!batch) batch = fe_batch_index(f->d, d);
  if (!by || !batch || f->caller) return -1;
  const OracleArg *a = &o->args[by->param];
  int64_t b = f->idx[batch->index_id];
  const char *p = a->data;
  int64_t st = a->stride[0] * dtype_size(a->dtype);
  double lo = offsets ? dtype_load(a->dtype, p + b * st) : 0;
  double hi = dtype_load(a->dtype, p + (b + offsets) * st);
  return (int64_t)(hi - lo);
}

int64_t oracle_dim(Oracle *o, Frame *f, Dim d, const Sym *batch) {
  const DimTab *t = f->d->dims;
  const DimExpr *e = &t->exprs.at[d];
  int64_t v = 0;
  if (e->op == DIM_SYM && t->syms.at[e->value].kind == DIM_RAGGED) {
    v = ragged_length(o, f, d, batch);
    if (v >= 0) return v;
  }
  if (!dim_eval(t, d, f->dims, &v)) o->failed = true;
  return v;
}

// ---------------------------------------------------------------- domains
static const Keys *caller_keys(Oracle *o, Frame *f) {
  const Sym *key = f->call->binder;
  int64_t own = f->caller->idx[key->index_id];
  const Keys *k = oracle_keys(o, f->caller, key);
  f->caller->idx[key->index_id] = own;
  return k;
}

static uint64_t domain_vary(const Sym *s) {
  uint64_t v = s->domain ? s->domain->vary : 0;
  // The extent of a ragged dim varies with its batch index.
  const Sym *b = fe_batch_index(s->owner, s->dim);
  if (b) v |= (uint64_t)1 << b->index_id;
  return v & ~((uint64_t)1 << s->index_id);
}

const Keys *oracle_keys(Oracle *o, Frame *f, const Sym *s) {
  if (f->d->key == s) return caller_keys(o, f);
  uint64_t key = oracle_key(f, s, domain_vary(s)), got;
  if (map_get(&f->memo, key, &got)) return (const Keys *)(uintptr_t)got;
  Keys *k = NEW(&o->arena, Keys);
  int64_t n = oracle_dim(o, f, s->dim, NULL), saved = f->idx[s->index_id];
  k->at = NEWN(&o->arena, int64_t, n > 0 ? n : 1);
  for (int64_t i = 0; i < n && !o->failed; i++) {
    f->idx[s->index_id] = i;
    if (!s->domain || oracle_num(oracle_eval(o, f, s->domain)) != 0)
      k->at[k->n++] = i;
  }
  f->idx[s->index_id] = saved;
  map_put(&f->memo, key, (uint64_t)(uintptr_t)k);
  return k;
}

// ---------------------------------------------------------------- names
// Evaluates an argument in the caller, at the row's current key.
static Val *in_caller(Oracle *o, Frame *f, const Expr *e) {
  Frame *c = f->caller;
  const Sym *binder = f->d->key ? f->call->binder : NULL;
  if (!binder) return oracle_eval(o, c, e);
  int64_t saved = c->idx[binder->index_id];
  c->idx[binder->index_id] = f->idx[f->d->key->index_id];
  Val *v = oracle_eval(o, c, e);
  c->idx[binder->index_id] = saved;
  return v;
}

static Val *whole_tensor(Oracle *o, Frame *f, const Sym *s) {
  int64_t shape[MAX_RANK], at[MAX_RANK];
  for (uint32_t i = 0; i < s->ty.rank; i++)
    shape[i] = oracle_dim(o, f, s->ty.shape[i], NULL);
  Val *v = oracle_array(o, s->ty.rank, shape);
  int64_t line = shape[v->rank - 1];
  for (int64_t i = 0, n = line; i < v->n && !o->failed; i += n) {
    int64_t rest = i;
    for (uint32_t k = v->rank; k-- > 0;) {
      at[k] = rest % shape[k];
      rest /= shape[k];
    }
    n = n == line ? oracle_read_line(o, s, at, line, v, i) : 0;
    if (!n) oracle_read(o, s, at, s->span, v, i), n = 1;
  }
  return v;
}

static Val *program_param(Oracle *o, Frame *f, const Sym *s) {
  const OracleArg *a = &o->args[s->param];
  if (s->ty.rank) return whole_tensor(o, f, s);
  const Expr *d = f->d->params.at[s->param].deflt;
  double v = a->given ? a->scalar
             : d      ? oracle_num(oracle_eval(o, f, d))
                      : (double)NAN;
  Val *r = oracle_scalar(o, v);
  oracle_seed(o, (Line){s->param, 0, 0, 1}, r, 0);
  return r;
}

Val *oracle_param(Oracle *o, Frame *f, const Sym *s) {
  uint64_t key = oracle_key(f, s, s->vary), got;
  if (map_get(&f->memo, key, &got)) return (Val *)(uintptr_t)got;
  Val *v;
  if (!f->caller) {
    v = program_param(o, f, s);
  } else {
    const Bound *b = &f->call->bound[s->param];
    bool deflt = b->value == f->d->params.at[s->param].deflt;
    v = !b->value ? oracle_scalar(o, NAN)
        : deflt   ? oracle_eval(o, f, b->value)
                  : in_caller(o, f, b->value);
  }
  map_put(&f->memo, key, (uint64_t)(uintptr_t)v);
  return v;
}

static const Expr *as_call(const Expr *e) {
  bool call = (e->kind == EX_CALL || e->kind == EX_PIPE || e->kind == EX_NAME ||
               e->kind == EX_MEMBER) &&
              e->sym && e->sym->kind == SY_DECL;
  return call ? e : NULL;
}

static Val *tuple_element(Oracle *o, Frame *f, const Expr *e, uint32_t i) {
  if (e->kind == EX_TUPLE) return oracle_eval(o, f, e->list.at[i]);
  if (as_call(e)) return oracle_call(o, f, e, i);
  if (e->kind == EX_NAME && e->sym->kind == SY_LET)
    return tuple_element(o, f, e->sym->value, i);
  if (e->kind == EX_IF) {
    bool yes = oracle_num(oracle_eval(o, f, e->a)) != 0;
    return tuple_element(o, f, yes ? e->b : e->c, i);
  }
  return oracle_eval(o, f, e);
}

Val *oracle_let(Oracle *o, Frame *f, const Sym *s) {
  uint64_t key = oracle_key(f, s, s->vary), got;
  if (map_get(&f->memo, key, &got)) return (Val *)(uintptr_t)got;
  Val *v = s->is_tuple ? tuple_element(o, f, s->value, s->tuple_at)
                       : oracle_eval(o, f, s->value);
  map_put(&f->memo, key, (uint64_t)(uintptr_t)v);
  return v;
}

// ---------------------------------------------------------------- calls
static void bind_indices(Oracle *o, Frame *f) {
  for (uint32_t i = 0; i < f->call->nbound; i++) {
    const Sym *p = f->d->params.at[i].sym;
    const Bound *b = &f->call->bound[i];
    if (!p || p->kind != SY_INDEX) continue;
    f->idx[p->index_id] =
        b->index ? f->caller->idx[b->index->index_id]
                 : (int64_t)oracle_num(oracle_eval(o, f->caller, b->value));
  }
}

static Frame *enter(Oracle *o, Frame *caller, const Expr *e) {
  const Decl *d = e->sym->decl;
  uint64_t vary = e->vary, got;
  // A row is entered once for all its keys.
  if (d->key && e->binder) vary &= ~((uint64_t)1 << e->binder->index_id);
  uint64_t key = oracle_key(caller, e, vary);
  if (map_get(&caller->memo, key, &got)) return (Frame *)(uintptr_t)got;
  Frame *f = oracle_frame(o, d, caller, e);
  for (uint32_t i = 0; i < d->dims->syms.n; i++)
    if (e->dims && e->dims[i] != DIM_NONE)
      f->dims[i] = oracle_dim(o, caller, e->dims[i], NULL);
  bind_indices(o, f);
  map_put(&caller->memo, key, (uint64_t)(uintptr_t)f);
  return f;
}

static const Expr *result_of(const Decl *d, uint32_t which) {
  if (!d->has_body) {
    const Expr *e = d->value;
    return e->kind == EX_TUPLE ? e->list.at[which] : e;
  }
  for (uint32_t i = 0; i < d->body.n; i++) {
    const Stmt *s = d->body.at[i];
    if (s->kind != ST_RETURN) continue;
    if (s->list.n == 1 && s->list.at[0]->kind == EX_TUPLE)
      return s->list.at[0]->list.at[which];
    return s->list.at[which < s->list.n ? which : 0];
  }
  return NULL;
}

Val *oracle_call(Oracle *o, Frame *f, const Expr *e, uint32_t which) {
  const Decl *d = e->sym->decl;
  if (++o->depth > MAX_CALLS) o->failed = true;
  Frame *in = o->failed ? NULL : enter(o, f, e);
  const Expr *r = result_of(d, which);
  Val *v = oracle_nothing(o, e);
  if (in && r) {
    // The frame may have been made at another point: params are evaluated in
    // the caller as it stands now, which differs only in the row's key.
    if (d->key && e->binder)
      in->idx[d->key->index_id] = f->idx[e->binder->index_id];
    uint64_t key = oracle_key(in, r, r->vary), got;
    if (map_get(&in->memo, key, &got)) {
      v = (Val *)(uintptr_t)got;
    } else {
      v = oracle_eval(o, in, r);
      map_put(&in->memo, key, (uint64_t)(uintptr_t)v);
    }
  }
  o->depth--;
  return v;
}
