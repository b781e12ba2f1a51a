// The C header of an object: for each program the args struct, documented, and
// the prototypes.
//   typedef struct f_p_args {
//     uint32_t size, abi; ..
//     attn_tensor Q;  /* in, bf16 [B, Hq, Sq, D] */
//     float scale;    /* f32, default 0.125 */
//   } f_p_args;
//   int f_p(const f_p_args *args, attn_stream *stream, attn_error *err);
#include "codegen/codegen.h"
#include "codegen/object/layout.h"

#include <ctype.h>
#include <string.h>

// Text inside a comment: no end of it, no line breaks that break the layout.
static void comment(Buf *out, const char *s, const char *newline) {
  for (; *s; s++) {
    if (*s == '\n') buf_str(out, newline);
    else if (*s == '/' && out->n && out->at[out->n - 1] == '*')
      buf_str(out, " /");
    else if ((unsigned char)*s >= ' ' || *s == '\t') buf_char(out, *s);
  }
}

static void shape(const CgProgram *p, const Type *t, Buf *out) {
  buf_printf(out, "%s [", dtype_name(t->dtype));
  for (uint32_t i = 0; i < t->n; i++) {
    if (i) buf_str(out, ", ");
    if (t->size[i] == DIM_NONE) buf_char(out, '*');
    else dim_print(p->dims, t->size[i], out);
  }
  buf_char(out, ']');
}

static void describe(const CgProgram *p, const CgParam *q, Buf *out) {
  static const char *const roles[] = {"in", "out", "in and out", "", ""};
  if (q->type.kind == TK_TENSOR) {
    buf_printf(out, "%s, ", roles[q->role]);
    shape(p, &q->type, out);
    if (q->optional) buf_str(out, "; NULL data: zeros");
    if (q->role == PR_OUT) buf_str(out, "; NULL data: not wanted");
    return;
  }
  buf_str(out, dtype_name(q->type.dtype));
  if (q->def == CG_COMPUTED) buf_str(out, ", default computed");
  if (q->def != CG_VALUE) return;
  buf_str(out, ", default ");
  if (dtype_is_float(q->type.dtype)) buf_double(out, q->f);
  else buf_printf(out, "%lld", (long long)q->i);
}

static void field(const CgProgram *p, const CgParam *q, Buf *out) {
  if (q->doc) {
    buf_str(out, "  /* ");
    comment(out, q->doc, "\n   * ");
    buf_str(out, " */\n");
  }
  buf_printf(out, "  %s %s; /* ", cg_param_ctype(q), q->name);
  describe(p, q, out);
  buf_str(out, " */\n");
}

static void args(const CgProgram *p, Buf *out) {
  buf_printf(out,
             "typedef struct %s_%s_args {\n"
             "  uint32_t size, abi; /* set by %s_%s_args_init */\n"
             "  void *workspace; /* 64-byte aligned, on the device; NULL: on a "
             "CPU the context's */\n"
             "  uint64_t workspace_bytes; /* what workspace has */\n",
             p->prefix, p->name, p->prefix, p->name);
  for (uint32_t i = 0; i < p->nparams; i++) field(p, &p->params[i], out);
  buf_printf(out, "} %s_%s_args;\n\n", p->prefix, p->name);
}

static void dim_line(const DimSym *s, Buf *out) {
  static const char *const kinds[] = {"any", "as compiled", "per sequence"};
  bool listed = s->values.n && !s->open;
  buf_printf(out, " *   %s: %s", s->name, listed ? "one of" : kinds[s->kind]);
  for (uint32_t i = 0; i < s->values.n && listed; i++)
    buf_printf(out, "%s%lld", i ? ", " : " ", (long long)s->values.at[i]);
  if (listed) {
    buf_char(out, '\n');
    return;
  }
  if (s->lo > 0) buf_printf(out, ", at least %lld", (long long)s->lo);
  if (s->hi < DIM_UNBOUNDED)
    buf_printf(out, ", at most %lld", (long long)s->hi);
  if (s->divisor > 1)
    buf_printf(out, ", a multiple of %lld", (long long)s->divisor);
  buf_char(out, '\n');
}

