// peers: the registers of the CTAs of a cluster, in each of them. Each warp
// sends what it has to the same warp of all, into places of its CTA's number in
// their shared memory; of a tile whose results have fewer columns those of the
// receiver's number, which lie together. Stores count at a barrier of the
// receiver, who waits until all are there and takes them in the order of the
// numbers. Of rows that all warps have each warp sends to some CTAs, and the
// first one takes tiles. Nobody reads another's memory, which may go when its
// CTA ends; before the first store all CTAs have begun, and their barriers are
// there.
#include "codegen/nv/slots.h"

#include <stdio.h>

enum { WARPS = 4, BARRIER = 8, WORD = 4 };

typedef struct Peers {
  Gpu *n;
  const Op *op;
  uint32_t cluster, warps;
  V rank, slot;
  V base;
  Frag *made;  // by result
} Peers;

// ---------------------------------------------------------------- barriers
typedef struct Find {
  const Op *op;
  uint32_t before;
  bool found;
} Find;

static void find(void *data, Op *op) {
  Find *f = data;
  f->found |= op == f->op;
  f->before += op->code == OP_PEERS && !f->found;
}

// How many are in front of op, which is one; of NULL all.
static uint32_t number(const Gpu *n, const Op *op) {
  Find f = {.op = op};
  ir_walk(n->f->body, find, &f);
  return f.before;
}

// Of instance i of the groups.
static V barrier_of(Gpu *n, const Op *op, V i) {
  uint32_t at = number(n, op) * HW_MOST_GROUPS * BARRIER;
  return gpu_add(n, gpu_i32(n, n->peers_at + at), gpu_mul(n, i, BARRIER));
}

static uint32_t warps_of(const Op *op) {
  return ir_attr_i(op, AT_DEALT, 0) ? 1 : WARPS;
}

static void expect(void *data, Op *op) {
  Gpu *n = data;
  if (op->code != OP_PEERS) return;
  for (uint32_t i = 0; i < HW_MOST_GROUPS; i++) {
    V at = gpu_shared(n, barrier_of(n, op, gpu_i32(n, i)));
    V init[2] = {at, gpu_i32(n, 1)};
    V bytes[2] = {at, gpu_i32(n, frag_peers_bytes(n->f, op))};
    gpu_call(n, "llvm.nvvm.mbarrier.init.shared", init, 2);
    gpu_call(n, "llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta",
             bytes, 2);
  }
}

void nv_peers_init(Gpu *n) {
  ir_walk(n->f->body, expect, n);
}

void nv_peers_begin(Gpu *n) {
  if (number(n, NULL))
    gpu_call(n, "llvm.nvvm.barrier.cluster.arrive.relaxed.aligned", NULL, 0);
}

static void wait_for_all(const Peers *p) {
  Gpu *n = p->n;
  Cg *g = n->g;
  LLVMBasicBlockRef spin = cg_block(g, "spin"), ready = cg_block(g, "ready");
  V a[2] = {gpu_shared(n, barrier_of(n, p->op, n->grp.instance)),
            gpu_i32(n, 0)};
  LLVMBuildBr(g->b, spin);
  LLVMPositionBuilderAtEnd(g->b, spin);
  V ok =
      gpu_call(n, "llvm.nvvm.mbarrier.try.wait.parity.scope.cluster.space.cta",
               a, 2);
  LLVMBuildCondBr(g->b, ok, ready, spin);
  LLVMPositionBuilderAtEnd(g->b, ready);
  // No access moves above the wait.
  gpu_asm(n, LLVMVoidTypeInContext(g->lc), "", "~{memory}", NULL, 0);
}

// ---------------------------------------------------------------- sending
// The address of that byte of shared memory in a CTA of the cluster.
static V address_in(Gpu *n, V byte, V rank) {
  Cg *g = n->g;
  V at = LLVMBuildPtrToInt(g->b, gpu_shared(n, byte),
                           LLVMInt64TypeInContext(g->lc), "");
  V a[2] = {LLVMBuildTrunc(g->b, at, gpu_i32t(n), ""), rank};
  return gpu_asm_pure(n, gpu_i32t(n), "mapa.shared::cluster.u32 $0, $1, $2;",
                      "=r,r,r", a, 2);
}

