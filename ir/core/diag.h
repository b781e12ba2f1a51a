// Diagnostics are data: a code, a severity, a span, a text, notes and fix-its,
// collected in Ctx and rendered by the border (command line, editor).
// The one list of them is diag.def.
#ifndef ATTNC_IR_CORE_DIAG_H
#define ATTNC_IR_CORE_DIAG_H

#include "ir/core/buf.h"
#include "ir/core/src.h"
#include "ir/core/vec.h"
#include <stdbool.h>

typedef enum Severity { SEV_ERROR, SEV_WARNING, SEV_INFO } Severity;

typedef enum DiagId {
#define DIAG(code, id, sev, text) DIAG_##id,
#include "ir/diag.def"
  DIAG_COUNT
} DiagId;

typedef struct DiagNote {
  Span span;  // may be NOWHERE
  const char *text;
} DiagNote;

typedef struct FixIt {
  Span span;          // text to replace; lo == hi inserts
  const char *text;   // replacement
  const char *title;  // "declare `g`"
  bool sure;          // what was meant, without doubt: may be applied unseen
} FixIt;

typedef struct Diag {
  DiagId id;
  Severity sev;
  Span span;
  const char *text;  // formatted, one line, no trailing period
  Vec(DiagNote) notes;
  Vec(FixIt) fixes;
} Diag;

typedef struct Ctx Ctx;

// Adds a diagnostic; the printf arguments follow the text of its row. The
// result lives in the session arena and may be given notes and fix-its.
Diag *diag_add(Ctx *cx, DiagId id, Span at, ...);
void diag_note(Ctx *cx, Diag *d, Span at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
// A guess; the result may be made sure, until another is added.
FixIt *diag_fix(Ctx *cx, Diag *d, Span at, const char *text, const char *fmt,
                ...) __attribute__((format(printf, 5, 6)));

const char *diag_code(DiagId id);  // "A0012"
const char *diag_name(DiagId id);  // "unknown_name"
const char *diag_text(DiagId id);  // the row's format string
Severity diag_severity(DiagId id);
bool diag_by_code(const char *code, DiagId *id);

// Tells of a bug of the compiler, not of a program.
bool diag_is_bug(DiagId id);
bool diag_has_bug(const Ctx *cx);

// What was said before something was tried that may be dropped. Dropping it
// drops what was said since, save what tells of a bug: nobody goes on after
// one.
typedef struct DiagMark {
  uint32_t diags, errors, hidden, remarks;
} DiagMark;
DiagMark diag_mark(const Ctx *cx);
void diag_forget(Ctx *cx, DiagMark since);
// The first error since then, or NULL; adds one that was forgotten.
Diag *diag_error_since(const Ctx *cx, DiagMark since);
void diag_again(Ctx *cx, Diag *d);

typedef struct DiagStyle {
  bool color;
  bool ascii;  // no box-drawing characters
  int width;   // terminal columns, 0 = unlimited
} DiagStyle;

// All diagnostics, sorted by source, position and order of arrival.
void diag_render(Ctx *cx, DiagStyle style, Buf *out);
void diag_render_json(Ctx *cx, Buf *out);  // one JSON object a line

#endif
