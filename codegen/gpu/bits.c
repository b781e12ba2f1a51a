// Masks of a tile as words: a bit for each of a row's columns that the thread
// has, first column first.
//
//   lt(column, %limit)                   n = columns of the thread below the limit
//   le(%least, column)            ->     word = the lowest n bits; all but these
//   eq(%row, %column)                    word = votes on columns, a lane each
//   and(%a, %b)                          words' conjunction
//
// A row is then looked at once, not once an element, and before the scores are
// there. A mask of one limit is compared element by element: that is 11
// instructions more for 64 x 64, but words take the predicates that loops keep
// (an instruction of each step, also of those without a mask).
//
// Values of rows are mostly the same in a warp (documents): the columns are
// compared with one value at a time, until each row has had its own, or all
// columns are equal to one (rows of the next document before its keys).
#include "codegen/gpu/gpu.h"

#include <assert.h>

// Columns of `acc` in a thread: pairs, eight apart.
enum { PAIR = 2, APART = 8, WORD = 32, MOST_ROWS = 16 };

// The rows that the tile's registers belong to, and which bits they are.
typedef struct Shape {
  uint32_t rows, cols;        // of a thread
  uint32_t *row, *bit;        // by register
  uint32_t first[MOST_ROWS];  // register of each row
  uint32_t at[MOST_ROWS];     // where it is, in thread 0
} Shape;

static uint32_t column_of(uint32_t bit) {
  return bit / PAIR * APART + bit % PAIR;
}

static bool shape_of(Gpu *n, const FragMap *m, Shape *s) {
  uint32_t at[2], count[MOST_ROWS] = {0};
  s->row = NEWN(&n->g->cx->scratch, uint32_t, m->regs);
  s->bit = NEWN(&n->g->cx->scratch, uint32_t, m->regs);
  s->rows = 0;
  for (uint32_t i = 0; i < m->regs; i++) {
    frag_at(m, i, 0, at);
    uint32_t r = 0;
    while (r < s->rows && s->at[r] != at[0]) r++;
    if (r == MOST_ROWS) return false;
    if (r == s->rows) s->rows++, s->at[r] = at[0], s->first[r] = i;
    s->row[i] = r;
    s->bit[i] = count[r]++;
    if (s->bit[i] >= WORD || at[1] != column_of(s->bit[i])) return false;
  }
  s->cols = count[0];
  return s->cols > PAIR;
}

// How many of the thread's columns are below x, the limit less the thread's
// part, which is less than APART: x > -APART.
static V columns_below(Gpu *n, V x) {
  Cg *g = n->g;
  V a[2] = {e_and(g, x, gpu_i32(n, APART - 1)), gpu_i32(n, PAIR)};
  V rest = gpu_call_over(n, "llvm.smin", gpu_i32t(n), a, 2);
  V pairs = LLVMBuildAShr(g->b, x, gpu_i32(n, 3), "");
  return gpu_add(n, gpu_mul(n, pairs, PAIR), rest);
}

static V clamp(Gpu *n, const char *how, V x, int64_t k) {
  V a[2] = {x, gpu_i32(n, k)};
  return gpu_call_over(n, how, gpu_i32t(n), a, 2);
}

// Bits of the columns c < limit; c <= limit if `equal`. No column is below 0,
// none beyond the tile: limits may be any integers.
static V word_below(Gpu *n, V limit, bool equal, V part) {
  if (equal) {
    limit = clamp(n, "llvm.smin", limit, WORD * APART);
    limit = gpu_add(n, limit, gpu_i32(n, 1));
  }
  limit = clamp(n, "llvm.smax", limit, 0);
  return n->vendor->low_bits(n, columns_below(n, e_isub(n->g, limit, part)));
}

