#include "train/summary.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace pudica::train {
namespace {

using nlohmann::json;

std::optional<double> number(const json& object, const char* name) {
  const auto entry = object.find(name);
  if (entry == object.end() || !entry->is_number()) return std::nullopt;
  return entry->get<double>();
}

std::string bytes_text(const json& object, const char* name) {
  const auto value = number(object, name);
  return value ? format_bytes(Bytes(static_cast<std::int64_t>(*value))) : "-";
}

std::string duration_text(const std::optional<double>& seconds) {
  if (!seconds) return "-";
  return *seconds < 10 ? fmt::format("{:.1f} ms", *seconds * 1e3)
                       : fmt::format("{:.1f} s", *seconds);
}

std::string outcome_text(const json& policy) {
  auto status = policy["status"].get<std::string>();
  if (status == "ok" && policy["overruns"].get<std::int64_t>() > 0) return "over budget";
  if (status == "oom") return fmt::format("out of memory at step {}", policy["steps"].dump());
  return status;
}

// "5.6 % (52.9 % of calls)"
std::string recomputed_text(const json& policy) {
  const auto share = number(policy, "recomputed_share");
  const auto calls = number(policy, "recomputed_calls_share");
  if (!share && !calls) return "-";
  std::string text = share ? fmt::format("{:.1f} %", *share * 100) : "?";
  if (calls && *calls > 0) text += fmt::format(" ({:.1f} % of calls)", *calls * 100);
  return text;
}

std::vector<std::string> table_row(const json& policy) {
  const auto ratio = number(policy, "time_vs_none");
  const auto used = number(policy, "budget_used");
  return {policy["name"].get<std::string>(),
          duration_text(number(policy, "step_seconds_median")),
          ratio ? fmt::format("{:.3f}x", *ratio) : "-",
          bytes_text(policy, "peak_bytes"),
          used ? fmt::format("{:.1f} %", *used * 100) : "-",
          recomputed_text(policy),
          policy["revocations"].dump(),
          outcome_text(policy)};
}

bool starts_with_name(const std::string& name, std::string_view policy) {
  return name == policy || name.starts_with(std::string(policy) + ":");
}

// The policy of that name without arguments, else the first with some.
const json* find_policy(const json& result, std::string_view name) {
  const json* found = nullptr;
  for (const auto& policy : result["policies"]) {
    const auto given = policy["name"].get<std::string>();
    if (given == name) return &policy;
    if (found == nullptr && starts_with_name(given, name)) found = &policy;
  }
  return found;
}

std::string budget_text(const json& budget) {
  const auto value = number(budget, "budget_bytes");
  if (!value || *value <= 0) return "no limit";
  return bytes_text(budget, "budget_bytes");
}

// "With 51.2 MiB pudica stayed within the budget", or of one that was changed while it ran.
std::string held_text(const json& result, const json& policy) {
  const auto used = number(policy, "budget_used");
  const auto overruns = policy["overruns"].get<std::int64_t>();
  const bool held = used && *used <= 1 && overruns == 0;
  const std::string over = overruns > 0 ? fmt::format(" in {} of {} steps", overruns,
                                                      policy["steps"].get<std::int64_t>())
                                        : std::string();
  const auto budgets = policy.value("budgets", json::array());
  if (budgets.size() <= 1) {
    return fmt::format("With {} pudica {}", bytes_text(result, "budget_bytes"),
                       held ? "stayed within the budget" : "went over the budget" + over);
  }
  constexpr std::size_t kNamed = 4;
  std::string text = "With " + budget_text(budgets.front());
  for (std::size_t i = 1; i < budgets.size() && budgets.size() <= kNamed; ++i) {
    text += fmt::format(", {} from step {} on", budget_text(budgets[i]),
                        budgets[i]["step"].get<std::int64_t>() + 1);
  }
  if (budgets.size() > kNamed) {
    text += fmt::format(", changed {} times to {} at the end", budgets.size() - 1,
                        budget_text(budgets.back()));
  }
  return text + (held ? ", pudica stayed within the budget of every step"
                      : ", pudica went over the budget" + over);
}

std::string compare_text(const json& result, std::string_view name, std::string_view words) {
  const auto* policy = find_policy(result, name);
  const auto ratio = policy == nullptr ? std::nullopt : number(*policy, "time_vs_none");
  if (!ratio) return {};
  return fmt::format("; {} costs {:+.1f} %", words, (*ratio - 1) * 100);
}

}  // namespace

