// CacheComfort: what a plan had better leave free of a budget on reserved bytes beside the holes
// (GapHabit), so that the allocator's cache serves. Where it does not, though all would fit, the
// allocator waits for its device and gives all of its cache back, once a step with no more than the
// holes left free: 97 ms where 89 are enough (an H200, BERT-base at 96 rows, .4 of the range;
// docs/decisions/0036-a-cache-that-serves.md).
#pragma once

#include <algorithm>
#include <cstdint>

namespace pudica::hooks {

// In whole parts of the budget: another budget is another plan. Not thread-safe.
class CacheComfort {
 public:
  [[nodiscard]] std::int64_t bytes(std::int64_t cap_bytes) const {
    return parts_ * part_of(cap_bytes);
  }

  // A planned step that ended.
  struct Step {
    bool fits = true;                // some plan was within what it might use
    std::int64_t missing_bytes = 0;  // else: by so much the least was not
    bool as_planned = true;          // nothing was taken back, nothing failed
    bool squeezed = false;           // it waited for what it had freed itself
  };
  // Less is tried now and then; where that is missed, half as often from then on. A step that was
  // not as planned is squeezed for reasons of its own. Where this is why one did not fit, so much
  // is not left free again: it is better to wait than to go over the budget.
  void note(const Step& step, std::int64_t cap_bytes) {
    if (!step.fits) {
      note_misfit(std::max<std::int64_t>(1, step.missing_bytes), cap_bytes);
    } else if (step.as_planned && step.squeezed) {
      if (tried_less_) patience_ = std::min(2 * patience_, kMostPatience);
      tried_less_ = false;
      unsqueezed_ = 0;
      parts_ = std::min(parts_ + kMore, most_);
    } else if (step.as_planned && ++unsqueezed_ >= patience_) {
      tried_less_ = parts_ > 0;
      unsqueezed_ = 0;
      parts_ = std::max<std::int64_t>(0, parts_ - 1);
    }
  }

 private:
  static constexpr std::int64_t kParts = 256;
  static constexpr std::int64_t kMostParts = 8;
  static constexpr std::int64_t kMore = 2;
  // Steps until less is tried. Where it is missed every length waits once, some tens of ms in all;
  // a part of the budget is worth some tenths of a ms a step.
  static constexpr std::int64_t kPatience = 128;
  static constexpr std::int64_t kMostPatience = 1024;

  void note_misfit(std::int64_t missing_bytes, std::int64_t cap_bytes) {
    if (missing_bytes > bytes(cap_bytes)) return;
    const std::int64_t part = part_of(cap_bytes);
    most_ = std::max<std::int64_t>(0, parts_ - (missing_bytes + part - 1) / part - 1);
    parts_ = std::min(parts_, most_);
  }

  static std::int64_t part_of(std::int64_t cap_bytes) {
    return std::max<std::int64_t>(1, cap_bytes / kParts);
  }

  std::int64_t parts_ = 0;
  std::int64_t most_ = kMostParts;
  std::int64_t unsqueezed_ = 0;
  std::int64_t patience_ = kPatience;
  bool tried_less_ = false;
};

}  // namespace pudica::hooks
