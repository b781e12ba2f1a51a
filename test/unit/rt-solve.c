// Dims from shapes, and every way in which a call can be wrong.
#include "expect.h"
#include "runtime/attn_abi.h"
#include "runtime/rt.h"

#include <string.h>

enum { DIM_B, DIM_S, DIM_HQ, DIM_HK, DIM_D, DIM_L, NDIMS };
enum {
  X_B,
  X_S = 3,
  X_HQ = 6,
  X_HK = 9,
  X_D = 12,
  X_B1 = 15,
  X_DIV = 21,
  X_LIST = 28,
  X_BIG = 31,
  X_L = 38,
  X_FLAT = 41
};

static const int64_t code[] = {ATTN_X_DIM,
                               DIM_B,
                               ATTN_X_END,
                               ATTN_X_DIM,
                               DIM_S,
                               ATTN_X_END,
                               ATTN_X_DIM,
                               DIM_HQ,
                               ATTN_X_END,
                               ATTN_X_DIM,
                               DIM_HK,
                               ATTN_X_END,
                               ATTN_X_DIM,
                               DIM_D,
                               ATTN_X_END,
                               ATTN_X_DIM,
                               DIM_B,
                               ATTN_X_CONST,
                               1,
                               ATTN_X_ADD,
                               ATTN_X_END,
                               ATTN_X_DIM,
                               DIM_HQ,
                               ATTN_X_DIM,
                               DIM_HK,
                               ATTN_X_MOD,
                               ATTN_X_NOT,
                               ATTN_X_END,
                               2,
                               64,
                               128,
                               ATTN_X_DIM,
                               DIM_S,
                               ATTN_X_CONST,
                               INT64_MAX,
                               ATTN_X_MUL,
                               ATTN_X_NOT,
                               ATTN_X_END,
                               ATTN_X_DIM,
                               DIM_L,
                               ATTN_X_END,
                               ATTN_X_DIM,
                               DIM_B,
                               ATTN_X_DIM,
                               DIM_S,
                               ATTN_X_MUL,
                               ATTN_X_CONST,
                               16,
                               ATTN_X_FLOORDIV,
                               ATTN_X_END};

static const attn_dim_desc dims[] = {
    {"B", 0, INT64_MAX, 1, ATTN_DIM_DYN, ATTN_NONE, ATTN_NONE, 0},
    {"S", 1, 4096, 8, ATTN_DIM_DYN, ATTN_NONE, ATTN_NONE, 0},
    {"Hq", 1, INT64_MAX, 1, ATTN_DIM_DYN, ATTN_NONE, ATTN_NONE, 0},
    {"Hk", 1, INT64_MAX, 1, ATTN_DIM_DYN, ATTN_NONE, ATTN_NONE, 0},
    {"D", 1, INT64_MAX, 1, ATTN_DIM_CONST, X_LIST, ATTN_NONE, 0},
    {"L", 1, 100, 1, ATTN_DIM_RAGGED, ATTN_NONE, ATTN_NONE, 0}};

static const attn_param_desc params[] = {
    {"Q", ATTN_PARAM_IN, ATTN_F32, 3, 0, 24, {0}, {X_S, X_HQ, X_D}},
    {"K", ATTN_PARAM_IN, ATTN_BF16, 3, 0, 168, {0}, {ATTN_NONE, X_HK, X_D}},
    {"offs", ATTN_PARAM_IN, ATTN_I32, 1, 0, 312, {0}, {X_B1}},
    {"W", ATTN_PARAM_SCALAR, ATTN_I64, 0, 0, 456, {.i64 = 7}, {0}},
    {"O", ATTN_PARAM_OUT, ATTN_F32, 3, 0, 464, {0}, {X_S, X_HQ, X_D}},
    {"n", ATTN_PARAM_OUT, ATTN_F32, 1, 0, 608, {0}, {X_FLAT}}};

static const uint32_t checks[] = {X_DIV};

static const attn_program good = {.abi = ATTN_ABI,
                                  .size = sizeof(attn_program),
                                  .name = "t",
                                  .nparams = 6,
                                  .ndims = NDIMS,
                                  .nchecks = 1,
                                  .params = params,
                                  .dims = dims,
                                  .checks = checks,
                                  .code = code,
                                  .ncode = sizeof code / sizeof *code,
                                  .args_size = 752};

