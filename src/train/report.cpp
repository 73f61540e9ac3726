#include "train/report.h"

#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/html.h"
#include "train/summary.h"

namespace pudica::train {
namespace {

using nlohmann::json;

std::optional<double> number(const json& object, const char* name) {
  if (!object.is_object()) return std::nullopt;
  const auto entry = object.find(name);
  if (entry == object.end() || !entry->is_number()) return std::nullopt;
  return entry->get<double>();
}

std::string bytes_text(const json& object, const char* name) {
  const auto value = number(object, name);
  return value ? format_bytes(Bytes(static_cast<std::int64_t>(*value))) : "-";
}

std::string percent_text(const std::optional<double>& fraction) {
  return fraction ? fmt::format("{:.1f} %", *fraction * 100) : "-";
}

std::string cell(const std::string& text, bool bad = false) {
  return fmt::format("<td{}>{}</td>", bad ? " class=\"bad\"" : "", escape_html(text));
}

std::string prediction_text(const json& prediction) {
  const auto mean = number(prediction, "mean_abs_rel");
  if (!mean) return "-";
  return fmt::format("{} / {}", percent_text(mean), percent_text(number(prediction, "max_under")));
}

std::string table_row(const json& policy, std::size_t index) {
  const auto name = policy["name"].get<std::string>();
  const auto status = policy["status"].get<std::string>();
  const auto time = number(policy, "step_seconds_median");
  const auto ratio = number(policy, "time_vs_none");
  const auto warmup = number(policy, "warmup_overhead_steps");
  const auto used = number(policy, "budget_used");
  const auto& digest = policy["params_sha256"];
  std::string row = name == "pudica" ? "<tr class=\"chosen\">" : "<tr>";
  row += fmt::format("<td><span class=\"dot\" style=\"background:var(--c{})\"></span>{}</td>",
                     colour_of(name, index), escape_html(name));
  row += cell(time ? fmt::format("{:.1f} ms", *time * 1e3) : "-");
  row += cell(ratio ? fmt::format("{:.3f}x", *ratio) : "-");
  row += cell(warmup ? fmt::format("{:+.1f} steps", *warmup) : "-");
  row += cell(bytes_text(policy, "peak_bytes"));
  row += cell(percent_text(used), used && *used > 1);
  const auto calls = number(policy, "recomputed_calls_share");
  row += cell(percent_text(number(policy, "recomputed_share")) +
              (calls ? " (" + percent_text(calls) + ")" : ""));
  row += cell(policy["revocations"].dump());
  row += cell(prediction_text(policy["prediction"]));
  row += fmt::format("<td><code>{}</code></td>",
                     digest.is_string() ? digest.get<std::string>().substr(0, 8) : "-");
  const bool out_of_memory = status == "oom";
  row += cell(out_of_memory ? "out of memory" : status, status != "ok");
  return row + "</tr>\n";
}

std::string table(const json& result) {
  std::string text = "<table><thead><tr>";
  for (const auto* name : {"policy", "step time", "time vs none", "warm-up", "peak", "of budget",
                           "recomputed", "revoked", "prediction error", "parameters", "outcome"}) {
    text += fmt::format("<th scope=\"col\">{}</th>", name);
  }
  text += "</tr></thead><tbody>\n";
  std::size_t index = 0;
  for (const auto& policy : result["policies"]) text += table_row(policy, index++);
  return text + "</tbody></table>";
}

std::string tile(const std::string& value, const std::string& name, const char* extra_class = "") {
  return fmt::format("<div class=\"tile{}\"><b>{}</b><span>{}</span></div>", extra_class,
                     escape_html(value), escape_html(name));
}

std::string tiles(const json& result) {
  return tile(bytes_text(result, "budget_bytes"), "budget", " main") +
         tile(bytes_text(result, "keep_all_bytes"), "keeping every activation") +
         tile(bytes_text(result, "floor_bytes"), "recomputing every layer") +
         tile(bytes_text(result, "menu_floor_bytes"), "least that any plan reaches") +
         tile(result["steps"].dump(), "steps of each policy");
}

std::string facts(const json& result) {
  const auto& model = result["model"];
  const auto& data = result["data"];
  return escape_html(fmt::format(
      "Model {}: {} layers, hidden {}, {} heads, {} attention, {}. Data: {}, batch {}. Seed {}.",
      model["preset"].get<std::string>(), model["layers"].dump(), model["hidden"].dump(),
      model["heads"].dump(), model["attention"].get<std::string>(),
      model["dtype"].get<std::string>(), data["file"].get<std::string>(), data["batch"].dump(),
      result["seed"].dump()));
}

std::string footer(const json& result) {
  std::string text = "Machine: ";
  const auto& machine = result["machine"];
  const auto part = [&machine](const char* name) {
    const auto entry = machine.is_object() ? machine.find(name) : machine.end();
    if (!machine.is_object() || entry == machine.end() || entry->is_null()) return std::string("-");
    return entry->is_string() ? entry->get<std::string>() : entry->dump();
  };
  text += fmt::format("{}, {} cores, {}, {}.", part("cpu"), part("cores"),
                      bytes_text(machine, "memory_bytes"), part("system"));
  if (result["versions"].is_object()) {
    for (const auto& [name, version] : result["versions"].items()) {
      if (version.is_string()) text += fmt::format(" {} {}.", name, version.get<std::string>());
    }
  }
  const auto revision = result.find("revision");
  if (revision != result.end() && revision->is_string()) {
    const bool modified = result.value("modified", json(false)) == json(true);
    text += fmt::format(" Revision {}{}.", revision->get<std::string>().substr(0, 12),
                        modified ? ", changed" : "");
  }
  return escape_html(text);
}

// Of each plan what the charts draw.
json drawable_plans(const json& plans) {
  json drawable = json::array();
  for (const auto& plan : plans.is_array() ? plans : json::array()) {
    const bool complete = plan.is_object() && plan.contains("shape") && plan["shape"].is_string() &&
                          plan.contains("modes") && plan["modes"].is_array();
    if (!complete) continue;
    json kept = {{"shape", plan["shape"]}, {"modes", plan["modes"]}};
    for (const auto* name : {"predicted_bytes", "measured_bytes"}) {
      if (plan.contains(name)) kept[name] = plan[name];
    }
    drawable.push_back(std::move(kept));
  }
  return drawable;
}

// The budgets that held, by step: those of the policy whose budget changed most often.
json drawable_budgets(const json& result) {
  json budgets = json::array({{{"step", 0}, {"budget_bytes", result["budget_bytes"]}}});
  for (const auto& policy : result["policies"]) {
    const auto& own = policy["budgets"];
    if (own.size() > budgets.size()) budgets = own;
  }
  return budgets;
}

// What the charts draw: columns, shorter than objects by half.
json chart_data(const RunResult& run, const json& result) {
  json data = {{"budget", run.budget.count()},
               {"budgets", drawable_budgets(result)},
               {"policies", json::array()}};
  std::size_t index = 0;
  for (const auto& policy : run.policies) {
    json entry = {{"name", policy.name},       {"color", colour_of(policy.name, index++)},
                  {"step", json::array()},     {"shape", json::array()},
                  {"seconds", json::array()},  {"peak", json::array()},
                  {"learning", json::array()}, {"plans", drawable_plans(policy.plans)}};
    for (const auto& row : policy.rows) {
      entry["step"].push_back(row.step);
      entry["shape"].push_back(row.shape);
      entry["seconds"].push_back(row.seconds);
      entry["peak"].push_back(row.peak.count());
      entry["learning"].push_back(row.learning ? 1 : 0);
    }
    data["policies"].push_back(std::move(entry));
  }
  return data;
}

}  // namespace

std::size_t colour_of(const std::string& policy, std::size_t index) {
  constexpr std::size_t kColours = 10;
  constexpr std::size_t kPudica = 5;
  if (policy == "pudica") return kPudica;
  const auto other = index % (kColours - 1);
  return other < kPudica ? other : other + 1;
}

std::string report_html(const RunResult& run) {
  const auto result = to_json(run);
  return fill_page(
      report_page,
      {{"budget", escape_html(bytes_text(result, "budget_bytes"))},
       {"style", std::string(report_style)},
       {"conclusion", escape_html(conclusion(result))},
       {"facts", facts(result)},
       {"tiles", tiles(result)},
       {"table", table(result)},
       {"footer", footer(result)},
       {"data", script_safe_json(
                    chart_data(run, result).dump(-1, ' ', true, json::error_handler_t::replace))},
       {"script", std::string(report_script)}});
}

}  // namespace pudica::train
