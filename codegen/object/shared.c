// A shared library of one object, for machines that have no linker.
//
//   header, program headers, .dynsym, .dynstr, .hash, .rela.dyn, what is read
//   | what is executed, stubs | what is written, slots of the stubs, .dynamic
//   section headers
//
// where | begins a page. Offsets in the file are addresses. Objects of this
// compiler are position independent and call functions of others only, each by
// a stub that jumps to what the loader puts into its slot.
#include "codegen/object/shared.h"

#include <elf.h>
#include <stdbool.h>
#include <string.h>

enum { READ, RUN, WRITE, N_KINDS };
enum { STUB = 16, N_DYNAMIC = 9, N_HEADS = 6, N_SECTIONS = 5 };

#define NAMES "\0.dynsym\0.dynstr\0.dynamic\0.shstrtab"

typedef struct Part {
  uint64_t at, size;
} Part;

typedef struct Link {
  Arena *a;
  const char *object;
  const Elf64_Ehdr *head;
  const Elf64_Shdr *sec;
  const Elf64_Sym *sym;
  const char *names;
  uint32_t nsym, ndyn, nrela, nstubs;
  bool arm;
  uint64_t *address;         // of each section
  uint32_t *dynamic, *stub;  // of each symbol its place there, 0: none
  Part kind[N_KINDS], dynsym, dynstr, hash, rela, stubs, slots, table;
  char *image;
  uint32_t made;  // dynamic relocations
  const char *why;
} Link;

static uint64_t aligned(uint64_t n, uint64_t to) {
  return to ? (n + to - 1) / to * to : n;
}

static bool is_open(const Link *l, uint32_t i) {
  return i && l->sym[i].st_shndx == SHN_UNDEF;
}

static bool is_shown(const Link *l, uint32_t i) {
  const Elf64_Sym *s = &l->sym[i];
  return i && ELF64_ST_BIND(s->st_info) != STB_LOCAL &&
         ELF64_ST_VISIBILITY(s->st_other) == STV_DEFAULT;
}

static int kind_of(const Elf64_Shdr *s) {
  if (!(s->sh_flags & SHF_ALLOC)) return N_KINDS;
  if (s->sh_flags & SHF_EXECINSTR) return RUN;
  return s->sh_flags & SHF_WRITE ? WRITE : READ;
}

// What is written, by the loader alone: all of it is read only behind that.
static bool is_constant(const Link *l, const Elf64_Shdr *s) {
  static const char text[] = ".data.rel.ro";
  const Elf64_Shdr *names = &l->sec[l->head->e_shstrndx];
  const char *name = l->object + names->sh_offset + s->sh_name;
  return kind_of(s) != WRITE || !s->sh_size ||
         strncmp(name, text, sizeof text - 1) == 0;
}

static bool has_variables(const Link *l) {
  for (uint32_t i = 0; i < l->head->e_shnum; i++)
    if (!is_constant(l, &l->sec[i])) return true;
  return false;
}

static const char *name_of(const Link *l, uint32_t i) {
  return l->names + l->sym[i].st_name;
}

// ---------------------------------------------------------------- the object
static bool open_object(Link *l, const Buf *object) {
  l->object = object->at;
  l->head = (const Elf64_Ehdr *)(const void *)object->at;
  if (object->n < sizeof *l->head ||
      memcmp(l->head->e_ident, ELFMAG, SELFMAG) != 0 ||
      l->head->e_type != ET_REL)
    return false;
  l->arm = l->head->e_machine == EM_AARCH64;
  if (!l->arm && l->head->e_machine != EM_X86_64) return false;
  l->sec = (const Elf64_Shdr *)(const void *)(l->object + l->head->e_shoff);
  for (uint32_t i = 0; i < l->head->e_shnum; i++)
    if (l->sec[i].sh_type == SHT_SYMTAB) {
      l->sym =
          (const Elf64_Sym *)(const void *)(l->object + l->sec[i].sh_offset);
      l->nsym = (uint32_t)(l->sec[i].sh_size / sizeof *l->sym);
      l->names = l->object + l->sec[l->sec[i].sh_link].sh_offset;
    }
  return l->sym != NULL;
}

// Calls do f for each relocation of what is in the library.
static void each_rela(Link *l,
                      void (*f)(Link *, const Elf64_Shdr *target,
                                uint32_t section, const Elf64_Rela *)) {
  for (uint32_t i = 0; i < l->head->e_shnum; i++) {
    const Elf64_Shdr *s = &l->sec[i], *target = &l->sec[s->sh_info];
    if (s->sh_type != SHT_RELA || kind_of(target) == N_KINDS) continue;
    const Elf64_Rela *r =
        (const Elf64_Rela *)(const void *)(l->object + s->sh_offset);
    for (uint64_t k = 0; k < s->sh_size / sizeof *r; k++)
      f(l, target, s->sh_info, r + k);
  }
}

