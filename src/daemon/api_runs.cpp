// For training processes and operators: registration, events, commands, budgets.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/log.h"
#include "base/safe_text.h"
#include "base/text_limits.h"
#include "daemon/api.h"
#include "inspect/field_reader.h"
#include "inspect/user_names.h"

namespace pudica::daemon {
namespace {

using inspect::Json;

constexpr std::int64_t kLongestWaitSeconds = 60;
constexpr std::size_t kMaxGroupName = 256;
constexpr std::int64_t kMostPruneSeconds = std::int64_t{100} * 365 * 86400;
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

// A body that is to hold `field`, such as `example`.
Result<Json> object_of(const std::string& body, const char* field, const char* example) {
  if (const std::string beyond = beyond_json_limits(body); !beyond.empty()) {
    return invalid_argument("the body is " + beyond);
  }
  Json root = Json::parse(body, nullptr, false);
  if (root.is_object()) return root;
  return invalid_argument("the body is not a JSON object; expected {\"" + std::string(field) +
                          "\": " + example + "}");
}

Result<Bytes> bytes_field(const std::string& body, const char* field) {
  const auto object = object_of(body, field, "\"18GiB\"");
  if (!object) return object.error();
  const Json& root = *object;
  inspect::FieldReader reader(root, "");
  if (reader.has(field) && root[field].is_string()) {
    auto bytes = parse_bytes(root[field].get<std::string>());
    if (!bytes) return bytes.error().with_context(field);
    if (*bytes > Bytes(0)) return bytes;
    return invalid_argument(std::string(field) + ": " + root[field].get<std::string>() +
                            ", expected at least one byte");
  }
  if (!reader.has(field)) {
    return invalid_argument(std::string(field) + ": missing, expected bytes such as \"18GiB\"");
  }
  const std::int64_t count = reader.integer(field, 1);
  if (!reader.ok()) return reader.error();
  return Bytes(count);
}

Result<std::int64_t> seconds_field(const std::string& body, const char* field) {
  const auto object = object_of(body, field, "86400");
  if (!object) return object.error();
  inspect::FieldReader reader(*object, "");
  if (!reader.has(field)) {
    return invalid_argument(std::string(field) + ": missing, expected seconds such as 86400");
  }
  const std::int64_t seconds = reader.integer(field, 0, kMostPruneSeconds);
  if (!reader.ok()) return reader.error();
  return seconds;
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
  if (!request.caller.user_id) {
    return error_reply(403, "the kernel does not say whose run it is; expected a UNIX socket");
  }
  description->user_id = *request.caller.user_id;
  description->user = user_name(description->user_id);
  if (!may_resume(request.caller, description->resume)) description->resume.clear();
  // Of this user's runs: what another one says of itself is no claim to theirs.
  if (!description->instance.empty()) {
    description->instance = std::to_string(description->user_id) + "/" + description->instance;
  }
  Registration registration;
  registration.protocol = std::min(description->protocol, kProtocol);
  registration.timeout_seconds = parts_.registry.timeout_seconds();
  registration.heartbeat_seconds = registration.timeout_seconds / kHeartbeatsPerTimeout;
  const RunDescription about = *description;
  // Its answer may have been lost, and the daemon with it: then it does not know its id.
  if (const std::string id = parts_.budgets.id_of(about.instance); !id.empty()) {
    description->resume = id;
  }
  auto id = parts_.registry.add(std::move(*description));
  if (!id) return error_reply(id.error());
  registration.id = *id;
  registration.state = parts_.models.state(about.fingerprint);
  const auto granted = parts_.budgets.join(*id, about);
  if (!granted) {
    parts_.registry.remove(*id);
    return error_reply(granted.error());
  }
  if (*granted) {
    registration.budget_bytes = **granted;
    parts_.registry.grant(*id, {**granted, "group"});
  }
  ++counters_.runs_registered;
  log_info("run registered: id=" + *id + " name=" + log_value(about.name) +
           " pid=" + std::to_string(about.pid) + " user=" + log_value(about.user) +
           (about.resume == *id ? " resumed=true" : ""));
  save(*id);
  ApiReply reply;
  reply.status = 201;
  reply.body = pudica::to_json(registration);
  return reply;
}

ApiReply Api::post_events(const ApiRequest& request) {
  // Runs that began together push together: an operator's question is not to wait for all of them.
  const Turnstile::Pass pass(pushes_);
  const std::string& id = request.captures.at(0);
  if (const auto refused = refuse_steering(request.caller, id)) return *refused;
  const auto batch = parse_event_batch(request.body);
  if (!batch) return error_reply(batch.error());
  const auto run = parts_.registry.apply(id, *batch);
  if (!run) return error_reply(run.error());
  counters_.events += static_cast<std::int64_t>(batch->events.size());
  take_in(*run, *batch);
  return json_reply(200, {{"accepted", batch->events.size()}});
}

// What others than the registry want of the events.
void Api::take_in(const RunSummary& run, const EventBatch& batch) {
  std::vector<StepSummary> steps;
  for (const RunEvent& event : batch.events) {
    if (const auto* const step = std::get_if<StepEvent>(&event)) {
      steps.push_back(summarize(*step));
      parts_.models.learn(run, step->record);
    } else if (const auto* const model = std::get_if<ModelEvent>(&event)) {
      parts_.models.adopt(run, model->state);
    } else if (const auto* const budget = std::get_if<BudgetEvent>(&event)) {
      parts_.budgets.on(run.id, *budget);
    } else if (const auto* const need = std::get_if<NeedEvent>(&event)) {
      parts_.budgets.on(run.id, *need);
    }
  }
  parts_.archive.save_steps(run.id, std::move(steps));
  if (run.live()) return;
  log_info("run ended: id=" + run.id + " status=" + run.status);
  parts_.budgets.ended(run.id);
  save(run.id);
}

ApiReply Api::get_commands(const ApiRequest& request) {
  const auto after = query_integer(request, "after", 0, std::numeric_limits<std::int64_t>::max());
  if (!after) return error_reply(after.error());
  const auto wait = query_integer(request, "wait", 0, kLongestWaitSeconds);
  if (!wait) return error_reply(wait.error());
  if (const auto refused = refuse_steering(request.caller, request.captures.at(0))) {
    return *refused;
  }
  const auto commands =
      parts_.registry.commands(request.captures.at(0), static_cast<std::uint64_t>(*after),
                               std::chrono::seconds(*wait), request.gone);
  if (!commands) return error_reply(commands.error());
  ApiReply reply;
  reply.body = pudica::to_json(*commands);
  return reply;
}

ApiReply Api::put_budget(const ApiRequest& request) {
  const auto budget = bytes_field(request.body, "budget");
  if (!budget) return error_reply(budget.error());
  const Asked asked = find_asked(request.captures.at(0));
  if (!asked.run) return asked.refusal;
  const std::string& run = asked.run->id;
  if (const auto refused = refuse_steering(request.caller, run)) return *refused;
  if (!asked.run->live) {
    return error_reply(409, "the run '" + run + "' has ended, expected a live one");
  }
  const auto seq = parts_.budgets.ask(run, *budget);
  if (!seq) return error_reply(seq.error());
  log_info("budget asked for: run=" + run + " budget=" + format_bytes(*budget));
  return json_reply(202, {{"run", run},
                          {"budget_bytes", budget->count()},
                          {"seq", *seq},
                          {"effective", *seq > 0 ? "next step" : "when its group has room"}});
}

ApiReply Api::post_prune(const ApiRequest& request) {
  const auto age = seconds_field(request.body, "older_than_seconds");
  if (!age) return error_reply(age.error());
  if (const auto refused = refuse_operating(request.caller, "the runs of all")) return *refused;
  const std::int64_t until = parts_.clock.unix_seconds() - *age;
  const auto removed = parts_.archive.remove_ended(until);
  if (!removed) return error_reply(removed.error());
  parts_.registry.forget_ended(until);
  log_info("pruned: runs=" + std::to_string(*removed) + " ended_until=" + format_time(until));
  return json_reply(200,
                    {{"removed_runs", *removed}, {"database_bytes", parts_.archive.stats().bytes}});
}

ApiReply Api::put_group(const ApiRequest& request) {
  const std::string& name = request.captures.at(0);
  const auto total = bytes_field(request.body, "total");
  if (!total) return error_reply(total.error());
  if (name.empty() || name.size() > kMaxGroupName) {
    return error_reply(400, "the group's name has " + std::to_string(name.size()) +
                                " characters, expected 1 to " + std::to_string(kMaxGroupName));
  }
  if (const auto refused = refuse_operating(request.caller, "the total of a group")) {
    return *refused;
  }
  const auto group = parts_.budgets.set_total(name, *total);
  if (!group) return error_reply(group.error());
  log_info("group: name=" + log_value(name) + " total=" + format_bytes(*total));
  return json_reply(200, named(*group));
}

}  // namespace pudica::daemon
