#include "cli/view_replay.h"

#include <optional>
#include <ostream>

#include <fmt/format.h>

#include "cli/format.h"
#include "inspect/recomputation.h"

namespace pudica::cli {
namespace {

std::optional<double> calls_share(const ReplayTotals& totals) {
  if (totals.layer_calls == 0) return std::nullopt;
  return static_cast<double>(totals.recomputed) / static_cast<double>(totals.layer_calls);
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

// "7.25 s (-5.7 %)", compared with the same steps as they were recorded; where some steps have no
// time, of how many it is.
std::string time_text(const ReplayTotals& totals, bool replayed) {
  if (totals.timed_steps == 0) return kNothing;
  std::string text = duration_text(totals.seconds);
  if (replayed && totals.recorded_seconds > 0) {
    text += fmt::format(" ({:+.1f} %)", (totals.seconds / totals.recorded_seconds - 1) * 100);
  }
  if (totals.timed_steps < totals.steps + totals.unknown_steps) {
    text += fmt::format(" of {} steps", totals.timed_steps);
  }
  return text;
}

std::string recomputed_text(const ReplayTotals& totals) {
  const auto share = recomputed_share(totals.extra_seconds, totals.seconds);
  return percent_text(share) + " (" + percent_text(calls_share(totals)) + ")";
}

std::string steps_text(const ReplayTotals& totals) {
  const std::string steps = std::to_string(totals.steps);
  if (totals.unknown_steps == 0) return steps;
  return steps + " of " + std::to_string(totals.steps + totals.unknown_steps);
}

void print_table(std::ostream& out, const std::vector<ReplayRow>& rows, const Style& style) {
  Table table({{"POLICY", false, true},
               {"PEAK", true},
               {"OF BUDGET", true, false, 1},
               {"TIME", true},
               {"EXTRA TIME", true, false, 3},
               {"RECOMPUTED (CALLS)", true, false, 2},
               {"REVOKED", true},
               {"OVERRUNS", true},
               {"STEPS", true, false, 4}});
  for (const ReplayRow& row : rows) {
    const ReplayTotals& totals = row.totals;
    const bool replayed = &row != &rows.front();
    table.add(
        {{sanitised(row.name, style)},
         {bytes_text(totals.peak_bytes.count())},
         {totals.budget_used > 0 ? percent_text(totals.budget_used) : kNothing,
          totals.budget_used > 1 ? Colour::kRed : Colour::kNone},
         {time_text(totals, replayed)},
         {totals.timed_steps > 0 ? duration_text(totals.extra_seconds) : kNothing},
         {recomputed_text(totals)},
         {std::to_string(totals.revocations)},
         {std::to_string(totals.overruns), totals.overruns > 0 ? Colour::kRed : Colour::kNone},
         {steps_text(totals)}});
  }
  table.print(out, style);
}

void print_tab_rows(std::ostream& out, const std::vector<ReplayRow>& rows) {
  std::vector<Json> values;
  for (const ReplayRow& row : rows) {
    values.push_back(to_json(row.totals));
    values.back()["policy"] = row.name;
  }
  std::vector<const Json*> pointers;
  for (const Json& value : values) pointers.push_back(&value);
  print_fields(out,
               {"policy", "steps", "peak_bytes", "budget_used", "seconds", "extra_seconds",
                "layer_calls", "recomputed", "revocations", "revoked_steps", "overruns",
                "unknown_steps", "timed_steps", "recorded_seconds", "recomputed_share"},
               pointers);
}

}  // namespace

Json to_json(const ReplayedStep& step) {
  Json modes = Json::array();
  for (const Mode mode : step.modes) modes.push_back(to_string(mode));
  return {{"step", step.step},
          {"key", step.key.to_named_string()},
          {"modes", std::move(modes)},
          {"predicted_bytes", step.predicted_bytes ? Json(step.predicted_bytes->count()) : Json()},
          {"peak_bytes", step.peak_bytes.count()},
          {"planned_peak_bytes", step.planned_peak_bytes.count()},
          {"budget_bytes", step.budget_bytes.count()},
          {"seconds", step.seconds ? Json(*step.seconds) : Json()},
          {"extra_seconds", step.extra_seconds ? Json(*step.extra_seconds) : Json()},
          {"recomputed", step.recomputed},
          {"revocations", step.revocations},
          {"overrun", step.overrun},
          {"learning", step.learning},
          {"measured", step.measured}};
}

Json to_json(const ReplayTotals& totals) {
  const bool timed = totals.timed_steps > 0;
  return {{"steps", totals.steps},
          {"unknown_steps", totals.unknown_steps},
          {"unknown", totals.unknown_steps > 0 ? Json(totals.unknown) : Json()},
          {"learning_steps", totals.learning_steps},
          {"measured_steps", totals.measured_steps},
          {"peak_bytes", totals.peak_bytes.count()},
          {"planned_peak_bytes", totals.planned_peak_bytes.count()},
          {"budget_used", totals.budget_used > 0 ? Json(totals.budget_used) : Json()},
          {"timed_steps", totals.timed_steps},
          {"seconds", timed ? Json(totals.seconds) : Json()},
          {"extra_seconds", timed ? Json(totals.extra_seconds) : Json()},
          {"recorded_seconds", timed ? Json(totals.recorded_seconds) : Json()},
          {"recomputed_share", or_null(recomputed_share(totals.extra_seconds, totals.seconds))},
          {"recomputed_calls_share", or_null(calls_share(totals))},
          {"layer_calls", totals.layer_calls},
          {"recomputed", totals.recomputed},
          {"revocations", totals.revocations},
          {"revoked_steps", totals.revoked_steps},
          {"overruns", totals.overruns}};
}

void print_replay_rows(std::ostream& out, const std::vector<ReplayRow>& rows, const Style& style) {
  if (style.terminal) {
    print_table(out, rows, style);
  } else {
    print_tab_rows(out, rows);
  }
}

}  // namespace pudica::cli
