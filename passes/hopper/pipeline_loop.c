// pipeline_loop: products become asynchronous, and a loop over keys is rotated
// so that the tensor cores always have a product to do while the scalar units
// work.
//
//   for(%lo, %hi, %s, %m, %acc) ({              %S = wgmma(%q, K(%lo)), wait
//     ^(%i, %m1, %a1):                          %m', %p, %x = softmax(%S, %m)
//     %k = sfill(%K, %i)                        for(%lo + %s, %hi, %s, ..):
//     %S = mma(%q, %k, 0)                         %S = wgmma(%q, K(%i))
//     %m2, %p, %x = softmax(%S, %m1)      ->      %O = wgmma(%p1, V(%i - %s), %c1)
//     %c = mul(%a1, %x)                           wait %S, softmax -> %p2, %x
//     %v = sfill(%V, %i)                          wait %O, %c2 = mul(%O, %x)
//     %a2 = mma(%p, %v, %c)                     %O = wgmma(%p, V(last), %c), wait
//     yield(%m2, %a2)
//   })
//
// The body falls into three parts: `ahead`, the products that depend on the
// coordinate alone (one may add to another); `behind`, products that only add
// to a carried accumulator, possibly scaled first; and all the rest. The rest
// of a step runs while the products of the step before are added up
// (intra-warpgroup overlap of FlashAttention-3, arXiv 2407.08608, section 3.2,
// for any row function). A loop that has no products but those ahead, as a pass
// that counts scores, waits for each of them where it stands: other groups fill
// the time. Other loops are left alone, and programs for which warp_specialize
// has no rings. Level frag; sm_90a. Needs: lower_gpu.
// Tests: test/passes/pipeline_loop/.
#include "passes/support/cost.h"
#include "passes/support/full_tiles.h"
#include "passes/support/needed.h"
#include "ir/layout.h"
#include "passes/hopper/beside.h"
#include "passes/hopper/scaled.h"

enum { MAX_PRODUCTS = 8 };

// A product that is added to carried value `at`.
typedef struct Behind {
  Op *mma;
  Op *scale;  // mul of the carried value, or NULL
  uint32_t at;
} Behind;

// A product of what the step puts in shared memory, which is added to memory.
typedef struct Beside {
  Op *put, *mma, *store;
  uint32_t words;  // what is put is the operand of that product behind, or
                   // carried by itself: as number nbehind and more
  Value all;       // the tile of all groups that they multiply in turn, or 0
} Beside;

typedef struct Stage {
  Func *f;
  const Rings *rings;
  Arena *arena;
  Op *loop;
  Region *body;
  uint32_t nahead, nbehind, nbeside;
  uint32_t nwords;  // operands carried: nbehind, and those of products beside
  bool shares;      // products beside are of what all groups put, in turn
  Op *ahead[MAX_PRODUCTS];
  uint32_t
      onto[MAX_PRODUCTS];  // number, from 1, of the one ahead that it adds to
  Behind behind[MAX_PRODUCTS];
  Beside beside[MAX_PRODUCTS];
  bool *carried;  // by value: depends on carried values
  bool *late;     // by value: depends on a product of the step
  bool *words;    // by value: an operand of a product behind, or made of it
  bool sums;      // rows carry sums of these words
  bool *later;    // by value: of tiles that products behind alone read
  bool brief;     // tasks are short: nothing is beside their first product
  bool once;      // keys are read once, by few rows
} Stage;

// ---------------------------------------------------------------- analysis
static bool op_carried(const Stage *s, const Op *op);

static bool region_carried(const Stage *s, const Region *r) {
  for (const Op *op = r->first; op; op = op->next)
    if (op_carried(s, op)) return true;
  return false;
}

static bool op_carried(const Stage *s, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++)
    if (s->carried[op->args[i]]) return true;
  for (uint32_t i = 0; i < op->nregions; i++)
    if (region_carried(s, op->regions[i])) return true;
  return false;
}

static void find_carried(Stage *s) {
  s->carried = NEWN(s->arena, bool, s->f->values.n);
  s->late = NEWN(s->arena, bool, s->f->values.n);
  for (const Op *op = s->body->first; op; op = op->next) {
    bool late = op->code == OP_MMA || op->nregions;
    for (uint32_t i = 0; i < op->nargs; i++) late |= s->late[op->args[i]];
    for (uint32_t i = 0; i < op->nres; i++) s->late[op->res[i]] = late;
  }
  for (uint32_t i = 1; i < s->body->params.n; i++)
    s->carried[s->body->params.at[i]] = true;
  for (const Op *op = s->body->first; op; op = op->next) {
    bool c = op_carried(s, op);
    for (uint32_t i = 0; i < op->nres; i++) s->carried[op->res[i]] = c;
  }
}

static bool is_zero(const Stage *s, Value v) {
  double k;
  return ir_const_value(s->f, v, &k) && k == 0;
}

static bool starts_at_zero(const Stage *s, const Op *mma) {
  return mma->nargs == 2 || is_zero(s, mma->args[2]);
}

