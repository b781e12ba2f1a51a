// Shared memory: addresses in tiles, fragments to and from tiles, the group's
// barrier and scratch, scans and changes of layout.
#include "codegen/gpu/gpu.h"
#include "ir/pressure.h"

#include <assert.h>

// ---------------------------------------------------------------- addresses
V gpu_shared(Gpu *n, V byte) {
  LLVMTypeRef i8 = LLVMInt8TypeInContext(n->g->lc);
  return LLVMBuildInBoundsGEP2(n->g->b, i8, n->smem, &byte, 1, "");
}

V gpu_tile_at(Gpu *n, Tile t, uint32_t byte) {
  V at = gpu_i32(n, t.base + byte);
  if (t.var) at = gpu_add(n, gpu_mul(n, t.var, 16), at);
  return gpu_shared(n, at);
}

V gpu_tile_byte(Gpu *n, Tile s, V byte) {
  V at = gpu_add(n, byte, gpu_i32(n, s.base));
  if (s.var) at = gpu_add(n, at, gpu_mul(n, s.var, 16));
  if (s.flip) at = LLVMBuildXor(n->g->b, at, s.flip, "");
  return gpu_shared(n, at);
}

// What a row XORs its chunks with.
static V swizzle(Gpu *n, const Type *t, V row) {
  uint32_t chunks = smem_panel_bytes(t) / 16;
  uint32_t shift = smem_swizzle_shift(t->layout);
  V r = shift ? e_shr(n->g, row, (int)shift) : row;
  return e_and(n->g, r, gpu_i32(n, chunks - 1));
}

V gpu_chunk(Gpu *n, Tile s, const Type *t, V row, uint32_t c0, V bit) {
  Cg *g = n->g;
  uint32_t panel = smem_panel_bytes(t), chunks = panel / 16;
  V chunk = bit ? bit : gpu_i32(n, 0);
  if (t->layout != LY_ROW) {
    chunk = e_xor(g, chunk, swizzle(n, t, row));
    chunk = e_xor(g, chunk, gpu_i32(n, c0 % chunks));
  } else {
    chunk = gpu_add(n, chunk, gpu_i32(n, c0 % chunks));
  }
  V at = gpu_mul(n, chunk, 16);
  at = gpu_add(n, gpu_mul(n, row, panel), at);
  return gpu_tile_byte(n, s,
                       gpu_add(n, at,
                               gpu_i32(n, c0 / chunks * panel * t->ext[0])));
}

static V turned_offset(Gpu *n, const Type *t, V row, V col) {
  Cg *g = n->g;
  V low = e_shl(g, e_and(g, col, gpu_i32(n, 3)), 2);
  V swap = e_and(g, e_xor(g, e_shr(g, col, 2), low),
                 gpu_i32(n, smem_turned_mask(t)));
  V unit = e_xor(g, e_shr(g, row, 2), swap);
  V at = gpu_mul(n, unit, 8);
  at = gpu_add(n, gpu_mul(n, col, 2 * (int64_t)t->ext[0]), at);
  V in = gpu_mul(n, e_and(g, row, gpu_i32(n, 3)), 2);
  return gpu_add(n, at, in);
}

V gpu_offset(Gpu *n, const Type *t, V row, V col) {
  Cg *g = n->g;
  if (smem_turned(t->layout)) return turned_offset(n, t, row, col);
  uint32_t panel = smem_panel_bytes(t);
  V byte = gpu_mul(n, col, dtype_size(t->dtype));
  if (t->layout == LY_ROW) return gpu_add(n, gpu_mul(n, row, panel), byte);
  V in = LLVMBuildURem(g->b, byte, gpu_i32(n, panel), "");
  V side = LLVMBuildUDiv(g->b, byte, gpu_i32(n, panel), "");
  in = e_xor(g, in, e_shl(g, swizzle(n, t, row), 4));
  V at = gpu_mul(n, row, panel);
  at = gpu_add(n, gpu_mul(n, side, (int64_t)panel * t->ext[0]), at);
  return gpu_add(n, at, in);
}

V gpu_element(Gpu *n, Tile s, const Type *t, V row, V col) {
  return gpu_tile_byte(n, s, gpu_offset(n, t, row, col));
}

// ---------------------------------------------------------------- group
void gpu_sync(Gpu *n) {
  if (n->grp.threads > 1) n->vendor->sync(n);
}