static bool is_word(const Link *l, uint32_t type) {
  return type == (l->arm ? R_AARCH64_ABS64 : R_X86_64_64);
}

static void count(Link *l, const Elf64_Shdr *target, uint32_t section,
                  const Elf64_Rela *r) {
  (void)section, (void)target;
  uint32_t s = (uint32_t)ELF64_R_SYM(r->r_info);
  if (is_word(l, (uint32_t)ELF64_R_TYPE(r->r_info))) l->nrela++;
  else if (is_open(l, s) && !l->stub[s]) l->stub[s] = ++l->nstubs;
}

// ---------------------------------------------------------------- places
static void put_sections(Link *l, int kind, uint64_t *at) {
  l->kind[kind].at = *at;
  for (uint32_t i = 0; i < l->head->e_shnum; i++) {
    const Elf64_Shdr *s = &l->sec[i];
    if (kind_of(s) != kind) continue;
    *at = aligned(*at, s->sh_addralign);
    l->address[i] = *at;
    *at += s->sh_size;
  }
}

static Part place(uint64_t *at, uint64_t size) {
  *at = aligned(*at, STUB);
  Part p = {*at, size};
  *at += size;
  return p;
}

static uint64_t lay_out(Link *l) {
  uint64_t page = l->arm ? 0x10000 : 0x1000, text = 1, at;
  l->ndyn = 1;
  for (uint32_t i = 0; i < l->nsym; i++)
    if (is_shown(l, i)) {
      l->dynamic[i] = l->ndyn++;
      text += strlen(name_of(l, i)) + 1;
    }
  at = sizeof(Elf64_Ehdr) + N_HEADS * sizeof(Elf64_Phdr);
  l->dynsym = place(&at, l->ndyn * sizeof(Elf64_Sym));
  l->dynstr = place(&at, text);
  l->hash = place(&at, (2 + 2 * (uint64_t)l->ndyn) * 4);
  l->rela = place(&at, (l->nrela + l->nstubs) * sizeof(Elf64_Rela));
  put_sections(l, READ, &at);
  l->kind[READ] = (Part){0, at};
  for (int k = RUN; k <= WRITE; k++) {
    at = aligned(at, page);
    put_sections(l, k, &at);
    if (k == RUN) l->stubs = place(&at, (uint64_t)l->nstubs * STUB);
    else l->slots = place(&at, (uint64_t)l->nstubs * 8);
    if (k == WRITE) {
      l->table = place(&at, N_DYNAMIC * sizeof(Elf64_Dyn));
      at = aligned(at, page);  // read only behind the loader, by pages
    }
    l->kind[k].size = at - l->kind[k].at;
  }
  return at;
}

// ---------------------------------------------------------------- relocations
static uint64_t value_of(const Link *l, uint32_t s) {
  if (is_open(l, s)) return l->stubs.at + (l->stub[s] - 1) * (uint64_t)STUB;
  const Elf64_Sym *y = &l->sym[s];
  return y->st_value +
         (y->st_shndx < SHN_LORESERVE ? l->address[y->st_shndx] : 0);
}

static void add_rela(Link *l, uint64_t at, uint64_t symbol, uint32_t type,
                     uint64_t addend) {
  Elf64_Rela r = {at, ELF64_R_INFO(symbol, type), (Elf64_Sxword)addend};
  memcpy(l->image + l->rela.at + l->made++ * sizeof r, &r, sizeof r);
}

static void add_bits(char *at, uint64_t bits) {
  uint32_t word;
  memcpy(&word, at, 4);
  word |= (uint32_t)bits;
  memcpy(at, &word, 4);
}

static bool fits(int64_t n, int bits) {
  return n >= -(INT64_C(1) << (bits - 1)) && n < INT64_C(1) << (bits - 1);
}

static void page_bits(char *at, uint64_t from, uint64_t to) {
  uint64_t n = (to >> 12) - (from >> 12);
  add_bits(at, (n & 3) << 29 | (n >> 2 & 0x7ffff) << 5);
}

