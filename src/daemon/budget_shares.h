// How bytes are divided among the runs of a group: pure functions of numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pudica::daemon {

// Gives every one at most its cap and all together at most `amount`, max-min fair: nobody has less
// than another but for its cap. What integers leave over goes to the first. Caps below 0 count as
// 0.
std::vector<std::int64_t> fill_fairly(std::span<const std::int64_t> caps, std::int64_t amount);

struct Claim {
  std::int64_t asked = 0;
  std::int64_t floor = 0;
  bool pinned = false;  // asked is not scaled
};

// Shares that add up to at most `total`: what is asked for, scaled down by one factor where that
// exceeds the total, but never below a floor. Pinned ones are scaled too where nothing else helps.
// Where the floors alone exceed the total every one has its floor.
std::vector<std::int64_t> divide_by_claims(std::span<const Claim> claims, std::int64_t total);

struct Demand {
  std::int64_t floor = 0;
  std::int64_t share = 0;  // at least floor
  std::int64_t need = 0;
};

// The budgets that a group should have: the floors, whatever they add up to, then what `capacity`
// leaves. In this order, each fairly: needs up to the shares; needs above them; shares that nobody
// needs.
std::vector<std::int64_t> divide_by_needs(std::span<const Demand> demands, std::int64_t capacity);

}  // namespace pudica::daemon
