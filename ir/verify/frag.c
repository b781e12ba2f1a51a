// The rules of single ops of GPU programs that are about values: fragments,
// tensors, tiles, products; and what level frag demands besides. docs/gpu/ir.md
// says what they mean.
#include "ir/target.h"
#include "ir/verify/rule.h"

#include <string.h>

static bool is_pos(int64_t pos) {
  return pos == 0 || pos == 1;
}

// ---------------------------------------------------------------- structure
enum { MAX_RELIEF = 5 };

static bool check_launch(Verifier *v, const Op *op) {
  int64_t threads = ir_attr_i(op, AT_THREADS, 0);
  const IrAttr *ctas = ir_attr(op, AT_CTAS);
  if (op != ir_launch(v->f))
    return verify_fail(v, op, "must be the first op of the function");
  if (threads < 32 || threads > 1024 || threads % 32)
    return verify_fail(v, op, "threads are whole warps, 32 to 1024");
  if (ctas && strcmp(ctas->s, "tasks") && strcmp(ctas->s, "persistent"))
    return verify_fail(v, op, "ctas is \"tasks\" or \"persistent\"");
  if (ir_attr_i(op, AT_RELIEF, 0) < 0 ||
      ir_attr_i(op, AT_RELIEF, 0) > MAX_RELIEF)
    return verify_fail(v, op, "relief is 0 to 5");
  if (ir_attr(op, AT_GROUPS) && v->m->level != LV_FRAG)
    return verify_fail(v, op,
                       "groups are level frag's: at level mach roles have "
                       "them");
  return true;
}

// ---------------------------------------------------------------- fragments
static bool check_splat(Verifier *v, const Op *op) {
  const Type *r = res_type(v, op);
  bool ok = r->kind == TK_FRAG && r->dtype == arg_type(v, op, 0)->dtype;
  return ok || wrong_result(v, op);
}

static bool check_coord(Verifier *v, const Op *op) {
  const Type *r = res_type(v, op);
  int64_t pos = ir_attr_i(op, AT_POS, 0);
  bool ok = r->kind == TK_FRAG && r->dtype == DT_I32 && is_pos(pos) &&
            r->slice == (pos ? SLICE_COL : SLICE_ROW) && !r->partial;
  return ok || wrong_result(v, op);
}

static bool slice_of(const Type *s, const Type *whole, uint32_t pos,
                     bool partial) {
  Type want = frag_slice(whole, pos, partial);
  want.dtype = s->dtype;
  return type_eq(s, &want);
}

static bool check_bcast(Verifier *v, const Op *op) {
  const Type *s = arg_type(v, op, 0), *r = res_type(v, op);
  if (!is_whole(r) || r->dtype != s->dtype) return wrong_result(v, op);
  bool ok = s->slice != SLICE_NONE && !s->partial &&
            slice_of(s, r, s->slice == SLICE_COL, false);
  return ok || verify_fail(v, op, "the operand is no slice of the result");
}

static bool check_freduce(Verifier *v, const Op *op) {
  const Type *x = arg_type(v, op, 0), *r = res_type(v, op);
  int64_t pos = ir_attr_i(op, AT_POS, 0);
  if (!is_pos(pos)) return wrong_operand(v, op, 0);
  if (x->slice) {  // over the axis it has: a scalar
    if (x->partial || pos != (x->slice == SLICE_COL))
      return wrong_operand(v, op, 0);
    return (r->kind == TK_ELEM && r->dtype == x->dtype) || wrong_result(v, op);
  }
  bool ok = r->kind == TK_FRAG && r->dtype == x->dtype &&
            slice_of(r, x, 1 - (uint32_t)pos, r->partial);
  if (!ok) return wrong_result(v, op);
  // fcombine could not tell parts from copies.
  ok = !r->partial ||
       frag_adds_in_parts(x, ir_group_threads(v->f, op), (uint32_t)pos);
  return ok ||
         verify_fail(v, op, "partial, but threads hold the same elements");
}

