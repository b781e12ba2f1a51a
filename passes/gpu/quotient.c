// Quotients and remainders of tiles by numbers that are known at run time.
//
//   %k = add(%k0, %j)                  once a step, of numbers:
//   %y = floordiv(%k, %n)        ->      u = k0 // n, r = k0 - u n
//                                      for each column:
//                                        u + ((r + j) 2^20/n >> 20)
//
// A tile's coordinates are a number and less than MAX_SMALL: the number is
// divided, once, and what is small by a product. A sum of what varies with rows
// and of what varies with columns is two quotients, added, and 1 where the
// remainders add up to the divisor. x % n is x - x // n * n, which shares all
// of it. A divisor -n gives -1 - (x - 1) // n, and what is left is n - 1 less;
// 0 is 1.
//
// Dividends below FAR take 32 bits, whatever the divisor's: one beyond FAR
// gives 0 or -1, as FAR does.
#include "passes/gpu/gpu.h"

#include <math.h>

// Of a reciprocal: exact for products of 2 MAX_SMALL and MAX_SMALL.
enum { MAX_TERMS = 8, MAX_SMALL = 512, MAX_BITS = 20, MAX_FACTOR = 1 << 20 };
static const double FAR = 0x1p31 - 2, FAR_64 = 0x1p62;

// c times v, which is 0 for 1.
typedef struct Term {
  Value v;
  int64_t c;
} Term;

// Terms that vary with one axis, or with none.
typedef struct Part {
  Term term[MAX_TERMS];
  uint32_t n;
  int axis;      // -1: none
  int64_t step;  // times the coordinate
  Dim size;
} Part;

typedef struct Quotient {
  Place *p;
  const Op *op;
  const View *v;
  Role role;
  DType dt;
  Part rest, part[2];  // the terms without an axis; rows', columns'
  bool failed;
  bool positive, cut;  // the divisor is; it may be beyond FAR
  // The divisor; in size, at least 1; where it is negative, else 0: true, 1,
  // n - 1.
  Value by, n, neg, one, off;
  Builder *b;
} Quotient;

// A quotient and what is left: 0 <= left < n.
typedef struct Divided {
  Value q, r;
} Divided;

// ---------------------------------------------------------------- terms
static void put(Part *part, Value v, int64_t c, bool *failed) {
  if (part->n == MAX_TERMS) *failed = true;
  else part->term[part->n++] = (Term){v, c};
}

static void leaf(Quotient *x, Value v, int64_t c) {
  const Type *t = ir_type(x->p->f, v);
  if (t->n == 0) put(&x->rest, v, c, &x->failed);
  else if (t->n == 2) x->failed = true;
  else put(&x->part[(int)t->axis[0] != x->v->row], v, c, &x->failed);
}

static bool widens(const Func *f, const Op *op) {
  if (op->code != OP_CAST) return false;
  DType from = ir_type(f, op->args[0])->dtype;
  return from != DT_BOOL && !dtype_is_float(from) &&
         ir_type(f, op->res[0])->dtype == DT_I64;
}

static void collect(Quotient *x, Value v, int64_t c) {
  const Func *f = x->p->f;
  const Op *op = ir_def(f, v);
  double k;
  OpCode code = op ? op->code : OP_LOAD;
  if (code == OP_CONST && ir_const_value(f, v, &k) && fabs(k) < MAX_FACTOR) {
    put(&x->rest, 0, c * (int64_t)k, &x->failed);
  } else if (code == OP_IOTA) {
    const Type *t = ir_type(f, v);
    Part *part = &x->part[(int)t->axis[0] != x->v->row];
    part->step += c;
    part->size = t->size[0];
  } else if (code == OP_ADD || code == OP_SUB) {
    collect(x, op->args[0], c);
    collect(x, op->args[1], code == OP_ADD ? c : -c);
  } else if (code == OP_MUL && ir_const_value(f, op->args[1], &k) &&
             fabs(k * (double)c) < MAX_FACTOR) {
    collect(x, op->args[0], c * (int64_t)k);
  } else if (op && widens(f, op)) {
    collect(x, op->args[0], c);
  } else {
    leaf(x, v, c);
  }
}

// The last coordinate of a part, or -1: of no known number.
static int64_t last_of(const Quotient *x, const Part *part) {
  int64_t n = 0;
  if (!part->step) return 0;
  return dim_is_const(&x->p->m->dims, part->size, &n) ? n - 1 : -1;
}

