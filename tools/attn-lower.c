// Developer tool: lowers the programs of a .attn file and prints the module.
//   attn-lower FILE [--fn NAME] [--dim D=64,T=f16,..] [--passes=a,b] [-I DIR]
// Without --dim every dim stays a symbol. Exit code 1 if there were errors.
//   attn-lower FILE.tir --emit=llvm|ptx|cubin|info, AMD: llvm|gcn-asm|hsaco|info
// prints code for a module of a GPU; info: what a launch must know, and what
// ptxas or the linked object says.
#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "passes/pass.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_BINDS = 32, MAX_PROGRAMS = 64 };

typedef struct Options {
  const char *path, *fn, *passes, *emit;
  FeBind binds[MAX_BINDS];
  uint32_t nbinds;
} Options;

// "D=64,T=f16"
static bool read_binds(Ctx *cx, Options *o, const char *s) {
  while (*s) {
    const char *eq = strchr(s, '=');
    if (!eq || o->nbinds == MAX_BINDS) return false;
    size_t n = strcspn(eq + 1, ",");
    FeBind *b = &o->binds[o->nbinds++];
    *b = (FeBind){.name = intern_n(&cx->names, s, (size_t)(eq - s))};
    b->dtype = DT_NONE;
    if (!dtype_by_name(eq + 1, (uint32_t)n, &b->dtype))
      b->value = strtoll(eq + 1, NULL, 10);
    s = eq + 1 + n;
    if (*s == ',') s++;
  }
  return true;
}

static bool lower(Ctx *cx, const Options *o, const Decl *d, Buf *out) {
  Module *m = fe_lower(cx, d, o->binds, o->nbinds);
  PipelineOpt opt = {.verify_each = true};
  if (!m || !ir_verify(cx, m)) return false;
  if (o->passes && !pass_run(cx, m, o->passes, &opt)) return false;
  ir_print(m, out);
  return true;
}

static void put_kernel(const CgKernelRecord *k, Buf *out) {
  buf_printf(out, "%s: threads %u, ctas %s, shared %u, block %u, counter %s\n",
             k->symbol, k->threads, k->persistent ? "persistent" : "tasks",
             k->shared_bytes, k->block_bytes, k->counter ? "yes" : "no");
  for (uint32_t i = 0; i < k->maps.n; i++) {
    const CgMapRecord *m = &k->maps.at[i];
    buf_printf(out, "  map of tensor %u, swizzle %u:", m->tensor, m->swizzle);
    for (uint32_t a = 0; a < m->rank; a++)
      buf_printf(out, " axis %u box %u", m->axis[a], m->box[a]);
    buf_char(out, '\n');
  }
  // Of the tensors, as words of attn_abi.h ("expressions").
  if (k->when.n) buf_str(out, "  when");
  for (uint32_t i = 0; i < k->when.n; i++)
    buf_printf(out, " %lld", (long long)k->when.at[i]);
  if (k->when.n) buf_char(out, '\n');
  if (k->registers)
    buf_printf(out, "  registers %u, spilled bytes %u%s\n", k->registers,
               k->spill_bytes, k->serialized ? ", products serialized" : "");
}

static bool amd_code(Ctx *cx, const char *emit, const Module *m, Buf *out) {
  CgKernels all = {0};
  Buf object = {.arena = &cx->session}, linked = {.arena = &cx->session};
  bool info = !strcmp(emit, "info");
  if (!strcmp(emit, "gcn-asm")) return cg_gpu(cx, m, "k", CG_ASM, out, NULL);
  if (!cg_gpu(cx, m, "k", CG_OBJECT, &object, &all) ||
      !cg_lld(cx, object.at, object.n, info ? &linked : out, &all))
    return false;
  for (uint32_t i = 0; info && i < all.n; i++) put_kernel(&all.at[i], out);
  return true;
}

