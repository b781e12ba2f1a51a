// grad, part 9: kernels as functions of level attn. Axes that are outside
// become parallel ones, those that are summed key axes; each condition of a
// domain goes to the innermost key axis that it varies with.
#include "passes/attn/grad_emit.h"
#include "passes/support/gauge.h"
#include "passes/support/outline.h"

#include <assert.h>
#include <math.h>

// ---------------------------------------------------------------- operands
static Value as_float(Emit *e, Value v, DType t) {
  return ir_cast(&e->b, t, v);
}

// A number of the gradient's own has all digits that its use has.
static bool is_wide_number(const Emit *e, Gid x, DType t) {
  return t == DT_F64 && x >= e->g->forward &&
         grad_at(e->g, x)->code == OP_CONST;
}

static void operands(Emit *e, const GradNode *n, Value *out) {
  DType t = n->dtype;
  if (op_info(n->code)->infer == INF_BOOL) {
    t = DT_BOOL;
    for (uint32_t i = 0; i < n->n; i++) {
      DType a = grad_at(e->g, n->arg[i])->dtype;
      if (dtype_is_float(a) &&
          (!dtype_is_float(t) || dtype_size(a) > dtype_size(t)))
        t = a;
    }
  }
  for (uint32_t i = 0; i < n->n; i++) {
    if (is_wide_number(e, n->arg[i], t)) {
      out[i] = ir_const_f(&e->b, t, grad_at(e->g, n->arg[i])->value);
      continue;
    }
    out[i] = grad_emit(e, n->arg[i]);
    DType a = ir_type(e->b.fn, out[i])->dtype;
    if (dtype_is_float(t) && dtype_is_float(a) && n->code != OP_CAST)
      out[i] = as_float(e, out[i], t);
  }
}

// A quotient that is 0 where its divisor is.
static Value emit_ratio(Emit *e, const Value *a) {
  Builder *b = &e->b;
  DType t = ir_type(b->fn, a[1])->dtype;
  Value zero = ir_const_f(b, t, 0), none = ir_2(b, OP_EQ, a[1], zero);
  Value y = ir_2(b, OP_DIV, a[0],
                 ir_3(b, OP_SELECT, none, ir_const_f(b, t, 1), a[1]));
  return ir_3(b, OP_SELECT, none, zero, y);
}

static Value emit_op(Emit *e, const GradNode *n) {
  Value a[ELEM_ARGS];
  assert(n->n <= ELEM_ARGS);
  operands(e, n, a);
  IrAttr to = attr_i(AT_TO, n->dtype);
  if (n->code == OP_DIVK) return emit_ratio(e, a);
  bool cast = n->code == OP_CAST;
  return ir_op(&e->b, n->code, a, n->n, &to, cast, NULL, 1, 0)->res[0];
}

// ---------------------------------------------------------------- leaves
// A coordinate that a condition on several key axes keeps inside of a tensor,
// as that of a row of packed sequences: 0 where the condition excludes the
// point.
static Value coordinate(Emit *e, Gid index) {
  Value v = grad_emit(e, index);
  for (uint32_t i = 0; i < e->fold.n; i++) {
    Gid c = e->fold.at[i];
    if (grad_at(e->g, c)->axes & ~grad_at(e->g, index)->axes) continue;
    Value zero = ir_int(&e->b, 0);
    v = ir_3(&e->b, OP_SELECT, grad_emit(e, c), v, zero);
  }
  return v;
}

static Value emit_load(Emit *e, uint32_t tensor, const Gid *index, uint32_t n) {
  Value at[8];
  for (uint32_t i = 0; i < n; i++) at[i] = coordinate(e, index[i]);
  Value t = e->tensor[tensor];
  return ir_type(e->b.fn, t)->kind == TK_TENSOR ? ir_load(&e->b, t, at, n) : t;
}

static Value emit_leaf(Emit *e, const GradNode *n) {
  Builder *b = &e->b;
  switch (n->code) {
  case OP_CONST:
    return dtype_is_float(n->dtype) ? ir_const_f(b, n->dtype, n->value)
                                    : ir_const_i(b, n->dtype, n->attr);
  case OP_DIM: return ir_dim(b, (Dim)n->attr);
  case OP_INDEX: return ir_index(b, e->at[n->attr]);
  case OP_GIVEN: {
    Type t = type_scalar(DT_BOOL);
    Value *v = &e->tensor[n->tensor];
    return ir_op(b, OP_GIVEN, v, 1, NULL, 0, &t, 1, 0)->res[0];
  }
  case OP_LOAD: return emit_load(e, n->tensor, n->arg, n->n);
  default: return 0;
  }
}

// ---------------------------------------------------------------- sums
static uint64_t axes_of(const Emit *e, Value v) {
  const Type *t = ir_type(e->b.fn, v);
  uint64_t all = 0;
  for (uint32_t i = 0; i < e->g->axes.n; i++)
    if ((e->used & grad_bit(i)) && type_has_axis(t, e->at[i]))
      all |= grad_bit(i);
  return all;
}

// Of an integer the least and the largest for infinities.
static Value number(Builder *b, DType t, double v) {
  if (dtype_is_float(t)) return ir_const_f(b, t, v);
  int64_t most = t == DT_I64 ? INT64_MAX : INT32_MAX;
  int64_t i = isfinite(v) ? (int64_t)v : v < 0 ? -most : most;
  return ir_const_i(b, t, i);
}