// What is added to an instruction of aarch64; false: not known here.
static bool arm_bits(char *at, uint32_t type, uint64_t from, uint64_t to) {
  static const struct {
    uint32_t type;
    int shift;
  } low[] = {{R_AARCH64_ADD_ABS_LO12_NC, 0},
             {R_AARCH64_LDST8_ABS_LO12_NC, 0},
             {R_AARCH64_LDST16_ABS_LO12_NC, 1},
             {R_AARCH64_LDST32_ABS_LO12_NC, 2},
             {R_AARCH64_LDST64_ABS_LO12_NC, 3},
             {R_AARCH64_LDST128_ABS_LO12_NC, 4}};
  for (size_t i = 0; i < sizeof low / sizeof *low; i++)
    if (type == low[i].type) {
      add_bits(at, (to & 0xfff) >> low[i].shift << 10);
      return true;
    }
  if (type == R_AARCH64_ADR_PREL_PG_HI21) {
    page_bits(at, from, to);
    return fits((int64_t)(to - from), 33);
  }
  if (type != R_AARCH64_CALL26 && type != R_AARCH64_JUMP26) return false;
  add_bits(at, (to - from) >> 2 & 0x3ffffff);
  return fits((int64_t)(to - from), 28);
}

static void relocate(Link *l, const Elf64_Shdr *target, uint32_t section,
                     const Elf64_Rela *r) {
  uint32_t s = (uint32_t)ELF64_R_SYM(r->r_info),
           type = (uint32_t)ELF64_R_TYPE(r->r_info);
  uint64_t from = l->address[section] + r->r_offset;
  uint64_t to = value_of(l, s) + (uint64_t)r->r_addend;
  char *at = l->image + from;
  bool near = type == (l->arm ? R_AARCH64_PREL32 : R_X86_64_PC32) ||
              (!l->arm && type == R_X86_64_PLT32),
       ok;
  if (is_word(l, type)) {
    ok = kind_of(target) == WRITE && (!is_open(l, s) || l->dynamic[s]);
    if (ok && is_open(l, s))
      add_rela(l, from, l->dynamic[s], type, (uint64_t)r->r_addend);
    else if (ok)
      add_rela(l, from, 0, l->arm ? R_AARCH64_RELATIVE : R_X86_64_RELATIVE, to);
  } else if (near) {
    int32_t n = (int32_t)(uint32_t)(to - from);
    memcpy(at, &n, 4);
    ok = fits((int64_t)(to - from), 32);
  } else {
    ok = l->arm && arm_bits(at, type, from, to);
  }
  if (!ok && !l->why)
    l->why = arena_printf(l->a, "a relocation of type %u", type);
}

static void write_stubs(Link *l) {
  for (uint32_t i = 0; i < l->nsym; i++) {
    if (!l->stub[i]) continue;
    uint64_t slot = l->slots.at + (l->stub[i] - 1) * UINT64_C(8);
    uint64_t from = value_of(l, i);
    char *at = l->image + from;
    if (l->arm) {
      // adrp x16, slot; ldr x17, [x16, slot]; br x17
      static const uint32_t code[] = {0x90000010, 0xf9400211, 0xd61f0220};
      memcpy(at, code, sizeof code);
      page_bits(at, from, slot);
      add_bits(at + 4, (slot & 0xfff) >> 3 << 10);
    } else {
      uint32_t n = (uint32_t)(slot - from - 6);
      memcpy(at, "\xff\x25", 2);  // jmp *slot(%rip)
      memcpy(at + 2, &n, 4);
    }
    add_rela(l, slot, l->dynamic[i],
             l->arm ? R_AARCH64_GLOB_DAT : R_X86_64_GLOB_DAT, 0);
  }
}

// ---------------------------------------------------------------- tables
static uint32_t hash_of(const char *s) {
  uint32_t h = 0;
  for (; *s; s++) {
    h = (h << 4) + (unsigned char)*s;
    h ^= h >> 24 & 0xf0;
    h &= 0x0fffffff;
  }
  return h;
}

static void write_symbols(Link *l) {
  uint32_t *hash = NEWN(l->a, uint32_t, 2 + 2 * (size_t)l->ndyn), text = 1;
  memset(hash, 0, l->hash.size);
  hash[0] = hash[1] = l->ndyn;
  for (uint32_t i = 0; i < l->nsym; i++) {
    uint32_t n = l->dynamic[i];
    if (!n) continue;
    Elf64_Sym s = l->sym[i];
    const char *name = name_of(l, i);
    s.st_name = text;
    if (!is_open(l, i)) {
      s.st_value = value_of(l, i);
      s.st_shndx = 1;  // any: the loader asks only whether there is one
    }
    memcpy(l->image + l->dynsym.at + n * sizeof s, &s, sizeof s);
    memcpy(l->image + l->dynstr.at + text, name, strlen(name));
    text += (uint32_t)strlen(name) + 1;
    uint32_t *first = &hash[2 + hash_of(name) % l->ndyn];
    hash[2 + l->ndyn + n] = *first;
    *first = n;
  }
  memcpy(l->image + l->hash.at, hash, l->hash.size);
}

