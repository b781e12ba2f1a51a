// libFuzzer: the language server survives any session, answers each request
// once, and after any edits says what a server says that is started afresh on
// the same text. The input is a script: edits, requests, broken messages.
//   build-asan/bin/fuzz_ls test/fuzz/corpus/attn
// test/unit/ls-random.c runs it on scripts made from seeds.
#include "frontend/frontend.h"
#include "tools/attn-ls/ls.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
// Steps done so far: edits, requests, broken messages, comparisons.
extern uint64_t fuzz_ls_steps[4];
uint64_t fuzz_ls_steps[4];

#define URI "file:///w/fuzz.attn"
enum { MAX_TEXT = 6000, MAX_SCRIPT = 1500 };

typedef struct Script {
  const uint8_t *at, *end;
} Script;

typedef struct Side {
  Ls *ls;
  int64_t id;  // of the request that is waited for
  int answers;
  json_t *result;
} Side;

typedef struct Model {
  char *text;  // what the client has
  size_t n, cap;
  int64_t version, ids;
} Model;

static void need(bool ok) {
  if (!ok) __builtin_trap();
}

static uint32_t take(Script *s) {
  return s->at < s->end ? *s->at++ : 0;
}
static uint32_t take2(Script *s) {
  return take(s) << 8 | take(s);
}

// ---------------------------------------------------------------- messages
// Every message of the server is framed and is JSON.
static void heard(void *data, const char *bytes, size_t n) {
  Side *s = data;
  const char *body = memmem(bytes, n, "\r\n\r\n", 4);
  need(body && strncmp(bytes, "Content-Length: ", 16) == 0);
  body += 4;
  size_t len = strtoul(bytes + 16, NULL, 10);
  need(len == n - (size_t)(body - bytes));
  json_t *m = json_loadb(body, len, 0, NULL);
  need(m && json_object_get(m, "jsonrpc"));
  const json_t *id = json_object_get(m, "id");
  if (!json_object_get(m, "method") && json_is_integer(id) &&
      json_integer_value(id) == s->id) {
    s->answers++;
    json_decref(s->result);
    s->result = json_incref(json_object_get(m, "result"));
  }
  json_decref(m);
}

static void send_bytes(Side *s, const char *body, size_t n) {
  char head[64];
  int len = snprintf(head, sizeof head, "Content-Length: %zu\r\n\r\n", n);
  ls_feed(s->ls, head, (size_t)len);
  ls_feed(s->ls, body, n);
  ls_work(s->ls);
}

static void send_message(Side *s, json_t *m) {
  char *body = json_dumps(m, JSON_COMPACT);
  json_decref(m);
  need(body != NULL);
  send_bytes(s, body, strlen(body));
  free(body);
}

static void tell(Side *s, const char *method, json_t *params) {
  send_message(s, json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method",
                            method, "params", params));
}

// The answer's result, borrowed; each request has one answer.
static const json_t *ask(Side *s, Model *m, const char *method,
                         json_t *params) {
  s->id = ++m->ids;
  s->answers = 0;
  json_decref(s->result);
  s->result = NULL;
  send_message(s, json_pack("{s:s, s:I, s:s, s:o}", "jsonrpc", "2.0", "id",
                            (json_int_t)s->id, "method", method, "params",
                            params));
  need(s->answers == 1);
  return s->result;
}

static json_t *document(void) {
  return json_pack("{s:s}", "uri", URI);
}

static void open_text(Side *s, const Model *m) {
  tell(s, "textDocument/didOpen",
       json_pack("{s:{s:s, s:s, s:I, s:s%}}", "textDocument", "uri", URI,
                 "languageId", "attn", "version", (json_int_t)m->version,
                 "text", m->text, m->n));
}

static void start(Side *s, Model *m) {
  LsHost host = {.send = heard, .data = s, .no_files = true};
  s->ls = ls_new(&host);
  ask(s, m, "initialize",
      json_pack("{s:{s:{s:{}}}}", "capabilities", "textDocument",
                "diagnostic"));
  tell(s, "initialized", json_object());
}

