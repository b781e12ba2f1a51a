// The container of a file's device code: for each target a section of records
// (attn_abi.h, "device kernels"), for each piece of code a section.
//   header | table | cubin | ptx | .. | kernels sm_90a | .. | program | ..
#include "codegen/codegen.h"
#include "codegen/object/layout.h"

#include <assert.h>
#include <string.h>

// One device variant of one program.
typedef struct Unit {
  const CgProgram *prog;
  const CgDevice *dev;
  uint32_t code[2];  // section numbers
  uint32_t part[ATTN_MAX_PHASES];
} Unit;

typedef struct Box {
  Ctx *cx;
  Arena *a;
  Vec(Unit) units;
  Vec(attn_section) table;  // offsets not set yet
  Vec(CgBytes) body;        // of the sections
} Box;

// Tables of one section of records.
typedef struct Records {
  Box *box;
  Vec(attn_gpu_variant) variants;
  Vec(attn_gpu_phase) phases;
  Vec(attn_gpu_map) maps;
  Vec(int64_t) code;
  Vec(char) strings;
} Records;

// ---------------------------------------------------------------- words
static uint32_t name(Records *r, const char *s) {
  uint32_t n = (uint32_t)strlen(s) + 1;
  for (uint32_t i = 0; i + n <= r->strings.n; i++)
    if (!memcmp(r->strings.at + i, s, n)) return i;
  uint32_t at = r->strings.n;
  for (uint32_t i = 0; i < n; i++) vec_push(r->box->a, &r->strings, s[i]);
  return at;
}

// Position in the program's dims of a dim of the module.
static uint32_t dim_at(const CgProgram *p, const DimTab *from, int64_t i) {
  uint32_t at = 0;
  bool found = dim_find_sym(p->dims, from->syms.at[i].name, &at);
  assert(found);
  (void)found;
  return at;
}

static uint32_t words_of(int64_t op) {
  return op == ATTN_X_SHAPE || op == ATTN_X_STRIDE   ? 2
         : op >= ATTN_X_CONST && op <= ATTN_X_SCALAR ? 1
                                                     : 0;
}

// e counts the dims of `from`, or the program's own if that is NULL.
static uint32_t expression(Records *r, const CgProgram *p, const DimTab *from,
                           CgExpr e) {
  uint32_t at = r->code.n;
  if (!e.n) return ATTN_NONE;
  for (uint32_t i = 0; i < e.n; i++) {
    int64_t op = e.at[i];
    vec_push(r->box->a, &r->code, op);
    for (uint32_t k = words_of(op); k > 0; k--) {
      int64_t w = e.at[++i];
      if (op == ATTN_X_DIM && from) w = dim_at(p, from, w);
      vec_push(r->box->a, &r->code, w);
    }
  }
  vec_push(r->box->a, &r->code, ATTN_X_END);
  return at;
}

static uint32_t dim_list(Records *r, const Unit *u) {
  uint32_t at = r->code.n, n = u->dev->dims->syms.n;
  vec_push(r->box->a, &r->code, n);
  for (uint32_t i = 0; i < n; i++)
    vec_push(r->box->a, &r->code, dim_at(u->prog, u->dev->dims, i));
  return at;
}

// ---------------------------------------------------------------- records
uint32_t cg_block_bytes(const CgProgram *p, uint32_t ndims, uint32_t nmaps) {
  uint32_t n = 8 * (4 + ndims);
  for (uint32_t i = 0; i < p->nparams; i++) {
    const Type *t = &p->params[i].type;
    n += t->kind == TK_TENSOR ? 8 + 16 * t->n : 8;
  }
  return ((n + 63) & ~63u) + nmaps * ATTN_MAP_BYTES;
}

static bool fits(Box *b, const Unit *u, const CgPhase *p, uint32_t bytes) {
  const char *wrong = NULL;
  if (bytes > ATTN_MAX_BLOCK) wrong = "a kernel has too many parameters";
  if (p->nmaps > ATTN_MAX_MAPS) wrong = "a kernel has too many tensor maps";
  if (u->dev->nphases > ATTN_MAX_PHASES) wrong = "it has too many kernels";
  assert(p->nnumbers <= ATTN_MAX_NUMBERS);
  if (wrong) diag_add(b->cx, DIAG_cg_input, NOWHERE, u->prog->name, wrong);
  return !wrong;
}

