// materialize: operands of products that are computed of a key, or of a row,
// are made in a phase of their own, once, and not by every task that reads
// them.
//
//   before  func @p(%K, ..) { %y = cast(mul(cast(load(%K, %b, %g, %k, %d)), ..))
//                             %s = dot(%x, %y) .. }
//   after   func @p.made(%K, .., %y.made: tensor<bf16[B, G, Sk, 64]> shared)
//               axes(b par B, h par G, k par Sk, d vec 64) {
//             store(%y.made, %y, %b, %h, %k, %d) }
//           func @p(.., %y.made shared) { %y = load(%y.made, %b, %g, %k, %d)
//                                         %s = dot(%x, %y) .. }
//
// The program then copies tiles as they are: a hardware's fast way for norms
// and rotations of queries and keys, and for keys in pages. Values of keys
// that no row sees are zeros in the copy, so that padded keys need no cleaning
// in each task; without TMA copies are cleaned on their way to shared memory,
// and only what is computed is made. Elsewhere 8-bit floats become 16-bit ones,
// exactly, but for those of products that matrix units make of bytes
// (passes/support/bytes.c).
//
// What is made so is what costs more to make again at each use than to store
// and to read (materialize_cost.c), and what there is room for: copies take at
// most a share of the bytes that the program's tensors have
// (PassOpt.workspace), those first that save most for their bytes. Where rows
// are few (PassOpt.decode) each key is read once: operands stay in place.
// Functions of positions, as rotations have them, are the same for all heads;
// they are tables, by the same comparison, of operands in place, sums of rows
// and outputs too. Kernels of one program share what they make
// (materialize_share.c). Level attn, behind inline and canon. Tests:
// test/passes/materialize.
#include "passes/attn/materialize.h"

#include "ir/facts.h"
#include "ir/target.h"
#include "passes/support/bytes.h"
#include "passes/support/cost.h"
#include "passes/support/groups.h"
#include "passes/support/lane.h"

// A phase being written.
typedef struct Phase {
  const Ahead *a;
  Builder b;
  ValueMap map;
  uint32_t axis[64];  // of f: in the phase
  bool tables;        // there are some to read
} Phase;

static uint64_t bit(uint32_t axis) {
  return (uint64_t)1 << axis;
}

static AxisRole role_of(const Ahead *a, uint32_t axis) {
  return a->f->axes.at[axis].role;
}

// ---------------------------------------------------------------- sources
// The sum over a vector is part of a row; a sum over keys is not.
static bool within_row(const Ahead *a, const Op *op) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  for (uint32_t i = 0; i < over->n; i++)
    if (role_of(a, (uint32_t)over->list[i]) != AX_VEC) return false;
  return true;
}

// Of two vectors of one row, as the square of its length is: no product of
// matrices.
bool materialize_is_inner(const Ahead *a, const Op *op) {
  if (op->code != OP_DOT || op->nargs != 2 || !within_row(a, op)) return false;
  const Type *x = ir_type(a->f, op->args[0]), *y = ir_type(a->f, op->args[1]);
  if (x->n != y->n) return false;
  for (uint32_t i = 0; i < x->n; i++)
    if (!type_has_axis(y, x->axis[i])) return false;
  return true;
}

static bool can_repeat(const Ahead *a, const Op *op) {
  return op->code == OP_REDUCE
             ? within_row(a, op)
             : materialize_is_inner(a, op) || outline_can_repeat(op);
}

// What phases in front have made is there too.
static bool is_input(const Func *f, Value v) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == v && f->params.at[i].role == PR_SHARED)
      return true;
  return outline_is_input(f, v);
}

// Adds what v is made of. False: of more than inputs and coordinates.
static bool gather(const Ahead *a, Value v, From *from, Map *seen) {
  const Op *op = ir_def(a->f, v);
  uint64_t known;
  uint32_t axis;
  if (map_get(seen, v, &known)) return true;
  map_put(seen, v, 1);
  if (!op) return is_input(a->f, v);
  if (!can_repeat(a, op)) return false;
  Dim size;
  if (group_of(a->f, v, &axis, &size) && !from->group[axis]) {
    from->grouped |= bit(axis);
    from->group[axis] = v;
    return true;
  }
  if (op->code == OP_LOAD && op->nargs - 1 > from->rank)
    from->rank = op->nargs - 1;
  if (op->code == OP_INDEX)
    from->plain |= bit((uint32_t)ir_attr_i(op, AT_AXIS, 0));
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!gather(a, op->args[i], from, seen)) return false;
  return true;
}

