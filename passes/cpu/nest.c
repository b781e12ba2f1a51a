// Loops of a stage: the loop over panels, the nests inside, reductions.
//
//   for panel { for outer axes { acc = ..; for inner axes { .. } result } }
//
// A nest of one stage that has nothing to reduce has the panels innermost, so
// that memory is walked along rows.
#include "passes/cpu/cpu.h"
#include "passes/support/cost.h"

#include <assert.h>

typedef struct Nest {
  Assign *as;
  Root **r;
  uint32_t n;
  uint32_t axis[64];  // loops, outermost first
  Dim size[64];
  uint32_t naxes, nouter;  // the first nouter ones are not reduced
  bool reverse;
  bool panels;  // the loop over panels follows the outer axes
  int pair;     // axis walked in steps of two
  Value even;   // its coordinate, even; not a point to hoist to
  bool odd;     // its extent may be odd
  Value *acc;   // cols accumulators for each reducing root
  uint32_t nacc;
} Nest;

// ---------------------------------------------------------------- lanes
static bool over_lanes(const Root *r) {
  return r->lane >= 0 && r->inner >> r->lane & 1;
}

static Dim npanels(Assign *as) {
  return dim_ceildiv(&as->m->dims, as->pt.lane_size, as->pt.width);
}

static bool one_panel(Assign *as) {
  int64_t n;
  return as->pt.lane >= 0 && dim_known(&as->m->dims, npanels(as), &n) && n == 1;
}

Value cpu_inside_axis(Assign *as, Dim tile, int64_t unit) {
  DimTab *d = &as->m->dims;
  uint32_t rows = (uint32_t)(as->par < 0 ? as->walked : as->par);
  Dim extent = as->f->axes.at[rows].extent;
  int64_t n;
  if (!dim_known(d, tile, &n) || dim_divisor(d, extent) % n == 0) return 0;
  for (uint32_t i = 0; i < as->nends; i++)
    if (as->ends[i].unit == unit) return as->ends[i].v;
  Builder *b = &as->top;
  Value o = ir_origin(b, rows);
  Value left = ir_2(b, OP_SUB, ir_dim(b, extent), o);
  left = ir_2(b, OP_ADD, left, cpu_int(as, unit - 1));
  left = ir_2(b, OP_FLOORDIV, left, cpu_int(as, unit));
  left = ir_2(b, OP_MIN, left, cpu_int(as, (n + unit - 1) / unit));
  if (as->nends < MAX_ENDS) as->ends[as->nends++] = (End){unit, left};
  return left;
}

Value cpu_rows_inside(Assign *as, Dim tile) {
  Value n = cpu_inside_axis(as, tile, 1);
  return n ? n : cpu_dim(as, tile);
}

// Panels of one piece; of all of them if there is one only.
static Loop panel_open(Assign *as, const Pieces *p, uint32_t piece) {
  Value lo = cpu_int(as, p->n > 1 ? p->at[piece] : 0);
  Value hi =
      p->n > 1 ? cpu_int(as, p->at[piece + 1]) : cpu_dim(as, npanels(as));
  Value end = p->n == 1 && as->pt.lane == as->par && !one_panel(as)
                  ? cpu_inside_axis(as, as->pt.lane_size, as->pt.width)
                  : 0;
  if (end) hi = end;
  Loop l = cpu_loop_open(as, (LoopCount){lo, hi, 1, "panel"}, NULL, 0);
  as->pt.panel = l.iv;
  as->pt.x0 = cpu_2(as, OP_MUL, l.iv, cpu_int(as, as->pt.width));
  as->pt.bound = true;
  cpu_pieces_set(as, p, piece);
  return l;
}

static void lane_pieces(Assign *as, Root *const *r, uint32_t n, Pieces *p) {
  cpu_pieces_find(as, r, n, (uint32_t)as->pt.lane, as->pt.lane_size, p);
}

static void panel_close(Assign *as, Loop *l) {
  cpu_loop_close(as, l, NULL);
  as->pt.panel = 0;
  as->pt.bound = false;
}

// Lanes of vector c inside of the tile; 0 if all are.
static Value live_lanes(Assign *as, uint32_t c) {
  if (dim_divisor(&as->m->dims, as->pt.lane_size) % as->pt.width == 0) return 0;
  Value x = cpu_2(as, OP_ADD, as->pt.x0, cpu_int(as, (int64_t)c * as->lanes));
  return cpu_vmask(as, cpu_2(as, OP_SUB, cpu_dim(as, as->pt.lane_size), x));
}

