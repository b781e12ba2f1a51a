// The oracle's derivatives: dual numbers. The walk of a point carries for each
// value its derivatives in some directions of the inputs, by the rule of each
// operation below; what reaches the outputs is weighed and summed. Nothing
// flows backwards, and nothing here is known to the passes.
#include "frontend/oraclecore.h"

#include <math.h>
#include <string.h>

// ---------------------------------------------------------------- rules
static void may_have_tangents(Oracle *o, Val *v) {
  if (!v->dx) v->dx = NEWN(&o->arena, double *, v->n + 1);
}

// Those of an element; zero at first.
static double *tangents(Oracle *o, Val *v, int64_t i) {
  may_have_tangents(o, v);
  if (!v->dx[i]) v->dx[i] = NEWN(&o->arena, double, o->lanes);
  return v->dx[i];
}

// A tangent of zero stays zero whatever the slope: a value that a direction
// does not change has no derivative there, even beside a pole.
static void flow(Oracle *o, double *to, const double *x, double slope) {
  uint32_t n = o->lanes;
  if (o->dual->rounding != 0 || !isfinite(slope)) {
    for (uint32_t l = 0; l < n; l++)
      if (x[l] != 0) to[l] += oracle_round(o, slope * x[l]);
  } else if (n == ORACLE_LANES) {  // a count that compilers unroll
    for (uint32_t l = 0; l < ORACLE_LANES; l++) to[l] += slope * x[l];
  } else {
    for (uint32_t l = 0; l < n; l++) to[l] += slope * x[l];
  }
}

void oracle_flow(Oracle *o, Val *r, int64_t ri, const Val *x, int64_t xi,
                 double slope) {
  if (!x->dx || slope == 0) return;
  may_have_tangents(o, r);
  if (x->dx[xi]) flow(o, tangents(o, r, ri), x->dx[xi], slope);
}

void oracle_carry(Oracle *o, Val *r, int64_t ri, const Val *x) {
  for (int64_t i = 0; x->dx && i < x->n; i++)
    oracle_flow(o, r, ri + i, x, i, 1);
}

typedef struct Slopes {
  double a, b;
} Slopes;

// Comparisons, and quotients and remainders of integers, have none.
static Slopes slopes_of(int op, double a, double b) {
  switch (op) {
  case BO_ADD: return (Slopes){1, 1};
  case BO_SUB: return (Slopes){1, -1};
  case BO_MUL: return (Slopes){b, a};
  case BO_DIV: return (Slopes){1 / b, -a / b / b};
  case BO_POW: return (Slopes){b * pow(a, b - 1), pow(a, b) * log(a)};
  default: return (Slopes){0, 0};
  }
}

void oracle_flow_of2(Oracle *o, int op, Val *r, int64_t i, At a, At b) {
  Slopes s = slopes_of(op, a.v->at[a.i], b.v->at[b.i]);
  oracle_flow(o, r, i, a.v, a.i, s.a);
  oracle_flow(o, r, i, b.v, b.i, s.b);
}

// ---------------------------------------------------------------- maxima
// Of several that are largest the first has the derivative, or with @ties(all)
// each an equal part.
static int64_t equals(Val *const *x, int64_t n, int64_t e, double most) {
  int64_t found = 0;
  for (int64_t i = 0; i < n; i++) found += x[i]->at[e] == most;
  return found;
}

static void flow_most(Oracle *o, Val *r, int64_t e, Val *const *x, int64_t n) {
  int64_t ties = o->share_ties ? equals(x, n, e, r->at[e]) : 1;
  for (int64_t i = 0; i < n; i++) {
    if (x[i]->at[e] != r->at[e]) continue;
    oracle_flow(o, r, e, x[i], e, 1 / (double)ties);
    if (!o->share_ties) return;
  }
}

void oracle_flow_most(Oracle *o, Val *r, Val *const *x, int64_t n) {
  for (int64_t e = 0; o->lanes && e < r->n; e++) flow_most(o, r, e, x, n);
}

