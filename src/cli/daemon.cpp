#include "cli/daemon.h"

#include <utility>

#include "cli/terminal.h"

namespace pudica::cli {
namespace {

constexpr std::chrono::seconds kTimeout{30};

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

Result<Json> Daemon::get(const std::string& target) {
  return read(client_.get(target, kTimeout), client_.socket_path());
}

Result<Json> Daemon::remove(const std::string& target) {
  return read(client_.remove(target, kTimeout), client_.socket_path());
}

Result<Json> Daemon::post(const std::string& target, const Json& body) {
  return read(client_.post(target, dump(body), kTimeout), client_.socket_path());
}

Result<Json> Daemon::put(const std::string& target, const Json& body) {
  return read(client_.put(target, dump(body), kTimeout), client_.socket_path());
}

Result<std::string> Daemon::run_id(const std::string& run) {
  if (!run.empty()) return run;
  const auto answer = get("/v1/runs");
  if (!answer) return answer.error();
  const Json& runs = list(*answer, "runs");
  if (runs.empty()) {
    return Error{ErrorCode::kCorrupt, "no run is registered; `pudica doctor` says why"};
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
