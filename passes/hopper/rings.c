// Rings of shared tiles: which there are, how many stages they have, what is
// handed over with them.
#include "passes/support/cost.h"
#include "passes/hopper/rings.h"

#include "ir/layout.h"
#include "passes/hopper/drain.h"
#include "passes/support/fill.h"

// ---------------------------------------------------------------- rings
static bool fill_grouped(const Rings *w, const Op *op) {
  if (op->code != OP_SFILL) return false;
  for (uint32_t i = 1; i < fill_args(op); i++)
    if (w->grouped[op->args[i]]) return true;
  return false;
}

static bool same_box(const Op *a, const Op *b) {
  const IrAttr *x = ir_attr(a, AT_TILE), *y = ir_attr(b, AT_TILE);
  for (uint32_t i = 0; i < x->n && x->n == y->n; i++)
    if (x->list[i] != y->list[i]) return false;
  return x->n == y->n;
}

static int64_t visit_of(const Op *fill) {
  return ir_attr_i(fill, AT_VISIT, 0);
}

static bool same_tiles(const Rings *w, const Op *a, const Op *b) {
  return a->args[0] == b->args[0] && fill_grouped(w, a) == fill_grouped(w, b) &&
         type_eq(ir_type(w->f, a->res[0]), ir_type(w->f, b->res[0])) &&
         same_box(a, b) && fill_told(w->f, a) == fill_told(w->f, b);
}

static bool has_fill_like(const Rings *w, const Region *r, const Op *fill) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_SFILL && same_tiles(w, op, fill)) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (has_fill_like(w, op->regions[i], fill)) return true;
  }
  return false;
}

static bool fills_like(const Rings *w, const Op *op, const Op *fill) {
  bool some = false;
  for (uint32_t i = 0; i < op->nregions; i++)
    some |= has_fill_like(w, op->regions[i], fill);
  return some;
}

// Is the tile of fill read in a loop behind it that fills the same tiles, or
// behind such a loop? Slots are given back in the order in which they were
// filled: it has a ring of its own, or the loop would wait for its slot for
// ever.
static bool find_held(const Rings *w, const Op *fill) {
  bool filled = false;
  for (const Op *op = fill->next; op; op = op->next) {
    filled = filled || fills_like(w, op, fill);
    if (filled && ir_mentions(op, fill->res[0])) return true;
  }
  return false;
}

static bool is_held(const Rings *w, const Op *fill) {
  Value v = fill->res[0];
  if (v >= w->nknown) return find_held(w, fill);
  if (!w->held[v]) w->held[v] = find_held(w, fill) ? 2 : 1;
  return w->held[v] == 2;
}

static bool same_made(const Rings *w, const Op *a, const Op *b) {
  return w->source[a->res[0]] == w->source[b->res[0]] &&
         type_eq(ir_type(w->f, a->res[0]), ir_type(w->f, b->res[0]));
}

static bool same_ring(const Rings *w, const Ring *r, const Op *op) {
  if (r->made) return same_made(w, r->site, op);
  if (visit_of(r->site) != visit_of(op)) return false;
  if (r->gathered)
    return type_eq(ir_type(w->f, r->site->res[0]), ir_type(w->f, op->res[0]));
  return same_tiles(w, r->site, op) && is_held(w, r->site) == is_held(w, op);
}

static int find_ring(const Rings *w, const Op *op) {
  for (uint32_t i = 0; i < w->nrings; i++) {
    const Ring *r = &w->rings[i];
    if (!r->site || r->site->code != op->code) continue;
    if (same_ring(w, r, op)) return (int)i;
  }
  return -1;
}

int hop_rings_of(const Rings *w, const Op *op) {
  if (op->code == OP_CLAIM) return w->claims;
  Value v = op->nres ? op->res[0] : UINT32_MAX;
  if (!w->ring_of || v >= w->nknown) return find_ring(w, op);
  if (!w->ring_of[v]) {
    int ring = find_ring(w, op);
    if (ring < 0) return ring;
    w->ring_of[v] = (uint8_t)(ring + 1);
  }
  return w->ring_of[v] - 1;
}

bool hop_rings_is_task_loop(const Func *f, const Op *op) {
  const Op *step = op->code == OP_FOR ? ir_def(f, op->args[2]) : NULL;
  return op->code == OP_WHILE ||
         (op->code == OP_FOR &&
          (!op->nres || (step && step->code == OP_NCTAS)));
}

static bool in_loop(const Rings *w, const Op *op, bool tasks) {
  for (const Region *r = op->parent; r; r = r->parent ? r->parent->parent : 0) {
    const Op *loop = r->parent;
    if (loop && (loop->code == OP_FOR || loop->code == OP_WHILE) &&
        hop_rings_is_task_loop(w->f, loop) == tasks)
      return true;
  }
  return false;
}

// The loop around op that carries accumulators: tiles of it are filled again
// and again while products run. Loops over tasks carry none.
bool hop_rings_streams(const Rings *w, const Op *op) {
  return in_loop(w, op, false);
}

