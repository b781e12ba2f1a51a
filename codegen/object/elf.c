// One relocatable object from several: sections of one name are laid end to
// end, symbols renumbered, relocations moved along.
//
//   shell.o  .data.rel.ro: R_X86_64_64 kernel (undefined)
//   unit.o   .text: kernel (hidden)
//   ->       one .text, one .data.rel.ro, kernel a local symbol
//
// Takes what LLVM writes for CPUs and AMD's GPUs: ELF64, little-endian, RELA. A
// hidden symbol becomes local: the parts refer to each other only.
#include "codegen/object/elf.h"

#include <assert.h>
#include <elf.h>
#include <string.h>

typedef struct Section {
  const char *name;
  Elf64_Shdr head;
  Buf bytes;        // empty for NOBITS
  uint32_t symbol;  // of the section, in the output
} Section;

typedef struct Symbol {
  const char *name;
  Elf64_Sym sym;  // st_shndx: index in Elf.sections + 1, or special
  bool local;
  uint32_t at;  // in the output
} Symbol;

typedef struct Part {  // an input
  const uint8_t *at;
  const Elf64_Ehdr *head;
  const Elf64_Shdr *sec;
  uint32_t *section;  // of each input section: output section + 1, or 0
  uint64_t *moved;    // and where it begins there
  uint32_t *symbol;   // of each input symbol: index in Elf.symbols
} Part;

typedef struct Elf {
  Arena *arena;
  Vec(Section) sections;
  Vec(Symbol) symbols;  // [0]: the null symbol
  Map globals;          // hash of the name -> symbol
} Elf;

// ---------------------------------------------------------------- sections
static const char *name_at(const Part *p, uint32_t strtab, uint32_t offset) {
  return (const char *)p->at + p->sec[strtab].sh_offset + offset;
}

static bool is_content(const Elf64_Shdr *s) {
  uint32_t t = s->sh_type;
  return t != SHT_NULL && t != SHT_SYMTAB && t != SHT_STRTAB && t != SHT_RELA &&
         (t < SHT_LOOS || t > SHT_HIOS);
}

static Section *section_for(Elf *e, const char *name, const Elf64_Shdr *s,
                            uint32_t *at) {
  for (uint32_t i = 0; i < e->sections.n; i++) {
    Section *o = &e->sections.at[i];
    *at = i + 1;
    if (strcmp(o->name, name) == 0 && o->head.sh_type == s->sh_type &&
        o->head.sh_flags == s->sh_flags && o->head.sh_entsize == s->sh_entsize)
      return o;
  }
  Section fresh = {.name = name, .head = *s, .bytes = {.arena = e->arena}};
  fresh.head.sh_size = 0;
  vec_push(e->arena, &e->sections, fresh);
  *at = e->sections.n;
  return &e->sections.at[e->sections.n - 1];
}

static void fill(Buf *b, uint64_t to, char with) {
  while (b->n < to) buf_char(b, with);
}

// What fills gaps between code, which is never run: x86's nop, AMD's s_nop.
static void fill_code(Buf *b, uint64_t to, const Part *p) {
  static const uint8_t nop[] = {0x90, 0x90, 0x90, 0x90};
  static const uint8_t s_nop[] = {0x00, 0x00, 0x80, 0xbf};
  const uint8_t *with = p->head->e_machine == EM_AMDGPU ? s_nop : nop;
  while (b->n < to) buf_char(b, (char)with[b->n % sizeof nop]);
}

static void add_section(Elf *e, Part *p, uint32_t i) {
  const Elf64_Shdr *s = &p->sec[i];
  const char *name = name_at(p, p->head->e_shstrndx, s->sh_name);
  Section *o = section_for(e, name, s, &p->section[i]);
  uint64_t align = s->sh_addralign ? s->sh_addralign : 1;
  uint64_t at = (o->head.sh_size + align - 1) / align * align;
  if (o->head.sh_addralign < align) o->head.sh_addralign = align;
  p->moved[i] = at;
  o->head.sh_size = at + s->sh_size;
  if (s->sh_type == SHT_NOBITS) return;
  if (s->sh_flags & SHF_EXECINSTR) fill_code(&o->bytes, at, p);
  else fill(&o->bytes, at, 0);
  buf_add(&o->bytes, (const char *)p->at + s->sh_offset, s->sh_size);
}