// ---------------------------------------------------------------- reductions
static bool reducing(const Root *r) {
  return r->kind == ROOT_REDUCE || r->kind == ROOT_SCAN;
}

static RKind rkind(const Root *r) {
  switch (r->op->code) {
  case OP_DOT: return RK_SUM;
  case OP_ANY_OF: return RK_ANY;
  case OP_ALL_OF: return RK_ALL;
  default: return (RKind)ir_attr_i(r->op, AT_KIND, RK_SUM);
  }
}

static DType acc_dtype(const Assign *as, const Root *r) {
  return cpu_reg_dtype(ir_type(as->f, r->v)->dtype);
}

// The value a reduction starts from, besides the identity.
static Value addend(const Root *r) {
  if (r->op->code == OP_DOT && r->op->nargs >= 3) return r->op->args[2];
  if (r->op->code == OP_SCAN && r->op->nargs == 2) return r->op->args[1];
  return 0;
}

static Value start(Assign *as, const Root *r, uint32_t c) {
  DType t = acc_dtype(as, r);
  Value v = addend(r);
  Value x = v && !over_lanes(r) ? cpu_eval_as(as, v, c, t)
                                : cpu_identity(as, rkind(r), t);
  return as->pt.lane >= 0 ? cpu_vec(as, x) : x;
}

// Partial results of reductions over the lanes, over several panels.
static Value partial_index(Assign *as, const Root *r) {
  Value step, i = cpu_form_index(as, r->partial, 0, &step);
  return cpu_2(as, OP_MUL, i, cpu_int(as, as->lanes));
}

static Value partial_base(Assign *as, Root *r) {
  Form *f = r->partial;
  if (f->base) return f->base;
  DimTab *d = &as->m->dims;
  Dim n = dim_const(d, as->lanes);
  for (uint32_t i = 0; i < f->n; i++) n = dim_bin(d, DIM_MUL, n, f->size[i]);
  IrAttr at = attr_i(AT_DIM, n);
  Type t = type_ptr(f->dt);
  f->base = ir_op(&as->top, OP_ALLOC, NULL, 0, &at, 1, &t, 1, 0)->res[0];
  ir_info(as->g, f->base)->hint = "part";
  return f->base;
}

typedef void EachFn(Assign *as, Root *r);

// Runs fn at each point of the result's axes (which are scalar there).
static void each_result(Assign *as, Root *r, EachFn *fn) {
  const Type *t = ir_type(as->f, r->v);
  Loop l[MAX_AXES];
  for (uint32_t i = 0; i < t->n; i++) {
    bool walked = (int)t->axis[i] == as->walked;
    Value n =
        walked ? cpu_rows_inside(as, t->size[i]) : cpu_dim(as, t->size[i]);
    l[i] = cpu_loop_upto(as, n, 1, as->f->axes.at[t->axis[i]].name);
    as->pt.idx[t->axis[i]] = l[i].iv;
  }
  fn(as, r);
  for (uint32_t i = t->n; i-- > 0;) {
    cpu_loop_close(as, &l[i], NULL);
    as->pt.idx[t->axis[i]] = 0;
  }
}

static void partial_clear(Assign *as, Root *r) {
  DType t = acc_dtype(as, r);
  Value id = cpu_cast(as, r->partial->dt, cpu_identity(as, rkind(r), t));
  id = cpu_vec(as, id);
  Value at = partial_index(as, r);
  cpu_vst(as, partial_base(as, r), at, id, 0);
}

// All lanes of v; then where the result goes.
static void finish(Assign *as, Root *r, Value v) {
  DType t = acc_dtype(as, r);
  Value x = cpu_vreduce(as, rkind(r), v);
  if (addend(r))
    x = cpu_combine(as, rkind(r), x, cpu_eval_as(as, addend(r), 0, t));
  if (r->dst) cpu_form_store(as, r->dst, 0, x);
  else r->part[0] = x;
}

static void partial_finish(Assign *as, Root *r) {
  Value at = partial_index(as, r);
  Value v = cpu_vld(as, partial_base(as, r), at, 0);
  finish(as, r, cpu_cast(as, acc_dtype(as, r), v));
}

