// Shared memory: addresses in tiles, fragments to and from tiles, the group's
// barrier and scratch, scans and changes of layout.
#include "codegen/gpu/gpu.h"
#include "ir/pressure.h"

#include <assert.h>

// ---------------------------------------------------------------- addresses
V nv_shared(Nv *n, V byte) {
  LLVMTypeRef i8 = LLVMInt8TypeInContext(n->g->lc);
  return LLVMBuildInBoundsGEP2(n->g->b, i8, n->smem, &byte, 1, "");
}

V nv_tile_at(Nv *n, Tile t, uint32_t byte) {
  V at = nv_i32(n, t.base + byte);
  if (t.var) at = nv_add(n, nv_mul(n, t.var, 16), at);
  return nv_shared(n, at);
}

V nv_tile_byte(Nv *n, Tile s, V byte) {
  V at = nv_add(n, byte, nv_i32(n, s.base));
  if (s.var) at = nv_add(n, at, nv_mul(n, s.var, 16));
  return nv_shared(n, at);
}

// What a row XORs its chunks with.
static V swizzle(Nv *n, const Type *t, V row) {
  uint32_t chunks = smem_panel_bytes(t) / 16;
  uint32_t shift = smem_swizzle_shift(t->layout);
  V r = shift ? e_shr(n->g, row, (int)shift) : row;
  return e_and(n->g, r, nv_i32(n, chunks - 1));
}

V nv_chunk(Nv *n, Tile s, const Type *t, V row, uint32_t c0, V bit) {
  Cg *g = n->g;
  uint32_t panel = smem_panel_bytes(t), chunks = panel / 16;
  V chunk = bit ? bit : nv_i32(n, 0);
  if (t->layout != LY_ROW) {
    chunk = e_xor(g, chunk, swizzle(n, t, row));
    chunk = e_xor(g, chunk, nv_i32(n, c0 % chunks));
  } else {
    chunk = nv_add(n, chunk, nv_i32(n, c0 % chunks));
  }
  V at = nv_add(n, nv_mul(n, row, panel), nv_mul(n, chunk, 16));
  return nv_tile_byte(n, s,
                      nv_add(n, at,
                             nv_i32(n, c0 / chunks * panel * t->ext[0])));
}

static V turned_offset(Nv *n, const Type *t, V row, V col) {
  Cg *g = n->g;
  V low = e_shl(g, e_and(g, col, nv_i32(n, 3)), 2);
  V swap =
      e_and(g, e_xor(g, e_shr(g, col, 2), low), nv_i32(n, smem_turned_mask(t)));
  V unit = e_xor(g, e_shr(g, row, 2), swap);
  V at = nv_add(n, nv_mul(n, col, 2 * (int64_t)t->ext[0]), nv_mul(n, unit, 8));
  V in = nv_mul(n, e_and(g, row, nv_i32(n, 3)), 2);
  return nv_add(n, at, in);
}

V nv_offset(Nv *n, const Type *t, V row, V col) {
  Cg *g = n->g;
  if (smem_turned(t->layout)) return turned_offset(n, t, row, col);
  uint32_t panel = smem_panel_bytes(t);
  V byte = nv_mul(n, col, dtype_size(t->dtype));
  if (t->layout == LY_ROW) return nv_add(n, nv_mul(n, row, panel), byte);
  V in = LLVMBuildURem(g->b, byte, nv_i32(n, panel), "");
  V side = LLVMBuildUDiv(g->b, byte, nv_i32(n, panel), "");
  in = e_xor(g, in, e_shl(g, swizzle(n, t, row), 4));
  V at = nv_add(n, nv_mul(n, side, (int64_t)panel * t->ext[0]),
                nv_mul(n, row, panel));
  return nv_add(n, at, in);
}

V nv_element(Nv *n, Tile s, const Type *t, V row, V col) {
  return nv_tile_byte(n, s, nv_offset(n, t, row, col));
}

// ---------------------------------------------------------------- group
void nv_sync(Nv *n) {
  if (n->grp.threads > 1) n->vendor->sync(n);
}

void nv_gsync(Nv *n, const Op *op) {
  (void)op;
  nv_sync(n);
}

