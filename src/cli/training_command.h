// Starting somebody's training command: what is put into its environment, and where that lies.
#pragma once

#include <string>
#include <vector>

#include "cli/commands.h"
#include "config/config.h"

namespace pudica::cli {

// Puts a path before those that a variable of this process's environment lists already.
void prepend_environment(const char* name, const std::string& path);

// The path of something that is installed with this program: `below` its folder's parent. Empty
// where it is not there.
std::string installed_beside(const std::string& below);

// The budget of a command that will train, as PUDICA_BUDGET has it: a fraction is one of the way
// from what recomputing every layer of its longest batches needs to what keeping all needs.
std::string budget_of_training(const BudgetSetting& budget);

// Python processes of the command attach by themselves (python/startup): PUDICA_ATTACH=1, unless it
// is set already, and PYTHONPATH. Says on the error stream where that cannot be.
void attach_by_environment(Session& session);

// "-I": an option by which this Python command would not see PYTHONPATH. Else empty.
std::string option_against_pythonpath(const std::vector<std::string>& program);

}  // namespace pudica::cli
