// grad, part 6: keys that lists choose.
//
//   before  g_K[x] += f(q, j) at x = 64 * sel[q, j // 64] + j % 64
//   after   rows: chosen.made[q, n] = how many entries of sel[q] are n
//           g_K[k] = sum over q of chosen.made[q, k // 64] * f(q) at x = k,
//                    where chosen.made[q, k // 64] > 0
//
// That a row reads key k is an equation of the list's place j: of a block and a
// place within it only the block is looked for, since the place is k % 64. All
// that a point has of j is x, which is k: points become those of rows and keys
// under a mask, as any program's are, and an entry that is there twice counts
// twice. An index that has no place within it is looked for by itself. Without
// this each place of the list would have sums of its own for each key.
#include "passes/attn/grad.h"

typedef struct Inverse {
  Grad *g;
  Gid x;          // the index
  uint32_t list;  // the axis of places
  uint32_t key;   // that of keys
  Gid to;         // its coordinate
  int64_t size;   // of blocks that the list names
  Gid block, at;  // its entry, which is that block of the key
  Map done;
  bool fails;  // something has more of the place than x
} Inverse;

static bool has_list(const Inverse *v, Gid x) {
  return grad_at(v->g, x)->axes & grad_bit(v->list);
}

// ---------------------------------------------------------------- points
static uint64_t in_place(const Inverse *v, uint64_t axes) {
  uint64_t bit = grad_bit(v->list);
  return axes & bit ? (axes & ~bit) | grad_bit(v->key) : axes;
}

// y, where x is the key.
static Gid at_key(Inverse *v, Gid y) {
  Grad *g = v->g;
  uint64_t known;
  GradNode n = *grad_at(g, y);
  if (y == v->x) return v->to;
  if (y == v->block) return v->at;
  if (!has_list(v, y) && !(n.points & grad_bit(v->list))) return y;
  if (map_get(&v->done, y, &known)) return (Gid)known;
  v->fails |= n.code == OP_INDEX || grad_is_made(n.code) ||
              n.code == GRAD_WALK || (n.over & grad_bit(v->list));
  if (v->fails) return y;
  Gid *args = NEWN(g->arena, Gid, n.n + 1);
  for (uint32_t i = 0; i < n.n; i++) args[i] = at_key(v, n.arg[i]);
  n.axes = in_place(v, n.axes);
  n.points = in_place(v, n.points);
  Gid z = grad_put(g, n, args);
  map_put(&v->done, y, z);
  return z;
}

// ---------------------------------------------------------------- lists
// x as `block * size + place % size`, or as a block of one.
static void find_block(Inverse *v) {
  const Grad *g = v->g;
  const GradNode *n = grad_at(g, v->x);
  v->block = v->x, v->size = 1;
  for (uint32_t i = 0; n->code == OP_ADD && i < 2; i++) {
    const GradNode *a = grad_at(g, n->arg[i]), *b = grad_at(g, n->arg[!i]);
    if (a->code != OP_MOD || b->code != OP_MUL) continue;
    const GradNode *size = grad_at(g, a->arg[1]);
    bool second = b->arg[1] == a->arg[1];
    if (grad_at(g, a->arg[0])->code != OP_INDEX || !has_list(v, a->arg[0]) ||
        size->code != OP_CONST || size->attr < 1 ||
        (!second && b->arg[0] != a->arg[1]))
      continue;
    v->block = b->arg[!second], v->size = size->attr;
    return;
  }
}

// y with `which` for each quotient of the place.
static Gid of_block(Inverse *v, Gid y, int64_t size, Gid which) {
  Grad *g = v->g;
  GradNode n = *grad_at(g, y);
  if (!has_list(v, y)) return y;
  bool quotient = n.code == OP_FLOORDIV &&
                  grad_at(g, n.arg[0])->code == OP_INDEX &&
                  grad_at(g, n.arg[1])->code == OP_CONST &&
                  grad_at(g, n.arg[1])->attr == size;
  if (quotient || (size == 1 && n.code == OP_INDEX)) return which;
  v->fails |= n.code == OP_INDEX || n.code == OP_REDUCE || grad_is_made(n.code);
  if (v->fails) return y;
  Gid *args = NEWN(g->arena, Gid, n.n + 1);
  for (uint32_t i = 0; i < n.n; i++)
    args[i] = of_block(v, n.arg[i], size, which);
  n.axes = (n.axes & ~grad_bit(v->list)) | grad_at(g, which)->axes;
  return grad_put(g, n, args);
}

static uint32_t axis_of(const Inverse *v, const char *what, AxisRole role,
                        Dim extent) {
  const char *list = v->g->axes.at[v->list].axis.name;
  list = arena_printf(v->g->m->arena, "%s_%s", list, what);
  return grad_axis(v->g, list, role, extent);
}

