// How many keys a tile of rows sees at most, whatever tables hold (part of
// `tile`): of a window no more than it is wide, and the rows' own span.
//
//   lo = max(0, add(-127, add(floordiv(%lo.q, %g), span_min(%len, %b, %b))))
//   hi = min(%Sk, add(1, add(floordiv(%hi.q, %g), span_max(%len, %b, %b))))
//
// is hi - lo <= 128 + 63 for 64 rows: the bounds are sums, of which all but a
// number and the rows' coordinates goes away. Where there are several ways to
// bound one, as a minimum has, each is tried.
#include "passes/tile/tile.h"

enum { MAX_FORMS = 8, MAX_TERMS = 8 };

// What a sum has: a dim, an entry of a table at the task's coordinate of an
// axis, that coordinate, or the first or last row by a number.
typedef enum AtomKind { DIMENSION, ENTRY, COORDINATE, ROW } AtomKind;

typedef struct Term {
  AtomKind kind;
  uint32_t a, b;  // dim; tensor and axis; axis; divisor
  bool last;      // row
  int64_t by;
} Term;

typedef struct Form {
  Term term[MAX_TERMS];
  uint32_t n;
  int64_t number;
} Form;

typedef struct Forms {
  Form at[MAX_FORMS];
  uint32_t n;
} Forms;

typedef struct Width {
  const Func *f;
  const Region *bounds;
  const IrAttr *box;
  uint32_t lane;
} Width;

static Forms none(void) {
  return (Forms){.n = 0};
}

static Forms one(Form x) {
  return (Forms){.at = {x}, .n = 1};
}

static Forms atom(Term t) {
  t.by = 1;
  return one((Form){.term = {t}, .n = 1});
}

static bool same(const Term *x, const Term *y) {
  return x->kind == y->kind && x->a == y->a && x->b == y->b &&
         x->last == y->last;
}

static bool add_term(Form *to, Term t, int64_t times) {
  t.by *= times;
  for (uint32_t i = 0; i < to->n; i++)
    if (same(&to->term[i], &t)) {
      to->term[i].by += t.by;
      return true;
    }
  if (to->n == MAX_TERMS) return false;
  to->term[to->n++] = t;
  return true;
}

static bool add_form(Form *to, const Form *x, int64_t times) {
  bool ok = true;
  to->number += times * x->number;
  for (uint32_t i = 0; ok && i < x->n; i++)
    ok = add_term(to, x->term[i], times);
  return ok;
}

// Each of x and `times` each of y.
static Forms sums(const Forms *x, const Forms *y, int64_t times) {
  Forms r = none();
  for (uint32_t i = 0; i < x->n; i++)
    for (uint32_t k = 0; k < y->n && r.n < MAX_FORMS; k++) {
      Form s = x->at[i];
      if (add_form(&s, &y->at[k], times)) r.at[r.n++] = s;
    }
  return r;
}

static Forms either(Forms x, const Forms *y) {
  for (uint32_t i = 0; i < y->n && x.n < MAX_FORMS; i++) x.at[x.n++] = y->at[i];
  return x;
}

// The axis whose first or last coordinate v is; -1: it is none.
static int axis_of(const Width *w, Value v, bool *last) {
  for (uint32_t i = 0; i < 2 * w->box->n; i++)
    if (w->bounds->params.at[i] == v) {
      *last = i % 2 != 0;
      return (int)w->box->list[i / 2];
    }
  return -1;
}

static Forms coordinate(const Width *w, Value v, uint32_t divisor) {
  bool last = false;
  int axis = axis_of(w, v, &last);
  if (axis < 0) return none();
  if ((uint32_t)axis == w->lane)
    return atom((Term){.kind = ROW, .b = divisor, .last = last});
  if (divisor) return none();
  return atom((Term){.kind = COORDINATE, .a = (uint32_t)axis});
}

