// The wave interpreter: programs of GPUs at level mach,
// executed on the host as a device would.
//
//   attn-run f.tir --target=sm_80 --passes=lower_gpu,bufferize_gpu --round --tol=1e-2
//
// Waves take turns at random points (the seed chooses order and length of
// turns), so each run is one of the schedules that barriers allow; what is
// copied asynchronously arrives as late as it may, or at any time before.
// Registers are per lane, as layouts.def spreads fragments, and products read
// them by the formulas of the instructions (mma.c), which do not come from
// layouts.def: a layout that is wrong gives wrong numbers here too.
//
// Not modelled: caches, bank conflicts, registers' number, what the code
// generator makes of an op.
#include "ir/simt/simt.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---------------------------------------------------------------- values
void simt_fail(const Wave *w, const Op *op, const char *what) {
  Interp *in = wave_in(w);
  if (in->failed) return;
  interp_fail(in, op,
              arena_printf(&in->cx->session, "wave %u of task %u: %s", w->id,
                           w->cta->id, what));
}

const Type *simt_type(const Wave *w, Value v) {
  return ir_type(wave_in(w)->f, v);
}

WaveVal *simt_val(Wave *w, Value v) {
  WaveVal *x = &w->val[v];
  if (x->flying)
    simt_fail(w, ir_def(wave_in(w)->f, v), "its result is used before wg_wait");
  return x;
}

double simt_scalar(Wave *w, Value v) {
  return simt_val(w, v)->at[0];
}

static bool holds_copies(const FragMap *m, uint32_t thread) {
  for (uint32_t i = 0; i < m->nthr; i++) {
    if (m->thr[i].axis == AXIS_NONE && thread % m->thr[i].size) return true;
    thread /= m->thr[i].size;
  }
  return false;
}

static void fill_map(Arena *a, WaveMap *m) {
  uint32_t regs = m->regs = m->map.regs, threads = m->map.threads;
  m->reg = arena_alloc(a, (regs + 1) * sizeof *m->reg);
  m->thread = arena_alloc(a, (threads + 1) * sizeof *m->thread);
  m->copy = NEWN(a, bool, threads + 1);
  for (uint32_t i = 0; i < regs; i++) frag_at(&m->map, i, 0, m->reg[i]);
  for (uint32_t i = 0; i < threads; i++) {
    frag_at(&m->map, 0, i, m->thread[i]);
    m->copy[i] = holds_copies(&m->map, i);
  }
}

const char *simt_frag_map(const Wave *w, const Type *t, FragMap *m) {
  const InterpOpt *opt = wave_in(w)->opt;
  return opt->map ? opt->map(t, w->grp->threads, m)
                  : frag_map(t, w->grp->threads, m);
}

const WaveMap *simt_map(Wave *w, Value v, const Type *t) {
  WaveRun *x = w->cta->x;
  if (x->map[v]) return x->map[v];
  WaveMap *m = NEWN(x->in->arena, WaveMap, 1);
  const char *err = simt_frag_map(w, t, &m->map);
  if (err) simt_fail(w, ir_def(x->in->f, v), err);
  fill_map(x->in->arena, m);
  return x->map[v] = m;
}

static double *numbers(Wave *w, uint32_t n) {
  return NEWN(w->cta->x->arena, double, n);
}

WaveVal *simt_define(Wave *w, Value v) {
  const Type *t = simt_type(w, v);
  uint32_t regs = t->kind == TK_FRAG ? simt_map(w, v, t)->regs : 0;
  WaveVal *x = &w->val[v];
  // A loop defines a value again and again.
  if (!x->at || x->regs != regs)
    x->at = numbers(w, regs ? regs * w->cta->x->lanes : 1);
  x->regs = regs;
  x->flying = 0;
  x->tick = w->cta->x->tick;
  return x;
}

void simt_set(Wave *w, Value v, double n) {
  simt_define(w, v)->at[0] = n;
}

// ---------------------------------------------------------------- scalars
static bool launch_fact(Wave *w, const Op *op) {
  WaveRun *x = w->cta->x;
  double v = 0;
  switch (op->code) {
  case OP_TASK:
  case OP_CTA: v = w->cta->id; break;
  case OP_NTASKS: v = (double)x->tasks; break;
  case OP_NCTAS: v = x->ctas; break;
  default:  // claim: one wave's
    if (wave_first(w)) v = (double)(x->ctas + x->claimed++);
  }
  simt_set(w, op->res[0], v);
  return true;
}

