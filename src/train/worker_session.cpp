#include "train/worker_session.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include <torch/version.h>

#include "config/config.h"
#include "inspect/json.h"
#include "policy/policy_factory.h"
#include "train/menu_profile.h"
#include "train/worker_profile.h"
#include "train/worker_report.h"

namespace pudica::train {
namespace {

using nlohmann::json;

Error file_error(const std::string& what, const std::string& path) {
  return Error{ErrorCode::kUnavailable, what + " " + path + ": " + std::strerror(errno)};
}

// What `static` and `oracle` must know beforehand, measured on a throw-away model.
Result<void> measure_beforehand(const TrainOptions& options, const RunData& data,
                                const PolicySpec& spec, const RunSetup& run, PolicyInputs& inputs) {
  if (spec.name == "static") {
    auto profiles = profile_shapes(options, data, largest_shapes(data));
    if (!profiles) return profiles.error();
    Bytes largest{0};
    for (auto& [shape, profile] : *profiles) {
      if (profile.keep_all_peak_bytes <= largest) continue;
      largest = profile.keep_all_peak_bytes;
      inputs.longest_shape = shape;
      inputs.longest_costs = profile.costs;
      inputs.steady_base_bytes = profile.base_bytes;
    }
  } else if (spec.name == "oracle") {
    const ControllerOptions& controller = inputs.controller;
    auto costs = profile_menu(options, data, distinct_shapes(data),
                              {controller.menu, run.menu_rules, run.offload, controller.predictor});
    if (!costs) return costs.error();
    inputs.oracle_costs = std::move(*costs);
  }
  return {};
}

}  // namespace

Result<Config> load_configuration(const TrainOptions& options) {
  Config config;
  if (!options.config.empty()) {
    auto loaded = load_config(options.config).result();
    if (!loaded) return loaded.error();
    config = std::move(*loaded);
  }
  const ConfigErrors errors = apply_environment(process_environment, config);
  if (!errors.empty()) return invalid_argument(errors.front());
  if (options.warmup_mode == "sheltered") config.warmup.mode = WarmupMode::kSheltered;
  if (options.warmup_mode == "revocable") config.warmup.mode = WarmupMode::kRevocable;
  return config;
}

ControllerOptions controller_options(const TrainOptions& options, const Config& config) {
  ControllerOptions compiled = compile_controller_options(config);
  if (options.device != "cpu") compiled.predictor.granularity_bytes = 512;
  return compiled;
}

Result<std::unique_ptr<WorkerSession>> WorkerSession::start(const TrainOptions& options,
                                                            const RunData& data,
                                                            const SessionSetup& setup) {
  auto spec = parse_policy_spec(setup.policy);
  if (!spec) return spec.error();
  auto config = load_configuration(options);
  if (!config) return config.error();
  PolicyInputs inputs;
  inputs.controller = controller_options(options, *config);
  RunSetup run;
  run.offload.host_bytes = Bytes(config->offload.host_bytes);
  run.menu_rules = {config->planner.keep_operators, config->planner.recompute_operators};
  auto measured = measure_beforehand(options, data, *spec, run, inputs);
  if (!measured) return measured.error();
  auto policy = make_policy(*spec, inputs);
  if (!policy) return policy.error();
  std::unique_ptr<WorkerSession> session(new WorkerSession(options, setup));
  session->policy_ = *policy;
  session->controller_ = std::dynamic_pointer_cast<Controller>(*policy);
  auto restored = session->restore_state();
  if (!restored) return restored.error();
  run.policy = session->policy_;
  const bool none = spec->name == "none";
  run.plain = none && setup.none == NoneKind::kPlain;
  if (run.plain) return begin(std::move(session), options, data, run);
  std::unique_ptr<std::ofstream> record;
  if (!setup.record_path.empty()) {
    record = std::make_unique<std::ofstream>(setup.record_path);
    if (!*record) return file_error("cannot write --record", setup.record_path);
  }
  session->recording_ =
      std::make_shared<RecordingPolicy>(session->policy_, "pudica-train", std::move(record));
  run.policy = session->recording_;
  if (!none || setup.none == NoneKind::kCapped) {
    run.budget_bytes = setup.budget_bytes;
    run.enforcement = Enforcement::kHard;
  }
  if (options.daemon && session->controller_) session->report_to_daemon(*config, run);
  return begin(std::move(session), options, data, run);
}

Result<std::unique_ptr<WorkerSession>> WorkerSession::begin(std::unique_ptr<WorkerSession> session,
                                                            const TrainOptions& options,
                                                            const RunData& data,
                                                            const RunSetup& run) {
  auto started = start_run(options, data, run);
  if (!started) return started.error();
  session->run_ = std::move(*started);
  session->ending_ = "interrupted";
  return session;
}

WorkerSession::~WorkerSession() { end(ending_); }

void WorkerSession::report_to_daemon(const Config& config, RunSetup& run) {
  ReportSetup report_setup;
  report_setup.policy = setup_.policy;
  report_setup.fingerprint = fingerprint();
  report_setup.budget_bytes = run.budget_bytes;
  report_setup.floor_bytes = setup_.floor_bytes;
  report_setup.keep_all_bytes = setup_.keep_all_bytes;
  report_setup.has_state = has_state_;
  reporting_ = report(options_, config, report_setup, run.policy, controller_);
  run.policy = reporting_;
  run.next_budget = [reporting = reporting_] { return reporting->next_budget(); };
}

nlohmann::json WorkerSession::daemon() const {
  if (!reporting_) return nullptr;
  const ReporterStatus status = reporting_->reporter().status();
  return {{"registered", status.registered}, {"id", status.id}, {"reason", status.reason}};
}

void WorkerSession::end(const std::string& status) {
  constexpr std::chrono::seconds kEndWait{1};
  if (reporting_) reporting_->finish(status, kEndWait);
}

std::string WorkerSession::fingerprint() const {
  const ModelOptions& model = options_.model;
  std::ostringstream text;
  text << "pudica-train layers=" << model.layers << " hidden=" << model.hidden
       << " heads=" << model.heads << " vocab=" << model.vocab
       << " attention=" << to_string(model.attention) << " dtype=" << to_string(model.dtype)
       << " dropout=" << model.dropout
       << " data=" << (options_.data.kind == DataKind::kText ? "text" : "lengths")
       << " device=" << options_.device << " torch=" << TORCH_VERSION;
  return text.str();
}

Result<void> WorkerSession::restore_state() {
  if (!controller_) return {};
  auto done = restore_from(setup_.state_path, "--state");
  if (done && !*done) done = restore_from(setup_.state_file, "state_file");
  if (!done) return done.error();
  has_state_ = *done;
  return {};
}

Result<bool> WorkerSession::restore_from(const std::string& path, const std::string& what) {
  if (path.empty()) return false;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (std::filesystem::exists(path)) return file_error("cannot read " + what, path);
    return false;  // the first run makes it
  }
  std::ostringstream content;
  content << file.rdbuf();
  auto done = controller_->restore(content.str(), fingerprint());
  if (!done) return done.error().with_context(what + " " + path);
  return true;
}

