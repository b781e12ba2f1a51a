// gather_products: a product with a row of a small table for each pair of a row
// and a key is one of numbers: the row is multiplied by the whole table once,
// in a phase in front of the program, and pairs look their product up.
//
//   before  func @p(%Q, %T: tensor<bf16[N, 64]>, ..) {
//             %n = .. %q .. %k ..  : i64{q,k}
//             %t = load(%T, %n, %d) : bf16{q,k,d}
//             %s = dot(%x, %t) {over = [d]} : f32{b,h,q,k} }
//   after   func @p.products(%Q, %T, %T.products: tensor<f32[B, H, S, R]> shared)
//               axes(part par ceil(N / 64), of vec 64, b par B, h par H, q par S,
//                    d vec 64) {
//             %i = min(add(mul(%part, 64), %of), N - 1)
//             store(%T.products, dot(%x, load(%T, %i, %d)), %b, %h, %q, ..) }
//           func @p(.., %T.products) {
//             %s = load(%T.products, %b, %h, %q, %n) .. }
//
// Rows of a table for each pair are no operand of a product of matrices. The
// table has usually far fewer rows than there are keys, so that the product
// costs little beside that of scores: relative positions of an image's rows and
// columns, contextual positions, buckets of distances. The vectors may be those
// of keys. Left are rows for a difference, which are bands (band_mma); tables
// as long as the keys; and lists of keys, where keys have no vectors of their
// own. Level attn, behind bias_table; GPUs. Tests:
// test/passes/gather_products/.
#include "ir/deps.h"
#include "passes/pass.h"
#include "passes/support/band.h"
#include "passes/support/cost.h"
#include "passes/support/outline.h"

// A table that a vector is multiplied by.
typedef struct Product {
  Value x;         // the vector
  const Op *load;  // of the table
  uint32_t pos;    // operand of the load: the index that varies with pairs
  uint32_t over;   // axis: of the vector
  uint64_t axes;   // of x, and of the table's other indices
  Value tensor;
} Product;

typedef struct Gather {
  Ctx *cx;
  Func *f;
  int64_t *sym;  // usual values of the dims' symbols
  Product made[MAX_FRONT];
  uint32_t n;
} Gather;

static uint64_t bit(uint32_t axis) {
  return (uint64_t)1 << axis;
}

// ---------------------------------------------------------------- sizes
// Extents that are open are usual ones (cost.def): those of the axes `rows` are
// rows and keys.
static void usual_sizes(Gather *g, uint64_t rows) {
  const DimTab *d = &g->f->mod->dims;
  for (uint32_t s = 0; s < d->syms.n; s++) {
    const DimSym *sym = &d->syms.at[s];
    int64_t v = COST_AHEAD_TASKS;
    for (uint32_t i = 0; i < g->f->axes.n; i++) {
      Dim e = g->f->axes.at[i].extent;
      if (e && rows & bit(i) && d->exprs.at[e].op == DIM_SYM &&
          d->exprs.at[e].value == (int64_t)s)
        v = COST_AHEAD_ROWS;
    }
    g->sym[s] = v < sym->lo ? sym->lo : v > sym->hi ? sym->hi : v;
  }
}

static double size_of(const Gather *g, Dim e) {
  int64_t n;
  return dim_eval(&g->f->mod->dims, e, g->sym, &n) ? (double)n : 1;
}

// Has the table fewer rows than half of the points along those axes?
static bool is_small(Gather *g, const Product *p, uint64_t axes) {
  double n = 1;
  usual_sizes(g, axes | ir_axes_with(g->f, AX_KEY));
  for (uint32_t i = 0; i < g->f->axes.n; i++)
    if (axes & bit(i)) n *= size_of(g, g->f->axes.at[i].extent);
  const Type *t = ir_type(g->f, p->load->args[0]);
  return 2 * size_of(g, t->size[p->pos - 1]) <= n;
}

// ---------------------------------------------------------------- pattern
// Made of inputs and coordinates, element by element.
static bool can_copy(const Func *f, Value v, Map *seen) {
  const Op *op = ir_def(f, v);
  uint64_t known;
  if (map_get(seen, v, &known)) return true;
  map_put(seen, v, 1);
  if (!op) return true;
  if (!outline_can_repeat(op)) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!can_copy(f, op->args[i], seen)) return false;
  return true;
}

static bool is_made_of_inputs(const Gather *g, Value v) {
  Map seen = {.arena = &g->cx->scratch};
  return can_copy(g->f, v, &seen);
}

