// split_vec: vectors that are too long for a task's sums are cut into parts,
// which are tasks of their own.
//
//   before  axes(b par B, k key Sk, d vec 512)
//           %d = index() {axis = d}      %o = dot(%p, load(%V, %b, %k, %d))
//   after   axes(b par B, k key Sk, d vec 256, part par 2)
//           %d = add(mul(index() {axis = part}, 256), index() {axis = d})
//
// An axis that scores sum too, as that of keys and values of one length, is
// first two: values and what is made of them get one of their own. Of a length
// that no parts of whole blocks divide, the last part is shorter. A group of
// warps holds 256 sums of a row in its registers beside the scores. Each part
// makes the weights anew: that costs the products with the keys again, and less
// than spilled sums do. What does not vary with the vector is stored by the
// first part. A program that adds up more than one such vector has parts of
// half a length (PassOpt.columns). Where rows are multiplied by a matrix and
// there are no keys, parts have few columns: the matrix takes shared memory.
// For GPUs; level attn, behind inline and canon. Tests: test/passes/split_vec/.
#include "ir/infer.h"
#include "ir/target.h"
#include "passes/support/cost.h"
#include "passes/support/pieces.h"
#include "passes/pass.h"

static bool over_keys(const Func *f, const Op *op) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  for (uint32_t i = 0; op->code == OP_DOT && i < over->n; i++)
    if (f->axes.at[over->list[i]].role == AX_KEY) return true;
  return false;
}

static bool listed(const Op *op, AttrId id, uint32_t axis) {
  const IrAttr *a = ir_attr(op, id);
  for (uint32_t i = 0; a && i < a->n; i++)
    if (a->list[i] == axis) return true;
  return false;
}

// Is every element of axis x by itself?
static bool is_free(const Func *f, uint32_t x) {
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->nregions || op->code == OP_CALL || op->code == OP_SCAN ||
        op->code == OP_RECUR || op->code == OP_AFFINE)
      return false;
    if (listed(op, AT_OVER, x)) return false;
    if ((op->code == OP_DOMAIN || op->code == OP_DIVK) &&
        ir_attr_i(op, AT_AXIS, -1) == (int64_t)x)
      return false;
  }
  return true;
}

// The longest vector of 32 bits an element that a product adds up.
static int64_t longest(const Func *f) {
  int64_t most = 0, n = 1;
  for (const Op *op = f->body->first; op; op = op->next) {
    const IrAttr *over = ir_attr(op, AT_OVER);
    if (op->code != OP_DOT || dtype_size(ir_type(f, op->args[1])->dtype) < 4)
      continue;
    for (uint32_t i = 0; i < over->n; i++)
      if (f->axes.at[over->list[i]].role == AX_VEC &&
          dim_is_const(&f->mod->dims, f->axes.at[over->list[i]].extent, &n))
        most = n > most ? n : most;
  }
  return most;
}

static bool has_keys(const Func *f) {
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role == AX_KEY) return true;
  return false;
}

// A chunk of a recurrence whose matrices lie in shared memory as they are.
static bool is_small_chunk(const Func *f, const PassOpt *opt) {
  int64_t room = opt->target ? opt->target->gpu.smem : 0;
  return pieces_of_chunk(f) && pieces_bytes(f) + COST_SPARE_SMEM <= room;
}

// Are factors of a matrix computed that has x, a decay for each row and step?
// What is made of them lives in registers.
static bool has_powers(const Func *f, uint32_t x) {
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->code != OP_EXP2) continue;
    const Type *t = ir_type(f, op->res[0]);
    for (uint32_t i = 0; i < t->n && type_has_axis(t, x); i++)
      if (t->axis[i] != x && f->axes.at[t->axis[i]].role == AX_VEC) return true;
  }
  return false;
}

// Is x that of the columns of a matrix in memory, by which rows are multiplied?
static bool of_matrix(const Func *f, uint32_t x, const PassOpt *opt) {
  bool some = false;
  bool none = has_keys(f) || (is_small_chunk(f, opt) && !has_powers(f, x));
  for (const Op *op = f->body->first; op && !none; op = op->next)
    some |= op->code == OP_DOT && type_has_axis(ir_type(f, op->res[0]), x) &&
            type_has_axis(ir_type(f, op->args[0]), x) !=
                type_has_axis(ir_type(f, op->args[1]), x);
  return some;
}

