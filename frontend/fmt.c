// Canonical source text, printed from the tokens and the comments between
// them, so that nothing the author wrote can be lost:
//
//   let  s=scale*dot( Q[b,h,q],K[b,g,k] ) ;# scores
// ->
//   let s = scale * dot(Q[b, h, q], K[b, g, k]);  # scores
//
// One statement a line, two spaces an indent, at most one blank line in a row.
// A line that is too long is broken where its structure is shallowest; what a
// comment cuts stays cut. A short block that was written on one line stays so.
#include "frontend/parse.h"

#include "frontend/parser.tab.h"

enum { WIDTH = 100, INDENT = 2, CONT = 4 };

typedef struct Comment {
  uint32_t lo, hi;
  bool blank;  // a blank line stands before it
} Comment;

typedef struct Tok {
  int kind;
  uint32_t lo, hi;
  bool blank;          // a blank line before it, after its comments
  Vec(Comment) above;  // comments on lines of their own
  Comment behind;      // comment on the same line; lo == hi: none
  uint16_t depth;      // brackets around it
  int inside;          // kind of the innermost bracket around it, or 0
  bool generic;        // `<` or `>` around generics
} Tok;

typedef struct Fmt {
  Ctx *cx;
  const Source *src;
  Tok *tok;
  uint32_t n;
  Buf *out;
  uint32_t col;
  bool cut;          // a comment was printed: the line must end
  bool block_start;  // nothing printed since the brace: no blank line
} Fmt;

// --- tokens and what belongs to them ---------------------------------------

static bool line_end_between(const Source *s, uint32_t lo, uint32_t hi) {
  return hi > lo && memchr(s->text + lo, '\n', hi - lo) != NULL;
}

// Hands the trivia before token t to it or to the token before.
static void attach(Fmt *f, Tok *prev, Tok *t, const Trivia *at, uint32_t n) {
  bool blank = false;
  for (uint32_t i = 0; i < n; i++) {
    if (at[i].kind == TR_BLANK) {
      blank = true;
      continue;
    }
    Comment c = {at[i].span.lo, at[i].span.hi, blank};
    while (c.hi > c.lo && strchr(" \t\r\f", f->src->text[c.hi - 1])) c.hi--;
    blank = false;
    if (prev && !t->above.n && prev->behind.lo == prev->behind.hi &&
        !line_end_between(f->src, prev->hi, c.lo))
      prev->behind = c;
    else vec_push(&f->cx->scratch, &t->above, c);
  }
  t->blank = blank;
}

// A comma that nothing hangs on; before `)` it goes.
static bool is_bare_comma(const Tok *t) {
  return t->kind == TK_COMMA && !t->above.n && t->behind.lo == t->behind.hi;
}

static void read_tokens(Fmt *f) {
  Arena *a = &f->cx->scratch;
  Unit *u = NEW(a, Unit);
  Parse *p = NEW(a, Parse);
  Vec(Tok) v = {0};
  *p = (Parse){.cx = f->cx, .a = a, .src = (Source *)f->src, .unit = u};
  p->quiet = true;
  fe_tokens_init(p);
  if (setjmp(p->fatal)) return;
  scan_start(p);
  for (;;) {
    u->trivia.n = 0;
    int kind = scan_token(p);
    Tok t = {.kind = kind, .lo = p->tok.at.lo, .hi = p->tok.at.hi};
    attach(f, v.n ? &v.at[v.n - 1] : NULL, &t, u->trivia.at, u->trivia.n);
    if (kind == TK_RPAREN && v.n && is_bare_comma(&v.at[v.n - 1])) v.n--;
    vec_push(a, &v, t);
    if (kind == TK_END) break;
  }
  f->tok = v.at;
  f->n = v.n;
}

// The `>` that closes the generics opened at i.
static uint32_t close_of(const Fmt *f, uint32_t i) {
  int open = 0;
  for (uint32_t j = i + 1; j < f->n; j++) {
    int k = f->tok[j].kind;
    if (k == TK_LPAREN || k == TK_LSQUARE || k == TK_LBRACE) open++;
    if (k == TK_RPAREN || k == TK_RSQUARE || k == TK_RBRACE) open--;
    if (k == TK_GT && open == 0) return j;
  }
  return i;
}

