// The text form of modules (docs/ir.md), written.
#include "ir/layout.h"
#include "ir/text/text.h"

#include <string.h>

// ---------------------------------------------------------------- names
typedef struct Printer {
  const Func *f;
  Buf *out;
  const char **name;  // by value; NULL: not seen
  DimNames *dims;     // NULL: dims are written in full
} Printer;

typedef struct Namer {
  const Func *f;
  Map uses;  // hint -> number of values
  Map next;  // hint -> next number
  uint32_t unnamed;
  const char **name;
} Namer;

typedef void EachValue(Namer *n, Value v);

static uint64_t key_of(const char *s) {
  return map_hash(s, strlen(s), 0);
}

static void count_value(Namer *n, Value v) {
  const char *hint = ir_info(n->f, v)->hint;
  uint64_t c = 0;
  if (!hint) return;
  map_get(&n->uses, key_of(hint), &c);
  map_put(&n->uses, key_of(hint), c + 1);
}

static void name_value(Namer *n, Value v) {
  Arena *a = n->uses.arena;
  const char *hint = ir_info(n->f, v)->hint;
  uint64_t c = 0, i = 0;
  if (!hint) {
    n->name[v] = arena_printf(a, "%%%u", n->unnamed++);
    return;
  }
  map_get(&n->uses, key_of(hint), &c);
  if (c == 1) {
    n->name[v] = arena_printf(a, "%%%s", hint);
    return;
  }
  map_get(&n->next, key_of(hint), &i);
  // An axis's index may have such a name for itself.
  const char *name;
  do name = arena_printf(a, "%%%s.%llu", hint, (unsigned long long)i++);
  while (map_get(&n->uses, key_of(name + 1), &c));
  map_put(&n->next, key_of(hint), i);
  n->name[v] = name;
}

// Values in the order in which they are printed.
static void each_in_region(Namer *n, const Region *r, EachValue *fn) {
  for (uint32_t i = 0; i < r->params.n; i++) fn(n, r->params.at[i]);
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nres; i++) fn(n, op->res[i]);
    for (uint32_t i = 0; i < op->nregions; i++)
      each_in_region(n, op->regions[i], fn);
  }
}

static void each_value(Namer *n, EachValue *fn) {
  for (uint32_t i = 0; i < n->f->params.n; i++) fn(n, n->f->params.at[i].v);
  each_in_region(n, n->f->body, fn);
}

static Printer start(const Func *f, Buf *out) {
  Arena *a = out->arena;
  Namer n = {.f = f, .uses = {.arena = a}, .next = {.arena = a}};
  n.name = NEWN(a, const char *, f->values.n);
  each_value(&n, count_value);
  each_value(&n, name_value);
  return (Printer){.f = f, .out = out, .name = n.name};
}

// ---------------------------------------------------------------- types
static void put_axis(const Func *f, uint64_t axis, Buf *out) {
  buf_str(out, axis < f->axes.n ? f->axes.at[axis].name : "?");
}

// Invalid IR is printed too, in the verifier's messages.
static void put_dim(const Printer *p, Dim d) {
  const DimTab *t = &p->f->mod->dims;
  if (d != DIM_NONE && d < t->exprs.n) dim_print_named(t, p->dims, d, p->out);
  else buf_char(p->out, '?');
}

static void put_word(WordSet set, int64_t i, Buf *out) {
  const char *s = i >= 0 && i < 64 ? word(set, (uint32_t)i) : NULL;
  buf_str(out, s ? s : "?");
}

static const char *dtype_word(int64_t t) {
  return t >= 0 && t < DT_COUNT ? dtype_name((DType)t) : "?";
}

static void put_elem_axes(const Printer *p, const Type *t) {
  for (uint32_t i = 0; i < t->n && i < MAX_AXES; i++) {
    buf_char(p->out, i ? ',' : '{');
    put_axis(p->f, t->axis[i], p->out);
    if (t->size[i] == DIM_NONE) continue;
    buf_char(p->out, ':');
    put_dim(p, t->size[i]);
  }
  if (t->n) buf_char(p->out, '}');
}

// frag<64x128xf32,acc>, frag<64xf32,acc.0>, frag<64xf32,lin.0:128>,
// smem<2x128x64xbf16,sw128>
static void put_tile(const Type *t, const char *dtype, Buf *out) {
  buf_str(out, t->kind == TK_SMEM ? "smem<" : "frag<");
  if (t->kind == TK_SMEM && t->ext[2] != 1) buf_printf(out, "%ux", t->ext[2]);
  buf_printf(out, "%ux", t->ext[0]);
  if (!t->slice) buf_printf(out, "%ux", t->ext[1]);
  buf_printf(out, "%s,%s", dtype, layout_name(t->layout));
  if (t->slice) {
    buf_printf(out, ".%u", t->slice == SLICE_COL);
    if (t->partial) buf_char(out, 'p');
    if (t->ext[1]) buf_printf(out, ":%u", t->ext[1]);
  }
  buf_char(out, '>');
}

