// Facts of a function for the pass `lower_gpu`: the order of its axes, sizes of
// tiles, ranges of integers, and where values can be made.
#include "ir/layout.h"
#include "ir/target.h"
#include "passes/support/cost.h"
#include "passes/gpu/gpu.h"
#include "passes/support/lane.h"

#include <assert.h>
#include <math.h>
#include <string.h>

// Extents and coordinates are below this, so that sums of a few of them fit
// into 32 bits: the runtime refuses longer ones.
static const double LONGEST = 1 << HW_INDEX_BITS;

// ---------------------------------------------------------------- order
static uint32_t axis_rank(const Place *p, uint32_t a) {
  if ((int)a == p->lane) return 0;
  switch (p->f->axes.at[a].role) {
  case AX_PAR: return 1;
  case AX_KEY: return 2;
  case AX_STEP: return 3;
  case AX_VEC: return 4;
  default: return 5;
  }
}

static void plan_order(Place *p) {
  for (uint32_t a = 0; a < p->f->axes.n; a++)
    p->order[a] = axis_rank(p, a) << 8 | a;
}

bool lower_view(const Place *p, const Type *a, const Type *b, View *v) {
  *v = (View){.row = -1, .col = -1};
  const Type *t[] = {a, b};
  for (int k = 0; k < 2; k++)
    for (uint32_t i = 0; t[k] && i < t[k]->n; i++) {
      int x = (int)t[k]->axis[i];
      if (v->row == x || v->col == x) continue;
      if (v->row >= 0 && v->col >= 0) return false;
      if (v->row < 0) {
        v->row = x;
        v->rsize = t[k]->size[i];
      } else {
        v->col = x;
        v->csize = t[k]->size[i];
      }
    }
  if (v->col >= 0 && p->order[v->col] < p->order[v->row]) {
    View w = *v;
    *v = (View){w.col, w.row, w.csize, w.rsize, 0};
  }
  for (uint32_t i = 0; i < p->nlin; i++)
    if (!p->lin[i].box && (int)p->lin[i].row == v->row &&
        (int)p->lin[i].col == v->col)
      v->frag = i + 1;
  return true;
}

Role lower_home(const Place *p, const Type *t) {
  return t->n == 1 ? p->home[t->axis[0]] : ROLE_ROW;
}

Role lower_role(const View *v, const Type *t) {
  if (t->n != 1) return ROLE_ROW;
  return 2 * v->frag + ((int)t->axis[0] == v->row ? ROLE_ROW : ROLE_COL);
}

// ---------------------------------------------------------------- sizes
static void note_reduce(void *data, Op *op) {
  bool *map = data;
  *map &= op->code != OP_REDUCE && op->code != OP_DOT && op->code != OP_ROW;
}

typedef struct Maps {
  const Func *f;
  bool all, loops;
  bool points;  // loops are over parts of vectors alone
} Maps;

static void note_loops(void *data, Op *op) {
  Maps *m = data;
  bool product =
      op->code == OP_DOT && !lane_has_rows(m->f, ir_type(m->f, op->args[0]),
                                           ir_type(m->f, op->args[1]));
  m->all &= !product && op->code != OP_SCAN;
  m->loops |= op->code == OP_FOR || op->code == OP_WHILE;
  if (op->code == OP_FOR && !m->points)
    ir_walk(op->regions[0], note_reduce, &m->all);
}

static void plan_map(Place *p) {
  Maps m = {.f = p->f, .all = p->lane >= 0, .points = true};
  for (uint32_t i = 0; i < p->f->axes.n; i++)
    m.points &=
        p->f->axes.at[i].role == AX_PAR || p->f->axes.at[i].role == AX_VEC;
  ir_walk(p->f->body, note_loops, &m);
  p->map = m.all;
  p->straight = m.all && !m.loops;
  p->tall = p->lane;
}

