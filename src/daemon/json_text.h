// JSON text written straight, for answers that are asked for often: no tree in between.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "pudica/bytes.h"

namespace pudica::daemon {

// One object or list after the other; who writes sees to it that they are closed. What is not UTF-8
// is replaced, numbers that are not finite become 0, absent values null.
class JsonText {
 public:
  explicit JsonText(std::size_t expected_bytes = 0) { text_.reserve(expected_bytes); }

  void open(char bracket);   // '{' or '[', as the next value
  void close(char bracket);  // '}' or ']'
  // The name of the next value.
  JsonText& key(std::string_view name);

  void value(std::string_view text);
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(const char* text) { value(std::string_view(text)); }
  void value(double number);
  void value(bool truth);
  void value(Bytes bytes) { value(bytes.count()); }
  template <std::integral Integer>
  void value(Integer number) {
    separate();
    text_ += std::to_string(number);
  }
  template <typename T>
  void value(const std::optional<T>& known) {
    if (known) {
      value(*known);
    } else {
      null();
    }
  }
  void null();
  // Text that is JSON already.
  void raw(std::string_view json);
  // "" as null.
  void text_or_null(const std::string& text);

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  void separate();

  std::string text_;
  bool first_ = true;  // nothing stands before the next value
};

}  // namespace pudica::daemon
