// A program's arguments: what their arrays look like in memory, and setting
// them.
#include "ir/core/guess.h"
#include "tools/driver/driver.h"

#include <math.h>

// ---------------------------------------------------------------- shapes
static void physical(DrvArg *a) {
  const Ty *ty = &a->param->sym->ty;
  const Layout *l = a->param->layout;
  for (int i = 0; i < ty->rank; i++) {
    bool ordered = l && l->kind == LAY_ORDER;
    DrvAxis x = {DRV_DIM, ty->shape[ordered ? l->perm[i] : i]};
    if (l && l->kind == LAY_RAGGED) {
      if (i == l->batch_axis) continue;
      if (i == l->axis) x.kind = DRV_TOTAL;
    }
    if (l && l->kind == LAY_PAGED) {
      if (i == l->batch_axis) x.kind = DRV_BLOCKS;
      if (i == l->axis) x.dim = l->page;
    }
    a->axis[a->rank++] = x;
  }
}

static int generic_at(const Decl *d, const char *name) {
  for (uint32_t i = 0; i < d->generics.n; i++)
    if (d->generics.at[i].kind == GEN_DTYPE && d->generics.at[i].name == name)
      return (int)i;
  return -1;
}

// A gradient of 8-bit floats has 16 bits; what is kept of f64 is f64, of others
// f32.
static DType held(const DrvCall *c, const DrvArg *a, DType t) {
  const Derived *d = c->prog->derived;
  bool gradient =
      (d && d->gradient && a->out) || drv_is_tangent(c->prog, a->param->name);
  DType least = a->param->type->dtype;
  if (a->param->type->generic && least != DT_NONE)
    return t == DT_F64 ? t : least;
  return gradient && dtype_size(t) == 1 ? DT_BF16 : t;
}

static DrvArg make_arg(const DrvCall *c, const Param *p, bool out) {
  DrvArg a = {.param = p, .out = out};
  int g = generic_at(c->prog, p->type->generic);
  a.dtype = g < 0 ? p->sym->ty.dtype : DT_NONE;
  if (g >= 0)
    a.dtype = c->prog->generics.at[g].dtypes.n == 1
                  ? c->prog->generics.at[g].dtypes.at[0]
                  : DT_NONE;
  a.dtype = held(c, &a, a.dtype);
  a.scalar = p->sym->ty.rank == 0 && !out;
  physical(&a);
  return a;
}

bool drv_call(Ctx *cx, Decl *prog, DrvCall *out) {
  Arena *a = &cx->session;
  uint32_t n = prog->params.n + prog->outs.n, nd = prog->dims->syms.n + 1;
  *out = (DrvCall){.cx = cx, .prog = prog, .nargs = n};
  out->args = NEWN(a, DrvArg, n + 1);
  out->dims = NEWN(a, int64_t, nd);
  out->known = NEWN(a, bool, nd);
  out->from = NEWN(a, const char *, nd);
  out->total = NEWN(a, int64_t, nd);
  out->types = NEWN(a, DType, prog->generics.n + 1);
  for (uint32_t i = 0; i < prog->generics.n; i++) out->types[i] = DT_NONE;
  for (uint32_t i = 0; i < nd; i++) out->total[i] = -1;
  for (uint32_t i = 0; i < n; i++) {
    bool is_out = i >= prog->params.n;
    const Param *p =
        is_out ? &prog->outs.at[i - prog->params.n] : &prog->params.at[i];
    out->args[i] = make_arg(out, p, is_out);
  }
  return true;
}

// A dim is no parameter, nor a parameter a dim: which option gives it.
static bool is_other_kind(const DrvCall *c, Diag *d, const char *name) {
  uint32_t sym;
  for (uint32_t i = 0; i < c->nargs; i++) {
    const DrvArg *a = &c->args[i];
    if (strcmp(a->param->name, name) != 0) continue;
    diag_note(c->cx, d, a->param->name_span, "a parameter is given by %s %s=..",
              a->scalar ? "--set" : "--in", name);
    return true;
  }
  if (!dim_find_sym(c->prog->dims, intern(&c->cx->names, name), &sym))
    return false;
  diag_note(c->cx, d, NOWHERE, "a dim is given by --dim %s=..", name);
  return true;
}

