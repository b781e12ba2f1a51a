// What clang's lowering of setjmp and longjmp to exceptions of WebAssembly
// calls (LLVM, WebAssemblyLowerEmscriptenEHSjLj.cpp).
#include <setjmp.h>
#include <stdint.h>

// The frame that `call` stands for has set env at `label`.
void __wasm_setjmp(struct attn_jmp *env, uint32_t label, void *call) {
  env->call = call;
  env->label = label;
}

// The label, if env was set by that frame, else 0: it is thrown on.
uint32_t __wasm_setjmp_test(struct attn_jmp *env, void *call) {
  return env->call == call ? env->label : 0;
}

void __wasm_longjmp(struct attn_jmp *env, int value) {
  env->thrown.env = env;
  env->thrown.value = value ? value : 1;
  __builtin_wasm_throw(1, &env->thrown);  // 1: the tag of C's longjmp
}

// The exception that longjmp throws: a pointer to the jmp_buf and the value.
__asm__(".globl __c_longjmp\n"
        ".tagtype __c_longjmp i32\n"
        "__c_longjmp:\n");
