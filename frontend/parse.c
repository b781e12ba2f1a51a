// Reading a file: hands tokens to the parser, reports syntax errors and finds
// the place to go on from, so that one run shows several errors.
//
// Recovery: on an error the parser asks syntax_error, which skips in the text
// to the end of the statement (inside a block) or declaration (outside), and
// then lets attn_lex return SYNC, which the grammar's `error SYNC` rules wait
// for. Tokens that start something new are put back.
#include "frontend/parse.h"

#include "frontend/parser.tab.h"
#include "ir/core/guess.h"

int attn_lex(Value *v, Loc *at, Parse *p);

Span fe_span_of(const Parse *p, Loc at) {
  return (Span){p->src->id, at.lo, at.hi};
}

void fe_too_deep(Parse *p, Loc at) {
  if (!p->stop) diag_add(p->cx, DIAG_too_deep, fe_span_of(p, at), MAX_DEPTH);
  p->stop = true;
}

// --- tokens ----------------------------------------------------------------

static Token next_token(Parse *p) {
  uint32_t next = p->nagain ? p->again[0].at.lo : p->pos;
  Loc here = {next, next};  // of tokens that are not in the text
  if (p->has_sync) {
    p->has_sync = false;
    return (Token){.kind = TK_SYNC, .at = here};
  }
  if (p->closers > 0) {
    p->closers--;
    return (Token){.kind = TK_RBRACE, .at = here};
  }
  if (p->nagain) {
    Token t = p->again[0];
    p->again[0] = p->again[1];
    p->nagain--;
    return t;
  }
  scan_token(p);
  return p->tok;
}

int attn_lex(Value *v, Loc *at, Parse *p) {
  Token t = next_token(p);
  p->prev_end = p->last.at.hi;
  p->before = p->last;
  p->last = t;
  v->tok = t;
  *at = t.at;
  return t.kind;
}

bool fe_begins_line(const Parse *p, uint32_t at) {
  const char *s = p->src->text;
  while (at > 0 && s[at - 1] && strchr(" \t\r\f", s[at - 1])) at--;
  return at == 0 || s[at - 1] == '\n';
}

// --- recovery --------------------------------------------------------------

static bool in_set(int kind, const int *set) {
  while (*set && *set != kind) set++;
  return *set != 0;
}

static const int stmt_words[] = {TK_LET,    TK_RETURN, TK_ASSUME, TK_INDEX,
                                 TK_STATE,  TK_STEP,   TK_DIMS,   TK_REPEAT,
                                 TK_EXPECT, TK_INPUT,  0};
static const int decl_words[] = {TK_IMPORT,    TK_FN,        TK_ROW,
                                 TK_MASK,      TK_MOD,       TK_CHECK,
                                 TK_ATTENTION, TK_RECURRENT, TK_SCHEDULE,
                                 TK_AT,        TK_LET,       0};

// Does t begin a declaration? Those stand at the left margin.
static bool begins_decl(const Parse *p, Token t) {
  bool margin = t.at.lo == 0 || p->src->text[t.at.lo - 1] == '\n';
  return margin && t.at.lo != p->resumed_at && in_set(t.kind, decl_words);
}

static bool begins_stmt(const Parse *p, Token t) {
  return t.at.lo != p->resumed_at && in_set(t.kind, stmt_words) &&
         fe_begins_line(p, t.at.lo);
}

static void put_back(Parse *p, Token t) {
  p->again[0] = t;
  p->nagain = 1;
  p->resumed_at = t.at.lo;  // a second error there must move on
}

static void skip_statement(Parse *p, Token t) {
  for (int open = 0;; scan_token(p), t = p->tok) {
    if (t.kind == TK_END || begins_decl(p, t)) {
      p->closers = p->blocks;
      put_back(p, t);
      return;
    }
    if (open == 0 && (t.kind == TK_RBRACE || begins_stmt(p, t))) {
      put_back(p, t);
      return;
    }
    if (t.kind == TK_SEMI && open == 0) return;
    if (t.kind == TK_LBRACE) open++;
    if (t.kind == TK_RBRACE && --open == 0) return;
  }
}

static void skip_declaration(Parse *p, Token t) {
  bool is_block = false;  // braces around statements, not around a list
  for (int open = 0;; scan_token(p), t = p->tok) {
    if (t.kind == TK_END || begins_decl(p, t)) {
      put_back(p, t);
      return;
    }
    if (t.kind == TK_SEMI && open == 0) return;
    if (t.kind == TK_SEMI) is_block = true;
    if (t.kind == TK_LBRACE) open++;
    if (t.kind == TK_RBRACE && (open == 0 || (--open == 0 && is_block))) return;
  }
}

