// What is NVIDIA's in the code of GPUs: hooks and ops for NVPTX.
#include "codegen/gpu/gpu.h"

#include <llvm-c/Target.h>
#include <math.h>
#include <stdio.h>

// Schedules are final as printed; ptxas optimizes. What is left: repeated
// address arithmetic, constants, packing and unpacking of words.
static const char pipeline[] =
    "function(early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,"
    "simplifycfg,early-cse<memssa>)";

static void init(void) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
}

// ---------------------------------------------------------------- kernels
static void declare(Gpu *n, const char *symbol) {
  Cg *g = n->g;
  char text[24];
  LLVMTypeRef p = cg_ptr(g), i8 = LLVMInt8TypeInContext(g->lc);
  LLVMTypeRef t = LLVMFunctionType(LLVMVoidTypeInContext(g->lc), &p, 1, 0);
  g->llfn = LLVMAddFunction(g->mod, symbol, t);
  LLVMSetFunctionCallConv(g->llfn, PTX_KERNEL);
  cg_target_attrs(g, g->llfn);
  unsigned fn = (unsigned)LLVMAttributeFunctionIndex;
  snprintf(text, sizeof text, "%u", n->out->threads);
  gpu_string_attr(n, fn, "nvvm.reqntid", text);
  int64_t cluster = ir_attr_i(ir_launch(n->f), AT_CLUSTER, 0);
  if (cluster) {
    snprintf(text, sizeof text, "%d", (int)cluster);
    gpu_string_attr(n, fn, "nvvm.cluster_dim", text);
  }
  uint32_t most = (uint32_t)ir_attr_i(ir_launch(n->f), AT_REGISTERS, 0);
  snprintf(text, sizeof text, "%u", most ? most : n->out->occupancy);
  gpu_string_attr(n, fn, most ? "nvvm.maxnreg" : "nvvm.minctasm", text);
  gpu_string_attr(n, fn, "denormal-fp-math-f32", "preserve-sign,preserve-sign");
  LLVMTypeRef block = LLVMArrayType2(i8, n->out->block_bytes);
  unsigned byval = LLVMGetEnumAttributeKindForName("byval", 5);
  LLVMAddAttributeAtIndex(g->llfn, 1,
                          LLVMCreateTypeAttribute(g->lc, byval, block));
  gpu_string_attr(n, 1, "nvvm.grid_constant", "");
  n->block = LLVMGetParam(g->llfn, 0);
  LLVMSetParamAlignment(n->block, 64);
  LLVMPositionBuilderAtEnd(g->b, cg_block(g, "entry"));
}

static V shared_base(Gpu *n) {
  Cg *g = n->g;
  V v = LLVMGetNamedGlobal(g->mod, "shared");
  if (v) return v;
  LLVMTypeRef t = LLVMArrayType2(LLVMInt8TypeInContext(g->lc), 0);
  v = LLVMAddGlobalInAddressSpace(g->mod, t, "shared", 3);
  LLVMSetAlignment(v, 1024);
  LLVMSetLinkage(v, LLVMExternalLinkage);
  return v;
}

static void threads(Gpu *n) {
  n->tid = gpu_call(n, "llvm.nvvm.read.ptx.sreg.tid.x", NULL, 0);
  n->lane = e_and(n->g, n->tid, gpu_i32(n, 31));
  // The broadcast tells ptxas that the number of the warp is uniform in it.
  V a[4] = {gpu_i32(n, -1), e_shr(n->g, n->tid, 5), gpu_i32(n, 0),
            gpu_i32(n, 31)};
  n->warp = gpu_call(n, "llvm.nvvm.shfl.sync.idx.i32", a, 4);
}

// The address field of matrix descriptors for the first shared byte.
static void descriptor_base(Gpu *n) {
  Cg *g = n->g;
  V a = LLVMBuildPtrToInt(g->b, n->smem, LLVMInt64TypeInContext(g->lc), "");
  a = LLVMBuildTrunc(g->b, a, gpu_i32t(n), "");
  n->desc0 = e_shr(g, e_and(g, a, gpu_i32(n, 0x3ffff)), 4);
}