// The only use of v is by op.
static bool only_use(const Stage *s, Value v, const Op *op) {
  if (ir_count_uses(s->f, v) != 1) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (op->args[i] == v) return true;
  return false;
}

static bool find_behind(const Stage *s, Op *mma, Behind *b) {
  const Op *yield = s->body->last;
  if (mma->nargs < 3 || !only_use(s, mma->res[0], yield)) return false;
  *b = (Behind){.mma = mma};
  while (yield->args[b->at] != mma->res[0]) b->at++;
  Value c = mma->args[2], param = s->body->params.at[1 + b->at];
  Op *mul = ir_def(s->f, c);
  if (mul && mul->code == OP_MUL && mul->parent == s->body) {
    if (!only_use(s, c, mma)) return false;
    b->scale = mul;
    c = mul->args[mul->args[0] != param];
  }
  if (c != param || ir_count_uses(s->f, param) != 1) return false;
  // Shared tiles are not carried.
  return ir_type(s->f, mma->args[0])->kind == TK_FRAG &&
         !s->carried[mma->args[1]];
}

// The operands lie in registers, in tiles copied from memory or in such that a
// group of their own computes. Any other computed tile (sput) gets its buffer
// from bufferize_gpu, which knows products as finished ops: it would lend the
// buffer on while an asynchronous product still reads it. One that is put in
// front of the loop stays until its end. Where tiles are made, shared memory is
// what steps wait for, and each warp of four would read them for itself.
static bool is_streamed(const Stage *s, const Op *mma) {
  for (uint32_t i = 0; i < 2; i++) {
    const Op *def = ir_def(s->f, mma->args[i]);
    if (ir_type(s->f, mma->args[i])->kind != TK_SMEM) continue;
    bool before = def && def->code == OP_SPUT && def->parent != s->body;
    if (before && (s->rings->makers || s->once)) continue;
    if (!def || !hop_rings_fills(s->rings, def)) return false;
  }
  return true;
}

// Few rows or columns are multiplied by warps.
static bool is_group_product(const Stage *s, const Op *mma) {
  const Type *a = ir_type(s->f, mma->args[0]), *c = ir_type(s->f, mma->res[0]);
  const Type *b = ir_type(s->f, mma->args[1]);
  uint32_t depth = a->ext[ir_attr_i(mma, AT_TRANSA, 0) ? 0 : 1];
  return dtype_size(a->dtype) == dtype_size(b->dtype) &&
         frag_is_group_product(c, a->dtype, depth);
}

// The product ahead, by number from 1, to which alone op adds; 0: none.
static uint32_t added_to(const Stage *s, const Op *op) {
  for (uint32_t i = 0; op->nargs > 2 && i < s->nahead; i++)
    if (s->ahead[i]->res[0] == op->args[2])
      return ir_count_uses(s->f, op->args[2]) == 1 ? i + 1 : 0;
  return 0;
}

// Does op need nothing of the step but its coordinate, and v?
static bool is_of_coordinate(const Stage *s, const Op *op, Value v) {
  for (uint32_t i = 0; i < op->nargs; i++)
    if (op->args[i] != v && (s->carried[op->args[i]] || s->late[op->args[i]]))
      return false;
  return true;
}

// A product of what this step puts and of tiles from in front of the loop, all
// of which is added to memory.
static bool find_beside(const Stage *s, Op *mma, Beside *b) {
  Op *put = ir_def(s->f, mma->args[0]), *tile = ir_def(s->f, mma->args[1]);
  if (mma->nargs != 2 || !put || put->code != OP_SPUT ||
      put->parent != s->body || !tile || tile->parent == s->body ||
      !hop_rings_fills(s->rings, tile) || !only_use(s, put->res[0], mma))
    return false;
  Op *store = ir_first_use(mma, mma->res[0]);
  *b = (Beside){.put = put, .mma = mma, .store = store};
  return store && store->code == OP_GSTORE && store->parent == s->body &&
         ir_attr_i(store, AT_ADD, 0) && !ir_attr_i(store, AT_MASKED, 0) &&
         store->args[1] == mma->res[0] && only_use(s, mma->res[0], store) &&
         is_of_coordinate(s, store, mma->res[0]);
}

// The words that products beside put are operands of others, or carried too.
static void find_put(Stage *s) {
  s->nwords = s->nbehind;
  for (uint32_t i = 0; i < s->nbeside; i++) {
    Beside *b = &s->beside[i];
    b->words = 0;
    while (b->words < s->nbehind &&
           s->behind[b->words].mma->args[0] != b->put->args[0])
      b->words++;
    if (b->words == s->nbehind) b->words = s->nwords++;
  }
}

