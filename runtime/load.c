// Containers: every byte is distrusted until the header, the hash and the
// section table have been checked.
#include "rt.h"

#define XXH_INLINE_ALL  // header only: applications link nothing more
#include <xxhash.h>

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FILE ((size_t)1 << 31)
#define MAX_SECTIONS 65536u
#define PAYLOAD_ALIGN 16u

typedef struct Section {
  attn_section_info info;
  uint32_t number;  // in the container's table
} Section;

struct attn_module {
  attn_ctx *cx;
  void *owned;  // file contents, or NULL
  size_t owned_size, size;
  attn_program **programs;  // nprograms
  uint32_t nprograms, room, count;
  Section sections[];  // of the known kinds, in file order
};

// Little-endian whatever the host is; p may be unaligned.
static uint64_t get(const uint8_t *p, size_t bytes) {
  uint64_t v = 0;
  for (size_t i = bytes; i-- > 0;) v = v << 8 | p[i];
  return v;
}
#define GET(base, type, field) \
  get((base) + offsetof(type, field), sizeof(((type *)0)->field))

typedef struct Header {
  uint32_t major, nsections, stride;
  uint64_t length, hash;
} Header;

uint64_t attn_container_hash(const void *bytes, size_t n) {
  const uint8_t *p = bytes;
  const uint8_t zero[8] = {0};
  size_t at = offsetof(attn_container_header, hash);
  XXH3_state_t st;
  XXH3_64bits_reset(&st);
  XXH3_64bits_update(&st, p, at);
  XXH3_64bits_update(&st, zero, sizeof zero);
  XXH3_64bits_update(&st, p + at + sizeof zero, n - at - sizeof zero);
  return XXH3_64bits_digest(&st);
}

static int read_header(const uint8_t *p, size_t n, Header *h, attn_error *err) {
  if (n < sizeof(attn_container_header) || memcmp(p, ATTN_MAGIC, 4) != 0)
    return rt_fail(err, ATTN_E_FORMAT, "not an attn container");
  *h = (Header){.major = (uint32_t)GET(p, attn_container_header, major),
                .nsections = (uint32_t)GET(p, attn_container_header, nsections),
                .stride = (uint32_t)GET(p, attn_container_header, section_size),
                .length = GET(p, attn_container_header, length),
                .hash = GET(p, attn_container_header, hash)};
  if (h->major != ATTN_CONTAINER_MAJOR)
    return rt_fail_at(err, ATTN_E_ABI,
                      (Where){-1, -1, ATTN_CONTAINER_MAJOR, h->major},
                      "container version %u, this runtime reads %d", h->major,
                      ATTN_CONTAINER_MAJOR);
  if (h->length < sizeof(attn_container_header) || h->length > n)
    return rt_fail_at(err, ATTN_E_FORMAT,
                      (Where){-1, -1, (int64_t)h->length, (int64_t)n},
                      "truncated container: %zu bytes of %llu", n,
                      (unsigned long long)h->length);
  if (h->hash != attn_container_hash(p, (size_t)h->length))
    return rt_fail(err, ATTN_E_FORMAT, "damaged container: wrong hash");
  return ATTN_OK;
}

// Also checked where the hash is right: a wrong writer must not crash readers.
static int check_table(const uint8_t *p, const Header *h, attn_error *err) {
  uint64_t table = sizeof(attn_container_header);
  uint64_t end = table + (uint64_t)h->nsections * h->stride;
  if (h->nsections > MAX_SECTIONS || h->stride < sizeof(attn_section) ||
      h->stride > 4096 || end > h->length)
    return rt_fail(err, ATTN_E_FORMAT, "section table outside the container");
  for (uint32_t i = 0; i < h->nsections; i++) {
    const uint8_t *s = p + table + (size_t)i * h->stride;
    uint64_t off = GET(s, attn_section, offset);
    uint64_t len = GET(s, attn_section, length);
    if (off < end || off % PAYLOAD_ALIGN || off > h->length ||
        len > h->length - off)
      return rt_fail(err, ATTN_E_FORMAT, "section %u outside the container", i);
  }
  return ATTN_OK;
}

static bool known_kind(uint64_t kind) {
  return kind >= ATTN_SEC_META && kind < ATTN_SEC_COUNT;
}

static attn_module *index_sections(attn_ctx *cx, const uint8_t *p,
                                   const Header *h, attn_error *err) {
  size_t size = sizeof(attn_module) + h->nsections * sizeof(Section);
  attn_module *m = rt_alloc(cx, size);
  if (!m) {
    rt_fail(err, ATTN_E_MEMORY, "no memory for a module");
    return NULL;
  }
  *m = (attn_module){.cx = cx, .size = size};
  for (uint32_t i = 0; i < h->nsections; i++) {
    const uint8_t *s =
        p + sizeof(attn_container_header) + (size_t)i * h->stride;
    if (known_kind(GET(s, attn_section, kind)))
      m->sections[m->count++] =
          (Section){{.kind = (uint32_t)GET(s, attn_section, kind),
                     .target = (uint32_t)GET(s, attn_section, target),
                     .data = p + GET(s, attn_section, offset),
                     .size = (size_t)GET(s, attn_section, length)},
                    i};
  }
  rt_ok(err);
  return m;
}

attn_module *rt_module_load(attn_ctx *cx, const void *bytes, size_t size,
                            attn_error *err) {
  Header h = {0};
  if (read_header(bytes, size, &h, err) || check_table(bytes, &h, err))
    return NULL;
  return index_sections(cx, bytes, &h, err);
}

