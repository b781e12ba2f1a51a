// remat: values live shorter, in code that is to keep few registers.
//
//   before  launch() {threads = 128}
//           %u = gload(%U, %h, %d)
//           for(..) {
//             if(%whole) { .. }
//             else { for(%t) { .. %u .. %h .. } }
//           }
//           gstore(%S, %s, %h, %r)
//   after   launch() {threads = 128, lean = true, leaner = true}
//           for(..) {
//             if(%whole) { .. }
//             else { %g = uniform(%h)  %u = gload(%U, %g, %d)
//                    for(%t) { .. %u .. %g .. } }
//           }
//           %i = uniform(%h)  gstore(%S, %s, %i, %r)
//
// The driver asks for it where the hardware's compiler spills, a kernel each
// (tools/driver/gpu/fit.c): it takes instructions. Chunks that are not whole
// are rare: what only they need is made there, of numbers that are made remat,
// or the compilers would make it in front of the loop, and keep it. So are
// coordinates of what the loop has left, and of what a chunk stores whose
// threads load its tiles themselves (passes/hopper/spill_chunks.c), and at the
// last levels numbers that addresses in the loop are made of. At the very last
// such numbers are found again of the task's, and rows of what is stored of the
// thread's, which are read again (`anew`):
//   %g = uniform(mod(task() {remat = true}, %n))
// What costs whole chunks nothing is done for every program with steps: what
// only the rare branch needs goes there; of sequences whose ends memory has,
// numbers are made anew there and behind the loop; what a task loads for the
// next one has coordinates of its own, and so has what single steps store
// behind their loop:
//   %c = coord() {remat = true}  gstore(%S, %s, %h, %r, %c)
// Code generation has an order that keeps less, and reads what threads hand
// round from shared memory for each use. Level frag; NVIDIA, programs with
// steps; others have the attribute `lean` alone, at its level, and behind it
// passes/hopper/spill_smem.c. Needs: lower_gpu. Tests: test/passes/remat.
#include "passes/hopper/remat.h"

#include "ir/layout.h"
#include "passes/hopper/rings.h"

// ---------------------------------------------------------------- numbers
static bool is_number(const Func *f, Value v, const Region *r) {
  const Op *op = ir_def(f, v);
  const Type *t = ir_type(f, v);
  return t->kind == TK_ELEM && t->dtype == DT_I32 &&
         (!r || ir_defined_outside(f, v, r)) && !(op && op->code == OP_CONST);
}

static Value anew(Func *f, Region *r, Value v) {
  for (const Op *op = r->first; op && op->code == OP_UNIFORM; op = op->next)
    if (op->args[0] == v) return op->res[0];
  Builder b = {.fn = f,
               .region = r,
               .before = r->first,
               .span = r->first->span};
  return ir_1(&b, OP_UNIFORM, v);
}

static bool is_access(const Op *op) {
  return op->code == OP_GLOAD || op->code == OP_GSTORE || op->code == OP_SPLAT;
}

// Numbers from outside of r that addresses in `in` are made of, or all.
static void renew(Func *f, Region *r, Region *in, bool all) {
  for (Op *op = in->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++)
      renew(f, r, op->regions[i], all);
    if (op->code == OP_UNIFORM || (!all && !is_access(op))) continue;
    for (uint32_t i = 0; i < op->nargs; i++)
      if (is_number(f, op->args[i], r)) op->args[i] = anew(f, r, op->args[i]);
  }
}

// ---------------------------------------------------------------- branches
static bool is_read(const Func *f, const Op *op) {
  return op->code == OP_GLOAD ? ir_is_input(f, op->args[0])
                              : op_info(op->code)->flags & OPF_PURE;
}

// What stands in front of the loop and only the branch needs.
static void sink(const Func *f, Op *loop, Region *rare) {
  for (Op *op = loop->prev, *prev; op; op = prev) {
    prev = op->prev;
    if (op->nres != 1 || op->nregions || op->code == OP_CONST ||
        !is_read(f, op) || ir_type(f, op->res[0])->kind == TK_SMEM)
      continue;
    uint32_t n = ir_uses_in(rare, op->res[0]);
    if (n && n == ir_count_uses(f, op->res[0])) ir_move_before(op, rare->first);
  }
}