// ---------------------------------------------------------------- own axis
static bool is_sum(const Func *f, const Op *op, uint32_t x) {
  return over_keys(f, op) && type_has_axis(ir_type(f, op->res[0]), x);
}

// Marks what is made of sums over keys along x. False: there is none, or some
// of it has no x, as a norm of the vector.
static bool mark_sums(const Func *f, uint32_t x, bool *made) {
  bool any = false;
  for (const Op *op = f->body->first; op; op = op->next) {
    bool some = op->nres == 1 && is_sum(f, op, x);
    for (uint32_t i = 0; i < op->nargs && !some; i++) some = made[op->args[i]];
    if (!some || op->code == OP_STORE) continue;
    if (op->nres != 1 || op->nregions || op->code == OP_SCAN ||
        !type_has_axis(ir_type(f, op->res[0]), x))
      return false;
    any = made[op->res[0]] = true;
  }
  return any;
}

typedef struct Own {
  Func *f;
  Builder b;
  ValueMap map;
  uint32_t x, own;
} Own;

// v along the new axis.
static Value moved(Own *o, Value v) {
  const Op *op = ir_def(o->f, v);
  Type t = *ir_type(o->f, v);
  if (!op || t.kind != TK_ELEM || !type_has_axis(&t, o->x)) return v;
  if (v < o->map.n && o->map.to[v]) return o->map.to[v];
  Value args[MAX_AXES + 4], y;
  uint32_t n = op->nargs;
  for (uint32_t i = 0; i < n; i++) args[i] = moved(o, op->args[i]);
  for (uint32_t i = 0; i < t.n; i++)
    if (t.axis[i] == o->x) t.axis[i] = o->own;
  y = op->code == OP_INDEX
          ? ir_index(&o->b, o->own)
          : ir_op(&o->b, op->code, args, n, op->attrs, op->nattrs, &t, 1, 0)
                ->res[0];
  vmap_put(&o->map, v, y);
  return y;
}

// The axis of outputs along x: a new one where scores sum x, -1: they are no
// vectors of their own.
static int own_axis(Ctx *cx, Func *f, uint32_t x) {
  bool *made = NEWN(&cx->scratch, bool, f->values.n);
  if (is_free(f, x)) return (int)x;
  if (!mark_sums(f, x, made)) return -1;
  const Axis a = f->axes.at[x];
  Own o = {.f = f,
           .map = {.arena = f->mod->arena},
           .x = x,
           .own = ir_axis(f, "out", AX_VEC, a.extent)};
  for (Op *op = f->body->first; op; op = op->next) {
    bool some = false;
    for (uint32_t i = 0; i < op->nargs; i++) some |= made[op->args[i]];
    if (op->code != OP_STORE || !some) continue;
    o.b = (Builder){.fn = f, .region = f->body, .before = op, .span = op->span};
    for (uint32_t i = 0; i < op->nargs; i++)
      op->args[i] = moved(&o, op->args[i]);
  }
  return is_free(f, o.own) ? (int)o.own : -1;
}

// ---------------------------------------------------------------- parts
// So many parts of one size.
typedef struct Parts {
  int64_t n, size;
} Parts;

// Parts of whole blocks, all alike if there are not twice as many.
static Parts cut(int64_t n, int64_t most) {
  int64_t least = (n + most - 1) / most;
  for (int64_t p = least; p <= 2 * least; p++)
    if (n % (p * HW_BLOCK) == 0) return (Parts){p, n / p};
  int64_t size = (n + least - 1) / least;
  return (Parts){least, (size + HW_BLOCK - 1) / HW_BLOCK * HW_BLOCK};
}

// The parts of few rows' sums are groups' on sm_90a, which read them of one
// tile (passes/gpu/boxes.c): whole panels of 16-bit columns.
static Parts whole_panels(Parts p, int64_t n, int64_t most,
                          const PassOpt *opt) {
  bool groups = opt->target && opt->target->gpu.hopper &&
                (opt->few || opt->decode) && p.n <= HW_MOST_GROUPS;
  int64_t size = (n + p.n - 1) / p.n;
  size = (size + HW_PANEL - 1) / HW_PANEL * HW_PANEL;
  return groups && size <= most && size * (p.n - 1) < n ? (Parts){p.n, size}
                                                        : p;
}

