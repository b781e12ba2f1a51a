// Rings of shared tiles: what a producer warp would load for a program in value
// form. Used by stage (is it worth it?) and warps (do it).
#ifndef ATTNC_PASSES_HOPPER_RINGS_H
#define ATTNC_PASSES_HOPPER_RINGS_H

#include "ir/target.h"
#include "passes/hopper/drain.h"
#include "passes/pass.h"
#include "passes/support/loops.h"

enum { MAX_RINGS = 16, MAX_FACTS = 32, MAX_MAKERS = 3 };

// sfills of one tensor with one box share a ring, so that copies of a loop's
// body go on where the last one stopped.
typedef struct Ring {
  const Op *site;   // one of its sfills or sputs; NULL: words for each task
  bool raw;         // tiles that a maker reads
  bool made;        // tiles that it computes: sputs
  bool gathered;    // all groups put their parts of tiles that all give back
  uint32_t maker;   // then: which one
  bool own;         // slots for each group
  uint32_t fills;   // most fills in one body of a loop
  bool streams;     // filled in a loop that is not over tasks
  bool told;        // rows come one by one: a group copies them
  bool strip;       // one row; or it rides
  bool rides;       // a block that adds to the product of the tile filled in
                    // front of it, much larger: both go back at once
  int with;         // ring of tiles whose barrier tells that it is there, -1
  int visits;       // ring whose tiles these fills find again, in order, -1
  bool kept;        // some ring does: they give the tiles back
  uint32_t panels;  // with a barrier each: products begin with the first that
                    // has come; 1: tiles are there at once
  uint32_t joined;  // of rows that are told: so many panels have one
  bool cuts;        // is multiplied by such panels
  uint32_t stages;
  uint32_t count;  // the ring that has been filled as often at any time
  Value smem, full, empty;  // the buffers (warps)
  Value cut;                // its panels as tiles; gathered: groups' parts
} Ring;

typedef struct Rings {
  Func *f;
  const Region *body;  // without roles
  Arena *arena;
  const Target *target;
  uint32_t groups, nrings;
  uint32_t occupancy;  // CTAs that a multiprocessor is to hold
  Ring rings[MAX_RINGS + 2];
  int claims;             // ring that has the tasks claimed, -1: none
  int facts;              // ring of what the producer knows of a task, -1
  Value fact[MAX_FACTS];  // in the order of the program
  uint32_t nfacts;
  Value kept[MAX_FACTS];  // numbers of the launch that each task reads again
  uint32_t nkept;
  // Of fills, by value, what is known of the function as it is planned: are
  // they held (+1: no, +2: yes); the number of their ring + 1.
  uint8_t *held, *ring_of;
  uint32_t nknown;  // values of these
  bool *spare;      // by value: consumers do without, NULL: none
  const Op *early;  // the fill before which the next task is claimed
  bool drains;      // stores go through shared tiles
  Type drain;       // a group's
  bool whole;       // not in parts of its columns
  Type piece;       // half of its rows, or a panel of its columns
  uint32_t pieces;  // of them, which tiles of that type take in turn; 1: none
  bool split;       // all that is stored goes in pieces
  int lent;         // ring whose slot serves as that tile, -1: own room
  bool shares;      // and each group's, panels of it behind the other's
  bool *wanted;     // by value: the producer needs it
  bool *grouped;    // by value: depends on group()
  uint32_t makers;  // groups that compute tiles of copied ones (rings_made.c)
  Value *source;    // by value, a sput: the tensor that it is made of, or 0
  uint32_t *maker;  // by value, such a sput: whose it is
  bool *making[MAX_MAKERS];  // by value: the maker needs it
  bool *only;                // makers do, and nobody else
  int looked;                // the maker whose values are looked for, or -1
  bool mixed;                // tiles of one ring are read by it and by others
  bool apart;                // groups take what `own` gives them
  bool brief;        // and these are read from memory: tasks may be short
  const Op *behind;  // then: `skip` of what groups leave unread at last
  int turns;         // and the ring of the groups' own tiles, -1: none
  bool mends;        // groups change a tile that they share
  bool lists;        // rows are told one by one: a group is the producer
  bool widens;       // and some are of 8 bits, which it widens on their way
  uint32_t loaders;  // groups of 128 threads that are the producer; lists
  int64_t left;      // bytes, where rings have the fewest stages
  bool changed, fails;
} Rings;

