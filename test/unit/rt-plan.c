// Plans: values are those of the expressions evaluated one by one, what they
// share is there once, and what has no room is left to the caller.
#include "expect.h"
#include "runtime/rt.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = 1 << 16, DIMS = 3, MAPS = 30 };

static int64_t code[WORDS], sizes[DIMS] = {5, 3, 0};
static bool known[DIMS] = {true, true, true};
static attn_program prog = {.ndims = DIMS, .code = code};
static const Env env = {.prog = &prog, .dims = sizes, .known = known};
static attn_gpu_phase phase;
static attn_gpu_map maps[MAPS];
static const attn_gpu_variant variant = {.workspace = ATTN_NONE, .nphases = 1};

static uint32_t begin(void) {
  return prog.ncode;
}
static void word(int64_t w) {
  code[prog.ncode++] = w;
}
static void dim(int64_t i) {
  word(ATTN_X_DIM), word(i);
}
static void constant(int64_t v) {
  word(ATTN_X_CONST), word(v);
}
static void clear(void) {
  prog.ncode = 0;
}

static void make(Plan *p, uint32_t nmaps) {
  phase.nmaps = nmaps;
  Kernels k = {.phases = &phase,
               .maps = maps,
               .code = code,
               .ncode = prog.ncode};
  rt_plan_make(&prog, &k, &variant, p);
}

// (((d0 * d1 + 0) + d0 * d1) + 1) ..: each place has all before it inside.
static void sums(uint32_t n) {
  clear();
  for (uint32_t i = 0; i < n; i++) {
    maps[i] = (attn_gpu_map){.tensor = ATTN_NONE, .place = begin()};
    dim(0), dim(1), word(ATTN_X_MUL);
    for (uint32_t k = 0; k <= i; k++) constant(k), word(ATTN_X_ADD);
    word(ATTN_X_END);
  }
  phase.ntasks = maps[0].place;
}

static void shares(void) {
  Plan p;
  PlanValues v;
  int64_t x = 0;
  sums(MAPS);
  make(&p, MAPS);
  EXPECT(p.nops == 3 + 2 * MAPS && p.nroots == MAPS);
  rt_plan_eval(&p, &env, &v);
  for (uint32_t i = 0; i < MAPS; i++) {
    EXPECT(rt_plan_value(&v, maps[i].place, &x));
    EXPECT(x == 15 + i * (i + 1) / 2);
  }
  EXPECT(!rt_plan_value(&v, maps[3].place + 2, &x));
  EXPECT(!rt_plan_value(&v, ATTN_NONE, &x));
}

static uint32_t next(uint64_t *s, uint32_t n) {  // below n
  *s = *s * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*s >> 33) % n;
}

static uint32_t random_expression(uint64_t *s, uint32_t leaves) {
  uint32_t at = begin(), depth = 0;
  while (leaves || depth > 1) {
    if (leaves && (depth < 2 || next(s, 2))) {
      leaves--, depth++;
      if (next(s, 3)) dim(next(s, DIMS));
      else constant((int64_t)next(s, 8) - 2);
    } else {
      word(ATTN_X_ADD + next(s, ATTN_X_NOT - ATTN_X_ADD));
      depth--;
    }
    if (!next(s, 8)) word(ATTN_X_NOT);
  }
  word(ATTN_X_END);
  return at;
}

// What one says, the other says: values, overflows, divisions by zero.
static void agrees(uint64_t *s) {
  Plan p;
  PlanValues v;
  int64_t x = 0, y = 0;
  int good = 0;
  clear();
  for (uint32_t i = 0; i < MAPS; i++)
    maps[i] = (attn_gpu_map){.tensor = ATTN_NONE,
                             .place = random_expression(s, 1 + i % 8)};
  phase.ntasks = maps[7].place;
  sizes[1] = next(s, 2) ? 3 : INT64_MAX / 2;
  make(&p, MAPS);
  rt_plan_eval(&p, &env, &v);
  for (uint32_t i = 0; i < MAPS; i++) {
    bool want = rt_expr_eval(&env, maps[i].place, &y) == EX_OK;
    EXPECT(rt_plan_value(&v, maps[i].place, &x) == want);
    EXPECT(!want || x == y);
    good += want;
  }
  EXPECT(good > 0);
  sizes[1] = 3;
}

// Malformed expressions, those beyond the room and unknown dims have no value.
static void refuses(void) {
  static const int64_t bad[][4] = {{ATTN_X_ADD, ATTN_X_END},
                                   {ATTN_X_CONST, 1, ATTN_X_CONST, 2},
                                   {99, ATTN_X_END},
                                   {ATTN_X_END}};
  Plan p;
  PlanValues v;
  int64_t x;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    clear();
    memcpy(code, bad[i], sizeof bad[i]);
    prog.ncode = 4;
    phase.ntasks = 0;
    make(&p, 0);
    EXPECT(p.nroots == 0);
  }
  clear();
  maps[0] = (attn_gpu_map){.tensor = ATTN_NONE, .place = begin()};
  dim(0), word(ATTN_X_END);
  maps[1] = (attn_gpu_map){.tensor = ATTN_NONE, .place = begin()};
  constant(0);
  for (int i = 1; i < PLAN_OPS; i++) constant(i), word(ATTN_X_ADD);
  word(ATTN_X_END);
  phase.ntasks = 0;
  make(&p, 2);
  rt_plan_eval(&p, &env, &v);
  EXPECT(p.nops == PLAN_OPS && p.nroots == 1);
  EXPECT(rt_plan_value(&v, 0, &x) && x == 5);
  EXPECT(!rt_plan_value(&v, maps[1].place, &x));
  known[0] = false;
  rt_plan_eval(&p, &env, &v);
  EXPECT(!rt_plan_value(&v, 0, &x));
  known[0] = true;
}

int main(void) {
  uint64_t s = 1;
  shares();
  for (int i = 0; i < 2000; i++) agrees(&s);
  refuses();
  return verdict();
}
