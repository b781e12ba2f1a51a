// online, part 2: which reductions share a pass, and in what form.
//
// Reductions are taken in program order. One that reads row values still
// moving in its pass must separate from them (sep.h); if it does not, it goes
// to the next pass, where they are final. A pass is a key axis and a level.
#include "passes/stream/online.h"

#include <math.h>

enum { MAX_SCALAR_TERMS = 4, MAX_VECTOR_TERMS = 2 };

// Larger expressions are not looked into: the algebra works on trees.
enum { MAX_TREE = 400 };

// One attempt to separate a reduction: what is live in it.
typedef struct Try {
  Online *o;
  const Red *red;
  uint32_t level;
  Map live;  // Value -> 0, 1: depends on live row values
  Map expo;  // Value -> 0, 1: an exponential is visible in it
  Map ex;    // Value -> Ex
} Try;

static bool same_nest(const Red *a, const Red *b) {
  return a->axis == b->axis && a->outer == b->outer;
}

static bool is_live(const Try *t, const Red *d) {
  return !d->scan && same_nest(d, t->red) && d->level == t->level;
}

static bool depends(Try *t, Value v);

static bool region_depends(Try *t, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nargs; i++)
      if (depends(t, op->args[i])) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (region_depends(t, op->regions[i])) return true;
  }
  return false;
}

static bool depends(Try *t, Value v) {
  uint64_t known;
  if (map_get(&t->live, v, &known)) return known != 0;
  map_put(&t->live, v, 0);
  const Op *op = ir_def(t->o->f, v);
  const Red *d = online_red(t->o, v);
  bool r = d && is_live(t, d);
  if (op && (!d || d->scan)) {
    for (uint32_t i = 0; i < op->nargs && !r; i++) r = depends(t, op->args[i]);
    for (uint32_t i = 0; i < op->nregions && !r; i++)
      r = region_depends(t, op->regions[i]);
  }
  map_put(&t->live, v, r);
  return r;
}

static bool is_float(const Func *f, Value v) {
  return dtype_is_float(ir_type(f, v)->dtype);
}

// Ops whose operands we may look into: elementwise on floats.
static bool transparent(const Op *op) {
  return op && op->nargs && (op_info(op->code)->flags & OPF_ELEM) &&
         op->code != OP_FLOORDIV && op->code != OP_MOD;
}

static bool has_exp(Try *t, Value v) {
  uint64_t known;
  if (map_get(&t->expo, v, &known)) return known != 0;
  map_put(&t->expo, v, 0);
  const Op *op = ir_def(t->o->f, v);
  bool r = false;
  if (transparent(op) && is_float(t->o->f, v)) {
    r = op->code == OP_EXP || op->code == OP_EXP2;
    for (uint32_t i = 0; i < op->nargs && !r; i++) r = has_exp(t, op->args[i]);
  }
  map_put(&t->expo, v, r);
  return r;
}

static Ex leaf(Try *t, Value v, bool live) {
  Online *o = t->o;
  bool key = type_has_axis(ir_type(o->f, v), t->red->axis);
  LeafTag tag = live  ? key ? LEAF_MIXED : LEAF_OPAQUE
                : key ? LEAF_KEY
                      : LEAF_ROW;
  const Red *d = online_red(o, v);
  if (d && is_live(t, d)) tag = LEAF_LIVE;
  return sym_leaf(&o->sym, tag, v, range_of(&o->ranges, v).lo >= 0);
}

static Ex to_ex(Try *t, Value v);

// 1 / d for a final d: a value before the pass, which is 0 if the domain is
// empty, so that masked keys stay finite.
static Value inverse_of(Online *o, const Op *divk) {
  Value d = divk->args[1];
  uint64_t inv;
  if (map_get(&o->inverse, d, &inv)) return (Value)inv;
  Value one = ir_const_f(&o->b, ir_type(o->f, d)->dtype, 1);
  inv = ir_op(&o->b, OP_DIVK, (Value[]){one, d}, 2, divk->attrs, divk->nattrs,
              NULL, 1, 0)
            ->res[0];
  map_put(&o->inverse, d, inv);
  return (Value)inv;
}

