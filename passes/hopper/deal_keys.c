// deal_keys: few rows, which one warp has, are in all warps of a group, and the
// keys of a step are dealt to these.
//
//   %q = sput(%x) : smem<64x128xbf16,sw128>
//   %s = mma(%q, %k) : frag<64x64xf32,acc>
//   %h = lt(bcast(%c), bcast(%n))                  %c, %r: coord, of columns
//   ..                                             and of rows
//   %o = mma(%p, %v, %acc) {trans = true}
//   %x = others(%o) {kind = sum}
// to
//   %q = sput(%y) : smem<16x128xbf16,sw128>        %y: the first rows of %x
//   %s = mma(%q, %k) {dealt = true} : frag<64x16xf32,acc>
//   %h = lt(add(bcast(%c), bcast(%r - %r mod 16)), bcast(%n of row %r mod 16))
//   ..
//   %o = mma(%p, %v, %acc) {trans = true, dealt = true}
//   %x = fwarps(%o) {kind = sum}
//
// Where there are no more than 16 rows three of four warps would multiply, and
// read the tiles of, rows that are not there. Dealt, each has a quarter of the
// keys: a fourth of the products, of the reads of shared memory, and of the
// exponentials, each warp with maxima and sums of its own. Pass tile joins them
// behind the loop (`others`), where the rows behind the first 16 are no longer
// any. What cannot be dealt stays, and `others` is its operand.
//
//   %s = gload(%S, %k) : frag<64xf32,acc.1>        a number of each key
//   %b = bcast(%s) : frag<64x64xf32,acc>
// to
//   %s = gload(%S, %r) : frag<64xf32,acc.0>        as of a row: two of a thread
//   %b = fdeal(%s) : frag<64x16xf32,acc>
//
// Level frag; sm_90a, behind lower_gpu. Tests: test/passes/deal_keys.
#include "ir/deps.h"
#include "ir/layout.h"
#include "ir/target.h"
#include "passes/pass.h"

enum { WARP_ROWS = HW_GROUP_ROWS / HW_GROUP_WARPS };

typedef struct Deal {
  Func *f;
  Op *loop;
  uint32_t known;  // values in front of the pass
  bool *keyed;     // by value: varies with the keys of a step
  Value *row;      // by value, outside: what the row's first warp has
  Value *dealt;    // by value, outside: keyed, of a warp's keys
  Value *lain;     // by value: of keys, the same of rows
  Builder b;       // in front of the loop
  bool fails, grows;
} Deal;

// ---------------------------------------------------------------- types
static bool is_acc(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return t->kind == TK_FRAG && t->layout == LY_ACC;
}

// A tile of rows and keys, or a slice of keys.
static bool may_be_keyed(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  if (!is_acc(f, v) || t->partial) return false;
  if (t->slice == SLICE_COL) return t->ext[0] == HW_GROUP_ROWS;
  return t->slice == SLICE_NONE && t->ext[0] == HW_GROUP_ROWS &&
         t->ext[1] == HW_GROUP_ROWS;
}

static Type dealt_type(const Func *f, Value v) {
  return type_frag(ir_type(f, v)->dtype, HW_GROUP_ROWS, WARP_ROWS, LY_ACC);
}

static bool is_outside(const Deal *d, Value v) {
  return ir_defined_outside(d->f, v, d->loop->regions[0]);
}

static bool is_plain(const Op *op) {
  return op->nres == 1 && !op->nregions && op->nargs <= ELEM_ARGS &&
         op_info(op->code)->flags & OPF_ELEM;
}

// ---------------------------------------------------------------- keys
static void mark(Deal *d, Value v) {
  if (ir_type(d->f, v)->kind != TK_FRAG || d->keyed[v]) return;
  d->fails |= !may_be_keyed(d->f, v) || !ir_def(d->f, v);
  d->keyed[v] = d->grows = true;
}

// Scores: a row of what is copied or computed in the step is a key's.
static bool is_score(const Deal *d, const Op *op) {
  return op->code == OP_MMA && op->nargs < 4 && !ir_attr_i(op, AT_TRANS, 0) &&
         !ir_attr_i(op, AT_TRANSA, 0) && !is_outside(d, op->args[1]) &&
         may_be_keyed(d->f, op->res[0]);
}

