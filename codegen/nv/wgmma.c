// wgmma: one block of inline assembly per chain along k, accumulators tied,
// waits that pass the accumulators through. The rules that keep ptxas from
// serializing: docs/gpu/ptxas.md.
#include "codegen/gpu/gpu.h"

#include <assert.h>
#include <stdio.h>

enum { M = 64, MAX_N = 256 };

static const char fence_text[] = "wgmma.fence.sync.aligned;";

// ---------------------------------------------------------------- descriptors
// A shared tile as an operand: constant descriptor bits besides the address,
// and what to add (in units of 16 bytes) for step k of 32 bytes. What varies is
// added up in the low half alone: of a sum of a wide product ptxas 13 forgets
// the high one (docs/gpu/ptxas.md).
typedef struct Desc {
  V value;               // i64
  uint32_t panel, rows;  // bytes of a panel row; rows of the tile
  bool trans;            // k runs along rows
  uint32_t k;            // elements of a step
} Desc;

static uint64_t bits_of(const Type *t, bool trans) {
  static const uint64_t kind[LY_COUNT] = {[LY_SW128] = 1,
                                          [LY_SW64] = 2,
                                          [LY_SW32] = 3};
  uint64_t panel = smem_panel_bytes(t);
  // The next 8 rows of a panel; the next panel, where columns are not k.
  uint64_t sbo = 8 * panel >> 4, lbo = trans ? t->ext[0] * panel >> 4 : 1;
  return kind[t->layout] << 62 | sbo << 32 | lbo << 16;
}

// from: the first row that is summed, of an operand whose rows are.
static Desc desc_of(Gpu *n, Tile s, const Type *t, bool trans, uint32_t from) {
  Cg *g = n->g;
  Desc d = {.panel = smem_panel_bytes(t),
            .rows = t->ext[0],
            .trans = trans,
            .k = 32 / (uint32_t)dtype_size(t->dtype)};
  uint64_t bits = bits_of(t, trans), high = bits >> 32 << 32;
  uint32_t low = (uint32_t)bits + ((s.base + from * d.panel) >> 4);
  V v = e_iadd(g, n->desc0, gpu_i32(n, low));
  if (s.var) v = e_iadd(g, v, s.var);
  v = LLVMBuildZExt(g->b, v, LLVMInt64TypeInContext(g->lc), "");
  d.value = LLVMBuildOr(g->b, v, gpu_i64(n, (int64_t)high), "");
  return d;
}

// Offset of k step s and of element `at` of the other axis (m or n).
static uint32_t desc_step(const Desc *d, uint32_t s, uint32_t at,
                          uint32_t size) {
  if (d->trans) {  // rows are k; columns are m or n
    uint32_t side = at * size / d->panel, in = at * size % d->panel;
    return (side * d->rows * d->panel + s * d->k * d->panel + in) >> 4;
  }
  uint32_t side = s * 32 / d->panel, in = s * 32 % d->panel;
  return (side * d->rows * d->panel + at * d->panel + in) >> 4;
}

// ---------------------------------------------------------------- text
typedef struct Chain {
  const Type *at, *bt;
  bool ta, tb, fresh;
  Desc a, b;
  const IrAttr *spans;  // columns that count, by steps of 16; NULL: all
  const V *areg;        // words of A, 4 a step; NULL: a descriptor
  uint32_t m0, n0, n, steps;
} Chain;

// Columns of a product: from, to.
typedef struct Cols {
  uint32_t from, to;
} Cols;

static uint32_t at_most(uint32_t x, uint32_t most) {
  return x < most ? x : most;
}

static bool is_empty(Cols c) {
  return c.from >= c.to;
}

// Those that step s adds to.
static Cols cols_of(const Chain *c, uint32_t s) {
  Cols all = {c->n0, c->n0 + c->n};
  if (!c->spans) return all;
  uint32_t from = (uint32_t)c->spans->list[2 * s];
  uint32_t to = (uint32_t)c->spans->list[2 * s + 1];
  // The instruction goes from one panel to the next where one ends.
  uint32_t panel = c->b.panel / (uint32_t)dtype_size(c->bt->dtype);
  if (c->tb && from < to && from / panel != (to - 1) / panel)
    from -= from % panel;
  return (Cols){from < all.from ? all.from : from, at_most(to, all.to)};
}

static const char *type_of(DType t) {
  switch (t) {
  case DT_BF16: return "bf16";
  case DT_F16: return "f16";
  case DT_F8E4M3: return "e4m3";
  case DT_F8E5M2: return "e5m2";
  default: return "tf32";
  }
}