// A parameter or dim whose name is near; `d` for D.
static void offer(const DrvCall *c, Diag *d, const char *name) {
  if (is_other_kind(c, d, name)) return;
  Guess g = guess_start(name);
  for (uint32_t i = 0; i < c->nargs; i++) guess_try(&g, c->args[i].param->name);
  for (uint32_t i = 0; i < c->prog->generics.n; i++)
    guess_try(&g, c->prog->generics.at[i].name);
  if (g.best) diag_note(c->cx, d, NOWHERE, "did you mean '%s'?", g.best);
}

DrvArg *drv_arg(DrvCall *c, const char *name) {
  for (uint32_t i = 0; i < c->nargs; i++)
    if (strcmp(c->args[i].param->name, name) == 0) return &c->args[i];
  Diag *d = diag_add(c->cx, DIAG_data_name, NOWHERE, name, c->prog->name);
  Buf b = {.arena = &c->cx->session};
  for (uint32_t i = 0; i < c->nargs; i++)
    buf_printf(&b, "%s%s", i ? ", " : "", c->args[i].param->name);
  diag_note(c->cx, d, NOWHERE, "it has: %s", b.at);
  offer(c, d, name);
  return NULL;
}

// ---------------------------------------------------------------- values
bool drv_set_dim(DrvCall *c, const char *name, int64_t v, const char *from) {
  uint32_t sym;
  const char *known = intern(&c->cx->names, name);
  if (!dim_find_sym(c->prog->dims, known, &sym)) {
    offer(c, diag_add(c->cx, DIAG_data_name, NOWHERE, name, c->prog->name),
          name);
    return false;
  }
  c->dims[sym] = v;
  c->known[sym] = true;
  c->from[sym] = from;
  return true;
}

// A choice for a dtype generic holds for all its parameters.
static void choose_dtype(DrvCall *c, int g, DType t) {
  c->types[g] = t;
  for (uint32_t i = 0; i < c->nargs; i++)
    if (generic_at(c->prog, c->args[i].param->type->generic) == g)
      c->args[i].dtype = held(c, &c->args[i], t);
}

void drv_first_dtype(DrvCall *c, DrvArg *a) {
  int g = generic_at(c->prog, a->param->type->generic);
  if (g >= 0) choose_dtype(c, g, c->prog->generics.at[g].dtypes.at[0]);
}

bool drv_has_dtype(const Decl *prog, const char *generic) {
  return generic_at(prog, generic) >= 0;
}

bool drv_set_dtype(DrvCall *c, const char *generic, DType t) {
  int g = generic_at(c->prog, intern(&c->cx->names, generic));
  if (g >= 0) choose_dtype(c, g, t);
  else
    offer(c, diag_add(c->cx, DIAG_data_name, NOWHERE, generic, c->prog->name),
          generic);
  return g >= 0;
}

// What an array of `have` may stand for without losing anything.
static bool carries(DType have, DType want) {
  if (have == want) return true;
  switch (want) {
  case DT_BF16: return have == DT_U16;
  case DT_F8E4M3:
  case DT_F8E5M2: return have == DT_U8;
  case DT_TF32: return have == DT_F32;
  default: return false;
  }
}

bool drv_decide(DrvCall *c, DrvArg *a, DType have) {
  int g = generic_at(c->prog, a->param->type->generic);
  const Generic *gen = &c->prog->generics.at[g];
  DType pick = gen->dtypes.at[0];
  for (uint32_t i = gen->dtypes.n; i-- > 0;)
    if (carries(have, gen->dtypes.at[i])) pick = gen->dtypes.at[i];
  choose_dtype(c, g, pick);
  return true;
}

static bool rounds(DType have, DType want) {
  if (have != DT_F32) return false;
  return want == DT_BF16 || want == DT_F16 || want == DT_F8E4M3 ||
         want == DT_F8E5M2;
}

// Integers convert where every value survives.
static bool convert(NpyArray *to, const NpyArray *from) {
  int fs = dtype_size(from->dtype), ts = dtype_size(to->dtype);
  bool ints = !dtype_is_float(to->dtype);
  for (int64_t i = 0; i < from->count; i++) {
    double v = dtype_load(from->dtype, (const char *)from->data + i * fs);
    char *at = (char *)to->data + i * ts;
    dtype_store(to->dtype, at, v);
    if (ints && dtype_load(to->dtype, at) != v) return false;
  }
  return true;
}

