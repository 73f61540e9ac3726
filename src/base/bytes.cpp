#include "pudica/bytes.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/text_limits.h"

namespace pudica {
namespace {

struct Unit {
  std::string_view name;  // lower case
  double factor;
};

constexpr std::array<Unit, 10> kUnits{{{"", 1.0},
                                       {"b", 1.0},
                                       {"kb", 1e3},
                                       {"mb", 1e6},
                                       {"gb", 1e9},
                                       {"tb", 1e12},
                                       {"kib", 1024.0},
                                       {"mib", 1024.0 * 1024},
                                       {"gib", 1024.0 * 1024 * 1024},
                                       {"tib", 1024.0 * 1024 * 1024 * 1024}}};

std::string lower_without_spaces(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isspace(u) == 0) out += static_cast<char>(std::tolower(u));
  }
  return out;
}

Error bad_bytes(std::string_view text) {
  return invalid_argument("not a byte count: '" + shown(text) +
                          "'; expected a number with an optional unit (B, kB, MB, GB, TB, KiB, "
                          "MiB, GiB, TiB), such as 600MiB");
}

// Elsewhere such a number is a fraction of what a run needs.
Error part_of_a_byte(std::string_view text) {
  return invalid_argument(
      "not a byte count: '" + shown(text) +
      "'; expected a unit after a number with a point, as in 1.5GB: fractions of "
      "what a run needs are not known here");
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  const std::string compact = lower_without_spaces(text);
  std::size_t end = 0;
  while (end < compact.size() &&
         (std::isdigit(static_cast<unsigned char>(compact[end])) != 0 || compact[end] == '.')) {
    ++end;
  }
  const std::string_view number(compact.data(), end);
  const std::string_view unit = std::string_view(compact).substr(end);
  for (const Unit& known : kUnits) {
    if (unit != known.name) continue;
    if (unit.empty() && number.find('.') != std::string_view::npos) return part_of_a_byte(text);
    double value = 0;
    const auto [rest, status] =
        std::from_chars(number.data(), number.data() + number.size(), value);
    if (status != std::errc() || rest != number.data() + number.size()) return bad_bytes(text);
    const double bytes = value * known.factor;
    if (!std::isfinite(bytes) || bytes >= 9.2e18) return bad_bytes(text);
    return Bytes(static_cast<std::int64_t>(std::llround(bytes)));
  }
  return bad_bytes(text);
}

std::string format_bytes(Bytes bytes) {
  constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes.count());
  std::size_t unit = 0;
  while (std::abs(value) >= 1024.0 && unit + 1 < kNames.size()) {
    value /= 1024.0;
    ++unit;
  }
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kNames[unit]);
  return text.data();
}

}  // namespace pudica
