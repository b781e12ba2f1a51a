// The rules of single ops: counts, attributes, operand kinds, result types,
// shapes of regions. oprules.def has what fits a table.
#include "ir/affine.h"
#include "ir/facts.h"
#include "ir/infer.h"
#include "ir/layout.h"
#include "ir/target.h"
#include "ir/verify/verify.h"

#include <string.h>

typedef unsigned __int128 AttrSet;  // of attributes, a bit each
_Static_assert(AT_COUNT <= 128, "an AttrSet has all attributes");

typedef struct Rule {
  const char *operands, *result;
  AttrSet required, optional;
} Rule;

#define A(id) ((AttrSet)1 << AT_##id)
static const Rule rules[OP_COUNT] = {
#define RULE(id, operands, result, required, optional) \
  [OP_##id] = {operands, result, required, optional},
#include "ir/oprules.def"
};
#undef A

static const Rule *rule_of(OpCode c) {
  static const Rule function = {"f", "", 0, 0};
  return rules[c].operands || !op_is_function(c) ? &rules[c] : &function;
}

static const Type *arg_type(const Verifier *v, const Op *op, uint32_t i) {
  return ir_type(v->f, op->args[i]);
}

static const Type *res_type(const Verifier *v, const Op *op, uint32_t i) {
  return ir_type(v->f, op->res[i]);
}

static char kind_of(const Type *t) {
  char k = dtype_kind(t->dtype);
  return k == 'u' ? 'i' : k;
}

static bool is_scalar(const Type *t, char kind) {
  return t->kind == TK_ELEM && t->n == 0 && kind_of(t) == kind;
}

static bool is_i64(const Type *t) {
  return is_scalar(t, 'i') && t->dtype == DT_I64;
}

// True if a has the axes of b or fewer, with the same sizes.
static bool within(const Type *a, const Type *b) {
  if (a->kind != TK_ELEM || b->kind != TK_ELEM)
    return a->kind == b->kind && a->n == b->n;
  for (uint32_t i = 0; i < a->n; i++) {
    int at = type_axis_at(b, a->axis[i]);
    if (at < 0 || b->size[at] != a->size[i]) return false;
  }
  return true;
}

static bool broadcasts(const Type *a, const Type *to) {
  return a->dtype == to->dtype && within(a, to);
}

// ---------------------------------------------------------------- levels
bool verify_level(Verifier *v, const Op *op) {
  const OpInfo *info = op_info(op->code);
  if (info->levels & v->ops) return true;
  // At level mach ops of the other kind of target may be meant.
  if (info->levels & level_ops(v->m->level))
    return verify_fail(v, op, "'%s' is an op of %s", info->name,
                       info->levels & OPL_CPU ? "the CPU" : "GPUs");
  return verify_fail(v, op, "'%s' is no op of level %s", info->name,
                     level_name(v->m->level));
}

// ---------------------------------------------------------------- counts
static bool check_counts(Verifier *v, const Op *op) {
  const OpInfo *info = op_info(op->code);
  if (op->nargs < info->min_args)
    return verify_fail(v, op, "needs at least %u operands", info->min_args);
  if (info->max_args != 255 && op->nargs > info->max_args)
    return verify_fail(v, op, "takes at most %u operands", info->max_args);
  if (info->nres != 255 && op->nres != info->nres)
    return verify_fail(v, op, "has %u results", info->nres);
  if (info->nregions != 255 && op->nregions != info->nregions)
    return verify_fail(v, op, "has %u regions", info->nregions);
  return true;
}

// ---------------------------------------------------------------- attributes
static bool axis_ok(const Verifier *v, int64_t axis) {
  return axis >= 0 && axis < v->f->axes.n;
}

static bool attr_ok(const Verifier *v, const IrAttr *a) {
  AttrKind kind = attr_kind(a->id);
  if (kind == AK_AXIS) return axis_ok(v, a->i);
  if (kind == AK_DIM) return a->i > 0 && a->i < v->m->dims.exprs.n;
  if (kind == AK_DTYPE) return a->i >= 0 && a->i < DT_COUNT;
  if (kind == AK_STR || kind == AK_SYM) return a->s != NULL;
  for (uint32_t i = 0; i < a->n; i++) {
    if (kind == AK_AXES && !axis_ok(v, a->list[i])) return false;
    for (uint32_t j = 0; j < i && kind == AK_AXES; j++)
      if (a->list[i] == a->list[j]) return false;
  }
  return true;
}

static bool check_attrs(Verifier *v, const Op *op) {
  const Rule *rule = rule_of(op->code);
  AttrSet seen = 0;
  for (uint32_t i = 0; i < op->nattrs; i++) {
    const IrAttr *a = &op->attrs[i];
    AttrSet bit = (AttrSet)1 << a->id;
    bool known = (rule->required | rule->optional) & bit;
    if (!known && a->id != AT_NOTE)
      return verify_fail(v, op, "takes no attribute '%s'", attr_name(a->id));
    if (!attr_ok(v, a))
      return verify_fail(v, op, "bad value of attribute '%s'",
                         attr_name(a->id));
    seen |= bit;
  }
  for (uint32_t id = 0; id < AT_COUNT; id++)
    if (rule->required & ~seen & ((AttrSet)1 << id))
      return verify_fail(v, op, "attribute '%s' is missing",
                         attr_name((AttrId)id));
  return true;
}

// ---------------------------------------------------------------- operands
static bool operand_ok(char want, const Type *t) {
  if (want == '.') return true;
  if (want == 't') return t->kind == TK_TENSOR;
  if (want == 'e') return t->kind != TK_TENSOR;
  if (want == 'p') return t->kind == TK_PTR;
  if (want == 'v') return t->kind == TK_VEC;
  if (want == 'r') return t->kind == TK_FRAG;
  if (want == 'm') return t->kind == TK_SMEM;
  if (want == 'a') return t->kind == TK_MBAR;
  if (want == 's') return t->kind == TK_ELEM && t->n == 0;
  if (t->kind != TK_ELEM && t->kind != TK_VEC && t->kind != TK_FRAG)
    return false;
  char k = kind_of(t);
  if (want == 'I') return is_scalar(t, 'i');
  if (want == 'B') return is_scalar(t, 'b');
  return want == 'n' ? k != 'b' : k == want;
}

static const char *operand_words(char want) {
  switch (want) {
  case 'n': return "a number";
  case 'f': return "a float";
  case 'i': return "an integer";
  case 'b': return "a bool";
  case 'I': return "an integer without axes";
  case 'B': return "a bool without axes";
  case 't': return "a tensor";
  case 'p': return "a pointer";
  case 'v': return "a vector";
  case 's': return "a scalar";
  case 'r': return "a fragment";
  case 'm': return "a shared tile";
  case 'a': return "barriers";
  default: return "a value, not a tensor";
  }
}

static bool check_operands(Verifier *v, const Op *op) {
  const char *want = rule_of(op->code)->operands;
  for (uint32_t i = 0; i < op->nargs; i++) {
    if (*want && !operand_ok(*want, arg_type(v, op, i)))
      return verify_fail(v, op, "operand %u must be %s", i,
                         operand_words(*want));
    if (*want && want[1] != '*') want++;
  }
  return true;
}

// Operands of one op are all floats, all integers or all bools.
static bool check_same_kind(Verifier *v, const Op *op, uint32_t from) {
  for (uint32_t i = from + 1; i < op->nargs; i++)
    if (kind_of(arg_type(v, op, i)) != kind_of(arg_type(v, op, from)))
      return verify_fail(v, op, "operands mix floats, integers and bools");
  return true;
}

// ---------------------------------------------------------------- results
static bool check_result_type(Verifier *v, const Op *op, const Type *want) {
  if (type_eq(want, res_type(v, op, 0))) return true;
  Buf b = {.arena = &v->cx->session};
  print_type(v->f, want, &b);
  return verify_fail(v, op, "the result must be %s", b.at);
}

// Coordinates and dims are i32 in programs of a GPU.
static bool narrow_ok(const Verifier *v) {
  return v->m->level >= LV_FRAG && target_is_gpu(v->m->target);
}

static bool check_inferred(Verifier *v, const Op *op) {
  Infer infer = op_info(op->code)->infer;
  if ((infer == INF_WIDE || infer == INF_BOOL) && !check_same_kind(v, op, 0))
    return false;
  if (infer == INF_SEL &&
      arg_type(v, op, 1)->dtype != arg_type(v, op, 2)->dtype)
    return verify_fail(v, op, "the two sides have different element types");
  if (infer == INF_GIVEN || infer == INF_NONE) {
    char want = rule_of(op->code)->result[0];
    bool i32 = want == 'J' || (want == 'I' && narrow_ok(v) &&
                               res_type(v, op, 0)->dtype == DT_I32);
    Type t = type_scalar(i32 ? DT_I32 : want == 'I' ? DT_I64 : DT_BOOL);
    return !want || check_result_type(v, op, &t);
  }
  Type t;
  const char *err = infer_type(v->f, op, &t);
  if (err) return verify_fail(v, op, "%s", err);
  return check_result_type(v, op, &t);
}

// ---------------------------------------------------------------- single ops
static bool check_const(Verifier *v, const Op *op) {
  const Type *t = res_type(v, op, 0);
  bool f = ir_attr(op, AT_VALUE), i = ir_attr(op, AT_IVALUE);
  if (t->kind != TK_ELEM && t->kind != TK_VEC && t->kind != TK_FRAG)
    return verify_fail(v, op, "the result must be a value");
  bool is_float = dtype_is_float(t->dtype);
  if (f == is_float && i != is_float) return true;
  return verify_fail(v, op,
                     "a float has a value, an integer or bool an ivalue");
}

static const FuncParam *param_of(const Func *f, Value x) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == x) return &f->params.at[i];
  return NULL;
}