static Gid to_number(Grad *g, Gid c) {
  GradNode n = {.code = OP_CAST,
                .dtype = DT_F32,
                .axes = grad_at(g, c)->axes,
                .n = 1};
  return grad_put(g, n, &c);
}

// How often the list of a row has the key, as a load of what a kernel of rows
// makes; 0: that cannot be told.
static Gid times(Inverse *v) {
  Grad *g = v->g;
  DimTab *d = &g->m->dims;
  int64_t size = v->size;
  Dim places = g->axes.at[v->list].axis.extent;
  Dim keys = g->axes.at[v->key].axis.extent;
  if (dim_divisor(d, places) % size) return 0;
  uint32_t entry = axis_of(v, "entry", AX_KEY, dim_ceildiv(d, places, size));
  uint32_t which = axis_of(v, "block", AX_PAR, dim_ceildiv(d, keys, size));
  Gid at = of_block(v, v->block, size, grad_index(g, entry));
  if (v->fails) return 0;
  Gid same = to_number(g, grad_2(g, OP_EQ, at, grad_index(g, which)));
  Gid n = grad_sum_all(g, same, grad_bit(entry));
  bool rows = grad_at(g, n)->axes & ~grad_bit(which);
  GradNode made = {.code = GRAD_MADE,
                   .dtype = DT_F32,
                   .axes = grad_at(g, n)->axes,
                   .attr = rows ? GRAD_TURNED : 0,
                   .hint = "chosen",
                   .n = 1};
  n = grad_put(g, made, &n);
  return grad_moved(g, n, which, v->at);
}

// ---------------------------------------------------------------- stores
// The axis of places of index i of s, or UINT32_MAX: the only axis of keys
// there, and that of nothing else that s is stored at.
static uint32_t list_of(const Grad *g, const GradStore *s, uint32_t i) {
  uint64_t keys = grad_at(g, s->index[i])->axes & grad_role(g, AX_KEY);
  if (!keys || (keys & (keys - 1)) || g->walks.n ||
      !grad_reads_memory(g, s->index[i]))
    return UINT32_MAX;
  for (uint32_t k = 0; k < s->n; k++)
    if (k != i && (grad_at(g, s->index[k])->axes & keys)) return UINT32_MAX;
  uint32_t axis = 0;
  while (!(keys >> axis & 1)) axis++;
  return axis;
}

// The axis of keys that the same index has found before, and how often lists
// have them.
static bool is_known(GradLists *all, Inverse *v, Dim size, Gid *n) {
  for (uint32_t i = 0; i < all->n; i++) {
    const GradAxis *a = &v->g->axes.at[all->at[i].key];
    if (all->at[i].x != v->x || a->axis.extent != size) continue;
    v->key = all->at[i].key, *n = all->at[i].times;
    return true;
  }
  return false;
}

static bool find_keys(GradLists *all, Inverse *v, Gid *n) {
  Grad *g = v->g;
  if (all->n == sizeof all->at / sizeof *all->at) return false;
  Gid domain = g->domain[v->list];
  if (domain) domain = at_key(v, domain);
  if (v->fails || !(*n = times(v))) return false;
  Gid on = grad_2(g, OP_LT, grad_num(g, 0), *n);
  g->domain[v->key] = domain ? grad_2(g, OP_AND, domain, on) : on;
  all->at[all->n].x = v->x;
  all->at[all->n].key = v->key;
  all->at[all->n++].times = *n;
  return true;
}

bool grad_list_keys(Grad *g, GradLists *all, GradStore *s, uint32_t i) {
  Inverse v = {.g = g, .x = s->index[i], .done.arena = g->arena};
  uint32_t axes = g->axes.n;
  Dim size = g->tensors.at[s->tensor].type.size[i];
  Gid n = 0;
  v.list = list_of(g, s, i);
  if (v.list == UINT32_MAX || axes + 3 > MAX_GRAD_AXES) return false;
  bool known = is_known(all, &v, size, &n);
  if (!known) v.key = axis_of(&v, "key", AX_KEY, size);
  v.to = grad_index(g, v.key);
  find_block(&v);
  v.at = grad_2(g, OP_FLOORDIV, v.to, grad_int(g, v.size));
  Gid y = at_key(&v, s->v);
  if (v.fails || (!known && !find_keys(all, &v, &n))) {
    g->axes.n = axes;
    return false;
  }
  s->index[i] = v.to;
  uint64_t points = grad_at(g, y)->axes | grad_at(g, n)->axes;
  uint64_t over = points & ~grad_store_axes(g, s) & ~grad_role(g, AX_VEC);
  s->v = grad_sum(g, grad_2(g, OP_MUL, y, n), over, points);
  return true;
}
