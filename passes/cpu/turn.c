// Results whose lanes are not those of the tensor they go to: turned in scratch
// by vector shuffles, so that stores read them along its rows.
//
//   before  %o : f32{q:128,d:128} in [panel][d][q]    store(%O, %o, .., %q, %d)
//   after   for panel { for d0 step N { N vectors of [d][q]; log2 N stages of
//           vswap; N vectors of [q][d] } }    the store reads [q][d]
#include "passes/cpu/cpu.h"
#include "passes/support/cost.h"

#include <assert.h>

// Does v lie in scratch with other lanes than `lane`, in whole squares?
static bool is_across(const Assign *as, Value v, int lane) {
  const Form *f = as->ready[v] ? as->forms[v] : NULL;
  int64_t n, rows;
  return f && !as->vec_form[v] && !f->local && f->panel && f->n == 1 &&
         f->lane == as->par && f->dt == DT_F32 && (int)f->axis[0] == lane &&
         dim_known(&as->m->dims, f->size[0], &n) && n % as->lanes == 0 &&
         dim_known(&as->m->dims, f->lane_size, &rows) && rows > COST_CPU_FEW;
}

static void turn(Assign *as, Value v, int lane) {
  Form *from = as->forms[v], *f;
  f = cpu_form_new(as, v, lane, from->size[0], false);
  as->vec_form[v] = f;
  Root *r = cpu_root_turn(as, v, from, f);
  r->lane = from->lane;
  r->lane_size = from->lane_size;
  r->seldom = true;
  as->root_of[v] = r;
}

enum { MAX_TURNED = 8 };  // of a store

typedef struct Turned {
  uint32_t n;
  Value v[MAX_TURNED];
} Turned;

static void find(Assign *as, Value v, int lane, Turned *t) {
  if (as->seen[v] == as->stamp || cpu_is_memory(as, v)) return;
  as->seen[v] = as->stamp;
  if (is_across(as, v, lane) && t->n < MAX_TURNED) t->v[t->n++] = v;
  const Op *op = ir_def(as->f, v);
  if (as->ready[v] || as->root_of[v] || !op || !cpu_is_inline(as, v)) return;
  for (uint32_t i = 0; i < op->nargs; i++) find(as, op->args[i], lane, t);
}

void cpu_turn_stored(Assign *as, const Op *store) {
  Dim size;
  int lane = cpu_lane_of(as, store, &size);
  Turned t = {0};
  as->stamp++;
  if (as->par < 0 || lane < 0 || lane == as->par) return;
  find(as, store->args[1], lane, &t);
  // What is planned already reads them as they are.
  for (uint32_t i = 0; i < t.n; i++)
    if (!cpu_is_read(as, as->forms[t.v[i]])) turn(as, t.v[i], lane);
}

// At the panel that is open.
void cpu_turn_panel(Assign *as, Root *r) {
  Form *from = r->a, *to = r->dst;
  uint32_t axis = from->axis[0], row = (uint32_t)from->lane;
  Value v[HW_MAT_COLS], x0 = as->pt.x0, step;
  assert(as->pt.bound && as->lanes <= HW_MAT_COLS);
  LoopCount count = {cpu_int(as, 0), cpu_dim(as, from->size[0]), as->lanes,
                     as->f->axes.at[axis].name};
  for (uint32_t c = 0; c < as->pt.cols; c++) {
    Loop l = cpu_loop_open(as, count, NULL, 0);
    for (uint32_t i = 0; i < as->lanes; i++) {
      as->pt.idx[axis] = cpu_2(as, OP_ADD, l.iv, cpu_int(as, i));
      v[i] = cpu_form_load(as, from, c);
    }
    cpu_turn_square(as, v);
    as->pt.idx[axis] = l.iv;
    int lane = as->pt.lane;
    as->pt.lane = -1;  // rows are counted one by one
    for (uint32_t i = 0; i < as->lanes; i++) {
      Value at = cpu_int(as, (int64_t)c * as->lanes + i);
      as->pt.idx[row] = cpu_2(as, OP_ADD, x0, at);
      at = cpu_form_index(as, to, 0, &step);
      cpu_vst(as, cpu_form_base(as, to), at, v[i], 0);
    }
    as->pt.lane = lane;
    as->pt.idx[axis] = as->pt.idx[row] = 0;
    cpu_loop_close(as, &l, NULL);
  }
}