// An end is missing and a declaration was begun: its word (`mask`,
// `attention`) was read as a name, and the name behind it is the error.
static bool in_declaration(const Parse *p, const int *kinds, int n) {
  int k = p->last.kind;
  bool named = k == TK_IDENT || k == TK_STRING || token_class(k) == TC_SOFT;
  for (int i = 0; i < n && named; i++)
    named = kinds[i] != TK_IDENT && kinds[i] != TK_STRING;
  return named && p->before.at.hi <= p->last.at.lo &&
         token_class(p->before.kind) == TC_SOFT && begins_decl(p, p->before);
}

static void reread_declaration(Parse *p) {
  Token name = p->last;
  put_back(p, p->before);
  p->again[p->nagain++] = name;
  p->closers = p->blocks;
}

static void resume(Parse *p, bool declaration) {
  p->quiet = true;
  if (declaration) reread_declaration(p);
  else if (p->blocks > 0) skip_statement(p, p->last);
  else skip_declaration(p, p->last);
  p->quiet = false;
  p->has_sync = true;
  // Only the braces of the blocks that go on are open now.
  p->depth = p->closers ? 0 : p->blocks;
  if (p->nagain && p->again[0].kind == TK_RBRACE && p->depth) p->depth--;
}

// --- messages --------------------------------------------------------------

enum { MOST_LISTED = 6 };

typedef struct Wanted {
  Parse *p;
  bool has[TK_POW + 1];  // TK_POW is the last token
  Vec(const char *) names;
} Wanted;

static void want(Wanted *w, const char *text) {
  vec_push(&w->p->cx->scratch, &w->names, text);
}

static void drop(Wanted *w, const int *set) {
  for (; *set; set++) w->has[*set] = false;
}

static void drop_class(Wanted *w, TokenClass cls) {
  for (int k = 0; k <= TK_POW; k++)
    if (w->has[k] && token_class(k) == cls) w->has[k] = false;
}

// Replaces groups of tokens by what they begin.
static void group(Wanted *w) {
  static const int expr[] = {TK_IDENT,  TK_INTLIT, TK_FLOATLIT,
                             TK_STRING, TK_DTYPE,  TK_INT,
                             TK_TRUE,   TK_FALSE,  TK_INF,
                             TK_IF,     TK_LPAREN, TK_MINUS,
                             TK_NOT,    TK_CONST,  0};
  static const int type[] = {TK_IDENT, TK_DTYPE, TK_INT, TK_ROW, 0};
  static const int stmt[] = {TK_IDENT, TK_LET, TK_RETURN, TK_ASSUME, 0};
  static const int decl[] = {TK_IMPORT, TK_LET, TK_FN, TK_ROW, TK_AT, 0};
  static const int after[] = {TK_ASSIGN, TK_COLON, 0};
  static const int name[] = {TK_IDENT, 0};
  const struct {
    int mark;
    const char *text;
    const int *set;
  } groups[] = {{TK_RETURN, "a statement", stmt},
                {TK_IMPORT, "a declaration", decl},
                {TK_INTLIT, "an expression", expr},
                {TK_INT, "a type", type},
                {TK_IDENT, "a name", name}};
  if (w->has[TK_PLUS]) {  // after a whole expression: operators go unsaid
    drop_class(w, TC_OPER);
    drop(w, after);
  }
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
    if (!w->has[groups[i].mark]) continue;
    want(w, groups[i].text);
    drop(w, groups[i].set);
    drop_class(w, TC_SOFT);
    return;
  }
}

static const char *expected(Parse *p, const int *kinds, int n) {
  Wanted w = {.p = p};
  for (int i = 0; i < n; i++)
    if (kinds[i] <= TK_POW) w.has[kinds[i]] = true;
  w.has[TK_SYNC] = w.has[TK_INVALID] = false;
  group(&w);
  if (w.has[TK_END]) want(&w, "end of file");
  if (w.has[TK_STRING]) want(&w, "a string");
  if (w.has[TK_DTYPE]) want(&w, "an element type");
  for (int k = 0; k <= TK_POW; k++)
    if (w.has[k] && token_text(k))
      want(&w, arena_printf(&p->cx->scratch, "'%s'", token_text(k)));
  Buf b = {.arena = &p->cx->scratch};
  uint32_t most = w.names.n < MOST_LISTED ? w.names.n : MOST_LISTED;
  for (uint32_t i = 0; i < most; i++) {
    if (i) buf_str(&b, i + 1 == w.names.n ? " or " : ", ");
    buf_str(&b, w.names.at[i]);
  }
  return b.n ? b.at : "something else";
}

