// Order of work: pending roots become stages (one loop over panels each) and
// nests in them.
//
// A root goes to the earliest place after what it needs. Inside a stage lanes
// never meet: what reduces over the lanes is complete only after the stage.
#include "passes/cpu/cpu.h"

#include <assert.h>

// ---------------------------------------------------------------- roots
static AxisSet over_axes(const Op *op) {
  const IrAttr *a = ir_attr(op, AT_OVER);
  AxisSet s = 0;
  for (uint32_t i = 0; a && i < a->n; i++) s |= (AxisSet)1 << a->list[i];
  return s;
}

static Root *root_new(Assign *as, RootKind kind, Op *op, Value v) {
  Root *r = NEW(as->arena, Root);
  *r = (Root){.kind = kind, .op = op, .v = v, .lane = -1};
  vec_push(as->arena, &as->pending, r);
  return r;
}

Root *cpu_root_keep(Assign *as, Value v, Form *dst) {
  Root *r = root_new(as, ROOT_KEEP, NULL, v);
  r->dst = dst;
  r->space = cpu_axes_of(as, v);
  for (uint32_t i = 0; i < dst->n; i++) r->space |= (AxisSet)1 << dst->axis[i];
  r->lane = dst->lane;
  r->lane_size = dst->lane_size;
  if (r->lane >= 0) r->space |= (AxisSet)1 << r->lane;
  return r;
}

Root *cpu_root_turn(Assign *as, Value v, Form *from, Form *dst) {
  Root *r = cpu_root_keep(as, v, dst);
  r->kind = ROOT_TURN;
  r->a = from;
  return r;
}

static void dot_operands(Assign *as, Root *r) {
  uint32_t vec = 0;
  r->across = cpu_dot_across(as, r->op, &vec);
  if (r->across) {
    r->kind = ROOT_DOT;
    r->va = r->op->args[vec];
    r->vb = r->op->args[1 - vec];
    r->a = as->forms[r->va];
    r->b = as->forms[r->vb];
    return;
  }
  cpu_dot_blocked(as, r->op, r->lane, &vec);
  r->kind = ROOT_DOT;
  r->va = r->op->args[vec];
  r->vb = r->op->args[1 - vec];
  r->dp = cpu_dot_pairs(as, r->op, r->lane);
  uint32_t over = (uint32_t)ir_attr(r->op, AT_OVER)->list[0];
  r->a = r->dp ? cpu_form_of_pairs(as, r->va, over, true)
               : cpu_form_of_rows(as, r->va, r->lane);
  if (!r->a && !r->dp) r->a = as->vec_form[r->va];
  r->b = r->dp ? cpu_form_of_pairs(as, r->vb, over, false) : as->forms[r->vb];
  if (!r->a) r->a = as->forms[r->va];
}

static bool behind_loop(const Op *op) {
  while (op && op->code != OP_FOR) op = op->prev;
  return op;
}

Root *cpu_root_op(Assign *as, Op *op) {
  Root *r = root_new(as, ROOT_REDUCE, op, op->nres ? op->res[0] : 0);
  for (uint32_t i = 0; i < op->nargs; i++)
    r->space |= cpu_axes_of(as, op->args[i]);
  r->lane = cpu_lane_of(as, op, &r->lane_size);
  r->inner = over_axes(op) & r->space;
  uint32_t vec;
  if (op->code == OP_STORE) r->kind = ROOT_STORE;
  if (op->code == OP_ANY_OF || op->code == OP_ALL_OF) r->inner = r->space;
  if (op->code == OP_SCAN) {
    r->kind = ROOT_SCAN;
    r->inner = (AxisSet)1 << ir_attr_i(op, AT_AXIS, 0);
  }
  if (cpu_dot_across(as, op, &vec) ||
      (op->code == OP_DOT && cpu_dot_blocked(as, op, r->lane, &vec)))
    dot_operands(as, r);
  // What only decides which way to go, and what a task writes at its end.
  const Op *in = as->region->parent;
  r->seldom = in && in->code == OP_IF && r->kind == ROOT_REDUCE &&
              r->lane != as->par && as->par >= 0;
  if (!in && r->kind == ROOT_STORE) r->seldom = behind_loop(op);
  if (r->v) as->root_of[r->v] = r;
  return r;
}

