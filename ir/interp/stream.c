// `pass` of level stream, executed the way any schedule may: the keys are cut
// into tiles at random, in order or as independent parts that are combined,
// and the bounds and tile tests of `mask` are checked to be sound.
#include "ir/interp/interp.h"

#include <math.h>
#include <string.h>

typedef struct Run {
  const Op *op;
  uint32_t axis, n;
  const IrAttr *kinds;
  const Region *domain, *local, *correct;
  Table *acc;  // running accumulators
  uint32_t i;  // accumulator being updated
  Table next;
} Run;

static bool is_scan(const Run *r, uint32_t i) {
  const IrAttr *a = ir_attr(r->op, AT_SCANS);
  for (uint32_t j = 0; a && j < a->n; j++)
    if (a->list[j] == i) return true;
  return false;
}

static void set_param(Interp *in, Value p, const Table *from) {
  Table *t = interp_table(in, p);
  memcpy(t->at, from->at, sizeof(double) * t->n);
  memset(t->known, 1, t->n);
}

// The term of accumulator i over the visible keys at the current point.
static double term(Interp *in, Run *r) {
  Value y = r->local->last->args[r->i];
  RKind k = (RKind)r->kinds->list[r->i];
  const Op *def = ir_def(in->f, y);
  const IrAttr *over = def ? ir_attr(def, AT_OVER) : NULL;
  bool inner = def && def->parent == r->local && over &&
               (def->code == OP_DOT || def->code == OP_REDUCE);
  for (uint32_t j = 0; inner && j < over->n; j++)
    if (over->list[j] == r->axis) return interp_eval(in, y);
  int64_t saved = in->coord[r->axis];
  DType t = ir_type(in->f, r->op->res[r->i])->dtype;
  double acc = eval_identity(k, t);
  for (int64_t c = in->key_lo[r->axis]; c < in->key_hi[r->axis]; c++) {
    in->coord[r->axis] = c;
    if (interp_eval(in, r->domain->last->args[0]) == 0) continue;
    acc = interp_round(in, t, eval_reduce(k, acc, interp_eval(in, y)));
  }
  in->coord[r->axis] = saved;
  return acc;
}

static double scaled(Interp *in, Run *r, double old) {
  RKind k = (RKind)r->kinds->list[r->i];
  if (k == RK_ANY || k == RK_ALL) return old;
  if (old == 0 && k == RK_SUM) return old;
  return old * interp_eval(in, r->correct->last->args[r->i]);
}

static void update_point(Interp *in, void *data) {
  Run *r = data;
  const Type *t = ir_type(in->f, r->op->res[r->i]);
  uint64_t at = interp_at(in, t);
  RKind k = (RKind)r->kinds->list[r->i];
  double old = r->acc[r->i].at[at];
  double x = scaled(in, r, old);
  // Terms of `count` are counted inside term().
  double t2 = term(in, r);
  double y = k == RK_COUNT ? x + t2 : eval_reduce(k, x, t2);
  r->next.at[at] = interp_round(in, t->dtype, y);
}

typedef struct Adding {
  const Op *op;
  const Type *type;
} Adding;

// Only in the tile, as the tiles of passes around are.
static void add_point(Interp *in, void *data) {
  const Adding *a = data;
  for (uint32_t i = 0; i < a->type->n; i++) {
    uint32_t x = a->type->axis[i];
    if (in->f->axes.at[x].role == AX_KEY &&
        (in->coord[x] < in->key_lo[x] || in->coord[x] >= in->key_hi[x]))
      return;
  }
  interp_store(in, (void *)(uintptr_t)a->op);
}

// What the keys of a tile add to memory.
static void add_tile(Interp *in, const Run *r) {
  for (const Op *op = r->local->first; op && !in->failed; op = op->next) {
    if (op->code != OP_STORE) continue;
    Type t = {.kind = TK_ELEM};
    for (uint32_t i = 1; i < op->nargs; i++)
      t = type_union(&t, ir_type(in->f, op->args[i]), DT_F64);
    Adding a = {op, &t};
    interp_points(in, &t, add_point, &a);
  }
}

