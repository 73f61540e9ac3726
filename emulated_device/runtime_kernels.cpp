// The runtime: kernels are checked, counted and timed, and do nothing.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <cuda_runtime_api.h>

#include "emulated_device/address_space.h"
#include "emulated_device/costs.h"
#include "emulated_device/counts.h"
#include "emulated_device/fat_binary.h"
#include "emulated_device/settings.h"
#include "emulated_device/state.h"
#include "emulated_device/streams.h"

using namespace pudica::emulated;

namespace {

constexpr int kRegistersPerThread = 32;
constexpr std::size_t kSymbolBytes = 1 << 20;

struct Call {
  dim3 grid;
  dim3 block;
  std::size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Call> calls;

bool is_valid(dim3 grid, dim3 block) {
  const bool grid_fits = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.y <= unsigned{kGridSide} &&
                         grid.z <= unsigned{kGridSide};
  const unsigned threads = block.x * block.y * block.z;
  return grid_fits && threads > 0 && threads <= unsigned{kBlockThreads};
}

// A symbol of the device's has memory of its own here.
void* symbol_memory(const void* symbol) {
  static auto* symbols = new std::unordered_map<const void*, void*>;
  static auto* mutex = new std::mutex;
  const Guard guard(*mutex);
  void*& found = (*symbols)[symbol];
  if (found == nullptr) found = map_pages(kSymbolBytes, Access::kReadWrite);
  return found;
}

// Which binary a kernel came in.
class Kernels {
 public:
  void add(const void* function, const FatBinary& binary) {
    const Guard guard(mutex_);
    binaries_[function] = &binary;
  }
  int capability_of(const void* function) {
    const int card = settings().card.capability;
    const Guard guard(mutex_);
    const auto found = binaries_.find(function);
    return found == binaries_.end() ? card : found->second->capability_for(card);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, const FatBinary*> binaries_;
};

Kernels& kernels() {
  static auto* all = new Kernels;  // leaked: libraries are unloaded after static objects
  return *all;
}

}  // namespace

extern "C" {

// Programs hand their kernels in when they are loaded.
void** __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(new FatBinary(wrapper));
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** binary, const char* function, char*, const char*, int, void*,
                            void*, void*, void*, int*) {
  kernels().add(function, *reinterpret_cast<const FatBinary*>(binary));
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, std::size_t, int, int) {}
char __cudaInitModule(void**) { return 1; }

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared,
                                     cudaStream_t stream) {
  calls.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  if (calls.empty()) return say(cudaErrorMissingConfiguration);
  const Call& call = calls.back();
  *grid = call.grid;
  *block = call.block;
  *shared = call.shared;
  *static_cast<cudaStream_t*>(stream) = call.stream;
  calls.pop_back();
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void*, dim3 grid, dim3 block, void**, std::size_t,
                             cudaStream_t stream) {
  if (!is_valid(grid, block)) return say(cudaErrorInvalidConfiguration);
  launches().fetch_add(1, std::memory_order_relaxed);
  issue(stream, {threads_us(grid, block)});
  return cudaSuccess;
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** args,
                                        std::size_t shared, cudaStream_t stream) {
  return cudaLaunchKernel(function, grid, block, args, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** args) {
  return cudaLaunchKernel(function, config->gridDim, config->blockDim, args,
                          config->dynamicSmemBytes, config->stream);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                               std::size_t shared, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  *attributes = cudaFuncAttributes{};
  attributes->maxThreadsPerBlock = kBlockThreads;
  attributes->numRegs = kRegistersPerThread;
  attributes->ptxVersion = attributes->binaryVersion = kernels().capability_of(function);
  attributes->maxDynamicSharedSizeBytes = kBlockSharedBytes;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*,
                                                                   int block_size,
                                                                   std::size_t shared, unsigned) {
  const Limits limits = limits_of(settings().card.capability);
  int most = std::min(limits.blocks, limits.threads / std::max(1, block_size));
  if (shared > 0) {
    most = std::min(most, limits.shared_bytes / (static_cast<int>(shared) + kReservedSharedBytes));
  }
  *blocks = most;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int block_size, std::size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size,
                                                                shared, cudaOccupancyDefault);
}

cudaError_t cudaGetSymbolAddress(void** at, const void* symbol) {
  *at = symbol_memory(symbol);
  return cudaSuccess;
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes,
                               std::size_t offset, cudaMemcpyKind) {
  if (offset + bytes > kSymbolBytes) return say(cudaErrorInvalidValue);
  std::memcpy(static_cast<char*>(symbol_memory(symbol)) + offset, from, bytes);
  return cudaSuccess;
}

}  // extern "C"
