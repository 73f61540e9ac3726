// The project's log. Quiet unless PUDICA_LOG or the config says otherwise; never standard output.
#pragma once

#include <string_view>

namespace pudica {

// "off", "error", "warn" (default), "info", "debug". Unknown names leave the level as it is and
// return false. Thread-safe.
bool set_log_level(std::string_view level);

enum class LogLevel : unsigned char { kWarn, kInfo, kDebug };

// Where lines of the present level go instead of standard error; null: standard error again. May be
// called on any thread and must not block. Thread-safe.
using LogSink = void (*)(LogLevel level, std::string_view message);
void set_log_sink(LogSink sink);

// One line each, to standard error: what in a message could end the line or steer a terminal is
// escaped, as one_line() does. A text of others goes in as log_value(). Never throws. Thread-safe.
void log_warn(std::string_view message) noexcept;
void log_info(std::string_view message) noexcept;
void log_debug(std::string_view message) noexcept;

}  // namespace pudica
