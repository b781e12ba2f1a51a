// The folder of compiled objects: $ATTNC_CACHE (empty: none), else attnc below
// $XDG_CACHE_HOME or ~/.cache. A file has the whole key beside its bytes, so
// that two keys of one hash are told apart, and is read only where its length
// and hash are right. The oldest go when there are many bytes.
#include "tools/attnc/cache.h"

#include "codegen/codegen.h"
#include "ir/core/outfile.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_BYTES ((int64_t)1 << 30)
#define PRUNE_EACH 32  // files that are kept: there may be tens of thousands
static const char magic[] = "attnc cache 1\n", ending[] = ".attnc";

static const char *folder_of(Arena *a) {
  const char *named = getenv("ATTNC_CACHE"), *xdg = getenv("XDG_CACHE_HOME");
  const char *home = getenv("HOME");
  if (named) return *named ? named : NULL;
  if (xdg && *xdg == '/') return arena_printf(a, "%s/attnc/objects", xdg);
  return home && *home ? arena_printf(a, "%s/.cache/attnc/objects", home)
                       : NULL;
}

// ---------------------------------------------------------------- key
static void put_FLAG(Buf *b, const char *name, const OptFLAG *v) {
  if (*v) buf_printf(b, "%s\n", name);
}

static void put_STR(Buf *b, const char *name, const OptSTR *v) {
  if (*v) buf_printf(b, "%s=%s\n", name, *v);
}

static void put_CHOICE(Buf *b, const char *name, const OptCHOICE *v) {
  put_STR(b, name, v);
}

static void put_MAYBE(Buf *b, const char *name, const OptMAYBE *v) {
  put_STR(b, name, v);
}

static void put_INT(Buf *b, const char *name, const OptINT *v) {
  if (*v) buf_printf(b, "%s=%lld\n", name, (long long)*v);
}

static void put_FLOAT(Buf *b, const char *name, const OptFLOAT *v) {
  if (*v != 0) buf_printf(b, "%s=%a\n", name, *v);
}

static void put_LIST(Buf *b, const char *name, const OptLIST *v) {
  for (uint32_t i = 0; i < v->n; i++) put_STR(b, name, &v->at[i]);
}

// Every option, but for where results go and how they are told.
static void put_options(Buf *b, const Cli *cli) {
  static const char *const other[] = {
      "-o",      "--header",       "--jobs",       "-MD",
      "-MF",     "--error-format", "--color",      "--shared",
      "--quiet", "--Werror",       "--max-memory", "--max-seconds",
      "-I"};
#define OPT(name, alias, field, kind, value, commands, help) \
  { \
    bool matters = true; \
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) \
      matters = matters && strcmp(other[i], name) != 0; \
    if (matters) put_##kind(b, name, &cli->field); \
  }
#include "tools/attnc/options.def"
}

// A program as it is now.
static void put_file(Buf *b, const char *path) {
  struct stat st;
  if (!path || stat(path, &st) != 0) return;
  buf_printf(b, "%s %lld %lld %lld\n", path, (long long)st.st_size,
             (long long)st.st_mtim.tv_sec, (long long)st.st_mtim.tv_nsec);
}

static void put_compiler(Session *s, Buf *b) {
  char self[4096];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  self[n < 0 ? 0 : n] = 0;
  buf_printf(b, "attnc %s\n", drv_version());
  put_file(b, self);
  put_file(b, cg_ptxas_path(&s->cx));
  put_file(b, cg_lld_path(&s->cx));
}

static void put_sources(Session *s, Buf *b) {
  for (uint32_t i = 0; i < s->cx.sources.n; i++) {
    const Source *src = s->cx.sources.at[i];
    buf_printf(b, "source %s %u\n", path_stem(b->arena, src->path), src->len);
    buf_add(b, src->text, src->len);
  }
}

static void put_key(Session *s, Buf *b) {
  put_compiler(s, b);
  put_options(b, s->cli);
  if (s->cli->header) buf_str(b, "header\n");
  buf_printf(b, "prefix %s\n", path_stem(b->arena, s->cli->inputs.at[0]));
  put_sources(s, b);
}

// Whether something is to be printed that a file does not have.
static bool is_shown(const Cli *c) {
  return c->remarks || c->verify_each || c->print_after_all || c->time_passes ||
         c->dump_dir;
}

static Cache cache_of(Session *s) {
  Cache c = {.key.arena = &s->cx.session, .said = s->cx.diags.n};
  if (!s->cli->no_cache && !is_shown(s->cli))
    c.folder = folder_of(&s->cx.session);
  return c;
}

static void name_of(Session *s, Cache *c) {
  c->path = arena_printf(&s->cx.session, "%s/%016llx%016llx%s", c->folder,
                         (unsigned long long)map_hash(c->key.at, c->key.n, 0),
                         (unsigned long long)map_hash(c->key.at, c->key.n,
                                                      0x9e3779b97f4a7c15),
                         ending);
}