// ---------------------------------------------------------------- inputs
typedef void InputFn(Assign *as, Root *r, Root *dep, void *data);

// The root that puts v into form f.
static Root *writer(const Assign *as, const Form *f, Value v) {
  for (uint32_t i = 0; f && i < as->pending.n; i++)
    if (as->pending.at[i]->dst == f && as->pending.at[i]->v == v &&
        !as->pending.at[i]->op)
      return as->pending.at[i];
  return NULL;
}

static void inputs_of(Assign *as, Root *r, Value v, InputFn *fn, void *data) {
  if (as->seen[v] == as->stamp || cpu_is_memory(as, v)) return;
  as->seen[v] = as->stamp;
  Root *d = as->root_of[v];
  if (d) {
    fn(as, r, d, data);
    return;
  }
  if (!cpu_is_inline(as, v)) return;
  Root *w = as->eager[v] ? writer(as, as->forms[v], v) : NULL;
  if (w && w != r) {
    fn(as, r, w, data);
    return;
  }
  const Op *op = ir_def(as->f, v);
  for (uint32_t i = 0; i < op->nargs; i++)
    inputs_of(as, r, op->args[i], fn, data);
}

// Calls fn for each pending root whose result r needs before it starts.
static void each_input(Assign *as, Root *r, InputFn *fn, void *data) {
  as->stamp++;
  if (!r->op) {
    Root *w = writer(as, r->src ? r->src : r->a, r->v);
    if (w) fn(as, r, w, data);
    else if (r->kind == ROOT_KEEP) inputs_of(as, r, r->v, fn, data);
    return;
  }
  for (uint32_t i = 0; i < r->op->nargs; i++) {
    Value v = r->op->args[i];
    bool blocked = r->kind == ROOT_DOT && i < 2;
    Root *w = blocked ? writer(as, v == r->va ? r->a : r->b, v) : NULL;
    if (w) fn(as, r, w, data);
    else inputs_of(as, r, v, fn, data);
  }
}

// Does r read memory that is form f, and not only as the operand of a block?
typedef struct Reads {
  bool any, by_form;
} Reads;

static bool walk_reads(Assign *as, Value v, const Form *f) {
  if (as->seen[v] == as->stamp || cpu_is_memory(as, v)) return false;
  as->seen[v] = as->stamp;
  if (as->ready[v]) return as->forms[v] == f;
  if (as->root_of[v] || !cpu_is_inline(as, v)) return false;
  const Op *op = ir_def(as->f, v);
  bool found = false;
  for (uint32_t i = 0; i < op->nargs && !found; i++)
    found = walk_reads(as, op->args[i], f);
  return found;
}

static Reads reads(Assign *as, const Root *r, const Form *f) {
  Reads x = {0};
  as->stamp++;
  if (r->kind == ROOT_TURN) {
    x.any = x.by_form = r->dst->pair < 0 && r->a == f;
    return x;
  }
  if (r->kind == ROOT_KEEP) {
    x.any = r->src ? r->src == f : walk_reads(as, r->v, f);
    return x;
  }
  for (uint32_t i = 0; i < r->op->nargs; i++) {
    as->stamp++;
    bool hit = walk_reads(as, r->op->args[i], f);
    x.any |= hit;
    x.by_form |= hit && r->kind == ROOT_DOT && i < 2;
  }
  return x;
}

bool cpu_is_read(Assign *as, const Form *f) {
  for (uint32_t i = 0; i < as->pending.n; i++)
    if (reads(as, as->pending.at[i], f).any) return true;
  return false;
}

// ---------------------------------------------------------------- stages
typedef struct Stage {
  int lane;
  Dim size;
  uint32_t nnests;
  bool direct;  // has one root, an operand that may be in place or a product
                // across the lanes
} Stage;

typedef struct Sched {
  Vec(Stage) stages;
} Sched;

static bool has_lanes(const Root *r) {
  return r->lane >= 0 && !(r->inner >> r->lane & 1);
}