static void step_text(Buf *t, const Chain *c, uint32_t s, uint32_t ra,
                      uint32_t rb, bool first) {
  uint32_t acc = c->n / 2, size = (uint32_t)dtype_size(c->bt->dtype);
  if (!c->areg)
    buf_printf(t, "add.s64 da, $%u, %u;\n", ra,
               desc_step(&c->a, s, c->m0, size));
  buf_printf(t, "add.s64 db, $%u, %u;\n", rb, desc_step(&c->b, s, c->n0, size));
  buf_printf(t, "wgmma.mma_async.sync.aligned.m64n%uk%u.f32.%s.%s {", c->n,
             32 / size, type_of(c->at->dtype), type_of(c->bt->dtype));
  for (uint32_t i = 0; i < acc; i++) buf_printf(t, "%s$%u", i ? "," : "", i);
  if (c->areg)
    buf_printf(t, "}, {$%u,$%u,$%u,$%u}, db", ra + 4 * s, ra + 4 * s + 1,
               ra + 4 * s + 2, ra + 4 * s + 3);
  else buf_str(t, "}, da, db");
  buf_printf(t, ", %s, 1, 1", c->fresh && first ? "p0" : "p1");
  if (size == 2 && !c->areg) buf_printf(t, ", %u", c->ta);
  if (size == 2) buf_printf(t, ", %u", c->tb);
  buf_str(t, ";\n");
}

static void chain_text(Buf *t, const Chain *c, uint32_t ra, uint32_t rb) {
  buf_str(t, "{\n.reg .pred p0, p1;\n.reg .b64 da, db;\n"
             "setp.ne.b32 p0, 0, 0;\nsetp.eq.b32 p1, 0, 0;\n");
  bool first = true;
  for (uint32_t s = 0; s < c->steps; s++) {
    if (is_empty(cols_of(c, s))) continue;
    step_text(t, c, s, ra, rb, first);
    first = false;
  }
  buf_char(t, '}');
}

static LLVMTypeRef floats(Gpu *n, uint32_t count) {
  LLVMTypeRef *t = NEWN(&n->g->cx->scratch, LLVMTypeRef, count);
  for (uint32_t i = 0; i < count; i++) t[i] = LLVMFloatTypeInContext(n->g->lc);
  return LLVMStructTypeInContext(n->g->lc, t, count, 0);
}

static void unpack(Gpu *n, V s, V *out, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    out[i] = LLVMBuildExtractValue(n->g->b, s, i, "");
}

// acc (n / 2 registers) of one 64 x n product; in: its old value.
static void emit_chain(Gpu *n, const Chain *c, V *acc) {
  Arena *ar = &n->g->cx->scratch;
  Buf text = {.arena = ar}, cons = {.arena = ar};
  uint32_t regs = c->n / 2, k = 0, na = c->areg ? 4 * c->steps : 1;
  V *args = NEWN(ar, V, regs + na + 2);
  for (uint32_t i = 0; i < regs; i++) buf_str(&cons, i ? ",=f" : "=f");
  for (uint32_t i = 0; !c->fresh && i < regs; i++) {
    buf_printf(&cons, ",%u", i);
    args[k++] = acc[i];
  }
  uint32_t ra = regs + k;
  for (uint32_t i = 0; i < na; i++) {
    buf_str(&cons, c->areg ? ",r" : ",l");
    args[k++] = c->areg ? c->areg[i] : c->a.value;
  }
  uint32_t rb = regs + k;
  buf_str(&cons, ",l,~{memory}");
  args[k++] = c->b.value;
  chain_text(&text, c, ra, rb);
  unpack(n, gpu_asm(n, floats(n, regs), text.at, cons.at, args, k), acc, regs);
}

// The first columns from `at` on with those that steps have in common with
// them.
static Cols common_cols(const Chain *c, uint32_t at) {
  Cols all = {UINT32_MAX, 0};
  for (uint32_t s = 0; s < c->steps; s++) {
    Cols x = cols_of(c, s);
    if (!is_empty(x) && x.from >= at && x.from < all.from) all = x;
  }
  for (uint32_t s = 0; s < c->steps; s++) {
    Cols x = cols_of(c, s);
    if (is_empty(x) || x.from >= all.to || x.to <= all.to) continue;
    all.to = x.to;
    s = UINT32_MAX;  // from the start again
  }
  return all;
}

