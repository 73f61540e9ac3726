// `pudica budget --dry-run`: what another budget would come to, for the shapes that decide.
#pragma once

#include "cli/commands.h"
#include "cli/json_view.h"
#include "pudica/bytes.h"

namespace pudica::cli {

// Of the shape that needs most of those that the run has met: whether it fits decides whether the
// run does; and of its last one. `run`: as GET /v1/runs/{id} has it. Returns an exit code.
int budget_dry_run(Session& session, const Json& run, Bytes asked);

}  // namespace pudica::cli
