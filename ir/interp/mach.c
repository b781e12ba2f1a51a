// Level mach of the CPU, executed: scalars, vectors and memory. Every access
// is checked: scratch against its alloc, a tensor against its shape. Scratch
// starts as NaN. Elements are doubles (pairs of bf16 keep both halves), so
// that without rounding the results are those of the tile level.
#include "ir/interp/interp.h"
#include "ir/target.h"

#include <math.h>
#include <string.h>

// One lane. `hi` is the high half of an i32 that packs two 16-bit values.
typedef struct Lane {
  double v, hi;
} Lane;

// Memory of an alloc (cells) or of a tensor.
typedef struct Mem {
  DType dtype;
  Lane *cell;      // scratch, NULL for a tensor
  int64_t lo, hi;  // offsets allowed, in elements
  InterpTensor *tensor;
} Mem;

typedef struct Val {
  uint32_t n;  // lanes; 1 for scalars
  Lane *lane;
  Mem *mem;       // pointers
  int64_t off;    // in elements of mem
  uint32_t view;  // 2: element i is the pair 2i, 2i + 1 of mem
} Val;

typedef struct Mach {
  Interp *in;
  Val *val;            // per value
  Arena *arena;        // of this task
  int64_t origin[64];  // per axis
} Mach;

static void region(Mach *x, const Region *r);

static const Type *type_of(const Mach *x, Value v) {
  return ir_type(x->in->f, v);
}

static Val *get(const Mach *x, Value v) {
  return &x->val[v];
}

static double scalar(const Mach *x, Value v) {
  return get(x, v)->lane[0].v;
}

static Val *define(Mach *x, Value v) {
  const Type *t = type_of(x, v);
  uint32_t n = t->kind == TK_VEC ? t->n : 1;
  Val *r = get(x, v);
  // A loop defines a value again and again: its lanes are reused.
  if (!r->lane || r->n != n) *r = (Val){.lane = NEWN(x->arena, Lane, n)};
  r->n = n;
  for (uint32_t l = 0; l < n; l++) r->lane[l] = (Lane){0, 0};
  return r;
}

static double rounded(const Mach *x, DType t, double v) {
  return interp_round(x->in, t, v);
}

// ---------------------------------------------------------------- memory
static Mem *tensor_mem(Mach *x, Value v) {
  Val *r = get(x, v);
  if (r->mem) return r->mem;
  InterpTensor *t = &x->in->args[x->in->arg_of[v]];
  Mem *m = NEW(x->in->arena, Mem);
  *m = (Mem){.dtype = t->dtype, .tensor = t};
  bool empty = !t->data;
  for (uint32_t i = 0; i < t->rank; i++) {
    int64_t span = (t->shape[i] - 1) * t->stride[i];
    if (t->shape[i] == 0) empty = true;
    if (span < 0) m->lo += span;
    else m->hi += span;
  }
  m->hi++;
  if (empty) m->lo = m->hi = 0;
  return r->mem = m;
}

static void alloc(Mach *x, const Op *op) {
  int64_t n = 0;
  Val *r = define(x, op->res[0]);
  if (!dim_eval(&x->in->m->dims, (Dim)ir_attr_i(op, AT_DIM, 0), x->in->dims,
                &n) ||
      n > 1 << 26) {
    interp_fail(x->in, op, "the size has no value");
    return;
  }
  Mem *m = NEW(x->arena, Mem);
  *m = (Mem){.dtype = type_of(x, op->res[0])->dtype,
             .hi = n,
             .cell = NEWN(x->arena, Lane, n + 1)};
  for (int64_t i = 0; i < n; i++) m->cell[i] = (Lane){NAN, NAN};
  r->mem = m;
  r->off = 0;
  r->view = 1;
}

static bool inside(Mach *x, const Op *op, const Mem *m, int64_t i) {
  if (i >= m->lo && i < m->hi) return true;
  interp_fail(x->in, op, "access outside of the memory");
  return false;
}

static double read_cell(const Mem *m, int64_t i, double *hi) {
  if (m->cell) {
    *hi = m->cell[i].hi;
    return m->cell[i].v;
  }
  *hi = 0;
  return dtype_load(m->dtype,
                    (char *)m->tensor->data + i * dtype_size(m->dtype));
}

static Lane read(Mach *x, const Op *op, const Val *p, int64_t i) {
  Lane r = {NAN, NAN};
  const Mem *m = p->mem;
  i = i * p->view + p->off;
  if (!inside(x, op, m, i)) return r;
  r.v = read_cell(m, i, &r.hi);
  if (p->view == 2) {
    double none;
    if (inside(x, op, m, i + 1)) r.hi = read_cell(m, i + 1, &none);
  }
  return r;
}