// ---------------------------------------------------------------- behind
// The fragment of coordinates v once more, of numbers made anew at op.
static Value again(Func *f, Op *at, Value v, bool threads) {
  const Op *op = ir_def(f, v);
  Builder b = {.fn = f, .region = at->parent, .before = at, .span = at->span};
  if (is_number(f, v, NULL)) return ir_1(&b, OP_UNIFORM, v);
  if (!op || ir_type(f, v)->kind != TK_FRAG) return v;
  const Type t = *ir_type(f, v);
  if (threads && op->code == OP_COORD && ir_attr_i(op, AT_POS, 0) == AXIS_ROW) {
    const IrAttr attrs[2] = {*ir_attr(op, AT_POS), attr_i(AT_REMAT, 1)};
    return ir_op(&b, OP_COORD, NULL, 0, attrs, 2, &t, 1, 0)->res[0];
  }
  if (op->code != OP_ADD && op->code != OP_SPLAT) return v;
  Value args[2];
  for (uint32_t i = 0; i < op->nargs; i++)
    args[i] = again(f, at, op->args[i], threads);
  return ir_op(&b, op->code, args, op->nargs, op->attrs, op->nattrs, &t, 1, 0)
      ->res[0];
}

void hop_remat_stores(Func *f, Op *op, bool threads) {
  for (; op; op = op->next)
    for (uint32_t i = 2; op->code == OP_GSTORE && i < op->nargs; i++)
      if (ir_type(f, op->args[i])->dtype == DT_I32)
        op->args[i] = again(f, op, op->args[i], threads);
}

// ---------------------------------------------------------------- loops
static void loops(Func *f, Region *r, int64_t level) {
  bool threads = level == RELIEF_TASK;
  for (Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) loops(f, op->regions[i], level);
    if (op->code != OP_FOR || !op->nres) continue;
    const Op *chunk = loop_chunk(op);
    Region *body = op->regions[0], *rare = chunk ? chunk->regions[1] : NULL;
    if (!rare && !loop_has_fill(op)) continue;
    if (rare) sink(f, op, rare);
    if (rare) renew(f, rare, rare, true);
    if (relief_stows(level, loop_has_fill(op))) renew(f, body, body, false);
    hop_remat_stores(f, op->next, threads);
    if (!loop_has_fill(op))
      hop_remat_stores(f, chunk->regions[0]->first, threads);
  }
}

// ---------------------------------------------------------------- tasks
enum { ARGS = 2 };

// A number that is found of the task's, or of dims alone.
static bool is_found(const Func *f, Value v, bool *of_task) {
  const Op *op = ir_def(f, v);
  if (!op || !is_number(f, v, NULL)) return op && op->code == OP_CONST;
  *of_task |= op->code == OP_TASK;
  if (op->code == OP_TASK || op->code == OP_DIM) return true;
  bool is = op->nargs <= ARGS && op_info(op->code)->flags & OPF_ELEM;
  for (uint32_t i = 0; is && i < op->nargs; i++)
    is = is_found(f, op->args[i], of_task);
  return is;
}

// v once more at b, of the task's number read again.
static Value found(Builder *b, Value v) {
  const Op *op = ir_def(b->fn, v);
  Value args[ARGS];
  if (op->code == OP_CONST || op->code == OP_DIM) return v;
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = found(b, op->args[i]);
  const Type t = *ir_type(b->fn, v);
  const IrAttr again = attr_i(AT_REMAT, 1);
  bool task = op->code == OP_TASK;
  return ir_op(b, op->code, args, op->nargs, task ? &again : op->attrs,
               task ? 1 : op->nattrs, &t, 1, 0)
      ->res[0];
}

