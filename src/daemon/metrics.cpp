#include "daemon/metrics.h"

#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <utility>

#include "inspect/json_values.h"

namespace pudica::daemon {
namespace {

std::string number(double value) {
  std::array<char, 64> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end.ptr};
}

std::string number(std::int64_t value) { return std::to_string(value); }

std::optional<double> bytes(const std::optional<Bytes>& value) {
  if (!value) return std::nullopt;
  return static_cast<double>(value->count());
}

std::optional<double> count(std::int64_t value) { return static_cast<double>(value); }

using Labels = std::vector<std::pair<std::string, std::string>>;

class Writer {
 public:
  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    out_ += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }

  template <typename Number>
  void sample(const Labels& labels, Number value) {
    out_ += name_;
    const char* separator = "{";
    for (const auto& [label, text] : labels) {
      out_ += separator + label + "=\"" + escape_label(text) + "\"";
      separator = ",";
    }
    if (!labels.empty()) out_ += '}';
    out_ += ' ' + number(value) + '\n';
  }

  std::string take() { return std::move(out_); }

 private:
  std::string name_;
  std::string out_;
};

struct RunFamily {
  const char* name;
  const char* type;
  const char* help;
  std::optional<double> (*value)(const RunSummary& run);  // nullopt: not known, left out
};

constexpr std::array<RunFamily, 21> kRunFamilies{{
    {"pudica_run_budget_bytes", "gauge", "Budget in effect; 0: not limited.",
     [](const RunSummary& run) { return bytes(run.budget_bytes); }},
    {"pudica_run_budget_pending_bytes", "gauge", "Budget asked for and not yet taken up.",
     [](const RunSummary& run) { return bytes(run.budget_pending_bytes); }},
    {"pudica_run_peak_bytes", "gauge", "Largest measured peak of any step.",
     [](const RunSummary& run) { return bytes(run.peak_bytes); }},
    {"pudica_run_step_measured_bytes", "gauge", "Measured peak of the last step.",
     [](const RunSummary& run) {
       return run.last ? bytes(run.last->measured_bytes) : std::nullopt;
     }},
    {"pudica_run_step_predicted_bytes", "gauge", "Predicted peak of the last step.",
     [](const RunSummary& run) {
       return run.last ? bytes(run.last->predicted_bytes) : std::nullopt;
     }},
    {"pudica_run_host_peak_bytes", "gauge", "Largest peak in host memory of offloaded layers.",
     [](const RunSummary& run) { return bytes(run.host_peak_bytes); }},
    {"pudica_run_base_bytes", "gauge", "Live bytes when a step begins.",
     [](const RunSummary& run) { return bytes(run.base_bytes); }},
    {"pudica_run_floor_bytes", "gauge", "Peak with every layer recomputed.",
     [](const RunSummary& run) { return bytes(run.about->floor_bytes); }},
    {"pudica_run_keep_all_bytes", "gauge", "Peak with every layer kept.",
     [](const RunSummary& run) { return bytes(run.about->keep_all_bytes); }},
    {"pudica_run_step", "gauge", "Number of the last step.",
     [](const RunSummary& run) {
       return run.step ? std::optional(static_cast<double>(*run.step)) : std::nullopt;
     }},
    {"pudica_run_steps_total", "counter", "Steps reported.",
     [](const RunSummary& run) { return count(run.steps); }},
    {"pudica_run_learning_steps_total", "counter", "Steps that measured the layers.",
     [](const RunSummary& run) { return count(run.learning_steps); }},
    {"pudica_run_revocations_total", "counter", "Kept layers taken away within a step.",
     [](const RunSummary& run) { return count(run.revocations); }},
    {"pudica_run_revoked_steps_total", "counter", "Steps reported with a revocation.",
     [](const RunSummary& run) { return count(run.revoked_steps); }},
    {"pudica_run_overruns_total", "counter", "Steps that went above the budget.",
     [](const RunSummary& run) { return count(run.overruns); }},
    {"pudica_run_dropped_records_total", "counter", "Records that the run had no room for.",
     [](const RunSummary& run) { return count(run.dropped_records); }},
    {"pudica_run_step_seconds_median", "gauge", "Median seconds of the last 128 steps.",
     [](const RunSummary& run) { return run.step_seconds_median; }},
    {"pudica_run_budget_used", "gauge", "Most that a peak took of the budget of its own step.",
     [](const RunSummary& run) { return run.budget_used; }},
    {"pudica_run_recomputed_share", "gauge", "Time of steps in which layers ran again, of all.",
     [](const RunSummary& run) { return run.recomputed_share; }},
    {"pudica_run_recomputed_calls_share", "gauge", "Layer calls run again, of all.",
     [](const RunSummary& run) { return run.recomputed_calls_share; }},
    {"pudica_run_cached_plans", "gauge", "Plans in the plan cache.",
     [](const RunSummary& run) {
       return run.snapshot ? count(run.snapshot->cache_plans) : std::nullopt;
     }},
}};

