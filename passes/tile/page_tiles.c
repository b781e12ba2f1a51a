// page_tiles: a tile of keys that lies in one page has one entry of its table.
//
//   before  %i = add(%k0, iota())          %k0, of a loop, is a multiple of 16
//           %p = load(%pt, floordiv(%i, 64))
//           %x = load(%K, %p, mod(%i, 64), %d)
//   after   %q = load(%pt, floordiv(%k0, 64))
//           %x = load(%K, %q, add(mod(%k0, 64), iota()), %d)
//
// where the tile's size divides the page's. What was gathered key by key is a
// box of the tensor then, which the hardware copies. Indices of tiles are made
// anew; what else uses the entries, masks for example, stays.
//
// On sm_90a, where the page's size divides the tile's, each page has its entry:
//
//   before  %p = load(%pt, floordiv(%i, 16))            tiles of 32 keys
//           %x = load(%K, %p, mod(%i, 16), %d)
//   after   %p0 = load(%pt, floordiv(%k0, 16))
//           %p1 = load(%pt, floordiv(add(%k0, 16), 16))
//           %p = select(lt(iota(), 16), %p0, %p1)
//           %x = load(%K, %p, mod(iota(), 16), %d)
//
// which pass lower_gpu takes for a box in pieces. AMD's loads of one page are
// accesses of buffers, a step ahead (passes/gpu/prefetch.c). Level tile, GPUs;
// runs behind tile. Tests: test/passes/page_tiles/, test/wave/amd-pages.test.
#include "ir/target.h"
#include "passes/support/cost.h"
#include "passes/pass.h"

typedef struct Pages {
  Func *f;
  Builder b;      // in front of the load
  int64_t rows;   // of a page, of which a tile has several; 0: it lies in one
  int64_t first;  // row of the tile where the page begins
  bool pieces;    // tiles may have several
} Pages;

// Is v a multiple of n, whatever the arguments are?
static bool is_multiple(const Func *f, Value v, int64_t n) {
  const Op *op = ir_def(f, v);
  double c;
  if (ir_const_value(f, v, &c)) return (int64_t)c % n == 0;
  if (!op) {
    const Region *r = ir_info(f, v)->region;
    const Op *loop = r ? r->parent : NULL;
    return loop && loop->code == OP_FOR && r->params.at[0] == v &&
           is_multiple(f, loop->args[0], n) && is_multiple(f, loop->args[2], n);
  }
  switch (op->code) {
  case OP_DIM:
    return dim_divisor(&f->mod->dims, (Dim)ir_attr_i(op, AT_DIM, 0)) % n == 0;
  case OP_MUL:
    return is_multiple(f, op->args[0], n) || is_multiple(f, op->args[1], n);
  case OP_ADD:
  case OP_SUB:
  case OP_MIN:
  case OP_MAX:
    return is_multiple(f, op->args[0], n) && is_multiple(f, op->args[1], n);
  default: return false;
  }
}

// Keys of a tile of n that lie in one page, 0: they do not.
static int64_t keys_of(const Pages *p, int64_t page, int64_t n) {
  if (!p->rows) return page % n ? 0 : n;
  return page == p->rows && n % page == 0 ? page : 0;
}

// op = floordiv or mod of a tile's coordinates, which lie in one page: a
// multiple of the tile's size, and iota.
static const Op *in_page(const Pages *p, const Op *op) {
  const Func *f = p->f;
  double page;
  int64_t n;
  if ((op->code != OP_FLOORDIV && op->code != OP_MOD) ||
      !ir_const_value(f, op->args[1], &page) || page < 2)
    return NULL;
  const Op *at = ir_def(f, op->args[0]);
  const Type *t = ir_type(f, op->args[0]);
  if (!at || at->code != OP_ADD || t->n != 1 ||
      !dim_is_const(&f->mod->dims, t->size[0], &n) || n < 2)
    return NULL;
  n = keys_of(p, (int64_t)page, n);
  const Op *iota = ir_def(f, at->args[1]);
  bool tile = iota && iota->code == OP_IOTA && !ir_type(f, at->args[0])->n;
  return n && tile && is_multiple(f, at->args[0], n) ? at : NULL;
}

static Value at_origin(Pages *p, const Op *op, const Op *at) {
  Value key = at->args[0];
  if (p->first)
    key = ir_2(&p->b, OP_ADD, key, ir_const_i(&p->b, DT_I64, p->first));
  return ir_2(&p->b, op->code, key, op->args[1]);
}

// v, if it is the same for all keys of the tile, 0: it is not. With `emit` it
// is made.
static Value same(Pages *p, Value v, bool emit) {
  const Op *op = ir_def(p->f, v);
  Value args[MAX_AXES + 1];
  if (!ir_type(p->f, v)->n) return v;
  if (!op || op->nargs > MAX_AXES) return 0;
  const Op *at = in_page(p, op);
  if (at) return op->code == OP_MOD ? 0 : emit ? at_origin(p, op, at) : v;
  bool load = op->code == OP_LOAD && !ir_is_stored(p->f->body, op->args[0]);
  if (!load && !(op_info(op->code)->flags & OPF_ELEM)) return 0;
  for (uint32_t i = 0; i < op->nargs; i++) {
    bool tensor = load && !i;
    args[i] = tensor ? op->args[i] : same(p, op->args[i], emit);
    if (!args[i]) return 0;
  }
  if (!emit) return v;
  return ir_op(&p->b, op->code, args, op->nargs, op->attrs, op->nattrs, NULL, 1,
               0)
      ->res[0];
}

