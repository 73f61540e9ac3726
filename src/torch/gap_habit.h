// GapHabit: how much of a budget on reserved bytes a caching allocator takes for itself: what
// blocks have beyond their size, and holes between them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace pudica::hooks {

// Not thread-safe.
class GapHabit {
 public:
  // To be left free: no plan may have more than the budget less this in use.
  [[nodiscard]] std::int64_t bytes() const { return left_free_; }

  // What a step will have reserved at most, if `peak_bytes` of it will be in use: what it has when
  // it begins, or as much beyond its peak as the last one that had to ask for more.
  [[nodiscard]] std::int64_t reserved(std::int64_t peak_bytes, std::int64_t reserved_before,
                                      std::int64_t cap_bytes) const {
    const std::int64_t grown = peak_bytes + beyond_peak_;
    return std::max(reserved_before, cap_bytes > 0 ? std::min(grown, cap_bytes) : grown);
  }
  // Of a step that ended.
  void note_reserved(std::int64_t reserved_bytes, std::int64_t reserved_before,
                     std::int64_t peak_bytes) {
    if (reserved_bytes > reserved_before) beyond_peak_ = reserved_bytes - peak_bytes;
  }

  // Whether holes beside `peak_bytes` in use may take it over the cap, twice what was seen or what
  // is usual: then layers are kept such that they can be given up.
  [[nodiscard]] bool may_not_fit(std::int64_t peak_bytes, std::int64_t cap_bytes,
                                 std::int64_t page_bytes) const {
    return cap_bytes > 0 &&
           peak_bytes + std::max(usual(cap_bytes, page_bytes), 2 * left_free_) > cap_bytes;
  }
  // Whether segments that grow by pages take less of a cap than those of fixed sizes, as is usual:
  // of a small one they do not, since one page is never used.
  static bool pages_are_better(std::int64_t cap_bytes, std::int64_t page_bytes) {
    return usual(cap_bytes, page_bytes) + page_bytes < usual(cap_bytes, 0);
  }
  // So much that another setting of the allocator is worth a word.
  [[nodiscard]] bool is_dear(std::int64_t cap_bytes) const {
    return left_free_ > cap_bytes / kUsualShareOfPages;
  }

  // Of a step that ended. Only one that came near the cap tells what the allocator could not give
  // back; while none does, less and less is left free, until one does again.
  void note(std::int64_t gap_bytes, std::int64_t peak_bytes, std::int64_t cap_bytes) {
    if (cap_bytes <= 0) return;
    if (peak_bytes + gap_bytes >= cap_bytes - cap_bytes / kNear) {
      seen_[next_++ % seen_.size()] = gap_bytes;
      quiet_ = 0;
    } else if (++quiet_ % kPatience == 0) {
      for (std::int64_t& gap : seen_) gap -= gap / kPatience;
    }
    const std::int64_t most = *std::max_element(seen_.begin(), seen_.end());
    // In coarse parts: another budget is another plan.
    const std::int64_t part = std::max<std::int64_t>(1, cap_bytes / kParts);
    left_free_ = std::min((most + part - 1) / part * part, cap_bytes / 2);
  }

 private:
  static constexpr std::int64_t kNear = 8;
  static constexpr std::int64_t kPatience = 8;
  static constexpr std::int64_t kParts = 256;
  // Seen in training with varying lengths: segments of fixed sizes leave holes that no block fits
  // in, pages of one segment hardly any.
  static std::int64_t usual(std::int64_t cap_bytes, std::int64_t page_bytes) {
    return page_bytes > 0 ? cap_bytes / kUsualShareOfPages + 2 * page_bytes
                          : cap_bytes / kUsualShare;
  }
  static constexpr std::int64_t kUsualShare = 3;
  static constexpr std::int64_t kUsualShareOfPages = 32;

  std::array<std::int64_t, 16> seen_{};
  std::size_t next_ = 0;
  std::int64_t quiet_ = 0;
  std::int64_t beyond_peak_ = 0;
  std::int64_t left_free_ = 0;
};

}  // namespace pudica::hooks