// One tile of keys [lo, hi).
static void tile(Interp *in, Run *r, int64_t lo, int64_t hi) {
  in->key_lo[r->axis] = lo;
  in->key_hi[r->axis] = hi;
  interp_forget(in, r->local);
  interp_forget(in, r->correct);
  for (r->i = 0; r->i < r->n && !in->failed; r->i++) {
    set_param(in, r->correct->params.at[r->i], &r->acc[r->i]);
    if (is_scan(r, r->i))
      set_param(in, r->local->params.at[r->i], &r->acc[r->i]);
    Table *next = interp_table(in, r->op->res[r->i]);
    r->next = *next;
    interp_points(in, ir_type(in->f, r->op->res[r->i]), update_point, r);
    if (!is_scan(r, r->i)) set_param(in, r->local->params.at[r->i], next);
    set_param(in, r->correct->params.at[r->n + r->i], next);
    memcpy(r->acc[r->i].at, next->at, sizeof(double) * next->n);
  }
  add_tile(in, r);
}

static Table *identities(Interp *in, const Run *r) {
  Table *acc = NEWN(in->arena, Table, r->n + 1);
  for (uint32_t i = 0; i < r->n; i++) {
    Table *t = interp_table(in, r->op->res[i]);
    acc[i] = (Table){.at = NEWN(in->arena, double, t->n + 1), .n = t->n};
    DType dt = ir_type(in->f, r->op->res[i])->dtype;
    for (uint64_t k = 0; k < t->n; k++)
      acc[i].at[k] = eval_identity((RKind)r->kinds->list[i], dt);
  }
  return acc;
}

// Tiles of passes with blocks have one each.
static int64_t block_of(const Run *r) {
  int64_t block = 1;
  for (const Op *op = r->local->first; op; op = op->next)
    if (ir_attr_i(op, AT_BLOCK, 0) && ir_attr_i(op, AT_AXIS, 0) == r->axis)
      block = ir_attr_i(op, AT_BLOCK, 0);
  return block;
}

// Streams [lo, hi) in random tiles.
static Table *stream(Interp *in, Run *r, int64_t lo, int64_t hi) {
  bool rev = ir_attr_i(r->op, AT_ORDER, ORDER_ANY) == ORDER_REVERSE;
  int64_t block = block_of(r);
  r->acc = identities(in, r);
  while (lo < hi && !in->failed) {
    int64_t n = 1 + (int64_t)interp_random(in, (uint64_t)(hi - lo));
    if (block > 1) n = rev ? (hi - 1) % block + 1 : block - lo % block;
    if (n > hi - lo) n = hi - lo;
    if (rev) tile(in, r, hi - n, hi);
    else tile(in, r, lo, lo + n);
    if (rev) hi -= n;
    else lo += n;
  }
  return r->acc;
}

typedef struct Join {
  Run *r;
  const Table *part;  // state being scaled into the joined frame
  Table *into;
} Join;

static void join_point(Interp *in, void *data) {
  Join *j = data;
  Run *r = j->r;
  uint64_t at = interp_at(in, ir_type(in->f, r->op->res[r->i]));
  RKind k = (RKind)r->kinds->list[r->i];
  double x = scaled(in, r, j->part[r->i].at[at]);
  double *to = &j->into[r->i].at[at];
  *to = k == RK_COUNT ? *to + x : eval_reduce(k, *to, x);
}

// Two partial states as one: both are scaled into the frame of the result.
static Table *combine(Interp *in, Run *r, const Table *a, const Table *b) {
  Table *c = identities(in, r);
  const Table *parts[2] = {a, b};
  // Frames first: a factor may use the joined accumulators before its own.
  for (r->i = 0; r->i < r->n; r->i++) {
    for (int p = 0; p < 2; p++) {
      interp_forget(in, r->correct);
      for (uint32_t i = 0; i < r->n; i++) {
        set_param(in, r->correct->params.at[i], &parts[p][i]);
        set_param(in, r->correct->params.at[r->n + i], &c[i]);
      }
      Join j = {r, parts[p], c};
      interp_points(in, ir_type(in->f, r->op->res[r->i]), join_point, &j);
    }
  }
  return c;
}

// ---------------------------------------------------------------- soundness
typedef struct Box {
  const Op *op;
  uint32_t axis;
  const Region *bounds, *classify;
  int64_t lo[64], hi[64];  // per axis of the box
  int64_t klo, khi;
  bool checked;
} Box;

static void set_scalar(Interp *in, Value p, double v) {
  Table *t = interp_table(in, p);
  t->at[0] = v;
  t->known[0] = 1;
}

static uint32_t set_box(Interp *in, const Box *b, const Region *r) {
  const IrAttr *box = ir_attr(b->op, AT_BOX);
  uint32_t at = 0;
  interp_forget(in, r);
  for (uint32_t i = 0; box && i < box->n; i++) {
    set_scalar(in, r->params.at[at++], (double)b->lo[box->list[i]]);
    set_scalar(in, r->params.at[at++], (double)b->hi[box->list[i]]);
  }
  return at;
}

