#include "planner/joint_costs.h"

#include <string>
#include <vector>

namespace pudica {
namespace planner {
namespace {

const LayerModeCosts* find_mode(const LayerCosts& layer, Mode mode) {
  const auto found = std::ranges::find(layer.modes, mode, &LayerModeCosts::mode);
  return found == layer.modes.end() ? nullptr : &*found;
}

const LayerModeCosts& mode_of(const StepCosts& costs, std::size_t layer, Mode mode) {
  const LayerModeCosts* found = find_mode(costs.layers[layer], mode);
  if (found != nullptr) return *found;
  throw BugError("peak model: joint layer " + std::to_string(layer) + " has no mode " +
                 to_string(mode));
}

// The joints of one step. Names as in to_chain.
class Joints {
 public:
  explicit Joints(const StepCosts& costs) : costs_(costs) {
    const std::size_t count = costs.layers.size();
    released_before_.assign(count + 1, 0);
    later_.assign(count, costs.head_net_bytes);
    for (std::size_t i = 0; i < count; ++i) {
      std::int64_t most = 0;
      for (const LayerModeCosts& mode : costs.layers[i].modes) {
        most = std::max(most, mode.released_bytes);
      }
      released_before_[i + 1] = saturating_add(released_before_[i], most);
    }
    for (std::size_t i = count; i-- > 1;) {
      const LayerCosts& layer = costs.layers[i];
      later_[i - 1] =
          saturating_add(later_[i], saturating_add(layer.gap_net_bytes, layer.residue_bytes));
    }
  }

  [[nodiscard]] bool can_join(std::size_t layer) const {
    return find_mode(costs_.layers[layer], Mode::keep()) != nullptr &&
           find_mode(costs_.layers[layer], Mode::full()) != nullptr;
  }

  // All that begin with `first`, in ascending length.
  [[nodiscard]] std::vector<ChainJoint> from(std::size_t first, const Chain& chain,
                                             std::span<const std::uint8_t> choice) const {
    std::vector<ChainJoint> joints;
    if (!can_join(first)) return joints;
    LiveBytes forward(saturating_add(released_before_[first], costs_.returning_bytes),
                      std::numeric_limits<std::int64_t>::min());
    ChainMode as_one;
    std::int64_t outputs = 0;  // of layers that another of the segment follows
    for (std::size_t i = first; i < costs_.layers.size(); ++i) {
      const LayerCosts& layer = costs_.layers[i];
      if (i > first && !(layer.follows_previous && can_join(i))) break;
      if (i >= first + kLongestJoint) break;
      const LayerModeCosts& full = mode_of(costs_, i, Mode::full());
      if (i > 0) {
        forward.visit(layer.gap_peak_bytes);
        forward.add(layer.gap_net_bytes);
      }
      forward.visit(full.forward_peak_bytes);
      forward.add(full.forward_net_bytes);
      const ChainMode& alone = chain.layers[i][choice[i]];
      as_one.kept_bytes = saturating_add(as_one.kept_bytes, alone.kept_bytes);
      as_one.time_ns = saturating_add(as_one.time_ns, alone.time_ns);
      if (i == first) continue;
      const std::int64_t before = costs_.layers[i - 1].output_bytes;
      forward.add(-before);
      outputs = saturating_add(outputs, before);
      ChainMode mode = as_one;
      mode.kept_bytes = saturating_subtract(as_one.kept_bytes, outputs);
      LiveBytes backward(saturating_add(mode.kept_bytes, later_[i]),
                         std::numeric_limits<std::int64_t>::min());
      joint_backward(costs_, {first, i}, backward);
      mode.peak_bytes = std::max(forward.peak(), backward.peak());
      joints.push_back({i - first + 1, mode});
    }
    return joints;
  }

 private:
  const StepCosts& costs_;
  std::vector<std::int64_t> released_before_;  // the most that layers before i release
  std::vector<std::int64_t> later_;            // live at i's backward beside what is kept
};

}  // namespace

void joint_backward(const StepCosts& costs, JointRange range, LiveBytes& bytes) {
  std::int64_t states = 0;  // held by the segment until it is done
  for (std::size_t i = range.first; i <= range.last; ++i) {
    const LayerCosts& layer = costs.layers[i];
    const LayerModeCosts& full = mode_of(costs, i, Mode::full());
    states = saturating_add(states, saturating_subtract(held_bytes(full), layer.output_bytes));
    if (i == range.last) {
      bytes.visit(backward_peak_bytes(full, may_hold(costs, i)));
      bytes.add(saturating_subtract(layer.residue_bytes, layer.output_bytes));
      break;
    }
    const LayerModeCosts& keep = mode_of(costs, i, Mode::keep());
    bytes.visit(keep.forward_peak_bytes);
    bytes.add(held_bytes(keep));
  }
  for (std::size_t i = range.last; i-- > range.first;) {
    const LayerModeCosts& keep = mode_of(costs, i, Mode::keep());
    bytes.visit(backward_peak_bytes(keep, may_hold(costs, i)));
    bytes.add(saturating_subtract(costs.layers[i].residue_bytes, held_bytes(keep)));
  }
  bytes.add(-states);
}

}  // namespace planner

std::int64_t joint_backward_peak_bytes(const StepCosts& costs, std::size_t first,
                                       std::size_t last) {
  planner::LiveBytes bytes;
  planner::joint_backward(costs, {first, last}, bytes);
  return bytes.peak();
}

void add_joints(const StepCosts& costs, ChainProblem* problem) {
  const planner::Joints joints(costs);
  Chain& chain = problem->chain;
  const std::size_t count = costs.layers.size();
  chain.joint_choice.assign(count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& modes = costs.layers[i].modes;
    const auto full = std::ranges::find(modes, Mode::full(), &LayerModeCosts::mode);
    if (full == modes.end()) continue;
    chain.joint_choice[i] = static_cast<std::uint8_t>(full - modes.begin());
  }
  chain.joints.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    chain.joints[i] = joints.from(i, chain, chain.joint_choice);
  }
}

}  // namespace pudica
