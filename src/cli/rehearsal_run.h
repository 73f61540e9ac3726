// One run of a training command on the emulated device, and what its processes reported.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/json_view.h"
#include "emulated_device/cards.h"
#include "pudica/bytes.h"
#include "pudica/result.h"

namespace pudica::cli {

// How a command is rehearsed.
struct Rehearsal {
  const emulated::Card* card = nullptr;
  Bytes memory;  // of the device, with what a context takes
  int devices = 1;
  int most_steps = 0;
  std::string budget;    // as PUDICA_BUDGET has it; empty: as it is set
  std::string segments;  // what PYTORCH_ALLOC_CONF ends with; empty: as it is set
  std::string library;   // of the stand-in
  std::string startup;   // the folder of python/startup
  std::string folder;    // for reports; removed by its owner
  std::vector<std::string> program;
};

// What came of it.
struct RehearsedWay {
  int exit_code = 0;
  int signal = 0;      // that ended it, else 0
  int stopped_by = 0;  // the signal that this program got meanwhile
  std::vector<Json> ranks;

  [[nodiscard]] bool reported() const { return !ranks.empty(); }
  // The rank with the highest peak. Requires: reported().
  [[nodiscard]] const Json& worst() const;
  // Some rank's training ended for want of memory.
  [[nodiscard]] bool out_of_memory() const;
  // It ended as it should: by itself with exit code 0, or after as many steps as were asked for.
  [[nodiscard]] bool done() const { return exit_code == 0 && signal == 0; }
};

// The highest bytes "allocated" or "reserved" of a report's steps, and of what lay between them.
Bytes peak_of(const Json& report, const std::string& kind);

// Waits for the command's end; then nothing of its process group is left. `way`: "as-is" or
// "planned"; `memory`: of the device. Not thread-safe: signals are handled meanwhile. Errors:
// kInvalidArgument where the command cannot be started.
Result<RehearsedWay> run_rehearsal(const Rehearsal& rehearsal, const std::string& way, Bytes memory,
                                   const std::string& budget);

}  // namespace pudica::cli
