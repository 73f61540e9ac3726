// One training process as the daemon knows it: what it said of itself and what its events told.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inspect/run_protocol.h"
#include "pudica/bytes.h"
#include "pudica/shape_key.h"

namespace pudica::daemon {

inline constexpr std::size_t kStepsKept = 512;      // of a run, the latest
inline constexpr std::size_t kStepsOfMedian = 128;  // the latest
inline constexpr std::size_t kBudgetChangesKept = 256;
inline constexpr std::size_t kLongestShapesKept = 8;

// What is kept of a step.
struct StepSummary {
  std::uint64_t step = 0;
  ShapeKey key;
  std::optional<std::uint64_t> plan_id;
  std::optional<Bytes> predicted_bytes;
  Bytes measured_bytes{0};
  Bytes budget_bytes{0};
  double seconds = 0;
  std::optional<double> recompute_seconds;  // of it; inspect/recomputation.h
  std::int64_t recomputed = 0;
  std::int64_t layers = 0;
  std::int64_t revocations = 0;
  bool overrun = false;
  bool learning = false;
  Bytes host_peak_bytes{0};  // of layers of mode `offload`
  std::optional<AllocatorPeaks> allocator;
};

StepSummary summarize(const StepEvent& event);

// A budget in effect from `step` on, and what the first step under it did.
struct BudgetChange {
  std::int64_t at = 0;    // unix seconds
  std::uint64_t seq = 0;  // of the command that it answers; 0: none
  std::uint64_t step = 0;
  Bytes budget_bytes{0};
  std::optional<double> fraction;  // as RunDescription::budget_fraction
  std::string source;
  std::optional<std::uint64_t> plan_id;
  std::optional<Bytes> predicted_bytes;
  std::optional<Bytes> measured_bytes;
  std::optional<double> seconds;
  std::optional<double> recompute_seconds;
  bool awaits_step = true;
};

enum class RunPhase : std::uint8_t {
  kRegistered,
  kLearning,
  kPlanning,
  kStandingDown,
  kEnded,
  kLost
};
std::string_view to_string(RunPhase phase);

// Everything but the histories; cheap to copy.
struct RunSummary {
  std::string id;
  std::shared_ptr<const RunDescription> about;
  RunPhase phase = RunPhase::kRegistered;
  std::string phase_reason;
  std::string status;  // empty: not ended
  std::int64_t started_at = 0;
  std::int64_t last_seen_at = 0;
  std::optional<std::int64_t> ended_at;
  std::optional<std::uint64_t> step;
  Bytes budget_bytes{0};
  std::optional<double> budget_fraction;  // of the way from floor to keep-all; nullopt: bytes
  std::string budget_source = "run";
  std::optional<Bytes> budget_pending_bytes;
  std::optional<Bytes> base_bytes;
  std::optional<Bytes> peak_bytes;
  std::optional<double> budget_used;  // the most that a peak took of the budget of its own step
  Bytes host_peak_bytes{0};           // the largest of any step
  std::optional<StepSummary> last;
  std::optional<double> step_seconds_median;
  std::optional<double> recomputed_share;        // of the time of steps
  std::optional<double> recomputed_calls_share;  // of layer calls
  std::int64_t steps = 0;                        // seen by the daemon
  std::int64_t learning_steps = 0;
  std::int64_t revocations = 0;
  std::int64_t revoked_steps = 0;  // seen by the daemon, with a revocation
  std::int64_t overruns = 0;
  std::optional<SnapshotFields> snapshot;
  std::int64_t dropped_records = 0;

  [[nodiscard]] bool live() const { return phase != RunPhase::kEnded && phase != RunPhase::kLost; }
};

struct RunDetail {
  RunSummary summary;
  std::vector<StepSummary> steps;
  std::vector<BudgetChange> budgets;
  std::vector<ShapeKey> longest;                // of all steps; none covers another one
  std::shared_ptr<const std::string> snapshot;  // nullptr: none yet
  std::shared_ptr<const std::string> model;     // learned state; nullptr: none yet
  std::optional<std::uint64_t> model_step;      // the last one before it came
  std::optional<Bytes> snapshot_budget_bytes;   // in effect when it came
  std::optional<bool> has_model;  // it, or its fingerprint's, answers questions; nullopt: not told
};

// Not thread-safe: its owner locks.
class RunState {
 public:
  RunState(std::string id, RunDescription description, std::int64_t unix_seconds);

  // The run came back under its id: what it says of itself is taken over, the history stays.
  void register_again(RunDescription description, std::int64_t unix_seconds);
  // What the daemon answered at registration, in effect from the first step on.
  void grant_budget(Bytes budget_bytes, const std::string& source, std::int64_t unix_seconds);
  void seen(std::int64_t unix_seconds) { summary_.last_seen_at = unix_seconds; }
  void apply(const RunEvent& event, std::int64_t unix_seconds);
  void dropped(std::int64_t records);
  void ask_budget(std::uint64_t seq, Bytes budget_bytes, const std::string& source);
  void lose(std::int64_t unix_seconds);

  [[nodiscard]] const RunSummary& plain() const { return summary_; }  // without the statistics
  [[nodiscard]] RunSummary summary() const;
  [[nodiscard]] RunDetail detail() const;
  [[nodiscard]] RunDetail detail_without_steps() const;

 private:
  struct AskedBudget {
    std::uint64_t seq = 0;
    std::string source;
  };

  void on(const StepEvent& event, std::int64_t unix_seconds);
  void on(const SnapshotEvent& event, std::int64_t unix_seconds);
  void on(const ModelEvent& event, std::int64_t unix_seconds);
  void on(const BudgetEvent& event, std::int64_t unix_seconds);
  void on(const NeedEvent& event, std::int64_t unix_seconds);
  void on(const EndEvent& event, std::int64_t unix_seconds);
  void change_budget(BudgetChange change);

  RunSummary summary_;
  std::optional<AskedBudget> asked_;
  std::deque<StepSummary> steps_;
  std::deque<BudgetChange> budgets_;
  std::vector<ShapeKey> longest_;
  std::int64_t layer_calls_ = 0;
  std::int64_t recomputed_calls_ = 0;
  double recompute_seconds_ = 0;  // of steps where it is known
  double timed_seconds_ = 0;      // and what these took
  std::shared_ptr<const std::string> snapshot_;
  std::shared_ptr<const std::string> model_;
  std::optional<std::uint64_t> model_step_;
  std::optional<Bytes> snapshot_budget_bytes_;
};

}  // namespace pudica::daemon
