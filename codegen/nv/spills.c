// Where in a kernel's machine code registers are spilled. ptxas tells bytes of
// the whole kernel; the code tells which of its loops stores and loads them.
// Tiles on a mask's border have loops of their own, which few steps go through
// (pass peel): what is spilled there, or outside of all loops over keys, costs
// less than the smaller tiles without it would.
//   mach      for .. masks   for ..       for .. masks
//   machine   loop 0         loop 1       loop 2
//   spilled   88 bytes       0            96              184 are rare
// Loops that have as many turns in every launch, as in a phase that makes
// chunks of steps, are none over keys: what is outside of them is the work.
// The k-th loop with products is that of the text; where their numbers differ,
// or the bytes are not what ptxas says, nothing is rare.
#include "codegen/cg.h"
#include "codegen/codegen.h"
#include "ir/layout.h"

#include <elf.h>
#include <string.h>

// ---------------------------------------------------------------- text
typedef struct TextLoop {
  const Op *op;
  uint32_t products, ops;
  bool rare;
} TextLoop;

typedef Vec(TextLoop) TextLoops;

typedef struct Walk {
  Arena *a;
  TextLoops *all;
  TextLoop *at;
} Walk;

static void count(void *data, Op *op) {
  TextLoop *l = data;
  l->products += op->code == OP_MMA || op->code == OP_WGMMA;
  l->ops++;
}

// The innermost loops with products, in order.
static bool collect(Walk *w, Region *r) {
  bool any = false;
  for (Op *op = r->first; op; op = op->next) {
    bool inner = false;
    for (uint32_t i = 0; i < op->nregions; i++)
      inner |= collect(w, op->regions[i]);
    TextLoop l = {.op = op};
    if (op->code == OP_FOR) ir_walk(op->regions[0], count, &l);
    if (op->code == OP_FOR && l.products && !inner) vec_push(w->a, w->all, l);
    any |= inner || (op->code == OP_FOR && l.products);
  }
  return any;
}

// Is a bound read of memory, as those of masks by tables are, or a parameter's,
// as a window's? Then most tiles may be cut.
typedef struct Told {
  const Func *f;
  bool *seen;  // by value
  Value tile;  // whose numbers another role writes
  bool yes;
} Told;

static bool is_read(Told *t, Value v);

static void see_told(void *data, Op *op) {
  Told *t = data;
  Value tile = t->tile;
  if (op->code == OP_SSET && op->args[0] == tile)
    t->yes |= is_read(t, op->args[2]);
  t->tile = tile;
}

static bool is_read(Told *t, Value v) {
  Op *op = ir_def(t->f, v);
  for (uint32_t i = 0; i < t->f->params.n; i++)
    t->yes |= t->f->params.at[i].v == v;
  if (!op || t->seen[v]) return t->yes;
  t->seen[v] = true;
  t->yes |= op->code == OP_GLOAD;
  t->tile = op->code == OP_SGET ? op->args[0] : 0;
  if (t->tile) ir_walk(t->f->body, see_told, t);
  for (uint32_t i = 0; i < op->nregions && op->code == OP_IF; i++)
    for (uint32_t k = 0; k < op->nres; k++)
      if (op->res[k] == v) is_read(t, op->regions[i]->last->args[k]);
  for (uint32_t i = 0; i < op->nargs && !op->nregions; i++)
    is_read(t, op->args[i]);
  return t->yes;
}

// Does b go on where a, the loop in front of it, stopped?
static bool goes_on(const TextLoop *a, const TextLoop *b) {
  bool back = ir_attr_i(a->op, AT_REVERSE, 0) != 0;
  bool meet = back ? a->op->args[0] == b->op->args[1]
                   : a->op->args[1] == b->op->args[0];
  return meet && a->op->parent == b->op->parent && a->products == b->products;
}

