// The parts of planner.h that need no table: the exact value of a choice, and the floor.
#include <algorithm>
#include <string>

#include "planner/candidates.h"
#include "planner/polish.h"
#include "planner/saturating.h"

namespace pudica {
namespace {

std::int64_t fastest_ns(const Chain& chain) {
  std::int64_t total = 0;
  for (const auto& layer : chain.layers) {
    if (layer.empty()) continue;
    total = planner::saturating_add(
        total, std::ranges::min_element(layer, {}, &ChainMode::time_ns)->time_ns);
  }
  return total;
}

}  // namespace

ChainPlan evaluate(const Chain& chain, std::span<const std::uint8_t> choice) {
  if (choice.size() != chain.layers.size()) {
    throw BugError("evaluate: " + std::to_string(choice.size()) + " choices for " +
                   std::to_string(chain.layers.size()) + " layers");
  }
  ChainPlan plan;
  plan.choice.assign(choice.begin(), choice.end());
  plan.peak_bytes = chain.tail_bytes;
  for (std::size_t i = choice.size(); i-- > 0;) {
    if (choice[i] >= chain.layers[i].size()) {
      throw BugError("evaluate: layer " + std::to_string(i) + " has no mode " +
                     std::to_string(choice[i]));
    }
    const ChainMode& mode = chain.layers[i][choice[i]];
    plan.peak_bytes =
        std::max(mode.peak_bytes, planner::saturating_add(mode.kept_bytes, plan.peak_bytes));
    plan.time_ns = planner::saturating_add(plan.time_ns, mode.time_ns);
  }
  plan.lower_bound_ns = fastest_ns(chain);
  return plan;
}

ChainPlan floor_plan(const Chain& chain) {
  planner::Candidates candidates;
  if (auto collected = candidates.collect(chain); !collected) {
    throw BugError("floor_plan: " + collected.error().message);
  }
  planner::Choice choice;
  planner::fastest_first(candidates, candidates.floors()[0], &choice);
  for (std::size_t i = 0; i < choice.size(); ++i) choice[i] = candidates.of(i)[choice[i]].source;
  return evaluate(chain, choice);
}

}  // namespace pudica
