// fold: constants behind level attn.
//
//   %t = const() {ivalue = 1}             %u = select(%c, %x, %x)
//   %y = or(%t, %x)                  ->   uses of %y are %t, uses of %u are %x
//
// Elementwise ops of integer and bool constants, identities of logic, select,
// integer arithmetic and f32 `x * 1`, min and max of what is known to be in
// order, as x // k * k and x, any and all of constants, loops over nothing, a
// shared tile of what a shared tile holds. No float
// arithmetic is done here: nothing changes a bit of a result.
// Run dce afterwards. Tests: test/passes/fold/.
#include "ir/eval.h"
#include "passes/support/balance.h"
#include "passes/support/cost.h"
#include "passes/pass.h"

enum {
  MAX_EXACT = 53,  // bits of an integer in a double
  MAX_DEPTH = 8    // of nested min and max
};

typedef struct Fold {
  Func *f;
  Builder b;
  bool choices;  // bounds of groups are looked into
} Fold;

static DType dtype_of(const Fold *x, Value v) {
  return ir_type(x->f, v)->dtype;
}

// An integer or bool constant, of any shape.
static bool is_int(const Fold *x, Value v, int64_t *k) {
  const Op *op = ir_def(x->f, v);
  while (op && (op->code == OP_SPLAT || op->code == OP_BCAST))
    op = ir_def(x->f, op->args[0]);
  if (!op || op->code != OP_CONST || !ir_attr(op, AT_IVALUE)) return false;
  *k = ir_attr_i(op, AT_IVALUE, 0);
  return true;
}

static bool is_value(const Fold *x, Value v, int64_t want) {
  int64_t k;
  return is_int(x, v, &k) && k == want;
}

static bool is_one(const Fold *x, Value v) {
  double k;
  return is_value(x, v, 1) || (ir_const_value(x->f, v, &k) && k == 1.0);
}

// A result that is one of the operands must have the result's type.
static Value same(const Fold *x, const Op *op, Value v) {
  return type_eq(ir_type(x->f, v), ir_type(x->f, op->res[0])) ? v : 0;
}

static Value constant(Fold *x, const Op *op, int64_t k) {
  IrAttr at = attr_i(AT_IVALUE, k);
  return ir_op(&x->b, OP_CONST, NULL, 0, &at, 1, ir_type(x->f, op->res[0]), 1,
               0)
      ->res[0];
}

// ---------------------------------------------------------------- identities
// a and b in either order.
static Value logic(Fold *x, const Op *op) {
  bool is_or = op->code == OP_OR;
  for (uint32_t i = 0; i < 2; i++) {
    Value c = op->args[i], v = op->args[1 - i];
    int64_t k;
    if (c == v) return same(x, op, v);
    if (!is_int(x, c, &k)) continue;
    return (k != 0) == is_or ? constant(x, op, k) : same(x, op, v);
  }
  return 0;
}

static Value fold_select(Fold *x, const Op *op) {
  int64_t k;
  if (op->args[1] == op->args[2]) return same(x, op, op->args[1]);
  if (!is_int(x, op->args[0], &k)) return 0;
  return same(x, op, op->args[k ? 1 : 2]);
}

static Value fold_add(Fold *x, const Op *op) {
  if (is_value(x, op->args[1], 0)) return same(x, op, op->args[0]);
  if (op->code == OP_SUB) return 0;
  return is_value(x, op->args[0], 0) ? same(x, op, op->args[1]) : 0;
}

static Value fold_mul(Fold *x, const Op *op) {
  for (uint32_t i = 0; i < 2; i++)
    if (is_one(x, op->args[i])) return same(x, op, op->args[1 - i]);
  return 0;
}

static Value fold_div(Fold *x, const Op *op) {
  return is_one(x, op->args[1]) ? same(x, op, op->args[0]) : 0;
}

static Value fold_reduce(Fold *x, const Op *op) {
  int64_t k;
  RKind kind = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  if (kind != RK_ANY && kind != RK_ALL) return 0;
  return is_int(x, op->args[0], &k) ? constant(x, op, k) : 0;
}

static bool at_least(const Fold *x, Value b, Value a, int depth);

