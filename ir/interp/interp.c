// The interpreter: what a module at level attn, stream or tile means, executed
// on host arrays in f64 (or with every rounding). Written for clarity: each
// pass is tested by running a module before and after it.
//
// attn and stream: values are functions of coordinates, evaluated on demand
// and remembered per point. The effects (store, recur, pass) run in order.
#include "ir/interp/interp.h"
#include "ir/target.h"

#include <math.h>
#include <string.h>

enum { MAX_POINTS = 1 << 26 };

double interp_round(const Interp *in, DType t, double v) {
  return in->opt->round && dtype_is_float(t) ? dtype_round(t, v) : v;
}

void interp_fail(Interp *in, const Op *op, const char *what) {
  if (in->failed) return;
  in->failed = true;
  diag_add(in->cx, DIAG_ir_invalid, op ? op->span : NOWHERE, in->f->name,
           op ? op_info(op->code)->name : "program", what);
}

uint64_t interp_random(Interp *in, uint64_t below) {
  in->rng = in->rng * 6364136223846793005u + 1442695040888963407u;
  uint64_t x = in->rng ^ (in->rng >> 29);
  return below ? (x >> 11) % below : 0;
}

// ---------------------------------------------------------------- tables
uint64_t interp_at(const Interp *in, const Type *t) {
  uint64_t at = 0;
  for (uint32_t i = 0; i < t->n; i++)
    at = at * (uint64_t)in->extent[t->axis[i]] + in->coord[t->axis[i]];
  return at;
}

Table *interp_table(Interp *in, Value v) {
  Table *tb = &in->table[v];
  if (tb->at) return tb;
  const Type *t = ir_type(in->f, v);
  tb->n = 1;
  for (uint32_t i = 0; i < t->n; i++) {
    tb->n *= (uint64_t)in->extent[t->axis[i]];
    if (tb->n > MAX_POINTS) {
      diag_add(in->cx, DIAG_interp_budget, NOWHERE,
               (unsigned long long)MAX_POINTS);
      in->failed = true;
      tb->n = 1;
      break;
    }
  }
  tb->at = NEWN(in->arena, double, tb->n ? tb->n : 1);
  tb->known = NEWN(in->arena, uint8_t, tb->n ? tb->n : 1);
  return tb;
}

static void forget(Interp *in, const Op *op) {
  for (uint32_t i = 0; i < op->nres; i++) {
    Table *t = &in->table[op->res[i]];
    if (t->at) memset(t->known, 0, t->n);
  }
}

void interp_forget(Interp *in, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    forget(in, op);
    for (uint32_t i = 0; i < op->nregions; i++)
      interp_forget(in, op->regions[i]);
  }
}

// ---------------------------------------------------------------- points
// Whether the point is computed at all: inside the domains of its parallel
// axes, as far as its own axes decide them.
static bool wanted(Interp *in, const Type *t) {
  for (uint32_t i = 0; i < t->n; i++) {
    uint32_t a = t->axis[i];
    if (in->f->axes.at[a].role != AX_PAR) continue;
    for (uint32_t k = 0; k < in->ndomain[a]; k++) {
      const Type *p = ir_type(in->f, in->domain[a][k]);
      bool own = true;
      for (uint32_t j = 0; own && j < p->n; j++)
        own = type_has_axis(t, p->axis[j]);
      if (own && interp_eval(in, in->domain[a][k]) == 0) return false;
    }
  }
  return true;
}

static void points(Interp *in, const Type *t, uint32_t i, PointFn *fn,
                   void *data) {
  if (in->failed) return;
  if (i == t->n) {
    if (wanted(in, t)) fn(in, data);
    return;
  }
  uint32_t a = t->axis[i];
  AxisRole role = in->f->axes.at[a].role;
  if (role == AX_STEP && in->open[a]) {  // fixed by the recurrence around
    points(in, t, i + 1, fn, data);
    return;
  }
  for (int64_t c = 0; c < in->extent[a]; c++) {
    in->coord[a] = c;
    points(in, t, i + 1, fn, data);
  }
}

void interp_points(Interp *in, const Type *t, PointFn *fn, void *data) {
  points(in, t, 0, fn, data);
}

bool interp_in_domain(Interp *in, uint32_t axis) {
  for (uint32_t i = 0; i < in->ndomain[axis]; i++)
    if (interp_eval(in, in->domain[axis][i]) == 0) return false;
  return true;
}

