// What run, bench, tune and explain share: a call from --dim, --in, --set.
#ifndef ATTNC_ATTNC_INPUTS_H
#define ATTNC_ATTNC_INPUTS_H

#include "tools/attnc/attnc.h"

// Reads the arrays and sets the scalars that the user named. `gens` gets the
// generators given for --in.
bool inputs_given(Session *s, DrvCall *c, DrvGens *gens);
// Makes up the rest (random), or demands that nothing is missing; then the
// outputs.
bool inputs_ready(Session *s, DrvCall *c, const DrvGens *gens, bool random);
// --in d_O=.. for the gradient (--grad).
bool inputs_cotangents(Session *s, DrvCall *backward);
// Both sides of NAME=VALUE. False with a diagnostic that shows `form`.
bool inputs_pair(Session *s, const char *pair, const char *form,
                 const char **name, const char **value);
// "gqa  B=1 Hq=8 ..", for titles.
const char *inputs_title(const DrvCall *c);

// What is launched, and where.
typedef struct Launch {
  DrvCall *call;
  const DrvCode *code;
  struct attn_ctx *rt;
} Launch;
// Seconds of each of n launches; *cpu (or NULL): the least CPU time of one.
// False with a diagnostic.
bool measure(Session *s, Launch l, double *seconds, double *cpu, uint32_t n);
// The number of runs that --runs or half a second allow.
uint32_t measure_runs(const Cli *cli, double first);
double median(double *v, uint32_t n);  // sorts v

#endif
