// Fragments in the wave interpreter. What a lane can do alone is done per
// register; reductions, scans and changes of layout join lanes of a wave, or
// all waves of the group once the last has come.
#include "ir/simt/simt.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { TRI = 16 };  // rows of a block that ftrinv inverts

static double rounded(DType t, double v) {
  return t == DT_F32 ? (double)(float)v : dtype_round(t, v);
}

// ---------------------------------------------------------------- elementwise
static double constant_of(Wave *w, const Op *op) {
  const Interp *in = wave_in(w);
  const IrAttr *f = ir_attr(op, AT_VALUE);
  int64_t d = ir_attr_i(op, AT_IVALUE, 0);
  if (op->code == OP_DIM &&
      !dim_eval(&in->m->dims, (Dim)ir_attr_i(op, AT_DIM, 0), in->dims, &d))
    simt_fail(w, op, "the dim has no value");
  return f ? f->f : dtype_number(d);
}

static void fill(Wave *w, Value v, double x) {
  WaveVal *r = simt_define(w, v);
  uint32_t n = r->regs ? r->regs * w->cta->x->lanes : 1;
  x = rounded(simt_type(w, v)->dtype, x);
  for (uint32_t i = 0; i < n; i++) r->at[i] = x;
}

static bool constant(Wave *w, const Op *op) {
  fill(w, op->res[0], constant_of(w, op));
  return true;
}

static bool splat(Wave *w, const Op *op) {
  fill(w, op->res[0], simt_scalar(w, op->args[0]));
  return true;
}

static bool elementwise(Wave *w, const Op *op) {
  DType to = simt_type(w, op->res[0])->dtype;
  const double *x[ELEM_ARGS];
  uint32_t step[ELEM_ARGS];
  WaveVal *r = simt_define(w, op->res[0]);
  uint32_t n = r->regs ? r->regs * w->cta->x->lanes : 1;
  for (uint32_t k = 0; k < op->nargs; k++) {
    const WaveVal *v = simt_val(w, op->args[k]);
    x[k] = v->at;
    step[k] = v->regs != 0;
  }
  eval_many(op->code, x, step, n, r->at);
  dtype_round_many(to, r->at, n);
  return true;
}

// Which bits stand for a value is the matrix units' matter; -0 may become 0.
static bool operand(Wave *w, const Op *op) {
  const WaveVal *x = simt_val(w, op->args[0]);
  WaveVal *r = simt_define(w, op->res[0]);
  bool minus = op->nargs > 1 && simt_scalar(w, op->args[1]) != 0;
  for (uint32_t i = 0; i < r->regs * w->cta->x->lanes; i++)
    r->at[i] = minus ? -x->at[i] : x->at[i];
  return true;
}

// ---------------------------------------------------------------- coordinates
static bool coord(Wave *w, const Op *op) {
  const WaveMap *m = simt_map(w, op->res[0], simt_type(w, op->res[0]));
  WaveVal *r = simt_define(w, op->res[0]);
  uint32_t lanes = w->cta->x->lanes, first = wave_thread(w, 0);
  bool thread = op->code != OP_COORD_REG, reg = op->code != OP_COORD_THREAD;
  int64_t pos = ir_attr_i(op, AT_POS, 0);
  for (uint32_t i = 0; i < r->regs; i++)
    for (uint32_t l = 0; l < lanes; l++)
      r->at[i * lanes + l] =
          (reg ? m->reg[i][pos] : 0) + (thread ? m->thread[first + l][pos] : 0);
  return true;
}

static bool bcast(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->args[0]);
  const WaveMap *s = simt_map(w, op->args[0], t);
  const WaveMap *m = simt_map(w, op->res[0], simt_type(w, op->res[0]));
  const WaveVal *x = simt_val(w, op->args[0]);
  WaveVal *r = simt_define(w, op->res[0]);
  uint32_t lanes = w->cta->x->lanes;
  for (uint32_t i = 0; i < r->regs; i++) {
    uint32_t from = frag_slice_reg(&m->map, &s->map, t->slice == SLICE_COL, i);
    memcpy(r->at + i * lanes, x->at + from * lanes, lanes * sizeof *r->at);
  }
  return true;
}

