// The CUDA meter: counts from the caching allocator's trace, caps by its memory fraction, revokes
// when it runs short. The user's own peak statistics are neither read nor reset.
//
// In use are the bytes of active blocks (allocated, or freed and waiting for a stream). The cap is
// on what the allocator has reserved from the device, because that is what kills a run.
#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include "torch/meter.h"
#include "torch/recorder.h"

namespace pudica::hooks {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

constexpr std::int64_t kMostDevices = 64;
// What a cache miss reserves at least for blocks above 1 MiB (the allocator's large buffer).
constexpr std::int64_t kLargeSegmentBytes = std::int64_t{20} << 20U;
constexpr std::int64_t kSegmentRoundingBytes = std::int64_t{2} << 20U;

class CudaMeter final : public Meter {
 public:
  explicit CudaMeter(c10::DeviceIndex device) : device_(device) {
    const auto stats = caching::getDeviceStats(device);
    in_use_.store(stats.active_bytes[kAll].current);
    reserved_.store(stats.reserved_bytes[kAll].current);
    peak_.store(in_use_.load());
    const c10::cuda::CUDAGuard guard(device);
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    total_bytes_ = static_cast<std::int64_t>(total_bytes);
  }

  [[nodiscard]] std::int64_t in_use_bytes() const override { return in_use_.load(); }
  [[nodiscard]] std::int64_t peak_bytes() const override { return peak_.load(); }
  void reset_peak() override { peak_.store(in_use_.load()); }

  void set_cap(std::int64_t cap_bytes, bool refuse) override {
    cap_.store(cap_bytes);
    const bool limit = refuse && cap_bytes > 0;
    if (limit) caching::emptyCache();
    if (!limit && !limited_) return;  // the user's own fraction stays as it is
    limited_ = limit;
    const double fraction =
        limit ? static_cast<double>(cap_bytes) / static_cast<double>(total_bytes_) : 1.0;
    caching::setMemoryFraction(std::min(1.0, fraction), device_);
  }
  [[nodiscard]] std::int64_t cap_bytes() const override { return cap_.load(); }
  [[nodiscard]] std::int64_t overruns() const override { return overruns_.load(); }
  [[nodiscard]] std::int64_t refusals() const override { return refusals_.load(); }
  void set_pressure_callback(PressureCallback callback) override {
    pressure_.set(std::move(callback));
  }
  void set_recorder(Recorder* recorder) override { recorder_.set(recorder); }

  // From the allocator's trace, under its lock: no allocation, no locks of ours.
  void trace(const caching::TraceEntry& entry) {
    const auto bytes = static_cast<std::int64_t>(entry.size_);
    switch (entry.action_) {
      case caching::TraceEntry::ALLOC:
        count(bytes, entry);
        break;
      case caching::TraceEntry::FREE_COMPLETED:
        count(-bytes, entry);
        break;
      case caching::TraceEntry::SEGMENT_ALLOC:
      case caching::TraceEntry::SEGMENT_MAP:
        if (reserved_.fetch_add(bytes) + bytes > cap_.load() && cap_.load() > 0) {
          overruns_.fetch_add(1);
        }
        break;
      case caching::TraceEntry::SEGMENT_FREE:
      case caching::TraceEntry::SEGMENT_UNMAP:
        reserved_.fetch_sub(bytes);
        break;
      case caching::TraceEntry::OOM:
        refusals_.fetch_add(1);
        break;
      default:
        break;
    }
  }

  // From the allocator on every cache miss, under its lock, with no word of the size wanted. If the
  // largest segment that was ever asked for still fits under the cap, there is nothing to do.
  bool on_cache_miss() {
    const auto callback = pressure_.get();
    const std::int64_t cap = cap_.load();
    if (callback == nullptr || cap <= 0) return false;
    const std::int64_t wanted = largest_segment();
    if (reserved_.load() + wanted <= cap) return false;
    return (*callback)(wanted);
  }

 private:
  static constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

  void count(std::int64_t delta, const caching::TraceEntry& entry) {
    const std::int64_t now = in_use_.fetch_add(delta) + delta;
    std::int64_t seen = peak_.load(std::memory_order_relaxed);
    while (now > seen && !peak_.compare_exchange_weak(seen, now)) {
    }
    std::int64_t largest = largest_block_.load(std::memory_order_relaxed);
    while (delta > largest && !largest_block_.compare_exchange_weak(largest, delta)) {
    }
    if (recorder_.any() && this_thread_is_recorded()) {
      recorder_.event(delta, reinterpret_cast<const void*>(entry.addr_));
    }
  }

  [[nodiscard]] std::int64_t largest_segment() const {
    const std::int64_t block = largest_block_.load();
    const std::int64_t rounded =
        (block + kSegmentRoundingBytes - 1) / kSegmentRoundingBytes * kSegmentRoundingBytes;
    return std::max(rounded, kLargeSegmentBytes);
  }

  c10::DeviceIndex device_;
  std::int64_t total_bytes_ = 0;
  bool limited_ = false;
  std::atomic<std::int64_t> in_use_{0};
  std::atomic<std::int64_t> peak_{0};
  std::atomic<std::int64_t> reserved_{0};
  std::atomic<std::int64_t> largest_block_{0};
  std::atomic<std::int64_t> cap_{0};
  std::atomic<std::int64_t> overruns_{0};
  std::atomic<std::int64_t> refusals_{0};
  PressureSlot pressure_;
  RecorderSlot recorder_;
};

std::array<std::atomic<CudaMeter*>, kMostDevices> meters{};  // leaked: they outlive the allocator

CudaMeter* find_meter(c10::DeviceIndex device) {
  if (device < 0 || device >= kMostDevices) return nullptr;
  return meters[static_cast<std::size_t>(device)].load();
}

class RevokeOnMiss final : public c10::FreeMemoryCallback {
 public:
  bool Execute() override {
    const bool capturing =
        c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
    if (capturing) return false;
    CudaMeter* meter = find_meter(c10::cuda::current_device());
    return meter != nullptr && meter->on_cache_miss();
  }
};

Meter* cuda_meter(c10::Device device) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const c10::DeviceIndex index = device.has_index() ? device.index() : c10::cuda::current_device();
  if (index < 0 || index >= kMostDevices || index >= c10::cuda::device_count()) return nullptr;
  if (CudaMeter* known = find_meter(index)) return known;
  // Before it there is no allocator to count for, nor one that a tracker could be attached to.
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  static bool attached = false;
  if (!attached) {
    caching::attachAllocatorTraceTracker([](const caching::TraceEntry& entry) {
      if (CudaMeter* meter = find_meter(entry.device_)) meter->trace(entry);
    });
    attached = true;
  }
  auto* meter = new CudaMeter(index);
  meters[static_cast<std::size_t>(index)].store(meter);
  return meter;
}

[[maybe_unused]] const bool registered = [] {
  register_cuda_meter(&cuda_meter);
  return true;
}();

}  // namespace
}  // namespace pudica::hooks

namespace c10 {
REGISTER_FREE_MEMORY_CALLBACK("pudica_revoke", pudica::hooks::RevokeOnMiss);
}  // namespace c10
