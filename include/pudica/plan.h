// Plan: one mode per layer, with what it is predicted to need and why it was chosen.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pudica/bytes.h"
#include "pudica/mode.h"
#include "pudica/shape_key.h"

namespace pudica {

// Immutable once published; shared between the policy, the hook layer and reporters.
struct Plan {
  std::uint64_t id = 0;
  ShapeKey shape;
  std::vector<Mode> modes;  // by layer index; layers beyond it run `default_mode`
  Mode default_mode = Mode::keep();
  // The class of each of `modes`: a call then runs the mode of the next layer of its class, as a
  // step may leave layers out. Empty: the mode of its index.
  std::vector<std::uint16_t> layer_classes;
  // Per layer, may be shorter than `modes` (then 0). 1: this `full` layer is recomputed as one with
  // the `full` layer before it (a joint segment); only the segment's first input is held.
  std::vector<std::uint8_t> joined;
  // The first layer of each class (and variant) runs `full`, to teach the class's menu. Only used
  // for layers beyond `modes`.
  bool teach_first_of_class = false;
  // Of layers that were to run a selective mode, in a step in which one of their class turned out
  // to run other operators than the class's menu is for.
  Mode strange_mode = Mode::keep();
  // Kept layers own their saved tensors, so that they can be revoked. False: hook-free keep.
  bool revocable = true;
  // Where it is not: it is all the same until one step has shown the peak that is predicted, and in
  // steps whose layers have larger inputs than then.
  bool revocable_until_held = false;
  bool feasible = true;           // false: even the floor exceeds the budget
  Bytes predicted_peak_bytes{0};  // absolute, base included; 0: not predicted
  // Some layers run a mode to have it measured: the peak stays below what is predicted.
  bool peak_is_bound = false;
  // By how much less than predicted a step peaks in which no kept layer has a hook: one that is
  // measured is held in a frame, with its inputs. As such steps showed it; 0: none did.
  Bytes spared_bytes{0};
  double predicted_extra_seconds = 0;
  double certified_gap_seconds = 0;  // no plan that fits is faster by more than this
  // Predicted bytes above what is live when a layer's forward, or its backward, begins; empty: not
  // predicted. The hook layer makes this much room first.
  std::vector<std::int64_t> forward_need_bytes;
  std::vector<std::int64_t> backward_need_bytes;
  std::string reason;  // in words, for `explain`

  // Whether the measured peak is to be what is predicted.
  [[nodiscard]] bool predicts_peak() const {
    return predicted_peak_bytes > Bytes(0) && !peak_is_bound;
  }
  // What a step of this plan is told to peak at; `ran_free`: its kept layers ran without hooks.
  [[nodiscard]] Bytes predicted_peak(bool ran_free) const {
    return ran_free ? predicted_peak_bytes - spared_bytes : predicted_peak_bytes;
  }
};

using PlanPtr = std::shared_ptr<const Plan>;

}  // namespace pudica
