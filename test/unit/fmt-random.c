// The formatter on generated programs and on files: what it writes reads back
// as the same tree with the same comments, and formats to itself.
//   unit-fmt-random SEED COUNT      programs of the grammar in wild spacing
//   unit-fmt-random FILE.attn ..
#include "frontend/frontend.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// ---------------------------------------------------------------- generator
typedef struct Gen {
  uint64_t s;
  Buf out;
  int depth;  // of expressions
  int blocks;
  uint32_t comments;
} Gen;

static uint32_t pick(Gen *g, uint32_t n) {  // xorshift64*
  g->s ^= g->s >> 12;
  g->s ^= g->s << 25;
  g->s ^= g->s >> 27;
  return (uint32_t)(g->s * 2685821657736338717u >> 33) % n;
}

static bool word_end(const Gen *g) {
  char c = g->out.n ? g->out.at[g->out.n - 1] : ' ';
  return isalnum((unsigned char)c) || c == '_' || c == '.';
}

// Space of any kind; comments now and then.
static void space(Gen *g) {
  static const char *const gaps[] = {"",   "",     "",        " ",
                                     " ",  "  ",   "\n",      "\n\n",
                                     "\t", "\r\n", "\n\n\n  "};
  if (pick(g, 40) == 0) {
    buf_printf(&g->out, "%s# note %u  \n", pick(g, 2) ? " " : "\n",
               g->comments++);
    return;
  }
  buf_str(&g->out, gaps[pick(g, sizeof gaps / sizeof *gaps)]);
}

// A token, kept apart from the one before it where they would run together.
static void put(Gen *g, const char *t) {
  static const char signs[] = "<>=!|*/@-~.";
  char last = g->out.n ? g->out.at[g->out.n - 1] : ' ';
  space(g);
  bool glued = g->out.n && g->out.at[g->out.n - 1] == last;
  bool words =
      word_end(g) && (isalnum((unsigned char)*t) || *t == '_' || *t == '.');
  if (glued && (words || (strchr(signs, last) && strchr(signs, *t))))
    buf_char(&g->out, ' ');
  buf_str(&g->out, t);
}

static void name(Gen *g) {
  static const char *const names[] = {"x",     "scale",
                                      "Q",     "K",
                                      "b",     "h",
                                      "q",     "k",
                                      "mask",  "index",
                                      "step",  "state",
                                      "check", "a_long_name_of_something",
                                      "p",     "tol",
                                      "Sk",    "D"};
  put(g, names[pick(g, sizeof names / sizeof *names)]);
}

static void expr(Gen *g);

static void list(Gen *g, void (*one)(Gen *), uint32_t most) {
  for (uint32_t n = pick(g, most) + 1; n-- > 0;) {
    one(g);
    if (n) put(g, ",");
  }
}

static void value_item(Gen *g) {
  switch (pick(g, 8)) {
  case 0: put(g, ":"); break;
  case 1:
    put(g, ":");
    expr(g);
    break;
  case 2:
    expr(g);
    put(g, ":");
    break;
  case 3:
    expr(g);
    put(g, ":");
    expr(g);
    break;
  default: expr(g); break;
  }
}

static void arg(Gen *g) {
  uint32_t kind = pick(g, 6);
  if (kind == 0) {
    name(g);
    put(g, "=");
  } else if (kind == 1) {
    name(g);
    put(g, ":");
  }
  expr(g);
}

static void args(Gen *g) {
  put(g, "(");
  if (pick(g, 8)) list(g, arg, 4);
  if (g->out.at[g->out.n - 1] != '(' && pick(g, 12) == 0) put(g, ",");
  put(g, ")");
}

static void leaf(Gen *g) {
  static const char *const lits[] = {"1",    "0x1f",  "2.5", "1e-6", "inf",
                                     "true", "false", "0",   "1024", "3.25e+2"};
  if (pick(g, 2)) put(g, lits[pick(g, sizeof lits / sizeof *lits)]);
  else name(g);
}

static void operand(Gen *g) {
  switch (pick(g, 9)) {
  case 0:
    put(g, "(");
    expr(g);
    put(g, ")");
    break;
  case 1:
    put(g, "-");
    operand(g);
    break;
  case 2:
    name(g);
    args(g);
    break;
  case 3:
    name(g);
    put(g, "[");
    list(g, value_item, 3);
    put(g, "]");
    break;
  case 4:
    name(g);
    put(g, ".");
    name(g);
    break;
  case 5:
    put(g, pick(g, 2) ? "f32" : "int");
    put(g, "(");
    expr(g);
    put(g, ")");
    break;
  default: leaf(g); break;
  }
}

static void chain(Gen *g, const char *const *ops, uint32_t n) {
  operand(g);
  for (uint32_t k = pick(g, 3); k-- > 0;) {
    put(g, ops[pick(g, n)]);
    operand(g);
  }
}