// A thread has its part of the columns in registers of its own.
static bool columns(Wave *w, const Op *op) {
  const WaveMap *s = simt_map(w, op->args[0], simt_type(w, op->args[0]));
  const WaveMap *m = simt_map(w, op->res[0], simt_type(w, op->res[0]));
  const WaveVal *x = simt_val(w, op->args[0]);
  WaveVal *r = simt_define(w, op->res[0]);
  uint32_t lanes = w->cta->x->lanes, at[2], thread, from;
  uint32_t col = (uint32_t)ir_attr_i(op, AT_POS, 0);
  for (uint32_t i = 0; i < r->regs; i++)
    for (uint32_t l = 0; l < lanes; l++) {
      simt_at(m, i, wave_thread(w, l), at);
      at[1] += col;
      frag_find(&s->map, at, &thread, &from);
      assert(thread == wave_thread(w, l));
      r->at[i * lanes + l] = x->at[from * lanes + l];
    }
  return true;
}

// ---------------------------------------------------------------- groups
// Whether digits along the axis are in several waves.
static bool spans(const FragMap *m, uint32_t axis, uint32_t lanes) {
  uint32_t unit = 1;
  for (uint32_t i = 0; i < m->nthr; i++) {
    unit *= m->thr[i].size;
    if (m->thr[i].axis == axis && unit > lanes) return true;
  }
  return false;
}

bool simt_together(Wave *w, const Op *op, WaveAllFn *fn) {
  Group *g = w->grp;
  if (g->arrived && g->op != op) {
    simt_fail(w, op, "other waves of the group are at another op");
    return true;
  }
  g->op = op;
  w->state = WV_GROUP;
  if (++g->arrived < g->waves) return true;
  g->arrived = 0;
  Wave *all = &w->cta->wave[g->first];
  for (uint32_t i = 0; i < g->waves; i++) all[i].state = WV_RUN;
  fn(all, g->waves, op);
  return true;
}

static bool alone_or_together(Wave *w, const Op *op, const FragMap *m,
                              uint32_t axis, WaveAllFn *fn) {
  if (spans(m, axis, w->cta->x->lanes)) return simt_together(w, op, fn);
  fn(w, 1, op);
  return true;
}

// ---------------------------------------------------------------- reductions
// Joins x[reg of each wave][lane] over the threads that hold parts along axis.
static void combine(Wave *w, uint32_t n, const Op *op, const FragMap *m,
                    uint32_t axis, double **x) {
  RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  DType t = simt_type(w, op->res[0])->dtype;
  uint32_t lanes = w->cta->x->lanes, all = n * lanes, unit = 1;
  double old[MAX_LANES * MAX_WAVES];
  for (uint32_t i = 0; i < m->nthr; i++) {
    uint32_t size = m->thr[i].size;
    bool mine = m->thr[i].axis == axis && unit * size <= all;
    for (uint32_t j = 0; mine && j < all; j++) old[j] = x[j / lanes][j % lanes];
    for (uint32_t j = 0; mine && j < all; j++) {
      uint32_t first = j - j / unit % size * unit;
      double v = old[first];
      for (uint32_t d = 1; d < size; d++)
        v = rounded(t, eval_reduce(k, v, old[first + d * unit]));
      x[j / lanes][j % lanes] = v;
    }
    unit *= size;
  }
}

static void combine_regs(Wave *w, uint32_t n, const Op *op, const FragMap *m,
                         uint32_t axis) {
  Value v = op->res[0];
  uint32_t lanes = w->cta->x->lanes;
  double *x[MAX_WAVES];
  for (uint32_t r = 0; r < w->val[v].regs; r++) {
    for (uint32_t i = 0; i < n; i++) x[i] = w[i].val[v].at + r * lanes;
    combine(w, n, op, m, axis, x);
  }
}

