// reread: what a chunk's gradients need again is read or found again.
//
//   %x = sload(%k)  %m = lt(coord(), ..)   %x = sload(%k)  %m = lt(coord(), ..)
//   %a = mma(.. %x .. %m ..)               %a = mma(.. %x .. %m ..)
//   %b = mma(.. %x .. %m ..)          ->   %y = sload(%k)
//                                          %n = lt(coord() {anew = 1}, ..)
//                                          %b = mma(.. %y .. %n ..)
//
// Gradients of a chunk are products one behind the other, tens of them, of the
// same vectors and masks. These are in shared memory, or made of coordinates by
// few instructions: kept from one product to the next they take more registers
// than a thread has. So behind each product what is made of reads of shared
// tiles and of coordinates, element by element, is made once more; of any
// functions where a loop is between. Numbers tell coordinates apart, so that
// none are merged. Operands of 16 bits that many products need wait in shared
// memory too, but where that leaves no room for another CTA. Where more lives
// at once than a thread has registers. Level frag; sm_90a, programs without
// steps whose tasks have no loop. Needs: lower_gpu; runs before async_mma.
// Tests: test/passes/reread.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/support/cost.h"
#include "ir/target.h"
#include "passes/gpu/gpu.h"
#include "passes/hopper/rings.h"
#include "passes/support/loops.h"
#include "passes/pass.h"

#include <string.h>

enum { MAX_DEPTH = 24 };

typedef struct Reread {
  Func *f;
  bool *again;     // by value: it may be made once more
  Value *now;      // by value: what it is since the last product, or 0
  Vec(Value) all;  // that `now` has
  uint32_t n;      // values that these know
  int64_t number;
  bool early;  // constants too: they may stand behind
  Arena *arena;
} Reread;

static bool is_product(const Op *op) {
  return op->code == OP_MMA;
}

static void see_product(void *data, Op *op) {
  *(bool *)data |= is_product(op);
}

// A loop, or a branch that has products.
static bool is_long(const Op *op) {
  bool some = op->code == OP_FOR;
  for (uint32_t i = 0; op->code == OP_IF && i < op->nregions; i++)
    ir_walk(op->regions[i], see_product, &some);
  return some;
}

static bool is_value(const Func *f, Value tile) {
  const Op *op = ir_def(f, tile);
  return op && (op->code == OP_SFILL || op->code == OP_SPUT);
}

// Elementwise in a few instructions.
static bool is_cheap(const Op *op) {
  switch (op->code) {
  case OP_CAST:
  case OP_ADD:
  case OP_SUB:
  case OP_AND:
  case OP_OR:
  case OP_NOT:
  case OP_EQ:
  case OP_NE:
  case OP_LT:
  case OP_LE:
  case OP_SELECT:
  case OP_FLOORDIV:
  case OP_MOD:
  case OP_BCAST:
  case OP_SPLAT: return true;
  default: return false;
  }
}

// Of a row or a column, few numbers.
static bool is_cheap_slice(const Func *f, const Op *op) {
  return ir_type(f, op->res[0])->slice != SLICE_NONE &&
         (op->code == OP_MUL || op->code == OP_FLOOR);
}

// May v be made once more? What this pass has made itself stays.
static bool is_again(const Reread *r, Value v) {
  return v < r->n && r->again[v];
}

static bool may(const Reread *r, const Op *op) {
  const Func *f = r->f;
  if (op->nres != 1 || ir_type(f, op->res[0])->kind != TK_FRAG) return false;
  if (op->code == OP_CONST || op->code == OP_COORD) return true;
  if (op->code == OP_SLOAD) return is_value(f, op->args[0]);
  if (!is_cheap(op) && !is_cheap_slice(f, op)) return false;
  for (uint32_t i = 0; i < op->nargs; i++) {
    bool number = ir_type(f, op->args[i])->kind == TK_ELEM;
    if (!number && !r->again[op->args[i]]) return false;
  }
  return true;
}

static void find(Reread *r, Region *region) {
  for (Op *op = region->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) find(r, op->regions[i]);
    if (op->nres == 1) r->again[op->res[0]] = may(r, op);
  }
}

// ---------------------------------------------------------------- once more
static void forget(Reread *r) {
  for (uint32_t i = 0; i < r->all.n; i++) r->now[r->all.at[i]] = 0;
  r->all.n = 0;
}