static bool check_fcombine(Verifier *v, const Op *op) {
  Type want = *arg_type(v, op, 0);
  if (!want.partial) return verify_fail(v, op, "the operand is not partial");
  want.partial = false;
  return type_eq(res_type(v, op), &want) || wrong_result(v, op);
}

static bool check_fscan(Verifier *v, const Op *op) {
  const Type *x = arg_type(v, op, 0);
  int64_t pos = ir_attr_i(op, AT_POS, 0);
  if (x->partial || !is_pos(pos)) return wrong_operand(v, op, 0);
  if (x->slice && pos != (x->slice == SLICE_COL))
    return wrong_operand(v, op, 0);
  if (op->nargs > 1) {
    const Type *c = arg_type(v, op, 1);
    bool ok = x->slice ? c->kind == TK_ELEM && c->dtype == x->dtype
                       : c->kind == TK_FRAG && c->dtype == x->dtype &&
                             slice_of(c, x, 1 - (uint32_t)pos, false);
    if (!ok) return wrong_operand(v, op, 1);
  }
  return type_eq(res_type(v, op), x) || wrong_result(v, op);
}

static bool check_relayout(Verifier *v, const Op *op) {
  const Type *x = arg_type(v, op, 0), *r = res_type(v, op);
  bool ok = r->kind == TK_FRAG && r->dtype == x->dtype &&
            !r->slice == !x->slice && r->ext[0] == x->ext[0] && !r->partial &&
            !x->partial;
  if (ok && !x->slice) ok = r->ext[1] == x->ext[1];
  return ok || wrong_result(v, op);
}

static bool check_fcols(Verifier *v, const Op *op) {
  enum { BLOCK = 8 };  // columns that a thread's registers are counted by
  const Type *x = arg_type(v, op, 0), *r = res_type(v, op);
  int64_t pos = ir_attr_i(op, AT_POS, 0);
  if (!is_whole(x) || x->layout != LY_ACC) return wrong_operand(v, op, 0);
  Type want = *x;
  want.ext[1] = r->ext[1];
  bool ok = type_eq(r, &want) && pos >= 0 && pos % BLOCK == 0 &&
            r->ext[1] % BLOCK == 0 && pos + r->ext[1] <= x->ext[1];
  return ok || wrong_result(v, op);
}

static bool check_fwarps(Verifier *v, const Op *op) {
  enum { ROWS = 16 };  // of a warp
  const Type *x = arg_type(v, op, 0);
  bool rows = is_whole(x) || x->slice == SLICE_ROW;
  bool ok = rows && x->layout == LY_ACC && !x->partial &&
            (x->dtype == DT_BOOL || dtype_size(x->dtype) == 4) &&
            x->ext[0] == ROWS * (ir_group_threads(v->f, op) / 32);
  return ok || wrong_operand(v, op, 0);
}

static bool check_peers(Verifier *v, const Op *op) {
  enum { ROWS = 16 };  // of a warp
  int64_t n = ir_attr_i(op, AT_CLUSTER, 0);
  const Op *launch = ir_launch(v->f);
  if (!launch || ir_attr_i(launch, AT_CLUSTER, 0) != n)
    return verify_fail(v, op, "the launch has another cluster");
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Type *x = arg_type(v, op, i);
    bool rows = is_whole(x) || x->slice == SLICE_ROW;
    if (!rows || x->layout != LY_ACC || x->partial ||
        (x->dtype != DT_BOOL && dtype_size(x->dtype) != 4) ||
        x->ext[0] != ROWS * (ir_group_threads(v->f, op) / 32))
      return wrong_operand(v, op, i);
  }
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *x = arg_type(v, op, i / (uint32_t)n);
    Type want = *x;
    if (!x->slice) want.ext[1] /= (uint32_t)n;
    if (!type_eq(ir_type(v->f, op->res[i]), &want) ||
        (!x->slice && want.ext[1] * n != x->ext[1]))
      return wrong_result(v, op);
  }
  return true;
}

