# Installation and the CMake package. Included last: it takes up the targets that exist by then.

# What users link: rows 0-2 of the layer table, without torch.
add_library(pudica INTERFACE)
add_library(pudica::pudica ALIAS pudica)
target_sources(
  pudica
  INTERFACE FILE_SET
            HEADERS
            BASE_DIRS
            "${PROJECT_SOURCE_DIR}/include"
            FILES
            "${PROJECT_SOURCE_DIR}/include/pudica/bytes.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/controller.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/layer_profile.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/mode.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/peak_model.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/plan_builder.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/step_costs.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/step_learner.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/plan.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/plan_cache.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/planner.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/eviction.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/policy.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/predictor.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/result.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/shape_key.h"
            "${PROJECT_SOURCE_DIR}/include/pudica/work_clock.h")

# The given targets that exist.
function(pudica_existing out)
  set(found)
  foreach(target ${ARGN})
    if(TARGET ${target})
      list(APPEND found ${target})
    endif()
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

pudica_existing(pudica_core_libraries pudica_base pudica_predictor pudica_plan_cache pudica_planner
                pudica_controller pudica_policy)
target_link_libraries(pudica INTERFACE ${pudica_core_libraries})
pudica_existing(pudica_programs pudica_train pudica_cli pudicad)
pudica_existing(pudica_torch_libraries pudica_torch)

set(PUDICA_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/pudica")
install(
  TARGETS pudica ${pudica_core_libraries}
  EXPORT pudicaCoreTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT pudica_core
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT pudica_core
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT pudica_core)
install(EXPORT pudicaCoreTargets NAMESPACE pudica:: DESTINATION "${PUDICA_PACKAGE_DIR}"
        COMPONENT pudica_core)

if(pudica_torch_libraries)
  # $ORIGIN for our own libraries, the link path for torch's.
  set_target_properties(pudica_torch PROPERTIES EXPORT_NAME torch INSTALL_RPATH "$ORIGIN"
                                                INSTALL_RPATH_USE_LINK_PATH ON)
  install(
    TARGETS ${pudica_torch_libraries}
    EXPORT pudicaTorchTargets
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT pudica_torch
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT pudica_torch)
  if(TARGET pudica_torch_cuda)  # loaded by the one beside it, never linked
    set_target_properties(pudica_torch_cuda PROPERTIES INSTALL_RPATH "$ORIGIN"
                                                       INSTALL_RPATH_USE_LINK_PATH ON)
    install(TARGETS pudica_torch_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
                                              COMPONENT pudica_torch)
  endif()
  install(EXPORT pudicaTorchTargets NAMESPACE pudica:: DESTINATION "${PUDICA_PACKAGE_DIR}"
          COMPONENT pudica_torch)
  install(FILES "${PROJECT_SOURCE_DIR}/include/pudica/torch.h"
          DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/pudica" COMPONENT pudica_torch)
endif()

if(pudica_programs)
  set_target_properties(
    ${pudica_programs}
    PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin"
               INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}" INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS ${pudica_programs} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
                                             COMPONENT pudica_programs)
endif()

# For `pudica rehearse`, which looks for it there. They find torch's libraries as torch has them.
pudica_existing(pudica_stand_in emulated_device emulated_device_torch emulated_device_kernels)
if(pudica_stand_in)
  install(TARGETS ${pudica_stand_in} LIBRARY DESTINATION lib/emulated_device
                                             COMPONENT pudica_programs)
endif()

foreach(page pudica_cli/pudica.1 pudica_train/pudica-train.1 pudicad/pudicad.8)
  string(REGEX MATCH "^(.*)/(.*[.](.))$" matched ${page})
  if(TARGET ${CMAKE_MATCH_1})
    install(FILES "${PROJECT_SOURCE_DIR}/docs/man/${CMAKE_MATCH_2}"
            DESTINATION "${CMAKE_INSTALL_MANDIR}/man${CMAKE_MATCH_3}" COMPONENT pudica_programs)
  endif()
endforeach()

# Units of a user, with the program where it is installed: below share they are found for every
# prefix whose share is among the data folders.
if(TARGET pudicad)
  install(
    CODE "
    set(units \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/systemd/user\")
    file(READ \"${PROJECT_SOURCE_DIR}/configs/pudicad.service\" unit)
    string(REPLACE \"ExecStart=/usr/bin/env pudicad\"
      \"ExecStart=\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/pudicad\" unit \"\${unit}\")
    file(WRITE \"\$ENV{DESTDIR}\${units}/pudicad.service\" \"\${unit}\")
    file(COPY \"${PROJECT_SOURCE_DIR}/configs/pudicad.socket\"
      DESTINATION \"\$ENV{DESTDIR}\${units}\")
    "
    COMPONENT pudica_programs)
endif()

include(CMakePackageConfigHelpers)
# The torch that was built against is tried first: another version's ABI differs.
set(PUDICA_TORCH_DIR "$CACHE{Torch_DIR}")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/pudicaConfig.cmake.in" "${PROJECT_BINARY_DIR}/pudicaConfig.cmake"
  INSTALL_DESTINATION "${PUDICA_PACKAGE_DIR}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/pudicaConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/pudicaConfig.cmake"
              "${PROJECT_BINARY_DIR}/pudicaConfigVersion.cmake"
        DESTINATION "${PUDICA_PACKAGE_DIR}" COMPONENT pudica_core)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/data" "${PROJECT_SOURCE_DIR}/configs"
                  "${PROJECT_SOURCE_DIR}/python/startup"
        DESTINATION "${CMAKE_INSTALL_DATADIR}/pudica" COMPONENT pudica_programs)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/NOTICE"
        DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/pudica" COMPONENT pudica_core)

# Everything an installation needs, without tests and benchmarks.
add_custom_target(pudica_installed)
pudica_existing(pudica_loaded pudica_torch_cuda)
set(pudica_built ${pudica_loaded} ${pudica_core_libraries} ${pudica_torch_libraries}
                 ${pudica_programs} ${pudica_stand_in})
add_dependencies(pudica_installed ${pudica_built})