Labels labels_of(const RunSummary& run) { return {{"run", run.id}, {"name", run.about->name}}; }

void write_cache(Writer& writer, const std::vector<RunSummary>& runs) {
  writer.family("pudica_run_cache_lookups_total", "counter", "Plan cache lookups by result.");
  for (const RunSummary& run : runs) {
    if (!run.snapshot) continue;
    for (const auto& [result, value] : {std::pair("hit", run.snapshot->cache_hits),
                                        std::pair("miss", run.snapshot->cache_misses)}) {
      Labels labels = labels_of(run);
      labels.emplace_back("result", result);
      writer.sample(labels, value);
    }
  }
}

// One sample a state, 1 for the state that the run is in.
void write_states(Writer& writer, const std::vector<RunSummary>& runs) {
  writer.family("pudica_run_state", "gauge", "1 for the state that the run is in.");
  for (const RunSummary& run : runs) {
    for (const RunPhase phase : {RunPhase::kRegistered, RunPhase::kLearning, RunPhase::kPlanning,
                                 RunPhase::kStandingDown, RunPhase::kLost}) {
      Labels labels = labels_of(run);
      labels.emplace_back("state", to_string(phase));
      writer.sample(labels, std::int64_t{run.phase == phase ? 1 : 0});
    }
  }
}

void write_groups(Writer& writer, const std::vector<GroupView>& groups) {
  writer.family("pudica_group_total_bytes", "gauge", "Total of a budget group.");
  for (const GroupView& group : groups) {
    if (group.total_bytes) writer.sample({{"group", group.name}}, group.total_bytes->count());
  }
  writer.family("pudica_group_assigned_bytes", "gauge", "What a group's runs may use together.");
  for (const GroupView& group : groups) {
    writer.sample({{"group", group.name}}, group.assigned_bytes.count());
  }
}

void write_daemon(Writer& writer, const DaemonMetrics& daemon) {
  writer.family("pudica_daemon_info", "gauge", "1, with the daemon's version.");
  writer.sample({{"version", daemon.version}}, std::int64_t{1});
  writer.family("pudica_daemon_uptime_seconds", "gauge", "Seconds since the daemon began.");
  writer.sample({}, daemon.uptime_seconds);
  writer.family("pudica_daemon_requests_total", "counter", "Answers by status code.");
  for (const auto& [code, value] : daemon.answers) {
    writer.sample({{"code", std::to_string(code)}}, value);
  }
  const auto single = [&writer](const char* name, const char* type, const char* help,
                                std::int64_t value) {
    writer.family(name, type, help);
    writer.sample({}, value);
  };
  single("pudica_daemon_events_total", "counter", "Events of runs taken in.", daemon.events);
  single("pudica_daemon_registrations_total", "counter", "Runs that registered, again included.",
         daemon.runs_registered);
  single("pudica_daemon_open_connections", "gauge", "Connections open.", daemon.open_connections);
  single("pudica_daemon_models", "gauge", "Learned models held.", daemon.models);
  single("pudica_daemon_database_bytes", "gauge", "Bytes of the database in use.",
         daemon.database_bytes);
  single("pudica_daemon_writes_total", "counter", "Entries written to the database.",
         daemon.written);
  single("pudica_daemon_dropped_writes_total", "counter",
         "Entries not written to the database: no room, or it failed.", daemon.dropped_writes);
}

}  // namespace

std::string escape_label(const std::string& text) {
  // The writer of JSON replaces what is not UTF-8; its other escapes are undone by reading it.
  const std::string clean =
      inspect::Json::parse(inspect::dump(inspect::Json(text), -1)).get<std::string>();
  std::string out;
  for (const char character : clean) {
    if (character == '\n') {
      out += "\\n";
    } else {
      if (character == '\\' || character == '"') out += '\\';
      out += character;
    }
  }
  return out;
}

std::string to_prometheus(const DaemonMetrics& daemon, const std::vector<RunSummary>& runs,
                          const std::vector<RunSummary>& lost,
                          const std::vector<GroupView>& groups) {
  Writer writer;
  write_daemon(writer, daemon);
  writer.family("pudica_runs", "gauge", "Live runs.");
  writer.sample({}, static_cast<std::int64_t>(runs.size()));
  for (const RunFamily& family : kRunFamilies) {
    writer.family(family.name, family.type, family.help);
    for (const RunSummary& run : runs) {
      if (const auto value = family.value(run)) writer.sample(labels_of(run), *value);
    }
  }
  write_cache(writer, runs);
  std::vector<RunSummary> with_lost = runs;
  with_lost.insert(with_lost.end(), lost.begin(), lost.end());
  write_states(writer, with_lost);
  write_groups(writer, groups);
  return writer.take();
}

}  // namespace pudica::daemon
