// Gradients of attention at D 64 (bf16, sm_90a) in one kernel of keys, by hand: the experiment of
// docs/lab/2026-11-fused-gradients.md, "By hand at D 64". Not part of the compiler.
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Xcompiler -fPIC -shared -DADDS=5 -o x1.so fused_gradients_d64.cu
// Variants of the note:
//   bulk adds by each warp      (none)                         red.v2, rows' order    -DADDS=6
//   red.v4, fragments' order    -DADDS=5                       dQ waited for later    -DADDS=6 -DSPLIT=1
//   a warp that adds            -DJOINT=1 -DSPLIT=1 -DADDER=1  in turn                and -DTURNS=1 -DREV=1
//   staged, not sent            -DADDS=3      half of the bytes -DADDS=4   plain stores -DADDS=2
//   no adds  -DADDS=0           no dQ  -DDQ=0                  V in registers -DV_RS=1   same step -DLAG=0
//   sums never waited for       -DDEEP=1 (dK's left operand then comes from shared memory)
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cudaTypedefs.h>
#include <stdint.h>
#include <stdio.h>
#ifndef NST
#define NST 4   // stages of Q, dO
#endif
#ifndef NS
#define NS 4
#endif
#ifndef V_RS
#define V_RS 0
#endif
#ifndef K_RS
#define K_RS 0
#endif
#ifndef ADDS
#define ADDS 1
#endif
#ifndef DQ
#define DQ 1
#endif
#ifndef NOEXP
#define NOEXP 0
#endif
#ifndef LAG
#define LAG 1
#endif
#define TILE 8192
struct Smem {
  alignas(1024) char K[2][TILE];
  char V[2][TILE];
  char Q[NST][TILE];
  char dO[NST][TILE];
  char dS[NS][2][TILE];
  alignas(128) char dQ[2][16384];
  alignas(128) float4 ld[NST][32];
  uint64_t dqfull[2], dqempty[2];
  uint64_t kv, full[NST], empty[NST], sfull[NS], sempty[NS];
};
#define DEV static __device__ __forceinline__
DEV uint32_t sa(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
DEV void bar_init(uint64_t *b, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sa(b)), "r"(n)); }
DEV void bar_expect(uint64_t *b, int n) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sa(b)), "r"(n) : "memory"); }
DEV void bar_arrive(uint64_t *b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sa(b)) : "memory"); }
DEV void bar_wait(uint64_t *b, uint32_t parity) {
  asm volatile("{\n.reg .pred p;\nL_%=:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1, 0x989680;\n@p bra D_%=;\nbra L_%=;\nD_%=:\n}" ::"r"(sa(b)), "r"(parity) : "memory");
}
DEV void tma(void *dst, const CUtensorMap *m, int row, uint64_t *b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(sa(dst)), "l"(m), "r"(0), "r"(row), "r"(sa(b)) : "memory");
}
DEV void bulk(void *dst, const void *src, int n, uint64_t *b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(sa(dst)), "l"(src), "r"(n), "r"(sa(b)) : "memory");
}
DEV void bulk_add(float *dst, const void *src, int n) {
#if ADDS == 2
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(sa(src)), "r"(n) : "memory");
#else
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(dst), "r"(sa(src)), "r"(n) : "memory");
#endif
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
DEV void wfence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void wcommit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> DEV void wwait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
DEV void pin(float (&d)[32]) {
#pragma unroll
  for (int i = 0; i < 32; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N> DEV void wwait(float (&d)[32]) {
  asm volatile("wgmma.wait_group.sync.aligned %32;" : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]),"+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),"+f"(d[16]),"+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]),"+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31]) : "n"(N) : "memory");
}
DEV void pin(uint32_t (&d)[16]) {
#pragma unroll
  for (int i = 0; i < 16; i++) asm volatile("" : "+r"(d[i])::"memory");
}
DEV uint64_t desc(const void *p) {
  return (uint64_t)((sa(p) & 0x3ffff) >> 4) | (64ull << 16) | (64ull << 32) | (1ull << 62);
}
DEV void ss_kk(float (&d)[32], uint64_t a, uint64_t b) {
 asm volatile("{\n.reg .pred t, f;\nsetp.eq.u32 t, 0, 0;\nsetp.ne.u32 f, 0, 0;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, f, 1, 1, 0, 0;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %34, %35, t, 1, 1, 0, 0;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %36, %37, t, 1, 1, 0, 0;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %38, %39, t, 1, 1, 0, 0;\n"
"}" : "=f"(d[0]),"=f"(d[1]),"=f"(d[2]),"=f"(d[3]),"=f"(d[4]),"=f"(d[5]),"=f"(d[6]),"=f"(d[7]),"=f"(d[8]),"=f"(d[9]),"=f"(d[10]),"=f"(d[11]),"=f"(d[12]),"=f"(d[13]),"=f"(d[14]),"=f"(d[15]),"=f"(d[16]),"=f"(d[17]),"=f"(d[18]),"=f"(d[19]),"=f"(d[20]),"=f"(d[21]),"=f"(d[22]),"=f"(d[23]),"=f"(d[24]),"=f"(d[25]),"=f"(d[26]),"=f"(d[27]),"=f"(d[28]),"=f"(d[29]),"=f"(d[30]),"=f"(d[31]) : "l"(a + 0), "l"(b + 0),"l"(a + 2), "l"(b + 2),"l"(a + 4), "l"(b + 4),"l"(a + 6), "l"(b + 6) : "memory");
}
DEV void ss_dq(float (&d)[32], uint64_t a, uint64_t b, uint64_t a2, uint64_t b2) {
 asm volatile("{\n.reg .pred t, f;\nsetp.eq.u32 t, 0, 0;\nsetp.ne.u32 f, 0, 0;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, f, 1, 1, 1, 1;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %34, %35, t, 1, 1, 1, 1;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %36, %37, t, 1, 1, 1, 1;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %38, %39, t, 1, 1, 1, 1;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %40, %41, t, 1, 1, 1, 1;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %42, %43, t, 1, 1, 1, 1;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %44, %45, t, 1, 1, 1, 1;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %46, %47, t, 1, 1, 1, 1;\n"
"}" : "=f"(d[0]),"=f"(d[1]),"=f"(d[2]),"=f"(d[3]),"=f"(d[4]),"=f"(d[5]),"=f"(d[6]),"=f"(d[7]),"=f"(d[8]),"=f"(d[9]),"=f"(d[10]),"=f"(d[11]),"=f"(d[12]),"=f"(d[13]),"=f"(d[14]),"=f"(d[15]),"=f"(d[16]),"=f"(d[17]),"=f"(d[18]),"=f"(d[19]),"=f"(d[20]),"=f"(d[21]),"=f"(d[22]),"=f"(d[23]),"=f"(d[24]),"=f"(d[25]),"=f"(d[26]),"=f"(d[27]),"=f"(d[28]),"=f"(d[29]),"=f"(d[30]),"=f"(d[31]) : "l"(a + 0), "l"(b + 0),"l"(a + 128), "l"(b + 128),"l"(a + 256), "l"(b + 256),"l"(a + 384), "l"(b + 384),"l"(a2 + 0), "l"(b2 + 0),"l"(a2 + 128), "l"(b2 + 128),"l"(a2 + 256), "l"(b2 + 256),"l"(a2 + 384), "l"(b2 + 384) : "memory");
}
DEV void rs_k(float (&d)[32], const uint32_t *a, uint64_t b) {
 asm volatile("{\n.reg .pred t, f;\nsetp.eq.u32 t, 0, 0;\nsetp.ne.u32 f, 0, 0;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, f, 1, 1, 0;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%37,%38,%39,%40}, %41, t, 1, 1, 0;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%42,%43,%44,%45}, %46, t, 1, 1, 0;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%47,%48,%49,%50}, %51, t, 1, 1, 0;\n"
"}" : "=f"(d[0]),"=f"(d[1]),"=f"(d[2]),"=f"(d[3]),"=f"(d[4]),"=f"(d[5]),"=f"(d[6]),"=f"(d[7]),"=f"(d[8]),"=f"(d[9]),"=f"(d[10]),"=f"(d[11]),"=f"(d[12]),"=f"(d[13]),"=f"(d[14]),"=f"(d[15]),"=f"(d[16]),"=f"(d[17]),"=f"(d[18]),"=f"(d[19]),"=f"(d[20]),"=f"(d[21]),"=f"(d[22]),"=f"(d[23]),"=f"(d[24]),"=f"(d[25]),"=f"(d[26]),"=f"(d[27]),"=f"(d[28]),"=f"(d[29]),"=f"(d[30]),"=f"(d[31]) : "r"(a[0]),"r"(a[1]),"r"(a[2]),"r"(a[3]),"l"(b + 0),"r"(a[4]),"r"(a[5]),"r"(a[6]),"r"(a[7]),"l"(b + 2),"r"(a[8]),"r"(a[9]),"r"(a[10]),"r"(a[11]),"l"(b + 4),"r"(a[12]),"r"(a[13]),"r"(a[14]),"r"(a[15]),"l"(b + 6) : "memory");
}
DEV void rs_mn(float (&d)[32], const uint32_t *a, uint64_t b) {
 asm volatile("{\n.reg .pred t, f;\nsetp.eq.u32 t, 0, 0;\nsetp.ne.u32 f, 0, 0;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, t, 1, 1, 1;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%37,%38,%39,%40}, %41, t, 1, 1, 1;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%42,%43,%44,%45}, %46, t, 1, 1, 1;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%47,%48,%49,%50}, %51, t, 1, 1, 1;\n"
"}" : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]),"+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),"+f"(d[16]),"+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]),"+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31]) : "r"(a[0]),"r"(a[1]),"r"(a[2]),"r"(a[3]),"l"(b + 0),"r"(a[4]),"r"(a[5]),"r"(a[6]),"r"(a[7]),"l"(b + 128),"r"(a[8]),"r"(a[9]),"r"(a[10]),"r"(a[11]),"l"(b + 256),"r"(a[12]),"r"(a[13]),"r"(a[14]),"r"(a[15]),"l"(b + 384) : "memory");
}
DEV void ss_dk(float (&d)[32], uint64_t a, uint64_t b) {
 asm volatile("{\n.reg .pred t;\nsetp.eq.u32 t, 0, 0;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, t, 1, 1, 0, 1;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %34, %35, t, 1, 1, 0, 1;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %36, %37, t, 1, 1, 0, 1;\n"
"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %38, %39, t, 1, 1, 0, 1;\n"
"}" : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]),"+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),"+f"(d[16]),"+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]),"+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31]) : "l"(a + 0), "l"(b + 0),"l"(a + 2), "l"(b + 128),"l"(a + 4), "l"(b + 256),"l"(a + 6), "l"(b + 384) : "memory");
}
DEV float ex2(float x) {
#if NOEXP
  return x;
#else
  float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y;
#endif
}
DEV uint32_t pack(float lo, float hi) { uint32_t r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
DEV void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

DEV void column(float (&e)[16], const float4 *p) {
#pragma unroll
  for (int j = 0; j < 4; j++)
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(e[4 * j]), "=f"(e[4 * j + 1]), "=f"(e[4 * j + 2]), "=f"(e[4 * j + 3]) : "r"(sa(p + 4 * j)) : "memory");
}

