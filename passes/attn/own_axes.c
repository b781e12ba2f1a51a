// own_axes: a reduction inside of one over the same axis has an axis of its
// own.
//
//   before  axes(q par, k key, g key)                a row's sums for each g,
//           %l = reduce(%e) {over = [k]} : {q,g}     which is summed for each k
//           %p = divk(%e, %l) : {q,k,g}
//           %w = dot(%u, %p) {over = [g]} : {q,k}
//           %o = dot(%w, %v) {over = [k]} : {q}
//   after   axes(q par, k key, g key, k' key)
//           %l = reduce(%e') {over = [k']} : {q,g}   with %e' = %e at k'
//
// What varies with g is made in the loop over g, and the sum over g, which
// varies with k, in the loop over k. So the loop that makes %l stands inside of
// one over the keys, whose coordinate it must not be. It is a walk over all
// keys for each of them: a program is faster where the row's sums are outputs
// of a program of their own. Level attn, behind grad, whose sums over queries
// and keys are inside each other so. Tests: test/passes/own_axes/.
#include "ir/ir.h"
#include "passes/pass.h"

enum { MAX_DEPTH = 8, MAX_KEYS = 64 };

typedef struct Sums {
  Ctx *cx;
  Func *f;
  uint64_t *around;  // by result: the key axes whose loops it stands in
} Sums;

static uint64_t bit(int64_t axis) {
  return (uint64_t)1 << axis;
}

static bool is_key(const Func *f, int64_t axis) {
  return axis >= 0 && f->axes.at[axis].role == AX_KEY;
}

// The key axes that op walks along.
static uint64_t walked(const Func *f, const Op *op) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  uint64_t set = 0;
  for (uint32_t i = 0; over && i < over->n; i++)
    if (is_key(f, over->list[i])) set |= bit(over->list[i]);
  int64_t axis = op->code == OP_SCAN ? ir_attr_i(op, AT_AXIS, -1) : -1;
  return is_key(f, axis) ? set | bit(axis) : set;
}

static uint64_t free_keys(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  uint64_t set = 0;
  for (uint32_t i = 0; t->kind == TK_ELEM && i < t->n; i++)
    if (is_key(f, t->axis[i])) set |= bit(t->axis[i]);
  return set;
}

// Adds to the loops around op those of what depends on it.
static void find_around(Sums *s, const Op *op) {
  Value v = op->res[0];
  uint64_t keys = free_keys(s->f, v), set = 0;
  if (!keys) return;
  bool *made = NEWN(&s->cx->scratch, bool, s->f->values.n);
  made[v] = true;
  for (const Op *o = op->next; o; o = o->next) {
    bool some = false;
    for (uint32_t i = 0; i < o->nargs && !some; i++) some = made[o->args[i]];
    for (uint32_t i = 0; some && i < o->nres; i++) made[o->res[i]] = true;
    uint64_t at = some && o->nres == 1 ? walked(s->f, o) : 0;
    if (at & keys) set |= at | s->around[o->res[0]];
  }
  s->around[v] = set;
}

// The first axis along which a sum stands inside of another, -1: none does.
static int64_t find(Sums *s) {
  int64_t found = -1;
  s->around = NEWN(&s->cx->scratch, uint64_t, s->f->values.n);
  for (const Op *op = s->f->body->last; op; op = op->prev) {
    uint64_t at = op->nres == 1 ? walked(s->f, op) : 0;
    if (!at) continue;
    find_around(s, op);
    uint64_t both = at & s->around[op->res[0]];
    for (int64_t i = 0; both && op->code != OP_SCAN && i < MAX_KEYS; i++)
      if (both & bit(i)) found = i;
  }
  return found;
}

// ---------------------------------------------------------------- clones
typedef struct Own {
  Func *f;
  Builder b;
  ValueMap map;
  uint32_t axis, own;
  const uint32_t *axes;  // of f: the same, but `own` for `axis`
} Own;

