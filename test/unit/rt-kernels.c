// Records of device kernels: written by codegen, read by the runtime; damaged
// ones with a right hash.
#include "codegen/codegen.h"
#include "expect.h"
#include "runtime/rt.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const int64_t when[] = {ATTN_X_STRIDE, 0, 1, ATTN_X_CONST, 1, ATTN_X_EQ};
static const int64_t tasks[] = {ATTN_X_DIM, 0};

// program f<N, M>(X: f32[N, M], s: f32) -> ..; the module has M and N, so dim
// 0 of its expressions is the program's dim 1.
static void make(Ctx *cx, CgProgram *p, CgDevice *d, CgPhase *ph) {
  DimTab *own = NEW(&cx->session, DimTab), *mod = NEW(&cx->session, DimTab);
  CgParam *par = NEWN(&cx->session, CgParam, 2);
  static const attn_gpu_map map = {.tensor = 0,
                                   .rank = 2,
                                   .swizzle = 128,
                                   .axis = {1, 0},
                                   .box = {32, 64}};
  DimSym n = {.name = intern(&cx->names, "N"), .divisor = 1};
  DimSym m = {.name = intern(&cx->names, "M"), .divisor = 1};
  vec_push(&cx->session, &own->syms, n);
  vec_push(&cx->session, &own->syms, m);
  vec_push(&cx->session, &mod->syms, m);
  vec_push(&cx->session, &mod->syms, n);
  par[0] = (CgParam){.name = "X", .type = {.kind = TK_TENSOR, .n = 2}};
  par[1] = (CgParam){.name = "s", .role = PR_SCALAR};
  *ph = (CgPhase){.name = "f_k",
                  .ntasks = {tasks, 2},
                  .threads = 384,
                  .shared_bytes = 1000,
                  .ctas = ATTN_CTAS_PERSISTENT,
                  .flags = ATTN_GPU_COUNTER,
                  .maps = &map,
                  .nmaps = 1};
  *d = (CgDevice){.target = ATTN_TARGET_SM(90, 1),
                  .when = {when, 6},
                  .dims = mod,
                  .phases = ph,
                  .nphases = 1,
                  .binary = {"cubin!", 6},
                  .text = {".ptx", 5}};
  *p = (CgProgram){.name = "f",
                   .prefix = "x",
                   .dims = own,
                   .params = par,
                   .nparams = 2,
                   .devices = d,
                   .ndevices = 1};
}

static void damage(const Buf *b);

static int find(const void *bytes, size_t n, Kernels *k) {
  attn_error e;
  attn_section_info s;
  attn_module *m = attn_module_load(NULL, bytes, n, &e);
  EXPECT(m);
  if (!m) return e.code;
  int rc = attn_module_find(m, ATTN_SEC_KERNELS, ATTN_TARGET_SM(90, 1), &s);
  EXPECT(rc == ATTN_OK);
  rc = rt_kernels_read(attn_ctx_default(), m, &s, k, &e);
  attn_module_close(m);
  return rc;
}

// Numbers of the shape are a list of expressions, of the block's words.
static void numbers(Ctx *cx, CgProgram *p, CgPhase *ph) {
  CgExpr two[] = {ph->ntasks, ph->ntasks};
  Buf b = {.arena = &cx->session};
  Kernels k;
  ph->numbers = two;
  ph->nnumbers = 2;
  EXPECT(cg_container(cx, p, 1, &b));
  EXPECT(find(b.at, b.n, &k) == ATTN_OK);
  const int64_t *list = k.code + k.phases->numbers;
  EXPECT(k.phases->numbers && list[0] == 2);
  EXPECT(k.code[list[1]] == ATTN_X_DIM && k.code[list[2] + 1] == 1);
  EXPECT(k.phases->block_bytes == 128 + 128);  // there was room for two
  rt_kernels_free(attn_ctx_default(), &k);
  damage(&b);
  ph->nnumbers = 0;
}

static void reads(const Buf *b) {
  Kernels k;
  EXPECT(find(b->at, b->n, &k) == ATTN_OK);
  EXPECT(k.nvariants == 1 && k.nphases == 1 && k.nmaps == 1);
  const attn_gpu_variant *v = k.variants;
  const attn_gpu_phase *p = k.phases;
  EXPECT(!strcmp(k.strings + v->program, "f"));
  EXPECT(!strcmp(k.strings + p->symbol, "f_k"));
  EXPECT(v->code[0] == 0 && v->code[1] == 1 && v->workspace == ATTN_NONE);
  EXPECT(k.code[v->dims] == 2 && k.code[v->dims + 1] == 1 &&
         k.code[v->dims + 2] == 0);
  EXPECT(!memcmp(k.code + v->when, when, sizeof when));
  EXPECT(k.code[p->ntasks] == ATTN_X_DIM && k.code[p->ntasks + 1] == 1);
  // X: 8 + 16 * 2; s, given, 2 dims, ntasks, workspace, counter: 56; a map.
  EXPECT(p->block_bytes == 128 + 128 && p->threads == 384);
  EXPECT(k.maps[0].box[1] == 64 && k.maps[0].axis[0] == 1);
  rt_kernels_free(attn_ctx_default(), &k);
}