bool hop_rings_in_tasks(const Rings *w, const Op *op) {
  return in_loop(w, op, true);
}

// Does v alone add, by op, to a product of the tile?
static bool adds_to(const Rings *w, const Op *op, Value v, Value tile) {
  bool product = op->code == OP_MMA || op->code == OP_WGMMA;
  const Op *to = product && op->nargs > 2 ? ir_def(w->f, op->args[2]) : NULL;
  return to && op->args[1] == v && to->code == op->code && to->args[1] == tile;
}

// A block of columns that a step adds to the product of the tile filled in
// front of it, which is much larger (passes/tile/bias_mma.c).
static bool is_block(const Rings *w, const Op *op) {
  const Op *tile = op->prev;
  while (tile && tile->code != OP_SFILL) tile = tile->prev;
  if (!tile || smem_bytes(ir_type(w->f, tile->res[0])) <
                   COST_RING_BLOCK * smem_bytes(ir_type(w->f, op->res[0])))
    return false;
  bool some = false;
  for (const Op *o = op->next; o; o = o->next) {
    if (!ir_mentions(o, op->res[0])) continue;
    if (!adds_to(w, o, op->res[0], tile->res[0])) return false;
    some = true;
  }
  return some;
}

static void find_rings(Rings *w, const Region *r) {
  uint32_t fills[MAX_RINGS] = {0};
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) find_rings(w, op->regions[i]);
    if (!hop_rings_fills(w, op)) continue;
    bool made = op->code == OP_SPUT, gathered = op->code == OP_GTILE;
    int at = hop_rings_of(w, op);
    // What groups share they change together: not where they are apart.
    bool shared = op->code == OP_SFILL && w->groups > 1 && !fill_grouped(w, op);
    w->mends |= shared && fill_mended(op);
    if (at < 0 && w->nrings == MAX_RINGS) {
      w->fails = true;
      return;
    }
    if (at < 0) at = (int)w->nrings++;
    Ring *ring = &w->rings[at];
    if (!ring->site)
      *ring = (Ring){.site = op,
                     .raw = w->makers && w->only[op->res[0]],
                     .made = made,
                     .gathered = gathered,
                     .maker = w->maker[op->res[0]],
                     .own = fill_grouped(w, op),
                     .told = fill_told(w->f, op),
                     .with = -1,
                     .visits = -1,
                     .stages = 1};
    w->widens |= fill_wide(w->f, op);
    w->mixed |= ring->raw != (w->makers && w->only[op->res[0]]);
    if (hop_rings_streams(w, op)) {
      bool columns = ir_type(w->f, op->res[0])->ext[0] == 1;
      ring->stages = made && !columns ? 1 : 2;
      ring->streams = true;
    }
    if (gathered) ring->stages = COST_RING_GATHERED;
    ring->rides =
        !made && !gathered && !ring->told && ring->streams && is_block(w, op);
    ring->strip =
        !made && (ir_type(w->f, op->res[0])->ext[0] == 1 || ring->rides);
    if (++fills[at] > ring->fills) ring->fills = fills[at];
  }
}

static bool finds_again(const Rings *w, const Ring *again, const Ring *first) {
  const Op *x = first->site, *y = again->site;
  if (visit_of(y) != 2 || visit_of(x) != 1 || x->code != y->code) return false;
  return first->gathered
             ? type_eq(ir_type(w->f, x->res[0]), ir_type(w->f, y->res[0]))
             : same_tiles(w, x, y);
}

typedef struct Readers {
  Value tile;
  uint32_t some, turns;
} Readers;

static void find_readers(void *data, Op *op) {
  Readers *r = data;
  for (uint32_t i = 0; i < op->nargs; i++) {
    if (op->args[i] != r->tile) continue;
    r->some++;
    r->turns += op->code == OP_WGMMA && ir_attr_i(op, AT_TURN, 0);
  }
}

// Is the ring's tile multiplied by products in turn alone? The first step of a
// task goes without.
static bool waits(const Rings *w, const Ring *ring) {
  Readers r = {.tile = ring->site->res[0]};
  ir_walk(w->f->body, find_readers, &r);
  return r.some && r.some == r.turns;
}

// Tiles that are read again a step later stay until then.
static void find_visits(Rings *w) {
  for (uint32_t k = 0; k < w->nrings; k++)
    for (uint32_t l = 0; l < w->nrings; l++) {
      Ring *first = &w->rings[l];
      if (!finds_again(w, &w->rings[k], first)) continue;
      w->rings[k].visits = (int)l;
      first->kept = true;
      if (!first->gathered) first->stages += first->fills;
      else if (!waits(w, &w->rings[k])) first->stages = 2;
    }
}

// ---------------------------------------------------------------- own bounds
uint32_t hop_rings_own(const Rings *w, const Op *op, uint32_t *end) {
  bool own = op->code == OP_GROUP_BOUND;
  *end = own && !w->apart ? 1 : op->nargs;
  return own && w->apart;
}

// Tiles that a group gives back unread: one of each ring for each step, all
// between the two ops that say how many.
typedef struct Steps {
  const Op *skip[2];
  uint32_t n;
  bool ok;
} Steps;

