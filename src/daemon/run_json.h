// Runs as docs/http_api.md writes them, as JSON text.
#pragma once

#include <string>

#include "daemon/json_text.h"
#include "daemon/run_state.h"
#include "inspect/json_values.h"

namespace pudica::daemon {

std::string to_json(const StepSummary& step);
// The object "run", as the next value.
void write(JsonText& out, const RunSummary& run);
// The object "run" with its histories and what its snapshot says.
std::string to_json(const RunDetail& detail);
// What the run has learned, as its snapshot says; null where there is none.
inspect::Json learned_json(const RunDetail& detail);
// {"run","plans":[...]}
inspect::Json plans_json(const RunDetail& detail);

}  // namespace pudica::daemon
