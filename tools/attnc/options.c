// The option table: parsing, --help, suggestions.
#include "tools/attnc/attnc.h"

#include "ir/core/guess.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

typedef enum OptKind { FLAG, STR, MAYBE, CHOICE, INT, FLOAT, LIST } OptKind;

typedef struct Opt {
  const char *name, *alias;
  OptKind kind;
  const char *value, *commands, *help;
  size_t at;  // of its field in Cli
} Opt;

static const Opt opts[] = {
#define OPT(name, alias, field, kind, value, commands, help) \
  {name, alias, kind, value, commands, help, offsetof(Cli, field)},
#include "tools/attnc/options.def"
};
enum { NOPTS = sizeof opts / sizeof *opts };

static const Command commands[] = {
#define COMMAND(name, letter, min, max, usage, doc) \
  {#name, letter, min, max, usage, doc, command_##name},
#include "tools/attnc/commands.def"
};
enum { NCOMMANDS = sizeof commands / sizeof *commands };

const Command *command_list(uint32_t *n) {
  *n = NCOMMANDS;
  return commands;
}

const Command *command_by_name(const char *name) {
  for (uint32_t i = 0; i < NCOMMANDS; i++)
    if (strcmp(commands[i].name, name) == 0) return &commands[i];
  return NULL;
}

int usage_error(const Cli *cli, const char *fmt, ...) {
  va_list ap;
  fputs("attnc: ", stderr);
  va_start(ap, fmt);
  vfprintf(stderr, fmt, ap);
  va_end(ap);
  fprintf(stderr, "\nattnc: 'attnc %s%s--help' lists the options\n",
          cli->cmd ? cli->cmd->name : "", cli->cmd ? " " : "");
  return EXIT_USAGE;
}

// ---------------------------------------------------------------- parsing
static bool applies(const Opt *o, const Command *c) {
  return o->commands[0] == '*' || strchr(o->commands, c->letter);
}

// The length of the name if arg is o's name or alias, alone or before '='.
static size_t named(const char *arg, const char *name) {
  size_t n = strlen(name);
  if (!n || strncmp(arg, name, n) != 0) return 0;
  return arg[n] == 0 || arg[n] == '=' ? n : 0;
}

static const Opt *find_opt(const char *arg, const char **value) {
  for (uint32_t i = 0; i < NOPTS; i++) {
    const Opt *o = &opts[i];
    size_t n = named(arg, o->name);
    if (!n) n = named(arg, o->alias);
    if (n) {
      *value = arg[n] ? arg + n + 1 : NULL;
      return o;
    }
  }
  // -IDIR, -DN=1, -oFILE
  for (uint32_t i = 0; i < NOPTS; i++) {
    const Opt *o = &opts[i];
    bool is_short = o->kind != FLAG && strlen(o->name) == 2;
    const char *s = is_short ? o->name : o->alias;
    if (strlen(s) != 2 || strncmp(arg, s, 2) != 0 || o->kind == FLAG) continue;
    *value = arg + 2;
    return o;
  }
  return NULL;
}

static bool unknown_option(const Cli *cli, const char *arg) {
  const char *words[2 * NOPTS];
  uint32_t n = 0;
  for (uint32_t i = 0; i < NOPTS; i++) {
    if (cli->cmd && !applies(&opts[i], cli->cmd)) continue;
    words[n++] = opts[i].name;
    if (opts[i].alias[0]) words[n++] = opts[i].alias;
  }
  char *name = arena_strndup(&((Cli *)cli)->arena, arg, strcspn(arg, "="));
  const char *near = guess_among(name, words, n);
  if (near)
    usage_error(cli, "unknown option '%s', did you mean '%s'?", name, near);
  else usage_error(cli, "unknown option '%s'", name);
  return false;
}

static bool is_choice(const char *choices, const char *value) {
  size_t n = strlen(value);
  for (const char *p = choices; *p; p += strcspn(p, "|"), p += *p == '|')
    if (n && strcspn(p, "|") == n && strncmp(p, value, n) == 0) return true;
  return false;
}

static bool to_int(const char *s, int64_t *v) {
  char *end;
  *v = strtoll(s, &end, 10);
  return *s && !*end && *v >= 0 && *v < (int64_t)1 << 40;
}

static bool set_number(Cli *cli, const Opt *o, const char *value) {
  char *end, *field = (char *)cli + o->at;
  int64_t i = 0;
  double d = 0;
  bool ok = false;
  if (o->kind == INT) ok = to_int(value, &i);
  else d = buf_read_double(value, &end), ok = *value && !*end && d > 0;
  if (!ok) {
    usage_error(cli, "option '%s' needs a %s number, not '%s'", o->name,
                o->kind == INT ? "whole" : "positive", value);
    return false;
  }
  if (o->kind == INT) memcpy(field, &i, sizeof i);
  else memcpy(field, &d, sizeof d);
  return true;
}

static bool set_opt(Cli *cli, const Opt *o, const char *value) {
  void *field = (char *)cli + o->at;
  switch (o->kind) {
  case FLAG: *(bool *)field = true; return true;
  case CHOICE:
    if (!is_choice(o->value, value)) {
      usage_error(cli, "option '%s' takes %s, not '%s'", o->name, o->value,
                  value);
      return false;
    }
    *(const char **)field = value;
    return true;
  case STR:
  case MAYBE: *(const char **)field = value; return true;
  case LIST: vec_push(&cli->arena, (Strings *)field, value); return true;
  case INT:
  case FLOAT: break;
  }
  return set_number(cli, o, value);
}

// Further NAME=VALUE words after --in and the like belong to it.
static bool is_pair(const char *arg) {
  return arg[0] != '-' && strchr(arg, '=');
}

static bool parse_opt(Cli *cli, int argc, char **argv, int *at) {
  const char *arg = argv[*at], *value = NULL;
  const Opt *o = find_opt(arg, &value);
  if (!o) return unknown_option(cli, arg);
  if (o->kind == FLAG && value) {
    usage_error(cli, "option '%s' takes no value", o->name);
    return false;
  }
  if (o->kind == MAYBE && !value) value = "";
  if (o->kind != FLAG && !value) {
    if (*at + 1 == argc) {
      usage_error(cli, "option '%s' needs a value (%s)", o->name, o->value);
      return false;
    }
    value = argv[++*at];
  }
  if (!set_opt(cli, o, value)) return false;
  if (o->kind == LIST && strchr(o->value, '='))
    while (*at + 1 < argc && is_pair(argv[*at + 1]))
      if (!set_opt(cli, o, argv[++*at])) return false;
  return true;
}

// An option given that the command does not take.
static const Opt *misplaced(const Cli *cli) {
  static const char zero[sizeof(Strings)];
  static const size_t size[] = {
      [FLAG] = sizeof(bool),     [STR] = sizeof(char *),
      [CHOICE] = sizeof(char *), [MAYBE] = sizeof(char *),
      [INT] = sizeof(int64_t),   [FLOAT] = sizeof(double),
      [LIST] = sizeof(Strings),
  };
  for (uint32_t i = 0; i < NOPTS; i++) {
    const char *field = (const char *)cli + opts[i].at;
    bool given = memcmp(field, zero, size[opts[i].kind]) != 0;
    if (given && !applies(&opts[i], cli->cmd)) return &opts[i];
  }
  return NULL;
}

static bool complete(const Cli *cli) {
  if (cli->help || cli->version || cli->print_targets || cli->print)
    return true;
  const Command *c = cli->cmd;
  const Opt *o = misplaced(cli);
  bool many = cli->inputs.n > c->max, few = cli->inputs.n < c->min;
  if (o) usage_error(cli, "'%s' is no option of 'attnc %s'", o->name, c->name);
  else if (few) usage_error(cli, "no input file");
  else if (many)
    usage_error(cli, "more inputs than expected: '%s'", cli->inputs.at[c->max]);
  return !o && !few && !many;
}

// `attnc chekc f.attn`: two inputs, the first of which is nearly a command.
static bool misspelled(const Cli *cli) {
  if (cli->inputs.n < 1 || strpbrk(cli->inputs.at[0], "./")) return false;
  const char *words[NCOMMANDS];
  for (uint32_t i = 0; i < NCOMMANDS; i++) words[i] = commands[i].name;
  const char *word = cli->inputs.at[0];
  const char *near = guess_among(word, words, NCOMMANDS);
  if (strcmp(word, "-") == 0) return false;
  if (near)
    usage_error(cli, "unknown command '%s', did you mean '%s'?", word, near);
  else if (access(word, F_OK) != 0)
    usage_error(cli, "'%s' is neither a command nor a file", word);
  else return false;
  return true;
}

bool cli_parse(Cli *cli, int argc, char **argv) {
  bool literal = false;
  for (int i = 1; i < argc; i++) {
    const char *arg = argv[i];
    if (!literal && strcmp(arg, "--") == 0) {
      literal = true;
    } else if (!literal && arg[0] == '-' && arg[1]) {
      if (!parse_opt(cli, argc, argv, &i)) return false;
    } else if (!literal && !cli->cmd && !cli->inputs.n &&
               command_by_name(arg)) {
      cli->cmd = command_by_name(arg);
    } else if (!literal && !cli->cmd && !cli->inputs.n &&
               strcmp(arg, "help") == 0) {
      cli->help = true;
    } else {
      vec_push(&cli->arena, &cli->inputs, arg);
    }
  }
  if (!cli->cmd && (cli->help || cli->version)) return true;
  if (!cli->cmd && misspelled(cli)) return false;
  if (!cli->cmd) cli->cmd = &commands[0];
  return complete(cli);
}

// ---------------------------------------------------------------- help
static void help_opt(const Opt *o, FILE *f) {
  char left[64];
  const char *eq = o->value[0] ? o->kind == STR ? " " : "=" : "";
  if (strlen(o->name) == 2) eq = o->value[0] ? " " : "";
  if (o->kind == LIST) eq = " ";
  bool maybe = o->kind == MAYBE;
  if (maybe) eq = "[=";
  snprintf(left, sizeof left, "%s%s%s%s%s%s", o->name, o->alias[0] ? ", " : "",
           o->alias, eq, o->value, maybe ? "]" : "");
  fprintf(f, "  %-26s %s%s\n", left,
          strlen(left) > 26 ? "\n                             " : "", o->help);
}

static void help_commands(FILE *f) {
  fputs("usage: attnc [COMMAND] FILE.attn [OPTION ..]\n\n"
        "Compiles attention written as index equations.\n\ncommands:\n",
        f);
  for (uint32_t i = 0; i < NCOMMANDS; i++)
    fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].doc);
  fputs("\n'attnc COMMAND --help' lists a command's options. Those of compile:"
        "\n",
        f);
}

void cli_help(const Cli *cli, FILE *f) {
  const Command *c = cli->cmd;
  if (c)
    fprintf(f, "usage: attnc %s %s\n\n%s\n\noptions:\n", c->name, c->usage,
            c->doc);
  else help_commands(f);
  if (!c) c = &commands[0];
  for (uint32_t i = 0; i < NOPTS; i++)
    if (applies(&opts[i], c)) help_opt(&opts[i], f);
  fputs("\nexit codes: 0 ok, 1 diagnostics or a failed check, 2 usage, "
        "3 environment, 70 internal error\n",
        f);
}