// The load's one index with axes that x lacks; its others become axes.
static bool find_index(const Gather *g, Product *p) {
  const Func *f = g->f;
  p->axes = ir_axes_of(f, p->x) & ~bit(p->over);
  p->pos = 0;
  for (uint32_t i = 1; i < p->load->nargs; i++) {
    uint64_t axes = ir_axes_of(f, p->load->args[i]) & ~bit(p->over);
    if (axes & p->axes && axes & ~p->axes) {
      if (p->pos) return false;
      p->pos = i;
    }
  }
  for (uint32_t i = 1; p->pos && i < p->load->nargs; i++) {
    if (i == p->pos) continue;
    uint64_t axes = ir_axes_of(f, p->load->args[i]) & ~bit(p->over);
    if (axes & ir_axes_with(f, AX_KEY) & ~p->axes ||
        !is_made_of_inputs(g, p->load->args[i]))
      return false;
    p->axes |= axes;
  }
  return p->pos && !(ir_axes_of(f, p->load->args[p->pos]) & bit(p->over));
}

// Have these keys vectors of their own, which rows along one of the axes `rows`
// have in common, in a product beside `but`?
static bool has_vectors(const Func *f, const Op *but, uint64_t keys,
                        uint64_t rows) {
  uint64_t vec = ir_axes_with(f, AX_VEC);
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op == but || op->code != OP_DOT || op->nargs != 2) continue;
    for (uint32_t i = 0; i < 2; i++) {
      uint64_t x = ir_axes_of(f, op->args[i]), y = ir_axes_of(f, op->args[!i]);
      if (x & y & vec && (y & keys) == keys && x & ~y & rows) return true;
    }
  }
  return false;
}

static bool suits(Gather *g, const Op *dot, uint32_t table, Product *p) {
  const Func *f = g->f;
  const IrAttr *over = ir_attr(dot, AT_OVER);
  const Op *load = ir_def(f, dot->args[table]);
  Band band;
  if (over->n != 1 || f->axes.at[over->list[0]].role != AX_VEC || !load ||
      load->code != OP_LOAD || !outline_is_input(f, load->args[0]) ||
      band_of(f, dot, &band))
    return false;
  *p = (Product){.x = dot->args[!table],
                 .load = load,
                 .over = (uint32_t)over->list[0]};
  if (!find_index(g, p)) return false;
  uint64_t keys = ir_axes_with(f, AX_KEY), vec = ir_axes_with(f, AX_VEC);
  uint64_t pair = ir_axes_of(f, load->args[p->pos]);
  uint64_t both = pair & p->axes, lacks = pair & ~p->axes;
  uint32_t rank = 1;
  for (uint64_t a = p->axes; a; a &= a - 1) rank++;
  bool own =
      p->axes & keys ? both & keys : has_vectors(f, dot, lacks & keys, both);
  return own && rank <= MAX_AXES && pair & keys && !(p->axes & vec) &&
         !(pair & vec) && is_small(g, p, lacks) && is_made_of_inputs(g, p->x);
}

// ---------------------------------------------------------------- the phase
typedef struct Phase {
  const Gather *g;
  const Product *p;
  Builder b;
  ValueMap map;
  uint32_t axis[64];  // of f: in the phase
} Phase;

static Value copy(Phase *p, Value v) {
  if (v < p->map.n && p->map.to[v]) return p->map.to[v];
  const Op *op = ir_def(p->g->f, v);
  for (uint32_t i = 0; i < op->nargs; i++) copy(p, op->args[i]);
  p->b.span = op->span;
  ir_clone(&p->b, p->g->f, op, &p->map, p->axis);
  return vmap_get(&p->map, v);
}

// Coordinates of the product in front of the table's: axis of f to that of the
// phase, or to itself.
static uint32_t coordinates(const Product *p, const uint32_t *to, Builder *b,
                            Value *out) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < 64; i++)
    if (p->axes & bit(i)) out[n++] = ir_index(b, to ? to[i] : i);
  return n;
}

// Vectors of the table's rows, from 0 on; the last row fills the last vector.
static Value open_rows(Phase *p, Func *made, Dim rows) {
  DimTab *d = &made->mod->dims;
  Builder *b = &p->b;
  Dim parts = dim_ceildiv(d, rows, COST_GATHERED_VECTOR);
  Dim each = dim_const(d, COST_GATHERED_VECTOR);
  uint32_t part = ir_axis(made, "part", AX_PAR, parts);
  uint32_t of = ir_axis(made, "of", AX_VEC, each);
  Value number = ir_index(b, part), size = ir_dim(b, each);
  Value first = ir_2(b, OP_MUL, number, size);
  return ir_2(b, OP_ADD, first, ir_index(b, of));
}

static Dim rows_of(const Func *f, const Product *p) {
  return ir_type(f, p->load->args[0])->size[p->pos - 1];
}