struct Args {
  CUtensorMap Q, K, V, dO;
  const float4 *ld;
  float *dq;
  __nv_bfloat16 *dK, *dV;
  int *turns;
  float scale;
  int S, H, causal;   // H: heads times batch
  long long *clocks;
};

#ifndef ROTATE
#define ROTATE 0
#endif
// The tile of rows of step i. Rotated where all are seen: first < 0 tells where from.
#ifndef REV
#define REV 0
#endif
DEV int tile_of(int first, int n, int i) {
#if REV
  return first + n - 1 - i;
#endif
#if ROTATE
  if (first < 0) { int t = i - first - 1; return t >= n ? t - n : t; }
#endif
  return first + i;
}
#ifndef JOINT
#define JOINT 0
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef ADDER
#define ADDER 0
#endif
#ifndef TURNS
#define TURNS 0
#endif
#ifndef DEEP
#define DEEP 0
#endif
struct Group {
  Smem *s;
  const Args *a;
  int g, w, l, n, head, k0, first;  // first: tile of rows of step 0
  float sc[32], dp[32], dk[32], dv[32], dq[32];
  uint32_t p[16], ds[16];
#if DEEP
  uint32_t p2[16], ds2[16];
#endif
#if V_RS
  uint32_t vr[16];
#endif
#if K_RS
  uint32_t kr[16];
#endif
};

