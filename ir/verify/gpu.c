// The rules of single ops of GPU programs that are about memory, order and
// roles. docs/gpu/ir.md says what they mean.
#include "ir/box.h"
#include "ir/target.h"
#include "ir/verify/rule.h"

// ---------------------------------------------------------------- structure
static bool same_length(const IrAttr *a, uint32_t n) {
  return !a || a->n == n;
}

static bool check_roles(Verifier *v, const Op *op) {
  const IrAttr *teams = ir_attr(op, AT_TEAMS), *groups = ir_attr(op, AT_GROUPS);
  const Op *launch = ir_launch(v->f);
  int64_t sum = 0;
  uint32_t n = op->nregions;
  if (op->parent != v->f->body || op->next)
    return verify_fail(v, op, "must be the last op of the function");
  if (teams->n != n || groups->n != n ||
      !same_length(ir_attr(op, AT_TEAMREGS), n))
    return verify_fail(v, op, "needs one entry per region in each list");
  for (uint32_t i = 0; i < n; i++) {
    int64_t t = teams->list[i], g = groups->list[i];
    sum += t;
    if (t < 1 || t % 128)
      return verify_fail(v, op, "teams are multiples of 128");
    if (g != 1 && (g < 32 || g % 32 || g > t || t % g))
      return verify_fail(v, op,
                         "a group is 1 thread or warps that divide its "
                         "team");
    if (op->regions[i]->params.n > 1)
      return verify_fail(v, op, "region %u has more than one argument", i);
  }
  if (launch && sum == ir_attr_i(launch, AT_THREADS, 0)) return true;
  return verify_fail(v, op, "the teams are not the threads of the launch");
}

// Pieces are as many rows each as the swizzle has, or more.
static bool check_pieces(Verifier *v, const Op *op, const Type *t,
                         const Type *tile) {
  enum { SWIZZLE_ROWS = 8 };
  const IrAttr *at = ir_attr(op, AT_PIECES), *axes = ir_attr(op, AT_TILE);
  uint32_t n = ir_pieces(op);
  bool ok = at->n == 2 && at->list[1] > 1 && at->list[0] >= 0 &&
            at->list[0] < t->n && at->list[0] != axes->list[0] &&
            at->list[0] != axes->list[1] &&
            tile->ext[0] % (n * SWIZZLE_ROWS) == 0;
  return ok ||
         verify_fail(v, op, "pieces are [axis, number], of 8 rows and more");
}

// Rows have as many turns as the tensor's axis behind them, the tile whole
// ones.
static bool check_turns(Verifier *v, const Op *op, const Type *t,
                        const Type *tile) {
  const IrAttr *axes = ir_attr(op, AT_TILE);
  int64_t turn = axes->list[BOX_TURN], n = axes->list[BOX_TURNS], all;
  bool ok = turn == axes->list[0] + 1 && turn + 1 < t->n && n > 1 &&
            dim_is_const(&v->m->dims, t->size[turn], &all) && all == n &&
            axes->list[1] + 1 == t->n && tile->ext[0] % n == 0 &&
            tile->ext[0] <= 256 && !ir_attr(op, AT_PIECES);
  return ok ||
         verify_fail(v, op, "turns are [.., axis, number], of whole rows");
}

// Indices are numbers, or of a tile whose rows are told one by one slices of
// these, of eight threads a row: there are such along the rows.
static bool check_indices(Verifier *v, const Op *op, uint32_t at,
                          const Type *tile, const IrAttr *axes) {
  Type line = type_frag(DT_I32, tile->ext[0], HW_PANEL, LY_LIN);
  line = frag_slice(&line, false, false);
  uint32_t lines = 0, row = at + 1 + (uint32_t)axes->list[0];
  for (uint32_t i = at + 1; i < op->nargs; i++) {
    const Type *x = arg_type(v, op, i);
    if ((x->kind == TK_ELEM && !x->n) || x->kind == TK_TENSOR) continue;
    if (!type_eq(x, &line) || i == at + 1 + (uint32_t)axes->list[1])
      return wrong_operand(v, op, i);
    lines++;
  }
  bool told = arg_type(v, op, row)->kind == TK_FRAG;
  bool ok =
      !lines || (told && tile->layout == LY_SW128 && !ir_attr(op, AT_PIECES));
  return ok || verify_fail(v, op, "rows are not told one by one");
}

