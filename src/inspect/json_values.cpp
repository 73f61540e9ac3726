#include "inspect/json_values.h"

#include <cmath>

namespace pudica::inspect {

double finite(double value) { return std::isfinite(value) ? value : 0.0; }

Json to_json(const std::vector<Mode>& modes) {
  Json out = Json::array();
  for (const Mode mode : modes) out.push_back(to_string(mode));
  return out;
}

Json to_json(const StepStructure& structure) {
  Json layers = Json::array();
  for (const StepStructure::Layer& layer : structure.layers) {
    Json& told =
        layers.emplace_back(Json{{"class", layer.layer_class}, {"variant", layer.variant}});
    if (layer.apart) told["apart"] = true;
  }
  Json menus = Json::array();
  for (const StepStructure::Menu& menu : structure.menus) {
    Json& told = menus.emplace_back(Json{{"menu_id", menu.id}, {"steps", menu.steps}});
    if (menu.promises.empty()) continue;
    told["key"] = menu.shape.to_named_string();
    for (const ShapeKey& shape : menu.not_at) told["not_at"].push_back(shape.to_named_string());
    for (const StepStructure::Menu::Promise& promise : menu.promises) {
      told["promises"].push_back(
          {{"freed_bytes", promise.freed_bytes}, {"work_share", finite(promise.work_share)}});
    }
  }
  return {{"classes", structure.class_names},
          {"layers", std::move(layers)},
          {"menus", std::move(menus)}};
}

Json to_json(const SegmentKey& key) {
  return {{"kind", to_string(key.kind)},
          {"class", key.layer_class},
          {"mode", to_string(key.mode)},
          {"variant", key.variant}};
}

Json to_json(const SegmentObservation& observation) {
  Json out = to_json(observation.key);
  out["layer"] = observation.layer;
  out["net_bytes"] = observation.sample.net_bytes;
  out["peak_bytes"] = observation.sample.peak_bytes;
  out["seconds"] = finite(observation.sample.seconds);
  if (!observation.sample.deltas.empty()) out["deltas"] = observation.sample.deltas;
  if (observation.released_bytes) out["released_bytes"] = *observation.released_bytes;
  return out;
}

Json to_json(const Plan& plan) {
  Json out;
  out["id"] = plan.id;
  out["key"] = plan.shape.to_named_string();
  out["modes"] = to_json(plan.modes);
  out["default_mode"] = to_string(plan.default_mode);
  if (!plan.joined.empty()) out["joined"] = plan.joined;
  out["teach_first_of_class"] = plan.teach_first_of_class;
  out["revocable"] = plan.revocable;
  out["feasible"] = plan.feasible;
  const std::int64_t predicted = plan.predicted_peak_bytes.count();
  out["predicted_peak_bytes"] = predicted == 0 ? Json() : Json(predicted);
  out["predicted_extra_seconds"] = finite(plan.predicted_extra_seconds);
  out["certified_gap_seconds"] = finite(plan.certified_gap_seconds);
  out["reason"] = plan.reason;
  return out;
}

std::string dump(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace pudica::inspect
