// reciprocals: quotients by numbers of the shape are products.
//
//   %q = floordiv(%t, dim(n))     ->   %m = dim((2^31 - 1) // n)
//   %r = mod(%t, dim(n))               %g = %t * %m >> 31
//                                      %e = %t - %g * n
//                                      %q = uniform(%g + (%e >= n) - (%e < 0))
//                                      %r = %t - %q * n
//   %k = floordiv(dim(a), dim(b)) ->   %k = dim(a // b)
//
// A kernel that reads its keys once takes few microseconds. Where its first
// tile is, is found by some quotients, one behind the other, each of some
// twenty instructions that nobody has fetched before: half a microsecond and
// more. The host computes numbers of the shape (codegen/gpu/kernel.c). The
// product is less than one off for all %t of 32 bits. What it gives is made
// uniform, as quotients are (codegen/gpu/frag.c): ptxas would have addresses in
// other registers, and what joins MLA's parts took three microseconds more.
// Level frag; sm_90a. Run cse and dce afterwards. Tests:
// test/passes/reciprocals/.
#include "passes/pass.h"

enum { MAX_BITS = 31, MAX_ROW_BITS = 24, MAX_ROWS = 128, MAX_DEPTH = 6 };

typedef struct Quotients {
  Func *f;
  DimTab *dims;
} Quotients;

static DimOp dim_op(OpCode code) {
  static const struct {
    OpCode code;
    DimOp op;
  } all[] = {{OP_ADD, DIM_ADD}, {OP_MUL, DIM_MUL},           {OP_MAX, DIM_MAX},
             {OP_MIN, DIM_MIN}, {OP_FLOORDIV, DIM_FLOORDIV}, {OP_MOD, DIM_MOD}};
  for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i].code == code) return all[i].op;
  return DIM_CONST;
}

// The number of the shape that v is, or DIM_NONE.
static Dim number(const Quotients *x, Value v, int depth) {
  const Op *op = ir_def(x->f, v);
  const Type *t = ir_type(x->f, v);
  int64_t k;
  if (!op || t->kind != TK_ELEM || t->n || depth == MAX_DEPTH) return DIM_NONE;
  if (op->code == OP_DIM) return (Dim)ir_attr_i(op, AT_DIM, 0);
  if (ir_const_whole(x->f, v, &k)) return dim_const(x->dims, k);
  if (op->code == OP_CAST) return number(x, op->args[0], depth + 1);
  DimOp code = dim_op(op->code);
  if (code == DIM_CONST) return DIM_NONE;
  Dim a = number(x, op->args[0], depth + 1);
  Dim b = a ? number(x, op->args[1], depth + 1) : DIM_NONE;
  return b ? dim_bin(x->dims, code, a, b) : DIM_NONE;
}

static Value made_of(Builder *b, Dim d) {
  return ir_cast(b, DT_I32, ir_dim(b, d));
}

// Where nothing is there is no task.
static Dim at_least_one(const Quotients *q, Dim d) {
  return dim_bin(q->dims, DIM_MAX, d, dim_const(q->dims, 1));
}

// ---------------------------------------------------------------- numbers
static Value one_if(Builder *b, OpCode code, Value x, Value y) {
  return ir_cast(b, DT_I32, ir_2(b, code, x, y));
}

// x // n or x mod n, n the number d; i32.
static Value product(const Quotients *q, Builder *b, OpCode code, Value x,
                     Dim d) {
  int64_t most = ((int64_t)1 << MAX_BITS) - 1;
  Dim all = dim_const(q->dims, most);
  Value n = made_of(b, d), zero = ir_const_i(b, DT_I32, 0);
  d = dim_bin(q->dims, DIM_FLOORDIV, all, at_least_one(q, d));
  Value m = ir_cast(b, DT_I64, made_of(b, d));
  Value wide = ir_2(b, OP_MUL, ir_cast(b, DT_I64, x), m);
  Value by = ir_const_i(b, DT_I64, most + 1);
  Value g = ir_cast(b, DT_I32, ir_2(b, OP_FLOORDIV, wide, by));
  Value e = ir_2(b, OP_SUB, x, ir_2(b, OP_MUL, g, n));
  Value more = one_if(b, OP_LE, n, e), less = one_if(b, OP_LT, e, zero);
  Value off = ir_2(b, OP_SUB, more, less);
  Value y = ir_2(b, OP_ADD, g, off);
  y = ir_op(b, OP_UNIFORM, &y, 1, NULL, 0, ir_type(q->f, x), 1, 0)->res[0];
  return code == OP_FLOORDIV ? y : ir_2(b, OP_SUB, x, ir_2(b, OP_MUL, y, n));
}

