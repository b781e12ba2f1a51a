// reassoc_bias: terms of a score that a row has in common leave its tile.
//
//   %x = add(mul(splat(%c), %s), mul(splat(%a), cast(sub(%k, %q))))
//   %m = freduce(%x) {kind = max, pos = 1}
//   %y = fma(%x, %c2, bcast(%n))
// to
//   %x = fma(splat(%c), %s, bcast(%a * %column))       %r = %a * (%k0 - %row)
//   %m = add(freduce(%x) {kind = max, pos = 1}, %r)
//   %y = fma(%x, %c2, bcast(fma(%r, %c2, %n)))
//
// A bias that grows with the distance then costs one instruction a score.
// Distances are differences of a tile's own coordinates, which are exact in
// f32, and of where the tiles begin. A sum is added up in another order: its
// error is that of f32 sums of its terms. A distance that is left
//
//   %d = cast(sub(bcast(%row), bcast(add(splat(%k0), coord()))))
//
// is one subtraction a score, of a constant, and no conversion, as exact below
// 2^24 (a column is the sum of a thread's and a register's part):
//
//   %r = sub(bcast(cast(sub(%row, splat(%k0)))), cast(bcast(coord_thread())))
//   %d = sub(%r, cast(bcast(coord_reg())))
//
// and in exp2(%d * a * c) the product a * c is made once. Operands that are
// split into parts (f32) take all registers: a number more for a row is spilled
// there. Level frag. Needs: lower_gpu. Run dce afterwards. Tests:
// test/passes/reassoc_bias/.
#include "passes/pass.h"

#include "ir/layout.h"

#include <float.h>
#include <math.h>

enum { MAX_DEPTH = 12 };  // operands of operands

typedef struct Lift {
  Func *f;
  Builder b;
  Arena *arena;
  Vec(Value) scores;  // whose maximum over a row is taken
  Vec(Op *) casts;    // of tiles of integers to f32
  bool parts;         // products of parts, added up
} Lift;

// What a tile is the sum of; 0: nothing.
typedef struct Terms {
  Value rest;      // tile
  Value col, row;  // slices
  Value all;       // scalar
} Terms;

static const Type *type_of(const Lift *x, Value v) {
  return ir_type(x->f, v);
}

static bool is_tile(const Lift *x, Value v, DType t) {
  const Type *s = type_of(x, v);
  return s->kind == TK_FRAG && s->slice == SLICE_NONE && s->dtype == t &&
         !s->partial;
}

static Value spread(Lift *x, Value v, Type t) {
  t.dtype = type_of(x, v)->dtype;
  if (type_eq(type_of(x, v), &t)) return v;
  OpCode c = type_of(x, v)->kind == TK_FRAG ? OP_BCAST : OP_SPLAT;
  return ir_op(&x->b, c, &v, 1, NULL, 0, &t, 1, 0)->res[0];
}

// a + b or a - b, of one type; 0 is nothing.
static Value plus(Lift *x, Value a, Value b, bool minus) {
  if (!b) return a;
  if (!a) return minus ? ir_1(&x->b, OP_NEG, b) : b;
  return ir_2(&x->b, minus ? OP_SUB : OP_ADD, a, b);
}

// ---------------------------------------------------------------- coordinates
// Adds v, or -v, a tile, slice or scalar of integers, to its parts.
static bool add_ints(Lift *x, Value v, bool minus, Terms *t, int deep) {
  const Op *op = ir_def(x->f, v);
  const Type *s = type_of(x, v);
  if (s->dtype != DT_I32 || deep > MAX_DEPTH) return false;
  if (s->kind != TK_FRAG) {
    t->all = plus(x, t->all, v, minus);
    return true;
  }
  OpCode c = op ? op->code : OP_YIELD;
  if (c == OP_ADD || c == OP_SUB)
    return add_ints(x, op->args[0], minus, t, deep + 1) &&
           add_ints(x, op->args[1], minus != (c == OP_SUB), t, deep + 1);
  if (c == OP_SPLAT || c == OP_BCAST)
    return add_ints(x, op->args[0], minus, t, deep + 1);
  if (s->slice == SLICE_NONE || s->partial) return false;
  Value *to = s->slice == SLICE_ROW ? &t->row : &t->col;
  if (*to && !type_eq(type_of(x, *to), s)) return false;
  *to = plus(x, *to, v, minus);
  return true;
}

static Terms as_floats(Lift *x, Terms t) {
  Value *v[] = {&t.row, &t.col, &t.all};
  for (int i = 0; i < 3; i++)
    if (*v[i]) *v[i] = ir_cast(&x->b, DT_F32, *v[i]);
  return t;
}

