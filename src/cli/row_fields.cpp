#include "cli/row_fields.h"

#include <array>
#include <ostream>

#include "cli/row_format.h"

namespace pudica::cli {
namespace {

constexpr std::array kRunFields{
    "id",
    "name",
    "pid",
    "user",
    "uid",
    "command",
    "device",
    "model",
    "policy",
    "fingerprint",
    "group",
    "versions",
    "state",
    "state_reason",
    "status",
    "started_at",
    "last_seen_at",
    "ended_at",
    "step",
    "steps_total",
    "budget_bytes",
    "budget_source",
    "budget_fraction",
    "budget_pending_bytes",
    "floor_bytes",
    "keep_all_bytes",
    "base_bytes",
    "peak_bytes",
    "budget_used",
    "host_peak_bytes",
    "last.step",
    "last.key",
    "last.plan_id",
    "last.predicted_bytes",
    "last.measured_bytes",
    "last.budget_bytes",
    "last.budget_used",
    "last.seconds",
    "last.recompute_seconds",
    "last.recomputed_share",
    "last.recomputed",
    "last.layers",
    "last.revocations",
    "last.overrun",
    "last.learning",
    "last.host_peak_bytes",
    "last.allocator.active_bytes",
    "last.allocator.reserved_bytes",
    "last.allocator.gap_bytes",
    "step_seconds_median",
    "recomputed_share",
    "recomputed_calls_share",
    "learning_steps",
    "revocations",
    "overruns",
    "margin_bytes",
    "cache.hits",
    "cache.misses",
    "cache.plans",
    "dropped_records",
};

constexpr std::array kPlanFields{
    "key",
    "fits_up_to",
    "predicted_peak_bytes",
    "measured_peak_bytes",
    "slack_bytes",
    "hits",
    "created_step",
    "last_used_step",
    "reason",
    "plan.id",
    "plan.key",
    "plan.modes",
    "plan.default_mode",
    "plan.revocable",
    "plan.feasible",
    "plan.predicted_peak_bytes",
    "plan.predicted_extra_seconds",
    "plan.certified_gap_seconds",
    "plan.reason",
};

constexpr std::array kModelFields{"fingerprint", "bytes",      "recorded_steps", "distinct_shapes",
                                  "runs",        "updated_at", "taught_by"};

constexpr std::array kGroupFields{"name", "total_bytes", "pending_total_bytes", "assigned_bytes",
                                  "runs"};

}  // namespace

std::span<const char* const> known_run_fields() { return kRunFields; }
std::span<const char* const> known_plan_fields() { return kPlanFields; }
std::span<const char* const> known_model_fields() { return kModelFields; }
std::span<const char* const> known_group_fields() { return kGroupFields; }

int print_formatted(Session& session, std::span<const char* const> known,
                    const std::vector<const Json*>& objects) {
  const auto format = RowFormat::parse(session.arguments.format);
  if (!format) return fail(session, format.error().with_context("--format"));
  if (const auto checked = format->check(known, objects); !checked) {
    return fail(session, checked.error().with_context("--format"));
  }
  for (const Json* const object : objects) session.out << format->line(*object) << '\n';
  return kExitDone;
}

}  // namespace pudica::cli