// Of loops that go on with each other those that do more masks.
static void find_rare(const Func *f, Arena *a, TextLoops *all) {
  for (uint32_t i = 0, n; i < all->n; i += n) {
    uint32_t least = all->at[i].ops;
    Told told = {.f = f, .seen = NEWN(a, bool, f->values.n)};
    for (n = 1; i + n < all->n; n++) {
      if (!goes_on(&all->at[i + n - 1], &all->at[i + n])) break;
      if (all->at[i + n].ops < least) least = all->at[i + n].ops;
    }
    for (uint32_t k = 0; k < 2 * n; k++)
      is_read(&told, all->at[i + k / 2].op->args[k % 2]);
    for (uint32_t k = 0; k < n; k++)
      all->at[i + k].rare = all->at[i + k].ops > least && !told.yes;
  }
}

static bool is_of_tasks(const Func *f, const Op *loop) {
  const Op *first = ir_def(f, loop->args[0]);
  return first && first->code == OP_CTA;
}

// As many turns in every launch, as sums of a chunk's steps have.
static bool is_short(const Func *f, const Op *loop) {
  double from, to;
  return ir_const_value(f, loop->args[0], &from) &&
         ir_const_value(f, loop->args[1], &to);
}

// A task goes through what is outside of its loops over keys once, if these are
// in no other loop but that over tasks.
static bool is_once(const Func *f, const TextLoops *all) {
  bool keys = false;
  for (uint32_t i = 0; i < all->n; i++) {
    keys |= !is_short(f, all->at[i].op);
    for (const Region *r = all->at[i].op->parent; r && r->parent;
         r = r->parent->parent)
      if (r->parent->code == OP_FOR && !is_of_tasks(f, r->parent)) return false;
  }
  return keys;
}

// ---------------------------------------------------------------- machine code
// An instruction of sm_80 and sm_90 has 16 bytes: 12 bits of operation, 4 of
// predicate, and a branch's distance from its end in 4 bytes at bit 16, the
// rest of it at bit 34, times 1024. Found by what nvdisasm -hex shows.
enum {
  SASS_BYTES = 16,
  SASS_ALWAYS = 7,
  SASS_BRA = 0x947,
  SASS_EXIT = 0x94d,
  SASS_RET = 0x950,
  SASS_STL = 0x387,
  SASS_LDL = 0x983,
  SASS_HMMA = 0x23c,
  SASS_HGMMA = 0x9f0,
};

typedef struct Block {
  uint32_t from, to;  // instructions
  uint32_t next[2];   // blocks; UINT32_MAX: none
  uint32_t idom, post;
  uint32_t spilled;
  uint32_t loop;  // the innermost with products + 1, or 0
  bool products, in;
} Block;

typedef struct Code {
  Arena *a;
  const uint64_t *at;  // two words each
  uint32_t n, nblocks;
  uint32_t *block;  // of each instruction
  Block *blocks;
  uint32_t *order, reached;  // by post order
} Code;

static uint32_t op_of(const Code *c, uint32_t i) {
  return (uint32_t)c->at[2 * i] & 0xfff;
}

static bool is_always(const Code *c, uint32_t i) {
  return ((c->at[2 * i] >> 12) & 15) == SASS_ALWAYS;
}

// UINT32_MAX: outside.
static uint32_t target_of(const Code *c, uint32_t i) {
  uint64_t low = c->at[2 * i], high = c->at[2 * i + 1];
  int64_t far = (int64_t)((low >> 34) | (high << 30)) << 16 >> 16;
  int64_t to = ((int64_t)i + 1) * SASS_BYTES + far * 1024 +
               (int64_t)((low >> 16) & 255) * 4;
  bool in = to >= 0 && to % SASS_BYTES == 0 && to / SASS_BYTES < c->n;
  return in ? (uint32_t)(to / SASS_BYTES) : UINT32_MAX;
}

static bool ends(const Code *c, uint32_t i) {
  uint32_t op = op_of(c, i);
  return op == SASS_BRA || op == SASS_EXIT || op == SASS_RET;
}

// Sizes are 8 and 16 bits, unsigned and signed, then 4, 8 and 16 bytes.
static uint32_t spilled_by(const Code *c, uint32_t i) {
  uint32_t op = op_of(c, i), size = (c->at[2 * i + 1] >> 9) & 7;
  if (op != SASS_STL && op != SASS_LDL) return 0;
  return size < 4 ? 1u << size / 2 : 4u << (size - 4);
}