// Is op `code` with a positive constant on the right?
static bool by_constant(const Fold *x, const Op *op, OpCode code, int64_t *k) {
  return op && op->code == code && is_int(x, op->args[1], k) && *k > 0;
}

// x // k * k, which is at most x.
static Value rounded_down(const Fold *x, const Op *mul) {
  int64_t k, n;
  if (!by_constant(x, mul, OP_MUL, &k)) return 0;
  const Op *div = ir_def(x->f, mul->args[0]);
  return by_constant(x, div, OP_FLOORDIV, &n) && n == k ? div->args[0] : 0;
}

static bool not_negative(const Fold *x, const Op *op, int depth, Value zero) {
  int64_t lo, hi, k;
  if (op->code == OP_DIM) {
    dim_bounds(&x->f->mod->dims, (Dim)ir_attr_i(op, AT_DIM, 0), &lo, &hi);
    return lo >= 0;
  }
  return (by_constant(x, op, OP_MUL, &k) ||
          by_constant(x, op, OP_FLOORDIV, &k)) &&
         at_least(x, op->args[0], zero, depth);
}

// Steps that keep the order: t = b, s = a are defined by them.
static bool in_order(const Fold *x, const Op *t, Value b, const Op *s, Value a,
                     int depth) {
  int64_t k, n;
  if (by_constant(x, s, OP_SUB, &k) && at_least(x, b, s->args[0], depth))
    return true;
  if (by_constant(x, t, OP_ADD, &k) && at_least(x, t->args[0], a, depth))
    return true;
  for (int i = 0; i < 2; i++) {
    OpCode c = i ? OP_MUL : OP_FLOORDIV;
    if (by_constant(x, t, c, &k) && by_constant(x, s, c, &n) && k == n &&
        at_least(x, t->args[0], s->args[0], depth))
      return true;
  }
  Value more = rounded_down(x, s);
  if (more && at_least(x, b, more, depth)) return true;
  return t && is_value(x, a, 0) && not_negative(x, t, depth, a);
}

static bool is_choice(const Op *op) {
  return op && (op->code == OP_SELECT || op->code == OP_GROUP_BOUND ||
                op->code == OP_GROUP_SELECT || op->code == OP_UNIFORM);
}

// All that op may be are at least v, or at most v.
static bool each(const Fold *x, const Op *op, Value v, bool least, int depth) {
  for (uint32_t i = op->code == OP_SELECT; i < op->nargs; i++) {
    Value a = op->args[i];
    if (!at_least(x, least ? a : v, least ? v : a, depth)) return false;
  }
  return true;
}

// b >= a, by the structure of both: enough for loop bounds.
static bool at_least(const Fold *x, Value b, Value a, int depth) {
  int64_t p, q;
  if (a == b) return true;
  if (is_int(x, a, &p) && is_int(x, b, &q)) return q >= p;
  const Op *t = ir_def(x->f, b), *s = ir_def(x->f, a);
  if (depth-- == 0) return false;
  if (t && (t->code == OP_MAX || t->code == OP_MIN)) {
    bool one = at_least(x, t->args[0], a, depth);
    if (one != (t->code == OP_MAX)) one = at_least(x, t->args[1], a, depth);
    if (one) return true;
  }
  if (s && (s->code == OP_MAX || s->code == OP_MIN)) {
    bool one = at_least(x, b, s->args[0], depth);
    if (one != (s->code == OP_MIN)) one = at_least(x, b, s->args[1], depth);
    if (one) return true;
  }
  if (in_order(x, t, b, s, a, depth)) return true;
  if (!x->choices) return false;
  return (is_choice(t) && each(x, t, a, true, depth)) ||
         (is_choice(s) && each(x, s, b, false, depth));
}

// min(x, max(y, x)) is x.
static Value fold_minmax(Fold *x, const Op *op) {
  if (dtype_is_float(dtype_of(x, op->res[0]))) return 0;
  for (uint32_t i = 0; i < 2; i++) {
    Value a = op->args[i], b = op->args[1 - i];
    bool min = op->code == OP_MIN;
    if (at_least(x, min ? b : a, min ? a : b, MAX_DEPTH)) return same(x, op, a);
  }
  return 0;
}

