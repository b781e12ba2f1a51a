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
// instructions. ptxas keeps enough of the order that it gets to keep the
// special units waiting for it. Here it is depth first from what has an effect:
// one row after the other. What has an effect or reads memory keeps its place,
// as shuffles do; nothing crosses assembly, which is what waits are. On an H200
// tensor cores are busy 1 to 3 % more of the time (docs/lab/2026-11-cycles.md).
#include "codegen/gpu/gpu.h"

#include "ir/core/map.h"

#include <string.h>

enum { MANY_LOADS = 16, MANY_POWERS = 8 };

typedef struct Order {
  LLVMBasicBlockRef block;
  Arena *arena;
  Map done;   // instructions that are placed
  Map index;  // of instructions in the block, from 1
  bool few;   // registers are to be kept
  Vec(V) all, sorted;
} Order;

static bool is_arithmetic(LLVMOpcode c) {
  static const LLVMOpcode codes[] = {LLVMFNeg,
                                     LLVMAdd,
                                     LLVMFAdd,
                                     LLVMSub,
                                     LLVMFSub,
                                     LLVMMul,
                                     LLVMFMul,
                                     LLVMFDiv,
                                     LLVMShl,
                                     LLVMLShr,
                                     LLVMAShr,
                                     LLVMAnd,
                                     LLVMOr,
                                     LLVMXor,
                                     LLVMTrunc,
                                     LLVMZExt,
                                     LLVMSExt,
                                     LLVMFPTrunc,
                                     LLVMFPExt,
                                     LLVMBitCast,
                                     LLVMICmp,
                                     LLVMFCmp,
                                     LLVMSelect,
                                     LLVMExtractElement,
                                     LLVMInsertElement,
                                     LLVMShuffleVector,
                                     LLVMExtractValue,
                                     LLVMGetElementPtr};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (c == codes[i]) return true;
  return false;
}

