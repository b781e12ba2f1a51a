// Expressions of device code as one list of distinct operations, each behind
// its operands: a launch computes once what they have in common, as places in
// a workspace are sums of the sizes in front of them.
//   DIM 0  DIM 1  MUL  END            0: DIM 0   1: DIM 1   2: MUL 0 1
//   CONST 2  DIM 0  DIM 1  MUL  ADD   3: CONST 2            4: ADD 3 2
#include "rt.h"

#include <string.h>

enum { SLOTS = 4 * PLAN_OPS };  // a power of two

typedef struct Build {
  const attn_program *prog;
  Plan *plan;
  uint16_t slot[SLOTS];  // 1 + operation, by hash; 0: free
} Build;

// ---- building

static uint32_t hash(const PlanOp *x) {
  uint64_t h = (uint64_t)x->op;
  h = (h ^ (uint64_t)x->w[0]) * 0x9e3779b97f4a7c15u;
  h = (h ^ (uint64_t)x->w[1]) * 0x9e3779b97f4a7c15u;
  return (uint32_t)(h >> 40) % SLOTS;
}

static bool same(const PlanOp *x, const PlanOp *y) {
  return x->op == y->op && x->w[0] == y->w[0] && x->w[1] == y->w[1];
}

// The operation's number; -1: the list is full.
static int intern(Build *b, PlanOp x) {
  uint32_t i = hash(&x);
  for (; b->slot[i]; i = (i + 1) % SLOTS)
    if (same(&b->plan->op[b->slot[i] - 1], &x)) return b->slot[i] - 1;
  if (b->plan->nops == PLAN_OPS) return -1;
  b->plan->op[b->plan->nops] = x;
  b->slot[i] = (uint16_t)++b->plan->nops;
  return b->slot[i] - 1;
}

// The number of the operation that is the expression's value; -1: malformed,
// or the list is full.
static int parse(Build *b, uint32_t at) {
  int stack[ATTN_X_DEPTH], n = 0;
  ExprOp e;
  for (; rt_expr_op(b->prog, at, &e); at += 1 + (uint32_t)e.words) {
    const int64_t *w = b->prog->code + at;
    PlanOp x = {.op = w[0], .args = e.args};
    if (n < e.args || (!e.args && n == ATTN_X_DEPTH)) return -1;
    if (w[0] == ATTN_X_END) return n == 1 ? stack[0] : -1;
    n -= e.args;
    for (int k = 0; k < e.args; k++) x.w[k] = stack[n + k];
    memcpy(x.w, w + 1, (size_t)e.words * sizeof *w);
    if ((stack[n++] = intern(b, x)) < 0) return -1;
  }
  return -1;
}

// Roots are in the order of their expressions.
static void add_root(Build *b, uint32_t at) {
  Plan *p = b->plan;
  uint32_t i = p->nroots;
  int op = p->nroots < PLAN_ROOTS ? parse(b, at) : -1;
  if (op < 0) return;
  for (; i > 0 && p->root[i - 1].at >= at; i--)
    if (p->root[i - 1].at == at) return;
  memmove(p->root + i + 1, p->root + i, (p->nroots++ - i) * sizeof *p->root);
  p->root[i] = (PlanRoot){at, (uint16_t)op};
}

static void add_phase(Build *b, const Kernels *k, const attn_gpu_phase *p) {
  const int64_t *list = k->code + p->numbers;
  add_root(b, p->ntasks);
  for (int64_t i = 1; p->numbers && i <= list[0]; i++)
    add_root(b, (uint32_t)list[i]);
  for (uint32_t i = 0; i < p->nmaps; i++) {
    const attn_gpu_map *m = &k->maps[p->map + i];
    if (m->tensor != ATTN_NONE) continue;
    add_root(b, m->place);
    for (uint32_t j = 0; j < m->rank; j++) add_root(b, m->extent[j]);
  }
}

void rt_plan_make(const attn_program *view, const Kernels *k,
                  const attn_gpu_variant *v, Plan *out) {
  Build b = {.prog = view, .plan = out};
  out->nops = out->nroots = 0;
  if (v->workspace != ATTN_NONE) add_root(&b, v->workspace);
  for (uint32_t i = 0; i < v->nphases; i++)
    add_phase(&b, k, &k->phases[v->phase + i]);
}

// ---- evaluation

static bool compute(const PlanOp *x, const Env *env, PlanValues *v,
                    int64_t *out) {
  if (!x->args) return rt_expr_known(env, &x->op, out);
  int64_t a = x->w[0], b = x->w[x->args - 1];
  return v->ok[a] && v->ok[b] && rt_expr_apply(x->op, v->at[a], v->at[b], out);
}

void rt_plan_eval(const Plan *p, const Env *env, PlanValues *out) {
  out->plan = p;
  for (uint32_t i = 0; i < p->nops; i++)
    out->ok[i] = compute(&p->op[i], env, out, &out->at[i]);
}

bool rt_plan_value(const PlanValues *v, uint32_t at, int64_t *out) {
  const PlanRoot *r = v->plan->root;
  uint32_t lo = 0, hi = v->plan->nroots;
  while (lo < hi) {
    uint32_t mid = (lo + hi) / 2;
    if (r[mid].at < at) lo = mid + 1;
    else hi = mid;
  }
  if (lo == v->plan->nroots || r[lo].at != at) return false;
  *out = v->at[r[lo].op];
  return v->ok[r[lo].op];
}