V nv_scratch(Nv *n, uint32_t bytes) {
  assert(bytes <= n->scratch);
  (void)bytes;
  V at = nv_i32(n, n->scratch_at +
                       (n->grp.team ? 1 + n->barriers : 0) * n->scratch);
  if (n->grp.instances > 1)
    at = nv_add(n, at, nv_mul(n, n->grp.instance, n->scratch));
  return at;
}

// ---------------------------------------------------------------- fragments
uint32_t nv_run(const FragMap *m, uint32_t axis, uint32_t *step) {
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
uint32_t nv_access(const FragMap *m, const Type *t, uint32_t *step) {
  bool turned = smem_turned(t->layout);
  uint32_t k = nv_run(m, turned ? AXIS_ROW : AXIS_COL, step);
  uint32_t most = turned ? 8 : 16;
  while (k * (uint32_t)dtype_size(t->dtype) > most) k /= 2;
  return k;
}

// Register reg begins an access of k elements that are `step` apart.
static bool begins(uint32_t reg, uint32_t k, uint32_t step) {
  return reg / step % k == 0;
}

static V element_of(Nv *n, Tile s, const Type *t, const FragMap *m,
                    uint32_t reg) {
  return nv_element(n, s, t, nv_coord(n, m, AXIS_ROW, reg),
                    nv_coord(n, m, AXIS_COL, reg));
}

static LLVMTypeRef in_memory(Nv *n, DType t, uint32_t k) {
  LLVMTypeRef e = cg_memory(n->g, t);
  return k > 1 ? LLVMVectorType(e, k) : e;
}

void nv_store_frag(Nv *n, Tile s, const Type *t, const Frag *f) {
  Cg *g = n->g;
  if (n->vendor->store_tile(n, s, t, f)) return;
  uint32_t step, k = nv_access(&f->map, t, &step);
  for (uint32_t i = 0; i < f->map.regs; i++) {
    if (!begins(i, k, step)) continue;
    LLVMTypeRef mt = in_memory(n, f->dtype, k), e = cg_memory(g, f->dtype);
    V v = k > 1 ? LLVMGetPoison(mt) : NULL;
    for (uint32_t j = 0; j < k; j++) {
      V x = nv_elem(n, f, i + j * step);
      if (f->dtype == DT_BOOL) x = LLVMBuildZExt(g->b, x, e, "");
      v = k > 1 ? LLVMBuildInsertElement(g->b, v, x, nv_i32(n, j), "") : x;
    }
    V st = LLVMBuildStore(g->b, v, element_of(n, s, t, &f->map, i));
    LLVMSetAlignment(st, k * (unsigned)dtype_size(f->dtype));
  }
}

Frag nv_load_frag(Nv *n, Tile s, const Type *t, const Type *want) {
  Cg *g = n->g;
  Frag f = nv_new(n, want);
  uint32_t step, k = nv_access(&f.map, t, &step);
  V *e = NEWN(&g->cx->scratch, V, f.map.regs);
  if (step == 1 && k > f.per) f.by = k / f.per;
  for (uint32_t i = 0; i < f.map.regs; i++) {
    if (!begins(i, k, step)) continue;
    V v = LLVMBuildLoad2(g->b, in_memory(n, f.dtype, k),
                         element_of(n, s, t, &f.map, i), "");
    LLVMSetAlignment(v, k * (unsigned)dtype_size(f.dtype));
    for (uint32_t j = 0; j < k; j++) {
      V x = k > 1 ? LLVMBuildExtractElement(g->b, v, nv_i32(n, j), "") : v;
      if (f.dtype == DT_BOOL) x = e_icmp(g, LLVMIntNE, x, e_i(g, x, 0));
      e[i + j * step] = x;
    }
  }
  nv_pack(n, &f, e);
  return f;
}

// An element at a time: rows of the tile are columns of the fragment.
static Frag load_turned(Nv *n, Tile s, const Type *t, const Type *want) {
  Frag f = nv_new(n, want);
  V *e = NEWN(&n->g->cx->scratch, V, f.map.regs);
  for (uint32_t i = 0; i < f.map.regs; i++) {
    V at = nv_element(n, s, t, nv_coord(n, &f.map, AXIS_COL, i),
                      nv_coord(n, &f.map, AXIS_ROW, i));
    e[i] = LLVMBuildLoad2(n->g->b, cg_memory(n->g, f.dtype), at, "");
  }
  nv_pack(n, &f, e);
  return f;
}

void nv_sload(Nv *n, const Op *op) {
  const Type *t = nv_arg_type(n, op, 0), *want = nv_res_type(n, op);
  Tile s = nv_tile(n, op->args[0]);
  bool trans = ir_attr_i(op, AT_TRANS, 0) != 0;
  Frag f = nv_new(n, want);
  bool done = n->vendor->load_tile && !want->slice &&
              n->vendor->load_tile(n, s, t, trans, want, &f);
  if (!done)
    f = trans ? load_turned(n, s, t, want) : nv_load_frag(n, s, t, want);
  nv_define(n, op->res[0], f);
}

static void store_turned(Nv *n, Tile s, const Type *t, const Frag *f) {
  if (n->vendor->store_turned && n->vendor->store_turned(n, s, t, f)) return;
  for (uint32_t i = 0; i < f->map.regs; i++) {
    V at = nv_element(n, s, t, nv_coord(n, &f->map, AXIS_COL, i),
                      nv_coord(n, &f->map, AXIS_ROW, i));
    LLVMBuildStore(n->g->b, nv_elem(n, f, i), at);
  }
}

void nv_sstore(Nv *n, const Op *op) {
  Tile s = nv_tile(n, op->args[0]);
  const Frag *f = nv_frag(n, op->args[1]);
  if (ir_attr_i(op, AT_TRANS, 0)) store_turned(n, s, nv_arg_type(n, op, 0), f);
  else nv_store_frag(n, s, nv_arg_type(n, op, 0), f);
}

// 16 bytes at a time: it is the same in every layout.
void nv_sflip(Nv *n, const Op *op) {
  Cg *g = n->g;
  LLVMTypeRef vec = LLVMVectorType(nv_i32t(n), 4);
  V sign = nv_i32(n, (int64_t)0x80008000), bits[] = {sign, sign, sign, sign};
  V first = nv_mul(n, n->grp.tid, 16);
  LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b);
  LLVMBasicBlockRef body = cg_block(g, "flip"), done = cg_block(g, "flipped");
  LLVMBuildBr(g->b, body);
  LLVMPositionBuilderAtEnd(g->b, body);
  V at = LLVMBuildPhi(g->b, nv_i32t(n), "");
  LLVMAddIncoming(at, &first, &from, 1);
  V p = nv_tile_byte(n, nv_tile(n, op->args[0]), at);
  V x = LLVMBuildLoad2(g->b, vec, p, "");
  LLVMSetAlignment(x, 16);
  x = LLVMBuildXor(g->b, x, LLVMConstVector(bits, 4), "");
  LLVMSetAlignment(LLVMBuildStore(g->b, x, p), 16);
  V next = nv_add(n, at, nv_i32(n, 16 * n->grp.threads));
  LLVMAddIncoming(at, &next, &body, 1);
  V bytes = nv_i32(n, smem_slot_bytes(nv_arg_type(n, op, 0)));
  LLVMBuildCondBr(g->b, e_icmp(g, LLVMIntULT, next, bytes), body, done);
  LLVMPositionBuilderAtEnd(g->b, done);
}

