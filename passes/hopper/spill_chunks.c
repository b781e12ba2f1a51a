// spill_chunks: what a recurrence needs again later does not wait in registers,
// where the threads that compute load their tiles themselves.
//
//   for(.., %s) {                         for(.., %s) {
//     %x = gload(%Q)                        %a = cast(%s)  %t = sput(%a) ..
//     %a = cast(%s)  %t = sput(%a) ..       if(%whole) {
//     if(%whole) {                            %x = gload(%Q)
//       %y = mul(%x, %e)               ->     %y = mul(%x, %e)
//       .. %t ..                              .. %t ..
//       %z = mul(%s, %f)                      %r = add(sload(%t), ..)
//     }                                       %z = mul(%r, %f)
//   }                                       }}
//
// Such loops (f32: operands are three 16-bit parts, passes/gpu/dot.c) have no
// tiles that are copied ahead; their loads take registers, which ptxas moves
// ahead of all that is not a barrier. A tile is loaded where it is needed, and
// not before what was loaded first is in shared memory. Three parts hold all
// bits of an f32: what is multiplied is found again as their sum in shared
// memory (but for numbers whose first part is infinite or whose last has no
// exponent, which products get wrong too). Parts in registers are made where a
// product takes them. Slices that a branch needs stay in shared memory
// (relayout), at the last level those that are loaded too. In a phase that
// finds what chunks have (hoist) loads, scans and parts stand where they are
// needed first, and what was made of a load alone is made again. A chunk whose
// tiles are copied for it adds parts up where their sum is needed. Level frag;
// sm_90a, programs with steps, where the driver asks for few registers
// (tools/driver/gpu/fit.c). Needs: lower_gpu; runs before remat. Tests:
// test/passes/spill_chunks.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "ir/target.h"
#include "passes/support/cost.h"
#include "passes/support/relief.h"
#include "passes/hopper/rings.h"

enum { MAX_OPS = 24 };

// ---------------------------------------------------------------- uses
static bool is_tile(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE;
}

static Op *last_use(Op *op, Value v) {
  Op *last = NULL;
  for (; op; op = op->next)
    if (ir_mentions(op, v)) last = op;
  return last;
}

static bool stands_before(const Op *a, const Op *b) {
  while (a && a != b) a = a->next;
  return a != NULL;
}

// The branch that has all uses of v, or NULL.
static Region *only_branch(const Func *f, const Op *use, Value v) {
  for (uint32_t i = 0; use && use->code == OP_IF && i < use->nregions; i++)
    if (ir_uses_in(use->regions[i], v) == ir_count_uses(f, v))
      return use->regions[i];
  return NULL;
}

// ---------------------------------------------------------------- moving
typedef bool Is(const Func *f, const Op *op);

// Ops like that go in front of their first use.
static void sink(const Func *f, Region *r, Is *may) {
  for (Op *op = r->last, *prev; op; op = prev) {
    prev = op->prev;
    Op *use = may(f, op) ? ir_first_use(op->next, op->res[0]) : NULL;
    if (use) ir_move_before(op, use);
  }
}

// ---------------------------------------------------------------- loads
static bool is_load(const Func *f, const Op *op) {
  return op->code == OP_GLOAD && is_tile(f, op->res[0]) &&
         ir_is_input(f, op->args[0]);
}

static void load_late(const Func *f, Op *load) {
  Op *use = ir_first_use(load->next, load->res[0]);
  Region *branch;
  while ((branch = only_branch(f, use, load->res[0])))
    use = ir_first_use(branch->first, load->res[0]);
  if (use) ir_move_before(load, use);
}

static void loads_late(const Func *f, Region *r) {
  for (Op *op = r->last, *prev; op; op = prev) {
    prev = op->prev;
    if (is_load(f, op)) load_late(f, op);
  }
}

static bool is_put(const Func *f, const Op *op) {
  (void)f;
  return op->code == OP_SPUT;
}

// A number that compilers do not know to be v: they would keep what they have
// loaded there.
static Value anew(Builder *b, Value v) {
  const Type *t = ir_type(b->fn, v);
  const Op *op = ir_def(b->fn, v);
  bool number = t->kind == TK_ELEM && t->dtype == DT_I32;
  return number && (!op || op->code != OP_CONST) ? ir_1(b, OP_UNIFORM, v) : v;
}

// op, and what it is made of but constants, once more.
static Value made_again(Func *f, Op *at, const Op *op) {
  Builder b = {.fn = f, .region = at->parent, .before = at, .span = at->span};
  Value args[MAX_AXES + 1];
  const Type t = *ir_type(f, op->res[0]);
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Op *x = ir_def(f, op->args[i]);
    if (op->code == OP_GLOAD) args[i] = anew(&b, op->args[i]);
    else args[i] = x->code == OP_CONST ? op->args[i] : made_again(f, at, x);
  }
  return ir_op(&b, op->code, args, op->nargs, op->attrs, op->nattrs, &t, 1, 0)
      ->res[0];
}

