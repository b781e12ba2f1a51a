// bufferize_gpu: frag -> mach: tiles that are values get buffers and barriers.
//
//   before  %k = sfill(%K, %b, %g, %k0, %zero) {tile = [2, 3]} : smem<..>
//           %s = mma(%q, %k, %none) : frag<64x128xf32,acc>
//   after   %k = salloc() : smem<..>            at the top
//           gsync()                             the last reader is done
//           cp_async(%k, %K, %b, %g, %k0, %zero) {tile = [2, 3]}
//           cp_commit()
//           ..                                  what does not need %k
//           cp_wait() {pending = 0}
//           gsync()
//           %s = mma(%q, %k, %none)
//
// Tiles of one type that do not live at the same time share a buffer; where
// there is too little memory for that, of any types:
//
//   %a = salloc() : smem<64x128xbf16,sw128>     a tile's, the largest
//   %b = salloc(%a) : smem<64x96xbf16,turned>   another's, in the same memory
//
// Copies
// start as early as their coordinates are known, in the order of the program:
// the values of a step arrive while its scores are computed. A walk in program
// order knows which buffers are written, in flight, or read since the last
// barrier, and puts waits and barriers in front of what needs them; a loop
// begins and ends with no copy in flight and all its buffers taken as read.
//
// Groups that share a task become a role: they copy what depends on the group
// each into its own slot, and the first one copies the rest.
//
// Needs: lower_gpu. What warp_specialize, pipeline_loop and lds_dma have made
// stays as it is. Tests: test/passes/bufferize_gpu.
#include "ir/layout.h"
#include "ir/target.h"
#include "passes/gpu/exchange.h"
#include "passes/support/fill.h"
#include "passes/support/wide_rows.h"
#include "passes/pass.h"

#include <assert.h>

typedef struct Buffer {
  Value v;         // its salloc, or this group's slot of it
  Value now;       // of its sallocs, that of what was copied last
  Op *largest;     // without slots: the salloc of its memory
  bool own;        // each group has its own
  uint32_t until;  // number of the last op that reads what it holds
  bool written;    // by sstore since the last barrier
  bool read;       // since the last barrier
  uint32_t group;  // of copies in flight, counted from 1; 0: none
  const Op *fill;  // of what is copied,
  Value by;        // and what it is changed by, or 0
} Buffer;

typedef struct Moved {
  Op *op, *next;  // what stood behind it
} Moved;

typedef struct Legal {
  Ctx *cx;
  Func *f;
  Arena *arena;
  const Target *target;
  Vec(Buffer) bufs;
  Vec(Moved) early;  // copies, in the order in which they were moved
  bool any_type;     // tiles of several types share a buffer
  Value *tile;       // per value: the salloc that holds it, or its slot
  uint32_t *buf_of;  // per value: number of its buffer + 1
  uint32_t *from;    // per value: number of the op that defines it
  uint32_t *until;   // per value: of the last that uses it
  uint32_t nops;
  int64_t threads;     // of the CTA
  uint32_t instances;  // groups that share a task, in the one role `share`
  Region *share;
  Value wg;         // the instance
  Value id;         // of the barrier for all of them
  bool alone;       // the instances have nothing in common
  bool *grouped;    // per value: depends on the instance
  uint32_t groups;  // committed so far
} Legal;

// ---------------------------------------------------------------- buffers
static Builder in_front(Legal *l, Op *op) {
  return (Builder){.fn = l->f,
                   .region = op->parent,
                   .before = op,
                   .span = op->span};
}

static Buffer *buffer_of(Legal *l, Value v) {
  uint32_t i = l->buf_of[v];
  return i ? &l->bufs.at[i - 1] : NULL;
}

static void note_uses(Legal *l, const Region *r, const Region *in,
                      uint32_t at) {
  for (const Op *op = in->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nargs; i++)
      if (ir_defined_outside(l->f, op->args[i], r)) l->until[op->args[i]] = at;
    for (uint32_t i = 0; i < op->nregions; i++)
      note_uses(l, r, op->regions[i], at);
  }
}

// Products that are waited for here, and those that they add to, read their
// tiles until now.
static void read_until(Legal *l, const Op *wait) {
  for (uint32_t i = 0; i < wait->nargs; i++) {
    const Op *p = ir_def(l->f, wait->args[i]);
    while (p && p->code == OP_WGMMA) {
      for (uint32_t k = 0; k < 2; k++) l->until[p->args[k]] = l->nops;
      p = p->nargs > 2 ? ir_def(l->f, p->args[2]) : NULL;
    }
  }
}