// The signature, in lines of a comment.
static void signature(Ctx *cx, const CgProgram *p, Buf *out) {
  enum { WIDTH = 77 };
  CgPlain d = cg_plain(cx, p);
  attn_program prog = {.name = p->name,
                       .nparams = p->nparams,
                       .ndims = p->dims->syms.n,
                       .nchecks = p->nchecks,
                       .params = d.params,
                       .dims = d.dims,
                       .checks = d.checks,
                       .code = d.code.at,
                       .ncode = d.code.n};
  size_t n = attn_signature(&prog, NULL, 0), from = 0;
  char *s = NEWN(&cx->scratch, char, n + 1);
  attn_signature(&prog, s, n + 1);
  while (n - from > WIDTH) {
    size_t end = from + WIDTH;
    while (end > from && s[end] != ' ') end--;
    if (end == from) end = from + WIDTH;
    buf_printf(out, " * %.*s\n", (int)(end - from), s + from);
    from = end + (s[end] == ' ');
  }
  buf_printf(out, " * %s\n", s + from);
}

static void about(Ctx *cx, const CgProgram *p, Buf *out) {
  buf_printf(out, "/* %s\n", p->name);
  if (p->doc) {
    buf_str(out, " * ");
    comment(out, p->doc, "\n * ");
    buf_char(out, '\n');
  }
  buf_str(out, " *\n");
  signature(cx, p, out);
  if (p->dims->syms.n) buf_str(out, " *\n * Dims, from the shapes:\n");
  for (uint32_t i = 0; i < p->dims->syms.n; i++)
    dim_line(&p->dims->syms.at[i], out);
  buf_str(out, " */\n");
}

static void prototypes(const CgProgram *p, Buf *out) {
  const char *s = p->prefix, *n = p->name;
  buf_printf(out,
             "/* Checks everything, then runs: on the CPU if stream is NULL, "
             "else where\n"
             " * stream->kind says (ATTN_AUTO: where the arrays are). 0, or "
             "an attn_code\n"
             " * and a line in err->text; err may be NULL. On a GPU the work "
             "is queued and\n"
             " * the call returns. Any number of threads may call at once. "
             "*/\n"
             "int %s_%s(const %s_%s_args *args, attn_stream *stream, "
             "attn_error *err);\n"
             "/* Zeroes the struct and sets size, abi and the defaults of "
             "scalars. */\n"
             "void %s_%s_args_init(%s_%s_args *args);\n"
             "/* Bytes of workspace that a call with these shapes may need. "
             "*/\n"
             "size_t %s_%s_workspace(const %s_%s_args *args);\n\n",
             s, n, s, n, s, n, s, n, s, n, s, n);
}

bool cg_header(Ctx *cx, const CgProgram *progs, uint32_t n, const char *guard,
               Buf *out) {
  char *macro = arena_printf(&cx->session, "ATTN_%s_H", guard);
  for (char *c = macro; *c; c++)
    *c = isalnum((unsigned char)*c) ? (char)toupper((unsigned char)*c) : '_';
  buf_printf(out,
             "/* Made by attnc. C11 and C++17; link with libattn.\n"
             " *\n"
             " * Arrays are attn_tensor: a pointer, extents, strides in "
             "elements (0 and\n"
             " * negative ones too, but for outputs no 0), rank, element type. "
             "Errors of an\n"
             " * argument have its number, from 0, in err->arg, the axis in "
             "err->dim:\n"
             " * ATTN_E_NULL _DTYPE _RANK _SHAPE _STRIDE _ALIGN. Dims: "
             "ATTN_E_DIM\n"
             " * _CONSTRAINT. No code for these dims, strides or this device: "
             "_UNSUPPORTED.\n"
             " * A missing driver or a failed device: _DEVICE. Memory or a "
             "small workspace:\n"
             " * _MEMORY. */\n"
             "#ifndef %s\n#define %s\n\n"
             "#include \"attn.h\"\n\n"
             "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
             macro, macro);
  for (uint32_t i = 0; i < n; i++) {
    about(cx, &progs[i], out);
    args(&progs[i], out);
    prototypes(&progs[i], out);
  }
  buf_str(out, "#ifdef __cplusplus\n}\n#endif\n#endif\n");
  return true;
}
