#include "daemon/clock.h"

#include <array>
#include <chrono>
#include <ctime>

namespace pudica::daemon {

Clock system_clocks() {
  return {[] {
            const auto now = std::chrono::steady_clock::now().time_since_epoch();
            return std::chrono::duration<double>(now).count();
          },
          [] { return static_cast<std::int64_t>(std::time(nullptr)); }};
}

std::string format_time(std::int64_t unix_seconds) {
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  if (gmtime_r(&time, &parts) == nullptr) return "1970-01-01T00:00:00Z";
  std::array<char, 32> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), size};
}

}  // namespace pudica::daemon
