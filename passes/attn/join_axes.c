// join_axes: outputs with other parallel axes are made by the same tasks.
//
//   before  axes(n par N, h par Hq, g par Hk)
//           store(%Q, %q, n, h)  store(%K, %k, n, g)
//   after   axes(n par N, h par max(Hq, Hk))
//           store(%Q, %q, n, h, h < Hq) {masked}
//           store(%K, %k, n, min(h, Hk - 1), h < Hk) {masked}
//
// A task for each n, h and g would make %q again for each g and %k for each h.
// Programs without keys and products alone: what they take is the time that
// memory takes, and what both outputs ask for (positions, sines) is made once.
// With keys, phases do (split_outputs). Tasks that are behind the end of one of
// the axes branch around its outputs (pass_branch_stores). GPUs. Level attn,
// behind inline and canon. Tests: test/passes/join_axes.
#include "ir/deps.h"
#include "passes/pass.h"
#include "passes/support/lane.h"
#include "passes/support/outline.h"
#include "passes/support/rebuild.h"

typedef struct Join {
  Func *f;
  uint64_t par;       // axes that may be joined
  uint64_t with[64];  // per axis: those that something has beside it
  uint32_t axis[64];  // per axis of f: that of the new function
  uint32_t from, to;  // two that are joined
  Func *out;
} Join;

static uint64_t axes_of(const Func *f, const Op *op) {
  uint64_t set = 0;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (ir_type(f, op->args[i])->kind == TK_ELEM)
      set |= ir_axes_of(f, op->args[i]);
  for (uint32_t i = 0; i < op->nres; i++) set |= ir_axes_of(f, op->res[i]);
  return set;
}

// Two of which each has outputs, and none has both.
static bool find(Join *j) {
  const Func *f = j->f;
  uint64_t stored = 0, domains = 0;
  for (const Op *op = f->body->first; op; op = op->next) {
    uint64_t set = axes_of(f, op);
    if (op->code == OP_STORE) stored |= set;
    if (op->code == OP_DOMAIN)
      domains |= set | 1ull << ir_attr_i(op, AT_AXIS, 0);
    for (uint32_t i = 0; i < f->axes.n; i++)
      if (set >> i & 1) j->with[i] |= set;
  }
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role == AX_PAR) j->par |= 1ull << i;
  j->par &= stored & ~domains;
  for (j->to = 0; j->to < f->axes.n; j->to++)
    for (j->from = j->to + 1; j->from < f->axes.n; j->from++)
      if (j->par >> j->to & 1 && j->par >> j->from & 1 &&
          !(j->with[j->to] >> j->from & 1))
        return true;
  return false;
}

static void copy_axes(Join *j) {
  const Func *f = j->f;
  DimTab *d = &f->mod->dims;
  for (uint32_t i = 0; i < f->axes.n; i++) {
    const Axis *a = &f->axes.at[i];
    Dim n = a->extent;
    if (i == j->from) {
      j->axis[i] = j->axis[j->to];
      continue;
    }
    Dim other = f->axes.at[j->from].extent;
    if (i == j->to && n != other) n = dim_bin(d, DIM_MAX, n, other);
    j->axis[i] = ir_axis(j->out, a->name, a->role, n);
  }
}

// Is the joined axis longer than this one?
static bool is_longer(const Join *j, uint32_t axis) {
  return j->out->axes.at[j->axis[axis]].extent != j->f->axes.at[axis].extent;
}

// The last coordinate again behind the axis' end.
static Value coordinate(const Join *j, Builder *b, uint32_t axis) {
  Value i = ir_index(b, j->axis[axis]);
  if (!is_longer(j, axis)) return i;
  Value n = ir_dim(b, j->f->axes.at[axis].extent);
  return ir_2(b, OP_MIN, i, ir_2(b, OP_SUB, n, ir_int(b, 1)));
}

static void store(const Join *j, Builder *b, const Op *op, ValueMap *map) {
  uint64_t set = axes_of(j->f, op);
  uint32_t axis = set >> j->from & 1 ? j->from : j->to;
  Op *c = ir_clone(b, j->f, op, map, j->axis);
  if (!(set >> axis & 1) || !is_longer(j, axis)) return;
  b->before = c;
  Value past = ir_dim(b, j->f->axes.at[axis].extent);
  Value in = ir_2(b, OP_LT, ir_index(b, j->axis[axis]), past);
  b->before = NULL;
  ir_store_where(j->out, c, in);
}

static Func *join(Join *j) {
  j->out = rebuild_params(j->f->mod, j->f);
  copy_axes(j);
  ValueMap map = {.arena = j->f->mod->arena};
  outline_params(&map, j->f, j->out);
  Builder b = {.fn = j->out, .region = j->out->body};
  for (const Op *op = j->f->body->first; op; op = op->next) {
    int64_t axis = ir_attr_i(op, AT_AXIS, -1);
    b.span = op->span;
    if (op->code == OP_INDEX && (axis == j->from || axis == j->to))
      vmap_put(&map, op->res[0], coordinate(j, &b, (uint32_t)axis));
    else if (op->code == OP_STORE) store(j, &b, op, &map);
    else ir_clone(&b, j->f, op, &map, j->axis);
  }
  return j->out;
}

bool pass_join_axes(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    while (lane_is_map(m->funcs.at[i])) {
      Join j = {.f = m->funcs.at[i]};
      if (!find(&j)) break;
      ctx_remark(cx, "%s: outputs along %s and along %s by the same tasks",
                 j.f->name, j.f->axes.at[j.to].name, j.f->axes.at[j.from].name);
      m->funcs.at[i] = join(&j);
    }
  }
  return true;
}