static void write(Mach *x, const Op *op, const Val *p, int64_t i, Lane v) {
  Mem *m = p->mem;
  i = i * p->view + p->off;
  if (p->view != 1 && !m->cell) interp_fail(x->in, op, "store through a view");
  if (x->in->failed || !inside(x, op, m, i)) return;
  if (p->view == 2) {
    if (!inside(x, op, m, i + 1)) return;
    m->cell[i + 1] = (Lane){rounded(x, m->dtype, v.hi), 0};
    v.hi = 0;
  }
  if (m->cell) {
    m->cell[i] = (Lane){rounded(x, m->dtype, v.v), v.hi};
    return;
  }
  dtype_store(m->dtype, (char *)m->tensor->data + i * dtype_size(m->dtype),
              v.v);
}

static bool on(const Mach *x, const Op *op, uint32_t arg, uint32_t l) {
  return op->nargs <= arg || get(x, op->args[arg])->lane[l].v != 0;
}

static int64_t place(const Mach *x, const Op *op, uint32_t l) {
  bool each = op->code == OP_VGATHER || op->code == OP_VSCATTER;
  const Val *i = get(x, op->args[1]);
  return (int64_t)i->lane[each ? l : 0].v + (each ? 0 : (int64_t)l);
}

static void load(Mach *x, const Op *op) {
  Val *r = define(x, op->res[0]);
  const Val *p = get(x, op->args[0]);
  for (uint32_t l = 0; l < r->n; l++)
    if (on(x, op, 2, l)) r->lane[l] = read(x, op, p, place(x, op, l));
}

static void store(Mach *x, const Op *op) {
  const Val *p = get(x, op->args[0]), *v = get(x, op->args[2]);
  for (uint32_t l = 0; l < v->n; l++)
    if (on(x, op, 3, l)) write(x, op, p, place(x, op, l), v->lane[l]);
}

// ---------------------------------------------------------------- tiles
// The pointer p, `row` rows of so many bytes further.
static Val row_of(Mach *x, const Op *op, uint32_t row) {
  Val p = *get(x, op->args[0]);
  int64_t bytes = (int64_t)scalar(x, op->args[2]) * row;
  int64_t size = dtype_size(p.mem->dtype);
  if (bytes % size) interp_fail(x->in, op, "a row is between two elements");
  p.off += bytes / size;
  return p;
}

static void mat_move(Mach *x, const Op *op) {
  bool st = op->code == OP_MAT_ST;
  Val *t = st ? get(x, op->args[3]) : define(x, op->res[0]);
  int64_t at = (int64_t)scalar(x, op->args[1]);
  for (uint32_t l = 0; l < t->n; l++) {
    Val p = row_of(x, op, l / HW_MAT_COLS);
    int64_t i = at + l % HW_MAT_COLS;
    if (st) write(x, op, &p, i, t->lane[l]);
    else t->lane[l] = read(x, op, &p, i);
  }
}

// Sums of the low and of the high halves, then both.
static void mat_dot(Mach *x, const Op *op) {
  const Val *acc = get(x, op->args[0]), *a = get(x, op->args[1]);
  const Val *b = get(x, op->args[2]);
  Val *r = define(x, op->res[0]);
  for (uint32_t l = 0; l < r->n; l++) {
    Lane sum = {0, 0};
    uint32_t row = l / HW_MAT_COLS * HW_MAT_COLS, col = l % HW_MAT_COLS;
    for (uint32_t k = 0; k < HW_MAT_ROWS; k++) {
      const Lane *p = &a->lane[row + k], *q = &b->lane[k * HW_MAT_COLS + col];
      sum.v = rounded(x, DT_F32, fma(p->v, q->v, sum.v));
      sum.hi = rounded(x, DT_F32, fma(p->hi, q->hi, sum.hi));
    }
    double both = rounded(x, DT_F32, sum.v + sum.hi);
    r->lane[l].v = rounded(x, DT_F32, acc->lane[l].v + both);
  }
}

static void mat_zero(Mach *x, const Op *op) {
  define(x, op->res[0]);
}

static void pointer(Mach *x, const Op *op) {
  const Val *p = get(x, op->args[0]);
  Val *r = define(x, op->res[0]);
  r->mem = p->mem;
  r->off = p->off;
  r->view = p->view;
  if (op->code == OP_PADD) {
    r->off += (int64_t)scalar(x, op->args[1]) * p->view;
  } else {
    int64_t to = dtype_size(type_of(x, op->res[0])->dtype);
    r->view = (uint32_t)(to / dtype_size(p->mem->dtype));
  }
}