// What is needed again behind something that is put in shared memory is loaded
// again.
static void make_again(Func *f, Op *op, Is *ends) {
  Value v = op->res[0];
  bool put = false;
  for (Op *at = op->next; at; at = at->next) {
    bool end = ends(f, at);
    if (ir_mentions(at, v)) {
      Value now = put ? made_again(f, at, op) : v;
      if (put) ir_replace_from(at, v, now);
      v = now;
      put = false;
    }
    put |= end;
  }
}

static void loads_again(Func *f, Region *r, Is *is, Is *ends, Arena *a) {
  Vec(Op *) all = {0};
  for (Op *op = r->first; op; op = op->next)
    if (is(f, op)) vec_push(a, &all, op);
  for (uint32_t i = 0; i < all.n; i++) make_again(f, all.at[i], ends);
}

// A barrier in front of a load behind what was put in shared memory.
static void loads_apart(Func *f, Region *r, Is *ends) {
  bool put = false;
  for (Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions && op->code == OP_IF; i++)
      loads_apart(f, op->regions[i], ends);
    put |= ends(f, op) || op->nregions;
    if (!put || !is_load(f, op)) continue;
    Builder b = {.fn = f, .region = r, .before = op, .span = op->span};
    ir_bare(&b, OP_GSYNC);
    put = false;
  }
}

// ---------------------------------------------------------------- parts
// What makes the parts of x, in order, and the tiles that they are put in, or
// 0.
typedef struct Parts {
  Value x, part[HW_F32_PARTS], tile[HW_F32_PARTS];
  Op *op[MAX_OPS];
  uint32_t n;
} Parts;

static Op *user(Op *from, OpCode code, Value v, uint32_t at) {
  for (Op *op = from; op; op = op->next)
    if (op->code == code && op->nargs > at && op->args[at] == v) return op;
  return NULL;
}

static bool keep(Parts *p, Op *op) {
  if (op) p->op[p->n++] = op;
  return op != NULL;
}

// What is left of x but for its part `hi`, 0 where that is no number.
static Op *rest_of(Parts *p, Value x, const Op *hi) {
  Op *wide = user(hi->next, OP_CAST, hi->res[0], 0);
  Op *sub = wide ? user(wide->next, OP_SUB, wide->res[0], 1) : NULL;
  bool of_x = sub && sub->args[0] == x;
  Op *eq = of_x ? user(sub->next, OP_EQ, sub->res[0], 0) : NULL;
  Op *rest = eq ? user(eq->next, OP_SELECT, sub->res[0], 1) : NULL;
  if (!rest || rest->args[0] != eq->res[0]) return NULL;
  return keep(p, wide) && keep(p, sub) && keep(p, eq) && keep(p, rest) ? rest
                                                                       : NULL;
}

static bool is_part(const Func *f, const Op *op) {
  return op && op->code == OP_CAST && is_tile(f, op->res[0]) &&
         ir_type(f, op->res[0])->dtype == DT_BF16 &&
         ir_type(f, op->args[0])->dtype == DT_F32;
}

static bool parts_from(const Func *f, Op *op, Parts *p) {
  *p = (Parts){.x = op->args[0]};
  for (uint32_t i = 0; i < HW_F32_PARTS; i++) {
    if (!is_part(f, op) || !keep(p, op)) return false;
    p->part[i] = op->res[0];
    Op *put = user(op->next, OP_SPUT, op->res[0], 0);
    if (put && ir_count_uses(f, op->res[0]) == 1u + (i + 1 < HW_F32_PARTS))
      p->tile[i] = put->res[0];
    if (!!p->tile[i] != !!p->tile[0]) return false;
    if (put) keep(p, put);
    if (i + 1 == HW_F32_PARTS) break;
    Op *rest = rest_of(p, op->args[0], op);
    op = rest ? user(rest->next, OP_CAST, rest->res[0], 0) : NULL;
  }
  return true;
}

static bool is_of(const Parts *p, const Op *op) {
  for (uint32_t i = 0; i < p->n; i++)
    if (p->op[i] == op) return true;
  return false;
}

// The sum of the parts, smallest first: exact.
static Value sum_of(Func *f, const Parts *p, Op *at) {
  Builder b = {.fn = f, .region = at->parent, .before = at, .span = at->span};
  Type t = *ir_type(f, p->x);
  t.dtype = DT_BF16;
  Value sum = 0;
  for (uint32_t i = HW_F32_PARTS; i-- > 0;) {
    Op *part = ir_op(&b, OP_SLOAD, &p->tile[i], 1, NULL, 0, &t, 1, 0);
    Value x = ir_cast(&b, DT_F32, part->res[0]);
    sum = sum ? ir_2(&b, OP_ADD, sum, x) : x;
  }
  return sum;
}

