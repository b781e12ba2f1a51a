// What this machine reaches: multiply-adds that touch registers only, and a
// sum over memory. Measured, since clocks under vector load are not published.
#include "tools/driver/run/cost.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_THREADS = 256, ACCUMULATORS = 12, ROUNDS = 8 };

typedef double Work(int64_t n);  // does n steps; returns something

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// ---------------------------------------------------------------- kernels
// Each step: ACCUMULATORS independent multiply-adds of whole registers.
#if defined(__x86_64__)
#include <immintrin.h>

#define FMA_KERNEL(name, isa, vec, splat, fma) \
  __attribute__((target(isa))) static double name(int64_t n) { \
    vec acc[ACCUMULATORS], a = splat(1.0f), b = splat(1e-9f); \
    for (int i = 0; i < ACCUMULATORS; i++) acc[i] = splat(0.5f); \
    for (int64_t k = 0; k < n; k++) \
      _Pragma("GCC unroll 12") for (int i = 0; i < ACCUMULATORS; i++) acc[i] = \
          fma(acc[i], a, b); \
    float out[sizeof(vec) / 4], total = 0; \
    for (int i = 0; i < ACCUMULATORS; i++) { \
      memcpy(out, &acc[i], sizeof out); \
      total += out[0]; \
    } \
    return (double)total; \
  }

#define SSE_FMA(acc, a, b) _mm_add_ps(_mm_mul_ps(acc, a), b)
FMA_KERNEL(sse_f32, "sse2", __m128, _mm_set1_ps, SSE_FMA)
FMA_KERNEL(avx2_f32, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps)
FMA_KERNEL(avx512_f32, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps)

#define SSE_FMA_F64(acc, a, b) _mm_add_pd(_mm_mul_pd(acc, a), b)
FMA_KERNEL(sse_f64, "sse2", __m128d, _mm_set1_pd, SSE_FMA_F64)
FMA_KERNEL(avx2_f64, "avx2,fma", __m256d, _mm256_set1_pd, _mm256_fmadd_pd)
FMA_KERNEL(avx512_f64, "avx512f", __m512d, _mm512_set1_pd, _mm512_fmadd_pd)

__attribute__((target("avx512f,avx512bf16"))) static double
avx512_bf16(int64_t n) {
  __m512 acc[ACCUMULATORS];
  __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.0f), _mm512_set1_ps(1.0f));
  for (int i = 0; i < ACCUMULATORS; i++) acc[i] = _mm512_set1_ps(0.5f);
  for (int64_t k = 0; k < n; k++)
    _Pragma("GCC unroll 12") for (int i = 0; i < ACCUMULATORS; i++) acc[i] =
        _mm512_dpbf16_ps(acc[i], a, a);
  float out[16], total = 0;
  for (int i = 0; i < ACCUMULATORS; i++) {
    memcpy(out, &acc[i], sizeof out);
    total += out[0];
  }
  return (double)total;
}

// Products of tile registers, four sums.
__attribute__((target("amx-tile,amx-bf16"))) static double amx_bf16(int64_t n) {
  // The palette; bytes of a row, rows of six registers. GCC 12 takes eight
  // bytes for all that is read: what lies in memory anyway is sure to.
  static const uint8_t config[64] = {[0] = 1,   [16] = 64, [18] = 64, [20] = 64,
                                     [22] = 64, [24] = 64, [26] = 64, [48] = 16,
                                     [49] = 16, [50] = 16, [51] = 16, [52] = 16,
                                     [53] = 16};
  _tile_loadconfig(config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t k = 0; k < n; k++) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
  return (double)n;
}

typedef struct Kernel {
  const char *isa;  // of the target row
  Work *f32, *f64, *bf16;
  int lanes;  // of f32
  int pairs;  // operations of a step of bf16
} Kernel;

enum { PAIRS = 4 * 16 * ACCUMULATORS, TILES = 4 * 2 * 16 * 16 * 32 };

static const Kernel kernels[] = {
    {"X86_64", sse_f32, sse_f64, NULL, 4, 0},
    {"X86_64_V3", avx2_f32, avx2_f64, NULL, 8, 0},
    {"X86_64_V4", avx512_f32, avx512_f64, NULL, 16, 0},
    {"X86_64_V4_BF16", avx512_f32, avx512_f64, avx512_bf16, 16, PAIRS},
    {"X86_64_V4_AMX", avx512_f32, avx512_f64, amx_bf16, 16, TILES},
};

#elif defined(__aarch64__)
#include <arm_neon.h>

static double neon_f32(int64_t n) {
  float32x4_t acc[ACCUMULATORS], a = vdupq_n_f32(1), b = vdupq_n_f32(1e-9f);
  for (int i = 0; i < ACCUMULATORS; i++) acc[i] = b;
  for (int64_t k = 0; k < n; k++)
    _Pragma("GCC unroll 12") for (int i = 0; i < ACCUMULATORS; i++) acc[i] =
        vfmaq_f32(b, acc[i], a);
  double total = 0;
  for (int i = 0; i < ACCUMULATORS; i++) total += vgetq_lane_f32(acc[i], 0);
  return total;
}

