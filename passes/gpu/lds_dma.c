// lds_dma: where loads can go to shared memory directly (column `direct` of
// targets.def), tiles that a loop only copies lie in rings of two slots and are
// copied a step ahead: no registers, no stores, one barrier a step.
//
//   for(%lo, %hi, %s, ..) ({              %r = salloc() : smem<2x..>
//     ^(%i, ..):                          gsync()
//     %x = gload(%K, .. %i ..)            cp_async(slot(%r, 0), %K, .. %lo ..)
//     %k = sput(%x)                  ->   cp_commit()
//     %s = mma(%q, %k)                    for(%lo, %hi, %s, .., 0) ({
//     yield(..)                             ^(%i, .., %at):
//   })                                      cp_wait() {pending = 0}
//                                           gsync()
//                                           cp_async(slot(%r, 1 - %at), ..)
//                                           cp_commit()
//                                           %s = mma(%q, slot(%r, %at))
//                                           yield(.., 1 - %at)
//                                         })
//                                         cp_wait() {pending = 0}
//
// Behind the barrier all have what was copied for this step, and nobody reads
// the slot of the last one. What is copied behind the last step is not used.
// Boxes of whole rows, tensors with dense rows (launch's `dense`); other tiles
// are left to pass prefetch, all of them where the rings do not fit. Loops one
// behind the other share the rings.
// Level frag. Needs: lower_gpu; runs before prefetch. Tests:
// test/passes/lds_dma.
#include "passes/gpu/prefetch.h"

#include "ir/layout.h"
#include "ir/target.h"

enum { SLOTS = 2 };

typedef struct Copy {
  Op *load, *put;
  int64_t axes[2];  // of the tensor: rows, columns
  uint32_t ring;
} Copy;
typedef Vec(Copy) Copies;

typedef struct Ring {
  Type tile;
  Value v;
} Ring;

typedef struct Direct {
  Func *f;
  Arena *a;
  uint32_t chunk;   // bytes of all threads' loads
  uint64_t others;  // bytes of tiles that are no ring's
  Vec(Ring) rings;
  bool used;  // a loop before may read the rings
} Direct;

// ---------------------------------------------------------------- candidates
// What an index adds to a coordinate of the tile, 0: nothing. False: it is
// more.
static bool origin_of(const Func *f, Value index, Value *origin) {
  const Op *op = ir_def(f, index);
  *origin = 0;
  if (op && op->code == OP_COORD) return true;
  for (uint32_t i = 0; op && op->code == OP_ADD && i < 2; i++) {
    const Op *s = ir_def(f, op->args[i]), *c = ir_def(f, op->args[1 - i]);
    if (!s || !c || s->code != OP_SPLAT || c->code != OP_COORD) continue;
    *origin = s->args[0];
    return true;
  }
  return false;
}

// Rows of the tensor, whole: its last axis and one before.
static bool is_box(const Func *f, const Op *load, Copy *c) {
  const Type *tensor = ir_type(f, load->args[0]);
  const Type *tile = ir_type(f, load->res[0]);
  int64_t wide = 0;
  c->axes[0] = c->axes[1] = -1;
  if (load->nargs != tensor->n + 1 || tile->kind != TK_FRAG || tile->slice)
    return false;
  for (uint32_t i = 0; i < tensor->n; i++) {
    const Type *x = ir_type(f, load->args[1 + i]);
    Value origin;
    if (x->kind != TK_FRAG) continue;
    int64_t *axis = &c->axes[x->slice == SLICE_COL];
    if (*axis >= 0 || !origin_of(f, load->args[1 + i], &origin) ||
        (origin && x->slice == SLICE_COL))
      return false;
    *axis = i;
  }
  return c->axes[0] >= 0 && c->axes[1] == (int64_t)tensor->n - 1 &&
         dim_is_const(&f->mod->dims, tensor->size[c->axes[1]], &wide) &&
         wide == tile->ext[1];
}

static bool can_copy(const Direct *x, const Op *loop, Op *put, Copy *c) {
  if (put->code != OP_SPUT) return false;
  Op *load = ir_def(x->f, put->args[0]);
  if (!prefetch_is_tile(x->f, loop, load) || !is_box(x->f, load, c))
    return false;
  const Type *t = ir_type(x->f, put->res[0]);
  c->load = load;
  c->put = put;
  return t->dtype == ir_type(x->f, load->res[0])->dtype &&
         dtype_size(t->dtype) == 2 && smem_swizzle_shift(t->layout) < 3 &&
         t->layout != LY_ROW && !smem_turned(t->layout) &&
         smem_panel_bytes(t) * t->ext[0] % x->chunk == 0;
}

