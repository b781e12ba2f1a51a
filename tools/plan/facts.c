// Facts of one declaration, for editors.
//
// A row or mask is looked at in a program that is made for it: its text is put
// behind the file's and compiled with it. No name of the library is known
// here, so that this works for every row and mask that anyone writes.
#include "tools/plan/facts.h"

#include "frontend/check.h"
#include "ir/core/watch.h"
#include "tools/plan/plan.h"

#include <math.h>

enum { MEMORY = 1 << 29, SECONDS = 10, PICTURE = 24 };

typedef struct Facts {
  Ctx cx;
  Unit *unit;
  const char *name;
  Buf *text;
} Facts;

// ---------------------------------------------------------------- lines
void plan_remarks(const Ctx *cx, uint32_t from, const char *prefix, Buf *out) {
  for (uint32_t i = from; i < cx->remarks.n; i++) {
    const char *r = cx->remarks.at[i];
    bool again = false;
    for (uint32_t k = from; k < i; k++)
      again = again || strcmp(cx->remarks.at[k], r) == 0;
    const char *s = strstr(r, ": ");  // "online: @name: .." or "name: .."
    const char *at = s && s[2] == '@' ? strstr(s + 2, ": ") : NULL;
    if (!again) buf_printf(out, "%s%s\n", prefix, at ? at + 2 : s ? s + 2 : r);
  }
}

void plan_tiles(const Module *tile, const char *prog, Buf *out) {
  const Func *f = ir_find(tile, prog);
  for (uint32_t i = 0; f && i < f->grid.n; i++)
    buf_printf(out, "%s%s:%lld", i ? " " : "",
               f->axes.at[f->grid.at[i].axis].name,
               (long long)f->grid.at[i].tile);
  for (const Op *op = f ? f->body->first : NULL; op; op = op->next) {
    double step;
    if (op->code == OP_FOR && ir_const_value(f, op->args[2], &step))
      buf_printf(out, ", loop by %g", step);
  }
}

// ---------------------------------------------------------------- programs
// Types are chosen, dims stay symbols below level tile.
static uint32_t only_types(FeBind *b, uint32_t n) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++)
    if (b[i].dtype != DT_NONE) b[kept++] = b[i];
  return kept;
}

static Module *lower(Facts *f, Decl *d, bool dims, const Target *t, Level to) {
  FeBind *binds;
  uint32_t width;
  uint32_t n = fe_specializations(&f->cx, d, NULL, 0, &binds, &width);
  if (!n) return NULL;
  DrvOptions opt = {0};
  DrvSpec s = {.prog = d,
               .binds = binds,
               .n = dims ? width : only_types(binds, width)};
  return drv_lower(&f->cx, s, t, to, &opt);
}

// The best level of this machine that the table knows.
static const Target *target_here(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
    return target_by_name("cpu:x86-64-v4");
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return target_by_name("cpu:x86-64-v3");
#elif defined(__aarch64__)
  return target_by_name("cpu:aarch64");
#endif
  return target_by_name("cpu");
}

static void about_program(Facts *f, Decl *d) {
  PlanWork w;
  uint32_t remarks = f->cx.remarks.n;
  Module *m = lower(f, d, false, NULL, LV_ATTN);
  if (!m || !plan_work(&f->cx, m, d->name, &w)) return;
  bool masked = false;
  for (uint32_t i = 0; i < d->indices.n; i++)
    masked |= d->indices.at[i]->domain != NULL;
  buf_printf(f->text, "work    %s FLOP in products%s\n", w.products,
             masked ? " (masked keys included)" : "");
  if (strcmp(w.functions, "0"))
    buf_printf(f->text, "        %s exp and the like\n", w.functions);
  buf_printf(f->text, "memory  %s bytes\n", w.bytes);
  m = lower(f, d, false, NULL, LV_STREAM);
  const char *bounds = m ? plan_bounds(&f->cx, m, d->name) : NULL;
  if (m) plan_remarks(&f->cx, remarks, "- ", f->text);
  if (bounds) buf_printf(f->text, "- key bounds: %s\n", bounds);
  const Target *t = target_here();
  remarks = f->cx.remarks.n;
  m = t ? lower(f, d, true, t, LV_TILE) : NULL;
  if (!m) return;
  buf_printf(f->text, "tiles   ");
  plan_tiles(m, d->name, f->text);
  buf_printf(f->text, " (%s)\n", t->name);
}

