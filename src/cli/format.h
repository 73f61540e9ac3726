// Quantities as people read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pudica::cli {

inline constexpr const char* kNothing = "-";

// "612.5 MiB"; "-" where unknown.
std::string bytes_text(const std::optional<std::int64_t>& bytes);
// "850 us", "12.4 ms", "1.25 s", "2 min 05 s", "3 h 07 min", "4 d 2 h".
std::string duration_text(const std::optional<double>& seconds);
// "12.5 %" of a fraction.
std::string percent_text(const std::optional<double>& fraction);
// "31.0 ms of 250 ms (12.4 %)": what running layers again takes of a step's seconds.
std::string recompute_text(const std::optional<double>& again, const std::optional<double>& all);
std::string count_text(const std::optional<std::int64_t>& count);

// Seconds since 1970 of "2026-01-01T12:00:09Z"; nullopt for anything else.
std::optional<std::int64_t> parse_time(const std::string& text);
// "3 s ago", "2 h ago"; "-" for what is no time. A clock that went back counts as "now".
std::string age_text(const std::string& time, std::int64_t now);

}  // namespace pudica::cli
