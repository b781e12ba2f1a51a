// The functions of libtvm_ffi that calls look up.
#include "tvm.h"

#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT MockTvm mock_tvm;

// An object: a head of 24 bytes, then a DLTensor.
static struct {
  char head[24];
  DlTensor dl;
} object;

EXPORT void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *text);
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *text) {
  snprintf(mock_tvm.kind, sizeof mock_tvm.kind, "%s", kind);
  snprintf(mock_tvm.message, sizeof mock_tvm.message, "%s", text);
  mock_tvm.errors++;
}

EXPORT void *TVMFFIEnvGetStream(int32_t device, int32_t ordinal);
void *TVMFFIEnvGetStream(int32_t device, int32_t ordinal) {
  mock_tvm.device = device;
  mock_tvm.ordinal = ordinal;
  return &mock_tvm;
}

EXPORT int TVMFFIEnvTensorAlloc(const void *like, void **out);
int TVMFFIEnvTensorAlloc(const void *like, void **out) {
  if (mock_tvm.full) {
    TVMFFIErrorSetRaisedFromCStr("MemoryError", "the allocator is empty");
    return -1;
  }
  memcpy(&object.dl, like, sizeof object.dl);
  mock_tvm.bytes = object.dl.shape[0];
  object.dl.data = mock_tvm.room;
  mock_tvm.allocs++;
  *out = &object;
  return 0;
}

EXPORT int TVMFFIObjectDecRef(void *o);
int TVMFFIObjectDecRef(void *o) {
  mock_tvm.drops += o == &object;
  return 0;
}