// ---------------------------------------------------------------- symbols
static uint32_t push_symbol(Elf *e, const char *name, Elf64_Sym sym,
                            bool local) {
  Symbol s = {.name = name, .sym = sym, .local = local};
  vec_push(e->arena, &e->symbols, s);
  return e->symbols.n - 1;
}

static uint32_t section_symbol(Elf *e, uint32_t section) {
  Section *s = &e->sections.at[section - 1];
  Elf64_Sym sym = {.st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION),
                   .st_shndx = (Elf64_Half)section};
  if (!s->symbol) s->symbol = push_symbol(e, "", sym, true);
  return s->symbol;
}

// A name has one symbol; a definition takes the place of a reference.
static uint32_t global(Elf *e, const char *name, Elf64_Sym sym) {
  uint64_t key = map_hash(name, strlen(name), 0), i = 0;
  bool hidden = ELF64_ST_VISIBILITY(sym.st_other) == STV_HIDDEN, found;
  while ((found = map_get(&e->globals, key, &i)) &&
         strcmp(e->symbols.at[i].name, name) != 0)
    key++;
  if (!found) {
    i = push_symbol(e, name, sym, false);
    map_put(&e->globals, key, i);
  }
  Symbol *s = &e->symbols.at[i];
  if (sym.st_shndx != SHN_UNDEF) {
    s->sym = sym;
    s->local = hidden;
    if (hidden) {
      s->sym.st_info = ELF64_ST_INFO(STB_LOCAL, ELF64_ST_TYPE(sym.st_info));
      s->sym.st_other = STV_DEFAULT;
    }
  }
  return (uint32_t)i;
}

static void add_symbol(Elf *e, Part *p, const Elf64_Shdr *tab, uint32_t i,
                       bool first) {
  Elf64_Sym s = ((const Elf64_Sym *)(p->at + tab->sh_offset))[i];
  const char *name = name_at(p, tab->sh_link, s.st_name);
  int type = ELF64_ST_TYPE(s.st_info);
  if (s.st_shndx != SHN_UNDEF && s.st_shndx < SHN_LORESERVE) {
    uint32_t in = s.st_shndx;
    if (!p->section[in]) return;
    s.st_shndx = (Elf64_Half)p->section[in];
    s.st_value += p->moved[in];
  }
  if (type == STT_SECTION) p->symbol[i] = section_symbol(e, s.st_shndx);
  else if (ELF64_ST_BIND(s.st_info) != STB_LOCAL)
    p->symbol[i] = global(e, name, s);
  else if (type != STT_FILE || first)
    p->symbol[i] = push_symbol(e, name, s, true);
}

static void add_symbols(Elf *e, Part *p, bool first) {
  for (uint32_t i = 0; i < p->head->e_shnum; i++) {
    const Elf64_Shdr *tab = &p->sec[i];
    if (tab->sh_type != SHT_SYMTAB) continue;
    uint32_t n = (uint32_t)(tab->sh_size / sizeof(Elf64_Sym));
    p->symbol = NEWN(e->arena, uint32_t, n);
    for (uint32_t k = 1; k < n; k++) add_symbol(e, p, tab, k, first);
  }
}

// Locals first, as ELF wants it; returns their number with the null symbol.
static uint32_t number_symbols(Elf *e) {
  uint32_t n = 1, locals;
  for (uint32_t i = 1; i < e->symbols.n; i++)
    if (e->symbols.at[i].local) e->symbols.at[i].at = n++;
  locals = n;
  for (uint32_t i = 1; i < e->symbols.n; i++)
    if (!e->symbols.at[i].local) e->symbols.at[i].at = n++;
  return locals;
}

