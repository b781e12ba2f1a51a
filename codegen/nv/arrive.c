// Arrivals at mbarriers. An arrival gives shared memory back to who waits for
// it and writes there, mostly TMA. Neither the instruction nor ptxas waits for
// loads in front of it: the stores of other threads are behind these loads, as
// the memory model wants, but what TMA writes overtakes them
// (docs/gpu/ptxas.md). So a warp arrives if a condition holds that is made of
// all it has loaded, and which is always true:
//
//   %x = sload(%slot)            x = ldmatrix ..
//   mbar_arrive(%empty, %i)  ->  if (lane == 0 & ((x0 | x4 | ..) & zero) == 0)
//                                  mbarrier.arrive
//
// What was read in a region that has ended is not at hand, and to join many
// words, or those of products by lanes where registers are few, is too much: a
// fence comes before the arrival.
#include "codegen/gpu/gpu.h"
#include "ir/pressure.h"

// Who waits for a barrier, and what it writes next.
typedef struct Writes {
  Gpu *n;
  Vec(Value) waited;  // barriers, since something was written
  Vec(Value) tiles,
      bars;  // tile i is written behind a wait for barrier i, or 0
} Writes;

typedef struct Given {
  Gpu *n;
  Value bar;
  Writes writes;
} Given;

static Value whole_tile(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  return op && op->code == OP_SLOT ? whole_tile(f, op->args[0]) : v;
}

static void put_write(Writes *w, Value tile, Value bar) {
  vec_push(&w->n->g->cx->scratch, &w->tiles, tile);
  vec_push(&w->n->g->cx->scratch, &w->bars, bar);
}

static void see_write(void *data, Op *op) {
  Writes *w = data;
  if (op->code == OP_MBAR_WAIT)
    vec_push(&w->n->g->cx->scratch, &w->waited, op->args[0]);
  if (op->code != OP_TMA_LOAD && op->code != OP_SSET && op->code != OP_CP_ASYNC)
    return;
  Value tile = whole_tile(w->n->f, op->args[0]);
  for (uint32_t i = 0; i < w->waited.n; i++)
    put_write(w, tile, w->waited.at[i]);
  w->waited.n = 0;
  put_write(w, tile, 0);
}

// Whether an arrival at the barrier lets somebody write the tile. One that is
// never the first that is written behind a wait may be anybody's.
static bool gives_back(const Given *g, Value tile) {
  bool written = false, known = false;
  for (uint32_t i = 0; i < g->writes.tiles.n; i++) {
    if (g->writes.tiles.at[i] != tile) continue;
    if (g->writes.bars.at[i] == g->bar) return true;
    written = true;
    known = known || g->writes.bars.at[i];
  }
  return written && !known;
}

// Whether the op's result is made of all elements of each operand.
static bool takes_all(const Op *op) {
  return op->nres == 1 && ((op_info(op->code)->flags & OPF_ELEM) ||
                           op->code == OP_BCAST || op->code == OP_FREDUCE);
}

static bool has(const bool *made, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++)
    if (made[op->args[i]]) return true;
  return false;
}

// Whether something between op and `end` cannot be over before all that op has
// read is there: a pin of rows made of it, a product of it that is waited for.
static bool is_awaited(const Gpu *n, const Op *op, const Op *end) {
  bool *made = NEWN(&n->g->cx->scratch, bool, n->f->values.n), issued = false;
  made[op->res[0]] = true;
  while ((op = op->next) && op != end) {
    if (issued && op->code == OP_WG_WAIT) return true;
    if (!has(made, op)) continue;
    if (op->code == OP_WGMMA) issued = issued || made[op->args[0]];
    if (takes_all(op)) made[op->res[0]] = true;
    for (uint32_t i = 0; i < op->nargs && op->code == OP_PIN; i++)
      if (made[op->args[i]] && gpu_arg_type(n, op, i)->slice == SLICE_ROW)
        return true;
  }
  return false;
}

// By lanes, to registers: what op has as its result is made of all that it
// reads.
static bool reads(const Given *g, const Op *op) {
  if (!op->nres || op->code == OP_SLOT || op->code == OP_WGMMA) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (gpu_arg_type(g->n, op, i)->kind == TK_SMEM &&
        gives_back(g, whole_tile(g->n->f, op->args[i])))
      return true;
  return false;
}

static bool arrives(const Given *g, const Op *op) {
  return op->code == OP_MBAR_ARRIVE && op->args[0] == g->bar;
}

// Whether region r may end with a read in flight, since the last arrival in it.
static bool ends_reading(const Given *g, const Region *r) {
  for (const Op *op = r->last; op; op = op->prev) {
    if (arrives(g, op)) return false;
    if (reads(g, op) && !is_awaited(g->n, op, NULL)) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (ends_reading(g, op->regions[i])) return true;
  }
  return false;
}

// What has been read in front of an arrival, since the one before.
typedef struct Reads {
  V words;          // of what may be in flight, joined; or NULL
  bool gone;        // something in flight is not among them: a fence
  bool apart, met;  // lanes have read, and have not met since; they have met
} Reads;

