// jvp: the derivative of a program in a direction, as a program.
//
//   before  func @p(%Q, %K, %V in, %O out) {
//             %s = dot(%q, %k)  ..  store(%O, %o, ..) }
//   after   func @p_jvp(%Q, %K, %V, %t_Q, %t_K, %t_V in, %O, %t_O out) {
//             %s = dot(%q, %k)
//             %s.t = add(dot(%q.t, %k), dot(%q, %k.t))  ..
//             store(%O, %o, ..)  store(%t_O, %o.t, ..) }
//
// Each op is followed by its tangent, by the derivatives of ops.def: sums stay
// sums of the same keys, and everything below makes one pass over keys of them
// as of any others. A maximum on which no output depends has none. Which inputs
// have one: PassOpt.jvp, all floats that are not `nograd`. Level attn, behind
// canon. Run canon, cse and dce afterwards. Tests: test/passes/jvp,
// docs/gradients.md.
#include "ir/facts.h"
#include "ir/formula.h"
#include "passes/pass.h"
#include "passes/support/gauge.h"

#include <math.h>

typedef struct Jvp {
  Ctx *cx;
  Func *f;
  const PassOpt *opt;
  Builder b;
  uint32_t known;  // values of the program are smaller
  Value *tangent;  // by value of the program; 0: zero. Of tensors: their tensor
  bool *gauge;     // by value: a maximum on which nothing depends
} Jvp;

// ---------------------------------------------------------------- values
static DType dtype_of(const Jvp *j, Value v) {
  return ir_type(j->f, v)->dtype;
}

static bool is_float(const Jvp *j, Value v) {
  return dtype_is_float(dtype_of(j, v));
}

static DType wide(const Jvp *j, Value v) {
  return dtype_of(j, v) == DT_F64 ? DT_F64 : DT_F32;
}

static Value as(Jvp *j, DType t, Value v) {
  return ir_cast(&j->b, t, v);
}

static Value tangent(const Jvp *j, Value v) {
  return v < j->known ? j->tangent[v] : 0;
}

// x op y, in f32 or f64.
static Value op2(Jvp *j, OpCode c, Value x, Value y) {
  bool f64 = dtype_of(j, x) == DT_F64 || dtype_of(j, y) == DT_F64;
  DType t = f64 ? DT_F64 : DT_F32;
  y = as(j, t, y);
  return ir_2(&j->b, c, as(j, t, x), y);
}

static Value sum(Jvp *j, Value x, Value y) {
  return x && y ? op2(j, OP_ADD, x, y) : x ? x : y;
}

// t varies with all that `like` does: sums of it count the same points.
static Value widened(Jvp *j, Value t, Value like) {
  Builder *b = &j->b;
  const Type of = *ir_type(j->f, like);
  for (uint32_t i = 0; i < of.n; i++) {
    if (type_has_axis(ir_type(j->f, t), of.axis[i])) continue;
    DType w = wide(j, t);
    Value x = ir_cast(b, w, ir_index(b, of.axis[i]));
    x = ir_2(b, OP_MUL, ir_const_f(b, w, 0), x);
    t = ir_2(b, OP_ADD, as(j, w, t), x);
  }
  return t;
}

// ---------------------------------------------------------------- rules
static bool refuse(const Jvp *j, const Op *op, const char *what) {
  Span at = span_known(op->span) ? op->span : j->f->span;
  diag_add(j->cx, DIAG_jvp_through, at, what, j->f->name);
  return false;
}

static Value of_load(Jvp *j, const Op *op) {
  Value t = tangent(j, op->args[0]);
  return t ? ir_load(&j->b, t, op->args + 1, op->nargs - 1) : 0;
}

// d x; 0 where x is if d may be infinite there, as that of the logarithm of a
// row's sum without keys.
static Value scaled(Jvp *j, Value d, Value x, bool finite) {
  Value y = op2(j, OP_MUL, d, x);
  if (finite) return y;
  Value none = ir_2(&j->b, OP_EQ, x, ir_const_f(&j->b, dtype_of(j, x), 0));
  return ir_3(&j->b, OP_SELECT, none, ir_const_f(&j->b, dtype_of(j, y), 0), y);
}