static bool multiplies(const Code *c, uint32_t i) {
  return op_of(c, i) == SASS_HMMA || op_of(c, i) == SASS_HGMMA;
}

static bool make_blocks(Code *c) {
  bool *first = NEWN(c->a, bool, c->n + 1);
  first[0] = true;
  for (uint32_t i = 0; i < c->n; i++) {
    if (!ends(c, i)) continue;
    first[i + 1] = true;
    uint32_t to = op_of(c, i) == SASS_BRA ? target_of(c, i) : 0;
    if (to == UINT32_MAX) return false;
    first[to] = true;
  }
  c->block = NEWN(c->a, uint32_t, c->n + 1);
  for (uint32_t i = 0; i < c->n; i++)
    c->block[i] = (c->nblocks += first[i]) - 1;
  c->blocks = NEWN(c->a, Block, c->nblocks + 1);
  for (uint32_t i = 0; i < c->n; i++) {
    Block *b = &c->blocks[c->block[i]];
    if (first[i]) *b = (Block){.from = i, .idom = UINT32_MAX};
    b->to = i + 1;
    b->spilled += spilled_by(c, i);
    b->products |= multiplies(c, i);
  }
  return true;
}

static void link_blocks(Code *c) {
  for (uint32_t i = 0; i < c->nblocks; i++) {
    Block *b = &c->blocks[i];
    uint32_t last = b->to - 1;
    bool falls = !ends(c, last) || !is_always(c, last);
    b->next[0] = falls && b->to < c->n ? i + 1 : UINT32_MAX;
    b->next[1] =
        op_of(c, last) == SASS_BRA ? c->block[target_of(c, last)] : UINT32_MAX;
  }
}

// ---------------------------------------------------------------- loops
// Depth first, without recursion; blocks get their place in post order.
static void number(Code *c) {
  uint32_t *stack = NEWN(c->a, uint32_t, c->nblocks + 1), n = 0;
  uint32_t *taken = NEWN(c->a, uint32_t, c->nblocks + 1);
  c->order = NEWN(c->a, uint32_t, c->nblocks + 1);
  stack[n++] = 0;
  c->blocks[0].in = true;
  while (n) {
    uint32_t at = stack[n - 1];
    Block *b = &c->blocks[at];
    if (taken[at] == 2) {
      b->post = c->reached;
      c->order[c->reached++] = at;
      n--;
      continue;
    }
    uint32_t to = b->next[taken[at]++];
    if (to == UINT32_MAX || c->blocks[to].in) continue;
    c->blocks[to].in = true;
    stack[n++] = to;
  }
}

static uint32_t common(const Code *c, uint32_t x, uint32_t y) {
  while (x != y) {
    while (c->blocks[x].post < c->blocks[y].post) x = c->blocks[x].idom;
    while (c->blocks[y].post < c->blocks[x].post) y = c->blocks[y].idom;
  }
  return x;
}

// Dominators: Cooper, Harvey, Kennedy, "A simple, fast dominance algorithm".
static void dominate(Code *c) {
  number(c);
  c->blocks[0].idom = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t k = c->reached; k-- > 0;) {
      const Block *b = &c->blocks[c->order[k]];
      for (uint32_t e = 0; e < 2; e++) {
        uint32_t to = b->next[e];
        if (!to || to == UINT32_MAX || b->idom == UINT32_MAX) continue;
        uint32_t was = c->blocks[to].idom;
        uint32_t now =
            was == UINT32_MAX ? c->order[k] : common(c, was, c->order[k]);
        changed |= was != now;
        c->blocks[to].idom = now;
      }
    }
  }
}

static bool dominates(const Code *c, uint32_t x, uint32_t y) {
  while (y != x && y) y = c->blocks[y].idom;
  return x == y;
}

