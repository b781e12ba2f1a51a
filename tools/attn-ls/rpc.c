// JSON-RPC: framing, the queue of messages, dispatch by methods.def, answers.
#include "tools/attn-ls/server.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { MAX_HEADER = 4096, MAX_BODY = 64 << 20, MAX_QUEUE = 1000 };

typedef enum MethodKind { REQ, NOTE, ANY } MethodKind;

typedef struct Method {
  const char *name;
  MethodFn *run;
  MethodKind kind;
} Method;

static const Method methods[] = {
#define METHOD(name, fn, kind) {name, ls_##fn, kind},
#include "tools/attn-ls/methods.def"
};

// ---------------------------------------------------------------- JSON
static bool js_is_utf8(const char *s, size_t n) {
  json_t *j = json_stringn(s, n);
  json_decref(j);
  return j != NULL;
}

json_t *js_text(Ls *ls, const char *s, size_t n) {
  json_t *j = json_stringn(s, n);
  if (j) return j;
  Buf b = {.arena = &ls->scratch};
  for (size_t i = 0; i < n;) {
    size_t len = 1;
    while (len <= 4 && i + len <= n && !js_is_utf8(s + i, len)) len++;
    if (len > 4 || i + len > n) {
      buf_str(&b, "\xef\xbf\xbd");
      i++;
    } else {
      buf_add(&b, s + i, len);
      i += len;
    }
  }
  return json_stringn(b.at ? b.at : "", b.n);
}

json_t *js_str(Ls *ls, const char *s) {
  return s ? js_text(ls, s, strlen(s)) : json_string("");
}

const char *js_get_str(const json_t *o, const char *key) {
  return json_string_value(json_object_get(o, key));
}

bool js_get_bool(const json_t *o, const char *key) {
  return json_is_true(json_object_get(o, key));
}

const json_t *js_path(const json_t *o, const char *path) {
  char key[64];
  while (o && *path) {
    size_t n = strcspn(path, ".");
    if (n >= sizeof key) return NULL;
    memcpy(key, path, n);
    key[n] = 0;
    o = json_object_get(o, key);
    path += n + (path[n] == '.');
  }
  return o;
}

json_t *js_pos(Pos p) {
  return json_pack("{s:i, s:i}", "line", (int)p.line, "character", (int)p.col);
}

json_t *js_range(const Lines *l, Encoding enc, uint32_t lo, uint32_t hi) {
  return json_pack("{s:o, s:o}", "start", js_pos(ls_pos_at(l, enc, lo)), "end",
                   js_pos(ls_pos_at(l, enc, hi)));
}

static bool read_uint(const json_t *o, const char *key, uint32_t *out) {
  const json_t *j = json_object_get(o, key);
  if (!json_is_integer(j) || json_integer_value(j) < 0) return false;
  json_int_t v = json_integer_value(j);
  *out = v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
  return true;
}

bool js_read_pos(const json_t *o, Pos *out) {
  return read_uint(o, "line", &out->line) &&
         read_uint(o, "character", &out->col);
}

// ---------------------------------------------------------------- out
void ls_send_json(Ls *ls, json_t *message) {
  char *body = json_dumps(message, JSON_COMPACT);
  json_decref(message);
  if (!body) return;
  size_t n = strlen(body);
  Buf b = {.arena = &ls->scratch};
  buf_printf(&b, "Content-Length: %zu\r\n\r\n", n);
  buf_add(&b, body, n);
  free(body);
  ls->host.send(ls->host.data, b.at, b.n);
}

void ls_notify(Ls *ls, const char *method, json_t *params) {
  ls_send_json(ls, json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method",
                             method, "params", params));
}

void ls_request(Ls *ls, const char *method, json_t *params) {
  ls_send_json(ls, json_pack("{s:s, s:I, s:s, s:o*}", "jsonrpc", "2.0", "id",
                             (json_int_t)++ls->requests, "method", method,
                             "params", params));
}

