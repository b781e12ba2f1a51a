// mask_bounds: stream -> stream. Gives each `pass` with a domain the loop
// bounds and the tile test that follow from its predicate.
//
//   before  kreduce() {axis = k} ({ %p = le(%k, %q) yield(%p) }, ..)
//   after   kreduce() {axis = k, box = [q]} ({ .. }, .., {
//             ^(%lo: i64, %hi: i64):        # rows lo .. hi
//             yield(0, %hi + 1, 0, %lo + 1) # any keys, unmasked keys
//           })
//
// Tier 0: the predicate in disjunctive form, each atom affine in the key with
// anything interval-bounded beside it, gives closed-form key intervals. Tier
// 1: other atoms over coordinates and integer tables are judged per tile in
// Kleene logic on intervals (`classify`). Tier 2: what neither understands
// marks the pass `sparse`, and tiles are tested by evaluating the predicate.
// A list that tells a step's keys is a table where the box has one row of it;
// where tasks are few (PassOpt.brief) it is not asked either.
// Of few rows (PassOpt.few) memory that decides no more keys than there are
// rows is not asked: those tiles are masked. Nor is on sm_90a what a phase
// before made with a number for each key, as how often each row chose a block:
// a test reads all that the mask does, and between tests there is no pipeline
// of products. All of it is sound: never a needed key outside `any`, never a
// masked key in `full`. Needs: level stream. Tests: test/passes/mask_bounds.
#include "passes/pass.h"
#include "passes/support/lane.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BOX = 16, MAX_CONJ = 4, MAX_ATOMS = 16, MAX_TERMS = 6 };

// Integer expressions as interval code in the region being built.
typedef struct Interval {
  Value lo, hi;
  bool ok;
} Interval;

// key coefficient * k + sum of coefficients * opaque terms + constant.
typedef struct Linear {
  int64_t key, konst;
  uint32_t n;
  int64_t coef[MAX_TERMS];
  Value term[MAX_TERMS];
  bool ok;
} Linear;

typedef struct Conj {
  Value atom[MAX_ATOMS];
  bool neg[MAX_ATOMS];
  uint32_t n;
} Conj;

typedef struct Masker {
  Ctx *cx;
  Func *f;
  Op *pass;
  uint32_t key;
  Builder b;     // in the region being made
  ValueMap map;  // values of the domain region -> copies
  uint32_t nbox;
  uint32_t box[MAX_BOX];           // axes
  Value lo[MAX_BOX], hi[MAX_BOX];  // arguments of the region, per box axis
  Value klo, khi;                  // key range (classify), or 0
  Value alone;  // the test holds where the box has one such row; 0: anywhere
} Masker;

// ---------------------------------------------------------------- intervals
static bool varies(const Masker *m, Value v) {
  const Type *t = ir_type(m->f, v);
  if (t->kind != TK_ELEM) return false;
  for (uint32_t i = 0; i < m->nbox; i++)
    if (type_has_axis(t, m->box[i])) return true;
  return type_has_axis(t, m->key);
}

// Copies an invariant value of the domain region into the new region.
static Value copy(Masker *m, Value v) {
  Op *def = ir_def(m->f, v);
  if (v < m->map.n && m->map.to[v]) return m->map.to[v];
  if (!def || def->parent != m->pass->regions[0]) return v;
  for (uint32_t i = 0; i < def->nargs; i++)
    vmap_put(&m->map, def->args[i], copy(m, def->args[i]));
  ir_clone(&m->b, m->f, def, &m->map, NULL);
  return vmap_get(&m->map, v);
}

static Value op2(Masker *m, OpCode c, Value x, Value y) {
  return ir_2(&m->b, c, x, y);
}
static Value pick(Masker *m, Value c, Value x, Value y) {
  return ir_3(&m->b, OP_SELECT, c, x, y);
}

static const Interval unknown = {0, 0, false};

static Interval interval(Masker *m, Value v);

static Interval index_interval(Masker *m, const Op *op) {
  uint32_t a = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  if (a == m->key) return m->klo ? (Interval){m->klo, m->khi, true} : unknown;
  for (uint32_t i = 0; i < m->nbox; i++)
    if (m->box[i] == a) return (Interval){m->lo[i], m->hi[i], true};
  return unknown;
}

static bool positive_const(const Masker *m, Value v, int64_t *c) {
  return ir_const_whole(m->f, v, c) && *c > 0;
}

