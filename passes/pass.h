// Passes: IR -> IR. One file, one function, one row of passes.def each.
#ifndef ATTNC_PASSES_PASS_H
#define ATTNC_PASSES_PASS_H

#include "ir/target.h"

#include <stddef.h>

// The values of options.def, by kind.
typedef const char *PassTEXT;
typedef const Target *PassTARGET;
typedef int64_t PassINT;
typedef int64_t PassBITS;
typedef int PassAUTO;
typedef bool PassFLAG;

// target: NULL is "cpu"; passes get that of the module, where it names one, and
// never NULL.
typedef struct PassOpt {
#define OPTION(name, field, kind, value, help) Pass##kind field;
#include "passes/options.def"
} PassOpt;

// True on success (whether or not anything changed); false with diagnostics.
typedef bool PassFn(Ctx *cx, Module *m, const PassOpt *opt);

// In passes.def: the pass takes any level and keeps it.
#define LV_ANY ((Level)(LV_MACH + 1))

#define PASS(name, from, to, doc) PassFn pass_##name;
#include "passes/support/cost.h"
#include "passes/passes.def"

typedef struct PassInfo {
  const char *name;
  Level from, to;  // level the module must have, and has after
  PassFn *run;
  const char *doc;
} PassInfo;

const PassInfo *pass_by_name(const char *name, size_t len);
const PassInfo *pass_list(uint32_t *n);

// The columns of pipeline.def.
typedef enum PassFamily {
  PASS_CPU,
  PASS_SM_80,
  PASS_SM_90A,
  PASS_AMD,
  PASS_FAMILIES
} PassFamily;

// Has the pipeline of these targets the pass?
bool pass_runs_for(const PassInfo *p, PassFamily family);
// What pipeline.def has for a target at the levels `from` .. `to`, as
// "inline,canon,..".
const char *pass_pipeline(Arena *a, const Target *t, Level from, Level to);

// ---- options.c: a row of options.def, or of a program that has more.
typedef enum OptionKind {
  OPTION_TEXT,
  OPTION_TARGET,
  OPTION_INT,
  OPTION_BITS,
  OPTION_AUTO,
  OPTION_FLAG,
  OPTION_CLEAR,  // bool that the option makes false
} OptionKind;

typedef struct PassOption {
  const char *name, *value, *help;  // value: "" if it takes none
  OptionKind kind;
  size_t at;  // offset of the field
} PassOption;

// The fields of PassOpt.
const PassOption *pass_option_list(uint32_t *n);
// Sets what "--name" or "--name=value" says in the struct at `base`; false if
// no row does.
bool pass_option_parse(const PassOption *rows, uint32_t n, void *base,
                       const char *arg);
// Appends " --name=value" for all that are given.
void pass_option_print(const PassOpt *o, Buf *out);

typedef struct PipelineOpt {
  PassOpt pass;
  bool verify_each;        // ir_verify after each pass
  bool print_after_all;    // appends each module's text to *log
  bool time;               // appends a line per pass to *log
  const char *dump_dir;    // NN-name.tir per pass, or NULL
  const char *reproducer;  // on failure: file with input IR and pipeline
  Buf *log;
} PipelineOpt;

// The line "# attn-opt --passes=.. --target=..": in front of a module's text it
// has attn-opt run these passes with these options.
void pass_print_options(const PipelineOpt *opt, const char *names, Buf *out);

// Runs "a,b,c". False with diagnostics; the module is then unusable.
bool pass_run(Ctx *cx, Module *m, const char *names, const PipelineOpt *opt);

#endif