// ---------------------------------------------------------------- probes
#define PROBE "probe_of_"

// `x: f32[H]` as it is written; its dims are free.
static void written(const Unit *u, Span s, Buf *out) {
  buf_add(out, u->source->text + s.lo, s.hi - s.lo);
}

// Parameters that the probe hands on; those with a default are left out.
static void pass_on(const Facts *f, const Decl *d, Buf *params, Buf *args,
                    uint32_t from) {
  for (uint32_t i = from; i < d->params.n; i++) {
    const Param *p = &d->params.at[i];
    if (!p->type || p->type->row || p->deflt) continue;
    buf_printf(params, ", %s: ", p->name);
    if (p->type->is_int) buf_str(params, "i32");
    else written(f->unit, p->type->span, params);
    buf_printf(args, "%s%s = %s", args->n ? ", " : "", p->name, p->name);
  }
}

static void row_probe(const Facts *f, const Decl *d, Buf *out) {
  Buf params = {.arena = out->arena}, args = params, outs = params;
  Buf names = params, sums = params, lets = params;
  buf_str(&args, "");
  buf_str(&lets, "");
  buf_str(&params, "");
  for (uint32_t i = 0; i < d->params.n; i++) {
    const Param *p = &d->params.at[i];
    if (!p->type || !p->type->row) continue;
    buf_printf(&params, "%sin_%s: f32[Nq, Nk]", params.n ? ", " : "", p->name);
    buf_printf(&lets, "  let %s = in_%s[q, k];\n", p->name, p->name);
    buf_printf(&args, "%s%s = %s", args.n ? ", " : "", p->name, p->name);
  }
  buf_str(&lets, "  let V_k = in_V[k];\n");
  pass_on(f, d, &params, &args, 0);
  uint32_t n = d->results.n ? d->results.n : 1;
  for (uint32_t i = 0; i < n; i++) {
    bool row = d->results.n && d->results.at[i].row;
    buf_printf(&names, "%sr%u", i ? ", " : "", i);
    buf_printf(&outs, "%sO%u: f32[Nq%s]", i ? ", " : "", i, row ? ", 64" : "");
    buf_printf(&sums,
               row ? "  O%u[q] = sum(k: r%u * V_k);\n" : "  O%u[q] = r%u;\n", i,
               i);
  }
  buf_printf(out,
             "attention " PROBE "%s<Nq, Nk>(%s, in_V: f32[Nk, 64]) -> (%s) "
             "{\n  index q in Nq, k in Nk;\n%s  let %s%s%s = %s(%s);\n%s}\n",
             d->name, params.at, outs.at, lets.at, n > 1 ? "(" : "", names.at,
             n > 1 ? ")" : "", d->name, args.at, sums.at);
}

// Index parameters of a mask are parallel, but for the last: the key.
static void mask_probe(const Facts *f, const Decl *d, bool picture, Buf *out) {
  Buf params = {.arena = out->arena}, args = params, index = params;
  Buf at = params, shape = params;
  const char *key = NULL;
  for (uint32_t i = 0; i < d->params.n; i++)
    if (!d->params.at[i].type) key = d->params.at[i].name;
  Buf *const all[] = {&params, &args, &index, &at, &shape};
  for (int i = 0; i < 5; i++) buf_str(all[i], "");
  for (uint32_t i = 0; i < d->params.n; i++) {
    const Param *p = &d->params.at[i];
    if (p->type) continue;
    buf_printf(&args, "%s%s = %s", args.n ? ", " : "", p->name, p->name);
    if (p->name == key && !picture) continue;
    buf_printf(&at, "%s%s", at.n ? ", " : "", p->name);
    buf_printf(&shape, "%sN%s", shape.n ? ", " : "", p->name);
    buf_printf(&index, "  index %s in N%s;\n", p->name, p->name);
  }
  pass_on(f, d, &params, &args, 0);
  if (picture)
    buf_printf(out,
               "attention " PROBE "%s(unused_x: f32[%s]%s) -> (O: f32[%s])"
               " {\n%s  O[%s] = unused_x[%s] + (if %s(%s) then 1.0 else 0.0);"
               "\n}\n",
               d->name, shape.at, params.at, shape.at, index.at, at.at, at.at,
               d->name, args.at);
  else if (key && shape.n)
    buf_printf(out,
               "attention " PROBE "%s(V: f32[N%s, 64], X: f32[%s]%s) -> "
               "(O: f32[%s, 64]) {\n%s  index %s in N%s where %s(%s);\n"
               "  O[%s] = X[%s] * sum(%s: V[%s]);\n}\n",
               d->name, key, shape.at, params.at, shape.at, index.at, key, key,
               d->name, args.at, at.at, at.at, key, key);
}

