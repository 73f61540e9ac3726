// What is wrong with a JSON text, as a sentence.
#pragma once

#include <string>
#include <string_view>

#include "base/text_limits.h"
#include "inspect/json_values.h"

namespace pudica::inspect {

// The library's messages begin with its own name for them: "[json.exception.parse_error.101] ".
inline std::string plain_message(const Json::exception& error) {
  const std::string_view message = error.what();
  const std::size_t end = message.starts_with('[') ? message.find("] ") : std::string_view::npos;
  return "not JSON that can be read: " +
         shown(end == std::string_view::npos ? message : message.substr(end + 2), kMaxJsonMessage);
}

}  // namespace pudica::inspect
