// walk_ahead: what steps that go one after the other read of memory is asked
// for some steps ahead.
//
//   for(0, %n, 1, %s0) ({                 %a0 = gload(%X, .. 0 ..)   %b0 = ..
//     ^(%t, %s):                          for(0, %n, 1, %s0, %a0, %b0) ({
//     %x = gload(%X, .. %t ..)     ->       ^(%t, %s, %a, %b):
//     %y = f(%s, %x)                        %c = gload(%X, .. add(%t, 2) ..)
//     gstore(%Y, %y, .. %t ..)              %y = f(%s, %a)  gstore(..)
//     yield(%y)                             yield(%y, %b, %c)
//   })                                    })
//
// A step waits for memory longer than for its arithmetic, and nothing else runs
// on a multiprocessor that has few tasks. Loads of what the kernel only reads,
// at indices that follow the step; what is asked for behind the last step reads
// as 0 and is not used. Gradients walk back over states that a walk before has
// stored: what such a step carries and has asked for lives at once, and as few
// CTAs share a multiprocessor as leave registers for it. Kernels without
// products of matrices: recurrences, phases that judge tiles of keys by a mask
// (passes/stream/mask_bounds.c), each of which meets twice, and long sums along
// an axis. NVIDIA: a walk of a large state on AMD would lose the second wave to
// the registers. Level frag. Needs: lower_gpu. Tests: test/passes/walk_ahead/.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "ir/target.h"
#include "passes/gpu/prefetch.h"
#include "passes/support/cost.h"

#include <string.h>

enum { MAX_LOADS = 16 };

typedef struct Walk {
  Func *f;
  Arena *a;
  Op *loop;
  Op *load[MAX_LOADS];
  uint32_t n, ahead;    // loads; steps
  Op *late[MAX_LOADS];  // asked for as the step begins
  uint32_t nlate;
  bool judges, sums;  // what a mask says; a sum: no walk over steps
  bool back;          // it reads what another kernel's steps have stored
} Walk;

// ---------------------------------------------------------------- candidates
static bool is_plain(const Op *op) {
  switch (op->code) {
  case OP_CONST:
  case OP_SPLAT:
  case OP_BCAST:
  case OP_COORD:
  case OP_CAST:
  case OP_FREDUCE:
  case OP_RELAYOUT:
  case OP_UNIFORM:
  case OP_GLOAD:
  case OP_GSTORE:
  case OP_VOTE:
  case OP_YIELD: return true;
  default: return op_info(op->code)->flags & OPF_ELEM;
  }
}

// Does it only add up, so many times that what is asked for in vain is little?
static bool is_long_sum(const Func *f, const Op *loop) {
  int64_t lo, hi, step;
  const Region *r = loop->regions[0];
  if (!ir_const_whole(f, loop->args[0], &lo) ||
      !ir_const_whole(f, loop->args[1], &hi) ||
      !ir_const_whole(f, loop->args[2], &step) || step < 1 ||
      (hi - lo) / step < COST_WALK_SUM * COST_WALK_AHEAD)
    return false;
  for (uint32_t i = 0; i < loop->nres; i++) {
    const Op *add = ir_def(f, r->last->args[i]);
    if (!add || add->code != OP_ADD || add->args[0] != r->params.at[1 + i])
      return false;
  }
  return true;
}

// Steps that multiply nothing, share nothing, and have no loops; `judges`: that
// store nothing, but find what a mask says of all, or a sum.
static bool is_walk(const Func *f, const Op *loop, bool judges) {
  bool stores = false, votes = false;
  for (const Op *op = loop->regions[0]->first; op; op = op->next) {
    if (op->nregions || !is_plain(op)) return false;
    stores |= op->code == OP_GSTORE;
    votes |= op->code == OP_VOTE;
  }
  if (judges) return loop->nres && !stores && (votes || is_long_sum(f, loop));
  return loop->nres && stores && !votes;
}

