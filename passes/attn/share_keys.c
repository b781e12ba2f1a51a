// share_keys: passes over keys that all sequences of a batch have in common are
// a phase in front, whose rows are those of all sequences.
//
//   before  func @p(..) axes(b par B, q par S, h par H, c key P, k key L, ..) {
//             %s = dot(%q, load(%Kp, %c, %h, %d))          : f32{b,q,h,c}
//             %l = reduce(exp(%s)) {over = [c]}            : f32{b,q,h}
//             .. f(%l, reduce(dot(%q, load(%K, %b, %k, ..)))) .. }
//   after   func @p.shared(.., %l.shared: tensor<f32[B, S, H]> shared)
//               axes(b par B, q par S, h par H, c key P, ..) {
//             .. store(%l.shared, %l, %b, %q, %h) }
//           func @p(.., %l.shared) axes(b par B, .., k key L, ..) {
//             %l = load(%l.shared, %b, %q, %h)
//             .. f(%l, reduce(dot(%q, load(%K, %b, %k, ..)))) .. }
//
// A task of one sequence has few rows (groups_few), and would read for them
// what the tasks of all others read. In the phase `pack_gqa` makes rows of
// sequences. And each of the functions has one pass, whose keys may be split
// among tasks. What is stored is what the program uses of the passes: all that
// is made of it elementwise is made there. Passes are left where they need what
// other keys give. Of few keys (PassOpt.together) so are all: a call says how
// many there are, which takes one of two bodies.
//
// Level attn, behind split_outputs. Tests: test/passes/share_keys/,
// test/wave/cascade.test.
#include "ir/deps.h"
#include "passes/pass.h"
#include "passes/support/groups.h"
#include "passes/support/outline.h"
#include "passes/support/outlined.h"

typedef struct Shared {
  Func *f;
  uint32_t key;    // the axis that moves
  uint64_t tasks;  // axes of what is stored
  KeyDeps deps;
  Outlined out;
} Shared;

static uint64_t bit(uint32_t axis) {
  return (uint64_t)1 << axis;
}

// ---------------------------------------------------------------- analysis
// Axes that the vectors of a key, and which keys there are, vary with; 0: no
// vectors.
static uint64_t axes_of_keys(const Func *f, uint32_t key) {
  uint64_t vectors = ir_axes_with(f, AX_VEC), axes = 0, domain = 0;
  for (const Op *op = f->body->first; op; op = op->next) {
    if (outlined_domain(op, bit(key))) domain |= ir_axes_of(f, op->args[0]);
    if (op->code != OP_LOAD) continue;
    uint64_t of = ir_axes_of(f, op->res[0]);
    if (of & bit(key) && of & vectors) axes |= of;
  }
  return axes ? axes | domain : 0;
}

// Do other keys vary with an axis of tasks that these do not vary with?
static bool is_shared(const Func *f, uint32_t key, uint64_t tasks) {
  uint64_t own = axes_of_keys(f, key), keys = ir_axes_with(f, AX_KEY);
  bool some = false;
  for (uint32_t a = 0; own && a < f->axes.n; a++)
    some |= a != key && keys & bit(a) && axes_of_keys(f, a) & tasks & ~own;
  return some;
}

// Is v what passes over these keys leave, and no others?
static bool is_left(Shared *s, Value v) {
  return ir_key_deps(&s->deps, v) == bit(s->key) &&
         !(ir_axes_of(s->f, v) & bit(s->key));
}

// Do the passes need nothing of other keys?
static bool is_alone(Shared *s) {
  for (const Op *op = s->f->body->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nres; i++)
      if (ir_axes_of(s->f, op->res[i]) & bit(s->key) &&
          ir_key_deps(&s->deps, op->res[i]) & ~bit(s->key))
        return false;
  return true;
}

// Is v made, elementwise, of what is stored anyway?
static bool is_made(Shared *s, const bool *known, const Op *op) {
  bool any = false;
  if (!(op_info(op->code)->flags & OPF_ELEM)) return false;
  for (uint32_t i = 0; i < op->nargs; i++) {
    bool left = is_left(s, op->args[i]);
    if (left && !known[op->args[i]]) return false;
    any |= left;
  }
  return any;
}

// What is used beside the passes.
static bool find_cuts(Shared *s, Arena *a) {
  Func *f = s->f;
  Outlined *o = &s->out;
  bool *used = NEWN(a, bool, f->values.n), *known = NEWN(a, bool, f->values.n);
  for (const Op *op = f->body->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nargs; i++)
      used[op->args[i]] |=
          !op->nres || ir_key_deps(&s->deps, op->res[0]) != bit(s->key);
  for (const Op *op = f->body->first; op; op = op->next) {
    Value v = op->nres ? op->res[0] : 0;
    if (!v || !used[v] || !is_left(s, v)) continue;
    known[v] = true;
    if (is_made(s, known, op)) continue;
    if (o->n == MAX_OUTLINED || ir_type(f, v)->dtype == DT_BOOL) return false;
    o->cut[o->n++] = v;
  }
  return o->n > 0;
}

// ---------------------------------------------------------------- the change
static void drop_domain(Func *f, uint32_t key) {
  for (Op *op = f->body->first, *next; op; op = next) {
    next = op->next;
    if (outlined_domain(op, bit(key))) ir_erase(op);
  }
  ir_sweep(f);
}

static bool share(Ctx *cx, Func *f, uint32_t key, uint32_t number) {
  Arena *a = &cx->scratch;
  Shared s = {
      .f = f,
      .key = key,
      .deps = ir_key_deps_of(f, a),
      .out = {.f = f, .phase = "shared", .tensor = "shared", .value = "row"}};
  s.tasks = outline_tasks(f);
  if (!s.tasks || !is_shared(f, key, s.tasks) || !is_alone(&s) ||
      !find_cuts(&s, a))
    return false;
  outlined_close(&s.out, a);
  outlined_make(&s.out, number);
  drop_domain(f, key);
  ctx_remark(cx, "%s: keys %s are those of all tasks: a phase in front",
             f->name, f->axes.at[key].name);
  return true;
}

// Returns the number of phases that it puts in front of f.
static uint32_t run(Ctx *cx, Func *f) {
  uint32_t made = 0;
  if (f->axes.n > 64) return 0;
  for (uint32_t a = 0; a < f->axes.n && outline_count(f) < MAX_FRONT; a++)
    if (f->axes.at[a].role == AX_KEY) made += share(cx, f, a, made);
  return made;
}

bool pass_share_keys(Ctx *cx, Module *m, const PassOpt *opt) {
  if (!groups_few(opt) || opt->together) return true;
  for (uint32_t i = 0; i < m->funcs.n; i++) i += run(cx, m->funcs.at[i]);
  return true;
}