// Is it the only root of its stage?
static bool has_stage(const Root *r) {
  return r->direct || r->across;
}

static void after_stage(Assign *as, Root *r, Root *dep, void *data) {
  uint32_t *lo = data;
  (void)as;
  bool same = !has_stage(r) && !has_stage(dep) && dep->lane == r->lane &&
              dep->lane_size == r->lane_size && has_lanes(dep) &&
              dep->lane >= 0;
  uint32_t at = dep->stage + !same;
  if (at > *lo) *lo = at;
}

// As early as possible: what other lanes need does not tear a stage apart.
static void insert_stage(Assign *as, Sched *s, uint32_t at) {
  vec_push(as->arena, &s->stages, (Stage){0});
  for (uint32_t i = s->stages.n - 1; i > at; i--)
    s->stages.at[i] = s->stages.at[i - 1];
  for (uint32_t i = 0; i < as->pending.n; i++) {
    Root *r = as->pending.at[i];
    if (r->stage != UINT32_MAX && r->stage >= at) r->stage++;
  }
}

static void place_stage(Assign *as, Sched *s, Root *r) {
  uint32_t lo = 0;
  each_input(as, r, after_stage, &lo);
  if (r->last && s->stages.n) {
    // Behind everything: in the last stage, or in a new one.
    const Stage *st = &s->stages.at[s->stages.n - 1];
    bool same = !st->direct && st->lane == r->lane && st->size == r->lane_size;
    lo = s->stages.n - same;
  }
  for (uint32_t i = lo; i < s->stages.n && !has_stage(r); i++) {
    Stage *st = &s->stages.at[i];
    if (st->lane != r->lane || st->size != r->lane_size || st->direct) continue;
    r->stage = i;
    return;
  }
  insert_stage(as, s, lo);
  s->stages.at[lo] = (Stage){r->lane, r->lane_size, 0, has_stage(r)};
  r->stage = lo;
}

// ---------------------------------------------------------------- nests
static AxisSet no_lane(const Root *r, AxisSet s) {
  return r->lane >= 0 ? s & ~((AxisSet)1 << r->lane) : s;
}

static int pair_axis(const Root *r) {
  return r->kind == ROOT_KEEP && r->dst->pair != r->dst->lane ? r->dst->pair
                                                              : -1;
}

static bool backwards(const Root *r) {
  return r->kind == ROOT_SCAN && ir_attr_i(r->op, AT_DIR, 0) == DIR_SUFFIX;
}

static bool alone(const Root *r) {
  return r->kind == ROOT_DOT || r->kind == ROOT_TURN || r->cross;
}

static bool reduces(const Root *r) {
  return r->kind == ROOT_REDUCE || r->kind == ROOT_SCAN;
}

// May r share the loops of a nest that o is in?
static bool fits(const Root *o, const Root *r) {
  AxisSet oi = no_lane(o, o->inner), ri = no_lane(r, r->inner);
  if (alone(o) || alone(r) || o->last != r->last) return false;
  if (no_lane(o, o->space) != no_lane(r, r->space)) return false;
  if (reduces(o) && reduces(r) && oi != ri) return false;
  if ((o->kind == ROOT_STORE) != (r->kind == ROOT_STORE)) return false;
  int op = pair_axis(o), rp = pair_axis(r);
  if (op >= 0 && rp >= 0 && op != rp) return false;
  int p = op >= 0 ? op : rp;
  // A result of each element of a pair, as of a sum over the lanes alone, has
  // no place in a loop over pairs.
  if (p >= 0 && (reduces(o) || reduces(r)) && !((oi | ri) >> p & 1))
    return false;
  // Single elements of an odd pair have no place of their own.
  if ((op >= 0) != (rp >= 0) && o->kind == ROOT_KEEP && r->kind == ROOT_KEEP &&
      (op >= 0 ? o : r)->dst->odd)
    return false;
  bool scan = o->kind == ROOT_SCAN || r->kind == ROOT_SCAN;
  if (scan && p >= 0) return false;
  bool ordered = o->kind == ROOT_SCAN && r->kind == ROOT_SCAN;
  return !ordered || backwards(o) == backwards(r);
}

