#include "daemon/asked_run.h"

#include <algorithm>
#include <utility>

namespace pudica::daemon {
namespace {

using inspect::Json;

const Json& field(const Json& object, const char* name) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(name);
  return found == object.end() ? kNone : *found;
}

std::optional<Bytes> bytes_of(const Json& object, const char* name) {
  const Json& value = field(object, name);
  if (!value.is_number_integer()) return std::nullopt;
  return Bytes(value.get<std::int64_t>());
}

std::string text_of(const Json& object, const char* name) {
  const Json& value = field(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::optional<std::vector<Mode>> modes_of(const Json& plan) {
  const Json& modes = field(plan, "modes");
  if (!modes.is_array()) return std::nullopt;
  std::vector<Mode> out;
  for (const Json& mode : modes) {
    const auto parsed = parse_mode(mode.is_string() ? mode.get<std::string>() : std::string());
    if (!parsed) return std::nullopt;
    out.push_back(*parsed);
  }
  return out;
}

}  // namespace

AskedRun asked_run(const RunDetail& run) {
  AskedRun out;
  out.id = run.summary.id;
  out.live = run.summary.live();
  out.fingerprint = run.summary.about->fingerprint;
  out.budget_bytes = run.summary.budget_bytes;
  out.base_bytes = run.summary.base_bytes;
  out.own_state = run.model;
  out.learned_step = run.model_step;
  // Plans of another budget are not those that the run takes now.
  if (run.snapshot == nullptr || run.snapshot_budget_bytes != out.budget_bytes) return out;
  out.plans = field(Json::parse(*run.snapshot, nullptr, false), "plans");
  return out;
}

AskedRun asked_run(const Json& run, const Json& plans) {
  AskedRun out;
  out.id = text_of(run, "id");
  out.fingerprint = text_of(run, "fingerprint");
  out.budget_bytes = bytes_of(run, "budget_bytes").value_or(Bytes(0));
  out.base_bytes = bytes_of(run, "base_bytes");
  out.plans = field(plans, "plans");
  return out;
}

std::optional<inspect::HeldPlan> held_plan(const AskedRun& run, const std::string& key) {
  if (!run.plans.is_array()) return std::nullopt;
  const auto cached = std::ranges::find_if(
      run.plans, [&key](const Json& plan) { return text_of(plan, "key") == key; });
  if (cached == run.plans.end()) return std::nullopt;
  const Json& plan = field(*cached, "plan");
  auto modes = modes_of(plan);
  const auto predicted = bytes_of(*cached, "predicted_peak_bytes");
  const Json& id = field(plan, "id");
  if (!modes || !predicted || !id.is_number_unsigned()) return std::nullopt;
  inspect::HeldPlan out;
  out.id = id.get<std::uint64_t>();
  out.modes = std::move(*modes);
  out.predicted_peak_bytes = *predicted;
  out.measured_peak_bytes = bytes_of(*cached, "measured_peak_bytes");
  const Json& extra = field(plan, "predicted_extra_seconds");
  out.extra_seconds = extra.is_number() ? extra.get<double>() : 0;
  return out;
}

}  // namespace pudica::daemon
