// Private to the server. Files: rpc (framing, queue, dispatch), lifecycle,
// uri and docs (texts, positions), analysis (parse and check), index (names
// in a file), then one file for each group of requests of methods.def.
//
// Memory: Ls.arena holds what lives as long as the server, a Doc's text and an
// Analysis have arenas of their own, Ls.scratch is reset after each message.
// JSON values are counted by jansson; a method returns a new reference.
#ifndef ATTNC_LS_SERVER_H
#define ATTNC_LS_SERVER_H

#include "frontend/check.h"
#include "ir/core/intern.h"
#include "tools/attn-ls/ls.h"

#include <jansson.h>

// ---------------------------------------------------------------- texts
typedef enum Encoding { ENC_UTF16, ENC_UTF8, ENC_UTF32 } Encoding;

// Lines as the protocol counts them: after \n, \r\n and \r.
typedef struct Lines {
  const char *text;
  uint32_t len, n;
  uint32_t *at;  // offset of each line's first byte
} Lines;

typedef struct Pos {
  uint32_t line, col;  // 0-based, col in units of the encoding
} Pos;

// An empty one that tells the host where memory runs out.
Arena ls_arena(const Ls *ls);
Lines ls_lines_of(Arena *a, const char *text, uint32_t len);
Pos ls_pos_at(const Lines *l, Encoding enc, uint32_t offset);
// Past the end of a line: its end; past the last line: the end of the text.
uint32_t ls_offset_at(const Lines *l, Encoding enc, Pos p);

// ---------------------------------------------------------------- analyses
typedef enum OccKind { OCC_READ, OCC_WRITE, OCC_DEF } OccKind;

// A name in the text and what it stands for.
typedef struct Occ {
  uint32_t lo, hi;
  OccKind kind;
  Sym *sym;          // NULL for modules in import paths
  Unit *unit;        // such a module
  const Expr *expr;  // the expression that it is, or NULL
  const Decl *in;    // declaration around it
} Occ;

// A call with bound arguments; `in` is the declaration around it.
typedef struct Call {
  const Expr *expr;
  const Decl *in;
} Call;

typedef struct Dep {
  const char *path;
  uint64_t stamp;
} Dep;

// A file, parsed and checked with what it imports.
typedef struct Analysis {
  Ctx cx;
  Unit *unit;  // NULL if memory ran out
  const char *path;
  uint64_t stamp;
  uint64_t serial;  // of all analyses
  Vec(Occ) occs;    // by place
  Vec(Call) calls;  // of functions and programs
  Vec(Dep) deps;    // files read, and those looked for in vain
  Lines *lines;     // by source id, made when needed
  uint32_t nlines;
} Analysis;

typedef struct Doc {
  const char *path;  // key: absolute, or std/rows.attn of the library
  const char *uri;   // as the client writes it
  bool open;
  int64_t version;
  uint64_t stamp;  // changes with the text
  Arena store;     // of text and lines
  Lines text;
  Analysis *an;     // may be of an older text
  uint64_t shown;   // serial of the analysis that was published
  bool published;   // some diagnostics are shown
  uint32_t result;  // semantic tokens given last: their id
  Arena tokens_store;
  Vec(uint32_t) tokens;
} Doc;

typedef struct LsError {
  int code;  // 0: none
  const char *text;
} LsError;

enum {
  E_PARSE = -32700,
  E_INVALID_REQUEST = -32600,
  E_NO_METHOD = -32601,
  E_PARAMS = -32602,
  E_NOT_INIT = -32002,
  E_FAILED = -32803,
  E_CANCELLED = -32800,
};

// What the client announced.
typedef struct Client {
  bool snippets, markdown, hierarchy, pull, progress, show_document;
  bool changes_versioned, label_offsets, watches, refreshes;
} Client;

typedef struct Child Child;

struct Ls {
  LsHost host;
  Arena arena, scratch;
  Interner names;
  enum { LS_NEW, LS_READY, LS_SHUTDOWN, LS_EXITED } state;
  int code;
  Encoding enc;
  Client client;
  Vec(const char *) roots;
  Vec(Doc *) docs;
  Map by_path;       // interned path -> Doc
  uint64_t clock;    // source of stamps and serials
  bool changed;      // texts did, since diagnostics were published
  uint32_t results;  // source of result ids
  int64_t requests;  // ids of our own requests
  // input
  Arena inbox;
  char *in;
  size_t nin, cap, at;
  Vec(json_t *) queue;
  Vec(Child *) children;
  // What a newer text replaced: freed once the message is answered, since
  // it may still be looked at.
  Vec(Analysis *) retired;
  Vec(Arena) old_texts;
  const json_t *id;  // of the request being answered, or NULL
  bool later;        // its answer comes later
};