Value grad_widen(Emit *e, Value v, uint64_t axes) {
  Builder *b = &e->b;
  DType t = ir_type(b->fn, v)->dtype;
  uint64_t lacks = axes & ~axes_of(e, v);
  for (uint32_t i = 0; i < e->g->axes.n; i++) {
    if (!(lacks & grad_bit(i))) continue;
    Value x = ir_index(b, e->at[i]);
    if (t == DT_BOOL) {
      v = ir_2(b, OP_OR, v, ir_2(b, OP_LT, x, ir_int(b, 0)));
      continue;
    }
    x = ir_cast(b, t, x);
    v = ir_2(b, OP_ADD, v, ir_2(b, OP_MUL, number(b, t, 0), x));
  }
  return v;
}

static bool is_key(const Emit *e, uint32_t axis) {
  return e->b.fn->axes.at[e->at[axis]].role == AX_KEY;
}

// The innermost one of those axes that are keys', or `of`.
static uint32_t last_key(const Emit *e, uint64_t axes, uint32_t of) {
  for (uint32_t i = 0; i < e->g->axes.n; i++)
    if ((axes & grad_bit(i)) && is_key(e, i)) of = i;
  return of;
}

// The axes to sum, one by one: vectors, then keys from the innermost.
static uint32_t order_of(const Emit *e, uint64_t over, uint32_t *out) {
  uint32_t n = 0;
  for (int keys = 0; keys < 2; keys++)
    for (uint32_t i = e->g->axes.n; i-- > 0;)
      if ((over & grad_bit(i)) && is_key(e, i) == keys) out[n++] = i;
  return n;
}

static bool is_narrow(DType t) {
  return t == DT_BF16 || t == DT_F16;
}

enum { MAX_DEPTH = 12 };  // of ops, where types are looked for

static bool is_vector(const Emit *e, Value v) {
  const Type *t = ir_type(e->b.fn, v);
  for (uint32_t i = 0; i < t->n; i++)
    if (e->b.fn->axes.at[t->axis[i]].role == AX_VEC) return true;
  return false;
}

// The type of 16 bits that all vectors have which v is made of, element by
// element, or DT_F32. *t: that of those that were seen, or DT_BOOL.
static void type_of_vectors(const Emit *e, Value v, uint32_t depth, DType *t) {
  const Op *op = ir_def(e->b.fn, v);
  if (!op || !is_vector(e, v)) return;
  bool leaf = op->code == OP_LOAD, elem = op_info(op->code)->flags & OPF_ELEM;
  DType is = ir_type(e->b.fn, v)->dtype;
  if (leaf && is_narrow(is) && (*t == DT_BOOL || *t == is)) *t = is;
  else if (leaf || (!elem && op->code != OP_CAST) || !depth) *t = DT_F32;
  for (uint32_t i = 0; !leaf && depth && i < op->nargs; i++)
    type_of_vectors(e, op->args[i], depth - 1, t);
}

// Weights and a vector that is computed are rounded to the type of 16 bits of
// what the vector is made of, as in the program.
static DType narrow_of(const Emit *e, Value x, Value y, uint32_t axis) {
  DType t = DT_BOOL;
  if (!is_key(e, axis) || e->g->walks.n || is_vector(e, x) == is_vector(e, y))
    return DT_F32;
  type_of_vectors(e, is_vector(e, x) ? x : y, MAX_DEPTH, &t);
  return is_narrow(t) ? t : DT_F32;
}

// A computed operand beside one of 16 bits is rounded to that, as in the
// program.
static Value dot(Emit *e, Value x, Value y, uint32_t axis) {
  Builder *b = &e->b;
  DType tx = ir_type(b->fn, x)->dtype, ty = ir_type(b->fn, y)->dtype;
  if (tx == DT_F32 && ty == DT_F32) {
    DType t = narrow_of(e, x, y, axis);
    x = ir_cast(b, t, x), y = ir_cast(b, t, y);
    tx = ty = t;
  }
  if (is_narrow(tx) && ty == DT_F32) y = ir_cast(b, tx, y);
  if (is_narrow(ty) && tx == DT_F32) x = ir_cast(b, ty, x);
  uint64_t both = axes_of(e, x) | axes_of(e, y), domain = e->need[axis];
  bool key = is_key(e, axis);
  if (key && (domain & ~axes_of(e, x)) && !(domain & ~axes_of(e, y))) {
    Value swap = x;
    x = y, y = swap;
  }
  if (key && (domain & both & ~axes_of(e, x)))
    x = grad_widen(e, x, domain & both);
  return ir_dot(b, x, y, &e->at[axis], 1);
}

static bool varies(const Emit *e, Value v, uint32_t axis) {
  return type_has_axis(ir_type(e->b.fn, v), e->at[axis]);
}

static bool stores(const Emit *e, uint32_t tensor) {
  for (uint32_t i = 0; e->k && i < e->k->n; i++)
    if (e->k->store[i].tensor == tensor &&
        e->g->tensors.at[tensor].from == GF_MADE)
      return true;
  return false;
}

