#include "inspect/json.h"
#include "inspect/json_values.h"

namespace pudica {
namespace {

using inspect::finite;
using inspect::Json;

// The schema's own words, which stay when the library's change.
std::string_view state_name(ControllerState state) {
  switch (state) {
    case ControllerState::kLearning:
      return "learning";
    case ControllerState::kPlanning:
      return "planning";
    case ControllerState::kStandingDown:
      return "standing_down";
  }
  return "unknown";
}

Json counters_json(const ControllerSnapshot& snapshot) {
  const ControllerCounters& counters = snapshot.counters;
  return {{"steps", counters.steps},
          {"learning_steps", counters.learning_steps},
          {"plans_made", counters.plans_made},
          {"infeasible_steps", counters.infeasible_steps},
          {"revoked_steps", counters.revoked_steps},
          {"revocations", counters.revocations},
          {"overruns", counters.overruns},
          {"drifts", counters.drifts},
          {"refused_states", counters.refused_states}};
}

Json cached_plan_json(const CachedPlan& cached) {
  Json out;
  Json region = Json::array();
  for (const ShapeKey& corner : cached.fits_up_to) region.push_back(corner.to_named_string());
  out["key"] = cached.plan ? Json(cached.plan->shape.to_named_string()) : Json();
  out["fits_up_to"] = std::move(region);
  out["predicted_peak_bytes"] = cached.predicted_peak_bytes.count();
  const std::int64_t measured = cached.measured_peak_bytes.count();
  out["measured_peak_bytes"] = measured == 0 ? Json() : Json(measured);
  out["slack_bytes"] = cached.slack_bytes.count();
  out["hits"] = cached.hits;
  out["created_step"] = cached.created_step;
  out["last_used_step"] = cached.last_used_step;
  out["reason"] = cached.plan ? Json(cached.plan->reason) : Json();
  out["plan"] = cached.plan ? inspect::to_json(*cached.plan) : Json();
  return out;
}

// A quantity of a layer segment is named after its class, where that has a name.
Json class_name(const SegmentKey& key, const StepStructure& structure) {
  const bool of_layer = key.kind == SegmentKind::kForward || key.kind == SegmentKind::kBackward ||
                        key.kind == SegmentKind::kRecompute ||
                        key.kind == SegmentKind::kHeldOutput || key.kind == SegmentKind::kReleased;
  if (!of_layer || key.layer_class >= structure.class_names.size()) return {};
  return structure.class_names[key.layer_class];
}

Json learned_json(const LearnedQuantity& learned, const StepStructure& structure) {
  Json rows = Json::array();
  for (const std::vector<double>& coefficients : learned.coefficients) {
    Json row = Json::array();
    for (const double value : coefficients) row.push_back(finite(value));
    rows.push_back(std::move(row));
  }
  Json out;
  out["segment"] = to_string(learned.segment);
  out["class_name"] = class_name(learned.segment, structure);
  out["quantity"] = learned.quantity;
  out["basis"] = to_string(learned.basis);
  out["monomials"] = learned.monomials;
  out["coefficients"] = std::move(rows);
  out["samples"] = learned.samples;
  out["distinct_shapes"] = learned.distinct_shapes;
  return out;
}

Json peak_json(const PeakRecord& peak) {
  const std::int64_t predicted = peak.predicted_bytes.count();
  return {{"step", peak.step},
          {"key", peak.shape.to_named_string()},
          {"predicted_bytes", predicted == 0 ? Json() : Json(predicted)},
          {"measured_bytes", peak.measured_bytes.count()}};
}

}  // namespace

std::string plan_to_json(const Plan& plan) {
  Json out{{"schema", kPlanSchema}};
  out.update(inspect::to_json(plan));
  return inspect::dump(out, 2);
}

std::string snapshot_to_json(const ControllerSnapshot& snapshot) {
  Json out{{"schema", kSnapshotSchema}};
  out["state"] = state_name(snapshot.state);
  out["state_reason"] = snapshot.state_reason;
  out["budget_bytes"] = snapshot.budget_bytes.count();
  out["margin_bytes"] = snapshot.margin_bytes.count();
  out["margin_fraction"] = finite(snapshot.margin_fraction);
  out["base_bytes"] = snapshot.base_bytes.count();
  out["structure"] = inspect::to_json(snapshot.structure);
  out["counters"] = counters_json(snapshot);
  out["cache"] = {{"hits", snapshot.cache_hits},
                  {"misses", snapshot.cache_misses},
                  {"plans", snapshot.plans.size()}};
  out["plans"] = Json::array();
  for (const CachedPlan& cached : snapshot.plans) out["plans"].push_back(cached_plan_json(cached));
  out["learned"] = Json::array();
  for (const LearnedQuantity& learned : snapshot.learned) {
    out["learned"].push_back(learned_json(learned, snapshot.structure));
  }
  out["recent_peaks"] = Json::array();
  for (const PeakRecord& peak : snapshot.recent_peaks) {
    out["recent_peaks"].push_back(peak_json(peak));
  }
  return inspect::dump(out, 2);
}

}  // namespace pudica
