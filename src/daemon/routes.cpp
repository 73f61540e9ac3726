#include "daemon/routes.h"

#include <algorithm>
#include <array>

namespace pudica::daemon {
namespace {

constexpr std::array<Route, 19> kRoutes{{
    {"GET", "/v1/version", &Api::get_version},
    {"GET", "/v1/runs", &Api::get_runs},
    {"POST", "/v1/runs", &Api::post_runs},
    {"GET", "/v1/runs/{id}", &Api::get_run},
    {"GET", "/v1/runs/{id}/plans", &Api::get_plans},
    {"GET", "/v1/runs/{id}/explain", &Api::get_explain},
    {"GET", "/v1/runs/{id}/estimate", &Api::get_estimate},
    {"PUT", "/v1/runs/{id}/budget", &Api::put_budget},
    {"POST", "/v1/runs/{id}/events", &Api::post_events},
    {"GET", "/v1/runs/{id}/commands", &Api::get_commands},
    {"PUT", "/v1/groups/{name}", &Api::put_group},
    {"POST", "/v1/prune", &Api::post_prune},
    {"GET", "/v1/models", &Api::get_models},
    {"GET", "/v1/models/{fingerprint}", &Api::get_model},
    {"DELETE", "/v1/models/{fingerprint}", &Api::delete_model},
    {"GET", "/metrics", &Api::get_metrics},
    {"GET", "/v1/openapi.json", &Api::get_openapi},
    {"GET", "/", &Api::get_page},
    {"GET", "/assets/{path}", &Api::get_page},
}};

std::string_view take_segment(std::string_view& path) {
  const std::string_view segment = path.substr(0, path.find('/', 1));
  path.remove_prefix(segment.size());
  return segment;
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

std::optional<std::vector<std::string>> match_path(std::string_view pattern,
                                                   std::string_view path) {
  std::vector<std::string> captures;
  while (!pattern.empty() && !path.empty()) {
    const std::string_view expected = take_segment(pattern);
    const bool rest = expected == "/{path}";
    const std::string_view seen = rest ? path : take_segment(path);
    if (rest) path = {};
    if (expected.starts_with("/{")) {
      if (seen.size() < 2 || seen.front() != '/') return std::nullopt;
      captures.push_back(url_decode(seen.substr(1), UrlPart::kPath));
    } else if (seen != expected) {
      return std::nullopt;
    }
  }
  if (!pattern.empty() || !path.empty()) return std::nullopt;
  return captures;
}

ApiReply Api::handle(const ApiRequest& request) {
  if (!parts_.access.may_read(request.caller)) return refuse_reader(request.caller);
  const bool tcp = request.caller.transport == Transport::kTcp;
  std::string allowed;
  for (const Route& route : kRoutes) {
    auto captures = match_path(route.path, request.path);
    if (!captures) continue;
    if (route.method != request.method) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
      continue;
    }
    if (tcp && request.method != "GET") {
      return error_reply(403, request.method + " over TCP, expected the UNIX socket");
    }
    ApiRequest matched = request;
    matched.captures = std::move(*captures);
    return (this->*route.endpoint)(matched);
  }
  const std::string path = request.path.substr(0, 200);
  if (allowed.empty()) return error_reply(404, "nothing is at " + path);
  // What is to be read is there over TCP too: then it is the method that is wrong.
  ApiReply reply = tcp && request.method != "GET"
                       ? error_reply(403, request.method + " over TCP, expected GET")
                       : error_reply(405, request.method + " on " + path + ", expected " + allowed);
  reply.headers.emplace_back("Allow", allowed);
  return reply;
}

}  // namespace pudica::daemon
