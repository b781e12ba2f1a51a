// bias_table: what scores have for the distance of a row and a key is made once
// for each distance, in a phase in front of the program, and read from memory.
//
//   before  func @p(.., %table) {
//             %n = sub(%q, %k)      %at = .. log(cast(max(%n, %c))) ..
//             %t = load(%table, %h, %at) : f32{h,q,k}    %s = add(.., %t) }
//   after   func @p.gaps(.., %t.gaps: tensor<f32[H, R * 64]> shared)
//               axes(h par H, gap par R, of vec 64) {
//             %i = add(mul(%gap, 64), %of)     %n = sub(sub(%i, %first), 0)
//             .. store(%t.gaps, %t, %h, %i) }
//           func @p(.., %t.gaps) {
//             %t = load(%t.gaps, %h, add(sub(%q, %k), %first)) {loose} .. }
//
// A tile of 64 x 64 pairs has 127 distances, a program of S rows and keys 2 S:
// what has logarithms or is looked up in a table takes most of a program's time
// and code if each pair makes it. Registers of a thread are a constant number
// of distances group_bounds, so that a pair costs a load without address
// arithmetic. Distances that tiles have beyond the axes' ends are made too.
// The same for rows of a table that a product takes for a function of the
// distance, as where all beyond some share a row: 16-bit vectors, of which
// band_mma then makes a band of matrices (NVIDIA).
// A distance may be two: of quotients and of remainders by one number, as of
// the rows and columns of an image that positions count (bias_digits.c). What a
// mask says of these is in the table too: a number that hides the pair. Left
// are terms that are cheaper (a slope times the distance; decays, which are
// factors of rows and columns). Not where rows are few (PassOpt.decode). Level
// attn, behind materialize. Run cse, dce afterwards. Tests:
// test/passes/bias_table.
#include "ir/facts.h"
#include "passes/attn/bias_table.h"
#include "passes/pass.h"
#include "passes/support/band.h"
#include "passes/support/cost.h"
#include "passes/support/hides.h"
#include "passes/support/lane.h"
#include "passes/support/outline.h"

// What a value is made of, beside inputs.
typedef enum Kind { UNKNOWN, COMMON, GAP, OTHER } Kind;

typedef struct Gaps {
  Ctx *cx;
  Func *f;
  bool lacks;         // no axis makes products of matrices
  uint32_t row, key;  // axes
  Value by;           // distances are of quotients and remainders by it, or 0
  Kind *kind;         // by value
  const Target *target;
  Value root;   // that is made of distances alone
  Value hides;  // the domain's part that is too, or 0
  Value tensor;
  Dim parts;  // vectors of distances
} Gaps;

// A phase being written.
typedef struct Phase {
  const Gaps *g;
  Builder b;
  ValueMap map;
  uint32_t axis[64];  // of f: in the phase
  Value at;           // number of the distance
  Apart gap;          // what it is
} Phase;

// ---------------------------------------------------------------- pattern
static Kind kind_of(Gaps *g, Value v);

static bool has_row(const Gaps *g, Value v) {
  return type_has_axis(ir_type(g->f, v), g->row);
}

static bool has_key(const Gaps *g, Value v) {
  return type_has_axis(ir_type(g->f, v), g->key);
}

// How often a row's or a key's coordinate, quotient and remainder are in a sum.
typedef struct Times {
  int row[DIGITS], key[DIGITS];
} Times;

// The coordinate of row or key that v is, its quotient or its remainder by
// g->by, or -1.
static int digit_of(const Gaps *g, Value v) {
  const Op *op = ir_def(g->f, v);
  if (!op || op->code == OP_INDEX) return op ? DIGIT_ALL : -1;
  if ((op->code != OP_FLOORDIV && op->code != OP_MOD) || !g->by ||
      op->args[1] != g->by)
    return -1;
  const Op *of = ir_def(g->f, op->args[0]);
  if (!of || of->code != OP_INDEX) return -1;
  return op->code == OP_MOD ? DIGIT_REST : DIGIT_QUOT;
}

