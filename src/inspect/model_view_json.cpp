// The answers of `explain` and `estimate` as docs/http_api.md has them.
#include "inspect/json_values.h"
#include "inspect/model_view.h"

namespace pudica::inspect {
namespace {

Json json_of(const FrontierPoint& point) {
  constexpr double kNano = 1e-9;
  return {{"peak_bytes", point.peak_bytes},
          {"extra_seconds", finite(kNano * static_cast<double>(point.time_ns))}};
}

}  // namespace

std::string to_json(const Explanation& explanation, std::string_view run) {
  Json out;
  out["run"] = run;
  out["key"] = explanation.key.to_named_string();
  out["budget_bytes"] = explanation.budget_bytes.count();
  out["fits"] = explanation.fits;
  out["predicted_peak_bytes"] = explanation.predicted_peak_bytes.count();
  out["keep_all_peak_bytes"] = explanation.keep_all_peak_bytes.count();
  out["floor_peak_bytes"] = explanation.floor_peak_bytes.count();
  out["margin_bytes"] = explanation.margin_bytes.count();
  out["extra_seconds"] = finite(explanation.extra_seconds);
  out["reason"] = explanation.reason;
  out["layers"] = Json::array();
  for (const LayerExplanation& layer : explanation.layers) {
    out["layers"].push_back({{"layer", layer.layer},
                             {"class", layer.layer_class},
                             {"mode", to_string(layer.mode)},
                             {"held_bytes", layer.held_bytes.count()},
                             {"keep_held_bytes", layer.keep_held_bytes.count()},
                             {"extra_seconds", finite(layer.extra_seconds)},
                             {"why", layer.why}});
  }
  out["menu"] = Json::array();
  for (const MenuExplanation& item : explanation.menu) {
    out["menu"].push_back({{"class", item.layer_class},
                           {"mode", to_string(item.mode)},
                           {"freed_bytes", item.freed_bytes.count()},
                           {"extra_seconds", finite(item.extra_seconds)},
                           {"what", item.what},
                           {"measured", item.measured}});
  }
  return dump(out, -1);
}

std::string to_json(const Estimate& estimate, std::string_view run) {
  Json out;
  out["run"] = run;
  out["key"] = estimate.key.to_named_string();
  out["budget_bytes"] = estimate.budget_bytes.count();
  out["fits"] = estimate.fits;
  out["identified"] = estimate.identified;
  out["keep_all_peak_bytes"] = estimate.keep_all_peak_bytes.count();
  out["floor_peak_bytes"] = estimate.floor_peak_bytes.count();
  out["predicted_peak_bytes"] = estimate.predicted_peak_bytes.count();
  out["upper_peak_bytes"] = estimate.upper_peak_bytes.count();
  out["settled"] = estimate.settled;
  out["plan_id"] = estimate.plan_id ? Json(*estimate.plan_id) : Json();
  out["measured_peak_bytes"] =
      estimate.measured_peak_bytes ? Json(estimate.measured_peak_bytes->count()) : Json();
  out["learned_step"] = estimate.learned_step ? Json(*estimate.learned_step) : Json();
  out["extra_seconds"] = finite(estimate.extra_seconds);
  out["modes"] = Json::object();
  for (const auto& [mode, layers] : estimate.modes) out["modes"][to_string(mode)] = layers;
  out["frontier"] = Json::array();
  for (const FrontierPoint& point : estimate.frontier) out["frontier"].push_back(json_of(point));
  out["all_full"] = estimate.all_full ? json_of(*estimate.all_full) : Json();
  return dump(out, -1);
}

}  // namespace pudica::inspect
