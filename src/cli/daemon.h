// Talking to the daemon: JSON answers, and failures with their exit codes.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cli/json_view.h"
#include "inspect/http_client.h"
#include "pudica/result.h"

namespace pudica::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitUnreachable = 3;

// kUnavailable: the daemon is unreachable; kInvalidArgument, kNotFound: usage or bad input; all
// others: failed.
int exit_code(const Error& error);

// A daemon that hangs is told from one that works within kAliveTimeout: it is asked for its version
// first, unless it has just answered. An answer may take up to kTimeout. Not thread-safe.
class Daemon {
 public:
  static constexpr std::chrono::milliseconds kAliveTimeout{1500};
  static constexpr std::chrono::milliseconds kTimeout{30000};

  // `timeout_seconds`: for every answer, instead of both; 0: these.
  Daemon(const std::string& socket_path, double timeout_seconds);

  // Errors: kUnavailable where nothing answers; of an answer of 400 and above its message, with
  // kInvalidArgument for 400, kNotFound for 404 and 405, kOverBudget for 409 and 503 (refused
  // now), kCorrupt for the rest and for what is no JSON.
  Result<Json> get(const std::string& target);
  Result<Json> remove(const std::string& target);
  Result<Json> post(const std::string& target, const Json& body);
  Result<Json> put(const std::string& target, const Json& body);

  // The id in a path: of `run` (id or name) as given; without one that of the only live run.
  // Errors: kInvalidArgument with the list where there are several, kCorrupt where there is none,
  // naming those that ended.
  Result<std::string> run_id(const std::string& run);

 private:
  using Clock = std::chrono::steady_clock;

  // Errors: kUnavailable where the daemon does not say so in time.
  Result<void> check_alive();
  Result<Json> noted(const Result<HttpReply>& reply);

  HttpClient client_;
  std::chrono::milliseconds timeout_;
  bool asks_first_ = true;
  std::optional<Clock::time_point> answered_at_;
};

// "/v1/runs/ID" and what follows, escaped.
std::string run_target(const std::string& run, const std::string& rest = "");

// "k3v9q2 (train), 8xz21a (eval)", safe to show.
std::string run_list(const Json& runs);

}  // namespace pudica::cli
