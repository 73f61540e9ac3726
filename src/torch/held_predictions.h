// HeldPredictions: which plans needed what they predict, and with how large inputs. Only so far may
// layers run in ways that cannot be taken back: kept without hooks, or several as one segment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pudica/plan.h"
#include "pudica/shape_key.h"
#include "torch/largest_shapes.h"

namespace pudica::hooks {

// What a layer saves follows its own inputs; a plan is made from the batch's shape. Where the bytes
// hang on something else (a value, a length made inside the model) the layers' inputs tell it, in
// the step itself, before what they need is there. What they do not tell (dropout that is switched
// on, a number that the layer reads) the memory in use tells, in front of the next layer. What that
// does not tell either shows afterwards. Each time that a step went without hooks and needed more,
// all plans begin anew and have to hold twice as often before they go without them again. Once one
// that did was in the way of a step that came before its backward and was short of room, none does
// any more. Where layers had other inputs in another step of the very same shape, no prediction is
// of much use. A plan that was not run yet is held to what one with the same modes showed at a
// shape that covers its own. Not thread-safe.
class HeldPredictions {
 public:
  // A layer call that begins.
  struct Seen {
    std::uint16_t layer_class = 0;
    std::int64_t input_bytes = 0;
    std::int64_t grown_bytes = 0;  // in use beyond what was as the step began
    bool foreseen = true;          // by the plan
  };

  // A step under `plan` (null: none) begins. Others than those that ask for it are never doubted.
  void begin(const ShapeKey& shape, const Plan* plan) {
    if (inputs_of_.size() >= kMostPlans) inputs_of_.clear();
    usual_ = &inputs_of_[shape];
    plan_ = plan != nullptr && plan->revocable_until_held ? plan : nullptr;
    step_.clear();
    known_ = nullptr;
    doubts_ = ran_free_ = false;
    growth_.reset();
    if (plan_ == nullptr) return;
    shape_ = shape;
    known_ = known_of(*plan_);
    doubts_ = known_ == nullptr || known_->times < needed_;
  }

  // The step's next layer call. True: from here on nothing says that the step will need what the
  // plan predicts.
  bool doubts(const Seen& seen) {
    const std::size_t call = step_.size();
    if (!doubts_) grows(call, seen.grown_bytes);
    step_.push_back({seen.input_bytes, seen.grown_bytes});
    const Inputs now{seen.layer_class, seen.input_bytes};
    if (call >= usual_->size()) usual_->push_back(now);
    Inputs& usual = (*usual_)[call];
    if (usual.layer_class != seen.layer_class) usual = now;  // another step, and known as one
    inputs_vary_ = inputs_vary_ || usual.bytes != seen.input_bytes;
    doubts_ = doubts_ || (plan_ != nullptr && !seen.foreseen);
    if (known_ != nullptr) {
      doubts_ = doubts_ || call >= known_->calls.size() ||
                seen.input_bytes > known_->calls[call].input_bytes;
    }
    ran_free_ = ran_free_ || !doubts_;
    return doubts_;
  }
  // Whether in front of that layer call more is in use than in all steps that held: something needs
  // more than it did. From here on the step is in doubt then.
  bool grows(std::size_t call, std::int64_t grown_bytes) {
    if (known_ == nullptr || call >= known_->calls.size()) return false;
    const std::int64_t beyond = grown_bytes - known_->calls[call].grown_bytes;
    if (beyond <= rounding(*plan_)) return false;
    if (!growth_) growth_ = Growth{call, beyond};
    doubts_ = true;
    return true;
  }
  // So many calls were passed by, and the next one is not what it was: the step is in doubt.
  void passed(std::size_t calls) {
    for (std::size_t i = 0; i < calls; ++i) {
      step_.push_back({i < usual_->size() ? (*usual_)[i].bytes : 0, 0});
    }
    ran_free_ = ran_free_ || calls > 0;
    doubts_ = doubts_ || plan_ != nullptr;
  }
  // Nothing has yet said so of the step, and no step of this run had layers whose inputs were of
  // other sizes than in another one of the same shape.
  [[nodiscard]] bool trusts() const { return !doubts_ && !inputs_vary_; }
  // The plan's prediction, rounding aside.
  static bool holds(const Plan& plan, std::int64_t peak_bytes) {
    return peak_bytes <= plan.predicted_peak_bytes.count() + rounding(plan);
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
      if (!rested) note_held(*plan);
      return;
    }
    held_.erase(plan->id);
    if (doubts_ && !ran_free_) return;
    held_.clear();
    needed_ = std::min(2 * needed_, kMostNeeded);
  }
  // What ran without hooks stood in the way of a step that came before its backward, and could not
  // be given back: its loss was left out. A loop that does so once does so again.
  void stood_in_the_way() {
    held_.clear();
    needed_ = kMostNeeded;
  }