static void mark_generics(Fmt *f) {
  for (uint32_t i = 2; i + 1 < f->n; i++) {
    int k = f->tok[i - 2].kind;
    bool names = k == TK_FN || k == TK_ATTENTION || k == TK_RECURRENT;
    if (f->tok[i].kind != TK_LT || !names) continue;
    uint32_t j = close_of(f, i);
    if (j == i || f->tok[j + 1].kind != TK_LPAREN) continue;
    f->tok[i].generic = f->tok[j].generic = true;
  }
}

static bool opens(const Tok *t) {
  return t->kind == TK_LPAREN || t->kind == TK_LSQUARE ||
         t->kind == TK_LBRACE || (t->kind == TK_LT && t->generic);
}

static bool closes(const Tok *t) {
  return t->kind == TK_RPAREN || t->kind == TK_RSQUARE ||
         t->kind == TK_RBRACE || (t->kind == TK_GT && t->generic);
}

static void mark_depths(Fmt *f) {
  int stack[MAX_DEPTH * 2 + 4], n = 0;
  for (uint32_t i = 0; i < f->n; i++) {
    Tok *t = &f->tok[i];
    if (closes(t) && n > 0) n--;
    t->depth = (uint16_t)n;
    t->inside = n ? stack[n - 1] : 0;
    if (opens(t) && n < MAX_DEPTH * 2) stack[n++] = t->kind;
  }
}

// --- spaces ----------------------------------------------------------------

// Can token t end an operand? A minus behind it is a difference then.
static bool ends_operand(const Tok *t) {
  switch (t->kind) {
  case TK_IDENT:
  case TK_INTLIT:
  case TK_FLOATLIT:
  case TK_STRING:
  case TK_DTYPE:
  case TK_INT:
  case TK_TRUE:
  case TK_FALSE:
  case TK_INF:
  case TK_RPAREN:
  case TK_RSQUARE: return true;
  default: return token_class(t->kind) == TC_SOFT;
  }
}

static bool is_prefix(const Fmt *f, uint32_t i) {
  const Tok *t = &f->tok[i];
  if (t->kind == TK_NOT || t->kind == TK_AT) return true;
  return t->kind == TK_MINUS && (i == 0 || !ends_operand(&f->tok[i - 1]));
}

// `const {64, 128}` is tight inside its braces, blocks and imports are not.
static bool is_tight_brace(const Fmt *f, uint32_t i) {
  int k = i ? f->tok[i - 1].kind : 0;
  return k == TK_CONST || k == TK_ANYTYPE || k == TK_DYN;
}

static bool tight_after(const Fmt *f, uint32_t i) {
  const Tok *t = &f->tok[i];
  switch (t->kind) {
  case TK_LPAREN:
  case TK_LSQUARE:
  case TK_DOT: return true;
  case TK_LT: return t->generic;
  case TK_COLON: return t->inside == TK_LSQUARE;
  case TK_LBRACE: return is_tight_brace(f, i);
  default: return is_prefix(f, i);
  }
}

static bool closes_tight_brace(const Fmt *f, uint32_t i) {
  for (uint32_t j = i; j-- > 0;)
    if (f->tok[j].kind == TK_LBRACE && f->tok[j].depth == f->tok[i].depth)
      return is_tight_brace(f, j);
  return false;
}

static bool tight_before(const Fmt *f, uint32_t i) {
  const Tok *t = &f->tok[i], *prev = &f->tok[i - 1];
  switch (t->kind) {
  case TK_RPAREN:
  case TK_RSQUARE:
  case TK_COMMA:
  case TK_SEMI:
  case TK_DOT:
  case TK_LSQUARE: return true;
  case TK_COLON: return t->inside != TK_LSQUARE || prev->kind != TK_COMMA;
  case TK_LT:
  case TK_GT: return t->generic;
  case TK_RBRACE: return closes_tight_brace(f, i);
  case TK_LPAREN:
    return ends_operand(prev) || prev->kind == TK_LAYOUT ||
           prev->kind == TK_CONST || (prev->kind == TK_GT && prev->generic);
  default: return false;
  }
}