// ---------------------------------------------------------------- relocations
// A relocation against a section means an offset in the part's own piece.
static uint64_t piece(const Part *p, const Elf64_Shdr *tab, uint32_t symbol) {
  const Elf64_Sym *s = (const Elf64_Sym *)(p->at + tab->sh_offset) + symbol;
  bool section = ELF64_ST_TYPE(s->st_info) == STT_SECTION;
  return section ? p->moved[s->st_shndx] : 0;
}

static void add_relocations(Elf *e, const Part *p, uint32_t i, Buf *out) {
  const Elf64_Shdr *s = &p->sec[i];
  const Elf64_Shdr *tab = &p->sec[s->sh_link];
  const Elf64_Rela *r = (const Elf64_Rela *)(p->at + s->sh_offset);
  for (uint64_t k = 0; k < s->sh_size / sizeof *r; k++) {
    Elf64_Rela x = r[k];
    uint32_t symbol = (uint32_t)ELF64_R_SYM(x.r_info);
    x.r_offset += p->moved[s->sh_info];
    x.r_addend += (Elf64_Sxword)piece(p, tab, symbol);
    x.r_info = ELF64_R_INFO((uint64_t)e->symbols.at[p->symbol[symbol]].at,
                            ELF64_R_TYPE(x.r_info));
    buf_add(out, (const char *)&x, sizeof x);
  }
}

// All relocations of output section `section`.
static Buf relocations(Elf *e, const Part *parts, uint32_t n,
                       uint32_t section) {
  Buf out = {.arena = e->arena};
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t i = 0; i < parts[k].head->e_shnum; i++)
      if (parts[k].sec[i].sh_type == SHT_RELA &&
          parts[k].section[parts[k].sec[i].sh_info] == section)
        add_relocations(e, &parts[k], i, &out);
  return out;
}

// ---------------------------------------------------------------- output
typedef struct Writer {
  Buf *out;
  uint64_t start;  // of the object in *out
  Buf names;
  Vec(Elf64_Shdr) heads;
} Writer;

static void put(Writer *w, Arena *a, const char *name, Elf64_Shdr h,
                const Buf *bytes) {
  uint64_t align = h.sh_addralign ? h.sh_addralign : 1;
  uint64_t at = w->out->n - w->start;
  fill(w->out, w->start + (at + align - 1) / align * align, 0);
  h.sh_offset = w->out->n - w->start;
  h.sh_name = (Elf64_Word)w->names.n;
  buf_add(&w->names, name, strlen(name) + 1);
  if (bytes) h.sh_size = bytes->n;
  if (bytes) buf_add(w->out, bytes->at, bytes->n);
  vec_push(a, &w->heads, h);
}

static Elf64_Shdr head(uint32_t type, uint32_t link, uint32_t info,
                       uint64_t entry, uint64_t align) {
  return (Elf64_Shdr){.sh_type = type,
                      .sh_link = link,
                      .sh_info = info,
                      .sh_entsize = entry,
                      .sh_addralign = align,
                      .sh_flags = type == SHT_RELA ? SHF_INFO_LINK : 0};
}

static void put_symbols(Writer *w, Elf *e, uint32_t locals, uint32_t strtab) {
  Buf tab = {.arena = e->arena}, names = {.arena = e->arena};
  Elf64_Sym *all = NEWN(e->arena, Elf64_Sym, e->symbols.n);
  buf_char(&names, 0);
  for (uint32_t i = 1; i < e->symbols.n; i++) {
    Symbol *s = &e->symbols.at[i];
    all[s->at] = s->sym;
    all[s->at].st_name = *s->name ? (Elf64_Word)names.n : 0;
    if (*s->name) buf_add(&names, s->name, strlen(s->name) + 1);
  }
  buf_add(&tab, (const char *)all, e->symbols.n * sizeof *all);
  put(w, e->arena, ".symtab", head(SHT_SYMTAB, strtab, locals, sizeof *all, 8),
      &tab);
  put(w, e->arena, ".strtab", head(SHT_STRTAB, 0, 0, 0, 1), &names);
}

