// Launches on a GPU, whatever its vendor: finds the program's code for the
// device, chooses a variant, fills its parameter block, has its phases launched
// (again.c). Once a variant has run on a device nothing is loaded, nothing is
// allocated but what keeps a call, and nothing ever waits for the device.
#include "gpu.h"

#include <stddef.h>
#include <string.h>

// ---- state of a context

static const GpuDriver *const drivers[] = {&rt_cuda, &rt_hip};
enum { DRIVERS = sizeof drivers / sizeof *drivers };

// The records of a container, of all targets, for questions about workspace.
typedef struct Records {
  struct Records *next;
  const void *container;
  uint64_t hash;
  uint32_t n, room;
  Kernels at[];
} Records;

struct GpuSet {
  Gpu of[DRIVERS];
  _Atomic(Records *) records;  // only grows
};

static void free_set(attn_ctx *cx, GpuSet *s, size_t locks) {
  for (size_t i = 0; i < locks; i++) pthread_mutex_destroy(&s->of[i].lock);
  rt_free(cx, s, sizeof *s);
}

static GpuSet *new_set(attn_ctx *cx) {
  GpuSet *s = rt_alloc(cx, sizeof *s);
  if (!s) return NULL;
  memset(s, 0, sizeof *s);
  for (size_t i = 0; i < DRIVERS; i++) {
    s->of[i].driver = drivers[i];
    if (pthread_mutex_init(&s->of[i].lock, NULL) == 0) continue;
    free_set(cx, s, i);
    return NULL;
  }
  return s;
}

static GpuSet *get_set(attn_ctx *cx) {
  GpuSet *have = atomic_load(&cx->gpus);
  if (have) return have;
  GpuSet *mine = new_set(cx);
  if (!mine || atomic_compare_exchange_strong(&cx->gpus, &have, mine))
    return mine;
  free_set(cx, mine, DRIVERS);
  return have;
}

static bool loaded_before(const GpuVariant *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (v->module[i] == v->module[n]) return true;
  return false;
}

static void unload(Gpu *g, GpuVariant *v) {
  for (uint32_t i = 0; i < v->rec->nphases; i++)
    if (v->module[i] && !loaded_before(v, i))
      g->driver->unload(g->state, v->module[i]);
  memset(v->module, 0, sizeof v->module);
}

static void free_program(attn_ctx *cx, Gpu *g, GpuProgram *p) {
  for (uint32_t i = 0; i < p->nvariants; i++) {
    rt_free(cx, atomic_load(&p->variants[i].plan), sizeof(Plan));
    if (g) unload(g, &p->variants[i]);
  }
  rt_again_free(cx, p);
  for (uint32_t i = 0; i < p->nrecords; i++)
    rt_kernels_free(cx, &p->records[i]);
  rt_free(cx, p->records, p->nrecords * sizeof *p->records);
  rt_free(cx, p->variants, p->nvariants * sizeof *p->variants);
  rt_free(cx, p, sizeof *p);
}

static void close_gpu(attn_ctx *cx, Gpu *g) {
  for (GpuProgram *p = atomic_load(&g->programs), *next; p; p = next) {
    next = p->next;
    free_program(cx, g, p);
  }
  for (GpuDevice *d = g->devices, *next; d; d = next) {
    next = d->next;
    if (d->copies) g->driver->unload(g->state, d->copies);
    g->driver->drop(cx, g->state, d);
  }
  if (g->open) g->driver->close(g->state);
  rt_free(cx, g->state, g->driver->size);
}

static void free_records(attn_ctx *cx, Records *r) {
  for (uint32_t i = 0; i < r->n; i++) rt_kernels_free(cx, &r->at[i]);
  rt_free(cx, r, sizeof *r + r->room * sizeof *r->at);
}

void rt_gpu_close(attn_ctx *cx) {
  GpuSet *s = atomic_load(&cx->gpus);
  if (!s) return;
  for (size_t i = 0; i < DRIVERS; i++) close_gpu(cx, &s->of[i]);
  for (Records *r = atomic_load(&s->records), *next; r; r = next) {
    next = r->next;
    free_records(cx, r);
  }
  free_set(cx, s, DRIVERS);
}

static int open_driver(attn_ctx *cx, Gpu *g, attn_error *err) {
  if (g->open) return ATTN_OK;
  if (!g->state) g->state = rt_alloc(cx, g->driver->size);
  if (!g->state)
    return rt_fail(err, ATTN_E_MEMORY, "no memory for the driver's state");
  memset(g->state, 0, g->driver->size);
  int rc = g->driver->open(cx, g->state, err);
  g->open = rc == ATTN_OK;
  return rc;
}

// ---- a program's code for a device

static bool named(const Kernels *k, const attn_gpu_variant *v,
                  const attn_program *p) {
  return !strcmp(k->strings + v->program, p->name);
}