static void write_heads(Link *l, uint64_t size) {
  Elf64_Ehdr h = *l->head;
  h.e_type = ET_DYN;
  h.e_phoff = h.e_ehsize = sizeof h;
  h.e_phentsize = sizeof(Elf64_Phdr);
  h.e_phnum = N_HEADS;
  h.e_shoff = size;
  h.e_shnum = N_SECTIONS;
  h.e_shstrndx = N_SECTIONS - 1;
  memcpy(l->image, &h, sizeof h);
  static const uint32_t flags[] = {PF_R, PF_R | PF_X, PF_R | PF_W};
  uint64_t page = l->arm ? 0x10000 : 0x1000;
  Elf64_Phdr p[N_HEADS];
  memset(p, 0, sizeof p);
  for (int k = 0; k < N_KINDS; k++)
    p[k] = (Elf64_Phdr){PT_LOAD,         flags[k],      l->kind[k].at,
                        l->kind[k].at,   l->kind[k].at, l->kind[k].size,
                        l->kind[k].size, page};
  p[3] = (Elf64_Phdr){PT_DYNAMIC,  PF_R | PF_W,   l->table.at,   l->table.at,
                      l->table.at, l->table.size, l->table.size, 8};
  p[4] = p[WRITE];
  p[4].p_type = PT_GNU_RELRO;
  p[4].p_flags = PF_R;
  p[5].p_type = PT_GNU_STACK;
  p[5].p_flags = PF_R | PF_W;
  memcpy(l->image + sizeof h, p, sizeof p);
  const Elf64_Dyn d[N_DYNAMIC] = {{DT_HASH, {l->hash.at}},
                                  {DT_SYMTAB, {l->dynsym.at}},
                                  {DT_STRTAB, {l->dynstr.at}},
                                  {DT_STRSZ, {l->dynstr.size}},
                                  {DT_SYMENT, {sizeof(Elf64_Sym)}},
                                  {DT_RELA, {l->rela.at}},
                                  {DT_RELASZ, {l->rela.size}},
                                  {DT_RELAENT, {sizeof(Elf64_Rela)}},
                                  {DT_NULL, {0}}};
  memcpy(l->image + l->table.at, d, sizeof d);
}

// What linkers and tools read; not loaded.
static void write_sections(const Link *l, uint64_t at) {
  Elf64_Shdr s[N_SECTIONS];
  memset(s, 0, sizeof s);
  s[1] = (Elf64_Shdr){
      1, SHT_DYNSYM, SHF_ALLOC, l->dynsym.at,     l->dynsym.at, l->dynsym.size,
      2, 1,          8,         sizeof(Elf64_Sym)};
  s[2] = (Elf64_Shdr){
      9, SHT_STRTAB, SHF_ALLOC, l->dynstr.at, l->dynstr.at, l->dynstr.size, 0,
      0, 1,          0};
  s[3] = (Elf64_Shdr){17,
                      SHT_DYNAMIC,
                      SHF_ALLOC | SHF_WRITE,
                      l->table.at,
                      l->table.at,
                      l->table.size,
                      2,
                      0,
                      8,
                      sizeof(Elf64_Dyn)};
  s[4] = (Elf64_Shdr){26,           SHT_STRTAB, 0, 0, at + sizeof s,
                      sizeof NAMES, 0,          0, 1, 0};
  memcpy(l->image + at, s, sizeof s);
  memcpy(l->image + at + sizeof s, NAMES, sizeof NAMES);
}

const char *shared_of_object(const Buf *object, Buf *out) {
  Link l = {.a = out->arena};
  if (!open_object(&l, object)) return "another format";
  if (has_variables(&l)) return "variables";
  l.address = NEWN(l.a, uint64_t, l.head->e_shnum);
  l.dynamic = NEWN(l.a, uint32_t, l.nsym);
  l.stub = NEWN(l.a, uint32_t, l.nsym);
  memset(l.address, 0, l.head->e_shnum * sizeof *l.address);
  memset(l.dynamic, 0, l.nsym * sizeof *l.dynamic);
  memset(l.stub, 0, l.nsym * sizeof *l.stub);
  each_rela(&l, count);
  uint64_t size = lay_out(&l),
           all = size + N_SECTIONS * sizeof(Elf64_Shdr) + sizeof NAMES;
  if (all > INT32_MAX) return "2 GiB";
  l.image = arena_alloc(l.a, all);
  memset(l.image, 0, all);
  for (uint32_t i = 0; i < l.head->e_shnum; i++)
    if (l.address[i] && l.sec[i].sh_type != SHT_NOBITS)
      memcpy(l.image + l.address[i], l.object + l.sec[i].sh_offset,
             l.sec[i].sh_size);
  each_rela(&l, relocate);
  write_stubs(&l);
  write_symbols(&l);
  write_heads(&l, size);
  write_sections(&l, size);
  if (!l.why) buf_add(out, l.image, all);
  return l.why;
}