static bool check_given(Verifier *v, const Op *op) {
  const FuncParam *p = param_of(v->f, op->args[0]);
  if (p && (p->role == PR_SCALAR || v->m->level >= LV_FRAG)) return true;
  return verify_fail(v, op, "operand 0 must be a scalar parameter");
}

// What a sum along the axis has in front of each block of it.
static bool check_block_store(Verifier *v, const Op *op) {
  int64_t axis = ir_attr_i(op, AT_AXIS, -1);
  if (ir_attr_i(op, AT_BLOCK, 0) < 1 || axis < 0 || !ir_attr(op, AT_DIR))
    return verify_fail(v, op, "a block has an axis, a direction, elements");
  if (v->m->level > LV_STREAM || ir_attr_i(op, AT_ADD, 0) ||
      ir_attr_i(op, AT_MASKED, 0))
    return verify_fail(v, op,
                       "blocks are stored as they are, in front of "
                       "level tile");
  if (v->f->axes.at[axis].role != AX_KEY ||
      type_has_axis(arg_type(v, op, 1), (uint32_t)axis))
    return verify_fail(v, op, "the value is no sum along the axis");
  return true;
}

static bool check_store(Verifier *v, const Op *op) {
  const Type *t = arg_type(v, op, 0), *x = arg_type(v, op, 1);
  bool masked = ir_attr_i(op, AT_MASKED, 0);
  if (op->nargs != 2 + t->n + masked)
    return verify_fail(v, op, "needs one index per axis of the tensor%s",
                       masked ? " and a predicate" : "");
  for (uint32_t i = 2; i < 2 + t->n; i++)
    if (kind_of(arg_type(v, op, i)) != 'i')
      return verify_fail(v, op, "operand %u must be an integer", i);
  if (masked && kind_of(arg_type(v, op, op->nargs - 1)) != 'b')
    return verify_fail(v, op, "the predicate must be a bool");
  if (x->dtype != t->dtype)
    return verify_fail(v, op, "value and tensor have different element types");
  const FuncParam *p = param_of(v->f, op->args[0]);
  if (p && p->role == PR_IN) return verify_fail(v, op, "stores to an input");
  if (ir_attr(op, AT_BLOCK) || ir_attr(op, AT_AXIS) || ir_attr(op, AT_DIR))
    return check_block_store(v, op);
  if (!ir_attr_i(op, AT_ADD, 0)) return true;
  const Target *to = v->m->target ? target_by_name(v->m->target) : NULL;
  if (v->m->level >= LV_TILE && (!to || to->kind == TARGET_CPU))
    return verify_fail(v, op, "a CPU's tiles are added by loads and stores");
  if (!dtype_is_float(t->dtype))
    return verify_fail(v, op, "only floats are added up in memory");
  return true;
}

