// Reading what runs and the daemon tell each other; run_protocol.cpp writes it.
#include <algorithm>
#include <utility>

#include "inspect/field_reader.h"
#include "inspect/json_message.h"
#include "inspect/json_values.h"
#include "inspect/run_protocol.h"
#include "inspect/step_record_json.h"

namespace pudica {
namespace {

using inspect::FieldReader;
using inspect::Json;

// Longer texts are a mistake, not a name.
constexpr std::size_t kMaxNameCharacters = 4096;

std::optional<Error> error_of(const FieldReader& reader) {
  return reader.ok() ? std::nullopt : std::optional(reader.error());
}

std::string name_of(FieldReader& reader, const char* field) {
  if (!reader.has(field)) return {};
  std::string text = reader.text(field);
  if (text.size() <= kMaxNameCharacters) return text;
  reader.fail(field, "has " + std::to_string(text.size()) + " characters, expected at most " +
                         std::to_string(kMaxNameCharacters));
  return {};
}

std::optional<Bytes> bytes_or_null(FieldReader& reader, const char* field) {
  if (!reader.has(field)) return std::nullopt;
  const auto count = reader.integer_or_null(field);
  return count ? std::optional(Bytes(*count)) : std::nullopt;
}

std::map<std::string, std::string> versions_of(FieldReader& reader) {
  std::map<std::string, std::string> out;
  const Json* const versions = reader.has("versions") ? reader.object("versions") : nullptr;
  if (versions == nullptr) return out;
  if (!versions->is_object()) {
    reader.fail("versions", "expected an object");
    return out;
  }
  for (const auto& [name, version] : versions->items()) {
    if (version.is_string()) out[name] = version.get<std::string>();
  }
  return out;
}

// Applies `read` to the JSON object that `parse` returns; what either throws or refuses becomes an
// error.
template <typename T, typename Parse, typename Read>
Result<T> read_parsed(const char* what, const Parse& parse, const Read& read) {
  try {
    const Json root = parse();
    if (!root.is_object()) {
      return invalid_argument(std::string(what) + ": expected a JSON object");
    }
    FieldReader reader(root, "");
    T value = read(reader);
    if (!reader.ok()) return reader.error().with_context(what);
    return value;
  } catch (const Json::exception& error) {
    return invalid_argument(std::string(what) + ": " + inspect::plain_message(error));
  }
}

template <typename T, typename Read>
Result<T> read_text(std::string_view text, const char* what, const Read& read) {
  return read_parsed<T>(
      what, [&] { return inspect::parse(text); }, read);
}

StepEvent step_event(FieldReader& reader) {
  StepEvent event;
  const Json* const record = reader.object("record");
  if (record == nullptr) return event;
  if (!record->is_object()) {
    reader.fail("record", "expected an object");
    return event;
  }
  auto read = inspect::read_step_record(*record);
  if (!read) {
    reader.fail_with(read.error());
    return event;
  }
  event.record = std::move(*read);
  if (reader.has("learning")) event.learning = reader.boolean("learning");
  if (reader.has("recomputed")) event.recomputed = reader.integer("recomputed");
  return event;
}

std::int64_t integer_or_zero(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

std::string text_or_empty(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

SnapshotFields snapshot_fields(const Json& snapshot) {
  SnapshotFields fields;
  fields.state = text_or_empty(snapshot, "state");
  fields.state_reason = text_or_empty(snapshot, "state_reason");
  fields.margin_bytes = Bytes(integer_or_zero(snapshot, "margin_bytes"));
  fields.base_bytes = Bytes(integer_or_zero(snapshot, "base_bytes"));
  if (const auto counters = snapshot.find("counters");
      counters != snapshot.end() && counters->is_object()) {
    fields.learning_steps = integer_or_zero(*counters, "learning_steps");
    fields.revocations = integer_or_zero(*counters, "revocations");
    fields.overruns = integer_or_zero(*counters, "overruns");
  }
  if (const auto cache = snapshot.find("cache"); cache != snapshot.end() && cache->is_object()) {
    fields.cache_hits = integer_or_zero(*cache, "hits");
    fields.cache_misses = integer_or_zero(*cache, "misses");
    fields.cache_plans = integer_or_zero(*cache, "plans");
  }
  return fields;
}

SnapshotEvent snapshot_event(FieldReader& reader) {
  const Json* const snapshot = reader.object("snapshot");
  if (snapshot == nullptr) return {};
  if (!snapshot->is_object()) {
    reader.fail("snapshot", "expected an object");
    return {};
  }
  return {inspect::dump(*snapshot, -1), snapshot_fields(*snapshot)};
}

// Of [0, 1]; nullopt where it is not told.
std::optional<double> share_of(FieldReader& reader, const char* name) {
  if (!reader.has(name)) return std::nullopt;
  const double share = reader.number(name);
  if (share > 1) reader.fail(name, std::to_string(share) + ", expected 0 to 1");
  return share;
}

BudgetEvent budget_event(FieldReader& reader) {
  BudgetEvent event;
  event.seq = reader.identifier("seq");
  event.step = reader.identifier("step");
  event.budget_bytes = Bytes(reader.integer("budget_bytes"));
  event.fraction = share_of(reader, "fraction");
  return event;
}

EndEvent end_event(FieldReader& reader) {
  EndEvent event{reader.text("status")};
  const std::string& status = event.status;
  if (status != "ok" && status != "oom" && status != "failed" && status != "interrupted") {
    reader.fail("status", "'" + status + "', expected ok, oom, failed or interrupted");
  }
  return event;
}

// nullopt: of a type that this version does not know.
std::optional<RunEvent> read_event(FieldReader& reader) {
  const std::string type = reader.text("type");
  if (type == "step") return step_event(reader);
  if (type == "snapshot") return snapshot_event(reader);
  if (type == "model") return ModelEvent{reader.text("state")};
  if (type == "budget") return budget_event(reader);
  if (type == "need") return NeedEvent{Bytes(reader.integer("bytes"))};
  if (type == "end") return end_event(reader);
  return std::nullopt;
}

std::optional<Command> read_command(FieldReader& reader) {
  Command command;
  command.seq = reader.identifier("seq");
  const std::string type = reader.text("type");
  if (type == "model") {
    command.what = ModelCommand{};
    return command;
  }
  if (type != "set_budget") return std::nullopt;
  SetBudgetCommand set;
  set.budget_bytes = Bytes(reader.integer("budget_bytes"));
  set.source = name_of(reader, "source");
  command.what = std::move(set);
  return command;
}

// Reads one element of a list by `read` into `out`; what `read` does not know is passed over.
template <typename T, typename Read>
std::optional<Error> read_element(const Json& value, const std::string& at, const Read& read,
                                  std::vector<T>& out) {
  if (!value.is_object()) return invalid_argument(at + ": expected an object");
  FieldReader fields(value, at + ".");
  auto item = read(fields);
  if (item) out.push_back(std::move(*item));
  return error_of(fields);
}

template <typename T, typename Read>
std::vector<T> read_list(FieldReader& reader, const char* field, const Read& read) {
  std::vector<T> out;
  reader.each(field, [&](const Json& value, const std::string& at) {
    return read_element(value, at, read, out);
  });
  return out;
}

// The events of a batch, read one by one as its text is parsed: a batch of every run a second makes
// this most of what a busy daemon does.
class EventList {
 public:
  void take(const Json& value) {
    const std::string at = "events[" + std::to_string(seen_) + "]";
    if (++seen_ > kMaxEventsPerBatch || error_) return;
    error_ = read_element(value, at, read_event, events_);
  }
  std::vector<RunEvent> checked(FieldReader& reader) {
    // What is not a list is refused here; the elements of a list have gone to take().
    reader.each("events", [](const Json&, const std::string&) { return std::nullopt; });
    if (seen_ > kMaxEventsPerBatch) {
      reader.fail("events", "has " + std::to_string(seen_) + " elements, expected at most " +
                                std::to_string(kMaxEventsPerBatch));
    }
    if (error_) reader.fail_with(*error_);
    return std::move(events_);
  }

 private:
  std::vector<RunEvent> events_;
  std::size_t seen_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<RunDescription> parse_run_description(std::string_view text) {
  return read_text<RunDescription>(text, "registration", [](FieldReader& reader) {
    RunDescription run;
    run.protocol = reader.integer("protocol");
    run.protocol_min = reader.has("protocol_min") ? reader.integer("protocol_min") : run.protocol;
    run.name = name_of(reader, "name");
    run.pid = reader.has("pid") ? reader.integer("pid") : 0;
    run.user = name_of(reader, "user");
    run.command = name_of(reader, "command");
    run.device = name_of(reader, "device");
    run.model = name_of(reader, "model");
    run.policy = name_of(reader, "policy");
    run.fingerprint = name_of(reader, "fingerprint");
    run.group = name_of(reader, "group");
    run.resume = name_of(reader, "resume");
    run.instance = name_of(reader, "instance");
    run.versions = versions_of(reader);
    run.budget_bytes = Bytes(reader.integer("budget_bytes"));
    run.budget_fraction = share_of(reader, "budget_fraction");
    run.floor_bytes = bytes_or_null(reader, "floor_bytes");
    run.keep_all_bytes = bytes_or_null(reader, "keep_all_bytes");
    if (reader.has("steps_total")) run.steps_total = reader.integer_or_null("steps_total");
    if (reader.has("steps_done")) run.steps_done = reader.integer("steps_done");
    return run;
  });
}

Result<Registration> parse_registration(std::string_view text) {
  return read_text<Registration>(text, "answer to the registration", [](FieldReader& reader) {
    Registration registration;
    registration.id = name_of(reader, "id");
    registration.protocol = reader.integer("protocol");
    registration.budget_bytes = bytes_or_null(reader, "budget_bytes");
    const Json* const state = reader.has("state") ? reader.object("state") : nullptr;
    if (state != nullptr && !state->is_null()) registration.state = reader.text("state");
    registration.heartbeat_seconds = reader.number("heartbeat_seconds");
    registration.timeout_seconds = reader.number("timeout_seconds");
    return registration;
  });
}

Result<EventBatch> parse_event_batch(std::string_view text) {
  EventList events;
  const inspect::ElementSink take = [&](const Json& value) { events.take(value); };
  return read_parsed<EventBatch>(
      "events", [&] { return inspect::parse_streaming(text, "events", take); },
      [&](FieldReader& reader) {
        EventBatch batch;
        batch.dropped = reader.has("dropped") ? reader.integer("dropped") : 0;
        batch.events = events.checked(reader);
        return batch;
      });
}

Result<std::vector<Command>> parse_commands(std::string_view text) {
  return read_text<std::vector<Command>>(text, "commands", [](FieldReader& reader) {
    return read_list<Command>(reader, "commands", read_command);
  });
}

}  // namespace pudica