// A tile has one coordinate of all axes but the rows': the least and largest
// entry are one.
static Forms entry(const Width *w, const Op *op) {
  bool first = false, last = false;
  if (op->nargs != 3) return none();
  int lo = axis_of(w, op->args[1], &first), hi = axis_of(w, op->args[2], &last);
  if (lo < 0 || lo != hi || first || !last || (uint32_t)lo == w->lane)
    return none();
  return atom((Term){.kind = ENTRY, .a = op->args[0], .b = (uint32_t)lo});
}

static Forms quotient(const Width *w, const Op *op) {
  const Op *by = ir_def(w->f, op->args[1]);
  int64_t lo, hi;
  if (!by || by->code != OP_DIM) return none();
  Dim d = (Dim)ir_attr_i(by, AT_DIM, 0);
  dim_bounds(&w->f->mod->dims, d, &lo, &hi);
  return lo > 0 ? coordinate(w, op->args[0], d) : none();
}

static Forms forms(const Width *w, Value v, bool upper);

static Forms product(const Width *w, const Op *op, bool upper) {
  int64_t k;
  Forms zero = one((Form){0});
  for (uint32_t i = 0; i < 2; i++)
    if (ir_const_whole(w->f, op->args[i], &k)) {
      Forms x = forms(w, op->args[1 - i], k < 0 ? !upper : upper);
      return sums(&zero, &x, k);
    }
  return none();
}

// Sums that v is at most, or at least.
static Forms forms(const Width *w, Value v, bool upper) {
  const Op *op = ir_def(w->f, v);
  int64_t k;
  if (!op) return coordinate(w, v, 0);
  if (ir_const_whole(w->f, v, &k)) return one((Form){.number = k});
  bool minus = op->code == OP_SUB;
  Forms x, y;
  switch (op->code) {
  case OP_DIM:
    return atom(
        (Term){.kind = DIMENSION, .a = (uint32_t)ir_attr_i(op, AT_DIM, 0)});
  case OP_CAST: return forms(w, op->args[0], upper);
  case OP_SPAN_MIN:
  case OP_SPAN_MAX: return entry(w, op);
  case OP_FLOORDIV: return quotient(w, op);
  case OP_MUL: return product(w, op, upper);
  case OP_ADD:
  case OP_SUB:
    x = forms(w, op->args[0], upper);
    y = forms(w, op->args[1], minus ? !upper : upper);
    return sums(&x, &y, minus ? -1 : 1);
  case OP_MIN:
  case OP_MAX:
    if (upper != (op->code == OP_MIN)) return none();
    y = forms(w, op->args[1], upper);
    return either(forms(w, op->args[0], upper), &y);
  default: return none();
  }
}

// A difference without anything but the rows' span, or -1.
static int64_t span_of(const Form *d, int64_t rows) {
  int64_t n = d->number;
  for (uint32_t i = 0; i < d->n; i++) {
    const Term *t = &d->term[i];
    if (!t->by) continue;
    bool paired = false;
    for (uint32_t k = 0; k < d->n; k++) {
      Term other = *t;
      other.last = !t->last;
      paired |= same(&d->term[k], &other) && d->term[k].by == -t->by;
    }
    if (t->kind != ROW || !paired || (t->last ? t->by != 1 : t->by != -1))
      return -1;
    if (t->last) n += rows - 1;
  }
  return n < 0 ? 0 : n;
}

int64_t tile_most_seen(const Func *f, const Op *pass, const TilePlan *p) {
  enum { BOUNDS = 3 };
  Width w = {.f = f, .box = ir_attr(pass, AT_BOX), .lane = (uint32_t)p->lane};
  w.bounds = pass->nregions > BOUNDS ? pass->regions[BOUNDS] : NULL;
  const Op *y = w.bounds ? w.bounds->last : NULL;
  if (!w.box || !y || p->lane < 0 || y->nargs != 4) return 0;
  Forms lo = forms(&w, y->args[0], false), hi = forms(&w, y->args[1], true);
  Forms all = sums(&hi, &lo, -1);
  int64_t most = 0;
  for (uint32_t i = 0; i < all.n; i++) {
    int64_t n = span_of(&all.at[i], p->tile_q);
    if (n > 0 && (!most || n < most)) most = n;
  }
  return most;
}
