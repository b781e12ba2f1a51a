// ptxas, found at run time and run as a program: PTX in, machine code out. Its
// log tells registers, spills and the warnings that make a kernel slow.
#include "codegen/cg.h"
#include "codegen/codegen.h"
#include "codegen/object/tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *cg_ptxas_path(Ctx *cx) {
  static const char *const usual[] = {"/usr/local/cuda/bin/ptxas", NULL};
  return tool_find(cx, "ATTNC_PTXAS", "ptxas", usual);
}

// ---------------------------------------------------------------- run
typedef struct Files {
  int ptx, cubin, log;
} Files;

static int run(Ctx *cx, const char *tool, const Target *t, uint32_t level,
               Files f) {
  Arena *a = &cx->session;
  char *args[10] = {(char *)tool, "-v", "-arch", (char *)t->cpu};
  int n = 4;
  if (level) args[n++] = "--register-usage-level";
  if (level) args[n++] = arena_printf(a, "%u", level);
  args[n++] = "-o";
  args[n++] = arena_printf(a, "/proc/self/fd/%d", f.cubin);
  args[n++] = arena_printf(a, "/proc/self/fd/%d", f.ptx);
  return tool_run(cx, args, f.log, f.log);
}

// ---------------------------------------------------------------- log
// "Compiling entry function 'k' for 'sm_90a'", then lines "0 bytes stack frame,
// 0 bytes spill stores, 8 bytes spill loads" and "Used 168 registers, ..". Then
// come the functions that the kernel calls.
static CgKernelRecord *find(CgKernels *all, const char *name, size_t n) {
  for (uint32_t i = 0; i < all->n; i++) {
    const char *s = all->at[i].symbol;
    if (strncmp(s, name, n) == 0 && !s[n]) return &all->at[i];
  }
  return NULL;
}

// "(C7514) Potential Performance Loss: wgmma.mma_async instructions are
// serialized due to .. in the function 'k'", "(C7517) warpgroup.wait is
// injected .. in function 'k'", "(C7519) warpgroup.arrive is injected ..". All
// of C75xx are about what only this chip has. Where no kernel is named the
// first may be meant.
static void read_warning(CgKernels *all, const char *line) {
  const char *p = strstr(line, "(C75");
  if (!p || !all->n) return;
  const char *name = strstr(p, "function '");
  CgKernelRecord *k = NULL;
  if (name) name += strlen("function '");
  if (name) k = find(all, name, strcspn(name, "'"));
  if (!k) k = &all->at[0];
  k->serialized |=
      strstr(p, "serialized due to") || strstr(p, "warpgroup.wait is injected");
  if (!k->warning) k->warning = (uint32_t)strtoul(p + strlen("(C"), NULL, 10);
}

// "(C7602) Insufficient registers (128) to compile instruction at line 2 in
// function k. Try to compile with register target of 158 or higher." False:
// that is not what is wrong.
static bool read_lack(CgKernels *all, const char *text) {
  static const char had[] = "Insufficient registers (", in[] = "in function ",
                    needs[] = "register target of ";
  const char *p = strstr(text, "(C7602) ");
  const char *from = p ? strstr(p, had) : NULL;
  const char *name = p ? strstr(p, in) : NULL;
  const char *to = p ? strstr(p, needs) : NULL;
  if (!all || !from || !name || !to) return false;
  name += sizeof in - 1;
  CgKernelRecord *k = find(all, name, strcspn(name, ". "));
  unsigned long n = strtoul(from + sizeof had - 1, NULL, 10);
  unsigned long m = strtoul(to + sizeof needs - 1, NULL, 10);
  if (!k) return false;
  k->registers = (uint32_t)n;
  k->lacks = m > n ? (uint32_t)(m - n) : 1;
  return true;
}

