// What kernels of one program make ahead is often the same: those of keys and
// of queries of a gradient rotate the same vectors. A kernel reads what a phase
// in front of one before it has stored already:
//
//   before  func @g.keys.made(..) { store(%x.made, %x, %b, %h, %q, %d) }
//           func @g.keys(..)      { .. load(%x.made, ..) .. }
//           func @g(..)           { .. x again, to be made .. }
//   after   func @g(..)           { .. load(%x.made, ..) .. }
//
// Values of two functions are the same if their ops are, with the axes of the
// copy for one another. Copies whose excluded rows are cleared stay apart.
#include "ir/facts.h"
#include "passes/attn/materialize.h"

#include <string.h>

enum { MAX_SAME = 4096 };  // ops that are compared

typedef struct Same {
  const Ahead *a;
  const Made *m;
  const Func *h;    // the phase
  uint32_t to[64];  // axes of a->f: of the phase, or UINT32_MAX
  uint32_t ops;
} Same;

static bool is_same(Same *s, Value v, Value w);

static int param_at(const Func *f, Value v) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == v) return (int)i;
  return -1;
}

// The other's parameters begin with those of the phase.
static bool same_param(const Same *s, Value v, Value w) {
  int i = param_at(s->a->f, v);
  return i >= 0 && i == param_at(s->h, w);
}

static bool is_index(const Same *s, uint32_t axis, Value w) {
  const Op *op = ir_def(s->h, w);
  return op && op->code == OP_INDEX && s->to[axis] != UINT32_MAX &&
         ir_attr_i(op, AT_AXIS, -1) == (int64_t)s->to[axis];
}

static bool same_axes(const Same *s, const IrAttr *x, const IrAttr *y) {
  if (!x || !y || x->n != y->n) return false;
  for (uint32_t i = 0; i < x->n; i++)
    if ((int64_t)s->to[x->list[i]] != y->list[i]) return false;
  return true;
}

static bool same_attr(const Same *s, const IrAttr *x, const IrAttr *y) {
  if (x->id != y->id) return false;
  if (x->id == AT_AXIS) return (int64_t)s->to[x->i] == y->i;
  if (x->id == AT_OVER) return same_axes(s, x, y);
  return ir_same_attr(x, y);
}

static Value uncast(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  return op && op->code == OP_CAST ? op->args[0] : v;
}

// The phase has an inner product as a sum.
static bool same_inner(Same *s, const Op *dot, const Op *sum) {
  const Op *mul = sum->code == OP_REDUCE ? ir_def(s->h, sum->args[0]) : NULL;
  if (!mul || mul->code != OP_MUL ||
      ir_attr_i(sum, AT_KIND, -1) != (int64_t)RK_SUM ||
      !same_axes(s, ir_attr(dot, AT_OVER), ir_attr(sum, AT_OVER)))
    return false;
  for (uint32_t i = 0; i < 2; i++)
    if (!is_same(s, uncast(s->a->f, dot->args[i]), uncast(s->h, mul->args[i])))
      return false;
  return true;
}

// The phase reads a table that the kernel is to read too.
static bool same_table(Same *s, const Made *t, const Read *read, Value w) {
  const Op *op = ir_def(s->h, w);
  uint32_t axis[64], n = materialize_axes(s->a, t, axis);
  if (!t->shared || !op || op->code != OP_LOAD || op->nargs != n + 1 ||
      !same_param(s, t->tensor, op->args[0]))
    return false;
  for (uint32_t i = 0; i < n; i++) {
    Value at = op->args[1 + i];
    const Op *mod = ir_def(s->h, at);
    int64_t cols;
    if (i == n - 1 && mod && mod->code == OP_MOD &&
        ir_const_whole(s->h, mod->args[1], &cols) && cols == t->cols)
      at = mod->args[0];
    if (!is_index(s, axis[i] == t->row ? read->row : axis[i], at)) return false;
  }
  return true;
}

static bool same_ops(Same *s, const Op *x, const Op *y) {
  bool swap = op_info(x->code)->flags & OPF_COMM && x->nargs == 2;
  for (uint32_t k = 0; k <= swap; k++) {
    uint32_t i = 0;
    while (i < x->nargs && is_same(s, x->args[k ? 1 - i : i], y->args[i])) i++;
    if (i == x->nargs) return true;
  }
  return false;
}