// How the kernel reads x from memory, or NULL.
static const GradRead *read_of(const Emit *e, Gid x) {
  const Grad *g = e->g;
  Gid walk = e->k ? e->k->walk : 0;
  bool any = walk && g->walks.at[grad_at(g, walk)->attr].nstates;
  if (any && !grad_is_made(grad_at(g, x)->code)) return NULL;
  for (uint32_t i = 0; e->k && i < g->reads.n; i++)
    if (g->reads.at[i].node == x && !stores(e, g->reads.at[i].tensor))
      return &g->reads.at[i];
  return NULL;
}

// What changes no reduction of that kind.
static Value neutral(Builder *b, const GradNode *n, DType t) {
  switch ((RKind)n->attr) {
  case RK_MAX: return number(b, t, -INFINITY);
  case RK_MIN: return number(b, t, INFINITY);
  case RK_PROD:
  case RK_ALL: return number(b, t, 1);
  default: return number(b, t, 0);
  }
}

// Does condition i on several key axes exclude points of the sum n? Of one that
// is added up, of a point of them for each task, whatever that is over.
static bool excludes(const Emit *e, const GradNode *n, uint32_t i) {
  uint64_t axes = grad_at(e->g, e->fold.at[i])->axes;
  return !(axes & ~n->points) && ((axes | e->k->outer) & n->over);
}

// x, but of no effect where a condition on several key axes excludes the point.
static Value folded(Emit *e, const GradNode *n, Value x) {
  Builder *b = &e->b;
  for (uint32_t i = 0; i < e->fold.n; i++) {
    if (!excludes(e, n, i)) continue;
    Value none = neutral(b, n, ir_type(b->fn, x)->dtype);
    x = ir_3(b, OP_SELECT, grad_emit(e, e->fold.at[i]), x, none);
  }
  return x;
}

// Does x vary along all axes of those conditions?
static bool has_folds(const Emit *e, const GradNode *n, Value x) {
  for (uint32_t i = 0; i < e->fold.n; i++) {
    uint64_t axes = grad_at(e->g, e->fold.at[i])->axes;
    if (excludes(e, n, i) && (axes & ~axes_of(e, x))) return false;
  }
  return true;
}

// Is x what the caller gives, at all points? What kernels make and the program
// saves is there at those of its rows alone.
static bool is_given(const Emit *e, Gid x) {
  const GradNode *n = grad_at(e->g, x);
  if (n->code == OP_CAST) return is_given(e, n->arg[0]);
  if (n->code != OP_LOAD || read_of(e, x)) return false;
  GradFrom from = e->g->tensors.at[n->tensor].from;
  return from != GF_MADE && from != GF_SAVED;
}

// Both factors of a product, of is what they are. On a GPU vectors that are
// given stay as they are beside weights that are 0, so that the product is one
// of matrices.
static void fold_factors(Emit *e, const GradNode *n, const Gid *of, Value *x,
                         Value *y) {
  bool gpu = e->g->opt->target->kind == TARGET_GPU;
  bool x_stays = gpu && is_given(e, of[0]) && has_folds(e, n, *y);
  bool y_stays = gpu && !x_stays && is_given(e, of[1]) && has_folds(e, n, *x);
  if (!x_stays) *x = folded(e, n, *x);
  if (!y_stays) *y = folded(e, n, *y);
}

// ---------------------------------------------------------------- products
enum { MAX_PRODUCT = 6 };

typedef struct Product {
  Gid at[MAX_PRODUCT];
  uint32_t n;
  bool fails;
} Product;

static void factors_of(const Emit *e, Gid x, Product *p) {
  const GradNode *n = grad_at(e->g, x);
  if (n->code == OP_MUL && !read_of(e, x)) {
    factors_of(e, n->arg[0], p);
    factors_of(e, n->arg[1], p);
    return;
  }
  p->fails |= p->n == MAX_PRODUCT;
  if (!p->fails) p->at[p->n++] = x;
}

static uint64_t axes_in(const Emit *e, const Product *p, uint32_t side) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < p->n; i++)
    if (side >> i & 1) all |= grad_at(e->g, p->at[i])->axes;
  return all;
}

static uint32_t size_of(uint64_t axes) {
  uint32_t n = 0;
  for (; axes; axes &= axes - 1) n++;
  return n;
}

static Gid product_of(Emit *e, const Product *p, uint32_t side) {
  Gid x = 0;
  for (uint32_t i = 0; i < p->n; i++)
    if (side >> i & 1) x = x ? grad_2(e->g, OP_MUL, x, p->at[i]) : p->at[i];
  return x;
}

// The factors of a sum of products as two, so that they have the fewest axes in
// common: rows' times keys' is a product of matrices, what both have is none.
// Sets both of them, unless it is as well as it is.
static void regroup(Emit *e, Gid product, uint32_t axis, Gid *x, Gid *y) {
  Product p = {0};
  factors_of(e, product, &p);
  if (p.fails || p.n < 3 || e->g->walks.n) return;
  uint64_t over = grad_bit(axis), a = grad_at(e->g, *x)->axes,
           b = grad_at(e->g, *y)->axes;
  uint32_t all = (1u << p.n) - 1, best = 0;
  uint32_t least = (a & over) && (b & over) ? size_of(a & b) : 64;
  for (uint32_t side = 1; side < all; side += 2) {
    a = axes_in(e, &p, side), b = axes_in(e, &p, all & ~side);
    if (!(a & ~b) || !(b & ~a)) continue;
    if (!(a & over) || !(b & over) || size_of(a & b) >= least) continue;
    least = size_of(a & b);
    best = side;
  }
  if (!best) return;
  *x = product_of(e, &p, best);
  *y = product_of(e, &p, all & ~best);
}

