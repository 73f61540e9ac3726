// A rehearsal's answer as a page for people.
#pragma once

#include <iosfwd>

#include "cli/json_view.h"
#include "cli/terminal.h"

namespace pudica::cli {

// `answer`: of rehearsal_answer().
void print_rehearsal(std::ostream& out, const Json& answer, const Style& style);

}  // namespace pudica::cli