static void expr(Gen *g) {
  static const char *const math[] = {"+", "-", "*", "/", "//", "%", "@@", "**"};
  static const char *const logic[] = {"&", "|"};
  if (g->depth > 2) {
    leaf(g);
    return;
  }
  g->depth++;
  switch (pick(g, 8)) {
  case 0:
    put(g, "(");
    put(g, "if");
    expr(g);
    put(g, "then");
    expr(g);
    put(g, "else");
    expr(g);
    put(g, ")");
    break;
  case 1:
    operand(g);
    put(g, "|>");
    name(g);
    if (pick(g, 2)) args(g);
    break;
  case 2:
    operand(g);
    put(g, "<=");
    operand(g);
    put(g, "<");
    operand(g);
    break;
  case 3:
    put(g, "!");
    operand(g);
    put(g, "==");
    operand(g);
    break;
  case 4: chain(g, logic, 2); break;
  default: chain(g, math, 8); break;
  }
  g->depth--;
}

// ---------------------------------------------------------------- statements
static void type(Gen *g) {
  put(g, pick(g, 3) ? "bf16" : "T");
  if (pick(g, 4) == 0) return;
  put(g, "[");
  list(g, expr, 3);
  put(g, "]");
}

static void index_part(Gen *g) {
  name(g);
  put(g, "in");
  operand(g);
  if (pick(g, 3)) return;
  put(g, "where");
  expr(g);
}

static void stmts(Gen *g, uint32_t n);

static void block(Gen *g) {
  put(g, "{");
  g->blocks++;
  stmts(g, pick(g, 4));
  g->blocks--;
  put(g, "}");
}

static void stmt(Gen *g) {
  switch (pick(g, g->blocks < 3 ? 9 : 7)) {
  case 0:
  case 1:
    put(g, "let");
    name(g);
    put(g, "=");
    expr(g);
    break;
  case 2:
    put(g, "let");
    put(g, "(");
    list(g, name, 3);
    put(g, ")");
    put(g, "=");
    expr(g);
    break;
  case 3:
    put(g, "index");
    list(g, index_part, 3);
    break;
  case 4:
    put(g, "return");
    list(g, expr, 2);
    break;
  case 5:
    put(g, "assume");
    expr(g);
    break;
  case 6:
    name(g);
    put(g, "[");
    list(g, value_item, 3);
    put(g, "]");
    put(g, "=");
    expr(g);
    break;
  case 7:
    put(g, "step");
    put(g, "t");
    if (pick(g, 2)) put(g, "in"), operand(g);
    if (pick(g, 2)) put(g, "reverse");
    block(g);
    return;
  default:
    put(g, "repeat");
    put(g, "i");
    put(g, "in");
    operand(g);
    block(g);
    return;
  }
  put(g, ";");
}

static void stmts(Gen *g, uint32_t n) {
  while (n-- > 0) stmt(g);
}

// ---------------------------------------------------------------- declarations
static void param(Gen *g) {
  if (pick(g, 6) == 0) put(g, "nograd");
  name(g);
  put(g, ":");
  type(g);
  switch (pick(g, 6)) {
  case 0:
    put(g, "=");
    expr(g);
    break;
  case 1:
    put(g, "layout");
    put(g, "(");
    list(g, name, 3);
    put(g, ")");
    break;
  case 2:
    put(g, "layout");
    put(g, "paged");
    put(g, "(");
    list(g, arg, 2);
    put(g, ")");
    break;
  default: break;
  }
}

static void generic(Gen *g) {
  name(g);
  switch (pick(g, 5)) {
  case 0:
    put(g, ":");
    put(g, "dyn");
    break;
  case 1:
    put(g, ":");
    put(g, "const");
    put(g, "{");
    list(g, leaf, 3);
    put(g, "}");
    break;
  case 2:
    put(g, ":");
    put(g, "dyn");
    put(g, "in");
    put(g, "1");
    put(g, "..");
    put(g, "4096");
    break;
  case 3:
    put(g, ":");
    put(g, "dtype");
    put(g, "{");
    put(g, "f16");
    put(g, ",");
    put(g, "bf16");
    put(g, "}");
    break;
  default: break;
  }
}

static void generics(Gen *g) {
  put(g, "<");
  list(g, generic, 4);
  put(g, ">");
}

static void body(Gen *g) {
  if (pick(g, 2)) {
    block(g);
    return;
  }
  put(g, "=");
  expr(g);
  put(g, ";");
}

static void params(Gen *g) {
  put(g, "(");
  list(g, param, 4);
  put(g, ")");
}

static void program(Gen *g, const char *word) {
  if (pick(g, 4) == 0) put(g, "@"), buf_str(&g->out, "finite");
  put(g, word);
  name(g);
  generics(g);
  params(g);
  put(g, "->");
  params(g);
  if (pick(g, 2)) put(g, "where"), list(g, expr, 2);
  block(g);
}

static void check(Gen *g) {
  put(g, "check");
  put(g, "\"a title  of some words\"");
  put(g, "{");
  put(g, "dims");
  name(g);
  put(g, "=");
  leaf(g);
  put(g, ";");
  put(g, "input");
  list(g, name, 3);
  put(g, "=");
  name(g);
  args(g);
  put(g, ";");
  put(g, "expect");
  expr(g);
  put(g, "~=");
  expr(g);
  put(g, "tol");
  put(g, "1e-5");
  put(g, ";");
  put(g, "}");
}

