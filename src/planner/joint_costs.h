// What a joint segment needs: consecutive layers recomputed as one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "planner/saturating.h"
#include "pudica/peak_model.h"

namespace pudica::planner {

// The running live bytes of a step and their peak.
class LiveBytes {
 public:
  explicit LiveBytes(std::int64_t live = 0, std::int64_t peak = 0) : live_(live), peak_(peak) {}

  void visit(std::int64_t peak_above_live) {
    peak_ = std::max(peak_, saturating_add(live_, peak_above_live));
  }
  void add(std::int64_t bytes) { live_ = saturating_add(live_, bytes); }
  [[nodiscard]] std::int64_t live() const { return live_; }
  [[nodiscard]] std::int64_t peak() const { return peak_; }

 private:
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
};

// What of a layer is held from the head on: its kept tensors and its output.
inline std::int64_t held_bytes(const LayerModeCosts& mode) {
  return saturating_subtract(mode.forward_net_bytes, mode.released_bytes);
}

// What a backward needs, behind a layer that holds its output or not.
inline std::int64_t backward_peak_bytes(const LayerModeCosts& mode, bool behind_holder) {
  return saturating_add(mode.backward_peak_bytes, behind_holder ? mode.behind_holder_bytes : 0);
}
inline std::int64_t head_peak_bytes(const StepCosts& costs, bool behind_holder) {
  return saturating_add(costs.head_peak_bytes, behind_holder ? costs.head_behind_holder_bytes : 0);
}
inline std::int64_t until_release_peak_bytes(const StepCosts& costs, bool behind_holder) {
  return saturating_add(costs.until_release_peak_bytes,
                        behind_holder ? costs.head_behind_holder_bytes : 0);
}
// Whether the layer before `layer` holds its output in some mode: what is planned for where its
// mode is not known.
inline bool may_hold(const StepCosts& costs, std::size_t layer) {
  return layer > 0 &&
         std::ranges::any_of(costs.layers[layer - 1].modes, &LayerModeCosts::holds_output);
}
// Whether it does so in every mode.
inline bool must_hold(const StepCosts& costs, std::size_t layer) {
  return layer > 0 &&
         std::ranges::all_of(costs.layers[layer - 1].modes, &LayerModeCosts::holds_output);
}

// Layers first..last, more than one.
struct JointRange {
  std::size_t first = 0;
  std::size_t last = 0;
};

// The backward of a joint segment, from the border of its last layer to that of the layer before
// its first. Requires: each layer has the modes `keep` and `full`.
void joint_backward(const StepCosts& costs, JointRange range, LiveBytes& bytes);

}  // namespace pudica::planner