// Steps that have columns in common are a chain of products of one shape: with
// others on the same sums ptxas waits for each. Columns of no step are what
// they were, 0 of a sum that begins.
static void emit_chains(Gpu *n, const Chain *all, V *acc) {
  V zero = LLVMConstReal(LLVMFloatTypeInContext(n->g->lc), 0);
  for (uint32_t i = 0; all->spans && all->fresh && i < all->n / 2; i++)
    acc[i] = zero;
  Chain c = *all;
  for (Cols x = common_cols(all, 0); !is_empty(x); x = common_cols(all, x.to)) {
    c.n0 = x.from, c.n = x.to - x.from;
    emit_chain(n, &c, acc + (c.n0 - all->n0) / 2);
  }
}

// ---------------------------------------------------------------- copies
// Does v add to param?
static bool adds_to(const Func *f, Value v, Value param) {
  const Op *op = ir_def(f, v);
  if (!op) return false;
  if (op->code == OP_WGMMA)
    return op->nargs > 2 &&
           (op->args[2] == param || adds_to(f, op->args[2], param));
  bool found = false;
  for (uint32_t i = 0; i < op->nres && !found; i++) {
    if (op->res[i] != v) continue;
    if (op->code == OP_WG_WAIT) found = adds_to(f, op->args[i], param);
    for (uint32_t k = 0; op->code == OP_IF && k < op->nregions; k++)
      found |= adds_to(f, op->regions[k]->last->args[i], param);
  }
  return found;
}

// Does the op begin a sum of several products with what a turn of a loop has
// left, which the turn replaces? Both are in flight together: one of them is
// copied. LLVM would do that between the products that add up.
static bool copies_sum(const Func *f, const Op *op) {
  Value sum = op->args[2];
  const Region *r = ir_info(f, sum)->region;
  if (ir_def(f, sum) || !r || !r->parent || r->parent->code != OP_FOR)
    return false;
  const Op *more = op->next;
  while (more && !ir_mentions(more, op->res[0])) more = more->next;
  if (!more || more->code != OP_WGMMA) return false;
  for (uint32_t i = 1; i < r->params.n; i++)
    if (r->params.at[i] == sum) return !adds_to(f, r->last->args[i - 1], sum);
  return false;
}

static void copy_words(Gpu *n, Frag *r) {
  LLVMTypeRef f32 = LLVMFloatTypeInContext(n->g->lc);
  for (uint32_t i = 0; i < r->n; i++)
    r->w[i] = gpu_asm(n, f32, "mov.b32 $0, $1;", "=f,f", &r->w[i], 1);
}

// ---------------------------------------------------------------- constants
// Made of coordinates and constants alone, so that words may be constants.
static bool of_coordinates(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  if (!op) return false;
  bool elem = op_info(op->code)->flags & OPF_ELEM;
  if (!elem && op->code != OP_CONST && op->code != OP_COORD &&
      op->code != OP_SPLAT && op->code != OP_BCAST)
    return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!of_coordinates(f, op->args[i])) return false;
  return true;
}

// ptxas 13 moves a constant to its register behind the product that reads it
// there as A. A bit that is 0 in every launch, the sign of the tasks' number,
// hides that it is constant.
static V *hide_constants(Gpu *n, const Op *op, const Frag *a) {
  LLVMBuilderRef b = n->g->b;
  LLVMTypeRef i64 = LLVMInt64TypeInContext(n->g->lc), i32 = gpu_i32t(n);
  V *w = NEWN(&n->g->cx->scratch, V, a->n);
  memcpy(w, a->w, a->n * sizeof *w);
  if (!of_coordinates(n->f, op->args[0])) return w;
  V tasks = gpu_param(n, n->ntasks_at, i64);
  V zero = LLVMBuildLShr(b, tasks, LLVMConstInt(i64, 63, 0), "");
  zero = LLVMBuildTrunc(b, zero, i32, "");
  for (uint32_t i = 0; i < a->n; i++) {
    LLVMTypeRef t = LLVMTypeOf(w[i]);
    V word = LLVMBuildOr(b, LLVMBuildBitCast(b, w[i], i32, ""), zero, "");
    w[i] = LLVMBuildBitCast(b, word, t, "");
  }
  return w;
}

// Does the product add to zeros?
static bool begins(const Gpu *n, const Op *op) {
  double k;
  return op->nargs == 2 ||
         (op->nargs > 3 && ir_const_value(n->f, op->args[2], &k) && k == 0);
}

