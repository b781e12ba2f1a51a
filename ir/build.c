// Constructors: modules, functions, axes, values, regions, ops, attributes.
#include "ir/infer.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <string.h>

// ---------------------------------------------------------------- containers
Module *ir_module(Ctx *cx, Level level) {
  Module *m = NEW(cx->home, Module);
  m->cx = cx;
  m->arena = cx->home;
  m->level = level;
  dim_init(&m->dims, m->arena);
  return m;
}

uint32_t ir_pieces(const Op *op) {
  const IrAttr *at = ir_attr(op, AT_PIECES);
  return at && at->n == 2 && at->list[1] > 0 ? (uint32_t)at->list[1] : 1;
}

bool ir_is_phase(const Func *f, const char *name) {
  size_t n = strlen(name);
  return f->kind == FK_PROGRAM && !strncmp(f->name, name, n) &&
         (!f->name[n] || f->name[n] == '.');
}

Func *ir_find(const Module *m, const char *name) {
  for (uint32_t i = 0; i < m->funcs.n; i++)
    if (strcmp(m->funcs.at[i]->name, name) == 0) return m->funcs.at[i];
  return NULL;
}

Func *ir_func(Module *m, FuncKind kind, const char *name) {
  Func *f = NEW(m->arena, Func);
  f->mod = m;
  f->kind = kind;
  f->name = intern(&m->cx->names, name);
  f->key = -1;
  f->span = NOWHERE;
  vec_push(m->arena, &f->values, ((ValueInfo){0}));  // id 0 is none
  f->body = ir_region(f, NULL);
  vec_push(m->arena, &m->funcs, f);
  return f;
}

static bool axis_taken(const Func *f, const char *name) {
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (strcmp(f->axes.at[i].name, name) == 0) return true;
  return false;
}

uint32_t ir_axis(Func *f, const char *name, AxisRole role, Dim extent) {
  Arena *a = f->mod->arena;
  const char *s = name;
  for (uint32_t i = 1; axis_taken(f, s); i++)
    s = arena_printf(a, "%s.%u", name, i);
  s = intern(&f->mod->cx->names, s);
  vec_push(a, &f->axes, ((Axis){s, role, extent}));
  return f->axes.n - 1;
}

// A hint as the text form has it: identifier characters, and no ".12" at the
// end, which is how the printer numbers values of one hint.
static const char *clean_hint(Func *f, const char *hint) {
  if (!hint) return NULL;
  size_t n = strlen(hint);
  for (;;) {
    size_t k = n;
    while (k && isdigit((unsigned char)hint[k - 1])) k--;
    if (k == n || k == 0 || hint[k - 1] != '.') break;
    n = k - 1;
  }
  if (n == 0 || n > 200 || isdigit((unsigned char)hint[0]) || hint[0] == '.')
    return NULL;
  char *s = arena_strndup(&f->mod->cx->session, hint, n);
  for (char *p = s; *p; p++)
    if (!isalnum((unsigned char)*p) && *p != '.') *p = '_';
  return intern(&f->mod->cx->names, s);
}

Value ir_value(Func *f, Type t, const char *hint) {
  ValueInfo info = {.type = t, .hint = clean_hint(f, hint)};
  vec_push(f->mod->arena, &f->values, info);
  return f->values.n - 1;
}

void ir_set_hint(Func *f, Value v, const char *hint) {
  ir_info(f, v)->hint = clean_hint(f, hint);
}

Value ir_param(Func *f, const char *name, ParamRole role, Type t) {
  Value v = ir_value(f, t, name);
  ir_info(f, v)->region = f->body;
  vec_push(f->mod->arena, &f->params, ((FuncParam){.v = v, .role = role}));
  return v;
}

Region *ir_region(Func *f, Op *parent) {
  Region *r = NEW(f->mod->arena, Region);
  r->parent = parent;
  r->fn = f;
  return r;
}

Value ir_region_param(Region *r, Type t, const char *hint) {
  Value v = ir_value(r->fn, t, hint);
  ir_info(r->fn, v)->region = r;
  vec_push(r->fn->mod->arena, &r->params, v);
  return v;
}