static bool check_fdeal(Verifier *v, const Op *op) {
  enum { ROWS = 16 };  // of a warp
  const Type *x = arg_type(v, op, 0), *r = res_type(v, op);
  if (x->kind != TK_FRAG || x->layout != LY_ACC || x->slice != SLICE_ROW ||
      x->partial || dtype_size(x->dtype) > 4 ||
      x->ext[0] != ROWS * (ir_group_threads(v->f, op) / 32))
    return wrong_operand(v, op, 0);
  Type want = type_frag(x->dtype, x->ext[0], ROWS, LY_ACC);
  return type_eq(r, &want) || wrong_result(v, op);
}

static bool check_skew(Verifier *v, const Op *op) {
  const Type *x = arg_type(v, op, 0), *r = res_type(v, op);
  enum { BLOCK = 8 };  // columns that begin together
  bool turned = ir_attr_i(op, AT_TRANS, 0) != 0;
  Type want = *x;
  want.ext[0] = turned ? r->ext[0] : x->ext[0];
  want.ext[1] = r->ext[1];
  uint32_t rows = SKEW_ROWS * (ir_group_threads(v->f, op) / 32);
  if (!is_whole(x) || x->layout != LY_ACC || x->dtype != DT_F32 ||
      x->ext[0] % rows)
    return wrong_operand(v, op, 0);
  if (!type_eq(r, &want) || r->ext[1] % BLOCK) return wrong_result(v, op);
  if (turned && (r->ext[0] != rows || r->ext[1] != rows))
    return wrong_result(v, op);
  return (ir_attr_i(op, AT_POS, 0) + 1) % BLOCK == 0 ||
         verify_fail(v, op, "diagonals do not begin with a block of columns");
}

static bool check_ftrinv(Verifier *v, const Op *op) {
  const Type *x = arg_type(v, op, 0);
  uint32_t rows = 16 * (ir_group_threads(v->f, op) / 32);
  if (is_whole(x) && x->layout == LY_ACC && x->dtype == DT_F32 &&
      x->ext[0] == x->ext[1] && rows && x->ext[0] % rows == 0)
    return true;
  return verify_fail(v, op,
                     "the operand is no square f32 tile of whole blocks "
                     "of rows in layout acc");
}

static bool is_float8(DType t) {
  return dtype_is_float(t) && dtype_size(t) == 1;
}

static bool check_foperand(Verifier *v, const Op *op) {
  const Type *x = arg_type(v, op, 0);
  if (!is_whole(x) || !is_float8(x->dtype)) return wrong_operand(v, op, 0);
  return type_eq(res_type(v, op), x) || wrong_result(v, op);
}

static bool check_vote(Verifier *v, const Op *op) {
  int64_t k = ir_attr_i(op, AT_KIND, 0);
  if (arg_type(v, op, 0)->kind != TK_FRAG) return wrong_operand(v, op, 0);
  return k == RK_ANY || k == RK_ALL || verify_fail(v, op, "kind is any or all");
}

static bool check_exceeds(Verifier *v, const Op *op) {
  const Type *x = arg_type(v, op, 0);
  if (!is_whole(x) || x->dtype != DT_F32) return wrong_operand(v, op, 0);
  for (uint32_t i = 1; i < op->nargs; i++) {
    const Type *limit = arg_type(v, op, i);
    if (limit->dtype != DT_F32 || !slice_of(limit, x, 0, false))
      return wrong_operand(v, op, i);
  }
  return true;
}