DEV void issue_scores(Group &x, int i) {
  Smem *s = x.s;
  int st = i % NST;
  bar_wait(&s->full[st], (i / NST) & 1);
  uint64_t q = desc(s->Q[st]), o = desc(s->dO[st]), k = desc(s->K[x.g]), v = desc(s->V[x.g]);
  wfence();
#if K_RS
  rs_k(x.sc, x.kr, q);
#else
  ss_kk(x.sc, k, q);
#endif
  wcommit();
#if V_RS
  rs_k(x.dp, x.vr, o);
#else
  ss_kk(x.dp, v, o);
#endif
  wcommit();
}

DEV void issue_sums(Group &x, int i) {
  Smem *s = x.s;
  int st = i % NST;
  uint64_t q = desc(s->Q[st]), o = desc(s->dO[st]);
  pin(x.dk); pin(x.dv);
  wfence();
  rs_mn(x.dv, x.p, o);
  rs_mn(x.dk, x.ds, q);
  wcommit();
}

DEV void issue_dq(Group &x, int i) {
  Smem *s = x.s;
  int st = i % NS;
  bar_wait(&s->sfull[st], (i / NS) & 1);
  wfence();
  ss_dq(x.dq, desc(s->dS[st][0]), desc(s->K[0]), desc(s->dS[st][1]), desc(s->K[1]));
  wcommit();
}

// Tile j of dQ, of this group, goes to shared memory for the warp that adds.
DEV void hand_dq(Group &x, int j, bool fence) {
  char *at = x.s->dQ[x.g] + x.w * 4096;
  int m = j / 2;
  if (m > 0) bar_wait(&x.s->dqempty[x.g], (m - 1) & 1);
#pragma unroll
  for (int r = 0; r < 8; r++)
    asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(sa(at) + r * 512 + x.l * 16), "f"(x.dq[4 * r]), "f"(x.dq[4 * r + 1]), "f"(x.dq[4 * r + 2]), "f"(x.dq[4 * r + 3]) : "memory");
  if (!fence) return;
  fence_async();
  __syncwarp();
  if (x.l == 0) bar_arrive(&x.s->dqfull[x.g]);
}
DEV void adder(Smem *s, const Args &a, int g, int head, int kt, int first, int n) {
  for (int m = 0; m < n / 2; m++) {
    int t = tile_of(first, n, 2 * m + g);
    size_t tile = (size_t)head * (a.S / 64) + t;
    bar_wait(&s->dqfull[g], m & 1);
#if TURNS
    int *turn = a.turns + tile, at;
    do asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(at) : "l"(turn) : "memory");
    while (at != kt);
#endif
    bulk_add(a.dq + tile * 4096, s->dQ[g], 16384);
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    bar_arrive(&s->dqempty[g]);
#if TURNS
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async.global;" ::: "memory");
    asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(turn), "r"(kt + 1) : "memory");
