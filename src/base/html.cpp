#include "base/html.h"

namespace pudica {

std::string escape_html(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string script_safe_json(std::string_view json) {
  std::string text;
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

std::string fill_page(std::string_view page, const std::map<std::string, std::string>& parts) {
  std::string text;
  for (;;) {
    const auto begin = page.find("{{");
    const auto end = page.find("}}", begin);
    text += page.substr(0, begin);
    if (begin == std::string_view::npos || end == std::string_view::npos) return text;
    text += parts.at(std::string(page.substr(begin + 2, end - begin - 2)));
    page.remove_prefix(end + 2);
  }
}

}  // namespace pudica
