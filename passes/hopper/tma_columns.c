// tma_columns: what each step of a loop over keys reads of memory for its
// columns is copied to shared memory, by the producer, steps ahead.
//
//   %k = sfill(%K, %b, %g, %i, %z) {tile = [2, 3]}
//   %s = wgmma(%q, %k)
//   %c = add(splat(%i), coord() {pos = 1})
//   %f = gload(%F, %b, %h, %c) : frag<64xf32,acc.1>
//   ..
//   %x = fma(%s, %a, bcast(%f))
// to
//   %k = sfill(%K, %b, %g, %i, %z) {tile = [2, 3]}
//   %t = sfill(%F, %b, %h, %i) {tile = [1, 2]} : smem<1x64xf32,row>
//   %s = wgmma(%q, %k)
//   ..
//   %f = sload(%t) : frag<64xf32,acc.1>
//   %x = fma(%s, %a, bcast(%f))
//
// Threads that compute then wait for no load, hand nothing round, and have the
// columns in registers only where they are used. Done where wherever a tile of
// keys is filled such columns of the same tensor are read, so that each step
// has one strip; not to columns of few steps (documents in steps that mask),
// nor to what depends on the group or is not made of scalars, nor to what the
// kernel stores; what phases before have made is an input, whose rows begin at
// multiples of 16 bytes then (`padded`), in all phases. Level frag; sm_90a.
// Needs: pipeline_loop; runs before warp_specialize. Run dce afterwards. Tests:
// test/passes/tma_columns/.
#include "ir/target.h"
#include "passes/hopper/columns_made.h"
#include "passes/hopper/rings.h"
#include "passes/support/outline.h"

#include "ir/layout.h"
#include "ir/multiple.h"

enum { MAX_STRIPS = 32 };

// Columns read for a tile of keys.
typedef struct Strip {
  Op *load, *keys;
  Op *fill;  // that the producer does instead
} Strip;

typedef struct Strips {
  Func *f;
  Arena *arena;
  const Rings *rings;
  Value tensor;
  int ring;  // of the tiles of keys, -1: none yet
  Strip at[MAX_STRIPS];
  uint32_t n, keys;  // strips, fills of the ring
  bool ok;
} Strips;

// ---------------------------------------------------------------- indices
// v is a scalar plus the column's number: the scalars that are added up, each
// one to *of; false if it is not.
typedef struct Origin {
  Value of[4];
  uint32_t n;
  bool column;
} Origin;

static bool origin_of(const Func *f, Value v, Origin *o) {
  const Op *op = ir_def(f, v);
  if (!op) return false;
  switch (op->code) {
  case OP_COORD:
    if (o->column || ir_attr_i(op, AT_POS, 0) != 1) return false;
    return o->column = true;
  case OP_SPLAT:
    if (o->n == sizeof o->of / sizeof *o->of) return false;
    o->of[o->n++] = op->args[0];
    return true;
  case OP_ADD:
    return origin_of(f, op->args[0], o) && origin_of(f, op->args[1], o);
  default: return false;
  }
}

// The index of the load that varies with the columns, 0: none, or not so.
static uint32_t column_index(const Func *f, const Op *load, Origin *o) {
  uint32_t at = 0;
  for (uint32_t i = 1; i < load->nargs; i++) {
    if (ir_type(f, load->args[i])->kind != TK_FRAG) continue;
    *o = (Origin){.n = 0};
    if (at || !origin_of(f, load->args[i], o) || !o->column) return 0;
    at = i;
  }
  return at;
}

// ---------------------------------------------------------------- candidates
// Slots begin where the copy engine can write.
static Type strip_type(const Type *columns) {
  uint32_t n = HW_COPY_ALIGN / (uint32_t)dtype_size(columns->dtype);
  return type_smem(columns->dtype, 1, 1, (columns->ext[0] + n - 1) / n * n,
                   LY_ROW);
}

static bool is_columns(const Func *f, const Op *op) {
  const Type *t = op->code == OP_GLOAD ? ir_type(f, op->res[0]) : NULL;
  if (t && ir_type(f, op->args[0])->quads) return false;
  return t && t->kind == TK_FRAG && t->slice == SLICE_COL && !t->partial &&
         t->layout == LY_ACC && op->nargs > 2 &&
         op->nargs <= 1 + HW_COPY_AXES && dtype_size(t->dtype) <= 4 &&
         strip_type(t).ext[1] <= HW_COPY_COLUMNS &&
         (ir_is_input(f, op->args[0]) || !ir_is_stored(f->body, op->args[0]));
}

