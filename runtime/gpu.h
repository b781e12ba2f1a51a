// Launches on GPUs: gpu.c decides what to launch, a driver launches it.
//
// Ownership: a context owns the drivers it opened, their devices, and the code
// loaded on them, until attn_ctx_destroy.
#ifndef ATTN_RT_GPU_H
#define ATTN_RT_GPU_H

#include "rt.h"

typedef struct GpuFunc {
  void *handle;
  uint32_t per_unit;  // groups of threads that a multiprocessor holds
} GpuFunc;

// One context of one device, made at first use. A driver's own struct begins
// with it.
typedef struct GpuDevice {
  struct GpuDevice *next;
  uint64_t id;  // of the context, never used again
  int ordinal;
  uint32_t arch;      // of NVIDIA: 90 for compute capability 9.0; of
                      // AMD: 0x90a for gfx90a
  uint32_t units;     // multiprocessors
  char *counters;     // GPU_COUNTERS u32, for launches; as many for graphs
  char *blank;        // GPU_BLANK zeros that no kernel writes, then as many
                      // bytes that nobody reads
  void *copies;       // module of copies.c, loaded at its first use
  GpuFunc copy;       // its kernel
  atomic_uint turn;   // launches that took a counter
  atomic_uint graph;  // the same of launches that became part of a graph
} GpuDevice;

enum { GPU_COUNTERS = 1 << 16, GPU_BLANK = 256 };

// Bytes of a device that its counters and blank pages take, zeroed when made.
enum { GPU_MEMORY = 2 * 4 * GPU_COUNTERS + 2 * GPU_BLANK };

typedef struct GpuMap {
  const void *data;
  int dtype;
  uint32_t rank, swizzle;
  uint64_t extent[ATTN_MAP_RANK];  // innermost first
  uint64_t stride[ATTN_MAP_RANK];  // bytes; that of the innermost is not used
  uint32_t box[ATTN_MAP_RANK];
  bool once;  // no other box has the rest of its lines
} GpuMap;

typedef struct GpuLaunch {
  GpuFunc func;
  uint32_t groups, threads, shared_bytes;
  void *block;
  size_t block_bytes;
  bool early;  // may start while the kernel in front of it ends
} GpuLaunch;

typedef struct GpuScope {  // from enter() to leave()
  GpuDevice *dev;          // that is current
  bool pushed;             // leave() puts back
  int before;              // this device
} GpuScope;

// What a vendor's driver offers. Functions with an err return an attn_code.
typedef struct GpuDriver {
  const char *name;  // of the library, for messages
  int kind;          // attn_device_kind
  size_t size;       // of the driver's state, which `open` fills
  int (*open)(attn_ctx *cx, void *state, attn_error *err);
  void (*close)(void *state);  // the process's library stays
  // The device of a stream, current in the calling thread until leave().
  // scope->dev: one of `known`, or a new one, not yet linked.
  int (*enter)(attn_ctx *cx, void *state, GpuDevice *known, int ordinal,
               GpuScope *scope, attn_error *err);
  void (*leave)(void *state, GpuScope scope);
  void (*drop)(attn_ctx *cx, void *state, GpuDevice *dev);
  // How well code for a target suits: 0 not at all. text: compiled by the
  // driver.
  uint32_t (*suits)(const GpuDevice *dev, uint32_t target, bool text);
  // n bytes of code; text ends with a zero.
  int (*load)(void *state, const void *code, size_t n, bool text, void **module,
              attn_error *err);
  void (*unload)(void *state, void *module);
  int (*function)(void *state, void *module, const char *symbol,
                  const attn_gpu_phase *phase, GpuFunc *out, attn_error *err);
  // False: this tensor cannot have such a map. out: ATTN_MAP_BYTES, aligned
  // to 64.
  bool (*encode)(void *state, const GpuMap *map, void *out);
  bool (*capturing)(void *state, void *stream);
  int (*launch)(void *state, const GpuLaunch *l, void *stream, attn_error *err);
  // Whether the process has opened the driver; only then it has memory of it.
  bool (*present)(void);
  // *mine: data is memory of device *ordinal. Both may be NULL.
  int (*owns)(void *state, const void *data, bool *mine, int *ordinal,
              attn_error *err);
} GpuDriver;

extern const GpuDriver rt_cuda;  // cuda.c
extern const GpuDriver rt_hip;   // hip.c

// ---- driver.c: what drivers have in common

