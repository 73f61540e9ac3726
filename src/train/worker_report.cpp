#include "train/worker_report.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <unistd.h>
#include <utility>

#include <torch/version.h>

#include "inspect/process_info.h"
#include "inspect/socket_path.h"

namespace pudica::train {
namespace {

constexpr std::chrono::seconds kRegistrationWait{3};

std::string model_in_words(const ModelOptions& model) {
  std::ostringstream text;
  text << model.preset << ": " << model.layers << " layers, hidden " << model.hidden << ", "
       << model.heads << " heads, " << to_string(model.attention) << " attention, "
       << to_string(model.dtype);
  return text.str();
}

// As the user typed it: the worker's own word comes from the parent.
std::string users_command() {
  auto words = process_arguments();
  std::erase(words, "--worker");
  if (!words.empty()) words.front() = "pudica-train";  // the parent starts /proc/self/exe
  return command_line(words);
}

}  // namespace

std::shared_ptr<ReportingPolicy> report(const TrainOptions& options, const Config& config,
                                        const ReportSetup& setup, std::shared_ptr<Policy> inner,
                                        std::shared_ptr<Controller> controller) {
  ReporterOptions reporter;
  reporter.socket_path = daemon_socket_path(config.daemon.socket);
  RunDescription& run = reporter.description;
  run.name = (options.name.empty() ? "pudica-train" : options.name) + ":" + setup.policy;
  run.pid = getpid();
  run.user = user_name();
  run.command = users_command();
  run.device = options.device;
  run.model = model_in_words(options.model);
  run.policy = setup.policy;
  run.fingerprint = setup.fingerprint;
  run.group = config.daemon.group;
  run.versions = {{"pudica", PUDICA_VERSION}, {"torch", TORCH_VERSION}};
  run.budget_bytes = setup.budget_bytes;
  if (setup.floor_bytes > Bytes(0)) run.floor_bytes = setup.floor_bytes;
  if (setup.keep_all_bytes > Bytes(0)) run.keep_all_bytes = setup.keep_all_bytes;
  run.steps_total = options.steps;

  ReportingOptions reporting;
  reporting.run_name = run.name;
  reporting.fingerprint = setup.fingerprint;
  reporting.takes_models = !setup.has_state;
  reporting.in_group = !run.group.empty();
  reporting.budget_bytes = setup.budget_bytes;
  reporting.least_budget_bytes = setup.floor_bytes;  // the cap is hard: less would end the run
  std::shared_ptr<Reporter> started = Reporter::start(std::move(reporter));
  started->wait_registered(kRegistrationWait);
  return std::make_shared<ReportingPolicy>(std::move(inner), std::move(controller),
                                           std::move(started), std::move(reporting));
}

}  // namespace pudica::train
