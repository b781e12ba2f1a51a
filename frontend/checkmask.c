// Facts by bounds and signs: floats in a domain, masks no key can satisfy,
// normalizers that may be zero.
#include "frontend/checker.h"

#include "ir/facts.h"

// The result expressions of a function.
static Expr *const *results_of(const Decl *d, uint32_t *n) {
  *n = 1;
  if (!d->has_body) return &d->value;
  const Stmt *last = d->body.n ? d->body.at[d->body.n - 1] : NULL;
  *n = last && last->kind == ST_RETURN ? last->list.n : 0;
  return *n ? last->list.at : NULL;
}

// --- facts -----------------------------------------------------------------

typedef enum Sign { ANY, NONNEG, POSITIVE } Sign;

enum { FLOATS = 4, REDUCES = 8 };  // Sym.facts; the sign is in the low bits

static bool is_key_reduction(const Expr *e) {
  return (e->kind == EX_CALL || e->kind == EX_PIPE) && e->sym &&
         e->sym->kind == SY_BUILTIN && e->binder && !e->elementwise &&
         fe_builtins[e->sym->builtin].kind == BK_REDUCE &&
         e->binder->role == IX_KEY;
}

// The fact is in e itself or behind the name it is.
static bool has(const Expr *e, uint32_t fact) {
  const Sym *s = e->sym;
  bool named = s && (s->kind == SY_LET || s->kind == SY_DECL);
  if (named && (s->facts & fact)) return true;
  return fact == FLOATS ? ty_is_float(&e->ty) : is_key_reduction(e);
}

static const Expr *find(const Expr *e, uint32_t fact) {
  if (has(e, fact)) return e;
  bool call = e->kind == EX_CALL || e->kind == EX_MEMBER;
  const Expr *kids[] = {call ? NULL : e->a, e->kind == EX_PIPE ? NULL : e->b,
                        e->c};
  const Expr *found = NULL;
  for (int i = 0; i < 3 && !found; i++)
    if (kids[i]) found = find(kids[i], fact);
  for (uint32_t i = 0; i < e->list.n && !found; i++)
    found = find(e->list.at[i], fact);
  for (uint32_t i = 0; i < e->args.n && !found; i++)
    found = find(e->args.at[i].value, fact);
  for (uint32_t i = 0; i < e->items.n && !found; i++)
    if (e->items.at[i].lo) found = find(e->items.at[i].lo, fact);
  return found;
}

// What a let or a call is made of.
static const Expr *behind(const Expr *e) {
  const Sym *s = e->sym;
  uint32_t n = 0;
  if (s && s->kind == SY_LET) return s->value;
  if (!s || s->kind != SY_DECL || !is_function(s->decl)) return NULL;
  Expr *const *at = results_of(s->decl, &n);
  return at && n ? at[0] : NULL;
}

const Expr *ck_float_part(const Expr *e) {
  const Expr *found = find(e, FLOATS);
  for (int i = 0; i < 16 && found; i++) {
    const Expr *in = ty_is_float(&found->ty) && found->kind != EX_NAME
                         ? NULL
                         : behind(found);
    const Expr *deeper = in ? find(in, FLOATS) : NULL;
    if (!deeper) break;
    found = deeper;
  }
  return found;
}

// --- intervals -------------------------------------------------------------

// A function being evaluated for one call.
typedef struct Env {
  const Decl *decl;      // whose body it is
  const Expr *call;      // NULL: the outermost declaration
  const struct Env *up;  // of the caller
  int *fuel;             // a let used twice is evaluated twice: bounded
} Env;

static const Range unknown = {INT64_MIN, INT64_MAX};
static Range eval(const Env *v, const Expr *e);

static bool known(Range r) {
  return r.lo != INT64_MIN && r.hi != INT64_MAX;
}

// Ends beyond this are as good as unknown, and sums of two stay in range.
#define FAR ((int64_t)1 << 60)
static int64_t near_end(__int128 x) {
  return x > FAR ? INT64_MAX : x < -FAR ? INT64_MIN : (int64_t)x;
}

static __int128 end(int64_t x) {
  return x == INT64_MIN   ? -((__int128)1 << 100)
         : x == INT64_MAX ? ((__int128)1 << 100)
                          : x;
}

static Range hull(__int128 a, __int128 b, __int128 c, __int128 d) {
  __int128 v[] = {a, b, c, d}, lo = a, hi = a;
  for (int i = 1; i < 4; i++) {
    if (v[i] < lo) lo = v[i];
    if (v[i] > hi) hi = v[i];
  }
  return (Range){near_end(lo), near_end(hi)};
}