// ---------------------------------------------------------------- sums
static Terms terms_of(Lift *x, Value v, int deep);

static Terms sum_of(Lift *x, Terms a, Terms b, bool minus) {
  return (Terms){plus(x, a.rest, b.rest, minus), plus(x, a.col, b.col, minus),
                 plus(x, a.row, b.row, minus), plus(x, a.all, b.all, minus)};
}

static Value times(Lift *x, Value v, Value c) {
  return v ? ir_2(&x->b, OP_MUL, v, spread(x, c, *type_of(x, v))) : 0;
}

// The scalar that all elements of v are, or 0.
static Value common(Lift *x, Value v) {
  const Op *op = ir_def(x->f, v);
  double k;
  if (op && op->code == OP_SPLAT) return op->args[0];
  return op && op->code == OP_CONST && ir_const_value(x->f, v, &k)
             ? ir_const_f(&x->b, DT_F32, k)
             : 0;
}

// a * b, of which one is common to all elements, else the tile v.
static Terms product_of(Lift *x, Value v, Value a, Value b, int deep) {
  Value c = common(x, a);
  if (!c && (c = common(x, b))) b = a;
  if (!c) return (Terms){.rest = v};
  Terms t = terms_of(x, b, deep);
  return (Terms){times(x, t.rest, c), times(x, t.col, c), times(x, t.row, c),
                 times(x, t.all, c)};
}

static Terms slice_terms(Lift *x, Value s) {
  const Type *t = type_of(x, s);
  if (t->kind != TK_FRAG) return (Terms){.all = s};
  return t->slice == SLICE_ROW ? (Terms){.row = s} : (Terms){.col = s};
}

static Terms terms_of(Lift *x, Value v, int deep) {
  const Op *op = ir_def(x->f, v);
  Terms t = {.rest = v}, d = {0};
  if (!op || deep > MAX_DEPTH || !is_tile(x, v, DT_F32)) return t;
  switch (op->code) {
  case OP_BCAST:
  case OP_SPLAT: return slice_terms(x, op->args[0]);
  case OP_ADD:
  case OP_SUB:
    d = terms_of(x, op->args[1], deep + 1);
    return sum_of(x, terms_of(x, op->args[0], deep + 1), d, op->code == OP_SUB);
  case OP_MUL: return product_of(x, v, op->args[0], op->args[1], deep + 1);
  case OP_CAST:
    return is_tile(x, op->args[0], DT_I32) &&
                   add_ints(x, op->args[0], false, &d, deep + 1)
               ? as_floats(x, d)
               : t;
  default: return t;
  }
}

// ---------------------------------------------------------------- scores
// rest + col, in one op where the rest is a product.
static Value tile_sum(Lift *x, const Terms *t, Type type) {
  const Op *op = t->rest ? ir_def(x->f, t->rest) : NULL;
  if (!t->col) return t->rest;
  Value c = spread(x, t->col, type);
  if (!op) return c;
  if (op->code == OP_MUL)
    return ir_3(&x->b, OP_FMA, op->args[0], op->args[1], c);
  return ir_2(&x->b, OP_ADD, t->rest, c);
}

// The score becomes what varies with the columns and a term of the row.
static void split_score(Lift *x, Value v) {
  Op *def = ir_def(x->f, v);
  const Type type = *type_of(x, v);
  if (!def) return;
  x->b = (Builder){.fn = x->f,
                   .region = def->parent,
                   .before = def,
                   .span = def->span};
  Terms t = terms_of(x, v, 0);
  if (!t.rest || !(t.row || t.all)) return;
  Type row = frag_slice(&type, 0, false);
  if (t.row && !type_eq(type_of(x, t.row), &row)) return;
  if (t.all) t.row = plus(x, t.row, spread(x, t.all, row), false);
  Value of_row = spread(x, t.row, type);
  Value sum = ir_2(&x->b, OP_ADD, tile_sum(x, &t, type), of_row);
  ir_replace_uses(x->f, v, sum);
}

// A score that is a product and what is read for its distance: one rounding.
static void join_term(Lift *x, Value v) {
  Op *add = ir_def(x->f, v);
  if (!add || add->code != OP_ADD || !is_tile(x, v, DT_F32)) return;
  for (uint32_t i = 0; i < 2; i++) {
    const Op *mul = ir_def(x->f, add->args[i]);
    const Op *term = ir_def(x->f, add->args[1 - i]);
    while (term && term->code == OP_SELECT) term = ir_def(x->f, term->args[1]);
    if (!mul || mul->code != OP_MUL || !term || term->code != OP_GLOAD ||
        !ir_attr_i(term, AT_LOOSE, 0) || ir_count_uses(x->f, add->args[i]) != 1)
      continue;
    x->b = (Builder){.fn = x->f,
                     .region = add->parent,
                     .before = add,
                     .span = add->span};
    ir_replace_uses(x->f, v,
                    ir_3(&x->b, OP_FMA, mul->args[0], mul->args[1],
                         add->args[1 - i]));
    return;
  }
}