// Registers of a thread.
static uint32_t words_of(const Type *t) {
  if (t->kind != TK_FRAG) return 1;
  uint32_t n = (uint32_t)t->ext[0];
  if (t->slice == SLICE_ROW)
    return 2 * ((n + HW_GROUP_ROWS - 1) / HW_GROUP_ROWS);
  if (t->slice == SLICE_COL) return n / 4 + 1;
  return n * (uint32_t)t->ext[1] / HW_GROUP_THREADS + 1;
}

static uint32_t size_of(const Walk *w, uint32_t load) {
  return words_of(ir_type(w->f, w->load[load]->res[0]));
}

// How many steps ahead: as many as there are registers for. Tiles of states
// that a walk back reads may be too large even for one: these are not asked
// for.
static void choose_ahead(Walk *w, uint32_t most) {
  uint32_t words = 0;
  for (uint32_t i = 0; i < w->n; i++) words += size_of(w, i);
  while (w->back && w->n && words > most) {
    uint32_t largest = 0;
    for (uint32_t i = 1; i < w->n; i++)
      if (size_of(w, i) >= size_of(w, largest)) largest = i;
    words -= size_of(w, largest);
    w->late[w->nlate++] = w->load[largest];
    memmove(w->load + largest, w->load + largest + 1,
            (--w->n - largest) * sizeof *w->load);
  }
  w->ahead = COST_WALK_AHEAD;
  while (w->ahead && words * w->ahead > most) w->ahead--;
}

static void find_loads(Walk *w) {
  for (Op *op = w->loop->regions[0]->first; op; op = op->next) {
    if (op->code != OP_GLOAD) continue;
    bool known =
        ir_is_input(w->f, op->args[0]) ||
        ((w->sums || !w->judges) && !ir_is_stored(w->f->body, op->args[0]));
    if (!known || w->n == MAX_LOADS ||
        (w->judges && ir_attr_i(op, AT_INBOUNDS, 0)))
      continue;
    bool ok = false;
    for (uint32_t i = 1; i < op->nargs; i++)
      ok |= !ir_defined_outside(w->f, op->args[i], w->loop->regions[0]);
    for (uint32_t i = 1; i < op->nargs; i++)
      ok &= prefetch_follows(w->f, w->loop, op->args[i]);
    if (!ok) continue;
    w->back |= !w->judges && !ir_is_input(w->f, op->args[0]);
    w->load[w->n++] = op;
  }
  // Sums are many small tasks, which are to be on the multiprocessor at once.
  uint32_t most = w->sums ? COST_WALK_REGS / 2 : COST_WALK_REGS;
  choose_ahead(w, most);
}

// ---------------------------------------------------------------- the new loop
static void load_all(const Walk *w, Builder *b, Value at, Value *out) {
  ValueMap m = {.arena = w->a};
  vmap_put(&m, w->loop->regions[0]->params.at[0], at);
  for (uint32_t i = 0; i < w->n; i++)
    out[i] = prefetch_copy(b, w->loop, w->load[i]->res[0], &m);
}

static Op *new_loop(const Walk *w, Builder *b) {
  const Op *loop = w->loop;
  uint32_t more = w->n * w->ahead;
  Value *args = NEWN(w->a, Value, loop->nargs + more);
  Type *types = NEWN(w->a, Type, loop->nres + more);
  memcpy(args, loop->args, loop->nargs * sizeof *args);
  for (uint32_t i = 0; i < loop->nres; i++)
    types[i] = *ir_type(w->f, loop->res[i]);
  Value at = prefetch_first(b, loop);
  for (uint32_t k = 0; k < w->ahead; k++) {
    load_all(w, b, at, args + loop->nargs + k * w->n);
    at = prefetch_next(b, loop, at);
    for (uint32_t i = 0; i < w->n; i++)
      types[loop->nres + k * w->n + i] = *ir_type(w->f, w->load[i]->res[0]);
  }
  return ir_op(b, OP_FOR, args, loop->nargs + more, loop->attrs, loop->nattrs,
               types, loop->nres + more, 1);
}

static bool listed(const Walk *w, const Op *op) {
  for (uint32_t i = 0; i < w->n; i++)
    if (w->load[i] == op) return true;
  for (uint32_t i = 0; i < w->nlate; i++)
    if (w->late[i] == op) return true;
  return false;
}

