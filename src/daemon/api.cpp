// Reading: version, runs, plans, the page.
#include "daemon/api.h"

#include <set>
#include <unistd.h>

#include "base/log.h"
#include "daemon/assets.h"
#include "daemon/run_json.h"

namespace pudica::daemon {

using inspect::Json;

namespace {

constexpr std::int64_t kEndedRunsListed = 200;
constexpr double kSaveEverySeconds = 10;
// What is large of a live run is saved anew every so many times.
constexpr std::size_t kSavesPerSnapshot = 6;

ApiReply text_reply(std::string json) {
  ApiReply reply;
  reply.body = std::move(json);
  return reply;
}

}  // namespace

Api::Api(DaemonFacts facts, ApiParts parts)
    : facts_(std::move(facts)),
      parts_(std::move(parts)),
      started_at_(parts_.clock.unix_seconds()),
      started_(parts_.clock.monotonic_seconds()),
      saved_all_at_(started_) {}

void Api::count_connections(std::function<std::size_t()> open) {
  counters_.open_connections = std::move(open);
}

void Api::count_answer(int status) {
  const std::lock_guard lock(answers_mutex_);
  ++answers_[status];
}

Api::Found Api::find(const std::string& id_or_name) const {
  const std::vector<std::string> ids = parts_.registry.ids_of(id_or_name);
  if (ids.empty()) {
    return {std::nullopt, error_reply(404, "no run has the id or name '" + id_or_name + "'")};
  }
  if (ids.size() > 1) {
    std::string list;
    for (const std::string& id : ids) list += (list.empty() ? "" : ", ") + id;
    return {std::nullopt, error_reply(400, std::to_string(ids.size()) + " runs are named '" +
                                               id_or_name + "', expected one id of " + list)};
  }
  auto run = parts_.registry.find(ids.front());
  if (run && !run->snapshot && !run->summary.live()) {
    run->snapshot = parts_.archive.snapshot(ids.front());  // it told a daemon before this one
  }
  if (run) return {std::move(run), {}};
  return {std::nullopt, error_reply(404, "the run '" + id_or_name + "' is gone")};
}

Json Api::named(const GroupView& group) const {
  Json out = to_json(group);
  for (Json& member : out["runs"]) {
    const auto name = parts_.registry.name_of(member["id"].get<std::string>());
    member["name"] = name ? Json(*name) : Json();
  }
  return out;
}

ApiReply Api::get_version(const ApiRequest& /*request*/) {
  Json out;
  out["name"] = "pudicad";
  out["version"] = facts_.version;
  out["protocol"] = kProtocol;
  out["protocol_min"] = kProtocolOldest;
  out["pid"] = ::getpid();
  out["started_at"] = format_time(started_at_);
  out["uptime_seconds"] = parts_.clock.monotonic_seconds() - started_;
  out["socket"] = facts_.socket;
  out["database"] = facts_.database;
  out["socket_group"] = facts_.socket_group.empty() ? Json() : Json(facts_.socket_group);
  out["tcp"] = facts_.tcp_address.empty()
                   ? Json()
                   : Json{{"address", facts_.tcp_address}, {"readers", parts_.access.readers()}};
  return json_reply(200, out);
}

ApiReply Api::get_runs(const ApiRequest& request) {
  const auto all = request.query.find("all");
  const bool wants_all = all != request.query.end() && all->second == "true";
  if (all != request.query.end() && !wants_all && all->second != "false") {
    return error_reply(400, "all: '" + all->second + "', expected true or false");
  }
  JsonText out;
  out.open('{');
  out.key("runs").open('[');
  std::set<std::string> listed;
  const auto which = wants_all ? RunRegistry::Which::kAll : RunRegistry::Which::kLive;
  for (const RunSummary& run : parts_.registry.list(which)) {
    write(out, run, command_line_for(request.caller, run.about->user_id));
    listed.insert(run.id);
  }
  if (wants_all) {
    for (Json& run : parts_.archive.runs(kEndedRunsListed)) {
      hide_command(request.caller, run);
      const auto id = run.value("id", std::string());
      if (listed.insert(id).second) out.raw(inspect::dump(run, -1));
    }
  }
  out.close(']');
  out.key("groups").open('[');
  for (const GroupView& group : parts_.budgets.view()) out.raw(inspect::dump(named(group), -1));
  out.close(']');
  out.close('}');
  return text_reply(out.take());
}

ApiReply Api::get_run(const ApiRequest& request) {
  Found found = find(request.captures.at(0));
  if (found.run) {
    found.run->has_model = parts_.models.knows(*found.run);
    const auto command = command_line_for(request.caller, found.run->summary.about->user_id);
    return text_reply(to_json(*found.run, command));
  }
  if (found.refusal.status != 404) return found.refusal;
  auto kept = parts_.archive.run(request.captures.at(0));
  if (!kept) return found.refusal;
  hide_command(request.caller, *kept);
  return json_reply(200, *kept);
}

ApiReply Api::get_plans(const ApiRequest& request) {
  const Found found = find(request.captures.at(0));
  if (found.run) return json_reply(200, plans_json(*found.run));
  if (found.refusal.status != 404) return found.refusal;
  const auto kept = parts_.archive.plans(request.captures.at(0));
  return kept ? json_reply(200, *kept) : found.refusal;
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

void Api::save(const std::string& id, Archive::Snapshot snapshot) {
  if (const auto run = parts_.registry.find_without_steps(id)) parts_.archive.save(*run, snapshot);
}

void Api::save_all() {
  parts_.models.tick();  // what was learned since the last second too
  for (const RunSummary& run : parts_.registry.list(RunRegistry::Which::kLive)) {
    save(run.id, Archive::Snapshot::kIfNew);
  }
}

// Of several runs another part is saved with snapshots each time.
void Api::save_live() {
  std::size_t turn = ++saves_;
  for (const RunSummary& run : parts_.registry.list(RunRegistry::Which::kLive)) {
    save(run.id, turn++ % kSavesPerSnapshot == 0 ? Archive::Snapshot::kIfNew
                                                 : Archive::Snapshot::kIfNoneIsKept);
  }
}

void Api::tick() {
  for (const std::string& id : parts_.registry.expire()) {
    log_info("run lost: id=" + id);
    parts_.budgets.lost(id);
    save(id);
  }
  parts_.budgets.tick();
  parts_.models.tick();
  const double now = parts_.clock.monotonic_seconds();
  if (now - saved_all_at_ < kSaveEverySeconds) return;
  saved_all_at_ = now;
  save_live();
}

}  // namespace pudica::daemon