static void stop(Side *s) {
  ls_free(s->ls);
  json_decref(s->result);
}

// ---------------------------------------------------------------- the model
// Written apart from the server's: walks the text from its start.
static size_t place(const Model *m, uint32_t line, uint32_t col) {
  size_t i = 0;
  for (uint32_t l = 0; l < line; l++) {
    while (i < m->n && m->text[i] != '\n' && m->text[i] != '\r') i++;
    if (i == m->n) return m->n;
    i += m->text[i] == '\r' && i + 1 < m->n && m->text[i + 1] == '\n' ? 2 : 1;
  }
  for (uint32_t c = 0; c < col && i < m->n; i++) {
    unsigned char b = (unsigned char)m->text[i];
    if (b == '\n' || b == '\r') break;
    if ((b & 0xc0) != 0x80) c += b >= 0xf0 ? 2 : 1;
    while (i + 1 < m->n && ((unsigned char)m->text[i + 1] & 0xc0) == 0x80) i++;
  }
  return i;
}

static void put(Model *m, size_t lo, size_t hi, const char *text, size_t n) {
  size_t len = lo + n + (m->n - hi);
  if (len + 1 > m->cap) {
    m->cap = 2 * len + 64;
    m->text = realloc(m->text, m->cap);
    need(m->text != NULL);
  }
  memmove(m->text + lo + n, m->text + hi, m->n - hi);
  memcpy(m->text + lo, text, n);
  m->n = len;
}

// ---------------------------------------------------------------- steps
static const char *const pieces[] = {
    "let x = exp(s);\n",
    "row r(s: row f32) -> row f32 = s;\n",
    "return ",
    "index k in S where k <= q;\n",
    "import std.rows { softmax }\n",
    "\n",
    "attention a<B, S, D: const {64}>(Q: f32[B, S, D], K: f32[B, S, D]) -> "
    "(O: f32[B, S]) {\n",
    "}\n",
    "{",
    "sum(k: ",
    ")",
    "(",
    ";",
    "# \xc3\xa9\n",
    "mask m(q, k) = causal & k <= q;\n",
    "softmax",
    "\xf0\x9d\x92\xb3",
    "\r\n",
    "O[b, q] = sum(k: dot(Q[b, q], K[b, k]));\n",
    "if a then b else c",
    "check \"c\" { dims B = 1; }\n",
    "|> softcap(30.0)",
    "\"",
    " ",
    "@finite\n",
    "state M: f32 = 0.0;\nstep t { M = M + x[t]; }\n",
    "import std.masks as m;\n",
    "schedule a for \"cpu\" { tile_q = 64; }\n",
    "\r",
    "index b in B, q in S;\n",
    "fn f<D>(x: f32[D]) -> f32 { index d in D; return sum(d: x[d]); }\n",
    ",",
};
enum { NPIECES = sizeof pieces / sizeof *pieces };

static void edit(Side *s, Model *m, Script *in) {
  uint32_t line = take(in), col = take(in), dl = take(in) % 4;
  uint32_t ecol = take(in), kind = take(in);
  const char *text = kind % 5 == 0 ? "" : pieces[take(in) % NPIECES];
  if (kind % 7 == 0) line = UINT32_MAX;
  if (m->n > MAX_TEXT) line = dl = 0, ecol = 200, text = "";
  size_t lo = place(m, line, col);
  uint32_t eline = line > UINT32_MAX - 4 ? line : line + dl;
  size_t hi = place(m, eline, ecol);
  if (lo > hi) {
    size_t t = lo;
    lo = hi;
    hi = t;
  }
  put(m, lo, hi, text, strlen(text));
  json_t *change =
      json_pack("{s:{s:{s:I,s:I}, s:{s:I,s:I}}, s:s}", "range", "start", "line",
                (json_int_t)line, "character", (json_int_t)col, "end", "line",
                (json_int_t)eline, "character", (json_int_t)ecol, "text", text);
  tell(s, "textDocument/didChange",
       json_pack("{s:{s:s, s:I}, s:[o]}", "textDocument", "uri", URI, "version",
                 (json_int_t)++m->version, "contentChanges", change));
}

