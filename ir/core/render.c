// Diagnostics as text for people and as JSON lines for tools.
//
//   error[A0006]: expected ';', found identifier 'y'
//    --> gqa.attn:3:13
//     |
//   3 |   let a = x y
//     |             ^
//     = help: insert ';'
//     |
//   3 |   let a = x; y
//     |            +
#include "ir/core/ctx.h"
#include "ir/core/diag.h"

#include <stdlib.h>

enum { TAB = 4, CONTEXT = 16 };

typedef struct Paint {
  const char *bold, *error, *warning, *info, *frame, *help, *off;
} Paint;

static const Paint plain = {"", "", "", "", "", "", ""};
static const Paint colors = {"\033[1m",    "\033[1;31m", "\033[1;35m",
                             "\033[1;36m", "\033[1;34m", "\033[1;32m",
                             "\033[0m"};

typedef struct View {
  Ctx *cx;
  DiagStyle style;
  Paint c;
  Buf *out;
  int gutter;  // digits of the widest line number of one diagnostic
} View;

static const char *const severity_names[] = {"error", "warning", "info"};

static const Source *source_of(const Ctx *cx, Span s) {
  return span_known(s) && s.src < cx->sources.n ? cx->sources.at[s.src] : NULL;
}

// --- one source line -------------------------------------------------------

typedef struct Cell {
  uint32_t cp;     // code point; '?' for bytes that must not reach a terminal
  uint32_t bytes;  // length in the source
  uint32_t cols;   // width on the screen
} Cell;

static uint32_t columns(uint32_t cp) {
  static const uint32_t wide[][2] = {{0x1100, 0x115f},   {0x2e80, 0xa4cf},
                                     {0xac00, 0xd7a3},   {0xf900, 0xfaff},
                                     {0xfe30, 0xfe6f},   {0xff00, 0xff60},
                                     {0x1f300, 0x1f64f}, {0x1f900, 0x1f9ff},
                                     {0x20000, 0x3fffd}};
  if ((cp >= 0x300 && cp <= 0x36f) || cp == 0x200b) return 0;
  for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
    if (cp >= wide[i][0] && cp <= wide[i][1]) return 2;
  return 1;
}

// Characters that could repaint the terminal or turn the text direction.
static bool unsafe_char(uint32_t cp) {
  return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) ||
         (cp >= 0x200e && cp <= 0x200f) || (cp >= 0x2028 && cp <= 0x202e) ||
         (cp >= 0x2066 && cp <= 0x2069) || (cp >= 0xd800 && cp <= 0xdfff) ||
         cp > 0x10ffff;
}

static Cell next_cell(const char *s, uint32_t n) {
  const unsigned char *p = (const unsigned char *)s;
  uint32_t len = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
  if (p[0] == '\t') return (Cell){' ', 1, TAB};
  if (p[0] >= 0x80 && p[0] < 0xc2) return (Cell){'?', 1, 1};
  if (len > n) return (Cell){'?', 1, 1};
  uint32_t cp = len == 1 ? p[0] : p[0] & (0xffu >> (len + 1));
  for (uint32_t i = 1; i < len; i++) {
    if ((p[i] & 0xc0) != 0x80) return (Cell){'?', 1, 1};
    cp = cp << 6 | (p[i] & 0x3fu);
  }
  if (unsafe_char(cp)) return (Cell){'?', len, 1};
  return (Cell){cp, len, columns(cp)};
}

// Of long lines it is enough to know that they are longer than `most`.
static uint32_t width_to(const char *s, uint32_t n, uint32_t most) {
  uint32_t w = 0;
  for (uint32_t i = 0; i < n && w <= most;) {
    Cell c = next_cell(s + i, n - i);
    w += c.cols;
    i += c.bytes;
  }
  return w;
}

static uint32_t width_of(const char *s, uint32_t n) {
  return width_to(s, n, UINT32_MAX);
}

// The part s[lo..hi) with tabs spread and unsafe characters replaced.
static void put_text(Buf *out, const char *s, uint32_t lo, uint32_t hi,
                     uint32_t n) {
  for (uint32_t i = lo; i < hi;) {
    Cell c = next_cell(s + i, n - i);
    if (s[i] == '\t') buf_str(out, "    ");
    else if (c.cp == '?') buf_char(out, '?');
    else buf_add(out, s + i, c.bytes);
    i += c.bytes;
  }
}

static void put_times(Buf *out, const char *s, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) buf_str(out, s);
}

static void put_margin(View *v, uint32_t line) {
  const char *bar = v->style.ascii ? "|" : "\u2502";
  buf_str(v->out, v->c.frame);
  if (line) buf_printf(v->out, "%*u %s", v->gutter, line, bar);
  else buf_printf(v->out, "%*s %s", v->gutter, "", bar);
  buf_str(v->out, v->c.off);
}