// Each lane over its own registers.
static void own_part(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->args[0]);
  const WaveMap *m = simt_map(w, op->args[0], t);
  uint32_t pos = (uint32_t)ir_attr_i(op, AT_POS, 0), lanes = w->cta->x->lanes;
  RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  const WaveVal *x = simt_val(w, op->args[0]);
  WaveVal *r = simt_define(w, op->res[0]);
  const WaveMap *s = simt_map(w, op->res[0], simt_type(w, op->res[0]));
  bool seen[4096] = {0};
  assert(s->regs <= 4096);
  for (uint32_t i = 0; i < x->regs; i++) {
    uint32_t to = frag_slice_reg(&m->map, &s->map, 1 - pos, i);
    for (uint32_t l = 0; l < lanes; l++) {
      double v = x->at[i * lanes + l], *at = &r->at[to * lanes + l];
      *at = seen[to] ? rounded(t->dtype, eval_reduce(k, *at, v)) : v;
    }
    seen[to] = true;
  }
}

static void reduce_tiles(Wave *w, uint32_t n, const Op *op) {
  const WaveMap *m = simt_map(w, op->args[0], NULL);
  for (uint32_t i = 0; i < n; i++) own_part(&w[i], op);
  combine_regs(w, n, op, &m->map, (uint32_t)ir_attr_i(op, AT_POS, 0));
}

static void reduce_slices(Wave *w, uint32_t n, const Op *op) {
  const WaveMap *m = simt_map(w, op->args[0], NULL);
  RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  DType t = simt_type(w, op->res[0])->dtype;
  double sum[MAX_WAVES][MAX_LANES], *at[MAX_WAVES];
  uint32_t lanes = w->cta->x->lanes;
  for (uint32_t i = 0; i < n; i++) {
    const WaveVal *x = simt_val(&w[i], op->args[0]);
    at[i] = sum[i];
    memcpy(sum[i], x->at, lanes * sizeof *sum[i]);
    for (uint32_t r = 1; r < x->regs; r++)
      for (uint32_t l = 0; l < lanes; l++)
        sum[i][l] = rounded(t, eval_reduce(k, sum[i][l], x->at[r * lanes + l]));
  }
  combine(w, n, op, &m->map, (uint32_t)ir_attr_i(op, AT_POS, 0), at);
  for (uint32_t i = 0; i < n; i++) simt_set(&w[i], op->res[0], sum[i][0]);
}

static bool reduce(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->args[0]), *r = simt_type(w, op->res[0]);
  const WaveMap *m = simt_map(w, op->args[0], t);
  uint32_t pos = (uint32_t)ir_attr_i(op, AT_POS, 0);
  if (r->kind != TK_FRAG)
    return alone_or_together(w, op, &m->map, pos, reduce_slices);
  if (!r->partial) return alone_or_together(w, op, &m->map, pos, reduce_tiles);
  own_part(w, op);
  return true;
}

// A tile whose slice this is: other extents have the same thread digits.
static FragMap tile_of(Wave *w, const Type *slice) {
  Type t = *slice;
  bool col = slice->slice == SLICE_COL;
  uint32_t spread = 64 * (w->grp->waves ? w->grp->waves : 1);
  uint32_t other = slice->ext[1] ? slice->ext[1] : col ? spread : 64;
  t.n = 2;
  t.slice = SLICE_NONE;
  t.partial = false;
  t.ext[0] = col ? other : slice->ext[0];
  t.ext[1] = col ? slice->ext[0] : other;
  FragMap m = {0};
  const char *err = simt_frag_map(w, &t, &m);
  if (err) simt_fail(w, NULL, err);
  return m;
}