typedef struct After {
  uint32_t stage, lo;
} After;

static void after_nest(Assign *as, Root *r, Root *dep, void *data) {
  After *a = data;
  (void)as, (void)r;
  if (dep->stage == a->stage && dep->nest + 1 > a->lo) a->lo = dep->nest + 1;
}

static bool nest_takes(const Assign *as, const Root *r, uint32_t nest) {
  for (uint32_t i = 0; i < as->pending.n; i++) {
    const Root *o = as->pending.at[i];
    if (o != r && o->stage == r->stage && o->nest == nest && !fits(o, r))
      return false;
  }
  return true;
}

static void place_nest(Assign *as, Stage *st, Root *r) {
  After a = {r->stage, 0};
  each_input(as, r, after_nest, &a);
  uint32_t at = a.lo;
  if (alone(r)) at = st->nnests;
  while (at < st->nnests && !nest_takes(as, r, at)) at++;
  r->nest = at;
  if (at >= st->nnests) st->nnests = at + 1;
}

static uint32_t bits(AxisSet s) {
  return (uint32_t)__builtin_popcountll(s);
}

static void find_unplaced(Assign *as, Root *r, Root *dep, void *data) {
  bool *some = data;
  (void)as;
  *some |= dep != r && !dep->last && dep->stage == UINT32_MAX;
}

// Program order, but what a root takes of one that was found later is in front
// of it.
static void put_in_order(Assign *as) {
  uint32_t n = as->pending.n;
  Root **at = as->pending.at;
  for (uint32_t i = 0; i < n; i++) {
    bool waits = true;
    uint32_t k = i;
    for (; k < n && waits; k++) {
      waits = false;
      if (!at[k]->last) each_input(as, at[k], find_unplaced, &waits);
    }
    Root *first = at[k = waits ? i : k - 1];
    for (; k > i; k--) at[k] = at[k - 1];
    at[i] = first;
    first->stage = 0;
  }
  for (uint32_t i = 0; i < n; i++) at[i]->stage = UINT32_MAX;
}

// Ordinary roots in order, then the last ones, many axes first.
static void place_all(Assign *as, Sched *s) {
  s->stages.n = 0;
  for (uint32_t i = 0; i < as->pending.n; i++) {
    as->pending.at[i]->stage = UINT32_MAX;
    as->pending.at[i]->nest = UINT32_MAX;
  }
  put_in_order(as);
  for (uint32_t i = 0; i < as->pending.n; i++) {
    Root *r = as->pending.at[i];
    if (r->last) continue;
    place_stage(as, s, r);
    place_nest(as, &s->stages.at[r->stage], r);
  }
  for (uint32_t k = MAX_AXES + 1; k-- > 0;)
    for (uint32_t i = 0; i < as->pending.n; i++) {
      Root *r = as->pending.at[i];
      if (!r->last || bits(r->space) != k) continue;
      place_stage(as, s, r);
      place_nest(as, &s->stages.at[r->stage], r);
    }
}

// ---------------------------------------------------------------- in place
static bool before(const Root *a, const Root *b) {
  return a->stage != b->stage ? a->stage < b->stage : a->nest < b->nest;
}

// A home may be written as soon as nobody reads what is in it any more: the
// root that would read it too late, or NULL.
static Root *late_reader(Assign *as, const Root *w) {
  for (uint32_t i = 0; i < as->pending.n; i++) {
    Root *r = as->pending.at[i];
    Reads x = reads(as, r, w->dst);
    if (!x.any || before(r, w)) continue;
    bool same = r->stage == w->stage && r->nest == w->nest;
    if (r == w ? x.by_form : !same || x.by_form) return r;
  }
  return NULL;
}

// w writes elsewhere; its home is filled at the end.
static void take_back(Assign *as, Root *w) {
  Form *home = w->dst, *temp = NULL;
  w->early = false;
  if (w->kind == ROOT_KEEP) {
    for (uint32_t i = 0; i < as->pending.n; i++) {
      Root *r = as->pending.at[i];
      if (r->kind != ROOT_DOT || (r->va != w->v && r->vb != w->v)) continue;
      if (!temp) temp = NEW(as->arena, Form), *temp = *home, temp->base = 0;
      if (r->a == home && r->va == w->v) r->a = temp;
      if (r->b == home && r->vb == w->v) r->b = temp;
    }
    if (!temp) {
      w->last = true;
      return;
    }
    as->forms[w->v] = temp;
  }
  w->dst = temp;
  cpu_root_keep(as, w->v, home)->last = true;
}

