// The verifier: modules, functions, regions, definitions. A valid module is
// what passes may assume; everything here is a bug of a pass or a hand-written
// text, so one code (A0650) serves all.
#include "ir/layout.h"
#include "ir/target.h"
#include "ir/verify/verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ERRORS = 8, MAX_RANK = 8 };

bool verify_fail(Verifier *v, const Op *op, const char *fmt, ...) {
  char text[240];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (v->errors++ >= MAX_ERRORS) return false;
  Buf shown = {.arena = &v->cx->session};
  if (op) print_op_line(v->f, op, &shown);
  else buf_str(&shown, "(its header)");
  diag_add(v->cx, DIAG_ir_invalid, op ? op->span : v->f->span, v->f->name, text,
           shown.at);
  return false;
}

// ---------------------------------------------------------------- types
static const char *elem_error(const Verifier *v, const Type *t) {
  bool tile = v->m->level == LV_TILE;
  if (v->m->level == LV_FRAG && t->n) return "has axes at level frag";
  if (v->m->level == LV_MACH && t->n) return "has axes at level mach";
  for (uint32_t i = 0; i < t->n; i++) {
    if (t->axis[i] >= v->f->axes.n) return "has an unknown axis";
    if (i && t->axis[i - 1] >= t->axis[i]) return "has its axes out of order";
    if (t->size[i] >= v->m->dims.exprs.n) return "has an unknown size";
    if (tile && t->size[i] == DIM_NONE)
      return "has an axis without a size at level tile";
    if (!tile && t->size[i] != DIM_NONE)
      return "has a tile size before level tile";
  }
  return NULL;
}

static const char *type_error(const Verifier *v, const Type *t) {
  bool gpu = v->ops & (OPL_FRAG | OPL_GPU), cpu = v->ops & OPL_CPU;
  bool vector = t->kind == TK_VEC || t->kind == TK_PTR;
  if (t->kind == TK_NONE || t->dtype >= DT_COUNT) return "is missing";
  if (t->kind >= TK_FRAG && !gpu)
    return "belongs to levels frag and mach of a GPU";
  if (t->kind == TK_SMEM) return smem_error(t);
  if (t->kind == TK_ELEM)
    return t->n > MAX_AXES ? "has too many axes" : elem_error(v, t);
  if (vector && !cpu) return "belongs to level mach of a CPU";
  if (t->kind != TK_TENSOR) return NULL;
  if (t->n > MAX_RANK) return "has more than 8 axes";
  for (uint32_t i = 0; i < t->n; i++)
    if (t->size[i] == DIM_NONE || t->size[i] >= v->m->dims.exprs.n)
      return "has an unknown extent";
  return NULL;
}

// ---------------------------------------------------------------- definitions
static bool define(Verifier *v, const Op *op, const Region *r, Value x,
                   uint32_t i) {
  const char *what = op && op->parent == r ? "result" : "parameter";
  if (!x || x >= v->f->values.n)
    return verify_fail(v, op, "%s %u does not exist", what, i);
  const ValueInfo *info = ir_info(v->f, x);
  if (v->state[x]) return verify_fail(v, op, "%s %u is defined twice", what, i);
  const char *err = type_error(v, &info->type);
  if (err) return verify_fail(v, op, "the type of %s %u %s", what, i, err);
  v->state[x] = 1;
  const Op *def = op && op->parent == r ? op : NULL;
  if (info->region == r && info->def == def) return true;
  return verify_fail(v, op, "%s %u has a stale owner", what, i);
}

static bool check_uses(Verifier *v, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value x = op->args[i];
    if (!x || x >= v->f->values.n || v->state[x] == 0)
      return verify_fail(v, op, "operand %u is used before it is defined", i);
    if (v->state[x] == 2)
      return verify_fail(v, op, "operand %u is defined in another region", i);
  }
  return true;
}

const Op *verify_terminator(const Region *r) {
  const Op *op = r->last;
  return op && (op_info(op->code)->flags & OPF_TERM) ? op : NULL;
}

static bool check_links(Verifier *v, const Region *r, const Op *op) {
  bool ok = op->parent == r && (op->next ? op->next->prev : r->last) == op;
  return ok || verify_fail(v, op, "is linked wrongly");
}

