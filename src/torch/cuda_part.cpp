#include "torch/cuda_part.h"

#include <dlfcn.h>
#include <filesystem>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace pudica::hooks {
namespace {

constexpr const char* kLibrary = "libpudica_torch_cuda.so";

std::string load() {
  // Never closed: what it registers is used until the process ends.
  const std::string path =
      folder_of_library(reinterpret_cast<const void*>(&load_cuda_part)) + kLibrary;
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return {};
  const char* const why = dlerror();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return "this pudica was built without CUDA (there is no " + path + ")";
  }
  return why != nullptr ? why : std::string(kLibrary) + " cannot be loaded";
}

}  // namespace

const std::string& load_cuda_part() {
  static const std::string why_not = load();
  return why_not;
}

std::string folder_of_library(const void* symbol) {
  Dl_info there{};
  if (dladdr(symbol, &there) == 0) return {};
  const std::string path = there.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
}

c10::Device with_index(c10::Device device) {
  if (device.is_cpu() || device.has_index()) return device;
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

}  // namespace pudica::hooks