static uint32_t lost_axis(const Wave *w, const Op *op) {
  return simt_type(w, op->args[0])->slice == SLICE_COL ? AXIS_ROW : AXIS_COL;
}

static void combine_parts(Wave *w, uint32_t n, const Op *op) {
  FragMap m = tile_of(w, simt_type(w, op->args[0]));
  for (uint32_t i = 0; i < n; i++) {
    const WaveVal *x = simt_val(&w[i], op->args[0]);
    WaveVal *r = simt_define(&w[i], op->res[0]);
    memcpy(r->at, x->at, r->regs * w->cta->x->lanes * sizeof *r->at);
  }
  combine_regs(w, n, op, &m, lost_axis(w, op));
}

static bool join_parts(Wave *w, const Op *op) {
  FragMap m = tile_of(w, simt_type(w, op->args[0]));
  return alone_or_together(w, op, &m, lost_axis(w, op), combine_parts);
}

static void votes(Wave *w, uint32_t n, const Op *op) {
  RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_ANY);
  double v = eval_identity(k, DT_BOOL);
  for (uint32_t i = 0; i < n; i++) {
    const WaveVal *x = simt_val(&w[i], op->args[0]);
    for (uint32_t r = 0; r < x->regs * w->cta->x->lanes; r++)
      v = eval_reduce(k, v, x->at[r]);
  }
  for (uint32_t i = 0; i < n; i++) simt_set(&w[i], op->res[0], v);
}

static bool vote(Wave *w, const Op *op) {
  if (!ir_attr_i(op, AT_WARP, 0) && w->grp->waves > 1)
    return simt_together(w, op, votes);
  votes(w, 1, op);
  return true;
}

// Operand i of `exceeds` is a limit above, the last of three one below.
static bool beyond(Wave *w, const Op *op, uint32_t i) {
  const WaveMap *m = simt_map(w, op->args[0], simt_type(w, op->args[0]));
  const WaveMap *s = simt_map(w, op->args[i], simt_type(w, op->args[i]));
  const WaveVal *x = simt_val(w, op->args[0]);
  const WaveVal *limit = simt_val(w, op->args[i]);
  uint32_t lanes = w->cta->x->lanes;
  double sign = i == 1 ? 1 : -1;
  bool any = false;
  for (uint32_t r = 0; r < x->regs; r++) {
    const double *row =
        limit->at + frag_slice_reg(&m->map, &s->map, 0, r) * lanes;
    for (uint32_t l = 0; l < lanes; l++)
      any |= !(row[l] >= 0) || !(sign * x->at[r * lanes + l] <= row[l]);
  }
  return any;
}

static bool exceeds(Wave *w, const Op *op) {
  bool any = beyond(w, op, 1);
  if (op->nargs > 2) any |= beyond(w, op, 2);
  simt_set(w, op->res[0], any);
  return true;
}

// ---------------------------------------------------------------- whole tiles
Dense simt_dense(Wave *w, uint32_t n, Value v) {
  const Type *t = simt_type(w, v);
  const WaveMap *m = simt_map(w, v, t);
  Dense d = {t->ext[0], t->ext[1], NULL};
  uint32_t lanes = w->cta->x->lanes, at[2];
  if (t->slice) d.cols = t->slice == SLICE_COL ? t->ext[0] : 1;
  if (t->slice) d.rows = t->slice == SLICE_COL ? 1 : t->ext[0];
  d.at = NEWN(&wave_in(w)->cx->scratch, double, d.rows *d.cols);
  for (uint32_t i = 0; i < n; i++) {
    const double *x = simt_val(&w[i], v)->at;
    for (uint32_t r = 0; r < m->regs; r++)
      for (uint32_t l = 0; l < lanes; l++) {
        simt_at(m, r, wave_thread(&w[i], l), at);
        if (at[0] < d.rows && at[1] < d.cols)
          d.at[at[0] * d.cols + at[1]] = x[r * lanes + l];
      }
  }
  return d;
}