static Value emit_sum(Emit *e, const GradNode *n) {
  Grad *g = e->g;
  uint32_t over[64], count = order_of(e, n->over, over), done = 0;
  const GradNode p = *grad_at(g, n->arg[0]);
  Value v = 0;
  if (n->attr == RK_SUM && p.code == OP_MUL && !e->memo[n->arg[0]] &&
      !read_of(e, n->arg[0])) {
    Gid a = p.arg[0], c = p.arg[1];
    regroup(e, n->arg[0], over[0], &a, &c);
    Value x = grad_emit(e, a), y = grad_emit(e, c);
    fold_factors(e, n, (Gid[]){a, c}, &x, &y);
    if (varies(e, x, over[0]) && varies(e, y, over[0]))
      v = dot(e, x, y, over[0]), done = 1;
  }
  if (!v) v = folded(e, n, as_float(e, grad_emit(e, n->arg[0]), n->dtype));
  for (uint32_t i = done; i < count; i++) {
    uint64_t axes = grad_bit(over[i]);
    if (is_key(e, over[i])) axes |= e->need[over[i]] & e->used;
    v = grad_widen(e, v, axes);
    v = ir_reduce(&e->b, (RKind)n->attr, v, &e->at[over[i]], 1);
  }
  return v;
}

// ---------------------------------------------------------------- nodes
static Value emit_read(Emit *e, const GradRead *r) {
  Grad *g = e->g;
  const GradTensor t = g->tensors.at[r->tensor];
  Value v = emit_load(e, r->tensor, r->index, r->n);
  bool row = !(grad_at(g, r->node)->axes & grad_role(g, AX_VEC));
  bool reference = t.from == GF_OUTPUT && row && grad_is_reference(g, r->node);
  return reference ? ir_1(&e->b, OP_REF, v) : v;
}

// Does the kernel walk in the direction of the running sum, and store what
// blocks have in front of them?
static bool runs_along(const Emit *e, Gid scan) {
  for (uint32_t i = 0; e->k && i < e->k->n; i++)
    if (e->k->store[i].scan == scan) return true;
  return false;
}

// v, as that running sum has it: 0 where not the domain of the innermost key
// axis that it varies with excludes the point, but another condition of the
// kernel.
static Value emit_summed(Emit *e, Gid scan, Value v) {
  GradNode n = *grad_at(e->g, scan);
  n.attr = RK_SUM;
  v = folded(e, &n, v);
  uint32_t last = last_key(e, n.axes & e->used, UINT32_MAX);
  for (uint32_t i = 0; i < e->put.n; i++) {
    const EmitDomain d = e->put.at[i];
    uint64_t axes = grad_at(e->g, d.c)->axes;
    if (d.to == last || (axes & ~n.axes) || !(axes & n.over)) continue;
    Value none = number(&e->b, ir_type(e->b.fn, v)->dtype, 0);
    v = ir_3(&e->b, OP_SELECT, grad_emit(e, d.c), v, none);
  }
  return grad_widen(e, v, n.axes & e->used);
}

// Of a block, behind what that has in front; or of all keys.
static Value emit_scan(Emit *e, Gid x) {
  Grad *g = e->g;
  const GradNode n = *grad_at(g, x);
  bool all = runs_along(e, x);
  Value v = as_float(e, grad_emit(e, n.arg[0]), n.dtype);
  v = emit_summed(e, x, v);
  IrAttr at[5] = {attr_i(AT_KIND, RK_SUM),
                  attr_i(AT_AXIS, e->at[grad_scan_axis(g, x)]),
                  attr_i(AT_DIR,
                         n.attr & GRAD_SCAN_SUFFIX ? DIR_SUFFIX : DIR_PREFIX)};
  uint32_t count = 3;
  if (n.attr & GRAD_SCAN_EXCLUSIVE) at[count++] = attr_i(AT_EXCLUSIVE, 1);
  if (!all) at[count++] = attr_i(AT_BLOCK, grad_scan_block());
  v = ir_op(&e->b, OP_SCAN, &v, 1, at, count, NULL, 1, 0)->res[0];
  if (all) return v;
  return ir_2(&e->b, OP_ADD, grad_emit(e, grad_scan_front(g, x)), v);
}

Value grad_emit(Emit *e, Gid x) {
  Grad *g = e->g;
  if (e->memo[x]) return e->memo[x];
  const GradRead *r = read_of(e, x);
  if (r) return e->memo[x] = emit_read(e, r);
  const GradNode n = *grad_at(g, x);
  bool same = n.code == GRAD_MADE || n.code == OP_STOP_GRAD;
  if (same) return e->memo[x] = grad_emit(e, n.arg[0]);
  Value v = emit_leaf(e, &n);
  if (!v && n.code == OP_SCAN) v = emit_scan(e, x);
  if (!v) v = n.code == OP_REDUCE ? emit_sum(e, &n) : emit_op(e, &n);
  return e->memo[x] = v;
}

static Emit emitter(Grad *g, const GradKernel *k, Func *f) {
  Emit e = {.g = g, .k = k};
  e.b = (Builder){.fn = f, .region = f->body, .span = g->f->span};
  e.memo = NEWN(g->arena, Value, g->nodes.n + 4096);
  e.tensor = NEWN(g->arena, Value, g->tensors.n);
  return e;
}

