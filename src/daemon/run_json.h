// Runs as docs/http_api.md writes them.
#pragma once

#include "daemon/run_state.h"
#include "inspect/json_values.h"

namespace pudica::daemon {

inspect::Json to_json(const StepSummary& step);
inspect::Json to_json(const BudgetChange& change);
// The object "run".
inspect::Json to_json(const RunSummary& run);
// The object "run" with its histories and what its snapshot says.
inspect::Json to_json(const RunDetail& detail);
// {"run","plans":[...]}
inspect::Json plans_json(const RunDetail& detail);

}  // namespace pudica::daemon
