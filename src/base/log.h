// The project's log. Quiet unless PUDICA_LOG or the config says otherwise; never standard output.
#pragma once

#include <string_view>

namespace pudica {

// "off", "error", "warn" (default), "info", "debug". Unknown names leave the level as it is and
// return false. Thread-safe.
bool set_log_level(std::string_view level);

// One line each, to standard error. Never throws. Thread-safe.
void log_warn(std::string_view message) noexcept;
void log_info(std::string_view message) noexcept;
void log_debug(std::string_view message) noexcept;

}  // namespace pudica
