// Sums of byte counts that stop at the ends of int64 instead of wrapping: a sum past the end is
// more than any budget, which is the right answer for a comparison.
#pragma once

#include <cstdint>
#include <limits>

namespace pudica::planner {

inline std::int64_t saturating_add(std::int64_t left, std::int64_t right) {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(left, right, &sum)) return sum;
  return left > 0 ? std::numeric_limits<std::int64_t>::max()
                  : std::numeric_limits<std::int64_t>::min();
}

inline std::int64_t saturating_subtract(std::int64_t left, std::int64_t right) {
  std::int64_t difference = 0;
  if (!__builtin_sub_overflow(left, right, &difference)) return difference;
  return right < 0 ? std::numeric_limits<std::int64_t>::max()
                   : std::numeric_limits<std::int64_t>::min();
}

}  // namespace pudica::planner