static Ex op_to_ex(Try *t, const Op *op) {
  Sym *s = &t->o->sym;
  Ex kid[ELEM_ARGS];
  if (op->code == OP_DIVK && !depends(t, op->args[1]) &&
      !type_has_axis(ir_type(t->o->f, op->args[1]), t->red->axis)) {
    Ex inverse = leaf(t, inverse_of(t->o, op), false);
    return sym_mul2(s, to_ex(t, op->args[0]), inverse);
  }
  for (uint32_t i = 0; i < op->nargs; i++) kid[i] = to_ex(t, op->args[i]);
  if (op->code == OP_CAST)
    return sym_cast(s, (DType)ir_attr_i(op, AT_TO, DT_F32), kid[0]);
  // Inside a reduction its domain is not empty: divk is a division there.
  OpCode code = op->code == OP_DIVK ? OP_DIV : op->code;
  return sym_op(s, code, kid, op->nargs);
}

// A coordinate times 0.0: how a value gets an axis that it does not vary with.
static bool is_spread_zero(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  double c;
  while (op && op->code == OP_CAST) op = ir_def(f, op->args[0]);
  if (!op || op->code != OP_MUL || !ir_const_value(f, op->args[1], &c))
    return false;
  op = ir_def(f, op->args[0]);
  while (op && op->code == OP_CAST) op = ir_def(f, op->args[0]);
  return c == 0 && op && op->code == OP_INDEX;
}

static Value unspread(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  while (op && op->code == OP_ADD && is_spread_zero(f, op->args[1])) {
    v = op->args[0];
    op = ir_def(f, v);
  }
  return v;
}

static Ex to_ex(Try *t, Value v) {
  Online *o = t->o;
  v = unspread(o->f, v);
  const Op *op = ir_def(o->f, v);
  uint64_t known;
  double c;
  if (map_get(&t->ex, v, &known)) return (Ex)known;
  Ex e;
  bool live = depends(t, v);
  const IrAttr *axis = op ? ir_attr(op, AT_AXIS) : NULL;
  bool other_divk =
      op && op->code == OP_DIVK && axis && axis->i != t->red->axis;
  if (is_float(o->f, v) && ir_const_value(o->f, v, &c) && isfinite(c))
    e = sym_const(&o->sym, c);
  else if (online_red(o, v) || !transparent(op) || other_divk ||
           (!live && !has_exp(t, v)) ||
           (live && !is_float(o->f, v) && ir_type(o->f, v)->dtype != DT_BOOL))
    e = leaf(t, v, live);
  else e = op_to_ex(t, op);
  if (sym_at(&o->sym, e)->size > MAX_TREE) e = leaf(t, v, live);
  map_put(&t->ex, v, e);
  uint64_t first;
  if (!map_get(&o->origin, e, &first)) map_put(&o->origin, e, v);
  return e;
}

// ---------------------------------------------------------------- terms
// A candidate accumulator: g * other reduced, times h.
typedef struct Cand {
  Ex g, other, rolling, late;
} Cand;
typedef Vec(Cand) Cands;

static void strip(Sym *s, Ex *g, Ex *late) {
  Ex outer;
  sep_strip(s, *g, g, &outer);
  *late = sym_mul2(s, *late, outer);
}

static void add_cand(Online *o, Cands *c, Ex g, Ex other, Ex h) {
  Sym *s = &o->sym;
  Cand n = {.other = other};
  sep_split(s, h, &n.rolling, &n.late);
  strip(s, &g, &n.late);
  if (other) strip(s, &n.other, &n.late);
  bool second =
      n.other && !sym_has(s, g, EF_EXP) && sym_has(s, n.other, EF_EXP);
  if (second) n.other = sep_fuse(s, n.other, n.rolling);
  else g = sep_fuse(s, g, n.rolling);
  n.late = sym_scale(s, sym_coef(s, g), n.late);
  n.g = sym_uncoef(s, g);
  if (n.other && sym_is_const(s, n.other, 1)) n.other = 0;
  vec_push(o->arena, c, n);
}

