// Columns of a tensor that several boxes have in common.
#include "passes/support/columns.h"

#include "ir/target.h"
#include "passes/support/lane.h"
#include "passes/support/widened.h"

static bool is_coordinate(const Op *op) {
  return op->code == OP_INDEX || op->code == OP_IOTA || op->code == OP_ORIGIN;
}

// The axis whose coordinate op is.
static uint32_t axis_of(const Func *f, const Op *op) {
  return op->code == OP_IOTA ? ir_type(f, op->res[0])->axis[0]
                             : (uint32_t)ir_attr_i(op, AT_AXIS, 0);
}

// v = coordinate of a parallel axis * step
static bool is_part(const Func *f, const Op *op, Columns *c) {
  for (uint32_t i = 0; op->code == OP_MUL && i < 2; i++) {
    const Op *x = ir_def(f, op->args[i]);
    double step;
    if (!x || !is_coordinate(x) || c->part >= 0 ||
        f->axes.at[axis_of(f, x)].role != AX_PAR ||
        !ir_const_value(f, op->args[!i], &step))
      continue;
    c->part = (int)axis_of(f, x);
    c->step = (int64_t)step;
    return true;
  }
  return false;
}

// Adds up v: a vector's coordinate once, a part, constants.
static bool add_up(const Func *f, Value v, Columns *c, uint32_t *vectors) {
  const Op *op = ir_def(f, v);
  double k;
  if (!op) return false;
  if (ir_const_value(f, v, &k)) {
    c->at += (int64_t)k;
    return true;
  }
  if (op->code == OP_ADD)
    return add_up(f, op->args[0], c, vectors) &&
           add_up(f, op->args[1], c, vectors);
  if (is_part(f, op, c)) return true;
  if (!is_coordinate(op) || op->code == OP_ORIGIN ||
      f->axes.at[axis_of(f, op)].role != AX_VEC || ++*vectors > 1)
    return false;
  c->vec = axis_of(f, op);
  return dim_is_const(&f->mod->dims, f->axes.at[c->vec].extent, &c->n);
}

static bool has_vector(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  for (uint32_t i = 0; i < t->n; i++)
    if (f->axes.at[t->axis[i]].role == AX_VEC) return true;
  return false;
}

bool columns_of(const Func *f, const Op *op, Columns *c) {
  const Op *load = widened_load(f, op);
  uint32_t vectors = 0;
  *c = (Columns){.part = -1};
  if (!load || load->code != OP_LOAD) return false;
  for (uint32_t i = 1; i < load->nargs; i++) {
    if (!has_vector(f, load->args[i])) continue;
    if (c->pos || !add_up(f, load->args[i], c, &vectors)) return false;
    c->pos = i;
  }
  return c->pos && vectors == 1;
}

static int64_t parts_of(const Func *f, uint32_t axis) {
  int64_t n = 1;
  return dim_is_const(&f->mod->dims, f->axes.at[axis].extent, &n) ? n : 0;
}

int64_t columns_all(const Func *f, const Columns *c) {
  return c->part < 0 ? c->n
                     : c->n + (parts_of(f, (uint32_t)c->part) - 1) * c->step;
}

static bool same_but(const Op *a, const Op *b, uint32_t pos) {
  bool same = a->nargs == b->nargs;
  for (uint32_t i = 0; same && i < a->nargs; i++)
    same = i == pos || a->args[i] == b->args[i];
  return same;
}

// What is widened has the same scales.
static bool same_rows(const Func *f, const Op *a, const Op *b, uint32_t pos) {
  Widened x = {0}, y = {0};
  bool wide = widened_of(f, a->res[0], &x), both = widened_of(f, b->res[0], &y);
  if (wide != both || !x.scale != !y.scale || x.block != y.block) return false;
  if (x.scale && !same_but(x.scale, y.scale, x.block ? pos : 0)) return false;
  if (x.scale && x.scale->args[0] != y.scale->args[0]) return false;
  return same_but(wide ? x.load : a, wide ? y.load : b, pos);
}

const Op *columns_host(const Func *f, const Op *load, const Columns *c) {
  if (dtype_size(ir_type(f, load->res[0])->dtype) != 2 || c->step % HW_PANEL)
    return NULL;
  bool behind = false;
  for (const Op *op = load->parent->first; op; op = op->next) {
    Columns h;
    behind |= op == load;
    if (op == load || op->nres != 1 || !columns_of(f, op, &h) ||
        h.pos != c->pos || h.part >= 0 || !same_rows(f, op, load, c->pos))
      continue;
    int64_t front = c->at - h.at, all = columns_all(f, c);
    if ((h.n > all || !behind) && front >= 0 && front % HW_PANEL == 0 &&
        front + all <= h.n)
      return op;
  }
  return NULL;
}

// ---------------------------------------------------------------- parts
typedef struct Parts {
  const Func *f;
  uint32_t axis;
  bool sums, ok;
  bool *widened;  // by value: makes an operand of 8-bit floats
} Parts;