// Those that a thread has which executes op.
static uint32_t registers(const Gpu *n, const Op *op) {
  const Op *roles = op;
  const Region *r = NULL;
  while (roles && roles->code != OP_ROLES) {
    r = roles->parent;
    roles = r->parent;
  }
  const IrAttr *team = roles ? ir_attr(roles, AT_TEAMREGS) : NULL;
  for (uint32_t i = 0; team && i < roles->nregions; i++)
    if (roles->regions[i] == r) return (uint32_t)team->list[i];
  return n->gpu.regs / n->out->threads / n->out->occupancy;
}

// Whether fragments leave hardly a register of a thread that executes op.
static bool is_tight(const Gpu *n, const Op *op) {
  enum { FEW = 16 };
  return ir_pressure(n->f, &n->g->cx->scratch).regs + FEW > registers(n, op);
}

// Joining many words takes registers (HGRN 2 at D 128 spilled 432 bytes), and
// so does a product by lanes that is asked for before its first use (retention
// in f16 with 128 sums of a thread 8 bytes).
static bool many(const Given *g, const Op *op) {
  enum { MANY = 16 };
  if (gpu_res_type(g->n, op)->kind != TK_FRAG) return false;
  if (op->code == OP_MMA && is_tight(g->n, op)) return true;
  const Frag *x = gpu_frag(g->n, op->res[0]);
  return x->n > MANY * (x->by ? x->by : 1);
}

static void see_read(const Given *g, const Op *op, const Op *end, Reads *r) {
  if (reads(g, op)) {
    r->apart = r->apart || !r->met;
    if (!is_awaited(g->n, op, end)) {
      if (many(g, op)) r->gone = true;
      else r->words = nv_joined(g->n, op->res[0], r->words);
    }
  }
  r->met = r->met || op->code == OP_WG_WAIT || op->code == OP_GSYNC;
  for (uint32_t i = 0; i < op->nregions; i++)
    r->gone = r->gone || ends_reading(g, op->regions[i]);
}

static Reads reads_before(const Given *g, const Op *op) {
  Reads r = {0};
  while (op) {
    const Op *around = op->parent->parent, *end = op;
    while ((op = op->prev)) {
      if (arrives(g, op)) return r;
      see_read(g, op, end, &r);
    }
    if (!around || around->code == OP_ROLES) break;
    bool turns = around->code == OP_FOR || around->code == OP_WHILE;
    r.gone = r.gone || (turns && ends_reading(g, around->regions[0]));
    op = around;
  }
  return r;
}

// True when the words are there: there are less than 2^32 tasks.
static V are_there(Gpu *n, V words) {
  LLVMBuilderRef b = n->g->b;
  V tasks = gpu_param(n, n->ntasks_at, LLVMInt64TypeInContext(n->g->lc));
  V zero = LLVMBuildLShr(b, tasks, gpu_i64(n, 32), "");
  V bits = e_and(n->g, words, LLVMBuildTrunc(b, zero, gpu_i32t(n), ""));
  return e_icmp(n->g, LLVMIntEQ, bits, gpu_i32(n, 0));
}

// A group that gives back what others read copies nothing to it.
static bool arrives_copied(Gpu *n, const Op *op) {
  if (!ir_attr_i(op, AT_COPIES, 0)) return false;
  V at = nv_mbar_at(n, op, 0);
  gpu_call(n, "llvm.nvvm.cp.async.mbarrier.arrive.noinc.shared", &at, 1);
  return true;
}

void nv_mbar_arrive(Gpu *n, const Op *op) {
  if (arrives_copied(n, op)) return;
  Given g = {.n = n, .bar = op->args[0], .writes.n = n};
  bool one = n->grp.threads == 1;
  V all = gpu_i32(n, -1), who = NULL;
  bool each = one || ir_attr_i(op, AT_EACH, 0);
  if (!each) who = e_icmp(n->g, LLVMIntEQ, n->grp.lane, gpu_i32(n, 0));
  ir_walk(n->f->body, see_write, &g.writes);
  Reads r = reads_before(&g, op);
  if (r.gone) nv_fence_async(n, op);
  V there = r.words ? are_there(n, r.words) : NULL;
  if (there) who = who ? LLVMBuildAnd(n->g->b, who, there, "") : there;
  // One lane speaks for all.
  bool puts = op->prev && op->prev->code == OP_FENCE_ASYNC;
  if (!each && (r.gone || r.apart || puts))
    gpu_call(n, "llvm.nvvm.bar.warp.sync", &all, 1);
  V a[2] = {nv_mbar_at(n, op, 0), gpu_i32(n, 1)};
  LLVMBasicBlockRef end = who ? gpu_if(n, who) : NULL;
  gpu_call(n, "llvm.nvvm.mbarrier.arrive.scope.cta.space.cta", a, 2);
  if (who) gpu_end(n, end);
}