void gpu_gsync(Gpu *n, const Op *op) {
  (void)op;
  gpu_sync(n);
}

V gpu_scratch(Gpu *n, uint32_t bytes) {
  assert(bytes <= n->scratch);
  (void)bytes;
  V at =
      gpu_i32(n, n->scratch_at +
                     (n->grp.team ? n->outside + n->barriers : 0) * n->scratch);
  if (n->grp.instances > 1)
    at = gpu_add(n, at, gpu_mul(n, n->grp.instance, n->scratch));
  return at;
}

// ---------------------------------------------------------------- fragments
uint32_t gpu_run(const FragMap *m, uint32_t axis, uint32_t *step) {
  uint32_t unit = 1;
  *step = 1;
  for (uint32_t i = 0; i < m->nreg; unit *= m->reg[i++].size) {
    uint32_t k = m->reg[i].size;
    if (m->reg[i].axis != axis || m->reg[i].stride != 1) continue;
    *step = unit;
    return k % 8 == 0 ? 8 : k % 4 == 0 ? 4 : k % 2 == 0 ? 2 : 1;
  }
  return 1;
}

// Elements of an access: at most 16 bytes, within a swizzled chunk.
uint32_t gpu_access(const FragMap *m, const Type *t, uint32_t *step) {
  bool turned = smem_turned(t->layout);
  uint32_t k = gpu_run(m, turned ? AXIS_ROW : AXIS_COL, step);
  uint32_t most = turned ? 8 : 16;
  while (k * (uint32_t)dtype_size(t->dtype) > most) k /= 2;
  return k;
}

// Register reg begins an access of k elements that are `step` apart.
static bool begins(uint32_t reg, uint32_t k, uint32_t step) {
  return reg / step % k == 0;
}

// Of a tile that is not swizzled: what a register adds is in the instruction.
static V plain_element(Gpu *n, Tile s, const Type *t, const FragMap *m,
                       uint32_t reg) {
  int64_t size = dtype_size(t->dtype), panel = smem_panel_bytes(t);
  uint32_t row = gpu_coord_reg(m, AXIS_ROW, reg);
  uint32_t col = gpu_coord_reg(m, AXIS_COL, reg);
  V at = gpu_mul(n, gpu_coord_thread(n, m, AXIS_ROW), panel);
  at = gpu_add(n, at, gpu_mul(n, gpu_coord_thread(n, m, AXIS_COL), size));
  V far = gpu_i32(n, row * panel + col * size), p = gpu_tile_byte(n, s, at);
  LLVMTypeRef byte = LLVMInt8TypeInContext(n->g->lc);
  return LLVMBuildGEP2(n->g->b, byte, p, &far, 1, "");
}

static V element_of(Gpu *n, Tile s, const Type *t, const FragMap *m,
                    uint32_t reg) {
  if (t->layout == LY_ROW && !s.flip) return plain_element(n, s, t, m, reg);
  V col = gpu_coord(n, m, AXIS_COL, reg);
  return gpu_element(n, s, t, gpu_coord(n, m, AXIS_ROW, reg), col);
}

static LLVMTypeRef in_memory(Gpu *n, DType t, uint32_t k) {
  LLVMTypeRef e = cg_memory(n->g, t);
  return k > 1 ? LLVMVectorType(e, k) : e;
}

void gpu_store_frag(Gpu *n, Tile s, const Type *t, const Frag *f) {
  Cg *g = n->g;
  if (n->vendor->store_tile(n, s, t, f)) return;
  uint32_t step, k = gpu_access(&f->map, t, &step);
  for (uint32_t i = 0; i < f->map.regs; i++) {
    if (!begins(i, k, step)) continue;
    LLVMTypeRef mt = in_memory(n, f->dtype, k), e = cg_memory(g, f->dtype);
    V v = k > 1 ? LLVMGetPoison(mt) : NULL;
    for (uint32_t j = 0; j < k; j++) {
      V x = gpu_elem(n, f, i + j * step);
      if (f->dtype == DT_BOOL) x = LLVMBuildZExt(g->b, x, e, "");
      v = k > 1 ? LLVMBuildInsertElement(g->b, v, x, gpu_i32(n, j), "") : x;
    }
    V st = LLVMBuildStore(g->b, v, element_of(n, s, t, &f->map, i));
    LLVMSetAlignment(st, k * (unsigned)dtype_size(f->dtype));
  }
}