static Range divide(Range a, Range b) {
  if (!known(b) || b.lo < 1) return unknown;
  Range r = unknown;
  if (a.lo != INT64_MIN) r.lo = dim_floordiv(a.lo, a.lo < 0 ? b.lo : b.hi);
  if (a.hi != INT64_MAX) r.hi = dim_floordiv(a.hi, a.hi < 0 ? b.hi : b.lo);
  return r;
}

static Range remainder_of(Range a, Range b) {
  if (b.lo < 1) return unknown;
  if (a.lo >= 0 && a.hi < b.lo) return a;
  return (Range){0, b.hi == INT64_MAX ? INT64_MAX : b.hi - 1};
}

static Range truth(bool never, bool always) {
  return (Range){always, !never};
}

static Range relate(Range a, BinOp op, Range b) {
  bool less = a.hi != INT64_MAX && b.lo != INT64_MIN && a.hi < b.lo;
  bool more = a.lo != INT64_MIN && b.hi != INT64_MAX && a.lo > b.hi;
  bool le = a.hi != INT64_MAX && b.lo != INT64_MIN && a.hi <= b.lo;
  bool ge = a.lo != INT64_MIN && b.hi != INT64_MAX && a.lo >= b.hi;
  switch (op) {
  case BO_LT: return truth(ge, less);
  case BO_GT: return truth(le, more);
  case BO_LE: return truth(more, le);
  case BO_GE: return truth(less, ge);
  case BO_EQ: return truth(less || more, le && ge);
  case BO_NE: return truth(le && ge, less || more);
  default: return truth(false, false);
  }
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static Range combine(BinOp op, Range a, Range b) {
  __int128 al = end(a.lo), ah = end(a.hi), bl = end(b.lo), bh = end(b.hi);
  switch (op) {
  case BO_ADD: return hull(al + bl, ah + bh, al + bl, ah + bh);
  case BO_SUB: return hull(al - bh, ah - bl, al - bh, ah - bl);
  case BO_MUL:
    if (!known(a) || !known(b)) {
      bool pos = a.lo >= 0 && b.lo >= 0;
      return pos ? (Range){near_end(al * bl), INT64_MAX} : unknown;
    }
    return hull(al * bl, al * bh, ah * bl, ah * bh);
  case BO_FLOORDIV: return divide(a, b);
  case BO_MOD: return remainder_of(a, b);
  case BO_AND: return (Range){least(a.lo, b.lo), least(a.hi, b.hi)};
  case BO_OR: return (Range){most(a.lo, b.lo), most(a.hi, b.hi)};
  case BO_LT:
  case BO_GT:
  case BO_LE:
  case BO_GE:
  case BO_EQ:
  case BO_NE: return relate(a, op, b);
  default: return unknown;
  }
}

static const DimTab *outer_dims(const Env *v) {
  return v->up ? v->up->decl->dims : v->decl->dims;
}

static Range dim_range(const Env *v, Dim d) {
  const DimTab *t = v->decl->dims;
  const DimExpr *x = &t->exprs.at[d];
  if (v->call && x->op == DIM_SYM) {
    Dim up = v->call->dims[x->value];
    return up == DIM_NONE ? unknown : dim_range(v->up, up);
  }
  if (v->call) return unknown;
  Range r;
  dim_bounds(outer_dims(v), d, &r.lo, &r.hi);
  if (r.hi >= DIM_UNBOUNDED) r.hi = INT64_MAX;
  if (r.lo <= -DIM_UNBOUNDED) r.lo = INT64_MIN;
  return r;
}

static Range index_range(const Env *v, const Sym *s) {
  if (s->dim == DIM_NONE) return (Range){0, INT64_MAX};
  Range r = dim_range(v, s->dim);
  return (Range){0, r.hi == INT64_MAX ? r.hi : most(r.hi - 1, 0)};
}

// A parameter of the function that v evaluates.
static Range argument(const Env *v, const Sym *s) {
  if (!v->call || s->param >= v->call->nbound) return unknown;
  const Bound *b = &v->call->bound[s->param];
  if (b->index) {
    if (b->index->role == IX_PARAM) return argument(v->up, b->index);
    return index_range(v->up, b->index);
  }
  if (b->value == v->decl->params.at[s->param].deflt) return eval(v, b->value);
  return b->value ? eval(v->up, b->value) : unknown;
}

static Range call(const Env *v, const Expr *e) {
  uint32_t n;
  const Decl *d = e->sym->decl;
  Env in = {d, e, v, v->fuel};
  Expr *const *at = is_function(d) ? results_of(d, &n) : NULL;
  if (!at || n != 1 || !e->dims) return unknown;
  return eval(&in, at[0]);
}

static Range named(const Env *v, const Expr *e) {
  const Sym *s = e->sym;
  if (!s) return unknown;
  switch (s->kind) {
  case SY_DIM: return dim_range(v, s->dim);
  case SY_INDEX:
    return s->role == IX_PARAM ? argument(v, s) : index_range(v, s);
  case SY_LET: return s->value && !s->is_tuple ? eval(v, s->value) : unknown;
  case SY_PARAM: return argument(v, s);
  case SY_DECL: return e->bound ? call(v, e) : unknown;
  default: return unknown;
  }
}

static Range builtin(const Env *v, const Expr *e) {
  Range a = unknown, b = unknown, c = unknown;
  if (e->kind == EX_PIPE) return unknown;
  if (e->args.n > 0) a = eval(v, e->args.at[0].value);
  if (e->args.n > 1) b = eval(v, e->args.at[1].value);
  if (e->args.n > 2) c = eval(v, e->args.at[2].value);
  switch (e->sym->builtin) {
  case BI_abs: {
    if (!known(a)) return (Range){0, INT64_MAX};
    int64_t far = most(-a.lo, a.hi);
    return (Range){a.lo > 0 ? a.lo : a.hi < 0 ? -a.hi : 0, far};
  }
  case BI_min:
    if (!e->elementwise || e->args.n != 2) return unknown;
    return (Range){least(a.lo, b.lo), least(a.hi, b.hi)};
  case BI_max:
    if (!e->elementwise || e->args.n != 2) return unknown;
    return (Range){most(a.lo, b.lo), most(a.hi, b.hi)};
  case BI_clamp:
    return (Range){least(most(a.lo, b.lo), c.lo),
                   least(most(a.hi, b.hi), c.hi)};
  default: return unknown;
  }
}

static Range chain(const Env *v, const Expr *e) {
  Range all = {1, 1};
  for (uint32_t i = 0; i < e->ops.n; i++)
    all = combine(BO_AND, all,
                  relate(eval(v, e->list.at[i]), e->ops.at[i],
                         eval(v, e->list.at[i + 1])));
  return all;
}

static Range unary(const Env *v, const Expr *e) {
  Range a = eval(v, e->a);
  if (e->op == UO_NOT) return (Range){1 - a.hi, 1 - a.lo};
  return combine(BO_SUB, (Range){0, 0}, a);
}

static Range eval(const Env *v, const Expr *e) {
  bool is_bool = ty_is_bool(&e->ty);
  if (!is_bool && !ty_is_int(&e->ty)) return unknown;
  Range r = unknown;
  if (--*v->fuel < 0) return unknown;
  Dim d = v->call ? DIM_NONE : fe_dim_of(v->decl, e);
  if (d != DIM_NONE) return dim_range(v, d);
  switch (e->kind) {
  case EX_INT:
  case EX_BOOL: return (Range){e->ival, e->ival};
  case EX_NAME:
  case EX_MEMBER: r = named(v, e); break;
  case EX_UNARY: r = unary(v, e); break;
  case EX_BINARY:
    r = combine((BinOp)e->op, eval(v, e->a), eval(v, e->b));
    break;
  case EX_CHAIN: r = chain(v, e); break;
  case EX_CALL:
  case EX_PIPE:
    if (e->sym && e->sym->kind == SY_BUILTIN) r = builtin(v, e);
    else if (e->sym && e->sym->kind == SY_DECL) r = call(v, e);
    break;
  default: break;
  }
  if (!is_bool) return r;
  return (Range){r.lo == 1, r.hi != 0};
}

Range fe_range(const Decl *d, const Expr *e) {
  int fuel = 2000;
  Env v = {.decl = d, .fuel = &fuel};
  return eval(&v, e);
}

void ck_empty_domain(Check *c, const Sym *index) {
  if (c->cx->nerrors != c->errors) return;
  if (fe_range(c->decl, index->domain).hi == 0)
    diag_add(c->cx, DIAG_empty_mask, index->domain->span, index->name);
}

// --- signs and normalizers -------------------------------------------------

static Sign sign_of(const Expr *e);

static Sign weakest(Sign a, Sign b) {
  return a < b ? a : b;
}

static Sign sign_of_op(OpSign s, Sign a) {
  if (s == SG_POSITIVE || (s >= SG_KEEPS && a == POSITIVE)) return POSITIVE;
  return s == SG_NONNEG || (s >= SG_WEAKLY && a != ANY) ? NONNEG : ANY;
}

static Sign sign_of_call(const Expr *e) {
  if (!e->sym || e->sym->kind != SY_BUILTIN || !e->args.n) return ANY;
  if (e->kind == EX_PIPE) return ANY;
  Sign a = sign_of(e->args.at[0].value);
  Sign all = a, best = a;
  for (uint32_t i = 1; i < e->args.n; i++) {
    Sign s = sign_of(e->args.at[i].value);
    all = weakest(all, s);
    best = s > best ? s : best;
  }
  OpCode op = fe_builtin_op(e->sym->builtin);
  if (op != OP_COUNT) return sign_of_op(op_facts(op)->sign, a);
  switch (e->sym->builtin) {
  case BI_sum:
  case BI_prod:
  case BI_mean:
  case BI_cumsum:
  case BI_suffix_sum: return a;
  case BI_max: return e->elementwise ? best : a;
  case BI_min: return all;
  case BI_count: return NONNEG;
  default: return ANY;
  }
}

static Sign sign_of_binary(const Expr *e) {
  Sign a = sign_of(e->a), b = sign_of(e->b);
  switch ((BinOp)e->op) {
  case BO_ADD:
    if (a == ANY || b == ANY) return ANY;
    return a == POSITIVE || b == POSITIVE ? POSITIVE : NONNEG;
  case BO_MUL:
  case BO_DIV: return weakest(a, b);
  case BO_POW: return a == POSITIVE ? POSITIVE : ANY;
  default: return ANY;
  }
}

static Sign sign_of_name(const Expr *e) {
  const Sym *s = e->sym;
  if (!s) return ANY;
  if (s->kind == SY_DIM) return POSITIVE;
  if (s->kind == SY_LET) return (Sign)(s->facts & 3);
  // A small constant by default (eps) is meant as a guard.
  if (s->kind == SY_PARAM && s->owner && s->param < s->owner->params.n &&
      s->owner->params.at[s->param].deflt)
    return sign_of(s->owner->params.at[s->param].deflt);
  return ANY;
}

static Sign sign_of(const Expr *e) {
  switch (e->kind) {
  case EX_INT: return e->ival > 0 ? POSITIVE : NONNEG;
  case EX_FLOAT: return e->fval > 0 ? POSITIVE : NONNEG;
  case EX_INF: return POSITIVE;
  case EX_NAME: return sign_of_name(e);
  case EX_BINARY: return sign_of_binary(e);
  case EX_CALL:
  case EX_PIPE: return sign_of_call(e);
  case EX_CAST: return sign_of(e->a);
  case EX_IF: return weakest(sign_of(e->b), sign_of(e->c));
  default: return ANY;
  }
}

uint32_t ck_facts(const Expr *e) {
  return (uint32_t)sign_of(e) | (find(e, FLOATS) ? FLOATS : 0) |
         (find(e, REDUCES) ? REDUCES : 0);
}

// Its reductions are over its own rows.
uint32_t ck_function_facts(const Decl *d) {
  uint32_t n, facts = 0;
  Expr *const *at = results_of(d, &n);
  for (uint32_t i = 0; at && i < n; i++)
    if (at[i]) facts |= ck_facts(at[i]) & FLOATS;
  return facts;
}

static void divisions(Check *c, const Expr *e) {
  const Expr *kids[] = {e->a, e->b, e->c};
  if (e->kind == EX_BINARY && e->op == BO_DIV && find(e->b, REDUCES) &&
      sign_of(e->b) != POSITIVE)
    diag_add(c->cx, DIAG_zero_normalizer, e->b->span);
  for (int i = 0; i < 3; i++)
    if (kids[i]) divisions(c, kids[i]);
  for (uint32_t i = 0; i < e->args.n; i++) divisions(c, e->args.at[i].value);
  for (uint32_t i = 0; i < e->list.n; i++) divisions(c, e->list.at[i]);
}

void ck_normalizers(Check *c, const Decl *d) {
  if (d->value) divisions(c, d->value);
  for (uint32_t i = 0; i < d->body.n; i++) {
    const Stmt *s = d->body.at[i];
    if (s->expr) divisions(c, s->expr);
    for (uint32_t k = 0; k < s->list.n; k++) divisions(c, s->list.at[k]);
  }
}
