// What pass online decided, in the words of the program.
#include "passes/stream/online.h"

#include <stdio.h>

// A value of the program without a name is shown as its text there, a long one
// by a letter that a remark explains:
//   let (p, _) = softmax(rsqrt(D) * dot(Q[b, h, q], K[b, h, k]))
//   x is rsqrt(D) * dot(Q[b, h, q], K[b, h, k])
//   m: max of x
enum { MAX_SHORT = 16, MAX_TEXT = 160 };

// The text of a .attn file that v was made from, or NULL.
static const char *text_of(const Online *o, Value v) {
  const Op *op = ir_def(o->f, v);
  if (!op || !span_known(op->span) || op->nres != 1) return NULL;
  const Source *src = o->cx->sources.at[op->span.src];
  const char *dot = strrchr(src->path, '.');
  uint32_t n = op->span.hi - op->span.lo;
  if ((dot && strcmp(dot, ".tir") == 0) || n > MAX_TEXT) return NULL;
  Buf b = {.arena = o->arena};
  for (uint32_t i = op->span.lo; i < op->span.hi; i++) {
    bool space = strchr(" \t\r\n", src->text[i]) != NULL;
    if (!space) buf_char(&b, src->text[i]);
    else if (b.n && b.at[b.n - 1] != ' ') buf_char(&b, ' ');
  }
  return b.at;
}

static bool is_taken(const Online *o, const char *name) {
  for (uint32_t v = 0; v < o->f->values.n; v++) {
    const char *hint = ir_info(o->f, v)->hint;
    if (hint && strcmp(hint, name) == 0) return true;
  }
  return false;
}

// x, y, z, x3, y3, ..: the first that the program does not use.
static const char *letter(const Online *o) {
  for (uint32_t i = o->shown.n;; i++) {
    char name[16] = {(char)('x' + i % 3)};
    if (i >= 3) snprintf(name + 1, sizeof name - 1, "%u", i);
    if (!is_taken(o, name)) return arena_strdup(o->arena, name);
  }
}

static const char *value_name(void *data, Value v) {
  Online *o = data;
  uint64_t known;
  const char *hint = ir_info(o->f, v)->hint;
  if (hint) return hint;
  if (map_get(&o->shown, v, &known)) return (const char *)(uintptr_t)known;
  const char *text = text_of(o, v);
  if (!text || strlen(text) <= MAX_SHORT) return text;
  const char *name = letter(o);
  map_put(&o->shown, v, (uintptr_t)name);
  ctx_remark(o->cx, "online: @%s:   %s is %s", o->f->name, name, text);
  return name;
}

static const char *shown(Online *o, Ex e) {
  Buf b = {.arena = o->arena};
  SymNames names = {value_name, o};
  sym_print(&o->sym, &names, e, &b);
  return b.at;
}

static const char *value_shown(Online *o, Value v) {
  const char *name = value_name(o, v);
  return name ? name : arena_printf(o->arena, "%%%u", v);
}

// Its name in the program, or the output that it is stored to.
static const char *name_of(Online *o, const Red *r) {
  const char *h = ir_info(o->f, r->res)->hint;
  for (const Op *op = o->f->body->first; op && !h; op = op->next) {
    if (op->code != OP_STORE) continue;
    const Op *v = ir_def(o->f, op->args[1]);
    while (v && v->code == OP_CAST) v = ir_def(o->f, v->args[0]);
    if (v && v->nres && v->res[0] == r->res)
      h = ir_info(o->f, op->args[0])->hint;
  }
  return h ? h : value_shown(o, r->res);
}

static void remark_term(Online *o, const Red *r, const Term *t) {
  const Acc *a = &r->group->accs.at[t->acc];
  Buf b = {.arena = o->arena};
  buf_printf(&b, "%s of %s", rkind_name(a->kind), shown(o, a->local));
  if (a->other) buf_printf(&b, " . %s", shown(o, a->other));
  if (!sym_is_const(&o->sym, a->rolling, 1))
    buf_printf(&b, ", in the frame %s", shown(o, a->rolling));
  if (!sym_is_const(&o->sym, t->late, 1))
    buf_printf(&b, ", times %s at the end", shown(o, t->late));
  ctx_remark(o->cx, "online: @%s:   %s: %s", o->f->name, name_of(o, r), b.at);
}

static void remark_red(Online *o, const Red *r) {
  for (uint32_t j = 0; j < r->terms.n; j++) remark_term(o, r, &r->terms.at[j]);
  if (r->kind == RK_SUM && r->terms.n > 1)
    ctx_remark(o->cx,
               "online: @%s:   %s is a sum of %u terms, which lose "
               "digits where they cancel",
               o->f->name, name_of(o, r), r->terms.n);
  if (r->why && r->why_level < r->level)
    ctx_remark(o->cx,
               "online: @%s:   %s needs a later pass: not separable: "
               "%s",
               o->f->name, name_of(o, r), shown(o, r->why));
}

void online_remark(Online *o, const Group *g, uint32_t number) {
  static const char *const fills[] = {"-inf", "0", "select"};
  Buf b = {.arena = o->arena};
  buf_str(&b, "");
  for (uint32_t i = 0; i < g->accs.n; i++) {
    if (!g->accs.at[i].gauge) continue;
    buf_printf(&b, "%s%s", b.n ? ", " : "",
               value_shown(o, g->accs.at[i].src->res[0]));
  }
  ctx_remark(o->cx,
             "online: @%s: pass %u over %s: %u accumulator%s, gauge %s, "
             "fill %s",
             o->f->name, number, o->f->axes.at[g->axis].name, g->accs.n,
             g->accs.n == 1 ? "" : "s", b.n ? b.at : "none", fills[g->fill]);
  for (uint32_t i = 0; i < g->scans.n; i++)
    ctx_remark(o->cx, "online: @%s:   %s: running sum of %s", o->f->name,
               name_of(o, g->scans.at[i].red),
               shown(o, g->accs.at[g->scans.at[i].acc].local));
  for (uint32_t i = 0; i < g->reds.n; i++) remark_red(o, g->reds.at[i]);
}