// What the device can run of a variant: bit 0 machine code, bit 1 text.
static uint32_t usable(const Gpu *g, const GpuDevice *d, const Kernels *k,
                       const attn_gpu_variant *v) {
  bool has[2] = {rt_kernels_binary(k, v), v->code[1] != ATTN_NONE};
  uint32_t bits = 0;
  for (uint32_t i = 0; i < 2; i++)
    if (has[i] && g->driver->suits(d, k->target, i)) bits |= 1u << i;
  return bits;
}

static uint32_t count_variants(const Gpu *g, const GpuProgram *p) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->nrecords; i++)
    for (uint32_t j = 0; j < p->records[i].nvariants; j++) {
      const attn_gpu_variant *v = &p->records[i].variants[j];
      n += named(&p->records[i], v, p->prog) &&
           usable(g, p->dev, &p->records[i], v);
    }
  return n;
}

// The best target first, then the compiler's order.
static void sort_records(const Gpu *g, GpuProgram *p) {
  for (uint32_t i = 1; i < p->nrecords; i++)
    for (uint32_t j = i; j > 0; j--) {
      Kernels *a = &p->records[j - 1], *b = &p->records[j], t = *a;
      if (g->driver->suits(p->dev, a->target, true) >=
          g->driver->suits(p->dev, b->target, true))
        break;
      *a = *b;
      *b = t;
    }
}

static void list_variants(const Gpu *g, GpuProgram *p) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->nrecords; i++)
    for (uint32_t j = 0; j < p->records[i].nvariants; j++) {
      const Kernels *k = &p->records[i];
      const attn_gpu_variant *v = &k->variants[j];
      if (!named(k, v, p->prog) || !usable(g, p->dev, k, v)) continue;
      GpuVariant *x = &p->variants[n++];
      *x = (GpuVariant){.rec = v, .records = k, .view = *p->prog};
      x->view.code = k->code;
      x->view.ncode = k->ncode;
      p->name = k->strings + v->program;
    }
}

static int read_records(attn_ctx *cx, Gpu *g, GpuProgram *p,
                        const attn_module *m, attn_error *err) {
  attn_section_info s;
  uint32_t n = attn_module_count(m);
  p->records = rt_alloc(cx, n * sizeof *p->records + 1);
  if (!p->records)
    return rt_fail(err, ATTN_E_MEMORY, "no memory for kernel records");
  for (uint32_t i = 0; i < n; i++) {
    attn_module_section(m, i, &s);
    if (s.kind != ATTN_SEC_KERNELS || !g->driver->suits(p->dev, s.target, true))
      continue;
    int rc = rt_kernels_read(cx, m, &s, &p->records[p->nrecords], err);
    if (rc) return rc;
    p->nrecords++;
  }
  sort_records(g, p);
  return ATTN_OK;
}

static int fill_program(attn_ctx *cx, Gpu *g, GpuProgram *p,
                        const attn_module *m, attn_error *err) {
  int rc = read_records(cx, g, p, m, err);
  uint32_t n = rc ? 0 : count_variants(g, p);
  if (rc) return rc;
  if (!n)
    return rt_fail(err, ATTN_E_UNSUPPORTED, "%s has no code for this device",
                   p->prog->name);
  p->variants = rt_alloc(cx, n * sizeof *p->variants);
  if (!p->variants)
    return rt_fail(err, ATTN_E_MEMORY, "no memory for kernel records");
  p->nvariants = n;
  list_variants(g, p);
  return ATTN_OK;
}

static attn_container_header header_of(const attn_program *prog) {
  attn_container_header h;
  memcpy(&h, prog->container, sizeof h);
  return h;
}

bool rt_gpu_code(const attn_program *prog) {
  return prog->container && header_of(prog).nsections > 0;
}

static int open_container(attn_ctx *cx, const attn_program *prog,
                          attn_module **m, attn_error *err) {
  attn_error mine;
  *m = rt_module_load(cx, prog->container, header_of(prog).length, &mine);
  if (!*m && err) *err = mine;
  return *m ? ATTN_OK : mine.code;
}

static int make_program(attn_ctx *cx, Gpu *g, GpuDevice *d,
                        const attn_program *prog, GpuProgram **out,
                        attn_error *err) {
  attn_container_header h = header_of(prog);
  attn_module *m;
  int rc = open_container(cx, prog, &m, err);
  if (rc) return rc;
  GpuProgram *p = rt_alloc(cx, sizeof *p);
  if (!p) {
    attn_module_close(m);
    return rt_fail(err, ATTN_E_MEMORY, "no memory for kernel records");
  }
  *p = (GpuProgram){.prog = prog, .dev = d, .hash = h.hash};
  rc = fill_program(cx, g, p, m, err);
  attn_module_close(m);
  if (rc) {
    free_program(cx, NULL, p);
    return rc;
  }
  p->next = atomic_load(&g->programs);
  atomic_store(&g->programs, p);
  *out = p;
  return ATTN_OK;
}