Cache cache_open(Session *s) {
  Cache c = cache_of(s);
  if (!c.folder) return c;
  put_key(s, &c.key);
  name_of(s, &c);
  return c;
}

// ---------------------------------------------------------------- files
typedef struct Head {
  char magic[sizeof magic];
  uint64_t key, out, header, hash;  // lengths; of all bytes behind
} Head;

static uint64_t hash_of(const char *bytes, size_t n) {
  return map_hash(bytes, n, 1);
}

bool cache_get(Session *s, const Cache *c, Buf *out, Buf *header) {
  uint32_t n = 0;
  Head h;
  if (!c->path) return false;
  const char *at =
      s->cx.read_file(s->cx.read_file_data, &s->cx.session, c->path, &n);
  if (!at || n < sizeof h) return false;
  memcpy(&h, at, sizeof h);
  at += sizeof h, n -= (uint32_t)sizeof h;
  if (memcmp(h.magic, magic, sizeof magic) != 0 || h.key != c->key.n ||
      h.out > n || h.header > n || h.key + h.out + h.header != n ||
      h.hash != hash_of(at, n) || memcmp(at, c->key.at, h.key) != 0)
    return false;
  buf_add(out, at + h.key, h.out);
  if (header) buf_add(header, at + h.key + h.out, h.header);
  utimensat(AT_FDCWD, c->path, NULL, 0);  // used last
  return true;
}

typedef struct Entry {
  const char *path;
  int64_t bytes, used;
} Entry;

static int by_use(const void *a, const void *b) {
  int64_t x = ((const Entry *)a)->used, y = ((const Entry *)b)->used;
  return (x > y) - (x < y);
}

// The oldest, until what is left is no more than the limit.
static void prune(Session *s, const char *folder) {
  Vec(Entry) all = {0};
  int64_t bytes = 0;
  DIR *d = opendir(folder);
  if (!d) return;
  for (struct dirent *e; (e = readdir(d));) {
    const char *dot = strrchr(e->d_name, '.');
    struct stat st;
    if (!dot || strcmp(dot, ending) != 0) continue;
    char *path = arena_printf(&s->cx.session, "%s/%s", folder, e->d_name);
    if (stat(path, &st) != 0) continue;
    Entry entry = {path, st.st_size, (int64_t)st.st_mtim.tv_sec};
    vec_push(&s->cx.session, &all, entry);
    bytes += st.st_size;
  }
  closedir(d);
  if (bytes > MAX_BYTES) qsort(all.at, all.n, sizeof *all.at, by_use);
  for (uint32_t i = 0; i < all.n && bytes > MAX_BYTES; i++) {
    unlink(all.at[i].path);
    bytes -= all.at[i].bytes;
  }
}

// What cannot be kept is not: the result is there all the same.
void cache_put(Session *s, const Cache *c, const Buf *out, const Buf *header) {
  if (!c->path || s->cx.diags.n != c->said) return;
  Buf b = {.arena = &s->cx.session};
  Head h = {.key = c->key.n, .out = out->n, .header = header ? header->n : 0};
  memcpy(h.magic, magic, sizeof magic);
  buf_add(&b, (const char *)&h, sizeof h);
  buf_add(&b, c->key.at, c->key.n);
  if (out->n) buf_add(&b, out->at, out->n);
  if (h.header) buf_add(&b, header->at, header->n);
  h.hash = hash_of(b.at + sizeof h, b.n - sizeof h);
  memcpy(b.at, &h, sizeof h);
  out_folder(c->folder);
  if (out_write(c->path, b.at, b.n) && h.hash % PRUNE_EACH == 0)
    prune(s, c->folder);
}

// ---------------------------------------------------------------- calls
typedef struct CallStore {
  DrvStore store;
  Session *s;
  Cache now;  // of the object that was looked for last
} CallStore;

static bool call_get(void *data, const Buf *key, Buf *out) {
  CallStore *k = data;
  k->now = cache_of(k->s);
  put_compiler(k->s, &k->now.key);
  put_sources(k->s, &k->now.key);
  buf_str(&k->now.key, "call\n");
  buf_add(&k->now.key, key->at, key->n);
  name_of(k->s, &k->now);
  return cache_get(k->s, &k->now, out, NULL);
}

static void call_put(void *data, const Buf *key, const Buf *bytes) {
  CallStore *k = data;
  (void)key;
  cache_put(k->s, &k->now, bytes, NULL);
}

const DrvStore *cache_store(Session *s) {
  if (!cache_of(s).folder) return NULL;
  CallStore *k = NEW(&s->cx.session, CallStore);
  k->s = s;
  k->store = (DrvStore){call_get, call_put, k};
  return &k->store;
}