// Numbers ops in program order. What a loop takes from outside lives until its
// end.
static void number(Legal *l, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nres; i++) l->from[op->res[i]] = l->nops + 1;
    for (uint32_t i = 0; i < op->nregions; i++) number(l, op->regions[i]);
    l->nops++;
    for (uint32_t i = 0; i < op->nargs; i++) l->until[op->args[i]] = l->nops;
    if (op->code == OP_WG_WAIT) read_until(l, op);
    for (uint32_t i = 0; i < op->nregions; i++)
      note_uses(l, op->regions[i], op->regions[i], l->nops);
  }
}

static Value new_slots(Legal *l, Type t, bool own) {
  Builder b = in_front(l, l->f->body->first->next);
  if (own) t.ext[2] = l->instances;
  Value s = ir_op(&b, OP_SALLOC, NULL, 0, NULL, 0, &t, 1, 0)->res[0];
  if (!own || l->instances == 1) return s;
  Builder in = in_front(l, l->share->first);
  Value args[] = {s, l->wg};
  t.ext[2] = 1;
  return ir_op(&in, OP_SLOT, args, 2, NULL, 0, &t, 1, 0)->res[0];
}

// o is of the memory of `of` from now on.
static void place_in(Legal *l, Op *o, Value of) {
  o->args = NEWN(&l->cx->session, Value, 1);
  o->args[0] = of;
  o->nargs = 1;
}

// The memory of x as a tile of type t: a salloc of its own in that memory, or,
// if it is larger, one in whose memory those that there are lie.
static Value as_type(Legal *l, Buffer *x, Type t) {
  Value s = new_slots(l, t, false), have = x->largest->res[0];
  Op *op = ir_def(l->f, s);
  if (smem_bytes(&t) <= smem_bytes(ir_type(l->f, have))) {
    ir_move_before(op, x->largest->next);
    place_in(l, op, have);
    return s;
  }
  for (Op *o = l->f->body->first; o; o = o->next)
    if (o->code == OP_SALLOC && o->nargs && o->args[0] == have) o->args[0] = s;
  place_in(l, x->largest, s);
  x->largest = op;
  return s;
}

// Whether v may take x's memory, of which nothing is needed any more.
static bool may_take(const Legal *l, const Buffer *x, Value v) {
  const Type *have = ir_type(l->f, x->v), *t = ir_type(l->f, v);
  if (x->until >= l->from[v] || x->own != l->grouped[v]) return false;
  if (type_eq(have, t)) return true;
  bool swizzled = have->layout != LY_ROW;
  return l->any_type && !x->own && swizzled == (t->layout != LY_ROW);
}

static void put_in(Legal *l, uint32_t i, Value v) {
  Buffer *x = &l->bufs.at[i];
  x->until = l->until[v];
  l->tile[v] = x->v;
  l->buf_of[v] = l->buf_of[x->v] = i + 1;
}

static void new_buffer(Legal *l, Value v) {
  const Type *t = ir_type(l->f, v);
  for (uint32_t i = 0; i < l->bufs.n; i++) {
    Buffer *x = &l->bufs.at[i];
    if (!may_take(l, x, v)) continue;
    if (!type_eq(ir_type(l->f, x->v), t)) x->v = as_type(l, x, *t);
    put_in(l, i, v);
    return;
  }
  Buffer n = {.v = new_slots(l, *t, l->grouped[v]), .own = l->grouped[v]};
  if (!n.own) n.largest = ir_def(l->f, n.v);
  vec_push(l->arena, &l->bufs, n);
  put_in(l, l->bufs.n - 1, v);
}

// ---------------------------------------------------------------- barriers
// Nothing stands between fences and their product: sums pass through a fence
// only if it is the op behind them.
static Op *with_fences(Op *op) {
  while (op->prev && op->prev->code == OP_WG_FENCE) op = op->prev;
  return op;
}

static void barrier(Legal *l, Op *op) {
  Builder b = in_front(l, with_fences(op));
  IrAttr all = attr_i(AT_THREADS, l->threads);
  if (l->instances == 1 || l->alone) ir_bare(&b, OP_GSYNC);
  else ir_op(&b, OP_BAR_SYNC, &l->id, 1, &all, 1, NULL, 0, 0);
  for (uint32_t i = 0; i < l->bufs.n; i++)
    l->bufs.at[i].written = l->bufs.at[i].read = false;
}

