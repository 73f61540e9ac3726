#include "cuda/runtime_compiler.h"

#include <algorithm>
#include <array>
#include <dlfcn.h>
#include <string_view>
#include <vector>

namespace pudica::hooks {
namespace {

Error unavailable(std::string message) {
  return Error{ErrorCode::kUnavailable, std::move(message)};
}

}  // namespace

Result<RuntimeCompiler> RuntimeCompiler::open(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return unavailable(why != nullptr ? why : library + " cannot be loaded");
  }
  RuntimeCompiler compiler(handle);
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(compiler.symbol(name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  Functions& nvrtc = compiler.nvrtc_;
  find(nvrtc.create, "nvrtcCreateProgram");
  find(nvrtc.compile, "nvrtcCompileProgram");
  find(nvrtc.destroy, "nvrtcDestroyProgram");
  find(nvrtc.log_size, "nvrtcGetProgramLogSize");
  find(nvrtc.log, "nvrtcGetProgramLog");
  find(nvrtc.cubin_size, "nvrtcGetCUBINSize");
  find(nvrtc.cubin, "nvrtcGetCUBIN");
  find(nvrtc.ptx_size, "nvrtcGetPTXSize");
  find(nvrtc.ptx, "nvrtcGetPTX");
  find(nvrtc.count, "nvrtcGetNumSupportedArchs");
  find(nvrtc.capabilities, "nvrtcGetSupportedArchs");
  find(nvrtc.text, "nvrtcGetErrorString");
  if (!missing.empty()) return unavailable(library + " has no " + missing);
  return compiler;
}

void* RuntimeCompiler::symbol(const char* name) const { return dlsym(library_, name); }

Error RuntimeCompiler::failed(const char* what, nvrtcResult result) const {
  return unavailable(std::string(what) + ": " + nvrtc_.text(result));
}

Result<RuntimeCompiler::Target> RuntimeCompiler::target_for(int capability) const {
  int count = 0;
  nvrtcResult result = nvrtc_.count(&count);
  if (result != NVRTC_SUCCESS) return failed("nvrtcGetNumSupportedArchs", result);
  std::vector<int> known(static_cast<std::size_t>(std::max(count, 0)));
  result = nvrtc_.capabilities(known.data());
  if (result != NVRTC_SUCCESS) return failed("nvrtcGetSupportedArchs", result);
  int below = 0;
  for (const int each : known) {
    if (each <= capability) below = std::max(below, each);
  }
  if (below == 0) {
    return unavailable("NVRTC knows no capability up to " + std::to_string(capability) +
                       ", the device's");
  }
  return Target{below, below != capability};
}

// The first line in which NVRTC says what is wrong; empty where it says nothing.
std::string RuntimeCompiler::first_complaint(nvrtcProgram program) const {
  std::size_t bytes = 0;
  if (nvrtc_.log_size(program, &bytes) != NVRTC_SUCCESS || bytes < 2) return {};
  std::string log(bytes, '\0');
  if (nvrtc_.log(program, log.data()) != NVRTC_SUCCESS) return {};
  return log.substr(0, log.find_first_of(std::string_view("\n\0", 2)));
}

Result<DeviceCode> RuntimeCompiler::compile_program(nvrtcProgram program, Target target) const {
  const std::string architecture = std::string("--gpu-architecture=") +
                                   (target.is_ptx ? "compute_" : "sm_") +
                                   std::to_string(target.capability);
  const std::array<const char*, 2> options{architecture.c_str(), "--std=c++17"};
  nvrtcResult result = nvrtc_.compile(program, static_cast<int>(options.size()), options.data());
  if (result != NVRTC_SUCCESS) {
    return failed("nvrtcCompileProgram", result).with_context(first_complaint(program));
  }
  DeviceCode code;
  code.is_ptx = target.is_ptx;
  std::size_t bytes = 0;
  result = (code.is_ptx ? nvrtc_.ptx_size : nvrtc_.cubin_size)(program, &bytes);
  if (result != NVRTC_SUCCESS) return failed("the size of what was compiled", result);
  code.image.resize(bytes);
  result = (code.is_ptx ? nvrtc_.ptx : nvrtc_.cubin)(program, code.image.data());
  if (result != NVRTC_SUCCESS) return failed("what was compiled", result);
  return code;
}

Result<DeviceCode> RuntimeCompiler::compile(std::span<const EmbeddedFile> files,
                                            int capability) const {
  const auto target = target_for(capability);
  if (!target) return target.error();
  std::vector<std::string> texts;  // with an end
  std::vector<std::string> names;
  for (const EmbeddedFile& file : files) {
    texts.emplace_back(file.content);
    names.emplace_back(file.name);
  }
  std::vector<const char*> headers;
  std::vector<const char*> header_names;
  for (std::size_t i = 1; i < files.size(); ++i) {
    headers.push_back(texts[i].c_str());
    header_names.push_back(names[i].c_str());
  }
  nvrtcProgram program = nullptr;
  const nvrtcResult created =
      nvrtc_.create(&program, texts.at(0).c_str(), names.at(0).c_str(),
                    static_cast<int>(headers.size()), headers.data(), header_names.data());
  if (created != NVRTC_SUCCESS) return failed("nvrtcCreateProgram", created);
  auto code = compile_program(program, *target);
  nvrtc_.destroy(&program);
  return code;
}

}  // namespace pudica::hooks
