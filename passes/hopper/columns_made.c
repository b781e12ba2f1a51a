// Columns that each step reads of memory, where the copy engine has no box of
// them (pages, tables): a maker reads them, steps ahead.
//
//   %f = gload(%F, %p, %c) : frag<64xf32,acc.1>
// to
//   %f = gload(%F, %p, %c) : frag<64xf32,acc.1>
//   %t = sput(%f) : smem<1x64xf32,row>
//   %g = sload(%t) : frag<64xf32,acc.1>
//
// What reads %f reads %g. Only in programs that have a maker anyway
// (rings_made.c), whose groups that compute then wait for no load. Loads that
// stand together are asked for together: the tiles are behind the last. Loops
// within a step, which copy nothing, are the computing groups' alone.
#include "passes/hopper/columns_made.h"

#include "ir/layout.h"
#include "passes/hopper/rings.h"
#include "passes/support/loops.h"

enum { MAX_COLUMNS = 32 };

typedef struct Columns {
  Func *f;
  Op *load[MAX_COLUMNS], *put[MAX_COLUMNS], *back[MAX_COLUMNS];
  uint32_t n;
  bool streams;  // some are in a loop over keys
} Columns;

static bool is_columns(const Func *f, const Op *op) {
  const Type *t = op->code == OP_GLOAD ? ir_type(f, op->res[0]) : NULL;
  return t && t->kind == TK_FRAG && t->slice == SLICE_COL && !t->partial &&
         t->layout == LY_ACC && dtype_is_float(t->dtype) &&
         ir_is_input(f, op->args[0]);
}

static bool in_step(const Op *op) {
  const Op *around = op->parent->parent;
  return around && !loop_has_fill(around);
}

// Loops over tasks carry nothing of their own.
static bool in_keys(const Op *op) {
  const Op *around = op->parent->parent;
  return around && around->code == OP_FOR && around->nres;
}

static void find(void *data, Op *op) {
  Columns *c = data;
  if (!is_columns(c->f, op) || in_step(op) || c->n == MAX_COLUMNS) return;
  c->streams |= in_keys(op);
  c->load[c->n++] = op;
}

// Behind what stands with op and waits for nothing.
static Op *behind_loads(Op *op) {
  op = op->next;
  while (op->code == OP_GLOAD ||
         (op_info(op->code)->flags & OPF_PURE && !op->nregions &&
          op->code != OP_SFILL && op->code != OP_SPUT && op->code != OP_MMA))
    op = op->next;
  return op;
}

static void put(Columns *c, uint32_t i) {
  Op *load = c->load[i], *at = behind_loads(load);
  const Type t = *ir_type(c->f, load->res[0]);
  Type row = type_smem(t.dtype, 1, 1, t.ext[0], LY_ROW);
  Builder b = {.fn = c->f,
               .region = load->parent,
               .before = at,
               .span = load->span};
  for (Op *op = load->next; op != at; op = op->next)
    if (ir_mentions(op, load->res[0])) b.before = op;
  c->put[i] = ir_op(&b, OP_SPUT, load->res, 1, NULL, 0, &row, 1, 0);
  c->back[i] = ir_op(&b, OP_SLOAD, c->put[i]->res, 1, NULL, 0, &t, 1, 0);
  ir_replace_from(c->back[i]->next, load->res[0], c->back[i]->res[0]);
}

static void undo(Columns *c) {
  for (uint32_t i = 0; i < c->n; i++) {
    ir_replace_uses(c->f, c->back[i]->res[0], c->load[i]->res[0]);
    ir_erase(c->back[i]);
    ir_erase(c->put[i]);
  }
}

void hop_columns_made(Func *f, const Target *t) {
  Rings before, now;
  Columns c = {.f = f};
  ir_walk(f->body, find, &c);
  if (!c.streams || !hop_rings_plan(&before, f, t) || !before.makers) return;
  for (uint32_t i = 0; i < c.n; i++) put(&c, i);
  bool all = hop_rings_plan(&now, f, t) && now.makers;
  for (uint32_t i = 0; i < c.n && all; i++)
    all = hop_rings_made(&now, c.put[i]);
  if (!all) undo(&c);
}