// `run` words from `at` on to a CTA, told to its barrier.
static void send_run(Gpu *n, V at, V bar, const V *w, uint32_t run) {
  static const char *const text[] = {
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [$0], $2, "
      "[$1];",
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [$0], "
      "{$2, $3}, [$1];",
      NULL,
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [$0], "
      "{$2, $3, $4, $5}, [$1];"};
  static const char *const cons[] = {"r,r,r,~{memory}", "r,r,r,r,~{memory}",
                                     NULL, "r,r,r,r,r,r,~{memory}"};
  V a[2 + WORD] = {at, bar};
  for (uint32_t i = 0; i < run; i++) a[2 + i] = nv_slots_word(n, w[i]);
  gpu_asm(n, LLVMVoidTypeInContext(n->g->lc), text[run - 1], cons[run - 1], a,
          2 + run);
}

// Words of a lane in a result of operand i.
static uint32_t words_of(const Peers *p, uint32_t i) {
  return p->made[i * p->cluster].n;
}

// Where operand i of all CTAs is, in places of as many words as a result has.
static NvSlots places(const Peers *p, uint32_t i) {
  uint32_t before = 0;
  for (uint32_t k = 0; k < i; k++)
    before += nv_slots_bytes(words_of(p, k)) * p->warps * p->cluster;
  V base = gpu_add(p->n, p->base, gpu_i32(p->n, before));
  return (NvSlots){base, words_of(p, i)};
}

static V place_of(const Peers *p, V rank) {
  return gpu_add(p->n, gpu_mul(p->n, rank, p->warps), p->slot);
}

// Where words from `first` on are in a slot, of which so many are less than a
// piece: in a part of each lane's.
static V in_piece(Gpu *n, V first, uint32_t count, uint32_t piece) {
  V in = LLVMBuildURem(n->g->b, first, gpu_i32(n, piece), "");
  V at = LLVMBuildSub(n->g->b, first, in, "");
  at = gpu_mul(n, at, nv_slots_bytes(1));
  at = gpu_add(n, at, gpu_mul(n, in, WORD));
  return gpu_add(n, at, gpu_mul(n, n->grp.lane, (piece - count) * WORD));
}

// Words w of operand i, a result's from word `first` on, to a CTA.
static void send_words(const Peers *p, uint32_t i, V rank, const V *w,
                       uint32_t count, V first) {
  Gpu *n = p->n;
  NvSlots s = places(p, i), some = {.words = count};
  V own = place_of(p, p->rank);
  V bar = address_in(n, barrier_of(n, p->op, n->grp.instance), rank);
  some.base = gpu_add(n, s.base, gpu_mul(n, own, nv_slots_bytes(s.words)));
  uint32_t piece = nv_slots_run(&s, 0);
  V in = count < piece ? in_piece(n, first, count, piece)
                       : gpu_mul(n, first, nv_slots_bytes(1));
  some.base = gpu_add(n, some.base, in);
  for (uint32_t k = 0, run; k < count; k += run) {
    run = nv_slots_run(&some, k);
    V at = nv_slots_byte(n, &some, gpu_i32(n, 0), k);
    send_run(n, address_in(n, at, rank), bar, w + k, run);
  }
}

// Of a tile that CTA's columns.
static void send(const Peers *p, uint32_t i, uint32_t rank) {
  const Frag *x = gpu_frag(p->n, p->op->args[i]);
  uint32_t words = words_of(p, i);
  const V *w = words < x->n ? x->w + rank * words : x->w;
  V zero = gpu_i32(p->n, 0);
  send_words(p, i, gpu_i32(p->n, rank), w, words, zero);
}

// What a warp has joined of a tile.
static void send_parts(const Peers *p, uint32_t i, uint32_t part) {
  Gpu *n = p->n;
  const Frag *x = gpu_frag(n, p->op->args[i]);
  uint32_t each = words_of(p, i) / part;  // parts of a CTA
  for (uint32_t c = 0; c < x->n / part / WARPS; c++) {
    V at = gpu_add(n, n->grp.warp, gpu_i32(n, c * WARPS));
    V rank = LLVMBuildUDiv(n->g->b, at, gpu_i32(n, each), "");
    V first = LLVMBuildURem(n->g->b, at, gpu_i32(n, each), "");
    first = gpu_mul(n, first, part);
    send_words(p, i, rank, x->w + c * part, part, first);
  }
}

// What all warps have: each sends it to some CTAs.
static void send_some(const Peers *p, uint32_t i) {
  Gpu *n = p->n;
  for (uint32_t w = 0; w < WARPS && w < p->cluster; w++) {
    V mine = e_icmp(n->g, LLVMIntEQ, n->grp.warp, gpu_i32(n, w));
    LLVMBasicBlockRef end = gpu_if(n, mine);
    for (uint32_t r = w; r < p->cluster; r += WARPS) send(p, i, r);
    gpu_end(n, end);
  }
}

