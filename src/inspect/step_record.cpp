// Writing a step record; step_record_parse.cpp reads it.
#include "inspect/json.h"
#include "inspect/json_values.h"
#include "inspect/recomputation.h"
#include "inspect/step_record_json.h"

namespace pudica {
namespace {

using inspect::Json;

Json profiles_json(const StepProfiles& profiles) {
  Json segments = Json::array();
  for (const SegmentObservation& observation : profiles.segments) {
    segments.push_back(inspect::to_json(observation));
  }
  Json out;
  out["base_bytes"] = profiles.base_bytes.count();
  out["gradients_present"] = profiles.gradients_present;
  if (profiles.casts_present) out["casts_present"] = true;
  out["structure"] = inspect::to_json(profiles.structure);
  out["segments"] = std::move(segments);
  return out;
}

}  // namespace

StepRecord make_step_record(std::string run, std::uint64_t step, const StepOutcome& outcome,
                            const StepStructure& structure) {
  StepRecord record;
  record.run = std::move(run);
  record.step = step;
  record.key = outcome.context.shape;
  if (outcome.plan) {
    record.plan_id = outcome.plan->id;
    record.modes = outcome.plan->modes;
    if (outcome.plan->predicts_peak() && outcome.took_its_course()) {
      record.predicted_bytes = outcome.plan->predicted_peak(outcome.ran_free);
    }
  }
  record.measured_bytes = outcome.peak_bytes;
  record.budget_bytes = outcome.context.budget_bytes + outcome.context.allocator_bytes;
  record.seconds = outcome.seconds;
  record.recompute_seconds = recompute_seconds(outcome, structure);
  record.revocations = outcome.revocations;
  record.overrun = outcome.overrun;
  record.base_bytes = outcome.context.base_bytes;
  record.gradients_present = outcome.context.gradients_present;
  record.casts_present = outcome.context.casts_present;
  record.ran_free = outcome.ran_free;
  record.host_peak_bytes = outcome.host_peak_bytes;
  record.allocator = outcome.allocator;
  if (!outcome.segments.empty()) {
    record.profiles = StepProfiles{outcome.context.base_bytes, outcome.context.gradients_present,
                                   outcome.context.casts_present, structure, outcome.segments};
  }
  return record;
}

inspect::Json inspect::to_json(const StepRecord& record) {
  Json out;
  out["schema"] = kStepSchema;
  out["run"] = record.run;
  out["step"] = record.step;
  out["key"] = record.key.to_named_string();
  out["plan_id"] = record.plan_id ? Json(*record.plan_id) : Json();
  out["modes"] = inspect::to_json(record.modes);
  out["predicted_bytes"] = record.predicted_bytes ? Json(record.predicted_bytes->count()) : Json();
  out["measured_bytes"] = record.measured_bytes.count();
  out["budget_bytes"] = record.budget_bytes.count();
  out["seconds"] = inspect::finite(record.seconds);
  if (record.recompute_seconds) {
    out["recompute_seconds"] = inspect::finite(*record.recompute_seconds);
  }
  out["revocations"] = record.revocations;
  out["overrun"] = record.overrun;
  if (record.base_bytes) out["base_bytes"] = record.base_bytes->count();
  if (record.gradients_present) out["gradients_present"] = *record.gradients_present;
  if (record.casts_present) out["casts_present"] = true;
  if (record.ran_free) out["ran_free"] = true;
  if (record.host_peak_bytes > Bytes(0)) out["host_peak_bytes"] = record.host_peak_bytes.count();
  if (record.allocator) {
    out["allocator"] = {{"active_bytes", record.allocator->active_bytes.count()},
                        {"reserved_bytes", record.allocator->reserved_bytes.count()},
                        {"gap_bytes", record.allocator->gap_bytes.count()}};
  }
  if (record.profiles) out["profiles"] = profiles_json(*record.profiles);
  return out;
}

std::string step_record_to_json(const StepRecord& record) {
  return inspect::dump(inspect::to_json(record), -1);
}

}  // namespace pudica