static bool is_sum(const Deal *d, const Op *op) {
  return op->code == OP_MMA && op->nargs < 4 && ir_attr_i(op, AT_TRANS, 0) &&
         d->keyed[op->args[0]] &&
         ir_type(d->f, op->args[1])->ext[0] == HW_GROUP_ROWS;
}

static void mark_all(Deal *d, const Op *op) {
  mark(d, op->res[0]);
  for (uint32_t i = 0; i < op->nargs; i++) mark(d, op->args[i]);
}

static bool touches(const Deal *d, const Op *op) {
  bool some = false;
  for (uint32_t i = 0; i < op->nargs; i++) some |= d->keyed[op->args[i]];
  for (uint32_t i = 0; i < op->nres; i++) some |= d->keyed[op->res[i]];
  return some;
}

// Columns that a step loads: numbers of its keys.
static bool is_column_load(const Deal *d, const Op *op) {
  if (op->code != OP_GLOAD || !ir_is_input(d->f, op->args[0]) ||
      !is_acc(d->f, op->res[0]))
    return false;
  for (uint32_t i = 1; i < op->nargs; i++)
    if (ir_type(d->f, op->args[i])->kind == TK_FRAG &&
        ir_type(d->f, op->args[i])->slice != SLICE_COL)
      return false;
  return ir_type(d->f, op->res[0])->slice == SLICE_COL;
}

static void spread(Deal *d, const Op *op) {
  if (is_score(d, op)) mark(d, op->res[0]);
  if (!touches(d, op)) return;
  if (is_plain(op) || is_column_load(d, op)) {
    mark_all(d, op);
    return;
  }
  switch (op->code) {
  case OP_MMA:
    if (is_score(d, op) && op->nargs > 2) mark(d, op->args[2]);
    d->fails |= !is_score(d, op) && !is_sum(d, op);
    break;
  case OP_BCAST:
    mark(d, op->res[0]);
    if (ir_type(d->f, op->args[0])->slice == SLICE_COL) mark(d, op->args[0]);
    break;
  case OP_FREDUCE:
    d->fails |= ir_attr_i(op, AT_POS, 0) != 1 ||
                ir_type(d->f, op->args[0])->slice != SLICE_NONE;
    break;
  case OP_SPLAT:
  case OP_CONST: break;
  default: d->fails = true;
  }
}

static void find_keyed(Deal *d) {
  do {
    d->grows = false;
    for (const Op *op = d->loop->regions[0]->first; op; op = op->next)
      spread(d, op);
  } while (d->grows && !d->fails);
}

// ---------------------------------------------------------------- outside
// Does v vary with the row?
static bool has_row(const Deal *d, Value v) {
  const Op *op = ir_def(d->f, v);
  if (!op || !is_acc(d->f, v)) return false;
  if (op->code == OP_COORD) return ir_type(d->f, v)->slice == SLICE_ROW;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (has_row(d, op->args[i])) return true;
  return op->code != OP_SPLAT && op->code != OP_CONST && !is_plain(op) &&
         op->code != OP_BCAST;
}

static bool is_copied(const Deal *d, const Op *op) {
  return is_plain(op) || op->code == OP_BCAST || op->code == OP_SPLAT ||
         (op->code == OP_GLOAD && op->nargs <= MAX_AXES &&
          ir_is_input(d->f, op->args[0]));
}

static bool can_row(const Deal *d, Value v) {
  const Op *op = ir_def(d->f, v);
  if (!has_row(d, v) || op->code == OP_COORD) return true;
  if (!is_copied(d, op)) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!can_row(d, op->args[i])) return false;
  return true;
}

static Value whole_like(Deal *d, Value v, int64_t n) {
  IrAttr at = attr_i(AT_IVALUE, n);
  return ir_op(&d->b, OP_CONST, NULL, 0, &at, 1, ir_type(d->f, v), 1, 0)
      ->res[0];
}

static Value copy(Deal *d, const Op *op, const Value *args, Type t) {
  return ir_op(&d->b, op->code, args, op->nargs, op->attrs, op->nattrs, &t, 1,
               0)
      ->res[0];
}