static void read_line(CgKernels *all, CgKernelRecord **now, const char *line) {
  const char *p = strstr(line, "entry function '");
  read_warning(all, line);
  if (p) {
    p += strlen("entry function '");
    *now = find(all, p, strcspn(p, "'"));
    if (*now) (*now)->spill_bytes = 0;
  }
  if (!*now) return;
  p = strstr(line, "bytes stack frame, ");
  const char *loads = strstr(line, "spill stores, ");
  if (p && loads) {
    unsigned long s = strtoul(p + strlen("bytes stack frame, "), NULL, 10);
    unsigned long l = strtoul(loads + strlen("spill stores, "), NULL, 10);
    // A frame without spills is local memory too.
    unsigned long frame = strtoul(line, NULL, 10);
    (*now)->spill_bytes += (uint32_t)(s + l ? s + l : frame);
  }
  p = strstr(line, "Used ");
  if (p) (*now)->registers = (uint32_t)strtoul(p + 5, NULL, 10);
}

static void read_log(CgKernels *all, char *text) {
  CgKernelRecord *now = NULL;
  char *save = NULL;
  for (char *line = strtok_r(text, "\n", &save); line;
       line = strtok_r(NULL, "\n", &save))
    read_line(all, &now, line);
}

// ---------------------------------------------------------------- once
// A ptxas, and the target that it is to make code for.
typedef struct Assembler {
  Ctx *cx;
  const char *tool;
  const Target *target;
} Assembler;

static bool read_run(const Assembler *a, int rc, Files f,
                     const CgAssembled *out) {
  Buf text = {.arena = &a->cx->session};
  bool ok = tool_read(f.log, &text);
  buf_char(&text, 0);
  if (ok && rc != 0 && read_lack(out->kernels, text.at)) {
    buf_add(out->log, text.at, text.n - 1);
    return true;
  }
  if (rc != 0 || !ok) {
    diag_add(a->cx, DIAG_cg_failed, NOWHERE, a->tool,
             text.n > 1 ? text.at : "cannot run");
    return false;
  }
  buf_add(out->log, text.at, text.n - 1);
  if (out->kernels) read_log(out->kernels, text.at);
  return tool_read(f.cubin, out->cubin);
}

static bool assemble(const Assembler *a, CgBytes ptx, uint32_t level,
                     const CgAssembled *out) {
  Files f = {tool_file(), tool_file(), tool_file()};
  bool ok = f.ptx >= 0 && f.cubin >= 0 && f.log >= 0 &&
            tool_write(f.ptx, ptx.at, ptx.n);
  if (!ok) diag_add(a->cx, DIAG_cg_failed, NOWHERE, "ptxas", strerror(errno));
  ok = ok && read_run(a, run(a->cx, a->tool, a->target, level, f), f, out);
  if (f.ptx >= 0) close(f.ptx);
  if (f.cubin >= 0) close(f.cubin);
  if (f.log >= 0) close(f.log);
  return ok;
}

// ---------------------------------------------------------------- one kernel
// Where the kernel ends that begins at p. Instructions begin with a tab and a
// letter.
static const char *end_of(const char *p) {
  static const char *const next[] = {"\t// .globl", ".func", ".visible"};
  for (const char *at = p; (at = strchr(at, '\n'));) {
    at++;
    bool other = *at == '.' || (*at == '\t' && at[1] == '/');
    for (size_t i = 0; other && i < sizeof next / sizeof *next; i++)
      if (strncmp(at, next[i], strlen(next[i])) == 0) return at;
  }
  return p + strlen(p);
}

typedef struct Entry {
  const char *at, *name, *end;
  size_t n;  // of the name
} Entry;

// The next kernel of *from, which moves behind it.
static bool next_entry(const char **from, Entry *e) {
  static const char entry[] = ".visible .entry ";
  e->at = strstr(*from, entry);
  if (!e->at) return false;
  e->name = e->at + sizeof entry - 1;
  e->n = strcspn(e->name, "(");
  *from = e->end = end_of(e->at);
  return true;
}

void cg_ptx_alone(const CgPtx *ptx, uint32_t i, Buf *out) {
  for (uint32_t k = 0; k <= ptx->n; k++) {
    buf_add(out, ptx->around[k].at, ptx->around[k].n);
    if (k == i) buf_add(out, ptx->kernel[i].at, ptx->kernel[i].n);
  }
  buf_char(out, 0);
  out->n--;
}