// Which blocks go to block `to`, in `body` already or not: they are, too.
static bool grow(const Code *c, bool *body, uint32_t head) {
  bool any = false;
  for (uint32_t i = 0; i < c->nblocks; i++) {
    const Block *b = &c->blocks[i];
    if (body[i] || !b->in) continue;
    for (uint32_t e = 0; e < 2; e++)
      body[i] |=
          b->next[e] != UINT32_MAX && b->next[e] != head && body[b->next[e]];
    any |= body[i];
  }
  return any;
}

// The loop whose head is block `head`; false: there is none.
static bool body_of(const Code *c, uint32_t head, bool *body) {
  bool any = false;
  memset(body, 0, c->nblocks);
  for (uint32_t i = 0; i < c->nblocks; i++) {
    const Block *b = &c->blocks[i];
    for (uint32_t e = 0; e < 2 && b->in; e++)
      if (b->next[e] == head && dominates(c, head, i)) any = body[i] = true;
  }
  while (any && grow(c, body, head)) {}
  body[head] |= any;
  return any;
}

static bool has_products(const Code *c, const bool *body) {
  for (uint32_t i = 0; i < c->nblocks; i++)
    if (body[i] && c->blocks[i].products) return true;
  return false;
}

static bool has_loop(const Code *c, const bool *body) {
  for (uint32_t i = 0; i < c->nblocks; i++)
    if (body[i] && c->blocks[i].loop) return true;
  return false;
}

// Inner loops have later heads: from the last head to the first. Numbers them
// from the last, too.
static uint32_t find_loops(Code *c) {
  uint32_t n = 0;
  bool *body = NEWN(c->a, bool, c->nblocks + 1);
  for (uint32_t h = c->nblocks; h-- > 0;) {
    if (!c->blocks[h].in || !body_of(c, h, body) || !has_products(c, body) ||
        has_loop(c, body))
      continue;
    n++;
    for (uint32_t i = 0; i < c->nblocks; i++)
      if (body[i]) c->blocks[i].loop = n;
  }
  return n;
}

// ---------------------------------------------------------------- cubin
// The instructions of a kernel.
static bool find_code(CgBytes cubin, const char *symbol, Code *c) {
  const char *base = cubin.at;
  Elf64_Ehdr head;
  if (cubin.n < sizeof head || memcmp(base, ELFMAG, SELFMAG)) return false;
  memcpy(&head, base, sizeof head);
  const Elf64_Shdr *sec = (const void *)(base + head.e_shoff);
  size_t most = sizeof *sec * head.e_shnum;
  if (head.e_shoff % 8 || head.e_shoff + most > cubin.n ||
      head.e_shstrndx >= head.e_shnum)
    return false;
  const char *names = base + sec[head.e_shstrndx].sh_offset;
  for (uint32_t i = 0; i < head.e_shnum; i++) {
    const char *name = names + sec[i].sh_name;
    if (strncmp(name, ".text.", 6) || strcmp(name + 6, symbol)) continue;
    if (sec[i].sh_offset + sec[i].sh_size > cubin.n || sec[i].sh_offset % 8)
      return false;
    c->at = (const void *)(base + sec[i].sh_offset);
    c->n = (uint32_t)(sec[i].sh_size / SASS_BYTES);
    return c->n > 0;
  }
  return false;
}

uint32_t cg_rare_spills(Ctx *cx, const CgKernelRecord *k, CgBytes cubin) {
  TextLoops text = {0};
  Code c = {.a = &cx->session};
  Walk w = {.a = c.a, .all = &text};
  collect(&w, k->func->body);
  find_rare(k->func, c.a, &text);
  bool any = is_once(k->func, &text);
  for (uint32_t i = 0; i < text.n; i++) any |= text.at[i].rare;
  if (!any || !k->spill_bytes || !find_code(cubin, k->symbol, &c) ||
      !make_blocks(&c))
    return 0;
  link_blocks(&c);
  dominate(&c);
  if (find_loops(&c) != text.n) return 0;
  uint32_t all = 0, rare = 0;
  for (uint32_t i = 0; i < c.nblocks; i++) {
    const Block *b = &c.blocks[i];
    all += b->spilled;
    if (!b->loop || text.at[text.n - b->loop].rare) rare += b->spilled;
  }
  return all == k->spill_bytes ? rare : 0;
}
