// The files of a run's folder, as results.h declares them.
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "train/report.h"
#include "train/results.h"

namespace pudica::train {
namespace {

// A field with quotes where CSV needs them.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

// Replaced by rename, so that a reader never sees half a file.
Result<void> write_file(const std::filesystem::path& path, const std::string& content) {
  auto partial = path;
  partial += ".partial";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  std::error_code code;
  if (file) std::filesystem::rename(partial, path, code);
  if (file && !code) return {};
  return Error{ErrorCode::kUnavailable, fmt::format("--out: cannot write '{}'", path.string())};
}

std::string dump(const nlohmann::json& value) {
  return value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string steps_csv(const RunResult& run) {
  std::string csv =
      "policy,step,shape,seconds,cpu_seconds,loss,peak_bytes,predicted_bytes,budget_bytes,"
      "base_bytes,revocations,overrun,recomputed_layers,layer_calls,plan_us,cache_hit,learning,"
      "handle_seconds,recompute_seconds\n";
  for (const auto& policy : run.policies) {
    const auto name = csv_field(policy.name);
    for (const auto& row : policy.rows) {
      csv += fmt::format("{},{},{},{:.6f},{:.6f},{:.6g},", name, row.step, row.shape, row.seconds,
                         row.cpu_seconds, row.loss);
      csv += fmt::format(
          "{},{},{},{},", row.peak.count(),
          row.predicted.count() > 0 ? std::to_string(row.predicted.count()) : std::string(),
          row.budget.count() > 0 ? std::to_string(row.budget.count()) : std::string(),
          row.base.count());
      const std::string hit = row.cache_hit ? std::to_string(static_cast<int>(*row.cache_hit)) : "";
      csv += fmt::format("{},{:d},{},{},{:.3f},{},{:d},{:.6f},", row.revocations, row.overrun,
                         row.recomputed_layers, row.layer_calls,
                         static_cast<double>(row.plan_ns) / 1000.0, hit, row.learning,
                         row.handle_seconds);
      if (row.recompute_seconds) csv += fmt::format("{:.6f}", *row.recompute_seconds);
      csv += '\n';
    }
  }
  return csv;
}

std::string file_name_of(const std::string& policy) {
  std::string name;
  for (const char c : policy) {
    const bool kept = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                      std::string_view("-_.+=").find(c) != std::string_view::npos;
    if (kept) {
      name += c;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  while (name.ends_with('_')) name.pop_back();
  return name.empty() ? "policy" : name;
}

Result<void> prepare_folder(const std::string& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) {
    return invalid_argument(fmt::format("--out: '{}' seen, expected a folder that can be made: {}",
                                        folder, code.message()));
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return invalid_argument(
        fmt::format("--out: '{}' seen, expected a folder that can be written to: {}", folder,
                    std::strerror(errno)));
  }
  return {};
}

Result<void> check_writable(const std::string& option, const std::string& path) {
  const std::filesystem::path file(path);
  std::error_code code;
  int error = std::filesystem::is_directory(file, code) ? EISDIR : 0;
  if (error == 0) {
    const bool there = std::filesystem::exists(file, code);
    const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
    if (access((there ? file : folder).c_str(), W_OK) != 0) error = errno;
  }
  if (error == 0) return {};
  return invalid_argument(fmt::format("{}: '{}' seen, expected a file that can be written: {}",
                                      option, path, std::strerror(error)));
}

Result<void> write_results(const RunResult& run, const std::string& folder) {
  const std::filesystem::path path(folder);
  if (auto prepared = prepare_folder(folder); !prepared) return prepared.error();
  const auto result = to_json(run);
  auto outcome = write_file(path / "result.json", dump(result));
  if (outcome) outcome = write_file(path / "steps.csv", steps_csv(run));
  std::set<std::string> used;
  for (const auto& policy : run.policies) {
    if (!outcome || !policy.plans.is_array()) continue;
    auto name = file_name_of(policy.name);
    while (!used.insert(name).second) name += "_";
    const nlohmann::json plans = {
        {"schema", "pudica.plans/1"}, {"policy", policy.name}, {"plans", policy.plans}};
    outcome = write_file(path / ("plans-" + name + ".json"), dump(plans));
  }
  if (outcome) outcome = write_file(path / "report.html", report_html(run));
  return outcome;
}

}  // namespace pudica::train
