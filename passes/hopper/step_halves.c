// step_halves: products of a step that adds to memory, where nothing has room
// for those of two steps.
//
//   for(%lo, %hi, %s, %a, %b) ({          gtile(0) {visit = 1}
//     ^(%i, %a1, %b1):                    for(%lo, %hi, %s, %a, %b) ({
//     %q = sfill(%Q, %i)                    %S = wgmma(%k, %q), wait
//     %S = mma(%k, %q)                      %w, %x = f(%S)
//     %w, %x = f(%S)                        gtile(%x) {visit = 1}
//     %a2 = mma(%w, %q, %a1)        ->      %t = gtile() {visit = 2}
//     %b2 = mma(%x, %q, %b1)                %d = wgmma(%t, %K, 0, %c)
//     %t = sput(%x)                         %a2 = wgmma(%w, %q, %a1), ..
//     %d = mma(%t, %k) {transa, trans}      wait %d
//     gstore(%D, %d, %i) {add}              gstore(%D, %d, %i - %s, ..) {add}
//     yield(%a2, %b2)                       wait %a2, %b2
//   })                                    })
//                                         the last step's %d, which is added
//
// pipeline_loop multiplies the next step's scores while words of this one are
// still multiplied, and one group in turn makes all of %d: with sums of 128
// columns, or steps of 128 rows, that is more than a thread has. Here a step
// has its products one behind the other; what one group's arithmetic leaves
// idle is for the other group's products (alternate). %d is of the step before:
// its words have been put long since, by both groups, and each has half of it:
// of 128 rows its own 64, of 64 half of the columns. It comes first, and is
// added while the others are made: in front of the next scores a burst of adds
// costs 12 % (H200, D 128). Level frag; sm_90a.
// Needs: lower_gpu; runs before pipeline_loop, which leaves such a loop alone.
// Tests: test/passes/step_halves/.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/hopper/beside.h"
#include "passes/support/cost.h"
#include "passes/support/needed.h"

enum { MAX_PRODUCTS = 8, GROUPS = 2 };

typedef struct Step {
  Func *f;
  const Rings *rings;
  Arena *arena;
  Op *loop;
  Region *body;
  uint32_t nahead, nbehind;
  Op *ahead[MAX_PRODUCTS], *behind[MAX_PRODUCTS];
  Op *put, *mma, *store;  // what is added to memory
  Value all;              // the tiles of all groups that it multiplies
  bool rows;              // halves are of its rows
  bool *late;             // by value: made of a product of the step
} Step;

// ---------------------------------------------------------------- what there is
static bool only_use(const Step *s, Value v, const Op *op) {
  if (ir_count_uses(s->f, v) != 1) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (op->args[i] == v) return true;
  return false;
}

static bool in_body(const Step *s, const Op *op) {
  return op && op->parent == s->body;
}

static bool is_beside(Step *s, Op *mma) {
  Op *put = ir_def(s->f, mma->args[0]), *tile = ir_def(s->f, mma->args[1]);
  if (s->put || mma->nargs != 2 || !in_body(s, put) || put->code != OP_SPUT ||
      !tile || in_body(s, tile) || !hop_rings_fills(s->rings, tile) ||
      !only_use(s, put->res[0], mma))
    return false;
  Op *store = ir_first_use(mma, mma->res[0]);
  bool adds = store && store->code == OP_GSTORE && in_body(s, store) &&
              ir_attr_i(store, AT_ADD, 0) && !ir_attr_i(store, AT_MASKED, 0) &&
              store->args[1] == mma->res[0] && only_use(s, mma->res[0], store);
  for (uint32_t i = 0; adds && i < store->nargs; i++)
    adds = i == 1 || !s->late[store->args[i]];
  if (!adds) return false;
  s->put = put;
  s->mma = mma;
  s->store = store;
  return true;
}

// Adds op, of a shared tile, to what the loop carries?
static bool is_behind(const Step *s, const Op *op) {
  const Op *yield = s->body->last;
  if (op->nargs != 3 || !only_use(s, op->res[0], yield)) return false;
  uint32_t at = 0;
  while (yield->args[at] != op->res[0]) at++;
  return op->args[2] == s->body->params.at[1 + at] &&
         ir_count_uses(s->f, op->args[2]) == 1 &&
         ir_type(s->f, op->args[0])->kind == TK_FRAG;
}

