// Which calls have few rows: a GPU has code of its own for these.
#include "ir/target.h"
#include "passes/support/cost.h"
#include "tools/plan/plan.h"

#include <string.h>

Dim plan_tiled(const Func *f, int64_t than) {
  for (uint32_t i = 0; f && i < f->grid.n; i++)
    if (f->grid.at[i].tile > than) return f->axes.at[f->grid.at[i].axis].extent;
  return DIM_NONE;
}

Dim plan_over(const Func *f, Dim d, DimTab *to) {
  const DimTab *from = &f->mod->dims;
  Dim *none = NEWN(to->arena, Dim, from->syms.n + 1);
  return dim_subst(from, to, d, none);
}

Dim plan_rows(const Func *f, DimTab *to) {
  Dim d = plan_tiled(f, 1);
  return d ? plan_over(f, d, to) : DIM_NONE;
}

// Tasks that would have the keys of f, a phase, beside their own: its rows are
// those of all sequences.
static Dim tasks_beside(const Func *f, const Func *program, uint32_t key,
                        DimTab *to) {
  Dim one = dim_const(to, 1), rows = plan_rows(f, to);
  Dim own = program ? plan_rows(program, to) : DIM_NONE;
  if (!rows || !own) return one;
  Dim n = dim_bin(to, DIM_FLOORDIV, rows, dim_bin(to, DIM_MAX, own, one));
  for (uint32_t i = 0; i < f->grid.n; i++) {
    uint32_t a = f->grid.at[i].axis;
    if (f->grid.at[i].tile == 1 && a < key)
      n = dim_bin(to, DIM_MUL, n, plan_over(f, f->axes.at[a].extent, to));
  }
  return n;
}

// Where tasks are more than run at a time each key takes all of them longer: it
// counts as several.
static Dim worth_of(Dim keys, Dim tasks, DimTab *to) {
  Dim by = dim_bin(to, DIM_FLOORDIV, tasks, dim_const(to, COST_SHARED_TASKS));
  return dim_bin(to, DIM_MAX, keys, dim_bin(to, DIM_MUL, keys, by));
}

Dim plan_shared_keys(const Module *m, const char *name, DimTab *to) {
  size_t n = strlen(name);
  for (uint32_t i = 0; m && i < m->funcs.n; i++) {
    const Func *f = m->funcs.at[i];
    if (strncmp(f->name, name, n) != 0 ||
        strncmp(f->name + n, ".shared", strlen(".shared")) != 0)
      continue;
    for (uint32_t a = 0; a < f->axes.n; a++) {
      if (f->axes.at[a].role != AX_KEY) continue;
      Dim tasks = tasks_beside(f, ir_find(m, name), a, to);
      return worth_of(plan_over(f, f->axes.at[a].extent, to), tasks, to);
    }
  }
  return DIM_NONE;
}

Dim plan_group_rows(const Module *m, const Decl *prog, const char *name,
                    DimTab *to) {
  const Func *f = m && prog->kind == DE_ATTENTION ? ir_find(m, name) : NULL;
  bool keys = false;
  for (uint32_t i = 0; f && i < f->axes.n; i++)
    keys |= f->axes.at[i].role == AX_KEY;
  return keys ? plan_rows(f, to) : DIM_NONE;
}

void plan_fit_few(Ctx *cx, DrvSpec s, const Target *t, const int64_t *dims,
                  DrvOptions *opt) {
  DrvOptions few = *opt;
  few.few = true;
  int64_t have;
  if (!t->gpu.hopper || s.prog->kind != DE_ATTENTION) return;
  DiagMark mark = diag_mark(cx);
  Module *m = drv_lower(cx, s, t, LV_TILE, &few);
  diag_forget(cx, mark);
  DimTab *of = s.prog->dims;
  Dim rows = plan_group_rows(m, s.prog, s.prog->name, of);
  opt->few = rows && dim_eval(of, rows, dims, &have) && have <= HW_GROUP_ROWS;
  opt->fewest = opt->few && have <= t->gpu.rows;
  Dim keys = plan_shared_keys(m, s.prog->name, of);
  opt->together = opt->few && keys && dim_eval(of, keys, dims, &have) &&
                  have < COST_SHARED_KEYS;
  opt->cluster = plan_cluster_of(cx, s, t, dims, opt);
}