// v is such coordinates, added and subtracted, and what does not vary with row
// and key.
static bool is_linear(Gaps *g, Value v, Times *n) {
  const Op *op = ir_def(g->f, v);
  Times x, y;
  *n = (Times){{0}, {0}};
  if (!has_row(g, v) && !has_key(g, v)) return kind_of(g, v) == COMMON;
  if (!op || dtype_is_float(ir_type(g->f, v)->dtype)) return false;
  int digit = digit_of(g, v);
  if (digit >= 0) {
    (has_row(g, v) ? n->row : n->key)[digit] = 1;
    return true;
  }
  if ((op->code != OP_ADD && op->code != OP_SUB) ||
      !is_linear(g, op->args[0], &x) || !is_linear(g, op->args[1], &y))
    return false;
  int sign = op->code == OP_ADD ? 1 : -1;
  for (uint32_t i = 0; i < DIGITS; i++) {
    n->row[i] = x.row[i] + sign * y.row[i];
    n->key[i] = x.key[i] + sign * y.key[i];
  }
  return true;
}

static bool is_distance(Gaps *g, Value v, bool *linear) {
  Times n;
  *linear = is_linear(g, v, &n);
  for (uint32_t i = 0; *linear && i < DIGITS; i++)
    if (n.row[i] + n.key[i]) return false;
  return *linear;
}

static bool is_vec(const Gaps *g, uint32_t axis) {
  return g->f->axes.at[axis].role == AX_VEC;
}

static bool is_plain(const Gaps *g, const Type *t) {
  for (uint32_t i = 0; i < t->n; i++)
    if (g->f->axes.at[t->axis[i]].role != AX_PAR && !is_vec(g, t->axis[i]) &&
        t->axis[i] != g->key)
      return false;
  return true;
}

static uint32_t count_vec(const Gaps *g, const Type *t) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->n; i++) n += is_vec(g, t->axis[i]);
  return n;
}

static Kind find_kind(Gaps *g, Value v) {
  const Op *op = ir_def(g->f, v);
  const Type *t = ir_type(g->f, v);
  bool both = has_row(g, v) && has_key(g, v), linear;
  if (!op) return outline_is_input(g->f, v) ? COMMON : OTHER;
  if (both && is_distance(g, v, &linear)) return GAP;
  if (both && linear) return OTHER;
  if (!outline_can_repeat(op) || !is_plain(g, t) ||
      both != (has_row(g, v) || has_key(g, v)))
    return OTHER;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (kind_of(g, op->args[i]) == OTHER) return OTHER;
  return both ? GAP : COMMON;
}

static Kind kind_of(Gaps *g, Value v) {
  if (!g->kind[v]) g->kind[v] = find_kind(g, v);
  return g->kind[v];
}

// Is v looked up, or a function that is no power, of a distance?
static bool is_dear(Gaps *g, Value v) {
  const Op *op = ir_def(g->f, v);
  if (!op || !has_row(g, v) || !has_key(g, v)) return false;
  if (op->code == OP_LOAD || op_facts(op->code)->class == OC_FUNCTION)
    return true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_dear(g, op->args[i])) return true;
  return false;
}

// A row of a table of 16-bit numbers, which a product over them takes for each
// distance, by an index that is none.
static bool is_row_of_table(Gaps *g, const Op *op, Value v) {
  const Op *load = ir_def(g->f, v);
  const Type *t = ir_type(g->f, v);
  Band b;
  if (op->code != OP_DOT || !load || load->code != OP_LOAD || g->by ||
      !dtype_is_float16(t->dtype) || count_vec(g, t) != 1 ||
      band_of(g->f, op, &b) || g->target->kind != TARGET_GPU ||
      g->target->gpu.vendor == VENDOR_AMD)
    return false;
  const Type *x = ir_type(g->f, op->args[op->args[0] == v]);
  return type_has_axis(x, g->row) != type_has_axis(x, g->key) &&
         dtype_is_float16(x->dtype);
}

static bool is_number(const Gaps *g, const Type *t) {
  return t->dtype == DT_F32 && !count_vec(g, t) && !g->lacks;
}

