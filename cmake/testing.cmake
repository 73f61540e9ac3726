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
  # Tests are built once and run once. The two warnings are false alarms of g++ 12 (GCC bugs 105651
  # and 105562).
  target_compile_options(
    ${name} PRIVATE -O1 "$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-maybe-uninitialized>")
  gtest_discover_tests(
    ${name}
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${ARG_ENVIRONMENT}"
    DISCOVERY_TIMEOUT 120)
endfunction()

# The Python that tests run with: what PUDICA_PYTHON (variable or environment) names, else the
# system's.
function(pudica_test_python result)
  set(python "${PUDICA_PYTHON}")
  if(NOT python)
    set(python "$ENV{PUDICA_PYTHON}")
  endif()
  if(NOT python)
    set(python python3)
  endif()
  set(${result} "${python}" PARENT_SCOPE)
endfunction()

# pudica_add_pytest(NAME SOURCE file.py LABELS unit [TIMEOUT seconds] [ENVIRONMENT A=b...])
# One CTest test a file of Python tests. Skipped, saying so, where Python has no pytest.
function(pudica_add_pytest name)
  cmake_parse_arguments(ARG "" "SOURCE;TIMEOUT" "LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  pudica_test_python(python)
  add_test(NAME ${name} COMMAND "${python}" "${PROJECT_SOURCE_DIR}/tests/support/run_pytest.py"
                                "${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SOURCE}")
  set_tests_properties(
    ${name}
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77 ENVIRONMENT
               "PUDICA_SOURCE_DIR=${PROJECT_SOURCE_DIR};PYTHONDONTWRITEBYTECODE=1")
  if(ARG_ENVIRONMENT)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${ARG_ENVIRONMENT})
  endif()
endfunction()