// 8-bit floats that are widened on the way, and the tensor of their scales
// behind the indices: of the same rows, of blocks of whole panels or of all.
static bool check_widened(Verifier *v, const Op *op, uint32_t at,
                          const Type *tile) {
  const Type *t = arg_type(v, op, at), *s = arg_type(v, op, op->nargs - 1);
  const IrAttr *axes = ir_attr(op, AT_TILE);
  int64_t block = ir_attr_i(op, AT_BLOCK, 0);
  bool told =
      axes->n == 2 && axes->list[0] >= 0 && axes->list[0] < t->n &&
      arg_type(v, op, at + 1 + (uint32_t)axes->list[0])->kind == TK_FRAG;
  bool scaled = s->kind == TK_TENSOR;
  bool ok = told && dtype_is_float16(tile->dtype) && dtype_is_float(t->dtype) &&
            dtype_size(t->dtype) == 1 && axes->list[1] + 1 == t->n &&
            (!scaled || (s->dtype == DT_F32 && s->n + !block == t->n)) &&
            block % HW_PANEL == 0;
  return ok || verify_fail(v, op, "only told rows of 8 bits are widened");
}

bool verify_box(Verifier *v, const Op *op, uint32_t at, const Type *tile) {
  const Type *t = arg_type(v, op, at);
  const IrAttr *axes = ir_attr(op, AT_TILE);
  bool fill = op->code == OP_SFILL;
  bool flip = fill && ir_attr_i(op, AT_FLIP, 0);
  bool clean = fill && ir_attr_i(op, AT_CLEAN, 0);
  uint32_t more = ir_pieces(op) - 1;
  bool wide = fill && tile->dtype != t->dtype;
  bool scaled = wide && arg_type(v, op, op->nargs - 1)->kind == TK_TENSOR;
  if (op->nargs != at + 1 + t->n + flip + clean + more + scaled &&
      op->code != OP_TMA_STORE)
    return verify_fail(v, op, "needs one index per axis of the tensor");
  if (!is_tile(tile) || (tile->dtype != t->dtype && !wide))
    return verify_fail(v, op, "the tile must be one slot of the tensor's type");
  if (wide && !check_widened(v, op, at, tile)) return false;
  if (ir_attr(op, AT_PIECES) && !check_pieces(v, op, t, tile)) return false;
  if ((axes->n != 2 && axes->n != BOX_ATTRS) || axes->list[0] == axes->list[1])
    return verify_fail(v, op, "tile has the positions of rows and columns");
  if (axes->n == BOX_ATTRS && !check_turns(v, op, t, tile)) return false;
  for (uint32_t i = 0; i < 2; i++)
    if (axes->list[i] < 0 || axes->list[i] >= t->n)
      return verify_fail(v, op, "the tensor has no axis %lld",
                         (long long)axes->list[i]);
  return op->code == OP_TMA_STORE || check_indices(v, op, at, tile, axes);
}

// A box that TMA can copy.
static bool check_tma(Verifier *v, const Op *op, uint32_t at,
                      const Type *tile) {
  if (!verify_box(v, op, at, tile)) return false;
  if (arg_type(v, op, at)->n > HW_MAP_AXES)
    return verify_fail(v, op, "the tensor has more than %d axes", HW_MAP_AXES);
  if (tile->layout == LY_ROW && tile->ext[1] > 256)
    return verify_fail(v, op, "the box has more than 256 columns");
  return true;
}

static bool check_sflip(Verifier *v, const Op *op) {
  const Type *t = arg_type(v, op, 0);
  bool ok = is_tile(t) && dtype_is_float(t->dtype) && dtype_size(t->dtype) <= 2;
  return ok || wrong_operand(v, op, 0);
}

static bool check_sclean(Verifier *v, const Op *op) {
  return is_tile(arg_type(v, op, 0)) || wrong_operand(v, op, 0);
}

static bool check_cp_async(Verifier *v, const Op *op) {
  return verify_box(v, op, 1, arg_type(v, op, 0));
}
// A slice tells each row; columns begin at a number.
static bool check_gsoon(Verifier *v, const Op *op) {
  bool told = false;
  for (uint32_t i = 1; i + 1 < op->nargs; i++)
    told |= arg_type(v, op, i)->kind == TK_FRAG &&
            arg_type(v, op, i)->slice == SLICE_ROW;
  if (!told) return verify_fail(v, op, "no slice tells its rows");
  if (op->nargs != 1 + arg_type(v, op, 0)->n)
    return verify_fail(v, op, "needs one index per axis of the tensor");
  bool number = arg_type(v, op, op->nargs - 1)->kind == TK_ELEM;
  return number || wrong_operand(v, op, op->nargs - 1);
}
static bool check_tma_load(Verifier *v, const Op *op) {
  return check_tma(v, op, 3, arg_type(v, op, 0));
}
static bool check_tma_store(Verifier *v, const Op *op) {
  if (op->nargs != 2 + arg_type(v, op, 0)->n)
    return verify_fail(v, op, "needs one index per axis of the tensor");
  return check_tma(v, op, 0, arg_type(v, op, 1));
}

