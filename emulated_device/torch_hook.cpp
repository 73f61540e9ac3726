#include "emulated_device/torch_hook.h"

#include <atomic>
#include <cstdio>
#include <dlfcn.h>
#include <string>

namespace pudica::emulated {
namespace {

constexpr const char* kLibrary = "libemulated_device_torch.so";

bool is_loaded(const char* soname) {
  void* library = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

std::string beside_us() {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&change_torch_once), &self) == 0) return kLibrary;
  const std::string path = self.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + kLibrary;
}

// false: not yet.
bool change_torch() {
  if (!is_loaded("libtorch_cpu.so") || !is_loaded("libtorch_cuda.so")) return false;
  void* library = dlopen(beside_us().c_str(), RTLD_NOW | RTLD_LOCAL);
  void* change = library == nullptr ? nullptr : dlsym(library, "emulated_device_change_torch");
  if (change == nullptr) {
    std::fprintf(stderr,
                 "emulated device: torch stays as it is, and what it compares is noise: %s\n",
                 dlerror());
    return true;
  }
  return reinterpret_cast<bool (*)()>(change)();
}

}  // namespace

void change_torch_once() {
  static std::atomic<bool> done{false};
  thread_local bool inside = false;
  if (done.load() || inside) return;
  inside = true;
  if (change_torch()) done.store(true);
  inside = false;
}

}  // namespace pudica::emulated
