// Copies of boxes by the tensor memory accelerator, the barriers they complete
// on, named barriers.
#include "codegen/gpu/gpu.h"
#include "ir/box.h"

#include <assert.h>
#include <stdio.h>

enum { BOX_ALIGN = 128 };  // of a box in shared memory

static V narrow(Gpu *n, V x) {
  return LLVMBuildIntCast2(n->g->b, x, gpu_i32t(n), 1, "");
}

static uint32_t add_map(Gpu *n, const CgMapRecord *m) {
  for (uint32_t i = 0; i < n->out->maps.n; i++)
    if (memcmp(&n->out->maps.at[i], m, sizeof *m) == 0) return i;
  vec_push(&n->g->cx->session, &n->out->maps, *m);
  return n->out->maps.n - 1;
}

static uint32_t number_of(const Gpu *n, Value tensor) {
  uint32_t at = 0;
  for (uint32_t i = 0; n->f->params.at[i].v != tensor; i++)
    at += ir_type(n->f, n->f->params.at[i].v)->kind == TK_TENSOR;
  return at;
}

// Of rows that are told one by one and widened: a line of each.
static uint32_t map_of_rows(Gpu *n, const Op *op) {
  const Type *t = gpu_arg_type(n, op, 0);
  CgMapRecord m = {.tensor = number_of(n, op->args[0])};
  for (uint32_t i = t->n; i-- > 0;) m.axis[m.rank++] = (uint8_t)i;
  m.box[0] = HW_PANEL;
  for (uint32_t i = 1; i < m.rank; i++) m.box[i] = 1;
  return add_map(n, &m);
}

// The map of a box: one per distinct record of the kernel. Of rows that are
// told one by one it says what tensors they may be of.
uint32_t nv_map_of(Gpu *n, const Op *op) {
  if (op->code == OP_GLOAD) return map_of_rows(n, op);
  bool told = gpu_is_told(n, op), load = op->code == OP_TMA_LOAD;
  Value tensor = op->args[load ? 3 : told];
  const Type *tile = gpu_arg_type(n, op, load || told ? 0 : 1);
  CgMapRecord m = {.tensor = number_of(n, tensor)};
  const Type *t = ir_type(n->f, tensor);
  const IrAttr *axes = ir_attr(op, AT_TILE);
  uint32_t turns = box_turns(op), inner = turns > 1 ? 3 : 2;
  m.axis[m.rank++] = (uint8_t)axes->list[1];
  if (turns > 1) m.axis[m.rank++] = (uint8_t)axes->list[BOX_TURN];
  m.axis[m.rank++] = (uint8_t)axes->list[0];
  for (uint32_t i = t->n; i-- > 0;)
    if (i != axes->list[0] && i != axes->list[1] && i != m.axis[1])
      m.axis[m.rank++] = (uint8_t)i;
  bool swizzled = tile->layout != LY_ROW;
  uint32_t panel = smem_panel_bytes(tile);
  m.swizzle = swizzled ? panel : 0;
  m.box[0] = (uint16_t)(panel / (uint32_t)dtype_size(t->dtype));
  uint32_t rows = tile->ext[0] / ir_pieces(op);
  m.box[1] = (uint16_t)(turns > 1 ? turns : rows < 256 ? rows : 256);
  for (uint32_t i = 2; i < m.rank; i++)
    m.box[i] = (uint16_t)(i < inner ? rows / turns : 1);
  return add_map(n, &m);
}

// Calls fn for each box of the tile that argument k is: coordinates, from
// argument lo on, innermost first.
typedef void BoxFn(Gpu *n, V shared, V map, V *coords, uint32_t rank, V bar);

