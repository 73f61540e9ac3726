#include "cli/replay.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "inspect/recomputation.h"
#include "policy/policy_factory.h"

namespace pudica::cli {
namespace {

using Choice = std::vector<std::uint8_t>;

// A model further off than this share of the recorded peak tells nothing of other plans.
constexpr double kMostMisfit = 0.01;

// Takes kept layers back until the step fits, least recompute time per byte freed first, as the
// hook layer does. Returns how many.
std::int64_t revoke(const StepCosts& costs, std::int64_t available, const Plan& plan,
                    Choice& choice) {
  std::int64_t revoked = 0;
  while (step_peak_bytes(costs, choice, plan.joined) > available) {
    std::size_t best = choice.size();
    double least = 0;
    std::uint8_t full = 0;
    for (std::size_t i = 0; i < choice.size(); ++i) {
      const auto& modes = costs.layers[i].modes;
      const auto found = std::ranges::find(modes, Mode::full(), &LayerModeCosts::mode);
      if (found == modes.end() || modes[choice[i]].mode == Mode::full()) continue;
      const std::int64_t freed = modes[choice[i]].forward_net_bytes - found->forward_net_bytes;
      if (freed <= 0) continue;
      const double price = found->extra_seconds / static_cast<double>(freed);
      if (best != choice.size() && price >= least) continue;
      best = i;
      least = price;
      full = static_cast<std::uint8_t>(found - modes.begin());
    }
    if (best == choice.size()) return revoked;
    choice[best] = full;
    ++revoked;
  }
  return revoked;
}

// Whether some layer that is held may go, and it is not known what that would free.
bool lacks_full(const StepCosts& costs, const Choice& choice) {
  for (std::size_t i = 0; i < choice.size(); ++i) {
    const auto& modes = costs.layers[i].modes;
    if (std::ranges::find(modes, Mode::full(), &LayerModeCosts::mode) == modes.end()) return true;
  }
  return false;
}

// What running layers again took in the step as it was recorded: as it tells itself, else by what
// the model knows of its modes.
std::optional<double> recorded_recompute(const StepRecord& record, const StepCosts& costs) {
  if (record.recompute_seconds) return record.recompute_seconds;
  const auto choice = choice_of(costs, modes_run(record));
  if (!choice || record.revocations > 0) return std::nullopt;
  return step_extra_seconds(costs, *choice);
}

// How far the model is off the peak of the step as it was recorded, as a share of it. nullopt: that
// cannot be told, as its modes were never measured, layers of it were revoked, or were recomputed
// as one.
std::optional<double> misfit(const StepRecord& record, const StepCosts& costs, Bytes base_bytes) {
  const std::vector<Mode> modes = modes_run(record);
  const auto choice = choice_of(costs, modes);
  if (!choice || record.revocations > 0 || record.measured_bytes <= Bytes(0)) return std::nullopt;
  const Bytes modelled = base_bytes + Bytes(step_peak_bytes(costs, *choice));
  const auto neighbours = [](Mode a, Mode b) { return a == Mode::full() && b == Mode::full(); };
  const double off = static_cast<double>((modelled - record.measured_bytes).count()) /
                     static_cast<double>(record.measured_bytes.count());
  const bool may_be_joint = std::ranges::adjacent_find(modes, neighbours) != modes.end();
  if (may_be_joint && off > kMostMisfit) return std::nullopt;
  return off;
}

// Why the model does not tell what another plan would have needed in this step; none where it does.
Result<void> check_model(const StepRecord& record, const StepModel& model, const StepStart& start) {
  const auto unknown = [](std::string why) {
    return Error{ErrorCode::kUnavailable, std::move(why)};
  };
  if (!start.known) {
    return unknown("the bytes that were live when it began are not told before the first profile");
  }
  const auto error = misfit(record, model.point, start.base_bytes);
  if (error && std::abs(*error) > kMostMisfit) {
    return unknown(
        fmt::format("the peak of the step as it was recorded is {:.1f} % off what the "
                    "measured layers add up to",
                    *error * 100));
  }
  const bool told = record.profiles || record.base_bytes;
  if (error || told) return {};
  return unknown("neither its live bytes nor the modes that it ran were measured");
}

// The step as it was.
void take_recorded(const StepRecord& record, const RecordedModel& model, ReplayedStep& out) {
  out.modes = modes_run(record);
  out.planned_peak_bytes = record.measured_bytes;
  out.peak_bytes = record.measured_bytes;
  out.revocations = record.revocations;
  out.recomputed = recomputed_calls(out.modes, record.revocations);
  out.overrun = record.overrun;
  out.recorded_seconds = record.seconds;
  if (record.seconds > 0) out.seconds = record.seconds;
  out.extra_seconds = record.recompute_seconds;
  if (out.extra_seconds) return;
  if (recomputed_calls(out.modes, record.revocations) == 0) {
    out.extra_seconds = 0;
  } else if (const auto costs = model.costs(record.key, false)) {
    out.extra_seconds = recorded_recompute(record, *costs);
  }
}

SegmentKey layer_key(SegmentKind kind, const StepStructure::Layer& layer, Mode mode) {
  SegmentKey key;
  key.kind = kind;
  key.layer_class = layer.layer_class;
  key.mode = mode;
  key.variant = layer.variant;
  return key;
}

// The segments that a step with these costs would have shown, for policies that measure steps of
// their own (mimose): bytes without their event logs.
class Segments {
 public:
  Segments(const StepCosts& costs, const StepStructure& structure, const Choice& choice)
      : costs_(costs), structure_(structure), choice_(choice) {}

