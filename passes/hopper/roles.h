// One role's copy of a program (warp_specialize.c): its values, and how far it
// is in each ring.
#ifndef ATTNC_PASSES_HOPPER_ROLES_H
#define ATTNC_PASSES_HOPPER_ROLES_H

#include "passes/hopper/rings.h"
#include "passes/support/wide_rows.h"

// fills[i] counts those of ring i so far.
typedef struct Role {
  Rings *w;
  bool producer, maker;  // neither: consumers
  uint32_t number;       // makers: which one
  const Op *awaited;     // maker: the tile whose slot is free
  Value group;           // consumers
  Value tasks;           // before this one, where groups take turns
  Value block;           // of the tile's rows that the group has in this task
  Value drain;           // consumers: shared tiles for stores, or 0
  Value lent;            // slot of ring w->lent that the group has, or 0
  bool drained;
  Value pieces;   // of that tile, or 0
  uint32_t turn;  // how many have been stored since all were free
  ValueMap map;
  Value fills[MAX_RINGS + 2];
  uint32_t known;   // facts of this task that have been handed over
  uint32_t filled;  // the group whose tile the producer fills
} Role;

Value hop_role_value(const Role *r, Value v);

// The slot of ring k's next fill within its stages, and the parity of the
// ring's turn.
typedef struct Turn {
  Value slot, parity;
} Turn;

Turn hop_role_turn(Role *r, Builder *b, uint32_t k);
// Behind a fill of ring k.
void hop_role_filled(Role *r, Builder *b, uint32_t k, const Op *fill);
void hop_role_wait(Builder *b, Value bar, Value slot, Value parity);
void hop_role_arrive(Builder *b, Value bar, Value slot, const IrAttr *each);
void hop_role_stores_done(Builder *b);

// Turns. The last rows of a tile mostly have the most keys: groups that are on
// their own take blocks of rows in turn. The block of a group in the task with
// fill n of ring w->turns; a task begins.
Value hop_role_block(const Role *r, Builder *b, Value n);
void hop_role_take_turn(Role *r, Builder *b);
// Slot `at` of a block's or a group's stages.
Value hop_role_slot(Builder *b, const Ring *ring, Value block, Value at);
// The barrier that tells that the tile of `block` in slot `at` is there: one of
// the group that reads it in this task, which so sees each of its phases. A
// block's would have phases that the group does not see, and a parity does not
// tell a phase from the one two before.
Value hop_role_barrier(const Role *r, Builder *b, const Ring *ring, Value at,
                       int64_t block);

// The maker (roles_make.c). The next tile that is made behind op, or op: all
// that was read for the tile has become it by then.
const Op *hop_role_next_made(const Role *r, const Op *op);
// In front of what a tile is read for: between reads and stores of words there
// is then nothing that keeps them all in registers.
void hop_role_await_slot(Role *r, Builder *b, const Op *put);
// Is it a tile that this role makes?
bool hop_role_makes(const Role *r, const Op *op);
void hop_role_make(Role *r, Builder *b, const Op *op);
// Puts the group's part of a tile of all groups.
void hop_role_gather(Role *r, Builder *b, const Op *op);
// Is op, which a ring's tile begins with, one that this role reads?
bool hop_role_reads(const Role *r, const Op *op);

// Rows that are told one by one (roles_told.c): copies a tile to that slot,
// panel by panel; args are a copy's, without the tile.
void hop_role_copy_told(const Role *r, Builder *b, const Op *fill, Value at,
                        Value *args);
// Of rows at these indices so many bytes are read a step later (load_ahead).
void hop_role_soon(Builder *b, Value tensor, const Value *at, uint32_t n,
                   int64_t bytes);
// 8-bit rows, which it widens (roles_widen.c): asks for the first panels; puts
// all where it is that tile's turn.
WideRows hop_role_ask(const Role *r, Builder *b, const Op *fill,
                      const Value *args);
void hop_role_widen(const Role *r, WideRows *x, Turn t);
// In front of the product of panel i: of those that a fence serves the first
// waits for all.
void hop_role_await_told(Builder *b, const Ring *ring, Value slot, Value parity,
                         uint32_t i);
// The task that one of the producer's threads has claimed, as all read it.
Value hop_role_claimed(Role *r, Builder *b);

// Stores of consumers through shared tiles (roles_store.c).
bool hop_role_can_drain(const Role *r, const Op *op, Drain *d);
// It, or something in it.
bool hop_role_has_drain(const Role *r, const Op *op);
void hop_role_drain(Role *r, Builder *b, const Drain *d);

#endif
