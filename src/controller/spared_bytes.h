// SparedBytes: what steps without hooks need less than the model of a step says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pudica/plan.h"
#include "pudica/policy.h"
#include "pudica/predictor.h"

namespace pudica {

// Layers are measured in frames, which hold their inputs until their backward is over; without
// hooks an input that no operator saved goes before. Nothing measures such a step but its peak,
// which tells what was spared under this plan, by shape. Only what is told to users rests on it:
// plans, budgets and judgements are by the prediction, which holds whether there are hooks or not.
// Bounded: the oldest plan goes first. Not thread-safe: one owner thread.
class SparedBytes {
 public:
  static constexpr std::size_t kMostPlans = 16;

  explicit SparedBytes(const PredictorOptions& options);

  // A step of the plan ran without hooks and peaked so much lower than predicted; < 0 counts as 0.
  void note(const StepContext& context, const Plan& plan, std::int64_t spared_bytes);
  // What such a step will spare at least; 0 where that does not follow from those that were seen.
  [[nodiscard]] Bytes of(const StepContext& context, const Plan& plan) const;
  void clear();

 private:
  // Plans of the same modes, whatever their shapes.
  struct Known {
    std::vector<Mode> modes;
    bool gradients_present = false;
    bool casts_present = false;
    SegmentKey key;
  };

  [[nodiscard]] const Known* find(const StepContext& context, const Plan& plan) const;

  std::vector<Known> known_;  // oldest first
  std::uint16_t next_ = 0;
  std::unique_ptr<Predictor> predictor_;
};

}  // namespace pudica