static void remember(Reread *r, Value v, Value now) {
  r->now[v] = now;
  vec_push(r->arena, &r->all, v);
}

static Value copied(Reread *r, Op *at, Value v) {
  Func *f = r->f;
  if (!is_again(r, v)) return v;
  if (r->now[v]) return r->now[v];
  const Op *op = ir_def(f, v);
  if (op->code == OP_CONST && !r->early) return v;
  Builder b = {.fn = f, .region = at->parent, .before = at, .span = at->span};
  Value args[8];
  IrAttr attrs[2];
  const Type t = *ir_type(f, v);
  uint32_t n = op->nattrs;
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = copied(r, at, op->args[i]);
  const IrAttr *from = op->attrs;
  if (op->code == OP_COORD) {
    attrs[0] = *ir_attr(op, AT_POS);
    attrs[1] = attr_i(AT_ANEW, r->number);
    from = attrs, n = 2;
  }
  Value now = ir_op(&b, op->code, args, op->nargs, from, n, &t, 1, 0)->res[0];
  remember(r, v, now);
  return now;
}

static void region(Reread *r, Region *body) {
  for (Op *op = body->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) {
      forget(r);  // a region's values are its own
      region(r, op->regions[i]);
    }
    if (op->nregions) forget(r);
    bool own = op->nres == 1 && is_again(r, op->res[0]);
    for (uint32_t i = 0; i < op->nargs && !own; i++)
      op->args[i] = copied(r, op, op->args[i]);
    if (!is_product(op)) continue;
    forget(r);
    r->number++;
  }
}

// ---------------------------------------------------------------- loops
// Rows and columns take few registers: they may wait.
static bool is_small(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return t->kind == TK_ELEM || (t->kind == TK_FRAG && t->slice != SLICE_NONE);
}

// Is v made element by element of what is read or counted, or small?
static bool is_made_of_reads(const Reread *r, Value v, uint32_t depth) {
  const Op *op = ir_def(r->f, v);
  if (is_again(r, v) || is_small(r->f, v)) return true;
  if (v >= r->n) return false;
  if (!op || op->nres != 1 || !depth) return false;
  bool plain = op->code == OP_BCAST || op->code == OP_SPLAT;
  if (!plain && !(op_info(op->code)->flags & OPF_ELEM)) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!is_made_of_reads(r, op->args[i], depth - 1)) return false;
  return true;
}

static void let_again(Reread *r, Value v) {
  const Op *op = ir_def(r->f, v);
  if (is_again(r, v) || is_small(r->f, v)) return;
  r->again[v] = true;
  for (uint32_t i = 0; i < op->nargs; i++) let_again(r, op->args[i]);
}

// Tiles that wait through a loop that does without them are made behind it.
static void made_behind(Reread *r, Op *loop) {
  for (Op *op = loop->parent->first; op != loop; op = op->next) {
    Value v = op->nres == 1 ? op->res[0] : 0;
    if (!v || v >= r->n || r->again[v] || ir_mentions(loop, v)) continue;
    const Type *t = ir_type(r->f, v);
    Op *use = ir_first_use(loop->next, v);
    if (!use || t->kind != TK_FRAG || t->slice != SLICE_NONE ||
        !is_made_of_reads(r, v, MAX_DEPTH))
      continue;
    bool *kept = r->again;
    r->again = NEWN(r->arena, bool, r->n);
    memcpy(r->again, kept, r->n * sizeof *kept);
    let_again(r, v);
    ir_replace_from(use, v, copied(r, use, v));
    forget(r);
    r->number++;
    r->again = kept;
  }
}

static void behind_loops(Reread *r, Region *body) {
  for (Op *op = body->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) behind_loops(r, op->regions[i]);
    if (op->nres && is_long(op)) made_behind(r, op);
  }
}

// ---------------------------------------------------------------- operands
static bool is_operand(const Func *f, const Op *op) {
  if (op->code != OP_CAST || op->nres != 1) return false;
  const Type *t = ir_type(f, op->res[0]);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE && t->layout == LY_ACC &&
         !t->partial && dtype_size(t->dtype) == 2;
}

