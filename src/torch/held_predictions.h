// HeldPredictions: which plans needed what they predict, and with how large inputs. Only so far may
// layers run in ways that cannot be taken back: kept without hooks, or several as one segment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pudica/plan.h"
#include "pudica/shape_key.h"

namespace pudica::hooks {

// What a layer saves follows its own inputs; a plan is made from the batch's shape. Where the bytes
// hang on something else (a value, a length made inside the model) the layers' inputs tell it, in
// the step itself, before what they need is there. What they do not tell shows afterwards: a plan
// that was over what it predicted begins anew, and each time that this happened without hooks, all
// plans have to hold twice as often before they go without them. Where layers had other inputs in
// another step of the very same shape, no prediction is of much use. Not thread-safe.
class HeldPredictions {
 public:
  // A step under `plan` (null: none) begins. Others than those that ask for it are never doubted.
  void begin(const ShapeKey& shape, const Plan* plan) {
    if (inputs_of_.size() >= kMostPlans) inputs_of_.clear();
    usual_ = &inputs_of_[shape];
    plan_ = plan != nullptr && plan->revocable_until_held ? plan : nullptr;
    step_.clear();
    known_ = nullptr;
    doubts_ = false;
    if (plan_ == nullptr) return;
    const auto found = held_.find(plan_->id);
    if (found != held_.end()) known_ = &found->second;
    doubts_ = known_ == nullptr || known_->times < needed_;
  }

  // The step's next layer call begins, with inputs of so many bytes; `foreseen`: by the plan. True:
  // from here on nothing says that the step will need what the plan predicts.
  bool doubts(std::uint16_t layer_class, std::int64_t input_bytes, bool foreseen = true) {
    const std::size_t call = step_.size();
    step_.push_back(input_bytes);
    const Inputs now{layer_class, input_bytes};
    if (call >= usual_->size()) usual_->push_back(now);
    Inputs& usual = (*usual_)[call];
    if (usual.layer_class != layer_class) usual = now;  // another step, and known as one
    inputs_vary_ = inputs_vary_ || usual.bytes != input_bytes;
    doubts_ = doubts_ || (plan_ != nullptr && !foreseen);
    if (known_ != nullptr) {
      doubts_ = doubts_ || call >= known_->inputs.size() || input_bytes > known_->inputs[call];
    }
    return doubts_;
  }
  // So many calls were passed by, and the next one is not what it was: the step is in doubt.
  void passed(std::size_t calls) {
    for (std::size_t i = 0; i < calls; ++i) {
      step_.push_back(i < usual_->size() ? (*usual_)[i].bytes : 0);
    }
    doubts_ = doubts_ || plan_ != nullptr;
  }
  // Nothing has yet said so of the step, and no step of this run had layers whose inputs were of
  // other sizes than in another one of the same shape.
  [[nodiscard]] bool trusts() const { return !doubts_ && !inputs_vary_; }
  // The plan's prediction, rounding aside.
  static bool holds(const Plan& plan, std::int64_t peak_bytes) {
    const std::int64_t predicted = plan.predicted_peak_bytes.count();
    return peak_bytes <= predicted + predicted / kRoundingShare;
  }
  // False: two steps of one shape, of this run, had layers with inputs of different sizes. Plans
  // that do not ask for it may join what they will.
  [[nodiscard]] bool may_join() const { return plan_ == nullptr || !inputs_vary_; }

  // The step is over; `whole`: it ran as it should, and nothing was taken back. `rested`: its calls
  // were passed by, and show nothing where the plan held.
  void end(std::int64_t peak_bytes, bool whole, bool rested = false) {
    const Plan* const plan = std::exchange(plan_, nullptr);
    if (plan == nullptr || (step_.empty() && !rested)) return;
    if (whole && holds(*plan, peak_bytes)) {
      if (!rested) note_held(plan->id);
      return;
    }
    held_.erase(plan->id);
    if (!doubts_) needed_ = std::min(2 * needed_, kMostNeeded);
  }

 private:
  static constexpr std::int64_t kRoundingShare = 1000;
  static constexpr std::int64_t kMostNeeded = std::int64_t{1} << 20U;
  static constexpr std::size_t kMostPlans = 4096;

  struct Inputs {
    std::uint16_t layer_class = 0;
    std::int64_t bytes = 0;
  };
  struct Held {
    std::int64_t times = 0;
    std::vector<std::int64_t> inputs;  // by layer call, the largest
  };

  void note_held(std::uint64_t id) {
    if (held_.size() >= kMostPlans) held_.clear();
    Held& held = held_[id];
    ++held.times;
    held.inputs.resize(std::max(held.inputs.size(), step_.size()));
    for (std::size_t i = 0; i < step_.size(); ++i) {
      held.inputs[i] = std::max(held.inputs[i], step_[i]);
    }
  }

  std::unordered_map<std::uint64_t, Held> held_;  // by plan
  std::int64_t needed_ = 1;
  const Plan* plan_ = nullptr;  // of the step, where it is to hold
  const Held* known_ = nullptr;
  std::vector<std::int64_t> step_;  // bytes of inputs, by layer call
  bool doubts_ = false;
  std::map<ShapeKey, std::vector<Inputs>> inputs_of_;  // as first seen, by layer call
  std::vector<Inputs>* usual_ = nullptr;               // of the step's shape
  bool inputs_vary_ = false;
};

}  // namespace pudica::hooks