static bool is_group_product(const Step *s, const Op *mma) {
  const Type *a = ir_type(s->f, mma->args[0]), *c = ir_type(s->f, mma->res[0]);
  uint32_t depth = a->ext[ir_attr_i(mma, AT_TRANSA, 0) ? 0 : 1];
  return frag_is_group_product(c, a->dtype, depth);
}

static bool is_filled(const Step *s, Value v) {
  const Op *def = ir_def(s->f, v);
  return ir_type(s->f, v)->kind != TK_SMEM ||
         (def && hop_rings_fills(s->rings, def));
}

static bool is_zero(const Step *s, Value v) {
  double k;
  return ir_const_value(s->f, v, &k) && k == 0;
}

// Products by what they need.
static bool classify(Step *s) {
  const Op *yield = s->body->last;
  s->late = NEWN(s->arena, bool, s->f->values.n);
  for (Op *op = s->body->first; op != yield; op = op->next) {
    bool late = false;
    if (op->nregions) return false;
    for (uint32_t i = 0; i < op->nargs; i++) late |= s->late[op->args[i]];
    for (uint32_t i = 0; i < op->nres; i++)
      s->late[op->res[i]] = late || op->code == OP_MMA;
    if (op->code != OP_MMA) continue;
    if (!is_group_product(s, op) || s->nahead == MAX_PRODUCTS ||
        s->nbehind == MAX_PRODUCTS)
      return false;
    if (is_beside(s, op)) continue;
    if (!is_filled(s, op->args[0]) || !is_filled(s, op->args[1])) return false;
    if (is_behind(s, op)) {
      s->behind[s->nbehind++] = op;
      continue;
    }
    if (late || (op->nargs > 2 && !is_zero(s, op->args[2]))) return false;
    s->ahead[s->nahead++] = op;
  }
  return s->put && s->nahead && s->nbehind == s->loop->nres;
}

// ---------------------------------------------------------------- room
static int64_t regs(const Step *s, Value v) {
  return pressure_of(ir_type(s->f, v), HW_GROUP_THREADS);
}

// Has a thread no room for the scores of a step, words of the one before and
// what is added to memory?
static bool is_tight(const Step *s) {
  int64_t n = COST_TILE_OTHER_REGS + regs(s, s->mma->res[0]);
  for (uint32_t i = 0; i < s->nahead; i++) n += regs(s, s->ahead[i]->res[0]);
  for (uint32_t i = 0; i < s->nbehind; i++)
    n += regs(s, s->behind[i]->res[0]) + regs(s, s->behind[i]->args[0]);
  return n > target_team(GROUPS, 6)->computes;
}

// Has each group a group's rows of what is added, or half of the columns, of
// whole panels?
static bool has_halves(Step *s) {
  const Type *t = ir_type(s->f, s->mma->args[1]);
  uint32_t panel = smem_panel_bytes(t) / (uint32_t)dtype_size(t->dtype);
  s->rows = ir_type(s->f, s->mma->res[0])->ext[0] == GROUPS * HW_GROUP_ROWS;
  return s->rows || t->ext[1] % (GROUPS * panel) == 0;
}

// ---------------------------------------------------------------- pieces
typedef struct Copy {
  Step *s;
  Builder *b;
  ValueMap map;
} Copy;

static Copy copy_at(Step *s, Builder *b, Value i) {
  Copy c = {.s = s, .b = b, .map = {.arena = s->arena}};
  vmap_put(&c.map, s->body->params.at[0], i);
  return c;
}

static bool is_made(const Copy *c, Value v) {
  return vmap_get(&c->map, v) != v;
}

// v's value in this copy; what it needs is cloned first.
static Value need(Copy *c, Value v) {
  return needed_clone(c->b, c->s->body, &c->map, v);
}

static Value zeros(Builder *b, Type t) {
  IrAttr zero = attr_f(AT_VALUE, 0);
  return ir_op(b, OP_CONST, NULL, 0, &zero, 1, &t, 1, 0)->res[0];
}

