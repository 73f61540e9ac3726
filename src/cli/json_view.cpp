#include "cli/json_view.h"

namespace pudica::cli {

const Json* find(const Json& object, std::string_view path) {
  const Json* at = &object;
  for (;;) {
    if (!at->is_object()) return nullptr;
    const auto point = path.find('.');
    const auto field = at->find(std::string(path.substr(0, point)));
    if (field == at->end()) return nullptr;
    at = &*field;
    if (point == std::string_view::npos) return at;
    path.remove_prefix(point + 1);
  }
}

std::optional<std::int64_t> integer(const Json& object, std::string_view path) {
  const Json* const value = find(object, path);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  return value->get<std::int64_t>();
}

std::optional<double> number(const Json& object, std::string_view path) {
  const Json* const value = find(object, path);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return value->get<double>();
}

bool is_true(const Json& object, std::string_view path) {
  const Json* const value = find(object, path);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

std::string text(const Json& object, std::string_view path) {
  const Json* const value = find(object, path);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

const Json& list(const Json& object, std::string_view path) {
  static const Json kEmpty = Json::array();
  const Json* const value = find(object, path);
  return value != nullptr && value->is_array() ? *value : kEmpty;
}

std::string dump(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string dump_indented(const Json& value) {
  return value.dump(2, ' ', true, Json::error_handler_t::replace);
}

}  // namespace pudica::cli
