#include "train/parent.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "inspect/origin.h"
#include "train/data.h"
#include "train/summary.h"

namespace pudica::train {
namespace {

using nlohmann::json;

constexpr std::chrono::minutes kReplyTimeout{60};  // of one step or one calibration
constexpr std::chrono::milliseconds kStopCheck{200};

// Whether a stop waits for the answer: a step is finished, a calibration is not.
enum class OnStop { kWait, kGiveUp };

// Whether a policy plans, and so may own the learned state and the step record.
bool is_pudica(const std::string& name) { return name == "pudica" || name.starts_with("pudica:"); }

bool switched_off() {
  const char* value = std::getenv("PUDICA_DISABLE");
  return value != nullptr && std::string(value) == "1";
}

struct Calibration {
  Bytes floor{0};
  Bytes keep_all{0};
  std::optional<Bytes> menu_floor;
  std::string config_budget;
  json versions;
};

// A worker's failure, with how it counts.
struct Failure {
  std::string message;
  bool usage = false;
  bool oom = false;
};

struct Lane {
  WorkerProcess worker;
  std::size_t policy;  // index into RunResult::policies
};

class Parent {
 public:
  Parent(const TrainOptions& options, const ParentOptions& parent)
      : options_(options),
        parent_(parent),
        progress_(parent.progress_stream, terminal_columns(parent.progress_stream), options.steps) {
  }

  int run();

 private:
  [[nodiscard]] std::vector<std::string> command() const;
  [[nodiscard]] WorkerStart worker_start() const;
  [[nodiscard]] std::optional<Failure> check_outputs() const;
  std::optional<Failure> ask(WorkerProcess& worker, const json& command, OnStop on_stop,
                             json& reply);
  Result<json> answer_of(WorkerProcess& worker, OnStop on_stop);
  std::optional<Failure> calibrate();
  std::optional<Failure> resolve_budget(const Calibration& calibration);
  std::optional<Failure> start_lanes();
  json setup_command(const std::string& policy) const;
  void note_daemon(const json& daemon, const std::string& policy);
  void train();
  void step(Lane& lane, std::int64_t index);
  void finish(Lane& lane);
  void end_lane(Lane& lane, const Failure& failure);
  int conclude();
  int fail(const Failure& failure);