// ---------------------------------------------------------------- ops
static void link_before(Op *op, Region *r, Op *where) {
  op->parent = r;
  op->next = where;
  op->prev = where ? where->prev : r->last;
  *(op->prev ? &op->prev->next : &r->first) = op;
  *(where ? &where->prev : &r->last) = op;
}

static void unlink_op(Op *op) {
  Region *r = op->parent;
  *(op->prev ? &op->prev->next : &r->first) = op->next;
  *(op->next ? &op->next->prev : &r->last) = op->prev;
  op->prev = op->next = NULL;
  op->parent = NULL;
}

static void copy_attrs(Arena *a, Op *op, const IrAttr *attrs, uint32_t n) {
  op->attrs = NEWN(a, IrAttr, n);
  op->nattrs = n;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t j = i;
    for (; j && op->attrs[j - 1].id > attrs[i].id; j--)
      op->attrs[j] = op->attrs[j - 1];
    op->attrs[j] = attrs[i];
    if (!attrs[i].n) continue;
    op->attrs[j].list = NEWN(a, int64_t, attrs[i].n);
    memcpy(op->attrs[j].list, attrs[i].list, attrs[i].n * sizeof(int64_t));
  }
}

Op *op_make(Region *r, Op *before, OpCode c, const Value *args, uint32_t nargs,
            const IrAttr *attrs, uint32_t nattrs) {
  Arena *a = r->fn->mod->arena;
  Op *op = NEW(a, Op);
  *op = (Op){.code = c, .nargs = nargs, .span = NOWHERE};
  op->args = NEWN(a, Value, nargs);
  if (nargs) memcpy(op->args, args, nargs * sizeof *args);
  copy_attrs(a, op, attrs, nattrs);
  link_before(op, r, before);
  return op;
}

void op_add_results(Op *op, const Type *types, uint32_t n) {
  Func *f = op->parent->fn;
  op->res = NEWN(f->mod->arena, Value, n);
  op->nres = n;
  for (uint32_t i = 0; i < n; i++) {
    op->res[i] = ir_value(f, types[i], NULL);
    ir_info(f, op->res[i])->def = op;
    ir_info(f, op->res[i])->region = op->parent;
  }
}

static void add_regions(Func *f, Op *op, uint32_t n) {
  op->regions = NEWN(f->mod->arena, Region *, n);
  op->nregions = n;
  for (uint32_t i = 0; i < n; i++) op->regions[i] = ir_region(f, op);
}

Region *op_add_region(Op *op) {
  Func *f = op->parent->fn;
  Region **all = NEWN(f->mod->arena, Region *, op->nregions + 1);
  if (op->nregions) memcpy(all, op->regions, op->nregions * sizeof *all);
  op->regions = all;
  return all[op->nregions++] = ir_region(f, op);
}

static void check_arity(const Builder *b, const OpInfo *info, uint32_t nargs,
                        uint32_t nres, uint32_t nregions) {
  assert(info->levels & level_ops(b->fn->mod->level));
  assert(nargs >= info->min_args);
  assert(info->max_args == 255 || nargs <= info->max_args);
  assert(info->nres == 255 || nres == info->nres);
  assert(info->nregions == 255 || nregions == info->nregions);
  (void)b, (void)info, (void)nargs, (void)nres, (void)nregions;
}

Op *ir_op(Builder *b, OpCode c, const Value *args, uint32_t nargs,
          const IrAttr *attrs, uint32_t nattrs, const Type *types,
          uint32_t nres, uint32_t nregions) {
  const OpInfo *info = op_info(c);
  check_arity(b, info, nargs, nres, nregions);
  for (uint32_t i = 0; i < nargs; i++)
    assert(args[i] && args[i] < b->fn->values.n);
  Type one;
  if (info->infer != INF_GIVEN && nres) {
    Op draft = {.code = c, .nargs = nargs, .nattrs = nattrs};
    draft.args = (Value *)args;
    draft.attrs = (IrAttr *)attrs;
    const char *err = infer_type(b->fn, &draft, &one);
    assert(!err && "operand types do not fit the op");
    (void)err;
    types = &one;
  }
  assert(types || !nres);
  Op *op = op_make(b->region, b->before, c, args, nargs, attrs, nattrs);
  op_add_results(op, types, nres);
  op->span = b->span;
  add_regions(b->fn, op, nregions);
  return op;
}

