# Warnings for our own code. An INTERFACE target, never exported: link it through
# $<BUILD_INTERFACE:pudica_warnings>.
add_library(pudica_warnings INTERFACE)
target_compile_options(
  pudica_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                            -Wno-missing-field-initializers
                            -Wnon-virtual-dtor -Woverloaded-virtual)
if(PUDICA_WERROR)
  target_compile_options(pudica_warnings INTERFACE -Werror)
endif()
