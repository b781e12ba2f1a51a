// Tiles that a group of their own computes of tiles that are copied.
//
//   %r = sfill(%K, %b, %i, %zero)      the producer: tma %r
//        : smem<64x128xf8e4m3>         the maker:    wait %r, sload, cast,
//   %x = cast(sload(%r))          ->                 sstore %t, give back %r
//   %t = sput(%x)                      consumers:    wait %t, mma, give back %t
//   mma(%q, %t)
//
// %r is a `raw` tile, which nobody else reads, %t a `made` one. Both are in
// rings, so that a step's tile is computed while others are multiplied. What
// may be between them: anything element by element, of boxes and of what else
// is in memory (scales, masks of rows), nothing that products have made.
// Programs that read keys once, by few rows (launch: once): others have such
// operands made ahead (passes/attn/materialize.c).
#include "passes/hopper/rings.h"
#include "passes/support/fill.h"

// What sput op is computed of.
typedef struct MadeOf {
  const Rings *w;
  bool *seen;  // by value
  Value raw;   // the first tile that is read, or 0
  bool other;  // elements are others than those in memory, or zeros
} MadeOf;

static bool is_plain(const Op *op) {
  switch (op->code) {
  case OP_SPLAT:
  case OP_BCAST:
  case OP_COORD:
  case OP_COORD_THREAD:
  case OP_COORD_REG:
  case OP_UNIFORM:
  case OP_GLOAD:
  case OP_SLOAD:
  case OP_DIM:
  case OP_GIVEN:
  case OP_CTA:
  case OP_NCTAS:
  case OP_NTASKS:
  case OP_CLAIM: return true;
  default: return op_info(op->code)->flags & OPF_ELEM;
  }
}

static bool is_tile(const Func *f, Value v) {
  return ir_type(f, v)->kind != TK_ELEM && ir_type(f, v)->kind != TK_TENSOR;
}

// A mask alone leaves most tiles as they are, which products then read where
// they have been copied.
static bool changes(const Func *f, const Op *op) {
  const Type *t = ir_type(f, op->res[0]);
  return op_info(op->code)->flags & OPF_ELEM && op->code != OP_SELECT &&
         op->code != OP_CONST && t->kind == TK_FRAG && !t->slice &&
         t->dtype != DT_BOOL;
}

static bool is_made_of(MadeOf *s, Value v) {
  const Op *op = ir_def(s->w->f, v);
  if (s->w->grouped[v]) return false;
  if (!op || op->nregions) return !is_tile(s->w->f, v);
  if (s->seen[v]) return true;
  s->seen[v] = true;
  if (op->code == OP_SFILL) {
    if (!s->raw) s->raw = v;
    return !fill_mended(op);
  }
  if (!is_plain(op)) return false;
  s->other |= changes(s->w->f, op);
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!is_made_of(s, op->args[i])) return false;
  return true;
}

static Value raw_of(const Rings *w, const Op *put) {
  MadeOf s = {.w = w, .seen = NEWN(w->arena, bool, w->f->values.n)};
  return is_made_of(&s, put->args[0]) && s.other ? s.raw : 0;
}

static void find_puts(Rings *w, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) find_puts(w, op->regions[i]);
    Value raw = op->code == OP_SPUT ? raw_of(w, op) : 0;
    if (!raw) continue;
    w->source[op->res[0]] = ir_def(w->f, raw)->args[0];
    w->makes = true;
  }
}

bool hop_rings_made(const Rings *w, const Op *op) {
  return op->code == OP_SPUT && w->makes && w->source[op->res[0]];
}

bool hop_rings_fills(const Rings *w, const Op *op) {
  return op->code == OP_SFILL || hop_rings_made(w, op);
}

// Do all of what op gives serve the maker alone?
static bool serves_maker(const Rings *w, const Op *op, const bool *used) {
  bool all = op->nres && !op->nregions;
  for (uint32_t i = 0; i < op->nres; i++)
    all = all && w->making[op->res[i]] && !used[op->res[i]];
  return all;
}

// Backwards: what consumers read, then what only the maker does.
static void find_only(Rings *w, bool *used, const Region *r) {
  for (const Op *op = r->last; op; op = op->prev) {
    for (uint32_t i = 0; i < op->nregions; i++)
      find_only(w, used, op->regions[i]);
    if (hop_rings_made(w, op)) continue;
    if (serves_maker(w, op, used)) {
      w->only[op->res[0]] = true;
      continue;
    }
    for (uint32_t i = 0; i < op->nargs; i++) used[op->args[i]] = true;
  }
}

// Tiles that the maker reads are its alone.
static bool are_apart(const Rings *w, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_SFILL && w->making[op->res[0]] && !w->only[op->res[0]])
      return false;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (!are_apart(w, op->regions[i])) return false;
  }
  return true;
}

void hop_rings_making(Rings *w) {
  uint32_t n = w->f->values.n;
  w->source = NEWN(w->arena, Value, n);
  if (!ir_attr_i(w->f->body->first, AT_ONCE, 0) || w->groups > 2) return;
  find_puts(w, w->f->body);
  if (!w->makes) return;
  w->only = NEWN(w->arena, bool, n);
  hop_rings_want_made(w);
  find_only(w, NEWN(w->arena, bool, n), w->f->body);
  w->makes = !w->fails && are_apart(w, w->f->body);
  w->fails = false;
}