static const char *const methods[] = {
    "textDocument/hover",
    "textDocument/completion",
    "textDocument/definition",
    "textDocument/references",
    "textDocument/documentHighlight",
    "textDocument/signatureHelp",
    "textDocument/prepareRename",
    "textDocument/rename",
    "textDocument/documentSymbol",
    "textDocument/foldingRange",
    "textDocument/selectionRange",
    "textDocument/documentLink",
    "textDocument/semanticTokens/full",
    "textDocument/semanticTokens/full/delta",
    "textDocument/formatting",
    "textDocument/semanticTokens/range",
    "textDocument/rangeFormatting",
    "textDocument/inlayHint",
    "textDocument/codeLens",
    "textDocument/codeAction",
    "textDocument/prepareCallHierarchy",
    "textDocument/typeDefinition",
    "textDocument/diagnostic",
    "workspace/diagnostic",
    "no/such",
    "workspace/executeCommand",
};
enum { NMETHODS = sizeof methods / sizeof *methods };

static json_t *pos(Script *in) {
  static const json_int_t odd[] = {-1, INT64_MAX, 4294967296, 100000};
  uint32_t r = take(in);
  json_int_t line = r < 8 ? odd[r % 4] : take(in) % 64;
  return json_pack("{s:I, s:I}", "line", line, "character",
                   r > 248 ? odd[r % 4] : (json_int_t)(take(in) % 100));
}

static json_t *any_params(Script *in) {
  return json_pack("{s:o, s:o, s:{s:o, s:o}, s:[o], s:s, s:{s:b, s:[]}, s:s}",
                   "textDocument", document(), "position", pos(in), "range",
                   "start", pos(in), "end", pos(in), "positions", pos(in),
                   "newName", take(in) & 1 ? "fresh" : "q", "context",
                   "includeDeclaration", 1, "diagnostics", "previousResultId",
                   "1");
}

static void query(Side *s, Model *m, Script *in) {
  // Hovers lower programs; a few are enough.
  uint32_t which = take(in) % (NMETHODS + 2);
  ask(s, m, methods[which < NMETHODS ? which : 1], any_params(in));
}

// A message whose bytes were damaged; it may still be one.
static void broken(Side *s, Model *m, Script *in) {
  json_t *j = json_pack("{s:s, s:I, s:s, s:o}", "jsonrpc", "2.0", "id",
                        (json_int_t)1000000, "method",
                        methods[take(in) % NMETHODS], "params", any_params(in));
  char *body = json_dumps(j, JSON_COMPACT);
  json_decref(j);
  size_t n = strlen(body);
  for (uint32_t i = take(in) % 4 + 1; i-- > 0;) {
    size_t at = take2(in) % n;
    if (at < 8) at += 8;
    body[at % n] = (char)take(in);
  }
  if (take(in) % 4 == 0) n = take2(in) % (n + 1);
  (void)m;
  // A whole new text under this name would leave the model behind.
  if (!memmem(body, n, "didChange", 9) && !memmem(body, n, "didOpen", 7) &&
      !memmem(body, n, "exit", 4) && !memmem(body, n, "shutdown", 8))
    send_bytes(s, body, n);
  free(body);
}

