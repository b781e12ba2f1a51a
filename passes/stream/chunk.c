// chunk: brings recurrences into the normal form, of which chunks of many
// steps can be computed at once.
//
//   before  %M = recur(%S0) {axis = t} ({ ^(%S: f32{b,h,d,e}):
//             %x = mul(exp(%g), %S); %y = add(%x, mul(%k, %v))
//             store(%O, dot(%q, %y), ..); yield(%y) })
//   after   %M, %o = affine(%S0, mul(%g, log2 e), %k, %v, %q)
//             {axis = t, over = [d], writes = [-2], reads = [1], decay = true}
//           store(%O, %o, ..)
//
// Needs: level stream. The step is executed symbolically (chunk_alg.c), its
// decay brought to logarithms (chunk_log.c) and its reads to versions of the
// state (chunk_norm.c). A recurrence that has no normal form stays a `recur`;
// a remark says why. Tests: test/passes/chunk.
#include "passes/stream/chunk.h"

#include "passes/support/range.h"
#include <stdio.h>
#include <string.h>

bool chunk_fail(Chunk *c, const Op *at, const char *reason) {
  if (c->reason) return false;
  c->why = at;
  c->reason = reason;
  return false;
}

// ---------------------------------------------------------------- axes
static bool is_vec(const Chunk *c, uint32_t axis) {
  return c->f->axes.at[axis].role == AX_VEC;
}

static uint32_t vec_axes(const Chunk *c, const Type *t, uint32_t *out) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->n; i++)
    if (is_vec(c, t->axis[i])) out[n++] = t->axis[i];
  return n;
}

typedef struct Deps {  // per value: bit per state it depends on
  Chunk *c;
  uint32_t *on;
  uint32_t n;
  bool mixed;  // a state is read along both of its axes
} Deps;

static uint32_t deps_of(const Deps *d, Value v) {
  return v < d->n ? d->on[v] : 0;
}

static void see_read(Deps *d, const Op *op) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  for (uint32_t i = 0; i < op->nargs; i++) {
    uint32_t on = deps_of(d, op->args[i]);
    const Type *t = ir_type(d->c->f, op->args[i]);
    for (uint32_t s = 0; s < d->c->n; s++) {
      State *st = &d->c->state[s];
      if (!(on >> s & 1) || st->col < 0) continue;
      if (!type_has_axis(t, (uint32_t)st->row) ||
          !type_has_axis(t, (uint32_t)st->col) || over->n != 1)
        continue;
      bool swap = over->list[0] == st->col;
      if (!swap && over->list[0] != st->row) continue;
      d->mixed |= swap && st->read;
      st->read = true;
      if (!swap) continue;
      int row = st->row;
      st->row = st->col;
      st->col = row;
    }
  }
}

static void propagate(void *data, Op *op) {
  Deps *d = data;
  uint32_t on = 0;
  for (uint32_t i = 0; i < op->nargs; i++) on |= deps_of(d, op->args[i]);
  for (uint32_t i = 0; i < op->nres; i++) d->on[op->res[i]] |= on;
  for (uint32_t i = 0; op->code == OP_RECUR && i < op->nargs; i++) {
    Value p = op->regions[0]->params.at[i];
    d->on[p] |= deps_of(d, op->args[i]);
    d->on[op->res[i]] |= d->on[p];
  }
  if (op->code == OP_DOT && on) see_read(d, op);
}

// The axis of each state that its reads contract is its row axis.
static bool find_axes(Chunk *c) {
  const Region *r = c->recur->regions[0];
  Deps d = {.c = c, .n = c->f->values.n};
  d.on = NEWN(c->arena, uint32_t, d.n + 1);
  for (uint32_t s = 0; s < c->n; s++) {
    uint32_t axis[MAX_AXES], n;
    n = vec_axes(c, ir_type(c->f, c->recur->res[s]), axis);
    if (n > 2) return chunk_fail(c, c->recur, "a state has more than two axes");
    c->state[s].scalar = n == 0;
    c->state[s].row = n ? (int)axis[0] : -1;
    c->state[s].col = n == 2 ? (int)axis[1] : -1;
    d.on[r->params.at[s]] = 1u << s;
  }
  ir_walk(c->recur->regions[0], propagate, &d);
  if (d.mixed)
    return chunk_fail(c, c->recur, "a state is read along both of its axes");
  for (uint32_t s = 0; s < c->n; s++)
    if (c->state[s].col >= 0 && chunk_is_row(c, (uint32_t)c->state[s].col))
      return chunk_fail(c, c->recur,
                        "rows of one state are columns of "
                        "another");
  return true;
}

