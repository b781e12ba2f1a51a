// Making up what a run needs: sizes of dims that nobody gave, then arrays. The
// stream of an array is that of its name and the seed.
#include "tools/driver/driver.h"

#include <ctype.h>

// Sizes by what a dim is for.
enum { KEYS = 1024, QUERIES = 1024, BATCH = 1, HEADS = 8, PAGES = 16 };

// ---------------------------------------------------------------- generators
bool drv_parse_gen(Ctx *cx, const char *text, DrvGen *out) {
  const char *eq = strchr(text, '=');
  if (!eq) return false;
  const char *name = eq + 1, *open = strchr(name, '(');
  size_t n = open ? (size_t)(open - name) : strlen(name);
  GenKind kind;
  if (!gen_by_name(name, (uint32_t)n, &kind)) return false;
  *out = (DrvGen){arena_strndup(&cx->session, text, (size_t)(eq - text)),
                  gen_default(kind), NULL};
  const char *p = open ? open + 1 : ")";
  int i = 0;
  while (*p && *p != ')') {
    char *end;
    double v = buf_read_double(p, &end);
    if (end == p || i == gen_max_args(kind)) return false;
    out->gen.arg[i++] = v;
    for (p = end; *p == ',' || isspace((unsigned char)*p); p++) {}
  }
  return i >= gen_min_args(kind) && *p == ')';
}

// ---------------------------------------------------------------- dims
static bool is_extent(const DrvCall *c, Dim d, IndexRole role) {
  for (uint32_t i = 0; i < c->prog->indices.n; i++) {
    const Sym *s = c->prog->indices.at[i];
    if (s->role == role && s->dim == d) return true;
  }
  return false;
}

// The last parallel index is the one rows are counted by, the first the batch.
static int64_t size_of(const DrvCall *c, Dim d) {
  const Sym *first = NULL, *last = NULL;
  for (uint32_t i = 0; i < c->prog->indices.n; i++) {
    const Sym *s = c->prog->indices.at[i];
    if (s->role != IX_PARALLEL) continue;
    if (!first) first = s;
    last = s;
  }
  if (is_extent(c, d, IX_KEY) || is_extent(c, d, IX_STEP)) return KEYS;
  if (first && first != last && first->dim == d) return BATCH;
  if (last && last->dim == d && c->prog->kind == DE_ATTENTION) return QUERIES;
  return HEADS;
}

static int64_t fit(const DimSym *s, int64_t v) {
  if (s->values.n) return s->values.at[0];
  if (v < s->lo) v = s->lo;
  if (v > s->hi) v = s->hi;
  int64_t up = (v + s->divisor - 1) / s->divisor * s->divisor;
  return up <= s->hi ? up : v / s->divisor * s->divisor;
}

// The second axis of a page table: pages of the longest sequence.
static int64_t pages(const DrvCall *c, Dim d) {
  for (uint32_t i = 0; i < c->nargs; i++) {
    const Layout *l = c->args[i].param->layout;
    if (!l || l->kind != LAY_PAGED || !l->table || l->table->ty.rank < 2)
      continue;
    uint32_t at = (uint32_t)l->axis;
    const DimExpr *e =
        &c->prog->dims->exprs.at[c->args[i].param->sym->ty.shape[at]];
    int64_t page;
    if (l->table->ty.shape[1] == d && e->op == DIM_SYM && c->known[e->value] &&
        dim_eval(c->prog->dims, l->page, c->dims, &page))
      return (c->dims[e->value] + page - 1) / page;
  }
  return 0;
}

static void default_dims(DrvCall *c) {
  DimTab *t = c->prog->dims;
  for (int round = 0; round < 2; round++)
    for (uint32_t i = 0; i < t->syms.n; i++) {
      if (c->known[i]) continue;
      Dim d = dim_sym(t, i);
      int64_t n = pages(c, d);
      // Page counts come after the lengths they depend on.
      if (!n && round == 0 && !is_extent(c, d, IX_KEY) &&
          size_of(c, d) == HEADS && t->syms.at[i].kind == DIM_DYN)
        continue;
      c->dims[i] = fit(&t->syms.at[i], n ? n : size_of(c, d));
      c->known[i] = true;
      c->from[i] = "the default size";
    }
}

// ---------------------------------------------------------------- arrays
static bool holds_lengths(const DrvCall *c, const DrvArg *a, uint32_t *sym) {
  const DimTab *t = c->prog->dims;
  for (uint32_t i = 0; i < t->syms.n; i++)
    if (t->syms.at[i].by && strcmp(t->syms.at[i].by, a->param->name) == 0) {
      *sym = i;
      return true;
    }
  return false;
}

