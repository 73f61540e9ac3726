#include "inspect/model_view.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace pudica::inspect {
namespace {

// Of a restored state: beyond this it is no model, and its explanation no answer.
constexpr std::size_t kMostLayers = 4096;

Error unusable(const std::exception& error) {
  return {ErrorCode::kUnavailable,
          std::string("the learned state gives no answer: ") + error.what()};
}

// A step that begins with these live bytes: the estimates after it rest on them.
void set_base(Controller& controller, const DimensionNames& names, Bytes base_bytes) {
  const std::vector<std::int64_t> ones(names.size(), 1);
  StepContext context;
  context.shape = ShapeKey(names, ones);
  context.base_bytes = base_bytes;
  controller.begin_step(context);
}

}  // namespace

Result<ModelView> ModelView::from_state(const std::string& text, const std::string& fingerprint,
                                        const ModelViewOptions& options) {
  try {
    ModelView view;
    ControllerOptions reading = options.controller;
    reading.trusts_restored_states = true;
    view.controller_ = make_controller(reading);
    auto restored = view.controller_->restore(text, fingerprint);
    if (!restored) return restored.error();
    view.describe(view.controller_->snapshot());
    if (view.structure_.layers.size() > kMostLayers) {
      return Error{ErrorCode::kCorrupt,
                   "learned state: " + std::to_string(view.structure_.layers.size()) +
                       " layers, expected at most " + std::to_string(kMostLayers)};
    }
    if (options.base_bytes && !view.dimensions_.empty()) {
      set_base(*view.controller_, view.dimensions_, *options.base_bytes);
    }
    return view;
  } catch (const std::exception& error) {
    return Error{ErrorCode::kCorrupt, std::string("learned state: ") + error.what()};
  }
}

ModelView ModelView::of(std::shared_ptr<Controller> controller) {
  ModelView view;
  view.controller_ = std::move(controller);
  view.describe(view.controller_->snapshot());
  return view;
}

void ModelView::describe(const ControllerSnapshot& snapshot) {
  structure_ = snapshot.structure;
  dimensions_ = dimension_names(snapshot.learned);
}

void take_held_plan(Estimate& estimate, const HeldPlan& plan) {
  estimate.plan_id = plan.id;
  estimate.measured_peak_bytes = plan.measured_peak_bytes;
  estimate.predicted_peak_bytes = plan.measured_peak_bytes.value_or(plan.predicted_peak_bytes);
  estimate.extra_seconds = plan.extra_seconds;
  estimate.modes.clear();
  for (const Mode mode : plan.modes) ++estimate.modes[mode];
  const Bytes budget = estimate.budget_bytes;
  estimate.fits = budget <= Bytes(0) || estimate.predicted_peak_bytes <= budget;
  // It ran: until another takes its place it peaks as it did.
  if (estimate.settled && plan.measured_peak_bytes) {
    estimate.upper_peak_bytes = *plan.measured_peak_bytes;
  }
  estimate.upper_peak_bytes = std::max(estimate.upper_peak_bytes, estimate.predicted_peak_bytes);
}

void take_held_plan(Explanation& explanation, const HeldPlan& plan) {
  explanation.predicted_peak_bytes = plan.measured_peak_bytes.value_or(plan.predicted_peak_bytes);
  const Bytes budget = explanation.budget_bytes;
  explanation.fits = budget <= Bytes(0) || explanation.predicted_peak_bytes <= budget;
}

Result<ShapeEstimate> ModelView::estimated(std::string_view shape_text, Bytes budget) const {
  if (budget < Bytes(0)) {
    return invalid_argument("budget " + std::to_string(budget.count()) + ", expected 0 or more");
  }
  const auto shape = parse_shape(shape_text, dimensions_);
  if (!shape) return shape.error();
  return controller_->estimate(*shape, budget);
}

Result<Estimate> ModelView::estimate(std::string_view shape_text, Bytes budget) const {
  const std::lock_guard lock(*mutex_);
  try {
    auto found = estimated(shape_text, budget);
    if (!found) return found.error();
    Estimate out;
    out.key = found->shape;
    out.budget_bytes = budget;
    out.fits = found->plan->feasible;
    out.identified = found->identified;
    out.keep_all_peak_bytes = found->keep_all_peak_bytes;
    out.floor_peak_bytes = found->floor_peak_bytes;
    out.predicted_peak_bytes = found->plan->predicted_peak_bytes;
    out.upper_peak_bytes = std::max(found->upper_peak_bytes, out.predicted_peak_bytes);
    out.settled = found->settled;
    out.extra_seconds = found->plan->predicted_extra_seconds;
    for (const Mode mode : found->plan->modes) ++out.modes[mode];
    out.frontier = std::move(found->frontier);
    out.all_full = found->all_full;
    return out;
  } catch (const std::exception& error) {
    return unusable(error);
  }
}

Result<Explanation> ModelView::explain(std::string_view shape_text, Bytes budget) const {
  return explained(shape_text, budget, nullptr);
}

Result<Explanation> ModelView::explain(std::string_view shape_text, Bytes budget,
                                       const std::vector<Mode>& modes) const {
  return explained(shape_text, budget, &modes);
}

Result<Explanation> ModelView::explained(std::string_view shape_text, Bytes budget,
                                         const std::vector<Mode>* modes) const {
  const std::lock_guard lock(*mutex_);
  try {
    const auto found = estimated(shape_text, budget);
    if (!found) return found.error();
    const auto costs = controller_->costs({found->shape, found->base_bytes, budget,
                                           found->gradients_present, found->returning_bytes});
    if (!costs) return costs.error();
    const std::vector<Mode>& planned = modes != nullptr ? *modes : found->plan->modes;
    const bool own = modes == nullptr || *modes == found->plan->modes;
    return explain_plan({*found, *costs, structure_, budget, planned, own,
                         own ? found->plan->joined : std::vector<std::uint8_t>{}});
  } catch (const std::exception& error) {
    return unusable(error);
  }
}

}  // namespace pudica::inspect
