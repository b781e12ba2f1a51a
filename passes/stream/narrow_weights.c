// narrow_weights: weights that multiply 8-bit values are f16 where bodies for
// few rows widen these as they read them.
//
//   before  %x = dot(%q, %k)                     after   the same, but
//           %r = ref(%m1)
//           %n = neg(mul(%r, %c))
//           %e = exp2(fma(%x, %c, %n))
//           %p = cast(%e) {to = bf16}                    %p = cast(%e) {to = f16}
//           %o = dot(%p, %v) {over = [k]}
//           yield(%x, .., %o)
//
// Two 8-bit floats become f16 by one instruction, bf16 by four. A weight of a
// frame is at most 2^8 (passes/tile/loop.c: a row's reference lags behind its
// largest score by no more), and one of the row's is 1 at least in the frame of
// its end: f16 has three bits more than bf16 of all that is 2^-14 of that, and
// is off by 2^-25 of it below. Without a frame, or for other functions of
// scores, weights may be of any size: they stay.
//
// Level stream, for sm_90a's bodies of rows that one warp has; needs exp2.
// Tests: test/passes/narrow_weights.
#include "ir/target.h"
#include "passes/pass.h"
#include "passes/support/range.h"

typedef struct Frame {
  Func *f;
  const Op *pass;
  Ranges ranges;
} Frame;

static const Op *made(const Frame *x, Value v, OpCode code) {
  const Op *op = ir_def(x->f, v);
  return op && op->code == code ? op : NULL;
}

// The number of the gauge that v is the reference of, or -1.
static int gauge_of(const Frame *x, Value v) {
  const Op *ref = made(x, v, OP_REF);
  const IrAttr *gauge = ir_attr(x->pass, AT_GAUGE);
  const Region *local = x->pass->regions[1];
  for (uint32_t i = 0; ref && gauge && i < gauge->n; i++)
    if (ref->args[0] == local->params.at[gauge->list[i]])
      return (int)gauge->list[i];
  return -1;
}

static bool is_factor(Frame *x, Value c) {
  uint32_t key = (uint32_t)ir_attr_i(x->pass, AT_AXIS, 0);
  return !type_has_axis(ir_type(x->f, c), key) &&
         range_of(&x->ranges, c).lo >= 0;
}

// exp2((s - ref(m)) * c), where s is what m is the maximum of.
static bool is_in_frame(Frame *x, Value e) {
  const Op *exp = made(x, e, OP_EXP2);
  const Op *fma = exp ? made(x, exp->args[0], OP_FMA) : NULL;
  const Op *neg = fma ? made(x, fma->args[2], OP_NEG) : NULL;
  const Op *mul = neg ? made(x, neg->args[0], OP_MUL) : NULL;
  const Op *yield = x->pass->regions[1]->last;
  for (uint32_t i = 0; mul && i < 4; i++) {
    Value s = fma->args[i % 2], c = fma->args[1 - i % 2];
    int g = gauge_of(x, mul->args[i / 2]);
    if (g >= 0 && mul->args[1 - i / 2] == c && yield->args[g] == s)
      return is_factor(x, c);
  }
  return false;
}

static bool is_eight(const Type *t) {
  return dtype_is_float(t->dtype) && dtype_size(t->dtype) == 1;
}

static void narrow(Frame *x, const Op *dot) {
  uint32_t key = (uint32_t)ir_attr_i(x->pass, AT_AXIS, 0);
  const IrAttr *over = dot->code == OP_DOT ? ir_attr(dot, AT_OVER) : NULL;
  if (!over || over->n != 1 || over->list[0] != key) return;
  for (uint32_t i = 0; i < 2; i++) {
    Op *cast = ir_def(x->f, dot->args[i]);
    bool weights = is_eight(ir_type(x->f, dot->args[1 - i])) && cast &&
                   cast->code == OP_CAST &&
                   ir_type(x->f, cast->res[0])->dtype == DT_BF16 &&
                   ir_count_uses(x->f, cast->res[0]) == 1;
    if (!weights || !is_in_frame(x, cast->args[0])) continue;
    ir_set_attr(x->f, cast, attr_i(AT_TO, DT_F16));
    ir_info(x->f, cast->res[0])->type.dtype = DT_F16;
  }
}

static void visit(void *data, Op *op) {
  Frame *x = data;
  if (op->code != OP_KREDUCE) return;
  x->pass = op;
  for (const Op *o = op->regions[1]->first; o; o = o->next) narrow(x, o);
}

bool pass_narrow_weights(Ctx *cx, Module *m, const PassOpt *opt) {
  if (!opt->fewest || !opt->target->gpu.hopper) return true;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Frame x = {.f = m->funcs.at[i]};
    range_init(&x.ranges, x.f, &cx->scratch);
    ir_walk(x.f->body, visit, &x);
  }
  return true;
}
