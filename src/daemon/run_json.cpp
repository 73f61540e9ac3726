#include "daemon/run_json.h"

#include <string>
#include <utility>

#include "daemon/clock.h"
#include "inspect/recomputation.h"

namespace pudica::daemon {
namespace {

using inspect::Json;

constexpr std::size_t kStepCharacters = 400;

void write(JsonText& out, const std::optional<AllocatorPeaks>& allocator) {
  if (!allocator) {
    out.null();
    return;
  }
  out.open('{');
  out.key("active_bytes").value(allocator->active_bytes);
  out.key("reserved_bytes").value(allocator->reserved_bytes);
  out.key("gap_bytes").value(allocator->gap_bytes);
  out.close('}');
}

void write(JsonText& out, const StepSummary& step) {
  out.open('{');
  out.key("step").value(step.step);
  out.key("key").value(step.key.to_named_string());
  out.key("plan_id").value(step.plan_id);
  out.key("predicted_bytes").value(step.predicted_bytes);
  out.key("measured_bytes").value(step.measured_bytes);
  out.key("budget_bytes").value(step.budget_bytes);
  out.key("budget_used").value(budget_used(step.measured_bytes, step.budget_bytes));
  out.key("seconds").value(step.seconds);
  out.key("recompute_seconds").value(step.recompute_seconds);
  out.key("recomputed_share");
  if (step.recompute_seconds) {
    out.value(recomputed_share(*step.recompute_seconds, step.seconds));
  } else {
    out.null();
  }
  out.key("recomputed").value(step.recomputed);
  out.key("layers").value(step.layers);
  out.key("revocations").value(step.revocations);
  out.key("overrun").value(step.overrun);
  out.key("learning").value(step.learning);
  out.key("host_peak_bytes").value(step.host_peak_bytes);
  out.key("allocator");
  write(out, step.allocator);
  out.close('}');
}

void write(JsonText& out, const BudgetChange& change) {
  out.open('{');
  out.key("at").value(format_time(change.at));
  out.key("seq").value(change.seq);
  out.key("step").value(change.step);
  out.key("budget_bytes").value(change.budget_bytes);
  out.key("fraction").value(change.fraction);
  out.key("source").value(change.source);
  out.key("plan_id").value(change.plan_id);
  out.key("predicted_bytes").value(change.predicted_bytes);
  out.key("measured_bytes").value(change.measured_bytes);
  out.key("seconds").value(change.seconds);
  out.key("recompute_seconds").value(change.recompute_seconds);
  out.close('}');
}

void write_cache(JsonText& out, const std::optional<SnapshotFields>& snapshot) {
  out.key("cache");
  if (!snapshot) {
    out.null();
    return;
  }
  out.open('{');
  out.key("hits").value(snapshot->cache_hits);
  out.key("misses").value(snapshot->cache_misses);
  out.key("plans").value(snapshot->cache_plans);
  out.close('}');
}

// What the run said of itself; its user is who the kernel says.
void write_description(JsonText& out, const RunDescription& about, CommandLine command) {
  out.key("name").value(about.name);
  out.key("pid").value(about.pid);
  out.key("user").value(about.user);
  out.key("uid").value(static_cast<std::int64_t>(about.user_id));
  out.key("command");
  if (command == CommandLine::kShown) {
    out.value(about.command);
  } else {
    out.null();
  }
  out.key("device").value(about.device);
  out.key("model").value(about.model);
  out.key("policy").value(about.policy);
  out.key("fingerprint").text_or_null(about.fingerprint);
  out.key("group").text_or_null(about.group);
  out.key("versions").open('{');
  for (const auto& [name, version] : about.versions) out.key(name).value(version);
  out.close('}');
}

void write_state(JsonText& out, const RunSummary& run) {
  out.key("state").value(to_string(run.phase));
  out.key("state_reason").text_or_null(run.phase_reason);
  out.key("status").text_or_null(run.status);
  out.key("started_at").value(format_time(run.started_at));
  out.key("last_seen_at").value(format_time(run.last_seen_at));
  out.key("ended_at");
  if (run.ended_at) {
    out.value(format_time(*run.ended_at));
  } else {
    out.null();
  }
  out.key("step").value(run.step);
  out.key("steps_total").value(run.about->steps_total);
}

// The fields of the object "run", without its brackets.
void write_fields(JsonText& out, const RunSummary& run, CommandLine command) {
  out.key("id").value(run.id);
  write_description(out, *run.about, command);
  write_state(out, run);
  out.key("budget_bytes").value(run.budget_bytes);
  out.key("budget_fraction").value(run.budget_fraction);
  out.key("budget_source").value(run.budget_source);
  out.key("budget_pending_bytes").value(run.budget_pending_bytes);
  out.key("floor_bytes").value(run.about->floor_bytes);
  out.key("keep_all_bytes").value(run.about->keep_all_bytes);
  out.key("base_bytes").value(run.base_bytes);
  out.key("margin_bytes")
      .value(run.snapshot ? std::optional(run.snapshot->margin_bytes) : std::nullopt);
  out.key("peak_bytes").value(run.peak_bytes);
  out.key("budget_used").value(run.budget_used);
  out.key("host_peak_bytes").value(run.host_peak_bytes);
  out.key("last");
  if (run.last) {
    write(out, *run.last);
  } else {
    out.null();
  }
  out.key("step_seconds_median").value(run.step_seconds_median);
  out.key("recomputed_share").value(run.recomputed_share);
  out.key("recomputed_calls_share").value(run.recomputed_calls_share);
  out.key("learning_steps").value(run.learning_steps);
  out.key("revocations").value(run.revocations);
  out.key("overruns").value(run.overruns);
  write_cache(out, run.snapshot);
  out.key("dropped_records").value(run.dropped_records);
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

std::string to_json(const StepSummary& step) {
  JsonText out(kStepCharacters);
  write(out, step);
  return out.take();
}

void write(JsonText& out, const RunSummary& run, CommandLine command) {
  out.open('{');
  write_fields(out, run, command);
  out.close('}');
}

std::string to_json(const RunDetail& detail, CommandLine command) {
  JsonText out((detail.steps.size() + detail.budgets.size() + 8) * kStepCharacters);
  out.open('{');
  write_fields(out, detail.summary, command);
  out.key("steps").open('[');
  for (const StepSummary& step : detail.steps) write(out, step);
  out.close(']');
  out.key("budgets").open('[');
  for (const BudgetChange& change : detail.budgets) write(out, change);
  out.close(']');
  out.key("longest_keys").open('[');
  for (const ShapeKey& key : detail.longest) out.value(key.to_named_string());
  out.close(']');
  Json snapshot = snapshot_of(detail);
  for (const char* const field : {"structure", "learned", "counters"}) {
    out.key(field).raw(inspect::dump(field_or_null(snapshot, field), -1));
  }
  if (detail.has_model) out.key("has_model").value(*detail.has_model);
  out.close('}');
  return out.take();
}

std::optional<unsigned> owner_of(const Json& run) {
  const auto found = run.find("uid");
  if (found == run.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<unsigned>();
}

Json plans_json(const RunDetail& detail) {
  Json snapshot = snapshot_of(detail);
  Json plans = field_or_null(snapshot, "plans");
  return {{"run", detail.summary.id},
          {"plans", plans.is_array() ? std::move(plans) : Json::array()}};
}

}  // namespace pudica::daemon
