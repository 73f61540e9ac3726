// The peak model: what a step needs at one shape, and the peak of any plan of it, to the byte.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pudica/mode.h"
#include "pudica/planner.h"

namespace pudica {

// One mode of one layer. All bytes are relative to the live bytes where the segment starts.
struct LayerModeCosts {
  Mode mode;
  std::int64_t forward_net_bytes = 0;  // left live by the forward: kept tensors and the output
  std::int64_t forward_peak_bytes = 0;
  std::int64_t released_bytes = 0;       // of forward_net, freed in the head (autocast casts)
  std::int64_t backward_peak_bytes = 0;  // recompute included
  double extra_seconds = 0;              // over the layer's fastest mode
  // How much more the backward needs behind a layer that holds its output, as one does that saves
  // it: it goes in the other's own backward then, not as soon as this one has read it.
  std::int64_t behind_holder_bytes = 0;
  bool holds_output = false;
};

struct LayerCosts {
  std::uint16_t layer_class = 0;
  std::int64_t gap_net_bytes = 0;   // forward between the layer before and this one
  std::int64_t gap_peak_bytes = 0;  // (layer 0: everything before it, the embedding)
  // Forward net + backward net - released bytes, the same in every mode: parameter gradients that
  // appear, mostly. Learned from `keep`, which releases nothing in the head.
  std::int64_t residue_bytes = 0;
  // Of what a `full` forward leaves, the output: freed once the next layer has run, if both are
  // recomputed as one. 0 where unknown: at worst too much is counted.
  std::int64_t output_bytes = 0;
  bool follows_previous = false;  // reads the output of the layer before; may be one with it
  std::vector<LayerModeCosts> modes;
};

// Everything a step needs at one shape, above the bytes live when it begins.
struct StepCosts {
  std::vector<LayerCosts> layers;
  std::int64_t head_net_bytes = 0;  // with no `released_bytes` in it
  // Above the live bytes at the head's start. Exact for every plan only if the layers' released
  // bytes are freed after the head's own peak: freed before it, they lower it by what the plan
  // decides.
  std::int64_t head_peak_bytes = 0;
  std::int64_t head_behind_holder_bytes = 0;  // as LayerModeCosts has them, of the last layer
  // Live beside everything else until the forward returns, in the head (StepContext), and the
  // head's peak until then.
  std::int64_t returning_bytes = 0;
  std::int64_t return_peak_bytes = 0;
  std::int64_t epilogue_net_bytes = 0;
  std::int64_t epilogue_peak_bytes = 0;
  std::int64_t optimizer_peak_bytes = 0;
  double step_seconds = 0;  // with every layer in its fastest mode; 0: unknown
};

// Peak of a plan above the step's base bytes. In order (formula of docs/architecture.md):
//   live = 0 (returning bytes come on top of live up to the return)
//   each layer i:    peak >= live + gap_peak;  live += gap_net;
//                    peak >= live + forward_peak(m);  live += forward_net(m)
//   return:          peak >= live + return_peak + returning
//   head:            peak >= live + head_peak;  live += head_net - sum released(m)
//   i = L-1 .. 0:    peak >= live + backward_peak(m);
//                    live += residue + released(m) - forward_net(m)
//   (head_peak and backward_peak with what they need behind a holder, where there is one)
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
};
StepPeaks step_peaks(const StepCosts& costs, std::span<const std::uint8_t> choice,
                     std::span<const std::uint8_t> joined = {});

// Sum of the chosen modes' extra_seconds.
double step_extra_seconds(const StepCosts& costs, std::span<const std::uint8_t> choice);

// The planning problem in the planner's form. A plan that fits `chain` within
// available - offset_bytes has step_peak_bytes <= available; the converse holds but for
// released_bytes, whose effect on forward peaks is bounded from above.
struct ChainProblem {
  Chain chain;
  std::int64_t offset_bytes = 0;    // live before layer 0 (gap 0's net)
  std::int64_t constant_bytes = 0;  // the most that segments no plan can change need, above base
};
ChainProblem to_chain(const StepCosts& costs);

// The most layers that are recomputed as one.
inline constexpr std::size_t kLongestJoint = 8;

// Adds to to_chain(costs) every joint segment of `full` layers that follow one another.
void add_joints(const StepCosts& costs, ChainProblem* problem);

}  // namespace pudica
