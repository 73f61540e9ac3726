// pudicad: the daemon of pudica.
#include <exception>
#include <iostream>
#include <variant>

#include "daemon/daemon.h"
#include "daemon/options.h"

namespace {

int run(int argc, const char* const* argv) {
  using namespace pudica::daemon;
  const auto end = [](const Finished& finished) {
    (finished.exit_code == kExitDone ? std::cout : std::cerr) << finished.text;
    return finished.exit_code;
  };
  const auto parsed = parse_options(argc, argv);
  if (const auto* const finished = std::get_if<Finished>(&parsed)) return end(*finished);
  const auto& options = std::get<Options>(parsed);
  const auto config = read_config(options);
  if (!config) {
    std::cerr << config.error().message << "\n";
    return kExitUsage;
  }
  if (options.check_config) {
    std::cout << "the configuration is good\n";
    return kExitDone;
  }
  return end(run_daemon(options, *config));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "pudicad: " << error.what() << "\n";
    return pudica::daemon::kExitFailed;
  }
}