// Axes that are summed inside v are none of v's.
static uint64_t summed(const Ahead *a, Value v) {
  const Type *t = ir_type(a->f, v);
  uint64_t axes = 0;
  for (uint32_t i = 0; t->kind == TK_ELEM && i < a->f->axes.n; i++)
    if (role_of(a, i) == AX_VEC && !type_has_axis(t, i)) axes |= bit(i);
  return axes;
}

bool materialize_sources(const Ahead *a, Value v, From *from) {
  Map seen = {.arena = &a->cx->scratch};
  *from = (From){0};
  if (!gather(a, v, from, &seen)) return false;
  from->plain &= ~summed(a, v);
  from->grouped &= ~from->plain;
  return true;
}

// ---------------------------------------------------------------- masks
// Calls for each condition of the keys of that axis.
typedef bool CondFn(Ahead *a, Value cond, Made *m, void *data);

static bool each_part(Ahead *a, Value v, Made *m, CondFn *fn, void *data) {
  const Op *op = ir_def(a->f, v);
  if (op && op->code == OP_AND)
    return each_part(a, op->args[0], m, fn, data) &&
           each_part(a, op->args[1], m, fn, data);
  return fn(a, v, m, data);
}

static bool each_condition(Ahead *a, Made *m, CondFn *fn, void *data) {
  for (const Op *op = a->f->body->first; op; op = op->next)
    if (op->code == OP_DOMAIN &&
        ir_attr_i(op, AT_AXIS, -1) == (int64_t)m->row &&
        !each_part(a, op->args[0], m, fn, data))
      return false;
  return true;
}

// Excludes keys for all rows, of those that a copy has.
static bool excludes(const Ahead *a, Value cond, const Made *m) {
  const Type *t = ir_type(a->f, cond);
  return type_has_axis(t, m->row) && !type_has_axis(t, a->lane) &&
         !materialize_ends(a, m, cond);
}

static bool see_excluded(Ahead *a, Value cond, Made *m, void *data) {
  bool *some = data;
  *some |= excludes(a, cond, m);
  return true;
}

// Can the phase see which keys are excluded?
static bool can_clean(Ahead *a, Value cond, Made *m, void *data) {
  From c;
  (void)data;
  if (!excludes(a, cond, m)) return true;
  if (!materialize_sources(a, cond, &c)) return false;
  uint64_t all = m->from.plain | m->from.grouped;
  return !((c.plain | c.grouped) & ~all) && !(c.plain & m->from.grouped) &&
         !(c.grouped & m->from.plain);
}

// ---------------------------------------------------------------- operands
// A coordinate plus what does not vary along the tile.
static bool steps_by_one(const Ahead *a, Value idx, const Made *m) {
  const Op *op = ir_def(a->f, idx);
  const Type *t = ir_type(a->f, idx);
  bool row = type_has_axis(t, m->row), vec = type_has_axis(t, m->vec);
  if (!row && !vec) return true;
  if (!op || (row && vec)) return false;
  if (op->code == OP_INDEX) return true;
  if (op->code != OP_ADD) return false;
  uint32_t axis = row ? m->row : m->vec;
  bool x = type_has_axis(ir_type(a->f, op->args[0]), axis);
  bool y = type_has_axis(ir_type(a->f, op->args[1]), axis);
  return x != y && steps_by_one(a, op->args[!x], m);
}

// x, where v is x or, if a scalar says so, its negative.
static Value unflipped(const Ahead *a, Value v) {
  const Op *op = ir_def(a->f, v);
  const Op *neg =
      op && op->code == OP_SELECT ? ir_def(a->f, op->args[1]) : NULL;
  bool flip = neg && neg->code == OP_NEG && neg->args[0] == op->args[2] &&
              !ir_type(a->f, op->args[0])->n;
  return flip ? op->args[2] : v;
}

