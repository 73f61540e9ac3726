#include "cuda/bits_kernels.h"

#include <array>
#include <map>
#include <mutex>
#include <string>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda.h>

#include "cuda/runtime_compiler.h"
#include "torch/cuda_part.h"

namespace pudica::hooks {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;  // more work goes round: fewer atomics at the end
constexpr std::int64_t kWordElements = 64;
constexpr std::int64_t kGroupsOfWord = kWordElements / lane::kElements;

std::int64_t whole_words(std::int64_t count) { return (count + kWordElements - 1) / kWordElements; }

unsigned blocks_for(std::int64_t groups) {
  const std::int64_t blocks = (groups + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

bool is_aligned(const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; }

// What of the driver is needed: it is there only where a device is.
struct Driver {
  decltype(&cuModuleLoadData) load = nullptr;
  decltype(&cuModuleGetFunction) find = nullptr;
  decltype(&cuLaunchKernel) launch = nullptr;
  decltype(&cuCtxGetCurrent) context = nullptr;
  decltype(&cuGetErrorString) text = nullptr;

  [[nodiscard]] bool is_complete() const {
    return load != nullptr && find != nullptr && launch != nullptr && context != nullptr &&
           text != nullptr;
  }

  void check(CUresult result, const char* what) const {
    if (result == CUDA_SUCCESS) return;
    const char* why = nullptr;
    text(result, &why);
    TORCH_CHECK(false, what, ": ", why != nullptr ? why : std::to_string(result));
  }
};

struct Kernels {
  std::array<CUfunction, 3> pack{};  // by the logarithm of an element's bytes
  std::array<CUfunction, 3> unpack{};
};

// Torch's own way to NVRTC and the driver: a library beside its own that needs both.
class KernelLoader {
 public:
  KernelLoader()
      : compiler_(RuntimeCompiler::open(
            folder_of_library(reinterpret_cast<const void*>(&c10::cuda::device_count)) +
            "libcaffe2_nvrtc.so")) {
    if (!compiler_) return;
    find(driver_.load, "cuModuleLoadData");
    find(driver_.find, "cuModuleGetFunction");
    find(driver_.launch, "cuLaunchKernel");
    find(driver_.context, "cuCtxGetCurrent");
    find(driver_.text, "cuGetErrorString");
  }

  [[nodiscard]] const Driver& driver() const { return driver_; }

  // Those of the current device, which is ready for the driver's calls then.
  Kernels kernels() {
    TORCH_CHECK(compiler_.has_value(), compiler_.error().message);
    TORCH_CHECK(driver_.is_complete(), "the driver has not all functions that are needed");
    enter_context();
    const std::lock_guard lock(mutex_);
    const auto device = c10::cuda::current_device();
    const auto known = loaded_.find(device);
    if (known != loaded_.end()) return known->second;
    CUmodule module = nullptr;  // stays loaded
    driver_.check(driver_.load(&module, image_for_current_device().c_str()), "cuModuleLoadData");
    Kernels kernels;
    for (std::size_t i = 0; i < kernels.pack.size(); ++i) {
      const std::string bytes = std::to_string(1U << i);
      find_kernel(kernels.pack[i], module, "pudica_pack_" + bytes);
      find_kernel(kernels.unpack[i], module, "pudica_unpack_" + bytes);
    }
    return loaded_.emplace(device, kernels).first->second;
  }

 private:
  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(compiler_->symbol(name));
  }

  void find_kernel(CUfunction& kernel, CUmodule module, const std::string& name) {
    driver_.check(driver_.find(&kernel, module, name.c_str()), name.c_str());
  }

  // A thread has none before its first call of the runtime: autograd's own may begin with
  // unpacking.
  void enter_context() const {
    CUcontext context = nullptr;
    driver_.check(driver_.context(&context), "cuCtxGetCurrent");
    if (context == nullptr) C10_CUDA_CHECK(cudaFree(nullptr));
  }

  static int attribute(cudaDeviceAttr which) {
    int value = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, c10::cuda::current_device()));
    return value;
  }

  // Compiled once for all devices of one capability.
  const std::string& image_for_current_device() {
    const int capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                           attribute(cudaDevAttrComputeCapabilityMinor);
    const auto known = images_.find(capability);
    if (known != images_.end()) return known->second;
    auto code = compiler_->compile(bits_source(), capability);
    TORCH_CHECK(code.has_value(), code.error().message);
    return images_.emplace(capability, std::move(code->image)).first->second;
  }

  Result<RuntimeCompiler> compiler_;
  Driver driver_;
  std::mutex mutex_;
  std::map<int, std::string> images_;
  std::map<c10::DeviceIndex, Kernels> loaded_;
};

KernelLoader& loader() {
  static auto* const instance = new KernelLoader;  // outlives whatever is destroyed at the end
  return *instance;
}

std::size_t logarithm(std::int64_t item_bytes) {
  return item_bytes == 1 ? 0 : item_bytes == 2 ? 1 : 2;
}

void launch(CUfunction kernel, std::int64_t groups, cudaStream_t stream, void** arguments) {
  const Driver& driver = loader().driver();
  driver.check(driver.launch(kernel, blocks_for(groups), 1, 1, kThreads, 1, 1, /*sharedMemBytes=*/0,
                             stream, arguments, nullptr),
               "cuLaunchKernel");
}

}  // namespace

void launch_pack(const void* in, Items items, void* out, FoundBits* found, cudaStream_t stream) {
  const CUfunction kernel = loader().kernels().pack[logarithm(items.item_bytes)];
  C10_CUDA_CHECK(cudaMemsetAsync(found, 0, sizeof(FoundBits), stream));
  std::int64_t groups = whole_words(items.count) * kGroupsOfWord;
  bool aligned = is_aligned(in);
  std::array<void*, 6> arguments{&in, &items.count, &groups, &aligned, &out, &found};
  launch(kernel, groups, stream, arguments.data());
}

void launch_unpack(const void* in, Items items, std::uint32_t value, void* out,
                   cudaStream_t stream) {
  const CUfunction kernel = loader().kernels().unpack[logarithm(items.item_bytes)];
  std::int64_t groups = (items.count + lane::kElements - 1) / lane::kElements;
  bool aligned = is_aligned(out);
  // The kernel reads as many of the value's bytes as an element has: the lowest, which come first.
  std::array<void*, 6> arguments{&in, &items.count, &groups, &aligned, &value, &out};
  launch(kernel, groups, stream, arguments.data());
}

}  // namespace pudica::hooks
