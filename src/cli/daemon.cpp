#include "cli/daemon.h"

#include <algorithm>
#include <utility>

#include "cli/terminal.h"

namespace pudica::cli {
namespace {

// After an answer the next question follows at once: a daemon does not hang between the two.
constexpr std::chrono::seconds kTrustedFor{1};

ErrorCode code_of(int status) {
  switch (status) {
    case 400:
    case 413:
      return ErrorCode::kInvalidArgument;
    case 404:
    case 405:
      return ErrorCode::kNotFound;
    case 409:
    case 503:
      return ErrorCode::kOverBudget;
    default:
      return ErrorCode::kCorrupt;
  }
}

Result<Json> read(const Result<HttpReply>& reply, const std::string& socket) {
  if (!reply) return reply.error();
  if (!reply->ok()) return Error{code_of(reply->status), error_message(*reply)};
  Json body = Json::parse(valid_utf8(reply->body), nullptr, false);
  if (!body.is_object()) {
    return Error{ErrorCode::kCorrupt, "the answer at " + socket + " is '" +
                                          reply->body.substr(0, 60) +
                                          "', expected a JSON object of pudicad"};
  }
  return body;
}

}  // namespace

int exit_code(const Error& error) {
  switch (error.code) {
    case ErrorCode::kUnavailable:
      return kExitUnreachable;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
      return kExitUsage;
    case ErrorCode::kCorrupt:
    case ErrorCode::kOverBudget:
      break;
  }
  return kExitFailed;
}

Daemon::Daemon(const std::string& socket_path, double timeout_seconds)
    : client_(socket_path), timeout_(kTimeout), asks_first_(timeout_seconds <= 0) {
  constexpr double kMilli = 1000;
  if (asks_first_) return;
  timeout_ = std::chrono::milliseconds(
      std::max<std::int64_t>(1, static_cast<std::int64_t>(kMilli * timeout_seconds)));
}

Result<void> Daemon::check_alive() {
  if (!asks_first_) return {};
  if (answered_at_ && Clock::now() - *answered_at_ < kTrustedFor) return {};
  // What it says is not ours to judge: any answer is a sign of life.
  const auto reply = client_.get("/v1/version", kAliveTimeout);
  if (!reply) return reply.error();
  answered_at_ = Clock::now();
  return {};
}

Result<Json> Daemon::noted(const Result<HttpReply>& reply) {
  if (reply) answered_at_ = Clock::now();
  return read(reply, client_.socket_path());
}

Result<Json> Daemon::get(const std::string& target) {
  if (const auto alive = check_alive(); !alive) return alive.error();
  return noted(client_.get(target, timeout_));
}

Result<Json> Daemon::remove(const std::string& target) {
  return read(client_.remove(target, kTimeout), client_.socket_path());
}

Result<Json> Daemon::post(const std::string& target, const Json& body) {
  return read(client_.post(target, dump(body), kTimeout), client_.socket_path());
}

Result<Json> Daemon::put(const std::string& target, const Json& body) {
  if (const auto alive = check_alive(); !alive) return alive.error();
  return noted(client_.put(target, dump(body), timeout_));
}

Result<std::string> Daemon::run_id(const std::string& run) {
  if (!run.empty()) return run;
  const auto answer = get("/v1/runs");
  if (!answer) return answer.error();
  const Json& runs = list(*answer, "runs");
  if (runs.empty()) {
    const auto all = get("/v1/runs?all=true");
    const Json ended = all ? list(*all, "runs") : Json::array();
    if (ended.empty()) {
      return Error{ErrorCode::kCorrupt, "no run is registered; `pudica doctor` says why"};
    }
    return invalid_argument("no run is live; of the ended ones name one of: " + run_list(ended));
  }
  if (runs.size() > 1) {
    return invalid_argument("which run? expected one of: " + run_list(runs));
  }
  return text(runs.front(), "id");
}

std::string run_target(const std::string& run, const std::string& rest) {
  return "/v1/runs/" + url_escape(run) + rest;
}

std::string run_list(const Json& runs) {
  constexpr std::size_t kShown = 20;
  constexpr std::size_t kNameWidth = 40;
  std::string out;
  std::size_t count = 0;
  for (const Json& run : runs) {
    if (count++ == kShown) return out + ", ...";
    const Style style;
    out +=
        (out.empty() ? "" : ", ") + clipped(sanitised(text(run, "id"), style), kNameWidth, style);
    const std::string name = text(run, "name");
    if (!name.empty()) out += " (" + clipped(sanitised(name, style), kNameWidth, style) + ")";
  }
  return out;
}

}  // namespace pudica::cli
