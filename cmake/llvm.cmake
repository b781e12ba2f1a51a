# ATTNC_LLVM: what to link for LLVM. A system's shared library; or, with
# ATTNC_STATIC_LLVM, the archives of what attnc uses, with the libraries that
# they need as archives too, so that the tools run where no LLVM is installed.
if(NOT ATTNC_STATIC_LLVM)
  set(ATTNC_LLVM LLVM)
  return()
endif()

find_program(ATTNC_LLVM_CONFIG llvm-config HINTS ${LLVM_TOOLS_BINARY_DIR} REQUIRED
             NO_DEFAULT_PATH)
execute_process(
  COMMAND ${ATTNC_LLVM_CONFIG} --link-static --libfiles
          x86 aarch64 nvptx amdgpu orcjit passes
  OUTPUT_VARIABLE files OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(files UNIX_COMMAND "${files}")
set(ATTNC_LLVM -Wl,--start-group ${files} -Wl,--end-group)
foreach(name stdc++ z zstd)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=lib${name}.a
                  OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE ${file})
    message(FATAL_ERROR "lib${name}.a is not found")
  endif()
  list(APPEND ATTNC_LLVM ${file})
endforeach()
list(APPEND ATTNC_LLVM -static-libgcc m ${CMAKE_DL_LIBS})
add_link_options(-Wl,--gc-sections -Wl,--exclude-libs,ALL)
