// Regions of the tile level: collects roots, makes `for` and `if`.
//
// A tile that a loop carries, or that an `if` yields, has one home in scratch
// that is updated in place where the order of work allows it.
#include "passes/cpu/cpu.h"

#include <assert.h>

// ---------------------------------------------------------------- keeping
static bool wants_pairs(const Assign *as, const Op *op, uint32_t i,
                        uint32_t *axis) {
  Dim size;
  if (!cpu_dot_pairs(as, op, cpu_lane_of(as, op, &size))) return false;
  *axis = (uint32_t)ir_attr(op, AT_OVER)->list[0];
  (void)i;
  return true;
}

static bool is_load(const Assign *as, Value v) {
  const Op *op = ir_def(as->f, v);
  return op && op->code == OP_LOAD;
}

// Do neighbours along the axis lie side by side in v's tensor?
static bool runs_along(const Assign *as, Value v, uint32_t axis) {
  const Op *op = ir_def(as->f, v);
  const Type *t = ir_type(as->f, v);
  int last = op->nargs > 1 ? cpu_direct_axis(as, op->args[op->nargs - 1]) : -1;
  return last >= 0 ? last == (int)axis : t->axis[t->n - 1] == axis;
}

// Keeps v as it lies in its tensor.
static Form *keep_rows(Assign *as, Value v) {
  const Type *t = ir_type(as->f, v);
  uint32_t last = t->n - 1;
  as->forms[v] = cpu_form_new(as, v, (int)t->axis[last], t->size[last], false);
  cpu_root_keep(as, v, as->forms[v]);
  return as->forms[v];
}

static void keep_operand_form(Assign *as, Value v, Form *f) {
  cpu_root_keep(as, v, f)->direct = cpu_direct_possible(as, v, f);
}

// The rows of a product of tile registers: turned, as pairs.
static void keep_turned(Assign *as, Value v, Form *from) {
  uint32_t pair = (uint32_t)from->pair;
  keep_operand_form(as, v, from);
  Form *f = cpu_form_pairs(as, v, (int)pair, cpu_axis_size_in(as, v, pair),
                           false, pair);
  f->next = as->pair_form[v];
  as->pair_form[v] = f;
  Root *r = cpu_root_turn(as, v, from, f);
  r->lane = -1;
  r->lane_size = DIM_NONE;
}

// Has v the grid's lanes, and a product others?
static bool is_row(const Assign *as, Value v, int lane) {
  return as->par >= 0 && lane != as->par && (cpu_axes_of(as, v) >> as->par & 1);
}

// Vectors that rows are multiplied by one after the other: where they are in
// place they need not be wide.
static void keep_walked(Assign *as, Value v) {
  if (as->forms[v]) return;
  Dim size;
  int lane = cpu_lane_of_value(as, v, &size);
  Form *f = as->forms[v] = cpu_form_new(as, v, lane, size, false);
  DType t = ir_type(as->f, v)->dtype;
  if (dtype_is_float(t) && dtype_size(t) == 2) {
    f->dt = t;
    if (!cpu_direct_possible(as, v, f)) f->dt = DT_F32;
  }
  keep_operand_form(as, v, f);
}

// Puts v in memory as operand i of a dot with a register block.
static void keep_operand(Assign *as, Value v, const Op *op, uint32_t i) {
  Dim size;
  int lane = cpu_lane_of(as, op, &size);
  uint32_t vec, pair;
  bool across = cpu_dot_across(as, op, &vec);
  if (!across && !cpu_dot_blocked(as, op, lane, &vec)) return;
  if (as->walked >= 0 && (across || vec == i)) {
    keep_walked(as, v);
    return;
  }
  if (wants_pairs(as, op, i, &pair)) {
    if (cpu_form_of_pairs(as, v, pair, vec == i)) return;
    if (vec != i) lane = cpu_lane_of_value(as, v, &size);
    Form *f = cpu_form_pairs(as, v, lane, size, vec == i, pair);
    if (vec != i && as->target->amx && lane != (int)pair) {
      keep_turned(as, v, f);
      return;
    }
    f->next = as->pair_form[v];
    as->pair_form[v] = f;
    if (vec == i && is_load(as, v) && runs_along(as, v, pair)) {
      Form *rows = cpu_form_pairs(as, v, (int)pair,
                                  cpu_axis_size_in(as, v, pair), false, pair);
      keep_operand_form(as, v, rows);
      cpu_root_turn(as, v, rows, f);
    } else {
      keep_operand_form(as, v, f);
    }
  } else if (vec == i && is_row(as, v, lane)) {
    if (cpu_form_of_rows(as, v, lane)) return;
    Form *f = cpu_form_new(as, v, lane, size, false);
    f->next = as->row_form[v];
    as->row_form[v] = f;
    keep_operand_form(as, v, f);
  } else if (vec == i) {
    if (as->vec_form[v] || as->forms[v]) return;
    Form *rows = cpu_is_turned(as, v) ? keep_rows(as, v) : NULL;
    as->vec_form[v] = cpu_form_new(as, v, lane, size, true);
    Root *r = cpu_root_keep(as, v, as->vec_form[v]);
    r->a = rows;
    r->cross = !rows && cpu_cross_possible(as, v, lane);
  } else if (!as->forms[v]) {
    lane = cpu_lane_of_value(as, v, &size);
    as->forms[v] = cpu_form_new(as, v, lane, size, false);
    keep_operand_form(as, v, as->forms[v]);
  }
}