typedef struct Beside {
  const Place *p;
  int rows;  // the axis of rows of all tiles, -1: no tile yet
  bool ok;
} Beside;

static void note_beside(void *data, Op *op) {
  Beside *x = data;
  View v;
  x->ok &= op->code != OP_DOT && op->code != OP_SCAN && op->code != OP_TRINV;
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = ir_type(x->p->f, op->res[i]);
    if (t->kind != TK_ELEM || t->n < 2) continue;
    x->ok &= lower_view(x->p, t, NULL, &v) && v.col >= 0 &&
             (x->rows < 0 || x->rows == v.row);
    x->rows = v.row;
  }
}

// A task of one point may have several points of a parallel axis beside each
// other, as those that join parts have: rows of its tiles.
static void plan_beside(Place *p) {
  Beside x = {.p = p, .rows = -1, .ok = p->lane < 0};
  ir_walk(p->f->body, note_beside, &x);
  if (!x.ok || x.rows < 0 || p->f->axes.at[x.rows].role != AX_PAR) return;
  p->map = true;
  p->tall = x.rows;
}

// Products of AMD are made by as many warps as there are rows, the others do
// the same.
static bool amd(const Place *p) {
  return p->target->gpu.vendor == VENDOR_AMD;
}

typedef struct Sums {
  const Func *f;
  bool ok, keys;  // keys are along tiles
} Sums;

static void note_sums(void *data, Op *op) {
  Sums *x = data;
  x->ok &= op->code != OP_SCAN && op->code != OP_TRINV;
  x->ok &= op->code != OP_DOT || !lane_is_product(x->f, op);
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = ir_type(x->f, op->res[i]);
    x->keys |= t->kind == TK_ELEM && t->n > 1 && lane_has_key(x->f, t);
  }
}

// Nor are the tiles multiplied of tasks of one point each, whose loops sum what
// keys have: an element is in one thread, not in one of each warp. On AMD
// the tiles of products spill less.
static void plan_sums(Place *p) {
  Sums x = {.f = p->f, .ok = !p->map && !ir_has_steps(p->f)};
  if (amd(p) || p->lane >= 0) return;
  ir_walk(p->f->body, note_sums, &x);
  p->map |= x.ok && (x.keys || !p->f->grid.n);
}

typedef struct Count {
  Place *p;
  uint32_t rows[64], cols[64];
} Count;

static uint32_t round_up(int64_t n, uint32_t to) {
  return (uint32_t)((n + to - 1) / to * to);
}

static uint32_t common(uint32_t a, uint32_t b) {
  while (a) {
    uint32_t r = b % a;
    b = a;
    a = r;
  }
  return b;
}

static uint32_t least_rows(const Place *p, int64_t n) {
  uint32_t rows = p->target->gpu.rows;
  while (rows < n) rows *= 2;
  return rows;
}

// Columns that threads share evenly: rows of pieces, of which a thread has as
// few as may be (layout lin: what divides both the pieces and the threads is
// along a row). 65 columns are 16 pieces, one a thread, not 9 of one thread.
static uint32_t even_pieces(const Place *p, int64_t n) {
  uint32_t threads = p->warps * p->target->gpu.wave;
  uint32_t least = round_up(n, COST_PIECE) / COST_PIECE, best = least;
  for (uint32_t c = least; c < 2 * least; c++)
    if (c / common(c, threads) < best / common(best, threads)) best = c;
  // Slices are turned in a tile of products.
  return round_up(best * COST_PIECE, p->cols);
}

// Rows of a task without products that its threads share evenly.
static uint32_t even_rows(const Place *p, int64_t n) {
  uint32_t threads = p->warps * p->target->gpu.wave, rows = 1;
  while (rows < n && rows < threads) rows *= 2;
  return rows < n ? round_up(n, threads) : rows;
}

