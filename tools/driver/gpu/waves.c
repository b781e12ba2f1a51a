// A second body of a GPU program, for few tasks. More warpgroups do more in a
// step, but their tasks have more rows and are fewer: the last wave leaves more
// of the multiprocessors idle, and more of the last tile of rows is padding.
// Where the tiles chosen are those of three or four groups, the same program is
// compiled for one group less as well, and the runtime takes the body of the
// smaller cost. Costs are expressions of the dims:
//
//   tasks of one size   waves of a task for each multiprocessor * rows
//   others, claimed     tasks * rows * mean keys / multiprocessors, and a
//                       quarter of the largest task, which others wait for
//   others, bounds of   the same with all keys, of which nobody knows what tasks
//   tables              see, and what waves of 160 keys take: short tasks are alike
//
// in which more groups count 21 / 22: what they gain where neither waves nor
// padding differ. Three groups whose steps are as long, as at D 64, gain so
// much (1.17), with biases (1.15; of pairs 1.05) and sums along a row (1.15
// to 1.21), that two are never better. Nor are they where groups have bounds of
// their own by tables: their longer steps mask more (1.05 to 1.27). Four
// groups, whose steps are half as long as those of three, gain nothing by that
// where tasks are of one size, or where a step does more than products and
// functions of the same time (biases, caps, other head dims); windows' tasks
// are of one size to them, but gain. Measured on an H200
// (docs/lab/2026-11-groups.md).
#include "ir/target.h"
#include "passes/support/balance.h"
#include "passes/support/cost.h"
#include "tools/driver/gpu/device.h"
#include "tools/plan/plan.h"

enum {
  LEAST = 2,
  THREE,
  FOUR,  // warpgroups that compute
};

typedef struct Body {
  Ctx *cx;
  const CgProgram *p;
  const Func *f;
  int64_t groups;
  int64_t rows;  // of a task
  int64_t sms;
  const GpuFacts *gpu;
  Dim queries, keys;
  int64_t step;  // keys
  bool even;     // all tasks are of one size
  bool columns;  // or pairs of a tile have values of their own: a bias,
                 // a sum along a row
  bool apart;    // a group's rows have their own bounds
  bool told;     // a phase before has found bounds
  bool first;    // some loop over keys begins with the first
  Balance work;  // of a step, of the loop whose steps do least
} Body;

static bool is_shared(const Func *f, Value tensor) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == tensor) return f->params.at[i].role == PR_SHARED;
  return false;
}

typedef struct Work {
  const Func *f;
  Balance of;
} Work;

static void add_op(void *data, Op *op) {
  Work *w = data;
  balance_add(&w->of, w->f, op);
}

// Clocks of what a step does beside its products.
static double others(const Body *b, const Balance *step) {
  return balance_clocks(step, b->gpu, UNIT_FUNCTIONS) +
         balance_clocks(step, b->gpu, UNIT_ARITHMETIC);
}

static void look_at_loop(Body *b, const Op *op) {
  double step, from;
  Work w = {.f = b->f};
  if (!ir_const_value(b->f, op->args[2], &step) || step < COST_FEW_KEYS) return;
  if (step > (double)b->step) b->step = (int64_t)step;
  b->first |= ir_const_value(b->f, op->args[0], &from);
  ir_walk(op->regions[0], add_op, &w);
  if (!w.of.of[UNIT_PRODUCTS]) return;
  bool any = b->work.of[UNIT_PRODUCTS];
  if (!any || others(b, &w.of) < others(b, &b->work)) b->work = w.of;
}