static float mem[4];

static attn_tensor dense(int dtype, int rank, int64_t a, int64_t b, int64_t c) {
  attn_tensor t = {mem, {a, b, c}, {0}, rank, dtype};
  int64_t st = 1;
  for (int k = rank; k-- > 0; st *= t.shape[k] ? t.shape[k] : 1)
    t.stride[k] = st;
  return t;
}

typedef struct Call {
  attn_tensor q, k, offs, o, n;
  const attn_program *prog;
  int64_t dims[NDIMS];
  attn_error err;
} Call;

static Call call(void) {
  return (Call){.q = dense(ATTN_F32, 3, 16, 6, 64),
                .k = dense(ATTN_BF16, 3, 99, 3, 64),
                .offs = dense(ATTN_I32, 1, 6, 0, 0),
                .o = dense(ATTN_F32, 3, 16, 6, 64),
                .n = dense(ATTN_F32, 1, 5, 0, 0),
                .prog = &good};
}

static int solve(Call *c) {
  attn_tensor *t[] = {&c->q, &c->k, &c->offs, &c->o, &c->n};
  attn_scalar s = {.i64 = 7};
  return attn_solve(c->prog, t, &s, c->dims, &c->err);
}

// Solves, expects this code and a text that contains `part`.
static void fails(Call *c, int code_, int arg, int dim, const char *part) {
  EXPECT(solve(c) == code_);
  EXPECT(c->err.code == code_ && c->err.arg == arg && c->err.dim == dim);
  EXPECT(strstr(c->err.text, part) != NULL);
  if (!strstr(c->err.text, part)) printf("  text: %s\n", c->err.text);
}

static void solved(void) {
  Call c = call();
  EXPECT(solve(&c) == ATTN_OK && c.err.code == 0 && c.err.arg == -1);
  const int64_t want[] = {5, 16, 6, 3, 64, -1};
  EXPECT(memcmp(c.dims, want, sizeof want) == 0);
  attn_tensor *t[] = {&c.q, &c.k, &c.offs, NULL, NULL};  // outputs not wanted
  attn_scalar s = {.i64 = 7};
  EXPECT(attn_solve(&good, t, &s, c.dims, NULL) == ATTN_OK);
}

static void wrong_tensors(void) {
  Call c = call();
  c.q.dtype = ATTN_F16;
  fails(&c, ATTN_E_DTYPE, 0, -1, "'Q': element type is f16, expected f32");
  c = call();
  c.k.rank = 2;
  fails(&c, ATTN_E_RANK, 1, -1, "'K': rank is 2, expected 3");
  c = call();
  c.offs.data = NULL;
  fails(&c, ATTN_E_NULL, 2, -1, "'offs' has no data");
  c = call();
  c.q.shape[1] = -6;
  fails(&c, ATTN_E_SHAPE, 0, 1, "extent is -6");
  c = call();
  c.q.data = (char *)mem + 2;
  fails(&c, ATTN_E_ALIGN, 0, -1, "4-byte elements");
  c = call();
  c.k.stride[0] = INT64_MAX / 4;
  fails(&c, ATTN_E_STRIDE, 1, 0, "too large");
  c = call();
  c.o.stride[1] = 0;
  fails(&c, ATTN_E_STRIDE, 4, 1, "stride 0");
  c = call();
  c.q.stride[1] = 0;  // a broadcast input is fine
  c.q.stride[2] = -1;
  EXPECT(solve(&c) == ATTN_OK);
}

// Inputs that count as zeros may be missing, if their dims are known.
static void absent(void) {
  Call c = call();
  attn_program p = good;
  attn_param_desc ps[6];
  memcpy(ps, params, sizeof ps);
  p.params = ps;
  c.prog = &p;
  c.q = (attn_tensor){0};
  fails(&c, ATTN_E_NULL, 0, -1, "'Q' has no data");
  ps[0].flags = ATTN_PARAM_OPTIONAL;
  EXPECT(solve(&c) == ATTN_OK && c.dims[1] == 16 && c.dims[2] == 6);
  c.q = dense(ATTN_F32, 3, 16, 5, 64);
  c.q.data = NULL;
  fails(&c, ATTN_E_SHAPE, 4, 1, "expected Hq = 5 as in 'Q'");
  c = call();
  c.prog = &p;
  c.q = c.o = c.n = (attn_tensor){0};
  fails(&c, ATTN_E_DIM, -1, -1, "dim S is not determined");
}