// A box of its tensor.
static bool is_copy(const Ahead *a, const Made *m) {
  const Op *op = ir_def(a->f, unflipped(a, m->v));
  if (!op || op->code != OP_LOAD) return false;
  for (uint32_t i = 1; i < op->nargs; i++)
    if (!steps_by_one(a, op->args[i], m)) return false;
  return true;
}

// Copies of wider operands would be no boxes of what matrix units take: only
// what is computed is made of them.
// Row and vector of v, which is a multiple of 16 bytes long. Of axes of keys
// the last is walked innermost: its are the rows of tiles, as queries of the
// heads that share keys.
static bool find_axes(const Ahead *a, Made *m) {
  const Type *t = ir_type(a->f, m->v);
  uint32_t rows = 0, vecs = 0;
  int64_t n = 0;
  for (uint32_t i = 0; i < t->n; i++) {
    AxisRole r = role_of(a, t->axis[i]);
    bool inside = r == AX_KEY && rows && role_of(a, m->row) == AX_KEY;
    if (r == AX_VEC) m->vec = t->axis[i], vecs++;
    else if (r != AX_PAR || t->axis[i] == a->lane)
      m->row = t->axis[i], rows += !inside;
  }
  return rows == 1 && vecs == 1 && role_of(a, m->row) != AX_STEP &&
         (dtype_is_float16(t->dtype) || t->dtype == DT_F32) &&
         dim_is_const(&a->f->mod->dims, a->f->axes.at[m->vec].extent, &n) &&
         n % 8 == 0;
}

bool materialize_cleans(Ahead *a, Made *m) {
  bool some = false;
  if (role_of(a, m->row) == AX_KEY && !m->table)
    each_condition(a, m, see_excluded, &some);
  return some;
}

static bool sums_keys(const Ahead *a, const Op *dot) {
  const IrAttr *over = ir_attr(dot, AT_OVER);
  for (uint32_t i = 0; i < over->n; i++)
    if (role_of(a, (uint32_t)over->list[i]) == AX_KEY) return true;
  return false;
}

bool materialize_is_wanted(Ahead *a, const Op *dot, Made *m) {
  bool some = false;
  if (!find_axes(a, m) || !materialize_sources(a, m->v, &m->from) ||
      !materialize_packed(a, m))
    return false;
  if (role_of(a, m->row) == AX_KEY) each_condition(a, m, see_excluded, &some);
  const Op *op = ir_def(a->f, m->v);
  bool packed = op->code == OP_LOAD && lane_packed(a->f, op, m->row);
  bool copies = a->cleans && dtype_is_float16(ir_type(a->f, m->v)->dtype);
  if (is_copy(a, m) && (!copies || packed || !some || !sums_keys(a, dot)))
    return false;
  uint64_t tile = bit(m->row) | bit(m->vec);
  if ((m->from.plain & tile) != tile || packed ||
      (some && !each_condition(a, m, can_clean, NULL)))
    return false;
  m->gain = materialize_gain(a, m);
  return m->gain > 0;
}

static const char *name_of(const Func *f, const Made *m) {
  Value v = m->v;
  const Op *op = ir_def(f, v);
  while (op && !ir_info(f, v)->hint &&
         (op->code == OP_CAST || op->code == OP_LOAD)) {
    v = op->args[0];
    op = ir_def(f, v);
  }
  if (ir_info(f, v)->hint) return ir_info(f, v)->hint;
  return m->table ? op_info(op->code)->name : "operand";
}

static bool same_axes(const Made *x, const Made *y) {
  if (x->table != y->table || x->cols != y->cols ||
      x->packed.place != y->packed.place)
    return false;
  uint64_t p = x->from.plain & ~bit(x->vec), q = y->from.plain & ~bit(y->vec);
  return x->row == y->row && p == q && x->from.grouped == y->from.grouped;
}

const Made *materialize_made(const Ahead *a, Value v, const Read **read) {
  for (uint32_t i = 0; i < a->n; i++)
    for (uint32_t k = 0; k < a->made[i].nreads; k++) {
      *read = &a->made[i].read[k];
      if ((*read)->v == v) return &a->made[i];
    }
  return NULL;
}