#endif
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

DEV void add_dq(Group &x, int i) {
#if ADDER
  hand_dq(x, i, true);
  return;
#endif
#if ADDS == 6
  float *to = x.a->dq + ((size_t)x.head * x.a->S + 64 * tile_of(x.first, x.n, i) + x.w * 16 + x.l / 4) * 64 + x.l % 4 * 2;
#pragma unroll
  for (int r = 0; r < 16; r++)
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1,%2};" ::"l"(to + r / 2 * 8 + r % 2 * 512), "f"(x.dq[2 * r]), "f"(x.dq[2 * r + 1]) : "memory");
#elif ADDS == 5
  float *to = x.a->dq + ((size_t)x.head * (x.a->S / 64) + tile_of(x.first, x.n, i)) * 4096 + x.w * 1024 + x.l * 4;
#pragma unroll
  for (int r = 0; r < 8; r++)
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to + r * 128), "f"(x.dq[4 * r]), "f"(x.dq[4 * r + 1]), "f"(x.dq[4 * r + 2]), "f"(x.dq[4 * r + 3]) : "memory");
#elif ADDS
  char *at = x.s->dQ[x.g] + x.w * 4096;
  if (x.l == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  __syncwarp();
#pragma unroll
  for (int r = 0; r < 8; r++)
    asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(sa(at) + r * 512 + x.l * 16), "f"(x.dq[4 * r]), "f"(x.dq[4 * r + 1]), "f"(x.dq[4 * r + 2]), "f"(x.dq[4 * r + 3]) : "memory");
  fence_async();
  __syncwarp();
#if ADDS == 4
  if (x.l == 0 && (x.w & 1))
#elif ADDS == 3
  if (x.l == 0 && x.a->S < 0)
#else
  if (x.l == 0)
#endif
    bulk_add(x.a->dq + ((size_t)x.head * (x.a->S / 64) + tile_of(x.first, x.n, i)) * 4096 + x.w * 1024, at, 4096);
#endif
}

#ifndef EARLY_PUT
#define EARLY_PUT 1
#endif
DEV void bulk_wait_dummy() {}
DEV void put(Group &x, int i) {
  Smem *s = x.s;
#if DQ
  int ss_ = i % NS;
  if (i >= NS) bar_wait(&s->sempty[ss_], ((i / NS) - 1) & 1);
  uint32_t row = x.w * 16 + (x.l & 15), base = sa(s->dS[ss_][x.g]) + row * 128;
#pragma unroll
  for (int j = 0; j < 4; j++)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(base + (((2 * j + (x.l >> 4)) ^ (row & 7)) << 4)),
                 "r"(x.ds[4 * j]), "r"(x.ds[4 * j + 1]), "r"(x.ds[4 * j + 2]), "r"(x.ds[4 * j + 3]) : "memory");
#endif
}
// j: the tile of rows whose dQ goes out too; -1: none
DEV void tell(Group &x, int i, int j) {
#if DQ
#if ADDER
  if (JOINT && j >= 0) hand_dq(x, j, false);
  fence_async();
  __syncwarp();
  if (x.l == 0) {
    bar_arrive(&x.s->sfull[i % NS]);
    if (JOINT && j >= 0) bar_arrive(&x.s->dqfull[x.g]);
  }
  return;
#endif
  char *at = x.s->dQ[x.g] + x.w * 4096;
  if (JOINT && j >= 0)
#pragma unroll
    for (int r = 0; r < 8; r++)
      asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(sa(at) + r * 512 + x.l * 16), "f"(x.dq[4 * r]), "f"(x.dq[4 * r + 1]), "f"(x.dq[4 * r + 2]), "f"(x.dq[4 * r + 3]) : "memory");
  fence_async();
  __syncwarp();
  if (x.l == 0) {
    bar_arrive(&x.s->sfull[i % NS]);
    if (JOINT && j >= 0) bulk_add(x.a->dq + ((size_t)x.head * (x.a->S / 64) + tile_of(x.first, x.n, j)) * 4096 + x.w * 1024, at, 4096);
  }
#endif
}