static void keep_eager(Assign *as, Value v) {
  Dim size;
  int lane = cpu_lane_of_value(as, v, &size);
  bool cross = lane == as->par && cpu_cross_possible(as, v, lane);
  if (cpu_is_turned(as, v) && !cross) {
    keep_rows(as, v);
    return;
  }
  Form *f = as->forms[v] = cpu_form_new(as, v, lane, size, lane == as->par);
  if (cross) f->dt = cpu_cross_dtype(f->dt);
  cpu_root_keep(as, v, f)->cross = cross;
}

static void keep_inline(Assign *as, Value v) {
  if (as->eager[v]) keep_eager(as, v);
  for (uint32_t i = 0; i < as->uses[v].n; i++) {
    const Op *op = as->uses[v].at[i];
    if (op->code != OP_DOT) continue;
    for (uint32_t k = 0; k < 2; k++)
      if (op->args[k] == v) keep_operand(as, v, op, k);
  }
}

// ---------------------------------------------------------------- scalars
static bool waits(Assign *as, Value v) {
  if (as->root_of[v]) return true;
  if (as->seen[v] == as->stamp || cpu_is_memory(as, v)) return false;
  as->seen[v] = as->stamp;
  if (!cpu_is_inline(as, v) || as->ready[v]) return false;
  const Op *op = ir_def(as->f, v);
  bool w = false;
  for (uint32_t i = 0; i < op->nargs && !w; i++) w = waits(as, op->args[i]);
  return w;
}

static Value scalar(Assign *as, Value v, DType t) {
  as->stamp++;
  if (waits(as, v)) cpu_flush(as);
  return cpu_eval_as(as, v, 0, t);
}

static Value scalar_of(Assign *as, Value v) {
  return scalar(as, v, cpu_reg_dtype(ir_type(as->f, v)->dtype));
}

// ---------------------------------------------------------------- homes
static bool inside(const Op *op, const Op *outer) {
  for (const Op *o = op; o; o = o->parent ? o->parent->parent : NULL)
    if (o == outer) return true;
  return false;
}

static const Region *region_in(const Op *op, const Op *outer) {
  const Region *r = op->parent;
  while (r && r->parent != outer) r = r->parent ? r->parent->parent : NULL;
  return r;
}

// Are a and b in different regions of one `if`? Then only one of them runs.
static bool exclusive(const Op *a, const Op *b) {
  for (const Region *r = a->parent; r && r->parent; r = r->parent->parent) {
    const Region *other = region_in(b, r->parent);
    if (other) return other != r && r->parent->code == OP_IF;
  }
  return false;
}

// Is `user`, with what is in it, the only one that still wants v, once?
static bool dies_in(const Assign *as, Value v, const Op *user, bool once) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < as->uses[v].n; i++) {
    if (exclusive(as->uses[v].at[i], user)) continue;
    if (!inside(as->uses[v].at[i], user)) return false;
    n++;
  }
  return !once || n == 1;
}

static Form *home_form(Assign *as, Value v) {
  Dim size;
  int lane = cpu_lane_of_value(as, v, &size);
  bool panel = as->par < 0 || lane == as->par;
  return cpu_form_new(as, v, lane, size, panel);
}

static bool has_home(const Assign *as, Value v) {
  const Op *op = ir_def(as->f, v);
  bool joined = !op || op->nregions;
  return joined && as->ready[v] && as->forms[v] && !as->forms[v]->local;
}

