#include "torch/cuda_part.h"

#include <dlfcn.h>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace pudica::hooks {
namespace {

constexpr const char* kLibrary = "libpudica_torch_cuda.so";

// Where this library lies; empty: the linker's own search will have to do.
std::string folder_of_this_library() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&load_cuda_part), &here) == 0) return {};
  const std::string path = here.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
}

std::string load() {
  // Never closed: what it registers is used until the process ends.
  if (dlopen((folder_of_this_library() + kLibrary).c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) {
    return {};
  }
  const char* const why = dlerror();
  return why != nullptr ? why : std::string(kLibrary) + " cannot be loaded";
}

}  // namespace

const std::string& load_cuda_part() {
  static const std::string why_not = load();
  return why_not;
}

c10::Device with_index(c10::Device device) {
  if (device.is_cpu() || device.has_index()) return device;
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

}  // namespace pudica::hooks