static void spread(Wave *w, uint32_t n, Value v, Dense d) {
  const WaveMap *m = simt_map(w, v, simt_type(w, v));
  uint32_t lanes = w->cta->x->lanes, at[2];
  for (uint32_t i = 0; i < n; i++) {
    WaveVal *x = simt_define(&w[i], v);
    for (uint32_t r = 0; r < m->regs; r++)
      for (uint32_t l = 0; l < lanes; l++) {
        simt_at(m, r, wave_thread(&w[i], l), at);
        if (at[0] < d.rows && at[1] < d.cols)
          x->at[r * lanes + l] = d.at[at[0] * d.cols + at[1]];
      }
  }
}

static void move_all(Wave *w, uint32_t n, const Op *op) {
  Arena *a = &wave_in(w)->cx->scratch;
  ArenaMark mark = arena_mark(a);
  Dense d = simt_dense(w, n, op->args[0]);
  if (simt_type(w, op->args[0])->slice != simt_type(w, op->res[0])->slice)
    d = (Dense){d.cols, d.rows, d.at};
  spread(w, n, op->res[0], d);
  arena_reset(a, mark);
}

static bool relayout(Wave *w, const Op *op) {
  return simt_together(w, op, move_all);
}

static void scan_line(const Op *op, DType t, double *at, uint32_t n,
                      uint32_t step, double run) {
  bool suffix = ir_attr_i(op, AT_DIR, DIR_PREFIX) == DIR_SUFFIX;
  bool exclusive = ir_attr_i(op, AT_EXCLUSIVE, 0);
  RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  for (uint32_t i = 0; i < n; i++) {
    double *x = at + (suffix ? n - 1 - i : i) * step, before = run;
    run = rounded(t, eval_reduce(k, run, *x));
    *x = exclusive ? before : run;
  }
}

static void scan_all(Wave *w, uint32_t n, const Op *op) {
  Arena *a = &wave_in(w)->cx->scratch;
  ArenaMark mark = arena_mark(a);
  Dense d = simt_dense(w, n, op->args[0]), carry = {0};
  DType t = simt_type(w, op->args[0])->dtype;
  bool col = ir_attr_i(op, AT_POS, 0);
  uint32_t lines = col ? d.rows : d.cols;
  bool frag = op->nargs > 1 && simt_type(w, op->args[1])->kind == TK_FRAG;
  if (frag) carry = simt_dense(w, n, op->args[1]);
  for (uint32_t i = 0; i < lines; i++) {
    double run = eval_identity((RKind)ir_attr_i(op, AT_KIND, RK_SUM), t);
    if (frag) run = carry.at[i];
    else if (op->nargs > 1) run = simt_scalar(w, op->args[1]);
    scan_line(op, t, d.at + i * (col ? d.cols : 1), col ? d.cols : d.rows,
              col ? 1 : d.cols, run);
  }
  spread(w, n, op->res[0], d);
  arena_reset(a, mark);
}

static bool scan(Wave *w, const Op *op) {
  return simt_together(w, op, scan_all);
}

// The inverse of 1 + l on one block, by substitution.
static void invert_block(const double *l, double *x, uint32_t step,
                         bool upper) {
  for (uint32_t k = 0; k < TRI; k++) {
    uint32_t i = upper ? TRI - 1 - k : k;
    x[i * step + i] = 1;
    for (uint32_t m = 1; m < TRI - k; m++) {
      uint32_t r = upper ? i - m : i + m;
      double f = l[r * step + i];
      for (uint32_t c = 0; c < TRI; c++) {
        double *at = &x[r * step + c];
        *at = rounded(DT_F32, *at - f * x[i * step + c]);
      }
    }
  }
}