static bool is_same(Same *s, Value v, Value w) {
  const Func *f = s->a->f;
  const Op *x = ir_def(f, v), *y = ir_def(s->h, w);
  const Read *read;
  if (!x || !y) return !x && !y && same_param(s, v, w);
  if (s->ops++ == MAX_SAME) return false;
  for (uint32_t i = 0; i < f->axes.n; i++)
    if ((s->m->from.grouped >> i & 1) && s->m->from.group[i] == v)
      return is_index(s, i, w);
  const Made *t = materialize_made(s->a, v, &read);
  if (t && t->table && t != s->m) return same_table(s, t, read, w);
  if (materialize_is_inner(s->a, x)) return same_inner(s, x, y);
  if (x->code != y->code || x->nargs != y->nargs || x->nres != 1 ||
      x->nattrs != y->nattrs || ir_type(f, v)->dtype != ir_type(s->h, w)->dtype)
    return false;
  for (uint32_t i = 0; i < x->nattrs; i++)
    if (!same_attr(s, &x->attrs[i], &y->attrs[i])) return false;
  return same_ops(s, x, y);
}

static bool is_coordinate(Same *s, uint32_t axis, Value v) {
  const Op *at = ir_def(s->h, v);
  if (!at || at->code != OP_INDEX) return false;
  s->to[axis] = (uint32_t)ir_attr_i(at, AT_AXIS, 0);
  return true;
}

// Of packed rows, as materialize_open says it: row + load(offsets, sequence).
static bool is_place(Same *s, Value v) {
  const Op *add = ir_def(s->h, v);
  const Op *load = add && add->code == OP_ADD
                       ? ir_def(s->h, uncast(s->h, add->args[1]))
                       : NULL;
  return load && load->code == OP_LOAD && load->nargs == 2 &&
         is_coordinate(s, s->m->row, add->args[0]) &&
         is_coordinate(s, s->m->packed.batch, load->args[1]) &&
         is_same(s, s->m->packed.place, v);
}

// Is what the phase stores there m?
static bool stores(const Ahead *a, const Made *m, const Func *h,
                   const Op *store) {
  Same s = {.a = a, .m = m, .h = h};
  uint32_t axis[64], n = materialize_axes(a, m, axis), k = 2;
  bool packed = m->packed.place != 0;
  if (store->nargs != n + 2 - packed) return false;
  memset(s.to, 0xff, sizeof s.to);
  for (uint32_t i = 0; i < n; i++) {
    if (packed && axis[i] == m->packed.batch) continue;
    Value at = store->args[k++];
    bool row = packed && axis[i] == m->row;
    if (!(row ? is_place(&s, at) : is_coordinate(&s, axis[i], at)))
      return false;
  }
  return is_same(&s, m->v, store->args[1]);
}

// The parameter of a->f that is the tensor of that store, or 0.
static Value tensor_of(const Ahead *a, const Made *m, const Func *h,
                       const Op *store) {
  Type t;
  int at = param_at(h, store->args[0]);
  if (at < 0 || (uint32_t)at >= a->f->params.n) return 0;
  const FuncParam *own = &a->f->params.at[at], *its = &h->params.at[at];
  bool fits = own->role == PR_SHARED && its->role == PR_SHARED &&
              ir_info(a->f, own->v)->hint == ir_info(h, its->v)->hint &&
              materialize_type(a, m, &t) && type_eq(&t, ir_type(a->f, own->v));
  return fits && stores(a, m, h, store) ? own->v : 0;
}

static void look(const Ahead *a, Made *m) {
  const Module *mod = a->f->mod;
  const Func *last = outline_last(a->f);
  for (uint32_t i = 0; mod->funcs.at[i] != a->f && !m->shared; i++) {
    const Func *h = mod->funcs.at[i];
    if (!ir_is_phase(h, last->name)) continue;
    for (const Op *op = h->body->first; op && !m->shared; op = op->next) {
      if (op->code != OP_STORE) continue;
      m->tensor = tensor_of(a, m, h, op);
      m->shared = m->tensor != 0;
    }
  }
}

void materialize_share(Ahead *a) {
  for (int table = 1; table >= 0; table--)
    for (uint32_t i = 0; i < a->n; i++) {
      Made *m = &a->made[i];
      if (m->table == table && !materialize_cleans(a, m)) look(a, m);
    }
}