static void look(void *data, Op *op) {
  Body *b = data;
  b->even &= op->code != OP_CLAIM;
  b->columns |= op->code == OP_FSCAN;
  b->apart |= op->code == OP_LAUNCH && ir_attr_i(op, AT_GROUP_BOUNDS, 0);
  b->told |= op->code == OP_GLOAD && is_shared(b->f, op->args[0]) &&
             ir_type(b->f, op->res[0])->kind == TK_ELEM;
  if (op->code == OP_FOR) look_at_loop(b, op);
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = ir_type(b->f, op->res[i]);
    bool pairs = op->code == OP_GLOAD && t->slice == SLICE_NONE;
    b->columns |= t->kind == TK_FRAG && t->dtype == DT_F32 &&
                  (t->slice == SLICE_COL || pairs);
  }
}

// False: no tiles of rows, or no keys.
static bool body_of(Ctx *cx, const CgProgram *p, const Built *built, Body *b) {
  const Module *m = built->mod;
  const GpuFacts *gpu = &built->recipe.target->gpu;
  *b = (Body){.cx = cx, .p = p, .sms = gpu->sms, .gpu = gpu, .even = true};
  b->f = m->funcs.n ? m->funcs.at[m->funcs.n - 1] : NULL;
  if (!b->f) return false;
  for (uint32_t i = 0; i < b->f->grid.n; i++) {
    const GridDim *g = &b->f->grid.at[i];
    if (g->tile == 1) continue;
    bool blocks = g->tile < HW_GROUP_ROWS;  // a group's, of several heads
    b->queries = b->f->axes.at[g->axis].extent;
    b->rows = blocks ? g->tile * HW_GROUP_ROWS : g->tile;
  }
  for (uint32_t i = 0; i < b->f->axes.n && !b->keys; i++)
    if (b->f->axes.at[i].role == AX_KEY) b->keys = b->f->axes.at[i].extent;
  ir_walk(b->f->body, look, b);
  return b->rows && b->keys;
}

static CgExpr by(const Body *b, CgExpr e, attn_xop op, int64_t k) {
  return cg_expr_bin(b->cx, e, op, cg_expr_const(b->cx, k));
}

static CgExpr even(const Body *b, CgExpr tasks) {
  CgExpr waves = by(b, tasks, ATTN_X_ADD, b->sms - 1);
  return by(b, by(b, waves, ATTN_X_FLOORDIV, b->sms), ATTN_X_MUL, b->rows);
}

// Tasks see from keys - queries + rows to all keys, as causal ones do; rows are
// a group's where that has its own bounds.
static CgExpr mean_keys(const Body *b, CgExpr keys) {
  if (b->told) return keys;
  CgExpr mean = cg_expr_bin(b->cx, by(b, keys, ATTN_X_MUL, 2), ATTN_X_SUB,
                            cg_expr_dim(b->cx, &b->f->mod->dims, b->queries));
  return by(b, by(b, mean, ATTN_X_MAX, 0), ATTN_X_ADD,
            b->apart ? HW_GROUP_ROWS : b->rows);
}

static CgExpr uneven(const Body *b, CgExpr tasks) {
  CgExpr keys = cg_expr_dim(b->cx, &b->f->mod->dims, b->keys);
  CgExpr rows =
      by(b, by(b, tasks, ATTN_X_MUL, b->rows), ATTN_X_FLOORDIV, b->sms);
  CgExpr mean = by(b, mean_keys(b, keys), ATTN_X_FLOORDIV, COST_FEW_KEYS);
  CgExpr last = by(b, by(b, keys, ATTN_X_FLOORDIV, 2 * COST_FEW_KEYS),
                   ATTN_X_MUL, b->rows);
  CgExpr all = cg_expr_bin(b->cx, cg_expr_bin(b->cx, rows, ATTN_X_MUL, mean),
                           ATTN_X_ADD, last);
  if (!b->told) return all;
  return cg_expr_bin(b->cx, all, ATTN_X_ADD,
                     by(b, even(b, tasks), ATTN_X_MUL,
                        COST_FEW_START / COST_FEW_KEYS));
}

// Also if both ends of a task's keys move with its rows, by arithmetic.
static bool is_even(const Body *b) {
  return b->even || (b->groups == FOUR && !b->first && !b->told);
}

