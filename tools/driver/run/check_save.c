// A comparison with the reference for another machine: code, inputs, what the
// oracle says, and the arguments of gpu-run that compare them.
#include "ir/core/outfile.h"
#include "tools/driver/run/checks.h"
#include "tools/driver/compile/compile.h"
#include "tools/driver/compile/link.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

// What a gradient may differ by in tolerances, of a forward pass that ran
// elsewhere: its rows are rounded otherwise than the weights made again.
static const double ELSEWHERE = 1.5;

typedef struct Saver {
  const DrvChecker *k;
  DrvCall *c;
  Buf line;
} Saver;

static const char *file_of(const Saver *s, const char *name, const char *end) {
  return arena_printf(&s->k->cx->session, "%s.%s%s", s->k->name, name, end);
}

static const char *path_of(const Saver *s, const char *file) {
  return arena_printf(&s->k->cx->session, "%s/%s", s->k->save, file);
}

static bool save_code(Saver *s) {
  const DrvChecker *k = s->k;
  DrvSpec spec;
  CgProgram p;
  Buf object = {.arena = &k->cx->session};
  DrvOptions fit = *k->opt;
  if (!drv_choose(s->c, &spec) || !drv_fit(s->c, spec, k->target, &fit, &p) ||
      !cg_compile(k->cx, &p, 1, CG_OBJECT, &object))
    return false;
  const char *file = arena_printf(&k->cx->session, "%s.so", k->name);
  buf_printf(&s->line, "%s %s_%s", file, p.prefix, p.name);
  return drv_link_shared(k->cx, &object, path_of(s, file));
}

// Its value, or an array as it was before anything ran.
static bool save_input(Saver *s, uint32_t i, const DrvSaved *saved) {
  const DrvArg *a = &s->c->args[i];
  const char *name = a->param->name, *file = file_of(s, name, ".npy");
  if (a->scalar && a->given)
    buf_printf(&s->line, " --set %s=%.17g", name, a->value);
  if (a->scalar || a->out || !a->array.data) return true;
  NpyArray x = a->array;
  if (saved->data[i]) x.data = saved->data[i];
  buf_printf(&s->line, " --in %s=%s", name, file);
  return npy_write(s->k->cx, path_of(s, file), &x);
}

// In f64; what the program does not write is NaN, as the output that gpu-run
// begins with. Of gradients NaN is what the reference says nothing of: elements
// that no point reads, in padding.
static bool save_want(Saver *s, const char *name, const NpyArray *of,
                      const double *want) {
  const char *file = file_of(s, name, ".want.npy");
  double *v = NEWN(&s->k->cx->session, double, of->count + 1);
  for (int64_t i = 0; i < of->count; i++)
    v[i] = drv_is_written(want[i]) ? want[i] : (double)NAN;
  NpyArray x = *of;
  x.dtype = DT_F64;
  x.data = v;
  buf_printf(&s->line, " --ref %s=%s", name, file);
  return npy_write(s->k->cx, path_of(s, file), &x);
}

static void put_dims(Saver *s) {
  const DimTab *t = s->c->prog->dims;
  for (uint32_t i = 0; i < t->syms.n; i++)
    if (s->c->known[i])
      buf_printf(&s->line, " --dim %s=%lld", t->syms.at[i].name,
                 (long long)s->c->dims[i]);
}

static bool write_line(Saver *s) {
  const char *path = path_of(s, file_of(s, "args", ""));
  if (out_write(path, s->line.at, s->line.n)) return true;
  diag_add(s->k->cx, DIAG_cannot_write, NOWHERE, path, strerror(errno));
  return false;
}

bool drv_save_check(const DrvChecker *k, DrvCall *c, const DrvSaved *saved,
                    const DrvSide *want, double tol) {
  Saver s = {k, c, {.arena = &k->cx->session}};
  out_folder(k->save);
  if (access(k->save, W_OK) != 0) {
    diag_add(k->cx, DIAG_cannot_write, NOWHERE, k->save, strerror(errno));
    return false;
  }
  if (!save_code(&s)) return false;
  put_dims(&s);
  for (uint32_t i = 0; i < c->nargs; i++)
    if (!save_input(&s, i, saved)) return false;
  for (uint32_t i = 0; i < want->n; i++)
    if (!save_want(&s, want->name[i], &want->array[i], want->want[i]))
      return false;
  if (want->grad_ref) buf_printf(&s.line, " --sparse");
  buf_printf(&s.line, " --tol %.17g\n", want->grad_ref ? ELSEWHERE * tol : tol);
  return write_line(&s);
}
