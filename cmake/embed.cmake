# Files as a part of the program.
#
# pudica_embed(OUT name=file...) adds the command that writes OUT, a C++ source that defines
# pudica::daemon::embedded_files() with every file under its name.
function(pudica_embed out)
  set(files)
  foreach(entry ${ARGN})
    string(REGEX REPLACE "^[^=]*=" "" file "${entry}")
    get_filename_component(file "${file}" ABSOLUTE)
    list(APPEND files "${file}")
  endforeach()
  # Bars: a list does not survive the command line.
  string(REPLACE ";" "|" entries "${ARGN}")
  set(script "${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake")
  add_custom_command(
    OUTPUT "${out}"
    COMMAND "${CMAKE_COMMAND}" "-DOUT=${out}" "-DENTRIES=${entries}"
            "-DFOLDER=${CMAKE_CURRENT_SOURCE_DIR}" -P "${script}"
    DEPENDS ${files} "${script}"
    VERBATIM)
endfunction()