void oracle_flow_either(Oracle *o, Val *r, int64_t i, At x, At y) {
  bool is_x = r->at[i] == x.v->at[x.i], is_y = r->at[i] == y.v->at[y.i];
  double part = is_x && is_y && o->share_ties ? 0.5 : 1;
  if (is_x) oracle_flow(o, r, i, x.v, x.i, part);
  if (is_y && (!is_x || o->share_ties)) oracle_flow(o, r, i, y.v, y.i, part);
}

// ---------------------------------------------------------------- borders
static int64_t offset_of(const OracleArg *a, const int64_t *at) {
  int64_t off = 0;
  for (uint32_t i = 0; i < a->rank; i++) off += at[i] * a->stride[i];
  return off;
}

static uint64_t element_of(uint32_t arg, int64_t off) {
  return (uint64_t)arg << 48 ^ (uint64_t)off;
}

static bool is_seeded(const Oracle *o, uint64_t element) {
  bool found = o->along;
  for (uint32_t l = 0; l < o->lanes; l++) found |= o->seeded[l] == element;
  return found;
}

static void seed(Oracle *o, uint32_t lane, Val *r, int64_t i, double t) {
  if (t == 0) return;
  if (o->dual->read) o->dual->read[o->seeds[lane]] = true;
  tangents(o, r, i)[lane] = t;
}

// A direction that is one element meets one of a line's at most, or, if the
// tensor repeats them, all.
static void seed_element(Oracle *o, uint32_t lane, Line x, Val *r, int64_t i) {
  int64_t away = o->place[lane] - x.first;
  if (x.step == 0) {
    for (int64_t k = 0; away == 0 && k < x.n; k++) seed(o, lane, r, i + k, 1);
    return;
  }
  int64_t k = away / x.step;
  if (away % x.step == 0 && k >= 0 && k < x.n) seed(o, lane, r, i + k, 1);
}

void oracle_seed(Oracle *o, Line x, Val *r, int64_t i) {
  if (!o->lanes || (x.n == 1 && !is_seeded(o, element_of(x.arg, x.first))))
    return;
  for (uint32_t l = 0; l < o->lanes; l++) {
    const OracleSeed *s = &o->dual->seeds[o->seeds[l]];
    if (s->arg != x.arg) continue;
    if (!s->along) seed_element(o, l, x, r, i);
    for (int64_t k = 0; s->along && k < x.n; k++)
      seed(o, l, r, i + k, s->along[x.first + k * x.step]);
  }
}

void oracle_weigh(Oracle *o, uint32_t arg, int64_t off, const Val *v,
                  int64_t i) {
  const double *dx = v->dx ? v->dx[i] : NULL;
  if (!dx) return;
  double *to = o->dual->tangents ? o->dual->tangents[arg] : NULL;
  for (uint32_t l = 0; to && l < o->lanes; l++) to[off] += dx[l];
  const double *w = o->dual->weights ? o->dual->weights[arg] : NULL;
  if (!w) return;
  for (uint32_t l = 0; l < o->lanes; l++)
    if (dx[l] != 0) o->dual->slopes[o->seeds[l]] += w[off] * dx[l];
}

// ---------------------------------------------------------------- reads
// One place where the program names a tensor: its coordinates that the point
// alone decides.
typedef struct Use {
  uint32_t param;
  const Expr *e;  // EX_INDEX, or NULL: all of it
  bool known[MAX_RANK];
  int64_t at[MAX_RANK];
} Use;

typedef struct Dual {
  Oracle o;  // first: a visit finds the rest by it
  uint64_t parallel;
  Vec(Use) uses;
  uint64_t *todo;  // seeds of the point
  uint64_t reads;
} Dual;

static void find_uses(Dual *d, const Expr *e);

static void find_in(Dual *d, const Expr *e) {
  find_uses(d, e->b);
  find_uses(d, e->c);
  for (uint32_t i = 0; i < e->list.n; i++) find_uses(d, e->list.at[i]);
  for (uint32_t i = 0; i < e->args.n; i++) find_uses(d, e->args.at[i].value);
  for (uint32_t i = 0; i < e->items.n; i++) {
    find_uses(d, e->items.at[i].lo);
    find_uses(d, e->items.at[i].hi);
  }
}