static Copies find(const Direct *x, const Op *loop) {
  Copies all = {0};
  Copy c;
  for (Op *op = loop->regions[0]->first; op; op = op->next)
    if (can_copy(x, loop, op, &c)) vec_push(x->a, &all, c);
  return all;
}

static bool has_copies(const Direct *x, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_FOR && find(x, op).n) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (has_copies(x, op->regions[i])) return true;
  }
  return false;
}

// Those of a loop; none where one inside has some.
static Copies copies_of(const Direct *x, const Op *loop) {
  if (has_copies(x, loop->regions[0])) return (Copies){0};
  return find(x, loop);
}

// ---------------------------------------------------------------- rings
// The copies of a loop have a ring each.
static void take_rings(Direct *x, Copies *all) {
  uint64_t taken = 0;
  for (uint32_t i = 0; i < all->n; i++) {
    const Type tile = *ir_type(x->f, all->at[i].put->res[0]);
    uint32_t r = 0;
    while (r < x->rings.n &&
           (taken >> r & 1 || !type_eq(&x->rings.at[r].tile, &tile)))
      r++;
    if (r == x->rings.n) vec_push(x->a, &x->rings, ((Ring){.tile = tile}));
    taken |= (uint64_t)1 << r;
    all->at[i].ring = r;
  }
}

static void plan(Direct *x, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_SPUT) x->others += smem_bytes(ir_type(x->f, op->res[0]));
    for (uint32_t i = 0; i < op->nregions; i++) plan(x, op->regions[i]);
    if (op->code != OP_FOR) continue;
    Copies all = copies_of(x, op);
    take_rings(x, &all);
    for (uint32_t i = 0; i < all.n; i++)
      x->others -= smem_bytes(ir_type(x->f, all.at[i].put->res[0]));
  }
}

static bool fits(const Direct *x, const Target *t) {
  uint64_t bytes = x->others, room = t->gpu.smem / 2;
  for (uint32_t i = 0; i < x->rings.n; i++)
    bytes += SLOTS * smem_bytes(&x->rings.at[i].tile);
  return x->rings.n && x->rings.n <= 64 &&
         bytes <= (room < HW_LDS_REACH ? room : HW_LDS_REACH);
}

static void make_rings(Direct *x) {
  Op *first = x->f->body->first->next;
  Builder b = {.fn = x->f,
               .region = x->f->body,
               .before = first,
               .span = first->span};
  for (uint32_t i = 0; i < x->rings.n; i++) {
    Type t = x->rings.at[i].tile;
    t.ext[2] = SLOTS;
    x->rings.at[i].v = ir_op(&b, OP_SALLOC, NULL, 0, NULL, 0, &t, 1, 0)->res[0];
  }
}

// ---------------------------------------------------------------- the new loop
static void wait(Builder *b) {
  IrAttr none = attr_i(AT_PENDING, 0);
  ir_op(b, OP_CP_WAIT, NULL, 0, &none, 1, NULL, 0, 0);
}

static Value slot_of(const Direct *x, Builder *b, const Copy *c, Value at) {
  const Ring *r = &x->rings.at[c->ring];
  Value args[] = {r->v, at};
  return ir_op(b, OP_SLOT, args, 2, NULL, 0, &r->tile, 1, 0)->res[0];
}

// The box of the loop's coordinate `at`.
static void copy(const Direct *x, Builder *b, const Op *loop, const Copy *c,
                 Value at, Value slot) {
  ValueMap m = {.arena = x->a};
  vmap_put(&m, loop->regions[0]->params.at[0], at);
  Value args[MAX_AXES + 2] = {slot_of(x, b, c, slot), c->load->args[0]};
  for (uint32_t i = 1; i < c->load->nargs; i++) {
    Value v = c->load->args[i], origin = v;
    if (ir_type(x->f, v)->kind == TK_FRAG) origin_of(x->f, v, &origin);
    args[i + 1] =
        origin ? prefetch_copy(b, loop, origin, &m) : ir_const_i(b, DT_I32, 0);
  }
  IrAttr tile = attr_list(AT_TILE, c->axes, 2);
  ir_op(b, OP_CP_ASYNC, args, c->load->nargs + 1, &tile, 1, NULL, 0, 0);
}