// A frame must stabilize: its correction never grows. That holds for what is
// made of maxima that only rise and minima that only fall; a frame of sums
// could pass through values that overflow on the way to a harmless end.
typedef struct Move {
  Online *o;
  uint64_t trial;
  bool extremes;  // only maxima and minima were seen
} Move;

static double move_leaf(void *data, const ExNode *leaf) {
  Move *mv = data;
  Probe p = {.f = mv->o->f, .seed = mv->trial / 2};
  double old = 4 * probe_random(&p, leaf->leaf, 5);
  double by = 3 * fabs(probe_random(&p, leaf->leaf, 6));
  bool live = leaf->code == LEAF_LIVE || leaf->code == LEAF_OLD;
  const Red *d = live ? online_red(mv->o, leaf->leaf) : NULL;
  if (!d) return old;
  bool max = d->kind == RK_MAX, min = d->kind == RK_MIN;
  mv->extremes = mv->extremes && (max || min);
  if (leaf->code == LEAF_LIVE) return max ? old + by : old - by;
  if (mv->trial % 2) return max ? -INFINITY : INFINITY;
  return old;
}

static bool stabilizes(Online *o, Ex rolling) {
  Sym *s = &o->sym;
  if (sym_is_const(s, rolling, 1)) return true;
  if (sym_has(s, rolling, EF_OPAQUE)) return false;
  Ex ratio = sym_mul2(s, rolling, sym_pow(s, sym_old(s, rolling), -1));
  enum { MAX_MOVES = 16 };
  for (uint64_t i = 0; i < MAX_MOVES; i++) {
    Move mv = {o, i, true};
    double factor = sym_eval(s, ratio, move_leaf, &mv);
    if (!mv.extremes || !(factor <= 1 + 1e-9)) return false;
  }
  return true;
}

static bool is_vector(const Func *f, const Type *t) {
  for (uint32_t i = 0; i < t->n; i++)
    if (f->axes.at[t->axis[i]].role == AX_VEC) return true;
  return false;
}

// Three terms are moments: a square less what is subtracted from each, which
// cancels as the square of a mean does against a variance. Inputs of 16 bits
// are rounded by more than that; floats of 32 bits deserve a second walk.
static bool moments(const Online *o, const Sep *s) {
  for (uint32_t i = 0; i < o->f->params.n; i++) {
    DType t = ir_type(o->f, o->f->params.at[i].v)->dtype;
    if (dtype_is_float(t) && dtype_size(t) < dtype_size(DT_F32)) return false;
  }
  return s->n > 2;
}

// Sums: F, or A * B of a dot, as terms. 0 on success, else what failed.
static Ex sum_terms(Try *t, const Red *r, Cands *out) {
  Online *o = t->o;
  Sym *s = &o->sym;
  Ex a = to_ex(t, r->op->args[0]), b = 0;
  Sep sa = sep_of(s, a), sb = {.ok = true, .n = 1};
  if (!sa.ok) return sa.why;
  if (moments(o, &sa)) return a;
  if (r->dot) {
    b = to_ex(t, r->op->args[1]);
    sb = sep_of(s, b);
    if (!sb.ok) return sb.why;
  }
  for (uint32_t i = 0; i < sa.n; i++) {
    for (uint32_t j = 0; j < sb.n; j++) {
      Ex h = sa.at[i].h;
      if (b) h = sym_mul2(s, h, sb.at[j].h);
      add_cand(o, out, sa.at[i].g, b ? sb.at[j].g : 0, h);
    }
  }
  bool vec = is_vector(o->f, ir_type(o->f, r->res));
  if (out->n > (vec ? MAX_VECTOR_TERMS : MAX_SCALAR_TERMS)) return a;
  for (uint32_t i = 0; i < out->n; i++)
    if (!stabilizes(o, out->at[i].rolling)) return out->at[i].rolling;
  return 0;
}

