# cmake -DOUT=file.cpp -DENTRIES=name=file|... -DFOLDER=dir -DFUNCTION=... -DHEADER=... -P
# embed_files.cmake: see embed.cmake.
string(REPLACE "|" ";" entries "${ENTRIES}")
set(arrays)
set(table)
set(number 0)
foreach(entry ${entries})
  string(REGEX MATCH "^([^=]*)=(.*)$" whole "${entry}")
  set(name "${CMAKE_MATCH_1}")
  get_filename_component(file "${CMAKE_MATCH_2}" ABSOLUTE BASE_DIR "${FOLDER}")
  get_filename_component(leaf "${file}" NAME)
  file(READ "${file}" hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR bytes "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," values "${hex}")
  string(REGEX REPLACE "(........................................................)" "\\1\n" values
                       "${values}")
  string(APPEND arrays "constexpr char kFile${number}[] = {\n${values}'\\0'};\n")
  string(APPEND table
         "    {\"${name}\", \"${leaf}\", std::string_view(kFile${number}, ${bytes})},\n")
  math(EXPR number "${number} + 1")
endforeach()
string(REGEX MATCH "^(.*)::([^:]+)$" whole "${FUNCTION}")
set(scope "${CMAKE_MATCH_1}")
set(function "${CMAKE_MATCH_2}")
file(WRITE "${OUT}"
     "// Written by cmake/embed_files.cmake.\n#include \"${HEADER}\"\n\n"
     "namespace ${scope} {\nnamespace {\n\n${arrays}\n"
     "constexpr EmbeddedFile kFiles[] = {\n${table}};\n\n}  // namespace\n\n"
     "std::span<const EmbeddedFile> ${function}() { return kFiles; }\n\n"
     "}  // namespace ${scope}\n")