static void write(Elf *e, const Part *parts, uint32_t n, Buf *out) {
  Writer w = {.out = out, .start = out->n, .names = {.arena = e->arena}};
  Elf64_Ehdr h = *parts[0].head;
  uint32_t locals = number_symbols(e), nrela = 0;
  Buf *rela = NEWN(e->arena, Buf, e->sections.n + 1);
  for (uint32_t i = 0; i < e->sections.n; i++) {
    rela[i] = relocations(e, parts, n, i + 1);
    nrela += rela[i].n > 0;
  }
  uint32_t symtab = 1 + e->sections.n + nrela;
  fill(out, w.start + sizeof h, 0);
  put(&w, e->arena, "", (Elf64_Shdr){0}, NULL);
  w.heads.at[0].sh_offset = 0;
  for (uint32_t i = 0; i < e->sections.n; i++) {
    const Section *s = &e->sections.at[i];
    put(&w, e->arena, s->name, s->head,
        s->head.sh_type == SHT_NOBITS ? NULL : &s->bytes);
  }
  for (uint32_t i = 0; i < e->sections.n; i++)
    if (rela[i].n)
      put(&w, e->arena,
          arena_printf(e->arena, ".rela%s", e->sections.at[i].name),
          head(SHT_RELA, symtab, i + 1, sizeof(Elf64_Rela), 8), &rela[i]);
  put_symbols(&w, e, locals, symtab + 1);
  // The names have to have their own section's name before they are written.
  uint32_t own = w.names.n;
  buf_add(&w.names, ".shstrtab", sizeof ".shstrtab");
  Buf names = w.names;
  w.names.n = own;
  put(&w, e->arena, ".shstrtab", head(SHT_STRTAB, 0, 0, 0, 1), &names);
  fill(out, w.start + (out->n - w.start + 7) / 8 * 8, 0);
  h.e_shoff = out->n - w.start;
  h.e_shnum = (Elf64_Half)w.heads.n;
  h.e_shstrndx = (Elf64_Half)(w.heads.n - 1);
  buf_add(out, (const char *)w.heads.at, w.heads.n * sizeof *w.heads.at);
  memcpy(out->at + w.start, &h, sizeof h);
}

static bool merge_notes(Elf *e, CgNotes *notes) {
  bool ok = true;
  for (uint32_t i = 0; notes && i < e->sections.n; i++)
    if (e->sections.at[i].head.sh_type == SHT_NOTE)
      ok &= notes(e->arena, &e->sections.at[i].bytes);
  return ok;
}

bool cg_elf_merge(Arena *a, const CgPart *in, uint32_t n, CgNotes *notes,
                  Buf *out) {
  Elf e = {.arena = a, .globals = {.arena = a}};
  Part *parts = NEWN(a, Part, n);
  push_symbol(&e, "", (Elf64_Sym){0}, true);
  for (uint32_t k = 0; k < n; k++) {
    Part *p = &parts[k];
    p->at = in[k].at;
    p->head = (const Elf64_Ehdr *)p->at;
    p->sec = (const Elf64_Shdr *)(p->at + p->head->e_shoff);
    assert(p->head->e_type == ET_REL &&
           p->head->e_ident[EI_CLASS] == ELFCLASS64);
    p->section = NEWN(a, uint32_t, p->head->e_shnum);
    p->moved = NEWN(a, uint64_t, p->head->e_shnum);
    for (uint32_t i = 0; i < p->head->e_shnum; i++)
      if (is_content(&p->sec[i])) add_section(&e, p, i);
  }
  for (uint32_t k = 0; k < n; k++) add_symbols(&e, &parts[k], k == 0);
  if (!merge_notes(&e, notes)) return false;
  write(&e, parts, n, out);
  return true;
}