static bool is_made(const Ahead *a, Value v) {
  const Read *read;
  return materialize_made(a, v, &read);
}

bool materialize_add(Ahead *a, const Made *m) {
  if (a->n == MAX_MADE) return false;
  a->made[a->n++] = *m;
  return true;
}

static bool add_made(Ahead *a, Made m) {
  m.read[0] = (Read){m.v, m.row, 0};
  m.nreads = 1;
  return materialize_add(a, &m);
}

// The first of the first n with m's axes, or n.
static uint32_t phase_of(const Ahead *a, const Made *m, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (same_axes(&a->made[i], m)) return i;
  return n;
}

static bool has_phase(const Ahead *a, const bool *taken, const Made *m) {
  for (uint32_t i = 0; i < a->n; i++)
    if (taken[i] && same_axes(&a->made[i], m)) return true;
  return false;
}

// Does what has m's axes save more than a launch?
static bool pays(const Ahead *a, const Made *m) {
  double gain = 0;
  for (uint32_t i = 0; i < a->n; i++)
    if (same_axes(&a->made[i], m)) gain += a->made[i].gain;
  return gain > materialize_launch();
}

// The candidate that saves most for its bytes, or n.
static uint32_t best_of(const Ahead *a, const bool *seen) {
  uint32_t best = a->n;
  double most = 0;
  for (uint32_t i = 0; i < a->n; i++) {
    double x = a->made[i].gain / materialize_bytes(a, &a->made[i]);
    if (seen[i] || (best < a->n && x <= most)) continue;
    best = i;
    most = x;
  }
  return best;
}

// Keeps those from `first` on that there is room for, and for their phases.
static void choose(Ahead *a, uint32_t first) {
  bool taken[MAX_MADE] = {false}, seen[MAX_MADE] = {false};
  uint32_t n = first;
  for (uint32_t i = 0; i < first; i++) taken[i] = seen[i] = true;
  for (uint32_t i; (i = best_of(a, seen)) < a->n;) {
    const Made *m = &a->made[i];
    double bytes = materialize_bytes(a, m);
    bool known = has_phase(a, taken, m), worth = pays(a, m);
    seen[i] = true;
    uint32_t phases = known ? 0 : 1 + (m->packed.place != 0);
    taken[i] = worth && bytes <= a->room && a->phases + phases <= MAX_FRONT;
    if (taken[i]) a->room -= bytes;
    a->phases += taken[i] * phases;
    if (worth && !taken[i])
      ctx_remark(a->cx, "%s: %s is computed in place: there is no room for it",
                 a->f->name, name_of(a->f, m));
  }
  for (uint32_t i = first; i < a->n; i++)
    if (taken[i]) a->made[n++] = a->made[i];
  a->n = n;
  for (uint32_t i = first; i < n; i++)
    a->made[i].phase = phase_of(a, &a->made[i], i);
}

// The cast of v to type t that is made already; 0: none.
static Value known_cast(const Ahead *a, Value v, DType t) {
  for (uint32_t i = 0; i < a->n; i++) {
    const Op *op = ir_def(a->f, a->made[i].v);
    if (op->code == OP_CAST && op->args[0] == v &&
        ir_type(a->f, a->made[i].v)->dtype == t)
      return a->made[i].v;
  }
  return 0;
}

// An operand of 8-bit floats is made as 16 bits, which hold it exactly.
static void add_widened(Ahead *a, Op *dot, uint32_t side) {
  Value v = dot->args[side];
  Op *def = ir_def(a->f, v);
  DType other = ir_type(a->f, dot->args[!side])->dtype;
  DType t = other == DT_F16 ? DT_F16 : DT_BF16;
  Value known = known_cast(a, v, t);
  if (known) dot->args[side] = known;
  if (known || !def) return;
  Builder b = outline_behind(a->f, v);
  Made m = {.v = ir_cast(&b, t, v)};
  if (materialize_is_wanted(a, dot, &m) && add_made(a, m))
    dot->args[side] = m.v;
  else ir_erase(ir_def(a->f, m.v));
}