// Each use from op on, in branches too, reads the parts.
static void found_at_uses(Func *f, const Parts *p, Op *op) {
  for (; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++)
      found_at_uses(f, p, op->regions[i]->first);
    Value y = 0;
    for (uint32_t i = 0; i < op->nargs; i++) {
      if (op->args[i] != p->x) continue;
      if (!y) y = sum_of(f, p, op);
      op->args[i] = y;
    }
  }
}

// Read from shared memory, or made of that element by element.
static bool is_of_parts(const Func *f, const Op *op) {
  if (op->code == OP_SLOAD) return is_tile(f, op->res[0]);
  if (op->nres != 1 || !(op_info(op->code)->flags & OPF_ELEM)) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (ir_def(f, op->args[i]) && is_of_parts(f, ir_def(f, op->args[i])))
      return true;
  return false;
}

// ---------------------------------------------------------------- operands
// To `at`, with the constants that it has.
static void move_up(const Func *f, Op *op, Op *at) {
  for (uint32_t k = 0; k < op->nargs; k++) {
    Op *def = ir_def(f, op->args[k]);
    if (def && def->code == OP_CONST && def->parent == at->parent &&
        !stands_before(def, at))
      ir_move_before(def, at);
  }
  ir_move_before(op, at);
}

// Parts of a state are the first thing that a chunk makes.
static void state_first(Func *f, Region *body, Parts *p) {
  Op *first = body->first;
  while (first->code == OP_CONST || is_of(p, first)) first = first->next;
  for (uint32_t i = 0; i < p->n; i++) {
    if (!stands_before(p->op[i], first)) move_up(f, p->op[i], first);
  }
}

static bool stow_operands(Func *f, Region *body) {
  bool some = false;
  for (Op *op = body->first, *next; op; op = next) {
    Parts p;
    next = op->next;
    if (!is_part(f, op) || !parts_from(f, op, &p) || !p.tile[0]) continue;
    if (!ir_def(f, p.x)) state_first(f, body, &p);
    found_at_uses(f, &p, p.op[p.n - 1]->next);
    some = true;
  }
  return some;
}

// ---------------------------------------------------------------- chunks
// Nothing but p between its first op and `at` takes what p makes.
static bool may_wait(const Parts *p, const Op *at) {
  for (const Op *op = p->op[0]; op && op != at; op = op->next)
    for (uint32_t i = 0; i < p->n && !is_of(p, op); i++)
      if (p->op[i]->nres && ir_mentions(op, p->op[i]->res[0])) return false;
  return true;
}

static void parts_late(Parts *p) {
  Op *at = NULL, *from = p->op[p->n - 1]->next;
  for (uint32_t i = 0; i < HW_F32_PARTS; i++) {
    Op *use = ir_first_use(from, p->part[i]);
    if (use && (!at || stands_before(use, at))) at = use;
  }
  if (!at || !may_wait(p, at)) return;
  for (uint32_t i = 0; i < p->n; i++) ir_move_before(p->op[i], at);
}

// Behind the last use of its parts, whose tiles others may take then, x is
// their sum.
static void found_behind(Func *f, const Parts *p) {
  Op *last = p->op[p->n - 1];
  for (uint32_t i = 0; i < HW_F32_PARTS; i++) {
    Op *use = last_use(last->next, p->tile[i]);
    if (use) last = use;
  }
  if (!last->next || !ir_first_use(last->next, p->x)) return;
  Op *from = last->next;
  ir_replace_from(from, p->x, sum_of(f, p, from));
}

static void stow_chunk(Func *f, Region *r, Arena *a) {
  Vec(Op *) all = {0};
  for (Op *op = r->first; op; op = op->next)
    if (is_part(f, op)) vec_push(a, &all, op);
  for (uint32_t i = 0; i < all.n; i++) {
    Parts p;
    if (!parts_from(f, all.at[i], &p)) continue;
    if (p.tile[0]) found_behind(f, &p);
    else parts_late(&p);
  }
}

// ---------------------------------------------------------------- slices
static bool is_slice(const Func *f, const Op *op) {
  if (op->nres != 1 || pressure_free(f, op->res[0])) return false;
  const Type *t = ir_type(f, op->res[0]);
  return t->kind == TK_FRAG && t->slice == SLICE_COL && !t->partial &&
         t->dtype == DT_F32 &&
         pressure_of(t, ir_group_threads(f, op)) >= COST_STOW_LEAST;
}