// The end of the inner loops of r with its accumulators.
static void result(Assign *as, Root *r, Value *acc) {
  if (r->kind == ROOT_SCAN) return;
  uint32_t cols = as->pt.cols;
  if (over_lanes(r)) {
    Value v = acc[0];
    for (uint32_t c = 1; c < cols; c++)
      v = cpu_combine(as, rkind(r), v, acc[c]);
    if (!r->partial) {
      finish(as, r, v);
      return;
    }
    Value p = partial_base(as, r), i = partial_index(as, r);
    Value old = cpu_cast(as, mty(as, v)->dtype, cpu_vld(as, p, i, 0));
    v = cpu_combine(as, rkind(r), old, v);
    cpu_vst(as, p, i, cpu_cast(as, r->partial->dt, v), 0);
    return;
  }
  for (uint32_t c = 0; c < cols; c++) {
    if (!ir_info(as->g, acc[c])->hint)
      ir_info(as->g, acc[c])->hint = ir_info(as->f, r->v)->hint;
    if (r->dst) cpu_form_store(as, r->dst, c, acc[c]);
    cpu_memo_put(as, r->v, c, acc[c]);
  }
  if (as->pt.lane < 0) r->part[0] = acc[0];
}

// ---------------------------------------------------------------- one point
static Value masked(Assign *as, const Root *r, uint32_t c, Value x,
                    Value other) {
  Value live = over_lanes(r) ? live_lanes(as, c) : 0;
  return live ? cpu_select(as, live, x, other) : x;
}

static Value step_acc(Assign *as, const Root *r, uint32_t c, Value acc) {
  DType t = acc_dtype(as, r);
  if (r->op->code == OP_DOT) {
    Value a = cpu_eval_as(as, r->op->args[0], c, t);
    Value b = cpu_eval_as(as, r->op->args[1], c, t);
    Value x = cpu_3(as, OP_FMA, a, b, acc);
    if (r->op->nargs > 3)
      x = cpu_select(as, cpu_eval_as(as, r->op->args[3], c, DT_BOOL), x, acc);
    return masked(as, r, c, x, acc);
  }
  Value x = cpu_eval_as(as, r->op->args[0], c, t);
  x = masked(as, r, c, x, cpu_identity(as, rkind(r), t));
  x = cpu_combine(as, rkind(r), acc, x);
  return is_vec(as, acc) ? cpu_vec(as, x) : x;
}

// Advances the accumulators by one point; kept values go to kept.
static void point(Nest *n, Value *acc, Value *kept) {
  Assign *as = n->as;
  uint32_t cols = as->pt.cols;
  for (uint32_t i = 0; i < n->n; i++) {
    Root *r = n->r[i];
    for (uint32_t c = 0; c < cols; c++) {
      if (r->kind == ROOT_KEEP) {
        *kept++ = r->src ? cpu_form_load(as, r->src, c) : cpu_eval(as, r->v, c);
      } else if (reducing(r)) {
        Value old = *acc;
        *acc = step_acc(as, r, c, old);
        if (r->kind == ROOT_SCAN)
          *kept++ = ir_attr_i(r->op, AT_EXCLUSIVE, 0) ? old : *acc;
        acc++;
      }
    }
  }
}

// bf16 with lanes past the end of an odd axis cleared.
static Value as_bf16(Assign *as, const Form *f, uint32_t c, Value v) {
  v = cpu_cast(as, DT_BF16, cpu_vec(as, v));
  if (f->lane != f->pair || !f->odd) return v;
  Value live = live_lanes(as, c);
  Value zero = cpu_vec(as, cpu_float(as, DT_BF16, 0));
  return live ? cpu_select(as, live, v, zero) : v;
}

static void put(Assign *as, Root *r, uint32_t c, Value lo, Value hi) {
  Form *f = r->dst;
  if (f->pair < 0) {
    cpu_form_store(as, f, c, lo);
    return;
  }
  lo = as_bf16(as, f, c, lo);
  if (f->pair != f->lane) {
    hi = as_bf16(as, f, c, hi);
    lo = cpu_op(as, OP_PACK2, (Value[]){lo, hi}, 2, type_vec(DT_I32, as->lanes),
                NULL, 0);
  }
  cpu_form_store(as, f, c, lo);
}

