#include "cli/run_report.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/html.h"
#include "cli/format.h"
#include "cli/recorded_model.h"
#include "cli/terminal.h"
#include "inspect/recomputation.h"
#include "pudica/shape_key.h"

namespace pudica::cli {
namespace {

constexpr std::size_t kTextWidth = 200;

// Text of others: visible escapes, bounded, safe in HTML.
std::string safe(const std::string& text) {
  return escape_html(clipped(sanitised(text, {}), kTextWidth, {}));
}

std::string short_key(const std::string& key) {
  const auto parsed = ShapeKey::parse(key);
  return parsed ? parsed->to_string() : clipped(sanitised(key, {}), 40, {});
}

std::string tile(const std::string& value, const std::string& name, const char* extra = "") {
  return fmt::format("<div class=\"tile{}\"><b>{}</b><span>{}</span></div>", extra,
                     escape_html(value), escape_html(name));
}

std::string cell(const std::string& text) { return "<td>" + text + "</td>"; }

void add_fact(std::string& facts, const char* name, const std::string& value) {
  if (!value.empty()) facts += fmt::format("{} {}. ", name, safe(value));
}

}  // namespace

RunReport RunReport::of_run(const Json& run, const Json& plans) {
  RunReport report;
  report.name_ = text(run, "name").empty() ? text(run, "id") : text(run, "name");
  add_fact(report.facts_, "Model", text(run, "model"));
  add_fact(report.facts_, "Device", text(run, "device"));
  add_fact(report.facts_, "Policy", text(run, "policy"));
  add_fact(report.facts_, "State", text(run, "state") + ": " + text(run, "state_reason"));
  report.source_ = "Run " + text(run, "id") + " of " + text(run, "user") + ", started " +
                   text(run, "started_at") + ", by the daemon's last steps.";
  for (const Json& item : list(run, "steps")) {
    Step step;
    step.step = integer(item, "step").value_or(0);
    step.shape = short_key(text(item, "key"));
    step.predicted_bytes = integer(item, "predicted_bytes").value_or(0);
    step.measured_bytes = integer(item, "measured_bytes").value_or(0);
    step.budget_bytes = integer(item, "budget_bytes").value_or(0);
    step.seconds = number(item, "seconds").value_or(0);
    step.recompute_seconds = number(item, "recompute_seconds");
    step.recomputed = integer(item, "recomputed").value_or(0);
    step.layers = integer(item, "layers").value_or(0);
    step.revocations = integer(item, "revocations").value_or(0);
    step.overrun = is_true(item, "overrun");
    step.learning = is_true(item, "learning");
    report.add(std::move(step));
  }
  for (const Json& item : list(plans, "plans")) {
    report.add_plan(short_key(text(item, "key")),
                    {list(item, "plan.modes"), integer(item, "predicted_peak_bytes").value_or(0),
                     integer(item, "measured_peak_bytes").value_or(0)});
  }
  if (!list(run, "budgets").empty()) report.changes_ = list(run, "budgets");
  return report;
}

void RunReport::add(const StepRecord& record) {
  name_ = record.run;
  Step step;
  step.step = static_cast<std::int64_t>(record.step);
  step.shape = record.key.to_string();
  step.predicted_bytes = record.predicted_bytes.value_or(Bytes(0)).count();
  step.measured_bytes = record.measured_bytes.count();
  step.budget_bytes = record.budget_bytes.count();
  step.seconds = record.seconds;
  const std::vector<Mode> modes = modes_run(record);
  step.layers = static_cast<std::int64_t>(modes.size());
  step.recompute_seconds = record.recompute_seconds;
  step.recomputed = recomputed_calls(modes, record.revocations);
  step.revocations = record.revocations;
  step.overrun = record.overrun;
  step.learning = record.profiles.has_value();
  PlanOfShape plan{Json::array(), step.predicted_bytes, step.measured_bytes};
  for (const Mode mode : modes) plan.modes.push_back(to_string(mode));
  if (!modes.empty()) add_plan(step.shape, std::move(plan));
  add(std::move(step));
}

void RunReport::add(Step step) {
  const bool changed = steps_.empty() || steps_.back().budget_bytes != step.budget_bytes;
  if (changed && step.budget_bytes > 0) {
    constexpr std::size_t kMaxChanges = 1000;
    if (changes_.size() < kMaxChanges) {
      changes_.push_back(
          {{"step", step.step},
           {"budget_bytes", step.budget_bytes},
           {"predicted_bytes", step.predicted_bytes > 0 ? Json(step.predicted_bytes) : Json()},
           {"measured_bytes", step.measured_bytes}});
    }
  }
  if (steps_.size() == kMaxSteps) {
    // A quarter at a time: the copies stay few.
    steps_.erase(steps_.begin(), steps_.begin() + kMaxSteps / 4);
    steps_left_out_ += kMaxSteps / 4;
  }
  steps_.push_back(std::move(step));
}

void RunReport::add_plan(const std::string& shape, PlanOfShape plan) {
  if (plans_.size() >= kMaxPlans && !plans_.contains(shape)) {
    ++plans_left_out_;
    return;
  }
  plans_.insert_or_assign(shape, std::move(plan));
}

double RunReport::median_seconds() const {
  std::vector<double> seconds;
  for (const Step& step : steps_) {
    if (step.seconds > 0) seconds.push_back(step.seconds);
  }
  if (seconds.empty()) return 0;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::ranges::nth_element(seconds, middle);
  return *middle;
}

std::string RunReport::conclusion() const {
  if (steps_.empty()) return "No step of " + safe(name_) + " has ended yet.";
  std::int64_t above = 0;
  std::int64_t limited = 0;
  for (const Step& step : steps_) {
    if (step.budget_bytes > 0) ++limited;
    if (step.budget_bytes > 0 && step.measured_bytes > step.budget_bytes) ++above;
  }
  const std::string steps = fmt::format("{} step{}", limited, limited == 1 ? "" : "s");
  if (limited == 0) return safe(name_) + " ran without a budget.";
  if (above == 0) return safe(name_) + " stayed within its budget in all of " + steps + ".";
  return fmt::format("{} exceeded its budget in {} of {}.", safe(name_), above, steps);
}

std::string RunReport::tiles() const {
  std::int64_t peak = 0;
  std::int64_t revocations = 0;
  std::int64_t recomputed = 0;
  std::int64_t layers = 0;
  double again = 0;
  double timed = 0;
  double used = 0;
  for (const Step& step : steps_) {
    peak = std::max(peak, step.measured_bytes);
    revocations += step.revocations;
    recomputed += step.recomputed;
    layers += step.layers;
    if (step.recompute_seconds) {
      again += *step.recompute_seconds;
      timed += step.seconds;
    }
    const auto part = budget_used(Bytes(step.measured_bytes), Bytes(step.budget_bytes));
    used = std::max(used, part.value_or(0));
  }
  const std::int64_t budget = steps_.empty() ? 0 : steps_.back().budget_bytes;
  const double median = median_seconds();
  return tile(budget > 0 ? bytes_text(budget) : "no limit", "budget, last", " main") +
         tile(bytes_text(peak), "largest peak") +
         tile(used > 0 ? percent_text(used) : kNothing, "of its step's budget, at most") +
         tile(median > 0 ? duration_text(median) : kNothing, "median step time") +
         tile(percent_text(recomputed_share(again, timed)), "of the time, recomputing") +
         tile(layers > 0
                  ? percent_text(static_cast<double>(recomputed) / static_cast<double>(layers))
                  : kNothing,
              "of layer calls recomputed") +
         tile(std::to_string(revocations), "revocations");
}

std::string RunReport::changes_table() const {
  if (changes_.empty()) return "<p class=\"empty\">No budget was set.</p>";
  std::string rows;
  for (const Json& change : changes_) {
    const std::string source = text(change, "source");
    rows += "<tr>" + cell(count_text(integer(change, "step"))) +
            cell(bytes_text(integer(change, "budget_bytes"))) +
            cell(source.empty() ? "run" : safe(source)) +
            cell(bytes_text(integer(change, "predicted_bytes"))) +
            cell(bytes_text(integer(change, "measured_bytes"))) + "</tr>\n";
  }
  return "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">from step</th><th "
         "scope=\"col\">budget</th><th scope=\"col\">set by</th><th scope=\"col\">predicted "
         "there</th><th scope=\"col\">measured there</th></tr></thead><tbody>\n" +
         rows + "</tbody></table></div>";
}

// Columns, shorter than objects by half.
Json RunReport::data() const {
  Json out{{"name", name_}};
  for (const char* name : {"step", "shape", "predicted", "peak", "budget", "seconds", "revocations",
                           "overrun", "learning"}) {
    out[name] = Json::array();
  }
  for (const Step& step : steps_) {
    out["step"].push_back(step.step);
    out["shape"].push_back(step.shape);
    out["predicted"].push_back(step.predicted_bytes);
    out["peak"].push_back(step.measured_bytes);
    out["budget"].push_back(step.budget_bytes);
    out["seconds"].push_back(step.seconds);
    out["revocations"].push_back(step.revocations);
    out["overrun"].push_back(step.overrun ? 1 : 0);
    out["learning"].push_back(step.learning ? 1 : 0);
  }
  out["plans"] = Json::array();
  for (const auto& [shape, plan] : plans_) {
    Json modes = Json::array();
    for (const Json& mode : plan.modes) {
      modes.push_back(mode.is_string() ? mode.get<std::string>() : dump(mode));
    }
    out["plans"].push_back({{"shape", shape},
                            {"modes", std::move(modes)},
                            {"predicted_bytes", plan.predicted_bytes},
                            {"measured_bytes", plan.measured_bytes}});
  }
  return out;
}

std::string RunReport::html() const {
  std::string footer = source_;
  if (steps_left_out_ > 0)
    footer += fmt::format(" {} earlier steps are left out.", steps_left_out_);
  if (plans_left_out_ > 0) footer += fmt::format(" {} plans are left out.", plans_left_out_);
  return fill_page(kRunReportPage, {{"title", safe(name_)},
                                    {"style", std::string(kRunReportStyle)},
                                    {"conclusion", conclusion()},
                                    {"facts", facts_},
                                    {"tiles", tiles()},
                                    {"changes", changes_table()},
                                    {"footer", safe(footer)},
                                    {"data", script_safe_json(dump(data()))},
                                    {"script", std::string(kRunReportScript)}});
}

}  // namespace pudica::cli
