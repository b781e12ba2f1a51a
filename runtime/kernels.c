// Records of device kernels: copied out of the container and checked, so that
// launches need not distrust them.
#include "rt.h"

#include <stddef.h>
#include <string.h>

enum { MAX_RECORDS = 1 << 20 };

typedef struct Reader {
  const uint8_t *p;
  size_t n;
  char *to;  // where the next table's copy goes
} Reader;

// ---- tables

bool rt_table_sound(size_t section, const attn_table *t, size_t least) {
  return t->at % 8 == 0 && t->size >= least && t->size <= 4096 &&
         t->n <= MAX_RECORDS && t->at <= section &&
         (uint64_t)t->n * t->size <= section - t->at;
}

static bool sound(const Reader *r, const attn_table *t, size_t least) {
  return rt_table_sound(r->n, t, least);
}

// Records may have grown: their beginnings are what is known here.
static void *copy(Reader *r, const attn_table *t, size_t size) {
  char *at = r->to;
  size_t known = t->size < size ? t->size : size;
  for (uint32_t i = 0; i < t->n; i++) {
    memset(at + i * size, 0, size);
    memcpy(at + i * size, r->p + t->at + (size_t)i * t->size, known);
  }
  r->to += (t->n * size + 7) & ~(size_t)7;
  return at;
}

static size_t room(const attn_kernels_header *h) {
  return h->variants.n * sizeof(attn_gpu_variant) +
         h->phases.n * sizeof(attn_gpu_phase) +
         h->maps.n * sizeof(attn_gpu_map) + h->code.n * sizeof(int64_t) +
         h->strings.n + 8;
}

// ---- records

static bool named(const Kernels *k, uint32_t at) {
  return at < k->nstrings;
}

static bool expression(const Kernels *k, uint32_t at) {
  return at == ATTN_NONE || at < k->ncode;
}

static bool list(const Kernels *k, uint32_t at) {
  if (at == ATTN_NONE) return true;
  if (at >= k->ncode || k->code[at] < 0 || k->code[at] >= k->ncode - at ||
      k->code[at] > ATTN_MAX_DIMS)
    return false;
  for (int64_t i = 1; i <= k->code[at]; i++)
    if (k->code[at + i] < 0 || k->code[at + i] >= ATTN_MAX_DIMS) return false;
  return true;
}

static bool numbers(const Kernels *k, uint32_t at) {
  if (!at) return true;
  if (at >= k->ncode || k->code[at] < 0 || k->code[at] >= k->ncode - at ||
      k->code[at] > ATTN_MAX_NUMBERS)
    return false;
  for (int64_t i = 1; i <= k->code[at]; i++)
    if (k->code[at + i] < 0 || k->code[at + i] >= k->ncode) return false;
  return true;
}

static bool code(const attn_module *m, const Kernels *k, uint32_t at,
                 bool text) {
  const attn_section_info *s = rt_section(m, at);
  uint32_t binary = k->target >> 16 == 2 ? ATTN_SEC_HSACO : ATTN_SEC_CUBIN;
  return at == ATTN_NONE ||
         (s && s->target == k->target && s->size > 0 &&
          s->kind == (text ? (uint32_t)ATTN_SEC_PTX : binary));
}

bool rt_kernels_binary(const Kernels *k, const attn_gpu_variant *v) {
  bool all = true;
  for (uint32_t i = 0; i < v->nphases; i++)
    all &= (k->phases[v->phase + i].flags & ATTN_GPU_OWN) != 0;
  return all || v->code[0] != ATTN_NONE;
}

static bool check_variant(const attn_module *m, const Kernels *k,
                          const attn_gpu_variant *v) {
  return named(k, v->program) && expression(k, v->when) && list(k, v->dims) &&
         expression(k, v->workspace) && v->nphases >= 1 &&
         v->nphases <= ATTN_MAX_PHASES && v->phase <= k->nphases &&
         v->nphases <= k->nphases - v->phase &&
         (v->code[1] != ATTN_NONE || rt_kernels_binary(k, v)) &&
         code(m, k, v->code[0], false) && code(m, k, v->code[1], true);
}