// ---------------------------------------------------------------- rpc.c
typedef json_t *MethodFn(Ls *ls, const json_t *params, LsError *err);
json_t *ls_fail(LsError *err, int code, const char *text);    // NULL
void ls_send_json(Ls *ls, json_t *message);                   // takes it
void ls_notify(Ls *ls, const char *method, json_t *params);   // takes it
void ls_request(Ls *ls, const char *method, json_t *params);  // takes it
void ls_reply(Ls *ls, const json_t *id, json_t *result);      // takes result
void ls_reply_error(Ls *ls, const json_t *id, int code, const char *text);
void ls_log_message(Ls *ls, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
// A JSON string; bytes that are no UTF-8 become U+FFFD.
json_t *js_text(Ls *ls, const char *s, size_t n);
json_t *js_str(Ls *ls, const char *s);
const char *js_get_str(const json_t *o, const char *key);  // or NULL
bool js_get_bool(const json_t *o, const char *key);
// a.b.c of an object, or NULL
const json_t *js_path(const json_t *o, const char *path);
json_t *js_pos(Pos p);
json_t *js_range(const Lines *l, Encoding enc, uint32_t lo, uint32_t hi);
bool js_read_pos(const json_t *o, Pos *out);

// ---------------------------------------------------------------- uri.c
const char *ls_path_of_uri(Ls *ls, const char *uri);  // interned, or NULL
const char *ls_uri_of_path(Ls *ls, const char *path);
bool ls_is_library(const char *path);  // std/..
// The explanation of a diagnostic as a file, or NULL.
const char *ls_uri_of_page(Ls *ls, DiagId id);

// ---------------------------------------------------------------- docs.c
Doc *ls_doc_find(Ls *ls, const char *path);  // open or known; or NULL
Doc *ls_doc_of(Ls *ls, const char *path);    // made if it can be read
Doc *ls_doc_of_params(Ls *ls, const json_t *params, LsError *err);
// The range that is asked about; false with an error.
bool ls_range_of_params(const json_t *params, Pos *from, Pos *to, LsError *err);
void ls_doc_free(Doc *d);
uint64_t ls_path_stamp(Ls *ls, const char *path);  // 0: no such file
// Every file of the workspace, and the open ones.
typedef Vec(Doc *) DocList;
void ls_workspace_docs(Ls *ls, DocList *out);
void ls_library_docs(Ls *ls, DocList *out);

// ---------------------------------------------------------------- analysis.c
Analysis *ls_analysis_of(Ls *ls, Doc *d);  // fresh; NULL: no memory
// Of the document that is asked about, which is *d, or NULL: there is none.
Analysis *ls_analysis_of_params(Ls *ls, const json_t *params, Doc **d,
                                LsError *err);
Analysis *ls_analysis_make(Ls *ls, const char *path, const char *text,
                           uint32_t len, bool check);
ReadFileFn ls_read_open;  // of a Ls
void ls_analysis_free(Analysis *an);
void ls_drop_retired(Ls *ls);
bool ls_analysis_fresh(Ls *ls, const Analysis *an);
const Source *ls_source_of(const Analysis *an, Span s);
const Lines *ls_lines_of_source(Analysis *an, uint32_t id);

// ---------------------------------------------------------------- index.c
void ls_index_unit(Analysis *an);
const Occ *ls_occ_at(const Analysis *an, uint32_t offset);
const Decl *ls_decl_at(const Unit *u, uint32_t offset);
// The innermost expression and those around it, outermost first.
typedef Vec(const Expr *) ExprPath;
void ls_exprs_at(const Analysis *an, Arena *a, uint32_t offset, ExprPath *out);
// Calls fn with the direct parts of e.
typedef void ExprFn(void *data, const Expr *e);
void ls_expr_parts(const Expr *e, ExprFn *fn, void *data);

// Where a name is declared, over files.
typedef struct Place {
  const char *path;  // NULL: nowhere
  uint32_t lo, hi;
} Place;
Place ls_place_of(Ls *ls, const Analysis *an, const Sym *s);
// Only its own file can name it.
bool ls_is_local(const Sym *s);
json_t *js_location(Ls *ls, Analysis *an, Span s);

// A request about a place in a document.
typedef struct At {
  Doc *doc;
  Analysis *an;
  uint32_t offset;
} At;
bool ls_at_params(Ls *ls, const json_t *params, At *out, LsError *err);

// ---------------------------------------------------------------- texts
// describe.c: "tensor bf16[B, H, S, D]", "let s: f32", docs.
void ls_describe_type(const Decl *d, const Ty *t, Buf *out);
void ls_describe_vary(const Decl *d, uint64_t vary, Buf *out);
void ls_describe_sym(Ls *ls, const Analysis *an, const Sym *s, Buf *out);
void ls_describe_head(const Unit *u, const Decl *d, Buf *out);
const char *ls_role_text(IndexRole r);
bool ls_docs_of_word(const char *word, const char **doc);

// diagnostics.c
void ls_publish_all(Ls *ls);
json_t *ls_diagnostics_of(Ls *ls, Doc *d);
json_t *js_diag(Ls *ls, Analysis *an, const Diag *g);
bool ls_diag_shown(const Analysis *an, const Diag *g);

// command.c
void ls_children_free(Ls *ls);
void ls_children_cancel(Ls *ls, const json_t *id);
void child_forget(Ls *ls, const char *token);

#define METHOD(name, fn, kind) MethodFn ls_##fn;
#include "tools/attn-ls/methods.def"

#endif