static uint32_t count_kept(const Nest *n) {
  uint32_t k = 0;
  for (uint32_t i = 0; i < n->n; i++)
    k += n->r[i]->kind == ROOT_KEEP || n->r[i]->kind == ROOT_SCAN;
  return k * n->as->pt.cols;
}

static bool in_pairs(const Nest *n, const Root *r) {
  return r->kind == ROOT_KEEP && r->dst->pair == n->pair;
}

static void put_all(Nest *n, const Value *lo, const Value *hi) {
  Assign *as = n->as;
  for (uint32_t i = 0; i < n->n; i++) {
    Root *r = n->r[i];
    if (r->kind != ROOT_KEEP && r->kind != ROOT_SCAN) continue;
    for (uint32_t c = 0; c < as->pt.cols; c++, lo++, hi++) {
      put(as, r, c, *lo, *hi);
      if (n->pair < 0 || in_pairs(n, r)) continue;
      Value one = cpu_int(as, 1);
      as->pt.idx[n->pair] = cpu_2(as, OP_ADD, n->even, one);
      put(as, r, c, *hi, *hi);
      as->pt.idx[n->pair] = n->even;
    }
  }
}

// The second of two neighbours, which is 0 behind the end.
static void second(Nest *n, Value x, Value *acc, Value *hi) {
  Assign *as = n->as;
  uint32_t k = count_kept(n), m = n->nacc + k;
  as->pt.idx[n->pair] = cpu_2(as, OP_ADD, x, cpu_int(as, 1));
  if (!n->odd) {
    point(n, acc, hi);
    return;
  }
  Value *in = NEWN(as->arena, Value, m + 1);
  Value *out = NEWN(as->arena, Value, m + 1);
  Type *t = NEWN(as->arena, Type, m + 1);
  for (uint32_t i = 0; i < n->nacc; i++) out[i] = in[i] = acc[i];
  uint32_t at = 0;
  for (uint32_t i = 0; i < n->n; i++)
    for (uint32_t c = 0; n->r[i]->kind == ROOT_KEEP && c < as->pt.cols; c++) {
      DType d = ir_type(as->f, n->r[i]->v)->dtype;
      if (n->r[i]->dst->pair >= 0) d = DT_BF16;
      Value z =
          dtype_is_float(d) ? cpu_float(as, d, 0) : ir_const_i(&as->top, d, 0);
      out[n->nacc + at++] = as->pt.lane >= 0 ? cpu_vec(as, z) : z;
    }
  for (uint32_t i = 0; i < m; i++) t[i] = *mty(as, out[i]);
  Value dim = cpu_dim(as, n->size[n->naxes - 1]);
  Branch br = cpu_if_open(as, cpu_2(as, OP_LT, as->pt.idx[n->pair], dim), t, m);
  point(n, in, in + n->nacc);
  for (uint32_t i = n->nacc; i < m; i++) {
    in[i] = cpu_cast(as, t[i].dtype, in[i]);
    if (t[i].kind == TK_VEC) in[i] = cpu_vec(as, in[i]);
  }
  cpu_if_else(as, &br, in);
  cpu_if_close(as, &br, out, out);
  for (uint32_t i = 0; i < n->nacc; i++) acc[i] = out[i];
  for (uint32_t i = 0; i < k; i++) hi[i] = out[n->nacc + i];
}

static void body(Nest *n) {
  Assign *as = n->as;
  uint32_t k = count_kept(n);
  Value *lo = NEWN(as->arena, Value, k + 1),
        *hi = NEWN(as->arena, Value, k + 1);
  if (n->pair < 0) {
    point(n, n->acc, lo);
    put_all(n, lo, lo);
    for (uint32_t i = 0; i < n->n; i++)
      if (n->r[i]->kind == ROOT_STORE) cpu_tensor_store(as, n->r[i]->op);
    return;
  }
  uint32_t mark = cpu_scope_open(as);
  as->pt.idx[n->pair] = n->even;
  point(n, n->acc, lo);
  cpu_scope_close(as, mark);
  second(n, n->even, n->acc, hi);
  cpu_scope_close(as, mark);
  as->pt.idx[n->pair] = n->even;
  put_all(n, lo, hi);
  as->pt.idx[n->pair] = 0;
}