static bool tensor_fact(Wave *w, const Op *op) {
  const Interp *in = wave_in(w);
  const InterpTensor *t = &in->args[in->arg_of[op->args[0]]];
  int64_t pos = ir_attr_i(op, AT_POS, 0);
  double v = t->rank || t->data ? t->data != NULL : t->given;
  if (op->code != OP_GIVEN)
    v = (double)(op->code == OP_TSHAPE ? t->shape : t->stride)[pos];
  simt_set(w, op->res[0], v);
  return true;
}

static bool same_scalar(Wave *w, const Op *op) {
  simt_set(w, op->res[0], simt_scalar(w, op->args[0]));
  return true;
}

static bool nothing(Wave *w, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++) simt_val(w, op->args[i]);
  return true;
}

// ---------------------------------------------------------------- control
static void enter(Wave *w, const Op *op, const Region *r) {
  if (w->depth == MAX_DEPTH) {
    simt_fail(w, op, "regions are nested too deeply");
    return;
  }
  w->frame[w->depth++] = (Frame){.op = op, .next = r->first};
}

static void copy_value(Wave *w, Value to, const WaveVal *from) {
  WaveVal *x = simt_define(w, to);
  uint32_t k = x->regs ? x->regs * w->cta->x->lanes : 1;
  memcpy(x->at, from->at, k * sizeof *x->at);
  x->flying = from->flying;
  x->tick = from->tick;
}

static bool apart(const Value *to, const Value *from, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < n; k++)
      if (to[i] == from[k]) return false;
  return true;
}

// Products in flight may be carried.
static void copy(Wave *w, const Value *to, const Value *from, uint32_t n) {
  if (apart(to, from, n)) {
    for (uint32_t i = 0; i < n; i++) copy_value(w, to[i], &w->val[from[i]]);
    return;
  }
  Arena *a = &wave_in(w)->cx->scratch;
  ArenaMark mark = arena_mark(a);
  WaveVal *v = NEWN(a, WaveVal, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    v[i] = w->val[from[i]];
    uint32_t k = v[i].regs ? v[i].regs * w->cta->x->lanes : 1;
    double *at = NEWN(a, double, k);
    memcpy(at, v[i].at, k * sizeof *at);
    v[i].at = at;
  }
  for (uint32_t i = 0; i < n; i++) copy_value(w, to[i], &v[i]);
  arena_reset(a, mark);
}

static void for_turn(Wave *w, Frame *f) {
  const Region *r = f->op->regions[0];
  simt_set(w, r->params.at[0], (double)f->i);
  f->next = r->first;
}

static bool loop(Wave *w, const Op *op) {
  const Region *r = op->regions[0];
  int64_t lo = (int64_t)simt_scalar(w, op->args[0]);
  int64_t hi = (int64_t)simt_scalar(w, op->args[1]);
  int64_t step = (int64_t)simt_scalar(w, op->args[2]);
  if (step <= 0) {
    simt_fail(w, op, "step is not positive");
    return true;
  }
  int64_t n = hi > lo ? (hi - lo + step - 1) / step : 0;
  copy(w, r->params.at + 1, op->args + 3, op->nres);
  if (!n) {
    copy(w, op->res, r->params.at + 1, op->nres);
    return true;
  }
  enter(w, op, r);
  Frame *f = &w->frame[w->depth - 1];
  f->left = n - 1;
  f->i = ir_attr_i(op, AT_REVERSE, 0) ? lo + (n - 1) * step : lo;
  for_turn(w, f);
  return true;
}

static bool while_goes_on(Wave *w, const Op *op) {
  const Region *r = op->regions[0];
  if (simt_scalar(w, r->params.at[0]) < simt_scalar(w, op->args[0]))
    return true;
  copy(w, op->res, r->params.at, op->nres);
  return false;
}

static bool while_loop(Wave *w, const Op *op) {
  copy(w, op->regions[0]->params.at, op->args + 1, op->nres);
  if (while_goes_on(w, op)) enter(w, op, op->regions[0]);
  return true;
}

static bool branch(Wave *w, const Op *op) {
  enter(w, op, op->regions[simt_scalar(w, op->args[0]) == 0]);
  return true;
}

