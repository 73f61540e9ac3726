// The endpoints of docs/http_api.md as plain functions from request to reply: no sockets.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "daemon/access.h"
#include "daemon/api_reply.h"
#include "daemon/archive.h"
#include "daemon/asked_run.h"
#include "daemon/budget_desk.h"
#include "daemon/clock.h"
#include "daemon/run_json.h"
#include "daemon/run_models.h"
#include "daemon/run_registry.h"
#include "daemon/turnstile.h"

namespace pudica::daemon {

// What the daemon says of itself.
struct DaemonFacts {
  std::string version;
  std::string socket;
  std::string database;
  std::string socket_group;  // empty: none
  std::string tcp_address;   // empty: none
};

struct ApiCounters {
  std::atomic<std::int64_t> events{0};
  std::atomic<std::int64_t> runs_registered{0};
  std::function<std::size_t()> open_connections = [] { return std::size_t{0}; };
};

// What the endpoints work on; all of it must outlive them.
struct ApiParts {
  Clock clock;
  RunRegistry& registry;
  BudgetDesk& budgets;
  RunModels& models;
  Archive& archive;
  Access access;
};

// Thread-safe.
class Api {
 public:
  Api(DaemonFacts facts, ApiParts parts);

  // Before the first request.
  void count_connections(std::function<std::size_t()> open);

  // The route of the request, and its endpoint's reply. 404 for an unknown path, 405 for a method
  // that the path does not have, 403 for a write over TCP.
  ApiReply handle(const ApiRequest& request);
  // Of every answer sent, for the metrics.
  void count_answer(int status);

  ApiReply get_version(const ApiRequest& request);
  ApiReply get_runs(const ApiRequest& request);
  ApiReply get_run(const ApiRequest& request);
  ApiReply get_plans(const ApiRequest& request);
  ApiReply get_explain(const ApiRequest& request);
  ApiReply get_estimate(const ApiRequest& request);
  ApiReply get_models(const ApiRequest& request);
  ApiReply get_model(const ApiRequest& request);
  ApiReply delete_model(const ApiRequest& request);
  ApiReply get_metrics(const ApiRequest& request);
  ApiReply put_group(const ApiRequest& request);
  ApiReply put_budget(const ApiRequest& request);
  ApiReply post_runs(const ApiRequest& request);
  ApiReply post_events(const ApiRequest& request);
  ApiReply post_prune(const ApiRequest& request);
  ApiReply get_commands(const ApiRequest& request);
  ApiReply get_openapi(const ApiRequest& request);
  ApiReply get_page(const ApiRequest& request);

  // What is to be done about once a second: silent runs are lost, what was learned is passed on,
  // what changed is saved.
  void tick();
  // Saves every live run as it is, whole: before the end.
  void save_all();

 private:
  // The one run that an id or a name means; else the reply that says why not.
  struct Found {
    std::optional<RunDetail> run;
    ApiReply refusal;
  };
  Found find(const std::string& id_or_name) const;
  // The same, and runs that only the store knows of.
  struct Asked {
    std::optional<AskedRun> run;
    ApiReply refusal;
  };
  Asked find_asked(const std::string& id_or_name) const;
  [[nodiscard]] ApiReply refuse_reader(const Caller& caller) const;
  // The refusal of whoever may not steer the run; nullopt: it may, or there is no such run.
  [[nodiscard]] std::optional<ApiReply> refuse_steering(const Caller& caller,
                                                        const std::string& id) const;
  // The refusal of whoever is no operator, where `what` is all users'.
  [[nodiscard]] std::optional<ApiReply> refuse_operating(const Caller& caller,
                                                         const std::string& what) const;
  // Whether the caller may have the id of a run that was there before.
  [[nodiscard]] bool may_resume(const Caller& caller, const std::string& id) const;
  [[nodiscard]] CommandLine command_line_for(const Caller& caller,
                                             std::optional<unsigned> owner) const;
  // Of a run that the archive holds.
  void hide_command(const Caller& caller, inspect::Json& run) const;
  // The group, and of its runs the names too, null where the registry knows them no more.
  [[nodiscard]] inspect::Json named(const GroupView& group) const;
  void take_in(const RunSummary& run, const EventBatch& batch);
  void save(const std::string& id, Archive::Snapshot snapshot = Archive::Snapshot::kIfNoneIsKept);
  void save_live();

  DaemonFacts facts_;
  ApiParts parts_;
  std::int64_t started_at_;
  double started_;       // monotonic
  double saved_all_at_;  // monotonic; of tick() alone, as the next one
  std::size_t saves_ = 0;
  ApiCounters counters_;
  Turnstile pushes_{2};
  std::mutex answers_mutex_;
  std::map<int, std::int64_t> answers_;  // by status
};

}  // namespace pudica::daemon
