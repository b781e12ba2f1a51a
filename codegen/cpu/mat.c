// Tile registers of x86 (AMX). The passes number them: an op's value is the
// number of its register, whose shape is loaded once in a kernel, before its
// tasks. Functions that these call have no tiles.
#include "codegen/cg.h"

#include <assert.h>

// What ldtilecfg loads: for each register the bytes of a row, and the rows.
enum {
  CONFIG_BYTES = 64,
  CONFIG_ROW = 16,
  CONFIG_ROWS = 48,
  REGISTERS = 8,
  ROW_BYTES = 4 * HW_MAT_COLS
};

static LLVMValueRef i8(const Cg *g, uint64_t v) {
  return LLVMConstInt(LLVMInt8TypeInContext(g->lc), v, 0);
}

static LLVMValueRef arg(const Cg *g, const Op *op, uint32_t i) {
  return g->val[op->args[i]];
}

static void call(Cg *g, const char *name, LLVMValueRef *args, uint32_t n) {
  cg_intrinsic(g, name, NULL, args, n);
}

LLVMValueRef cg_mat(Cg *g, const Op *op) {
  LLVMValueRef to = i8(g, (uint64_t)ir_attr_i(op, AT_POS, 0));
  switch (op->code) {
  case OP_MAT_ZERO: call(g, "llvm.x86.tilezero", &to, 1); return to;
  case OP_MAT_LD:
    call(g, "llvm.x86.tileloadd64",
         (LLVMValueRef[]){to, cg_address(g, op), arg(g, op, 2)}, 3);
    return to;
  case OP_MAT_ST:
    call(g, "llvm.x86.tilestored64",
         (LLVMValueRef[]){arg(g, op, 3), cg_address(g, op), arg(g, op, 2)}, 3);
    return NULL;
  default:
    assert(op->code == OP_MAT_DPBF16);
    call(g, "llvm.x86.tdpbf16ps",
         (LLVMValueRef[]){arg(g, op, 0), arg(g, op, 1), arg(g, op, 2)}, 3);
    return arg(g, op, 0);
  }
}

bool cg_is_mat(const Cg *g, Value v) {
  const Type *t = ir_type(g->fn, v);
  return t->kind == TK_VEC && t->n == HW_MAT_ROWS * HW_MAT_COLS;
}

static void find_mat(void *data, Op *op) {
  bool *any = data;
  *any |= op->code == OP_MAT_DPBF16;
}

static void put(Cg *g, LLVMValueRef at, uint64_t byte, LLVMValueRef v) {
  LLVMTypeRef t = LLVMInt8TypeInContext(g->lc);
  LLVMValueRef i = cg_i64(g, (int64_t)byte);
  LLVMBuildStore(g->b, v, LLVMBuildGEP2(g->b, t, at, &i, 1, ""));
}

bool cg_mat_begin(Cg *g) {
  bool any = false;
  ir_walk(g->fn->body, find_mat, &any);
  if (!any) return false;
  LLVMTypeRef bytes =
      LLVMArrayType2(LLVMInt8TypeInContext(g->lc), CONFIG_BYTES);
  LLVMValueRef at = LLVMBuildAlloca(g->b, bytes, "");
  LLVMBuildStore(g->b, LLVMConstNull(bytes), at);
  put(g, at, 0, i8(g, 1));  // the palette
  for (uint64_t i = 0; i < REGISTERS; i++) {
    put(g, at, CONFIG_ROW + 2 * i, i8(g, ROW_BYTES));
    put(g, at, CONFIG_ROWS + i, i8(g, HW_MAT_ROWS));
  }
  call(g, "llvm.x86.ldtilecfg", &at, 1);
  return true;
}

// Threads that have no tiles are switched faster.
void cg_mat_end(Cg *g) {
  call(g, "llvm.x86.tilerelease", NULL, 0);
}
