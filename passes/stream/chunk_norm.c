// The normal form: every version of a state that is read becomes the state
// before the step, or the decayed state after n writes, plus products of
// vectors.
//
//   q^T (S + u k v^T), S before the step   ->  q^T S + (q . u k) v    a bonus
#include "passes/stream/chunk.h"

typedef struct Place {
  int from;       // version
  Value fold;     // log2 of a decay that the reading vector takes, or 0
  uint32_t skip;  // the first write that the version does not contain
} Place;

static Place place_of(const Chunk *c, const Mat *m) {
  const Mat *last = c->state[m->state].last;
  if (m->g == last->g) {
    uint32_t p = 0;
    while (p < m->n && p < last->n && m->write[p] == last->write[p]) p++;
    return (Place){.from = (int)p, .skip = p};
  }
  return (Place){.from = AFFINE_PRE, .fold = m->g};
}

static Value times(Chunk *c, Value x, double k) {
  if (k == 1) return x;
  if (k == -1) return ir_1(&c->b, OP_NEG, x);
  return ir_2(&c->b, OP_MUL, x, ir_const_f(&c->b, ir_type(c->f, x)->dtype, k));
}

static Value product(Builder *b, Value x, Value y) {
  return !x ? y : !y ? x : ir_2(b, OP_MUL, x, y);
}

static Value sum(Builder *b, Value x, Value y) {
  return !x ? y : !y ? x : ir_2(b, OP_ADD, x, y);
}

// A decay of columns is none of what reads along the rows.
static bool folds(Chunk *c, const Place *p) {
  const Type *t = p->fold ? ir_type(c->f, p->fold) : NULL;
  for (uint32_t i = 0; t && i < t->n; i++)
    if (chunk_is_col(c, t->axis[i]))
      return chunk_fail(c, c->recur, "a read in front of a decay of columns");
  return true;
}

static Value folded(Chunk *c, Value a, Value fold) {
  return fold ? product(&c->b, ir_1(&c->b, OP_EXP2, fold), a) : a;
}

// ---------------------------------------------------------------- writes
// What the writes that a version has beyond its place add to a read of it.
static bool add_skipped(Chunk *c, const Term *t, const Place *p, Value *w) {
  uint32_t row = (uint32_t)c->state[t->of->state].row;
  for (uint32_t k = p->skip; k < t->of->n; k++) {
    const Write *o = t->of->write[k];
    if (o->e->n)
      return chunk_fail(c, c->recur,
                        "an update reads what another update, "
                        "that is not part of the state, has read");
    Value s = product(&c->b, ir_dot(&c->b, t->a, o->b, &row, 1), t->c);
    *w = sum(&c->b, *w, times(c, product(&c->b, s, o->e->w), t->k));
  }
  return true;
}

static bool norm_write(Chunk *c, uint32_t s, uint32_t i, AffineWrite *to) {
  const Write *write = c->state[s].last->write[i];
  const Lin *e = write->e;
  *to = (AffineWrite){.b = write->b, .w = e->w, .from = AFFINE_PLAIN};
  for (uint32_t j = 0; j < e->n; j++) {
    const Term *t = &e->term[j];
    if (t->of->state != (int)s)
      return chunk_fail(c, c->recur, "the update of a state reads another");
    Place p = place_of(c, t->of);
    if (p.from > (int)i || (to->a && p.from != to->from))
      return chunk_fail(c, c->recur,
                        "an update reads two versions of the "
                        "state");
    if (!folds(c, &p) || !add_skipped(c, t, &p, &to->w)) return false;
    Value a = product(&c->b, t->c, folded(c, t->a, p.fold));
    to->a = sum(&c->b, to->a, times(c, a, -t->k));
    to->from = p.from;
  }
  if (!to->w) to->w = ir_const_f(&c->b, DT_F32, 0);
  return true;
}

static bool norm_state(Chunk *c, uint32_t s) {
  State *st = &c->state[s];
  if (st->last->state != (int)s)
    return chunk_fail(c, c->recur, "a state takes the place of another");
  if (st->last->n > AFFINE_MAX)
    return chunk_fail(c, c->recur, "too many updates in one step");
  Affine *a = &st->affine;
  *a = (Affine){.axis = c->axis,
                .row = (uint32_t)st->row,
                .state = c->recur->args[s],
                .decay = st->last->g,
                .limit = c->limit};
  a->reverse = ir_attr_i(c->recur, AT_REVERSE, 0);
  a->nwrites = st->last->n;
  for (uint32_t i = 0; i < a->nwrites; i++)
    if (!norm_write(c, s, i, &a->write[i])) return false;
  return true;
}

bool chunk_norm_states(Chunk *c) {
  for (uint32_t s = 0; s < c->n; s++)
    if (!c->state[s].scalar && !norm_state(c, s)) return false;
  return true;
}

// ---------------------------------------------------------------- reads
static const Want *wanted(const Chunk *c, const Term *t) {
  for (uint32_t i = 0; i < c->wants.n; i++)
    if (c->wants.at[i].a == t->a && c->wants.at[i].of == t->of)
      return &c->wants.at[i];
  return NULL;
}

static bool want_term(Chunk *c, const Term *t) {
  if (wanted(c, t)) return true;
  Affine *a = &c->state[t->of->state].affine;
  Place p = place_of(c, t->of);
  if (!folds(c, &p)) return false;
  if (a->nreads == AFFINE_MAX)
    return chunk_fail(c, c->recur, "too many reads of one state");
  AffineRead r = {folded(c, t->a, p.fold), p.from};
  uint32_t at = 0;
  while (at < a->nreads && (a->read[at].q != r.q || a->read[at].from != r.from))
    at++;
  if (at == a->nreads) a->read[a->nreads++] = r;
  vec_push(c->arena, &c->wants, ((Want){t->a, t->of, at, p.skip}));
  for (uint32_t k = p.skip; k < t->of->n; k++)
    if (!chunk_norm_want(c, t->of->write[k]->e)) return false;
  return true;
}

bool chunk_norm_want(Chunk *c, const Lin *l) {
  for (uint32_t i = 0; i < l->n; i++)
    if (!want_term(c, &l->term[i])) return false;
  return true;
}

static Value term_value(Chunk *c, Builder *b, const Term *t) {
  const State *s = &c->state[t->of->state];
  const Want *w = wanted(c, t);
  uint32_t row = (uint32_t)s->row;
  Value v = s->op->res[1 + w->at];
  for (uint32_t k = w->skip; k < t->of->n; k++) {
    const Write *o = t->of->write[k];
    Value q = ir_dot(b, t->a, o->b, &row, 1);
    v = sum(b, v, product(b, q, chunk_norm_value(c, b, o->e)));
  }
  v = product(b, t->c, v);
  if (t->k == 1) return v;
  if (t->k == -1) return ir_1(b, OP_NEG, v);
  return ir_2(b, OP_MUL, v, ir_const_f(b, DT_F32, t->k));
}

Value chunk_norm_value(Chunk *c, Builder *b, const Lin *l) {
  Value v = l->w;
  for (uint32_t i = 0; i < l->n; i++)
    v = sum(b, v, term_value(c, b, &l->term[i]));
  return v ? v : ir_const_f(b, DT_F32, 0);
}