// A divisor that is positive and the same everywhere, at the builder; else 0.
static Value divisor(Masker *m, Value v) {
  int64_t lo, hi;
  const Op *op = ir_def(m->f, v);
  if (positive_const(m, v, &lo)) return ir_int(&m->b, lo);
  if (!op || op->code != OP_DIM) return 0;
  Dim d = (Dim)ir_attr_i(op, AT_DIM, 0);
  dim_bounds(&m->f->mod->dims, d, &lo, &hi);
  return lo > 0 ? copy(m, v) : 0;
}

static Interval mod_interval(Masker *m, Interval x, Value n) {
  Value last = op2(m, OP_FLOORDIV, x.hi, n);
  Value same = op2(m, OP_EQ, op2(m, OP_FLOORDIV, x.lo, n), last);
  Interval r = {.ok = true};
  Value zero = ir_int(&m->b, 0);
  r.lo = pick(m, same, op2(m, OP_MOD, x.lo, n), zero);
  Value most = op2(m, OP_SUB, n, ir_int(&m->b, 1));
  r.hi = pick(m, same, op2(m, OP_MOD, x.hi, n), most);
  return r;
}

static Interval abs_interval(Masker *m, Interval x) {
  Value zero = ir_int(&m->b, 0);
  Value up = op2(m, OP_MAX, x.lo, op2(m, OP_SUB, zero, x.hi));
  Interval r = {.ok = true};
  r.lo = op2(m, OP_MAX, up, zero);
  r.hi = op2(m, OP_MAX, op2(m, OP_SUB, zero, x.lo), x.hi);
  return r;
}

static Interval scaled(Masker *m, Interval x, int64_t c) {
  Value n = ir_int(&m->b, c);
  Value a = op2(m, OP_MUL, x.lo, n), b = op2(m, OP_MUL, x.hi, n);
  return c >= 0 ? (Interval){a, b, true} : (Interval){b, a, true};
}

static bool reads(const Masker *m, Value v, Value tensor) {
  const Op *op = ir_def(m->f, v);
  if (!op || (op->code != OP_LOAD && !(op_info(op->code)->flags & OPF_ELEM)))
    return false;
  if (op->code == OP_LOAD && op->args[0] == tensor) return true;
  bool any = false;
  for (uint32_t i = 0; i < op->nargs; i++) any |= reads(m, op->args[i], tensor);
  return any;
}

// Is the table a list: do its entries say where a step's keys lie? Tiles have
// one row of such a list then.
static bool is_list(const Masker *m, const Op *load) {
  const Region *step = m->pass->regions[1];
  bool any = false;
  for (const Op *op = step->first; op; op = op->next)
    for (uint32_t i = 1; op->code == OP_LOAD && i < op->nargs; i++)
      any |= reads(m, op->args[i], load->args[0]);
  return any;
}

// The row of a list that is read at index v, where the box has one of them.
static Value only_row(Masker *m, Value v) {
  Interval x = interval(m, v);
  if (!x.ok || type_has_axis(ir_type(m->f, v), m->key)) return 0;
  Value one = op2(m, OP_EQ, x.lo, x.hi);
  m->alone = m->alone ? op2(m, OP_AND, m->alone, one) : one;
  return x.lo;
}

// A table read along its last axis only: smallest and largest entry.
static Interval load_interval(Masker *m, const Op *op) {
  Interval x = interval(m, op->args[op->nargs - 1]);
  if (!x.ok || op->nargs < 2) return unknown;
  Value args[MAX_AXES + 2] = {op->args[0], x.lo, x.hi};
  uint32_t n = 3;
  for (uint32_t i = 1; i + 1 < op->nargs; i++) {
    bool row = varies(m, op->args[i]);
    if (row && (!m->klo || !is_list(m, op))) return unknown;
    args[n] = row ? only_row(m, op->args[i]) : copy(m, op->args[i]);
    if (!args[n++]) return unknown;
  }
  Type t = type_scalar(DT_I64);
  for (uint32_t i = 3; i < n; i++)
    t = type_union(&t, ir_type(m->f, args[i]), DT_I64);
  Interval r = {.ok = true};
  r.lo = ir_op(&m->b, OP_SPAN_MIN, args, n, NULL, 0, &t, 1, 0)->res[0];
  r.hi = ir_op(&m->b, OP_SPAN_MAX, args, n, NULL, 0, &t, 1, 0)->res[0];
  return r;
}

// x op n for an n of any sign that is the same everywhere: op is monotone.
static Interval by_ends(Masker *m, OpCode c, Interval x, Value n) {
  if (ir_type(m->f, n)->dtype != DT_I64) n = ir_cast(&m->b, DT_I64, n);
  Value a = op2(m, c, x.lo, n), b = op2(m, c, x.hi, n);
  return (Interval){op2(m, OP_MIN, a, b), op2(m, OP_MAX, a, b), true};
}