static void find_skips(Steps *s, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_GROUP_SKIP && s->n++ < 2) s->skip[s->n - 1] = op;
    for (uint32_t i = 0; i < op->nregions; i++) find_skips(s, op->regions[i]);
  }
}

// Fills of rings that stream: in each step, nowhere else.
static void check_fills(const Rings *w, Steps *s, const Region *r, bool inside,
                        bool looped) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op == s->skip[0]) inside = true;
    if (op == s->skip[1]) inside = false;
    bool loop = op->code == OP_FOR && inside;
    if (op->nregions && looped && loop_has_fill(op)) s->ok = false;
    for (uint32_t i = 0; i < op->nregions; i++)
      check_fills(w, s, op->regions[i], inside, looped || loop);
    if (op->code != OP_SFILL) continue;
    const Ring *ring = &w->rings[hop_rings_of(w, op)];
    if (ring->streams && (!inside || ring->own || ring->fills != 1))
      s->ok = false;
  }
}

// Is v made of something in memory?
static bool is_read(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  if (!op || op->code == OP_GLOAD) return op;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_read(f, op->args[i])) return true;
  return false;
}

static bool reads_bounds(const Func *f, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; op->code == OP_GROUP_SELECT && i < op->nargs; i++)
      if (is_read(f, op->args[i])) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (reads_bounds(f, op->regions[i])) return true;
  }
  return false;
}

static bool are_apart(Rings *w) {
  Steps s = {.ok = true};
  find_skips(&s, w->body);
  if (s.n != 2 || s.skip[0]->parent != s.skip[1]->parent) return false;
  check_fills(w, &s, w->body, false, false);
  w->brief = s.ok && reads_bounds(w->f, w->body);
  if (w->brief) w->behind = s.skip[1];
  return s.ok;
}

// A tile of each group's rows that is filled once a task: their number says
// which rows a group has. All such tiles come by the copy engine.
static void find_turns(Rings *w) {
  for (uint32_t i = 0; i < w->nrings; i++) {
    const Ring *r = &w->rings[i];
    if (r->own && (r->told || fill_wide(w->f, r->site))) return;
  }
  for (uint32_t i = 0; i < w->nrings && w->turns < 0; i++) {
    const Ring *r = &w->rings[i];
    const Op *loop = r->site->parent->parent;
    while (loop && loop->code == OP_IF) loop = loop->parent->parent;
    if (r->own && !r->streams && r->fills == 1 && loop &&
        loop->code == OP_WHILE)
      w->turns = (int)i;
  }
}

static int64_t ring_bytes(const Rings *w, const Ring *r) {
  if (r->visits >= 0) return 0;
  return (int64_t)smem_bytes(ir_type(w->f, r->site->res[0])) * r->stages *
         (r->own ? w->groups : 1);
}

static int64_t bytes_of(const Rings *w) {
  int64_t sum = hop_rings_drain_bytes(w);
  for (uint32_t i = 0; i < w->nrings; i++)
    sum += w->rings[i].strip || !w->rings[i].site ? 0
                                                  : ring_bytes(w, &w->rings[i]);
  return sum;
}

bool hop_rings_holds(const Type *slot, const Type *tile) {
  Type t = *slot;
  if (t.layout != LY_ROW && t.ext[1] > tile->ext[1] &&
      smem_panel_bytes(tile) == smem_panel_bytes(slot))
    t.ext[1] = tile->ext[1];
  return type_eq(&t, tile);
}

// The last op of its region that reads v, products until they are waited for.
const Op *hop_rings_last_read(const Rings *w, const Op *def, Value v) {
  const Op *last = def;
  for (const Op *op = def->next; op; op = op->next) {
    if (ir_mentions(op, v)) last = op;
    for (uint32_t i = 0; op->code == OP_WG_WAIT && i < op->nargs; i++) {
      const Op *p = ir_def(w->f, op->args[i]);
      for (; p && p->code == OP_WGMMA;
           p = p->nargs > 2 ? ir_def(w->f, p->args[2]) : NULL)
        if (ir_mentions(p, v)) last = op;
    }
  }
  return last;
}

bool hop_rings_drains(const Rings *w, const Drain *d) {
  Type part = d->tile;
  uint32_t cols = w->drain.ext[1];
  if (!d->trans && part.ext[1] > cols && part.ext[1] % cols == 0)
    part.ext[1] = cols;
  return hop_rings_holds(&w->drain, &part);
}

// More stages, as far as there is room. Tiles that are computed are there soon,
// once they have been copied.
static void grow(Rings *w, int64_t room) {
  for (int turn = 0; turn < 3; turn++)
    for (uint32_t i = 0; i < w->nrings; i++) {
      Ring *r = &w->rings[i];
      bool key = hop_rings_streams(w, r->site);
      if (r->strip || r->gathered || r->visits >= 0 || waits(w, r)) continue;
      if (r->made != (turn == 2)) continue;
      if (turn < 2 &&
          (key != (turn == 1) || (!key && !hop_rings_in_tasks(w, r->site))))
        continue;
      r->stages *= 2;  // slots are counted modulo a power of two
      if (bytes_of(w) <= room) continue;
      r->stages = r->stages / 2 + r->kept;
      if (bytes_of(w) > room) r->stages -= r->kept;
    }
}