std::string summary_table(const nlohmann::json& result) {
  std::vector<std::vector<std::string>> lines = {{"policy", "step time", "vs none", "peak memory",
                                                  "of budget", "recomputed", "revoked", "outcome"}};
  for (const auto& policy : result["policies"]) lines.push_back(table_row(policy));
  std::array<std::size_t, 8> widths{};
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const bool left = i == 0 || i + 1 == widths.size();
      if (i > 0) text += "  ";
      text += left ? fmt::format("{:<{}}", line[i], widths[i])
                   : fmt::format("{:>{}}", line[i], widths[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string conclusion(const nlohmann::json& result) {
  const auto* policy = find_policy(result, "pudica");
  if (policy == nullptr) return "No policy pudica in this run: nothing to compare with.";
  const auto status = (*policy)["status"].get<std::string>();
  const auto budget = bytes_text(result, "budget_bytes");
  if (status == "interrupted") {
    return "The run was interrupted: the figures cover the steps that ended.";
  }
  if (status != "ok") {
    const auto detail = (*policy)["detail"];
    return fmt::format("pudica did not finish under {}: {}.", budget,
                       detail.is_string() ? detail.get<std::string>() : status);
  }
  const auto ratio = number(*policy, "time_vs_none");
  std::string text = fmt::format("Keeping everything needs {}. {}",
                                 bytes_text(result, "keep_all_bytes"), held_text(result, *policy));
  if (ratio) text += fmt::format(" at {:+.1f} % time per step", (*ratio - 1) * 100);
  text += compare_text(result, "full", "recomputing every layer");
  text += compare_text(result, "static", "the best fixed plan");
  text += compare_text(result, "mimose", "Mimose");
  return text + ".";
}

std::int64_t terminal_columns(std::FILE* stream) {
  const int descriptor = fileno(stream);
  winsize size{};
  if (isatty(descriptor) == 0) return 0;
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

Progress::Progress(std::FILE* stream, std::int64_t columns, std::int64_t steps)
    : stream_(stream), columns_(columns), steps_(steps) {}

std::string Progress::line(const std::string& policy, const StepRow& row, std::int64_t steps,
                           std::int64_t columns) {
  constexpr std::int64_t kBarColumns = 20;
  const auto done = std::min(row.step + 1, steps);
  std::string text;
  if (columns >= 90) {
    const auto filled =
        static_cast<std::size_t>(kBarColumns * done / std::max<std::int64_t>(1, steps));
    text = "[" + std::string(filled, '#') + std::string(kBarColumns - filled, '.') + "] ";
  }
  text += fmt::format("step {}/{}  loss {:.3f}  {}", done, steps, row.loss, policy);
  if (row.peak.count() > 0) text += "  " + format_bytes(row.peak);
  if (row.budget.count() > 0) {
    const auto share =
        static_cast<double>(row.peak.count()) / static_cast<double>(row.budget.count());
    text += fmt::format(" of {} ({:.0f} %)", format_bytes(row.budget), share * 100);
  }
  if (columns > 0 && std::ssize(text) >= columns) text.resize(columns - 1);
  return text;
}

void Progress::show(const std::string& policy, const StepRow& row) {
  if (columns_ > 0) {
    fmt::print(stream_, "\r\033[K{}", line(policy, row, steps_, columns_));
    drawn_ = true;
  } else {
    // About twenty lines a run, each when a step's first policy is done.
    const auto every = std::max<std::int64_t>(1, steps_ / 20);
    if (row.step == last_printed_step_ || (row.step % every != 0 && row.step + 1 != steps_)) return;
    last_printed_step_ = row.step;
    fmt::print(stream_, "{}\n", line(policy, row, steps_, 0));
  }
  std::fflush(stream_);
}

void Progress::note(const std::string& text) {
  finish();
  fmt::print(stream_, "{}\n", text);
  std::fflush(stream_);
}

void Progress::finish() {
  if (drawn_) fmt::print(stream_, "\r\033[K");
  drawn_ = false;
  std::fflush(stream_);
}

}  // namespace pudica::train