// v of row r mod 16.
static Value row_of(Deal *d, Value v) {
  const Op *op = ir_def(d->f, v);
  Value args[MAX_AXES + 1];
  if (!has_row(d, v)) return v;
  if (d->row[v]) return d->row[v];
  if (op->code == OP_COORD)
    return d->row[v] = ir_2(&d->b, OP_MOD, v, whole_like(d, v, WARP_ROWS));
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = row_of(d, op->args[i]);
  return d->row[v] = copy(d, op, args, *ir_type(d->f, v));
}

static bool can_deal(const Deal *d, Value v) {
  const Op *op = ir_def(d->f, v);
  if (!op) return false;
  if (op->code == OP_CONST || op->code == OP_SPLAT) return true;
  if (op->code == OP_COORD) return ir_type(d->f, v)->slice == SLICE_COL;
  if (op->code != OP_BCAST && !is_plain(op)) return false;
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value x = op->args[i];
    bool row = ir_type(d->f, x)->slice == SLICE_ROW;
    if (row ? !can_row(d, x) : !can_deal(d, x)) return false;
  }
  return true;
}

// The keys of a warp's columns.
static Value dealt_coord(Deal *d, const Op *op) {
  Type cols = *ir_type(d->f, op->res[0]), rows = cols;
  Type t = dealt_type(d->f, op->res[0]);
  cols.ext[0] = WARP_ROWS;
  rows.slice = SLICE_ROW;
  Value c = copy(d, op, NULL, cols);
  IrAttr pos = attr_i(AT_POS, 0);
  Value r = ir_op(&d->b, OP_COORD, NULL, 0, &pos, 1, &rows, 1, 0)->res[0];
  Value in = ir_2(&d->b, OP_MOD, r, whole_like(d, r, WARP_ROWS));
  Value x[] = {c, ir_2(&d->b, OP_SUB, r, in)};
  for (uint32_t i = 0; i < 2; i++)
    x[i] = ir_op(&d->b, OP_BCAST, &x[i], 1, NULL, 0, &t, 1, 0)->res[0];
  return ir_2(&d->b, OP_ADD, x[0], x[1]);
}

static Value deal(Deal *d, Value v) {
  const Op *op = ir_def(d->f, v);
  Value args[MAX_AXES + 1];
  if (d->dealt[v]) return d->dealt[v];
  if (op->code == OP_COORD) return d->dealt[v] = dealt_coord(d, op);
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Type *t = ir_type(d->f, op->args[i]);
    bool scalar = t->kind != TK_FRAG, row = t->slice == SLICE_ROW;
    args[i] = scalar ? op->args[i]
              : row  ? row_of(d, op->args[i])
                     : deal(d, op->args[i]);
  }
  bool same =
      op->code == OP_BCAST && ir_type(d->f, op->args[0])->slice == SLICE_COL;
  return d->dealt[v] = same ? args[0] : copy(d, op, args, dealt_type(d->f, v));
}

// ---------------------------------------------------------------- few rows
// The type of a warp's rows of what threads load for the tile of all; false:
// it has other rows.
static bool short_type(const Func *f, Value v, Type *out) {
  Type t = *out = *ir_type(f, v);
  bool col = t.kind == TK_FRAG && t.slice == SLICE_COL;
  if (t.kind == TK_ELEM) return true;
  if ((t.kind != TK_FRAG && t.kind != TK_SMEM) ||
      (t.kind == TK_FRAG && t.layout != LY_LIN) || t.ext[col] != HW_GROUP_ROWS)
    return false;
  out->ext[col] = WARP_ROWS;
  return true;
}

static bool can_shorten(const Deal *d, Value v) {
  const Op *op = ir_def(d->f, v);
  Type t;
  if (ir_type(d->f, v)->kind == TK_ELEM || ir_type(d->f, v)->kind == TK_TENSOR)
    return true;
  if (!op || !short_type(d->f, v, &t) ||
      (!is_copied(d, op) && op->code != OP_COORD && op->code != OP_CONST))
    return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!can_shorten(d, op->args[i])) return false;
  return true;
}

// v of as many rows as a warp has.
static Value shorten(Deal *d, Value v) {
  const Op *op = ir_def(d->f, v);
  Value args[MAX_AXES + 1];
  Type t;
  if (ir_type(d->f, v)->kind != TK_FRAG) return v;
  if (d->row[v]) return d->row[v];
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = shorten(d, op->args[i]);
  short_type(d->f, v, &t);
  return d->row[v] = copy(d, op, args, t);
}