Frag gpu_load_frag(Gpu *n, Tile s, const Type *t, const Type *want) {
  Cg *g = n->g;
  Frag f = gpu_new(n, want);
  uint32_t step, k = gpu_access(&f.map, t, &step);
  V *e = NEWN(&g->cx->scratch, V, f.map.regs);
  if (step == 1 && k > f.per) f.by = k / f.per;
  for (uint32_t i = 0; i < f.map.regs; i++) {
    if (!begins(i, k, step)) continue;
    V v = LLVMBuildLoad2(g->b, in_memory(n, f.dtype, k),
                         element_of(n, s, t, &f.map, i), "");
    LLVMSetAlignment(v, k * (unsigned)dtype_size(f.dtype));
    for (uint32_t j = 0; j < k; j++) {
      V x = k > 1 ? LLVMBuildExtractElement(g->b, v, gpu_i32(n, j), "") : v;
      if (f.dtype == DT_BOOL) x = e_icmp(g, LLVMIntNE, x, e_i(g, x, 0));
      e[i + j * step] = x;
    }
  }
  gpu_pack(n, &f, e);
  return f;
}

// An element at a time: rows of the tile are columns of the fragment.
static Frag load_turned(Gpu *n, Tile s, const Type *t, const Type *want) {
  Frag f = gpu_new(n, want);
  V *e = NEWN(&n->g->cx->scratch, V, f.map.regs);
  for (uint32_t i = 0; i < f.map.regs; i++) {
    V col = gpu_coord(n, &f.map, AXIS_ROW, i);
    V at = gpu_element(n, s, t, gpu_coord(n, &f.map, AXIS_COL, i), col);
    e[i] = LLVMBuildLoad2(n->g->b, cg_memory(n->g, f.dtype), at, "");
  }
  gpu_pack(n, &f, e);
  return f;
}

static void store_turned(Gpu *n, Tile s, const Type *t, const Frag *f) {
  if (n->vendor->store_turned && n->vendor->store_turned(n, s, t, f)) return;
  for (uint32_t i = 0; i < f->map.regs; i++) {
    V col = gpu_coord(n, &f->map, AXIS_ROW, i);
    V at = gpu_element(n, s, t, gpu_coord(n, &f->map, AXIS_COL, i), col);
    LLVMBuildStore(n->g->b, gpu_elem(n, f, i), at);
  }
}

// The tile from column `from` on, a multiple of the fragment's columns, which
// are a part of a panel or whole ones: within a panel these columns are other
// bits of the address.
static Tile from_column(Gpu *n, Tile s, const Type *t, V from) {
  uint32_t panel = smem_panel_bytes(t), size = (uint32_t)dtype_size(t->dtype);
  V cols = gpu_i32(n, panel / size);
  from = LLVMBuildIntCast2(n->g->b, from, gpu_i32t(n), 1, "");
  V side = LLVMBuildUDiv(n->g->b, from, cols, "");
  V in = LLVMBuildURem(n->g->b, from, cols, "");
  side = gpu_mul(n, side, t->ext[0] * panel / 16);
  s.var = s.var ? gpu_add(n, s.var, side) : side;
  s.flip = gpu_mul(n, in, size);
  return s;
}

void gpu_sload(Gpu *n, const Op *op) {
  Type t = *gpu_arg_type(n, op, 0);
  const Type *want = gpu_res_type(n, op);
  Tile s = gpu_tile(n, op->args[0]);
  bool trans = ir_attr_i(op, AT_TRANS, 0) != 0;
  Frag f = gpu_new(n, want);
  if (op->nargs > 1) {
    s = from_column(n, s, &t, gpu_arg(n, op, 1));
    t.ext[1] = want->ext[1];
  }
  bool done = n->vendor->load_tile && !want->slice &&
              n->vendor->load_tile(n, s, &t, trans, want, &f);
  if (!done)
    f = trans ? load_turned(n, s, &t, want) : gpu_load_frag(n, s, &t, want);
  gpu_define(n, op->res[0], f);
}