static void wrong_shapes(void) {
  Call c = call();
  c.o.shape[1] = 5;
  fails(&c, ATTN_E_SHAPE, 4, 1, "is 5, expected Hq = 6 as in 'Q', axis 1");
  EXPECT(c.err.expected == 6 && c.err.got == 5);
  c = call();
  c.n.shape[0] = 4;
  fails(&c, ATTN_E_SHAPE, 5, 0, "is 4, expected B * S // 16 = 5");
  c = call();
  c.offs.shape[0] = 0;
  fails(&c, ATTN_E_DIM, 2, 0, "dim B ('offs', axis 0) is -1, at least 0");
  c = call();
  c.q.shape[0] = c.o.shape[0] = 12;
  fails(&c, ATTN_E_DIM, 0, 0, "S ('Q', axis 0) is 12, must be a multiple of 8");
  c = call();
  c.q.shape[0] = c.o.shape[0] = 8192;
  c.n.shape[0] = 2560;
  fails(&c, ATTN_E_DIM, 0, 0, "S ('Q', axis 0) is 8192, at most 4096");
  c = call();
  c.q.shape[2] = c.k.shape[2] = c.o.shape[2] = 96;
  fails(&c, ATTN_E_DIM, 0, 2, "is 96, the code is compiled for 64, 128");
  c = call();
  c.k.shape[1] = 4;
  fails(&c, ATTN_E_CONSTRAINT, -1, -1,
        "!(Hq % Hk) does not hold: Hq = 6, Hk = 4");
}

static void wrong_programs(void) {
  Call c = call();
  attn_program p = good;
  c.prog = &p;
  p.abi = 99u << 16;
  fails(&c, ATTN_E_ABI, -1, -1, "version 99.0");
  p = good;
  const uint32_t overflows[] = {X_BIG};
  p.checks = overflows;
  fails(&c, ATTN_E_CONSTRAINT, -1, -1, "S = 16");
  p.ncode = X_BIG + 3;  // cut in the middle of an expression
  fails(&c, ATTN_E_INTERNAL, 5, 0, "bad expression");
  p = good;
  attn_param_desc ps[6];
  memcpy(ps, params, sizeof ps);
  p.params = ps;
  ps[2].axis[0] = ATTN_NONE;
  fails(&c, ATTN_E_DIM, -1, -1, "dim B is not determined");
  EXPECT(attn_solve(NULL, NULL, NULL, c.dims, NULL) == ATTN_E_ARGUMENT);
  EXPECT(attn_solve(&good, NULL, NULL, c.dims, NULL) == ATTN_E_ARGUMENT);
}

static void padded_ragged(void) {
  attn_param_desc ps[6];
  memcpy(ps, params, sizeof ps);
  ps[1].axis[0] = X_L;
  attn_program p = good;
  p.params = ps;
  Call c = call();
  c.prog = &p;
  EXPECT(solve(&c) == ATTN_OK && c.dims[DIM_L] == 99);
  c.k.shape[0] = 0;
  EXPECT(solve(&c) == ATTN_OK && c.dims[DIM_L] == 0);
  c.k.shape[0] = 101;
  fails(&c, ATTN_E_DIM, 1, 0, "is 101, at most 100");
}

