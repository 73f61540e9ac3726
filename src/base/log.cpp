#include "base/log.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "base/safe_text.h"

namespace pudica {
namespace {

spdlog::logger& logger() {
  // Leaked on purpose: hooks may log while static objects are destroyed.
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("pudica", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("[%Y-%m-%d %H:%M:%S] pudica %l: %v");
    made->set_level(spdlog::level::warn);
    if (const char* wanted = std::getenv("PUDICA_LOG")) {
      const auto level = spdlog::level::from_str(wanted);
      if (level != spdlog::level::off || std::string_view(wanted) == "off") {
        made->set_level(level);
      }
    }
    return made;
  }();
  return *instance;
}

std::atomic<LogSink>& sink() {
  static std::atomic<LogSink> present{nullptr};
  return present;
}

LogLevel ours(spdlog::level::level_enum level) {
  if (level >= spdlog::level::warn) return LogLevel::kWarn;
  return level == spdlog::level::info ? LogLevel::kInfo : LogLevel::kDebug;
}

void log(spdlog::level::level_enum level, std::string_view message) noexcept {
  try {
    if (!logger().should_log(level)) return;
    const std::string line = one_line(message);
    if (const LogSink elsewhere = sink().load()) return elsewhere(ours(level), line);
    logger().log(level, spdlog::string_view_t(line.data(), line.size()));
  } catch (...) {  // a log line is never worth a failure
  }
}

}  // namespace

bool set_log_level(std::string_view level) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") return false;
  logger().set_level(parsed);
  return true;
}

void set_log_sink(LogSink elsewhere) { sink().store(elsewhere); }

void log_warn(std::string_view message) noexcept { log(spdlog::level::warn, message); }
void log_info(std::string_view message) noexcept { log(spdlog::level::info, message); }
void log_debug(std::string_view message) noexcept { log(spdlog::level::debug, message); }

}  // namespace pudica