// The number of 32 bits that v is, or 0.
static Value narrow(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  bool wide = ir_type(f, v)->dtype == DT_I64;
  if (wide && (!op || op->code != OP_CAST)) return 0;
  Value x = wide ? op->args[0] : v;
  return ir_type(f, x)->dtype == DT_I32 ? x : 0;
}

static Value scalar(const Quotients *q, Builder *b, const Op *op, Dim by) {
  DType t = ir_type(q->f, op->res[0])->dtype;
  Value x = narrow(q->f, op->args[0]), y;
  Dim of = number(q, op->args[0], 0);
  if (!of && !x) return 0;
  if (of)
    y = ir_dim(b, dim_bin(q->dims, dim_op(op->code), of, at_least_one(q, by)));
  else y = product(q, b, op->code, x, by);
  return ir_cast(b, t, y);
}

// ---------------------------------------------------------------- rows
// Is v one of a tile's rows or columns, or what is left of a small quotient?
static bool is_small(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  int64_t k;
  if (op && op->code == OP_COORD) return ir_type(f, v)->ext[0] <= MAX_ROWS;
  return op && op->code == OP_MOD && ir_const_whole(f, op->args[1], &k) &&
         k > 0 && k <= MAX_ROWS;
}

// Of what is small the product is none off.
static Value rows(const Quotients *q, Builder *b, const Op *op, Dim d) {
  Value x = op->args[0];
  const Type *t = ir_type(q->f, x);
  if (!is_small(q->f, x)) return 0;
  IrAttr at = attr_i(AT_IVALUE, (int64_t)1 << MAX_ROW_BITS);
  d = at_least_one(q, d);
  Dim up = dim_bin(q->dims, DIM_ADD, d, dim_const(q->dims, at.i - 1));
  Value m = made_of(b, dim_bin(q->dims, DIM_FLOORDIV, up, d));
  m = ir_op(b, OP_SPLAT, &m, 1, NULL, 0, t, 1, 0)->res[0];
  Value by = ir_op(b, OP_CONST, NULL, 0, &at, 1, t, 1, 0)->res[0];
  Value y = ir_2(b, OP_FLOORDIV, ir_2(b, OP_MUL, x, m), by);
  if (op->code == OP_FLOORDIV) return y;
  return ir_2(b, OP_SUB, x, ir_2(b, OP_MUL, y, op->args[1]));
}

// ---------------------------------------------------------------- rewriting
static Value instead(const Quotients *q, Builder *b, const Op *op) {
  if (op->code != OP_FLOORDIV && op->code != OP_MOD) return 0;
  const Type *t = ir_type(q->f, op->res[0]);
  const Op *by = ir_def(q->f, op->args[1]);
  bool tile = t->kind == TK_FRAG && by && by->code == OP_SPLAT;
  if (t->kind == TK_FRAG && (!tile || t->dtype != DT_I32)) return 0;
  Value n = tile ? by->args[0] : op->args[1];
  int64_t k, lo, hi;
  Dim d = number(q, n, 0);
  if (!d || dim_is_const(q->dims, d, &k)) return 0;
  dim_bounds(q->dims, d, &lo, &hi);
  if (lo < 0 || (hi > INT32_MAX && !narrow(q->f, n))) return 0;
  return tile ? rows(q, b, op, d) : scalar(q, b, op, d);
}

static void find(Quotients *q, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) find(q, op->regions[i]);
    Builder b = {.fn = q->f, .region = r, .before = op, .span = op->span};
    Value y = instead(q, &b, op);
    if (!y) continue;
    ir_replace_uses(q->f, op->res[0], y);
    ir_erase(op);
  }
}

bool pass_reciprocals(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx, (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    Quotients q = {.f = f, .dims = &m->dims};
    const Op *launch = f->body->first;
    if (launch && launch->code == OP_LAUNCH && ir_attr_i(launch, AT_ONCE, 0))
      find(&q, f->body);
  }
  return true;
}
