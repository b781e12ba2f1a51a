// Expectations: each side becomes a list of arrays, then they are compared by
// |x - ref| <= tol * (|ref| + rms(ref)).
//   expect f(Q, K) ~= reference tol 1e-3     compiled code against the oracle
//   expect f(Q, K) ~= g(Q, K) tol 1e-3       compiled code against itself
//   expect grad(f, Q) ~= reference tol 1e-3  its gradient against dual numbers
//   expect online(f) ~= direct(f) tol 1e-6   IR stream against attn, in f64
#include "tools/driver/run/checks.h"

#include "frontend/builtins.h"
#include "tools/driver/run/forms.h"

#include <math.h>

typedef DrvSide Side;

typedef struct Eval {
  const DrvChecker *k;
  const Decl *block;
  double tol;
  const char *skip;  // why the expectation is not evaluated
} Eval;

static bool side_of(Eval *v, const Expr *e, Side *out);

// ---------------------------------------------------------------- inputs
// The position of a parameter in a signature "normal(mean = 0, std = 1, ..)".
static int position(const char *sig, const char *name) {
  size_t n = strlen(name);
  int i = 0;
  for (const char *p = strchr(sig, '('); p; p = strchr(p + 1, ','), i++) {
    const char *at = p + 1;
    while (*at == ' ') at++;
    if (!strncmp(at, name, n) && strchr(" ,)", at[n])) return i;
  }
  return -1;
}

static bool generator(const Eval *v, const Expr *e, Gen *out) {
  double x;
  GenKind kind;
  if (drv_eval(v->block->dims, NULL, e, &x)) {
    *out = gen_default(GK_CONST);
    out->arg[0] = x;
    return true;
  }
  const Sym *s = e->sym;
  bool known = e->kind == EX_CALL && s && s->kind == SY_BUILTIN &&
               gen_by_name(s->name, (uint32_t)strlen(s->name), &kind);
  if (!known) return false;
  *out = gen_default(kind);
  int next = 0;
  for (uint32_t i = 0; i < e->args.n; i++) {
    const Arg *a = &e->args.at[i];
    int at = a->kind == ARG_NAMED
                 ? position(fe_builtins[s->builtin].sig, a->name)
                 : next++;
    if (!drv_eval(v->block->dims, NULL, a->value, &x)) return false;
    if (a->kind == ARG_NAMED && strcmp(a->name, "seed") == 0)
      out->seed = (uint64_t)x;
    else if (at >= 0 && at < 2) out->arg[at] = x;
    else return false;
  }
  return true;
}

// `input X = ..` or a number as the value of parameter a.
static bool from_input(const Eval *v, const Sym *s, DrvArg *a, DrvGens *gens) {
  DrvGen g = {a->param->name, {0}, s->name};
  if (!generator(v, s->value, &g.gen)) return false;
  vec_push(&v->k->cx->session, gens, g);
  return true;
}

static bool unsupported(const Eval *v, Span at, const char *what) {
  diag_add(v->k->cx, DIAG_check_form, at, what);
  return false;
}

static bool from_expr(Eval *v, DrvCall *c, DrvArg *a, const Expr *e,
                      DrvGens *gens) {
  double x;
  const Sym *s = e->kind == EX_NAME ? e->sym : NULL;
  if (s && s->kind == SY_LET && s->value && from_input(v, s, a, gens))
    return true;
  if (drv_eval(v->block->dims, NULL, e, &x)) {
    if (a->scalar) return drv_set_scalar(c, a, dtype_round(a->dtype, x));
    DrvGen g = {a->param->name, gen_default(GK_CONST), NULL};
    g.gen.arg[0] = x;
    vec_push(&v->k->cx->session, gens, g);
    return true;
  }
  Side side;
  if (!side_of(v, e, &side)) return false;
  if (side.n != 1) return unsupported(v, e->span, "one array");
  return drv_set_array(c, a, &side.array[0], side.name[0]);
}

// ---------------------------------------------------------------- calls
static bool set_dims(const Eval *v, DrvCall *c, const Expr *e) {
  for (uint32_t i = 0; i < c->prog->dims->syms.n; i++) {
    int64_t x;
    if (!dim_is_const(v->block->dims, e->dims[i], &x)) continue;
    c->dims[i] = x;
    c->known[i] = true;
    c->from[i] = "the check";
  }
  for (uint32_t i = 0; i < v->block->checks.n; i++) {
    const CheckStmt *s = &v->block->checks.at[i];
    for (uint32_t k = 0; s->kind == CK_DIMS && k < s->names.n; k++) {
      DType t;
      const Expr *x = s->exprs.at[k];
      bool type = x->kind == EX_NAME &&
                  dtype_by_name(x->name, (uint32_t)strlen(x->name), &t);
      if (type && drv_has_dtype(c->prog, s->names.at[k].name) &&
          !drv_set_dtype(c, s->names.at[k].name, t))
        return false;
    }
  }
  return true;
}