// Another object may have been mapped where this one was.
static GpuProgram *known_program(Gpu *g, const GpuDevice *d,
                                 const attn_program *prog) {
  attn_container_header h = header_of(prog);
  for (GpuProgram *p = atomic_load(&g->programs); p; p = p->next)
    if (p->prog == prog && p->dev == d && p->hash == h.hash &&
        !strcmp(p->name, prog->name))
      return p;
  return NULL;
}

static int find_program(attn_ctx *cx, Gpu *g, GpuDevice *d,
                        const attn_program *prog, GpuProgram **out,
                        attn_error *err) {
  if ((*out = known_program(g, d, prog)) != NULL) return ATTN_OK;
  pthread_mutex_lock(&g->lock);
  *out = known_program(g, d, prog);
  int rc = *out ? ATTN_OK : make_program(cx, g, d, prog, out, err);
  pthread_mutex_unlock(&g->lock);
  return rc;
}

// ---- loading

// Text must end with a zero; a hostile section may not have one.
static bool ends(const attn_section_info *s) {
  return s->size && !((const char *)s->data)[s->size - 1];
}

// The number of the section with phase i's code.
static uint32_t section_of(const GpuVariant *v, uint32_t i, bool text) {
  const attn_gpu_phase *p = &v->records->phases[v->rec->phase + i];
  return p->flags & ATTN_GPU_OWN && !text ? p->code : v->rec->code[text];
}

// Phases whose code is one section share what is loaded. What the record says
// of local memory is true of machine code: of text the driver makes other code,
// for other devices, which may spill a little.
static int load_phase(Gpu *g, const attn_module *m, GpuVariant *v, uint32_t i,
                      bool text, attn_error *err) {
  const attn_gpu_phase *p = &v->records->phases[v->rec->phase + i];
  attn_gpu_phase loose = *p;
  loose.flags |= ATTN_GPU_LOCAL;
  uint32_t at = section_of(v, i, text);
  for (uint32_t k = 0; k < i && !v->module[i]; k++)
    if (section_of(v, k, text) == at) v->module[i] = v->module[k];
  const attn_section_info *s = rt_section(m, at);
  if (!s || (text && !ends(s)))
    return rt_fail(err, ATTN_E_FORMAT, "damaged device code");
  int rc = v->module[i] ? ATTN_OK
                        : g->driver->load(g->state, s->data, s->size, text,
                                          &v->module[i], err);
  return rc ? rc
            : g->driver->function(g->state, v->module[i],
                                  v->records->strings + p->symbol,
                                  text ? &loose : p, &v->func[i], err);
}

// Machine code, else text.
static int load_code(Gpu *g, const GpuDevice *d, const attn_module *m,
                     GpuVariant *v, attn_error *err) {
  uint32_t bits = usable(g, d, v->records, v->rec);
  int rc = ATTN_E_UNSUPPORTED;
  for (uint32_t text = 0; rc && rc != ATTN_E_FORMAT && text < 2; text++) {
    if (!(bits >> text & 1)) continue;
    rc = ATTN_OK;
    for (uint32_t i = 0; !rc && i < v->rec->nphases; i++)
      rc = load_phase(g, m, v, i, text, err);
    if (rc) unload(g, v);
  }
  return rc;
}

static int load_variant(attn_ctx *cx, Gpu *g, GpuProgram *p, GpuVariant *v,
                        attn_error *err) {
  attn_module *m;
  int rc = open_container(cx, p->prog, &m, err);
  if (rc) return rc;
  rc = load_code(g, p->dev, m, v, err);
  attn_module_close(m);
  // A device that is out of memory may recover.
  bool final = rc == ATTN_E_UNSUPPORTED || rc == ATTN_E_FORMAT;
  atomic_store(&v->state, !rc ? 1 : final ? -1 : 0);
  return rc;
}

static int ready(attn_ctx *cx, Gpu *g, GpuProgram *p, GpuVariant *v,
                 attn_error *err) {
  if (atomic_load(&v->state) == 1) return ATTN_OK;
  if (atomic_load(&v->state) == -1)
    return rt_fail(err, ATTN_E_UNSUPPORTED,
                   "the code of %s cannot run on this device", p->prog->name);
  pthread_mutex_lock(&g->lock);
  int rc =
      atomic_load(&v->state) == 1 ? ATTN_OK : load_variant(cx, g, p, v, err);
  pthread_mutex_unlock(&g->lock);
  return rc;
}

// ---- the parameter block

typedef struct Block {
  _Alignas(64) char at[ATTN_MAX_BLOCK];
  size_t n, tail;  // tail: where ntasks, workspace, counter are
  bool full;
} Block;

static void put(Block *b, const void *x, size_t n) {
  if (n > sizeof b->at - b->n) {
    b->full = true;
    return;
  }
  memcpy(b->at + b->n, x, n);
  b->n += n;
}