static void note_widened(void *data, Op *op) {
  Parts *p = data;
  Widened w;
  if (op->nres != 1 || !widened_of(p->f, op->res[0], &w)) return;
  const Op *x = ir_def(p->f, op->args[0]);
  p->widened[op->args[0]] = p->widened[w.load->res[0]] = true;
  if (w.scale) p->widened[w.scale->res[0]] = true;
  for (uint32_t i = 0; x != w.load && i < x->nargs; i++)
    p->widened[x->args[i]] = true;
}

// What a part has of each key is read of memory, for a product that adds it up.
static void note_part(void *data, Op *op) {
  Parts *p = data;
  Columns c;
  const Func *f = p->f;
  if (op->nres != 1 || !p->ok) return;
  const Type *t = ir_type(f, op->res[0]);
  if (t->kind != TK_ELEM || !type_has_axis(t, p->axis)) return;
  if (lane_has_key(f, t))
    p->ok = p->widened[op->res[0]] ||
            (columns_of(f, op, &c) && c.part == (int)p->axis);
  else if (op->code == OP_DOT) p->sums = true;
  else if (op->code == OP_LOAD || op->nregions) p->ok = false;
}

int columns_part(const Func *f) {
  for (uint32_t a = 0; a < f->axes.n; a++) {
    Parts p = {.f = f, .axis = a, .ok = true};
    int64_t n = f->axes.at[a].role == AX_PAR ? parts_of(f, a) : 0;
    if (n < 2 || n > HW_MOST_GROUPS) continue;
    p.widened = NEWN(f->mod->arena, bool, f->values.n);
    ir_walk(f->body, note_widened, &p);
    ir_walk(f->body, note_part, &p);
    if (p.ok && p.sums) return (int)a;
  }
  return -1;
}

// ---------------------------------------------------------------- told keys
// Is v made of a number that memory has for each key?
static bool reads_key(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  if (!op || op->nregions || !lane_has_key(f, ir_type(f, v))) return false;
  bool any = op->code == OP_LOAD;
  for (uint32_t i = 0; i < op->nargs && !any; i++)
    any = ir_type(f, op->args[i])->kind == TK_ELEM && reads_key(f, op->args[i]);
  return any;
}

bool columns_told(const Func *f, const Op *op, uint32_t lane) {
  const Type *t = ir_type(f, op->res[0]);
  const Op *load = widened_load(f, op);
  bool any = false;
  if (!load || load->code != OP_LOAD || dtype_size(t->dtype) != 2 ||
      lane_elements(f, t) % HW_PANEL)
    return false;
  for (uint32_t i = 1; i < load->nargs; i++) {
    const Type *x = ir_type(f, load->args[i]);
    if (!lane_has_key(f, x)) continue;
    if (type_has_axis(x, lane) || lane_elements(f, x) != 1) return false;
    any |= reads_key(f, load->args[i]);
  }
  return any;
}

typedef struct Suits {
  const Func *f;
  uint32_t lane;
  bool all, told, ends;
} Suits;

// A bound of keys from above, the same for all rows.
static bool is_end(const Suits *s, Value v) {
  const Op *op = ir_def(s->f, v);
  if (!op || !lane_has_key(s->f, ir_type(s->f, v))) return true;
  if (op->code == OP_AND)
    return is_end(s, op->args[0]) && is_end(s, op->args[1]);
  if (type_has_axis(ir_type(s->f, v), s->lane)) return true;
  if (op->code != OP_LT && op->code != OP_LE) return false;
  const Op *key = ir_def(s->f, op->args[0]);
  return key && key->code == OP_INDEX &&
         !lane_has_key(s->f, ir_type(s->f, op->args[1]));
}

// 8-bit floats are widened on the way where rows are told one by one.
static bool is_copied(const Suits *s, const Op *x) {
  return x && (x->code == OP_LOAD || columns_told(s->f, x, s->lane));
}

static void note_suits(void *data, Op *op) {
  Suits *s = data;
  if (op->code == OP_SCAN) s->all = false;
  if (op->code == OP_KREDUCE)
    s->ends &= is_end(s, op->regions[0]->last->args[0]);
  if (op->code != OP_DOT || lane_is_inner(s->f, op)) return;
  for (uint32_t i = 0; i < 2; i++) {
    const Type *t = ir_type(s->f, op->args[i]);
    const Op *x = ir_def(s->f, op->args[i]);
    bool pair = lane_has_key(s->f, t) && type_has_axis(t, s->lane);
    if (x && x->code == OP_SELECT && !ir_type(s->f, x->args[0])->n)
      x = ir_def(s->f, x->args[2]);  // of either sign
    if (!pair && x && lane_has_key(s->f, t))
      s->told &= columns_told(s->f, x, s->lane);
    s->all &= dtype_is_float16(t->dtype) &&
              (pair ? lane_elements(s->f, t) == 1 : is_copied(s, x));
  }
}

bool columns_suit(const Func *f, uint32_t lane) {
  Suits s = {.f = f, .lane = lane, .all = true, .told = true, .ends = true};
  ir_walk(f->body, note_suits, &s);
  return s.all && (s.ends || s.told);
}