static void check_key(Interp *in, const Box *b, bool any, bool full) {
  bool in_domain = interp_eval(in, b->op->regions[0]->last->args[0]) != 0;
  if (in->failed) return;
  if (in_domain && !any) interp_fail(in, b->op, "bounds leave out a key");
  if (!in_domain && full)
    interp_fail(in, b->op, "bounds call a masked key unmasked");
}

// One point of the box against the intervals.
static void check_point(Interp *in, void *data) {
  Box *b = data;
  const IrAttr *box = ir_attr(b->op, AT_BOX);
  int64_t saved[64], n = in->extent[b->axis];
  for (uint32_t i = 0; box && i < box->n; i++) {
    int64_t c = in->coord[box->list[i]];
    saved[i] = c;
    b->lo[box->list[i]] = c - (int64_t)interp_random(in, (uint64_t)c + 1);
    int64_t up = in->extent[box->list[i]] - c;
    b->hi[box->list[i]] = c + (int64_t)interp_random(in, (uint64_t)up);
  }
  b->klo = (int64_t)interp_random(in, (uint64_t)n);
  b->khi = b->klo + (int64_t)interp_random(in, (uint64_t)(n - b->klo));
  set_box(in, b, b->bounds);
  const Op *y = b->bounds->last;
  double v[16] = {0};
  for (uint32_t i = 0; i < y->nargs && i < 16; i++)
    v[i] = interp_eval(in, y->args[i]);
  int cls = 1;
  if (b->classify) {
    uint32_t at = set_box(in, b, b->classify);
    set_scalar(in, b->classify->params.at[at], (double)b->klo);
    set_scalar(in, b->classify->params.at[at + 1], (double)b->khi);
    cls = (int)interp_eval(in, b->classify->last->args[0]);
  }
  for (int64_t k = 0; k < n && !in->failed; k++) {
    bool any = false, full = false;
    for (uint32_t i = 0; i + 3 < y->nargs && i < 16; i += 4) {
      any |= v[i] <= (double)k && (double)k < v[i + 1];
      full |= v[i + 2] <= (double)k && (double)k < v[i + 3];
    }
    in->coord[b->axis] = k;
    bool seen = k >= b->klo && k <= b->khi;
    check_key(in, b, any && !(seen && cls == 0), full || (seen && cls == 2));
  }
  for (uint32_t i = 0; box && i < box->n; i++)
    in->coord[box->list[i]] = saved[i];
}

static void check_bounds(Interp *in, const Op *op) {
  if (op->nregions < 4 || !op->regions[3]->last) return;
  Box b = {.op = op, .bounds = op->regions[3]};
  b.axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  if (op->nregions > 4 && op->regions[4]->last) b.classify = op->regions[4];
  Type t = type_without(*ir_type(in->f, op->regions[0]->last->args[0]), b.axis);
  const IrAttr *box = ir_attr(op, AT_BOX);
  for (uint32_t i = 0; box && i < box->n; i++)
    t = type_with(t, (uint32_t)box->list[i], DIM_NONE);
  if (in->extent[b.axis] > 0) interp_points(in, &t, check_point, &b);
}

bool interp_pass(Interp *in, const Op *op) {
  Run r = {.op = op, .n = op->nres, .kinds = ir_attr(op, AT_KINDS)};
  r.axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  r.domain = op->regions[0];
  r.local = op->regions[1];
  r.correct = op->regions[2];
  check_bounds(in, op);
  // Reductions and dots of the local region run over the domain.
  Value *saved = in->domain[r.axis];
  uint32_t nsaved = in->ndomain[r.axis];
  in->domain[r.axis] = &r.domain->last->args[0];
  in->ndomain[r.axis] = 1;
  int64_t n = in->extent[r.axis];
  bool split = ir_attr_i(op, AT_ORDER, ORDER_ANY) == ORDER_ANY &&
               !ir_attr(op, AT_SCANS) && block_of(&r) == 1 && n > 1 &&
               interp_random(in, 2);
  Table *acc;
  if (split) {
    int64_t cut = (int64_t)interp_random(in, (uint64_t)n + 1);
    Table *a = stream(in, &r, 0, cut), *b = stream(in, &r, cut, n);
    acc = combine(in, &r, a, b);
  } else {
    acc = stream(in, &r, 0, n);
  }
  in->key_lo[r.axis] = 0;
  in->key_hi[r.axis] = n;
  in->domain[r.axis] = saved;
  in->ndomain[r.axis] = nsaved;
  for (uint32_t i = 0; i < r.n && !in->failed; i++)
    set_param(in, op->res[i], &acc[i]);
  return !in->failed;
}