static Range range_of_part(const Quotient *x, const Part *part) {
  double last = (double)part->step * (double)last_of(x, part);
  Range all = {fmin(last, 0), fmax(last, 0)};
  for (uint32_t i = 0; i < part->n; i++) {
    double c = (double)part->term[i].c;
    Range r = {1, 1};
    if (part->term[i].v) r = range_of(&x->p->ranges, part->term[i].v);
    all.lo += c < 0 ? c * r.hi : c * r.lo;
    all.hi += c < 0 ? c * r.lo : c * r.hi;
  }
  return all;
}

static bool is_near(Range r) {
  return r.lo >= -FAR && r.hi <= FAR;
}

static int depth_of(const Quotient *x, const Part *part) {
  int d = lower_depth(x->p, x->op->args[1]);
  for (uint32_t i = 0; i < part->n; i++) {
    int t = part->term[i].v ? lower_depth(x->p, part->term[i].v) : 0;
    if (t > d) d = t;
  }
  return d;
}

// Terms without an axis go to the rows if they are known in front of loops,
// else to the columns; to the only part if there is one.
static void share_rest(Quotient *x) {
  bool one = x->part[0].axis < 0 || x->part[1].axis < 0;
  int only = x->part[0].axis < 0;
  for (uint32_t i = 0; i < x->rest.n; i++) {
    Term t = x->rest.term[i];
    int at = t.v && lower_depth(x->p, t.v) > 0;
    put(&x->part[one ? only : at], t.v, t.c, &x->failed);
  }
}

// ---------------------------------------------------------------- divisor
static Value num(Builder *b, DType dt, int64_t k) {
  return ir_const_i(b, dt, k);
}

// The divisor as |n| >= 1, below FAR where the dividend is.
static void divisor(Quotient *x) {
  Place *p = x->p;
  Range r = range_of(&p->ranges, x->op->args[1]);
  double far = x->dt == DT_I32 ? FAR : FAR_64;
  x->by = lower_scalar(p, x->op->args[1]);
  Builder *b = lower_at(p, lower_depth(p, x->op->args[1]));
  DType own = lower_dtype(b, x->by);
  Value n = own == DT_I32 ? lower_cast(b, x->dt, x->by) : x->by;
  if (own != DT_I32 && own != DT_I64) n = lower_cast(b, x->dt, n);
  DType dt = lower_dtype(b, n);
  x->cut = r.lo < -far || r.hi > far;
  if (r.hi > far) n = ir_2(b, OP_MIN, n, num(b, dt, (int64_t)far));
  if (r.lo < -far) n = ir_2(b, OP_MAX, n, num(b, dt, -(int64_t)far));
  n = lower_cast(b, x->dt, n);
  x->positive = r.lo >= 0;
  Value zero = num(b, x->dt, 0), one = num(b, x->dt, 1);
  x->neg = ir_2(b, OP_LT, n, zero);
  if (!x->positive) n = ir_2(b, OP_MAX, n, ir_2(b, OP_SUB, zero, n));
  if (r.lo < 1) n = ir_2(b, OP_MAX, n, one);
  x->n = n;
  x->one = ir_3(b, OP_SELECT, x->neg, one, zero);
  x->off = ir_3(b, OP_SELECT, x->neg, ir_2(b, OP_SUB, n, one), zero);
}

// ---------------------------------------------------------------- parts
static Value plus(Builder *b, Value sum, Value y) {
  return sum ? lower_2(b, OP_ADD, sum, y) : y;
}

// The sum of a part's terms, of those with an axis in `role`.
static Value sum_of(Quotient *x, const Part *part, Builder *b, Role role) {
  Value sum = 0;
  for (uint32_t i = 0; i < part->n; i++) {
    Term t = part->term[i];
    Value y = t.v ? lower_cast(b, x->dt, lower_eval(x->p, t.v, role))
                  : num(b, x->dt, 1);
    if (x->p->failed) return 0;
    if (t.c != 1) y = lower_2(b, OP_MUL, y, num(b, x->dt, t.c));
    sum = plus(b, sum, y);
  }
  return sum ? sum : num(b, x->dt, 0);
}

static Divided divide(const Quotient *x, Builder *b, Value y) {
  Value q = lower_2(b, OP_FLOORDIV, y, x->n);
  return (Divided){q, lower_2(b, OP_SUB, y, lower_2(b, OP_MUL, q, x->n))};
}

