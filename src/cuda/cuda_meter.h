// The CUDA meter: counts from the caching allocator's trace, caps by its memory fraction, and makes
// room in front of it. The user's own peak statistics are neither read nor reset.
//
// In use are the bytes of active blocks (allocated, or freed and waiting for a stream), as the
// allocator rounds them. The cap is on what it has reserved from the device, because that is what
// kills a run.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include <c10/cuda/CUDACachingAllocator.h>

#include "base/atomic_max.h"
#include "cuda/block_size.h"
#include "cuda/pinned_pages.h"
#include "torch/forward_account.h"
#include "torch/meter.h"
#include "torch/recorder.h"

namespace pudica::hooks {

using TorchAllocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;

class CudaMeter final : public Meter {
 public:
  // `inner` is torch's own allocator, initialised. Throws c10::Error.
  CudaMeter(c10::DeviceIndex device, TorchAllocator& inner);

  [[nodiscard]] std::int64_t in_use_bytes() const override { return in_use_.load(); }
  [[nodiscard]] std::int64_t peak_bytes() const override { return peak_.load(); }
  void reset_peak() override;
  void set_cap(std::int64_t cap_bytes, bool refuse) override;
  [[nodiscard]] std::int64_t cap_bytes() const override { return cap_.load(); }
  [[nodiscard]] std::int64_t overruns() const override { return overruns_.load(); }
  [[nodiscard]] std::int64_t refusals() const override { return refusals_.load(); }
  void set_pressure_callback(PressureCallback callback) override {
    pressure_.set(std::move(callback));
  }
  void set_recorder(Recorder* recorder) override { recorder_.set(recorder); }
  void begin_forward(bool shares) override { forwards_.begin(shares); }
  void end_forward() override { forwards_.end(); }
  [[nodiscard]] std::int64_t held_bytes() const override { return forwards_.held_bytes(); }
  [[nodiscard]] std::int64_t returned_bytes() const override { return forwards_.returned_bytes(); }
  [[nodiscard]] std::optional<CacheBytes> cache_bytes() const override;
  void empty_cache() override { inner_.emptyCache(); }
  std::string expand_segments() override;

  // From the allocator's trace, under its lock: asks nothing of the allocator or the device.
  void trace(const c10::cuda::CUDACachingAllocator::TraceEntry& entry);
  // Counts what lived before the trace began. Once, by whoever made the meter.
  void count_what_is_there();

  // Runs `allocate`, which asks the allocator for `requested` bytes, under the cap: room is made
  // first where it would fail for sure, and after it has failed. Holds no lock meanwhile. Soft:
  // what does not fit goes through at last and is an overrun. Throws what `allocate` throws.
  template <typename Allocate>
  std::invoke_result_t<const Allocate&> under_cap(std::size_t requested, const Allocate& allocate) {
    if (requested == 0 || cap_.load(std::memory_order_relaxed) <= 0) return allocate();
    const std::int64_t bytes = block_bytes(requested);
    if (!is_doubtful(bytes) || is_capturing()) {
      try {
        auto block = allocate();
        if (is_near_peak()) sample();
        return block;
      } catch (const c10::OutOfMemoryError&) {  // others have the device, or the graph's pool
        if (is_capturing()) throw;
      }
      return again(bytes, allocate);
    }
    if (make_room(bytes) == Room::kNone && !refuse_.load()) {
      const Lifted lifted(*this);
      return allocate();
    }
    const std::int64_t given_back = given_back_.load();
    try {
      auto block = allocate();
      if (given_back_.load() != given_back) squeezes_.fetch_add(1);
      sample();
      return block;
    } catch (const c10::OutOfMemoryError&) {
    }
    return again(bytes, allocate);
  }

 private:
  enum class Room : std::uint8_t { kPerhaps, kNone };

  // While it lives the cap refuses nothing.
  class Lifted {
   public:
    explicit Lifted(CudaMeter& meter);
    ~Lifted();
    Lifted(const Lifted&) = delete;
    Lifted& operator=(const Lifted&) = delete;

   private:
    CudaMeter& meter_;
  };

