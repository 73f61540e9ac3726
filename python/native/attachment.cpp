#include "native/attachment.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <stdexcept>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>
#include <torch/version.h>

#include "inspect/json.h"
#include "inspect/process_info.h"
#include "inspect/socket_path.h"
#include "native/policy_choice.h"
#include "native/rerun_desk.h"

namespace pudica::python {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kRegistrationWait{1};
constexpr std::chrono::seconds kFarewellWait{1};

template <typename T>
T require(Result<T> result, const std::string& kind) {
  if (!result) throw std::runtime_error(kind + ": " + result.error().message);
  return std::move(*result);
}

// Of a question about a shape. The kind tells Python what to raise.
template <typename T>
T answer(Result<T> result) {
  const bool unlearned = !result && result.error().code == ErrorCode::kUnavailable;
  return require(std::move(result), unlearned ? "unlearned" : "shape");
}

ReporterOptions reporter_options(const Settings& settings) {
  ReporterOptions reporter;
  reporter.socket_path = daemon_socket_path(settings.config.daemon.socket);
  RunDescription& run = reporter.description;
  run.name = settings.name;
  run.pid = getpid();
  run.user = user_name();
  run.command = command_line(process_arguments());
  run.device = settings.device;
  run.model = settings.model;
  run.policy = settings.config.policy;
  run.fingerprint = settings.fingerprint;
  run.group = settings.config.daemon.group;
  run.versions = {{"pudica", PUDICA_VERSION}, {"torch", TORCH_VERSION}};
  run.budget_bytes = settings.budget_bytes;
  run.budget_fraction = settings.budget_fraction;
  return reporter;
}

}  // namespace

Attachment::Attachment(const std::string& settings_text, std::vector<at::Tensor> parameters) {
  const Settings settings = read_settings(settings_text);
  fingerprint_ = settings.fingerprint;
  budget_bytes_ = settings.budget_bytes;
  PolicyChoice choice = choose_policy(settings);
  policy_spec_ = std::move(choice.spec);
  policy_ = std::move(choice.policy);
  controllers_ = std::move(choice.controllers);
  if (settings.budget_fraction) take_fraction(*settings.budget_fraction, settings.budget_bytes);
  recording_ = std::make_shared<RecordingPolicy>(policy_, std::string(), nullptr);
  policy_ = recording_;
  if (settings.daemon && controllers_) report_to_daemon(settings);
  AttachOptions attach_options;
  attach_options.budget_bytes = settings.budget_bytes;
  attach_options.enforcement = settings.enforcement;
  attach_options.policy = policy_;
  attach_options.parameters = std::move(parameters);
  attach_options.device = c10::Device(settings.device);
  attach_options.menu_rules = {settings.config.planner.keep_operators,
                               settings.config.planner.recompute_operators};
  attach_options.clock = settings.clock;
  attach_options.offload.host_bytes = Bytes(settings.config.offload.host_bytes);
  attach_options.next_budget = [this] { return next_budget(); };
  handle_ = require(attach(std::move(attach_options)), "attach");
}

Attachment::~Attachment() { detach(); }

void Attachment::report_to_daemon(const Settings& settings) {
  std::shared_ptr<Reporter> reporter = Reporter::start(reporter_options(settings));
  reporter->wait_registered(kRegistrationWait);
  ReportingOptions reporting;
  reporting.run_name = settings.name;
  reporting.fingerprint = settings.fingerprint;
  reporting.in_group = !settings.config.daemon.group.empty();
  reporting.budget_bytes = settings.budget_bytes;
  reporting_ = std::make_shared<ReportingPolicy>(policy_, controllers_, std::move(reporter),
                                                 std::move(reporting));
  policy_ = reporting_;
}

std::string Attachment::without_answers() const {
  return "policy '" + policy_spec_ +
         "' learns nothing that can be asked for or saved; expected policy pudica";
}

void Attachment::take_fraction(double of_range, Bytes most_bytes) {
  if (!controllers_) {
    throw std::runtime_error("budget: policy '" + policy_spec_ +
                             "' does not learn what the longest batches need, which between() is a "
                             "fraction of; expected bytes, or policy pudica");
  }
  fraction_ = Fraction{of_range, most_bytes};
}

// As a step begins. A wish of the daemon ends a fraction.
std::optional<Bytes> Attachment::next_budget() {
  if (auto wish = reporting_ ? reporting_->next_budget() : std::nullopt) {
    fraction_.reset();
    budget_bytes_ = *wish;
    return wish;
  }
  if (!fraction_) return std::nullopt;
  const Bytes bytes = range_.bytes(fraction_->of_range, fraction_->most_bytes, *controllers_);
  if (bytes == budget_bytes_) return std::nullopt;
  budget_bytes_ = bytes;
  tell_daemon();
  return bytes;
}

