// Dims from the shapes of arrays, by the rules of a launch: plain axes first,
// then expressions with one unknown (B + 1), until nothing changes.
//   Q: [B, H], offs: [B + 1]; Q.shape = (2, 4), offs.shape = (3,)
//   -> B = 2, H = 4
// Needed before there is code: the dims choose what is compiled.
#include "frontend/check.h"
#include "tools/driver/driver.h"

// ---------------------------------------------------------------- evaluating
// The dims that d uses: how many are unknown, and the last of them.
static uint32_t unknowns(const DrvCall *c, Dim d, uint32_t *sym) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->prog->dims->syms.n; i++)
    if (!c->known[i] && dim_uses(c->prog->dims, d, i)) {
      *sym = i;
      n++;
    }
  return n;
}

static bool value_of(const DrvCall *c, Dim d, int64_t *v) {
  uint32_t sym;
  return !unknowns(c, d, &sym) && dim_eval(c->prog->dims, d, c->dims, v);
}

// The symbol of a ragged dim.
static bool plain_sym(const DrvCall *c, Dim d, uint32_t *sym) {
  const DimExpr *e = &c->prog->dims->exprs.at[d];
  if (e->op != DIM_SYM) return false;
  *sym = (uint32_t)e->value;
  return true;
}

static int64_t blocks(const DrvCall *c, const DrvArg *a) {
  if (a->array.data) return -1;
  // As many as its page table has entries.
  const Sym *table = a->param->layout->table;
  int64_t n = 1;
  for (uint32_t i = 0; i < c->nargs; i++) {
    const DrvArg *t = &c->args[i];
    if (t->param->name != table->name) continue;
    for (uint32_t k = 0; k < t->rank; k++) {
      int64_t v = drv_extent(c, t, k);
      if (v < 0) return -1;
      n *= v;
    }
    return n;
  }
  return -1;
}

int64_t drv_extent(const DrvCall *c, const DrvArg *a, uint32_t axis) {
  const DrvAxis *x = &a->axis[axis];
  int64_t v = -1;
  uint32_t sym;
  switch (x->kind) {
  case DRV_DIM: return value_of(c, x->dim, &v) ? v : -1;
  case DRV_TOTAL: return plain_sym(c, x->dim, &sym) ? c->total[sym] : -1;
  case DRV_BLOCKS: return blocks(c, a);
  }
  return v;
}

// ---------------------------------------------------------------- solving
static const char *place(const DrvCall *c, const DrvArg *a, uint32_t axis) {
  return arena_printf(&c->cx->session, "'%s', axis %u", a->param->name, axis);
}

// The unknown x of d(x) = v if d is affine in it.
static bool affine(const DrvCall *c, Dim d, uint32_t sym, int64_t v,
                   int64_t *x) {
  const DimTab *t = c->prog->dims;
  int64_t f0, f1, f2, back;
  int64_t *dims = c->dims, old = dims[sym];
  bool ok = (dims[sym] = 0, dim_eval(t, d, dims, &f0)) &&
            (dims[sym] = 1, dim_eval(t, d, dims, &f1)) &&
            (dims[sym] = 2, dim_eval(t, d, dims, &f2));
  ok = ok && f1 != f0 && f2 - f1 == f1 - f0 && (v - f0) % (f1 - f0) == 0;
  if (ok) {
    *x = dims[sym] = (v - f0) / (f1 - f0);
    ok = dim_eval(t, d, dims, &back) && back == v;
  }
  dims[sym] = old;
  return ok;
}

static bool solve_axis(DrvCall *c, const DrvArg *a, uint32_t i, bool plain) {
  const DrvAxis *x = &a->axis[i];
  int64_t have = a->array.shape[i], v;
  uint32_t sym = 0;
  if (x->kind == DRV_TOTAL && plain_sym(c, x->dim, &sym)) {
    if (c->total[sym] < 0) c->total[sym] = have;
    return false;
  }
  if (x->kind != DRV_DIM || unknowns(c, x->dim, &sym) != 1) return false;
  bool is_sym = c->prog->dims->exprs.at[x->dim].op == DIM_SYM;
  if (is_sym != plain || !affine(c, x->dim, sym, have, &v)) return false;
  c->dims[sym] = v;
  c->known[sym] = true;
  c->from[sym] = place(c, a, i);
  return true;
}

static bool solve_once(DrvCall *c, bool plain) {
  bool any = false;
  for (uint32_t k = 0; k < c->nargs; k++) {
    const DrvArg *a = &c->args[k];
    if (!a->array.data) continue;
    for (uint32_t i = 0; i < a->rank; i++)
      any = solve_axis(c, a, i, plain) || any;
  }
  return any;
}

// Dims with one possible value need no array.
static void only_values(DrvCall *c) {
  const DimTab *t = c->prog->dims;
  for (uint32_t i = 0; i < t->syms.n; i++) {
    const DimSym *s = &t->syms.at[i];
    if (c->known[i] || (s->values.n != 1 && s->lo != s->hi)) continue;
    c->dims[i] = s->values.n ? s->values.at[0] : s->lo;
    c->known[i] = true;
    c->from[i] = "its declaration";
  }
}