// What groups share is copied by the first one.
static Builder only_first(Legal *l, Builder *b, const Buffer *x) {
  if (l->instances == 1 || x->own) return *b;
  Value c = ir_2(b, OP_EQ, l->wg, ir_const_i(b, DT_I32, 0));
  Op *op = ir_op(b, OP_IF, &c, 1, NULL, 0, NULL, 0, 2);
  Builder other = {.fn = l->f, .region = op->regions[1], .span = b->span};
  ir_yield(&other, NULL, 0);
  other.region = op->regions[0];
  return other;
}

static void mend(Legal *l, Builder *b, const Buffer *x) {
  Builder in = only_first(l, b, x);
  FillGroups own = {.proxies = l->target->gpu.hopper};
  fill_mend(&in, x->fill, x->now, x->by, &own);
  if (in.region != b->region) ir_yield(&in, NULL, 0);
}

static bool read_by(const Region *r, Value v, OpCode c) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; op->code == c && i < op->nargs; i++)
      if (op->args[i] == v) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (read_by(op->regions[i], v, c)) return true;
  }
  return false;
}

// Waits in front of op until the copies of groups up to `group` are done.
static void wait_for(Legal *l, Op *op, uint32_t group) {
  Builder b = in_front(l, with_fences(op));
  IrAttr at = attr_i(AT_PENDING, l->groups - group);
  bool fence = false;  // asynchronous products read what threads have copied
  ir_op(&b, OP_CP_WAIT, NULL, 0, &at, 1, NULL, 0, 0);
  for (uint32_t i = 0; i < l->bufs.n; i++) {
    Buffer *x = &l->bufs.at[i];
    if (x->group && x->group <= group) {
      x->group = 0;
      x->written = true;  // this thread's part: others see it behind a barrier
      if (x->by) mend(l, &b, x);
      fence |= l->target->gpu.hopper &&
               read_by(l->f->body, x->fill->res[0], OP_WGMMA);
    }
  }
  if (fence) ir_bare(&b, OP_FENCE_ASYNC);
}

static void drain(Legal *l, Op *op) {
  uint32_t last = 0;
  for (uint32_t i = 0; i < l->bufs.n; i++)
    if (l->bufs.at[i].group > last) last = l->bufs.at[i].group;
  if (last) wait_for(l, op, last);
}

// A barrier now rather than in each turn of a loop.
static void settle(Legal *l, Op *op) {
  for (uint32_t i = 0; i < l->bufs.n; i++)
    if (l->bufs.at[i].written) {
      barrier(l, op);
      return;
    }
}

static void before_read(Legal *l, Op *op, const Buffer *x) {
  if (x->group) wait_for(l, op, x->group);
  if (x->written) barrier(l, op);
}

static void before_write(Legal *l, Op *op, const Buffer *x) {
  if (x->read) barrier(l, op);
}

// ---------------------------------------------------------------- ops
// 8-bit rows that are widened on their way are stored, not copied.
static void make_wide(Legal *l, Op *op, Buffer *x) {
  Builder b = in_front(l, op), c = only_first(l, &b, x);
  x->now = l->tile[op->res[0]];
  WideRows rows = wide_rows(&c, op, op->args);
  for (uint32_t i = 0; i < rows.n; i++) {
    wide_rows_ask(&rows, i);
    wide_rows_put(&rows, i, x->now);
  }
  if (read_by(l->f->body, op->res[0], OP_WGMMA)) ir_bare(&c, OP_FENCE_ASYNC);
  if (c.region != b.region) ir_yield(&c, NULL, 0);
  x->written = true;
}

static void make_copy(Legal *l, Op *op) {
  Buffer *x = buffer_of(l, op->res[0]);
  before_write(l, op, x);
  if (fill_wide(l->f, op)) {
    make_wide(l, op, x);
    return;
  }
  Builder b = in_front(l, op);
  Value *args = NEWN(l->arena, Value, op->nargs + 1);
  args[0] = x->now = l->tile[op->res[0]];
  for (uint32_t i = 0; i < op->nargs; i++) args[i + 1] = op->args[i];
  Builder c = only_first(l, &b, x);
  IrAttr at[FILL_ATTRS];
  ir_op(&c, OP_CP_ASYNC, args, fill_args(op) + 1, at, fill_attrs(op, at), NULL,
        0, 0);
  if (c.region != b.region) ir_yield(&c, NULL, 0);
  ir_bare(&b, OP_CP_COMMIT);
  x->group = ++l->groups;
  x->fill = op;
  x->by = fill_by(op);
}