// Numbers that are made anew are found of the task's.
static void of_task(Func *f, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) of_task(f, op->regions[i]);
    bool task = false;
    if (op->code != OP_UNIFORM || !is_found(f, op->args[0], &task) || !task)
      continue;
    Builder b = {.fn = f, .region = r, .before = op, .span = op->span};
    op->args[0] = found(&b, op->args[0]);
  }
}

// ---------------------------------------------------------------- always
// Is v made of what memory has?
static bool is_loaded(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  if (!op || op->nregions) return false;
  if (op->code == OP_GLOAD) return true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (ir_type(f, op->args[i])->kind == TK_ELEM && is_loaded(f, op->args[i]))
      return true;
  return false;
}

// Of sequences whose ends memory has: they have more numbers than others.
static void chunks(Func *f, Op *loop) {
  const Op *chunk = loop_chunk(loop);
  Region *rare = chunk ? chunk->regions[1] : NULL;
  if (rare) sink(f, loop, rare);
  if (!rare || !is_loaded(f, loop->args[1])) return;
  renew(f, rare, rare, true);
  hop_remat_stores(f, loop->next, false);
}

// Indices of op that are coordinates from outside of r, or any, are made anew.
static void renew_coords(Func *f, Op *op, const Region *r) {
  Builder b = {.fn = f, .region = op->parent, .before = op, .span = op->span};
  for (uint32_t i = 1; i < op->nargs; i++) {
    const Op *coord = ir_def(f, op->args[i]);
    if (!coord || coord->code != OP_COORD ||
        (r && !ir_defined_outside(f, op->args[i], r)))
      continue;
    const IrAttr attrs[2] = {*ir_attr(coord, AT_POS), attr_i(AT_REMAT, 1)};
    const Type t = *ir_type(f, op->args[i]);
    op->args[i] = ir_op(&b, OP_COORD, NULL, 0, attrs, 2, &t, 1, 0)->res[0];
  }
}

// What a task loads for the next one, at coordinates that all tasks have.
static void ahead(Func *f, Op *loop) {
  const Op *most = ir_def(f, loop->args[1]), *y = loop->regions[0]->last;
  for (uint32_t i = 0; most && most->code == OP_NTASKS && i < y->nargs; i++) {
    Op *load = ir_def(f, y->args[i]);
    if (load && load->code == OP_GLOAD && load->parent == y->parent)
      renew_coords(f, load, y->parent);
  }
}

// What costs a whole chunk nothing, or next to nothing, and a task little.
static void cheap(Func *f, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) cheap(f, op->regions[i]);
    if (op->code != OP_FOR || !op->nres || !loop_has_fill(op)) continue;
    ahead(f, op);
    chunks(f, op);
  }
}

// Single steps, of several CTAs on a multiprocessor: they have the fewest
// registers, and store behind their loop what they loaded in front of it.
static void crowded(Func *f) {
  bool behind = false;
  if (ir_attr_i(f->body->first, AT_OCCUPANCY, 1) < 2) return;
  for (const Op *op = f->body->first; op; op = op->next)
    if (loop_has_fill(op)) return;
  for (Op *op = f->body->first; op; op = op->next) {
    if (behind && op->code == OP_GSTORE) renew_coords(f, op, NULL);
    behind |= op->code == OP_FOR;
  }
}

// The attribute does for stores what `crowded` does.
static void always(Func *f, int64_t level) {
  if (level <= RELIEF_FREE) cheap(f, f->body);
  if (level == RELIEF_NONE) crowded(f);
}

bool pass_remat(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  (void)cx;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    int64_t level = relief_of(f);
    if (!ir_launch(f)) continue;
    bool steps = ir_has_steps(f);
    if (steps) always(f, level);
    if (level == RELIEF_NONE || (level > RELIEF_FREE && !steps)) continue;
    ir_set_attr(f, f->body->first, attr_i(AT_LEAN, 1));
    if (level == RELIEF_FREE) continue;
    ir_set_attr(f, f->body->first, attr_i(AT_LEANER, 1));
    loops(f, f->body, level);
    if (level == RELIEF_TASK) of_task(f, f->body);
  }
  return true;
}
