// The oracle: programs. Attention programs are evaluated point by point of
// their parallel indices; recurrent ones sequence by sequence, step by step.
#include "frontend/oraclecore.h"

#include <math.h>
#include <string.h>

// ---------------------------------------------------------------- outputs
static const Param *out_param(const Oracle *o, const Sym *s) {
  return s->kind == SY_OUT ? &o->prog->outs.at[s->param]
                           : &o->prog->params.at[s->param];
}

static uint32_t out_arg(const Oracle *o, const Sym *s) {
  return s->param + (s->kind == SY_OUT ? o->prog->params.n : 0);
}

// Writes v at the leading coordinates; a scalar fills the axes that are left.
static void write_out(Oracle *o, Frame *f, const Sym *s, const int64_t *lead,
                      uint32_t n, const Val *v) {
  uint32_t arg = out_arg(o, s);
  const OracleArg *a = &o->args[arg];
  const Param *p = out_param(o, s);
  int64_t at[MAX_RANK] = {0}, shape[MAX_RANK], total = 1, off;
  uint32_t rank = p->type->shape.n;
  if (!a->data && !o->lanes) return;
  memcpy(at, lead, sizeof(int64_t) * n);
  for (uint32_t k = n; k < rank; k++) {
    shape[k] = oracle_dim(o, f, s->ty.shape[k], NULL);
    total *= shape[k];
  }
  for (int64_t i = 0; i < total; i++) {
    int64_t rest = i;
    for (uint32_t k = rank; k-- > n;) {
      at[k] = rest % shape[k];
      rest /= shape[k];
    }
    if (!oracle_place(o, p, a, at, &off)) continue;
    int64_t from = v->n == 1 ? 0 : i;
    if (o->lanes) oracle_weigh(o, arg, off, v, from);
    else
      dtype_store(a->dtype, (char *)a->data + off * dtype_size(a->dtype),
                  v->at[from]);
  }
}

static uint32_t lead_coords(Oracle *o, Frame *f, const Stmt *s, int64_t *at) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < s->items.n && n < MAX_RANK; i++)
    at[n++] = (int64_t)oracle_num(oracle_eval(o, f, s->items.at[i].lo));
  return n;
}

// Is there a point in front of this one, along an index of the program?
static bool has_before(Oracle *o, Frame *f, uint32_t i) {
  const Sym *s = f->d->indices.at[i];
  int64_t at = f->idx[i];
  bool found = at > 0 && !s->domain;
  for (int64_t k = 0; k < at && !found && !o->failed; k++) {
    f->idx[i] = k;
    found = oracle_num(oracle_eval(o, f, s->domain)) != 0;
  }
  f->idx[i] = at;
  return found;
}

// Of the points that write the same element, the first.
static bool is_first(Oracle *o, Frame *f, const Stmt *s) {
  uint64_t vary = 0;
  for (uint32_t i = 0; i < s->items.n; i++) vary |= s->items.at[i].lo->vary;
  for (uint32_t i = 0; i < f->d->indices.n; i++)
    if (f->d->indices.at[i]->role == IX_PARALLEL && !(vary >> i & 1) &&
        has_before(o, f, i))
      return false;
  return true;
}

// Entries of tables are of places that there are, or nothing is written.
static bool is_place(Oracle *o, Frame *f, const Stmt *s, const int64_t *at) {
  for (uint32_t i = 0; i < s->items.n; i++)
    if (s->items.at[i].shifted &&
        (at[i] < 0 ||
         at[i] >= oracle_dim(o, f, s->target.sym->ty.shape[i], NULL)))
      return false;
  return true;
}

static void assign_out(Oracle *o, Frame *f, const Stmt *s) {
  int64_t at[MAX_RANK] = {0};
  if (o->lanes && !is_first(o, f, s)) return;
  uint32_t n = lead_coords(o, f, s, at);
  if (!is_place(o, f, s, at)) return;
  Val *v = oracle_eval(o, f, s->expr);
  if (!o->failed) write_out(o, f, s->target.sym, at, n, v);
}

// ---------------------------------------------------------------- recurrences
static void set_state(Oracle *o, const Sym *s, const Val *v) {
  map_put(&o->states, (uint64_t)(uintptr_t)s, (uint64_t)(uintptr_t)v);
}