void gpu_sstore(Gpu *n, const Op *op) {
  Tile s = gpu_tile(n, op->args[0]);
  Type t = *gpu_arg_type(n, op, 0);
  const Frag *f = gpu_frag(n, op->args[1]);
  if (op->nargs > 2) {
    s = from_column(n, s, &t, gpu_arg(n, op, 2));
    t.ext[1] = gpu_arg_type(n, op, 1)->ext[1];
  }
  if (ir_attr_i(op, AT_TRANS, 0)) store_turned(n, s, &t, f);
  else gpu_store_frag(n, s, &t, f);
}

// 16 bytes at a time: it is the same in every layout.
void gpu_sflip(Gpu *n, const Op *op) {
  Cg *g = n->g;
  LLVMTypeRef vec = LLVMVectorType(gpu_i32t(n), 4);
  bool eight = dtype_size(gpu_arg_type(n, op, 0)->dtype) == 1;
  V sign = gpu_i32(n, (int64_t)(eight ? 0x80808080 : 0x80008000));
  V bits[] = {sign, sign, sign, sign};
  V first = gpu_mul(n, n->grp.tid, 16);
  LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b);
  LLVMBasicBlockRef body = cg_block(g, "flip"), done = cg_block(g, "flipped");
  LLVMBuildBr(g->b, body);
  LLVMPositionBuilderAtEnd(g->b, body);
  V at = LLVMBuildPhi(g->b, gpu_i32t(n), "");
  LLVMAddIncoming(at, &first, &from, 1);
  V p = gpu_tile_byte(n, gpu_tile(n, op->args[0]), at);
  V x = LLVMBuildLoad2(g->b, vec, p, "");
  LLVMSetAlignment(x, 16);
  x = LLVMBuildXor(g->b, x, LLVMConstVector(bits, 4), "");
  LLVMSetAlignment(LLVMBuildStore(g->b, x, p), 16);
  V next = gpu_add(n, at, gpu_i32(n, 16 * n->grp.threads));
  LLVMAddIncoming(at, &next, &body, 1);
  V bytes = gpu_i32(n, smem_slot_bytes(gpu_arg_type(n, op, 0)));
  LLVMBuildCondBr(g->b, e_icmp(g, LLVMIntULT, next, bytes), body, done);
  LLVMPositionBuilderAtEnd(g->b, done);
}

// Byte of chunk i of those of a tile's rows from `from` on: a row's chunks are
// its own, whatever their order.
static V chunk_of_rows(Gpu *n, const Type *t, V from, V i) {
  Cg *g = n->g;
  uint32_t panel = smem_panel_bytes(t), each = panel / 16;
  uint32_t all = smem_slot_bytes(t) / t->ext[0] / 16;
  V count = gpu_i32(n, all), in = gpu_i32(n, each);
  V row = gpu_add(n, from, LLVMBuildUDiv(g->b, i, count, ""));
  V c = LLVMBuildURem(g->b, i, count, "");
  V side = LLVMBuildUDiv(g->b, c, in, "");
  V at = gpu_mul(n, side, (int64_t)t->ext[0] * panel);
  at = gpu_add(n, at, gpu_mul(n, row, panel));
  return gpu_add(n, at, gpu_mul(n, LLVMBuildURem(g->b, c, in, ""), 16));
}

void gpu_sclean(Gpu *n, const Op *op) {
  Cg *g = n->g;
  const Type *t = gpu_arg_type(n, op, 0);
  LLVMTypeRef i32 = gpu_i32t(n), vec = LLVMVectorType(i32, 4);
  V from = LLVMBuildIntCast2(g->b, gpu_arg(n, op, 1), i32, 1, "");
  V rows = LLVMBuildSub(g->b, gpu_i32(n, t->ext[0]), from, "");
  V all = gpu_mul(n, rows, smem_slot_bytes(t) / t->ext[0] / 16);
  V first = n->grp.tid;
  LLVMBasicBlockRef in = LLVMGetInsertBlock(g->b), head = cg_block(g, "rows");
  LLVMBasicBlockRef body = cg_block(g, "clean"), done = cg_block(g, "cleaned");
  LLVMBuildBr(g->b, head);
  LLVMPositionBuilderAtEnd(g->b, head);
  V i = LLVMBuildPhi(g->b, i32, "");
  LLVMAddIncoming(i, &first, &in, 1);
  LLVMBuildCondBr(g->b, e_icmp(g, LLVMIntSLT, i, all), body, done);
  LLVMPositionBuilderAtEnd(g->b, body);
  V p =
      gpu_tile_byte(n, gpu_tile(n, op->args[0]), chunk_of_rows(n, t, from, i));
  LLVMSetAlignment(LLVMBuildStore(g->b, LLVMConstNull(vec), p), 16);
  V next = gpu_add(n, i, gpu_i32(n, n->grp.threads));
  LLVMAddIncoming(i, &next, &body, 1);
  LLVMBuildBr(g->b, head);
  LLVMPositionBuilderAtEnd(g->b, done);
}

