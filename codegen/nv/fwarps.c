// fwarps: the registers of a group's warps joined, through the group's scratch.
// A lane's are those of the same lane, so where they lie there is of no
// account: a piece of 16 bytes of each lane beside that of the next. Of a tile
// each warp joins a fourth, in four turns, and all take what the others made;
// of a slice each joins all.
#include "codegen/gpu/gpu.h"

enum { WORD = 4, PIECE = 4, LANES = 32, WARPS = 4, TURNS = 4 };

// Scratch of slots, in which each lane of a warp has so many words.
typedef struct Slots {
  V base;
  uint32_t words;
} Slots;

// So many words from `at` on travel together.
static uint32_t run_at(const Slots *s, uint32_t at) {
  uint32_t left = s->words - at;
  return left >= PIECE ? PIECE : left >= 2 ? 2 : 1;
}

static bool is_short(LLVMTypeRef t) {
  return LLVMGetTypeKind(t) == LLVMIntegerTypeKind &&
         LLVMGetIntTypeWidth(t) < 8 * WORD;
}

static V as_word(Gpu *n, V w) {
  if (is_short(cg_of(w))) return LLVMBuildZExt(n->g->b, w, gpu_i32t(n), "");
  return LLVMBuildBitCast(n->g->b, w, gpu_i32t(n), "");
}

static V as_type(Gpu *n, V w, LLVMTypeRef t) {
  return is_short(t) ? LLVMBuildTrunc(n->g->b, w, t, "")
                     : LLVMBuildBitCast(n->g->b, w, t, "");
}

static V address(Gpu *n, const Slots *s, V slot, uint32_t at, uint32_t run) {
  V lane = gpu_mul(n, n->grp.lane, run * WORD);
  V byte = gpu_add(n, s->base, gpu_mul(n, slot, s->words * LANES * WORD));
  byte = gpu_add(n, byte, gpu_i32(n, at * LANES * WORD));
  return gpu_shared(n, gpu_add(n, byte, lane));
}

static void put(Gpu *n, const Slots *s, V slot, const V *w) {
  Cg *g = n->g;
  for (uint32_t i = 0, run; i < s->words; i += run) {
    run = run_at(s, i);
    LLVMTypeRef t = LLVMVectorType(gpu_i32t(n), run);
    V v = LLVMGetPoison(t);
    for (uint32_t k = 0; k < run; k++)
      v = LLVMBuildInsertElement(g->b, v, as_word(n, w[i + k]), gpu_i32(n, k),
                                 "");
    LLVMSetAlignment(LLVMBuildStore(g->b, v, address(n, s, slot, i, run)),
                     run * WORD);
  }
}

// As words of the type that those of a have.
static void get(Gpu *n, const Slots *s, V slot, const V *a, V *w) {
  Cg *g = n->g;
  for (uint32_t i = 0, run; i < s->words; i += run) {
    run = run_at(s, i);
    LLVMTypeRef t = LLVMVectorType(gpu_i32t(n), run);
    V v = LLVMBuildLoad2(g->b, t, address(n, s, slot, i, run), "");
    LLVMSetAlignment(v, run * WORD);
    for (uint32_t k = 0; k < run; k++)
      w[i + k] = as_type(n, LLVMBuildExtractElement(g->b, v, gpu_i32(n, k), ""),
                         cg_of(a[i + k]));
  }
}

typedef struct Joining {
  Gpu *n;
  RKind kind;
  const Frag *x;
  V base;
  V *room;  // x->n words
} Joining;

// What the warps have put into slots `each` apart from the first on, in their
// order, so that all make the same of it.
static void join(const Joining *j, const Slots *s, V first, uint32_t each,
                 V *out) {
  Gpu *n = j->n;
  for (uint32_t k = 0; k < WARPS; k++) {
    V slot = gpu_add(n, first, gpu_i32(n, k * each));
    get(n, s, slot, j->x->w, k ? j->room : out);
    for (uint32_t i = 0; k && i < s->words; i++)
      out[i] = gpu_join(n, j->kind, out[i], j->room[i]);
  }
}

static void join_whole(const Joining *j, V *out) {
  Slots s = {j->base, j->x->n};
  gpu_sync(j->n);
  put(j->n, &s, j->n->grp.warp, j->x->w);
  gpu_sync(j->n);
  join(j, &s, gpu_i32(j->n, 0), 1, out);
}

// Part k of turn c are words from (c * WARPS + k) * part on.
static void join_parts(const Joining *j, V *out) {
  Gpu *n = j->n;
  uint32_t all = j->x->n, part = all / (TURNS * WARPS);
  Slots s = {j->base, part}, whole = {j->base, TURNS * part};
  V *mine = NEWN(&n->g->cx->scratch, V, whole.words);
  V first = gpu_mul(n, n->grp.warp, WARPS);
  for (uint32_t c = 0; c < TURNS; c++) {
    gpu_sync(n);
    for (uint32_t k = 0; k < WARPS; k++)
      put(n, &s, gpu_add(n, first, gpu_i32(n, k)),
          j->x->w + (c * WARPS + k) * part);
    gpu_sync(n);
    join(j, &s, n->grp.warp, WARPS, mine + c * part);
  }
  gpu_sync(n);
  put(n, &whole, n->grp.warp, mine);
  gpu_sync(n);
  for (uint32_t k = 0; k < WARPS; k++) {
    get(n, &whole, gpu_i32(n, k), j->x->w, j->room);
    for (uint32_t i = 0; i < whole.words; i++)
      out[(i / part * WARPS + k) * part + i % part] = j->room[i];
  }
}

void nv_fwarps(Gpu *n, const Op *op) {
  const Type *t = gpu_arg_type(n, op, 0);
  Joining j = {.n = n,
               .kind = (RKind)ir_attr_i(op, AT_KIND, RK_SUM),
               .x = gpu_frag(n, op->args[0]),
               .base = gpu_scratch(n, frag_warps_bytes(t))};
  Frag r = *j.x;
  j.room = NEWN(&n->g->cx->scratch, V, r.n);
  r.w = NEWN(&n->g->cx->scratch, V, r.n);
  if (frag_warps_words(t) == r.n) join_whole(&j, r.w);
  else join_parts(&j, r.w);
  gpu_define(n, op->res[0], r);
}