// ---------------------------------------------------------------- execution
static SymValue value_of(const Chunk *c, Value v) {
  if (v < c->value.n && c->value.at[v].kind) return c->value.at[v];
  return (SymValue){.kind = SY_FREE, .v = vmap_get(&c->free, v)};
}

static void set_value(Chunk *c, Value v, SymValue x) {
  while (c->value.n <= v) vec_push(c->arena, &c->value, (SymValue){0});
  c->value.at[v] = x;
  if (x.kind == SY_FREE) vmap_put(&c->free, v, x.v);
}

static void clone_free(Chunk *c, const Op *op) {
  Value v = 0;
  if (op->code == OP_INDEX) v = c->fixed[ir_attr_i(op, AT_AXIS, 0)];
  if (!v) {
    Op *copy = ir_clone(&c->b, c->f, op, &c->free, NULL);
    if (op->nres) v = copy->res[0];
  }
  if (op->nres) set_value(c, op->res[0], (SymValue){.kind = SY_FREE, .v = v});
}

static bool execute(Chunk *c, const Region *r);

// A loop over the updates of one step, of a known count.
static bool unroll(Chunk *c, const Op *op) {
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  const Region *r = op->regions[0];
  int64_t lo, hi;
  dim_bounds(&c->f->mod->dims, c->f->axes.at[axis].extent, &lo, &hi);
  if (lo != hi || hi > MAX_UNROLL)
    return chunk_fail(
        c, op,
        "an inner loop whose count is not small and known (--dim R=2 fixes R)");
  SymValue x[MAX_STATES];
  for (uint32_t i = 0; i < op->nargs; i++) x[i] = value_of(c, op->args[i]);
  bool rev = ir_attr_i(op, AT_REVERSE, 0);
  for (int64_t k = 0; k < hi; k++) {
    c->fixed[axis] = ir_const_i(&c->b, DT_I64, rev ? hi - 1 - k : k);
    for (uint32_t i = 0; i < op->nargs; i++)
      set_value(c, r->params.at[i], x[i]);
    if (!execute(c, r)) return false;
    for (uint32_t i = 0; i < op->nargs; i++)
      x[i] = value_of(c, r->last->args[i]);
  }
  c->fixed[axis] = 0;
  for (uint32_t i = 0; i < op->nres; i++) set_value(c, op->res[i], x[i]);
  return true;
}

static bool execute_op(Chunk *c, const Op *op) {
  const OpInfo *info = op_info(op->code);
  if (op->code == OP_RECUR) return unroll(c, op);
  if (op->code == OP_STORE)
    return op->parent == c->recur->regions[0] ||
           chunk_fail(c, op, "an inner loop stores");
  if (op->code == OP_YIELD || op->code == OP_ASSUME) return true;
  if (!(info->flags & OPF_PURE) || op->nregions || op->nres != 1)
    return chunk_fail(c, op, "a step has reductions of its own");
  SymValue *x = NEWN(c->arena, SymValue, op->nargs + 1);
  bool free = true;
  for (uint32_t i = 0; i < op->nargs; i++) {
    x[i] = value_of(c, op->args[i]);
    free &= x[i].kind == SY_FREE;
  }
  if (free) clone_free(c, op);
  else set_value(c, op->res[0], chunk_op(c, op, x));
  return true;
}

static bool execute(Chunk *c, const Region *r) {
  for (const Op *op = r->first; op; op = op->next)
    if (!execute_op(c, op)) return false;
  return true;
}

static bool end_states(Chunk *c) {
  const Op *y = c->recur->regions[0]->last;
  for (uint32_t s = 0; s < c->n; s++) {
    if (c->state[s].scalar) continue;
    SymValue v = value_of(c, y->args[s]);
    if (v.kind == SY_LATE) return chunk_fail(c, v.why, v.reason);
    if (v.kind != SY_MAT)
      return chunk_fail(c, c->recur, "a state is replaced, not updated");
    c->state[s].last = v.mat;
  }
  return true;
}

