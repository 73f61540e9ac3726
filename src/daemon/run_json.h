// Runs as docs/http_api.md writes them, as JSON text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/json_text.h"
#include "daemon/run_state.h"
#include "inspect/json_values.h"

namespace pudica::daemon {

// Whether the reader is to see how the run was started: secrets stand there now and then.
enum class CommandLine : std::uint8_t { kShown, kHidden };

std::string to_json(const StepSummary& step);
// The object "run", as the next value.
void write(JsonText& out, const RunSummary& run, CommandLine command);
// The object "run" with its histories and what its snapshot says.
std::string to_json(const RunDetail& detail, CommandLine command);
// The user of an object "run"; nullopt: written by a daemon that did not know.
std::optional<unsigned> owner_of(const inspect::Json& run);
// {"run","plans":[...]}
inspect::Json plans_json(const RunDetail& detail);

}  // namespace pudica::daemon
