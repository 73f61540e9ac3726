// What the runs of a rehearsal say together: the JSON of docs/schemas/rehearsal.schema.json.
#pragma once

#include <optional>

#include "cli/json_view.h"
#include "cli/rehearsal_run.h"

namespace pudica::cli {

// The runs of one command.
struct RehearsedWays {
  RehearsedWay as_is;
  // Without the card's limit, where it bound.
  std::optional<RehearsedWay> as_is_unlimited;
  RehearsedWay planned;
  std::optional<RehearsedWay> planned_unlimited;
};

// Whether some rank ended for want of memory, also where the script made it another exit code.
bool died_of_memory(const RehearsedWay& way);

// Requires: as_is and planned reported, or planned died of memory.
Json rehearsal_answer(const Rehearsal& rehearsal, const RehearsedWays& ways);

}  // namespace pudica::cli