// v as a number of the tile plus iota, 0: it is not.
static Value steps(Pages *p, Value v, bool emit) {
  const Op *op = ir_def(p->f, v);
  if (!op) return 0;
  if (op->code == OP_IOTA) return v;
  const Op *at = in_page(p, op);
  if (at && op->code == OP_MOD)
    return emit ? ir_2(&p->b, OP_ADD, at_origin(p, op, at), at->args[1]) : v;
  for (uint32_t i = 0; op->code == OP_ADD && i < 2; i++) {
    Value number = op->args[i], rest = op->args[1 - i];
    if (!same(p, number, false) || !steps(p, rest, false)) continue;
    if (!emit) return v;
    number = same(p, number, true);
    return ir_2(&p->b, OP_ADD, number, steps(p, rest, true));
  }
  return 0;
}

static bool of_keys(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return t->n == 1 && f->axes.at[t->axis[0]].role == AX_KEY;
}

static void at(Pages *p, Op *op) {
  p->b = (Builder){.fn = p->f,
                   .region = op->parent,
                   .before = op,
                   .span = op->span};
}

// A sum with an operand that is one number for the tile, or what is left of a
// division.
static bool has_page(Pages *p, const Op *op) {
  if (op->code == OP_MOD) return in_page(p, op) != NULL;
  for (uint32_t i = 0; op->code == OP_ADD && i < 2; i++)
    if (of_keys(p->f, op->args[i]) && same(p, op->args[i], false)) return true;
  return false;
}

// Coordinates behind a table: what masks compare is one number and iota too.
static void renumber(Pages *p, Op *op) {
  Value v = op->nres == 1 ? op->res[0] : 0;
  if (!v || !of_keys(p->f, v) || !has_page(p, op) || !steps(p, v, false))
    return;
  at(p, op);
  ir_replace_uses(p->f, v, steps(p, v, true));
}

// Which page of how many rows v is what is left of a division by, or NULL.
static const Op *slot_in(Pages *p, Value v) {
  const Op *op = ir_def(p->f, v);
  double page;
  if (!op || op->code != OP_MOD || !ir_const_value(p->f, op->args[1], &page) ||
      page < COST_PAGE_LEAST)
    return NULL;
  p->rows = (int64_t)page;
  return in_page(p, op);
}

// v of each of n pages, as one value of the tile.
static Value of_pages(Pages *p, Value v, Value iota, int64_t n) {
  Value one[COST_PAGES_MOST] = {0}, all;
  for (int64_t i = 0; i < n; i++) {
    p->first = i * p->rows;
    one[i] = same(p, v, true);
  }
  all = one[n - 1];
  for (int64_t i = n - 1; i-- > 0;) {
    Value end = ir_const_i(&p->b, DT_I64, (i + 1) * p->rows);
    all = ir_3(&p->b, OP_SELECT, ir_2(&p->b, OP_LT, iota, end), one[i], all);
  }
  p->first = 0;
  return all;
}

// A load of a tile of several pages: one index is a slot, another an entry.
static void in_pieces(Pages *p, Op *op) {
  uint32_t slot = 0, entry = 0, others = 0;
  const Op *key = NULL;
  int64_t n = 0;
  for (uint32_t i = 1; i < op->nargs && !key; i++)
    if (of_keys(p->f, op->args[i]) && (key = slot_in(p, op->args[i]))) slot = i;
  for (uint32_t i = 1; i < op->nargs && key; i++) {
    if (i == slot || !of_keys(p->f, op->args[i])) continue;
    bool one = !entry && same(p, op->args[i], false);
    if (one) entry = i;
    else others++;
  }
  if (!key || !entry || others ||
      !dim_is_const(&p->f->mod->dims, ir_type(p->f, op->args[slot])->size[0],
                    &n) ||
      n / p->rows > COST_PAGES_MOST)
    return;
  at(p, op);
  op->args[entry] = of_pages(p, op->args[entry], key->args[1], n / p->rows);
  op->args[slot] =
      ir_2(&p->b, OP_MOD, key->args[1], ir_const_i(&p->b, DT_I64, p->rows));
}

// A load of a tile whose other indices are the same for all of its keys.
static void visit(void *data, Op *op) {
  Pages *p = data;
  bool lies[MAX_AXES + 1] = {false};
  uint32_t stepped = 0;
  p->rows = 0;
  renumber(p, op);
  if (op->code != OP_LOAD || ir_type(p->f, op->res[0])->n != 2) return;
  for (uint32_t i = 1; i < op->nargs; i++) {
    if (!of_keys(p->f, op->args[i])) continue;
    lies[i] = same(p, op->args[i], false) != 0;
    stepped += !lies[i];
  }
  bool some = false;
  for (uint32_t i = 1; i < op->nargs; i++) some |= lies[i];
  if (!some && p->pieces) in_pieces(p, op);
  if (stepped != 1) return;
  at(p, op);
  for (uint32_t i = 1; i < op->nargs; i++)
    if (lies[i]) op->args[i] = same(p, op->args[i], true);
}

bool pass_page_tiles(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Pages p = {.f = m->funcs.at[i], .pieces = opt->target->gpu.hopper};
    ir_walk(p.f->body, visit, &p);
  }
  return true;
}
