# What `pip install .` puts into the package: the libraries beside the Python files, the programs
# where pip puts scripts. Only in a build that scikit-build-core drives.
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

find_package(Python COMPONENTS Interpreter REQUIRED)
set(package "pudica")
set(site "lib/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/site-packages")
set_target_properties(pudica_python PROPERTIES INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH
                                               ON)
pudica_existing(libraries pudica_python pudica_torch pudica_torch_cuda)
install(TARGETS ${libraries} LIBRARY DESTINATION "${package}/lib" COMPONENT python)
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/_build.py"
     "\"\"\"Written by the build.\"\"\"\n\nTORCH_VERSION = \"${PUDICA_TORCH_VERSION}\"\n")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/_build.py" DESTINATION "${package}" COMPONENT python)

pudica_existing(programs pudica_train pudica_cli pudicad)
set_target_properties(
  ${programs}
  PROPERTIES
    INSTALL_RPATH
    "$ORIGIN/../${site}/pudica/lib;$ORIGIN/../${site}/torch/lib"
    INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS ${programs} RUNTIME DESTINATION "${SKBUILD_SCRIPTS_DIR}" COMPONENT python)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/data" "${PROJECT_SOURCE_DIR}/configs"
        DESTINATION "${SKBUILD_DATA_DIR}/share/pudica" COMPONENT python)

add_custom_target(pudica_package)
add_dependencies(pudica_package ${libraries} ${programs})