void drv_room(Ctx *cx, size_t bytes) {
  ArenaPool *p = cx->session.pool;
  if (p) atomic_fetch_add(&p->limit, bytes);
}

void *drv_alloc(Ctx *cx, NpyArray *x) {
  x->count = 1;
  for (int i = 0; i < x->rank; i++)
    if (__builtin_mul_overflow(x->count, x->shape[i], &x->count) ||
        x->count > (int64_t)1 << 40)
      return NULL;
  size_t bytes = (size_t)x->count * (size_t)dtype_size(x->dtype);
  drv_room(cx, bytes + 64);
  char *p = arena_alloc(&cx->session, bytes + 64);
  return x->data = p + (64 - (uintptr_t)p % 64) % 64;
}

static bool refuse_dtype(DrvCall *c, const DrvArg *a, const NpyArray *x,
                         const char *origin) {
  Diag *d = diag_add(c->cx, DIAG_data_dtype, NOWHERE, a->param->name,
                     dtype_name(a->dtype), origin, dtype_name(x->dtype));
  if (dtype_is_float(a->dtype))
    diag_note(c->cx, d, NOWHERE, "convert it: x.astype(numpy.%s)",
              a->dtype == DT_F64   ? "float64"
              : a->dtype == DT_F16 ? "float16"
                                   : "float32");
  return false;
}

bool drv_set_array(DrvCall *c, DrvArg *a, const NpyArray *x,
                   const char *origin) {
  if (a->scalar) {
    if (x->count == 1)
      return drv_set_scalar(c, a, dtype_load(x->dtype, x->data));
    diag_add(c->cx, DIAG_data_rank, NOWHERE, a->param->name, 0, origin,
             x->rank);
    return false;
  }
  if ((uint32_t)x->rank != a->rank) {
    diag_add(c->cx, DIAG_data_rank, NOWHERE, a->param->name, (int)a->rank,
             origin, x->rank);
    return false;
  }
  if (a->dtype == DT_NONE) drv_decide(c, a, x->dtype);
  a->array = *x;
  a->origin = origin;
  a->array.dtype = a->dtype;
  if (carries(x->dtype, a->dtype)) return true;
  bool ints = !dtype_is_float(x->dtype) && !dtype_is_float(a->dtype);
  if (!ints && !rounds(x->dtype, a->dtype))
    return refuse_dtype(c, a, x, origin);
  return (drv_alloc(c->cx, &a->array) && convert(&a->array, x)) ||
         refuse_dtype(c, a, x, origin);
}

bool drv_set_scalar(DrvCall *c, DrvArg *a, double v) {
  if (!a->scalar) {
    diag_add(c->cx, DIAG_data_rank, NOWHERE, a->param->name, (int)a->rank,
             "--set", 0);
    return false;
  }
  if (a->dtype == DT_NONE) drv_decide(c, a, DT_F32);
  double r = dtype_round(a->dtype, v);
  if (!dtype_is_float(a->dtype) && r != v) {
    diag_add(c->cx, DIAG_data_value, NOWHERE, v, a->param->name,
             dtype_name(a->dtype));
    return false;
  }
  a->value = r;
  a->given = true;
  return true;
}

bool drv_choose(DrvCall *c, DrvSpec *out) {
  DrvBinds fixed = {0};
  const DimTab *t = c->prog->dims;
  for (uint32_t i = 0; i < t->syms.n; i++) {
    FeBind b = {t->syms.at[i].name, c->dims[i], DT_NONE};
    if (t->syms.at[i].kind == DIM_SPEC && c->known[i])
      vec_push(&c->cx->session, &fixed, b);
  }
  for (uint32_t i = 0; i < c->prog->generics.n; i++) {
    FeBind b = {c->prog->generics.at[i].name, 0, c->types[i]};
    if (c->types[i] != DT_NONE) vec_push(&c->cx->session, &fixed, b);
  }
  FeBind *binds;
  uint32_t width;
  if (!fe_specializations(c->cx, c->prog, fixed.at, fixed.n, &binds, &width))
    return false;
  *out = (DrvSpec){.prog = c->prog, .binds = binds, .n = width};
  return true;
}
