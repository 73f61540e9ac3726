// Code for devices, compiled when it is needed by NVRTC, which every torch with CUDA brings.
#pragma once

#include <nvrtc.h>
#include <span>
#include <string>

#include "base/embedded.h"
#include "pudica/result.h"

namespace pudica::hooks {

struct DeviceCode {
  std::string image;
  bool is_ptx = false;  // else a cubin, for this capability alone
};

// Holds a library that is never closed. Thread-safe.
class RuntimeCompiler {
 public:
  // `library`: the path of NVRTC, or of a library that needs it (torch's libcaffe2_nvrtc).
  static Result<RuntimeCompiler> open(const std::string& library);

  // `capability`: 80 for 8.0. PTX of the newest one below it where NVRTC does not know it. The
  // first file is the program; it includes the others by their names.
  [[nodiscard]] Result<DeviceCode> compile(std::span<const EmbeddedFile> files,
                                           int capability) const;

  // Null: neither the library nor what it needs has it.
  [[nodiscard]] void* symbol(const char* name) const;

 private:
  struct Functions {
    decltype(&nvrtcCreateProgram) create = nullptr;
    decltype(&nvrtcCompileProgram) compile = nullptr;
    decltype(&nvrtcDestroyProgram) destroy = nullptr;
    decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
    decltype(&nvrtcGetProgramLog) log = nullptr;
    decltype(&nvrtcGetCUBINSize) cubin_size = nullptr;
    decltype(&nvrtcGetCUBIN) cubin = nullptr;
    decltype(&nvrtcGetPTXSize) ptx_size = nullptr;
    decltype(&nvrtcGetPTX) ptx = nullptr;
    decltype(&nvrtcGetNumSupportedArchs) count = nullptr;
    decltype(&nvrtcGetSupportedArchs) capabilities = nullptr;
    decltype(&nvrtcGetErrorString) text = nullptr;
  };
  struct Target {
    int capability = 0;
    bool is_ptx = false;
  };

  explicit RuntimeCompiler(void* library) : library_(library) {}
  [[nodiscard]] Error failed(const char* what, nvrtcResult result) const;
  [[nodiscard]] Result<Target> target_for(int capability) const;
  [[nodiscard]] Result<DeviceCode> compile_program(nvrtcProgram program, Target target) const;
  [[nodiscard]] std::string first_complaint(nvrtcProgram program) const;

  void* library_ = nullptr;
  Functions nvrtc_;
};

}  // namespace pudica::hooks
