// Recorder: the allocations and frees of one step in order, with marks between its segments.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "torch/work_clock.h"

namespace pudica::hooks {

enum class MarkKind : std::uint8_t {
  kStepBegin,
  kForwardBegin,    // layer
  kForwardEnd,      // layer
  kBorder,          // gradient of layer's output complete: its backward begins
  kInputBorder,     // gradient of layer's input complete: that of the gap before it begins
  kHandover,        // the backward has come to a forward before this step's
  kBackwardEnd,     // the engine's pass is over
  kRecomputeBegin,  // layer
  kRecomputeEnd,    // layer
  kStepEnd,
};

struct Mark {
  MarkKind kind = MarkKind::kStepBegin;
  std::int32_t layer = -1;
  std::int64_t event = 0;  // events recorded before it
  WorkInstant time;
  std::int32_t steps_before = 0;  // > 0: of a forward that waited for the backward of this step's
};

// Filled by whatever thread allocates; read by the training thread after the step. Events beyond
// the capacity are dropped and overflowed() says so.
class Recorder {
 public:
  static constexpr std::int64_t kNone = -1;

  explicit Recorder(std::size_t event_capacity);

  void clear();
  // What marks read from now on. The training thread, between steps.
  void set_timer(WorkTimer timer);
  // delta: bytes allocated (+) or freed (-) at `data`. Lock-free.
  void event(std::int64_t delta, const void* data) {
    const std::int64_t index = count_.fetch_add(1, std::memory_order_relaxed);
    if (index < static_cast<std::int64_t>(events_.size())) {
      events_[static_cast<std::size_t>(index)] = delta;
      places_[static_cast<std::size_t>(index)].store(data, std::memory_order_relaxed);
    }
    if (delta < 0 && watching_.load(std::memory_order_acquire) > 0) note_freed(data, index);
  }
  // From now on the event that frees `data` will be known, the first one; the training thread. No
  // more than kMostWatched: others are passed over. Returns the watch's number.
  static constexpr std::size_t kMostWatched = 512;
  std::size_t watch(const void* data);
  // The event that freed what was watched there last; kNone: it is live, or was not watched.
  [[nodiscard]] std::int64_t freed_at(const void* data) const;
  // The same of one watch: what was watched at that address before and since does not count.
  [[nodiscard]] std::int64_t freed_at(std::size_t watch) const;
  // Whether what lies at `data` now was allocated between the marks of that layer's forward; the
  // training thread, of what it allocated itself.
  [[nodiscard]] bool was_made_by(std::int32_t layer, const void* data) const;
  void mark(MarkKind kind, std::int32_t layer, std::int32_t steps_before = 0);
  // What the user held of the step before is freed; the first call after clear() counts. Lock-free.
  void forward_returned() {
    std::int64_t none = kNone;
    returned_.compare_exchange_strong(none, count_.load(std::memory_order_relaxed));
  }
  // Events recorded before that; kNone: it did not happen.
  [[nodiscard]] std::int64_t returned() const { return returned_.load(); }

  [[nodiscard]] bool overflowed() const {
    return count_.load() > static_cast<std::int64_t>(events_.size());
  }
  [[nodiscard]] std::span<const std::int64_t> events(std::int64_t begin, std::int64_t end) const;
  // Where each of these events' memory lies, or lay.
  [[nodiscard]] std::span<const std::atomic<const void*>> places(std::int64_t begin,
                                                                 std::int64_t end) const;
  [[nodiscard]] std::vector<Mark> marks() const;

 private:
  struct Watched {
    std::atomic<const void*> data{nullptr};
    std::atomic<std::int64_t> freed_at{kNone};
  };
  void note_freed(const void* data, std::int64_t index);

  std::vector<std::int64_t> events_;
  std::unique_ptr<std::atomic<const void*>[]> places_;  // of the events; written where they are
  std::array<Watched, kMostWatched> watched_;
  std::atomic<std::size_t> watching_{0};
  std::atomic<std::int64_t> count_{0};
  std::atomic<std::int64_t> returned_{kNone};
  mutable std::mutex mutex_;
  WorkTimer timer_;          // guarded by mutex_
  std::vector<Mark> marks_;  // guarded by mutex_
};

// Where a meter's events go. Thread-safe: once set() returns, no thread writes to the recorder that
// was there before, and what they wrote is seen.
class RecorderSlot {
 public:
  void set(Recorder* recorder);

  [[nodiscard]] bool any() const { return recorder_.load(std::memory_order_relaxed) != nullptr; }
  void event(std::int64_t delta, const void* data) {
    write([delta, data](Recorder& recorder) { recorder.event(delta, data); });
  }
  void forward_returned() {
    write([](Recorder& recorder) { recorder.forward_returned(); });
  }

 private:
  template <typename F>
  void write(F&& call) {
    writers_.fetch_add(1);
    // Read after the writer counts: either set() waits for it, or it sees what set() left.
    if (Recorder* recorder = recorder_.load()) call(*recorder);
    writers_.fetch_sub(1);
  }

  std::atomic<Recorder*> recorder_{nullptr};
  std::atomic<int> writers_{0};
};

}  // namespace pudica::hooks
