// The parts of planner.h that need no table: the exact value of a choice, and the floor.
#include <algorithm>
#include <string>
#include <utility>

#include "planner/candidates.h"
#include "planner/joint_planner.h"
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

// The mode of a layer, or the joint segment of so many from it on.
const ChainMode& mode_of(const Chain& chain, std::span<const std::uint8_t> choice,
                         std::size_t layer, std::size_t length) {
  if (length == 1) {
    if (choice[layer] < chain.layers[layer].size()) return chain.layers[layer][choice[layer]];
    throw BugError("evaluate: layer " + std::to_string(layer) + " has no mode " +
                   std::to_string(choice[layer]));
  }
  if (layer < chain.joints.size()) {
    for (const ChainJoint& joint : chain.joints[layer]) {
      if (joint.length == length) return joint.as_one;
    }
  }
  throw BugError("evaluate: no joint segment of " + std::to_string(length) +
                 " layers begins with layer " + std::to_string(layer));
}

}  // namespace

ChainPlan evaluate(const Chain& chain, std::span<const std::uint8_t> choice,
                   std::span<const std::uint8_t> joined) {
  const std::size_t layers = chain.layers.size();
  if (choice.size() != layers || (!joined.empty() && joined.size() != layers)) {
    throw BugError("evaluate: " + std::to_string(choice.size()) + " choices for " +
                   std::to_string(layers) + " layers");
  }
  ChainPlan plan;
  plan.choice.assign(choice.begin(), choice.end());
  plan.joined.assign(joined.begin(), joined.end());
  plan.peak_bytes = chain.tail_bytes;
  for (std::size_t end = layers; end > 0;) {
    std::size_t first = end - 1;
    while (!joined.empty() && joined[first] != 0) {
      if (first == 0) throw BugError("evaluate: the first layer has none to be one with");
      --first;
    }
    const ChainMode& mode = mode_of(chain, choice, first, end - first);
    plan.peak_bytes =
        std::max(mode.peak_bytes, planner::saturating_add(mode.kept_bytes, plan.peak_bytes));
    plan.time_ns = planner::saturating_add(plan.time_ns, mode.time_ns);
    end = first;
  }
  plan.lower_bound_ns = fastest_ns(chain);
  return plan;
}

ChainPlan floor_plan(const Chain& chain) {
  planner::Candidates candidates;
  if (auto collected = candidates.collect(chain); !collected) {
    throw BugError("floor_plan: " + collected.error().message);
  }
  if (!chain.joints.empty()) {
    planner::JointPlanner joints;
    const std::int64_t floor_bytes = joints.floor_bytes(chain, candidates);
    if (floor_bytes < candidates.floors()[0]) {
      auto plan = joints.solve(chain, candidates, floor_bytes);
      if (!plan) throw BugError("floor_plan: the floor of joint segments does not fit itself");
      return std::move(*plan);
    }
  }
  planner::Choice choice;
  planner::fastest_first(candidates, candidates.floors()[0], &choice);
  for (std::size_t i = 0; i < choice.size(); ++i) choice[i] = candidates.of(i)[choice[i]].source;
  return evaluate(chain, choice);
}

}  // namespace pudica