// The same of rows: nothing of it depends on the CTA.
static void send_rows(const Peers *p, uint32_t i) {
  Gpu *n = p->n;
  const Frag *x = gpu_frag(n, p->op->args[i]);
  for (uint32_t r = 0; r < p->cluster; r += WARPS) {
    V rank = gpu_add(n, n->grp.warp, gpu_i32(n, r));
    send_words(p, i, rank, x->w, x->n, gpu_i32(n, 0));
  }
}

static void send_all(const Peers *p) {
  Gpu *n = p->n;
  bool dealt = p->warps == 1;
  for (uint32_t i = 0; i < p->op->nargs; i++) {
    uint32_t part = nv_fwarps_part(n, ir_def(n->f, p->op->args[i]));
    bool rows = words_of(p, i) == gpu_frag(n, p->op->args[i])->n;
    bool even = p->cluster % WARPS == 0;
    if (!dealt)
      for (uint32_t r = 0; r < p->cluster; r++) send(p, i, r);
    else if (part && words_of(p, i) % part == 0) send_parts(p, i, part);
    else if (rows && even) send_rows(p, i);
    else send_some(p, i);
  }
}

// ---------------------------------------------------------------- taking
static void take(const Peers *p, uint32_t i) {
  Gpu *n = p->n;
  NvSlots s = places(p, i);
  const V *type = gpu_frag(n, p->op->args[i])->w;
  for (uint32_t r = 0; r < p->cluster; r++)
    nv_slots_get(n, &s, place_of(p, gpu_i32(n, r)), type,
                 p->made[i * p->cluster + r].w);
}

static bool is_tile(const Peers *p, uint32_t i) {
  return !ir_type(p->n->f, p->op->res[i * p->cluster])->slice;
}

static void take_all(const Peers *p, bool tiles) {
  for (uint32_t i = 0; i < p->op->nargs; i++)
    if (is_tile(p, i) == tiles) take(p, i);
}

// Tiles in the first warp alone; in the others they have no numbers.
static void take_first(const Peers *p) {
  Gpu *n = p->n;
  Cg *g = n->g;
  V first = e_icmp(g, LLVMIntEQ, n->grp.warp, gpu_i32(n, 0));
  LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(g->b)};
  LLVMBasicBlockRef end = gpu_if(n, first);
  take_all(p, true);
  from[1] = LLVMGetInsertBlock(g->b);
  gpu_end(n, end);
  for (uint32_t i = 0; i < p->op->nres; i++)
    for (uint32_t k = 0; is_tile(p, i / p->cluster) && k < p->made[i].n; k++) {
      V *w = &p->made[i].w[k];
      V in[2] = {LLVMConstNull(cg_of(*w)), *w};
      *w = LLVMBuildPhi(g->b, cg_of(in[1]), "");
      LLVMAddIncoming(*w, in, from, 2);
    }
}

static bool has_tiles(const Peers *p) {
  for (uint32_t i = 0; i < p->op->nargs; i++)
    if (is_tile(p, i)) return true;
  return false;
}

void nv_peers(Gpu *n, const Op *op) {
  bool dealt = ir_attr_i(op, AT_DEALT, 0) != 0;
  Peers p = {.n = n,
             .op = op,
             .cluster = (uint32_t)ir_attr_i(op, AT_CLUSTER, 1),
             .warps = warps_of(op)};
  p.rank = gpu_call(n, "llvm.nvvm.read.ptx.sreg.cluster.ctarank", NULL, 0);
  p.slot = dealt ? gpu_i32(n, 0) : n->grp.warp;
  p.base = gpu_add(n, gpu_scratch(n, 0), gpu_i32(n, n->stay_at));
  n->stay_at += frag_peers_bytes(n->f, op);
  p.made = NEWN(&n->g->cx->scratch, Frag, op->nres + 1);
  for (uint32_t i = 0; i < op->nres; i++)
    p.made[i] = gpu_new(n, ir_type(n->f, op->res[i]));
  if (!number(n, op))
    gpu_call(n, "llvm.nvvm.barrier.cluster.wait.aligned", NULL, 0);
  send_all(&p);
  wait_for_all(&p);
  take_all(&p, false);
  if (!dealt) take_all(&p, true);
  else if (has_tiles(&p)) take_first(&p);
  for (uint32_t i = 0; i < op->nres; i++) gpu_define(n, op->res[i], p.made[i]);
}