static void find_root(void *data, Op *op) {
  Gaps *g = data;
  bool inside = op->nres == 1 && ir_type(g->f, op->res[0])->kind == TK_ELEM &&
                kind_of(g, op->res[0]) == GAP;
  for (uint32_t i = 0; i < op->nargs && !g->root && !inside; i++) {
    Value v = op->args[i];
    const Type *t = ir_type(g->f, v);
    if (t->kind == TK_ELEM && has_row(g, v) && has_key(g, v) &&
        (is_number(g, t) || is_row_of_table(g, op, v)) && t->n <= MAX_AXES &&
        kind_of(g, v) == GAP && is_dear(g, v))
      g->root = v;
  }
}

// ---------------------------------------------------------------- the mask
// Parts of the domain that are made of distances are said to be told by the
// table (passes/tile/loop.c); the others stay.
static void tell(Gaps *g, Builder *b, Value v) {
  Op *op = ir_def(g->f, v);
  if (op && op->code == OP_AND) {
    tell(g, b, op->args[0]);
    tell(g, b, op->args[1]);
  } else if (op && !ir_attr(op, AT_NOTE) && kind_of(g, v) == GAP) {
    ir_set_attr(g->f, op, attr_s(AT_NOTE, intern(&g->cx->names, HIDES_NOTE)));
    g->hides = g->hides ? ir_2(b, OP_AND, g->hides, v) : v;
  }
}

// One table tells, of two distances: one is a comparison of limits.
static void tell_mask(Gaps *g) {
  g->hides = 0;
  for (Op *op = g->f->body->first; op && g->by; op = op->next) {
    if (op->code != OP_DOMAIN || ir_attr_i(op, AT_AXIS, -1) != g->key) continue;
    Builder b = outline_behind(g->f, op->args[0]);
    tell(g, &b, op->args[0]);
  }
}

// ---------------------------------------------------------------- the phase
// Axes of the root beside row and key, in front of the distance and behind it.
static uint32_t others(const Gaps *g, uint32_t *out, bool behind) {
  const Type *t = ir_type(g->f, g->root);
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->n; i++)
    if (t->axis[i] != g->row && t->axis[i] != g->key &&
        is_vec(g, t->axis[i]) == behind)
      out[n++] = t->axis[i];
  return n;
}

// All indices of the table.
static uint32_t indices(const Gaps *g, Builder *b, const uint32_t *to, Value at,
                        Value *out) {
  uint32_t axis[MAX_AXES], n = 0;
  for (int behind = 0; behind < 2; behind++) {
    uint32_t all = others(g, axis, behind);
    if (behind) out[n++] = at;
    for (uint32_t i = 0; i < all; i++)
      out[n++] = ir_index(b, to ? to[axis[i]] : axis[i]);
  }
  return n;
}

// Keys are at 0, rows at the distance.
static Value coordinate(Phase *p, Value v) {
  int digit = digit_of(p->g, v);
  if (digit < 0) return 0;
  if (has_row(p->g, v)) return p->gap.of[digit];
  if (has_key(p->g, v)) return ir_const_i(&p->b, DT_I64, 0);
  const Op *op = ir_def(p->g->f, v);
  return digit == DIGIT_ALL
             ? ir_index(&p->b, p->axis[ir_attr_i(op, AT_AXIS, 0)])
             : 0;
}

static Value copy(Phase *p, Value v) {
  const Func *f = p->g->f;
  const Op *op = ir_def(f, v);
  if (v < p->map.n && p->map.to[v]) return p->map.to[v];
  Value args[MAX_AXES + 1] = {0}, x = coordinate(p, v);
  for (uint32_t i = 0; !x && i < op->nargs; i++) args[i] = copy(p, op->args[i]);
  p->b.span = op->span;
  if (x)
    ;
  else if (op->code == OP_LOAD)
    x = ir_load(&p->b, args[0], args + 1, op->nargs - 1);
  else
    x = ir_op(&p->b, op->code, args, op->nargs, op->attrs, op->nattrs,
              ir_type(f, v), 1, 0)
            ->res[0];
  vmap_put(&p->map, v, x);
  return x;
}