static void init_barriers(Gpu *n) {
  bool any = false;
  for (const Op *op = n->f->body->first; op; op = op->next)
    any |= op->code == OP_MBAR;
  any |= ir_attr_i(ir_launch(n->f), AT_CLUSTER, 0) != 0;
  if (!any) return;
  LLVMBasicBlockRef end = gpu_if(n, n->grp.first);
  for (const Op *op = n->f->body->first; op; op = op->next) {
    if (op->code != OP_MBAR) continue;
    for (uint32_t i = 0; i < gpu_res_type(n, op)->n; i++) {
      V at = gpu_i32(n, n->tile[op->res[0]].base + 8 * i);
      V a[2] = {gpu_shared(n, at), gpu_i32(n, ir_attr_i(op, AT_ARRIVALS, 1))};
      gpu_call(n, "llvm.nvvm.mbarrier.init.shared", a, 2);
    }
  }
  nv_peers_init(n);
  gpu_call(n, "llvm.nvvm.fence.mbarrier_init.release.cluster", NULL, 0);
  gpu_end(n, end);
  gpu_sync(n);
}

// The runtime lets a phase start while the one before it ends: what needs no
// memory is done by then. The next phase may do the same.
static void begin(Gpu *n) {
  descriptor_base(n);
  init_barriers(n);
  nv_peers_begin(n);
  if (n->g->target->gpu.hopper)
    gpu_call(n, "llvm.nvvm.griddepcontrol.launch.dependents", NULL, 0);
}

static void wait_for_others(Gpu *n) {
  if (!n->g->target->gpu.hopper) return;
  gpu_call(n, "llvm.nvvm.griddepcontrol.wait", NULL, 0);
  n->out->waits = true;
}

static void find_new(void *data, Op *op) {
  bool *found = data;
  *found |= op->code == OP_GSTORE && ir_attr_i(op, AT_ADD, 0);
  *found |= op->code == OP_PEERS;
}

// Adds of several numbers, and stores to other CTAs, are of PTX 8.1.
static const char *features(const Module *m) {
  bool some = false;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    ir_walk(m->funcs.at[i]->body, find_new, &some);
  return some ? "+ptx81" : NULL;
}

static void find_store(void *data, Op *op) {
  bool *found = data;
  *found |= op->code == OP_TMA_STORE;
}

// Stores read shared memory until they are done.
static void end(Gpu *n) {
  bool store = false;
  V none = gpu_i32(n, 0);
  ir_walk(n->f->body, find_store, &store);
  if (store) gpu_call(n, "llvm.nvvm.cp.async.bulk.wait.group.read", &none, 1);
}

static V cta(Gpu *n) {
  return gpu_call(n, "llvm.nvvm.read.ptx.sreg.ctaid.x", NULL, 0);
}
static V ctas(Gpu *n) {
  return gpu_call(n, "llvm.nvvm.read.ptx.sreg.nctaid.x", NULL, 0);
}

// ---------------------------------------------------------------- threads
static V exchange(Gpu *n, V x, uint32_t lanes) {
  V a[4] = {gpu_i32(n, -1), x, gpu_i32(n, lanes), gpu_i32(n, 31)};
  return gpu_call(n, "llvm.nvvm.shfl.sync.bfly.i32", a, 4);
}

// The lane is kept in a register, or the instruction is told which of its bits
// are the thread's own.
static V from_lane(Gpu *n, V x, FromLane from) {
  bool lean = ir_attr_i(ir_launch(n->f), AT_LEAN, 0) != 0;
  V a[4] = {gpu_i32(n, -1), x, lean ? gpu_i32(n, from.rest) : from.at,
            gpu_i32(n, lean ? from.own << 8 | 31 : 31)};
  return gpu_call(n, "llvm.nvvm.shfl.sync.idx.i32", a, 4);
}

static V first_lane(Gpu *n, V x) {
  return from_lane(n, x, (FromLane){gpu_i32(n, 0), 0, 0});
}

// ptxas knows the result of redux to be uniform (not that of shfl).
static V uniform(Gpu *n, V x) {
  V a[2] = {x, gpu_i32(n, -1)};
  return gpu_call(n, "llvm.nvvm.redux.sync.max", a, 2);
}

static V extreme(Gpu *n, bool max, V x) {
  V a[2] = {x, gpu_i32(n, -1)};
  return gpu_call(n,
                  max ? "llvm.nvvm.redux.sync.max" : "llvm.nvvm.redux.sync.min",
                  a, 2);
}

