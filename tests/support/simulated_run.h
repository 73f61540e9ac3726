// SimulatedRun: a training run without torch that reports to a daemon as a real one does.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "inspect/reporting_policy.h"
#include "pudica/controller.h"
#include "support/synthetic_model.h"

namespace pudica::testing {

struct SimulatedRunOptions {
  std::string socket_path;
  std::string name = "simulated";
  std::string group;
  std::string fingerprint;  // empty: not pooled
  std::uint64_t seed = 1;
  double budget_share = 0.5;  // of the way from the floor to keeping all, of the longest shape
  std::optional<std::int64_t> steps_total;
  std::int64_t longest = 512;  // lengths are 64, 128, ... up to this
  std::int64_t layers = 8;
  bool reports = true;       // false: as with PUDICA_DISABLE=1
  TransportMaker transport;  // null: the socket
};

// A synthetic model under the real controller, wrapped as pudica-train wraps it. Not thread-safe.
class SimulatedRun {
 public:
  explicit SimulatedRun(const SimulatedRunOptions& options);

  // The next step, at a length drawn from the seed; takes up the daemon's budget first.
  const StepOutcome& step();
  bool finish(const std::string& status,
              std::chrono::milliseconds timeout = std::chrono::milliseconds(1000));

  [[nodiscard]] Reporter& reporter() { return reporting_->reporter(); }
  [[nodiscard]] const Controller& controller() const { return *controller_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] Bytes budget() const { return budget_; }
  [[nodiscard]] Bytes floor() const { return floor_; }
  [[nodiscard]] Bytes keep_all() const { return keep_all_; }
  // Of the lengths that the steps had: the same for the same seed, whatever the daemon does.
  [[nodiscard]] std::uint64_t digest() const { return digest_; }
  [[nodiscard]] Bytes largest_peak() const { return largest_peak_; }

 private:
  SyntheticModel model_;
  std::mt19937_64 random_;
  std::int64_t longest_;
  std::shared_ptr<Controller> controller_;
  std::shared_ptr<ReportingPolicy> reporting_;
  Bytes budget_{0};
  Bytes floor_{0};
  Bytes keep_all_{0};
  Bytes largest_peak_{0};
  std::uint64_t steps_ = 0;
  std::uint64_t digest_ = 1469598103934665603ULL;
  bool structure_told_ = false;
  StepOutcome outcome_;
};

}  // namespace pudica::testing
