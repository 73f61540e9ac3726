#include "daemon/json_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "inspect/json_values.h"

namespace pudica::daemon {

void JsonText::separate() {
  if (!first_) text_ += ',';
  first_ = false;
}

void JsonText::open(char bracket) {
  separate();
  text_ += bracket;
  first_ = true;
}

void JsonText::close(char bracket) {
  text_ += bracket;
  first_ = false;
}

JsonText& JsonText::key(std::string_view name) {
  value(name);
  text_ += ':';
  first_ = true;
  return *this;
}

void JsonText::value(std::string_view text) {
  separate();
  const bool plain = std::ranges::all_of(text, [](char character) {
    return character >= ' ' && character < 0x7f && character != '"' && character != '\\';
  });
  if (plain) {
    text_.append(1, '"').append(text).append(1, '"');
  } else {
    text_ += inspect::dump(inspect::Json(std::string(text)), -1);
  }
}

void JsonText::value(double number) {
  separate();
  std::array<char, 64> digits{};
  const double finite = std::isfinite(number) ? number : 0.0;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), finite);
  text_.append(digits.data(), end.ptr);
}

void JsonText::value(bool truth) {
  separate();
  text_ += truth ? "true" : "false";
}

void JsonText::null() {
  separate();
  text_ += "null";
}

void JsonText::raw(std::string_view json) {
  separate();
  text_ += json;
}

void JsonText::text_or_null(const std::string& text) {
  if (text.empty()) {
    null();
  } else {
    value(text);
  }
}

}  // namespace pudica::daemon