// ---------------------------------------------------------------- loops
static void hoist_all(Nest *n) {
  for (uint32_t i = 0; i < n->n; i++) {
    const Root *r = n->r[i];
    if (r->kind == ROOT_KEEP) {
      if (!r->src) cpu_hoist(n->as, r->v);
      continue;
    }
    cpu_hoist_inputs(n->as, r->op);
  }
}

static void loops(Nest *n, uint32_t level);

static void reduce_loops(Nest *n) {
  Assign *as = n->as;
  uint32_t k = 0;
  for (uint32_t i = 0; i < n->n; i++)
    for (uint32_t c = 0; reducing(n->r[i]) && c < as->pt.cols; c++)
      n->acc[k++] = start(as, n->r[i], c);
  n->nacc = k;
  if (n->naxes > n->nouter) loops(n, n->nouter);
  else body(n);
  k = 0;
  for (uint32_t i = 0; i < n->n; i++) {
    if (!reducing(n->r[i])) continue;
    result(as, n->r[i], &n->acc[k]);
    k += as->pt.cols;
  }
}

static void inside(Nest *n, uint32_t level);

// Rows of the tile that are walked one by one: those inside of the axis. Rows
// that become lanes are filled up to a whole panel where a tile is short: what
// else lay there might be denormal, which some CPUs are 100 times slower with.
static Value rows_inside(Nest *n, Dim size) {
  Assign *as = n->as;
  bool lanes = as->pt.lane != as->par;
  int64_t rows, by;
  for (uint32_t i = 0; i < n->n; i++) {
    const Root *r = n->r[i];
    lanes &= r->kind == ROOT_KEEP;
    if (r->v && cpu_is_summed(as, r->v)) return 0;
  }
  if (!lanes || !dim_known(&as->m->dims, size, &rows) ||
      rows > COST_FEW_QUERIES)
    return cpu_inside_axis(as, size, 1);
  by = (int64_t)cpu_panel_cols(as, as->par, size) * as->lanes;
  if (rows % by)
    return cpu_inside_axis(as, size, 1);  // no room for whole panels
  Value panels = cpu_inside_axis(as, size, by);
  return panels ? cpu_2(as, OP_MUL, panels, cpu_int(as, by)) : 0;
}

static void loop_piece(Nest *n, uint32_t level, const Pieces *p, uint32_t i) {
  Assign *as = n->as;
  uint32_t a = n->axis[level];
  bool pair = n->pair == (int)a, red = level >= n->nouter;
  Dim size = n->size[level];
  Value lo = pair ? cpu_limit_lo2(as, a) : cpu_limit_lo(as, a);
  Value hi = pair ? cpu_limit_hi2(as, a, size) : cpu_limit_hi(as, a, size);
  if (p->n > 1) {
    Value end = cpu_int(as, p->at[i + 1]);
    lo = cpu_int(as, p->at[i]);
    hi = (int)a == as->walked ? cpu_2(as, OP_MIN, hi, end) : end;
  }
  Value end = 0;
  if ((int)a == as->par && !red && !pair && p->n == 1)
    end = rows_inside(n, size);
  if (end) hi = end;
  LoopCount count = {lo, hi, 1, as->f->axes.at[a].name};
  Loop l = cpu_loop_open(as, count, n->acc, red ? n->nacc : 0);
  if (n->reverse && red && l.op) {
    IrAttr rev = attr_i(AT_REVERSE, 1);
    ir_set_attr(as->g, l.op, rev);
  }
  if (pair) n->even = cpu_2(as, OP_MUL, l.iv, cpu_int(as, 2));
  as->pt.idx[a] = pair ? 0 : l.iv;
  cpu_pieces_set(as, p, i);
  hoist_all(n);
  inside(n, level + 1);
  cpu_loop_close(as, &l, n->acc);
  as->pt.idx[a] = 0;
}

// What stands inside of the loops before `level`.
static void inside(Nest *n, uint32_t level) {
  if (level < n->nouter || (level > n->nouter && level < n->naxes)) {
    loops(n, level);
  } else if (level > n->nouter) {
    body(n);
  } else if (n->panels && !n->as->pt.bound) {
    Pieces p;
    lane_pieces(n->as, n->r, n->n, &p);
    for (uint32_t i = 0; i < p.n; i++) {
      Loop l = panel_open(n->as, &p, i);
      hoist_all(n);
      reduce_loops(n);
      panel_close(n->as, &l);
    }
  } else {
    reduce_loops(n);
  }
}

