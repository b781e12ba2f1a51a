// Rows of a GPU's tile (part of the plan of `tile`, plan.c).
//
// Two groups of warps share a task's keys, so that its tile has 128 rows, where
// keys and values can be copied to shared memory as they lie: boxes of their
// tensors, of which no row has to be cleaned first. Else one group has 64.
#include "ir/target.h"
#include "passes/support/bytes.h"
#include "passes/tile/copied.h"
#include "passes/tile/tile.h"

bool tile_joined(const Func *f, const Op *dot, int lane) {
  double k;
  const Type *t = ir_type(f, dot->res[0]);
  return lane >= 0 && lane_has_key(f, t) && !type_has_axis(t, (uint32_t)lane) &&
         (ir_const_value(f, dot->args[0], &k) ||
          ir_const_value(f, dot->args[1], &k));
}

// A product of 16-bit operands that one addition alone reads.
static bool is_term(const Func *f, const Op *dot, const Op *add) {
  return dot && dot->code == OP_DOT && dot->nargs == 2 &&
         dot->parent == add->parent && ir_count_uses(f, dot->res[0]) == 1 &&
         dtype_is_float16(ir_type(f, dot->args[0])->dtype) &&
         dtype_is_float16(ir_type(f, dot->args[1])->dtype);
}

const Op *tile_added(const Func *f, const Op *add) {
  if (add->code != OP_ADD) return NULL;
  const Op *x = ir_def(f, add->args[0]), *y = ir_def(f, add->args[1]);
  bool ok = x != y && is_term(f, x, add) && is_term(f, y, add) &&
            lane_has_key(f, ir_type(f, add->res[0])) &&
            type_eq(ir_type(f, x->res[0]), ir_type(f, add->res[0])) &&
            type_eq(ir_type(f, y->res[0]), ir_type(f, add->res[0]));
  return ok ? y : NULL;
}

typedef struct Shared {
  Ctx *cx;
  const Func *f;
  const GpuFacts *gpu;
  uint32_t lane;
  bool ok;
  bool keys;      // there are some
  bool excludes;  // the pass leaves out keys for all rows
  bool select;    // and selects terms, not scores
} Shared;

// Are an operand's rows of a step boxes of its tensor, one behind the other or
// in pages (passes/tile/page_tiles.c)?
static bool is_in_boxes(const Func *f, Value idx) {
  int64_t page = tile_page_of(f, idx);
  return tile_steps_by_one(f, idx) || (page && page % (2 * HW_BLOCK) == 0);
}

// Operands that all rows have in common can be copied from memory as they are.
// Those of keys that no row sees are cleaned, unless they are a neighbour's.
static void note_operand(Shared *s, const Op *dot, uint32_t side, bool sum) {
  Value v = dot->args[side];
  const Op *op = ir_def(s->f, v);
  const Type *t = ir_type(s->f, v);
  if (type_has_axis(t, s->lane)) return;
  bool clean = s->excludes && (sum || s->select);
  if (op && tile_is_made(s->f, op) && !s->select) clean = false;
  for (uint32_t i = 0; clean && i < t->n; i++)
    if (s->f->axes.at[t->axis[i]].role == AX_KEY && !s->select)
      clean = !op || op->code != OP_LOAD || !lane_packed(s->f, op, t->axis[i]);
  s->ok &= !clean;
  int64_t bytes = bytes_of_operand(s->f, dot, side, s->gpu);
  s->ok &=
      op && op->code == OP_LOAD && bytes <= 2 && dtype_size(t->dtype) == bytes;
  for (uint32_t i = 1; s->ok && i < op->nargs; i++)
    if (lane_has_key(s->f, ir_type(s->f, op->args[i])))
      s->ok = is_in_boxes(s->f, op->args[i]);
}

// Does the domain exclude keys for all rows? Their data are cleaned then.
static bool excludes_keys(const Shared *s, Value v) {
  const Op *op = ir_def(s->f, v);
  const Type *t = ir_type(s->f, v);
  if (op && op->code == OP_AND)
    return excludes_keys(s, op->args[0]) || excludes_keys(s, op->args[1]);
  return lane_has_key(s->f, t) && !type_has_axis(t, s->lane);
}

static void note_shared(void *data, Op *op) {
  Shared *s = data;
  if (op->code == OP_KREDUCE)
    s->ok &=
        !ir_attr_i(op, AT_SPARSE, 0) || tile_bounds_wanted(s->cx, s->f, op);
  if (op->code == OP_KREDUCE) {
    s->keys = true;
    s->excludes = excludes_keys(s, op->regions[0]->last->args[0]);
    s->select = ir_attr_i(op, AT_FILL, FILL_SELECT) == FILL_SELECT;
  }
  bool sum =
      op->code == OP_DOT && !lane_has_key(s->f, ir_type(s->f, op->res[0]));
  if (op->code == OP_DOT && tile_joined(s->f, op, (int)s->lane)) return;
  for (uint32_t i = 0; op->code == OP_DOT && i < 2; i++)
    note_operand(s, op, i, sum);
}

// Two groups of warps share a task's keys where their tiles are copied; few
// rows are one group's.
int64_t tile_gpu_rows(Ctx *cx, const Func *f, const Target *tg, int lane) {
  Shared s = {.cx = cx,
              .f = f,
              .lane = (uint32_t)lane,
              .gpu = &tg->gpu,
              .ok = tg->gpu.hopper && lane >= 0};
  if (s.ok) ir_walk(f->body, note_shared, &s);
  if (tg->gpu.vendor == VENDOR_AMD) return HW_GROUP_WARPS * tg->gpu.rows;
  return s.ok && s.keys ? 2 * HW_GROUP_ROWS : HW_GROUP_ROWS;
}

typedef struct Alone {
  const Func *f;
  uint32_t lane;
  bool keys, ok;
} Alone;

static void note_alone(void *data, Op *op) {
  Alone *a = data;
  a->keys |= op->code == OP_KREDUCE;
  if (op->parent == a->f->body) return;
  for (uint32_t i = 0; i < op->nres; i++)
    a->ok &= !type_has_axis(ir_type(a->f, op->res[i]), a->lane);
}

bool tile_has_row_alone(const Func *f, int lane) {
  int64_t n;
  Alone a = {.f = f, .lane = (uint32_t)lane, .ok = true};
  if (lane < 0 || !dim_is_const(&f->mod->dims, f->axes.at[lane].extent, &n) ||
      n != 1)
    return false;
  ir_walk(f->body, note_alone, &a);
  return a.ok && a.keys;
}
