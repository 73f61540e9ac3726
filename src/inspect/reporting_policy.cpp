#include "inspect/reporting_policy.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "inspect/recomputation.h"

namespace pudica {
namespace {

constexpr std::size_t kMostShapesKnown = 4096;

}  // namespace

ReportingPolicy::ReportingPolicy(std::shared_ptr<Policy> inner,
                                 std::shared_ptr<Controller> controller,
                                 std::shared_ptr<Reporter> reporter, ReportingOptions options)
    : inner_(std::move(inner)),
      controller_(std::move(controller)),
      reporter_(std::move(reporter)),
      options_(std::move(options)) {}

void ReportingPolicy::on_structure(const StepStructure& structure) {
  if (structure.class_names != structure_.class_names) needs_.clear();
  structure_ = structure;
  inner_->on_structure(structure);
}

std::optional<Bytes> ReportingPolicy::next_budget() {
  const auto order = reporter_->take_budget();
  if (!order) return std::nullopt;
  const Bytes budget = std::max(order->budget_bytes, options_.least_budget_bytes);
  if (budget != order->budget_bytes) {
    log_warn("the daemon asks for a budget of " + format_bytes(order->budget_bytes) +
             ", below what this run needs: it takes " + format_bytes(budget));
  }
  options_.budget_bytes = budget;
  needs_.clear();
  reporter_->budget_applied(order->seq, step_ + 1, budget);
  return budget;
}

void ReportingPolicy::changed_itself(Bytes budget_bytes, std::optional<double> fraction) {
  options_.budget_bytes = budget_bytes;
  needs_.clear();
  reporter_->budget_changed(step_ + 1, budget_bytes, fraction);
}

void ReportingPolicy::take_model() {
  auto state = reporter_->take_model();
  if (!state || !controller_ || !options_.takes_models || options_.fingerprint.empty()) return;
  // A model that this run has fitted by itself is not given up.
  if (has_planned_) return;
  const auto done = controller_->restore(*state, options_.fingerprint);
  if (!done) log_warn("the daemon's learned state is not used: " + done.error().message);
}

StepDecision ReportingPolicy::begin_step(const StepContext& context) {
  ++step_;
  take_model();
  StepDecision decision = inner_->begin_step(context);
  recorded_ = decision.record;
  has_planned_ =
      has_planned_ || (controller_ && controller_->state() == ControllerState::kPlanning);
  if (options_.in_group && controller_) tell_need(context.shape, context.budget_bytes);
  return decision;
}

std::optional<StepDecision> ReportingPolicy::replan(const StepContext& context,
                                                    std::uint16_t first_class) {
  auto decision = inner_->replan(context, first_class);
  if (decision) recorded_ = decision->record;
  return decision;
}

void ReportingPolicy::tell_need(const ShapeKey& shape, Bytes budget_bytes) {
  if (controller_->state() != ControllerState::kPlanning) return;
  auto known = needs_.find(shape);
  if (known == needs_.end()) {
    const auto estimate = controller_->estimate(shape, budget_bytes);
    if (!estimate) return;
    if (needs_.size() >= kMostShapesKnown) needs_.clear();
    known = needs_.emplace(shape, estimate->keep_all_peak_bytes).first;
  }
  reporter_->need(known->second);
}

void ReportingPolicy::end_step(const StepOutcome& outcome) {
  inner_->end_step(outcome);
  StepOutcome bare;  // without segments: the learned state tells the same in less
  bare.context = outcome.context;
  bare.plan = outcome.plan;
  bare.peak_bytes = outcome.peak_bytes;
  bare.seconds = outcome.seconds;
  bare.revocations = outcome.revocations;
  bare.overrun = outcome.overrun;
  bare.ran_free = outcome.ran_free;
  bare.waits = outcome.waits;
  bare.other_layers = outcome.other_layers;
  bare.repeated_backward = outcome.repeated_backward;
  bare.host_peak_bytes = outcome.host_peak_bytes;
  bare.allocator = outcome.allocator;
  StepEvent event;
  event.record = make_step_record(options_.run_name, step_, bare, StepStructure{});
  if (bare.plan) event.record.modes = planned_modes(*bare.plan, structure_);
  event.record.recompute_seconds = recompute_seconds(outcome, structure_);
  // What is measured in a step that has a plan is no learning step.
  const bool predicted = bare.plan && bare.plan->predicted_peak_bytes > Bytes(0);
  event.learning = recorded_ && !predicted;
  event.recomputed = recomputed_calls(event.record.modes, outcome.revocations);
  reporter_->step(std::move(event));
  learned_ = learned_ || recorded_;
  // Such a step may have found what the next plan rests on.
  if (recorded_) reporter_->mark_learned();
  if (!controller_) return;
  if (reporter_->wants_snapshot()) reporter_->snapshot(controller_->snapshot());
  if (!options_.fingerprint.empty() && reporter_->wants_model()) {
    reporter_->model(controller_->serialize(options_.fingerprint));
    learned_ = false;
  }
}

void ReportingPolicy::learn_times(const std::vector<SegmentTime>& times) {
  inner_->learn_times(times);
  learned_ = true;
}

bool ReportingPolicy::finish(const std::string& status, std::chrono::milliseconds timeout) {
  if (controller_ && step_ > 0 && reporter_->status().registered) {
    reporter_->snapshot(controller_->snapshot());
    if (learned_ && !options_.fingerprint.empty()) {
      reporter_->model(controller_->serialize(options_.fingerprint));
    }
  }
  return reporter_->finish(status, timeout);
}

}  // namespace pudica