static bool is_infinite(const Lift *x, Value v) {
  const Op *op = ir_def(x->f, v);
  double k;
  return op && op->code == OP_CONST && ir_const_value(x->f, v, &k) && isinf(k);
}

static bool is_extreme(const Op *op) {
  int64_t k = ir_attr_i(op, AT_KIND, RK_SUM);
  return op->code == OP_FREDUCE && (k == RK_MAX || k == RK_MIN) &&
         ir_attr_i(op, AT_POS, 0) == 1;
}

static void find_score(void *data, Op *op) {
  Lift *x = data;
  if (!is_extreme(op) || !is_tile(x, op->args[0], DT_F32)) return;
  const Op *s = ir_def(x->f, op->args[0]);
  bool masked = s && s->code == OP_SELECT && is_infinite(x, s->args[2]);
  vec_push(x->arena, &x->scores, masked ? s->args[1] : op->args[0]);
}

// ---------------------------------------------------------------- uses
// v = x + a row's term.
static bool lifted(const Lift *x, Value v, Value *tile, Value *row) {
  const Op *op = ir_def(x->f, v);
  if (!op || op->code != OP_ADD || !is_tile(x, v, DT_F32)) return false;
  const Op *b = ir_def(x->f, op->args[1]);
  if (!b || b->code != OP_BCAST || type_of(x, b->args[0])->slice != SLICE_ROW)
    return false;
  *tile = op->args[0];
  *row = b->args[0];
  return true;
}

static Value use_of_select(Lift *x, const Op *op, Value tile, Value row) {
  Value s = ir_3(&x->b, OP_SELECT, op->args[0], tile, op->args[2]);
  return ir_2(&x->b, OP_ADD, s, spread(x, row, *type_of(x, s)));
}

static Value use_of_extreme(Lift *x, const Op *op, Value tile, Value row) {
  Value m = ir_op(&x->b, OP_FREDUCE, &tile, 1, op->attrs, op->nattrs,
                  type_of(x, op->res[0]), 1, 0)
                ->res[0];
  return ir_2(&x->b, OP_ADD, m, row);
}

// fma(tile + row, c, n) with c the same for all and n for a row.
static Value use_of_fma(Lift *x, const Op *op, Value tile, Value row) {
  Value c = common(x, op->args[1]);
  const Op *n = ir_def(x->f, op->args[2]);
  if (!c || !n || n->code != OP_BCAST ||
      !type_eq(type_of(x, n->args[0]), type_of(x, row)))
    return 0;
  Value s = spread(x, c, *type_of(x, row));
  Value r = ir_3(&x->b, OP_FMA, row, s, n->args[0]);
  return ir_3(&x->b, OP_FMA, tile, op->args[1],
              spread(x, r, *type_of(x, tile)));
}

static void rewrite(void *data, Op *op) {
  Lift *x = data;
  Value tile, row, v = 0;
  bool select = op->code == OP_SELECT && is_infinite(x, op->args[2]);
  if (!select && !is_extreme(op) && op->code != OP_FMA) return;
  if (!lifted(x, op->args[select], &tile, &row)) return;
  x->b = (Builder){.fn = x->f,
                   .region = op->parent,
                   .before = op,
                   .span = op->span};
  if (select) v = use_of_select(x, op, tile, row);
  else if (op->code == OP_FMA) v = use_of_fma(x, op, tile, row);
  else v = use_of_extreme(x, op, tile, row);
  if (v) ir_replace_uses(x->f, op->res[0], v);
}

// ---------------------------------------------------------------- distances
static void find_cast(void *data, Op *op) {
  Lift *x = data;
  const Op *to =
      op->code == OP_MMA && op->nargs > 2 ? ir_def(x->f, op->args[2]) : NULL;
  x->parts |= to && to->code == OP_MMA;
  if (op->code == OP_CAST && is_tile(x, op->res[0], DT_F32) &&
      is_tile(x, op->args[0], DT_I32))
    vec_push(x->arena, &x->casts, op);
}