// ---------------------------------------------------------------- the program
// The coordinate along an axis of the graph, of the program's own axis.
static Value axis_coordinate(Emit *e, uint32_t i) {
  const GradAxis *a = &e->g->axes.at[i];
  Value x = ir_index(&e->b, a->of);
  if (grad_bits_of(e->g, a->of) == grad_bit(i)) return x;
  const GradAxis *group = a->inner ? a : a - 1;
  Value size = ir_dim(&e->b, group->inner);
  return ir_2(&e->b, a->inner ? OP_FLOORDIV : OP_MOD, x, size);
}

// That of memory: an axis of the program, or a half of one that is grouped.
static Value own_coordinate(Emit *e, Gid index) {
  uint64_t axes = grad_at(e->g, index)->axes;
  if (!axes) return ir_int(&e->b, 0);
  uint32_t i = 0;
  while (!(axes & grad_bit(i))) i++;
  uint32_t of = e->g->axes.at[i].of;
  return axes == grad_bits_of(e->g, of) ? ir_index(&e->b, of)
                                        : axis_coordinate(e, i);
}

// Where v, which is the node x, has its first point of those at which it is
// the same: it may have more axes in the program, which has heads where the
// graph has groups. 0: everywhere.
static Value where_first(Emit *e, Value v, Gid x) {
  Builder *b = &e->b;
  Grad *g = e->g;
  Value all = 0;
  for (uint32_t i = 0; i < g->axes.n; i++) {
    uint32_t of = g->axes.at[i].of;
    if (of == UINT32_MAX || !type_has_axis(ir_type(b->fn, v), of)) continue;
    if (grad_at(g, x)->axes & grad_bit(i)) continue;
    Value none = ir_int(b, 0);
    Value zero = ir_2(b, OP_EQ, axis_coordinate(e, i), none);
    all = all ? ir_2(b, OP_AND, all, zero) : zero;
  }
  return all;
}

static void store_where(Builder *b, Value t, Value v, const Value *at,
                        uint32_t n, Value keep) {
  Value args[12] = {t, v};
  for (uint32_t i = 0; i < n; i++) args[i + 2] = at[i];
  args[n + 2] = keep;
  IrAttr masked = {.id = AT_MASKED, .i = 1};
  ir_op(b, OP_STORE, args, n + 2 + (keep != 0), &masked, keep != 0, NULL, 0, 0);
}

// What is known of a node that the program stores for its gradient.
typedef struct Soft {
  Emit *e;
  uint8_t *seen;  // by Gid: 1 + what `below` found
} Soft;

enum { SOFT_MAX = 1, SOFT_EXP = 2 };

// Of what x, a value of a row, is made elementwise: is a maximum over keys in
// it on which nothing depends, is it in an exponential?
static uint8_t below(Soft *s, Gid x) {
  Grad *g = s->e->g;
  const GradNode *n = grad_at(g, x);
  if (s->seen[x]) return s->seen[x] - 1;
  uint8_t r = 0;
  bool max = n->code == OP_REDUCE && n->attr == RK_MAX && x < g->forward;
  if (max && (n->over & grad_role(g, AX_KEY)) &&
      gauge_is(g->f, g->arena, g->of[x]))
    r = SOFT_MAX;
  bool elem = op_info(n->code)->flags & OPF_ELEM;
  for (uint32_t i = 0; elem && i < n->n; i++) r |= below(s, n->arg[i]);
  if (n->code == OP_EXP && (r & SOFT_MAX)) r |= SOFT_EXP;
  s->seen[x] = r + 1;
  return r;
}

// A row without keys has the maximum -inf. exp(sink - max) is infinite then,
// and so is what it is divided by: of such values those are stored for which
// the maximum is a number.
static void soften(Soft *s, Gid x) {
  const GradNode *n = grad_at(s->e->g, x);
  Value *memo = &s->e->memo[x];
  if (!below(s, x) || s->seen[x] == UINT8_MAX) return;
  s->seen[x] = UINT8_MAX;
  if (n->code == OP_REDUCE) {
    *memo = ir_1(&s->e->b, OP_REF, *memo);
    return;
  }
  *memo = 0;
  for (uint32_t i = 0; i < n->n; i++) soften(s, n->arg[i]);
}

static void soften_saved(Emit *e) {
  Grad *g = e->g;
  Soft s = {e, NEWN(g->arena, uint8_t, g->nodes.n)};
  for (uint32_t turn = 0; turn < 2; turn++)
    for (uint32_t i = 0; i < g->reads.n; i++) {
      Gid x = g->reads.at[i].node;
      bool saved = g->tensors.at[g->reads.at[i].tensor].from == GF_SAVED;
      bool soft =
          saved && (s.seen[x] == UINT8_MAX || (below(&s, x) & SOFT_EXP));
      if (soft && turn) soften(&s, x);
    }
}

