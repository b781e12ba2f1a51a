// Containers: a good one, every truncation, every flipped bit, hostile tables.
#include "expect.h"
#include "runtime/attn_abi.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct File {  // three sections, the middle one of an unknown kind
  attn_container_header head;
  attn_section table[3];
  char pad[8];
  char meta[16], other[16], ptx[16];
} File;

static void seal(File *f) {
  f->head.hash = attn_container_hash(f, (size_t)f->head.length);
}

static File good(void) {
  File f = {.head = {.major = ATTN_CONTAINER_MAJOR,
                     .minor = 9,
                     .length = sizeof f,
                     .nsections = 3,
                     .section_size = sizeof(attn_section)},
            .table = {{ATTN_SEC_META, 0, offsetof(File, meta), 9},
                      {999, 0, offsetof(File, other), 16},
                      {ATTN_SEC_PTX, ATTN_TARGET_SM(90, 1), offsetof(File, ptx),
                       0}},
            .meta = "{\"a\": 1}"};
  memcpy(f.head.magic, ATTN_MAGIC, 4);
  seal(&f);
  return f;
}

static int load(const void *p, size_t n) {
  attn_error e;
  attn_module *m = attn_module_load(NULL, p, n, &e);
  EXPECT(!m == (e.code != ATTN_OK));
  attn_module_close(m);
  return e.code;
}

static void sections(void) {
  File f = good();
  attn_error e;
  attn_module *m = attn_module_load(NULL, &f, sizeof f, &e);
  EXPECT(m != NULL && e.code == 0 && attn_module_count(m) == 2);
  attn_section_info s;
  EXPECT(!attn_module_section(m, 0, &s) && s.kind == ATTN_SEC_META);
  EXPECT(s.size == 9 && strcmp(s.data, "{\"a\": 1}") == 0);
  EXPECT(attn_module_section(m, 2, &s) == ATTN_E_ARGUMENT);
  EXPECT(!attn_module_find(m, ATTN_SEC_PTX, ATTN_TARGET_SM(90, 1), &s));
  EXPECT(s.size == 0);
  EXPECT(attn_module_find(m, ATTN_SEC_PTX, ATTN_TARGET_SM(80, 0), &s));
  attn_module_close(m);
  // At an odd address, with bytes behind it.
  static char odd[sizeof f + 9];
  memcpy(odd + 1, &f, sizeof f);
  EXPECT(load(odd + 1, sizeof f + 8) == ATTN_OK);
}

// Each damaged copy in its own heap block, so that sanitizers see any overrun.
static int load_copy(const void *p, size_t n) {
  char *copy = malloc(n ? n : 1);
  memcpy(copy, p, n);
  int code = load(copy, n);
  free(copy);
  return code;
}

static void damage(void) {
  File f = good();
  for (size_t n = 0; n < sizeof f; n++)
    EXPECT(load_copy(&f, n) == ATTN_E_FORMAT);
  for (size_t bit = 0; bit < 8 * sizeof f; bit++) {
    ((unsigned char *)&f)[bit / 8] ^= (unsigned char)(1 << bit % 8);
    int code = load_copy(&f, sizeof f);
    EXPECT(code == ATTN_E_FORMAT || (code == ATTN_E_ABI && bit / 16 == 2));
    ((unsigned char *)&f)[bit / 8] ^= (unsigned char)(1 << bit % 8);
  }
  EXPECT(load_copy(&f, sizeof f) == ATTN_OK);
}

// A writer with a right hash and wrong contents.
static void hostile(void) {
  static const struct {
    size_t at, size;
    uint64_t value;
  } bad[] = {
      {offsetof(File, table[0].offset), 8, 0},
      {offsetof(File, table[0].offset), 8, offsetof(File, meta) + 1},
      {offsetof(File, table[0].offset), 8, UINT64_MAX - 15},
      {offsetof(File, table[1].length), 8, 4096},
      {offsetof(File, table[1].length), 8, UINT64_MAX},
      {offsetof(File, table[2].offset), 8, (uint64_t)1 << 63},
      {offsetof(File, head.nsections), 4, 100},
      {offsetof(File, head.nsections), 4, UINT32_MAX},
      {offsetof(File, head.section_size), 4, 0},
      {offsetof(File, head.section_size), 4, 23},
      {offsetof(File, head.section_size), 4, UINT32_MAX},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    File f = good();
    memcpy((char *)&f + bad[i].at, &bad[i].value, bad[i].size);
    seal(&f);
    EXPECT(load_copy(&f, sizeof f) == ATTN_E_FORMAT);
  }
  File f = good();
  f.head.major++;
  seal(&f);
  EXPECT(load_copy(&f, sizeof f) == ATTN_E_ABI);
  f = good();
  f.head.nsections = 0;
  seal(&f);
  EXPECT(load_copy(&f, sizeof f) == ATTN_OK);
}

static void files(const char *path) {
  File f = good();
  attn_error e;
  FILE *out = fopen(path, "wb");
  EXPECT(out && fwrite(&f, sizeof f, 1, out) == 1 && !fclose(out));
  attn_module *m = attn_module_open(NULL, path, &e);
  EXPECT(m && attn_module_count(m) == 2);
  attn_module_close(m);
  remove(path);
  EXPECT(!attn_module_open(NULL, path, &e) && e.code == ATTN_E_IO);
  EXPECT(strstr(e.text, "No such file"));
  EXPECT(!attn_module_open(NULL, "/", &e) && e.code == ATTN_E_IO);
  EXPECT(!attn_module_open(NULL, NULL, &e) && e.code == ATTN_E_ARGUMENT);
  EXPECT(load(NULL, 0) == ATTN_E_ARGUMENT);
}

int main(int argc, char **argv) {
  sections();
  damage();
  hostile();
  if (argc > 1) files(argv[1]);
  return verdict();
}
