// Whether a process that registered is still there.
#pragma once

#include <cstdint>
#include <optional>

namespace pudica::daemon {

// A process and when it began, so that a number given to another process later is told apart.
struct ProcessMark {
  std::int64_t pid = 0;
  std::optional<std::uint64_t> start_ticks;  // nullopt: not visible from here
};

enum class ProcessState : std::uint8_t { kThere, kGone, kUnknown };

ProcessMark mark_process(std::int64_t pid);
// kUnknown for a process that was not visible when it was marked.
ProcessState process_state(const ProcessMark& mark);

}  // namespace pudica::daemon