static bool check_phase(const attn_module *m, const Kernels *k,
                        const attn_gpu_phase *p) {
  bool own = p->flags & ATTN_GPU_OWN;
  return (!own || (p->code != ATTN_NONE && code(m, k, p->code, false))) &&
         named(k, p->symbol) && p->ntasks < k->ncode && p->threads >= 1 &&
         p->threads <= 1024 && p->shared_bytes <= 1 << 20 &&
         p->ctas <= ATTN_CTAS_PERSISTENT && p->nmaps <= ATTN_MAX_MAPS &&
         p->block_bytes <= ATTN_MAX_BLOCK && p->map <= k->nmaps &&
         p->nmaps <= k->nmaps - p->map && numbers(k, p->numbers);
}

// In workspace: where and how large are expressions.
static bool check_place(const Kernels *k, const attn_gpu_map *m) {
  bool ok = m->place < k->ncode && m->dtype < ATTN_DTYPE_COUNT;
  for (uint32_t i = 0; ok && i < m->rank; i++) ok = m->extent[i] < k->ncode;
  return ok;
}

static bool check_map(const Kernels *k, const attn_gpu_map *m) {
  uint32_t seen = 0;
  bool made = m->tensor == ATTN_NONE;
  if ((!made && m->tensor >= ATTN_MAX_PARAMS) || m->rank < 1 ||
      m->rank > ATTN_MAP_RANK || (made && !check_place(k, m)) ||
      m->swizzle > 128 || (m->swizzle & (m->swizzle - 1)) || m->swizzle % 32)
    return false;
  for (uint32_t i = 0; i < m->rank; i++) {
    if (m->axis[i] >= m->rank || m->box[i] < 1 || m->box[i] > 256) return false;
    seen |= 1u << m->axis[i];
  }
  return seen == (1u << m->rank) - 1;
}

static bool check(const attn_module *m, const Kernels *k) {
  if (k->nstrings && k->strings[k->nstrings - 1]) return false;
  for (uint32_t i = 0; i < k->nvariants; i++)
    if (!check_variant(m, k, &k->variants[i])) return false;
  for (uint32_t i = 0; i < k->nphases; i++)
    if (!check_phase(m, k, &k->phases[i])) return false;
  for (uint32_t i = 0; i < k->nmaps; i++)
    if (!check_map(k, &k->maps[i])) return false;
  return true;
}

static bool tables(const Reader *r, const attn_kernels_header *h) {
  return sound(r, &h->variants, sizeof(attn_gpu_variant)) &&
         sound(r, &h->phases, offsetof(attn_gpu_phase, code)) &&
         sound(r, &h->maps, offsetof(attn_gpu_map, place)) &&
         sound(r, &h->code, sizeof(int64_t)) && h->code.size == 8 &&
         sound(r, &h->strings, 1) && h->strings.size == 1;
}

static void fill(Reader *r, const attn_kernels_header *h, Kernels *k) {
  k->variants = copy(r, &h->variants, sizeof *k->variants);
  k->phases = copy(r, &h->phases, sizeof *k->phases);
  k->maps = copy(r, &h->maps, sizeof *k->maps);
  k->code = copy(r, &h->code, sizeof *k->code);
  k->strings = copy(r, &h->strings, 1);
  k->nvariants = h->variants.n;
  k->nphases = h->phases.n;
  k->nmaps = h->maps.n;
  k->ncode = h->code.n;
  k->nstrings = h->strings.n;
}

int rt_kernels_read(attn_ctx *cx, const attn_module *m,
                    const attn_section_info *s, Kernels *out, attn_error *err) {
  attn_kernels_header h;
  Reader r = {s->data, s->size, NULL};
  *out = (Kernels){.target = s->target};
  if (s->size < sizeof h)
    return rt_fail(err, ATTN_E_FORMAT, "kernel records are cut off");
  memcpy(&h, s->data, sizeof h);
  if (!tables(&r, &h))
    return rt_fail(err, ATTN_E_FORMAT, "kernel records outside their section");
  out->owned_size = room(&h);
  out->owned = r.to = rt_alloc(cx, out->owned_size);
  if (!out->owned)
    return rt_fail(err, ATTN_E_MEMORY, "no memory for kernel records");
  fill(&r, &h, out);
  if (check(m, out)) return rt_ok(err);
  rt_kernels_free(cx, out);
  return rt_fail(err, ATTN_E_FORMAT, "invalid kernel records");
}

void rt_kernels_free(attn_ctx *cx, Kernels *k) {
  rt_free(cx, k->owned, k->owned_size);
  *k = (Kernels){.target = k->target};
}
