// A registry, an archive in a folder of its own and the endpoints on them, with a manual clock.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <utility>

#include "daemon/api.h"
#include "daemon/archive.h"
#include "daemon/budget_desk.h"
#include "daemon/run_models.h"
#include "daemon/run_registry.h"
#include "inspect/run_protocol.h"

namespace pudica::daemon {

struct ManualTime {
  double monotonic = 100;
  std::int64_t unix_time = 1767268800;  // 2026-01-01T12:00:00Z

  void pass(double seconds) {
    monotonic += seconds;
    unix_time += static_cast<std::int64_t>(seconds);
  }
  [[nodiscard]] Clock clock() {
    return {[this] { return monotonic; }, [this] { return unix_time; }};
  }
};

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "pudicad-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the test");
    path_ = name;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// The whole daemon without sockets, signals and time of its own.
struct DaemonParts {
  explicit DaemonParts(RegistryLimits limits = {}) : registry(time.clock(), limits) {}
  // With a database that may have been kept from before.
  explicit DaemonParts(const std::string& database)
      : registry(time.clock(), {}), archive(Archive::open({.path = database}).value()) {}

  ApiReply ask(const std::string& method, const std::string& target, const std::string& body = {},
               Transport transport = Transport::kUnix) {
    ApiRequest request;
    request.method = method;
    const std::size_t mark = std::min(target.find('?'), target.size());
    request.path = target.substr(0, mark);
    request.query = parse_query(std::string_view(target).substr(std::min(mark + 1, target.size())));
    request.body = body;
    request.caller = {transport, user_id, {}};
    return api.handle(request);
  }
  inspect::Json json(const std::string& method, const std::string& target,
                     const std::string& body = {}) {
    return inspect::Json::parse(ask(method, target, body).body);
  }

  ScratchFolder folder;
  ManualTime time;
  RunRegistry registry;
  std::unique_ptr<Archive> archive = Archive::open({.path = folder.file("test.db")}).value();
  BudgetDesk budgets{registry, time.clock(), *archive, {std::chrono::milliseconds(0)}};
  RunModels models{registry, *archive};
  unsigned user_id = ::geteuid();  // who asks
  Api api{{"0.1.0", "the.sock", "test.db", {}, {}},
          {time.clock(), registry, budgets, models, *archive, Access({::geteuid(), {}, false})}};
};

inline RunDescription described(const std::string& name, std::int64_t pid = 4711) {
  RunDescription run;
  run.name = name;
  run.pid = pid;
  run.user = "ada";
  run.device = "cpu";
  run.policy = "pudica";
  run.budget_bytes = Bytes(600);
  return run;
}

inline StepEvent step_event(std::uint64_t step, std::int64_t measured, double seconds = 0.25) {
  StepEvent event;
  event.record.run = "r";
  event.record.step = step;
  event.record.key = ShapeKey({12, 384});
  event.record.plan_id = 7;
  event.record.modes = {Mode{}, Mode{}, Mode{}, Mode{}};
  event.record.predicted_bytes = Bytes(measured + 1);
  event.record.measured_bytes = Bytes(measured);
  event.record.budget_bytes = Bytes(600);
  event.record.seconds = seconds;
  event.recomputed = 1;
  return event;
}

}  // namespace pudica::daemon
