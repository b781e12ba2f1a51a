// Modules of a GPU that a session has made of late, of levels stream and mach.
// Those who ask whether the tiles of a GPU's code fit, what lives in it at once
// and what it is made of lower the same program with the same options, one
// behind the other.
//   does it fit?          @p for sm_90a              passes
//   what lives at once?   @p for sm_90a              known
//   code                  @p for sm_90a              known
//   other code            @p for sm_90a --relief=4   passes behind level stream
// What is shown of passes is shown each time: then nothing is looked up.
#include "tools/plan/known.h"

#include "frontend/check.h"

#include <string.h>

enum { MAX_KNOWN = 6 };

// A module with its options as text, and what passes remarked.
typedef struct Entry {
  const char *key;
  Module *m;
  const char **remarks;
  uint32_t n;
} Entry;

struct PlanKnown {
  Entry at[MAX_KNOWN];
  uint32_t n;
};

static bool is_shown(const DrvOptions *opt) {
  return opt->verify_each || opt->print_after_all || opt->time_passes ||
         opt->dump_dir;
}

const char *plan_known_key(Ctx *cx, const PlanAsked *asked) {
  const Target *t = asked->pass->target;
  bool kept = asked->to == LV_STREAM || asked->to == LV_MACH;
  if (!kept || t->kind != TARGET_GPU || is_shown(asked->opt)) return NULL;
  Buf b = {.arena = &cx->session};
  buf_printf(&b, "%s %p%s", level_name(asked->to), (const void *)asked->s.prog,
             asked->s.ordered ? " ordered" : "");
  for (uint32_t i = 0; i < asked->s.n; i++) {
    const FeBind *x = &asked->s.binds[i];
    buf_printf(&b, " %s=%d:%lld", x->name, (int)x->dtype, (long long)x->value);
  }
  pass_option_print(asked->pass, &b);
  return b.at;
}

Module *plan_known(Ctx *cx, const char *key) {
  const PlanKnown *all = cx->known;
  for (uint32_t i = 0; key && all && i < all->n; i++) {
    const Entry *e = &all->at[i];
    if (strcmp(e->key, key) != 0) continue;
    for (uint32_t k = 0; k < e->n; k++)
      vec_push(&cx->session, &cx->remarks, e->remarks[k]);
    return ir_copy(e->m, cx->home);
  }
  return NULL;
}

void plan_known_put(Ctx *cx, const char *key, const Module *m,
                    uint32_t remarks) {
  if (!key) return;
  if (!cx->known) cx->known = NEW(&cx->session, PlanKnown);
  PlanKnown *all = cx->known;
  if (all->n == MAX_KNOWN) {
    all->n = 0;
    arena_reset(&cx->kept, (ArenaMark){0});
  }
  ctx_limit(cx, &cx->kept);
  Entry *e = &all->at[all->n];
  *e = (Entry){.key = arena_strdup(&cx->kept, key),
               .n = cx->remarks.n - remarks};
  e->remarks = NEWN(&cx->kept, const char *, e->n + 1);
  for (uint32_t k = 0; k < e->n; k++)
    e->remarks[k] = cx->remarks.at[remarks + k];
  e->m = ir_copy(m, &cx->kept);
  all->n++;
}