static bool classify(Stage *s) {
  find_carried(s);
  for (Op *op = s->body->first; op; op = op->next) {
    if (op->code != OP_MMA) continue;
    if (s->nahead == MAX_PRODUCTS || s->nbehind == MAX_PRODUCTS ||
        s->nbeside == MAX_PRODUCTS || !is_group_product(s, op))
      return false;
    if (find_beside(s, op, &s->beside[s->nbeside])) {
      s->nbeside++;
      continue;
    }
    if (!is_streamed(s, op)) return false;
    // Warps with keys of their own multiply by themselves.
    if (ir_attr_i(op, AT_DEALT, 0)) return false;
    // Groups with columns of their own need a tile of keys until the end of its
    // step: another step's would have no room. They fill each other's gaps.
    if (op->nargs > 3) return false;
    uint32_t onto = added_to(s, op);
    if (!op_carried(s, op) && (onto || starts_at_zero(s, op))) {
      s->onto[s->nahead] = onto;
      s->ahead[s->nahead++] = op;
    } else if (find_behind(s, op, &s->behind[s->nbehind])) s->nbehind++;
  }
  find_put(s);
  return s->nahead && s->nbehind;
}

// ---------------------------------------------------------------- pieces
// A copy of parts of the body for one coordinate.
typedef struct Copy {
  Stage *s;
  Builder *b;
  ValueMap map;
} Copy;

static Copy copy_at(Stage *s, Builder *b, Value i) {
  Copy c = {.s = s, .b = b, .map = {.arena = s->arena}};
  vmap_put(&c.map, s->body->params.at[0], i);
  return c;
}

static bool in_body(const Stage *s, const Op *op) {
  return op && op->parent == s->body;
}

// v's value in this copy; what it needs is cloned first.
static Value need(Copy *c, Value v) {
  return needed_clone(c->b, c->s->body, &c->map, v);
}

static Value product(Builder *b, const Op *mma, Value x, Value y, Value c) {
  Value args[3] = {x, y, c};
  const Type t = *ir_type(b->fn, mma->res[0]);
  return ir_op(b, OP_WGMMA, args, c ? 3 : 2, mma->attrs, mma->nattrs, &t, 1, 0)
      ->res[0];
}

static void wait(Builder *b, Value *v, uint32_t n, int64_t pending) {
  Type types[MAX_PRODUCTS];
  IrAttr at = attr_i(AT_PENDING, pending);
  for (uint32_t i = 0; i < n; i++) types[i] = *ir_type(b->fn, v[i]);
  Op *op = ir_op(b, OP_WG_WAIT, v, n, &at, 1, types, n, 0);
  for (uint32_t i = 0; i < n; i++) v[i] = op->res[i];
}

static uint32_t uses_behind(const Stage *s, Value v) {
  uint32_t uses = 0;
  for (uint32_t i = 0; i < s->nbehind; i++)
    uses += s->behind[i].mma->args[1] == v;
  return uses;
}

// A shared tile that only products behind read: it is filled a step later.
static bool is_behinds(const Stage *s, const Op *op) {
  return hop_rings_fills(s->rings, op) &&
         uses_behind(s, op->res[0]) == ir_count_uses(s->f, op->res[0]);
}

// And what only such a tile is computed of.
static void find_later(Stage *s) {
  s->later = NEWN(s->arena, bool, s->f->values.n);
  for (const Op *op = s->body->last; op; op = op->prev) {
    if (op->nres != 1 || op->nregions) continue;
    uint32_t uses = uses_behind(s, op->res[0]);
    bool tile = uses > 0;
    for (const Op *o = op->next; o && s->rings->makers; o = o->next)
      for (uint32_t i = 0; i < o->nargs && o->nres == 1; i++)
        uses += o->args[i] == op->res[0] && s->later[o->res[0]];
    s->later[op->res[0]] = uses && uses == ir_count_uses(s->f, op->res[0]) &&
                           (!tile || is_behinds(s, op));
  }
}

// The only fill of the body that reads its tensor.
static bool is_alone(const Stage *s, const Op *fill) {
  for (const Op *op = s->body->first; op; op = op->next)
    if (op != fill && op->code == OP_SFILL && op->args[0] == fill->args[0])
      return false;
  return true;
}

// Tiles that others read beside the products behind are filled for both: the
// producer of warp_specialize copies them once.
static void mark_visits(Copy *c, int64_t visit) {
  Stage *s = c->s;
  for (uint32_t i = 0; i < s->nbehind; i++) {
    Value v = s->behind[i].mma->args[1];
    const Op *fill = ir_def(s->f, v);
    if (in_body(s, fill) && fill->code == OP_SFILL && !is_behinds(s, fill) &&
        is_alone(s, fill))
      ir_set_attr(s->f, ir_def(s->f, need(c, v)), attr_i(AT_VISIT, visit));
  }
}

// Issues the products ahead for the copy's coordinate.
static void issue_ahead(Copy *c, Value *v) {
  Stage *s = c->s;
  for (uint32_t i = 0; i < s->nahead; i++)
    for (uint32_t j = 0; j < 2; j++) need(c, s->ahead[i]->args[j]);
  mark_visits(c, 1);
  ir_bare(c->b, OP_WG_FENCE);
  for (uint32_t i = 0; i < s->nahead; i++) {
    const Op *m = s->ahead[i];
    Value onto = s->onto[i] ? v[s->onto[i] - 1] : 0;
    Value y = need(c, m->args[1]);
    v[i] = product(c->b, m, need(c, m->args[0]), y, onto);
  }
  ir_bare(c->b, OP_WG_COMMIT);
}