// ---------------------------------------------------------------- tensors
bool interp_offset(const InterpTensor *t, const int64_t *idx, int64_t *off,
                   int *bad_axis) {
  *off = 0;
  for (uint32_t i = 0; i < t->rank; i++) {
    if (idx[i] < 0 || idx[i] >= t->shape[i]) {
      *bad_axis = (int)i;
      return false;
    }
    *off += idx[i] * t->stride[i];
  }
  return true;
}

static InterpTensor *tensor(Interp *in, Value v) {
  return &in->args[in->arg_of[v]];
}

static double eval_load(Interp *in, const Op *op) {
  InterpTensor *t = tensor(in, op->args[0]);
  int64_t idx[8] = {0}, off;
  int bad = 0;
  for (uint32_t i = 1; i < op->nargs; i++)
    idx[i - 1] = (int64_t)interp_eval(in, op->args[i]);
  if (in->failed) return NAN;
  if (!interp_offset(t, idx, &off, &bad)) {
    const char *name = ir_info(in->f, op->args[0])->hint;
    diag_add(in->cx, DIAG_interp_range, op->span, (long long)idx[bad], bad,
             name ? name : "?", (long long)t->shape[bad]);
    in->failed = true;
    return NAN;
  }
  return dtype_load(t->dtype, (char *)t->data + off * dtype_size(t->dtype));
}

// At level attn the sum has its value of all keys: that of those in front of
// the block.
static double sum_in_front(Interp *in, const Op *op) {
  uint32_t a = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  bool suffix = ir_attr_i(op, AT_DIR, DIR_PREFIX) == DIR_SUFFIX;
  int64_t block = ir_attr_i(op, AT_BLOCK, 0), lo = in->key_lo[a],
          hi = in->key_hi[a];
  Table *t = interp_table(in, op->args[1]);
  uint64_t at = interp_at(in, ir_type(in->f, op->args[1]));
  if (in->m->level != LV_ATTN) return interp_eval(in, op->args[1]);
  if (suffix) in->key_lo[a] = in->coord[a] + block;
  else in->key_hi[a] = in->coord[a];
  t->known[at] = 0;
  double v = interp_eval(in, op->args[1]);
  t->known[at] = 0;
  in->key_lo[a] = lo, in->key_hi[a] = hi;
  return v;
}

static bool begins_block(const Interp *in, const Op *op) {
  int64_t block = ir_attr_i(op, AT_BLOCK, 0);
  return !block || in->coord[ir_attr_i(op, AT_AXIS, 0)] % block == 0;
}

void interp_store(Interp *in, void *data) {
  const Op *op = data;
  bool masked = ir_attr_i(op, AT_MASKED, 0);
  if (!begins_block(in, op)) return;
  if (masked && interp_eval(in, op->args[op->nargs - 1]) == 0) return;
  InterpTensor *t = tensor(in, op->args[0]);
  if (!t->data) return;
  int64_t idx[8] = {0}, off;
  int bad = 0;
  for (uint32_t i = 0; i < t->rank; i++)
    idx[i] = (int64_t)interp_eval(in, op->args[i + 2]);
  double v = ir_attr_i(op, AT_BLOCK, 0) ? sum_in_front(in, op)
                                        : interp_eval(in, op->args[1]);
  if (in->failed) return;
  if (!interp_offset(t, idx, &off, &bad)) {
    interp_fail(in, op, "store out of range");
    return;
  }
  char *to = (char *)t->data + off * dtype_size(t->dtype);
  if (ir_attr_i(op, AT_ADD, 0)) v += dtype_load(t->dtype, to);
  dtype_store(t->dtype, to, v);
}

// ---------------------------------------------------------------- reductions
typedef struct Fold {
  const Op *op;
  RKind kind;
  bool dot;
  DType type;
  double acc;
} Fold;

// What is summed over a parallel axis, for a store that adds, is summed at
// points inside the domains of the key axes that it varies with.
static bool keys_hold(Interp *in, const Op *op) {
  for (uint32_t i = 0; i < op->nargs && i < 2; i++) {
    const Type *t = ir_type(in->f, op->args[i]);
    for (uint32_t k = 0; k < t->n; k++)
      if (in->f->axes.at[t->axis[k]].role == AX_KEY &&
          !interp_in_domain(in, t->axis[k]))
        return false;
  }
  return true;
}

