// attn-opt: IR text in, passes, IR text out. Every module it reads or writes
// is checked to survive printing and parsing.
#include "passes/pass.h"

#include "ir/core/outfile.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_OK, EXIT_DIAG, EXIT_USAGE, EXIT_INTERNAL = 70 };

typedef struct Options {
  char **args;  // of the command line
  int nargs;
  const char *input, *output, *passes, *pipeline;
  bool roundtrip, split, help, list, remarks;
  PipelineOpt run;
} Options;

// ---------------------------------------------------------------- options
#define AT(field) offsetof(Options, field)
static const PassOption own[] = {
    {"passes", "a,b", "run these passes (--print-passes lists them)",
     OPTION_TEXT, AT(passes)},
    {"pipeline", "LEVEL",
     "run the target's pipeline from the module's level to this", OPTION_TEXT,
     AT(pipeline)},
    {"verify-each", "", "verify after each pass", OPTION_FLAG,
     AT(run.verify_each)},
    {"print-after-all", "", "print the module after each pass to stderr",
     OPTION_FLAG, AT(run.print_after_all)},
    {"remarks", "", "print what passes say about their choices to stderr",
     OPTION_FLAG, AT(remarks)},
    {"time-passes", "", "print the time of each pass to stderr", OPTION_FLAG,
     AT(run.time)},
    {"dump-dir", "DIR", "write NN-pass.tir to DIR after each pass", OPTION_TEXT,
     AT(run.dump_dir)},
    {"reproducer", "FILE", "on failure, write a .tir file that attn-opt reruns",
     OPTION_TEXT, AT(run.reproducer)},
    {"roundtrip", "", "check print -> parse -> print (default)", OPTION_FLAG,
     AT(roundtrip)},
    {"no-roundtrip", "", "do not check that", OPTION_CLEAR, AT(roundtrip)},
    {"split-input-file", "", "treat the parts between lines '# -----' alone",
     OPTION_FLAG, AT(split)},
    {"print-passes", "", "list the passes", OPTION_FLAG, AT(list)},
    {"help", "", "this text", OPTION_FLAG, AT(help)},
};
enum { NOWN = sizeof own / sizeof *own };

static bool parse_flag(Options *o, const char *arg) {
  uint32_t n;
  const PassOption *rows = pass_option_list(&n);
  return pass_option_parse(own, NOWN, o, arg) ||
         pass_option_parse(rows, n, &o->run.pass, arg);
}

static void print_options(const PassOption *rows, uint32_t n, FILE *f) {
  char left[32];
  for (uint32_t i = 0; i < n; i++) {
    snprintf(left, sizeof left, "--%s%s%s", rows[i].name,
             rows[i].value[0] ? "=" : "", rows[i].value);
    fprintf(f, "  %-20s %s\n", left, rows[i].help);
  }
}

static void print_usage(FILE *f) {
  uint32_t n;
  const PassOption *rows = pass_option_list(&n);
  fputs("usage: attn-opt FILE.tir|- [options]\n"
        "  -o FILE              output (default: standard output)\n",
        f);
  print_options(own, NOWN, f);
  fputs("what passes are told:\n", f);
  print_options(rows, n, f);
  fputs(
      "A file that begins with a line '# attn-opt OPTIONS' is run with these; "
      "what\nis given here counts first. Dumps begin so: attn-opt runs the "
      "passes that\nwere to follow. --passes= runs none.\n",
      f);
}

static bool usage_error(const char *what, const char *arg) {
  fprintf(stderr, "attn-opt: %s '%s'\n", what, arg);
  print_usage(stderr);
  return false;
}

static bool parse_args(Options *o, int argc, char **argv) {
  o->args = argv;
  o->nargs = argc;
  for (int i = 1; i < argc; i++) {
    const char *arg = argv[i];
    if (strcmp(arg, "-o") == 0) {
      if (++i == argc) return usage_error("missing file after", arg);
      o->output = argv[i];
    } else if (arg[0] == '-' && arg[1]) {
      if (!parse_flag(o, arg)) return usage_error("bad option", arg);
    } else if (o->input) {
      return usage_error("more than one input:", arg);
    } else {
      o->input = arg;
    }
  }
  if (o->input || o->help || o->list) return true;
  return usage_error("no input", "");
}