static bool check_domain(Verifier *v, const Op *op) {
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  const Type *t = arg_type(v, op, 0);
  AxisRole role = v->f->axes.at[axis].role;
  if (role != AX_KEY && role != AX_PAR)
    return verify_fail(v, op, "only key and parallel axes have a domain");
  for (uint32_t i = 0; i < t->n; i++) {
    AxisRole other = v->f->axes.at[t->axis[i]].role;
    if (t->axis[i] != axis && other != AX_PAR)
      return verify_fail(v, op, "the predicate depends on axis '%s'",
                         v->f->axes.at[t->axis[i]].name);
  }
  return true;
}

static bool check_kind(Verifier *v, const Op *op, RKind k, const Type *t) {
  bool logic = k == RK_ANY || k == RK_ALL;
  if (logic == (kind_of(t) == 'b')) return true;
  return verify_fail(v, op, "%s %s", rkind_name(k),
                     logic ? "needs a bool" : "needs a number");
}

static bool check_reduce(Verifier *v, const Op *op) {
  return check_kind(v, op, (RKind)ir_attr_i(op, AT_KIND, 0),
                    arg_type(v, op, 0));
}

static bool check_scan(Verifier *v, const Op *op) {
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  if (!type_has_axis(arg_type(v, op, 0), axis))
    return verify_fail(v, op, "operand 0 does not vary with the axis");
  if (op->nargs == 2 && v->m->level == LV_ATTN)
    return verify_fail(v, op, "a carry at level attn");
  if (op->nargs == 2 &&
      (type_has_axis(arg_type(v, op, 1), axis) ||
       kind_of(arg_type(v, op, 1)) != kind_of(arg_type(v, op, 0))))
    return verify_fail(v, op, "the carry does not fit operand 0");
  if (ir_attr(op, AT_BLOCK) &&
      (ir_attr_i(op, AT_BLOCK, 0) < 1 || op->nargs == 2))
    return verify_fail(v, op, "blocks have elements, and no carry");
  return check_reduce(v, op);
}