// What of a long line is shown: a window around the marked bytes.
typedef struct Window {
  uint32_t lo, hi;
} Window;

static Window window_of(const View *v, const char *s, uint32_t n, uint32_t lo) {
  Window w = {0, n};
  uint32_t room = v->style.width > v->gutter + 20
                      ? (uint32_t)(v->style.width - v->gutter - 10)
                      : 0;
  if (!room || width_to(s, n, room) <= room) return w;
  if (lo > room / 2) w.lo = lo - room / 2;
  while (w.lo > 0 && ((unsigned char)s[w.lo] & 0xc0) == 0x80) w.lo--;
  w.hi = w.lo + room < n ? w.lo + room : n;
  while (w.hi < n && ((unsigned char)s[w.hi] & 0xc0) == 0x80) w.hi++;
  return w;
}

// A line of text and what of it is marked.
typedef struct Marked {
  const char *text;
  uint32_t n, line, lo, hi;
} Marked;

static void put_marked_line(View *v, const Marked *m, const char *mark,
                            const char *color) {
  const char *dots = "...", *s = m->text;
  uint32_t n = m->n, lo = m->lo, hi = m->hi;
  if (lo > n) lo = n;
  if (hi > n) hi = n;
  Window w = window_of(v, s, n, lo);
  if (hi > w.hi) hi = w.hi;
  put_margin(v, m->line);
  buf_char(v->out, n ? ' ' : '\n');
  if (n) {
    if (w.lo) buf_str(v->out, dots);
    put_text(v->out, s, w.lo, w.hi, n);
    buf_str(v->out, w.hi < n ? "...\n" : "\n");
  }
  put_margin(v, 0);
  buf_char(v->out, ' ');
  put_times(v->out, " ", width_of(s + w.lo, lo - w.lo) + (w.lo ? 3 : 0));
  uint32_t marks = hi > lo ? width_of(s + lo, hi - lo) : 1;
  buf_str(v->out, color);
  put_times(v->out, mark, marks ? marks : 1);
  buf_printf(v->out, "%s\n", v->c.off);
}

static void put_arrow(View *v, const Source *src, LineCol at) {
  const char *arrow = v->style.ascii ? "-->" : " \u256d\u2500";
  buf_printf(v->out, "%*s%s%s%s %s:%u:%u\n", v->gutter, "", v->c.frame, arrow,
             v->c.off, src->path, at.line, at.col);
}

static void put_snippet(View *v, Span s, const char *color) {
  const Source *src = source_of(v->cx, s);
  if (!src) return;
  LineCol at = src_linecol(src, s.lo);
  uint32_t n;
  const char *text = src_line(src, at.line, &n);
  uint32_t lo = at.col - 1, start = (uint32_t)(text - src->text);
  uint32_t hi = s.hi > start ? s.hi - start : 0;  // clipped to the line
  put_arrow(v, src, at);
  put_margin(v, 0);
  buf_char(v->out, '\n');
  put_marked_line(v, &(Marked){text, n, at.line, lo, hi}, "^", color);
}

// --- fix-its ---------------------------------------------------------------

static void put_fix(View *v, const FixIt *f) {
  const Source *src = source_of(v->cx, f->span);
  buf_printf(v->out, "%*s %s=%s %shelp%s: %s\n", v->gutter, "", v->c.frame,
             v->c.off, v->c.help, v->c.off, f->title);
  if (!src || strchr(f->text, '\n')) return;
  LineCol at = src_linecol(src, f->span.lo);
  uint32_t n, lo = at.col - 1;
  const char *text = src_line(src, at.line, &n);
  uint32_t end = f->span.hi - (uint32_t)(text - src->text);
  if (end > n || lo > n) return;  // spans several lines
  ArenaMark m = arena_mark(&v->cx->scratch);
  Buf b = {.arena = &v->cx->scratch};
  buf_add(&b, text, lo);
  buf_str(&b, f->text);
  buf_add(&b, text + end, n - end);
  uint32_t added = (uint32_t)strlen(f->text);
  put_margin(v, 0);
  buf_char(v->out, '\n');
  Marked line = {b.at, b.n, at.line, lo, lo + added};
  put_marked_line(v, &line, added ? "+" : "-", v->c.help);
  arena_reset(&v->cx->scratch, m);
}

// --- whole diagnostics -----------------------------------------------------

static void widen(View *v, Span s) {
  const Source *src = source_of(v->cx, s);
  if (!src) return;
  int digits = 1;
  for (uint32_t l = src_linecol(src, s.lo).line; l >= 10; l /= 10) digits++;
  if (digits > v->gutter) v->gutter = digits;
}

static void put_note(View *v, const DiagNote *n) {
  if (source_of(v->cx, n->span)) {
    buf_printf(v->out, "%snote%s: %s\n", v->c.bold, v->c.off, n->text);
    put_snippet(v, n->span, v->c.info);
    return;
  }
  buf_printf(v->out, "%*s %s=%s note: %s\n", v->gutter, "", v->c.frame,
             v->c.off, n->text);
}

