// Predicates as programs.
#include "tools/driver/run/probe.h"

#include "tools/driver/run/forms.h"
#include "tools/plan/plan.h"

#include <string.h>

double probe_extent(const Count *c, uint32_t axis) {
  int64_t v = 0;
  if (!dim_eval(&c->m->dims, c->f->axes.at[axis].extent, c->dims, &v)) return 0;
  return (double)v;
}

// What a phase before makes is not there yet.
static bool is_made(const Func *f, Value v) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].v == v) return f->params.at[i].role == PR_SHARED;
  return false;
}

void probe_slice(const Func *f, Arena *a, Value v, Slice *s) {
  const Op *op = ir_def(f, v);
  if (!op) {
    s->odd = s->odd || is_made(f, v);
    return;
  }
  for (uint32_t i = 0; i < s->ops.n; i++)
    if (s->ops.at[i] == op) return;
  if (op->nregions) s->odd = true;
  for (uint32_t i = 0; i < op->nargs; i++) probe_slice(f, a, op->args[i], s);
  if (op->code == OP_INDEX) s->axes |= (uint64_t)1 << ir_attr_i(op, AT_AXIS, 0);
  vec_push(a, &s->ops, op);
}

static void copy_params(Func *to, const Func *from, ValueMap *map) {
  for (uint32_t i = 0; i < from->params.n; i++) {
    const FuncParam *p = &from->params.at[i];
    const ValueInfo *v = ir_info(from, p->v);
    ParamRole role = p->role == PR_SCALAR ? PR_SCALAR : PR_IN;
    if (p->role == PR_SHARED) continue;
    vmap_put(map, p->v, ir_param(to, v->hint, role, v->type));
  }
}

// A copy of a load. Of keys behind a sequence's end its index may be none of
// the tensor's: the domain excludes them whatever is read.
static void copy_load(Builder *b, const Func *f, const Op *op, ValueMap *map) {
  const Type *t = ir_type(f, op->args[0]);
  Value was[MAX_AXES];
  for (uint32_t i = 1; i < op->nargs; i++) {
    Value x = was[i - 1] = vmap_get(map, op->args[i]);
    Dim last = dim_sub(&b->fn->mod->dims, t->size[i - 1],
                       dim_const(&b->fn->mod->dims, 1));
    Value end = ir_dim(b, last);
    x = ir_2(b, OP_MIN, ir_cast(b, DT_I64, x), end);
    vmap_put(map, op->args[i], ir_2(b, OP_MAX, x, ir_int(b, 0)));
  }
  ir_clone(b, f, op, map, NULL);
  for (uint32_t i = 1; i < op->nargs; i++)
    vmap_put(map, op->args[i], was[i - 1]);
}

void probe_build(Value p, const Slice *s, int64_t rows, const Count *c,
                 Probe *out) {
  Module *m = c->m;
  const Func *f = c->f;
  Dim n = dim_const(&m->dims, rows);
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (s->axes >> i & 1) out->axis[out->n++] = i;
  Func *g = out->f = ir_func(m, FK_PROGRAM, ".count");
  ValueMap map = {.arena = m->arena};
  copy_params(g, f, &map);
  Dim shape[2] = {n, dim_const(&m->dims, out->n)};
  Value at = ir_param(g, ".at", PR_IN, type_tensor(DT_I64, 2, shape));
  Value hit = ir_param(g, ".hit", PR_OUT, type_tensor(DT_F64, 1, shape));
  uint32_t axis = ir_axis(g, ".n", AX_PAR, n);
  Builder b = {.fn = g, .region = g->body, .span = NOWHERE};
  Value row = ir_index(&b, axis);
  for (uint32_t i = 0; i < s->ops.n; i++) {
    const Op *op = s->ops.at[i];
    if (op->code == OP_LOAD) copy_load(&b, f, op, &map);
    else if (op->code != OP_INDEX) ir_clone(&b, f, op, &map, NULL);
    if (op->code != OP_INDEX) continue;
    uint32_t k = 0;
    while (out->axis[k] != (uint32_t)ir_attr_i(op, AT_AXIS, 0)) k++;
    Value idx[2] = {row, ir_const_i(&b, DT_I64, k)};
    vmap_put(&map, op->res[0], ir_load(&b, at, idx, 2));
  }
  Value yes = ir_const_f(&b, DT_F64, 1), no = ir_const_f(&b, DT_F64, 0);
  Value args[] = {hit, ir_3(&b, OP_SELECT, vmap_get(&map, p), yes, no), row};
  ir_op(&b, OP_STORE, args, 3, NULL, 0, NULL, 0, 0);
}

bool probe_run(Count *c, const Probe *p, int64_t rows, int64_t *at,
               double *hit) {
  Ctx *cx = c->call->cx;
  uint32_t n = c->call->nargs;
  InterpTensor *args = NEWN(&cx->session, InterpTensor, n + 2);
  for (uint32_t i = 0; i < n; i++)
    drv_interp_tensor(&c->call->args[i], &args[i]);
  args[n] = (InterpTensor){DT_I64, 2, {rows, p->n}, {p->n, 1}, at, 0, false};
  args[n + 1] = (InterpTensor){DT_F64, 1, {rows}, {1}, hit, 0, false};
  InterpOpt o = {.seed = 1};
  bool ok = ir_interp(cx, c->m, p->f->name, args, c->dims, &o);
  c->m->funcs.n--;  // the next probe has the same name
  return ok;
}

int probe_lane(DrvCall *c, DrvSpec s, const DrvOptions *opt,
               const Target *target, const Func *f) {
  uint32_t remarks = c->cx->remarks.n;
  DrvOptions quiet = *opt;
  quiet.print_after_all = quiet.time_passes = false;
  quiet.dump_dir = NULL;
  Module *m = drv_lower(c->cx, s, target, LV_TILE, &quiet);
  const Func *g = m ? ir_find(m, f->name) : NULL;
  c->cx->remarks.n = remarks;
  for (uint32_t i = 0; g && i < g->grid.n; i++) {
    const char *name = g->axes.at[g->grid.at[i].axis].name;
    for (uint32_t a = 0; g->grid.at[i].tile > 1 && a < f->axes.n; a++)
      if (strcmp(f->axes.at[a].name, name) == 0) return (int)a;
  }
  return -1;
}

void probe_tiles(Count *c, const Target *target) {
  bool gpu = target->kind == TARGET_GPU;
  c->tile_q = gpu ? 128 : target->tile_q;
  c->tile_k = gpu ? 128 : target->tile_k;
}
