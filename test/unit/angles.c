// Kernels that are made one at a time stand in the same text as those that are
// made at once, also where one calls the function of huge angles.
#include "codegen/codegen.h"
#include "test/unit/expect.h"

#define KERNEL(name, ops) \
  "func program @" name "(%O: tensor<f32[2]> out) axes(q par 2) grid(q:2) {\n" \
  "  launch() {threads = 128}\n  %s = const() {value = 1.0} : f32\n" \
  "  %r = coord() {pos = 0} : frag<64xi32,acc.0>\n" \
  "  %v = splat(%s) : frag<64xf32,acc.0>\n" ops "  gstore(%O, %w, %r)\n}\n"

static const char text[] =
    "module mach sm_80\n" KERNEL("p.a", "  %w = exp(%v) : frag<64xf32,acc.0>\n")
        KERNEL("p.b", "  %w = sin(%v) : frag<64xf32,acc.0>\n")
            KERNEL("p.c", "  %w = sin(%v) : frag<64xf32,acc.0>\n")
                KERNEL("p", "  %w = exp(%v) : frag<64xf32,acc.0>\n");

enum { KERNELS = 4 };

// Without those that `made` leaves out, bit by bit.
static CgPtx parts(Ctx *cx, const Module *m, unsigned made) {
  static const CgKernelRecord other = {0};
  const CgKernelRecord *known[KERNELS];
  Buf out = {.arena = &cx->session};
  CgKernels all = {0};
  for (unsigned i = 0; i < KERNELS; i++)
    known[i] = made >> i & 1 ? NULL : &other;
  EXPECT(cg_gpu_rest(cx, m, "k", known, &out, &all));
  EXPECT(all.n == KERNELS);
  buf_char(&out, 0);
  return cg_ptx_split(cx, out.at);
}

static bool same(CgBytes a, CgBytes b) {
  return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

int main(void) {
  Ctx cx;
  ctx_init(&cx);
  Module *m =
      ir_parse(&cx, ctx_add_source(&cx, "m.tir", text, sizeof text - 1));
  EXPECT(m != NULL);
  CgPtx whole = parts(&cx, m, 15);
  EXPECT(whole.n == KERNELS && strstr(whole.around[2].at, "angle"));
  for (unsigned made = 1; m && made < 15; made++) {
    CgPtx some = parts(&cx, m, made);
    EXPECT(some.n == KERNELS);
    for (unsigned i = 0; i <= KERNELS; i++)
      EXPECT(same(some.around[i], whole.around[i]));
    for (unsigned i = 0; i < KERNELS; i++)
      EXPECT(!(made >> i & 1) || same(some.kernel[i], whole.kernel[i]));
  }
  ctx_drop(&cx);
  return verdict();
}