// A block lies in one wave.
static bool invert(Wave *w, const Op *op) {
  Arena *a = &wave_in(w)->cx->scratch;
  ArenaMark mark = arena_mark(a);
  Dense d = simt_dense(w, 1, op->args[0]);
  Dense x = {d.rows, d.cols, NEWN(a, double, d.rows *d.cols)};
  for (uint32_t i = 0; i < d.rows; i += TRI)
    invert_block(d.at + i * d.cols + i, x.at + i * d.cols + i, d.cols,
                 ir_attr_i(op, AT_TRANS, 0) != 0);
  spread(w, 1, op->res[0], x);
  arena_reset(a, mark);
  return true;
}

// Rows lie in one wave each; turned, columns are of all.
static void skew_all(Wave *w, uint32_t n, const Op *op) {
  Arena *a = &wave_in(w)->cx->scratch;
  ArenaMark mark = arena_mark(a);
  const Type *t = simt_type(w, op->res[0]);
  Dense d = simt_dense(w, n, op->args[0]);
  Dense x = {t->ext[0], t->ext[1], NEWN(a, double, t->ext[0] * t->ext[1])};
  int64_t pos = ir_attr_i(op, AT_POS, 0);
  bool turned = ir_attr_i(op, AT_TRANS, 0) != 0;
  int sign = ir_attr_i(op, AT_REVERSE, 0) ? -1 : 1;
  for (uint32_t i = 0; i < x.rows; i++)
    for (uint32_t j = 0; j < x.cols; j++) {
      int64_t same = turned ? j : i, other = turned ? i : j;
      int64_t at = pos + sign * (other - same);
      bool inside = at >= 0 && at < d.cols;
      x.at[i * x.cols + j] = inside ? d.at[same * d.cols + at] : 0;
    }
  spread(w, n, op->res[0], x);
  arena_reset(a, mark);
}

static bool skew(Wave *w, const Op *op) {
  if (ir_attr_i(op, AT_TRANS, 0)) return simt_together(w, op, skew_all);
  skew_all(w, 1, op);
  return true;
}

// Keys are not dealt.
static bool others(Wave *w, const Op *op) {
  const WaveVal *x = simt_val(w, op->args[0]);
  WaveVal *r = simt_define(w, op->res[0]);
  memcpy(r->at, x->at, r->regs * w->cta->x->lanes * sizeof *r->at);
  return true;
}

static void over_warps(Wave *w, uint32_t n, const Op *op) {
  enum { ROWS = 16 };
  Arena *a = &wave_in(w)->cx->scratch;
  ArenaMark mark = arena_mark(a);
  Dense x = simt_dense(w, n, op->args[0]);
  RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  DType t = simt_type(w, op->res[0])->dtype;
  uint32_t of = ROWS * x.cols;
  for (uint32_t i = of; i < x.rows * x.cols; i++) {
    double *all = &x.at[i % of];
    *all = rounded(t, eval_reduce(k, *all, x.at[i]));
  }
  for (uint32_t i = of; i < x.rows * x.cols; i++) x.at[i] = x.at[i % of];
  spread(w, n, op->res[0], x);
  arena_reset(a, mark);
}

static bool fwarps(Wave *w, const Op *op) {
  return simt_together(w, op, over_warps);
}

// The same group of another CTA of the cluster, if all its waves are at op.
static Group *at_op(Cta *c, const Group *g, const Op *op) {
  Group *o = c->wave[g->first].grp;
  bool all = o->first == g->first && o->op == op && o->arrived == o->waves;
  return all ? o : NULL;
}

