// Text of others, made safe to show in a terminal and to write into a log.
#pragma once

#include <string>
#include <string_view>

namespace pudica {

// What take_point() returns for a byte that is not UTF-8.
inline constexpr char32_t kInvalidPoint = 0xffffffff;
// What is shown in its place.
inline constexpr char32_t kReplacementPoint = 0xfffd;

// Takes one code point off the front; kInvalidPoint (one byte) where it is not UTF-8. Requires:
// text. Thread-safe.
char32_t take_point(std::string_view& text);
void append_utf8(std::string& out, char32_t point);

// The text as one line: control characters, direction marks and invisible characters become visible
// escapes (\n, \x1B, \u{202E}), bytes that are not UTF-8 the replacement character. Thread-safe.
std::string one_line(std::string_view text);

// The text as the value of `key=value` in a log: as it is where it is a plain word, else in quotes,
// with quotes and backslashes in it escaped, so that it cannot pass for another key. Thread-safe.
std::string log_value(std::string_view text);

}  // namespace pudica
