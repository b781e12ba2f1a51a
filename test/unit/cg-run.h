// Programs under test, shared by cg-math.c and cg-cast.c: compiled here and
// run through the JIT, or (LINKED, other CPUs) compiled before and linked with
// a table of all programs.
//   unit-cg-x --emit TARGET OBJECT.o TABLE.c
//   gcc -DLINKED cg-x.c TABLE.c OBJECT.o runtime/*.c ir/core/dtype.c
#ifndef ATTNC_TEST_CG_RUN_H
#define ATTNC_TEST_CG_RUN_H

#include "ir/core/dtype.h"
#include "runtime/attn_abi.h"
#include "test/unit/expect.h"

#include <stdlib.h>
#include <string.h>

typedef struct Linked {
  const char *name;
  const attn_program *program;
} Linked;

typedef struct Code Code;  // compiled programs

static void launch(const attn_program *p, void *const *data, const int *dtypes,
                   int n, int64_t count) {
  attn_tensor t[4], *at[4];
  attn_scalar none = {.i64 = 0};
  attn_error e = {0};
  EXPECT(p != NULL);
  if (!p) return;
  for (int i = 0; i < n; i++) {
    t[i] = (attn_tensor){data[i], {count}, {1}, 1, dtypes[i]};
    at[i] = &t[i];
  }
  EXPECT(attn_launch(p, at, &none, NULL, &e) == 0);
  if (e.code) printf("%s\n", e.text);
}

#ifdef LINKED
extern const Linked linked[];

static const attn_program *find(const Code *c, const char *name) {
  (void)c;
  for (const Linked *l = linked; l->name; l++)
    if (strcmp(l->name, name) == 0) return l->program;
  return NULL;
}

static int each_level(int argc, char **argv,
                      void (*write)(void *, const char *),
                      void (*test)(const Code *, const char *)) {
  (void)argc, (void)argv, (void)write;
  test(NULL, "linked");
  return verdict();
}

#else
#include "codegen/codegen.h"

struct Code {
  CgJit *jit;
};

static const attn_program *find(const Code *c, const char *name) {
  return cg_jit_program(c->jit, "u", name);
}

static void show(Ctx *cx) {
  Buf err = {.arena = &cx->session};
  diag_render(cx, (DiagStyle){.ascii = true}, &err);
  if (err.n) printf("%s", err.at);
  EXPECT(cx->nerrors == 0);
}

// The object of all programs that `write` writes as text.
static Module *compile(Ctx *cx, const char *target,
                       void (*write)(void *, const char *), Buf *obj) {
  Buf b = {.arena = &cx->session};
  buf_printf(&b, "module mach %s\ndim N dyn\n", target);
  write(&b, target);
  Module *m = ir_parse(cx, ctx_add_source(cx, "unit.tir", b.at, b.n));
  if (!m) return NULL;
  CgProgram *p = NEWN(&cx->session, CgProgram, m->funcs.n);
  for (uint32_t i = 0; i < m->funcs.n; i++)
    p[i] = cg_program_of(cx, m, m->funcs.at[i], "u");
  return cg_compile(cx, p, m->funcs.n, CG_OBJECT, obj) ? m : NULL;
}

static void level(const char *target, void (*write)(void *, const char *),
                  void (*test)(const Code *, const char *)) {
  Ctx cx;
  ctx_init(&cx);
  Buf obj = {.arena = &cx.session};
  Module *m = compile(&cx, target, write, &obj);
  Code c = {m ? cg_jit_load(&cx, obj.at, obj.n) : NULL};
  EXPECT(c.jit != NULL);
  if (c.jit) test(&c, target);
  cg_jit_drop(c.jit);
  show(&cx);
  ctx_drop(&cx);
}

static void emit(const char *target, const char *object, const char *table,
                 void (*write)(void *, const char *)) {
  Ctx cx;
  ctx_init(&cx);
  Buf obj = {.arena = &cx.session};
  Module *m = compile(&cx, target, write, &obj);
  FILE *o = fopen(object, "wb"), *t = fopen(table, "w");
  EXPECT(m && o && t && fwrite(obj.at, 1, obj.n, o) == obj.n);
  fprintf(t, "#include \"test/unit/cg-run.h\"\n");
  for (uint32_t i = 0; m && i < m->funcs.n; i++)
    fprintf(t, "extern const attn_program u_%s_program;\n",
            m->funcs.at[i]->name);
  fprintf(t, "const Linked linked[] = {\n");
  for (uint32_t i = 0; m && i < m->funcs.n; i++)
    fprintf(t, "{\"%s\", &u_%s_program},\n", m->funcs.at[i]->name,
            m->funcs.at[i]->name);
  fprintf(t, "{0, 0}};\n");
  fclose(o);
  fclose(t);
  show(&cx);
  ctx_drop(&cx);
}

// On every level of this machine, or the one argv[1], or with --ends the best
// and the lowest.
static int each_level(int argc, char **argv,
                      void (*write)(void *, const char *),
                      void (*test)(const Code *, const char *)) {
  const char *targets[8];
  uint32_t n = cg_host_targets(targets, 8);
  if (argc == 5 && !strcmp(argv[1], "--emit")) {
    emit(argv[2], argv[3], argv[4], write);
    return verdict();
  }
  for (uint32_t i = 0; i < n; i++) {
    bool end = i == 0 || i + 1 == n;
    if (argc < 2 || !strcmp(targets[i], argv[1]) ||
        (end && !strcmp(argv[1], "--ends")))
      level(targets[i], write, test);
  }
  return verdict();
}
#endif
#endif
