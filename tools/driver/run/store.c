// Objects of calls that were compiled before. What one depends on beside the
// texts and the compiler, which the store adds: the program as it is called,
// the dims, the target and the options.
#include "tools/driver/run/store.h"

static void put_call(Buf *b, const DrvCall *c) {
  buf_printf(b, "program %s\n", c->prog->name);
  for (uint32_t i = 0; i < c->nargs; i++) {
    const DrvArg *a = &c->args[i];
    buf_printf(b, "%s %d %d %d %u\n", a->param->name, a->out, a->scalar,
               (int)a->dtype, a->rank);
  }
  for (uint32_t i = 0; i < c->prog->dims->syms.n; i++) {
    if (c->known[i]) buf_printf(b, "dim %u %lld\n", i, (long long)c->dims[i]);
    buf_printf(b, "total %u %lld\n", i, (long long)c->total[i]);
  }
}

static void put_spec(Buf *b, DrvSpec s) {
  for (uint32_t i = 0; i < s.n; i++)
    buf_printf(b, "bind %s %lld %d\n", s.binds[i].name,
               (long long)s.binds[i].value, (int)s.binds[i].dtype);
}

static void put_options(Buf *b, const DrvOptions *o) {
  const int64_t numbers[] = {o->tile_q,     o->tile_k,     o->chunk,
                             o->group,      o->few,        o->walk,
                             o->spare_regs, o->spare_smem, o->most_groups,
                             o->relief,     o->workspace,  o->strided,
                             o->general,    o->dense,      o->first};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    buf_printf(b, "%lld ", (long long)numbers[i]);
  for (uint32_t i = 0; i < o->fixed.n; i++)
    buf_printf(b, "fixed %s %lld %d\n", o->fixed.at[i].name,
               (long long)o->fixed.at[i].value, (int)o->fixed.at[i].dtype);
  buf_printf(b, "\neach %s", o->spare_each ? o->spare_each : "");
  buf_printf(b, "\nprefix %s\n", o->prefix);
}

static Buf key_of(const DrvCall *c, DrvSpec s, const Target *t,
                  const DrvOptions *opt) {
  Buf b = {.arena = &c->cx->session};
  buf_printf(&b, "target %s\n", t->name);
  put_call(&b, c);
  put_spec(&b, s);
  put_options(&b, opt);
  return b;
}

// The two names stand before the object.
static bool find(const DrvStore *store, const Buf *key, DrvObject *out) {
  Buf *b = &out->bytes;
  if (!store->get(store->data, key, b)) return false;
  const char *end = memchr(b->at, 0, b->n);
  const char *last = end ? memchr(end + 1, 0, b->n - (end + 1 - b->at)) : NULL;
  if (!last) return false;
  out->prefix = b->at;
  out->name = end + 1;
  out->at = last + 1;
  out->n = b->n - (size_t)(out->at - b->at);
  return out->found = true;
}

static void keep(const DrvStore *store, const Buf *key, DrvObject *o) {
  Buf b = {.arena = o->bytes.arena};
  buf_add(&b, o->prefix, strlen(o->prefix) + 1);
  buf_add(&b, o->name, strlen(o->name) + 1);
  buf_add(&b, o->at, o->n);
  store->put(store->data, key, &b);
}

bool drv_object(DrvCall *c, DrvSpec s, const Target *t, const DrvOptions *opt,
                DrvObject *out) {
  CgProgram p;
  DrvOptions fit = *opt;
  const DrvStore *store = opt->store;
  Buf key = {0};
  *out = (DrvObject){.bytes = {.arena = &c->cx->session}};
  if (store) key = key_of(c, s, t, opt);
  if (store && find(store, &key, out)) return true;
  out->bytes.n = 0;
  if (!drv_fit(c, s, t, &fit, &p) ||
      !cg_compile(c->cx, &p, 1, CG_OBJECT, &out->bytes))
    return false;
  out->prefix = p.prefix;
  out->name = p.name;
  out->at = out->bytes.at;
  out->n = out->bytes.n;
  if (store) keep(store, &key, out);
  return true;
}
