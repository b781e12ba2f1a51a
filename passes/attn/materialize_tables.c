// Tables: functions of positions that operands are made of, as rotations have
// them, are the same for all heads. They are made once, in a phase before the
// operands':
//
//   before  %a = cos(mul(%k, pow(%c, %d)))               : f32{k,d}
//           %b = cos(mul(%k, pow(%c, sub(%d, 32))))      : f32{k,d}
//           %e = select(lt(%d, 32), mul(%x, %a), mul(%x, %b))
//   after   %t = load(%cos.made, %k, mod(%d, 32))  instead of both
//
// Functions that are one another's, moved along the vector or along rows of as
// many, share a table; it has the columns that matter to who reads it: of a
// rotation's vector half.
#include "ir/facts.h"
#include "passes/attn/materialize.h"

static uint32_t count(uint64_t axes) {
  uint32_t n = 0;
  for (; axes; axes &= axes - 1) n++;
  return n;
}

static int64_t columns(const Ahead *a, uint32_t vec) {
  int64_t n;
  Dim e = a->f->axes.at[vec].extent;
  return dim_is_const(&a->f->mod->dims, e, &n) ? n : 0;
}

// Is v the coordinate of the vector, and a number?
static bool moved(const Ahead *a, Value v, uint32_t vec, int64_t *by) {
  const Op *op = ir_def(a->f, v);
  int64_t c;
  *by = 0;
  if (!op) return false;
  if (op->code == OP_INDEX) return ir_attr_i(op, AT_AXIS, -1) == (int64_t)vec;
  if (op->code != OP_ADD && op->code != OP_SUB) return false;
  if (!ir_const_whole(a->f, op->args[1], &c) || !moved(a, op->args[0], vec, by))
    return false;
  *by += op->code == OP_ADD ? c : -c;
  return true;
}

// ---------------------------------------------------------------- columns
typedef struct Part {
  int64_t lo, hi;
} Part;

static Part join(Part x, Part y) {
  if (x.lo >= x.hi) return y;
  if (y.lo >= y.hi) return x;
  return (Part){x.lo < y.lo ? x.lo : y.lo, x.hi > y.hi ? x.hi : y.hi};
}

static Part within(Part x, int64_t lo, int64_t hi) {
  return (Part){x.lo > lo ? x.lo : lo, x.hi < hi ? x.hi : hi};
}

// Is the condition that of columns below *c? *flip: of the others.
static bool splits(const Ahead *a, Value cond, uint32_t vec, int64_t *c,
                   bool *flip) {
  const Op *op = ir_def(a->f, cond);
  int64_t by;
  if (!op || (op->code != OP_LT && op->code != OP_LE)) return false;
  *flip = ir_const_whole(a->f, op->args[0], c);
  if (!*flip && !ir_const_whole(a->f, op->args[1], c)) return false;
  if (!moved(a, op->args[*flip], vec, &by)) return false;
  *c += (op->code == OP_LE) != *flip;
  *c -= by;
  return true;
}

typedef struct Matter {
  const Ahead *a;
  uint32_t vec;
  int64_t n;  // columns
  Map seen;   // spans of values
} Matter;

static Part matters(Matter *m, Value v);

static Part matters_to(Matter *m, const Op *op, Value v) {
  Part all = {0, m->n};
  bool elem = op_info(op->code)->flags & OPF_ELEM, flip;
  bool sum = op->code == OP_REDUCE || op->code == OP_DOT;
  int64_t c;
  if ((!elem && !sum) || op->nres != 1 ||
      !type_has_axis(ir_type(m->a->f, op->res[0]), m->vec))
    return all;
  Part s = matters(m, op->res[0]);
  if (op->code != OP_SELECT || op->args[0] == v || op->args[1] == op->args[2] ||
      !splits(m->a, op->args[0], m->vec, &c, &flip))
    return s;
  bool below = (op->args[1] == v) != flip;
  return below ? within(s, 0, c) : within(s, c, m->n);
}

// The columns of v that anything depends on.
static Part matters(Matter *m, Value v) {
  uint64_t known;
  if (map_get(&m->seen, v, &known))
    return (Part){(int64_t)(known >> 32), (int64_t)(uint32_t)known};
  Part s = {0, 0};
  for (const Op *op = m->a->f->body->first; op; op = op->next)
    if (ir_mentions(op, v)) s = join(s, matters_to(m, op, v));
  map_put(&m->seen, v, (uint64_t)s.lo << 32 | (uint32_t)s.hi);
  return s;
}

static Part span_of(const Ahead *a, Value v, uint32_t vec) {
  Matter m = {.a = a, .vec = vec, .n = columns(a, vec)};
  m.seen = (Map){.arena = &a->cx->scratch};
  return matters(&m, v);
}

// ---------------------------------------------------------------- likeness
enum { MAX_LIKE = 128 };  // ops that are compared

// v(d) = w(d - shift), rows of the one being those of the other.
typedef struct Like {
  const Ahead *a;
  uint32_t row[2], vec;
  int64_t shift;
  bool known;
  uint32_t ops;
} Like;

static bool is_like(Like *l, Value v, Value w);