// max and min: F = g + h (translation) or g * h with h >= 0 (scaling).
static Ex max_terms(Try *t, Red *r, Cands *out) {
  Sym *s = &t->o->sym;
  Ex f = to_ex(t, r->op->args[0]), one = sym_const(s, 1);
  r->plus = 0;
  if (!sym_has(s, f, EF_D)) {
    vec_push(t->o->arena, out, ((Cand){f, 0, one, one}));
    return 0;
  }
  Sep a = sep_of(s, sym_exp(s, f));
  if (a.ok && a.n == 1 && sym_at(s, a.at[0].g)->kind == EX_EXP) {
    Ex g = sym_at(s, a.at[0].g)->kid[0];
    r->plus = sym_log(s, a.at[0].h);
    vec_push(t->o->arena, out, ((Cand){g, 0, one, one}));
    return 0;
  }
  a = sep_of(s, f);
  if (!a.ok || a.n != 1 || !sep_nonneg(s, a.at[0].h)) return f;
  Ex rolling, late;
  sep_split(s, a.at[0].h, &rolling, &late);
  if (!sym_is_const(s, rolling, 1)) return f;
  vec_push(t->o->arena, out, ((Cand){a.at[0].g, 0, one, late}));
  return 0;
}

static Ex other_terms(Try *t, const Red *r, Cands *out) {
  Ex f = to_ex(t, r->op->args[0]), one = sym_const(&t->o->sym, 1);
  if (sym_has(&t->o->sym, f, EF_D)) return f;
  vec_push(t->o->arena, out, ((Cand){f, 0, one, one}));
  return 0;
}

// Integers stay whole: a factor taken out would be a float, and round.
static Ex find_terms(Try *t, Red *r, Cands *out) {
  bool exact = !dtype_is_float(ir_type(t->o->f, r->res)->dtype);
  if (r->kind == RK_SUM && !exact) return sum_terms(t, r, out);
  if (r->kind == RK_MAX || r->kind == RK_MIN) return max_terms(t, r, out);
  return other_terms(t, r, out);
}

// ---------------------------------------------------------------- levels
typedef struct Deps {
  Online *o;
  Map seen;
  Vec(Red *) all;
} Deps;

static void find_deps(Deps *d, Value v);

static void region_deps(Deps *d, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nargs; i++) find_deps(d, op->args[i]);
    for (uint32_t i = 0; i < op->nregions; i++) region_deps(d, op->regions[i]);
  }
}

static void find_deps(Deps *d, Value v) {
  uint64_t known;
  if (map_get(&d->seen, v, &known)) return;
  map_put(&d->seen, v, 1);
  Red *r = online_red(d->o, v);
  const Op *op = ir_def(d->o->f, v);
  if (r) vec_push(d->o->arena, &d->all, r);
  if (!op || (r && !r->scan)) return;
  for (uint32_t i = 0; i < op->nargs; i++) find_deps(d, op->args[i]);
  for (uint32_t i = 0; i < op->nregions; i++) region_deps(d, op->regions[i]);
}

// The earliest level at which r may run, by what it reads.
static uint32_t first_level(Online *o, const Red *r) {
  uint32_t lv = 1;
  Deps d = {.o = o, .seen = {.arena = o->arena}};
  for (uint32_t i = 0; i < r->op->nargs; i++) find_deps(&d, r->op->args[i]);
  for (uint32_t i = 0; i < d.all.n; i++) {
    const Red *q = d.all.at[i];
    bool nested = type_has_axis(ir_type(o->f, q->res), r->axis);
    bool moves = same_nest(q, r) && !q->scan && !r->scan;
    uint32_t need = q->level + (nested || moves ? 0 : 1);
    if (need > lv) lv = need;
  }
  Value pred[16];
  uint32_t n = online_domain(o, r->axis, pred, 16);
  Deps dom = {.o = o, .seen = {.arena = o->arena}};
  for (uint32_t i = 0; i < n; i++) find_deps(&dom, pred[i]);
  for (uint32_t i = 0; i < dom.all.n; i++)
    if (dom.all.at[i]->level + 1 > lv) lv = dom.all.at[i]->level + 1;
  return lv;
}

