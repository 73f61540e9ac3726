// The command line of pudicad.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "daemon/daemon_config.h"

namespace pudica::daemon {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// What was given on the command line; it wins over the file.
struct Options {
  std::string config_file;  // empty: none
  std::optional<std::string> socket;
  std::optional<std::string> socket_group;
  std::optional<std::string> database;
  std::optional<std::string> listen;
  std::optional<std::string> listen_token_file;
  std::optional<std::string> log_level;
  bool allow_remote = false;
  bool check_config = false;
};

// A text for the terminal and the exit code to go with it: help, version, or what was wrong.
struct Finished {
  int exit_code = kExitDone;
  std::string text;
};

std::variant<Options, Finished> parse_options(int argc, const char* const* argv);

// File (if any) below environment (PUDICA_SOCKET, PUDICA_LOG) below command line. Errors: every
// fault of the file, else every value that the start would refuse, one a line: the one check for
// --check-config, the start and SIGHUP.
Result<DaemonConfig> read_config(const Options& options);

}  // namespace pudica::daemon
