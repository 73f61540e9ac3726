// Who may do what with the endpoints: the rules of Access on requests and runs.
#include "daemon/api.h"
#include "inspect/user_names.h"

namespace pudica::daemon {

using inspect::Json;

ApiReply Api::refuse_reader(const Caller& caller) const {
  const Access& access = parts_.access;
  const std::string expected =
      "you are " + name_of(caller) + "; over TCP expected " + access.operators();
  if (!access.has_token()) {
    return error_reply(403, expected + ", on this machine (--listen-token-file admits others)");
  }
  ApiReply reply = error_reply(401, expected + ", on this machine, or the token");
  reply.headers.emplace_back("WWW-Authenticate", "Basic realm=\"pudicad\"");
  return reply;
}

std::optional<ApiReply> Api::refuse_steering(const Caller& caller, const std::string& id) const {
  const auto owner = parts_.registry.owner(id);
  if (!owner || parts_.access.may_steer(caller, owner)) return std::nullopt;
  return error_reply(403, "run " + id + " belongs to user " + user_name(*owner) + ", and you are " +
                              name_of(caller) + "; expected its owner, or " +
                              parts_.access.operators());
}

std::optional<ApiReply> Api::refuse_operating(const Caller& caller, const std::string& what) const {
  if (parts_.access.is_operator(caller)) return std::nullopt;
  return error_reply(
      403, what + ", and you are " + name_of(caller) + "; expected " + parts_.access.operators());
}

bool Api::may_resume(const Caller& caller, const std::string& id) const {
  if (id.empty()) return true;
  if (const auto owner = parts_.registry.owner(id)) return parts_.access.may_steer(caller, owner);
  const auto kept = parts_.archive.owner(id);
  return !kept || parts_.access.may_steer(caller, kept->user_id);
}

CommandLine Api::command_line_for(const Caller& caller, std::optional<unsigned> owner) const {
  return parts_.access.sees_command(caller, owner) ? CommandLine::kShown : CommandLine::kHidden;
}

void Api::hide_command(const Caller& caller, Json& run) const {
  if (command_line_for(caller, owner_of(run)) == CommandLine::kHidden) run["command"] = Json();
}

}  // namespace pudica::daemon