static bool needed_in_branch(const Func *f, const Op *op) {
  (void)f;
  for (const Op *o = op->next; o; o = o->next)
    for (uint32_t i = 0; o->code == OP_IF && i < o->nregions; i++)
      if (ir_uses_in(o->regions[i], op->res[0])) return true;
  return false;
}

static void stow_slices(Func *f, Region *body, bool loads, Is *waits) {
  for (Op *op = body->first; op; op = op->next) {
    if (!is_slice(f, op) || !waits(f, op)) continue;
    if (op->code == OP_GLOAD && !loads) continue;
    Builder b = {.fn = f, .region = body, .before = op->next, .span = op->span};
    const Type t = *ir_type(f, op->res[0]);
    Op *stays = ir_op(&b, OP_RELAYOUT, &op->res[0], 1, NULL, 0, &t, 1, 0);
    ir_replace_from(stays->next, op->res[0], stays->res[0]);
    op = stays;
  }
}

// ---------------------------------------------------------------- phases
// What takes registers, but for what is found of them all.
static bool may_sink(const Func *f, const Op *op) {
  bool found =
      op->code == OP_CONST || op->code == OP_FREDUCE || op->code == OP_MMA;
  bool pure = op->code == OP_FSCAN || op_info(op->code)->flags & OPF_PURE;
  return is_load(f, op) || (pure && !found && op->nres == 1 && !op->nregions &&
                            ir_type(f, op->res[0])->kind == TK_FRAG);
}

// Loaded, or made of one load and constants element by element.
static bool is_of_load(const Func *f, const Op *op) {
  if (is_load(f, op)) return true;
  bool loads = op->nres == 1 && is_tile(f, op->res[0]) &&
               op_info(op->code)->flags & OPF_ELEM;
  uint32_t n = 0;
  for (uint32_t i = 0; loads && i < op->nargs; i++) {
    const Op *x = ir_def(f, op->args[i]);
    if (x && x->code == OP_CONST) continue;
    n++;
    loads = x && is_of_load(f, x);
  }
  return loads && n == 1;
}

static bool is_done(const Func *f, const Op *op) {
  (void)f;
  return op->code == OP_SPUT || op->code == OP_GSTORE || op->code == OP_FSCAN;
}

// Parts go to shared memory as soon as there is what they are parts of.
static void put_soon(const Func *f, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    Parts p;
    next = op->next;
    if (!is_part(f, op) || !parts_from(f, op, &p) || !p.tile[0]) continue;
    Op *at = ir_def(f, p.x) ? ir_def(f, p.x)->next : NULL;
    for (uint32_t i = 0; at && i < p.n; i++)
      if (at == p.op[i]) at = at->next;
      else move_up(f, p.op[i], at);
  }
}

static bool needed_behind(const Func *f, const Op *op) {
  bool done = false;
  for (const Op *o = op->next; o; o = o->next) {
    if (done && ir_mentions(o, op->res[0])) return true;
    done |= is_done(f, o);
  }
  return false;
}

static void phase(Func *f, Arena *a) {
  Region *r = f->body;
  put_soon(f, r);
  sink(f, r, may_sink);
  loads_again(f, r, is_of_load, is_done, a);
  stow_slices(f, r, false, needed_behind);
  loads_apart(f, r, is_done);
}

// ---------------------------------------------------------------- all
static bool has_loop(const Region *r) {
  for (const Op *op = r->first; op; op = op->next)
    if (op->nregions) return true;
  return false;
}

static void loops(Func *f, Region *r, int64_t level, Arena *a) {
  for (Op *op = r->first; op; op = op->next) {
    Op *either = op->code == OP_FOR && op->nres ? loop_chunk(op) : NULL;
    Region *chunk = either ? either->regions[0] : NULL;
    for (uint32_t i = 0; i < op->nregions && !chunk; i++)
      loops(f, op->regions[i], level, a);
    if (!chunk) continue;
    Region *body = op->regions[0];
    bool copied = loop_has_fill(op), all = relief_stows(level, copied);
    if (copied) {
      if (all && stow_operands(f, body)) sink(f, chunk, is_of_parts);
      continue;
    }
    loads_late(f, body);
    if (level >= RELIEF_LOADS) stow_operands(f, body);
    if (all) loads_again(f, chunk, is_load, is_put, a);
    if (all) stow_chunk(f, chunk, a);
    if (all) stow_slices(f, body, level == RELIEF_TASK, needed_in_branch);
    loads_apart(f, body, is_put);
  }
}

bool pass_spill_chunks(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    int64_t level = relief_of(f);
    if (level <= RELIEF_FREE || !ir_launch(f) || !ir_has_steps(f)) continue;
    if (has_loop(f->body)) loops(f, f->body, level, &cx->scratch);
    else phase(f, &cx->scratch);
  }
  return true;
}