// Six bits are tested at a time: ptxas moves as many from a word's end to
// predicates by one instruction, and the seventh predicate stays for loops. The
// shift is not for LLVM to fold.
static void define(Gpu *n, const Shape *s, V *words, Frag *r) {
  enum { STEP = 6, STEPS = (WORD + STEP - 1) / STEP };
  Cg *g = n->g;
  V part[MOST_ROWS][STEPS];
  for (uint32_t i = 0; i < s->rows; i++)
    for (uint32_t k = 0; k * STEP < s->cols; k++)
      part[i][k] = k ? n->vendor->shifted(n, words[i], k * STEP) : words[i];
  for (uint32_t i = 0; i < r->map.regs; i++) {
    V bit = gpu_i32(n, INT64_C(1) << s->bit[i] % STEP);
    V word = part[s->row[i]][s->bit[i] / STEP];
    r->w[i] = e_icmp(g, LLVMIntNE, e_and(g, word, bit), gpu_i32(n, 0));
  }
  r->bits = words;
}

// ---------------------------------------------------------------- limits
static const Op *spread(const Gpu *n, Value v) {
  const Op *op = ir_def(n->f, v);
  return op && op->code == OP_BCAST ? ir_def(n->f, op->args[0]) : NULL;
}

// The operand of a comparison that is the columns' coordinates, where the other
// one is a value of rows; -1: none.
static int column_side(const Gpu *n, const Op *op) {
  if ((op->code != OP_LT && op->code != OP_LE) ||
      gpu_arg_type(n, op, 0)->dtype != DT_I32)
    return -1;
  for (int i = 0; i < 2; i++) {
    const Op *col = spread(n, op->args[i]),
             *row = ir_def(n->f, op->args[1 - i]);
    if (col && col->code == OP_COORD && row && row->code == OP_BCAST &&
        ir_type(n->f, col->res[0])->slice == SLICE_COL &&
        ir_type(n->f, row->args[0])->slice == SLICE_ROW)
      return i;
  }
  return -1;
}

// The columns' slice, if it was loaded as words for these rows.
static const Frag *equal_words(const Gpu *n, const Op *op) {
  for (uint32_t i = 0; op->code == OP_EQ && i < 2; i++) {
    const Op *row = ir_def(n->f, op->args[i]);
    const Op *col = ir_def(n->f, op->args[1 - i]);
    if (!row || !col || row->code != OP_BCAST || col->code != OP_BCAST)
      continue;
    const Frag *f = &n->frag[col->args[0]];
    if (f->bits && f->against == row->args[0]) return f;
  }
  return NULL;
}

static bool has_words(const Gpu *n, Value v) {
  const Op *op = ir_def(n->f, v);
  if (!op) return false;
  if (op->code == OP_AND)
    return has_words(n, op->args[0]) && has_words(n, op->args[1]);
  return column_side(n, op) >= 0 || equal_words(n, op);
}

// Whether v, a mask, is only part of masks that are words as a whole.
static bool is_part(const Gpu *n, const Op *of) {
  Value v = of->res[0];
  uint32_t parts = 0;
  for (const Op *op = of->next; op; op = op->next)
    for (uint32_t i = 0; i < op->nargs; i++)
      if (op->args[i] == v && op->code == OP_AND && has_words(n, op->res[0]))
        parts++;
  return parts && parts == ir_count_uses(n->f, v);
}

bool gpu_bits_of_limit(Gpu *n, const Op *op, Frag *r) {
  Shape s;
  int side = column_side(n, op);
  if (side < 0 || !n->vendor->low_bits || !n->gpu.hopper || !is_part(n, op) ||
      !shape_of(n, &r->map, &s))
    return false;
  const Frag *f = gpu_frag(n, op->args[1 - side]);
  bool lt = op->code == OP_LT;
  V *words = NEWN(&n->g->cx->scratch, V, s.rows);
  V part = gpu_coord(n, &r->map, AXIS_COL, 0);
  for (uint32_t i = 0; i < s.rows; i++) {
    V limit = gpu_elem(n, f, s.first[i]);
    V word = word_below(n, limit, side ? lt : !lt, part);
    words[i] = side ? LLVMBuildNot(n->g->b, word, "") : word;
  }
  define(n, &s, words, r);
  return true;
}