static uint32_t gap(const Fmt *f, uint32_t i) {
  return i > 0 && !tight_after(f, i - 1) && !tight_before(f, i);
}

// Columns of a token: code points, so that strings may hold any text.
static uint32_t width(const Fmt *f, uint32_t i) {
  uint32_t n = 0;
  for (uint32_t j = f->tok[i].lo; j < f->tok[i].hi; j++)
    n += ((unsigned char)f->src->text[j] & 0xc0) != 0x80;
  return n;
}

// --- output ----------------------------------------------------------------

static void newline(Fmt *f, uint32_t indent) {
  if (f->out->n) buf_char(f->out, '\n');
  for (uint32_t i = 0; i < indent; i++) buf_char(f->out, ' ');
  f->col = indent;
  f->cut = false;
}

static void text(Fmt *f, uint32_t lo, uint32_t hi) {
  buf_add(f->out, f->src->text + lo, hi - lo);
}

// Starts the line on which token i stands, with the comments above it. Those
// above a closing brace belong to the block.
static void begin_line(Fmt *f, uint32_t i, uint32_t indent) {
  const Tok *t = &f->tok[i];
  for (uint32_t c = 0; c < t->above.n; c++) {
    if (t->above.at[c].blank && !f->block_start) newline(f, 0);
    newline(f, indent + (t->kind == TK_RBRACE ? INDENT : 0));
    text(f, t->above.at[c].lo, t->above.at[c].hi);
    f->block_start = false;
  }
  bool last = t->kind == TK_RBRACE || t->kind == TK_END;
  if (t->blank && !f->block_start && !last) newline(f, 0);
  if (t->kind != TK_END) newline(f, indent);
  f->block_start = false;
}

// Token i on the current line; on a new one if a comment is in the way.
static void put(Fmt *f, uint32_t i, bool first, uint32_t indent) {
  const Tok *t = &f->tok[i];
  if (!first && (f->cut || t->above.n)) {
    for (uint32_t c = 0; c < t->above.n; c++) {
      newline(f, indent);
      text(f, t->above.at[c].lo, t->above.at[c].hi);
    }
    newline(f, indent);
  } else if (!first && gap(f, i)) {
    buf_char(f->out, ' ');
    f->col++;
  }
  text(f, t->lo, t->hi);
  f->col += width(f, i);
  if (t->behind.hi > t->behind.lo) {
    buf_str(f->out, "  ");
    text(f, t->behind.lo, t->behind.hi);
    f->cut = true;
  }
}

// --- breaking long lines ---------------------------------------------------

// How good it is to break before token i: smaller is better, 0 is not at all.
static uint32_t cost(const Fmt *f, uint32_t i) {
  const Tok *t = &f->tok[i], *prev = &f->tok[i - 1];
  uint32_t at = 1 + 16u * t->depth;
  if (prev->kind == TK_COMMA) return at;
  if (prev->kind == TK_ASSIGN) return at + 8;
  if (!ends_operand(prev)) return 0;
  switch (t->kind) {
  case TK_THEN:
  case TK_ELSE:
  case TK_WHERE: return at;
  case TK_APPROX:
  case TK_TOL:
  case TK_PIPE: return at + 1;
  case TK_OR: return at + 2;
  case TK_AND: return at + 3;
  case TK_LT:
  case TK_GT:
    if (t->generic) return 0;
    return at + 4;
  case TK_LE:
  case TK_GE:
  case TK_EQ:
  case TK_NE: return at + 4;
  case TK_PLUS:
  case TK_MINUS: return at + 5;
  case TK_STAR:
  case TK_SLASH:
  case TK_FLOORDIV:
  case TK_PERCENT:
  case TK_MATMUL: return at + 6;
  case TK_LAYOUT: return at + 7;
  default: return 0;
  }
}

static bool cut_before(const Fmt *f, uint32_t i) {
  const Tok *prev = &f->tok[i - 1];
  return f->tok[i].above.n || prev->behind.hi > prev->behind.lo;
}