// The end of the innermost region: the next turn, or what is behind its owner.
static void leave(Wave *w, const Op *yield) {
  Frame *f = &w->frame[w->depth - 1];
  const Op *op = f->op;
  if (!op || op->code == OP_ROLES) {
    w->depth = 0;
    return;
  }
  if (op->code == OP_IF) {
    copy(w, op->res, yield->args, op->nres);
    w->depth--;
  } else if (op->code == OP_WHILE) {
    copy(w, op->regions[0]->params.at, yield->args, op->nres);
    f->next = op->regions[0]->first;
    if (!while_goes_on(w, op)) w->depth--;
  } else {
    const Region *r = op->regions[0];
    copy(w, r->params.at + 1, yield->args, op->nres);
    if (f->left-- > 0) {
      int64_t step = (int64_t)simt_scalar(w, op->args[2]);
      f->i += ir_attr_i(op, AT_REVERSE, 0) ? -step : step;
      for_turn(w, f);
      return;
    }
    copy(w, op->res, r->params.at + 1, op->nres);
    w->depth--;
  }
}

// ---------------------------------------------------------------- roles
static Group *role_group(Wave *w, uint32_t first, uint32_t threads,
                         uint32_t instance) {
  Cta *c = w->cta;
  for (uint32_t i = 0; i < c->nwaves; i++) {
    Group *g = c->wave[i].grp;
    if (g != &c->all && g->first == first) return g;
  }
  Group *g = NEWN(c->x->arena, Group, 1);
  uint32_t waves = threads == 1 ? 1 : threads / c->x->lanes;
  *g = (Group){.first = first,
               .waves = waves,
               .threads = threads,
               .instance = instance};
  return g;
}

static bool roles(Wave *w, const Op *op) {
  const IrAttr *teams = ir_attr(op, AT_TEAMS), *sizes = ir_attr(op, AT_GROUPS);
  uint32_t lanes = w->cta->x->lanes, from = 0;
  for (uint32_t i = 0; i < op->nregions; i++) {
    const Region *r = op->regions[i];
    uint32_t waves = (uint32_t)teams->list[i] / lanes, at = w->id - from;
    uint32_t size = (uint32_t)sizes->list[i],
             per = size < lanes ? 1 : size / lanes;
    if (w->id >= from + waves) {
      from += waves;
      continue;
    }
    w->depth = 0;
    if (at >= per && (size == 1 || !r->params.n)) return true;  // none for it
    w->grp = role_group(w, from + at / per * per, size, at / per);
    if (size == 1) w->lanes = 1;
    if (r->params.n) simt_set(w, r->params.at[0], w->grp->instance);
    enter(w, op, r);
    return true;
  }
  return true;
}

// ---------------------------------------------------------------- running
static WaveFn *fn_of(OpCode c) {
  static WaveFn *const control[OP_COUNT] = {
      [OP_LAUNCH] = nothing,     [OP_PIN] = nothing,
      [OP_TASK] = launch_fact,   [OP_CTA] = launch_fact,
      [OP_NTASKS] = launch_fact, [OP_NCTAS] = launch_fact,
      [OP_CLAIM] = launch_fact,  [OP_UNIFORM] = same_scalar,
      [OP_TSHAPE] = tensor_fact, [OP_TSTRIDE] = tensor_fact,
      [OP_GIVEN] = tensor_fact,  [OP_FOR] = loop,
      [OP_WHILE] = while_loop,   [OP_IF] = branch,
      [OP_ROLES] = roles,
  };
  WaveFn *fn = control[c];
  if (!fn) fn = simt_order_fn(c);
  if (!fn) fn = simt_mem_fn(c);
  if (!fn) fn = simt_copy_fn(c);
  if (!fn) fn = simt_mma_fn(c);
  return fn ? fn : simt_frag_fn(c);
}

static void finish(Wave *w) {
  simt_finish_stores(w, 0);
  // What another CTA has got by then would be written.
  if (w->copies.n) simt_fail(w, NULL, "ends before its copies have arrived");
  w->state = WV_DONE;
  w->cta->left--;
}

static void step(Wave *w) {
  Frame *f = &w->frame[w->depth - 1];
  const Op *op = f->next;
  Interp *in = wave_in(w);
  if (++in->steps > in->budget) interp_fail(in, op, "too many steps");
  w->cta->x->tick++;
  w->state = WV_RUN;
  if (!op || op->code == OP_YIELD) {
    leave(w, op);
  } else {
    WaveFn *fn = w->cta->x->fn[op->code];
    if (!fn) simt_fail(w, op, "the interpreter has no such op");
    f->next = op->next;
    if (fn && !fn(w, op) && !in->failed) f->next = op;
  }
  if (!w->depth && !in->failed) finish(w);
}

