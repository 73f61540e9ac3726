#include "native/controllers.h"

#include <algorithm>
#include <utility>

#include "inspect/learned_shape.h"

namespace pudica::python {

Controllers::Controllers(ControllerOptions options) : options_(std::move(options)) {
  options_.waiting = make_waiting_forwards();
  select(0);
}

void Controllers::select(std::int64_t kind) {
  unplanned_ = kind < 0;
  if (unplanned_) return;
  auto [found, fresh] = kinds_.try_emplace(std::min(kind, kMostKinds - 1));
  kind_ = &found->second;
  if (fresh) kind_->controller = make_controller(options_);
}

const Controller* Controllers::of(std::int64_t kind) const {
  const auto found = kinds_.find(std::min(kind, kMostKinds - 1));
  return found == kinds_.end() ? nullptr : found->second.controller.get();
}

void Controllers::renew(Kind& kind) {
  kind.controller = make_controller(options_);
  if (!kind.structure.layers.empty()) kind.controller->on_structure(kind.structure);
}

void Controllers::on_structure(const StepStructure& structure) {
  latest_ = structure;
  tell_structure();
}

// A step whose layers are those of the step before it, of another kind, is not told of them.
void Controllers::tell_structure() {
  if (unplanned_ || kind_->structure == latest_) return;
  kind_->structure = latest_;
  current().on_structure(latest_);
}

void Controllers::end_step(const StepOutcome& outcome) {
  if (unplanned_) return;
  if (!outcome.failed && outcome.layer_calls > 0) tell_structure();
  current().end_step(outcome);
}

StepDecision Controllers::begin_step(const StepContext& context) {
  if (unplanned_) return {};
  const DimensionNames* names = &context.shape.names();
  if (kind_->names != names) {
    const DimensionNames learned =
        kind_->names != nullptr ? *kind_->names : inspect::dimension_names(snapshot().learned);
    if (!learned.empty() && learned != *names) {
      renew(*kind_);
      kind_->begun = context.step;
    }
    kind_->names = names;
  }
  kinds_of_steps_.insert_or_assign(context.step, kind_);
  if (kinds_of_steps_.size() > kStepsRemembered) kinds_of_steps_.erase(kinds_of_steps_.begin());
  return current().begin_step(context);
}

void Controllers::learn_times(const std::vector<SegmentTime>& times) {
  std::map<Kind*, std::vector<SegmentTime>> by_kind;
  for (const SegmentTime& time : times) {
    const auto kind = kinds_of_steps_.find(time.step);
    if (kind == kinds_of_steps_.end() || time.step < kind->second->begun) continue;
    by_kind[kind->second].push_back(time);
  }
  for (const auto& [kind, of_kind] : by_kind) kind->controller->learn_times(of_kind);
}

void Controllers::set_budget(Bytes budget_bytes) {
  budget_bytes_ = budget_bytes;
  for (auto& [number, kind] : kinds_) kind.controller->set_budget(budget_bytes);
}

Result<ShapeEstimate> Controllers::estimate(const ShapeKey& shape, Bytes budget_bytes) const {
  return current().estimate(shape, budget_bytes);
}

Result<StepCosts> Controllers::costs(const StepContext& context) const {
  return current().costs(context);
}

std::string Controllers::serialize(const std::string& fingerprint) const {
  return current().serialize(fingerprint);
}

Result<void> Controllers::restore(const std::string& text, const std::string& fingerprint) {
  auto fresh = make_controller(options_);
  auto done = fresh->restore(text, fingerprint);
  if (!done) return done.error();
  if (kind_->names != nullptr) {
    const DimensionNames learned = inspect::dimension_names(fresh->snapshot().learned);
    if (!learned.empty() && learned != *kind_->names) {
      return invalid_argument("the learned state knows other dimensions than this model's calls");
    }
  }
  kind_->controller = std::move(fresh);
  if (!kind_->structure.layers.empty()) current().on_structure(kind_->structure);
  return {};
}

}  // namespace pudica::python
