// The rules of rules.def: parsed once a pass, matched against ops.
#include "passes/attn/canon.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

static const struct {
  const char *from, *to, *type;
} rows[] = {
#define RULE(from, to, type) {from, to, type},
#include "passes/attn/rules.def"
};

// ---------------------------------------------------------------- parsing
typedef struct Reader {
  Arena *a;
  const char *p;
  uint32_t turns;
  bool ok;
} Reader;

static void skip(Reader *r) {
  while (*r->p == ' ') r->p++;
}

static Pattern *pattern(Reader *r);

static void operands(Reader *r, Pattern *t) {
  for (;;) {
    r->p++;  // ( or ,
    skip(r);
    if (t->n == 3) r->ok = false;
    else t->kid[t->n++] = pattern(r);
    skip(r);
    if (!r->ok || *r->p != ',') break;
  }
  if (*r->p == ')') r->p++;
  else r->ok = false;
}

static void word(Reader *r, Pattern *t) {
  const char *start = r->p;
  while (isalnum((unsigned char)*r->p) || *r->p == '_') r->p++;
  size_t n = (size_t)(r->p - start);
  if (*r->p == '(') {
    t->kind = PAT_OP;
    if (!op_by_name(start, n, &t->op)) r->ok = false;
    else if (op_info(t->op)->flags & OPF_COMM) t->turn = 1u << r->turns++;
    operands(r, t);
  } else if (n == 1) {
    t->kind = isupper((unsigned char)*start) ? PAT_CONST : PAT_ANY;
    t->letter = *start;
  } else {
    t->kind = PAT_BOOL;
    t->num = *start == 't';
  }
}

static Pattern *pattern(Reader *r) {
  Pattern *t = NEW(r->a, Pattern);
  skip(r);
  if (isalpha((unsigned char)*r->p)) {
    word(r, t);
    return t;
  }
  char *end;
  t->kind = PAT_NUM;
  t->num = strtod(r->p, &end);
  if (end == r->p) r->ok = false;
  r->p = end;
  return t;
}

bool canon_load_rules(Canon *c) {
  for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Reader from = {.a = c->m->arena, .p = rows[i].from, .ok = true};
    Reader to = {.a = c->m->arena, .p = rows[i].to, .ok = true};
    Rule r = {.from = pattern(&from), .to = pattern(&to)};
    r.type = rows[i].type[0];
    r.real = rows[i].type[1] == 'r';
    r.turns = from.turns;
    assert(from.ok && to.ok && r.from->kind == PAT_OP);
    vec_push(c->m->arena, &c->rules, r);
  }
  return true;
}

// ---------------------------------------------------------------- matching
typedef struct Match {
  Canon *c;
  uint32_t mask;   // commutative ops taken in the other order
  Value var[128];  // by letter
  char first;      // first letter met, or 0
  bool computed;   // constants were made
} Match;

static bool match(Match *m, const Pattern *p, Value v);

static bool match_op(Match *m, const Pattern *p, const Value *args,
                     uint32_t n) {
  if (p->n != n) return false;
  bool swap = n == 2 && (p->turn & m->mask);
  for (uint32_t i = 0; i < n; i++)
    if (!match(m, p->kid[i], args[swap ? 1 - i : i])) return false;
  return true;
}

static bool match_num(const Match *m, const Pattern *p, Value v) {
  double d;
  bool logic = ir_type(m->c->f, v)->dtype == DT_BOOL;
  return ir_const_value(m->c->f, v, &d) && d == p->num &&
         logic == (p->kind == PAT_BOOL);
}

static bool match(Match *m, const Pattern *p, Value v) {
  const Op *op = ir_def(m->c->f, v);
  double d;
  switch (p->kind) {
  case PAT_NUM:
  case PAT_BOOL: return match_num(m, p, v);
  case PAT_OP:
    return op && op->code == p->op && match_op(m, p, op->args, op->nargs);
  case PAT_CONST:
    if (!ir_const_value(m->c->f, v, &d)) return false;
    break;
  case PAT_ANY: break;
  }
  Value *have = &m->var[(unsigned char)p->letter];
  if (*have) return *have == v;
  *have = v;
  if (!m->first) m->first = p->letter;
  return true;
}

static bool in_class(const Match *m, char type) {
  if (type == '*' || !m->first) return true;
  DType t = ir_type(m->c->f, m->var[(unsigned char)m->first])->dtype;
  char kind = dtype_kind(t);
  if (type == 'n') return kind != 'b';
  return kind == (type == 'i' && kind == 'u' ? 'u' : type);
}

// ---------------------------------------------------------------- results
// `root` is the dtype of numbers.
static Value build(Match *m, const Pattern *p, DType root) {
  Value args[3];
  switch (p->kind) {
  case PAT_ANY:
  case PAT_CONST: return m->var[(unsigned char)p->letter];
  case PAT_BOOL: return canon_bool(m->c, p->num != 0);
  case PAT_NUM: return canon_num(m->c, root, p->num);
  case PAT_OP: break;
  }
  for (uint32_t i = 0; i < p->n; i++) args[i] = build(m, p->kid[i], root);
  return canon_make(m->c, p->op, args, p->n, NULL, 0);
}

static bool is_const_op(const Pattern *p) {
  bool all = p->kind == PAT_OP;
  for (uint32_t i = 0; i < p->n; i++)
    all = all && (p->kid[i]->kind == PAT_CONST || p->kid[i]->kind == PAT_NUM);
  return all;
}

// Constants that a rule computes stay finite and do not vanish.
static bool sane(Match *m, const Pattern *p, DType root) {
  if (is_const_op(p)) {
    double v;
    Value made = build(m, p, root);
    return ir_const_value(m->c->f, made, &v) && isfinite(v) && v != 0;
  }
  for (uint32_t i = 0; i < p->n; i++)
    if (!sane(m, p->kid[i], root)) return false;
  return true;
}

static Value try_rule(Canon *c, const Rule *r, const Value *args, uint32_t n,
                      uint32_t mask) {
  Match m = {.c = c, .mask = mask};
  if (!match_op(&m, r->from, args, n) || !in_class(&m, r->type)) return 0;
  DType root = ir_type(c->f, args[n - 1])->dtype;
  if (r->real && !sane(&m, r->to, root)) return 0;
  return build(&m, r->to, root);
}

Value canon_rule(Canon *c, OpCode op, const Value *args, uint32_t n) {
  for (uint32_t i = 0; i < c->rules.n; i++) {
    const Rule *r = &c->rules.at[i];
    if (r->from->op != op) continue;
    for (uint32_t mask = 0; mask < 1u << r->turns; mask++) {
      Value v = try_rule(c, r, args, n, mask);
      if (v) return v;
    }
  }
  return 0;
}