// Does op need v, or v with more bits?
static bool needs(const Func *f, const Op *op, Value v) {
  if (ir_mentions(op, v)) return true;
  for (const Op *cast = ir_def(f, v)->next; cast; cast = cast->next)
    if (cast->code == OP_CAST && cast->args[0] == v && cast != op &&
        ir_mentions(op, cast->res[0]))
      return true;
  return false;
}

// Is v needed behind as many products?
static bool is_kept_long(const Func *f, const Op *op, Value v) {
  uint32_t products = 0;
  while ((op = op->next)) {
    products += is_product(op);
    if (!is_long(op) && products < COST_REREAD_PRODUCTS) continue;
    if (needs(f, op, v)) return true;
  }
  return false;
}

// What is put as it lies in `put` is that tile.
static void put_once(Func *f, const Op *put, Value got) {
  for (Op *op = put->next, *next; op; op = next) {
    next = op->next;
    if (op->code != OP_SPUT || op->args[0] != got ||
        !type_eq(ir_type(f, op->res[0]), ir_type(f, put->res[0])))
      continue;
    ir_replace_uses(f, op->res[0], put->res[0]);
    ir_erase(op);
  }
}

// Such an operand is put in shared memory, and read there, as long as there is
// room.
static void stow_operands(Func *f, Region *r, const bool *again,
                          int64_t *room) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++)
      stow_operands(f, op->regions[i], again, room);
    if (!is_operand(f, op) || again[op->res[0]] ||
        !is_kept_long(f, op, op->res[0]))
      continue;
    const Type t = *ir_type(f, op->res[0]);
    const Type s = lower_smem_type(t.dtype, t.ext[0], t.ext[1]);
    if (smem_bytes(&s) > *room) continue;
    *room -= smem_bytes(&s);
    Builder b = {.fn = f, .region = r, .before = next, .span = op->span};
    Op *put = ir_op(&b, OP_SPUT, op->res, 1, NULL, 0, &s, 1, 0);
    Op *got = ir_op(&b, OP_SLOAD, put->res, 1, NULL, 0, &t, 1, 0);
    ir_replace_from(next, op->res[0], got->res[0]);
    put_once(f, put, got->res[0]);
  }
}

// ---------------------------------------------------------------- sums
static bool is_sum(const Func *f, const Op *op) {
  if (op->code != OP_ADD && op->code != OP_SUB && op->code != OP_SELECT &&
      op->code != OP_MUL && op->code != OP_FMA)
    return false;
  const Type *t = ir_type(f, op->res[0]);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE;
}

static bool is_kept(const Reread *r, Value v) {
  return !is_again(r, v);
}

// Does op alone need an operand that is no mask, from `at` on?
static bool ends_one(const Reread *r, Op *at, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_kept(r, op->args[i]) && ir_first_use(at, op->args[i]) == op &&
        !ir_first_use(op->next, op->args[i]))
      return true;
  return false;
}

// Behind the last of these operands; NULL: they are not made here.
static Op *behind_operands(const Reread *r, const Op *op) {
  for (Op *at = op->prev; at; at = at->prev)
    for (uint32_t i = 0; i < op->nargs; i++)
      if (is_kept(r, op->args[i]) && ir_def(r->f, op->args[i]) == at)
        return at->next;
  return NULL;
}

// Is all there, in front of `at`, that v is made again of?
static bool is_there(const Reread *r, const Op *at, Value v) {
  const Op *def = ir_def(r->f, v);
  if (!def) return true;
  if (ir_type(r->f, v)->kind == TK_FRAG && !is_kept(r, v)) {
    for (uint32_t i = 0; i < def->nargs; i++)
      if (!is_there(r, at, def->args[i])) return false;
    return true;
  }
  for (const Op *op = at; op && def->parent == at->parent; op = op->next)
    if (op == def) return false;
  return true;
}

static bool are_there(const Reread *r, const Op *at, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!is_there(r, at, op->args[i])) return false;
  return true;
}

// A sum, or what a mask leaves of a product, takes the place of a term that
// nothing else needs: it is made as soon as its terms are there.
static void sums_early(Reread *r, Region *body) {
  for (Op *op = body->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) sums_early(r, op->regions[i]);
    bool own = op->nres == 1 && is_again(r, op->res[0]);
    if (own || !is_sum(r->f, op)) continue;
    Op *at = behind_operands(r, op);
    if (!at || at == op || !ends_one(r, at, op) || !are_there(r, at, op))
      continue;
    r->early = true;
    for (uint32_t i = 0; i < op->nargs; i++)
      op->args[i] = copied(r, at, op->args[i]);
    ir_move_before(op, at);
    forget(r);
    r->early = false;
    r->number++;
  }
}

