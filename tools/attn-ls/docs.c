// Documents: the client's texts, edits, and positions in them.
#include "tools/attn-ls/server.h"

#include "frontend/embed.h"

#include <dirent.h>
#include <sys/stat.h>

// ---------------------------------------------------------------- positions
static bool ends_line(const char *s, uint32_t i, uint32_t len) {
  return s[i] == '\n' || (s[i] == '\r' && !(i + 1 < len && s[i + 1] == '\n'));
}

Lines ls_lines_of(Arena *a, const char *text, uint32_t len) {
  Lines l = {.text = text, .len = len, .n = 1};
  for (uint32_t i = 0; i < len; i++) l.n += ends_line(text, i, len);
  l.at = NEWN(a, uint32_t, l.n);
  uint32_t n = 1;
  for (uint32_t i = 0; i < len; i++)
    if (ends_line(text, i, len)) l.at[n++] = i + 1;
  return l;
}

static bool inside(char c) {
  return ((unsigned char)c & 0xc0) == 0x80;
}

// Units of the character that starts with byte c.
static uint32_t units(Encoding enc, char c) {
  return enc == ENC_UTF16 && (unsigned char)c >= 0xf0 ? 2 : 1;
}

Pos ls_pos_at(const Lines *l, Encoding enc, uint32_t offset) {
  if (offset > l->len) offset = l->len;
  uint32_t lo = 0, hi = l->n;
  while (hi - lo > 1) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (l->at[mid] <= offset) lo = mid;
    else hi = mid;
  }
  uint32_t col = 0;
  for (uint32_t i = l->at[lo]; i < offset; i++)
    if (enc == ENC_UTF8 || !inside(l->text[i])) col += units(enc, l->text[i]);
  return (Pos){lo, col};
}

uint32_t ls_offset_at(const Lines *l, Encoding enc, Pos p) {
  if (p.line >= l->n) return l->len;
  uint32_t at = l->at[p.line];
  uint32_t end = p.line + 1 < l->n ? l->at[p.line + 1] : l->len;
  while (end > at && (l->text[end - 1] == '\n' || l->text[end - 1] == '\r'))
    end--;
  for (uint32_t col = 0; at < end && col < p.col;) {
    col += units(enc, l->text[at]);
    at++;
    while (enc != ENC_UTF8 && at < end && inside(l->text[at])) at++;
  }
  while (at < end && inside(l->text[at])) at++;  // never inside a character
  return at;
}

// ---------------------------------------------------------------- documents
static uint64_t key_of(const char *path) {
  return (uint64_t)(uintptr_t)path;
}

Doc *ls_doc_find(Ls *ls, const char *path) {
  uint64_t v;
  return map_get(&ls->by_path, key_of(path), &v) ? (Doc *)(uintptr_t)v : NULL;
}

static void set_text(Ls *ls, Doc *d, const char *text, size_t len) {
  Arena fresh = ls_arena(ls);
  char *copy = arena_strndup(&fresh, text, len);
  d->text = ls_lines_of(&fresh, copy, (uint32_t)len);
  vec_push(&ls->arena, &ls->old_texts, d->store);
  d->store = fresh;
  d->stamp = ++ls->clock;
}

static Doc *add_doc(Ls *ls, const char *path) {
  Doc *d = ls_doc_find(ls, path);
  if (d) return d;
  d = NEW(&ls->arena, Doc);
  d->tokens_store = ls_arena(ls);
  d->path = path;
  vec_push(&ls->arena, &ls->docs, d);
  map_put(&ls->by_path, key_of(path), (uint64_t)(uintptr_t)d);
  return d;
}