// Waits for the products ahead, of a chain for the last one.
static void wait_ahead(Copy *c, Value *v, int64_t pending) {
  const Stage *s = c->s;
  Value last[MAX_PRODUCTS];
  uint32_t at[MAX_PRODUCTS], n = 0;
  for (uint32_t i = 0; i < s->nahead; i++) {
    bool more = false;
    for (uint32_t k = 0; k < s->nahead; k++) more |= s->onto[k] == i + 1;
    if (!more) at[n] = i, last[n++] = v[i];
  }
  wait(c->b, last, n, pending);
  for (uint32_t i = 0; i < n; i++)
    vmap_put(&c->map, s->ahead[at[i]]->res[0], last[i]);
}

// Issues those behind: p are the carried A operands, acc the accumulators.
static void issue_behind(Copy *c, const Value *p, const Value *acc, Value *v) {
  Stage *s = c->s;
  for (uint32_t i = 0; i < s->nbehind; i++) need(c, s->behind[i].mma->args[1]);
  mark_visits(c, 2);
  ir_bare(c->b, OP_WG_FENCE);
  for (uint32_t i = 0; i < s->nbehind; i++) {
    const Op *m = s->behind[i].mma;
    v[i] = product(c->b, m, p[i], need(c, m->args[1]), acc[i]);
  }
  ir_bare(c->b, OP_WG_COMMIT);
}

// ---------------------------------------------------------------- beside
static Value gathered(Copy *c, const Beside *x, Value words, int64_t visit) {
  Type all = hop_beside_put(c->s->rings, x->mma);
  return hop_beside_gathered(c->b, all, words, visit);
}

// What products beside multiply: put before anything reads these registers.
static void put_words(Copy *c, const Value *p) {
  Stage *s = c->s;
  for (uint32_t i = 0; i < s->nbeside; i++) {
    const Beside *x = &s->beside[i];
    Value v = p[x->words];
    Type t = *ir_type(s->f, x->put->res[0]);
    if (s->shares) gathered(c, x, v, 1);
    else v = ir_op(c->b, OP_SPUT, &v, 1, NULL, 0, &t, 1, 0)->res[0];
    vmap_put(&c->map, x->put->res[0], v);
  }
}

// Issues the products beside; p: of words that have been put.
static void issue_beside(Copy *c, const Value *p, Value *v) {
  Stage *s = c->s;
  if (!s->nbeside) return;
  Value tile[MAX_PRODUCTS];
  for (uint32_t i = 0; i < s->nbeside; i++) {
    const Beside *x = &s->beside[i];
    tile[i] = s->shares ? gathered(c, x, p[x->words], 2)
                        : vmap_get(&c->map, x->mma->args[0]);
  }
  ir_bare(c->b, OP_WG_FENCE);
  for (uint32_t i = 0; i < s->nbeside; i++) {
    const Beside *x = &s->beside[i];
    v[i] =
        product(c->b, x->mma, tile[i], s->shares ? x->all : x->mma->args[1], 0);
    if (s->shares) ir_set_attr(s->f, ir_def(s->f, v[i]), attr_i(AT_TURN, 1));
  }
  ir_bare(c->b, OP_WG_COMMIT);
}

// Is it this group's turn at that coordinate? Or, of two, the other one's?
static Value turn_at(Copy *c, Value at, bool other) {
  Stage *s = c->s;
  const Type t = type_scalar(DT_I32);
  Value n = ir_2(c->b, OP_FLOORDIV, at, s->loop->args[2]);
  Value groups = ir_const_i(c->b, ir_type(s->f, n)->dtype, s->rings->groups);
  n = ir_cast(c->b, DT_I32, ir_2(c->b, OP_MOD, n, groups));
  Value group = ir_op(c->b, OP_GROUP, NULL, 0, NULL, 0, &t, 1, 0)->res[0];
  return ir_2(c->b, other ? OP_NE : OP_EQ, n, group);
}

// Adds v, products beside of the copy's coordinate, to memory; `when`: only if
// that holds, 0: always.
static void add_beside(Copy *c, const Value *v, Value when) {
  Stage *s = c->s;
  for (uint32_t i = 0; i < s->nbeside; i++) {
    const Op *store = s->beside[i].store;
    Value args[MAX_AXES + 3];
    uint32_t n = store->nargs;
    for (uint32_t k = 0; k < n; k++)
      args[k] = k == 1 ? v[i] : need(c, store->args[k]);
    IrAttr at[] = {attr_i(AT_ADD, 1), attr_i(AT_MASKED, 1), attr_i(AT_TURN, 2)};
    if (when) args[n++] = when;
    ir_op(c->b, OP_GSTORE, args, n, at, when ? 3 : 1, NULL, 0, 0);
  }
}

static bool is_product(const Stage *s, const Op *op) {
  for (uint32_t i = 0; i < s->nbeside; i++)
    if (op == s->beside[i].put || op == s->beside[i].mma ||
        op == s->beside[i].store)
      return true;
  for (uint32_t i = 0; i < s->nahead; i++)
    if (op == s->ahead[i]) return true;
  for (uint32_t i = 0; i < s->nbehind; i++)
    if (op == s->behind[i].mma || op == s->behind[i].scale) return true;
  return false;
}

