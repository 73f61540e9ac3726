#include "pudica/peak_model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "planner/joint_costs.h"
#include "planner/saturating.h"

namespace pudica {
namespace {

using planner::saturating_add;
using planner::saturating_subtract;

void check_choice(const StepCosts& costs, std::span<const std::uint8_t> choice) {
  if (choice.size() != costs.layers.size()) {
    throw BugError("peak model: " + std::to_string(choice.size()) + " choices for " +
                   std::to_string(costs.layers.size()) + " layers");
  }
  for (std::size_t i = 0; i < choice.size(); ++i) {
    if (choice[i] >= costs.layers[i].modes.size()) {
      throw BugError("peak model: layer " + std::to_string(i) + " has no mode " +
                     std::to_string(choice[i]));
    }
  }
}

// Seconds to whole nanoseconds, kept in what an int64 sum over layers can hold.
std::int64_t to_nanoseconds(double seconds) {
  constexpr double kMostSeconds = 1e6;
  if (!(seconds < kMostSeconds)) return static_cast<std::int64_t>(kMostSeconds * 1e9);
  return std::llround(std::max(seconds, 0.0) * 1e9);
}

// What is added to `extra_seconds` so that none of the layer is below zero: a learned time may be
// a little faster than the mode thought fastest.
double time_shift(const LayerCosts& layer) {
  double least = 0;
  for (const LayerModeCosts& mode : layer.modes) least = std::min(least, mode.extra_seconds);
  return -least;
}

std::int64_t released(const LayerCosts& layer, ChainBound bound) {
  if (layer.modes.empty()) return 0;
  const auto [least, most] =
      std::ranges::minmax_element(layer.modes, {}, &LayerModeCosts::released_bytes);
  return (bound == ChainBound::kFromAbove ? most : least)->released_bytes;
}

bool holds(const StepCosts& costs, std::size_t layer, ChainBound bound) {
  return bound == ChainBound::kFromAbove ? planner::may_hold(costs, layer)
                                         : planner::must_hold(costs, layer);
}

// Whether layer i is one with the layer before it.
bool is_joined(const StepCosts& costs, std::span<const std::uint8_t> choice,
               std::span<const std::uint8_t> joined, std::size_t i) {
  if (i == 0 || i >= joined.size() || joined[i] == 0) return false;
  const auto can_join = [&](std::size_t layer) {
    const auto& modes = costs.layers[layer].modes;
    return modes[choice[layer]].mode == Mode::full() &&
           std::ranges::find(modes, Mode::keep(), &LayerModeCosts::mode) != modes.end();
  };
  return can_join(i) && can_join(i - 1);
}

}  // namespace

StepPeaks step_peaks(const StepCosts& costs, std::span<const std::uint8_t> choice,
                     std::span<const std::uint8_t> joined) {
  check_choice(costs, choice);
  planner::LiveBytes bytes;
  std::int64_t released = 0;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    const LayerCosts& layer = costs.layers[i];
    const LayerModeCosts& mode = layer.modes[choice[i]];
    bytes.visit(layer.gap_peak_bytes);
    bytes.add(layer.gap_net_bytes);
    bytes.visit(mode.forward_peak_bytes);
    bytes.add(mode.forward_net_bytes);
    if (is_joined(costs, choice, joined, i)) bytes.add(-costs.layers[i - 1].output_bytes);
    released = saturating_add(released, mode.released_bytes);
  }
  StepPeaks peaks;
  peaks.forward_bytes = bytes.peak();
  peaks.live_behind_forward = bytes.live();
  bytes.visit(costs.return_peak_bytes);
  peaks.until_return_bytes = bytes.peak();
  bytes = planner::LiveBytes(bytes.live(), bytes.live());
  const auto holds = [&](std::size_t layer) {  // the one before `layer`
    return layer > 0 && costs.layers[layer - 1].modes[choice[layer - 1]].holds_output;
  };
  bytes.visit(planner::until_release_peak_bytes(costs, holds(choice.size())));
  bytes.add(-released);
  bytes.visit(planner::head_peak_bytes(costs, holds(choice.size())));
  bytes.add(costs.head_net_bytes);
  for (std::size_t last = choice.size(); last-- > 0;) {
    std::size_t first = last;
    while (is_joined(costs, choice, joined, first)) --first;
    if (first < last) {
      planner::joint_backward(costs, {first, last}, bytes);
      last = first;
      continue;
    }
    const LayerCosts& layer = costs.layers[last];
    const LayerModeCosts& mode = layer.modes[choice[last]];
    bytes.visit(planner::backward_peak_bytes(mode, holds(last)));
    bytes.add(saturating_subtract(layer.residue_bytes, planner::held_bytes(mode)));
  }
  bytes.visit(costs.epilogue_peak_bytes);
  bytes.add(costs.epilogue_net_bytes);
  peaks.backward_bytes = bytes.peak();
  peaks.live_behind_backward = bytes.live();
  bytes.visit(costs.optimizer_peak_bytes);
  peaks.bytes = std::max(peaks.until_return_bytes, bytes.peak());
  return peaks;
}

