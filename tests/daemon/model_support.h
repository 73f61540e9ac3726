// What the tests of views and pools share: training processes on the synthetic model.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/model_pool.h"
#include "inspect/json.h"
#include "pudica/controller.h"
#include "support/synthetic_model.h"

namespace pudica::daemon::testing {

using pudica::testing::SyntheticModel;
using pudica::testing::SyntheticSpec;

inline const std::string kFingerprint = "encoder 8x64\nfp32";

// A training process: its model, its controller, and the records that it would send.
class Process {
 public:
  explicit Process(const SyntheticSpec& spec = {}, ControllerOptions options = {})
      : model_(spec), controller_(make_controller(options)) {}

  // Runs a step; the record holds profiles where the controller wanted the step recorded.
  StepRecord step(const ShapeKey& shape, Bytes budget = Bytes(0)) {
    const StepContext context = model_.context(shape, budget);
    const StepDecision decision = controller_->begin_step(context);
    const StepOutcome outcome = model_.run(context, decision);
    controller_->on_structure(model_.structure());
    controller_->end_step(outcome);
    return make_step_record("run", next_step_++, outcome, model_.structure());
  }

  SyntheticModel& model() { return model_; }
  Controller& controller() { return *controller_; }
  [[nodiscard]] std::string state() const { return controller_->serialize(kFingerprint); }
  [[nodiscard]] std::int64_t learning_steps() const {
    return controller_->snapshot().counters.learning_steps;
  }

  // `share` of the way from the least peak to keeping all, at this shape.
  [[nodiscard]] Bytes budget_at(const ShapeKey& shape, double share) const {
    const StepCosts costs = model_.true_costs(shape, false);
    const std::vector<std::uint8_t> keep(costs.layers.size(), 0);
    const std::vector<std::uint8_t> full(costs.layers.size(), 1);
    const auto most = static_cast<double>(step_peak_bytes(costs, keep));
    const auto least = static_cast<double>(step_peak_bytes(costs, full));
    return model_.settled_base() + Bytes(static_cast<std::int64_t>(least + share * (most - least)));
  }

 private:
  SyntheticModel model_;
  std::unique_ptr<Controller> controller_;
  std::uint64_t next_step_ = 0;
};

// A process that has learned its model, with all that it needs to plan.
inline std::unique_ptr<Process> taught_process(const SyntheticSpec& spec = {}) {
  auto process = std::make_unique<Process>(spec);
  for (const std::int64_t length : {64, 96, 128, 160, 200, 72}) {
    process->step(spec.decoder_layers > 0 ? ShapeKey{4 + length % 3, length, length / 2 + 3}
                                          : ShapeKey{4 + length % 3, length});
  }
  return process;
}

}  // namespace pudica::daemon::testing
