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
  if(NOT TARGET torch::cudart)
    # Torch's own targets need this name, and no toolkit is looked for where it exists.
    add_library(torch::cudart INTERFACE IMPORTED)
  endif()
  if(NOT Torch_DIR)
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
  if(TARGET torch_cuda_library)
    # Not by name: libtorch.so brings its own libtorch_cuda.so, so that what was built against a
    # torch with CUDA runs with one without.
    set(linked_with_it "$<TARGET_PROPERTY:torch_cuda,INTERFACE_LINK_LIBRARIES>")
    set_property(TARGET torch_cuda_library PROPERTY INTERFACE_LINK_LIBRARIES ${linked_with_it})
  endif()
endmacro()

# Gives pudica_cuda_runtime: torch's CUDA libraries, the runtime that they use, its headers and
# NVRTC's, as the packages beside torch (or a toolkit) bring them. No compiler for the device is
# needed. PUDICA_NVRTC_LIBRARY is for tests: torch knows its own. pudica_cuda_missing says what was
# not found; empty: nothing.
function(pudica_find_cuda)
  set(pudica_cuda_missing "" PARENT_SCOPE)
  set(torch_lib "${TORCH_INSTALL_PREFIX}/lib")
  if(NOT EXISTS "${torch_lib}/libtorch_cuda.so")
    set(pudica_cuda_missing "torch is not built for CUDA: no ${torch_lib}/libtorch_cuda.so"
        PARENT_SCOPE)
    return()
  endif()
  file(GLOB brought "${TORCH_INSTALL_PREFIX}/../nvidia/cu[0-9]*"
       "${TORCH_INSTALL_PREFIX}/../nvidia/cuda_runtime"
       "${TORCH_INSTALL_PREFIX}/../nvidia/cuda_nvrtc")
  set(places ${brought} "$ENV{CUDA_HOME}" /usr/local/cuda)
  find_path(PUDICA_CUDA_INCLUDE cuda_runtime_api.h PATHS ${places} PATH_SUFFIXES include
            NO_DEFAULT_PATH)
  find_path(PUDICA_NVRTC_INCLUDE nvrtc.h PATHS ${places} PATH_SUFFIXES include NO_DEFAULT_PATH)
  find_file(PUDICA_NVRTC_LIBRARY NAMES libnvrtc.so.13 libnvrtc.so.12 libnvrtc.so PATHS ${places}
            PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH)
  foreach(place ${places})
    file(GLOB runtimes "${place}/lib/libcudart.so*" "${place}/lib64/libcudart.so*")
    if(runtimes)
      list(GET runtimes 0 runtime)
      break()
    endif()
  endforeach()
  if(NOT PUDICA_CUDA_INCLUDE OR NOT PUDICA_NVRTC_INCLUDE OR NOT runtime)
    list(JOIN places ", " where)
    string(CONCAT missing "cuda_runtime_api.h, nvrtc.h and libcudart.so, in one of: ${where} "
                          "(pip's nvidia-cuda-runtime and nvidia-cuda-nvrtc)")
    set(pudica_cuda_missing "${missing}" PARENT_SCOPE)
    return()
  endif()
  add_library(pudica_cuda_runtime INTERFACE)
  target_include_directories(pudica_cuda_runtime SYSTEM INTERFACE "${PUDICA_CUDA_INCLUDE}"
                                                              "${PUDICA_NVRTC_INCLUDE}")
  target_link_libraries(pudica_cuda_runtime INTERFACE "${torch_lib}/libtorch_cuda.so"
                                                      "${torch_lib}/libc10_cuda.so" "${runtime}")
endfunction()