static void put_word(Block *b, uint64_t x) {
  put(b, &x, sizeof x);
}

static bool is_zeros(const attn_tensor *t) {
  return t->data == (const void *)rt_zero;
}

static void put_tensor(Block *b, const attn_tensor *t, uint32_t rank,
                       const GpuDevice *dev) {
  attn_tensor none = {.data = NULL};
  if (!t->data) t = &none;
  put_word(b, is_zeros(t) ? (uintptr_t)dev->blank : (uintptr_t)t->data);
  put(b, t->shape, rank * sizeof *t->shape);
  put(b, t->stride, rank * sizeof *t->stride);
}

static void put_dims(Block *b, const GpuVariant *v, const Solved *s) {
  const int64_t *list = v->records->code + v->rec->dims;
  if (v->rec->dims == ATTN_NONE)
    put(b, s->dims, v->view.ndims * sizeof *s->dims);
  else
    for (int64_t i = 1; i <= list[0]; i++)
      put_word(b, (uint64_t)s->dims[list[i]]);
}

static void put_params(Block *b, const GpuVariant *v, const GpuCall *c,
                       const GpuDevice *dev) {
  uint32_t nt = 0;
  b->n = 0;
  b->full = false;
  for (uint32_t i = 0; i < v->view.nparams; i++) {
    const attn_param_desc *d = &v->view.params[i];
    if (d->kind != ATTN_PARAM_SCALAR)
      put_tensor(b, c->solved->tensors[nt++], d->rank, dev);
  }
  put(b, c->scalars, c->solved->env.nscalars * sizeof *c->scalars);
  put_word(b, c->given);
  put_dims(b, v, c->solved);
}

// All phases have the same parameters.
static void copy_params(Block *b, const Block *of) {
  b->n = of->n;
  b->full = of->full;
  memcpy(b->at, of->at, of->n);
}

// Room for the tail.
static void end_params(Block *b) {
  b->tail = b->n;
  for (int i = 0; i < GPU_TAIL; i++) put_word(b, 0);
  while (b->n % 64) put(b, "", 1);
}

// ---- one launch of a variant

typedef struct Job {
  const attn_ctx *cx;
  Gpu *g;
  GpuDevice *dev;
  GpuVariant *v;
  const GpuCall *call;
  const Copies *copies;  // or NULL
  PlanValues values;
} Job;

static bool evaluates(const GpuVariant *v, const Solved *s, uint32_t at,
                      int64_t *out) {
  Env e = s->env;
  e.prog = &v->view;
  return rt_expr_eval(&e, at, out) == EX_OK;
}

static bool value(const Job *j, uint32_t at, int64_t *out) {
  return rt_plan_value(&j->values, at, out) ||
         evaluates(j->v, j->call->solved, at, out);
}

// What the phase has of the shape, computed here.
static bool put_numbers(Block *b, const Job *j, const attn_gpu_phase *p) {
  const int64_t *list = j->v->records->code + p->numbers;
  int64_t x;
  for (int64_t i = 1; p->numbers && i <= list[0]; i++) {
    if (!value(j, (uint32_t)list[i], &x)) return false;
    put_word(b, (uint64_t)x);
  }
  return true;
}

// NULL: no memory.
static const Plan *plan_of(attn_ctx *cx, Gpu *g, GpuVariant *v) {
  Plan *p = atomic_load(&v->plan);
  if (p) return p;
  pthread_mutex_lock(&g->lock);
  p = atomic_load(&v->plan);
  if (!p && (p = rt_alloc(cx, sizeof *p)) != NULL) {
    rt_plan_make(&v->view, v->records, v->rec, p);
    atomic_store(&v->plan, p);
  }
  pthread_mutex_unlock(&g->lock);
  return p;
}

static int evaluate(attn_ctx *cx, Job *j, attn_error *err) {
  const Plan *p = plan_of(cx, j->g, j->v);
  if (!p) return rt_fail(err, ATTN_E_MEMORY, "no memory for kernel records");
  rt_plan_eval(p, &j->call->solved->env, &j->values);
  return ATTN_OK;
}

// ---- tensor maps

static bool is_output(const attn_program *p, uint32_t tensor) {
  for (uint32_t i = 0; i < p->nparams; i++)
    if (p->params[i].kind != ATTN_PARAM_SCALAR && tensor-- == 0)
      return p->params[i].kind != ATTN_PARAM_IN;
  return false;
}

// The map of an empty tensor, or of one that counts as zeros, shows one element
// of the blank page, a zero: what lies outside of a map is read as 0.
static void empty_map(const GpuDevice *d, bool output, GpuMap *m) {
  m->data = d->blank + (output ? GPU_BLANK : 0);
  for (uint32_t i = 0; i < m->rank; i++) {
    m->extent[i] = 1;
    m->stride[i] = 16;
  }
}

