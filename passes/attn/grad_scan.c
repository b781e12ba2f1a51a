// grad, part 5: running sums along an axis. The adjoint of one is the running
// sum of the other direction. A kernel that has keys outside cannot run along
// them. Where pairs of rows and keys are summed and tiles have whole blocks of
// keys (NVIDIA), of floats, a kernel of rows stores what each block has in
// front, a number of each row and block, and all others sum within the block:
//
//   front.made[k // n]  = sum over what is in front of the block
//   scan[k]             = front[k // n] + sum in the block, up to k
//
// The kernel that stores it walks in the direction of the sum and needs nothing
// of it. Elsewhere each running sum is made before whoever reads it:
//
//   x.made[k]                                 what is summed; 0 outside of the
//                                             domain
//   block.made[j]  = sum over i of x[j n + i]
//   before.made[j] = sum over blocks in front of j
//   scan.made[k]   = before[k // n] + sum over i, up to k, of x[(k // n) n + i]
//
// Nothing is subtracted: what is small behind much is as exact as the first.
#include "passes/attn/grad.h"
#include "passes/support/cost.h"

typedef struct Scan {
  Grad *g;
  const GradNode *n;
  uint32_t axis;
  uint32_t block, other, in;  // axes: of blocks, of those in front, in one
  Gid x;                      // made
} Scan;

Gid grad_scan(Grad *g, Gid x, GradNode like) {
  uint64_t points = grad_points(g, like.over);
  GradNode n = {.code = OP_SCAN,
                .dtype = DT_F32,
                .axes = grad_at(g, x)->axes | points,
                .over = like.over,
                .attr = like.attr,
                .n = 1,
                .hint = "scan",
                .span = like.span};
  n.points = n.axes;
  return grad_put(g, n, &x);
}

Gid grad_scan_back(Grad *g, Gid x, GradNode n) {
  n.attr ^= GRAD_SCAN_SUFFIX;
  return grad_scan(g, x, n);
}

// ---------------------------------------------------------------- blocks
static uint32_t axis_of(Scan *s, const char *what, AxisRole role, Dim extent) {
  Grad *g = s->g;
  const char *of = g->axes.at[s->axis].axis.name;
  const char *name = arena_printf(&g->cx->scratch, "%s_%s", of, what);
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (strcmp(g->axes.at[i].axis.name, name) == 0) return i;
  return grad_axis(g, name, role, extent);
}

static void put_axes(Scan *s) {
  DimTab *d = &s->g->m->dims;
  Dim size = dim_const(d, COST_GRAD_SCAN),
      last = dim_const(d, COST_GRAD_SCAN - 1);
  Dim up = dim_bin(d, DIM_ADD, s->g->axes.at[s->axis].axis.extent, last);
  Dim blocks = dim_bin(d, DIM_FLOORDIV, up, size);
  s->block = axis_of(s, "block", AX_PAR, blocks);
  s->other = axis_of(s, "before", AX_PAR, blocks);
  s->in = axis_of(s, "in", AX_VEC, size);
}

// Does the sum at coordinate `to` have what is at `from`?
static Gid is_summed(const Scan *s, Gid from, Gid to, bool open) {
  bool suffix = s->n->attr & GRAD_SCAN_SUFFIX;
  OpCode c = open ? OP_LT : OP_LE;
  return suffix ? grad_2(s->g, c, to, from) : grad_2(s->g, c, from, to);
}

// The sum of what is in a block from `first` on; of what `to` has, or of all.
static Gid sum_of_block(const Scan *s, Gid first, Gid to) {
  Grad *g = s->g;
  Gid at = grad_2(g, OP_ADD, first, grad_index(g, s->in));
  Gid end = grad_dim(g, g->axes.at[s->axis].axis.extent);
  Gid v = grad_moved(g, s->x, s->axis, at);
  Gid ok = grad_2(g, OP_LT, at, end);
  if (to) {
    bool open = s->n->attr & GRAD_SCAN_EXCLUSIVE;
    ok = grad_2(g, OP_AND, ok, is_summed(s, at, to, open));
  }
  return grad_sum_all(g, grad_or_0(g, ok, v), grad_bit(s->in));
}