bool gpu_bits_of_both(Gpu *n, const Frag *a, const Frag *b, Frag *r) {
  Shape s;
  if (!a->bits || !b->bits || !shape_of(n, &r->map, &s)) return false;
  V *words = NEWN(&n->g->cx->scratch, V, s.rows);
  for (uint32_t i = 0; i < s.rows; i++)
    words[i] = e_and(n->g, a->bits[i], b->bits[i]);
  define(n, &s, words, r);
  return true;
}

// ---------------------------------------------------------------- equal values
// The only op that reads v, in its region or one inside it.
static const Op *only_use(const Gpu *n, Value v, const Op *from) {
  if (ir_count_uses(n->f, v) != 1) return NULL;
  for (const Op *op = from->next; op; op = op->next)
    for (uint32_t i = 0; i < op->nargs; i++)
      if (op->args[i] == v) return op;
  return NULL;
}

static bool is_before(const Op *a, const Op *b) {
  for (; a; a = a->next)
    if (a == b) return true;
  return false;
}

// Rows are numbered as registers of their slice are.
static bool same_rows(const Shape *s, const FragMap *slice) {
  uint32_t at[2];
  for (uint32_t i = 0; i < slice->regs; i++) {
    frag_at(slice, i, 0, at);
    if (i >= s->rows || s->at[i] != at[0]) return false;
  }
  return slice->regs == s->rows;
}

static bool fits(Gpu *n, const Type *tile, const Type *rows) {
  Shape s;
  FragMap whole, slice;
  return !frag_map(tile, n->grp.threads, &whole) &&
         !frag_map(rows, n->grp.threads, &slice) && shape_of(n, &whole, &s) &&
         same_rows(&s, &slice);
}

Value gpu_compared_rows(Gpu *n, const Op *load) {
  const Op *col = only_use(n, load->res[0], load);
  const Op *eq =
      col && col->code == OP_BCAST ? only_use(n, col->res[0], col) : NULL;
  if (!eq || eq->code != OP_EQ || !n->vendor->ballot || !n->gpu.hopper ||
      gpu_res_type(n, load)->dtype != DT_I32)
    return 0;
  const Op *row = ir_def(n->f, eq->args[eq->args[0] == col->res[0]]);
  if (!row || row->code != OP_BCAST) return 0;
  Value rows = row->args[0];
  const Op *made = ir_def(n->f, rows);
  const Type *t = ir_type(n->f, rows);
  bool known = ir_defined_outside(n->f, rows, load->parent) ||
               (made && made->parent == load->parent && is_before(made, load));
  return known && t->slice == SLICE_ROW && !t->partial &&
                 fits(n, gpu_res_type(n, eq), t)
             ? rows
             : 0;
}

// Bit j of the thread's word: whether its column j has that value. Lane l looks
// at columns l % 8, l % 8 + 8 .. of thread l / 8 of each row.
static V columns_equal(Gpu *n, const V *x, uint32_t count, V value, V *votes) {
  Cg *g = n->g;
  V word = NULL, mine = e_and(g, n->grp.lane, gpu_i32(n, 3));
  for (uint32_t i = 0; i < count; i++)
    votes[i] = n->vendor->ballot(n, e_icmp(g, LLVMIntEQ, x[i], value));
  for (uint32_t i = 0; i < count; i += 2) {
    V two = n->vendor->bytes(n, votes[i],
                             i + 1 < count ? votes[i + 1] : votes[i], mine);
    word = word ? e_or(g, word, e_shl(g, two, (int)(8 * i))) : two;
  }
  return word;
}

// What a round has of each row: its word, and whether that is still to come.
typedef struct Round {
  V *word, *open, any;
} Round;

static Round round_of(Gpu *n, uint32_t rows) {
  Arena *a = &n->g->cx->scratch;
  return (Round){NEWN(a, V, rows), NEWN(a, V, rows), NULL};
}