static Value gathered(Copy *c, Value words, int64_t visit) {
  Type all = hop_beside_put(c->s->rings, c->s->mma);
  return hop_beside_gathered(c->b, all, words, visit);
}

static void wait(Builder *b, Value *v, uint32_t n, int64_t pending) {
  Type types[MAX_PRODUCTS];
  IrAttr at = attr_i(AT_PENDING, pending);
  for (uint32_t i = 0; i < n; i++) types[i] = *ir_type(b->fn, v[i]);
  Op *op = ir_op(b, OP_WG_WAIT, v, n, &at, 1, types, n, 0);
  for (uint32_t i = 0; i < n; i++) v[i] = op->res[i];
}

static Value product(Copy *c, const Op *mma) {
  Value args[] = {need(c, mma->args[0]), need(c, mma->args[1]),
                  mma->nargs > 2 ? need(c, mma->args[2]) : 0};
  const Type t = *ir_type(c->s->f, mma->res[0]);
  return ir_op(c->b, OP_WGMMA, args, mma->nargs, mma->attrs, mma->nattrs, &t, 1,
               0)
      ->res[0];
}

// The axis along which each group has half of what is added.
static uint32_t half_axis(const Step *s) {
  return s->rows ? 0 : 1;
}

// The half's first row or column.
static Value half_from(Copy *c) {
  const Type *t = ir_type(c->s->f, c->s->mma->res[0]), i = type_scalar(DT_I32);
  uint32_t n = t->ext[half_axis(c->s)] / GROUPS;
  Value group = ir_op(c->b, OP_GROUP, NULL, 0, NULL, 0, &i, 1, 0)->res[0];
  return ir_2(c->b, OP_MUL, group, ir_const_i(c->b, DT_I32, n));
}

// Issues the group's half of what is added to memory.
static Value issue_half(Copy *c, Value words) {
  Step *s = c->s;
  Type t = *ir_type(s->f, s->mma->res[0]);
  t.ext[half_axis(s)] /= GROUPS;
  Value tile = gathered(c, words, 2), zero = zeros(c->b, t);
  Value args[] = {tile, s->all, zero, half_from(c)};
  ir_bare(c->b, OP_WG_FENCE);
  Value v =
      ir_op(c->b, OP_WGMMA, args, 4, s->mma->attrs, s->mma->nattrs, &t, 1, 0)
          ->res[0];
  ir_bare(c->b, OP_WG_COMMIT);
  return v;
}

// Is v a slice along the axis that has halves?
static bool is_halved(const Step *s, Value v) {
  const Type *t = ir_type(s->f, v);
  FragSlice slice = s->rows ? SLICE_ROW : SLICE_COL;
  return t->kind == TK_FRAG && t->slice == slice;
}

// A slice along that axis, of the group's half in place of all.
static Value half_of(Copy *c, Value v) {
  const Op *op = ir_def(c->s->f, v);
  Type t = *ir_type(c->s->f, v);
  if (!is_halved(c->s, v)) return need(c, v);
  t.ext[0] /= GROUPS;
  Value args[MAX_AXES];
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = half_of(c, op->args[i]);
  Value part =
      ir_op(c->b, op->code, args, op->nargs, op->attrs, op->nattrs, &t, 1, 0)
          ->res[0];
  if (op->code != OP_COORD) return part;
  Value from = half_from(c);
  from = ir_op(c->b, OP_SPLAT, &from, 1, NULL, 0, &t, 1, 0)->res[0];
  return ir_2(c->b, OP_ADD, part, from);
}

// Adds v, the group's half, at the copy's coordinate, if that is the loop's.
static void add(Copy *c, Value v, Value when) {
  const Op *store = c->s->store;
  Value args[MAX_AXES + 3];
  for (uint32_t k = 0; k < store->nargs; k++)
    args[k] = k == 1 ? v : half_of(c, store->args[k]);
  args[store->nargs] = when;
  IrAttr at[] = {attr_i(AT_ADD, 1), attr_i(AT_MASKED, 1)};
  ir_op(c->b, OP_GSTORE, args, store->nargs + 1, at, 2, NULL, 0, 0);
}

