#include "daemon/run_state.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "inspect/recomputation.h"

namespace pudica::daemon {
namespace {

RunPhase phase_of(const std::string& state) {
  if (state == "learning") return RunPhase::kLearning;
  if (state == "standing_down") return RunPhase::kStandingDown;
  return RunPhase::kPlanning;
}

double elements(const ShapeKey& key) {
  double out = 1;
  for (const std::int64_t size : key.values()) out *= static_cast<double>(size);
  return out;
}

// Of shapes of which none covers another one: the smallest goes where they are too many.
void add_longest(std::vector<ShapeKey>& longest, const ShapeKey& key) {
  if (std::ranges::any_of(longest, [&key](const ShapeKey& one) { return one.covers(key); })) return;
  std::erase_if(longest, [&key](const ShapeKey& one) { return key.covers(one); });
  longest.push_back(key);
  if (longest.size() > kLongestShapesKept) {
    longest.erase(std::ranges::min_element(longest, {}, elements));
  }
}

}  // namespace

StepSummary summarize(const StepEvent& event) {
  const StepRecord& record = event.record;
  StepSummary step;
  step.step = record.step;
  step.key = record.key;
  step.plan_id = record.plan_id;
  step.predicted_bytes = record.predicted_bytes;
  step.measured_bytes = record.measured_bytes;
  step.budget_bytes = record.budget_bytes;
  step.seconds = record.seconds;
  step.recompute_seconds = record.recompute_seconds;
  step.recomputed = event.recomputed;
  step.layers = static_cast<std::int64_t>(record.modes.size());
  step.revocations = record.revocations;
  step.overrun = record.overrun;
  step.learning = event.learning;
  step.host_peak_bytes = record.host_peak_bytes;
  step.allocator = record.allocator;
  return step;
}

std::string_view to_string(RunPhase phase) {
  switch (phase) {
    case RunPhase::kRegistered:
      return "registered";
    case RunPhase::kLearning:
      return "learning";
    case RunPhase::kPlanning:
      return "planning";
    case RunPhase::kStandingDown:
      return "standing_down";
    case RunPhase::kEnded:
      return "ended";
    case RunPhase::kLost:
      return "lost";
  }
  return "unknown";
}

RunState::RunState(std::string id, RunDescription description, std::int64_t unix_seconds) {
  summary_.id = std::move(id);
  summary_.started_at = unix_seconds;
  summary_.last_seen_at = unix_seconds;
  summary_.budget_bytes = description.budget_bytes;
  summary_.about = std::make_shared<const RunDescription>(std::move(description));
  change_budget({.at = unix_seconds,
                 .budget_bytes = summary_.budget_bytes,
                 .fraction = summary_.about->budget_fraction,
                 .source = "run"});
}

void RunState::register_again(RunDescription description, std::int64_t unix_seconds) {
  summary_.last_seen_at = unix_seconds;
  summary_.ended_at.reset();
  summary_.status.clear();
  summary_.phase = summary_.step ? RunPhase::kPlanning : RunPhase::kRegistered;
  summary_.phase_reason.clear();
  summary_.budget_pending_bytes.reset();
  asked_.reset();
  if (description.budget_bytes != summary_.budget_bytes ||
      description.budget_fraction != summary_.budget_fraction) {
    change_budget({.at = unix_seconds,
                   .step = summary_.step.value_or(0),
                   .budget_bytes = description.budget_bytes,
                   .fraction = description.budget_fraction,
                   .source = "run"});
  }
  summary_.about = std::make_shared<const RunDescription>(std::move(description));
}

void RunState::grant_budget(Bytes budget_bytes, const std::string& source,
                            std::int64_t unix_seconds) {
  change_budget({.at = unix_seconds,
                 .step = summary_.step.value_or(0),
                 .budget_bytes = budget_bytes,
                 .source = source});
}

void RunState::apply(const RunEvent& event, std::int64_t unix_seconds) {
  std::visit([this, unix_seconds](const auto& what) { on(what, unix_seconds); }, event);
}

void RunState::dropped(std::int64_t records) {
  summary_.dropped_records = std::max(summary_.dropped_records, records);
}

void RunState::ask_budget(std::uint64_t seq, Bytes budget_bytes, const std::string& source) {
  summary_.budget_pending_bytes = budget_bytes;
  asked_ = AskedBudget{seq, source};
}

void RunState::lose(std::int64_t unix_seconds) {
  summary_.phase = RunPhase::kLost;
  summary_.phase_reason =
      "silent since " + std::to_string(unix_seconds - summary_.last_seen_at) + " seconds";
  summary_.status = "lost";
  summary_.ended_at = unix_seconds;
  summary_.budget_pending_bytes.reset();
}

RunSummary RunState::summary() const {
  RunSummary out = summary_;
  if (layer_calls_ > 0) {
    out.recomputed_calls_share =
        static_cast<double>(recomputed_calls_) / static_cast<double>(layer_calls_);
  }
  out.recomputed_share = pudica::recomputed_share(recompute_seconds_, timed_seconds_);
  // The counters of the run itself know of steps before the daemon's time.
  if (out.snapshot) {
    out.learning_steps = std::max(out.learning_steps, out.snapshot->learning_steps);
    out.revocations = std::max(out.revocations, out.snapshot->revocations);
    out.overruns = std::max(out.overruns, out.snapshot->overruns);
  }
  const std::size_t counted = std::min(steps_.size(), kStepsOfMedian);
  if (counted == 0) return out;
  std::array<double, kStepsOfMedian> seconds{};
  std::transform(steps_.end() - static_cast<std::ptrdiff_t>(counted), steps_.end(), seconds.begin(),
                 [](const StepSummary& step) { return step.seconds; });
  auto* const middle = seconds.begin() + counted / 2;
  std::nth_element(seconds.begin(), middle, seconds.begin() + counted);
  out.step_seconds_median = *middle;
  return out;
}

RunDetail RunState::detail_without_steps() const {
  return {summary(),
          {},
          {budgets_.begin(), budgets_.end()},
          longest_,
          snapshot_,
          model_,
          model_step_,
          snapshot_budget_bytes_};
}

RunDetail RunState::detail() const {
  RunDetail out = detail_without_steps();
  out.steps.assign(steps_.begin(), steps_.end());
  return out;
}

void RunState::on(const StepEvent& event, std::int64_t /*unix_seconds*/) {
  const StepSummary step = summarize(event);
  summary_.step = step.step;
  summary_.last = step;
  add_longest(longest_, step.key);
  summary_.peak_bytes = std::max(summary_.peak_bytes.value_or(Bytes(0)), step.measured_bytes);
  summary_.budget_used =
      std::max(summary_.budget_used, budget_used(step.measured_bytes, step.budget_bytes));
  summary_.host_peak_bytes = std::max(summary_.host_peak_bytes, step.host_peak_bytes);
  if (event.record.profiles) summary_.base_bytes = event.record.profiles->base_bytes;
  summary_.steps += 1;
  summary_.learning_steps += step.learning ? 1 : 0;
  summary_.revocations += step.revocations;
  summary_.revoked_steps += step.revocations > 0 ? 1 : 0;
  summary_.overruns += step.overrun ? 1 : 0;
  layer_calls_ += step.layers;
  recomputed_calls_ += step.recomputed;
  if (step.recompute_seconds) {
    recompute_seconds_ += *step.recompute_seconds;
    timed_seconds_ += step.seconds;
  }
  if (step.learning) {
    summary_.phase = RunPhase::kLearning;
  } else if (summary_.phase != RunPhase::kStandingDown) {
    summary_.phase = RunPhase::kPlanning;
  }
  for (BudgetChange& change : budgets_) {
    if (!change.awaits_step || step.step < change.step) continue;
    change.awaits_step = false;
    change.plan_id = step.plan_id;
    change.predicted_bytes = step.predicted_bytes;
    change.measured_bytes = step.measured_bytes;
    change.seconds = step.seconds;
    change.recompute_seconds = step.recompute_seconds;
  }
  steps_.push_back(step);
  if (steps_.size() > kStepsKept) steps_.pop_front();
}

void RunState::on(const SnapshotEvent& event, std::int64_t /*unix_seconds*/) {
  snapshot_ = std::make_shared<const std::string>(event.snapshot);
  snapshot_budget_bytes_ = summary_.budget_bytes;
  summary_.snapshot = event.fields;
  if (event.fields.base_bytes > Bytes(0)) summary_.base_bytes = event.fields.base_bytes;
  if (!summary_.step) return;  // registered, until its first step
  summary_.phase = phase_of(event.fields.state);
  summary_.phase_reason = event.fields.state_reason;
}

void RunState::on(const ModelEvent& event, std::int64_t /*unix_seconds*/) {
  model_ = std::make_shared<const std::string>(event.state);
  model_step_ = summary_.step;
}

void RunState::on(const BudgetEvent& event, std::int64_t unix_seconds) {
  std::string source = "run";
  if (event.seq > 0) {
    source = asked_ && asked_->seq <= event.seq ? asked_->source : summary_.budget_source;
  }
  if (asked_ && event.seq >= asked_->seq) {
    asked_.reset();
    summary_.budget_pending_bytes.reset();
  }
  change_budget({.at = unix_seconds,
                 .seq = event.seq,
                 .step = event.step,
                 .budget_bytes = event.budget_bytes,
                 .fraction = event.fraction,
                 .source = std::move(source)});
}

void RunState::on(const NeedEvent& /*event*/, std::int64_t /*unix_seconds*/) {
  // Of its group: budget_groups.h
}

void RunState::on(const EndEvent& event, std::int64_t unix_seconds) {
  summary_.phase = RunPhase::kEnded;
  summary_.phase_reason.clear();
  summary_.status = event.status;
  summary_.ended_at = unix_seconds;
  summary_.budget_pending_bytes.reset();
}

void RunState::change_budget(BudgetChange change) {
  summary_.budget_bytes = change.budget_bytes;
  summary_.budget_fraction = change.fraction;
  summary_.budget_source = change.source;
  budgets_.push_back(std::move(change));
  if (budgets_.size() > kBudgetChangesKept) budgets_.pop_front();
}

}  // namespace pudica::daemon
