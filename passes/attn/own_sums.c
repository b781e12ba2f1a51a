// own_sums: operands of a pass over keys that are sums over keys of their own
// are made once, in a phase in front.
//
//   before  func @p(..) axes(b par B, q par S, h par H, k key S, r key R, d vec 64) {
//             %s = dot(load(%A, %b, %k, %r, %h), load(%X, %b, %k, %r, %d))
//                  {over = [r]}                               : f32{b,h,k,d}
//             %y = cast(%s)                                   : bf16{b,h,k,d}
//             .. dot(%x, %y) {over = [d]} ..                  : f32{b,q,h,k} }
//   after   func @p.sums(.., %y.sums: tensor<bf16[B, H, S, 64]> shared)
//               axes(b par B, h par H, k par S, r key R, d vec 64) {
//             .. store(%y.sums, %y, %b, %h, %k, %d) }
//           func @p(.., %y.sums) axes(.., k key S, ..) {
//             %y = load(%y.sums, %b, %h, %k, %d)
//             .. dot(%x, %y) .. }
//
// Keys of low rank are such, products of a factor of heads and one of elements
// (tensor product attention), and values of a pass that another pass sums up
// (agents). In place each task would sum them again for each tile of rows, and
// tiles would have the axes of the sums, not those of the pass. On its own a
// sum is a product of matrices like any other; of a matrix that all rows
// multiply (linear attention over all keys) the phase's tasks have rows each.
// Vectors of each row and key stay in place. Level attn, in front of
// outline_epilogue, which hands on what rows have; GPUs. Tests:
// test/passes/own_sums/.
#include "ir/deps.h"
#include "passes/pass.h"
#include "passes/support/outline.h"
#include "passes/support/outlined.h"

typedef struct Own {
  Ctx *cx;
  Func *f;
  uint64_t keys, vecs;
  uint64_t tasks;    // axes of what is stored
  uint64_t rows;     // axes of tasks that are as long as keys, or bound them
  uint64_t *summed;  // by value: keys that it is a sum over
  uint64_t axes;     // of the cuts
  Outlined out;
} Own;

static void find_sums(Own *o) {
  o->summed = NEWN(&o->cx->scratch, uint64_t, o->f->values.n);
  for (const Op *op = o->f->body->first; op; op = op->next) {
    if (!op->nres) continue;
    uint64_t *s = &o->summed[op->res[0]];
    for (uint32_t i = 0; i < op->nargs; i++) *s |= o->summed[op->args[i]];
    *s |= ir_axes_over(op) & o->keys;
  }
}

// Rows of a pass: of each there would be vectors of all its keys.
static uint64_t find_rows(const Func *f) {
  uint64_t rows = 0;
  for (uint32_t i = 0; i < f->axes.n; i++)
    for (uint32_t k = 0; k < f->axes.n; k++)
      if (f->axes.at[i].role == AX_PAR && f->axes.at[k].role == AX_KEY &&
          f->axes.at[i].extent == f->axes.at[k].extent)
        rows |= (uint64_t)1 << i;
  for (const Op *op = f->body->first; op; op = op->next)
    if (op->code == OP_DOMAIN) rows |= ir_axes_of(f, op->args[0]);
  return rows & ir_axes_with(f, AX_PAR);
}

// Of keys other rows of the pass have the same.
static bool is_shared(const Own *o, uint64_t axes, uint64_t of) {
  return !(axes & of) || (o->tasks & ~axes && !(axes & o->rows));
}

// A vector that is a sum over keys, of which a pass over others multiplies one
// for each of its keys or of its rows, or which all rows of a program multiply.
static bool is_cut(const Own *o, const Op *dot, Value v) {
  const Op *op = ir_def(o->f, v);
  uint64_t axes = ir_axes_of(o->f, v), sums = o->summed[v];
  uint64_t out = ir_axes_of(o->f, dot->res[0]);
  uint64_t of = (out | ir_axes_over(dot)) & o->keys;
  bool shared = of ? of & ~sums && is_shared(o, axes, of)
                   : (out & o->tasks & ~axes) && !(axes & o->rows);
  return op && op->code != OP_LOAD && sums && axes & o->vecs && shared &&
         !(of & sums) && !(axes & sums);
}

