// Domains of keys by tiles: skipped, partial, full.
#include "tools/driver/run/forms.h"
#include "tools/driver/run/probe.h"

enum { MAX_ROWS = 16, MAX_KEYS = 64 };  // of a cell that are tried

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// Tiles together until the cells are few.
static int64_t cell_of(int64_t extent, int64_t tile) {
  int64_t cell = tile > 0 ? tile : 1;
  while ((extent + cell - 1) / cell > DRV_MAP_CELLS) cell += tile;
  return cell;
}

// The i-th of n points of `size` that begin at lo: the first, the last, and
// between.
static int64_t spread(int64_t lo, int64_t size, int64_t i, int64_t n) {
  return lo + (n > 1 ? i * (size - 1) / (n - 1) : 0);
}

typedef struct Grid {
  DrvMap *m;
  uint32_t row, key;     // axes
  int64_t nrows, nkeys;  // that are tried of each cell
} Grid;

static void points(const Grid *g, const Probe *p, int64_t *at) {
  const DrvMap *m = g->m;
  for (uint32_t i = 0; i < m->down; i++)
    for (uint32_t j = 0; j < m->across; j++) {
      int64_t q = i * m->cell_rows, k = j * m->cell_keys;
      int64_t nq = least(m->cell_rows, m->rows - q);
      int64_t nk = least(m->cell_keys, m->keys - k);
      for (int64_t r = 0; r < g->nrows * g->nkeys; r++, at += p->n)
        for (uint32_t x = 0; x < p->n; x++)
          at[x] = p->axis[x] == g->row   ? spread(q, nq, r / g->nkeys, g->nrows)
                  : p->axis[x] == g->key ? spread(k, nk, r % g->nkeys, g->nkeys)
                                         : 0;
    }
}

static void classify(const Grid *g, const double *hit) {
  int64_t per = g->nrows * g->nkeys;
  for (uint32_t i = 0; i < g->m->down * g->m->across; i++, hit += per) {
    double sum = 0;
    for (int64_t r = 0; r < per; r++) sum += hit[r];
    g->m->cell[i] = sum == 0            ? DRV_SKIPPED
                    : sum < (double)per ? DRV_PARTIAL
                                        : DRV_FULL;
  }
}

// A key without a domain, or one that cannot be tried, is visible everywhere.
static bool fill(Count *c, const Op *op, Grid *g) {
  Arena *a = &c->call->cx->session;
  DrvMap *m = g->m;
  Slice s = {0};
  memset(m->cell, DRV_FULL, sizeof m->cell);
  if (op) probe_slice(c->f, a, op->args[0], &s);
  if (!op || s.odd || m->rows < 1 || m->keys < 1) return true;
  s.axes |= (uint64_t)1 << g->row | (uint64_t)1 << g->key;
  g->nrows = least(m->cell_rows, MAX_ROWS);
  g->nkeys = least(m->cell_keys, MAX_KEYS);
  int64_t n = (int64_t)m->down * m->across * g->nrows * g->nkeys;
  Probe p = {0};
  probe_build(op->args[0], &s, n, c, &p);
  int64_t *at = NEWN(a, int64_t, n *p.n + 1);
  double *hit = NEWN(a, double, n);
  points(g, &p, at);
  if (!probe_run(c, &p, n, at, hit)) return false;
  classify(g, hit);
  return true;
}

static const Op *domain_of(const Func *f, uint32_t axis) {
  for (const Op *op = f->body->first; op; op = op->next)
    if (op->code == OP_DOMAIN && (uint32_t)ir_attr_i(op, AT_AXIS, 0) == axis)
      return op;
  return NULL;
}

static bool map_key(Count *c, uint32_t key, DrvMap *m) {
  Grid g = {.m = m, .row = (uint32_t)c->lane, .key = key};
  *m = (DrvMap){.row = c->f->axes.at[g.row].name,
                .key = c->f->axes.at[key].name,
                .rows = (int64_t)probe_extent(c, g.row),
                .keys = (int64_t)probe_extent(c, key)};
  m->cell_rows = cell_of(m->rows, c->tile_q);
  m->cell_keys = cell_of(m->keys, c->tile_k);
  m->down = (uint32_t)((m->rows + m->cell_rows - 1) / m->cell_rows);
  m->across = (uint32_t)((m->keys + m->cell_keys - 1) / m->cell_keys);
  return fill(c, domain_of(c->f, key), &g);
}

uint32_t drv_maps(DrvCall *c, const DrvOptions *opt, const Target *target,
                  DrvMap *out, uint32_t max) {
  DrvSpec s;
  uint32_t n = 0;
  if (!drv_choose(c, &s)) return 0;
  Module *m = drv_lower(c->cx, s, NULL, LV_ATTN, opt);
  Count k = {.call = c, .m = m};
  if (!m) return 0;
  probe_tiles(&k, target);
  for (uint32_t i = 0, phases = m->funcs.n; i < phases; i++) {
    k.f = m->funcs.at[i];
    if (!ir_is_phase(k.f, c->prog->name)) continue;
    k.dims = drv_module_dims(c, m, k.f);
    k.lane = probe_lane(c, s, opt, target, k.f);
    for (uint32_t a = 0; k.lane >= 0 && a < k.f->axes.n && n < max; a++)
      if (k.f->axes.at[a].role == AX_KEY && !map_key(&k, a, &out[n++]))
        return 0;
  }
  return n;
}
