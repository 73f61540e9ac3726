include(GoogleTest)

# pudica_add_test(NAME sources... LABELS unit LIBRARIES targets... [TIMEOUT seconds])
# One test program; each TEST in it becomes a CTest test.
function(pudica_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS;LIBRARIES;SOURCES;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main
                                        $<BUILD_INTERFACE:pudica_warnings>)
  gtest_discover_tests(
    ${name}
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${ARG_ENVIRONMENT}"
    DISCOVERY_TIMEOUT 120)
endfunction()
