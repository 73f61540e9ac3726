// The daemon's clocks, injected so that tests need no waiting.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace pudica::daemon {

struct Clock {
  std::function<double()> monotonic_seconds;   // for timeouts
  std::function<std::int64_t()> unix_seconds;  // for people
};

Clock system_clocks();

// "2026-01-01T12:00:00Z"
std::string format_time(std::int64_t unix_seconds);

}  // namespace pudica::daemon