// Groups that are on their own can be some steps apart.
static bool is_deep(const Rings *w) {
  for (uint32_t i = 0; i < w->nrings; i++)
    if (w->rings[i].streams && !w->rings[i].strip && w->rings[i].visits < 0 &&
        w->rings[i].stages < COST_RING_DEEP)
      return false;
  return true;
}

// Stages instead of room for stores, if that is enough for all rings of a loop.
static void deepen(Rings *w, int64_t room, const uint32_t *least) {
  uint32_t had[MAX_RINGS];
  int lent = hop_rings_lender(w);
  if (!w->apart || !w->drains || w->lent >= 0 || lent < 0 || is_deep(w)) return;
  for (uint32_t i = 0; i < w->nrings; i++) {
    had[i] = w->rings[i].stages;
    w->rings[i].stages = least[i];
  }
  w->lent = lent;
  grow(w, room);
  if (is_deep(w)) return;
  w->lent = -1;
  for (uint32_t i = 0; i < w->nrings; i++) w->rings[i].stages = had[i];
}

// Tiles of type t that live where `at` is made, or stands.
static int64_t live_at(const Rings *w, const Op *at, const Type *t) {
  int64_t n = 0;
  for (const Op *op = at->parent->first; op != at; op = op->next) {
    if (op->code != OP_SPUT || hop_rings_made(w, op) ||
        !type_eq(ir_type(w->f, op->res[0]), t))
      continue;
    const Op *end = hop_rings_last_read(w, op, op->res[0]);
    for (const Op *o = at; o; o = o->next)
      if (o == end) n++;
  }
  return n;
}

// The same with those of what `at` is in.
static int64_t live_around(const Rings *w, const Op *at, const Type *t) {
  int64_t n = 0;
  for (; at; at = at->parent->parent) n += live_at(w, at, t);
  return n;
}

// The most tiles of type t that live at the same time in r.
static int64_t most_live(const Rings *w, const Region *r, const Type *t) {
  int64_t most = 0;
  for (const Op *op = r->first; op; op = op->next) {
    int64_t n = 0;
    for (uint32_t i = 0; i < op->nregions; i++) {
      int64_t in = most_live(w, op->regions[i], t);
      n = in > n ? in : n;
    }
    if (op->code == OP_SPUT && !hop_rings_made(w, op) &&
        type_eq(ir_type(w->f, op->res[0]), t))
      n = 1 + live_around(w, op, t);
    most = n > most ? n : most;
  }
  return most;
}

typedef struct Types {
  const Type *t[MAX_RINGS];
  uint32_t n;
} Types;

static void find_types(const Rings *w, const Region *r, Types *all) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++)
      find_types(w, op->regions[i], all);
    if (op->code != OP_SPUT || hop_rings_made(w, op)) continue;
    const Type *t = ir_type(w->f, op->res[0]);
    uint32_t i = 0;
    while (i < all->n && !type_eq(all->t[i], t)) i++;
    if (i == all->n && i < MAX_RINGS) all->t[all->n++] = t;
  }
}

// The room of all computed tiles, wherever they are.
static int64_t computed_once(const Rings *w) {
  Types all = {.n = 0};
  int64_t sum = 0;
  find_types(w, w->f->body, &all);
  for (uint32_t i = 0; i < all.n; i++)
    sum += most_live(w, w->f->body, all.t[i]) * smem_bytes(all.t[i]);
  return sum;
}

// A computed tile of a region, the last op that reads it, and how many of its
// type live where it is made.
typedef struct Made {
  const Type *t;
  const Op *end;
  int64_t beside;
  bool lives;
} Made;

// Adds it. The first that has so many beside it pays for one more.
static int64_t put_made(const Rings *w, const Op *op, Made *all, uint32_t n) {
  Made *m = &all[n];
  int64_t most = -1;
  *m = (Made){.t = ir_type(w->f, op->res[0]), .lives = true};
  m->end = hop_rings_last_read(w, op, op->res[0]);
  for (uint32_t i = 0; i < n; i++) {
    if (!type_eq(all[i].t, m->t)) continue;
    m->beside += all[i].lives;
    most = all[i].beside > most ? all[i].beside : most;
  }
  return m->beside > most ? smem_bytes(m->t) : 0;
}

// Tiles that bufferize_gpu will make room for: those of one type that do not
// live at the same time share it, within a region.
static int64_t computed(const Rings *w, const Region *r) {
  int64_t sum = 0;
  uint32_t n = 0;
  for (const Op *op = r->first; op; op = op->next)
    n += op->code == OP_SPUT && !hop_rings_made(w, op);
  Made *all = NEWN(w->arena, Made, n + 1);
  n = 0;
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++)
      sum += computed(w, op->regions[i]);
    if (op->code == OP_SPUT && !hop_rings_made(w, op))
      sum += put_made(w, op, all, n++);
    for (uint32_t i = 0; i < n; i++) all[i].lives &= all[i].end != op;
  }
  return sum;
}

