// What the controller learns from a step that has ended.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <utility>

#include "controller/controller_impl.h"

namespace pudica {
namespace {

constexpr std::size_t kRecentPeaks = 256;

// After a drift: a segment that the first recorded steps do not show must not keep its old samples.
constexpr std::int32_t kDoubtfulSteps = 12;

// Errors of a prediction below this share are rounding.
constexpr std::int64_t kNoticeableShare = 1000;

}  // namespace

void ControllerImpl::end_step(const StepOutcome& outcome) {
  try {
    take_outcome(outcome);
  } catch (const std::exception& failure) {
    stand_down(failure.what());
  }
}

void ControllerImpl::learn_times(const std::vector<SegmentTime>& times) {
  if (broken_) return;
  try {
    const std::uint64_t version = learner_.version();
    learner_.observe_times(times);
    if (learner_.version() != version) times_changed();
  } catch (const std::exception& failure) {
    stand_down(failure.what());
  }
}

void ControllerImpl::take_outcome(const StepOutcome& outcome) {
  counters_.revocations += outcome.revocations;
  if (outcome.revocations > 0) ++counters_.revoked_steps;
  if (outcome.overrun) ++counters_.overruns;
  if (outcome.failed || broken_) return;
  // The step's layers are those that were told last, where they were looked at.
  kind_ = outcome.rested ? &kinds_[planned_kind_] : told_;
  const ShapeKey& shape = outcome.context.shape;
  largest_.resize(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) largest_[i] = std::max(largest_[i], shape[i]);
  kinds_.ran(*kind_, shape, step_);
  std::optional<double> peak_error;
  if (outcome.rested) kind_->passing_steps = 0;  // it ran all of its kind's layers
  if ((!outcome.rested && is_passing()) || kind_->number != planned_kind_) {
    pending_ = {};
  } else if (!outcome.took_its_course() && pending_.planned) {
    pending_ = {};
  } else {
    peak_error = judge(outcome);
  }
  const bool shares = outcome.context.shares_backward();
  if (outcome.plan && (shares || !outcome.plan->predicts_peak())) note_unjudged(outcome);
  if (outcome.plan) note_lost(*outcome.plan);
  kind_->repeated_backwards.note(outcome.repeated_backward);
  take_waited(outcome);
  learn_first_apart(outcome);
  std::optional<StepOutcome> as_known;
  if (!outcome.segments.empty()) as_known = placed(outcome, *kind_);
  const StepOutcome& known = as_known ? *as_known : outcome;
  if (!agrees_with_claims(known, peak_error)) return;
  if (!known.segments.empty()) {
    learn(known);
  } else if (!outcome.recomputes.empty() || !outcome.forwards.empty()) {
    const std::uint64_t version = learner_.version();
    learner_.observe_times(outcome.context.shape, outcome.forwards, outcome.recomputes);
    if (learner_.version() != version) times_changed();
  }
}

// Of a plan whose peak is not predicted, or bounded only.
void ControllerImpl::note_unjudged(const StepOutcome& outcome) {
  kind_->tight_shapes.note(outcome, kind_->structure.layers.size());
  const Bytes need = outcome.peak_bytes - outcome.context.base_bytes;
  if (outcome.allocator) unplanned_need_bytes_ = std::max(unplanned_need_bytes_, need);
  const bool ran = !outcome.searched && kind_->number == planned_kind_;
  if (ran && outcome.plan->peak_is_bound && outcome.revocations > 0)
    note_peak(outcome);  // it needs more than its bound
}

// By how much the peak was off, as a share; nullopt: none was predicted, or it cannot be told.
std::optional<double> ControllerImpl::judge(const StepOutcome& outcome) {
  if (outcome.plan == nullptr || outcome.plan->id != pending_.plan_id) return std::nullopt;
  const Pending pending = std::exchange(pending_, {});
  if (outcome.searched && pending.planned) return std::nullopt;
  const Bytes predicted = outcome.plan->predicted_peak_bytes;
  if (!pending.planned) kind_->learning_was_revoked = outcome.revocations > 0;
  if (!pending.planned || predicted <= Bytes(0) || outcome.peak_bytes <= Bytes(0)) {
    return std::nullopt;
  }
  if (outcome.plan->predicts_peak()) remember_peak(outcome);
  if (outcome.context.shares_backward()) return std::nullopt;  // of plans of once
  kind_->plans.record_measured(outcome.context, outcome.peak_bytes);
  if (outcome.ran_free && outcome.revocations == 0 &&
      may_be_spared(outcome.context, *outcome.plan)) {
    kind_->spared.note(outcome.context, *outcome.plan, (predicted - outcome.peak_bytes).count());
  }
  note_peak(outcome);
  const std::int64_t off = (outcome.peak_bytes - predicted).count();
  // Learned in frames, which hold a layer's inputs: without hooks it may need less.
  const bool is_expected = outcome.revocations > 0 || (off < 0 && !outcome.plan->revocable);
  if (std::abs(off) > kNoticeableBytes && !is_expected) ++kind_->inexact_steps;
  if (!pending.identified) return std::nullopt;
  const auto relative = [predicted](Bytes peak) {
    return static_cast<double>(peak.count()) / static_cast<double>(predicted.count()) - 1;
  };
  const ShapeKey& shape = outcome.context.shape;
  double error = relative(outcome.peak_bytes);
  // Learned in frames, which hold a layer's inputs: without hooks it may need less.
  if (!outcome.plan->revocable) error = std::max(error, 0.0);
  if (outcome.revocations > 0 && outcome.plan->feasible) {
    // The plan itself would have needed more than the budget; how much more is not known.
    error = std::max(error, relative(room_.budget()));
    kind_->plans.erase(outcome.context);
    kind_->to_record.insert(shape);
  } else if (outcome.revocations > 0) {
    return std::nullopt;  // expected: even the floor does not fit
  }
  const bool misfit = kind_->drift.is_misfit(error);
  // What the model can still learn is no noise: the margin takes it once a recording has not
  // helped.
  if (!misfit || kind_->recorded_again.contains(shape) || kind_->drift.had_fruitless_drift()) {
    room_.margin.add(error);
  } else {
    kind_->to_record.insert(shape);
  }
  if (kind_->drift.add(error)) {
    ++counters_.drifts;
    kind_->begin_learning();
    kind_->relearning = true;
    kind_->doubtful_steps = kDoubtfulSteps;
    kind_->judge_drift = true;
  }
  return error;
}

// Where the model is wrong about a plan, the plan's own peak stands in for it from now on.
void ControllerImpl::note_peak(const StepOutcome& outcome) {
  const Plan& plan = *outcome.plan;
  const StepContext& context = outcome.context;
  if (context.shares_backward() || (outcome.revocations > 0 && !plan.feasible)) return;
  if (outcome.revocations > 0) {  // at the budget, which it would have gone beyond
    const Bytes least = std::max(outcome.peak_bytes, room_.budget()) + Bytes(1);
    kind_->known_peaks.note_revoked(context, plan, (least - context.base_bytes).count());
    return;
  }
  const Bytes off = outcome.peak_bytes - plan.predicted_peak_bytes;
  const Bytes noticeable(plan.predicted_peak_bytes.count() / kNoticeableShare);
  // Learned in frames, which hold a layer's inputs: without hooks it may need less.
  const bool wrong = off > noticeable || (plan.revocable && Bytes(0) - off > noticeable);
  if (!wrong && !kind_->known_peaks.peak(context, plan)) return;
  kind_->known_peaks.note(context, plan, (outcome.peak_bytes - context.base_bytes).count());
  if (wrong) kind_->plans.erase(context);
}

void ControllerImpl::learn(const StepOutcome& outcome) {
  const ShapeKey& shape = outcome.context.shape;
  const std::uint64_t version = learner_.version();
  const bool doubtful = kind_->doubtful_steps > 0;
  const bool drifted = std::exchange(kind_->judge_drift, false);
  const ObserveReport report =
      learner_.observe(outcome, doubtful ? options_.warmup_fit_error : 0.0);
  if (report.observed == 0) return;
  ++kind_->recorded_steps;
  kind_->measured.note(shape);
  kind_->relearning = false;
  if (drifted && report.forgotten > 0) kind_->menu.measured_to.clear();
  if (outcome.plan != nullptr && runs_selective(*outcome.plan)) kind_->menu.note_measured(shape);
  if (doubtful) --kind_->doubtful_steps;
  if (kind_->to_record.contains(shape)) {
    kind_->to_record.erase(shape);
    kind_->recorded_again.insert(shape);
  }
  if (drifted && report.forgotten > 0) {
    room_.margin.reset();
    kind_->drift.reset();
    kind_->known_peaks.clear();  // of a model that is no longer
    kind_->spared.clear();
  } else if (drifted) {
    kind_->drift.drift_was_fruitless();
  }
  if (learner_.version() != version) predictions_changed(step_);
}

void ControllerImpl::remember_peak(const StepOutcome& outcome) {
  recent_peaks_.push_back({step_, outcome.context.shape,
                           outcome.plan->predicted_peak(outcome.ran_free), outcome.peak_bytes});
  if (recent_peaks_.size() > kRecentPeaks) recent_peaks_.pop_front();
}

}  // namespace pudica