static V vote(Gpu *n, bool any, V x) {
  V a[2] = {gpu_i32(n, -1), x};
  return gpu_call(n,
                  any ? "llvm.nvvm.vote.any.sync" : "llvm.nvvm.vote.all.sync",
                  a, 2);
}

static void sync(Gpu *n) {
  Group *r = &n->grp;
  if (r->threads == 32) {
    V all = gpu_i32(n, -1);
    gpu_call(n, "llvm.nvvm.bar.warp.sync", &all, 1);
    return;
  }
  if (!r->team) {
    V zero = gpu_i32(n, 0);
    gpu_call(n, "llvm.nvvm.barrier.cta.sync.aligned.all", &zero, 1);
    return;
  }
  V id = gpu_i32(n, r->barrier);
  if (r->instances > 1) id = gpu_add(n, id, r->instance);
  V a[2] = {id, gpu_i32(n, r->threads)};
  gpu_call(n, "llvm.nvvm.barrier.cta.sync.aligned.count", a, 2);
}

// ---------------------------------------------------------------- values
// The instruction gives the largest number for what is too large, which is no
// number. Half of the way there the even one is the number.
static V pair_e4m3(Gpu *n, V lo, V hi, bool within) {
  enum { HALF_WAY = 464 };
  Cg *g = n->g;
  V a[2] = {hi, lo};
  for (uint32_t i = 0; i < 2 && !within; i++) {
    V x = e_abs(g, a[i]);
    V over = e_cmp(g, LLVMRealOGT, x, e_f(g, x, HALF_WAY));
    a[i] = e_sel(g, over, e_f(g, x, NAN), a[i]);
  }
  V two = gpu_call(n, "llvm.nvvm.ff.to.e4m3x2.rn", a, 2);
  return LLVMBuildZExt(g->b, two, gpu_i32t(n), "");
}

static V pair(Gpu *n, DType to, V lo, V hi, bool within) {
  V a[2] = {hi, lo};
  if (to == DT_F8E4M3 && n->gpu.f8 == F8_OCP)
    return pair_e4m3(n, lo, hi, within);
  const char *name = to == DT_BF16  ? "llvm.nvvm.ff2bf16x2.rn"
                     : to == DT_F16 ? "llvm.nvvm.ff2f16x2.rn"
                                    : NULL;
  if (!name) return NULL;
  return LLVMBuildBitCast(n->g->b, gpu_call(n, name, a, 2), gpu_i32t(n), "");
}

// Halves of a word that a loop carries LLVM would carry one by one: that word
// is widened whole. Of others it keeps no halves.
#define WIDEN(type) \
  "{\n.reg .b16 l, h;\nmov.b32 {l, h}, $2;\n" \
  "cvt.rn.f16x2." type " $0, l;\ncvt.rn.f16x2." type " $1, h;\n}"

static void widen_carried(Gpu *n, DType from, V word, V out[2]) {
  LLVMTypeRef i32 = gpu_i32t(n), each[] = {i32, i32};
  LLVMTypeRef both = LLVMStructTypeInContext(n->g->lc, each, 2, 0);
  const char *text = from == DT_F8E4M3 ? WIDEN("e4m3x2") : WIDEN("e5m2x2");
  V two = gpu_asm_pure(n, both, text, "=r,=r,r", &word, 1);
  for (uint32_t i = 0; i < 2; i++)
    out[i] = LLVMBuildExtractValue(n->g->b, two, i, "");
}

static void widen_halves(Gpu *n, DType from, V word, V out[2]) {
  Cg *g = n->g;
  LLVMTypeRef i16 = LLVMInt16TypeInContext(g->lc);
  for (int i = 0; i < 2; i++) {
    V a = LLVMBuildTrunc(g->b, i ? e_shr(g, word, 16) : word, i16, "");
    V h = gpu_call(n,
                   from == DT_F8E4M3 ? "llvm.nvvm.e4m3x2.to.f16x2.rn"
                                     : "llvm.nvvm.e5m2x2.to.f16x2.rn",
                   &a, 1);
    out[i] = LLVMBuildBitCast(g->b, h, gpu_i32t(n), "");
  }
}

static bool widen(Gpu *n, DType from, V word, DType to, V out[2]) {
  if (n->gpu.f8 != F8_OCP) return false;
  if (LLVMIsAPHINode(word)) widen_carried(n, from, word, out);
  else widen_halves(n, from, word, out);
  for (int i = 0; i < 2; i++)
    if (to == DT_BF16) out[i] = gpu_halves_to_bf16(n, out[i]);
  return true;
}