static Value column_part(Lift *x, OpCode c, Type slice, const Type *tile) {
  IrAttr at = attr_i(AT_POS, 1);
  Value v = ir_op(&x->b, c, NULL, 0, &at, 1, &slice, 1, 0)->res[0];
  return ir_cast(&x->b, DT_F32, spread(x, v, *tile));
}

// The columns' own coordinates, or the negative of these.
static bool is_columns(const Lift *x, Value v, bool *minus) {
  const Op *op = v ? ir_def(x->f, v) : NULL;
  *minus = op && op->code == OP_NEG;
  if (*minus) op = ir_def(x->f, op->args[0]);
  return op && op->code == OP_COORD && ir_attr_i(op, AT_POS, 0) == 1;
}

static void split_distance(Lift *x, Op *op) {
  const Type tile = *ir_type(x->f, op->res[0]);
  Terms t = {0};
  bool minus;
  x->b = (Builder){.fn = x->f,
                   .region = op->parent,
                   .before = op,
                   .span = op->span};
  if (!add_ints(x, op->args[0], false, &t, 0) || !t.row ||
      !is_columns(x, t.col, &minus))
    return;
  if (t.all)
    t.row = plus(x, t.row, spread(x, t.all, *type_of(x, t.row)), false);
  const Type slice = *type_of(x, t.col);
  Value d = spread(x, ir_cast(&x->b, DT_F32, t.row), tile);
  d = plus(x, d, column_part(x, OP_COORD_THREAD, slice, &tile), minus);
  d = plus(x, d, column_part(x, OP_COORD_REG, slice, &tile), minus);
  ir_replace_uses(x->f, op->res[0], d);
}

// ---------------------------------------------------------------- factors
static Op *only_use(const Lift *x, Value v, OpCode c) {
  Op *op = ir_def(x->f, v);
  return op && op->code == c && ir_count_uses(x->f, v) == 1 ? op : NULL;
}

// The distance d of v = d * a, with a common to all elements, and that; or 0.
static Value distance_in(Lift *x, Value v, Value *by) {
  const Op *mul = only_use(x, v, OP_MUL);
  for (uint32_t i = 0; mul && i < 2; i++) {
    const Op *d = ir_def(x->f, mul->args[i]);
    if (!d || d->code != OP_CAST || !is_tile(x, d->args[0], DT_I32)) continue;
    *by = common(x, mul->args[1 - i]);
    return *by ? mul->args[i] : 0;
  }
  return 0;
}

// a * k, no infinity: that times a distance of 0 is 0.
static Value finite_product(Lift *x, Value a, double k) {
  Value v = ir_2(&x->b, OP_MUL, a, ir_const_f(&x->b, DT_F32, k));
  v = ir_2(&x->b, OP_MIN, v, ir_const_f(&x->b, DT_F32, FLT_MAX));
  return ir_2(&x->b, OP_MAX, v, ir_const_f(&x->b, DT_F32, -FLT_MAX));
}

// exp2((d * a) * k), of which (d * a) may be masked: exp2(d * (a * k)).
static void join_factors(void *data, Op *op) {
  Lift *x = data;
  double k;
  const Op *mul = op->code == OP_EXP2 && is_tile(x, op->res[0], DT_F32)
                      ? only_use(x, op->args[0], OP_MUL)
                      : NULL;
  if (!mul || !ir_const_value(x->f, mul->args[1], &k) || !(k > 0)) return;
  const Op *s = only_use(x, mul->args[0], OP_SELECT);
  if (s && !is_infinite(x, s->args[2])) return;
  x->b = (Builder){.fn = x->f,
                   .region = op->parent,
                   .before = op,
                   .span = op->span};
  Value a, d = distance_in(x, s ? s->args[1] : mul->args[0], &a);
  if (!d) return;
  Value v = times(x, d, finite_product(x, a, k));
  op->args[0] = s ? ir_3(&x->b, OP_SELECT, s->args[0], v, s->args[2]) : v;
}

bool pass_reassoc_bias(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Lift x = {.f = m->funcs.at[i], .arena = &cx->scratch};
    ir_walk(x.f->body, find_score, &x);
    for (uint32_t k = 0; k < x.scores.n; k++) {
      join_term(&x, x.scores.at[k]);
      split_score(&x, x.scores.at[k]);
    }
    if (x.scores.n) ir_walk(x.f->body, rewrite, &x);
    ir_walk(x.f->body, find_cast, &x);
    if (x.parts) continue;
    ir_walk(x.f->body, join_factors, &x);
    for (uint32_t k = 0; k < x.casts.n; k++) split_distance(&x, x.casts.at[k]);
  }
  return true;
}