static void note_size(Place *p, uint32_t axis, Dim size) {
  int64_t n;
  if (!dim_is_const(&p->m->dims, size, &n) || n > 1 << 20) {
    lower_refuse(p, NULL, "a tile of a size that is not a known constant");
    return;
  }
  // Products have whole groups' rows; tiles that were cut may be shorter.
  bool key = p->f->axes.at[axis].role == AX_KEY || (int)axis == p->lane;
  if (p->map && (int)axis == p->tall) {
    p->wide[axis][ROLE_ROW] = p->wide[axis][ROLE_COL] = even_rows(p, n);
    return;
  }
  p->wide[axis][ROLE_ROW] =
      round_up(n, (key || amd(p)) && n <= p->rows / 2 ? least_rows(p, n)
                                                      : p->rows);
  p->wide[axis][ROLE_COL] = p->map ? even_pieces(p, n) : round_up(n, p->cols);
}

static void count_type(Count *c, const Type *t) {
  View v;
  if (t->kind != TK_ELEM) return;
  for (uint32_t i = 0; i < t->n; i++) note_size(c->p, t->axis[i], t->size[i]);
  if (t->n != 2 || !lower_view(c->p, t, NULL, &v)) return;
  c->rows[v.row]++;
  c->cols[v.col]++;
}

static void count_op(void *data, Op *op) {
  Count *c = data;
  for (uint32_t i = 0; i < op->nres; i++)
    count_type(c, ir_type(c->p->f, op->res[i]));
  for (uint32_t i = 0; i < op->nargs; i++)
    count_type(c, ir_type(c->p->f, op->args[i]));
}

static void plan_sizes(Place *p) {
  Count c = {.p = p};
  ir_walk(p->f->body, count_op, &c);
  for (uint32_t a = 0; a < p->f->axes.n; a++)
    p->home[a] = c.cols[a] > c.rows[a] ? ROLE_COL : ROLE_ROW;
}

bool lower_padded(const Place *p, uint32_t axis, Dim size, Role r) {
  int64_t n;
  if (!dim_is_const(&p->m->dims, size, &n)) return true;
  if (p->moves[axis]) n -= (p->groups - 1) * p->rows;
  return p->wide[axis][r % 2] != n;
}

// ---------------------------------------------------------------- integers
static void seed(Place *p, Value v, double lo, double hi) {
  map_put(&p->ranges.index, v, p->ranges.all.n);
  Range r = {lo, hi};
  vec_push(p->arena, &p->ranges.all, r);
}

// Of a body for few rows one group has all of them: none of the extents that
// they are a product of is larger where there are rows at all.
bool lower_is_few(const Place *p, Dim d) {
  return p->most && p->few && lane_has_factor(&p->m->dims, p->few, d);
}

static Range any_range(const Place *p, Dim d);

static Range dim_range(const Place *p, Dim d) {
  Range r = any_range(p, d);
  return lower_is_few(p, d) ? (Range){r.lo, fmin(r.hi, p->most)} : r;
}

static Range any_range(const Place *p, Dim d) {
  const DimTab *t = &p->m->dims;
  const DimExpr *e = &t->exprs.at[d];
  if (e->op == DIM_CONST) return (Range){(double)e->value, (double)e->value};
  if (e->op == DIM_SYM) {
    const DimSym *s = &t->syms.at[e->value];
    return (Range){(double)s->lo, fmin((double)s->hi, LONGEST)};
  }
  Range a = dim_range(p, e->a), b = dim_range(p, e->b);
  switch (e->op) {
  case DIM_ADD: return (Range){a.lo + b.lo, a.hi + b.hi};
  case DIM_MUL: {
    double q[] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
    Range r = {q[0], q[0]};
    for (int i = 1; i < 4; i++) r = (Range){fmin(r.lo, q[i]), fmax(r.hi, q[i])};
    return r;
  }
  case DIM_MIN: return (Range){fmin(a.lo, b.lo), fmin(a.hi, b.hi)};
  case DIM_MAX: return (Range){fmax(a.lo, b.lo), fmax(a.hi, b.hi)};
  case DIM_MOD: return (Range){0, b.hi};
  case DIM_FLOORDIV:
    if (a.lo < 0 || b.lo < 1) return (Range){fmin(a.lo, 0), fmax(a.hi, 0)};
    return (Range){floor(a.lo / b.hi), floor(a.hi / b.lo)};
  default: return (Range){fmin(a.lo, 0), fmax(a.hi, 0)};
  }
}

