// A program's descriptor as plain data, and as a section of the container, from
// which the runtime makes it again where there is no object.
//   Q: f32[B, H] -> params {Q, axis {0, 3}}, dims {B, H},
//                   code {DIM 0 END DIM 1 END}
#include "codegen/object/layout.h"

#include <string.h>

// ---------------------------------------------------------------- expressions
static bool too_deep(CgExpr e) {
  int depth = 0, most = 0;
  for (uint32_t i = 0; i < e.n; i++) {
    int64_t op = e.at[i];
    bool leaf = op >= ATTN_X_CONST && op <= ATTN_X_STRIDE;
    if (leaf) i += op >= ATTN_X_SHAPE ? 2 : 1;
    depth += leaf ? 1 : op == ATTN_X_NOT ? 0 : -1;
    most = depth > most ? depth : most;
  }
  return most > ATTN_X_DEPTH;
}

uint32_t cg_plain_expr(CgPlain *d, CgExpr e) {
  if (!e.n) return ATTN_NONE;
  d->deep |= too_deep(e);
  // The same code twice is stored once; code ends where END stands, so any
  // equal stretch will do.
  for (uint32_t i = 0; i + e.n < d->code.n; i++)
    if (!memcmp(d->code.at + i, e.at, e.n * sizeof *e.at) &&
        d->code.at[i + e.n] == ATTN_X_END)
      return i;
  uint32_t at = d->code.n;
  for (uint32_t i = 0; i < e.n; i++) vec_push(d->arena, &d->code, e.at[i]);
  vec_push(d->arena, &d->code, ATTN_X_END);
  return at;
}

// None for an open dim: what was asked for is among the variants.
static uint32_t value_list(CgPlain *d, const DimSym *s) {
  uint32_t at = d->code.n;
  if (s->kind != DIM_SPEC || !s->values.n || s->open) return ATTN_NONE;
  vec_push(d->arena, &d->code, s->values.n);
  for (uint32_t i = 0; i < s->values.n; i++)
    vec_push(d->arena, &d->code, s->values.at[i]);
  vec_push(d->arena, &d->code, ATTN_X_END);
  return at;
}

// ---------------------------------------------------------------- plain data
static attn_param_desc param(Ctx *cx, CgPlain *d, const CgProgram *p,
                             const CgParam *q, uint32_t *end) {
  bool tensor = q->type.kind == TK_TENSOR;
  attn_param_desc x = {.name = q->name,
                       .kind = cg_param_kind(q),
                       .dtype = (uint8_t)q->type.dtype,
                       .rank = tensor ? (uint8_t)q->type.n : 0,
                       .flags = cg_param_flags(q),
                       .offset = cg_place(q, end),
                       .def = {.i64 = (int64_t)cg_default_bits(q)}};
  for (uint32_t i = 0; i < ATTN_MAX_RANK; i++) {
    bool any = i >= x.rank || q->type.size[i] == DIM_NONE;
    x.axis[i] =
        any ? ATTN_NONE
            : cg_plain_expr(d, cg_expr_dim(cx, p->dims, q->type.size[i]));
  }
  return x;
}

static attn_dim_desc dim(CgPlain *d, const CgProgram *p, const DimSym *s) {
  static const uint8_t kinds[] = {[DIM_DYN] = ATTN_DIM_DYN,
                                  [DIM_SPEC] = ATTN_DIM_CONST,
                                  [DIM_RAGGED] = ATTN_DIM_RAGGED};
  Lengths by = cg_lengths(p, s);
  int64_t hi = s->hi >= DIM_UNBOUNDED ? INT64_MAX : s->hi;
  return (attn_dim_desc){.name = s->name,
                         .lo = s->lo,
                         .hi = hi,
                         .divisor = s->divisor,
                         .kind = kinds[s->kind],
                         .values = value_list(d, s),
                         .by = by.tensor,
                         .by_offsets = by.offsets};
}

CgPlain cg_plain(Ctx *cx, const CgProgram *p) {
  Arena *a = &cx->scratch;
  uint32_t end = sizeof(attn_args), ndims = p->dims->syms.n;
  CgPlain d = {.arena = a,
               .params = NEWN(a, attn_param_desc, p->nparams + 1),
               .dims = NEWN(a, attn_dim_desc, ndims + 1),
               .checks = NEWN(a, uint32_t, p->nchecks + 1)};
  for (uint32_t i = 0; i < p->nparams; i++)
    d.params[i] = param(cx, &d, p, &p->params[i], &end);
  for (uint32_t i = 0; i < ndims; i++)
    d.dims[i] = dim(&d, p, &p->dims->syms.at[i]);
  for (uint32_t i = 0; i < p->nchecks; i++)
    d.checks[i] = cg_plain_expr(&d, p->checks[i]);
  d.args_size = (end + 7u) & ~7u;
  return d;
}

// ---------------------------------------------------------------- section
typedef struct Out {
  Buf *b;
  size_t start;
  Buf names;
} Out;

static uint32_t name(Out *o, const char *s) {
  uint32_t at = (uint32_t)o->names.n;
  buf_add(&o->names, s, strlen(s) + 1);
  return at;
}

static attn_table put(Out *o, const void *at, uint32_t n, size_t size) {
  while ((o->b->n - o->start) % 8) buf_char(o->b, 0);
  attn_table t = {(uint32_t)(o->b->n - o->start), n, (uint32_t)size};
  if (n) buf_add(o->b, at, n * size);
  return t;
}

static attn_param_record param_record(Out *o, const attn_param_desc *d) {
  attn_param_record r = {.def = d->def,
                         .name = name(o, d->name),
                         .kind = d->kind,
                         .dtype = d->dtype,
                         .rank = d->rank,
                         .flags = d->flags,
                         .offset = d->offset};
  memcpy(r.axis, d->axis, sizeof r.axis);
  return r;
}

static attn_dim_record dim_record(Out *o, const attn_dim_desc *d) {
  return (attn_dim_record){.lo = d->lo,
                           .hi = d->hi,
                           .divisor = d->divisor,
                           .name = name(o, d->name),
                           .kind = d->kind,
                           .values = d->values,
                           .by = d->by,
                           .by_offsets = d->by_offsets};
}

void cg_describe(Ctx *cx, const CgProgram *p, Buf *out) {
  Arena *a = &cx->scratch;
  CgPlain d = cg_plain(cx, p);
  Out o = {out, out->n, {.arena = a}};
  uint32_t ndims = p->dims->syms.n;
  attn_program_record h = {.abi = ATTN_ABI,
                           .args_size = d.args_size,
                           .name = name(&o, p->name)};
  attn_param_record *params = NEWN(a, attn_param_record, p->nparams + 1);
  attn_dim_record *dims = NEWN(a, attn_dim_record, ndims + 1);
  for (uint32_t i = 0; i < p->nparams; i++)
    params[i] = param_record(&o, &d.params[i]);
  for (uint32_t i = 0; i < ndims; i++) dims[i] = dim_record(&o, &d.dims[i]);
  buf_add(out, (const char *)&h, sizeof h);
  h.params = put(&o, params, p->nparams, sizeof *params);
  h.dims = put(&o, dims, ndims, sizeof *dims);
  h.checks = put(&o, d.checks, p->nchecks, sizeof *d.checks);
  h.code = put(&o, d.code.at, d.code.n, sizeof *d.code.at);
  h.strings = put(&o, o.names.at, (uint32_t)o.names.n, 1);
  memcpy(out->at + o.start, &h, sizeof h);
}