static Interval product_interval(Masker *m, const Op *op, Interval x) {
  int64_t d;
  if (ir_const_whole(m->f, op->args[1], &d) && x.ok) return scaled(m, x, d);
  Interval y = interval(m, op->args[1]);
  if (ir_const_whole(m->f, op->args[0], &d) && y.ok) return scaled(m, y, d);
  if (!x.ok || !y.ok) return unknown;
  if (!varies(m, op->args[1])) return by_ends(m, OP_MUL, x, y.lo);
  if (!varies(m, op->args[0])) return by_ends(m, OP_MUL, y, x.lo);
  return unknown;
}

static Interval arith_interval(Masker *m, const Op *op) {
  Interval x = interval(m, op->args[0]);
  if (op->code == OP_NEG && x.ok) return scaled(m, x, -1);
  if (op->code == OP_ABS && x.ok) return abs_interval(m, x);
  if (op->nargs < 2) return unknown;
  if (op->code == OP_FLOORDIV || op->code == OP_MOD) {
    Value n = x.ok ? divisor(m, op->args[1]) : 0;
    if (!n && x.ok && op->code == OP_FLOORDIV && !varies(m, op->args[1]))
      return by_ends(m, op->code, x, copy(m, op->args[1]));
    if (!n) return unknown;
    if (op->code == OP_MOD) return mod_interval(m, x, n);
    return (Interval){op2(m, OP_FLOORDIV, x.lo, n),
                      op2(m, OP_FLOORDIV, x.hi, n), true};
  }
  if (op->code == OP_MUL) return product_interval(m, op, x);
  Interval y = interval(m, op->args[1]);
  if (!x.ok || !y.ok) return unknown;
  OpCode c2 = op->code;
  if (c2 == OP_SUB)
    return (Interval){op2(m, OP_SUB, x.lo, y.hi), op2(m, OP_SUB, x.hi, y.lo),
                      true};
  return (Interval){op2(m, c2, x.lo, y.lo), op2(m, c2, x.hi, y.hi), true};
}

static Interval interval(Masker *m, Value v) {
  if (!varies(m, v)) {
    Value c = copy(m, v);
    if (ir_type(m->f, c)->dtype != DT_I64) c = ir_cast(&m->b, DT_I64, c);
    return (Interval){c, c, true};
  }
  const Op *op = ir_def(m->f, v);
  if (!op || !(dtype_kind(ir_type(m->f, v)->dtype) == 'i')) return unknown;
  switch (op->code) {
  case OP_INDEX: return index_interval(m, op);
  case OP_LOAD: return load_interval(m, op);
  case OP_CAST:
    return dtype_kind(ir_type(m->f, op->args[0])->dtype) == 'i'
               ? interval(m, op->args[0])
               : unknown;
  case OP_ADD:
  case OP_SUB:
  case OP_MUL:
  case OP_NEG:
  case OP_ABS:
  case OP_FLOORDIV:
  case OP_MOD:
  case OP_MIN:
  case OP_MAX: return arith_interval(m, op);
  case OP_SELECT: {
    Interval a = interval(m, op->args[1]), b = interval(m, op->args[2]);
    if (!a.ok || !b.ok) return unknown;
    if (!varies(m, op->args[0])) {
      Value c = copy(m, op->args[0]);
      return (Interval){pick(m, c, a.lo, b.lo), pick(m, c, a.hi, b.hi), true};
    }
    return (Interval){op2(m, OP_MIN, a.lo, b.lo), op2(m, OP_MAX, a.hi, b.hi),
                      true};
  }
  default: return unknown;
  }
}

// ---------------------------------------------------------------- affine forms
static bool is_int(const Masker *m, Value v) {
  return dtype_kind(ir_type(m->f, v)->dtype) == 'i';
}

static void add_term(Linear *a, Value v, int64_t c) {
  for (uint32_t i = 0; i < a->n; i++)
    if (a->term[i] == v) {
      a->coef[i] += c;
      return;
    }
  if (a->n == MAX_TERMS) a->ok = false;
  if (!a->ok) return;
  a->term[a->n] = v;
  a->coef[a->n++] = c;
}