// The program stores what its gradient reads of it.
void grad_save(Grad *g) {
  Emit e = emitter(g, NULL, g->f);
  memcpy(e.memo, g->of, g->forward * sizeof *g->of);
  for (uint32_t i = 0; i < g->axes.n; i++) {
    e.at[i] = g->axes.at[i].of;
    if (e.at[i] != UINT32_MAX && !g->axes.at[i].inner) e.used |= grad_bit(i);
  }
  for (uint32_t i = 1; i < g->tensors.n; i++)
    if (g->tensors.at[i].param) e.tensor[i] = g->tensors.at[i].param;
  soften_saved(&e);
  for (uint32_t i = 1; i < g->tensors.n; i++) {
    const GradTensor t = g->tensors.at[i];
    if (t.from != GF_SAVED) continue;
    uint32_t by = 0;
    while (g->reads.at[by].tensor != i) by++;
    const GradRead r = g->reads.at[by];
    Value out = ir_param(g->f, t.name, PR_OUT, t.type), at[8];
    Value v = as_float(&e, grad_emit(&e, r.node), t.type.dtype);
    if (grad_is_reference(g, r.node)) v = ir_1(&e.b, OP_REF, v);
    for (uint32_t n = 0; n < r.n; n++) at[n] = own_coordinate(&e, r.index[n]);
    store_where(&e.b, out, v, at, r.n, where_first(&e, v, r.node));
  }
}

// ---------------------------------------------------------------- parameters
static Type gradient_type(Grad *g, const GradTensor *t) {
  Dim one = dim_const(&g->m->dims, 1);
  DType wide = t->type.dtype == DT_F64 ? DT_F64 : DT_F32;
  Type type = t->type.kind == TK_TENSOR ? t->type : type_tensor(wide, 1, &one);
  if (dtype_size(type.dtype) == 1) type.dtype = DT_BF16;
  return type;
}

static void put_param(Emit *e, uint32_t tensor) {
  const GradTensor *t = &e->g->tensors.at[tensor];
  ParamRole r = t->from == GF_MADE          ? PR_SHARED
                : t->type.kind != TK_TENSOR ? PR_SCALAR
                                            : PR_IN;
  e->tensor[tensor] = ir_param(e->b.fn, t->name, r, t->type);
}

static void put_params(Emit *e, GradFrom from) {
  for (uint32_t i = 1; i < e->g->tensors.n; i++)
    if (e->g->tensors.at[i].from == from && e->g->tensors.at[i].read)
      put_param(e, i);
}

// All phases have the same.
static void parameters(Emit *e) {
  Grad *g = e->g;
  e->out = NEWN(g->arena, Value, g->tensors.n);
  put_params(e, GF_INPUT);
  put_params(e, GF_OUTPUT);
  put_params(e, GF_SAVED);
  put_params(e, GF_COTANGENT);
  for (uint32_t i = 1; i < g->tensors.n; i++) {
    const GradTensor *t = &g->tensors.at[i];
    if (!t->wanted) continue;
    const char *name = arena_printf(g->m->arena, "g_%s", t->name);
    e->out[i] = ir_param(e->b.fn, intern(&g->cx->names, name), PR_OUT,
                         gradient_type(g, t));
  }
  put_params(e, GF_MADE);
}

// ---------------------------------------------------------------- axes
// Is x the state in front of blocks, which the kernel stores?
static bool is_front(const Emit *e, Gid x) {
  const GradNode *n = grad_at(e->g, x);
  return n->code == GRAD_RESULT && n->attr == GRAD_FRONT && !read_of(e, x);
}

static void touch(Emit *e, Gid x) {
  Grad *g = e->g;
  if (e->memo[x]) return;
  e->memo[x] = 1;
  const GradNode *n = grad_at(g, x);
  // Steps tell the block.
  e->used |= is_front(e, x) ? grad_at(g, n->arg[0])->axes : n->axes;
  if (read_of(e, x)) return;
  e->used |= n->over | n->points;
  Gid front = grad_scan_front(g, x);
  if (front && !runs_along(e, x)) touch(e, front);
  uint32_t some;
  const Gid *arg = grad_operands(g, x, &some);
  for (uint32_t i = 0; i < some; i++) touch(e, arg[i]);
}

// The terms of condition c that the kernel can tell: what they sum is used.
static void touch_condition(Emit *e, Gid c) {
  const GradNode n = *grad_at(e->g, c);
  if (n.code == OP_AND)
    for (uint32_t i = 0; i < 2; i++) touch_condition(e, n.arg[i]);
  else if (!(n.axes & ~e->used)) touch(e, c);
}

static void touch_all(Emit *e) {
  const Grad *g = e->g;
  for (uint32_t i = 0; i < e->k->n; i++) {
    const GradStore *s = &e->k->store[i];
    touch(e, s->v);
    for (uint32_t j = 0; j < s->n; j++)
      if (!is_front(e, s->v) || !(grad_at(g, s->index[j])->axes & ~e->used))
        touch(e, s->index[j]);
  }
  e->stored = e->used;
  for (uint64_t before = 0; before != e->used;) {
    before = e->used;
    for (uint32_t i = 0; i < g->axes.n; i++)
      if (g->domain[i] && (e->used & grad_bit(i)))
        touch_condition(e, g->domain[i]);
  }
}

// Does the kernel walk along that axis? Then it knows where that ends.
static bool is_walked(const Emit *e, uint32_t axis) {
  const Grad *g = e->g;
  Gid walk = e->k->walk;
  return walk && g->walks.at[grad_at(g, walk)->attr].axis == axis;
}

static AxisRole role_of(const Emit *e, uint32_t axis) {
  bool outer = e->k->outer & grad_bit(axis);
  if (is_walked(e, axis)) return AX_STEP;
  if (e->g->axes.at[axis].axis.role == AX_VEC) return AX_VEC;
  return outer ? AX_PAR : e->k->walk ? AX_VEC : AX_KEY;
}

