// pick_keys: of a reduction over keys in which one key alone counts the value
// at that key is taken.
//
//   before  %e = eq(%n, floordiv(%k, %c))                : bool{n,k}
//           %r = reduce(and(%e, f(%n))) {kind = any, over = [n]} : bool{k}
//   after   %j = floordiv(%k, %c)
//           %r = and(and(le(0, %j), lt(%j, N)), f(%j))   : bool{k}
//
// So are sums of select(and(%e, ..), x, 0), and counts. What blocks of keys are
// chosen is asked for each key so: `any(n: chosen & n == k // 64)`. Each pair
// would look at all blocks. Where the key that counts varies with rows alone
// products of matrices would become products of vectors: that is left. Level
// attn, behind canon. Tests: test/passes/pick_keys/.
#include "ir/deps.h"
#include "passes/pass.h"
#include "passes/support/outline.h"

typedef struct Pick {
  Ctx *cx;
  Func *f;
  Builder b;
  uint32_t axis;  // of the keys
  Value key;      // that counts, or 0
  ValueMap map;   // values at that key
} Pick;

static bool has_axis(const Pick *p, Value v) {
  const Type *t = ir_type(p->f, v);
  return t->kind == TK_ELEM && type_has_axis(t, p->axis);
}

static bool has_keys(const Pick *p, Value v) {
  const Type *t = ir_type(p->f, v);
  for (uint32_t i = 0; i < t->n; i++)
    if (p->f->axes.at[t->axis[i]].role == AX_KEY) return true;
  return false;
}

static bool is_index(const Pick *p, Value v) {
  const Op *op = ir_def(p->f, v);
  return op && op->code == OP_INDEX &&
         ir_attr_i(op, AT_AXIS, -1) == (int64_t)p->axis;
}

// ---------------------------------------------------------------- the key
// The condition holds at no other key than the one that is found.
static bool find_key(Pick *p, Value cond) {
  const Op *op = ir_def(p->f, cond);
  if (!op) return false;
  if (op->code == OP_AND)
    return find_key(p, op->args[0]) || find_key(p, op->args[1]);
  for (uint32_t i = 0; op->code == OP_EQ && i < 2; i++) {
    Value key = op->args[1 - i];
    if (!is_index(p, op->args[i]) || has_axis(p, key) || !has_keys(p, key))
      continue;
    p->key = key;
    return true;
  }
  return false;
}

static bool is_zero(const Pick *p, Value v) {
  double x;
  return ir_const_value(p->f, v, &x) && x == 0;
}

// Of what is reduced; where the condition does not hold it is nothing.
static bool counts_once(Pick *p, const Op *reduce) {
  const Op *op = ir_def(p->f, reduce->args[0]);
  int64_t kind = ir_attr_i(reduce, AT_KIND, -1);
  if (!op) return false;
  if (kind == RK_ANY) return find_key(p, reduce->args[0]);
  if (kind != RK_SUM) return false;
  if (op->code == OP_SELECT)
    return is_zero(p, op->args[2]) && find_key(p, op->args[0]);
  return op->code == OP_CAST && ir_type(p->f, op->args[0])->dtype == DT_BOOL &&
         find_key(p, op->args[0]);
}

// ---------------------------------------------------------------- the value
static bool sums_vectors(const Pick *p, const Op *op) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  if (op->code != OP_DOT && op->code != OP_REDUCE) return false;
  for (uint32_t i = 0; i < over->n; i++)
    if (p->f->axes.at[over->list[i]].role != AX_VEC) return false;
  return true;
}

static bool can_move(const Pick *p, Value v, Map *seen) {
  const Op *op = ir_def(p->f, v);
  uint64_t known;
  if (!has_axis(p, v) || map_get(seen, v, &known)) return true;
  map_put(seen, v, 1);
  if (!op || (!outline_can_repeat(op) && !sums_vectors(p, op))) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!can_move(p, op->args[i], seen)) return false;
  return true;
}

static Value moved(Pick *p, Value v) {
  if (!has_axis(p, v)) return v;
  if (is_index(p, v)) return p->key;
  if (v < p->map.n && p->map.to[v]) return p->map.to[v];
  const Op *op = ir_def(p->f, v);
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value x = moved(p, op->args[i]);
    if (x != op->args[i]) vmap_put(&p->map, op->args[i], x);
  }
  p->b.span = op->span;
  ir_clone(&p->b, p->f, op, &p->map, NULL);
  return vmap_get(&p->map, v);
}

// The key is one of the axis, in its domain.
static Value is_there(Pick *p) {
  Builder *b = &p->b;
  Value zero = ir_const_i(b, DT_I64, 0);
  Value end = ir_dim(b, p->f->axes.at[p->axis].extent);
  Value from = ir_2(b, OP_LE, zero, p->key);
  Value in = ir_2(b, OP_AND, from, ir_2(b, OP_LT, p->key, end));
  for (const Op *op = p->f->body->first; op; op = op->next)
    if (op->code == OP_DOMAIN && ir_attr_i(op, AT_AXIS, -1) == (int64_t)p->axis)
      in = ir_2(b, OP_AND, in, moved(p, op->args[0]));
  return in;
}

static bool domains_can_move(const Pick *p, const Op *at, Map *seen) {
  bool behind = false;
  for (const Op *op = p->f->body->first; op; op = op->next) {
    behind |= op == at;
    if (op->code == OP_DOMAIN &&
        ir_attr_i(op, AT_AXIS, -1) == (int64_t)p->axis &&
        (behind || !can_move(p, op->args[0], seen)))
      return false;
  }
  return true;
}

static void take(Pick *p, Op *reduce) {
  Value in = is_there(p), x = moved(p, reduce->args[0]);
  p->b.span = reduce->span;
  if (ir_type(p->f, x)->dtype == DT_BOOL) x = ir_2(&p->b, OP_AND, in, x);
  else {
    DType t = ir_type(p->f, x)->dtype;
    Value none =
        dtype_is_float(t) ? ir_const_f(&p->b, t, 0) : ir_const_i(&p->b, t, 0);
    x = ir_3(&p->b, OP_SELECT, in, x, none);
  }
  ir_replace_uses(p->f, reduce->res[0], x);
}

static bool visit(Ctx *cx, Func *f, Op *reduce) {
  const IrAttr *over = ir_attr(reduce, AT_OVER);
  Pick p = {.cx = cx, .f = f, .axis = (uint32_t)over->list[0]};
  p.map.arena = f->mod->arena;
  p.b = (Builder){.fn = f,
                  .region = reduce->parent,
                  .before = reduce,
                  .span = reduce->span};
  Map seen = {.arena = &cx->scratch};
  if (over->n != 1 || f->axes.at[p.axis].role != AX_KEY ||
      !counts_once(&p, reduce) || !can_move(&p, reduce->args[0], &seen) ||
      !domains_can_move(&p, reduce, &seen))
    return false;
  take(&p, reduce);
  ctx_remark(cx, "%s: of keys %s one counts, whose value is taken", f->name,
             f->axes.at[p.axis].name);
  return true;
}

static bool is_flat(const Func *f) {
  for (const Op *op = f->body->first; op; op = op->next)
    if (op->nregions || op->code == OP_CALL) return false;
  return true;
}

bool pass_pick_keys(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (!is_flat(f)) continue;
    bool some = false;
    for (Op *op = f->body->first; op; op = op->next)
      if (op->code == OP_REDUCE) some |= visit(cx, f, op);
    if (some) ir_sweep(f);
  }
  return true;
}