static void add_operand(Ahead *a, Op *dot, uint32_t side) {
  Made m = {.v = dot->args[side]};
  DType t = ir_type(a->f, m.v)->dtype;
  bool eight = dtype_is_float(t) && dtype_size(t) == 1;
  if (bytes_multiply(a->f, dot, a->gpu)) return;
  if (eight && a->cleans && !a->once) add_widened(a, dot, side);
  else if (!is_made(a, m.v) && materialize_is_wanted(a, dot, &m))
    add_made(a, m);
}

// Of an operand that is computed in place, for each use.
static void tables_in_place(Ahead *a, Value v) {
  Made m = {.v = v, .again = true};
  Map seen = {.arena = &a->cx->scratch};
  if (!is_made(a, v) && find_axes(a, &m) && materialize_sources(a, v, &m.from))
    materialize_tables(a, &m, v, &seen);
}

// Sums of a row and what is stored are made of tables too.
static void tables_of(Ahead *a, const Op *op) {
  uint32_t at = op->code == OP_STORE ? 1 : 0;
  uint32_t n = op->code == OP_DOT                              ? 2
               : op->code == OP_REDUCE || op->code == OP_STORE ? 1
                                                               : 0;
  for (uint32_t i = 0; i < n; i++) tables_in_place(a, op->args[at + i]);
}

static bool find_operands(Ahead *a) {
  for (const Op *op = a->f->body->first; op; op = op->next)
    if (op->nregions || op->code == OP_CALL) return false;
  for (Op *op = a->f->body->first; op && a->lanes; op = op->next)
    for (uint32_t i = 0; op->code == OP_DOT && i < 2; i++)
      if (!materialize_is_inner(a, op)) add_operand(a, op, i);
  choose(a, 0);
  uint32_t n = a->n;
  for (uint32_t i = 0; i < n; i++) {
    Map seen = {.arena = &a->cx->scratch};
    materialize_tables(a, &a->made[i], a->made[i].v, &seen);
  }
  for (Op *op = a->f->body->first; op; op = op->next) tables_of(a, op);
  choose(a, n);
  return a->n > 0;
}

// ---------------------------------------------------------------- the phase
Dim materialize_extent(const Ahead *a, const Made *m, uint32_t axis) {
  DimTab *d = &a->f->mod->dims;
  Dim e = a->f->axes.at[axis].extent, size;
  uint32_t same;
  if (axis == m->vec && m->cols) return dim_const(d, m->cols);
  if (!(m->from.grouped & bit(axis))) return e;
  bool ok = group_of(a->f, m->from.group[axis], &same, &size);
  return ok ? group_count(d, e, size) : e;
}

// Axes of the copy in memory: tasks, row, vector.
uint32_t materialize_axes(const Ahead *a, const Made *m, uint32_t *out) {
  uint32_t n = 0;
  uint64_t all = m->from.plain | m->from.grouped;
  for (uint32_t i = 0; i < a->f->axes.n; i++)
    if (all & bit(i) && i != m->row && i != m->vec) out[n++] = i;
  out[n++] = m->row;
  out[n++] = m->vec;
  return n;
}

bool materialize_type(const Ahead *a, const Made *m, Type *t) {
  uint32_t axis[64];
  Dim shape[MAX_AXES];
  uint32_t all = materialize_axes(a, m, axis), n = 0;
  if (all > MAX_AXES) return false;
  for (uint32_t i = 0; i < all; i++) {
    bool row = m->packed.place && axis[i] == m->row;
    if (m->packed.place && axis[i] == m->packed.batch) continue;
    shape[n++] = row ? m->packed.total : materialize_extent(a, m, axis[i]);
  }
  *t = type_tensor(ir_type(a->f, m->v)->dtype, n, shape);
  return true;
}

static bool add_tensor(Ahead *a, Made *m) {
  Type t;
  if (!materialize_type(a, m, &t)) return false;
  m->tensor = outline_tensor(a->f, name_of(a->f, m), "made", t);
  return true;
}

