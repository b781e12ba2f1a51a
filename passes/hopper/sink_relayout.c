// sink_relayout: what is computed of a slice is computed before threads hand it
// round.
//
//   %c = relayout(%r) : frag<64xf32,acc.1>      %p = sigmoid(%r) : frag<64xf32,acc.0>
//   %s = sigmoid(%c)                       ->   %s = relayout(%p) : frag<64xf32,acc.1>
//
// Of 64 factors of steps a thread has two as rows and 16 as columns: functions
// of them are an eighth of the work, and of the code. Only where no more slices
// are handed round: an operand that something else needs too stays as it is;
// and where there is a function: sums and products alone are not worth other
// code. Level frag; sm_90a, programs with steps. Needs: prefetch. Run dce
// afterwards. Tests: test/passes/sink_relayout.
#include "ir/facts.h"
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/pass.h"

typedef struct Thin {
  Func *f;
  Builder b;
  uint32_t threads;
} Thin;

// What v is handed round of, if it has fewer registers there; else 0.
static Value source(const Thin *x, Value v) {
  const Op *op = ir_def(x->f, v);
  if (!op || op->code != OP_RELAYOUT || ir_count_uses(x->f, v) != 1) return 0;
  const Type *from = ir_type(x->f, op->args[0]), *to = ir_type(x->f, v);
  if (from->slice == SLICE_NONE || to->slice == SLICE_NONE ||
      to->dtype != DT_F32)
    return 0;
  return pressure_of(from, x->threads) < pressure_of(to, x->threads)
             ? op->args[0]
             : 0;
}

// Not an instruction or two.
static bool is_function(const Op *op) {
  return op_is_function(op->code) || op->code == OP_DIV;
}

// What is elementwise from op on, each the only use of the one before.
static bool leads_to_function(const Thin *x, Op *op) {
  while (op && op_info(op->code)->flags & OPF_ELEM && op->nres == 1) {
    if (is_function(op)) return true;
    Value v = op->res[0];
    op = ir_count_uses(x->f, v) == 1 ? ir_first_use(op->next, v) : NULL;
  }
  return false;
}

// v is made by a function, in rows.
static bool has_function(const Thin *x, Value v) {
  const Op *op = ir_def(x->f, v);
  if (!op || !(op_info(op->code)->flags & OPF_ELEM)) return false;
  if (is_function(op)) return true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (has_function(x, op->args[i])) return true;
  return false;
}

static bool is_worth(const Thin *x, Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value from = source(x, op->args[i]);
    if (from && has_function(x, from)) return true;
  }
  return leads_to_function(x, op);
}

static bool is_same(const Thin *x, Value v) {
  const Op *op = ir_def(x->f, v);
  return op && (op->code == OP_CONST || op->code == OP_SPLAT);
}

static Value same_as(Thin *x, Value v, Type t) {
  const Op *op = ir_def(x->f, v);
  t.dtype = ir_type(x->f, v)->dtype;
  return ir_op(&x->b, op->code, op->args, op->nargs, op->attrs, op->nattrs, &t,
               1, 0)
      ->res[0];
}

// The layout that all operands of op are handed round from, or NULL.
static const Type *layout(const Thin *x, const Op *op) {
  const Type *t = NULL;
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value from = source(x, op->args[i]);
    if (!from && !is_same(x, op->args[i])) return NULL;
    if (from && t && !type_eq(t, ir_type(x->f, from))) return NULL;
    if (from) t = ir_type(x->f, from);
  }
  return t;
}

static void thin(Thin *x, Op *op) {
  Value args[ELEM_ARGS], v = op->nres == 1 ? op->res[0] : 0;
  if (!v || !(op_info(op->code)->flags & OPF_ELEM) ||
      ir_type(x->f, v)->kind != TK_FRAG || ir_type(x->f, v)->dtype != DT_F32)
    return;
  const Type *t = layout(x, op);
  if (!t || !is_worth(x, op)) return;
  Type rows = *t;
  x->b = (Builder){.fn = x->f,
                   .region = op->parent,
                   .before = op,
                   .span = op->span};
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value from = source(x, op->args[i]);
    args[i] = from ? from : same_as(x, op->args[i], rows);
  }
  Value made = ir_op(&x->b, op->code, args, op->nargs, op->attrs, op->nattrs,
                     &rows, 1, 0)
                   ->res[0];
  made = ir_op(&x->b, OP_RELAYOUT, &made, 1, NULL, 0, ir_type(x->f, v), 1, 0)
             ->res[0];
  ir_replace_uses(x->f, v, made);
  ir_erase(op);
}

static void region(Thin *x, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(x, op->regions[i]);
    thin(x, op);
  }
}

bool pass_sink_relayout(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    const Op *launch = ir_launch(f);
    if (!launch || !ir_has_steps(f)) continue;
    Thin x = {.f = f, .threads = (uint32_t)ir_attr_i(launch, AT_THREADS, 1)};
    region(&x, f->body);
  }
  return true;
}