// (first + small) // n of numbers `small` in 0 .. MAX_SMALL. A divisor above
// that is as good as MAX_SMALL, so many in front of the next multiple of it.
static Divided divide_small(const Quotient *x, Builder *b, Value first,
                            Value small) {
  Value whole = ir_2(b, OP_FLOORDIV, first, x->n),
        most = num(b, x->dt, MAX_SMALL);
  Value n = ir_2(b, OP_MIN, x->n, most), next = num(b, x->dt, 1);
  next = ir_2(b, OP_MUL, ir_2(b, OP_ADD, whole, next), x->n);
  Value r = ir_2(b, OP_SUB, n, ir_2(b, OP_SUB, next, first));
  r = ir_2(b, OP_MAX, r, num(b, x->dt, 0));
  r = lower_cast(b, DT_I32, r);
  Value one = num(b, DT_I32, 1 << MAX_BITS);
  Value by = ir_2(b, OP_FLOORDIV, one, lower_cast(b, DT_I32, n));
  by = ir_2(b, OP_ADD, by, num(b, DT_I32, 1));
  Value q = lower_2(b, OP_ADD, small, r);
  q = lower_2(b, OP_FLOORDIV, lower_2(b, OP_MUL, q, by), one);
  q = lower_2(b, OP_ADD, lower_cast(b, x->dt, q), whole);
  Value left = lower_2(b, OP_ADD, lower_cast(b, x->dt, small), first);
  return (Divided){q, lower_2(b, OP_SUB, left, lower_2(b, OP_MUL, q, x->n))};
}

static Value coordinate(Quotient *x, const Part *part, Builder *b, Role r) {
  return lower_coord(x->p, b, (uint32_t)part->axis, r);
}

static bool has_axis(const Quotient *x, const Part *part) {
  for (uint32_t i = 0; i < part->n; i++)
    if (part->term[i].v && ir_type(x->p->f, part->term[i].v)->n) return true;
  return false;
}

static Divided divide_part(Quotient *x, const Part *part, bool first) {
  Role role =
      x->v->col < 0
          ? x->role
          : 2 * x->v->frag + (part->axis == x->v->row ? ROLE_ROW : ROLE_COL);
  int depth = depth_of(x, part);
  Builder *b = lower_at(x->p, depth);
  int64_t last = last_of(x, part), c = part->step;
  bool often = depth > 0 || x->dt == DT_I64;
  bool split = often && c && !has_axis(x, part) && last >= 0 &&
               (c < 0 ? -c : c) * last < MAX_SMALL;
  Value sum = sum_of(x, part, b, role);
  if (x->p->failed) return (Divided){0, 0};
  if (first) sum = lower_2(b, OP_SUB, sum, x->one);
  if (!c) return divide(x, b, sum);
  Value j = coordinate(x, part, b, role);
  if (!split) {
    Value factor = num(b, x->dt, c);
    Value y = lower_2(b, OP_MUL, lower_cast(b, x->dt, j), factor);
    return divide(x, b, lower_2(b, OP_ADD, y, sum));
  }
  if (c < 0) {  // from the last one on
    sum = ir_2(b, OP_ADD, sum, num(b, x->dt, c * last));
    j = lower_2(b, OP_SUB, num(b, DT_I32, last), j);
    c = -c;
  }
  return divide_small(x, b, sum, lower_2(b, OP_MUL, j, num(b, DT_I32, c)));
}

// ---------------------------------------------------------------- tiles
static Type type_of(const Quotient *x, DType dt) {
  if (x->v->col >= 0) return lower_type(x->p, dt, x->v);
  return lower_slice_type(x->p, dt, (uint32_t)x->v->row, x->role);
}

// Both parts' quotient and remainder: one more, and n less, where the
// remainders reach n.
static Divided join(Quotient *x, Divided a, Divided c) {
  Builder *b = x->b;
  Type t = type_of(x, x->dt);
  Value least = lower_2(b, OP_SUB, x->n, a.r);
  Value rest = lower_as(b, c.r, t);
  Value more = ir_2(b, OP_LE, lower_as(b, least, t), rest);
  Value q = lower_2(b, OP_ADD, a.q, num(b, x->dt, 1));
  Value r = lower_2(b, OP_SUB, a.r, x->n);
  Value aq = lower_as(b, a.q, t);
  q = ir_3(b, OP_SELECT, more, lower_as(b, q, t), aq);
  Value ar = lower_as(b, a.r, t);
  r = ir_3(b, OP_SELECT, more, lower_as(b, r, t), ar);
  return (Divided){ir_2(b, OP_ADD, q, lower_as(b, c.q, t)),
                   ir_2(b, OP_ADD, r, lower_as(b, c.r, t))};
}