static void seed_op(void *data, Op *op) {
  Place *p = data;
  if (op->code == OP_DIM) {
    Range r = dim_range(p, (Dim)ir_attr_i(op, AT_DIM, 0));
    seed(p, op->res[0], r.lo, r.hi);
  } else if (op->code == OP_ORIGIN) {
    uint32_t a = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
    double row = (double)ir_attr_i(op, AT_ROW, 0);
    seed(p, op->res[0], 0, dim_range(p, p->f->axes.at[a].extent).hi + row);
  } else if (op->code == OP_IOTA) {
    const Type *t = ir_type(p->f, op->res[0]);
    int64_t n = 0;
    dim_is_const(&p->m->dims, t->size[0], &n);
    seed(p, op->res[0], 0, (double)n);
  } else if (op->code == OP_FOR) {
    Range lo = range_of(&p->ranges, op->args[0]);
    Range hi = range_of(&p->ranges, op->args[1]);
    seed(p, op->regions[0]->params.at[0], lo.lo, fmax(lo.lo, hi.hi));
  }
}

DType lower_dtype_of(Place *p, Value v) {
  DType t = ir_type(p->f, v)->dtype;
  if (t != DT_I64) return t;
  Range r = range_of(&p->ranges, v);
  return r.lo >= -0x1p31 && r.hi < 0x1p31 ? DT_I32 : DT_I64;
}

// ---------------------------------------------------------------- scopes
typedef struct User {
  Value v;
  const Op *op;  // the last that has v
  uint32_t n;
} User;

static void note_user(void *data, Op *op) {
  User *u = data;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (op->args[i] == u->v) u->op = op, u->n++;
}

// The only op that has v, or NULL.
static const Op *only_user(const Place *p, Value v) {
  User u = {.v = v};
  ir_walk(p->f->body, note_user, &u);
  return u.n == 1 ? u.op : NULL;
}

bool lower_rooted(const Place *p, const Op *op) {
  switch (op->code) {
  case OP_DOT:
  case OP_REDUCE:
  case OP_SCAN:
  case OP_ANY_OF:
  case OP_ALL_OF:
  case OP_FOR:
  case OP_IF:
  case OP_SPAN_MIN:
  case OP_SPAN_MAX:
  case OP_ROW:
  case OP_SKEW:
  case OP_OTHERS:
  case OP_PEERS:
  case OP_TRINV: return true;
  case OP_LOAD:  // what is written too is read where it stands
    // Parts beside each other are asked for before anything waits.
    if (p->tall >= 0 && p->tall != p->lane) return true;
    for (uint32_t i = 0; i < p->f->params.n; i++)
      if (p->f->params.at[i].v == op->args[0])
        return p->f->params.at[i].role == PR_INOUT;
    return false;
  default: return false;
  }
}

static int region_depth(const Place *p, const Region *r) {
  for (uint32_t i = p->scopes.n; i-- > 0;)
    if (p->scopes.at[i].from == r) return (int)i;
  assert(false && "a value of a region that is closed");
  return 0;
}

static bool has_steps(const Place *p, const Type *t) {
  for (uint32_t i = 0; i < t->n; i++)
    if (p->f->axes.at[t->axis[i]].role == AX_STEP) return true;
  return false;
}