static Extents extents(const Gaps *g) {
  return (Extents){g->f->axes.at[g->row].extent, g->f->axes.at[g->key].extent};
}

static Value first_gap(const Gaps *g, Builder *b) {
  DimTab *d = &g->f->mod->dims;
  Extents e = extents(g);
  if (g->by) return ir_dim(b, bias_digits_first(d, e));
  return ir_dim(b, dim_bin(d, DIM_ADD, e.keys,
                           dim_const(d, COST_GAPS_BEYOND - 1)));
}

static void open_axes(Phase *p, Func *made, bool behind) {
  const Func *f = p->g->f;
  uint32_t axis[MAX_AXES], n = others(p->g, axis, behind);
  for (uint32_t i = 0; i < n; i++) {
    const Axis *a = &f->axes.at[axis[i]];
    p->axis[axis[i]] = ir_axis(made, a->name, a->role, a->extent);
  }
}

// Distances: vectors of them, or, where each has a vector, one by one.
static Value open_gaps(Phase *p, Func *made) {
  DimTab *d = &made->mod->dims;
  Builder *b = &p->b;
  Dim each = dim_const(d, COST_GAPS_VECTOR);
  if (count_vec(p->g, ir_type(p->g->f, p->g->root)))
    return ir_index(b, ir_axis(made, "gap", AX_PAR,
                               dim_bin(d, DIM_MUL, p->g->parts, each)));
  uint32_t gap = ir_axis(made, "gap", AX_PAR, p->g->parts);
  uint32_t of = ir_axis(made, "of", AX_VEC, each);
  Value rest = ir_index(b, of);
  Value size = ir_const_i(b, DT_I64, COST_GAPS_VECTOR);
  Value first = ir_2(b, OP_MUL, ir_index(b, gap), size);
  return ir_2(b, OP_ADD, first, rest);
}

static Value hidden(Phase *p, Value x) {
  Builder *b = &p->b;
  Value hide = ir_const_f(b, DT_F32, HIDES_PAIR);
  Value near = ir_const_f(b, DT_F32, HIDES_BESIDE);
  x = ir_3(b, OP_SELECT, ir_2(b, OP_EQ, x, hide), near, x);
  return ir_3(b, OP_SELECT, copy(p, p->g->hides), x, hide);
}

static Func *make_phase(const Gaps *g, uint32_t number) {
  Func *made = outline_func(g->f, "gaps", number, false);
  Phase p = {.g = g,
             .map = {.arena = g->f->mod->arena},
             .b = {.fn = made, .region = made->body, .span = g->f->span}};
  outline_params(&p.map, g->f, made);
  open_axes(&p, made, false);
  p.at = open_gaps(&p, made);
  open_axes(&p, made, true);
  p.gap.of[DIGIT_ALL] = ir_2(&p.b, OP_SUB, p.at, first_gap(g, &p.b));
  if (g->by)
    p.gap = bias_digits_apart(&p.b, p.gap.of[DIGIT_ALL], copy(&p, g->by),
                              extents(g));
  Value x = copy(&p, g->root), at[MAX_AXES];
  if (g->hides) x = hidden(&p, x);
  uint32_t n = indices(g, &p.b, p.axis, p.at, at);
  ir_store(&p.b, vmap_get(&p.map, g->tensor), x, at, n);
  return made;
}

// ---------------------------------------------------------------- the program
static void add_tensor(Gaps *g) {
  DimTab *d = &g->f->mod->dims;
  const Type *t = ir_type(g->f, g->root);
  uint32_t axis[MAX_AXES], rank = 0;
  Dim shape[MAX_AXES];
  Extents e = extents(g);
  Dim all = dim_bin(d, DIM_ADD, dim_bin(d, DIM_ADD, e.rows, e.keys),
                    dim_const(d, 2 * COST_GAPS_BEYOND));
  if (g->by) all = bias_digits_count(d, e);
  g->parts = dim_ceildiv(d, all, COST_GAPS_VECTOR);
  for (int behind = 0; behind < 2; behind++) {
    uint32_t n = others(g, axis, behind);
    if (behind)
      shape[rank++] =
          dim_bin(d, DIM_MUL, g->parts, dim_const(d, COST_GAPS_VECTOR));
    for (uint32_t i = 0; i < n; i++)
      shape[rank++] = g->f->axes.at[axis[i]].extent;
  }
  const char *hint = ir_info(g->f, g->root)->hint;
  g->tensor = outline_tensor(g->f, hint ? hint : "term", "gaps",
                             type_tensor(t->dtype, rank, shape));
}