// ---------------------------------------------------------------- tensors
// Indices lo .. lo + rank - 1 of a tensor access: i32 scalars or fragments of
// one tile. *out: the union of their shapes (kind TK_ELEM: scalars only).
static bool index_shape(Verifier *v, const Op *op, uint32_t lo, uint32_t n,
                        Type *out) {
  *out = type_scalar(DT_I32);
  Type whole = {.kind = TK_NONE};
  for (uint32_t i = lo; i < lo + n; i++) {
    const Type *t = arg_type(v, op, i);
    if (t->dtype != DT_I32 || t->partial) return wrong_operand(v, op, i);
    if (t->kind == TK_ELEM) continue;
    if (t->kind != TK_FRAG) return wrong_operand(v, op, i);
    if (out->kind == TK_ELEM || type_eq(out, t)) {
      *out = *t;
    } else if (out->slice && t->slice) {  // rows and columns
      const Type *r = out->slice == SLICE_ROW ? out : t;
      const Type *c = out->slice == SLICE_ROW ? t : out;
      if (r->slice == c->slice || r->layout != c->layout)
        return wrong_operand(v, op, i);
      whole = type_frag(DT_I32, r->ext[0], c->ext[0], r->layout);
      *out = whole;
    } else {
      const Type *w = out->slice ? t : out, *s = out->slice ? out : t;
      if (!s->slice || !slice_of(s, w, s->slice == SLICE_COL, false))
        return wrong_operand(v, op, i);
      *out = *w;
    }
  }
  return true;
}

static bool fits_shape(const Type *t, Type shape, DType dtype) {
  shape.dtype = dtype;
  return type_eq(t, &shape);
}

static bool check_gload(Verifier *v, const Op *op) {
  const Type *t = arg_type(v, op, 0);
  Type shape;
  if (op->nargs != 1 + t->n)
    return verify_fail(v, op, "needs one index per axis of the tensor");
  if (!index_shape(v, op, 1, t->n, &shape)) return false;
  return fits_shape(res_type(v, op), shape, t->dtype) || wrong_result(v, op);
}

static bool check_gstore(Verifier *v, const Op *op) {
  const Type *t = arg_type(v, op, 0);
  bool masked = ir_attr_i(op, AT_MASKED, 0);
  Type shape;
  if (op->nargs != 2 + t->n + masked)
    return verify_fail(v, op, "needs one index per axis of the tensor%s",
                       masked ? " and a predicate" : "");
  if (!index_shape(v, op, 2, t->n, &shape)) return false;
  if (!fits_shape(arg_type(v, op, 1), shape, t->dtype))
    return wrong_operand(v, op, 1);
  if (ir_attr_i(op, AT_ADD, 0) && t->dtype != DT_F32)
    return verify_fail(v, op, "only f32 is added up in memory");
  const Type *mask = masked ? arg_type(v, op, op->nargs - 1) : NULL;
  bool same = mask && mask->kind == TK_ELEM && mask->dtype == DT_BOOL;
  if (masked && !same && !fits_shape(mask, shape, DT_BOOL))
    return wrong_operand(v, op, op->nargs - 1);
  return true;
}

// ---------------------------------------------------------------- tiles
// The sign is a bool behind the indices.
static bool check_sfill(Verifier *v, const Op *op) {
  bool flip = ir_attr_i(op, AT_FLIP, 0);
  for (uint32_t i = 1; i < op->nargs; i++) {
    DType t = arg_type(v, op, i)->dtype;
    bool sign = flip && i + 1 == op->nargs;
    if (arg_type(v, op, i)->kind == TK_TENSOR) continue;  // (verify_box)
    if (sign ? t != DT_BOOL : dtype_is_float(t) || t == DT_BOOL)
      return wrong_operand(v, op, i);
  }
  DType t = res_type(v, op)->dtype;
  if (flip && (!dtype_is_float(t) || dtype_size(t) > 2))
    return verify_fail(v, op, "flip takes floats of 16 or 8 bits");
  return verify_box(v, op, 0, res_type(v, op));
}

static bool check_sput(Verifier *v, const Op *op) {
  const Type *x = arg_type(v, op, 0), *r = res_type(v, op);
  bool ok = is_whole(x) && is_tile(r) && r->dtype == x->dtype &&
            r->ext[0] == x->ext[0] && r->ext[1] == x->ext[1];
  // Columns are a tile of one row.
  bool row = is_tile(r) && r->dtype == x->dtype && x->kind == TK_FRAG &&
             x->slice == SLICE_COL && !x->partial && r->ext[0] == 1 &&
             r->ext[1] == x->ext[0];
  return ok || row || wrong_result(v, op);
}