static V ex2(Gpu *n, V x) {
  return gpu_call_over(n, "llvm.nvvm.ex2.approx.ftz", cg_of(x), &x, 1);
}
static V rcp(Gpu *n, V x) {
  return gpu_call(n, "llvm.nvvm.rcp.approx.ftz.f", &x, 1);
}
static V rsqrt(Gpu *n, V x) {
  return gpu_call(n, "llvm.nvvm.rsqrt.approx.ftz.f", &x, 1);
}

// v as an i32, or half of it, joined with `with` if that is not NULL.
static V join_word(Gpu *n, V v, V with) {
  LLVMTypeRef i32 = gpu_i32t(n), f32 = LLVMFloatTypeInContext(n->g->lc);
  v = cg_of(v) == f32 ? LLVMBuildBitCast(n->g->b, v, i32, "")
                      : LLVMBuildIntCast2(n->g->b, v, i32, 0, "");
  return with ? e_or(n->g, with, v) : v;
}

// Every step-th word of v, joined.
static V join(Gpu *n, Value v, uint32_t step, V with) {
  if (ir_type(n->f, v)->kind != TK_FRAG)
    return join_word(n, n->g->val[v], with);
  const Frag *x = gpu_frag(n, v);
  for (uint32_t k = step - 1; k < x->n; k += step)
    with = join_word(n, x->w[k], with);
  return with;
}

V nv_joined(Gpu *n, Value v, V with) {
  bool frag = ir_type(n->f, v)->kind == TK_FRAG;
  return join(n, v, frag && gpu_frag(n, v)->by ? gpu_frag(n, v)->by : 1, with);
}

// A store that needs every operand: ptxas moves waits above what they do not
// depend on, but not above a volatile store. Of a tile one register in four is
// enough: the others are computed between these.
static void pin(Gpu *n, const Op *op) {
  enum { FEW = 8, STEP = 4 };
  V all = NULL;
  for (uint32_t i = 0; i < op->nargs; i++) {
    bool frag = gpu_arg_type(n, op, i)->kind == TK_FRAG;
    bool few = !frag || gpu_frag(n, op->args[i])->n <= FEW;
    all = join(n, op->args[i], few ? 1 : STEP, all);
  }
  V at = gpu_add(n, gpu_mul(n, n->tid, 4),
                 gpu_i32(n, (int64_t)n->pin_at - 4 * (int64_t)n->grp.from));
  V a[2] = {gpu_shared(n, at), all};
  a[0] = LLVMBuildPtrToInt(n->g->b, a[0], gpu_i32t(n), "");
  gpu_asm(n, LLVMVoidTypeInContext(n->g->lc),
          "st.volatile.shared.b32 [$0], $1;", "r,r,~{memory}", a, 2);
}

// ---------------------------------------------------------------- memory
typedef struct Form {
  const char *type, *reg;  // PTX type, constraint
  uint32_t bits;
} Form;

static Form form_of(uint32_t bytes) {
  switch (bytes) {
  case 1: return (Form){"u8", "h", 16};  // bytes travel in 16-bit registers
  case 2: return (Form){"b16", "h", 16};
  case 4: return (Form){"b32", "r", 32};
  default: return (Form){"b64", "l", 64};
  }
}

// One predicated instruction.
static V load(Gpu *n, V address, V ok, uint32_t bytes) {
  Cg *g = n->g;
  Form f = form_of(bytes);
  char text[200], cons[40];
  snprintf(text, sizeof text, "mov.b%u $0, 0;\n@$2 ld.global.%s $0, [$1];",
           f.bits, f.type);
  snprintf(cons, sizeof cons, "=&%s,l,b,~{memory}", f.reg);
  V a[2] = {address, ok};
  return gpu_asm(n, LLVMIntTypeInContext(g->lc, f.bits), text, cons, a, 2);
}