// Elementwise work on tiles stays where it stands: hoisted it would only hold
// registers.
static bool may_hoist(const Place *p, const Op *op) {
  const Type *t = ir_type(p->f, op->res[0]);
  if (t->n == 1 && has_steps(p, t) && op_info(op->code)->flags & OPF_ELEM &&
      dtype_is_float(t->dtype))
    return false;
  return t->n < 2 || op->code == OP_LOAD || op->code == OP_CONST;
}

// A fragment that a branch alone loads is loaded there, if no loop is between:
// it would only hold registers. Without products so is what stands in a branch:
// tasks that do not take it need not wait for it.
static int load_depth(const Place *p, const Op *op, int d) {
  if (op->code != OP_LOAD || !(amd(p) || p->straight)) return d;
  if (p->straight) {
    int at = region_depth(p, op->parent);
    while (at > d && p->scopes.at[at].from->parent->code != OP_IF) at--;
    return at;
  }
  const Op *user = only_user(p, op->res[0]);
  int in = region_depth(p, user ? user->parent : op->parent), to = in;
  for (int i = in; i > d; i--)
    if (p->scopes.at[i].from->parent->code != OP_IF) to = i - 1;
  return to;
}

int lower_depth(Place *p, Value v) {
  if (p->depth[v] >= 0) return p->depth[v];
  const ValueInfo *i = ir_info(p->f, v);
  const Op *op = i->def;
  int d = 0;
  if (!op)
    d = ir_type(p->f, v)->kind == TK_TENSOR ? 0 : region_depth(p, i->region);
  else if (lower_rooted(p, op) || !may_hoist(p, op))
    d = region_depth(p, i->region);
  else
    for (uint32_t k = 0; k < op->nargs; k++) {
      int x = lower_depth(p, op->args[k]);
      if (x > d) d = x;
    }
  if (op && d < (int)p->scopes.n) d = load_depth(p, op, d);
  return p->depth[v] = d;
}

// ---------------------------------------------------------------- layouts
void lower_set_lin(Place *p, const View *v, LayoutId l) {
  LinPair x = {(uint32_t)v->row, (uint32_t)v->col, l, false, false};
  bool acc = l == p->target->gpu.acc;
  if (!acc && !v->frag && p->nlin < MAX_LIN) p->lin[p->nlin++] = x;
  if (acc && v->frag)
    p->lin[v->frag - 1] = (LinPair){~0u, ~0u, l, false, false};
}

void lower_add_box(Place *p, const View *v, LayoutId l) {
  LinPair x = {(uint32_t)v->row, (uint32_t)v->col, l, true, false};
  for (uint32_t i = 0; i < p->nlin; i++) {
    const LinPair *y = &p->lin[i];
    bool same = y->row == x.row && y->col == x.col && y->layout == x.layout;
    if (same && y->box && !y->told) return;
  }
  if (p->nlin < MAX_LIN) p->lin[p->nlin++] = x;
}

static void note_lin(void *data, Op *op) {
  if (op->code == OP_DOT) lower_plan_layout(data, op, true);
}

// Operands of f32 have three parts each, which leaves no room.
static bool has_narrow(const Place *p) {
  for (uint32_t i = 0; i < p->f->params.n; i++) {
    const Type *t = ir_type(p->f, p->f->params.at[i].v);
    if (p->f->params.at[i].role == PR_IN && t->kind == TK_TENSOR &&
        dtype_is_float(t->dtype) && dtype_size(t->dtype) == 2)
      return true;
  }
  return false;
}

// Vectors of the steps of a chunk: rings bring them a chunk ahead.
static bool is_streamed(Place *p, const Op *op) {
  const Type *t = ir_type(p->f, op->res[0]);
  return has_narrow(p) && op->code == OP_LOAD && p->target->gpu.hopper &&
         t->n == 2 && dtype_size(t->dtype) >= 2 && dtype_size(t->dtype) <= 4 &&
         has_steps(p, t) && lower_is_box(p, op->res[0], t->dtype);
}