// Can a slice along that axis be made for half of it: of coordinates, scalars
// and what is elementwise?
static bool is_halvable(const Step *s, Value v) {
  const Op *op = ir_def(s->f, v);
  if (!is_halved(s, v)) return true;
  if (!op || op->nargs > MAX_AXES) return false;
  bool made = op->code == OP_COORD || op->code == OP_SPLAT ||
              op->code == OP_CONST || op_info(op->code)->flags & OPF_ELEM;
  for (uint32_t i = 0; made && i < op->nargs; i++)
    made = is_halvable(s, op->args[i]);
  return made;
}

static bool stores_halves(const Step *s) {
  for (uint32_t k = 2; k < s->store->nargs; k++)
    if (!is_halvable(s, s->store->args[k])) return false;
  return true;
}

// ---------------------------------------------------------------- the step
static bool is_own(const Step *s, const Op *op) {
  bool own = op == s->put || op == s->mma || op == s->store;
  for (uint32_t i = 0; i < s->nahead; i++) own |= op == s->ahead[i];
  for (uint32_t i = 0; i < s->nbehind; i++) own |= op == s->behind[i];
  return own;
}

// What needs no product, or what those ahead make possible.
static void compute(Copy *c, bool late) {
  const Step *s = c->s;
  for (Op *op = s->body->first; op != s->body->last; op = op->next) {
    bool of = false;
    if (is_own(s, op) || (op->nres && is_made(c, op->res[0]))) continue;
    for (uint32_t i = 0; i < op->nargs; i++) of |= s->late[op->args[i]];
    if (of == late) ir_clone(c->b, s->f, op, &c->map, NULL);
  }
}

// What words are rounded from, where masks choose behind that, too.
static Value wide_of(const Step *s, Value v) {
  const Op *op = ir_def(s->f, v);
  double k;
  while (op && op->code == OP_SELECT && ir_const_value(s->f, op->args[2], &k))
    op = ir_def(s->f, op->args[1]);
  return op && op->code == OP_CAST ? op->args[0] : v;
}

// That is finished before words are put.
static void pin(Copy *c) {
  const Step *s = c->s;
  Value v[MAX_PRODUCTS + 1];
  uint32_t n = 0;
  for (uint32_t i = 0; i <= s->nbehind; i++) {
    const Op *by = i < s->nbehind ? s->behind[i] : s->put;
    Value w = need(c, wide_of(s, by->args[0]));
    uint32_t k = 0;
    while (k < n && v[k] != w) k++;
    if (k == n) v[n++] = w;
  }
  ir_op(c->b, OP_PIN, v, n, NULL, 0, NULL, 0, 0);
}

static void scores(Copy *c) {
  Step *s = c->s;
  Value v[MAX_PRODUCTS];
  for (uint32_t i = 0; i < s->nahead; i++)
    for (uint32_t k = 0; k < 2; k++) need(c, s->ahead[i]->args[k]);
  ir_bare(c->b, OP_WG_FENCE);
  for (uint32_t i = 0; i < s->nahead; i++) v[i] = product(c, s->ahead[i]);
  ir_bare(c->b, OP_WG_COMMIT);
  compute(c, false);
  wait(c->b, v, s->nahead, 0);
  for (uint32_t i = 0; i < s->nahead; i++)
    vmap_put(&c->map, s->ahead[i]->res[0], v[i]);
  compute(c, true);
  pin(c);
}

// Adds what is made of the words of the step before, if there was one.
static void add_before(Copy *c, Value half) {
  Step *s = c->s;
  const Op *loop = s->loop;
  bool back = ir_attr_i(loop, AT_REVERSE, 0);
  Value now = vmap_get(&c->map, s->body->params.at[0]);
  Value before = ir_2(c->b, back ? OP_ADD : OP_SUB, now, loop->args[2]);
  Value any = back ? ir_2(c->b, OP_LT, before, loop->args[1])
                   : ir_2(c->b, OP_LE, loop->args[0], before);
  Copy prev = copy_at(s, c->b, before);
  add(&prev, half, any);
}

