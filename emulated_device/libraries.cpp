#include "emulated_device/libraries.h"

#include <cstdio>
#include <dlfcn.h>
#include <string>

namespace pudica::emulated {
namespace {

std::string beside_us(const char* library) {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&symbol_beside_us), &self) == 0) return library;
  const std::string path = self.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + library;
}

}  // namespace

void* symbol_beside_us(const char* library, const char* symbol) {
  void* const handle = dlopen(beside_us(library).c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const found = handle == nullptr ? nullptr : dlsym(handle, symbol);
  if (found == nullptr) {
    const char* const why = dlerror();
    std::fprintf(stderr, "emulated device: without %s: %s\n", library, why != nullptr ? why : "");
  }
  return found;
}

bool is_loaded(const char* soname) {
  void* const library = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

}  // namespace pudica::emulated