static Group *group_of(Online *o, const Red *r) {
  for (uint32_t i = 0; i < o->groups.n; i++) {
    Group *g = o->groups.at[i];
    if (g->axis == r->axis && g->outer == r->outer && g->level == r->level)
      return g;
  }
  Group *g = NEW(o->arena, Group);
  *g = (Group){.axis = r->axis, .outer = r->outer, .level = r->level};
  g->some = -1;
  vec_push(o->arena, &o->groups, g);
  return g;
}

// The accumulator for a term, shared with an equal one.
static uint32_t acc_for(Online *o, Group *g, const Red *r, const Cand *c) {
  for (uint32_t i = 0; i < g->accs.n; i++) {
    const Acc *a = &g->accs.at[i];
    bool bare = !c->other && sym_at(&o->sym, c->g)->kind == EX_CONST;
    if (!a->of && a->kind == r->kind && a->local == c->g &&
        a->other == c->other && a->rolling == c->rolling &&
        (!bare || !a->src ||
         type_eq(ir_type(o->f, a->src->res[0]), ir_type(o->f, r->res))))
      return i;
  }
  Acc a = {.kind = r->kind,
           .local = c->g,
           .other = c->other,
           .rolling = c->rolling,
           .src = r->op};
  vec_push(o->arena, &g->accs, a);
  return g->accs.n - 1;
}

static void place(Online *o, Red *r, const Cands *c) {
  Group *g = group_of(o, r);
  r->group = g;
  vec_push(o->arena, &g->reds, r);
  for (uint32_t i = 0; i < c->n; i++) {
    Term t = {acc_for(o, g, r, &c->at[i]), c->at[i].late};
    vec_push(o->arena, &r->terms, t);
  }
}

// In the pass of the maximum, behind it.
static bool place_first(Online *o, Red *r) {
  Value at;
  Red *d = online_first_of(o, r, &at);
  if (!d) return false;
  Sym *s = &o->sym;
  Ex one = sym_const(s, 1);
  Acc a = {.kind = RK_MIN,
           .local = sym_leaf(s, LEAF_KEY, at, true),
           .rolling = one,
           .src = r->op,
           .of = d->terms.at[0].acc + 1};
  Group *g = r->group = d->group;
  r->of = d;
  r->level = d->level;
  r->plus = sym_const(s, -1);
  vec_push(o->arena, &r->terms, ((Term){g->accs.n, one}));
  vec_push(o->arena, &g->reds, r);
  vec_push(o->arena, &g->accs, a);
  return true;
}

static void plan_red(Online *o, Red *r) {
  if (place_first(o, r)) return;
  r->level = first_level(o, r);
  for (;; r->level++) {
    Arena *a = o->arena;
    Try t = {.o = o,
             .red = r,
             .level = r->level,
             .live.arena = a,
             .expo.arena = a,
             .ex.arena = a};
    Cands c = {0};
    Ex why = find_terms(&t, r, &c);
    if (!why) {
      place(o, r, &c);
      return;
    }
    bool live =
        depends(&t, r->op->args[0]) || (r->dot && depends(&t, r->op->args[1]));
    if (!live) {  // only too many terms: the whole as one
      Ex one = sym_const(&o->sym, 1);
      Ex g = to_ex(&t, r->op->args[0]);
      Ex b = r->dot ? to_ex(&t, r->op->args[1]) : 0;
      c.n = 0;
      vec_push(a, &c, ((Cand){g, b, one, one}));
      place(o, r, &c);
      return;
    }
    if (!r->why) {
      r->why = why;
      r->why_level = r->level;
    }
  }
}

// ---------------------------------------------------------------- scans
typedef struct ScanUse {
  Online *o;
  Group *g;
  Map seen;
} ScanUse;