// v in the state's declared shape.
static Val *spread(Oracle *o, Frame *f, const Sym *s, const Val *v) {
  int64_t shape[MAX_RANK] = {0};
  for (uint32_t i = 0; i < s->ty.rank; i++)
    shape[i] = oracle_dim(o, f, s->ty.shape[i], NULL);
  Val *r = oracle_array(o, s->ty.rank, shape);
  for (int64_t i = 0; i < r->n; i++) {
    int64_t from = v->n == 1 ? 0 : i;
    r->at[i] = v->at[from];
    oracle_flow(o, r, i, v, from, 1);
  }
  return r;
}

static void run_stmts(Oracle *o, Frame *f, const Stmt *const *s, uint32_t n);

static Map copied(Oracle *o, const Map *m) {
  Map r = {.arena = &o->arena};
  for (uint32_t i = 0; i < m->cap; i++)
    if (m->used[i]) map_put(&r, m->key[i], m->val[i]);
  return r;
}

// Lets are values at their place in the step: nothing is remembered from one
// step, or turn of a loop in it, to the next, but what is known in front.
static void loop(Oracle *o, Frame *f, const Stmt *s) {
  const Sym *t = s->names.at[0].sym;
  int64_t n = oracle_dim(o, f, t->dim, NULL);
  const Map known = f->memo;
  for (int64_t i = 0; i < n && !o->failed; i++) {
    f->idx[t->index_id] = s->reverse ? n - 1 - i : i;
    f->memo = copied(o, &known);
    run_stmts(o, f, (const Stmt *const *)s->body.at, s->body.n);
  }
  f->memo = known;
}

// Evaluated where it stands, unless it is a function of an index not bound
// by a loop around it.
static void early_let(Oracle *o, Frame *f, const Stmt *s) {
  uint64_t bound = 0;
  for (uint32_t i = 0; i < f->d->indices.n; i++) {
    IndexRole r = f->d->indices.at[i]->role;
    if (r == IX_PARALLEL || r == IX_STEP || r == IX_REPEAT)
      bound |= (uint64_t)1 << i;
  }
  for (uint32_t i = 0; i < s->names.n; i++) {
    const Sym *v = s->names.at[i].sym;
    if (!v || (v->vary & ~bound)) continue;
    Val *x = v->is_tuple ? NULL : oracle_eval(o, f, v->value);
    uint64_t key = oracle_key(f, v, v->vary);
    if (x) map_put(&f->memo, key, (uint64_t)(uintptr_t)x);
  }
}

static void run_stmt(Oracle *o, Frame *f, const Stmt *s) {
  switch (s->kind) {
  case ST_STATE: {
    const Sym *st = s->names.at[0].sym;
    set_state(o, st, spread(o, f, st, oracle_eval(o, f, s->expr)));
    return;
  }
  case ST_STEP:
  case ST_REPEAT: loop(o, f, s); return;
  case ST_LET: early_let(o, f, s); return;
  case ST_ASSIGN:
    if (s->target.sym->kind == SY_STATE)
      set_state(o, s->target.sym,
                spread(o, f, s->target.sym, oracle_eval(o, f, s->expr)));
    else assign_out(o, f, s);
    return;
  default: return;
  }
}

static void run_stmts(Oracle *o, Frame *f, const Stmt *const *s, uint32_t n) {
  for (uint32_t i = 0; i < n && !o->failed; i++) run_stmt(o, f, s[i]);
}

// Final states go back to the inout parameters they came from.
static void write_back(Oracle *o, Frame *f) {
  for (uint32_t i = 0; i < o->prog->body.n; i++) {
    const Stmt *s = o->prog->body.at[i];
    const Param *p = s->kind == ST_STATE ? fe_state_inout(o->prog, s) : NULL;
    uint64_t got;
    if (!p ||
        !map_get(&o->states, (uint64_t)(uintptr_t)s->names.at[0].sym, &got))
      continue;
    const Expr *ref = s->expr;
    int64_t at[MAX_RANK] = {0};
    uint32_t n = 0;
    for (uint32_t k = 0; ref->kind == EX_INDEX && k < ref->items.n; k++)
      at[n++] = (int64_t)oracle_num(oracle_eval(o, f, ref->items.at[k].lo));
    write_out(o, f, p->sym, at, n, (const Val *)(uintptr_t)got);
  }
}

// ---------------------------------------------------------------- points
bool oracle_inside(Oracle *o, Frame *f) {
  for (uint32_t i = 0; i < f->d->indices.n; i++) {
    const Sym *s = f->d->indices.at[i];
    if (s->role != IX_PARALLEL) continue;
    if (f->idx[i] >= oracle_dim(o, f, s->dim, NULL)) return false;
    if (s->domain && oracle_num(oracle_eval(o, f, s->domain)) == 0)
      return false;
  }
  return true;
}

