// OffloadHabit: which of the tensors that a class's calls save are copied to the host. Where it is
// known the copies begin while the layer still runs, and its end waits for less.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace pudica::hooks {

// One a class. Thread-safe.
//
// A copy that began early holds what the tensor was when it was saved. Writes by operators are seen
// in every call (WriteWatch); others (through raw pointers) are not, so that copies count for
// nothing until all of a call's were seen to hold what was there at its end.
class OffloadHabit {
 public:
  // Ascending slots, each the last that saved its storage. None: copies begin when the layer ends.
  [[nodiscard]] std::vector<std::uint32_t> early_slots() const {
    const std::lock_guard lock(mutex_);
    return refused_ ? std::vector<std::uint32_t>() : slots_;
  }
  // Copies that began early are to be compared.
  [[nodiscard]] bool must_compare() const {
    const std::lock_guard lock(mutex_);
    return !trusted_;
  }

  // Of a call that ended: the slots as above, and how many of its early copies were seen to hold
  // what they should, of those that were compared.
  void learn(std::vector<std::uint32_t> slots, std::size_t compared, std::size_t equal) {
    const std::lock_guard lock(mutex_);
    if (slots != slots_) {
      slots_ = std::move(slots);
      trusted_ = false;
      refused_ = refused_ || ++doubts_ > kMostDoubts;
      return;
    }
    if (trusted_ || refused_) return;
    trusted_ = equal == slots_.size();
    refused_ = equal < compared || (!trusted_ && ++doubts_ > kMostDoubts);
  }

 private:
  static constexpr int kMostDoubts = 8;

  mutable std::mutex mutex_;
  std::vector<std::uint32_t> slots_;
  bool trusted_ = false;
  bool refused_ = false;  // for good
  int doubts_ = 0;
};

}  // namespace pudica::hooks
