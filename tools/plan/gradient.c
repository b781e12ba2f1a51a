// Programs that pass grad makes of others, as declarations: whatever compiles
// and calls a program takes them like one that was written. Their parameters
// are those of the pass's functions, which name inputs and outputs of the
// program as it does.
#include "tools/plan/plan.h"

#include "passes/pass.h"

static const char passes[] = "inline,name_vectors,canon,cse,dce,join_turns,"
                             "chunk,grad,canon,cse,dce";
static const char forward[] = "inline,name_vectors,canon,cse,dce,jvp,canon,"
                              "cse,dce";

static void keep_phases(Module *m, const char *name) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    if (ir_is_phase(m->funcs.at[i], name)) m->funcs.at[n++] = m->funcs.at[i];
  m->funcs.n = n;
}

// Has the program the attribute, with that word if there is one?
static bool asks(const Decl *prog, const char *name, const char *word) {
  for (uint32_t i = 0; i < prog->attrs.n; i++) {
    const Attr *a = &prog->attrs.at[i];
    if (strcmp(a->name, name)) continue;
    if (!word) return true;
    if (!a->args.n) continue;
    const Expr *v = a->args.at[0].value;
    return v->kind == EX_NAME && !strcmp(v->name, word);
  }
  return false;
}

static bool run_grad(Ctx *cx, Module *m, const Decl *prog, const Target *target,
                     bool ordered) {
  const char *inputs = prog->derived->inputs;
  Buf log = {.arena = &cx->session};
  PipelineOpt opt = {
      .pass = {.target = target ? target : target_by_name("cpu"),
               .split_k = -1,
               .share_ties = asks(prog->derived->of, "ties", "all"),
               .wide_weights = asks(prog->derived->of, "p_type", NULL),
               .any_order =
                   !ordered && asks(prog->derived->of, "deterministic", "off"),
               .grad = *inputs ? inputs : NULL,
               .jvp = *inputs ? inputs : NULL},
      .log = &log};
  return pass_run(cx, m, prog->derived->tangent ? forward : passes, &opt);
}

// Has the module's program the parameters that prog declares, by name and in
// order? Calls are laid out by the declaration.
static bool as_declared(const Module *m, const Decl *prog) {
  const Func *f = ir_find(m, prog->name);
  uint32_t n = 0, all = prog->params.n + prog->outs.n;
  if (!prog->derived->declared) return true;
  for (uint32_t i = 0; f && i < f->params.n; i++) {
    const FuncParam *p = &f->params.at[i];
    if (p->role == PR_SHARED) continue;
    const Param *as = n < prog->params.n ? &prog->params.at[n]
                      : n < all          ? &prog->outs.at[n - prog->params.n]
                                         : NULL;
    if (!as || strcmp(as->name, ir_info(f, p->v)->hint) != 0) return false;
    n++;
  }
  return n == all;
}

Module *plan_derive(Ctx *cx, const Decl *prog, Module *m, const Target *target,
                    bool ordered) {
  if (!prog->derived) return m;
  // A recurrence keeps nothing for its gradient: it stays as it is.
  bool same = !prog->derived->gradient && !prog->derived->tangent &&
              prog->kind == DE_RECURRENT;
  if (same) return m;
  if (!run_grad(cx, m, prog, target, ordered)) return NULL;
  keep_phases(m, prog->name);
  if (as_declared(m, prog)) return m;
  diag_add(cx, DIAG_ir_broken, prog->name_span, prog->name,
           target ? target->name : "cpu");
  return NULL;
}

// ---------------------------------------------------------------- parameters
typedef struct Make {
  Ctx *cx;
  const Decl *of;
  Decl *to;
} Make;

static const Param *find(const Decl *d, const char *name) {
  for (uint32_t i = 0; i < d->params.n; i++)
    if (d->params.at[i].name == name) return &d->params.at[i];
  for (uint32_t i = 0; i < d->outs.n; i++)
    if (d->outs.at[i].name == name) return &d->outs.at[i];
  return NULL;
}

// What d_O, g_Q and t_Q are like: the parameter behind the prefix.
static const Param *model(const Make *k, const char *name) {
  const Param *p = find(k->of, name);
  if (p || !strchr("dgt", *name) || name[1] != '_') return p;
  return find(k->of, intern(&k->cx->names, name + 2));
}