static attn_gpu_map map_of(Records *r, const Unit *u, const CgPhase *p,
                           uint32_t i) {
  attn_gpu_map m = p->maps[i];
  if (m.tensor != ATTN_NONE) return m;
  const CgPlace *at = &p->places[i];
  m.place = expression(r, u->prog, u->dev->dims, at->at);
  for (uint32_t k = 0; k < m.rank; k++)
    m.extent[k] = expression(r, u->prog, u->dev->dims, at->extent[k]);
  return m;
}

static uint32_t number_list(Records *r, const Unit *u, const CgPhase *p) {
  uint32_t at[ATTN_MAX_NUMBERS];
  for (uint32_t i = 0; i < p->nnumbers; i++)
    at[i] = expression(r, u->prog, u->dev->dims, p->numbers[i]);
  uint32_t list = r->code.n;
  if (p->nnumbers) vec_push(r->box->a, &r->code, p->nnumbers);
  for (uint32_t i = 0; i < p->nnumbers; i++)
    vec_push(r->box->a, &r->code, at[i]);
  return p->nnumbers ? list : 0;
}

static bool add_phase(Records *r, const Unit *u, uint32_t number) {
  const CgDevice *d = u->dev;
  const CgPhase *p = &d->phases[number];
  uint32_t words = d->dims->syms.n + p->nnumbers;
  uint32_t bytes = cg_block_bytes(u->prog, words, p->nmaps);
  uint32_t own = d->parts ? ATTN_GPU_OWN : 0;
  if (!fits(r->box, u, p, bytes)) return false;
  attn_gpu_phase x = {.symbol = name(r, p->name),
                      .threads = p->threads,
                      .ntasks = expression(r, u->prog, d->dims, p->ntasks),
                      .shared_bytes = p->shared_bytes,
                      .ctas = (uint16_t)p->ctas,
                      .flags = (uint16_t)(p->flags | own),
                      .block_bytes = bytes,
                      .map = r->maps.n,
                      .nmaps = p->nmaps,
                      .code = own ? u->part[number] : 0,
                      .makes = {(uint32_t)p->makes, (uint32_t)(p->makes >> 32)},
                      .numbers = number_list(r, u, p)};
  vec_push(r->box->a, &r->phases, x);
  for (uint32_t i = 0; i < p->nmaps; i++)
    vec_push(r->box->a, &r->maps, map_of(r, u, p, i));
  return true;
}

static bool add_unit(Records *r, const Unit *u) {
  const CgDevice *d = u->dev;
  attn_gpu_variant v = {.program = name(r, u->prog->name),
                        .when = expression(r, u->prog, NULL, d->when),
                        .dims = dim_list(r, u),
                        .workspace =
                            expression(r, u->prog, d->dims, d->workspace),
                        .phase = r->phases.n,
                        .nphases = d->nphases,
                        .code = {u->code[0], u->code[1]}};
  vec_push(r->box->a, &r->variants, v);
  for (uint32_t i = 0; i < d->nphases; i++)
    if (!add_phase(r, u, i)) return false;
  return true;
}

static void put(Buf *b, const void *at, size_t n) {
  if (n) buf_add(b, at, n);
}

static void pad(Buf *b, size_t to) {
  while (b->n % to) buf_char(b, 0);
}

static attn_table put_table(Buf *b, const void *at, uint32_t n, size_t size) {
  pad(b, 8);
  attn_table t = {(uint32_t)b->n, n, (uint32_t)size};
  put(b, at, n * size);
  return t;
}

static CgBytes put_records(const Records *r) {
  Buf b = {.arena = r->box->a};
  attn_kernels_header h = {.reserved = 0};
#define TABLE(x) put_table(&b, r->x.at, r->x.n, sizeof *r->x.at)
  put(&b, &h, sizeof h);
  h.variants = TABLE(variants);
  h.phases = TABLE(phases);
  h.maps = TABLE(maps);
  h.code = TABLE(code);
  h.strings = TABLE(strings);
#undef TABLE
  memcpy(b.at, &h, sizeof h);
  return (CgBytes){b.at, b.n};
}

