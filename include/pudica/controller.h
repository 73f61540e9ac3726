// Controller: the policy `pudica` itself. Learns segments, plans on them, keeps plans and margin.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pudica/peak_model.h"
#include "pudica/plan_cache.h"
#include "pudica/planner.h"
#include "pudica/policy.h"
#include "pudica/predictor.h"
#include "pudica/result.h"

namespace pudica {

enum class WarmupMode : std::uint8_t { kRevocable, kSheltered };
enum class ControllerState : std::uint8_t { kLearning, kPlanning, kStandingDown };

std::string to_string(ControllerState state);

// What controllers of one model tell each other of forwards that share a backward. Not thread-safe;
// outlives them by their shares.
class WaitingForwards;
std::shared_ptr<WaitingForwards> make_waiting_forwards();

struct ControllerOptions {
  WarmupMode warmup_mode = WarmupMode::kRevocable;
  std::int64_t warmup_min_steps = 2;     // learning steps before the first plan, >= 1
  std::int64_t warmup_max_steps = 30;    // plan from then on with whatever is known
  double warmup_fit_error = 0.01;        // relative peak error above which a step is a misfit
  double margin_revocation_rate = 0.01;  // steps that may need a revocation, in (0, 0.5]
  // Which modes may be planned: kinds named here. Empty: all but `offload`.
  std::vector<Mode::Kind> menu;
  std::int64_t host_bytes = std::int64_t{4} << 30U;  // what layers of mode `offload` may fill
  // A restored state is taken at its word: for who reads states and runs no steps of its own. Else
  // it is a claim until the run's steps agree with it.
  bool trusts_restored_states = false;
  double ample_fraction = 0.9;  // predicted peak below this share of the budget: hook-free keep
  PlannerOptions planner;
  PredictorOptions predictor;
  PlanCacheOptions cache;
  std::shared_ptr<WaitingForwards> waiting;  // null: its own
};

// Counted over a controller's life.
struct ControllerCounters {
  std::int64_t steps = 0;
  std::int64_t learning_steps = 0;  // without a plan that predicts
  std::int64_t plans_made = 0;
  std::int64_t infeasible_steps = 0;
  std::int64_t revoked_steps = 0;
  std::int64_t revocations = 0;
  std::int64_t overruns = 0;
  std::int64_t drifts = 0;
  std::int64_t refused_states = 0;  // restored, and dropped: its own steps said otherwise
};

// Measured against predicted peak of one step, most recent last in the snapshot.
struct PeakRecord {
  std::uint64_t step = 0;
  ShapeKey shape;
  Bytes predicted_bytes{0};
  Bytes measured_bytes{0};
};

struct ControllerSnapshot {
  ControllerState state = ControllerState::kLearning;
  std::string state_reason;
  Bytes budget_bytes{0};
  Bytes margin_bytes{0};  // held back at the last plan
  double margin_fraction = 0;
  Bytes base_bytes{0};
  StepStructure structure;
  ControllerCounters counters;
  std::int64_t recorded_steps = 0;  // that taught something, those of a restored state included
  std::int64_t cache_hits = 0;
  std::int64_t cache_misses = 0;
  std::vector<CachedPlan> plans;
  std::vector<LearnedQuantity> learned;
  std::vector<PeakRecord> recent_peaks;  // bounded
};

// What a shape would need: for `estimate` and `explain`.
struct ShapeEstimate {
  ShapeKey shape;
  Bytes keep_all_peak_bytes{0};
  Bytes floor_peak_bytes{0};  // the least peak any plan of the menu reaches
  PlanPtr plan;               // under the budget asked for
  // What the step peaks at, at most: of the plan, by the upper bounds of what was learned. While
  // the plan is not settled another one may be taken: then what the budget allows, or what keeping
  // all needs at most.
  Bytes upper_peak_bytes{0};
  // More learning leaves the plan as it is: its peak is certain, and no mode that could be cheaper
  // has still to be measured.
  bool settled = false;
  std::vector<FrontierPoint> frontier;  // absolute peak bytes, extra nanoseconds
  // Of every layer recomputed by itself, as frameworks' gradient checkpointing does it. nullopt:
  // `full` of some layer is not known, or not on the menu.
  std::optional<FrontierPoint> all_full;
  bool identified = false;
  // What it rests on: the live bytes of the latest step, whether that accumulated, what is held
  // back from the budget.
  Bytes base_bytes{0};
  bool gradients_present = false;
  Bytes returning_bytes{0};
  Bytes margin_bytes{0};
};

// A state machine with no torch, no clock and no thread. Not thread-safe: one owner thread.
class Controller : public Policy {
 public:
  // Takes effect at the next step.
  virtual void set_budget(Bytes budget_bytes) = 0;
  [[nodiscard]] virtual ControllerState state() const = 0;
  [[nodiscard]] virtual ControllerSnapshot snapshot() const = 0;
  // Errors: kUnavailable while learning.
  [[nodiscard]] virtual Result<ShapeEstimate> estimate(const ShapeKey& shape,
                                                       Bytes budget_bytes) const = 0;
  // Costs of a step as the model predicts them. Errors: kUnavailable, naming what is unknown.
  [[nodiscard]] virtual Result<StepCosts> costs(const StepContext& context) const = 0;
  // Learned state under a fingerprint of the model; restore() refuses another fingerprint.
  [[nodiscard]] virtual std::string serialize(const std::string& fingerprint) const = 0;
  virtual Result<void> restore(const std::string& text, const std::string& fingerprint) = 0;
};

std::unique_ptr<Controller> make_controller(const ControllerOptions& options);

}  // namespace pudica