Gid grad_scan_value(Grad *g, Gid scan) {
  const GradNode n = *grad_at(g, scan);
  Scan s = {.g = g, .n = &n};
  while (!(n.over & grad_bit(s.axis))) s.axis++;
  put_axes(&s);
  s.x = grad_made(g, n.arg[0], n.axes, "x");
  Gid size = grad_int(g, COST_GRAD_SCAN), k = grad_index(g, s.axis);
  Gid j = grad_index(g, s.block), front = grad_index(g, s.other);
  Gid block = sum_of_block(&s, grad_2(g, OP_MUL, j, size), 0);
  block = grad_made(g, block, grad_at(g, block)->axes, "block");
  Gid others = grad_moved(g, block, s.block, front);
  others = grad_or_0(g, is_summed(&s, front, j, true), others);
  Gid before = grad_sum_all(g, others, grad_bit(s.other));
  before = grad_made(g, before, grad_at(g, before)->axes, "before");
  Gid of = grad_2(g, OP_FLOORDIV, k, size);
  Gid here = sum_of_block(&s, grad_2(g, OP_MUL, of, size), k);
  return grad_2(g, OP_ADD, grad_moved(g, before, s.block, of), here);
}

// ---------------------------------------------------------------- in place
int64_t grad_scan_block(void) {
  return HW_GROUP_ROWS;
}

uint32_t grad_scan_axis(const Grad *g, Gid scan) {
  uint32_t axis = 0;
  while (!(grad_at(g, scan)->over & grad_bit(axis))) axis++;
  return axis;
}

// Does a tensor have an element for each of these coordinates? Then so may
// workspace. What is seen has none.
static bool has_tensor(const Grad *g, Gid x, uint64_t axes, bool *seen) {
  const GradNode *n = grad_at(g, x);
  if (seen[x]) return false;
  seen[x] = true;
  if (n->code == OP_LOAD && !(axes & ~n->axes)) return true;
  for (uint32_t i = 0; i < n->n; i++)
    if (has_tensor(g, n->arg[i], axes, seen)) return true;
  return false;
}

// Is it read where grad_moved has been?
static bool is_stored(const Grad *g, Gid scan) {
  for (uint32_t i = 0; i < g->reads.n; i++)
    if (g->reads.at[i].node == scan) return true;
  return false;
}

// What blocks have in front of them, a function of the block.
static Gid fronts_of(Grad *g, Gid scan, Scan *s) {
  const GradNode n = *grad_at(g, scan);
  DimTab *d = &g->m->dims;
  Dim extent = g->axes.at[s->axis].axis.extent;
  Dim blocks = dim_ceildiv(d, extent, grad_scan_block());
  s->block = axis_of(s, "front", AX_PAR, blocks);
  uint64_t axes = (n.axes & ~n.over) | grad_bit(s->block);
  Gid front = grad_made(g, n.arg[0], axes, n.hint);
  map_put(&g->scans, front, scan);
  return front;
}

bool grad_scan_by_blocks(Grad *g, Gid scan) {
  const GradNode n = *grad_at(g, scan);
  Scan s = {.g = g, .n = &n, .axis = grad_scan_axis(g, scan)};
  const Target *tg = g->opt->target;
  bool nvidia = tg->kind == TARGET_GPU && tg->gpu.vendor != VENDOR_AMD;
  bool key = grad_role(g, AX_KEY) & n.over, rows = n.axes & ~n.over;
  bool counts = !dtype_is_float(grad_at(g, n.arg[0])->dtype);
  if (!nvidia || !key || !rows || counts || is_stored(g, scan)) return false;
  bool *seen = NEWN(g->arena, bool, g->nodes.n);
  if (has_tensor(g, n.arg[0], n.axes, seen)) return false;
  Gid front = fronts_of(g, scan, &s);
  Gid size = grad_int(g, grad_scan_block()), k = grad_index(g, s.axis);
  Gid at = grad_2(g, OP_FLOORDIV, k, size);
  map_put(&g->fronts, scan, grad_moved(g, front, s.block, at));
  return true;
}

Gid grad_scan_front(const Grad *g, Gid scan) {
  uint64_t front = 0;
  bool scans = grad_at(g, scan)->code == OP_SCAN;
  return scans && map_get(&g->fronts, scan, &front) ? (Gid)front : 0;
}

void grad_scan_moved(Grad *g, Gid scan, Gid moved, uint32_t axis, Gid to) {
  Gid front = grad_scan_front(g, scan);
  if (front) map_put(&g->fronts, moved, grad_moved(g, front, axis, to));
}

void grad_make_scans(Grad *g) {
  for (Gid x = 1, n = g->nodes.n; x < n; x++)
    if (grad_at(g, x)->code == OP_SCAN && !grad_scan_by_blocks(g, x))
      map_put(&g->values, x, grad_scan_value(g, x));
}