// a += c * v. Coordinates are terms by axis: index ops of one axis are one.
static void linear(Masker *m, Linear *a, Value v, int64_t c) {
  const Op *op = ir_def(m->f, v);
  int64_t d;
  if (!a->ok || c > INT32_MAX || c < INT32_MIN) {
    a->ok = false;
  } else if (ir_const_whole(m->f, v, &d)) {
    a->ok = llabs(d) <= INT32_MAX && llabs(a->konst) < INT64_MAX / 4;
    if (a->ok) a->konst += c * d;
  } else if (op && op->code == OP_ADD) {
    linear(m, a, op->args[0], c);
    linear(m, a, op->args[1], c);
  } else if (op && op->code == OP_SUB) {
    linear(m, a, op->args[0], c);
    linear(m, a, op->args[1], -c);
  } else if (op && op->code == OP_NEG) {
    linear(m, a, op->args[0], -c);
  } else if (op && op->code == OP_MUL &&
             ir_const_whole(m->f, op->args[1], &d)) {
    a->ok = llabs(d) <= INT32_MAX;
    if (a->ok) linear(m, a, op->args[0], c * d);
  } else if (op && op->code == OP_MUL &&
             ir_const_whole(m->f, op->args[0], &d)) {
    a->ok = llabs(d) <= INT32_MAX;
    if (a->ok) linear(m, a, op->args[1], c * d);
  } else if (op && op->code == OP_INDEX &&
             ir_attr_i(op, AT_AXIS, -1) == (int64_t)m->key) {
    a->key += c;
  } else {
    add_term(a, v, c);
  }
}

// x - y; terms of the same coordinate are merged.
static Linear difference(Masker *m, Value x, Value y) {
  Linear a = {.ok = is_int(m, x) && is_int(m, y)};
  if (!a.ok) return a;
  linear(m, &a, x, 1);
  linear(m, &a, y, -1);
  for (uint32_t i = 0; i < a.n; i++) {
    const Op *p = ir_def(m->f, a.term[i]);
    for (uint32_t j = i + 1; j < a.n && p && p->code == OP_INDEX; j++) {
      const Op *q = ir_def(m->f, a.term[j]);
      if (!q || q->code != OP_INDEX ||
          ir_attr_i(p, AT_AXIS, -1) != ir_attr_i(q, AT_AXIS, -2))
        continue;
      a.coef[i] += a.coef[j];
      a.coef[j] = 0;
    }
  }
  return a;
}

// Interval of the part of a without the key.
static Interval rest_interval(Masker *m, const Linear *a) {
  Value k = ir_int(&m->b, a->konst);
  Interval r = {k, k, a->ok};
  for (uint32_t i = 0; i < a->n && r.ok; i++) {
    if (!a->coef[i]) continue;
    Interval t = interval(m, a->term[i]);
    if (!t.ok) return unknown;
    if (a->coef[i] != 1) t = scaled(m, t, a->coef[i]);
    r.lo = op2(m, OP_ADD, r.lo, t.lo);
    r.hi = op2(m, OP_ADD, r.hi, t.hi);
  }
  return r;
}

static bool key_free(const Masker *m, const Linear *a) {
  for (uint32_t i = 0; i < a->n; i++)
    if (a->coef[i] && type_has_axis(ir_type(m->f, a->term[i]), m->key))
      return false;
  return true;
}

// ---------------------------------------------------------------- key bounds
typedef struct Bounds {
  Value any_lo, any_hi, full_lo, full_hi;
  bool whole;  // no atom restricted it yet
} Bounds;

static void clamp_above(Masker *m, Value *at, Value v) {
  *at = op2(m, OP_MIN, *at, v);
}
static void clamp_below(Masker *m, Value *at, Value v) {
  *at = op2(m, OP_MAX, *at, v);
}

// c * k + e <= 0 with e in [lo, hi] over the box.
static void bound_le(Masker *m, Bounds *b, int64_t c, Interval e) {
  Value one = ir_int(&m->b, 1), zero = ir_int(&m->b, 0),
        n = ir_int(&m->b, c > 0 ? c : -c);
  if (c > 0) {  // k <= floor(-e / c)
    Value any = op2(m, OP_FLOORDIV, op2(m, OP_SUB, zero, e.lo), n);
    Value full = op2(m, OP_FLOORDIV, op2(m, OP_SUB, zero, e.hi), n);
    clamp_above(m, &b->any_hi, op2(m, OP_ADD, any, one));
    clamp_above(m, &b->full_hi, op2(m, OP_ADD, full, one));
  } else if (c < 0) {  // k >= ceil(e / -c)
    Value up = ir_int(&m->b, -c - 1);
    clamp_below(m, &b->any_lo,
                op2(m, OP_FLOORDIV, op2(m, OP_ADD, e.lo, up), n));
    clamp_below(m, &b->full_lo,
                op2(m, OP_FLOORDIV, op2(m, OP_ADD, e.hi, up), n));
  } else {
    b->any_hi = pick(m, op2(m, OP_LE, e.lo, zero), b->any_hi, zero);
    b->full_hi = pick(m, op2(m, OP_LE, e.hi, zero), b->full_hi, zero);
  }
}

