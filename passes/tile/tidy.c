// Chunks of steps as tiles of GPUs have them (part of the pass `tile`).
//
//   %y = add(%x, dot(%a, %b))            %y = dot(%a, %b, %x)
//   %z = sub(dot(%a, %b), %x)            %z = dot(%a, %b, neg(%x))
//   %k = select(%t < S, %load, 0)  ->    %k = %load
//
// Sums of products in place, where a point is a chunk (support/pieces.c):
// accumulators are long, and two would stand beside each other; what is used
// behind stays apart. And masks of what is loaded or stored out of range, which
// is 0 and nothing: tiles of vectors come as they are.
#include "ir/target.h"
#include "passes/support/cost.h"
#include "passes/support/pieces.h"
#include "passes/tile/tile.h"

static bool used_behind(const Op *op, Value v) {
  while ((op = op->next))
    if (ir_mentions(op, v)) return true;
  return false;
}

// A product of matrices that only op adds up.
static Op *product_of(Func *f, const Op *op, Value v) {
  Op *dot = ir_def(f, v);
  return dot && dot->code == OP_DOT && dot->nargs == 2 &&
                 dot->parent == op->parent && ir_count_uses(f, v) == 1 &&
                 ir_type(f, v)->n == 2
             ? dot
             : NULL;
}

// x, or what op takes off.
static Value addend(Builder *b, const Op *op, Value x) {
  return op->code == OP_SUB ? ir_1(b, OP_NEG, x) : x;
}

static bool join(Func *f, Op *op) {
  for (uint32_t i = op->code == OP_SUB ? 1 : 2; i-- > 0;) {
    Value x = op->args[!i];
    Op *dot = product_of(f, op, op->args[i]);
    if (!dot || !type_eq(ir_type(f, x), ir_type(f, op->res[0])) ||
        !type_eq(ir_type(f, x), ir_type(f, dot->res[0])) || used_behind(op, x))
      continue;
    Builder b = {.fn = f, .region = op->parent, .before = op, .span = op->span};
    Value args[] = {dot->args[0], dot->args[1], addend(&b, op, x)};
    Op *sum = ir_op(&b, OP_DOT, args, 3, dot->attrs, dot->nattrs, ir_type(f, x),
                    1, 0);
    ir_replace_uses(f, op->res[0], sum->res[0]);
    ir_erase(op);
    ir_erase(dot);
    return true;
  }
  return false;
}

bool tile_plan_chunk(Ctx *cx, const Func *f, const Target *tg, TilePlan *p) {
  if (tg->kind != TARGET_GPU || tg->gpu.vendor == VENDOR_AMD ||
      !pieces_of_chunk(f))
    return false;
  *p = (TilePlan){.lane = -1, .part = -1, .tile_q = 1, .tile_k = COST_GPU_KEYS};
  ctx_remark(cx, "%s: a task has all of a chunk", f->name);
  return true;
}

// ---------------------------------------------------------------- masks
// Is idx < the extent that it counts along in a load or store?
static bool is_inside(const Func *f, const Op *access, uint32_t first,
                      Value c) {
  const Op *lt = ir_def(f, c);
  const Type *t = ir_type(f, access->args[0]);
  if (!lt || lt->code != OP_LT || t->kind != TK_TENSOR) return false;
  const Op *end = ir_def(f, lt->args[1]);
  for (uint32_t i = 0; i < t->n && end && end->code == OP_DIM; i++)
    if (access->args[first + i] == lt->args[0] &&
        (Dim)ir_attr_i(end, AT_DIM, 0) == t->size[i])
      return true;
  return false;
}

static bool is_zero_outside(const Func *f, Value v, Value c) {
  const Op *op = ir_def(f, v);
  if (op && op->code == OP_CAST) return is_zero_outside(f, op->args[0], c);
  return op && op->code == OP_LOAD && is_inside(f, op, 1, c);
}

static void unmask_load(Func *f, Op *op) {
  double zero;
  Value v = op->args[1];
  if (!ir_const_value(f, op->args[2], &zero) || zero != 0 ||
      !type_eq(ir_type(f, v), ir_type(f, op->res[0])) ||
      !is_zero_outside(f, v, op->args[0]))
    return;
  ir_replace_uses(f, op->res[0], v);
  ir_erase(op);
}

static void unmask_store(const Func *f, Op *op) {
  if (!ir_attr_i(op, AT_MASKED, 0) ||
      !is_inside(f, op, 2, op->args[op->nargs - 1]))
    return;
  op->nargs--;
  ir_del_attr(op, AT_MASKED);
}

// ---------------------------------------------------------------- all
static void region(Func *f, Region *r, bool sums) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(f, op->regions[i], sums);
    if (op->code == OP_SELECT) unmask_load(f, op);
    else if (op->code == OP_STORE) unmask_store(f, op);
    else if ((op->code == OP_ADD || op->code == OP_SUB) && sums) join(f, op);
  }
}

void tile_tidy_chunks(const Func *from, Func *to) {
  region(to, to->body, pieces_of_chunk(from));
}