std::int64_t step_peak_bytes(const StepCosts& costs, std::span<const std::uint8_t> choice,
                             std::span<const std::uint8_t> joined) {
  const StepPeaks peaks = step_peaks(costs, choice, joined);
  return std::max(peaks.bytes, saturating_add(peaks.until_return_bytes, costs.returning_bytes));
}

double step_extra_seconds(const StepCosts& costs, std::span<const std::uint8_t> choice) {
  check_choice(costs, choice);
  double seconds = 0;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    seconds += costs.layers[i].modes[choice[i]].extra_seconds;
  }
  return seconds;
}

// With k = forward_net - released, g = gap_net and S_i = sum over j <= i of (g_j + k_j), less g_0,
// the live bytes of the step above g_0 are
//   at layer i's gap        S_{i-1} + sum over j < i of released_j
//   at the head             S_{L-1} + sum of released_j, and S_{L-1} behind the release
//   at layer i's backward   S_i + head_net + sum over j > i of (g_j + residue_j)
// (backward gives back k_j and leaves g_j live). So s_i = g_i + k_i, and all but the released
// terms depend on earlier modes through S alone; those are bounded by their largest or their least
// mode, which is exact where a layer releases the same bytes in every mode.
ChainProblem to_chain(const StepCosts& costs, ChainBound bound) {
  ChainProblem problem;
  Chain& chain = problem.chain;
  chain.step_ns = to_nanoseconds(costs.step_seconds);
  const std::size_t count = costs.layers.size();
  problem.offset_bytes = count == 0 ? 0 : costs.layers[0].gap_net_bytes;
  chain.layers.resize(count);
  std::int64_t released_before = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const LayerCosts& layer = costs.layers[i];
    const std::int64_t gap_net = i == 0 ? 0 : layer.gap_net_bytes;
    const double shift_seconds = time_shift(layer);
    for (const LayerModeCosts& mode : layer.modes) {
      ChainMode& out = chain.layers[i].emplace_back();
      out.kept_bytes =
          saturating_add(gap_net, saturating_subtract(mode.forward_net_bytes, mode.released_bytes));
      std::int64_t forward = saturating_add(gap_net, mode.forward_peak_bytes);
      if (i > 0) forward = std::max(forward, layer.gap_peak_bytes);
      forward = saturating_add(forward, costs.returning_bytes);
      out.peak_bytes = saturating_add(forward, released_before);
      out.time_ns = to_nanoseconds(mode.extra_seconds + shift_seconds);
    }
    released_before = saturating_add(released_before, released(layer, bound));
  }
  const std::int64_t until_return = saturating_add(costs.return_peak_bytes, costs.returning_bytes);
  const bool held = holds(costs, count, bound);
  const std::int64_t until_release = planner::until_release_peak_bytes(costs, held);
  chain.tail_bytes =
      std::max(planner::head_peak_bytes(costs, held),
               saturating_add(std::max(until_release, until_return), released_before));

  std::int64_t later = costs.head_net_bytes;
  for (std::size_t i = count; i-- > 0;) {
    const LayerCosts& layer = costs.layers[i];
    for (std::size_t m = 0; m < layer.modes.size(); ++m) {
      ChainMode& out = chain.layers[i][m];
      const std::int64_t peak =
          planner::backward_peak_bytes(layer.modes[m], holds(costs, i, bound));
      const std::int64_t backward = saturating_add(saturating_add(out.kept_bytes, later), peak);
      out.peak_bytes = std::max(out.peak_bytes, backward);
    }
    later = saturating_add(later, saturating_add(layer.gap_net_bytes, layer.residue_bytes));
  }

  // `later` is now what is live when every layer's backward is done, gap 0 included.
  std::int64_t constant =
      count == 0 ? 0 : std::max<std::int64_t>(0, costs.layers[0].gap_peak_bytes);
  constant = saturating_add(constant, costs.returning_bytes);
  constant = std::max(constant, saturating_add(later, costs.epilogue_peak_bytes));
  later = saturating_add(later, costs.epilogue_net_bytes);
  problem.constant_bytes = std::max(constant, saturating_add(later, costs.optimizer_peak_bytes));
  return problem;
}

}  // namespace pudica