static void copy_all(const Direct *x, Builder *b, const Op *loop,
                     const Copies *all, Value at, Value slot) {
  for (uint32_t i = 0; i < all->n; i++) copy(x, b, loop, &all->at[i], at, slot);
  ir_bare(b, OP_CP_COMMIT);
}

static bool moved(const Copies *all, const Op *op) {
  for (uint32_t i = 0; i < all->n; i++)
    if (all->at[i].load == op || all->at[i].put == op) return true;
  return false;
}

static void fill_body(const Direct *x, const Op *loop, const Copies *all,
                      Region *to) {
  Region *from = loop->regions[0];
  Builder b = {.fn = x->f, .region = to, .span = loop->span};
  ValueMap m = {.arena = x->a};
  for (uint32_t i = 0; i < from->params.n; i++) {
    const ValueInfo v = *ir_info(x->f, from->params.at[i]);
    vmap_put(&m, from->params.at[i], ir_region_param(to, v.type, v.hint));
  }
  Value at = ir_region_param(to, type_scalar(DT_I32), "at");
  wait(&b);
  ir_bare(&b, OP_GSYNC);
  Value other = ir_2(&b, OP_SUB, ir_const_i(&b, DT_I32, 1), at);
  copy_all(x, &b, loop, all, prefetch_next(&b, loop, to->params.at[0]), other);
  for (uint32_t i = 0; i < all->n; i++)
    vmap_put(&m, all->at[i].put->res[0], slot_of(x, &b, &all->at[i], at));
  const Op *y = from->last;
  for (const Op *op = from->first; op != y; op = op->next)
    if (!moved(all, op)) ir_clone(&b, x->f, op, &m, NULL);
  Value *out = NEWN(x->a, Value, y->nargs + 1);
  for (uint32_t i = 0; i < y->nargs; i++) out[i] = vmap_get(&m, y->args[i]);
  out[y->nargs] = other;
  ir_yield(&b, out, y->nargs + 1);
}

static void rewrite(Direct *x, Op *loop, const Copies *all) {
  Builder b = {.fn = x->f,
               .region = loop->parent,
               .before = loop,
               .span = loop->span};
  Value *args = NEWN(x->a, Value, loop->nargs + 1);
  Type *types = NEWN(x->a, Type, loop->nres + 1);
  memcpy(args, loop->args, loop->nargs * sizeof *args);
  for (uint32_t i = 0; i < loop->nres; i++)
    types[i] = *ir_type(x->f, loop->res[i]);
  types[loop->nres] = type_scalar(DT_I32);
  Value zero = args[loop->nargs] = ir_const_i(&b, DT_I32, 0);
  if (x->used || loop->parent != x->f->body) ir_bare(&b, OP_GSYNC);
  x->used = true;
  copy_all(x, &b, loop, all, prefetch_first(&b, loop), zero);
  Op *made = ir_op(&b, OP_FOR, args, loop->nargs + 1, loop->attrs, loop->nattrs,
                   types, loop->nres + 1, 1);
  fill_body(x, loop, all, made->regions[0]);
  wait(&b);
  for (uint32_t i = 0; i < loop->nres; i++) {
    ir_info(x->f, made->res[i])->hint = ir_info(x->f, loop->res[i])->hint;
    ir_replace_uses(x->f, loop->res[i], made->res[i]);
  }
  ir_erase(loop);
}

static void region(Direct *x, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    Copies all = {0};
    if (op->code == OP_FOR) all = copies_of(x, op);
    for (uint32_t i = 0; !all.n && i < op->nregions; i++)
      region(x, op->regions[i]);
    take_rings(x, &all);
    if (all.n) rewrite(x, op, &all);
  }
}

bool pass_lds_dma(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  const Target *t = opt->target;
  if (!t->gpu.direct) return true;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    const Op *launch = ir_launch(f);
    if (!launch || !ir_attr_i(launch, AT_DENSE, 0)) continue;
    Direct x = {.f = f, .a = m->arena};
    x.chunk = t->gpu.direct * (uint32_t)ir_attr_i(launch, AT_THREADS, 0);
    plan(&x, f->body);
    if (!fits(&x, t)) continue;
    make_rings(&x);
    region(&x, f->body);
  }
  return true;
}