static void make_store(Legal *l, Op *op) {
  Buffer *x = buffer_of(l, op->res[0]);
  before_write(l, op, x);
  Builder b = in_front(l, op);
  Value args[] = {l->tile[op->res[0]], op->args[0]};
  ir_op(&b, OP_SSTORE, args, 2, NULL, 0, NULL, 0, 0);
  if (read_by(l->f->body, op->res[0], OP_WGMMA)) {
    // One fence for stores that stand together.
    Op *put = op->prev, *fence = put->prev;
    if (fence && fence->code == OP_FENCE_ASYNC) ir_erase(fence);
    ir_bare(&b, OP_FENCE_ASYNC);
  }
  x->written = true;
}

// Reads begin behind the last barrier that one of the operands needs.
static void read_operands(Legal *l, Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Buffer *x = buffer_of(l, op->args[i]);
    if (x) before_read(l, op, x);
  }
  for (uint32_t i = 0; i < op->nargs; i++) {
    Buffer *x = buffer_of(l, op->args[i]);
    if (!x) continue;
    x->read = true;
    op->args[i] = l->tile[op->args[i]];
  }
}

// Products read their tiles until they are waited for: barriers in between say
// nothing.
static void end_reads(Legal *l, const Op *wait) {
  for (uint32_t i = 0; i < wait->nargs; i++) {
    const Op *p = ir_def(l->f, wait->args[i]);
    while (p && p->code == OP_WGMMA) {
      for (uint32_t k = 0; k < 2; k++) {
        Buffer *x = buffer_of(l, p->args[k]);
        if (x) x->read = true;
      }
      p = p->nargs > 2 ? ir_def(l->f, p->args[2]) : NULL;
    }
  }
}

// ---------------------------------------------------------------- regions
// Copies start right behind the op that makes the last of their coordinates.
static void start_early(Legal *l, Region *r) {
  Op *next;
  for (Op *op = r->first; op; op = next) {
    next = op->next;
    if (op->code != OP_SFILL) continue;
    Op *after = NULL;
    for (Op *o = r->first; o != op; o = o->next)
      for (uint32_t i = 0; i < op->nargs; i++)
        if (ir_def(l->f, op->args[i]) == o || o->code == OP_LAUNCH ||
            o->code == OP_SLOT || o->code == OP_SALLOC || o->code == OP_SFILL)
          after = o;
    vec_push(l->arena, &l->early, ((Moved){op, next}));
    ir_move_before(op, after ? after->next : r->first);
  }
}

static void start_in_order(Legal *l) {
  for (uint32_t i = l->early.n; i--;)
    ir_move_before(l->early.at[i].op, l->early.at[i].next);
}

// Tiles of fragments are put where they are first read.
static void put_late(Region *r) {
  Op *prev;
  for (Op *op = r->last; op; op = prev) {
    prev = op->prev;
    for (uint32_t i = 0; i < op->nregions; i++) put_late(op->regions[i]);
    Op *use = op->code == OP_SPUT ? ir_first_use(op->next, op->res[0]) : NULL;
    if (use) ir_move_before(op, use);
  }
}

// Behind which op the product that is waited for has been asked for; NULL: in
// another region, or one of several.
static Op *asked_by(const Legal *l, const Op *wait) {
  Op *p = wait->nargs == 1 ? ir_def(l->f, wait->args[0]) : NULL;
  if (!p || p->code != OP_WGMMA || p->parent != wait->parent) return NULL;
  while (p && p != wait && p->code != OP_WG_COMMIT) p = p->next;
  return p && p != wait ? p : NULL;
}

// Products are waited for as soon as they are asked for: their tiles are free.
static void wait_early(Legal *l, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) wait_early(l, op->regions[i]);
    Op *asked = op->code == OP_WG_WAIT ? asked_by(l, op) : NULL;
    if (!asked) continue;
    ir_move_before(op, asked->next);
    ir_set_attr(l->f, op, attr_i(AT_PENDING, 0));
  }
}

