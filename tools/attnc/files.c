// Folders to the files in them.
#include "tools/attnc/files.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MAX_FOLDERS = 64 };  // in each other

static int shown(const struct dirent *e) {
  return e->d_name[0] != '.';
}

static bool is_folder(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_program(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot && strcmp(dot, ".attn") == 0;
}

static bool add_folder(Cli *cli, const char *path, int depth, Strings *out) {
  struct dirent **list;
  int n = depth < MAX_FOLDERS ? scandir(path, &list, shown, alphasort) : -1;
  if (n < 0) {
    fprintf(stderr, "attnc: cannot read '%s': %s\n", path,
            depth < MAX_FOLDERS ? strerror(errno) : "too many folders");
    return false;
  }
  bool ok = true;
  for (int i = 0; i < n; i++) {
    const char *name = list[i]->d_name;
    const char *slash = path[strlen(path) - 1] == '/' ? "" : "/";
    char *full = arena_printf(&cli->arena, "%s%s%s", path, slash, name);
    if (is_folder(full)) ok = ok && add_folder(cli, full, depth + 1, out);
    else if (is_program(name)) vec_push(&cli->arena, out, full);
    free(list[i]);
  }
  free(list);
  return ok;
}

bool files_of(Cli *cli, Strings *out) {
  bool ok = true;
  for (uint32_t i = 0; i < cli->inputs.n; i++) {
    const char *path = cli->inputs.at[i];
    if (is_folder(path)) ok = add_folder(cli, path, 0, out) && ok;
    else vec_push(&cli->arena, out, path);
  }
  return ok;
}
