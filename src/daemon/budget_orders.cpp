// What a group's runs are told: the second half of BudgetGroups.
#include <algorithm>
#include <numeric>

#include "daemon/budget_groups.h"
#include "daemon/budget_shares.h"

namespace pudica::daemon {
namespace {

// A run that does not answer is not told to come down for ever.
constexpr std::size_t kMaxOpenOrders = 32;

}  // namespace

std::int64_t BudgetGroups::assigned(const Group& group) {
  return std::accumulate(group.runs.begin(), group.runs.end(), std::int64_t{0},
                         [](std::int64_t sum, const Run& run) { return sum + run.bound(); });
}

void BudgetGroups::update_shares(Group& group) {
  std::vector<Claim> claims;
  std::int64_t asked = 0;
  for (const Run& run : group.runs) {
    claims.push_back({run.asked, run.floor, run.pinned});
    asked += std::max(run.asked, run.floor);
  }
  const std::vector<std::int64_t> shares = divide_by_claims(claims, group.total.value_or(asked));
  for (std::size_t i = 0; i < shares.size(); ++i) group.runs[i].share = shares[i];
}

std::vector<std::int64_t> BudgetGroups::targets(const Group& group) {
  std::vector<std::int64_t> out;
  if (!group.total) {
    for (const Run& run : group.runs) out.push_back(run.share);
    return out;
  }
  // A lost run keeps what it may be using; the others divide the rest.
  std::int64_t capacity = *group.total;
  std::vector<Demand> demands;
  for (const Run& run : group.runs) {
    if (run.lost) {
      capacity -= run.bound();
    } else {
      demands.push_back({run.floor, run.share, std::max(run.need(), run.floor)});
    }
  }
  const std::vector<std::int64_t> live = divide_by_needs(demands, capacity);
  std::size_t next = 0;
  for (const Run& run : group.runs) out.push_back(run.lost ? run.bound() : live[next++]);
  return out;
}

bool BudgetGroups::lowering_is_due(const Run& run, std::int64_t target) const {
  const std::int64_t excess = run.ordered() - target;
  return excess > 0 && (run.exact || excess > run.share / options_.idle_band_divisor);
}

bool BudgetGroups::raise_is_due(const Run& run, std::int64_t target) const {
  const std::int64_t now = run.ordered();
  if (run.lost || target <= now) return false;
  // What it has a right to and could use it gets to the byte.
  if (run.exact || now < std::min({target, run.share, std::max(run.need(), run.floor)}))
    return true;
  if (std::min(target, run.need()) - now > now / options_.lend_band_divisor) return true;
  return target - now > run.share / options_.idle_band_divisor;
}

std::vector<std::int64_t> BudgetGroups::lowered(const Group& group,
                                                const std::vector<std::int64_t>& targets) const {
  std::vector<std::int64_t> budgets;
  std::vector<std::size_t> excessive;
  std::int64_t shortage = -group.total.value_or(0);
  for (std::size_t i = 0; i < group.runs.size(); ++i) {
    const Run& run = group.runs[i];
    const bool lower = !run.lost && lowering_is_due(run, targets[i]);
    budgets.push_back(run.lost ? run.bound() : lower ? targets[i] : run.ordered());
    shortage += raise_is_due(run, targets[i]) ? targets[i] : budgets[i];
    if (!run.lost && budgets[i] > targets[i]) excessive.push_back(i);
  }
  // Who is furthest above what it should have comes down first, and no more runs than are needed.
  std::ranges::stable_sort(excessive, std::greater<>{},
                           [&](std::size_t i) { return budgets[i] - targets[i]; });
  for (const std::size_t i : excessive) {
    if (shortage <= 0) break;
    shortage -= budgets[i] - targets[i];
    budgets[i] = targets[i];
  }
  return budgets;
}

void BudgetGroups::raise(const Group& group, const std::vector<std::int64_t>& targets,
                         std::vector<std::int64_t>& budgets) const {
  std::int64_t free = *group.total - assigned(group);
  const auto raise_towards = [&](std::size_t i, std::int64_t goal) {
    const Run& run = group.runs[i];
    // Up to its bound it may be using the bytes anyway.
    const std::int64_t covered = std::max(run.bound(), budgets[i]);
    const std::int64_t reach = std::min(goal, covered + std::max<std::int64_t>(free, 0));
    const std::int64_t gain = reach - budgets[i];
    if (gain <= 0) return;
    if (reach < goal && gain <= budgets[i] / options_.lend_band_divisor) return;
    free -= std::max<std::int64_t>(reach - covered, 0);
    budgets[i] = reach;
  };
  // Nobody can do with less than its floor, whether it is free or not.
  for (std::size_t i = 0; i < group.runs.size(); ++i) {
    const Run& run = group.runs[i];
    if (run.lost || !run.begun || budgets[i] >= run.floor) continue;
    free -= std::max<std::int64_t>(run.floor - std::max(run.bound(), budgets[i]), 0);
    budgets[i] = run.floor;
  }
  std::vector<std::size_t> due;
  for (std::size_t i = 0; i < group.runs.size(); ++i) {
    if (raise_is_due(group.runs[i], targets[i])) due.push_back(i);
  }
  for (const std::size_t i : due) {
    const Run& run = group.runs[i];
    raise_towards(i, std::min({targets[i], run.share, std::max(run.need(), run.floor)}));
  }
  for (const std::size_t i : due) raise_towards(i, targets[i]);
}

void BudgetGroups::order(Run& run, std::int64_t bytes) {
  const bool lower = !run.orders.empty() && bytes < run.orders.back().bytes;
  if (lower && run.orders.size() >= kMaxOpenOrders) return;
  while (!run.orders.empty() && run.orders.back().bytes <= bytes) run.orders.pop_back();
  run.orders.push_back({++last_number_, bytes});
}

void BudgetGroups::rebalance(Group& group) {
  const std::vector<std::int64_t> goals = targets(group);
  std::vector<std::int64_t> budgets = goals;
  if (group.total) {
    budgets = lowered(group, goals);
    raise(group, goals, budgets);
  }
  for (std::size_t i = 0; i < group.runs.size(); ++i) {
    Run& run = group.runs[i];
    if (run.lost) continue;
    if (budgets[i] != run.ordered() || run.tell) order(run, budgets[i]);
    run.tell = false;
    if (budgets[i] == goals[i]) run.exact = false;
  }
}

}  // namespace pudica::daemon
