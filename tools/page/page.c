// The compiler's front half in a browser (WebAssembly): a program's text to its
// canonical text, diagnostics, what the passes derived, and the picture of its
// masks. tools/build_page.py builds it, page.js calls it.
//
// An instance serves one request at a time. What page_run returns lies in the
// session of that request, which the next one drops.
#include "tools/driver/driver.h"
#include "tools/driver/run/picture.h"
#include "tools/plan/plan.h"

#include <stdlib.h>

#define EXPORT(name) __attribute__((export_name(name)))

// A request: text, dims ("S=512,D=64") and the target's name; sections of the
// answer are named by lines of their own ("\1picture").
typedef struct Page {
  Ctx cx;
  bool open;
  const Target *target;
  DrvOptions opt;
  Buf out;
} Page;

static Page page;

EXPORT("page_alloc") void *page_alloc(uint32_t n) {
  return malloc(n);
}

EXPORT("page_free") void page_free(void *p) {
  free(p);
}

static void section(const char *name) {
  buf_printf(&page.out, "\n\1%s\n", name);
}

// ---------------------------------------------------------------- one program
// Extents that nobody gave are made up, as `attnc explain` does.
static bool prepare(DrvCall *c, const char *dims) {
  DrvBinds b = {0};
  DrvGens gens = {0};
  if (*dims && !drv_parse_dims(c->cx, dims, &b)) return false;
  for (uint32_t i = 0; i < b.n; i++) {
    bool ok = b.at[i].dtype != DT_NONE
                  ? drv_set_dtype(c, b.at[i].name, b.at[i].dtype)
                  : drv_set_dim(c, b.at[i].name, b.at[i].value, "the dims");
    if (!ok) return false;
  }
  return drv_fill(c, &gens, 1) && drv_complete(c) && drv_outputs(c);
}

static const char *title_of(const DrvCall *c) {
  Buf b = {.arena = &c->cx->session};
  const DimTab *t = c->prog->dims;
  buf_str(&b, c->prog->name);
  for (uint32_t i = 0; i < t->syms.n; i++)
    if (c->known[i])
      buf_printf(&b, " %s=%lld", t->syms.at[i].name, (long long)c->dims[i]);
  buf_printf(&b, ", %s", page.target->name);
  return b.at;
}

// What a call has to do, and the tiles that it goes by.
static void tell(const DrvCall *c, const DrvCost *cost, const Module *tiles,
                 uint32_t remarks) {
  Arena *a = &c->cx->session;
  Buf *o = &page.out;
  buf_printf(o, "%s\n", title_of(c));
  plan_remarks(c->cx, remarks, "  - ", o);
  for (uint32_t i = 0; i < cost->nkeys; i++)
    buf_printf(o, "  keys %-4s %.4g%% of %s visible\n", cost->keys[i].axis,
               100 * cost->keys[i].visible,
               drv_scaled(a, cost->keys[i].pairs, "points"));
  buf_printf(o, "  work     %s, %s\n",
             drv_scaled(a, cost->products, "FLOP in products"),
             drv_scaled(a, cost->functions, "exp and the like"));
  buf_printf(o, "  memory   %s, %.3g FLOP per byte\n",
             drv_scaled(a, cost->bytes, "B"),
             (cost->products + cost->updates) / cost->bytes);
  for (uint32_t i = 0; i < tiles->funcs.n; i++) {
    const Func *f = tiles->funcs.at[i];
    if (!ir_is_phase(f, c->prog->name)) continue;
    buf_str(o, "  tiles    ");
    plan_tiles(tiles, f->name, o);
    buf_char(o, '\n');
  }
}

static void draw(DrvCall *c, const DrvCost *cost) {
  Arena *a = &c->cx->session;
  DrvMap *maps = NEWN(a, DrvMap, DRV_MAX_KEYS);
  const GpuFacts *g = &page.target->gpu;
  uint32_t n = drv_maps(c, &page.opt, page.target, maps, DRV_MAX_KEYS);
  DrvRoof roof = {.peak = g->tflops * 1e12,
                  .memory = g->bandwidth * 1e9,
                  .work = (cost->products + cost->updates) / cost->bytes};
  if (c->cx->nerrors) return;
  section("picture");
  drv_picture(a, title_of(c), maps, n, &roof, &page.out);
}

static bool explain(Decl *prog, const char *dims) {
  DrvCall c;
  DrvCost cost;
  DrvSpec spec;
  uint32_t remarks = page.cx.remarks.n;
  if (!drv_call(&page.cx, prog, &c)) return false;
  c.hollow = true;
  if (!prepare(&c, dims) ||
      !drv_cost(&c, &page.opt, page.target, false, &cost) ||
      !drv_choose(&c, &spec))
    return false;
  Module *tiles = drv_lower(&page.cx, spec, page.target, LV_TILE, &page.opt);
  if (!tiles) return false;
  section("explained");
  tell(&c, &cost, tiles, remarks);
  draw(&c, &cost);
  return true;
}

// ---------------------------------------------------------------- requests
static void answer(Source *src, const char *dims) {
  Decl *progs[DRV_MAX_PROGRAMS];
  Unit *u = fe_parse(&page.cx, src);
  if (!u->syntax_ok) return;
  section("formatted");
  if (!fe_format(&page.cx, u, &page.out) || !fe_check(&page.cx, u)) return;
  uint32_t n = fe_programs(u, progs, DRV_MAX_PROGRAMS);
  for (uint32_t i = 0; i < n && i < DRV_MAX_PROGRAMS; i++)
    if (!explain(progs[i], dims)) return;
}

// Sections "formatted", "explained" and "picture" (of each program) as far as
// the text is right, "diagnostics" in any case. The strings end with 0.
EXPORT("page_run")
const char *page_run(const char *text, const char *dims, const char *target) {
  if (page.open) ctx_drop(&page.cx);
  ctx_init(&page.cx);
  page.open = true;
  page.out = (Buf){.arena = &page.cx.session};
  page.opt = (DrvOptions){.targets = target, .prefix = "page", .jobs = 1};
  page.target = target_by_name(target);
  if (page.target)
    answer(ctx_add_source(&page.cx, "program.attn", text,
                          (uint32_t)strlen(text)),
           dims);
  else diag_add(&page.cx, DIAG_bad_target, NOWHERE, target);
  section("diagnostics");
  diag_render(&page.cx, (DiagStyle){.width = 80}, &page.out);
  buf_char(&page.out, 0);
  return page.out.at;
}