static void stuck(Cta *c) {
  for (uint32_t i = 0; i < c->nwaves; i++) {
    Wave *w = &c->wave[i];
    if (w->state == WV_DONE) continue;
    const Op *op = w->frame[w->depth - 1].next;
    if (w->state == WV_PHASE) simt_fail(w, op, "waits for ever for a phase");
    else simt_fail(w, op ? op->prev : NULL, "waits for ever: not all arrive");
    return;
  }
}

// How waves take turns.
typedef struct Plan {
  bool random, reverse;
  uint32_t turn;   // longest turn, ops
  uint32_t eager;  // copies: chance of one in so many turns
} Plan;

static Plan plan_of(uint64_t seed) {
  static const Plan plans[] = {
      {false, true, 1u << 30, 1},
      {true, false, 8, 4},
      {true, false, 64, 16},
      {true, false, 1, 64},
      {false, false, 1u << 30, 1u << 30},
  };
  return plans[seed % (sizeof plans / sizeof *plans)];
}

// One turn of some wave of the CTAs; false if none can go on.
static bool turn(Interp *in, Cta *c, uint32_t n, Plan p) {
  Wave *ready[MAX_CTAS * MAX_WAVES];
  uint32_t k = 0;
  for (uint32_t j = 0; j < n; j++) {
    Cta *x = &c[j];
    if (x->fetches.n && interp_random(in, p.eager) == 0)
      simt_engine(x, (uint32_t)interp_random(in, x->fetches.n));
    for (uint32_t i = 0; i < x->nwaves; i++)
      if (simt_ready(&x->wave[i])) ready[k++] = &x->wave[i];
  }
  for (uint32_t j = 0; !k && j < n; j++)
    if (c[j].fetches.n) {
      simt_engine(&c[j], (uint32_t)interp_random(in, c[j].fetches.n));
      return true;
    }
  if (!k) return false;
  Wave *w = ready[p.random ? interp_random(in, k) : p.reverse ? k - 1 : 0];
  uint64_t len = p.random ? 1 + interp_random(in, p.turn) : p.turn;
  for (uint64_t i = 0; i < len && simt_ready(w) && !in->failed; i++) step(w);
  return true;
}

// ---------------------------------------------------------------- CTAs
// As code generation places them, with 1024 bytes more between two.
static void place_tiles(Cta *c) {
  enum { GAP = 1024 };
  const Func *f = c->x->in->f;
  uint32_t *at = NEWN(c->x->arena, uint32_t, f->values.n + 1);
  c->bytes = smem_place(f, at);
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->code != OP_SALLOC) continue;
    uint32_t before = 0;
    for (const Op *o = f->body->first; o; o = o->next)
      before += o->code == OP_SALLOC && at[o->res[0]] < at[op->res[0]];
    for (uint32_t w = 0; w < c->nwaves; w++)
      c->wave[w].val[op->res[0]].base = at[op->res[0]] + before * GAP;
    c->bytes += GAP;
  }
}

static void place_shared(Cta *c) {
  const Func *f = c->x->in->f;
  c->grain = 8;
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->code == OP_MBAR) c->mbars += ir_type(f, op->res[0])->n;
    if (op->code != OP_SALLOC) continue;
    uint32_t size = (uint32_t)dtype_size(ir_type(f, op->res[0])->dtype);
    if (size < c->grain) c->grain = size;
  }
  place_tiles(c);
  while (1u << c->shift < c->grain) c->shift++;
  c->smem = arena_alloc(c->x->arena, c->bytes + 8);
  c->cell = NEWN(c->x->arena, Cell, c->bytes / c->grain + 1);
  c->read = NEWN(c->x->arena, uint32_t,
                 (size_t)(c->bytes / c->grain + 1) * c->nwaves);
}

static void place_barriers(Cta *c) {
  const Func *f = c->x->in->f;
  uint32_t n = 0;
  c->mbar = NEWN(c->x->arena, Mbar, c->mbars + 1);
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->code != OP_MBAR) continue;
    for (uint32_t w = 0; w < c->nwaves; w++)
      c->wave[w].val[op->res[0]].base = n;
    for (uint32_t i = 0; i < ir_type(f, op->res[0])->n; i++)
      c->mbar[n++].count = (uint32_t)ir_attr_i(op, AT_ARRIVALS, 1);
  }
}