// False: the tensor cannot have this map.
static bool describe(const GpuDevice *d, const attn_gpu_map *r,
                     const attn_tensor *t, bool output, GpuMap *m) {
  uint64_t size = attn_dtype_size(t->dtype);
  bool empty = false;
  *m = (GpuMap){.data = t->data,
                .dtype = t->dtype,
                .rank = r->rank,
                .swizzle = r->swizzle};
  if (t->rank != r->rank) return false;
  if (is_zeros(t)) {
    for (uint32_t i = 0; i < r->rank; i++) m->box[i] = r->box[i];
    empty_map(d, false, m);
    return true;
  }
  for (uint32_t i = 0; i < r->rank; i++) {
    uint32_t k = r->axis[i];
    bool one = t->shape[k] <= 1;  // its stride says nothing
    int64_t stride =
        one ? i ? 16 : (int64_t)size : (int64_t)((uint64_t)t->stride[k] * size);
    if (stride < 0 || (i == 0 && stride != (int64_t)size)) return false;
    m->extent[i] = (uint64_t)t->shape[k];
    m->stride[i] = (uint64_t)stride;
    m->box[i] = r->box[i];
    empty |= t->shape[k] == 0;
  }
  if (empty) empty_map(d, output, m);
  return true;
}

// The tensor that a phase before has made; a row has a multiple of `grain`
// elements, without those that nobody has made.
static bool made_tensor(const Job *j, const attn_gpu_map *r, int64_t grain,
                        attn_tensor *t) {
  int64_t at, stride = 1;
  char *workspace = j->call->workspace;
  *t = (attn_tensor){.dtype = (int32_t)r->dtype, .rank = r->rank};
  if (!value(j, r->place, &at) || at < 0) return false;
  t->data = workspace ? workspace + at : NULL;
  for (uint32_t i = r->rank; i-- > 0;) {
    if (!value(j, r->extent[i], &t->shape[i]) || t->shape[i] < 0 ||
        t->shape[i] > INT32_MAX || stride > INT64_MAX >> 32)
      return false;
    t->stride[i] = stride;
    stride *= t->shape[i];
    if (i + 1u == r->rank) stride = (stride + grain - 1) / grain * grain;
  }
  return true;
}

static bool put_map(Block *b, const Job *j, const attn_gpu_map *r,
                    uint32_t flags) {
  const Solved *s = j->call->solved;
  int64_t size = (int64_t)attn_dtype_size((int32_t)r->dtype);
  int64_t grain = flags & ATTN_GPU_PADDED && size ? ATTN_MAP_ROW / size : 1;
  GpuMap m;
  attn_tensor own;
  char *to = b->at + b->n;
  bool made = r->tensor == ATTN_NONE;
  if ((!made && r->tensor >= s->env.ntensors) ||
      b->n + ATTN_MAP_BYTES > sizeof b->at ||
      (made && !made_tensor(j, r, grain, &own)))
    return false;
  const attn_tensor *t = made ? &own : s->tensors[r->tensor];
  b->n += ATTN_MAP_BYTES;
  m.data = NULL;
  if ((t->data || t->rank) &&
      !describe(j->dev, r, t, made || is_output(&j->v->view, r->tensor), &m))
    return false;
  m.once = flags & ATTN_GPU_ONCE;
  if (m.data) return j->g->driver->encode(j->g->state, &m, to);
  memset(to, 0, ATTN_MAP_BYTES);
  return true;
}

static bool put_maps(Block *b, const Job *j, const attn_gpu_phase *p) {
  for (uint32_t i = 0; i < p->nmaps; i++)
    if (!put_map(b, j, &j->v->records->maps[p->map + i], p->flags))
      return false;
  return true;
}

// ---- phases

typedef struct Step {  // a phase about to be launched
  Block block;
  int64_t ntasks;
} Step;

static bool holds(const GpuVariant *v, const Solved *s) {
  int64_t x = 1;
  return v->rec->when == ATTN_NONE || (evaluates(v, s, v->rec->when, &x) && x);
}

static int check_workspace(const Job *j, attn_error *err) {
  const GpuCall *c = j->call;
  int64_t need = 0;
  uint32_t at = j->v->rec->workspace;
  if (at != ATTN_NONE && (!value(j, at, &need) || need < 0))
    return rt_fail(err, ATTN_E_MEMORY, "the problem is too large");
  need += j->copies ? (int64_t)j->copies->bytes : 0;
  if (need == 0) return ATTN_OK;
  if (c->workspace_bytes < (uint64_t)need || !c->workspace)
    return rt_fail_at(err, ATTN_E_MEMORY,
                      (Where){-1, -1, need, (int64_t)c->workspace_bytes},
                      "%s needs %lld bytes of device memory as workspace, "
                      "got %llu",
                      j->v->view.name, (long long)need,
                      (unsigned long long)c->workspace_bytes);
  if ((uintptr_t)c->workspace % ATTN_ALIGN)
    return rt_fail(err, ATTN_E_ALIGN,
                   "the workspace is not aligned to %d bytes", ATTN_ALIGN);
  return ATTN_OK;
}

