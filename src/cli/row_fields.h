// The fields that rows have, and rows as `--format` wants them.
#pragma once

#include <span>
#include <vector>

#include "cli/commands.h"
#include "cli/json_view.h"

namespace pudica::cli {

// What the documents say that an object has, lists and all: a field may be null or absent in all
// objects that there are.
std::span<const char* const> known_run_fields();
std::span<const char* const> known_plan_fields();
std::span<const char* const> known_model_fields();
std::span<const char* const> known_group_fields();

// Prints the objects by the arguments' format. Returns an exit code.
int print_formatted(Session& session, std::span<const char* const> known,
                    const std::vector<const Json*>& objects);

}  // namespace pudica::cli
