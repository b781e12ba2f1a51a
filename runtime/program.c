// Programs that a container describes: sections of kind ATTN_SEC_PROGRAM are
// copied and checked, so that launches need not distrust them; and what a
// program looks like as text.
#include "rt.h"

#include <stdio.h>
#include <string.h>

enum { MAX_CHECKS = 4096, MAX_WORDS = 1 << 20 };

// One block: this, then the tables it points to.
typedef struct Copy {
  attn_program prog;
  size_t size;
} Copy;

typedef struct Parts {
  const uint8_t *at;  // the section
  attn_program_record h;
  const char *names;
  attn_param_desc *params;
  attn_dim_desc *dims;
  uint32_t *checks;
  int64_t *code;
  char *strings;
} Parts;

// ---- tables

static bool sound(const attn_section_info *s, const attn_program_record *h) {
  return rt_table_sound(s->size, &h->params, sizeof(attn_param_record)) &&
         rt_table_sound(s->size, &h->dims, sizeof(attn_dim_record)) &&
         rt_table_sound(s->size, &h->checks, 4) && h->checks.size == 4 &&
         rt_table_sound(s->size, &h->code, 8) && h->code.size == 8 &&
         rt_table_sound(s->size, &h->strings, 1) && h->strings.size == 1 &&
         h->params.n <= ATTN_MAX_PARAMS && h->dims.n <= ATTN_MAX_DIMS &&
         h->checks.n <= MAX_CHECKS && h->code.n <= MAX_WORDS &&
         h->strings.n > 0 &&
         !((const char *)s->data)[h->strings.at + h->strings.n - 1];
}

// Readers of an expression may look at the two words behind its first.
enum { PAD = 3 };

static size_t room(const attn_program_record *h) {
  return sizeof(Copy) + h->params.n * sizeof(attn_param_desc) +
         h->dims.n * sizeof(attn_dim_desc) + (h->code.n + PAD) * 8 +
         h->checks.n * 4 + h->strings.n;
}

static void divide(Copy *c, Parts *p) {
  p->params = (attn_param_desc *)(c + 1);
  p->dims = (attn_dim_desc *)(p->params + p->h.params.n);
  p->code = (int64_t *)(p->dims + p->h.dims.n);
  p->checks = (uint32_t *)(p->code + p->h.code.n + PAD);
  p->strings = (char *)(p->checks + p->h.checks.n);
  memset(p->code, 0, (p->h.code.n + PAD) * 8);
  memcpy(p->code, p->at + p->h.code.at, (size_t)p->h.code.n * 8);
  memcpy(p->checks, p->at + p->h.checks.at, (size_t)p->h.checks.n * 4);
  memcpy(p->strings, p->at + p->h.strings.at, p->h.strings.n);
}

// ---- records

static bool word(const Parts *p, uint32_t at) {
  return at == ATTN_NONE || at < p->h.code.n;
}

static bool list(const Parts *p, uint32_t at) {
  return at == ATTN_NONE || (at < p->h.code.n && p->code[at] >= 0 &&
                             p->code[at] < p->h.code.n - at);
}

// Fields of an S_P_args lie where the compiler of its header puts them.
static bool place(const attn_param_desc *d, uint32_t *end) {
  bool narrow = d->dtype > ATTN_F64 && d->dtype < ATTN_I64;
  bool tensor = d->kind != ATTN_PARAM_SCALAR;
  uint32_t size = tensor ? (uint32_t)sizeof(attn_tensor) : narrow ? 4 : 8;
  uint32_t align = !tensor && narrow ? 4 : 8;
  uint32_t at = (*end + align - 1) & ~(align - 1);
  *end = at + size;
  return d->offset == at;
}

static bool read_param(Parts *p, uint32_t i, uint32_t *end) {
  attn_param_record r;
  memcpy(&r, p->at + p->h.params.at + (size_t)i * p->h.params.size, sizeof r);
  if (r.name >= p->h.strings.n || r.kind > ATTN_PARAM_SCALAR ||
      r.dtype >= ATTN_DTYPE_COUNT || r.rank > ATTN_MAX_RANK ||
      (r.kind == ATTN_PARAM_SCALAR && r.rank))
    return false;
  attn_param_desc *d = &p->params[i];
  *d = (attn_param_desc){.name = p->strings + r.name,
                         .kind = r.kind,
                         .dtype = r.dtype,
                         .rank = r.rank,
                         .flags = r.flags,
                         .offset = r.offset,
                         .def = r.def};
  memcpy(d->axis, r.axis, sizeof d->axis);
  for (int k = 0; k < ATTN_MAX_RANK; k++)
    if (!word(p, r.axis[k])) return false;
  return place(d, end);
}

static uint32_t count_tensors(const Parts *p) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->h.params.n; i++)
    n += p->params[i].kind != ATTN_PARAM_SCALAR;
  return n;
}

static bool read_dim(Parts *p, uint32_t i) {
  attn_dim_record r;
  memcpy(&r, p->at + p->h.dims.at + (size_t)i * p->h.dims.size, sizeof r);
  p->dims[i] = (attn_dim_desc){.lo = r.lo,
                               .hi = r.hi,
                               .divisor = r.divisor,
                               .kind = r.kind,
                               .values = r.values,
                               .by = r.by,
                               .by_offsets = r.by_offsets};
  if (r.name >= p->h.strings.n || r.kind > ATTN_DIM_RAGGED || r.divisor < 1 ||
      !list(p, r.values) || r.by_offsets > 1 ||
      (r.by != ATTN_NONE && r.by >= count_tensors(p)))
    return false;
  p->dims[i].name = p->strings + r.name;
  return true;
}