// P and dS of step i, whose scores were asked for; LATER: products asked for
// behind them.
template <bool DONE, int LATER, bool MASK, int KEEP = 0> DEV void soft(Group &x, int i, int out = -1) {
  Smem *s = x.s;
  int st = i % NST;
  float c = x.a->scale * 1.4426950408889634f;
  wwait<LATER + 1>(x.sc);
  float e[16];
  column(e, &s->ld[st][x.l % 4]);
#pragma unroll
  for (int b = 0; b < 8; b++)
#pragma unroll
    for (int r = 0; r < 4; r++) {
      float y = fmaf(x.sc[4 * b + r], c, e[2 * b + (r & 1)]);
      x.sc[4 * b + r] = y;
    }
  if (REV ? (x.a->causal && i >= x.n - 2) : MASK) {
    int at = REV ? x.n - 1 - i : i;
#pragma unroll
    for (int b = 0; b < 8; b++)
#pragma unroll
      for (int r = 0; r < 4; r++) {
        int key = 64 * (x.g - at) + x.w * 16 + x.l / 4 + (r & 2) * 4, q = 8 * b + 2 * (x.l % 4) + (r & 1);
        if (key > q) x.sc[4 * b + r] = -INFINITY;
      }
  }
#pragma unroll
  for (int b = 0; b < 8; b++)
#pragma unroll
    for (int r = 0; r < 4; r++) x.sc[4 * b + r] = ex2(x.sc[4 * b + r]);
  pin(x.sc);
  wwait<LATER>(x.dp);
  column(e, &s->ld[st][16 + x.l % 4]);
#pragma unroll
  for (int b = 0; b < 8; b++)
#pragma unroll
    for (int r = 0; r < 4; r++)
      x.dp[4 * b + r] = x.sc[4 * b + r] * (x.dp[4 * b + r] - e[2 * b + (r & 1)]);
  pin(x.dp);
  wwait<KEEP>(x.dk);
  pin(x.dv);
  if (DONE) pin(x.dq);
  if (x.l == 0 && i) bar_arrive(&s->empty[(i - 1) % NST]);
  if (DONE && x.l == 0) bar_arrive(&s->sempty[(i - 1 - LAG) % NS]);
#pragma unroll
  for (int j = 0; j < 16; j++) {
    x.p[j] = pack(x.sc[2 * j], x.sc[2 * j + 1]);
    x.ds[j] = pack(x.dp[2 * j], x.dp[2 * j + 1]);
  }
  pin(x.p); pin(x.ds);
#if EARLY_PUT
  put(x, i);
#endif
#if EARLY_PUT == 1
  tell(x, i, SPLIT ? out : DONE ? i - 1 - LAG : -1);
#endif
}