static bool check_gput(Verifier *v, const Op *op) {
  const Type *x = arg_type(v, op, 0), *r = res_type(v, op);
  bool ok = is_whole(x) && is_tile(r) && r->dtype == x->dtype &&
            r->ext[0] == x->ext[0] && r->ext[1] == x->ext[1];
  return ok || wrong_result(v, op);
}

// A tile of one row has a column for each of a slice's rows.
static bool is_rows_of(const Type *x, const Type *s) {
  return x->kind == TK_FRAG && x->slice == SLICE_ROW && !x->partial &&
         s->ext[0] == 1 && s->ext[1] == x->ext[0];
}

static bool check_sload(Verifier *v, const Op *op) {
  const Type *s = arg_type(v, op, 0), *x = res_type(v, op);
  bool flip = ir_attr_i(op, AT_TRANS, 0);
  // A tile of one row has the columns of a fragment first.
  bool row = !flip && is_tile(s) && s->dtype == x->dtype &&
             x->kind == TK_FRAG && x->slice == SLICE_COL && !x->partial &&
             s->ext[0] == 1 && s->ext[1] >= x->ext[0];
  // Or, turned, the rows of one.
  bool col = flip && is_tile(s) && s->dtype == x->dtype && is_rows_of(x, s);
  Type part = *s;
  if (op->nargs > 1 && !flip && s->layout != LY_ROW && s->ext[1] > x->ext[1])
    part.ext[1] = x->ext[1];
  return row || col || fills(x, &part, flip) || wrong_result(v, op);
}

// One below the other: of whole panels, or of one, whose rows lie so.
static bool check_gtile(Verifier *v, const Op *op) {
  const Type *x = arg_type(v, op, 0), *s = res_type(v, op);
  bool ok = is_tile(s) && is_whole(x) && s->dtype == x->dtype &&
            s->ext[0] % x->ext[0] == 0 && s->ext[1] == x->ext[1] &&
            s->layout != LY_ROW && smem_has_whole_panels(s);
  return ok || wrong_result(v, op);
}

static bool check_gjoin(Verifier *v, const Op *op) {
  const Type *x = arg_type(v, op, 0);
  bool ok = x->kind == TK_ELEM ? x->dtype == DT_BOOL && !x->n
                               : x->kind == TK_FRAG && x->dtype == DT_F32 &&
                                     x->slice != SLICE_COL && !x->partial;
  if (!ok) return wrong_operand(v, op, 0);
  return type_eq(x, res_type(v, op)) || wrong_result(v, op);
}

// ---------------------------------------------------------------- products
static const GpuFacts *facts(const Verifier *v) {
  return &target_by_name(v->m->target)->gpu;
}

// Other bits than OCP's are read by the matrix units alone.
static bool check_fnuz(Verifier *v, const Op *op) {
  const Type *a = arg_type(v, op, 0), *b = arg_type(v, op, 1);
  const Op *def = ir_def(v->f, op->args[0]);
  bool whole = a->ext[1] % 64 == 0 && b->ext[0] % facts(v)->cols == 0;
  if (a->dtype != DT_F8E4M3 || b->dtype != DT_F8E4M3 ||
      ir_attr_i(op, AT_TRANS, 0) || !whole)
    return verify_fail(v, op, "no such product of %s", dtype_name(a->dtype));
  return (def && def->code == OP_FOPERAND) ||
         verify_fail(v, op, "operand 0 is no foperand");
}

// Columns [from, to) of each block of 16 of the summed axis.
static bool check_spans(Verifier *v, const Op *op, uint32_t k, uint32_t cols) {
  const IrAttr *s = ir_attr(op, AT_SPANS);
  bool ok = !s || (k % 16 == 0 && s->n == k / 16 * 2);
  for (uint32_t i = 0; s && ok && i < s->n; i += 2)
    ok = 0 <= s->list[i] && s->list[i] <= s->list[i + 1] &&
         s->list[i + 1] <= cols && s->list[i] % 16 == 0 &&
         s->list[i + 1] % 16 == 0;
  return ok || verify_fail(v, op, "spans are columns of each block of 16");
}