CgPtx cg_ptx_split(Ctx *cx, const char *ptx) {
  Vec(CgBytes) around = {0}, kernels = {0};
  const char *from = ptx, *was = ptx;
  for (Entry e; next_entry(&from, &e); was = from) {
    CgBytes between = {was, (size_t)(e.at - was)};
    CgBytes kernel = {e.at, (size_t)(e.end - e.at)};
    vec_push(&cx->session, &around, between);
    vec_push(&cx->session, &kernels, kernel);
  }
  CgBytes rest = {was, strlen(was)};
  vec_push(&cx->session, &around, rest);
  return (CgPtx){around.at, kernels.at, kernels.n};
}

// ---------------------------------------------------------------- levels
uint64_t cg_kernel_flaws(const CgKernelRecord *k) {
  if (k->lacks) return CG_NO_CODE + sizeof(uint32_t) * (uint64_t)k->lacks;
  return k->spill_bytes + (k->serialized ? CG_SERIAL
                           : k->warning  ? CG_WARNING
                                         : 0);
}

static void find_add(void *data, Op *op) {
  bool *found = data;
  *found |= op->code == OP_GSTORE && ir_attr_i(op, AT_ADD, 0);
}

bool cg_adds_to_memory(const Func *f) {
  bool found = false;
  ir_walk(f->body, find_add, &found);
  return found;
}

uint64_t cg_kernel_cost(const CgKernelRecord *k) {
  bool many = k->rare_bytes > CG_RARE && !cg_adds_to_memory(k->func);
  uint32_t rare = many ? 0 : k->rare_bytes;
  return cg_kernel_flaws(k) - rare;
}

uint64_t cg_flaws(const CgKernels *all) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < all->n; i++) sum += cg_kernel_flaws(&all->at[i]);
  return sum;
}

uint64_t cg_cost(const CgKernels *all) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < all->n; i++) sum += cg_kernel_cost(&all->at[i]);
  return sum;
}

// ---------------------------------------------------------------- entry
// PTX ISA, performance-tuning directives. Roles share out what a launch gives.
bool cg_ptx_capped(const char *ptx, uint32_t registers, Buf *out) {
  static const char free_of[] = ".minnctapersm 1\n";
  const char *from = ptx, *at;
  bool any = false;
  if (strstr(from, "setmaxnreg")) return false;
  for (; (at = strstr(from, free_of)); from = at + sizeof free_of - 1) {
    buf_add(out, from, (size_t)(at - from));
    buf_printf(out, ".maxnreg %u\n", registers);
    any = true;
  }
  buf_str(out, from);
  return any;
}

bool cg_ptxas(Ctx *cx, const Target *t, CgBytes ptx, uint32_t level,
              const CgAssembled *out) {
  Assembler a = {cx, cg_ptxas_path(cx), t};
  Buf said = {.arena = &cx->session};
  CgAssembled made = {out->cubin, out->kernels, &said};
  if (!a.tool) {
    diag_add(cx, DIAG_cg_failed, NOWHERE, "ptxas",
             "not found (ATTNC_PTXAS, PATH, /usr/local/cuda/bin)");
    return false;
  }
  for (uint32_t i = 0; out->kernels && i < out->kernels->n; i++) {
    CgKernelRecord *k = &out->kernels->at[i];
    k->level = level;
    k->serialized = false;
    k->lacks = k->warning = 0;
  }
  work_say(cx, "ptxas for %s%s%s", t->name, made.kernels ? ": " : "",
           made.kernels ? made.kernels->at[0].symbol : "");
  if (!assemble(&a, ptx, level, &made)) return false;
  for (uint32_t i = 0; out->kernels && i < out->kernels->n; i++) {
    CgKernelRecord *k = &out->kernels->at[i];
    k->rare_bytes =
        cg_rare_spills(cx, k, (CgBytes){out->cubin->at, out->cubin->n});
  }
  if (out->log) buf_add(out->log, said.at, said.n);
  return true;
}
