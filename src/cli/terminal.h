// What text may look like where it is shown: colours, characters, width; and text that is safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pudica::cli {

// How the output is shown. Thread-safe: a value.
struct Style {
  bool terminal = false;   // tables for people; otherwise tab-separated fields
  bool colour = false;     // escape sequences may be written
  bool utf8 = true;        // characters beyond ASCII may be written
  std::size_t width = 80;  // columns
};

// Of the stream `descriptor`, by terminal, locale, COLUMNS, TERM and NO_COLOR.
Style detect_style(int descriptor, bool no_color);
// Wide enough for anything.
inline constexpr std::size_t kUnboundedWidth = std::size_t{1} << 30U;

// Lines of the terminal at `descriptor`; 0 where it is none.
std::size_t terminal_rows(int descriptor);

enum class Colour : std::uint8_t { kNone, kBold, kDim, kRed, kGreen, kYellow, kBlue };

// The text between the escape sequences of a colour; itself where colours are off.
std::string painted(std::string_view text, Colour colour, const Style& style);

// Text of others, safe to show: control characters, direction marks and invisible characters become
// visible escapes (\n, \x1B, \u{202E}), bytes that are not UTF-8 the replacement character; without
// UTF-8 everything beyond ASCII a question mark. One line.
std::string sanitised(std::string_view text, const Style& style);

// The same bytes with what is not UTF-8 replaced.
std::string valid_utf8(std::string_view text);

// Columns that valid UTF-8 takes.
std::size_t display_width(std::string_view text);

// The text in at most `width` columns, shortened with an ellipsis.
std::string clipped(std::string_view text, std::size_t width, const Style& style);

// A bar of `width` columns with `fraction` of it filled: green, yellow from 0.9, red above 1.
std::string budget_bar(double fraction, std::size_t width, const Style& style);

}  // namespace pudica::cli