static void read_table(const Gaps *g) {
  Builder b = outline_behind(g->f, g->root);
  Value at[MAX_AXES];
  Value row = ir_index(&b, g->row), key = ir_index(&b, g->key);
  if (g->by) {
    row = bias_digits_of(&b, row, g->by, extents(g));
    key = bias_digits_of(&b, key, g->by, extents(g));
  }
  Value gap = ir_2(&b, OP_SUB, row, key);
  gap = ir_2(&b, OP_ADD, gap, first_gap(g, &b));
  Value x = ir_load(&b, g->tensor, at, indices(g, &b, NULL, gap, at));
  Op *load = ir_def(g->f, x);
  if (g->by) ir_set_attr(g->f, load, attr_i(AT_INBOUNDS, 1));
  if (g->hides) ir_set_attr(g->f, load, attr_i(AT_HIDES, 1));
  if (!count_vec(g, ir_type(g->f, g->root)))
    ir_set_attr(g->f, load, attr_i(AT_LOOSE, 1));
  ir_replace_uses(g->f, g->root, x);
  ctx_remark(g->cx,
             "%s: a term of the distance is made ahead, once for each distance",
             g->f->name);
}

static bool find(Gaps *g) {
  g->kind = NEWN(&g->cx->scratch, Kind, g->f->values.n);
  g->root = 0;
  uint32_t axis;
  g->lacks = lane_lacks(g->f, &axis);
  if (g->by &&
      (ir_type(g->f, g->by)->dtype != DT_I64 || kind_of(g, g->by) != COMMON))
    return false;
  for (Op *op = g->f->body->first; op; op = op->next) find_root(g, op);
  return g->root != 0;
}

// A number that coordinates of row or key are divided by, behind the op `last`.
static Value next_divisor(Gaps *g, const Op **last) {
  const Op *op = *last ? (*last)->next : g->f->body->first;
  for (; op; op = op->next) {
    const Op *of = op->nargs ? ir_def(g->f, op->args[0]) : NULL;
    if ((op->code != OP_FLOORDIV && op->code != OP_MOD) || !of ||
        of->code != OP_INDEX || ir_type(g->f, op->args[1])->n ||
        !(has_row(g, op->args[0]) || has_key(g, op->args[0])))
      continue;
    *last = op;
    return op->args[1];
  }
  return 0;
}

static uint32_t make_tables(Gaps *g, uint32_t made) {
  while (outline_beside(g->f) < MAX_FRONT && find(g)) {
    tell_mask(g);
    add_tensor(g);
    outline_put(make_phase(g, made++), g->f);
    read_table(g);
  }
  return made;
}

// Returns the number of phases that it puts in front of f.
static uint32_t run(Ctx *cx, Func *f, const Target *target) {
  int row = f->axes.n < 64 ? lane_axis(f) : -1;
  Gaps g = {.cx = cx, .f = f, .target = target, .row = (uint32_t)row};
  uint32_t made = 0;
  for (const Op *op = f->body->first; op; op = op->next)
    if (op->nregions || op->code == OP_CALL) row = -1;
  for (uint32_t a = 0; row >= 0 && a < f->axes.n; a++) {
    if (f->axes.at[a].role != AX_KEY) continue;
    g.key = a;
    g.by = 0;
    made = make_tables(&g, made);
    const Op *at = NULL;
    while ((g.by = next_divisor(&g, &at))) made = make_tables(&g, made);
  }
  return made;
}

bool pass_bias_table(Ctx *cx, Module *m, const PassOpt *opt) {
  if (opt->decode) return true;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    i += run(cx, m->funcs.at[i], opt->target);
  return true;
}