// Removes one conflict over a home; true if there was one.
static bool fix_overwrite(Assign *as) {
  for (uint32_t i = 0; i < as->pending.n; i++) {
    Root *w = as->pending.at[i];
    Root *r = w->early || w->last ? late_reader(as, w) : NULL;
    if (!r) continue;
    if (!w->last) {
      take_back(as, w);
      return true;
    }
    // Both are last: r reads a copy made before.
    assert(r->last && !r->src);
    r->src = NEW(as->arena, Form);
    *r->src = *r->dst;
    r->src->base = 0;
    cpu_root_keep(as, r->v, r->src);
    return true;
  }
  return false;
}

// ---------------------------------------------------------------- sharing
// A dear value that two nests want is put in memory by the first.
typedef struct Owner {
  uint32_t stage, nest;
  bool set;
} Owner;

static Root *root_share(Assign *as, const Root *r, Value v) {
  bool mine = r->lane >= 0 && cpu_axes_of(as, v) >> r->lane & 1;
  Dim size = r->lane_size;
  int lane = mine ? r->lane : cpu_lane_of_value(as, v, &size);
  as->forms[v] = cpu_form_new(as, v, lane, size, mine);
  return cpu_root_keep(as, v, as->forms[v]);
}

static void share_walk(Assign *as, const Root *r, Value v, Owner *own) {
  if (as->seen[v] == as->stamp || cpu_is_memory(as, v)) return;
  as->seen[v] = as->stamp;
  if (as->root_of[v] || !cpu_is_inline(as, v) || as->forms[v]) return;
  Owner *o = &own[v];
  bool other = o->set && (o->stage != r->stage || o->nest != r->nest);
  bool loops = (cpu_axes_of(as, v) & ~((AxisSet)1 << (r->lane & 63))) != 0;
  // What is written here is there for the rest of this region only.
  bool here = ir_info(as->f, v)->region == as->region;
  if (other && loops && here && !as->vec_form[v] &&
      cpu_value_cost(as, v) >= 8) {
    root_share(as, r, v);
    return;
  }
  if (!o->set) *o = (Owner){r->stage, r->nest, true};
  const Op *op = ir_def(as->f, v);
  for (uint32_t i = 0; i < op->nargs; i++) share_walk(as, r, op->args[i], own);
}

static void share_root(Assign *as, const Root *r, Owner *own) {
  as->stamp++;
  if (r->kind == ROOT_KEEP && !r->src && !as->forms[r->v])
    share_walk(as, r, r->v, own);
  for (uint32_t i = 0; r->op && i < r->op->nargs; i++) {
    bool operand = r->kind == ROOT_DOT && i != 2;  // 3: seldom looked at
    if (!operand) share_walk(as, r, r->op->args[i], own);
  }
}

// True if a root was added.
static bool share(Assign *as, const Sched *s) {
  uint32_t before_n = as->pending.n;
  Owner *own = NEWN(as->arena, Owner, as->f->values.n);
  for (uint32_t i = 0; i < s->stages.n; i++)
    for (uint32_t k = 0; k < s->stages.at[i].nnests; k++)
      for (uint32_t j = 0; j < before_n; j++) {
        const Root *r = as->pending.at[j];
        if (r->stage == i && r->nest == k) share_root(as, r, own);
      }
  return as->pending.n > before_n;
}

// ---------------------------------------------------------------- lifetimes
static Root *root_at(const Assign *as, const Op *op) {
  for (uint32_t i = 0; i < as->pending.n; i++)
    if (as->pending.at[i]->op == op) return as->pending.at[i];
  return NULL;
}

