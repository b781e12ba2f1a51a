// The tokens of a text in order, for editors. Errors are not reported here.
#include "frontend/parse.h"
#include "frontend/parser.tab.h"

static FeTokenKind kind_of(int kind) {
  switch (kind) {
  case TK_IDENT: return FE_NAME;
  case TK_INTLIT:
  case TK_FLOATLIT: return FE_NUMBER;
  case TK_STRING: return FE_STRING;
  case TK_DTYPE:
  case TK_INT: return FE_TYPE;
  default: break;
  }
  switch (token_class(kind)) {
  case TC_WORD: return FE_WORD;
  case TC_SOFT: return FE_SOFT;
  case TC_SIGN:
  case TC_OPER: return FE_SIGN;
  case TC_OTHER: break;
  }
  return FE_OTHER;
}

// Its own frame: nothing here may live in a register across the longjmp.
static void read_all(Parse *p, Arena *a, FeTokens *out) {
  if (setjmp(p->fatal) || !scan_start(p)) return;
  while (scan_token(p) != TK_END) {
    FeToken t = {kind_of(p->tok.kind), p->tok.at.lo, p->tok.at.hi};
    if (t.hi > t.lo) vec_push(a, out, t);
  }
}

void fe_tokens(Ctx *cx, const Source *src, Arena *a, FeTokens *out) {
  ArenaMark m = arena_mark(&cx->scratch);
  Parse *p = NEW(&cx->scratch, Parse);
  uint32_t errors = cx->nerrors, diags = cx->diags.n;
  *p = (Parse){.cx = cx,
               .a = &cx->scratch,
               .src = (Source *)src,
               .unit = NEW(&cx->scratch, Unit),
               .quiet = true};
  fe_tokens_init(p);
  read_all(p, a, out);
  cx->nerrors = errors;
  cx->diags.n = diags;
  arena_reset(&cx->scratch, m);
}
