// Code objects of AMD: LLVM's relocatable object, linked by ld.lld, which is
// found at run time and run as a program. The object's notes tell registers,
// spills and shared memory.
//   .o -> ld.lld -shared -> .hsaco, records
#include "codegen/codegen.h"
#include "codegen/object/tool.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

const char *cg_lld_path(Ctx *cx) {
  // Older ones do not know the version of the objects.
  static const char *const usual[] = {"/usr/bin/ld.lld-22",
                                      "/usr/lib/llvm-22/bin/ld.lld",
                                      "/opt/rocm/llvm/bin/ld.lld",
                                      "/usr/bin/ld.lld", NULL};
  return tool_find(cx, "ATTNC_LLD", "ld.lld-22", usual);
}

// ---------------------------------------------------------------- notes
// A number of MessagePack; 0 if it is none.
static uint32_t number(const unsigned char *p, size_t n) {
  uint32_t bytes = n && *p >= 0xcc && *p <= 0xce ? 1u << (*p - 0xcc) : 0, v = 0;
  if (n && *p < 0x80) return *p;
  for (uint32_t i = 1; i <= bytes && i < n; i++) v = v << 8 | p[i];
  return v;
}

// The number behind the i-th key of that name: keys of kernels stand in the
// order of the kernels.
static uint32_t field(const Buf *b, const char *key, uint32_t i) {
  size_t k = strlen(key);
  for (size_t at = 0; at + k < b->n; at++) {
    const unsigned char *p = (const unsigned char *)b->at + at;
    if (memcmp(p, key, k) != 0 || (at && p[-1] != (0xa0 | k))) continue;
    if (i-- == 0) return number(p + k, b->n - at - k);
  }
  return 0;
}

static void read_notes(CgKernels *all, const Buf *b) {
  for (uint32_t i = 0; i < all->n; i++) {
    CgKernelRecord *r = &all->at[i];
    r->registers = field(b, ".vgpr_count", i);
    r->spill_bytes = field(b, ".private_segment_fixed_size", i);
  }
}

// ---------------------------------------------------------------- link
static bool link_object(Ctx *cx, const char *tool, int object, Buf *out,
                        int code, int log) {
  Buf text = {.arena = &cx->session};
  char *args[] = {(char *)tool,
                  "-flavor",
                  "gnu",
                  "-shared",
                  "--no-undefined",
                  "-o",
                  "-",
                  arena_printf(&cx->session, "/proc/self/fd/%d", object),
                  NULL};
  int rc = tool_run(cx, args, code, log);
  if (rc == 0) return tool_read(code, out);
  tool_read(log, &text);
  buf_char(&text, 0);
  diag_add(cx, DIAG_cg_failed, NOWHERE, tool,
           text.n > 1 ? text.at : "cannot run");
  return false;
}

bool cg_lld(Ctx *cx, const char *object, size_t n, Buf *out, CgKernels *all) {
  const char *tool = cg_lld_path(cx);
  if (!tool) {
    diag_add(cx, DIAG_cg_failed, NOWHERE, "ld.lld",
             "not found (ATTNC_LLD, ld.lld-22 in PATH, /usr/lib/llvm-22/bin)");
    return false;
  }
  work_say(cx, "%s", tool);
  int in = tool_file(), code = tool_file(), log = tool_file();
  bool ok = in >= 0 && code >= 0 && log >= 0 && tool_write(in, object, n);
  if (!ok) diag_add(cx, DIAG_cg_failed, NOWHERE, "ld.lld", strerror(errno));
  ok = ok && link_object(cx, tool, in, out, code, log);
  Buf notes = {.arena = &cx->session, .at = (char *)object, .n = (uint32_t)n};
  if (ok && all) read_notes(all, &notes);
  if (in >= 0) close(in);
  if (code >= 0) close(code);
  if (log >= 0) close(log);
  return ok;
}