Frame *oracle_at(Oracle *o, const int64_t *dims, const int64_t *coord) {
  Frame *f = oracle_frame(o, o->prog, NULL, NULL);
  memcpy(f->dims, dims, sizeof(int64_t) * o->prog->dims->syms.n);
  uint32_t at = 0;
  for (uint32_t i = 0; i < o->prog->indices.n; i++)
    if (o->prog->indices.at[i]->role == IX_PARALLEL) f->idx[i] = coord[at++];
  return f;
}

void oracle_point(Oracle *o, const int64_t *dims, const int64_t *coord) {
  ArenaMark mark = arena_mark(&o->arena);
  Frame *f = oracle_at(o, dims, coord);
  o->states = (Map){.arena = &o->arena};
  if (oracle_inside(o, f)) {
    run_stmts(o, f, (const Stmt *const *)o->prog->body.at, o->prog->body.n);
    if (!o->failed) write_back(o, f);
  }
  arena_reset(&o->arena, mark);
}

typedef struct Extents {
  uint32_t n;
  int64_t at[64];
} Extents;

static bool extents(const Decl *d, const int64_t *dims, Extents *e) {
  e->n = 0;
  for (uint32_t i = 0; i < d->indices.n && e->n < 64; i++) {
    const Sym *s = d->indices.at[i];
    if (s->role != IX_PARALLEL) continue;
    if (!dim_eval(d->dims, s->dim, dims, &e->at[e->n++])) return false;
  }
  return true;
}

static void walk_all(Oracle *o, const int64_t *dims, const Extents *e,
                     OracleVisit visit) {
  int64_t c[64] = {0};
  for (uint32_t i = 0; i < e->n; i++)
    if (e->at[i] <= 0) return;
  for (;;) {
    visit(o, dims, c);
    if (o->failed) return;
    uint32_t k = e->n;
    while (k > 0 && ++c[k - 1] == e->at[k - 1]) c[--k] = 0;
    if (k == 0) return;
  }
}

bool oracle_walk(Oracle *o, const int64_t *dims, const OraclePoints *points,
                 OracleVisit visit) {
  Extents e;
  if (!extents(o->prog, dims, &e)) return false;
  o->arena.oom = o->cx->session.oom;
  o->arena.oom_data = o->cx->session.oom_data;
  if (!points) {
    walk_all(o, dims, &e, visit);
  } else {
    for (uint64_t i = 0; i < points->n && !o->failed; i++)
      visit(o, dims, points->at + i * e.n);
  }
  arena_drop(&o->arena);
  return !o->failed;
}

bool oracle_run(Ctx *cx, const Decl *prog, OracleArg *args, const int64_t *dims,
                const OraclePoints *points) {
  Oracle o = {.cx = cx, .args = args, .prog = prog};
  return oracle_walk(&o, dims, points, oracle_point);
}

// Elements of the states, each of which a step goes through.
static double state_elements(const Decl *prog, const int64_t *dims) {
  double all = 0;
  for (uint32_t i = 0; i < prog->body.n; i++) {
    const Stmt *s = prog->body.at[i];
    double elements = 1;
    if (s->kind != ST_STATE) continue;
    const Ty *t = &s->names.at[0].sym->ty;
    for (uint32_t k = 0; k < t->rank; k++) {
      int64_t n = 1;
      dim_eval(prog->dims, t->shape[k], dims, &n);
      elements *= (double)n;
    }
    all += elements;
  }
  return all;
}

double oracle_cost(const Decl *prog, const int64_t *dims) {
  double points = 1, work = 1;
  for (uint32_t i = 0; i < prog->indices.n; i++) {
    const Sym *s = prog->indices.at[i];
    int64_t n = 1;
    dim_eval(prog->dims, s->dim, dims, &n);
    if (s->role == IX_PARALLEL || s->role == IX_STEP) points *= (double)n;
    if (s->role == IX_KEY) work += (double)n;
  }
  double widest = fmax(1, state_elements(prog, dims));
  for (uint32_t i = 0; i < prog->params.n; i++) {
    const Ty *t = &prog->params.at[i].sym->ty;
    int64_t n = 1;
    if (t->rank) dim_eval(prog->dims, t->shape[t->rank - 1], dims, &n);
    widest = fmax(widest, (double)n);
  }
  return points * work * widest;
}
