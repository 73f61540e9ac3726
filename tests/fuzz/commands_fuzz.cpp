// The daemon's commands, read in the training process.
#include "fuzz/fuzz.h"
#include "inspect/run_protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  pudica::fuzz::require_round_trip(pudica::fuzz::text_of(data, size), pudica::parse_commands,
                                   [](const auto& value) { return pudica::to_json(value); });
  return 0;
}
