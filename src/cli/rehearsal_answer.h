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
  // As it is, without the limit, and with expandable segments where it has them not, or the other
  // way round; where much is reserved and not in use.
  std::optional<RehearsedWay> other_segments;
  RehearsedWay planned;
  std::optional<RehearsedWay> planned_unlimited;
};

// Whether some rank ended for want of memory, also where the script made it another exit code.
bool died_of_memory(const RehearsedWay& way);

// What no choice of segments would make up for: less is not worth a run of its own, or a setting.
constexpr double kLittle = 0.05;
// The share of the reserved bytes that are not in use where most are reserved.
double spared_share(const Json& report);

// Requires: as_is and planned reported, or planned died of memory.
Json rehearsal_answer(const Rehearsal& rehearsal, const RehearsedWays& ways);

}  // namespace pudica::cli