// Sums of step i, scores of the next. MINE: dQ of step i - LAG is this group's;
// PREV: the one asked for a step ago is there.
template <bool MINE, bool PREV, bool MASK, bool KEEP = (SPLIT && MINE)> DEV void step(Group &x, int i) {
  issue_scores(x, i + 1);
#if !EARLY_PUT
  put(x, i);
#endif
#if EARLY_PUT != 1
  tell(x, i, -1);
#endif
  issue_sums(x, i);
#if DQ
  if (MINE) issue_dq(x, i - LAG);
  if (JOINT && !ADDER && MINE && x.l == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#if SPLIT
  if (PREV) {
    wwait<3>(x.dq);
    if (x.l == 0) bar_arrive(&x.s->sempty[(i - 1 - LAG) % NS]);
  }
#endif
  if (PREV && !JOINT) add_dq(x, i > LAG ? i - 1 - LAG : 0);
#endif
#if SPLIT
  soft<(MINE && !KEEP), 1 + MINE, MASK, KEEP>(x, i + 1, PREV && JOINT ? i - 1 - LAG : -1);
  if (MINE && !KEEP && JOINT) add_dq(x, i - LAG);
#else
  soft<MINE && DQ, 1 + (MINE && DQ), MASK>(x, i + 1);
#endif
}

#if DEEP

template <int W> DEV void deep_sums(Group &x, int i) {
  Smem *s = x.s;
  int st = i % NST;
  uint64_t q = desc(s->Q[st]), o = desc(s->dO[st]);
  wfence();
  rs_mn(x.dv, W ? x.p2 : x.p, o);
  ss_dk(x.dk, desc(s->dS[i % NS][x.g]), q);
  wcommit();
}
// P and dS of step i. MINE: this step asked for a dQ; DONE: the one before did,
// of tile i - 3.
template <int W, bool MINE, bool DONE, int LATER> DEV void deep_soft(Group &x, int i) {
  Smem *s = x.s;
  int st = i % NST;
  float c = x.a->scale * 1.4426950408889634f;
  wwait<LATER + 1>(x.sc);
  if (DONE) pin(x.dq);
  if (x.l == 0) {
    if (i > 1) bar_arrive(&s->empty[(i - 2) % NST]);
    if (DONE && i > 2) bar_arrive(&s->sempty[(i - 3) % NS]);
  }
  float e[16];
  column(e, &s->ld[st][x.l % 4]);
#if !JOINT
  if (DONE && i > 2) add_dq(x, i - 3);
#endif
#pragma unroll
  for (int j = 0; j < 32; j++) x.sc[j] = fmaf(x.sc[j], c, e[j / 4 * 2 + (j & 1)]);
  if (x.a->causal && (REV ? i >= x.n - 2 : i < 2)) {
    int at = REV ? x.n - 1 - i : i;
#pragma unroll
    for (int j = 0; j < 32; j++) {
      int key = 64 * (x.g - at) + x.w * 16 + x.l / 4 + (j & 2) * 4, q = j / 4 * 8 + 2 * (x.l % 4) + (j & 1);
      if (key > q) x.sc[j] = -INFINITY;
    }
  }
#pragma unroll
  for (int j = 0; j < 32; j++) x.sc[j] = ex2(x.sc[j]);
  pin(x.sc);
  wwait<LATER>(x.dp);
  column(e, &s->ld[st][16 + x.l % 4]);
#pragma unroll
  for (int j = 0; j < 32; j++) x.dp[j] = x.sc[j] * (x.dp[j] - e[j / 4 * 2 + (j & 1)]);
  uint32_t (&p)[16] = W ? x.p2 : x.p;
#pragma unroll
  for (int j = 0; j < 16; j++) {
    x.ds[j] = pack(x.dp[2 * j], x.dp[2 * j + 1]);
    p[j] = pack(x.sc[2 * j], x.sc[2 * j + 1]);
  }
  put(x, i);
  pin(p);
  tell(x, i, DONE && JOINT ? i - 3 : -1);
  asm volatile("bar.sync %0, 128;" ::"r"(x.g + 1) : "memory");
}
template <int W, bool MINE> DEV void deep_step(Group &x, int i) {
  issue_scores(x, i + 1);
  deep_sums<W>(x, i);
  if (MINE) issue_dq(x, i - 1);
  if (JOINT && !ADDER && MINE && x.l == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  deep_soft<1 - W, MINE, !MINE, 1 + MINE>(x, i + 1);
}

#endif
DEV void store(Group &x, const float (&d)[32], __nv_bfloat16 *to, float f) {
  size_t row = (size_t)x.head * x.a->S + x.k0 + x.g * 64 + x.w * 16 + x.l / 4;
#pragma unroll
  for (int b = 0; b < 8; b++)
#pragma unroll
    for (int h = 0; h < 2; h++)
      *(uint32_t *)(to + (row + 8 * h) * 64 + b * 8 + 2 * (x.l % 4)) = pack(d[4 * b + 2 * h] * f, d[4 * b + 2 * h + 1] * f);
}

DEV void load_a(uint32_t (&a)[16], const char *tile, int w, int l) {
  uint32_t row = w * 16 + (l & 15), base = sa(tile) + row * 128;
#pragma unroll
  for (int j = 0; j < 4; j++)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(a[4 * j]), "=r"(a[4 * j + 1]), "=r"(a[4 * j + 2]), "=r"(a[4 * j + 3])
                 : "r"(base + (((2 * j + (l >> 4)) ^ (row & 7)) << 4)));
}

template <int G, bool MASK> DEV void walk(Group &x) {
#pragma unroll
  for (int j = 0; j < 32; j++) x.dk[j] = x.dv[j] = 0, x.sc[j] = x.dp[j] = 0, x.dq[j] = 0;
  bar_wait(&x.s->kv, 0);
#if V_RS
  load_a(x.vr, x.s->V[G], x.w, x.l);
#endif
#if K_RS
  load_a(x.kr, x.s->K[G], x.w, x.l);
#endif
#if DEEP
  // dQ of tile j is asked for at step j + 1 by group j & 1: group 0 at odd steps.
  constexpr bool ODD = G == 0, EVEN = !ODD;
  issue_scores(x, 0);
  deep_soft<0, false, false, 0>(x, 0);
  issue_scores(x, 1);
  deep_sums<0>(x, 0);
  deep_soft<1, false, false, 1>(x, 1);
  long long t0 = clock64();
#pragma unroll 1
  for (int i = 1; i < x.n - 1; i += 2) {
    deep_step<1, ODD>(x, i);
    deep_step<0, EVEN>(x, i + 1);
  }
  long long t1 = clock64();
  // The last step is odd; group 1 had a dQ at the one before, if there was one.
  deep_sums<1>(x, x.n - 1);
  wwait<1>(x.dq);
  if (EVEN && x.n > 2) add_dq(x, x.n - 3);
  if (ODD) issue_dq(x, x.n - 2);
  else issue_dq(x, x.n - 1);
  wwait<0>(x.dk);
  pin(x.dv);
  pin(x.dq);
  if (ODD) add_dq(x, x.n - 2);
  else add_dq(x, x.n - 1);
#elif SPLIT
  // LAG 1: group 0 has dQ of even tiles, at odd steps.
  constexpr bool ODD = G == 0, EVEN = !ODD;
  issue_scores(x, 0);
  soft<false, 0, MASK>(x, 0);
  step<false, false, MASK>(x, 0);
  long long t0 = clock64();
  if (ODD) {
#pragma unroll 1
    for (int i = 1; i < x.n - 1; i += 2) {
      step<true, false, false>(x, i);
      step<false, true, false>(x, i + 1);
    }
  } else if (x.n > 2) {
    step<false, false, false>(x, 1);
#pragma unroll 1
    for (int i = 2; i < x.n - 2; i += 2) {
      step<true, false, false>(x, i);
      step<false, true, false>(x, i + 1);
    }
    step<true, false, false, false>(x, x.n - 2);
  }
  long long t1 = clock64();
  issue_sums(x, x.n - 1);
  if (ODD) issue_dq(x, x.n - 2);
  if (EVEN && !JOINT && x.n > 2) add_dq(x, x.n - 3);
  wwait<0>(x.dk);
  pin(x.dv);
  pin(x.dq);
  if (ODD) add_dq(x, x.n - 2);
  if (EVEN) {
    issue_dq(x, x.n - 1);
    wwait<0>(x.dq);
    add_dq(x, x.n - 1);
  }
#else
  constexpr bool ODD = G == (LAG ? 0 : 1), EVEN = !ODD;
  issue_scores(x, 0);
  soft<false, 0, MASK>(x, 0);
  step<EVEN && !LAG, false, MASK>(x, 0);
  long long t0 = clock64();
#pragma unroll 1
  for (int i = 1; i < x.n - 1; i += 2) {
    step<ODD, EVEN, false>(x, i);
    step<EVEN, ODD, false>(x, i + 1);
  }
  long long t1 = clock64();
#if !EARLY_PUT
  put(x, x.n - 1);
#endif
#if EARLY_PUT != 1
  tell(x, x.n - 1, -1);
#endif
  issue_sums(x, x.n - 1);
#if DQ
  if (ODD) issue_dq(x, x.n - 1 - LAG);
  if (EVEN && !JOINT) add_dq(x, x.n > 1 + LAG ? x.n - 2 - LAG : 0);
#endif
  wwait<0>(x.dk);
  pin(x.dv);
  pin(x.dq);
#if DQ
  if (ODD) add_dq(x, x.n - 1 - LAG);
  if (LAG && EVEN) {
    issue_dq(x, x.n - 1);
    wwait<0>(x.dq);
    add_dq(x, x.n - 1);
  }
#endif
#endif
  store(x, x.dk, x.a->dK, x.a->scale);
  store(x, x.dv, x.a->dV, 1);
  if (x.l == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  if (x.a->clocks && x.w == 0 && x.l == 0 && G == 0 && x.n > 2) x.a->clocks[blockIdx.x] = (t1 - t0) / (x.n - 2);
}

template <bool MASK> DEV void kernel(const Args &a, Smem *s) {
  int nk = a.S / 128, heads = a.H, head, kt;
  int hg = MASK ? (heads % 4 ? 1 : 4) : 1;   // heads in turn
  int per = nk * hg, grp = blockIdx.x / per, r = blockIdx.x % per;
  head = grp * hg + r % hg;
  kt = r / hg;
  int first = MASK ? kt * 2 : 0, n = a.S / 64 - first;
#if ROTATE
  if (!MASK) first = -1 - kt * 2;
#endif
  int wg = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    bar_init(&s->kv, 1);
    for (int i = 0; i < NST; i++) bar_init(&s->full[i], 1), bar_init(&s->empty[i], 8);
    for (int i = 0; i < 2; i++) bar_init(&s->dqfull[i], 4), bar_init(&s->dqempty[i], 1);
    for (int i = 0; i < NS; i++) bar_init(&s->sfull[i], 8), bar_init(&s->sempty[i], 4);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_async();
  }
  __syncthreads();
  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      int base = head * a.S;
      bar_expect(&s->kv, 4 * TILE);
      for (int g = 0; g < 2; g++) {
        tma(s->K[g], &a.K, base + kt * 128 + g * 64, &s->kv);
        tma(s->V[g], &a.V, base + kt * 128 + g * 64, &s->kv);
      }
      for (int i = 0; i < n; i++) {
        int st = i % NST, t = tile_of(first, n, i);
        if (i >= NST) bar_wait(&s->empty[st], (i / NST - 1) & 1);
        bar_expect(&s->full[st], 2 * TILE + 512);
        tma(s->Q[st], &a.Q, base + t * 64, &s->full[st]);
        tma(s->dO[st], &a.dO, base + t * 64, &s->full[st]);
        bulk(s->ld[st], a.ld + (base + t * 64) / 2, 512, &s->full[st]);
      }
    }
#if ADDER
    if (threadIdx.x == 32 || threadIdx.x == 64) adder(s, a, threadIdx.x / 32 - 1, head, kt, first, n);
#endif
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    Group x;
    x.s = s, x.a = &a, x.g = wg - 1, x.w = (threadIdx.x / 32) % 4, x.l = threadIdx.x % 32;
    x.n = n, x.head = head, x.k0 = kt * 128, x.first = first;
    if (wg == 1) x.g = 0, walk<0, MASK>(x);
    else x.g = 1, walk<1, MASK>(x);
  }
}
extern "C" __global__ void __launch_bounds__(384, 1) fused_full(const __grid_constant__ Args a) {
  extern __shared__ char raw[];
  kernel<false>(a, (Smem *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023));
}
extern "C" __global__ void __launch_bounds__(384, 1) fused_causal(const __grid_constant__ Args a) {
  extern __shared__ char raw[];
  kernel<true>(a, (Smem *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023));
}
// ld[row / 2] = -lse * log2e of two rows, delta of two rows. A warp a pair.
__global__ void rows(const __nv_bfloat16 *O, const __nv_bfloat16 *dO, const float *lse, float2 *ld, int npairs) {
  int p = (blockIdx.x * blockDim.x + threadIdx.x) / 16, l = threadIdx.x % 16;
  if (p >= npairs) return;
  // 16 threads, 8 elements each: two rows
  uint4 o = ((const uint4 *)(O + (size_t)p * 128))[l], d = ((const uint4 *)(dO + (size_t)p * 128))[l];
  const __nv_bfloat162 *a = (const __nv_bfloat162 *)&o, *b = (const __nv_bfloat162 *)&d;
  float sum = 0;
  for (int j = 0; j < 4; j++) { float2 x = __bfloat1622float2(a[j]), y = __bfloat1622float2(b[j]); sum += x.x * y.x + x.y * y.y; }
  for (int m = 1; m < 8; m *= 2) sum += __shfl_xor_sync(~0u, sum, m);
  float other = __shfl_xor_sync(~0u, sum, 8);
  // pair t + 4 b of 32 goes to half b % 2 of float4 (b / 2) * 4 + t
  int in = p % 32, t = in % 4, bl = in / 4, at = p / 32 * 64 + ((bl / 2) * 4 + t) * 2 + bl % 2;
  if (l == 0) {
    ld[at] = make_float2(-lse[2 * p] * 1.4426950408889634f, -lse[2 * p + 1] * 1.4426950408889634f);
    ld[at + 32] = make_float2(sum, other);
  }
}
__global__ void cast(const float4 *dq, __nv_bfloat16 *out, float scale, size_t n4) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n4) return;
  float4 v = dq[i];