// ---------------------------------------------------------------- ops
// The most columns of one product: ptxas gives an instruction no more registers
// than a thread of the launch has, whatever its role has, and wants some beside
// the sums.
static uint32_t widest(const Gpu *n, const Type *sums) {
  enum { OTHER = 26 };
  uint32_t regs = n->gpu.regs / n->out->threads / n->out->occupancy;
  bool fits = at_most(sums->ext[1], MAX_N) / 2 + OTHER <= regs;
  return fits ? MAX_N : MAX_N / 2;
}

// Of a sum of several products LLVM would write the last ones' zeros behind the
// first one, and ptxas has to make another fence then (C7519).
static void settle(Gpu *n, Frag *r) {
  Buf cons = {.arena = &n->g->cx->scratch};
  for (uint32_t i = 0; i < r->n; i++) buf_str(&cons, i ? ",=f" : "=f");
  for (uint32_t i = 0; i < r->n; i++) buf_printf(&cons, ",%u", i);
  unpack(n, gpu_asm(n, floats(n, r->n), "", cons.at, r->w, r->n), r->w, r->n);
}

void nv_wgmma(Gpu *n, const Op *op) {
  const Type *at = gpu_arg_type(n, op, 0), *bt = gpu_arg_type(n, op, 1);
  bool regs = at->kind == TK_FRAG;
  Chain c = {.at = at,
             .bt = bt,
             .fresh = begins(n, op),
             .tb = ir_attr_i(op, AT_TRANS, 0),
             .ta = ir_attr_i(op, AT_TRANSA, 0),
             .spans = ir_attr(op, AT_SPANS)};
  Frag r = gpu_new(n, gpu_res_type(n, op));
  const Type *ct = gpu_res_type(n, op);
  uint32_t k = at->ext[c.ta ? 0 : 1];
  c.steps = k * (uint32_t)dtype_size(at->dtype) / 32;
  uint32_t from = (uint32_t)ir_attr_i(op, AT_POS, 0);
  c.b = desc_of(n, gpu_operand_b(n, op), bt, c.tb, from);
  if (!regs) c.a = desc_of(n, gpu_operand_a(n, op), at, c.ta, 0);
  if (!c.fresh) memcpy(r.w, gpu_frag(n, op->args[2])->w, r.n * sizeof *r.w);
  if (!c.fresh && copies_sum(n->f, op)) copy_words(n, &r);
  uint32_t blocks = ct->ext[0] / M, per_m = ct->ext[1] / 2;
  uint32_t most = widest(n, ct);
  if (!c.fresh && at_most(ct->ext[1], MAX_N) > most) settle(n, &r);
  const V *words = op == n->fenced ? n->fenced_words
                   : regs ? hide_constants(n, op, gpu_frag(n, op->args[0]))
                          : NULL;
  for (uint32_t i = 0; i < blocks; i++)
    for (uint32_t n0 = 0; n0 < ct->ext[1]; n0 += c.n) {
      c.m0 = M * i, c.n0 = n0, c.n = at_most(ct->ext[1] - n0, most);
      c.areg = regs ? words + i * 4 * c.steps : NULL;
      emit_chains(n, &c, r.w + i * per_m + n0 / 2);
    }
  gpu_define(n, op->res[0], r);
}

// What the next product adds to, if it is computed right in front of the fence
// and for it alone, else 0. Of products of registers ptxas orders that by
// itself, and more order costs LLVM registers.
static Value made_for(const Gpu *n, const Op *fence) {
  const Op *next = fence->next, *made = fence->prev;
  bool sum = next && made && next->code == OP_WGMMA && next->nargs > 2 &&
             made->nres == 1 && made->res[0] == next->args[2] &&
             gpu_arg_type(n, next, 0)->kind == TK_SMEM &&
             (op_info(made->code)->flags & OPF_ELEM);
  return sum && ir_count_uses(n->f, made->res[0]) == 1 ? made->res[0] : 0;
}

// The product behind the fence that adds a constant's to the first one's, or
// NULL.
static const Op *constant_behind(const Gpu *n, const Op *fence) {
  const Op *first = fence->next, *op = first ? first->next : NULL;
  bool chain = op && first->code == OP_WGMMA && op->code == OP_WGMMA &&
               op->nargs > 2 && op->args[2] == first->res[0];
  return chain && gpu_arg_type(n, op, 0)->kind == TK_FRAG &&
                 of_coordinates(n->f, op->args[0])
             ? op
             : NULL;
}