static void put_diag(View *v, const Diag *d) {
  const char *const tint[] = {v->c.error, v->c.warning, v->c.info};
  v->gutter = 1;
  widen(v, d->span);
  for (uint32_t i = 0; i < d->notes.n; i++) widen(v, d->notes.at[i].span);
  for (uint32_t i = 0; i < d->fixes.n; i++) widen(v, d->fixes.at[i].span);
  buf_printf(v->out, "%s%s[%s]%s%s: %s%s\n", tint[d->sev],
             severity_names[d->sev], diag_code(d->id), v->c.off, v->c.bold,
             d->text, v->c.off);
  put_snippet(v, d->span, tint[d->sev]);
  for (uint32_t i = 0; i < d->notes.n; i++) put_note(v, &d->notes.at[i]);
  for (uint32_t i = 0; i < d->fixes.n; i++) put_fix(v, &d->fixes.at[i]);
}

// Order: source, position, arrival. Diagnostics without a place come first.
static bool before(const Diag *a, const Diag *b) {
  uint32_t x = a->span.src + 1, y = b->span.src + 1;  // NOWHERE wraps to 0
  if (x != y) return x < y;
  return a->span.lo < b->span.lo;
}

static const Diag **sorted(Ctx *cx) {
  uint32_t n = cx->diags.n;
  const Diag **v = NEWN(&cx->scratch, const Diag *, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    const Diag *d = cx->diags.at[i];
    uint32_t j = i;
    for (; j > 0 && before(d, v[j - 1]); j--) v[j] = v[j - 1];
    v[j] = d;
  }
  return v;
}

void diag_render(Ctx *cx, DiagStyle style, Buf *out) {
  View v = {cx, style, style.color ? colors : plain, out, 1};
  ArenaMark m = arena_mark(&cx->scratch);
  const Diag **list = sorted(cx);
  for (uint32_t i = 0; i < cx->diags.n; i++) {
    if (i) buf_char(out, '\n');
    put_diag(&v, list[i]);
  }
  if (cx->nerrors > cx->max_errors)
    buf_printf(out, "\n%u more errors are not shown\n",
               cx->nerrors - cx->max_errors);
  if (cx->nhidden)
    buf_printf(out, "\n%u more warnings are not shown\n", cx->nhidden);
  arena_reset(&cx->scratch, m);
}

static void json_text(Buf *out, const char *key, const char *s) {
  buf_printf(out, "\"%s\":", key);
  buf_json(out, s, strlen(s));
}

static void json_span(Ctx *cx, Buf *out, Span s) {
  const Source *src = source_of(cx, s);
  if (!src) return;
  LineCol lo = src_linecol(src, s.lo), hi = src_linecol(src, s.hi);
  buf_char(out, ',');
  json_text(out, "file", src->path);
  buf_printf(out,
             ",\"line\":%u,\"column\":%u,\"endLine\":%u,\"endColumn\":%u,"
             "\"offset\":%u,\"end\":%u",
             lo.line, lo.col, hi.line, hi.col, s.lo, s.hi);
}

static void json_diag(Ctx *cx, const Diag *d, Buf *out) {
  buf_char(out, '{');
  json_text(out, "code", diag_code(d->id));
  buf_char(out, ',');
  json_text(out, "name", diag_name(d->id));
  buf_char(out, ',');
  json_text(out, "severity", severity_names[d->sev]);
  buf_char(out, ',');
  json_text(out, "message", d->text);
  json_span(cx, out, d->span);
  buf_str(out, ",\"notes\":[");
  for (uint32_t i = 0; i < d->notes.n; i++) {
    buf_str(out, i ? ",{" : "{");
    json_text(out, "message", d->notes.at[i].text);
    json_span(cx, out, d->notes.at[i].span);
    buf_char(out, '}');
  }
  buf_str(out, "],\"fixes\":[");
  for (uint32_t i = 0; i < d->fixes.n; i++) {
    buf_str(out, i ? ",{" : "{");
    json_text(out, "title", d->fixes.at[i].title);
    buf_char(out, ',');
    json_text(out, "text", d->fixes.at[i].text);
    json_span(cx, out, d->fixes.at[i].span);
    buf_printf(out, ",\"sure\":%s", d->fixes.at[i].sure ? "true" : "false");
    buf_char(out, '}');
  }
  buf_str(out, "]}\n");
}

void diag_render_json(Ctx *cx, Buf *out) {
  ArenaMark m = arena_mark(&cx->scratch);
  const Diag **list = sorted(cx);
  for (uint32_t i = 0; i < cx->diags.n; i++) json_diag(cx, list[i], out);
  arena_reset(&cx->scratch, m);
}