// Over the program's dims.
static CgExpr cost(const Body *b, bool even_tasks, int64_t weight) {
  CgExpr n = drv_tasks(b->cx, b->f->mod, b->f);
  n = by(b, even_tasks ? even(b, n) : uneven(b, n), ATTN_X_MUL, weight);
  return drv_over_program(b->cx, b->p, &b->f->mod->dims, n);
}

// Threads that load what others compute with.
static int64_t loads(const CgKernelRecord *k) {
  const Op *op = k->func->body->first;
  while (op && op->code != OP_ROLES) op = op->next;
  bool apart = op && op->nregions > 1;
  return apart ? ir_attr(op, AT_TEAMS)->list[0] : HW_GROUP_THREADS;
}

// Warpgroups that compute, if there may be fewer; else 0.
static int64_t groups_of(const Built *b) {
  const Recipe *r = &b->recipe;
  const CgKernelRecord *k =
      b->kernels.n ? &b->kernels.at[b->kernels.n - 1] : NULL;
  if (!k || !r->target->gpu.hopper || r->opt.general || r->opt.most_groups ||
      drv_tiles_asked(r->spec.prog, r->target, &r->opt))
    return 0;
  int64_t groups = (k->threads - loads(k)) / HW_GROUP_THREADS;
  return groups > LEAST ? groups : 0;
}

// Whether more groups gain more than waves and padding tell. Four, with steps
// half as long, do so where products and functions take as long, so that groups
// fill each other's gaps, and other ops are few.
static bool gains(const Body *more) {
  const Balance *w = &more->work;
  double functions = balance_clocks(w, more->gpu, UNIT_FUNCTIONS);
  double products = balance_clocks(w, more->gpu, UNIT_PRODUCTS);
  double arithmetic = balance_clocks(w, more->gpu, UNIT_ARITHMETIC);
  double apart =
      products > functions ? products - functions : functions - products;
  return more->groups < FOUR ||
         (!more->even && COST_FOUR_ARITHMETIC * arithmetic <= functions &&
          COST_FOUR_BALANCE * apart < functions);
}

static bool is_worth(const Body *more, const Body *fewer) {
  if (fewer->rows >= more->rows || fewer->step < more->step) return false;
  // Pairs of a step: the larger ones are faster.
  return more->groups == FOUR ||
         fewer->rows * fewer->step > more->rows * more->step;
}

bool drv_few_tasks(Ctx *cx, CgProgram *p, const Built *whole, Built *few) {
  Body more, fewer;
  CgDevice d;
  int64_t groups = groups_of(whole);
  if (!groups || !body_of(cx, p, whole, &more)) return false;
  more.groups = groups;
  if (groups == THREE && (more.columns || (more.apart && more.told)))
    return false;
  *few = (Built){.recipe = whole->recipe, .program = whole->program};
  few->recipe.opt.most_groups = groups - 1;
  DiagMark mark = diag_mark(cx);
  bool made = drv_make_device(cx, p, few, &d) && body_of(cx, p, few, &fewer);
  diag_forget(cx, mark);
  if (!made || !is_worth(&more, &fewer)) return false;
  ctx_remark(cx, "%s: a second body with tiles of %lld rows, for few tasks",
             p->name, (long long)(groups - 1) * HW_GROUP_ROWS);
  bool even_tasks = is_even(&more), gain = gains(&more);
  CgExpr less =
      cg_expr_bin(cx, cost(&fewer, even_tasks, gain ? COST_FEW_GAIN_DEN : 1),
                  ATTN_X_LT,
                  cost(&more, even_tasks, gain ? COST_FEW_GAIN_NUM : 1));
  few->recipe.when = drv_and(cx, few->recipe.when, less);
  d.when = drv_and(cx, d.when, less);
  drv_prepend_device(cx, p, d);
  return true;
}
