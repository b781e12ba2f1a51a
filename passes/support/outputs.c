// Groups of outputs as phases of a program.
#include "passes/support/outputs.h"

#include "ir/deps.h"
#include "passes/support/outline.h"
#include "passes/support/rebuild.h"

enum { MAX_HANDED = 8 };

// Outputs whose values have the same parallel axes.
typedef struct Group {
  uint64_t axes;
  bool keyed;     // a value is made by reductions over keys
  Map ops;        // what it is made of
  uint64_t used;  // its axes of all roles
} Group;

// A row value that one group makes and others read.
typedef struct Handed {
  Value v, tensor;
  Group *by;
} Handed;

typedef struct Split {
  Ctx *cx;
  Func *f;
  KeyDeps deps;
  Group group[MAX_FRONT + 1];
  uint32_t n;
  Handed handed[MAX_HANDED];
  uint32_t nhanded;
  bool ok;
} Split;

static uint64_t of_role(const Func *f, uint64_t axes, AxisRole role) {
  uint64_t set = 0;
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role == role) set |= axes & (uint64_t)1 << i;
  return set;
}

static bool is_within(uint64_t set, uint64_t of) {
  return !(set & ~of);
}

// ---------------------------------------------------------------- groups
static uint64_t store_axes(const Split *s, const Op *op) {
  uint64_t set = 0;
  for (uint32_t i = 1; i < op->nargs; i++) set |= ir_axes_of(s->f, op->args[i]);
  return of_role(s->f, set, AX_PAR);
}

static void add_output(Split *s, const Op *op) {
  uint64_t axes = store_axes(s, op);
  bool keyed = ir_key_deps(&s->deps, op->args[1]) != 0;
  uint32_t i = 0;
  while (i < s->n && s->group[i].axes != axes) i++;
  if (i > MAX_FRONT) {
    s->ok = false;
    return;
  }
  if (i == s->n)
    s->group[s->n++] =
        (Group){.axes = axes, .ops = {.arena = s->deps.memo.arena}};
  s->group[i].keyed |= keyed;
}

static uint32_t count(uint64_t set) {
  return (uint32_t)__builtin_popcountll(set);
}

// Groups with fewer axes first. One that asks for no keys is stored by another
// that has its axes.
static void order_groups(Split *s) {
  for (uint32_t i = 1; i < s->n; i++)
    for (uint32_t k = i;
         k && count(s->group[k].axes) < count(s->group[k - 1].axes); k--) {
      Group x = s->group[k];
      s->group[k] = s->group[k - 1];
      s->group[k - 1] = x;
    }
  uint32_t n = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    bool joins = false;
    for (uint32_t k = i + 1; k < s->n; k++)
      joins |=
          !s->group[i].keyed && is_within(s->group[i].axes, s->group[k].axes);
    if (!joins) s->group[n++] = s->group[i];
  }
  s->n = n;
}

// The group that stores what has these axes.
static Group *group_of(Split *s, uint64_t axes) {
  for (uint32_t i = 0; i < s->n; i++)
    if (s->group[i].axes == axes) return &s->group[i];
  for (uint32_t i = 0; i < s->n; i++)
    if (is_within(axes, s->group[i].axes)) return &s->group[i];
  return NULL;
}

// ---------------------------------------------------------------- what is needed
static bool has(const Group *g, const Op *op) {
  uint64_t x;
  return map_get(&g->ops, (uintptr_t)op, &x);
}

static Handed *handed(Split *s, Value v) {
  for (uint32_t i = 0; i < s->nhanded; i++)
    if (s->handed[i].v == v) return &s->handed[i];
  return NULL;
}

// The group that makes v for g, of which op needs it; or NULL. What varies with
// keys, or is made without them, g makes itself.
static Group *maker(Split *s, const Group *g, const Op *op, Value v) {
  uint64_t axes = ir_axes_of(s->f, v), all = 0;
  bool row = ir_key_deps(&s->deps, v) && !of_role(s->f, axes, AX_KEY);
  for (uint32_t i = 0; i < op->nargs; i++) all |= ir_axes_of(s->f, op->args[i]);
  axes = of_role(s->f, axes, AX_PAR);
  bool last = row && axes != g->axes && is_within(axes, g->axes) &&
              of_role(s->f, all, AX_PAR) != axes;
  for (uint32_t i = 0; last && &s->group[i] != g; i++)
    if (s->group[i].axes == axes) return &s->group[i];
  return NULL;
}

static void need(Split *s, Group *g, const Op *op);

static void need_value(Split *s, Group *g, const Op *op, Value v) {
  const Op *def = ir_def(s->f, v);
  Group *by = def ? maker(s, g, op, v) : NULL;
  if (by && !handed(s, v) && s->nhanded < MAX_HANDED)
    s->handed[s->nhanded++] = (Handed){.v = v, .by = by};
  Handed *x = handed(s, v);
  if (x && x->by != g) {
    g->used |= ir_axes_of(s->f, v);
    map_put(&g->ops, (uintptr_t)def, 1);
  } else if (def) {
    need(s, g, def);
  }
}

static void need(Split *s, Group *g, const Op *op) {
  if (has(g, op)) return;
  map_put(&g->ops, (uintptr_t)op, 1);
  for (uint32_t i = 0; i < op->nres; i++)
    g->used |= ir_axes_of(s->f, op->res[i]);
  for (uint32_t i = 0; i < op->nattrs; i++) {
    const IrAttr *a = &op->attrs[i];
    if (attr_kind(a->id) == AK_AXIS) g->used |= (uint64_t)1 << a->i;
    for (uint32_t k = 0; attr_kind(a->id) == AK_AXES && k < a->n; k++)
      g->used |= (uint64_t)1 << a->list[k];
  }
  for (uint32_t i = 0; i < op->nargs; i++) need_value(s, g, op, op->args[i]);
}

