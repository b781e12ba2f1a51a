// Lists of targets, and the level of this machine.
#include "ir/core/guess.h"
#include "runtime/attn_abi.h"
#include "tools/driver/driver.h"

#include <stdlib.h>

// What attn_isa the row's isa name stands for.
static int isa_of(const Target *t) {
  static const struct {
    const char *name;
    int isa;
  } rows[] = {
      {"X86_64", ATTN_ISA_X86_64},
      {"X86_64_V3", ATTN_ISA_X86_64_V3},
      {"X86_64_V4", ATTN_ISA_X86_64_V4},
      {"X86_64_V4_BF16", ATTN_ISA_X86_64_V4_BF16},
      {"X86_64_V4_AMX", ATTN_ISA_X86_64_V4_AMX},
      {"AARCH64", ATTN_ISA_AARCH64},
      {"AARCH64_BF16", ATTN_ISA_AARCH64_BF16},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strcmp(rows[i].name, t->isa) == 0) return rows[i].isa;
  return 0;
}

static bool same_family(int a, int b) {
  return a >> 8 == b >> 8;
}

static bool runs_here(const Target *t) {
  return t->kind == TARGET_CPU && attn_cpu_rank(isa_of(t)) > 0;
}

// Names that other builds or versions know.
static bool is_device(const char *name) {
  return strncmp(name, "sm_", 3) == 0 || strncmp(name, "gfx", 3) == 0;
}

static const Target *row(Ctx *cx, const char *name) {
  const Target *t = target_by_name(name);
  if (t) return t;
  uint32_t n, ngpus;
  const Target *all = target_list(&n), *gpus = target_gpus(&ngpus);
  Diag *d = diag_add(cx, is_device(name) ? DIAG_no_code : DIAG_bad_target,
                     NOWHERE, name);
  Buf b = {.arena = &cx->session};
  Guess g = guess_start(name);
  for (uint32_t i = 0; i < n; i++) {
    buf_printf(&b, "%s %s", i ? "," : "", all[i].name);
    guess_try(&g, all[i].name);
  }
  for (uint32_t i = 0; i < ngpus; i++) {
    buf_printf(&b, ", %s", gpus[i].name);
    guess_try(&g, gpus[i].name);
  }
  if (g.best) diag_note(cx, d, NOWHERE, "did you mean '%s'?", g.best);
  diag_note(cx, d, NOWHERE, "targets: cpu,%s", b.at);
  return NULL;
}

static void add(Ctx *cx, DrvTargets *out, const Target *t) {
  for (uint32_t i = 0; i < out->n; i++)
    if (out->at[i] == t) return;
  vec_push(&cx->session, out, t);
}

// Every level of the family: the object must not depend on which CPU of it
// the compiler ran on.
static void add_family(Ctx *cx, DrvTargets *out) {
  uint32_t n;
  const Target *all = target_list(&n);
  for (uint32_t i = 0; i < n; i++)
    if (all[i].kind == TARGET_CPU &&
        same_family(isa_of(&all[i]), attn_cpu_isa()))
      add(cx, out, &all[i]);
}

bool drv_targets(Ctx *cx, const char *list, DrvTargets *out) {
  char *copy = arena_strdup(&cx->session, list ? list : "cpu"), *save = NULL;
  bool ok = true;
  for (char *name = strtok_r(copy, ",", &save); name;
       name = strtok_r(NULL, ",", &save)) {
    if (strcmp(name, "cpu") == 0) {
      add_family(cx, out);
      continue;
    }
    const Target *t = row(cx, name);
    if (t) add(cx, out, t);
    else ok = false;
  }
  if (ok && !out->n) {
    diag_add(cx, DIAG_bad_target, NOWHERE, list);
    return false;
  }
  return ok;
}

const Target *drv_host_target(Ctx *cx, const char *name) {
  if (name && strcmp(name, "cpu") != 0) {
    const Target *t = row(cx, name);
    // Whether there is such a device is known when code is loaded on it.
    if (!t || t->kind == TARGET_GPU || runs_here(t)) return t;
    diag_add(cx, DIAG_not_here, NOWHERE, name);
    return NULL;
  }
  uint32_t n;
  const Target *all = target_list(&n), *best = NULL;
  for (uint32_t i = 0; i < n; i++)
    if (runs_here(&all[i]) &&
        (!best || attn_cpu_rank(isa_of(&all[i])) > attn_cpu_rank(isa_of(best))))
      best = &all[i];
  if (!best) diag_add(cx, DIAG_not_here, NOWHERE, "cpu");
  return best;
}

const char *drv_levels_left(Ctx *cx) {
  uint32_t n;
  const Target *all = target_list(&n);
  Buf b = {.arena = &cx->session};
  buf_str(&b, "");
  for (uint32_t i = 0; i < n; i++) {
    if (all[i].kind != TARGET_CPU ||
        !same_family(isa_of(&all[i]), attn_cpu_isa()))
      continue;
    const char *why = attn_cpu_why(isa_of(&all[i]));
    if (*why) buf_printf(&b, "%s%s: %s", b.n ? "; " : "", all[i].name, why);
  }
  return b.at;
}