// Scalars that the producer can make, for all groups.
static bool can_make(const Strips *s, Value v) {
  const Op *op = ir_def(s->f, v);
  if (s->rings->wanted[v] || ir_type(s->f, v)->kind == TK_TENSOR) return true;
  if (s->rings->grouped[v] || ir_type(s->f, v)->kind != TK_ELEM) return false;
  if (!op || op->nregions) return true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!can_make(s, op->args[i])) return false;
  return true;
}

// Is v the scalar x, or x and where a sequence begins?
static bool begins_at(const Func *f, Value v, Value x) {
  const Op *op = ir_def(f, v);
  return v == x ||
         (op && op->code == OP_ADD && (op->args[0] == x || op->args[1] == x));
}

// The tile of keys of the same step: filled in front of the load, in its
// region, at a coordinate that is the first of the columns, of a sequence where
// keys are packed.
static Op *keys_of(const Strips *s, const Op *load, const Origin *o) {
  for (Op *op = load->prev; op; op = op->prev) {
    int ring = op->code == OP_SFILL ? hop_rings_of(s->rings, op) : -1;
    if (ring < 0 || !s->rings->rings[ring].streams ||
        s->rings->rings[ring].strip || (s->ring >= 0 && ring != s->ring))
      continue;
    for (uint32_t i = 1; i < op->nargs; i++)
      for (uint32_t k = 0; k < o->n; k++)
        if (begins_at(s->f, op->args[i], o->of[k])) return op;
  }
  return NULL;
}

// A strip begins at whole chunks of 16 bytes, as where its keys do; on an H100
// a box at other columns is an illegal instruction.
static bool begins_whole(const Strips *s, const Op *load, const Op *keys,
                         const Origin *o) {
  int64_t size = (int64_t)dtype_size(ir_type(s->f, load->res[0])->dtype);
  for (uint32_t k = 0; k < o->n; k++) {
    bool own = ir_multiple(s->f, o->of[k]) * size % HW_SMEM_WORDS == 0;
    for (uint32_t i = 1; i < keys->nargs; i++) own |= keys->args[i] == o->of[k];
    if (!own) return false;
  }
  return true;
}

// Has a side of the branch a result that is made of those?
static bool yields_one(const Op *op, const bool *made) {
  for (uint32_t i = 0; i < op->nregions; i++) {
    const Op *yield = op->regions[i]->last;
    for (uint32_t k = 0; op->code == OP_IF && k < yield->nargs; k++)
      if (made[yield->args[k]]) return true;
  }
  return false;
}

// Is a number of each row made of what is loaded, or what the products behind
// are pinned in front of? A strip goes back behind that. In front of the steps
// it may cost more.
static bool ends_well(const Strips *s, const Op *load) {
  const Op *around = load->parent->parent;
  if (!around || around->code != OP_FOR || !around->nres) return true;
  bool *made = NEWN(s->arena, bool, s->f->values.n);
  made[load->res[0]] = true;
  for (const Op *op = load->next; op; op = op->next) {
    bool of = yields_one(op, made);
    for (uint32_t i = 0; i < op->nargs; i++) of |= made[op->args[i]];
    for (uint32_t i = 0; i < op->nres; i++) made[op->res[i]] = of;
    bool row =
        op->code == OP_FREDUCE && ir_type(s->f, op->res[0])->slice == SLICE_ROW;
    if (of && (row || op->code == OP_PIN)) return true;
  }
  return false;
}

static void find(void *data, Op *op) {
  Strips *s = data;
  Origin o;
  if (!is_columns(s->f, op) || op->args[0] != s->tensor) return;
  uint32_t at = column_index(s->f, op, &o);
  Op *keys = at ? keys_of(s, op, &o) : NULL;
  if (!keys) return;
  for (uint32_t i = 0; i < s->n; i++)
    if (s->at[i].keys == keys) s->ok = false;
  for (uint32_t i = 1; i < op->nargs; i++)
    if (i != at && !can_make(s, op->args[i])) s->ok = false;
  for (uint32_t i = 0; i < o.n; i++)
    if (!can_make(s, o.of[i])) s->ok = false;
  if (s->n == MAX_STRIPS || !s->ok || !begins_whole(s, op, keys, &o) ||
      !ends_well(s, op)) {
    s->ok = false;
    return;
  }
  s->ring = hop_rings_of(s->rings, keys);
  s->at[s->n++] = (Strip){.load = op, .keys = keys};
}

