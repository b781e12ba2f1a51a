# libattn as others find it: libraries, headers, the CMake package, pkg-config.
include(CMakePackageConfigHelpers)

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
