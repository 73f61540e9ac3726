// RecordingPolicy: what a trainer puts around a policy to know what its steps did.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "pudica/policy.h"

namespace pudica::train {

// Passes every call on to `inner`, remembers what the last step ran again, and writes a step record
// a line where it has somewhere to. Not thread-safe: one owner thread.
class RecordingPolicy final : public Policy {
 public:
  // What running layers again was, in the step that ended last: see inspect/recomputation.h.
  struct Recomputed {
    std::int64_t calls = 0;
    double step_seconds = 0;  // of the step, by the same clock
    std::optional<double> seconds;
  };

  // `out` may be null: nothing is written.
  RecordingPolicy(std::shared_ptr<Policy> inner, std::unique_ptr<std::ostream> out);

  [[nodiscard]] std::string name() const override { return inner_->name(); }
  void on_structure(const StepStructure& structure) override;
  [[nodiscard]] bool wants_menus() const override { return inner_->wants_menus(); }
  StepDecision begin_step(const StepContext& context) override;
  void end_step(const StepOutcome& outcome) override;
  void learn_times(const std::vector<SegmentTime>& times) override { inner_->learn_times(times); }

  [[nodiscard]] const Recomputed& recomputed() const { return recomputed_; }

 private:
  std::shared_ptr<Policy> inner_;
  std::unique_ptr<std::ostream> out_;
  StepStructure structure_;
  Recomputed recomputed_;
  std::uint64_t step_ = 0;
};

}  // namespace pudica::train