static void note_box(void *data, Op *op) {
  Place *p = data;
  if (op->code == OP_DOT) lower_plan_boxes(p, op);
  if (op->nres == 1 && is_streamed(p, op)) p->boxed[op->res[0]] = true;
}

// Programs without products: tiles come from memory and go there. What is
// stored of each row may be a value of columns alone.
static void note_map(void *data, Op *op) {
  Place *p = data;
  View w;
  for (uint32_t i = 0; i < op->nres; i++)
    if (ir_type(p->f, op->res[i])->n == 2 &&
        lower_view(p, ir_type(p->f, op->res[i]), NULL, &w))
      lower_set_lin(p, &w, LY_LIN);
  if (op->code != OP_STORE) return;
  Type all = lower_stored(p, op);
  if (all.n == 2 && lower_view(p, &all, NULL, &w)) lower_set_lin(p, &w, LY_LIN);
}

// So what rows and columns have is theirs of such tiles. Rows of no tile lie as
// those of products do, of which a group has as many.
static void map_homes(Place *p) {
  for (uint32_t i = p->nlin; i-- > 0;) {
    p->home[p->lin[i].row] = 2 * (i + 1) + ROLE_ROW;
    p->home[p->lin[i].col] = 2 * (i + 1) + ROLE_COL;
  }
  if (p->tall < 0) return;
  uint32_t *wide = p->wide[p->tall];
  if (p->home[p->tall] < 2 && wide[ROLE_ROW] % p->rows)
    wide[ROLE_ROW] = wide[ROLE_COL] = round_up(wide[ROLE_ROW], p->rows);
}

typedef struct Reduced {
  Value v;
  uint32_t axis;
  bool any, only;
} Reduced;

static void note_reduced(void *data, Op *op) {
  Reduced *r = data;
  const IrAttr *over = ir_attr(op, AT_OVER);
  bool along =
      op->code == OP_REDUCE && over->n == 1 && over->list[0] == r->axis;
  for (uint32_t i = 0; i < op->nargs; i++) {
    if (op->args[i] != r->v) continue;
    r->any = true;
    r->only &= along;
  }
}

// Tables of which only extremes along the columns are wanted: what a thread has
// lies together in memory.
static void note_table(void *data, Op *op) {
  Place *p = data;
  View w;
  if (op->code != OP_LOAD || amd(p) ||
      !lower_view(p, ir_type(p->f, op->res[0]), NULL, &w) || w.col < 0)
    return;
  Reduced r = {.v = op->res[0], .axis = (uint32_t)w.col, .only = true};
  ir_walk(p->f->body, note_reduced, &r);
  if (r.any && r.only) lower_set_lin(p, &w, LY_LIN);
}

// What a loop hands on and what is scanned stays `acc` too.
static void note_acc(void *data, Op *op) {
  Place *p = data;
  if (op->code == OP_DOT) lower_plan_layout(p, op, false);
  bool keep = op->code == OP_FOR || op->code == OP_IF || op->code == OP_SCAN ||
              op->code == OP_TRINV;
  for (uint32_t i = 0; keep && i < op->nres; i++) {
    View w;
    if (lower_view(p, ir_type(p->f, op->res[i]), NULL, &w))
      lower_set_lin(p, &w, p->target->gpu.acc);
  }
}

// ---------------------------------------------------------------- groups
typedef struct Sharing {
  Place *p;
  bool ok;
} Sharing;

static void note_sharing(void *data, Op *op) {
  Sharing *s = data;
  if (op->code == OP_DOT) s->ok &= lower_plan_dot(s->p, op);
  // Control flow is the same for all groups.
  if (op->code == OP_ANY_OF || op->code == OP_ALL_OF)
    s->ok &=
        !type_has_axis(ir_type(s->p->f, op->args[0]), (uint32_t)s->p->lane);
}

