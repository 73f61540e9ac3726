# What pudica needs from the system. A miss is an error that names the Debian package.
function(pudica_find package debian)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "pudica needs ${package}: install it with  apt-get install ${debian}")
  endif()
endfunction()

# Debian's cpp-httplib has no CMake package: gives PkgConfig::httplib.
function(pudica_find_httplib)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(httplib QUIET IMPORTED_TARGET GLOBAL cpp-httplib)
  if(NOT httplib_FOUND)
    message(FATAL_ERROR
            "pudica needs cpp-httplib: install it with  apt-get install libcpp-httplib-dev")
  endif()
endfunction()

macro(pudica_dependencies)
  pudica_find(Eigen3 libeigen3-dev)
  pudica_find(fmt libfmt-dev)
  pudica_find(spdlog libspdlog-dev)
  pudica_find(nlohmann_json nlohmann-json3-dev)
  find_package(Threads REQUIRED)
  pudica_find_httplib()
  if(PUDICA_DAEMON)
    pudica_find(CLI11 libcli11-dev)
    pudica_find(SQLiteCpp libsqlitecpp-dev)
  endif()
  if(PUDICA_TESTS)
    pudica_find(GTest "libgtest-dev libgmock-dev")
  endif()
endmacro()

# Finds LibTorch in the calling directory only: its variables do not leak to the rest.
macro(pudica_find_torch)
  if(NOT PUDICA_CUDA AND NOT TARGET torch::cudart)
    # Torch's own targets need this name even where no CUDA toolkit is used.
    add_library(torch::cudart INTERFACE IMPORTED)
  endif()
  if(NOT DEFINED TORCH_CUDA_ARCH_LIST)
    set(TORCH_CUDA_ARCH_LIST 7.5 8.0 9.0+PTX)
  endif()
  set(CMAKE_CUDA_STANDARD 17)
  if(NOT Torch_DIR)
    if(NOT PUDICA_PYTHON)
      set(PUDICA_PYTHON "$ENV{PUDICA_PYTHON}")
    endif()
    if(NOT PUDICA_PYTHON AND SKBUILD)
      find_package(Python COMPONENTS Interpreter REQUIRED)
      set(PUDICA_PYTHON "${Python_EXECUTABLE}")
    endif()
    if(NOT PUDICA_PYTHON)
      message(FATAL_ERROR "pudica needs LibTorch 2.11 to 2.15: set PUDICA_PYTHON to a Python that "
                          "has torch (scripts/test makes one), or -DPUDICA_TORCH=OFF")
    endif()
    # Without PYTHONPATH first: pip's isolated builds hide the environment's torch behind it. With
    # it where the environment has none: the build has brought its own.
    foreach(environment "--unset=PYTHONPATH" "PYTHONPATH=$ENV{PYTHONPATH}")
      execute_process(
        COMMAND
          "${CMAKE_COMMAND}" -E env "${environment}" "${PUDICA_PYTHON}" -c
          "import torch, sys; sys.stdout.write(torch.utils.cmake_prefix_path)"
        OUTPUT_VARIABLE pudica_torch_prefix
        RESULT_VARIABLE pudica_torch_status
        ERROR_VARIABLE pudica_torch_error)
      if(pudica_torch_status EQUAL 0)
        break()
      endif()
    endforeach()
    if(NOT pudica_torch_status EQUAL 0)
      message(FATAL_ERROR "pudica needs LibTorch: ${PUDICA_PYTHON} cannot import torch: "
                          "${pudica_torch_error}")
    endif()
    list(APPEND CMAKE_PREFIX_PATH "${pudica_torch_prefix}")
  endif()
  find_package(Torch REQUIRED)
endmacro()
