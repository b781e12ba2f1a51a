// fwarps: the registers of a group's warps joined, through the group's scratch.
// A lane's are those of the same lane, so where they lie there is of no
// account: a piece of 16 bytes of each lane beside that of the next. Of a tile
// each warp joins a fourth, in four turns, and all take what the others made;
// of a slice each joins all.
#include "codegen/nv/slots.h"

enum { WARPS = 4, TURNS = 4 };

typedef struct Joining {
  Gpu *n;
  RKind kind;
  const Frag *x;
  V base;
  V *room;  // x->n words
} Joining;

// What the warps have put into slots `each` apart from the first on, in their
// order, so that all make the same of it.
static void join(const Joining *j, const NvSlots *s, V first, uint32_t each,
                 V *out) {
  Gpu *n = j->n;
  for (uint32_t k = 0; k < WARPS; k++) {
    V slot = gpu_add(n, first, gpu_i32(n, k * each));
    nv_slots_get(n, s, slot, j->x->w, k ? j->room : out);
    for (uint32_t i = 0; k && i < s->words; i++)
      out[i] = gpu_join(n, j->kind, out[i], j->room[i]);
  }
}

static void join_whole(const Joining *j, V *out) {
  NvSlots s = {.base = j->base, .words = j->x->n};
  gpu_sync(j->n);
  nv_slots_put(j->n, &s, j->n->grp.warp, j->x->w);
  gpu_sync(j->n);
  join(j, &s, gpu_i32(j->n, 0), 1, out);
}

// Part k of turn c are words from (c * WARPS + k) * part on.
static void join_parts(const Joining *j, bool sent, V *out) {
  Gpu *n = j->n;
  uint32_t all = j->x->n, part = all / (TURNS * WARPS);
  NvSlots s = {.base = j->base, .words = part};
  NvSlots whole = {.base = j->base, .words = TURNS * part};
  V *mine = NEWN(&n->g->cx->scratch, V, whole.words);
  V first = gpu_mul(n, n->grp.warp, WARPS);
  for (uint32_t c = 0; c < TURNS; c++) {
    gpu_sync(n);
    for (uint32_t k = 0; k < WARPS; k++)
      nv_slots_put(n, &s, gpu_add(n, first, gpu_i32(n, k)),
                   j->x->w + (c * WARPS + k) * part);
    gpu_sync(n);
    join(j, &s, n->grp.warp, WARPS, mine + c * part);
  }
  if (sent) {
    for (uint32_t i = 0; i < all; i++)
      out[i] = i < whole.words ? mine[i] : LLVMGetPoison(cg_of(mine[0]));
    return;
  }
  gpu_sync(n);
  nv_slots_put(n, &whole, n->grp.warp, mine);
  gpu_sync(n);
  for (uint32_t k = 0; k < WARPS; k++) {
    nv_slots_get(n, &whole, gpu_i32(n, k), j->x->w, j->room);
    for (uint32_t i = 0; i < whole.words; i++)
      out[(i / part * WARPS + k) * part + i % part] = j->room[i];
  }
}

typedef struct Uses {
  Value v;
  bool other;  // than by peers
  bool some;
} Uses;

static void see_use(void *data, Op *op) {
  Uses *u = data;
  for (uint32_t i = 0; i < op->nargs; i++) {
    if (op->args[i] != u->v) continue;
    u->some = true;
    u->other |= op->code != OP_PEERS || !ir_attr_i(op, AT_DEALT, 0);
  }
}

uint32_t nv_fwarps_part(Gpu *n, const Op *op) {
  const Type *t = op ? ir_type(n->f, op->res[0]) : NULL;
  if (!op || op->code != OP_FWARPS || t->slice) return 0;
  uint32_t words = frag_warps_words(t);
  Uses u = {.v = op->res[0]};
  ir_walk(n->f->body, see_use, &u);
  // A part is a quarter of what is joined in a turn.
  bool parts = gpu_frag(n, op->args[0])->n == TURNS * words;
  return parts && u.some && !u.other ? words / WARPS : 0;
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
  else join_parts(&j, nv_fwarps_part(n, op) != 0, r.w);
  gpu_define(n, op->res[0], r);
}