static bool check_at(Verifier *v, const Op *op) {
  const IrAttr *axes = ir_attr(op, AT_AXES);
  Type t = *arg_type(v, op, 0);
  if (axes->n != op->nargs - 1)
    return verify_fail(v, op, "needs one coordinate per axis");
  for (uint32_t i = 0; i < axes->n; i++) {
    if (!type_has_axis(&t, (uint32_t)axes->list[i]))
      return verify_fail(v, op, "operand 0 does not vary with an axis");
    t = type_without(t, (uint32_t)axes->list[i]);
  }
  for (uint32_t i = 1; i < op->nargs; i++) {
    const char *err = infer_union(&t, arg_type(v, op, i), t.dtype, &t);
    if (err) return verify_fail(v, op, "%s", err);
  }
  return check_result_type(v, op, &t);
}

static bool fits_param(const Func *callee, const FuncParam *p, const Type *t) {
  const Type *want = ir_type(callee, p->v);
  if (p->role == PR_INDEX) return kind_of(t) == 'i' && t->kind == TK_ELEM;
  if (want->kind != t->kind || want->dtype != t->dtype) return false;
  return t->kind != TK_TENSOR || want->n == t->n;
}

static bool check_call(Verifier *v, const Op *op) {
  const Func *callee = ir_find(v->m, ir_attr(op, AT_CALLEE)->s);
  if (!callee) return verify_fail(v, op, "the callee does not exist");
  if (callee->kind == FK_PROGRAM)
    return verify_fail(v, op, "a program cannot be called");
  if (callee->kind == FK_ROW && !ir_attr(op, AT_AXIS))
    return verify_fail(v, op, "a row needs its key axis");
  if (op->nargs != callee->params.n)
    return verify_fail(v, op, "the callee has %u parameters", callee->params.n);
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!fits_param(callee, &callee->params.at[i], arg_type(v, op, i)))
      return verify_fail(v, op, "operand %u does not fit the parameter", i);
  const Op *ret = verify_terminator(callee->body);
  if (ret && ret->nargs != op->nres)
    return verify_fail(v, op, "the callee has %u results", ret->nargs);
  return true;
}

static bool check_span(Verifier *v, const Op *op) {
  const Type *t = arg_type(v, op, 0), *r = res_type(v, op, 0);
  if (op->nargs != t->n + 2)
    return verify_fail(v, op, "needs lo, hi and the leading indices");
  if (r->kind == TK_ELEM && kind_of(r) == 'i' && kind_of(t) == 'i') return true;
  return verify_fail(v, op, "tensor and result must be integers");
}

static bool check_row(Verifier *v, const Op *op) {
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  const Type *t = arg_type(v, op, 0);
  if (!type_has_axis(t, axis))
    return verify_fail(v, op, "operand 0 does not vary with the axis");
  Type rest = type_without(*t, axis);
  return check_result_type(v, op, &rest);
}

static bool check_trinv(Verifier *v, const Op *op) {
  const IrAttr *axes = ir_attr(op, AT_AXES);
  const Type *t = arg_type(v, op, 0);
  if (axes->n == 2 && t->n == 2 && t->size[0] == t->size[1] &&
      type_has_axis(t, (uint32_t)axes->list[0]) &&
      type_has_axis(t, (uint32_t)axes->list[1]))
    return true;
  return verify_fail(v, op, "the operand is no square tile over the axes");
}

