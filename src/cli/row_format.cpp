#include "cli/row_format.h"

#include <algorithm>
#include <set>

#include "cli/table.h"

namespace pudica::cli {
namespace {

// "last" is a way to "last.seconds".
bool leads_to(std::string_view field, std::string_view known) {
  return known.starts_with(field) && (known.size() == field.size() || known[field.size()] == '.');
}

void add_fields(const Json& object, const std::string& before, std::set<std::string>& fields) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_object() && !value.empty()) {
      add_fields(value, before + name + ".", fields);
    } else {
      fields.insert(before + name);
    }
  }
}

Error bad(std::string_view text, const std::string& what) {
  return invalid_argument("'" + std::string(text) + "': " + what);
}

}  // namespace

Result<RowFormat> RowFormat::parse(std::string_view text) {
  RowFormat out;
  std::string plain;
  const auto end_plain = [&out, &plain] {
    if (!plain.empty()) out.parts_.push_back({plain, false});
    plain.clear();
  };
  if (text.empty()) return bad(text, "expected text with fields such as {name}");
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (text[i] == '\\') {
      constexpr std::string_view kLetters = "tn\\";
      const std::size_t which = kLetters.find(next);
      if (next == '\0' || which == std::string_view::npos) {
        return bad(text, "a backslash is followed by t, n or another one");
      }
      plain += "\t\n\\"[which];
      ++i;
    } else if ((text[i] == '{' || text[i] == '}') && next == text[i]) {
      plain += text[i++];
    } else if (text[i] == '{') {
      const std::size_t end = text.find('}', i);
      if (end == std::string_view::npos) return bad(text, "a brace is not closed ({{ is a brace)");
      if (end == i + 1) return bad(text, "{} names no field, expected one such as {name}");
      end_plain();
      out.parts_.push_back({std::string(text.substr(i + 1, end - i - 1)), true});
      i = end;
    } else if (text[i] == '}') {
      return bad(text, "a brace is not opened (}} is a brace)");
    } else {
      plain += text[i];
    }
  }
  end_plain();
  return out;
}

Result<void> RowFormat::check(std::span<const char* const> known,
                              const std::vector<const Json*>& objects) const {
  std::set<std::string> fields(known.begin(), known.end());
  for (const Json* const object : objects) add_fields(*object, "", fields);
  for (const Part& part : parts_) {
    if (!part.is_field) continue;
    const bool found = std::ranges::any_of(
        fields, [&part](const std::string& field) { return leads_to(part.text, field); });
    if (found) continue;
    std::string all;
    for (const std::string& field : fields) all += (all.empty() ? "" : ", ") + field;
    return invalid_argument("no field '" + part.text + "', expected one of: " + all);
  }
  return {};
}

std::string RowFormat::line(const Json& object) const {
  std::string out;
  for (const Part& part : parts_) {
    out += part.is_field ? field_text(find(object, part.text)) : part.text;
  }
  return out;
}

}  // namespace pudica::cli
