// Registry: the revocable frames of one device in forward order, and the revoking of them.
#pragma once

#include <cstdint>
#include <mutex>

#include "torch/meter.h"

namespace pudica::hooks {

class Frame;

// Revokes kept frames: least predicted recompute time per byte really freed, ties to the oldest; of
// a frame with a tape single tensors, the cheapest first (or by the rule of its session, again and
// again, the least score of all frames first). Never a frame in use; frames that the
// running backward has already read come last, once each (retained graphs). A revoked frame is
// never kept again, so that revoking always ends.
//
// Thread-safe. Lock order: registry, then frame by try_lock only; whoever holds the registry's
// mutex and is not revoking neither allocates nor frees.
class Registry {
 public:
  explicit Registry(Meter& meter) : meter_(meter) {}

  void add(Frame& frame);
  void remove(Frame& frame);

  // Frees at least `missing_bytes` if it can. False: nothing was freed. Re-entrant calls (a free
  // that allocates) return false.
  bool revoke(std::int64_t missing_bytes);

  // Revokes until `needed_bytes` more fit under the meter's cap; the first line of defence, called
  // at frame boundaries.
  void make_room(std::int64_t needed_bytes);

  [[nodiscard]] std::int64_t revocations() const { return revocations_.load(); }
  [[nodiscard]] std::int64_t listed_frames() const;

 private:
  // Single tensors of frames that give them up by a rule; then frames that the running backward has
  // not read, and those that it has.
  enum class Pass : std::uint8_t { kByRule, kUntouched, kTouched };

  [[nodiscard]] static bool eligible(const Frame& frame, Pass pass, int graph_task);
  static double price_of(Frame& frame, Pass pass);
  std::int64_t take_from(Frame& frame, Pass pass);
  std::int64_t revoke_pass(Pass pass, std::int64_t missing_bytes);

  Meter& meter_;
  mutable std::mutex mutex_;
  Frame* oldest_ = nullptr;
  Frame* newest_ = nullptr;
  std::uint64_t next_sequence_ = 0;
  std::atomic<std::int64_t> revocations_{0};
};

}  // namespace pudica::hooks