static void loops(Nest *n, uint32_t level) {
  Assign *as = n->as;
  uint32_t a = n->axis[level];
  Dim size = n->size[level];
  Pieces p = {.n = 1};
  if (!n->reverse && n->pair != (int)a && !as->pt.to[a])
    cpu_pieces_find(as, n->r, n->n, a, size, &p);
  for (uint32_t i = 0; i < p.n; i++) loop_piece(n, level, &p, i);
}

// ---------------------------------------------------------------- one nest
static Dim root_size(const Assign *as, const Root *r, uint32_t axis) {
  if (r->kind == ROOT_KEEP) return cpu_axis_size_in(as, r->v, axis);
  for (uint32_t i = 0; i < r->op->nargs; i++) {
    Dim d = cpu_axis_size_in(as, r->op->args[i], axis);
    if (d) return d;
  }
  return DIM_NONE;
}

static void add_axes(Nest *n, AxisSet set) {
  for (uint32_t pass = 0; pass < 2; pass++)
    for (uint32_t a = 0; a < 64 && set >> a; a++) {
      if (!(set >> a & 1) || ((int)a == n->pair) != (pass == 1)) continue;
      n->axis[n->naxes] = a;
      for (uint32_t i = 0; i < n->n && !n->size[n->naxes]; i++)
        n->size[n->naxes] = root_size(n->as, n->r[i], a);
      n->naxes++;
    }
}

static void nest_init(Nest *n) {
  AxisSet space = 0, inner = 0;
  for (uint32_t i = 0; i < n->n; i++) {
    const Root *r = n->r[i];
    space |= r->space;
    inner |= r->inner;
    const Form *f = r->kind == ROOT_KEEP ? r->dst : NULL;
    if (f && f->pair >= 0 && f->pair != f->lane) {
      n->pair = f->pair;
      n->odd = f->odd;
    }
    if (r->kind == ROOT_SCAN)
      n->reverse = ir_attr_i(r->op, AT_DIR, 0) == DIR_SUFFIX;
  }
  if (n->as->pt.lane >= 0) {
    space &= ~((AxisSet)1 << n->as->pt.lane);
    inner &= ~((AxisSet)1 << n->as->pt.lane);
  }
  add_axes(n, space & ~inner);
  n->nouter = n->naxes;
  add_axes(n, inner);
}

static void mark_ready(Assign *as, const Root *r) {
  if (!r->dst || !r->v) return;
  if (as->forms[r->v] == r->dst) as->ready[r->v] = true;
  if (as->vec_form[r->v] == r->dst) as->vec_ready[r->v] = true;
}

// A scalar that decides an `or` of what v needs: 0 if there is none.
static Value find_switch(Assign *as, Value v) {
  if (as->seen[v] == as->stamp || cpu_is_memory(as, v)) return 0;
  as->seen[v] = as->stamp;
  const Op *op = ir_def(as->f, v);
  if (!op || as->ready[v] || !cpu_is_inline(as, v) || cpu_memo_get(as, v, 0))
    return 0;
  bool here = as->pt.lane == as->par ||
              type_has_axis(ir_type(as->f, v), (uint32_t)as->pt.lane);
  Value u = here ? cpu_switch_of(as, v) : 0;
  for (uint32_t i = 0; i < op->nargs && !u; i++)
    u = find_switch(as, op->args[i]);
  return u;
}

static Value nest_switch(Nest *n) {
  Assign *as = n->as;
  Value u = 0;
  if (as->pt.lane < 0 || (n->panels && !as->pt.bound)) return 0;
  as->stamp++;
  for (uint32_t i = 0; i < n->n; i++) {
    const Root *r = n->r[i];
    if (r->kind == ROOT_STORE || r->kind == ROOT_SCAN || over_lanes(r))
      return 0;
    if (r->kind == ROOT_KEEP && !u && !r->src) u = find_switch(as, r->v);
    for (uint32_t k = 0; r->op && k < r->op->nargs && !u; k++)
      u = find_switch(as, r->op->args[k]);
  }
  return u;
}

// The results of a nest that are in registers.
static uint32_t in_registers(Nest *n, Value *out) {
  uint32_t k = 0;
  for (uint32_t i = 0; i < n->n; i++)
    for (uint32_t c = 0; reducing(n->r[i]) && c < n->as->pt.cols; c++)
      out[k++] = cpu_memo_get(n->as, n->r[i]->v, c);
  return k;
}

