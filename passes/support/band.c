// Products with a row of a table for each difference of a row and a key.
#include "passes/support/band.h"

// How often an index has the coordinate of each axis.
typedef struct Slopes {
  uint32_t axis[MAX_AXES];
  int by[MAX_AXES];
  uint32_t n;
} Slopes;

static bool add_slope(Slopes *s, uint32_t axis, int by) {
  uint32_t i = 0;
  while (i < s->n && s->axis[i] != axis) i++;
  if (i == MAX_AXES) return false;
  if (i == s->n) s->axis[s->n] = axis, s->by[s->n++] = 0;
  s->by[i] += by;
  return true;
}

// Is v a sum of coordinates, and of what varies with neither rows nor keys?
static bool find_slopes(const Func *f, Value v, int by, Slopes *s) {
  const Op *op = ir_def(f, v);
  const Type *t = ir_type(f, v);
  if (!t->n) return true;
  if (!op) return false;
  if (op->code == OP_INDEX || op->code == OP_IOTA)
    return add_slope(s, t->axis[0], by);
  if (op->code != OP_ADD && op->code != OP_SUB) return false;
  return find_slopes(f, op->args[0], by, s) &&
         find_slopes(f, op->args[1], op->code == OP_ADD ? by : -by, s);
}

// The axes whose difference index v is: *less is taken off.
static bool is_difference(const Func *f, Value v, uint32_t *from,
                          uint32_t *less) {
  Slopes s = {.n = 0};
  uint32_t n = 0, keys = 0;
  if (!find_slopes(f, v, 1, &s)) return false;
  for (uint32_t i = 0; i < s.n; i++) {
    if (!s.by[i]) continue;
    *(s.by[i] > 0 ? from : less) = s.axis[i];
    keys += f->axes.at[s.axis[i]].role == AX_KEY;
    if (s.by[i] != 1 && s.by[i] != -1) return false;
    n++;
  }
  return n == 2 && keys == 1 && f->axes.at[*from].role <= AX_KEY &&
         f->axes.at[*less].role <= AX_KEY;
}

// The one index of the load that is a difference; the others vary with neither
// axis.
static bool find_index(const Func *f, const Op *load, Band *b, uint32_t *from,
                       uint32_t *less) {
  b->pos = 0;
  for (uint32_t i = 1; i < load->nargs && !b->pos; i++)
    if (is_difference(f, load->args[i], from, less)) b->pos = i;
  for (uint32_t i = 1; b->pos && i < load->nargs; i++) {
    const Type *t = ir_type(f, load->args[i]);
    if (i != b->pos && (type_has_axis(t, *from) || type_has_axis(t, *less)))
      return false;
  }
  return b->pos != 0;
}

bool band_of(const Func *f, const Op *dot, Band *b) {
  const IrAttr *over = dot->code == OP_DOT ? ir_attr(dot, AT_OVER) : NULL;
  if (!over || over->n != 1 || dot->nargs > 2 ||
      f->axes.at[over->list[0]].role != AX_VEC)
    return false;
  for (b->table = 0; b->table < 2; b->table++) {
    const Op *load = ir_def(f, dot->args[b->table]);
    const Type *x = ir_type(f, dot->args[1 - b->table]);
    uint32_t from = 0, less = 0;
    if (!load || load->code != OP_LOAD ||
        !find_index(f, load, b, &from, &less) ||
        type_has_axis(x, from) == type_has_axis(x, less))
      continue;
    b->back = type_has_axis(x, from);
    b->same = b->back ? from : less;
    b->other = b->back ? less : from;
    return true;
  }
  return false;
}