static bool check_pipeline(const Options *o) {
  if (!o->pipeline) return true;
  bool gpu = o->run.pass.target->kind != TARGET_CPU;
  for (int lv = LV_ATTN; lv <= LV_MACH; lv++)
    if (strcmp(o->pipeline, level_name((Level)lv)) == 0)
      if (lv != LV_FRAG || gpu) return true;
  return usage_error("no pipeline to level", o->pipeline);
}

// The passes of --pipeline=LEVEL. A module of level attn may be as it was
// written: its own level's are run too.
static const char *passes_for(Ctx *cx, const Options *o, const Module *m) {
  if (!o->pipeline || o->passes) return o->passes;
  Level to = LV_ATTN;
  while (strcmp(o->pipeline, level_name(to))) to++;
  Level from = m->level == LV_ATTN ? LV_ATTN : (Level)(m->level + 1);
  return pass_pipeline(&cx->session, o->run.pass.target, from, to);
}

// The line of options among the comments that begin the text, or NULL.
static char *option_line(Ctx *cx, const Source *src) {
  static const char lead[] = "# attn-opt ";
  for (uint32_t i = 1; i <= src->nlines; i++) {
    uint32_t n;
    const char *line = src_line(src, i, &n);
    if (n && line[0] != '#') break;
    if (n >= sizeof lead && strncmp(line, lead, sizeof lead - 1) == 0)
      return arena_strndup(&cx->session, line + sizeof lead - 1,
                           n - (sizeof lead - 1));
  }
  return NULL;
}

// The options of that line, and over them those of the command line.
static bool text_options(Ctx *cx, Options *o, const Source *src) {
  char *s = option_line(cx, src), *save = NULL;
  bool listed = o->passes || o->pipeline;
  for (char *arg = s ? strtok_r(s, " ", &save) : NULL; arg;
       arg = strtok_r(NULL, " ", &save))
    if (!parse_flag(o, arg)) return usage_error("bad option in the text:", arg);
  if (listed) o->passes = NULL;
  for (int i = 1; i < o->nargs; i++) parse_flag(o, o->args[i]);
  return check_pipeline(o);
}

// ---------------------------------------------------------------- one module
static int roundtrip(Ctx *cx, const Module *m, const Buf *text) {
  Buf again = {.arena = &cx->session};
  Source *src = ctx_add_source(cx, "<printed>", text->at, text->n);
  Module *copy = src ? ir_parse(cx, src) : NULL;
  if (copy) ir_print(copy, &again);
  if (copy && again.n == text->n && !memcmp(again.at, text->at, text->n))
    return EXIT_OK;
  fprintf(stderr,
          "attn-opt: the module (level %s) does not survive printing "
          "and parsing; printed:\n%s",
          level_name(m->level), text->at);
  if (copy) fprintf(stderr, "read back:\n%s", again.at);
  return EXIT_INTERNAL;
}

static int check_text(Ctx *cx, const Options *o, const Module *m, Buf *text) {
  ir_print(m, text);
  return o->roundtrip ? roundtrip(cx, m, text) : EXIT_OK;
}

static int run_module(Ctx *cx, const Options *o, Source *src, Buf *out) {
  Module *m = ir_parse(cx, src);
  if (!m || !ir_verify(cx, m)) return EXIT_DIAG;
  Buf before = {.arena = &cx->session}, after = before;
  int rc = check_text(cx, o, m, &before);
  if (rc) return rc;
  const char *names = passes_for(cx, o, m);
  if (names && (!pass_run(cx, m, names, &o->run) || !ir_verify(cx, m)))
    return EXIT_DIAG;
  rc = check_text(cx, o, m, &after);
  if (!rc) buf_add(out, after.at, after.n);
  return rc;
}

static void show(FILE *f, const Buf *b) {
  if (b->n) fwrite(b->at, 1, b->n, f);
}

