# attn_embed(out symbol prefix root glob): makes the C file `out` with the
# table `symbol` (see frontend/embed.h) that holds the files under `root` which
# match `glob`, named `prefix` + their path below `root`.
function(attn_embed out symbol prefix root glob)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${root}/${glob})
  list(SORT files)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DSYMBOL=${symbol}
            -DPREFIX=${prefix} -DROOT=${root} "-DFILES=${files}"
            -P ${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake
    DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake
    COMMENT "Embedding ${symbol}" VERBATIM)
endfunction()
