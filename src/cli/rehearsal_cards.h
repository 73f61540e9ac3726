// The cards that a rehearsal answers for beside its own: what a process gets of each, and what fits
// there by what was learned.
#pragma once

#include <string>

#include "cli/json_view.h"
#include "cli/rehearsal_run.h"
#include "pudica/bytes.h"

namespace pudica::cli {

// What a budget is in bytes of a device. "auto", and likewise a fraction of the way between
// recomputing and keeping until a run has learned that way: most of what a process gets.
Bytes budget_bytes(const std::string& budget, Bytes memory, Bytes context);

// For the planned run, which looks for the largest sizes that fit: the device's own room, then that
// of every card. `whole`: the report of the run as it is; `fits`: it did, on the device.
Json rooms_of(const Rehearsal& rehearsal, const Json& whole, bool fits);

// Of every card: whether the longest batch fits, and the largest sizes that do. `handle`: of what
// was learned; nullptr: nothing was.
Json cards_of(const Json& whole, const Json* handle);

// The largest sizes on the device's own card; empty where nothing is known.
Json largest_sizes(const Json* handle);

}  // namespace pudica::cli