static void step(Step *s, Builder *b, Copy *c) {
  Value sums[MAX_PRODUCTS], *yields = NEWN(s->arena, Value, s->loop->nres);
  scores(c);
  Value words = need(c, s->put->args[0]);
  for (uint32_t i = 0; i < s->nbehind; i++) need(c, s->behind[i]->args[0]);
  gathered(c, words, 1);
  Value half = issue_half(c, words);
  ir_bare(b, OP_WG_FENCE);
  for (uint32_t i = 0; i < s->nbehind; i++) sums[i] = product(c, s->behind[i]);
  ir_bare(b, OP_WG_COMMIT);
  wait(b, &half, 1, 1);
  add_before(c, half);
  wait(b, sums, s->nbehind, 0);
  for (uint32_t i = 0; i < s->nbehind; i++)
    vmap_put(&c->map, s->behind[i]->res[0], sums[i]);
  for (uint32_t i = 0; i < s->loop->nres; i++)
    yields[i] = vmap_get(&c->map, s->body->last->args[i]);
  ir_yield(b, yields, s->loop->nres);
}

// The coordinate of the last step; of a loop without steps that of the first.
static Value last_of(const Step *s, Builder *b) {
  const Op *loop = s->loop;
  Value lo = loop->args[0], hi = loop->args[1], step = loop->args[2];
  DType t = ir_type(s->f, lo)->dtype;
  if (ir_attr_i(loop, AT_REVERSE, 0)) return lo;
  Value one = ir_const_i(b, t, 1), none = ir_const_i(b, t, 0);
  Value n = ir_2(b, OP_SUB, ir_2(b, OP_SUB, hi, lo), one);
  n = ir_2(b, OP_MAX, n, none);
  n = ir_2(b, OP_MUL, ir_2(b, OP_FLOORDIV, n, step), step);
  return ir_2(b, OP_ADD, lo, n);
}

static void rewrite(Step *s) {
  Op *old = s->loop;
  Builder b = {.fn = s->f,
               .region = old->parent,
               .before = old,
               .span = old->span};
  s->all = hop_beside_all(s->rings, &b, s->mma);
  Copy out = copy_at(s, &b, last_of(s, &b));
  Value none = zeros(&b, *ir_type(s->f, s->put->args[0]));
  gathered(&out, none, 1);
  Type *types = NEWN(s->arena, Type, old->nres);
  for (uint32_t i = 0; i < old->nres; i++)
    types[i] = *ir_type(s->f, old->res[i]);
  Op *loop = ir_op(&b, OP_FOR, old->args, old->nargs, old->attrs, old->nattrs,
                   types, old->nres, 1);
  Region *r = loop->regions[0];
  Builder in = {.fn = s->f, .region = r, .span = old->span};
  const ValueInfo at = *ir_info(s->f, s->body->params.at[0]);
  Copy c = copy_at(s, &in, ir_region_param(r, at.type, at.hint));
  for (uint32_t i = 0; i < old->nres; i++) {
    Value p = s->body->params.at[1 + i];
    vmap_put(&c.map, p, ir_region_param(r, types[i], ir_info(s->f, p)->hint));
  }
  step(s, &in, &c);
  Value half = issue_half(&out, none);
  wait(&b, &half, 1, 0);
  add(&out, half, ir_2(&b, OP_LT, old->args[0], old->args[1]));
  for (uint32_t i = 0; i < old->nres; i++)
    ir_replace_uses(s->f, old->res[i], loop->res[i]);
  ir_erase(old);
}

static void region(const Rings *w, Region *r) {
  Func *f = w->f;
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(w, op->regions[i]);
    if (op->code != OP_FOR || !op->nres) continue;
    Step s = {.f = f,
              .rings = w,
              .arena = f->mod->arena,
              .loop = op,
              .body = op->regions[0]};
    if (w->groups == GROUPS && !w->apart && w->occupancy == 1 && classify(&s) &&
        is_tight(&s) && hop_beside_of_groups(w, s.mma) && has_halves(&s) &&
        stores_halves(&s))
      rewrite(&s);
  }
}

bool pass_step_halves(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  Rings rings;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    if (hop_rings_plan(&rings, m->funcs.at[i], opt->target))
      region(&rings, m->funcs.at[i]->body);
  return true;
}