// The home of a carried value: that of its initial value if nobody else
// wants it, else a new one, filled.
static Form *home_for(Assign *as, const Op *op, Value init, Value param) {
  if (has_home(as, init) && dies_in(as, init, op, true)) return as->forms[init];
  Form *h = home_form(as, param);
  cpu_root_keep(as, init, h);
  return h;
}

// ---------------------------------------------------------------- yields
static void keep_last(Assign *as, Value y, Form *home) {
  if (as->forms[y] == home && as->ready[y]) return;
  cpu_root_keep(as, y, home)->last = true;
}

// y goes to its home at the end of region r, in whose place `old` was.
static void yield_tile(Assign *as, const Region *r, Value y, Form *home,
                       Value old) {
  if (y == old) return;
  Root *w = as->root_of[y];
  if (w && !w->dst) {
    w->dst = home;
    w->early = true;
    as->forms[y] = home;
    return;
  }
  bool here = cpu_is_inline(as, y) && ir_def(as->f, y)->parent == r;
  if (here && !as->forms[y] && !as->vec_form[y]) {
    cpu_root_keep(as, y, home)->early = true;
    as->forms[y] = home;
    return;
  }
  keep_last(as, y, home);
}

static bool is_tile(const Assign *as, Value v) {
  return ir_type(as->f, v)->n > 0;
}

// What an `if` of this region yields for a home goes there at once.
static void want_homes(Assign *as, const Region *r, Form *const *homes,
                       const Value *old) {
  const Op *y = r->last;
  for (uint32_t i = 0; i < y->nargs; i++) {
    const Op *def = ir_def(as->f, y->args[i]);
    if (!homes[i] || !def || def->code != OP_IF || def->parent != r ||
        as->uses[y->args[i]].n != 1 ||
        (old[i] && !dies_in(as, old[i], def, false)))
      continue;
    as->want[y->args[i]] = homes[i];
    as->want_old[y->args[i]] = old[i];
  }
}

// Emits region r; tiles it yields go to homes[i], scalars to vals (packed).
static void yielding(Assign *as, Region *r, Form *const *homes,
                     const Value *old, Value *vals) {
  const Op *y = r->last;
  assert(y && y->code == OP_YIELD);
  want_homes(as, r, homes, old);
  cpu_region_emit(as, r);
  for (uint32_t i = 0; i < y->nargs; i++)
    if (homes[i]) yield_tile(as, r, y->args[i], homes[i], old[i]);
  cpu_flush(as);
  for (uint32_t i = 0; i < y->nargs; i++)
    if (!homes[i]) *vals++ = scalar_of(as, y->args[i]);
}

static void set_form(Assign *as, Value v, Form *f) {
  as->forms[v] = f;
  as->ready[v] = true;
}

// ---------------------------------------------------------------- for
static void for_emit(Assign *as, Op *op) {
  uint32_t n = op->nres, ns = 0;
  Region *r = op->regions[0];
  Form **homes = NEWN(as->arena, Form *, n + 1);
  Value *old = NEWN(as->arena, Value, n + 1);
  Value *vals = NEWN(as->arena, Value, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    old[i] = r->params.at[i + 1];
    if (is_tile(as, old[i]))
      homes[i] = home_for(as, op, op->args[i + 3], old[i]);
  }
  cpu_flush(as);
  for (uint32_t i = 0; i < n; i++)
    if (!homes[i]) vals[ns++] = scalar_of(as, op->args[i + 3]);
  Value lo = scalar_of(as, op->args[0]), hi = scalar_of(as, op->args[1]);
  Value step = scalar_of(as, op->args[2]);
  Value args[3] = {lo, hi, step};
  Value *all = NEWN(as->arena, Value, ns + 3);
  Type *types = NEWN(as->arena, Type, ns + 1);
  for (uint32_t i = 0; i < 3; i++) all[i] = args[i];
  for (uint32_t i = 0; i < ns; i++) {
    all[i + 3] = vals[i];
    types[i] = *mty(as, vals[i]);
  }
  IrAttr rev = attr_i(AT_REVERSE, 1);
  Op *loop = ir_op(&as->b, OP_FOR, all, ns + 3, &rev,
                   ir_attr_i(op, AT_REVERSE, 0) != 0, types, ns, 1);
  Builder outer = as->b;
  uint32_t mark = cpu_scope_open(as), s = 0;
  as->b.region = loop->regions[0];
  as->b.before = NULL;
  cpu_memo_put(as, r->params.at[0], 0,
               ir_region_param(as->b.region, type_scalar(DT_I64),
                               ir_info(as->f, r->params.at[0])->hint));
  for (uint32_t i = 0; i < n; i++) {
    if (homes[i]) {
      set_form(as, old[i], homes[i]);
      continue;
    }
    cpu_memo_put(as, old[i], 0,
                 ir_region_param(as->b.region, types[s++],
                                 ir_info(as->f, old[i])->hint));
  }
  yielding(as, r, homes, old, vals);
  cpu_scope_close(as, mark);
  ir_yield(&as->b, vals, ns);
  as->b = outer;
  s = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (homes[i]) set_form(as, op->res[i], homes[i]);
    else cpu_memo_put(as, op->res[i], 0, loop->res[s++]);
  }
}

