// One object of those of several kernels of AMD. Sections are laid end to end
// (elf.c); of metadata a loader reads the first note, so that it is made of
// all: a map in MessagePack, of which the list of kernels comes first.
//   a.o  {amdhsa.kernels: [a], amdhsa.target: t, ..}
//   b.o  {amdhsa.kernels: [b], amdhsa.target: t, ..}
//   ->   {amdhsa.kernels: [a, b], amdhsa.target: t, ..}
#include "codegen/cg.h"
#include "codegen/codegen.h"
#include "codegen/object/elf.h"

#include <elf.h>
#include <string.h>

static const char first_key[] = "\x83\xae"
                                "amdhsa.kernels";
static const char next_key[] = "\xad"
                               "amdhsa.target";
enum {
  FIRST = sizeof first_key - 1,
  NEXT = sizeof next_key - 1,
  FEW = 0x90,   // a list of up to 15 in one byte
  LIST = 0xdc,  // the number follows, of two bytes
  SOME = 16,
};

// What a note says, in its parts.
typedef struct Note {
  CgBytes head;     // of the note, with its name
  uint32_t n;       // kernels
  CgBytes kernels;  // one behind the other
  CgBytes rest;     // of the map
} Note;

static uint32_t up(uint32_t n) {
  return (n + 3) / 4 * 4;
}

// The n bytes at p are the map of one note. False: of another form.
static bool read_map(const char *p, size_t n, Note *out) {
  if (n < FIRST + 3 || memcmp(p, first_key, FIRST) != 0) return false;
  const uint8_t *list = (const uint8_t *)p + FIRST;
  bool few = *list >= FEW && *list < FEW + SOME;
  if (!few && *list != LIST) return false;
  out->n = few ? *list - (uint32_t)FEW : (uint32_t)list[1] << 8 | list[2];
  size_t at = FIRST + (few ? 1 : 3), end = n;
  while (end > at && (n - end < NEXT || memcmp(p + end, next_key, NEXT) != 0))
    end--;
  if (end == at) return false;
  out->kernels = (CgBytes){p + at, end - at};
  out->rest = (CgBytes){p + end, n - end};
  return true;
}

// The note at *at of b.
static bool read_note(const Buf *b, uint32_t *at, Note *out) {
  Elf64_Nhdr h;
  if (b->n - *at < sizeof h) return false;
  memcpy(&h, b->at + *at, sizeof h);
  uint32_t head = (uint32_t)sizeof h + up(h.n_namesz);
  if (b->n - *at < head + h.n_descsz) return false;
  out->head = (CgBytes){b->at + *at, head};
  const char *map = b->at + *at + head;
  *at += head + up(h.n_descsz);
  return read_map(map, h.n_descsz, out);
}

static void put_list(Buf *out, uint32_t n) {
  if (n >= SOME) buf_char(out, (char)LIST);
  if (n >= SOME) buf_char(out, (char)(n >> 8));
  buf_char(out, (char)(n < SOME ? FEW + n : n & 0xff));
}

static bool merge_notes(Arena *a, Buf *notes) {
  Buf out = {.arena = a}, kernels = {.arena = a};
  Note one = {0};
  uint32_t n = 0;
  for (uint32_t at = 0; at < notes->n;) {
    if (!read_note(notes, &at, &one)) return false;
    buf_add(&kernels, one.kernels.at, one.kernels.n);
    n += one.n;
  }
  buf_add(&out, one.head.at, one.head.n);
  buf_add(&out, first_key, FIRST);
  put_list(&out, n);
  buf_add(&out, kernels.at, kernels.n);
  buf_add(&out, one.rest.at, one.rest.n);
  Elf64_Nhdr h;
  memcpy(&h, out.at, sizeof h);
  h.n_descsz = (Elf64_Word)(out.n - one.head.n);
  memcpy(out.at, &h, sizeof h);
  while (out.n % 4) buf_char(&out, 0);
  *notes = out;
  return true;
}

bool cg_amd_merge(Ctx *cx, const CgBytes *in, uint32_t n, Buf *out) {
  CgPart *parts = NEWN(&cx->session, CgPart, n + 1);
  for (uint32_t i = 0; i < n; i++) parts[i] = (CgPart){in[i].at, in[i].n};
  return cg_elf_merge(&cx->session, parts, n, merge_notes, out);
}