// Width of tokens [lo, hi) on one line, or more than any line if a comment
// cuts it.
static uint32_t flat_width(const Fmt *f, uint32_t lo, uint32_t hi) {
  uint32_t w = 0;
  for (uint32_t i = lo; i < hi && w <= WIDTH; i++) {
    if (i > lo && cut_before(f, i)) return WIDTH + 1;
    w += (i > lo ? gap(f, i) : 0) + width(f, i);
  }
  return w;
}

// Where the line that starts with token lo at column `col` ends.
static uint32_t line_end(const Fmt *f, uint32_t lo, uint32_t hi, uint32_t col) {
  uint32_t best = 0, best_cost = UINT32_MAX;
  for (uint32_t i = lo; i < hi; i++) {
    if (i > lo && cut_before(f, i)) return i;
    uint32_t c = i > lo ? cost(f, i) : 0;
    if (c && (col <= WIDTH ? c <= best_cost : !best)) {
      best = i;
      best_cost = c;
    }
    col += (i > lo ? gap(f, i) : 0) + width(f, i);
    if (col > WIDTH && best) return best;
  }
  return hi;
}

// Tokens [lo, hi) as one logical line; the line is already begun.
static void put_line(Fmt *f, uint32_t lo, uint32_t hi, uint32_t more) {
  uint32_t from = f->col;
  while (lo < hi) {
    uint32_t end = line_end(f, lo, hi, f->col);
    for (uint32_t i = lo; i < end; i++) put(f, i, i == lo, from + more);
    lo = end;
    if (lo == hi) break;
    for (uint32_t c = 0; c < f->tok[lo].above.n; c++) {
      newline(f, from + more);
      text(f, f->tok[lo].above.at[c].lo, f->tok[lo].above.at[c].hi);
    }
    newline(f, from + more);
  }
}

// --- blocks ----------------------------------------------------------------

static uint32_t matching(const Fmt *f, uint32_t i) {
  uint32_t j = i + 1;
  while (j + 1 < f->n &&
         !(closes(&f->tok[j]) && f->tok[j].depth == f->tok[i].depth))
    j++;
  return j;
}

static bool was_one_line(const Fmt *f, uint32_t lo, uint32_t hi) {
  return !line_end_between(f->src, f->tok[lo].lo, f->tok[hi].hi);
}

// `{ .. }`, tokens [open, close].
static void put_block(Fmt *f, uint32_t open, uint32_t close, uint32_t indent) {
  put(f, open, false, indent);
  f->block_start = true;
  for (uint32_t i = open + 1; i < close;) {
    uint32_t end = i;  // the `;`, or the brace of a nested block
    while (end < close &&
           !(f->tok[end].depth == f->tok[i].depth &&
             (f->tok[end].kind == TK_SEMI || f->tok[end].kind == TK_LBRACE)))
      end++;
    begin_line(f, i, indent + INDENT);
    if (f->tok[end].kind == TK_LBRACE) {
      put_line(f, i, end, CONT);
      uint32_t to = matching(f, end);
      put_block(f, end, to, indent + INDENT);
      i = to + 1;
    } else {
      put_line(f, i, end + 1, CONT);
      i = end + 1;
    }
  }
  begin_line(f, close, indent);
  put(f, close, true, indent);
}

// --- declarations ----------------------------------------------------------

// The brace that opens the body of the declaration at i, or f->n.
static uint32_t body_of(const Fmt *f, uint32_t i) {
  for (uint32_t j = i; j < f->n; j++) {
    if (f->tok[j].depth) continue;
    if (f->tok[j].kind == TK_LBRACE) return j;
    if (f->tok[j].kind == TK_SEMI) break;
  }
  return f->n;
}

static uint32_t semicolon_of(const Fmt *f, uint32_t i) {
  while (f->tok[i].kind != TK_END &&
         !(f->tok[i].kind == TK_SEMI && f->tok[i].depth == 0))
    i++;
  return i;
}

