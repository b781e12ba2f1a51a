// "B=1,Sq=128" as the user writes it.
#include "tools/driver/driver.h"

#include <stdlib.h>

static bool bad(Ctx *cx, const char *text) {
  diag_add(cx, DIAG_bad_pair, NOWHERE, text, "D=N");
  return false;
}

bool drv_parse_dims(Ctx *cx, const char *text, DrvBinds *out) {
  char *copy = arena_strdup(&cx->session, text), *save = NULL;
  for (char *s = strtok_r(copy, ",", &save); s;
       s = strtok_r(NULL, ",", &save)) {
    char *eq = strchr(s, '='), *end;
    if (!eq || eq == s) return bad(cx, s);
    *eq = 0;
    FeBind b = {.name = intern(&cx->names, s), .dtype = DT_NONE};
    DType t;
    if (dtype_by_name(eq + 1, (uint32_t)strlen(eq + 1), &t)) {
      b.dtype = t;
    } else {
      b.value = strtoll(eq + 1, &end, 10);
      if (!eq[1] || *end || b.value < 0) return bad(cx, text);
    }
    vec_push(&cx->session, out, b);
  }
  return true;
}