static const char *found(Parse *p, Token t) {
  Arena *a = &p->cx->scratch;
  const char *s = p->src->text + t.at.lo;
  int n = (int)(t.at.hi - t.at.lo);
  const char *dots = n > 40 ? "..." : "";
  if (n > 40) n = 40;
  if (t.kind == TK_END) return "end of file";
  if (t.kind == TK_IDENT || token_class(t.kind) == TC_SOFT)
    return arena_printf(a, "name '%.*s%s'", n, s, dots);
  if (token_class(t.kind) == TC_WORD)
    return arena_printf(a, "keyword '%.*s'", n, s);
  if (t.kind == TK_INTLIT || t.kind == TK_FLOATLIT)
    return arena_printf(a, "number '%.*s%s'", n, s, dots);
  if (t.kind == TK_DTYPE) return arena_printf(a, "type '%.*s'", n, s);
  if (t.kind == TK_STRING) return "a string";
  return arena_printf(a, "'%.*s'", n, s);
}

static bool line_between(const Parse *p, uint32_t lo, uint32_t hi) {
  return hi > lo && memchr(p->src->text + lo, '\n', hi - lo) != NULL;
}

static bool wanted(int kind, const int *kinds, int n) {
  for (int i = 0; i < n; i++)
    if (kinds[i] == kind) return true;
  return false;
}

// Where a bracket was to be closed and the text goes on with something that
// cannot stand in it: the note shows that bracket.
static void note_open(Parse *p, Diag *d, const int *kinds, int n) {
  Token t = p->last;
  int depth = p->depth;
  while (depth > 0 && p->open[depth - 1].lo >= t.at.lo) depth--;
  bool leaves = t.kind == TK_SEMI || t.kind == TK_RBRACE || t.kind == TK_END ||
                token_class(t.kind) == TC_WORD;
  if (!depth || !leaves) return;
  Loc at = p->open[depth - 1];
  char open = p->src->text[at.lo];
  int close = open == '(' ? TK_RPAREN : open == '[' ? TK_RSQUARE : TK_RBRACE;
  if (wanted(close, kinds, n))
    diag_note(p->cx, d, fe_span_of(p, at), "this '%c' is not closed", open);
}

// In an import, a reserved word: the module whose name is near the whole path.
static void offer_module(Parse *p, Diag *d) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
  const char *s = p->src->text, *word = "import ";
  uint32_t lo = p->last.at.lo, hi = p->last.at.hi, n = (uint32_t)strlen(word);
  if (token_class(p->last.kind) != TC_WORD) return;
  while (lo && strchr(letters, s[lo - 1])) lo--;
  if (lo < n || memcmp(s + lo - n, word, n) != 0) return;
  char *path =
      arena_printf(&p->cx->scratch, "%.*s.attn", (int)(hi - lo), s + lo);
  for (uint32_t i = 0; i < hi - lo; i++)
    if (path[i] == '.') path[i] = '/';
  const char *near = fe_stdlib_near(&p->cx->scratch, path);
  if (!near) return;
  char *module = arena_strdup(&p->cx->session, near);
  *strrchr(module, '.') = 0;
  for (char *c = module; *c; c++)
    if (*c == '/') *c = '.';
  diag_fix(p->cx, d, fe_span_of(p, (Loc){lo, hi}), module, "did you mean '%s'?",
           module);
}

// What people bring along from other languages.
static void note_habits(Parse *p, Diag *d, const int *kinds, int n) {
  Token t = p->last;
  const char *s = p->src->text + t.at.lo;
  int len = (int)(t.at.hi - t.at.lo);
  bool reserved = token_class(t.kind) == TC_WORD || t.kind == TK_DTYPE;
  if (reserved && wanted(TK_IDENT, kinds, n) && !wanted(TK_LET, kinds, n) &&
      !wanted(TK_INTLIT, kinds, n))
    diag_note(p->cx, d, NOWHERE, "'%.*s' is reserved and cannot be a name", len,
              s);
  if (t.kind == TK_FLOORDIV && !wanted(TK_PLUS, kinds, n))
    diag_note(p->cx, d, NOWHERE, "a comment begins with '#'");
  char next = p->src->text[t.at.hi];
  if (t.kind == TK_ASSIGN && wanted(TK_EQ, kinds, n))
    diag_note(p->cx, d, NOWHERE, "%s",
              next == '<'   ? "at most is written '<='"
              : next == '>' ? "at least is written '>='"
                            : "equality is written '=='");
  static const struct {
    const char *word, *note;
  } habits[] = {
      {"and", "'and' is written '&'"},
      {"or", "'or' is written '|'"},
      {"not", "'not' is written '!'"},
      {"@",
       "the product with a matrix is written @@, that of vectors dot(x, y)"},
      {"def", "a function is written `fn f(x: f32) = ..;`, a program "
              "`attention f<..>(..) -> (..) { .. }`"},
  };
  for (size_t i = 0; i < sizeof habits / sizeof *habits; i++)
    if (strlen(habits[i].word) == (size_t)len &&
        memcmp(habits[i].word, s, (size_t)len) == 0)
      diag_note(p->cx, d, NOWHERE, "%s", habits[i].note);
  bool sum = t.kind == TK_PLUS && next == '=';
  if (sum)
    diag_note(p->cx, d, NOWHERE,
              "an output has one equation; a sum over k "
              "is written sum(k: ..)");
}

