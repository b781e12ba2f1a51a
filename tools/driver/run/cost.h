// What a call has to do at least: operations, visible keys, bytes; and what
// this machine can do.
#ifndef ATTNC_DRIVER_RUN_COST_H
#define ATTNC_DRIVER_RUN_COST_H

#include "tools/driver/driver.h"

typedef struct DrvKeys {
  const char *axis;  // key index
  double pairs;      // points of the key and the parallel indices its
                     // domain looks at
  double visible;    // share of them that the domain holds for
  double touched;    // share that lies in tiles where it holds anywhere
  bool exact;        // counted, not sampled
} DrvKeys;

enum { DRV_MAX_KEYS = 8 };

typedef struct DrvCost {
  double products;   // floating-point operations of dots, over visible
                     // keys: 2 per element product
  double touched;    // the same over tiles of the target's size in which
                     // any pair is visible; products if these do not count
  double updates;    // of recurrent states
  double functions;  // exp, log, tanh and the like
  double bytes;      // every array once
  DType product;     // operand type of the largest dot
  uint32_t nkeys;
  DrvKeys keys[DRV_MAX_KEYS];
} DrvCost;

// The call must have its arrays. tiles: those of the target count.
bool drv_cost(DrvCall *c, const DrvOptions *opt, const Target *target,
              bool tiles, DrvCost *out);

// A key's domain by tiles of rows and keys, where all other coordinates are 0.
// A cell is a tile, or several where there are very many. What a cell is is
// found by trying some of its rows with its keys.
typedef enum DrvCell { DRV_SKIPPED, DRV_PARTIAL, DRV_FULL } DrvCell;
enum { DRV_MAP_CELLS = 48 };  // along an axis, at most

typedef struct DrvMap {
  const char *row, *key;  // names of the indices
  int64_t rows, keys;     // extents
  int64_t cell_rows, cell_keys;
  uint32_t down, across;                        // cells
  uint8_t cell[DRV_MAP_CELLS * DRV_MAP_CELLS];  // DrvCell, row by row
} DrvMap;
// Of each key of the program; returns how many, 0 with a diagnostic if
// something failed.
uint32_t drv_maps(DrvCall *c, const DrvOptions *opt, const Target *target,
                  DrvMap *out, uint32_t max);

// Floating-point operations a second of multiply-adds that touch registers
// only, on n threads, with the instructions of that target for products of t.
double drv_peak(const Target *target, DType t, int threads);
// Bytes a second of a sum over memory that no cache holds.
double drv_bandwidth(int threads);
// OpenBLAS's sgemm, operations a second; 0 if it is not installed.
double drv_sgemm(int threads);

#endif