static bool made(const Copy *c, const Op *op) {
  return op->nres && vmap_get(&c->map, op->res[0]) != op->res[0];
}

// Rows and columns that depend on the coordinate alone are asked for while the
// products run; for tiles there are no registers.
static void fetch(Copy *c) {
  for (Op *op = c->s->body->first; op; op = op->next)
    if (op->code == OP_GLOAD && !op_carried(c->s, op) &&
        !c->s->late[op->res[0]] &&
        ir_type(c->s->f, op->res[0])->slice != SLICE_NONE)
      need(c, op->res[0]);
}

// Everything but the products; operands of products are cloned where needed,
// and so are sums of words that a product is still reading.
static void rest(Copy *c) {
  const Op *last = c->s->body->last;
  for (Op *op = c->s->body->first; op != last; op = op->next) {
    if (is_product(c->s, op) || made(c, op)) continue;
    if (op->nres && c->s->later[op->res[0]]) continue;
    if (c->s->sums && op->nres && c->s->words[op->res[0]]) continue;
    ir_clone(c->b, c->s->f, op, &c->map, NULL);
  }
}

// Warps whose rows all have the factor 1 do not multiply.
static Value scaled(Copy *c, const Behind *b, Value v) {
  if (!b->scale) return v;
  uint32_t at = b->scale->args[0] == c->s->body->params.at[1 + b->at];
  Value old = b->scale->args[at], x = need(c, old);
  Value some = hop_unless_one(c->s->f, old);
  if (!some) return ir_2(c->b, OP_MUL, v, x);
  return hop_scaled(c->b, v, x, need(c, some));
}

// ---------------------------------------------------------------- the loop
// What the rotated loop carries: the loop's values, of which the accumulators
// are scaled but lack the last product, the A operands of that product and what
// is put, and products beside that are to be added to memory.
typedef struct State {
  uint32_t n;
  Value *v;  // loop->nres values, then nwords operands, then nbeside products
} State;

// acc: products behind, then those beside.
static State yielded(Copy *c, const Value *acc) {
  Stage *s = c->s;
  const Op *yield = s->body->last;
  uint32_t n = yield->nargs + s->nwords + s->nbeside;
  State st = {n, NEWN(s->arena, Value, n)};
  for (uint32_t i = 0; i < s->nbehind; i++) {
    st.v[s->behind[i].at] = acc[i];
    st.v[yield->nargs + i] = need(c, s->behind[i].mma->args[0]);
  }
  for (uint32_t i = 0; i < s->nbeside; i++) {
    const Beside *x = &s->beside[i];
    st.v[yield->nargs + x->words] = need(c, x->put->args[0]);
    st.v[yield->nargs + s->nwords + i] = acc[s->nbehind + i];
  }
  for (uint32_t i = 0; i < yield->nargs; i++)
    if (!st.v[i]) st.v[i] = need(c, yield->args[i]);
  return st;
}

// What v, an operand of a product, is rounded from; 0: nothing.
static Value wide_of(const Stage *s, Value v) {
  const Op *op = ir_def(s->f, v);
  double k;
  while (op && op->code == OP_SELECT && ir_const_value(s->f, op->args[2], &k))
    op = ir_def(s->f, op->args[1]);
  return op && op->code == OP_CAST ? op->args[0] : 0;
}

static bool is_row(const Func *f, Value v, bool partial) {
  const Type *t = ir_type(f, v);
  return t->kind == TK_FRAG && t->slice != SLICE_NONE && t->dtype == DT_F32 &&
         t->partial == partial;
}

// Words of 16 bits that rows are summed of, as where the reference is constant:
// they are made behind the wait for the product that reads those of the step
// before, and their sums with them.
static void find_words(Stage *s) {
  const Op *yield = s->body->last;
  s->words = NEWN(s->arena, bool, s->f->values.n);
  for (const Op *op = s->body->first; op != yield; op = op->next) {
    bool made = false;
    for (uint32_t i = 0; i < s->nbehind && op->nres; i++)
      made |= s->behind[i].mma->args[0] == op->res[0] && op->code == OP_CAST;
    for (uint32_t i = 0; i < op->nargs && !is_product(s, op); i++)
      made |= s->words[op->args[i]];
    if (made && (op->nregions || op->nres != 1)) return;
    if (made) s->words[op->res[0]] = true;
  }
  for (uint32_t i = 0; i < yield->nargs; i++) {
    bool row = is_row(s->f, yield->args[i], true) ||
               is_row(s->f, yield->args[i], false);
    s->sums |= row && s->words[yield->args[i]];
  }
}