bool drv_is_cotangent(const Decl *prog, const char *name) {
  const Derived *how = prog->derived;
  bool is = how && ((how->gradient && strncmp(name, "d_", 2) == 0) ||
                    drv_is_tangent(prog, name));
  return is && !find(how->of, name);
}

bool drv_is_tangent(const Decl *prog, const char *name) {
  const Derived *how = prog->derived;
  return how && how->tangent && strncmp(name, "t_", 2) == 0 &&
         !find(how->of, name);
}

// The function's parameter as the program would write its type.
static Ty type_of(const Make *k, const Func *f, const Type *t) {
  Ty ty = {.kind = TY_VALUE, .dtype = t->dtype};
  const DimTab *from = &f->mod->dims;
  Dim *none = NEWN(&k->cx->session, Dim, from->syms.n + 1);
  ty.rank = t->kind == TK_TENSOR ? (uint8_t)t->n : 0;
  for (uint32_t i = 0; i < ty.rank; i++)
    ty.shape[i] = dim_subst(from, k->to->dims, t->size[i], none);
  return ty;
}

static void add_param(const Make *k, const Func *f, const FuncParam *q) {
  Arena *a = &k->cx->session;
  const ValueInfo *v = ir_info(f, q->v);
  bool out = q->role == PR_OUT;
  const char *name = intern(&k->cx->names, v->hint);
  const Param *as = model(k, name);
  Param p = as ? *as : (Param){.span = k->of->span, .name_span = k->of->span};
  Sym *s = NEW(a, Sym);
  *s = as ? *as->sym : (Sym){.span = k->of->span, .owner = k->to};
  // A scalar's gradient has one element; the layout of others is their
  // parameter's.
  bool scalar = as && !as->sym->ty.rank && out;
  if (!as || scalar) {
    s->ty = type_of(k, f, &v->type);
    p.layout = NULL;
    p.type = NEW(a, TypeExpr);
    *p.type = (TypeExpr){.span = k->of->span, .dtype = s->ty.dtype};
  }
  if (out || drv_is_tangent(k->to, name)) p.qual = PQ_NONE, p.deflt = NULL;
  s->name = p.name = name;
  s->kind = out ? SY_OUT : SY_PARAM;
  s->param = out ? k->to->outs.n : k->to->params.n;
  p.sym = s;
  if (out) vec_push(a, &k->to->outs, p);
  else vec_push(a, &k->to->params, p);
}

// ---------------------------------------------------------------- programs
static Decl *derived(Ctx *cx, Decl *prog, Derived kind) {
  Arena *a = &cx->session;
  Decl *d = NEW(a, Decl);
  Derived *how = NEW(a, Derived);
  *how = kind;
  how->of = prog;
  *d = *prog;
  d->derived = how;
  if (kind.gradient)
    d->doc = arena_printf(a,
                          "The gradient of %s: g_X of input X, for cotangents "
                          "d_O of output O.",
                          prog->name);
  if (kind.tangent)
    d->doc = arena_printf(a,
                          "%s and its derivative in a direction: t_O of output "
                          "O, for tangents t_X of input X.",
                          prog->name);
  const char *end = kind.gradient ? "_grad" : kind.tangent ? "_jvp" : "";
  d->name = intern(&cx->names, arena_printf(a, "%s%s", prog->name, end));
  d->params.at = d->outs.at = NULL;
  d->params.n = d->outs.n = d->params.cap = d->outs.cap = 0;
  return d;
}

// One choice of the dtype generics: parameters are the same for all. The step
// of a recurrence may have a known form for known dims only.
static uint32_t first_choice(Ctx *cx, const Decl *prog, FeBind **out) {
  uint32_t n = 0, dims = prog->kind == DE_RECURRENT ? prog->dims->syms.n : 0;
  *out = NEWN(&cx->session, FeBind, prog->generics.n + dims + 1);
  for (uint32_t i = 0; i < dims; i++) {
    const DimSym *s = &prog->dims->syms.at[i];
    if (s->values.n) (*out)[n++] = (FeBind){s->name, s->values.at[0], DT_NONE};
  }
  for (uint32_t i = 0; i < prog->generics.n; i++) {
    const Generic *g = &prog->generics.at[i];
    if (g->kind == GEN_DTYPE && g->dtypes.n)
      (*out)[n++] = (FeBind){g->name, 0, g->dtypes.at[0]};
  }
  return n;
}

