// Replayed policies beside the record: as a table, tab-separated, and as JSON.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "cli/json_view.h"
#include "cli/replay.h"
#include "cli/table.h"

namespace pudica::cli {

// One policy, or the record itself, with its sums.
struct ReplayRow {
  std::string name;
  ReplayTotals totals;
};

Json to_json(const ReplayedStep& step);
Json to_json(const ReplayTotals& totals);

// The record comes first.
void print_replay_rows(std::ostream& out, const std::vector<ReplayRow>& rows, const Style& style);

}  // namespace pudica::cli
