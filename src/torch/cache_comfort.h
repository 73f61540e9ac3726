// CacheComfort: what a plan had better leave free of a budget on reserved bytes beside the holes
// (GapHabit), so that the allocator's cache serves. Where it does not, though all would fit, the
// allocator waits for its device and gives all of its cache back: a tenth of the step's time with
// no more than the holes left free (an H200, BERT-base at 96 rows, .4 of the range), where a
// thirtieth of the budget costs a hundredth.
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

  // Of a step that ended and was as planned: whether it waited for what it had freed itself. Less
  // is tried now and then; where that is missed, half as often from then on.
  void note(bool squeezed) {
    if (squeezed) {
      if (tried_less_) patience_ = std::min(2 * patience_, kMostPatience);
      tried_less_ = false;
      unsqueezed_ = 0;
      parts_ = std::min(parts_ + kMore, most_);
    } else if (++unsqueezed_ >= patience_) {
      tried_less_ = parts_ > 0;
      unsqueezed_ = 0;
      parts_ = std::max<std::int64_t>(0, parts_ - 1);
    }
  }

  // Of a step whose least plan was `missing_bytes` over what it might use. Where that is why it did
  // not fit, so much is not left free again: it is better to wait than to go over the budget.
  void note_misfit(std::int64_t missing_bytes, std::int64_t cap_bytes) {
    const std::int64_t missing = std::max<std::int64_t>(1, missing_bytes);
    if (missing > bytes(cap_bytes)) return;
    const std::int64_t part = part_of(cap_bytes);
    most_ = std::max<std::int64_t>(0, parts_ - (missing + part - 1) / part - 1);
    parts_ = std::min(parts_, most_);
  }

 private:
  static constexpr std::int64_t kParts = 256;
  static constexpr std::int64_t kMostParts = 8;
  static constexpr std::int64_t kMore = 2;
  static constexpr std::int64_t kPatience = 32;  // steps until less is tried
  static constexpr std::int64_t kMostPatience = 1024;

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