// Each warp has rows of b of its own: a quarter, of four warps.
static uint32_t dealt(const Verifier *v, const Op *op, uint32_t rows) {
  return ir_attr_i(op, AT_DEALT, 0) ? rows / (ir_group_threads(v->f, op) / 32)
                                    : rows;
}

// Rows of b that the product sums: all, or with attr pos those from there on.
static uint32_t summed(const Op *op, uint32_t rows, uint32_t k) {
  const IrAttr *pos = ir_attr(op, AT_POS);
  if (!pos || pos->i < 0 || pos->i % 8 || !ir_attr_i(op, AT_TRANS, 0))
    return pos ? 0 : rows;
  return pos->i + k <= rows ? k : 0;
}

static bool check_mma(Verifier *v, const Op *op) {
  const Type *a = arg_type(v, op, 0), *b = arg_type(v, op, 1);
  const Type *c = res_type(v, op);
  bool trans = ir_attr_i(op, AT_TRANS, 0), ta = ir_attr_i(op, AT_TRANSA, 0);
  if (!is_tile(b)) return wrong_operand(v, op, 1);
  const GpuFacts *gpu = facts(v);
  bool eight = is_float8(a->dtype) && is_float8(b->dtype);
  bool in_regs =
      is_whole(a) && (a->layout == gpu->acc || a->layout == gpu->op ||
                      (eight && a->layout == gpu->op8));
  if (!in_regs && !is_tile(a)) return wrong_operand(v, op, 0);
  bool narrow = op->code == OP_MMA && gpu->hopper && is_float8(b->dtype) &&
                dtype_is_float16(a->dtype);
  if ((a->dtype != b->dtype && !eight && !narrow) || (in_regs && ta))
    return wrong_operand(v, op, 0);
  if (eight && gpu->f8 == F8_FNUZ && !check_fnuz(v, op)) return false;
  bool acc = is_whole(c) && c->layout == gpu->acc && c->dtype == DT_F32;
  if (!acc) return wrong_result(v, op);
  uint32_t m = c->ext[0], warp = facts(v)->rows;
  bool one = ir_attr_i(op, AT_DEALT, 0) && !in_regs && a->ext[0] == warp;
  bool part = frag_takes_rows(v->f, op);
  if (a->ext[ta ? 1 : 0] != m && !one && !part) return wrong_operand(v, op, 0);
  uint32_t rows = dealt(v, op, b->ext[0]), k = a->ext[ta ? 0 : 1];
  uint32_t n = trans ? b->ext[1] : rows;
  bool some = op->nargs > 3 && !part;
  if ((some ? n < c->ext[1] : n != c->ext[1]) ||
      (trans ? summed(op, rows, k) : b->ext[1]) != k)
    return wrong_operand(v, op, 1);
  if (some && b->layout == LY_ROW) return wrong_operand(v, op, 1);
  if (op->nargs > 2 && !type_eq(arg_type(v, op, 2), c))
    return wrong_operand(v, op, 2);
  return check_spans(v, op, k, c->ext[1]);
}

// What the instruction takes: one warpgroup, 64 rows a time, swizzled tiles.
static bool check_wgmma(Verifier *v, const Op *op) {
  const Type *a = arg_type(v, op, 0), *b = arg_type(v, op, 1);
  const Type *c = res_type(v, op);
  bool turned = ir_attr_i(op, AT_TRANS, 0) || ir_attr_i(op, AT_TRANSA, 0);
  int size = dtype_size(a->dtype);
  uint32_t k = a->ext[ir_attr_i(op, AT_TRANSA, 0) ? 0 : 1];
  if (!check_mma(v, op)) return false;
  // Before roles the instances of group() are warpgroups.
  if (ir_group_threads(v->f, op) % 128)
    return verify_fail(v, op, "needs warpgroups of 128 threads");
  if (!dtype_is_float(a->dtype) || size > 4 || a->dtype == DT_F32)
    return verify_fail(v, op, "no such product of %s", dtype_name(a->dtype));
  if (turned && size != 2)
    return verify_fail(v, op, "only 16-bit operands can be transposed");
  if (!frag_is_group_product(c, a->dtype, k))
    return verify_fail(v, op, "rows are 64s, columns 8s, k steps 32 bytes");
  if (b->layout == LY_ROW || a->layout == LY_ROW)
    return verify_fail(v, op, "shared operands are swizzled");
  if (a->kind == TK_FRAG && size != 2)
    return verify_fail(v, op, "a fragment operand has 16 bits");
  return true;
}

