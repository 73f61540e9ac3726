// ReportingPolicy: what a trainer puts around a policy so that the daemon sees and steers its run.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "inspect/reporter.h"
#include "pudica/controller.h"
#include "pudica/policy.h"

namespace pudica {

struct ReportingOptions {
  std::string run_name;
  std::string fingerprint;   // of the learned state; empty: models are neither sent nor taken
  bool takes_models = true;  // false: the run brought its own
  bool in_group = false;     // tells the group what each new shape could use
  Bytes budget_bytes{0};     // of the run's own; 0: not limited
  // A budget below this would end the run: the daemon's wishes are raised to it.
  Bytes least_budget_bytes{0};
};

// Passes every call on to `inner` and tells the reporter. `controller` (may be null) is the one
// that `inner` is, or leads to. The trainer's handle asks next_budget() as a step begins
// (AttachOptions::next_budget). Not thread-safe: one owner thread.
class ReportingPolicy final : public Policy {
 public:
  ReportingPolicy(std::shared_ptr<Policy> inner, std::shared_ptr<Controller> controller,
                  std::shared_ptr<Reporter> reporter, ReportingOptions options);

  [[nodiscard]] std::string name() const override { return inner_->name(); }
  void on_structure(const StepStructure& structure) override;
  [[nodiscard]] bool wants_menus() const override { return inner_->wants_menus(); }
  [[nodiscard]] std::vector<std::string> keep_operators() const override {
    return inner_->keep_operators();
  }
  [[nodiscard]] std::optional<Eviction> eviction() const override { return inner_->eviction(); }
  StepDecision begin_step(const StepContext& context) override;
  std::optional<StepDecision> replan(const StepContext& context,
                                     std::uint16_t first_class) override;
  void end_step(const StepOutcome& outcome) override;
  void learn_times(const std::vector<SegmentTime>& times) override;

  // The daemon's wish for the step that begins, if it has a new one; it counts as applied.
  std::optional<Bytes> next_budget();
  // The run changed its budget, from its next step on; `fraction` as in RunDescription.
  void changed_itself(Bytes budget_bytes, std::optional<double> fraction);
  // The last snapshot and model, and the end. True: the daemon knows.
  bool finish(const std::string& status, std::chrono::milliseconds timeout);
  [[nodiscard]] Reporter& reporter() { return *reporter_; }

 private:
  void take_model();
  void tell_need(const ShapeKey& shape, Bytes budget_bytes);

  std::shared_ptr<Policy> inner_;
  std::shared_ptr<Controller> controller_;
  std::shared_ptr<Reporter> reporter_;
  ReportingOptions options_;
  StepStructure structure_;
  std::uint64_t step_ = 0;  // the last one that began
  bool recorded_ = false;
  bool has_planned_ = false;         // the step under way teaches
  bool learned_ = false;             // the learned state changed since it was sent
  std::map<ShapeKey, Bytes> needs_;  // with every layer kept, of shapes seen; bounded
};

}  // namespace pudica
