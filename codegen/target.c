// What the rows of ir/targets.def are to LLVM.
#include "codegen/cg.h"
#include "runtime/attn_abi.h"

#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <string.h>

typedef struct Row {
  const char *isa;  // Target.isa
  uint32_t id;      // attn_isa
  CgFeatures has;
} Row;

static const Row rows[] = {
    {"X86_64", ATTN_ISA_X86_64, {0}},
    {"X86_64_V3",
     ATTN_ISA_X86_64_V3,
     {.fma = 1, .floor = 1, .f16 = 1, .masked = 1}},
    {"X86_64_V4",
     ATTN_ISA_X86_64_V4,
     {.fma = 1, .floor = 1, .f16 = 1, .masked = 1, .avx512 = 1}},
    {"X86_64_V4_BF16",
     ATTN_ISA_X86_64_V4_BF16,
     {.fma = 1, .floor = 1, .f16 = 1, .masked = 1, .avx512 = 1, .bf16 = 1}},
    {"X86_64_V4_AMX",
     ATTN_ISA_X86_64_V4_AMX,
     {.fma = 1, .floor = 1, .f16 = 1, .masked = 1, .avx512 = 1, .bf16 = 1}},
    {"AARCH64", ATTN_ISA_AARCH64, {.fma = 1, .floor = 1, .f16 = 1}},
    {"AARCH64_BF16",
     ATTN_ISA_AARCH64_BF16,
     {.fma = 1, .floor = 1, .f16 = 1, .bf16 = 1}},
};

static const Row *row(const Target *t) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strcmp(rows[i].isa, t->isa) == 0) return &rows[i];
  return &rows[0];
}

CgFeatures cg_features(const Target *t) {
  return row(t)->has;
}

uint32_t cg_isa(const Target *t) {
  return row(t)->id;
}

const char *cg_triple(const Target *t) {
  bool arm = cg_isa(t) >> 8 == ATTN_ISA_AARCH64 >> 8;
  return arm ? "aarch64-unknown-linux-gnu" : "x86_64-unknown-linux-gnu";
}

// Passes of the code generator that cost a fourth of the time and make no loop
// faster (docs/codegen.md): addresses and order come from our passes as they
// should be. LLVM has no such options for a function or a target machine, so
// they hold for the process from the first use of a CPU target on; code for
// GPUs is made before that.
static void set_options(void) {
  static const char *const args[] = {"attnc",
                                     "-disable-lsr",
                                     "-disable-cgp",
                                     "-disable-machine-licm",
                                     "-disable-machine-sink",
                                     "-disable-machine-cse",
                                     "-disable-copyprop",
                                     "-disable-x86-domain-reassignment",
                                     "-enable-misched=false"};
  LLVMParseCommandLineOptions(sizeof args / sizeof *args, args, NULL);
}

// LLVM's registry is the one piece of state of the process that is used; it is
// filled once, with the options.
static LLVMTargetRef find(const char *triple, char **message) {
  LLVMTargetRef t = NULL;
  if (!LLVMGetTargetFromTriple(triple, &t, message)) return t;
  LLVMDisposeMessage(*message);
  set_options();
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
  return LLVMGetTargetFromTriple(triple, &t, message) ? NULL : t;
}

LLVMTargetMachineRef cg_machine(Ctx *cx, const char *triple) {
  char *message = NULL;
  LLVMTargetRef t = find(triple, &message);
  if (!t) {
    cg_fail(cx, triple, message);
    return NULL;
  }
  bool x86 = strncmp(triple, "x86", 3) == 0;
  return LLVMCreateTargetMachine(t, triple, x86 ? "x86-64" : "generic", "",
                                 LLVMCodeGenLevelDefault, LLVMRelocPIC,
                                 LLVMCodeModelDefault);
}

void cg_end(Cg *g, LLVMTargetMachineRef tm) {
  LLVMDisposeBuilder(g->b);
  LLVMDisposeModule(g->mod);
  LLVMContextDispose(g->lc);
  LLVMDisposeTargetMachine(tm);
}