static void fill_body(const Walk *w, Region *to) {
  const Region *from = w->loop->regions[0];
  const Op *y = from->last;
  Builder b = {.fn = w->f, .region = to, .span = w->loop->span};
  ValueMap m = {.arena = w->a};
  uint32_t more = w->n * w->ahead;
  Value *out = NEWN(w->a, Value, y->nargs + more);
  for (uint32_t i = 0; i < from->params.n; i++) {
    const ValueInfo v = *ir_info(w->f, from->params.at[i]);
    vmap_put(&m, from->params.at[i], ir_region_param(to, v.type, v.hint));
  }
  for (uint32_t i = 0; i < more; i++) {
    const Op *load = w->load[i % w->n];
    Value v = ir_region_param(to, *ir_type(w->f, load->res[0]), "ahead");
    if (i < w->n) vmap_put(&m, load->res[0], v);
    else out[y->nargs + i - w->n] = v;
  }
  for (uint32_t i = w->nlate; i-- > 0;) {
    Value v = w->late[i]->res[0];
    vmap_put(&m, v, prefetch_copy(&b, w->loop, v, &m));
  }
  Value at = to->params.at[0];
  for (uint32_t k = 0; k < w->ahead; k++) at = prefetch_next(&b, w->loop, at);
  load_all(w, &b, at, out + y->nargs + more - w->n);
  for (const Op *op = from->first; op != y; op = op->next)
    if (!listed(w, op)) ir_clone(&b, w->f, op, &m, NULL);
  for (uint32_t i = 0; i < y->nargs; i++) out[i] = vmap_get(&m, y->args[i]);
  ir_yield(&b, out, y->nargs + more);
}

static void rewrite(const Walk *w) {
  Op *loop = w->loop;
  Builder b = {.fn = w->f,
               .region = loop->parent,
               .before = loop,
               .span = loop->span};
  Op *made = new_loop(w, &b);
  fill_body(w, made->regions[0]);
  for (uint32_t i = 0; i < loop->nres; i++) {
    ir_info(w->f, made->res[i])->hint = ir_info(w->f, loop->res[i])->hint;
    ir_replace_uses(w->f, loop->res[i], made->res[i]);
  }
  ir_erase(loop);
}

// Registers for what lives at once.
static void leave_room(Func *f, const Target *target, Arena *a) {
  Op *launch = f->body->first;
  int64_t n = ir_attr_i(launch, AT_OCCUPANCY, 1), was = n;
  int64_t threads = ir_attr_i(launch, AT_THREADS, 1);
  int64_t live = ir_pressure(f, a).regs + COST_STEP_OTHER_REGS;
  while (n > 1 && live > target->gpu.regs / (threads * n)) n--;
  if (n < was) ir_set_attr(f, launch, attr_i(AT_OCCUPANCY, n));
}

// Does the loop keep states for a gradient's walk back?
static bool keeps(const Func *f, const Op *loop) {
  for (const FuncParam *p = f->params.at; p < f->params.at + f->params.n; p++)
    if (p->role == PR_SHARED && ir_is_stored(loop->regions[0], p->v))
      return true;
  return false;
}

// Is there a walk of a gradient?
static bool region(Func *f, Region *r, Arena *a, bool judges) {
  bool back = false;
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++)
      back |= region(f, op->regions[i], a, judges);
    if (op->code != OP_FOR || !is_walk(f, op, judges)) continue;
    Walk w = {.f = f, .a = a, .loop = op, .judges = judges};
    w.sums = judges && is_long_sum(f, op);
    find_loads(&w);
    if (w.n && w.ahead) rewrite(&w);
    back |= w.back || (!judges && keeps(f, op));
  }
  return back;
}

bool pass_walk_ahead(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (ir_has_products(f)) continue;
    bool back = region(f, f->body, m->arena, !ir_has_steps(f));
    if (back && ir_launch(f)) leave_room(f, opt->target, m->arena);
  }
  return true;
}