// ---------------------------------------------------------------- values
static void constant(Mach *x, const Op *op) {
  Val *r = define(x, op->res[0]);
  const IrAttr *f = ir_attr(op, AT_VALUE);
  int64_t d = ir_attr_i(op, AT_IVALUE, 0);
  if (op->code == OP_DIM)
    dim_eval(&x->in->m->dims, (Dim)ir_attr_i(op, AT_DIM, 0), x->in->dims, &d);
  if (op->code == OP_ORIGIN) d = x->origin[ir_attr_i(op, AT_AXIS, 0)];
  r->lane[0].v = f ? f->f : dtype_number(d);
}

static void tensor_fact(Mach *x, const Op *op) {
  const InterpTensor *t = &x->in->args[x->in->arg_of[op->args[0]]];
  int64_t pos = ir_attr_i(op, AT_POS, 0);
  Val *r = define(x, op->res[0]);
  if (op->code == OP_TPTR) {
    r->mem = tensor_mem(x, op->args[0]);
    r->off = 0;
    r->view = 1;
  } else if (op->code == OP_GIVEN) {
    r->lane[0].v = t->rank || t->data ? t->data != NULL : t->given;
  } else {
    r->lane[0].v = (double)(op->code == OP_TSHAPE ? t->shape : t->stride)[pos];
  }
}

static double cast(const Mach *x, const Op *op, double v) {
  DType to = (DType)ir_attr_i(op, AT_TO, DT_F32);
  return dtype_is_float(to) && !x->in->opt->round ? v : dtype_round(to, v);
}

static void elementwise(Mach *x, const Op *op) {
  Val *r = define(x, op->res[0]);
  DType to = type_of(x, op->res[0])->dtype;
  for (uint32_t l = 0; l < r->n; l++) {
    double a[ELEM_ARGS] = {0};
    for (uint32_t i = 0; i < op->nargs; i++)
      a[i] = get(x, op->args[i])->lane[l].v;
    double v = op->code == OP_CAST ? cast(x, op, a[0]) : eval_op(op->code, a);
    r->lane[l].v = rounded(x, to, v);
  }
}

static void reduce(Mach *x, const Op *op) {
  const Val *v = get(x, op->args[0]);
  RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  DType t = type_of(x, op->res[0])->dtype;
  double a[256];
  for (uint32_t l = 0; l < v->n && l < 256; l++) a[l] = v->lane[l].v;
  for (uint32_t h = v->n / 2; h; h /= 2)
    for (uint32_t l = 0; l < h; l++)
      a[l] = rounded(x, t, eval_reduce(k, a[l], a[l + h]));
  define(x, op->res[0])->lane[0].v = a[0];
}

static Lane swapped(const Op *op, const Val *a, const Val *b, uint32_t l) {
  uint32_t m = (uint32_t)ir_attr_i(op, AT_POS, 1);
  if (ir_attr_i(op, AT_REVERSE, 0)) return l & m ? b->lane[l] : a->lane[l + m];
  return l & m ? b->lane[l - m] : a->lane[l];
}

static void lanes(Mach *x, const Op *op) {
  const Val *a = op->nargs ? get(x, op->args[0]) : NULL;
  const Val *b = op->nargs > 1 ? get(x, op->args[1]) : NULL;
  const Val *c = op->nargs > 2 ? get(x, op->args[2]) : NULL;
  Val *r = define(x, op->res[0]);
  DType t = type_of(x, op->res[0])->dtype;
  for (uint32_t l = 0; l < r->n; l++) {
    Lane *to = &r->lane[l];
    switch (op->code) {
    case OP_SPLAT: *to = a->lane[0]; break;
    case OP_VIOTA: to->v = l; break;
    case OP_VMASK: to->v = l < a->lane[0].v; break;
    case OP_EXTRACT: *to = a->lane[(uint32_t)b->lane[0].v % a->n]; break;
    case OP_INSERT: *to = l == b->lane[0].v ? c->lane[0] : a->lane[l]; break;
    case OP_PACK2: *to = (Lane){a->lane[l].v, b->lane[l].v}; break;
    case OP_VSWAP: *to = swapped(op, a, b, l); break;
    default:  // dpbf16
      to->v = rounded(x, t, fma(b->lane[l].hi, c->lane[l].hi, a->lane[l].v));
      to->v = rounded(x, t, fma(b->lane[l].v, c->lane[l].v, to->v));
    }
  }
}

// ---------------------------------------------------------------- control
static void copy(Mach *x, const Value *to, const Value *from, uint32_t n) {
  Val *v = NEWN(x->arena, Val, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    v[i] = *get(x, from[i]);
    v[i].lane = NEWN(x->arena, Lane, v[i].n);
    memcpy(v[i].lane, get(x, from[i])->lane, v[i].n * sizeof(Lane));
  }
  for (uint32_t i = 0; i < n; i++) *get(x, to[i]) = v[i];
}

