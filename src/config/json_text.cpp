#include "config/json_text.h"

#include <algorithm>
#include <set>

#include "base/text_limits.h"

namespace pudica::config {
namespace {

using nlohmann::json;

// Collects the keys that occur twice in one object, as paths.
class RepeatedKeys {
 public:
  bool operator()(json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        open_.push_back({});
        break;
      case json::parse_event_t::object_end:
        if (!open_.empty()) open_.pop_back();
        break;
      case json::parse_event_t::key:
        enter(parsed.get<std::string>());
        break;
      default:
        break;
    }
    return true;
  }

  [[nodiscard]] const std::vector<std::string>& errors() const { return errors_; }

 private:
  struct Object {
    std::set<std::string> seen;
    std::string current;
  };

  void enter(const std::string& name) {
    Object& object = open_.back();
    object.current = name;
    if (object.seen.insert(name).second) return;
    std::string path;
    for (const Object& outer : open_) path += (path.empty() ? "" : ".") + outer.current;
    errors_.push_back(path + ": given twice, expected once");
  }

  std::vector<Object> open_;
  std::vector<std::string> errors_;
};

std::string describe(const json::parse_error& error, std::string_view text) {
  const std::size_t end = std::min(error.byte == 0 ? 0 : error.byte - 1, text.size());
  const std::string_view before = text.substr(0, end);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_begin = before.rfind('\n');
  const std::size_t column =
      1 + (line_begin == std::string_view::npos ? end : end - line_begin - 1);
  // nlohmann's message is "[id] parse error at line L, column C: what"; only `what` is kept.
  const std::string_view message = error.what();
  const std::size_t colon = message.find(": ");
  const std::string_view what =
      colon == std::string_view::npos ? message : message.substr(colon + 2);
  return "line " + std::to_string(line) + ", column " + std::to_string(column) + ": " +
         shown(what, kMaxJsonMessage);
}

// "[json.exception.out_of_range.406] number overflow parsing '1e999'": what the text has at fault.
std::string describe(const json::exception& error) {
  const std::string_view message = error.what();
  const std::size_t quote = message.find('\'');
  if (quote != std::string_view::npos) {
    return "number " + shown(message.substr(quote), kMaxJsonMessage) +
           ": too large, expected one that a double holds (up to 1.8e308)";
  }
  const std::size_t end = message.starts_with('[') ? message.find("] ") : std::string_view::npos;
  return shown(end == std::string_view::npos ? message : message.substr(end + 2), kMaxJsonMessage);
}

}  // namespace

JsonText read_json(std::string_view text) {
  std::string beyond = beyond_json_limits(text);
  if (!beyond.empty()) return {std::nullopt, {std::move(beyond)}};
  RepeatedKeys repeated;
  try {
    json value = json::parse(
        text.begin(), text.end(),
        [&repeated](int, json::parse_event_t event, json& parsed) {
          return repeated(event, parsed);
        },
        true);
    return {std::move(value), repeated.errors()};
  } catch (const json::parse_error& error) {
    return {std::nullopt, {describe(error, text)}};
  } catch (const json::exception& error) {  // a number that no double holds
    return {std::nullopt, {describe(error)}};
  }
}

}  // namespace pudica::config