Result<void> WorkerSession::save_state() const {
  const bool given = !setup_.state_path.empty();
  const std::string& kept = given ? setup_.state_path : setup_.state_file;
  const std::string what = given ? "--state" : "state_file";
  if (!controller_ || kept.empty()) return {};
  const std::string path = kept + ".new";
  {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << controller_->serialize(fingerprint()) << std::flush;
    if (!file) return file_error("cannot write " + what, path);
  }
  std::error_code failed;
  std::filesystem::rename(path, kept, failed);
  if (failed) {
    return Error{ErrorCode::kUnavailable,
                 "cannot replace " + what + " " + kept + ": " + failed.message()};
  }
  return {};
}

void WorkerSession::remember(const StepRow& row) {
  const StepReport& report = run_->last_report();
  if (!report.plan) return;
  PlanUse& use = plans_[row.shape];
  if (use.plan != report.plan) use.uses = 0;
  use.plan = report.plan;
  use.layers = row.layer_calls;
  use.measured_bytes = row.peak;
  ++use.uses;
}

nlohmann::json WorkerSession::step(std::int64_t index) {
  StepRow row = run_->step(index);
  ++steps_done_;
  if (recording_) {
    const RecordingPolicy::Recomputed recomputed = recording_->take_recomputed();
    row.recomputed_layers = recomputed.calls;
    row.handle_seconds = recomputed.step_seconds;
    row.recompute_seconds = recomputed.seconds;
  }
  remember(row);
  if (controller_ && run_->last_report().plan) {
    row.cache_hit = !plan_ids_.insert(run_->last_report().plan->id).second;
  }
  return to_json(row);
}

Result<nlohmann::json> WorkerSession::finish() {
  json reply{{"params_sha256", run_->params_sha256()}, {"cache", nullptr}};
  json plans = json::array();
  for (const auto& [shape, use] : plans_) {
    json modes = json::array();
    for (std::int64_t i = 0; i < use.layers; ++i) {
      const auto layer = static_cast<std::size_t>(i);
      const bool planned = layer < use.plan->modes.size();
      modes.push_back(to_string(planned ? use.plan->modes[layer] : use.plan->default_mode));
    }
    plans.push_back({{"shape", shape},
                     {"modes", std::move(modes)},
                     {"predicted_bytes", use.plan->predicted_peak_bytes.count()},
                     {"measured_bytes", use.measured_bytes.count()},
                     {"uses", use.uses},
                     {"reason", use.plan->reason}});
  }
  reply["plans"] = recording_ ? std::move(plans) : json();
  if (controller_) {
    const ControllerSnapshot snapshot = controller_->snapshot();
    reply["cache"] = {{"hits", snapshot.cache_hits},
                      {"misses", snapshot.cache_misses},
                      {"plans", snapshot.plans.size()}};
    reply["snapshot"] = json::parse(snapshot_to_json(snapshot));
  }
  end(steps_done_ < options_.steps ? "interrupted" : "ok");
  auto saved = save_state();
  if (!saved) return saved.error();
  return reply;
}

}  // namespace pudica::train