// The tile from the first column, or row, on that a product takes of it: that
// of a panel, or of eight rows.
Tile gpu_operand_a(Gpu *n, const Op *op) {
  Tile s = gpu_tile(n, op->args[0]);
  if (!frag_takes_rows(n->f, op)) return s;
  const Type *t = gpu_arg_type(n, op, 0);
  V from = LLVMBuildIntCast2(n->g->b, gpu_arg(n, op, 3), gpu_i32t(n), 1, "");
  uint32_t column = t->ext[0] * (uint32_t)dtype_size(t->dtype);
  s.var = gpu_add(n, s.var, gpu_mul(n, from, column / 16));
  return s;
}

Tile gpu_operand_b(Gpu *n, const Op *op) {
  Tile s = gpu_tile(n, op->args[1]);
  if (op->nargs < 4 || frag_takes_rows(n->f, op)) return s;
  const Type *t = gpu_arg_type(n, op, 1);
  V from = LLVMBuildIntCast2(n->g->b, gpu_arg(n, op, 3), gpu_i32t(n), 1, "");
  uint32_t panel = smem_panel_bytes(t), size = (uint32_t)dtype_size(t->dtype);
  uint32_t units = ir_attr_i(op, AT_TRANS, 0) ? t->ext[0] * size : panel;
  s.var = gpu_add(n, s.var, gpu_mul(n, from, units / 16));
  return s;
}

static V scalar_at(Gpu *n, const Op *op) {
  V col = LLVMBuildIntCast2(n->g->b, gpu_arg(n, op, 1), gpu_i32t(n), 1, "");
  return gpu_element(n, gpu_tile(n, op->args[0]), gpu_arg_type(n, op, 0),
                     gpu_i32(n, 0), col);
}

void gpu_sget(Gpu *n, const Op *op) {
  DType t = gpu_res_type(n, op)->dtype;
  V v = LLVMBuildLoad2(n->g->b, cg_memory(n->g, t), scalar_at(n, op), "");
  if (t == DT_BOOL) v = e_icmp(n->g, LLVMIntNE, v, e_i(n->g, v, 0));
  n->g->val[op->res[0]] = v;
}

void gpu_sset(Gpu *n, const Op *op) {
  V v = gpu_arg(n, op, 2);
  bool one = n->grp.threads == 1;
  LLVMBasicBlockRef end = one ? NULL : gpu_if(n, n->grp.first);
  LLVMTypeRef mt = cg_memory(n->g, gpu_arg_type(n, op, 2)->dtype);
  if (cg_of(v) != mt) v = LLVMBuildZExt(n->g->b, v, mt, "");
  LLVMBuildStore(n->g->b, v, scalar_at(n, op));
  if (!one) gpu_end(n, end);
}

void gpu_slot(Gpu *n, const Op *op) {
  Tile s = gpu_tile(n, op->args[0]);
  const Type *t = gpu_arg_type(n, op, 0);
  LLVMTypeRef i32 = gpu_i32t(n);
  V i = LLVMBuildIntCast2(n->g->b, gpu_arg(n, op, 1), i32, 1, "");
  uint32_t bytes = smem_slot_bytes(t);
  assert(bytes % 16 == 0);
  if (LLVMIsConstant(i)) {
    s.base += (uint32_t)LLVMConstIntGetZExtValue(i) * bytes;
  } else {
    s.var = gpu_add(n, s.var, gpu_mul(n, i, bytes / 16));
  }
  n->tile[op->res[0]] = s;
}

// ---------------------------------------------------------------- relayout
// A tile in the group's scratch, row major.
static Type plain_tile(const Type *t) {
  uint32_t rows = t->slice == SLICE_ROW ? t->ext[0] : 1;
  uint32_t cols = t->slice == SLICE_ROW ? 1 : t->ext[0];
  if (!t->slice) rows = t->ext[0], cols = t->ext[1];
  return type_smem(t->dtype, 1, rows, cols, LY_ROW);
}

