// The peak model: the peak of any plan of a step, to the byte, from what the step costs.
#pragma once

#include <cstdint>
#include <span>

#include "pudica/planner.h"
#include "pudica/step_costs.h"

namespace pudica {

// Peak of a plan above the step's base bytes. In order (formula of docs/architecture.md):
//   live = 0 (returning bytes come on top of live up to the return)
//   each layer i:    peak >= live + gap_peak;  live += gap_net;
//                    peak >= live + forward_peak(m);  live += forward_net(m)
//   return:          peak >= live + return_peak + returning
//   head:            peak >= live + until_release_peak;  live -= sum released(m)
//                    peak >= live + head_peak;  live += head_net
//   i = L-1 .. 0:    peak >= live + backward_peak(m);
//                    live += residue + released(m) - forward_net(m)
//   (the head's peaks and backward_peak with what they need behind a holder, where there is one)
//   epilogue:        peak >= live + epilogue_peak;  live += epilogue_net
//   optimizer:       peak >= live + optimizer_peak
// `joined` as in Plan: empty, or 1 where a `full` layer is one with the `full` layer before it. Of
// a joint segment a..b (k: keep, f: full; state = forward_net(f) - released(f) - output):
//   after layer i > a has run:     live -= output of layer i - 1
//   backward, i = a .. b-1:        peak >= live + forward_peak(k);
//                                  live += forward_net(k) - released(k)
//                                  peak >= live + backward_peak(f) of b; live += residue - output
//             i = b-1 .. a:        peak >= live + backward_peak(k);
//                                  live += residue + released(k) - forward_net(k)
//   then                           live -= sum of states
// Exact where layers release nothing; else the casts of a recompute are counted as long as those
// of a forward. A layer whose costs lack `keep` counts as alone.
// Requires: choice.size() == layers.size(), entries index LayerCosts::modes.
std::int64_t step_peak_bytes(const StepCosts& costs, std::span<const std::uint8_t> choice,
                             std::span<const std::uint8_t> joined = {});

// The most that the backward of layers first..last as one needs above the live bytes at its start.
std::int64_t joint_backward_peak_bytes(const StepCosts& costs, std::size_t first, std::size_t last);

// The same in two parts, returning bytes left out: peak = max(bytes, until_return_bytes +
// returning_bytes).
struct StepPeaks {
  std::int64_t bytes = 0;
  std::int64_t until_return_bytes = 0;
  // Of the stretches of a step that forwards share, and what is live between them.
  std::int64_t forward_bytes = 0;  // up to the last layer's end, live_behind_forward behind it
  std::int64_t live_behind_forward = 0;
  std::int64_t backward_bytes = 0;  // from the head to the epilogue, live_behind_backward behind
  std::int64_t live_behind_backward = 0;
};
StepPeaks step_peaks(const StepCosts& costs, std::span<const std::uint8_t> choice,
                     std::span<const std::uint8_t> joined = {});

// Sum of the chosen modes' extra_seconds.
double step_extra_seconds(const StepCosts& costs, std::span<const std::uint8_t> choice);

// The planning problem in the planner's form, in which a layer hangs on those before it by what
// they keep alone. What else it hangs on (released_bytes of layers before it while the forward
// runs, whether the one before it holds its output) is bounded by the modes that there are: from
// above, so that a plan that fits `chain` within available - offset_bytes has step_peak_bytes <=
// available; or from below, so that every plan with step_peak_bytes <= available fits.
struct ChainProblem {
  Chain chain;
  std::int64_t offset_bytes = 0;    // live before layer 0 (gap 0's net)
  std::int64_t constant_bytes = 0;  // the most that segments no plan can change need, above base
};
enum class ChainBound : std::uint8_t { kFromAbove, kFromBelow };
ChainProblem to_chain(const StepCosts& costs, ChainBound bound = ChainBound::kFromAbove);

// The most layers that are recomputed as one.
inline constexpr std::size_t kLongestJoint = 8;

// Adds to to_chain(costs), bounded from above, every joint segment of `full` layers that follow one
// another.
void add_joints(const StepCosts& costs, ChainProblem* problem);

}  // namespace pudica
