// The CUDA part: a library of its own, so that this one serves a torch without CUDA too.
#pragma once

#include <string>

#include <c10/core/Device.h>

namespace pudica::hooks {

// Loads libpudica_torch_cuda from beside this library, once; it registers meter, clock, host tier
// and bits. Empty: it is there. Else why not. Thread-safe.
const std::string& load_cuda_part();

// The folder, with a slash at its end, of the library that has `symbol`. Empty: unknown; the
// linker's own search will have to do.
std::string folder_of_library(const void* symbol);

// With the index of the current device where `device` has none. The CUDA part must be there.
c10::Device with_index(c10::Device device);

}  // namespace pudica::hooks