static void loop(Mach *x, const Op *op) {
  const Region *r = op->regions[0];
  int64_t lo = (int64_t)scalar(x, op->args[0]);
  int64_t hi = (int64_t)scalar(x, op->args[1]);
  int64_t step = (int64_t)scalar(x, op->args[2]);
  bool rev = ir_attr_i(op, AT_REVERSE, 0);
  if (step <= 0) interp_fail(x->in, op, "step is not positive");
  if (x->in->failed) return;
  const Value *state = r->params.at + 1;
  copy(x, state, op->args + 3, op->nres);
  int64_t n = hi > lo ? (hi - lo + step - 1) / step : 0;
  for (int64_t i = 0; i < n && !x->in->failed; i++) {
    if (++x->in->steps > 20000000) interp_fail(x->in, op, "too many steps");
    define(x, r->params.at[0])->lane[0].v =
        (double)(lo + (rev ? n - 1 - i : i) * step);
    region(x, r);
    if (!x->in->failed) copy(x, state, r->last->args, op->nres);
  }
  copy(x, op->res, state, op->nres);
}

static void branch(Mach *x, const Op *op) {
  const Region *r = op->regions[scalar(x, op->args[0]) == 0];
  region(x, r);
  if (!x->in->failed) copy(x, op->res, r->last->args, op->nres);
}

static void nothing(Mach *x, const Op *op) {
  (void)x, (void)op;
}

typedef void ExecFn(Mach *x, const Op *op);

static ExecFn *const exec[OP_COUNT] = {
    [OP_CONST] = constant,
    [OP_DIM] = constant,
    [OP_ORIGIN] = constant,
    [OP_GIVEN] = tensor_fact,
    [OP_TPTR] = tensor_fact,
    [OP_TSHAPE] = tensor_fact,
    [OP_TSTRIDE] = tensor_fact,
    [OP_ALLOC] = alloc,
    [OP_PADD] = pointer,
    [OP_PVIEW] = pointer,
    [OP_PREFETCH] = nothing,
    [OP_PREFETCH_FAR] = nothing,
    [OP_LD] = load,
    [OP_VLD] = load,
    [OP_VGATHER] = load,
    [OP_ST] = store,
    [OP_VST] = store,
    [OP_VSCATTER] = store,
    [OP_SPLAT] = lanes,
    [OP_VIOTA] = lanes,
    [OP_VMASK] = lanes,
    [OP_EXTRACT] = lanes,
    [OP_INSERT] = lanes,
    [OP_PACK2] = lanes,
    [OP_VSWAP] = lanes,
    [OP_DPBF16] = lanes,
    [OP_MAT_ZERO] = mat_zero,
    [OP_MAT_LD] = mat_move,
    [OP_MAT_ST] = mat_move,
    [OP_MAT_DPBF16] = mat_dot,
    [OP_VREDUCE] = reduce,
    [OP_FOR] = loop,
    [OP_IF] = branch,
};

static void region(Mach *x, const Region *r) {
  for (const Op *op = r->first; op && !x->in->failed; op = op->next) {
    if (op->code == OP_YIELD) continue;
    ExecFn *fn = exec[op->code];
    if (!fn && op_info(op->code)->flags & OPF_ELEM) fn = elementwise;
    if (fn) fn(x, op);
    else interp_fail(x->in, op, "the interpreter has no such op");
  }
}

static void one_task(Mach *x) {
  const Func *f = x->in->f;
  Arena a = {.oom = x->in->cx->session.oom,
             .oom_data = x->in->cx->session.oom_data};
  x->arena = &a;
  x->val = NEWN(&a, Val, f->values.n + 1);
  for (uint32_t i = 0; i < f->params.n; i++) {
    Value v = f->params.at[i].v;
    if (type_of(x, v)->kind != TK_TENSOR)
      define(x, v)->lane[0].v = x->in->args[i].scalar;
  }
  region(x, f->body);
  arena_drop(&a);
}

static void tasks(Mach *x, uint32_t i) {
  const Func *f = x->in->f;
  if (i == f->grid.n) {
    one_task(x);
    return;
  }
  const GridDim *g = &f->grid.at[i];
  int64_t n = x->in->extent[g->axis];
  for (int64_t c = 0; c < n && !x->in->failed; c += g->tile) {
    x->origin[g->axis] = c;
    tasks(x, i + 1);
  }
}

bool interp_mach(Interp *in) {
  Mach x = {.in = in};
  tasks(&x, 0);
  return !in->failed;
}