// ---------------------------------------------------------------- sections
static uint32_t add_section(Box *b, uint32_t kind, uint32_t target, CgBytes x) {
  attn_section s = {.kind = kind, .target = target, .length = x.n};
  vec_push(b->a, &b->table, s);
  vec_push(b->a, &b->body, x);
  return b->table.n - 1;
}

// Equal code is stored once.
static uint32_t add_code(Box *b, uint32_t kind, uint32_t target, CgBytes x) {
  if (!x.n) return ATTN_NONE;
  for (uint32_t i = 0; i < b->table.n; i++)
    if (b->table.at[i].kind == kind && b->table.at[i].target == target &&
        b->body.at[i].n == x.n && !memcmp(b->body.at[i].at, x.at, x.n))
      return i;
  return add_section(b, kind, target, x);
}

static bool amd(uint32_t target) {
  return target >> 16 == 2;
}

static bool add_target(Box *b, uint32_t target) {
  Records r = {.box = b};
  for (uint32_t i = 0; i < b->units.n; i++) {
    Unit *u = &b->units.at[i];
    const CgDevice *d = u->dev;
    if (d->target != target) continue;
    u->code[0] = add_code(b, amd(target) ? ATTN_SEC_HSACO : ATTN_SEC_CUBIN,
                          target, d->binary);
    for (uint32_t k = 0; d->parts && k < d->nphases && k < ATTN_MAX_PHASES; k++)
      u->part[k] = add_code(b, ATTN_SEC_CUBIN, target, d->parts[k]);
    u->code[1] = add_code(b, ATTN_SEC_PTX, target, d->text);
    if (!add_unit(&r, u)) return false;
  }
  add_section(b, ATTN_SEC_KERNELS, target, put_records(&r));
  return true;
}

static bool is_first(const Box *b, uint32_t i) {
  for (uint32_t k = 0; k < i; k++)
    if (b->units.at[k].dev->target == b->units.at[i].dev->target) return false;
  return true;
}

// ---------------------------------------------------------------- container
static void put_container(Box *b, Buf *out) {
  size_t start = out->n, table = start + sizeof(attn_container_header);
  attn_container_header h = {.major = ATTN_CONTAINER_MAJOR,
                             .minor = ATTN_CONTAINER_MINOR,
                             .nsections = b->table.n,
                             .section_size = sizeof(attn_section)};
  memcpy(h.magic, ATTN_MAGIC, sizeof h.magic);
  put(out, &h, sizeof h);
  for (uint32_t i = 0; i < b->table.n; i++)
    put(out, &b->table.at[i], sizeof b->table.at[i]);
  for (uint32_t i = 0; i < b->body.n; i++) {
    while ((out->n - start) % 16) buf_char(out, 0);
    b->table.at[i].offset = out->n - start;
    put(out, b->body.at[i].at, b->body.at[i].n);
  }
  h.length = out->n - start;
  if (b->table.n)
    memcpy(out->at + table, b->table.at, b->table.n * sizeof *b->table.at);
  memcpy(out->at + start, &h, sizeof h);
  h.hash = attn_container_hash(out->at + start, h.length);
  memcpy(out->at + start, &h, sizeof h);
}

static void add_program(Box *b, const CgProgram *p) {
  Buf text = {.arena = b->a};
  if (!p->ndevices) return;
  cg_describe(b->cx, p, &text);
  add_section(b, ATTN_SEC_PROGRAM, 0, (CgBytes){text.at, text.n});
}

bool cg_container(Ctx *cx, const CgProgram *progs, uint32_t n, Buf *out) {
  Box b = {.cx = cx, .a = &cx->scratch};
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < progs[i].ndevices; k++) {
      Unit u = {&progs[i], &progs[i].devices[k], {ATTN_NONE, ATTN_NONE}, {0}};
      vec_push(b.a, &b.units, u);
    }
  for (uint32_t i = 0; i < b.units.n; i++)
    if (is_first(&b, i) && !add_target(&b, b.units.at[i].dev->target))
      return false;
  for (uint32_t i = 0; i < n; i++) add_program(&b, &progs[i]);
  put_container(&b, out);
  return true;
}