// Of these, what the sides of branches, which do not run both, have in common.
static int64_t shared_by_sides(const Rings *w, const Region *r) {
  int64_t sum = 0;
  for (const Op *op = r->first; op; op = op->next) {
    int64_t least = -1;
    for (uint32_t i = 0; i < op->nregions; i++) {
      int64_t in = computed(w, op->regions[i]);
      if (op->code == OP_IF) least = least < 0 || in < least ? in : least;
      sum += shared_by_sides(w, op->regions[i]);
    }
    sum += least > 0 ? least : 0;
  }
  return sum;
}

// What groups with columns of their own hand over of a step: the weights, which
// are a product's left operand, and numbers of rows (score_turns).
static int64_t handed(const Rings *w, const Region *r) {
  int64_t most = 0;
  for (const Op *op = r->first; op; op = op->next) {
    bool columns = w->groups == 2 && op->nargs > 3 &&
                   (op->code == OP_MMA || op->code == OP_WGMMA);
    const Type *p = columns ? ir_type(w->f, op->args[0]) : NULL;
    int64_t n = p && p->kind == TK_FRAG ? p->ext[0] * p->ext[1] : 0;
    n = n ? n * dtype_size(p->dtype) + p->ext[0] * (int64_t)sizeof(float) : 0;
    for (uint32_t i = 0; i < op->nregions; i++) {
      int64_t in = handed(w, op->regions[i]);
      n = in > n ? in : n;
    }
    most = n > most ? n : most;
  }
  return most;
}

// What would be good to have, if there is room: stores that do not wait for
// registers, tiles of the next task, more tiles in flight.
static void use_room(Rings *w, int64_t room) {
  uint32_t least[MAX_RINGS];
  for (uint32_t i = 0; i < w->nrings; i++) least[i] = w->rings[i].stages;
  hop_rings_find_drains(w, w->f->body);
  int64_t sides = w->groups > 1 ? 0 : shared_by_sides(w, w->f->body);
  if (w->drains && bytes_of(w) > room + sides) {
    w->lent = hop_rings_lender_of_parts(w);
    if (w->lent < 0) {
      w->lent = hop_rings_lender_of_all(w);
      w->shares = w->lent >= 0;
    }
    if (w->shares) w->rings[w->lent].cuts = true;
    w->drains = w->lent >= 0;
  }
  grow(w, room - handed(w, w->f->body));
  deepen(w, room, least);
  hop_rings_find_pieces(w, room - bytes_of(w));
}

// The largest tile that groups join.
static int64_t joined(const Rings *w, const Region *r) {
  int64_t most = 0;
  for (const Op *op = r->first; op; op = op->next) {
    const Type *t = op->code == OP_GJOIN ? ir_type(w->f, op->res[0]) : NULL;
    bool tile = t && t->kind == TK_FRAG && t->slice == SLICE_NONE;
    int64_t n = tile ? t->ext[0] * t->ext[1] * dtype_size(t->dtype) : 0;
    for (uint32_t i = 0; i < op->nregions; i++) {
      int64_t in = joined(w, op->regions[i]);
      n = in > n ? in : n;
    }
    most = n > most ? n : most;
  }
  return most;
}

// Groups of chunks have each their own, and what code generation needs to
// exchange values.
static int64_t computed_of_groups(const Rings *w) {
  if (w->groups == 1 || !ir_has_steps(w->f)) return computed(w, w->f->body);
  int64_t tile = joined(w, w->f->body), all = computed_once(w) * w->groups;
  all += hop_rings_for_all(w, w->f->body);
  return all + (tile ? tile + (w->groups - 1) * COST_RING_EXCHANGE : 0);
}

static bool has_op(const Region *r, OpCode c) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == c) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (has_op(op->regions[i], c)) return true;
  }
  return false;
}

static bool has_streams(const Rings *w) {
  for (uint32_t i = 0; i < w->nrings; i++)
    if (w->rings[i].streams) return true;
  return false;
}

// Has a task a loop, behind the one over tasks?
static bool has_loops(const Region *r, bool inside) {
  for (const Op *op = r->first; op; op = op->next) {
    bool loop = op->code == OP_FOR || op->code == OP_WHILE;
    if (loop && inside) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (has_loops(op->regions[i], inside || loop)) return true;
  }
  return false;
}