Op *ir_bare(Builder *b, OpCode c) {
  return ir_op(b, c, NULL, 0, NULL, 0, NULL, 0, 0);
}

static Value plain(Builder *b, OpCode c, const Value *args, uint32_t n) {
  return ir_op(b, c, args, n, NULL, 0, NULL, 1, 0)->res[0];
}

Value ir_1(Builder *b, OpCode c, Value x) {
  return plain(b, c, &x, 1);
}

Value ir_2(Builder *b, OpCode c, Value x, Value y) {
  return plain(b, c, (Value[]){x, y}, 2);
}

Value ir_3(Builder *b, OpCode c, Value x, Value y, Value z) {
  return plain(b, c, (Value[]){x, y, z}, 3);
}

OpCode ir_combining(RKind k) {
  static const OpCode code[] = {[RK_SUM] = OP_ADD,  [RK_PROD] = OP_MUL,
                                [RK_MAX] = OP_MAX,  [RK_MIN] = OP_MIN,
                                [RK_ANY] = OP_OR,   [RK_ALL] = OP_AND,
                                [RK_COUNT] = OP_ADD};
  return code[k];
}

Value ir_combine(Builder *b, RKind k, Value x, Value y) {
  return ir_2(b, ir_combining(k), x, y);
}

static Value constant(Builder *b, OpCode c, IrAttr attr, DType t) {
  Type type = type_scalar(t);
  return ir_op(b, c, NULL, 0, &attr, 1, &type, 1, 0)->res[0];
}

Value ir_const_f(Builder *b, DType t, double v) {
  assert(dtype_is_float(t));
  return constant(b, OP_CONST, attr_f(AT_VALUE, v), t);
}

Value ir_const_i(Builder *b, DType t, int64_t v) {
  assert(!dtype_is_float(t));
  return constant(b, OP_CONST, attr_i(AT_IVALUE, v), t);
}

Value ir_int(Builder *b, int64_t v) {
  return ir_const_i(b, DT_I64, v);
}

Value ir_dim(Builder *b, Dim d) {
  return constant(b, OP_DIM, attr_i(AT_DIM, d), DT_I64);
}

Value ir_index(Builder *b, uint32_t axis) {
  assert(axis < b->fn->axes.n);
  IrAttr attr = attr_i(AT_AXIS, axis);
  return ir_op(b, OP_INDEX, NULL, 0, &attr, 1, NULL, 1, 0)->res[0];
}

Value ir_origin(Builder *b, uint32_t axis) {
  return constant(b, OP_ORIGIN, attr_i(AT_AXIS, axis), DT_I64);
}

Value ir_iota(Builder *b, uint32_t axis, Dim size) {
  Type t = type_with(type_scalar(DT_I64), axis, size);
  return ir_op(b, OP_IOTA, NULL, 0, NULL, 0, &t, 1, 0)->res[0];
}

Value ir_cast(Builder *b, DType to, Value x) {
  if (ir_type(b->fn, x)->dtype == to) return x;
  IrAttr attr = attr_i(AT_TO, to);
  return ir_op(b, OP_CAST, &x, 1, &attr, 1, NULL, 1, 0)->res[0];
}

Value ir_load(Builder *b, Value tensor, const Value *idx, uint32_t n) {
  Value args[1 + MAX_AXES] = {tensor};
  assert(n <= MAX_AXES);
  if (n) memcpy(args + 1, idx, n * sizeof *idx);
  return plain(b, OP_LOAD, args, n + 1);
}

void ir_store(Builder *b, Value tensor, Value x, const Value *idx, uint32_t n) {
  Value args[2 + MAX_AXES] = {tensor, x};
  assert(n <= MAX_AXES);
  if (n) memcpy(args + 2, idx, n * sizeof *idx);
  ir_op(b, OP_STORE, args, n + 2, NULL, 0, NULL, 0, 0);
}

