#include "cli/terminal.h"

#include <algorithm>
#include <array>
#include <clocale>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/safe_text.h"

namespace pudica::cli {
namespace {

struct Range {
  char32_t first, last;
};

constexpr std::array<Range, 4> kZeroWidth{
    {{0x300, 0x36f}, {0x1ab0, 0x1aff}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}}};
constexpr std::array<Range, 9> kDoubleWidth{{{0x1100, 0x115f},
                                             {0x2e80, 0xa4cf},
                                             {0xac00, 0xd7a3},
                                             {0xf900, 0xfaff},
                                             {0xfe30, 0xfe6f},
                                             {0xff00, 0xff60},
                                             {0xffe0, 0xffe6},
                                             {0x1f300, 0x1faff},
                                             {0x20000, 0x3fffd}}};

template <std::size_t N>
bool within(char32_t point, const std::array<Range, N>& ranges) {
  return std::ranges::any_of(
      ranges, [point](const Range& range) { return point >= range.first && point <= range.last; });
}

std::size_t width_of(char32_t point) {
  if (within(point, kZeroWidth)) return 0;
  return within(point, kDoubleWidth) ? 2 : 1;
}

std::size_t positive(const char* text) {
  const long value = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  constexpr long kMostColumns = 1000;
  return value > 0 ? static_cast<std::size_t>(std::min(value, kMostColumns)) : 0;
}

}  // namespace

Style detect_style(int descriptor, bool no_color) {
  Style style;
  style.terminal = isatty(descriptor) == 1;
  if (!style.terminal) return style;
  const char* const off = std::getenv("NO_COLOR");
  const char* const term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::strcmp(term, "dumb") == 0;
  style.colour = !no_color && !dumb && (off == nullptr || *off == '\0');
  const char* const chosen = std::setlocale(LC_CTYPE, "");
  style.utf8 = chosen != nullptr && std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    style.width = size.ws_col;
  } else if (const std::size_t columns = positive(std::getenv("COLUMNS")); columns > 0) {
    style.width = columns;
  }
  return style;
}

std::size_t terminal_rows(int descriptor) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

std::string painted(std::string_view text, Colour colour, const Style& style) {
  if (!style.colour || colour == Colour::kNone || text.empty()) return std::string(text);
  constexpr std::array<const char*, 7> kCodes{"0", "1", "2", "31", "32", "33", "34"};
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<std::size_t>(colour)], text);
}

std::string sanitised(std::string_view text, const Style& style) {
  std::string safe = one_line(text);
  if (style.utf8) return safe;
  std::string out;
  for (std::string_view rest = safe; !rest.empty();) {
    const char32_t point = take_point(rest);
    out += point < 0x80 ? static_cast<char>(point) : '?';
  }
  return out;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const char32_t point = take_point(text);
    append_utf8(out, point == kInvalidPoint ? kReplacementPoint : point);
  }
  return out;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) width += width_of(take_point(text));
  return width;
}

std::string clipped(std::string_view text, std::size_t width, const Style& style) {
  // Marks of no width are bounded too: a letter may carry any number of them.
  constexpr std::size_t kBytesPerColumn = 16;
  if (display_width(text) <= width && text.size() <= width * kBytesPerColumn) {
    return std::string(text);
  }
  const std::string ellipsis = style.utf8 ? "\u2026" : "...";
  const std::size_t tail = std::min(width, display_width(ellipsis));
  std::string out;
  std::size_t used = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view before = rest;
    const std::size_t next = width_of(take_point(rest));
    if (used + next > width - tail || out.size() >= (width - tail) * kBytesPerColumn) break;
    out += before.substr(0, before.size() - rest.size());
    used += next;
  }
  return out + (style.utf8 ? ellipsis.substr(0, tail == 0 ? 0 : ellipsis.size())
                           : ellipsis.substr(0, tail));
}

std::string budget_bar(double fraction, std::size_t width, const Style& style) {
  const double share = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  const auto filled = static_cast<std::size_t>(std::lround(share * static_cast<double>(width)));
  std::string full;
  std::string rest;
  const char* const filled_block = style.utf8 ? "\u2588" : "#";
  const char* const empty_block = style.utf8 ? "\u2591" : ".";
  for (std::size_t i = 0; i < width; ++i)
    (i < filled ? full : rest) += i < filled ? filled_block : empty_block;
  const Colour colour = fraction > 1     ? Colour::kRed
                        : fraction > 0.9 ? Colour::kYellow
                                         : Colour::kGreen;
  return painted(full, colour, style) + painted(rest, Colour::kDim, style);
}

}  // namespace pudica::cli