// What the reads of a walk contract: rows of the state, as tiles have them.
static uint64_t rows_of(const Emit *e) {
  const Grad *g = e->g;
  if (!e->k->walk) return 0;
  const GradWalk *w = &g->walks.at[grad_at(g, e->k->walk)->attr];
  for (uint32_t i = 0; i < w->n; i++)
    if (w->item[i].kind == GI_READ && w->item[i].over) return w->item[i].over;
  return w->row;
}

static void put_axis(Emit *e, uint32_t axis, AxisRole role) {
  const Axis *a = &e->g->axes.at[axis].axis;
  e->at[axis] = ir_axis(e->b.fn, a->name, role, a->extent);
}

static void put_those(Emit *e, uint64_t axes, AxisRole r) {
  for (uint32_t i = 0; i < e->g->axes.n; i++)
    if ((axes & grad_bit(i)) && role_of(e, i) == r) put_axis(e, i, r);
}

// Rows of tiles are along the first of two axes: a twin's, too, is in front of
// what is summed.
static void put_axes(Emit *e) {
  Grad *g = e->g;
  static const AxisRole roles[] = {AX_PAR, AX_STEP, AX_KEY, AX_VEC};
  touch_all(e);
  memset(e->memo, 0, g->nodes.n * sizeof *e->memo);
  uint64_t first = (rows_of(e) | g->front) & e->used,
           last = g->last & e->used & ~first;
  for (uint32_t r = 0; r < 4; r++) {
    put_those(e, first, roles[r]);
    put_those(e, e->used & ~first & ~last, roles[r]);
    put_those(e, last, roles[r]);
  }
}

// ---------------------------------------------------------------- domains
// The axes that all have at which the kernel adds, or else those of what it
// stores: other keys are summed in a point, and have no say in which there are.
static uint64_t pointed(const Emit *e) {
  uint64_t axes = e->stored;
  for (uint32_t i = 0; i < e->k->n; i++)
    if (e->k->store[i].outer) axes &= grad_store_axes(e->g, &e->k->store[i]);
  return axes;
}

// Points outside of a parallel axis's domain have no keys, and what they store
// is 0; rows of sequences in one tensor are left as they are.
static void put_domain(Emit *e, Gid c, uint32_t of, uint32_t to) {
  Value v = grad_emit(e, c);
  bool stored = false;
  if (!is_key(e, of) && to == of && !e->k->physical) {
    e->keep = e->keep ? ir_2(&e->b, OP_AND, e->keep, v) : v;
    to = last_key(e, pointed(e), to);
    stored = !is_key(e, to);
  }
  vec_push(e->g->arena, &e->put, ((EmitDomain){.c = c, .to = to}));
  if (stored) return;
  IrAttr axis = attr_i(AT_AXIS, e->at[to]);
  ir_op(&e->b, OP_DOMAIN, &v, 1, &axis, 1, NULL, 0, 0);
  e->need[to] |= grad_at(e->g, c)->axes;
}

static void put_condition(Emit *e, Gid c, uint32_t of) {
  Grad *g = e->g;
  const GradNode n = *grad_at(g, c);
  if (n.code == OP_AND) {
    put_condition(e, n.arg[0], of);
    put_condition(e, n.arg[1], of);
    return;
  }
  if (n.axes & ~e->used) return;
  uint32_t to = of, inner = 0;
  for (uint32_t i = 0; i < g->axes.n; i++)
    if ((n.axes & grad_bit(i)) && is_key(e, i)) to = i, inner++;
  if (inner > 1) vec_push(g->arena, &e->fold, c);
  else put_domain(e, c, of, to);
}

static void put_domains(Emit *e) {
  Grad *g = e->g;
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (g->domain[i] && (e->used & grad_bit(i)) && !is_walked(e, i))
      put_condition(e, g->domain[i], i);
}

// Does x sum over one of these axes, itself or in what it is made of?
static bool sums_along(const Emit *e, Gid x, uint64_t axes) {
  const GradNode *n = grad_at(e->g, x);
  if (read_of(e, x) || e->memo[x]) return false;
  e->memo[x] = 1;
  bool sums = n->code == OP_REDUCE || n->code == OP_SCAN;
  if (sums && (n->over & axes)) return true;
  for (uint32_t i = 0; i < n->n; i++)
    if (sums_along(e, n->arg[i], axes)) return true;
  return false;
}

// The key axis that the condition alone varies with, of the kernel's; or
// UINT32_MAX.
static uint32_t key_of(const Emit *e, Gid c) {
  uint32_t key = UINT32_MAX, n = 0;
  for (uint32_t i = 0; i < e->g->axes.n; i++)
    if ((grad_at(e->g, c)->axes & grad_bit(i)) && is_key(e, i)) key = i, n++;
  return n == 1 ? key : UINT32_MAX;
}

// Has the kernel keys within those of `key`?
static bool has_inner(const Emit *e, uint32_t key) {
  for (uint32_t i = 0; i < e->g->axes.n; i++)
    if ((e->used & grad_bit(i)) && is_key(e, i) && e->at[i] > e->at[key])
      return true;
  return false;
}

