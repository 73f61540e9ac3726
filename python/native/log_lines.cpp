#include "native/log_lines.h"

#include <cstddef>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/log.h"

namespace pudica::python {
namespace {

constexpr std::size_t kMostLines = 256;

struct Held {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::size_t lost = 0;
};

Held& held() {
  static auto* const instance = new Held;  // leaked: threads may log until the process ends
  return *instance;
}

void hold(LogLevel level, std::string_view line) {
  Held& all = held();
  const std::lock_guard lock(all.mutex);
  if (all.lines.size() >= kMostLines) {
    ++all.lost;
    return;
  }
  const char mark = level == LogLevel::kWarn ? 'w' : level == LogLevel::kInfo ? 'i' : 'd';
  all.lines.push_back(mark + std::string(line));
}

}  // namespace

void collect_log() { set_log_sink(&hold); }

std::vector<std::string> log_lines() {
  Held& all = held();
  const std::lock_guard lock(all.mutex);
  if (all.lost > 0) {
    all.lines.push_back("w" + std::to_string(all.lost) + " more lines were not kept");
  }
  all.lost = 0;
  return std::exchange(all.lines, {});
}

}  // namespace pudica::python
