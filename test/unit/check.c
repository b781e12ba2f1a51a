// The checker as a library: roles, layouts, ranges, specializations.
#include "frontend/check.h"

#include "expect.h"

static Unit *checked(Ctx *cx, const char *text) {
  Unit *u = fe_parse(cx, ctx_add_source(cx, "t.attn", text, strlen(text)));
  Buf b = {.arena = &cx->session};
  if (!fe_check(cx, u)) {
    diag_render(cx, (DiagStyle){.ascii = true}, &b);
    puts(b.at);
    EXPECT(false);
  }
  return u;
}

static Sym *index_named(const Decl *d, const char *name) {
  for (uint32_t i = 0; i < d->indices.n; i++)
    if (!strcmp(d->indices.at[i]->name, name)) return d->indices.at[i];
  return NULL;
}

static void roles(Ctx *cx) {
  Unit *u = checked(
      cx, "attention f<B, S, D: const {64}>(Q: bf16[B, S, D], w: f32[S, S])\n"
          "  -> (O: bf16[B, S, D], N: f32[B, S]) {\n"
          "  index b in B, q in S; index k in S where k <= q;\n"
          "  index d in D; index e in D;\n"
          "  let s = sum(d: Q[b, q, d] * Q[b, k, d]) + w[q, k];\n"
          "  O[b, q] = vec(e: sum(k: s * Q[b, k, e]));\n"
          "  N[b, q] = sum(k: s);\n}");
  const Decl *d = fe_program(u, "f");
  EXPECT(index_named(d, "b")->role == IX_PARALLEL);
  EXPECT(index_named(d, "k")->role == IX_KEY);
  EXPECT(index_named(d, "k")->domain != NULL);
  EXPECT(index_named(d, "d")->role == IX_VEC);
  EXPECT(index_named(d, "e")->role == IX_VEC);
  Range r = fe_range(d, index_named(d, "k")->domain);
  EXPECT(r.lo == 0 && r.hi == 1);
}

static void layouts(Ctx *cx) {
  Unit *u = checked(
      cx,
      "attention f<B, H, Sq: ragged(cu), Sk: ragged(len), D: const {64}>\n"
      "  (Q: bf16[B, Sq, H, D] layout ragged(Sq, by = cu), cu: i32[B + 1],\n"
      "   K: bf16[B, H, Sk, D] layout paged(table = pt, page = 16),\n"
      "   len: i32[B], pt: i32[B, P], W: bf16[B, H, D] layout(h, b, d))\n"
      "  -> (O: bf16[B, Sq, H, D] layout ragged(Sq, by = cu)) {\n"
      "  index b in B, q in Sq, h in H; index k in Sk;\n"
      "  O[b, q, h] = W[b, h] * sum(k: dot(Q[b, q, h], K[b, h, k]));\n}");
  const Decl *d = fe_program(u, "f");
  const Layout *q = d->params.at[0].layout, *k = d->params.at[2].layout;
  EXPECT(q->axis == 1 && q->batch_axis == 0 && q->by == d->params.at[1].sym);
  int64_t page;
  EXPECT(k->axis == 2 && k->batch_axis == 0 &&
         dim_is_const(d->dims, k->page, &page) && page == 16);
  EXPECT(k->table == d->params.at[4].sym && k->by == d->params.at[3].sym);
  const uint8_t *perm = d->params.at[5].layout->perm;
  EXPECT(perm[0] == 1 && perm[1] == 0 && perm[2] == 2);
  bool offsets;
  EXPECT(fe_ragged_by(d, index_named(d, "k")->dim, &offsets) == k->by);
  EXPECT(!offsets);
  EXPECT(fe_batch_index(d, index_named(d, "q")->dim) == index_named(d, "b"));
}

static void specializations(Ctx *cx) {
  Unit *u =
      checked(cx,
              "attention f<T: dtype {bf16, f16}, S, D: const {64, 128, 256},\n"
              "            E: const {64, 128}>(Q: T[S, D], V: T[S, E])\n"
              "  -> (O: T[S, E]) where D >= E, D % 128 == 0 | E == 64 {\n"
              "  index q in S; index k in S;\n"
              "  O[q] = sum(k: dot(Q[q], Q[k]) * V[k]);\n}");
  const Decl *d = fe_program(u, "f");
  FeBind *at, fixed[] = {{"D", 128, DT_NONE}, {"S", 7, DT_NONE}};
  uint32_t width, n = fe_specializations(cx, d, NULL, 0, &at, &width);
  EXPECT(n == 10 && width == 3);
  EXPECT(at[0].dtype == DT_BF16 && at[1].value == 64 && at[2].value == 64);
  n = fe_specializations(cx, d, fixed, 2, &at, &width);
  EXPECT(n == 4 && width == 4 && at[3].value == 7);
  EXPECT(!strcmp(at[3].name, "S"));
  fixed[0].value = 96;
  EXPECT(fe_specializations(cx, d, fixed, 1, &at, &width) == 0);
  EXPECT(cx->nerrors == 1);
  cx->nerrors = 0;
}

static void dtypes(Ctx *cx) {
  Unit *u =
      checked(cx,
              "attention f<T: dtype {bf16, f64}, S>(x: T[S]) -> (O: T[S]) {\n"
              "  index q in S;\n  O[q] = 2.0 * x[q];\n}");
  Decl *d = fe_program(u, "f");
  FeBind t = {"T", 0, DT_F64};
  const Stmt *s = d->body.at[1];
  EXPECT(s->expr->ty.dtype == DT_F32);
  EXPECT(fe_retype(cx, d, &t, 1));
  EXPECT(s->expr->ty.dtype == DT_F64);
  EXPECT(d->params.at[0].sym->ty.dtype == DT_F64);
}

static void states(Ctx *cx) {
  Unit *u = checked(
      cx,
      "recurrent f<B, T>(x: f32[B, T], inout S0: f32[B]) -> (O: f32[B, T]) {\n"
      "  index b in B;\n  state m: f32 = S0[b];\n  state n: f32 = 0.0;\n"
      "  step t {\n    m = m + x[b, t - 1];\n    n = n + m;\n"
      "    O[b, t] = n;\n  }\n}");
  const Decl *d = fe_program(u, "f");
  EXPECT(fe_state_inout(d, d->body.at[1]) == &d->params.at[1]);
  EXPECT(fe_state_inout(d, d->body.at[2]) == NULL);
  const Stmt *step = d->body.at[3];
  EXPECT(step->names.at[0].sym->role == IX_STEP);
  EXPECT(step->names.at[0].sym->dim == d->params.at[0].sym->ty.shape[1]);
  EXPECT(step->body.at[0]->expr->b->items.at[1].shifted);
  EXPECT(!step->body.at[0]->expr->b->items.at[0].shifted);
}

int main(void) {
  void (*const tests[])(Ctx *) = {roles, layouts, specializations, dtypes,
                                  states};
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    Ctx cx;
    ctx_init(&cx);
    tests[i](&cx);
    ctx_drop(&cx);
  }
  return verdict();
}