// The parts of axis x, 0: it stays whole.
static Parts parts_of(const Func *f, uint32_t x, const PassOpt *opt) {
  // Long keys are split into parts where they are read (passes/gpu/dot.c), an
  // eighth of them in a thread's registers.
  bool keys = longest(f) > COST_COLUMNS_LONG;
  int64_t n, most = keys ? COST_COLUMNS_LEAST : COST_COLUMNS_MOST;
  if (opt->columns && opt->columns < most) most = opt->columns;
  bool sums = of_matrix(f, x, opt);
  if (sums) most = COST_COLUMNS_MATRIX;
  if (f->axes.at[x].role != AX_VEC ||
      !dim_is_const(&f->mod->dims, f->axes.at[x].extent, &n))
    return (Parts){0, 0};
  // One part has the same tiles as each of several.
  bool step = pieces_axes(f) >> x & 1;
  if (sums && n == most && !step && pieces_of_chunk(f) && has_powers(f, x))
    return (Parts){1, n};
  if (n <= most) return (Parts){0, 0};
  for (const Op *op = f->body->first; op; op = op->next)
    sums |= is_sum(f, op, x);
  Parts p = cut(n, most);
  if (has_keys(f)) p = whole_panels(p, n, most, opt);
  bool whole = p.n * p.size == n || has_keys(f);
  return sums && whole ? p : (Parts){0, 0};
}

static void split_index(Func *f, uint32_t x, uint32_t part, int64_t size) {
  for (Op *op = f->body->first, *next; op; op = next) {
    next = op->next;
    if (op->code != OP_INDEX || ir_attr_i(op, AT_AXIS, -1) != (int64_t)x)
      continue;
    Builder b = {.fn = f, .region = f->body, .before = op, .span = op->span};
    Value n = ir_const_i(&b, DT_I64, size);
    Value at = ir_2(&b, OP_MUL, ir_index(&b, part), n);
    at = ir_2(&b, OP_ADD, at, ir_index(&b, x));
    ir_replace_uses(f, op->res[0], at);
    ir_erase(op);
  }
}

static void retype(Func *f) {
  for (Op *op = f->body->first; op; op = op->next) {
    Type t;
    if (op->nres != 1 || op->code == OP_CONST) continue;
    if (!infer_type(f, op, &t)) ir_info(f, op->res[0])->type = t;
  }
}

// What a store of a part holds for: the first part alone has what all parts
// have; a shorter last one ends with the vector. 0: all of it.
static Value holds(Builder *b, const Op *op, uint32_t x, uint32_t part,
                   int64_t end) {
  const Func *f = b->fn;
  bool varies = false;
  for (uint32_t i = 1; i < op->nargs; i++)
    varies |= type_has_axis(ir_type(f, op->args[i]), part);
  Value p = varies && !end ? 0 : ir_index(b, part);
  if (!varies) return ir_2(b, OP_EQ, p, ir_const_i(b, DT_I64, 0));
  if (!end) return 0;
  int64_t size;
  dim_is_const(&f->mod->dims, f->axes.at[x].extent, &size);
  Value at = ir_2(b, OP_MUL, p, ir_const_i(b, DT_I64, size));
  at = ir_2(b, OP_ADD, at, ir_index(b, x));
  return ir_2(b, OP_LT, at, ir_const_i(b, DT_I64, end));
}

static void mask_stores(Func *f, uint32_t x, uint32_t part, int64_t end) {
  for (Op *op = f->body->first, *next; op; op = next) {
    next = op->next;
    if (op->code != OP_STORE) continue;
    Builder b = {.fn = f, .region = f->body, .before = op, .span = op->span};
    Value first = holds(&b, op, x, part, end);
    if (first) ir_store_where(f, op, first);
  }
}

static void split(Ctx *cx, Func *f, uint32_t x, Parts p) {
  DimTab *d = &f->mod->dims;
  int64_t all = 0;
  dim_is_const(d, f->axes.at[x].extent, &all);
  uint32_t part = ir_axis(f, "part", AX_PAR, dim_const(d, p.n));
  f->axes.at[x].extent = dim_const(d, p.size);
  split_index(f, x, part, p.size);
  retype(f);
  mask_stores(f, x, part, all < p.n * p.size ? all : 0);
  ctx_remark(cx, "%s: sums along %s in %lld parts", f->name, f->axes.at[x].name,
             (long long)p.n);
}

bool pass_split_vec(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    for (uint32_t x = 0, n = f->axes.n; x < n; x++) {
      Parts p = parts_of(f, x, opt);
      int at = p.n ? own_axis(cx, f, x) : -1;
      if (at >= 0) split(cx, f, (uint32_t)at, p);
    }
  }
  return true;
}