// By the row of ops.def: one derivative for each operand.
static bool of_elementwise(Jvp *j, const Op *op, Value *out) {
  const char *text = op_facts(op->code)->grad;
  DType t = wide(j, op->res[0]);
  Value a[3] = {0}, d[FORMULA_RESULTS];
  if (!text || op->nargs > 3) return refuse(j, op, op_info(op->code)->name);
  for (uint32_t i = 0; i < op->nargs; i++)
    a[i] = is_float(j, op->args[i]) ? as(j, t, op->args[i]) : op->args[i];
  Value y = as(j, t, op->res[0]);
  uint32_t n = formula_build(&j->b, text, t, a, y, d);
  for (uint32_t i = 0; i < n; i++) {
    Value x = tangent(j, op->args[i]);
    if (x) *out = sum(j, *out, scaled(j, d[i], x, !strchr(text, '/')));
  }
  return true;
}

static Value of_mul(Jvp *j, const Op *op) {
  Value all = 0;
  for (uint32_t i = 0; i < 2; i++) {
    Value x = tangent(j, op->args[i]);
    if (x) all = sum(j, all, op2(j, OP_MUL, x, op->args[!i]));
  }
  return all;
}

// (a' - y b') / b
static Value of_div(Jvp *j, const Op *op) {
  Value x = tangent(j, op->args[0]), y = tangent(j, op->args[1]);
  if (y) {
    y = op2(j, OP_MUL, op->res[0], y);
    DType t = wide(j, y);
    x = x ? op2(j, OP_SUB, x, y) : ir_1(&j->b, OP_NEG, as(j, t, y));
  }
  if (!x) return 0;
  Value args[2] = {as(j, wide(j, op->res[0]), x),
                   as(j, wide(j, op->res[0]), op->args[1])};
  return ir_op(&j->b, op->code, args, 2, op->attrs, op->nattrs, NULL, 1, 0)
      ->res[0];
}

static Value of_select(Jvp *j, const Op *op) {
  Value side[2];
  DType t = wide(j, op->res[0]);
  if (!tangent(j, op->args[1]) && !tangent(j, op->args[2])) return 0;
  for (uint32_t i = 0; i < 2; i++) {
    Value x = tangent(j, op->args[i + 1]);
    side[i] = x ? as(j, t, x) : ir_const_f(&j->b, t, 0);
  }
  return ir_3(&j->b, OP_SELECT, op->args[0], side[0], side[1]);
}

static DType operand_type(DType t) {
  return dtype_size(t) == 1 ? DT_BF16 : t;
}

// A computed operand beside one of 16 bits is rounded to that, as in the
// program.
static Value product(Jvp *j, const Op *op, Value x, Value y) {
  uint32_t over[MAX_AXES], n = 0;
  const IrAttr *a = ir_attr(op, AT_OVER);
  for (; n < a->n; n++) over[n] = (uint32_t)a->list[n];
  DType to = operand_type(dtype_of(j, y));
  y = as(j, to, y);
  if (dtype_size(to) == 2 && dtype_of(j, x) != DT_F64) x = as(j, to, x);
  return ir_dot(&j->b, x, y, over, n);
}

static Value of_dot(Jvp *j, const Op *op) {
  Value all = 0;
  for (uint32_t i = 0; i < 2; i++) {
    Value x = tangent(j, op->args[i]);
    if (!x) continue;
    x = widened(j, x, op->args[i]);
    Value y = op->args[!i];
    all = sum(j, all, product(j, op, x, y));
  }
  return all;
}

static Value reduced(Jvp *j, RKind kind, Value x, const Op *op, Value like) {
  uint32_t over[MAX_AXES], n = 0;
  const IrAttr *a = ir_attr(op, AT_OVER);
  for (; n < a->n; n++) over[n] = (uint32_t)a->list[n];
  return ir_reduce(&j->b, kind, widened(j, x, like), over, n);
}