// Checks the file with `more` behind it.
static Decl *with_probe(Facts *f, const Buf *more) {
  Ctx *cx = &f->cx;
  const Source *src = f->unit->source;
  uint32_t diags = cx->diags.n, errors = cx->nerrors;
  Buf all = {.arena = &cx->session};
  if (!more->n) return NULL;
  buf_add(&all, src->text, src->len);
  buf_char(&all, '\n');
  buf_add(&all, more->at, more->n);
  Source *s = ctx_add_source(cx, src->path, all.at, all.n);
  Unit *u = s ? fe_parse(cx, s) : NULL;
  bool ok = u && u->syntax_ok && fe_check(cx, u);
  cx->diags.n = diags;
  cx->nerrors = errors;
  const char *name = arena_printf(&cx->session, PROBE "%s", f->name);
  return ok ? fe_program(u, intern(&cx->names, name)) : NULL;
}

static void about_row(Facts *f, const Decl *d) {
  Buf probe = {.arena = &f->cx.session};
  row_probe(f, d, &probe);
  Decl *p = with_probe(f, &probe);
  uint32_t remarks = f->cx.remarks.n;
  if (!p || !lower(f, p, false, NULL, LV_STREAM)) return;
  buf_str(f->text, "streaming form, with O = the sum of weights times V\n");
  plan_remarks(&f->cx, remarks, "- ", f->text);
}

static void about_mask_bounds(Facts *f, const Decl *d) {
  Buf probe = {.arena = &f->cx.session};
  mask_probe(f, d, false, &probe);
  Decl *p = with_probe(f, &probe);
  uint32_t remarks = f->cx.remarks.n;
  Module *m = p ? lower(f, p, false, NULL, LV_STREAM) : NULL;
  if (!m) return;
  for (uint32_t i = remarks; i < f->cx.remarks.n; i++) {
    const char *s = strstr(f->cx.remarks.at[i], ": keys ");
    if (s) buf_printf(f->text, "class   %s\n", s + 2);
  }
  const char *b = plan_bounds(&f->cx, m, p->name);
  if (b) buf_printf(f->text, "bounds  %s\n", b);
}

// ---------------------------------------------------------------- pictures
// Arguments of the probe: zeros; integers are a third of the picture, so that
// windows and documents show; tables of integers ascend.
static void fill(const Func *fn, InterpTensor *t, uint32_t i, Arena *a) {
  const Type *ty = ir_type(fn, fn->params.at[i].v);
  *t = (InterpTensor){.dtype = ty->dtype, .scalar = PICTURE / 3, .given = true};
  if (ty->kind != TK_TENSOR) return;
  int64_t n = 1;
  t->rank = ty->n;
  for (uint32_t k = ty->n; k-- > 0;) {
    t->stride[k] = n;
    t->shape[k] = PICTURE;
    n *= PICTURE;
  }
  t->data = NEWN(a, double, n);
  for (int64_t k = 0; !dtype_is_float(ty->dtype) && k < n; k++)
    dtype_store(ty->dtype, (char *)t->data + k * dtype_size(ty->dtype),
                (double)(k % PICTURE / (PICTURE / 3)));
}