static bool makes_tile(const Op *op, const Op *end) {
  while (op != end && op->code != OP_SPUT && op->code != OP_SFILL)
    op = op->next;
  return op != end;
}

// Tiles of fragments are put again for what reads them behind other tiles.
static void put_again(Legal *l, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) put_again(l, op->regions[i]);
    if (op->code != OP_SPUT) continue;
    Value v = op->res[0];
    Op *use = ir_first_use(op->next, v);
    Op *more = use ? ir_first_use(use->next, v) : NULL;
    while (more && !makes_tile(use->next, more)) {
      use = more;
      more = ir_first_use(use->next, v);
    }
    if (!more) continue;
    Builder b = {.fn = l->f, .region = r, .before = more, .span = op->span};
    ValueMap map = {.arena = l->arena};
    ir_replace_from(more, v, ir_clone(&b, l->f, op, &map, NULL)->res[0]);
  }
}

// The same inside of loops behind op, each time anew: fragments stay in
// registers.
static void put_within(Legal *l, Op *op, const Op *put) {
  Value v = put->res[0];
  for (Op *use = ir_first_use(op, v); use; use = ir_first_use(use->next, v)) {
    for (uint32_t i = 0; i < use->nregions; i++) {
      Op *in = ir_first_use(use->regions[i]->first, v);
      put_within(l, in, put);
      in = ir_first_use(in, v);
      if (!in) continue;
      Builder b = {.fn = l->f,
                   .region = in->parent,
                   .before = in,
                   .span = put->span};
      ValueMap map = {.arena = l->arena};
      Op *again = ir_clone(&b, l->f, put, &map, NULL);
      ir_replace_from(in, v, again->res[0]);
    }
  }
}

static void put_in_loops(Legal *l, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) put_in_loops(l, op->regions[i]);
    if (op->code != OP_SPUT) continue;
    put_within(l, next, op);
    if (!ir_count_uses(l->f, op->res[0])) ir_erase(op);
  }
}

static void mark_read(void *data, Op *op) {
  Legal *l = data;
  for (uint32_t i = 0; i < op->nargs; i++) {
    Buffer *x = buffer_of(l, op->args[i]);
    if (x) x->read = true;
  }
}

static bool *reads(const Legal *l) {
  bool *read = NEWN(l->arena, bool, l->bufs.n);
  for (uint32_t i = 0; i < l->bufs.n; i++) read[i] = l->bufs.at[i].read;
  return read;
}

static void region(Legal *l, Region *r);

// Each region begins with what is read in front of op. Behind op that is still
// so where a region was not run, and what a region reads at its end is too.
static void regions(Legal *l, const Op *op) {
  bool loop = op->code == OP_FOR || op->code == OP_WHILE;
  const bool *before = reads(l);
  bool *after = reads(l);
  for (uint32_t i = 0; i < op->nregions; i++) {
    for (uint32_t k = 0; k < l->bufs.n; k++) l->bufs.at[k].read = before[k];
    if (loop) ir_walk(op->regions[i], mark_read, l);
    region(l, op->regions[i]);
    for (uint32_t k = 0; k < l->bufs.n; k++) after[k] |= l->bufs.at[k].read;
  }
  for (uint32_t k = 0; k < l->bufs.n; k++) l->bufs.at[k].read = after[k];
}

static void region(Legal *l, Region *r) {
  Op *next;
  for (Op *op = r->first; op; op = next) {
    next = op->next;
    if (op->nregions) {
      // Nothing is in flight at the border of a region.
      drain(l, op);
      settle(l, op);
      regions(l, op);
      continue;
    }
    if (op->code == OP_SALLOC) continue;
    if (op->code == OP_YIELD) drain(l, op);
    read_operands(l, op);
    if (op->code == OP_WG_WAIT) end_reads(l, op);
    if (op->code == OP_SFILL) make_copy(l, op);
    else if (op->code == OP_SPUT) make_store(l, op);
    else continue;
    ir_erase(op);
  }
}

static void all_early(Legal *l, Region *r) {
  start_early(l, r);
  for (Op *op = r->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nregions; i++) all_early(l, op->regions[i]);
}

static void find_tiles(void *data, Op *op) {
  Legal *l = data;
  if (op->code == OP_SFILL || op->code == OP_SPUT) new_buffer(l, op->res[0]);
}