// Sums of other terms than one for rows and one for columns: as they are.
static Divided divide_whole(Quotient *x) {
  const Type *t = ir_type(x->p->f, x->op->args[0]);
  Role r = x->v->col < 0 ? x->role : lower_role(x->v, t);
  Value y = lower_eval(x->p, x->op->args[0], r);
  if (x->p->failed) return (Divided){0, 0};
  y = lower_cast(x->b, x->dt, y);
  return divide(x, x->b, lower_2(x->b, OP_SUB, y, x->one));
}

static Divided divide_all(Quotient *x) {
  if (x->failed) return divide_whole(x);
  bool row = x->part[0].axis >= 0, col = x->part[1].axis >= 0;
  Divided a = {0, 0}, c = {0, 0};
  if (row) a = divide_part(x, &x->part[0], true);
  if (col && !x->p->failed) c = divide_part(x, &x->part[1], !row);
  if (x->p->failed) return a;
  return row && col ? join(x, a, c) : row ? a : c;
}

// Of the divisor itself: its sign, and what was cut of it, once where the
// quotient is -1.
static Value result(Quotient *x, Divided y, DType dt) {
  Builder *b = x->b;
  Value zero = num(b, x->dt, 0), q = y.q;
  bool divides = x->op->code == OP_FLOORDIV;
  Range a = range_of(&x->p->ranges, x->op->args[0]);
  bool cut = !divides && x->cut && !(x->positive && a.lo >= 0);
  if (!x->positive && (divides || cut))
    q = lower_select(b, x->neg, lower_2(b, OP_SUB, num(b, x->dt, -1), q), q);
  if (divides) return lower_cast(b, dt, q);
  Value r = x->positive ? y.r : lower_2(b, OP_SUB, y.r, x->off);
  if (!cut) return lower_cast(b, dt, r);
  DType wide = dt == DT_I32 ? DT_I32 : DT_I64;
  Value by = lower_cast(b, wide, x->by), none = num(b, wide, 0);
  Value used = lower_select(b, x->neg, ir_2(b, OP_SUB, zero, x->n), x->n);
  Value more = ir_2(b, OP_SUB, by, lower_cast(b, wide, used));
  more = lower_select(b, lower_2(b, OP_LT, q, zero), more, none);
  return lower_cast(b, dt, lower_2(b, OP_ADD, lower_cast(b, wide, r), more));
}

// A row's or a column's, in front of all loops, in 32 bits: one division.
static bool is_short(const Quotient *x) {
  return x->v->col < 0 && lower_depth(x->p, x->op->res[0]) == 0 &&
         lower_dtype_of(x->p, x->op->args[0]) == DT_I32 &&
         lower_dtype_of(x->p, x->op->args[1]) == DT_I32;
}

// By constants only where the product that takes their place has 64 bits.
static bool is_split(const Quotient *x) {
  const Func *f = x->p->f;
  double k;
  const Op *op = x->op;
  if ((op->code != OP_FLOORDIV && op->code != OP_MOD) || x->v->row < 0 ||
      ir_type(f, op->args[1])->n)
    return false;
  if (!ir_const_value(f, op->args[1], &k)) return !is_short(x);
  bool shift = ((int64_t)k & ((int64_t)k - 1)) == 0;
  return k > 0 && k < FAR && !shift &&
         lower_dtype_of(x->p, op->args[0]) == DT_I64;
}

bool lower_quotient(Place *p, const Op *op, const View *v, Role r, Value *y) {
  Quotient x = {.p = p, .op = op, .v = v, .role = r};
  const Type *t = ir_type(p->f, op->args[0]);
  if (!is_split(&x)) return false;
  x.part[0].axis = x.part[1].axis = x.rest.axis = -1;
  for (uint32_t i = 0; i < t->n; i++) {
    int at = (int)t->axis[i] != v->row;
    x.part[at].axis = (int)t->axis[i];
  }
  collect(&x, op->args[0], 1);
  if (!x.failed) share_rest(&x);
  bool near = is_near(range_of(&p->ranges, op->args[0]));
  for (int i = 0; i < 2 && !x.failed; i++)
    near &= is_near(range_of_part(&x, &x.part[i]));
  x.dt = near ? DT_I32 : DT_I64;
  int depth = lower_depth(p, op->res[0]);
  divisor(&x);
  x.b = lower_at(p, depth);
  x.b->span = op->span;
  Divided d = {0, 0};
  if (!p->failed) d = divide_all(&x);
  if ((*y = p->failed ? 0 : result(&x, d, lower_dtype_of(p, op->res[0]))))
    *y = lower_as(x.b, *y, type_of(&x, lower_dtype(x.b, *y)));
  return true;
}
