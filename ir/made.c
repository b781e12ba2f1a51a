// Which outputs a phase of a program makes, itself or by what it hands to
// phases behind it in workspace: where nobody wants them the phase is left out
// of a launch.
#include "ir/ir.h"

typedef struct Made {
  const Func *f;
  uint64_t bits;  // outputs, by place among the tensors
  uint64_t work;  // workspace: the same, in all phases of a program
  bool other;     // it writes what is neither
} Made;

// The tensor, or memory of the thread's own (`alloc`), that a store goes to.
static Value target(const Func *f, const Op *store) {
  Value v = store->args[0];
  const Op *op = ir_def(f, v);
  while (op &&
         (op->code == OP_PADD || op->code == OP_PVIEW || op->code == OP_TPTR)) {
    v = op->args[0];
    op = ir_def(f, v);
  }
  return v;
}

static void note(Made *m, Value tensor) {
  uint32_t n = 0;
  const Op *op = ir_def(m->f, tensor);
  if (op && op->code == OP_ALLOC) return;
  for (uint32_t i = 0; i < m->f->params.n; i++) {
    const FuncParam *p = &m->f->params.at[i];
    if (ir_type(m->f, p->v)->kind != TK_TENSOR) continue;
    if (p->v != tensor) {
      n++;
      continue;
    }
    uint64_t bit = n < 64 ? (uint64_t)1 << n : 0;
    if (p->role == PR_OUT) m->bits |= bit;
    if (p->role == PR_SHARED) m->work |= bit;
    m->other |= !bit || (p->role != PR_OUT && p->role != PR_SHARED);
    return;
  }
  m->other = true;
}

static void visit(void *data, Op *op) {
  Made *m = data;
  switch (op->code) {
  case OP_ST:
  case OP_VST:
  case OP_VSCATTER:
  case OP_GSTORE:
  case OP_TMA_STORE: note(m, target(m->f, op)); return;
  default: return;
  }
}

typedef struct Mention {
  Value v;
  bool found;
} Mention;

static void mention(void *data, Op *op) {
  Mention *m = data;
  for (uint32_t i = 0; i < op->nargs; i++) m->found |= op->args[i] == m->v;
}

// Does f use workspace that m writes?
static bool takes(const Func *f, const Made *m) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < f->params.n; i++) {
    const FuncParam *p = &f->params.at[i];
    if (ir_type(f, p->v)->kind != TK_TENSOR) continue;
    Mention use = {.v = p->v};
    if (n < 64 && (m->work >> n & 1)) ir_walk(f->body, mention, &use);
    if (use.found) return true;
    n++;
  }
  return false;
}

static bool same_program(const Func *a, const Func *b) {
  size_t n = strcspn(a->name, ".");
  return strcspn(b->name, ".") == n && strncmp(a->name, b->name, n) == 0;
}

// From the last phase to the first: each adds what those behind it make of its
// workspace.
uint64_t ir_made(Arena *scratch, const Func *f) {
  const Module *mod = f->mod;
  uint32_t n = mod->funcs.n;
  Made *all = NEWN(scratch, Made, n);
  for (uint32_t i = n; i-- > 0;) {
    Made *m = &all[i];
    m->f = mod->funcs.at[i];
    if (!same_program(f, m->f)) continue;
    ir_walk(m->f->body, visit, m);
    for (uint32_t k = i + 1; k < n && !m->other; k++) {
      if (!same_program(f, all[k].f) || !takes(all[k].f, m)) continue;
      m->bits |= all[k].bits;
      m->other = all[k].other || !all[k].bits;
    }
    if (m->f == f) return m->other ? 0 : m->bits;
  }
  return 0;
}
