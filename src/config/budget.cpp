#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/text_limits.h"
#include "config/config.h"

namespace pudica {
namespace {

bool has_unit(std::string_view text) {
  return text.find_first_of("bBkKmMgGtT") != std::string_view::npos;
}

Error bad_budget(std::string_view text) {
  return invalid_argument("not a budget: '" + shown(text) +
                          "'; expected auto, bytes such as 600MiB or 4096, or a fraction with a "
                          "point from 0.0 to 1.0");
}

}  // namespace

Result<BudgetSetting> parse_budget(std::string_view text) {
  BudgetSetting budget;
  if (text == "auto") return budget;
  const bool is_fraction = text.find('.') != std::string_view::npos && !has_unit(text);
  if (is_fraction) {
    const auto [rest, status] =
        std::from_chars(text.data(), text.data() + text.size(), budget.fraction);
    const bool whole = status == std::errc() && rest == text.data() + text.size();
    if (!whole || !(budget.fraction >= 0 && budget.fraction <= 1)) return bad_budget(text);
    budget.kind = BudgetSetting::Kind::kFraction;
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
      // Shortest digits that read back the same; a point makes it a fraction.
      std::array<char, 400> digits{};
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), budget.fraction,
                                     std::chars_format::fixed);
      std::string text(digits.data(), end.ptr);
      if (text.find('.') == std::string::npos) text += ".0";
      return text;
    }
  }
  return "unknown";
}

}  // namespace pudica
