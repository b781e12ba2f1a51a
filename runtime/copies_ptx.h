// The kernel that copies an array of any strides element by element: PTX of
//   for (u64 i = thread; i < c.n; i += threads) {
//     u64 at = i, from = c.from, to = c.to;
//     for (u32 k = 0; k < c.rank; at /= c.extent[k++]) {
//       from += at % c.extent[k] * c.source[k];
//       to += at % c.extent[k] * c.target[k];
//     }
//     copy c.size bytes: 1, 2, 4, 8
//   }
// where c, its parameter, is a CopyBlock (copies.c).
#ifndef ATTN_RT_COPIES_PTX_H
#define ATTN_RT_COPIES_PTX_H

static const char copies_ptx[] =
    ".version 7.8\n.target sm_70\n.address_size 64\n"
    ".visible .entry attn_copy(\n.param .align 64 .b8 block[192]\n)\n"
    "{\n.reg .pred %p<9>;\n.reg .b16 %rs<3>;\n.reg .b32 %r<12>;\n"
    ".reg .b64 %rd<25>;\nmov.u32 %r4, %ntid.x;\n"
    "mov.u32 %r5, %ctaid.x;\nmul.wide.u32 %rd10, %r5, %r4;\n"
    "mov.u32 %r6, %tid.x;\ncvt.u64.u32 %rd11, %r6;\n"
    "add.s64 %rd18, %rd10, %rd11;\nld.param.b64 %rd3, [block];\n"
    "setp.ge.u64 %p1, %rd18, %rd3;\n@%p1 bra $L15;\n"
    "mov.b64 %rd1, block;\nmov.u32 %r3, %nctaid.x;\n"
    "mul.wide.u32 %rd2, %r3, %r4;\n"
    "ld.param.v2.b32 {%r1, %r2}, [%rd1+24];\n"
    "ld.param.b64 %rd4, [%rd1+8];\nld.param.b64 %rd5, [%rd1+16];\n"
    "add.s64 %rd6, %rd1, 128;\nsetp.eq.b32 %p2, %r2, 0;\n"
    "setp.eq.b32 %p5, %r1, 2;\nsetp.eq.b32 %p6, %r1, 4;\n"
    "setp.eq.b32 %p7, %r1, 8;\nbra.uni $L2;\n$L12:\n"
    "ld.global.b32 %r10, [%rd7];\nst.global.b32 [%rd8], %r10;\n$L14:\n"
    "add.s64 %rd18, %rd18, %rd2;\nsetp.lt.u64 %p8, %rd18, %rd3;\n"
    "@%p8 bra $L2;\nbra.uni $L15;\n$L2:\nmov.b64 %rd19, 0;\n"
    "mov.b64 %rd20, %rd19;\nmov.b64 %rd21, %rd1;\n"
    "mov.b64 %rd22, %rd6;\nmov.b32 %r11, %r2;\nmov.b64 %rd23, %rd18;\n"
    "@%p2 bra $L3;\nbra.uni $L7;\n$L3:\nadd.s64 %rd7, %rd4, %rd20;\n"
    "add.s64 %rd8, %rd5, %rd19;\n@%p5 bra $L11;\n@%p6 bra $L12;\n"
    "@%p7 bra $L6;\nbra.uni $L13;\n$L6:\nld.global.b64 %rd17, [%rd7];\n"
    "st.global.b64 [%rd8], %rd17;\nbra.uni $L14;\n$L9:\n"
    "div.u64 %rd24, %rd23, %rd9;\n$L10:\n"
    "mul.lo.s64 %rd13, %rd24, %rd9;\nsub.s64 %rd14, %rd23, %rd13;\n"
    "ld.param.b64 %rd15, [%rd22+-64];\n"
    "mad.lo.s64 %rd20, %rd14, %rd15, %rd20;\n"
    "ld.param.b64 %rd16, [%rd22];\n"
    "mad.lo.s64 %rd19, %rd14, %rd16, %rd19;\nadd.s32 %r11, %r11, -1;\n"
    "add.s64 %rd22, %rd22, 8;\nadd.s64 %rd21, %rd21, 4;\n"
    "setp.eq.b32 %p4, %r11, 0;\nmov.b64 %rd23, %rd24;\n@%p4 bra $L3;\n"
    "$L7:\nld.param.b32 %rd9, [%rd21+32];\n"
    "and.b64 %rd12, %rd23, -4294967296;\nsetp.ne.b64 %p3, %rd12, 0;\n"
    "@%p3 bra $L9;\ncvt.u32.u64 %r7, %rd9;\ncvt.u32.u64 %r8, %rd23;\n"
    "div.u32 %r9, %r8, %r7;\ncvt.u64.u32 %rd24, %r9;\nbra.uni $L10;\n"
    "$L11:\nld.global.b16 %rs1, [%rd7];\nst.global.b16 [%rd8], %rs1;\n"
    "bra.uni $L14;\n$L13:\nld.global.b8 %rs2, [%rd7];\n"
    "st.global.b8 [%rd8], %rs2;\nbra.uni $L14;\n$L15:\nret;\n}\n";

#endif