static void schedule(Gen *g) {
  put(g, "schedule");
  name(g);
  put(g, "for");
  put(g, "\"cpu\"");
  put(g, "{");
  for (uint32_t n = pick(g, 4); n-- > 0;) {
    name(g);
    put(g, "=");
    leaf(g);
    put(g, ";");
  }
  put(g, "}");
}

static void decl(Gen *g) {
  static const char *const words[] = {"mask", "mod"};
  if (pick(g, 3) == 0) buf_printf(&g->out, "\n## Doc %u.\n", g->comments++);
  switch (pick(g, 9)) {
  case 0:
    put(g, "import");
    name(g);
    put(g, ".");
    name(g);
    put(g, "{");
    list(g, name, 3);
    put(g, "}");
    break;
  case 1:
    put(g, "let");
    name(g);
    put(g, "=");
    expr(g);
    put(g, ";");
    break;
  case 2:
    put(g, "fn");
    name(g);
    if (pick(g, 2)) generics(g);
    params(g);
    if (pick(g, 2)) put(g, "->"), type(g);
    body(g);
    break;
  case 3:
  case 4:
    put(g, words[pick(g, 2)]);
    name(g);
    params(g);
    body(g);
    break;
  case 5: program(g, "attention"); break;
  case 6: program(g, "recurrent"); break;
  case 7: check(g); break;
  default: schedule(g); break;
  }
}

// ---------------------------------------------------------------- the check
static uint32_t comments(const Unit *u) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < u->trivia.n; i++)
    n += u->trivia.at[i].kind == TR_COMMENT;
  return n;
}

// 0: the text does not parse, 1: sound, -1: a defect.
static int sound(Ctx *cx, const char *text, size_t n) {
  Buf dump[2], fmt[2];
  uint32_t notes[2];
  for (int i = 0; i < 2; i++) {
    dump[i] = fmt[i] = (Buf){.arena = &cx->session};
    buf_str(&fmt[i], "");
    const char *at = i ? fmt[0].at : text;
    Unit *u = fe_parse(cx, ctx_add_source(cx, "t", at, i ? fmt[0].n : n));
    if (!u->syntax_ok) return i ? -1 : 0;
    fe_dump(u, &dump[i]);
    notes[i] = comments(u);
    fe_format(cx, u, &fmt[i]);
  }
  if (notes[0] != notes[1] || fmt[0].n != fmt[1].n ||
      memcmp(fmt[0].at, fmt[1].at, fmt[0].n) != 0)
    return -1;
  if (!dump[0].at || !dump[1].at) return dump[0].at == dump[1].at ? 1 : -1;
  return strcmp(dump[0].at, dump[1].at) == 0 ? 1 : -1;
}

static int one(const char *text, size_t n, const char *what) {
  Ctx cx;
  ctx_init(&cx);
  int r = sound(&cx, text, n);
  if (r < 0) printf("%s: is not kept by the formatter\n", what);
  if (r == 0) {
    Buf b = {.arena = &cx.session};
    diag_render(&cx, (DiagStyle){.width = 80}, &b);
    printf("%s: does not parse\n%s", what, b.at ? b.at : "");
  }
  ctx_drop(&cx);
  return r;
}

static int generated(uint64_t seed, long count) {
  long bad = 0, bytes = 0;
  for (long i = 0; i < count; i++) {
    Arena a = {0};
    Gen g = {.s = (seed << 24) + (uint64_t)i + 1, .out = {.arena = &a}};
    char what[64];
    pick(&g, 2);
    for (uint32_t n = pick(&g, 6) + 1; n-- > 0;) decl(&g);
    buf_char(&g.out, '\n');
    snprintf(what, sizeof what, "program %ld of seed %" PRIu64, i, seed);
    if (one(g.out.at, g.out.n, what) != 1 && bad++ == 0)
      printf("%s\n", g.out.at);
    bytes += g.out.n;
    arena_drop(&a);
  }
  printf("%ld programs, %ld bytes, %ld defects\n", count, bytes, bad);
  return bad != 0;
}

static int files(int n, char **path) {
  int kept = 0, bad = 0;
  for (int i = 0; i < n; i++) {
    Ctx cx;
    uint32_t len = 0;
    ctx_init(&cx);
    const char *text = cx.read_file(NULL, &cx.session, path[i], &len);
    int r = text ? sound(&cx, text, len) : -1;
    kept += r == 1;
    bad += r < 0;
    if (r < 0) printf("%s: is not kept by the formatter\n", path[i]);
    ctx_drop(&cx);
  }
  printf("%d files, %d without syntax errors, %d defects\n", n, kept, bad);
  return bad != 0;
}

int main(int argc, char **argv) {
  if (argc > 1 && strstr(argv[1], ".attn")) return files(argc - 1, argv + 1);
  return generated(argc > 1 ? strtoull(argv[1], NULL, 10) : 1,
                   argc > 2 ? atol(argv[2]) : 200);
}