static void ragged_lengths(void) {
  static int32_t offs[] = {0, 3, 3, 10, 12, 20};
  attn_param_desc ps[6];
  attn_dim_desc ds[NDIMS];
  memcpy(ps, params, sizeof ps);
  memcpy(ds, dims, sizeof ds);
  ds[DIM_L] = (attn_dim_desc){"L", 0, 100, 1, ATTN_DIM_RAGGED, ATTN_NONE, 2, 1};
  attn_program p = good;
  p.params = ps;
  p.dims = ds;
  Call c = call();
  c.prog = &p;
  c.offs.data = offs;
  EXPECT(solve(&c) == ATTN_OK && c.dims[DIM_L] == 8);
  ds[DIM_L].hi = 7;
  fails(&c, ATTN_E_DIM, 2, 0, "sequence 4 of 'offs' has length 8, dim L is at");
  ds[DIM_L].hi = 100;
  offs[2] = 2;
  fails(&c, ATTN_E_DIM, 2, 0, "entry 2 is 2: offsets must ascend");
  offs[2] = 3;
  ps[1].axis[0] = X_L;  // a padded axis bounds them
  EXPECT(solve(&c) == ATTN_OK && c.dims[DIM_L] == 99);
  c.k.shape[0] = 7;
  fails(&c, ATTN_E_DIM, 2, 0, "dim L is at most 7");
  ps[1].axis[0] = ATTN_NONE;
  ds[DIM_L].by_offsets = 0;
  EXPECT(solve(&c) == ATTN_OK && c.dims[DIM_L] == 20);
  offs[1] = -1;
  fails(&c, ATTN_E_DIM, 2, 0, "entry 1 is -1: a length is negative");
}

// A device's lengths are not read: what they may be at most counts.
static void ragged_on_devices(void) {
  static int32_t offs[] = {0, 3, 3, 10, 12, 20};
  enum { TOTAL = NDIMS };
  attn_param_desc ps[6];
  attn_dim_desc ds[NDIMS + 1];
  int64_t total[] = {ATTN_X_DIM, TOTAL, ATTN_X_END}, all[64];
  uint32_t n = sizeof code / sizeof *code;
  memcpy(ps, params, sizeof ps);
  memcpy(ds, dims, sizeof dims);
  memcpy(all, code, sizeof code);
  memcpy(all + n, total, sizeof total);
  ds[DIM_L] = (attn_dim_desc){"L", 0, 100, 1, ATTN_DIM_RAGGED, ATTN_NONE, 2, 1};
  ds[TOTAL] = (attn_dim_desc){"L_total",    0,         INT64_MAX, 1,
                              ATTN_DIM_DYN, ATTN_NONE, ATTN_NONE, 0};
  ps[1].axis[0] = n;
  attn_program p = good;
  p.params = ps;
  p.dims = ds;
  p.ndims = NDIMS + 1;
  p.code = all;
  p.ncode = n + 3;
  Call c = call();
  c.offs.data = offs;
  attn_tensor *t[] = {&c.q, &c.k, &c.offs, &c.o, &c.n};
  attn_scalar s = {.i64 = 7};
  Solved out;
  EXPECT(rt_solve(&p, t, &s, true, &out, &c.err) == ATTN_OK);
  EXPECT(out.dims[TOTAL] == 99 && out.dims[DIM_L] == 99);
  ds[DIM_L].hi = 8;
  EXPECT(rt_solve(&p, t, &s, true, &out, &c.err) == ATTN_OK);
  EXPECT(out.dims[TOTAL] == 99 && out.dims[DIM_L] == 8);
  ds[DIM_L].hi = 100;
  ds[DIM_L].lo = 19;  // the other four have as many at least
  EXPECT(rt_solve(&p, t, &s, true, &out, &c.err) == ATTN_OK);
  EXPECT(out.dims[TOTAL] == 99 && out.dims[DIM_L] == 23);
  ds[DIM_L].lo = 50;
  EXPECT(rt_solve(&p, t, &s, true, &out, &c.err) == ATTN_OK);
  EXPECT(out.dims[DIM_L] == 0);
}

static void names(void) {
  for (int i = -1; i <= ATTN_E_COUNT; i++) EXPECT(attn_code_text(i)[0] != 0);
  for (int i = 0; i < ATTN_DTYPE_COUNT; i++)
    EXPECT(attn_dtype_size(i) && attn_dtype_name(i)[0] != '?');
  EXPECT(attn_dtype_size(-1) == 0 && attn_dtype_size(ATTN_DTYPE_COUNT) == 0);
}

int main(void) {
  solved();
  wrong_tensors();
  absent();
  wrong_shapes();
  wrong_programs();
  padded_ragged();
  ragged_lengths();
  ragged_on_devices();
  names();
  return verdict();
}