  // After a failure, which has emptied the allocator's cache.
  template <typename Allocate>
  std::invoke_result_t<const Allocate&> again(std::int64_t bytes, const Allocate& allocate) {
    note_gap();
    std::int64_t wanted = segment_bytes(bytes);
    bool flushed = false;
    for (;;) {
      if (!revoke(wanted)) {
        if (flushed) break;
        // A fitting block may have been cached all the same (pytorch issue 189504).
        flushed = true;
        inner_.emptyCache();
      }
      try {
        auto block = allocate();
        sample();
        return block;
      } catch (const c10::OutOfMemoryError&) {
        wanted *= 2;
      }
    }
    if ((refuse_.load() && !fits_in_pages(bytes)) || !limits()) {
      refusals_.fetch_add(1);
      return allocate();  // throws the allocator's own words
    }
    const Lifted lifted(*this);
    return allocate();
  }

  [[nodiscard]] bool is_doubtful(std::int64_t bytes) const {
    return reserved_.load(std::memory_order_relaxed) + segment_bytes(bytes) >
           limit_.load(std::memory_order_relaxed);
  }
  // Below the cap after all, though not below what torch is told of it.
  [[nodiscard]] bool fits_in_pages(std::int64_t bytes) const;
  static bool is_capturing();
  [[nodiscard]] bool is_near_peak() const {
    const std::int64_t peak = peak_.load(std::memory_order_relaxed);
    return in_use_.load(std::memory_order_relaxed) >= peak - peak / 8;
  }
  Room make_room(std::int64_t bytes);
  bool revoke(std::int64_t missing_bytes);
  void sample();
  void note_gap();
  [[nodiscard]] bool limits() const { return limited_.load(); }
  void set_fraction(double fraction);
  void prefer_pages(bool preferred);
  void count(std::int64_t delta, std::size_t address);
  // Whatever `change` does to the pages that cannot be given back.
  template <typename Change>
  void repin(const Change& change) {
    const std::lock_guard lock(pages_mutex_);
    change(pages_);
    pinned_.store(pages_.bytes());
    raise_to(pinned_peak_, pages_.bytes());
  }

  c10::DeviceIndex device_;
  TorchAllocator& inner_;
  std::int64_t total_bytes_ = 0;
  std::atomic<std::int64_t> in_use_{0};
  std::atomic<std::int64_t> peak_{0};
  std::atomic<std::int64_t> reserved_{0};
  std::atomic<std::int64_t> reserved_peak_{0};
  std::atomic<std::int64_t> active_peak_{0};
  std::atomic<std::int64_t> pinned_{0};
  std::atomic<std::int64_t> pinned_peak_{0};
  std::atomic<std::int64_t> gap_at_cap_{0};
  std::atomic<std::int64_t> given_back_{0};  // to the device, ever
  std::atomic<std::int64_t> squeezes_{0};
  std::atomic<std::int64_t> cap_{0};
  std::atomic<std::int64_t> limit_{0};  // what torch is told, so that the cap holds
  std::atomic<bool> refuse_{false};
  std::atomic<std::int64_t> overruns_{0};
  std::atomic<std::int64_t> refusals_{0};
  std::mutex limit_mutex_;
  std::atomic<bool> limited_{false};  // written under limit_mutex_
  double users_fraction_ = 1;         // guarded by limit_mutex_, like the rest
  double fraction_ = 1;
  int lifts_ = 0;
  bool prefers_pages_ = false;
  std::int64_t in_use_at_snapshot_ = 0;  // the latest; written under the allocator's lock
  std::int64_t reserved_at_snapshot_ = 0;
  std::unordered_map<std::size_t, std::uint32_t> made_in_;  // guarded by the allocator's lock
  std::mutex pages_mutex_;            // innermost: taken under the allocator's lock
  PinnedPages pages_;                 // guarded by pages_mutex_
  std::atomic<bool> counted_{false};  // what was there before the trace
  ForwardAccount forwards_;
  PressureSlot pressure_;
  RecorderSlot recorder_;
};

// Null: none was made.
CudaMeter* find_cuda_meter(c10::DeviceIndex device);

}  // namespace pudica::hooks