// ---------------------------------------------------------------- limits
// The predicate t < n that every state and store of the region waits for:
// then the recurrence ends there.
static void find_limit(Chunk *c) {
  const Region *r = c->recur->regions[0];
  const Op *y = r->last, *s = y->nargs ? ir_def(c->f, y->args[0]) : NULL;
  Value p = s && s->code == OP_SELECT ? s->args[0] : 0;
  const Op *lt = p ? ir_def(c->f, p) : NULL;
  const Op *t = lt && lt->code == OP_LT ? ir_def(c->f, lt->args[0]) : NULL;
  if (!t || t->code != OP_INDEX || ir_attr_i(t, AT_AXIS, -1) != c->axis ||
      type_has_axis(ir_type(c->f, lt->args[1]), c->axis))
    return;
  for (uint32_t i = 0; i < y->nargs; i++) {
    s = ir_def(c->f, y->args[i]);
    if (!s || s->code != OP_SELECT || s->args[0] != p ||
        s->args[2] != r->params.at[i])
      return;
  }
  for (const Op *op = r->first; op; op = op->next)
    if (op->code == OP_STORE &&
        (!ir_attr_i(op, AT_MASKED, 0) || op->args[op->nargs - 1] != p))
      return;
  c->valid = p;
}

static bool set_limit(Chunk *c) {
  if (!c->valid) return true;
  SymValue n = value_of(c, ir_def(c->f, c->valid)->args[1]);
  if (n.kind != SY_FREE) return chunk_fail(c, c->recur, "its end is computed");
  c->limit = n.v;
  return true;
}

// ---------------------------------------------------------------- stores
// Memory that the step reads must not be what it writes.
static bool stores_are_apart(Chunk *c) {
  const Region *r = c->recur->regions[0];
  for (const Op *s = r->first; s; s = s->next) {
    if (s->code != OP_STORE) continue;
    for (const Op *l = r->first; l; l = l->next)
      if (l->code == OP_LOAD && l->args[0] == s->args[0])
        return chunk_fail(c, l, "a step reads what a step stores");
  }
  return true;
}

static bool want_value(Chunk *c, Value v, const Op *store) {
  SymValue x = value_of(c, v);
  ChunkWritten w;
  if (chunk_written(c, x.lin, &w))
    return c->state[w.state].affine.written = true;
  if (x.kind == SY_LIN) return chunk_norm_want(c, x.lin);
  if (x.kind == SY_MAT)
    return chunk_front(c, x.mat, store) ||
           chunk_fail(c, store, "the whole state of every step is used");
  if (x.kind != SY_LATE) return true;
  const Op *op = ir_def(c->f, v);
  if (!op || op->parent != c->recur->regions[0])
    return chunk_fail(c, x.why, x.reason);
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!want_value(c, op->args[i], store)) return false;
  return true;
}

// What is stored of a value: reads, what a write writes.
typedef struct Parts {
  bool reads, written;
} Parts;

static void parts_of(const Chunk *c, Value v, Parts *p) {
  SymValue x = value_of(c, v);
  ChunkWritten w;
  if (x.kind == SY_LIN) {
    bool written = chunk_written(c, x.lin, &w);
    p->written |= written;
    p->reads |= !written;
  }
  const Op *op = x.kind == SY_LATE ? ir_def(c->f, v) : NULL;
  for (uint32_t i = 0; op && i < op->nargs; i++) parts_of(c, op->args[i], p);
}

// Chunks have them along different axes: what takes both has reads alone.
static void choose_results(Chunk *c) {
  for (const Op *op = c->recur->regions[0]->first; op; op = op->next) {
    Parts p = {0};
    for (uint32_t i = 0; op->code == OP_STORE && i < op->nargs; i++)
      parts_of(c, op->args[i], &p);
    c->reads_alone |= p.reads && p.written;
  }
}

static bool want_stores(Chunk *c) {
  choose_results(c);
  for (const Op *op = c->recur->regions[0]->first; op; op = op->next)
    for (uint32_t i = 0; op->code == OP_STORE && i < op->nargs; i++)
      if (!want_value(c, op->args[i], op)) return false;
  return true;
}

// What is read of the states, or the only write that erases writes.
static Value linear(Chunk *c, Builder *b, const Lin *l) {
  ChunkWritten w;
  if (!chunk_written(c, l, &w)) return chunk_norm_value(c, b, l);
  const State *st = &c->state[w.state];
  Value e = st->op->res[affine_written_at(&st->affine)];
  if (w.f) e = ir_2(b, OP_MUL, w.f, e);
  return w.turned ? ir_1(b, OP_NEG, e) : e;
}