static void each_box(Gpu *n, const Op *op, uint32_t k, uint32_t lo, V bar,
                     BoxFn *fn) {
  const Type *tile = gpu_arg_type(n, op, k);
  Tile s = gpu_tile(n, op->args[k]);
  uint32_t id = nv_map_of(n, op);
  CgMapRecord m = n->out->maps.at[id];
  uint32_t panel = smem_panel_bytes(tile);
  uint32_t row = tile->ext[1] * (uint32_t)dtype_size(tile->dtype);
  V map = gpu_block_at(n, n->maps_at + 128 * (uint64_t)id);
  const IrAttr *pieces = ir_attr(op, AT_PIECES);
  uint32_t rows = tile->ext[0] / ir_pieces(op);
  uint32_t each = box_turns(op) > 1 ? rows : m.box[1];  // of a box
  assert(!s.var || smem_slot_bytes(tile) % BOX_ALIGN == 0);
  for (uint32_t side = 0; side < row / panel; side++)
    for (uint32_t r = 0; r < tile->ext[0]; r += each) {
      V c[8];
      for (uint32_t i = 0; i < m.rank; i++) {
        bool other = r >= rows && pieces->list[0] == m.axis[i];
        uint32_t at = other ? m.rank + r / rows - 1 : m.axis[i];
        c[i] = narrow(n, n->g->val[op->args[lo + at]]);
      }
      c[0] = gpu_add(n, c[0], gpu_i32(n, side * m.box[0]));
      c[1] = gpu_add(n, c[1], gpu_i32(n, r % rows));
      uint32_t byte = (side * tile->ext[0] + r) * panel;
      assert((s.base + byte) % BOX_ALIGN == 0);
      V at = gpu_tile_at(n, s, byte);
      fn(n, at, map, c, m.rank, bar);
    }
}

static void load_box(Gpu *n, V shared, V map, V *c, uint32_t rank, V bar) {
  Cg *g = n->g;
  char name[64];
  V a[16], no = LLVMConstInt(LLVMInt1TypeInContext(g->lc), 0, 0);
  uint32_t k = 0;
  LLVMTypeRef cluster = LLVMPointerTypeInContext(g->lc, 7);
  a[k++] = LLVMBuildAddrSpaceCast(g->b, shared, cluster, "");
  a[k++] = bar;
  a[k++] = map;
  for (uint32_t i = 0; i < rank; i++) a[k++] = c[i];
  a[k++] = LLVMConstInt(LLVMInt16TypeInContext(g->lc), 0, 0);
  a[k++] = gpu_i64(n, 0);
  a[k++] = no;
  a[k++] = no;
  a[k++] = gpu_i32(n, 0);
  snprintf(name, sizeof name, "llvm.nvvm.cp.async.bulk.tensor.g2s.tile.%ud",
           rank);
  gpu_call(n, name, a, k);
}

static void store_box(Gpu *n, V shared, V map, V *c, uint32_t rank, V bar) {
  char name[64];
  V a[16];
  uint32_t k = 0;
  (void)bar;
  a[k++] = shared;
  a[k++] = map;
  for (uint32_t i = 0; i < rank; i++) a[k++] = c[i];
  a[k++] = gpu_i64(n, 0);
  a[k++] = LLVMConstInt(LLVMInt1TypeInContext(n->g->lc), 0, 0);
  snprintf(name, sizeof name, "llvm.nvvm.cp.async.bulk.tensor.s2g.tile.%ud",
           rank);
  gpu_call(n, name, a, k);
}

V nv_mbar_at(Gpu *n, const Op *op, uint32_t i) {
  V slot = narrow(n, gpu_arg(n, op, i + 1));
  V at = gpu_add(n, gpu_mul(n, slot, 8),
                 gpu_i32(n, gpu_tile(n, op->args[i]).base));
  return gpu_shared(n, at);
}

void nv_tma_load(Gpu *n, const Op *op) {
  bool one = n->grp.threads == 1;
  LLVMBasicBlockRef end = one ? NULL : gpu_if(n, n->grp.first);
  each_box(n, op, 0, 4, nv_mbar_at(n, op, 1), load_box);
  if (!one) gpu_end(n, end);
}

void nv_tma_store(Gpu *n, const Op *op) {
  bool one = n->grp.threads == 1;
  LLVMBasicBlockRef end = one ? NULL : gpu_if(n, n->grp.first);
  each_box(n, op, 1, 2, NULL, store_box);
  if (!one) gpu_end(n, end);
}