// Do the pending roots already bring v to where a yield wants it?
static bool is_kept(const Assign *as, Value v) {
  if (as->root_of[v] && as->root_of[v]->early) return true;
  for (uint32_t i = 0; i < as->pending.n; i++) {
    const Root *r = as->pending.at[i];
    if (r->kind == ROOT_KEEP && r->v == v && (r->early || r->last)) return true;
  }
  return false;
}

// Is v wanted outside of the stage?
static bool escapes(Assign *as, Value v, uint32_t stage) {
  if (as->seen[v] == as->stamp) return false;
  as->seen[v] = as->stamp;
  for (uint32_t i = 0; i < as->uses[v].n; i++) {
    Op *u = as->uses[v].at[i];
    const Root *r = root_at(as, u);
    if (!r && u->code == OP_YIELD) {
      if (!is_kept(as, v)) return true;
      continue;
    }
    if (r ? r->stage != stage : !u->nres) return true;
    if (r) continue;
    if (!cpu_is_inline(as, u->res[0]) || escapes(as, u->res[0], stage))
      return true;
  }
  for (uint32_t i = 0; i < as->pending.n; i++) {  // yields are keeps by now
    const Root *r = as->pending.at[i];
    if (!r->op && r->v == v && r->stage != stage) return true;
  }
  return false;
}

static bool yielded(const Assign *as, Value v) {
  for (uint32_t i = 0; i < as->uses[v].n; i++)
    if (as->uses[v].at[i]->code == OP_YIELD) return true;
  return false;
}

static bool feeds_any_block(const Assign *as, Value v) {
  for (uint32_t i = 0; i < as->uses[v].n; i++)
    if (cpu_feeds_block(as, v, as->uses[v].at[i])) return true;
  return false;
}

static void place_result(Assign *as, Root *r) {
  as->stamp++;
  bool out = escapes(as, r->v, r->stage);
  if (!r->op) {
    if (!r->early && !r->last && !out && r->dst->panel && !yielded(as, r->v))
      r->dst->local = true;
    return;
  }
  if (!r->v || r->dst || !cpu_axes_of(as, r->v)) return;
  AxisSet rest = no_lane(r, cpu_axes_of(as, r->v));
  if (!rest && has_lanes(r) && !out && r->kind != ROOT_SCAN &&
      !feeds_any_block(as, r->v))
    return;
  Dim size = DIM_NONE;
  int lane = has_lanes(r) ? r->lane : cpu_lane_of_value(as, r->v, &size);
  if (has_lanes(r)) size = r->lane_size;
  r->dst = cpu_form_new(as, r->v, lane, size, has_lanes(r));
  r->dst->local = has_lanes(r) && !out && !yielded(as, r->v);
}

// ---------------------------------------------------------------- flush
static void emit_stage(Assign *as, uint32_t stage, uint32_t nnests) {
  Roots rs = {0};
  for (uint32_t i = 0; i < as->pending.n; i++)
    if (as->pending.at[i]->stage == stage)
      vec_push(as->arena, &rs, as->pending.at[i]);
  cpu_stage_emit(as, rs.at, rs.n, nnests);
}

void cpu_flush(Assign *as) {
  if (!as->pending.n) return;
  Sched s = {0};
  place_all(as, &s);
  if (share(as, &s)) place_all(as, &s);
  while (fix_overwrite(as)) place_all(as, &s);
  for (uint32_t i = 0; i < as->pending.n; i++)
    place_result(as, as->pending.at[i]);
  for (uint32_t i = 0; i < as->pending.n; i++) {
    Root *r = as->pending.at[i];
    if (r->v && r->dst && r->op) as->forms[r->v] = r->dst;
  }
  for (uint32_t i = 0; i < as->pending.n; i++) {
    Root *r = as->pending.at[i];
    if (r->kind != ROOT_DOT) continue;
    if (!r->a) r->a = as->forms[r->va];
    if (!r->b) r->b = as->forms[r->vb];
    assert(r->a && r->b);
  }
  for (uint32_t i = 0; i < s.stages.n; i++)
    emit_stage(as, i, s.stages.at[i].nnests);
  for (uint32_t i = 0; i < as->pending.n; i++)
    if (as->pending.at[i]->v) as->root_of[as->pending.at[i]->v] = NULL;
  as->pending = (Roots){0};
}