  const TrainOptions& options_;
  const ParentOptions& parent_;
  Progress progress_;
  RunResult run_;
  std::vector<Lane> lanes_;
  std::string state_file_;  // the configuration's; empty: none
  bool daemon_missed_ = false;
  bool interrupted_ = false;
};

// As the user typed it.
std::vector<std::string> Parent::command() const {
  auto words = parent_.worker_arguments;
  std::erase(words, "--worker");
  words.insert(words.begin(), "pudica-train");
  return words;
}

WorkerStart Parent::worker_start() const {
  WorkerStart start;
  start.program = parent_.worker_program;
  start.arguments = parent_.worker_arguments;
  start.environment = worker_environment(options_.threads);
  return start;
}

// Before anything is trained: what cannot be written later would be lost.
std::optional<Failure> Parent::check_outputs() const {
  auto checked = prepare_folder(options_.out);
  if (checked && !options_.state.empty()) checked = check_writable("--state", options_.state);
  if (checked && !options_.record.empty()) checked = check_writable("--record", options_.record);
  if (!checked) return Failure{checked.error().message, true};
  return std::nullopt;
}

Result<json> Parent::answer_of(WorkerProcess& worker, OnStop on_stop) {
  const auto deadline = std::chrono::steady_clock::now() + kReplyTimeout;
  for (;;) {
    auto answer = worker.receive(on_stop == OnStop::kWait ? kReplyTimeout : kStopCheck);
    const bool waiting = !answer && worker.alive() && on_stop == OnStop::kGiveUp &&
                         std::chrono::steady_clock::now() < deadline;
    if (!waiting || parent_.stopping()) return answer;
  }
}

std::optional<Failure> Parent::ask(WorkerProcess& worker, const json& command, OnStop on_stop,
                                   json& reply) {
  const auto sent = worker.send(command);
  auto answer = sent ? answer_of(worker, on_stop) : Result<json>(sent.error());
  if (!answer) {
    worker.kill();
    return Failure{answer.error().message};
  }
  if (!answer->is_object()) return Failure{"the worker's reply is not a JSON object"};
  const auto error = answer->find("error");
  if (error == answer->end()) {
    reply = *std::move(answer);
    return std::nullopt;
  }
  Failure failure{error->is_string() ? error->get<std::string>() : error->dump()};
  failure.usage = answer->value("usage", json(false)) == json(true);
  failure.oom = answer->value("oom", json(false)) == json(true);
  return failure;
}

std::optional<Bytes> bytes_field(const json& object, const char* name) {
  const auto entry = object.find(name);
  if (entry == object.end() || !entry->is_number_integer()) return std::nullopt;
  return Bytes(entry->get<std::int64_t>());
}

std::optional<Failure> Parent::calibrate() {
  auto start = worker_start();
  start.environment.emplace_back("PUDICA_DISABLE", "0");  // floor and keep-all must be measured
  auto worker = WorkerProcess::start(start);
  if (!worker) return Failure{worker.error().message};
  progress_.note("measuring what the longest batches need ...");
  json reply;
  if (auto failure = ask(*worker, {{"cmd", "calibrate"}}, OnStop::kGiveUp, reply)) return failure;
  const auto floor = bytes_field(reply, "floor_bytes");
  const auto keep_all = bytes_field(reply, "keep_all_bytes");
  if (!floor || !keep_all) {
    return Failure{"calibration: " + reply.dump() + " seen, expected floor_bytes, keep_all_bytes"};
  }
  Calibration calibration;
  calibration.floor = *floor;
  calibration.keep_all = *keep_all;
  calibration.menu_floor = bytes_field(reply, "menu_floor_bytes");
  const auto configured = reply.find("config_budget");
  if (configured != reply.end() && configured->is_string()) {
    calibration.config_budget = configured->get<std::string>();
  }
  const auto state_file = reply.find("config_state_file");
  if (state_file != reply.end() && state_file->is_string()) {
    state_file_ = state_file->get<std::string>();
    const auto checked = check_writable("state_file", state_file_);
    if (!checked) return Failure{checked.error().message, true};
  }
  calibration.versions = reply.value("versions", json::object());
  return resolve_budget(calibration);
}

std::optional<Failure> Parent::resolve_budget(const Calibration& calibration) {
  auto budget = options_.budget;
  if (!options_.budget_given && !calibration.config_budget.empty()) {
    const auto configured = parse_budget(calibration.config_budget);
    if (!configured) {
      return Failure{configured.error().with_context("--config: budget").message, true};
    }
    budget = *configured;
  }
  run_.floor = calibration.floor;
  run_.keep_all = calibration.keep_all;
  run_.menu_floor = calibration.menu_floor;
  run_.budget = budget.resolve(calibration.floor, calibration.keep_all);
  run_.versions = calibration.versions;
  run_.versions["pudica"] = PUDICA_VERSION;
  run_.versions.update(describe_versions());
  run_.machine = describe_machine();
  run_.origin = describe_origin(command(), worker_environment(options_.threads));
  progress_.note(fmt::format("budget {}: recomputing every layer needs {}, keeping all {}",
                             format_bytes(run_.budget), format_bytes(run_.floor),
                             format_bytes(run_.keep_all)));
  return std::nullopt;
}

json Parent::setup_command(const std::string& policy) const {
  const bool off = switched_off();  // then every policy trains as `none`, and nothing is learnt
  const bool beside_none = policy == kMeteredName || policy == kCappedName;
  json command = {{"cmd", "setup"},
                  {"policy", beside_none || off ? "none" : policy},
                  {"budget_bytes", run_.budget.count()},
                  {"none", "plain"}};
  if (off) return command;
  if (beside_none) command["none"] = policy == kCappedName ? "capped" : "metered";
  command["floor_bytes"] = run_.floor.count();
  command["keep_all_bytes"] = run_.keep_all.count();
  // One owner of each file: the first `pudica`, else (of the record) the first that has a handle.
  const auto& names = options_.policies;
  const auto planner = std::find_if(names.begin(), names.end(), is_pudica);
  if (planner != names.end() && *planner == policy) {
    if (!options_.state.empty()) command["state"] = options_.state;
    if (!state_file_.empty()) command["state_file"] = state_file_;
  }
  const std::string first = names.front() == "none" ? kMeteredName : names.front();
  const std::string recorded = planner != names.end() ? *planner : first;
  if (!options_.record.empty() && recorded == policy) command["record"] = options_.record;
  return command;
}

std::optional<Failure> Parent::start_lanes() {
  std::vector<std::string> names = options_.policies;
  const auto none = std::find(names.begin(), names.end(), "none");
  if (none != names.end()) names.insert(none + 1, {kMeteredName, kCappedName});
  for (const auto& name : names) {
    run_.policies.push_back({});
    run_.policies.back().name = name;
  }
  for (std::size_t i = 0; i < names.size() && !parent_.stopping(); ++i) {
    auto worker = WorkerProcess::start(worker_start());
    if (!worker) return Failure{worker.error().message};
    lanes_.push_back(Lane{*std::move(worker), i});
  }
  for (auto& lane : lanes_) {
    if (parent_.stopping()) break;
    json reply;
    auto failure = ask(lane.worker, setup_command(names[lane.policy]), OnStop::kGiveUp, reply);
    if (!failure) {
      note_daemon(reply.value("daemon", json()), names[lane.policy]);
      continue;
    }
    if (parent_.stopping()) break;
    if (failure->usage) return failure;
    end_lane(lane, *failure);
  }
  return std::nullopt;
}

// Says how the registration went; that there is no daemon only once.
void Parent::note_daemon(const json& daemon, const std::string& policy) {
  if (!daemon.is_object()) return;
  if (daemon.value("registered", json(false)) == json(true)) {
    progress_.note("registered with pudicad: " + policy + " is " +
                   daemon.value("id", std::string("?")));
    return;
  }
  if (std::exchange(daemon_missed_, true)) return;
  progress_.note("--daemon: " + daemon.value("reason", std::string()) +
                 "; training goes on without it");
}

void Parent::end_lane(Lane& lane, const Failure& failure) {
  auto& policy = run_.policies[lane.policy];
  policy.status = failure.oom ? PolicyStatus::kOom : PolicyStatus::kFailed;
  policy.detail = failure.message;
  lane.worker.kill();
  progress_.note(fmt::format("{}: {} after {} steps: {}", policy.name, to_string(policy.status),
                             policy.rows.size(), failure.message));
}

void Parent::step(Lane& lane, std::int64_t index) {
  json reply;
  auto failure = ask(lane.worker, {{"cmd", "step"}, {"i", index}}, OnStop::kWait, reply);
  if (!failure) {
    auto row = step_row_from_json(reply);
    if (row) {
      progress_.show(run_.policies[lane.policy].name, *row);
      run_.policies[lane.policy].rows.push_back(*std::move(row));
      return;
    }
    failure = Failure{row.error().message};
  }
  end_lane(lane, *failure);
}

void Parent::train() {
  for (std::int64_t i = 0; i < options_.steps; ++i) {
    // Who goes first changes from step to step, so that nobody always finds a warm cache.
    for (std::size_t turn = 0; turn < lanes_.size(); ++turn) {
      if (parent_.stopping()) return;
      auto& lane = lanes_[(static_cast<std::size_t>(i) + turn) % lanes_.size()];
      if (lane.worker.alive()) step(lane, i);
    }
  }
}

void Parent::finish(Lane& lane) {
  auto& policy = run_.policies[lane.policy];
  if (!lane.worker.alive() || policy.rows.empty()) return;
  json reply;
  if (auto failure = ask(lane.worker, {{"cmd", "finish"}}, OnStop::kWait, reply)) {
    end_lane(lane, *failure);
    return;
  }
  const auto digest = reply.find("params_sha256");
  if (digest != reply.end() && digest->is_string()) {
    policy.params_sha256 = digest->get<std::string>();
  }
  policy.cache = reply.value("cache", json());
  policy.plans = reply.value("plans", json());
  lane.worker.kill();
}

int Parent::fail(const Failure& failure) {
  if (parent_.stopping()) {
    progress_.note("interrupted before the first step: nothing to write");
    return kExitInterrupted;
  }
  progress_.note("pudica-train: " + failure.message);
  return failure.usage ? kExitUsage : kExitFailed;
}

int Parent::conclude() {
  bool failed = false;
  for (auto& policy : run_.policies) {
    const bool partial = std::ssize(policy.rows) < options_.steps;
    if (policy.status == PolicyStatus::kOk && interrupted_ && partial) {
      policy.status = PolicyStatus::kInterrupted;
    }
    failed = failed || policy.status == PolicyStatus::kFailed;
  }
  progress_.finish();
  const auto result = to_json(run_);
  fmt::print(parent_.table_stream, "\n{}\n{}\n", summary_table(result), conclusion(result));
  const auto written = write_results(run_, options_.out);
  if (!written) {
    progress_.note("pudica-train: " + written.error().message);
    return kExitFailed;
  }
  fmt::print(parent_.table_stream, "Results: {}\n",
             (std::filesystem::path(options_.out) / "report.html").string());
  std::fflush(parent_.table_stream);
  if (interrupted_) return kExitInterrupted;
  return failed ? kExitFailed : kExitDone;
}

int Parent::run() {
  const auto data = load_data(options_.data, options_.max_length);
  if (!data) return fail({data.error().message, true});
  if (data->dimensions == 2 && options_.model.layers < 2) {
    return fail({fmt::format("--model: layers={} seen, expected at least 2 for data of two lengths",
                             options_.model.layers),
                 true});
  }
  if (auto failure = check_outputs()) return fail(*failure);
  run_.options = options_;
  if (switched_off()) progress_.note("PUDICA_DISABLE=1: every policy trains as `none`, unmeasured");
  if (auto failure = calibrate()) return fail(*failure);
  if (auto failure = start_lanes()) return fail(*failure);
  train();
  interrupted_ = parent_.stopping();
  if (interrupted_) progress_.note("stopping: writing what there is");
  for (auto& lane : lanes_) finish(lane);
  return conclude();
}

}  // namespace

int run_parent(const TrainOptions& options, const ParentOptions& parent) {
  return Parent(options, parent).run();
}

}  // namespace pudica::train
