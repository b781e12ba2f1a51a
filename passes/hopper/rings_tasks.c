// What the producer tells the groups that compute of each task: the next one's
// number, and numbers that are dear to make.
#include "passes/hopper/rings.h"
#include "passes/support/cost.h"
#include "passes/support/fill.h"

static bool claims(const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_CLAIM) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (claims(op->regions[i])) return true;
  }
  return false;
}

// What the producer has computed of a task and consumers need is handed over
// if it is dear: a quotient by what is no constant, or read from memory. All
// threads would make it remat, when tensor cores have nothing to do.
typedef struct Facts {
  Rings *w;
  const Region *body;  // of the loop over tasks
  bool *seen;          // by value
  bool *fact;
} Facts;

static bool is_dear(const Facts *s, const Op *op) {
  const Func *f = s->w->f;
  double k;
  if (!s->w->wanted[op->res[0]] || ir_type(f, op->res[0])->dtype != DT_I32)
    return false;
  if (op->code == OP_FLOORDIV || op->code == OP_MOD)
    return !ir_const_value(f, op->args[1], &k);
  return op->code == OP_UNIFORM ||
         (op->code == OP_GLOAD && ir_type(f, op->res[0])->kind == TK_ELEM);
}

static void need_value(Facts *s, Value v) {
  const Op *op = ir_def(s->w->f, v);
  if (s->seen[v] || !op || op->parent != s->body) return;
  s->seen[v] = true;
  if (op->nregions || op->code == OP_SFILL) return;  // needed for themselves
  s->fact[v] = is_dear(s, op);
  uint32_t end, i = hop_rings_own(s->w, op, &end);
  for (; i < end && !s->fact[v]; i++) need_value(s, op->args[i]);
}

// Scalars that a loop makes for the producer reach consumers as facts.
static bool is_search(const Rings *w, const Op *op) {
  bool scalar = op->code == OP_FOR && hop_rings_wanted(w, op);
  for (uint32_t i = 0; i < op->nres; i++)
    scalar = scalar && ir_type(w->f, op->res[i])->kind == TK_ELEM;
  return scalar && !loop_has_fill(op);
}

static void need_region(Facts *s, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (is_search(s->w, op)) continue;
    bool scalar = op->parent == s->body && op->nres == 1 && !op->nregions &&
                  (op_info(op->code)->flags & OPF_PURE || is_dear(s, op)) &&
                  ir_type(s->w->f, op->res[0])->kind == TK_ELEM;
    for (uint32_t i = 0; i < op->nargs && !scalar; i++)
      need_value(s, op->args[i]);
    for (uint32_t i = 0; i < op->nregions; i++) need_region(s, op->regions[i]);
  }
}

static const Op *task_loop(const Rings *w) {
  for (const Op *op = w->body->first; op; op = op->next)
    if (hop_rings_is_task_loop(w->f, op) && loop_has_fill(op)) return op;
  return NULL;
}

static void mark_used(const Rings *w, bool *used, const Op *op) {
  uint32_t end, i = hop_rings_own(w, op, &end);
  for (; i < end; i++) used[op->args[i]] = true;
}

static void mark_all(Rings *w, bool *used, const Op *op);

// Scalars read in loops of which only the producer makes anything.
static void mark_region(Rings *w, bool *used, const Region *r) {
  for (const Op *op = r->last; op; op = op->prev) {
    bool read = op->code == OP_GLOAD || op->code == OP_UNIFORM;
    bool scalar = op->nres == 1 && ir_type(w->f, op->res[0])->kind == TK_ELEM;
    bool plain = op_info(op->code)->flags & OPF_PURE && !op->nregions;
    if (op->code == OP_SFILL) {
      if (fill_mended(op)) used[fill_by(op)] = true;
    } else if (scalar && (read || plain) && !used[op->res[0]]) {
      w->spare[op->res[0]] = true;
    } else {
      mark_all(w, used, op);
    }
  }
}

static void mark_all(Rings *w, bool *used, const Op *op) {
  for (uint32_t i = 0; i < op->nregions; i++)
    mark_region(w, used, op->regions[i]);
  mark_used(w, used, op);
}

// What only facts are made of is left to the producer: dce removes no loads.
static void find_spare(Facts *s) {
  Rings *w = s->w;
  bool *used = NEWN(w->arena, bool, w->f->values.n);
  w->spare = NEWN(w->arena, bool, w->f->values.n);
  for (const Op *op = s->body->last; op; op = op->prev) {
    if (op->nres && s->fact[op->res[0]]) continue;
    bool needed = !op->nres || op_info(op->code)->flags & OPF_TERM;
    for (uint32_t i = 0; i < op->nres; i++)
      needed = needed || used[op->res[i]] ||
               ir_type(w->f, op->res[i])->kind != TK_ELEM;
    bool plain = op_info(op->code)->flags & OPF_PURE && !op->nregions;
    if (!needed && (plain || op->code == OP_GLOAD || op->code == OP_UNIFORM ||
                    is_search(w, op)))
      w->spare[op->res[0]] = true;
    else mark_all(w, used, op);
  }
}

static void find_facts(Rings *w, const Op *loop) {
  Facts s = {w, loop->regions[0], NEWN(w->arena, bool, w->f->values.n),
             NEWN(w->arena, bool, w->f->values.n)};
  uint32_t n = 0;
  bool late = false;
  need_region(&s, s.body);
  for (const Op *op = s.body->first; op; op = op->next) {
    late |= n && op->nregions && loop_has_fill(op);
    if (op->nres != 1 || !s.fact[op->res[0]]) continue;
    // Consumers wait for all facts where they need the first: the producer must
    // not fill a loop's tiles in between, which they are to empty.
    if (late) s.fact[op->res[0]] = false;
    else if (n++ < MAX_FACTS) w->fact[n - 1] = op->res[0];
  }
  w->nfacts = n <= MAX_FACTS ? n : 0;
  if (w->nfacts) find_spare(&s);
}

// The next task is claimed before the last tile of this one is loaded: the
// answer of the counter arrives while that tile's slot becomes free.
static void find_early(Rings *w, const Op *loop) {
  const Op *claim = NULL;
  for (const Op *op = loop->regions[0]->last; op; op = op->prev) {
    if (op->code == OP_CLAIM) claim = op;
    if (op->nregions && loop_has_fill(op)) return;
    if (op->code != OP_SFILL || !claim) continue;
    w->early = op;
    return;
  }
}

static int word_ring(Rings *w) {
  w->rings[w->nrings] =
      (Ring){.with = -1, .visits = -1, .stages = COST_RING_TASKS};
  return (int)w->nrings++;
}

void hop_rings_tasks(Rings *w) {
  const Op *loop = task_loop(w);
  if (claims(w->f->body)) w->claims = word_ring(w);
  if (!loop) return;
  find_early(w, loop);
  find_facts(w, loop);
  if (w->nfacts) w->facts = word_ring(w);
  if (w->nfacts) hop_rings_keep(w, loop);
}