// ---------------------------------------------------------------- if
// Where result i of an `if` goes, and which value lay there before.
static Form *if_home(Assign *as, const Op *op, uint32_t i, Value *old) {
  Value res = op->res[i];
  if (as->want[res]) {
    *old = as->want_old[res];
    return as->want[res];
  }
  for (uint32_t k = 0; k < 2; k++) {
    Value y = op->regions[k]->last->args[i];
    if (!has_home(as, y) || inside(ir_def(as->f, y), op)) continue;
    if (!dies_in(as, y, op, false)) continue;
    *old = y;
    return as->forms[y];
  }
  return home_form(as, op->res[i]);
}

static void if_emit(Assign *as, Op *op) {
  uint32_t n = op->nres, ns = 0;
  Form **homes = NEWN(as->arena, Form *, n + 1);
  Value *old = NEWN(as->arena, Value, n + 1);
  Value *vals = NEWN(as->arena, Value, n + 1);
  Type *types = NEWN(as->arena, Type, n + 1);
  Value cond = scalar_of(as, op->args[0]);
  cpu_flush(as);
  for (uint32_t i = 0; i < n; i++) {
    if (is_tile(as, op->res[i])) homes[i] = if_home(as, op, i, &old[i]);
    else
      types[ns++] =
          type_scalar(cpu_reg_dtype(ir_type(as->f, op->res[i])->dtype));
  }
  Branch br = cpu_if_open(as, cond, types, ns);
  yielding(as, op->regions[0], homes, old, vals);
  cpu_if_else(as, &br, vals);
  yielding(as, op->regions[1], homes, old, vals);
  cpu_if_close(as, &br, vals, vals);
  ns = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (homes[i]) set_form(as, op->res[i], homes[i]);
    else cpu_memo_put(as, op->res[i], 0, vals[ns++]);
  }
}

// ---------------------------------------------------------------- ops
static bool writes_input(const Assign *as, const Op *op) {
  for (uint32_t i = 0; i < as->f->params.n; i++)
    if (as->f->params.at[i].v == op->args[0])
      return as->f->params.at[i].role == PR_INOUT;
  return false;
}

// Of `scalar or mask`, the condition of a dot: known before the dot's stage.
static void decide(Assign *as, const Op *op) {
  bool wanted = false;
  for (uint32_t i = 0; i < as->uses[op->res[0]].n; i++) {
    const Op *u = as->uses[op->res[0]].at[i];
    wanted |= u->code == OP_DOT && u->nargs > 3 && u->args[3] == op->res[0];
  }
  for (uint32_t i = 0; i < 2 && wanted; i++)
    if (cpu_is_scalar(as, op->args[i])) scalar_of(as, op->args[i]);
}

static void op_emit(Assign *as, Op *op) {
  switch (op->code) {
  case OP_YIELD: return;
  case OP_FOR: for_emit(as, op); return;
  case OP_IF: if_emit(as, op); return;
  case OP_TRINV: cpu_solve_emit(as, op); return;
  case OP_STORE:
    // Loads of the same tensor keep their place.
    if (writes_input(as, op)) cpu_flush(as);
    cpu_turn_stored(as, op);
    cpu_root_op(as, op);
    if (writes_input(as, op)) cpu_flush(as);
    return;
  default: break;
  }
  Value v = op->res[0];
  if (!cpu_is_inline(as, v)) {
    if (as->uses[v].n) cpu_root_op(as, op);
    return;
  }
  if (!as->uses[v].n) return;
  if (is_tile(as, v)) {
    if (op->code == OP_OR) decide(as, op);
    keep_inline(as, v);
    return;
  }
  // What waits for a reduction is evaluated when it is wanted.
  as->stamp++;
  if (!waits(as, v)) scalar_of(as, v);
}

void cpu_region_emit(Assign *as, Region *r) {
  as->region = r;
  for (Op *op = r->first; op; op = op->next) {
    op_emit(as, op);
    as->region = r;
  }
}
