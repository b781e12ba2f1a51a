# What users of programs need, and the compiler: cmake --install build, or
# Debian packages by cpack -G DEB in the build folder.
#   attnc         the compiler, its passes one by one, the language server
#   libattn0      the shared runtime
#   attn-editors  syntax and client settings for Vim, Neovim and Emacs
#   libattn-dev   headers, the static runtime, pkg-config and CMake packages
#   python3-attn  the Python package
install(TARGETS attnc attn-ls attn-opt RUNTIME COMPONENT compiler)
# Manual pages and completion, of the tables of options.
set(pages ${CMAKE_BINARY_DIR}/manual)
set(printed)
find_program(GZIP gzip REQUIRED)
foreach(row man:attnc.1 bash:attnc.bash zsh:_attnc fish:attnc.fish)
  string(REPLACE ":" ";" row ${row})
  list(GET row 0 kind)
  list(GET row 1 file)
  add_custom_command(
    OUTPUT ${pages}/${file}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}
    COMMAND attnc --print=${kind} > ${pages}/${file}
    DEPENDS attnc)
  list(APPEND printed ${pages}/${file})
endforeach()
foreach(page ${pages}/attnc.1 docs/man/attn-ls.1 docs/man/attn-opt.1)
  get_filename_component(page ${page} ABSOLUTE)
  get_filename_component(file ${page} NAME)
  add_custom_command(OUTPUT ${pages}/${file}.gz
                     COMMAND ${GZIP} -9nc ${page} > ${pages}/${file}.gz
                     DEPENDS ${page})
  list(APPEND printed ${pages}/${file}.gz)
endforeach()
add_custom_target(manual ALL DEPENDS ${printed})
install(FILES ${pages}/attnc.1.gz ${pages}/attn-ls.1.gz ${pages}/attn-opt.1.gz
        DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT compiler)
set(shells ${CMAKE_INSTALL_DATAROOTDIR})
install(FILES ${pages}/attnc.bash DESTINATION ${shells}/bash-completion/completions
        RENAME attnc COMPONENT compiler)
install(FILES ${pages}/_attnc DESTINATION ${shells}/zsh/vendor-completions
        COMPONENT compiler)
install(FILES ${pages}/attnc.fish
        DESTINATION ${shells}/fish/vendor_completions.d COMPONENT compiler)

# Editors find these there by themselves.
install(DIRECTORY tools/editors/vim/
        DESTINATION ${shells}/vim/vimfiles COMPONENT editors)
install(DIRECTORY tools/editors/vim/
        DESTINATION ${shells}/nvim/site COMPONENT editors)
install(FILES tools/editors/emacs/attn-mode.el
        DESTINATION ${shells}/emacs/site-lisp COMPONENT editors)

# Debian's Python looks into lib/python3 of /usr, but of /usr/local into that of
# its version.
if(EXISTS ${CMAKE_SOURCE_DIR}/tools/python/attn)
  install(CODE "set(attn_package \"${CMAKE_SOURCE_DIR}/tools/python/attn\")"
          COMPONENT python)
  install(CODE [[
    set(attn_folder python3)
    if(CMAKE_INSTALL_PREFIX STREQUAL "/usr/local")
      execute_process(
        COMMAND /usr/bin/python3 -c
                "import sys; print('python%d.%d' % sys.version_info[:2])"
        OUTPUT_VARIABLE attn_found OUTPUT_STRIP_TRAILING_WHITESPACE)
      if(attn_found)
        set(attn_folder ${attn_found})
      endif()
    endif()
    file(INSTALL ${attn_package} TYPE DIRECTORY
         DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/${attn_folder}/dist-packages
         PATTERN __pycache__ EXCLUDE)
  ]] COMPONENT python)
endif()

# ---- packages
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(ATTNC_MAINTAINER "attnc developers <attnc@localhost>" CACHE STRING
    "Maintainer of the Debian packages")
set(CPACK_PACKAGE_CONTACT "${ATTNC_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_COMPONENTS_ALL compiler runtime dev python editors)
# row(component package section depends title text)
function(row component package section depends title text)
  string(TOUPPER ${component} up)
  set(CPACK_DEBIAN_${up}_PACKAGE_NAME ${package} PARENT_SCOPE)
  set(CPACK_DEBIAN_${up}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${up}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_COMPONENT_${up}_DESCRIPTION "${title}\n${text}" PARENT_SCOPE)
  # What Debian's policy wants of each.
  set(doc ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package})
  install(FILES ${CMAKE_BINARY_DIR}/debian/copyright
                ${CMAKE_BINARY_DIR}/debian/changelog.gz
          DESTINATION ${doc} COMPONENT ${component})
  file(READ cmake/overrides overrides)
  if(EXISTS ${CMAKE_SOURCE_DIR}/cmake/overrides-${component})
    file(READ cmake/overrides-${component} own)
    string(APPEND overrides "${own}")
  endif()
  file(WRITE ${CMAKE_BINARY_DIR}/debian/${package} "${overrides}")
  install(FILES ${CMAKE_BINARY_DIR}/debian/${package}
          DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/lintian/overrides
          COMPONENT ${component})
endfunction()
configure_file(cmake/copyright.in debian/copyright @ONLY)
configure_file(cmake/changelog.in debian/changelog @ONLY)
execute_process(COMMAND ${GZIP} -9nkf ${CMAKE_BINARY_DIR}/debian/changelog)
row(compiler attnc devel "" "compiler for attention"
    "Compiles attention and recurrences that are stated as index equations to
objects for CPUs, and to PTX and AMDGCN code. With a language server and a tool
that runs single passes.")
row(runtime libattn0 libs "" "runtime of compiled attention programs"
    "Loads and launches what attnc compiled, on the CPU, and on GPUs through their
drivers, which are opened when they are needed.")
row(dev libattn-dev libdevel "libattn0 (= ${PROJECT_VERSION})"
    "headers and static library of libattn"
    "For programs that call what attnc compiled, with pkg-config and CMake files.")
row(python python3-attn python "python3:any, libattn0 (= ${PROJECT_VERSION})"
    "compiled attention programs in Python"
    "Calls what attnc compiled with arrays of NumPy and PyTorch, compiles it, and
makes operators of PyTorch.")
set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS attnc)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS "python3-numpy, python3-torch")
row(editors attn-editors editors "" "editing .attn files"
    "Syntax, indentation and settings of the language server for Vim, Neovim and
Emacs. The server is part of package attnc.")
set(CPACK_DEBIAN_EDITORS_PACKAGE_RECOMMENDS attnc)
set(CPACK_DEBIAN_EDITORS_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_EDITORS_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
# Symbols and shlibs files let other packages depend on this one.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA
    ${CMAKE_SOURCE_DIR}/cmake/triggers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION TRUE)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
    WORLD_READ WORLD_EXECUTE)
include(CPack)
