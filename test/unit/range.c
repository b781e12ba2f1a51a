// unit-range FILE.tir: the range of each value that has a name (range.h), and
// what it can be (absval.h). Those whose names begin with `lost`, `huge` and
// `any` are taken for -inf, +inf, and whatever there is.
#include "ir/core/ctx.h"
#include "passes/support/absval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void replace(AbsMap *m, const Func *f, Value v) {
  const char *name = ir_info(f, v)->hint;
  if (!name) return;
  Abs any = {-INFINITY, INFINITY, true, true, true};
  if (!strncmp(name, "lost", 4)) absval_put(m, v, absval_exactly(-INFINITY));
  if (!strncmp(name, "huge", 4)) absval_put(m, v, absval_exactly(INFINITY));
  if (!strncmp(name, "any", 3)) absval_put(m, v, any);
}

static void print(AbsMap *m, const Func *f, Value v) {
  const char *name = ir_info(f, v)->hint;
  if (!name) return;
  Range r = range_of(m->ranges, v);
  Abs a = absval_value(m, v);
  printf("%s: %g .. %g, is %g .. %g%s%s%s\n", name, r.lo + 0, r.hi + 0,
         a.lo + 0, a.hi + 0, a.ninf ? " -inf" : "", a.pinf ? " +inf" : "",
         a.nan ? " nan" : "");
}

static void show(Ctx *cx, const Func *f) {
  Ranges r;
  range_init(&r, f, &cx->scratch);
  AbsMap m = {.f = f,
              .arena = &cx->scratch,
              .ranges = &r,
              .axis = ABS_ALL_AXES,
              .index.arena = &cx->scratch};
  for (const Op *op = f->body->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nres; i++) replace(&m, f, op->res[i]);
  for (const Op *op = f->body->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nres; i++) print(&m, f, op->res[i]);
}

int main(int argc, char **argv) {
  Ctx cx;
  ctx_init(&cx);
  Source *src = argc > 1 ? ctx_read_source(&cx, argv[1], NOWHERE) : NULL;
  Module *m = src ? ir_parse(&cx, src) : NULL;
  for (uint32_t i = 0; m && i < m->funcs.n; i++) show(&cx, m->funcs.at[i]);
  Buf err = {.arena = &cx.session};
  diag_render(&cx, (DiagStyle){.ascii = true, .width = 100}, &err);
  if (err.n) fwrite(err.at, 1, err.n, stderr);
  ctx_drop(&cx);
  return !m;
}
