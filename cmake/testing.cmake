include(GoogleTest)

# A test program without tests of CTest's: pudica_add_test and pudica_run_emulated name those.
# pudica_add_test_program(NAME SOURCES sources... LIBRARIES targets...)
function(pudica_add_test_program name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES;SOURCES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main
                                        $<BUILD_INTERFACE:pudica_warnings>)
  # Tests are built once and run once. The two warnings are false alarms of g++ 12 (GCC bugs 105651
  # and 105562).
  target_compile_options(
    ${name} PRIVATE -O1 "$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-maybe-uninitialized>")
endfunction()

# pudica_add_test(NAME sources... LABELS unit LIBRARIES targets... [TIMEOUT seconds])
# One test program; each TEST in it becomes a CTest test.
function(pudica_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS;LIBRARIES;SOURCES;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  pudica_add_test_program(${name} SOURCES ${ARG_SOURCES} LIBRARIES ${ARG_LIBRARIES})
  gtest_discover_tests(
    ${name}
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${ARG_ENVIRONMENT}"
    DISCOVERY_TIMEOUT 120)
endfunction()

# pudica_run_emulated(PROGRAM [PREFIX emulated_] [FILTER tests] [ENVIRONMENT A=b...])
# The tests of a program on the emulated CUDA device, label emulated; may be repeated with another
# prefix and another environment. Nothing where there is none (builds for sanitizers).
function(pudica_run_emulated program)
  cmake_parse_arguments(ARG "" "PREFIX;FILTER;TIMEOUT" "ENVIRONMENT" ${ARGN})
  if(NOT TARGET emulated_device)
    return()
  endif()
  if(NOT ARG_PREFIX)
    set(ARG_PREFIX emulated_)
  endif()
  if(NOT ARG_FILTER)
    set(ARG_FILTER "*")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_dependencies(${program} emulated_device pudica_torch_cuda)
  set(runner env "PUDICA_EMULATED_DIR=$<TARGET_FILE_DIR:emulated_device>" ${ARG_ENVIRONMENT}
             "${PROJECT_SOURCE_DIR}/scripts/emulated" --)
  # As what a cross compiler's tests are run by: it is read where the tests are named, and no list
  # of variables comes through the properties whole.
  set_target_properties(${program} PROPERTIES CROSSCOMPILING_EMULATOR "${runner}")
  gtest_discover_tests(
    ${program}
    TEST_PREFIX ${ARG_PREFIX}
    TEST_FILTER "${ARG_FILTER}"
    TEST_LIST ${program}_${ARG_PREFIX}tests
    PROPERTIES LABELS emulated TIMEOUT ${ARG_TIMEOUT}
    DISCOVERY_TIMEOUT 120)
  set_property(TARGET ${program} PROPERTY CROSSCOMPILING_EMULATOR)
endfunction()

# The Python that tests run with: what PUDICA_PYTHON names, else the system's.
function(pudica_test_python result)
  set(python "${PUDICA_PYTHON}")
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
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
  set_property(
    TEST ${name}
    PROPERTY ENVIRONMENT "PUDICA_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
             "PYTHONPYCACHEPREFIX=${PROJECT_BINARY_DIR}/bytecode" ${ARG_ENVIRONMENT})
endfunction()