void ir_store_where(Func *f, Op *store, Value when) {
  Builder b = {.fn = f,
               .region = store->parent,
               .before = store,
               .span = store->span};
  Value args[MAX_AXES + 4];
  uint32_t n = store->nargs;
  for (uint32_t i = 0; i < n; i++) args[i] = store->args[i];
  if (ir_attr_i(store, AT_MASKED, 0))
    args[n - 1] = ir_2(&b, OP_AND, args[n - 1], when);
  else args[n++] = when;
  IrAttr masked = attr_i(AT_MASKED, 1);
  ir_op(&b, OP_STORE, args, n, &masked, 1, NULL, 0, 0);
  ir_erase(store);
}

Value ir_reduce(Builder *b, RKind k, Value x, const uint32_t *over,
                uint32_t n) {
  IrAttr attrs[] = {attr_i(AT_KIND, k),
                    attr_axes(b->fn->mod->arena, AT_OVER, over, n)};
  return ir_op(b, OP_REDUCE, &x, 1, attrs, 2, NULL, 1, 0)->res[0];
}

Value ir_dot(Builder *b, Value x, Value y, const uint32_t *over, uint32_t n) {
  Value args[] = {x, y};
  IrAttr attr = attr_axes(b->fn->mod->arena, AT_OVER, over, n);
  return ir_op(b, OP_DOT, args, 2, &attr, 1, NULL, 1, 0)->res[0];
}

void ir_yield(Builder *b, const Value *v, uint32_t n) {
  ir_op(b, OP_YIELD, v, n, NULL, 0, NULL, 0, 0);
}

// ---------------------------------------------------------------- attributes
const IrAttr *ir_attr(const Op *op, AttrId id) {
  for (uint32_t i = 0; i < op->nattrs; i++)
    if (op->attrs[i].id == id) return &op->attrs[i];
  return NULL;
}

int64_t ir_attr_i(const Op *op, AttrId id, int64_t absent) {
  const IrAttr *a = ir_attr(op, id);
  return a ? a->i : absent;
}

void ir_del_attr(Op *op, AttrId id) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < op->nattrs; i++)
    if (op->attrs[i].id != id) op->attrs[n++] = op->attrs[i];
  op->nattrs = n;
}

bool ir_same_attr(const IrAttr *a, const IrAttr *b) {
  return a->id == b->id && a->i == b->i && a->n == b->n &&
         memcmp(&a->f, &b->f, sizeof a->f) == 0 &&
         (a->s == b->s || (a->s && b->s && strcmp(a->s, b->s) == 0)) &&
         (!a->n || memcmp(a->list, b->list, a->n * sizeof *a->list) == 0);
}

bool ir_same_attrs(const Op *a, const Op *b) {
  if (a->nattrs != b->nattrs) return false;
  for (uint32_t i = 0; i < a->nattrs; i++)
    if (!ir_same_attr(&a->attrs[i], &b->attrs[i])) return false;
  return true;
}

void ir_set_attr(Func *f, Op *op, IrAttr a) {
  ir_del_attr(op, a.id);
  IrAttr *all = NEWN(f->mod->arena, IrAttr, op->nattrs + 1);
  if (op->nattrs) memcpy(all, op->attrs, op->nattrs * sizeof *all);
  all[op->nattrs] = a;
  copy_attrs(f->mod->arena, op, all, op->nattrs + 1);
}

IrAttr attr_i(AttrId id, int64_t v) {
  return (IrAttr){.id = id, .i = v};
}
IrAttr attr_f(AttrId id, double v) {
  return (IrAttr){.id = id, .f = v};
}
IrAttr attr_s(AttrId id, const char *s) {
  return (IrAttr){.id = id, .s = s};
}

IrAttr attr_list(AttrId id, const int64_t *v, uint32_t n) {
  return (IrAttr){.id = id, .n = n, .list = (int64_t *)v};
}

IrAttr attr_axes(Arena *a, AttrId id, const uint32_t *v, uint32_t n) {
  int64_t *list = NEWN(a, int64_t, n);
  for (uint32_t i = 0; i < n; i++) list[i] = v[i];
  return attr_list(id, list, n);
}

bool ir_const_value(const Func *f, Value v, double *out) {
  const Op *op = ir_def(f, v);
  if (!op || op->code != OP_CONST) return false;
  const IrAttr *a = ir_attr(op, AT_VALUE);
  if (a) {
    *out = a->f;
    return true;
  }
  a = ir_attr(op, AT_IVALUE);
  if (a) *out = (double)a->i;
  return a != NULL;
}

