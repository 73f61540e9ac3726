// Replaying a record: what each step would have been under another policy or budget.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/recorded_model.h"
#include "policy/policy_spec.h"
#include "pudica/policy.h"

namespace pudica::cli {

// A recorded step under the replayed policy.
struct ReplayedStep {
  std::uint64_t step = 0;
  ShapeKey key;
  std::vector<Mode> modes;               // by layer, as planned
  std::optional<Bytes> predicted_bytes;  // by the policy
  Bytes budget_bytes{0};                 // 0: not limited
  Bytes planned_peak_bytes{0};           // what the plan needs, revocation aside
  Bytes peak_bytes{0};                   // with what the budget revokes
  // Of running layers again, planned and revoked, and of the step; nullopt: not known.
  std::optional<double> extra_seconds;
  std::optional<double> seconds;
  double recorded_seconds = 0;  // what the step took as it was recorded; 0: not measured
  std::int64_t recomputed = 0;  // layer calls run again: inspect/recomputation.h
  std::int64_t revocations = 0;
  bool overrun = false;
  bool learning = false;  // the policy asked for measurements
  bool measured = false;  // the recorded step ran this very plan: its peak is the measured one
};

// A step as it was recorded, in the same terms; the model tells what its recompute took where the
// record does not.
ReplayedStep recorded_step(const StepRecord& record, const RecordedModel& model);

// Sums over the steps of one policy. Thread-safe: a value.
struct ReplayTotals {
  std::int64_t steps = 0;
  std::int64_t unknown_steps = 0;  // not simulated: what they need does not follow from the record
  std::string unknown;             // the first reason
  std::int64_t learning_steps = 0;
  std::int64_t measured_steps = 0;
  std::int64_t revocations = 0;
  std::int64_t revoked_steps = 0;
  std::int64_t overruns = 0;
  std::int64_t layer_calls = 0;
  std::int64_t recomputed = 0;
  // Of the steps whose time and recompute are known: these, what they took as they were recorded.
  std::int64_t timed_steps = 0;
  double seconds = 0;
  double extra_seconds = 0;
  double recorded_seconds = 0;
  Bytes peak_bytes{0};
  Bytes planned_peak_bytes{0};
  double budget_used = 0;  // the most of any step

  void add(const ReplayedStep& step);
};

// One policy over the steps of a record, in their order. Not thread-safe.
class Replay {
 public:
  // `model` must outlive it. `budget_bytes`: nullopt, as recorded. Errors: kInvalidArgument for
  // what the policy needs and the record does not hold.
  static Result<Replay> start(const PolicySpec& spec, const ControllerOptions& options,
                              const RecordedModel& model, std::optional<Bytes> budget_bytes);

  // Errors: kUnavailable for a step of which the record does not tell what its plan needs, naming
  // what was not measured; the replay goes on.
  Result<ReplayedStep> step(const StepRecord& record);

 private:
  Replay(std::shared_ptr<Policy> policy, const RecordedModel& model, std::optional<Bytes> budget)
      : policy_(std::move(policy)), model_(&model), budget_bytes_(budget) {
    start_.base_bytes = model.base_bytes();  // until a record tells
  }

  Result<void> simulate(const StepRecord& record, const Plan& plan, const Result<StepModel>& model,
                        ReplayedStep& out) const;
  // Errors: as of step().
  Result<void> run_planned(const StepRecord& record, const Plan& plan, const StepModel& model,
                           const std::vector<std::uint8_t>& choice, ReplayedStep& out) const;
  void end_step(const StepRecord& record, const StepDecision& decision, const StepCosts* costs,
                const ReplayedStep& out);

  std::shared_ptr<Policy> policy_;
  const RecordedModel* model_;
  std::optional<Bytes> budget_bytes_;
  StepStart start_;
  StepContext context_;
};

}  // namespace pudica::cli
