#include "daemon/budget_shares.h"

#include <algorithm>
#include <numeric>

namespace pudica::daemon {
namespace {

// Products of two byte counts.
__extension__ using Wide = unsigned __int128;

std::int64_t scaled(std::int64_t value, std::int64_t numerator, std::int64_t denominator) {
  return static_cast<std::int64_t>(static_cast<Wide>(value) * static_cast<Wide>(numerator) /
                                   static_cast<Wide>(denominator));
}

std::int64_t claimed(const Claim& claim) { return std::max(claim.asked, claim.floor); }

// Scales those that are not `fixed` (these hold their value in `shares`) into `total`; who would
// fall below its floor is fixed there, and the rest is scaled once more.
void scale_into(std::span<const Claim> claims, std::int64_t total, std::vector<bool>& fixed,
                std::vector<std::int64_t>& shares) {
  for (std::size_t round = 0; round <= claims.size(); ++round) {
    std::int64_t left = total;
    std::int64_t asked = 0;
    for (std::size_t i = 0; i < claims.size(); ++i) {
      if (fixed[i]) {
        left -= shares[i];
      } else {
        asked += claimed(claims[i]);
      }
    }
    left = std::max<std::int64_t>(left, 0);
    bool changed = false;
    for (std::size_t i = 0; i < claims.size(); ++i) {
      if (fixed[i]) continue;
      const std::int64_t whole = claimed(claims[i]);
      shares[i] = asked <= left ? whole : scaled(whole, left, asked);
      if (shares[i] >= claims[i].floor) continue;
      shares[i] = claims[i].floor;
      fixed[i] = true;
      changed = true;
    }
    if (!changed) return;
  }
}

}  // namespace

std::vector<std::int64_t> fill_fairly(std::span<const std::int64_t> caps, std::int64_t amount) {
  std::vector<std::int64_t> given(caps.size(), 0);
  std::vector<std::size_t> order(caps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [caps](std::size_t i) { return caps[i]; });
  std::int64_t left = std::max<std::int64_t>(amount, 0);
  // Smallest cap first: who takes less than an even part leaves more for those after it. The last
  // ones are all given the level; rounding up gives the remainder to the first of them.
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto rest = static_cast<std::int64_t>(order.size() - k);
    const std::int64_t level = left / rest + (left % rest == 0 ? 0 : 1);
    given[order[k]] = std::clamp<std::int64_t>(caps[order[k]], 0, level);
    left -= given[order[k]];
  }
  return given;
}

std::vector<std::int64_t> divide_by_claims(std::span<const Claim> claims, std::int64_t total) {
  std::vector<std::int64_t> shares(claims.size(), 0);
  std::vector<bool> fixed(claims.size(), false);
  std::int64_t least = 0;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    if (claims[i].pinned) shares[i] = claimed(claims[i]);
    fixed[i] = claims[i].pinned;
    least += claims[i].pinned ? shares[i] : claims[i].floor;
  }
  if (least > total) std::fill(fixed.begin(), fixed.end(), false);
  scale_into(claims, total, fixed, shares);
  return shares;
}

std::vector<std::int64_t> divide_by_needs(std::span<const Demand> demands, std::int64_t capacity) {
  std::vector<std::int64_t> budgets(demands.size(), 0);
  std::int64_t left = std::max<std::int64_t>(capacity, 0);
  const auto raise = [&](auto&& goal_of) {
    std::vector<std::int64_t> caps;
    for (std::size_t i = 0; i < demands.size(); ++i) {
      caps.push_back(goal_of(demands[i]) - budgets[i]);
    }
    const std::vector<std::int64_t> given = fill_fairly(caps, left);
    for (std::size_t i = 0; i < given.size(); ++i) {
      budgets[i] += given[i];
      left -= given[i];
    }
  };
  for (std::size_t i = 0; i < demands.size(); ++i) {
    budgets[i] = demands[i].floor;
    left -= demands[i].floor;
  }
  raise([](const Demand& demand) { return std::min(demand.share, demand.need); });
  raise([](const Demand& demand) { return demand.need; });
  raise([](const Demand& demand) { return demand.share; });
  return budgets;
}

}  // namespace pudica::daemon
