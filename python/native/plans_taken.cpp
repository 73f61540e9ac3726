#include "native/plans_taken.h"

#include <algorithm>

#include "inspect/json_values.h"

namespace pudica::python {

using inspect::Json;

void PlansTaken::note(const StepReport& report) {
  if (!report.plan || report.layer_calls == 0) return;
  auto [found, is_new] = taken_.try_emplace(report.shape);
  Taken& taken = found->second;
  if (taken.plan != report.plan) taken = Taken{report.plan, Bytes(0), 0, report.step, 0};
  taken.measured_peak_bytes = report.peak_bytes;
  taken.last_step = report.step;
  ++taken.uses;
  if (!is_new || taken_.size() <= kMostShapes) return;
  taken_.erase(std::ranges::min_element(taken_, {},
                                        [](const auto& entry) { return entry.second.last_step; }));
}

std::string PlansTaken::to_json() const {
  Json out = Json::array();
  for (const auto& [shape, taken] : taken_) {
    const Plan& plan = *taken.plan;
    const Json predicted = plan.predicts_peak() ? Json(plan.predicted_peak_bytes.count()) : Json();
    out.push_back({{"key", shape.to_named_string()},
                   {"fits_up_to", Json::array()},
                   {"predicted_peak_bytes", predicted},
                   {"measured_peak_bytes", taken.measured_peak_bytes.count()},
                   {"slack_bytes", nullptr},
                   {"hits", taken.uses - 1},
                   {"created_step", taken.first_step},
                   {"last_used_step", taken.last_step},
                   {"reason", plan.reason},
                   {"plan", inspect::to_json(plan)}});
  }
  return inspect::dump(out, -1);
}

}  // namespace pudica::python