// v at the coordinate of the new axis.
static Value moved(Own *o, Value v) {
  const Op *op = ir_def(o->f, v);
  const Type *t = ir_type(o->f, v);
  if (!op || t->kind != TK_ELEM || !type_has_axis(t, o->axis)) return v;
  if (v < o->map.n && o->map.to[v]) return o->map.to[v];
  for (uint32_t i = 0; i < op->nargs; i++) moved(o, op->args[i]);
  ir_clone(&o->b, o->f, op, &o->map, o->axes);
  return o->map.to[v];
}

static Own own_of(Sums *s, uint32_t axis, uint32_t own, const uint32_t *axes) {
  return (Own){.f = s->f,
               .map = {.arena = s->f->mod->arena},
               .axis = axis,
               .own = own,
               .axes = axes};
}

static void begin_at(Own *o, Op *before) {
  o->b = (Builder){.fn = o->f,
                   .region = o->f->body,
                   .before = before,
                   .span = before->span};
}

static void copy_domain(Own o) {
  for (Op *op = o.f->body->first; op; op = op->next) {
    if (op->code != OP_DOMAIN || ir_attr_i(op, AT_AXIS, -1) != o.axis) continue;
    begin_at(&o, op);
    Value v = moved(&o, op->args[0]);
    if (v != op->args[0]) vmap_put(&o.map, op->args[0], v);
    ir_clone(&o.b, o.f, op, &o.map, o.axes);
    return;
  }
}

// Every sum along `axis` that stands inside of one.
static void rename_inner(Sums *s, uint32_t axis) {
  Func *f = s->f;
  const char *name =
      arena_printf(f->mod->arena, "%s_own", f->axes.at[axis].name);
  uint32_t own = ir_axis(f, name, AX_KEY, f->axes.at[axis].extent);
  uint32_t *axes = NEWN(f->mod->arena, uint32_t, f->axes.n + 1);
  uint32_t known = f->values.n;
  for (uint32_t i = 0; i < f->axes.n; i++) axes[i] = i == axis ? own : i;
  Own o = own_of(s, axis, own, axes);
  copy_domain(own_of(s, axis, own, axes));
  for (Op *op = f->body->first; op; op = op->next) {
    bool old = op->nres == 1 && op->res[0] < known;
    if (!old || op->code == OP_SCAN || !(walked(f, op) & bit(axis)) ||
        !(s->around[op->res[0]] & bit(axis)))
      continue;
    begin_at(&o, op);
    for (uint32_t i = 0; i < op->nargs; i++)
      op->args[i] = moved(&o, op->args[i]);
    IrAttr over = *ir_attr(op, AT_OVER);
    int64_t *list = NEWN(f->mod->arena, int64_t, over.n);
    for (uint32_t i = 0; i < over.n; i++) list[i] = axes[over.list[i]];
    over.list = list;
    ir_set_attr(f, op, over);
  }
}

static bool run(Ctx *cx, Func *f) {
  Sums s = {.cx = cx, .f = f};
  int64_t axis;
  for (int i = 0; (axis = find(&s)) >= 0; i++) {
    if (i == MAX_DEPTH || f->axes.n >= MAX_KEYS) {
      diag_add(cx, DIAG_pass_unsupported, NOWHERE,
               "sums over the same indices are inside each other more than 8 "
               "deep");
      return false;
    }
    ctx_remark(cx,
               "own_axes: @%s: a sum over %s is made for each %s: sums of rows "
               "as outputs of a program of their own are faster",
               f->name, f->axes.at[axis].name, f->axes.at[axis].name);
    rename_inner(&s, (uint32_t)axis);
  }
  return true;
}

bool pass_own_axes(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  bool ok = true;
  for (uint32_t i = 0; i < m->funcs.n && ok; i++)
    if (m->funcs.at[i]->kind == FK_PROGRAM) ok = run(cx, m->funcs.at[i]);
  return ok;
}