static bool mentions(const Sym *s, Ex e, Value v) {
  const ExNode *n = sym_at(s, e);
  if (n->kind == EX_LEAF) return n->leaf == v && n->code == LEAF_LIVE;
  for (uint32_t i = 0; i < n->n; i++)
    if (mentions(s, n->kid[i], v)) return true;
  return false;
}

// Whether terms or frames of the pass read the accumulator while it moves. A
// scan's running total is the one before the tile, so it needs its own then.
static bool read_live(const Online *o, const Group *g, uint32_t acc) {
  for (uint32_t i = 0; i < g->reds.n; i++) {
    const Red *r = g->reds.at[i];
    bool uses = false;
    for (uint32_t j = 0; j < r->terms.n; j++)
      uses = uses || r->terms.at[j].acc == acc;
    for (uint32_t j = 0; uses && j < g->accs.n; j++) {
      const Acc *a = &g->accs.at[j];
      if (mentions(&o->sym, a->local, r->res) ||
          (a->other && mentions(&o->sym, a->other, r->res)) ||
          mentions(&o->sym, a->rolling, r->res))
        return true;
    }
  }
  return false;
}

// The accumulator that has r's running total, in the order of `op`.
static uint32_t running(ScanUse *u, Red *r, const Op *op) {
  Online *o = u->o;
  Group *g = u->g;
  Arena *a = o->arena;
  Try t = {.o = o,
           .red = r,
           .level = g->level,
           .live.arena = a,
           .expo.arena = a,
           .ex.arena = a};
  int order = ir_attr_i(op, AT_DIR, DIR_PREFIX) == DIR_PREFIX ? ORDER_FORWARD
                                                              : ORDER_REVERSE;
  if (r->kind != RK_SUM)
    online_fail(o, op, "running %s over a key axis is not supported",
                rkind_name(r->kind));
  if (g->order != ORDER_ANY && g->order != order)
    online_fail(o, op,
                "scans in both directions over axis '%s' are needed "
                "in one pass",
                o->f->axes.at[g->axis].name);
  g->order = order;
  Ex one = sym_const(&o->sym, 1);
  Cand c = {to_ex(&t, r->op->args[0]), 0, one, one};
  uint32_t i = acc_for(o, g, r, &c);
  if (read_live(o, g, i)) {
    Acc own = g->accs.at[i];
    i = g->accs.n;
    vec_push(a, &g->accs, own);
  }
  g->accs.at[i].scan = true;
  return i;
}

static void use_scan(ScanUse *u, Red *r) {
  uint32_t acc = running(u, r, r->op);
  vec_push(u->o->arena, &u->g->scans, ((ScanIn){r, acc}));
}

static void use_fronts(ScanUse *u) {
  Online *o = u->o;
  for (const Op *op = o->region->first; op; op = op->next) {
    if (op->code != OP_STORE || !ir_attr(op, AT_BLOCK)) continue;
    Red *r = online_red(o, op->args[1]);
    if (!r || r->scan || r->dot) {
      online_fail(o, op, "what blocks have in front of them is no sum");
      continue;
    }
    if (r->group != u->g) continue;
    uint32_t acc = running(u, r, op);
    vec_push(o->arena, &u->g->fronts, ((FrontIn){op, acc}));
  }
}

static void find_scans(ScanUse *u, Value v) {
  Online *o = u->o;
  uint64_t known;
  if (map_get(&u->seen, v, &known)) return;
  map_put(&u->seen, v, 1);
  const Op *op = ir_def(o->f, v);
  Red *r = online_red(o, v);
  if (!op || !type_has_axis(ir_type(o->f, v), u->g->axis)) return;
  if (r && !r->scan) return;
  for (uint32_t i = 0; i < op->nargs; i++) find_scans(u, op->args[i]);
  if (!r) return;
  if (r->axis == u->g->axis) use_scan(u, r);
  else
    online_fail(o, op,
                "a scan over axis '%s' is used for each key of "
                "another axis",
                o->f->axes.at[r->axis].name);
}

static void scans_of_ex(ScanUse *u, Ex e) {
  const ExNode *n = sym_at(&u->o->sym, e);
  if (n->kind == EX_LEAF) find_scans(u, n->leaf);
  for (uint32_t i = 0; i < n->n; i++) scans_of_ex(u, n->kid[i]);
}

