// Writing what runs and the daemon tell each other; run_protocol_parse.cpp reads it.
#include "inspect/run_protocol.h"

#include "inspect/json_values.h"
#include "inspect/step_record_json.h"

namespace pudica {
namespace {

using inspect::finite;
using inspect::Json;

Json bytes_or_null(const std::optional<Bytes>& bytes) {
  return bytes ? Json(bytes->count()) : Json();
}

Json event_json(const StepEvent& event) {
  return {{"type", "step"},
          {"record", inspect::to_json(event.record)},
          {"learning", event.learning},
          {"recomputed", event.recomputed}};
}
Json event_json(const SnapshotEvent& event) {
  return {{"type", "snapshot"}, {"snapshot", Json::parse(event.snapshot, nullptr, false)}};
}
Json event_json(const ModelEvent& event) { return {{"type", "model"}, {"state", event.state}}; }
Json event_json(const BudgetEvent& event) {
  Json out{{"type", "budget"},
           {"seq", event.seq},
           {"step", event.step},
           {"budget_bytes", event.budget_bytes.count()}};
  if (event.fraction) out["fraction"] = finite(*event.fraction);
  return out;
}
Json event_json(const NeedEvent& event) {
  return {{"type", "need"}, {"bytes", event.bytes.count()}};
}
Json event_json(const EndEvent& event) { return {{"type", "end"}, {"status", event.status}}; }

Json command_json(std::uint64_t seq, const SetBudgetCommand& command) {
  return {{"seq", seq},
          {"type", "set_budget"},
          {"budget_bytes", command.budget_bytes.count()},
          {"source", command.source}};
}
Json command_json(std::uint64_t seq, const ModelCommand&) {
  return {{"seq", seq}, {"type", "model"}};
}

}  // namespace

std::string to_json(const RunDescription& run) {
  Json versions = Json::object();
  for (const auto& [name, version] : run.versions) versions[name] = version;
  Json out;
  out["protocol"] = run.protocol;
  out["protocol_min"] = run.protocol_min;
  out["name"] = run.name;
  out["pid"] = run.pid;
  out["user"] = run.user;
  out["command"] = run.command;
  out["device"] = run.device;
  out["model"] = run.model;
  out["policy"] = run.policy;
  out["fingerprint"] = run.fingerprint;
  out["group"] = run.group;
  out["versions"] = std::move(versions);
  out["budget_bytes"] = run.budget_bytes.count();
  if (run.budget_fraction) out["budget_fraction"] = finite(*run.budget_fraction);
  out["floor_bytes"] = bytes_or_null(run.floor_bytes);
  out["keep_all_bytes"] = bytes_or_null(run.keep_all_bytes);
  out["steps_total"] = run.steps_total ? Json(*run.steps_total) : Json();
  out["steps_done"] = run.steps_done;
  out["resume"] = run.resume;
  out["instance"] = run.instance;
  return inspect::dump(out, -1);
}

std::string to_json(const Registration& registration) {
  Json out;
  out["id"] = registration.id;
  out["protocol"] = registration.protocol;
  out["budget_bytes"] = bytes_or_null(registration.budget_bytes);
  out["state"] = registration.state ? Json(*registration.state) : Json();
  out["heartbeat_seconds"] = finite(registration.heartbeat_seconds);
  out["timeout_seconds"] = finite(registration.timeout_seconds);
  return inspect::dump(out, -1);
}

std::string to_json(const EventBatch& batch) {
  Json events = Json::array();
  for (const RunEvent& event : batch.events) {
    events.push_back(std::visit([](const auto& what) { return event_json(what); }, event));
  }
  return inspect::dump({{"dropped", batch.dropped}, {"events", std::move(events)}}, -1);
}

std::string to_json(const std::vector<Command>& commands) {
  Json list = Json::array();
  for (const Command& command : commands) {
    list.push_back(std::visit(
        [&command](const auto& what) { return command_json(command.seq, what); }, command.what));
  }
  return inspect::dump({{"commands", std::move(list)}}, -1);
}

}  // namespace pudica
