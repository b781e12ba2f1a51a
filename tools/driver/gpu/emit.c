// The stages of a GPU's code: text or machine code of one variant. A file of
// PTX, LLVM IR or machine code is one module, so it is an error if programs,
// specializations and targets make several.
#include "tools/driver/gpu/device.h"

typedef struct Pick {
  Recipe one;  // the first, without `when` and options
  uint32_t count;
  Buf choices;  // the options of each of the first few
} Pick;

enum { MAX_NAMED = 8 };

static const struct Stage {
  const char *name;
  bool nvidia, amd, binary;
} stages[] = {
    [DRV_LLVM] = {"llvm", .nvidia = true, .amd = true},
    [DRV_ASM] = {"asm", .nvidia = true, .amd = true},
    [DRV_PTX] = {"ptx", .nvidia = true},
    [DRV_CUBIN] = {"cubin", .nvidia = true, .binary = true},
    [DRV_AMDGCN] = {"amdgcn", .amd = true},
    [DRV_HSACO] = {"hsaco", .amd = true, .binary = true},
};

static bool has_stage(const Target *t, DrvStage what) {
  if (t->kind != TARGET_GPU) return false;
  return t->gpu.vendor == VENDOR_AMD ? stages[what].amd : stages[what].nvidia;
}

bool drv_is_gpu_stage(const DrvTargets *targets, DrvStage what) {
  if (what != DRV_LLVM && what != DRV_ASM)
    return what < sizeof stages / sizeof *stages && stages[what].name;
  for (uint32_t i = 0; i < targets->n; i++)
    if (targets->at[i]->kind != TARGET_GPU) return false;
  return true;
}

// ---------------------------------------------------------------- choice
// --fn gqa --dim T=bf16,D=64 --target sm_90a
static void name_choice(const Recipe *r, Buf *out) {
  if (out->n) buf_char(out, '\n');
  buf_printf(out, "--fn %s", r->spec.prog->name);
  for (uint32_t i = 0; i < r->spec.n; i++) {
    const FeBind *b = &r->spec.binds[i];
    buf_printf(out, "%s%s=", i ? "," : " --dim ", b->name);
    if (b->dtype != DT_NONE) buf_str(out, dtype_name(b->dtype));
    else buf_printf(out, "%lld", (long long)b->value);
  }
  buf_printf(out, " --target %s", r->target->name);
}

static bool add_choices(Ctx *cx, Decl *prog, const DrvTargets *targets,
                        DrvStage what, const DrvOptions *opt, Pick *p) {
  FeBind *binds;
  uint32_t width, n = fe_specializations(cx, prog, opt->fixed.at, opt->fixed.n,
                                         &binds, &width);
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < targets->n; k++) {
      if (!has_stage(targets->at[k], what)) continue;
      Recipe r = {.spec = {prog, binds + (size_t)i * width, width},
                  .target = targets->at[k]};
      if (!p->count) p->one = r;
      if (p->count++ < MAX_NAMED) name_choice(&r, &p->choices);
    }
  return n > 0;
}

static bool only_one(Ctx *cx, Pick *p, const char *stage, const char *targets) {
  if (p->count == 1) return true;
  if (!p->count) {
    diag_add(cx, DIAG_no_stage, NOWHERE, stage, targets ? targets : "cpu");
    return false;
  }
  Diag *d = diag_add(cx, DIAG_many_kernels, NOWHERE, stage, p->count);
  char *save = NULL;
  for (char *s = strtok_r(p->choices.at, "\n", &save); s;
       s = strtok_r(NULL, "\n", &save))
    diag_note(cx, d, NOWHERE, "%s", s);
  if (p->count > MAX_NAMED)
    diag_note(cx, d, NOWHERE, "and %u more", p->count - MAX_NAMED);
  return false;
}

// ---------------------------------------------------------------- output
// Machine code of a variant: of one kernel a cubin, of several an archive of
// cubins that ar knows, each with its kernel's name.
static void put_code(const CgDevice *d, Buf *out) {
  if (!d->parts) buf_add(out, d->binary.at, d->binary.n);
  for (uint32_t i = 0; d->parts && i < d->nphases; i++) {
    const char *s = d->phases[i].name;
    if (!i) buf_str(out, "!<arch>\n");
    // A name of any length is in front of the contents (BSD).
    buf_printf(out, "#1/%-13zu%-12d%-6d%-6d%-8d%-10zu`\n", strlen(s) + 6, 0, 0,
               0, 644, strlen(s) + 6 + d->parts[i].n);
    buf_printf(out, "%s.cubin", s);
    buf_add(out, d->parts[i].at, d->parts[i].n);
    if ((strlen(s) + 6 + d->parts[i].n) % 2) buf_char(out, '\n');
  }
}

static bool put_device(Ctx *cx, DrvStage what, const Built *b,
                       const CgDevice *d, Buf *out) {
  if (what == DRV_LLVM)
    return cg_gpu(cx, b->mod, b->recipe.opt.prefix, CG_LLVM, out, NULL);
  if (!stages[what].binary) {
    buf_str(out, d->text.at);
    return true;
  }
  if (!d->binary.n && !d->parts) {
    diag_add(cx, DIAG_no_tool, NOWHERE, "ptxas", "--emit=cubin");
    return false;
  }
  put_code(d, out);
  return true;
}

bool drv_emit_gpu(Ctx *cx, DrvProgs progs, const DrvTargets *targets,
                  DrvStage what, const DrvOptions *opt, Buf *out) {
  Pick pick = {.choices.arena = &cx->session};
  for (uint32_t i = 0; i < progs.n; i++)
    if (!add_choices(cx, progs.at[i], targets, what, opt, &pick)) return false;
  if (!only_one(cx, &pick, stages[what].name, opt->targets)) return false;
  const Recipe *r = &pick.one;
  DrvOptions o = *opt;
  o.first = true;
  o.assembly = what == DRV_AMDGCN || what == DRV_ASM;
  CgProgram p;
  Builts built = {0};
  return drv_device_program(cx, r->spec, r->target, &o, &p, &built) &&
         put_device(cx, what, &built.at[0], &p.devices[0], out);
}