// A loop over nothing. Where bounds are a group's own, the loop behind the
// unmasked steps stays if its code is short, though a causal mask leaves it
// nothing to do: without it ptxas makes slower code of the others (1.5 to 2 %
// for plain softmax, an H200, S 2048). Long code is dropped: that loses
// nothing, and compiles in four fifths of the time (capped scores).
static bool fold_for(Fold *x, Op *op) {
  if (op->code != OP_FOR) return false;
  x->choices = balance_code(x->f, op->regions[0]) >= COST_EMPTY_LOOP_CODE;
  bool empty = at_least(x, op->args[0], op->args[1], MAX_DEPTH);
  x->choices = false;
  if (!empty) return false;
  for (uint32_t i = 0; i < op->nres; i++)
    ir_replace_uses(x->f, op->res[i], op->args[3 + i]);
  ir_erase(op);
  return true;
}

// Nothing is above the largest or below the least i32.
static Value fold_le(Fold *x, const Op *op) {
  if (dtype_of(x, op->args[0]) != DT_I32) return 0;
  bool all = is_value(x, op->args[1], INT32_MAX) ||
             is_value(x, op->args[0], INT32_MIN);
  return all ? constant(x, op, 1) : 0;
}

typedef Value FoldFn(Fold *x, const Op *op);
static Value fold_put(Fold *x, const Op *op) {
  const Op *load = ir_def(x->f, op->args[0]);
  if (!load || load->code != OP_SLOAD || load->nargs > 1 ||
      ir_attr_i(load, AT_TRANS, 0))
    return 0;
  const Op *fill = ir_def(x->f, load->args[0]);
  return fill && fill->code == OP_SFILL ? same(x, op, load->args[0]) : 0;
}

static FoldFn *const rules[OP_COUNT] = {
    [OP_AND] = logic,          [OP_OR] = logic,
    [OP_SELECT] = fold_select, [OP_ADD] = fold_add,
    [OP_SUB] = fold_add,       [OP_MUL] = fold_mul,
    [OP_FLOORDIV] = fold_div,  [OP_REDUCE] = fold_reduce,
    [OP_MIN] = fold_minmax,    [OP_MAX] = fold_minmax,
    [OP_LE] = fold_le,         [OP_FREDUCE] = fold_reduce,
    [OP_SPUT] = fold_put,
};

// ---------------------------------------------------------------- constants
static bool exact(double v) {
  return v > -(double)(1LL << MAX_EXACT) && v < (double)(1LL << MAX_EXACT);
}

// Integers and bools only. Wrapping of i32 is left to the machine.
static Value evaluate(Fold *x, const Op *op) {
  double in[ELEM_ARGS];
  DType t = dtype_of(x, op->res[0]);
  if (!(op_info(op->code)->flags & OPF_ELEM) || !op->nargs) return 0;
  if (op->code == OP_CAST || dtype_is_float(t)) return 0;
  for (uint32_t i = 0; i < op->nargs; i++) {
    int64_t k;
    if (!is_int(x, op->args[i], &k) || !exact((double)k)) return 0;
    in[i] = (double)k;
  }
  bool divides = op->code == OP_FLOORDIV || op->code == OP_MOD;
  if (divides && in[1] == 0) return 0;
  double v = eval_op(op->code, in);
  if (!exact(v) || (t == DT_I32 && (v < INT32_MIN || v > INT32_MAX))) return 0;
  return constant(x, op, (int64_t)v);
}

static void region(Fold *x, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    if (fold_for(x, op)) continue;
    for (uint32_t i = 0; i < op->nregions; i++) region(x, op->regions[i]);
    x->b = (Builder){.fn = x->f, .region = r, .before = op, .span = op->span};
    Value v = op->nres == 1 ? evaluate(x, op) : 0;
    if (!v && rules[op->code]) v = rules[op->code](x, op);
    if (!v) continue;
    ir_replace_uses(x->f, op->res[0], v);
    ir_erase(op);
  }
}

bool pass_fold(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Fold x = {.f = m->funcs.at[i]};
    region(&x, x.f->body);
  }
  return true;
}