// Two versions of the loops, with u true and with u false.
static void versions(Nest *n, Value u) {
  Assign *as = n->as;
  uint32_t cols = as->pt.cols, m = 0;
  Value *v = NEWN(as->arena, Value, n->n * cols + 1);
  Type *t = NEWN(as->arena, Type, n->n * cols + 1);
  for (uint32_t i = 0; i < n->n && !n->nouter; i++)
    for (uint32_t c = 0; reducing(n->r[i]) && c < cols; c++)
      t[m++] = type_vec(acc_dtype(as, n->r[i]), as->lanes);
  Branch br = cpu_if_open(as, cpu_memo_get(as, u, 0), t, m);
  for (int no = 0; no < 2; no++) {
    cpu_memo_put(as, u, 0, cpu_bool(as, !no));
    hoist_all(n);
    inside(n, 0);
    if (m) in_registers(n, v);
    if (no) cpu_if_close(as, &br, v, v);
    else cpu_if_else(as, &br, v);
  }
  for (uint32_t i = 0, k = 0; i < n->n && m; i++)
    for (uint32_t c = 0; reducing(n->r[i]) && c < cols; c++)
      cpu_memo_put(as, n->r[i]->v, c, v[k++]);
}

static void loops_emit(Assign *as, Root **r, uint32_t n, bool panels) {
  Nest nest = {.as = as, .r = r, .n = n, .pair = -1, .panels = panels};
  nest.acc = NEWN(as->arena, Value, n * MAX_COLS + 1);
  nest_init(&nest);
  Value u = nest_switch(&nest);
  if (u) {
    versions(&nest, u);
  } else {
    hoist_all(&nest);
    inside(&nest, 0);
  }
}

// By shuffles if the tensor's memory runs across the lanes, else by gathers.
static void cross_or_gather(Assign *as, Root **r) {
  Branch br = cpu_if_open(as, cpu_cross_ok(as, r[0]), NULL, 0);
  cpu_cross_emit(as, r[0]);
  cpu_if_else(as, &br, NULL);
  loops_emit(as, r, 1, false);
  cpu_if_close(as, &br, NULL, NULL);
}

static void nest_emit(Assign *as, Root **r, uint32_t n, bool panels) {
  if (r[0]->kind == ROOT_DOT) cpu_dot_emit(as, r[0]);
  else if (r[0]->kind == ROOT_TURN) cpu_turn_emit(as, r[0]);
  else if (r[0]->cross) cross_or_gather(as, r);
  else loops_emit(as, r, n, panels);
  for (uint32_t i = 0; i < n; i++) mark_ready(as, r[i]);
}

// ---------------------------------------------------------------- stages
// Is there something dear to make that varies with the lanes only? Then it is
// made once for all other axes.
static bool dear_by_lane(Assign *as, Value v, AxisSet lane) {
  if (as->seen[v] == as->stamp || cpu_is_memory(as, v)) return false;
  as->seen[v] = as->stamp;
  const Op *op = ir_def(as->f, v);
  if (!op || as->ready[v] || !cpu_is_inline(as, v)) return false;
  if (cpu_axes_of(as, v) == lane) return cpu_value_cost(as, v) > COST_SMALL_ROW;
  bool dear = false;
  for (uint32_t i = 0; i < op->nargs && !dear; i++)
    dear = dear_by_lane(as, op->args[i], lane);
  return dear;
}

static bool panels_inside(Assign *as, Root *const *r, uint32_t n,
                          uint32_t nnests) {
  for (uint32_t i = 0; i < n; i++) {
    AxisSet bit = r[i]->lane >= 0 ? (AxisSet)1 << r[i]->lane : 0;
    if (r[i]->kind != ROOT_KEEP && r[i]->kind != ROOT_STORE) return false;
    as->stamp++;
    if (r[i]->cross || (r[i]->v && dear_by_lane(as, r[i]->v, bit)))
      return false;
    if (!(r[i]->space & ~bit)) return false;
  }
  return nnests == 1;
}