static bool check_wait(Verifier *v, const Op *op) {
  bool ok = op->nres == op->nargs;
  for (uint32_t i = 0; ok && i < op->nres; i++)
    ok = type_eq(ir_type(v->f, op->res[i]), arg_type(v, op, i));
  return ok || wrong_result(v, op);
}

// ---------------------------------------------------------------- all
typedef bool CheckFn(Verifier *v, const Op *op);

static CheckFn *const checks[OP_COUNT] = {
    [OP_LAUNCH] = check_launch,   [OP_SPLAT] = check_splat,
    [OP_COORD] = check_coord,     [OP_COORD_THREAD] = check_coord,
    [OP_COORD_REG] = check_coord, [OP_BCAST] = check_bcast,
    [OP_FREDUCE] = check_freduce, [OP_FCOMBINE] = check_fcombine,
    [OP_FSCAN] = check_fscan,     [OP_RELAYOUT] = check_relayout,
    [OP_VOTE] = check_vote,       [OP_FCOLS] = check_fcols,
    [OP_EXCEEDS] = check_exceeds, [OP_FOPERAND] = check_foperand,
    [OP_FWARPS] = check_fwarps,   [OP_SKEW] = check_skew,
    [OP_PEERS] = check_peers,     [OP_FDEAL] = check_fdeal,
    [OP_FTRINV] = check_ftrinv,   [OP_GLOAD] = check_gload,
    [OP_GSTORE] = check_gstore,   [OP_SFILL] = check_sfill,
    [OP_SPUT] = check_sput,       [OP_GJOIN] = check_gjoin,
    [OP_GPUT] = check_gput,       [OP_GTILE] = check_gtile,
    [OP_SLOAD] = check_sload,     [OP_MMA] = check_mma,
    [OP_WGMMA] = check_wgmma,     [OP_WG_WAIT] = check_wait,
};

// Fragments of a type that the threads of the group cannot hold.
static bool check_maps(Verifier *v, const Op *op) {
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = ir_type(v->f, op->res[i]);
    FragMap map;
    if (t->kind != TK_FRAG) continue;
    uint32_t threads = ir_group_threads(v->f, op);
    const char *err = frag_map(t, threads, &map);
    if (err)
      return verify_fail(v, op, "no such fragment on %u threads: %s", threads,
                         err);
  }
  return true;
}

bool verify_frag_op(Verifier *v, const Op *op) {
  if (!check_maps(v, op)) return false;
  return !checks[op->code] || checks[op->code](v, op);
}

// ---------------------------------------------------------------- schedules
void verify_schedule(Verifier *v) {
  const Func *f = v->f;
  v->roles = v->rings = false;
  for (const Op *op = f->body->first; op; op = op->next) {
    v->roles |= op->code == OP_ROLES;
    bool known = op->nres == 1 && op->res[0] && op->res[0] < f->values.n;
    if (op->code == OP_SALLOC && known)
      v->rings |= ir_type(f, op->res[0])->ext[2] > 1;
  }
}

bool verify_scheduled(Verifier *v, const Op *op) {
  if (v->m->level != LV_FRAG || v->roles) return true;
  bool ring = op->code == OP_SALLOC && res_type(v, op)->ext[2] > 1;
  bool copies = op->code == OP_SLOT || op->code == OP_CP_ASYNC ||
                op->code == OP_CP_COMMIT || op->code == OP_CP_WAIT;
  if (v->rings && (ring || copies)) return true;
  return verify_fail(
      v, op,
      "at level frag memory and barriers are for functions "
      "with roles; without, rings of several slots are copied to");
}