static void put_type(const Printer *p, const Type *t) {
  Buf *out = p->out;
  const char *dtype = dtype_word(t->dtype);
  switch (t->kind) {
  case TK_NONE: buf_str(out, "none"); break;
  case TK_ELEM:
    buf_str(out, dtype);
    put_elem_axes(p, t);
    break;
  case TK_TENSOR:
    buf_printf(out, "tensor<%s[", dtype);
    for (uint32_t i = 0; i < t->n && i < MAX_AXES; i++) {
      if (i) buf_str(out, ", ");
      put_dim(p, t->size[i]);
    }
    buf_str(out, t->quads ? "], quads>" : t->padded ? "], padded>" : "]>");
    break;
  case TK_VEC: buf_printf(out, "vec<%ux%s>", t->n, dtype); break;
  case TK_PTR: buf_printf(out, "ptr<%s>", dtype); break;
  case TK_FRAG:
  case TK_SMEM: put_tile(t, dtype, out); break;
  case TK_MBAR: buf_printf(out, "mbar<%u>", t->n); break;
  }
}

void print_type(const Func *f, const Type *t, Buf *out) {
  put_type(&(Printer){.f = f, .out = out}, t);
}

// ---------------------------------------------------------------- attributes
static void put_list(const Func *f, const IrAttr *a, AttrKind kind, Buf *out) {
  buf_char(out, '[');
  for (uint32_t i = 0; i < a->n; i++) {
    if (i) buf_str(out, ", ");
    if (kind == AK_AXES) put_axis(f, (uint64_t)a->list[i], out);
    else if (kind == AK_RKINDS) put_word(WS_RKIND, a->list[i], out);
    else buf_printf(out, "%lld", (long long)a->list[i]);
  }
  buf_char(out, ']');
}

static void put_attr(const Printer *p, const IrAttr *a) {
  const Func *f = p->f;
  Buf *out = p->out;
  AttrKind kind = attr_kind(a->id);
  buf_printf(out, "%s = ", attr_name(a->id));
  switch (kind) {
  case AK_INT: buf_printf(out, "%lld", (long long)a->i); break;
  case AK_FLOAT: buf_double(out, a->f); break;
  case AK_BOOL: buf_str(out, a->i ? "true" : "false"); break;
  case AK_STR: buf_json(out, a->s, strlen(a->s)); break;
  case AK_SYM: buf_printf(out, "@%s", a->s); break;
  case AK_DIM: put_dim(p, (Dim)a->i); break;
  case AK_DTYPE: buf_str(out, dtype_word(a->i)); break;
  case AK_AXIS: put_axis(f, (uint64_t)a->i, out); break;
  case AK_AXES:
  case AK_INTS:
  case AK_RKINDS: put_list(f, a, kind, out); break;
  case AK_RKIND: put_word(WS_RKIND, a->i, out); break;
  case AK_DIR: put_word(WS_DIR, a->i, out); break;
  case AK_ORDER: put_word(WS_ORDER, a->i, out); break;
  case AK_FILL: put_word(WS_FILL, a->i, out); break;
  }
}

// ---------------------------------------------------------------- ops
static void put_value(const Printer *p, Value v) {
  bool known = v && v < p->f->values.n && p->name[v];
  buf_str(p->out, known ? p->name[v] : "%?");
}

static void put_values(const Printer *p, const Value *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (i) buf_str(p->out, ", ");
    put_value(p, v[i]);
  }
}

static void indent(Buf *out, int depth) {
  for (int i = 0; i < depth; i++) buf_str(out, "  ");
}

static void put_head(const Printer *p, const Op *op) {
  put_values(p, op->res, op->nres);
  if (op->nres) buf_str(p->out, " = ");
  buf_printf(p->out, "%s(", op_info(op->code)->name);
  put_values(p, op->args, op->nargs);
  buf_char(p->out, ')');
  for (uint32_t i = 0; i < op->nattrs; i++) {
    buf_str(p->out, i ? ", " : " {");
    put_attr(p, &op->attrs[i]);
  }
  if (op->nattrs) buf_char(p->out, '}');
}

static void put_result_types(const Printer *p, const Op *op) {
  for (uint32_t i = 0; i < op->nres; i++) {
    buf_str(p->out, i ? ", " : " : ");
    put_type(p, ir_type(p->f, op->res[i]));
  }
}

static void put_ops(const Printer *p, const Region *r, int depth);

static void put_region(const Printer *p, const Region *r, int depth) {
  buf_str(p->out, "{\n");
  for (uint32_t i = 0; i < r->params.n; i++) {
    if (i) buf_str(p->out, ", ");
    else indent(p->out, depth + 1), buf_str(p->out, "^(");
    put_value(p, r->params.at[i]);
    buf_str(p->out, ": ");
    put_type(p, ir_type(p->f, r->params.at[i]));
  }
  if (r->params.n) buf_str(p->out, "):\n");
  put_ops(p, r, depth + 1);
  indent(p->out, depth);
  buf_char(p->out, '}');
}