// One vector at a time is the shortest code.
static void open_point(Assign *as, Root *const *roots, uint32_t n) {
  const Root *r = roots[0];
  bool seldom = true;
  for (uint32_t i = 0; i < n; i++) seldom &= roots[i]->seldom;
  as->pt.lane = r->lane;
  as->pt.lane_size = r->lane_size;
  as->pt.cols =
      r->lane >= 0 && !seldom ? cpu_panel_cols(as, r->lane, r->lane_size) : 1;
  as->pt.width = (int64_t)as->pt.cols * as->lanes;
  as->pt.bound = false;
}

static void make_partials(Assign *as, Root *const *r, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (!over_lanes(r[i]) || one_panel(as)) continue;
    r[i]->partial = cpu_form_new(as, r[i]->v, -1, DIM_NONE, false);
    int lane = as->pt.lane;
    as->pt.lane = -1;
    each_result(as, r[i], partial_clear);
    as->pt.lane = lane;
  }
}

static void nests_emit(Assign *as, Root *const *r, uint32_t n, uint32_t nnests,
                       bool panels) {
  for (uint32_t k = 0; k < nnests; k++) {
    Root **in = NEWN(as->arena, Root *, n);
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++)
      if (r[i]->nest == k) in[m++] = r[i];
    if (m) nest_emit(as, in, m, panels);
  }
}

// Which values of the stage lie in memory before it. The next piece of the
// lanes makes the others again.
static uint8_t *ready_before(const Assign *as, Root *const *r, uint32_t n) {
  uint8_t *b = NEWN(as->arena, uint8_t, n + 1);
  for (uint32_t i = 0; i < n; i++)
    if (r[i]->v)
      b[i] = (uint8_t)(as->ready[r[i]->v] | as->vec_ready[r[i]->v] << 1);
  return b;
}

static void unready(Assign *as, Root *const *r, uint32_t n, const uint8_t *b) {
  for (uint32_t i = 0; i < n; i++) {
    if (!r[i]->v) continue;
    as->ready[r[i]->v] = b[i] & 1;
    as->vec_ready[r[i]->v] = b[i] >> 1 & 1;
  }
}

static bool any_over_panels(Root *const *r, uint32_t n) {
  return n == 1 && r[0]->partial && r[0]->op->code == OP_ANY_OF;
}

// Nothing is left to find once a panel has found something.
static void any_emit(Assign *as, Root *const *r) {
  Value p = partial_base(as, r[0]), i = partial_index(as, r[0]);
  Value found = cpu_vreduce(as, RK_ANY, cpu_vld(as, p, i, 0));
  Branch br = cpu_if_open(as, cpu_1(as, OP_NOT, found), NULL, 0);
  nests_emit(as, r, 1, 1, false);
  cpu_if_else(as, &br, NULL);
  cpu_if_close(as, &br, NULL, NULL);
}

void cpu_stage_emit(Assign *as, Root *const *r, uint32_t n, uint32_t nnests) {
  if (r[0]->direct) {
    cpu_direct_emit(as, r[0]);
    return;
  }
  if (r[0]->across) {
    cpu_across_emit(as, r[0]);
    mark_ready(as, r[0]);
    return;
  }
  open_point(as, r, n);
  uint32_t mark = cpu_scope_open(as);
  bool inner = panels_inside(as, r, n, nnests) && as->pt.lane >= 0;
  make_partials(as, r, n);
  bool looped = as->pt.lane >= 0 && !inner;
  Pieces p = {.n = 1};
  const uint8_t *before = ready_before(as, r, n);
  if (looped) lane_pieces(as, r, n, &p);
  for (uint32_t i = 0; i < p.n && looped; i++) {
    if (i) unready(as, r, n, before);
    Loop l = panel_open(as, &p, i);
    cpu_band_emit(as, r, n);
    cpu_limit_emit(as, r, n);
    if (any_over_panels(r, n)) any_emit(as, r);
    else nests_emit(as, r, n, nnests, false);
    cpu_limit_clear(as);
    cpu_band_clear(as);
    panel_close(as, &l);
  }
  if (!looped) nests_emit(as, r, n, nnests, inner);
  cpu_scope_close(as, mark);
  as->pt.lane = -1;
  as->pt.bound = false;
  for (uint32_t i = 0; i < n; i++) {
    if (r[i]->partial) each_result(as, r[i], partial_finish);
    if (r[i]->v && r[i]->part[0]) cpu_memo_put(as, r[i]->v, 0, r[i]->part[0]);
  }
}