// Every word of the section set to hostile values: an error or a sound table.
static void damage(const Buf *b) {
  static const uint32_t bad[] = {0,        1,          3,
                                 7,        8,          64,
                                 255,      4096,       1u << 20,
                                 1u << 31, UINT32_MAX, UINT32_MAX - 1};
  attn_container_header h;
  attn_section s;
  memcpy(&h, b->at, sizeof h);
  memcpy(&s, b->at + sizeof h + 2 * sizeof s, sizeof s);
  EXPECT(s.kind == ATTN_SEC_KERNELS);
  for (size_t at = s.offset; at + 4 <= s.offset + s.length; at += 4)
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
      char *copy = malloc(b->n);
      Kernels k = {0};
      memcpy(copy, b->at, b->n);
      memcpy(copy + at, &bad[i], 4);
      h.hash = attn_container_hash(copy, b->n);
      memcpy(copy, &h, sizeof h);
      int rc = find(copy, b->n, &k);
      EXPECT(rc == ATTN_OK || rc == ATTN_E_FORMAT);
      if (rc == ATTN_OK) rt_kernels_free(attn_ctx_default(), &k);
      free(copy);
    }
}

// Records of a phase that end in front of `code`, as they were before.
static void without_code(const Buf *b) {
  attn_container_header h;
  attn_kernels_header k;
  attn_section s;
  Kernels out = {0};
  char *copy = malloc(b->n);
  memcpy(copy, b->at, b->n);
  memcpy(&s, copy + sizeof h + 2 * sizeof s, sizeof s);
  memcpy(&k, copy + s.offset, sizeof k);
  EXPECT(k.phases.size == sizeof(attn_gpu_phase));
  k.phases.size = offsetof(attn_gpu_phase, code);
  memcpy(copy + s.offset, &k, sizeof k);
  memcpy(&h, copy, sizeof h);
  h.hash = 0;
  memcpy(copy, &h, sizeof h);
  h.hash = attn_container_hash(copy, b->n);
  memcpy(copy, &h, sizeof h);
  EXPECT(find(copy, b->n, &out) == ATTN_OK);
  EXPECT(out.phases[0].threads == 384 && !out.phases[0].code);
  rt_kernels_free(attn_ctx_default(), &out);
  free(copy);
}

// Machine code of its own: the section must be there, and of that kind.
static void own_code(Ctx *cx, CgProgram *p, CgDevice *d) {
  Buf b = {.arena = &cx->session};
  CgBytes whole = d->binary;
  Kernels k;
  d->parts = &whole;
  d->binary = (CgBytes){0};
  EXPECT(cg_container(cx, p, 1, &b));
  EXPECT(find(b.at, b.n, &k) == ATTN_OK);
  EXPECT(k.variants->code[0] == ATTN_NONE && rt_kernels_binary(&k, k.variants));
  EXPECT(k.phases->code == 0 && k.phases->flags & ATTN_GPU_OWN);
  rt_kernels_free(attn_ctx_default(), &k);
  damage(&b);
}

static void shortened(const Buf *b) {
  attn_container_header h;
  attn_section s;
  for (uint64_t n = 0;; n++) {
    char *copy = malloc(b->n);
    Kernels k = {0};
    memcpy(copy, b->at, b->n);
    memcpy(&h, copy, sizeof h);
    memcpy(&s, copy + sizeof h + 2 * sizeof s, sizeof s);
    bool end = n >= s.length;
    s.length = n;
    memcpy(copy + sizeof h + 2 * sizeof s, &s, sizeof s);
    h.hash = attn_container_hash(copy, b->n);
    memcpy(copy, &h, sizeof h);
    int rc = find(copy, b->n, &k);
    EXPECT(rc == (end ? ATTN_OK : ATTN_E_FORMAT));
    if (rc == ATTN_OK) rt_kernels_free(attn_ctx_default(), &k);
    free(copy);
    if (end) return;
  }
}

int main(void) {
  Ctx cx;
  CgProgram p;
  CgDevice d;
  CgPhase ph;
  ctx_init(&cx);
  Buf b = {.arena = &cx.session};
  make(&cx, &p, &d, &ph);
  EXPECT(cg_container(&cx, &p, 1, &b));
  EXPECT(cg_block_bytes(&p, 2, 1) == 256);
  reads(&b);
  damage(&b);
  shortened(&b);
  numbers(&cx, &p, &ph);
  without_code(&b);
  own_code(&cx, &p, &d);
  ctx_drop(&cx);
  return verdict();
}