static Tile scratch_tile(Gpu *n, const Type *t, uint32_t byte) {
  V at = gpu_scratch(n, byte + smem_bytes(t));
  if (LLVMIsConstant(at))
    return (Tile){.base = byte + (uint32_t)LLVMConstIntGetZExtValue(at)};
  return (Tile){.base = byte, .var = e_shr(n->g, at, 4)};
}

// Slices that are handed round one right after the other share the barriers.
static const Op *next_relayout(const Func *f, const Op *op) {
  const Op *next = op->next;
  if (!next || next->code != OP_RELAYOUT || !ir_type(f, op->args[0])->slice ||
      !ir_type(f, next->args[0])->slice)
    return NULL;
  const Op *def = ir_def(f, next->args[0]);
  return def && def->code == OP_RELAYOUT ? NULL : next;
}

static uint32_t relayout_bytes(const Func *f, const Op *op) {
  Type t = plain_tile(ir_type(f, op->args[0]));
  return (smem_bytes(&t) + 15) / 16 * 16;
}

uint32_t gpu_relayouts_bytes(const Func *f, const Op *op) {
  uint32_t n = 0;
  for (; op; op = next_relayout(f, op)) n += relayout_bytes(f, op);
  return n;
}

// Code that keeps few registers leaves slices where all threads have written
// them, until their turn of the loop hands the next ones round.
uint32_t gpu_stay_bytes(const Func *f, const Op *op) {
  enum { FEW = 8 };
  const Type *t = ir_type(f, op->res[0]);
  if (!ir_attr_i(ir_launch(f), AT_LEANER, 0) || !t->slice ||
      !ir_type(f, op->args[0])->slice ||
      pressure_of(t, ir_group_threads(f, op)) < FEW)
    return 0;
  return relayout_bytes(f, op);
}

static Frag read_slice(Gpu *n, Tile s, const Type *t) {
  Type plain = plain_tile(t);
  return gpu_load_frag(n, s, &plain, t);
}

Frag *gpu_stayed(Gpu *n, Value v) {
  Frag *f = NEW(&n->g->cx->scratch, Frag);
  *f = read_slice(n, n->tile[v], ir_type(n->f, v));
  return f;
}

// Writes op's slice to byte `at` of the group's scratch, or to where it stays.
static Tile write_slice(Gpu *n, const Op *op, uint32_t at) {
  Type t = plain_tile(gpu_arg_type(n, op, 0));
  uint32_t stay = gpu_stay_bytes(n->f, op);
  Tile s = scratch_tile(n, &t, stay ? n->stay_at : at);
  n->stay_at += stay;
  gpu_store_frag(n, s, &t, gpu_frag(n, op->args[0]));
  return s;
}

void gpu_relayout(Gpu *n, const Op *op) {
  const Op *before = op->prev;
  if (before && before->code == OP_RELAYOUT && next_relayout(n->f, before))
    return;
  uint32_t at = 0;
  gpu_sync(n);
  for (const Op *o = op; o; o = next_relayout(n->f, o)) {
    n->tile[o->res[0]] = write_slice(n, o, at);
    at += relayout_bytes(n->f, o);
  }
  gpu_sync(n);
  for (const Op *o = op; o; o = next_relayout(n->f, o)) {
    Value v = o->res[0];
    gpu_define(n, v, read_slice(n, n->tile[v], gpu_res_type(n, o)));
    n->stays[v] = gpu_stay_bytes(n->f, o) != 0;
  }
}

// ---------------------------------------------------------------- scans
typedef struct Scan {
  RKind kind;
  uint32_t pos;
  bool suffix, exclusive;
  const Type *tile;
  Tile s;
  DType dtype;
} Scan;