void nv_tma_commit(Gpu *n, const Op *op) {
  (void)op;
  gpu_call(n, "llvm.nvvm.cp.async.bulk.commit.group", NULL, 0);
}

void nv_tma_wait(Gpu *n, const Op *op) {
  V k = gpu_i32(n, ir_attr_i(op, AT_PENDING, 0));
  gpu_call(n, "llvm.nvvm.cp.async.bulk.wait.group.read", &k, 1);
}

// ---------------------------------------------------------------- barriers
static V try_wait(Gpu *n, const Op *op) {
  V a[2] = {nv_mbar_at(n, op, 0), narrow(n, gpu_arg(n, op, 2))};
  return gpu_call(n, "llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta",
                  a, 2);
}

// The wait before or behind op with nothing but slots between them. Where CTAs
// share a multiprocessor one's questions take the other's issue slots.
static const Op *other_wait(const Gpu *n, const Op *op, bool behind) {
  if (ir_attr_i(n->f->body->first, AT_OCCUPANCY, 1) > 1) return NULL;
  do op = behind ? op->next : op->prev;
  while (op && op->code == OP_SLOT);
  return op && op->code == OP_MBAR_WAIT ? op : NULL;
}

// An answer takes some 40 cycles: waits that follow each other ask at once.
// What has completed stays so until this thread has arrived elsewhere.
void nv_mbar_wait(Gpu *n, const Op *op) {
  Cg *g = n->g;
  if (other_wait(n, op, false)) return;
  LLVMBasicBlockRef spin = cg_block(g, "spin"), ready = cg_block(g, "ready");
  LLVMBuildBr(g->b, spin);
  LLVMPositionBuilderAtEnd(g->b, spin);
  V ok = try_wait(n, op);
  while ((op = other_wait(n, op, true)))
    ok = LLVMBuildAnd(g->b, ok, try_wait(n, op), "");
  LLVMBuildCondBr(g->b, ok, ready, spin);
  LLVMPositionBuilderAtEnd(g->b, ready);
  // No access moves above the wait.
  gpu_asm(n, LLVMVoidTypeInContext(g->lc), "", "~{memory}", NULL, 0);
}

void nv_mbar_expect(Gpu *n, const Op *op) {
  V a[2] = {nv_mbar_at(n, op, 0), gpu_i32(n, ir_attr_i(op, AT_BYTES, 0))};
  LLVMBasicBlockRef end = n->grp.threads > 1 ? gpu_if(n, n->grp.first) : NULL;
  gpu_call(n, "llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta", a, 2);
  if (end) gpu_end(n, end);
}

static void named(Gpu *n, const Op *op, const char *name) {
  V a[2] = {narrow(n, gpu_arg(n, op, 0)),
            gpu_i32(n, ir_attr_i(op, AT_THREADS, 0))};
  gpu_call(n, name, a, 2);
}

void nv_bar_sync(Gpu *n, const Op *op) {
  named(n, op, "llvm.nvvm.barrier.cta.sync.aligned.count");
}

void nv_bar_arrive(Gpu *n, const Op *op) {
  named(n, op, "llvm.nvvm.barrier.cta.arrive.aligned.count");
}

// Does another fence follow, in front of which there are waits and numbers
// only?
static bool is_fenced_again(const Op *op) {
  if (op->code != OP_FENCE_ASYNC) return false;
  while ((op = op->next) && op->code != OP_FENCE_ASYNC)
    if (op->code != OP_MBAR_WAIT && op->code != OP_SLOT &&
        !(op_info(op->code)->flags & OPF_ELEM) && op->code != OP_CONST)
      return false;
  return op != NULL;
}

void nv_fence_async(Gpu *n, const Op *op) {
  if (is_fenced_again(op)) return;
  gpu_call(n, "llvm.nvvm.fence.proxy.async.shared_cta", NULL, 0);
}
