# Build-time half of embed.cmake: writes ${OUT}.
set(arrays "")
set(rows "")
set(n 0)
foreach(file IN LISTS FILES)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  file(RELATIVE_PATH name ${ROOT} ${file})
  file(SIZE ${file} size)
  string(APPEND arrays
         "static const unsigned char file${n}[] = {${bytes}0};\n")
  string(APPEND rows
         "  {\"${PREFIX}${name}\", (const char *)file${n}, ${size}},\n")
  math(EXPR n "${n} + 1")
endforeach()
file(WRITE ${OUT}
     "#include \"frontend/embed.h\"\n${arrays}"
     "const EmbedFile ${SYMBOL}[] = {\n${rows}  {0, 0, 0}};\n")