// Restricts b by one atom; false if it is not affine in the key.
static bool bound_atom(Masker *m, Bounds *b, Value atom, bool neg) {
  const Op *op = ir_def(m->f, atom);
  double d;
  if (ir_const_value(m->f, atom, &d)) {
    if ((d != 0) == neg) b->any_hi = b->full_hi = ir_int(&m->b, 0);
    return true;
  }
  if (!op || (op->code != OP_LE && op->code != OP_LT && op->code != OP_EQ))
    return false;
  if (op->code == OP_EQ && neg) return false;
  Value x = op->args[0], y = op->args[1];
  // !(x <= y) is y < x; !(x < y) is y <= x.
  Linear a = neg ? difference(m, y, x) : difference(m, x, y);
  bool strict = (op->code == OP_LT) != neg;
  if (op->code == OP_EQ) strict = false;
  if (!a.ok || !key_free(m, &a)) return false;
  if (strict) a.konst += 1;
  Interval e = rest_interval(m, &a);
  if (!e.ok) return false;
  bound_le(m, b, a.key, e);
  if (op->code == OP_EQ) {
    Interval back = scaled(m, e, -1);
    bound_le(m, b, -a.key, back);
  }
  return true;
}

// ---------------------------------------------------------------- DNF
static bool dnf(const Masker *m, Value p, bool neg, Conj *out, uint32_t *n);

static bool cross(const Masker *m, const Op *op, bool neg, Conj *out,
                  uint32_t *n) {
  Conj a[MAX_CONJ], b[MAX_CONJ];
  uint32_t na = 0, nb = 0;
  if (!dnf(m, op->args[0], neg, a, &na) || !dnf(m, op->args[1], neg, b, &nb))
    return false;
  for (uint32_t i = 0; i < na; i++) {
    for (uint32_t j = 0; j < nb; j++) {
      if (*n == MAX_CONJ || a[i].n + b[j].n > MAX_ATOMS) return false;
      Conj c = a[i];
      memcpy(c.atom + c.n, b[j].atom, sizeof(Value) * b[j].n);
      memcpy(c.neg + c.n, b[j].neg, sizeof(bool) * b[j].n);
      c.n += b[j].n;
      out[(*n)++] = c;
    }
  }
  return true;
}

static bool dnf(const Masker *m, Value p, bool neg, Conj *out, uint32_t *n) {
  const Op *op = ir_def(m->f, p);
  if (op && op->code == OP_NOT) return dnf(m, op->args[0], !neg, out, n);
  bool both = op && (op->code == OP_AND || op->code == OP_OR);
  if (both && (op->code == OP_OR) != neg)
    return dnf(m, op->args[0], neg, out, n) && dnf(m, op->args[1], neg, out, n);
  if (both) return cross(m, op, neg, out, n);
  if (*n == MAX_CONJ) return false;
  out[(*n)++] = (Conj){.atom = {p}, .neg = {neg}, .n = 1};
  return true;
}

// ---------------------------------------------------------------- Kleene
typedef struct Kleene {
  Value may, must;  // bool; 0: unknown (may be true, need not be)
} Kleene;

static Kleene judge_cmp(Masker *m, const Op *op) {
  Linear a = difference(m, op->args[0], op->args[1]);
  Interval e = rest_interval(m, &a);
  if (a.key) {
    Interval k = scaled(m, (Interval){m->klo, m->khi, true}, a.key);
    if (e.ok) e.lo = op2(m, OP_ADD, e.lo, k.lo);
    if (e.ok) e.hi = op2(m, OP_ADD, e.hi, k.hi);
  }
  if (!e.ok) return (Kleene){0, 0};
  Value z = ir_int(&m->b, 0);
  if (op->code == OP_LE || op->code == OP_LT)
    return (Kleene){op2(m, op->code, e.lo, z), op2(m, op->code, e.hi, z)};
  Value below = op2(m, OP_LE, z, e.hi);
  Value may = op2(m, OP_AND, op2(m, OP_LE, e.lo, z), below);
  Value ends = op2(m, OP_EQ, e.hi, z);
  Kleene eq = {may, op2(m, OP_AND, op2(m, OP_EQ, e.lo, z), ends)};
  if (op->code == OP_EQ) return eq;
  return (Kleene){ir_1(&m->b, OP_NOT, eq.must), ir_1(&m->b, OP_NOT, eq.may)};
}

static Value both(Masker *m, OpCode c, Value x, Value y, bool absorb) {
  if (x && y) return op2(m, c, x, y);
  return absorb ? 0 : x ? x : y;
}