static void guess_words(Guess *g, const int *kinds, int n) {
  for (int i = 0; i < n; i++) {
    TokenClass cls = token_class(kinds[i]);
    if (cls == TC_WORD || cls == TC_SOFT) guess_try(g, token_text(kinds[i]));
  }
}

static bool offer_word(Parse *p, Diag *d, Loc at, const int *kinds, int n) {
  Guess g = guess_start(
      arena_strndup(&p->cx->scratch, p->src->text + at.lo, at.hi - at.lo));
  guess_words(&g, kinds, n);
  if (!g.best) return false;
  diag_fix(p->cx, d, fe_span_of(p, at), g.best, "did you mean '%s'?", g.best);
  return true;
}

static int length_of(const int *set) {
  int n = 0;
  while (set[n]) n++;
  return n;
}

// A misspelled word: it is where one was wanted, or it was read as a name that
// begins a statement and another name follows.
static void offer_keyword(Parse *p, Diag *d, const int *kinds, int n) {
  Token t = p->last, first = p->before;
  if (t.kind != TK_IDENT && token_class(t.kind) != TC_SOFT) return;
  if (t.kind == TK_IDENT && offer_word(p, d, t.at, kinds, n)) return;
  if (first.kind != TK_IDENT || first.at.hi > t.at.lo ||
      line_between(p, first.at.hi, t.at.lo))
    return;
  const int *set = p->blocks ? stmt_words : decl_words;
  offer_word(p, d, first.at, set, length_of(set));
}

static void report(Parse *p, const int *kinds, int n) {
  Token t = p->last;
  Loc at = t.at, gap = {p->prev_end, p->prev_end};
  bool semi = wanted(TK_SEMI, kinds, n);
  if (t.kind == TK_END) at = gap;
  Diag *d = diag_add(p->cx, DIAG_syntax, fe_span_of(p, at),
                     expected(p, kinds, n), found(p, t));
  bool ends = t.kind == TK_RBRACE || t.kind == TK_END ||
              line_between(p, p->prev_end, t.at.lo);
  if (semi && ends)
    diag_fix(p->cx, d, fe_span_of(p, gap), ";", "insert ';'")->sure = true;
  offer_keyword(p, d, kinds, n);
  offer_module(p, d);
  note_open(p, d, kinds, n);
  note_habits(p, d, kinds, n);
}

static void report_missing_brace(Parse *p) {
  static const int brace[] = {TK_RBRACE};
  Diag *d = diag_add(p->cx, DIAG_syntax, fe_span_of(p, p->before.at), "'}'",
                     "a declaration");
  note_open(p, d, brace, 1);
}

void fe_syntax_error(Parse *p, const int *kinds, int n) {
  bool declaration = in_declaration(p, kinds, n);
  if (declaration && p->blocks && !p->stop) {
    report_missing_brace(p);
  } else if (p->last.kind != TK_INVALID && !p->stop) {
    ArenaMark m = arena_mark(&p->cx->scratch);
    report(p, kinds, n);
    arena_reset(&p->cx->scratch, m);
  }
  if (p->cx->nerrors >= p->cx->max_errors) p->stop = true;
  resume(p, declaration);
}

// --- border ----------------------------------------------------------------

// Its own frame: nothing here may live in a register across the longjmp.
static void run(Parse *p) {
  if (setjmp(p->fatal)) {
    diag_add(p->cx, DIAG_cannot_read, NOWHERE, p->src->path,
             "the scanner failed");
    return;
  }
  if (scan_start(p)) attn_parse(p);
}

Unit *fe_parse(Ctx *cx, Source *src) {
  ArenaMark m = arena_mark(&cx->scratch);
  uint32_t before = cx->nerrors;
  Parse *p = NEW(&cx->scratch, Parse);
  Unit *u = NEW(&cx->session, Unit);
  *p = (Parse){.cx = cx, .a = &cx->session, .src = src, .unit = u};
  p->resumed_at = UINT32_MAX;
  u->source = src;
  work_begin(cx);
  work_say(cx, "parsing '%s'", src->path);
  fe_tokens_init(p);
  run(p);
  fe_unit_docs(p);
  work_end(cx);
  u->syntax_ok = cx->nerrors == before;
  arena_reset(&cx->scratch, m);
  return u;
}
