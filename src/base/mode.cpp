#include "pudica/mode.h"

#include <algorithm>
#include <charconv>

#include "base/text_limits.h"

namespace pudica {

std::string to_string(Mode mode) {
  switch (mode.kind) {
    case Mode::Kind::kKeep:
      return "keep";
    case Mode::Kind::kSelective:
      return "selective:" + std::to_string(mode.step);
    case Mode::Kind::kOffload:
      return "offload";
    case Mode::Kind::kFull:
      return "full";
  }
  return "unknown";
}

Result<Mode> parse_mode(std::string_view text) {
  if (text == "keep") return Mode::keep();
  if (text == "full") return Mode::full();
  if (text == "offload") return Mode::offload();
  constexpr std::string_view kPrefix = "selective:";
  if (text.starts_with(kPrefix)) {
    const std::string_view digits = text.substr(kPrefix.size());
    std::uint16_t step = 0;
    const auto [rest, status] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
    if (status == std::errc() && rest == digits.data() + digits.size()) {
      return Mode::selective(step);
    }
  }
  return invalid_argument("unknown mode '" + shown(text) +
                          "'; expected keep, selective:<k>, offload or full");
}

bool is_on_menu(std::span<const Mode::Kind> menu, Mode::Kind kind) {
  if (menu.empty()) return kind != Mode::Kind::kOffload;
  return std::ranges::find(menu, kind) != menu.end();
}

}  // namespace pudica
