// lower_cpu: tile -> mach for the CPU. Gives tiles memory and loops, vectors
// and register blocks.
//
//   before  %s = dot(%q, %k) {over = [d]} : f32{q:128,k:64}
//           %m = reduce(%s) {kind = max, over = [k]} : f32{q:128}
//   after   for panel of 32 queries { for k0 step 8 { 8 x 2 vectors += ..;
//           vst(S[k0 + r], ..) } for k { m = max(m, vld(S[k])) } }
//
// Needs: level tile. One axis runs along the vector lanes: the grid's tiled
// axis where a value has it, else the last axis of what is computed. Work that
// shares lanes shares a loop over panels, so that what passes from one op to
// the next stays in registers or in the first-level cache. docs/cpu-schedule.md
// has the measurements, cpu.h the words. Tests: test/passes/lower_cpu.
#include "passes/cpu/cpu.h"
#include "passes/support/rebuild.h"

#include <string.h>

// The number of rows of the program, whose function has its name, before it is
// lowered; other phases may have other rows.
static Dim rows_of(const Module *m) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    const Func *f = m->funcs.at[i];
    for (uint32_t k = 0; k < f->grid.n && !strchr(f->name, '.'); k++)
      if (f->grid.at[k].tile > 1) return f->axes.at[f->grid.at[k].axis].extent;
  }
  return DIM_NONE;
}

static Func *assign_func(Ctx *cx, Module *m, Func *f, const Target *t,
                         Dim few) {
  Assign as = {.cx = cx,
               .m = m,
               .target = t,
               .arena = &cx->scratch,
               .f = f,
               .few = few};
  Map *maps[] = {&as.memo,   &as.known, &as.ints,
                 &as.floats, &as.dims,  &as.facts};
  for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
    maps[i]->arena = as.arena;
  as.g = rebuild_signature(m, f);
  as.pt.lane = -1;
  as.pt.cols = 1;
  cpu_plan(&as);
  for (uint32_t i = 0; i < f->params.n; i++)
    cpu_memo_put(&as, f->params.at[i].v, 0, as.g->params.at[i].v);
  as.b = as.top = (Builder){.fn = as.g, .region = as.g->body, .span = f->span};
  // The prologue ends at this mark.
  Value mark = ir_const_i(&as.b, DT_I64, 0);
  as.top.before = ir_def(as.g, mark);
  cpu_region_emit(&as, f->body);
  cpu_flush(&as);
  ir_erase(as.top.before);
  return as.g;
}

bool pass_lower_cpu(Ctx *cx, Module *m, const PassOpt *opt) {
  const Target *t = opt->target;
  if (t->kind != TARGET_CPU) {
    diag_add(cx, DIAG_pass_unsupported, NOWHERE, "assign needs a CPU target");
    return false;
  }
  Dim few = opt->walk ? rows_of(m) : DIM_NONE;
  m->level = LV_MACH;
  m->target = intern(&cx->names, t->name);
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    ArenaMark mark = arena_mark(&cx->scratch);
    if (!rebuild_one_tiled(cx, m->funcs.at[i], "the CPU takes")) return false;
    // Not in one statement: what makes a function may move the vector.
    Func *g = assign_func(cx, m, m->funcs.at[i], t, few);
    m->funcs.at[i] = g;
    arena_reset(&cx->scratch, mark);
  }
  return true;
}