// ---------------------------------------------------------------- function
static uint64_t needed(const Legal *l) {
  uint64_t need = 0;
  for (const Op *op = l->f->body->first; op; op = op->next)
    if (op->code == OP_SALLOC && !op->nargs)
      need += (smem_bytes(ir_type(l->f, op->res[0])) + HW_SMEM_ALIGN - 1) /
              HW_SMEM_ALIGN * HW_SMEM_ALIGN;
  return need;
}

static void remark_tiles(const Legal *l) {
  for (const Op *op = l->f->body->first; op; op = op->next) {
    if (op->code != OP_SALLOC || op->nargs) continue;
    const Type *t = ir_type(l->f, op->res[0]);
    ctx_remark(l->cx, "%s: a tile of %lld x %lld of %s, %lld at a time",
               l->f->name, (long long)t->ext[0], (long long)t->ext[1],
               dtype_name(t->dtype), (long long)(t->ext[2] ? t->ext[2] : 1));
  }
}

static bool fits(const Legal *l) {
  uint64_t need = needed(l);
  if (need <= l->target->gpu.smem) return true;
  remark_tiles(l);
  diag_add(l->cx, DIAG_pass_unsupported, l->f->span,
           arena_printf(&l->cx->session,
                        "the tiles of %s need %llu bytes of shared memory, %s "
                        "has %u: choose smaller tiles (--tile-k)",
                        l->f->name, (unsigned long long)need, l->target->name,
                        l->target->gpu.smem));
  return false;
}

static void mark_grouped(Legal *l, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    bool g = l->alone || (op->code == OP_SPUT && l->instances > 1);
    for (uint32_t i = 0; i < op->nargs; i++) g |= l->grouped[op->args[i]];
    for (uint32_t i = 0; i < op->nres; i++) l->grouped[op->res[i]] = g;
    for (uint32_t i = 0; i < op->nregions; i++) mark_grouped(l, op->regions[i]);
  }
}

static void erase_buffers(Legal *l) {
  for (uint32_t i = 0; i < l->bufs.n; i++) {
    Op *largest = l->bufs.at[i].largest;
    for (Op *op = l->f->body->first, *next; op; op = next) {
      next = op->next;
      bool in = op->code == OP_SALLOC && op->nargs;
      if (in && op->args[0] == largest->res[0]) ir_erase(op);
    }
    ir_erase(largest);
  }
}

// Buffers are new values: there is room for one per value.
static void find_buffers(Legal *l) {
  uint32_t n = 2 * l->f->values.n + 64;
  l->buf_of = NEWN(l->arena, uint32_t, n);
  l->tile = NEWN(l->arena, Value, n);
  l->from = NEWN(l->arena, uint32_t, n);
  l->until = NEWN(l->arena, uint32_t, n);
  l->grouped = NEWN(l->arena, bool, n);
  l->bufs.n = l->nops = 0;
  if (l->share) l->grouped[l->wg] = true;
  mark_grouped(l, l->f->body);
  number(l, l->f->body);
  ir_walk(l->f->body, find_tiles, l);
}

// Do they fit, or must they stay as they are?
static bool settled(const Legal *l) {
  for (uint32_t i = 0; i < l->bufs.n; i++)
    if (l->bufs.at[i].own) return true;
  return !l->bufs.n || needed(l) <= l->target->gpu.smem;
}

// Copies begin where they stand, and fragments are put where they are read,
// into memory that tiles of any types share.
static void share(Legal *l, Region *r) {
  start_in_order(l);
  put_late(r);
  l->any_type = true;
}

// What is done one after the other while there is too little memory.
static void (*const savings[])(Legal *, Region *) = {share, put_in_loops,
                                                     wait_early, put_again};

static void choose_buffers(Legal *l) {
  uint32_t n = sizeof savings / sizeof *savings;
  all_early(l, l->f->body);
  for (uint32_t i = 0;; i++) {
    find_buffers(l);
    if (i == n || settled(l)) return;
    erase_buffers(l);
    l->f->mod->level = LV_FRAG;
    savings[i](l, l->f->body);
    l->f->mod->level = LV_MACH;
  }
}

static Op *find_op(const Region *r, OpCode c) {
  for (Op *op = r->first; op; op = op->next) {
    if (op->code == c) return op;
    for (uint32_t i = 0; i < op->nregions; i++) {
      Op *g = find_op(op->regions[i], c);
      if (g) return g;
    }
  }
  return NULL;
}

