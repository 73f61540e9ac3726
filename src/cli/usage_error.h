// What is said of a command line that makes no sense.
#pragma once

#include <string>
#include <vector>

#include "pudica/result.h"

namespace CLI {
class App;
}  // namespace CLI

namespace pudica::cli {

// The names of the subcommands.
std::vector<std::string> names_of(CLI::App& app);
// The commands chosen, outermost first.
std::vector<CLI::App*> chosen(CLI::App& app);
// kInvalidArgument: what is wrong, the nearest word that would be right, and who lists them.
Error usage_error(CLI::App& app, const std::vector<std::string>& arguments,
                  const std::string& what);

}  // namespace pudica::cli