// e has bound and dims: a call, or the name in online(f).
static bool make_call(Eval *v, const Expr *e, Decl *prog, DrvCall *c) {
  DrvGens gens = {0};
  if (!drv_call(v->k->cx, prog, c) || !set_dims(v, c, e)) return false;
  for (uint32_t i = 0; i < e->nbound; i++) {
    const Bound *b = &e->bound[i];
    const Param *p = &prog->params.at[i];
    if (b->index) {
      if (!from_input(v, b->index, &c->args[i], &gens))
        return unsupported(v, b->index->span, "a generator or a number");
    } else if (b->value && b->value != p->deflt) {
      if (!from_expr(v, c, &c->args[i], b->value, &gens)) return false;
    }
  }
  return drv_fill(c, &gens, v->k->seed) && drv_complete(c) && drv_outputs(c);
}

static const Expr *call_of(const Expr *e) {
  while (e->kind == EX_MEMBER) e = e->a;
  if (e->kind == EX_NAME && e->sym && e->sym->kind == SY_LET && e->sym->value)
    return call_of(e->sym->value);
  return e;
}

static Decl *called(const Expr *e) {
  bool call = e->kind == EX_CALL && e->sym && e->sym->kind == SY_DECL;
  return call ? e->sym->decl : NULL;
}

static bool wanted(const Expr *member, const DrvArg *a) {
  bool one = member && member->kind == EX_MEMBER && member->sym;
  return a->out && (!one || a->param->sym == member->sym);
}

static void outputs(const Eval *v, const DrvCall *c, const Expr *member,
                    const DrvReference *ref, Side *out) {
  Arena *a = &v->k->cx->session;
  NpyArray *arrays = NEWN(a, NpyArray, c->nargs + 1);
  *out = (Side){.array = arrays, .call = c, .ref = ref};
  out->name = NEWN(a, const char *, c->nargs + 1);
  out->want = NEWN(a, double *, c->nargs + 1);
  for (uint32_t i = 0; i < c->nargs; i++) {
    const DrvArg *x = &c->args[i];
    bool inout = !member && !x->out && x->param->qual == PQ_INOUT;
    if (!wanted(member, x) && !inout) continue;
    arrays[out->n] = x->array;
    out->name[out->n] = x->param->name;
    if (ref) out->want[out->n] = ref->want[i];
    out->n++;
  }
}

static bool launch_on(const Eval *v, DrvCall *c, const Target *target) {
  DrvCode *code = target ? drv_load(c, target, v->k->opt) : NULL;
  bool ok = code && drv_launch(c, code, v->k->rt);
  drv_unload(code);
  return ok;
}

static bool launch(const Eval *v, DrvCall *c) {
  return launch_on(v, c, v->k->target);
}

// Compiled and run; and what the oracle says of it, if `ref`.
static bool run_call(Eval *v, const Expr *e, Side *got, Side *ref) {
  const Expr *call = call_of(e), *member = e->kind == EX_MEMBER ? e : NULL;
  Decl *prog = called(call);
  if (!prog) return unsupported(v, e->span, "a call of a program");
  DrvCall *c = NEW(&v->k->cx->session, DrvCall);
  if (!make_call(v, call, prog, c)) return false;
  DrvSaved saved = drv_save(c);
  bool save = v->k->save && ref;
  if (!save && !launch(v, c)) return false;
  DrvReference *r = NEW(&v->k->cx->session, DrvReference);
  outputs(v, c, member, NULL, got);
  if (!ref) return true;
  if (!drv_reference(c, &saved, save ? INFINITY : DRV_SAMPLE_ABOVE, v->k->seed,
                     r))
    return false;
  outputs(v, c, member, r, ref);
  if (!save) return true;
  v->skip = "saved";
  return drv_save_check(v->k, c, &saved, ref, v->tol);
}