 private:
  static constexpr std::int64_t kRoundingShare = 1000;
  static constexpr std::int64_t kMostNeeded = std::int64_t{1} << 20U;
  static constexpr std::size_t kMostPlans = 4096;

  struct Inputs {
    std::uint16_t layer_class = 0;
    std::int64_t bytes = 0;
  };
  struct CallBytes {
    std::int64_t input_bytes = 0;
    std::int64_t grown_bytes = 0;
  };
  struct Held {
    std::int64_t times = 0;
    std::vector<CallBytes> calls;  // the most of each
    bool free = false;             // grown_bytes are of steps without hooks, which hold no inputs
  };

  // From that layer call on, as far as known.
  struct Growth {
    std::size_t call = 0;
    std::int64_t bytes = 0;
  };

  static std::int64_t rounding(const Plan& plan) {
    return plan.predicted_peak_bytes.count() / kRoundingShare;
  }

  // What the plan is held to; null: nothing yet.
  [[nodiscard]] const Held* known_of(const Plan& plan) const {
    const auto own = held_.find(plan.id);
    if (own != held_.end() && own->second.times >= needed_) return &own->second;
    const auto above = largest_.above(shape_, {plan.modes, plan.layer_classes});
    const auto larger = above ? held_.find(*above) : held_.end();
    if (larger != held_.end() && larger->second.times >= needed_) return &larger->second;
    return own != held_.end() ? &own->second : nullptr;
  }

  void note_held(const Plan& plan) {
    if (held_.size() >= kMostPlans) held_.clear();
    Held& held = held_[plan.id];
    ++held.times;
    if (held.times >= needed_) largest_.add(shape_, {plan.modes, plan.layer_classes}, plan.id);
    held.calls.resize(std::max(held.calls.size(), step_.size()));
    const bool first_free = !doubts_ && !held.free;
    for (std::size_t i = 0; i < step_.size(); ++i) {
      CallBytes& call = held.calls[i];
      call.input_bytes = std::max(call.input_bytes, step_[i].input_bytes);
      if (first_free) call.grown_bytes = 0;
      if (growth_ && i >= growth_->call) call.grown_bytes += growth_->bytes;
      if (doubts_ && held.free) continue;
      call.grown_bytes = std::max(call.grown_bytes, step_[i].grown_bytes);
    }
    held.free = held.free || !doubts_;
  }

  using Alike = std::pair<std::vector<Mode>, std::vector<std::uint16_t>>;

  std::unordered_map<std::uint64_t, Held> held_;  // by plan
  LargestShapes<Alike, std::uint64_t> largest_;   // at which plans held
  ShapeKey shape_;                                // of the step
  std::int64_t needed_ = 1;
  const Plan* plan_ = nullptr;  // of the step, where it is to hold
  const Held* known_ = nullptr;
  std::vector<CallBytes> step_;  // by layer call
  bool doubts_ = false;
  std::optional<Growth> growth_;  // of the memory in use beyond that of steps that held
  bool ran_free_ = false;         // a layer call was not in doubt
  std::map<ShapeKey, std::vector<Inputs>> inputs_of_;  // as first seen, by layer call
  std::vector<Inputs>* usual_ = nullptr;               // of the step's shape
  bool inputs_vary_ = false;
};

}  // namespace pudica::hooks