static Func *make_phase(const Gather *g, const Product *p, uint32_t number) {
  Func *f = g->f, *made = outline_func(f, "products", number, false);
  DimTab *d = &f->mod->dims;
  Phase ph = {.g = g,
              .p = p,
              .map = {.arena = f->mod->arena},
              .b = {.fn = made, .region = made->body, .span = f->span}};
  Builder *b = &ph.b;
  outline_params(&ph.map, f, made);
  Value at[MAX_AXES + 1], index[MAX_AXES + 1];
  Dim rows = rows_of(f, p);
  Value row = open_rows(&ph, made, rows);
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (p->axes & bit(i))
      ph.axis[i] =
          ir_axis(made, f->axes.at[i].name, AX_PAR, f->axes.at[i].extent);
  ph.axis[p->over] = ir_axis(made, f->axes.at[p->over].name, AX_VEC,
                             f->axes.at[p->over].extent);
  Value last = ir_dim(b, dim_bin(d, DIM_ADD, rows, dim_const(d, -1)));
  for (uint32_t i = 0; i < p->load->nargs; i++)
    at[i] =
        i == p->pos ? ir_2(b, OP_MIN, row, last) : copy(&ph, p->load->args[i]);
  Value t = ir_load(b, at[0], at + 1, p->load->nargs - 1);
  Value s = ir_dot(b, copy(&ph, p->x), t, &ph.axis[p->over], 1);
  uint32_t n = coordinates(p, ph.axis, b, index);
  index[n++] = row;
  ir_store(b, vmap_get(&ph.map, p->tensor), s, index, n);
  return made;
}

// ---------------------------------------------------------------- the program
static void add_tensor(Gather *g, Product *p) {
  DimTab *d = &g->f->mod->dims;
  Dim shape[MAX_AXES];
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->f->axes.n; i++)
    if (p->axes & bit(i)) shape[n++] = g->f->axes.at[i].extent;
  Dim parts = dim_ceildiv(d, rows_of(g->f, p), COST_GATHERED_VECTOR);
  shape[n++] = dim_bin(d, DIM_MUL, parts, dim_const(d, COST_GATHERED_VECTOR));
  const char *hint = ir_info(g->f, p->load->args[0])->hint;
  p->tensor = outline_tensor(g->f, hint ? hint : "table", "products",
                             type_tensor(DT_F32, n, shape));
}

static bool same_product(const Product *x, const Product *y) {
  bool same = x->x == y->x && x->pos == y->pos && x->axes == y->axes &&
              x->load->nargs == y->load->nargs;
  for (uint32_t i = 0; same && i < x->load->nargs; i++)
    same = i == x->pos || x->load->args[i] == y->load->args[i];
  return same;
}

// The products that p's are, made if need be; NULL: there is no phase left.
static const Product *made_of(Gather *g, Product *p) {
  for (uint32_t i = 0; i < g->n; i++)
    if (same_product(&g->made[i], p)) return &g->made[i];
  if (outline_count(g->f) == MAX_FRONT || g->n == MAX_FRONT) return NULL;
  add_tensor(g, p);
  g->made[g->n] = *p;
  outline_put(make_phase(g, p, g->n), g->f);
  ctx_remark(g->cx,
             "%s: products with all rows of a table are made ahead, and pairs "
             "look theirs up",
             g->f->name);
  return &g->made[g->n++];
}

static void gather(Gather *g, Op *dot, Product *p) {
  const Product *made = made_of(g, p);
  if (!made) return;
  Builder b = outline_behind(g->f, dot->res[0]);
  Value at[MAX_AXES + 1];
  uint32_t n = coordinates(p, NULL, &b, at);
  at[n++] = p->load->args[p->pos];
  ir_replace_uses(g->f, dot->res[0], ir_load(&b, made->tensor, at, n));
}

// Returns the number of phases that it puts in front of f.
static uint32_t run(Ctx *cx, Func *f) {
  Gather g = {.cx = cx, .f = f};
  Product p;
  for (const Op *op = f->body->first; op; op = op->next)
    if (op->nregions || op->code == OP_CALL) return 0;
  if (f->axes.n > 64) return 0;
  g.sym = NEWN(&cx->scratch, int64_t, f->mod->dims.syms.n + 1);
  for (Op *op = f->body->first; op; op = op->next)
    for (uint32_t side = 0; op->code == OP_DOT && op->nargs == 2 && side < 2;
         side++)
      if (suits(&g, op, side, &p)) {
        gather(&g, op, &p);
        break;
      }
  if (g.n) ir_sweep(f);
  return g.n;
}

bool pass_gather_products(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) i += run(cx, m->funcs.at[i]);
  return true;
}