static bool like_ops(Like *l, const Op *x, const Op *y) {
  bool swap = op_info(x->code)->flags & OPF_COMM && x->nargs == 2;
  for (uint32_t k = 0; k <= swap; k++) {
    Like before = *l;
    uint32_t i = 0;
    while (i < x->nargs && is_like(l, x->args[k ? 1 - i : i], y->args[i])) i++;
    if (i == x->nargs) return true;
    before.ops = l->ops;
    *l = before;
  }
  return false;
}

static bool is_like(Like *l, Value v, Value w) {
  const Func *f = l->a->f;
  const Type *t = ir_type(f, v);
  const Op *x = ir_def(f, v), *y = ir_def(f, w);
  int64_t p, q;
  bool vec = t->kind == TK_ELEM && type_has_axis(t, l->vec);
  bool row = t->kind == TK_ELEM && type_has_axis(t, l->row[0]);
  if (!vec && (!row || l->row[0] == l->row[1])) return v == w;
  if (!x || !y || l->ops++ == MAX_LIKE) return false;
  if (moved(l->a, v, l->vec, &p) && moved(l->a, w, l->vec, &q)) {
    bool same = !l->known || l->shift == q - p;
    l->shift = q - p;
    return l->known = same;
  }
  if (x->code != y->code || x->nargs != y->nargs ||
      t->dtype != ir_type(f, w)->dtype)
    return false;
  if (x->code == OP_INDEX)
    return ir_attr_i(x, AT_AXIS, -1) == (int64_t)l->row[0] &&
           ir_attr_i(y, AT_AXIS, -1) == (int64_t)l->row[1];
  if (x->code != OP_CAST && (x->nattrs || y->nattrs)) return false;
  return like_ops(l, x, y);
}

static uint64_t others(const Made *m) {
  return m->from.plain & ~((uint64_t)1 << m->row) & ~((uint64_t)1 << m->vec);
}

// Do rows and other axes of the tables agree?
static bool may_share(const Ahead *a, const Made *t, const Made *m) {
  return t->table && t->vec == m->vec && !t->from.grouped && !m->from.grouped &&
         others(t) == others(m) &&
         a->f->axes.at[t->row].extent == a->f->axes.at[m->row].extent &&
         t->nreads < MAX_READS;
}

// Reads that lie side by side in the vector, each of as many columns, read one
// table at the remainder.
static bool fits(const Ahead *a, const Made *t) {
  for (uint32_t i = 0; i < t->nreads; i++) {
    const Read *r = &t->read[i];
    Part s = span_of(a, r->v, t->vec);
    if (r->shift % t->cols || s.lo < r->shift || s.hi > r->shift + t->cols)
      return false;
  }
  return true;
}

static int64_t cols_of(const Ahead *a, const Made *t) {
  int64_t n = 0;
  for (uint32_t i = 0; i < t->nreads; i++) {
    Part s = span_of(a, t->read[i].v, t->vec);
    if (s.hi - t->read[i].shift > n) n = s.hi - t->read[i].shift;
  }
  return n;
}

// m reads t's table, or t m's, whichever has the first columns.
static bool shares(const Ahead *a, Made *t, const Made *m) {
  Like l = {.a = a, .row = {m->row, t->row}, .vec = t->vec};
  if (!may_share(a, t, m) || !is_like(&l, m->v, t->v)) return false;
  Made all = *t;
  if (l.shift < 0) {
    all.v = m->v;
    all.row = m->row;
    all.from = m->from;
    for (uint32_t i = 0; i < t->nreads; i++) all.read[i].shift -= l.shift;
    l.shift = 0;
  }
  all.read[all.nreads++] = (Read){m->v, m->row, l.shift};
  all.gain += m->gain;
  all.cols = cols_of(a, &all);
  if (all.cols % 8 || !fits(a, &all)) return false;
  *t = all;
  return true;
}

static void add_table(Ahead *a, Made *m) {
  m->read[0] = (Read){m->v, m->row, 0};
  m->nreads = 1;
  m->cols = cols_of(a, m);
  if (m->cols % 8) m->cols = columns(a, m->vec);
  for (uint32_t i = 0; i < a->n; i++)
    if (shares(a, &a->made[i], m)) return;
  materialize_add(a, m);
}

void materialize_tables(Ahead *a, const Made *of, Value v, Map *seen) {
  const Op *op = ir_def(a->f, v);
  const Type *t = ir_type(a->f, v);
  Made m = {.v = v, .row = of->row, .vec = of->vec, .table = true};
  uint64_t known;
  if (!op || t->kind != TK_ELEM || map_get(seen, v, &known)) return;
  map_put(seen, v, 1);
  if (op_is_function(op->code) && type_has_axis(t, of->row) &&
      type_has_axis(t, of->vec) && t->dtype == DT_F32 &&
      materialize_sources(a, v, &m.from) &&
      count(m.from.plain | m.from.grouped) <
          count(of->from.plain | of->from.grouped)) {
    const Read *read;
    m.gain = materialize_table_gain(a, &m, of);
    if (m.gain > 0 && !materialize_made(a, v, &read)) add_table(a, &m);
    return;
  }
  for (uint32_t i = 0; i < op->nargs; i++)
    materialize_tables(a, of, op->args[i], seen);
}
