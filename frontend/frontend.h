// The front end's only header for others: parse, check, lower, format.
#ifndef ATTNC_FRONTEND_FRONTEND_H
#define ATTNC_FRONTEND_FRONTEND_H

#include "frontend/ast.h"

struct Module;

// Parses src. Always returns a tree; unit->syntax_ok tells whether it is
// whole. Errors are in cx->diags.
Unit *fe_parse(Ctx *cx, Source *src);

// Resolves imports (the importing file's folder, -I, then the embedded
// stdlib), names, types, shapes and roles. False if there were errors.
bool fe_check(Ctx *cx, Unit *unit);

// The `attention` and `recurrent` declarations of a checked unit, in order.
uint32_t fe_programs(const Unit *unit, Decl **out, uint32_t max);
Decl *fe_program(const Unit *unit, const char *name);

// A fixed dim or dtype of one specialization: {"D", 128} or {"T", 0, DT_BF16}.
typedef struct FeBind {
  const char *name;
  int64_t value;
  DType dtype;  // DT_NONE for dims
} FeBind;

// All combinations of `const` dims and dtype generics of a program, filtered
// by its `where`; each is `*nbinds` FeBinds. Dims in `fixed` are taken as
// given. Returns the number of combinations (1 if there is nothing to choose).
uint32_t fe_specializations(Ctx *cx, const Decl *prog, const FeBind *fixed,
                            uint32_t nfixed, FeBind **binds, uint32_t *nbinds);

// Reports that the dim cannot be v, and what it can be.
void fe_bad_dim(Ctx *cx, Span at, const DimSym *s, int64_t v);

// Lowers one program to a module at level attn with the bound dims constant.
// Unbound dims stay symbolic. NULL if something cannot be lowered (reported).
struct Module *fe_lower(Ctx *cx, const Decl *prog, const FeBind *binds,
                        uint32_t nbinds);

// Canonical source text. False if the unit has syntax errors.
bool fe_format(Ctx *cx, const Unit *unit, Buf *out);
// S-expression of the tree (types included once checked).
void fe_dump(const Unit *unit, Buf *out);

// The word that such a declaration begins with: "mask"; "error" of what is
// none.
const char *fe_decl_word(DeclKind k);

// The tokens of a text, comments aside (Unit.trivia has those), for editors.
typedef enum FeTokenKind {
  FE_OTHER,  // what is no token
  FE_NAME,
  FE_NUMBER,
  FE_STRING,
  FE_TYPE,  // bf16, int
  FE_WORD,
  FE_SOFT,  // reserved words; words that may be names too
  FE_SIGN,
} FeTokenKind;
typedef struct FeToken {
  FeTokenKind kind;
  uint32_t lo, hi;
} FeToken;
typedef Vec(FeToken) FeTokens;
void fe_tokens(Ctx *cx, const Source *src, Arena *a, FeTokens *out);

// Embedded stdlib: "std/rows.attn" -> text, or NULL.
const char *fe_stdlib(const char *path, uint32_t *len);
// The i-th embedded file, NULL behind the last.
const char *fe_stdlib_path(uint32_t i);
// The path of the embedded file whose path or last name is near, or NULL.
const char *fe_stdlib_near(Arena *a, const char *path);
// The path of the embedded file of functions that declares `name`, or NULL.
const char *fe_stdlib_with(const char *name);
// All functions of these files, from {0} on.
typedef struct FeLibrary {
  const char *path;
  const char *name;  // n letters of the file's text
  size_t n;
  uint32_t file;
} FeLibrary;
bool fe_stdlib_next(FeLibrary *at);

#endif