static void count_keys(void *data, Op *op) {
  Strips *s = data;
  s->keys += op->code == OP_SFILL && hop_rings_of(s->rings, op) == s->ring;
}

// ---------------------------------------------------------------- rewriting
static Value sum_of(Builder *b, const Origin *o) {
  Value v = o->n ? o->of[0] : ir_const_i(b, DT_I32, 0);
  for (uint32_t i = 1; i < o->n; i++) v = ir_2(b, OP_ADD, v, o->of[i]);
  return v;
}

// Behind the keys' fill and what the load's scalars are made by.
static Op *place_of(const Strips *s, const Strip *x, const Origin *o) {
  Op *last = x->keys;
  for (Op *op = x->keys; op != x->load; op = op->next)
    for (uint32_t i = 0; i < op->nres; i++) {
      for (uint32_t k = 1; k < x->load->nargs; k++)
        if (x->load->args[k] == op->res[i] &&
            ir_type(s->f, op->res[i])->kind == TK_ELEM)
          last = op;
      for (uint32_t k = 0; k < o->n; k++)
        if (o->of[k] == op->res[i]) last = op;
    }
  return last->next;
}

static void put_fill(const Strips *s, Strip *x) {
  Origin o;
  const Op *load = x->load;
  uint32_t at = column_index(s->f, load, &o);
  Op *where = place_of(s, x, &o);
  Builder b = {.fn = s->f,
               .region = where->parent,
               .before = where,
               .span = load->span};
  Value args[MAX_AXES + 1];
  for (uint32_t i = 0; i < load->nargs; i++)
    args[i] = i == at ? sum_of(&b, &o) : load->args[i];
  int64_t column = (int64_t)at - 1, row = column ? column - 1 : 1;
  int64_t pos[] = {row, column};
  IrAttr tile = attr_list(AT_TILE, pos, 2);
  Type strip = strip_type(ir_type(s->f, load->res[0]));
  x->fill = ir_op(&b, OP_SFILL, args, load->nargs, &tile, 1, &strip, 1, 0);
}

// ---------------------------------------------------------------- readers
// What is made of the columns op by op and has no value for each row: each
// reader makes it remat, so that nothing lives from one to the next.
typedef struct Remake {
  const Strips *s;
  const Strip *x;
  bool *soft;     // by value: so made
  Vec(Op *) ops;  // those that make them
  Vec(Op *) readers;
} Remake;

static bool reads(const Remake *m, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++)
    if (m->soft[op->args[i]]) return true;
  return false;
}

static bool is_soft(const Remake *m, const Op *op) {
  if (op->nres != 1 || op->nregions) return false;
  const Type *t = ir_type(m->s->f, op->res[0]);
  bool slice = t->kind == TK_FRAG && t->slice == SLICE_COL && !t->partial;
  return op->code == OP_BCAST || (slice && op_info(op->code)->flags & OPF_ELEM);
}

static void find_readers(void *data, Op *op) {
  Remake *m = data;
  if (!reads(m, op)) return;
  if (!is_soft(m, op)) {
    vec_push(m->s->arena, &m->readers, op);
    return;
  }
  m->soft[op->res[0]] = true;
  vec_push(m->s->arena, &m->ops, op);
}

static Value remade(Remake *m, Builder *b, Value v) {
  const Op *op = ir_def(m->s->f, v);
  if (!m->soft[v]) return v;
  const Type t = *ir_type(m->s->f, v);
  if (op == m->x->load)
    return ir_op(b, OP_SLOAD, m->x->fill->res, 1, NULL, 0, &t, 1, 0)->res[0];
  Value args[4] = {0};
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = remade(m, b, op->args[i]);
  return ir_op(b, op->code, args, op->nargs, op->attrs, op->nattrs, &t, 1, 0)
      ->res[0];
}