static double neon_f64(int64_t n) {
  float64x2_t acc[ACCUMULATORS], a = vdupq_n_f64(1), b = vdupq_n_f64(1e-9);
  for (int i = 0; i < ACCUMULATORS; i++) acc[i] = b;
  for (int64_t k = 0; k < n; k++)
    _Pragma("GCC unroll 12") for (int i = 0; i < ACCUMULATORS; i++) acc[i] =
        vfmaq_f64(b, acc[i], a);
  double total = 0;
  for (int i = 0; i < ACCUMULATORS; i++) total += vgetq_lane_f64(acc[i], 0);
  return total;
}

__attribute__((target("arch=armv8.2-a+bf16"))) static double
neon_bf16(int64_t n) {
  float32x4_t acc[ACCUMULATORS];
  bfloat16x8_t a = vreinterpretq_bf16_u16(vdupq_n_u16(0x3f80));  // ones
  for (int i = 0; i < ACCUMULATORS; i++) acc[i] = vdupq_n_f32(0.5f);
  for (int64_t k = 0; k < n; k++)
    _Pragma("GCC unroll 12") for (int i = 0; i < ACCUMULATORS; i++) acc[i] =
        vbfdotq_f32(acc[i], a, a);
  double total = 0;
  for (int i = 0; i < ACCUMULATORS; i++) total += vgetq_lane_f32(acc[i], 0);
  return total;
}

typedef struct Kernel {
  const char *isa;
  Work *f32, *f64, *bf16;
  int lanes, pairs;
} Kernel;

enum { PAIRS = 4 * 4 * ACCUMULATORS };

static const Kernel kernels[] = {
    {"AARCH64", neon_f32, neon_f64, NULL, 4, 0},
    {"AARCH64_BF16", neon_f32, neon_f64, neon_bf16, 4, PAIRS},
};
#else
#error "no peak kernels for this architecture"
#endif

// ---------------------------------------------------------------- threads
typedef struct Team {
  Work *work;
  int64_t n;
  atomic_bool go;
  double sink;
} Team;

static void work(Team *t) {
  double x = t->work(t->n);
  if (x == 0.123) t->sink = x;  // keeps the loop
}

static void *member(void *data) {
  Team *t = data;
  while (!atomic_load(&t->go)) sched_yield();
  work(t);
  return NULL;
}

// Seconds until all are done; *threads becomes how many there were.
static double run_team(Team *t, int *threads) {
  pthread_t id[MAX_THREADS];
  int n = 1;
  atomic_store(&t->go, false);
  while (n < *threads && pthread_create(&id[n], NULL, member, t) == 0) n++;
  double begin = seconds();
  atomic_store(&t->go, true);
  work(t);
  for (int i = 1; i < n; i++) pthread_join(id[i], NULL);
  *threads = n;
  return seconds() - begin;
}

// Steps a second, the best of a few rounds of about 20 ms.
static double rate(Work *kernel, int threads) {
  Team t = {.work = kernel, .n = 1 << 16};
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  int one = 1;
  double best = 0;
  while (run_team(&t, &one) < 0.01 && t.n < (int64_t)1 << 40) t.n *= 2;
  for (int i = 0; i < ROUNDS; i++) {
    double spent = run_team(&t, &threads);
    double r = spent > 0 ? (double)t.n * threads / spent : 0;
    if (r > best) best = r;
  }
  return best;
}

double drv_peak(const Target *target, DType t, int threads) {
  // What the maker says; only products of 16-bit types have units there.
  if (target->kind == TARGET_GPU)
    return t == DT_BF16 || t == DT_F16 ? target->gpu.tflops * 1e12 : 0;
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
    const Kernel *k = &kernels[i];
    if (strcmp(k->isa, target->isa) != 0) continue;
    if (t == DT_F64) return rate(k->f64, threads) * ACCUMULATORS * k->lanes;
    bool pairs = t == DT_BF16 && k->bf16;
    double per = pairs ? k->pairs : 2.0 * ACCUMULATORS * k->lanes;
    return rate(pairs ? k->bf16 : k->f32, threads) * per;
  }
  return 0;
}

// ---------------------------------------------------------------- memory
enum { STREAM_BYTES = 1 << 27 };

// Each thread its own memory. Filling it costs the same whatever n is.
static double sum_memory(int64_t n) {
  int64_t words = STREAM_BYTES / 8;
  double *p = malloc(STREAM_BYTES), s[8] = {0};
  if (!p) return 0;
  for (int64_t i = 0; i < words; i++) p[i] = 1;
  for (int64_t k = 0; k < n; k++)
    for (int64_t i = 0; i < words; i += 8)
      _Pragma("GCC unroll 8") for (int j = 0; j < 8; j++) s[j] += p[i + j];
  free(p);
  return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

double drv_bandwidth(int threads) {
  Team t = {.work = sum_memory, .n = 1};
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  double one = INFINITY, five = INFINITY;
  for (int i = 0; i < 4; i++) {  // others may use the machine too
    t.n = 1;
    one = fmin(one, run_team(&t, &threads));
    t.n = 5;
    five = fmin(five, run_team(&t, &threads));
  }
  double spent = (five - one) / 4;
  // A machine too busy to tell: at least one filling and five readings.
  if (spent <= 0) spent = five / 6;
  return spent > 0 ? (double)STREAM_BYTES * threads / spent : 0;
}