// A kernel that sums the points of a place in a table walks the keys which are
// there: tiles without any are left out. Those that have others within are
// walked whole, as those are whose place another coordinate of a vector tells.
static void put_place(Emit *e) {
  Grad *g = e->g;
  const GradStore *s = &e->k->store[0];
  const GradNode sum = *grad_at(g, s->v);
  if (e->k->n != 1 || e->k->walk || sum.code != OP_REDUCE) return;
  const GradNode x = *grad_at(g, sum.arg[0]);
  if (x.code != OP_SELECT || grad_at(g, x.arg[0])->code != OP_EQ) return;
  const GradNode *zero = grad_at(g, x.arg[2]);
  uint32_t key = key_of(e, x.arg[0]);
  if (zero->code != OP_CONST || zero->value != 0 || key == UINT32_MAX ||
      !(sum.over & grad_bit(key)) || has_inner(e, key) ||
      (grad_at(g, x.arg[0])->axes & grad_role(g, AX_VEC)))
    return;
  bool again = sums_along(e, x.arg[1], grad_at(g, x.arg[0])->axes);
  memset(e->memo, 0, g->nodes.n * sizeof *e->memo);
  if (!again) put_domain(e, x.arg[0], key, key);
}

// ---------------------------------------------------------------- all
static Value target_of(const Emit *e, const GradStore *s) {
  bool made = e->g->tensors.at[s->tensor].from == GF_MADE;
  Value out = made ? 0 : e->out[s->tensor];
  return out ? out : e->tensor[s->tensor];
}

// Where no point is, the domains of the kernel's keys say.
static void emit_add(Emit *e, Value tensor, Value v, const Value *at,
                     uint32_t n) {
  Value args[12] = {tensor, v};
  for (uint32_t i = 0; i < n; i++) args[i + 2] = at[i];
  IrAttr add = attr_i(AT_ADD, 1);
  ir_op(&e->b, OP_STORE, args, n + 2, &add, 1, NULL, 0, 0);
}

// What the sum has in front of a block.
static void emit_front(Emit *e, const GradStore *s, Value v) {
  Grad *g = e->g;
  bool suffix = grad_at(g, s->scan)->attr & GRAD_SCAN_SUFFIX;
  uint32_t axis = e->at[grad_scan_axis(g, s->scan)];
  IrAttr at[] = {attr_i(AT_AXIS, axis),
                 attr_i(AT_DIR, suffix ? DIR_SUFFIX : DIR_PREFIX),
                 attr_i(AT_BLOCK, grad_scan_block())};
  v = emit_summed(e, s->scan, v);
  v = ir_reduce(&e->b, RK_SUM, v, &axis, 1);
  Value args[12] = {target_of(e, s), v};
  for (uint32_t i = 0; i < s->n; i++) args[i + 2] = grad_emit(e, s->index[i]);
  ir_op(&e->b, OP_STORE, args, s->n + 2, at, 3, NULL, 0, 0);
}

void grad_emit_store(Emit *e, const GradStore *s, Value v) {
  Builder *b = &e->b;
  Value at[10], t = target_of(e, s);
  DType type = ir_type(b->fn, t)->dtype;
  uint32_t n = 0;
  v = as_float(e, v, type);
  if (s->scan) {
    emit_front(e, s, v);
    return;
  }
  for (; n < s->n; n++) at[n] = grad_emit(e, s->index[n]);
  if (!n) at[n++] = ir_int(b, 0);
  if (s->outer) {
    emit_add(e, t, v, at, n);
    return;
  }
  Value keep = e->keep;
  if (s->mask) {
    Value some = grad_emit(e, s->mask);
    keep = keep ? ir_2(b, OP_AND, keep, some) : some;
  }
  if (!keep) {
    ir_store(b, t, v, at, n);
    return;
  }
  if (!s->physical && !s->mask) {
    v = ir_3(b, OP_SELECT, keep, v, number(b, type, 0));
    ir_store(b, t, v, at, n);
    return;
  }
  store_where(b, t, v, at, n, keep);
}

static void emit_first(Emit *e, Gid x) {
  const GradNode n = *grad_at(e->g, x);
  if (n.code != GRAD_LIST) grad_emit(e, x);
  for (uint32_t i = 0; n.code == GRAD_LIST && i < n.n; i++)
    grad_emit(e, n.arg[i]);
}

static void write_kernel(Grad *g, const GradKernel *k, const char *name) {
  Func *f = ir_func(g->m, FK_PROGRAM, name);
  f->span = g->f->span;
  Emit e = emitter(g, k, f);
  parameters(&e);
  put_axes(&e);
  put_domains(&e);
  put_place(&e);
  if (k->walk && g->walks.at[grad_at(g, k->walk)->attr].nstates)
    grad_emit_body(&e);
  else if (k->walk) grad_emit_walk(&e);
  for (uint32_t i = 0; !k->walk && i < k->n; i++) {
    if (k->store[i].first) emit_first(&e, k->store[i].first);
    grad_emit_store(&e, &k->store[i], grad_emit(&e, k->store[i].v));
  }
}

void grad_write(Grad *g) {
  const char *p = arena_printf(g->m->arena, "%s_grad", g->f->name);
  for (uint32_t i = 0; i < g->nkernels; i++) {
    bool last = i + 1 == g->nkernels;
    const char *name =
        last ? p : arena_printf(g->m->arena, "%s.%s", p, g->kernel[i].name);
    write_kernel(g, &g->kernel[i], intern(&g->cx->names, name));
  }
}