// Terms use the running totals, and a term may use accumulators before it.
static void scans_first(Online *o, Group *g) {
  uint32_t n = g->accs.n, at = 0;
  uint32_t *to = NEWN(o->arena, uint32_t, n);
  Acc *sorted = NEWN(o->arena, Acc, n);
  for (int scan = 1; scan >= 0; scan--)
    for (uint32_t i = 0; i < n; i++)
      if (g->accs.at[i].scan == scan) {
        to[i] = at;
        sorted[at++] = g->accs.at[i];
      }
  memcpy(g->accs.at, sorted, n * sizeof *sorted);
  for (uint32_t i = 0; i < n; i++)
    if (g->accs.at[i].of) g->accs.at[i].of = to[g->accs.at[i].of - 1] + 1;
  for (uint32_t i = 0; i < g->scans.n; i++)
    g->scans.at[i].acc = to[g->scans.at[i].acc];
  for (uint32_t i = 0; i < g->fronts.n; i++)
    g->fronts.at[i].acc = to[g->fronts.at[i].acc];
  for (uint32_t i = 0; i < g->reds.n; i++)
    for (uint32_t j = 0; j < g->reds.at[i]->terms.n; j++)
      g->reds.at[i]->terms.at[j].acc = to[g->reds.at[i]->terms.at[j].acc];
}

static void plan_scans(Online *o, Group *g) {
  ScanUse u = {.o = o, .g = g, .seen.arena = o->arena};
  for (uint32_t i = 0; i < g->accs.n; i++) {
    Ex local = g->accs.at[i].local, other = g->accs.at[i].other;
    scans_of_ex(&u, local);
    if (other) scans_of_ex(&u, other);
  }
  use_fronts(&u);
  if (g->scans.n || g->fronts.n) scans_first(o, g);
}

static uint32_t nesting(uint64_t outer) {
  uint32_t n = 0;
  for (; outer; outer &= outer - 1) n++;
  return n;
}

// Is a group behind the first i, of the same level, nested in group j?
static bool has_nested(const Online *o, uint32_t i, uint32_t j) {
  const Group *g = o->groups.at[j];
  for (; i < o->groups.n; i++) {
    const Group *p = o->groups.at[i];
    if (i != j && p->level == g->level && (p->outer >> g->axis & 1))
      return true;
  }
  return false;
}

// What is nested in a pass comes first, though it be in fewer than the pass: a
// sum over keys for each query and key, in one for each head and query.
static void put_nested_first(Online *o) {
  for (uint32_t i = 0; i < o->groups.n; i++) {
    uint32_t j = i;
    while (j < o->groups.n && has_nested(o, i, j)) j++;
    if (j == o->groups.n || o->groups.at[j]->level != o->groups.at[i]->level)
      continue;
    Group *g = o->groups.at[j];
    for (; j > i; j--) o->groups.at[j] = o->groups.at[j - 1];
    o->groups.at[i] = g;
  }
}

// By level; at one level the passes nested in others first.
static void sort_groups(Online *o) {
  for (uint32_t i = 1; i < o->groups.n; i++) {
    Group *g = o->groups.at[i];
    uint32_t j = i;
    for (; j; j--) {
      const Group *p = o->groups.at[j - 1];
      if (p->level < g->level) break;
      if (p->level == g->level && nesting(p->outer) >= nesting(g->outer)) break;
      o->groups.at[j] = o->groups.at[j - 1];
    }
    o->groups.at[j] = g;
  }
  put_nested_first(o);
}

bool online_plan(Online *o) {
  for (uint32_t i = 0; i < o->reds.n; i++) {
    Red *r = o->reds.at[i];
    if (r->scan) r->level = first_level(o, r);
    else plan_red(o, r);
  }
  sort_groups(o);
  for (uint32_t i = 0; i < o->groups.n; i++) plan_scans(o, o->groups.at[i]);
  return !o->failed;
}
