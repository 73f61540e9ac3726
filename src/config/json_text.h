// Strict JSON reading: line and column of a syntax error, repeated keys found.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace pudica::config {

struct JsonText {
  std::optional<nlohmann::json> value;  // nullopt: a syntax error
  std::vector<std::string> errors;      // with value: repeated keys; without: the syntax error
};

// Never throws for any text.
JsonText read_json(std::string_view text);

}  // namespace pudica::config
