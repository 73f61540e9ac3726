// pudica: the command line of pudicad, and what works without it.
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <unistd.h>
#include <vector>

#include "base/safe_text.h"
#include "cli/commands.h"
#include "inspect/socket_path.h"

namespace {

int start(const std::vector<std::string>& words) {
  using namespace pudica::cli;  // NOLINT(google-build-using-namespace): the program itself
  const auto line = parse_command_line(words);
  if (!line) {
    std::cerr << "pudica: " << sanitised(line.error().message, Style{}) << '\n';
    return kExitUsage;
  }
  if (!line->print.empty()) {
    std::cout << line->print << std::flush;
    return std::cout ? kExitDone : kExitFailed;
  }
  const Arguments& arguments = line->arguments;
  Style style = detect_style(STDOUT_FILENO, arguments.no_color);
  if (arguments.no_trunc) style.width = kUnboundedWidth;
  Session session{arguments,
                  style,
                  detect_style(STDERR_FILENO, arguments.no_color),
                  std::cout,
                  std::cerr,
                  Daemon(pudica::daemon_socket_path(arguments.socket), arguments.timeout_seconds)};
  const int code = run(session);
  std::cout << std::flush;
  if (!std::cout && code == kExitDone) {
    std::cerr << "pudica: the output cannot be written\n";
    return kExitFailed;
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return start({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    const std::string what = pudica::one_line(error.what());
    std::fprintf(stderr, "pudica: %s\n", what.c_str());
    return pudica::cli::kExitFailed;
  }
}
