# What `pip install .` puts into the package, beside the Python files: lib, bin (started by
# python/pudica_programs), share. Only in a build that scikit-build-core drives.
if(NOT SKBUILD)
  return()
endif()

find_program(PUDICA_CCACHE ccache)
if(PUDICA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  message(STATUS "pudica: compiling through ccache")
  foreach(target pudica_base pudica_predictor pudica_plan_cache pudica_planner pudica_controller
                 pudica_policy pudica_config pudica_inspect pudica_client pudica_view pudica_torch
                 pudica_torch_cuda pudica_python pudica_train pudica_train_core pudica_train_model
                 pudica_cli pudica_cli_core pudicad pudica_daemon_core)
    if(TARGET ${target})
      set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${PUDICA_CCACHE}")
    endif()
  endforeach()
endif()

# A package for this environment also finds its libraries where they were linked. One for others, a
# wheel, names no path of this machine; torch lies beside it.
option(PUDICA_PORTABLE "The package has no path of the machine that builds it" OFF)
set(link_paths ON)
if(PUDICA_PORTABLE)
  set(link_paths OFF)
endif()
set(torch_beside "$ORIGIN/../../torch/lib")
pudica_existing(libraries pudica_python pudica_torch pudica_torch_cuda)
set_target_properties(${libraries} PROPERTIES INSTALL_RPATH "$ORIGIN;${torch_beside}"
                                              INSTALL_RPATH_USE_LINK_PATH ${link_paths})
install(TARGETS ${libraries} LIBRARY DESTINATION pudica/lib COMPONENT python)
pudica_existing(programs pudica_train pudica_cli pudicad)
set_target_properties(${programs} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;${torch_beside}"
                                             INSTALL_RPATH_USE_LINK_PATH ${link_paths})
install(TARGETS ${programs} RUNTIME DESTINATION pudica/bin COMPONENT python)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/data" "${PROJECT_SOURCE_DIR}/configs"
        "${PROJECT_SOURCE_DIR}/python/startup"
        DESTINATION pudica/share/pudica COMPONENT python)
pudica_existing(stand_in emulated_device emulated_device_torch emulated_device_kernels)
if(stand_in)
  install(TARGETS ${stand_in} LIBRARY DESTINATION pudica/lib/emulated_device COMPONENT python)
endif()
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/_build.py"
     "\"\"\"Written by the build.\"\"\"\n\nTORCH_VERSION = \"${PUDICA_TORCH_VERSION}\"\n")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/_build.py" DESTINATION pudica COMPONENT python)

add_custom_target(pudica_package)
add_dependencies(pudica_package ${libraries} ${programs} ${stand_in})
