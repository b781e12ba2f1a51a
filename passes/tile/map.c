// Tiles of programs without products of matrices or keys.
#include "passes/support/cost.h"
#include "passes/tile/tile.h"

// Rows of vectors that are not multiplied by others nor added up over keys: a
// piece for each thread, of what is stored or summed up along a row.
typedef struct Rows {
  const Func *f;
  bool map;
  int64_t elements;  // of a row
} Rows;

static void note_work(void *data, Op *op) {
  Rows *r = data;
  bool inner = op->code == OP_DOT && lane_is_inner(r->f, op);
  r->map &= inner || (op->code != OP_DOT && op->code != OP_KREDUCE);
  if (!inner && op->code != OP_STORE) return;
  int64_t n = lane_elements(r->f, ir_type(r->f, op->args[!inner]));
  if (n > r->elements) r->elements = n;
}

int64_t tile_map_rows(const Func *f) {
  int64_t rows = COST_MAP_LEAST_ROWS;
  Rows r = {.f = f, .map = true, .elements = 1};
  ir_walk(f->body, note_work, &r);
  while (rows < COST_MAP_MOST_ROWS &&
         2 * rows * r.elements <= COST_MAP_ELEMENTS)
    rows *= 2;
  return r.map && r.elements > 1 ? rows : 0;
}
