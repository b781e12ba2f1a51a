// Ragged dims and page tables: what their arrays say, and whether it is
// possible.
#include "tools/driver/driver.h"

static DrvArg *arg_of(DrvCall *c, const char *name) {
  for (uint32_t i = 0; i < c->nargs; i++)
    if (name && strcmp(c->args[i].param->name, name) == 0) return &c->args[i];
  return NULL;
}

static int64_t element(const NpyArray *x, int64_t i) {
  int size = dtype_size(x->dtype);
  return (int64_t)dtype_load(x->dtype, (const char *)x->data + i * size);
}

// Offsets have one element more than there are sequences.
static bool holds_offsets(const DrvCall *c, const DrvArg *by) {
  for (uint32_t i = 0; i < c->nargs; i++) {
    const Layout *l = c->args[i].param->layout;
    if (l && l->kind == LAY_RAGGED && l->by->name == by->param->name)
      return true;
  }
  const DimExpr *e = by->rank ? &c->prog->dims->exprs.at[by->axis[0].dim] : 0;
  return e && e->op == DIM_ADD;
}

static bool refuse(DrvCall *c, const DrvArg *a, int64_t i, const char *why) {
  diag_add(c->cx, DIAG_data_element, NOWHERE, a->param->name, (long long)i,
           (long long)element(&a->array, i), why);
  return false;
}

static bool read_offsets(DrvCall *c, const DrvArg *by, uint32_t sym,
                         int64_t *longest) {
  const NpyArray *x = &by->array;
  int64_t last = 0;
  for (int64_t i = 0; i < x->count; i++) {
    int64_t v = element(x, i);
    if (i == 0 && v != 0) return refuse(c, by, i, "the first offset is 0");
    if (v < last) return refuse(c, by, i, "offsets must not fall");
    if (v - last > *longest) *longest = v - last;
    last = v;
  }
  if (c->total[sym] < 0) c->total[sym] = last;
  if (last <= c->total[sym]) return true;
  return refuse(c, by, x->count - 1, "the arrays are shorter");
}

static bool read_lengths(DrvCall *c, const DrvArg *by, int64_t *longest) {
  for (int64_t i = 0; i < by->array.count; i++) {
    int64_t v = element(&by->array, i);
    if (v < 0) return refuse(c, by, i, "a length is not negative");
    if (v > *longest) *longest = v;
  }
  return true;
}

static bool ragged_dim(DrvCall *c, uint32_t sym) {
  const DimSym *s = &c->prog->dims->syms.at[sym];
  const DrvArg *by = arg_of(c, s->by);
  int64_t longest = 0;
  if (!by || !by->array.data) return true;
  bool ok = holds_offsets(c, by) ? read_offsets(c, by, sym, &longest)
                                 : read_lengths(c, by, &longest);
  if (!ok) return false;
  if (!c->known[sym]) {
    c->dims[sym] = longest;
    c->known[sym] = true;
    c->from[sym] = arena_printf(&c->cx->session, "'%s'", s->by);
  } else if (c->dims[sym] < longest) {
    diag_add(c->cx, DIAG_data_long, NOWHERE, s->by, (long long)longest, s->name,
             (long long)c->dims[sym]);
    return false;
  }
  return true;
}

static bool page_table(DrvCall *c, const DrvArg *a) {
  const Layout *l = a->param->layout;
  const DrvArg *t = arg_of(c, l->table->name);
  if (!t || !t->array.data || !a->array.data) return true;
  for (int64_t i = 0; i < t->array.count; i++)
    if (element(&t->array, i) >= a->array.shape[l->batch_axis])
      return refuse(c, t, i, "there are not that many pages");
  return true;
}

bool drv_ragged(DrvCall *c) {
  bool ok = true;
  for (uint32_t i = 0; i < c->prog->dims->syms.n; i++)
    if (c->prog->dims->syms.at[i].kind == DIM_RAGGED)
      ok = ragged_dim(c, i) && ok;
  for (uint32_t i = 0; ok && i < c->nargs; i++) {
    const Layout *l = c->args[i].param->layout;
    if (l && l->kind == LAY_PAGED) ok = page_table(c, &c->args[i]);
  }
  return ok;
}