static void fold_over(Interp *in, Fold *r, const IrAttr *over, uint32_t i) {
  if (in->failed) return;
  if (i < over->n) {
    uint32_t a = (uint32_t)over->list[i];
    bool key = in->f->axes.at[a].role == AX_KEY;
    bool par = in->f->axes.at[a].role == AX_PAR;
    int64_t lo = key ? in->key_lo[a] : 0;
    int64_t hi = key ? in->key_hi[a] : in->extent[a], saved = in->coord[a];
    for (in->coord[a] = lo; in->coord[a] < hi; in->coord[a]++)
      if (key ? interp_in_domain(in, a) : !par || keys_hold(in, r->op))
        fold_over(in, r, over, i + 1);
    in->coord[a] = saved;
    return;
  }
  double x = interp_eval(in, r->op->args[0]);
  if (r->dot) x *= interp_eval(in, r->op->args[1]);
  r->acc = interp_round(in, r->type, eval_reduce(r->kind, r->acc, x));
}

static double eval_fold(Interp *in, const Op *op) {
  Fold r = {.op = op, .dot = op->code == OP_DOT};
  r.kind = r.dot ? RK_SUM : (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  r.type = ir_type(in->f, op->res[0])->dtype;
  r.acc = r.dot && op->nargs >= 3 ? interp_eval(in, op->args[2])
                                  : eval_identity(r.kind, r.type);
  fold_over(in, &r, ir_attr(op, AT_OVER), 0);
  return r.acc;
}

// The part of an axis that a scan at the current point runs along.
static void scan_ends(const Interp *in, const Op *op, uint32_t a, int64_t *lo,
                      int64_t *hi) {
  bool key = in->f->axes.at[a].role == AX_KEY;
  int64_t block = ir_attr_i(op, AT_BLOCK, 0);
  *lo = key ? in->key_lo[a] : 0;
  *hi = key ? in->key_hi[a] : in->extent[a];
  if (!block) return;
  int64_t first = in->coord[a] / block * block, end = first + block;
  if (*lo < first) *lo = first;
  if (*hi > end) *hi = end;
}

// The whole row of a scan at once, or a block of it.
static double eval_scan(Interp *in, const Op *op) {
  uint32_t a = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  bool suffix = ir_attr_i(op, AT_DIR, DIR_PREFIX) == DIR_SUFFIX;
  bool exclusive = ir_attr_i(op, AT_EXCLUSIVE, 0);
  RKind kind = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  const Type *t = ir_type(in->f, op->res[0]);
  Table *tb = interp_table(in, op->res[0]);
  bool key = in->f->axes.at[a].role == AX_KEY,
       block = ir_attr_i(op, AT_BLOCK, 0) != 0;
  int64_t lo, hi, saved = in->coord[a];
  scan_ends(in, op, a, &lo, &hi);
  double run = op->nargs > 1 ? interp_eval(in, op->args[1])
                             : eval_identity(kind, t->dtype);
  for (int64_t i = 0; i < hi - lo && !in->failed; i++) {
    in->coord[a] = suffix ? hi - 1 - i : lo + i;
    bool inside = block ? keys_hold(in, op) : !key || interp_in_domain(in, a);
    double before = run;
    if (inside)
      run = interp_round(in, t->dtype,
                         eval_reduce(kind, run, interp_eval(in, op->args[0])));
    uint64_t at = interp_at(in, t);
    tb->at[at] = exclusive ? before : run;
    tb->known[at] = 1;
  }
  in->coord[a] = saved;
  return tb->at[interp_at(in, t)];
}

static bool domain_empty(Interp *in, uint32_t a) {
  int64_t saved = in->coord[a];
  bool empty = true;
  for (in->coord[a] = 0; empty && in->coord[a] < in->extent[a]; in->coord[a]++)
    empty = !interp_in_domain(in, a);
  in->coord[a] = saved;
  return empty;
}

// ---------------------------------------------------------------- values
static double eval_span(Interp *in, const Op *op) {
  InterpTensor *t = tensor(in, op->args[0]);
  bool min = op->code == OP_SPAN_MIN;
  int64_t lo = (int64_t)interp_eval(in, op->args[1]);
  int64_t hi = (int64_t)interp_eval(in, op->args[2]);
  double acc = min ? INFINITY : -INFINITY;
  int64_t idx[8] = {0}, off;
  for (uint32_t i = 3; i < op->nargs; i++)
    idx[i - 3] = (int64_t)interp_eval(in, op->args[i]);
  for (int64_t i = lo; i <= hi && !in->failed; i++) {
    int bad;
    idx[t->rank - 1] = i;
    if (!interp_offset(t, idx, &off, &bad)) continue;
    double v =
        dtype_load(t->dtype, (char *)t->data + off * dtype_size(t->dtype));
    acc = min ? fmin(acc, v) : fmax(acc, v);
  }
  return acc;
}

static double eval_elementwise(Interp *in, const Op *op) {
  double x[ELEM_ARGS] = {0};
  x[0] = interp_eval(in, op->args[0]);
  if (op->code == OP_SELECT)
    return interp_eval(in, op->args[x[0] != 0 ? 1 : 2]);
  // What the left side decides does not need the right one.
  if (op->code == OP_AND && x[0] == 0) return 0;
  if (op->code == OP_OR && x[0] != 0) return 1;
  for (uint32_t i = 1; i < op->nargs; i++) x[i] = interp_eval(in, op->args[i]);
  if (op->code == OP_DIVK && x[1] == 0 &&
      domain_empty(in, (uint32_t)ir_attr_i(op, AT_AXIS, 0)))
    return 0;
  return eval_op(op->code, x);
}

static double eval_def(Interp *in, const Op *op) {
  const IrAttr *f = ir_attr(op, AT_VALUE);
  int64_t d = 0;
  switch (op->code) {
  case OP_CONST: return f ? f->f : dtype_number(ir_attr_i(op, AT_IVALUE, 0));
  case OP_DIM:
    if (!dim_eval(&in->m->dims, (Dim)ir_attr_i(op, AT_DIM, 0), in->dims, &d))
      interp_fail(in, op, "the dim has no value");
    return (double)d;
  case OP_GIVEN: {
    InterpTensor *t = tensor(in, op->args[0]);
    return t->rank || t->data ? t->data != NULL : t->given;
  }
  case OP_INDEX: return (double)in->coord[ir_attr_i(op, AT_AXIS, 0)];
  case OP_LOAD: return eval_load(in, op);
  case OP_REDUCE:
  case OP_DOT: return eval_fold(in, op);
  case OP_SCAN: return eval_scan(in, op);
  case OP_SPAN_MIN:
  case OP_SPAN_MAX: return eval_span(in, op);
  case OP_CAST: {
    DType to = (DType)ir_attr_i(op, AT_TO, DT_F32);
    double x = interp_eval(in, op->args[0]);
    return dtype_is_float(to) && !in->opt->round ? x : dtype_round(to, x);
  }
  default: break;
  }
  if (op_info(op->code)->flags & OPF_ELEM) return eval_elementwise(in, op);
  interp_fail(in, op, "the interpreter cannot evaluate this op here");
  return NAN;
}

// A pass in the local region of another: run when a value of it is needed.
static bool nested_pass(Interp *in, const Op *op) {
  int64_t coord[64];
  memcpy(coord, in->coord, sizeof coord);
  bool ok = interp_pass(in, op);
  memcpy(in->coord, coord, sizeof coord);
  return ok;
}

double interp_eval(Interp *in, Value v) {
  const ValueInfo *info = ir_info(in->f, v);
  if (in->failed) return NAN;
  if (!info->def && in->arg_of[v] >= 0) return in->args[in->arg_of[v]].scalar;
  Table *tb = interp_table(in, v);
  uint64_t at = interp_at(in, &info->type);
  if (in->failed) return NAN;
  if (tb->known[at]) return tb->at[at];
  if (++in->steps > in->budget) {
    diag_add(in->cx, DIAG_interp_budget, NOWHERE,
             (unsigned long long)in->budget);
    in->failed = true;
    return NAN;
  }
  if (info->def && info->def->code == OP_KREDUCE && info->def->parent->parent)
    return nested_pass(in, info->def) ? tb->at[at] : NAN;
  if (!info->def || info->def->nres != 1 || info->def->nregions) {
    interp_fail(in, info->def, "a value is used before it is computed");
    return NAN;
  }
  double x = eval_def(in, info->def);
  x = interp_round(in, info->type.dtype, x);
  tb->at[at] = x;
  tb->known[at] = 1;
  return x;
}

// ---------------------------------------------------------------- recurrences
typedef struct Copy {
  Value from;
  Value to, keep;  // keep: value outside the step's domain, or 0
  uint32_t axis;
  Table next;
} Copy;

static void copy_point(Interp *in, void *data) {
  Copy *c = data;
  const Type *t = ir_type(in->f, c->to);
  bool take = !c->keep || interp_in_domain(in, c->axis);
  c->next.at[interp_at(in, t)] = interp_eval(in, take ? c->from : c->keep);
}

// to := from at all points; values of `to` may be read meanwhile.
static void copy_prepare(Interp *in, Copy *c) {
  Table *tb = interp_table(in, c->to);
  if (!c->next.at) c->next.at = NEWN(in->arena, double, tb->n ? tb->n : 1);
  interp_points(in, ir_type(in->f, c->to), copy_point, c);
}

static void copy_commit(Interp *in, const Copy *c) {
  Table *tb = interp_table(in, c->to);
  memcpy(tb->at, c->next.at, sizeof(double) * tb->n);
  memset(tb->known, 1, tb->n);
}

static bool run_recur(Interp *in, const Op *op) {
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  const Region *r = op->regions[0];
  bool rev = ir_attr_i(op, AT_REVERSE, 0);
  Copy *c = NEWN(in->arena, Copy, op->nargs + 1);
  for (uint32_t i = 0; i < op->nargs; i++) {
    c[i] = (Copy){.from = op->args[i], .to = r->params.at[i]};
    copy_prepare(in, &c[i]);
    copy_commit(in, &c[i]);
  }
  int64_t n = in->extent[axis];
  in->open[axis] = true;
  for (int64_t s = 0; s < n && !in->failed; s++) {
    in->coord[axis] = rev ? n - 1 - s : s;
    interp_forget(in, r);
    interp_region(in, r);
    for (uint32_t i = 0; i < op->nargs; i++) {
      c[i].from = r->last->args[i];
      c[i].axis = axis;
      c[i].keep = in->ndomain[axis] ? r->params.at[i] : 0;
      copy_prepare(in, &c[i]);
    }
    for (uint32_t i = 0; i < op->nargs; i++) copy_commit(in, &c[i]);
  }
  in->open[axis] = false;
  for (uint32_t i = 0; i < op->nres; i++) {
    c[i] = (Copy){.from = r->params.at[i], .to = op->res[i]};
    copy_prepare(in, &c[i]);
    copy_commit(in, &c[i]);
  }
  return !in->failed;
}

// ---------------------------------------------------------------- programs
static bool run_effect(Interp *in, const Op *op) {
  switch (op->code) {
  case OP_STORE: {
    Type t = {.kind = TK_ELEM};
    for (uint32_t i = 1; i < op->nargs; i++)
      t = type_union(&t, ir_type(in->f, op->args[i]), DT_F64);
    interp_points(in, &t, interp_store, (void *)(uintptr_t)op);
    return !in->failed;
  }
  case OP_DOMAIN: {
    uint32_t a = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
    Value *d = NEWN(in->arena, Value, in->ndomain[a] + 1);
    if (in->ndomain[a])
      memcpy(d, in->domain[a], sizeof(Value) * in->ndomain[a]);
    d[in->ndomain[a]++] = op->args[0];
    in->domain[a] = d;
    return true;
  }
  case OP_RECUR: return run_recur(in, op);
  case OP_KREDUCE: return interp_pass(in, op);
  case OP_AFFINE: return interp_affine(in, op);
  case OP_MAXPLUS: return interp_maxplus(in, op);
  default: return true;
  }
}

bool interp_region(Interp *in, const Region *r) {
  for (const Op *op = r->first; op && !in->failed; op = op->next)
    if (op->code != OP_DOMAIN) run_effect(in, op);
  return !in->failed;
}

// Domains hold wherever they stand, so they are all known first.
static void collect_domains(void *data, Op *op) {
  if (op->code == OP_DOMAIN) run_effect(data, op);
}

static bool run_function(Interp *in) {
  ir_walk(in->f->body, collect_domains, in);
  return interp_region(in, in->f->body);
}

static bool setup(Interp *in) {
  const Func *f = in->f;
  in->table = NEWN(in->arena, Table, f->values.n + 1);
  in->arg_of = NEWN(in->arena, int, f->values.n + 1);
  for (uint32_t i = 0; i <= f->values.n; i++) in->arg_of[i] = -1;
  for (uint32_t i = 0; i < f->params.n; i++)
    in->arg_of[f->params.at[i].v] = (int)i;
  if (f->axes.n > 64) {
    interp_fail(in, NULL, "more than 64 axes");
    return false;
  }
  for (uint32_t a = 0; a < f->axes.n; a++) {
    if (!dim_eval(&in->m->dims, f->axes.at[a].extent, in->dims,
                  &in->extent[a]) ||
        in->extent[a] < 0) {
      interp_fail(in, NULL, "the extent of an axis has no value");
      return false;
    }
    in->key_hi[a] = in->extent[a];
  }
  return true;
}

static void poison(const Func *f, InterpTensor *args) {
  for (uint32_t i = 0; i < f->params.n; i++) {
    InterpTensor *t = &args[i];
    if (f->params.at[i].role != PR_OUT || !t->data) continue;
    if (!dtype_is_float(t->dtype)) continue;
    int64_t n = 1;
    for (uint32_t k = 0; k < t->rank; k++) n *= t->shape[k];
    for (int64_t k = 0; k < n; k++) {
      int64_t rest = k, off = 0;
      for (uint32_t x = t->rank; x-- > 0;) {
        off += rest % t->shape[x] * t->stride[x];
        rest /= t->shape[x];
      }
      dtype_store(t->dtype, (char *)t->data + off * dtype_size(t->dtype), NAN);
    }
  }
}

// The caller's arguments and workspace for the shared parameters of f.
static InterpTensor *with_shared(Interp *in, const Func *f,
                                 InterpTensor *args) {
  InterpTensor *all = NEWN(in->arena, InterpTensor, f->params.n + 1);
  for (uint32_t i = 0; i < f->params.n; i++) {
    const Type *t = ir_type(f, f->params.at[i].v);
    InterpTensor *x = &all[i];
    if (f->params.at[i].role != PR_SHARED) {
      *x = args[i];
      continue;
    }
    *x = (InterpTensor){.dtype = t->dtype, .rank = t->n, .given = true};
    int64_t n = 1;
    for (uint32_t k = t->n; k-- > 0;) {
      if (!dim_eval(&in->m->dims, t->size[k], in->dims, &x->shape[k]) ||
          x->shape[k] < 0 || x->shape[k] > 1 << 24)
        x->shape[k] = 0;
      x->stride[k] = n;
      n *= x->shape[k];
    }
    x->data =
        arena_alloc(in->arena, (size_t)(n + 1) * (size_t)dtype_size(x->dtype));
  }
  return all;
}

static bool run_phase(Interp *in, const Func *f) {
  in->f = f;
  memset(in->ndomain, 0, sizeof in->ndomain);
  if (!setup(in)) return false;
  if (in->m->level == LV_FRAG) {
    interp_fail(
        in, NULL,
        "level frag is not executed: pass bufferize_gpu makes mach of it");
    return false;
  }
  if (in->m->level == LV_MACH && target_is_gpu(in->m->target))
    return simt_interp(in);
  return in->m->level == LV_MACH   ? interp_mach(in)
         : in->m->level == LV_TILE ? interp_tile(in)
                                   : run_function(in);
}

static bool run_phases(Interp *in, const char *name, InterpTensor *args) {
  in->args = with_shared(in, in->f, args);
  for (uint32_t i = 0; i < in->m->funcs.n && !in->failed; i++)
    if (ir_is_phase(in->m->funcs.at[i], name) &&
        !run_phase(in, in->m->funcs.at[i]))
      return false;
  return true;
}

bool ir_interp(Ctx *cx, const Module *m, const char *name, InterpTensor *args,
               const int64_t *dims, const InterpOpt *opt) {
  static const uint64_t budget = 4000000000u;
  Arena tables = {.oom = cx->session.oom, .oom_data = cx->session.oom_data};
  Interp in = {.cx = cx,
               .m = m,
               .opt = opt,
               .dims = dims,
               .args = args,
               .arena = &tables,
               .budget = budget,
               .rng = opt->seed};
  in.f = ir_find(m, name);
  if (!in.f) {
    diag_add(cx, DIAG_ir_name, NOWHERE, "program", name);
    return false;
  }
  if (opt->poison) poison(in.f, args);
  bool ok = run_phases(&in, name, args);
  arena_drop(&tables);
  return ok && !in.failed;
}
