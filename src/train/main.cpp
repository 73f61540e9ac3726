// pudica-train: every policy side by side on one training job. With `--worker` first it is one of
// the parent's workers.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "train/options.h"
#include "train/parent.h"
#include "train/protocol.h"
#include "train/stop_signals.h"
#include "train/worker.h"

namespace {

int run(std::vector<std::string> arguments) {
  using namespace pudica::train;  // NOLINT(google-build-using-namespace): the program itself
  const bool worker = !arguments.empty() && arguments.front() == "--worker";
  if (worker) arguments.erase(arguments.begin());
  const auto line = parse_command_line(arguments);
  if (!line) {
    std::fprintf(stderr, "pudica-train: %s\n", line.error().message.c_str());
    return kExitUsage;
  }
  if (!line->print.empty()) {
    std::fputs(line->print.c_str(), stdout);
    return kExitDone;
  }
  if (worker) {
    Channel channel;
    return run_worker(line->options, channel);
  }
  install_stop_signals();
  ParentOptions parent;
  parent.worker_arguments = std::move(arguments);
  parent.worker_arguments.insert(parent.worker_arguments.begin(), "--worker");
  parent.stopping = stop_requested;
  return run_parent(line->options, parent);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pudica-train: %s\n", error.what());
    return pudica::train::kExitFailed;
  }
}