static bool code(Ctx *cx, const char *emit, const Module *m, Buf *out) {
  CgKernels all = {0};
  Buf ptx = {.arena = &cx->session}, log = {.arena = &cx->session};
  Buf cubin = {.arena = &cx->session};
  if (!strcmp(emit, "llvm")) return cg_gpu(cx, m, "k", CG_LLVM, out, NULL);
  if (target_by_name(m->target)->gpu.vendor == VENDOR_AMD)
    return amd_code(cx, emit, m, out);
  if (!strcmp(emit, "ptx")) return cg_gpu(cx, m, "k", CG_ASM, out, NULL);
  if (!cg_gpu(cx, m, "k", CG_ASM, &ptx, &all)) return false;
  bool info = !strcmp(emit, "info");
  if (!info || cg_ptxas_path(cx)) {
    const Target *t = target_by_name(m->target);
    CgAssembled made = {info ? &cubin : out, &all, &log};
    if (!cg_ptxas(cx, t, (CgBytes){ptx.at, ptx.n}, 0, &made)) return false;
  }
  for (uint32_t i = 0; info && i < all.n; i++) put_kernel(&all.at[i], out);
  if (info) buf_add(out, log.at, log.n);
  return true;
}

static int run_code(Ctx *cx, const Options *o) {
  Buf out = {.arena = &cx->session}, err = {.arena = &cx->session};
  Source *src = ctx_read_source(cx, o->path, NOWHERE);
  Module *m = src ? ir_parse(cx, src) : NULL;
  PipelineOpt opt = {.verify_each = true};
  bool ok = m && ir_verify(cx, m);
  if (ok && o->passes) ok = pass_run(cx, m, o->passes, &opt);
  ok = ok && code(cx, o->emit, m, &out);
  diag_render(cx, (DiagStyle){.ascii = true, .width = 100}, &err);
  if (ok && out.n) fwrite(out.at, 1, out.n, stdout);
  if (err.n) fwrite(err.at, 1, err.n, stderr);
  return !ok;
}

static int run(Ctx *cx, const Options *o) {
  Buf out = {.arena = &cx->session}, err = {.arena = &cx->session};
  Source *src = ctx_read_source(cx, o->path, NOWHERE);
  Unit *unit = src ? fe_parse(cx, src) : NULL;
  bool ok = unit && fe_check(cx, unit);
  Decl *all[MAX_PROGRAMS];
  uint32_t n = ok ? fe_programs(unit, all, MAX_PROGRAMS) : 0;
  for (uint32_t i = 0; i < n; i++)
    if (!o->fn || strcmp(o->fn, all[i]->name) == 0)
      ok = lower(cx, o, all[i], &out) && ok;
  diag_render(cx, (DiagStyle){.ascii = true, .width = 100}, &err);
  if (out.n) fwrite(out.at, 1, out.n, stdout);
  if (err.n) fwrite(err.at, 1, err.n, stderr);
  return !ok || cx->nerrors;
}

int main(int argc, char **argv) {
  Options o = {0};
  Ctx cx;
  ctx_init(&cx);
  bool bad = false;
  for (int i = 1; i < argc; i++) {
    const char *a = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
    if (!strncmp(a, "--passes=", 9)) o.passes = a + 9;
    else if (!strncmp(a, "--emit=", 7)) o.emit = a + 7;
    else if (next && !strcmp(a, "--fn")) o.fn = argv[++i];
    else if (next && !strcmp(a, "--dim"))
      bad |= !read_binds(&cx, &o, argv[++i]);
    else if (next && !strcmp(a, "-I"))
      vec_push(&cx.session, &cx.include_dirs, argv[++i]);
    else o.path = a;
  }
  int rc = 2;
  if (o.path && !bad) rc = o.emit ? run_code(&cx, &o) : run(&cx, &o);
  else
    fputs("usage: attn-lower FILE [--fn NAME] [--dim D=64,T=f16] "
          "[--passes=a,b] [-I DIR] [--emit=llvm|ptx|cubin|info]\n",
          stderr);
  ctx_drop(&cx);
  return rc;
}
