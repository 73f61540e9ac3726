// Scaling: exact bytes to the 32-bit units of the table.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/candidates.h"

namespace pudica::planner {

// No sum of a scaled chain reaches kUnitLimit in size; what is not reachable is kUnreachable, and
// stays above every sum after one layer's bytes are added to it.
inline constexpr std::int32_t kUnitLimit = 1 << 29;
inline constexpr std::int32_t kUnreachable = 1 << 30;

// A chain's bytes in units of 2^shift bytes, the finest power of two in which every sum fits:
// 1 byte to 512 MB of activations, 64 bytes to 32 GB, 64 KiB to 32 TB. All are rounded up, so a
// choice whose scaled R_1 fits the rounded-down budget fits in exact bytes.
class ScaledBytes {
 public:
  void scale(const Candidates& candidates);

  [[nodiscard]] std::int32_t kept(std::size_t mode) const { return kept_[mode]; }
  [[nodiscard]] std::int32_t peak(std::size_t mode) const { return peak_[mode]; }
  [[nodiscard]] std::int32_t tail() const { return tail_; }

  // A budget that fits in these units surely fits in bytes.
  [[nodiscard]] std::int32_t safe_units(std::int64_t bytes) const;
  // Every choice that fits in bytes fits in these units.
  [[nodiscard]] std::int32_t optimistic_units(std::int64_t bytes) const;
  [[nodiscard]] std::int64_t bytes(std::int32_t units) const {
    return static_cast<std::int64_t>(units) * (std::int64_t{1} << shift_);
  }

 private:
  void choose_shift(const Candidates& candidates);
  // Rounds up; adds the bytes gained to nothing: see loss_bytes_.
  [[nodiscard]] std::int32_t round_up(std::int64_t bytes) const;

  int shift_ = 0;
  std::int64_t loss_bytes_ = 0;  // most that rounding adds to R_1 of any choice
  std::int32_t tail_ = 0;
  std::vector<std::int32_t> kept_;  // parallel to Candidates::all()
  std::vector<std::int32_t> peak_;
};

}  // namespace pudica::planner