// The programs of this choice of dtypes; NULL: a diagnostic.
static const Func *derive(Ctx *cx, Decl *d, const FeBind *choice, uint32_t n) {
  Module *m =
      drv_lower_attn(cx, (DrvSpec){.prog = d, .binds = choice, .n = n}, NULL);
  return m ? ir_find(m, d->name) : NULL;
}

static bool has_dtype(const Decl *prog, const char *generic, DType t) {
  for (uint32_t i = 0; i < prog->generics.n; i++) {
    const Generic *g = &prog->generics.at[i];
    for (uint32_t k = 0; g->name == generic && k < g->dtypes.n; k++)
      if (g->dtypes.at[k] == t && g->dtypes.n > 1) return true;
  }
  return false;
}

// What is kept in f64 where a generic is f64, and else in f32, has its name.
static bool name_wide(const Make *k, FeBind *choice, uint32_t n, Param *all,
                      uint32_t count) {
  for (uint32_t i = 0; i < n; i++) {
    DType first = choice[i].dtype;
    if (first == DT_NONE || first == DT_F64 ||
        !has_dtype(k->of, choice[i].name, DT_F64))
      continue;
    choice[i].dtype = DT_F64;
    const Func *f = derive(k->cx, k->to, choice, n);
    choice[i].dtype = first;
    if (!f) return false;
    for (uint32_t p = 0; p < f->params.n; p++) {
      const ValueInfo *v = ir_info(f, f->params.at[p].v);
      for (uint32_t q = 0; q < count; q++)
        if (!strcmp(all[q].name, v->hint) && v->type.dtype == DT_F64 &&
            all[q].type->dtype == DT_F32)
          all[q].type->generic = choice[i].name;
    }
  }
  return true;
}

static Decl *make(Ctx *cx, Decl *prog, Derived kind) {
  FeBind *choice;
  uint32_t n = first_choice(cx, prog, &choice);
  Make k = {cx, prog, derived(cx, prog, kind)};
  const Func *f = derive(cx, k.to, choice, n);
  if (!f) return NULL;
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].role != PR_SHARED) add_param(&k, f, &f->params.at[i]);
  if (!name_wide(&k, choice, n, k.to->params.at, k.to->params.n) ||
      !name_wide(&k, choice, n, k.to->outs.at, k.to->outs.n))
    return NULL;
  Derived *how = NEW(&cx->session, Derived);
  *how = *k.to->derived;
  how->declared = true;
  k.to->derived = how;
  return k.to;
}

// Tensors of floats; an inout one of a recurrence, whose state begins there.
static bool is_input(const Decl *prog, const Param *p) {
  bool begins = p->qual == PQ_INOUT && prog->kind == DE_RECURRENT;
  return p->sym->ty.rank && (p->qual == PQ_NONE || begins) &&
         dtype_is_float(p->sym->ty.dtype);
}

static const char *all_inputs(Ctx *cx, const Decl *prog) {
  Buf b = {.arena = &cx->session};
  for (uint32_t i = 0; i < prog->params.n; i++) {
    const Param *p = &prog->params.at[i];
    if (!is_input(prog, p)) continue;
    buf_printf(&b, "%s%s", b.n ? "," : "", p->name);
  }
  return b.n ? b.at : "";
}

bool drv_gradient(Ctx *cx, Decl *prog, const char *inputs, DrvGradient *out) {
  if (!*inputs) inputs = all_inputs(cx, prog);
  Derived kind = {.inputs = inputs};
  out->forward = make(cx, prog, kind);
  kind.gradient = true;
  out->backward = out->forward ? make(cx, prog, kind) : NULL;
  return out->backward != NULL;
}

Decl *drv_jvp(Ctx *cx, Decl *prog, const char *inputs) {
  if (!*inputs) inputs = all_inputs(cx, prog);
  return make(cx, prog, (Derived){.inputs = inputs, .tangent = true});
}