// Rows that are multiplied by keys are put for one warp.
static void shorten_rows(Deal *d, Op *score) {
  Value v = score->args[0];
  const Op *put = ir_def(d->f, v);
  Type t;
  if (v >= d->known || !is_outside(d, v) || !put || put->code != OP_SPUT ||
      !can_shorten(d, put->args[0]) || !short_type(d->f, v, &t))
    return;
  if (!d->row[v]) {
    Value x = shorten(d, put->args[0]);
    d->row[v] = copy(d, put, &x, t);
  }
  score->args[0] = d->row[v];
}

// ---------------------------------------------------------------- loads
// Does a load of the step have to do with v, numbers of the keys?
static bool is_loaded(const Deal *d, Value v) {
  const Op *op = ir_def(d->f, v);
  if (!op || is_outside(d, v)) return false;
  if (op->code == OP_GLOAD) return true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_loaded(d, op->args[i])) return true;
  return false;
}

static bool spreads_loaded(const Deal *d, const Op *op) {
  return op->code == OP_BCAST && d->keyed[op->res[0]] &&
         ir_type(d->f, op->args[0])->slice == SLICE_COL &&
         is_loaded(d, op->args[0]);
}

// Numbers of a step's keys as numbers of rows, so that a thread has two: in
// front of `at`, or of the loop.
static Value lie(Deal *d, Value v, Op *at) {
  const Op *op = ir_def(d->f, v);
  Type t = *ir_type(d->f, v);
  Value args[MAX_AXES + 1];
  if (t.kind != TK_FRAG) return v;
  if (d->lain[v]) return d->lain[v];
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = lie(d, op->args[i], at);
  Builder b = d->b;
  if (!is_outside(d, v)) {
    b.region = at->parent;
    b.before = at;
  }
  t.ext[0] = HW_GROUP_ROWS;
  t.slice = SLICE_ROW;
  Op *made =
      ir_op(&b, op->code, args, op->nargs, op->attrs, op->nattrs, &t, 1, 0);
  if (op->code == OP_COORD) ir_set_attr(d->f, made, attr_i(AT_POS, 0));
  return d->lain[v] = made->res[0];
}

// A warp's of numbers that are loaded, spread over a tile.
static void deal_loaded(Deal *d, Op *op) {
  Type t = dealt_type(d->f, op->res[0]);
  Value rows = lie(d, op->args[0], op);
  Value v = ir_op(&d->b, OP_FDEAL, &rows, 1, NULL, 0, &t, 1, 0)->res[0];
  ir_move_before(ir_def(d->f, v), op);
  ir_replace_uses(d->f, op->res[0], v);
  ir_erase(op);
}

// ---------------------------------------------------------------- check
// What is neither a row's nor of keys may stand in the loop if it has no rows
// of the group's tiles.
static bool stays(const Deal *d, const Op *op) {
  if (op->nregions) return false;
  if (op->code == OP_MMA) return is_score(d, op) || is_sum(d, op);
  if (is_plain(op) || op->code == OP_BCAST || op->code == OP_SPLAT ||
      op->code == OP_CONST || op->code == OP_FREDUCE || op->code == OP_YIELD ||
      is_column_load(d, op))
    return true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_acc(d->f, op->args[i])) return false;
  for (uint32_t i = 0; i < op->nres; i++)
    if (is_acc(d->f, op->res[i])) return false;
  return true;
}

static bool can_rewrite(const Deal *d) {
  uint32_t scores = 0;
  for (uint32_t i = 3; i < d->loop->nargs; i++) {
    const Op *op = ir_def(d->f, d->loop->args[i]);
    if (!op || op->code != OP_CONST) return false;
  }
  for (const Op *op = d->loop->regions[0]->first; op; op = op->next) {
    if (!stays(d, op)) return false;
    scores += is_score(d, op);
    if (spreads_loaded(d, op) &&
        dtype_size(ir_type(d->f, op->res[0])->dtype) > 4)
      return false;
    for (uint32_t i = 0; i < op->nargs; i++) {
      Value v = op->args[i];
      if (!is_acc(d->f, v) || !is_outside(d, v)) continue;
      if (d->keyed[v] ? !can_deal(d, v) : !can_row(d, v)) return false;
    }
  }
  return scores > 0;
}

