#include "cli/commands.h"

#include <array>
#include <ostream>
#include <utility>

namespace pudica::cli {

int fail(Session& session, const Error& error) {
  // A message may quote what others wrote; its own line ends stay.
  std::string message;
  for (std::string_view rest = error.message; !rest.empty();) {
    const auto end = rest.find('\n');
    message += (message.empty() ? "" : "\n") + sanitised(rest.substr(0, end), session.error_style);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  session.err << painted("pudica:", Colour::kRed, session.error_style) << ' ' << message << '\n';
  return exit_code(error);
}

int print_json(Session& session, const Json& value) {
  session.out << dump_indented(value) << '\n';
  return kExitDone;
}

int run(Session& session) {
  using Command = std::pair<std::string_view, int (*)(Session&)>;
  constexpr std::array<Command, 18> kCommands{{{"status", status_command},
                                               {"plans", plans_command},
                                               {"explain", explain_command},
                                               {"estimate", estimate_command},
                                               {"models", models_command},
                                               {"models rm", models_rm_command},
                                               {"prune", prune_command},
                                               {"budget", budget_command},
                                               {"group", group_command},
                                               {"top", top_command},
                                               {"doctor", doctor_command},
                                               {"config check", config_check_command},
                                               {"config show", config_show_command},
                                               {"replay", replay_command},
                                               {"report", report_command},
                                               {"run", run_command},
                                               {"rehearse", rehearse_command},
                                               {"completion", completion_command}}};
  for (const auto& [name, command] : kCommands) {
    if (name == session.arguments.command) return command(session);
  }
  return fail(session, invalid_argument("unknown command '" + session.arguments.command + "'"));
}

}  // namespace pudica::cli