static bool read_all(Parts *p) {
  uint32_t end = sizeof(attn_args);
  for (uint32_t i = 0; i < p->h.params.n; i++)
    if (!read_param(p, i, &end)) return false;
  for (uint32_t i = 0; i < p->h.dims.n; i++)
    if (!read_dim(p, i)) return false;
  for (uint32_t i = 0; i < p->h.checks.n; i++)
    if (p->checks[i] >= p->h.code.n) return false;
  return p->h.args_size == ((end + 7) & ~7u) && p->h.name < p->h.strings.n;
}

static attn_program program(const Parts *p, const void *container) {
  return (attn_program){.abi = p->h.abi,
                        .size = sizeof(attn_program),
                        .name = p->strings + p->h.name,
                        .nparams = p->h.params.n,
                        .ndims = p->h.dims.n,
                        .nchecks = p->h.checks.n,
                        .params = p->params,
                        .dims = p->dims,
                        .checks = p->checks,
                        .code = p->code,
                        .ncode = p->h.code.n,
                        .args_size = p->h.args_size,
                        .container = container};
}

int rt_program_read(attn_ctx *cx, const attn_section_info *s,
                    const void *container, attn_program **out,
                    attn_error *err) {
  Parts p = {.at = s->data};
  if (s->size < sizeof p.h)
    return rt_fail(err, ATTN_E_FORMAT, "a program's description is cut off");
  memcpy(&p.h, s->data, sizeof p.h);
  if (p.h.abi >> 16 != ATTN_ABI_MAJOR)
    return rt_fail(err, ATTN_E_ABI,
                   "the code has ABI version %u.%u, this runtime %d.%d",
                   p.h.abi >> 16, p.h.abi & 0xffff, ATTN_ABI_MAJOR,
                   ATTN_ABI_MINOR);
  if (!sound(s, &p.h))
    return rt_fail(err, ATTN_E_FORMAT,
                   "a program's description lies outside its section");
  Copy *c = rt_alloc(cx, room(&p.h));
  if (!c) return rt_fail(err, ATTN_E_MEMORY, "no memory for a program");
  c->size = room(&p.h);
  divide(c, &p);
  if (!read_all(&p)) {
    rt_free(cx, c, c->size);
    return rt_fail(err, ATTN_E_FORMAT, "invalid description of a program");
  }
  c->prog = program(&p, container);
  *out = &c->prog;
  return rt_ok(err);
}

void rt_program_free(attn_ctx *cx, attn_program *p) {
  if (p) rt_free(cx, p, ((Copy *)p)->size);
}

// ---- text

typedef struct Text {
  char *at;
  size_t n, len;  // len: of everything, also of what was cut
} Text;

static void add(Text *t, const char *s) {
  size_t n = strlen(s);
  if (t->len < t->n) {
    size_t fit = t->n - t->len - 1;
    memcpy(t->at + t->len, s, n < fit ? n : fit);
    t->at[t->len + (n < fit ? n : fit)] = 0;
  }
  t->len += n;
}

static void add_default(Text *t, const attn_param_desc *d) {
  char s[40];
  if (d->flags & ATTN_PARAM_COMPUTED || !d->def.i64) return;
  if (d->dtype >= ATTN_I64)
    snprintf(s, sizeof s, " = %lld", (long long)d->def.i64);
  else
    snprintf(s, sizeof s, " = %g",
             d->dtype == ATTN_F64 ? d->def.f64 : (double)d->def.f32);
  add(t, s);
}

static void add_param(Text *t, const attn_program *p,
                      const attn_param_desc *d) {
  char axis[160];
  add(t, d->name);
  add(t, ": ");
  add(t, attn_dtype_name(d->dtype));
  for (uint32_t k = 0; k < d->rank; k++) {
    add(t, k ? ", " : "[");
    if (d->axis[k] == ATTN_NONE) snprintf(axis, sizeof axis, "*");
    else rt_expr_text(p, d->axis[k], axis, sizeof axis);
    add(t, axis);
  }
  if (d->rank) add(t, "]");
  if (d->flags & ATTN_PARAM_OPTIONAL) add(t, "?");
  add_default(t, d);
}

static void add_params(Text *t, const attn_program *p, bool outputs) {
  const char *before = "";
  for (uint32_t i = 0; i < p->nparams; i++) {
    const attn_param_desc *d = &p->params[i];
    if ((d->kind == ATTN_PARAM_OUT) != outputs) continue;
    add(t, before);
    add(t, d->kind == ATTN_PARAM_INOUT ? "inout " : "");
    add_param(t, p, d);
    before = ", ";
  }
}

size_t attn_signature(const attn_program *prog, char *buf, size_t n) {
  Text t = {buf, buf ? n : 0, 0};
  if (!prog) return 0;
  if (t.n) buf[0] = 0;
  add(&t, prog->name);
  add(&t, "(");
  add_params(&t, prog, false);
  add(&t, ") -> (");
  add_params(&t, prog, true);
  add(&t, ")");
  for (uint32_t i = 0; i < prog->nchecks; i++) {
    char text[160];
    rt_expr_text(prog, prog->checks[i], text, sizeof text);
    add(&t, i ? ", " : " where ");
    add(&t, text);
  }
  return t.len;
}
