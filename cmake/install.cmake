# What users of programs need, and the compiler: cmake --install build, or
# Debian packages by cpack -G DEB in the build folder.
#   attnc         the compiler, its passes one by one, the language server
#   libattn0      the shared runtime
#   libattn-dev   headers, the static runtime, pkg-config and CMake packages
#   python3-attn  the Python package
include(CMakePackageConfigHelpers)

install(TARGETS attnc attn-ls attn-opt RUNTIME COMPONENT compiler)
install(TARGETS attn_shared EXPORT attnc
        LIBRARY COMPONENT runtime NAMELINK_COMPONENT dev)
install(TARGETS attn EXPORT attnc ARCHIVE COMPONENT dev)
install(FILES runtime/attn.h runtime/attn_abi.h TYPE INCLUDE COMPONENT dev)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/attnc)
configure_package_config_file(cmake/attnc-config.cmake.in attnc-config.cmake
                              INSTALL_DESTINATION ${package_dir}
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(attnc-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/attnc-config.cmake
        ${CMAKE_BINARY_DIR}/attnc-config-version.cmake
        DESTINATION ${package_dir} COMPONENT dev)
install(EXPORT attnc NAMESPACE attnc:: FILE attnc-targets.cmake
        DESTINATION ${package_dir} COMPONENT dev)

# The prefix is that of the .pc file's own place, wherever it is moved to.
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" up "${up}")
configure_file(cmake/attn.pc.in attn.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/attn.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

if(EXISTS ${CMAKE_SOURCE_DIR}/tools/python/attn)
  install(DIRECTORY tools/python/attn DESTINATION lib/python3/dist-packages
          COMPONENT python PATTERN __pycache__ EXCLUDE)
endif()

# ---- packages
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "attnc developers <attnc@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_COMPONENTS_ALL compiler runtime dev python)
# row(component package section depends text)
function(row component package section depends text)
  string(TOUPPER ${component} up)
  set(CPACK_DEBIAN_${up}_PACKAGE_NAME ${package} PARENT_SCOPE)
  set(CPACK_DEBIAN_${up}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${up}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_COMPONENT_${up}_DESCRIPTION "${text}" PARENT_SCOPE)
endfunction()
row(compiler attnc devel "" "compiler for attention")
row(runtime libattn0 libs "" "runtime of compiled attention programs")
row(dev libattn-dev libdevel "libattn0 (= ${PROJECT_VERSION})"
    "headers and static library of libattn")
row(python python3-attn python "python3, libattn0 (= ${PROJECT_VERSION})"
    "compiled attention programs in Python")
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
# Symbols and shlibs files let other packages depend on this one.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_GENERATE_SHLIBS ON)
include(CPack)