#if ADDS == 6
  *(uint2 *)(out + 4 * i) = make_uint2(pack(v.x * scale, v.y * scale), pack(v.z * scale, v.w * scale));
  return;
#endif
  size_t tile = i / 1024, r = i % 1024;
  int w = r / 256, b = (r / 32) % 8, l = r % 32;
  size_t row = tile * 64 + w * 16 + l / 4;
  int col = b * 8 + 2 * (l % 4);
  *(uint32_t *)(out + row * 64 + col) = pack(v.x * scale, v.y * scale);
  *(uint32_t *)(out + (row + 8) * 64 + col) = pack(v.z * scale, v.w * scale);
}

static int map(CUtensorMap *m, void *p, uint64_t rows) {
  static PFN_cuTensorMapEncodeTiled_v12000 enc;
  cudaDriverEntryPointQueryResult q;
  if (!enc) cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", (void **)&enc, cudaEnableDefault, &q);
  cuuint64_t dims[2] = {64, rows}, strides[1] = {128};
  cuuint32_t box[2] = {64, 64}, one[2] = {1, 1};
  return enc(m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, p, dims, strides, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
// part: bits 1 rows, 2 zero, 4 main, 8 cast
extern "C" int fused_run(void *Q, void *K, void *V, void *O, void *dO, float *lse, void *dQ, void *dK, void *dV, float *ws, float *ld,
                         int H, int S, int causal, int part, long long *clocks, void *stream) {
  cudaStream_t st = (cudaStream_t)stream;
  size_t nrows = (size_t)H * S;
  Args a;
  int rc = map(&a.Q, Q, nrows) | map(&a.K, K, nrows) | map(&a.V, V, nrows) | map(&a.dO, dO, nrows);
  if (rc) return rc;
  a.ld = (float4 *)ld, a.dq = ws, a.dK = (__nv_bfloat16 *)dK, a.dV = (__nv_bfloat16 *)dV;
  a.turns = (int *)(ld + nrows * 2);
  a.scale = 0.125f, a.S = S, a.H = H, a.causal = causal, a.clocks = clocks;
  if (part & 1) rows<<<(nrows / 2 * 16 + 255) / 256, 256, 0, st>>>((__nv_bfloat16 *)O, (__nv_bfloat16 *)dO, lse, (float2 *)ld, nrows / 2);
  if (part & 2) cudaMemsetAsync(ws, 0, nrows * 64 * 4, st);
  if ((part & 2) || TURNS) cudaMemsetAsync(a.turns, 0, nrows / 64 * 4, st);
  auto k = causal ? fused_causal : fused_full;
  int smem = sizeof(Smem) + 1024;
  cudaError_t e = cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
  if (e) return 1000 + e;
  if (part & 4) k<<<H * (S / 128), 384, smem, st>>>(a);
  if (part & 8) cast<<<(nrows * 16 + 255) / 256, 256, 0, st>>>((float4 *)ws, (__nv_bfloat16 *)dQ, a.scale, nrows * 16);
  e = cudaGetLastError();
  return e ? 2000 + e : 0;
}
