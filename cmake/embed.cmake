# Files as a part of the program.
#
# pudica_embed(OUT FUNCTION pudica::module::function HEADER module/header.h FILES name=file...) adds
# the command that writes OUT, a C++ source that defines the function, declared in the header as
# std::span<const EmbeddedFile> function(): every file under its name, in this order.
function(pudica_embed out)
  cmake_parse_arguments(ARG "" "FUNCTION;HEADER" "FILES" ${ARGN})
  set(files)
  foreach(entry ${ARG_FILES})
    string(REGEX REPLACE "^[^=]*=" "" file "${entry}")
    get_filename_component(file "${file}" ABSOLUTE)
    list(APPEND files "${file}")
  endforeach()
  # Bars: a list does not survive the command line.
  string(REPLACE ";" "|" entries "${ARG_FILES}")
  set(script "${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake")
  add_custom_command(
    OUTPUT "${out}"
    COMMAND "${CMAKE_COMMAND}" "-DOUT=${out}" "-DENTRIES=${entries}"
            "-DFOLDER=${CMAKE_CURRENT_SOURCE_DIR}" "-DFUNCTION=${ARG_FUNCTION}"
            "-DHEADER=${ARG_HEADER}" -P "${script}"
    DEPENDS ${files} "${script}"
    VERBATIM)
endfunction()