static bool check_renamed(Verifier *v, const Op *op) {
  const Type *a = arg_type(v, op, 0), *t = res_type(v, op, 0);
  uint32_t others = 0;
  bool alike = a->kind == t->kind && a->dtype == t->dtype && a->n == t->n;
  for (uint32_t i = 0; alike && i < t->n; i++) {
    alike = a->size[i] == t->size[i];
    others += a->axis[i] != t->axis[i];
  }
  if (alike && others == 1) return true;
  return verify_fail(v, op,
                     "the result is not the operand with one other axis");
}

// Axes of tiles: the one that both have, the operand's other, the result's.
static bool check_skew(Verifier *v, const Op *op) {
  const Type *a = arg_type(v, op, 0), *t = res_type(v, op, 0);
  if (a->kind != TK_ELEM) return true;
  bool ok = t->kind == TK_ELEM && a->dtype == t->dtype && a->n == 2 &&
            t->n == 2 &&
            type_has_axis(a, t->axis[0]) != type_has_axis(a, t->axis[1]);
  if (!ok)
    return verify_fail(v, op, "not two tiles that have one axis in common");
  uint32_t c = type_has_axis(a, t->axis[1]), r = a->axis[0] == t->axis[c];
  int64_t size[3];
  Dim dims[] = {t->size[c], t->size[!c], a->size[r]};
  for (uint32_t i = 0; i < 3; i++)
    if (!dim_is_const(&v->m->dims, dims[i], &size[i]))
      return verify_fail(v, op, "the size of a tile is no known constant");
  return skew_inside(op, size[0], size[1], size[2]) ||
         verify_fail(v, op, "a diagonal lies outside of the operand");
}

// The tile's row that it is of.
static bool check_origin(Verifier *v, const Op *op) {
  int64_t row = ir_attr_i(op, AT_ROW, 0), most = 0;
  if (!ir_attr(op, AT_ROW)) return true;
  for (uint32_t i = 0; i < v->f->grid.n; i++)
    if (v->f->grid.at[i].tile > most) most = v->f->grid.at[i].tile;
  if (v->m->level != LV_TILE || !target_is_gpu(v->m->target))
    return verify_fail(v, op, "'row' is for programs of GPUs at level tile");
  if (row >= 0 && row < most) return true;
  return verify_fail(v, op, "a tile has no such row");
}

static bool check_iota(Verifier *v, const Op *op) {
  const Type *t = res_type(v, op, 0);
  if (t->kind == TK_ELEM && t->n == 1 && t->dtype == DT_I64) return true;
  return verify_fail(v, op, "the result must be an i64 with one axis");
}

// ---------------------------------------------------------------- regions
static bool check_params(Verifier *v, const Op *op, uint32_t region,
                         uint32_t n) {
  if (op->regions[region]->params.n == n) return true;
  return verify_fail(v, op, "region %u must have %u arguments", region, n);
}

static bool param_is(Verifier *v, const Op *op, uint32_t region, uint32_t i,
                     const Type *want) {
  Value x = op->regions[region]->params.at[i];
  if (type_eq(ir_type(v->f, x), want)) return true;
  return verify_fail(v, op, "argument %u of region %u has the wrong type", i,
                     region);
}

// The yield of a region, with n operands.
static const Op *yield_of(Verifier *v, const Op *op, uint32_t region,
                          uint32_t n) {
  const Op *y = verify_terminator(op->regions[region]);
  if (y && y->code == OP_YIELD && y->nargs == n) return y;
  verify_fail(v, op, "region %u must yield %u values", region, n);
  return NULL;
}

static bool yields_results(Verifier *v, const Op *op, uint32_t region) {
  const Op *y = yield_of(v, op, region, op->nres);
  if (!y) return false;
  for (uint32_t i = 0; i < op->nres; i++)
    if (!type_eq(arg_type(v, y, i), res_type(v, op, i)))
      return verify_fail(v, op,
                         "value %u that region %u yields has the wrong "
                         "type",
                         i, region);
  return true;
}