// What CTA c has of operand i, in all CTAs.
static void from_cta(Wave *w, const Op *op, uint32_t i, uint32_t c) {
  enum { ROWS = 16 };
  Cta *all = w->cta->cluster;
  uint32_t waves = w->grp->waves, n = w->cta->nctas;
  Value res = op->res[i * n + c];
  const Type *t = simt_type(w, res);
  bool dealt = ir_attr_i(op, AT_DEALT, 0) != 0;
  Dense d = simt_dense(&all[c].wave[w->grp->first], waves, op->args[i]);
  for (uint32_t j = ROWS * d.cols; dealt && j < d.rows * d.cols; j++)
    d.at[j] = t->slice ? d.at[j % ROWS] : NAN;
  for (uint32_t k = 0; k < n; k++) {
    Dense mine = {d.rows, t->slice ? d.cols : t->ext[1], d.at};
    if (mine.cols < d.cols) {
      mine.at =
          NEWN(&wave_in(w)->cx->scratch, double, mine.rows *mine.cols + 1);
      for (uint32_t j = 0; j < mine.rows * mine.cols; j++)
        mine.at[j] =
            d.at[j / mine.cols * d.cols + k * mine.cols + j % mine.cols];
    }
    spread(&all[k].wave[w->grp->first], waves, res, mine);
  }
}

static bool peers(Wave *w, const Op *op) {
  Group *g = w->grp;
  Cta *all = w->cta->cluster;
  g->op = op;
  w->state = WV_GROUP;
  g->arrived++;
  for (uint32_t c = 0; c < w->cta->nctas; c++)
    if (!at_op(&all[c], g, op)) return true;
  Arena *a = &wave_in(w)->cx->scratch;
  ArenaMark mark = arena_mark(a);
  for (uint32_t i = 0; i < op->nargs; i++)
    for (uint32_t c = 0; c < w->cta->nctas; c++) from_cta(w, op, i, c);
  arena_reset(a, mark);
  for (uint32_t c = 0; c < w->cta->nctas; c++) {
    Group *o = at_op(&all[c], g, op);
    for (uint32_t i = 0; i < o->waves; i++)
      all[c].wave[o->first + i].state = WV_RUN;
    o->arrived = 0;
  }
  return true;
}

// What a warp has is dealt in the warp.
static bool fdeal(Wave *w, const Op *op) {
  enum { ROWS = 16 };
  const WaveMap *s = simt_map(w, op->args[0], simt_type(w, op->args[0]));
  const WaveMap *m = simt_map(w, op->res[0], simt_type(w, op->res[0]));
  const WaveVal *x = simt_val(w, op->args[0]);
  WaveVal *r = simt_define(w, op->res[0]);
  uint32_t lanes = w->cta->x->lanes, at[2], thread, from;
  for (uint32_t i = 0; i < r->regs; i++)
    for (uint32_t l = 0; l < lanes; l++) {
      simt_at(m, i, wave_thread(w, l), at);
      uint32_t of[2] = {at[0] - at[0] % ROWS + at[1], 0};
      frag_find(&s->map, of, &thread, &from);
      uint32_t lane = thread - wave_thread(w, 0);
      assert(lane < lanes);
      r->at[i * lanes + l] = x->at[from * lanes + lane];
    }
  return true;
}

WaveFn *simt_frag_fn(OpCode c) {
  static WaveFn *const fn[OP_COUNT] = {
      [OP_CONST] = constant,      [OP_DIM] = constant,
      [OP_SPLAT] = splat,         [OP_COORD] = coord,
      [OP_COORD_THREAD] = coord,  [OP_COORD_REG] = coord,
      [OP_BCAST] = bcast,         [OP_FREDUCE] = reduce,
      [OP_FCOMBINE] = join_parts, [OP_FSCAN] = scan,
      [OP_VOTE] = vote,           [OP_EXCEEDS] = exceeds,
      [OP_FCOLS] = columns,       [OP_RELAYOUT] = relayout,
      [OP_FTRINV] = invert,       [OP_FOPERAND] = operand,
      [OP_SKEW] = skew,           [OP_OTHERS] = others,
      [OP_FWARPS] = fwarps,       [OP_FDEAL] = fdeal,
      [OP_PEERS] = peers,
  };
  if (fn[c]) return fn[c];
  return op_info(c)->flags & OPF_ELEM ? elementwise : NULL;
}
