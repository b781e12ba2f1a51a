// The list of diagnostics of a session. Rendering is in render.c.
#include "ir/core/diag.h"

#include "ir/core/ctx.h"
#include <stdarg.h>
#include <stdio.h>

typedef struct Row {
  const char *code, *name;
  Severity sev;
  const char *text;
} Row;

static const Row rows[] = {
#define DIAG(code, id, sev, text) {code, #id, sev, text},
#include "ir/diag.def"
};

const char *diag_code(DiagId id) {
  return rows[id].code;
}
const char *diag_name(DiagId id) {
  return rows[id].name;
}
const char *diag_text(DiagId id) {
  return rows[id].text;
}
Severity diag_severity(DiagId id) {
  return rows[id].sev;
}

bool diag_by_code(const char *code, DiagId *id) {
  for (int i = 0; i < DIAG_COUNT; i++) {
    if (strcmp(rows[i].code, code) == 0) {
      *id = (DiagId)i;
      return true;
    }
  }
  return false;
}

static const char *format(Arena *a, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, again);
  va_end(again);
  size_t len = n < 0 ? 0 : (size_t)n;
  char *p = arena_alloc(a, len + 1);
  vsnprintf(p, len + 1, fmt, ap);
  return p;
}

// Is there such a warning already? What is compiled several times warns so
// often.
static bool is_said(const Ctx *cx, const Diag *d) {
  for (uint32_t i = 0; i < cx->diags.n; i++) {
    const Diag *o = cx->diags.at[i];
    if (o->id == d->id && memcmp(&o->span, &d->span, sizeof o->span) == 0 &&
        strcmp(o->text, d->text) == 0)
      return true;
  }
  return false;
}

Diag *diag_add(Ctx *cx, DiagId id, Span at, ...) {
  Diag *d = NEW(&cx->session, Diag);
  *d = (Diag){.id = id, .sev = rows[id].sev, .span = at};
  va_list ap;
  va_start(ap, at);
  d->text = format(&cx->session, rows[id].text, ap);
  va_end(ap);
  bool keep = d->sev == SEV_ERROR || !cx->silent[id] || cx->strict[id];
  if (cx->strict[id]) d->sev = SEV_ERROR;
  if (d->sev == SEV_ERROR) keep = cx->nerrors++ < cx->max_errors;
  else if (keep && is_said(cx, d)) keep = false;
  else if (keep && cx->diags.n >= 10 * cx->max_errors) {
    keep = false;
    cx->nhidden++;
  }
  if (keep) vec_push(&cx->session, &cx->diags, d);
  return d;
}

void diag_note(Ctx *cx, Diag *d, Span at, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  DiagNote note = {at, format(&cx->session, fmt, ap)};
  va_end(ap);
  vec_push(&cx->session, &d->notes, note);
}

FixIt *diag_fix(Ctx *cx, Diag *d, Span at, const char *text, const char *fmt,
                ...) {
  va_list ap;
  va_start(ap, fmt);
  FixIt fix = {at, arena_strdup(&cx->session, text),
               format(&cx->session, fmt, ap), false};
  va_end(ap);
  vec_push(&cx->session, &d->fixes, fix);
  return &d->fixes.at[d->fixes.n - 1];
}

// ---------------------------------------------------------------- trying
bool diag_is_bug(DiagId id) {
  return id == DIAG_ir_invalid || id == DIAG_pass_broke || id == DIAG_ir_broken;
}

bool diag_has_bug(const Ctx *cx) {
  for (uint32_t i = 0; i < cx->diags.n; i++)
    if (diag_is_bug(cx->diags.at[i]->id)) return true;
  return false;
}

DiagMark diag_mark(const Ctx *cx) {
  return (DiagMark){cx->diags.n, cx->nerrors, cx->nhidden, cx->remarks.n};
}

void diag_forget(Ctx *cx, DiagMark since) {
  uint32_t kept = since.diags;
  for (uint32_t i = kept; i < cx->diags.n; i++)
    if (diag_is_bug(cx->diags.at[i]->id))
      cx->diags.at[kept++] = cx->diags.at[i];
  cx->diags.n = kept;
  cx->nerrors = since.errors + kept - since.diags;
  cx->nhidden = since.hidden;
  cx->remarks.n = since.remarks;
}

Diag *diag_error_since(const Ctx *cx, DiagMark since) {
  for (uint32_t i = since.diags; i < cx->diags.n; i++)
    if (cx->diags.at[i]->sev == SEV_ERROR) return cx->diags.at[i];
  return NULL;
}

void diag_again(Ctx *cx, Diag *d) {
  cx->nerrors += d->sev == SEV_ERROR;
  vec_push(&cx->session, &cx->diags, d);
}