// The head of a program that does not fit one line: a line each for name and
// generics, parameters, outputs and conditions.
static void put_tall_head(Fmt *f, uint32_t lo, uint32_t hi) {
  uint32_t i = lo, more = CONT;
  for (uint32_t j = lo + 1; j <= hi; j++) {
    const Tok *t = &f->tok[j];
    bool part = t->depth == 0 &&
                ((t->kind == TK_LPAREN && f->tok[j - 1].kind != TK_ARROW) ||
                 t->kind == TK_ARROW || t->kind == TK_WHERE);
    if (j != hi && !part) continue;
    if (i != lo) begin_line(f, i, INDENT);
    put_line(f, i, j, more);
    more = t->kind == TK_LPAREN ? 1 : t->kind == TK_ARROW ? 4 : 6;
    i = j;
  }
}

static void put_program(Fmt *f, uint32_t lo, uint32_t open, uint32_t close) {
  if (flat_width(f, lo, open + 1) <= WIDTH) {
    put_line(f, lo, open, CONT);
  } else {
    put_tall_head(f, lo, open);
    f->cut = true;  // the brace stands alone
  }
  put_block(f, open, close, 0);
}

// The last token of the declaration whose keyword is token i.
static uint32_t decl_end(const Fmt *f, uint32_t i) {
  uint32_t open = body_of(f, i);
  return open == f->n ? semicolon_of(f, i) : matching(f, open);
}

// Does the block of the declaration at i take several lines?
static bool is_tall(const Fmt *f, uint32_t i) {
  uint32_t open = body_of(f, i), end = decl_end(f, i);
  int kind = f->tok[i].kind;
  if (open == f->n || kind == TK_IMPORT) return false;
  if (kind == TK_ATTENTION || kind == TK_RECURRENT) return true;
  return !was_one_line(f, open, end) || flat_width(f, i, end + 1) > WIDTH;
}

// Everything from the keyword at i on; returns the token behind it.
static uint32_t put_decl(Fmt *f, uint32_t i) {
  uint32_t end = decl_end(f, i);
  int kind = f->tok[i].kind;
  if (!is_tall(f, i)) {
    put_line(f, i, end + 1, CONT);
  } else if (kind == TK_ATTENTION || kind == TK_RECURRENT) {
    put_program(f, i, body_of(f, i), end);
  } else {
    put_line(f, i, body_of(f, i), CONT);
    put_block(f, body_of(f, i), end, 0);
  }
  return end + 1;
}

static uint32_t attrs_end(const Fmt *f, uint32_t i) {
  while (f->tok[i].kind == TK_AT) {
    i += 2;
    if (f->tok[i].kind == TK_LPAREN) i = matching(f, i) + 1;
  }
  return i;
}

// A blank line above the declaration at i and its comments.
static void want_blank(Fmt *f, uint32_t i) {
  if (f->tok[i].above.n) f->tok[i].above.at[0].blank = true;
  else f->tok[i].blank = true;
}

static void put_file(Fmt *f) {
  bool tall = false;
  for (uint32_t i = 0; i + 1 < f->n;) {
    uint32_t word = attrs_end(f, i);
    bool was_tall = tall;
    tall = is_tall(f, word);
    if (i && (tall || was_tall)) want_blank(f, i);
    begin_line(f, i, 0);
    if (word != i) {  // attributes have a line of their own
      put_line(f, i, word, CONT);
      begin_line(f, word, 0);
    }
    i = put_decl(f, word);
  }
  begin_line(f, f->n - 1, 0);
}

bool fe_format(Ctx *cx, const Unit *unit, Buf *out) {
  if (!unit->syntax_ok) return false;
  ArenaMark m = arena_mark(&cx->scratch);
  Buf b = {.arena = &cx->scratch};
  Fmt f = {.cx = cx, .src = unit->source, .out = &b, .block_start = true};
  work_begin(cx);
  work_say(cx, "formatting '%s'", unit->source->path);
  read_tokens(&f);
  mark_generics(&f);
  mark_depths(&f);
  if (f.n) put_file(&f);
  work_end(cx);
  if (b.n) buf_char(&b, '\n');
  buf_add(out, b.at, b.n);
  arena_reset(&cx->scratch, m);
  return f.n != 0;
}
