// URIs and paths. A document's key is its absolute path; files of the library
// have keys such as std/rows.attn, wherever their text lies.
#include "tools/attn-ls/server.h"

#include "frontend/diagpages.h"
#include "frontend/embed.h"
#include "ir/core/outfile.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool ls_is_library(const char *path) {
  return strncmp(path, "std/", 4) == 0;
}

// Where the library's files can be opened; "" if nowhere.
static const char *library_root(Ls *ls) {
  if (ls->host.stdlib_dir) return ls->host.stdlib_dir;
  if (!ls->host.cache_dir) return "";
  return arena_printf(&ls->scratch, "%s/std", ls->host.cache_dir);
}

// /cache/std/rows.attn -> std/rows.attn
static const char *library_key(Ls *ls, const char *path) {
  const char *root = library_root(ls);
  size_t n = strlen(root);
  if (!n || strncmp(path, root, n) != 0 || path[n] != '/') return NULL;
  const char *key = arena_printf(&ls->scratch, "std%s", path + n);
  return fe_stdlib(key, NULL) ? key : NULL;
}

const char *ls_path_of_uri(Ls *ls, const char *uri) {
  if (!uri || !*uri) return NULL;
  bool file = strncmp(uri, "file://", 7) == 0;
  const char *s = file ? uri + 7 : uri;
  if (file && *s != '/') s = strchr(s, '/');  // file://host/..
  if (!s) return NULL;
  Buf b = {.arena = &ls->scratch};
  for (; *s; s++) {
    int hi = *s == '%' ? hex(s[1]) : -1, lo = hi >= 0 ? hex(s[2]) : -1;
    if (lo >= 0 && (hi || lo)) {
      buf_char(&b, (char)(hi * 16 + lo));
      s += 2;
    } else {
      buf_char(&b, *s);
    }
  }
  const char *key = b.n ? library_key(ls, b.at) : NULL;
  return b.n ? intern(&ls->names, key ? key : b.at) : NULL;
}

// Writes a file once, read-only; `path` is changed on the way and restored.
static bool put_file(char *path, const char *text, size_t n) {
  for (char *p = path + 1; *p; p++) {
    if (*p != '/') continue;
    *p = 0;
    int bad = mkdir(path, 0755) != 0 && errno != EEXIST;
    *p = '/';
    if (bad) return false;
  }
  OutFile f;
  return out_open(&f, path, 0444) && out_close(&f, out_put(&f, text, n));
}

static const char *unpack(Ls *ls, const char *key) {
  const char *root = library_root(ls);
  uint32_t n = 0;
  if (!*root) return NULL;
  char *path = arena_printf(&ls->scratch, "%s%s", root, key + 3);
  if (ls->host.no_files || access(path, R_OK) == 0) return path;
  const char *text = ls->host.stdlib_dir ? NULL : fe_stdlib(key, &n);
  return text && put_file(path, text, n) ? path : NULL;
}

static const char *file_uri(Ls *ls, const char *path) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRS"
                              "TUVWXYZ0123456789-._~/";
  Buf b = {.arena = &ls->scratch};
  buf_str(&b, "file://");
  for (const char *s = path; *s; s++) {
    if (strchr(plain, *s)) buf_char(&b, *s);
    else buf_printf(&b, "%%%02X", (unsigned char)*s);
  }
  return b.at;
}

const char *ls_uri_of_page(Ls *ls, DiagId id) {
  const char *text = diag_page(id);
  if (!text || !ls->host.cache_dir || ls->host.no_files) return NULL;
  char *path = arena_printf(&ls->scratch, "%s/diag/%s.md", ls->host.cache_dir,
                            diag_code(id));
  bool there = access(path, R_OK) == 0 || put_file(path, text, strlen(text));
  return there ? file_uri(ls, path) : NULL;
}

const char *ls_uri_of_path(Ls *ls, const char *path) {
  Doc *d = ls_doc_find(ls, path);
  if (d && d->open) return d->uri;
  if (ls_is_library(path)) {
    const char *at = unpack(ls, path);
    if (!at) return NULL;
    path = at;
  }
  return path[0] == '/' ? file_uri(ls, path) : path;  // untitled:Untitled-1
}
