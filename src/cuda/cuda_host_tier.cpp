// The host tier of a CUDA device: pinned memory, and a stream of its own for each direction. The
// stream that computes is ordered behind the copies by events; the host never waits for one.
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "torch/host_tier.h"

namespace pudica::hooks {
namespace {

class CudaHostTier;

class PinnedCopy final : public HostCopy {
 public:
  PinnedCopy(std::shared_ptr<HostPool> pool, at::DataPtr memory, std::size_t bytes)
      : pool_(std::move(pool)), memory_(std::move(memory)), bytes_(bytes) {}
  ~PinnedCopy() override { pool_->give(static_cast<std::int64_t>(bytes_)); }
  PinnedCopy(const PinnedCopy&) = delete;
  PinnedCopy& operator=(const PinnedCopy&) = delete;

  [[nodiscard]] const at::DataPtr& memory() const { return memory_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  friend class CudaHostTier;
  std::shared_ptr<HostPool> pool_;
  at::DataPtr memory_;
  std::size_t bytes_;
};

// Pinned memory comes back to its allocator when the streams that it was noted for are done.
void note_use(const at::DataPtr& memory, const c10::cuda::CUDAStream& stream) {
  at::getHostAllocator(at::kCUDA)->record_event(memory.get(), memory.get_context(),
                                                stream.unwrap());
}

// One direction. Not thread-safe.
class CopyStream {
 public:
  explicit CopyStream(c10::DeviceIndex device)
      : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)) {}

  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    at::cuda::CUDAEvent computed;
    computed.record(c10::cuda::getCurrentCUDAStream(stream_.device_index()));
    computed.block(stream_);
    C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream_.stream()));
    begun_ = true;
  }

  // Orders the current stream behind the copies; only the device waits.
  void join() {
    if (!std::exchange(begun_, false)) return;
    at::cuda::CUDAEvent copied;
    copied.record(stream_);
    copied.block(c10::cuda::getCurrentCUDAStream(stream_.device_index()));
  }

  [[nodiscard]] const c10::cuda::CUDAStream& stream() const { return stream_; }

 private:
  c10::cuda::CUDAStream stream_;
  bool begun_ = false;
};

class CudaHostTier final : public HostTier {
 public:
  CudaHostTier(c10::DeviceIndex device, const OffloadOptions& options)
      : device_(device),
        pool_(std::make_shared<HostPool>(options.host_bytes)),
        out_(device),
        back_(device) {}

  std::unique_ptr<HostCopy> store(const c10::Storage& storage) override {
    const std::lock_guard lock(mutex_);
    const c10::cuda::CUDAGuard guard(device_);
    const std::size_t bytes = storage.nbytes();
    if (!storage.device().is_cuda() || storage.device().index() != device_ || bytes == 0) {
      return nullptr;
    }
    if (!pool_->take(static_cast<std::int64_t>(bytes))) return nullptr;
    // From here on the place is the copy's to give back.
    auto copy = std::make_unique<PinnedCopy>(pool_, at::DataPtr(), bytes);
    copy->memory_ = at::getHostAllocator(at::kCUDA)->allocate(bytes);
    if (!copy->memory_) return nullptr;
    out_.copy(copy->memory_.get(), storage.data(), bytes, cudaMemcpyDeviceToHost);
    note_use(copy->memory_, out_.stream());
    return copy;
  }

  bool holds(const HostCopy& copy, const c10::Storage& storage) override {
    const auto& held = static_cast<const PinnedCopy&>(copy);
    if (held.bytes() != storage.nbytes()) return false;
    const std::lock_guard lock(mutex_);
    const c10::cuda::CUDAGuard guard(device_);
    const at::DataPtr now = at::getHostAllocator(at::kCUDA)->allocate(held.bytes());
    out_.copy(now.get(), storage.data(), held.bytes(), cudaMemcpyDeviceToHost);
    out_.stream().synchronize();  // it was behind the copy that is compared
    return std::memcmp(now.get(), held.memory().get(), held.bytes()) == 0;
  }

  double fence() override {
    const std::lock_guard lock(mutex_);
    const c10::cuda::CUDAGuard guard(device_);
    out_.join();
    return 0;
  }

  c10::Storage load(const HostCopy& copy) override {
    const auto& from = static_cast<const PinnedCopy&>(copy);
    const c10::cuda::CUDAGuard guard(device_);
    // Before the lock: it may make room, which drops what came ahead and joins.
    c10::Storage storage(c10::Storage::use_byte_size_t(), from.bytes(),
                         c10::cuda::CUDACachingAllocator::get());
    const std::lock_guard lock(mutex_);
    back_.copy(storage.mutable_data(), from.memory().get(), from.bytes(), cudaMemcpyHostToDevice);
    note_use(from.memory(), back_.stream());
    return storage;
  }

  double arrive() override {
    const std::lock_guard lock(mutex_);
    const c10::cuda::CUDAGuard guard(device_);
    back_.join();
    return 0;
  }

  [[nodiscard]] HostPool& pool() override { return *pool_; }

 private:
  c10::DeviceIndex device_;
  std::shared_ptr<HostPool> pool_;
  std::mutex mutex_;
  CopyStream out_;  // guarded by mutex_, like back_
  CopyStream back_;
};

std::shared_ptr<HostTier> cuda_host_tier(c10::Device device, const OffloadOptions& options) {
  const c10::DeviceIndex index = device.has_index() ? device.index() : c10::cuda::current_device();
  if (index < 0 || index >= c10::cuda::device_count()) return nullptr;
  return std::make_shared<CudaHostTier>(index, options);
}

[[maybe_unused]] const bool registered = [] {
  register_cuda_host_tier(&cuda_host_tier);
  return true;
}();

}  // namespace
}  // namespace pudica::hooks