void Attachment::tell_daemon() {
  if (!reporting_) return;
  reporting_->changed_itself(budget_bytes_,
                             fraction_ ? std::optional(fraction_->of_range) : std::nullopt);
}

Controllers& Attachment::controllers() const {
  if (!controllers_) throw std::runtime_error("state: " + without_answers());
  return *controllers_;
}

std::int64_t Attachment::begin_step(std::int64_t kind, const std::vector<std::string>& names,
                                    const std::vector<std::int64_t>& values, bool at_layer) {
  kind_ = kind;
  if (controllers_) controllers_->select(kind);
  const ShapeKey shape(names, values);
  range_.saw(kind, shape);
  at_layer ? handle_->begin_at_layer(shape) : handle_->begin_step(shape);
  std::int64_t step = kind >= 0 || !controllers_ ? kPlanned : kUnplanned;
  if (handle_->may_rest()) step |= kMayRest;
  return step;
}

bool Attachment::rest(bool same_model) { return handle_->rest(kind_, same_model); }

bool Attachment::passes(std::int64_t passed) { return handle_->passes(passed); }

void Attachment::wake(std::int64_t passed) { handle_->wake(passed); }

void Attachment::rested(std::int64_t passed, std::vector<at::Tensor> outputs) {
  handle_->rested(passed, outputs);
}

void Attachment::count(const StepReport& report) {
  ++totals_.steps;
  const bool predicted = report.plan && report.plan->predicted_peak_bytes > Bytes(0);
  totals_.unplanned_steps += report.rested || (report.plan && report.layer_calls > 0) ? 0 : 1;
  totals_.learning_steps += report.recorded && !predicted ? 1 : 0;
  totals_.resting_steps += report.rested ? 1 : 0;
  totals_.layer_calls += report.layer_calls;
  totals_.recomputed_layers += report.recomputed_layers;
  recomputed_ = recording_->take_recomputed();
  totals_.recomputed_calls += recomputed_.calls;
  if (recomputed_.seconds) {
    totals_.recompute_seconds += *recomputed_.seconds;
    totals_.step_seconds += recomputed_.step_seconds;
  }
  totals_.revocations += report.revocations;
  totals_.revoked_steps += report.revocations > 0 ? 1 : 0;
  totals_.overruns += report.overrun ? 1 : 0;
  totals_.infeasible_steps += report.plan && !report.plan->feasible ? 1 : 0;
  totals_.highest_peak_bytes = std::max(totals_.highest_peak_bytes, report.peak_bytes.count());
  totals_.host_peak_bytes = std::max(totals_.host_peak_bytes, report.host_peak_bytes.count());
  totals_.reserved_peak_bytes =
      std::max(totals_.reserved_peak_bytes, report.reserved_peak_bytes.count());
}

std::int64_t Attachment::end_step() {
  StepReport report = handle_->end_step();
  if (report.step == 0) return kNone;
  last_ = std::move(report);
  count(last_);
  if (!controllers_) taken_.note(last_);
  if (last_.recorded) range_.learned();
  std::int64_t outcome = kStep;
  if (last_.overrun) outcome |= kOverrun;
  if (last_.plan && !last_.plan->feasible) outcome |= kInfeasible;
  return outcome;
}

std::int64_t Attachment::enter(std::int64_t token, const std::string& layer_class,
                               std::vector<at::Tensor> inputs, std::vector<at::Tensor> buffers,
                               std::int64_t telling_inputs, bool apart) {
  LayerOptions options;
  options.layer_class = layer_class;
  options.buffers = std::move(buffers);
  options.unproven = true;
  options.telling_inputs = static_cast<std::size_t>(telling_inputs);
  options.apart = apart;
  std::weak_ptr<const void> alive;
  if (!handle_->enter_layer(RerunDesk::instance().function(token, alive), inputs, options)) {
    return kNotEntered;
  }
  return alive.expired() ? kEntered : kMayRunAgain;
}

void Attachment::leave(std::vector<at::Tensor> outputs) { handle_->leave_layer(outputs); }

void Attachment::abandon() { handle_->abandon_layers(); }

void Attachment::count_residents(std::vector<at::Tensor> tensors) {
  handle_->count_residents(tensors);
}

void Attachment::set_budget(std::int64_t bytes, double fraction) {
  if (fraction < 0) {
    fraction_.reset();
    budget_bytes_ = Bytes(bytes);
  } else {
    take_fraction(fraction, Bytes(bytes));
    budget_bytes_ = range_.bytes(fraction, Bytes(bytes), *controllers_);
  }
  handle_->set_budget(budget_bytes_);
  tell_daemon();
}