// Messages of the right form with the wrong contents.
static void nonsense(Side *s, Model *m, Script *in) {
  static const char *const texts[] = {
      "[]",
      "null",
      "3",
      "{}",
      "{\"jsonrpc\":\"2.0\"}",
      "\"\\ud800\"",
      "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"textDocument/hover\"}",
      "{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"textDocument/hover\"}",
      "{\"jsonrpc\":\"2.0\",\"method\":\"textDocument/didChange\"}",
      "{\"jsonrpc\":\"2.0\",\"method\":\"textDocument/didOpen\",\"params\":{}}",
      "{\"jsonrpc\":\"2.0\",\"method\":\"textDocument/didChange\",\"params\":"
      "{\"textDocument\":{\"uri\":\"" URI "\"},\"contentChanges\":[{},3,"
      "{\"range\":{},\"text\":\"x\"},{\"text\":4}]}}",
      "{\"jsonrpc\":\"2.0\",\"method\":\"textDocument/didClose\",\"params\":"
      "{\"textDocument\":{\"uri\":\"file:///nowhere\"}}}",
      "{\"jsonrpc\":\"2.0\",\"method\":\"$/cancelRequest\",\"params\":"
      "{\"id\":7}}",
      "{\"jsonrpc\":\"2.0\",\"method\":\"$/cancelRequest\",\"params\":[]}",
      "{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":null}",
      "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"textDocument/rename\","
      "\"params\":{\"textDocument\":{\"uri\":3},\"position\":{}}}",
      "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"completionItem/resolve\","
      "\"params\":{\"data\":{\"t\":\"decl\",\"n\":\"x\",\"p\":\"\"}}}",
      "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"callHierarchy/"
      "incomingCalls\",\"params\":{\"item\":{\"data\":{\"path\":\"/x\","
      "\"at\":-5}}}}",
      "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"workspace/"
      "executeCommand\",\"params\":{\"command\":\"attn.show\","
      "\"arguments\":[\"" URI "\",\"a\",\"asm\"]}}",
  };
  const char *t = texts[take(in) % (sizeof texts / sizeof *texts)];
  (void)m;
  send_bytes(s, t, strlen(t));
}

static void reopen(Side *s, Model *m) {
  tell(s, "textDocument/didClose",
       json_pack("{s:o}", "textDocument", document()));
  m->version++;
  open_text(s, m);
}

// ---------------------------------------------------------------- comparison
static void drop_ids(json_t *r) {
  if (json_is_object(r)) json_object_del(r, "resultId");
}

static void compare(Side *s, Model *m) {
  static const char *const asked[] = {"textDocument/diagnostic",
                                      "textDocument/semanticTokens/full",
                                      "textDocument/documentSymbol",
                                      "textDocument/formatting",
                                      "textDocument/foldingRange"};
  Side fresh = {0};
  start(&fresh, m);
  open_text(&fresh, m);
  for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
    json_t *p = json_pack("{s:o}", "textDocument", document());
    const json_t *a = ask(s, m, asked[i], json_incref(p));
    const json_t *b = ask(&fresh, m, asked[i], p);
    json_t *x = json_deep_copy(a), *y = json_deep_copy(b);
    drop_ids(x);
    drop_ids(y);
    need(x == y || json_equal(x, y));
    json_decref(x);
    json_decref(y);
  }
  stop(&fresh);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Script in = {data, data + (size < MAX_SCRIPT ? size : MAX_SCRIPT)};
  Side s = {0};
  Model m = {.version = 1};
  int code;
  put(&m, 0, 0, "", 0);
  start(&s, &m);
  open_text(&s, &m);
  while (in.at < in.end) {
    uint32_t op = take(&in) % 24;
    fuzz_ls_steps[op < 12 ? 0 : op < 17 ? 1 : op < 22 ? 2 : 3]++;
    if (op < 12) edit(&s, &m, &in);
    else if (op < 17) query(&s, &m, &in);
    else if (op < 20) broken(&s, &m, &in);
    else if (op < 22) nonsense(&s, &m, &in);
    else if (op < 23) reopen(&s, &m);
    else compare(&s, &m);
    need(!ls_done(s.ls, &code));
  }
  compare(&s, &m);
  stop(&s);
  free(m.text);
  return 0;
}