// online(f), direct(f): the interpreter on IR of level stream or attn.
static bool run_form(Eval *v, const Expr *e, Side *out) {
  Level level = e->sym->builtin == BI_online ? LV_STREAM : LV_ATTN;
  const Expr *name = e->args.at[0].value;
  DrvCall *c = NEW(&v->k->cx->session, DrvCall);
  if (!name->sym || name->sym->kind != SY_DECL) return false;
  if (!make_call(v, name, name->sym->decl, c)) return false;
  if (!drv_interpret(c, level, v->k->opt, &v->skip)) return false;
  outputs(v, c, NULL, NULL, out);
  return true;
}

// ---------------------------------------------------------------- gradients
// "Q,K" of grad(f, Q, K).
static const char *inputs_of(const Eval *v, const Expr *e) {
  Buf b = {.arena = &v->k->cx->session};
  for (uint32_t i = 1; i < e->args.n; i++)
    buf_printf(&b, "%s%s", i > 1 ? "," : "", e->args.at[i].value->name);
  return b.at;
}

static void gradients(const Eval *v, const Expr *e, const DrvGrads *g,
                      const DrvGradReference *ref, Side *out) {
  Arena *a = &v->k->cx->session;
  uint32_t n = e->args.n;
  NpyArray *arrays = NEWN(a, NpyArray, n);
  uint32_t *arg = NEWN(a, uint32_t, n);
  *out = (Side){.array = arrays, .grads = g, .arg = arg, .grad_ref = ref};
  out->name = NEWN(a, const char *, n);
  out->want = NEWN(a, double *, n);
  for (uint32_t i = 1; i < n; i++) {
    const char *name = arena_printf(a, "g_%s", e->args.at[i].value->name);
    for (uint32_t k = 0; k < g->backward.nargs; k++) {
      const DrvArg *x = &g->backward.args[k];
      if (!x->out || strcmp(x->param->name, name)) continue;
      arg[out->n] = k;
      arrays[out->n] = x->array;
      if (ref) out->want[out->n] = ref->want[k];
      out->name[out->n++] = name;
    }
  }
}

// The gradient for another machine; here its program runs, which makes what it
// reads.
static bool save_grad(Eval *v, const Expr *e, DrvGrads *g) {
  DrvGradReference r;
  Side want;
  const Target *here = drv_host_target(v->k->cx, NULL);
  if (!launch_on(v, &g->forward, here) ||
      !drv_grad_reference(g, DRV_SAMPLE_ABOVE, v->k->seed, &r))
    return false;
  v->skip = r.sampled ? "not saved: too many elements" : "saved";
  gradients(v, e, g, &r, &want);
  DrvSaved none = drv_save(&g->backward);
  return r.sampled || drv_save_check(v->k, &g->backward, &none, &want, v->tol);
}

// The program and its gradient run; and what the oracle says, if `ref`.
static bool run_grad(Eval *v, const Expr *e, Side *got, Side *ref) {
  Arena *a = &v->k->cx->session;
  const Expr *name = e->args.at[0].value;
  DrvCall *c = NEW(a, DrvCall);
  DrvGrads *g = NEW(a, DrvGrads);
  DrvGradReference *r = NEW(a, DrvGradReference);
  if (!name->sym || name->sym->kind != SY_DECL) return false;
  if (!make_call(v, name, name->sym->decl, c) ||
      !drv_grads(c, inputs_of(v, e), v->k->seed, g))
    return false;
  if (v->k->save) return save_grad(v, e, g);
  if (!launch(v, &g->forward) || !launch(v, &g->backward)) return false;
  gradients(v, e, g, NULL, got);
  if (!ref) return true;
  if (!drv_grad_reference(g, DRV_GRAD_ABOVE, v->k->seed, r)) return false;
  gradients(v, e, g, r, ref);
  return true;
}

static bool is_grad(const Expr *e) {
  return e->kind == EX_CALL && e->sym && e->sym->kind == SY_BUILTIN &&
         e->sym->builtin == BI_grad;
}

static bool side_of(Eval *v, const Expr *e, Side *out) {
  const Expr *call = call_of(e);
  *out = (Side){0};
  if (drv_eval(v->block->dims, NULL, e, &out->scalar)) return true;
  if (call->kind == EX_CALL && call->sym && call->sym->kind == SY_BUILTIN) {
    switch (call->sym->builtin) {
    case BI_online:
    case BI_direct: return run_form(v, call, out);
    case BI_grad: return run_grad(v, call, out, NULL);
    default: break;
    }
  }
  return run_call(v, e, out, NULL);
}