static bool is_table(const DrvCall *c, const DrvArg *a) {
  for (uint32_t i = 0; i < c->nargs; i++) {
    const Layout *l = c->args[i].param->layout;
    if (l && l->kind == LAY_PAGED && l->table->name == a->param->name)
      return true;
  }
  return false;
}

static Gen default_gen(const DrvCall *c, const DrvArg *a) {
  uint32_t sym;
  Gen g = gen_default(GK_NORMAL);
  if (holds_lengths(c, a, &sym)) {
    const DimExpr *e = &c->prog->dims->exprs.at[a->axis[0].dim];
    g = gen_default(e->op == DIM_ADD ? GK_OFFSETS : GK_LENGTHS);
    g.arg[0] = (double)((c->dims[sym] + 1) / 2);
    g.arg[1] = (double)c->dims[sym];
  } else if (is_table(c, a)) {
    g = gen_default(GK_PERM);
  } else if (a->dtype == DT_BOOL) {
    g = gen_default(GK_RANDINT);
    g.arg[0] = 0, g.arg[1] = 2;
  } else if (!dtype_is_float(a->dtype)) {
    g = gen_default(GK_RANDINT);
    g.arg[0] = 0, g.arg[1] = 4;
  }
  return g;
}

static const DrvGen *given_gen(const DrvGens *gens, const DrvArg *a) {
  for (uint32_t i = 0; gens && i < gens->n; i++)
    if (strcmp(gens->at[i].name, a->param->name) == 0) return &gens->at[i];
  return NULL;
}

static bool fill_scalar(DrvCall *c, DrvArg *a, const Gen *g,
                        const char *stream) {
  double v;
  gen_fill(&c->cx->scratch, g, stream, DT_F64, 1, &v);
  return drv_set_scalar(c, a, dtype_round(a->dtype, v));
}

static bool fill_array(DrvCall *c, DrvArg *a, const Gen *g,
                       const char *stream) {
  a->array = (NpyArray){.dtype = a->dtype, .rank = (int)a->rank};
  for (uint32_t i = 0; i < a->rank; i++) {
    a->array.shape[i] = drv_extent(c, a, i);
    if (a->array.shape[i] >= 0) continue;
    diag_add(c->cx, DIAG_dim_unknown, NOWHERE, "?", a->param->name, "D");
    return false;
  }
  if (!drv_alloc(c->cx, &a->array)) {
    diag_add(c->cx, DIAG_data_large, NOWHERE, a->param->name);
    return false;
  }
  const char *why = gen_check(g, a->array.count);
  if (why) {
    diag_add(c->cx, DIAG_data_gen, NOWHERE, gen_name(g->kind), a->param->name,
             why);
    a->array.data = NULL;
    return false;
  }
  if (!c->hollow || !dtype_is_float(a->dtype))
    gen_fill(&c->cx->scratch, g, stream, a->dtype, a->array.count,
             a->array.data);
  return true;
}

static bool fill_one(DrvCall *c, DrvArg *a, const DrvGens *gens,
                     uint64_t seed) {
  const DrvGen *given = given_gen(gens, a);
  if (a->out || a->array.data || a->given) return true;
  if (a->scalar && a->param->deflt && !given) return true;
  if (a->dtype == DT_NONE) drv_first_dtype(c, a);
  Gen g = given ? given->gen : default_gen(c, a);
  if (!g.seed) g.seed = seed;
  const char *stream = given && given->stream ? given->stream : a->param->name;
  a->origin = gen_name(g.kind);
  return a->scalar ? fill_scalar(c, a, &g, stream)
                   : fill_array(c, a, &g, stream);
}

// Lengths first: other extents depend on what they hold.
static bool fill_all(DrvCall *c, const DrvGens *gens, uint64_t seed, bool all) {
  uint32_t sym;
  for (int round = 0; round < 3; round++) {
    for (uint32_t i = 0; i < c->nargs; i++) {
      DrvArg *a = &c->args[i];
      int when = holds_lengths(c, a, &sym) ? 0 : is_table(c, a) ? 1 : 2;
      if (when != round || (!all && !given_gen(gens, a))) continue;
      if (!fill_one(c, a, gens, seed)) return false;
    }
    if (round == 0 && !drv_ragged(c)) return false;
  }
  return drv_ragged(c);
}

bool drv_fill_given(DrvCall *c, const DrvGens *gens, uint64_t seed) {
  return fill_all(c, gens, seed, false);
}

bool drv_fill(DrvCall *c, const DrvGens *gens, uint64_t seed) {
  if (!drv_solve(c)) return false;
  default_dims(c);
  return fill_all(c, gens, seed, true);
}