static void start(WaveRun *x, Cta *c, uint32_t id) {
  const Func *f = x->in->f;
  *c = (Cta){.x = x, .id = id, .nwaves = x->threads / x->lanes};
  c->left = c->nwaves;
  c->all = (Group){.waves = c->nwaves, .threads = x->threads};
  c->wave = NEWN(x->arena, Wave, c->nwaves);
  for (uint32_t i = 0; i < c->nwaves; i++) {
    Wave *w = &c->wave[i];
    *w = (Wave){.cta = c,
                .id = i,
                .lanes = x->lanes,
                .grp = &c->all,
                .copy_group = 1,
                .wg_group = 1,
                .store_group = 1};
    w->val = NEWN(x->arena, WaveVal, f->values.n + 1);
    w->clock.at[i] = 1;
    for (uint32_t k = 0; k < f->params.n; k++)
      if (ir_type(f, f->params.at[k].v)->kind != TK_TENSOR)
        simt_set(w, f->params.at[k].v, x->in->args[k].scalar);
    enter(w, NULL, f->body);
  }
  place_shared(c);
  place_barriers(c);
}

static void run_ctas(WaveRun *x, uint32_t first, uint32_t n) {
  Arena a = {.oom = x->in->cx->session.oom,
             .oom_data = x->in->cx->session.oom_data};
  Plan plan = plan_of(x->in->opt->seed);
  x->arena = &a;
  Cta c[MAX_CTAS];
  for (uint32_t i = 0; i < n; i++) {
    start(x, &c[i], first + i);
    c[i].cluster = c;
    c[i].nctas = n;
  }
  uint32_t left = 1;
  while (left && !x->in->failed) {
    bool went = turn(x->in, c, n, plan);
    left = 0;
    for (uint32_t i = 0; i < n; i++) left += c[i].left;
    for (uint32_t i = 0; !went && left && i < n; i++) stuck(&c[i]);
  }
  arena_drop(&a);
}

// ---------------------------------------------------------------- launch
static int64_t count_tasks(const Interp *in) {
  int64_t n = 1;
  for (uint32_t i = 0; i < in->f->grid.n; i++) {
    const GridDim *g = &in->f->grid.at[i];
    n *= (in->extent[g->axis] + g->tile - 1) / g->tile;
  }
  return n;
}

bool simt_interp(Interp *in) {
  const Op *op = ir_launch(in->f);
  const Target *t = target_by_name(in->m->target);
  WaveRun x = {.in = in,
               .target = t,
               .lanes = t->gpu.wave,
               .tasks = count_tasks(in)};
  if (!op) interp_fail(in, NULL, "it does not begin with launch");
  else x.threads = (uint32_t)ir_attr_i(op, AT_THREADS, 0);
  if (op && x.threads % x.lanes)
    interp_fail(in, op, "the threads are no whole waves");
  if (op && x.threads / x.lanes > MAX_WAVES)
    interp_fail(in, op, "more waves than the interpreter has");
  const IrAttr *ctas = op ? ir_attr(op, AT_CTAS) : NULL;
  bool persistent = ctas && strcmp(ctas->s, "persistent") == 0;
  x.map = NEWN(in->arena, WaveMap *, in->f->values.n + 1);
  for (int i = 0; i < 2; i++)
    x.place[i] = NEWN(in->arena, Places *, in->f->values.n + 1);
  for (int i = 0; i < OP_COUNT; i++) x.fn[i] = fn_of((OpCode)i);
  x.ctas = (uint32_t)(persistent && x.tasks > 2 ? 2 : x.tasks);
  if (persistent) {
    if (x.ctas && !in->failed) run_ctas(&x, 0, x.ctas);
    return !in->failed;
  }
  bool down = in->opt->seed & 1;
  uint32_t each = op ? (uint32_t)ir_attr_i(op, AT_CLUSTER, 1) : 1;
  if (each < 1 || each > MAX_CTAS || x.ctas % each)
    interp_fail(in, op, "the tasks are no whole clusters");
  for (uint32_t i = 0; i < x.ctas && !in->failed; i += each)
    run_ctas(&x, down ? x.ctas - each - i : i, each);
  return !in->failed;
}
