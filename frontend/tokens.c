// Words and punctuation: lookup by text, text by kind.
#include "frontend/parse.h"
#include "frontend/parser.tab.h"

typedef struct Row {
  int kind;
  const char *text;
  TokenClass cls;
} Row;

static const Row rows[] = {
#define TOKEN(name, text, cls) {TK_##name, text, TC_##cls},
#include "frontend/token.def"
};
enum { NROWS = sizeof rows / sizeof *rows };

static const Row *row_of(int kind) {
  for (int i = 0; i < NROWS; i++)
    if (rows[i].kind == kind) return &rows[i];
  return NULL;
}

const char *token_text(int kind) {
  const Row *r = row_of(kind);
  return r ? r->text : NULL;
}

TokenClass token_class(int kind) {
  const Row *r = row_of(kind);
  return r ? r->cls : TC_OTHER;
}

static uint32_t first_slot(const char *s, uint32_t n) {
  return (uint32_t)map_hash(s, n, 0) & 255;
}

void fe_tokens_init(Parse *p) {
  for (int i = 0; i < NROWS; i++) {
    uint32_t n = (uint32_t)strlen(rows[i].text);
    uint32_t at = first_slot(rows[i].text, n);
    while (p->slot[at]) at = (at + 1) & 255;
    p->slot[at] = (uint8_t)(i + 1);
  }
}

int token_find(const Parse *p, const char *s, uint32_t n) {
  for (uint32_t at = first_slot(s, n); p->slot[at]; at = (at + 1) & 255) {
    const Row *r = &rows[p->slot[at] - 1];
    if (strncmp(r->text, s, n) == 0 && r->text[n] == 0) return r->kind;
  }
  return 0;
}