static Kleene judge(Masker *m, Value p) {
  const Op *op = ir_def(m->f, p);
  if (!varies(m, p)) return (Kleene){copy(m, p), copy(m, p)};
  if (!op) return (Kleene){0, 0};
  switch (op->code) {
  case OP_LE:
  case OP_LT:
  case OP_EQ:
  case OP_NE: return judge_cmp(m, op);
  case OP_NOT: {
    Kleene k = judge(m, op->args[0]);
    return (Kleene){k.must ? ir_1(&m->b, OP_NOT, k.must) : 0,
                    k.may ? ir_1(&m->b, OP_NOT, k.may) : 0};
  }
  case OP_AND: {  // an unknown conjunct: may is the other's, must is false
    Kleene x = judge(m, op->args[0]), y = judge(m, op->args[1]);
    return (Kleene){both(m, OP_AND, x.may, y.may, false),
                    both(m, OP_AND, x.must, y.must, true)};
  }
  case OP_OR: {
    Kleene x = judge(m, op->args[0]), y = judge(m, op->args[1]);
    return (Kleene){both(m, OP_OR, x.may, y.may, true),
                    both(m, OP_OR, x.must, y.must, false)};
  }
  default: return (Kleene){0, 0};
  }
}

// ---------------------------------------------------------------- regions
static void begin_region(Masker *m, Region *r, bool keys) {
  static const char *const names[] = {"lo", "hi"};
  Type i64 = type_scalar(DT_I64);
  m->b = (Builder){.fn = m->f, .region = r, .span = m->pass->span};
  m->map = (ValueMap){.arena = m->f->mod->arena};
  for (uint32_t i = 0; i < m->nbox; i++) {
    m->lo[i] = ir_region_param(r, i64, names[0]);
    m->hi[i] = ir_region_param(r, i64, names[1]);
  }
  m->alone = 0;
  m->klo = keys ? ir_region_param(r, i64, "klo") : 0;
  m->khi = keys ? ir_region_param(r, i64, "khi") : 0;
}

// Ascending by any_lo (an exchange network for at most 4).
static void sort_bounds(Masker *m, Bounds *b, uint32_t n) {
  for (uint32_t i = 0; i + 1 < n; i++) {
    for (uint32_t j = 0; j + 1 < n - i; j++) {
      Bounds x = b[j], y = b[j + 1];
      Value c = op2(m, OP_LE, x.any_lo, y.any_lo);
      b[j].any_lo = pick(m, c, x.any_lo, y.any_lo);
      b[j].any_hi = pick(m, c, x.any_hi, y.any_hi);
      b[j].full_lo = pick(m, c, x.full_lo, y.full_lo);
      b[j].full_hi = pick(m, c, x.full_hi, y.full_hi);
      b[j + 1].any_lo = pick(m, c, y.any_lo, x.any_lo);
      b[j + 1].any_hi = pick(m, c, y.any_hi, x.any_hi);
      b[j + 1].full_lo = pick(m, c, y.full_lo, x.full_lo);
      b[j + 1].full_hi = pick(m, c, y.full_hi, x.full_hi);
    }
  }
}

// Intervals that begin with the first key are one: k <= q | k < n.
static uint32_t join_bounds(Masker *m, Bounds *b, uint32_t n, Value zero) {
  uint32_t kept = 0;
  int first = -1;
  for (uint32_t i = 0; i < n; i++) {
    bool low = b[i].any_lo == zero && b[i].full_lo == zero;
    if (low && first >= 0) {
      clamp_below(m, &b[first].any_hi, b[i].any_hi);
      clamp_below(m, &b[first].full_hi, b[i].full_hi);
      continue;
    }
    if (low) first = (int)kept;
    b[kept++] = b[i];
  }
  return kept;
}

// Key intervals of the conjunctions, and how many. Returns how many atoms were
// not affine.
static uint32_t make_bounds(Masker *m, Region *r, const Conj *c, uint32_t *of) {
  uint32_t n = *of;
  begin_region(m, r, false);
  Bounds b[MAX_CONJ];
  uint32_t opaque = 0;
  Value zero = ir_int(&m->b, 0);
  Value extent = ir_dim(&m->b, m->f->axes.at[m->key].extent);
  for (uint32_t i = 0; i < n; i++) {
    b[i] = (Bounds){zero, extent, zero, extent, true};
    uint32_t missed = 0;
    for (uint32_t j = 0; j < c[i].n; j++)
      missed += !bound_atom(m, &b[i], c[i].atom[j], c[i].neg[j]);
    if (missed) b[i].full_lo = b[i].full_hi = zero;
    opaque += missed;
  }
  *of = n = join_bounds(m, b, n, zero);
  sort_bounds(m, b, n);
  Value out[4 * MAX_CONJ];
  for (uint32_t i = 0; i < n; i++) {
    const Value v[4] = {b[i].any_lo, b[i].any_hi, b[i].full_lo, b[i].full_hi};
    memcpy(&out[4 * i], v, sizeof v);
  }
  ir_yield(&m->b, out, 4 * n);
  return opaque;
}