// One line along the axis, by one thread: reads, joins, writes in place.
static void scan_line(Gpu *n, const Scan *c, V line, V carry) {
  Cg *g = n->g;
  uint32_t len = c->pos ? c->tile->ext[1] : c->tile->ext[0];
  LLVMTypeRef lt = cg_scalar(g, c->dtype);
  LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b);
  LLVMBasicBlockRef body = cg_block(g, "scan"), done = cg_block(g, "scanned");
  LLVMBuildBr(g->b, body);
  LLVMPositionBuilderAtEnd(g->b, body);
  V k = LLVMBuildPhi(g->b, gpu_i32t(n), ""), run = LLVMBuildPhi(g->b, lt, "");
  V zero = gpu_i32(n, 0);
  LLVMAddIncoming(k, &zero, &from, 1);
  LLVMAddIncoming(run, &carry, &from, 1);
  V at = c->suffix ? e_isub(g, gpu_i32(n, len - 1), k) : k;
  V p = c->pos ? gpu_element(n, c->s, c->tile, line, at)
               : gpu_element(n, c->s, c->tile, at, line);
  V sum = gpu_join(n, c->kind, run, LLVMBuildLoad2(g->b, lt, p, ""));
  LLVMBuildStore(g->b, c->exclusive ? run : sum, p);
  V next = gpu_add(n, k, gpu_i32(n, 1));
  LLVMAddIncoming(k, &next, &body, 1);
  LLVMAddIncoming(run, &sum, &body, 1);
  LLVMBuildCondBr(g->b, e_icmp(g, LLVMIntULT, next, gpu_i32(n, len)), body,
                  done);
  LLVMPositionBuilderAtEnd(g->b, done);
}

// Carries lie behind the tile, one per line.
static V carry_at(Gpu *n, const Scan *c, V line) {
  uint32_t size = (uint32_t)dtype_size(c->dtype);
  V at = gpu_mul(n, line, size);
  at = gpu_add(n, at, gpu_i32(n, c->s.base + smem_bytes(c->tile)));
  if (c->s.var) at = gpu_add(n, at, gpu_mul(n, c->s.var, 16));
  return gpu_shared(n, at);
}

static void put_carry(Gpu *n, const Scan *c, const Op *op) {
  Cg *g = n->g;
  if (ir_type(n->f, op->args[1])->kind != TK_FRAG) {
    LLVMBuildStore(g->b, gpu_arg(n, op, 1), carry_at(n, c, gpu_i32(n, 0)));
    return;
  }
  const Frag *x = gpu_frag(n, op->args[1]);
  uint32_t axis = c->pos ? AXIS_ROW : AXIS_COL;
  for (uint32_t i = 0; i < x->map.regs; i++) {
    V at = carry_at(n, c, gpu_coord(n, &x->map, axis, i));
    LLVMBuildStore(g->b, gpu_elem(n, x, i), at);
  }
}

void gpu_fscan(Gpu *n, const Op *op) {
  Cg *g = n->g;
  if (gpu_scans_in_quads(n->f, op, n->grp.threads)) {
    gpu_scan_in_quads(n, op);
    return;
  }
  if (gpu_scans_in_columns(n->f, op, n->grp.threads)) {
    gpu_scan_in_columns(n, op);
    return;
  }
  const Type *x = gpu_arg_type(n, op, 0);
  Type t = plain_tile(x);
  Scan c = {.kind = (RKind)ir_attr_i(op, AT_KIND, 0),
            .tile = &t,
            .pos = (uint32_t)ir_attr_i(op, AT_POS, 0),
            .dtype = x->dtype,
            .suffix = ir_attr_i(op, AT_DIR, 0) == DIR_SUFFIX,
            .exclusive = ir_attr_i(op, AT_EXCLUSIVE, 0)};
  c.s = scratch_tile(n, &t, 0);
  uint32_t lines = c.pos ? t.ext[0] : t.ext[1];
  gpu_sync(n);
  gpu_store_frag(n, c.s, &t, gpu_frag(n, op->args[0]));
  if (op->nargs > 1) put_carry(n, &c, op);
  gpu_sync(n);
  for (uint32_t lo = 0; lo < lines; lo += n->grp.threads) {
    V line = gpu_add(n, n->grp.tid, gpu_i32(n, lo));
    LLVMBasicBlockRef end =
        gpu_if(n, e_icmp(g, LLVMIntULT, line, gpu_i32(n, lines)));
    V carry = gpu_identity(n, c.kind, c.dtype);
    if (op->nargs > 1)
      carry = LLVMBuildLoad2(g->b, cg_of(carry), carry_at(n, &c, line), "");
    scan_line(n, &c, line, carry);
    gpu_end(n, end);
  }
  gpu_sync(n);
  gpu_define(n, op->res[0], gpu_load_frag(n, c.s, &t, gpu_res_type(n, op)));
}