// Functions without effect, by the first part of their names.
static bool is_function(V call) {
  static const char *const names[] = {"llvm.nvvm.ex2.",   "llvm.nvvm.rcp.",
                                      "llvm.nvvm.rsqrt.", "llvm.nvvm.fma.",
                                      "llvm.nvvm.fm",     "llvm.nvvm.ff2",
                                      "llvm.fma.",        "llvm.fabs.",
                                      "llvm.minimum.",    "llvm.maximum.",
                                      "llvm.maxnum.",     "llvm.minnum.",
                                      "llvm.smin.",       "llvm.smax."};
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

// Does something that stands from `end` on, or in another block, use x?
static bool used_from(Order *o, V x, uint32_t end) {
  for (LLVMUseRef u = LLVMGetFirstUse(x); u; u = LLVMGetNextUse(u)) {
    uint64_t at;
    if (!map_get(&o->index, (uintptr_t)LLVMGetUser(u), &at) || at > end)
      return true;
  }
  return false;
}

// Arithmetic in front of a wait may be there to be done before it: for a whole
// tile, one op after the other, or, which keeps fewer registers, one element of
// what is left of it after the other.
static void place_rest(Order *o, uint32_t end) {
  for (uint32_t i = 0; o->few && i < end; i++)
    if (used_from(o, o->all.at[i], end)) place(o, o->all.at[i]);
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

// ---------------------------------------------------------------- lean
// Where few registers are to be kept and a block loads much, each load stands
// in front of what it is made into, and stores to shared memory of what is made
// of the same loads (parts of operands) stand together:
//
//   x0 = load, x1 = load, ..              x0 = load
//   store(a(x0)), store(a(x1)), ..   ->   store(a(x0)), store(b(x0))
//   store(b(x0)), store(b(x1)), ..        x1 = load, ..
//
// ptxas loads as early as it has registers. Nothing crosses anything else that
// has an effect or reads memory; stores in between are to distinct places.
typedef struct Put {
  V x;
  uint32_t key;  // last of the loads that it is made of
} Put;

typedef struct Lean {
  Order *o;
  Map key;  // of those that have been asked
  Vec(Put) puts;
} Lean;

static bool is_put(V x) {
  size_t len;
  if (LLVMGetInstructionOpcode(x) == LLVMStore)
    return LLVMGetPointerAddressSpace(LLVMTypeOf(LLVMGetOperand(x, 1))) == 3;
  if (LLVMGetInstructionOpcode(x) != LLVMCall || is_assembly(x)) return false;
  const char *name = LLVMGetValueName2(LLVMGetCalledValue(x), &len);
  static const char start[] = "llvm.nvvm.stmatrix.";
  return strncmp(name, start, sizeof start - 1) == 0;
}

static uint32_t last_load(Lean *l, V x) {
  uint64_t at, known;
  if (!LLVMIsAInstruction(x) || LLVMIsAPHINode(x) ||
      !map_get(&l->o->index, (uintptr_t)x, &at))
    return 0;
  if (map_get(&l->key, (uintptr_t)x, &known)) return (uint32_t)known;
  uint32_t last = is_load(x) ? (uint32_t)at : 0;
  int n = last ? 0 : LLVMGetNumOperands(x);
  for (int i = 0; i < n; i++) {
    uint32_t k = last_load(l, LLVMGetOperand(x, (unsigned)i));
    last = k > last ? k : last;
  }
  map_put(&l->key, (uintptr_t)x, last);
  return last;
}

// In the order of their loads, those of one load in their own.
static void place_puts(Lean *l) {
  for (uint32_t i = 1; i < l->puts.n; i++) {
    Put p = l->puts.at[i];
    uint32_t k = i;
    for (; k && l->puts.at[k - 1].key > p.key; k--)
      l->puts.at[k] = l->puts.at[k - 1];
    l->puts.at[k] = p;
  }
  for (uint32_t i = 0; i < l->puts.n; i++) place(l->o, l->puts.at[i].x);
  l->puts.n = 0;
}

static void order_lean(Order *o) {
  Lean l = {.o = o, .key.arena = o->arena};
  for (uint32_t i = 0; i + 1 < o->all.n; i++) {
    V x = o->all.at[i];
    if (is_free(x) || (is_assembly(x) && is_load(x))) continue;
    if (is_put(x)) {
      vec_push(o->arena, &l.puts, ((Put){x, last_load(&l, x)}));
      continue;
    }
    place_puts(&l);
    place_rest(o, i);
    place(o, x);
  }
  place_puts(&l);
}

static bool has(LLVMBasicBlockRef block, const char *name) {
  V f = LLVMGetBasicBlockParent(block);
  return LLVMGetStringAttributeAtIndex(f, LLVMAttributeFunctionIndex, name,
                                       (unsigned)strlen(name)) != NULL;
}

// ---------------------------------------------------------------- blocks
static void order_all(Order *o) {
  if (only_computes(o)) place_results(o);
  for (uint32_t i = 0; i + 1 < o->all.n; i++) {
    V x = o->all.at[i];
    if (is_free(x)) continue;
    place_operands(o, x);
    if (is_assembly(x)) place_rest(o, i);
    place(o, x);
  }
}

static void order_block(Cg *g, LLVMBasicBlockRef block) {
  Order o = {.block = block,
             .arena = &g->cx->scratch,
             .done.arena = &g->cx->scratch,
             .index.arena = &g->cx->scratch,
             .few = has(block, GPU_FEW)};
  uint32_t loads = 0;
  for (V x = LLVMGetFirstInstruction(block); x; x = LLVMGetNextInstruction(x)) {
    loads += is_load(x);
    if (!LLVMIsAPHINode(x)) vec_push(o.arena, &o.all, x);
    if (!LLVMIsAPHINode(x)) map_put(&o.index, (uintptr_t)x, o.all.n);
  }
  if (loads <= MANY_LOADS) order_all(&o);
  else if (has(block, GPU_LEAN)) order_lean(&o);
  else return;
  place_rest(&o, o.all.n);
  for (uint32_t i = 0; i < o.sorted.n; i++) {
    LLVMInstructionRemoveFromParent(o.sorted.at[i]);
    LLVMPositionBuilderAtEnd(g->b, block);
    LLVMInsertIntoBuilder(g->b, o.sorted.at[i]);
  }
}

void gpu_order(Cg *g) {
  for (V f = LLVMGetFirstFunction(g->mod); f; f = LLVMGetNextFunction(f))
    for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b;
         b = LLVMGetNextBasicBlock(b))
      order_block(g, b);
}