static void load4(Gpu *n, V address, V ok, V out[4]) {
  Cg *g = n->g;
  LLVMTypeRef i = gpu_i32t(n), four[4] = {i, i, i, i};
  V a[2] = {address, ok};
  V r =
      gpu_asm(n, LLVMStructTypeInContext(g->lc, four, 4, 0),
              "mov.b32 $0, 0;\nmov.b32 $1, 0;\nmov.b32 $2, 0;\nmov.b32 $3, 0;\n"
              "@$5 ld.global.v4.b32 {$0, $1, $2, $3}, [$4];",
              "=&r,=&r,=&r,=&r,l,b,~{memory}", a, 2);
  for (unsigned k = 0; k < 4; k++)
    out[k] = LLVMBuildExtractValue(g->b, r, k, "");
}

static void store(Gpu *n, V address, V ok, V x, uint32_t bytes) {
  Cg *g = n->g;
  Form f = form_of(bytes);
  char text[200], cons[40];
  snprintf(text, sizeof text, "@$2 st.global.%s [$0], $1;", f.type);
  snprintf(cons, sizeof cons, "l,%s,b,~{memory}", f.reg);
  V a[3] = {address, x, ok};
  gpu_asm(n, LLVMVoidTypeInContext(g->lc), text, cons, a, 3);
}

static void store_words(Gpu *n, V address, V ok, const V *x, uint32_t count) {
  bool two = count == 2;
  V a[6] = {address, ok};
  for (uint32_t i = 0; i < count; i++) a[2 + i] = x[i];
  gpu_asm(n, LLVMVoidTypeInContext(n->g->lc),
          two ? "@$1 st.global.v2.b32 [$0], {$2, $3};"
              : "@$1 st.global.v4.b32 [$0], {$2, $3, $4, $5};",
          two ? "l,b,r,r,~{memory}" : "l,b,r,r,r,r,~{memory}", a, 2 + count);
}

static void add(Gpu *n, V address, V ok, const V *x, uint32_t count) {
  static const char *const form[] = {[1] = ".f32 [$0], $1;",
                                     [2] = ".v2.f32 [$0], {$1, $2};",
                                     [4] = ".v4.f32 [$0], {$1, $2, $3, $4};"};
  V a[6] = {address};
  char text[100], cons[40] = "l";
  for (uint32_t i = 0; i < count; i++) {
    a[1 + i] = x[i];
    strcat(cons, ",f");
  }
  if (ok) {
    a[1 + count] = ok;
    strcat(cons, ",b");
  }
  strcat(cons, ",~{memory}");
  snprintf(text, sizeof text, "red.relaxed.gpu.global.add%s", form[count]);
  if (ok)
    snprintf(text, sizeof text, "@$%u red.relaxed.gpu.global.add%s", 1 + count,
             form[count]);
  gpu_asm(n, LLVMVoidTypeInContext(n->g->lc), text, cons, a, 1 + count + !!ok);
}

static void copy(Gpu *n, const Chunk *c) {
  V a[3] = {c->to, gpu_global(n, c->from), c->bytes};
  gpu_call(n, "llvm.nvvm.cp.async.cg.shared.global.16.s", a, 3);
}

static void soon(Gpu *n, V address, V ok) {
  V a[2] = {address, ok};
  gpu_asm(n, LLVMVoidTypeInContext(n->g->lc), "@$1 prefetch.global.L2 [$0];",
          "l,b", a, 2);
}

static void cp_commit(Gpu *n, const Op *op) {
  (void)op;
  gpu_call(n, "llvm.nvvm.cp.async.commit.group", NULL, 0);
}

static void cp_wait(Gpu *n, const Op *op) {
  V k = gpu_i32(n, ir_attr_i(op, AT_PENDING, 0));
  gpu_call(n, "llvm.nvvm.cp.async.wait.group", &k, 1);
}