static void put_op(const Printer *p, const Op *op, int depth) {
  indent(p->out, depth);
  put_head(p, op);
  for (uint32_t i = 0; i < op->nregions; i++) {
    buf_str(p->out, i ? ", " : " (");
    put_region(p, op->regions[i], depth);
  }
  if (op->nregions) buf_char(p->out, ')');
  put_result_types(p, op);
  buf_char(p->out, '\n');
}

static void put_ops(const Printer *p, const Region *r, int depth) {
  for (const Op *op = r->first; op; op = op->next) put_op(p, op, depth);
}

void print_op_line(const Func *f, const Op *op, Buf *out) {
  Printer p = start(f, out);
  put_head(&p, op);
  if (op->nregions) buf_str(out, " (..)");
  put_result_types(&p, op);
}

// ---------------------------------------------------------------- functions
static void put_params(const Printer *p) {
  const Func *f = p->f;
  buf_printf(p->out, "\nfunc %s @%s(", word(WS_FUNC_KIND, f->kind), f->name);
  for (uint32_t i = 0; i < f->params.n; i++) {
    const FuncParam *q = &f->params.at[i];
    if (i) buf_str(p->out, ", ");
    put_value(p, q->v);
    buf_str(p->out, ": ");
    put_type(p, ir_type(f, q->v));
    buf_printf(p->out, " %s", word(WS_PARAM_ROLE, q->role));
    if (q->nograd) buf_str(p->out, " nograd");
  }
  buf_char(p->out, ')');
}

static void put_extent(const Printer *p, const Axis *x) {
  DimNames *n = p->dims;
  if (n && n->counts && !n->hint[x->extent]) n->hint[x->extent] = x->name;
  put_dim(p, x->extent);
}

static void put_space(const Printer *p) {
  const Func *f = p->f;
  const char *lead = "\n    ";
  for (uint32_t i = 0; i < f->axes.n; i++) {
    const Axis *x = &f->axes.at[i];
    buf_str(p->out, i ? ", " : lead);
    if (!i) buf_str(p->out, "axes(");
    buf_printf(p->out, "%s %s ", x->name, word(WS_AXIS_ROLE, x->role));
    put_extent(p, x);
  }
  if (f->axes.n) buf_char(p->out, ')'), lead = " ";
  for (uint32_t i = 0; i < f->grid.n; i++) {
    buf_str(p->out, i ? ", " : lead);
    if (!i) buf_str(p->out, "grid(");
    put_axis(f, f->grid.at[i].axis, p->out);
    buf_printf(p->out, ":%lld", (long long)f->grid.at[i].tile);
    if (f->grid.at[i].serial) buf_str(p->out, " serial");
  }
  if (f->grid.n) buf_char(p->out, ')'), lead = " ";
  if (f->key < 0) return;
  buf_printf(p->out, "%skey(", lead);
  put_axis(f, (uint64_t)f->key, p->out);
  buf_char(p->out, ')');
}

static void put_func(const Func *f, DimNames *dims, Buf *out) {
  Printer p = start(f, out);
  p.dims = dims;
  put_params(&p);
  put_space(&p);
  buf_str(out, " {\n");
  put_ops(&p, f->body, 1);
  buf_str(out, "}\n");
}

static void put_dim_sym(const DimSym *s, Buf *out) {
  buf_printf(out, "dim %s %s", s->name, word(WS_DIM_KIND, s->kind));
  if (s->kind == DIM_RAGGED) buf_printf(out, "(%s)", s->by ? s->by : "");
  if (s->lo != 0 || s->hi != DIM_UNBOUNDED)
    buf_printf(out, " in [%lld, %lld]", (long long)s->lo, (long long)s->hi);
  for (uint32_t i = 0; i < s->values.n; i++)
    buf_printf(out, "%s%lld", i ? ", " : " {", (long long)s->values.at[i]);
  if (s->values.n) buf_char(out, '}');
  if (s->divisor != 1) buf_printf(out, " div %lld", (long long)s->divisor);
  buf_char(out, '\n');
}

// The text is written twice: the first time its dims are counted.
static DimNames name_dims(const Module *m, Arena *a) {
  DimNames dims;
  Buf unused = {.arena = a};
  dim_names_init(&dims, &m->dims, a);
  for (uint32_t i = 0; i < m->funcs.n; i++)
    put_func(m->funcs.at[i], &dims, &unused);
  dim_names_choose(&dims, &m->dims);
  return dims;
}

void ir_print(const Module *m, Buf *out) {
  buf_printf(out, "module %s", level_name(m->level));
  if (m->target) buf_printf(out, " %s", m->target);
  buf_char(out, '\n');
  for (uint32_t i = 0; i < m->dims.syms.n; i++)
    put_dim_sym(&m->dims.syms.at[i], out);
  DimNames dims = name_dims(m, out->arena);
  dim_names_print(&dims, &m->dims, out);
  for (uint32_t i = 0; i < m->funcs.n; i++)
    put_func(m->funcs.at[i], &dims, out);
}