// What must be done before the products behind are waited for: the sums of
// threads, which need all that was computed; else whatever rows carry; else
// what operands of the products to come are rounded from (they are made after
// the wait: their registers are being read).
static void pin(Copy *c, const State *st) {
  Value v[MAX_AXES];
  uint32_t n = 0, own = st ? c->s->loop->nres : 0;
  for (int parts = 1; parts >= 0 && !n; parts--)
    for (uint32_t i = 0; i < own && n < MAX_AXES; i++)
      if (is_row(c->s->f, st->v[i], parts)) v[n++] = st->v[i];
  bool rows = n > 0;
  for (uint32_t i = 0; i < c->s->nbehind && !rows; i++) {
    Value wide = wide_of(c->s, c->s->behind[i].mma->args[0]);
    if (wide) v[n++] = need(c, wide);
  }
  if (n) ir_op(c->b, OP_PIN, v, n, NULL, 0, NULL, 0, 0);
}

static void bind(Copy *c, const Value *v) {
  for (uint32_t i = 0; i < c->s->loop->nres; i++)
    vmap_put(&c->map, c->s->body->params.at[1 + i], v[i]);
}

// The coordinates at which the loop starts and ends, if it has at least one.
typedef struct Ends {
  Value first, last;
  bool back;
} Ends;

static Ends ends_of(const Stage *s, Builder *b) {
  const Op *loop = s->loop;
  Value lo = loop->args[0], hi = loop->args[1], step = loop->args[2];
  Value one = ir_const_i(b, ir_type(s->f, lo)->dtype, 1);
  Value n = ir_2(b, OP_SUB, ir_2(b, OP_SUB, hi, lo), one);
  n = ir_2(b, OP_MAX, n, ir_const_i(b, ir_type(s->f, lo)->dtype, 0));
  Value top = ir_2(b, OP_MUL, ir_2(b, OP_FLOORDIV, n, step), step);
  top = ir_2(b, OP_ADD, lo, top);
  bool back = ir_attr_i(loop, AT_REVERSE, 0) != 0;
  return (Ends){back ? top : lo, back ? lo : top, back};
}

// The first tile asks for no elements' sake whether all its keys are seen: its
// mask says the same, and `or` costs two instructions an element.
static void mask_always(Copy *c) {
  const Func *f = c->s->f;
  FullTiles full;
  if (!full_tiles(f, c->s->loop, &full)) return;
  for (const Op *op = c->s->body->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nargs && i < 2; i++) {
      const Op *at = ir_def(f, op->args[i]);
      bool asks = op->code == OP_OR || (op->code == OP_SELECT && !i);
      if (asks && at && at->code == OP_SPLAT && at->args[0] == full.value)
        vmap_put(&c->map, full.value, ir_const_i(c->b, DT_BOOL, 0));
    }
}

static Value zeros(Builder *b, Type t) {
  IrAttr zero = attr_f(AT_VALUE, 0);
  return ir_op(b, OP_CONST, NULL, 0, &zero, 1, &t, 1, 0)->res[0];
}

static State first_step(Stage *s, Builder *b, Value first) {
  Copy c = copy_at(s, b, first);
  Value v[MAX_PRODUCTS], acc[2 * MAX_PRODUCTS];
  mask_always(&c);
  bind(&c, s->loop->args + 3);
  if (s->brief) fetch(&c);
  issue_ahead(&c, v);
  fetch(&c);
  wait_ahead(&c, v, 0);
  rest(&c);
  for (uint32_t i = 0; i < s->nbehind; i++) {
    Value init = s->loop->args[3 + s->behind[i].at];
    acc[i] = is_zero(s, init) ? init : scaled(&c, &s->behind[i], init);
  }
  for (uint32_t i = 0; i < s->nbeside; i++) {  // adds nothing
    const Beside *x = &s->beside[i];
    acc[s->nbehind + i] = zeros(b, *ir_type(s->f, x->mma->res[0]));
    if (!s->shares) continue;
    gathered(&c, x, zeros(b, *ir_type(s->f, x->put->args[0])), 1);
  }
  return yielded(&c, acc);
}

// The coordinate so many steps before.
static Value steps_back(const Stage *s, Builder *b, Value at, bool back,
                        uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    at = ir_2(b, back ? OP_ADD : OP_SUB, at, s->loop->args[2]);
  return at;
}

static void step(Stage *s, Region *r, const State *in, Value i, bool back) {
  Builder b = {.fn = s->f, .region = r, .span = s->loop->span};
  Value before = steps_back(s, &b, i, back, 1);
  Copy c = copy_at(s, &b, i), prev = copy_at(s, &b, before);
  Value v[MAX_PRODUCTS], o[2 * MAX_PRODUCTS], acc[2 * MAX_PRODUCTS];
  const Value *words = in->v + s->loop->nres;
  bind(&c, in->v);
  for (uint32_t k = 0; k < s->nbehind; k++) acc[k] = in->v[s->behind[k].at];
  put_words(&prev, words);
  issue_ahead(&c, v);
  issue_behind(&prev, words, acc, o);
  if (s->nbeside) {
    Value when = s->shares ? turn_at(&c, i, true) : 0;
    Copy more =
        copy_at(s, &b, steps_back(s, &b, before, back, s->shares ? 2 : 1));
    add_beside(&more, words + s->nwords, when);
  }
  issue_beside(&prev, words, o + s->nbehind);
  fetch(&c);
  wait_ahead(&c, v, s->nbeside ? 2 : 1);
  rest(&c);
  uint32_t done = s->nbehind + s->nbeside;
  for (uint32_t k = 0; k < done; k++) acc[k] = o[k];
  State next = {0};
  if (!s->sums) next = yielded(&c, acc);
  pin(&c, s->sums ? NULL : &next);
  wait(&b, acc, done, 0);
  for (uint32_t k = 0; k < s->nbeside && !s->sums; k++)
    next.v[s->loop->nres + s->nwords + k] = acc[s->nbehind + k];
  if (s->sums) next = yielded(&c, acc);
  for (uint32_t k = 0; k < s->nbehind; k++)
    next.v[s->behind[k].at] = scaled(&c, &s->behind[k], acc[k]);
  ir_yield(&b, next.v, next.n);
}