// Steps of a recurrence wait for each other, and so do those of few rows, and
// products of tasks that have no steps. Two CTAs on a multiprocessor fill each
// other's gaps, where a state or sums leave room.
static bool can_share(const Rings *w) {
  bool steps = ir_has_steps(w->f),
       once = ir_attr_i(w->f->body->first, AT_ONCE, 0);
  bool chunks = steps && has_streams(w);
  int64_t most = chunks ? COST_SHARED_CARRIED : COST_SHARED_ROWS;
  // A launch's registers, of which ptxas makes each instruction, whatever roles
  // have.
  int64_t launch = w->target->gpu.regs / (2 * 2 * HW_GROUP_THREADS);
  int64_t added = hop_rings_added(w->f, w->f->body);
  if (added + COST_PRODUCT_OTHER_REGS > launch) return false;
  once |= !has_loops(w->f->body, false);
  return w->groups == 1 && (steps || once) && !has_op(w->f->body, OP_FSCAN) &&
         hop_rings_carried(w->f, w->f->body) <= most;
}

// Are sums of a part stored, or read?
static bool has_parts(const Func *f) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].role == PR_SHARED) return true;
  return false;
}

// How many CTAs share a multiprocessor. Of few keys and rows that a warp has
// short sums leave room for four: so many short tasks wait beside each other.
// Where keys are many rings are to have them instead. Clusters of more than two
// are few.
static uint32_t most_shared(const Rings *w) {
  int64_t cluster = ir_attr_i(w->f->body->first, AT_CLUSTER, 0);
  bool one = cluster > COST_CLUSTER_PAIR;
  if (w->makers || one || !can_share(w)) return 1;
  bool four = ir_any_has(w->f->body, AT_DEALT) && !has_parts(w->f) &&
              hop_rings_carried(w->f, w->f->body) <= COST_SHARED_BY_FOUR;
  return four ? 4 : 2;
}

// Bytes that rings of each of n CTAs have beside `used` ones.
static int64_t shared_room(const Rings *w, uint32_t n, int64_t used) {
  const GpuFacts *t = &w->target->gpu;
  return ((int64_t)t->smem + t->own) / n - t->own - used;
}

// Reductions along the rows of accumulators stay in a warp.
static bool along_rows(const Func *f, const Op *op) {
  const Type *x = ir_type(f, op->args[0]);
  if (x->layout != LY_ACC) return false;
  return op->code == OP_FCOMBINE ? x->slice == SLICE_ROW
                                 : !x->slice && ir_attr_i(op, AT_POS, 0) == 1;
}

// Does code generation need shared memory to exchange values between warps?
static bool exchanges(const Func *f, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    bool sum = op->code == OP_FREDUCE || op->code == OP_FCOMBINE;
    if (op->code == OP_RELAYOUT || op->code == OP_FSCAN || op->code == OP_MMA ||
        (op->code == OP_VOTE && !ir_attr_i(op, AT_WARP, 0)) ||
        (sum && !along_rows(f, op)))
      return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (exchanges(f, op->regions[i])) return true;
  }
  return false;
}

static int64_t moved_bytes(const Func *f, const Op *op) {
  const Type *t = op->nres ? ir_type(f, op->res[0]) : NULL;
  return op->code == OP_SKEW     ? smem_skew_bytes(op, t)
         : op->code == OP_FWARPS ? frag_warps_bytes(t)
                                 : 0;
}

// What code generation needs to exchange columns within warps, and registers of
// warps, of all groups.
static int64_t skewed(const Rings *w, const Region *r) {
  int64_t most = 0;
  for (const Op *op = r->first; op; op = op->next) {
    int64_t n = moved_bytes(w->f, op) * w->groups;
    for (uint32_t i = 0; i < op->nregions; i++) {
      int64_t in = skewed(w, op->regions[i]);
      n = in > n ? in : n;
    }
    most = n > most ? n : most;
  }
  return most;
}

static bool is_product(const Op *op) {
  return op && (op->code == OP_MMA || op->code == OP_WGMMA);
}

// Products of f32 are sums over parts of operands: a tile is in several terms.
static bool in_parts(const Func *f, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    const Op *term = op;
    while (is_product(term) && term->nargs > 2) {
      term = ir_def(f, term->args[2]);
      if (is_product(term) && term->args[1] == op->args[1]) return true;
    }
    for (uint32_t i = 0; i < op->nregions; i++)
      if (in_parts(f, op->regions[i])) return true;
  }
  return false;
}

// One of each tile is there while a chunk computes; the next chunk's follows
// when the last product has read it.
static void one_stage(Rings *w) {
  for (uint32_t i = 0; i < w->nrings; i++)
    if (w->rings[i].streams && w->rings[i].stages >= 2 * w->rings[i].fills)
      w->rings[i].stages /= 2;
}

// Tiles of a step that each group has for itself are large; the next step's
// follow when its product has read them.
static void one_own(Rings *w) {
  for (uint32_t i = 0; i < w->nrings; i++)
    if (w->rings[i].streams && w->rings[i].own) w->rings[i].stages /= 2;
}

