#include "cli/format.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include <fmt/format.h>

#include "inspect/recomputation.h"
#include "pudica/bytes.h"

namespace pudica::cli {
namespace {

constexpr std::int64_t kMinute = 60;
constexpr std::int64_t kHour = 60 * kMinute;
constexpr std::int64_t kDay = 24 * kHour;

std::string long_duration(std::int64_t seconds) {
  if (seconds < kHour) return fmt::format("{} min {:02} s", seconds / kMinute, seconds % kMinute);
  if (seconds < kDay) {
    return fmt::format("{} h {:02} min", seconds / kHour, seconds % kHour / kMinute);
  }
  return fmt::format("{} d {} h", seconds / kDay, seconds % kDay / kHour);
}

}  // namespace

std::string bytes_text(const std::optional<std::int64_t>& bytes) {
  return bytes ? format_bytes(Bytes(*bytes)) : kNothing;
}

std::string duration_text(const std::optional<double>& seconds) {
  if (!seconds || !std::isfinite(*seconds)) return kNothing;
  const double value = *seconds;
  constexpr double kMostSeconds = 1e15;
  const double size = std::abs(value);
  if (size == 0) return "0 s";
  if (size < 0.9995e-3) return fmt::format("{:.0f} us", value * 1e6);
  if (size < 0.9995) return fmt::format("{:.3g} ms", value * 1e3);
  if (size < 59.95) return fmt::format("{:.3g} s", value);
  const std::string text =
      long_duration(static_cast<std::int64_t>(std::round(std::min(size, kMostSeconds))));
  return value < 0 ? "-" + text : text;
}

std::string percent_text(const std::optional<double>& fraction) {
  return fraction ? fmt::format("{:.1f} %", *fraction * 100) : kNothing;
}

std::string recompute_text(const std::optional<double>& again, const std::optional<double>& all) {
  if (!again) return "not known";
  if (!all) return duration_text(again);
  return duration_text(again) + " of " + duration_text(all) + " (" +
         percent_text(recomputed_share(*again, *all)) + ")";
}

std::string count_text(const std::optional<std::int64_t>& count) {
  return count ? std::to_string(*count) : kNothing;
}

std::optional<std::int64_t> parse_time(const std::string& text) {
  std::tm parts{};
  const char* const end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return timegm(&parts);
}

std::string age_text(const std::string& time, std::int64_t now) {
  const auto then = parse_time(time);
  if (!then) return kNothing;
  const std::int64_t age = now - *then;
  if (age < 1) return "now";
  if (age < kMinute) return fmt::format("{} s ago", age);
  if (age < kHour) return fmt::format("{} min ago", age / kMinute);
  if (age < kDay) return fmt::format("{} h ago", age / kHour);
  return fmt::format("{} d ago", age / kDay);
}

}  // namespace pudica::cli
