// Meter: what a device's memory is doing, and the cap on it. One per device, alive until the
// process ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

namespace pudica::hooks {

class Recorder;

// Called when an allocation does not fit under the cap: frees at least `missing_bytes` if it can.
// Returns false if nothing was freed. Must not allocate on the device. Owns what it needs: it may
// still run on one thread when another takes it away.
using PressureCallback = std::function<bool(std::int64_t missing_bytes)>;

// Holds a meter's callback. Thread-safe.
class PressureSlot {
 public:
  void set(PressureCallback callback);
  // Null: none. What the caller holds stays whole.
  [[nodiscard]] std::shared_ptr<const PressureCallback> get() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const PressureCallback> callback_;  // guarded by mutex_
};

// A caching allocator's own view, beside the bytes in use. Peaks are since the last reset_peak().
struct CacheBytes {
  std::int64_t reserved_bytes = 0;  // from the device, in use or cached
  std::int64_t reserved_peak_bytes = 0;
  std::int64_t active_peak_bytes = 0;  // of blocks, with what they have beyond what was asked for
  // What is reserved beyond the bytes in use and cannot be given back: what blocks have too much,
  // and holes between them. Measured where the peak was, and where the cap was reached.
  std::int64_t gap_bytes = 0;
  bool reached_cap = false;  // with nothing left to give up, or by an allocation that failed
  // Allocations that succeeded once the allocator had given back what it had cached, for which it
  // waits until the device is idle.
  std::int64_t squeezes = 0;
  // > 0: segments grow and shrink by pages of so many bytes. Holes hardly matter then, and one page
  // of the cap is never used: the allocator maps whole ones.
  std::int64_t page_bytes = 0;
};

// Counts bytes in use; enforces a cap by asking for room first. Thread-safe.
class Meter {
 public:
  virtual ~Meter() = default;

  [[nodiscard]] virtual std::int64_t in_use_bytes() const = 0;
  [[nodiscard]] virtual std::int64_t peak_bytes() const = 0;
  virtual void reset_peak() = 0;

  // cap_bytes <= 0: none. `refuse`: an allocation that does not fit throws c10::OutOfMemoryError;
  // else it goes through and counts as an overrun.
  virtual void set_cap(std::int64_t cap_bytes, bool refuse) = 0;
  [[nodiscard]] virtual std::int64_t cap_bytes() const = 0;
  [[nodiscard]] virtual std::int64_t overruns() const = 0;
  [[nodiscard]] virtual std::int64_t refusals() const = 0;

  // Null takes the callback away. The callback may run on any thread that allocates.
  virtual void set_pressure_callback(PressureCallback callback) = 0;
  // Null stops recording. No thread writes to the recorder before this one once it returns.
  virtual void set_recorder(Recorder* recorder) = 0;

  // A new step's forward: until a backward allocates or end_forward(), new blocks are this step's
  // own. Freed in a later step (an output that the user held until its next value) they are counted
  // but not recorded: that step's segments are not what freed them. `shares`: the forwards before
  // it wait for the same backward; what that frees of theirs is recorded (and not what
  // is freed before it: a loss that was left out goes with all of its graph).
  virtual void begin_forward(bool /*shares*/) {}
  virtual void end_forward() {}
  // Of the forward before this one: what lived on when this one began, and how much of that was
  // freed since, outside of backwards.
  [[nodiscard]] virtual std::int64_t held_bytes() const { return 0; }
  [[nodiscard]] virtual std::int64_t returned_bytes() const { return 0; }
  // All that counts: a loss or a norm may be held for longer.
  static bool nearly_all_returned(std::int64_t returned_bytes, std::int64_t held_bytes) {
    return returned_bytes >= held_bytes - held_bytes / 100;
  }

  // What the device's allocator makes of the bytes in use. Nothing: it holds no more than those.
  [[nodiscard]] virtual std::optional<CacheBytes> cache_bytes() const { return std::nullopt; }

  // Gives back to the device what is cached. Waits for the device.
  virtual void empty_cache() {}

  // New segments of its allocator grow and shrink by pages from now on, whatever was set. (Under a
  // cap they do unless the user's settings say otherwise.) Why not, where they cannot.
  virtual std::string expand_segments() { return "its allocator has no segments"; }

  // False: the block was made before the meter was installed, or elsewhere, and is not in its
  // count.
  [[nodiscard]] virtual bool has_counted(const c10::DataPtr& /*data*/) const { return true; }
  // Counts blocks that has_counted() denies in (or, negative, out again).
  virtual void add_uncounted(std::int64_t /*bytes*/) {}
};

// The meter of a device; installs it on first use. Null for devices that cannot be metered.
// A CUDA device is metered by pudica_torch_cuda, where that library is loaded.
Meter* meter_for(c10::Device device);
Meter& cpu_meter();

using MeterFactory = Meter* (*)(c10::Device device);
void register_cuda_meter(MeterFactory factory);

// True on a thread that is revoking: the bytes it frees belong to no segment of the step.
bool& this_thread_is_revoking();

// True on a thread that searches for a menu: what it allocates it frees again, and belongs to no
// segment either.
bool& this_thread_is_searching();

// Whether what this thread allocates and frees is recorded.
inline bool this_thread_is_recorded() {
  return !this_thread_is_revoking() && !this_thread_is_searching();
}

}  // namespace pudica::hooks