static bool check_place(Verifier *v, const Region *r, const Op *op) {
  bool term = op_info(op->code)->flags & OPF_TERM;
  if (!term) return true;
  if (op->next) return verify_fail(v, op, "must be the last op of its region");
  bool body = r == v->f->body;
  if (op->code == OP_RETURN && (!body || v->f->kind == FK_PROGRAM))
    return verify_fail(v, op, "only a mask, mod, row or fn returns");
  if (op->code == OP_YIELD && body)
    return verify_fail(v, op, "yield outside of a region");
  return true;
}

static void check_region(Verifier *v, const Op *parent, const Region *r);

// Of an op that is wrong as a whole nothing else is said.
static void allow_uses(Verifier *v, const Op *op) {
  for (uint32_t i = 0; i < op->nres; i++)
    if (op->res[i] < v->f->values.n) v->state[op->res[i]] = 1;
}

static void check_op(Verifier *v, const Region *r, const Op *op) {
  uint32_t before = v->errors;
  if (op->code >= OP_COUNT || !check_links(v, r, op) ||
      !check_place(v, r, op) || !check_uses(v, op))
    return;
  for (uint32_t i = 0; i < op->nregions; i++)
    check_region(v, op, op->regions[i]);
  if (!verify_level(v, op)) {
    allow_uses(v, op);
    return;
  }
  for (uint32_t i = 0; i < op->nres; i++)
    if (!define(v, op, r, op->res[i], i)) return;
  if (v->errors == before) verify_op(v, op);
}

// Values of a region are visible in it and in the regions inside.
static void check_region(Verifier *v, const Op *parent, const Region *r) {
  if (parent && (r->parent != parent || r->fn != v->f)) {
    verify_fail(v, parent, "has a region that belongs to another op");
    return;
  }
  for (uint32_t i = 0; i < r->params.n; i++)
    if (!define(v, parent, r, r->params.at[i], i)) return;
  for (const Op *op = r->first; op && v->errors < MAX_ERRORS; op = op->next)
    check_op(v, r, op);
  if (parent && !verify_terminator(r))
    verify_fail(v, parent, "has a region that does not end in yield");
  for (uint32_t i = 0; i < r->params.n; i++) v->state[r->params.at[i]] = 2;
  for (const Op *op = r->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nres; i++)
      if (op->res[i] && op->res[i] < v->f->values.n) v->state[op->res[i]] = 2;
}

// ---------------------------------------------------------------- functions
static bool check_param(Verifier *v, const FuncParam *p, uint32_t i) {
  if (!define(v, NULL, v->f->body, p->v, i)) return false;
  const Type *t = ir_type(v->f, p->v);
  bool tensor = p->role == PR_IN || p->role == PR_OUT || p->role == PR_INOUT ||
                p->role == PR_SHARED;
  if (tensor != (t->kind == TK_TENSOR))
    return verify_fail(v, NULL, "parameter %u: %s", i,
                       tensor ? "in, out, inout and shared need a tensor"
                              : "a tensor needs role in, out or inout");
  if (i && p->role != PR_SHARED && p[-1].role == PR_SHARED)
    return verify_fail(v, NULL, "parameter %u: shared ones are the last", i);
  if (p->role == PR_INDEX && (t->n || !strchr("iu", dtype_kind(t->dtype))))
    return verify_fail(v, NULL, "parameter %u: an index is an integer", i);
  if (v->f->kind == FK_PROGRAM && p->role == PR_INDEX)
    return verify_fail(v, NULL, "parameter %u: a program has no indices", i);
  return true;
}

static bool check_space(Verifier *v) {
  const Func *f = v->f;
  for (uint32_t i = 0; i < f->axes.n; i++) {
    Dim d = f->axes.at[i].extent;
    if (d == DIM_NONE || d >= v->m->dims.exprs.n)
      return verify_fail(v, NULL, "axis '%s' has no extent",
                         f->axes.at[i].name);
  }
  if (f->grid.n && v->m->level < LV_TILE)
    return verify_fail(v, NULL, "a grid before level tile");
  for (uint32_t i = 0; i < f->grid.n; i++) {
    if (f->grid.at[i].axis >= f->axes.n || f->grid.at[i].tile < 1)
      return verify_fail(v, NULL, "entry %u of the grid is no tile size", i);
    for (uint32_t j = 0; j < i; j++) {
      if (f->grid.at[j].axis == f->grid.at[i].axis)
        return verify_fail(v, NULL, "an axis is in the grid twice");
      if (f->grid.at[j].serial && !f->grid.at[i].serial)
        return verify_fail(v, NULL, "a task's own axes are not the last");
    }
  }
  if (f->key >= (int)f->axes.n)
    return verify_fail(v, NULL, "the key axis does not exist");
  if ((f->key >= 0) != (f->kind == FK_ROW))
    return verify_fail(v, NULL, "a row, and only a row, has a key axis");
  return true;
}