// The tangent of the first that is largest, or of all an equal part.
static Value of_extreme(Jvp *j, const Op *op, Value t) {
  Builder *b = &j->b;
  Value x = op->args[0], zero = ir_const_f(b, DT_F32, 0);
  Value hit = ir_2(b, OP_EQ, x, as(j, dtype_of(j, x), op->res[0]));
  const IrAttr *a = ir_attr(op, AT_OVER);
  if (j->opt->share_ties) {
    Value one = ir_3(b, OP_SELECT, hit, ir_const_f(b, DT_F32, 1), zero);
    Value n = reduced(j, RK_SUM, one, op, x);
    Value other = ir_const_f(b, wide(j, t), 0);
    t = ir_3(b, OP_SELECT, hit, as(j, wide(j, t), t), other);
    return op2(j, OP_DIV, reduced(j, RK_SUM, t, op, x), n);
  }
  for (uint32_t i = 0; i < a->n; i++) {
    Value at = as(j, DT_F32, ir_index(b, (uint32_t)a->list[i]));
    Value none = ir_const_f(b, DT_F32, INFINITY);
    Value first = ir_3(b, OP_SELECT, hit, at, none);
    first = reduced(j, RK_MIN, first, op, x);
    hit = ir_2(b, OP_AND, hit, ir_2(b, OP_EQ, at, first));
  }
  Value other = ir_const_f(b, wide(j, t), 0);
  t = ir_3(b, OP_SELECT, hit, as(j, wide(j, t), t), other);
  return reduced(j, RK_SUM, t, op, x);
}

static bool of_reduce(Jvp *j, const Op *op, Value *out) {
  RKind kind = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  Value t = tangent(j, op->args[0]);
  if (!t || j->gauge[op->res[0]]) return true;
  if (kind == RK_SUM) *out = reduced(j, kind, t, op, op->args[0]);
  else if (kind == RK_MAX || kind == RK_MIN) *out = of_extreme(j, op, t);
  else
    return refuse(j, op,
                  arena_printf(&j->cx->session, "`%s`", rkind_name(kind)));
  return true;
}

static bool of_scan(Jvp *j, const Op *op, Value *out) {
  Value t = tangent(j, op->args[0]);
  if (!t) return true;
  if (ir_attr_i(op, AT_KIND, RK_SUM) != RK_SUM)
    return refuse(j, op, "a running product or maximum");
  t = widened(j, t, op->args[0]);
  *out =
      ir_op(&j->b, OP_SCAN, &t, 1, op->attrs, op->nattrs, NULL, 1, 0)->res[0];
  return true;
}

// What the tensor receives behind the value.
static bool of_store(Jvp *j, const Op *op) {
  Value args[12], to = tangent(j, op->args[0]), t = tangent(j, op->args[1]);
  if (!to && t) return refuse(j, op, "an equation of an inout tensor");
  if (!to) return true;
  DType type = dtype_of(j, to);
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = op->args[i];
  args[0] = to;
  args[1] =
      t ? as(j, type, widened(j, t, op->args[1])) : ir_const_f(&j->b, type, 0);
  ir_op(&j->b, OP_STORE, args, op->nargs, op->attrs, op->nattrs, NULL, 0, 0);
  return true;
}

static bool follow(Jvp *j, const Op *op, Value *out) {
  switch (op->code) {
  case OP_LOAD: *out = of_load(j, op); return true;
  case OP_STORE: return of_store(j, op);
  case OP_REDUCE: return of_reduce(j, op, out);
  case OP_SCAN: return of_scan(j, op, out);
  case OP_DOT: *out = of_dot(j, op); return true;
  case OP_MUL: *out = of_mul(j, op); return true;
  case OP_DIV:
  case OP_DIVK: *out = of_div(j, op); return true;
  case OP_SELECT: *out = of_select(j, op); return true;
  case OP_CAST: *out = tangent(j, op->args[0]); return true;
  case OP_STOP_GRAD:
  case OP_FLOOR: return true;
  default: return of_elementwise(j, op, out);
  }
}

// Does a tangent reach op? Integers, conditions and coordinates have none.
static bool carries(const Jvp *j, const Op *op) {
  if (op->code == OP_STORE) return true;
  if (op->nres != 1 || !is_float(j, op->res[0])) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (tangent(j, op->args[i])) return true;
  return false;
}

// ---------------------------------------------------------------- parameters
static bool named(const char *list, const char *name) {
  size_t n = strlen(name);
  for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
    if (strncmp(p, name, n) == 0 && (!p[n] || p[n] == ',')) return true;
  return false;
}

static bool has_tangent(const Jvp *j, const FuncParam *p) {
  const char *name = ir_info(j->f, p->v)->hint;
  if (p->role == PR_OUT) return is_float(j, p->v);
  bool in = p->role == PR_IN || p->role == PR_SCALAR;
  return in && !p->nograd && is_float(j, p->v) &&
         (!j->opt->jvp || named(j->opt->jvp, name));
}

