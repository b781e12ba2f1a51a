// The op, attribute and name tables, expanded from the .def files.
#include "ir/text/text.h"

#include <string.h>

#define A OPL_ATTN
#define S OPL_STREAM
#define T OPL_TILE
#define F OPL_FRAG
#define R OPL_SCHEDULE
#define V OPL_CPU
#define G OPL_GPU
#define M (F | V | G)
#define P OPF_PURE
#define C OPF_COMM
#define E OPF_ELEM
#define Z OPF_TERM
static const OpInfo infos[] = {
#define OP(name, id, levels, lo, hi, nres, nregions, infer, flags, doc) \
  {name, (levels), lo, hi, nres, nregions, INF_##infer, (flags), doc},
#include "ir/ops.def"
};
#undef A
#undef S
#undef T
#undef F
#undef R
#undef V
#undef G
#undef M
#undef P
#undef C
#undef E
#undef Z

typedef struct AttrInfo {
  const char *name;
  AttrKind kind;
} AttrInfo;

static const AttrInfo attrs[] = {
#define ATTR(name, id, kind) {name, AK_##kind},
#include "ir/attrs.def"
};

const OpInfo *op_info(OpCode c) {
  return &infos[c];
}

static bool same(const char *name, const char *s, size_t n) {
  return strncmp(name, s, n) == 0 && name[n] == 0;
}

bool op_by_name(const char *name, size_t len, OpCode *c) {
  for (uint32_t i = 0; i < OP_COUNT; i++) {
    if (!same(infos[i].name, name, len)) continue;
    *c = (OpCode)i;
    return true;
  }
  return false;
}

const char *attr_name(AttrId id) {
  return attrs[id].name;
}
AttrKind attr_kind(AttrId id) {
  return attrs[id].kind;
}

bool attr_by_name(const char *name, size_t len, AttrId *id) {
  for (uint32_t i = 0; i < AT_COUNT; i++) {
    if (!same(attrs[i].name, name, len)) continue;
    *id = (AttrId)i;
    return true;
  }
  return false;
}

const char *level_name(Level lv) {
  return word(WS_LEVEL, lv);
}

uint8_t level_ops(Level lv) {
  static const uint8_t places[] = {
      [LV_ATTN] = OPL_ATTN,          [LV_STREAM] = OPL_STREAM,
      [LV_TILE] = OPL_TILE,          [LV_FRAG] = OPL_FRAG | OPL_SCHEDULE,
      [LV_MACH] = OPL_CPU | OPL_GPU,
  };
  return places[lv];
}

const char *rkind_name(RKind k) {
  return word(WS_RKIND, k);
}
