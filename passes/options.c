// Options as text: tables of rows, of PassOpt and of attn-opt.
#include "passes/pass.h"

#include <stdlib.h>
#include <string.h>

static const PassOption options[] = {
#define OPTION(name, field, kind, value, help) \
  {name, value, help, OPTION_##kind, offsetof(PassOpt, field)},
#include "passes/options.def"
};
enum { NOPTIONS = sizeof options / sizeof *options };

const PassOption *pass_option_list(uint32_t *n) {
  *n = NOPTIONS;
  return options;
}

// ---------------------------------------------------------------- reading
static bool to_int(const char *s, int64_t most, int64_t *v) {
  char *end;
  *v = strtoll(s, &end, 10);
  return *s && !*end && *v >= 0 && *v <= most;
}

static bool set(const PassOption *o, void *base, const char *value) {
  void *p = (char *)base + o->at;
  int64_t v = -1;
  switch (o->kind) {
  case OPTION_TEXT: *(const char **)p = value; return true;
  case OPTION_TARGET:
    return (*(const Target **)p = target_by_name(value)) != NULL;
  case OPTION_FLAG:
  case OPTION_CLEAR: *(bool *)p = o->kind == OPTION_FLAG; return true;
  case OPTION_INT:
  case OPTION_BITS:
    if (!to_int(value, o->kind == OPTION_INT ? 1 << 20 : INT64_MAX, &v))
      return false;
    *(int64_t *)p = v;
    return true;
  case OPTION_AUTO:
    if (strcmp(value, "auto") != 0 && !to_int(value, 1 << 20, &v)) return false;
    *(int *)p = (int)v;
    return true;
  }
  return false;
}

bool pass_option_parse(const PassOption *rows, uint32_t n, void *base,
                       const char *arg) {
  if (strncmp(arg, "--", 2) != 0) return false;
  size_t len = strcspn(arg + 2, "=");
  for (uint32_t i = 0; i < n; i++) {
    bool takes = rows[i].value[0] != 0;
    if (strncmp(rows[i].name, arg + 2, len) || rows[i].name[len]) continue;
    if (takes != (arg[2 + len] == '=')) return false;
    return set(&rows[i], base, takes ? arg + 2 + len + 1 : NULL);
  }
  return false;
}

// ---------------------------------------------------------------- printing
static void put(const PassOption *o, const char *at, Buf *out) {
  int64_t v = 0;
  const char *text = NULL;
  const Target *target = NULL;
  bool on = false;
  switch (o->kind) {
  case OPTION_TEXT: text = *(const char *const *)at; break;
  case OPTION_TARGET: target = *(const Target *const *)at; break;
  case OPTION_FLAG:
  case OPTION_CLEAR: on = *(const bool *)at; break;
  case OPTION_INT:
  case OPTION_BITS: v = *(const int64_t *)at; break;
  case OPTION_AUTO: v = *(const int *)at; break;
  }
  if (target) text = target->name;
  if (v < 0) text = "auto";
  if (text) buf_printf(out, " --%s=%s", o->name, text);
  else if (v) buf_printf(out, " --%s=%lld", o->name, (long long)v);
  else if (on) buf_printf(out, " --%s", o->name);
}

void pass_option_print(const PassOpt *o, Buf *out) {
  for (uint32_t i = 0; i < NOPTIONS; i++)
    put(&options[i], (const char *)o + options[i].at, out);
}
