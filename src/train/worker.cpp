#include "train/worker.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>
#include <torch/version.h>

#include "config/config.h"
#include "train/worker_profile.h"
#include "train/worker_run.h"
#include "train/worker_session.h"

namespace pudica::train {
namespace {

using nlohmann::json;

json failure(const Error& error) {
  json reply{{"error", error.message}};
  const bool usage = error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kCorrupt;
  if (usage || error.code == ErrorCode::kNotFound) reply["usage"] = true;
  return reply;
}

json out_of_memory(const std::string& message) {
  return {{"error", message.substr(0, message.find('\n'))}, {"oom", true}};
}

class Worker {
 public:
  explicit Worker(const TrainOptions& options) : options_(options) {}

  json answer(const json& command) {
    try {
      return dispatch(command);
    } catch (const c10::OutOfMemoryError& error) {
      end("oom");
      return out_of_memory(error.what_without_backtrace());
    } catch (const std::bad_alloc& error) {
      end("oom");
      return out_of_memory(error.what());
    } catch (const c10::Error& error) {
      end("failed");
      return failure({ErrorCode::kUnavailable, error.what_without_backtrace()});
    } catch (const std::exception& error) {
      end("failed");
      return failure({ErrorCode::kUnavailable, error.what()});
    }
  }

 private:
  void end(const char* status) {
    if (session_) session_->end(status);
  }

  json dispatch(const json& command) {
    const std::string name = command.value("cmd", "");
    if (!data_) {
      auto data = load_run_data(options_);
      if (!data) return failure(data.error());
      data_ = std::make_unique<RunData>(std::move(*data));
    }
    if (name == "calibrate") return calibrate();
    if (name == "setup") return setup(command);
    if (name != "step" && name != "finish") {
      return failure(invalid_argument("unknown command '" + name + "'"));
    }
    if (!session_) return failure(invalid_argument("'" + name + "' before 'setup'"));
    if (name == "finish") {
      auto reply = session_->finish();
      return reply ? std::move(*reply) : failure(reply.error());
    }
    const std::int64_t index = command.value("i", std::int64_t{-1});
    if (index < 0 || index >= static_cast<std::int64_t>(data_->batches.size())) {
      return failure(invalid_argument("step " + std::to_string(index) + " of a run of " +
                                      std::to_string(data_->batches.size())));
    }
    return session_->step(index);
  }

  json calibrate() {
    auto config = load_configuration(options_);
    if (!config) return failure(config.error());
    auto profiles = profile_shapes(options_, *data_, largest_shapes(*data_));
    if (!profiles) return failure(profiles.error());
    Bytes floor{0};
    Bytes keep_all{0};
    Bytes menu_floor{0};
    for (const auto& [shape, profile] : *profiles) {
      floor = std::max(floor, profile.full_peak_bytes);
      keep_all = std::max(keep_all, profile.keep_all_peak_bytes);
      menu_floor = std::max(menu_floor, profile.menu_floor_bytes());
    }
    json reply{{"floor_bytes", floor.count()},
               {"keep_all_bytes", keep_all.count()},
               {"menu_floor_bytes", menu_floor.count()},
               {"versions", {{"torch", TORCH_VERSION}}}};
    if (!options_.config.empty()) {
      const auto loaded = load_config(options_.config).result();
      if (loaded && loaded->budget.kind != BudgetSetting::Kind::kAuto) {
        reply["config_budget"] = to_string(loaded->budget);
      }
    }
    if (!config->state_file.empty()) reply["config_state_file"] = config->state_file;
    return reply;
  }

  json setup(const json& command) {
    SessionSetup setup;
    setup.policy = command.value("policy", "");
    setup.budget_bytes = Bytes(command.value("budget_bytes", std::int64_t{0}));
    const std::string none = command.value("none", "plain");
    if (none == "metered") setup.none = NoneKind::kMetered;
    if (none == "capped") setup.none = NoneKind::kCapped;
    setup.state_path = command.value("state", "");
    setup.state_file = command.value("state_file", "");
    setup.record_path = command.value("record", "");
    setup.floor_bytes = Bytes(command.value("floor_bytes", std::int64_t{0}));
    setup.keep_all_bytes = Bytes(command.value("keep_all_bytes", std::int64_t{0}));
    auto session = WorkerSession::start(options_, *data_, setup);
    if (!session) return failure(session.error());
    session_ = std::move(*session);
    return {{"ok", true}, {"daemon", session_->daemon()}};
  }

  const TrainOptions& options_;
  std::unique_ptr<RunData> data_;
  std::unique_ptr<WorkerSession> session_;
};

}  // namespace

int run_worker(const TrainOptions& options, Channel& channel) {
  Worker worker(options);
  for (;;) {
    auto command = channel.receive();
    if (!command) return 0;  // the parent is done with us
    if (!channel.send(worker.answer(*command))) return 1;
  }
}

}  // namespace pudica::train
