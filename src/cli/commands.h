// The commands: each prints to the session's streams and returns an exit code.
#pragma once

#include <iosfwd>
#include <string>

#include "cli/daemon.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "pudica/bytes.h"
#include "pudica/result.h"

namespace pudica::cli {

// What a command works with. Not thread-safe.
struct Session {
  const Arguments& arguments;
  Style style;        // of `out`
  Style error_style;  // of `err`
  std::ostream& out;
  std::ostream& err;
  Daemon daemon;
};

int status_command(Session& session);
int plans_command(Session& session);
int explain_command(Session& session);
int estimate_command(Session& session);
int models_command(Session& session);
int models_rm_command(Session& session);
int prune_command(Session& session);
int budget_command(Session& session);
int group_command(Session& session);
int top_command(Session& session);
int doctor_command(Session& session);
int config_check_command(Session& session);
int config_show_command(Session& session);
int replay_command(Session& session);
int report_command(Session& session);
int run_command(Session& session);
int rehearse_command(Session& session);
int completion_command(Session& session);

// Runs the command that the arguments name.
int run(Session& session);

// "pudica: message" to the error stream, and the error's exit code.
int fail(Session& session, const Error& error);
// A text that the daemon reads as bytes; at least one. Errors: kInvalidArgument naming BYTES.
Result<Bytes> positive_bytes(const std::string& given);
// The daemon's JSON, indented. Returns kExitDone.
int print_json(Session& session, const Json& value);

}  // namespace pudica::cli