// Tiles of a chunk in parts are large, and shorter chunks have as many rows;
// and what a chunk computes takes room too.
static bool rings_fit(Rings *w) {
  int64_t room = (int64_t)w->target->gpu.smem - COST_RING_BARRIERS;
  bool walked = ir_has_steps(w->f) && has_streams(w);
  int64_t tiles = walked ? computed(w, w->f->body) : computed_once(w);
  int64_t moved = skewed(w, w->f->body), used = tiles + COST_RING_EXCHANGE;
  int64_t sent = w->groups * frag_peers_all(w->f);
  used += sent;
  w->occupancy = most_shared(w);
  while (w->occupancy > 1 && bytes_of(w) > shared_room(w, w->occupancy, used))
    w->occupancy /= 2;
  room = w->occupancy > 1 ? shared_room(w, w->occupancy, used) : room - sent;
  // What is moved within warps goes through the room for exchanges.
  if (w->occupancy > 2)
    room += moved < COST_RING_EXCHANGE ? moved : COST_RING_EXCHANGE;
  for (uint32_t i = 0; i < w->nrings; i++)
    if (!w->rings[i].gathered) w->rings[i].stages *= w->rings[i].fills;
  bool steps = ir_has_steps(w->f) && in_parts(w->f, w->f->body);
  room -= moved;
  if (bytes_of(w) > room && steps) one_stage(w);
  if (bytes_of(w) > room) one_own(w);
  if (bytes_of(w) > room) return false;
  if (w->occupancy < 2)
    room -= computed_of_groups(w) +
            (exchanges(w->f, w->f->body) ? COST_RING_EXCHANGE : COST_RING_PINS);
  if (bytes_of(w) > room && ir_has_steps(w->f)) {
    one_stage(w);
    if (bytes_of(w) > room) return false;
  }
  w->left = room - bytes_of(w);
  use_room(w, room);
  return true;
}

// ---------------------------------------------------------------- counts
static bool fills_ring(const Rings *w, const Op *op, uint32_t k) {
  if (hop_rings_fills(w, op)) return (uint32_t)hop_rings_of(w, op) == k;
  for (uint32_t i = 0; i < op->nregions; i++)
    for (const Op *o = op->regions[i]->first; o; o = o->next)
      if (fills_ring(w, o, k)) return true;
  return false;
}

// Wherever one of the rings is filled the other is too, once, with nothing
// between them that fills one.
static bool filled_together(const Rings *w, const Region *r, uint32_t k,
                            uint32_t l) {
  uint32_t nk = 0, nl = 0;
  for (const Op *op = r->first; op; op = op->next) {
    bool some = fills_ring(w, op, k) || fills_ring(w, op, l);
    if (hop_rings_fills(w, op)) {
      nk += fills_ring(w, op, k);
      nl += fills_ring(w, op, l);
    }
    if (op->nregions && some && nk != nl) return false;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (!filled_together(w, op->regions[i], k, l)) return false;
  }
  return nk == nl && nk <= 1;
}

// The ring filled right in front of this one and of other strips, wherever it
// is filled; -1: none.
static int tiles_of(const Rings *w, uint32_t k) {
  const Op *op = w->rings[k].site->prev;
  while (op && (op->code != OP_SFILL || w->rings[hop_rings_of(w, op)].strip))
    op = op->prev;
  int l = op ? hop_rings_of(w, op) : -1;
  return l >= 0 && l < (int)k && !w->rings[l].own && !w->rings[l].strip &&
                 !w->rings[l].raw && w->rings[l].stages == w->rings[k].stages &&
                 filled_together(w, w->body, k, (uint32_t)l)
             ? l
             : -1;
}

// A strip comes with the tiles that it belongs to.
static void join_strips(Rings *w) {
  for (uint32_t k = 0; k < w->nrings; k++) {
    Ring *r = &w->rings[k];
    r->with = r->strip && !r->own ? tiles_of(w, k) : -1;
    if (r->with >= 0) r->count = w->rings[r->with].count;
    r->rides &= r->with >= 0;
  }
}

// Rings that are filled together have one count, where there are many, and
// where groups make scores in turn, which a step's number says (score_turns).
static void share_counts(Rings *w) {
  bool many = ir_has_steps(w->f) || w->lists;
  for (uint32_t k = 0; k < w->nrings; k++) many |= w->rings[k].gathered;
  for (uint32_t k = 0; k < w->nrings; k++) {
    w->rings[k].count = k;
    for (uint32_t l = k; many && w->rings[k].site && l-- > 0;)
      if (w->rings[l].site && w->rings[l].count == l &&
          filled_together(w, w->body, k, l))
        w->rings[k].count = l;
  }
}

bool hop_rings_last(const Rings *w, const Op *fill) {
  int ring = hop_rings_of(w, fill);
  for (const Op *op = fill->next; op; op = op->next) {
    int k = hop_rings_fills(w, op) ? hop_rings_of(w, op) : ring;
    if (k != ring && w->rings[k].count == w->rings[ring].count) return false;
  }
  return true;
}

// ---------------------------------------------------------------- room
static bool has_strips(const Rings *w) {
  for (uint32_t i = 0; i < w->nrings; i++)
    if (w->rings[i].strip) return true;
  return false;
}

