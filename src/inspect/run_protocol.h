// What a training process and the daemon tell each other: docs/http_api.md, "For training
// processes". Structs and their JSON text, read on both ends.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "inspect/json.h"
#include "pudica/bytes.h"
#include "pudica/result.h"

namespace pudica {

inline constexpr std::int64_t kProtocol = 1;        // the newest that this program speaks
inline constexpr std::int64_t kProtocolOldest = 1;  // and the oldest
inline constexpr std::size_t kMaxEventsPerBatch = 4096;
inline constexpr std::size_t kMaxBodyBytes = std::size_t{4} << 20U;

// What a run says of itself when it registers.
struct RunDescription {
  std::int64_t protocol = kProtocol;
  std::int64_t protocol_min = kProtocolOldest;
  std::string name;
  std::int64_t pid = 0;
  std::string user;
  unsigned user_id = 0;  // filled in by the daemon, with `user`: no text says it
  std::string command;
  std::string device;  // "cpu", "cuda:0"
  std::string model;   // in words
  std::string policy;
  std::string fingerprint;  // of what the learned state is of; empty: not to be pooled
  std::string group;        // budget group; empty: none
  std::map<std::string, std::string> versions;
  Bytes budget_bytes{0};  // 0: not limited
  // The budget is so much of the way from floor to keep-all of its longest batches, which the run
  // learns; nullopt: it is what it is.
  std::optional<double> budget_fraction;
  std::optional<Bytes> floor_bytes;
  std::optional<Bytes> keep_all_bytes;
  std::optional<std::int64_t> steps_total;
  std::int64_t steps_done = 0;  // before it registered: above 0 it uses its budget already
  std::string resume;           // the id it had before the daemon restarted; empty: none
  std::string
      instance;  // the same in every registration of this run, and of no other; may be empty
};

// The daemon's answer to a registration.
struct Registration {
  std::string id;
  std::int64_t protocol = kProtocol;
  std::optional<Bytes> budget_bytes;  // to be used instead of the run's own
  std::optional<std::string> state;   // learned by earlier runs of the fingerprint
  double heartbeat_seconds = 5;
  double timeout_seconds = 15;
};

struct StepEvent {
  StepRecord record;
  bool learning = false;
  std::int64_t recomputed = 0;  // layer calls run again
};
// What of a snapshot is wanted at every turn; a field that it lacks stays as it is here.
struct SnapshotFields {
  std::string state;
  std::string state_reason;
  Bytes margin_bytes{0};
  Bytes base_bytes{0};
  std::int64_t learning_steps = 0;
  std::int64_t revocations = 0;
  std::int64_t overruns = 0;
  std::int64_t cache_hits = 0;
  std::int64_t cache_misses = 0;
  std::int64_t cache_plans = 0;
};
struct SnapshotEvent {
  std::string snapshot;   // snapshot_to_json()
  SnapshotFields fields;  // filled by the reader
};
struct ModelEvent {
  std::string state;
};
// A budget is in effect from `step` on. `seq` 0: the run changed it itself.
struct BudgetEvent {
  std::uint64_t seq = 0;
  std::uint64_t step = 0;
  Bytes budget_bytes{0};
  std::optional<double> fraction;  // as RunDescription::budget_fraction
};
struct NeedEvent {
  Bytes bytes{0};
};
struct EndEvent {
  std::string status;  // ok oom failed interrupted
};
using RunEvent =
    std::variant<StepEvent, SnapshotEvent, ModelEvent, BudgetEvent, NeedEvent, EndEvent>;

struct EventBatch {
  std::int64_t dropped = 0;  // records that the run's queue had no room for, since it began
  std::vector<RunEvent> events;
};

struct SetBudgetCommand {
  Bytes budget_bytes{0};
  std::string source;  // operator group
};
struct ModelCommand {};
struct Command {
  std::uint64_t seq = 0;
  std::variant<SetBudgetCommand, ModelCommand> what;
};

// The writers never throw. The readers' errors: kInvalidArgument naming the field, the value seen
// and the value expected; fields and events not known are passed over. Texts beyond the
// limits of base/text_limits.h are refused before they are read.
std::string to_json(const RunDescription& description);
Result<RunDescription> parse_run_description(std::string_view text);
std::string to_json(const Registration& registration);
Result<Registration> parse_registration(std::string_view text);
std::string to_json(const EventBatch& batch);
Result<EventBatch> parse_event_batch(std::string_view text);
std::string to_json(const std::vector<Command>& commands);
Result<std::vector<Command>> parse_commands(std::string_view text);

}  // namespace pudica
