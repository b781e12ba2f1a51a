// split_vec: vectors that are too long for a task's sums are cut into parts,
// which are tasks of their own.
//
//   before  axes(b par B, k key Sk, d vec 512)
//           %d = index() {axis = d}      %o = dot(%p, load(%V, %b, %k, %d))
//   after   axes(b par B, k key Sk, d vec 256, part par 2)
//           %d = add(mul(index() {axis = part}, 256), index() {axis = d})
//
// A group of warps holds 256 sums of a row in its registers beside the scores.
// Each part makes the weights anew: that costs the products with the keys
// again, and less than spilled sums do. What does not vary with the vector is
// stored by the first part. Where rows are multiplied by a matrix and there are
// no keys, parts have few columns: the matrix takes shared memory. For GPUs;
// level attn, behind inline and canon. Tests: test/passes/split_vec/.
#include "ir/infer.h"
#include "ir/target.h"
#include "passes/support/cost.h"
#include "passes/pass.h"

static bool over_keys(const Func *f, const Op *op) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  for (uint32_t i = 0; op->code == OP_DOT && i < over->n; i++)
    if (f->axes.at[over->list[i]].role == AX_KEY) return true;
  return false;
}

static bool listed(const Op *op, AttrId id, uint32_t axis) {
  const IrAttr *a = ir_attr(op, id);
  for (uint32_t i = 0; a && i < a->n; i++)
    if (a->list[i] == axis) return true;
  return false;
}

// Is every element of axis x by itself?
static bool is_free(const Func *f, uint32_t x) {
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->nregions || op->code == OP_CALL || op->code == OP_SCAN ||
        op->code == OP_RECUR || op->code == OP_AFFINE)
      return false;
    if (listed(op, AT_OVER, x)) return false;
    if ((op->code == OP_DOMAIN || op->code == OP_DIVK) &&
        ir_attr_i(op, AT_AXIS, -1) == (int64_t)x)
      return false;
  }
  return true;
}

// The longest vector of 32 bits an element that a product adds up.
static int64_t longest(const Func *f) {
  int64_t most = 0, n = 1;
  for (const Op *op = f->body->first; op; op = op->next) {
    const IrAttr *over = ir_attr(op, AT_OVER);
    if (op->code != OP_DOT || dtype_size(ir_type(f, op->args[1])->dtype) < 4)
      continue;
    for (uint32_t i = 0; i < over->n; i++)
      if (f->axes.at[over->list[i]].role == AX_VEC &&
          dim_is_const(&f->mod->dims, f->axes.at[over->list[i]].extent, &n))
        most = n > most ? n : most;
  }
  return most;
}

static bool has_keys(const Func *f) {
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role == AX_KEY) return true;
  return false;
}

// Is x that of the columns of a matrix in memory, by which rows are multiplied?
static bool of_matrix(const Func *f, uint32_t x) {
  bool some = false;
  for (const Op *op = f->body->first; op && !has_keys(f); op = op->next)
    some |= op->code == OP_DOT && type_has_axis(ir_type(f, op->res[0]), x) &&
            type_has_axis(ir_type(f, op->args[0]), x) !=
                type_has_axis(ir_type(f, op->args[1]), x);
  return some;
}

// The parts of axis x, 0: it stays whole.
static int64_t parts_of(const Func *f, uint32_t x) {
  // Long keys are split into parts where they are read (passes/gpu/dot.c), an
  // eighth of them in a thread's registers.
  bool keys = longest(f) > COST_COLUMNS_LONG;
  int64_t n, most = keys ? COST_COLUMNS_LEAST : COST_COLUMNS_MOST;
  bool sums = of_matrix(f, x);
  if (sums) most = COST_COLUMNS_MATRIX;
  if (f->axes.at[x].role != AX_VEC ||
      !dim_is_const(&f->mod->dims, f->axes.at[x].extent, &n) || n <= most)
    return 0;
  for (const Op *op = f->body->first; op; op = op->next)
    sums |= over_keys(f, op) && type_has_axis(ir_type(f, op->res[0]), x);
  int64_t parts = (n + most - 1) / most;
  return sums && n % (parts * HW_BLOCK) == 0 && is_free(f, x) ? parts : 0;
}

static void split_index(Func *f, uint32_t x, uint32_t part, int64_t size) {
  for (Op *op = f->body->first, *next; op; op = next) {
    next = op->next;
    if (op->code != OP_INDEX || ir_attr_i(op, AT_AXIS, -1) != (int64_t)x)
      continue;
    Builder b = {.fn = f, .region = f->body, .before = op, .span = op->span};
    Value at =
        ir_2(&b, OP_MUL, ir_index(&b, part), ir_const_i(&b, DT_I64, size));
    at = ir_2(&b, OP_ADD, at, ir_index(&b, x));
    ir_replace_uses(f, op->res[0], at);
    ir_erase(op);
  }
}

static void retype(Func *f) {
  for (Op *op = f->body->first; op; op = op->next) {
    Type t;
    if (op->nres != 1 || op->code == OP_CONST) continue;
    if (!infer_type(f, op, &t)) ir_info(f, op->res[0])->type = t;
  }
}

// The first part stores what all parts have.
static void mask_stores(Func *f, uint32_t part) {
  for (Op *op = f->body->first, *next; op; op = next) {
    next = op->next;
    if (op->code != OP_STORE) continue;
    bool varies = false;
    for (uint32_t i = 1; i < op->nargs; i++)
      varies |= type_has_axis(ir_type(f, op->args[i]), part);
    if (varies) continue;
    Builder b = {.fn = f, .region = f->body, .before = op, .span = op->span};
    Value first =
        ir_2(&b, OP_EQ, ir_index(&b, part), ir_const_i(&b, DT_I64, 0));
    Value args[MAX_AXES + 4];
    uint32_t n = op->nargs;
    for (uint32_t i = 0; i < n; i++) args[i] = op->args[i];
    if (ir_attr_i(op, AT_MASKED, 0))
      args[n - 1] = ir_2(&b, OP_AND, args[n - 1], first);
    else args[n++] = first;
    IrAttr masked = attr_i(AT_MASKED, 1);
    ir_op(&b, OP_STORE, args, n, &masked, 1, NULL, 0, 0);
    ir_erase(op);
  }
}

bool pass_split_vec(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    for (uint32_t x = 0, n = f->axes.n; x < n; x++) {
      int64_t parts = parts_of(f, x), size;
      if (!parts) continue;
      dim_is_const(&m->dims, f->axes.at[x].extent, &size);
      size /= parts;
      uint32_t part = ir_axis(f, "part", AX_PAR, dim_const(&m->dims, parts));
      f->axes.at[x].extent = dim_const(&m->dims, size);
      split_index(f, x, part, size);
      retype(f);
      mask_stores(f, part);
      ctx_remark(cx, "%s: sums along %s in %lld parts", f->name,
                 f->axes.at[x].name, (long long)parts);
    }
  }
  return true;
}
