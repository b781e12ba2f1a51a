// The call's program in the interpreter, at level attn or stream. Both forms
// of a program must agree there up to f64 rounding.
#include "tools/driver/run/forms.h"

#include "frontend/oracle.h"

// Operations that the interpreter should not be asked for.
#define TOO_MUCH 2e9

void drv_interp_tensor(const DrvArg *a, InterpTensor *t) {
  *t = (InterpTensor){.dtype = a->array.dtype,
                      .rank = (uint32_t)a->array.rank,
                      .data = a->array.data,
                      .scalar = a->value,
                      .given = a->given};
  if (a->scalar) t->dtype = a->dtype;
  int64_t stride = 1;
  for (int i = a->array.rank - 1; i >= 0; i--) {
    t->shape[i] = a->array.shape[i];
    t->stride[i] = stride;
    stride *= a->array.shape[i];
  }
}

// Results are kept in f64: rounding them would hide what differs.
static bool widen(Ctx *cx, DrvArg *a) {
  NpyArray old = a->array;
  int size = dtype_size(old.dtype);
  a->array.dtype = DT_F64;
  if (!drv_alloc(cx, &a->array)) return false;
  double *to = a->array.data;
  for (int64_t i = 0; i < old.count; i++)
    to[i] = dtype_load(old.dtype, (const char *)old.data + i * size);
  return true;
}

// Dims of the module: those of the program by name, others (totals of ragged
// dims, blocks of paged arrays) by the arrays' shapes.
const int64_t *drv_module_dims(const DrvCall *c, const Module *m,
                               const Func *f) {
  const DimTab *t = &m->dims;
  Arena *a = &c->cx->session;
  int64_t *dims = NEWN(a, int64_t, t->syms.n + 1);
  bool *known = NEWN(a, bool, t->syms.n + 1);
  for (uint32_t i = 0; i < t->syms.n; i++) {
    uint32_t sym;
    if (!dim_find_sym(c->prog->dims, t->syms.at[i].name, &sym)) continue;
    dims[i] = c->dims[sym];
    known[i] = c->known[sym];
  }
  for (uint32_t i = 0; i < f->params.n && i < c->nargs; i++) {
    const Type *ty = ir_type(f, f->params.at[i].v);
    for (uint32_t k = 0; ty->kind == TK_TENSOR && k < ty->n; k++) {
      const DimExpr *e = &t->exprs.at[ty->size[k]];
      if (e->op != DIM_SYM || known[e->value]) continue;
      dims[e->value] = c->args[i].array.shape[k];
      known[e->value] = true;
    }
  }
  return dims;
}

bool drv_interpret(DrvCall *c, Level level, const DrvOptions *opt,
                   const char **skip) {
  Ctx *cx = c->cx;
  DrvSpec s;
  if (oracle_cost(c->prog, c->dims) > TOO_MUCH) {
    *skip = "too large for the interpreter";
    return false;
  }
  if (!drv_choose(c, &s)) return false;
  Module *m = drv_lower(cx, s, NULL, level, opt);
  const Func *f = m ? ir_find(m, c->prog->name) : NULL;
  if (!f) return false;
  InterpTensor *args = NEWN(&cx->session, InterpTensor, c->nargs + 1);
  for (uint32_t i = 0; i < c->nargs; i++) {
    DrvArg *a = &c->args[i];
    bool written = a->out || (!a->scalar && a->param->qual == PQ_INOUT);
    if (written && !widen(cx, a)) return false;
    drv_interp_tensor(a, &args[i]);
  }
  const int64_t *dims = drv_module_dims(c, m, f);
  InterpOpt o = {.round = false, .seed = 1};
  return ir_interp(cx, m, f->name, args, dims, &o);
}
