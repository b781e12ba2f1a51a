// Order of a block's instructions: arithmetic stands where it is needed.
//
//   a0 = fma(..), a1 = fma(..)            a0 = fma(..)
//   e0 = ex2(a0), e1 = ex2(a1)            e0 = ex2(a0)
//   s = e0 + e1                     ->    a1 = fma(..)
//   store(s)                              e1 = ex2(a1)
//                                         s = e0 + e1
//                                         store(s)
//
// Ops of a program are done for a whole tile, one after the other; so are their
// instructions. ptxas keeps enough of the order that it gets to keep the special
// units waiting for it. Here it is depth first from what has an effect: one row
// after the other. What has an effect or reads memory keeps its place, as
// shuffles do; nothing crosses assembly, which is what waits are. On an H200 tensor cores are
// busy 1 to 3 % more of the time (docs/performance.md).
#include "codegen/gpu.h"

#include "ir/map.h"

#include <string.h>

enum { MANY_LOADS = 16, MANY_POWERS = 8 };

typedef struct Order {
  LLVMBasicBlockRef block;
  Arena *arena;
  Map done;                 // instructions that are placed
  Vec(V) all, sorted;
} Order;

static bool is_arithmetic(LLVMOpcode c) {
  static const LLVMOpcode codes[] = {
      LLVMFNeg, LLVMAdd, LLVMFAdd, LLVMSub, LLVMFSub, LLVMMul, LLVMFMul,
      LLVMFDiv, LLVMShl, LLVMLShr, LLVMAShr, LLVMAnd, LLVMOr, LLVMXor,
      LLVMTrunc, LLVMZExt, LLVMSExt, LLVMFPTrunc, LLVMFPExt, LLVMBitCast,
      LLVMICmp, LLVMFCmp, LLVMSelect, LLVMExtractElement, LLVMInsertElement,
      LLVMShuffleVector, LLVMExtractValue, LLVMGetElementPtr};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (c == codes[i]) return true;
  return false;
}

// Functions without effect, by the first part of their names.
static bool is_function(V call) {
  static const char *const names[] = {
      "llvm.nvvm.ex2.",  "llvm.nvvm.rcp.", "llvm.nvvm.rsqrt.",
      "llvm.nvvm.fma.",  "llvm.nvvm.fm",   "llvm.nvvm.ff2",
      "llvm.fma.", "llvm.fabs.", "llvm.minimum.",
      "llvm.maximum.",   "llvm.maxnum.",   "llvm.minnum.", "llvm.smin.",
      "llvm.smax."};
  V fn = LLVMGetCalledValue(call);
  size_t len;
  if (!LLVMIsAFunction(fn)) return false;
  const char *name = LLVMGetValueName2(fn, &len);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strncmp(name, names[i], strlen(names[i])) == 0) return true;
  return false;
}

static bool is_power(V x) {
  static const char power[] = "llvm.nvvm.ex2.";
  size_t len;
  if (LLVMGetInstructionOpcode(x) != LLVMCall) return false;
  V fn = LLVMGetCalledValue(x);
  return LLVMIsAFunction(fn) &&
         strncmp(LLVMGetValueName2(fn, &len), power, sizeof power - 1) == 0;
}

static bool is_free(V x) {
  LLVMOpcode c = LLVMGetInstructionOpcode(x);
  return c == LLVMCall ? is_function(x) : is_arithmetic(c);
}

static void place(Order *o, V x);

static void place_operands(Order *o, V x) {
  int n = LLVMGetNumOperands(x);
  for (int i = 0; i < n; i++) place(o, LLVMGetOperand(x, (unsigned)i));
}

static void place(Order *o, V x) {
  uint64_t old;
  if (!LLVMIsAInstruction(x) || LLVMGetInstructionParent(x) != o->block ||
      LLVMIsAPHINode(x) || map_get(&o->done, (uintptr_t)x, &old))
    return;
  map_put(&o->done, (uintptr_t)x, 1);
  place_operands(o, x);
  vec_push(o->arena, &o->sorted, x);
}

static bool is_assembly(V x) {
  return LLVMGetInstructionOpcode(x) == LLVMCall &&
         LLVMIsAInlineAsm(LLVMGetCalledValue(x));
}

// Loads of many elements are followed by much that lives in registers; what
// depends on one of them alone would make it more.
static bool is_load(V x) {
  size_t n;
  if (!is_assembly(x)) return LLVMGetInstructionOpcode(x) == LLVMLoad;
  return strstr(LLVMGetInlineAsmAsmString(LLVMGetCalledValue(x), &n),
                "ld.global") != NULL;
}

// Arithmetic in front of a wait may be there to be done before it.
static void place_rest(Order *o, uint32_t end) {
  for (uint32_t i = 0; i < end; i++) place(o, o->all.at[i]);
}

// A side of a branch that makes functions of many elements and nothing else.
static bool only_computes(const Order *o) {
  uint32_t powers = 0;
  for (uint32_t i = 0; i + 1 < o->all.n; i++) {
    V x = o->all.at[i];
    if (!is_free(x)) return false;
    powers += is_power(x);
  }
  return powers > MANY_POWERS;
}

// From what the other blocks use.
static void place_results(Order *o) {
  for (uint32_t i = 0; i < o->all.n; i++) {
    V x = o->all.at[i];
    LLVMUseRef u = LLVMGetFirstUse(x);
    bool out = false;
    for (; u && !out; u = LLVMGetNextUse(u)) {
      V by = LLVMGetUser(u);
      out = LLVMGetInstructionParent(by) != o->block || LLVMIsAPHINode(by);
    }
    if (out) place(o, x);
  }
}

static void order_block(Cg *g, LLVMBasicBlockRef block) {
  Order o = {.block = block, .arena = &g->cx->scratch,
             .done.arena = &g->cx->scratch};
  uint32_t loads = 0;
  for (V x = LLVMGetFirstInstruction(block); x; x = LLVMGetNextInstruction(x)) {
    loads += is_load(x);
    if (!LLVMIsAPHINode(x)) vec_push(o.arena, &o.all, x);
  }
  if (loads > MANY_LOADS) return;
  if (only_computes(&o)) place_results(&o);
  for (uint32_t i = 0; i + 1 < o.all.n; i++) {
    V x = o.all.at[i];
    if (is_free(x)) continue;
    place_operands(&o, x);
    if (is_assembly(x)) place_rest(&o, i);
    place(&o, x);
  }
  place_rest(&o, o.all.n);
  for (uint32_t i = 0; i < o.sorted.n; i++) {
    LLVMInstructionRemoveFromParent(o.sorted.at[i]);
    LLVMPositionBuilderAtEnd(g->b, block);
    LLVMInsertIntoBuilder(g->b, o.sorted.at[i]);
  }
}

void nv_order(Cg *g) {
  for (V f = LLVMGetFirstFunction(g->mod); f; f = LLVMGetNextFunction(f))
    for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b;
         b = LLVMGetNextBasicBlock(b))
      order_block(g, b);
}