// Shared memory of all that is known here, to the byte.
static int64_t all_bytes(const Rings *w) {
  const int64_t word = sizeof(int32_t);
  bool joins = exchanges(w->f, w->f->body);
  int64_t sum = computed(w, w->f->body) + bytes_of(w) + skewed(w, w->f->body);
  for (uint32_t i = 0; i < w->nrings; i++) {
    const Ring *r = &w->rings[i];
    uint32_t words = r->stages;
    if ((int)i == w->facts) words = words * w->nfacts + w->nkept;
    if (r->strip) sum += ring_bytes(w, r);
    if (!r->site) sum += word * words + HW_SMEM_WORDS;
    if (r->visits < 0)
      sum += 2 * HW_BARRIER_BYTES * r->stages * (r->own ? w->groups : 1);
  }
  return sum + (joins ? COST_RING_EXCHANGE
                      : word * HW_GROUP_THREADS * (int64_t)w->groups);
}

static void set_strips(Rings *w) {
  uint32_t stages = 0;
  for (uint32_t i = 0; i < w->nrings; i++) {
    const Ring *r = &w->rings[i];
    if (!r->strip && !r->gathered && r->streams && r->visits < 0 &&
        (!stages || r->stages < stages))
      stages = r->stages;
  }
  for (uint32_t i = 0; i < w->nrings; i++)
    if (w->rings[i].strip) w->rings[i].stages = stages;
}

static bool some_ride(const Rings *w) {
  for (uint32_t i = 0; i < w->nrings; i++)
    if (w->rings[i].rides) return true;
  return false;
}

// Tiles of the next task, which there is no room for beside blocks.
static bool give_up_next(Rings *w) {
  for (uint32_t i = w->nrings; i-- > 0;) {
    Ring *r = &w->rings[i];
    if (!r->site || r->strip || r->streams || r->stages <= r->fills) continue;
    r->stages /= 2;
    return true;
  }
  return false;
}

// Room for blocks, without which there is no product: that of stores, where a
// slot can be lent to them; else a stage of what a step reads last; else that
// of the next task's tiles.
static bool make_room(Rings *w) {
  int lent = w->drains && w->lent < 0 ? hop_rings_lender(w) : -1;
  if (lent >= 0) {
    w->lent = lent;
    return true;
  }
  for (uint32_t i = w->nrings; i-- > 0;) {
    Ring *r = &w->rings[i];
    if (!r->site || r->strip || r->gathered || !r->streams || r->visits >= 0 ||
        r->stages <= 2)
      continue;
    r->stages--;
    return true;
  }
  return give_up_next(w);
}

// Strips have as many stages as tiles have, in what all else leaves: 640 bytes
// where tiles fill shared memory, beside what is reserved for other programs.
// Else in that of the next task's tiles, whose loads are few where those of the
// strips are in each step.
static bool strips_fit(Rings *w) {
  if (!has_strips(w)) return true;
  set_strips(w);
  bool ride = some_ride(w), more = true;
  while (more && all_bytes(w) > (int64_t)w->target->gpu.smem)
    more = ride ? make_room(w) : give_up_next(w);
  return all_bytes(w) <= (int64_t)w->target->gpu.smem;
}

static void end_visits(Rings *w) {
  for (uint32_t i = 0; i < w->nrings; i++)
    if (w->rings[i].visits >= 0)
      w->rings[i].stages = w->rings[w->rings[i].visits].stages;
}

static void no_maker(Rings *w) {
  w->mixed = w->mends = w->fails = false;
  w->makers = 0;
  w->nrings = 0;
  find_rings(w, w->body);
}

bool hop_rings_plan(Rings *w, Func *f, const Target *t) {
  const Op *launch = f->body->first;
  *w = (Rings){.f = f,
               .body = f->body,
               .arena = f->mod->arena,
               .target = t,
               .pieces = 1,
               .lent = -1,
               .claims = -1,
               .facts = -1,
               .turns = -1,
               .looked = -1};
  if (!t->gpu.hopper || !launch || launch->code != OP_LAUNCH) return false;
  w->groups = (uint32_t)ir_attr_i(launch, AT_THREADS, 0) / HW_GROUP_THREADS;
  w->lists = hop_rings_has_told(f);
  if (w->groups < 1 || w->groups > (w->lists ? 2 : HW_MOST_GROUPS))
    return false;
  w->nknown = f->values.n;
  w->held = NEWN(w->arena, uint8_t, f->values.n);
  hop_rings_analyse(w);
  if (w->fails) return false;
  hop_rings_making(w);
  find_rings(w, f->body);
  if (w->mixed) no_maker(w);
  w->ring_of = NEWN(w->arena, uint8_t, f->values.n);
  if (w->fails || !w->nrings) return false;
  find_visits(w);
  w->apart = !w->makers && are_apart(w);
  if (w->apart && w->mends) return false;
  if (w->brief) find_turns(w);
  if (!rings_fit(w)) return false;
  hop_rings_tasks(w);
  share_counts(w);
  if (!strips_fit(w)) return false;
  join_strips(w);
  hop_rings_panels(w);
  end_visits(w);
  hop_rings_find_halves(w);
  w->loaders = w->widens && w->groups > 1 ? 2 : 1;
  if (w->lists) hop_rings_spare_told(w);
  return true;
}
