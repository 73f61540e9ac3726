#include "base/safe_text.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace pudica {
namespace {

struct Range {
  char32_t first, last;
};

// What moves the cursor, turns the direction of writing or cannot be seen.
constexpr std::array<Range, 9> kUnsafe{{{0x00, 0x1f},
                                        {0x7f, 0x9f},
                                        {0xad, 0xad},
                                        {0x61c, 0x61c},
                                        {0x200b, 0x200f},
                                        {0x2028, 0x202e},
                                        {0x2060, 0x206f},
                                        {0xfeff, 0xfeff},
                                        {0xe0000, 0xe0fff}}};

bool is_unsafe(char32_t point) {
  return std::ranges::any_of(
      kUnsafe, [point](const Range& range) { return point >= range.first && point <= range.last; });
}

std::string hexadecimal(std::uint32_t value, std::size_t digits) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (; value != 0 || out.size() < digits; value >>= 4U) out += kDigits[value & 15U];
  std::ranges::reverse(out);
  return out;
}

std::string escaped(char32_t point) {
  switch (point) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  const auto value = static_cast<std::uint32_t>(point);
  return value < 0x100 ? "\\x" + hexadecimal(value, 2) : "\\u{" + hexadecimal(value, 4) + "}";
}

bool is_plain_word(std::string_view text) {
  static constexpr std::string_view kMarks = "._-+:/@,%~";
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

}  // namespace

char32_t take_point(std::string_view& text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t length = lead < 0x80                   ? 1
                             : lead >= 0xc2 && lead < 0xe0 ? 2
                             : lead >= 0xe0 && lead < 0xf0 ? 3
                             : lead >= 0xf0 && lead < 0xf5 ? 4
                                                           : 0;
  char32_t point = length == 1 ? lead : lead & (0x7fU >> length);
  bool valid = length > 0 && length <= text.size();
  for (std::size_t i = 1; valid && i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    valid = (next & 0xc0U) == 0x80U;
    point = (point << 6U) | (next & 0x3fU);
  }
  constexpr std::array<char32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  valid = valid && point >= kLeast[length] && point <= 0x10ffff &&
          !(point >= 0xd800 && point <= 0xdfff);
  text.remove_prefix(valid ? length : 1);
  return valid ? point : kInvalidPoint;
}

void append_utf8(std::string& out, char32_t point) {
  const auto byte = [&out](char32_t value) { out += static_cast<char>(value); };
  if (point < 0x80) {
    byte(point);
  } else if (point < 0x800) {
    byte(0xc0 | (point >> 6U));
    byte(0x80 | (point & 0x3fU));
  } else if (point < 0x10000) {
    byte(0xe0 | (point >> 12U));
    byte(0x80 | ((point >> 6U) & 0x3fU));
    byte(0x80 | (point & 0x3fU));
  } else {
    byte(0xf0 | (point >> 18U));
    byte(0x80 | ((point >> 12U) & 0x3fU));
    byte(0x80 | ((point >> 6U) & 0x3fU));
    byte(0x80 | (point & 0x3fU));
  }
}

std::string one_line(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const char32_t point = take_point(text);
    if (point == kInvalidPoint) {
      append_utf8(out, kReplacementPoint);
    } else if (is_unsafe(point)) {
      out += escaped(point);
    } else {
      append_utf8(out, point);
    }
  }
  return out;
}

std::string log_value(std::string_view text) {
  if (is_plain_word(text)) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return one_line(out + '"');
}

}  // namespace pudica