static void check_func(Verifier *v) {
  const Func *f = v->f;
  v->state = NEWN(&v->cx->scratch, uint8_t, f->values.n);
  if (v->m->level == LV_FRAG && !target_is_gpu(v->m->target)) {
    verify_fail(v, NULL, "level frag is for targets that are GPUs");
    return;
  }
  if (!check_space(v)) return;
  verify_schedule(v);
  for (uint32_t i = 0; i < f->params.n; i++)
    if (!check_param(v, &f->params.at[i], i)) return;
  check_region(v, NULL, f->body);
  const Op *last = verify_terminator(f->body);
  if (f->kind != FK_PROGRAM && !last)
    verify_fail(v, NULL, "does not end in return");
}

// ---------------------------------------------------------------- call graph
typedef struct Calls {
  Verifier *v;
  uint8_t *mark;  // by function: 0 new, 1 on the way, 2 done
  bool cycle;
} Calls;

static uint32_t func_at(const Module *m, const char *name) {
  uint32_t i = 0;
  while (i < m->funcs.n && strcmp(m->funcs.at[i]->name, name) != 0) i++;
  return i;
}

static void visit(Calls *c, uint32_t i);

static void visit_op(void *data, Op *op) {
  Calls *c = data;
  const IrAttr *callee = op->code == OP_CALL ? ir_attr(op, AT_CALLEE) : NULL;
  if (!callee) return;
  uint32_t i = func_at(c->v->m, callee->s);
  if (i < c->v->m->funcs.n) visit(c, i);
}

static void visit(Calls *c, uint32_t i) {
  if (c->mark[i] == 1) c->cycle = true;
  if (c->mark[i]) return;
  c->mark[i] = 1;
  ir_walk(c->v->m->funcs.at[i]->body, visit_op, c);
  c->mark[i] = 2;
}

static void check_calls(Verifier *v) {
  Calls c = {.v = v};
  c.mark = NEWN(&v->cx->scratch, uint8_t, v->m->funcs.n);
  for (uint32_t i = 0; i < v->m->funcs.n; i++) {
    v->f = v->m->funcs.at[i];
    visit(&c, i);
    if (!c.cycle) continue;
    verify_fail(v, NULL, "calls itself");
    return;
  }
}

// What phases hand on lies in all of them alike. Their extents may be others:
// bounds of keys have a row for each tile of rows, and what joins parts, which
// does not read them, has other tiles.
static void check_handed(Verifier *v, const Func *f, const Func *phase) {
  for (uint32_t i = 0; i < f->params.n && i < phase->params.n; i++) {
    const FuncParam *p = &f->params.at[i], *q = &phase->params.at[i];
    if (p->role != PR_SHARED || q->role != PR_SHARED) continue;
    const Type *x = ir_type(f, p->v), *y = ir_type(phase, q->v);
    if (x->padded == y->padded && x->dtype == y->dtype && x->n == y->n)
      continue;
    const char *hint = f->values.at[p->v].hint;
    verify_fail(v, NULL, "'%s' has another type in phase '%s'",
                hint ? hint : "?", phase->name);
    return;
  }
}

static void check_phases(Verifier *v) {
  const Module *m = v->m;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    v->f = m->funcs.at[i];
    for (uint32_t k = 0; k < m->funcs.n; k++)
      if (k != i && ir_is_phase(m->funcs.at[k], v->f->name))
        check_handed(v, v->f, m->funcs.at[k]);
  }
}

// At level mach the target says which.
static uint8_t ops_of(const Module *m) {
  uint8_t other = target_is_gpu(m->target) ? OPL_CPU : OPL_GPU;
  return (uint8_t)(level_ops(m->level) & ~other);
}

bool ir_verify(Ctx *cx, const Module *m) {
  Verifier v = {.cx = cx, .m = m, .ops = ops_of(m)};
  ArenaMark mark = arena_mark(&cx->scratch);
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    v.f = m->funcs.at[i];
    if (v.f->mod != m) verify_fail(&v, NULL, "belongs to another module");
    else if (ir_find(m, v.f->name) != v.f)
      verify_fail(&v, NULL, "name is taken");
    else check_func(&v);
  }
  if (!v.errors) check_phases(&v);
  if (!v.errors && m->level == LV_ATTN) check_calls(&v);
  arena_reset(&cx->scratch, mark);
  return v.errors == 0;
}
