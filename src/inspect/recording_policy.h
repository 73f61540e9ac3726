// RecordingPolicy: what goes around a policy to know what its steps did.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "pudica/policy.h"

namespace pudica {

// Passes every call on to `inner`, remembers what the last step ran again, and writes a step record
// a line where it has somewhere to. Not thread-safe: one owner thread.
class RecordingPolicy final : public Policy {
 public:
  // What running layers again was, in one step: see inspect/recomputation.h.
  struct Recomputed {
    std::int64_t calls = 0;
    double step_seconds = 0;  // of the step, by the same clock
    std::optional<double> seconds;
  };

  // `out` may be null: nothing is written. `run`: its name in the records.
  RecordingPolicy(std::shared_ptr<Policy> inner, std::string run,
                  std::unique_ptr<std::ostream> out);

  [[nodiscard]] std::string name() const override { return inner_->name(); }
  void on_structure(const StepStructure& structure) override;
  [[nodiscard]] bool wants_menus() const override { return inner_->wants_menus(); }
  [[nodiscard]] std::vector<std::string> keep_operators() const override {
    return inner_->keep_operators();
  }
  [[nodiscard]] std::optional<Eviction> eviction() const override { return inner_->eviction(); }
  StepDecision begin_step(const StepContext& context) override {
    return inner_->begin_step(context);
  }
  std::optional<StepDecision> replan(const StepContext& context,
                                     std::uint16_t first_class) override {
    return inner_->replan(context, first_class);
  }
  void end_step(const StepOutcome& outcome) override;
  void learn_times(const std::vector<SegmentTime>& times) override { inner_->learn_times(times); }

  // Of the step that ended last. Given once: nothing where no step ended since.
  Recomputed take_recomputed();

 private:
  std::shared_ptr<Policy> inner_;
  std::string run_;
  std::unique_ptr<std::ostream> out_;
  StepStructure structure_;
  Recomputed recomputed_;
  std::uint64_t step_ = 0;
};

}  // namespace pudica
