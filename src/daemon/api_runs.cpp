// For training processes and operators: registration, events, commands, budgets.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/log.h"
#include "daemon/api.h"
#include "inspect/field_reader.h"

namespace pudica::daemon {
namespace {

using inspect::Json;

constexpr std::int64_t kLongestWaitSeconds = 60;
constexpr double kHeartbeatsPerTimeout = 3;

// An integer of the query; `fallback` where it is not given.
Result<std::int64_t> query_integer(const ApiRequest& request, const char* name,
                                   std::int64_t fallback, std::int64_t most) {
  const auto found = request.query.find(name);
  if (found == request.query.end()) return fallback;
  const std::string& text = found->second;
  std::int64_t value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status == std::errc() && rest == text.data() + text.size() && value >= 0 && value <= most) {
    return value;
  }
  return invalid_argument(std::string(name) + ": '" + text.substr(0, 60) +
                          "', expected an integer from 0 to " + std::to_string(most));
}

Result<Bytes> bytes_field(const std::string& body, const char* field) {
  if (json_depth(body) > kMaxJsonDepth) return invalid_argument("the body is nested too deeply");
  const Json root = Json::parse(body, nullptr, false);
  if (!root.is_object()) {
    return invalid_argument("the body is not a JSON object; expected {\"" + std::string(field) +
                            "\": \"18GiB\"}");
  }
  inspect::FieldReader reader(root, "");
  if (reader.has(field) && root[field].is_string()) {
    auto bytes = parse_bytes(root[field].get<std::string>());
    if (!bytes) return bytes.error().with_context(field);
    if (*bytes > Bytes(0)) return bytes;
    return invalid_argument(std::string(field) + ": " + root[field].get<std::string>() +
                            ", expected at least one byte");
  }
  const std::int64_t count = reader.integer(field, 1);
  if (!reader.ok()) return reader.error();
  return Bytes(count);
}

}  // namespace

ApiReply Api::post_runs(const ApiRequest& request) {
  auto description = parse_run_description(request.body);
  if (!description) return error_reply(description.error());
  if (description->protocol < kProtocolOldest || description->protocol_min > kProtocol) {
    return error_reply(426, "the run speaks protocol " + std::to_string(description->protocol_min) +
                                " to " + std::to_string(description->protocol) +
                                ", this daemon protocol " + std::to_string(kProtocolOldest) +
                                " to " + std::to_string(kProtocol));
  }
  Registration registration;
  registration.protocol = std::min(description->protocol, kProtocol);
  registration.timeout_seconds = registry_.timeout_seconds();
  registration.heartbeat_seconds = registration.timeout_seconds / kHeartbeatsPerTimeout;
  const std::string name = description->name;
  auto id = registry_.add(std::move(*description));
  if (!id) return error_reply(id.error());
  registration.id = *id;
  ++counters_.runs_registered;
  log_info("run registered: id=" + *id + " name=" + name);
  ApiReply reply;
  reply.status = 201;
  reply.body = pudica::to_json(registration);
  return reply;
}

ApiReply Api::post_events(const ApiRequest& request) {
  const auto batch = parse_event_batch(request.body);
  if (!batch) return error_reply(batch.error());
  if (auto applied = registry_.apply(request.captures.at(0), *batch); !applied) {
    return error_reply(applied.error());
  }
  counters_.events += static_cast<std::int64_t>(batch->events.size());
  return json_reply(200, {{"accepted", batch->events.size()}});
}

ApiReply Api::get_commands(const ApiRequest& request) {
  const auto after = query_integer(request, "after", 0, std::numeric_limits<std::int64_t>::max());
  if (!after) return error_reply(after.error());
  const auto wait = query_integer(request, "wait", 0, kLongestWaitSeconds);
  if (!wait) return error_reply(wait.error());
  const auto commands = registry_.commands(
      request.captures.at(0), static_cast<std::uint64_t>(*after), std::chrono::seconds(*wait));
  if (!commands) return error_reply(commands.error());
  ApiReply reply;
  reply.body = pudica::to_json(*commands);
  return reply;
}

ApiReply Api::put_budget(const ApiRequest& request) {
  const auto budget = bytes_field(request.body, "budget");
  if (!budget) return error_reply(budget.error());
  const Found found = find(request.captures.at(0));
  if (!found.run) return found.refusal;
  const std::string& id = found.run->summary.id;
  const auto seq = registry_.push_budget(id, {*budget, "operator"});
  if (!seq) return error_reply(409, "the run '" + id + "' has ended, expected a live one");
  log_info("budget asked for: run=" + id + " budget=" + format_bytes(*budget));
  return json_reply(
      202,
      {{"run", id}, {"budget_bytes", budget->count()}, {"seq", *seq}, {"effective", "next step"}});
}

}  // namespace pudica::daemon
