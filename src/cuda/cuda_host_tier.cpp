// The host tier of a CUDA device: pinned memory, and a stream of its own for each direction. The
// stream that computes is ordered behind the copies by events; the host never waits for one.
#include <atomic>
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

constexpr std::size_t kProbeBytes = std::size_t{16} << 20U;

struct Pool {
  std::int64_t capacity_bytes = 0;
  std::atomic<std::int64_t> in_use_bytes{0};
};

class PinnedCopy final : public HostCopy {
 public:
  PinnedCopy(std::shared_ptr<Pool> pool, at::DataPtr memory, std::size_t bytes)
      : pool_(std::move(pool)), memory_(std::move(memory)), bytes_(bytes) {}
  ~PinnedCopy() override { pool_->in_use_bytes.fetch_sub(static_cast<std::int64_t>(bytes_)); }
  PinnedCopy(const PinnedCopy&) = delete;
  PinnedCopy& operator=(const PinnedCopy&) = delete;

  [[nodiscard]] const at::DataPtr& memory() const { return memory_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Pool> pool_;
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
    waiting_bytes_ += static_cast<double>(bytes);
  }

  // Orders the current stream behind the copies. Seconds that they take where nothing hides them.
  double join() {
    if (waiting_bytes_ == 0) return 0;
    at::cuda::CUDAEvent copied;
    copied.record(stream_);
    copied.block(c10::cuda::getCurrentCUDAStream(stream_.device_index()));
    return std::exchange(waiting_bytes_, 0.0) / bytes_per_second_;
  }

  [[nodiscard]] const c10::cuda::CUDAStream& stream() const { return stream_; }

  // Waits for the device: once, when the tier is made.
  void measure(void* to, const void* from, cudaMemcpyKind kind) {
    at::cuda::CUDAEvent begin(cudaEventDefault);
    at::cuda::CUDAEvent end(cudaEventDefault);
    copy(to, from, kProbeBytes, kind);  // the first one sets up
    begin.record(stream_);
    copy(to, from, kProbeBytes, kind);
    end.record(stream_);
    end.synchronize();
    const double seconds = 1e-3 * static_cast<double>(begin.elapsed_time(end));
    if (seconds > 0) bytes_per_second_ = static_cast<double>(kProbeBytes) / seconds;
    waiting_bytes_ = 0;
  }

 private:
  c10::cuda::CUDAStream stream_;
  double waiting_bytes_ = 0;
  double bytes_per_second_ = 1e10;  // until it was measured
};

class CudaHostTier final : public HostTier {
 public:
  CudaHostTier(c10::DeviceIndex device, const OffloadOptions& options)
      : device_(device), pool_(std::make_shared<Pool>()), out_(device), back_(device) {
    pool_->capacity_bytes = options.host_bytes.count();
    if (pool_->capacity_bytes < static_cast<std::int64_t>(kProbeBytes)) return;
    const c10::cuda::CUDAGuard guard(device);
    const at::DataPtr pinned = at::getHostAllocator(at::kCUDA)->allocate(kProbeBytes);
    const at::DataPtr memory = c10::cuda::CUDACachingAllocator::get()->allocate(kProbeBytes);
    out_.measure(pinned.get(), memory.get(), cudaMemcpyDeviceToHost);
    back_.measure(memory.get(), pinned.get(), cudaMemcpyHostToDevice);
  }

  std::unique_ptr<HostCopy> store(const c10::Storage& storage) override {
    const std::lock_guard lock(mutex_);
    const c10::cuda::CUDAGuard guard(device_);
    const std::size_t bytes = storage.nbytes();
    if (!storage.device().is_cuda() || storage.device().index() != device_ || bytes == 0) {
      return nullptr;
    }
    const auto more = static_cast<std::int64_t>(bytes);
    if (pool_->in_use_bytes.load() + more > pool_->capacity_bytes) return nullptr;
    at::DataPtr pinned = at::getHostAllocator(at::kCUDA)->allocate(bytes);
    if (!pinned) return nullptr;
    out_.copy(pinned.get(), storage.data(), bytes, cudaMemcpyDeviceToHost);
    note_use(pinned, out_.stream());
    pool_->in_use_bytes.fetch_add(more);
    return std::make_unique<PinnedCopy>(pool_, std::move(pinned), bytes);
  }

  double fence() override {
    const std::lock_guard lock(mutex_);
    const c10::cuda::CUDAGuard guard(device_);
    return out_.join();
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
    return back_.join();
  }

  [[nodiscard]] std::int64_t in_use_bytes() const override { return pool_->in_use_bytes.load(); }

 private:
  c10::DeviceIndex device_;
  std::shared_ptr<Pool> pool_;
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