// Words that hide constants are made in front of the fence, equal ones once:
// they pass through it.
static void fence_constant(Gpu *n, const Op *op) {
  enum { MOST = 64 };
  const Frag *a = gpu_frag(n, op->args[0]);
  V *all = hide_constants(n, op, a), w[MOST];
  uint32_t at[MOST], count = 0;
  if (a->n > MOST) return;
  for (uint32_t i = 0; i < a->n; i++) {
    for (at[i] = 0; at[i] < i && a->w[at[i]] != a->w[i];) at[i]++;
    at[i] = at[i] < i ? at[at[i]] : count;
    if (at[i] == count) w[count++] = all[i];
  }
  Buf cons = {.arena = &n->g->cx->scratch};
  LLVMTypeRef *t = NEWN(&n->g->cx->scratch, LLVMTypeRef, count);
  for (uint32_t i = 0; i < count; i++) t[i] = LLVMTypeOf(w[i]);
  for (uint32_t i = 0; i < count; i++) buf_str(&cons, i ? ",=r" : "=r");
  for (uint32_t i = 0; i < count; i++) buf_printf(&cons, ",%u", i);
  buf_str(&cons, ",~{memory}");
  LLVMTypeRef s =
      count == 1 ? t[0] : LLVMStructTypeInContext(n->g->lc, t, count, 0);
  V all_of = gpu_asm(n, s, fence_text, cons.at, w, count);
  if (count == 1) w[0] = all_of;
  else unpack(n, all_of, w, count);
  for (uint32_t i = 0; i < a->n; i++) all[i] = w[at[i]];
  n->fenced = op;
  n->fenced_words = all;
}

// Registers of a sum are written before the fence. LLVM would write them behind
// it, and ptxas has to make another fence then (C7519): they pass through it.
void nv_wg_fence(Gpu *n, const Op *op) {
  Value sum = made_for(n, op);
  const Op *constant = sum ? NULL : constant_behind(n, op);
  if (constant) {
    fence_constant(n, constant);
    return;
  }
  if (!sum) {
    gpu_call(n, "llvm.nvvm.wgmma.fence.sync.aligned", NULL, 0);
    return;
  }
  Frag *r = gpu_frag(n, sum);
  Buf cons = {.arena = &n->g->cx->scratch};
  for (uint32_t i = 0; i < r->n; i++) buf_str(&cons, i ? ",=f" : "=f");
  for (uint32_t i = 0; i < r->n; i++) buf_printf(&cons, ",%u", i);
  buf_str(&cons, ",~{memory}");
  unpack(n, gpu_asm(n, floats(n, r->n), fence_text, cons.at, r->w, r->n), r->w,
         r->n);
}

void nv_wg_commit(Gpu *n, const Op *op) {
  (void)op;
  gpu_call(n, "llvm.nvvm.wgmma.commit_group.sync.aligned", NULL, 0);
}

// What becomes readable passes through the wait, so no use moves above it;
// zeros that no product made stay zeros.
void nv_wg_wait(Gpu *n, const Op *op) {
  Arena *ar = &n->g->cx->scratch;
  Buf cons = {.arena = ar};
  char text[64];
  uint32_t count = 0, k = 0;
  snprintf(text, sizeof text, "wgmma.wait_group.sync.aligned %lld;",
           (long long)ir_attr_i(op, AT_PENDING, 0));
  for (uint32_t i = 0; i < op->nargs; i++) count += gpu_frag(n, op->args[i])->n;
  V *w = NEWN(ar, V, count + 1), *all = NEWN(ar, V, count + 1);
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Frag *f = gpu_frag(n, op->args[i]);
    memcpy(all + k, f->w, f->n * sizeof *all);
    k += f->n;
  }
  k = count, count = 0;
  for (uint32_t i = 0; i < k; i++)
    if (!LLVMIsConstant(all[i])) w[count++] = all[i];
  for (uint32_t i = 0; i < count; i++) buf_str(&cons, i ? ",=f" : "=f");
  for (uint32_t i = 0; i < count; i++) buf_printf(&cons, ",%u", i);
  buf_str(&cons, count ? ",~{memory}" : "~{memory}");
  LLVMTypeRef t = count ? floats(n, count) : LLVMVoidTypeInContext(n->g->lc);
  V s = gpu_asm(n, t, text, cons.at, w, count);
  if (count) unpack(n, s, w, count);
  for (uint32_t i = 0; i < k; i++)
    if (!LLVMIsConstant(all[i])) all[i] = *w++;
  for (uint32_t i = 0; i < op->nres; i++) {
    Frag f = *gpu_frag(n, op->args[i]);
    f.w = all;
    all += f.n;
    gpu_define(n, op->res[i], f);
  }
}