static bool names_param(const Expr *e) {
  return e->kind == EX_NAME && e->sym && e->sym->kind == SY_PARAM;
}

static void find_uses(Dual *d, const Expr *e) {
  if (!e) return;
  bool indexed = e->kind == EX_INDEX && names_param(e->a);
  if (indexed || names_param(e)) {
    Use u = {.param = (indexed ? e->a : e)->sym->param,
             .e = indexed ? e : NULL};
    vec_push(&d->o.cx->scratch, &d->uses, u);
  }
  if (!indexed) find_uses(d, e->a);
  find_in(d, e);
}

static void find_in_stmts(Dual *d, const Stmt *const *s, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    find_uses(d, s[i]->expr);
    find_in_stmts(d, (const Stmt *const *)s[i]->body.at, s[i]->body.n);
  }
}

// Whether e is arithmetic of parallel indices and dims: it reads no tensor, so
// that it can be evaluated where the program would not.
static bool is_plain(const Dual *d, const Expr *e) {
  if (!e) return true;
  const Sym *s = e->sym;
  if (e->vary & ~d->parallel) return false;
  if (e->kind == EX_NAME && s->kind == SY_LET)
    return !s->is_tuple && is_plain(d, s->value);
  bool leaf = e->kind == EX_INT || (e->kind == EX_NAME &&
                                    (s->kind == SY_DIM || s->kind == SY_INDEX));
  bool inner = e->kind == EX_UNARY || e->kind == EX_BINARY;
  return leaf || (inner && is_plain(d, e->a) && is_plain(d, e->b));
}

static void fix_use(Dual *d, Frame *f, Use *u) {
  for (uint32_t i = 0; u->e && i < u->e->items.n && i < MAX_RANK; i++) {
    const Item *it = &u->e->items.at[i];
    u->known[i] = it->kind == ITEM_EXPR && is_plain(d, it->lo);
    if (u->known[i])
      u->at[i] = (int64_t)oracle_num(oracle_eval(&d->o, f, it->lo));
  }
}

static int64_t integer(const OracleArg *a, int64_t at) {
  return (int64_t)dtype_load(a->dtype,
                             (const char *)a->data + at * dtype_size(a->dtype));
}

// Whether sequence b has the physical coordinates `at` of a ragged or paged
// tensor.
static bool of_sequence(const Dual *d, const Layout *l, int64_t b,
                        const int64_t *at) {
  if (l->kind == LAY_RAGGED) {
    const OracleArg *by = &d->o.args[l->by->param];
    int axis = l->axis - (l->batch_axis < l->axis);
    return at[axis] >= integer(by, b * by->stride[0]) &&
           at[axis] < integer(by, (b + 1) * by->stride[0]);
  }
  const OracleArg *t = &d->o.args[l->table->param];
  for (int64_t i = 0; i < t->shape[1]; i++)
    if (integer(t, b * t->stride[0] + i * t->stride[1]) == at[l->batch_axis])
      return true;
  return false;
}

// Whether coordinate c of logical axis i can be the element `at`.
static bool axis_agrees(const Dual *d, const Layout *l, int i, int64_t c,
                        const int64_t *at) {
  LayoutKind kind = l ? l->kind : LAY_STRIDED;
  if (kind == LAY_STRIDED) return at[i] == c;
  if (kind == LAY_ORDER) {
    int k = 0;
    while (l->perm[k] != i) k++;
    return at[k] == c;
  }
  if (i == l->batch_axis) return of_sequence(d, l, c, at);
  if (i == l->axis) return true;
  return at[i - (kind == LAY_RAGGED && l->batch_axis < i)] == c;
}