// Domains of the axes that g has, and facts about what it has.
static void need_domains(Split *s, Group *g) {
  uint64_t before;
  do {
    before = g->used;
    for (const Op *op = s->f->body->first; op; op = op->next) {
      int64_t axis = ir_attr_i(op, AT_AXIS, 0);
      if (op->code == OP_DOMAIN && g->used >> axis & 1) need(s, g, op);
      if (op->code == OP_ASSUME &&
          is_within(ir_axes_of(s->f, op->args[0]), g->used))
        need(s, g, op);
    }
  } while (g->used != before);
  s->ok &= of_role(s->f, g->used, AX_PAR) == g->axes;
}

// From the last group on: it says what those before it make for it.
static void need_all(Split *s) {
  for (uint32_t i = s->n; i-- > 0;) {
    Group *g = &s->group[i];
    for (uint32_t k = 0; k < s->nhanded; k++)
      if (s->handed[k].by == g) need(s, g, ir_def(s->f, s->handed[k].v));
    for (const Op *op = s->f->body->first; op; op = op->next)
      if (op->code == OP_STORE && group_of(s, store_axes(s, op)) == g)
        need(s, g, op);
    need_domains(s, g);
  }
}

// ---------------------------------------------------------------- phases
static void add_tensors(Split *s) {
  for (uint32_t i = 0; i < s->nhanded; i++) {
    Handed *h = &s->handed[i];
    const Type *t = ir_type(s->f, h->v);
    Dim shape[MAX_AXES];
    for (uint32_t k = 0; k < t->n; k++)
      shape[k] = s->f->axes.at[t->axis[k]].extent;
    const char *what = arena_printf(s->f->mod->arena, "row%u", i);
    h->tensor = outline_tensor(s->f, s->f->name, what,
                               type_tensor(t->dtype, t->n, shape));
  }
}

static uint32_t coordinates(const Split *s, Builder *b, Value v,
                            const uint32_t *axis, Value *at) {
  const Type *t = ir_type(s->f, v);
  for (uint32_t k = 0; k < t->n; k++) at[k] = ir_index(b, axis[t->axis[k]]);
  return t->n;
}

static void copy_op(const Split *s, const Group *g, Builder *b, const Op *op,
                    ValueMap *map, const uint32_t *axis) {
  Handed *h = op->nres == 1 ? handed((Split *)s, op->res[0]) : NULL;
  Value at[MAX_AXES];
  b->span = op->span;
  if (h && h->by != g) {
    uint32_t n = coordinates(s, b, h->v, axis, at);
    vmap_put(map, h->v, ir_load(b, vmap_get(map, h->tensor), at, n));
    return;
  }
  ir_clone(b, s->f, op, map, axis);
  if (!h) return;
  uint32_t n = coordinates(s, b, h->v, axis, at);
  ir_store(b, vmap_get(map, h->tensor), vmap_get(map, h->v), at, n);
}

static void fill(const Split *s, const Group *g, Func *to) {
  const Func *f = s->f;
  uint32_t axis[64] = {0};
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (g->used >> i & 1)
      axis[i] = ir_axis(to, f->axes.at[i].name, f->axes.at[i].role,
                        f->axes.at[i].extent);
  ValueMap map = {.arena = f->mod->arena};
  outline_params(&map, f, to);
  Builder b = {.fn = to, .region = to->body, .span = f->span};
  for (const Op *op = f->body->first; op; op = op->next)
    if (has(g, op)) copy_op(s, g, &b, op, &map, axis);
}

static void replace(Func *f, Func *by) {
  for (uint32_t i = 0; i < f->mod->funcs.n; i++)
    if (f->mod->funcs.at[i] == f) f->mod->funcs.at[i] = by;
}

// Is all of f one list of values, whose outputs nothing reads?
static bool is_plain(const Func *f) {
  if (f->kind != FK_PROGRAM || f->axes.n > 63) return false;
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].role == PR_INOUT) return false;
  for (const Op *op = f->body->first; op; op = op->next)
    if (op->nregions || op->code == OP_CALL || op->nres > 1) return false;
  return true;
}

uint32_t outputs_split(Ctx *cx, Func *f) {
  Split s = {.cx = cx, .f = f, .ok = is_plain(f)};
  s.deps = ir_key_deps_of(f, &cx->scratch);
  for (const Op *op = f->body->first; op && s.ok; op = op->next)
    if (op->code == OP_STORE) add_output(&s, op);
  if (!s.ok) return 0;
  order_groups(&s);
  if (s.n < 2 || outline_beside(f) + s.n - 1 > MAX_FRONT) return 0;
  need_all(&s);
  if (!s.ok) return 0;
  add_tensors(&s);
  for (uint32_t i = 0; i + 1 < s.n; i++) {
    Func *g = outline_func(f, "outputs", i, false);
    fill(&s, &s.group[i], g);
    outline_put(g, f);
  }
  Func *last = rebuild_params(f->mod, f);
  fill(&s, &s.group[s.n - 1], last);
  replace(f, last);
  ctx_remark(cx, "%s: outputs of %u kinds of tasks, one after the other",
             f->name, s.n);
  return s.n - 1;
}
