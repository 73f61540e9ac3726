#include "daemon/run_json.h"

#include <string>

#include "daemon/clock.h"

namespace pudica::daemon {
namespace {

using inspect::finite;
using inspect::Json;

Json bytes_or_null(const std::optional<Bytes>& bytes) {
  return bytes ? Json(bytes->count()) : Json();
}

template <typename T>
Json value_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(finite(*value)) : Json();
}

Json cache_json(const std::optional<SnapshotFields>& snapshot) {
  if (!snapshot) return {};
  return {{"hits", snapshot->cache_hits},
          {"misses", snapshot->cache_misses},
          {"plans", snapshot->cache_plans}};
}

// The controller's snapshot; an empty object where there is none.
Json snapshot_of(const RunDetail& detail) {
  if (detail.snapshot == nullptr) return Json::object();
  Json snapshot = Json::parse(*detail.snapshot, nullptr, false);
  return snapshot.is_object() ? snapshot : Json::object();
}

Json field_or_null(Json& snapshot, const char* name) {
  const auto found = snapshot.find(name);
  return found == snapshot.end() ? Json() : std::move(*found);
}

}  // namespace

Json to_json(const StepSummary& step) {
  return {{"step", step.step},
          {"key", step.key.to_named_string()},
          {"plan_id", value_or_null(step.plan_id)},
          {"predicted_bytes", bytes_or_null(step.predicted_bytes)},
          {"measured_bytes", step.measured_bytes.count()},
          {"budget_bytes", step.budget_bytes.count()},
          {"seconds", finite(step.seconds)},
          {"recomputed", step.recomputed},
          {"layers", step.layers},
          {"revocations", step.revocations},
          {"overrun", step.overrun},
          {"learning", step.learning}};
}

Json to_json(const BudgetChange& change) {
  return {{"at", format_time(change.at)},
          {"step", change.step},
          {"budget_bytes", change.budget_bytes.count()},
          {"source", change.source},
          {"plan_id", value_or_null(change.plan_id)},
          {"predicted_bytes", bytes_or_null(change.predicted_bytes)},
          {"measured_bytes", bytes_or_null(change.measured_bytes)}};
}

Json to_json(const RunSummary& run) {
  const RunDescription& about = *run.about;
  Json versions = Json::object();
  for (const auto& [name, version] : about.versions) versions[name] = version;
  Json out;
  out["id"] = run.id;
  out["name"] = about.name;
  out["pid"] = about.pid;
  out["user"] = about.user;
  out["command"] = about.command;
  out["device"] = about.device;
  out["model"] = about.model;
  out["policy"] = about.policy;
  out["fingerprint"] = text_or_null(about.fingerprint);
  out["group"] = text_or_null(about.group);
  out["versions"] = std::move(versions);
  out["state"] = to_string(run.phase);
  out["state_reason"] = text_or_null(run.phase_reason);
  out["status"] = text_or_null(run.status);
  out["started_at"] = format_time(run.started_at);
  out["last_seen_at"] = format_time(run.last_seen_at);
  out["ended_at"] = run.ended_at ? Json(format_time(*run.ended_at)) : Json();
  out["step"] = value_or_null(run.step);
  out["steps_total"] = value_or_null(about.steps_total);
  out["budget_bytes"] = run.budget_bytes.count();
  out["budget_source"] = run.budget_source;
  out["budget_pending_bytes"] = bytes_or_null(run.budget_pending_bytes);
  out["floor_bytes"] = bytes_or_null(about.floor_bytes);
  out["keep_all_bytes"] = bytes_or_null(about.keep_all_bytes);
  out["base_bytes"] = bytes_or_null(run.base_bytes);
  out["margin_bytes"] = run.snapshot ? Json(run.snapshot->margin_bytes.count()) : Json();
  out["peak_bytes"] = bytes_or_null(run.peak_bytes);
  out["last"] = run.last ? to_json(*run.last) : Json();
  out["step_seconds_median"] = number_or_null(run.step_seconds_median);
  out["recomputed_share"] = number_or_null(run.recomputed_share);
  out["learning_steps"] = run.learning_steps;
  out["revocations"] = run.revocations;
  out["overruns"] = run.overruns;
  out["cache"] = cache_json(run.snapshot);
  out["dropped_records"] = run.dropped_records;
  return out;
}

Json to_json(const RunDetail& detail) {
  Json out = to_json(detail.summary);
  Json snapshot = snapshot_of(detail);
  out["steps"] = Json::array();
  for (const StepSummary& step : detail.steps) out["steps"].push_back(to_json(step));
  out["budgets"] = Json::array();
  for (const BudgetChange& change : detail.budgets) out["budgets"].push_back(to_json(change));
  for (const char* const field : {"structure", "learned", "margin_bytes", "counters"}) {
    out[field] = field_or_null(snapshot, field);
  }
  return out;
}

Json plans_json(const RunDetail& detail) {
  Json snapshot = snapshot_of(detail);
  Json plans = field_or_null(snapshot, "plans");
  return {{"run", detail.summary.id},
          {"plans", plans.is_array() ? std::move(plans) : Json::array()}};
}

}  // namespace pudica::daemon