static bool reads(const Dual *d, const OracleSeed *s) {
  const Param *p = &d->o.prog->params.at[s->arg];
  for (uint32_t k = 0; k < d->uses.n; k++) {
    const Use *u = &d->uses.at[k];
    if (u->param != s->arg) continue;
    if (!u->e || s->along) return true;
    bool agree = true;
    for (int i = 0; agree && i < MAX_RANK; i++)
      agree = !u->known[i] || axis_agrees(d, p->layout, i, u->at[i], s->at);
    if (agree) return true;
  }
  return false;
}

// ---------------------------------------------------------------- walking
static uint64_t seeds_of(Dual *d, const int64_t *dims, const int64_t *coord) {
  ArenaMark mark = arena_mark(&d->o.arena);
  Frame *f = oracle_at(&d->o, dims, coord);
  uint64_t n = 0;
  d->o.lanes = 0;
  if (oracle_inside(&d->o, f)) {
    for (uint32_t i = 0; i < d->uses.n; i++) fix_use(d, f, &d->uses.at[i]);
    for (uint64_t i = 0; i < d->o.dual->n; i++)
      if (reads(d, &d->o.dual->seeds[i])) d->todo[n++] = i;
  }
  arena_reset(&d->o.arena, mark);
  return n;
}

static void visit(Oracle *o, const int64_t *dims, const int64_t *coord) {
  Dual *d = (Dual *)o;
  uint64_t n = seeds_of(d, dims, coord);
  for (uint64_t i = 0; i < n && !o->failed; i += o->lanes) {
    o->seeds = d->todo + i;
    o->lanes = n - i < ORACLE_LANES ? (uint32_t)(n - i) : ORACLE_LANES;
    o->along = false;
    for (uint32_t l = 0; l < o->lanes; l++) {
      const OracleSeed *s = &o->dual->seeds[o->seeds[l]];
      o->place[l] = offset_of(&o->args[s->arg], s->at);
      o->seeded[l] = element_of(s->arg, o->place[l]);
      o->along |= s->along != NULL;
    }
    oracle_point(o, dims, coord);
  }
}

static bool shares_ties(const Decl *prog) {
  for (uint32_t i = 0; i < prog->attrs.n; i++) {
    const Attr *a = &prog->attrs.at[i];
    if (strcmp(a->name, "ties") || !a->args.n) continue;
    const Expr *v = a->args.at[0].value;
    return v->kind == EX_NAME && !strcmp(v->name, "all");
  }
  return false;
}

static void count_reads(Oracle *o, const int64_t *dims, const int64_t *coord) {
  Dual *d = (Dual *)o;
  d->reads += seeds_of(d, dims, coord);
}

static Dual prepare(Ctx *cx, const Decl *prog, OracleArg *args,
                    const OracleSlopes *want) {
  Dual d = {.o = {.cx = cx,
                  .args = args,
                  .prog = prog,
                  .dual = want,
                  .share_ties = shares_ties(prog)}};
  for (uint32_t i = 0; i < prog->indices.n; i++)
    if (prog->indices.at[i]->role == IX_PARALLEL)
      d.parallel |= (uint64_t)1 << i;
  d.todo = NEWN(&cx->scratch, uint64_t, want->n + 1);
  find_in_stmts(&d, (const Stmt *const *)prog->body.at, prog->body.n);
  return d;
}

uint64_t oracle_reads(Ctx *cx, const Decl *prog, OracleArg *args,
                      const int64_t *dims, const OraclePoints *points,
                      const OracleSlopes *want) {
  ArenaMark mark = arena_mark(&cx->scratch);
  Dual d = prepare(cx, prog, args, want);
  oracle_walk(&d.o, dims, points, count_reads);
  arena_reset(&cx->scratch, mark);
  return d.reads;
}

bool oracle_slopes(Ctx *cx, const Decl *prog, OracleArg *args,
                   const int64_t *dims, const OraclePoints *points,
                   const OracleSlopes *want) {
  ArenaMark mark = arena_mark(&cx->scratch);
  Dual d = prepare(cx, prog, args, want);
  bool ok = oracle_walk(&d.o, dims, points, visit);
  arena_reset(&cx->scratch, mark);
  return ok;
}
