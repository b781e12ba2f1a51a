// Parameters as the ABI sees them, and expressions as postfix code.
#include "codegen/object/layout.h"

#include <assert.h>
#include <string.h>

uint8_t cg_param_kind(const CgParam *p) {
  switch (p->role) {
  case PR_IN: return ATTN_PARAM_IN;
  case PR_OUT: return ATTN_PARAM_OUT;
  case PR_INOUT: return ATTN_PARAM_INOUT;
  default: return ATTN_PARAM_SCALAR;
  }
}

uint8_t cg_param_flags(const CgParam *p) {
  int computed = p->role == PR_SCALAR && p->def == CG_COMPUTED;
  return (uint8_t)((p->optional ? ATTN_PARAM_OPTIONAL : 0) |
                   (computed ? ATTN_PARAM_COMPUTED : 0));
}

static bool narrow(const CgParam *p) {  // passed as float
  return dtype_is_float(p->type.dtype) && p->type.dtype != DT_F64;
}

// The mark of a default that the kernel computes: a NaN that no arithmetic
// makes, or the least integer.
static uint64_t mark(const CgParam *p) {
  if (narrow(p)) return 0x7fc5a77eu;
  return dtype_is_float(p->type.dtype) ? 0x7ff8000000c5a77eu
                                       : (uint64_t)INT64_MIN;
}

uint64_t cg_default_bits(const CgParam *p) {
  if (p->role != PR_SCALAR || p->def == CG_NO_DEFAULT) return 0;
  if (p->def == CG_COMPUTED) return mark(p);
  attn_scalar s = {.i64 = 0};
  if (narrow(p)) s.f32 = (float)dtype_round(p->type.dtype, p->f);
  else if (dtype_is_float(p->type.dtype)) s.f64 = p->f;
  else s.i64 = p->i;
  uint64_t bits;
  memcpy(&bits, &s, sizeof bits);
  return bits;
}

const char *cg_param_ctype(const CgParam *p) {
  if (p->type.kind == TK_TENSOR) return "attn_tensor";
  if (narrow(p)) return "float";
  return dtype_is_float(p->type.dtype) ? "double" : "int64_t";
}

uint32_t cg_place(const CgParam *p, uint32_t *end) {
  bool tensor = p->type.kind == TK_TENSOR;
  uint32_t size = tensor ? (uint32_t)sizeof(attn_tensor) : narrow(p) ? 4 : 8;
  uint32_t align = !tensor && narrow(p) ? 4 : 8;
  uint32_t at = (*end + align - 1) & ~(align - 1);
  *end = at + size;
  return at;
}

Lengths cg_lengths(const CgProgram *p, const DimSym *s) {
  uint32_t tensor = 0;
  if (s->kind != DIM_RAGGED || !s->by) return (Lengths){ATTN_NONE, 0};
  for (uint32_t i = 0; i < p->nparams; i++) {
    const Type *t = &p->params[i].type;
    if (t->kind != TK_TENSOR) continue;
    if (strcmp(p->params[i].name, s->by)) {
      tensor++;
      continue;
    }
    // Extent B holds lengths, B + 1 offsets.
    bool plain = t->n && p->dims->exprs.at[t->size[0]].op != DIM_ADD;
    return (Lengths){tensor, !plain};
  }
  return (Lengths){ATTN_NONE, 0};
}

// ---------------------------------------------------------------- expressions
typedef Vec(int64_t) Words;

static void put_dim(Arena *a, const DimTab *t, Dim d, Words *w) {
  static const uint8_t xop[] = {[DIM_ADD] = ATTN_X_ADD,
                                [DIM_MUL] = ATTN_X_MUL,
                                [DIM_FLOORDIV] = ATTN_X_FLOORDIV,
                                [DIM_MOD] = ATTN_X_MOD,
                                [DIM_MIN] = ATTN_X_MIN,
                                [DIM_MAX] = ATTN_X_MAX};
  const DimExpr *e = &t->exprs.at[d];
  if (e->op == DIM_CONST || e->op == DIM_SYM) {
    vec_push(a, w, e->op == DIM_CONST ? ATTN_X_CONST : ATTN_X_DIM);
    vec_push(a, w, e->value);
    return;
  }
  put_dim(a, t, e->a, w);
  put_dim(a, t, e->b, w);
  vec_push(a, w, xop[e->op]);
}

CgExpr cg_expr_dim(Ctx *cx, const DimTab *t, Dim d) {
  Words w = {0};
  assert(d != DIM_NONE);
  put_dim(&cx->session, t, d, &w);
  return (CgExpr){w.at, w.n};
}

CgExpr cg_expr_const(Ctx *cx, int64_t v) {
  Words w = {0};
  vec_push(&cx->session, &w, ATTN_X_CONST);
  vec_push(&cx->session, &w, v);
  return (CgExpr){w.at, w.n};
}

CgExpr cg_expr_axis(Ctx *cx, attn_xop op, uint32_t tensor, uint32_t axis) {
  Words w = {0};
  vec_push(&cx->session, &w, (int64_t)op);
  vec_push(&cx->session, &w, tensor);
  vec_push(&cx->session, &w, axis);
  return (CgExpr){w.at, w.n};
}

CgExpr cg_expr_bin(Ctx *cx, CgExpr a, attn_xop op, CgExpr b) {
  int64_t *w = NEWN(&cx->session, int64_t, a.n + b.n + 1);
  if (a.n) memcpy(w, a.at, a.n * sizeof *w);
  if (b.n) memcpy(w + a.n, b.at, b.n * sizeof *w);
  w[a.n + b.n] = (int64_t)op;
  return (CgExpr){w, a.n + b.n + 1};
}

CgExpr cg_expr_sum(Ctx *cx, const CgExpr *of, uint32_t n) {
  uint32_t all = 0, at = 0;
  for (uint32_t i = 0; i < n; i++) all += of[i].n + 1;
  int64_t *w = NEWN(&cx->session, int64_t, all + 1);
  for (uint32_t i = 0; i < n; i++) {
    if (!of[i].n) continue;
    bool first = !at;
    memcpy(w + at, of[i].at, of[i].n * sizeof *w);
    at += of[i].n;
    if (!first) w[at++] = ATTN_X_ADD;
  }
  return (CgExpr){w, at};
}

// ---------------------------------------------------------------- signatures
CgProgram cg_program_of(Ctx *cx, Module *m, const Func *f, const char *prefix) {
  Arena *a = &cx->session;
  CgParam *p = NEWN(a, CgParam, f->params.n + 1);
  uint32_t n = 0;
  for (uint32_t i = 0; i < f->params.n; i++) {
    const FuncParam *q = &f->params.at[i];
    if (q->role == PR_SHARED) continue;
    p[n++] = (CgParam){.name = ir_info(f, q->v)->hint,
                       .role = q->role,
                       .type = *ir_type(f, q->v)};
  }
  CgProgram out = {.name = f->name,
                   .prefix = prefix,
                   .dims = &m->dims,
                   .params = p,
                   .nparams = n};
  if (m->level != LV_MACH) return out;
  CgVariant *v = NEW(a, CgVariant);
  v->mod = m;
  out.variants = v;
  out.nvariants = 1;
  return out;
}