static State rotated(Stage *s, Builder *b, const State *in, Ends e) {
  const Op *old = s->loop;
  Value *args = NEWN(s->arena, Value, 3 + in->n);
  Type *types = NEWN(s->arena, Type, in->n);
  args[0] = e.back ? e.last : ir_2(b, OP_ADD, e.first, old->args[2]);
  args[1] = e.back ? e.first : old->args[1];
  args[2] = old->args[2];
  for (uint32_t i = 0; i < in->n; i++) {
    args[3 + i] = in->v[i];
    types[i] = *ir_type(s->f, in->v[i]);
  }
  Op *loop = ir_op(b, OP_FOR, args, 3 + in->n, old->attrs, old->nattrs, types,
                   in->n, 1);
  Region *r = loop->regions[0];
  State st = {in->n, NEWN(s->arena, Value, in->n)};
  Value i = ir_region_param(r, *ir_type(s->f, args[0]),
                            ir_info(s->f, s->body->params.at[0])->hint);
  for (uint32_t k = 0; k < in->n; k++)
    st.v[k] = ir_region_param(r, types[k], ir_info(s->f, in->v[k])->hint);
  step(s, r, &st, i, e.back);
  for (uint32_t k = 0; k < in->n; k++) st.v[k] = loop->res[k];
  return st;
}

// Products beside that are still missing: of the last step's words, and where
// groups share those of the one before.
static void last_beside(Stage *s, Copy *c, const State *st, Ends e, Value *o) {
  const Value *words = st->v + s->loop->nres;
  Copy prev[3];
  Value none = 0, other[MAX_PRODUCTS];
  for (uint32_t i = 0; i < 3 && s->nbeside; i++)
    prev[i] = copy_at(s, c->b, steps_back(s, c->b, e.last, e.back, i));
  if (!s->nbeside) return;
  if (!s->shares) {
    add_beside(&prev[1], words + s->nwords, none);
    issue_beside(c, words, o);
    return;
  }
  // The next step's turn, and that of the step behind it.
  Value one = turn_at(c, e.last, true), two = turn_at(c, e.last, false);
  add_beside(&prev[2], words + s->nwords, two);
  issue_beside(c, words, other);
  wait(c->b, other, s->nbeside, 0);
  add_beside(&prev[1], other, one);
  issue_beside(c, words, o);
  wait(c->b, o, s->nbeside, 0);
  add_beside(&prev[0], o, two);
}

// The products that are still missing.
static void last_step(Stage *s, Builder *b, const State *st, Ends e) {
  Copy c = copy_at(s, b, e.last);
  Value acc[MAX_PRODUCTS], o[2 * MAX_PRODUCTS];
  const Value *words = st->v + s->loop->nres;
  for (uint32_t k = 0; k < s->nbehind; k++) acc[k] = st->v[s->behind[k].at];
  put_words(&c, words);
  issue_behind(&c, words, acc, o);
  if (s->shares) wait(b, o, s->nbehind, 0);
  last_beside(s, &c, st, e, o + s->nbehind);
  if (!s->shares) {
    wait(b, o, s->nbehind + s->nbeside, 0);
    add_beside(&c, o + s->nbehind, 0);
  }
  for (uint32_t k = 0; k < s->nbehind; k++) st->v[s->behind[k].at] = o[k];
}

// The steps at b; st gets the results of the loop.
static State all_steps(Stage *s, Builder *b) {
  Ends e = ends_of(s, b);
  State st = first_step(s, b, e.first);
  st = rotated(s, b, &st, e);
  last_step(s, b, &st, e);
  return st;
}

static void take_results(const Stage *s, const Value *v) {
  for (uint32_t i = 0; i < s->loop->nres; i++) {
    Value old = s->loop->res[i];
    if (!ir_info(s->f, v[i])->hint)
      ir_info(s->f, v[i])->hint = ir_info(s->f, old)->hint;
    ir_replace_uses(s->f, old, v[i]);
  }
  ir_erase(s->loop);
}