void ls_reply(Ls *ls, const json_t *id, json_t *result) {
  if (!result) result = json_null();
  ls_send_json(ls, json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id,
                             "result", result));
}

void ls_reply_error(Ls *ls, const json_t *id, int code, const char *text) {
  json_t *e =
      json_pack("{s:i, s:o}", "code", code, "message", js_str(ls, text));
  json_t *m = json_pack("{s:s, s:o}", "jsonrpc", "2.0", "error", e);
  json_object_set_new(m, "id", id ? json_incref((json_t *)id) : json_null());
  ls_send_json(ls, m);
}

void ls_log_message(Ls *ls, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  ls_notify(ls, "window/logMessage",
            json_pack("{s:i, s:o}", "type", 2, "message", js_str(ls, text)));
}

json_t *ls_fail(LsError *err, int code, const char *text) {
  *err = (LsError){code, text};
  return NULL;
}

// ---------------------------------------------------------------- dispatch
static const Method *find_method(const char *name) {
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
    if (strcmp(methods[i].name, name) == 0) return &methods[i];
  return NULL;
}

static bool allowed(const Ls *ls, const Method *m, LsError *err) {
  if (m && m->kind == ANY && ls->state != LS_SHUTDOWN) return true;
  if (m && strcmp(m->name, "exit") == 0) return true;
  if (ls->state == LS_NEW) ls_fail(err, E_NOT_INIT, "not initialized");
  else if (ls->state != LS_READY) ls_fail(err, E_INVALID_REQUEST, "shut down");
  else if (!m) ls_fail(err, E_NO_METHOD, "no such method");
  return err->code == 0;
}

static bool params_ok(const json_t *params) {
  return !params || json_is_object(params) || json_is_array(params);
}

static void call(Ls *ls, const json_t *msg, const char *name) {
  const json_t *id = json_object_get(msg, "id");
  const json_t *params = json_object_get(msg, "params");
  const Method *m = find_method(name);
  LsError err = {0};
  json_t *result = NULL;
  if (id && !json_is_integer(id) && !json_is_string(id)) {
    ls_reply_error(ls, NULL, E_INVALID_REQUEST,
                   "an id is a number or a string");
    return;
  }
  if (!id && (!m || !allowed(ls, m, &err))) return;
  if (id && m && m->kind == NOTE) ls_fail(&err, E_NO_METHOD, "a notification");
  if (!params_ok(params) && !json_is_null(params))
    ls_fail(&err, E_PARAMS, "params are an object");
  ls->id = id;
  ls->later = false;
  if (!err.code && allowed(ls, m, &err)) result = m->run(ls, params, &err);
  ls->id = NULL;
  if (!id || ls->later) json_decref(result);
  else if (err.code) ls_reply_error(ls, id, err.code, err.text);
  else ls_reply(ls, id, result);
}

static void handle(Ls *ls, const json_t *msg) {
  const char *method = js_get_str(msg, "method");
  if (method) {
    call(ls, msg, method);
  } else if (!json_is_object(msg) || (!json_object_get(msg, "result") &&
                                      !json_object_get(msg, "error"))) {
    ls_reply_error(ls, NULL, E_INVALID_REQUEST, "neither method nor result");
  }
  ls_drop_retired(ls);
  ArenaMark none = {0};
  arena_reset(&ls->scratch, none);
}

static bool is_cancel(const json_t *m) {
  const char *name = js_get_str(m, "method");
  return name && strcmp(name, "$/cancelRequest") == 0;
}

// Requests that wait are cancelled by ls_work; this one is for children.
json_t *ls_cancel(Ls *ls, const json_t *params, LsError *err) {
  const json_t *id = json_object_get(params, "id");
  (void)err;
  if (id) ls_children_cancel(ls, id);
  return NULL;
}