// Rows that are told one by one (rings_told.c): are there such? Does the
// producer make v, an index of them? Marks what nobody else needs.
bool hop_rings_has_told(const Func *f);
bool hop_rings_tells(const Rings *w, Value v);
void hop_rings_spare_told(Rings *w);
// Finds what the producer does, and of what groups have each their own
// (rings_wanted.c).
void hop_rings_analyse(Rings *w);
// What maker i does; how many there are, and what they have for themselves
// (rings_made.c).
void hop_rings_want_made(Rings *w, uint32_t i);
void hop_rings_making(Rings *w);
// Is op a sput of the maker's? Or any that a ring's tile begins with?
bool hop_rings_made(const Rings *w, const Op *op);
bool hop_rings_fills(const Rings *w, const Op *op);
// Is op a loop over tasks? What is loaded a task ahead does not make it
// another.
bool hop_rings_is_task_loop(const Func *f, const Op *op);
// Plans what the producer says of each (rings_tasks.c).
void hop_rings_tasks(Rings *w);
// Finds what is kept for that loop over tasks (rings_scalars.c).
void hop_rings_keep(Rings *w, const Op *loop);
// False if the tiles wanted depend on fragments, or the rings do not fit into
// shared memory.
bool hop_rings_plan(Rings *w, Func *f, const Target *t);
// Makes the buffers and barriers of a ring; shared tiles for stores
// (rings_make.c).
void hop_rings_make(Rings *w, Builder *b, Ring *r);
Value hop_rings_drain_tile(const Rings *w, Builder *b);
Value hop_rings_drain_pieces(const Rings *w, Builder *b, Value tile);
// Bytes of tiles that one group makes for all.
int64_t hop_rings_for_all(const Rings *w, const Region *r);
// The tile in slot `at`; bytes of a tile and of the strips that come with it.
Value hop_rings_slot(const Rings *w, Builder *b, const Ring *ring, Value at);
int64_t hop_rings_bytes(const Rings *w, const Op *fill);
// Number i of the panels of the tile in slot `at`; the panel of that number.
Value hop_rings_panel(Builder *b, const Ring *ring, Value at, uint32_t i);
// Does the barrier of panel i tell that it is there, and those in front of it
// that have none?
bool hop_rings_has_barrier(const Ring *ring, uint32_t i);
Value hop_rings_panel_of(Builder *b, Value panels, Value at);
// Without a producer the next task is as many behind as there are CTAs.
void hop_rings_take_turns(Func *f, Region *r);
// Finds rings whose tiles products read panel by panel (rings_panels.c).
void hop_rings_panels(Rings *w);
// Registers of a thread that the loops of r carry in fragments.
// Registers of a thread that one product adds to.
int64_t hop_rings_added(const Func *f, const Region *r);
int64_t hop_rings_carried(const Func *f, const Region *r);
// The producer needs a result of op.
bool hop_rings_wanted(const Rings *w, const Op *op);
int hop_rings_of(const Rings *w, const Op *sfill);
// The first of the operands that consumers need, *end behind the last one: of
// `own` one is enough.
uint32_t hop_rings_own(const Rings *w, const Op *op, uint32_t *end);
// No fill behind this one in its region has the same count.
bool hop_rings_last(const Rings *w, const Op *sfill);
// The first panels of a slot are a tile with fewer columns.
bool hop_rings_holds(const Type *slot, const Type *tile);
// The last op of its region that reads v, products until they are waited for.
const Op *hop_rings_last_read(const Rings *w, const Op *def, Value v);
bool hop_rings_in_tasks(const Rings *w, const Op *site);
bool hop_rings_streams(const Rings *w, const Op *fill);

// ---- rings_lend.c
// The largest tile that r stores as a box.
void hop_rings_find_drains(Rings *w, const Region *r);
// Are there tiles of half of its rows?
void hop_rings_find_halves(Rings *w);
// Do the stores of a region have several times the room that is for one? How
// many bytes that are, for each group, if pieces are stored.
void hop_rings_find_pieces(Rings *w, int64_t room);
int64_t hop_rings_drain_bytes(const Rings *w);
// A ring whose slot serves stores, or -1; for parts of what is stored, too.
int hop_rings_lender(const Rings *w);
int hop_rings_lender_of_parts(Rings *w);
// One that all groups read, and which has room for what each stores; or -1.
int hop_rings_lender_of_all(const Rings *w);

// The store goes through w->drain, in as many parts as that takes.
bool hop_rings_drains(const Rings *w, const Drain *d);
// It goes through one of w->pieces.
bool hop_rings_drains_piece(const Rings *w, const Drain *d);

#endif
