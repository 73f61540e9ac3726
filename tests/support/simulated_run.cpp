#include "support/simulated_run.h"

#include <algorithm>
#include <unistd.h>
#include <utility>

#include "pudica/planner.h"

namespace pudica::testing {
namespace {

constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kShortest = 64;

SyntheticSpec spec_of(const SimulatedRunOptions& options) {
  SyntheticSpec spec;
  spec.encoder_layers = static_cast<int>(options.layers);
  spec.seed = options.seed;
  return spec;
}

Bytes peak_of(const SyntheticModel& model, const ShapeKey& shape, Mode mode) {
  const StepCosts costs = model.true_costs(shape, false);
  std::vector<std::uint8_t> choice;
  for (const LayerCosts& layer : costs.layers) {
    for (std::uint8_t i = 0; i < layer.modes.size(); ++i) {
      if (layer.modes[i].mode == mode) choice.push_back(i);
    }
  }
  return model.settled_base() + Bytes(step_peak_bytes(costs, choice));
}

}  // namespace

SimulatedRun::SimulatedRun(const SimulatedRunOptions& options)
    : model_(spec_of(options)), random_(options.seed), longest_(options.longest) {
  const ShapeKey longest{kBatch, longest_};
  floor_ = peak_of(model_, longest, Mode::full());
  keep_all_ = peak_of(model_, longest, Mode::keep());
  const auto room = static_cast<double>((keep_all_ - floor_).count());
  budget_ = floor_ + Bytes(static_cast<std::int64_t>(room * options.budget_share));
  controller_ = make_controller(ControllerOptions{});

  ReporterOptions reporter;
  reporter.socket_path = options.socket_path;
  reporter.enabled = options.reports;
  reporter.transport = options.transport;
  RunDescription& run = reporter.description;
  run.name = options.name;
  run.pid = getpid();
  run.user = "simulated";
  run.command = "simulated_runs";
  run.device = "cpu";
  run.model = "synthetic, " + std::to_string(options.layers) + " layers";
  run.policy = "pudica";
  run.fingerprint = options.fingerprint;
  run.group = options.group;
  run.versions = {{"pudica", "0.1.0"}};
  run.budget_bytes = budget_;
  run.floor_bytes = floor_;
  run.keep_all_bytes = keep_all_;
  run.steps_total = options.steps_total;

  ReportingOptions reporting;
  reporting.run_name = options.name;
  reporting.fingerprint = options.fingerprint;
  reporting.in_group = !options.group.empty();
  reporting.budget_bytes = budget_;
  reporting.least_budget_bytes = floor_;
  reporting_ = std::make_shared<ReportingPolicy>(controller_, controller_,
                                                 Reporter::start(std::move(reporter)), reporting);
}

const StepOutcome& SimulatedRun::step() {
  if (const auto budget = reporting_->next_budget()) budget_ = *budget;
  const std::int64_t lengths = longest_ / kShortest;
  const std::int64_t length =
      kShortest * (1 + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(lengths)));
  const ShapeKey shape{kBatch, length};
  const StepContext context = model_.context(shape, budget_);
  const StepDecision decision = reporting_->begin_step(context);
  outcome_ = model_.run(context, decision);
  constexpr double kSecondsPerToken = 1e-5;
  outcome_.seconds = kSecondsPerToken * static_cast<double>(kBatch * length);
  if (!structure_told_) reporting_->on_structure(model_.structure());
  structure_told_ = true;
  reporting_->end_step(outcome_);
  ++steps_;
  largest_peak_ = std::max(largest_peak_, outcome_.peak_bytes);
  digest_ = (digest_ ^ static_cast<std::uint64_t>(length)) * 1099511628211ULL;
  return outcome_;
}

bool SimulatedRun::finish(const std::string& status, std::chrono::milliseconds timeout) {
  return reporting_->finish(status, timeout);
}

}  // namespace pudica::testing