// Does a later message of the queue cancel this request?
static bool is_cancelled(const Ls *ls, uint32_t at) {
  const json_t *id = json_object_get(ls->queue.at[at], "id");
  if (!id || !js_get_str(ls->queue.at[at], "method")) return false;
  for (uint32_t i = at + 1; i < ls->queue.n; i++) {
    const json_t *m = ls->queue.at[i];
    const json_t *which = is_cancel(m) ? js_path(m, "params.id") : NULL;
    if (which && json_equal(which, id)) return true;
  }
  return false;
}

void ls_work(Ls *ls) {
  for (uint32_t i = 0; i < ls->queue.n; i++) {
    bool skip = ls->state == LS_READY && is_cancelled(ls, i);
    json_t *m = ls->queue.at[i];
    ls->queue.at[i] = NULL;
    if (skip)
      ls_reply_error(ls, json_object_get(m, "id"), E_CANCELLED, "cancelled");
    else if (ls->state != LS_EXITED) handle(ls, m);
    json_decref(m);
  }
  ls->queue.n = 0;
  if (ls->state == LS_READY) ls_publish_all(ls);
}

// ---------------------------------------------------------------- in
static void give_up(Ls *ls, const char *why) {
  ls_reply_error(ls, NULL, E_PARSE, why);
  ls->state = LS_EXITED;
  ls->code = 1;
}

// The value of Content-Length; -1: none.
static long long content_length(const char *at, const char *end) {
  static const char key[] = "Content-Length:";
  while (at < end) {
    const char *nl = memchr(at, '\n', (size_t)(end - at));
    if (!strncasecmp(at, key, sizeof key - 1)) {
      char *stop;
      long long n = strtoll(at + sizeof key - 1, &stop, 10);
      return stop == at + sizeof key - 1 || n < 0 ? -1 : n;
    }
    if (!nl) break;
    at = nl + 1;
  }
  return -1;
}

static void take(Ls *ls, const char *body, size_t n) {
  json_error_t e;
  json_t *m = json_loadb(body, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &e);
  if (!m) {
    ls_reply_error(ls, NULL, E_PARSE, e.text);
    return;
  }
  // A batch is not part of the protocol.
  if (ls->queue.n >= MAX_QUEUE) ls_work(ls);
  vec_push(&ls->arena, &ls->queue, m);
}

// One message at ls->at; false if it is not whole yet.
static bool next_message(Ls *ls) {
  const char *at = ls->in + ls->at;
  size_t left = ls->nin - ls->at;
  const char *end = left ? memmem(at, left, "\r\n\r\n", 4) : NULL;
  if (!end) {
    if (left > MAX_HEADER) give_up(ls, "a header without end");
    return false;
  }
  long long n = content_length(at, end);
  if (n < 0 || n > MAX_BODY) {
    give_up(ls, "no Content-Length, or one that is too large");
    return false;
  }
  size_t header = (size_t)(end + 4 - at);
  if (left - header < (size_t)n) return false;
  take(ls, end + 4, (size_t)n);
  ls->at += header + (size_t)n;
  return true;
}

// Room for n more bytes; what was read is left behind.
static void make_room(Ls *ls, size_t n) {
  if (ls->nin + n + 1 <= ls->cap) return;
  size_t left = ls->nin - ls->at, cap = 2 * (left + n + 1);
  Arena fresh = ls_arena(ls);
  char *to = arena_alloc(&fresh, cap);
  if (left) memcpy(to, ls->in + ls->at, left);
  arena_drop(&ls->inbox);
  ls->inbox = fresh;
  ls->in = to;
  ls->nin = left;
  ls->at = 0;
  ls->cap = cap;
}

void ls_feed(Ls *ls, const char *bytes, size_t n) {
  if (ls->state == LS_EXITED || !n) return;
  make_room(ls, n);
  memcpy(ls->in + ls->nin, bytes, n);
  ls->nin += n;
  ls->in[ls->nin] = 0;  // numbers in headers end somewhere
  while (ls->state != LS_EXITED && next_message(ls)) {}
  if (ls->at != ls->nin) return;
  ls->at = ls->nin = 0;
}

bool ls_done(const Ls *ls, int *code) {
  *code = ls->code;
  return ls->state == LS_EXITED;
}