enum { RT_LIBRARY_NAMES = 4 };
typedef struct RtLibrary {
  const char *variable;  // of the environment: a path that goes before names
  const char *names[RT_LIBRARY_NAMES];  // in the order they are tried
} RtLibrary;
extern const RtLibrary rt_cuda_library, rt_hip_library;

// NULL: there is none; dlerror() says why.
void *rt_library_open(const RtLibrary *l);
// Whether the process has opened it.
bool rt_library_present(const RtLibrary *l);
// *fn: pointer to a function pointer. False, and NULL: there is none.
bool rt_symbol(void *lib, const char *name, void *fn);
// Divides GPU_MEMORY zeroed bytes of the device's memory.
void rt_gpu_memory(GpuDevice *d, char *memory);
// out->per_unit = n, the groups of a phase that a multiprocessor holds.
// ATTN_E_UNSUPPORTED: none.
int rt_gpu_resident(const char *name, const attn_gpu_phase *p, int n,
                    GpuFunc *out, attn_error *err);

// Expressions of device code refer to the section's words.
typedef struct GpuVariant {
  const attn_gpu_variant *rec;
  const Kernels *records;
  attn_program view;              // the program, with the section's code
  _Atomic(Plan *) plan;           // made at its first launch
  atomic_int state;               // 0 not loaded, 1 loaded, -1 cannot be loaded
  void *module[ATTN_MAX_PHASES];  // of each phase; those in one piece have one
  GpuFunc func[ATTN_MAX_PHASES];
} GpuVariant;

// ---- again.c
typedef struct Again Again;
enum {
  GPU_AGAIN = 64,  // calls of a program that are kept, at most
  GPU_TAIL = 3     // words of a block: tasks, workspace, counter
};

typedef struct KeptCall {
  atomic_uint tag;  // of the arguments that were there last, or 0
  _Atomic(Again *) call;
} KeptCall;

// The variants of one program for one device, the best target first.
typedef struct GpuProgram {
  struct GpuProgram *next;
  const attn_program *prog;
  GpuDevice *dev;
  uint64_t hash;     // of the container
  Kernels *records;  // nrecords
  GpuVariant *variants;
  uint32_t nrecords, nvariants;
  const char *name;  // in the first records' strings
  KeptCall again[GPU_AGAIN];
  atomic_uint kept;  // calls
} GpuProgram;

typedef struct Gpu {
  const GpuDriver *driver;
  pthread_mutex_t lock;  // of everything that is made at first use
  bool open;
  void *state;
  GpuDevice *devices;
  _Atomic(GpuProgram *) programs;
} Gpu;

// A phase whose block is filled but for its tail, that begins at this byte; no
// tasks: not to be launched.
typedef struct Ready {
  char *block;
  size_t tail;
  int64_t ntasks;
} Ready;

// What is launched where.
typedef struct Site {
  attn_ctx *cx;
  Gpu *g;
  GpuDevice *dev;
  GpuVariant *v;
  const GpuCall *call;
} Site;

// r: of each phase of the variant.
int rt_phases_run(const Site *s, const Ready *r, attn_error *err);
// Keeps a call that has been launched, if it has arguments to be known by.
void rt_again_keep(const Site *s, GpuProgram *p, const Ready *r);
// RT_NOT_KEPT: no call of p with these arguments is. s->v is set.
int rt_again_run(Site *s, GpuProgram *p, attn_error *err);
void rt_again_free(attn_ctx *cx, GpuProgram *p);

// ---- copies.c
typedef struct Copy {
  uint32_t tensor;  // counted among the tensors
  const attn_gpu_map *map;
  const attn_tensor *own;  // the caller's
} Copy;

// Workspace of which nobody has said where it lies.
#define RT_NOWHERE ((char *)(uintptr_t)GPU_BLANK)

// A call over copies of some tensors.
typedef struct Copies {
  Solved solved;
  attn_tensor dense[ATTN_MAX_PARAMS];  // by tensor, those of `of`
  Copy of[ATTN_MAX_PARAMS];
  uint32_t n;
  uint64_t bytes;  // of workspace, in front of the variant's
  Gpu *gpu;        // where they are made
  GpuDevice *dev;
} Copies;

// s with copies in `workspace` of what v cannot take. False: nothing is to be
// copied, or too much.
bool rt_copies_plan(const GpuVariant *v, const Solved *s, char *workspace,
                    Copies *out);
// Loads the kernel that copies.
int rt_copies_ready(Copies *c, Gpu *g, GpuDevice *d, attn_error *err);
// Copies in, before the phases of p, or back out of workspace behind them.
int rt_copies_run(const Copies *c, const attn_program *p, bool back,
                  void *stream, attn_error *err);

#endif