// True if the tile test can ever tell anything.
static bool make_classify(Masker *m, Region *r) {
  begin_region(m, r, true);
  const Op *y = m->pass->regions[0]->last;
  Kleene k = judge(m, y->args[0]);
  Value one = ir_int(&m->b, 1);
  if (m->alone && k.must) k.must = op2(m, OP_AND, k.must, m->alone);
  if (m->alone && k.may)
    k.may = op2(m, OP_OR, k.may, ir_1(&m->b, OP_NOT, m->alone));
  Value v = k.must ? pick(m, k.must, ir_int(&m->b, 2), one) : one;
  if (k.may) v = pick(m, k.may, v, ir_int(&m->b, 0));
  ir_yield(&m->b, &v, 1);
  return k.may || k.must;
}

// ---------------------------------------------------------------- tails
// The atom as c * k + e <= 0; !ok: it is none, or e varies with the key.
static Linear atom_of(Masker *m, Value atom, bool neg) {
  const Op *op = ir_def(m->f, atom);
  Linear a = {.ok = false};
  if (!op || (op->code != OP_LE && op->code != OP_LT)) return a;
  a = neg ? difference(m, op->args[1], op->args[0])
          : difference(m, op->args[0], op->args[1]);
  a.ok = a.ok && key_free(m, &a);
  if ((op->code == OP_LT) != neg) a.konst++;
  return a;
}

static void add_atom(Masker *m, Conj *c, Value atom, bool neg) {
  const Op *op = ir_def(m->f, atom);
  if (op && op->code == OP_AND && !neg) {
    add_atom(m, c, op->args[0], false);
    add_atom(m, c, op->args[1], false);
  } else if (c->n < MAX_ATOMS && atom_of(m, atom, neg).ok) {
    c->neg[c->n] = neg;
    c->atom[c->n++] = atom;
  }
}

// Is v a dim that the rows are as many as, or a multiple of?
static bool is_rows(const Masker *m, Value v) {
  const DimTab *t = &m->f->mod->dims;
  const Op *op = ir_def(m->f, v);
  for (uint32_t i = 0; op && op->code == OP_DIM && i < m->nbox; i++) {
    Dim all = m->f->axes.at[m->box[i]].extent;
    Dim one = (Dim)ir_attr_i(op, AT_DIM, 0);
    const DimExpr *e = &t->exprs.at[all];
    if (all == one || (e->op == DIM_MUL && (e->a == one || e->b == one)))
      return true;
  }
  return false;
}

// Do the atoms leave no more keys than there are rows? Of k <= -x and y <= k
// these are 1 - x - y.
static bool is_short(Masker *m, const Conj *c) {
  for (uint32_t i = 0; i < c->n; i++)
    for (uint32_t j = 0; j < c->n; j++) {
      Linear x = atom_of(m, c->atom[i], c->neg[i]);
      Linear y = atom_of(m, c->atom[j], c->neg[j]);
      if (x.key != 1 || y.key != -1) continue;
      for (uint32_t k = 0; k < y.n; k++) add_term(&x, y.term[k], y.coef[k]);
      uint32_t rows = 0, others = 0;
      for (uint32_t k = 0; k < x.n; k++) {
        bool dim = x.coef[k] == -1 && is_rows(m, x.term[k]);
        rows += dim;
        others += x.coef[k] && !dim;
      }
      if (x.ok && rows == 1 && !others && x.konst + y.konst >= 1) return true;
    }
  return false;
}

// Has memory a say on few keys alone: beside atoms (`with`) that leave no more
// of them than there are rows? As in `k < n | see[q, k - n]`, where n keys lie
// in front of as many as there are queries.
static bool tails(Masker *m, Value p, const Conj *with) {
  const Op *op = ir_def(m->f, p);
  double c;
  if (ir_const_value(m->f, p, &c) || atom_of(m, p, false).ok) return true;
  if (!op || (op->code != OP_AND && op->code != OP_OR))
    return is_short(m, with);
  for (uint32_t i = 0; i < 2; i++) {
    Conj more = *with;
    add_atom(m, &more, op->args[1 - i], op->code == OP_OR);
    if (!tails(m, op->args[i], &more)) return false;
  }
  return true;
}