// ---------------------------------------------------------------- rewrite
static void rewrite_op(Deal *d, Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value v = op->args[i];
    if (v >= d->known || !is_acc(d->f, v) || !is_outside(d, v)) continue;
    op->args[i] = d->keyed[v] ? deal(d, v) : row_of(d, v);
  }
  if (op->code == OP_MMA) {
    ir_set_attr(d->f, op, attr_i(AT_DEALT, 1));
    shorten_rows(d, op);
  }
  if (!op->nres || op->res[0] >= d->known || !d->keyed[op->res[0]]) return;
  bool column =
      op->code == OP_BCAST && ir_type(d->f, op->args[0])->slice == SLICE_NONE;
  if (column) {
    ir_replace_uses(d->f, op->res[0], op->args[0]);
    ir_erase(op);
  } else {
    ir_info(d->f, op->res[0])->type = dealt_type(d->f, op->res[0]);
  }
}

static bool deals(Deal *d) {
  find_keyed(d);
  if (d->fails || !can_rewrite(d)) return false;
  for (Op *op = d->loop->regions[0]->first, *next; op; op = next) {
    next = op->next;
    if (spreads_loaded(d, op)) deal_loaded(d, op);
  }
  for (Op *op = d->loop->regions[0]->first, *next; op; op = next) {
    next = op->next;
    rewrite_op(d, op);
  }
  return true;
}

// ---------------------------------------------------------------- pass
typedef struct Others {
  uint32_t n;   // ops `others` of a function
  bool nested;  // in a region of another op: not behind the function's loop
  const Region *body;
} Others;

static void count_others(void *data, Op *op) {
  Others *o = data;
  if (op->code != OP_OTHERS) return;
  o->n++;
  o->nested = o->nested || op->parent != o->body;
}

static Others find_others(const Func *f) {
  Others o = {.body = f->body};
  ir_walk(f->body, count_others, &o);
  return o;
}

// The loop over keys that `others` is behind: the only one of a function.
static Op *only_loop(const Func *f) {
  Op *loop = NULL;
  for (Op *op = f->body->first; op; op = op->next) {
    if (op->code != OP_FOR) continue;
    if (loop) return NULL;
    loop = op;
  }
  return loop;
}

typedef struct Settling {
  Func *f;
  bool dealt;
} Settling;

static void settle(void *data, Op *op) {
  const Settling *s = data;
  if (op->code == OP_PEERS && s->dealt)
    ir_set_attr(s->f, op, attr_i(AT_DEALT, 1));
  if (op->code != OP_OTHERS) return;
  Value to = op->args[0];
  Builder b = {.fn = s->f,
               .region = op->parent,
               .before = op,
               .span = op->span};
  if (s->dealt)
    to = ir_op(&b, OP_FWARPS, op->args, 1, op->attrs, op->nattrs,
               ir_type(s->f, op->args[0]), 1, 0)
             ->res[0];
  ir_replace_uses(s->f, op->res[0], to);
  ir_erase(op);
}

static void deal_func(Ctx *cx, Func *f, bool nested) {
  Arena *a = &cx->scratch;
  uint32_t n = f->values.n;
  Op *loop = nested ? NULL : only_loop(f);
  bool group = ir_attr_i(ir_launch(f), AT_THREADS, 0) == HW_GROUP_THREADS;
  Deal d = {.f = f,
            .loop = loop,
            .known = n,
            .keyed = NEWN(a, bool, n),
            .row = NEWN(a, Value, n),
            .dealt = NEWN(a, Value, n),
            .lain = NEWN(a, Value, n)};
  if (loop)
    d.b = (Builder){.fn = f,
                    .region = f->body,
                    .before = loop,
                    .span = loop->span};
  Settling s = {.f = f, .dealt = loop && group && deals(&d)};
  ir_walk(f->body, settle, &s);
  if (s.dealt) ir_sweep(f);
}

bool pass_deal_keys(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    Others others = find_others(f);
    if (!others.n) continue;
    ArenaMark mark = arena_mark(&cx->scratch);
    deal_func(cx, f, others.nested);
    arena_reset(&cx->scratch, mark);
  }
  return true;
}
