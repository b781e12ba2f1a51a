// What other programs read of the tables of commands and options: the manual
// page, completion of bash, zsh and fish.
#include "tools/attnc/attnc.h"

typedef struct Row {
  const char *name, *alias, *kind, *value, *commands, *help;
} Row;

static const Row rows[] = {
#define OPT(name, alias, field, kind, value, commands, help) \
  {name, alias, #kind, value, commands, help},
#include "tools/attnc/options.def"
};
enum { NROWS = sizeof rows / sizeof *rows };

static bool is_kind(const Row *r, const char *kind) {
  return strcmp(r->kind, kind) == 0;
}

static bool takes(const Row *r, const Command *c) {
  return r->commands[0] == '*' || strchr(r->commands, c->letter);
}

static bool is_long(const char *name) {
  return strncmp(name, "--", 2) == 0;
}

// ---------------------------------------------------------------- troff
// A minus is one to be typed; a line does not begin as a request.
static void roff(const char *s, FILE *f) {
  if (*s == '.' || *s == '\'') fputs("\\&", f);
  for (; *s; s++) {
    if (*s == '-') fputs("\\-", f);
    else if (*s == '\\') fputs("\\e", f);
    else fputc(*s, f);
  }
}

static void roff_line(const char *s, FILE *f) {
  roff(s, f);
  fputc('\n', f);
}

static void bold(const char *s, FILE *f) {
  fputs("\\fB", f);
  roff(s, f);
  fputs("\\fR", f);
}

static void value_of(const Row *r, FILE *f) {
  if (!*r->value) return;
  bool maybe = is_kind(r, "MAYBE");
  fputs(maybe ? "[=\\fI" : is_long(r->name) ? "=\\fI" : " \\fI", f);
  roff(r->value, f);
  fputs(maybe ? "\\fR]" : "\\fR", f);
}

static void option(const Row *r, FILE *f) {
  uint32_t n;
  const Command *c = command_list(&n);
  fputs(".TP\n", f);
  bold(r->name, f);
  if (*r->alias) fputs(", ", f);
  if (*r->alias) bold(r->alias, f);
  value_of(r, f);
  fputc('\n', f);
  roff_line(r->help, f);
  if (r->commands[0] == '*') return;
  fputs(".br\nOf", f);
  for (uint32_t i = 0, k = 0; i < n; i++)
    if (takes(r, &c[i])) fprintf(f, "%s %s", k++ ? "," : "", c[i].name);
  fputs(".\n", f);
}

static const struct {
  const char *name, *what;
} codes[] =
    {
        {"0", "fine"},
        {"1", "diagnostics, a check that failed, or none that ran"},
        {"2", "the command line is wrong"},
        {"3",
         "the environment: a file that cannot be read or written, a missing "
         "program, memory"},
        {"70", "a bug of the compiler"},
        {"130", "check was interrupted"},
},
  variables[] = {
      {"ATTNC_CACHE", "the folder of compiled objects; empty: none is kept"},
      {"ATTNC_STDLIB", "a folder that is looked in for imports"},
      {"ATTNC_PTXAS", "the assembler of NVIDIA's code"},
      {"NO_COLOR, CLICOLOR_FORCE", "diagnostics without and with colours"},
};

static void commands(FILE *f) {
  uint32_t n;
  const Command *c = command_list(&n);
  fputs(".SH COMMANDS\n", f);
  for (uint32_t i = 0; i < n; i++) {
    fputs(".TP\n", f);
    bold(c[i].name, f);
    fputc(' ', f);
    roff_line(c[i].usage, f);
    roff_line(c[i].doc, f);
  }
}

static void print_man(FILE *f) {
  fprintf(f, ".TH ATTNC 1 \"\" \"attnc %s\" \"User Commands\"\n",
          drv_version());
  fputs(
      ".SH NAME\nattnc \\- compiler for attention written as index equations\n"
      ".SH SYNOPSIS\n.B attnc\n[\\fICOMMAND\\fR] \\fIFILE.attn\\fR "
      "[\\fIOPTION\\fR ..]\n.SH DESCRIPTION\n"
      "Without a command a file is compiled, to an object with code for the "
      "CPU and for GPUs, a C header, a shared library, or the text of one "
      "stage.\n",
      f);
  commands(f);
  fputs(".SH OPTIONS\n", f);
  for (uint32_t i = 0; i < NROWS; i++) option(&rows[i], f);
  fputs(".SH EXIT STATUS\n", f);
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    fprintf(f, ".TP\n.B %s\n%s\n", codes[i].name, codes[i].what);
  fputs(".SH ENVIRONMENT\n", f);
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    fprintf(f, ".TP\n.B %s\n%s\n", variables[i].name, variables[i].what);
  fputs(".SH SEE ALSO\n.BR attn\\-opt (1),\n.BR attn\\-ls (1)\n", f);
}

// ---------------------------------------------------------------- shells
// In '..' of a shell: no quote of its own.
static void quoted(const char *s, FILE *f) {
  fputc('\'', f);
  for (; *s; s++)
    if (*s == '\'') fputs("'\\''", f);
    else fputc(*s, f);
  fputc('\'', f);
}

static void words(const Command *c, FILE *f) {
  for (uint32_t i = 0, k = 0; i < NROWS; i++) {
    if (!takes(&rows[i], c)) continue;
    fprintf(f, "%s%s", k++ ? " " : "", rows[i].name);
    if (*rows[i].alias) fprintf(f, " %s", rows[i].alias);
  }
}

static void choices(const char *value, FILE *f) {
  for (; *value; value++) fputc(*value == '|' ? ' ' : *value, f);
}

static void print_bash(FILE *f) {
  uint32_t n;
  const Command *c = command_list(&n);
  fputs("# attnc: completion for bash\n_attnc() {\n"
        "  local word=${COMP_WORDS[COMP_CWORD]} options\n"
        "  local before=${COMP_WORDS[COMP_CWORD-1]} command=compile w\n"
        "  for w in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n    case $w in\n"
        "    ",
        f);
  for (uint32_t i = 0; i < n; i++) fprintf(f, "%s%s", i ? "|" : "", c[i].name);
  fputs(") command=$w; break ;;\n    esac\n  done\n  case $before in\n", f);
  for (uint32_t i = 0; i < NROWS; i++) {
    if (!is_kind(&rows[i], "CHOICE")) continue;
    fprintf(f, "  %s) COMPREPLY=($(compgen -W '", rows[i].name);
    choices(rows[i].value, f);
    fputs("' -- \"$word\")); return ;;\n", f);
  }
  fputs("  --target) COMPREPLY=($(compgen -W \"$(attnc --print-targets | "
        "cut -d' ' -f1)\" -- \"$word\")); return ;;\n  esac\n"
        "  case $command in\n",
        f);
  for (uint32_t i = 0; i < n; i++) {
    fprintf(f, "  %s) options='", c[i].name);
    words(&c[i], f);
    fputs("' ;;\n", f);
  }
  fputs("  esac\n  if [[ $word == -* ]]; then\n"
        "    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n  else\n"
        "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
        "    [ $COMP_CWORD -gt 1 ] || COMPREPLY+=($(compgen -W '",
        f);
  for (uint32_t i = 0; i < n; i++) fprintf(f, "%s%s", i ? " " : "", c[i].name);
  fputs("' -- \"$word\"))\n  fi\n}\ncomplete -o filenames -F _attnc attnc\n",
        f);
}

// name[help]:value:files or words
static void zsh_option(const Row *r, const char *name, FILE *f) {
  Buf b = {0};
  Arena a = {0};
  b.arena = &a;
  bool many = is_kind(r, "LIST");
  buf_printf(&b, "%s%s%s[", many ? "*" : "", name,
             !*r->value || !is_long(name) ? "" : "=");
  for (const char *s = r->help; *s; s++) {
    if (strchr("[]:\\", *s)) buf_char(&b, '\\');
    buf_char(&b, *s);
  }
  buf_char(&b, ']');
  if (is_kind(r, "CHOICE")) {
    buf_str(&b, ":word:(");
    for (const char *s = r->value; *s; s++) buf_char(&b, *s == '|' ? ' ' : *s);
    buf_char(&b, ')');
  } else if (*r->value) {
    buf_str(&b, ":value:_files");
  }
  fputs("      ", f);
  quoted(b.at, f);
  fputs(" \\\n", f);
  arena_drop(&a);
}

static void print_zsh(FILE *f) {
  uint32_t n;
  const Command *c = command_list(&n);
  fputs("#compdef attnc\n# attnc: completion for zsh\n_attnc() {\n"
        "  local command=compile\n  case $words[2] in\n  ",
        f);
  for (uint32_t i = 0; i < n; i++) fprintf(f, "%s%s", i ? "|" : "", c[i].name);
  fputs(") command=$words[2] ;;\n  esac\n  if (( CURRENT == 2 )); then\n"
        "    local -a commands=(\n",
        f);
  for (uint32_t i = 0; i < n; i++) {
    fprintf(f, "      %s:", c[i].name);
    quoted(c[i].doc, f);
    fputc('\n', f);
  }
  fputs("    )\n    _describe command commands\n  fi\n  case $command in\n", f);
  for (uint32_t i = 0; i < n; i++) {
    fprintf(f, "  %s)\n    _arguments \\\n", c[i].name);
    for (uint32_t k = 0; k < NROWS; k++) {
      if (!takes(&rows[k], &c[i])) continue;
      zsh_option(&rows[k], rows[k].name, f);
      if (*rows[k].alias) zsh_option(&rows[k], rows[k].alias, f);
    }
    fputs("      '*:file:_files' ;;\n", f);
  }
  fputs("  esac\n}\n_attnc \"$@\"\n", f);
}

static void fish_name(const char *name, FILE *f) {
  if (!*name) return;
  if (is_long(name)) fprintf(f, " -l %s", name + 2);
  else fprintf(f, strlen(name) == 2 ? " -s %s" : " -o %s", name + 1);
}

static void print_fish(FILE *f) {
  uint32_t n;
  const Command *c = command_list(&n);
  fputs("# attnc: completion for fish\n", f);
  for (uint32_t i = 0; i < n; i++) {
    fprintf(f, "complete -c attnc -n __fish_use_subcommand -a %s -d ",
            c[i].name);
    quoted(c[i].doc, f);
    fputc('\n', f);
  }
  for (uint32_t i = 0; i < NROWS; i++) {
    const Row *r = &rows[i];
    fputs("complete -c attnc", f);
    if (r->commands[0] != '*' && !strchr(r->commands, 'c')) {
      fputs(" -n '__fish_seen_subcommand_from", f);
      for (uint32_t k = 0; k < n; k++)
        if (takes(r, &c[k])) fprintf(f, " %s", c[k].name);
      fputc('\'', f);
    }
    fish_name(r->name, f);
    fish_name(r->alias, f);
    if (*r->value) fputs(" -r", f);
    if (is_kind(r, "CHOICE")) fputs(" -f -a '", f), choices(r->value, f);
    fputs(is_kind(r, "CHOICE") ? "' -d " : " -d ", f);
    quoted(r->help, f);
    fputc('\n', f);
  }
}

bool cli_manual(const Cli *cli, FILE *f) {
  static const struct {
    const char *name;
    void (*print)(FILE *f);
  } kinds[] = {{"man", print_man},
               {"bash", print_bash},
               {"zsh", print_zsh},
               {"fish", print_fish}};
  for (size_t i = 0; cli->print && i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kinds[i].name, cli->print) == 0) kinds[i].print(f);
  return cli->print != NULL;
}