static Value late_value(Chunk *c, Builder *b, Value v) {
  SymValue x = value_of(c, v);
  if (x.kind == SY_FREE) return x.v;
  Value to = vmap_get(&c->free, v);
  if (to != v) return to;
  if (x.kind == SY_LIN) {
    to = ir_cast(b, ir_type(c->f, v)->dtype, linear(c, b, x.lin));
  } else if (x.kind == SY_MAT) {
    const State *st = &c->state[x.mat->state];
    to = st->op->res[affine_front_at(&st->affine)];
  } else {
    const Op *op = ir_def(c->f, v);
    for (uint32_t i = 0; i < op->nargs; i++) late_value(c, b, op->args[i]);
    to = ir_clone(b, c->f, op, &c->free, NULL)->res[0];
  }
  vmap_put(&c->free, v, to);
  return to;
}

static void emit_stores(Chunk *c, Builder *b) {
  for (const Op *op = c->recur->regions[0]->first; op; op = op->next) {
    if (op->code != OP_STORE) continue;
    for (uint32_t i = 0; i < op->nargs; i++) late_value(c, b, op->args[i]);
    ir_clone(b, c->f, op, &c->free, NULL);
  }
}

// ---------------------------------------------------------------- precision
static bool is_f64(const Chunk *c, Value v) {
  return v && ir_type(c->f, v)->dtype == DT_F64;
}

// Matrices of a chunk are f32: what asks for more goes step by step.
static bool fits_f32(Chunk *c) {
  for (uint32_t s = 0; s < c->n; s++) {
    const Affine *a = &c->state[s].affine;
    bool wide = is_f64(c, c->recur->res[s]) || is_f64(c, a->decay);
    for (uint32_t i = 0; i < a->nwrites; i++)
      wide |= is_f64(c, a->write[i].b) || is_f64(c, a->write[i].w) ||
              is_f64(c, a->write[i].a);
    for (uint32_t i = 0; i < a->nreads; i++) wide |= is_f64(c, a->read[i].q);
    if (wide) return chunk_fail(c, c->recur, "f64: chunks compute in f32");
  }
  return true;
}

// ---------------------------------------------------------------- the op
static void emit_state(Chunk *c, Builder *b, uint32_t s) {
  State *st = &c->state[s];
  if (st->scalar) {
    ir_replace_uses(c->f, c->recur->res[s], st->op->res[0]);
    return;
  }
  Type types[3 + AFFINE_MAX];
  Ranges ranges;
  range_init(&ranges, c->f, c->arena);
  if (st->affine.decay)
    st->affine.falling = range_of(&ranges, st->affine.decay).hi <= 0;
  types[0] = *ir_type(c->f, c->recur->res[s]);
  for (uint32_t i = 0; i < st->affine.nreads + st->affine.written; i++)
    types[i + 1] =
        type_with(type_without(types[0], st->affine.row), c->axis, DIM_NONE);
  if (st->affine.front)
    types[affine_front_at(&st->affine)] =
        type_with(types[0], c->axis, DIM_NONE);
  st->op = affine_op(b, &st->affine, types);
  Value v = st->op->res[0];
  ir_info(c->f, v)->hint = ir_info(c->f, c->recur->res[s])->hint;
  ir_replace_uses(c->f, c->recur->res[s], v);
}

static const char *decay_name(const Chunk *c, const State *s) {
  if (!s->affine.decay) return "no decay";
  const Type *t = ir_type(c->f, s->affine.decay);
  if (s->col >= 0 && type_has_axis(t, (uint32_t)s->col))
    return "a decay per column";
  if (type_has_axis(t, s->affine.row))
    return s->affine.falling ? "a decay per row"
                             : "a decay per row, not known "
                               "to be at most 1";
  return type_has_axis(t, c->axis) ? "a scalar decay" : "a constant decay";
}

