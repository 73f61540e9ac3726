# Writes OUT, the C++ source that tells which revision of SOURCE was built; leaves it alone where it
# would not change. Run by every build: cmake -DSOURCE=... -DOUT=... -P write_revision.cmake.
cmake_policy(VERSION 3.25)
set(revision "")
set(modified false)
find_program(GIT git)
if(GIT)
  execute_process(COMMAND "${GIT}" rev-parse --show-toplevel HEAD WORKING_DIRECTORY "${SOURCE}"
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_QUIET)
  string(REGEX MATCH "^([^\n]*)\n([0-9a-f]+)\n" matched "${output}")
  file(REAL_PATH "${SOURCE}" real_source)
  # An exported tree inside of another repository has no revision.
  if(status EQUAL 0 AND matched AND CMAKE_MATCH_1 STREQUAL real_source)
    set(revision "${CMAKE_MATCH_2}")
    # Results are not what they measure.
    execute_process(
      COMMAND "${GIT}" status --porcelain --untracked-files=no -- . ":(exclude)bench/results"
      WORKING_DIRECTORY "${SOURCE}" OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      set(modified true)
    endif()
  endif()
endif()
file(
  CONFIGURE OUTPUT "${OUT}" @ONLY
  CONTENT
    "#include \"inspect/origin.h\"

namespace pudica {

BuildRevision build_revision() { return {\"@revision@\", @modified@}; }

}  // namespace pudica
")