bool ir_const_whole(const Func *f, Value v, int64_t *out) {
  double x;
  if (!ir_const_value(f, v, &x) || x != trunc(x) || fabs(x) >= 0x1p53)
    return false;
  *out = (int64_t)x;
  return true;
}

// ---------------------------------------------------------------- editing
void ir_erase(Op *op) {
  unlink_op(op);
}

static void set_region(Func *f, Op *op, Region *r) {
  for (uint32_t i = 0; i < op->nres; i++) ir_info(f, op->res[i])->region = r;
}

void ir_move_before(Op *op, Op *where) {
  if (op == where) return;
  Region *r = where->parent;
  unlink_op(op);
  link_before(op, r, where);
  set_region(r->fn, op, r);
}

bool ir_mentions(const Op *op, Value v) {
  for (uint32_t i = 0; i < op->nargs; i++)
    if (op->args[i] == v) return true;
  for (uint32_t i = 0; i < op->nregions; i++)
    for (const Op *o = op->regions[i]->first; o; o = o->next)
      if (ir_mentions(o, v)) return true;
  return false;
}

Op *ir_first_use(Op *op, Value v) {
  while (op && !ir_mentions(op, v)) op = op->next;
  return op;
}

bool ir_has_steps(const Func *f) {
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role == AX_STEP) return true;
  return false;
}

int ir_index_axis(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  return op && op->code == OP_INDEX ? (int)ir_attr_i(op, AT_AXIS, -1) : -1;
}

bool ir_any_has(const Region *r, AttrId flag) {
  for (const Op *op = r->first; op; op = op->next) {
    if (ir_attr_i(op, flag, 0)) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (ir_any_has(op->regions[i], flag)) return true;
  }
  return false;
}

static void find_product(void *found, Op *op) {
  *(bool *)found |= op->code == OP_MMA || op->code == OP_WGMMA;
}

bool ir_has_products(const Func *f) {
  bool found = false;
  ir_walk(f->body, find_product, &found);
  return found;
}

bool ir_is_input(const Func *f, Value tensor) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == tensor) return f->params.at[i].role == PR_IN;
  return false;
}

bool ir_is_stored(const Region *r, Value tensor) {
  for (const Op *op = r->first; op; op = op->next) {
    bool stores = op->code == OP_GSTORE || op->code == OP_STORE ||
                  op->code == OP_TMA_STORE;
    if (stores && op->args[0] == tensor) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (ir_is_stored(op->regions[i], tensor)) return true;
  }
  return false;
}

void ir_walk(Region *r, WalkFn *fn, void *data) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    fn(data, op);
    if (!op->parent) continue;  // erased
    for (uint32_t i = 0; i < op->nregions; i++)
      ir_walk(op->regions[i], fn, data);
  }
}

// In op and those behind it.
static uint32_t swap_uses(Op *op, Value from, Value to) {
  uint32_t n = 0;
  for (; op; op = op->next) {
    for (uint32_t i = 0; i < op->nargs; i++) {
      if (op->args[i] != from) continue;
      op->args[i] = to;
      n++;
    }
    for (uint32_t i = 0; i < op->nregions; i++)
      n += swap_uses(op->regions[i]->first, from, to);
  }
  return n;
}

void ir_replace_from(Op *op, Value from, Value to) {
  swap_uses(op, from, to);
}

void ir_replace_uses(Func *f, Value from, Value to) {
  ValueInfo *a = ir_info(f, from), *b = ir_info(f, to);
  if (!b->hint) b->hint = a->hint;  // keep the reader's name
  swap_uses(f->body->first, from, to);
}

uint32_t ir_count_uses(const Func *f, Value v) {
  return ir_uses_in(f->body, v);
}

uint32_t ir_uses_in(Region *r, Value v) {
  return swap_uses(r->first, v, v);
}

bool ir_defined_outside(const Func *f, Value v, const Region *r) {
  for (const Region *at = f->values.at[v].region; at;
       at = at->parent ? at->parent->parent : NULL)
    if (at == r) return false;
  return true;
}