// ---------------------------------------------------------------- fma
// The factors that op, a term of a sum, is the product of and that nothing else
// needs.
static Op *product_of(const Func *f, const Op *sum, Value v) {
  Op *op = ir_def(f, v);
  if (!op || op->code != OP_MUL || op->parent != sum->parent) return NULL;
  const Op *use = ir_first_use(op->next, v);
  bool only =
      use == sum && !ir_first_use(sum->next, v) && sum->args[0] != sum->args[1];
  return only ? op : NULL;
}

// The place of a sum: where its product is, if the other term is there.
static Op *place_of(const Func *f, Op *mul, Op *sum, Value other) {
  const Op *def = ir_def(f, other);
  for (const Op *op = mul; def && op != sum; op = op->next)
    if (op == def) return sum;
  return mul;
}

// A product that is only added takes no registers of its own.
static void add_products(Func *f, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) add_products(f, op->regions[i]);
    if (op->code != OP_ADD || ir_type(f, op->res[0])->dtype != DT_F32 ||
        ir_type(f, op->res[0])->kind != TK_FRAG)
      continue;
    Op *first = product_of(f, op, op->args[0]);
    Op *mul = first ? first : product_of(f, op, op->args[1]);
    if (!mul) continue;
    Value args[3] = {mul->args[0], mul->args[1], op->args[first ? 1 : 0]};
    const Type t = *ir_type(f, op->res[0]);
    Builder b = {.fn = f, .region = r, .span = op->span};
    b.before = place_of(f, mul, op, args[2]);
    Op *made = ir_op(&b, OP_FMA, args, 3, NULL, 0, &t, 1, 0);
    ir_replace_from(op->next, op->res[0], made->res[0]);
    ir_erase(op);
    ir_erase(mul);
  }
}

// ---------------------------------------------------------------- all
typedef struct Loops {
  const Func *f;
  uint32_t n;
} Loops;

// Those but loops of a few turns (passes/gpu/reroll.c).
static void count_loops(void *data, Op *op) {
  Loops *x = data;
  int64_t turns;
  bool few = op->code == OP_FOR && !loop_has_fill(op) &&
             ir_const_whole(x->f, op->args[1], &turns);
  x->n += op->code == OP_WHILE || (op->code == OP_FOR && !few);
}

// Of several groups a thread has fewer registers.
static uint32_t most_regs(const Op *launch) {
  int64_t groups = ir_attr_i(launch, AT_THREADS, 0) / HW_GROUP_THREADS;
  bool some = ir_attr(launch, AT_GROUPS) && groups > 1;
  return some ? (uint32_t)target_team((uint32_t)groups, 0)->computes
              : COST_REREAD_PRESS;
}

// The only such loop is that over tasks.
static bool is_crowded(Func *f, Arena *a) {
  Loops loops = {.f = f};
  const Op *launch = ir_launch(f);
  if (!launch) return false;
  ir_walk(f->body, count_loops, &loops);
  return loops.n <= (ir_attr(launch, AT_CTAS) != NULL) &&
         ir_pressure(f, a).regs > most_regs(launch);
}

// Where two CTAs share a multiprocessor, what leaves them there.
static int64_t room_of(Func *f, const Target *t) {
  Rings rings;
  bool two = hop_rings_plan(&rings, f, t) && rings.occupancy > 1;
  return two ? rings.left : (int64_t)t->gpu.smem;
}

static Reread known(Func *f, Arena *a) {
  Reread r = {.f = f, .arena = a, .n = f->values.n, .number = 1};
  r.again = NEWN(a, bool, r.n);
  r.now = NEWN(a, Value, r.n);
  find(&r, f->body);
  return r;
}

bool pass_reread(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (!is_crowded(f, &cx->scratch)) continue;
    add_products(f, f->body);
    Reread r = known(f, &cx->scratch);
    behind_loops(&r, f->body);
    r = known(f, &cx->scratch);
    int64_t room = room_of(f, opt->target);
    stow_operands(f, f->body, r.again, &room);
    r = known(f, &cx->scratch);
    sums_early(&r, f->body);
    region(&r, f->body);
  }
  return true;
}