static void put_tangent(Jvp *j, uint32_t i) {
  const FuncParam p = j->f->params.at[i];
  const char *name = ir_info(j->f, p.v)->hint;
  Type t = *ir_type(j->f, p.v);
  t.dtype = operand_type(t.dtype);
  name = arena_printf(j->f->mod->arena, "t_%s", name);
  j->tangent[p.v] = ir_param(j->f, intern(&j->cx->names, name), p.role, t);
}

// Inputs, their tangents, outputs, theirs.
static void put_tangents(Jvp *j) {
  Func *f = j->f;
  uint32_t n = f->params.n, k = 0;
  for (uint32_t i = 0; i < n; i++)
    if (has_tangent(j, &f->params.at[i])) put_tangent(j, i);
  FuncParam *all = NEWN(&j->cx->scratch, FuncParam, f->params.n);
  for (int out = 0; out < 2; out++)
    for (uint32_t i = 0; i < f->params.n; i++)
      if ((f->params.at[i].role == PR_OUT) == out) all[k++] = f->params.at[i];
  memcpy(f->params.at, all, k * sizeof *all);
}

static bool refuse_name(Jvp *j, const char *name) {
  const Func *f = j->f;
  for (uint32_t i = 0; i < f->params.n; i++) {
    const FuncParam *p = &f->params.at[i];
    if (p->role == PR_OUT || strcmp(ir_info(f, p->v)->hint, name)) continue;
    diag_add(j->cx, DIAG_grad_integer, f->span, name,
             p->role == PR_INOUT ? "it is inout"
             : p->nograd         ? "it is nograd"
                                 : "it is not a float");
    return false;
  }
  diag_add(j->cx, DIAG_grad_input, f->span, f->name);
  return false;
}

static bool check_names(Jvp *j) {
  const Func *f = j->f;
  bool any = false;
  for (uint32_t i = 0; i < f->params.n; i++)
    any |= f->params.at[i].role != PR_OUT && has_tangent(j, &f->params.at[i]);
  for (const char *p = j->opt->jvp; p && *p;) {
    size_t n = strcspn(p, ",");
    const char *name = arena_printf(f->mod->arena, "%.*s", (int)n, p);
    bool found = false;
    for (uint32_t i = 0; i < f->params.n; i++)
      found |= f->params.at[i].role != PR_OUT &&
               has_tangent(j, &f->params.at[i]) &&
               !strcmp(ir_info(f, f->params.at[i].v)->hint, name);
    if (!found) return refuse_name(j, name);
    p += n + (p[n] == ',');
  }
  if (any) return true;
  diag_add(j->cx, DIAG_grad_integer, f->span, f->name,
           "it has no input of floats");
  return false;
}

// ---------------------------------------------------------------- all
static void find_gauges(Jvp *j) {
  for (const Op *op = j->f->body->first; op; op = op->next) {
    int64_t kind = ir_attr_i(op, AT_KIND, RK_SUM);
    if (op->code == OP_REDUCE && (kind == RK_MAX || kind == RK_MIN) &&
        is_float(j, op->res[0]))
      j->gauge[op->res[0]] = gauge_is(j->f, &j->cx->scratch, op->res[0]);
  }
}

static bool run(Ctx *cx, Func *f, const PassOpt *opt) {
  Jvp j = {.cx = cx, .f = f, .opt = opt, .known = f->values.n};
  j.tangent = NEWN(&cx->scratch, Value, j.known);
  j.gauge = NEWN(&cx->scratch, bool, j.known);
  for (Op *op = f->body->first; op; op = op->next)
    if (op->nregions || op->nres > 1) return refuse(&j, op, "a recurrence");
  if (!check_names(&j)) return false;
  find_gauges(&j);
  put_tangents(&j);
  for (Op *op = f->body->first, *next; op; op = next) {
    next = op->next;
    if (!carries(&j, op)) continue;
    Value t = 0;
    j.b =
        (Builder){.fn = f, .region = f->body, .before = next, .span = op->span};
    if (!follow(&j, op, &t)) return false;
    if (op->nres == 1) j.tangent[op->res[0]] = t;
  }
  f->name = intern(&cx->names, arena_printf(f->mod->arena, "%s_jvp", f->name));
  return true;
}

bool pass_jvp(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0, n = m->funcs.n; i < n; i++)
    if (m->funcs.at[i]->kind == FK_PROGRAM && !run(cx, m->funcs.at[i], opt))
      return false;
  return true;
}
