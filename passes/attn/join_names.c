// join_names: two names of a vector's coordinates, never beside each other, are
// one.
//
//   before  axes(b par B, t step S, d vec 16, e vec 16, g vec 16)
//           %x = select(eq(%e, %d), %u, 0)      %u: f32{b,d}
//           %y = select(eq(%e, %g), %v, 0)      %v: f32{b,g}
//   after   axes(b par B, t step S, e vec 16, g vec 16)
//           %x = select(eq(%e, %g), %u, 0)      %u: f32{b,g}
//           %y = select(eq(%e, %g), %v, 0)      %v: f32{b,g}
//
// `inline` brings a vector to another axis by a sum with one term, where it
// cannot make it along that axis, and each vector of a text may have an axis of
// its own. So what steps multiply by a matrix would be there along one axis for
// each place that reads it, and the states as rows for one and as columns for
// the other. All targets, in front of gradients. Level attn, behind inline.
// Tests: test/passes/join_names.
#include "ir/deps.h"
#include "passes/pass.h"
#include "passes/support/outline.h"
#include "passes/support/rebuild.h"

typedef struct Names {
  Func *f;
  uint64_t beside[64];  // per axis: those that an op has beside it
  uint64_t named[64];   // those whose coordinates are compared with its own
  uint32_t to[64];      // per axis of f: that of the new function
} Names;

static uint64_t bit(uint32_t axis) {
  return (uint64_t)1 << axis;
}

static void note(void *data, Op *op) {
  Names *n = data;
  uint64_t set = 0;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (ir_type(n->f, op->args[i])->kind == TK_ELEM)
      set |= ir_axes_of(n->f, op->args[i]);
  for (uint32_t i = 0; i < op->nres; i++)
    if (ir_type(n->f, op->res[i])->kind == TK_ELEM)
      set |= ir_axes_of(n->f, op->res[i]);
  for (uint32_t i = 0; i < n->f->axes.n; i++)
    if (set & bit(i)) n->beside[i] |= set;
  if (op->code != OP_EQ) return;
  int x = ir_index_axis(n->f, op->args[0]);
  int y = ir_index_axis(n->f, op->args[1]);
  if (x < 0 || y < 0 || x == y) return;
  n->named[x] |= bit((uint32_t)y);
  n->named[y] |= bit((uint32_t)x);
}

static bool is_one(const Names *n, uint32_t i, uint32_t j) {
  const Axis *a = &n->f->axes.at[i], *b = &n->f->axes.at[j];
  return a->role == AX_VEC && b->role == AX_VEC && a->extent == b->extent &&
         n->named[i] & n->named[j] && !(n->beside[i] & bit(j));
}

// Without axis `from`, which is `with`.
static Func *joined(Names *n, uint32_t from, uint32_t with) {
  Func *out = rebuild_params(n->f->mod, n->f);
  for (uint32_t i = 0; i < n->f->axes.n; i++) {
    const Axis *a = &n->f->axes.at[i];
    if (i != from) n->to[i] = ir_axis(out, a->name, a->role, a->extent);
  }
  n->to[from] = n->to[with];
  ValueMap map = {.arena = n->f->mod->arena};
  outline_params(&map, n->f, out);
  Builder b = {.fn = out, .region = out->body};
  for (const Op *op = n->f->body->first; op; op = op->next) {
    b.span = op->span;
    ir_clone(&b, n->f, op, &map, n->to);
  }
  return out;
}

static bool visit(Ctx *cx, Func **f) {
  Names n = {.f = *f};
  ir_walk(n.f->body, note, &n);
  for (uint32_t i = 0; i < n.f->axes.n; i++)
    for (uint32_t j = i + 1; j < n.f->axes.n; j++) {
      if (!is_one(&n, i, j)) continue;
      ctx_remark(cx, "%s: %s and %s are names of one axis", n.f->name,
                 n.f->axes.at[i].name, n.f->axes.at[j].name);
      *f = joined(&n, i, j);
      return true;
    }
  return false;
}

bool pass_join_names(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    while (m->funcs.at[i]->kind == FK_PROGRAM && m->funcs.at[i]->axes.n <= 64 &&
           visit(cx, &m->funcs.at[i]))
      continue;
  return true;
}