static bool has_tiles(const Region *r) {
  return find_op(r, OP_SFILL) || find_op(r, OP_SPUT);
}

// The role that warp_specialize has left tiles in: its instances are on their
// own.
static bool find_role(Legal *l) {
  const Op *roles = find_op(l->f->body, OP_ROLES);
  for (uint32_t i = 0; roles && i < roles->nregions; i++) {
    Region *r = roles->regions[i];
    if (!r->params.n || !has_tiles(r)) continue;
    int64_t group = ir_attr(roles, AT_GROUPS)->list[i];
    l->instances = (uint32_t)(ir_attr(roles, AT_TEAMS)->list[i] / group);
    l->share = r;
    l->wg = r->params.at[0];
    l->alone = true;
  }
  return roles != NULL;
}

// Groups that share a task become the instances of one role: all that stands
// behind `launch`.
static void make_role(Legal *l) {
  const Op *launch = ir_launch(l->f);
  Op *group = find_op(l->f->body, OP_GROUP);
  l->threads = launch ? ir_attr_i(launch, AT_THREADS, 0) : 0;
  l->instances = 1;
  if (find_role(l) || !group) return;
  l->instances = (uint32_t)(l->threads / HW_GROUP_THREADS);
  Builder b = {.fn = l->f, .region = l->f->body, .span = l->f->span};
  int64_t teams[] = {l->threads}, groups[] = {HW_GROUP_THREADS};
  IrAttr at[] = {attr_list(AT_TEAMS, teams, 1),
                 attr_list(AT_GROUPS, groups, 1)};
  Op *roles = ir_op(&b, OP_ROLES, NULL, 0, at, 2, NULL, 0, 1);
  l->share = roles->regions[0];
  l->wg = ir_region_param(l->share, type_scalar(DT_I32), "wg");
  b.region = l->share;
  l->id = ir_const_i(&b, DT_I32, 1);
  ir_yield(&b, NULL, 0);
  Op *end = l->share->last;
  while (launch->next != roles) ir_move_before(launch->next, end);
  ir_replace_uses(l->f, group->res[0], l->wg);
  ir_erase(group);
  ir_del_attr(l->f->body->first, AT_GROUPS);
}

// Groups that are not on their own take the bounds of all rows.
static void same_bounds(Func *f, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) same_bounds(f, op->regions[i]);
    if (op->code == OP_GROUP_BOUND) ir_replace_uses(f, op->res[0], op->args[0]);
    if (op->code == OP_GROUP_BOUND || op->code == OP_GROUP_SKIP) ir_erase(op);
  }
}

// What is a group's own is chosen of what all have.
static void choose_own(Func *f, const Op *group, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++)
      choose_own(f, group, op->regions[i]);
    if (op->code != OP_GROUP_SELECT) continue;
    Builder b = {.fn = f, .region = r, .before = op, .span = op->span};
    Value x = op->args[0];
    for (uint32_t i = 1; group && i < op->nargs; i++) {
      Value is = ir_2(&b, OP_EQ, group->res[0], ir_const_i(&b, DT_I32, i));
      x = ir_3(&b, OP_SELECT, is, op->args[i], x);
    }
    ir_replace_uses(f, op->res[0], x);
    ir_erase(op);
  }
}

static bool legal_func(Ctx *cx, Func *f, const Target *t) {
  Legal l = {.cx = cx, .f = f, .arena = &cx->scratch, .target = t};
  same_bounds(f, f->body);
  choose_own(f, find_op(f->body, OP_GROUP), f->body);
  make_role(&l);
  Op *roles = find_op(f->body, OP_ROLES);
  if (roles) exchange_lower(f, roles);
  choose_buffers(&l);
  if (!l.bufs.n) return true;
  region(&l, f->body);
  return fits(&l);
}

bool pass_bufferize_gpu(Ctx *cx, Module *m, const PassOpt *opt) {
  const Target *t = opt->target;
  if (t->kind != TARGET_GPU) {
    diag_add(cx, DIAG_pass_unsupported, NOWHERE, "legal needs a GPU target");
    return false;
  }
  m->level = LV_MACH;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    ArenaMark mark = arena_mark(&cx->scratch);
    if (!legal_func(cx, m->funcs.at[i], t)) return false;
    arena_reset(&cx->scratch, mark);
  }
  return true;
}