// The coordinates of the copy, in the phase or in the program: those of a read,
// or of what is stored.
static uint32_t coordinates(const Ahead *a, const Made *m, const Read *read,
                            Builder *b, Phase *p, Value *out) {
  uint32_t axis[64], naxes = materialize_axes(a, m, axis), n = 0;
  for (uint32_t i = 0; i < naxes; i++) {
    bool packed = m->packed.place && axis[i] == m->row;
    bool known = packed || m->from.grouped & bit(axis[i]);
    Value v = packed ? m->packed.place : m->from.group[axis[i]];
    uint32_t at = read && axis[i] == m->row ? read->row : axis[i];
    if (m->packed.place && axis[i] == m->packed.batch) continue;
    out[n++] = !known ? ir_index(b, p ? p->axis[at] : at)
               : p    ? vmap_get(&p->map, v)
                      : v;
  }
  int64_t all;
  Dim e = a->f->axes.at[m->vec].extent;
  bool part = read && m->cols &&
              !(dim_is_const(&a->f->mod->dims, e, &all) && all == m->cols);
  if (part)
    out[n - 1] = ir_2(b, OP_MOD, out[n - 1], ir_const_i(b, DT_I64, m->cols));
  return n;
}

// An inner product as a sum: the phase then has no products of matrices.
static void copy_inner(Phase *p, const Op *op) {
  Builder *b = &p->b;
  uint32_t over[MAX_AXES];
  const IrAttr *at = ir_attr(op, AT_OVER);
  DType t = ir_type(p->a->f, op->res[0])->dtype;
  for (uint32_t i = 0; i < at->n; i++) over[i] = p->axis[at->list[i]];
  Value x = ir_cast(b, t, vmap_get(&p->map, op->args[0]));
  Value y = ir_cast(b, t, vmap_get(&p->map, op->args[1]));
  Value sum = ir_reduce(b, RK_SUM, ir_2(b, OP_MUL, x, y), over, at->n);
  vmap_put(&p->map, op->res[0], sum);
}

static Value copy(Phase *p, Value v) {
  if (v < p->map.n && p->map.to[v]) return p->map.to[v];
  const Op *op = ir_def(p->a->f, v);
  const Read *read = NULL;
  const Made *table = p->tables ? materialize_made(p->a, v, &read) : NULL;
  if (table && table->table) {
    Value at[MAX_AXES];
    uint32_t n = coordinates(p->a, table, read, &p->b, p, at);
    Value x = ir_load(&p->b, vmap_get(&p->map, table->tensor), at, n);
    vmap_put(&p->map, v, x);
    return x;
  }
  for (uint32_t i = 0; i < op->nargs; i++)
    if (ir_type(p->a->f, op->args[i])->kind == TK_ELEM) copy(p, op->args[i]);
  p->b.span = op->span;
  if (materialize_is_inner(p->a, op)) copy_inner(p, op);
  else ir_clone(&p->b, p->a->f, op, &p->map, p->axis);
  return vmap_get(&p->map, v);
}

typedef struct Keep {
  Phase *p;
  Value v;
} Keep;

static bool keep_seen(Ahead *a, Value cond, Made *m, void *data) {
  Keep *k = data;
  if (!excludes(a, cond, m)) return true;
  Builder *b = &k->p->b;
  Value c = copy(k->p, cond);
  Value none = ir_const_f(b, ir_type(b->fn, k->v)->dtype, 0);
  k->v = ir_3(b, OP_SELECT, c, k->v, none);
  return true;
}

static void store_copy(Ahead *a, Phase *p, Made *m) {
  Keep k = {p, copy(p, m->v)};
  if (role_of(a, m->row) == AX_KEY && !m->table)
    each_condition(a, m, keep_seen, &k);
  Value at[MAX_AXES];
  uint32_t n = coordinates(a, m, NULL, &p->b, p, at);
  ir_store(&p->b, vmap_get(&p->map, m->tensor), k.v, at, n);
}

