// What the host CPU is and has: instruction set level, CPU count, the
// floating-point environment.
#include "rt.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>

// Register bits that a level needs, over those of the levels below it
// (x86-64 psABI, table 3.1).
typedef struct Feature {
  int isa;
  uint32_t leaf, sub;
  int reg;  // 0 eax, 1 ebx, 2 ecx, 3 edx
  uint32_t bits;
} Feature;

static const Feature features[] = {
    // cx16 sse3 ssse3 sse4.1 sse4.2 popcnt, fma movbe xsave osxsave avx f16c
    {ATTN_ISA_X86_64_V3, 1, 0, 2,
     1u << 0 | 1u << 9 | 1u << 12 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 22 |
         1u << 23 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 29},
    {ATTN_ISA_X86_64_V3, 0x80000001, 0, 2, 1u << 0 | 1u << 5},  // lahf lzcnt
    {ATTN_ISA_X86_64_V3, 7, 0, 1,
     1u << 3 | 1u << 5 | 1u << 8},  // bmi avx2 bmi2
    // f dq cd bw vl
    {ATTN_ISA_X86_64_V4, 7, 0, 1,
     1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31},
    {ATTN_ISA_X86_64_V4_BF16, 7, 1, 0, 1u << 5},             // avx512_bf16
    {ATTN_ISA_X86_64_V4_AMX, 7, 0, 3, 1u << 22 | 1u << 24},  // bf16 tile
};

// The register state that the operating system saves: XCR0 bits per level.
static uint32_t xcr0(void) {
  uint32_t lo, hi;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return lo;
}

static bool has(const Feature *f) {
  uint32_t r[4];
  if (!__get_cpuid_count(f->leaf, f->sub, &r[0], &r[1], &r[2], &r[3]))
    return false;
  return (r[f->reg] & f->bits) == f->bits;
}

enum {
  XCR0_AVX = 0x06,
  XCR0_AVX512 = 0xe6,
  XCR0_TILES = 0x60000,
  REQUEST = 0x1023,  // ARCH_REQ_XCOMP_PERM of Linux, of a process once
  TILE_DATA = 18     // the state that it is asked for
};

// Tile registers are 8 KiB of each thread's state: the kernel is asked.
static bool may_use_tiles(void) {
  return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

// What the CPU says, whatever the operating system does.
static int said_isa(void) {
  int isa = ATTN_ISA_X86_64_V4_AMX;
  for (size_t i = 0; i < sizeof features / sizeof *features; i++)
    if (isa >= features[i].isa && !has(&features[i])) isa = features[i].isa - 1;
  return isa < ATTN_ISA_X86_64_V3 ? ATTN_ISA_X86_64 : isa;
}

int attn_cpu_isa(void) {
  int isa = said_isa();
  uint32_t saved = isa >= ATTN_ISA_X86_64_V3 ? xcr0() : 0;
  if (isa >= ATTN_ISA_X86_64_V4_AMX &&
      ((saved & XCR0_TILES) != XCR0_TILES || !may_use_tiles()))
    isa = ATTN_ISA_X86_64_V4_BF16;
  if (isa >= ATTN_ISA_X86_64_V4 && (saved & XCR0_AVX512) != XCR0_AVX512)
    isa = ATTN_ISA_X86_64_V3;
  if (isa >= ATTN_ISA_X86_64_V3 && (saved & XCR0_AVX) != XCR0_AVX)
    isa = ATTN_ISA_X86_64;
  return isa;
}

// vdpbf16ps does twice the multiply-adds of an instruction of f32. AMD's cores
// start as many of both; Intel's, of Sapphire Rapids a sixth, so that f32 is
// three times as fast (docs/cpu-schedule.md).
static bool slow_pairs(void) {
  uint32_t r[4] = {0};
  __get_cpuid(0, &r[0], &r[1], &r[2], &r[3]);
  return r[1] != signature_AMD_ebx;
}

int attn_cpu_rank(int isa) {
  int here = attn_cpu_isa();
  if (isa >> 8 != here >> 8 || isa > here) return 0;
  int rank = 2 * (isa - ATTN_ISA_X86_64) + 2;
  // Between the two levels below.
  return isa == ATTN_ISA_X86_64_V4_BF16 && slow_pairs() ? rank - 3 : rank;
}

const char *attn_cpu_why(int isa) {
  int here = attn_cpu_isa(), said = said_isa();
  if (isa >> 8 != here >> 8) return "another family of CPUs";
  if (isa > said) return "the CPU has not all of its instructions";
  if (isa <= here)
    return isa == ATTN_ISA_X86_64_V4_BF16 && slow_pairs()
               ? "this CPU multiplies f32 faster than pairs of bf16"
               : "";
  if (isa < ATTN_ISA_X86_64_V4_AMX || (xcr0() & XCR0_TILES) != XCR0_TILES)
    return "the operating system does not save its registers";
  return "the kernel refuses tile registers (arch_prctl): it has to be Linux "
         "5.16 or later, and alternate signal stacks need room for them";
}

void rt_cpu_pause(void) {
  __builtin_ia32_pause();
}

uint64_t rt_fp_enter(void) {
  uint32_t old, dflt = 0x1f80;
  __asm__ volatile("stmxcsr %0" : "=m"(old));
  __asm__ volatile("ldmxcsr %0" : : "m"(dflt));
  return old;
}

void rt_fp_leave(uint64_t saved) {
  uint32_t old = (uint32_t)saved;
  __asm__ volatile("ldmxcsr %0" : : "m"(old));
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

enum { HAS_BF16 = 1 << 14 };  // of AT_HWCAP2

int attn_cpu_isa(void) {
  bool bf16 = getauxval(AT_HWCAP2) & HAS_BF16;
  return bf16 ? ATTN_ISA_AARCH64_BF16 : ATTN_ISA_AARCH64;
}

int attn_cpu_rank(int isa) {
  int here = attn_cpu_isa();
  if (isa >> 8 != here >> 8 || isa > here) return 0;
  return isa - ATTN_ISA_AARCH64 + 1;
}

const char *attn_cpu_why(int isa) {
  int here = attn_cpu_isa();
  if (isa >> 8 != here >> 8) return "another family of CPUs";
  return isa > here ? "the CPU has not all of its instructions" : "";
}

void rt_cpu_pause(void) {
  __asm__ volatile("yield");
}

uint64_t rt_fp_enter(void) {
  uint64_t old;
  __asm__ volatile("mrs %0, fpcr" : "=r"(old));
  __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
  return old;
}

void rt_fp_leave(uint64_t saved) {
  __asm__ volatile("msr fpcr, %0" : : "r"(saved));
}

#else
#error "libattn runs on x86-64 and AArch64"
#endif

int rt_cpu_count(void) {
  long n = 0;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
  if (n < 1)  // more CPUs than the set has bits
    n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : (int)n;
}

int64_t rt_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