  std::vector<SegmentObservation> build() {
    forward();
    add({SegmentKind::kHead, 0, Mode::keep(), 0}, -1, costs_.head_net_bytes,
        costs_.head_peak_bytes);
    backward();
    add({SegmentKind::kEpilogue, 0, Mode::keep(), 0}, -1, costs_.epilogue_net_bytes,
        costs_.epilogue_peak_bytes);
    add({SegmentKind::kOptimizer, 0, Mode::keep(), 0}, -1, 0, costs_.optimizer_peak_bytes);
    return std::move(out_);
  }

 private:
  void forward() {
    for (std::size_t i = 0; i < choice_.size(); ++i) {
      const LayerCosts& layer = costs_.layers[i];
      const LayerModeCosts& mode = layer.modes[choice_[i]];
      add({SegmentKind::kGap, static_cast<std::uint16_t>(i), Mode::keep(), 0},
          static_cast<std::int32_t>(i), layer.gap_net_bytes, layer.gap_peak_bytes);
      add(layer_key(SegmentKind::kForward, structure_.layers[i], mode.mode),
          static_cast<std::int32_t>(i), mode.forward_net_bytes, mode.forward_peak_bytes);
      out_.back().released_bytes = mode.released_bytes;
    }
  }

  void backward() {
    for (std::size_t i = choice_.size(); i-- > 0;) {
      const LayerCosts& layer = costs_.layers[i];
      const LayerModeCosts& mode = layer.modes[choice_[i]];
      const auto index = static_cast<std::int32_t>(i);
      const auto keep = std::ranges::find(layer.modes, Mode::keep(), &LayerModeCosts::mode);
      if (mode.mode == Mode::full() && keep != layer.modes.end()) {
        const std::int64_t saved = keep->forward_net_bytes - mode.forward_net_bytes;
        add(layer_key(SegmentKind::kRecompute, structure_.layers[i], mode.mode), index, saved,
            saved);
      }
      add(layer_key(SegmentKind::kBackward, structure_.layers[i], mode.mode), index,
          layer.residue_bytes + mode.released_bytes - mode.forward_net_bytes,
          mode.backward_peak_bytes);
    }
  }

  void add(SegmentKey key, std::int32_t layer, std::int64_t net, std::int64_t peak) {
    SegmentSample sample;
    sample.net_bytes = net;
    sample.peak_bytes = std::max({peak, net, std::int64_t{0}});
    out_.push_back({key, layer, std::move(sample)});
  }

