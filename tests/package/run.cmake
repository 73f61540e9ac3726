# Installs, then configures, builds and runs the outside project. Any failure is fatal.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${status}): ${command}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
set(prefix "${WORK_DIR}/prefix")
set(components core)
if(COMPONENT STREQUAL "torch")
  list(APPEND components torch)
endif()
foreach(component ${components})
  run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${prefix}" --component
      pudica_${component})
endforeach()
foreach(file LICENSE NOTICE)
  if(NOT EXISTS "${prefix}/share/doc/pudica/${file}")
    message(FATAL_ERROR "share/doc/pudica/${file} is not installed")
  endif()
endforeach()
run("${CMAKE_COMMAND}" -G "${GENERATOR}" -S "${OUTSIDE_DIR}" -B "${WORK_DIR}/build"
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCOMPONENT=${COMPONENT}")
run("${CMAKE_COMMAND}" --build "${WORK_DIR}/build")
run("${WORK_DIR}/build/outside")