// ---------------------------------------------------------------- sharing
// Room for the tiles that groups put together, for those of all groups' rows,
// and for the stages that tiles take which are read in two steps.
static bool has_room(const Stage *s) {
  int64_t bytes = 0;
  for (uint32_t i = 0; i < s->nbeside; i++) {
    const Beside *x = &s->beside[i];
    int64_t put = smem_bytes(ir_type(s->f, x->put->res[0]));
    int64_t rows = smem_bytes(ir_type(s->f, x->mma->args[1]));
    bytes += s->rings->groups * (COST_RING_GATHERED * put + rows);
  }
  for (uint32_t i = 0; i < s->nbehind; i++)
    bytes += smem_bytes(ir_type(s->f, s->behind[i].mma->args[1]));
  return bytes <= s->rings->left;
}

// Of two groups each makes every other product beside, of what both put: half
// the sums to add to memory.
static void find_sharing(Stage *s) {
  s->shares = s->nbeside && s->rings->groups == 2 && !s->rings->apart &&
              s->rings->occupancy == 1 && !s->sums && has_room(s);
  for (uint32_t i = 0; i < s->nbeside; i++)
    s->shares = s->shares && hop_beside_of_groups(s->rings, s->beside[i].mma);
  for (uint32_t i = 0; i < s->nbeside && s->shares; i++) {
    Beside *x = &s->beside[i];
    Builder b = {.fn = s->f,
                 .region = s->loop->parent,
                 .before = s->loop,
                 .span = x->mma->span};
    x->all = hop_beside_all(s->rings, &b, x->mma);
  }
}

// Masked tiles add nothing (docs/ir.md, "fill"), so a loop over nothing may do
// a step: all its keys are masked. Unless it has no masks, or reads where it
// must not, or is one interval of several: another one may see those keys.
static void rotate(Stage *s) {
  find_words(s);
  find_later(s);
  find_sharing(s);
  Op *loop = s->loop;
  Builder b = {.fn = s->f,
               .region = loop->parent,
               .before = loop,
               .span = loop->span};
  FullTiles full;
  const Op *around = loop->parent->parent;
  bool one = !around || around->code != OP_FOR || !around->nres;
  // Loads that must not be done for a coordinate outside of the loop.
  bool inside = ir_any_has(s->body, AT_INBOUNDS);
  if (one && full_tiles(s->f, loop, &full) && !inside) {
    take_results(s, all_steps(s, &b).v);
    return;
  }
  Type *types = NEWN(s->arena, Type, loop->nres);
  for (uint32_t i = 0; i < loop->nres; i++)
    types[i] = *ir_type(s->f, loop->res[i]);
  Value any = ir_2(&b, OP_LT, loop->args[0], loop->args[1]);
  Op *cond = ir_op(&b, OP_IF, &any, 1, NULL, 0, types, loop->nres, 2);
  Builder in = {.fn = s->f, .region = cond->regions[0], .span = loop->span};
  ir_yield(&in, all_steps(s, &in).v, loop->nres);
  in.region = cond->regions[1];
  ir_yield(&in, loop->args + 3, loop->nres);
  take_results(s, cond->res);
}

// ---------------------------------------------------------------- ahead alone
static bool has_products(const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_MMA) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (has_products(op->regions[i])) return true;
  }
  return false;
}

// Are the products ahead all that the loop has?
static bool is_ahead_alone(const Stage *s) {
  uint32_t n = 0;
  for (const Op *op = s->body->first; op; op = op->next) {
    n += op->code == OP_MMA;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (has_products(op->regions[i])) return false;
  }
  return s->nahead && n == s->nahead;
}

static void wait_in_place(Stage *s) {
  Value v[MAX_PRODUCTS];
  for (uint32_t i = 0; i < s->nahead; i++) {
    Op *m = s->ahead[i];
    Builder b = {.fn = s->f, .region = s->body, .before = m, .span = m->span};
    bool more = false;
    for (uint32_t k = 0; k < s->nahead; k++) more |= s->onto[k] == i + 1;
    Value onto = s->onto[i] ? v[s->onto[i] - 1] : 0;
    ir_bare(&b, OP_WG_FENCE);
    v[i] = product(&b, m, m->args[0], m->args[1], onto);
    ir_bare(&b, OP_WG_COMMIT);
    if (!more) wait(&b, &v[i], 1, 0);
    ir_replace_uses(s->f, m->res[0], v[i]);
  }
  for (uint32_t i = 0; i < s->nahead; i++) ir_erase(s->ahead[i]);
}

static void region(const Rings *w, Region *r) {
  Func *f = w->f;
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(w, op->regions[i]);
    if (op->code != OP_FOR) continue;
    Stage s = {.f = f,
               .rings = w,
               .arena = f->mod->arena,
               .loop = op,
               .body = op->regions[0],
               .brief = w->brief,
               .once = ir_attr_i(f->body->first, AT_ONCE, 0)};
    if (classify(&s)) rotate(&s);
    else if (is_ahead_alone(&s)) wait_in_place(&s);
  }
}

bool pass_pipeline_loop(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  const Target *t = opt->target;
  Rings rings;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    if (hop_rings_plan(&rings, m->funcs.at[i], t))
      region(&rings, m->funcs.at[i]->body);
  return true;
}