static V scalar_at(Nv *n, const Op *op) {
  V col = LLVMBuildIntCast2(n->g->b, nv_arg(n, op, 1), nv_i32t(n), 1, "");
  return nv_element(n, nv_tile(n, op->args[0]), nv_arg_type(n, op, 0),
                    nv_i32(n, 0), col);
}

void nv_sget(Nv *n, const Op *op) {
  DType t = nv_res_type(n, op)->dtype;
  V v = LLVMBuildLoad2(n->g->b, cg_memory(n->g, t), scalar_at(n, op), "");
  if (t == DT_BOOL) v = e_icmp(n->g, LLVMIntNE, v, e_i(n->g, v, 0));
  n->g->val[op->res[0]] = v;
}

void nv_sset(Nv *n, const Op *op) {
  V v = nv_arg(n, op, 2);
  bool one = n->grp.threads == 1;
  LLVMBasicBlockRef end = one ? NULL : nv_if(n, n->grp.first);
  LLVMTypeRef mt = cg_memory(n->g, nv_arg_type(n, op, 2)->dtype);
  if (cg_of(v) != mt) v = LLVMBuildZExt(n->g->b, v, mt, "");
  LLVMBuildStore(n->g->b, v, scalar_at(n, op));
  if (!one) nv_end(n, end);
}