// ---- programs

static uint32_t count_kind(const attn_module *m, uint32_t kind) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->count; i++) n += m->sections[i].info.kind == kind;
  return n;
}

static int read_programs(attn_module *m, const void *container,
                         attn_error *err) {
  uint32_t n = count_kind(m, ATTN_SEC_PROGRAM);
  if (!n) return ATTN_OK;
  m->programs = rt_alloc(m->cx, n * sizeof *m->programs);
  if (!m->programs)
    return rt_fail(err, ATTN_E_MEMORY, "no memory for a module");
  m->room = n;
  for (uint32_t i = 0; i < m->count; i++) {
    if (m->sections[i].info.kind != ATTN_SEC_PROGRAM) continue;
    int rc = rt_program_read(m->cx, &m->sections[i].info, container,
                             &m->programs[m->nprograms], err);
    if (rc) return rc;
    m->nprograms++;
  }
  return ATTN_OK;
}

attn_module *attn_module_load(attn_ctx *ctx, const void *bytes, size_t size,
                              attn_error *err) {
  attn_ctx *cx = ctx ? ctx : attn_ctx_default();
  if (!cx || !bytes) {
    rt_fail(err, cx ? ATTN_E_ARGUMENT : ATTN_E_MEMORY,
            cx ? "no container" : "no memory for a context");
    return NULL;
  }
  attn_module *m = rt_module_load(cx, bytes, size, err);
  if (!m || !read_programs(m, bytes, err)) return m;
  attn_module_close(m);
  return NULL;
}

uint32_t attn_module_programs(const attn_module *m) {
  return m->nprograms;
}

const attn_program *attn_module_program(const attn_module *m, uint32_t i) {
  return i < m->nprograms ? m->programs[i] : NULL;
}

const attn_program *attn_module_program_named(const attn_module *m,
                                              const char *name) {
  for (uint32_t i = 0; name && i < m->nprograms; i++)
    if (!strcmp(m->programs[i]->name, name)) return m->programs[i];
  return NULL;
}

// ---- files

static int file_size(FILE *f, const char *path, size_t *n, attn_error *err) {
  struct stat st;
  if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode))
    return rt_fail(err, ATTN_E_IO, "%.200s: not a regular file", path);
  if ((uintmax_t)st.st_size > MAX_FILE)
    return rt_fail(err, ATTN_E_FORMAT, "%.200s: larger than 2 GiB", path);
  *n = (size_t)st.st_size;
  return ATTN_OK;
}

static void *read_all(attn_ctx *cx, FILE *f, const char *path, size_t *n,
                      attn_error *err) {
  if (file_size(f, path, n, err)) return NULL;
  void *p = rt_alloc(cx, *n + 1);  // never 0 bytes
  if (!p) {
    rt_fail(err, ATTN_E_MEMORY, "no memory for %.200s", path);
    return NULL;
  }
  if (fread(p, 1, *n, f) == *n) return p;
  rt_fail(err, ATTN_E_IO, "%.200s: read error", path);
  rt_free(cx, p, *n + 1);
  return NULL;
}

attn_module *attn_module_open(attn_ctx *ctx, const char *path,
                              attn_error *err) {
  attn_ctx *cx = ctx ? ctx : attn_ctx_default();
  FILE *f = cx && path ? fopen(path, "rb") : NULL;
  if (!f) {
    int code = !cx ? ATTN_E_MEMORY : path ? ATTN_E_IO : ATTN_E_ARGUMENT;
    rt_fail(err, code, "cannot open %.200s: %s", path ? path : "(null)",
            strerror(cx && path ? errno
                     : cx       ? EINVAL
                                : ENOMEM));
    return NULL;
  }
  size_t n = 0;
  void *p = read_all(cx, f, path, &n, err);
  fclose(f);
  attn_module *m = p ? attn_module_load(cx, p, n, err) : NULL;
  if (m) {
    m->owned = p;
    m->owned_size = n + 1;
  } else if (p) {
    rt_free(cx, p, n + 1);
  }
  return m;
}

void attn_module_close(attn_module *m) {
  if (!m) return;
  for (uint32_t i = 0; i < m->nprograms; i++)
    rt_program_free(m->cx, m->programs[i]);
  rt_free(m->cx, m->programs, m->room * sizeof *m->programs);
  rt_free(m->cx, m->owned, m->owned_size);
  rt_free(m->cx, m, m->size);
}

uint32_t attn_module_count(const attn_module *m) {
  return m->count;
}

int attn_module_section(const attn_module *m, uint32_t i,
                        attn_section_info *out) {
  if (i >= m->count) return ATTN_E_ARGUMENT;
  *out = m->sections[i].info;
  return ATTN_OK;
}

const attn_section_info *rt_section(const attn_module *m, uint32_t number) {
  for (uint32_t i = 0; i < m->count; i++)
    if (m->sections[i].number == number) return &m->sections[i].info;
  return NULL;
}

int attn_module_find(const attn_module *m, uint32_t kind, uint32_t target,
                     attn_section_info *out) {
  for (uint32_t i = 0; i < m->count; i++)
    if (m->sections[i].info.kind == kind &&
        m->sections[i].info.target == target)
      return attn_module_section(m, i, out);
  return ATTN_E_UNSUPPORTED;
}