static bool is_known(const Own *o, Value v) {
  for (uint32_t i = 0; i < o->out.n; i++)
    if (o->out.cut[i] == v) return true;
  return false;
}

// Of the cuts the axis along which tasks have all.
static uint64_t last_vector(const Own *o) {
  uint32_t last = 63;
  while (last && !((o->axes & o->vecs) >> last & 1)) last--;
  return (uint64_t)1 << last;
}

// Axes of the first cut, or of one that has those and more of vectors: the sums
// beside a matrix, of its rows, are made with it.
static uint64_t most_axes(const Own *o) {
  uint64_t most = 0;
  for (const Op *op = o->f->body->first; op; op = op->next)
    for (uint32_t i = 0; op->code == OP_DOT && i < op->nargs; i++) {
      uint64_t axes = ir_axes_of(o->f, op->args[i]), more = axes & ~most;
      bool wider = more && !(most & ~axes) && !(more & ~o->vecs);
      if (is_cut(o, op, op->args[i]) && (!most || wider)) most = axes;
    }
  return most;
}

static bool add_cut(Own *o, Value v) {
  if (is_known(o, v)) return true;
  if (o->out.n == MAX_OUTLINED) return false;
  o->out.cut[o->out.n++] = v;
  return true;
}

// Sums over keys that rows of a matrix have beside it, whatever uses them.
static void find_beside(Own *o, uint64_t rows) {
  outlined_close(&o->out, &o->cx->scratch);
  for (const Op *op = o->f->body->first; op; op = op->next)
    if (op->nres && ir_axes_over(op) & o->keys && !o->out.wanted[op->res[0]] &&
        ir_axes_of(o->f, op->res[0]) == rows && !add_cut(o, op->res[0]))
      return;
}

static bool find_cuts(Own *o) {
  o->out.n = 0;
  o->axes = most_axes(o);
  uint64_t rows = o->axes & ~last_vector(o);
  for (const Op *op = o->f->body->first; op; op = op->next)
    for (uint32_t i = 0; op->code == OP_DOT && i < op->nargs; i++) {
      Value v = op->args[i];
      uint64_t axes = ir_axes_of(o->f, v);
      if (is_cut(o, op, v) && (axes == o->axes || axes == rows) &&
          !add_cut(o, v))
        return true;
    }
  if (o->out.n && rows & o->vecs) find_beside(o, rows);
  return o->out.n > 0;
}

// Of matrices the elements of all axes but the last, where sums do not go over
// them: a task has some rows of a matrix.
static uint64_t rows_of(const Own *o) {
  uint64_t vecs = o->axes & o->vecs & ~last_vector(o);
  for (const Op *op = o->f->body->first; op; op = op->next)
    if (op->nres && o->out.wanted[op->res[0]]) vecs &= ~ir_axes_over(op);
  return vecs;
}

static bool is_plain(const Func *f) {
  for (const Op *op = f->body->first; op; op = op->next)
    if (op->nregions || op->code == OP_CALL) return false;
  return f->kind == FK_PROGRAM && f->axes.n <= 64;
}

// Returns the number of phases that it puts in front of f.
static uint32_t run(Ctx *cx, Func *f) {
  Own o = {.cx = cx,
           .f = f,
           .out = {.f = f, .phase = "sums", .tensor = "sums", .value = "sum"}};
  uint32_t made = 0;
  if (!is_plain(f) || !(o.tasks = outline_tasks(f))) return 0;
  o.rows = find_rows(f);
  o.keys = ir_axes_with(f, AX_KEY);
  o.vecs = ir_axes_with(f, AX_VEC);
  while (outline_count(f) < MAX_FRONT) {
    find_sums(&o);
    if (!find_cuts(&o)) break;
    outlined_close(&o.out, &cx->scratch);
    // What it is made of depends on other tasks' axes.
    if (o.out.has & ir_axes_with(f, AX_PAR) & ~o.axes) break;
    o.out.rows = rows_of(&o);
    outlined_make(&o.out, made++);
    ir_sweep(f);
    ctx_remark(cx, "%s: operands that are sums of their own are made ahead",
               f->name);
  }
  return made;
}

bool pass_own_sums(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) i += run(cx, m->funcs.at[i]);
  return true;
}