// stmatrix: four 8 x 8 blocks of 16-bit elements a warp. Registers are those
// of an `acc` fragment; lane l has the address of row l % 16, chunk l / 16.
static bool store_matrices(Gpu *n, Tile s, const Type *t, const Frag *f) {
  Cg *g = n->g;
  bool acc = f->map.reg[0].size == 2 && f->map.reg[1].axis == AXIS_ROW;
  if (!acc || t->layout == LY_ROW || f->per != 2 || dtype_size(f->dtype) != 2 ||
      n->gpu.cc < 90 || t->ext[1] % 16 || n->grp.threads < 32 ||
      t->ext[0] % (n->grp.threads / 2))
    return false;
  uint32_t blocks = t->ext[1] / 8, rows = n->grp.threads / 2;
  V lane = n->grp.lane, bit = e_shr(g, lane, 4);
  V row = e_and(g, lane, gpu_i32(n, 15));
  row = gpu_add(n, gpu_mul(n, n->grp.warp, 16), row);
  for (uint32_t i = 0; i < t->ext[0] / rows; i++)
    for (uint32_t j = 0; j < blocks; j += 2) {
      V a[5] = {
          gpu_chunk(n, s, t, gpu_add(n, row, gpu_i32(n, i * rows)), j, bit)};
      for (uint32_t k = 0; k < 4; k++)
        a[1 + k] = f->w[i * 2 * blocks + 2 * j + k];
      LLVMTypeRef p3 = LLVMPointerTypeInContext(g->lc, 3);
      gpu_call_over(n, "llvm.nvvm.stmatrix.sync.aligned.m8n8.x4.b16", p3, a, 5);
    }
  return true;
}

// Each block turned: lane l has the address of row l / 16 * 8 + l % 8 of the
// tile, its warp's first or second chunk.
static bool store_turned(Gpu *n, Tile s, const Type *t, const Frag *f) {
  Cg *g = n->g;
  uint32_t warps = n->grp.threads / 32, rows = 16 * warps;
  bool acc = f->map.reg[0].size == 2 && f->map.reg[1].axis == AXIS_ROW;
  if (!acc || smem_panel_bytes(t) != 2 * rows || t->layout == LY_ROW ||
      f->per != 2 || dtype_size(f->dtype) != 2 || n->gpu.cc < 90 ||
      t->ext[0] % 16 || t->ext[1] % rows)
    return false;
  V lane = n->grp.lane;
  V row = e_and(g, lane, gpu_i32(n, 7));
  row = gpu_add(n, gpu_mul(n, e_shr(g, lane, 4), 8), row);
  V chunk = e_and(g, e_shr(g, lane, 3), gpu_i32(n, 1));
  chunk = gpu_add(n, gpu_mul(n, n->grp.warp, 2), chunk);
  uint32_t blocks = t->ext[0] / 8;
  for (uint32_t i = 0; i < t->ext[1] / rows; i++)
    for (uint32_t j = 0; j < blocks; j += 2) {
      V a[5] = {gpu_chunk(n, s, t, gpu_add(n, row, gpu_i32(n, 8 * j)),
                          2 * warps * i, chunk)};
      for (uint32_t k = 0; k < 4; k++)
        a[1 + k] = f->w[i * 2 * blocks + 2 * j + k];
      LLVMTypeRef p3 = LLVMPointerTypeInContext(g->lc, 3);
      gpu_call_over(n, "llvm.nvvm.stmatrix.sync.aligned.m8n8.x4.trans.b16", p3,
                    a, 5);
    }
  return true;
}

// ---------------------------------------------------------------- tables
// Barriers are allocated before anything is printed.
static void nothing(Gpu *n, const Op *op) {
  (void)n, (void)op;
}

static GpuEmit *const ops[OP_COUNT] = {
    [OP_ROLES] = nv_roles,
    [OP_PIN] = pin,
    [OP_CP_COMMIT] = cp_commit,
    [OP_CP_WAIT] = cp_wait,
    [OP_TMA_LOAD] = nv_tma_load,
    [OP_TMA_STORE] = nv_tma_store,
    [OP_TMA_COMMIT] = nv_tma_commit,
    [OP_TMA_WAIT] = nv_tma_wait,
    [OP_MBAR] = nothing,
    [OP_MBAR_WAIT] = nv_mbar_wait,
    [OP_MBAR_ARRIVE] = nv_mbar_arrive,
    [OP_MBAR_EXPECT] = nv_mbar_expect,
    [OP_BAR_SYNC] = nv_bar_sync,
    [OP_BAR_ARRIVE] = nv_bar_arrive,
    [OP_FENCE_ASYNC] = nv_fence_async,
    [OP_WGMMA] = nv_wgmma,
    [OP_WG_FENCE] = nv_wg_fence,
    [OP_WG_COMMIT] = nv_wg_commit,
    [OP_WG_WAIT] = nv_wg_wait,
    [OP_FTRINV] = nv_ftrinv,
    [OP_SKEW] = nv_skew,
    [OP_FWARPS] = nv_fwarps,
    [OP_FDEAL] = nv_fdeal,
    [OP_PEERS] = nv_peers,
};