static const attn_gpu_phase *phase_of(const Job *j, uint32_t i) {
  return &j->v->records->phases[j->v->rec->phase + i];
}

// Does anybody want what the phase makes?
static bool wanted(const Job *j, const attn_gpu_phase *p) {
  const Solved *s = j->call->solved;
  uint64_t makes = p->makes[0] | (uint64_t)p->makes[1] << 32;
  for (uint32_t i = 0; i < s->env.ntensors && i < 64; i++)
    if ((makes >> i & 1) && s->tensors[i]->data) return true;
  return !makes;
}

// Adds the phase's maps to the block, which has the parameters. ATTN_E_STRIDE:
// a tensor cannot have its map.
static int prepare(const Job *j, uint32_t i, Step *st, attn_error *err) {
  const attn_gpu_phase *p = phase_of(j, i);
  if (!value(j, p->ntasks, &st->ntasks) || st->ntasks < 0 ||
      st->ntasks > INT32_MAX)
    return rt_fail(err, ATTN_E_MEMORY, "the problem is too large");
  if (!wanted(j, p)) st->ntasks = 0;
  if (!st->ntasks) return ATTN_OK;
  if (!put_numbers(&st->block, j, p))
    return rt_fail(err, ATTN_E_MEMORY, "the problem is too large");
  end_params(&st->block);
  if (!put_maps(&st->block, j, p))
    return rt_fail(err, ATTN_E_STRIDE,
                   "%s has no code for these strides and alignments on this "
                   "device",
                   j->v->view.name);
  if (st->block.full || st->block.n != p->block_bytes)
    return rt_fail(err, ATTN_E_INTERNAL,
                   "%s: the parameter block has %zu bytes, expected %u",
                   j->v->view.name, st->block.n, p->block_bytes);
  return ATTN_OK;
}

static int copy(const Job *j, bool back, attn_error *err) {
  return j->copies
             ? rt_copies_run(j->copies, &j->v->view, back, j->call->stream, err)
             : ATTN_OK;
}

// What a launch works in: too much for the stacks that some threads have.
typedef struct Room {
  Copies copies;
  Step step[];  // of each phase
} Room;

// Any phase decides whether the variant can run: all are prepared before the
// first one is launched.
static int run_phases(attn_ctx *cx, Job *j, GpuProgram *p, Step *st,
                      attn_error *err) {
  Block params;
  Ready each[ATTN_MAX_PHASES];
  Site site = {cx, j->g, j->dev, j->v, j->call};
  uint32_t n = j->v->rec->nphases;
  int rc = evaluate(cx, j, err);
  put_params(&params, j->v, j->call, j->dev);
  for (uint32_t i = 0; !rc && i < n; i++) {
    copy_params(&st[i].block, &params);
    rc = prepare(j, i, &st[i], err);
    each[i] = (Ready){st[i].block.at, st[i].block.tail, st[i].ntasks};
  }
  if (!rc) rc = check_workspace(j, err);
  if (!rc) rc = ready(cx, j->g, p, j->v, err);
  if (!rc) rc = copy(j, false, err);
  if (!rc) rc = rt_phases_run(&site, each, err);
  if (!rc && !j->copies) rt_again_keep(&site, p, each);
  return rc ? rc : copy(j, true, err);
}

static int run_plain(attn_ctx *cx, Job *j, GpuProgram *p, Room *room,
                     attn_error *err) {
  return run_phases(cx, j, p, room->step, err);
}

// Over copies of what variant j->v takes no tensors of (copies.c).
static int run_copied(attn_ctx *cx, Job *j, GpuProgram *p, Room *room,
                      attn_error *err) {
  const GpuCall *own = j->call;
  GpuCall call = *own;
  Copies *c = &room->copies;
  char *at = call.workspace ? call.workspace : RT_NOWHERE;
  if (!rt_copies_plan(j->v, own->solved, at, c) || !holds(j->v, &c->solved))
    return ATTN_E_STRIDE;
  if (call.workspace) call.workspace = at + c->bytes;
  call.solved = &c->solved;
  j->call = &call;
  j->copies = c;
  int rc = rt_copies_ready(c, j->g, j->dev, err);
  if (!rc) rc = run_phases(cx, j, p, room->step, err);
  j->call = own;
  j->copies = NULL;
  return rc;
}

typedef int RunVariant(attn_ctx *cx, Job *j, GpuProgram *p, Room *room,
                       attn_error *err);