static void open_phase(Phase *p, const Made *m, Func *g) {
  const Func *f = p->a->f;
  uint32_t axis[64], n = materialize_axes(p->a, m, axis);
  p->map = (ValueMap){.arena = f->mod->arena};
  p->b = (Builder){.fn = g, .region = g->body, .span = f->span};
  outline_params(&p->map, f, g);
  for (uint32_t i = 0; i + 1 < n; i++)
    p->axis[axis[i]] = ir_axis(g, f->axes.at[axis[i]].name, AX_PAR,
                               materialize_extent(p->a, m, axis[i]));
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role == AX_VEC)
      p->axis[i] = ir_axis(g, f->axes.at[i].name, AX_VEC,
                           materialize_extent(p->a, m, i));
  for (uint32_t i = 0; i + 1 < n; i++)
    if (m->from.grouped & bit(axis[i]))
      vmap_put(&p->map, m->from.group[axis[i]],
               ir_index(&p->b, p->axis[axis[i]]));
}

static Func *make_phase(Ahead *a, uint32_t first) {
  Func *g = outline_func(a->f, "made", first, false);
  Phase p = {.a = a, .tables = !a->made[first].table};
  open_phase(&p, &a->made[first], g);
  materialize_open(&a->made[first], &p.b, &p.map, p.axis);
  for (uint32_t i = first; i < a->n; i++) {
    Made *x = &a->made[i];
    if (x->phase != first || x->shared) continue;
    // Equal groups may have been told from equal values.
    for (uint32_t k = 0; k < a->f->axes.n; k++)
      if (x->from.grouped & bit(k))
        vmap_put(&p.map, x->from.group[k], ir_index(&p.b, p.axis[k]));
    store_copy(a, &p, x);
  }
  return g;
}

// The program reads the copy.
static void read_copy(Ahead *a, const Made *m, const Read *read) {
  Builder b = outline_behind(a->f, read->v);
  Value at[MAX_AXES];
  uint32_t n = coordinates(a, m, read, &b, NULL, at);
  Value x = ir_load(&b, m->tensor, at, n);
  ir_replace_uses(a->f, read->v, x);
}

static void read_copies(Ahead *a, const Made *m) {
  for (uint32_t i = 0; i < m->nreads; i++) read_copy(a, m, &m->read[i]);
  ctx_remark(a->cx, "%s: %s%s is made ahead, once, in memory%s", a->f->name,
             m->table ? "a table of " : "", name_of(a->f, m),
             m->shared ? ", by a kernel in front" : "");
}

// Is there something that the phase makes, which no phase in front has?
static bool is_new(const Ahead *a, uint32_t phase) {
  bool some = false;
  for (uint32_t i = phase; i < a->n; i++)
    some |= a->made[i].phase == phase && !a->made[i].shared;
  return some;
}

// Returns the number of phases that it puts in front of f.
static uint32_t run(Ctx *cx, Func *f, const PassOpt *opt) {
  // Where copies go through registers they are cleaned there.
  Ahead a = {.cx = cx,
             .f = f,
             .phases = outline_beside(f),
             .gpu = &opt->target->gpu,
             .cleans = opt->target->gpu.hopper,
             .once = opt->decode};
  uint32_t batch;
  int lane = f->axes.n < 64 && !lane_lacks(f, &batch) ? lane_axis(f) : -1;
  a.lane = (uint32_t)lane;
  a.lanes = lane >= 0;
  materialize_sizes(&a);
  a.room = materialize_room(&a, opt->workspace);
  if (a.lanes && a.cleans && !a.once) materialize_terms(&a);
  bool some = f->axes.n < 64 && find_operands(&a);
  uint32_t phases = 0;
  if (some) materialize_share(&a);
  for (uint32_t i = 0; some && i < a.n; i++)
    if (!a.made[i].tensor && !add_tensor(&a, &a.made[i])) a.n = i;
  for (int table = 1; table >= 0; table--)
    for (uint32_t i = 0; some && i < a.n; i++)
      if (a.made[i].phase == i && a.made[i].table == table && is_new(&a, i)) {
        outline_put(make_phase(&a, i), f);
        phases++;
        if (!a.made[i].packed.place) continue;
        outline_put(materialize_rest(&a, i), f);
        phases++;
      }
  for (uint32_t i = 0; some && i < a.n; i++) read_copies(&a, &a.made[i]);
  return phases;
}

bool pass_materialize(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++) i += run(cx, m->funcs.at[i], opt);
  return true;
}
