// Layouts against the fragment maps that the PTX ISA documents.
#include "ir/layout.h"

#include "expect.h"

static FragMap map_of(Type t, uint32_t threads) {
  FragMap m;
  const char *err = frag_map(&t, threads, &m);
  if (err) printf("%s\n", err);
  EXPECT(!err);
  return m;
}

// Every element is held, registers and threads are found again.
static void check_covers(Type t, uint32_t threads) {
  FragMap m = map_of(t, threads);
  for (uint32_t r = 0; r < t.ext[0]; r++)
    for (uint32_t c = 0; c < t.ext[1]; c++) {
      uint32_t thread, reg, at[2], want[2] = {r, c};
      frag_find(&m, want, &thread, &reg);
      frag_at(&m, reg, thread, at);
      EXPECT(at[0] == r && at[1] == c && reg < m.regs && thread < threads);
    }
}

// wgmma.m64nNk16, accumulator D: row = 16 * (warp % 4) + lane / 4 + 8 * (i / 2
// % 2), column = 8 * (i / 4) + 2 * (lane % 4) + i % 2.
static void wgmma_accumulator(void) {
  FragMap m = map_of(type_frag(DT_F32, 64, 128, LY_ACC), 128);
  EXPECT(m.regs == 64);
  for (uint32_t t = 0; t < 128; t++)
    for (uint32_t i = 0; i < 64; i++) {
      uint32_t at[2], lane = t % 32;
      frag_at(&m, i, t, at);
      EXPECT(at[0] == 16 * (t / 32) + lane / 4 + 8 * (i / 2 % 2));
      EXPECT(at[1] == 8 * (i / 4) + 2 * (lane % 4) + i % 2);
    }
}

// mma.m16n8k16, A of 16 bits: a0,a1 row g; a2,a3 row g + 8; a4..a7 the same 8
// columns on; column = 2 * (lane % 4) + i % 2 + (i < 4 ? 0 : 8).
static void mma_operand_a(void) {
  FragMap m = map_of(type_frag(DT_BF16, 16, 16, LY_ACC), 32);
  EXPECT(m.regs == 8);
  for (uint32_t lane = 0; lane < 32; lane++)
    for (uint32_t i = 0; i < 8; i++) {
      uint32_t at[2];
      bool low = i < 2 || (i >= 4 && i < 6);
      frag_at(&m, i, lane, at);
      EXPECT(at[0] == lane / 4 + (low ? 0 : 8));
      EXPECT(at[1] == 2 * (lane % 4) + i % 2 + (i < 4 ? 0 : 8));
    }
}

// 128 rows on a warpgroup are two products of 64 rows.
static void two_products(void) {
  FragMap m = map_of(type_frag(DT_F32, 128, 16, LY_ACC), 128);
  uint32_t at[2];
  EXPECT(m.regs == 16);
  frag_at(&m, 8, 33, at);
  EXPECT(at[0] == 64 + 16 && at[1] == 2);
}

static void few_rows(void) {  // 16 rows on 4 warps: all warps hold them
  FragMap m = map_of(type_frag(DT_F32, 16, 8, LY_ACC), 128);
  uint32_t at[2];
  frag_at(&m, 0, 32 * 3 + 4, at);
  EXPECT(m.regs == 4 && at[0] == 1);
}

static void slices(void) {
  Type s = type_frag(DT_F32, 64, 128, LY_ACC);
  Type row = frag_slice(&s, 0, false), col = frag_slice(&s, 1, false);
  FragMap m = map_of(row, 128);
  uint32_t at[2];
  EXPECT(m.regs == 2 && row.ext[1] == 0);
  frag_at(&m, 1, 5, at);
  EXPECT(at[0] == 9 && at[1] == 0);
  m = map_of(col, 128);
  EXPECT(m.regs == 32 && col.ext[0] == 128);
  frag_at(&m, 3, 5, at);
  EXPECT(at[0] == 0 && at[1] == 8 + 2 + 1);
  Type other = type_frag(DT_F32, 64, 64, LY_ACC);
  Type same = frag_slice(&other, 0, false);
  EXPECT(type_eq(&row, &same));
}

static void lin(void) {
  FragMap m = map_of(type_frag(DT_BF16, 64, 128, LY_LIN), 128);
  uint32_t at[2];
  EXPECT(m.regs == 64);
  frag_at(&m, 8 + 3, 17, at);  // chunk 17 + 128: row 9, chunk 1
  EXPECT(at[0] == 9 && at[1] == 8 + 3);
  // 38 chunks of 8 columns a row: few threads have rows of their own.
  EXPECT(map_of(type_frag(DT_BF16, 16, 304, LY_LIN), 128).regs == 152);
  m = map_of(type_frag(DT_BF16, 16, 304, LY_LIN2), 128);
  EXPECT(m.regs == 38);
  frag_at(&m, 2 + 1, 17, at);  // row 2, pair 1 of the second 8
  EXPECT(at[0] == 2 && at[1] == 16 + 2 + 1);
}

static void swizzle(void) {
  Type t = type_smem(DT_BF16, 2, 64, 128, LY_SW128);
  EXPECT(smem_slot_bytes(&t) == 16384 && smem_bytes(&t) == 32768);
  EXPECT(smem_offset(&t, 0, 64) == 64 * 128);  // second panel
  EXPECT(smem_offset(&t, 3, 0) == 3 * 128 + 3 * 16);
  EXPECT(smem_offset(&t, 9, 8) == 9 * 128 + (1 ^ 1) * 16);
  t = type_smem(DT_BF16, 1, 64, 32, LY_SW64);
  EXPECT(smem_offset(&t, 2, 0) == 2 * 64 + 16);  // chunk ^ (row / 2 % 4)
  t = type_smem(DT_BF16, 1, 64, 16, LY_SW32);
  EXPECT(smem_offset(&t, 4, 0) == 4 * 32 + 16);  // chunk ^ (row / 4 % 2)
  t = type_smem(DT_F32, 1, 64, 24, LY_ROW);
  EXPECT(smem_offset(&t, 2, 3) == 2 * 96 + 12);
  t = type_smem(DT_BF16, 1, 64, 96, LY_SW128);
  EXPECT(smem_error(&t) != NULL);
}

int main(void) {
  static const struct {
    uint32_t r, c, threads;
    LayoutId layout;
  } shapes[] = {{64, 128, 128, LY_ACC},  {128, 72, 128, LY_ACC},
                {16, 8, 32, LY_ACC},     {128, 64, 256, LY_ACC},
                {64, 96, 128, LY_LIN},   {8, 64, 128, LY_LIN},
                {64, 8, 128, LY_LIN},    {16, 304, 128, LY_LIN4},
                {16, 304, 128, LY_LIN2}, {8, 48, 128, LY_LIN2}};
  for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    check_covers(type_frag(DT_F32, shapes[i].r, shapes[i].c, shapes[i].layout),
                 shapes[i].threads);
  wgmma_accumulator();
  mma_operand_a();
  two_products();
  few_rows();
  slices();
  lin();
  swizzle();
  return verdict();
}
