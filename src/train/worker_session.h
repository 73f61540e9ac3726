// WorkerSession: one policy's run from setup to finish, with its state file and its record.
#pragma once

#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "policy/policy_spec.h"
#include "pudica/controller.h"
#include "train/worker_run.h"

namespace pudica::train {

struct SessionSetup {
  std::string policy;
  Bytes budget_bytes{0};
  bool capped = false;  // `none` held to the budget all the same
  std::string state_path;
  std::string record_path;
};

// The configuration that the options name, with the environment's overrides and `--warmup-mode`.
Result<ControllerOptions> controller_options(const TrainOptions& options);

// Not thread-safe.
class WorkerSession {
 public:
  // Errors: kInvalidArgument (policy, configuration), kCorrupt (state file), kUnavailable.
  static Result<std::unique_ptr<WorkerSession>> start(const TrainOptions& options,
                                                      const RunData& data,
                                                      const SessionSetup& setup);

  // A StepRow as JSON. Throws as TrainingRun::step.
  nlohmann::json step(std::int64_t index);
  // The digest, the cache and the plans; writes the learned state. Errors: kUnavailable.
  Result<nlohmann::json> finish();

 private:
  // The last plan of a shape.
  struct PlanUse {
    PlanPtr plan;
    std::int64_t layers = 0;
    Bytes measured_bytes{0};
    std::int64_t uses = 0;
  };

  WorkerSession(const TrainOptions& options, const SessionSetup& setup)
      : options_(options), setup_(setup) {}

  [[nodiscard]] std::string fingerprint() const;
  Result<void> restore_state();
  Result<void> save_state() const;
  void remember(const StepRow& row);

  const TrainOptions& options_;
  SessionSetup setup_;
  std::shared_ptr<Policy> policy_;
  std::shared_ptr<Controller> controller_;  // null for policies that are not `pudica`
  std::unique_ptr<TrainingRun> run_;
  std::map<std::string, PlanUse> plans_;  // by shape
  std::set<std::uint64_t> plan_ids_;
};

}  // namespace pudica::train