static int run_in_room(attn_ctx *cx, Job *j, GpuProgram *p, RunVariant *run,
                       attn_error *err) {
  size_t bytes = sizeof(Room) + j->v->rec->nphases * sizeof(Step);
  Buffer *room = rt_buffer_get(cx, bytes, -1);
  if (!room) return rt_fail(err, ATTN_E_MEMORY, "no memory for a launch");
  int rc = run(cx, j, p, room->p, err);
  rt_buffer_put(cx, room, -1);
  return rc;
}

// Codes after which another variant is tried.
static bool next_please(int rc) {
  return rc == ATTN_E_STRIDE || rc == ATTN_E_UNSUPPORTED;
}

static int run_program(attn_ctx *cx, Gpu *g, GpuProgram *p, const GpuCall *c,
                       attn_error *err) {
  Job j = {.cx = cx, .g = g, .dev = p->dev, .call = c};
  int rc = ATTN_E_UNSUPPORTED;
  bool tried = false;
  for (uint32_t i = 0; i < p->nvariants && next_please(rc); i++) {
    j.v = &p->variants[i];
    if (!holds(j.v, c->solved)) continue;
    rc = run_in_room(cx, &j, p, run_plain, err);
    tried = true;
  }
  for (uint32_t i = 0; i < p->nvariants && next_please(rc); i++) {
    attn_error copied;
    j.v = &p->variants[i];
    int now = run_in_room(cx, &j, p, run_copied, &copied);
    if (next_please(now)) continue;
    if (now && err) *err = copied;
    rc = now;
    tried = true;
  }
  if (!tried)
    return rt_fail(err, rc,
                   "%s has no code for these dims and strides on this device",
                   p->prog->name);
  return rc ? rc : rt_ok(err);
}

// ---- one launch

// Coordinates are 32 bits wide in device code, and so are sums of a few.
enum { MAX_EXTENT = 1 << 28 };

static int check_extents(const attn_program *prog, const Solved *s,
                         attn_error *err) {
  uint32_t nt = 0;
  for (uint32_t i = 0; i < prog->nparams; i++) {
    if (prog->params[i].kind == ATTN_PARAM_SCALAR) continue;
    const attn_tensor *t = s->tensors[nt++];
    for (int k = 0; t->data && k < t->rank; k++)
      if (t->shape[k] > MAX_EXTENT)
        return rt_fail_at(err, ATTN_E_UNSUPPORTED,
                          (Where){(int)i, k, MAX_EXTENT, t->shape[k]},
                          "argument '%s', axis %d: extent is %lld, at most "
                          "%d on this device",
                          prog->params[i].name, k, (long long)t->shape[k],
                          MAX_EXTENT);
  }
  return ATTN_OK;
}

static int enter(attn_ctx *cx, Gpu *g, int ordinal, GpuScope *scope,
                 attn_error *err) {
  pthread_mutex_lock(&g->lock);
  int rc = open_driver(cx, g, err);
  if (!rc) rc = g->driver->enter(cx, g->state, g->devices, ordinal, scope, err);
  bool fresh = !rc;
  for (GpuDevice *k = g->devices; k && fresh; k = k->next)
    fresh = k != scope->dev;
  if (fresh) {
    scope->dev->next = g->devices;
    g->devices = scope->dev;
  }
  pthread_mutex_unlock(&g->lock);
  return rc;
}

static size_t driver_of(int kind) {  // DRIVERS: none
  size_t i = 0;
  while (i < DRIVERS && drivers[i]->kind != kind) i++;
  return i;
}

int rt_gpu_launch(attn_ctx *cx, int kind, int ordinal, const attn_program *prog,
                  const GpuCall *c, attn_error *err) {
  size_t i = driver_of(kind);
  if (i == DRIVERS || !rt_gpu_code(prog))
    return rt_fail(err, ATTN_E_UNSUPPORTED, "%s has no code for this device",
                   prog->name);
  GpuSet *set = get_set(cx);
  if (!set)
    return rt_fail(err, ATTN_E_MEMORY, "no memory for the driver's state");
  Gpu *g = &set->of[i];
  GpuProgram *p;
  GpuScope scope;
  int rc = check_extents(prog, c->solved, err);
  if (!rc) rc = enter(cx, g, ordinal, &scope, err);
  if (rc) return rc;
  rc = find_program(cx, g, scope.dev, prog, &p, err);
  if (!rc) rc = run_program(cx, g, p, c, err);
  g->driver->leave(g->state, scope);
  return rc;
}

int rt_gpu_again(attn_ctx *cx, int kind, int ordinal, const attn_program *prog,
                 const GpuCall *c, attn_error *err) {
  size_t i = driver_of(kind);
  GpuSet *set = i < DRIVERS ? atomic_load(&cx->gpus) : NULL;
  GpuScope scope;
  if (!set || enter(cx, &set->of[i], ordinal, &scope, NULL)) return RT_NOT_KEPT;
  Site s = {.cx = cx, .g = &set->of[i], .dev = scope.dev, .call = c};
  GpuProgram *p = known_program(s.g, s.dev, prog);
  int rc = p ? rt_again_run(&s, p, err) : RT_NOT_KEPT;
  s.g->driver->leave(s.g->state, scope);
  return rc;
}