// Diagonals of a tile's rows: a group has those of its own.
static void note_band(void *data, Op *op) {
  Place *p = data;
  if (op->code != OP_SKEW) return;
  const Type *x = ir_type(p->f, op->args[0]), *t = ir_type(p->f, op->res[0]);
  uint32_t at = type_has_axis(t, x->axis[0]), axis = x->axis[at];
  bool back = ir_attr_i(op, AT_REVERSE, 0) != 0;
  bool same = (int)x->axis[!at] == p->lane;
  if (p->moves[axis] || !type_has_axis(t, (uint32_t)p->lane)) return;
  p->moves[axis] = same == back ? 1 : -1;
  p->wide[axis][ROLE_COL] -= (p->groups - 1) * p->rows;
}

// Rows are shared by groups where all that they have in common is copied from
// memory, and where they are multiplied at all.
static void plan_groups(Place *p, int64_t tile) {
  Sharing s = {p, p->target->gpu.hopper && p->lane >= 0 && !p->map &&
                      tile % p->rows == 0 && tile <= HW_MOST_GROUPS * p->rows};
  ir_walk(p->f->body, note_sharing, &s);
  if (!s.ok) return;
  p->groups = (uint32_t)(tile / p->rows);
  p->wide[p->lane][ROLE_ROW] = p->rows;
  p->moves[p->lane] = 1;
  ir_walk(p->f->body, note_band, p);
}

typedef struct Rows {
  const Place *p;
  int64_t most, cols;  // of a tile
  bool dots;           // products, those of a matrix and a vector too
  bool products;       // others
} Rows;

static void note_rows(void *data, Op *op) {
  Rows *r = data;
  View v;
  int64_t n;
  bool other = op->code == OP_SCAN || op->code == OP_TRINV;
  r->dots |= op->code == OP_DOT || other;
  r->products |=
      other || (op->code == OP_DOT && ir_type(r->p->f, op->res[0])->n > 1);
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = ir_type(r->p->f, op->res[i]);
    if (t->kind == TK_ELEM && t->n == 2 && lower_view(r->p, t, NULL, &v) &&
        dim_is_const(&r->p->m->dims, v.rsize, &n) && n > r->most)
      r->most = n;
    if (t->kind == TK_ELEM && t->n == 2 && lower_view(r->p, t, NULL, &v) &&
        dim_is_const(&r->p->m->dims, v.csize, &n) && n > r->cols)
      r->cols = n;
  }
}

// Fewer warps where their matrix units would have more rows than a task, more
// where a task without products has a tall tile: as many as it has rows. Steps
// that go one after the other have no more warps than that: what they sum and
// hand round stays in a warp, or in two, without barriers of four.
static uint32_t warps_for(Place *p, int64_t tile) {
  uint32_t n = HW_GROUP_WARPS, most = COST_MAP_WARPS * p->target->gpu.rows;
  Rows r = {.p = p};
  if (!amd(p) && p->lane < 0) ir_walk(p->f->body, note_rows, &r);
  if (!amd(p) && p->lane < 0 && !r.products && r.most && ir_has_steps(p->f))
    n = 1;
  while (!r.products && n < HW_GROUP_WARPS && n * p->target->gpu.rows < r.most)
    n *= 2;
  while (!r.dots && n * p->target->gpu.rows < r.most && r.most <= most) n *= 2;
  p->paired = n > HW_GROUP_WARPS && n <= COST_PAIRED_WARPS &&
              r.cols <= COST_PAIRED_COLUMNS;
  while (amd(p) && n > 1 && tile > 1 && tile < n * p->target->gpu.rows &&
         tile % p->target->gpu.rows == 0)
    n /= 2;
  return n;
}

static void join_widths(uint32_t *x, uint32_t *y) {
  for (int r = 0; r < 2; r++) x[r] = y[r] = x[r] > y[r] ? x[r] : y[r];
}