// Initial and next states may have fewer axes than the state; the next state
// is a function of the step too.
static bool check_recur(Verifier *v, const Op *op) {
  if (op->nargs != op->nres)
    return verify_fail(v, op, "has one result per initial state");
  if (!check_params(v, op, 0, op->nres)) return false;
  const Op *y = yield_of(v, op, 0, op->nres);
  for (uint32_t i = 0; y && i < op->nres; i++) {
    const Type *t = res_type(v, op, i);
    if (type_has_axis(t, (uint32_t)ir_attr_i(op, AT_AXIS, 0)))
      return verify_fail(v, op, "state %u varies with the step axis", i);
    if (!param_is(v, op, 0, i, t)) return false;
    if (!broadcasts(arg_type(v, op, i), t))
      return verify_fail(v, op, "initial state %u has the wrong type", i);
    uint32_t step = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
    Type next = type_without(*arg_type(v, y, i), step);
    if (!broadcasts(&next, t))
      return verify_fail(v, op, "next state %u has the wrong type", i);
  }
  return y != NULL;
}

// Operand i is a float over the axes of the state, without `less`, and the
// step axis.
static bool affine_operand(Verifier *v, const Op *op, Value x, const Type *s,
                           uint32_t less, const char *what) {
  const Type *t = ir_type(v->f, x);
  uint32_t step = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  if (kind_of(t) != 'f' || t->kind != TK_ELEM)
    return verify_fail(v, op, "%s must be a float", what);
  for (uint32_t i = 0; i < t->n; i++)
    if (t->axis[i] == less ||
        (t->axis[i] != step && !type_has_axis(s, t->axis[i])))
      return verify_fail(v, op, "%s varies with axis '%s'", what,
                         v->f->axes.at[t->axis[i]].name);
  return true;
}

static bool affine_vectors(Verifier *v, const Op *op, const Affine *a) {
  const Type *s = res_type(v, op, 0);
  uint32_t none = UINT32_MAX, col = none;
  for (uint32_t i = 0; i < s->n; i++)
    if (s->axis[i] != a->row && v->f->axes.at[s->axis[i]].role == AX_VEC)
      col = s->axis[i];
  bool rows = a->decay && type_has_axis(ir_type(v->f, a->decay), a->row);
  if (a->decay &&
      !affine_operand(v, op, a->decay, s, rows ? col : none, "the decay"))
    return false;
  for (uint32_t i = 0; i < a->nwrites; i++) {
    const AffineWrite *w = &a->write[i];
    if (!affine_operand(v, op, w->b, s, col, "the key of a write") ||
        !affine_operand(v, op, w->w, s, a->row, "the value of a write") ||
        (w->a && !affine_operand(v, op, w->a, s, col, "what a write erases")))
      return false;
  }
  for (uint32_t i = 0; i < a->nreads; i++)
    if (!affine_operand(v, op, a->read[i].q, s, col, "a read")) return false;
  return true;
}

// What an affine gives besides its state and reads, which have this type.
static bool check_more(Verifier *v, const Op *op, const Affine *a,
                       const Type *read) {
  uint32_t erasing = 0;
  for (uint32_t i = 0; i < a->nwrites; i++) erasing += a->write[i].a != 0;
  if (a->written &&
      (erasing != 1 || !type_eq(res_type(v, op, affine_written_at(a)), read)))
    return verify_fail(v, op,
                       "what one write that erases writes is typed as a "
                       "read");
  Type front = type_with(*res_type(v, op, 0), a->axis, DIM_NONE);
  if (a->front < 0 ||
      (a->front && !type_eq(res_type(v, op, affine_front_at(a)), &front)))
    return verify_fail(v, op, "the state in front of steps has the wrong type");
  return true;
}

static bool check_affine(Verifier *v, const Op *op) {
  Affine a;
  if (!affine_parts(op, &a))
    return verify_fail(v, op, "operands do not fit the attributes");
  const Type *s = res_type(v, op, 0);
  if (op->nres != affine_results(&a))
    return verify_fail(v, op, "has one result for the state and one per read");
  if (v->f->axes.at[a.axis].role != AX_STEP || type_has_axis(s, a.axis))
    return verify_fail(v, op, "the axis is no step axis, or the state's");
  if (!type_has_axis(s, a.row) || !broadcasts(ir_type(v->f, a.state), s))
    return verify_fail(v, op, "the initial state has the wrong type");
  Type read = type_with(type_without(*s, a.row), a.axis, DIM_NONE);
  for (uint32_t i = 0; i < a.nreads; i++)
    if (!type_eq(res_type(v, op, i + 1), &read))
      return verify_fail(v, op, "read %u has the wrong type", i);
  if (!check_more(v, op, &a, &read)) return false;
  if (a.limit && (kind_of(ir_type(v->f, a.limit)) != 'i' ||
                  type_has_axis(ir_type(v->f, a.limit), a.axis)))
    return verify_fail(v, op, "the limit is no integer, or varies with steps");
  return affine_vectors(v, op, &a);
}