static void draw(const double *v, Buf *out) {
  static const char *const cell[] = {" ", "\u2580", "\u2584", "\u2588"};
  for (int q = 0; q < PICTURE; q += 2) {
    buf_str(out, "  ");
    for (int k = 0; k < PICTURE; k++)
      buf_str(out, cell[(v[q * PICTURE + k] != 0) +
                        2 * (v[(q + 1) * PICTURE + k] != 0)]);
    buf_char(out, '\n');
  }
}

static void about_mask_picture(Facts *f, const Decl *d) {
  Ctx *cx = &f->cx;
  Buf probe = {.arena = &cx->session};
  uint32_t axes = 0, errors = cx->nerrors;
  for (uint32_t i = 0; i < d->params.n; i++) axes += !d->params.at[i].type;
  if (axes != 2) return;
  mask_probe(f, d, true, &probe);
  Decl *p = with_probe(f, &probe);
  Module *m = p ? lower(f, p, false, NULL, LV_ATTN) : NULL;
  const Func *fn = m ? ir_find(m, p->name) : NULL;
  if (!fn) return;
  InterpTensor *args = NEWN(&cx->session, InterpTensor, fn->params.n + 1);
  int64_t *dims = NEWN(&cx->session, int64_t, m->dims.syms.n + 1);
  for (uint32_t i = 0; i < m->dims.syms.n; i++) dims[i] = PICTURE;
  for (uint32_t i = 0; i < fn->params.n; i++) {
    if (ir_type(fn, fn->params.at[i].v)->n > 3) return;
    fill(fn, &args[i], i, &cx->session);
  }
  InterpTensor *o = &args[fn->params.n - 1];
  o->dtype = DT_F64;
  InterpOpt opt = {.seed = 1};
  if (ir_interp(cx, m, fn->name, args, dims, &opt)) {
    buf_printf(f->text, "%d queries down, %d keys across, integers %d\n",
               PICTURE, PICTURE, PICTURE / 3);
    draw(o->data, f->text);
  }
  cx->nerrors = errors;
}

// ---------------------------------------------------------------- border
static void tell(Facts *f) {
  for (uint32_t i = 0; i < f->unit->decls.n; i++) {
    Decl *d = f->unit->decls.at[i];
    if (!d->name || strcmp(d->name, f->name) != 0 || d->failed) continue;
    if (d->kind == DE_ROW) about_row(f, d);
    if (d->kind == DE_MASK) about_mask_bounds(f, d);
    if (d->kind == DE_MASK) about_mask_picture(f, d);
    if (d->kind == DE_ATTENTION || d->kind == DE_RECURRENT) about_program(f, d);
  }
}

static void open_session(Facts *f, const FactsReader *r) {
  ctx_init(&f->cx);
  Arena *both[] = {&f->cx.session, &f->cx.scratch};
  for (int i = 0; i < 2; i++) {
    both[i]->limit = MEMORY;
    both[i]->until = watch_now() + (int64_t)SECONDS * 1000000000;
  }
  for (uint32_t i = 0; i < r->ndirs; i++)
    vec_push(&f->cx.session, &f->cx.include_dirs, r->dirs[i]);
  if (!r->read) return;
  f->cx.read_file = r->read;
  f->cx.read_file_data = r->data;
}

typedef struct Text {
  Facts *f;
  const char *path, *text;
  uint32_t len;
} Text;

static void read_and_tell(void *data) {
  const Text *t = data;
  Facts *f = t->f;
  Source *src = ctx_add_source(&f->cx, t->path, t->text, t->len);
  f->unit = src ? fe_parse(&f->cx, src) : NULL;
  if (f->unit && f->unit->syntax_ok && fe_check(&f->cx, f->unit)) tell(f);
}

void facts_of(const FactsReader *r, const char *path, const char *text,
              uint32_t len, const char *name, Buf *out) {
  Facts f = {.name = name, .text = out};
  open_session(&f, r);
  if (!ctx_try(&f.cx, read_and_tell, &(Text){&f, path, text, len}))
    buf_str(out, "what it takes is beyond the editor's limits: ask attnc\n");
  ctx_drop(&f.cx);
}