static void put_loads(const Strips *s, const Strip *x) {
  Remake m = {.s = s, .x = x, .soft = NEWN(s->arena, bool, s->f->values.n)};
  m.soft[x->load->res[0]] = true;
  ir_walk(s->f->body, find_readers, &m);
  for (uint32_t i = 0; i < m.readers.n; i++) {
    Op *op = m.readers.at[i];
    Builder b = {.fn = s->f,
                 .region = op->parent,
                 .before = op,
                 .span = op->span};
    Value args[256];
    for (uint32_t k = 0; k < op->nargs; k++)
      args[k] = remade(&m, &b, op->args[k]);
    for (uint32_t k = 0; k < op->nargs; k++) op->args[k] = args[k];
  }
  for (uint32_t i = m.ops.n; i-- > 0;) ir_erase(m.ops.at[i]);
  ir_erase(x->load);
}

// Do the rings of what steps read have the stages that they had, with those of
// the strips?
static bool still_fits(const Strips *s, const Target *t) {
  Rings now;
  if (!hop_rings_plan(&now, s->f, t)) return false;
  for (uint32_t i = 0; i < s->rings->nrings; i++) {
    const Ring *old = &s->rings->rings[i];
    if (!old->site || !old->streams) continue;
    if (now.rings[hop_rings_of(&now, old->site)].stages < old->stages)
      return false;
  }
  return now.apart == s->rings->apart && now.drains == s->rings->drains &&
         now.lent == s->rings->lent;
}

static void see_columns(void *data, Op *op) {
  Strips *s = data;
  s->n += is_columns(s->f, op) && op->args[0] == s->tensor;
}

// Whether columns of the tensor are read at all: to plan rings takes long.
static bool has_columns(Func *f, Value tensor) {
  Strips s = {.f = f, .tensor = tensor};
  ir_walk(f->body, see_columns, &s);
  return s.n > 0;
}

static void of_tensor(Func *f, Arena *a, const Target *t, Value tensor) {
  Rings rings;
  if (ir_has_steps(f) || !has_columns(f, tensor) ||
      !hop_rings_plan(&rings, f, t))
    return;
  Strips s = {.f = f,
              .arena = a,
              .rings = &rings,
              .tensor = tensor,
              .ring = -1,
              .ok = true};
  ir_walk(f->body, find, &s);
  if (!s.ok || !s.n) return;
  ir_walk(f->body, count_keys, &s);
  if (s.keys != s.n) return;
  for (uint32_t i = 0; i < s.n; i++) put_fill(&s, &s.at[i]);
  bool fits = still_fits(&s, t);
  for (uint32_t i = 0; i < s.n; i++) {
    if (fits) put_loads(&s, &s.at[i]);
    else ir_erase(s.at[i].fill);
  }
}

// Rows of what phases in front have made, of which columns are read, begin at
// multiples of 16 bytes in all phases: strips can be copied. Code for tensors
// of any strides finds them there too, so that kernels without strips are the
// same text.
static void see_columns_made(void *data, Op *op) {
  Func *f = data;
  bool strip = op->code == OP_SFILL && ir_type(f, op->res[0])->ext[0] == 1;
  if (!strip && !is_columns(f, op)) return;
  Type *t = &f->values.at[op->args[0]].type;
  int64_t row = dim_divisor(&f->mod->dims, t->size[t->n - 1]);
  t->padded |= row * (int64_t)dtype_size(t->dtype) % HW_SMEM_WORDS != 0;
}

static void pad_rows(const Module *m, Func *f) {
  const char *program = outline_last(f)->name;
  ir_walk(f->body, see_columns_made, f);
  for (uint32_t i = 0; i < f->params.n; i++) {
    Type *own = &f->values.at[f->params.at[i].v].type;
    if (f->params.at[i].role != PR_SHARED) own->padded = false;
    for (uint32_t k = 0; own->padded && k < m->funcs.n; k++) {
      Func *g = m->funcs.at[k];
      if (i < g->params.n && ir_is_phase(g, program))
        g->values.at[g->params.at[i].v].type.padded = true;
    }
  }
}

bool pass_tma_columns(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    pad_rows(m, f);
    for (uint32_t k = 0; !opt->strided && k < f->params.n; k++)
      if (ir_type(f, f->params.at[k].v)->kind == TK_TENSOR)
        of_tensor(f, &cx->scratch, opt->target, f->params.at[k].v);
    if (f->body->first && !opt->strided) hop_columns_made(f, opt->target);
    pad_rows(m, f);
  }
  return true;
}