// A tile whose axis gets another name stays as it is: both are padded alike.
static void note_renamed(void *data, Op *op) {
  Place *p = data;
  if (op->code != OP_RENAMED) return;
  const Type *x = ir_type(p->f, op->args[0]), *y = ir_type(p->f, op->res[0]);
  uint32_t from = 0, to = 0;
  while (type_has_axis(y, x->axis[from])) from++;
  while (type_has_axis(x, y->axis[to])) to++;
  join_widths(p->wide[x->axis[from]], p->wide[y->axis[to]]);
}

// Groups have the parts of an axis, if the tasks' rows are those of one group.
static void note_part(void *data, Op *op) {
  Place *p = data;
  int64_t n = 0;
  if (op->code != OP_ORIGIN || !ir_attr_i(op, AT_EACH, 0) || p->map) return;
  uint32_t a = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  dim_is_const(&p->m->dims, p->f->axes.at[a].extent, &n);
  if (!p->target->gpu.hopper || p->lane < 0 ||
      p->wide[p->lane][ROLE_ROW] != p->rows || n < 2 || n > HW_MOST_GROUPS)
    return;
  p->part = (int)a;
  p->groups = (uint32_t)n;
}

// Threads of which each has what others have too: of a tile as l has it, of a
// group.
static uint32_t copies(const Place *p, const LinPair *x, LayoutId l) {
  FragMap m;
  uint32_t n = 1, threads = p->warps * p->target->gpu.wave;
  Type t = type_frag(DT_F32, p->wide[x->row][ROLE_ROW],
                     p->wide[x->col][ROLE_COL], l);
  if (frag_map(&t, threads, &m)) return UINT32_MAX;
  for (uint32_t i = 0; i < m.nthr; i++)
    if (m.thr[i].axis == AXIS_NONE) n *= m.thr[i].size;
  return n;
}

// A tile of few rows, whose columns have few chunks of 8 side by side, as 38 of
// 304, is in each thread as often as in all others of a row's. In smaller
// chunks, which are loaded no other way beside products, it is in fewer.
static void narrow_chunks(Place *p) {
  static const LayoutId less[] = {LY_LIN4, LY_LIN2};
  for (uint32_t i = 0; i < p->nlin; i++) {
    LinPair *x = &p->lin[i];
    if (x->layout != LY_LIN || x->box || x->told) continue;
    for (uint32_t k = 0; k < sizeof less / sizeof *less; k++)
      if (copies(p, x, less[k]) < copies(p, x, x->layout)) x->layout = less[k];
  }
}

static void note_taken(void *data, Op *op) {
  if (op->code == OP_DOT) lower_plan_taken(data, op);
}

void lower_plan(Place *p) {
  int64_t tile = 1;
  p->lane = p->part = -1;
  p->cols = p->target->gpu.cols;
  p->groups = 1;
  for (uint32_t i = 0; i < p->f->grid.n; i++)
    if (p->f->grid.at[i].tile > 1) {
      p->lane = (int)p->f->grid.at[i].axis;
      tile = p->f->grid.at[i].tile;
    }
  plan_order(p);
  p->warps = warps_for(p, tile);
  p->rows = p->warps * p->target->gpu.rows;
  plan_map(p);
  plan_beside(p);
  plan_sums(p);
  plan_sizes(p);
  if (p->failed) return;
  ir_walk(p->f->body, note_part, p);
  ir_walk(p->f->body, note_taken, p);
  if (p->part < 0) plan_groups(p, tile);
  ir_walk(p->f->body, note_renamed, p);
  ir_walk(p->f->body, note_lin, p);
  if (p->map) {
    ir_walk(p->f->body, note_map, p);
    map_homes(p);
  }
  ir_walk(p->f->body, note_table, p);
  if (!p->map) ir_walk(p->f->body, note_acc, p);
  if (!p->map && !amd(p)) narrow_chunks(p);
  ir_walk(p->f->body, note_box, p);
  range_init(&p->ranges, p->f, p->arena);
  ir_walk(p->f->body, seed_op, p);
}