// A part of the input in a session of its own. Lines before the part are kept
// empty, so that positions are those of the file.
static int run_part(const Options *given, const Source *file, uint32_t lo,
                    uint32_t hi, Buf *out) {
  Ctx cx;
  ctx_init(&cx);
  Options o = *given;
  Buf text = {.arena = &cx.session}, log = text, err = text;
  for (uint32_t i = 0; i < lo; i++)
    if (file->text[i] == '\n') buf_char(&text, '\n');
  buf_add(&text, file->text + lo, hi - lo);
  Source *src = ctx_add_source(&cx, file->path, text.at, text.n);
  o.run.log = &log;
  int rc = EXIT_DIAG;
  if (src)
    rc =
        text_options(&cx, &o, src) ? run_module(&cx, &o, src, out) : EXIT_USAGE;
  diag_render(&cx, (DiagStyle){.ascii = true, .width = 100}, &err);
  show(stderr, &log);
  for (uint32_t i = 0; o.remarks && i < cx.remarks.n; i++)
    fprintf(stderr, "%s\n", cx.remarks.at[i]);
  show(stderr, &err);
  ctx_drop(&cx);
  return rc;
}

// ---------------------------------------------------------------- input
static bool is_separator(const Source *s, uint32_t line) {
  uint32_t n;
  const char *text = src_line(s, line, &n);
  return n == 7 && strncmp(text, "# -----", 7) == 0;
}

static int run_parts(const Options *o, const Source *s, Buf *out) {
  uint32_t lo = 0;
  int worst = EXIT_OK;
  for (uint32_t line = 1; line <= s->nlines + 1; line++) {
    bool end = line == s->nlines + 1;
    if (!end && !(o->split && is_separator(s, line))) continue;
    uint32_t hi = end ? s->len : s->line[line - 1];
    if (lo) buf_str(out, "# -----\n");
    int rc = run_part(o, s, lo, hi, out);
    if (rc > worst) worst = rc;
    if (!end) lo = line < s->nlines ? s->line[line] : s->len;
  }
  return worst;
}

static bool write_output(const char *path, const Buf *out) {
  if (path) return out_write(path, out->at, out->n);
  show(stdout, out);
  return fflush(stdout) == 0 && !ferror(stdout);
}

static int run_file(Ctx *cx, const Options *o) {
  const char *path = strcmp(o->input, "-") ? o->input : "/dev/stdin";
  Source *s = ctx_read_source(cx, path, NOWHERE);
  Buf out = {.arena = &cx->session}, err = out;
  if (!s) {
    diag_render(cx, (DiagStyle){.ascii = true}, &err);
    show(stderr, &err);
    return EXIT_DIAG;
  }
  if (o->run.dump_dir) out_folder(o->run.dump_dir);
  int rc = run_parts(o, s, &out);
  if (rc && o->output) return rc;
  if (write_output(o->output, &out)) return rc;
  fprintf(stderr, "attn-opt: cannot write '%s': %s\n",
          o->output ? o->output : "standard output", strerror(errno));
  return EXIT_DIAG;
}

static void print_passes(void) {
  static const char *const families[] = {[PASS_CPU] = "cpu",
                                         [PASS_SM_80] = "sm_80",
                                         [PASS_SM_90A] = "sm_90a",
                                         [PASS_AMD] = "amd"};
  uint32_t n;
  const PassInfo *p = pass_list(&n);
  for (uint32_t i = 0; i < n; i++) {
    const char *from = p[i].from == LV_ANY ? "any" : level_name(p[i].from);
    const char *to = p[i].to == LV_ANY ? "any" : level_name(p[i].to);
    printf("%-8s %-6s -> %-6s ", p[i].name, from, to);
    for (int k = 0; k < PASS_FAMILIES; k++)
      printf(" %-*s", (int)strlen(families[k]),
             pass_runs_for(&p[i], (PassFamily)k) ? families[k] : "");
    printf("  %s\n", p[i].doc);
  }
}

int main(int argc, char **argv) {
  Options o = {.roundtrip = true, .run.pass.target = target_by_name("cpu")};
  if (!parse_args(&o, argc, argv) || !check_pipeline(&o)) return EXIT_USAGE;
  if (o.help) print_usage(stdout);
  if (o.list) print_passes();
  if (o.help || o.list) return EXIT_OK;
  signal(SIGXFSZ, SIG_IGN);  // too long a file is an error of write
  Ctx cx;
  ctx_init(&cx);
  int rc = run_file(&cx, &o);
  ctx_drop(&cx);
  return rc;
}