static bool check_maxplus(Verifier *v, const Op *op) {
  const Type *s = res_type(v, op, 0);
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  Type each = type_with(*s, axis, DIM_NONE);
  if (v->f->axes.at[axis].role != AX_STEP || type_has_axis(s, axis))
    return verify_fail(v, op, "the axis is no step axis, or the state's");
  if (!type_eq(res_type(v, op, 1), &each))
    return verify_fail(v, op, "result 1 is not the state of each step");
  if ((op->nargs == 4) != (ir_attr_i(op, AT_LIMIT, 0) != 0))
    return verify_fail(v, op, "operands do not fit the attributes");
  for (uint32_t i = 0; i < 3; i++)
    if (!within(arg_type(v, op, i), i ? &each : s))
      return verify_fail(v, op, "operand %u has other axes", i);
  return true;
}

static bool check_for(Verifier *v, const Op *op) {
  Type index = narrow_ok(v) ? *arg_type(v, op, 0) : type_scalar(DT_I64);
  if (op->nargs != op->nres + 3)
    return verify_fail(v, op, "has one result per initial value");
  if (!check_params(v, op, 0, op->nres + 1) || !param_is(v, op, 0, 0, &index))
    return false;
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = res_type(v, op, i);
    if (!param_is(v, op, 0, i + 1, t)) return false;
    if (!type_eq(arg_type(v, op, i + 3), t))
      return verify_fail(v, op, "initial value %u has the wrong type", i);
  }
  return yields_results(v, op, 0);
}

static bool check_while(Verifier *v, const Op *op) {
  if (op->nargs != op->nres + 1)
    return verify_fail(v, op, "has one result per initial value");
  if (!check_params(v, op, 0, op->nres)) return false;
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = res_type(v, op, i);
    if (!param_is(v, op, 0, i, t)) return false;
    if (!type_eq(arg_type(v, op, i + 1), t))
      return verify_fail(v, op, "initial value %u has the wrong type", i);
  }
  if (!type_eq(arg_type(v, op, 0), arg_type(v, op, 1)))
    return verify_fail(v, op, "bound and first value have different types");
  return yields_results(v, op, 0);
}

static bool check_if(Verifier *v, const Op *op) {
  for (uint32_t i = 0; i < 2; i++)
    if (!check_params(v, op, i, 0) || !yields_results(v, op, i)) return false;
  return true;
}

// ---------------------------------------------------------------- pass
static bool list_within(const Op *op, AttrId id, uint32_t n) {
  const IrAttr *a = ir_attr(op, id);
  for (uint32_t i = 0; a && i < a->n; i++)
    if (a->list[i] < 0 || a->list[i] >= n) return false;
  return true;
}

static bool check_accumulators(Verifier *v, const Op *op, uint32_t key) {
  const IrAttr *kinds = ir_attr(op, AT_KINDS);
  static const AttrId lists[] = {AT_GAUGE, AT_SCANS, AT_GUARD};
  if (kinds->n != op->nres)
    return verify_fail(v, op, "has one result per kind");
  for (uint32_t i = 0; i < 3; i++)
    if (!list_within(op, lists[i], op->nres))
      return verify_fail(v, op, "'%s' names no accumulator",
                         attr_name(lists[i]));
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = res_type(v, op, i);
    if (t->kind != TK_ELEM || type_has_axis(t, key))
      return verify_fail(v, op, "accumulator %u has the key axis", i);
    if (!check_kind(v, op, (RKind)kinds->list[i], t)) return false;
  }
  return true;
}

static bool check_local(Verifier *v, const Op *op, uint32_t key) {
  if (!check_params(v, op, 1, op->nres)) return false;
  const Op *y = yield_of(v, op, 1, op->nres);
  for (uint32_t i = 0; y && i < op->nres; i++) {
    const Type *t = res_type(v, op, i);
    if (!param_is(v, op, 1, i, t)) return false;
    Type term = type_without(*arg_type(v, y, i), key);
    if (kind_of(&term) != kind_of(t) || !within(&term, t))
      return verify_fail(v, op, "term %u does not fit its accumulator", i);
  }
  return y != NULL;
}

static bool check_correct(Verifier *v, const Op *op) {
  uint32_t n = op->nres;
  if (!check_params(v, op, 2, 2 * n)) return false;
  const Op *y = yield_of(v, op, 2, n);
  for (uint32_t i = 0; y && i < n; i++) {
    const Type *t = res_type(v, op, i), *factor = arg_type(v, y, i);
    if (!param_is(v, op, 2, i, t) || !param_is(v, op, 2, n + i, t))
      return false;
    if (kind_of(factor) == 'b' || !within(factor, t))
      return verify_fail(v, op, "factor %u does not fit its accumulator", i);
  }
  return y != NULL;
}

