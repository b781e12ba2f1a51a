// setjmp for WebAssembly, which wasi-libc of Debian 12 lacks: clang turns calls
// (-wasm-enable-sjlj) into exceptions and the functions of setjmp.c.
#ifndef ATTNC_PAGE_SETJMP_H
#define ATTNC_PAGE_SETJMP_H

typedef struct attn_jmp {
  void *call;      // of the frame that set it
  unsigned label;  // of the place in it
  struct {
    void *env;
    int value;
  } thrown;
} jmp_buf[1];

int setjmp(jmp_buf) __attribute__((returns_twice));
_Noreturn void longjmp(jmp_buf, int);

#endif
