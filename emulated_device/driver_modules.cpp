// The driver: modules of compiled kernels. Which code they hold is not looked at: a kernel is its
// name, and runs on the host where host_kernels.h has it.
#include <cstddef>
#include <string>
#include <utility>

#include <cuda.h>

#include "emulated_device/costs.h"
#include "emulated_device/counts.h"
#include "emulated_device/host_kernels.h"
#include "emulated_device/libraries.h"
#include "emulated_device/streams.h"

using namespace pudica::emulated;

namespace {

struct Module {};
struct Function {
  std::string name;
};

BindKernel find_binder() {
  static const auto found = reinterpret_cast<BindKernel>(
      symbol_beside_us("libemulated_device_kernels.so", "emulated_device_bind_kernel"));
  return found;
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  if (image == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  *module = reinterpret_cast<CUmodule>(new Module);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleUnload(CUmodule module) {
  delete reinterpret_cast<Module*>(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  *function = reinterpret_cast<CUfunction>(new Function{name});  // as long as its module: for good
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                        CUstream stream, void** arguments, void**) {
  Work work{threads_us(dim3(grid_x, grid_y, grid_z), dim3(block_x, block_y, block_z))};
  if (const BindKernel bind_kernel = find_binder(); bind_kernel != nullptr) {
    bind_kernel(reinterpret_cast<Function*>(function)->name.c_str(), arguments, &work.act);
  }
  launches().fetch_add(1, std::memory_order_relaxed);
  issue(stream, std::move(work));
  return CUDA_SUCCESS;
}

}  // extern "C"