// ---- where memory lies

static bool opened(const Gpu *g) {
  return g->open || (g->driver->present && g->driver->present());
}

static int owner(attn_ctx *cx, Gpu *g, const void *data, bool *mine,
                 int *ordinal, attn_error *err) {
  pthread_mutex_lock(&g->lock);
  // A driver that cannot be opened has given nobody memory.
  int rc = opened(g) ? open_driver(cx, g, err) : ATTN_E_DEVICE;
  bool ask = !rc && g->driver->owns;
  pthread_mutex_unlock(&g->lock);
  *mine = false;
  if (rc == ATTN_E_MEMORY) return rc;
  return ask ? g->driver->owns(g->state, data, mine, ordinal, err) : ATTN_OK;
}

int rt_gpu_where(attn_ctx *cx, const void *data, int *kind, int *ordinal,
                 attn_error *err) {
  GpuSet *set = get_set(cx);
  bool mine = false;
  int rc = ATTN_OK;
  if (!set)
    return rt_fail(err, ATTN_E_MEMORY, "no memory for the driver's state");
  *kind = ATTN_CPU;
  *ordinal = 0;
  for (size_t i = 0; !rc && !mine && i < DRIVERS; i++) {
    rc = owner(cx, &set->of[i], data, &mine, ordinal, err);
    if (!rc && mine) *kind = drivers[i]->kind;
  }
  return rc ? rc : rt_ok(err);
}

// ---- workspace

static int64_t workspace_of(const GpuVariant *v, const Solved *s) {
  int64_t n = 0;
  if (!holds(v, s)) return 0;
  if (v->rec->workspace != ATTN_NONE &&
      (!evaluates(v, s, v->rec->workspace, &n) || n < 0))
    return -1;
  return n;
}

// The same over copies of what it may not take.
static int64_t copies_workspace(const GpuVariant *v, const Solved *s) {
  Copies c;
  int64_t n = rt_copies_plan(v, s, RT_NOWHERE, &c) && holds(v, &c.solved)
                  ? workspace_of(v, &c.solved)
                  : -1;
  return n < 0 ? n : n + (int64_t)c.bytes;
}

// Of any variant of any target whose condition holds: which one a device takes
// is not known here.
static int64_t most_workspace(const attn_program *prog, const Kernels *k,
                              const Solved *s) {
  int64_t most = 0;
  for (uint32_t i = 0; i < k->nvariants; i++) {
    GpuVariant v = {.rec = &k->variants[i], .records = k, .view = *prog};
    v.view.code = k->code;
    v.view.ncode = k->ncode;
    if (!named(k, v.rec, prog)) continue;
    int64_t n = workspace_of(&v, s), copied = copies_workspace(&v, s);
    most = n > most ? n : most;
    most = copied > most ? copied : most;
  }
  return most;
}

static Records *read_container(attn_ctx *cx, const attn_program *prog) {
  attn_section_info s;
  attn_module *m;
  if (open_container(cx, prog, &m, NULL)) return NULL;
  uint32_t n = attn_module_count(m);
  Records *r = rt_alloc(cx, sizeof *r + n * sizeof *r->at);
  if (r)
    *r = (Records){.container = prog->container,
                   .room = n,
                   .hash = header_of(prog).hash};
  for (uint32_t i = 0; r && i < n; i++) {
    attn_module_section(m, i, &s);
    if (s.kind == ATTN_SEC_KERNELS &&
        rt_kernels_read(cx, m, &s, &r->at[r->n], NULL) == ATTN_OK)
      r->n++;
  }
  attn_module_close(m);
  return r;
}

// Two threads may add the same; the later one is not found again.
static const Records *records_of(attn_ctx *cx, GpuSet *set,
                                 const attn_program *prog) {
  uint64_t hash = header_of(prog).hash;
  Records *first = atomic_load(&set->records);
  for (const Records *r = first; r; r = r->next)
    if (r->container == prog->container && r->hash == hash) return r;
  Records *mine = read_container(cx, prog);
  if (!mine) return NULL;
  do mine->next = first;
  while (!atomic_compare_exchange_weak(&set->records, &first, mine));
  return mine;
}

int64_t rt_gpu_workspace(attn_ctx *cx, const attn_program *prog,
                         const Solved *s) {
  GpuSet *set = rt_gpu_code(prog) ? get_set(cx) : NULL;
  const Records *r = set ? records_of(cx, set, prog) : NULL;
  int64_t most = 0;
  for (uint32_t i = 0; r && i < r->n; i++) {
    int64_t n = most_workspace(prog, &r->at[i], s);
    most = n > most ? n : most;
  }
  return most;
}