// Is all memory that p reads of a phase before, and has it a number for each
// key? Counts loads in n.
static bool reads_made(const Masker *m, Value p, uint32_t *n) {
  const Op *op = ir_def(m->f, p);
  if (!op || op->nregions) return !!op;
  bool ok = op->code != OP_LOAD;
  for (uint32_t i = 0; !ok && i < m->f->params.n; i++)
    ok = m->f->params.at[i].v == op->args[0] &&
         m->f->params.at[i].role == PR_SHARED &&
         type_has_axis(ir_type(m->f, p), m->key);
  *n += op->code == OP_LOAD;
  for (uint32_t i = op->code == OP_LOAD; i < op->nargs && ok; i++)
    ok = !ir_def(m->f, op->args[i]) || reads_made(m, op->args[i], n);
  return ok;
}

// Products of matrices are masked by it; sums without them leave out tiles.
static bool masks_made(const Masker *m, Value p, const PassOpt *opt) {
  uint32_t n = 0;
  return opt->target->gpu.hopper && reads_made(m, p, &n) && n &&
         lane_multiplies(m->f);
}

// Does a list that tells a step's keys have a say?
static bool of_list(const Masker *m) {
  bool any = false;
  for (const Op *op = m->pass->regions[0]->first; op; op = op->next)
    any |= op->code == OP_LOAD && is_list(m, op);
  return any;
}

static void find_box(Masker *m) {
  const Type *t = ir_type(m->f, m->pass->regions[0]->last->args[0]);
  for (uint32_t i = 0; i < t->n && m->nbox < MAX_BOX; i++)
    if (m->f->axes.at[t->axis[i]].role == AX_PAR)
      m->box[m->nbox++] = t->axis[i];
}

static void add_regions(Masker *m, Region *bounds, Region *classify) {
  Arena *a = m->f->mod->arena;
  Op *p = m->pass;
  Region **r = NEWN(a, Region *, 5);
  memcpy(r, p->regions, sizeof(Region *) * 3);
  r[3] = bounds;
  r[4] = classify;
  p->regions = r;
  p->nregions = classify ? 5 : bounds ? 4 : 3;
  ir_set_attr(m->f, p, attr_axes(a, AT_BOX, m->box, m->nbox));
}

static void mask_pass(Ctx *cx, Func *f, Op *pass, const PassOpt *opt) {
  Masker m = {.cx = cx, .f = f, .pass = pass};
  m.key = (uint32_t)ir_attr_i(pass, AT_AXIS, 0);
  Value p = pass->regions[0]->last->args[0];
  double c;
  if (pass->nregions > 3 || (ir_const_value(f, p, &c) && c != 0)) return;
  find_box(&m);
  Conj conj[MAX_CONJ];
  uint32_t n = 0, opaque = 1;
  Region *bounds = ir_region(f, pass), *classify = NULL;
  bool closed = dnf(&m, p, false, conj, &n);
  if (!closed) {  // too many alternatives: one interval, judged per tile
    conj[0] = (Conj){.atom = {p}, .n = 1};
    n = 1;
  }
  opaque = make_bounds(&m, bounds, conj, &n);
  bool told = true;
  bool tail = opt->few && opaque && tails(&m, p, &(Conj){0});
  bool made = opaque && masks_made(&m, p, opt);
  if (tail || made || (opt->brief && opaque && of_list(&m))) opaque = 0;
  if (opaque) {
    classify = ir_region(f, pass);
    told = make_classify(&m, classify);
  }
  add_regions(&m, bounds, classify && told ? classify : NULL);
  if (opaque) {
    IrAttr a = {.id = AT_SPARSE, .i = 1};
    ir_set_attr(f, pass, a);
  }
  ctx_remark(cx, "%s: keys %s: %u interval%s in closed form%s", f->name,
             f->axes.at[m.key].name, n, n == 1 ? "" : "s",
             tail      ? ", memory says something of the last keys alone"
             : made    ? ", masked by what a phase before makes of each"
             : !opaque ? ", no memory"
             : told    ? ", tiles tested by intervals"
                       : ", tiles tested by the predicate");
}

static void find_passes(void *data, Op *op) {
  void **d = data;
  const PassOpt *opt = d[2];
  if (op->code == OP_KREDUCE) mask_pass(d[0], d[1], op, opt);
}

bool pass_mask_bounds(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    void *d[] = {cx, m->funcs.at[i], (void *)(uintptr_t)opt};
    ir_walk(m->funcs.at[i]->body, find_passes, d);
  }
  return true;
}