// Regions over scalars: n integer arguments in, integers out.
static const Op *scalar_region(Verifier *v, const Op *op, uint32_t region,
                               uint32_t n) {
  Type i64 = type_scalar(DT_I64);
  if (!check_params(v, op, region, n)) return NULL;
  for (uint32_t i = 0; i < n; i++)
    if (!param_is(v, op, region, i, &i64)) return NULL;
  const Op *y = verify_terminator(op->regions[region]);
  for (uint32_t i = 0; i < y->nargs; i++) {
    if (is_i64(arg_type(v, y, i))) continue;
    verify_fail(v, op, "region %u must yield i64 without axes", region);
    return NULL;
  }
  return y;
}

static bool check_bounds(Verifier *v, const Op *op) {
  if (op->nregions == 3) return true;
  const IrAttr *box = ir_attr(op, AT_BOX);
  if (!box) return verify_fail(v, op, "bounds need attribute 'box'");
  const Op *y = scalar_region(v, op, 3, 2 * box->n);
  if (!y) return false;
  if (y->nargs % 4 || y->nargs == 0 || y->nargs > 16)
    return verify_fail(v, op,
                       "region 3 must yield 4 values per interval, at "
                       "most 4 intervals");
  if (op->nregions == 4) return true;
  y = scalar_region(v, op, 4, 2 * box->n + 2);
  if (!y || y->nargs == 1) return y != NULL;
  return verify_fail(v, op, "region 4 must yield 1 value");
}

static bool check_pass(Verifier *v, const Op *op) {
  uint32_t key = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  if (op->nregions < 3 || op->nregions > 5)
    return verify_fail(v, op, "has 3 to 5 regions");
  if (v->f->axes.at[key].role != AX_KEY)
    return verify_fail(v, op, "the axis is no key axis");
  if (!check_accumulators(v, op, key) || !check_params(v, op, 0, 0))
    return false;
  const Op *y = yield_of(v, op, 0, 1);
  if (!y) return false;
  if (kind_of(arg_type(v, y, 0)) != 'b')
    return verify_fail(v, op, "region 0 must yield a bool");
  return check_local(v, op, key) && check_correct(v, op) && check_bounds(v, op);
}

static bool check_peers(Verifier *v, const Op *op) {
  int64_t n = ir_attr_i(op, AT_CLUSTER, 0);
  if (n < 2) return verify_fail(v, op, "a cluster has several CTAs");
  if (op->nres != op->nargs * n)
    return verify_fail(v, op, "has one result per operand and CTA");
  for (uint32_t i = 0; i < op->nres; i++)
    if (res_type(v, op, i)->dtype != arg_type(v, op, i / (uint32_t)n)->dtype)
      return verify_fail(v, op, "has its operands' types");
  return true;
}

// ---------------------------------------------------------------- all
typedef bool CheckFn(Verifier *v, const Op *op);

static CheckFn *const checks[OP_COUNT] = {
    [OP_CONST] = check_const,     [OP_GIVEN] = check_given,
    [OP_STORE] = check_store,     [OP_DOMAIN] = check_domain,
    [OP_REDUCE] = check_reduce,   [OP_SCAN] = check_scan,
    [OP_AT] = check_at,           [OP_CALL] = check_call,
    [OP_SPAN_MIN] = check_span,   [OP_SPAN_MAX] = check_span,
    [OP_ORIGIN] = check_origin,   [OP_IOTA] = check_iota,
    [OP_RECUR] = check_recur,     [OP_AFFINE] = check_affine,
    [OP_MAXPLUS] = check_maxplus, [OP_RENAMED] = check_renamed,
    [OP_SKEW] = check_skew,       [OP_ROW] = check_row,
    [OP_TRINV] = check_trinv,     [OP_FOR] = check_for,
    [OP_IF] = check_if,           [OP_WHILE] = check_while,
    [OP_KREDUCE] = check_pass,    [OP_PEERS] = check_peers,
};

bool verify_op(Verifier *v, const Op *op) {
  if (!check_counts(v, op) || !check_attrs(v, op) || !check_operands(v, op) ||
      !check_inferred(v, op))
    return false;
  if (checks[op->code] && !checks[op->code](v, op)) return false;
  return v->m->level < LV_FRAG || verify_machine_op(v, op);
}