void nv_slot(Nv *n, const Op *op) {
  Tile s = nv_tile(n, op->args[0]);
  const Type *t = nv_arg_type(n, op, 0);
  LLVMTypeRef i32 = nv_i32t(n);
  V i = LLVMBuildIntCast2(n->g->b, nv_arg(n, op, 1), i32, 1, "");
  uint32_t bytes = smem_slot_bytes(t);
  assert(bytes % 16 == 0);
  if (LLVMIsConstant(i)) {
    s.base += (uint32_t)LLVMConstIntGetZExtValue(i) * bytes;
  } else {
    s.var = nv_add(n, s.var, nv_mul(n, i, bytes / 16));
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

static Tile scratch_tile(Nv *n, const Type *t, uint32_t byte) {
  V at = nv_scratch(n, byte + smem_bytes(t));
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

uint32_t nv_relayouts_bytes(const Func *f, const Op *op) {
  uint32_t n = 0;
  for (; op; op = next_relayout(f, op)) n += relayout_bytes(f, op);
  return n;
}

// Code that keeps few registers leaves slices where all threads have written
// them, until their turn of the loop hands the next ones round.
uint32_t nv_stay_bytes(const Func *f, const Op *op) {
  enum { FEW = 8 };
  const Type *t = ir_type(f, op->res[0]);
  if (!ir_attr_i(ir_launch(f), AT_LEANER, 0) || !t->slice ||
      !ir_type(f, op->args[0])->slice ||
      press_of(t, ir_group_threads(f, op)) < FEW)
    return 0;
  return relayout_bytes(f, op);
}

static Frag read_slice(Nv *n, Tile s, const Type *t) {
  Type plain = plain_tile(t);
  return nv_load_frag(n, s, &plain, t);
}

Frag *nv_stayed(Nv *n, Value v) {
  Frag *f = NEW(&n->g->cx->scratch, Frag);
  *f = read_slice(n, n->tile[v], ir_type(n->f, v));
  return f;
}

// Writes op's slice to byte `at` of the group's scratch, or to where it stays.
static Tile write_slice(Nv *n, const Op *op, uint32_t at) {
  Type t = plain_tile(nv_arg_type(n, op, 0));
  uint32_t stay = nv_stay_bytes(n->f, op);
  Tile s = scratch_tile(n, &t, stay ? n->stay_at : at);
  n->stay_at += stay;
  nv_store_frag(n, s, &t, nv_frag(n, op->args[0]));
  return s;
}

void nv_relayout(Nv *n, const Op *op) {
  const Op *before = op->prev;
  if (before && before->code == OP_RELAYOUT && next_relayout(n->f, before))
    return;
  uint32_t at = 0;
  nv_sync(n);
  for (const Op *o = op; o; o = next_relayout(n->f, o)) {
    n->tile[o->res[0]] = write_slice(n, o, at);
    at += relayout_bytes(n->f, o);
  }
  nv_sync(n);
  for (const Op *o = op; o; o = next_relayout(n->f, o)) {
    Value v = o->res[0];
    nv_define(n, v, read_slice(n, n->tile[v], nv_res_type(n, o)));
    n->stays[v] = nv_stay_bytes(n->f, o) != 0;
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
static void scan_line(Nv *n, const Scan *c, V line, V carry) {
  Cg *g = n->g;
  uint32_t len = c->pos ? c->tile->ext[1] : c->tile->ext[0];
  LLVMTypeRef lt = cg_scalar(g, c->dtype);
  LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b);
  LLVMBasicBlockRef body = cg_block(g, "scan"), done = cg_block(g, "scanned");
  LLVMBuildBr(g->b, body);
  LLVMPositionBuilderAtEnd(g->b, body);
  V k = LLVMBuildPhi(g->b, nv_i32t(n), ""), run = LLVMBuildPhi(g->b, lt, "");
  V zero = nv_i32(n, 0);
  LLVMAddIncoming(k, &zero, &from, 1);
  LLVMAddIncoming(run, &carry, &from, 1);
  V at = c->suffix ? e_isub(g, nv_i32(n, len - 1), k) : k;
  V p = c->pos ? nv_element(n, c->s, c->tile, line, at)
               : nv_element(n, c->s, c->tile, at, line);
  V sum = nv_join(n, c->kind, run, LLVMBuildLoad2(g->b, lt, p, ""));
  LLVMBuildStore(g->b, c->exclusive ? run : sum, p);
  V next = nv_add(n, k, nv_i32(n, 1));
  LLVMAddIncoming(k, &next, &body, 1);
  LLVMAddIncoming(run, &sum, &body, 1);
  LLVMBuildCondBr(g->b, e_icmp(g, LLVMIntULT, next, nv_i32(n, len)), body,
                  done);
  LLVMPositionBuilderAtEnd(g->b, done);
}

// Carries lie behind the tile, one per line.
static V carry_at(Nv *n, const Scan *c, V line) {
  uint32_t size = (uint32_t)dtype_size(c->dtype);
  V at = nv_mul(n, line, size);
  at = nv_add(n, at, nv_i32(n, c->s.base + smem_bytes(c->tile)));
  if (c->s.var) at = nv_add(n, at, nv_mul(n, c->s.var, 16));
  return nv_shared(n, at);
}

static void put_carry(Nv *n, const Scan *c, const Op *op) {
  Cg *g = n->g;
  if (ir_type(n->f, op->args[1])->kind != TK_FRAG) {
    LLVMBuildStore(g->b, nv_arg(n, op, 1), carry_at(n, c, nv_i32(n, 0)));
    return;
  }
  const Frag *x = nv_frag(n, op->args[1]);
  uint32_t axis = c->pos ? AXIS_ROW : AXIS_COL;
  for (uint32_t i = 0; i < x->map.regs; i++)
    LLVMBuildStore(g->b, nv_elem(n, x, i),
                   carry_at(n, c, nv_coord(n, &x->map, axis, i)));
}

void nv_fscan(Nv *n, const Op *op) {
  Cg *g = n->g;
  if (nv_scans_in_quads(n->f, op, n->grp.threads)) {
    nv_scan_in_quads(n, op);
    return;
  }
  const Type *x = nv_arg_type(n, op, 0);
  Type t = plain_tile(x);
  Scan c = {.kind = (RKind)ir_attr_i(op, AT_KIND, 0),
            .tile = &t,
            .pos = (uint32_t)ir_attr_i(op, AT_POS, 0),
            .dtype = x->dtype,
            .suffix = ir_attr_i(op, AT_DIR, 0) == DIR_SUFFIX,
            .exclusive = ir_attr_i(op, AT_EXCLUSIVE, 0)};
  c.s = scratch_tile(n, &t, 0);
  uint32_t lines = c.pos ? t.ext[0] : t.ext[1];
  nv_sync(n);
  nv_store_frag(n, c.s, &t, nv_frag(n, op->args[0]));
  if (op->nargs > 1) put_carry(n, &c, op);
  nv_sync(n);
  for (uint32_t lo = 0; lo < lines; lo += n->grp.threads) {
    V line = nv_add(n, n->grp.tid, nv_i32(n, lo));
    LLVMBasicBlockRef end =
        nv_if(n, e_icmp(g, LLVMIntULT, line, nv_i32(n, lines)));
    V carry = nv_identity(n, c.kind, c.dtype);
    if (op->nargs > 1)
      carry = LLVMBuildLoad2(g->b, cg_of(carry), carry_at(n, &c, line), "");
    scan_line(n, &c, line, carry);
    nv_end(n, end);
  }
  nv_sync(n);
  nv_define(n, op->res[0], nv_load_frag(n, c.s, &t, nv_res_type(n, op)));
}