std::int64_t Attachment::range_bytes(double fraction) {
  constexpr Bytes kUnlimited{std::numeric_limits<std::int64_t>::max()};
  if (!controllers_ || !range_.ends(*controllers_)) return -1;
  return range_.bytes(fraction, kUnlimited, *controllers_).count();
}

void Attachment::detach() {
  if (!handle_) return;
  end_step();
  if (reporting_) reporting_->finish("ok", kFarewellWait);
  handle_->detach();
}

std::string Attachment::taken_plans() const { return taken_.to_json(); }

std::string Attachment::snapshot() const { return snapshot_to_json(controllers().snapshot()); }

std::string Attachment::stats() const {
  json out{{"steps", totals_.steps},
           {"learning_steps", totals_.learning_steps},
           {"unplanned_steps", totals_.unplanned_steps},
           {"resting_steps", totals_.resting_steps},
           {"layer_calls", totals_.layer_calls},
           {"recomputed_layers", totals_.recomputed_layers},
           {"recomputed_calls", totals_.recomputed_calls},
           {"recompute_seconds", totals_.recompute_seconds},
           {"step_seconds", totals_.step_seconds},
           {"revocations", totals_.revocations},
           {"revoked_steps", totals_.revoked_steps},
           {"overruns", totals_.overruns},
           {"infeasible_steps", totals_.infeasible_steps},
           {"highest_peak_bytes", totals_.highest_peak_bytes},
           {"host_peak_bytes", totals_.host_peak_bytes},
           {"reserved_peak_bytes", totals_.reserved_peak_bytes},
           {"budget_bytes", budget_bytes_.count()},
           {"policy", policy_spec_},
           {"failures", handle_->failures()},
           {"state", controllers_ ? to_string(controllers_->state()) : "fixed"}};
  const bool planned = last_.plan && last_.plan->predicted_peak_bytes > Bytes(0);
  json last{{"shape", last_.step == 0 ? "" : last_.shape.to_named_string()},
            {"peak_bytes", last_.peak_bytes.count()},
            {"base_bytes", last_.base_bytes.count()},
            {"host_peak_bytes", last_.host_peak_bytes.count()},
            {"active_peak_bytes", last_.active_peak_bytes.count()},
            {"reserved_peak_bytes", last_.reserved_peak_bytes.count()},
            {"predicted_reserved_bytes", nullptr},
            {"gap_bytes", last_.gap_bytes.count()},
            {"revocations", last_.revocations},
            {"predicted_peak_bytes", nullptr},
            {"layer_calls", last_.layer_calls},
            {"recomputed_layers", last_.recomputed_layers},
            {"recomputed_calls", recomputed_.calls},
            {"recompute_seconds", nullptr},
            {"step_seconds", recomputed_.step_seconds},
            {"learning", last_.recorded && !planned},
            {"reason", last_.plan ? last_.plan->reason : ""}};
  if (const auto predicted = last_.predicted_peak()) {
    last["predicted_peak_bytes"] = predicted->count();
    const Bytes reserved = last_.predicted_reserved_bytes;
    if (reserved > Bytes(0)) last["predicted_reserved_bytes"] = reserved.count();
  }
  if (recomputed_.seconds) last["recompute_seconds"] = *recomputed_.seconds;
  out["last_step"] = std::move(last);
  out["budget_fraction"] = nullptr;
  if (fraction_) out["budget_fraction"] = fraction_->of_range;
  out["budget_range"] = nullptr;
  if (const auto& ends = range_.known(); ends && fraction_) {
    out["budget_range"] = {{"floor_bytes", ends->floor_bytes.count()},
                           {"keep_all_bytes", ends->keep_all_bytes.count()}};
  }
  out["daemon"] = nullptr;
  if (reporting_) {
    const ReporterStatus status = reporting_->reporter().status();
    out["daemon"] = {
        {"registered", status.registered}, {"id", status.id}, {"reason", status.reason}};
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

inspect::ModelView Attachment::view() const {
  if (!controllers_) throw std::runtime_error("unlearned: " + without_answers());
  return inspect::ModelView::of(controllers_);
}

std::string Attachment::explain(const std::string& shape, std::int64_t budget) const {
  const Bytes limit = budget < 0 ? budget_bytes_ : Bytes(budget);
  return inspect::to_json(answer(view().explain(shape, limit)), "");
}

std::string Attachment::estimate(const std::string& shape, std::int64_t budget) const {
  const Bytes limit = budget < 0 ? budget_bytes_ : Bytes(budget);
  return inspect::to_json(answer(view().estimate(shape, limit)), "");
}

std::string Attachment::serialize() const { return controllers().serialize(fingerprint_); }

void Attachment::restore(const std::string& text) {
  auto done = controllers().restore(text, fingerprint_);
  if (!done) throw std::runtime_error("state: " + done.error().message);
  range_.learned();
}

}  // namespace pudica::python