// select(a & b, x, y) would become two selections; ptxas makes one comparison
// of the second and the conjunction.
static V both(Gpu *n, V a, V b) {
  V of[2] = {a, b};
  if (LLVMIsConstant(a) || LLVMIsConstant(b))
    return LLVMBuildAnd(n->g->b, a, b, "");
  return gpu_asm_pure(n, cg_of(a), "and.pred $0, $1, $2;", "=b,b,b", of, 2);
}

static V low_bits(Gpu *n, V count) {
  return gpu_asm_pure(n, gpu_i32t(n), "bmsk.clamp.b32 $0, 0, $1;", "=r,r",
                      &count, 1);
}

static V shifted(Gpu *n, V x, uint32_t by) {
  V a[2] = {x, gpu_i32(n, by)};
  return gpu_asm_pure(n, gpu_i32t(n), "shr.u32 $0, $1, $2;", "=r,r,n", a, 2);
}

static V lane_of(Gpu *n, V x, V lane) {
  V a[4] = {gpu_i32(n, -1), x, lane, gpu_i32(n, 31)};
  return gpu_call(n, "llvm.nvvm.shfl.sync.idx.i32", a, 4);
}

static V ballot(Gpu *n, V x) {
  V a[2] = {gpu_i32(n, -1), x};
  return gpu_call(n, "llvm.nvvm.vote.ballot.sync", a, 2);
}

static V bytes(Gpu *n, V lo, V hi, V byte) {
  // Selectors of four bits: those of lo are 0 to 3, of hi 4 to 7.
  V above = gpu_mul(n, byte, 0x11), of = gpu_add(n, above, gpu_i32(n, 0x40));
  V a[3] = {lo, hi, of};
  V two = gpu_call(n, "llvm.nvvm.prmt", a, 3);
  return e_and(n->g, two, gpu_i32(n, 0xffff));
}

static V anew(Gpu *n, V x) {
  bool wide = cg_of(x) != gpu_i32t(n);
  return gpu_asm_pure(n, cg_of(x), wide ? "mov.b64 $0, $1;" : "mov.b32 $0, $1;",
                      wide ? "=l,l" : "=r,r", &x, 1);
}

static V found(Gpu *n, V x) {
  return gpu_asm(n, gpu_i32t(n), "mov.b32 $0, $1;", "=r,r", &x, 1);
}

static V thread_again(Gpu *n) {
  return gpu_asm(n, gpu_i32t(n), "mov.u32 $0, %tid.x;", "=r", NULL, 0);
}

static V cta_again(Gpu *n) {
  return gpu_asm(n, gpu_i32t(n), "mov.u32 $0, %ctaid.x;", "=r", NULL, 0);
}

static V hold(Gpu *n, V x) {
  return gpu_asm(n, cg_of(x), "", "=f,0", &x, 1);
}

const GpuVendor nv_vendor = {
    .triple = "nvptx64-nvidia-cuda",
    .init = init,
    .pipeline = pipeline,
    .param_space = 101,
    .ops = ops,
    .declare = declare,
    .shared = shared_base,
    .threads = threads,
    .begin = begin,
    .memory = wait_for_others,
    .end = end,
    .cta = cta,
    .ctas = ctas,
    .exchange = exchange,
    .first_lane = first_lane,
    .from_lane = from_lane,
    .uniform = uniform,
    .extreme = extreme,
    .vote = vote,
    .sync = sync,
    .pair = pair,
    .widen = widen,
    .both = both,
    .low_bits = low_bits,
    .lane_of = lane_of,
    .shifted = shifted,
    .ballot = ballot,
    .bytes = bytes,
    .ex2 = ex2,
    .rcp = rcp,
    .rsqrt = rsqrt,
    .load = load,
    .load4 = load4,
    .store = store,
    .store_words = store_words,
    .add = add,
    .features = features,
    .copy = copy,
    .soon = soon,
    .store_tile = store_matrices,
    .store_turned = store_turned,
    .load_tile = nv_load_a,
    .anew = anew,
    .hold = hold,
    .found = found,
    .thread_again = thread_again,
    .cta_again = cta_again,
    .enter = nv_enter_loop,
    .mma = nv_mma_sync,
    .repeats = true,
    .sum = nv_mma_sum,
};
