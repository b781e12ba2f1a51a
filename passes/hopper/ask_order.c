// ask_order: a task's tiles are asked for in the order in which their slots are
// given back.
//
//   mbar_wait(%q_empty)                      mbar_wait(%v_empty)
//   mbar_expect(%q_full)                     mbar_expect(%v_full)
//   tma_load(%q, ..)                         tma_load(%v, ..)
//   mbar_wait(%v_empty)              ->      mbar_wait(%q_empty)
//   mbar_expect(%v_full)                     mbar_expect(%q_full)
//   tma_load(%v, ..)                         tma_load(%q, ..)
//   }, {                                     }, {
//   mbar_arrive(%v_empty)                    mbar_arrive(%v_empty)
//   ..                                       ..
//   mbar_arrive(%q_empty)                    mbar_arrive(%q_empty)
//
// The producer waits for one slot after the other, in the order in which tiles
// are first read. Where each is there once and the first is read to a task's
// end, the others have long been free: their tiles would be on their way while
// that end is computed. In the order in which slots are given back each is
// asked for as soon as its slot is free. Only tasks without loops, whose tiles
// are copied one behind the other, of several groups: one alone takes so long
// that it does not wait for tiles. Level frag; sm_90a, programs with steps.
// Needs: warp_specialize. Tests: test/passes/ask_order.
#include "ir/layout.h"
#include "passes/pass.h"

enum { MAX_ASKED = 32 };
#define NEVER INT64_MAX

// What asks for a tile: from the wait for its slot to its copy.
typedef struct Ask {
  Op *first, *last;
  int64_t back;  // when the groups give its slot back
} Ask;

static bool has_regions(const Region *r) {
  for (const Op *op = r->first; op; op = op->next)
    if (op->nregions) return true;
  return false;
}

static Op *task_loop(const Region *r) {
  Op *loop = NULL;
  for (Op *op = r->first; op; op = op->next) {
    if (op->code != OP_FOR && op->code != OP_WHILE) continue;
    if (loop) return NULL;
    loop = op;
  }
  return loop;
}

static bool gives_back(const Op *op, Value empty) {
  if (op->code == OP_MBAR_ARRIVE) return op->args[0] == empty;
  for (uint32_t i = 0; i < op->nregions; i++)
    for (const Op *o = op->regions[i]->first; o; o = o->next)
      if (gives_back(o, empty)) return true;
  return false;
}

// When a slot is given back: the place of the last op that does, as many tasks
// before as there are more slots than one. What follows one another at once has
// one place. NEVER: none does.
static int64_t place(const Func *f, const Region *body, Value empty) {
  int64_t at = NEVER, n = 0;
  for (const Op *op = body->first; op; op = op->next) {
    n += op->code != OP_MBAR_ARRIVE;
    if (gives_back(op, empty)) at = n;
  }
  return at == NEVER ? at : at - n * ((int64_t)ir_type(f, empty)->n - 1);
}

static bool is_copy(const Op *op) {
  return op->code == OP_MBAR_EXPECT || op->code == OP_TMA_LOAD ||
         op->code == OP_SLOT;
}

// Numbers that a tile's place is made of; they wait for nothing.
static bool is_number(const Op *op) {
  return op->nres && !op->nregions && op_info(op->code)->flags & OPF_PURE &&
         op->code != OP_SLOT;
}

// The tile that op begins to ask for, if all of it is there.
static bool asks(const Func *f, Op *op, const Region *groups, Ask *a) {
  if (op->code != OP_MBAR_WAIT) return false;
  *a = (Ask){.first = op, .back = place(f, groups, op->args[0])};
  for (Op *o = op->next; o && (is_copy(o) || is_number(o)); o = o->next)
    if (o->code == OP_TMA_LOAD) a->last = o;
  return a->back != NEVER && a->last;
}

static void move(const Ask *a, Op *where) {
  for (Op *op = a->first, *next; op; op = next) {
    next = op == a->last ? NULL : op->next;
    ir_move_before(op, where);
  }
}

// What the places of n tiles are made of stands in front of all.
static void numbers_first(const Ask *a, uint32_t n) {
  for (Op *op = a[0].first, *next; op != a[n - 1].last; op = next) {
    next = op->next;
    if (is_number(op)) ir_move_before(op, a[0].first);
  }
}

static void sort(Ask *a, uint32_t n) {
  for (uint32_t i = 1; i < n; i++) {
    uint32_t to = i;
    while (to && a[to - 1].back > a[i].back) to--;
    if (to == i) continue;
    Ask moved = a[i];
    move(&moved, a[to].first);
    for (uint32_t k = i; k > to; k--) a[k] = a[k - 1];
    a[to] = moved;
  }
}

static Op *behind(Op *op, Ask *a, uint32_t n) {
  if (n < 2) return op->next;
  Op *end = a[n - 1].last->next;
  numbers_first(a, n);
  sort(a, n);
  return end;
}

static void order(const Func *f, Region *producer, const Region *groups) {
  Ask a[MAX_ASKED];
  for (Op *op = producer->first; op;) {
    uint32_t n = 0;
    Op *at = op;
    while (n < MAX_ASKED && at) {
      while (n && at && is_number(at)) at = at->next;
      if (!at || !asks(f, at, groups, &a[n])) break;
      at = a[n++].last->next;
    }
    op = behind(op, a, n);
  }
}

bool pass_ask_order(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    const Func *f = m->funcs.at[i];
    if (!ir_has_steps(f)) continue;
    for (Op *op = f->body->first; op; op = op->next) {
      if (op->code != OP_ROLES || op->nregions != 2 ||
          ir_attr(op, AT_TEAMS)->list[1] == HW_GROUP_THREADS)
        continue;
      Op *from = task_loop(op->regions[0]), *to = task_loop(op->regions[1]);
      if (from && to && !has_regions(from->regions[0]))
        order(f, from->regions[0], to->regions[0]);
    }
  }
  return true;
}