  const StepCosts& costs_;
  const StepStructure& structure_;
  const Choice& choice_;
  std::vector<SegmentObservation> out_;
};

// What `static` and `oracle` know beforehand, as the record tells it.
Result<PolicyInputs> inputs_for(const PolicySpec& spec, const ControllerOptions& options,
                                const RecordedModel& model) {
  PolicyInputs inputs;
  inputs.controller = options;
  if (spec.name == "sac" || spec.name == "dtr") {
    return invalid_argument("a record does not tell what the operators of a layer made");
  }
  if (spec.name == "static") {
    const auto range = model.range();
    if (!range) return range.error();
    auto costs = model.costs(range->longest, false);
    if (!costs) return costs.error();
    inputs.longest_shape = range->longest;
    inputs.longest_costs = std::move(*costs);
    inputs.steady_base_bytes = model.base_bytes();
  } else if (spec.name == "oracle") {
    if (!model.all_shapes()) {
      return invalid_argument("policy 'oracle': the record has more than " +
                              std::to_string(RecordedModel::kMaxShapes) + " shapes");
    }
    for (const ShapeKey& shape : model.shapes()) {
      auto costs = model.costs(shape, false);
      if (!costs) return costs.error();
      inputs.oracle_costs.emplace(shape, std::move(*costs));
    }
  }
  return inputs;
}

}  // namespace

void ReplayTotals::add(const ReplayedStep& step) {
  ++steps;
  learning_steps += step.learning ? 1 : 0;
  measured_steps += step.measured ? 1 : 0;
  revocations += step.revocations;
  revoked_steps += step.revocations > 0 ? 1 : 0;
  overruns += step.overrun ? 1 : 0;
  layer_calls += static_cast<std::int64_t>(step.modes.size());
  recomputed += step.recomputed;
  if (step.seconds && step.extra_seconds) {
    ++timed_steps;
    seconds += *step.seconds;
    extra_seconds += *step.extra_seconds;
    recorded_seconds += step.recorded_seconds;
  }
  peak_bytes = std::max(peak_bytes, step.peak_bytes);
  planned_peak_bytes = std::max(planned_peak_bytes, step.planned_peak_bytes);
  budget_used =
      std::max(budget_used, pudica::budget_used(step.peak_bytes, step.budget_bytes).value_or(0));
}

ReplayedStep recorded_step(const StepRecord& record, const RecordedModel& model) {
  ReplayedStep step;
  step.step = record.step;
  step.key = record.key;
  step.predicted_bytes = record.predicted_bytes;
  step.budget_bytes = record.budget_bytes;
  step.learning = record.profiles.has_value();
  step.measured = true;
  take_recorded(record, model, step);
  return step;
}

Result<Replay> Replay::start(const PolicySpec& spec, const ControllerOptions& options,
                             const RecordedModel& model, std::optional<Bytes> budget_bytes) {
  auto inputs = inputs_for(spec, options, model);
  if (!inputs) return invalid_argument(spec.text + ": " + inputs.error().message);
  auto policy = make_policy(spec, *inputs);
  if (!policy) return policy.error();
  return Replay(std::move(*policy), model, budget_bytes);
}

Result<ReplayedStep> Replay::step(const StepRecord& record) {
  start_.follow(record);
  context_ = {record.key, start_.base_bytes, budget_bytes_.value_or(record.budget_bytes),
              start_.gradients_present};
  context_.casts_present = start_.casts_present;
  const StepDecision decision = policy_->begin_step(context_);
  ReplayedStep out;
  out.step = record.step;
  out.key = record.key;
  out.budget_bytes = context_.budget_bytes;
  out.recorded_seconds = record.seconds;
  out.learning = decision.record;
  if (decision.plan == nullptr) {
    return Error{ErrorCode::kUnavailable, "the policy made no plan"};
  }
  const auto model = model_->at(record.key, start_.gradients_present, start_.casts_present);
  const Result<void> done = simulate(record, *decision.plan, model, out);
  if (decision.plan->predicts_peak()) {
    out.predicted_bytes = decision.plan->predicted_peak(out.measured && record.ran_free);
  }
  end_step(record, decision, model && done ? &model->point : nullptr, out);
  if (!done) return done.error();
  return out;
}

Result<void> Replay::simulate(const StepRecord& record, const Plan& plan,
                              const Result<StepModel>& model, ReplayedStep& out) const {
  out.modes = planned_modes(plan, model_->structure());
  const bool joint = std::ranges::find(plan.joined, 1) != plan.joined.end();
  out.measured = out.modes == modes_run(record) && record.revocations == 0 && !joint;
  const auto choice = model ? choice_of(model->point, out.modes) : std::nullopt;
  const bool as_recorded = out.budget_bytes == record.budget_bytes;
  const bool within = out.budget_bytes == Bytes(0) || record.measured_bytes <= out.budget_bytes;
  if (out.measured && (as_recorded || within)) {
    take_recorded(record, *model_, out);
    out.overrun = as_recorded && record.overrun;
    return {};
  }
  if (!model) return model.error();
  if (!choice) {
    return Error{ErrorCode::kUnavailable,
                 "a mode of the plan for " + record.key.to_string() + " was never measured"};
  }
  if (auto checked = check_model(record, *model, start_); !checked) return checked;
  if (!is_sure(*model, *choice, plan.joined)) {
    return Error{ErrorCode::kUnavailable,
                 "what its plan needs at " + record.key.to_string() +
                     " does not follow from the shapes that were measured"};
  }
  return run_planned(record, plan, *model, *choice, out);
}

// Under its budget: what is short is revoked, or overrun.
Result<void> Replay::run_planned(const StepRecord& record, const Plan& plan, const StepModel& model,
                                 const std::vector<std::uint8_t>& choice, ReplayedStep& out) const {
  const StepCosts& costs = model.point;
  const Bytes modelled = start_.base_bytes + Bytes(step_peak_bytes(costs, choice, plan.joined));
  out.planned_peak_bytes = out.measured ? record.measured_bytes : modelled;
  out.peak_bytes = out.planned_peak_bytes;
  Choice ran = choice;
  if (out.budget_bytes > Bytes(0) && out.planned_peak_bytes > out.budget_bytes) {
    if (plan.revocable) {
      // In the model's own terms, so that a measured excess is the model's too.
      const Bytes off = out.planned_peak_bytes - modelled;
      out.revocations =
          revoke(costs, (out.budget_bytes - off - start_.base_bytes).count(), plan, ran);
      out.peak_bytes = start_.base_bytes + off + Bytes(step_peak_bytes(costs, ran, plan.joined));
    }
    out.overrun = out.peak_bytes > out.budget_bytes;
    if (out.overrun && plan.revocable && lacks_full(costs, ran)) {
      return Error{ErrorCode::kUnavailable,
                   "what revoking layers gives back was never measured: none of their class ran "
                   "again as a whole"};
    }
  }
  out.recomputed = recomputed_calls(out.modes, out.revocations);
  out.extra_seconds = step_extra_seconds(costs, ran);
  const auto before = recorded_recompute(record, costs);
  if (record.seconds > 0 && before) {
    out.seconds = std::max(0.0, record.seconds - *before) + *out.extra_seconds;
  }
  return {};
}

void Replay::end_step(const StepRecord& record, const StepDecision& decision,
                      const StepCosts* costs, const ReplayedStep& out) {
  StepOutcome outcome;
  outcome.context = context_;
  outcome.plan = decision.plan;
  outcome.peak_bytes = out.peak_bytes;
  outcome.seconds = out.seconds.value_or(0);
  outcome.revocations = out.revocations;
  outcome.overrun = out.overrun;
  outcome.ran_free = out.measured && record.ran_free;
  outcome.failed = costs == nullptr && !out.measured && !record.profiles;
  const bool learns = dynamic_cast<Controller*>(policy_.get()) != nullptr;
  if (record.profiles) policy_->on_structure(record.profiles->structure);
  if (decision.record && record.profiles && (learns || out.measured)) {
    // Its segments were measured in the modes that were recorded.
    outcome.segments = record.profiles->segments;
    Plan plan = *decision.plan;
    plan.modes = modes_run(record);
    outcome.plan = std::make_shared<const Plan>(std::move(plan));
  } else if (decision.record && !learns && costs != nullptr) {
    const auto choice = choice_of(*costs, out.modes);
    if (choice) outcome.segments = Segments(*costs, model_->structure(), *choice).build();
  }
  policy_->end_step(outcome);
}

}  // namespace pudica::cli