// ---------------------------------------------------------------- comparing
static double load(const NpyArray *x, int64_t i) {
  int size = dtype_size(x->dtype);
  return dtype_load(x->dtype, (const char *)x->data + i * size);
}

static DrvError against(const Eval *v, const Side *got, const Side *want,
                        uint32_t i) {
  const NpyArray *x = &got->array[i];
  if (want->grad_ref)
    return drv_compare_grad(want->grads, want->grad_ref, want->arg[i]);
  if (want->ref) return drv_compare_written(v->k->cx, x, want->want[i]);
  double *ref = NEWN(&v->k->cx->session, double, x->count + 1);
  for (int64_t k = 0; k < x->count; k++)
    ref[k] = want->n ? load(&want->array[i], k) : want->scalar;
  return drv_compare(x, ref, NULL, x->count);
}

static bool same_shapes(const Side *a, const Side *b) {
  if (!b->n) return a->n > 0;
  if (a->n != b->n) return false;
  for (uint32_t i = 0; i < a->n; i++)
    if (a->array[i].count != b->array[i].count) return false;
  return true;
}

static void compare(const Eval *v, const Side *got, const Side *want,
                    double tol, DrvExpect *out) {
  Buf b = {.arena = &v->k->cx->session};
  out->outcome = DRV_PASSED;
  for (uint32_t i = 0; i < got->n; i++) {
    DrvError e = against(v, got, want, i);
    if (!drv_within(&e, tol)) out->outcome = DRV_FAILED;
    buf_printf(&b, "%s%s %.2g", i ? ", " : "", got->name[i], e.rel);
    if (e.nonfinite)
      buf_printf(&b, " (%lld differ in inf or NaN)", (long long)e.nonfinite);
    if (!drv_within(&e, tol) && e.at < 0)
      buf_printf(&b, " (along a direction: %.9g, expected %.9g)", e.got,
                 e.want);
    else if (!drv_within(&e, tol))
      buf_printf(&b, " (element %lld: %.9g, expected %.9g)", (long long)e.at,
                 e.got, e.want);
  }
  buf_printf(&b, "; tolerance %.2g", tol);
  if (want->ref && want->ref->sampled)
    buf_printf(&b, "; %llu sampled points",
               (unsigned long long)want->ref->points);
  if (want->grad_ref && want->grad_ref->sampled)
    buf_printf(&b, "; %llu sampled elements, %u directions",
               (unsigned long long)want->grad_ref->elements,
               want->grad_ref->nalong);
  out->detail = b.at;
}

static const char *source_text(Ctx *cx, const Expr *from, const Expr *to) {
  const Source *src = cx->sources.at[from->span.src];
  Buf b = {.arena = &cx->session};
  for (uint32_t i = from->span.lo; i < to->span.hi; i++) {
    char c = src->text[i];
    bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (space && b.n && b.at[b.n - 1] == ' ') continue;
    buf_char(&b, space ? ' ' : c);
  }
  return b.at;
}

DrvExpect drv_expect(const DrvChecker *k, const Decl *block,
                     const CheckStmt *s) {
  Eval v = {.k = k, .block = block};
  DrvExpect out = {.title = block->name,
                   .outcome = DRV_FAILED,
                   .text = source_text(k->cx, s->got, s->want)};
  Side got, want;
  uint32_t errors = k->cx->nerrors;
  bool reference = s->want->sym && s->want->sym->kind == SY_BUILTIN &&
                   s->want->sym->builtin == BI_reference;
  bool ok = drv_eval(block->dims, NULL, s->tol, &v.tol);
  if (ok && !(v.tol >= 0)) {
    diag_add(k->cx, DIAG_tolerance, s->tol->span);
    ok = false;
  }
  const Expr *first = call_of(s->got);
  if (ok && k->save && !reference) v.skip = "not saved: no reference";
  else if (ok && reference && is_grad(first))
    ok = run_grad(&v, first, &got, &want);
  else if (ok && reference) ok = run_call(&v, s->got, &got, &want);
  else if (ok) ok = side_of(&v, s->got, &got) && side_of(&v, s->want, &want);
  if (v.skip && k->cx->nerrors == errors) {
    out.outcome = DRV_SKIPPED;
    out.detail = v.skip;
  } else if (!ok) {
    out.detail = k->cx->nerrors > errors ? "it could not be run"
                                         : "it could not be evaluated";
  } else if (!same_shapes(&got, &want)) {
    out.detail = "the results have different shapes";
  } else {
    compare(&v, &got, &want, v.tol, &out);
  }
  return out;
}
