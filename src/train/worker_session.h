// WorkerSession: one policy's run from setup to finish, with its state file and its record.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "inspect/recording_policy.h"
#include "inspect/reporting_policy.h"
#include "policy/policy_spec.h"
#include "pudica/controller.h"
#include "train/worker_run.h"

namespace pudica::train {

// How `none` trains: plain LibTorch, with nothing of ours in the process; under a handle and its
// meter; or so and held to the budget.
enum class NoneKind : std::uint8_t { kPlain, kMetered, kCapped };

struct SessionSetup {
  std::string policy;
  Bytes budget_bytes{0};
  NoneKind none = NoneKind::kPlain;
  std::string state_path;  // --state
  std::string
      state_file;  // the configuration's, where there is no --state or it does not exist yet
  std::string record_path;
  Bytes floor_bytes{0};  // of the run; 0: not known
  Bytes keep_all_bytes{0};
};

// The configuration that the options name, with the environment's overrides and `--warmup-mode`.
Result<Config> load_configuration(const TrainOptions& options);
ControllerOptions controller_options(const TrainOptions& options, const Config& config);

// Not thread-safe.
class WorkerSession {
 public:
  // Errors: kInvalidArgument (policy, configuration), kCorrupt (state file), kUnavailable.
  static Result<std::unique_ptr<WorkerSession>> start(const TrainOptions& options,
                                                      const RunData& data,
                                                      const SessionSetup& setup);

  ~WorkerSession();

  // How the registration went: {"registered","id","reason"}; null where the run does not register.
  [[nodiscard]] nlohmann::json daemon() const;
  // A StepRow as JSON. Throws as TrainingRun::step.
  nlohmann::json step(std::int64_t index);
  // Tells the daemon how the run ended, unless it knows.
  void end(const std::string& status);
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

  WorkerSession(const TrainOptions& options, SessionSetup setup)
      : options_(options), setup_(std::move(setup)) {}

  static Result<std::unique_ptr<WorkerSession>> begin(std::unique_ptr<WorkerSession> session,
                                                      const TrainOptions& options,
                                                      const RunData& data, const RunSetup& run);
  [[nodiscard]] std::string fingerprint() const;
  Result<void> restore_state();
  // True: the file is there and its state was taken.
  Result<bool> restore_from(const std::string& path, const std::string& what);
  Result<void> save_state() const;
  void report_to_daemon(const Config& config, RunSetup& run);
  void remember(const StepRow& row);

  const TrainOptions& options_;
  SessionSetup setup_;
  std::shared_ptr<Policy> policy_;
  std::shared_ptr<Controller> controller_;      // null for policies that are not `pudica`
  std::shared_ptr<RecordingPolicy> recording_;  // around policy_; null: plain
  std::shared_ptr<ReportingPolicy> reporting_;  // null: the run does not register
  std::unique_ptr<TrainingRun> run_;
  bool has_state_ = false;
  std::int64_t steps_done_ = 0;
  std::string ending_ = "failed";  // what the daemon is told of a session that just goes away
  std::map<std::string, PlanUse> plans_;  // by shape
  std::set<std::uint64_t> plan_ids_;
};

}  // namespace pudica::train
