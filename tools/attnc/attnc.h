// attnc, the command line: options, one file per command, one session each.
// The compiler itself is tools/driver/.
//
// Ownership: a Cli lives as long as main; what a command makes lives in its
// session's arenas.
#ifndef ATTNC_ATTNC_H
#define ATTNC_ATTNC_H

#include "ir/core/watch.h"
#include "tools/driver/driver.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <sys/resource.h>

enum {
  EXIT_OK,
  EXIT_DIAG,
  EXIT_USAGE,
  EXIT_ENV,
  EXIT_INTERNAL = 70,
};

typedef Vec(const char *) Strings;

typedef struct Cli Cli;
typedef int CommandFn(Cli *cli);

typedef struct Command {
  const char *name;
  char letter;        // in options.def
  uint32_t min, max;  // inputs
  const char *usage, *doc;
  CommandFn *run;
} Command;

// The values of options.def, by kind.
typedef bool OptFLAG;
typedef const char *OptSTR;
typedef const char *OptCHOICE;  // NULL: not given
typedef const char *OptMAYBE;   // NULL: not given; "": without a value
typedef int64_t OptINT;         // 0: not given
typedef double OptFLOAT;        // 0: not given
typedef Strings OptLIST;

struct Cli {
  Arena arena;
  const Command *cmd;
  Strings inputs;
#define OPT(name, alias, field, kind, value, commands, help) Opt##kind field;
#include "tools/attnc/options.def"
};

// ---- options.c
const Command *command_list(uint32_t *n);
const Command *command_by_name(const char *name);
// False: a usage error, already printed.
bool cli_parse(Cli *cli, int argc, char **argv);
void cli_help(const Cli *cli, FILE *f);
// manual.c: what --print asks for. False if it asks for nothing.
bool cli_manual(const Cli *cli, FILE *f);
// Prints "attnc: <text>" and the hint to use --help; returns EXIT_USAGE.
int usage_error(const Cli *cli, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

// ---- session.c
typedef struct Limit {
  pthread_t thread;
  bool on, done;
  int fd;              // of /proc/self/statm
  int64_t had;         // bytes that no compilation took
  int64_t left;        // bytes that there were when the last one ended
  struct rlimit data;  // of the process, without a compilation
} Limit;

typedef struct Session {
  Cli *cli;
  Ctx cx;
  Buf log;            // what the passes print: modules, times
  DiagStyle style;    // of diagnostics for people
  jmp_buf no_memory;  // where arenas go when memory runs out
  ArenaPool pool;     // of all arenas: --max-memory
  Watch watch;        // what limit.c looks at
  Limit limit;
} Session;

// Runs body in a session of its own: prints its diagnostics, turns them and
// running out of memory into an exit code, frees everything.
typedef int SessionFn(Session *s, void *data);
int session_run(Cli *cli, SessionFn *body, void *data);

// The diagnostics of cx, to standard error.
void session_print(const Session *s, Ctx *cx);
// Reads a file named by the user; "-" is standard input.
Source *session_read(Session *s, const char *path);
// Reads, parses and checks. NULL with diagnostics.
Unit *session_unit(Session *s, const char *path);
// The program of --fn, or the only one. NULL with a diagnostic.
Decl *session_program(Session *s, const Unit *unit);
// The programs of --fn, or all.
uint32_t session_programs(Session *s, const Unit *unit, Decl **out,
                          uint32_t max);
// Calls fn for each of them; false where it does, or where there is none.
typedef bool SessionProgram(Session *s, const Unit *u, Decl *prog, void *data);
bool session_each(Session *s, SessionProgram *fn, void *data);
// To a file, or standard output if path is NULL or "-".
bool session_write(Session *s, const char *path, const void *bytes, size_t n);
bool session_put(Session *s, const char *path, const Buf *b);
// Remarks, logs of passes: to standard error.
void session_remarks(Session *s);
// The stem of a path: "a/b.attn" -> "b".
const char *path_stem(Arena *a, const char *path);

// What all commands that compile share.
bool session_options(Session *s, DrvOptions *out);

// ---- limit.c: ends the process where a compilation takes too long or too much.
// False: no thread could be made for it.
bool limit_start(Session *s);
void limit_end(Session *s);
// MiB.
int64_t limit_memory(const Cli *cli);
// Prints which limit was met at what.
void limit_tell(const Session *s, DiagId id);

// ---- progress.c: one line on standard error for what takes long. Nothing if
// it is not a terminal, or with --quiet.
typedef struct Progress {
  bool on;
  int64_t start, shown;  // ns
  const char *what;
} Progress;

Progress progress_start(const Cli *cli, const char *what);
void progress_at(Progress *p, int64_t done, int64_t of, const char *detail);
void progress_end(Progress *p);
// A Progress as a DrvWatch's function.
void progress_watch(void *progress, int64_t done, int64_t of);
int64_t now_ns(void);

// The same for what does not return in time: elapsed seconds, from a thread of
// its own. NULL, which all take, where nothing is shown.
typedef struct Busy Busy;
Busy *busy_start(const Cli *cli, const char *what);
// What it is at, from now on.
void busy_say(Busy *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
// A Busy as a DrvSteps's function.
void busy_step(void *busy, const char *what, uint32_t done, uint32_t of);
void busy_hide(Busy *b);  // before other lines are printed
void busy_end(Busy *b);

// ---- one file each
#define COMMAND(name, letter, min, max, usage, doc) CommandFn command_##name;
#include "tools/attnc/commands.def"

#endif
