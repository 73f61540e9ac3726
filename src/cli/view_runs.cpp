#include "cli/view_runs.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "cli/format.h"

namespace pudica::cli {
namespace {

constexpr std::size_t kBarWidth = 10;
constexpr std::size_t kLongBarWidth = 30;
constexpr std::size_t kNameWidth = 32;
constexpr std::size_t kChangesShown = 12;

// Of names of others, unless nothing is to be cut.
std::size_t name_width(const Style& style) {
  return style.width >= kUnboundedWidth ? kUnboundedWidth : kNameWidth;
}

std::string safe(const Json& object, std::string_view path, const Style& style) {
  const std::string value = text(object, path);
  return value.empty() ? kNothing : sanitised(value, style);
}

Colour state_colour(const std::string& state) {
  if (state == "planning") return Colour::kGreen;
  if (state == "learning" || state == "registered") return Colour::kBlue;
  if (state == "lost") return Colour::kRed;
  return state == "standing_down" ? Colour::kYellow : Colour::kDim;
}

std::string state_text(const Json& run, const Style& style) {
  std::string state = safe(run, "state", style);
  const std::string status = text(run, "status");
  if (state == "ended" && !status.empty()) state += " (" + sanitised(status, style) + ")";
  std::ranges::replace(state, '_', ' ');
  return state;
}

std::string step_text(const Json& run) {
  const auto total = integer(run, "steps_total");
  return count_text(integer(run, "step")) + (total ? "/" + std::to_string(*total) : "");
}

std::string budget_text(const Json& run) {
  const auto budget = integer(run, "budget_bytes");
  if (!budget || *budget == 0) return budget ? "no limit" : kNothing;
  const auto pending = integer(run, "budget_pending_bytes");
  return bytes_text(budget) + (pending ? " -> " + bytes_text(pending) : "");
}

Cell bar_cell(const std::optional<double>& used, std::size_t width, const Style& style) {
  if (!used) return {kNothing, Colour::kDim};
  const std::string percent = fmt::format(" {:>3.0f} %", *used * 100);
  return {budget_bar(*used, width, style) + percent, Colour::kNone, true, width + percent.size()};
}

std::string recent_text(const Json& run, const RunView& view) {
  const std::string seen = age_text(text(run, "last_seen_at"), view.now);
  return text(run, "state") == "ended" ? age_text(text(run, "ended_at"), view.now) : seen;
}

void print_changes(std::ostream& out, const Json& run, const RunView& view) {
  const Json& budgets = list(run, "budgets");
  if (budgets.empty()) return;
  out << '\n' << painted("Budget changes", Colour::kBold, view.style) << '\n';
  Table table({{"WHEN"},
               {"STEP", true},
               {"BUDGET", true},
               {"FROM"},
               {"PLAN", true},
               {"PREDICTED", true},
               {"MEASURED", true}});
  const std::size_t first =
      budgets.size() > kChangesShown ? budgets.size() - kChangesShown : std::size_t{0};
  for (std::size_t i = first; i < budgets.size(); ++i) {
    const Json& change = budgets[i];
    table.add({{age_text(text(change, "at"), view.now)},
               {count_text(integer(change, "step"))},
               {bytes_text(integer(change, "budget_bytes"))},
               {safe(change, "source", view.style)},
               {count_text(integer(change, "plan_id"))},
               {bytes_text(integer(change, "predicted_bytes"))},
               {bytes_text(integer(change, "measured_bytes"))}});
  }
  table.print(out, view.style);
  if (first > 0) out << first << " earlier changes: --json shows all\n";
}

// "yes: no step went over its budget", or what is wrong, the worst first.
std::string verdict(const Json& run, const Style& style) {
  const auto wrong = [&style](const std::string& what) {
    return painted("no", Colour::kRed, style) + ": " + what;
  };
  const std::string state = text(run, "state");
  const std::string status = text(run, "status");
  const std::int64_t over = integer(run, "overruns").value_or(0);
  if (state == "lost") return wrong("it fell silent without an end");
  if (status == "oom" || status == "failed") return wrong("it ended with " + status);
  if (over > 0) {
    return wrong(std::to_string(over) + (over == 1 ? " step" : " steps") + " of " + step_text(run) +
                 " went over the budget");
  }
  if (state == "standing_down") return wrong("it does not plan any more");
  if (state == "registered") return "not known before its first step";
  return painted("yes", Colour::kGreen, style) + ": no step went over its budget" +
         (state == "learning" ? "; it still learns" : "");
}

Facts identity_facts(const Json& run, const RunView& view) {
  const Style& style = view.style;
  const std::size_t width = style.width > 40 ? style.width - 16 : 24;
  const auto clip = [&](const std::string& value) { return clipped(value, width, style); };
  std::string who = safe(run, "user", style);
  if (const auto pid = integer(run, "pid")) who += ", process " + std::to_string(*pid);
  std::string state = painted(state_text(run, style), state_colour(text(run, "state")), style);
  const std::string reason = text(run, "state_reason");
  if (!reason.empty()) state += ": " + clip(sanitised(reason, style));
  return {{"Run", clip(safe(run, "name", style)) + " (" + clip(safe(run, "id", style)) + ")"},
          {"State", state},
          {"All right", verdict(run, style)},
          {"Owner", clip(who)},
          {"Command", clip(safe(run, "command", style))},
          {"Model", clip(safe(run, "model", style) + " on " + safe(run, "device", style))},
          {"Policy", clip(safe(run, "policy", style))},
          {"Started", age_text(text(run, "started_at"), view.now) + ", last seen " +
                          age_text(text(run, "last_seen_at"), view.now)}};
}

Facts memory_facts(const Json& run, const RunView& view) {
  const Style& style = view.style;
  std::string budget = budget_text(run);
  const std::string source = text(run, "budget_source");
  if (!source.empty()) budget += ", set by the " + sanitised(source, style);
  if (const auto fraction = number(run, "budget_fraction")) {
    budget +=
        fmt::format(", {:g} of the way from recomputing to keeping its longest batch", *fraction);
  }
  const std::string group = text(run, "group");
  if (!group.empty())
    budget += ", group " + clipped(sanitised(group, style), name_width(style), style);
  std::string peak = bytes_text(integer(run, "peak_bytes"));
  if (const auto used = number(run, "budget_used")) {
    peak += "  " + bar_cell(used, kLongBarWidth, style).text + " of its step's budget at most";
  }
  Facts facts{{"Budget", budget}, {"Largest peak", peak}};
  if (const auto host = integer(run, "host_peak_bytes"); host && *host > 0) {
    facts.emplace_back("On the host", bytes_text(host) + " of offloaded layers at most");
  }
  if (const auto keep = integer(run, "keep_all_bytes")) {
    facts.emplace_back("Keeping all", bytes_text(keep) + ", recomputing all " +
                                          bytes_text(integer(run, "floor_bytes")));
  }
  facts.emplace_back("Steps", step_text(run) + ", " + count_text(integer(run, "learning_steps")) +
                                  " of them learning");
  facts.emplace_back(
      "Step time", duration_text(number(run, "step_seconds_median")) + " (median of the last 128)");
  facts.emplace_back(
      "Recomputed", percent_text(number(run, "recomputed_share")) + " of the time of steps (" +
                        percent_text(number(run, "recomputed_calls_share")) + " of layer calls), " +
                        count_text(integer(run, "revocations")) + " revocations, " +
                        count_text(integer(run, "overruns")) + " overruns");
  facts.emplace_back("Plan cache", count_text(integer(run, "cache.plans")) + " plans, " +
                                       count_text(integer(run, "cache.hits")) + " hits, " +
                                       count_text(integer(run, "cache.misses")) + " misses");
  return facts;
}

void add_last_step(const Json& run, const Style& style, Facts& facts) {
  const Json* const last = find(run, "last");
  if (last == nullptr || !last->is_object()) return;
  facts.emplace_back("Last step", clipped(safe(*last, "key", style), 2 * name_width(style), style) +
                                      ": predicted " +
                                      bytes_text(integer(*last, "predicted_bytes")) +
                                      ", measured " + bytes_text(integer(*last, "measured_bytes")) +
                                      ", " + duration_text(number(*last, "seconds")));
  if (const auto dropped = integer(run, "dropped_records"); dropped && *dropped > 0) {
    facts.emplace_back("Not seen", std::to_string(*dropped) + " step records were dropped");
  }
}

}  // namespace

const std::vector<std::string>& run_fields() {
  static const std::vector<std::string> kFields{"id",
                                                "name",
                                                "state",
                                                "status",
                                                "step",
                                                "steps_total",
                                                "policy",
                                                "budget_bytes",
                                                "budget_source",
                                                "budget_pending_bytes",
                                                "peak_bytes",
                                                "step_seconds_median",
                                                "recomputed_share",
                                                "revocations",
                                                "overruns",
                                                "group",
                                                "user",
                                                "pid",
                                                "started_at",
                                                "last_seen_at",
                                                "budget_used",
                                                "recomputed_calls_share"};
  return kFields;
}

void print_run_table(std::ostream& out, const Json& runs, const RunView& view) {
  const Style& style = view.style;
  Table table({{"ID", false, true},
               {"NAME", false, true},
               {"STATE"},
               {"STEP", true},
               {"BUDGET", true},
               {"PEAK", true},
               {"OF BUDGET", false, false, 1},
               {"STEP TIME", true, false, 2},
               {"RECOMPUTED", true, false, 3},
               {"REVOKED", true, false, 5},
               {"POLICY", false, true, 4},
               {"GROUP", false, true, 7},
               {"SEEN", true, false, 6}});
  for (const Json& run : runs) {
    table.add({{clipped(safe(run, "id", style), name_width(style), style)},
               {clipped(safe(run, "name", style), name_width(style), style)},
               {state_text(run, style), state_colour(text(run, "state"))},
               {step_text(run)},
               {budget_text(run)},
               {bytes_text(integer(run, "peak_bytes"))},
               bar_cell(number(run, "budget_used"), kBarWidth, style),
               {duration_text(number(run, "step_seconds_median"))},
               {percent_text(number(run, "recomputed_share"))},
               {count_text(integer(run, "revocations"))},
               {clipped(safe(run, "policy", style), name_width(style), style)},
               {clipped(safe(run, "group", style), name_width(style), style)},
               {recent_text(run, view)}});
  }
  table.print(out, style);
}

void print_group_table(std::ostream& out, const Json& groups, const Style& style) {
  Table table({{"GROUP", false, true},
               {"TOTAL", true},
               {"ASSIGNED", true},
               {"OF TOTAL", false, false, 1},
               {"RUNS", true}});
  for (const Json& group : groups) {
    const auto total = number(group, "total_bytes");
    const auto assigned = number(group, "assigned_bytes");
    std::optional<double> used;
    if (total && assigned && *total > 0) used = *assigned / *total;
    table.add({{clipped(safe(group, "name", style), name_width(style), style)},
               {bytes_text(integer(group, "total_bytes"))},
               {bytes_text(integer(group, "assigned_bytes"))},
               bar_cell(used, kBarWidth, style),
               {std::to_string(list(group, "runs").size())}});
  }
  table.print(out, style);
}

void print_run_details(std::ostream& out, const Json& run, const RunView& view) {
  Facts facts = identity_facts(run, view);
  for (auto& fact : memory_facts(run, view)) facts.push_back(std::move(fact));
  add_last_step(run, view.style, facts);
  print_facts(out, facts, view.style);
  print_changes(out, run, view);
}

}  // namespace pudica::cli
