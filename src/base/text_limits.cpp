#include "base/text_limits.h"

#include <array>

namespace pudica {

std::string shown(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  // Not within a character of UTF-8.
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0U) == 0x80U) --most;
  return std::string(text.substr(0, most)) + "...";
}

std::string beyond_json_limits(std::string_view json) {
  std::array<std::size_t, kMaxJsonDepth + 1> fields{};  // of what is open at each depth
  std::size_t depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text) {
      if (c == '\\') ++i;  // the next one is part of the text, whatever it is
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '[' || c == '{') {
      if (depth == kMaxJsonDepth) {
        return "nested deeper than " + std::to_string(kMaxJsonDepth) + ", the most expected";
      }
      fields[++depth] = 0;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    } else if (c == ':' && ++fields[depth] > kMaxJsonFields) {
      return "an object with more than " + std::to_string(kMaxJsonFields) +
             " fields, the most expected";
    }
  }
  return {};
}

}  // namespace pudica