// Rows that have the value take the word.
static Round after(Gpu *n, const Round *r, const Frag *row, V value, V word) {
  Cg *g = n->g;
  Round q = round_of(n, row->n);
  for (uint32_t i = 0; i < row->n; i++) {
    V hit = e_icmp(g, LLVMIntEQ, row->w[i], value);
    q.word[i] = LLVMBuildSelect(g->b, hit, word, r->word[i], "");
    q.open[i] = e_and(g, r->open[i], LLVMBuildNot(g->b, hit, ""));
    q.any = q.any ? e_or(g, q.any, q.open[i]) : q.open[i];
  }
  return q;
}

// The value of a row that is still open, of the first lane that has one.
static V next_value(Gpu *n, const Round *r, const Frag *row) {
  Cg *g = n->g;
  V x = row->w[0];
  for (uint32_t i = 1; i < row->n; i++)
    x = LLVMBuildSelect(g->b, r->open[i], row->w[i], x, "");
  V a[2] = {n->vendor->ballot(n, r->any),
            LLVMConstInt(LLVMInt1TypeInContext(g->lc), 1, 0)};
  V lane = cg_intrinsic(g, "llvm.cttz", gpu_i32t(n), a, 2);
  return n->vendor->lane_of(n, x, lane);
}

void gpu_bits_of_equal(Gpu *n, const V *x, uint32_t count, Value rows,
                       Frag *r) {
  enum { MOST_LOADS = 4 };
  Cg *g = n->g;
  const Frag *row = gpu_frag(n, rows);
  LLVMTypeRef i32 = gpu_i32t(n), i1 = LLVMInt1TypeInContext(g->lc);
  Round at = round_of(n, row->n);
  V first = n->vendor->first_lane(n, row->w[0]), votes[MOST_LOADS];
  LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(g->b), cg_block(g, "other")};
  LLVMBasicBlockRef loop = cg_block(g, "value"), end = cg_block(g, "values");
  LLVMBuildBr(g->b, loop);
  LLVMPositionBuilderAtEnd(g->b, loop);
  V value = LLVMBuildPhi(g->b, i32, "");
  for (uint32_t i = 0; i < row->n; i++) {
    at.word[i] = LLVMBuildPhi(g->b, i32, "");
    at.open[i] = LLVMBuildPhi(g->b, i1, "");
  }
  V word = columns_equal(n, x, count, value, votes), all = gpu_i32(n, -1);
  for (uint32_t i = 0; i < count; i++) all = e_and(g, all, votes[i]);
  Round done = after(n, &at, row, value, word);
  V more = e_and(g, done.any, e_icmp(g, LLVMIntNE, all, gpu_i32(n, -1)));
  LLVMBuildCondBr(g->b, n->vendor->vote(n, true, more), from[1], end);
  LLVMPositionBuilderAtEnd(g->b, from[1]);
  V values[2] = {first, next_value(n, &done, row)};
  LLVMBuildBr(g->b, loop);
  LLVMAddIncoming(value, values, from, 2);
  for (uint32_t i = 0; i < row->n; i++) {
    V w[2] = {gpu_i32(n, 0), done.word[i]};
    V o[2] = {LLVMConstInt(i1, 1, 0), done.open[i]};
    LLVMAddIncoming(at.word[i], w, from, 2);
    LLVMAddIncoming(at.open[i], o, from, 2);
  }
  LLVMPositionBuilderAtEnd(g->b, end);
  for (uint32_t i = 0; i < r->n; i++) r->w[i] = LLVMGetUndef(i32);
  r->bits = done.word;
  r->against = rows;
}

bool gpu_bits_of_table(Gpu *n, const Op *op, Frag *r) {
  Shape s;
  const Frag *f = equal_words(n, op);
  if (!f) return false;
  bool ok = shape_of(n, &r->map, &s);
  assert(ok && "nv_compared_rows has looked");
  (void)ok;
  define(n, &s, f->bits, r);
  return true;
}