uint64_t ls_path_stamp(Ls *ls, const char *path) {
  Doc *d = ls_doc_find(ls, path);
  struct stat st;
  if (d && d->open) return d->stamp | (uint64_t)1 << 63;
  if (ls_is_library(path)) return 1;
  if (ls->host.no_files || stat(path, &st) != 0 || !S_ISREG(st.st_mode))
    return 0;
  uint64_t t[] = {(uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec,
                  (uint64_t)st.st_size};
  return map_hash(t, sizeof t, 0) >> 1 | 1;
}

// A closed file's text, read again when it changed on disk.
Doc *ls_doc_of(Ls *ls, const char *path) {
  Doc *d = ls_doc_find(ls, path);
  if (d && d->open) return d;
  uint64_t stamp = ls_path_stamp(ls, path);
  if (!stamp) return NULL;
  if (d && d->text.at && d->stamp == stamp) return d;
  uint32_t n = 0;
  const char *text = ls_is_library(path) ? fe_stdlib(path, &n) : NULL;
  Ctx cx;
  ctx_init(&cx);
  cx.session = cx.scratch = ls_arena(ls);
  if (!ls_is_library(path)) text = cx.read_file(NULL, &cx.session, path, &n);
  if (text) {
    d = add_doc(ls, path);
    set_text(ls, d, text, n);
    d->stamp = stamp;
  }
  ctx_drop(&cx);
  return text ? d : NULL;
}

Doc *ls_doc_of_params(Ls *ls, const json_t *params, LsError *err) {
  const char *uri = json_string_value(js_path(params, "textDocument.uri"));
  const char *path = ls_path_of_uri(ls, uri);
  Doc *d = path ? ls_doc_of(ls, path) : NULL;
  if (!d) ls_fail(err, E_PARAMS, "no such document");
  return d;
}

bool ls_range_of_params(const json_t *params, Pos *from, Pos *to,
                        LsError *err) {
  if (js_read_pos(js_path(params, "range.start"), from) &&
      js_read_pos(js_path(params, "range.end"), to))
    return true;
  ls_fail(err, E_PARAMS, "no range");
  return false;
}

void ls_doc_free(Doc *d) {
  if (d->an) ls_analysis_free(d->an);
  d->an = NULL;
  arena_drop(&d->store);
  arena_drop(&d->tokens_store);
}

// ---------------------------------------------------------------- sync
json_t *ls_did_open(Ls *ls, const json_t *params, LsError *err) {
  const json_t *item = json_object_get(params, "textDocument");
  const char *uri = js_get_str(item, "uri"), *path = ls_path_of_uri(ls, uri);
  const json_t *text = json_object_get(item, "text");
  (void)err;
  if (!path || !json_is_string(text)) {
    ls_log_message(ls, "didOpen without uri or text");
    return NULL;
  }
  Doc *d = add_doc(ls, path);
  d->uri = intern(&ls->names, uri);
  d->open = true;
  d->version = json_integer_value(json_object_get(item, "version"));
  set_text(ls, d, json_string_value(text), json_string_length(text));
  ls->changed = true;
  return NULL;
}

static bool edit(Ls *ls, Doc *d, const json_t *change) {
  const json_t *text = json_object_get(change, "text");
  const json_t *range = json_object_get(change, "range");
  Pos from, to;
  if (!json_is_string(text)) return false;
  size_t n = json_string_length(text);
  if (!range) {
    set_text(ls, d, json_string_value(text), n);
    return true;
  }
  if (!js_read_pos(json_object_get(range, "start"), &from) ||
      !js_read_pos(json_object_get(range, "end"), &to))
    return false;
  uint32_t lo = ls_offset_at(&d->text, ls->enc, from);
  uint32_t hi = ls_offset_at(&d->text, ls->enc, to);
  if (lo > hi) {
    uint32_t t = lo;
    lo = hi;
    hi = t;
  }
  Buf b = {.arena = &ls->scratch};
  buf_add(&b, d->text.text, lo);
  buf_add(&b, json_string_value(text), n);
  buf_add(&b, d->text.text + hi, d->text.len - hi);
  set_text(ls, d, b.at ? b.at : "", b.n);
  return true;
}

json_t *ls_did_change(Ls *ls, const json_t *params, LsError *err) {
  const json_t *id = json_object_get(params, "textDocument");
  const char *path = ls_path_of_uri(ls, js_get_str(id, "uri"));
  Doc *d = path ? ls_doc_find(ls, path) : NULL;
  const json_t *list = json_object_get(params, "contentChanges");
  (void)err;
  if (!d || !d->open) {
    ls_log_message(ls, "didChange of a document that is not open");
    return NULL;
  }
  for (size_t i = 0; i < json_array_size(list); i++)
    if (!edit(ls, d, json_array_get(list, i)))
      ls_log_message(ls, "%s: an edit that cannot be understood", d->uri);
  const json_t *version = json_object_get(id, "version");
  if (json_is_integer(version)) d->version = json_integer_value(version);
  ls->changed = true;
  return NULL;
}

json_t *ls_did_save(Ls *ls, const json_t *params, LsError *err) {
  (void)ls, (void)params, (void)err;
  return NULL;
}

json_t *ls_did_close(Ls *ls, const json_t *params, LsError *err) {
  const char *uri = json_string_value(js_path(params, "textDocument.uri"));
  const char *path = ls_path_of_uri(ls, uri);
  Doc *d = path ? ls_doc_find(ls, path) : NULL;
  (void)err;
  if (!d || !d->open) return NULL;
  d->open = false;
  ls->changed = true;
  d->stamp = ++ls->clock;  // the file on disk holds from now on
  if (d->published && !ls->client.pull)
    ls_notify(ls, "textDocument/publishDiagnostics",
              json_pack("{s:s, s:[]}", "uri", d->uri, "diagnostics"));
  d->published = false;
  return NULL;
}

json_t *ls_watched_files(Ls *ls, const json_t *params, LsError *err) {
  (void)params, (void)err;
  ls->changed = true;
  if (ls->client.pull && ls->client.refreshes)
    ls_request(ls, "workspace/diagnostic/refresh", NULL);
  return NULL;
}

// ---------------------------------------------------------------- workspace
enum { MAX_FILES = 4096, MAX_LEVELS = 16 };

static bool is_attn(const char *name) {
  size_t n = strlen(name);
  return n > 5 && strcmp(name + n - 5, ".attn") == 0;
}

static void put_doc(Ls *ls, DocList *out, Doc *d) {
  for (uint32_t i = 0; d && i < out->n; i++)
    if (out->at[i] == d) return;
  if (d && out->n < MAX_FILES) vec_push(&ls->scratch, out, d);
}

static void scan(Ls *ls, const char *dir, int level, DocList *out) {
  DIR *d = level < MAX_LEVELS ? opendir(dir) : NULL;
  if (!d) return;
  for (struct dirent *e = readdir(d); e && out->n < MAX_FILES; e = readdir(d)) {
    struct stat st;
    if (e->d_name[0] == '.') continue;
    const char *path = arena_printf(&ls->scratch, "%s/%s", dir, e->d_name);
    if (lstat(path, &st) != 0) continue;
    if (S_ISDIR(st.st_mode)) scan(ls, path, level + 1, out);
    else if (S_ISREG(st.st_mode) && is_attn(path))
      put_doc(ls, out, ls_doc_of(ls, intern(&ls->names, path)));
  }
  closedir(d);
}

void ls_workspace_docs(Ls *ls, DocList *out) {
  for (uint32_t i = 0; i < ls->docs.n; i++)
    if (ls->docs.at[i]->open) put_doc(ls, out, ls->docs.at[i]);
  for (uint32_t i = 0; i < ls->roots.n && !ls->host.no_files; i++)
    scan(ls, ls->roots.at[i], 0, out);
}

void ls_library_docs(Ls *ls, DocList *out) {
  for (const EmbedFile *f = stdlib_files; f->path; f++)
    put_doc(ls, out, ls_doc_of(ls, intern(&ls->names, f->path)));
}
