// A run in columns and in full: shared by `status` and `top`.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <vector>

#include "cli/json_view.h"
#include "cli/table.h"

namespace pudica::cli {

struct RunView {
  Style style;
  std::int64_t now = 0;  // seconds since 1970
};

// The fields of a run in the tab-separated output, in order.
const std::vector<std::string>& run_fields();

void print_run_table(std::ostream& out, const Json& runs, const RunView& view);
void print_group_table(std::ostream& out, const Json& groups, const Style& style);
// One run in full, with its budget changes.
void print_run_details(std::ostream& out, const Json& run, const RunView& view);

}  // namespace pudica::cli
