// What is stored of a recurrence besides reads, which chunks have anyway: what
// the only write that erases writes, and the state in front of steps that begin
// a block.
//
//   before  %e = sub(%w, dot(%a, %S)); store(%E, %e, ..)
//           store(%border, %S, t // 64, .., t % 64 == 0)
//   after   %M, %e, %S = affine(..) {.., written = true, front = 64}
//
// Gradients ask for both (passes/attn/grad_walk.c). At level stream.
#include "passes/stream/chunk.h"

// ---------------------------------------------------------------- writes
static bool is_negated(const Func *f, Value v, Value w) {
  const Op *op = ir_def(f, v);
  return op && op->code == OP_NEG && op->args[0] == w;
}

// Is w the value v, times f (0: 1), times -1 if it is turned?
static bool is_scaled(const Func *f, Value w, Value v, const ChunkWritten *x) {
  if (!w || !v) return !w && !v;
  const Op *op = ir_def(f, w);
  if (x->f) {
    if (!op || op->code != OP_MUL) return false;
    for (uint32_t i = 0; i < 2; i++)
      if (op->args[i] == x->f) {
        ChunkWritten rest = {.turned = x->turned};
        return is_scaled(f, op->args[1 - i], v, &rest);
      }
    return false;
  }
  return x->turned ? is_negated(f, w, v) || is_negated(f, v, w) : w == v;
}

// Is l what e is, times a factor of the step, times 1 or -1?
static bool same(const Chunk *c, const Lin *l, const Lin *e, ChunkWritten *x) {
  if (!e->n || l->n != e->n) return false;
  x->turned = l->term[0].k == -e->term[0].k;
  x->f = l->term[0].c == e->term[0].c ? 0 : l->term[0].c;
  for (uint32_t i = 0; i < e->n; i++) {
    const Term *a = &l->term[i], *b = &e->term[i];
    if (a->a != b->a || a->of != b->of || (x->f && b->c) ||
        a->c != (x->f ? x->f : b->c) || a->k != (x->turned ? -b->k : b->k))
      return false;
  }
  return is_scaled(c->f, l->w, e->w, x);
}

// The write of the state that erases, if it is the only one.
static const Write *eraser(const State *s) {
  const Write *found = NULL;
  for (uint32_t i = 0; s->last && i < s->last->n; i++) {
    if (!s->last->write[i]->e->n) continue;
    if (found) return NULL;
    found = s->last->write[i];
  }
  return found;
}

bool chunk_written(const Chunk *c, const Lin *l, ChunkWritten *found) {
  if (!l || c->reads_alone || c->f->mod->level == LV_ATTN) return false;
  for (uint32_t s = 0; s < c->n; s++) {
    const Write *w = eraser(&c->state[s]);
    *found = (ChunkWritten){.state = s};
    if (w && same(c, l, w->e, found)) return true;
  }
  return false;
}

// ---------------------------------------------------------------- borders
static bool is_step(const Chunk *c, Value v) {
  const Op *op = ir_def(c->f, v);
  return op && op->code == OP_INDEX && ir_attr_i(op, AT_AXIS, -1) == c->axis;
}

// v is t % n == rest: n, or 0.
static int64_t period(const Chunk *c, Value v, int64_t *rest) {
  const Op *eq = ir_def(c->f, v);
  const Op *mod = eq && eq->code == OP_EQ ? ir_def(c->f, eq->args[0]) : NULL;
  int64_t n;
  if (!mod || mod->code != OP_MOD || !is_step(c, mod->args[0]) ||
      !ir_const_whole(c->f, mod->args[1], &n) ||
      !ir_const_whole(c->f, eq->args[1], rest))
    return 0;
  return n;
}

// t is the last step.
static bool is_end(const Chunk *c, Value v) {
  DimTab *d = &c->f->mod->dims;
  const Op *eq = ir_def(c->f, v);
  const Op *last = eq && eq->code == OP_EQ ? ir_def(c->f, eq->args[1]) : NULL;
  if (!last || !is_step(c, eq->args[0])) return false;
  Dim extent = c->f->axes.at[c->axis].extent;
  Dim want = dim_bin(d, DIM_ADD, extent, dim_const(d, -1));
  int64_t k;
  if (last->code == OP_DIM) return (Dim)ir_attr_i(last, AT_DIM, 0) == want;
  return ir_const_whole(c->f, eq->args[1], &k) && dim_const(d, k) == want;
}

// The store takes what is in front of blocks of so many steps; 0: it does not.
static int64_t block_of(const Chunk *c, const Op *store) {
  if (!ir_attr_i(store, AT_MASKED, 0)) return 0;
  Value mask = store->args[store->nargs - 1];
  int64_t rest, n = period(c, mask, &rest);
  if (!ir_attr_i(c->recur, AT_REVERSE, 0)) return n && rest == 0 ? n : 0;
  const Op *either = ir_def(c->f, mask);
  if (!either || either->code != OP_OR || !is_end(c, either->args[1])) return 0;
  n = period(c, either->args[0], &rest);
  return n && rest == n - 1 ? n : 0;
}

bool chunk_front(Chunk *c, const Mat *m, const Op *store) {
  if (c->f->mod->level == LV_ATTN || c->valid || m->state < 0 || m->g || m->n)
    return false;
  int64_t n = block_of(c, store);
  Affine *a = &c->state[m->state].affine;
  if (n < 1 || (a->front && a->front != n)) return false;
  a->front = n;
  return true;
}
