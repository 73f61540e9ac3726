#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

#include "base/text_limits.h"
#include "config/config.h"

namespace pudica {
namespace {

bool has_unit(std::string_view text) {
  return text.find_first_of("bBkKmMgGtT") != std::string_view::npos;
}

Error bad_budget(std::string_view text) {
  return invalid_argument("not a budget: '" + shown(text) +
                          "'; expected auto, bytes such as 600MiB or 4096, a fraction with a "
                          "point from 0.0 to 1.0, or between(F) with an F from 0 to 1");
}

std::optional<double> read_fraction(std::string_view text) {
  double value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = status == std::errc() && rest == text.data() + text.size();
  if (!whole || !(value >= 0 && value <= 1)) return std::nullopt;
  return value;
}

// Shortest digits that read back the same.
std::string digits_of(double fraction) {
  std::array<char, 400> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), fraction,
                                 std::chars_format::fixed);
  return {digits.data(), end.ptr};
}

constexpr std::string_view kBetween = "between(";

}  // namespace

Result<BudgetSetting> parse_budget(std::string_view text) {
  BudgetSetting budget;
  if (text == "auto") return budget;
  const bool is_between = text.starts_with(kBetween) && text.ends_with(')');
  const bool is_fraction = text.find('.') != std::string_view::npos && !has_unit(text);
  if (is_between || is_fraction) {
    const auto fraction = read_fraction(
        is_between ? text.substr(kBetween.size(), text.size() - kBetween.size() - 1) : text);
    if (!fraction) return bad_budget(text);
    budget.kind = is_between ? BudgetSetting::Kind::kBetween : BudgetSetting::Kind::kFraction;
    budget.fraction = *fraction;
    return budget;
  }
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes < Bytes(1)) return bad_budget(text);
  budget.kind = BudgetSetting::Kind::kBytes;
  budget.bytes = *bytes;
  return budget;
}

std::string to_string(const BudgetSetting& budget) {
  switch (budget.kind) {
    case BudgetSetting::Kind::kAuto:
      return "auto";
    case BudgetSetting::Kind::kBytes:
      return std::to_string(budget.bytes.count()) + "B";
    case BudgetSetting::Kind::kFraction: {
      std::string text = digits_of(budget.fraction);
      if (text.find('.') == std::string::npos) text += ".0";  // a point makes it a fraction
      return text;
    }
    case BudgetSetting::Kind::kBetween:
      return std::string(kBetween) + digits_of(budget.fraction) + ")";
  }
  return "unknown";
}

}  // namespace pudica
