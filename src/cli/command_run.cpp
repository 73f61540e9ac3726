// `pudica run`: a training command with the environment set.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <unistd.h>
#include <vector>

#include "cli/commands.h"
#include "cli/training_command.h"
#include "config/config.h"
#include "inspect/socket_path.h"

namespace pudica::cli {
namespace {

bool disabled() {
  const auto value = process_environment("PUDICA_DISABLE");
  return value && !value->empty() && *value != "0";
}

std::string absolute(const std::string& path) {
  std::error_code failed;
  const auto whole = std::filesystem::absolute(path, failed);
  return failed ? path : whole.string();
}

Result<void> set_environment(const Arguments& arguments) {
  if (!arguments.budget.empty()) {
    const auto budget = parse_budget(arguments.budget);
    if (!budget) return budget.error().with_context("--budget");
    setenv("PUDICA_BUDGET", budget_of_training(*budget).c_str(), 1);
  }
  if (!arguments.config.empty()) {
    const auto config = load_config(arguments.config).result();
    if (!config) return config.error().with_context("--config");
    setenv("PUDICA_CONFIG", absolute(arguments.config).c_str(), 1);
  }
  if (!arguments.socket.empty()) {
    setenv("PUDICA_SOCKET", absolute(arguments.socket).c_str(), 1);
  }
  return {};
}

}  // namespace

int run_command(Session& session) {
  const Arguments& arguments = session.arguments;
  if (const auto done = set_environment(arguments); !done) return fail(session, done.error());
  if (disabled()) {
    session.err << "pudica: PUDICA_DISABLE is set: pudica stays off in the command\n";
  } else if (const auto version = session.daemon.get("/v1/version"); !version) {
    session.err << "pudica: " << sanitised(version.error().message, session.error_style)
                << "; the command runs without the daemon\n";
  }
  if (!disabled()) attach_by_environment(session);
  session.out << std::flush;
  session.err << std::flush;
  std::vector<std::string> words = arguments.program;
  std::vector<char*> program;
  for (std::string& word : words) program.push_back(word.data());
  program.push_back(nullptr);
  execvp(program[0], program.data());
  return fail(session,
              invalid_argument("cannot start '" + words[0] + "': " + std::strerror(errno)));
}

}  // namespace pudica::cli