static bool check_salloc(Verifier *v, const Op *op) {
  if (op->parent != v->f->body)
    return verify_fail(v, op, "stands inside a region");
  TypeKind want = op->code == OP_MBAR ? TK_MBAR : TK_SMEM;
  if (res_type(v, op)->kind != want) return wrong_result(v, op);
  if (!op->nargs) return true;
  const Op *memory = ir_def(v->f, op->args[0]);
  bool swizzled = res_type(v, op)->layout != LY_ROW;
  bool ok = memory && memory->code == OP_SALLOC && !memory->nargs &&
            smem_bytes(res_type(v, op)) <= smem_bytes(arg_type(v, op, 0)) &&
            swizzled == (arg_type(v, op, 0)->layout != LY_ROW);
  return ok || wrong_operand(v, op, 0);
}

static bool check_slot(Verifier *v, const Op *op) {
  Type want = *arg_type(v, op, 0);
  const Type *got = res_type(v, op);
  bool prefix = want.layout != LY_ROW && got->ext[1] < want.ext[1] &&
                smem_panel_bytes(got) == smem_panel_bytes(&want);
  want.ext[2] = 1;
  if (prefix) want.ext[1] = got->ext[1];
  return type_eq(got, &want) || wrong_result(v, op);
}

static bool check_scalar(Verifier *v, const Op *op) {
  const Type *s = arg_type(v, op, 0);
  const Type *x = op->nres ? res_type(v, op) : arg_type(v, op, 2);
  bool ok = is_tile(s) && s->layout == LY_ROW && x->kind == TK_ELEM &&
            x->dtype == s->dtype;
  return ok || wrong_operand(v, op, 0);
}

static bool check_sstore(Verifier *v, const Op *op) {
  const Type *s = arg_type(v, op, 0), *x = arg_type(v, op, 1);
  bool trans = ir_attr_i(op, AT_TRANS, 0);
  bool rows = trans && is_tile(s) && x->kind == TK_FRAG &&
              x->slice == SLICE_ROW && s->ext[0] == 1 &&
              s->ext[1] == x->ext[0] && s->dtype == x->dtype;
  bool cols = !trans && is_tile(s) && x->kind == TK_FRAG &&
              x->slice == SLICE_COL && !x->partial && s->ext[0] == 1 &&
              s->ext[1] == x->ext[0] && s->dtype == x->dtype;
  Type part = *s;
  if (op->nargs > 2 && !trans) part.ext[1] = x->ext[1];
  return rows || cols || fills(x, &part, trans) || wrong_operand(v, op, 1);
}

// ---------------------------------------------------------------- all
typedef bool CheckFn(Verifier *v, const Op *op);

static CheckFn *const checks[OP_COUNT] = {
    [OP_ROLES] = check_roles,       [OP_SFLIP] = check_sflip,
    [OP_SCLEAN] = check_sclean,     [OP_SALLOC] = check_salloc,
    [OP_MBAR] = check_salloc,       [OP_SLOT] = check_slot,
    [OP_SGET] = check_scalar,       [OP_SSET] = check_scalar,
    [OP_SSTORE] = check_sstore,     [OP_CP_ASYNC] = check_cp_async,
    [OP_TMA_LOAD] = check_tma_load, [OP_TMA_STORE] = check_tma_store,
    [OP_GSOON] = check_gsoon,
};

// Who writes operand 0, or takes a slot of it, has memory: a tile of level frag
// that is a value stays as it is.
static bool is_memory(Verifier *v, const Op *op) {
  bool writes = op->code == OP_CP_ASYNC || op->code == OP_TMA_LOAD ||
                op->code == OP_SSTORE || op->code == OP_SSET ||
                op->code == OP_SFLIP || op->code == OP_SCLEAN ||
                op->code == OP_SLOT;
  const Op *def = writes ? ir_def(v->f, op->args[0]) : NULL;
  if (!def || (def->code != OP_SFILL && def->code != OP_SPUT)) return true;
  return verify_fail(v, op, "operand 0 is a value, not memory");
}

bool verify_gpu_op(Verifier *v, const Op *op) {
  if (op_info(op->code)->levels & OPL_SCHEDULE && !verify_scheduled(v, op))
    return false;
  if (!is_memory(v, op)) return false;
  if (checks[op->code]) return checks[op->code](v, op);
  return verify_frag_op(v, op);
}