static void remark(const Chunk *c, const State *s) {
  const Affine *a = &s->affine;
  bool delta = false, pre = false;
  if (s->scalar) {
    ctx_remark(c->cx, "chunk: @%s: state %s: a running maximum", c->f->name,
               ir_info(c->f, s->op->res[0])->hint);
    return;
  }
  for (uint32_t i = 0; i < a->nwrites; i++) delta |= a->write[i].a != 0;
  for (uint32_t i = 0; i < a->nreads; i++)
    pre |= a->read[i].from == AFFINE_PRE && a->decay;
  ctx_remark(c->cx,
             "chunk: @%s: state %s: %s class, %s, %u write%s per step, "
             "read %s",
             c->f->name, ir_info(c->f, s->op->res[0])->hint,
             delta ? "delta" : "additive", decay_name(c, s), a->nwrites,
             a->nwrites == 1 ? "" : "s",
             !a->nreads ? "never"
             : pre      ? "before the step"
                        : "after it");
}

static void emit(Chunk *c) {
  Builder b = c->b;
  b.span = c->recur->span;
  for (uint32_t s = 0; s < c->n; s++) emit_state(c, &b, s);
  emit_stores(c, &b);
  for (uint32_t s = 0; s < c->n; s++) remark(c, &c->state[s]);
  ir_erase(c->recur);
}

// ---------------------------------------------------------------- the pass
static void remark_kept(const Chunk *c) {
  const Op *at = c->why && span_known(c->why->span) ? c->why : c->recur;
  const char *hint = c->n ? ir_info(c->f, c->recur->res[0])->hint : NULL;
  uint32_t line = 0;
  if (span_known(at->span))
    line = src_linecol(c->cx->sources.at[at->span.src], at->span.lo).line;
  ctx_remark(c->cx, "chunk: @%s: state %s goes step by step: line %u: %s",
             c->f->name, hint ? hint : "?", line, c->reason);
}

static bool derive(Chunk *c) {
  const Region *r = c->recur->regions[0];
  if (c->n == 0 || c->n > MAX_STATES)
    return chunk_fail(c, c->recur, "no states, or too many");
  if (!find_axes(c) || !stores_are_apart(c)) return false;
  find_limit(c);
  for (uint32_t s = 0; s < c->n; s++) {
    if (c->state[s].scalar && !chunk_max_state(c, s)) return false;
  }
  for (uint32_t s = 0; s < c->n; s++) {
    if (c->state[s].scalar) continue;
    const Mat *m = chunk_mat(c, (int)s, 0, NULL, 0);
    set_value(c, r->params.at[s], (SymValue){.kind = SY_MAT, .mat = m});
  }
  return execute(c, r) && end_states(c) && set_limit(c) &&
         chunk_norm_states(c) && want_stores(c) && fits_f32(c);
}

static Chunk begin(Ctx *cx, Func *f, Op *op) {
  Chunk c = {.cx = cx,
             .arena = &cx->scratch,
             .f = f,
             .recur = op,
             .n = op->nargs,
             .free.arena = &cx->scratch};
  c.axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  c.b =
      (Builder){.fn = f, .region = op->parent, .before = op, .span = op->span};
  c.fixed = NEWN(c.arena, Value, f->axes.n + 1);
  return c;
}

bool chunk_has_form(Ctx *cx, Func *f, Op *op) {
  Chunk c = begin(cx, f, op);
  return derive(&c);
}

static void run(Ctx *cx, Func *f, Op *op) {
  Chunk c = begin(cx, f, op);
  if (!derive(&c)) {
    remark_kept(&c);
    return;
  }
  emit(&c);
  for (uint32_t s = 0; s < c.n; s++) {
    if (c.state[s].scalar || c.state[s].row < 0) continue;
    chunk_sums(f, (uint32_t)c.state[s].row);
    break;
  }
}

// True if another recurrence of the function walks the axis.
static bool shares_axis(const Func *f, const Op *op) {
  int64_t axis = ir_attr_i(op, AT_AXIS, -1);
  for (const Op *o = f->body->first; o; o = o->next)
    if (o != op && (o->code == OP_RECUR || o->code == OP_AFFINE) &&
        ir_attr_i(o, AT_AXIS, -1) == axis)
      return true;
  return false;
}

bool pass_chunk(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    for (Op *op = f->body->first, *next; op; op = next) {
      next = op->next;
      if (op->code != OP_RECUR) continue;
      if (opt->chunk == 1)
        ctx_remark(cx, "chunk: @%s: step by step, as asked for", f->name);
      else if (!shares_axis(f, op)) run(cx, f, op);
    }
  }
  return true;
}