// ---------------------------------------------------------------- checking
static bool mismatch(DrvCall *c, const DrvArg *a, uint32_t i, int64_t want) {
  const DrvAxis *x = &a->axis[i];
  Buf b = {.arena = &c->cx->session};
  uint32_t sym;
  if (x->kind == DRV_DIM) dim_print(c->prog->dims, x->dim, &b);
  else buf_str(&b, "total");
  Diag *d = diag_add(c->cx, DIAG_data_shape, NOWHERE, a->param->name, (int)i,
                     (long long)a->array.shape[i], b.at, (long long)want);
  if (x->kind == DRV_DIM && plain_sym(c, x->dim, &sym) && c->from[sym])
    diag_note(c->cx, d, NOWHERE, "%s is from %s", b.at, c->from[sym]);
  return false;
}

static bool check_array(DrvCall *c, const DrvArg *a) {
  for (uint32_t i = 0; i < a->rank; i++) {
    int64_t want = drv_extent(c, a, i);
    // A padded array may be longer than its longest sequence.
    uint32_t sym;
    bool padded = a->axis[i].kind == DRV_DIM &&
                  plain_sym(c, a->axis[i].dim, &sym) &&
                  c->prog->dims->syms.at[sym].kind == DIM_RAGGED;
    if (want < 0 || a->array.shape[i] == want) continue;
    if (padded && a->array.shape[i] > want) continue;
    return mismatch(c, a, i, want);
  }
  return true;
}

static bool check_range(DrvCall *c, uint32_t i) {
  const DimSym *s = &c->prog->dims->syms.at[i];
  int64_t v = c->dims[i];
  if (dim_takes(s, v) && v % s->divisor == 0) return true;
  fe_bad_dim(c->cx, c->prog->name_span, s, v);
  return false;
}

bool drv_solve(DrvCall *c) {
  do {
    while (solve_once(c, true)) {}
  } while (solve_once(c, false));
  only_values(c);
  bool ok = true;
  for (uint32_t i = 0; i < c->prog->dims->syms.n; i++)
    if (c->known[i]) ok = check_range(c, i) && ok;
  for (uint32_t k = 0; k < c->nargs; k++)
    if (c->args[k].array.data) ok = check_array(c, &c->args[k]) && ok;
  return ok;
}

static bool missing_dim(DrvCall *c, const DrvArg *a, uint32_t axis) {
  uint32_t sym = 0;
  const DrvAxis *x = &a->axis[axis];
  const char *name = "?";
  if (x->kind != DRV_BLOCKS) {
    bool one = x->kind == DRV_DIM ? unknowns(c, x->dim, &sym) > 0
                                  : plain_sym(c, x->dim, &sym);
    if (one) name = c->prog->dims->syms.at[sym].name;
  }
  diag_add(c->cx, DIAG_dim_unknown, NOWHERE, name, a->param->name, name);
  return false;
}

bool drv_outputs(DrvCall *c) {
  for (uint32_t k = 0; k < c->nargs; k++) {
    DrvArg *a = &c->args[k];
    if (!a->out) continue;
    a->array = (NpyArray){.dtype = a->dtype, .rank = (int)a->rank};
    for (uint32_t i = 0; i < a->rank; i++) {
      a->array.shape[i] = drv_extent(c, a, i);
      if (a->array.shape[i] < 0) return missing_dim(c, a, i);
    }
    if (!drv_alloc(c->cx, &a->array)) {
      diag_add(c->cx, DIAG_data_large, NOWHERE, a->param->name);
      return false;
    }
  }
  return true;
}

// The code finds the dims that it uses in shapes.
static bool every_dim(const DrvCall *c) {
  for (uint32_t i = 0; i < c->prog->generics.n; i++) {
    const Generic *g = &c->prog->generics.at[i];
    uint32_t sym;
    if (g->kind == GEN_DTYPE || g->kind == GEN_CONST || !g->sym ||
        !g->sym->nuses || !dim_find_sym(c->prog->dims, g->name, &sym) ||
        fe_dim_in_types(c->prog, sym))
      continue;
    Diag *d = diag_add(c->cx, DIAG_launch, NOWHERE, c->prog->name,
                       arena_printf(&c->cx->session,
                                    "dim '%s' occurs in no type, so that no "
                                    "argument gives its value",
                                    g->name));
    diag_note(c->cx, d, g->span,
              "make it a scalar: take it out of <..> and add a parameter, "
              "`%s: i32`",
              g->name);
    return false;
  }
  return true;
}

// A scalar must be given unless it has a default.
bool drv_complete(const DrvCall *c) {
  for (uint32_t i = 0; i < c->nargs; i++) {
    const DrvArg *a = &c->args[i];
    const char *name = a->param->name;
    bool have = a->scalar ? a->given || a->param->deflt : a->array.data != NULL;
    if (have || a->out) continue;
    diag_add(c->cx, DIAG_data_needed, NOWHERE, name,
             a->scalar ? "--set" : "--in", name,
             a->scalar ? "0.5" : "FILE.npy");
    return false;
  }
  return every_dim(c);
}
