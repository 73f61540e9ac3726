// Reading: version, runs, plans, the page.
#include "daemon/api.h"

#include <unistd.h>

#include "daemon/assets.h"
#include "daemon/run_json.h"

namespace pudica::daemon {

using inspect::Json;

Api::Api(DaemonFacts facts, Clock clock, RunRegistry& registry)
    : facts_(std::move(facts)),
      clock_(std::move(clock)),
      started_at_(clock_.unix_seconds()),
      started_(clock_.monotonic_seconds()),
      registry_(registry) {}

void Api::count_answer(int status) {
  const std::lock_guard lock(answers_mutex_);
  ++answers_[status];
}

Api::Found Api::find(const std::string& id_or_name) const {
  const std::vector<std::string> ids = registry_.ids_of(id_or_name);
  if (ids.empty()) {
    return {std::nullopt, error_reply(404, "no run has the id or name '" + id_or_name + "'")};
  }
  if (ids.size() > 1) {
    std::string list;
    for (const std::string& id : ids) list += (list.empty() ? "" : ", ") + id;
    return {std::nullopt, error_reply(409, std::to_string(ids.size()) + " runs are named '" +
                                               id_or_name + "', expected one id of " + list)};
  }
  auto run = registry_.find(ids.front());
  if (run) return {std::move(run), {}};
  return {std::nullopt, error_reply(404, "the run '" + id_or_name + "' is gone")};
}

ApiReply Api::get_version(const ApiRequest& /*request*/) {
  Json out;
  out["name"] = "pudicad";
  out["version"] = facts_.version;
  out["protocol"] = kProtocol;
  out["protocol_min"] = kProtocolOldest;
  out["pid"] = ::getpid();
  out["started_at"] = format_time(started_at_);
  out["uptime_seconds"] = clock_.monotonic_seconds() - started_;
  out["socket"] = facts_.socket;
  out["database"] = facts_.database;
  return json_reply(200, out);
}

ApiReply Api::get_runs(const ApiRequest& request) {
  const auto all = request.query.find("all");
  const bool wants_all = all != request.query.end() && all->second == "true";
  if (all != request.query.end() && !wants_all && all->second != "false") {
    return error_reply(400, "all: '" + all->second + "', expected true or false");
  }
  Json runs = Json::array();
  const auto which = wants_all ? RunRegistry::Which::kAll : RunRegistry::Which::kLive;
  for (const RunSummary& run : registry_.list(which)) runs.push_back(to_json(run));
  return json_reply(200, {{"runs", std::move(runs)}, {"groups", Json::array()}});
}

ApiReply Api::get_run(const ApiRequest& request) {
  const Found found = find(request.captures.at(0));
  return found.run ? json_reply(200, to_json(*found.run)) : found.refusal;
}

ApiReply Api::get_plans(const ApiRequest& request) {
  const Found found = find(request.captures.at(0));
  return found.run ? json_reply(200, plans_json(*found.run)) : found.refusal;
}

ApiReply Api::get_openapi(const ApiRequest& /*request*/) {
  ApiReply reply;
  reply.body = openapi_document();
  return reply;
}

ApiReply Api::get_page(const ApiRequest& request) {
  const auto asset = find_asset(request.path);
  if (!asset) return error_reply(404, "nothing is at " + request.path.substr(0, 200));
  ApiReply reply;
  reply.content_type = asset->content_type;
  reply.body = asset->content;
  return reply;
}

void Api::tick() { registry_.expire(); }

}  // namespace pudica::daemon
